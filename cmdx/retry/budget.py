"""
A retry budget: retries may only be a part of all calls.

When a dependency is down, each caller retrying on its own multiplies the load. A budget
shared by many tasks lets a ratio of their calls be retries, and a small reserve so that
rare callers may retry at all. First attempts are never refused.
"""

from __future__ import annotations

from itertools import count

from cmdx.clock import now
from cmdx.declare.checks import check_number, check_seconds
from cmdx.locks import new_lock

SLICES = 10


class RetryBudget:
    """
    A limit on the share of calls that may be retries.

    Give the same object to ``retry_on(budget=...)`` of all tasks that call a service.

    Args:
        ratio: The number of retries allowed for each call in the time span.
        reserve: The number of retries allowed in addition, so that a task that runs
            rarely can retry at all.
        per: The time span in seconds in which calls and retries are counted.
    """

    def __init__(
        self, ratio: float = 0.2, reserve: int = 10, per: float = 10.0
    ) -> None:
        self.ratio = check_number("RetryBudget", "ratio", ratio)
        self.reserve = check_number("RetryBudget", "reserve", reserve)
        self.per = per = check_seconds("RetryBudget", "per", per, above_zero=True)
        self._lock = new_lock()
        self._slices_per_second = SLICES / per
        self._slice = 0
        # First attempts are counted without a lock: each takes the next number.
        self._numbers = count(1)
        self._arrived = 0
        # For each slice of the window: how many had arrived when it began, and how
        # many retries it has seen.
        self._before = [0] * SLICES
        self._retried = [0] * SLICES

    def deposit(self) -> None:
        """Count a first attempt."""
        if int(now() * self._slices_per_second) != self._slice:
            with self._lock:
                self._advance()
        self._arrived = next(self._numbers)

    def withdraw(self) -> bool:
        """Count a retry if the budget has room for it."""
        with self._lock:
            self._advance()
            oldest = (self._slice + 1) % SLICES
            calls = self._arrived - self._before[oldest]
            if sum(self._retried) + 1 > calls * self.ratio + self.reserve:
                return False
            self._retried[self._slice % SLICES] += 1
            return True

    def _advance(self) -> None:
        """Forget the slices that have left the window."""
        moment = int(now() * self._slices_per_second)
        if moment < self._slice:  # of another clock, such as a virtual one before
            self._slice = moment - SLICES
        for slice_ in range(self._slice + 1, min(moment, self._slice + SLICES) + 1):
            self._before[slice_ % SLICES] = self._arrived
            self._retried[slice_ % SLICES] = 0
        self._slice = moment

    def __repr__(self) -> str:
        """Show what was asked for."""
        return (
            f"RetryBudget(ratio={self.ratio}, reserve={self.reserve}, per={self.per})"
        )
