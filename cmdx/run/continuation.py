"""
A run that is continued elsewhere.

A *leg* is the part of a run that is done in one sitting. A pause that is longer than
``longest_pause`` ends the leg: ``Suspended`` is raised, which has all that another
invocation of the same task needs to go on.

1. a pause is too long to be slept here               ``suspend``
2. the leg ends without callbacks and rollback        ``cmdx.run.lifecycle``
3. the suspension is stored as plain data             ``Suspended.to_dict``
4. it is checked before another invocation starts     ``check_earlier``
5. which goes on where the run stopped                ``resume``

The functions that make plain data of errors, attempts and problems take whatever user
code has put there, and never raise; ``cmdx.wire`` uses them for results.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx import clock
from cmdx.chain import chain_of
from cmdx.declare.keywords import place_of
from cmdx.exceptions import RecordedError
from cmdx.inputs.errors import Problem
from cmdx.outcome import Attempt
from cmdx.report import error_name, error_text
from cmdx.values import json_data, plain_code, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cmdx.run.record import Run
    from cmdx.task import Task

Layout: TypeAlias = dict[str, tuple[type, ...]]
"""The keys of plain data, with the types that their values may have."""

SUSPENSION_LAYOUT: Layout = {
    "run_id": (str,),
    "xid": (str, NoneType),
    "started_at": (float, int),
    "attempts": (list,),
    "metadata": (dict,),
    "errors": (list,),
    "pause": (float, int),
}
ATTEMPT_LAYOUT: Layout = {
    "start": (float, int),
    "duration": (float, int),
    "error": (dict, NoneType),
    "pause": (float, int, NoneType),
    "rule": (str, NoneType),
}
ERROR_LAYOUT: Layout = dict.fromkeys(("type_name", "message", "traceback"), (str,))
PROBLEM_LAYOUT: Layout = {"key": (str,), "message": (str,), "code": (str, NoneType)}

NOT_STORED = "not_stored"
"""The key of metadata that says what could not be stored."""


class Suspended(BaseException):
    """
    A run has to wait longer than ``longest_pause``, and can be continued elsewhere.

    It is neither an error nor an interrupt: the run is not rolled back, and not
    announced as cancelled. Run another invocation of the same task with
    ``run(earlier=suspended)`` after *pause* seconds, in this process or another one.
    A pickle or copy of it has what ``to_dict`` has.

    Args:
        run_id: The id of the run.
        xid: The correlation id of its chain.
        started_at: When its first leg began, in seconds of the wall clock.
        attempts: The calls of ``work`` so far.
        metadata: What the task has noted down.
        errors: The problems that the task has collected.
        pause: The seconds to wait before the next attempt.
        task: The ``name`` of the task, or else its module and qualified name; it is
            not part of ``to_dict``, which is stored beside the invocation.
    """

    def __init__(  # noqa: PLR0913 -- by keyword
        self,
        *,
        run_id: str,
        xid: str | None,
        started_at: float,
        attempts: Iterable[Attempt],
        metadata: Mapping[str, Any],
        errors: Iterable[Problem],
        pause: float,
        task: str | None = None,
    ) -> None:
        super().__init__(f"the run {run_id} goes on in {pause} s")
        self.task = task
        self.run_id = run_id
        self.xid = xid
        self.started_at = started_at
        self.attempts = tuple(attempts)
        self.metadata = dict(metadata)
        self.errors = tuple(errors)
        self.pause = pause

    def to_dict(self) -> dict[str, Any]:
        """Return the suspension as plain data, to be stored as JSON."""
        return {
            "run_id": self.run_id,
            "xid": None if self.xid is None else text_of(self.xid),
            "started_at": self.started_at,
            "attempts": [attempt_data(attempt) for attempt in self.attempts],
            "metadata": metadata_as_json(self.metadata),
            "errors": [problem_data(problem) for problem in self.errors],
            "pause": self.pause,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], task: str | None = None) -> Suspended:
        """Return the suspension behind the *data* of ``to_dict``; refuse other data."""
        try:
            check_suspension(data)
        except (TypeError, ValueError) as error:
            message = (
                f"this is not what Suspended.to_dict() returns: {error}. "
                "Store it as JSON, and give it back unchanged."
            )
            raise ValueError(message) from None
        attempts = [attempt_from(attempt) for attempt in data["attempts"]]
        errors = [Problem(*problem) for problem in data["errors"]]
        return cls(**{**data, "attempts": attempts, "errors": errors}, task=task)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as plain data: metadata may hold what cannot be pickled."""
        return type(self).from_dict, (self.to_dict(), self.task)


