"""
Guidance from errors, results, HTTP responses and Forrst responses.

Values that cannot be read are ignored: input from outside must not break a run that is
already handling a failure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import Fault, Result, clock
from cmdx.guidance.codes import (
    CLIENT_ERRORS,
    RATE_LIMITED,
    SERVER_ERRORS,
    attribute_of,
    code_in_text,
    code_of_status,
    statuses,
)
from cmdx.guidance.codes import codes as known_codes
from cmdx.guidance.failures import failures_of, notes_of
from cmdx.guidance.guidance import (
    Guidance,
    Strategy,
    readable_seconds,
    seconds_from_wire,
)
from cmdx.guidance.protocol import (
    RETRY_URN,
    code_of_response,
    extension_part,
    wait_for_reset,
    wait_in_details,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    CodeTable = Mapping[str, Guidance]

READ_LIMIT = 8192
"""The number of characters of a header or a text that are read at most."""

NUMBER = re.compile(r"(\d+(?:\.\d+)?) *s?", re.ASCII)
LISTED = re.compile(r"(?: *[A-Z][a-z]{2,8},[^,]*?[A-Z\d]|[^,]+)(?=,|$)")
"""One of several values that were joined by commas; a date has a comma itself."""
DATE_START = re.compile(r"[A-Z][a-z]{2,8},? ")
LONGEST_DATE = 64
REPR = re.compile(r"[A-Za-z_][\w.]*\(")
"""
The start of the repr of an object, such as a ``datetime`` without a time zone.

