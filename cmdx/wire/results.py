"""
Results as JSON.

A result is never refused: the run is over, and its outcome has to be told. What cannot
be stored is left out, and a loaded result says so.

1. the facts of the run, errors as ``RecordedError``         ``dump_result``
2. the value as the annotation of the task says, or why not  ``stored_value``
3. and back to a result, whose chain is itself               ``load_result``
"""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, get_origin
from weakref import WeakKeyDictionary

from cmdx import Context, RecordedError, Result, Status, Stop, Task
from cmdx.chain import Chain
from cmdx.exceptions import CmdxError
from cmdx.guidance import Guidance
from cmdx.inputs.annotations import (
    evaluated_annotation,
    module_names,
    type_arguments,
)
from cmdx.inputs.errors import FrozenErrors, Invalid, Problem
from cmdx.outcome import Attempt, AttemptFields, Outcome
from cmdx.pickling import stand_in_task
from cmdx.report import error_name, error_text
from cmdx.run.continuation import record_error
from cmdx.run.record import Record, Run
from cmdx.values import json_text
from cmdx.wire.decoding import kinds_in
from cmdx.wire.encoding import encode, is_storable
from cmdx.wire.errors import WireError
from cmdx.wire.forms import Form
from cmdx.wire.invocations import (
    STREAMS,
    forms_of,
    given_inputs,
    store_input,
)
from cmdx.wire.names import find_task, task_module, task_name
from cmdx.wire.stored import (
    StoredAttempt,
    StoredError,
    StoredGuidance,
    StoredOutcome,
    StoredPlace,
    StoredResult,
    read_stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["dump_result", "load_result"]

known_values: WeakKeyDictionary[type[Task[Any]], Form] = WeakKeyDictionary()
"""How the values of tasks are stored."""


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
    """Return a result as the text of its JSON."""
    return json.dumps(stored_result(result))


def stored_result(result: Result[Any]) -> dict[str, Any]:
    """Return what is stored of a result, a ``StoredResult``."""
    run, chain = result._record.run, result.chain
    outcome = Outcome(result.status, result.reason, result.metadata, result.cause)
    name, module = name_and_module(run.task)
    return {
        "task": name,
        "module": module,
        "type": result.type,
        "tid": run.tid,
        "cid": chain.id,
        "outcome": stored_outcome(outcome),
        "context": stored_context(run),
        "started_at": run.started_at,
        "duration": run.duration,
        **stored_facts(result, chain.xid),
    }


def stored_facts(result: Result[Any], xid: str | None) -> dict[str, Any]:
    """Return what is stored of some results, because others do not have it."""
    record, run = result._record, result._record.run
    value, lost_value = stored_value(result)
    facts = {"value": value, "lost_value": lost_value, "xid": xid}
    stored = {name: fact for name, fact in facts.items() if fact is not None}
    for name, fact in vars(record).items():
        if fact and name in STORERS:
            stored[name] = STORERS[name](fact)
    for name, attribute in RUN_FACTS.items():
        if getattr(run, attribute):
            stored[name] = getattr(run, attribute)
    if result.attempts:
        stored["attempts"] = [stored_attempt(attempt) for attempt in result.attempts]
    if result.guidance is not None:
        stored["guidance"] = stored_guidance(result.guidance)
    return stored


def name_and_module(cls: type[Task[Any]]) -> tuple[str, str]:
    """Return what finds a task again; of one that cannot be found, its own name."""
    try:
        return task_name(cls), task_module(cls)
    except WireError:
        return f"{cls.__module__}:{cls.__qualname__}", cls.__module__


def stored_value(result: Result[Any]) -> tuple[Any, str | None]:
    """Return the value as JSON, or None and why it cannot be stored."""
    record = result._record
    if not result.success or record.lost_value is not None:
        return None, record.lost_value
    try:
        return store_value(value_form(result.task), record.value), None
    except Invalid as invalid:
        problem = invalid.below("value")
    except Exception as error:  # of an encoding or model of the user
        problem = Invalid("unstorable", f"raised {type(error).__qualname__}")
        problem = problem.below("value")
    name = result.task.__qualname__
    message = (
        f"{problem.path} of {name} could not be stored: it {problem.message}. "
        "Only the process that ran the task has it."
    )
    return None, message


def store_value(form: Form, value: Any) -> Any:
    """Return a value as JSON; one of another type than was promised is coerced."""
    try:
        return form.store(value)
    except Invalid:
        encode(value, tagged=True)  # the coercion would use up an iterator
        return form.store(form.coerce(value))


def stored_context(run: Run) -> dict[str, Any]:
    """Return the declared inputs and outputs that can be stored."""
    inputs = forms_of(run.plan)
    stored: dict[str, Any] = {}
    for key, value, declared in given_inputs(run):
        with suppress(Exception):  # a result is never refused
            if declared is not None:
                stored[key] = store_input(inputs[key], value, declared)
    for name, form in output_forms(run.task).items():
        with suppress(Exception):
            stored[name] = store_value(form, run.context[name])
    return stored


def output_forms(cls: type[Task[Any]]) -> dict[str, Form]:
    """Return how the outputs of a task are stored."""
    outputs = cls._cmdx_.plan.fields.outputs.values()
    if not outputs:
        return {}
    names = module_names(cls)
    return {output.name: Form.of(output.annotation, names) for output in outputs}


def stored_outcome(outcome: Outcome) -> StoredOutcome:
    """Return an outcome as plain data."""
    stored: StoredOutcome = {"status": outcome.status}
    if outcome.reason is not None:
        stored["reason"] = outcome.reason
    if outcome.metadata:
        stored["metadata"] = json.loads(json_text(dict(outcome.metadata)))
    cause = stored_error(outcome.cause)
    if cause is not None:
        stored["cause"] = cause
    return stored


def stored_attempt(attempt: Attempt) -> StoredAttempt:
    """Return an attempt as plain data."""
    return {
        "start": attempt.start,
        "duration": attempt.duration,
        "error": stored_error(attempt.error),
        "pause": attempt.pause,
        "rule": attempt.rule,
    }


def stored_error(error: BaseException | None) -> StoredError | None:
    """Return what can be stored of an exception."""
    if error is None:
        return None
    try:
        recorded = record_error(error)
    except Exception:  # its traceback cannot be written
        recorded = RecordedError(error_name(error), error_text(error))
    return {
        "type_name": recorded.type_name,
        "message": recorded.message,
        "traceback": recorded.traceback,
    }


def stored_guidance(guidance: Guidance) -> StoredGuidance:
    """Return guidance as plain data."""
    is_endless = guidance.after == float("inf")
    return {
        "allowed": guidance.allowed,
        "strategy": guidance.strategy,
        "after": None if is_endless else guidance.after,
        "is_endless": is_endless,
        "max_attempts": guidance.max_attempts,
        "unit": guidance.unit,
    }


def stored_place(place: tuple[str, int]) -> StoredPlace:
    """Return where a task was halted as plain data."""
    file, line = place
    return {"file": file, "line": line}


STORERS: dict[str, Callable[[Any], Any]] = {
    "replaced": stored_outcome,
    "stopped": str,
    "halted_at": stored_place,
    "errors": lambda errors: [problem[:3] for problem in errors],
    "rollback_error": stored_error,
}
"""What makes JSON of those attributes of a record that not all records have."""

RUN_FACTS = {
    "retries": "attempt",
    "strict": "strict",
    "deprecated": "deprecated",
    "rolled_back": "rolled_back",
}
"""What is stored of a run unless it is zero or false, and the attribute it is from."""


def value_form(cls: type[Task[Any]]) -> Form:
    """Return how the value ``V`` of a ``Task[V]`` is stored."""
    if cls not in known_values:
        known_values[cls] = new_value_form(cls)
    return known_values[cls]


def new_value_form(cls: type[Task[Any]]) -> Form:
    """Return how the value is stored, by its annotation."""
    return Form.of(value_annotation(cls), module_names(cls))


def value_annotation(cls: type[Task[Any]]) -> Any:
    """Return ``V`` of a ``Task[V]``; ``None`` promises nothing, as ``Any`` does."""
    known = type_arguments(cls).get(Task, {})
    annotation = next(iter(known.values()), Any)
    try:
        annotation = evaluated_annotation(annotation, module_names(cls), {})
    except NameError:
        return Any
    return Any if annotation in (None, type(None)) else annotation


def unstorable_value(cls: type[Task[Any]]) -> type | None:
    """Return the class in the annotation of the value that cannot be stored, if any."""
    for _, found in kinds_in(value_annotation(cls), module_names(cls)):
        kind: type = get_origin(found) or found
        promises_nothing = kind in (Any, object, UnionType) or inspect.isabstract(kind)
        is_read_once = issubclass(kind, STREAMS)
        if is_read_once or not (promises_nothing or is_storable(kind)):
            return kind
    return None


# -- from JSON to a result ------------------------------------------------------------


def load_result(data: Mapping[str, Any], *, tasks: Sequence[str] = ()) -> Result[Any]:
    """
    Return the result that ``dump_result`` made *data* of.

    Its errors are ``RecordedError``, its context has the declared inputs and outputs,
    and its chain is itself. A class that is gone is replaced by one that cannot run.

    Args:
        data: The stored result.
        tasks: Packages and modules that may be imported to find the task.
    """
    stored: StoredResult = read_stored(data, StoredResult, "dump_result")
    cls = task_of(stored, tasks)
    record = Record(loaded_run(cls, stored))
    record.outcome = loaded_outcome(stored["outcome"])
    record.value, record.lost_value = loaded_value(cls, stored)
    for name, fact in stored.items():
        if name in LOADERS:
            setattr(record, name, LOADERS[name](fact))
    chain = Chain()
    chain._id, chain.xid = stored["cid"], stored.get("xid")
    result: Result[Any] = Result.of(record, chain)
    chain.join(result)
    return result


def task_of(stored: StoredResult, tasks: Sequence[str]) -> type[Task[Any]]:
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


def loaded_run(cls: type[Task[Any]], stored: StoredResult) -> Run:
    """Return the finished run of a stored result."""
    run = Run(cls._cmdx_.plan, None, {})
    del run.is_unused
    run.phase = "finished"
    run._tid = stored["tid"]
    run.started_at, run.ended = stored["started_at"], stored["duration"]
    for name, attribute in RUN_FACTS.items():
        if name in stored:
            setattr(run, attribute, stored[name])  # type: ignore[literal-required]
    run._context = Context(dict(loaded_context(cls, stored["context"])))
    return run


def loaded_context(
    cls: type[Task[Any]], context: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the declared inputs and outputs that can still be read."""
    forms = {**forms_of(cls._cmdx_.plan), **output_forms(cls)}
    for key in forms.keys() & context.keys():
        stored = context[key]
        try:
            yield key, None if stored is None else forms[key].load(stored)
        except Invalid:
            continue


def loaded_value(cls: type[Task[Any]], stored: StoredResult) -> tuple[Any, str | None]:
    """Return the value, or None and why there is none."""
    is_success = stored["outcome"]["status"] == Status.SUCCESS
    value, lost_value = stored.get("value"), stored.get("lost_value")
    if not is_success or lost_value is not None or value is None:
        return None, lost_value
    try:
        return value_form(cls).load(value), None
    except Invalid as invalid:
        problem = invalid.below("value")
    message = (
        f"{problem.path} of {cls.__qualname__} was stored, but {problem.message}. "
        "The task has changed since, or the data was."
    )
    return None, message


def loaded_outcome(stored: StoredOutcome) -> Outcome:
    """Return the outcome behind plain data."""
    metadata = MappingProxyType(stored.get("metadata", {}))
    cause = loaded_error(stored.get("cause"))
    return Outcome(Status(stored["status"]), stored.get("reason"), metadata, cause)


def loaded_attempts(stored: Sequence[StoredAttempt]) -> list[AttemptFields]:
    """Return the attempts behind plain data, each as a tuple of its fields."""
    return [
        (
            attempt["start"],
            attempt["duration"],
            loaded_error(attempt["error"]),
            attempt["pause"],
            attempt["rule"],
        )
        for attempt in stored
    ]


def loaded_errors(stored: Sequence[tuple[str, str, str | None]]) -> FrozenErrors:
    """Return the problems behind plain data."""
    problems = [Problem(*problem) for problem in stored]
    return FrozenErrors({problem[:2]: problem for problem in problems})


def loaded_place(stored: StoredPlace) -> tuple[str, int]:
    """Return where a task was halted."""
    return stored["file"], stored["line"]


def loaded_error(stored: StoredError | None) -> RecordedError | None:
    """Return the exception behind plain data."""
    return None if stored is None else RecordedError(**stored)


def loaded_guidance(stored: StoredGuidance) -> Guidance:
    """Return the guidance behind plain data."""
    try:
        return Guidance(
            stored["allowed"],
            stored["strategy"],
            float("inf") if stored["is_endless"] else stored["after"],
            stored["max_attempts"],
            unit=stored["unit"],
        )
    except CmdxError as error:
        message = f"this is not what dump_result returns: {error}"
    raise WireError(message)


LOADERS: dict[str, Callable[[Any], Any]] = {
    "replaced": loaded_outcome,
    "attempts": loaded_attempts,
    "stopped": Stop,
    "halted_at": loaded_place,
    "errors": loaded_errors,
    "rollback_error": loaded_error,
    "guidance": loaded_guidance,
}
"""What makes those attributes of a record from JSON that not all records have."""
