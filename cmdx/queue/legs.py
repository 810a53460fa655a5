"""
A leg: the part of a job that a worker does in one sitting.

1. the invocation is read from its stored form                       ``Leg.read``
2. its run begins, or goes on where the last leg stopped             ``Leg.begin``
3. it runs by the policy of the job, and may be cancelled            ``run_leg``
4. what came of it is to be stored with the job                      ``Leg.end_by``

It is written once, as a coroutine, for threads and for the event loop: in a thread
nothing in it suspends, so ``drive`` runs it.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from cmdx import Suspended, clock, task_retried
from cmdx.chain import chain_of, running
from cmdx.queue import table
from cmdx.queue.jobs import Job, current_leg, origin_of, read_invocation
from cmdx.queue.lanes import lane_of
from cmdx.queue.policy import QueuePlan, options_from, plan_under
from cmdx.queue.report import End
from cmdx.queue.signals import announce, job_hung, job_retried, job_started
from cmdx.queue.unread import warn_of_loss, warn_of_unread, why_unread
from cmdx.report import error_line, error_name
from cmdx.run import deadlines
from cmdx.run.lifecycle import end_without_run, lifecycle
from cmdx.run.record import Message
from cmdx.task import begin_leg
from cmdx.wire import WireError
from cmdx.wire.results import text_and_loss

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from cmdx import Result, Task
    from cmdx.queue.queue import Queue
    from cmdx.queue.table import JobRecord
    from cmdx.run.record import Run

CHECK_EVERY = 0.25
"""Seconds between two looks at jobs that run: whether they are cancelled or hang."""


class Leg:
    """A job that a worker of this process has claimed."""

    def __init__(self, queue: Queue, record: JobRecord) -> None:
        self.queue = queue
        self.record = record
        self.job: Job[Any] = Job(queue, record)
        self.clock = clock.current.get()
        self.is_cancelled = False
        self.is_given_back = False
        """Whether it is cancelled only because its worker stops."""
        self.is_of_caller = False
        """Whether it runs in the thread or coroutine of a user, who drains a queue."""
        self.is_caller_cancelled: Callable[[], bool] = lambda: False
        """Tells whether the coroutine of that user was cancelled meanwhile."""
        self.interrupt: BaseException | None = None
        """What has interrupted that user."""
        self.claimed_at = clock.Clock.monotonic()
        self.began_at: float | None = None
        """When the attempt under way began, by the real clock; None between two."""
        self.hangs_after = math.inf
        """After so many seconds an attempt hangs."""
        self.is_reported_hung = False
        self.timeout: float | None = None
        self.progress: str | None = None
        """What the work last said of its progress, as JSON."""
        self.note: Any = None
        """What the work of a lane has noted for it."""
        self.stored_progress: str | None = None
        """What of that is stored; the rest is stored with the end of the leg."""
        self._limit = deadlines.TimeLimit(math.inf)
        self._limit.holds = False  # until it is cancelled
        self._limit.outer = None
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- before and after the run -------------------------------------------------

    def read(self) -> Task[Any]:
        """Return the invocation; raise ``WireError`` or ``ValueError``."""
        return read_invocation(self.record, self.queue.tasks)

    def begin(self, task: Task[Any], *, awaits: bool) -> Run:
        """Begin the run, or go on where the last leg stopped."""
        record = self.record
        text = record.suspension
        earlier = None if text is None else json.loads(text)
        run = begin_leg(task, earlier, self.queue.longest_pause, awaits=awaits)
        run.plan = plan_under(type(task), options_from(record.options))
        origin = origin_of(record)
        run.message = Message(
            system="cmdx",
            id=record.id,
            queue=record.queue,
            traceparent=origin.get("traceparent"),
            is_scheduled=record.schedule is not None,
        )
        xid = origin.get("xid")
        if xid is not None:
            chain_of(run).xid = xid
        self.timeout = QueuePlan.of(type(task)).timeout
        if self.timeout is not None:
            limit_attempts(task, self, self.timeout)
        return run

    def end_by(self, result: Result[Any]) -> End:
        """Return what becomes of the job by the result of its run."""
        if self.record.lane is not None:
            lane: Any = lane_of(self.queue, self.record.lane)
            outcome = lane.outcome_of(result, self.note)
            return End(self.record, table.give_back, lane=lane, outcome=outcome)
        failure = result.caused_failure  # perhaps that of another task inside
        cause = None if failure is None else failure.cause
        text, loss = text_and_loss(result)
        if loss is not None:
            warn_of_loss(self.record, loss)
        return self.end(
            table.finish,
            is_success=not result.failed,
            result=text,
            error=None if cause is None else error_name(cause),
            reason=result.reason,
        )

    def end(self, change: Any, **facts: Any) -> End:
        """Return what becomes of the job by an event of ``cmdx.queue.table``."""
        made = partial(change, **facts) if facts else change
        return End(self.record, made, self.progress)

    # -- while it runs ------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel the run: async work is cancelled, other work has no time left."""
        self.is_cancelled = True
        self._limit.moment = self.clock.monotonic()
        self._limit.holds = True
        self.cancel_coroutine()

    def cancel_coroutine(self) -> None:
        """Cancel the asyncio task that runs it, if there is one."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def note_asyncio_task(self) -> None:
        """Remember the asyncio task that runs it, so that it can be cancelled."""
        import asyncio

        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        if self.is_cancelled or self.is_given_back:
            self._cancel_task()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Note when an attempt begins, and that it has ended."""
        self.began_at = clock.Clock.monotonic()
        self.is_reported_hung = False
        try:
            yield
        finally:
            self.began_at = None

    def report_if_hung(self) -> None:
        """Tell once if an attempt takes longer than its timeout."""
        began = self.began_at
        if began is None or self.is_reported_hung:
            return
        seconds = clock.Clock.monotonic() - began
        if seconds > self.hangs_after:
            self.is_reported_hung = True
            record = self.record
            logging.getLogger("cmdx").warning("%s", hang_text(self, seconds))
            announce(
                job_hung, record.task, record.module, job=self.job, seconds=seconds
            )

    def __enter__(self) -> None:
        """
        Let it be the current job of what runs in the block.

        It belongs to no chain and has no deadline of a task that has made its worker,
        or drains its queue.
        """
        self._outer_leg = current_leg.set(self)
        self._outer_task = running.set(None)
        self._outer_limit = deadlines.current.set(self._limit)

    def __exit__(self, *_error: object) -> None:
        """Let all be as it was before the block."""
        deadlines.current.reset(self._outer_limit)
        running.reset(self._outer_task)
        current_leg.reset(self._outer_leg)


