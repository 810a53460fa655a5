"""Why a job has not ended yet: what a wait says that times out, or is in vain."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import attrs

from cmdx import clock
from cmdx.queue import table
from cmdx.queue.table import JobState
from cmdx.queue.unread import unread_text
from cmdx.stores.store import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements, Store

monotonic = clock.Clock.monotonic
"""Real time, whatever clock a caller uses."""

LOOK = """
    select
    (select count(*) from cmdx_worker where queue = :queue and lease > :now),
    (select is_paused from cmdx_queue where name = :queue),
    (select place from cmdx_worker where token = :owner),
    (select lease from cmdx_worker where token = :owner)
"""

BEFORE = """
    select id, state, due_at from cmdx_job
    where queue = :queue and key = :key and (state = 'ready' or state = 'running')
    and id <> :id
"""

WARN_AFTER = 5.0
"""Seconds between two looks at a job that somebody waits for, until it is warned of."""

WORKER_HERE = "in this process with queue.worker()"
WORKER_ELSEWHERE = "with `python -m cmdx worker MODULE:QUEUE`"
DRAIN_DUE = "what is due here with queue.drain()"
RESUME = " The queue is paused, too: resume it with queue.resume()."


@attrs.frozen
class Surroundings:
    """What a job needs in order to run."""

    now: float
    has_worker: bool
    """Whether a worker of its queue is alive."""
    is_paused: bool
    """Whether its queue is paused."""
    is_in_memory: bool
    """Whether no other process can see its queue."""
    before: tuple[str, str, float] | None = None
    """Of a held job: the one that has to end first, its state, and when it is due."""
    place: str | None = None
    """Of a running job: where its worker is."""
    lease: float | None = None
    """Of a running job: when the lease of its worker is over."""

    def until_due(self, record: JobRecord) -> float:
        """Return the seconds until a job is due, and the one before it if it waits."""
        due_at = record.due_at
        if self.before is not None and self.before[1] == JobState.READY:
            due_at = max(due_at, self.before[2])
        return due_at - self.now


def looking(store: Store, record: JobRecord) -> Callable[[Statements], Surroundings]:
    """Return a unit that looks at what a job needs in order to run."""
    is_held = table.public_state(record.state) is JobState.HELD

    def look(statements: Statements) -> Surroundings:
        facts = {"queue": record.queue, "owner": record.owner}
        ((workers, is_paused, place, lease),) = statements.execute(LOOK, **facts)
        in_order = {"queue": record.queue, "key": record.key, "id": record.id}
        before = is_held and statements.execute(BEFORE, **in_order)
        return Surroundings(
            statements.now,
            has_worker=workers > 0,
            is_paused=bool(is_paused),
            is_in_memory=store.name == MEMORY,
            before=before[0] if before else None,
            place=place,
            lease=lease,
        )

    return look


class StuckWarning:
    """
    Warns once if a job that somebody waits for is stuck; made when the wait begins.

    Args:
        occupies_worker: Whether another job of the queue waits for it, in a thread or
            event loop that runs nothing else meanwhile.
    """

    def __init__(self, *, occupies_worker: bool = False) -> None:
        self._occupies_worker = occupies_worker
        self._looks_at = monotonic() + WARN_AFTER

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the job."""
        return monotonic() >= self._looks_at

    def look(self, record: JobRecord, around: Surroundings) -> None:
        """Log why the job has not ended if it is stuck; else look again later."""
        self._looks_at = monotonic() + WARN_AFTER
        if is_stuck(record, around, occupies_worker=self._occupies_worker):
            self._looks_at = math.inf
            logging.getLogger("cmdx").warning("%s", why_not_ended(record, around))


def is_stuck(
    record: JobRecord, around: Surroundings, *, occupies_worker: bool = False
) -> bool:
    """Tell whether somebody has to do something about a job that has not ended."""
    is_running = record.state == JobState.RUNNING
    is_due = record.state == JobState.READY and record.due_at <= around.now
    is_paused = around.is_paused and not is_running
    return not around.has_worker or is_paused or (occupies_worker and is_due)


