"""
As a client: a call that obeys.

1. the request is sent, with an id of its own each time  ``numbered``
2. a response without errors is returned                 ``settled``
3. the guidance of a failure is read, and may say stop   ``pause_after``
4. otherwise there is a pause, and it is sent again

Attempts are counted from 1. The server may lower the number of them and never raise
it, and its pauses are not shortened. Whatever ``send`` raises is not for this loop.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from cmdx import DefinitionError, clock, remaining
from cmdx.chain import new_id
from cmdx.guidance.codes import DEADLINE_EXCEEDED, RATE_LIMITED
from cmdx.guidance.meaning import FIRST_PAUSE
from cmdx.guidance.reading import guidance_in
from cmdx.guidance.wire import (
    code_of_response,
    has_absolute_deadline,
    has_failed,
    primary_error,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from cmdx.guidance.meaning import Guidance

    Request = dict[str, Any]
    Response = Mapping[str, Any]

LONGEST_GROWTH = 300.0
"""Seconds at which exponential pauses stop growing; a plain wait may be longer."""


class FailedCall(Exception):  # noqa: N818 -- it is what became of the call
    """The other side answered with errors, and there is no further attempt."""

    def __init__(self, response: Response, attempts: int) -> None:
        super().__init__(response, attempts)
        self.response = response
        self.attempts = attempts

    @property
    def code(self) -> str | None:
        """The code of the error that decides."""
        return code_of_response(self.response)

    @property
    def guidance(self) -> Guidance | None:
        """What the last response says about trying again."""
        return guidance_in(self.response)

    def __str__(self) -> str:
        """Say what the other side said."""
        return str(primary_error(self.response).get("message") or self.code or "")


def call_with_guidance(
    send: Callable[[Request], Response], request: Response, attempts: int = 3
) -> Response:
    """
    Send *request* until it succeeds, at most *attempts* times, as the server allows.

    Return the response without errors, or raise ``FailedCall`` with the last one.
    Each attempt has a new id; all else, an idempotency key too, stays as it is.
    """
    check_attempts(attempts)
    for attempt in count(1):
        response = send(numbered(request, attempt))
        seconds = pause_after(request, response, attempt, attempts)
        if seconds is None:
            return settled(response, attempt)
        if seconds > 0:
            clock.current.get().sleep(seconds)
    raise AssertionError  # pragma: no cover -- it counts on


async def acall_with_guidance(
    send: Callable[[Request], Awaitable[Response]],
    request: Response,
    attempts: int = 3,
) -> Response:
    """Do what ``call_with_guidance`` does, with a *send* to be awaited."""
    check_attempts(attempts)
    for attempt in count(1):
        response = await send(numbered(request, attempt))
        seconds = pause_after(request, response, attempt, attempts)
        if seconds is None:
            return settled(response, attempt)
        if seconds > 0:
            await clock.current.get().asleep(seconds)
    raise AssertionError  # pragma: no cover -- it counts on


def check_attempts(attempts: object) -> None:
    """Refuse what is no number of attempts."""
    if type(attempts) is not int or attempts < 1:
        message = f"attempts must be a whole number, 1 or more, got {attempts!r}."
        raise DefinitionError(message)


def numbered(request: Response, attempt: int) -> Request:
    """Return *request* with an id of its own; the first attempt keeps the given one."""
    given = request.get("id") if attempt == 1 else None
    return {**request, "id": new_id() if given is None else given}


def pause_after(
    request: Response, response: Response, attempt: int, attempts: int
) -> float | None:
    """Return the seconds to wait before the next attempt, or None to stop."""
    guidance = guidance_in(response) if has_failed(response) else None
    if guidance is None or attempt >= attempts or not guidance.permits(attempt):
        return None
    code = code_of_response(response)
    if code == DEADLINE_EXCEEDED and has_absolute_deadline(request):
        return None
    seconds = guidance.pause_before(attempt, longest=LONGEST_GROWTH)
    if code == RATE_LIMITED and seconds <= 0:
        seconds = FIRST_PAUSE
    left = remaining()
    return None if left is not None and seconds >= left else seconds


def settled(response: Response, attempts: int) -> Response:
    """Return a response without errors; raise one with."""
    if has_failed(response):
        raise FailedCall(response, attempts)
    return response
