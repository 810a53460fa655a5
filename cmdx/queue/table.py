"""
What becomes of a job: pure functions from a record and an event to a record.

Nothing here reads a clock, a store or a task.

=============  =================================================================
state          left by
=============  =================================================================
arriving       ``place``; ``cancel``
ready          ``start``, ``cancel``
held           ``promote``, when the job before it has ended; ``cancel``
running        ``finish``, ``suspend``, ``give_back``, ``give_back_unstarted``,
               ``leave_unread``, ``bury_unread``, ``end_cancelled``, ``crash``
done           ``replay``; it is removed after ``keep`` seconds
dead           ``replay``
cancelled      ``replay``; it is removed after ``keep`` seconds
=============  =================================================================

A job with a key arrives in the state ``arriving``, which people see as ``held``. A
worker then gives it its position among the jobs of its key. The first of them is ready
or running, all others are held.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

MOST_CRASHES = 3
"""A job whose processes have died so often is not tried again."""

UNREAD_PAUSE = 30.0
"""Seconds until a job that a worker could not read is offered again."""

UNREAD_LIMIT = 3600.0
"""Seconds after which a job that nobody can read is dead."""

LANES = 2**40
"""Ranks from here on are those of lanes; they are above all others."""

ARRIVING = "arriving"
AFTER, AT = "after", "at"
STARTED, ENDED = "started", "ended"
"""Until when the unique text of a job is its own; else a moment, as text."""


class JobState(StrEnum):
    """Where a job stands."""

    READY = "ready"
    """It waits for its time, and for a worker."""
    HELD = "held"
    """It waits for a job with the same key."""
    RUNNING = "running"
    """A worker has claimed it."""
    DONE = "done"
    """It has ended, and did not fail."""
    DEAD = "dead"
    """It failed for good."""
    CANCELLED = "cancelled"
    """It was cancelled."""


ENDED_STATES = (JobState.DONE, JobState.DEAD, JobState.CANCELLED)


class JobRecord(NamedTuple):
    """A job as it is stored."""

    sequence: int
    id: str
    queue: str
    state: str
    """A ``JobState``, or ``arriving``."""
    rank: int
    """What waiting jobs are found by, see ``rank_of``; 0 for those that have ended."""
    due_at: float
    """When it may run; of a job that is done or cancelled, when it is removed."""
    priority: int
    key: str | None
    position: int | None
    """Its place among the jobs of its key."""
    task: str
    module: str
    inputs: str
    retry: str | None
    """The retry options that the caller gave, as JSON."""
    options: str | None
    """The options of the rule that the queue adds, as JSON; None without one."""
    is_async: int
    is_once: int
    """Whether it must not run twice, though its process may have died."""
    timing: str | None
    """What it was enqueued for: ``after`` some time, ``at`` a date; None for now."""
    unique_text: str | None
    unique_until: str | None
    unique_held: str | None
    """The unique text while it is this job's own."""
    schedule: str | None
    origin: str | None
    """The correlation id and the trace of who enqueued it, as JSON."""
    owner: str | None
    """The token of the worker that runs it."""
    crashes: int
    cancels: int
    """Whether it is to be cancelled while it runs."""
    unread_since: float | None
    suspension: str | None
    """What the last leg has left, as JSON."""
    result: str | None
    error: str | None
    """The name of the class of the error that ended it."""
    reason: str | None
    """Why it failed, or why no worker could read it so far."""
    progress: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    lane: int | None
    """Of a job of a lane, see ``cmdx.queue.lanes``: the rank that it waits by, one of
    the ``ranks`` of its ``Lane``. For an event of a courier it is made of the numbers
    of the courier and of the type, see ``CourierRecord.rank_of``."""
    lane_facts: str | None
    """What the package of the lane keeps with it, as JSON."""


def public_state(state: str) -> JobState:
    """Return the state that people see."""
    return JobState.HELD if state == ARRIVING else JobState(state)


def is_ended(record: JobRecord) -> bool:
    """Tell whether nothing more happens to a job unless it is replayed."""
    return record.state in ENDED_STATES


def is_past_keeping(record: JobRecord, now: float) -> bool:
    """Tell whether a job that is done or cancelled was kept long enough."""
    return record.state in (JobState.DONE, JobState.CANCELLED) and record.due_at <= now


# -- waiting ------------------------------------------------------------------------


def start(record: JobRecord, owner: str, now: float) -> JobRecord:
    """Have a worker run the job."""
    frees = record.unique_until == STARTED
    return record._replace(
        state=JobState.RUNNING,
        owner=owner,
        started_at=now,
        unique_held=None if frees else record.unique_held,
    )


