"""
The ambient deadline: until when something must be done.

``with deadline(2.0):`` gives what runs inside two seconds in all. It is handed on to
nested tasks, which can only make it earlier, and to coroutines and copied contexts.
Nothing is interrupted in a synchronous run; a retry that would end too late is not
begun, and ``remaining()`` tells ``work`` how much time there is. In an asynchronous run
an attempt is cancelled when the time is up.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from cmdx.clock import now
from cmdx.exceptions import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

T = TypeVar("T")

current: ContextVar[float | None] = ContextVar("cmdx.deadline", default=None)
"""The moment of the clock by which all must be done, or None."""


class DeadlineExceeded(TimeoutError):  # noqa: N818 -- as others call it
    """An attempt was cancelled because the time was up."""


@contextmanager
def deadline(seconds: float) -> Iterator[float]:
    """Give the block *seconds*, or what an outer deadline leaves if that is less."""
    if type(seconds) not in (int, float) or not seconds >= 0:
        message = f"a deadline is a number of seconds, 0 or more, got {seconds!r}."
        raise DefinitionError(message)
    token = current.set(earlier(now() + seconds))
    try:
        yield seconds
    finally:
        current.reset(token)


def remaining() -> float | None:
    """Return the seconds left, never below zero; None when there is no deadline."""
    moment = current.get()
    return None if moment is None else max(moment - now(), 0.0)


def earlier(moment: float) -> float:
    """Return *moment*, or the ambient deadline if that comes first."""
    outer = current.get()
    return moment if outer is None else min(moment, outer)


def allows(pause: float) -> bool:
    """Tell whether a pause may begin: it must end before the time is up."""
    moment = current.get()
    return moment is None or now() + max(pause, 0.0) < moment


async def cancelled_in_time(awaitable: Awaitable[T], moment: float) -> T:
    """Await, and cancel when *moment* has come."""
    import asyncio

    scope = asyncio.timeout(max(moment - now(), 0.0))
    try:
        async with scope:
            return await awaitable
    except TimeoutError:
        if not scope.expired():
            raise
    raise DeadlineExceeded("the attempt was cancelled, for its time was up")
