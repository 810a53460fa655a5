"""
The chain: the results of one root run, and which task is running now.

A chain is made when the first nested task starts, or when somebody asks for it.
It is carried by a context variable, so coroutines inherit it and so do threads that
are started with a copied context; a bare thread begins a chain of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, overload
from weakref import ref

from cmdx import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cmdx.invocation import Invocation
    from cmdx.outcome import Status
    from cmdx.result import Record, Result

running: ContextVar[Invocation | None] = ContextVar("cmdx.running", default=None)
making = Lock()
"""Held while something is made that several threads may ask for first."""


class Chain(Sequence["Result[Any]"]):
    """The results of one root run: the root's first, then in the order they ended."""

    _id: str | None = None
    _root: Record | None = None
    xid: str | None = None

    def __init__(self) -> None:
        self._records: list[Record] = []

    @property
    def id(self) -> str:
        """The id of the chain, a UUIDv7."""
        if self._id is None:
            with making:
                self._id = self._id or new_id()
        return self._id

    def join(self, result: Result[Any]) -> None:
        """Take in a run that has ended."""
        record = result._record
        # Weak, so that chain and results do not keep each other alive.
        record.reading = ref(result)
        if record.outcome.origin is not None or record.attempts:
            result._untie_(self)
        if record.task._parent_ is None:
            self._root = record
        else:
            self._records.append(record)

    def index_of(self, record: Record) -> int:
        """Return the place of *record*; the root has 0."""
        if record.index is None:
            for index, each in enumerate(self._records, 1):
                each.index = index
        return record.index or 0

    @property
    def root(self) -> Result[Any] | None:
        """The result of the root; None while it still runs."""
        return None if self._root is None else self._result(self._root)

    @property
    def status(self) -> Status | None:
        """The status of the root; None while it still runs."""
        return None if self._root is None else self._root.outcome.status

    def tree(self) -> str:
        """Draw who ran whom, with marks, times and reasons."""
        return drawn(self)

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
        root = () if self._root is None else (self._root,)
        records = (*root, *self._records)
        if isinstance(index, slice):
            return tuple(map(self._result, records[index]))
        return self._result(records[index])

    def __iter__(self) -> Iterator[Result[Any]]:
        """Iterate over the results there are now."""
        return iter(self[:])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle with an id, lest each copy makes its own."""
        return self.__dict__ | {"_id": self.id}

    def __repr__(self) -> str:
        """Show the id and how many results there are."""
        return f"<Chain {self.id} of {len(self)}>"

    def _result(self, record: Record) -> Result[Any]:
        from cmdx.result import Result

        result = None if record.reading is None else record.reading()
        if result is None:
            result = Result(record, self)
            record.reading = ref(result)
        return result


def chain_of(task: Invocation) -> Chain:
    """Return the chain a running task belongs to; make it if need be."""
    chain = task._chain_
    if chain is None:
        # In one step, so that children in several threads agree on one chain.
        chain = task.__dict__.setdefault("_chain_", Chain())
    return chain


def joined_by_child(parent: Invocation) -> Chain | None:
    """Return the chain of *parent* for a child that starts; None if it has ended."""
    chain = chain_of(parent)
    # Its end looks for a chain after it has said that it ended, so that one of the
    # two sees what the other did.
    return chain if parent._phase_ == "running" else None


def new_id() -> str:
    """Return a UUIDv7: 48 bits of milliseconds, then chance."""
    milliseconds = int(clock.current.get().time() * 1000) & 0xFFFF_FFFF_FFFF
    chance = clock.entropy()
    upper = (milliseconds << 16) | 0x7000 | (chance >> 68)
    lower = (0b10 << 62) | (chance & 0x3FFF_FFFF_FFFF_FFFF)
    digits = f"{upper:016x}{lower:016x}"
    return "-".join(
        (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    )


def drawn(results: Iterable[Result[Any]]) -> str:
    """Draw *results* as a tree, children under their parents, in order of start."""
    children: dict[str | None, list[Result[Any]]] = {}
    known = {result.tid for result in results}
    for result in sorted(results, key=lambda result: result.started_at):
        parent = result.parent_tid if result.parent_tid in known else None
        children.setdefault(parent, []).append(result)

    rows: list[tuple[str, Result[Any]]] = []
    stack = [("", "", result) for result in reversed(children.get(None, []))]
    while stack:
        stem, branch, result = stack.pop()
        rows.append((f"{stem}{branch}{result.mark} {result.task.__qualname__}", result))
        stem += {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        below = children.get(result.tid, [])
        branches = ["├─ "] * (len(below) - 1) + ["└─ "]
        stack += [
            (stem, branch, child)
            for branch, child in reversed(list(zip(branches, below, strict=False)))
        ]

    width = max((len(name) for name, _ in rows), default=0)
    lines = (
        f"{name:<{width}}  {result.duration * 1000:8.1f} ms  {result.summary()}"
        for name, result in rows
    )
    return "\n".join(line.rstrip() for line in lines)
