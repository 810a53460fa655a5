"""
Callers: who waits for a unit, and how they are called when it is done.

A thread waits at a bell, and can lead. A coroutine waits for a future of its event
loop, which other threads have to be careful with.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cmdx import clock
from cmdx.stores.background import ring

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from threading import Lock

    from cmdx.stores.statements import Statements

V = TypeVar("V")


class Caller(Generic[V]):
    """Somebody who waits for a unit: a thread, which can lead."""

    __slots__ = (
        "bell",
        "clock",
        "error",
        "is_done",
        "is_gone",
        "relaxed",
        "runs",
        "sync",
        "unit",
        "value",
    )

    value: V

    def __init__(
        self,
        unit: Callable[[Statements], V],
        sync: bool,  # noqa: FBT001 -- made for each transaction, and keywords cost
        relaxed: bool,  # noqa: FBT001
    ) -> None:
        self.unit = unit
        self.sync = sync
        self.relaxed = relaxed
        self.clock = clock.current.get()
        self.bell: Lock | None = None
        """Rung when it is done or may lead; who leads at once has none."""
        self.runs = 0
        """How often the unit was run; a run that is rolled back counts."""
        self.is_done = False
        self.is_gone = False
        """Whether it was interrupted; its unit is not begun any more."""
        self.error: BaseException | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether its unit is still to be run."""
        return not (self.is_done or self.is_gone)

    def answer(self) -> V:
        """Return the value of the unit, or raise what it raised."""
        if self.error is None:
            return self.value
        error, self.error = self.error, None
        try:
            raise error
        finally:
            del error  # its traceback leads to this frame

    def fail(self, error: BaseException) -> None:
        """Be done, by an error."""
        self.error = error
        self.is_done = True


class AsyncCaller(Caller[V]):
    """A coroutine that waits for a unit."""

    __slots__ = ("future", "loop", "timer")

    def __init__(
        self,
        unit: Callable[[Statements], V],
        sync: bool,  # noqa: FBT001
        relaxed: bool,  # noqa: FBT001
    ) -> None:
        super().__init__(unit, sync, relaxed)
        self.loop = running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Let the coroutine go on; called in its event loop."""
        if not self.future.done():
            self.future.set_result(None)


def call_all(callers: Iterable[Caller[Any]]) -> None:
    """Call those who wait for units that were in a group, done or not."""
    loops: dict[asyncio.AbstractEventLoop, list[AsyncCaller[Any]]] = {}
    for caller in callers:
        if caller.bell is not None:
            ring(caller.bell)
        elif isinstance(caller, AsyncCaller) and caller.is_done:
            loops.setdefault(caller.loop, []).append(caller)
    for loop, sleepers in loops.items():
        with suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(wake_all, sleepers)


def wake_all(callers: Iterable[AsyncCaller[Any]]) -> None:
    """Let coroutines go on, in their event loop."""
    for caller in callers:
        caller.wake()


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs this coroutine."""
    import asyncio

    return asyncio.get_running_loop()
