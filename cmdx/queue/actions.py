"""
What the calls of a queue do: each is a unit for the store, and what follows the commit.

A call and its twin for coroutines make the same ``Action``. Signals are sent after the
commit, by the second half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import attrs

from cmdx.exceptions import DefinitionError
from cmdx.queue import records, schedules, table
from cmdx.queue.enqueue import record_of_row, require_same, write_row
from cmdx.queue.errors import JobGone
from cmdx.queue.filters import filter_of, state_hint
from cmdx.queue.jobs import Job
from cmdx.queue.lanes import key_in_order
from cmdx.queue.records import lock_queue, peek_job, readable_records, update_jobs
from cmdx.queue.schedules import Schedule, ScheduleRecord
from cmdx.queue.signals import (
    announce,
    job_cancelled,
    job_enqueued,
    schedule_cancelled,
    schedule_created,
)
from cmdx.queue.table import JobState
from cmdx.queue.upkeep import place_arrivals, write_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from cmdx import Task
    from cmdx.queue.enqueue import Row
    from cmdx.queue.filters import JobFilters
    from cmdx.queue.queue import Queue
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

R = TypeVar("R")
U = TypeVar("U")
V = TypeVar("V")

PAGE = 500
"""How many jobs are read by one statement."""


@attrs.frozen
class Action(Generic[U, R]):
    """What a call does with the store, and with the value of that."""

    unit: Callable[[Statements], U]
    finish: Callable[[U], R]
    read_only: bool = False


# -- enqueuing ----------------------------------------------------------------------


def enqueuing(
    queue: Queue, row: Row, invocation: Task[V], *, may_exist: bool
) -> Action[JobRecord | None, Job[V]]:
    """Store a job, unless one has its id or its unique text."""

    def write(statements: Statements) -> JobRecord | None:
        return write_row(statements, row, may_exist=may_exist)

    def tell(found: JobRecord | None) -> Job[V]:
        if found is not None:
            return Job(queue, require_same(found, row, invocation, queue.tasks))
        return enqueued(queue, row)

    return Action(write, tell)


def enqueuing_many(queue: Queue, rows: Sequence[Row]) -> Action[None, list[Job[Any]]]:
    """Store many jobs, whose ids are new."""

    def write(statements: Statements) -> None:
        records.insert_jobs(statements, rows)

    return Action(write, lambda _: [enqueued(queue, row) for row in rows])


def enqueued(queue: Queue, row: Row) -> Job[Any]:
    """Return a job that was stored, and announce it."""
    job: Job[Any] = Job(queue, record_of_row(row))
    announce(job_enqueued, row["task"], row["module"], job=job)
    return job


def uncommitted(
    queue: Queue, found: JobRecord | None, row: Row, invocation: Task[V]
) -> Job[V]:
    """Return a job that was written in a transaction of the user's."""
    if found is not None:
        return Job(queue, require_same(found, row, invocation, queue.tasks))
    job: Job[V] = Job(queue, record_of_row(row))
    job._is_uncommitted = True
    return job


# -- looking ------------------------------------------------------------------------


def getting(queue: Queue, id: str) -> Action[JobRecord | None, Job[Any] | None]:  # noqa: A002 -- as users write it
    """Read a job by its id."""

    def read(statements: Statements) -> JobRecord | None:
        found = peek_job(statements, check_id(id))
        return found if found is not None and found.queue == queue.name else None

    def tell(found: JobRecord | None) -> Job[Any] | None:
        return None if found is None else Job(queue, found)

    return Action(read, tell, read_only=True)


def finding(
    queue: Queue, limit: int, filters: JobFilters
) -> Action[list[JobRecord], list[Job[Any]]]:
    """Read the jobs that match, the oldest first."""
    select = selecting(queue, filters, limit)

    def tell(found: list[JobRecord]) -> list[Job[Any]]:
        return [Job(queue, record) for record in found]

    return Action(select, tell, read_only=True)


