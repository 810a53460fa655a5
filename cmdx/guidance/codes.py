"""
The guidance for each error code, used where nothing more specific is given.

A program may change these three tables when it starts; ``statuses`` refuses what is
neither a code nor the status of an error::

    codes["ORDERS_LOCKED"] = Guidance(True, "fixed", 2, 5)
    causes[StorageFull] = "UNAVAILABLE"
    statuses["ORDERS_LOCKED"] = 423

A code that ``codes`` does not list forbids a retry. The parameter ``codes=`` of several
functions replaces the table for one call.
"""

from __future__ import annotations

import re
from collections import UserDict
from typing import TYPE_CHECKING

from cmdx import DefinitionError, RecordedError
from cmdx.guidance.guidance import Guidance
from cmdx.run.deadlines import DeadlineExceeded
from cmdx.values import plain_code

if TYPE_CHECKING:
    from collections.abc import Container, MutableMapping

RATE_LIMITED = "RATE_LIMITED"
UNAVAILABLE = "UNAVAILABLE"
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
DEPENDENCY_ERROR = "DEPENDENCY_ERROR"
INTERNAL_ERROR = "INTERNAL_ERROR"
INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
FAILED = "FAILED"

HTTP_ERRORS = range(400, 600)
CLIENT_ERRORS, SERVER_ERRORS = range(400, 500), range(500, 600)


def _row(strategy: str, after: float | None, max_attempts: int) -> Guidance:
    return Guidance(
        allowed=True, strategy=strategy, after=after, max_attempts=max_attempts
    )


DEFAULT_ROW = _row("exponential", 1, 3)
"""For codes that allow a retry and have no row of their own in the protocol."""

codes: dict[str, Guidance] = {
    RATE_LIMITED: _row("fixed", 60, 3),
    UNAVAILABLE: _row("exponential", 1, 5),
    DEADLINE_EXCEEDED: _row("immediate", None, 1),
    INTERNAL_ERROR: _row("exponential", 1, 3),
    DEPENDENCY_ERROR: _row("exponential", 2, 3),
    "IDEMPOTENCY_PROCESSING": _row("fixed", 1, 3),
    "SERVER_MAINTENANCE": _row("fixed", 60, 1),
    "FUNCTION_MAINTENANCE": _row("fixed", 60, 1),
    "FUNCTION_DISABLED": _row("fixed", 30, 2),
    "LOCK_ACQUISITION_FAILED": DEFAULT_ROW,
    "LOCK_TIMEOUT": DEFAULT_ROW,
}
"""The guidance for each code that allows a retry."""

causes: dict[type[BaseException], str] = {
    DeadlineExceeded: DEADLINE_EXCEEDED,
    TimeoutError: DEPENDENCY_ERROR,
    ConnectionError: DEPENDENCY_ERROR,
}
"""The codes for exception classes without a ``code``; others are internal errors."""


class Statuses(UserDict[str, int]):
    """HTTP statuses by code; refuses a wrong code or status when it is set."""

    def __setitem__(self, code: str, status: int) -> None:
        """Set the status of a code."""
        if not isinstance(code, str) or not code:
            message = f"statuses: a code must be text, got {code!r}.{_cure_of(code)}"
            raise DefinitionError(message)
        if not isinstance(status, int) or status not in HTTP_ERRORS:
            message = (
                f"statuses: the status of {code!r} must be a number from 400 to 599, "
                f"got {status!r}."
            )
            raise DefinitionError(message)
        super().__setitem__(code, int(status))


def _cure_of(key: object) -> str:
    """Return what to do about a key of ``statuses`` that is not text."""
    code = plain_code(key)
    if isinstance(code, int):
        return " A code that is a number is a status itself, and needs no row."
    if isinstance(code, str):
        return f" Use its value: {code!r}."
    if isinstance(key, type):
        return " Give the class a code in cmdx.guidance.causes."
    return ""