# -- plain data -----------------------------------------------------------------------


def metadata_as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return metadata as JSON; what JSON does not know is written as its repr.

    A ``code`` is written as ``plain_code`` has it, so that it is the same code again.
    One that is none is left out if it would be one as text.
    """
    data = json_data(dict(metadata))
    if type(data) is not dict:
        return {NOT_STORED: data}
    if "code" in data:
        code = plain_code(metadata.get("code"))
        if code is not None:
            data["code"] = code
        elif isinstance(data["code"], str):
            del data["code"]
    return data


def problem_data(problem: Problem) -> list[str | None]:
    """Return a problem as plain data."""
    code = None if problem.code is None else text_of(problem.code)
    return [text_of(problem.key), text_of(problem.message), code]


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as plain data."""
    return {
        "start": attempt.start,
        "duration": attempt.duration,
        "error": None if attempt.error is None else error_data(attempt.error),
        "pause": attempt.pause,
        "rule": attempt.rule,
    }


def attempt_from(data: Mapping[str, Any]) -> Attempt:
    """Return the attempt behind the *data* of ``attempt_data``."""
    start, duration, error, pause, rule = (data[name] for name in ATTEMPT_LAYOUT)
    recorded = None if error is None else error_from(error)
    return Attempt(start, duration, recorded, pause, rule)


def error_data(error: BaseException) -> dict[str, str]:
    """Return an error as plain data."""
    recorded = record_error(error)
    return {name: text_of(getattr(recorded, name)) for name in ERROR_LAYOUT}


def error_from(data: Mapping[str, Any]) -> RecordedError:
    """Return the error behind the *data* of ``error_data``."""
    return RecordedError(*(data[name] for name in ERROR_LAYOUT))


def record_error(error: BaseException) -> RecordedError:
    """Return what can be stored of *error*."""
    if isinstance(error, RecordedError):
        return error
    return RecordedError(error_name(error), error_text(error), traceback_text(error))


def traceback_text(error: BaseException) -> str:
    """Return where *error* was raised, nothing if that is not known."""
    if error.__traceback__ is None:
        return ""
    from traceback import format_exception

    try:
        return "".join(format_exception(error))
    except Exception:  # an attribute of the error raises, or it contains itself
        return ""


def check_suspension(data: Mapping[str, Any]) -> None:
    """Refuse data that ``Suspended.to_dict`` cannot have made, with its path."""
    check_keys(data, SUSPENSION_LAYOUT, "")
    if data["pause"] < 0:
        message = "pause cannot be negative"
        raise ValueError(message)
    for number, attempt in enumerate(data["attempts"]):
        check_keys(attempt, ATTEMPT_LAYOUT, f"attempts[{number}].")
        if attempt["error"] is not None:
            check_keys(attempt["error"], ERROR_LAYOUT, f"attempts[{number}].error.")
    for number, problem in enumerate(data["errors"]):
        if type(problem) is not list or len(problem) != len(PROBLEM_LAYOUT):
            message = f"errors[{number}] must be a key, a message and a code"
            raise ValueError(message)
        named = dict(zip(PROBLEM_LAYOUT, problem, strict=True))
        check_keys(named, PROBLEM_LAYOUT, f"errors[{number}].")


