"""What callers of a queue get wrong, and what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx import Task
from cmdx.declare.checks import check_names
from cmdx.exceptions import DefinitionError
from cmdx.queue.filters import FILTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cmdx.queue.filters import JobFilters


def are_texts(value: object) -> bool:
    """Tell whether *value* is a text, or several."""
    many = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return all(isinstance(item, str) for item in many)


QUEUE_KINDS = {
    "strict": (lambda value: isinstance(value, bool), "True or False"),
    "tasks": (are_texts, "names of packages and modules, such as ('shop',)"),
}

QUEUE_WORDS = {
    "queue_name": "use `name`",
    "queue": "use `name`",
    "path": "give it as `store`",
    "url": "give it as `store`",
    "dsn": "give it as `store`",
}
"""What people may try as options of ``Queue``."""

WORKER_WORDS = {
    "processes": "use `python -m cmdx worker`",
    "concurrency": "use `threads` and `coroutines`",
    "workers": "use `threads` and `coroutines`",
}
"""What people may try as options of ``Queue.worker``."""

IN_SECONDS = "use `every`, in seconds"
ON_CLASS = "declare it with @queued above the class"
SCHEDULE_WORDS = {
    "interval": IN_SECONDS,
    "seconds": IN_SECONDS,
    "crontab": "use `cron`",
    "timezone": "use `zone`",
    "tz": "use `zone`",
    "at": "to run it once, use `enqueue` with `at`",
    "after": "to run it once, use `enqueue` with `after`",
    "key": ON_CLASS,
    "priority": ON_CLASS,
    "timeout": ON_CLASS,
}
"""What people may try as options of ``schedule``."""


def check_many(invocations: Iterable[Task[Any]]) -> Iterable[Task[Any]]:
    """Return several invocations; refuse one alone."""
    if not isinstance(invocations, Task):
        return invocations
    message = (
        "enqueue_many takes several invocations, such as a list; one is for enqueue, "
        f"got {invocations!r}."
    )
    raise TypeError(message)


def require_filter(where: str, filters: JobFilters, *, everything: bool) -> None:
    """Refuse to change all jobs by mistake."""
    instead = {"id": f"use `{where.removesuffix('_all')}(id)`"}
    check_names(where, filters, FILTERS, instead)
    is_filtered = any(value is not None for value in filters.values())
    if not is_filtered and not everything:
        message = f"{where} needs a filter, or everything=True."
        raise DefinitionError(message)


def check_schedule_id(id: object) -> str:  # noqa: A002 -- as users write it
    """Return the id of a schedule; refuse anything else, such as the schedule."""
    if isinstance(id, str):
        return id
    message = f"a schedule is named by its id, such as schedule.id, got {id!r}."
    raise TypeError(message)
