"""
Texts for people, in the language of the moment in which they are needed.

A text is a string, a callable that returns one, or a lazy string of a gettext library,
such as ``gettext_lazy`` of Django makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from cmdx.values import plain_text


class LazyText(Protocol):
    """A string that is looked up when it is used."""

    def format(self, *args: Any, **values: Any) -> str:
        """Return the string with its placeholders replaced."""
        ...


Text: TypeAlias = str | Callable[[], str] | LazyText


def is_text(value: object) -> bool:
    """Tell whether *value* is a text; a lazy one is not looked up."""
    if isinstance(value, str):
        return bool(value)
    kind = type(value)
    # Those of Django have the methods of ``str``, others pass on all attributes.
    return callable(value) or hasattr(kind, "format") or hasattr(kind, "__getattr__")


def string_of(text: Text) -> str:
    """Return a text as a string, in the language of this moment."""
    made = text() if callable(text) else text
    return made if isinstance(made, str) else plain_text(made)
