"""Service objects for Python: tasks that run, retry and report."""

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
from cmdx.coercion import coercions
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
from cmdx.merging import mergers
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
