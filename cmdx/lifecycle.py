"""
What happens when a task runs.

1. it joins the chain of the task that runs it        ``lifecycle``
2. middlewares open, the outermost first              ``wrapped``
3. ``before_*`` callbacks run, around hooks open      ``perform``
4. inputs are resolved                                ``block``
5. ``work`` is called, again while the policy says so ``worked``
6. outputs are verified, or ``rollback`` is called    ``block``
7. around hooks close, completion callbacks run       ``complete``
8. middlewares see the result and close               ``wrapped``
9. the result joins the chain, is sent and is logged  ``lifecycle``

It is written once, as coroutines. In a synchronous run nothing awaited ever suspends,
so ``drive`` takes them through in one go; in an asynchronous run they are awaited.

Whatever user code raises becomes the outcome; see ``ended_by`` for what does not.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cmdx import clock, log
from cmdx.chain import chain_of, running
from cmdx.exceptions import CmdxError, Fault
from cmdx.middleware import closed, opened, torn_down
from cmdx.outcome import SUCCESS, Halt, Outcome, Status, Stop
from cmdx.result import Attempt, Record, Result
from cmdx.retry import GIVEN_UP
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
    from cmdx.callbacks import Hooked
    from cmdx.middleware import Wrapper
    from cmdx.retry import Decision, RulePlan, Tally
    from cmdx.task import Task

    Pause = Callable[[float], Awaitable[None]]

T = TypeVar("T")


async def lifecycle(task: Task[Any], pause: Pause) -> Result[Any]:
    """Take *task* from its inputs to its result."""
    plan: Plan = task._plan_
    parent = running.get()
    if parent is not None and parent._phase_ == "running":
        task._parent_ = parent
        task._chain_ = chain_of(parent)
    timer = clock.current.get()
    token = running.set(task)
    task._phase_ = "running"
    task._started_at_ = timer.time()
    task._started_ = started = timer.monotonic()
    try:
        if plan.middlewares or plan.correlation_id:
            result = await wrapped(task, plan, pause)
        else:
            result = Result(await perform(task, plan, pause))
    finally:
        running.reset(token)
        task._phase_ = "finished"
        chain = task.__dict__.pop("_chain_", None)
    task._duration_ = timer.monotonic() - started
    if chain is not None:
        result._chain = chain
        chain.join(result._record, result)
    if task_executed.receivers:
        send(task_executed, task, result=result)
    if plan.log and log.wanted():
        log.log_result(result)
    return result


async def wrapped(task: Task[Any], plan: Plan, pause: Pause) -> Result[Any]:
    """Open the middlewares from the outermost in, and let each see the result."""

    async def inner() -> Result[Any]:
        return Result(await perform(task, plan, pause))

    async def ended(error: BaseException) -> Result[Any]:
        return Result(await completed(task, plan, ended_by(task, error)))

    def timed(result: Result[Any]) -> Result[Any]:
        task._duration_ = clock.current.get().monotonic() - task._started_
        return result

    try:
        if plan.correlation_id is not None and task._parent_ is None:
            chain_of(task).xid = plan.correlation_id(task)
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        return await ended(error)
    layers = Layers(plan.middlewares, inner, ended, timed)
    return await within(layers, 0, task, plan)


async def around(task: Task[Any], plan: Plan, pause: Pause) -> Record:
    """Open the around hooks from the outermost in, and let each see the outcome."""

    async def inner() -> Record:
        return await block(task, plan, pause)

    async def ended(error: BaseException) -> Record:
        return ended_by(task, error)

    layers = Layers(plan.around, inner, ended, lambda record: record.outcome)
    return await within(layers, 0, task, plan)


class Layers(NamedTuple):
    """Wrappers, what they wrap, and what each is told when it is done."""

    wrappers: tuple[Wrapper, ...]
    inner: Callable[[], Awaitable[Any]]
    ended: Callable[[BaseException], Awaitable[Any]]
    answer: Callable[[Any], Any]


async def within(layers: Layers, depth: int, task: Task[Any], plan: Plan) -> Any:
    """Run the wrapper at *depth* around everything further in."""
    if depth == len(layers.wrappers):
        return await layers.inner()
    wrapper = layers.wrappers[depth]
    try:
        wanted = wrapper.gate is None or wrapper.gate(task)
        generator = await opened(wrapper, task, awaits=plan.awaits) if wanted else None
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        return await layers.ended(error)
    try:
        inside = await within(layers, depth + 1, task, plan)
    except BaseException as error:
        if generator is not None:
            await torn_down(generator, error)
        raise
    try:
        if generator is not None:
            await closed(wrapper, task, generator, layers.answer(inside))
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        return inside._replaced_by_(ended_by(task, error))
    return inside


async def perform(task: Task[Any], plan: Plan, pause: Pause) -> Record:
    """Run the callbacks before, the block, and the callbacks after."""
    try:
        if task_started.receivers:
            send(task_started, task)
        if plan.deprecation is not None:
            plan.deprecation(task)
        for hooked in plan.before:
            await called(hooked, task, plan, SUCCESS)
        if plan.around:
            record = await around(task, plan, pause)
        else:
            record = await block(task, plan, pause)
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        record = ended_by(task, error)
    if plan.after[record.outcome.status]:
        return await completed(task, plan, record)
    return record


async def block(task: Task[Any], plan: Plan, pause: Pause) -> Record:
    """Do the work and what belongs to it; if it fails, roll it back."""
    record = await worked(task, plan, pause)
    if task._errors_ and record.outcome.status is Status.SUCCESS:
        record.outcome = invalid(task)
    if plan.rolls_back and record.outcome.status is Status.FAILED:
        await roll_back(task, plan, record)
    return record


async def worked(task: Task[Any], plan: Plan, pause: Pause) -> Record:
    """Call ``work``, again while the policy says so."""
    timer = clock.current.get()
    start = timer.monotonic()
    attempts: list[Attempt] = []
    tallies: dict[RulePlan, Tally] = {}
    while True:
        record = failure = None
        try:
            value = task.work()
            if plan.awaits and type(value) is CoroutineType:
                value = await value
            record = Record(task, SUCCESS, value, Stop.SUCCESS)
        except plan.retry.catches as error:
            failure = error
        except (Halt, Exception) as error:
            if not keeps(task, error):
                raise
            record = ended_by(task, error, Stop.NOT_LISTED)
            failure = record.outcome.cause
        if failure is None and not attempts:
            return record
        # Outside the handlers: nothing below happens "during handling" of the failure.
        end = timer.monotonic()
        decision = GIVEN_UP
        if record is None:
            decision, record = decided(task, plan, failure, tallies)
        attempts.append(
            Attempt(start - task._started_, end - start, failure, decision.pause, decision.rule)
        )
        if record is not None:
            record.attempts = tuple(attempts)
            return record
        if decision.pause:
            await pause(decision.pause)
            end = timer.monotonic()
        task._attempt_ += 1
        if task_retried.receivers:
            announce_retry(task, failure, decision)
        failure.__traceback__ = None  # frees what the failed attempt held on to
        start = end


def decided(
    task: Task[Any],
    plan: Plan,
    failure: BaseException,
    tallies: dict[RulePlan, Tally],
) -> tuple[Decision, Record | None]:
    """Ask the policy about *failure*; a record comes with the decision to give up."""
    try:
        decision = plan.retry.decide(task, failure, tallies)
    except Halt as halt:
        if halt.task is not task:
            raise
        return GIVEN_UP, ended_by(task, halt)
    except Exception as error:  # of a gate or a jitter; it replaces the failure
        return GIVEN_UP, failed_by(task, error, Stop.NOT_LISTED)
    if decision.stopped is None:
        return decision, None
    if keeps(task, failure):
        return decision, ended_by(task, failure, decision.stopped)
    raise failure


def announce_retry(task: Task[Any], failure: BaseException, decision: Decision) -> None:
    """Send the signal at the start of another attempt."""
    send(
        task_retried,
        task,
        attempt=task._attempt_,
        delay=decision.pause,
        error=failure,
        rule=decision.rule,
    )


async def roll_back(task: Task[Any], plan: Plan, record: Record) -> None:
    """Undo the work; what this raises is noted beside the failure, not in its place."""
    task._rolled_back_ = True
    try:
        done = task.rollback()
        if plan.awaits and type(done) is CoroutineType:
            await done
    except (Halt, Exception) as error:
        record.rollback_error = without_our_frames(error)
    if task_rolled_back.receivers:
        send(task_rolled_back, task, error=record.rollback_error)


async def completed(task: Task[Any], plan: Plan, record: Record) -> Record:
    """Run the completion callbacks; one that halts or raises changes the outcome."""
    outcome = record.outcome
    try:
        for hooked in plan.after[outcome.status]:
            await called(hooked, task, plan, outcome)
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        return record._replaced_by_(ended_by(task, error))
    return record


async def called(hooked: Hooked, task: Task[Any], plan: Plan, outcome: Outcome) -> None:
    """Call a hook unless its gate says no."""
    name, gate, takes_outcome = hooked
    if gate is not None and not gate(task):
        return
    call = getattr(task, name)
    done = call(outcome) if takes_outcome else call()
    if plan.awaits and type(done) is CoroutineType:
        await done


def keeps(task: Task[Any], error: BaseException) -> bool:
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
    task: Task[Any], error: BaseException, stopped: Stop | None = None
) -> Record:
    """Return what *error* makes of the run of *task*."""
    if isinstance(error, Halt):
        return Record(task, error.outcome, error.value, stopped and Stop.HALTED)
    if isinstance(error, Fault):
        outcome = Outcome(
            Status.FAILED,
            error.result.reason,
            task._metadata_ or {},
            without_our_frames(error),
            error.result,
        )
        return Record(task, outcome, None, stopped)
    return failed_by(task, error, stopped)


def failed_by(task: Task[Any], error: BaseException, stopped: Stop | None) -> Record:
    """Return the failure that *error* is."""
    reason = f"[{type(error).__name__}] {error}".rstrip()
    cause = without_our_frames(error)
    outcome = Outcome(Status.FAILED, reason, task._metadata_ or {}, cause)
    return Record(task, outcome, None, stopped)


def invalid(task: Task[Any]) -> Outcome:
    """Return the failure that the collected errors are."""
    return Outcome(Status.FAILED, str(task._errors_), task._metadata_ or {})


def without_our_frames(error: BaseException) -> BaseException:
    """
    Cut the frames of this package off the start of a traceback.

    People look for their own, and ours would hold the error in a cycle.
    """
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals.get("__package__") == "cmdx":
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    return error


async def sleep(seconds: float) -> None:
    """Pause a synchronous run."""
    clock.current.get().sleep(seconds)


async def asleep(seconds: float) -> None:
    """Pause an asynchronous run."""
    await clock.current.get().asleep(seconds)


def drive(steps: Coroutine[Any, Any, T]) -> T:
    """Run coroutines that never suspend as one would call a function."""
    try:
        steps.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    steps.close()
    message = "a synchronous run was suspended; run this task with aexecute()"
    raise TypeError(message)
