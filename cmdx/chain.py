"""
The chain: the results of one root run, and which task is running now.

A chain is made when the first nested task starts, or when somebody asks for it.
It is carried by a context variable, so coroutines inherit it and so do threads that
are started with a copied context; a bare thread begins a chain of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, overload
from weakref import ref

from cmdx import clock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cmdx.outcome import Status
    from cmdx.result import Record, Result
    from cmdx.task import Task

running: ContextVar[Task[Any] | None] = ContextVar("cmdx.running", default=None)


class Chain(Sequence["Result[Any]"]):
    """The results of one root run: the root's first, then in the order they ended."""

    def __init__(self) -> None:
        self.id = new_id()
        self.xid: str | None = None
        self._root: Record | None = None
        self._records: list[Record] = []
        self._lock = Lock()
        # Weak, so that chain and results do not keep each other alive.
        self._results: dict[int, ref[Result[Any]]] = {}

    @classmethod
    def of(cls, record: Record, result: Result[Any]) -> Chain:
        """Return the chain of a run that nothing has joined yet."""
        task = record.task
        if task._phase_ == "running":
            return chain_of(task)
        chain = cls()
        chain.join(record, result)
        return chain

    def join(self, record: Record, result: Result[Any]) -> None:
        """Take in a run that has ended."""
        with self._lock:
            if record.task._parent_ is None:
                self._root = record
            else:
                self._records.append(record)
                record.index = len(self._records)
            self._results[record.index] = ref(result)

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
        found = (*root, *self._records)[index]
        if isinstance(index, slice):
            return tuple(map(self._result, found))  # type: ignore[arg-type]
        return self._result(found)  # type: ignore[arg-type]

    def __iter__(self) -> Any:
        """Iterate over the results there are now."""
        return iter(self[:])

    def __repr__(self) -> str:
        """Show the id and how many results there are."""
        return f"<Chain {self.id} of {len(self)}>"

    def _result(self, record: Record) -> Result[Any]:
        from cmdx.result import Result

        remembered = self._results.get(record.index)
        result = remembered and remembered()
        if result is None:
            result = Result(record, self)
            self._results[record.index] = ref(result)
        return result

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock and the weak references behind."""
        kept = ("id", "xid", "_root", "_records")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the results up again, with a new lock."""
        self.__dict__.update(state, _lock=Lock(), _results={})


def chain_of(task: Task[Any]) -> Chain:
    """Return the chain a running task belongs to; make it if need be."""
    chain = task.__dict__.get("_chain_")
    # setdefault: two children in two threads must agree on one chain.
    return chain or task.__dict__.setdefault("_chain_", Chain())  # type: ignore[no-any-return]


def new_id() -> str:
    """Return a UUIDv7: 48 bits of milliseconds, then chance."""
    milliseconds = int(clock.current.get().time() * 1000) & 0xFFFF_FFFF_FFFF
    chance = int.from_bytes(os.urandom(10), "big")
    upper = (milliseconds << 16) | 0x7000 | (chance >> 68)
    lower = (0b10 << 62) | (chance & 0x3FFF_FFFF_FFFF_FFFF)
    digits = f"{upper:016x}{lower:016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


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
