"""Jobs as text, for ``python -m cmdx jobs``: a line, or all that is known of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx.queue.waiting import reason_to_wait
from cmdx.report import duration_text, marks

if TYPE_CHECKING:
    from cmdx.outcome import Attempt
    from cmdx.queue import Job


def job_line(job: Job[Any], *, with_inputs: bool) -> str:
    """Return a job in one line."""
    parts = [job.id, f"{job.state:<9}", job.task]
    if job.key is not None:
        parts.append(f"key={job.key}")
    if job.retries:
        parts.append(f"retries={job.retries}")
    if job.crashes:
        parts.append(f"crashes={job.crashes}")
    if unread_since(job) is not None:
        parts.append("unread: no worker could read it")
    if with_inputs:
        parts.append(f"inputs={inputs_text(job)}")
    if job.reason is not None and job.state != "cancelled":  # which says it all
        parts.append(f"reason: {' '.join(job.reason.split())}")
    return "  ".join(parts)


def job_text(job: Job[Any], *, with_inputs: bool) -> str:
    """Return all that is known of a job."""
    now, is_later = "", False
    if job.due_at is not None:
        around = job._look_around()
        now, is_later = reason_to_wait(job._record, around), job.due_at > around.now
    facts = {
        "id": job.id,
        "task": job.task,
        "state": job.state,
        "key": job.key,
        "priority": job.priority,
        "created": moment_text(job.created_at),
        "due": moment_text(job.due_at if is_later else None),
        "now": now,
        "unread": unread_text(job),
        "retries": job.retries,
        "crashes": job.crashes,
        "progress": job.progress,
        "inputs": inputs_text(job) if with_inputs else None,
        "reason": job.reason,
    }
    known = {name: fact for name, fact in facts.items() if fact not in (None, "", 0)}
    lines = [f"{name + ':':<10}{fact}" for name, fact in known.items()]
    lines += [attempt_line(number, made) for number, made in enumerate(job.attempts)]
    return "\n".join([*lines, traceback_text(job)])


def unread_text(job: Job[Any]) -> str:
    """Return since when no worker could read a job; mostly no text."""
    since = unread_since(job)
    if since is None:
        return ""
    return f"since {moment_text(since)}; after an hour the job is dead."


def unread_since(job: Job[Any]) -> float | None:
    """Return since when no worker could read a job that waits; None if one may."""
    return job._record.unread_since if job.state in ("ready", "held") else None


def attempt_line(number: int, attempt: Attempt) -> str:
    """Return how an attempt has ended."""
    text = f"attempt {number}: {attempt.error or 'done'}"
    if attempt.pause is None:
        return text
    return f"{text}; waits {duration_text(attempt.pause, marks())}"


def traceback_text(job: Job[Any]) -> str:
    """Return where the last error was raised, after an empty line."""
    cause = None if job.result is None else job.result.cause
    text = getattr(cause, "traceback", "")
    return f"\n{text}" if text else ""


def inputs_text(job: Job[Any]) -> str:
    """Return the inputs of a job; somebody may have edited them."""
    try:
        return str(job.inputs)
    except ValueError:
        return "(not JSON)"


def moment_text(seconds: float | None) -> str:
    """Return a moment as people write it, in UTC."""
    if seconds is None:
        return ""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
