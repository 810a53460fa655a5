"""
Guidance from errors, results, HTTP answers and responses.

Whatever cannot be read is ignored: what comes from outside must never break the run
that asks for advice about a failure it already has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import Fault, Result, clock
from cmdx.guidance.codes import (
    CLIENT_ERRORS,
    RATE_LIMITED,
    SERVER_ERRORS,
    code_of_status,
    code_of_value,
    statuses,
)
from cmdx.guidance.codes import codes as known_codes
from cmdx.guidance.meaning import Guidance, Strategy, readable_seconds, seconds_in
from cmdx.guidance.wire import (
    RETRY,
    code_of_response,
    part,
    wait_for_reset,
    wait_in_details,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Codes = Mapping[str, Guidance]

NUMBER = re.compile(r"(\d+(?:\.\d+)?) *s?", re.ASCII)
HTTP_DATE = re.compile(r"[A-Z][a-z]{2,8},? .*\d.*")
QUOTED = re.compile(r'"[^"]*"')
PARAMETER = re.compile(r"(\w+) *= *(\d+)", re.ASCII)

NANOSECOND = 1e-9
DELAYS = ("retry_after", "retryAfter", "retry-after", "retryDelay", "retry_delay")
"""What the members of a JSON object are called that hold a wait."""

PROBLEMS = {
    "QUOTA_EXCEEDED": RATE_LIMITED,
    "TEMPORARY_REDUCED_CAPACITY": "UNAVAILABLE",
}
"""Problem types proposed for registration that mean one of our codes."""


# -- errors and results ---------------------------------------------------------


def guidance_of(failure: object) -> Guidance | None:
    """
    Return what a failure says about trying again; None if it says nothing readable.

    An exception says it by ``guidance``, a ``Guidance`` or what is on the wire, or by
    ``retry_after``: seconds, a ``timedelta``, the text of a ``Retry-After`` header, or
    something like a ``google.rpc.RetryInfo``. A result says it by its metadata of the
    same names, by a ``code`` in them, or by its cause; a ``Fault`` by its result.
    """
    if isinstance(failure, Result):
        return _said_by_result(failure)
    said = read(_attribute(failure, "guidance"))
    said = said or read(_attribute(failure, "retry_after"))
    if said is None and isinstance(failure, Fault):
        return _said_by_result(failure.result)
    return said


def _said_by_result(result: Result[Any] | None) -> Guidance | None:
    while result is not None and result.failed:
        said = said_by_metadata(result.metadata)
        code = code_of_value(result.metadata.get("code"))
        if said is None and _is_known(code):
            said = Guidance.for_code(code)
        if said is None and not isinstance(result.cause, Fault):
            said = guidance_of(result.cause)
        if said is not None:
            return said
        result = result.origin
    return None


def said_by_metadata(metadata: Mapping[str, Any]) -> Guidance | None:
    """Return what was noted for the caller when a task was failed."""
    details = metadata.get("details")
    noted = details.get("retry_after") if isinstance(details, Mapping) else None
    return (
        read(metadata.get("guidance"))
        or read(metadata.get("retry_after"))
        or read(noted)
    )


def read(value: object) -> Guidance | None:
    """Return the guidance that *value* is, or that a wait of so long means."""
    if isinstance(value, Guidance):
        return value
    return guidance_in(value) or after(seconds_of(value))


def after(seconds: float | None) -> Guidance | None:
    """Return the guidance of one who only says when."""
    if seconds is None:
        return None
    return Guidance(allowed=True, strategy=Strategy.FIXED, after=seconds)


def _attribute(failure: object, name: str) -> object:
    try:
        return getattr(failure, name, None)
    except Exception:  # of a property
        return None


def _is_known(code: str | None) -> bool:
    return code in known_codes or code in statuses


# -- responses ------------------------------------------------------------------


def guidance_in(response: object) -> Guidance | None:
    """
    Return the guidance in a response, or in a retry entry or its data.

    A wait that the entry leaves out is taken from the details of the error, or from
    the rate limit in the same response.
    """
    if not isinstance(response, Mapping) or "extensions" not in response:
        return Guidance.from_wire(response)
    guidance = Guidance.from_wire(part(response, RETRY, "data"))
    if guidance is None or guidance.after is not None:
        return guidance
    wait = wait_in_details(response)
    wait = wait_for_reset(response) if wait is None else wait
    return attrs.evolve(guidance, after=wait)


# -- HTTP -----------------------------------------------------------------------


def http_guidance(
    status: int | None, headers: object, body: object, codes: Codes | None = None
) -> Guidance | None:
    """Read the answer to an HTTP request; see ``Guidance.from_http``."""
    fields, problem = _fields(headers), _decoded(body)
    if not isinstance(status, int):
        status = problem.get("status")
    if isinstance(status, int) and status not in (*CLIENT_ERRORS, *SERVER_ERRORS):
        return None
    usual = _usual(problem, status, known_codes if codes is None else codes)
    said = _said_on_the_wire(problem) or after(seconds_of(fields.get("retry-after")))
    if said is None and (usual is None or usual.allowed):
        limited = usual is not None and code_of_status(status) == RATE_LIMITED
        said = after(_wait_for_reset(fields, limited=limited))
    return said or _said_by_problem(problem) or usual


def _said_on_the_wire(problem: Mapping[str, Any]) -> Guidance | None:
    """Return the guidance of a response, or of a problem that has a member for it."""
    if "extensions" in problem:
        return guidance_in(problem)
    return Guidance.from_wire(problem.get("guidance") or problem.get("retry"))


def _usual(problem: Mapping[str, Any], status: object, codes: Codes) -> Guidance | None:
    """Return what a code or the status means when nothing more is said."""
    for code in (*_codes_in(problem), code_of_status(status)):
        if code is not None and (code in codes or _is_known(code)):
            return Guidance.for_code(code, codes=codes)
    return None


def _codes_in(problem: Mapping[str, Any]) -> Iterator[str | None]:
    yield code_of_response(problem)
    error = problem.get("error")
    status = error.get("status") if isinstance(error, Mapping) else None
    kind = re.split(r"[/#:]", str(problem.get("type", "")))[-1]
    for text in (problem.get("code"), status, kind.replace("-", "_").upper()):
        if isinstance(text, str):
            yield PROBLEMS.get(text, text)


def _said_by_problem(problem: Mapping[str, Any]) -> Guidance | None:
    """Return what a problem, or an error with a ``RetryInfo``, says about waiting."""
    holders: list[object] = [problem, problem.get("error")]
    for holder in tuple(holders):
        details = holder.get("details") if isinstance(holder, Mapping) else None
        holders += details if isinstance(details, list) else [details]
    waits = (seconds_of(each) for each in holders if isinstance(each, Mapping))
    wait = next((each for each in waits if each is not None), None)
    return after(wait_in_details(problem) if wait is None else wait)


def _wait_for_reset(fields: Mapping[str, str], *, limited: bool) -> float | None:
    """Return the seconds until the limits are reset that have been used up."""
    limits = list(_limits(QUOTED.sub("", fields.get("ratelimit", ""))))
    limits.append((fields.get("ratelimit-remaining"), fields.get("ratelimit-reset")))
    used_up = [reset for remaining, reset in limits if remaining == "0"]
    if limited:
        used_up = used_up or [reset for _, reset in limits]
    waits = (seconds_of(reset) for reset in used_up)
    return max((each for each in waits if each is not None), default=None)


def _limits(text: str) -> Iterator[tuple[str | None, str | None]]:
    """Yield what remains and when it is reset, in both forms drafts have had."""
    whole = dict(PARAMETER.findall(text))
    if "reset" in whole:
        yield whole.get("remaining"), whole["reset"]
        return
    for limit in text.split(","):
        parameters = dict(PARAMETER.findall(limit))
        yield parameters.get("r"), parameters.get("t")


def _fields(headers: Any) -> dict[str, str]:
    """Return headers by their names in lower case; lists in several lines as one."""
    fields: dict[str, str] = {}
    try:
        pairs: Iterable[Any] = (
            headers.items() if hasattr(headers, "items") else headers or ()
        )
        for name, value in pairs:
            key, line = _text(name).lower(), _text(value)
            fields[key] = f"{fields[key]}, {line}" if key in fields else line
    except Exception:
        return fields
    return fields


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _decoded(body: object) -> Mapping[str, Any]:
    if isinstance(body, str | bytes | bytearray):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return {}
    return body if isinstance(body, Mapping) else {}


# -- seconds --------------------------------------------------------------------


def seconds_of(value: object) -> float | None:
    """
    Return how long *value* asks to wait; None if that cannot be read.

    It may be a number of seconds, a ``timedelta``, a ``datetime`` with a time zone,
    the text of a ``Retry-After`` header, a value with a unit, or something like a
    ``google.rpc.RetryInfo`` or its ``Duration``, as an object or as JSON.
    """
    try:
        return readable_seconds(_seconds(value))
    except Exception:  # values of others, with properties of others
        return None


def _seconds(value: Any) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return _until(value)
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        return _seconds_in_text(value.strip())
    if isinstance(value, Mapping):
        return _seconds_in_mapping(value)
    if hasattr(value, "retry_delay"):
        return _seconds(value.retry_delay)
    if hasattr(value, "nanos"):
        return value.seconds + value.nanos * NANOSECOND
    return value


def _seconds_in_text(text: str) -> object:
    number = NUMBER.fullmatch(text)
    if number is not None:
        return float(number[1])
    if HTTP_DATE.fullmatch(text) is None:
        return None
    from email.utils import parsedate_to_datetime

    moment = parsedate_to_datetime(text)
    return _until(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _seconds_in_mapping(value: Mapping[Any, Any]) -> object:
    for name in DELAYS:
        if name in value:
            return _seconds(value[name])
    if "seconds" in value or "nanos" in value:
        nanos = value.get("nanos", 0) * NANOSECOND
        return float(value.get("seconds", 0)) + nanos
    return seconds_in(value)


def _until(moment: datetime) -> float:
    """Return the seconds until *moment*; one that has passed is now."""
    if moment.tzinfo is None:
        message = "a moment without a time zone could be any"
        raise ValueError(message)
    return max(moment.timestamp() - clock.current.get().time(), 0.0)
