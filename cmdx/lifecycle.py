"""
What happens when a task runs.

1. it joins the chain of the task that runs it        ``lifecycle``
2. middlewares open, the outermost first              ``wrapped``
3. ``before_*`` callbacks run, around hooks open      ``perform``
4. inputs are resolved                                ``block``
5. ``work`` is called, again while the policy says so ``cmdx.working``
6. outputs are verified, or ``rollback`` is called    ``block``
7. around hooks close, completion callbacks run       ``completed``
8. middlewares see the result and close               ``wrapped``
9. the result joins the chain, is sent and is logged  ``lifecycle``

It is written once, as coroutines. In a synchronous run nothing awaited ever suspends,
so ``drive`` takes them through in one go; in an asynchronous run they are awaited.

Whatever user code raises becomes the outcome; ``cmdx.endings`` tells what does not.
"""

from __future__ import annotations

from sys import modules
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from cmdx import clock, deadlines, log
from cmdx.chain import chain_of, joined_by_child, running
from cmdx.clock import now
from cmdx.endings import ended, ended_by, keeps, reviewed, without_our_frames
from cmdx.exceptions import AsyncTaskError
from cmdx.inputs import resolve
from cmdx.middleware import closed, opened, torn_down
from cmdx.outcome import SUCCESS, Halt, Status, Stop
from cmdx.outputs import verify
from cmdx.result import Record, Result
from cmdx.telemetry import send, task_executed, task_rolled_back, task_started
from cmdx.working import awaited, worked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from cmdx.blueprint import Plan
    from cmdx.invocation import Invocation
    from cmdx.middleware import Wrapper
    from cmdx.retry import Limits
    from cmdx.working import Pause

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
            steps = block if plan.fielded else limited if plan.limits else worked
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
    del result, chain  # see ``worked``


async def wrapped(task: Invocation, plan: Plan, pause: Pause) -> Result[Any]:
    """Open the middlewares from the outermost in, and let each see the result."""
    try:
        if plan.correlation_id is not None and task._parent_ is None:
            chain_of(task).xid = plan.correlation_id(task)
    except (Halt, Exception) as error:
        if not keeps(task, error):
            raise
        return await never_performed(task, plan, error)
    return cast(
        "Result[Any]", await within(plan.middlewares, MIDDLEWARES, task, plan, pause)
    )


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
                around = layer is AROUND
                closing = closed(
                    wrapper, task, generator, inside.outcome if around else inside
                )
                if closing is not None:
                    await closing
            except (Halt, Exception) as error:
                if not keeps(task, error):
                    raise
                inside = inside._replaced_by_(ended_by(task, error))
    except BaseException as error:
        await torn_down([generator for _, generator in reversed(entered)], error)
        raise
    try:
        return inside
    finally:
        del inside  # see ``worked``


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
            checked = plan.fielded or plan.limits or task._noted_
            record = await (block if checked else worked)(task, plan, pause)
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


async def roll_back(task: Invocation, record: Record) -> None:
    """Undo the work; what this raises is noted beside the failure, not in its place."""
    task._rolled_back_ = True
    try:
        done = task.rollback()
        if type(done) is CoroutineType:
            await unhindered(awaited(task, done))
    except (Halt, Exception) as error:
        others = isinstance(error, Halt) and error.task is not task
        if others or isinstance(error, AsyncTaskError):
            raise
        record.rollback_error = without_our_frames(error)
    finally:
        if task_rolled_back.receivers:
            send(task_rolled_back, task, error=record.rollback_error)
        del record  # see ``worked``


async def unhindered(steps: Awaitable[Any]) -> None:
    """Await *steps* to their end; if this is cancelled meanwhile, be so afterwards."""
    import asyncio

    task = asyncio.ensure_future(steps)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


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
    return values.pop()
