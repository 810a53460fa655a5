"""
What comes back from a run.

A run leaves a ``Record``: what happened, and nothing about the others.
A ``Result`` is how people read a record, in the light of the chain it belongs to.
Chains keep records, results keep their chain, so nothing here forms a cycle.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    NoReturn,
    TypeVar,
    cast,
)

from cmdx.chain import Chain, chain_of
from cmdx.exceptions import Fault, NoValueError
from cmdx.outcome import State, Status, Stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from weakref import ref

    from cmdx.context import Context
    from cmdx.guidance import Guidance
    from cmdx.invocation import Invocation
    from cmdx.merging import Conflict
    from cmdx.outcome import Outcome
    from cmdx.task import Task
    from cmdx.validation import Errors

V_co = TypeVar("V_co", covariant=True)
D = TypeVar("D")

MARKS = {Status.SUCCESS: "✓", Status.SKIPPED: "○", Status.FAILED: "✗"}
LONGEST_VALUE = 60


class Attempt(NamedTuple):
    """One call of ``work``."""

    start: float
    """Seconds from the start of the run."""
    duration: float
    """Seconds spent in ``work``."""
    error: BaseException | None
    """What it raised; the traceback is kept for the last attempt only."""
    pause: float | None
    """Seconds decided to wait before the next attempt, or None for the last one."""
    rule: str | None
    """The name of the retry rule that had it tried again."""

    @classmethod
    def _made(cls, fields: tuple[Any, ...]) -> Attempt:
        # A jitter may ask for less than nothing; the next one is told so as it is.
        start, duration, error, pause, rule = fields
        waited = None if pause is None else max(pause, 0.0)
        return cls(start, duration, error, waited, rule)


class Record:
    """What became of one run; filled in while the lifecycle goes on."""

    stopped: Stop | None = Stop.SUCCESS
    attempts: Sequence[tuple[Any, ...]] = ()
    rollback_error: BaseException | None = None
    succeeded: Sequence[Record] = ()
    compensated: Sequence[Record] = ()
    index: int | None = None
    # A failure of the same chain that this one passes on, and whether by a fault.
    passed_on: Record | None = None
    by_fault: bool = False
    reading: ref[Result[Any]] | None = None

    def __init__(self, task: Invocation, outcome: Outcome, value: Any) -> None:
        self.task = task
        self.outcome = outcome
        self.value = value

    def _replaced_by_(self, other: Record) -> Record:
        """Return this record with the outcome of another."""
        record = Record(self.task, other.outcome, other.value)
        record.stopped = self.stopped
        record.attempts = self.attempts
        record.rollback_error = self.rollback_error
        record.succeeded = self.succeeded
        record.compensated = self.compensated
        return record

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what users hung on the task; it may not be picklable."""
        return self.__dict__ | {"task": self.task._detached_(), "reading": None}


