"""
Callbacks that wait for the commit of a ``Transaction``.

What they raise is logged, because the commit cannot be taken back. An interrupt
propagates at once, and those that come after it are not called.
"""

from __future__ import annotations

import logging
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from cmdx.declare.signatures import awaits, call_problem
from cmdx.middlewares.managed import is_unfinished
from cmdx.outcome import Halt
from cmdx.run.lifecycle import drive

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CoroutineType

    from cmdx.middlewares.transaction import Block

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


async def call_when_committed(
    block: Block, found: Any, connections: Iterable[Any]
) -> None:
    """
    Call the callbacks of *block*, or leave them to Django if it has yet to commit.

    Args:
        block: The outermost one of its transaction.
        found: What the context manager of the transaction has bound.
        connections: The connections of Django that it has entered.
    """
    for connection in connections:
        if connection.in_atomic_block:
            connection.on_commit(lambda: drive(call_after_commit(block)))
            return
    if is_unfinished(found):
        log.error(NOT_COMMITTED, block.transaction)
        return
    await call_after_commit(block)


async def call_after_commit(block: Block) -> None:
    """Call the callbacks, each whatever the others raise, until an interrupt."""
    for number, callback in enumerate(block.callbacks, 1):
        try:
            answer = callback()
            if iscoroutine(answer):
                await coroutine_for(block, answer)
        except (Exception, Halt):
            log.exception(
                "%r raised an exception after the transaction was committed", callback
            )
        except BaseException:
            if block.callbacks[number:]:
                log.error(INTERRUPTED, callback, block.callbacks[number:])  # noqa: TRY400 -- the interrupt propagates
            raise


def coroutine_for(block: Block, coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """Return *coroutine* to be awaited; refuse it in a synchronous run."""
    if not block.is_async:
        coroutine.close()
        raise TypeError(ASYNC_CALLBACK)
    return coroutine
