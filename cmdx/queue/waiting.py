"""Why a job has not ended yet: what a wait that has timed out says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cmdx.queue import table
from cmdx.queue.table import JobState
from cmdx.stores.store import MEMORY

if TYPE_CHECKING:
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements, Store

LOOK = """
    select
    (select count(*) from cmdx_worker where queue = :queue and lease > :now),
    (select is_paused from cmdx_queue where name = :queue)
"""

WORKER_HERE = "in this process with queue.worker()"
WORKER_ELSEWHERE = "with `python -m cmdx worker app:queue`"
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


def why_not_ended(store: Store, record: JobRecord) -> str:
    """Look at what a job needs, and return why it has not ended."""

    def look(statements: Statements) -> Surroundings:
        now = statements.now
        rows = statements.execute(LOOK, queue=record.queue, now=now)
        ((workers, is_paused),) = rows
        return Surroundings(
            now,
            has_worker=workers > 0,
            is_paused=bool(is_paused),
            is_in_memory=store.name == MEMORY,
        )

    why = reason_to_wait(record, store.transact(look, read_only=True))
    return f"the job {record.id!r} has not ended yet: {why}"


def reason_to_wait(record: JobRecord, around: Surroundings) -> str:
    """Return what a job waits for, and what to do about it."""
    state, queue = table.public_state(record.state), f"the queue {record.queue!r}"
    is_running = state is JobState.RUNNING
    if not around.has_worker:
        begin = "its worker has died" if is_running else f"it is {state}"
        worker = "other worker" if is_running else "worker"
        start = WORKER_HERE if around.is_in_memory else WORKER_ELSEWHERE
        pause = RESUME if around.is_paused else ""
        return (
            f"{begin}, and no {worker} of {queue} is running. Start one {start}, or "
            f"run what is due here with queue.drain().{pause}"
        )
    if around.is_paused and not is_running:
        return f"it is {state}, and {queue} is paused. Resume it with queue.resume()."
    if record.unread_since is not None and not is_running:
        return (
            f"it is {state}, but no worker could read it so far. Deploy one that knows "
            f"{record.task}."
        )
    if record.lane is not None:  # who has the lane knows more
        return f"it is {state}."
    if state is JobState.READY and record.due_at > around.now:
        return f"it is {state}, and due in {record.due_at - around.now:.1f} s."
    if state is JobState.READY:
        return (
            f"it is {state}, and the workers of {queue} are busy. If a job waits for "
            "it, start more threads, or have async work `await job`."
        )
    return f"it is {state}."
