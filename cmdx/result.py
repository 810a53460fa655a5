"""
What comes back from a run.

A run leaves a ``Record``: what became of it, and nothing about other runs.
A ``Result`` reads a record together with the chain it belongs to.
Chains keep records and results keep their chain, so they form no reference cycle.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    SupportsIndex,
    TypeVar,
    cast,
)
from weakref import ref

from cmdx import report
from cmdx.chain import Chain, chain_of, creation_lock
from cmdx.exceptions import Fault, NoValueError
from cmdx.inputs.errors import FrozenErrors
from cmdx.outcome import (
    FAILED,
    SUCCEEDED,
    Attempt,
    Attempts,
    FrozenMetadata,
    State,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cmdx.context import Context
    from cmdx.guidance import Guidance
    from cmdx.inputs.errors import Errors
    from cmdx.operations import Operation
    from cmdx.outcome import Outcome, Stop
    from cmdx.run.record import Record
    from cmdx.task import Task
    from cmdx.workflow.merging import Conflict

V_co = TypeVar("V_co", covariant=True)
D = TypeVar("D")

NO_ERRORS = FrozenErrors({})


class Result(Generic[V_co]):
    """The outcome of a run and everything about the run; read-only."""

    __slots__ = ("__weakref__", "_chain", "_fault", "_record")

    def __init__(self, record: Record, chain: Chain | None = None) -> None:
        self._record = record
        self._chain = chain
        self._fault: Fault | None = None

    @classmethod
    def of(cls, record: Record, chain: Chain | None = None) -> Result[V_co]:
        """Return the result of *record* that somebody holds, or else a new one."""
        result = None if record.result_ref is None else record.result_ref()
        if result is None:
            result = cls(record)
            record.result_ref = ref(result)
        if chain is not None:
            result._chain = chain
        return result

    def _error_behind(self, error: Any) -> Any:
        """Return the fault for a record that ``cmdx.chain.untie`` put in its place."""
        if error is None or isinstance(error, BaseException):
            return error
        same = self._record.by_fault and error is self._record.passed_on
        return self.cause if same else self.chain._result(error)._as_fault()

    # -- identity ---------------------------------------------------------------

    @property
    def task(self) -> type[Task[V_co]]:
        """The class that was run."""
        return cast("type[Task[V_co]]", self._record.run.task)

    @property
    def type(self) -> str:
        """``"Task"`` or ``"Workflow"``."""
        return str(self._record.run.task._cmdx_.kind)

    @property
    def tid(self) -> str:
        """The id of the run, a UUIDv7."""
        return self._record.run.tid

    @property
    def run_id(self) -> str:
        """The id of the run, the same in all its attempts: an idempotency key."""
        return self.tid

    @property
    def context(self) -> Context:
        """The context the task worked on."""
        return self._record.run.context

    @property
    def errors(self) -> Errors:
        """The problems the task collected."""
        record = self._record
        if record.errors is None and record.run.phase == "running":
            return record.run.errors.freeze()
        return record.errors or NO_ERRORS

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the task."""
        return self._record.run.plan.settings.tags

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
        run = self._record.run
        noted = (
            run._metadata if run.phase == "running" else self._record.outcome.metadata
        )
        return FrozenMetadata(noted or {})

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
    def replaced(self) -> Outcome | None:
        """The first outcome, if a callback, gate, jitter or middleware replaced it."""
        replaced, origin = self._record.replaced, self._record.replaced_origin
        if replaced is None or origin is None:
            return replaced
        return replaced._replace(origin=self.chain._result(origin))

    @property
    def halted_at(self) -> str | None:
        """File and line of the call that halted the task; None if none did."""
        at = self._record.halted_at
        return None if at is None else f"{at[0]}:{at[1]}"

    @property
    def success(self) -> bool:
        """Whether the task did its work."""
        return self.status is SUCCEEDED

    @property
    def skipped(self) -> bool:
        """Whether the task had nothing to do."""
        return self.status is Status.SKIPPED

    @property
    def failed(self) -> bool:
        """Whether the task failed."""
        return self.status is FAILED

    @property
    def complete(self) -> bool:
        """Whether the task did its work: the opposite of ``interrupted``."""
        return self.state is State.COMPLETE

    @property
    def interrupted(self) -> bool:
        """Whether the task was skipped or failed."""
        return self.state is State.INTERRUPTED

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong: success or skipped."""
        return self.status is not FAILED

    @property
    def ko(self) -> bool:
        """Whether the work was not done: skipped or failed."""
        return self.status is not SUCCEEDED

    @property
    def value(self) -> V_co:
        """What ``work`` returned; raises when there is none."""
        if self.success:
            if self._record.lost_value is not None:
                raise NoValueError(self._record.lost_value)
            value: V_co = self._record.value
            return value
        became = "was skipped" if self.skipped else "failed"
        message = (
            f"{self.task.__qualname__} {became} and has no value. "
            "Check .success first, or use .value_or(default)."
        )
        if self.skipped:
            raise NoValueError(message)
        raise self._as_fault(message)

    def value_or(self, default: D) -> V_co | D:
        """Return what ``work`` returned, or *default*."""
        has_value = self.success and self._record.lost_value is None
        return self._record.value if has_value else default

    def or_raise(self) -> Result[V_co]:
        """
        Return this result, or raise if the task failed.

        Raises the very exception that ``work`` raised, otherwise a ``Fault``. The
        result of an operation always raises a ``Fault``, whoever ran it.
        """
        if not self.failed:
            return self
        is_raised = self._record.halted_at is None and not self._record.raises_fault
        raised = self.cause if is_raised else None
        error = self._as_fault() if raised is None else raised
        del raised
        try:
            raise error
        finally:
            # The error's traceback will hold this frame: were the frame still to hold
            # the result, and the result the error, they would form a cycle.
            del self, error

    def _as_fault(self, *notes: str) -> Fault:
        deepest = self.caused_failure
        assert deepest is not None  # noqa: S101 -- only failures become faults
        told = self if self._record.raises_fault else deepest
        fault = told.task.Fault(told)
        fault.__cause__ = self._root_cause
        if told is not self:
            fault._passed_on_by = self
        if deepest.halted_at is not None:
            fault.add_note(f"halted at {deepest.halted_at}")
        for note in notes:
            fault.add_note(note)
        return fault

    # -- failure walk -----------------------------------------------------------

    @property
    def caused_failure(self) -> Result[Any] | None:
        """The deepest failure behind this one, perhaps itself; None if none failed."""
        if not self.failed:
            return None
        result: Result[Any] = self
        while (origin := result.origin) is not None:
            result = origin
        return result

    @property
    def _root_cause(self) -> BaseException | None:
        """The exception where the failure started, which may be that of an origin."""
        deepest = self.caused_failure
        if deepest is None:
            return None
        cause = deepest.cause
        return deepest._record.fault_cause if cause is None else cause

    @property
    def threw_failure(self) -> Result[Any] | None:
        """The failure passed on to this task, perhaps its own; None if none failed."""
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
        """How many times ``work`` was called again."""
        return self._record.run.attempt

    @property
    def retried(self) -> bool:
        """Whether ``work`` was called more than once."""
        return self.retries > 0

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """
        One entry per call of ``work``; empty if the first one returned or halted.

        ``print(result.attempts)`` shows them as a timeline.
        """
        attempts = (
            Attempt(
                start,
                duration,
                self._error_behind(error),
                # A jitter may return a negative delay. The next jitter is passed that
                # value, the attempt shows 0.
                None if pause is None else max(pause, 0.0),
                rule,
            )
            for start, duration, error, pause, rule in self._record.attempts
        )
        return Attempts.of(attempts, self._record.stopped)

    @property
    def stopped(self) -> Stop | None:
        """Why ``work`` was not called again; None if it never was, unless cancelled."""
        return self._record.stopped

    @property
    def operation(self) -> Operation | None:
        """The operation this run belongs to; None unless it ran through a ledger."""
        return self._record.operation

    @property
    def indeterminate(self) -> bool:
        """Whether nobody can know if the work of the operation was done."""
        return self._record.is_indeterminate

    @property
    def guidance(self) -> Guidance | None:
        """What the failure says about trying again; None if it says nothing."""
        if not self.failed:
            return None
        from cmdx.guidance import guidance_of

        return guidance_of(self)

    @property
    def duration(self) -> float:
        """Seconds from the start to the end, or until now, pauses included."""
        return self._record.run.duration

    @property
    def started_at(self) -> datetime:
        """When the run began, in UTC."""
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self._record.run.started_at, UTC)

    @property
    def strict(self) -> bool:
        """Whether it was run by ``execute_or_raise``."""
        return self._record.run.strict

    @property
    def deprecated(self) -> bool:
        """Whether the task was deprecated when it ran."""
        return self._record.run.deprecated

    @property
    def rolled_back(self) -> bool:
        """Whether ``rollback`` was called."""
        return self._record.run.rolled_back

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
        return self._record.run.conflicts

    @property
    def written(self) -> dict[str, Any]:
        """What a parallel step wrote: its keys with their values, for mergers."""
        from cmdx.context import MISSING
        from cmdx.workflow.isolation import changes_in

        changes = changes_in(self.context)
        return {key: value for key, value in changes.items() if value is not MISSING}

    # -- chain ------------------------------------------------------------------

    @property
    def chain(self) -> Chain:
        """The results of the root run this one belongs to."""
        if self._chain is None:
            run = self._record.run
            if run.phase == "running":
                return chain_of(run)
            with creation_lock:  # threads that ask at once agree on one chain
                if self._chain is None:
                    chain = Chain()
                    chain.join(self)
                    self._chain = chain
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
        return self._record.run.parent is None

    @property
    def parent(self) -> Result[Any] | None:
        """The result of the task that ran this one; None while that still runs."""
        return self.chain._result_of(self._record.run.parent)

    @property
    def parent_tid(self) -> str | None:
        """The id of the run that started this one."""
        parent = self._record.run.parent
        return None if parent is None else parent.tid

    @property
    def depth(self) -> int:
        """How many tasks this one is nested in."""
        return self._record.run.depth

    # -- as text and data -------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain data, without the context."""
        return report.facts_of(self)

    def to_json(self) -> str:
        """Return the facts as JSON; what JSON does not know is written as its repr."""
        return report.json_of(self)

    @property
    def mark(self) -> str:
        """One character for the status."""
        return report.mark_of(self.status)

    def summary(self) -> str:
        """Say in a few words what became of the run, without name and time."""
        return report.summary_of(self)

    def __repr__(self) -> str:
        """Show the outcome on one line."""
        return report.result_line(self)

    def __bool__(self) -> NoReturn:
        """Refuse: a result has no truth value."""
        message = (
            "a result has no truth value. Use .success, .ok or .failed; compare an "
            "attribute that may be None with `is not None`."
        )
        raise TypeError(message)

    def __eq__(self, other: object) -> bool:
        """Be equal to any other result of the same run."""
        if isinstance(other, Result):
            return self._record is other._record or self.tid == other.tid
        return NotImplemented

    def __hash__(self) -> int:
        """Hash by the id of the run."""
        return hash(self.tid)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle together with the chain; see ``cmdx.pickling``."""
        from cmdx.pickling import reduce_whole

        chain, record = self.chain, self._record
        return reduce_whole(self, chain, record, (chain, record))

    def __copy__(self) -> Result[V_co]:
        """Return another result of the same record."""
        return Result(self._record, self.chain)

    def __deepcopy__(self, memo: dict[int, Any]) -> Result[V_co]:
        """Copy together with the chain."""
        chain, record = deepcopy((self.chain, self._record), memo)
        return Result(record, chain)

    def __setstate__(self, state: tuple[Any, tuple[Chain, Record]]) -> None:
        """Take record and chain up again."""
        _, (self._chain, self._record) = state
        self._fault = None


def refuse_change(name: str, /, *_: object) -> NoReturn:
    """Raise: the attribute *name* of a result was set or deleted."""
    message = (
        f"a result is read-only, so its {name} cannot be changed. Decide it while the "
        "task runs: return the value from work, call succeed, skip or fail, and note "
        "facts in self.metadata."
    )
    raise AttributeError(message)


def make_read_only(cls: type) -> None:
    """Let the properties of *cls* say what to do instead when they are set."""
    # Not by __setattr__: each result would take longer to make.
    for name, attribute in list(vars(cls).items()):
        if isinstance(attribute, property):
            refuse = partial(refuse_change, name)
            setattr(cls, name, attribute.setter(refuse).deleter(refuse))


make_read_only(Result)
