"""
Which errors end a run, and what they make of it.

Every ``Exception`` becomes the outcome of the run, and so does a halt of the task
itself. Interrupts and the halts of outer tasks propagate.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cmdx.exceptions import Fault
from cmdx.outcome import FAILED, STOPPED_BY_HALT, SUCCEEDED, Halt, Outcome, Stop
from cmdx.report import error_name, error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Run

CORE_PACKAGES = frozenset(
    ("cmdx", "cmdx.run", "cmdx.declare", "cmdx.inputs", "cmdx.retry", "cmdx.workflow")
)
NOTHING: Mapping[str, Any] = MappingProxyType({})

# They do not call a ``__setattr__`` or ``with_traceback`` that an error defines itself.
set_traceback = BaseException.with_traceback
set_context: Callable[[BaseException, BaseException], None]
set_context = vars(BaseException)["__context__"].__set__


def becomes_outcome(task: Invocation, error: BaseException) -> bool:
    """Tell whether *error* ends the run of *task*, rather than propagate."""
    if isinstance(error, Halt):
        return error.task is task
    return isinstance(error, Exception)


def end(task: Invocation, error: BaseException, stopped: Stop | None = None) -> bool:
    """
    End the run by *error*, or replace the outcome it has; False if *error* propagates.

    *stopped* tells why ``work`` is not called again, if ``work`` raised the error.
    """
    if isinstance(error, BaseExceptionGroup):
        error = unwrap_halt(task, error)
    if not becomes_outcome(task, error):
        return False
    run = task._cmdx_
    record = run.record
    if record.outcome is None:
        record.outcome, record.value = outcome_of(run, error)
    else:
        keep_context(error, record.outcome.cause)
        record = run.record = record.replace(*outcome_of(run, error))
    if isinstance(error, Halt):
        record.halted_at = error.at
    if stopped is not None:
        record.stopped = STOPPED_BY_HALT if isinstance(error, Halt) else stopped
    return True


def outcome_of(run: Run, error: BaseException) -> tuple[Outcome, Any]:
    """Return what *error* means for a run, and the value that a halt carries."""
    if isinstance(error, Halt):
        if error.metadata:
            run.metadata.update(error.metadata)
        noted = run._metadata or NOTHING
        halt = Outcome(error.status, error.reason, noted, error.cause, error.origin)
        return halt, error.value
    cause, noted = without_our_frames(error), run._metadata or NOTHING
    if isinstance(error, Fault):
        result = error.result
        error._passed_on_by = None  # this run passes the failure on now
        return Outcome(FAILED, result.reason, noted, cause, result), None
    return Outcome(FAILED, reason_of(error), noted, cause), None


def reason_of(error: BaseException) -> str:
    """Return the reason of a failure by *error*."""
    name = error_name(error).rpartition(".")[2]
    return f"[{name}] {error_text(error)}".rstrip()


def fail_as_cancelled(run: Run, error: BaseException) -> None:
    """Fail a run that an interrupt, or the halt of an outer task, ends."""
    noted = run._metadata or NOTHING
    if isinstance(error, Halt):
        outcome = Outcome(FAILED, str(error), noted)
    else:
        outcome = Outcome(FAILED, reason_of(error), noted, error)
    if run.record.outcome is None:
        run.record.outcome = outcome
    else:
        run.record = run.record.replace(outcome, None)
    run.record.stopped = Stop.CANCELLED


def check_errors(run: Run) -> None:
    """Fail the run if the task has collected errors; else add metadata to a success."""
    record = run.record
    if record.outcome is None:
        if run._errors:
            record.outcome = failure_by_errors(run)
    elif record.outcome.status is SUCCEEDED:
        noted = record.outcome._replace(metadata=run._metadata or NOTHING)
        record.outcome = failure_by_errors(run) if run._errors else noted


def failure_by_errors(run: Run) -> Outcome:
    """Return the failure of a run that has collected errors."""
    return Outcome(FAILED, str(run._errors), run._metadata or NOTHING)


def unwrap_halt(task: Invocation, error: BaseException) -> BaseException:
    """
    Return the halt of *task* if a task group has wrapped it, else *error*.

    Errors beside the halt are the cause of a failure, and win over other halts.
    """
    if not isinstance(error, BaseExceptionGroup) or isinstance(error, Exception):
        return error  # an ``ExceptionGroup`` cannot hold a halt
    halts, others = error.split(lambda member: is_halt_of(task, member))
    if halts is None:
        return error
    halt: Halt = first_in(halts)
    if others is None:
        return halt
    if halt.status is not FAILED or not isinstance(others, Exception):
        return others
    halt.cause = halt.cause or others
    return halt


def first_in(group: BaseException) -> Any:
    """Return the first error in *group* that is not itself a group."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def is_halt_of(task: Invocation, error: BaseException) -> bool:
    """Tell whether *error* is a halt of *task*."""
    return isinstance(error, Halt) and error.task is task


def keep_context(error: BaseException, earlier: BaseException | None) -> None:
    """Put *earlier* behind *error*, which takes its place, as nested handlers do."""
    if earlier is None or isinstance(error, Halt):
        return
    last = last_context(error, {id(known) for known in errors_behind(earlier)})
    if last is not None:
        set_context(last, earlier)


def last_context(error: BaseException, known: set[int]) -> BaseException | None:
    """
    Return where the context chain of *error* ends, or meets an error of *known* ids.

    Return None if an error after it would be one before it.
    """
    seen: set[int] = set()
    while id(error) not in known | seen:
        following = error.__context__
        if following is None or id(following) in known:
            return error
        seen.add(id(error))
        error = following
    return None


def without_our_frames(error: BaseException) -> BaseException:
    """
    Cut the frames of the core off the start of a traceback.

    Readers look for their own frames.
    """
    traceback: TracebackType | None = error.__traceback__
    while (
        traceback is not None
        and traceback.tb_frame.f_globals.get("__package__") in CORE_PACKAGES
    ):
        traceback = traceback.tb_next
    set_traceback(error, traceback)
    return error


def errors_behind(error: BaseException) -> list[BaseException]:
    """Return *error* and all errors that led to it, each once."""
    errors, seen = [error], {id(error)}
    for known in errors:
        members = known.exceptions if isinstance(known, BaseExceptionGroup) else ()
        for other in (known.__cause__, known.__context__, *members):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                errors.append(other)
    return errors
