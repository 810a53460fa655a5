"""
Steps that run one after the other, on the context of the workflow.

1. the resolved inputs are put where the steps look          ``provide_inputs``
2. each group is asked for its gate                          ``run_group``
3. each step runs, and what became of it is noted            ``run_step``
4. a failure is thrown, collected, or tolerated              ``cmdx.workflow.results``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx.outcome import Halt
from cmdx.run.lifecycle import lifecycle
from cmdx.workflow.isolation import own_context, set_baseline
from cmdx.workflow.parallel import run_parallel
from cmdx.workflow.results import (
    CollectedHalt,
    collect_failure,
    handle_result,
    invocation_of,
    lister_of,
    stop_if_collected,
)
from cmdx.workflow.steps import Group

if TYPE_CHECKING:
    from cmdx.run.record import Run
    from cmdx.workflow.steps import Step
    from cmdx.workflow.workflow import Workflow


async def run_steps(workflow: Workflow[Any], run: Run) -> Any:
    """Run all steps of *workflow* and return the value of the last one."""
    if run.plan.inputs:
        provide_inputs(workflow, run)
    run.succeeded = [*run.succeeded]  # those of an earlier attempt may be undone too
    return await run_group(workflow, run.task._cmdx_.group)


def provide_inputs(workflow: Workflow[Any], run: Run) -> None:
    """Put the resolved inputs into the context, where the steps find them."""
    for field in run.plan.fields.inputs.values():
        value = getattr(workflow, field.name)
        if run.context.get(field.key) is not value:
            set_baseline(run.context, field.key, value)


async def run_group(workflow: Workflow[Any], group: Group) -> Any:
    """Run the steps of *group* unless its gate says no; return the last value."""
    if group.is_gated and not is_open(workflow, group):
        return None
    if group.parallel:
        return await run_parallel(workflow, group)
    value = None
    for entry in group.steps:
        if isinstance(entry, Group):
            value = await run_inner_group(workflow, group, entry)
        else:
            value = await run_step(workflow, group, entry)
    stop_if_collected(workflow, group)
    return value


def is_open(workflow: Workflow[Any], group: Group) -> bool:
    """Ask the gate of *group*."""
    asked = lister_of(workflow)
    gate = asked._cmdx_.plan.gates[id(group)]
    return gate is None or bool(gate(asked))


async def run_inner_group(workflow: Workflow[Any], outer: Group, group: Group) -> Any:
    """Run a group of a group, which may collect the failure that ended it."""
    try:
        return await run_group(workflow, group)
    except Halt as halt:
        if not outer.continue_on_failure or halt.task is not workflow:
            raise
        if isinstance(halt, CollectedHalt):
            return None
        if halt.origin is None:
            raise
        collect_failure(workflow, halt.origin)
    return None


async def run_step(workflow: Workflow[Any], group: Group, step: Step) -> Any:
    """Run *step* and return its value; a failure may stop the workflow."""
    context = workflow._cmdx_.context
    given = own_context(context, step.map) if step.is_renamed else context
    task = invocation_of(workflow, step.task, given)
    run = task._cmdx_.start(task, awaits=workflow._cmdx_.awaits)
    # The result is in no local variable: the frames of its error lead to this one.
    return handle_result(workflow, group, step, task, await lifecycle(task, run))