def place(record: JobRecord, position: int, *, is_first: bool) -> JobRecord:
    """Give a job that has arrived its place among those of its key."""
    state = JobState.READY if is_first else JobState.HELD
    return record._replace(state=state, position=position)


def promote(record: JobRecord) -> JobRecord:
    """Let a held job go: those before it have ended."""
    return record._replace(state=JobState.READY)


def cancel(record: JobRecord, now: float, keep: float) -> JobRecord | None:
    """Cancel a job; one that runs is asked to end. None if it has ended."""
    if is_ended(record):
        return None
    if record.state == JobState.RUNNING:
        return record._replace(cancels=1)
    return end(record, JobState.CANCELLED, now, keep, error="JobCancelled")


def replay(record: JobRecord, now: float) -> JobRecord | None:
    """Let a job that has ended run again from the start; None if it has not."""
    if not is_ended(record):
        return None
    return record._replace(
        state=JobState.READY if record.key is None else ARRIVING,
        rank=waiting_rank(record),
        due_at=now,
        position=None,
        unique_held=record.unique_text if keeps_unique(record, now) else None,
        timing=None,
        schedule=None,
        owner=None,
        crashes=0,
        cancels=0,
        unread_since=None,
        suspension=None,
        result=None,
        error=None,
        reason=None,
        progress=None,
        started_at=None,
        ended_at=None,
        lane_facts=None,
    )


def keeps_unique(record: JobRecord, now: float) -> bool:
    """Tell whether a job that runs again has its unique text to itself."""
    if record.unique_text is None or record.unique_until is None:
        return False
    until = record.unique_until
    return until in (STARTED, ENDED) or now < moment_of(until)


def has_lapsed(record: JobRecord, now: float) -> bool:
    """Tell whether the unique text of a job is free again by the time alone."""
    until = record.unique_until
    is_timed = until is not None and until not in (STARTED, ENDED)
    return is_timed and moment_of(until or "") <= now


def moment_of(text: str) -> float:
    """Return the moment in a column; one that somebody has edited is over."""
    try:
        return float(text)
    except ValueError:
        return -math.inf


# -- running ------------------------------------------------------------------------


def finish(  # noqa: PLR0913 -- the facts of an end
    record: JobRecord,
    now: float,
    keep: float,
    *,
    is_success: bool,
    result: str,
    error: str | None = None,
    reason: str | None = None,
) -> JobRecord:
    """End a job by the result of its run."""
    if is_success:
        return end(record, JobState.DONE, now, keep, result=result)
    if record.cancels:
        return end(record, JobState.CANCELLED, now, keep, error="JobCancelled")
    return end(
        record, JobState.DEAD, now, keep, result=result, error=error, reason=reason
    )


def end_cancelled(record: JobRecord, now: float, keep: float) -> JobRecord:
    """End a job whose run was cancelled."""
    return end(record, JobState.CANCELLED, now, keep, error="JobCancelled")


def suspend(
    record: JobRecord, now: float, keep: float, *, pause: float, suspension: str
) -> JobRecord:
    """Let a job wait for its next attempt; the worker is free meanwhile."""
    if record.cancels:
        return end_cancelled(record, now, keep)
    waiting = record._replace(suspension=suspension, unread_since=None, reason=None)
    return wait_until(waiting, now + pause)


def give_back(record: JobRecord, now: float, keep: float) -> JobRecord:
    """Leave a job to other workers: a leg of it has begun, and does not count."""
    return offer_again(record._replace(unread_since=None, reason=None), now, keep)


def give_back_unstarted(record: JobRecord, now: float, keep: float) -> JobRecord:
    """Leave a job to other workers as if nobody had claimed it; no leg has begun."""
    return offer_again(with_text_again(record), now, keep)


def offer_again(record: JobRecord, now: float, keep: float) -> JobRecord:
    """Let a job that was claimed wait for a worker again."""
    if record.cancels:
        return end_cancelled(record, now, keep)
    return record._replace(
        state=JobState.READY,
        owner=None,
        rank=waiting_rank(record),
        due_at=min(record.due_at, now),  # the clock may have been set back since
        started_at=None,
    )


def with_text_again(record: JobRecord) -> JobRecord:
    """Return a job that was claimed in vain, with the text that the claim has freed."""
    was_run = record.suspension is not None or record.crashes > 0
    if record.unique_until != STARTED or was_run:
        return record
    return record._replace(unique_held=record.unique_text)


