"""Gathering: for how many other callers a leader waits, and for how long."""

from __future__ import annotations

from collections import deque

import pytest
from notes import Call, add, count_notes, nobody_leads, numbers_in, wait_for_queue

from cmdx.stores import commits
from cmdx.stores.callers import Caller

MILLISECOND = 0.001
"""How long a commit takes here."""


class Gathering:
    """The wakeup of a leader; each time that it waits, one of those to come comes."""

    def __init__(self, store):
        self.store, self.to_come, self.calls = store, deque(), []
        self.waits, self.wakes = [], 0
        self.now, self.commit_takes = 0.0, MILLISECOND

    def acquire(self, timeout):
        self.waits.append(timeout)
        if not self.to_come:
            return False  # as after the timeout
        count = len(self.store._queue)
        self.calls.append(Call(self.store.transact, self.to_come.popleft()))
        wait_for_queue(self.store, count + 1)
        return True

    def release(self):
        self.wakes += 1

    def monotonic(self):
        return self.now


@pytest.fixture
def gathering(store, monkeypatch):
    """The store with time that passes only while it commits."""
    made, commit = Gathering(store), store._end

    def commit_slowly(evidence):
        made.now += made.commit_takes
        commit(evidence)

    monkeypatch.setattr(commits, "monotonic", made.monotonic)
    monkeypatch.setattr(store, "_end", commit_slowly)
    monkeypatch.setattr(store, "_enough_callers", made)
    return made


def write_together(store, numbers):
    """Have callers write in one group."""
    with nobody_leads(store):
        calls = [Call(store.transact, add(number)) for number in numbers]
        wait_for_queue(store, len(calls))
    for call in calls:
        call.result()


def write_and_gather(gathering, numbers):
    """Write with those who come if somebody waits for them; return how many wrote."""
    first, *others = numbers
    gathering.to_come.extend(add(number) for number in others)
    gathering.store.transact(add(first))
    for call in gathering.calls:
        call.result()
    return gathering.store.group_size


def test_a_leader_waits_for_as_many_callers_as_came_together_before(store, gathering):
    write_together(store, range(3))

    assert write_and_gather(gathering, [3, 4, 5]) == 3
    assert gathering.waits == [MILLISECOND, MILLISECOND]
    assert numbers_in(store) == [0, 1, 2, 3, 4, 5]


def test_a_lone_caller_waits_for_nobody(store, gathering):
    for number in range(3):
        store.transact(add(number))

    assert gathering.waits == []


def test_a_leader_that_waits_is_woken_by_the_last_caller_it_expects(store, gathering):
    write_together(store, range(4))
    wakes = gathering.wakes
    write_and_gather(gathering, range(4, 8))

    assert gathering.wakes == wakes + 1


def test_fewer_callers_are_waited_for_after_a_wait_in_vain(store, gathering):
    write_together(store, range(8))

    assert write_and_gather(gathering, [8]) == 1
    assert write_and_gather(gathering, [9]) == 1
    assert len(gathering.waits) == 1


def test_half_as_many_callers_are_waited_for_after_a_smaller_group(store, gathering):
    write_together(store, range(7))
    store._commit_seconds = 0.0
    store.transact(add(7))

    assert write_and_gather(gathering, range(8, 15)) == 7 // 2


def test_no_more_callers_are_waited_for_than_go_into_a_group(
    store, gathering, monkeypatch
):
    monkeypatch.setattr(commits, "MOST_UNITS", 3)
    write_together(store, range(3))
    gathering.to_come.extend(add(number) for number in range(10, 20))
    write_together(store, range(3, 8))
    for call in gathering.calls:
        call.result()

    assert len(gathering.calls) == 1
    assert numbers_in(store) == [*range(8), 10]


@pytest.mark.parametrize(
    ("commit_takes", "waits"),
    [
        (commits.QUICK_COMMIT / 2, []),
        (commits.QUICK_COMMIT * 2, [commits.QUICK_COMMIT * 2]),
        (60.0, [commits.LONGEST_GATHERING]),
    ],
)
def test_a_leader_waits_as_long_as_a_commit_takes(
    store, gathering, commit_takes, waits
):
    gathering.commit_takes = commit_takes
    write_together(store, range(2))
    write_and_gather(gathering, [2])

    assert gathering.waits == pytest.approx(waits)


def test_a_leader_that_was_woken_in_vain_waits_for_the_rest_of_the_time(
    store, gathering, monkeypatch
):
    timeouts = []

    def wake_in_vain(timeout):
        timeouts.append(timeout)
        gathering.now += MILLISECOND / 2
        return len(timeouts) < 5  # it ends if the time is not looked at

    write_together(store, range(2))
    monkeypatch.setattr(gathering, "acquire", wake_in_vain)
    store.transact(add(2))

    assert timeouts == pytest.approx([MILLISECOND, MILLISECOND / 2])


# -- those that only read ----------------------------------------------------------


def test_a_caller_that_only_reads_waits_for_nobody(store, gathering):
    write_together(store, range(3))

    assert store.transact(count_notes, read_only=True) == 3
    assert gathering.waits == []


@pytest.mark.parametrize("commit_takes", [0.0, MILLISECOND])
def test_reading_changes_nothing_of_how_writers_gather(store, gathering, commit_takes):
    write_together(store, range(8))
    gathering.commit_takes = commit_takes
    store.transact(count_notes, read_only=True)
    gathering.commit_takes = MILLISECOND

    assert write_and_gather(gathering, range(8, 16)) == 8


def test_a_reader_that_leads_does_not_serve_a_lone_writer(store):
    reader = Caller(count_notes, sync=False, relaxed=False, read_only=True)
    with nobody_leads(store):
        writing = Call(store.transact, add(1))
        wait_for_queue(store, 1)
        callers = list(store._next_callers(reader))

    assert callers == []
    assert writing.result() == 1


@pytest.mark.parametrize("left_by", ["is_done", "is_gone"])
def test_a_leader_whose_unit_is_not_to_be_run_serves_nobody(store, left_by):
    leader = Caller(add(1), sync=False, relaxed=False, read_only=False)
    setattr(leader, left_by, True)
    with nobody_leads(store):
        store._queue.append(leader)
        callers = list(store._next_callers(leader))
        store._queue.clear()

    assert callers == []
