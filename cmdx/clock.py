"""
The only place that reads time, sleeps or draws a random number.

Everything else asks the current clock, which can be replaced for a while::

    with clock.use(FrozenClock()):
        Flaky.execute()

The replacement is seen by this thread or coroutine alone.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter, sleep, time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Real time and real chance; derive from it to replace some of them."""

    monotonic = staticmethod(perf_counter)
    time = staticmethod(time)
    sleep = staticmethod(sleep)

    async def asleep(self, seconds: float) -> None:
        """Sleep without blocking the event loop."""
        import asyncio

        await asyncio.sleep(seconds)

    def random(self) -> float:
        """Draw a number from [0, 1)."""
        import random

        return random.random()  # noqa: S311 -- spreads delays, keeps no secrets


current: ContextVar[Clock] = ContextVar("cmdx.clock", default=Clock())  # noqa: B039 -- stateless


@contextmanager
def use(replacement: Clock) -> Iterator[Clock]:
    """Make *replacement* the clock of the ``with`` block."""
    token = current.set(replacement)
    try:
        yield replacement
    finally:
        current.reset(token)


def now() -> float:
    """Return the seconds of the current clock, counted from anywhere."""
    return current.get().monotonic()


def entropy() -> int:
    """Return 80 random bits for an id; these are never replaced."""
    return int.from_bytes(os.urandom(10), "big")


def draw() -> float:
    """Draw a number from [0, 1) of the current clock."""
    return current.get().random()
