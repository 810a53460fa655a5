"""
Extending the leases of the operations that this process owns.

One thread per store does it, every third of a lease, for all leases that are due in one
transaction. A store that does not answer keeps nobody else waiting.

1. a run is added, in a block that removes it  ``ExtendedLease``
2. its lease is extended when that is due      ``LeaseKeeper.do_what_is_due``
3. a run that lost its operation is cancelled  ``LeaseKeeper._extend``
4. what could not be stored is tried later     ``LeaseKeeper.keep_trying``

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
from cmdx.report import error_line
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
MOST_CANCELLED = 1000
"""How many cancelled operations are remembered for runs that are about to begin."""


class RunCancelled(BaseException):
    """The operation was cancelled before its ``work`` was called."""


class OwnedRun:
    """A run, or a recovery, that this process does as the owner of an operation."""

    def __init__(
        self,
        store: Store,
        record: OperationRecord,
        lease: float,
        *,
        is_recovery: bool = False,
        is_extended: bool = True,
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
        beat = Clock.monotonic() + lease / BEATS_PER_LEASE
        self.due = beat if is_extended else math.inf
        """When the lease is to be extended, a moment of the monotonic clock."""
        self.unstored: Callable[[Statements], object] | None = None
        """What is being stored about its end; it is tried again if that fails."""
        self.was_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def require_uncancelled(self) -> None:
        """Raise if it was cancelled, so that ``work`` is not called."""
        if self.was_cancelled:
            raise RunCancelled

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
    """
    A block after which the lease of a run is not extended any more.

    The run is added inside of the block, by ``LeaseKeeper.add``. So an interrupt of
    that ends the block as well.
    """

    def __init__(self, keeper: LeaseKeeper, run: OwnedRun) -> None:
        self.keeper = keeper
        self.run = run

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, *_error: object) -> None:
        """Remove the run; store later what it could not store."""
        run = self.run
        if run.unstored is not None:
            self.keeper.keep_trying(run.store, run.unstored, run.lease)
        self.keeper.remove(run)


class LateUnit:
    """What could not be stored at once, and is tried until a lease ends."""

    def __init__(
        self, store: Store, unit: Callable[[Statements], object], lease: float
    ) -> None:
        now = Clock.monotonic()
        self.store = store
        self.unit = unit
        self.clock = clock.current.get()
        self.due = now + RETRY_PAUSE
        """When to try again, a moment of the monotonic clock."""
        self.given_up_at = now + lease
        """When to stop trying, a moment of the monotonic clock."""
        self.failure: str | None = None
        """Why it could not be stored the last time."""


class LeaseKeeper:
    """The runs that this process owns on one store, and the thread that keeps them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without runs: those of the parent are not those of a forked child."""
        self._runs: dict[tuple[str, bool], OwnedRun] = {}
        """By their tokens; a recovery has that of the owner it asks for."""
        self._late: list[LateUnit] = []
        self._cancelled: dict[str, None] = {}
        """The tokens of cancelled operations, of which a run may be about to begin."""
        self._changed = Condition()
        self._thread: Thread | None = None
        self._wakes_at = math.inf
        """When the thread looks again by itself, by the monotonic clock."""

    def add(self, run: OwnedRun) -> None:
        """Keep the lease of *run* from now on."""
        self._runs[run.owner, run.is_recovery] = run
        if run.owner in self._cancelled and not run.is_recovery:
            run.cancel()
        self._wake_before(run.due)

    def remove(self, run: OwnedRun) -> None:
        """Let the lease of *run* end."""
        key = run.owner, run.is_recovery
        if self._runs.get(key) is run:  # and not the next one that recovers it
            self._runs.pop(key, None)

    def keep_trying(
        self, store: Store, unit: Callable[[Statements], object], lease: float
    ) -> None:
        """Run *unit* as soon as the store can be reached, until the lease ends."""
        late = LateUnit(store, unit, lease)
        self._late.append(late)
        self._wake_before(late.due)

    def cancel(self, owner: str) -> None:
        """Cancel the run of *owner*, if it is one of this process, or will be."""
        with self._changed:
            # Before looking for the run, which is added before it looks here.
            self._cancelled[owner] = None
            if len(self._cancelled) > MOST_CANCELLED:
                del self._cancelled[next(iter(self._cancelled))]
        run = self._runs.get((owner, False))
        if run is not None:
            run.cancel()

    # -- what the thread does -----------------------------------------------------

    def do_what_is_due(self, now: float) -> None:
        """Do what is due at *now*, a moment of the monotonic clock."""
        runs = [run for run in [*self._runs.values()] if run.due <= now]
        units = [late for late in [*self._late] if late.due <= now]
        actions = [partial(self._extend, batch) for batch in batches_by_clock(runs)]
        actions += [partial(self._store_late, late) for late in units]
        for action in actions:
            try:
                action(now)
            except Exception:  # one must not end the others
                logging.getLogger("cmdx").exception("a lease could not be extended")

    def _store_late(self, late: LateUnit, now: float) -> None:
        """Store what could not be stored at once; give up when the lease is over."""
        late.due = now + RETRY_PAUSE
        if late.given_up_at <= now:
            self._forget(late)
            message = "what became of an operation could not be stored in time: %s"
            logging.getLogger("cmdx").error(message, late.failure)
            return
        try:
            with clock.use(late.clock):
                late.store.transact(late.unit, sync=True)
        except StoreError as error:
            late.failure = error_line(error)
            return
        self._forget(late)

    def _forget(self, late: LateUnit) -> None:
        """Try it no more."""
        with suppress(ValueError):  # somebody else has stored it meanwhile
            self._late.remove(late)

    def _extend(self, runs: Sequence[OwnedRun], now: float) -> None:
        """
        Extend leases in one transaction.

        A run whose operation has ended is dropped, also one that an interrupt has left
        behind. A run that lost its operation is cancelled.
        """

        def extend(statements: Statements) -> list[tuple[OwnedRun, bool]]:
            records = load_records(statements, [run.key for run in runs])
            ended, extended = [], []
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
                elif record is not None:
                    ended.append((run, table.is_taken(record, run.owner)))
            extend_leases(statements, extended)
            return ended

        for run in runs:  # sooner again if the store cannot be reached
            run.due = now + min(RETRY_PAUSE, run.lease / BEATS_PER_LEASE)
        try:
            with clock.use(runs[0].clock):
                ended = runs[0].store.transact(extend, relaxed=True)
        except StoreError:
            return
        for run in runs:
            run.due = now + run.lease / BEATS_PER_LEASE
        for run, is_taken in ended:
            self.remove(run)
            if is_taken and not run.is_persistent:
                run.cancel()

    # -- the thread ---------------------------------------------------------------

    def _wake_before(self, due: float) -> None:
        """Have the thread look at *due*."""
        # It may sleep for less time anyway, and waking it costs a switch.
        if due < self._wakes_at:
            self._wake_thread()

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
            self.do_what_is_due(Clock.monotonic())

    def _pause(self) -> float | None:
        """Return the seconds until something is due; None if there is nothing."""
        moments = [run.due for run in [*self._runs.values()]]
        moments += [late.due for late in [*self._late]]
        next_due = min(moments, default=math.inf)
        if next_due == math.inf:  # or only runs whose leases are not extended
            return None
        return max(next_due - Clock.monotonic(), 0.0)


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
