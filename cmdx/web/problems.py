"""
A failed result as an HTTP answer, with problem details by RFC 9457.

1. the code: the one that the task gave, or else the one for its exception or errors
2. the status: the code itself if it is an HTTP status, or else the one for the code
3. ``Retry-After``, if the failure says when to try again
4. what the client is told: the reason of the task, but never the text of an exception
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Awaitable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import Fault, Result, Task
from cmdx.guidance import Guidance, code_for
from cmdx.guidance import statuses as statuses_of_codes
from cmdx.guidance.codes import (
    DEPENDENCY_ERROR,
    FAILED,
    HTTP_ERRORS,
    INTERNAL_ERROR,
    INVALID_ARGUMENTS,
    UNAVAILABLE,
    Statuses,
    code_attribute,
    code_in_text,
    code_of_class,
)
from cmdx.guidance.failures import given_codes
from cmdx.guidance.guidance import seconds_before_retry
from cmdx.guidance.server import has_unset_outputs
from cmdx.values import encodable_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    from cmdx.inputs.errors import Problem as FieldProblem

MEDIA_TYPE = "application/problem+json"

REFUSED = 422
WITH_RETRY_AFTER = (429, 503)
"""The statuses that tell when to try again, by the row for the code if need be."""

UNSPECIFIC = (FAILED, INTERNAL_ERROR)
"""The codes of failures and exceptions of any kind."""

PHRASES = {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
"""As RFC 9110 has them; Python before 3.13 has older ones."""

statuses: MutableMapping[str, int] = ChainMap(
    Statuses(),
    Statuses(
        {
            INVALID_ARGUMENTS: REFUSED,
            FAILED: REFUSED,
            # As the draft of the header Idempotency-Key says.
            "IDEMPOTENCY_CONFLICT": REFUSED,
        }
    ),
    statuses_of_codes,
)
"""The HTTP status for each code; those of ``cmdx.guidance.statuses`` if not changed."""


@attrs.frozen
class Problem:
    """
    An HTTP answer with problem details; made by ``problem``.

    Args:
        status: The HTTP status.
        headers: The headers, with the media type of the body.
        body: The problem details, to be sent as JSON.
    """

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]


def problem(result: Result[Any] | Fault) -> Problem:
    """
    Return the HTTP answer for a failed result, by RFC 9457.

    The reason given to ``fail`` and the messages about inputs are shown to the client;
    the text of an exception is not.

    Example::

        result = ChargeCard.execute(request.form)
        if result.failed:
            answer = problem(result)
            return answer.body, answer.status, answer.headers

    Args:
        result: A failed result, or the ``Fault`` that was raised for one.

    Raises:
        ValueError: The result is a success or a skip, which is not a problem.
    """
    if isinstance(result, Fault):
        result = result._failure
    failure, cause = _deepest_failure(result), result._root_cause
    is_hidden = cause is not None or has_unset_outputs(failure)
    guidance = result.guidance
    wait = seconds_before_retry(guidance)
    code = next(given_codes(result), None) or _code_of(failure, cause, wait)
    status = _status_of(code, wait, is_hidden=is_hidden)
    body = {
        "type": "about:blank",
        "title": _phrase_of(status),
        "status": status,
        "detail": None if is_hidden else encodable_text(failure.reason or ""),
        "code": None if code == status else _json_code(code),
        "errors": None if is_hidden else _messages_by_field(failure.errors),
    }
    told = {name: value for name, value in body.items() if value}
    return Problem(status, _headers_of(status, code, guidance), told)


def _deepest_failure(result: Result[Any]) -> Result[Any]:
    """Return where the failure started, and refuse what has not failed."""
    if not isinstance(result, Result):
        kind = type(result).__name__
        message = f"problem() takes the result of a task, got an object of type {kind}."
        raise TypeError(message + _cure_of(result))
    failure = result.caused_failure
    if failure is None:
        message = (
            f"{result.task.__qualname__} has not failed, so there is no problem: its "
            f"status is {result.status}. Check result.failed first."
        )
        raise ValueError(message)
    return failure


def _cure_of(value: object) -> str:
    """Return what to do with what is not a result."""
    task = value if isinstance(value, type) else type(value)
    if issubclass(task, Task):
        return f" Run it first: problem({task.__qualname__}.execute(...))."
    if isinstance(value, Awaitable):
        return " Await it first."
    if isinstance(value, BaseException):
        return " Use execute() or aexecute(), which return a result."
    return " Give it what execute() has returned, or the Fault that was raised."


# -- texts ------------------------------------------------------------------------


def _messages_by_field(problems: Iterable[FieldProblem]) -> dict[str, list[str]]:
    by_field: dict[str, dict[str, None]] = {}
    for key, message, _code in problems:
        by_field.setdefault(encodable_text(key), {})[encodable_text(message)] = None
    return {field: list(messages) for field, messages in by_field.items()}


def _json_code(code: str | int) -> str | int:
    return code if isinstance(code, int) else encodable_text(code)


# -- codes and statuses -----------------------------------------------------------


def _code_of(failure: Result[Any], cause: BaseException | None, wait: int) -> str:
    """Return the code of a failure to which the task gave none."""
    code = code_for(failure) if cause is None else _code_of_exception(cause)
    return UNAVAILABLE if wait and code in UNSPECIFIC else code


def _code_of_exception(error: BaseException) -> str:
    # A number is the status of another server's response, not of ours.
    own = code_in_text(code_attribute(error, statuses))
    code = own or code_of_class(error) or INTERNAL_ERROR
    # The status of a dependency error, 502, says that this server does not answer; so
    # a lost connection is like any other exception, unless the task says otherwise.
    return INTERNAL_ERROR if code == DEPENDENCY_ERROR and not own else code


def _status_of(code: str | int, wait: int, *, is_hidden: bool) -> int:
    if isinstance(code, int):
        listed = code if code in HTTP_ERRORS else None
    else:
        listed = statuses.get(code)
    if listed is not None:
        return listed
    if wait:
        return statuses[UNAVAILABLE]
    return statuses[INTERNAL_ERROR if is_hidden else FAILED]


def _phrase_of(status: int) -> str:
    """Return the name of a status; clients treat an unknown one as 400 or 500."""
    if status not in tuple(HTTPStatus):
        status = status // 100 * 100
    return PHRASES.get(status) or HTTPStatus(status).phrase


def _headers_of(
    status: int, code: str | int, guidance: Guidance | None
) -> dict[str, str]:
    if guidance is None and status in WITH_RETRY_AFTER:
        guidance = Guidance.for_code(code)
    headers, wait = {"Content-Type": MEDIA_TYPE}, seconds_before_retry(guidance)
    return {**headers, "Retry-After": str(wait)} if wait else headers
