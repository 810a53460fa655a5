"""
Operations: one intention, at most one effect.

A task that is run through a ``Ledger`` with an id is done at most once, whatever
crashes, repeats or is cancelled. A duplicate gets the result of the first run.
"""

from cmdx.operations.answers import Operation, current_operation
from cmdx.operations.errors import (
    Indeterminate,
    OperationCancelled,
    OperationConflict,
    OperationError,
    OperationExpired,
    OperationIdError,
    StillRunning,
)
from cmdx.operations.ledger import Ledger, Session
from cmdx.operations.policy import OperationPolicy, operation
from cmdx.operations.signals import (
    operation_admitted,
    operation_indeterminate,
    operation_released,
    operation_replayed,
    operation_sealed,
)
from cmdx.operations.table import OperationState
from cmdx.operations.within import connection

__all__ = [
    "Indeterminate",
    "Ledger",
    "Operation",
    "OperationCancelled",
    "OperationConflict",
    "OperationError",
    "OperationExpired",
    "OperationIdError",
    "OperationPolicy",
    "OperationState",
    "Session",
    "StillRunning",
    "connection",
    "current_operation",
    "operation",
    "operation_admitted",
    "operation_indeterminate",
    "operation_released",
    "operation_replayed",
    "operation_sealed",
]
