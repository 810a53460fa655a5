"""
The only place that reads time, sleeps or draws a random number.

Everything else asks the current clock, which can be replaced for a while::

    with clock.use(FrozenClock()):
        Flaky.execute()

The replacement is used by this thread or coroutine, and by those that inherit its
context.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import perf_counter, sleep, time
from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator


FOREVER = 1e9
"""The longest time to wait, in seconds: 31 years. Systems refuse to sleep longer."""


class Clock:
    """Real time and real chance; derive from it to replace some of them."""

    monotonic = staticmethod(perf_counter)
    time = staticmethod(time)

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        sleep(min(seconds, FOREVER))

    async def asleep(self, seconds: float) -> None:
        """Sleep without blocking the event loop."""
        import asyncio

        require_asyncio("a pause in an asynchronous run")
        await asyncio.sleep(min(seconds, FOREVER))

    def random(self) -> float:
        """Draw a number from [0, 1)."""
        import random

        return random.random()  # noqa: S311 -- spreads delays, keeps no secrets


current: ContextVar[Clock] = ContextVar("cmdx.clock", default=Clock())  # noqa: B039 -- stateless


@contextmanager
def use(replacement: Clock) -> Iterator[Clock]:
    """
    Use another clock in the ``with`` block.

    Args:
        replacement: The clock, which this thread or coroutine and those that inherit
            its context use.
    """
    token = current.set(replacement)
    try:
        yield replacement
    finally:
        with suppress(ValueError):  # the block is left in another context
            current.reset(token)


async def pause(seconds: float, *, awaits: bool) -> None:
    """Sleep; if *awaits*, without blocking the event loop."""
    timer = current.get()
    if awaits:
        await timer.asleep(seconds)
    else:
        timer.sleep(seconds)


def require_asyncio(purpose: str, *waiting: Awaitable[Any]) -> None:
    """
    Refuse to go on if no event loop of asyncio is running, as under trio.

    What is *waiting* to be awaited is closed then: nobody will await it.
    """
    import asyncio

    if asyncio._get_running_loop() is not None:
        return
    for steps in waiting:
        if isinstance(steps, CoroutineType):
            steps.close()
    message = (
        f"{purpose} needs asyncio, but no event loop of asyncio is running. "
        "Run the task with asyncio.run(), or with anyio on its asyncio backend."
    )
    raise RuntimeError(message)


def now() -> float:
    """Return the seconds of the current clock, counted from anywhere."""
    return current.get().monotonic()


def entropy() -> int:
    """Return 80 random bits; these are never replaced, so that ids differ."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            _drawn.extend(draw_entropy(64))


def draw_entropy(count: int) -> list[int]:
    """Ask the system for random numbers of 80 bits, *count* at once."""
    drawn = os.urandom(10 * count)
    return [
        int.from_bytes(drawn[start : start + 10]) for start in range(0, len(drawn), 10)
    ]


_drawn: list[int] = []
"""Numbers for ids to come: asking the system lets other threads go first each time."""

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_drawn.clear)


def secret_bytes(count: int) -> bytes:
    """Return random bytes for a secret; these are never replaced."""
    return os.urandom(count)


def draw() -> float:
    """Draw a number from [0, 1) of the current clock."""
    return current.get().random()
