"""
Threads that work while there is something to do.

They end by themselves when nobody has called them for a second, and do not keep their
store alive.
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
        at_end: A method that is called when the thread ends, to release what the
            action has used. A thread that was started since may use it already.
    """

    def __init__(
        self,
        action: Callable[[], object],
        name: str,
        at_end: Callable[[], object] | None = None,
    ) -> None:
        self._action = WeakMethod(action)
        self._at_end = None if at_end is None else WeakMethod(at_end)
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Start without a thread, as in a forked child, which has only its own."""
        self._guard = Lock()
        self._wakeup = new_wakeup()
        self._thread: Thread | None = None

    def call(self) -> None:
        """Have the method called soon, by the thread."""
        with self._guard:
            wake(self._wakeup)
            if self._thread is None or not self._thread.is_alive():
                self._start()

    def _start(self) -> None:
        thread = Thread(target=self._serve, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def _serve(self) -> None:
        """Call the method each time it is asked for, until nobody asks any more."""
        try:
            while self._wakeup.acquire(timeout=LINGER) or not self._end():
                action = self._action()
                if action is None:
                    return
                action()
                del action
        finally:
            at_end = None if self._at_end is None else self._at_end()
            if at_end is not None:
                at_end()

    def _end(self) -> bool:
        """Let the thread end, unless it was called in this moment."""
        with self._guard:
            if self._wakeup.acquire(blocking=False):
                return False
            self._thread = None
            return True


def new_wakeup() -> Lock:
    """Return a lock that is held until somebody calls ``wake`` with it."""
    wakeup = Lock()
    wakeup.acquire()
    return wakeup


def wake(wakeup: Lock) -> None:
    """Wake the thread that waits for *wakeup*, or the next one that does."""
    with suppress(RuntimeError):  # it was woken before, and has not noticed that yet
        wakeup.release()
