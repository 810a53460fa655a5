"""
From an invocation to the row of a job.

1. the invocation is checked, with its inputs              ``new_row``
2. its key, its priority and its policy are resolved       ``new_row``
3. it is written, unless its id or unique text is taken    ``write_row``

User code runs in the first two steps only; ``write_row`` runs inside a transaction.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from cmdx.chain import new_id
from cmdx.declare.checks import check_kinds, check_names, check_seconds
from cmdx.exceptions import DefinitionError
from cmdx.queue import records, table
from cmdx.queue.errors import JobConflict
from cmdx.queue.jobs import read_invocation
from cmdx.queue.lanes import require_free_key
from cmdx.queue.policy import (
    PRIORITY_WORDS,
    QueuePlan,
    check_retry,
    is_priority,
    job_options,
    options_text,
)
from cmdx.queue.table import AFTER, ARRIVING, AT, ENDED, STARTED, JobRecord, JobState
from cmdx.wire import WireError, dump_invocation, fingerprint
from cmdx.wire.sending import check_unused, due_time, origin_data, resolved_copy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cmdx import RetryOptions, Task
    from cmdx.queue.queue import Queue
    from cmdx.stores import Statements

Row: TypeAlias = dict[str, Any]
"""The values of a new job, by the names of their columns."""

Until: TypeAlias = Literal["started", "ended"] | float

STRICT_KEY = ""
"""The key of all jobs of a strict queue."""

LONGEST_TEXT = 255
"""How long ids, keys and unique texts may be."""

EMPTY = JobRecord(
    *(None for _ in JobRecord._fields)  # type: ignore[arg-type]
)._replace(sequence=0, crashes=0, cancels=0)


class EnqueueManyKeywords(TypedDict, total=False):
    """The options of ``Queue.enqueue_many``."""

    after: float | None
    """The seconds to wait first."""
    at: datetime | None
    """When to run it, with a time zone."""
    priority: int | None
    """Higher goes first."""
    retry: RetryOptions | None
    """The options of the rule ``job``."""


class EnqueueKeywords(EnqueueManyKeywords, total=False):
    """The options of ``Queue.enqueue``."""

    key: str | None
    """Jobs with the same key run one after the other."""
    id: str | None
    """The id of the job."""
    unique: str | None
    """A text that no other job of the queue has."""
    until: Until | None
    """Until when the job has its unique text."""
    within: Any
    """The user's own connection, in whose transaction the job is stored."""


def has_identity(options: EnqueueKeywords) -> bool:
    """Tell whether another job may be the same as one that is enqueued."""
    return options.get("id") is not None or options.get("unique") is not None


def new_row(
    queue: Queue,
    invocation: Task[Any],
    options: Mapping[str, Any],
    now: float,
    *,
    lane: int | None = None,
) -> Row:
    """
    Return the row of a new job; refuse what could not run.

    Args:
        queue: The queue.
        invocation: The task with its inputs.
        options: Those of ``Queue.enqueue``.
        now: The time.
        lane: The rank of a job of a lane, see ``cmdx.queue.lanes``.
    """
    check_unused(invocation, "queue")
    check_names("enqueue", options, EnqueueKeywords.__annotations__, OTHER_WORDS)
    plan = QueuePlan.of(type(invocation))
    of_call = check_retry(options.get("retry"))
    rule = job_options(plan, of_call, queue.retry) if lane is None else None
    after, at = options.get("after"), options.get("at")
    check_kinds("enqueue", options, PRIORITY)
    priority = options.get("priority")
    priority = plan.priority if priority is None else priority
    key = key_of(invocation, plan, options.get("key"))
    if key is not None and lane is None:
        require_free_key("enqueue", key)
    key = STRICT_KEY if queue.strict else key
    rank = table.rank_of(priority, key, plan.is_async) if lane is None else lane
    unique = checked_text("unique", options.get("unique"))
    until = until_text(options.get("until"), unique, now)
    dumped = dump_invocation(invocation)
    origin = origin_data()
    return {
        "id": checked_text("id", options.get("id")) or new_id(),
        "queue": queue.name,
        "state": JobState.READY.value if key is None else ARRIVING,
        "rank": rank,
        "due_at": due_time(now, after, at),
        "priority": priority,
        "key": key,
        "task": plan.name,
        "module": plan.module,
        "inputs": json.dumps(dumped["inputs"]),
        "retry": options_text(of_call),
        "options": options_text(rule),
        "is_async": int(plan.is_async),
        "is_once": int(plan.is_once),
        "timing": timing_of(after, at),
        "unique_text": unique,
        "unique_until": until,
        "unique_held": unique,
        "schedule": None,
        "origin": json.dumps(origin) if origin else None,
        "created_at": now,
        "lane": lane,
        "lane_facts": None,
    }


PRIORITY = {"priority": (is_priority, PRIORITY_WORDS)}

