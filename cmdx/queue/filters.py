"""Which jobs are meant: the filters of ``find``, ``cancel_all`` and the like."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import attrs

from cmdx import Task
from cmdx.declare.checks import check_kinds, check_names
from cmdx.exceptions import DefinitionError, did_you_mean
from cmdx.queue.records import SELECT
from cmdx.queue.table import ARRIVING, JobState
from cmdx.wire.invocations import inputs_data
from cmdx.wire.names import name_and_module
from cmdx.wire.sending import time_zone_cure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements


class JobFilters(TypedDict, total=False):
    """What jobs can be looked for by."""

    state: JobState | str | None
    """Where they stand."""
    task: type[Task[Any]] | str | None
    """The class, its name, or the end of its name."""
    inputs: Mapping[str, Any] | None
    """Some of their inputs; only together with *task*."""
    key: str | None
    error: type[BaseException] | str | None
    """The class of the error that ended them, or its name."""
    since: datetime | float | None
    """Those that were enqueued at this time or later."""
    until: datetime | float | None
    """Those that were enqueued before this time."""


FILTERS = tuple(JobFilters.__annotations__)

HAS_TASK = "select 1 from cmdx_job where queue = :queue and task = :task limit 1"
HAS_ERROR = """
    (error = :error or substr(error, length(error) - length(:error)) = '.' || :error)
