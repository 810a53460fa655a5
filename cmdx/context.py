"""The context: one bag of values that tasks hand to each other."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cmdx.exceptions import UnknownContextKey

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()


class Context:
    """
    Values by name, as attributes and as items.

    A key that is named like a method (``get``, ``items``) is available as an item only.

    Args:
        values: A mapping to copy the values from.
        more: Further values by keyword; they take precedence over *values*.
    """

    __slots__ = ("_values",)

    _values: MutableMapping[str, Any]

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        _put(self, "_values", {**(values or {}), **more})

    @classmethod
    def around(cls, values: MutableMapping[str, Any]) -> Context:
        """Make a context of *values* itself, not of a copy."""
        context = cls.__new__(cls)
        _put(context, "_values", values)
        return context

    def __getattr__(self, key: str) -> Any:
        """Read a value; an unknown key raises ``UnknownContextKey``."""
        if key.startswith("__"):  # copy, pickle and friends ask for these
            raise AttributeError(key)
        try:
            return self._values[key]
        except KeyError:
            raise UnknownContextKey(key, map(str, self._values)) from None

    def __setattr__(self, key: str, value: Any) -> None:
        """Set a value."""
        if key in METHODS:
            message = (
                f"{key!r} is a method of the context. "
                f"Set the key with context[{key!r}] = ... and read it the same way."
            )
            raise AttributeError(message)
        self._values[key] = value

    def __delattr__(self, key: str) -> None:
        """Remove a value."""
        try:
            del self._values[key]
        except KeyError:
            raise UnknownContextKey(key, map(str, self._values)) from None

    def __getitem__(self, key: str) -> Any:
        """Read a value; an unknown key raises ``KeyError``."""
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        """Set a value."""
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        """Remove a value."""
        del self._values[key]

    def __contains__(self, key: object) -> bool:
        """Tell whether *key* is set."""
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self._values)

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._values)

    def __bool__(self) -> bool:
        """Be true, also when empty: a context is always something."""
        return True

    def __eq__(self, other: object) -> bool:
        """Compare the values with those of another context or mapping."""
        if isinstance(other, Context):
            return self._values == other._values
        if isinstance(other, Mapping):
            return self._values == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show the keys with their values."""
        inside = ", ".join(f"{key}={value!r}" for key, value in self._values.items())
        return f"Context({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by value, item by item: a context may hold itself."""
        return Context, (), None, None, iter(self._values.items())

    def keys(self) -> Any:
        """Return a live view of the keys, so that ``dict(context)`` works."""
        return self._values.keys()

    def values(self) -> Any:
        """Return a live view of the values."""
        return self._values.values()

    def items(self) -> Any:
        """Return a live view of the pairs."""
        return self._values.items()

    def get(self, key: str, default: Any = None) -> Any:
        """
        Return the value of a key, or a default.

        Args:
            key: The key.
            default: The value to return if the key is not set; None by default.
        """
        return self._values.get(key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """
        Return the value of a key; set it first if it is not set.

        Args:
            key: The key.
            default: The value to set if the key is not set; None by default.
        """
        return self._values.setdefault(key, default)

    def pop(self, key: str, default: Any = MISSING) -> Any:
        """
        Remove a key and return its value.

        Args:
            key: The key.
            default: The value to return if the key is not set. Without it, ``KeyError``
                is raised.
        """
        if default is MISSING:
            return self._values.pop(key)
        return self._values.pop(key, default)

    def update(
        self, values: Mapping[str, Any] | Context | None = None, /, **more: Any
    ) -> None:
        """
        Set several values.

        Args:
            values: A mapping or another context.
            more: Further values by keyword; they take precedence over *values*.
        """
        self._values.update(values or {}, **more)

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()

    def dig(self, *path: Any, default: Any = None) -> Any:
        """
        Return a value from nested mappings and sequences, or a default.

        Example::

            context.dig("order", "items", 0, "price", default=0)

        Args:
            path: The keys and indexes that lead to the value, from the outermost in.
            default: The value to return if there is nothing at *path*; None by default.
        """
        value: Any = self._values
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return default
        return value

    def deep_merge(self, values: Mapping[str, Any] | Context, /) -> None:
        """
        Set several values; merge mappings into existing mappings, at every depth.

        Args:
            values: A mapping or another context.
        """
        _merge(self._values, values)

    def to_dict(self) -> dict[str, Any]:
        """Return the values as a new plain dict."""
        return dict(self._values)

    def copy(self) -> Context:
        """Return a deep copy."""
        return Context.around(deepcopy(dict(self._values)))


_put = object.__setattr__

METHODS = frozenset(name for name in vars(Context))


def _merge(into: MutableMapping[str, Any], values: Mapping[str, Any] | Context) -> None:
    for key in values:
        value = values[key]
        present = into.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            merged = dict(present)
            _merge(merged, value)
            value = merged
        into[key] = value
