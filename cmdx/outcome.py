"""How a run ended: status, outcome, attempts, and the halt that ends ``work``."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cmdx.result import Result
    from cmdx.run.invocation import Invocation


class Status(StrEnum):
    """How a task ended."""

    SUCCESS = "success"
    SKIPPED = "skipped"
    FAILED = "failed"


class State(StrEnum):
    """Whether a task completed its work."""

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


# Members that many runs need: Python 3.11 looks up a member of an enum slowly.
FAILED, SUCCEEDED = Status.FAILED, Status.SUCCESS
STOPPED_BY_SUCCESS = Stop.SUCCESS
STOPPED_BY_HALT = Stop.HALTED
STOPPED_BY_OTHER_ERROR = Stop.NOT_LISTED


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


class Attempt(NamedTuple):
    """One call of ``work``."""

    start: float
    """Seconds from the start of the run."""
    duration: float
    """Seconds spent in ``work``."""
    error: BaseException | None
    """What it raised; the traceback is kept for the last attempt only."""
    pause: float | None
    """Seconds to wait before the next attempt, or None for the last one."""
    rule: str | None
    """The name of the retry rule that decided to try again."""


class Attempts(tuple[Attempt, ...]):  # noqa: SLOT001 -- a tuple has no room for slots
    """The calls of ``work`` of a run; printed as a timeline."""

    stopped: Stop | None = None
    """Why ``work`` was not called again."""

    @classmethod
    def of(cls, attempts: Iterable[Attempt], stopped: Stop | None) -> Attempts:
        """Return the *attempts* of a run that ended for the reason *stopped*."""
        made = cls(attempts)
        made.stopped = stopped
        return made

    def __str__(self) -> str:
        """Show one attempt on each line: when, how long, its error, what came next."""
        from cmdx.report import timeline_of

        return "\n".join(timeline_of(self)) or "(none)"


AttemptFields: TypeAlias = tuple[float, float, Any, float | None, str | None]
"""
The fields of an ``Attempt``, as a record keeps them, which is faster.

When the record joins a chain, a fault is replaced by the record behind it.
"""


class Halt(BaseException):
    """
    Ends ``work`` early, on purpose.

    It derives from ``BaseException`` because it is not an error:
    neither ``except Exception`` in user code nor ``retry_on(Exception)`` catches it.
    """

    __slots__ = (
        "at", "cause", "metadata", "origin", "reason", "status", "task", "value",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 -- all facts of a halt
        self,
        task: Invocation,
        status: Status,
        reason: str | None,
        metadata: Mapping[str, Any],
        *,
        value: Any = None,
        cause: BaseException | None = None,
        origin: Result[Any] | None = None,
        at: tuple[str, int] | None = None,
    ) -> None:
        self.task = task
        self.status = status
        self.reason = reason
        self.metadata = metadata
        self.value = value
        self.cause = cause
        self.origin = origin
        self.at = at
        """The file and line of the call that halted."""

    def __str__(self) -> str:
        """Say who was halted, and why; inner runs that it ends have it as reason."""
        halted = f"{type(self.task).__qualname__} was halted"
        return f"{halted}: {self.reason}" if self.reason else halted
