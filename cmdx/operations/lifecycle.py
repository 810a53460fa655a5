"""
Running an operation at most once.

1. the attempt is told to run, attach, replay or give up    ``cmdx.operations.decide``
2. the owner runs the task while its lease is extended      ``run_as_owner``
3. the outcome is sealed, and only then told                ``seal_outcome``
4. a duplicate waits for the owner and is told the same     ``run_call``
5. if nobody knows the outcome, the task may find out       ``cmdx.operations.recovery``

It is written once, as coroutines. ``calls`` does what differs between a synchronous and
an asynchronous caller; those of a synchronous one never suspend.

An owner that lost its record drops its outcome and answers as a duplicate that arrives
now: it goes back to step 1.
"""

from __future__ import annotations

import math
import re
from contextlib import nullcontext, suppress
from functools import partial
from sys import modules
from typing import TYPE_CHECKING, Any

from cmdx import remaining
from cmdx.chain import new_id
from cmdx.clock import entropy
from cmdx.declare.checks import check_seconds
from cmdx.operations import decide as table
from cmdx.operations.answers import (
    InProgress,
    Operation,
    announce_ending,
    refuse,
    refuse_by,
    replay,
    with_operation,
)
from cmdx.operations.decide import Answer, Ending, OperationState, Request
from cmdx.operations.errors import Indeterminate, OperationIdError, StillRunning
from cmdx.operations.heart import Execution, ExtendedLease
from cmdx.operations.policy import OperationPlan
from cmdx.operations.records import (
    evict_records,
    insert_record,
    load_record,
    write_record,
)
from cmdx.operations.recovery import recover
from cmdx.operations.signals import operation_admitted, operation_sealed
from cmdx.operations.within import CommitRefused, TransactionEnded, no_connection
from cmdx.report import error_line
from cmdx.stores import StoreError, StoreUnavailable
from cmdx.telemetry import send
from cmdx.wire import fingerprint
from cmdx.wire.results import result_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from cmdx import Result, Task
    from cmdx.operations.calls import Calls
    from cmdx.operations.decide import Decision, OperationRecord
    from cmdx.operations.session import Session
    from cmdx.operations.within import Transaction
    from cmdx.stores import Statements

ID = re.compile(r"[A-Za-z0-9_:.\-]{1,255}")
LONGEST_WAIT = 1.0
"""Seconds after which a duplicate looks again, even if nobody told it to."""


class Call:
    """
    One caller's attempt at an operation.

    What happens to it is noted for the answer:

    - ``is_attached``: it has waited for another run; the answer says so
    - ``has_run``: it was the owner once; a cancel is announced by the owner
    - ``request.attached_to``: whose run it waited for, or its own that was lost
    - ``request.has_seen_recovery``: it has waited for a recovery, and does not ask
    """

    def __init__(
        self,
        session: Session,
        invocation: Task[Any],
        id: str | None,  # noqa: A002 -- as users write it
        wait: float | None,
        transaction: Transaction | None,
    ) -> None:
        plan = OperationPlan.of(type(invocation))
        self.ledger = session.ledger
        self.transaction = transaction
        self.invocation = invocation
        self.wait = None if wait is None else check_seconds("run()", "wait", wait)
        self.is_attached = False
        self.has_run = False
        self.began = self.ledger.store.now()
        self.runs_left = iter((invocation,))
        self.inputs = copy_of_inputs(invocation)
        self.request = Request(
            session=session.name,
            id=new_id() if id is None else check_id(id),
            task=plan.name,
            module=plan.module,
            fingerprint=fingerprint(invocation),
            policy=plan.policy,
            owner=new_token(),
            has_streams=plan.has_streams,
            is_transactional=transaction is not None,
            can_recover=plan.can_recover,
        )

    def follow(self, record: OperationRecord) -> None:
        """Answer as the owner of *record*, or as who recovers it, from now on."""
        if record.state is OperationState.LIVE:
            facts: dict[str, Any] = {"attached_to": record.owner}
        else:
            facts = {"has_seen_recovery": True}
        self.request = self.request._replace(owner=new_token(), **facts)

    def next_invocation(self) -> Task[Any]:
        """Return the invocation, or another one with the same inputs if it has run."""
        return next(self.runs_left, None) or type(self.invocation)(self.inputs)

    def remaining(self) -> float:
        """Return the seconds that the caller still wants to wait, or may."""
        limits = [remaining()]
        if self.wait is not None:
            limits.append(self.wait - (self.ledger.store.now() - self.began))
        return min((limit for limit in limits if limit is not None), default=math.inf)


def new_token() -> str:
    """Return the token of an owner, which nobody else can have."""
    return f"{entropy():020x}"


def copy_of_inputs(invocation: Task[Any]) -> Any:
    """Return the inputs that another invocation can be made from."""
    run = invocation._cmdx_
    return dict(run.given if run._context is None else run._context.items())


