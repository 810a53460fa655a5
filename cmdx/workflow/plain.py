"""
Plain data: what is copied for a step that works on a context of its own.

It is dicts, lists, sets, tuples and bytearrays, the dicts and deques of
``collections``, and what they contain. Everything else, objects of classes derived from
these included, is shared and compared by identity.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cmdx.context import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable

DICTS = frozenset({dict, OrderedDict, defaultdict, Counter})
HOLDERS = DICTS | {list, deque}
COPIED = HOLDERS | {tuple, set, bytearray}
"""The types of plain data that can be changed, or can contain what can."""

VALUES = frozenset(
    {bool, int, float, complex, Decimal, Fraction, str, bytes, UUID}
    | {date, datetime, time, timedelta, bytearray, set, frozenset}
)
"""The types whose values are compared with ``==``."""

MANY_FORMS = frozenset({float, complex, Decimal, datetime, time})
"""The types whose values may be equal and still not the same, as 1.0 and 1.00 are."""


class Copies:
    """Copies of plain data: what is one object in several places is copied once."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._originals: list[Any] = []  # kept, so that no other object gets their id

    def copy(self, value: Any) -> Any:
        """Return a copy of *value* that shares what is not plain data with it."""
        unfinished: list[Any] = []
        copied = self._begin_copy(value, unfinished)
        while unfinished:  # not recursive: data may be nested deeper than calls can be
            holder = unfinished.pop()
            for place, item in entries(holder):
                if type(item) in COPIED:
                    holder[place] = self._begin_copy(item, unfinished)
        return copied

    def copied(self) -> set[int]:
        """Return the ids of what has a copy."""
        # A tuple without anything to change in it stands for its own copy.
        return {id(one) for one in self._originals if self.latest(one) is not one}

    def changed(self) -> set[int]:
        """Return the ids of what has a copy that was changed."""
        return {id(one) for one in self._originals if self._is_changed(one)}

    def _is_changed(self, original: Any) -> bool:
        """Tell whether the copy has other items than it had when it was made."""
        copied = self.latest(original)
        if copied is original:
            return False
        if type(original) not in (*HOLDERS, tuple):
            return bool(copied != original)
        if len(copied) != len(original):
            return True
        if type(original) in DICTS and list(map(id, copied)) != list(map(id, original)):
            return True
        pairs = zip(items_of(original), items_of(copied), strict=True)
        return any(now is not self.latest(then) for then, now in pairs)

    def latest(self, value: Any) -> Any:
        """Return the copy that was made of *value*, or *value* if there is none."""
        return self._made.get(id(value), value)

    def _begin_copy(self, value: Any, unfinished: list[Any]) -> Any:
        """Return a copy of *value*; it is *unfinished* while it has the same items."""
        if type(value) not in COPIED or id(value) in self._made:
            return self.latest(value)
        if type(value) is tuple:
            copied = self._copy_tuple(value, unfinished)
        else:
            copied = value.copy()
            if type(value) in HOLDERS:
                unfinished.append(copied)
        self._originals.append(value)
        self._made[id(value)] = copied
        return copied

    def _copy_tuple(self, value: tuple[Any, ...], unfinished: list[Any]) -> Any:
        """Return *value* itself if there is nothing to copy in it."""
        items = tuple([self._begin_copy(item, unfinished) for item in value])
        is_new = any(item is not old for item, old in zip(items, value, strict=True))
        return items if is_new else value


def entries(holder: Any) -> Iterable[tuple[Any, Any]]:
    """Return the items of a dict or a list with their keys or indexes."""
    return holder.items() if type(holder) in DICTS else enumerate(holder)


def items_of(holder: Any) -> Any:
    """Return what a dict, a list or a tuple holds."""
    return holder.values() if type(holder) in DICTS else holder


def ids_within(value: Any) -> set[int]:
    """Return the ids of the plain data that *value* is, and holds at any depth."""
    unseen, seen = [value], {id(value)}
    while unseen:  # not recursive, as above
        found = unseen.pop()
        if type(found) in (*HOLDERS, tuple):
            for item in items_of(found):
                if type(item) in COPIED and id(item) not in seen:
                    seen.add(id(item))
                    unseen.append(item)
    return seen


def differs(one: Any, other: Any) -> bool:  # noqa: C901 -- a case for each kind
    """Tell whether two values are not equal plain data with the same objects in it."""
    pairs, seen = [(one, other)], set()
    while pairs:  # not recursive, as above
        one, other = pairs.pop()
        kind = type(one)
        if one is other or (id(one), id(other)) in seen:
            continue
        if kind is not type(other):
            return True
        if kind in VALUES:
            if not are_same(one, other):
                return True
            continue
        if kind not in COPIED or len(one) != len(other):
            return True
        if kind is OrderedDict and list(map(id, one)) != list(map(id, other)):
            return True
        seen.add((id(one), id(other)))  # they may hold themselves
        if kind in DICTS:
            for key, item in one.items():
                if item is not (there := other.get(key, MISSING)):
                    pairs.append((item, there))
        else:
            items = zip(one, other, strict=False)
            pairs += [pair for pair in items if pair[0] is not pair[1]]
    return False


def are_same(one: Any, other: Any) -> bool:
    """Tell whether two values of one type are equal, and in the same form."""
    return bool(one == other) and (
        type(one) not in MANY_FORMS or repr(one) == repr(other)
    )
