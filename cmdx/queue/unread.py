"""What is said of jobs that cannot be read, or whose values cannot be stored."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cmdx.wire.errors import UnknownInputError, UnknownTaskError

if TYPE_CHECKING:
    from cmdx.queue.table import JobRecord
    from cmdx.wire import WireError


def why_unread(record: JobRecord, error: WireError) -> str:
    """Return why this process cannot read a job, and which one could."""
    return f"{error.problem} {cure_of(record, error)}"


def cure_of(record: JobRecord, error: WireError) -> str:
    """Return what to do about a job that this process cannot read."""
    task = record.task.rpartition(":")[2]
    if isinstance(error, UnknownInputError):
        name = error.name
        return (
            f"Deploy a worker whose {task} takes {name}, or declare {name} again, with "
            "a default."
        )
    if not isinstance(error, UnknownTaskError):
        return f"Deploy a worker whose {task} can read what was stored."
    if not error.is_gone:
        return error.cure
    return (
        f"Deploy a worker whose code has {record.task}, or keep that name as an alias "
        "if the class was renamed or moved."
    )


def unread_text(record: JobRecord) -> str:
    """Return that no worker could read a job so far, and what to do."""
    if record.reason is None:
        return f"No worker could read it so far. Deploy one that knows {record.task}."
    return f"No worker could read it so far: {record.reason}"


def warn_of_unread(what: str, why: str) -> None:
    """Log once that this process cannot read something, which others may run."""
    warn_once(what, f"left to other workers, because {why}")


def warn_of_loss(record: JobRecord, why: str) -> None:
    """Log once per task that what a job returned cannot be stored."""
    warn_once(f"the values of jobs of {record.task} are", f"lost: {why}")


def warn_once(what: str, is_so: str) -> None:
    """Log something of a worker, unless this process has."""
    if what not in warned_of:
        warned_of.add(what)
        logging.getLogger("cmdx").warning("%s %s", what, is_so)


warned_of: set[str] = set()
