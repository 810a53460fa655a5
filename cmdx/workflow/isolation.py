"""
A context of its own, for a step that runs beside others or under other names.

1. it begins with the values of another context, none of them copied   ``own_context``
2. plain data is copied when it is first read; the rest is shared      ``OwnValues``
3. what holds the original of such a copy is copied, too, before
   anybody could see two objects where there was one                   ``current``
4. what was written are the keys that were set or deleted, and the
   copies that differ from what they are copies of                     ``changes_in``
"""

from __future__ import annotations

from collections.abc import MutableMapping
from threading import RLock
from typing import TYPE_CHECKING, Any

from cmdx.context import MISSING, Context
from cmdx.workflow.plain import COPIED, Copies, differs, ids_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class OwnValues(MutableMapping[str, Any]):
    """
    Values that are copied when they are first read.

    ``MutableMapping`` makes all other methods of those below, so that nothing is read
    or written past them.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.baseline = given
        """What it began with, to compare with."""
        self.assigned: dict[str, None] = {}
        """The keys that were set or deleted, in that order."""
        self._values = dict(given)
        self._uncopied = {key for key in given if type(given[key]) in COPIED}
        self._copies = Copies()
        self._ids: dict[str, set[int]] = {}
        """The ids of the plain data in what was not read, where they were needed."""
        self._lock = RLock()  # a step may have threads of its own
        self._noted: dict[str, Any] | None = None

    def __getitem__(self, key: str) -> Any:
        """Return a value, copied if it is plain data."""
        if key in self._uncopied:
            with self._lock:
                self._copy(key)
        return self._values[key]

    def _copy(self, key: str) -> None:
        if key in self._uncopied:  # another thread may have been faster
            self._values[key] = self._copies.copy(self._values[key])
            self._uncopied.discard(key)

    def __setitem__(self, key: str, value: Any) -> None:
        """Set a value and note it."""
        with self._lock:
            self._values[key] = value
            self._uncopied.discard(key)  # after it, for threads that read meanwhile
            self.assigned[key] = None

    def __delitem__(self, key: str) -> None:
        """Delete a value and note it."""
        with self._lock:
            del self._values[key]
            self._uncopied.discard(key)
            self.assigned[key] = None

    def clear(self) -> None:
        """Delete all values without reading them first."""
        for key in list(self):
            del self[key]

    def __contains__(self, key: object) -> bool:
        """Tell whether *key* is set, without reading it."""
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self._values)

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._values)

    def set_baseline(self, key: str, value: Any) -> None:
        """Set *key* as if it had been there from the start."""
        with self._lock:
            self.baseline[key] = Copies().copy(value)
            self._values[key] = value
            self._uncopied.discard(key)

    def current(self) -> dict[str, Any]:
        """Return the values as they are now; what holds no copy is not copied."""
        self._copy_holders(self._copies.copied())
        return dict(self._values)

    def _copy_holders(self, ids: set[int]) -> None:
        """Copy what was not read, if it is or holds the original of a copy, by id."""
        if ids:
            with self._lock:
                for key in self._uncopied.copy():
                    if not self._ids_within(key).isdisjoint(ids):
                        self._copy(key)

    def _ids_within(self, key: str) -> set[int]:
        """Look through what was not read; once, since nobody changes that."""
        if key not in self._ids:
            self._ids[key] = ids_within(self._values[key])
        return self._ids[key]

    def changes(self) -> dict[str, Any]:
        """Return the keys that were written with their values, MISSING if deleted."""
        if self._noted is not None:
            return self._noted
        self._copy_holders(self._copies.changed())
        values, baseline = dict(self._values), self.baseline
        written = dict(self.assigned)
        for key, value in values.items():
            if key in baseline and key not in written and differs(value, baseline[key]):
                written[key] = None
        # A key that it made and deleted again has not changed for the others.
        kept = (key for key in written if key in values or key in baseline)
        return {key: values.get(key, MISSING) for key in kept}

    def note_changes(self) -> None:
        """Find out what was written, once and for all."""
        self._noted = self.changes()


class OwnContext(Context):
    """
    A context around ``OwnValues``.

    It has no methods of its own: they would hide keys of the same name.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Show the keys with their values, without reading them."""
        return repr(Context.around(current_values(self)))


def own_context(context: Context, names: Mapping[str, str]) -> Context:
    """Return a context of its own, which knows some keys of *context* by *names*."""
    found = current_values(context)
    known = {key: value for key, value in found.items() if key not in names}
    known |= {name: found[key] for name, key in names.items() if key in found}
    return OwnContext.around(OwnValues(known))


def current_values(context: Context) -> dict[str, Any]:
    """Return the values of *context* as they are now."""
    values = context._values
    return values.current() if isinstance(values, OwnValues) else dict(values)


def own_values(context: Context) -> OwnValues:
    """Return the values of a context of its own; none for another context."""
    values = context._values
    return values if isinstance(values, OwnValues) else OwnValues({})


def changes_in(context: Context) -> dict[str, Any]:
    """Return the keys a step wrote with their values, MISSING if deleted."""
    return own_values(context).changes()


def set_baseline(context: Context, key: str, value: Any) -> None:
    """Set *key* so that it does not count as written by a step."""
    values = context._values
    if isinstance(values, OwnValues):
        values.set_baseline(key, value)
    else:
        context[key] = value