def check_id(id: object) -> str:  # noqa: A002 -- as users write it
    """Return the id of an operation; refuse anything else."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        message = (
            "the id of an operation has 1 to 255 letters, digits, and -_:. only, "
            f"got {id!r}."
        )
        raise OperationIdError(message)
    return id


async def run_call(call: Call, calls: Calls) -> Result[Any]:
    """
    Take an attempt to its result.

    A step that returns None has changed something, or seen a change: the table is
    asked again.
    """
    seen = result = None
    while True:
        try:
            steps = admit(call, calls)
            answer, record = await calls.admit(steps, partial(withdraw, call, calls))
            if answer is Answer.ATTACH:
                call.is_attached = True
                result = await await_owner(call, calls, record, seen)
                seen = calls.store.version()
        except StoreError as error:
            return refuse(call, error)
        if answer is Answer.REPLAY:
            return replay(call, record)
        if answer is Answer.RUN:
            result = await calls.finish(run_as_owner(call, calls, record), record)
        elif answer is Answer.RECOVER:
            result = await calls.finish(run_recovery(call, calls, record), record)
        elif answer is not Answer.ATTACH:
            return refuse_by(call, answer, record)
        if result is not None:
            return result
        call.follow(record)


async def admit(call: Call, calls: Calls) -> Decision:
    """Ask the table, and store what it says."""
    ledger, request = call.ledger, call.request
    dead: list[OperationRecord] = []

    def ask_table(statements: Statements) -> Decision:
        now = statements.now
        record = load_record(statements, request.session, request.id)
        if record is None:
            record = insert_record(statements, table.admit(request, now, ledger.lease))
        decision = table.decide(record, request, now, ledger.lease)
        write_record(statements, record, decision.record)
        if table.has_found_dead_owner(record, decision.record):
            dead.append(decision.record)
        if ledger.is_eviction_due(now):
            evict_records(statements)
        return decision

    try:
        decision = await calls.transact(ask_table, sync=request.policy.persist)
    except StoreUnavailable:
        # It may have been stored all the same; the same token is admitted again.
        decision = await calls.transact(ask_table, sync=request.policy.persist)
    if decision.record in dead:
        announce_ending(call.invocation, decision.record)
    return decision


async def withdraw(call: Call, calls: Calls, decision: Decision) -> None:
    """Take back the admission of a caller who left before ``work`` was called."""
    if decision.answer is not Answer.RUN:
        return

    def take_back(statements: Statements) -> OperationRecord | None:
        record = decision.record
        stored = load_record(statements, record.session, record.id)
        ended = table.withdraw(stored, record.owner, statements.now)
        write_record(statements, stored, ended)
        return ended

    with suppress(StoreError):  # else the lease ends by itself
        ended = await calls.transact(take_back, sync=decision.record.persist)
        if ended is not None:
            announce_ending(call.invocation, ended)


async def run_as_owner(
    call: Call, calls: Calls, record: OperationRecord
) -> Result[Any] | None:
    """Run the task and seal its outcome; None if the record was lost meanwhile."""
    invocation = call.next_invocation()
    execution = Execution(calls.store, record, call.ledger.lease)
    operation = Operation.of(record)
    call.has_run = True
    with keep_lease(call, execution):
        try:
            if operation_admitted.receivers:
                send(operation_admitted, invocation, operation=operation)
            with InProgress(operation):
                result = await run_task(call, calls, invocation, execution)
        except StoreUnavailable as error:  # there is no transaction, so no effect
            await end_operation(calls, invocation, record, Ending.LOST)
            return refuse(call, error, record)
        except TransactionEnded as error:
            await end_operation(calls, invocation, record, Ending.COMMITTED)
            return refuse(call, Indeterminate(record.id, str(error)), record)
        except BaseException as error:
            was_ended = call.transaction is not None and call.transaction.was_ended
            ending = Ending.COMMITTED if was_ended else Ending.CANCELLED
            await end_operation(calls, invocation, record, ending)
            if execution.was_cancelled and is_cancellation(error):
                return None
            raise
        if record.seal == "decided" and not is_decided(result):
            ended = await end_operation(calls, invocation, record, Ending.RAISED)
            return None if ended is None else with_operation(call, result, ended)
        return await seal_outcome(call, calls, record, result, execution)


def is_cancellation(error: BaseException) -> bool:
    """Tell whether asyncio has cancelled a task."""
    asyncio = modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def keep_lease(call: Call, execution: Execution) -> AbstractContextManager[None]:
    """Return what extends the lease in a block, where a lease is needed."""
    if call.transaction is not None and call.transaction.holds_file:
        return nullcontext()
    return ExtendedLease(call.ledger.heart, execution)


async def run_task(
    call: Call, calls: Calls, invocation: Task[Any], execution: Execution
) -> Result[Any]:
    """Run the task, in a transaction of the user's if there is one."""
    transaction = call.transaction
    if transaction is None:
        with no_connection():
            return await calls.run(invocation, execution)
    await transaction.begin(awaits=calls.awaits)
    result: Result[Any] = await transaction.run(invocation, calls, execution)
    return result


