"""
What the siblings of a parallel group wrote, and how it comes together.

Each sibling works on a copy of the context. The copy notes which keys are set and
deleted; what was changed in place is found by comparing it with the original.
Only that is merged, in the order the siblings are declared, so a sibling never
overwrites what it did not touch.

A value that has no equal copy (a connection, a lock) is not copied but shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cmdx.context import MISSING, Context
from cmdx.registry import Registry

if TYPE_CHECKING:
    from typing import Self

    from cmdx.result import Result

Merger: TypeAlias = Callable[[Context, "Result[Any]"], Any]
Path: TypeAlias = tuple[Any, ...]

mergers: Registry[Merger] = Registry("merger")


class Conflict(NamedTuple):
    """A key that several siblings wrote, with different values."""

    key: str
    tasks: tuple[str, ...]


class Noting(dict[str, Any]):
    """A dict that notes which of its keys were set or deleted."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.touched: dict[str, None] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        """Set and note."""
        self.touched[key] = None
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        """Delete and note."""
        super().__delitem__(key)
        self.touched[key] = None

    def update(self, *others: Any, **more: Any) -> None:
        """Set several and note."""
        for key, value in dict(*others, **more).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Set if missing, and note."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        """Remove and note."""
        if key in self:
            self.touched[key] = None
        return super().pop(key, *default)

    def popitem(self) -> tuple[str, Any]:
        """Remove the last one and note."""
        key, value = super().popitem()
        self.touched[key] = None
        return key, value

    def clear(self) -> None:
        """Remove all and note."""
        self.touched.update(dict.fromkeys(self))
        super().clear()

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        """Set several and note."""
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain dict: what is noted is of no use elsewhere."""
        return dict, (dict(self),)


class SiblingContext(Context):
    """The context of one sibling, which knows what was changed in it."""

    __slots__ = ("_before",)

    _before: dict[str, Any]

    @classmethod
    def of(cls, context: Context) -> SiblingContext:
        """Copy *context* for a sibling."""
        sibling = cls.__new__(cls)
        before = context.to_dict()
        copies = {key: isolated(value) for key, value in before.items()}
        object.__setattr__(sibling, "_values", Noting(copies))
        # Compared with what the sibling was given: the original may change meanwhile.
        object.__setattr__(
            sibling, "_before", {key: isolated(value) for key, value in copies.items()}
        )
        return sibling

    def give(self, key: str, value: Any) -> None:
        """Put in a value that the sibling finds there, and did not write."""
        dict.__setitem__(self._values, key, value)
        self._before[key] = isolated(value)

    def changes(self) -> dict[str, Any]:
        """Return the keys that were written with their values, MISSING if deleted."""
        values, before = self._values, self._before
        touched = dict.fromkeys(values.touched)  # type: ignore[attr-defined]
        for key, value in values.items():
            if key in before and key not in touched and differs(value, before[key]):
                touched[key] = None
        return {key: values.get(key, MISSING) for key in touched}

    def deep_changes(self) -> dict[Path, Any]:
        """Return the paths through nested mappings that were written."""
        changes: dict[Path, Any] = {}
        for key, value in self.changes().items():
            changes.update(_deep((key,), self._before.get(key, MISSING), value))
        return changes


def isolated(value: Any) -> Any:
    """Return a deep copy of *value*, or *value* itself if no copy equals it."""
    try:
        copy = deepcopy(value)
        return value if differs(copy, value) else copy
    except Exception:
        return value


def differs(one: Any, other: Any) -> bool:
    """Tell whether two values differ; what cannot be compared does."""
    try:
        return one is not other and not bool(one == other)
    except Exception:
        return True


def _deep(path: Path, before: Any, after: Any) -> dict[Path, Any]:
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return {path: after}
    changes: dict[Path, Any] = {}
    for key in (*before, *(key for key in after if key not in before)):
        old, new = before.get(key, MISSING), after.get(key, MISSING)
        if old is MISSING or new is MISSING or differs(old, new):
            changes.update(_deep((*path, key), old, new))
    return changes


@mergers.register("last")
def last(context: Context, result: Result[Any]) -> None:
    """Let what a later sibling wrote replace what an earlier one did."""
    for key, value in _changes(result).items():
        if value is MISSING:
            context.pop(key, None)
        else:
            context[key] = value


@mergers.register("deep")
def deep(context: Context, result: Result[Any]) -> None:
    """Merge mappings into mappings, entry by entry."""
    written = result.context
    if not isinstance(written, SiblingContext):
        return
    for path, value in written.deep_changes().items():
        _put(context, path, value)


@mergers.register("none")
def none(context: Context, result: Result[Any]) -> None:
    """Merge nothing."""


def conflicts_of(results: list[Result[Any]], *, deeply: bool) -> list[Conflict]:
    """Return the keys that several siblings wrote with different values."""
    writers: dict[Path, list[tuple[str, Any]]] = {}
    for result in results:
        for path, value in _paths(result, deeply=deeply).items():
            writers.setdefault(path, []).append((result.task.__name__, value))
    return [
        Conflict(".".join(map(str, path)), tuple(name for name, _ in written))
        for path, written in writers.items()
        if any(differs(value, written[0][1]) for _, value in written[1:])
    ]


def _paths(result: Result[Any], *, deeply: bool) -> dict[Path, Any]:
    written = result.context
    if deeply and isinstance(written, SiblingContext):
        return written.deep_changes()
    return {(key,): value for key, value in _changes(result).items()}


def _changes(result: Result[Any]) -> dict[str, Any]:
    written = result.context
    return written.changes() if isinstance(written, SiblingContext) else {}


def _put(context: Context, path: Path, value: Any) -> None:
    *steps, key = path
    holder: Any = context
    for step in steps:
        below = holder.get(step)
        if not isinstance(below, dict):
            below = dict(below) if isinstance(below, Mapping) else {}
            holder[step] = below
        holder = below
    if value is not MISSING:
        holder[key] = value
    elif key in holder:
        del holder[key]