statuses: MutableMapping[str, int] = Statuses(
    {
        "PARSE_ERROR": 400,
        "INVALID_REQUEST": 400,
        "INVALID_PROTOCOL_VERSION": 400,
        INVALID_ARGUMENTS: 400,
        "EXTENSION_NOT_SUPPORTED": 400,
        "EXTENSION_NOT_APPLICABLE": 400,
        "ASYNC_CANNOT_CANCEL": 400,
        "UNAUTHORIZED": 401,
        "FORBIDDEN": 403,
        "NOT_FOUND": 404,
        "FUNCTION_NOT_FOUND": 404,
        "VERSION_NOT_FOUND": 404,
        "ASYNC_OPERATION_NOT_FOUND": 404,
        "REPLAY_NOT_FOUND": 404,
        "LOCK_NOT_FOUND": 404,
        "CONFLICT": 409,
        "IDEMPOTENCY_CONFLICT": 409,
        "IDEMPOTENCY_PROCESSING": 409,
        "REPLAY_ALREADY_COMPLETE": 409,
        "GONE": 410,
        "REPLAY_EXPIRED": 410,
        "REPLAY_CANCELLED": 410,
        "SCHEMA_VALIDATION_FAILED": 422,
        "IDEMPOTENCY_EXPIRED": 422,
        "LOCK_TIMEOUT": 423,
        "LOCK_ACQUISITION_FAILED": 423,
        RATE_LIMITED: 429,
        "CANCELLED": 499,
        INTERNAL_ERROR: 500,
        "ASYNC_OPERATION_FAILED": 500,
        "OUTCOME_UNKNOWN": 500,
        DEPENDENCY_ERROR: 502,
        UNAVAILABLE: 503,
        "SERVER_MAINTENANCE": 503,
        "FUNCTION_MAINTENANCE": 503,
        "FUNCTION_DISABLED": 503,
        DEADLINE_EXCEEDED: 504,
    }
)
"""The HTTP status for each code; 400 for all others."""

CODE_OF_STATUS = {
    400: "INVALID_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    408: UNAVAILABLE,
    409: "CONFLICT",
    410: "GONE",
    422: "SCHEMA_VALIDATION_FAILED",
    423: "LOCK_TIMEOUT",
    425: UNAVAILABLE,
    429: RATE_LIMITED,
    499: "CANCELLED",
    500: INTERNAL_ERROR,
    501: "FUNCTION_NOT_FOUND",
    502: DEPENDENCY_ERROR,
    503: UNAVAILABLE,
    504: DEPENDENCY_ERROR,
    505: "INVALID_PROTOCOL_VERSION",
}
"""The code for an HTTP status."""

CODE_PATTERN = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[A-Z]{4,}")
"""The form of a code; many exceptions have a ``code`` of another kind."""


def code_of_status(status: object) -> str | None:
    """Return the code for an HTTP status; None if the status is not an error."""
    if not isinstance(status, int) or isinstance(status, bool):
        return None
    if status in CLIENT_ERRORS:
        return CODE_OF_STATUS.get(status, "INVALID_REQUEST")
    if status in SERVER_ERRORS:
        return CODE_OF_STATUS.get(status, INTERNAL_ERROR)
    return None


def code_of_value(value: object) -> str | None:
    """Return the code for a text, an enum member or an HTTP status."""
    code = plain_code(value)
    return code if isinstance(code, str) else code_of_status(code)


def code_in_text(value: object) -> str | None:
    """Return the code that is a text or an enum member; None for an HTTP status."""
    code = plain_code(value)
    return code if isinstance(code, str) else None


def code_of_exception(error: BaseException) -> str:
    """Return the ``code`` of an exception, or the one listed for its class."""
    return own_code(error) or code_of_class(error) or INTERNAL_ERROR


def code_of_class(error: BaseException) -> str | None:
    """Return the code that ``causes`` lists for the class of an exception."""
    if isinstance(error, RecordedError):
        return error.class_code
    listed = (causes[base] for base in type(error).__mro__ if base in causes)
    return next(listed, None)


def own_code(error: BaseException) -> str | None:
    """Return the ``code`` of an exception as text, also if it is an HTTP status."""
    return code_of_value(code_attribute(error))


def code_attribute(
    error: BaseException, listed: Container[str] | None = None
) -> str | int | None:
    """
    Return the ``code`` of an exception if it is an error code or an HTTP status.

    Args:
        error: The exception.
        listed: Codes of any form that count; by default those of ``statuses``.
    """
    code = text_or_status(error)
    if not isinstance(code, str) or CODE_PATTERN.fullmatch(code):
        return code
    known = statuses if listed is None else listed
    return code if code in codes or code in known else None


def text_or_status(error: BaseException) -> str | int | None:
    """Return the ``code`` of an exception if it is a text or an HTTP status."""
    code = plain_code(attribute_of(error, "code"))
    return code if isinstance(code, str) or code_of_status(code) else None


def attribute_of(error: object, name: str) -> object:
    """Return an attribute; None if there is none, or a property raises."""
    try:
        return getattr(error, name, None)
    except Exception:
        return None
