"""Why a job has not ended yet: what a wait says that times out, or is in vain."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import attrs

from cmdx.queue import table
from cmdx.queue.table import JobState
from cmdx.stores.store import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements, Store

LOOK = """
    select
    (select count(*) from cmdx_worker where queue = :queue and lease > :now),
    (select is_paused from cmdx_queue where name = :queue)
"""

BEFORE = """
    select id, state, due_at from cmdx_job
    where queue = :queue and key = :key and (state = 'ready' or state = 'running')
"""

WORKER_HERE = "in this process with queue.worker()"
WORKER_ELSEWHERE = "with `python -m cmdx worker MODULE:QUEUE`"
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


def looking(store: Store, record: JobRecord) -> Callable[[Statements], Surroundings]:
    """Return a unit that looks at what a job needs in order to run."""
    is_held = table.public_state(record.state) is JobState.HELD

    def look(statements: Statements) -> Surroundings:
        now, queue = statements.now, record.queue
        ((workers, is_paused),) = statements.execute(LOOK, queue=queue, now=now)
        before = is_held and statements.execute(BEFORE, queue=queue, key=record.key)
        return Surroundings(
            now,
            has_worker=workers > 0,
            is_paused=bool(is_paused),
            is_in_memory=store.name == MEMORY,
            before=before[0] if before else None,
        )

    return look


def not_ended(record: JobRecord, around: Surroundings) -> str:
    """Return that a job has not ended yet, and why."""
    why = reason_to_wait(record, around)
    return f"the job {record.id!r} has not ended yet: {why}"


def warn_if_stuck(record: JobRecord, around: Surroundings, *, is_inside: bool) -> None:
    """
    Log why a job has not ended, if somebody has to do something about it.

    Args:
        record: The job that somebody waits for.
        around: What it needs.
        is_inside: Whether another job waits for it, which occupies a worker.
    """
    is_running = record.state == JobState.RUNNING
    is_stopped = not around.has_worker or (around.is_paused and not is_running)
    is_due = record.state == JobState.READY and record.due_at <= around.now
    if is_stopped or (is_inside and is_due):
        logging.getLogger("cmdx").warning("%s", not_ended(record, around))


def reason_to_wait(record: JobRecord, around: Surroundings) -> str:
    """Return what a job waits for, and what to do about it."""
    state, queue = table.public_state(record.state), f"the queue {record.queue!r}"
    is_running, until_due = state is JobState.RUNNING, record.due_at - around.now
    if not around.has_worker:
        return reason_without_worker(record, around)
    if around.is_paused and not is_running:
        return f"it is {state}, and {queue} is paused. Resume it with queue.resume()."
    if record.unread_since is not None and not is_running:
        return (
            f"it is {state}, but no worker could read it so far. Deploy one that knows "
            f"{record.task}."
        )
    if record.lane is not None:  # who has the lane knows more
        return f"it is {state}."
    if around.before is not None:
        id_, stands, due_at = around.before
        place = place_of(JobState(stands), due_at - around.now)
        return f"it is {state}: the job {id_!r} of the same key is {place}."
    if state is JobState.READY and until_due <= 0:
        return (
            f"it is {state}, and the workers of {queue} are busy. If a job waits for "
            "it, start more threads, or have async work `await job`."
        )
    return f"it is {place_of(state, until_due)}."


def reason_without_worker(record: JobRecord, around: Surroundings) -> str:
    """Return that no worker is there for a job, and how to run it."""
    state, until_due = table.public_state(record.state), record.due_at - around.now
    begin, worker = f"it is {place_of(state, until_due)}", "worker"
    if state is JobState.RUNNING:
        begin, worker = "its worker has died", "other worker"
    start = WORKER_HERE if around.is_in_memory else WORKER_ELSEWHERE
    drain = "what is due here with queue.drain()"
    if state is JobState.READY and until_due > 0:
        drain = f"it here with queue.drain(ahead={math.ceil(until_due)})"
    pause = RESUME if around.is_paused else ""
    return (
        f"{begin}, and no {worker} of the queue {record.queue!r} is running. Start one "
        f"{start}, or run {drain}.{pause}"
    )


def place_of(state: JobState, until_due: float) -> str:
    """Return where a job stands, and when it is due if that is later."""
    is_later = state is JobState.READY and until_due > 0
    return f"{state}, and due in {until_due:.1f} s" if is_later else str(state)
