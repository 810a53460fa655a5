"""
As a server: guidance for whoever called.

``guidance_for`` says what a failed result means for the caller, ``respond`` makes a
response of a result, and ``with_guidance`` completes a response that was made some
other way: by an extension that answered instead, or from a cache of responses.

Who says it goes before what is usual: guidance given explicitly, then a wait that was
noted, then the reset of a rate limit that is used up, then the row for the code. A
failure has exactly one retry entry, on every path, and a success has none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cmdx import Fault
from cmdx.guidance.codes import (
    FAILED,
    INTERNAL_ERROR,
    INVALID_ARGUMENTS,
    RATE_LIMITED,
    code_of_exception,
    code_of_value,
    own_code,
    statuses,
)
from cmdx.guidance.meaning import Guidance, duration
from cmdx.guidance.reading import after, guidance_in, guidance_of, said_by_metadata
from cmdx.guidance.wire import (
    PROTOCOL,
    RETRY,
    code_of_response,
    extensions_of,
    has_failed,
    part,
    primary_error,
    wait_for_reset,
    wait_in_details,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx import Result
    from cmdx.validation import Problem

    Codes = Mapping[str, Guidance]

BAD_REQUEST = 400
WAITED_FOR = (RATE_LIMITED, "SERVER_MAINTENANCE", "FUNCTION_MAINTENANCE")
"""The codes whose HTTP answers always say when to come back."""

UNSET = "unset"
"""The code of the problem that an output was not set."""


def guidance_for(
    result: Result[Any],
    *,
    extensions: Iterable[Mapping[str, Any]] = (),
    codes: Codes | None = None,
) -> Guidance | None:
    """
    Return what a failed *result* means for the caller; None if it has not failed.

    *extensions* are the other entries of the response, among them perhaps a rate limit.
    """
    if not result.failed:
        return None
    stated = _stated(result)
    if stated is not None:
        return stated
    response = {
        "errors": [{"code": code_for(result)}],
        "extensions": list(extensions),
    }
    return _usual(response, codes)


def code_for(result: Result[Any]) -> str:
    """
    Return the error code of a failed *result*.

    It is the ``code`` in the metadata, or that of the exception, or the one for its
    class; wrong inputs are ``INVALID_ARGUMENTS``, and a task that was failed without
    a code is ``FAILED``. A failure passed on has the code of what failed first.
    """
    for each in _with_origins(result):
        code = code_of_value(each.metadata.get("code"))
        if code is not None:
            return code
        if each.cause is not None and not isinstance(each.cause, Fault):
            return code_of_exception(each.cause)
        if each.errors:
            unset = any(problem.code == UNSET for problem in each.errors)
            return INTERNAL_ERROR if unset else INVALID_ARGUMENTS
    return FAILED


def respond(  # noqa: PLR0913 -- the parts of a response, each by its name
    result: Result[Any],
    *,
    id: str | None = None,  # noqa: A002 -- as it is called on the wire
    guidance: Guidance | None = None,
    extensions: Iterable[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] | None = None,
    codes: Codes | None = None,
) -> dict[str, Any]:
    """
    Make a response of *result*, with guidance if it has failed.

    *extensions* are the entries of other extensions, which are kept.
    """
    others = list(extensions)
    response: dict[str, Any] = {"protocol": dict(PROTOCOL), "id": id, "result": None}
    if not result.failed:
        response["result"] = result.value if result.success else None
    else:
        response["errors"] = _errors(result)
        guidance = guidance or _stated(result)
    if others:
        response["extensions"] = others
    if meta is not None:
        response["meta"] = dict(meta)
    response = with_guidance(response, guidance, codes=codes)
    _agree(response)
    return response


def with_guidance(
    response: Mapping[str, Any],
    guidance: Guidance | None = None,
    *,
    codes: Codes | None = None,
) -> dict[str, Any]:
    """
    Return *response* with exactly one retry entry if it is a failure, else with none.

    Without *guidance*, an entry that is there is kept, and completed by what the rest
    of the response says. Everything else stays as it is.
    """
    others = [each for each in extensions_of(response) if each.get("urn") != RETRY]
    complete = dict(response)
    if has_failed(response):
        given = None if part(response, RETRY, "data") is None else guidance_in(response)
        said = guidance or given or _usual(response, codes)
        others = [*others, {"urn": RETRY, "data": said.to_wire()}]
    if others or "extensions" in complete:
        complete["extensions"] = others
    return complete


def to_http(response: Mapping[str, Any]) -> tuple[int, dict[str, str]]:
    """Return the HTTP status for *response*, and the headers that go with it."""
    if not has_failed(response):
        return 200, {}
    code = code_of_response(response) or ""
    several = len(response["errors"]) > 1
    status = BAD_REQUEST if several else statuses.get(code, BAD_REQUEST)
    guidance = guidance_in(response)
    if guidance is None or not guidance.allowed:
        return status, {}
    wait = math.ceil(guidance.pause_before(1))
    return status, {"Retry-After": str(wait)} if wait or code in WAITED_FOR else {}


def _usual(response: Mapping[str, Any], codes: Codes | None) -> Guidance:
    """Return what the rest of a failed response means for whoever called."""
    noted = after(wait_in_details(response))
    if noted is not None:
        return noted
    row = Guidance.for_code(code_of_response(response), codes=codes)
    reset = after(wait_for_reset(response)) if row.allowed else None
    return reset or row


def _stated(result: Result[Any]) -> Guidance | None:
    """Return what was said explicitly, nearer results first."""
    for each in _with_origins(result):
        stated = said_by_metadata(each.metadata)
        if stated is None and not isinstance(each.cause, Fault):
            stated = guidance_of(each.cause)
        if stated is not None or "code" in each.metadata:
            return stated
    return None


def _with_origins(result: Result[Any]) -> Iterator[Result[Any]]:
    each: Result[Any] | None = result
    while each is not None:
        yield each
        each = each.origin


def _errors(result: Result[Any]) -> list[dict[str, Any]]:
    code, (*_, deepest) = code_for(result), _with_origins(result)
    if code == INVALID_ARGUMENTS and deepest.errors:
        return [_refusal(problem) for problem in deepest.errors]
    error: dict[str, Any] = {"code": code, "message": _message(deepest, code)}
    details = result.metadata.get("details", deepest.metadata.get("details"))
    if isinstance(details, Mapping):
        error["details"] = dict(details)
    return [error]


def _message(failure: Result[Any], code: str) -> str:
    """Return a sentence for the caller; the text of a bare exception is not for him."""
    cause = failure.cause
    if cause is None:
        words = failure.reason
    else:
        words = str(cause) if code_of_exception(cause) == own_code(cause) else None
    return words or code.replace("_", " ").capitalize()


def _refusal(problem: Problem) -> dict[str, Any]:
    """Return the error for a wrong input, with a JSON pointer to it."""
    steps = re.sub(r"\[(\w+)\]", r".\1", problem.key).split(".")
    path = "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
    return {
        "code": INVALID_ARGUMENTS,
        "message": problem.full_message,
        "source": {"pointer": f"/call/arguments/{path}"},
    }


def _agree(response: dict[str, Any]) -> None:
    """Have a wait in the details of the error be the one of the retry entry."""
    details = primary_error(response).get("details")
    guidance = guidance_in(response)
    if details and "retry_after" in details and guidance and guidance.after is not None:
        details["retry_after"] = duration(guidance.after, guidance.unit)
