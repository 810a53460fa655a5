"""
Callers: threads and coroutines that wait for a unit, and how they are woken.

A thread waits for a lock, and can lead. A coroutine waits for a future of its event
loop, which other threads have to be careful with.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cmdx import clock
from cmdx.stores.background import wake

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence
    from threading import Lock

    from cmdx.stores.statements import Statements

V = TypeVar("V")


class Caller(Generic[V]):
    """A caller that waits for a unit: a thread, which can lead."""

    __slots__ = (
        "clock",
        "error",
        "is_done",
        "is_gone",
        "read_only",
        "relaxed",
        "runs",
        "sync",
        "unit",
        "value",
        "wakeup",
    )

    value: V

    def __init__(
        self,
        unit: Callable[[Statements], V],
        sync: bool,  # noqa: FBT001 -- made for each transaction, and keywords cost
        relaxed: bool,  # noqa: FBT001
        read_only: bool,  # noqa: FBT001
    ) -> None:
        self.unit = unit
        self.sync = sync
        self.relaxed = relaxed
        self.read_only = read_only
        self.clock = clock.current.get()
        self.wakeup: Lock | None = None
        """Released when it is done or may lead; one that leads at once has none."""
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
        read_only: bool,  # noqa: FBT001
    ) -> None:
        super().__init__(unit, sync, relaxed, read_only)
        self.loop = running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Let the coroutine go on; called in its event loop."""
        if not self.future.done():
            self.future.set_result(None)


def affected_callers(
    callers: Sequence[Caller[Any]], *, only_writers: bool
) -> list[Caller[Any]]:
    """Return those whose units cannot be run because their group could not begin."""
    waiting = [caller for caller in callers if not caller.is_done]
    writers = [caller for caller in waiting if not caller.read_only]
    return writers if only_writers and writers else waiting


def wake_callers(callers: Iterable[Caller[Any]]) -> None:
    """Wake the callers of a group, whether their units are done or not."""
    loops: dict[asyncio.AbstractEventLoop, list[AsyncCaller[Any]]] = {}
    for caller in callers:
        if caller.wakeup is not None:
            wake(caller.wakeup)
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