def selecting(
    queue: Queue, filters: JobFilters, limit: int | None = None
) -> Callable[[Statements], list[JobRecord]]:
    """Return the unit that selects the jobs that match."""
    wanted = filter_of(queue.name, cast("dict[str, Any]", filters))
    sql = wanted.query()

    def select(statements: Statements) -> list[JobRecord]:
        found: list[JobRecord] = []
        after = -1
        while limit is None or len(found) < limit:
            values = {**wanted.values, "after": after, "page": PAGE}
            rows = statements.execute(sql, **values)
            found += filter(wanted.matches, readable_records(rows))
            if len(rows) < PAGE:
                break
            after = rows[-1][0]
        return found[:limit]

    return select


def counting(queue: Queue) -> Action[dict[JobState, int], dict[JobState, int]]:
    """Count the jobs in each state."""

    def count(statements: Statements) -> dict[JobState, int]:
        counts = dict.fromkeys(JobState, 0)
        for state, number in statements.execute(records.COUNTS, queue=queue.name):
            counts[table.public_state(state)] += number
        return counts

    return Action(count, lambda counts: counts, read_only=True)


# -- changing -----------------------------------------------------------------------

Which: TypeAlias = "list[str] | JobFilters"
"""The ids of jobs, or filters."""

Replayed: TypeAlias = "list[tuple[JobRecord, bool]]"
"""Jobs, and whether each of them runs again."""


def loading(
    queue: Queue, which: Which, *, of_lanes: bool = True
) -> Callable[[Statements], list[JobRecord]]:
    """
    Return the unit that loads jobs by their ids or by filters, to be changed.

    Args:
        queue: The queue.
        which: The ids, or the filters.
        of_lanes: Whether filters also select jobs of lanes.
    """
    ids = list(map(check_id, which)) if isinstance(which, list) else None
    select = selecting(queue, {} if isinstance(which, list) else which)

    def load(statements: Statements) -> list[JobRecord]:
        lock_queue(statements, queue.name)
        wanted = ids
        if wanted is None:
            selected = select(statements)
            wanted = [job.id for job in selected if of_lanes or job.lane is None]
        found = (records.load_job(statements, id_) for id_ in wanted)
        return [record for record in found if record and record.queue == queue.name]

    return load


def check_id(id: object) -> str:  # noqa: A002 -- as users write it
    """Return the id of a job; refuse anything else, such as the job."""
    if isinstance(id, str):
        return id
    message = f"a job is named by its id, such as job.id, got {id!r}."
    raise TypeError(message)


def cancelling(queue: Queue, which: Which) -> Action[list[JobRecord], int]:
    """Cancel jobs, and count those that had not ended."""
    load = loading(queue, which)

    def cancel(statements: Statements) -> list[JobRecord]:
        changed = []
        for record in load(statements):
            after = table.cancel(record, statements.now, queue.keep)
            if after is not None:
                write_changes(statements, [(record, after)])
                changed.append(after)
        return changed

    def tell(changed: list[JobRecord]) -> int:
        for record in filter(table.is_ended, changed):
            job: Job[Any] = Job(queue, record)
            announce(job_cancelled, record.task, record.module, job=job)
        return len(changed)

    return Action(cancel, tell)


def replaying(
    queue: Queue, which: Which, *, of_lanes: bool = False
) -> Action[Replayed, Replayed]:
    """Let jobs that have ended run again."""
    load = loading(queue, which, of_lanes=of_lanes)

    def replay(statements: Statements) -> Replayed:
        lock_queue(statements, queue.name)
        place_all(statements, queue.name)
        return [replay_one(statements, record) for record in load(statements)]

    def tell(replayed: Replayed) -> Replayed:
        for record, was_replayed in replayed:
            if was_replayed and job_enqueued.receivers:
                job: Job[Any] = Job(queue, record)
                announce(job_enqueued, record.task, record.module, job=job)
        return replayed

    return Action(replay, tell)


def place_all(statements: Statements, queue: str) -> None:
    """Give all jobs with a key their places, so that a replayed one comes last."""
    while statements.execute(records.ARRIVALS, queue=queue, limit=1):
        place_arrivals(statements, queue)