def why_not_ended(record: JobRecord, around: Surroundings) -> str:
    """Return that a job has not ended yet, and why."""
    why = reason_to_wait(record, around)
    return f"the job {record.id!r} has not ended yet: {why}"


def reason_to_wait(record: JobRecord, around: Surroundings) -> str:
    """Return what a job waits for, and what to do about it."""
    if record.state == JobState.RUNNING:
        return reason_while_running(record, around)
    if not around.has_worker:
        return reason_without_worker(record, around)
    state, queue = table.public_state(record.state), f"the queue {record.queue!r}"
    until_due, also = record.due_at - around.now, obstacle(record, around)
    if around.is_paused:
        reason = f"it is {state}, and {queue} is paused. Resume it with queue.resume()."
        return f"{reason}{also}"
    is_late = state is JobState.READY and until_due <= 0
    if also or not is_late or record.lane is not None:  # who has the lane knows more
        return f"it is {place_of(state, until_due)}.{also}"
    return (
        f"it is {state}, and the workers of {queue} are busy. If a job waits for it, "
        "start more threads, or have async work `await job`."
    )


def obstacle(record: JobRecord, around: Surroundings) -> str:
    """Return what keeps a job from running besides, as a sentence; mostly no text."""
    if record.unread_since is not None:
        return f" {unread_text(record)}"
    if around.before is None or record.lane is not None:
        return ""
    id_, state, due_at = around.before
    place = place_of(JobState(state), due_at - around.now)
    return f" It waits for the job {id_!r} of the same key, which is {place}."


def reason_while_running(record: JobRecord, around: Surroundings) -> str:
    """Return where and since when a job runs, and what happens if its worker died."""
    where = "" if around.place is None else f" on {around.place}"
    also = " It was asked to end, because it is cancelled." if record.cancels else ""
    if not around.has_worker:
        start = f"Start one {start_of(around)}, or run {DRAIN_DUE}."
        pause = RESUME if around.is_paused else ""
        return f"its worker{where} has died, and {no_worker(record)}. {start}{pause}"
    if around.lease is None:
        return f"it is running.{also}"
    next_state = table.crash(record, around.now, 0.0).state
    left = around.lease - around.now
    if left <= 0:
        return (
            f"its worker{where} has died, or cannot reach the database: its lease is "
            "over. Another worker finds that within seconds, and it becomes "
            f"{next_state} then.{also}"
        )
    seconds = around.now - (record.started_at or around.now)
    return (
        f"it has been running{where} for {seconds:.1f} s. If that worker has died, it "
        f"becomes {next_state} when the lease is over, in {left:.1f} s.{also}"
    )


def reason_without_worker(record: JobRecord, around: Surroundings) -> str:
    """Return that no worker is there for a job that waits, and how to run it."""
    state, until_due = table.public_state(record.state), around.until_due(record)
    begin = f"it is {place_of(state, record.due_at - around.now)}"
    start = f"Start one {start_of(around)}"
    if record.unread_since is None:
        ahead = f"it here with queue.drain(ahead={math.ceil(until_due)})"
        start += f", or run {ahead if until_due > 0 else DRAIN_DUE}"
    pause = RESUME if around.is_paused else ""
    also = obstacle(record, around)
    return f"{begin}, and {no_worker(record)}. {start}.{also}{pause}"


def no_worker(record: JobRecord) -> str:
    """Return that no worker is there for a job."""
    kind = "other worker" if record.state == JobState.RUNNING else "worker"
    return f"no {kind} of the queue {record.queue!r} is running"


def start_of(around: Surroundings) -> str:
    """Return how to start a worker that sees the queue."""
    return WORKER_HERE if around.is_in_memory else WORKER_ELSEWHERE


def place_of(state: JobState, until_due: float) -> str:
    """Return where a job stands, and when it is due if that is later."""
    is_later = state is JobState.READY and until_due > 0
    return f"{state}, and due in {until_due:.1f} s" if is_later else str(state)
