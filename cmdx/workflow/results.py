"""
A step of a workflow before and after its run.

Before, it is made an invocation on its context. After, what it did is noted so that it
can be undone, and its failure is thrown, collected or tolerated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cmdx.outcome import FAILED, SUCCEEDED, Halt
from cmdx.result import Result
from cmdx.run import deadlines
from cmdx.run.record import Run
from cmdx.workflow.merging import last
from cmdx.workflow.undo import note_step

if TYPE_CHECKING:
    from cmdx.context import Context
    from cmdx.task import Task
    from cmdx.workflow.steps import Group, Step
    from cmdx.workflow.workflow import Workflow


def invocation_of(
    workflow: Workflow[Any], cls: type[Task[Any]], context: Context
) -> Task[Any]:
    """Return an invocation of a step on *context*; refuse it after the deadline."""
    if not deadlines.allows(0.0):
        message = f"the deadline passed before {cls.__qualname__} started"
        raise deadlines.DeadlineExceeded(message)
    task = cls.__new__(cls)
    run = task._cmdx_ = Run(cls._cmdx_.plan, context, {})
    if cls._cmdx_.is_inner:  # its gates are asked of the workflow that lists the group
        run.gatekeeper = lister_of(workflow)
    return task


def lister_of(workflow: Workflow[Any]) -> Workflow[Any]:
    """Return the workflow that lists a group: its gates and registries count."""
    return cast("Workflow[Any]", workflow._cmdx_.gatekeeper or workflow)


def handle_result(
    workflow: Workflow[Any],
    group: Group,
    step: Step,
    task: Task[Any],
    result: Result[Any],
) -> Any:
    """Note what became of a step, and return the value of a success."""
    note_step(workflow._cmdx_, task, result._record)
    if step.is_renamed:
        write_step_value(step, workflow._cmdx_.context, result)
    status = result._record.outcome.status
    if status is FAILED:
        handle_failure(workflow, group, step, result)
    return result._record.value if status is SUCCEEDED else None


def write_step_value(step: Step, context: Context, result: Result[Any]) -> None:
    """Put the value of a renamed step, or what it wrote, into *context*."""
    if result.failed:
        return
    if step.into is None:
        last(context, result)
    elif result.success:
        context[step.into] = result.value


def handle_failure(
    workflow: Workflow[Any], group: Group, step: Step, result: Result[Any]
) -> None:
    """Throw the failure of a step, collect it, or tolerate it."""
    if step.on_failure == "continue":
        return
    if group.continue_on_failure:
        collect_failure(workflow, result)
        return
    # Not ``throw``, which would note a line of this file as the place of the halt.
    raise Halt(workflow, FAILED, result.reason, {}, origin=result)


def collect_failure(workflow: Workflow[Any], result: Result[Any]) -> None:
    """Add the failure of a step to the errors of the workflow, under its name."""
    record = workflow._cmdx_.record
    record.first_failure = record.first_failure or result._record
    name = result.task.__name__
    for problem in result.errors:
        workflow.errors.add(f"{name}.{problem.key}", problem.message, problem.code)
    if not result.errors:
        workflow.errors.add(f"{name}.failed", result.reason or "failed", "failed")


class CollectedHalt(Halt):
    """Ends a workflow after a group that collected failures."""

    __slots__ = ()


def stop_if_collected(workflow: Workflow[Any], group: Group) -> None:
    """End the workflow after a group that collected failures; the first is thrown."""
    if not group.continue_on_failure or not workflow._cmdx_._errors:
        return
    first = workflow._cmdx_.record.first_failure
    raise CollectedHalt(
        workflow,
        FAILED,
        str(workflow.errors),
        {},
        origin=None if first is None else Result.of(first, workflow._cmdx_.chain),
    )
