"""What is shared by all who give the same name, and how options are checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from cmdx import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable


class Entry(Protocol):
    """Something with settings that is known by a name."""

    settings: Any
    """None until somebody has said something."""


E = TypeVar("E", bound=Entry)


class Shelf(Mapping[str, E], Generic[E]):
    """
    The one object of each name.

    Settings are given by one of those who name it; others leave them out or say the
    same.
    """

    def __init__(self, kind: str, make: Callable[[str], E]) -> None:
        self._kind = kind
        self._make = make
        self._entries: dict[str, E] = {}
        self._lock = Lock()

    def shared(self, name: str, settings: object | None) -> E:
        """Return the object called *name*, made when it is first named."""
        if not isinstance(name, str) or not name:
            message = f"{self._kind} takes the name of what it guards, got {name!r}."
            raise DefinitionError(message)
        with self._lock:
            entry = self._entries.get(name) or self._make(name)
            if entry.settings is None:
                entry.settings = settings
            elif settings not in (None, entry.settings):
                raise DefinitionError(self._contradicted(name, entry.settings))
            return self._entries.setdefault(name, entry)

    def forget(self, name: str) -> None:
        """Let the next one who gives *name* begin anew."""
        with self._lock:
            self._entries.pop(name, None)

    def _contradicted(self, name: str, settings: object) -> str:
        return (
            f"{self._kind} {name!r} has been given other options: {settings}. "
            "Leave them out to share it, or choose another name."
        )

    def __getitem__(self, name: str) -> E:
        """Return the object called *name*."""
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names known so far."""
        return iter(list(self._entries))

    def __len__(self) -> int:
        """Count the names known so far."""
        return len(self._entries)


def check_count(where: str, name: str, value: object) -> None:
    """Refuse what is no whole number from 1."""
    if type(value) is not int or value < 1:
        message = f"{where}: {name} must be a whole number, 1 or more, got {value!r}."
        raise DefinitionError(message)


def check_seconds(where: str, name: str, value: object) -> None:
    """Refuse what is no time to wait for."""
    number = type(value) in (int, float)
    if not number or not 0 < value < math.inf:  # type: ignore[operator]
        message = (
            f"{where}: {name} must be a finite number of seconds above 0, "
            f"got {value!r}."
        )
        raise DefinitionError(message)


def rest(until: float, now: float) -> float:
    """Return the seconds from *now* to *until*; who waits so long is not early."""
    seconds = until - now
    return seconds if now + seconds >= until else seconds + math.ulp(until)
