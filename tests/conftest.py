"""Time and chance, faked in one place."""

from __future__ import annotations

from itertools import cycle

import pytest

from cmdx import clock


class InstantClock(clock.Clock):
    """Sleeps at once, remembers the pauses, and draws what it was told to."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.randoms = cycle([0.5])
        self.slept = 0.0

    def monotonic(self) -> float:
        return clock.Clock.monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.slept += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def random(self) -> float:
        return next(self.randoms)


@pytest.fixture
def instant():
    with clock.use(InstantClock()) as replacement:
        yield replacement
