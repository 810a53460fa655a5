"""
``Job``: what became of an invocation that was enqueued.

A job is what was read last; ``refresh`` reads it again, and ``wait`` waits for its end.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from cmdx import clock
from cmdx.declare.checks import finite_number, is_real
from cmdx.exceptions import DefinitionError
from cmdx.outcome import Attempts, Stop
from cmdx.pickling import stand_in_task
from cmdx.queue import table
from cmdx.queue.errors import (
    JobCancelled,
    JobCrashed,
    JobDropped,
    JobGone,
    JobIndeterminate,
    JobUnreadable,
)
from cmdx.queue.policy import job_policy, options_from
from cmdx.queue.records import peek_job
from cmdx.queue.waiting import StuckWarning, looking, why_not_ended
from cmdx.run.continuation import attempt_from
from cmdx.run.lifecycle import end_without_run
from cmdx.wire import WireError, load_invocation, load_result
from cmdx.wire.names import find_task

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cmdx import Result, RetryOptions, Task
    from cmdx.outcome import Attempt
    from cmdx.queue.legs import Leg
    from cmdx.queue.queue import Queue
    from cmdx.queue.table import JobRecord, JobState
    from cmdx.queue.waiting import Surroundings
    from cmdx.retry.policy import RetryPolicy
    from cmdx.stores import Statements

V = TypeVar("V")

LONGEST_WAIT = 1.0
"""Seconds after which a caller that waits looks again, even if nobody told it to."""

monotonic = clock.Clock.monotonic


class Progress(NamedTuple):
    """How far a job has come."""

    done: float
    """How much is done."""
    of: float | None = None
    """How much there is, or None."""
    note: str | None = None
    """What is being done, or None."""


class Job(Generic[V]):
    """A stored invocation in a queue; made by ``Queue.enqueue``."""

    def __init__(self, queue: Queue, record: JobRecord) -> None:
        self._queue = queue
        self._record = record
        self._is_uncommitted = False
        """Whether it was written in a transaction of the user's, and not seen since."""
        self._result: Result[V] | None = None

    @property
    def id(self) -> str:
        """A UUIDv7, or the id that the caller gave."""
        return self._record.id

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._record.queue

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._record.task

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs, as JSON."""
        inputs: dict[str, Any] = json.loads(self._record.inputs)
        return inputs

    @property
    def key(self) -> str | None:
        """Jobs with the same key run one after the other."""
        return self._record.key

    @property
    def priority(self) -> int:
        """Higher goes first; it does not count among jobs with a key."""
        return self._record.priority

    @property
    def state(self) -> JobState:
        """Where it stood when it was read."""
        return table.public_state(self._record.state)

    @property
    def due_at(self) -> float | None:
        """When it may run, in seconds since 1970; None if it has ended."""
        return None if table.is_ended(self._record) else self._record.due_at

    @property
    def created_at(self) -> float:
        """When it was enqueued, in seconds since 1970."""
        return self._record.created_at

    @property
    def retry_options(self) -> RetryOptions | None:
        """The retry options as the caller gave them; None without."""
        return options_from(self._record.retry)

    @property
    def policy(self) -> RetryPolicy:
        """What it is retried by: the rules of its class, and perhaps ``job``."""
        record = self._record
        cls = find_task(record.task, record.module, self._queue.tasks)
        return job_policy(cls, options_from(record.options))

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The calls of ``work`` so far; empty if the first one succeeded."""
        if self.result is not None:
            return self.result.attempts
        return suspended_attempts(self._record)

    @property
    def retries(self) -> int:
        """The number of the last attempt, counted from 0."""
        if self.result is not None:
            return self.result.retries
        return max(len(self.attempts) - 1, 0)

    @property
    def crashes(self) -> int:
        """How many processes have died while they ran it, one after the other."""
        return self._record.crashes

    @property
    def progress(self) -> Progress | None:
        """How far it has come, as ``cmdx.queue.progress`` said."""
        text = self._record.progress
        return None if text is None else Progress(*json.loads(text))

    @property
    def xid(self) -> str | None:
        """The correlation id of who enqueued it, which its run has as well."""
        return origin_of(self._record).get("xid")

    @property
    def cid(self) -> str | None:
        """The id of the chain that enqueued it."""
        return origin_of(self._record).get("cid")

    @property
    def traceparent(self) -> str | None:
        """The trace of who enqueued it, as W3C Trace Context writes it."""
        return origin_of(self._record).get("traceparent")

    @property
    def reason(self) -> str | None:
        """Why it failed for good, or was skipped."""
        return None if self.result is None else self.result.reason

    @property
    def result(self) -> Result[V] | None:
        """The result; None until it has ended."""
        if self._result is None and table.is_ended(self._record):
            self._result = result_of(self._record, self._queue.tasks)
        return self._result

    def refresh(self) -> Job[V]:
        """Read it again, and return it."""
        self._take(self._queue.store.transact(self._reading_unit(), read_only=True))
        return self

    async def arefresh(self) -> Job[V]:
        """Do what ``refresh`` does, without blocking the event loop."""
        store = self._queue.store
        self._take(await store.atransact(self._reading_unit(), read_only=True))
        return self

    def wait(self, timeout: float | None = None) -> Result[V]:
        """
        Wait until it has ended, and return its result.

        If the job cannot run before somebody does something, such as starting a worker,
        that is logged some seconds later.

        Args:
            timeout: The longest time to wait, in seconds; ``TimeoutError`` is raised
                then, and says what the job waits for. Without limit by default.
        """
        store, end = self._queue.store, end_of(timeout)
        warning = StuckWarning(occupies_worker=self._is_awaited_by_worker())
        while True:
            seen = store.version()
            self.refresh()
            if self.result is not None:
                return self.result
            seconds = end - monotonic()
            if seconds <= 0:
                raise TimeoutError(why_not_ended(self._record, self._look_around()))
            if warning.is_due:
                warning.look(self._record, self._look_around())
            store.wait(min(seconds, LONGEST_WAIT), seen)

    def __await__(self) -> Generator[Any, None, Result[V]]:
        """Wait until it has ended, without blocking the event loop."""
        return self._await_end().__await__()

    async def _await_end(self) -> Result[V]:
        store, warning = self._queue.store, StuckWarning()
        while True:
            seen = store.version()
            await self.arefresh()
            if self.result is not None:
                return self.result
            if warning.is_due:
                unit = looking(store, self._record)
                around = await store.atransact(unit, read_only=True)
                warning.look(self._record, around)
            await store.await_commit(LONGEST_WAIT, seen)

    def _look_around(self) -> Surroundings:
        store = self._queue.store
        return store.transact(looking(store, self._record), read_only=True)

    def _is_awaited_by_worker(self) -> bool:
        """Tell whether a worker of its queue, which could run it, waits for it."""
        leg = current_leg.get()
        if leg is None:
            return False
        of_leg = leg.queue.store, leg.queue.name
        return of_leg == (self._queue.store, self._record.queue)

    def _reading_unit(self) -> Callable[[Statements], JobRecord | None]:
        id_ = self._record.id
        return lambda statements: peek_job(statements, id_)

    def _take(self, record: JobRecord | None) -> None:
        """Take what was read."""
        if record is None:
            raise JobGone(self.id, is_uncommitted=self._is_uncommitted)
        if record != self._record:
            self._result = None
        self._record, self._is_uncommitted = record, False

    def __repr__(self) -> str:
        """Show the id, the task and the state."""
        return f"<Job {self.id} of {self.task}: {self.state}>"


