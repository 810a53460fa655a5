"""
Running an operation at most once.

1. the attempt is told to run, attach, replay or give up    ``cmdx.operations.table``
2. the owner runs the task while its lease is extended      ``run_as_owner``
3. the outcome is sealed, and only then told                ``seal_outcome``
4. a duplicate waits for the owner and is told the same     ``attach``
5. if nobody knows the outcome, the task may find out       ``run_recovery``
6. now and then, an owner removes old records               ``evict_if_due``

It is written once, as coroutines. A ``Mode`` does what differs between a synchronous
and an asynchronous caller; the coroutines of a synchronous one never suspend.

An owner that lost its record drops its outcome and answers as a duplicate that arrives
now: it goes back to step 1.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from sys import modules
from typing import TYPE_CHECKING, Any

from cmdx.operations.answers import (
    InProgress,
    announce_ending,
    is_in_progress_here,
    refuse,
    refuse_by,
    replay,
    with_operation,
)
from cmdx.operations.call import new_token
from cmdx.operations.errors import (
    Indeterminate,
    OperationError,
    StillRunning,
)
from cmdx.operations.leases import ExtendedLease, OwnedRun, RunCancelled
from cmdx.operations.records import evict_records
from cmdx.operations.recovery import recover
from cmdx.operations.signals import operation_admitted, operation_sealed
from cmdx.operations.table import Answer, Ending
from cmdx.operations.units import (
    asking_unit,
    ending_unit,
    looking_unit,
    sealing_unit,
    stopping_unit,
)
from cmdx.operations.within import (
    CommitRefused,
    NoConnection,
    TransactionEnded,
    is_file_held,
)
from cmdx.stores import StoreError, StoreUnavailable
from cmdx.stores.errors import CommitUncertain
from cmdx.telemetry import send
from cmdx.wire.results import result_text

if TYPE_CHECKING:
    from cmdx import Result, Task
    from cmdx.operations.call import Call
    from cmdx.operations.ledger import Ledger
    from cmdx.operations.modes import Mode
    from cmdx.operations.table import Decision, OperationRecord
    from cmdx.operations.units import Unit

LONGEST_WAIT = 1.0
"""Seconds after which a duplicate looks again, even if nobody told it to."""


async def run_call(call: Call, mode: Mode) -> Result[Any]:
    """Take an attempt to its result."""
    result = await answer_call(call, mode)
    if call.has_run:  # who only reads must not wait until it can write
        await evict_if_due(call.ledger, mode)
    return result


async def answer_call(call: Call, mode: Mode) -> Result[Any]:
    """
    Do what the table says until there is a result.

    A step that returns None has changed something, or seen a change: the table is
    asked again.
    """
    while True:
        result: Result[Any] | None = None
        try:
            steps = admit(call, mode)
            leave = partial(withdraw, call, mode)
            answer, record = await mode.complete_admission(steps, leave)
            if answer is Answer.ATTACH:
                result = await attach(call, mode, record)
        except StoreError as error:
            return refuse(call, unread_error(call, error))
        if answer is Answer.REPLAY:
            return replay(call, record)
        if answer is Answer.RUN:
            result = await mode.run_owner(run_as_owner(call, mode, record), record)
        elif answer is Answer.RECOVER:
            result = await mode.run_owner(run_recovery(call, mode, record), record)
        elif answer is not Answer.ATTACH:
            return refuse_by(call, answer, record)
        if result is not None:
            return result
        call.follow(record)


async def admit(call: Call, mode: Mode) -> Decision:
    """Ask the table, and store what it says."""
    try:
        decision, has_lost_owner = await ask_table(call, mode)
    except StoreUnavailable as error:
        call.ledger.expects_record = True
        decision, has_lost_owner = await ask_again(call, mode, error)
    call.ledger.expects_record = decision.answer is not Answer.RUN
    if has_lost_owner:
        announce_ending(call.invocation, decision.record)
    return decision


async def ask_table(call: Call, mode: Mode) -> tuple[Decision, bool]:
    """Return what the table says, and whether an owner was found to be lost."""
    request, lease = call.request, call.ledger.lease
    if looks_first(call):
        decision = await mode.transact(looking_unit(request, lease), read_only=True)
        if decision is not None:
            return decision, False
    call.has_asked = True
    if not request.owner:
        request = call.request = request._replace(owner=new_token())
    expects_none = call.ledger.has_file or call.is_new
    unit = asking_unit(request, lease, expects_none=expects_none)
    return await mode.transact(unit, sync=request.policy.persist)


def looks_first(call: Call) -> bool:
    """
    Tell whether to read what is stored before asking to write.

    Only one can write to an SQLite file at a time, and a replay or a duplicate must not
    wait for that. But what is new has to write anyway, and would look in vain, which
    costs a tenth of an operation. So it is done if there probably is a record: the last
    call was a duplicate too, or could not write, or an operation of this process holds
    the file. At worst, one replay waits for another process, and is answered when it
    asks again.
    """
    ledger = call.ledger
    if not ledger.has_file or call.is_new:
        return False
    return call.is_attached or ledger.expects_record or is_file_held(ledger.store)


async def ask_again(
    call: Call, mode: Mode, error: StoreUnavailable
) -> tuple[Decision, bool]:
    """
    Ask the table once more after the store could not be reached.

    The admission may have been stored all the same: then the same token is admitted
    again. If that fails as well, it is taken back as soon as the store is there.
    """
    try:
        return await ask_table(call, mode)
    except StoreUnavailable as again:
        if isinstance(error, CommitUncertain) or isinstance(again, CommitUncertain):
            unit, ledger = withdrawing_unit(call), call.ledger
            ledger.lease_keeper.keep_trying(mode.store, unit, ledger.lease)
        raise


async def withdraw(call: Call, mode: Mode, decision: Decision | None = None) -> None:
    """Take back the admission of a caller who left before ``work`` was called."""
    if decision is not None and decision.answer is Answer.RECOVER:
        with suppress(StoreError):  # else the lease ends by itself
            record = decision.record
            key = record.session, record.id
            await mode.transact(stopping_unit(key, record.owner))
        return
    is_admitted = decision is None or decision.answer is Answer.RUN
    if not call.has_asked or not is_admitted:
        return
    unit = withdrawing_unit(call)
    try:
        ended = await mode.transact(unit, sync=call.request.policy.persist)
    except StoreError:
        call.ledger.lease_keeper.keep_trying(mode.store, unit, call.ledger.lease)
        return
    if ended is not None:
        announce_ending(call.invocation, ended)


def withdrawing_unit(call: Call) -> Unit:
    """Return what takes back the admission of *call*, if it was admitted."""
    request = call.request
    key = request.session, request.id
    return ending_unit(key, request.owner, Ending.WITHDRAWN)


async def run_as_owner(
    call: Call, mode: Mode, record: OperationRecord
) -> Result[Any] | None:
    """Run the task and seal its outcome; None if the record was lost meanwhile."""
    invocation = call.next_invocation()
    is_extended = call.transaction is None or not call.transaction.holds_file
    lease, keeper = call.ledger.lease, call.ledger.lease_keeper
    owned_run = OwnedRun(mode.store, record, lease, is_extended=is_extended)
    call.note_run(record)
    with ExtendedLease(keeper, owned_run):
        try:
            keeper.add(owned_run)
            result = await run_task(call, mode, invocation, owned_run)
        except StoreUnavailable as error:
            # The transaction did not begin, or was lost with its connection: nothing
            # was kept.
            ended = await try_to_end(mode, invocation, owned_run, Ending.LOST)
            return refuse(call, error, ended or record)
        except TransactionEnded as error:
            ending = Ending.TRANSACTION_ENDED
            ended = await try_to_end(mode, invocation, owned_run, ending)
            return refuse(call, Indeterminate(record.id, str(error)), ended or record)
        except BaseException as error:
            ending = ending_of_interrupt(call, invocation)
            await try_to_end(mode, invocation, owned_run, ending)
            if owned_run.was_cancelled and is_cancellation(error):
                return None
            raise
        if record.seal == "decided" and not is_decided(result):
            return await end_undecided(call, mode, record, result, owned_run)
        return await seal_outcome(call, mode, record, result, owned_run)


def ending_of_interrupt(call: Call, invocation: Task[Any]) -> Ending:
    """Return what an interrupt means for the operation."""
    if call.transaction is not None and call.transaction.was_ended:
        return Ending.TRANSACTION_ENDED
    return Ending.CANCELLED if invocation._cmdx_.work_began else Ending.WITHDRAWN


def is_cancellation(error: BaseException) -> bool:
    """Tell whether a run ended because its operation, or its asyncio task, was."""
    asyncio = modules.get("asyncio")
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        return True
    return isinstance(error, RunCancelled)


async def run_task(
    call: Call, mode: Mode, invocation: Task[Any], owned_run: OwnedRun
) -> Result[Any]:
    """Run the task, in the user's transaction if there is one."""
    transaction, operation = call.transaction, owned_run.operation
    owned_run.require_uncancelled()
    if operation_admitted.receivers:
        send(operation_admitted, invocation, operation=operation)
    with InProgress(operation, mode.store):
        if transaction is None:
            with NoConnection():
                return await mode.run(invocation, owned_run)
        await transaction.begin(awaits=mode.awaits)
        result: Result[Any] = await transaction.run(invocation, mode, owned_run)
        return result


