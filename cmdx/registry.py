"""
Named things that classes inherit: retriers today, executors and mergers the same way.

A registry looks a name up in itself first, then in the registries it derives from.
It does so live: what an ancestor registers later is seen at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from cmdx.exceptions import DefinitionError, UnknownEntryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T", bound="Callable[..., Any]")
F = TypeVar("F", bound="Callable[..., Any]")


class Registry(Generic[T]):
    """Callables by name."""

    def __init__(self, kind: str, ancestors: Sequence[Registry[T]] = ()) -> None:
        self.kind = kind
        self._ancestors = tuple(ancestors)
        # None marks an inherited name that was taken out here.
        self._entries: dict[str, T | None] = {}

    @overload
    def register(self, name: str, entry: T) -> Registry[T]: ...
    @overload
    def register(self, name: str) -> Callable[[F], F]: ...
    def register(self, name: str, entry: T | None = None) -> Any:
        """Give *entry* a name; without one, return a decorator that does."""
        if not name or type(name) is not str:
            message = (
                f"a {self.kind} needs a name, got {name!r}. "
                f"Give it as text: {self.kind}s.register('name', ...)."
            )
            raise DefinitionError(message)
        if entry is None:
            return lambda decorated: self.register(name, decorated) and decorated
        if not callable(entry):
            message = (
                f"the {self.kind} {name!r} must be callable, "
                f"got {type(entry).__name__}. Register a function."
            )
            raise DefinitionError(message)
        self._entries[name] = entry
        return self

    def deregister(self, name: str) -> Registry[T]:
        """Take *name* out of this registry; ancestors and siblings keep theirs."""
        self.lookup(name)
        if any(name in ancestor for ancestor in self._ancestors):
            self._entries[name] = None
        else:
            del self._entries[name]
        return self

    def lookup(self, name: str) -> T:
        """Return what is registered as *name*."""
        entry = self.find(name)
        if entry is None:
            raise UnknownEntryError(self.kind, name, self)
        return entry

    def resolve(self, entry: str | T | None) -> T | None:
        """Look a name up; let None and callables pass."""
        if entry is None or callable(entry):
            return entry
        return self.lookup(entry)

    def find(self, name: str) -> T | None:
        """Return what is registered as *name*, or None."""
        for registry in (self, *self._ancestors):
            try:
                return registry._entries[name]
            except (KeyError, TypeError):  # TypeError: not even a name
                continue
        return None

    def __contains__(self, name: object) -> bool:
        """Tell whether *name* is known here."""
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the known names, the oldest ancestor's first."""
        registries = reversed((self, *self._ancestors))
        names = dict.fromkeys(name for each in registries for name in each._entries)
        return (name for name in list(names) if self.find(name) is not None)

    def __len__(self) -> int:
        """Count the known names."""
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        """Show the known names."""
        return f"<{self.kind}s: {', '.join(self)}>"
