"""
Results as JSON.

A result is never refused: the run is over, and its outcome has to be told. What cannot
be stored is left out, and a loaded result says so.

1. what the run has left as JSON                       ``result_data``
2. how it ended, also of the failures it passed on     ``run_data``
3. the value as its annotation says, or why not        ``value_data``
4. a short form, if a class of the user's raises       ``short_data``
5. and back to a result, whose chain is itself         ``load_result``
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cmdx import Context, Fault, Result, Status, Stop, Task
from cmdx.chain import Chain
from cmdx.exceptions import CmdxError
from cmdx.guidance.failures import failures_of
from cmdx.guidance.parse import own_guidance
from cmdx.inputs.errors import Invalid
from cmdx.outcome import Outcome
from cmdx.pickling import stand_in_task
from cmdx.report import error_name
from cmdx.run.continuation import (
    NOT_STORED,
    attempt_data,
    attempt_from,
    error_data,
    error_from,
)
from cmdx.run.record import Record, Run
from cmdx.values import text_of
from cmdx.wire.errors import WireError
from cmdx.wire.invocations import encode_input, given_inputs, input_codecs
from cmdx.wire.layout import (
    StoredOrigin,
    StoredResult,
    check_layout,
)
from cmdx.wire.names import find_task, name_and_module, task_name
from cmdx.wire.outcomes import (
    cause_data,
    cause_from,
    guidance_data,
    guidance_from,
    outcome_data,
    outcome_from,
    place_data,
    place_from,
    problems_data,
    problems_from,
)
from cmdx.wire.values import (
    decode_value,
    encode_value,
    output_codecs,
    raised,
    value_codec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cmdx.declare.blueprint import Plan

__all__ = ["dump_result", "load_result"]

STRICT_JSON = json.JSONEncoder(allow_nan=False)
"""Writes what every reader of JSON can read."""


# -- from a result to JSON ------------------------------------------------------------


def dump_result(result: Result[Any]) -> dict[str, Any]:
    """
    Return a result as JSON; what cannot be stored is left out.

    Args:
        result: The result of a run that has ended.
    """
    plain: dict[str, Any] = json.loads(result_text(result))
    return plain


def result_text(result: Result[Any]) -> str:
    """Return a result as the text of its JSON; never refuse one."""
    return text_and_loss(result)[0]


def text_and_loss(result: Result[Any]) -> tuple[str, str | None]:
    """Return a result as the text of its JSON, and why its value is not in it."""
    try:
        data = result_data(result)
        text = STRICT_JSON.encode(data)
    except Exception as error:  # of a fault, an error or guidance of the user's
        data = short_data(result, error)
        text = STRICT_JSON.encode(data)
    return text, data.get("lost_value")


def result_data(result: Result[Any]) -> dict[str, Any]:
    """Return what is stored of a result, a ``StoredResult``."""
    record, run = result._record, result._record.run
    data = {**run_data(result), "context": context_data(run), **value_data(result)}
    for name, fact in vars(record).items():
        if fact is not None and name in FACT_WRITERS:
            data[name] = FACT_WRITERS[name](fact)
    for name, attribute in RUN_FACTS.items():
        fact = getattr(run, attribute)
        if fact:
            data[name] = fact
    if record.attempts:
        data["attempts"] = [attempt_data(attempt) for attempt in result.attempts]
    if result.failed:  # saves time: others have no origin
        _, *origins = failures_of(result)
        if origins:
            data["origins"] = [run_data(origin) for origin in origins]
    return data


def run_data(result: Result[Any]) -> dict[str, Any]:
    """Return how a run ended, a ``StoredOrigin``."""
    record, run, chain = result._record, result._record.run, result.chain
    by_fault = result.failed and is_failed_by_fault(record)  # saves time
    cause = None if by_fault else result.cause
    outcome = Outcome(result.status, result.reason, result.metadata, cause)
    name, module = name_and_module(run.task)
    data = {
        "task": name,
        "module": module,
        "type": result.type,
        "tid": run.tid,
        "cid": chain.id,
        "outcome": outcome_data(outcome),
        "started_at": run.started_at,
        "duration": run.duration,
    }
    if chain.xid is not None:
        data["xid"] = text_of(chain.xid)
    if record.errors:
        data["errors"] = problems_data(record.errors)
    if record.halted_at is not None:
        data["halted_at"] = place_data(record.halted_at)
    if record.replaced is not None:
        data["replaced"] = outcome_data(record.replaced)
    guidance = own_guidance(result)
    if guidance is not None:
        data["guidance"] = guidance_data(guidance)
    if by_fault:
        data["by_fault"] = True
    return data


def is_failed_by_fault(record: Record) -> bool:
    """Tell whether the cause of a failure is the fault of its origin."""
    outcome = record.outcome
    is_fault = outcome.origin is not None and isinstance(outcome.cause, Fault)
    return record.by_fault or is_fault


def short_data(result: Result[Any], error: Exception) -> dict[str, Any]:
    """Return how a run ended, and which *error* kept the rest from being stored."""
    record, run = result._record, result._record.run
    name, module = name_and_module(run.task)
    message = (
        f"only how {run.task.__qualname__} ended could be stored, because "
        f"{error_name(error)} was raised. The process that ran it has the rest."
    )
    outcome = {"status": result.status, "metadata": {NOT_STORED: message}}
    if result.reason is not None:
        outcome["reason"] = text_of(result.reason)
    data = {
        "task": name,
        "module": module,
        "type": result.type,
        "tid": run.tid,
        "cid": result.cid,
        "outcome": outcome,
        "context": {},
        "started_at": finite_seconds(run.started_at),
        "duration": finite_seconds(run.duration),
        "retries": run.attempt,
    }
    if result.success:
        data["lost_value"] = message
    cause = result._root_cause
    if cause is not None:
        data["fault_cause"] = cause_data(cause)
    if record.stopped is not None:
        data["stopped"] = record.stopped
    if result.xid is not None:
        data["xid"] = text_of(result.xid)
    return data


def finite_seconds(seconds: float) -> float:
    """Return the reading of a clock, 0 for one that JSON does not know."""
    return seconds if math.isfinite(seconds) else 0.0


def value_data(result: Result[Any]) -> dict[str, Any]:
    """Return the value as JSON, or why it cannot be stored."""
    record = result._record
    if record.lost_value is not None:
        return {"lost_value": record.lost_value}
    if not result.success or record.value is None:
        return {}
    try:
        return {"value": encode_value(value_codec(result.task), record.value)}
    except Invalid as invalid:
        problem = invalid.below("value")
    except Exception as error:  # of an encoding or model of the user's
        problem = raised(error).below("value")
    message = (
        f"{problem.path} of {result.task.__qualname__} could not be stored: "
        f"it {problem.message}. Let work return what can be stored, such as an id or "
        "a path."
    )
    return {"lost_value": message}


def context_data(run: Run) -> dict[str, Any]:
    """Return the declared inputs and outputs that can be stored."""
    inputs = input_codecs(run.plan)
    data: dict[str, Any] = {}
    for key, value, declared in given_inputs(run):
        with suppress(Exception):  # a result is never refused
            if declared is not None:
                data[key] = encode_input(inputs[key], value, declared)
    for name, codec in output_codecs(run.plan).items():
        with suppress(Exception):
            data[name] = encode_value(codec, run.context[name])
    return data


FACT_WRITERS: dict[str, Callable[[Any], Any]] = {
    "stopped": str,
    "rollback_error": error_data,
    "fault_cause": cause_data,
}
"""How attributes that only some records have are written as JSON."""

RUN_FACTS = {
    "retries": "attempt",
    "strict": "strict",
    "deprecated": "deprecated",
    "rolled_back": "rolled_back",
}
"""What is stored of a run unless it is zero or false, and the attribute it is from."""


# -- from JSON to a result ------------------------------------------------------------


def load_result(data: Mapping[str, Any], *, tasks: Sequence[str] = ()) -> Result[Any]:
    """
    Return the result that was stored as *data* by ``dump_result``.

    Its errors are ``RecordedError``, its context has the declared inputs and outputs,
    and its chain is itself. A class that is gone is replaced by one that cannot run.

    Args:
        data: The stored result.
        tasks: Packages and modules that may be imported to find the task.
    """
    stored: StoredResult = check_layout(data, StoredResult, "dump_result")
    return result_from(stored, task_or_stand_in(stored, tasks), tasks)


def load_result_of(cls: type[Task[Any]], data: object) -> Result[Any]:
    """Return the result that was stored as *data*, if it is one of the task *cls*."""
    stored: StoredResult = check_layout(data, StoredResult, "dump_result")
    name = task_name(cls)
    if stored["task"] != name:
        raise WireError(f"it is not an outcome of {name}")
    return result_from(stored, cls, ())


def result_from(
    stored: StoredResult, cls: type[Task[Any]], tasks: Sequence[str]
) -> Result[Any]:
    """Return the result of the task *cls* behind JSON."""
    origin: Result[Any] | None = None
    for failure in reversed(stored.get("origins", ())):
        failed = record_from(failure, task_or_stand_in(failure, tasks), origin)
        origin = result_of(failed, failure)
    record = record_from(stored, cls, origin)
    plan = record.run.plan
    record.run._context = Context(dict(context_from(plan, stored["context"])))
    record.value, record.lost_value = value_from(cls, stored)
    return result_of(record, stored)


def record_from(
    stored: StoredOrigin, cls: type[Task[Any]], origin: Result[Any] | None
) -> Record:
    """Return the record of a run behind JSON; it passes *origin* on, if any."""
    record = Record(run_from(cls, stored))
    record.outcome = outcome_from(stored["outcome"], origin)
    record.by_fault = origin is not None and stored.get("by_fault", False)
    for name, fact in stored.items():
        if name in FACT_READERS:
            setattr(record, name, FACT_READERS[name](fact))
    return record


def result_of(record: Record, stored: StoredOrigin) -> Result[Any]:
    """Return the result of a *record*, in a chain of its own."""
    chain = Chain()
    chain._id, chain.xid = stored["cid"], stored.get("xid")
    result: Result[Any] = Result.of(record, chain)
    chain.join(result)
    return result


def task_or_stand_in(stored: StoredOrigin, tasks: Sequence[str]) -> type[Task[Any]]:
    """Return the class of a stored result, or one that stands for it."""
    try:
        cls = find_task(stored["task"], stored["module"], tasks)
        assert cls._cmdx_.plan  # noqa: S101 -- it raises for a class that cannot run
    except CmdxError:
        name = stored["task"].rpartition(":")[2]
        name = name if name and name.isprintable() else "Task"
        # Our own module: that of the data would count as one with tasks.
        return stand_in_task(__name__, name, stored["type"])
    return cls


def run_from(cls: type[Task[Any]], stored: StoredOrigin) -> Run:
    """Return the finished run of a stored result."""
    run = Run(cls._cmdx_.plan, None, {})
    del run.is_unused
    run.phase = "finished"
    run._tid = stored["tid"]
    run.started_at, run.ended = stored["started_at"], stored["duration"]
    for name, attribute in RUN_FACTS.items():
        if name in stored:
            setattr(run, attribute, stored[name])  # type: ignore[literal-required]
    return run


def context_from(plan: Plan, context: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the declared inputs and outputs that can still be read."""
    inputs, outputs = input_codecs(plan), output_codecs(plan)
    for key, stored in context.items():
        codec = outputs.get(key) or inputs.get(key)
        if codec is None:
            continue
        try:
            yield key, None if stored is None else decode_value(codec, stored)
        except Invalid:
            continue


def value_from(cls: type[Task[Any]], stored: StoredResult) -> tuple[Any, str | None]:
    """Return the value, or None and why there is none."""
    is_success = stored["outcome"]["status"] == Status.SUCCESS
    value, lost_value = stored.get("value"), stored.get("lost_value")
    if not is_success or lost_value is not None or value is None:
        return None, lost_value
    try:
        return decode_value(value_codec(cls), value), None
    except Invalid as invalid:
        problem = invalid.below("value")
    message = (
        f"{problem.path} of {cls.__qualname__} was stored, but {problem.message}. "
        "The task has changed since, or the data was."
    )
    return None, message


FACT_READERS: dict[str, Callable[[Any], Any]] = {
    "replaced": outcome_from,
    "attempts": lambda attempts: [tuple(attempt_from(data)) for data in attempts],
    "stopped": {stop.value: stop for stop in Stop}.__getitem__,
    "halted_at": place_from,
    "errors": problems_from,
    "rollback_error": error_from,
    "fault_cause": cause_from,
    "guidance": guidance_from,
}
"""How attributes that only some records have are read from JSON."""
