"""
A retry budget: retries may only be a part of all calls.

When a dependency is down, each caller retrying on its own multiplies the load. A budget
shared by many tasks lets a ratio of their calls be retries, and a small reserve so that
rare callers may retry at all. First attempts are never refused.
"""

from __future__ import annotations

from threading import Lock

from cmdx.clock import now
from cmdx.exceptions import DefinitionError

SLICES = 10


class RetryBudget:
    """
    Lets *ratio* of the calls of the last *per* seconds be retries, plus *reserve*.

    Give one object to ``retry_on(budget=...)`` of all tasks that share a dependency.
    """

    def __init__(
        self, ratio: float = 0.2, reserve: int = 10, per: float = 10.0
    ) -> None:
        for name, value in (("ratio", ratio), ("reserve", reserve), ("per", per)):
            if type(value) not in (int, float) or not 0 <= value < float("inf"):
                message = f"RetryBudget: {name} must be 0 or more, got {value!r}."
                raise DefinitionError(message)
        if per == 0:
            raise DefinitionError("RetryBudget: per must be more than 0 seconds.")
        self.ratio = ratio
        self.reserve = reserve
        self.per = per
        self._lock = Lock()
        self._slice = 0
        # How much came in and went out in each slice of the window, and in all.
        self._in = [0] * SLICES
        self._out = [0] * SLICES
        self._calls = self._retries = 0

    def deposit(self) -> None:
        """Count a first attempt."""
        with self._lock:
            self._advance()
            self._in[self._slice % SLICES] += 1
            self._calls += 1

    def withdraw(self) -> bool:
        """Count a retry if the budget has room for it."""
        with self._lock:
            self._advance()
            if self._retries + 1 > self._calls * self.ratio + self.reserve:
                return False
            self._out[self._slice % SLICES] += 1
            self._retries += 1
            return True

    def _advance(self) -> None:
        """Forget the slices that have left the window."""
        moment = int(now() * SLICES / self.per)
        for slice_ in range(self._slice + 1, min(moment, self._slice + SLICES) + 1):
            place = slice_ % SLICES
            self._calls -= self._in[place]
            self._retries -= self._out[place]
            self._in[place] = self._out[place] = 0
        self._slice = max(moment, self._slice)

    def __repr__(self) -> str:
        """Show what was asked for."""
        return (
            f"RetryBudget(ratio={self.ratio}, reserve={self.reserve}, per={self.per})"
        )
