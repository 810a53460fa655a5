"""
When a worker does its next round, and which of its threads does it.

A round is planned for a moment of the real clock. Whoever is free then does it:

1. a thread that has nothing to run, at that moment              ``wait_for_leg``
2. a thread between two legs, a little later                     ``is_due_between_legs``
3. the spare thread, if all are busy with long legs              ``wait_as_spare``

Only one of them does, and the others go on meanwhile.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from cmdx import clock
from cmdx.stores.background import new_wakeup, wake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Condition

END_WAITS = 0.002
"""Seconds that an end waits for another one before it is written."""
ENDS_GATHER = 0.008
"""The longest time, in seconds, that ends wait if others come one after the other."""
BUSY_THREAD_WAITS = 0.0015
"""Seconds after which a busy thread does a round that is due: before the spare one."""
ROUND_EVERY = 5.0
"""Seconds after which a round is done, even if nothing happens."""
AT_ONCE = -math.inf
"""The moment of a round that must not wait for anything."""

monotonic = clock.Clock.monotonic


class RoundTimer:
    """
    The plan for the next round of a worker.

    Args:
        changed: The lock of the worker, which guards the plan too. Threads that have
            nothing to run wait for it.
    """

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self._moment = math.inf
        """When the next round is wanted."""
        self._gathers_since = math.inf
        """When the first end came that waits for others."""
        self._gathers_until = math.inf
        """The moment, if it was planned by ``gather``."""
        self._earliest = -math.inf
        """When it may be done, unless it has to be done at once."""
        self._idle_threads = 0
        self._idle_until = math.inf
        """When the first of them wakes up by itself."""
        self._spare_wakes_at = math.inf
        self._spare_wakeup = new_wakeup()
        self._lock = Lock()
        """Held by the thread that does a round."""
        self._thread = 0

    # -- planning -------------------------------------------------------------------

    def plan(self, moment: float, *, by_caller: bool = False) -> None:
        """
        Have a round be done at a moment, unless one is planned before.

        Args:
            moment: By the real clock.
            by_caller: Whether this thread is about to look for a round itself.
        """
        if moment != AT_ONCE:
            moment = max(moment, self._earliest)
        with self._changed:
            self._moment = min(self._moment, moment)
            if by_caller:
                return
            if not self._idle_threads:
                self.wake_spare_thread()
            elif self._moment < self._idle_until:
                self._changed.notify()

    def gather(self) -> None:
        """
        Have a round be done when no other end comes for a moment.

        A round for many ends takes less than many rounds.
        """
        now = monotonic()
        with self._changed:
            self._gathers_since = min(self._gathers_since, now)
            until = min(now + END_WAITS, self._gathers_since + ENDS_GATHER)
            if self._moment == self._gathers_until:
                self._moment = math.inf  # nothing else needs the round
            self._gathers_until = until
            self.plan(until)

    def hold_until(self, moment: float) -> None:
        """Plan no round before a moment, from now on."""
        self._earliest = moment

    def wake_spare_thread(self) -> None:
        """Wake the spare thread if it would come too late for the next round."""
        if self._moment + END_WAITS < self._spare_wakes_at:
            self._spare_wakes_at = AT_ONCE
            wake(self._spare_wakeup)

    # -- waiting --------------------------------------------------------------------

    def is_due(self) -> bool:
        """Tell whether the next round is to be done now."""
        return self._moment <= monotonic()

    def is_due_between_legs(self) -> bool:
        """Tell whether a thread that has another leg to run should do a round first."""
        return self._moment + BUSY_THREAD_WAITS <= monotonic()

    def wait_for_leg(self) -> None:
        """Wait until there may be a leg, or a round is due; with the lock held."""
        now = monotonic()
        moment = min(self._moment, now + ROUND_EVERY)
        if moment <= now:
            if not self._lock.locked():
                return
            moment = now + END_WAITS  # another thread does it
        self._idle_until = moment
        self._idle_threads += 1
        try:
            self._changed.wait(moment - now)
        finally:
            self._idle_threads -= 1

    def wait_as_spare(self, *, is_alone: bool) -> bool:
        """
        Wait for a round that no other thread does; tell whether it is due.

        Args:
            is_alone: Whether the other threads do no rounds any more.
        """
        patience = 0.0 if is_alone else END_WAITS
        with self._changed:
            now = monotonic()
            moment = min(self._moment + patience, now + ROUND_EVERY)
            if moment <= now:
                if not self._lock.locked():
                    return True
                moment = now + END_WAITS  # another thread does it
            self._spare_wakes_at = moment
        self._spare_wakeup.acquire(timeout=moment - now)
        return self._moment + patience <= monotonic()

    # -- doing ----------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Tell whether this thread is to do the round: it is due, and no other does."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            is_due = self.is_due()
            if is_due:
                self._thread = get_ident()
                self._moment = math.inf  # what happens from now on needs another one
                self._gathers_since = self._gathers_until = math.inf
            yield is_due
        finally:
            self._thread = 0
            self._lock.release()

    @property
    def is_own_turn(self) -> bool:
        """Whether this thread does a round at the moment."""
        return self._thread == get_ident()