"""
"""Whether the name of an error is a text, or ends with it after a dot."""
TASKS = "select distinct task from cmdx_job where queue = :queue order by task"


def with_dead(filters: JobFilters) -> JobFilters:
    """Return filters for dead jobs, unless another state is asked for."""
    return {**filters, "state": filters.get("state") or JobState.DEAD}


# -- names of tasks -----------------------------------------------------------------


def naming_task(queue: str, text: str) -> Callable[[Statements], str]:
    """Return the unit that finds the full name of the task that *text* means."""

    def find(statements: Statements) -> str:
        if statements.execute(HAS_TASK, queue=queue, task=text):
            return text
        return full_name(queue, text, tasks_of(statements, queue))

    return find


def tasks_of(statements: Statements, queue: str) -> list[str]:
    """Return the names of the tasks that a queue has jobs of."""
    return [name for (name,) in statements.execute(TASKS, queue=queue)]


def full_name(queue: str, text: str, names: Sequence[str]) -> str:
    """Return the one of *names* that ends with *text*; *text* if none does."""
    ends = (f":{text}", f".{text}")
    found = sorted(name for name in names if name.endswith(ends))
    if len(found) > 1:
        listed = f"{', '.join(found[:-1])} or {found[-1]}"
        message = (
            f"in the queue {queue!r}, {text!r} may be {listed}. Give more of the name."
        )
        raise DefinitionError(message)
    return found[0] if found else text


# -- conditions ---------------------------------------------------------------------


@attrs.frozen
class Filter:
    """A condition in SQL with its values, and what only Python can compare."""

    condition: str
    values: dict[str, Any]
    inputs: Mapping[str, Any]

    def matches(self, record: JobRecord) -> bool:
        """Tell whether the inputs of a job are those that are looked for."""
        if not self.inputs:
            return True
        try:
            stored = json.loads(record.inputs)
        except ValueError:  # somebody has edited it
            return False
        return isinstance(stored, dict) and all(
            name in stored and stored[name] == value
            for name, value in self.inputs.items()
        )

    def query(self) -> str:
        """Return the SQL that selects the next jobs, in the order of their age."""
        return (
            f"{SELECT} where {self.condition} and sequence > :after "
            "order by sequence limit :page"
        )


def filter_of(queue: str, filters: Mapping[str, Any]) -> Filter:
    """Return what selects the jobs of a queue."""
    check_names("find", filters, FILTERS)
    given = {name: value for name, value in filters.items() if value is not None}
    check_kinds("filters", given, KINDS)
    if "inputs" in given and "task" not in given:
        message = "inputs= can be looked for only together with task=."
        raise DefinitionError(message)
    values: dict[str, Any] = {"queue": queue}
    conditions = ["queue = :queue", *conditions_of(given, values)]
    inputs = encoded_inputs(given.get("task"), given.get("inputs") or {})
    return Filter(" and ".join(conditions), values, inputs)


def is_task(value: object) -> bool:
    """Tell whether *value* is a task, or may be the name of one."""
    return isinstance(value, str) or (
        isinstance(value, type) and issubclass(value, Task)
    )


def is_error(value: object) -> bool:
    """Tell whether *value* is a class of errors, or may be the name of one."""
    return isinstance(value, str) or (
        isinstance(value, type) and issubclass(value, BaseException)
    )


KINDS = {
    "task": (is_task, "the class of a task, or its name"),
    "inputs": (
        lambda value: isinstance(value, Mapping),
        "a mapping of names to values",
    ),
    "key": (lambda value: isinstance(value, str), "a text"),
    "error": (is_error, "the class of an error, or its name"),
}


def conditions_of(given: Mapping[str, Any], values: dict[str, Any]) -> Iterator[str]:
    """Yield conditions, and add their values."""
    if "state" in given:
        yield state_condition(given["state"], values)
    if "task" in given:
        task = given["task"]
        values["task"] = task if isinstance(task, str) else name_and_module(task)[0]
        yield "task = :task"
    if "key" in given:
        values["key"] = given["key"]
        yield "key = :key"
    if "error" in given:
        error = given["error"]
        values["error"] = error if isinstance(error, str) else error.__qualname__
        yield HAS_ERROR if isinstance(error, str) else "error = :error"
    for name, comparison in (("since", ">="), ("until", "<")):
        if name in given:
            values[name] = seconds_of(name, given[name])
            yield f"created_at {comparison} :{name}"


def state_condition(state: object, values: dict[str, Any]) -> str:
    """Return the condition for a state as people see it."""
    try:
        values["state"] = JobState(state).value  # type: ignore[arg-type]
    except ValueError:
        listed = ", ".join(JobState)
        message = f"state is one of {listed}, got {state!r}{state_hint(state)}"
        raise DefinitionError(message) from None
    if state == JobState.HELD:
        return f"(state = :state or state = '{ARRIVING}')"
    return "state = :state"


FAILED = "a job that failed for good is 'dead'"
WAITS = "a job that waits is 'ready', or 'held' behind another job"
ENDED_WELL = "a job that has ended well is 'done'"
CLAIMED = "a job that a worker has claimed is 'running'"
OTHER_STATES = {
    **dict.fromkeys(("failed", "failure", "error", "errored"), FAILED),
    **dict.fromkeys(("pending", "queued", "waiting", "scheduled", "todo"), WAITS),
    **dict.fromkeys(("succeeded", "success", "successful"), ENDED_WELL),
    **dict.fromkeys(("finished", "completed", "complete", "ended"), ENDED_WELL),
    **dict.fromkeys(("started", "active", "doing", "processing"), CLAIMED),
}
"""What other queues call the states, and what these are here."""


def state_hint(state: object) -> str:
    """End a sentence about what is no state, with the one that may be meant."""
    if not isinstance(state, str):
        return "."
    hint = OTHER_STATES.get(state.lower())
    return did_you_mean(state, map(str, JobState)) if hint is None else f"; {hint}."


def seconds_of(name: str, moment: object) -> float:
    """Return a moment in seconds since 1970."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment.timestamp()
    if type(moment) in (int, float) and not math.isnan(moment):  # type: ignore[arg-type]
        return float(moment)  # type: ignore[arg-type]
    message = (
        f"{name} must be a datetime with a time zone or seconds since 1970, "
        f"got {moment!r}. {time_zone_cure(moment)}"
    )
    raise DefinitionError(message)


def encoded_inputs(task: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return inputs as they are stored; of a name alone, as they are."""
    if not inputs or isinstance(task, str):
        return inputs
    return inputs_data(task(**inputs))
