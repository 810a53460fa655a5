"""
Extending the leases of the operations that this process owns.

One thread per process does it, every third of a lease, for all ledgers. It also cancels
the asyncio task of an operation that was cancelled or taken over elsewhere, and seals
outcomes that could not be stored at once, until their lease ends.

Beats are timed by the real monotonic clock, leases by the clock of the caller, which
tests may have replaced.
"""

from __future__ import annotations

import logging
import math
import os
from contextlib import suppress
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from cmdx import clock
from cmdx.clock import Clock
from cmdx.operations import decide as table
from cmdx.operations.records import load_record, write_record
from cmdx.stores import StoreError

if TYPE_CHECKING:
    import asyncio

    from cmdx.operations.decide import OperationRecord
    from cmdx.stores import Statements, Store

BEATS_PER_LEASE = 3
SEAL_PAUSE = 0.5
"""Seconds between two tries to seal an outcome that could not be stored."""


class Execution:
    """A run that this process owns."""

    def __init__(self, store: Store, record: OperationRecord, lease: float) -> None:
        self.store = store
        self.session, self.id, self.owner = record.session, record.id, record.owner
        self.lease = lease
        self.clock = clock.current.get()
        """That of the caller: leases are counted by it."""
        self.next_beat = Clock.monotonic() + lease / BEATS_PER_LEASE
        self.outcome: str | None = None
        """What is still to be sealed, after the store could not be reached."""
        self.given_up_at = math.inf
        """When to stop trying to seal it, a moment of the monotonic clock."""
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

    def keep_sealing(self, outcome: str) -> None:
        """Have the heart seal *outcome* as soon as the store can be reached."""
        now = Clock.monotonic()
        self.outcome = outcome
        self.next_beat, self.given_up_at = now + SEAL_PAUSE, now + self.lease

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
    """A block in which the lease of an execution is extended."""

    def __init__(self, heart: Heart, execution: Execution) -> None:
        self.heart = heart
        self.execution = execution

    def __enter__(self) -> None:
        """Begin to extend it."""
        self.heart.begin(self.execution)

    def __exit__(self, *_error: object) -> None:
        """Extend it no longer."""
        self.heart.end(self.execution)


class Heart:
    """The executions of this process, and the thread that extends their leases."""

    def __init__(self) -> None:
        self._executions: dict[str, Execution] = {}
        self._changed = Condition()
        self._thread: Thread | None = None
        self._wakes_at = math.inf
        """When the thread looks again by itself, by the monotonic clock."""

    def begin(self, execution: Execution) -> None:
        """Extend the lease of *execution* from now on."""
        self._executions[execution.owner] = execution
        self.hear_of(execution)

    def end(self, execution: Execution) -> None:
        """Extend the lease no longer, unless the outcome is still to be sealed."""
        if execution.outcome is None:
            self._executions.pop(execution.owner, None)

    def hear_of(self, execution: Execution) -> None:
        """Wake the thread if it would sleep longer than *execution* can wait."""
        if execution.next_beat < self._wakes_at:
            self._wake_thread()

    def cancel(self, owner: str) -> None:
        """Cancel the execution of *owner*, if it is one of this process."""
        execution = self._executions.get(owner)
        if execution is not None:
            execution.cancel()

    def beat(self, now: float) -> None:
        """Extend the leases that are due at *now*, a moment of the monotonic clock."""
        for execution in list(self._executions.values()):
            try:
                self._beat_one(execution, now)
            except Exception:  # one must not end the others
                logging.getLogger("cmdx").exception("a lease could not be extended")

    def _beat_one(self, execution: Execution, now: float) -> None:
        """Do what is due for one execution."""
        if execution.given_up_at <= now:
            self._executions.pop(execution.owner, None)
        elif execution.outcome is not None and execution.next_beat <= now:
            execution.next_beat = now + SEAL_PAUSE
            self._seal(execution, execution.outcome)
        elif execution.next_beat <= now:
            execution.next_beat = now + execution.lease / BEATS_PER_LEASE
            self._extend(execution)

    def _extend(self, execution: Execution) -> None:
        def extend(statements: Statements) -> bool:
            record = load_record(statements, execution.session, execution.id)
            now, lease = statements.now, execution.lease
            changed = table.beat(record, execution.owner, now, lease)
            return write_record(statements, record, changed)

        try:
            with clock.use(execution.clock):
                is_owner = execution.store.transact(extend, relaxed=True)
        except StoreError:
            return  # the next beat may reach the store, or the lease ends
        if not is_owner:
            self._executions.pop(execution.owner, None)
            execution.cancel()

    def _seal(self, execution: Execution, outcome: str) -> None:
        def seal(statements: Statements) -> bool:
            record = load_record(statements, execution.session, execution.id)
            changed = table.seal(record, execution.owner, outcome, statements.now)
            return write_record(statements, record, changed)

        with suppress(StoreError), clock.use(execution.clock):
            execution.store.transact(seal, sync=True)
            self._executions.pop(execution.owner, None)

    def _wake_thread(self) -> None:
        """Have the thread look when the next lease is due; start it if need be."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="cmdx-heart", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wakes_at = math.inf  # who comes meanwhile waits for the lock
                pause = self._pause()
                self._wakes_at = (
                    math.inf if pause is None else Clock.monotonic() + pause
                )
                self._changed.wait(pause)
            self.beat(Clock.monotonic())

    def _pause(self) -> float | None:
        """Return the seconds until the next beat; None if there is none."""
        moments = [execution.next_beat for execution in [*self._executions.values()]]
        return max(min(moments) - Clock.monotonic(), 0.0) if moments else None


heart = Heart()


def _forget_executions() -> None:
    """Leave the operations of the parent to the parent, in a forked child."""
    heart.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_executions)
