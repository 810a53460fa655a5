"""How a run ended: status, outcome, attempts, and the halt that ends ``work``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cmdx.result import Result
    from cmdx.run.invocation import Invocation


class Status(StrEnum):
    """How a task ended."""

    SUCCESS = "success"
    """``work`` returned, or was ended by ``succeed``."""
    SKIPPED = "skipped"
    """``skip`` ended it: there was nothing to do."""
    FAILED = "failed"
    """``fail`` or ``throw`` ended it, or an exception."""


class State(StrEnum):
    """Whether a task completed its work."""

    COMPLETE = "complete"
    """It succeeded."""
    INTERRUPTED = "interrupted"
    """It was skipped, or failed."""


class Stop(StrEnum):
    """Why ``work`` was not called again."""

    SUCCESS = "success"
    """``work`` returned."""
    EXHAUSTED = "exhausted"
    """The limit was reached, or an outer task retries."""
    NOT_LISTED = "not_listed"
    """The error is not listed in the policy."""
    GATE = "gate"
    """A gate refused, or a gate or jitter raised an exception."""
    HALTED = "halted"
    """A halt ended ``work``."""
    DEADLINE = "deadline"
    """The next attempt would have been too late, or this one was cancelled."""
    BUDGET = "budget"
    """The retry budget was used up."""
    GUIDANCE = "guidance"
    """The guidance of the error prevented a retry."""
    CANCELLED = "cancelled"
    """An interrupt, or the halt of an outer task, ended the run."""


# Members that many runs need: Python 3.11 looks up a member of an enum slowly.
FAILED, SUCCEEDED = Status.FAILED, Status.SUCCESS
STOPPED_BY_SUCCESS = Stop.SUCCESS
STOPPED_BY_HALT = Stop.HALTED
STOPPED_BY_OTHER_ERROR = Stop.NOT_LISTED


class FrozenMetadata(Mapping[str, Any]):
    """The metadata of a result, which cannot be changed."""

    __slots__ = ("_noted",)

    def __init__(self, noted: Mapping[str, Any]) -> None:
        self._noted = noted

    def __getitem__(self, key: str) -> Any:
        """Return what was noted."""
        return self._noted[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self._noted)

    def __len__(self) -> int:
        """Count what was noted."""
        return len(self._noted)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dict of both, in which *other* wins."""
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dict of both, in which this one wins."""
        return {**other, **self}

    def __repr__(self) -> str:
        """Show it as a dict."""
        return repr(dict(self))

    def copy(self) -> dict[str, Any]:
        """Return a dict that can be changed."""
        return dict(self)

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        """Refuse the change."""
        refuse_metadata_change()

    def __delitem__(self, key: str) -> NoReturn:
        """Refuse the change."""
        refuse_metadata_change()


def refuse_metadata_change() -> NoReturn:
    """Raise: a result cannot be changed."""
    message = (
        "the metadata of a result cannot be changed. Note facts in self.metadata while "
        "the task runs, or change a copy: dict(result.metadata)."
    )
    raise TypeError(message)


class Outcome(NamedTuple):
    """Status, reason, metadata, cause and origin of a run."""

    status: Status
    """Success, skipped or failed."""
    reason: str | None = None
    """Why the run ended."""
    metadata: Mapping[str, Any] = MappingProxyType({})
    """The metadata of the task and its halts."""
    cause: BaseException | None = None
    """The exception that caused a failure, or that was given to a halt."""
    origin: Result[Any] | None = None
    """The failed result of another task that this task passes on."""

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
