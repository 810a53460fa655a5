"""
Running an operation at most once.

1. the attempt is told to run, attach, replay or give up    ``cmdx.operations.table``
2. the owner runs the task while its lease is extended      ``run_as_owner``
3. the outcome is sealed, and only then told                ``seal_outcome``
4. a duplicate waits for the owner and is told the same     ``await_owner``
5. if nobody knows the outcome, the task may find out       ``run_recovery``

It is written once, as coroutines. A ``Mode`` does what differs between a synchronous
and an asynchronous caller; the coroutines of a synchronous one never suspend.

An owner that lost its record drops its outcome and answers as a duplicate that arrives
now: it goes back to step 1.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import partial
from sys import modules
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.operations import table
from cmdx.operations.answers import (
    InProgress,
    announce_ending,
    is_in_progress_here,
    refuse,
    refuse_by,
    replay,
    with_operation,
)
from cmdx.operations.errors import (
    Indeterminate,
    OperationError,
    StillRunning,
)
from cmdx.operations.leases import ExtendedLease, OwnedRun
from cmdx.operations.records import (
    evict_records,
    insert_record,
    load_record,
    peek_record,
    write_record,
)
from cmdx.operations.recovery import recover
from cmdx.operations.signals import operation_admitted, operation_sealed
from cmdx.operations.table import Answer, Ending
from cmdx.operations.within import CommitRefused, NoConnection, TransactionEnded
from cmdx.report import error_line
from cmdx.stores import StoreError, StoreUnavailable
from cmdx.stores.errors import CommitUncertain
from cmdx.telemetry import send
from cmdx.wire.results import result_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from cmdx import Result, Task
    from cmdx.operations.call import Call
    from cmdx.operations.modes import Mode
    from cmdx.operations.table import Decision, OperationRecord
    from cmdx.stores import Statements

Unit: TypeAlias = "Callable[[Statements], OperationRecord | None]"
"""What changes one record, inside a transaction of a store."""

LONGEST_WAIT = 1.0
"""Seconds after which a duplicate looks again, even if nobody told it to."""


async def run_call(call: Call, mode: Mode) -> Result[Any]:
    """
    Take an attempt to its result.

    A step that returns None has changed something, or seen a change: the table is
    asked again.
    """
    seen = result = None
    while True:
        try:
            steps = admit(call, mode)
            answer, record = await mode.admit(steps, partial(withdraw, call, mode))
            if answer is Answer.ATTACH:
                if is_in_progress_here(call):
                    return refuse(call, waits_for_itself(record), record)
                call.is_attached = True
                result = await await_owner(call, mode, record, seen)
                seen = mode.store.version()
        except StoreError as error:
            return refuse(call, error)
        if answer is Answer.REPLAY:
            return replay(call, record)
        if answer is Answer.RUN:
            result = await mode.finish(run_as_owner(call, mode, record), record)
        elif answer is Answer.RECOVER:
            result = await mode.finish(run_recovery(call, mode, record), record)
        elif answer is not Answer.ATTACH:
            return refuse_by(call, answer, record)
        if result is not None:
            return result
        call.follow(record)


async def admit(call: Call, mode: Mode) -> Decision:
    """Ask the table, and store what it says."""
    ledger, request = call.ledger, call.request
    evicts = ledger.is_eviction_due()
    dead: list[OperationRecord] = []

    def ask_table(statements: Statements) -> Decision:
        now, lease = statements.now, ledger.lease
        record = peek_record(statements, request.session, request.id)
        if record is None:
            record = insert_record(statements, table.admit(request, now, lease))
        decision = table.decide(record, request, now, lease)
        if decision.record is not record and statements.dialect != "sqlite":
            # Only a change needs the lock: replays must not wait for each other.
            record = load_record(statements, request.session, request.id)
            decision = table.decide(record, request, now, lease)
        write_record(statements, record, decision.record)
        if table.has_found_dead_owner(record, decision.record):
            dead.append(decision.record)
        if evicts:
            evict_records(statements)
        return decision

    try:
        decision = await mode.transact(ask_table, sync=request.policy.persist)
    except StoreUnavailable as error:
        decision = await admit_again(call, mode, ask_table, error)
    if decision.record in dead:
        announce_ending(call.invocation, decision.record)
    return decision


async def admit_again(
    call: Call,
    mode: Mode,
    ask_table: Callable[[Statements], Decision],
    error: StoreUnavailable,
) -> Decision:
    """
    Ask the table once more after the store could not be reached.

    The admission may have been stored all the same: then the same token is admitted
    again. If that fails as well, it is taken back as soon as the store is there.
    """
    request, ledger = call.request, call.ledger
    try:
        return await mode.transact(ask_table, sync=request.policy.persist)
    except StoreUnavailable as again:
        if isinstance(error, CommitUncertain) or isinstance(again, CommitUncertain):
            record = table.admit(request, call.began, ledger.lease)
            unit = releasing_unit(record, Ending.WITHDRAWN)
            run = OwnedRun(mode.store, record, ledger.lease)
            ledger.lease_keeper.keep_trying(run, unit)
        raise


async def withdraw(call: Call, mode: Mode, decision: Decision | None = None) -> None:
    """Take back the admission of a caller who left before ``work`` was called."""
    if decision is not None and decision.answer is Answer.RECOVER:
        with suppress(StoreError):  # else the lease ends by itself
            await mode.transact(stopping_unit(decision.record))
        return
    record = table.admit(call.request, call.began, call.ledger.lease)
    await end_operation(mode, call.invocation, record, Ending.WITHDRAWN)


async def run_as_owner(
    call: Call, mode: Mode, record: OperationRecord
) -> Result[Any] | None:
    """Run the task and seal its outcome; None if the record was lost meanwhile."""
    invocation = call.next_invocation()
    owned_run = OwnedRun(mode.store, record, call.ledger.lease)
    call.has_run = True
    with keep_lease(call, owned_run):
        try:
            result = await run_task(call, mode, invocation, owned_run)
        except StoreUnavailable as error:  # there is no transaction, so no effect
            await end_operation(mode, invocation, record, Ending.LOST)
            return refuse(call, error, record)
        except TransactionEnded as error:
            await end_operation(mode, invocation, record, Ending.COMMITTED)
            return refuse(call, Indeterminate(record.id, str(error)), record)
        except BaseException as error:
            ending = ending_of_interrupt(call, invocation)
            await end_operation(mode, invocation, record, ending)
            if owned_run.was_cancelled and is_cancellation(error):
                return None
            raise
        if record.seal == "decided" and not is_decided(result):
            ended = await end_operation(mode, invocation, record, Ending.RAISED)
            return None if ended is None else with_operation(call, result, ended)
        return await seal_outcome(call, mode, record, result, owned_run)


def ending_of_interrupt(call: Call, invocation: Task[Any]) -> Ending:
    """Return what an interrupt means for the operation."""
    if call.transaction is not None and call.transaction.was_ended:
        return Ending.COMMITTED
    return Ending.CANCELLED if invocation._cmdx_.work_began else Ending.WITHDRAWN


def is_cancellation(error: BaseException) -> bool:
    """Tell whether asyncio has cancelled a task."""
    asyncio = modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def keep_lease(call: Call, owned_run: OwnedRun) -> AbstractContextManager[None]:
    """Return what extends the lease in a block, where a lease is needed."""
    if call.transaction is not None and call.transaction.holds_file:
        return nullcontext()
    return ExtendedLease(call.ledger.lease_keeper, owned_run)


async def run_task(
    call: Call, mode: Mode, invocation: Task[Any], owned_run: OwnedRun
) -> Result[Any]:
    """Run the task, in the user's transaction if there is one."""
    transaction, operation = call.transaction, owned_run.operation
    if operation_admitted.receivers:
        send(operation_admitted, invocation, operation=operation)
    with InProgress(operation, mode.store):
        if transaction is None:
            with NoConnection():
                return await mode.run(invocation, owned_run)
        await transaction.begin(awaits=mode.awaits)
        result: Result[Any] = await transaction.run(invocation, mode, owned_run)
        return result


