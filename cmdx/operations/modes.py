"""
What differs between a synchronous and an asynchronous caller of an operation.

Both have the same coroutines. Those of ``SyncMode`` never suspend, so that
``cmdx.run.lifecycle.drive`` can run them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack

from cmdx.run.lifecycle import finish_despite_cancel

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from cmdx import Result, Task
    from cmdx.operations.leases import OwnedRun
    from cmdx.operations.table import Decision, OperationRecord
    from cmdx.stores import Statements, Store

T = TypeVar("T")


class TransactOptions(TypedDict, total=False):
    """The options of ``Store.transact``."""

    sync: bool
    relaxed: bool
    read_only: bool


class Mode(Protocol):
    """How a caller reaches the store, runs the task and waits."""

    store: Store
    awaits: bool

    async def transact(
        self, unit: Callable[[Statements], T], **options: Unpack[TransactOptions]
    ) -> T:
        """Run *unit* in a transaction."""
        ...

    async def complete_admission(
        self,
        steps: Coroutine[Any, Any, Decision],
        withdraw: Callable[[Decision | None], Coroutine[Any, Any, None]],
    ) -> Decision:
        """Ask the table to the end; if the caller leaves meanwhile, withdraw."""
        ...

    async def wait(self, seconds: float, since: Any) -> None:
        """Wait until anybody has committed since the version *since*."""
        ...

    async def run(self, task: Task[Any], owned_run: OwnedRun) -> Result[Any]:
        """Run *task*; a cancelled operation cancels it if that is possible."""
        ...

    async def run_owner(
        self, steps: Coroutine[Any, Any, T], record: OperationRecord
    ) -> T:
        """Run the owner's *steps*; some go on if the caller leaves."""
        ...


class SyncMode:
    """The mode of ``Session.run``."""

    awaits = False

    def __init__(self, store: Store) -> None:
        self.store = store

    async def transact(
        self, unit: Callable[[Statements], T], **options: Unpack[TransactOptions]
    ) -> T:
        """Run *unit* in a transaction."""
        return self.store.transact(unit, **options)

    async def complete_admission(
        self,
        steps: Coroutine[Any, Any, Decision],
        withdraw: Callable[[Decision | None], Coroutine[Any, Any, None]],
    ) -> Decision:
        """Ask the table; withdraw if an interrupt ends that."""
        try:
            return await steps
        except Exception:
            raise
        except BaseException:
            await withdraw(None)
            raise

    async def wait(self, seconds: float, since: Any) -> None:
        """Wait until anybody has committed since the version *since*."""
        self.store.wait(seconds, since)

    async def run(self, task: Task[Any], owned_run: OwnedRun) -> Result[Any]:
        """Run *task*; nothing can stop a thread."""
        owned_run.require_uncancelled()
        return task.run()

    async def run_owner(
        self, steps: Coroutine[Any, Any, T], record: OperationRecord
    ) -> T:
        """Run the owner's *steps*."""
        del record
        return await steps


class AsyncMode:
    """The mode of ``Session.arun``."""

    awaits = True

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owned_run: OwnedRun | None = None
        """The run of this caller, once it has begun."""

    async def transact(
        self, unit: Callable[[Statements], T], **options: Unpack[TransactOptions]
    ) -> T:
        """Run *unit* in a transaction, without blocking the event loop."""
        return await self.store.atransact(unit, **options)

    async def complete_admission(
        self,
        steps: Coroutine[Any, Any, Decision],
        withdraw: Callable[[Decision | None], Coroutine[Any, Any, None]],
    ) -> Decision:
        """Ask the table to the end; if the caller leaves meanwhile, withdraw."""
        import asyncio

        asking = start_task(steps)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await finish_despite_cancel(withdraw_after(asking, withdraw))
            raise

    async def wait(self, seconds: float, since: Any) -> None:
        """Wait until anybody has committed since the version *since*."""
        await self.store.await_commit(seconds, since)

    async def run(self, task: Task[Any], owned_run: OwnedRun) -> Result[Any]:
        """Run *task*, in an asyncio task that can be cancelled."""
        self.owned_run = owned_run
        owned_run.note_asyncio_task()
        try:
            owned_run.require_uncancelled()
            return await task.arun()
        finally:
            owned_run.forget_asyncio_task()

    async def run_owner(
        self, steps: Coroutine[Any, Any, T], record: OperationRecord
    ) -> T:
        """
        Run the owner's *steps* in an asyncio task of their own.

        If the caller is cancelled, an operation that persists goes on. Any other is
        cancelled and released before the caller hears of it, and so is one that runs
        within the caller's connection: the caller gets that back.
        """
        import asyncio

        self.owned_run = None
        owner = start_task(steps)
        try:
            return await asyncio.shield(owner)
        except asyncio.CancelledError:
            goes_on = record.persist and not record.has_no_effect_unsealed
            if not goes_on and not owner.done():
                self.cancel_work(owner)
                await finish_despite_cancel(wait_for(owner))
            raise

    def cancel_work(self, owner: asyncio.Task[Any]) -> None:
        """Cancel the owner, unless ``work`` has ended and is being sealed."""
        if self.owned_run is None:
            owner.cancel()
        else:
            self.owned_run.cancel_work()


left_running: set[asyncio.Task[Any]] = set()
"""Owners whose callers may have left; asyncio itself keeps only weak references."""


def start_task(steps: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run *steps* in an asyncio task that goes on if nobody waits for it."""
    import asyncio

    task = asyncio.create_task(steps)
    left_running.add(task)
    task.add_done_callback(left_running.discard)
    return task


async def withdraw_after(
    asking: asyncio.Task[Decision],
    withdraw: Callable[[Decision | None], Coroutine[Any, Any, None]],
) -> None:
    """Withdraw what was admitted, once that is known."""
    await wait_for(asking)
    if not asking.cancelled() and asking.exception() is None:
        await withdraw(asking.result())


async def wait_for(owner: asyncio.Task[Any]) -> None:
    """Wait until *owner* has ended, whatever came of it."""
    import asyncio

    await asyncio.wait([owner])
