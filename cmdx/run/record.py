"""
The facts of a run.

A ``Run`` is what an invocation knows about its one run: its plan, what it was given,
the context it works on, when it started. It is ``task._cmdx_``.

A ``Record`` is what became of the run: outcome, value, attempts. It is made when the
run starts, filled by the lifecycle, and read by ``Result``. What replaces an outcome
makes another record, so that a result which a middleware holds keeps the first one.
Facts that hold whatever the outcome is, such as ``rolled_back``, are on the run.

A record hangs on the run as ``run.record`` until ``cmdx.run.lifecycle.finish`` takes it
off. A record holds errors, the traceback of an error leads to the task, and the task to
its run: if the run still held the record then, each failed run would leave a reference
cycle behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeAlias,
    cast,
)

from cmdx import clock
from cmdx.chain import chain_for_child, new_id
from cmdx.context import Context
from cmdx.exceptions import (
    AsyncTaskError,
    FinishedTaskError,
    did_you_mean,
    valid_inputs,
)
from cmdx.inputs.errors import Errors
from cmdx.inputs.resolve import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from weakref import ref

    from cmdx.chain import Chain
    from cmdx.declare.blueprint import Plan
    from cmdx.guidance import Guidance
    from cmdx.operations import Operation
    from cmdx.outcome import AttemptFields, Outcome, Stop
    from cmdx.result import Result
    from cmdx.run.continuation import Suspended
    from cmdx.run.invocation import Invocation
    from cmdx.task import Task
    from cmdx.workflow.merging import Conflict


RunPhase: TypeAlias = Literal["new", "running", "finished"]


class Message(NamedTuple):
    """What a worker runs a task for: a job of a queue, or a message of an engine."""

    system: str
    """Who brought it: ``"cmdx"`` for queues, or the name of the engine."""
    id: str
    queue: str | None
    traceparent: str | None
    """The trace of who has sent it, as W3C Trace Context writes it."""
    is_scheduled: bool = False
    """Whether a schedule has sent it, which goes on for ever."""


class Run:
    """What an invocation knows about its one run."""

    # As it is before the run; an instance holds only what differs from this.
    phase: RunPhase = "new"
    strict: bool = False
    awaits: bool = False
    deprecated: bool = False
    is_announced: bool = True
    """Whether signals may be sent; not if the inputs are only checked."""
    asks_gate_again: bool = False
    """Whether the gate of ``deprecated="error"`` raised before the run began."""
    work_began: bool = False
    rolled_back: bool = False
    attempt: int = 0
    pause: float = 0.0
    """The seconds to wait before the next attempt."""
    retries_by_rule: Mapping[str | None, tuple[int, float]] = MappingProxyType({})
    """Of several retry rules: how often each has tried again, and its last pause."""
    longest_pause: float = math.inf
    """A longer pause is not slept: the run is suspended."""
    earlier: Suspended | None = None
    """What an earlier leg left, if the run is continued."""
    message: Message | None = None
    """What it is run for, if a worker runs it."""
    started: float = 0.0
    started_at: float = 0.0
    ended: float | None = None
    now: Callable[[], float]
    """The monotonic clock that the run began with."""
    parent: Run | None = None
    chain: Chain | None = None
    record: Record
    is_unused: bool
    """Deleted when the run begins, so that it begins once."""
    has_notes: bool = False
    """Whether errors or metadata were asked for, and so have to be looked at."""
    not_given: tuple[str, ...] = ()
    """The inputs that the caller did not pass."""
    _context: Context | None = None
    _errors: Errors | None = None
    _metadata: dict[str, Any] | None = None
    _tid: str | None = None
    # Of workflows: the steps that are done, and the keys that several of them wrote.
    succeeded: Sequence[tuple[Invocation, Record]] = ()
    conflicts: tuple[Conflict, ...] = ()
    gatekeeper: Invocation | None = None
    """Of a group that runs beside others: the workflow that its gates are asked of."""

    def __init__(self, plan: Plan, source: object, inputs: dict[str, Any]) -> None:
        self.plan = plan
        self.given = inputs
        self.is_unused = True
        # Attributes that most runs read or set are faster if all instances have them.
        self.has_notes = False
        self.pause = 0.0
        self.attempt = 0
        self.parent = None
        self.chain = None
        if plan.keywords is not None and not inputs.keys() <= plan.keywords:
            self.refuse_keywords(sorted(plan.keywords))
        if source is not None:
            self.adopt_source(source)

    @property
    def task(self) -> type[Task[Any]]:
        """The class that is run."""
        return self.plan.task

    @property
    def context(self) -> Context:
        """The values the task works on."""
        if self._context is None:
            self._context = Context.around(self.given)
        return self._context

    @property
    def errors(self) -> Errors:
        """The problems found so far."""
        if self._errors is None:
            self._errors = Errors()
            self.has_notes = True
        return self._errors

    @property
    def metadata(self) -> dict[str, Any]:
        """What is to be kept on the result."""
        if self._metadata is None:
            self._metadata = {}
            self.has_notes = True
        return self._metadata

    @property
    def tid(self) -> str:
        """The id of the run, a UUIDv7."""
        # In one step and without a lock: threads agree on one id, and a fork in the
        # middle of it leaves nothing locked behind.
        return self._tid or self.__dict__.setdefault("_tid", new_id())

    @property
    def duration(self) -> float:
        """Seconds from the start to the end, or until now."""
        return (self.now() if self.ended is None else self.ended) - self.started

    @property
    def depth(self) -> int:
        """How many tasks this one is nested in."""
        depth, parent = 0, self.parent
        while parent is not None:
            depth, parent = depth + 1, parent.parent
        return depth

    def adopt_source(self, source: object) -> None:
        """Share the context of *source*, or copy the values of a mapping."""
        given = source
        if not isinstance(source, (Context, Mapping)):  # a task or a result has one
            source = getattr(source, "context", source)
        if isinstance(source, Context):
            self._context = source
            source.update(self.given)
        elif isinstance(source, Mapping):
            values = plain_values(source, self.task._cmdx_.inputs)
            self.given.update({**values, **self.given})
        else:
            kind = type(given).__qualname__
            if isinstance(given, type):
                kind = f"the class {given.__qualname__}"
            message = (
                f"{self.task.__qualname__} takes inputs by keyword, or from a mapping, "
                f"context, task or result, got {kind}."
            )
            raise TypeError(message)

    def refuse_keywords(self, known: Sequence[str]) -> NoReturn:
        """Raise ``TypeError`` for an input that the task does not have."""
        name = next(name for name in self.given if name not in known)
        message = (
            f"{self.task.__qualname__} got an unexpected input {name!r}"
            f"{did_you_mean(name, known)} {valid_inputs(known)}"
        )
        raise TypeError(message)

    def start(
        self, task: Invocation, *, awaits: bool = False, strict: bool = False
    ) -> Run:
        """Begin the one run of *task*; refuse a task that cannot run."""
        plan = self.plan
        if plan.awaiting_part is not None and not awaits:
            raise AsyncTaskError(plan.task, plan.awaiting_part)
        if plan.refusal is not None and self.phase == "new":
            plan.refusal(task)
        try:
            del self.is_unused  # in one step: of several threads one may run it
        except AttributeError:
            refuse_second_run(plan.task)
        self.phase = "running"
        if awaits:
            self.awaits = True
        if strict:
            self.strict = True
        timer = clock.current.get()
        self.started_at = timer.time()
        now = self.now = timer.monotonic
        self.started = now()
        self.record = Record(self)
        return self

    def join_chain(self, parent: Run) -> None:
        """Join the chain of *parent*, unless it has ended."""
        if parent.phase != "running":
            return
        chain = parent.chain
        if chain is None:
            chain = chain_for_child(parent)
        if chain is not None:
            self.parent, self.chain = parent, chain

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what results show; inputs are in the context."""
        kept = {name: self.__dict__[name] for name in PICKLED if name in self.__dict__}
        made = {"_tid": self.tid, "_context": self.context, "given": {}}
        if self.phase == "running":
            kept["ended"] = self.now()
        return {**kept, **made, "task": self.task}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the plan from the class."""
        self.plan = state.pop("task")._cmdx_.plan
        self.__dict__.update(state)


def check_can_start(
    task: Invocation, *, awaits: bool, instead: str, again: str
) -> None:
    """
    Refuse what ``Run.start`` would refuse, without starting.

    Args:
        task: The invocation.
        awaits: Whether what has to be awaited can be.
        instead: The call that can await, for the error; ``%s`` is the class.
        again: The call with another instance, for the error; ``%s`` is the class.
    """
    run: Run = task._cmdx_
    plan = run.plan
    if plan.awaiting_part is not None and not awaits:
        cure = f"Use `{instead % plan.task.__qualname__}`."
        raise AsyncTaskError(plan.task, plan.awaiting_part, cure=cure)
    if "is_unused" not in vars(run):
        call = again % plan.task.__qualname__
        refuse_second_run(plan.task, f"Create another one: {call}.")
    if plan.refusal is not None:
        plan.refusal(task)


def refuse_second_run(cls: type[Task[Any]], cure: str | None = None) -> NoReturn:
    """Raise: an invocation runs once."""
    name = cls.__qualname__
    if cure is None:
        cure = f"Create another one: {name}(...).run(), or use {name}.execute(...)."
    message = f"this {name} has already run, and an instance runs once. {cure}"
    raise FinishedTaskError(message) from None


PICKLED = (
    "phase", "is_unused", "strict", "attempt", "started", "started_at", "ended",
    "deprecated", "rolled_back", "parent", "_errors", "_metadata", "has_notes",
    "conflicts",
)  # fmt: skip


UNDECIDED = cast("Outcome", None)


class Record:
    """What became of one run."""

    outcome: Outcome
    """None until something has decided how the run ends."""
    value: Any = None
    lost_value: str | None = None
    """Of a result that was stored: why its value could not be."""
    guidance: Guidance | None = None
    """Of a result that was stored: what its failure said about trying again."""
    operation: Operation | None = None
    """Of a run through a ledger: the operation it belongs to."""
    is_indeterminate: bool = False
    """Whether nobody can know if the work was done."""
    raises_fault: bool = False
    """Whether ``or_raise`` raises the fault of this task, whatever ``work`` raised."""
    fault_cause: BaseException | None = None
    """Of a result that was stored without its origin: the error that made it fail."""
    stopped: Stop | None = None
    attempts: Sequence[AttemptFields] = ()
    halted_at: tuple[str, int] | None = None
    replaced: Outcome | None = None
    replaced_origin: Record | None = None
    """The origin of that outcome, if it is of the same chain."""
    errors: Errors | None = None
    rollback_error: BaseException | None = None
    # Of workflows: the steps that succeeded, those that were rolled back, and the
    # first failure that was collected.
    succeeded: Sequence[tuple[Invocation, Record]] = ()
    compensated: Sequence[Record] = ()
    first_failure: Record | None = None
    # A failure of the same chain that this one passes on, and whether by a fault.
    passed_on: Record | None = None
    by_fault: bool = False
    index: int | None = None
    result_ref: ref[Result[Any]] | None = None

    def __init__(self, run: Run) -> None:
        self.run = run
        self.outcome = UNDECIDED
        self.attempts = ()
        self.result_ref = None

    def replace(self, outcome: Outcome, value: Any) -> Record:
        """Return a copy with another outcome; results that exist keep theirs."""
        record = Record(self.run)
        record.__dict__.update(self.__dict__)
        if self.run._errors:
            self.errors = self.run._errors.freeze()
        noted = MappingProxyType(dict(self.outcome.metadata))
        record.replaced = self.replaced or self.outcome._replace(metadata=noted)
        record.outcome = outcome
        record.value = value
        record.halted_at = record.result_ref = None
        return record

    def freeze_notes(self) -> None:
        """Keep errors and metadata as they are now; the task may change its own."""
        run = self.run
        if run._errors is not None:
            self.errors = run._errors.freeze()
        if run._metadata:
            noted = MappingProxyType(dict(run._metadata))
            self.outcome = self.outcome._replace(metadata=noted)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind the tasks that could be rolled back."""
        return self.__dict__ | {"succeeded": (), "result_ref": None}
