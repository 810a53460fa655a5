"""
Waiting until somebody commits: this process, another one, or the user's connection.

Every commit that changes rows changes ``version()``. A caller that waits for that is
woken

1. by the leader of a commit of this process, at once   ``_wake_waiters``
2. by one thread that watches the database for all      ``_watch``

and then checks the version itself. So waking it too early does no harm, and a commit
between ``version()`` and ``wait()`` is not missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cmdx import clock
from cmdx.stores.background import Background, new_wakeup, wake

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

RECHECK_EVERY = 1.0
"""Seconds after which a caller that waits checks the version without being woken."""


class Watch(ABC):
    """What is common to all stores that can be waited for."""

    _has_other_writers = True
    """Whether anybody outside of this store can change the database."""

    def __init__(self) -> None:
        self._watcher = Background(
            self._watch, "cmdx store: watcher", at_end=self._stop_watching
        )
        self._forget_waiters()

    def _forget_waiters(self) -> None:
        """Start without callers that wait, as in a forked child."""
        self._waiters: list[Callable[[], object]] = []
        self._watcher.forget()

    @abstractmethod
    def version(self) -> int:
        """
        Return a number that changes with each commit that changes rows.

        On PostgreSQL, commits of others count once somebody waits.
        """

    def wait(self, timeout: float | None = None, since: int | None = None) -> bool:
        """
        Wait until anybody may have committed a change, and tell whether that happened.

        No commit is missed. On PostgreSQL it may return without one: when it has just
        begun to listen, and when other transactions of the server have ended.

        Args:
            timeout: The longest time to wait, in seconds.
            since: What ``version()`` returned; a commit after that counts. Without it,
                a commit after this call counts.
        """
        seen = self.version() if since is None else since
        end = end_of(timeout)
        wakeup = new_wakeup()

        def wake_caller() -> None:
            wake(wakeup)

        try:
            self._waiters.append(wake_caller)
            self._start_watching()
            while self.version() == seen:
                seconds = end - clock.Clock.monotonic()
                if seconds <= 0:
                    return False
                wakeup.acquire(timeout=min(seconds, RECHECK_EVERY))
            return True
        finally:
            self._remove_waiter(wake_caller)

    @contextmanager
    def watching(self, call: Callable[[], object]) -> Iterator[None]:
        """
        Have *call* be called whenever anybody may have committed, in a block.

        Args:
            call: A function that returns at once; other threads call it.
        """
        try:
            self._waiters.append(call)
            self._start_watching()
            yield
        finally:
            self._remove_waiter(call)

    async def await_commit(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 -- the twin of wait()
        since: int | None = None,
    ) -> bool:
        """Do what ``wait`` does without blocking the event loop."""
        import asyncio

        clock.require_asyncio("await_commit()")
        seen = self.version() if since is None else since
        end = end_of(timeout)
        loop = asyncio.get_running_loop()
        wakeup = asyncio.Event()

        def wake_caller() -> None:
            wake_in(loop, wakeup)

        try:
            self._waiters.append(wake_caller)
            self._start_watching()
            while self.version() == seen:
                seconds = end - clock.Clock.monotonic()
                if seconds <= 0:
                    return False
                timer = loop.call_later(min(seconds, RECHECK_EVERY), wakeup.set)
                await wakeup.wait()
                timer.cancel()
                wakeup.clear()
            return True
        finally:
            self._remove_waiter(wake_caller)

    def _start_watching(self) -> None:
        if self._has_other_writers:
            self._watcher.call()

    def _remove_waiter(self, wake_caller: Callable[[], object]) -> None:
        with suppress(ValueError):  # it was interrupted before it was added
            self._waiters.remove(wake_caller)

    def _watch(self) -> None:
        """Wake callers whenever there may be a commit, as long as any wait."""
        while self._waiters:
            if self._poll_for_commits():
                self._wake_waiters()

    @abstractmethod
    def _poll_for_commits(self) -> bool:
        """Wait a little for commits of others, and tell whether there may be some."""

    def _stop_watching(self) -> None:  # noqa: B027 -- not every database needs it
        """Release what watching needs; called when nobody has waited for a second."""

    def _wake_waiters(self) -> None:
        """Wake all callers that wait."""
        for wake_caller in self._waiters.copy():
            wake_caller()


def end_of(timeout: float | None) -> float:
    """Return the moment of the real clock when *timeout* is over."""
    return clock.Clock.monotonic() + (clock.FOREVER if timeout is None else timeout)


def wake_in(loop: asyncio.AbstractEventLoop, wakeup: asyncio.Event) -> None:
    """Wake a coroutine from another thread; its event loop may have been closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(wakeup.set)
