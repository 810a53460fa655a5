"""The rows about running, retrying, halting, listening, wrapping and nesting."""

from __future__ import annotations

import peers
from measuring import MILLISECOND, Call, Importing, Row, printed_by

from cmdx import (
    RetryBudget,
    Task,
    after_execution,
    before_execution,
    before_validation,
    middleware,
    on_success,
    retry_on,
)
from cmdx.run.lifecycle import drive, lifecycle
from cmdx.telemetry import task_executed

# -- baselines ------------------------------------------------------------------


class Thing:
    def __init__(self):
        self.attribute = 1

    def method(self):
        return None


class Flaky:
    """Fails so many times before each success."""

    def __init__(self, failures):
        self.period = failures + 1
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.calls % self.period:
            raise TimeoutError


def by_hand(failures):
    """The retry loop that people write themselves."""
    operation = Flaky(failures)

    class Service:
        def __init__(self):
            self.attribute = 1

        def work(self):
            return operation()

    def call():
        service = Service()
        attempt = 0
        while True:
            try:
                return service.work()
            except TimeoutError:
                if attempt >= 3:
                    raise
            attempt += 1

    return Call(call)


# -- tasks ----------------------------------------------------------------------


class Empty(Task[None]):
    def work(self):
        return None


class EmptyAsync(Task[None]):
    async def work(self):
        return None


class Failing(Task[None]):
    def work(self):
        self.fail("no")


class Middle(Task[None]):
    def work(self):
        Empty.execute()


class Outer(Task[None]):
    def work(self):
        Middle.execute()


def first(_task):
    yield


def second(_task):
    yield


@middleware(first, second)
class Dressed(Task[None]):
    @before_execution
    def prepare(self):
        return None

    @before_validation
    def look(self):
        return None

    def work(self):
        return None

    @after_execution
    def tidy(self):
        return None

    @on_success
    def thank(self):
        return None


def run_whole(task):
    """Run a task as ``run`` did before a run could be continued."""
    task._cmdx_.plan = type(task)._cmdx_.plan
    return drive(lifecycle(task, task._cmdx_.start(task)))


def retried(failures, **options):
    operation = Flaky(failures)

    @retry_on(TimeoutError, delay=0, **options)
    class Retried(Task[None]):
        def work(self):
            return operation()

    return Call(Retried.execute)


def listener(_sender, **_payload):
    return None


# -- the table ------------------------------------------------------------------

thing = Call(lambda: Thing().method())
empty = Call(Empty.execute)
empty_async = Call(EmptyAsync.aexecute)
failing = Call(Failing.execute)
nested = Call(Outer.execute)
invoked = Call(lambda: Empty().run())
invoked_whole = Call(lambda: run_whole(Empty()))
dressed = Call(Dressed.execute)
heard = Call(Empty.execute, during=lambda: task_executed.connected_to(listener))

# What two failures cost beyond a run without one.
unfailing = retried(failures=0)
retry = retried(failures=2) - unfailing
hand_retry = by_hand(failures=2) - by_hand(failures=0)

# Runs that need no retry, and are ready to bound it.
within_time = retried(failures=0, deadline=60)
within_budget = retried(failures=0, budget=RetryBudget())

imported = Importing("attrs, blinker, cmdx") - Importing("attrs, blinker")

# About 25 ms on a quiet machine of 2024, and as slow as cmdx on a busy one.
imported_asyncio = Importing("attrs, blinker, asyncio") - Importing("attrs, blinker")

ROWS = [
    Row("empty task", empty, "object and call", thing, at_most=20),
    Row("empty task, async", empty_async, "object and call", thing, at_most=20),
    Row("empty task", empty, "tenacity", peers.tenacity_call, at_most=0.25),
    Row(
        "empty task, async",
        empty_async,
        "tenacity, async",
        peers.tenacity_async_call,
        at_most=0.25,
    ),
    Row("empty task", empty, "stamina", peers.stamina_call),
    Row("run()", invoked, "not to be continued", invoked_whole, at_most=1.05),
    Row("two failures", retry, "by hand", hand_retry, at_most=4),
    Row("two failures", retry, "tenacity", peers.tenacity_retry(Flaky)),
    Row("two failures", retry, "stamina", peers.stamina_retry(Flaky)),
    Row("with a deadline", within_time, "without", unfailing, at_most=1.75),
    Row("with a budget", within_budget, "without", unfailing, at_most=1.6),
    Row("fail()", failing, "empty task", empty, at_most=2),
    Row("one receiver", heard - empty, "empty task", empty, at_most=0.64),
    Row("4 callbacks, 2 middlewares", dressed, "empty task", empty, at_most=3.5),
    Row("nested 3 deep", nested, "empty task", empty, at_most=4),
    Row("import cmdx, further", imported, "1 ms", MILLISECOND),
    Row("import cmdx, further", imported, "asyncio", imported_asyncio, at_most=1.04),
]


def heavy_imports():
    """Return what ``import cmdx`` imports though it should not."""
    heavy = "asyncio", "structlog"
    code = f"import cmdx, sys; print(*({set(heavy)!r} & sys.modules.keys()))"
    return printed_by(code).split()
