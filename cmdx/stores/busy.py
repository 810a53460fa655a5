"""
Waiting for a lock that another connection has on an SQLite file.

SQLite could wait itself, but then neither a signal nor the event loop could go on.
"""

from __future__ import annotations

from typing import Any

from cmdx import clock

FIRST_PAUSE, LONGEST_PAUSE = 0.000_05, 0.010
"""Seconds between two tries: they grow from the first to the longest."""


class BusyWait:
    """
    The pauses between the tries to get a lock.

    Args:
        seconds: How long to try.
    """

    def __init__(self, seconds: float) -> None:
        self._end = clock.Clock.monotonic() + seconds
        self._pause = FIRST_PAUSE

    def pause_after(self, error: Any) -> float:
        """Return how long to sleep before the next try; raise *error* to give up."""
        if not is_busy(error) or clock.Clock.monotonic() >= self._end:
            raise error
        pause = self._pause
        self._pause = min(pause * 1.5, LONGEST_PAUSE)
        return pause


def is_busy(error: Any) -> bool:
    """Tell whether another connection has a lock on the file."""
    return str(error.sqlite_errorname).startswith("SQLITE_BUSY")
