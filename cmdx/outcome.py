"""How a run ended: a status, and the halt that carries it out of ``work``."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cmdx.invocation import Invocation
    from cmdx.result import Result


class Status(StrEnum):
    """What became of a task."""

    SUCCESS = "success"
    SKIPPED = "skipped"
    FAILED = "failed"


class State(StrEnum):
    """Whether a task came to its end."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class Stop(StrEnum):
    """Why ``work`` was not called again."""

    SUCCESS = "success"
    EXHAUSTED = "exhausted"
    NOT_LISTED = "not_listed"
    GATE = "gate"
    HALTED = "halted"
    DEADLINE = "deadline"
    BUDGET = "budget"
    GUIDANCE = "guidance"
    CANCELLED = "cancelled"


class Outcome(NamedTuple):
    """Status, reason, metadata, cause and origin of a run."""

    status: Status
    reason: str | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    cause: BaseException | None = None
    origin: Result[Any] | None = None

    @property
    def state(self) -> State:
        """Complete after a success, interrupted otherwise."""
        complete = self.status is Status.SUCCESS
        return State.COMPLETE if complete else State.INTERRUPTED

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the metadata as a plain dict."""
        metadata = dict(self.metadata)
        fields = (self.status, self.reason, metadata, self.cause, self.origin)
        return Outcome, fields


SUCCESS = Outcome(Status.SUCCESS)


class Halt(BaseException):
    """
    Ends ``work`` early, on purpose.

    It is no error, so it does not derive from ``Exception``:
    neither ``except Exception`` in user code nor ``retry_on(Exception)`` sees it.
    """

    __slots__ = ("metadata", "origin", "reason", "status", "task", "value")

    def __init__(  # noqa: PLR0913, PLR0917 -- made in one place
        self,
        task: Invocation,
        status: Status,
        reason: str | None,
        metadata: Mapping[str, Any],
        value: Any = None,
        origin: Result[Any] | None = None,
    ) -> None:
        self.task = task
        self.status = status
        self.reason = reason
        self.metadata = metadata
        self.value = value
        self.origin = origin
