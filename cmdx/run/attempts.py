"""
The attempts: ``work`` is called, and called again while the policy says so.

1. ``work`` returns, halts or raises                    ``run_attempts``
2. a value ends the run                                 ``succeed_with``
3. after an error the policy decides                    ``retry_or_end``
4. the run pauses, and the next attempt is announced    ``start_next_attempt``

Errors are kept in the record of the run alone. A local variable that held one would
form a reference cycle: error → traceback → frame → error.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from cmdx import clock
from cmdx.exceptions import AsyncTaskError
from cmdx.outcome import (
    STOPPED_BY_HALT,
    STOPPED_BY_OTHER_ERROR,
    STOPPED_BY_SUCCESS,
    SUCCESS,
    Halt,
    Stop,
)
from cmdx.retry.decide import nesting
from cmdx.run import deadlines
from cmdx.run.continuation import suspend
from cmdx.run.ending import check_errors, end, errors_behind, set_traceback
from cmdx.telemetry import send, task_retried

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from cmdx.run.continuation import Suspended
    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Run

T = TypeVar("T")


async def run_attempts(task: Invocation, run: Run) -> None:
    """Call ``work``, again while the policy allows it."""
    run.work_began = True
    now = run.now
    while True:
        start = now()
        try:
            value = task.work()
            if type(value) is CoroutineType:
                value = await in_time(require_async_run(run, value))
                if type(value) is CoroutineType:
                    refuse_unawaited(run, value)
        except BaseException as error:
            if not retry_or_end(task, run, error, start):
                raise
        else:
            succeed_with(run, value, start)
            break
        if run.pause > 0:
            await pause(task, run)
        if run.record.outcome is not None:
            break
        start_next_attempt(task, run)
    if run.has_notes:
        check_errors(run)


async def continue_attempts(task: Invocation, run: Run, earlier: Suspended) -> None:
    """Go on after the attempts of an *earlier* leg, unless the deadline has passed."""
    for problem in earlier.errors:
        run.errors.add(*problem)
    if not deadlines.allows(0.0):
        run.attempt -= 1
        end_late(task, run)
        return
    if task_retried.receivers:
        _, _, error, _, rule = run.record.attempts[-1]
        announce_retry(task, run, error, rule)
    await run_attempts(task, run)


def end_late(task: Invocation, run: Run) -> None:
    """End the run by its last error: the deadline has passed since."""
    *others, (start, duration, error, _, rule) = run.record.attempts
    run.record.attempts = [*others, (start, duration, error, None, rule)]
    end(task, error, Stop.DEADLINE)


def succeed_with(run: Run, value: Any, start: float) -> None:
    """End the run as a success."""
    record = run.record
    record.outcome = SUCCESS
    record.value = value
    record.stopped = STOPPED_BY_SUCCESS
    if record.attempts:  # one clean call needs no list of attempts
        add_attempt(run, start, None)


def retry_or_end(
    task: Invocation, run: Run, error: BaseException, start: float
) -> bool:
    """Try again after *error*, or let it end the run; False if it propagates."""
    policy = run.plan.retry
    if not isinstance(error, policy.catches):
        is_late = isinstance(error, deadlines.DeadlineExceeded)
        stop = Stop.DEADLINE if is_late else STOPPED_BY_OTHER_ERROR
        return end_by_error(task, run, error, start, stop)
    try:
        stopped, pause, rule = policy.decide(task, error, run.attempt, run.pause)
    except (Halt, Exception) as raised:  # of a gate or a jitter
        end_by_error(task, run, error, start, Stop.GATE)
        if not end(task, raised, Stop.GATE):
            raise
        return True
    if stopped is not None:
        return end_by_error(task, run, error, start, stopped)
    add_attempt(run, start, error, pause, rule)
    return True


def end_by_error(
    task: Invocation, run: Run, error: BaseException, start: float, stopped: Stop
) -> bool:
    """End the run by what ``work`` raised; False if it propagates."""
    if not end(task, error, stopped):
        return False
    if run.record.stopped is not STOPPED_BY_HALT:
        add_attempt(run, start, error)
    elif run.record.attempts:
        add_attempt(run, start, None)
    return True


def add_attempt(
    run: Run,
    start: float,
    error: BaseException | None,
    pause: float | None = None,
    rule: str | None = None,
) -> None:
    """Add a call of ``work`` to the record."""
    duration = run.now() - start
    attempts: Any = run.record.attempts or []
    attempts.append((start - run.started, duration, error, pause, rule))
    run.record.attempts = attempts
    run.pause = 0.0 if pause is None else pause


async def pause(task: Invocation, run: Run) -> None:
    """Pause before the next attempt, unless an error or the deadline ends the run."""
    if run.pause > run.longest_pause:
        raise suspend(run)
    try:
        await clock.pause(run.pause, awaits=run.awaits)
    except (Halt, Exception) as raised:  # of a signal handler, for example
        _, _, error, _, _ = run.record.attempts[-1]
        end(task, cast("BaseException", error), Stop.NOT_LISTED)
        del error  # what a signal handler raised leads to this frame
        if not end(task, raised, Stop.NOT_LISTED):
            raise
    else:
        if not deadlines.allows(0.0):  # it took longer, or the job was cancelled
            end_late(task, run)


def start_next_attempt(task: Invocation, run: Run) -> None:
    """Announce the next attempt, and free what the frames of the last error hold."""
    run.attempt += 1
    _, _, error, _, rule = run.record.attempts[-1]
    if task_retried.receivers:
        announce_retry(task, run, error, rule)
    forget_frames(error)


def forget_frames(error: Any) -> None:
    """Free what the frames of *error*, and of errors that led to it, hold."""
    set_traceback(error, None)
    stands_alone = error.__context__ is None and error.__cause__ is None
    if stands_alone and not isinstance(error, BaseExceptionGroup):
        return
    for known in errors_behind(error):
        set_traceback(known, None)


def announce_retry(
    task: Invocation, run: Run, error: BaseException | None, rule: str | None
) -> None:
    """Send the signal at the start of another attempt."""
    depth, product = nesting(run)
    send(
        task_retried,
        task,
        attempt=run.attempt,
        delay=max(run.pause, 0.0),
        error=error,
        rule=rule,
        depth=depth,
        product=product,
    )


def require_async_run(run: Run, coroutine: CoroutineType[Any, Any, T]) -> Awaitable[T]:
    """Return *coroutine* to be awaited; refuse it in a synchronous run."""
    if not run.awaits:
        coroutine.close()
        is_hidden = run.plan.awaiting_part is None
        raise AsyncTaskError(run.task, is_hidden=is_hidden)
    return coroutine


def refuse_unawaited(run: Run, coroutine: CoroutineType[Any, Any, Any]) -> NoReturn:
    """Raise: a coroutine that ``work`` returns has not run, and nobody would run it."""
    coroutine.close()
    cure = "Write `return await ...`."
    name = f"{run.task.__qualname__}.work"
    message = f"{name} returned the coroutine {coroutine.__qualname__}(). {cure}"
    raise TypeError(message)


def in_time(coroutine: Awaitable[T]) -> Awaitable[T]:
    """Return *coroutine*, to be cancelled at the deadline if there is one."""
    moment = deadlines.current_moment()
    return coroutine if moment is None else deadlines.cancel_at(coroutine, moment)
