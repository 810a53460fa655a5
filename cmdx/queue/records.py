"""Reading and writing the records of jobs, inside a transaction of a store."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import cache
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cmdx.queue import table
from cmdx.queue.table import ARRIVING, LANES, JobRecord, JobState
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cmdx.stores import Statements

Change: TypeAlias = tuple[JobRecord, JobRecord]
"""A job as it is stored, and what an event has made of it."""

COLUMNS = JobRecord._fields
LISTED = ", ".join(COLUMNS)

NEW_COLUMNS = (
    "id", "queue", "state", "rank", "due_at", "priority", "key", "task", "module",
    "inputs", "retry", "options", "is_async", "is_once", "timing", "unique_text",
    "unique_until", "unique_held", "schedule", "origin", "created_at", "lane",
    "lane_facts",
)  # fmt: skip
"""What a new job has; all else is empty or zero."""

NEW_LISTED = ", ".join(NEW_COLUMNS)
NEW_BOUND = ", ".join(f":{name}" for name in NEW_COLUMNS)

INSERT = f"insert into cmdx_job ({NEW_LISTED}) values ({NEW_BOUND})"  # noqa: S608 -- names of columns
INSERT_UNLESS_THERE = f"{INSERT} on conflict do nothing"
SELECT = f"select {LISTED} from cmdx_job"  # noqa: S608 -- names of columns
PEEK = f"{SELECT} where id = :id"
LOAD = f"{PEEK} for update"
PEEK_UNIQUE = f"{SELECT} where queue = :queue and unique_held = :text"
LOAD_UNIQUE = f"{PEEK_UNIQUE} for update"

CLAIMABLE = """
    queue = :queue and state = 'ready' and rank = :rank and due_at <= :now
"""
FIRST_DUE = "order by due_at, sequence limit :limit for update skip locked"
SELECT_DUE = f"{SELECT} where {CLAIMABLE} {FIRST_DUE}"
SELECT_UNCRASHED = f"{SELECT} where {CLAIMABLE} and crashes = 0 {FIRST_DUE}"
BETWEEN_LEGS = "(suspension is not null or unread_since is not null)"
FROM_READY = "from cmdx_job where queue = :queue and state = 'ready'"
RANK_ABOVE = f"select rank {FROM_READY} and rank < {LANES} and rank >"
OF_RANK = f"{FROM_READY} and rank = ranks.rank"
NEXT_OF_RANK = f"{OF_RANK} and due_at > :now order by due_at limit 1"
RANKS = f"""
    with recursive ranks (rank) as (
        select ({RANK_ABOVE} :above order by rank limit 1)
        union all
        select ({RANK_ABOVE} ranks.rank order by rank limit 1)
        from ranks where rank is not null
    )
    select rank,
    (select 1 {OF_RANK} and due_at <= :now limit 1),
    (select due_at {NEXT_OF_RANK}),
    (select case when {BETWEEN_LEGS} or timing = 'at' then 0
     when timing is null then due_at else created_at end {NEXT_OF_RANK})
    from ranks where rank is not null limit :limit
"""  # noqa: S608 -- constants
"""Goes from rank to rank by the index, so that it reads none of the other jobs. The
recursion ends at the limit: both databases compute its rows when they are asked for."""
DELAYED = """
    select task, module, count(*) from (
        select task, module, timing from cmdx_job
        where queue = :queue and state = 'ready' and due_at <= :now limit 1000
    ) as due
    where timing is not null group by task, module
"""
START = """
    update cmdx_job set state = 'running', owner = :owner, started_at = :now
    where sequence = :sequence
"""
FREE_UNIQUE = "update cmdx_job set unique_held = null where sequence = :sequence"
OWNED = """
    select sequence, cancels, unique_held, progress from cmdx_job
    where queue = :queue and state = 'running' and owner = :owner for update
"""
RUNNING_OF = f"""
    {SELECT} where queue = :queue and state = 'running' and owner = :owner for update
"""
CANCELS_OF = """
    select sequence from cmdx_job
    where queue = :queue and state = 'running' and owner = :owner and cancels = 1
"""
PEEK_ARRIVALS = f"""
    select sequence, key from cmdx_job where queue = :queue and state = '{ARRIVING}'
    order by sequence limit :limit
"""  # noqa: S608 -- a constant
ARRIVALS = f"""
    {SELECT} where queue = :queue and state = '{ARRIVING}'
    order by sequence limit :limit for update skip locked
"""
HEAD = """
    select 1 from cmdx_job where queue = :queue and key = :key
    and (state = 'ready' or state = 'running')
"""
NEXT_OF_KEY = f"""
    {SELECT} where queue = :queue and key = :key and state = 'held'
    order by position limit 1 for update
"""
REMOVE_ENDED = """
    delete from cmdx_job where sequence in (
        select sequence from cmdx_job
        where queue = :queue and state = :state and rank = 0 and due_at <= :now
        limit :limit
    )
