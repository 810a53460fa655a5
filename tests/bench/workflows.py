"""The rows about workflows: what they add to tasks, and what siblings save."""

from __future__ import annotations

import asyncio
import time

from measuring import MICROSECOND, MILLISECOND, Call, Row

from cmdx import Task, Workflow, parallel

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
    Row("parallel of four", beside, "1 µs", MICROSECOND, at_most=200),
    SlowRow("four sleep 50 ms", sleepers, "1 ms", MILLISECOND, at_most=70),
    SlowRow("four sleep 50 ms, async", sleepers_async, "1 ms", MILLISECOND, at_most=70),
]