def replay_one(statements: Statements, record: JobRecord) -> tuple[JobRecord, bool]:
    """Replay a job; return it, or who has its unique text, and whether it was."""
    after = table.replay(record, statements.now)
    if after is None:
        return record, False
    if after.unique_held is not None:
        holder = records.load_unique(statements, record.queue, after.unique_held)
        if holder is not None and holder.sequence != record.sequence:
            if not table.has_lapsed(holder, statements.now):
                return holder, False
            statements.execute(records.FREE_UNIQUE, sequence=holder.sequence)
    if after.lane is not None:
        after = after._replace(key=key_in_order(after.key))
    update_jobs(statements, [(record, after)])
    return after, True


def replaying_one(queue: Queue, id: str) -> Action[Replayed, Job[Any]]:  # noqa: A002 -- as users write it
    """Let one job that has ended run again; refuse an id that the queue has not."""
    action = replaying(queue, [id])

    def replay(statements: Statements) -> Replayed:
        replayed = action.unit(statements)
        if not replayed:
            elsewhere = peek_job(statements, id)
            raise JobGone(id, queue=elsewhere and elsewhere.queue)
        return replayed

    def tell(replayed: Replayed) -> Job[Any]:
        ((record, _),) = action.finish(replayed)
        return Job(queue, record)

    return Action(replay, tell)


def count_replayed(replayed: Replayed) -> int:
    """Return how many jobs run again."""
    return sum(was_replayed for _, was_replayed in replayed)


def pruning(
    queue: Queue, state: JobState | str, until: datetime | float
) -> Action[int, int]:
    """Remove jobs that have ended."""
    if state not in table.ENDED_STATES:
        hint = state_hint(state)
        message = f"prune: state is done, dead or cancelled, got {state!r}{hint}"
        raise DefinitionError(message)
    select = selecting(queue, {"state": state, "until": until})

    def prune(statements: Statements) -> int:
        found = select(statements)
        keys: list[dict[str, Any]] = [
            {"sequence": job.sequence, "state": str(state)} for job in found
        ]
        statements.executemany(records.REMOVE, keys)
        return len(keys)

    return Action(prune, lambda count: count)


def pausing(queue: Queue, *, paused: bool) -> Action[None, None]:
    """Have workers claim no more jobs, or claim them again."""

    def write(statements: Statements) -> None:
        records.set_paused(statements, queue.name, paused=paused)

    return Action(write, lambda _: None)


def asking_paused(queue: Queue) -> Action[bool, bool]:
    """Read whether workers may not claim jobs."""

    def read(statements: Statements) -> bool:
        return records.is_paused(statements, queue.name)

    return Action(read, lambda paused: paused, read_only=True)


# -- schedules ----------------------------------------------------------------------


def scheduling(
    record: ScheduleRecord, *, replaces: bool
) -> Action[tuple[ScheduleRecord, bool], Schedule]:
    """Store a schedule, or find the same one."""

    def write(statements: Statements) -> tuple[ScheduleRecord, bool]:
        return schedules.write_schedule(statements, record, replaces=replaces)

    def tell(written: tuple[ScheduleRecord, bool]) -> Schedule:
        stored, is_new = written
        schedule = Schedule.of(stored)
        if is_new:
            announce(schedule_created, stored.task, stored.module, schedule=schedule)
        return schedule

    return Action(write, tell)


def listing_schedules(queue: Queue) -> Action[list[Schedule], list[Schedule]]:
    """Read all schedules."""

    def read(statements: Statements) -> list[Schedule]:
        rows = statements.execute(schedules.SELECT_ALL, queue=queue.name)
        return [Schedule.of(ScheduleRecord(*row)) for row in rows]

    return Action(read, lambda found: found, read_only=True)


def unscheduling(queue: Queue, id: str) -> Action[ScheduleRecord | None, bool]:  # noqa: A002 -- as users write it
    """Remove a schedule."""

    def remove(statements: Statements) -> ScheduleRecord | None:
        rows = statements.execute(schedules.LOAD, queue=queue.name, id=id)
        statements.execute(schedules.REMOVE, queue=queue.name, id=id)
        return ScheduleRecord(*rows[0]) if rows else None

    def tell(removed: ScheduleRecord | None) -> bool:
        if removed is None:
            return False
        schedule = Schedule.of(removed)
        announce(schedule_cancelled, removed.task, removed.module, schedule=schedule)
        return True

    return Action(remove, tell)