async def run_leg(leg: Leg, *, awaits: bool) -> End:
    """Run a job until it ends, or has to wait for its next attempt."""
    try:
        task = leg.read()
    except WireError as error:
        why = why_unread(leg.record, error)
        warn_of_unread(f"jobs of {leg.record.task} are", why)
        return leg.end(table.leave_unread, why=why)
    except Exception as error:  # it is not JSON, and will not be
        why = f"its inputs are not JSON ({error}). Repair the row."
        return leg.end(table.bury_unread, why=why)
    if type(task)._cmdx_.plan.awaits and not awaits:
        return await run_in_loop(leg)
    record = leg.record
    announce(job_started, record.task, record.module, job=leg.job)
    try:
        with leg, Retries(leg, task):
            result = await run_task(leg, task, awaits=awaits)
    except Suspended as suspended:
        text = json.dumps(suspended.to_dict())
        return leg.end(table.suspend, pause=suspended.pause, suspension=text)
    except BaseException as error:  # an interrupt; the run was rolled back
        return end_by_interrupt(leg, error)
    return leg.end_by(result)


async def run_task(leg: Leg, task: Task[Any], *, awaits: bool) -> Result[Any]:
    """Run the task of a job, or go on with it."""
    try:
        run = leg.begin(task, awaits=awaits)
    except Exception as error:  # a class that cannot run, or edited data
        return end_without_run(leg.read(), error)
    if awaits:
        leg.note_asyncio_task()
    return await lifecycle(task, run)


async def run_in_loop(leg: Leg) -> End:
    """Run a job whose class has become asynchronous since it was enqueued."""
    import asyncio

    if asyncio._get_running_loop() is not None:
        return await run_in_task(leg)
    return asyncio.run(run_in_task(leg))


async def run_in_task(leg: Leg) -> End:
    """
    Run a leg in a task of asyncio of its own.

    So the leg can be cancelled alone, and it is known whether its caller was: by Ctrl-C
    too, for which ``asyncio.run`` cancels it.
    """
    import asyncio

    caller: Any = asyncio.current_task()
    before = caller.cancelling()
    leg.is_caller_cancelled = lambda: caller.cancelling() > before
    task = asyncio.create_task(run_leg(leg, awaits=True))
    try:
        end = await task
    except asyncio.CancelledError as error:  # before it began, or after its end
        leg.interrupt = error
        return leg.end(table.give_back_unstarted) if task.cancelled() else task.result()
    if leg.is_caller_cancelled() and leg.interrupt is None:
        leg.interrupt = asyncio.CancelledError()
    return end


