"""
Waiting until somebody commits: this process, another one, or a connection of the user.

Every commit that changes something changes ``version()``. Who waits for that is called

1. by the leader of a commit of this process, at once   ``_announce``
2. by one thread that watches the database for all      ``_watch``

and then looks at the version itself. So a call that comes too early harms nobody, and
a commit between ``version()`` and ``wait()`` is not missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING

from cmdx import clock
from cmdx.stores.background import Background, new_bell, ring

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

GLANCE = 1.0
"""Seconds after which who waits looks at the version without having been called."""


class Watch(ABC):
    """What is common to all stores that can be waited for."""

    _has_other_writers = True
    """Whether anybody outside of this store can change the database."""

    def __init__(self) -> None:
        self._watcher = Background(self._watch, "cmdx store: watcher")
        self._forget_waiters()

    def _forget_waiters(self) -> None:
        """Begin without anybody who waits, as in a forked child."""
        self._waiters: list[Callable[[], object]] = []
        self._watcher.forget()

    @abstractmethod
    def version(self) -> int:
        """Return a number that is another one after each commit by anybody."""

    def wait(self, timeout: float | None = None, since: int | None = None) -> bool:
        """
        Wait until anybody has committed a change, and tell whether that happened.

        Args:
            timeout: The longest time to wait, in seconds.
            since: What ``version()`` returned; a commit after that counts. Without it,
                a commit after this call counts.
        """
        seen = self.version() if since is None else since
        end = end_of(timeout)
        bell = new_bell()

        def call() -> None:
            ring(bell)

        try:
            self._waiters.append(call)
            self._call_watcher()
            while self.version() == seen:
                seconds = end - clock.Clock.monotonic()
                if seconds <= 0:
                    return False
                bell.acquire(timeout=min(seconds, GLANCE))
            return True
        finally:
            self._leave(call)

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
        bell = asyncio.Event()

        def call() -> None:
            ring_in(loop, bell)

        try:
            self._waiters.append(call)
            self._call_watcher()
            while self.version() == seen:
                seconds = end - clock.Clock.monotonic()
                if seconds <= 0:
                    return False
                timer = loop.call_later(min(seconds, GLANCE), bell.set)
                await bell.wait()
                timer.cancel()
                bell.clear()
            return True
        finally:
            self._leave(call)

    def _call_watcher(self) -> None:
        if self._has_other_writers:
            self._watcher.call()

    def _leave(self, call: Callable[[], object]) -> None:
        with suppress(ValueError):  # it was interrupted before it was added
            self._waiters.remove(call)

    def _watch(self) -> None:
        """Call those who wait whenever there is news, while anybody waits."""
        while self._waiters:
            if self._look():
                self._announce()

    @abstractmethod
    def _look(self) -> bool:
        """Wait a little for commits of others, and tell whether there may be some."""

    def _announce(self) -> None:
        """Call all who wait."""
        for call in self._waiters.copy():
            call()


def end_of(timeout: float | None) -> float:
    """Return the moment of the real clock when *timeout* is over."""
    return clock.Clock.monotonic() + (clock.FOREVER if timeout is None else timeout)


def ring_in(loop: asyncio.AbstractEventLoop, bell: asyncio.Event) -> None:
    """Ring a bell of an event loop from another thread; it may have been closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(bell.set)
