"""
Jobs that are run later and survive a restart, schedules, and workers.

``Queue.enqueue`` stores an invocation, and a worker runs it by the retry policy of its
class, in this process or another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx.queue.errors import (
    JobCancelled,
    JobConflict,
    JobCrashed,
    JobDropped,
    JobError,
    JobGone,
    JobIndeterminate,
    JobUnreadable,
)
from cmdx.queue.jobs import Job, Progress, current_job, progress
from cmdx.queue.policy import queued
from cmdx.queue.queue import Queue
from cmdx.queue.schedules import Schedule
from cmdx.queue.signals import (
    job_cancelled,
    job_died,
    job_enqueued,
    job_finished,
    job_hung,
    job_retried,
    job_started,
    schedule_cancelled,
    schedule_created,
    schedule_fired,
    schedule_missed,
    schedule_piled_up,
)
from cmdx.queue.table import JobState

if TYPE_CHECKING:
    from cmdx.queue.worker import Worker

__all__ = [
    "Job",
    "JobCancelled",
    "JobConflict",
    "JobCrashed",
    "JobDropped",
    "JobError",
    "JobGone",
    "JobIndeterminate",
    "JobState",
    "JobUnreadable",
    "Progress",
    "Queue",
    "Schedule",
    "Worker",
    "current_job",
    "job_cancelled",
    "job_died",
    "job_enqueued",
    "job_finished",
    "job_hung",
    "job_retried",
    "job_started",
    "progress",
    "queued",
    "schedule_cancelled",
    "schedule_created",
    "schedule_fired",
    "schedule_missed",
    "schedule_piled_up",
]

if not TYPE_CHECKING:  # or checkers would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        """Import the worker when it is first asked for; producers do without it."""
        if name != "Worker":
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        from cmdx.queue.worker import Worker

        return Worker
