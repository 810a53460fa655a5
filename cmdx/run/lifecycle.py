"""
What happens when a task runs.

1. it joins the chain of the task that runs it           ``lifecycle``
2. middlewares open, the outermost first                 ``lifecycle``
3. ``before_*`` callbacks run, around hooks open         ``run_inside_middlewares``
4. inputs are resolved                                   ``run_inside_hooks``
5. ``work`` is called, again while the policy says so    ``cmdx.run.attempts``
6. outputs are verified, or ``rollback`` is called       ``run_inside_hooks``
7. around hooks close, completion callbacks run          ``run_inside_middlewares``
8. middlewares close and are sent the result             ``lifecycle``
9. the result joins the chain, is sent and is logged     ``finish``

It is written once, as coroutines. In a synchronous run nothing that is awaited ever
suspends, so ``drive`` runs them to the end in one go; an asynchronous run awaits them.

What user code raises becomes the outcome of the run; ``cmdx.run.ending`` says what does
not. An interrupt propagates, after the task was rolled back and the run was announced
as cancelled.

The functions here are given the task and its run, and keep no result, outcome or error
in a local variable while user code runs; see ``cmdx.run.record``.
"""

from __future__ import annotations

from contextlib import nullcontext
from contextvars import copy_context
from operator import attrgetter
from sys import modules
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import log
from cmdx.chain import chain_of, running_task, set_running_task
from cmdx.clock import require_asyncio
from cmdx.inputs.outputs import verify
from cmdx.inputs.resolve import resolve
from cmdx.outcome import FAILED, STOPPED_BY_SUCCESS, Halt, Stop
from cmdx.result import Result
from cmdx.retry.decide import Limits
from cmdx.run import deadlines
from cmdx.run.attempts import continue_attempts, require_async_run, run_attempts
from cmdx.run.continuation import is_suspension
from cmdx.run.ending import (
    becomes_outcome,
    check_errors,
    end,
    fail_as_cancelled,
    unwrap_halt,
    without_our_frames,
)
from cmdx.run.scopes import hand_over, waiting_scopes
from cmdx.run.wrappers import Wrappers
from cmdx.telemetry import (
    send,
    task_cancelled,
    task_executed,
    task_rolled_back,
    task_started,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AbstractContextManager

    from blinker import NamedSignal

    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Run

T = TypeVar("T")

NO_LIMITS = Limits(None, ())

outcome_in = attrgetter("outcome")
"""Returns the outcome in a record: what around hooks are sent."""


async def lifecycle(task: Invocation, run: Run) -> Result[Any]:
    """Take *task* from its inputs to its result."""
    plan = run.plan
    outer = running_task()
    if outer is not None:
        run.join_chain(outer._cmdx_)
    try:
        set_running_task(task)
        if plan.is_bare and not (task_started.receivers or run.has_notes):
            await run_attempts(task, run)  # there is nothing but ``work``
        elif plan.middlewares or plan.correlation_id:
            has_id = run.earlier is not None or run.chain is not None
            if plan.correlation_id and not has_id:
                set_correlation_id(task, run, plan.correlation_id)
            async with Wrappers(task, plan.middlewares, Result.of):
                await run_inside_middlewares(task, run)
        else:
            await run_inside_middlewares(task, run)
    except BaseException as error:
        if is_suspension(error, run):
            end_leg(run)
            raise
        try:
            await roll_back_cancelled(task, run, error)
        finally:
            finish(task, run, task_cancelled)
        raise
    finally:
        run.phase = "finished"  # first: an interrupt may end this block
        if running_task() is task:  # not if it is closed in another context
            set_running_task(outer)
    return finish(task, run)


def set_correlation_id(
    task: Invocation, run: Run, call: Callable[[Invocation], str]
) -> None:
    """Give a root run its correlation id."""
    try:
        chain_of(run).xid = call(task)
    except (Halt, Exception) as error:
        if not end(task, error):
            raise


async def run_inside_middlewares(task: Invocation, run: Run) -> None:
    """Run the before callbacks, the block inside its hooks, the completion ones."""
    plan = run.plan
    if run.record.outcome is None:  # no middleware has ended the run
        try:
            if plan.before or plan.deprecation or task_started.receivers:
                await run_callbacks_before(task, run)
            if plan.around:
                async with Wrappers(task, plan.around, outcome_in):
                    await run_inside_hooks(task, run)
            else:
                await run_inside_hooks(task, run)
        except BaseException as error:
            if not end(task, error):
                raise
    if plan.after:
        await run_completion_callbacks(task, run)


async def run_callbacks_before(task: Invocation, run: Run) -> None:
    """Announce the start, and run the callbacks before."""
    if task_started.receivers:
        send(task_started, task)
    if run.plan.deprecation is not None:
        run.plan.deprecation(task)
    for name, gate, _ in run.plan.before:
        if gate is None or gate(task):
            done = getattr(task, name)()
            if type(done) is CoroutineType:
                await require_async_run(run, done)


async def run_inside_hooks(task: Invocation, run: Run) -> None:
    """Resolve inputs, do the work, verify outputs; if this fails, roll it back."""
    plan = run.plan
    if run.record.outcome is not None:  # an around hook has ended the run
        return
    try:
        if plan.inputs:
            resolve(task, plan.inputs)
        if run.has_notes:
            check_errors(run)
        if run.record.outcome is None:
            if plan.limits is None and run.earlier is None:
                await run_attempts(task, run)
            else:
                await run_limited(task, run)
        if plan.outputs and has_returned(run):
            verify(task, plan.outputs)
            check_errors(run)
    except BaseException as error:  # of a source, a default or a gate, or an interrupt
        if not end(task, error):
            await roll_back_cancelled(task, run, error)
            raise
    if plan.rolls_back or plan.after_work:
        await undo(task, run)


async def run_completion_callbacks(task: Invocation, run: Run) -> None:
    """Run the completion callbacks; one that halts or raises changes the outcome."""
    try:
        for name, gate, takes_outcome in run.plan.after[run.record.outcome.status]:
            if gate is None or gate(task):
                hook = getattr(task, name)
                done = hook(run.record.outcome) if takes_outcome else hook()
                if type(done) is CoroutineType:
                    await require_async_run(run, done)
    except BaseException as error:
        if not end(task, error):
            raise


async def run_limited(task: Invocation, run: Run) -> None:
    """
    Do the work within its deadline, and count it in the budgets of its policy.

    A continued run was counted when it began, and its deadline began then.
    """
    seconds, budgets = run.plan.limits or NO_LIMITS
    if run.earlier is None:
        for budget in budgets:
            budget.deposit()
    if seconds is None:
        await run_or_continue(task, run)
        return
    begun = run.now() if run.earlier is None else run.started
    limit = deadlines.TimeLimit(begun + seconds)
    try:
        deadlines.current.set(limit)  # inside: an interrupt cannot leave it behind
        await run_or_continue(task, run)
    finally:
        limit.holds = False
        if deadlines.current.get() is limit:  # not if it is closed in another context
            deadlines.current.set(limit.outer)


def run_or_continue(task: Invocation, run: Run) -> Awaitable[None]:
    """Return the attempts, to be awaited: all of them, or those after earlier legs."""
    if run.earlier is None:
        return run_attempts(task, run)
    return continue_attempts(task, run, run.earlier)


def has_returned(run: Run) -> bool:
    """Tell whether ``work`` returned a value, and nothing has failed the run since."""
    return run.record.stopped is STOPPED_BY_SUCCESS and not has_failed(run)


def has_failed(run: Run) -> bool:
    """Tell whether the run has failed so far."""
    return run.record.outcome.status is FAILED


async def undo(task: Invocation, run: Run) -> None:
    """Roll back what a failed run has done; the steps of a workflow come first."""
    if run.plan.after_work is not None:
        await run.plan.after_work(task, run)
    if run.plan.rolls_back and has_failed(run):
        await roll_back(task, run)


async def roll_back(task: Invocation, run: Run) -> None:
    """Call ``rollback``; what it raises is kept beside the failure."""
    run.rolled_back = True
    try:
        done = task.rollback()
        if type(done) is CoroutineType:
            rollback = require_async_run(run, done)
            require_asyncio("an async rollback", rollback)
            await finish_despite_cancel(await_rollback(task, run, rollback))
    except BaseException as error:
        if not keep_rollback_error(task, run, error):
            raise
    finally:
        if task_rolled_back.receivers:
            send(task_rolled_back, task, error=run.record.rollback_error)


async def await_rollback(task: Invocation, run: Run, steps: Awaitable[Any]) -> None:
    """Await an async ``rollback``; what it raises is kept even if it is cancelled."""
    from asyncio import CancelledError

    try:
        await steps
    except CancelledError as error:
        # Nobody cancels the rollback, which has a task of its own: it awaited
        # something that was cancelled.
        note_rollback_error(task, run, error)
    except BaseException as error:
        if not keep_rollback_error(task, run, error):
            raise


def keep_rollback_error(task: Invocation, run: Run, error: BaseException) -> bool:
    """Keep what ``rollback`` raised; False if it propagates."""
    error = unwrap_halt(task, error)
    if not becomes_outcome(task, error):
        return False
    note_rollback_error(task, run, error)
    return True


def note_rollback_error(task: Invocation, run: Run, error: BaseException) -> None:
    """Keep *error* beside the failure, and log it."""
    run.record.rollback_error = without_our_frames(error)
    log.log_failed_rollback(task, error)


async def finish_despite_cancel(steps: Coroutine[Any, Any, Any]) -> None:
    """
    Await *steps* to the end even if cancelled, then raise ``CancelledError``.

    They run in a task of their own, but see the context variables of this one, and
    what they set is seen here. The scopes that wait for this one wait for them.
    """
    import asyncio

    scopes, variables = waiting_scopes(), copy_context()
    variables.run(hand_over, scopes)
    inner = asyncio.create_task(steps, context=variables)
    # ``asyncio.run`` cancels all tasks it knows before it ends. This one comes to its
    # end, because the task that awaits it does.
    asyncio._unregister_task(inner)
    cancelled: list[BaseException] = []
    while not inner.done():
        try:
            with shield_from_anyio() if cancelled else nullcontext():
                await asyncio.wait([inner])
        except asyncio.CancelledError as error:
            cancelled = cancelled or [error]
    for variable, value in variables.items():
        if variable.get(None) is not value:
            variable.set(value)
    hand_over(scopes)
    try:
        inner.result()
    finally:
        if cancelled:
            raise cancelled.pop(0)  # off the list, which this frame holds


def shield_from_anyio() -> AbstractContextManager[Any]:
    """
    Return what keeps cancel scopes of anyio from cancelling in a block.

    They cancel again in each turn of the event loop, until the task has left them.
    """
    anyio = modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


async def roll_back_cancelled(task: Invocation, run: Run, error: BaseException) -> None:
    """Fail a run that an interrupt or an outer halt ends, and undo what it did."""
    if is_suspension(error, run):
        return
    if run.record.stopped is Stop.CANCELLED:  # this was done further in
        return
    fail_as_cancelled(run, error)
    if run.work_began and not run.rolled_back:
        await undo(task, run)


def end_leg(run: Run) -> None:
    """Take the record off a run that is suspended; it is announced when it ends."""
    run.phase = "finished"
    del run.record
    run.chain = None


def finish(
    task: Invocation, run: Run, signal: NamedSignal = task_executed
) -> Result[Any]:
    """Take the record off *run*, make its result, and announce it."""
    run.phase = "finished"  # before the chain is read, see ``chain_for_child``
    record, chain = run.record, run.chain
    del run.record
    run.ended = run.now()
    if run.has_notes:
        record.freeze_notes()
    # A middleware may hold a result of this record; the caller gets the same one.
    new = record.result_ref is None
    result: Result[Any] = Result(record, chain) if new else Result.of(record, chain)
    if chain is not None:
        run.chain = None
        chain.join(result)
    if signal.receivers:
        send(signal, task, result=result)
    # ``is_enabled`` asks this too; here it saves most programs the call.
    if "structlog" in modules and run.plan.settings.log and log.is_enabled():
        log.log_result(result)
    return result


def end_without_run(task: Invocation, error: Exception) -> Result[Any]:
    """
    Return the failed result of an invocation that cannot be run now.

    Nothing of the task is called, and nothing is announced.
    """
    run: Run = task._cmdx_
    run.start(task, awaits=True)
    end(task, error)
    return take_result(run)


def take_result(run: Run) -> Result[Any]:
    """Take the record off *run* and return its result; nothing is announced."""
    run.phase = "finished"
    record = run.record
    del run.record
    run.ended = run.now()
    if run.has_notes:
        record.freeze_notes()
    return Result(record)


def drive(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as one would call a function."""
    try:
        steps.send(None)
    except StopIteration as stop:
        # Not by way of a local: the frames of an error lead here, see ``Record``.
        return stop.value  # type: ignore[no-any-return]
    steps.close()
    message = "a synchronous run was suspended; run this task with aexecute()"
    raise TypeError(message)
