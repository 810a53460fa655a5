"""
What a caller of an operation is told.

Every answer is a ``Result``: that of the run, one that was stored, or a failed one
whose cause says why there is no outcome. It has the ``Operation`` it belongs to.
"""

from __future__ import annotations

import json
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import attrs

from cmdx.inputs.resolve import resolve
from cmdx.operations.errors import (
    Indeterminate,
    OperationCancelled,
    OperationConflict,
    OperationError,
    OperationExpired,
)
from cmdx.operations.signals import (
    operation_indeterminate,
    operation_released,
    operation_replayed,
)
from cmdx.operations.table import Answer, Ending, OperationState
from cmdx.run.ending import check_errors, end
from cmdx.run.lifecycle import end_without_run, take_result
from cmdx.telemetry import send
from cmdx.wire import WireError
from cmdx.wire.results import load_result_of

if TYPE_CHECKING:
    from cmdx import Result, Task
    from cmdx.operations.call import Call
    from cmdx.operations.table import OperationRecord
    from cmdx.stores import Store
    from cmdx.wire import RefusedInputError


@attrs.frozen
class Operation:
    """A durable intention with an id, and where it stands."""

    id: str
    session: str
    state: OperationState
    replayed: bool = False
    """Whether its outcome was read from the store at once."""
    attached: bool = False
    """Whether this caller waited for another one, and was told its outcome."""
    executions: int = 1
    """How often ``work`` was begun for it."""

    @classmethod
    def of(cls, record: OperationRecord, **facts: bool) -> Operation:
        """Return what is public of a record."""
        return cls(
            record.id,
            record.session,
            record.state,
            executions=record.executions,
            **facts,
        )


in_progress: ContextVar[InProgress | None] = ContextVar(
    "cmdx.operations.in_progress", default=None
)


def current_operation() -> Operation | None:
    """
    Return the operation that is being run; None outside of one.

    Example::

        def work(self):
            bank.charge(self.card, idempotency_key=current_operation().id)
    """
    found = in_progress.get()
    return None if found is None else found.operation


class InProgress:
    """A block in which ``current_operation`` returns an operation."""

    def __init__(self, operation: Operation, store: Store) -> None:
        self.operation = operation
        self.store = store
        self.outer: InProgress | None = None

    def __enter__(self) -> None:
        """Let it be the current operation."""
        self.outer = in_progress.get()
        self._token = in_progress.set(self)

    def __exit__(self, *_error: object) -> None:
        """Let the one before it be the current operation again."""
        with suppress(ValueError):  # the block is left in another context
            in_progress.reset(self._token)


def is_in_progress_here(call: Call) -> bool:
    """Tell whether an operation is called inside of its own ``work``."""
    key = call.ledger.store, call.request.session, call.request.id
    found = in_progress.get()
    while found is not None:
        if (found.store, found.operation.session, found.operation.id) == key:
            return True
        found = found.outer
    return False


def with_operation(
    call: Call, result: Result[Any], record: OperationRecord
) -> Result[Any]:
    """Return the *result* of a run, or of one that was stored, as an answer."""
    result._record.raises_fault = True
    result._record.operation = Operation.of(record, attached=call.is_attached)
    return result


def replay(call: Call, record: OperationRecord) -> Result[Any]:
    """Return the outcome that was stored."""
    try:
        data = json.loads(record.outcome or "")
        result = load_result_of(type(call.invocation), data)
    except (WireError, ValueError, RecursionError) as error:
        return refuse(call, unreadable(record, error), record)
    if call.is_attached:
        return with_operation(call, result, record)
    operation = Operation.of(record, replayed=True)
    result._record.raises_fault = True
    result._record.operation = operation
    if operation_replayed.receivers:
        invocation = call.invocation
        send(operation_replayed, invocation, operation=operation, result=result)
    return result


def unreadable(record: OperationRecord, error: Exception) -> WireError:
    """Say that a stored outcome is damaged."""
    return WireError(
        f"the outcome of the operation {record.id!r} was stored, but cannot be read, "
        f"because its row was changed ({str(error).removesuffix('.')}). Restore the "
        "column outcome of cmdx_operation from a backup, or look at the effects of "
        "the operation before you use a new id."
    )


def refuse_by(call: Call, answer: Answer, record: OperationRecord) -> Result[Any]:
    """Return the failed result that the table demands."""
    if answer is Answer.REFUSE_CONFLICT:
        error = OperationConflict(record.id, record.task, call.request.task)
        return refuse(call, error, record)
    if answer is Answer.REFUSE_EXPIRED:
        expired = record._replace(state=OperationState.EXPIRED)
        return refuse(call, OperationExpired(record.id), expired)
    if answer is Answer.REFUSE_CANCELLED:
        if call.has_run:
            announce_ending(call.invocation, record)
        return refuse(call, OperationCancelled(record.id), record)
    if answer is Answer.REFUSE_USED_INPUTS:
        return refuse(call, used_inputs(record), record)
    why = WHY.get(record.ending, "it ended without an outcome")
    can_ask = record.state is OperationState.INDETERMINATE
    if can_ask and call.request.can_recover:
        why += ", and recover() did not find out"
        can_ask = False
    return refuse(call, Indeterminate(record.id, why, can_ask=can_ask), record)


def used_inputs(record: OperationRecord) -> OperationError:
    """Say that this caller cannot run an operation again, which another may."""
    return OperationError(
        f"the record of the operation {record.id!r} was lost while it ran, and its "
        "inputs cannot be used a second time. Call again with the same id and new "
        "inputs."
    )


WHY: dict[str | None, str] = {
    Ending.LOST: "its process has died, or was cut off for longer than its lease",
    Ending.DELETED: "its record was deleted while it ran",
    Ending.CANCELLED: "it was interrupted",
    Ending.RAISED: "it raised an exception",
    Ending.TRANSACTION_ENDED: "its work ended the transaction that it was given",
}


def refuse(
    call: Call, error: Exception, record: OperationRecord | None = None
) -> Result[Any]:
    """Return a failed result with *error* as its cause; nothing is run."""
    result = end_without_run(call.next_invocation(), error)
    result._record.is_indeterminate = isinstance(error, Indeterminate)
    if record is not None:
        result._record.operation = Operation.of(record, attached=call.is_attached)
    return result


def refuse_inputs(invocation: Task[Any], error: RefusedInputError) -> Result[Any]:
    """Return the failed result of wrong inputs, which belong to no operation."""
    run = invocation._cmdx_
    run.start(invocation, awaits=True)
    try:
        resolve(invocation, run.plan.inputs)
        check_errors(run)
    except Exception as raised:  # of a source, a factory or a gate
        end(invocation, raised)
    if run.record.outcome is None:
        end(invocation, error)
    return take_result(run)


def announce_ending(task: Task[Any], record: OperationRecord) -> None:
    """Send the signal of an operation that ended without an outcome."""
    is_released = record.state is OperationState.RELEASED
    signal = operation_released if is_released else operation_indeterminate
    if signal.receivers:
        send(signal, task, operation=Operation.of(record))