def end_of(timeout: float | None) -> float:
    """Return the moment of the real clock when *timeout* is over."""
    if timeout is not None and not is_real(timeout):
        message = f"wait: timeout must be a number of seconds, got {timeout!r}."
        raise DefinitionError(message)
    return clock.Clock.monotonic() + (clock.FOREVER if timeout is None else timeout)


def origin_of(record: JobRecord) -> dict[str, str]:
    """Return what a job carries of who enqueued it."""
    return json.loads(record.origin) if record.origin else {}


def suspended_attempts(record: JobRecord) -> tuple[Attempt, ...]:
    """Return the attempts of the legs so far."""
    if record.suspension is None:
        return Attempts()
    return Attempts(map(attempt_from, json.loads(record.suspension)["attempts"]))


# -- results ------------------------------------------------------------------------


def result_of(record: JobRecord, tasks: Any) -> Result[Any]:
    """Return the result of a job that has ended."""
    if record.result is None:
        return result_without_outcome(record, tasks)
    result = load_result(json.loads(record.result), tasks=tasks)
    result._record.raises_fault = True
    return result


def result_without_outcome(record: JobRecord, tasks: Any) -> Result[Any]:
    """Return the failed result of a job that ended without one."""
    result = end_without_run(invocation_or_stand_in(record, tasks), error_of(record))
    result._record.is_indeterminate = record.error == "JobIndeterminate"
    if record.error == "JobCancelled":
        result._record.stopped = Stop.CANCELLED
    attempts = suspended_attempts(record)
    result._record.attempts = attempts
    result._record.run.attempt = max(len(attempts) - 1, 0)
    return result


