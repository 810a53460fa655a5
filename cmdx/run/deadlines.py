"""
The ambient deadline: until when something must be done.

``with deadline(2.0):`` gives what runs inside two seconds in all. It is handed on to
nested tasks, which can only make it earlier, and to coroutines and copied contexts,
and holds until the block has ended.
Nothing is interrupted in a synchronous run; a retry that would end too late is not
begun, no step of a workflow starts when the time is up, and ``remaining()`` tells
``work`` how much time there is. In an asynchronous run an attempt is cancelled when the
time is up.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from cmdx.clock import now, require_asyncio
from cmdx.declare.checks import check_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

T = TypeVar("T")


class DeadlineExceeded(TimeoutError):  # noqa: N818 -- as others call it
    """An attempt was cancelled, or a step not started, because the time was up."""


class TimeLimit:
    """
    The time that a block or a run has; an outer limit that is earlier counts.

    It holds until the block or run has ended. Tasks that were started inside and are
    still running then have the outer limit.
    """

    __slots__ = ("holds", "moment", "outer")

    def __init__(self, moment: float) -> None:
        self.outer = current.get()
        self.moment = moment
        self.holds = True


current: ContextVar[TimeLimit | None] = ContextVar("cmdx.deadline", default=None)


def current_moment() -> float | None:
    """Return the moment of the clock by which all must be done, or None."""
    limit, earliest = current.get(), None
    while limit is not None:
        if limit.holds and (earliest is None or limit.moment < earliest):
            earliest = limit.moment
        limit = limit.outer
    return earliest


@contextmanager
def deadline(seconds: float) -> Iterator[float]:
    """
    Limit the time of the tasks that run in a block.

    An outer deadline that is earlier stays in force. Retries that would start too late
    are not made, and no step of a workflow starts after the deadline. An asynchronous
    attempt is cancelled when the deadline passes; a synchronous one runs to its end.

    Example::

        with cmdx.deadline(2.0):
            result = FetchRate.execute(currency="EUR")

    Args:
        seconds: The time for everything in the block together; 0 or more.
    """
    seconds = check_seconds("deadline()", "the argument", seconds)
    limit = TimeLimit(now() + seconds)
    try:
        current.set(limit)
        yield seconds
    finally:
        limit.holds = False
        if current.get() is limit:  # not if the block is left in another context
            current.set(limit.outer)


@contextmanager
def unlimited() -> Iterator[None]:
    """Let what runs in the block have none of the deadlines around it."""
    token = current.set(None)
    try:
        yield
    finally:
        current.reset(token)


def remaining() -> float | None:
    """
    Return the seconds until the deadline, 0 if it has passed; None if there is none.

    Example::

        response = client.get(url, timeout=cmdx.remaining())
    """
    moment = current_moment()
    return None if moment is None else max(moment - now(), 0.0)


def allows(pause: float) -> bool:
    """Tell whether a pause may begin: it must end before the time is up."""
    moment = current_moment()
    return moment is None or max(pause, 0.0) < moment - now()


async def cancel_at(awaitable: Awaitable[T], moment: float) -> T:
    """Await, and cancel when *moment* has come."""
    import asyncio

    require_asyncio("a deadline of async work", awaitable)
    scope = asyncio.timeout(max(moment - now(), 0.0))
    try:
        async with scope:
            return await awaitable
    except TimeoutError as error:
        if not scope.expired():
            raise
        is_from_scope = isinstance(error.__cause__, asyncio.CancelledError)
        message = "the attempt was cancelled: the deadline has passed"
        raise DeadlineExceeded(message) from (None if is_from_scope else error)