async def run_guarded(leg: Leg, *, awaits: bool) -> End:
    """Do what ``run_leg`` does; what is raised outside of the run counts as a crash."""
    try:
        return await run_leg(leg, awaits=awaits)
    except BaseException as error:  # such as a signal's receiver that exits
        logging.getLogger("cmdx").exception("the job %r cannot be run", leg.record.id)
        return leg.end(table.crash, why=error_line(error))


def end_by_interrupt(leg: Leg, error: BaseException) -> End:
    """Return what becomes of a job whose run was interrupted."""
    asyncio = sys.modules.get("asyncio")
    was_cancelled = asyncio is not None and isinstance(error, asyncio.CancelledError)
    if leg.is_cancelled:
        return leg.end(table.end_cancelled)
    if leg.is_of_caller and is_for_caller(leg, error):
        leg.interrupt = error
    is_stopped = leg.interrupt is not None or (was_cancelled and leg.is_given_back)
    if is_stopped and not leg.record.is_once:
        return leg.end(table.give_back)
    # What would have ended the process inline counts as if it had.
    why = error_line(error)
    message = "the job %r raised %s, which counts as a crash"
    logging.getLogger("cmdx").error(message, leg.record.id, why, exc_info=error)
    return leg.end(table.crash, why=why)


def is_for_caller(leg: Leg, error: BaseException) -> bool:
    """Tell whether an interrupt was not made by the work itself."""
    return isinstance(error, KeyboardInterrupt) or leg.is_caller_cancelled()


class Retries:
    """A block in which the retries of a job are announced as such."""

    def __init__(self, leg: Leg, task: Task[Any]) -> None:
        self.leg = leg
        self.task = task
        self.is_on = bool(job_retried.receivers)

    def __enter__(self) -> None:
        """Listen to the retries of this run."""
        if self.is_on:
            task_retried.connect(self.announce, sender=type(self.task))

    def __exit__(self, *_error: object) -> None:
        """Listen no longer."""
        if self.is_on:
            task_retried.disconnect(self.announce, sender=type(self.task))

    def announce(self, _sender: Any, *, task: Task[Any], **facts: Any) -> None:
        """Announce a retry of the job, if it is one of this run."""
        if task is not self.task:
            return
        record = self.leg.record
        announce(
            job_retried,
            record.task,
            record.module,
            job=self.leg.job,
            attempt=facts["attempt"],
            max_attempts=most_attempts(record, task),
            delay=facts["delay"],
            error=facts["error"],
        )


def most_attempts(record: JobRecord, task: Task[Any]) -> int:
    """Return how often ``work`` of a job may be called."""
    options = options_from(record.options)
    if options is not None and options.max_attempts is not None:
        return options.max_attempts
    limit: int = task._cmdx_.plan.retry.limit
    return limit + 1


# -- the timeout of an attempt ------------------------------------------------------


def limit_attempts(task: Any, leg: Leg, seconds: float) -> None:
    """Have attempts of *task* be timed; an asynchronous one fails when it is over."""
    work = task.work
    is_async = type(task)._cmdx_.plan.awaits
    leg.hangs_after = seconds + SLACK if is_async else seconds
    task.work = partial(await_in_time if is_async else call_timed, work, leg, seconds)


def hang_text(leg: Leg, seconds: float) -> str:
    """Return that an attempt takes longer than its timeout, why, and what to do."""
    record = leg.record
    why = (
        "it runs in a thread. Give what it waits for a timeout of its own; if it "
        "hangs, restart the worker."
    )
    if record.is_async:
        why = (
            "an `async def work`, this one or another, blocks the event loop, so that "
            "no asynchronous job goes on, or this one ignores that it was cancelled. "
            "Await what takes long, or call it in a thread with asyncio.to_thread."
        )
    return (
        f"the job {record.id!r} of {record.task} has been running for {seconds:.1f} s, "
        f"longer than its timeout of {leg.timeout:g} s, and cannot be ended: {why}"
    )


SLACK = 1.0
"""Seconds that an event loop has to end an attempt whose time is over."""


def call_timed(work: Any, leg: Leg, _seconds: float) -> Any:
    """Call ``work``, and note when it began."""
    with leg.attempt():
        return work()


async def await_in_time(work: Any, leg: Leg, seconds: float) -> Any:
    """Await ``work``; raise ``TimeoutError`` if it takes too long."""
    import asyncio
    import inspect

    scope = asyncio.timeout(seconds)
    try:
        with leg.attempt():
            async with scope:
                value = work()
                return await value if inspect.isawaitable(value) else value
    except TimeoutError as error:
        if not scope.expired():
            raise
        name = leg.record.task.rpartition(":")[2]
        message = f"an attempt of {name} took longer than {seconds:g} s"
        is_from_scope = isinstance(error.__cause__, asyncio.CancelledError)
        raise TimeoutError(message) from (None if is_from_scope else error)
