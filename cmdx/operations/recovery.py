"""
Finding out what became of an operation: the method ``recover`` of a task.

It is called when an indeterminate operation is called again, on resolved inputs. A
value, or ``self.succeed()``, is the outcome, and so is any other halt. None, an
exception, or inputs that are refused by now leave the operation indeterminate.
Callbacks and signals of the task belong to its run, so there are none here.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

from cmdx.declare.signatures import awaits as is_async
from cmdx.exceptions import AsyncTaskError
from cmdx.inputs.resolve import resolve
from cmdx.outcome import Halt
from cmdx.run.attempts import require_async_run, succeed_with
from cmdx.run.ending import end
from cmdx.run.lifecycle import take_result

if TYPE_CHECKING:
    from cmdx import Errors, Result, Task


def refuse_async_recover(cls: type[Task[Any]]) -> None:
    """Refuse an async ``recover`` in a synchronous run."""
    method = getattr(cls, "recover", None)
    if method is not None and is_async(method):
        cure = f"Use `await session.arun({cls.__qualname__}(...), id=...)`."
        raise AsyncTaskError(cls, "recover", cure=cure)


async def recover(task: Any, *, awaits: bool) -> Result[Any] | None:
    """Call ``recover``; None if it does not know either."""
    run = task._cmdx_
    run.start(task, awaits=awaits)
    try:
        resolve(task, run.plan.inputs)
        if run._errors:  # they say nothing about the run that was
            log_refused_inputs(task, run._errors)
        else:
            value = task.recover()
            if type(value) is CoroutineType:
                value = await require_async_run(run, value)
            if value is not None:
                succeed_with(run, value, run.started)
    except (Halt, Exception) as error:
        if isinstance(error, Exception):
            log_failed_recovery(task, error)
        elif not end(task, error):
            raise
    has_outcome = run.record.outcome is not None
    result = take_result(run)
    return result if has_outcome else None


def log_failed_recovery(task: Task[Any], error: Exception) -> None:
    """Log what ``recover`` raised; the caller is told that nobody knows."""
    import logging

    message = "recover() of %s raised an exception; the operation stays indeterminate"
    logging.getLogger("cmdx").error(message, type(task).__qualname__, exc_info=error)


def log_refused_inputs(task: Task[Any], errors: Errors) -> None:
    """Log why ``recover`` was not asked; the caller is told that nobody knows."""
    import logging

    message = (
        "recover() of %s was not asked, because %s; the operation stays indeterminate"
    )
    logging.getLogger("cmdx").warning(message, type(task).__qualname__, errors)