def leave_unread(record: JobRecord, now: float, keep: float, *, why: str) -> JobRecord:
    """Leave a job to workers that know its task; after an hour it is dead."""
    if record.cancels:
        return end_cancelled(record, now, keep)
    since = now if record.unread_since is None else record.unread_since
    if now - since >= UNREAD_LIMIT:
        return bury_unread(record, now, keep, why=why)
    waiting = with_text_again(record)._replace(
        unread_since=since, reason=storable_text(why)
    )
    return wait_until(waiting, now + UNREAD_PAUSE)


def bury_unread(record: JobRecord, now: float, keep: float, *, why: str) -> JobRecord:
    """End a job that nobody can read."""
    if record.cancels:
        return end_cancelled(record, now, keep)
    return end(record, JobState.DEAD, now, keep, error="JobUnreadable", reason=why)


def crash(
    record: JobRecord, now: float, keep: float, *, why: str | None = None
) -> JobRecord:
    """
    Note that the process which ran a job has died, or what its work did to end it.

    Args:
        record: The job.
        now: The time.
        keep: For how many seconds it is kept if it is cancelled.
        why: What the work raised; None if the process has died.
    """
    if record.lane is not None:  # it runs no code of the user's that may have killed it
        return give_back(record, now, keep)
    crashed = record._replace(crashes=record.crashes + 1)
    if crashed.is_once:
        # The owner keeps its token: it may be alive, and end the job after all.
        dead = end(crashed, JobState.DEAD, now, keep, error="JobIndeterminate")
        return dead._replace(owner=record.owner)
    if crashed.crashes >= MOST_CRASHES and not crashed.cancels:
        return end(crashed, JobState.DEAD, now, keep, error="JobCrashed", reason=why)
    return give_back(crashed, now, keep)


def may_end(record: JobRecord, owner: str) -> bool:
    """Tell whether *owner* may still write how a job ended."""
    if record.owner != owner:
        return False
    is_dead_owner = record.state == JobState.DEAD and bool(record.is_once)
    return record.state == JobState.RUNNING or is_dead_owner


def wait_until(record: JobRecord, moment: float) -> JobRecord:
    """Return a job that is ready at a later time; a leg has ended well."""
    return record._replace(
        state=JobState.READY,
        rank=waiting_rank(record),
        due_at=moment,
        owner=None,
        crashes=0,
        started_at=None,
    )


def waiting_rank(record: JobRecord) -> int:
    """Return what a job is found by while it waits."""
    if record.lane is not None:
        return record.lane
    return rank_of(record.priority, record.key, record.is_async)


def rank_of(priority: int, key: str | None, is_async: int) -> int:
    """
    Return what a waiting job is found by: lower goes first.

    Jobs of one level have two ranks, so that a worker which can take only plain or only
    asynchronous ones need not load the others. A job with a key has the level of
    priority 0.
    """
    level = -priority if key is None else 0
    return 2 * level + is_async


def level_of(rank: int) -> int:
    """Return the level of a rank; jobs of one level run in the order of their times."""
    return rank // 2


def is_async_rank(rank: int) -> bool:
    """Tell whether jobs of a rank are asynchronous."""
    return bool(int(rank) % 2)  # somebody may have edited it


def end(  # noqa: PLR0913 -- the facts of an end
    record: JobRecord,
    state: JobState,
    now: float,
    keep: float,
    *,
    result: str | None = None,
    error: str | None = None,
    reason: str | None = None,
) -> JobRecord:
    """Return a job that has ended."""
    frees = record.unique_until in (STARTED, ENDED)
    unique_held = None if frees else record.unique_held
    return record._replace(
        state=state,
        rank=0,
        due_at=now if state is JobState.DEAD else removal_time(record, now + keep),
        owner=None,
        unique_held=unique_held,
        crashes=record.crashes if result is None else 0,
        suspension=record.suspension if result is None else None,
        result=result,
        error=storable_text(error),
        reason=storable_text(reason),
        ended_at=now,
    )


def removal_time(record: JobRecord, kept_until: float) -> float:
    """Return when a job that has ended is removed: not while its text is taken."""
    until = record.unique_until
    if record.unique_held is None or until is None or until in (STARTED, ENDED):
        return kept_until
    return max(kept_until, moment_of(until))


def storable_text(text: str | None) -> str | None:
    """Return a text without what databases cannot store, which is escaped."""
    if text is None:
        return None
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
