"""
A call that follows the guidance of a server.

1. ``with_request_id``: the request is sent, with a new id for each attempt
2. ``pause_after``: the guidance in a failed response decides whether to retry
3. if so, there is a pause, and the request is sent again
4. if not, ``return_or_raise`` returns the response, or raises ``FailedCall``

Attempts are counted from 1. The server may lower the number of attempts, but not raise
it. Its pauses are not shortened: a pause above ``max_delay`` ends the call. Exceptions
raised by ``send`` propagate.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import clock, remaining
from cmdx.chain import new_id
from cmdx.declare.checks import check_count, check_seconds
from cmdx.guidance.codes import DEADLINE_EXCEEDED, RATE_LIMITED
from cmdx.guidance.guidance import FIRST_PAUSE, LONGEST_WAIT
from cmdx.guidance.parse import guidance_in
from cmdx.guidance.protocol import (
    code_of_response,
    has_absolute_deadline,
    has_errors,
    primary_error,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from cmdx.guidance.guidance import Guidance

    Request = dict[str, Any]
    Response = Mapping[str, Any]

LONGEST_GROWTH = 300.0
"""Exponential pauses stop growing at this many seconds; ``after`` may be longer."""


class FailedCall(Exception):  # noqa: N818 -- named like Fault, after what happened
    """The server answered with errors, and there is no further attempt."""

    def __init__(self, response: Response, attempts: int) -> None:
        super().__init__(response, attempts)
        self.response: Response = response
        """The last response."""
        self.attempts: int = attempts
        """The number of attempts."""

    @property
    def code(self) -> str | None:
        """The code of the primary error."""
        return code_of_response(self.response)

    @property
    def guidance(self) -> Guidance | None:
        """The guidance of the last response."""
        return guidance_in(self.response)

    def __str__(self) -> str:
        """Return the message of the primary error, or its code."""
        return str(primary_error(self.response).get("message") or self.code or "")


def call_with_guidance(
    send: Callable[[Request], Response],
    request: Response,
    attempts: int = 3,
    *,
    max_delay: float = LONGEST_WAIT,
) -> Response:
    """
    Send a request, and send it again as the server allows.

    Return the first response without errors, or raise ``FailedCall`` with the last one.
    Each attempt has a new id; everything else, such as an idempotency key, stays the
    same.

    Args:
        send: A function that sends a request and returns the response.
        request: The request, as a mapping.
        attempts: The largest number of attempts, including the first.
        max_delay: The longest pause in seconds; if the server asks for a longer one,
            it is not called again.
    """
    limits = CallLimits(attempts, max_delay)
    for attempt in count(1):
        response = send(with_request_id(request, attempt))
        seconds = pause_after(request, response, attempt, limits)
        if seconds is None:
            return return_or_raise(response, attempt)
        if seconds > 0:
            clock.current.get().sleep(seconds)
    raise AssertionError  # pragma: no cover -- count() never ends


async def acall_with_guidance(
    send: Callable[[Request], Awaitable[Response]],
    request: Response,
    attempts: int = 3,
    *,
    max_delay: float = LONGEST_WAIT,
) -> Response:
    """
    Do the same as ``call_with_guidance`` with a *send* that is awaited.

    Args:
        send: A function that sends a request; what it returns is awaited.
        request: The request, as a mapping.
        attempts: The largest number of attempts, including the first.
        max_delay: The longest pause in seconds.
    """
    limits = CallLimits(attempts, max_delay)
    for attempt in count(1):
        response = await send(with_request_id(request, attempt))
        seconds = pause_after(request, response, attempt, limits)
        if seconds is None:
            return return_or_raise(response, attempt)
        if seconds > 0:
            await clock.current.get().asleep(seconds)
    raise AssertionError  # pragma: no cover -- count() never ends


def as_attempts(value: object) -> int:
    """Return a number of attempts; refuse what is not one."""
    return check_count("call_with_guidance", "attempts", value)


def as_max_delay(value: object) -> float:
    """Return a longest pause as an int or float; refuse what is not one."""
    return check_seconds("call_with_guidance", "max_delay", value)


@attrs.frozen
class CallLimits:
    """The limits of the client itself."""

    attempts: int = attrs.field(converter=as_attempts)
    max_delay: float = attrs.field(converter=as_max_delay)


def with_request_id(request: Response, attempt: int) -> Request:
    """Return *request* with a new id; the first attempt keeps the id it was given."""
    given = request.get("id") if attempt == 1 else None
    return {**request, "id": new_id() if given is None else given}


def pause_after(
    request: Response, response: Response, attempt: int, limits: CallLimits
) -> float | None:
    """Return the seconds to wait before the next attempt, or None to stop."""
    guidance = guidance_in(response) if has_errors(response) else None
    if guidance is None or attempt >= limits.attempts or not guidance.permits(attempt):
        return None
    code = code_of_response(response)
    if code == DEADLINE_EXCEEDED and has_absolute_deadline(request):
        return None
    seconds = guidance.pause_before(attempt, longest=LONGEST_GROWTH)
    if code == RATE_LIMITED and seconds <= 0:
        seconds = FIRST_PAUSE
    if seconds > limits.max_delay:
        return None
    left = remaining()
    return None if left is not None and seconds >= left else seconds


def return_or_raise(response: Response, attempts: int) -> Response:
    """Return a response without errors; raise ``FailedCall`` for one with errors."""
    if has_errors(response):
        raise FailedCall(response, attempts)
    return response
