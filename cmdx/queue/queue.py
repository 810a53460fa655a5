"""
``Queue``: what people call.

1. an invocation becomes a job                        ``cmdx.queue.enqueue``
2. a worker claims it and runs a leg of it            ``cmdx.queue.worker``
3. its end, or its next attempt, is written           ``cmdx.queue.clerk``
4. somebody looks at it, waits for it or replays it   ``cmdx.queue.jobs``

What may become of a job is decided by pure functions, in ``cmdx.queue.table``. What a
call does with the store, in a *unit* that is run inside one transaction, is in
``cmdx.queue.actions``; so a call and its twin for coroutines share it. Other code that
both share is a coroutine that is told whether it ``awaits``: in a plain call it never
suspends, and ``drive`` runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from cmdx.declare.checks import (
    check_count,
    check_kinds,
    check_longest_pause,
    check_names,
    check_seconds,
    refuse_unknown_keywords,
)
from cmdx.queue import actions, schedules
from cmdx.queue.checks import (
    QUEUE_KINDS,
    QUEUE_WORDS,
    SCHEDULE_WORDS,
    WORKER_WORDS,
    check_many,
    check_schedule_id,
    require_filter,
)
from cmdx.queue.enqueue import (
    OTHER_WORDS_FOR_MANY,
    EnqueueManyKeywords,
    check_text,
    has_identity,
    new_row,
)
from cmdx.queue.filters import naming_task, with_dead
from cmdx.queue.outbox import outbox_of, write_in_outbox
from cmdx.queue.policy import check_retry
from cmdx.queue.schedules import ScheduleKeywords
from cmdx.run.lifecycle import drive
from cmdx.stores import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from os import PathLike
    from typing import Unpack

    from cmdx import RetryOptions, Task
    from cmdx.queue.actions import Action
    from cmdx.queue.enqueue import EnqueueKeywords, Row
    from cmdx.queue.filters import JobFilters
    from cmdx.queue.jobs import Job
    from cmdx.queue.schedules import Schedule
    from cmdx.queue.table import JobState
    from cmdx.queue.worker import Worker
    from cmdx.stores import Store

R = TypeVar("R")
V = TypeVar("V")


class Queue:
    """
    Jobs that are run later, by workers, and survive a restart.

    Example::

        queue = Queue("app.db")
        job = queue.enqueue(ChargeCard(order_id=7), after=60)
        receipt = job.wait(90).value

    Args:
        store: A store, the path of a SQLite database, or the DSN of a PostgreSQL one.
        name: The name of the queue; a job belongs to the queue that enqueued it.
        strict: Whether all jobs run one after the other, in the order they were
            enqueued, whatever their keys and priorities.
        longest_pause: A pause before a retry that is longer than this many seconds
            frees the worker.
        keep: The seconds that jobs are kept after they have succeeded or were
            cancelled. Those that failed are kept until they are replayed or pruned.
        retry: The retry options of jobs whose class has no policy.
        tasks: Packages and modules that may be imported to find the tasks of jobs.
    """

    @refuse_unknown_keywords(QUEUE_WORDS)
    def __init__(  # noqa: PLR0913 -- by keyword
        self,
        store: Store | str | PathLike[str],
        name: str = "default",
        *,
        strict: bool = False,
        longest_pause: float = 1.0,
        keep: float = 3600.0,
        retry: RetryOptions | None = None,
        tasks: Sequence[str] = (),
    ) -> None:
        self.name = check_text("name", name, where="Queue")
        check_kinds("Queue", {"strict": strict, "tasks": tasks}, QUEUE_KINDS)
        self.strict = strict
        self.longest_pause = check_longest_pause("Queue", longest_pause)
        self.keep = check_seconds("Queue", "keep", keep)
        self.retry = check_retry(retry)
        self.tasks = (tasks,) if isinstance(tasks, str) else tuple(tasks)
        self.store = connect(store)

    def __repr__(self) -> str:
        """Show the store and the name."""
        return f"Queue({self.store.name!r}, {self.name!r})"

    # -- enqueuing ----------------------------------------------------------------

    def enqueue(
        self, invocation: Task[V], /, **options: Unpack[EnqueueKeywords]
    ) -> Job[V]:
        """
        Store an invocation, to be run by a worker.

        Inputs are checked now; nothing is stored if anything is wrong.

        Args:
            invocation: The task with its inputs, such as ``ChargeCard(order_id=7)``.
            after: The seconds to wait first.
            at: When to run it, with a time zone; what is past means now.
            key: Jobs with the same key run one after the other. By default what
                ``@queued`` says.
            priority: Higher goes first; 0 unless ``@queued`` says otherwise.
            retry: The options of the rule ``job``, which is asked after those of the
                class.
            id: The id of the job. A job that has it already is returned; if it has
                other inputs, ``JobConflict`` is raised.
            unique: A text. A job of this queue that has it already is returned.
            until: Until when the job has its unique text: ``"started"``, ``"ended"``,
                which is the default, or a number of seconds.
            within: Your own connection to the database of the queue. The job is stored
                in its transaction, and is there if you commit.
        """
        row = self._new_row(invocation, **options)
        within, may_exist = options.get("within"), has_identity(options)
        if within is not None:
            outbox = drive(outbox_of(within, self.store, awaits=False))
            found = drive(write_in_outbox(outbox, row, may_exist=may_exist))
            return actions.uncommitted(self, found, row, invocation)
        return self._do(actions.enqueuing(self, row, invocation, may_exist=may_exist))

    async def aenqueue(
        self, invocation: Task[V], /, **options: Unpack[EnqueueKeywords]
    ) -> Job[V]:
        """
        Do what ``enqueue`` does, without blocking the event loop.

        *within* may be an asynchronous connection.
        """
        row = self._new_row(invocation, **options)
        within, may_exist = options.get("within"), has_identity(options)
        if within is not None:
            outbox = await outbox_of(within, self.store, awaits=True)
            found = await write_in_outbox(outbox, row, may_exist=may_exist)
            return actions.uncommitted(self, found, row, invocation)
        return await self._ado(
            actions.enqueuing(self, row, invocation, may_exist=may_exist)
        )

    def enqueue_many(
        self, invocations: Iterable[Task[V]], **options: Unpack[EnqueueManyKeywords]
    ) -> list[Job[V]]:
        """
        Store many invocations in one transaction.

        Args:
            invocations: The tasks with their inputs.
            options: *after*, *at*, *priority* and *retry*, as for ``enqueue``.
        """
        rows = self._new_rows(invocations, options)
        return self._do(actions.enqueuing_many(self, rows))

    async def aenqueue_many(
        self, invocations: Iterable[Task[V]], **options: Unpack[EnqueueManyKeywords]
    ) -> list[Job[V]]:
        """Do what ``enqueue_many`` does, without blocking the event loop."""
        rows = self._new_rows(invocations, options)
        return await self._ado(actions.enqueuing_many(self, rows))

    def _new_rows(
        self, invocations: Iterable[Task[Any]], options: EnqueueManyKeywords
    ) -> list[Row]:
        known = EnqueueManyKeywords.__annotations__
        check_names("enqueue_many", options, known, OTHER_WORDS_FOR_MANY)
        rows: list[Row] = []
        for task in check_many(invocations):
            try:
                rows.append(self._new_row(task, **options))
            except Exception as error:
                place = f"number {len(rows)} of the invocations, counted from 0"
                error.add_note(f"enqueue_many: it is {place}.")
                raise
        return rows

    def _new_row(self, invocation: Task[Any], **options: Any) -> Row:
        return new_row(self, invocation, options, self.store.now())

    # -- looking ------------------------------------------------------------------

    def get(self, id: str) -> Job[Any] | None:  # noqa: A002 -- as users write it
        """Return a job by its id; None if there is none."""
        return self._do(actions.getting(self, id))

    async def aget(self, id: str) -> Job[Any] | None:  # noqa: A002 -- as users write it
        """Do what ``get`` does, without blocking the event loop."""
        return await self._ado(actions.getting(self, id))

    def find(
        self, *, limit: int = 100, **filters: Unpack[JobFilters]
    ) -> list[Job[Any]]:
        """
        Return the oldest jobs that match all filters.

        Args:
            limit: How many at the most.
            state: A ``JobState``, or its name.
            task: The class, its name, or the end of its name after a colon or a dot,
                such as ``"ChargeCard"``.
            inputs: Some of the inputs; only together with *task*.
            key: The key.
            error: The class of the error that ended them, or its name.
            since: Those enqueued at this time or later: a datetime with a time zone,
                or seconds since 1970.
            until: Those enqueued before this time.
        """
        check_count("find", "limit", limit, least=0)
        return self._do(actions.finding(self, limit, self._with_full_name(filters)))

    async def afind(
        self, *, limit: int = 100, **filters: Unpack[JobFilters]
    ) -> list[Job[Any]]:
        """Do what ``find`` does, without blocking the event loop."""
        check_count("find", "limit", limit, least=0)
        filters = await self._awith_full_name(filters)
        return await self._ado(actions.finding(self, limit, filters))

    def _with_full_name(self, filters: JobFilters) -> JobFilters:
        task = filters.get("task")
        if not isinstance(task, str):
            return filters
        unit = naming_task(self.name, task)
        return {**filters, "task": self.store.transact(unit, read_only=True)}

    async def _awith_full_name(self, filters: JobFilters) -> JobFilters:
        task = filters.get("task")
        if not isinstance(task, str):
            return filters
        unit = naming_task(self.name, task)
        return {**filters, "task": await self.store.atransact(unit, read_only=True)}

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs there are in each state."""
        return self._do(actions.counting(self))

    async def acounts(self) -> dict[JobState, int]:
        """Do what ``counts`` does, without blocking the event loop."""
        return await self._ado(actions.counting(self))

    # -- cancelling, replaying, removing ------------------------------------------

    def cancel(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """
        Cancel a job; return False if it has ended, or there is none.

        A job that waits is cancelled at once. One that runs is asked to end: async work
        is cancelled, and other work finds that ``cmdx.remaining()`` is 0. If it
        succeeds all the same, it is done.
        """
        return self._do(actions.cancelling(self, [id])) > 0

    async def acancel(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """Do what ``cancel`` does, without blocking the event loop."""
        return await self._ado(actions.cancelling(self, [id])) > 0

    def cancel_all(
        self, *, everything: bool = False, **filters: Unpack[JobFilters]
    ) -> int:
        """
        Cancel all jobs that match, and return how many.

        They are chosen by *state*, *task*, *inputs*, *key*, *error*, *since* and
        *until*, as for ``find``, or *everything* is cancelled.
        """
        require_filter("cancel_all", filters, everything=everything)
        return self._do(actions.cancelling(self, self._with_full_name(filters)))

    async def acancel_all(
        self, *, everything: bool = False, **filters: Unpack[JobFilters]
    ) -> int:
        """Do what ``cancel_all`` does, without blocking the event loop."""
        require_filter("cancel_all", filters, everything=everything)
        filters = await self._awith_full_name(filters)
        return await self._ado(actions.cancelling(self, filters))

    def replay(self, id: str) -> Job[Any]:  # noqa: A002 -- as users write it
        """
        Let a job that has ended run again, and return it.

        It starts with its first attempt, and goes behind the other jobs of its key. A
        job that has not ended is returned as it is. If another job has its unique text
        by now, that one is returned.
        """
        return self._do(actions.replaying_one(self, id))

    async def areplay(self, id: str) -> Job[Any]:  # noqa: A002 -- as users write it
        """Do what ``replay`` does, without blocking the event loop."""
        return await self._ado(actions.replaying_one(self, id))

    def replay_all(
        self, *, everything: bool = False, **filters: Unpack[JobFilters]
    ) -> int:
        """
        Let all dead jobs that match run again, and return how many.

        They are chosen by *task*, *inputs*, *key*, *error*, *since* and *until*, as for
        ``find``, or *everything* that is dead is replayed. With *state* they are those
        in another state. Deliveries are left out: ``Courier.replay_all`` is for them.
        """
        require_filter("replay_all", filters, everything=everything)
        dead = with_dead(self._with_full_name(filters))
        return actions.count_replayed(self._do(actions.replaying(self, dead)))

    async def areplay_all(
        self, *, everything: bool = False, **filters: Unpack[JobFilters]
    ) -> int:
        """Do what ``replay_all`` does, without blocking the event loop."""
        require_filter("replay_all", filters, everything=everything)
        dead = with_dead(await self._awith_full_name(filters))
        return actions.count_replayed(await self._ado(actions.replaying(self, dead)))

    def prune(self, state: JobState | str, until: datetime | float) -> int:
        """
        Remove jobs that have ended, and return how many.

        Args:
            state: ``"done"``, ``"dead"`` or ``"cancelled"``.
            until: Those that were enqueued before this time.
        """
        return self._do(actions.pruning(self, state, until))

    async def aprune(self, state: JobState | str, until: datetime | float) -> int:
        """Do what ``prune`` does, without blocking the event loop."""
        return await self._ado(actions.pruning(self, state, until))

    # -- pausing ------------------------------------------------------------------

    def pause(self) -> None:
        """Have workers claim no more jobs; schedules go on."""
        self._do(actions.pausing(self, paused=True))

    async def apause(self) -> None:
        """Do what ``pause`` does, without blocking the event loop."""
        await self._ado(actions.pausing(self, paused=True))

    def resume(self) -> None:
        """Have workers claim jobs again."""
        self._do(actions.pausing(self, paused=False))

    async def aresume(self) -> None:
        """Do what ``resume`` does, without blocking the event loop."""
        await self._ado(actions.pausing(self, paused=False))

    @property
    def paused(self) -> bool:
        """Whether workers may not claim jobs."""
        return self._do(actions.asking_paused(self))

    async def apaused(self) -> bool:
        """Return what ``paused`` is, without blocking the event loop."""
        return await self._ado(actions.asking_paused(self))

    # -- schedules ----------------------------------------------------------------

    def schedule(
        self, invocation: Task[Any], /, **options: Unpack[ScheduleKeywords]
    ) -> Schedule:
        """
        Enqueue a task again and again.

        Args:
            invocation: The task with its inputs.
            every: The seconds from the end of a run to the next; at most 30 days.
            cron: An expression of cron such as ``"0 9 * * MON-FRI"``, or ``"@daily"``.
            zone: The time zone of *cron*; ``"UTC"`` by default.
            missed: What to do if nobody was there in time: ``"once"``, the default,
                runs one job for all that was missed, ``"skip"`` none.
            retry: The retry options of its jobs.
            id: The id of the schedule. The same id again replaces it; without one, a
                schedule of the same task, inputs and times is left as it is.
        """
        return self._do(self._scheduling(invocation, options))

    async def aschedule(
        self, invocation: Task[Any], /, **options: Unpack[ScheduleKeywords]
    ) -> Schedule:
        """Do what ``schedule`` does, without blocking the event loop."""
        return await self._ado(self._scheduling(invocation, options))

    def schedules(self) -> list[Schedule]:
        """Return all schedules of the queue, the oldest first."""
        return self._do(actions.listing_schedules(self))

    async def aschedules(self) -> list[Schedule]:
        """Do what ``schedules`` does, without blocking the event loop."""
        return await self._ado(actions.listing_schedules(self))

    def unschedule(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """Remove a schedule; return False if there is none. Its jobs stay."""
        return self._do(actions.unscheduling(self, check_schedule_id(id)))

    async def aunschedule(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """Do what ``unschedule`` does, without blocking the event loop."""
        return await self._ado(actions.unscheduling(self, check_schedule_id(id)))

    def _scheduling(
        self, invocation: Task[Any], options: ScheduleKeywords
    ) -> Action[Any, Schedule]:
        check_names(
            "schedule", options, ScheduleKeywords.__annotations__, SCHEDULE_WORDS
        )
        given = {name: value for name, value in options.items() if value is not None}
        row = self._new_row(invocation, retry=given.pop("retry", None))
        record = schedules.new_record(row, **given)  # type: ignore[arg-type]
        return actions.scheduling(record, replaces="id" in given)

    # -- running ------------------------------------------------------------------

    @refuse_unknown_keywords(WORKER_WORDS)
    def worker(
        self,
        threads: int = 1,
        *,
        coroutines: int = 100,
        batch: int = 50,
        grace: float = 25.0,
    ) -> Worker:
        """
        Return a worker of this queue; use it in a ``with`` block, or call ``run()``.

        Args:
            threads: How many plain tasks run at the same time.
            coroutines: How many asynchronous tasks run at the same time.
            batch: How many jobs are claimed together at the most.
            grace: The seconds that running jobs have to end when the worker stops.
        """
        from cmdx.queue.worker import Worker

        return Worker(self, threads, coroutines=coroutines, batch=batch, grace=grace)

    def drain(self, ahead: float = 0.0) -> int:
        """
        Run here all jobs that are due, and return how many legs were run.

        Schedules, and what jobs enqueue, are included. In a block of
        ``cmdx.testing.instant()`` the time moves on by *ahead* seconds.

        Args:
            ahead: Also run what becomes due in so many seconds.
        """
        from cmdx.queue.drain import drain

        return drive(drain(self, ahead, awaits=False))

    async def adrain(self, ahead: float = 0.0) -> int:
        """Do what ``drain`` does, and await what has to be awaited."""
        from cmdx.queue.drain import drain

        return await drain(self, ahead, awaits=True)

    # -- actions ------------------------------------------------------------------

    def _do(self, action: Action[Any, R]) -> R:
        value = self.store.transact(action.unit, read_only=action.read_only)
        return action.finish(value)

    async def _ado(self, action: Action[Any, R]) -> R:
        value = await self.store.atransact(action.unit, read_only=action.read_only)
        return action.finish(value)
