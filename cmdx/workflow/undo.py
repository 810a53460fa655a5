"""
Undoing a workflow: the steps that succeeded are rolled back in reverse.

The run of a workflow keeps its steps as ``run.succeeded`` until it ends. If it
succeeds, its record takes them over, because an outer workflow may fail later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cmdx.log import log_compensation
from cmdx.outcome import SUCCEEDED
from cmdx.run.lifecycle import has_failed, roll_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Record, Run
    from cmdx.workflow.workflow import Workflow


def note_step(run: Run, step: Invocation, record: Record) -> None:
    """Remember a step that may have to be rolled back, and what it ran itself."""
    steps = cast("list[tuple[Invocation, Record]]", run.succeeded)
    if record.outcome.status is SUCCEEDED:
        steps.append((step, record))
    steps.extend(record.succeeded)


async def settle_steps(_workflow: Workflow[Any], run: Run) -> None:
    """Roll the steps back if the workflow failed, or hand them to its record."""
    if not has_failed(run):
        run.record.succeeded, run.succeeded = run.succeeded, ()
        return
    if run.record.succeeded:  # it was interrupted after it had succeeded
        run.succeeded, run.record.succeeded = run.record.succeeded, ()
    if run.succeeded:
        await roll_back_steps(run)


async def roll_back_steps(run: Run) -> None:
    """Roll back one step after the other; what propagates waits for the rest."""
    raised: list[BaseException] = []
    for step in steps_to_roll_back(run):
        try:
            await roll_back(step, step._cmdx_)
        except BaseException as error:  # an interrupt, or a halt of an outer task
            raised.append(error)
        else:
            if step._cmdx_.record.rollback_error is None:
                log_compensation(step)
    if raised:
        raise raised.pop(0)  # off the list, which this frame holds


def steps_to_roll_back(run: Run) -> Iterator[Invocation]:
    """
    Yield the steps that succeeded, the last one first.

    Each has its record back on its run while it is rolled back, as every run has.
    """
    done, run.succeeded = run.succeeded, ()
    can_roll_back = [
        (step, record) for step, record in reversed(done) if record.run.plan.rolls_back
    ]
    run.record.compensated = [record for _, record in can_roll_back]
    for step, record in can_roll_back:
        if not record.run.rolled_back:
            record.run.record = record
            try:
                yield step
            finally:
                del record.run.record