async def end_operation(
    mode: Mode, invocation: Task[Any], record: OperationRecord, ending: Ending
) -> OperationRecord | None:
    """Store that a run gave no outcome; None if the record was lost meanwhile."""
    unit = releasing_unit(record, ending)
    try:
        ended = await mode.transact(unit, sync=record.persist)
    except StoreError:
        return None  # nobody extends the lease any more, so it ends by itself
    if ended is not None:
        announce_ending(invocation, ended)
    return ended


def releasing_unit(record: OperationRecord, ending: Ending) -> Unit:
    """Return what ends an operation that has no outcome."""

    def release(stored: OperationRecord | None, now: float) -> OperationRecord | None:
        return table.release(stored, record.owner, ending, now)

    return changing_unit(record, release)


async def seal_outcome(
    call: Call,
    mode: Mode,
    record: OperationRecord,
    result: Result[Any],
    owned_run: OwnedRun,
) -> Result[Any] | None:
    """Store the outcome of the owner's run, then tell it."""
    try:
        if call.transaction is None or result.failed:
            unit = sealing_unit(record, result_text(result))
            sealed = await mode.transact(unit, sync=record.persist)
        else:
            now = mode.store.now()
            sealed = await call.transaction.seal(record, result, now)
    except TransactionEnded as error:
        await end_operation(mode, call.invocation, record, Ending.COMMITTED)
        return refuse(call, Indeterminate(record.id, str(error)), record)
    except CommitRefused as error:
        await end_operation(mode, call.invocation, record, Ending.RAISED)
        return refuse(call, error, record)
    except StoreError as error:
        if call.transaction is None or result.failed:
            unit = sealing_unit(record, result_text(result))
            call.ledger.lease_keeper.keep_trying(owned_run, unit)
        return refuse(call, unsealed_error(record, error), record)
    return None if sealed is None else tell(call, result, sealed)


