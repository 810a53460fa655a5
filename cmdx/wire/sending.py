"""
What is done with an invocation before it leaves this process, by whatever way.

1. it is checked: a task with its inputs that has not run    ``check_unused``
2. its inputs are resolved, so that wrong ones are refused   ``resolved_copy``
3. it is found out when it is due                            ``due_time``
4. it takes along who has sent it                            ``origin_data``
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cmdx import Result, Task, Workflow, current_task
from cmdx.chain import chain_of
from cmdx.declare.checks import check_seconds
from cmdx.exceptions import DefinitionError
from cmdx.inputs.resolve import refuse_early_values, resolve
from cmdx.run.record import check_can_start
from cmdx.wire.errors import RefusedInputError
from cmdx.wire.traces import current_traceparent


def check_unused(invocation: object, taker: str) -> None:
    """
    Refuse anything but a task with its inputs that has not run.

    Args:
        invocation: What was given.
        taker: Who takes it, for the error: ``"queue"`` or ``"engine"``.
    """
    if not isinstance(invocation, Task):
        article = "an" if taker[0] in "aeiou" else "a"
        message = (
            f"{article} {taker} takes an invocation, such as ChargeCard(order_id=7), "
            f"got {wrong_invocation(invocation)}"
        )
        raise TypeError(message)
    again = f"{taker}.enqueue(%s(...))"
    check_can_start(invocation, awaits=True, instead=again, again=again)


def wrong_invocation(given: object) -> str:
    """Say what was given in place of an invocation, and what to give."""
    if isinstance(given, type) and issubclass(given, Task):
        name = given.__qualname__
        if may_have_inputs(given):
            return f"the class {name}. Give it its inputs: {name}(...)."
        return f"the class {name}. Write {name}()."
    if isinstance(given, Result):
        name = given.task.__qualname__
        return f"the result of a task that has run. Give another one: {name}(...)."
    return f"{given!r}."


def may_have_inputs(task: type[Task[Any]]) -> bool:
    """Tell whether a task has inputs; those of a workflow may be those of its steps."""
    return bool(task._cmdx_.plan.inputs) or issubclass(task, Workflow)


def resolved_copy(invocation: Task[Any]) -> Task[Any]:
    """Return a task with the same inputs, resolved; refuse inputs that are wrong."""
    run = invocation._cmdx_
    refuse_early_values(invocation, run.plan.inputs)
    values = run.given if run._context is None else run._context.items()
    task = type(invocation)(dict(values))
    run = task._cmdx_
    run.start(task, awaits=True)
    resolve(task, run.plan.inputs)
    if run._errors:
        name = type(invocation).__qualname__
        raise RefusedInputError(f"{name} cannot be enqueued: {run._errors}.")
    return task


def due_time(now: float, after: object, at: object) -> float:
    """Return when an invocation is due; what is past is due now."""
    if after is not None and at is not None:
        message = "enqueue takes after= or at=, got both. Leave one of them out."
        raise DefinitionError(message)
    if after is not None:
        return now + check_seconds("enqueue", "after", after)
    if at is None:
        return now
    if not isinstance(at, datetime) or at.tzinfo is None:
        message = (
            f"enqueue: at must be a datetime with a time zone, got {at!r}. "
            f"{time_zone_cure(at)}"
        )
        raise DefinitionError(message)
    return max(now, at.timestamp())


def time_zone_cure(moment: object) -> str:
    """Say how to write a moment with a time zone."""
    if isinstance(moment, datetime):  # UTC as the zone of a local time would shift it
        return "Write datetime.now(UTC) for now, or .astimezone() after a local time."
    return "Write datetime(..., tzinfo=UTC)."


def origin_data() -> dict[str, str]:
    """Return what an invocation takes along of the task that sends it."""
    origin: dict[str, str] = {}
    task = current_task()
    if task is not None:
        chain = chain_of(task._cmdx_)
        origin["cid"] = chain.id
        if chain.xid is not None:
            origin["xid"] = str(chain.xid)
    traceparent = current_traceparent()
    if traceparent is not None:
        origin["traceparent"] = traceparent
    return origin