async def try_to_end(
    mode: Mode, invocation: Task[Any], owned_run: OwnedRun, ending: Ending
) -> OperationRecord | None:
    """Store that a run gave no outcome; None if that is done later, or was lost."""
    with suppress(StoreError):
        return await end_operation(mode, invocation, owned_run, ending)
    return None


async def end_operation(
    mode: Mode, invocation: Task[Any], owned_run: OwnedRun, ending: Ending
) -> OperationRecord | None:
    """Store that a run gave no outcome; None if the record was lost meanwhile."""
    unit = ending_unit(owned_run.key, owned_run.owner, ending)
    owned_run.unstored = unit
    ended = await mode.transact(unit, sync=owned_run.is_persistent)
    owned_run.unstored = None
    if ended is not None:
        announce_ending(invocation, ended)
    return ended


async def end_undecided(
    call: Call,
    mode: Mode,
    record: OperationRecord,
    result: Result[Any],
    owned_run: OwnedRun,
) -> Result[Any] | None:
    """Store that the owner's run raised, and tell its result, which is not sealed."""
    try:
        ended = await end_operation(mode, call.invocation, owned_run, Ending.RAISED)
    except StoreError as error:
        what = f"that it ended with {result.reason!r}"
        unstored = unstored_error(record, what, error, is_tried_again=True)
        return refuse(call, unstored, record)
    return None if ended is None else with_operation(call, result, ended)


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
            unit = owned_run.unstored = sealing_unit(record, result_text(result))
            sealed = await mode.transact(unit, sync=record.persist)
        else:
            # What is interrupted, or fails, leaves nothing; others need not wait.
            key, owner = owned_run.key, owned_run.owner
            owned_run.unstored = ending_unit(key, owner, Ending.LOST)
            sealed = await call.transaction.seal(record, result, mode.store.now())
        owned_run.unstored = None
    except TransactionEnded as error:
        ending = Ending.TRANSACTION_ENDED
        ended = await try_to_end(mode, call.invocation, owned_run, ending)
        return refuse(call, Indeterminate(record.id, str(error)), ended or record)
    except CommitRefused as error:
        ended = await try_to_end(mode, call.invocation, owned_run, Ending.RAISED)
        return refuse(call, error, ended or record)
    except StoreError as error:
        # After a success within a connection, only the end is tried again.
        is_tried_again = call.transaction is None or result.failed
        unstored = unstored_error(
            record, "its outcome", error, is_tried_again=is_tried_again
        )
        return refuse(call, unstored, record)
    return None if sealed is None else tell(call, result, sealed)


