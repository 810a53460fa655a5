"""
How a run ends: what becomes its outcome, and what does not.

``keeps`` draws the line. What user code raises is kept, as a failure; a halt of the
task is kept, as what it says. Misuse of the framework, interrupts and the halts of
other tasks are not: they pass through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmdx.exceptions import CmdxError, Fault
from cmdx.outcome import Halt, Outcome, Status, Stop
from cmdx.result import Record, text_of

if TYPE_CHECKING:
    from types import TracebackType

    from cmdx.invocation import Invocation


def keeps(task: Invocation, error: BaseException) -> bool:
    """
    Tell whether *error* becomes the outcome of *task*.

    Misuse of the framework does not, nor what is no ``Exception``, nor the halt of
    another task, which is on its way out to that task.
    """
    if isinstance(error, Halt):
        return error.task is task
    if isinstance(error, CmdxError):
        return isinstance(error, Fault)
    return isinstance(error, Exception)


def ended_by(
    task: Invocation, error: BaseException, stopped: Stop | None = None
) -> Record:
    """Return what *error* makes of the run of *task*."""
    if isinstance(error, Halt):
        return halted(task, error, stopped and Stop.HALTED)
    if not isinstance(error, Fault):
        return failed_by(task, error, stopped)
    result, cause = error.result, without_our_frames(error)
    noted = task._metadata_ or {}
    outcome = Outcome(Status.FAILED, result.reason, noted, cause, result)
    return ended(task, outcome, stopped)


def failed_by(task: Invocation, error: BaseException, stopped: Stop | None) -> Record:
    """Return the failure that *error* is."""
    reason = f"[{type(error).__name__}] {text_of(error)}".rstrip()
    cause = without_our_frames(error)
    outcome = Outcome(Status.FAILED, reason, task._metadata_ or {}, cause)
    return ended(task, outcome, stopped)


def halted(task: Invocation, halt: Halt, stopped: Stop | None) -> Record:
    """Return the record of a run that ended early on purpose."""
    if halt.metadata:
        task.metadata.update(halt.metadata)
    noted = task._metadata_ or {}
    outcome = Outcome(halt.status, halt.reason, noted, None, halt.origin)
    record = Record(task, outcome, halt.value)
    record.stopped = stopped
    return record


def ended(task: Invocation, outcome: Outcome, stopped: Stop | None) -> Record:
    """Return the record of a run that failed."""
    record = Record(task, outcome, None)
    record.stopped = stopped
    return record


def reviewed(task: Invocation, success: Outcome) -> Outcome:
    """Return what a success comes to with the errors and the metadata of the task."""
    noted = task._metadata_ or {}
    if task._errors_:
        return Outcome(Status.FAILED, str(task._errors_), noted)
    return Outcome(Status.SUCCESS, success.reason, noted)


def without_our_frames(error: BaseException) -> BaseException:
    """
    Cut the frames of this package off the start of a traceback.

    People look for their own, and ours would hold the error in a cycle.
    """
    traceback: TracebackType | None = error.__traceback__
    while (
        traceback is not None
        and traceback.tb_frame.f_globals.get("__package__") == "cmdx"
    ):
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    return error
