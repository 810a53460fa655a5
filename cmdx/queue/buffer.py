"""
What a worker has claimed: legs that wait for a thread, legs that run, and their ends.

Threads take legs from it and add ends to it; a round takes the ends, to be written, and
adds legs. All of that is done with ``changed``, a lock that threads can wait for.
"""

from __future__ import annotations

import math
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING

from cmdx import clock
from cmdx.queue import table
from cmdx.queue.report import Demand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cmdx.queue.legs import Leg
    from cmdx.queue.report import End

BUFFER_SECONDS = 0.05
"""For how long the jobs that a thread has ahead of it should last."""
LONGEST_IN_BUFFER = 1.0
"""Seconds after which a job that was not started is given back."""

monotonic = clock.Clock.monotonic


class Buffer:
    """
    The legs of a worker, and their ends that are not written yet.

    How many jobs are claimed depends on how long they take, so that none waits here for
    long while other workers are idle.

    Args:
        threads: How many plain legs can run at the same time.
        coroutines: How many asynchronous ones can.
        batch: How many are claimed together at the most.
    """

    def __init__(self, threads: int, coroutines: int, batch: int) -> None:
        self.changed = Condition()
        """Guards all that is here, and wakes threads that wait for a leg."""
        self.ready: deque[Leg] = deque()
        """Claimed, for threads, and not started."""
        self.running: dict[int, Leg] = {}
        self.ends: list[End] = []
        self.legs = 0
        """How many legs have ended."""
        self._threads = threads
        self._coroutines = coroutines
        self._batch = batch
        self._seconds_per_leg = 0.01
        """How long a leg in a thread takes, about."""
        self._last_start_at = 0.0
        """When a thread last began a leg."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs, waits, or has to be written."""
        return not (self.running or self.ready or self.ends)

    # -- legs -----------------------------------------------------------------------

    def add_leg(self, leg: Leg) -> None:
        """Add a leg for the threads."""
        self.ready.append(leg)

    def begin_leg(self, leg: Leg) -> None:
        """Note that a leg is about to run."""
        self.running[leg.record.sequence] = leg

    def take_leg(self) -> Leg | None:
        """Return the next leg, for a thread that runs it now; None if there is none."""
        with self.changed:
            if not self.ready:
                return None
            leg = self.ready.popleft()
            self.begin_leg(leg)
            self._last_start_at = monotonic()
            return leg

    def add_end(self, leg: Leg, end: End, seconds: float | None = None) -> None:
        """
        Note how a leg has ended.

        Args:
            leg: The leg.
            end: How it has ended.
            seconds: How long a thread took for it.
        """
        if self.running.get(leg.record.sequence) is leg:
            del self.running[leg.record.sequence]
        self.ends.append(end)
        self.legs += 1
        if seconds is not None:
            self._note_duration(seconds)

    def _note_duration(self, seconds: float) -> None:
        """Follow how long legs take: longer ones at once, shorter ones by and by."""
        known = self._seconds_per_leg
        weight = 0.5 if seconds > known else 0.1
        self._seconds_per_leg = known + weight * (seconds - known)

    # -- for a round ----------------------------------------------------------------

    def take_ends(self) -> list[End]:
        """Return the ends that are to be written."""
        with self.changed:
            ends, self.ends = self.ends, []
            return ends

    def keep_ends(self, ends: list[End]) -> None:
        """Have ends be written later: the store cannot be used now."""
        with self.changed:
            self.ends = ends + self.ends

    def demand(self, *, passes_crashed: bool) -> Demand | None:
        """Return how many jobs are to be claimed, and of which kind; None for none."""
        with self.changed:
            legs = [*self.running.values(), *self.ready]
            if any(leg.record.crashes for leg in legs):
                return None  # what has crashed before runs while nothing else does
            running = sum(not leg.record.is_async for leg in self.running.values())
            wanted, waiting = self._wanted(running), len(self.ready)
            # Many at once, and not one by one.
            plain = wanted - waiting if 2 * waiting <= wanted else 0
            free = self._coroutines - (len(self.running) - running)
        return Demand(
            min(self._batch, plain + free),
            plain,
            free,
            free_threads=self._threads - running - waiting,
            is_idle=not legs,
            passes_crashed=passes_crashed,
        )

    def _wanted(self, running: int) -> int:
        """Return how many jobs threads should have ahead of them."""
        idle = self._threads - running
        busy_for = 0.0 if idle > 0 else monotonic() - self._last_start_at
        seconds = max(self._seconds_per_leg, busy_for, 1e-6)
        ahead = self._threads * BUFFER_SECONDS / seconds
        return min(self._batch, max(idle, int(ahead)))

    def give_back_late(self, *, is_stopping: bool) -> None:
        """Give back legs that have waited here too long, or will not be started."""
        with self.changed:
            oldest = -math.inf if is_stopping else monotonic() - LONGEST_IN_BUFFER
            late = [leg for leg in self.ready if is_stopping or leg.claimed_at < oldest]
            self._give_back(late)

    def give_back_cancelled(self, numbers: set[int]) -> None:
        """Give back legs that are to be cancelled and were not started."""
        with self.changed:
            self._give_back(
                [leg for leg in self.ready if leg.record.sequence in numbers]
            )

    def _give_back(self, legs: Iterable[Leg]) -> None:
        for leg in legs:
            self.ready.remove(leg)
            self.ends.append(leg.end(table.give_back_unstarted))

    def forget_unstarted(self) -> None:
        """Leave jobs to others, who have taken them: the lease was over."""
        with self.changed:
            self.ready.clear()

    def running_legs(self) -> list[Leg]:
        """Return the legs that run at this moment."""
        with self.changed:
            return list(self.running.values())

    # -- progress -------------------------------------------------------------------

    def new_progress(self) -> dict[int, str]:
        """Return how far running jobs have come, where that is not stored yet."""
        return {
            leg.record.sequence: text
            for leg in self.running_legs()
            if (text := leg.progress) is not None and text != leg.stored_progress
        }

    def note_stored(self, progress: Mapping[int, str]) -> None:
        """Note which progress is stored."""
        with self.changed:
            for number, text in progress.items():
                if number in self.running:
                    self.running[number].stored_progress = text
