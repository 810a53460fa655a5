"""State that is shared by all middlewares with the same name."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from cmdx import DefinitionError
from cmdx.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable


class Configurable(Protocol):
    """An object whose settings are given by those who use it."""

    settings: Any
    """None until somebody has given options."""


C = TypeVar("C", bound=Configurable)


class SharedByName(Mapping[str, C], Generic[C]):
    """
    One object for each name.

    The settings are given once; others who use the name leave them out, or give the
    same. Different settings replace the earlier ones with a warning, because a module
    that is reloaded, or a notebook cell that is run again, declares them again.

    Args:
        kind: What the objects are called in messages.
        make: Called with a new name to make its object.
    """

    def __init__(self, kind: str, make: Callable[[str], C]) -> None:
        self._kind = kind
        self._make = make
        self._entries: dict[str, C] = {}
        self._lock = new_lock()

    def get_or_create(self, name: str, settings: object | None) -> C:
        """Return the object for *name*; create it if the name is new."""
        if not isinstance(name, str) or not name:
            message = (
                f"{self._kind}: name must be a non-empty string, got {name!r}. "
                f"Write for example {self._kind}('payments')."
            )
            raise DefinitionError(message)
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                entry = self._entries[name] = self._make(name)
        if settings is not None:
            if entry.settings not in (None, settings):
                message = self._conflict_message(name, entry.settings, settings)
                warnings.warn(message, UserWarning, stacklevel=3)
            entry.settings = settings
        return entry

    def forget(self, name: str) -> None:
        """Remove the object for *name*; the next use of the name makes a new one."""
        with self._lock:
            self._entries.pop(name, None)

    def _conflict_message(self, name: str, before: object, now: object) -> str:
        return (
            f"{self._kind} {name!r} was declared again with other options: {now} "
            f"replaces {before}. To share it, give the options once and only the name "
            "elsewhere; otherwise choose another name."
        )

    def __getitem__(self, name: str) -> C:
        """Return the object for *name*."""
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that are known."""
        return iter(list(self._entries))

    def __len__(self) -> int:
        """Return how many names are known."""
        return len(self._entries)


def seconds_until(until: float, now: float) -> float:
    """
    Return the seconds from *now* to *until*.

    They are rounded up, so that waiting that long is never too short.
    """
    seconds = until - now
    return seconds if now + seconds >= until else seconds + math.ulp(until)