def tell(call: Call, result: Result[Any], sealed: OperationRecord) -> Result[Any]:
    """Announce an outcome that was sealed, and return it as the answer."""
    answer = with_operation(call, result, sealed)
    if operation_sealed.receivers:
        operation = answer.operation
        send(operation_sealed, call.invocation, operation=operation, result=answer)
    return answer


def sealing_unit(record: OperationRecord, outcome: str) -> Unit:
    """Return what seals an operation, if its owner has not lost it."""

    def seal(stored: OperationRecord | None, now: float) -> OperationRecord | None:
        return table.seal(stored, record.owner, outcome, now)

    return changing_unit(record, seal)


def unsealed_error(record: OperationRecord, error: StoreError) -> Indeterminate:
    """Say that the outcome is known to nobody but a process that cannot store it."""
    why = f"its outcome could not be stored ({error_line(error)})"
    return Indeterminate(record.id, why)


def is_decided(result: Result[Any]) -> bool:
    """Tell whether a result is what the task decided, rather than an exception."""
    deepest = result.caused_failure
    if deepest is None:
        return True
    return deepest.cause is None or deepest.halted_at is not None


def waits_for_itself(record: OperationRecord) -> OperationError:
    """Say that an operation was called inside of its own work."""
    return OperationError(
        f"the operation {record.id!r} was called inside of its own work, and would "
        "wait for itself. Use another id for what is done inside."
    )


async def await_owner(
    call: Call, mode: Mode, record: OperationRecord, seen: Any
) -> Result[Any] | None:
    """Wait until something has changed; give up when the caller's time is over."""
    remaining = call.remaining()
    if remaining <= 0:
        waited = mode.store.now() - call.began
        return refuse(call, StillRunning(record.id, waited), record)
    if seen is not None:  # else the version is read first, and the table asked again
        until_lease_ends = max(record.lease - mode.store.now(), 0.0)
        await mode.wait(min(remaining, until_lease_ends, LONGEST_WAIT), seen)
    return None


async def run_recovery(
    call: Call, mode: Mode, record: OperationRecord
) -> Result[Any] | None:
    """Let the task find out the outcome; None if somebody else sealed it meanwhile."""
    owned_run = OwnedRun(mode.store, record, call.ledger.lease, is_recovery=True)
    with ExtendedLease(call.ledger.lease_keeper, owned_run):
        try:
            with InProgress(owned_run.operation, mode.store), NoConnection():
                result = await recover(call.next_invocation(), awaits=mode.awaits)
        except BaseException:
            with suppress(StoreError):
                await mode.transact(stopping_unit(record))
            raise
        try:
            if result is None:
                await mode.transact(stopping_unit(record))
                return refuse_by(call, Answer.REFUSE_INDETERMINATE, record)
            unit = sealing_unit(record, result_text(result))
            sealed = await mode.transact(unit, sync=record.persist)
        except StoreError as error:
            return refuse(call, unsealed_error(record, error), record)
    return None if sealed is None else tell(call, result, sealed)


def stopping_unit(record: OperationRecord) -> Unit:
    """Return what lets others ask again after a recovery that found nothing."""

    def stop(stored: OperationRecord | None, _now: float) -> OperationRecord | None:
        return table.stop_recovery(stored, record.owner)

    return changing_unit(record, stop)


def changing_unit(
    record: OperationRecord,
    change: Callable[[OperationRecord | None, float], OperationRecord | None],
) -> Unit:
    """Return what loads a record, and stores and returns what *change* makes of it."""

    def load_and_write(statements: Statements) -> OperationRecord | None:
        stored = load_record(statements, record.session, record.id)
        changed = change(stored, statements.now)
        write_record(statements, stored, changed)
        return changed

    return load_and_write