def tell(call: Call, result: Result[Any], sealed: OperationRecord) -> Result[Any]:
    """Announce an outcome that was sealed, and return it as the answer."""
    answer = with_operation(call, result, sealed)
    if operation_sealed.receivers:
        operation = answer.operation
        send(operation_sealed, call.invocation, operation=operation, result=answer)
    return answer


def unstored_error(
    record: OperationRecord,
    what: str,
    error: StoreError,
    *,
    is_tried_again: bool = False,
) -> Indeterminate:
    """Say that nobody but this process knows *what*, and that it could not store it."""
    why = f"{what} could not be stored ({error.cause})"
    if is_tried_again:
        why += ", and this process goes on trying until its lease ends"
    return Indeterminate(record.id, f"{why}; ask again with the same id")


def unread_error(call: Call, error: StoreError) -> StoreError | Indeterminate:
    """Say that the table could not be asked; an owner has run all the same."""
    if not call.has_run or call.transaction is not None:
        return error
    why = f"its record was lost, and could not be read again ({error.cause})"
    return Indeterminate(call.request.id, why)


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


async def attach(call: Call, mode: Mode, record: OperationRecord) -> Result[Any] | None:
    """Wait until something has changed; give up when the caller's time is over."""
    if is_in_progress_here(call):
        return refuse(call, waits_for_itself(record), record)
    call.is_attached = True
    remaining = call.remaining()
    if remaining <= 0:
        waited = mode.store.now() - call.began
        return refuse(call, StillRunning(record.id, waited), record)
    if call.seen is not None:  # else the version is read first, and the table asked
        until_lease_ends = max(record.lease - mode.store.now(), 0.0)
        await mode.wait(min(remaining, until_lease_ends, LONGEST_WAIT), call.seen)
    call.seen = mode.store.version()
    return None


async def run_recovery(
    call: Call, mode: Mode, record: OperationRecord
) -> Result[Any] | None:
    """Let the task find out the outcome; None if somebody else sealed it meanwhile."""
    lease, keeper = call.ledger.lease, call.ledger.lease_keeper
    owned_run = OwnedRun(mode.store, record, lease, is_recovery=True)
    with ExtendedLease(keeper, owned_run):
        try:
            keeper.add(owned_run)
            with InProgress(owned_run.operation, mode.store), NoConnection():
                result = await recover(call.next_invocation(), awaits=mode.awaits)
        except BaseException:
            with suppress(StoreError):
                await mode.transact(stopping_unit(owned_run.key, owned_run.owner))
            raise
        try:
            if result is None:
                await mode.transact(stopping_unit(owned_run.key, owned_run.owner))
                return refuse_by(call, Answer.REFUSE_INDETERMINATE, record)
            unit = sealing_unit(record, result_text(result))
            sealed = await mode.transact(unit, sync=record.persist)
        except StoreError as error:
            return refuse(call, unstored_error(record, "its outcome", error), record)
    return None if sealed is None else tell(call, result, sealed)


async def evict_if_due(ledger: Ledger, mode: Mode) -> None:
    """Remove records that are no longer kept; whether that works concerns nobody."""
    if not ledger.is_eviction_due():
        return
    with suppress(StoreError):  # it is done the next time, or by somebody else
        if await mode.transact(evict_records, relaxed=True):
            ledger.evict_soon()
