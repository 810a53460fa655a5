"""
Virtual time: it stands still, and passes only in pauses.

Only the waiting of cmdx is virtual. What ``work`` does by itself, a ``time.sleep``
included, takes as long as it takes, and counts as no time at all.
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
    Have no retry wait in the block, and see how long it would have waited.

    *randoms* is what jitters draw: one number for ever, or several in their order.
    Other threads and coroutines keep real time unless they inherit this context.
    """
    replacement = InstantClock(randoms)
    with clock.use(replacement):
        yield replacement


class InstantClock(clock.Clock):
    """Pauses at once, remembers the pauses, and draws what it was told to."""

    def __init__(self, randoms: Randoms = 0.5) -> None:
        self.pauses: list[float] = []
        """The seconds of each pause, in their order."""
        self.slept = 0.0
        """The seconds gone by: all pauses, and what it was advanced by."""
        self.randoms = randoms
        self._lock = Lock()
        outer = clock.current.get()
        # From here on, so that a deadline set outside keeps its meaning; rounded, so
        # that what is added to it can be subtracted again without an error.
        self._start = round(outer.monotonic() * 1024) / 1024
        self._wall = _wall_clock if type(outer) is clock.Clock else outer.time

    def advance(self, seconds: float) -> None:
        """Let time pass without a pause: what an attempt takes, for example."""
        with self._lock:
            self.slept += seconds

    @property
    def randoms(self) -> Randoms:
        """What jitters draw: one number for ever, or several in their order."""
        return self._randoms

    @randoms.setter
    def randoms(self, numbers: Randoms) -> None:
        if isinstance(numbers, int | float):
            numbers = repeat(numbers)
        self._randoms = iter(numbers)

    def monotonic(self) -> float:
        """Return the moment the block began plus what was slept since."""
        return self._start + self.slept

    def time(self) -> float:
        """Return the time of day plus what was slept."""
        return self._wall() + self.slept

    def sleep(self, seconds: float) -> None:  # type: ignore[override]
        """Let the pause be over."""
        self.pauses.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Let the pause be over, after those who run beside this had their turn."""
        self.pauses.append(seconds)
        end = self.slept + seconds
        await super().asleep(0)
        # Coroutines pause at the same time, so their pauses do not add up.
        with self._lock:
            self.slept = max(self.slept, end)

    def random(self) -> float:
        """Draw the next number."""
        for number in self._randoms:
            return number
        message = (
            "instant has no random number left. Give it more, or one number for ever: "
            "instant.randoms = 0.5."
        )
        raise LookupError(message)


def _wall_clock() -> float:
    """Return the time of day, or what freezegun says it is."""
    return clock.time()  # type: ignore[attr-defined]  # it replaces that name
