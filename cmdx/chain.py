"""
The chain: the results of one root run, and which task is running now.

A chain is made when the first nested task starts, or when somebody asks for it.
It is carried by a context variable, so coroutines inherit it and so do threads that
are started with a copied context; a bare thread begins a chain of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeGuard, cast, overload
from weakref import ref

from cmdx import clock, report
from cmdx.exceptions import Fault
from cmdx.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.outcome import Status
    from cmdx.pickling import Trial
    from cmdx.result import Result
    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Record, Run
    from cmdx.task import Task

running: ContextVar[Invocation | None] = ContextVar("cmdx.running", default=None)
running_task, set_running_task = running.get, running.set
creation_lock = new_lock()
"""Guards what is created lazily: chains and pools."""


def current_task() -> Task[Any] | None:
    """
    Return the task that runs in this thread or coroutine; None outside of one.

    Of nested tasks it is the innermost. Its ``tid``, ``context`` and ``metadata`` can
    be used by code that is not given the task, such as a function that tags queries::

        task = cmdx.current_task()
        tag = "" if task is None else f"/* {type(task).__name__} {task.tid} */"

    It is carried by a context variable, as the chain is: a bare thread has no current
    task, and neither has a block of ``cmdx.detached()``.
    """
    task = running.get()
    # A coroutine or thread that the task has started may outlive its run.
    if task is None or task._cmdx_.phase != "running":
        return None
    return cast("Task[Any]", task)


@contextmanager
def detached() -> Iterator[None]:
    """
    Let tasks that run in the block start chains of their own.

    A chain keeps the results of all tasks inside the root run until that run ends. If
    the root runs for days, as a worker does, it would keep more and more of them.

    Example::

        with cmdx.detached():
            result = HandleMessage.execute(message)
    """
    token = running.set(None)
    try:
        yield
    finally:
        with suppress(ValueError):  # the block is left in another context
            running.reset(token)


class Chain(Sequence["Result[Any]"]):
    """The results of one root run: the root's first, then in the order they ended."""

    _id: str | None = None
    _root: Record | None = None
    xid: str | None = None

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._numbered = 0
        """How many of the records know their place."""
        self._trial: ref[Trial] | None = None
        """Whether it can be pickled; a pickler that is at it holds the trial."""

    @property
    def id(self) -> str:
        """The id of the chain, a UUIDv7."""
        if self._id is None:
            # In one step and without a lock, as the id of a run.
            return self.__dict__.setdefault("_id", new_id())  # type: ignore[no-any-return]
        return self._id

    def join(self, result: Result[Any]) -> None:
        """Take in a run that has ended."""
        record = result._record
        if record.attempts or record.replaced or record.outcome.origin is not None:
            untie(result, self)
        if record.run.parent is None:
            self._root = record
        else:
            self._records.append(record)

    def index_of(self, record: Record) -> int:
        """Return the place of *record*; the root has 0, a running task the next one."""
        if record.run.parent is None:
            return 0
        if record.index is None:
            count = len(self._records)
            for index in range(self._numbered, count):
                self._records[index].index = index + 1
            self._numbered = count
        return len(self._records) + 1 if record.index is None else record.index

    @property
    def root(self) -> Result[Any] | None:
        """The result of the root; None while it still runs."""
        return None if self._root is None else self._result(self._root)

    @property
    def status(self) -> Status | None:
        """The status of the root; None while it still runs."""
        return None if self._root is None else self._root.outcome.status

    def tree(self) -> str:
        """Return who ran whom as text, with marks, times and reasons."""
        return report.tree_of(self)

    def to_mermaid(self) -> str:
        """Draw who ran whom as a mermaid flowchart, coloured by status."""
        from cmdx.pictures import chain_mermaid

        return chain_mermaid(self)

    def to_svg(self) -> str:
        """Draw a timeline: a bar for each task, ticks for attempts, hatched pauses."""
        from cmdx.pictures import chain_svg

        return chain_svg(self)

    def to_html(self) -> str:
        """Return the timeline as a page of its own that needs no network."""
        from cmdx.pictures import chain_html

        return chain_html(self)

    def _repr_html_(self) -> str:
        """Show the timeline in a notebook, as much of it as fits."""
        from cmdx.pictures import chain_notebook

        return chain_notebook(self)

    def __len__(self) -> int:
        """Count the results."""
        return len(self._records) + (self._root is not None)

    @overload
    def __getitem__(self, index: int) -> Result[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Result[Any], ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return the result at *index*; the root's is the first."""
        records = self._all_records()
        if isinstance(index, slice):
            return tuple(map(self._result, records[index]))
        return self._result(records[index])

    def __iter__(self) -> Iterator[Result[Any]]:
        """Iterate over the results there are now."""
        return iter(self[:])

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle the failures of other chains first; see ``cmdx.pickling``."""
        from cmdx.pickling import failures_behind, reduce_whole

        return reduce_whole(self, self, None, (failures_behind(self), self._state()))

    def __setstate__(self, state: tuple[Any, tuple[Any, dict[str, Any]]]) -> None:
        """Take the records up again."""
        _, (_, attributes) = state
        self.__dict__.update(attributes)

    def __copy__(self) -> Chain:
        """Return another chain of the same records."""
        chain = Chain()
        chain.__dict__.update(self._state())
        return chain

    def __deepcopy__(self, memo: dict[int, Any]) -> Chain:
        """Copy the records, too, and the failures of other chains first."""
        from cmdx.pickling import failures_behind

        chain = memo[id(self)] = Chain()
        for failure in failures_behind(self):
            deepcopy(failure, memo)
        chain.__dict__.update(deepcopy(self._state(), memo))
        return chain

    def __str__(self) -> str:
        """Show the tree, or the id of a chain that has no result yet."""
        return self.tree() or repr(self)

    def __repr__(self) -> str:
        """Show the id and how many results there are."""
        return f"<Chain {self.id} of {len(self)}>"

    def _state(self) -> dict[str, Any]:
        # With the id, so that all copies share it.
        return self.__dict__ | {"_id": self.id, "_trial": None}

    def _place_of(self, record: Record) -> int | None:
        place = self.index_of(record)
        is_inside = place <= len(self._records) and self._record_at(place) is record
        return place if is_inside else None

    def _record_at(self, place: int) -> Record | None:
        return self._records[place - 1] if place else self._root

    def _result_of(self, run: Run | None) -> Result[Any] | None:
        found = (record for record in self._all_records() if record.run is run)
        return next(map(self._result, found), None)

    def _all_records(self) -> tuple[Record, ...]:
        root = () if self._root is None else (self._root,)
        return (*root, *self._records)

    def _result(self, record: Record) -> Result[Any]:
        from cmdx.result import Result

        return Result.of(record, self)


def untie(result: Result[Any], chain: Chain) -> None:
    """
    Make the record of *result* refer to records of *chain*, not to results and faults.

    Those refer to the chain, and the chain to the record: a reference cycle.
    """
    record, outcome = result._record, result._record.outcome
    record.result_ref = ref(result)  # others find the fault that is kept there
    origin, cause = outcome.origin, outcome.cause
    if belongs_to(origin, chain):
        record.passed_on = origin._record
        record.by_fault = isinstance(cause, Fault)
        if isinstance(cause, Fault):
            result._fault, cause = cause, None
        record.outcome = outcome._replace(cause=cause, origin=None)
    replaced = record.replaced
    if replaced is not None and belongs_to(replaced.origin, chain):
        record.replaced_origin = replaced.origin._record
        record.replaced = replaced._replace(cause=None, origin=None)
    record.attempts = [
        (start, duration, record_behind(error, chain), pause, rule)
        for start, duration, error, pause, rule in record.attempts
    ]


def belongs_to(result: Result[Any] | None, chain: Chain) -> TypeGuard[Result[Any]]:
    """Tell whether *result* is one of *chain*."""
    return result is not None and result._chain is chain


def record_behind(error: Any, chain: Chain) -> Any:
    """Return the record behind a fault of *chain*, anything else as it is."""
    if not isinstance(error, Fault):
        return error
    if belongs_to(error.result, chain):
        return error.result._record
    error._passed_on_by = None  # it may be of the chain, which would be a cycle
    return error


def chain_of(run: Run) -> Chain:
    """Return the chain a run belongs to; make it if need be."""
    if run.chain is None:
        with creation_lock:  # children in several threads agree on one chain
            if run.chain is None:
                run.chain = Chain()
    return run.chain


def chain_for_child(parent: Run) -> Chain | None:
    """Return the chain of *parent* for a child that starts; None if it has ended."""
    chain = chain_of(parent)
    # The parent sets ``phase`` and then reads ``chain``; we set ``chain`` and then read
    # ``phase``. Whatever the interleaving, one of the two sees the other's write.
    return chain if parent.phase == "running" else None


VERSION_AND_VARIANT = (0x7 << 76) | (0x2 << 62)
"""What says that an id is a UUIDv7."""

RANDOM_BITS = (1 << 80) - 1 - (0xF << 76) - (0x3 << 62)
"""Which bits of an id are random: 74 of the last 80."""


def new_id() -> str:
    """
    Return a UUIDv7: 48 bits of milliseconds, then random bits.

    So ids of one millisecond have no order.
    """
    milliseconds = int(clock.current.get().time() * 1000) & 0xFFFF_FFFF_FFFF
    chance = clock.entropy() & RANDOM_BITS
    number = f"{milliseconds << 80 | VERSION_AND_VARIANT | chance:032x}"
    parts = number[:8], number[8:12], number[12:16], number[16:20], number[20:]
    return "-".join(parts)
