"""
What happens when a task runs.

1. it joins the chain of the task that runs it        ``lifecycle``
2. middlewares open, the outermost first              ``wrapped``
3. ``before_*`` callbacks run, around hooks open      ``perform``
4. inputs are resolved                                ``block``
5. ``work`` is called, again while the policy says so ``worked``
6. outputs are verified, or ``rollback`` is called    ``block``
7. around hooks close, completion callbacks run       ``completed``
8. middlewares see the result and close               ``wrapped``
9. the result joins the chain, is sent and is logged  ``lifecycle``

It is written once, as coroutines. In a synchronous run nothing awaited ever suspends,
so ``drive`` takes them through in one go; in an asynchronous run they are awaited.

Whatever user code raises becomes the outcome; ``keeps`` tells what does not.
"""

from __future__ import annotations

from sys import modules
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from cmdx import clock, deadlines, log
from cmdx.chain import chain_of, joined_by_child, running
from cmdx.clock import now
from cmdx.exceptions import AsyncTaskError, CmdxError, Fault
from cmdx.inputs import resolve
from cmdx.middleware import closed, opened, torn_down
from cmdx.outcome import SUCCESS, Halt, Outcome, Status, Stop
from cmdx.outputs import verify
from cmdx.result import Record, Result, text_of
from cmdx.retry import nesting
from cmdx.telemetry import (
    send,
    task_executed,
    task_retried,
    task_rolled_back,
    task_started,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from cmdx.blueprint import Plan
    from cmdx.invocation import Invocation
    from cmdx.middleware import Wrapper
    from cmdx.retry import Limits

    Pause = Callable[[float], Awaitable[None]]

T = TypeVar("T")


async def lifecycle(
    task: Invocation, plan: Plan, pause: Pause, ended: list[Result[Any]]
) -> None:
    """
    Take *task* from its inputs to its result, which is put into *ended*.

    To return it would cost a synchronous run an exception.
    """
    parent = running.get()
    if parent is not None and parent._phase_ == "running":
        chain = parent._chain_
        if chain is None:
            chain = joined_by_child(parent)
        if chain is not None:
            task._parent_ = parent
            task._chain_ = chain
    timer = clock.current.get()
    token = running.set(task)
    task._phase_ = "running"
    task._started_at_ = timer.time()
    task._started_ = started = timer.monotonic()
    try:
        if plan.wrapped:
            result = await wrapped(task, plan, pause)
        elif plan.hooked or task_started.receivers:
            result = Result(await perform(task, plan, pause))
        else:  # the shortest way to the same end
            steps = block if plan.fielded else worked
            result = Result(await steps(task, plan, pause))
    finally:
        running.reset(token)
        task._phase_ = "finished"
        chain = task._chain_
        if chain is not None:
            task._chain_ = None  # a task must not hold its results
    task._duration_ = timer.monotonic() - started
    if chain is not None:
        result._chain = chain
        chain.join(result)
    if task_executed.receivers:
        send(task_executed, task, result=result)
    if plan.log and "structlog" in modules and log.wanted():
        log.log_result(result)
    ended.append(result)


async def wrapped(task: Invocation, plan: Plan, pause: Pause) -> Result[Any]:
    """Open the middlewares from the outermost in, and let each see the result."""
    try:
        if plan.correlation_id is not None and task._parent_ is None:
            chain_of(task).xid = plan.correlation_id(task)
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        return await never_performed(task, plan, error)
    result = await within(plan.middlewares, MIDDLEWARES, task, plan, pause)
    return cast("Result[Any]", result)


async def within(  # noqa: C901 -- one story
    wrappers: tuple[Wrapper, ...],
    layer: Layer,
    task: Invocation,
    plan: Plan,
    pause: Pause,
) -> Any:
    """Open *wrappers* from the outermost in, do what is inside, and close them."""
    entered: list[tuple[Wrapper, Any]] = []
    inside: Any = None
    try:
        try:
            for wrapper in wrappers:
                if wrapper.gate is None or wrapper.gate(task):
                    generator = wrapper.call(task)
                    opening = opened(wrapper, task, generator)
                    if opening is not None:
                        await opening
                    entered.append((wrapper, generator))
        except (Halt, Exception) as error:
            if not keeps(task, error):
                raise
            inside = await layer.cut_short(task, plan, error)
        if inside is None:
            inside = await layer.inner(task, plan, pause)
        while entered:
            wrapper, generator = entered.pop()
            try:
                answer = inside.outcome if layer is AROUND else inside
                closing = closed(wrapper, task, generator, answer)
                if closing is not None:
                    await closing
            except (Halt, Exception) as error:
                if not keeps(task, error):
                    raise
                inside = inside._replaced_by_(ended_by(task, error))
    except BaseException as error:
        await torn_down([generator for _, generator in reversed(entered)], error)
        raise
    return inside


class Layer(NamedTuple):
    """What wrappers wrap, and what is done when one ends the run before it began."""

    inner: Callable[[Invocation, Plan, Pause], Awaitable[Any]]
    cut_short: Callable[[Invocation, Plan, BaseException], Awaitable[Any]]


async def performed(task: Invocation, plan: Plan, pause: Pause) -> Result[Any]:
    """Perform, and read the record."""
    return timed(Result(await perform(task, plan, pause)))


async def never_performed(
    task: Invocation, plan: Plan, error: BaseException
) -> Result[Any]:
    """Run the completion callbacks alone, for a middleware ended the run early."""
    return timed(Result(await completed(task, plan, ended_by(task, error))))


def timed(result: Result[Any]) -> Result[Any]:
    """Take the time, so that a middleware can read the duration so far."""
    task = result._record.task
    task._duration_ = now() - task._started_
    return result


async def perform(task: Invocation, plan: Plan, pause: Pause) -> Record:
    """Run the callbacks before, the block, and the callbacks after."""
    try:
        if task_started.receivers:
            send(task_started, task)
        if plan.deprecation is not None:
            plan.deprecation(task)
        for name, gate, _ in plan.before:
            if gate is None or gate(task):
                done = getattr(task, name)()
                if type(done) is CoroutineType:
                    await awaited(task, done)
        if plan.around:
            record = await within(plan.around, AROUND, task, plan, pause)
        else:
            steps = block if plan.fielded or task._noted_ else worked
            record = await steps(task, plan, pause)
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        record = ended_by(task, error)
    try:
        return await completed(task, plan, record)
    finally:
        del record  # see ``worked``


async def block(task: Invocation, plan: Plan, pause: Pause) -> Record:
    """Resolve inputs, do the work, verify outputs; if this fails, roll it back."""
    record = resolved(task, plan)
    if record is None:
        steps = worked if plan.limits is None else limited
        record = await steps(task, plan, pause)
    if plan.outputs and record.outcome.status is Status.SUCCESS:
        verified(task, plan, record)
    if plan.settle is not None:
        await plan.settle(task, record)
    if plan.rolls_back and record.outcome.status is Status.FAILED:
        await roll_back(task, record)
    try:
        return record
    finally:
        del record  # see ``worked``


def resolved(task: Invocation, plan: Plan) -> Record | None:
    """Resolve the inputs; return a record if that or something before it failed."""
    try:
        resolve(task, plan.inputs)
    except (Halt, Exception) as error:  # of a source, a default or a gate
        if not keeps(task, error):
            raise
        return ended_by(task, error)
    if task._errors_:
        return ended(task, reviewed(task, SUCCESS), None)
    return None


def verified(task: Invocation, plan: Plan, record: Record) -> None:
    """Fail a run that returned without setting its outputs."""
    if record.stopped is not Stop.SUCCESS:  # it was halted
        return
    try:
        verify(task, plan.outputs)
        record.outcome = reviewed(task, record.outcome)
    except (Halt, Exception) as error:  # of a gate
        if not keeps(task, error):
            raise
        record.outcome = ended_by(task, error).outcome


async def limited(task: Invocation, plan: Plan, pause: Pause) -> Record:
    """Do the work within its deadline, and count it in the budgets of its policy."""
    seconds, budgets = cast("Limits", plan.limits)
    for budget in budgets:
        budget.deposit()
    if seconds is None:
        return await worked(task, plan, pause)
    token = deadlines.current.set(deadlines.earlier(now() + seconds))
    try:
        return await worked(task, plan, pause)
    finally:
        deadlines.current.reset(token)


async def worked(  # noqa: C901, PLR0912, PLR0915 -- the loop is the story, and hot
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
        except Exception as error:
            if not keeps(task, error):
                raise
            late = isinstance(error, deadlines.DeadlineExceeded)
            record = ended_by(task, error, Stop.DEADLINE if late else Stop.NOT_LISTED)
            failure = record.outcome.cause
        except BaseExceptionGroup as group:  # a task group wraps what its tasks raise
            record = halted_within(task, group)
            if record is None:
                raise
        if failure is None and not attempts:
            break
        # Outside the handlers: nothing below happens "during handling" of the failure.
        timer = clock.current.get()
        end = timer.monotonic()
        seconds: Any = None
        stopped = rule = None
        if record is None:
            try:
                stopped, seconds, rule = plan.retry.decide(task, failure, attempts)
            except (Halt, Exception) as error:  # of a gate or a jitter
                record = replaced_by(task, error)
            if stopped is not None:
                record = given_up(task, failure, stopped)
        attempts.append((start - task._started_, end - start, failure, seconds, rule))
        if record is not None:
            record.attempts = attempts
            break
        if seconds > 0:
            try:
                await pause(seconds)
            except (Halt, Exception) as error:  # raised by a signal handler, say
                record = replaced_by(task, error)
                record.attempts = attempts
                break
            end = timer.monotonic()
        task._attempt_ = len(attempts)
        if task_retried.receivers:
            announce_retry(task, failure, seconds, rule)
        failure.__traceback__ = None
        if failure.__context__ or isinstance(failure, BaseExceptionGroup):
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


def halted_within(task: Invocation, group: BaseExceptionGroup[Any]) -> Record | None:
    """Return the record of a halt of *task* that is wrapped in *group*, if there is."""
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


def forget_frames(failure: BaseException) -> None:
    """Free what a failed attempt, and what led to its error, held on to."""
    errors: list[Any] = [failure]
    for error in errors:
        error.__traceback__ = None
        led_by = (error.__cause__, error.__context__, *getattr(error, "exceptions", ()))
        errors += [each for each in led_by if each is not None and each not in errors]


def replaced_by(task: Invocation, error: BaseException) -> Record:
    """Return what a halt or an error makes of the run while it was decided on."""
    if not isinstance(error, Halt):
        return failed_by(task, error, Stop.NOT_LISTED)
    if error.task is not task:
        raise error
    return halted(task, error, Stop.HALTED)


def given_up(task: Invocation, failure: BaseException, stopped: Stop) -> Record:
    """Return the record of a failure that is not retried, or let it escape."""
    if not keeps(task, failure):
        raise failure
    return ended_by(task, failure, stopped)


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


async def roll_back(task: Invocation, record: Record) -> None:
    """Undo the work; what this raises is noted beside the failure, not in its place."""
    task._rolled_back_ = True
    try:
        done = task.rollback()
        if type(done) is CoroutineType:
            await awaited(task, done)
    except (Halt, Exception) as error:
        others = isinstance(error, Halt) and error.task is not task
        if others or isinstance(error, AsyncTaskError):
            raise
        record.rollback_error = without_our_frames(error)
    if task_rolled_back.receivers:
        send(task_rolled_back, task, error=record.rollback_error)
    del record  # see ``worked``


async def completed(task: Invocation, plan: Plan, record: Record) -> Record:
    """Run the completion callbacks; one that halts or raises changes the outcome."""
    outcome = record.outcome
    try:
        for name, gate, takes_outcome in plan.after[outcome.status]:
            if gate is None or gate(task):
                hook = getattr(task, name)
                done = hook(outcome) if takes_outcome else hook()
                if type(done) is CoroutineType:
                    await awaited(task, done)
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        record = record._replaced_by_(ended_by(task, error))
    try:
        return record
    finally:
        del record, outcome  # see ``worked``


async def _ended_by(task: Invocation, _plan: Plan, error: BaseException) -> Record:
    return ended_by(task, error)


MIDDLEWARES = Layer(performed, never_performed)
AROUND = Layer(block, _ended_by)


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


async def sleep(seconds: float) -> None:
    """Pause a synchronous run."""
    clock.current.get().sleep(seconds)


async def asleep(seconds: float) -> None:
    """Pause an asynchronous run."""
    await clock.current.get().asleep(seconds)


def drive(steps: Coroutine[Any, Any, None]) -> None:
    """Run coroutines that never suspend as one would call a function."""
    for _ in steps.__await__():
        steps.close()
        message = "a synchronous run was suspended; run this task with aexecute()"
        raise TypeError(message)


def driven(steps: Coroutine[Any, Any, T]) -> T:
    """Drive *steps* and return what they return."""
    values: list[T] = []

    async def keep() -> None:
        values.append(await steps)

    drive(keep())
    return values[0]
