"""
Blinker signals that tell what becomes of jobs and schedules.

======================  ======================================================
``job_enqueued``        ``job``
``job_started``         ``job``: a worker begins a leg
``job_retried``         ``job, attempt, max_attempts, delay, error``
``job_finished``        ``job, result``: it succeeded or was skipped
``job_died``            ``job, result``: it failed for good
``job_cancelled``       ``job``
``job_hung``            ``job, seconds``: an attempt goes on after its ``timeout``
``schedule_created``    ``schedule``
``schedule_fired``      ``schedule, job``
``schedule_missed``     ``schedule, missed``: when it should have fired
``schedule_cancelled``  ``schedule``
``schedule_piled_up``   ``task, count``: so many dated jobs are due at once
======================  ======================================================

The sender is the class of the task, or its name if this process does not know it. They
are sent after the commit, in the process where it happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blinker import NamedSignal

from cmdx.telemetry import deliver
from cmdx.wire.names import find_task

if TYPE_CHECKING:
    from cmdx import Task

job_enqueued = NamedSignal("job_enqueued")
job_started = NamedSignal("job_started")
job_retried = NamedSignal("job_retried")
job_finished = NamedSignal("job_finished")
job_died = NamedSignal("job_died")
job_cancelled = NamedSignal("job_cancelled")
job_hung = NamedSignal("job_hung")
schedule_created = NamedSignal("schedule_created")
schedule_fired = NamedSignal("schedule_fired")
schedule_missed = NamedSignal("schedule_missed")
schedule_cancelled = NamedSignal("schedule_cancelled")
schedule_piled_up = NamedSignal("schedule_piled_up")


def announce(signal: NamedSignal, task: str, module: str, /, **payload: Any) -> None:
    """Send *signal*; nothing is looked up while nobody listens."""
    if signal.receivers:
        deliver(signal, sender_of(task, module), payload)


def sender_of(task: str, module: str) -> type[Task[Any]] | str:
    """Return the class called *task*; its name if it is not there."""
    try:
        return find_task(task, module)
    except Exception:  # whatever its module raises, the job is told of
        return task
