"""
Virtual time, which passes only in pauses of cmdx.

Everything else, such as a ``time.sleep`` in ``work``, takes real time and no virtual
time. Only the time of day, by which stored jobs are due, goes on by itself as well.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import repeat
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from cmdx import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Randoms: TypeAlias = float | Iterable[float]


@contextmanager
def instant(*, randoms: Randoms = 0.5) -> Iterator[InstantClock]:
    """
    Replace the clock in the block, so that retries do not wait, and record the pauses.

    Other threads and coroutines keep real time unless they inherit this context.

    Args:
        randoms: The numbers that jitters draw: one number that is always drawn, or
            several that are drawn in order.
    """
    replacement = InstantClock(randoms)
    token = clock.current.set(replacement)
    try:
        yield replacement
    finally:
        try:
            clock.current.reset(token)
        except ValueError:  # the block is left in another context
            replacement.end()


class InstantClock(clock.Clock):
    """A clock whose pauses end at once; it records them and draws given numbers."""

    def __init__(self, randoms: Randoms = 0.5) -> None:
        self.pauses: list[float] = []
        """The seconds of each pause, in order."""
        self.slept: float = 0.0
        """The seconds that have passed, in pauses and by ``advance``."""
        self.randoms = randoms
        self._lock = Lock()
        outer = self._outer = clock.current.get()
        # It starts at the time of the outer clock, so that an outer deadline stays
        # valid. It is rounded, so that adding and subtracting a pause is exact.
        self._start = round(outer.monotonic() * 1024) / 1024
        self._wall = _wall_clock if type(outer) is clock.Clock else outer.time

    def end(self) -> None:
        """Behave like the outer clock from now on, where this one cannot be removed."""
        names = ("monotonic", "time", "sleep", "asleep", "random")
        vars(self).update({name: getattr(self._outer, name) for name in names})

    def advance(self, seconds: float) -> None:
        """Let time pass without a pause, for example the duration of an attempt."""
        with self._lock:
            self.slept += seconds

    @property
    def randoms(self) -> Randoms:
        """The numbers that jitters draw: one that is always drawn, or several."""
        return self._randoms

    @randoms.setter
    def randoms(self, numbers: Randoms) -> None:
        if isinstance(numbers, int | float):
            numbers = repeat(numbers)
        self._randoms = iter(numbers)

    def monotonic(self) -> float:
        """Return the start of the block plus the seconds that have passed since."""
        return self._start + self.slept

    def time(self) -> float:
        """Return the real time of day plus the virtual seconds that have passed."""
        return self._wall() + self.slept

    def sleep(self, seconds: float) -> None:
        """Record the pause and end it at once."""
        self.pauses.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Record the pause and end it after other coroutines have run."""
        self.pauses.append(seconds)
        end = self.slept + seconds
        await super().asleep(0)
        # Coroutines pause at the same time, so the longest pause counts.
        with self._lock:
            self.slept = max(self.slept, end)

    def random(self) -> float:
        """Draw the next number."""
        for number in self._randoms:
            return number
        message = (
            "instant has no random numbers left. Give it more, or one number to use "
            "every time: instant.randoms = 0.5."
        )
        raise LookupError(message)


def _wall_clock() -> float:
    """Return the time of day, or that of freezegun."""
    return clock.time()  # type: ignore[attr-defined]  # freezegun replaces that name
