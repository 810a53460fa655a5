"""Service objects for Python: tasks that run, retry and report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx import clock, telemetry
from cmdx.adhoc import RetryOptions
from cmdx.budget import RetryBudget
from cmdx.callbacks import (
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    on_complete,
    on_failed,
    on_interrupted,
    on_ko,
    on_ok,
    on_skipped,
    on_success,
)
from cmdx.chain import Chain
from cmdx.context import Context
from cmdx.deadlines import deadline, remaining
from cmdx.exceptions import (
    CallbackError,
    CmdxError,
    DefinitionError,
    DeprecatedTaskError,
    Fault,
    FinishedTaskError,
    ImplementationError,
    MiddlewareError,
    NoValueError,
    UnknownContextKey,
    UnknownEntryError,
)
from cmdx.executors import executors
from cmdx.inputs import optional, private, required
from cmdx.log import enable_logging
from cmdx.middleware import middleware
from cmdx.outcome import Outcome, State, Status, Stop
from cmdx.outputs import output
from cmdx.result import Attempt, Result
from cmdx.retriers import retriers
from cmdx.retry import RetryPolicy, RetryRule, retry_on
from cmdx.task import Task
from cmdx.telemetry import (
    task_deprecated,
    task_executed,
    task_retried,
    task_rolled_back,
    task_started,
)
from cmdx.validation import Errors, Invalid, messages

if TYPE_CHECKING:
    from cmdx.classifying import is_retryable
    from cmdx.coercion import coercions
    from cmdx.merging import mergers
    from cmdx.workflow import Workflow, group, parallel, step

__all__ = [
    "Attempt",
    "CallbackError",
    "Chain",
    "CmdxError",
    "Context",
    "DefinitionError",
    "DeprecatedTaskError",
    "Errors",
    "Fault",
    "FinishedTaskError",
    "ImplementationError",
    "Invalid",
    "MiddlewareError",
    "NoValueError",
    "Outcome",
    "Result",
    "RetryBudget",
    "RetryOptions",
    "RetryPolicy",
    "RetryRule",
    "State",
    "Status",
    "Stop",
    "Task",
    "UnknownContextKey",
    "UnknownEntryError",
    "Workflow",
    "after_execution",
    "around_execution",
    "before_execution",
    "before_validation",
    "clock",
    "coercions",
    "deadline",
    "enable_logging",
    "executors",
    "group",
    "is_retryable",
    "mergers",
    "messages",
    "middleware",
    "on_complete",
    "on_failed",
    "on_interrupted",
    "on_ko",
    "on_ok",
    "on_skipped",
    "on_success",
    "optional",
    "output",
    "parallel",
    "private",
    "remaining",
    "required",
    "retriers",
    "retry_on",
    "step",
    "task_deprecated",
    "task_executed",
    "task_retried",
    "task_rolled_back",
    "task_started",
    "telemetry",
]

# What not every program needs is imported when it is first asked for.
_LATER = {
    "Workflow": "cmdx.workflow",
    "coercions": "cmdx.coercion",
    "group": "cmdx.workflow",
    "is_retryable": "cmdx.classifying",
    "mergers": "cmdx.merging",
    "parallel": "cmdx.workflow",
    "step": "cmdx.workflow",
}


def __getattr__(name: str) -> Any:
    """Import a public name that was not needed so far."""
    if name not in _LATER:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value
