"""
What each error code means when nobody says more.

Three tables, to be added to and changed when a program starts::

    codes["ORDERS_LOCKED"] = Guidance(True, "fixed", 2, 5)
    causes[StorageFull] = "UNAVAILABLE"
    statuses["ORDERS_LOCKED"] = 423

A code that ``codes`` does not list must not be tried again. To use another table for
one call instead, give it as ``codes=``.
"""

from __future__ import annotations

import re
from enum import Enum

from cmdx.deadlines import DeadlineExceeded
from cmdx.guidance.meaning import Guidance

RATE_LIMITED = "RATE_LIMITED"
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
INTERNAL_ERROR = "INTERNAL_ERROR"
INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
FAILED = "FAILED"


def again(strategy: str, after: float | None, max_attempts: int) -> Guidance:
    """Return a row of the table."""
    return Guidance(
        allowed=True, strategy=strategy, after=after, max_attempts=max_attempts
    )


USUAL = again("exponential", 1, 3)
"""For what may be tried again, and says no more than that."""

codes: dict[str, Guidance] = {
    RATE_LIMITED: again("fixed", 60, 3),
    "UNAVAILABLE": again("exponential", 1, 5),
    DEADLINE_EXCEEDED: again("immediate", None, 1),
    INTERNAL_ERROR: again("exponential", 1, 3),
    "DEPENDENCY_ERROR": again("exponential", 2, 3),
    "IDEMPOTENCY_PROCESSING": again("fixed", 1, 3),
    "SERVER_MAINTENANCE": again("fixed", 60, 1),
    "FUNCTION_MAINTENANCE": again("fixed", 60, 1),
    "FUNCTION_DISABLED": again("fixed", 30, 2),
    "LOCK_ACQUISITION_FAILED": USUAL,
    "LOCK_TIMEOUT": USUAL,
}
"""The guidance for each code that may be tried again."""

causes: dict[type[BaseException], str] = {
    DeadlineExceeded: DEADLINE_EXCEEDED,
    TimeoutError: "DEPENDENCY_ERROR",
    ConnectionError: "DEPENDENCY_ERROR",
}
"""The code of an exception that has none of its own; others are internal errors."""

statuses: dict[str, int] = {
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
    "LOCK_TIMEOUT": 423,
    "LOCK_ACQUISITION_FAILED": 423,
    RATE_LIMITED: 429,
    "CANCELLED": 499,
    INTERNAL_ERROR: 500,
    "ASYNC_OPERATION_FAILED": 500,
    "DEPENDENCY_ERROR": 502,
    "UNAVAILABLE": 503,
    "SERVER_MAINTENANCE": 503,
    "FUNCTION_MAINTENANCE": 503,
    "FUNCTION_DISABLED": 503,
    DEADLINE_EXCEEDED: 504,
}
"""The HTTP status of each code; others have 400."""

CODE_OF_STATUS = {
    400: "INVALID_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    408: "UNAVAILABLE",
    409: "CONFLICT",
    410: "GONE",
    422: "SCHEMA_VALIDATION_FAILED",
    423: "LOCK_TIMEOUT",
    425: "UNAVAILABLE",
    429: RATE_LIMITED,
    499: "CANCELLED",
    500: INTERNAL_ERROR,
    501: "FUNCTION_NOT_FOUND",
    502: "DEPENDENCY_ERROR",
    503: "UNAVAILABLE",
    504: "DEPENDENCY_ERROR",
    505: "INVALID_PROTOCOL_VERSION",
}
"""What a bare HTTP status is taken for."""

CLIENT_ERRORS, SERVER_ERRORS = range(400, 500), range(500, 600)

SHAPE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[A-Z]{4,}")
"""What a code looks like; many exceptions have a ``code`` that is something else."""


def code_of_status(status: object) -> str | None:
    """Return the code an HTTP status stands for; None if it is no failure."""
    if not isinstance(status, int) or isinstance(status, bool):
        return None
    if status in CLIENT_ERRORS:
        return CODE_OF_STATUS.get(status, "INVALID_REQUEST")
    if status in SERVER_ERRORS:
        return CODE_OF_STATUS.get(status, INTERNAL_ERROR)
    return None


def code_of_value(value: object) -> str | None:
    """Return the code that somebody wrote down as text, member or HTTP status."""
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str | int) else value.name
    if isinstance(value, str):
        return value or None
    return code_of_status(value)


def code_of_exception(error: BaseException) -> str:
    """Return the code of an exception: its own, or that of its class."""
    kinds = (causes[each] for each in type(error).__mro__ if each in causes)
    return own_code(error) or next(kinds, INTERNAL_ERROR)


def own_code(error: BaseException) -> str | None:
    """Return the ``code`` of an exception, if it is one of an error."""
    code = code_of_value(getattr(error, "code", None))
    known = code is not None and (code in codes or SHAPE.fullmatch(code))
    return code if known else None
