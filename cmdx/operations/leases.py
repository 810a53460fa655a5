"""
Extending the leases of the operations that this process owns.

One thread per store does it, every third of a lease, for all leases that are due in one
transaction. A store that does not answer keeps nobody else waiting.

1. a run is owned in a block                               ``ExtendedLease``
2. its lease is extended when it is due                    ``LeaseKeeper.extend_due``
3. a run that lost its operation is cancelled if it can be ``LeaseKeeper._extend``
4. what could not be stored is tried until the lease ends  ``LeaseKeeper.keep_trying``

The thread is timed by the real monotonic clock, leases by the clock of the caller,
which tests may have replaced.
"""

from __future__ import annotations

import logging
import math
import os
from contextlib import suppress
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cmdx import clock
from cmdx.clock import Clock
from cmdx.operations import table
from cmdx.operations.answers import Operation
from cmdx.operations.records import extend_leases, load_records
from cmdx.stores import StoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from cmdx.operations.table import OperationRecord
    from cmdx.stores import Statements, Store

BEATS_PER_LEASE = 3
RETRY_PAUSE = 0.5
"""Seconds between two tries to store what could not be stored."""
LINGER = 10.0
"""Seconds for which the thread waits for another run before it ends."""


class OwnedRun:
    """A run, or a recovery, that this process does as the owner of an operation."""

    def __init__(
        self,
        store: Store,
        record: OperationRecord,
        lease: float,
        *,
        is_recovery: bool = False,
    ) -> None:
        self.store = store
        self.operation = Operation.of(record)
        self.key = (record.session, record.id)
        self.owner = record.owner
        self.is_persistent = record.persist
        self.is_recovery = is_recovery
        self.lease = lease
        self.clock = clock.current.get()
        """That of the caller: leases are counted by it."""
        self.due = Clock.monotonic() + lease / BEATS_PER_LEASE
        """When there is something to do, a moment of the monotonic clock."""
        self.unit: Callable[[Statements], object] | None = None
        """What is still to be stored, after the store could not be reached."""
        self.given_up_at = math.inf
        """When to stop trying that, a moment of the monotonic clock."""
        self.was_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def note_asyncio_task(self) -> None:
        """Remember the asyncio task that runs it, so that it can be cancelled."""
        import asyncio

        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()

    def forget_asyncio_task(self) -> None:
        """Leave the asyncio task alone from now on: ``work`` has ended."""
        self._task = None

    def cancel(self) -> None:
        """Cancel the asyncio task that runs it, if there is one."""
        self.was_cancelled = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._cancel_task)

    def cancel_work(self) -> bool:
        """Cancel ``work`` for a caller who leaves; False if it is not running."""
        if self._task is None:
            return False
        self._task.cancel()
        return True

    def _cancel_task(self) -> None:
        """Cancel in the event loop, where nobody forgets the task meanwhile."""
        if self._task is not None:
            self._task.cancel()


class ExtendedLease:
    """A block in which the lease of a run is extended."""

    def __init__(self, keeper: LeaseKeeper, run: OwnedRun) -> None:
        self.keeper = keeper
        self.run = run

    def __enter__(self) -> None:
        """Extend the lease from now on."""
        self.keeper.add(self.run)

    def __exit__(self, *_error: object) -> None:
        """Extend it no longer, unless something is still to be stored."""
        if self.run.unit is None:
            self.keeper.remove(self.run)


