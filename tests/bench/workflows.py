"""The rows about workflows: what they add to tasks, and what siblings save."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache

from measuring import MILLISECOND, Call, Row

from cmdx import Task, Workflow, parallel, step

SLEEP = 0.05
SLOW_ROUNDS = 20
"""So many rounds of the others take about as long as one with sleepers."""


class First(Task[None]):
    def work(self):
        return None


class Second(First):
    pass


class Third(First):
    pass


class Fourth(First):
    pass


class Listed(Workflow[None]):
    steps = (First, Second, Third)


class ByHand(Task[None]):
    """Runs the same tasks as people would without a workflow."""

    def work(self):
        self.throw(First.execute(self))
        self.throw(Second.execute(self))
        self.throw(Third.execute(self))


class ByHandAsync(Task[None]):
    async def work(self):
        self.throw(await First.aexecute(self))
        self.throw(await Second.aexecute(self))
        self.throw(await Third.aexecute(self))


class Beside(Workflow[None]):
    steps = (parallel(First, Second, Third, Fourth),)


POOL = ThreadPoolExecutor(4)


class BesideByHand(Task[None]):
    """Runs the same tasks in threads, each with a copy of the context."""

    def work(self):
        futures = [
            POOL.submit(copy_context().run, task.execute, self.context.to_dict())
            for task in (First, Second, Third, Fourth)
        ]
        for future in futures:
            self.throw(future.result())


# -- beside much that nobody reads ----------------------------------------------

MANY, SOME = 100_000, 20_000


@cache
def rows(count):
    """Return small dicts, about 45 MB for the largest count."""
    return [
        {
            "id": n,
            "name": f"customer {n}",
            "street": f"{n} High Street",
            "city": f"city {n}",
            "price": n / 4,
        }
        for n in range(count)
    ]


class Renamed(Workflow[None]):
    steps = (step(First, map={"id": "number"}, into="value"),) * 5


async def beside_nothing_async():
    return await Beside.aexecute(rows=())


async def beside_rows_async():
    return await Beside.aexecute(rows=rows(MANY))


# -- sleepers -------------------------------------------------------------------


class Sleeping(Task[None]):
    def work(self):
        time.sleep(SLEEP)


class SleepingAsync(Task[None]):
    async def work(self):
        await asyncio.sleep(SLEEP)


class Sleepers(Workflow[None]):
    steps = (parallel(*[Sleeping] * 4),)


class SleepersAsync(Workflow[None]):
    steps = (parallel(*[SleepingAsync] * 4),)


class Once(Call):
    """A call that takes so long that it is timed one by one."""

    def calibrated(self):
        self.time(1)
        return 1


class SlowRow(Row):
    def taken(self, rounds):
        return super().taken(max(1, rounds // SLOW_ROUNDS))


# -- the table ------------------------------------------------------------------

listed = Call(Listed.execute)
listed_async = Call(Listed.aexecute)
by_hand = Call(ByHand.execute)
by_hand_async = Call(ByHandAsync.aexecute)
beside = Call(Beside.execute)
beside_by_hand = Call(BesideByHand.execute)
beside_nothing = Call(lambda: Beside.execute(rows=()))
beside_rows = Call(lambda: Beside.execute(rows=rows(MANY)))
beside_nothing_in_loop = Call(beside_nothing_async)
beside_rows_in_loop = Call(beside_rows_async)
renamed = Call(lambda: Renamed.execute(number=1, rows=()))
renamed_beside_rows = Call(lambda: Renamed.execute(number=1, rows=rows(SOME)))
sleepers = Once(Sleepers.execute)
sleepers_async = Once(SleepersAsync.aexecute)

ROWS = [
    Row("workflow of three", listed, "three in a task", by_hand, at_most=1.25),
    Row(
        "workflow of three, async",
        listed_async,
        "the same, async",
        by_hand_async,
        at_most=1.25,
    ),
    Row("parallel of four", beside, "four in a pool", beside_by_hand, at_most=2.5),
    Row("four beside 45 MB", beside_rows, "beside 0 MB", beside_nothing, at_most=1.5),
    Row(
        "four beside 45 MB, async",
        beside_rows_in_loop,
        "the same, beside 0 MB",
        beside_nothing_in_loop,
        at_most=1.5,
    ),
    Row(
        "renamed beside 20,000 rows",
        renamed_beside_rows,
        "beside none",
        renamed,
        at_most=1.5,
    ),
    SlowRow("four sleep 50 ms", sleepers, "1 ms", MILLISECOND, at_most=70),
    SlowRow("four sleep 50 ms, async", sleepers_async, "1 ms", MILLISECOND, at_most=70),
]