"""
REMOVE = "delete from cmdx_job where sequence = :sequence and state = :state"
REMOVE_PAST_KEEPING = """
    delete from cmdx_job where sequence = :sequence
    and state in ('done', 'cancelled') and due_at <= :now
"""
"""Removes a job of which ``table.is_past_keeping``, unless it is replayed meanwhile."""
COUNTS = """
    select state, count(*) from cmdx_job where queue = :queue group by state
"""
NOTE_PROGRESS = """
    update cmdx_job set progress = :progress
    where sequence = :sequence and owner = :owner and state = 'running'
"""

STATES = {ARRIVING, *JobState}

NO_RANK = -(2**40)
"""Below every rank."""

MOST_RANKS = 8
"""How many ranks one statement reads. The next one begins with the last level, which
may have another rank. A level has two, unless somebody has edited them, so three levels
are read whole at least."""


def insert_job(statements: Statements, values: Mapping[str, Any]) -> None:
    """Store a new job, whose id is new."""
    statements.execute(INSERT, **values)


def insert_jobs(statements: Statements, rows: Iterable[Mapping[str, Any]]) -> None:
    """Store new jobs, whose ids are new."""
    statements.executemany(INSERT, rows)


def insert_unless_there(statements: Statements, values: Mapping[str, Any]) -> bool:
    """Store a new job, unless one has its id or its unique text; tell whether."""
    return statements.change(INSERT_UNLESS_THERE, **values) > 0


def peek_job(statements: Statements, id: str) -> JobRecord | None:  # noqa: A002 -- as users write it
    """Return a job, which others may be changing."""
    return first_record(statements.execute(PEEK, id=id))


def load_job(statements: Statements, id: str) -> JobRecord | None:  # noqa: A002 -- as users write it
    """Return a job and keep others from changing it."""
    return first_record(statements.execute(LOAD, id=id))


def load_unique(statements: Statements, queue: str, text: str) -> JobRecord | None:
    """Return the job that has a unique text, and keep others from changing it."""
    return first_record(statements.execute(LOAD_UNIQUE, queue=queue, text=text))


def update_jobs(statements: Statements, changes: Iterable[Change]) -> None:
    """Store what events have made of jobs: the columns that have changed."""
    rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for before, after in changes:
        values = {
            name: new
            for name, old, new in zip(COLUMNS, before, after, strict=True)
            if new is not old
        }
        if "state" in values:
            values["state"] = str(after.state)
        columns = tuple(values)
        values["sequence"] = before.sequence
        rows.setdefault(columns, []).append(values)
    for columns, some in rows.items():
        if columns:
            statements.executemany(update_of(columns), some)


@cache
def update_of(columns: tuple[str, ...]) -> str:
    """Return the statement that stores new values of some columns of a job."""
    assigned = ", ".join(f"{name} = :{name}" for name in columns)
    return f"update cmdx_job set {assigned} where sequence = :sequence"  # noqa: S608 -- names of columns


def start_jobs(statements: Statements, records: Sequence[JobRecord]) -> None:
    """Store that a worker runs jobs, as ``table.start`` says."""
    statements.executemany(
        START,
        [
            {"owner": job.owner, "now": job.started_at, "sequence": job.sequence}
            for job in records
        ],
    )
    freed = [job for job in records if job.unique_text and not job.unique_held]
    statements.executemany(FREE_UNIQUE, [{"sequence": job.sequence} for job in freed])


def readable_records(rows: Iterable[tuple[Any, ...]]) -> Iterator[JobRecord]:
    """Yield the records in rows, without those that somebody has edited."""
    for row in rows:
        with suppress(StoreError):
            yield record_of(row)


def first_record(rows: Sequence[tuple[Any, ...]]) -> JobRecord | None:
    """Return the record in the first row, None if there is none."""
    return record_of(rows[0]) if rows else None


def record_of(row: tuple[Any, ...]) -> JobRecord:
    """Return the record in a row."""
    record = JobRecord(*row)
    try:
        if record.state not in STATES:
            JobState(record.state)  # which says what is wrong
        # Whether the numbers are numbers: a SQLite file takes anything.
        math.fsum((record.due_at, record.priority, record.crashes, record.created_at))
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"the stored job {record.id!r} cannot be read: {error}",
            "Somebody has edited the table cmdx_job: restore or delete the row",
        ) from None
    return record


class WaitingRank(NamedTuple):
    """The jobs of a queue that wait by one rank."""

    rank: int
    has_due: int | None
    """Whether any may be run now."""
    next_due: float | None
    """When the first of the others may."""
    stored_by: float | None
    """A moment by which that one was stored; 0 if none is known. If it is to come, the
    clock was set back, see ``clerk.next_due_of``. A job that was not enqueued for later
    was due when it was stored."""

    @property
    def level(self) -> int:
        """The level of the rank."""
        return table.level_of(self.rank)

    @property
    def is_async(self) -> bool:
        """Whether the jobs are asynchronous."""
        return table.is_async_rank(self.rank)


def waiting_ranks(
    statements: Statements, queue: str, above: int = NO_RANK
) -> list[WaitingRank]:
    """Return the first ranks above one by which jobs wait, in their order."""
    rows = statements.execute(RANKS, queue=queue, above=above, limit=MOST_RANKS)
    return sorted(starmap(WaitingRank, rows))


# -- queues and workers -------------------------------------------------------------

ADD_QUEUE = """
    insert into cmdx_queue (name, is_paused, positions) values (:queue, 0, 0)
    on conflict do nothing
