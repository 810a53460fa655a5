"""A clock that stands still until told, and names nobody else uses."""

from __future__ import annotations

from contextvars import copy_context
from itertools import count
from threading import Thread

import pytest

from cmdx import clock
from cmdx.middlewares import circuits, limiters

numbers = count()


class StillClock(clock.Clock):
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def asleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def still():
    with clock.use(StillClock()) as replacement:
        yield replacement


@pytest.fixture
def name():
    fresh = f"dependency {next(numbers)}"
    yield fresh
    circuits.forget(fresh)
    limiters.forget(fresh)


@pytest.fixture
def in_threads():
    """Call a function in many threads at once, on the clock of the test."""

    def run(function, times):
        results = []

        def call(number):
            results.append(function(number))

        contexts = [copy_context() for _ in range(times)]
        threads = [
            Thread(target=context.run, args=(call, number))
            for number, context in enumerate(contexts)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    return run
