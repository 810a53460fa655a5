"""The real clerk and legs in simulated histories, and bugs that they find."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

pytest.importorskip("greenlet", reason="greenlet is in the dependency group tests")
sys.path.insert(0, str(Path(__file__).parent))

from ledger_world import Broken
from queue_world import History

from cmdx.queue import clerk, schedules, table, upkeep
from cmdx.queue.clerk import Round

HISTORIES = 500
UNTIL_FOUND = 400


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.CRITICAL, "cmdx")  # workers that are cut off say so


def test_no_history_breaks_what_is_promised():
    histories = [History(seed).run() for seed in range(HISTORIES)]

    assert sum(history.world.killed for history in histories) > HISTORIES
    assert sum(history.legs for history in histories) > HISTORIES


def test_one_seed_is_one_history():
    for seed in range(10):
        first, second = History(seed).run(), History(seed).run()
        assert (first.world.points, first.legs) == (second.world.points, second.legs)


# -- planted bugs -------------------------------------------------------------------


def write_ends_of_others(monkeypatch):
    def plant(_self, _statements, end, _owned):
        return end.record

    monkeypatch.setattr(Round, "still_owned", plant)
    claim_without_a_lease(monkeypatch)  # it would find out that it has lost them


def run_again_what_may_not(monkeypatch):
    crash = table.crash

    def plant(record, now, keep, **why):
        return crash(record._replace(is_once=0), now, keep, **why)._replace(is_once=1)

    monkeypatch.setattr(table, "crash", plant)


def forget_the_next_of_a_key(monkeypatch):
    monkeypatch.setattr(upkeep, "promote_next", lambda *_: None)


def forget_dead_workers(monkeypatch):
    monkeypatch.setattr(Round, "recover_lost_jobs", lambda *_: [])


def claim_without_a_lease(monkeypatch):
    survey = clerk.survey

    def plant(*arguments):
        return survey(*arguments)._replace(is_registered=1)

    monkeypatch.setattr(clerk, "survey", plant)
    monkeypatch.setattr(Round, "keep_worker", lambda *_: None)


def fire_before_the_last_has_ended(monkeypatch):
    decide = schedules.decide_tick

    def plant(record, now, *, is_busy):
        del is_busy
        tick = decide(record, now, is_busy=False)
        due = schedules.time_after(record, now)
        return schedules.Tick(tick.record._replace(due_at=due), fires=True)

    monkeypatch.setattr(schedules, "decide_tick", plant)


def let_held_jobs_overtake(monkeypatch):
    def plant(record):
        return record._replace(state="ready", position=record.position + 1000)

    monkeypatch.setattr(table, "promote", plant)


def drop_what_is_given_back(monkeypatch):
    def plant(record, now, keep):
        return table.end(record, table.JobState.DONE, now, keep, result="{}")

    monkeypatch.setattr(table, "offer_again", plant)


BUGS = [
    write_ends_of_others,
    run_again_what_may_not,
    forget_the_next_of_a_key,
    forget_dead_workers,
    claim_without_a_lease,
    fire_before_the_last_has_ended,
    let_held_jobs_overtake,
    drop_what_is_given_back,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(Broken):
        for seed in range(UNTIL_FOUND):
            History(seed).run()