async def end_operation(
    calls: Calls, invocation: Task[Any], record: OperationRecord, ending: Ending
) -> OperationRecord | None:
    """Store that a run gave no outcome; None if the record was lost meanwhile."""

    def release(statements: Statements) -> OperationRecord | None:
        stored = load_record(statements, record.session, record.id)
        ended = table.release(stored, record.owner, ending, statements.now)
        write_record(statements, stored, ended)
        return ended

    try:
        ended = await calls.transact(release, sync=record.persist)
    except StoreError:
        return None  # nobody extends the lease any more, so it ends by itself
    if ended is not None:
        announce_ending(invocation, ended)
    return ended


async def seal_outcome(
    call: Call,
    calls: Calls,
    record: OperationRecord,
    result: Result[Any],
    execution: Execution,
) -> Result[Any] | None:
    """Store the outcome of the owner's run, then tell it."""
    try:
        if call.transaction is None or result.failed:
            outcome = result_text(result)
            sealed = await store_outcome(calls, record, outcome)
        else:
            now = calls.store.now()
            sealed = await call.transaction.seal(record, result, now)
    except TransactionEnded as error:
        await end_operation(calls, call.invocation, record, Ending.COMMITTED)
        return refuse(call, Indeterminate(record.id, str(error)), record)
    except CommitRefused as error:
        await end_operation(calls, call.invocation, record, Ending.RAISED)
        return refuse(call, error, record)
    except StoreError as error:
        if call.transaction is None or result.failed:
            execution.keep_sealing(result_text(result))
            call.ledger.heart.hear_of(execution)
        return refuse(call, unsealed(record, error), record)
    return None if sealed is None else tell(call, result, sealed)


def tell(call: Call, result: Result[Any], sealed: OperationRecord) -> Result[Any]:
    """Announce an outcome that was sealed, and return it as the answer."""
    answer = with_operation(call, result, sealed)
    if operation_sealed.receivers:
        operation = answer.operation
        send(operation_sealed, call.invocation, operation=operation, result=answer)
    return answer


async def store_outcome(
    calls: Calls, record: OperationRecord, outcome: str
) -> OperationRecord | None:
    """Seal the operation; None if its owner has lost it."""

    def seal(statements: Statements) -> OperationRecord | None:
        stored = load_record(statements, record.session, record.id)
        sealed = table.seal(stored, record.owner, outcome, statements.now)
        write_record(statements, stored, sealed)
        return sealed

    return await calls.transact(seal, sync=record.persist)


def unsealed(record: OperationRecord, error: StoreError) -> Indeterminate:
    """Say that the outcome is known to nobody but a process that cannot store it."""
    why = f"its outcome could not be stored ({error_line(error)})"
    return Indeterminate(record.id, why)


def is_decided(result: Result[Any]) -> bool:
    """Tell whether a result is what the task decided, rather than an exception."""
    deepest = result.caused_failure
    if deepest is None:
        return True
    return deepest.cause is None or deepest.halted_at is not None


async def run_recovery(
    call: Call, calls: Calls, record: OperationRecord
) -> Result[Any] | None:
    """Let the task find out the outcome; None if somebody else sealed it meanwhile."""
    try:
        with InProgress(Operation.of(record)):
            result = await recover(call.next_invocation(), awaits=calls.awaits)
    except BaseException:
        with suppress(StoreError):
            await calls.transact(stopping_unit(record))
        raise
    try:
        if result is None:
            await calls.transact(stopping_unit(record))
            return refuse_by(call, Answer.REFUSE_INDETERMINATE, record)
        sealed = await store_outcome(calls, record, result_text(result))
    except StoreError as error:
        return refuse(call, unsealed(record, error), record)
    return None if sealed is None else tell(call, result, sealed)


def stopping_unit(record: OperationRecord) -> Callable[[Statements], None]:
    """Return what lets others ask again after a recovery that found nothing."""

    def stop(statements: Statements) -> None:
        stored = load_record(statements, record.session, record.id)
        write_record(statements, stored, table.stop_recovery(stored, record.owner))

    return stop


async def await_owner(
    call: Call, calls: Calls, record: OperationRecord, seen: Any
) -> Result[Any] | None:
    """Wait until something has changed; give up when the caller's time is over."""
    remaining = call.remaining()
    if remaining <= 0:
        waited = calls.store.now() - call.began
        return refuse(call, StillRunning(record.id, waited), record)
    if seen is not None:  # else the version is read first, and the table asked again
        until_lease_ends = max(record.lease - calls.store.now(), 0.0)
        await calls.wait(min(remaining, until_lease_ends, LONGEST_WAIT), seen)
    return None
