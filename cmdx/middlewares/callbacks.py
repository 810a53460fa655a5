"""
Callbacks that wait for the commit of a ``Transaction``.

What they raise is logged, because the commit cannot be taken back. An interrupt
propagates at once, and those that come after it are not called. None is called if the
context manager of the transaction raises when it is left; this is logged.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from cmdx.declare.signatures import awaits, call_problem
from cmdx.middlewares.managed import is_unfinished
from cmdx.outcome import Halt
from cmdx.run.lifecycle import drive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from types import CoroutineType

    from cmdx.middlewares.transaction import TransactionScope

ASYNC_CALLBACK = (
    "a callback of on_commit is async, but the run is not. "
    "Give a plain function, or run the task with aexecute()."
)
NOT_COMMITTED = (
    "callbacks of on_commit were not called: the transaction of %r was begun outside "
    "of the task, and is not committed yet. Commit it before the task runs, or do "
    "after your own commit what they would do."
)
INTERRUPTED = (
    "%r was interrupted after the transaction was committed, so these callbacks of "
    "on_commit were not called: %r"
)
NOT_LEFT = (
    "the context manager of %r raised an exception when it was left. The transaction "
    "may have been committed before, but these callbacks of on_commit were not called: "
    "%r"
)

log = logging.getLogger("cmdx")


def refuse_callback(callback: Any, *, is_async: bool) -> None:
    """Raise if *callback* cannot be called without arguments, or be awaited."""
    problem = callback_problem(callback)
    if problem is not None:
        message = (
            "on_commit takes a function without parameters, which it calls after the "
            f"commit, got {problem}. Write `on_commit(lambda: ...)` around the call."
        )
        raise TypeError(message)
    if awaits(callback) and not is_async:
        raise TypeError(ASYNC_CALLBACK)


def callback_problem(callback: Any) -> str | None:
    """Say what *callback* is, if it cannot be called without arguments."""
    if iscoroutine(callback):
        callback.close()
    if not callable(callback):
        return repr(callback)
    problem = call_problem(callback, 0)
    return problem and f"{callback!r}: {problem}"


@asynccontextmanager
async def report_dropped_callbacks(
    opening: AbstractAsyncContextManager[TransactionScope],
    outer: TransactionScope | None,
) -> AsyncIterator[TransactionScope]:
    """
    Open a transaction; log its callbacks if it may be committed and leaving it raises.

    Args:
        opening: What opens it.
        outer: The scope around it, if it is a savepoint, which commits nothing.
    """
    opened: list[TransactionScope] = []
    try:
        async with opening as scope:
            opened.append(scope)
            yield scope
    except BaseException:
        for scope in opened:
            if outer is None and scope.may_be_committed and scope.callbacks:
                log.error(NOT_LEFT, scope.transaction, scope.callbacks)  # noqa: TRY400 -- the exception propagates
        raise


async def call_when_committed(scope: TransactionScope, found: Any) -> None:
    """
    Call the callbacks of *scope*, or leave them to Django if it has yet to commit.

    Args:
        scope: The outermost one of its transaction.
        found: What the context manager of the transaction has bound.
    """
    for connection in scope.django:
        if connection.in_atomic_block:
            connection.on_commit(lambda: drive(call_after_commit(scope)))
            return
    if is_unfinished(found):
        log.error(NOT_COMMITTED, scope.transaction)
        return
    await call_after_commit(scope)


async def call_after_commit(scope: TransactionScope) -> None:
    """Call the callbacks, each whatever the others raise, until an interrupt."""
    for number, callback in enumerate(scope.callbacks, 1):
        try:
            answer = callback()
            if iscoroutine(answer):
                await coroutine_for(scope, answer)
        except (Exception, Halt):
            log.exception(
                "%r raised an exception after the transaction was committed", callback
            )
        except BaseException:
            if scope.callbacks[number:]:
                log.error(INTERRUPTED, callback, scope.callbacks[number:])  # noqa: TRY400 -- the interrupt propagates
            raise


def coroutine_for(
    scope: TransactionScope, coroutine: CoroutineType[Any, Any, Any]
) -> Any:
    """Return *coroutine* to be awaited; refuse it in a synchronous run."""
    if not scope.is_async:
        coroutine.close()
        raise TypeError(ASYNC_CALLBACK)
    return coroutine
