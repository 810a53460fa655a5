"""
The attempts: ``work`` is called, and called again while the policy says so.

1. ``work`` returns, halts or raises                ``worked``
2. after a listed error the policy is asked         ``settled``
3. the run pauses, and is announced to be retried   ``paused``, ``announce_retry``

Nothing here happens inside an exception handler but the keeping of the error, so that
no error is chained to those of earlier attempts; and nothing here is held by the frames
of an error when it is over, so that no cycle is left behind.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import deadlines
from cmdx.clock import current, now
from cmdx.endings import ended_by, failed_by, halted, keeps, reviewed
from cmdx.exceptions import AsyncTaskError
from cmdx.outcome import SUCCESS, Halt, Status, Stop
from cmdx.result import Record
from cmdx.retry import nesting
from cmdx.telemetry import send, task_retried

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cmdx.blueprint import Plan
    from cmdx.invocation import Invocation
    from cmdx.retry import Past

    Pause = Callable[[float], Awaitable[None]]

T = TypeVar("T")


async def worked(  # noqa: C901, PLR0912 -- the loop is the story
    task: Invocation, plan: Plan, pause: Pause
) -> Record:
    """Call ``work``, again while the policy says so."""
    start = now() if plan.hooked or plan.fielded else task._started_
    attempts: list[tuple[Any, ...]] = []
    while True:
        record: Any = None  # a Record, unless a listed error was raised
        failure: Any = None  # the error that was raised, if any
        try:
            value = task.work()
            if type(value) is CoroutineType:
                value = await in_time(awaited(task, value))
            record = Record(task, SUCCESS, value)
        except plan.retry.catches as error:
            failure = error
        except Halt as halt:
            if halt.task is not task:
                raise
            record = halted(task, halt, Stop.HALTED)
        except (Exception, BaseExceptionGroup) as error:
            record = ending_of(task, error)
            if record is None:
                raise
            failure = record.outcome.cause
        if failure is None and not attempts:
            break
        end = now()
        seconds: Any = None
        rule = None
        if record is None:
            record, seconds, rule = settled(task, plan, failure, attempts)
        attempts.append((start - task._started_, end - start, failure, seconds, rule))
        if record is None and seconds > 0:
            record = await paused(task, pause, seconds)
            end = now()
        if record is not None:
            record.attempts = attempts
            break
        task._attempt_ = len(attempts)
        if task_retried.receivers:
            announce_retry(task, failure, seconds, rule)
        forget_frames(failure)
        start = end
    if task._noted_ and record.outcome.status is Status.SUCCESS:
        record.outcome = reviewed(task, record.outcome)
    try:
        return record  # type: ignore[no-any-return]
    finally:
        # The frames of an error hold those they were called from, and so this one:
        # were it to hold the error, they would form a cycle.
        del record, failure, attempts


def ending_of(task: Invocation, error: BaseException) -> Record | None:
    """Return how *error*, which is not to be retried, ends the run; None if not."""
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, Exception):
        return halted_within(task, error)
    if not keeps(task, error):
        return None
    late = isinstance(error, deadlines.DeadlineExceeded)
    return ended_by(task, error, Stop.DEADLINE if late else Stop.NOT_LISTED)


def settled(
    task: Invocation, plan: Plan, failure: Any, attempts: Past
) -> tuple[Record | None, float | None, str | None]:
    """Ask the policy about *failure*: give up with a record, or pause for a rule."""
    try:
        stopped, seconds, rule = plan.retry.decide(task, failure, attempts)
    except (Halt, Exception) as error:  # of a gate or a jitter, it replaces the failure
        return replaced_by(task, error), None, None
    if stopped is None:
        return None, seconds, rule
    if not keeps(task, failure):
        raise failure
    return ended_by(task, failure, stopped), None, None


async def paused(task: Invocation, pause: Pause, seconds: float) -> Record | None:
    """Pause; return a record if something was raised meanwhile, by a signal say."""
    try:
        await pause(seconds)
    except (Halt, Exception) as error:
        return replaced_by(task, error)
    return None


def replaced_by(task: Invocation, error: BaseException) -> Record:
    """Return what a halt or an error makes of the run while it was decided on."""
    if not isinstance(error, Halt):
        return failed_by(task, error, Stop.NOT_LISTED)
    if error.task is not task:
        raise error
    return halted(task, error, Stop.HALTED)


def announce_retry(
    task: Invocation, failure: Any, seconds: float, rule: str | None
) -> None:
    """Send the signal at the start of another attempt."""
    depth, product = nesting(task)
    send(
        task_retried,
        task,
        attempt=task._attempt_,
        delay=max(seconds, 0.0),
        error=failure,
        rule=rule,
        depth=depth,
        product=product,
    )


def forget_frames(failure: Any) -> None:
    """Free what a failed attempt, and what led to its error, held on to."""
    failure.__traceback__ = None
    if failure.__context__ is None and not isinstance(failure, BaseExceptionGroup):
        return
    errors: list[Any] = [failure]
    for error in errors:
        error.__traceback__ = None
        led_by = (error.__cause__, error.__context__, *getattr(error, "exceptions", ()))
        errors += [each for each in led_by if each is not None and each not in errors]


def halted_within(task: Invocation, group: BaseExceptionGroup[Any]) -> Record | None:
    """Return the record of a halt that a task group has wrapped in *group*."""
    halts = group.subgroup(lambda each: isinstance(each, Halt) and each.task is task)
    while isinstance(halts, BaseExceptionGroup):
        halts = halts.exceptions[0]
    if halts is None:
        return None
    return halted(task, halts, Stop.HALTED)


def awaited(task: Invocation, steps: CoroutineType[Any, Any, T]) -> Awaitable[T]:
    """Return *steps* to be awaited; refuse them in a synchronous run."""
    if not task._awaits_:
        steps.close()
        raise AsyncTaskError(type(task))
    return steps


def in_time(steps: Awaitable[T]) -> Awaitable[T]:
    """Have an attempt be cancelled at the deadline, if there is one."""
    moment = deadlines.current.get()
    return steps if moment is None else deadlines.cancelled_in_time(steps, moment)


async def sleep(seconds: float) -> None:
    """Pause a synchronous run."""
    current.get().sleep(seconds)


async def asleep(seconds: float) -> None:
    """Pause an asynchronous run."""
    await current.get().asleep(seconds)
