"""
Guidance for the callers of a server.

``guidance_for`` returns the guidance for a failed result. ``respond`` makes a response
from a result. ``with_guidance`` completes a response that was made in another way: by
an extension, or from a cache.

The first of these that is found counts: explicit guidance, a wait in the details of the
error, the reset of a rate limit that is used up, the row for the code. A failed
response has exactly one retry entry, a success has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cmdx import CmdxError, Fault
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
from cmdx.guidance.failures import failures_of, given_codes, notes_of
from cmdx.guidance.guidance import Guidance, seconds_before_retry, wire_duration
from cmdx.guidance.parse import (
    fixed_wait,
    guidance_in,
    guidance_in_metadata,
    guidance_of,
)
from cmdx.guidance.protocol import (
    PROTOCOL,
    RETRY_URN,
    code_of_response,
    extension_part,
    extensions_of,
    has_errors,
    primary_error,
    wait_for_reset,
    wait_in_details,
)

if TYPE_CHECKING:
    from cmdx import Result
    from cmdx.inputs.errors import Problem

    CodeTable = Mapping[str, Guidance]

BAD_REQUEST = 400
ALWAYS_WITH_RETRY_AFTER = (RATE_LIMITED, "SERVER_MAINTENANCE", "FUNCTION_MAINTENANCE")
"""The codes whose HTTP responses have a ``Retry-After`` header even for no wait."""

UNSET_OUTPUT = "unset"
"""The code of the problem that an output was not set."""


def guidance_for(
    result: Result[Any],
    *,
    extensions: Iterable[Mapping[str, Any]] = (),
    codes: CodeTable | None = None,
) -> Guidance | None:
    """
    Return the guidance for the caller of a task; None if the task has not failed.

    Args:
        result: The result of the task.
        extensions: The other entries of the response; one may be a rate limit.
        codes: A table to use instead of ``cmdx.guidance.codes``.
    """
    if not result.failed:
        return None
    explicit = _explicit_guidance(result)
    if explicit is not None:
        return explicit
    response = {
        "errors": [{"code": code_for(result)}],
        "extensions": list(extensions),
    }
    return _default_guidance(response, codes)


def code_for(result: Result[Any]) -> str:
    """
    Return the error code of a failed *result*.

    It is the ``code`` in the metadata, the ``code`` of the exception, or the one for
    its class. Invalid inputs are ``INVALID_ARGUMENTS``; a task that failed on purpose
    without a code is ``FAILED``. A failure passed on from another task has the code of
    its origin.
    """
    for given in given_codes(result):
        code = code_of_value(given)
        if code is not None:
            return code
    (*_, deepest), cause = failures_of(result), result._root_cause
    if cause is not None and not isinstance(cause, Fault):
        return code_of_exception(cause)
    if deepest.errors:
        return INTERNAL_ERROR if has_unset_outputs(deepest) else INVALID_ARGUMENTS
    return FAILED


def has_unset_outputs(failure: Result[Any]) -> bool:
    """Tell whether a task failed because it did not set an output."""
    return any(problem.code == UNSET_OUTPUT for problem in failure.errors)


def respond(  # noqa: PLR0913 -- the parts of a response, by keyword
    result: Result[Any],
    *,
    id: str | None = None,  # noqa: A002 -- the name in the response
    guidance: Guidance | None = None,
    extensions: Iterable[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] | None = None,
    codes: CodeTable | None = None,
) -> dict[str, Any]:
    """
    Return the response for a result, with guidance if it has failed.

    Args:
        result: The result of the task.
        id: The id of the request.
        guidance: The guidance to use; by default it is found as by ``guidance_for``.
        extensions: The entries of other extensions; they are kept.
        meta: The ``meta`` of the response.
        codes: A table to use instead of ``cmdx.guidance.codes``.
    """
    others = list(extensions)
    response: dict[str, Any] = {"protocol": dict(PROTOCOL), "id": id, "result": None}
    if not result.failed:
        response["result"] = result.value if result.success else None
    else:
        response["errors"] = _wire_errors(result)
        guidance = guidance or _explicit_guidance(result)
    if others:
        response["extensions"] = others
    if meta is not None:
        response["meta"] = dict(meta)
    response = with_guidance(response, guidance, codes=codes)
    _align_details(response)
    return response


def with_guidance(
    response: Mapping[str, Any],
    guidance: Guidance | None = None,
    *,
    codes: CodeTable | None = None,
) -> dict[str, Any]:
    """
    Return a response with exactly one retry entry if it is a failure, else with none.

    Args:
        response: The response; it is not changed.
        guidance: The guidance to use; by default an existing entry is kept and
            completed from the rest of the response.
        codes: A table to use instead of ``cmdx.guidance.codes``.
    """
    entries = extensions_of(response)
    others = [entry for entry in entries if entry.get("urn") != RETRY_URN]
    complete = dict(response)
    if has_errors(response):
        has_entry = extension_part(response, RETRY_URN, "data") is not None
        given = guidance_in(response) if has_entry else None
        guidance = guidance or given or _default_guidance(response, codes)
        others = [*others, {"urn": RETRY_URN, "data": guidance.to_wire()}]
    if others or "extensions" in complete:
        complete["extensions"] = others
    return complete


def to_http(response: Mapping[str, Any]) -> tuple[int, dict[str, str]]:
    """Return the HTTP status and headers for *response*."""
    if not has_errors(response):
        return 200, {}
    code = code_of_response(response) or ""
    several = len(response["errors"]) > 1
    status = BAD_REQUEST if several else statuses.get(code, BAD_REQUEST)
    guidance = guidance_in(response)
    if guidance is None or not guidance.allowed:
        return status, {}
    wait = seconds_before_retry(guidance)
    if wait or code in ALWAYS_WITH_RETRY_AFTER:
        return status, {"Retry-After": str(wait)}
    return status, {}


def _default_guidance(response: Mapping[str, Any], codes: CodeTable | None) -> Guidance:
    """Return the guidance for a failed response without explicit guidance."""
    in_details = fixed_wait(wait_in_details(response))
    if in_details is not None:
        return in_details
    row = Guidance.for_code(code_of_response(response), codes=codes)
    reset = fixed_wait(wait_for_reset(response)) if row.allowed else None
    return reset or row


def _explicit_guidance(result: Result[Any]) -> Guidance | None:
    """Return the guidance that *result* or the nearest of its origins gives."""
    for failure in failures_of(result):
        notes = notes_of(failure)
        explicit = guidance_in_metadata(notes)
        if explicit is None and not isinstance(failure.cause, Fault):
            explicit = guidance_of(failure.cause)
        if explicit is not None or "code" in notes:
            return explicit
    return None


def _wire_errors(result: Result[Any]) -> list[dict[str, Any]]:
    code, (*_, deepest) = code_for(result), failures_of(result)
    if code == INVALID_ARGUMENTS and deepest.errors:
        return [_input_error(problem) for problem in deepest.errors]
    error: dict[str, Any] = {"code": code, "message": _caller_message(deepest, code)}
    details = notes_of(result).get("details", notes_of(deepest).get("details"))
    if isinstance(details, Mapping):
        error["details"] = dict(details)
    return [error]


def _caller_message(failure: Result[Any], code: str) -> str:
    """Return the message for the caller; texts of foreign exceptions are hidden."""
    cause = failure.cause
    if cause is None:
        text = failure.reason
    elif isinstance(cause, CmdxError):  # its text is for the authors of the task
        text = None
    else:
        text = str(cause) if code_of_exception(cause) == own_code(cause) else None
    return text or code.replace("_", " ").capitalize()


def _input_error(problem: Problem) -> dict[str, Any]:
    """Return the error for an invalid input, with a JSON pointer to it."""
    steps = re.sub(r"\[(\w+)\]", r".\1", problem.key).split(".")
    path = "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
    return {
        "code": INVALID_ARGUMENTS,
        "message": problem.full_message,
        "source": {"pointer": f"/call/arguments/{path}"},
    }


def _align_details(response: dict[str, Any]) -> None:
    """Set a wait in the details of the error to the one of the retry entry."""
    details = primary_error(response).get("details")
    guidance = guidance_in(response)
    if details and "retry_after" in details and guidance and guidance.after is not None:
        details["retry_after"] = wire_duration(guidance.after, guidance.unit)
