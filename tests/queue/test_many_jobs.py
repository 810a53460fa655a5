"""Many jobs: a round costs the same however many there are, and keeps few of them."""

from __future__ import annotations

import tracemalloc
from functools import partial

import pytest

from cmdx import Task
from cmdx.queue import Queue, records
from cmdx.queue.claims import Claims
from cmdx.queue.report import Demand
from cmdx.queue.table import AFTER
from cmdx.stores import SqliteStore

FEW, MANY = 500, 50_000
MARGIN = 1.5


class Count(Task[int], name="many.count"):
    number: int

    def work(self):
        return self.number


@pytest.fixture(scope="module")
def filled():
    """Return two queues in memory, with few and with many jobs of several kinds."""
    queues = {}
    for count in (FEW, MANY):
        queue = queues[count] = Queue(SqliteStore(), f"{count} jobs")
        row = queue._new_row(Count(number=7))
        queue.store.transact(partial(fill, row=row, count=count))
    return queues


def fill(statements, row, count):
    """Store ready jobs of three priorities, delayed ones, and ones that are done."""
    rows = []
    for number in range(count):
        kind = number % 5
        rank = -2 * (number % 3)
        delay = 1e6 if kind == 3 else 0.0
        state = "done" if kind == 4 else "ready"
        facts = {"id": f"{number}", "rank": 0 if kind == 4 else rank, "state": state}
        due = row["due_at"] + delay - (0 if kind == 4 else 1)
        timing = AFTER if delay else None
        rows.append({**row, **facts, "due_at": due, "timing": timing})
    records.insert_jobs(statements, rows)


def steps_of(queue, run):
    """Return how many steps SQLite does for *run*."""
    steps = []
    queue.store._connection.set_progress_handler(lambda: steps.append(1), 10)
    run()
    queue.store._connection.set_progress_handler(None, 0)
    return len(steps)


def steps_of_rounds(queue):
    """Return how many steps some rounds take, after one that has removed old jobs."""
    with Claims(queue) as claims:
        claims.do_round()

        def do_rounds():
            for _ in range(3):
                assert len(claims.do_round((), Demand(50)).claimed) == 50
            # One that can take asynchronous jobs only does not look at the others.
            assert claims.do_round((), Demand(50, plain=0)).claimed == []
            claims.do_round()

        return steps_of(queue, do_rounds)


def test_a_round_takes_as_much_work_however_many_jobs_are_ready(filled):
    few, many = map(steps_of_rounds, filled.values())

    assert many < few * MARGIN


def test_a_round_keeps_only_what_it_has_claimed(filled):
    queue = filled[MANY]
    with Claims(queue) as claims:
        claims.do_round((), Demand(50))  # what is imported and cached counts once
        tracemalloc.start()
        report = claims.do_round((), Demand(50))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert len(report.claimed) == 50
    assert peak < 2_000_000


def end_what_is_due(statements):
    sql = "update cmdx_job set state = 'done', rank = 0 where due_at < :now"
    statements.execute(sql, now=statements.now)


def test_delayed_jobs_do_not_keep_a_worker_busy(filled):
    """An idle worker looks when the next job is due, without reading all of them."""
    idle = {}
    for count, queue in filled.items():
        queue.store.transact(end_what_is_due)
        with Claims(queue) as claims:
            claims.do_round((), Demand(50))
            idle[count] = steps_of(queue, lambda c=claims: c.do_round((), Demand(50)))

    assert idle[MANY] < idle[FEW] * MARGIN + 10
