"""
Outcomes as JSON, and what else is known about a failure.

An HTTP answer to a stored failure is the same as to the failure itself; so exceptions
are stored with their codes.

1. status, reason, metadata and cause      ``outcome_data``, ``outcome_from``
2. the exception, with its codes           ``cause_data``, ``cause_from``
3. the problems that were collected        ``problems_data``, ``problems_from``
4. what it says about trying again         ``guidance_data``, ``guidance_from``
5. where the task was halted               ``place_data``, ``place_from``
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cmdx import RecordedError, Status
from cmdx.exceptions import CmdxError
from cmdx.guidance import Guidance
from cmdx.guidance.codes import code_of_class, text_or_status
from cmdx.inputs.errors import FrozenErrors, Problem
from cmdx.outcome import Outcome
from cmdx.run.continuation import error_data, metadata_as_json, problem_data
from cmdx.values import text_of
from cmdx.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmdx import Result
    from cmdx.wire.layout import (
        StoredCodedError,
        StoredGuidance,
        StoredOutcome,
        StoredPlace,
    )

STATUSES = {status.value: status for status in Status}
"""Faster than ``Status(value)``."""


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON."""
    data: dict[str, Any] = {"status": outcome.status}
    if outcome.reason is not None:
        data["reason"] = text_of(outcome.reason)
    if outcome.metadata:
        data["metadata"] = metadata_as_json(outcome.metadata)
    if outcome.cause is not None:
        data["cause"] = cause_data(outcome.cause)
    return data


def outcome_from(stored: StoredOutcome, origin: Result[Any] | None = None) -> Outcome:
    """Return the outcome behind JSON; it passes *origin* on, if any."""
    status, reason = STATUSES[stored["status"]], stored.get("reason")
    metadata = MappingProxyType(stored.get("metadata", {}))
    cause = cause_from(stored["cause"]) if "cause" in stored else None
    return Outcome(status, reason, metadata, cause, origin)


def cause_data(error: BaseException) -> dict[str, Any]:
    """Return the exception behind a failure as JSON."""
    data: dict[str, Any] = error_data(error)
    codes = {"code": text_or_status(error), "class_code": code_of_class(error)}
    return data | {name: code for name, code in codes.items() if code is not None}


def cause_from(stored: StoredCodedError) -> RecordedError:
    """Return what stands for the exception behind JSON."""
    return RecordedError(
        stored["type_name"],
        stored["message"],
        stored["traceback"],
        code=stored.get("code"),
        class_code=stored.get("class_code"),
    )


def problems_data(problems: Iterable[Problem]) -> list[Any]:
    """Return the problems of a run as JSON."""
    return [problem_data(problem) for problem in problems]


def problems_from(stored: Sequence[tuple[str, str, str | None]]) -> FrozenErrors:
    """Return the problems behind JSON."""
    problems = [Problem(*problem) for problem in stored]
    return FrozenErrors({problem[:2]: problem for problem in problems})


def guidance_data(guidance: Guidance) -> StoredGuidance:
    """Return guidance as JSON."""
    is_endless = guidance.after == float("inf")
    return {
        "allowed": guidance.allowed,
        "strategy": guidance.strategy,
        "after": None if is_endless else guidance.after,
        "is_endless": is_endless,
        "max_attempts": guidance.max_attempts,
        "unit": guidance.unit,
    }


def guidance_from(stored: StoredGuidance) -> Guidance:
    """Return the guidance behind JSON."""
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


def place_data(place: tuple[str, int | None]) -> StoredPlace:
    """Return where a task was halted as JSON; not every instruction has a line."""
    file, line = place
    return {"file": text_of(file), "line": line or 0}


def place_from(stored: StoredPlace) -> tuple[str, int]:
    """Return where a task was halted."""
    return stored["file"], stored["line"]
