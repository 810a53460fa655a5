"""Service objects for Python: tasks that run, retry and report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx import clock, telemetry
from cmdx.chain import Chain, current_task, detached
from cmdx.context import Context
from cmdx.declare.hooks import (
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
from cmdx.declare.middleware import middleware, without_middleware
from cmdx.exceptions import (
    AsyncTaskError,
    CallbackError,
    CmdxError,
    DefinitionError,
    DeprecatedTaskError,
    Fault,
    FinishedTaskError,
    ImplementationError,
    MiddlewareError,
    NoValueError,
    RecordedError,
    UnknownContextKey,
    UnknownEntryError,
)
from cmdx.inputs.errors import Errors, Invalid, messages
from cmdx.inputs.fields import optional, private, required
from cmdx.inputs.outputs import output
from cmdx.log import enable_logging
from cmdx.outcome import Attempt, Outcome, State, Status, Stop
from cmdx.result import Result
from cmdx.retry.budget import RetryBudget
from cmdx.retry.inline import RetryOptions
from cmdx.retry.policy import RetryPolicy, RetryRule, retry_on
from cmdx.retry.strategies import retriers
from cmdx.run.continuation import Suspended
from cmdx.run.deadlines import DeadlineExceeded, deadline, remaining
from cmdx.task import Task
from cmdx.telemetry import (
    task_cancelled,
    task_deprecated,
    task_executed,
    task_retried,
    task_rolled_back,
    task_started,
)

if TYPE_CHECKING:
    from cmdx.inputs.coercion import coercions
    from cmdx.retry.classify import classifier, is_retryable
    from cmdx.workflow.executors import executors
    from cmdx.workflow.merging import mergers
    from cmdx.workflow.steps import group, parallel, step
    from cmdx.workflow.workflow import Workflow

    __version__: str

__all__ = [
    "AsyncTaskError",
    "Attempt",
    "CallbackError",
    "Chain",
    "CmdxError",
    "Context",
    "DeadlineExceeded",
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
    "RecordedError",
    "Result",
    "RetryBudget",
    "RetryOptions",
    "RetryPolicy",
    "RetryRule",
    "State",
    "Status",
    "Stop",
    "Suspended",
    "Task",
    "UnknownContextKey",
    "UnknownEntryError",
    "Workflow",
    "after_execution",
    "around_execution",
    "before_execution",
    "before_validation",
    "classifier",
    "clock",
    "coercions",
    "current_task",
    "deadline",
    "detached",
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
    "task_cancelled",
    "task_deprecated",
    "task_executed",
    "task_retried",
    "task_rolled_back",
    "task_started",
    "telemetry",
    "without_middleware",
]

# What not every program needs is imported when it is first asked for.
_LATER = {
    "Workflow": "cmdx.workflow.workflow",
    "classifier": "cmdx.retry.classify",
    "coercions": "cmdx.inputs.coercion",
    "executors": "cmdx.workflow.executors",
    "group": "cmdx.workflow.steps",
    "is_retryable": "cmdx.retry.classify",
    "mergers": "cmdx.workflow.merging",
    "parallel": "cmdx.workflow.steps",
    "step": "cmdx.workflow.steps",
}


_PACKAGES = {
    "delivery", "engines", "guidance", "middlewares", "opentelemetry", "operations",
    "pictures", "queue", "stores", "testing", "web", "wire",
}  # fmt: skip
_EXPECTED = ["__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]

if not TYPE_CHECKING:  # or checkers would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        """Import a public name that was not needed so far, or look up the version."""
        if name == "__version__":
            from importlib.metadata import version

            value = version("pycmdx")
        elif name in _LATER:
            from importlib import import_module

            value = getattr(import_module(_LATER[name]), name)
        else:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List what is public, also what was not imported so far."""
    return sorted({*__all__, *_EXPECTED, *(_PACKAGES & globals().keys())})
