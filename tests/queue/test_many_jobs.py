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
    return {count: queue_with(new_rows(count)) for count in (FEW, MANY)}


def queue_with(rows):
    """Return a queue in memory that has jobs."""
    queue = Queue(SqliteStore())
    row = queue._new_row(Count(number=7))
    now = row["due_at"]
    rows = [{**row, **facts, "due_at": now + delay} for delay, facts in rows]
    queue.store.transact(partial(records.insert_jobs, rows=rows))
    return queue


def new_rows(count):
    """Return ready jobs of three priorities, delayed ones, and ones that are done."""
    rows = []
    for number in range(count):
        kind, rank = number % 5, -2 * (number % 3)
        if kind == 3:
            rows.append((1e6, {"id": f"{number}", "rank": rank, "timing": AFTER}))
        elif kind == 4:
            rows.append((0.0, {"id": f"{number}", "rank": 0, "state": "done"}))
        else:
            rows.append((-1.0, {"id": f"{number}", "rank": rank}))
    return rows


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


def test_delayed_jobs_do_not_keep_a_worker_busy():
    """An idle worker looks when the next job is due, without reading all of them."""
    idle = {}
    for count in (FEW, MANY):
        queue = queue_with(row for row in new_rows(count) if row[0] >= 0)
        with Claims(queue) as claims:
            claims.do_round((), Demand(50))
            idle[count] = steps_of(queue, lambda c=claims: c.do_round((), Demand(50)))

    assert idle[MANY] < idle[FEW] * MARGIN + 10