def check_keys(data: Any, layout: Layout, path: str) -> None:
    """Refuse data that has other keys than *layout*, or values of other types."""
    if not isinstance(data, Mapping):
        what = path.removesuffix(".") or "it"
        message = f"{what} cannot be {type(data).__qualname__}"
        raise TypeError(message)
    if data.keys() != layout.keys():
        key = min(map(str, data.keys() ^ layout.keys()))
        message = f"{path}{key} is {'missing' if key in layout else 'not known'}"
        raise ValueError(message)
    for key, types in layout.items():
        if type(data[key]) not in types:
            message = f"{path}{key} cannot be {type(data[key]).__qualname__}"
            raise TypeError(message)
        if data[key] != data[key]:
            message = f"{path}{key} cannot be NaN"
            raise ValueError(message)


# -- from one leg to the next ---------------------------------------------------------


def suspend(run: Run) -> Suspended:
    """Return what leaves the leg of *run* in place of a pause."""
    attempts = [Attempt(*fields) for fields in run.record.attempts]
    return Suspended(
        task=task_id(run.task),
        run_id=run.tid,
        xid=None if run.chain is None else run.chain.xid,
        started_at=run.started_at,
        attempts=map(record_attempt, attempts),
        metadata=run._metadata or {},
        errors=run._errors or (),
        pause=run.pause,
    )


def record_attempt(attempt: Attempt) -> Attempt:
    """Return what can be stored of *attempt*, which holds no frames any more."""
    error = attempt.error
    return attempt._replace(error=None if error is None else record_error(error))


def is_suspension(error: BaseException, run: Run) -> bool:
    """Tell whether *error* ends a leg of *run*, rather than the run."""
    return isinstance(error, Suspended) and error.run_id == run._tid


def check_earlier(earlier: object, cls: type[Task[Any]]) -> Suspended:
    """Return the suspension that *cls* is to continue; refuse anything else."""
    if isinstance(earlier, Mapping):
        earlier = Suspended.from_dict(earlier)
    if not isinstance(earlier, Suspended) or not earlier.attempts:
        message = (
            f"earlier must be a Suspended that a run has raised, or its to_dict(), "
            f"got {type(earlier).__qualname__}."
        )
        raise TypeError(message)
    if earlier.task is not None and not is_task(earlier.task, cls):
        message = (
            f"a run of {earlier.task} was suspended, and {task_id(cls)} cannot "
            "continue it. Run another invocation of the same task."
        )
        raise ValueError(message)
    return earlier


def task_id(cls: type[Task[Any]]) -> str:
    """Return the ``name`` of a task, or else its module and qualified name."""
    return str(cls._cmdx_.keywords.get("name") or place_of(cls))


def is_task(name: str, cls: type[Task[Any]]) -> bool:
    """Tell whether *name* identifies a task; the main program counts as any module."""
    module, _, qualname = name.rpartition(":")
    own_module, _, own_qualname = task_id(cls).rpartition(":")
    is_module = module == own_module or "__main__" in (module, own_module)
    return is_module and qualname == own_qualname


def resume(run: Run, earlier: Suspended) -> None:
    """Have *run*, which has just begun, go on where *earlier* stopped."""
    run.earlier = earlier
    run._tid = earlier.run_id
    run.started -= clock.current.get().time() - earlier.started_at
    run.started_at = earlier.started_at
    run.attempt = len(earlier.attempts)
    run.pause = earlier.pause
    run.record.attempts = list(earlier.attempts)
    run.retries_by_rule = retries_by_rule(earlier.attempts)
    run.metadata.update(earlier.metadata)
    if earlier.xid is not None:
        chain_of(run).xid = earlier.xid


def retries_by_rule(
    attempts: Iterable[Attempt],
) -> dict[str | None, tuple[int, float]]:
    """Return how often each rule has tried again, and its last pause."""
    known: dict[str | None, tuple[int, float]] = {}
    for attempt in attempts:
        count, _ = known.get(attempt.rule, (0, 0.0))
        known[attempt.rule] = count + 1, attempt.pause or 0.0
    return known