OTHER_WORDS = {
    "delay": "use `after`, in seconds",
    "countdown": "use `after`, in seconds",
    "eta": "use `at`, a datetime with a time zone",
    "run_at": "use `at`, a datetime with a time zone",
    "job_id": "use `id`",
    "task_id": "use `id`",
    "lock": "use `key`",
    "queueing_lock": "use `unique`",
    "retries": "use `retry=RetryOptions(max_attempts=...)`",
    "max_attempts": "use `retry=RetryOptions(max_attempts=...)`",
    "timeout": "declare it with @queued(timeout=...) above the class",
}
"""What other libraries call the options: Celery, dramatiq, huey and procrastinate."""

ONE_BY_ONE = "enqueue them one by one, with `enqueue`"
KEY_OF_MANY = f"declare it with @queued(key=...) above the class, or {ONE_BY_ONE}"
OTHER_WORDS_FOR_MANY = OTHER_WORDS | {
    "key": KEY_OF_MANY,
    "lock": KEY_OF_MANY,
    "id": ONE_BY_ONE,
    "job_id": ONE_BY_ONE,
    "task_id": ONE_BY_ONE,
    "unique": ONE_BY_ONE,
    "queueing_lock": ONE_BY_ONE,
    "until": ONE_BY_ONE,
    "within": ONE_BY_ONE,
}
"""The same for many jobs together, which have fewer options."""


def key_of(invocation: Task[Any], plan: QueuePlan, key: object) -> str | None:
    """Check the inputs of a job, and return its key."""
    resolved = resolved_copy(invocation)
    if key is None:
        key = plan.key(resolved) if callable(plan.key) else plan.key
    return checked_text("key", key)


def timing_of(after: object, at: object) -> str | None:
    """Return what a job waits for: some time, a date, or nothing."""
    if at is not None:
        return AT
    return None if after is None else AFTER


def checked_text(name: str, value: object) -> str | None:
    """Return what ``check_text`` returns, or None if nothing was given."""
    return None if value is None else check_text(name, value)


def check_text(name: str, value: object, *, where: str = "enqueue") -> str:
    """Return a text of 1 to 255 characters that a database can store."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_TEXT:
        message = (
            f"{where}: {name} must be a text of 1 to {LONGEST_TEXT} characters, "
            f"got {value!r}."
        )
        raise DefinitionError(message)
    try:
        value.encode()
    except UnicodeEncodeError:
        is_storable = False
    else:
        is_storable = "\0" not in value
    if not is_storable:
        message = f"{where}: {name} must be storable as text, got {value!r}."
        raise DefinitionError(message)
    return value


def until_text(until: object, unique: str | None, now: float) -> str | None:
    """Return until when a unique text is that of a job, as it is stored."""
    if unique is None:
        if until in (None, ENDED):
            return None
        message = "enqueue: until= belongs to unique=. Give that too, or leave it out."
        raise DefinitionError(message)
    if until is None:
        return ENDED
    if until in (STARTED, ENDED):
        return str(until)
    if isinstance(until, str):
        message = (
            'enqueue: until must be "started", "ended" or a number of seconds, '
            f"got {until!r}."
        )
        raise DefinitionError(message)
    return repr(now + check_seconds("enqueue", "until", until, above_zero=True))


# -- writing ------------------------------------------------------------------------


def write_row(statements: Statements, row: Row, *, may_exist: bool) -> JobRecord | None:
    """
    Store a new job; return the one that has its id or unique text, None if none has.

    Args:
        statements: Those of the transaction.
        row: The values.
        may_exist: Whether the caller has given the id or a unique text.
    """
    if not may_exist:
        records.insert_job(statements, row)
        return None
    while not records.insert_unless_there(statements, row):
        found = job_in_the_way(statements, row)
        if found is not None:
            return found
    return None


def job_in_the_way(statements: Statements, row: Row) -> JobRecord | None:
    """Return the job that has the id or the unique text of a new one."""
    text, now = row["unique_held"] or "", statements.now
    found = records.peek_job(statements, row["id"])
    if found is not None and not table.is_past_keeping(found, now):
        return found
    if found is not None:
        statements.execute(records.REMOVE_PAST_KEEPING, sequence=found.sequence)
    holder = records.load_unique(statements, row["queue"], text)
    if holder is None or not table.has_lapsed(holder, now):
        return holder
    statements.execute(records.FREE_UNIQUE, sequence=holder.sequence)
    return None


def record_of_row(row: Row) -> JobRecord:
    """Return the record of a job that was just written; its number is not known."""
    return EMPTY._replace(**row)


def require_same(
    found: JobRecord, row: Row, invocation: Task[Any], tasks: Any
) -> JobRecord:
    """Return the job that has the id; refuse one of another task or other inputs."""
    if found.id != row["id"]:
        return found  # it has the unique text
    if found.task == row["task"] and found.queue == row["queue"]:
        if found.inputs == row["inputs"]:
            return found
        with suppress(WireError, ValueError):  # somebody has edited its inputs
            stored = read_invocation(found, tasks)
            if fingerprint(stored) == fingerprint(invocation):
                return found
    queue = None if found.queue == row["queue"] else found.queue
    raise JobConflict(found.id, found.task, row["task"], queue)