Stored metadata has it in place of the object; its numbers are not waits.
"""
QUOTED = re.compile(r'"[^"]*"')
READ_HEADERS = {"retry-after", "ratelimit", "ratelimit-remaining", "ratelimit-reset"}

NANOSECOND = 1e-9
WAIT_NAMES = ("retry_after", "retryAfter", "retry-after", "retryDelay", "retry_delay")
"""The names of JSON members that hold a wait."""

PROBLEM_CODES = {
    "QUOTA_EXCEEDED": RATE_LIMITED,
    "TEMPORARY_REDUCED_CAPACITY": "UNAVAILABLE",
}
"""Problem types proposed for registration, and the codes they correspond to."""


# -- errors and results ---------------------------------------------------------


def guidance_of(failure: object) -> Guidance | None:
    """
    Return what a failure says about retrying; None if it says nothing readable.

    An exception may have ``guidance``, a ``Guidance`` or its JSON form, or
    ``retry_after``: a number of seconds, a ``timedelta``, a ``datetime`` with a time
    zone, the text of a ``Retry-After`` header, or an object like a
    ``google.rpc.RetryInfo``. A result may have the same names in its metadata, or a
    ``code``; then its cause is read. A code that is an HTTP status says nothing about
    retrying.

    Args:
        failure: An exception, a failed result or a ``Fault``.
    """
    if isinstance(failure, Result):
        return _guidance_of_result(failure)
    found = guidance_from(attribute_of(failure, "guidance"))
    found = found or guidance_from(attribute_of(failure, "retry_after"))
    if found is None and isinstance(failure, Fault):
        return _guidance_of_result(failure._failure)
    return found


def _guidance_of_result(result: Result[Any] | None) -> Guidance | None:
    if result is None:
        return None
    found = (own_guidance(failure) for failure in failures_of(result))
    return next((guidance for guidance in found if guidance is not None), None)


def own_guidance(result: Result[Any]) -> Guidance | None:
    """Return what a failure says itself about retrying, without its origin."""
    if not result.failed:
        return None
    notes = notes_of(result)
    found = result._record.guidance or guidance_in_metadata(notes)
    code = code_in_text(notes.get("code"))
    if found is None and _is_known(code):
        return Guidance.for_code(code)
    if found is None and not isinstance(result.cause, Fault):
        return guidance_of(result.cause)
    return found


def guidance_in_metadata(metadata: Mapping[str, Any]) -> Guidance | None:
    """Return the guidance that a task gave when it failed."""
    details = metadata.get("details")
    in_details = details.get("retry_after") if isinstance(details, Mapping) else None
    return (
        guidance_from(metadata.get("guidance"))
        or guidance_from(metadata.get("retry_after"))
        or guidance_from(in_details)
    )


def guidance_from(value: object) -> Guidance | None:
    """Return *value* as guidance; a wait of any form becomes a fixed pause."""
    if isinstance(value, Guidance):
        return value
    return guidance_in(value) or fixed_wait(seconds_of(value))


def fixed_wait(seconds: float | None) -> Guidance | None:
    """Return the guidance to wait for *seconds*; None for None."""
    if seconds is None:
        return None
    return Guidance(allowed=True, strategy=Strategy.FIXED, after=seconds)


def _is_known(code: str | None) -> bool:
    return code in known_codes or code in statuses


# -- responses ------------------------------------------------------------------


def guidance_in(response: object) -> Guidance | None:
    """
    Return the guidance in a response; None if there is none.

    If the retry entry has no ``after``, the wait is taken from the details of the
    primary error, or from the rate limit in the same response.

    Args:
        response: A response, a retry entry, or the data of a retry entry.
    """
    if not isinstance(response, Mapping) or "extensions" not in response:
        return Guidance.from_wire(response)
    guidance = Guidance.from_wire(extension_part(response, RETRY_URN, "data"))
    if guidance is None or guidance.after is not None:
        return guidance
    wait = wait_in_details(response)
    wait = wait_for_reset(response) if wait is None else wait
    return attrs.evolve(guidance, after=wait)


# -- HTTP -----------------------------------------------------------------------


def http_guidance(
    status: int | None,
    headers: object,
    body: object,
    *,
    codes: CodeTable | None = None,
    by_status: bool = False,
) -> Guidance | None:
    """Read an HTTP response; see ``Guidance.from_http``."""
    fields, problem = _header_fields(headers), _json_object(body)
    if not isinstance(status, int):
        status = problem.get("status")
    if isinstance(status, int) and status not in (*CLIENT_ERRORS, *SERVER_ERRORS):
        return None
    table = known_codes if codes is None else codes
    by_code = _guidance_by_code(_codes_in(problem), table)
    default = by_code or _guidance_by_code([code_of_status(status)], table)
    found = _guidance_in_body(problem)
    found = found or fixed_wait(seconds_of(fields.get("retry-after")))
    if found is None and (default is None or default.allowed):
        limited = default is not None and code_of_status(status) == RATE_LIMITED
        found = fixed_wait(_wait_for_header_reset(fields, limited=limited))
    found = found or fixed_wait(_wait_in_problem(problem))
    return found or (default if by_status else by_code)


def _guidance_in_body(problem: Mapping[str, Any]) -> Guidance | None:
    """Return the guidance of a Forrst response, or of a problem with such a member."""
    if "extensions" in problem:
        return guidance_in(problem)
    return Guidance.from_wire(problem.get("guidance") or problem.get("retry"))


def _guidance_by_code(
    candidates: Iterable[str | None], table: CodeTable
) -> Guidance | None:
    """Return the guidance for the first of *candidates* that is a known code."""
    for code in candidates:
        if code is not None and (code in table or _is_known(code)):
            return Guidance.for_code(code, codes=table)
    return None


def _codes_in(problem: Mapping[str, Any]) -> Iterator[str | None]:
    yield code_of_response(problem)
    error = problem.get("error")
    status = error.get("status") if isinstance(error, Mapping) else None
    kind = re.split(r"[/#:]", str(problem.get("type", ""))[:READ_LIMIT])[-1]
    for text in (problem.get("code"), status, kind.replace("-", "_").upper()):
        if isinstance(text, str):
            yield PROBLEM_CODES.get(text, text)


def _wait_in_problem(problem: Mapping[str, Any]) -> float | None:
    """Return the wait in a problem, or in an error with a ``RetryInfo``."""
    holders: list[object] = [problem, problem.get("error")]
    for holder in tuple(holders):
        details = holder.get("details") if isinstance(holder, Mapping) else None
        holders += details if isinstance(details, list) else [details]
    waits = (seconds_of(holder) for holder in holders if isinstance(holder, Mapping))
    wait = next((wait for wait in waits if wait is not None), None)
    return wait_in_details(problem) if wait is None else wait


def _wait_for_header_reset(fields: Mapping[str, str], *, limited: bool) -> float | None:
    """Return the seconds until the limits with nothing remaining are reset."""
    limits = list(_rate_limits(fields.get("ratelimit", "")))
    limits.append((fields.get("ratelimit-remaining"), fields.get("ratelimit-reset")))
    used_up = [reset for remaining, reset in limits if remaining == "0"]
    if limited:
        used_up = used_up or [reset for _, reset in limits]
    waits = map(seconds_of, used_up)
    return max((wait for wait in waits if wait is not None), default=None)


def _rate_limits(text: str) -> Iterator[tuple[str | None, str | None]]:
    """Yield what remains and when it is reset, for each limit of a RateLimit header."""
    if len(text) > READ_LIMIT:  # only limits that are complete
        text = text[:READ_LIMIT].rpartition(",")[0]
    limits = [_limit_parameters(limit) for limit in QUOTED.sub("", text).split(",")]
    whole = {name: value for limit in limits for name, value in limit.items()}
    if "reset" in whole:  # an older form of the header, with one limit
        yield whole.get("remaining"), whole["reset"]
        return
    for limit in limits:
        yield limit.get("r"), limit.get("t")


def _limit_parameters(text: str) -> dict[str, str]:
    pairs = (parameter.partition("=") for parameter in text.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _header_fields(headers: Any) -> dict[str, str]:
    """Return the headers that are read; the values of repeated ones are joined."""
    lines: dict[str, list[str]] = {}
    with suppress(Exception):  # of foreign headers; those read so far count
        pairs: Iterable[Any] = (
            headers.items() if hasattr(headers, "items") else headers or ()
        )
        for name, value in pairs:
            key = _header_text(name).lower()
            if key in READ_HEADERS:
                lines.setdefault(key, []).append(_header_text(value))
    return {name: ", ".join(values) for name, values in lines.items()}


def _header_text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _json_object(body: object) -> Mapping[str, Any]:
    if isinstance(body, str | bytes | bytearray):
        try:
            body = json.loads(body, parse_int=_json_integer)
        except (ValueError, RecursionError):
            return {}
    return body if isinstance(body, Mapping) else {}


def _json_integer(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return -math.inf if digits.startswith("-") else math.inf


# -- seconds --------------------------------------------------------------------


def seconds_of(value: object) -> float | None:
    """
    Return the wait that *value* means; None if it cannot be read.

    A wait that is too large for a number is infinite.

    It may be a number of seconds, a ``timedelta``, a ``datetime`` with a time zone,
    the text of a ``Retry-After`` header, a value with a unit, or something like a
    ``google.rpc.RetryInfo`` or its ``Duration``, as an object or as JSON.
    """
    try:
        return readable_seconds(_number_of_seconds(value))
    except Exception:  # raised by a property or a conversion of a foreign value
        return None


def _number_of_seconds(value: Any) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return _seconds_until_date(value)
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        return _seconds_in_text(value.strip())
    if isinstance(value, Mapping):
        return _seconds_in_mapping(value)
    if hasattr(value, "retry_delay"):
        return _number_of_seconds(value.retry_delay)
    if hasattr(value, "nanos"):
        return _sum_of(value.seconds, value.nanos)
    return value


def _seconds_in_text(text: str) -> float | None:
    """Return the wait in *text*, the longest if it joins those of several headers."""
    if REPR.match(text):
        return None
    if len(text) > READ_LIMIT:  # only values that are complete, if there are several
        text = text[:READ_LIMIT].rpartition(",")[0] or text[:READ_LIMIT]
    values = [value.strip() for value in LISTED.findall(text)]
    waits = map(_seconds_in_value, {text, *values})
    return max((wait for wait in waits if wait is not None), default=None)


def _seconds_in_value(text: str) -> float | None:
    try:
        return readable_seconds(_number_in_value(text))
    except (ValueError, TypeError, OverflowError):  # of a date
        return None


def _number_in_value(text: str) -> float | None:
    number = NUMBER.fullmatch(text)
    if number is not None:
        return float(number[1])
    if len(text) > LONGEST_DATE or DATE_START.match(text) is None:
        return None
    from email.utils import parsedate_to_datetime, parsedate_tz

    parsed = parsedate_tz(text)
    if parsed is not None and parsed[0] > MAXYEAR:
        return math.inf
    date = parsedate_to_datetime(text)
    return _seconds_until_date(date if date.tzinfo else date.replace(tzinfo=UTC))


def _seconds_in_mapping(value: Mapping[Any, Any]) -> object:
    for name in WAIT_NAMES:
        if name in value:
            return _number_of_seconds(value[name])
    if "seconds" in value or "nanos" in value:
        seconds, nanos = value.get("seconds", 0), value.get("nanos", 0)
        if isinstance(seconds, str):
            seconds = float(seconds[:READ_LIMIT])
        return _sum_of(seconds, nanos)
    return seconds_from_wire(value)


def _sum_of(seconds: Any, nanos: Any) -> Any:
    try:
        return seconds + nanos * NANOSECOND
    except OverflowError:  # an integer that is too large for a float
        return math.inf if max(seconds, nanos, key=abs) > 0 else -math.inf


def _seconds_until_date(date: datetime) -> float:
    """Return the seconds until *date*, 0 if it has passed."""
    if date.tzinfo is None:
        message = "a datetime needs a time zone"
        raise ValueError(message)
    return max(date.timestamp() - clock.current.get().time(), 0.0)