def invocation_or_stand_in(record: JobRecord, tasks: Any) -> Task[Any]:
    """Return the invocation of a job, or what stands for a class that is gone."""
    try:
        return read_invocation(record, tasks)
    except (WireError, ValueError, RecursionError):
        name = record.task.rpartition(":")[2]
        name = name if name.isidentifier() else "Task"
        task: Task[Any] = stand_in_task(__name__, name, "Task")()
        return task


def read_invocation(record: JobRecord, tasks: Any) -> Task[Any]:
    """Return the invocation of a job; raise ``WireError`` or ``ValueError``."""
    data = {
        "task": record.task,
        "module": record.module,
        "inputs": json.loads(record.inputs),
    }
    return load_invocation(data, tasks=tasks)


def error_of(record: JobRecord) -> Exception:
    """Return why a job ended without a result."""
    if record.error == "JobCrashed":
        return JobCrashed(record.id, record.crashes, record.reason)
    if record.error == "JobIndeterminate":
        return JobIndeterminate(record.id)
    if record.error == "JobUnreadable":
        return JobUnreadable(
            record.id, record.reason or "it was edited. Repair the row."
        )
    if record.error == "JobDropped":
        return JobDropped(record.id, record.reason or "for an unknown reason")
    return JobCancelled(record.id)


# -- inside of work -----------------------------------------------------------------

current_leg: ContextVar[Leg | None] = ContextVar("cmdx.queue.leg", default=None)


def current_job() -> Job[Any] | None:
    """
    Return the job that is being run; None outside of one.

    Example::

        def work(self):
            self.logger.info("export", job=current_job().id)
    """
    leg = current_leg.get()
    return None if leg is None else leg.job


def progress(done: float, of: float | None = None, note: str | None = None) -> None:
    """
    Note how far the running job has come, for ``Job.progress``.

    It may be called often: a worker stores it a few times a second, and ``drain`` when
    the job waits or ends. Outside of a job it does nothing, so that the task can also
    run inline; wrong arguments are refused there, too.

    Args:
        done: How much is done.
        of: How much there is to do.
        note: What is being done.
    """
    done = check_amount("done", done)
    of = None if of is None else check_amount("of", of)
    if note is not None and not isinstance(note, str):
        message = f"progress: note must be a text, got {note!r}."
        raise DefinitionError(message)
    leg = current_leg.get()
    if leg is not None:
        leg.progress = json.dumps([done, of, note])


def check_amount(name: str, value: object) -> float:
    """Return how much is done, or to do; refuse what is no number."""
    number = finite_number(value)
    if number is None:
        message = f"progress: {name} must be a finite number, got {value!r}."
        raise DefinitionError(message)
    return number