class LeaseKeeper:
    """The runs that this process owns on one store, and the thread that keeps them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without runs: those of the parent are not those of a forked child."""
        self._runs: dict[tuple[str, bool], OwnedRun] = {}
        """By their tokens; a recovery has that of the owner it asks for."""
        self._changed = Condition()
        self._thread: Thread | None = None
        self._wakes_at = math.inf
        """When the thread looks again by itself, by the monotonic clock."""

    def add(self, run: OwnedRun) -> None:
        """Keep the lease of *run* from now on."""
        self._runs[run.owner, run.is_recovery] = run
        # The thread may sleep for less time anyway, and waking it costs a switch.
        if run.due < self._wakes_at:
            self._wake_thread()

    def remove(self, run: OwnedRun) -> None:
        """Let the lease of *run* end."""
        self._runs.pop((run.owner, run.is_recovery), None)

    def keep_trying(self, run: OwnedRun, unit: Callable[[Statements], object]) -> None:
        """Run *unit* as soon as the store can be reached, until the lease ends."""
        now = Clock.monotonic()
        run.due, run.given_up_at = now + RETRY_PAUSE, now + run.lease
        run.unit = unit
        self.add(run)

    def cancel(self, owner: str) -> None:
        """Cancel the run of *owner*, if it is one of this process."""
        run = self._runs.get((owner, False))
        if run is not None:
            run.cancel()

    # -- what the thread does -----------------------------------------------------

    def extend_due(self, now: float) -> None:
        """Do what is due at *now*, a moment of the monotonic clock."""
        due = [run for run in [*self._runs.values()] if run.due <= now]
        leases = [run for run in due if run.unit is None]
        actions = [partial(self._extend, batch) for batch in batches_by_clock(leases)]
        actions += [partial(self._store_late, run) for run in due if run.unit]
        for action in actions:
            try:
                action(now)
            except Exception:  # one must not end the others
                logging.getLogger("cmdx").exception("a lease could not be extended")

    def _store_late(self, run: OwnedRun, now: float) -> None:
        """Store what could not be stored at once; give up when the lease is over."""
        run.due = now + RETRY_PAUSE
        if run.given_up_at <= now or run.unit is None:
            self.remove(run)
            return
        with suppress(StoreError), clock.use(run.clock):
            run.store.transact(run.unit, sync=True)
            self.remove(run)

    def _extend(self, runs: Sequence[OwnedRun], now: float) -> None:
        """Extend leases in one transaction; cancel runs that lost their operation."""

        def extend(statements: Statements) -> list[OwnedRun]:
            records = load_records(statements, [run.key for run in runs])
            lost, extended = [], []
            for run in runs:
                record = records.get(run.key)  # None while another transaction has it
                changed = table.beat(
                    record,
                    run.owner,
                    statements.now,
                    run.lease,
                    is_recovery=run.is_recovery,
                )
                if changed is not None:
                    extended.append(changed)
                elif record is not None and table.is_taken(record, run.owner):
                    lost.append(run)
            extend_leases(statements, extended)
            return lost

        for run in runs:  # sooner again if the store cannot be reached
            run.due = now + min(RETRY_PAUSE, run.lease / BEATS_PER_LEASE)
        try:
            with clock.use(runs[0].clock):
                lost = runs[0].store.transact(extend, relaxed=True)
        except StoreError:
            return
        for run in runs:
            run.due = now + run.lease / BEATS_PER_LEASE
        for run in lost:
            self.remove(run)
            if not run.is_persistent:
                run.cancel()

    # -- the thread ---------------------------------------------------------------

    def _wake_thread(self) -> None:
        """Have the thread look when the next lease is due; start it if need be."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="cmdx leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        is_idle = False
        while True:
            with self._changed:
                self._wakes_at = math.inf  # who comes meanwhile waits for the lock
                pause = self._pause()
                if is_idle and pause is None:
                    self._thread = None
                    return
                is_idle = pause is None
                pause = LINGER if pause is None else pause
                self._wakes_at = Clock.monotonic() + pause
                self._changed.wait(pause)
            self.extend_due(Clock.monotonic())

    def _pause(self) -> float | None:
        """Return the seconds until something is due; None if there is nothing."""
        moments = [run.due for run in [*self._runs.values()]]
        return max(min(moments) - Clock.monotonic(), 0.0) if moments else None


def batches_by_clock(runs: Iterable[OwnedRun]) -> Iterable[Sequence[OwnedRun]]:
    """Return the runs whose leases are counted by the same clock together."""
    batches: dict[int, list[OwnedRun]] = {}
    for run in runs:
        batches.setdefault(id(run.clock), []).append(run)
    return batches.values()


lease_keepers: WeakKeyDictionary[Store, LeaseKeeper] = WeakKeyDictionary()


def lease_keeper_of(store: Store) -> LeaseKeeper:
    """Return what keeps the leases of this process on *store*."""
    return lease_keepers.setdefault(store, LeaseKeeper())


def _forget_runs() -> None:
    """Leave the operations of the parent to the parent, in a forked child."""
    for keeper in [*lease_keepers.values()]:
        keeper.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_runs)