"""
PAUSED = "select is_paused from cmdx_queue where name = :queue"
SEE = "update cmdx_queue set seen_at = :now where name = :queue"
LOCK_QUEUE = "select positions from cmdx_queue where name = :queue for update"
SET_POSITIONS = "update cmdx_queue set positions = :positions where name = :queue"
SET_PAUSED = "update cmdx_queue set is_paused = :paused where name = :queue"

# What waits too long if the clock was set back, from :seen to :now.
NEW_JOBS = f"""
    update cmdx_job set due_at = due_at - (created_at - :now), created_at = :now
    where queue = :queue and created_at > :now and not {BETWEEN_LEGS}
    and state in ('ready', 'held', 'arriving') and (timing is null or timing <> 'at')
"""  # noqa: S608 -- a constant
REPLAYED_JOBS = f"""
    update cmdx_job set due_at = :now
    where queue = :queue and due_at > :now and timing is null and not {BETWEEN_LEGS}
    and lane is null and state in ('ready', 'held', 'arriving')
"""  # noqa: S608 -- a constant
PAUSES = f"""
    update cmdx_job set due_at = due_at - (:seen - :now)
    where queue = :queue and state = 'ready' and due_at > :now and {BETWEEN_LEGS}
"""  # noqa: S608 -- a constant
# No interval and no lease ends later than this, unless the clock was set back.
INTERVALS = """
    update cmdx_schedule set due_at = :now + every
    where queue = :queue and every is not null and due_at > :now + every + :slack
"""
LEASES = """
    update cmdx_worker set lease = :now + :lease
    where queue = :queue and lease > :now + :lease + :slack
"""

ADD_WORKER = """
    insert into cmdx_worker (token, queue, lease, place)
    values (:token, :queue, :lease, :place)
"""
REMOVE_WORKER = "delete from cmdx_worker where token = :token"
BEAT = "update cmdx_worker set lease = :lease where token = :token"
KEEP_WORKER = "select lease from cmdx_worker where token = :token for share"
SURVEY = """
    select
    (select count(*) from cmdx_worker where token = :owner),
    (select min(lease) from cmdx_worker where queue = :queue and token <> :owner),
    (select is_paused from cmdx_queue where name = :queue),
    (select seen_at from cmdx_queue where name = :queue),
    (select min(due_at) from cmdx_schedule where queue = :queue),
    (select min(sequence) from cmdx_job where queue = :queue and state = 'arriving'),
    (select count(*) from cmdx_job where queue = :queue and state = 'running'
     and owner = :owner and cancels = 1)
"""
LOST_WORKERS = """
    select token from cmdx_worker
    where queue = :queue and lease <= :now and token <> :owner
    order by token for update skip locked
"""


class Survey(NamedTuple):
    """What there is to do for a worker of a queue."""

    is_registered: int
    """Whether the lease of the worker was not found to be over."""
    first_lease: float | None
    """When the first lease of another worker ends."""
    is_paused: int | None
    seen_at: float | None
    """The time when a worker last looked at the clock."""
    next_tick: float | None
    """When the first schedule is due."""
    has_arrivals: int | None
    """Whether jobs with a key wait for their places."""
    has_cancels: int
    """Whether jobs of the worker are to be cancelled."""


def survey(statements: Statements, queue: str, owner: str) -> Survey:
    """Find out what there is to do, by one statement."""
    return Survey(*statements.execute(SURVEY, queue=queue, owner=owner)[0])


def lock_queue(statements: Statements, queue: str) -> int:
    """
    Keep others from changing the order of keys; return the last position given.

    It is locked before any job, so that nobody waits for each other.
    """
    rows = statements.execute(LOCK_QUEUE, queue=queue)
    if not rows:
        statements.execute(ADD_QUEUE, queue=queue)
        rows = statements.execute(LOCK_QUEUE, queue=queue)
    return int(rows[0][0])


def is_paused(statements: Statements, queue: str) -> bool:
    """Tell whether workers may not claim jobs."""
    rows = statements.execute(PAUSED, queue=queue)
    return bool(rows and rows[0][0])


def set_paused(statements: Statements, queue: str, *, paused: bool) -> None:
    """Store whether workers may not claim jobs."""
    statements.execute(ADD_QUEUE, queue=queue)
    statements.execute(SET_PAUSED, queue=queue, paused=int(paused))
