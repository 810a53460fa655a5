"""
What the siblings of a parallel group wrote, and how it comes together.

Each sibling works on a copy of the context. The copy notes which keys are set and
deleted; what was changed in place is found by comparing it with the original.
Only that is merged, in the order the siblings are declared, so a sibling never
overwrites what it did not touch.

A value that has no equal copy (a connection, a lock) is not copied but shared, also
when it lies in a list or a dict that is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from cmdx.context import MISSING, Context
from cmdx.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from cmdx.result import Result

Merger: TypeAlias = Callable[[Context, "Result[Any]"], Any]
Path: TypeAlias = tuple[Any, ...]

mergers: Registry[Merger] = Registry("merger")

PART: Any = object()
"""Stands for what was written somewhere within a value."""


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
    """
    The context of one sibling, which knows what was changed in it.

    It has no methods of its own: they would hide keys of the same name.
    """

    __slots__ = ("_before",)

    _before: dict[str, Any]


def sibling_context(context: Context, names: Mapping[str, str]) -> Context:
    """Copy *context* for a sibling that knows some of its keys by other *names*."""
    found = context.to_dict()
    known = {key: value for key, value in found.items() if key not in names}
    known |= {name: found[key] for name, key in names.items() if key in found}
    values = {key: isolated(value) for key, value in known.items()}
    # Compared with what the sibling was given: the original may change meanwhile.
    before = {key: isolated(value) for key, value in values.items()}
    sibling = SiblingContext.around(Noting(values))
    object.__setattr__(sibling, "_before", before)
    return sibling


def give(context: Context, key: str, value: Any) -> None:
    """Put in a value that tasks find there, and that no sibling wrote."""
    if isinstance(context, SiblingContext):
        context._before[key] = isolated(value)
        dict.__setitem__(context._values, key, value)
    else:
        context[key] = value


def changes_in(context: Context) -> dict[str, Any]:
    """Return the keys a sibling wrote with their values, MISSING if deleted."""
    if not isinstance(context, SiblingContext):
        return {}
    values, before = context._values, context._before
    written = dict.fromkeys(_assigned(context))
    for key, value in values.items():
        if key in before and key not in written and differs(value, before[key]):
            written[key] = None
    # A key it made and deleted again is none of the others' business.
    kept = (key for key in written if key in values or key in before)
    return {key: values.get(key, MISSING) for key in kept}


def deep_changes_in(context: Context) -> dict[Path, Any]:
    """Return the paths through nested mappings that a sibling wrote."""
    changes: dict[Path, Any] = {}
    for key, value in changes_in(context).items():
        within = _deep((key,), _before(context, key), value)
        changes.update(within or {(key,): value})
    return changes


def _assigned(context: Context) -> Mapping[str, None]:
    return cast("Noting", context._values).touched


def _before(context: Context, key: str) -> Any:
    return context._before.get(key, MISSING)


def isolated(value: Any) -> Any:
    """Return a copy of *value*, as deep as what is in it has equal copies."""
    try:
        return _copied(value)
    except Exception:  # it holds itself, say
        return value


def _copied(value: Any) -> Any:
    try:
        copied = deepcopy(value)
        if not differs(copied, value):
            return copied
    except Exception:  # noqa: S110 -- not everything can be copied
        pass
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(_copied, value))
    return value


def differs(one: Any, other: Any) -> bool:
    """Tell whether two values differ; what cannot be compared does."""
    try:
        return one is not other and not bool(one == other)
    except Exception:
        return True


def _deep(path: Path, before: Any, after: Any) -> dict[Path, Any]:
    known: Mapping[Any, Any] = before if isinstance(before, Mapping) else {}
    if not isinstance(after, Mapping) or not (known or after):
        return {path: after}
    changes: dict[Path, Any] = {}
    for key, old, new in _pairs(known, after):
        if differs(old, new):
            changes.update(_deep((*path, key), old, new))
    return changes


def _pairs(
    before: Mapping[Any, Any], after: Mapping[Any, Any]
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each key with its values, MISSING where there is none."""
    for key in dict.fromkeys((*before, *after)):
        yield key, before.get(key, MISSING), after.get(key, MISSING)


@mergers.register("last")
def last(context: Context, result: Result[Any]) -> None:
    """Let what a later sibling wrote replace what an earlier one did."""
    for key, value in changes_in(result.context).items():
        if value is MISSING:
            context.pop(key, None)
        else:
            context[key] = value


@mergers.register("deep")
def deep(context: Context, result: Result[Any]) -> None:
    """Merge mappings into mappings, entry by entry."""
    written = result.context
    for key, value in changes_in(written).items():
        there = context.get(key, MISSING)
        if value is MISSING:
            context.pop(key, None)
        elif key in _assigned(written) and not isinstance(there, Mapping):
            context[key] = value
        else:
            context[key] = _merged(there, _before(written, key), value)


def _merged(into: Any, before: Any, after: Any) -> Any:
    """Return *into* with what became other between *before* and *after*."""
    if not isinstance(after, Mapping) or not differs(into, before):
        return after
    known: Mapping[Any, Any] = before if isinstance(before, Mapping) else {}
    if isinstance(into, Mapping):
        # A copy: what is there may be what another sibling wrote, and is to keep.
        merged = copy(into) if isinstance(into, dict) else dict(into)
    elif known:
        merged = {}
    else:
        return after
    for key, old, new in _pairs(known, after):
        if new is MISSING:
            merged.pop(key, None)
        elif differs(old, new):
            merged[key] = _merged(merged.get(key, MISSING), old, new)
    return merged


@mergers.register("none")
def none(context: Context, result: Result[Any]) -> None:
    """Merge nothing."""


def conflicts_of(written: Sequence[tuple[str, Mapping[Path, Any]]]) -> list[Conflict]:
    """Return what several siblings, given by name with their paths, wrote otherwise."""
    writers: dict[Path, dict[int, Any]] = {}
    for number, (_, paths) in enumerate(written):
        for path, value in paths.items():
            writers.setdefault(path, {})[number] = value
    for path, values in writers.items():
        for length in range(1, len(path)):
            _overlap(writers, path[:length], values)
    names = [name for name, _ in written]
    return [
        Conflict(
            ".".join(map(str, path)), tuple(names[each] for each in sorted(values))
        )
        for path, values in writers.items()
        if any(differs(one, other) for one, other in pairwise(values.values()))
    ]


def _overlap(
    writers: dict[Path, dict[int, Any]], whole: Path, values: Mapping[int, Any]
) -> None:
    """Note who changed something in what others replaced as a *whole*."""
    replaced = writers.get(whole, {})
    if not all(isinstance(each, Mapping) for each in replaced.values()):
        writers[whole] = dict.fromkeys(values, PART) | replaced