class Result(Generic[V_co]):
    """The outcome of a run and everything about the run; read-only."""

    __slots__ = ("__weakref__", "_chain", "_fault", "_record")

    def __init__(self, record: Record, chain: Chain | None = None) -> None:
        self._record = record
        self._chain = chain
        self._fault: Fault | None = None

    def _untie_(self, chain: Chain) -> None:
        """
        Have the record lead to records of its chain, not to results and faults.

        Those lead to the chain, and the chain back to the record.
        """
        record = self._record
        origin, cause = record.outcome.origin, record.outcome.cause
        if origin is not None and origin._chain is chain:
            record.passed_on = origin._record
            record.by_fault = isinstance(cause, Fault)
            if isinstance(cause, Fault):
                self._fault, cause = cause, None
            record.outcome = record.outcome._replace(cause=cause, origin=None)
        record.attempts = [
            (*each[:2], _untied(each[2], chain), *each[3:]) for each in record.attempts
        ]

    def _tied(self, error: Any) -> Any:
        if not isinstance(error, Record):
            return error
        same = self._record.by_fault and error is self._record.passed_on
        return self.cause if same else self.chain._result(error)._as_fault()

    def _replaced_by_(self, other: Record) -> Result[V_co]:
        """Return this result with the outcome of another."""
        return Result(self._record._replaced_by_(other))

    # -- identity ---------------------------------------------------------------

    @property
    def task(self) -> type[Task[V_co]]:
        """The class that was run."""
        return cast("type[Task[V_co]]", type(self._record.task))

    @property
    def type(self) -> str:
        """``"Task"`` or ``"Workflow"``."""
        return self._record.task._kind_

    @property
    def tid(self) -> str:
        """The id of the run, a UUIDv7."""
        return self._record.task.tid

    @property
    def run_id(self) -> str:
        """The id of the run, the same in all its attempts: an idempotency key."""
        return self.tid

    @property
    def context(self) -> Context:
        """The context the task worked on."""
        return self._record.task.context

    @property
    def errors(self) -> Errors:
        """The problems the task collected."""
        return self._record.task.errors

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the task."""
        return self._record.task._plan_.settings.tags

    # -- outcome ----------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Success, skipped or failed."""
        return self._record.outcome.status

    @property
    def state(self) -> State:
        """Complete or interrupted."""
        return self._record.outcome.state

    @property
    def reason(self) -> str | None:
        """Why it ended as it did, in words."""
        return self._record.outcome.reason

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the task and its halts noted down."""
        return MappingProxyType(self._record.task._metadata_ or {})

    @property
    def cause(self) -> BaseException | None:
        """The exception behind a failure."""
        if self._record.by_fault and self._fault is None:
            origin = self.origin
            assert origin is not None  # noqa: S101 -- a fault passes a failure on
            self._fault = origin._as_fault()
        return self._fault or self._record.outcome.cause

    @property
    def origin(self) -> Result[Any] | None:
        """The result of another task whose failure this one passes on."""
        if self._record.passed_on is not None:
            return self.chain._result(self._record.passed_on)
        return self._record.outcome.origin

    @property
    def success(self) -> bool:
        """Whether the task did its work."""
        return self.status is Status.SUCCESS

    @property
    def skipped(self) -> bool:
        """Whether the task had nothing to do."""
        return self.status is Status.SKIPPED

    @property
    def failed(self) -> bool:
        """Whether the task failed."""
        return self.status is Status.FAILED

    @property
    def complete(self) -> bool:
        """Whether the task came to its end."""
        return self.state is State.COMPLETE

    @property
    def interrupted(self) -> bool:
        """Whether the task was skipped or failed."""
        return self.state is State.INTERRUPTED

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong: success or skipped."""
        return self.status is not Status.FAILED

    @property
    def ko(self) -> bool:
        """Whether the work was not done: skipped or failed."""
        return self.status is not Status.SUCCESS

    @property
    def value(self) -> V_co:
        """What ``work`` returned; raises when there is none."""
        if self.success:
            value: V_co = self._record.value
            return value
        if self.skipped:
            message = (
                f"{self.task.__qualname__} was skipped and has no value. "
                "Ask for .success first, or use .value_or(default)."
            )
            raise NoValueError(message)
        raise self._as_fault()

    def value_or(self, default: D) -> V_co | D:
        """Return what ``work`` returned, or *default*."""
        return self._record.value if self.success else default

    def or_raise(self) -> Result[V_co]:
        """
        Return this result, or raise if the task failed.

        Raises the very exception that ``work`` raised, otherwise a ``Fault``.
        """
        if not self.failed:
            return self
        error = self._as_fault() if self.cause is None else self.cause
        try:
            raise error
        finally:
            # The error's traceback will hold this frame: were the frame still to hold
            # the result, and the result the error, they would form a cycle.
            del self, error

    def _as_fault(self) -> Fault:
        deepest = self.caused_failure
        assert deepest is not None  # noqa: S101 -- only failures become faults
        fault = deepest.task.Fault(deepest)
        fault.__cause__ = deepest.cause
        return fault

    # -- failure walk -----------------------------------------------------------

    @property
    def caused_failure(self) -> Result[Any] | None:
        """The deepest failure behind this one; itself when it is its own."""
        if not self.failed or self.origin is None:
            return self if self.failed else None
        return self.origin.caused_failure

    @property
    def threw_failure(self) -> Result[Any] | None:
        """The failure that was passed on to this task; itself when it is its own."""
        if not self.failed or self.origin is None:
            return self if self.failed else None
        return self.origin

    @property
    def is_thrown_failure(self) -> bool:
        """Whether the failure came from another task."""
        return self.failed and self.origin is not None

    @property
    def is_caused_failure(self) -> bool:
        """Whether the failure is the task's own."""
        return self.failed and self.origin is None

    @property
    def error(self) -> BaseException | str | None:
        """The cause of a failure, or its reason when there is no exception."""
        if not self.failed:
            return None
        return self.reason if self.cause is None else self.cause

    # -- run --------------------------------------------------------------------

    @property
    def retries(self) -> int:
        """The index of the last attempt started."""
        return self._record.task._attempt_

    @property
    def retried(self) -> bool:
        """Whether ``work`` was called more than once."""
        return self.retries > 0

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Each call of ``work``; empty when there was one, and it was clean."""
        return tuple(
            Attempt._made((*each[:2], self._tied(each[2]), *each[3:]))
            for each in self._record.attempts
        )

    @property
    def stopped(self) -> Stop | None:
        """Why ``work`` was not called again; None when it was never called."""
        return self._record.stopped

    @property
    def guidance(self) -> Guidance | None:
        """What the failure says about trying again; None if it says nothing."""
        if not self.failed:
            return None
        from cmdx.guidance import guidance_of

        return guidance_of(self)

    @property
    def duration(self) -> float:
        """Seconds from the start to the end, pauses included."""
        return self._record.task._duration_

    @property
    def started_at(self) -> datetime:
        """When the run began, in UTC."""
        return datetime.fromtimestamp(self._record.task._started_at_, UTC)

    @property
    def strict(self) -> bool:
        """Whether it was run by ``execute_or_raise``."""
        return self._record.task._strict_

    @property
    def deprecated(self) -> bool:
        """Whether the task was deprecated when it ran."""
        return self._record.task._deprecated_

    @property
    def rolled_back(self) -> bool:
        """Whether ``rollback`` was called."""
        return self._record.task._rolled_back_

    @property
    def rollback_error(self) -> BaseException | None:
        """What ``rollback`` raised; the failure before it stays the outcome."""
        return self._record.rollback_error

    @property
    def compensated(self) -> tuple[Result[Any], ...]:
        """The steps that were rolled back when this workflow failed, in that order."""
        return tuple(map(self.chain._result, self._record.compensated))

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """The keys that parallel steps of this workflow wrote with different values."""
        return self._record.task._conflicts_

    # -- chain ------------------------------------------------------------------

    @property
    def chain(self) -> Chain:
        """The results of the root run this one belongs to."""
        if self._chain is None:
            task = self._record.task
            if task._phase_ == "running":
                return chain_of(task)
            self._chain = Chain()
            self._chain.join(self)
        return self._chain

    @property
    def cid(self) -> str:
        """The id of the chain."""
        return self.chain.id

    @property
    def xid(self) -> str | None:
        """The correlation id of the chain."""
        return self.chain.xid

    @property
    def index(self) -> int:
        """The place in the chain; the root has 0."""
        return self.chain.index_of(self._record)

    @property
    def root(self) -> bool:
        """Whether this is the root of its chain."""
        return self._record.task._parent_ is None

    @property
    def parent(self) -> Result[Any] | None:
        """The result of the task that ran this one; None while that still runs."""
        tid = self.parent_tid
        return next((result for result in self.chain if result.tid == tid), None)

    @property
    def parent_tid(self) -> str | None:
        """The id of the run that started this one."""
        parent = self._record.task._parent_
        return None if parent is None else parent.tid

    @property
    def depth(self) -> int:
        """How many tasks this one is nested in."""
        return self._record.task._depth_

    # -- as text and data -------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain data, without the context."""
        origin = self.origin
        return {
            "task": self.task.__qualname__,
            "type": self.type,
            "tid": self.tid,
            "cid": self.cid,
            "xid": self.xid,
            "index": self.index,
            "root": self.root,
            "parent_tid": self.parent_tid,
            "depth": self.depth,
            "tags": list(self.tags),
            "state": self.state.value,
            "status": self.status.value,
            "reason": self.reason,
            "value": self._record.value if self.success else None,
            "metadata": dict(self.metadata),
            "errors": self.errors.to_dict(),
            "cause": described(self.cause),
            "origin": None
            if origin is None
            else [origin.task.__qualname__, origin.tid],
            "retries": self.retries,
            "retried": self.retried,
            "stopped": self.stopped and self.stopped.value,
            "attempts": [
                each._asdict() | {"error": described(each.error)}
                for each in self.attempts
            ],
            "started_at": self.started_at.isoformat(),
            "duration": self.duration,
            "strict": self.strict,
            "deprecated": self.deprecated,
            "rolled_back": self.rolled_back,
            "rollback_error": described(self.rollback_error),
        }

    def to_json(self) -> str:
        """Return the facts as JSON; what JSON does not know is written as its repr."""
        import json

        return json.dumps(_keyed(self.to_dict()), default=repr, ensure_ascii=False)

    @property
    def mark(self) -> str:
        """One character for the status."""
        return MARKS[self.status]

    def summary(self) -> str:
        """Say in a few words what the run came to, without name and time."""
        words = []
        if self.retries:
            words.append(
                f"{self.retries} {'retry' if self.retries == 1 else 'retries'}"
            )
        if self.reason:
            words.append(self.reason)
        elif self.success and self._record.value is not None:
            words.append(f"value={shortened(repr(self._record.value))}")
        return " ".join(", ".join(words).split())

    def __repr__(self) -> str:
        """Show the outcome on one line."""
        head = f"{self.mark} {self.task.__qualname__} {self.duration * 1000:.1f} ms"
        summary = self.summary()
        return f"{head}: {summary}" if summary else head

    def __bool__(self) -> NoReturn:
        """Refuse: a result is neither true nor false."""
        message = (
            f"a result is neither true nor false, and {self.task.__qualname__} may "
            "be skipped. Ask for .success, .ok or .failed."
        )
        raise TypeError(message)

    def __eq__(self, other: object) -> bool:
        """Be equal to any other reading of the same run."""
        if isinstance(other, Result):
            return self._record is other._record or self.tid == other.tid
        return NotImplemented

    def __hash__(self) -> int:
        """Hash by the id of the run."""
        return hash(self.tid)

    def __getstate__(self) -> tuple[Record, Chain]:
        """Pickle together with the chain."""
        return self._record, self.chain

    def __setstate__(self, state: tuple[Record, Chain]) -> None:
        """Take record and chain up again."""
        self._record, self._chain = state
        self._fault = None


def _untied(error: Any, chain: Chain) -> Any:
    """Return the record behind a fault of the same chain, anything else as it is."""
    same = isinstance(error, Fault) and error.result._chain is chain
    return error.result._record if same else error


def _keyed(value: Any) -> Any:
    """Return *value* with keys that JSON knows."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else repr(key): _keyed(each)
            for key, each in value.items()
        }
    return [_keyed(each) for each in value] if isinstance(value, list) else value


def shortened(text: str) -> str:
    """Return *text*, cut off where it gets too long for one line."""
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def described(error: BaseException | None) -> str | None:
    """Return class and message of *error*, if there is one."""
    if error is None:
        return None
    return f"{type(error).__qualname__}: {text_of(error)}".removesuffix(": ")


def text_of(error: BaseException) -> str:
    """Return the message of *error*, nothing if it cannot be put into words."""
    try:
        return str(error)
    except Exception:
        return ""
