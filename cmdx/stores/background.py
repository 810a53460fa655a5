"""
Threads that work while there is something to do.

They end by themselves when nobody has called them for a second, and do not keep alive
what they work for.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING
from weakref import WeakMethod

if TYPE_CHECKING:
    from collections.abc import Callable

LINGER = 1.0
"""How long a thread waits for the next call, in seconds."""


class Background:
    """
    One thread that calls a method whenever it is asked to, started when needed.

    Args:
        action: The method. Calls that come while it runs are one call after it.
        name: The name of the thread.
    """

    def __init__(self, action: Callable[[], object], name: str) -> None:
        self._action = WeakMethod(action)
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked child, which has no threads but its own."""
        self._guard = Lock()
        self._bell = new_bell()
        self._thread: Thread | None = None

    def call(self) -> None:
        """Have the method called soon, by the thread."""
        with self._guard:
            ring(self._bell)
            if self._thread is None or not self._thread.is_alive():
                self._start()

    def _start(self) -> None:
        thread = Thread(target=self._serve, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def _serve(self) -> None:
        """Call the method each time the bell was rung, until it is quiet."""
        while self._bell.acquire(timeout=LINGER) or not self._end():
            action = self._action()
            if action is None:
                return
            action()
            del action

    def _end(self) -> bool:
        """Let the thread end, unless it was called in this moment."""
        with self._guard:
            if self._bell.acquire(blocking=False):
                return False
            self._thread = None
            return True


def new_bell() -> Lock:
    """Return a lock that is held until somebody rings."""
    bell = Lock()
    bell.acquire()
    return bell


def ring(bell: Lock) -> None:
    """Wake who waits at *bell*, or will wait next."""
    with suppress(RuntimeError):  # it was rung before, and nobody has heard it yet
        bell.release()
