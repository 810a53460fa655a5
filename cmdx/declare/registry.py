"""
Named callables that classes inherit: retriers, executors, mergers.

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


def accept_any(where: str, entry: Callable[..., Any]) -> object:
    """Accept every callable as an entry."""
    return where, entry


class Registry(Generic[T]):
    """
    Callables by name.

    Args:
        kind: What the entries are called in messages, such as ``"retrier"``.
        ancestors: The registries to look in if a name is not in this one.
        check: Called with each new entry; raises if the entry cannot be used.
    """

    def __init__(
        self,
        kind: str,
        ancestors: Sequence[Registry[T]] = (),
        *,
        check: Callable[[str, Callable[..., Any]], object] = accept_any,
    ) -> None:
        self.kind = kind
        self.check = check
        self.changed: Callable[[], None] | None = None
        """Called after each change; the plans of classes depend on it."""
        self._ancestors = tuple(ancestors)
        # None marks an inherited name that was removed here.
        self._entries: dict[str, T | None] = {}

    @overload
    def register(self, name: str, entry: T) -> Registry[T]: ...
    @overload
    def register(self, name: str) -> Callable[[F], F]: ...
    def register(self, name: str, entry: T | None = None) -> Any:
        """
        Register *entry* under *name*; an entry of that name is replaced.

        Args:
            name: The name.
            entry: A callable. Without it, a decorator is returned that registers the
                function below it.
        """
        if not name or type(name) is not str:
            message = (
                f"{self.kind}s.register: name must be a non-empty string, "
                f"got {name!r}. Write {self.kind}s.register('name', ...)."
            )
            raise DefinitionError(message)
        if entry is None:
            return lambda function: self.register(name, function) and function
        if not callable(entry):
            message = (
                f"the {self.kind} {name!r} must be callable, "
                f"got {type(entry).__name__}. Register a function."
            )
            raise DefinitionError(message)
        self.check(f"the {self.kind} {name!r}", entry)
        self._entries[name] = entry
        self.announce_change()
        return self

    def deregister(self, name: str) -> Registry[T]:
        """Remove *name* from this registry; ancestors and siblings keep theirs."""
        self.lookup(name)
        if any(name in ancestor for ancestor in self._ancestors):
            self._entries[name] = None
        else:
            del self._entries[name]
        self.announce_change()
        return self

    def announce_change(self) -> None:
        """Have those who looked names up do so again."""
        if self.changed is not None:
            self.changed()

    def lookup(self, name: str) -> T:
        """Return the entry called *name*, or raise ``UnknownEntryError``."""
        entry = self.find(name)
        if entry is None:
            raise UnknownEntryError(self.kind, name, self)
        return entry

    def resolve(self, entry: str | T | None) -> T | None:
        """Look a name up; return None and callables as they are."""
        if entry is None or callable(entry):
            return entry
        return self.lookup(entry)

    def find(self, name: str) -> T | None:
        """Return what is registered as *name*, or None."""
        for registry in (self, *self._ancestors):
            try:
                return registry._entries[name]
            except (KeyError, TypeError):  # TypeError: not hashable, so not a name
                continue
        return None

    def __contains__(self, name: object) -> bool:
        """Tell whether *name* is known here."""
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the known names, the oldest ancestor's first."""
        registries = reversed((self, *self._ancestors))
        # Copied first: another thread may register meanwhile.
        names = dict.fromkeys(
            name for registry in registries for name in tuple(registry._entries)
        )
        return (name for name in list(names) if self.find(name) is not None)

    def __len__(self) -> int:
        """Count the known names."""
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        """Show the known names."""
        return f"<{self.kind}s: {', '.join(self)}>"
