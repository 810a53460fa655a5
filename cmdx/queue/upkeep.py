"""
What one worker does for all workers of a queue, inside the transaction of a round.

- jobs with a key get their places, and the next of a key goes    ``place_arrivals``
- rows that somebody has edited stop nobody                       ``readable``
- a clock that was set back keeps nobody waiting                  ``look_at_clock``
- what has ended long ago is removed                              ``remove_ended``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from cmdx.queue import records, table
from cmdx.queue.records import lock_queue, record_of, update_jobs
from cmdx.queue.schedules import note_end
from cmdx.queue.table import JobRecord, JobState
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmdx.queue.records import Change
    from cmdx.stores import Statements

LEASE = 30.0
"""Seconds after which a worker counts as dead if it was not heard of."""

LOOK_EVERY = 5.0
"""Seconds between two notes of the time; the clock may go back by as much unnoticed."""

MOST_ARRIVALS = 1000
"""How many jobs get their places in one round."""

MOST_REMOVED = 1000
"""How many ended jobs are removed in one round."""


# -- edited rows --------------------------------------------------------------------


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a column has a number; somebody may have edited it."""
    return isinstance(value, int | float)


def readable(
    statements: Statements, rows: Iterable[tuple[Any, ...]]
) -> Iterable[JobRecord]:
    """Yield the jobs in rows; those that somebody has edited are dead."""
    for row in rows:
        try:
            yield record_of(row)
        except StoreError as error:
            bury_edited(statements, JobRecord(*row), str(error))


def bury_edited(statements: Statements, record: JobRecord, reason: str) -> None:
    """Keep a row that cannot be read from stopping all others."""
    now = statements.now
    lock_queue(statements, record.queue)
    created_at = record.created_at if is_number(record.created_at) else now
    repaired = record._replace(crashes=0, priority=0, created_at=created_at)
    dead = table.bury_unread(repaired, now, 0.0, why=reason)
    write_changes(statements, [(record, dead)])


# -- keys ---------------------------------------------------------------------------


def write_changes(statements: Statements, changes: Sequence[Change]) -> None:
    """Write what became of jobs, and what that means for others."""
    update_jobs(statements, changes)
    for _, record in changes:
        note_change(statements, record)


def note_change(statements: Statements, record: JobRecord) -> None:
    """Let the next of its key go, and its schedule go on, if a job has ended."""
    if not table.is_ended(record):
        return
    if record.key is not None:
        promote_next(statements, record.queue, record.key)
    if record.schedule is not None:
        note_end(statements, record)


def promote_next(statements: Statements, queue: str, key: str) -> None:
    """Let the next job of a key go; the row of the queue is locked."""
    if statements.execute(records.HEAD, queue=queue, key=key):
        return
    rows = statements.execute(records.NEXT_OF_KEY, queue=queue, key=key)
    for waiting in readable(statements, rows):
        update_jobs(statements, [(waiting, table.promote(waiting))])


def place_arrivals(statements: Statements, queue: str) -> None:
    """Give jobs with a key their places, in the order they were inserted."""
    position = lock_queue(statements, queue)
    limits: dict[str, Any] = {"queue": queue, "limit": MOST_ARRIVALS}
    there = statements.execute(records.PEEK_ARRIVALS, **limits)
    arrivals = {
        job.sequence: job
        for job in readable(statements, statements.execute(records.ARRIVALS, **limits))
    }
    has_head: dict[str, bool] = {}
    placed, blocked = [], set()
    for sequence, key in there:
        job = arrivals.get(sequence)
        if job is None:
            blocked.add(key)  # a transaction of others has it: later ones wait for it
        if job is None or key in blocked:
            continue
        if key not in has_head:
            has_head[key] = bool(statements.execute(records.HEAD, queue=queue, key=key))
        position += 1
        placed.append((job, table.place(job, position, is_first=not has_head[key])))
        has_head[key] = True
    update_jobs(statements, placed)
    statements.execute(records.SET_POSITIONS, queue=queue, positions=position)


# -- the clock ----------------------------------------------------------------------


def look_at_clock(statements: Statements, queue: str, seen: float) -> None:
    """
    Note the time; if it is earlier than before, keep jobs from waiting for it again.

    If the clock was set back, new and replayed jobs, pauses, intervals and leases wait
    as long as if it had not been. What was enqueued for a date waits for that date.
    """
    lock_queue(statements, queue)
    if statements.now < seen:
        bring_back_jobs(statements, queue)
        statements.execute(records.PAUSES, queue=queue, seen=seen)
    slack: dict[str, Any] = {"queue": queue, "slack": LOOK_EVERY}
    statements.execute(records.INTERVALS, **slack)
    statements.execute(records.LEASES, lease=LEASE, **slack)
    statements.execute(records.SEE, queue=queue)


def bring_back_jobs(statements: Statements, queue: str) -> None:
    """Keep new and replayed jobs from waiting for the time when they were stored."""
    statements.execute(records.NEW_JOBS, queue=queue)
    statements.execute(records.REPLAYED_JOBS, queue=queue)


# -- old jobs -----------------------------------------------------------------------


def remove_ended(statements: Statements, queue: str) -> None:
    """Remove jobs that are done or cancelled, and were kept long enough."""
    for state in (JobState.DONE, JobState.CANCELLED):
        statements.execute(
            records.REMOVE_ENDED,
            queue=queue,
            state=state.value,
            limit=MOST_REMOVED,
        )
