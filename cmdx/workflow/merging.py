"""
Merging what the siblings of a parallel group wrote.

Each sibling works on a context of its own, which knows what was written in it. Only
that is merged, in the order the siblings are declared, so a sibling never overwrites
what it did not touch. Keys that several of them wrote differently are conflicts.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cmdx.context import MISSING, Context
from cmdx.declare.registry import Registry
from cmdx.declare.signatures import check_plain_call
from cmdx.values import plain_text
from cmdx.workflow.isolation import changes_in, current_values, own_values
from cmdx.workflow.plain import DICTS, differs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cmdx.result import Result

Merger: TypeAlias = Callable[[Context, "Result[Any]"], Any]
Path: TypeAlias = tuple[Any, ...]
Pair: TypeAlias = tuple[int, int]
"""The ids of two values."""


def check_merger(where: str, merger: Callable[..., Any]) -> int:
    """Refuse a merger that has to be awaited or takes other arguments."""
    cure = "A merger takes (context, result)."
    return check_plain_call(where, merger, 2, cure, least=2)


mergers: Registry[Merger] = Registry("merger", check=check_merger)

PART: Any = object()
"""Stands for what was written somewhere within a value."""


class Conflict(NamedTuple):
    """A key that several siblings wrote, with different values."""

    key: str
    tasks: tuple[str, ...]


@mergers.register("last")
def last(context: Context, result: Result[Any]) -> None:
    """Let what a later sibling wrote replace what an earlier one did."""
    write_changes(context, changes_in(result.context))


def write_changes(context: Context, changes: Mapping[str, Any]) -> None:
    """Set the keys of *changes* in *context*, and delete those that are MISSING."""
    for key, value in changes.items():
        if value is not MISSING:
            context[key] = value
        elif key in context:
            del context[key]


@mergers.register("deep")
def deep(context: Context, result: Result[Any]) -> None:
    """Merge dicts into dicts, entry by entry."""
    written = own_values(result.context)
    found = current_values(context)
    made: dict[Pair, Any] = {}
    merged = written.changes().copy()
    for key, value in merged.items():
        there = found.get(key, MISSING)
        if key not in written.assigned or type(there) in DICTS:
            before = written.baseline.get(key, MISSING)
            merged[key] = merge_changes(there, before, value, made)
    write_changes(context, merged)


def merge_changes(into: Any, before: Any, after: Any, made: dict[Pair, Any]) -> Any:
    """
    Return *into* with what changed between *before* and *after*.

    What was *made* of the same values before is returned again, because one dict may
    be in several places, itself included.
    """
    if type(after) not in DICTS or not differs(into, before):
        return after
    pair = id(into), id(after)
    if pair in made:
        return made[pair]
    if type(into) in DICTS:
        # A copy: what is there may be what another sibling wrote, and is to keep.
        merged = made[pair] = into.copy()
    elif as_dict(before):
        merged = made[pair] = {}
    else:
        return after
    for key, old, new in old_and_new(as_dict(before), after):
        if new is MISSING:
            merged.pop(key, None)
        elif differs(old, new):
            merged[key] = merge_changes(merged.get(key, MISSING), old, new, made)
    return merged


def as_dict(value: Any) -> dict[Any, Any]:
    """Return *value* if it is a dict, an empty one otherwise."""
    return value if type(value) in DICTS else {}


def old_and_new(
    before: dict[Any, Any], after: dict[Any, Any]
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each key with its values, MISSING where there is none."""
    for key in dict.fromkeys((*before, *after)):
        yield key, before.get(key, MISSING), after.get(key, MISSING)


@mergers.register("none")
def none(context: Context, result: Result[Any]) -> None:
    """Merge nothing."""


def deep_changes_in(context: Context) -> dict[Path, Any]:
    """Return the paths through nested dicts that a sibling wrote."""
    written = own_values(context)
    changes: dict[Path, Any] = {}
    for key, value in written.changes().items():
        before = written.baseline.get(key, MISSING)
        changes.update(changes_within((key,), before, value) or {(key,): value})
    return changes


def changes_within(
    path: Path, before: Any, after: Any, around: tuple[Pair, ...] = ()
) -> dict[Path, Any]:
    """Return the paths at which *after* differs; none for a dict *around* itself."""
    if type(after) not in DICTS or not (as_dict(before) or after):
        return {path: after}
    pair = id(before), id(after)
    changes: dict[Path, Any] = {}
    if pair in around:
        return changes
    for key, old, new in old_and_new(as_dict(before), after):
        if differs(old, new):
            changes |= changes_within((*path, key), old, new, (*around, pair))
    return changes


def conflicts_of(written: Sequence[tuple[str, Mapping[Path, Any]]]) -> list[Conflict]:
    """Return the paths that several siblings wrote with different values."""
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
            ".".join(map(plain_text, path)),
            tuple(names[number] for number in sorted(values)),
        )
        for path, values in writers.items()
        if any(differs(one, other) for one, other in pairwise(values.values()))
    ]


def _overlap(
    writers: dict[Path, dict[int, Any]], whole: Path, values: Mapping[int, Any]
) -> None:
    """Note who changed something in what others replaced as a *whole*."""
    replaced = writers.get(whole, {})
    if not all(type(value) in DICTS for value in replaced.values()):
        writers[whole] = dict.fromkeys(values, PART) | replaced
