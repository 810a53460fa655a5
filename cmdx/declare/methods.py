"""Methods that an option names, such as ``if_="is_live"`` or ``source="find"``."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cmdx.exceptions import DefinitionError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable


def find_method(where: str, cls: type, name: str) -> Callable[..., Any]:
    """Return what *cls* has as *name*; refuse what is not a method."""
    method: Callable[..., Any] | None = getattr(cls, name, None)
    if callable(method):
        return method
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, property | cached_property):
        message = (
            f"{where} names {name!r}, which is a property of {cls.__qualname__}. "
            f"Make it a method: remove the decorator @{type(found).__name__}."
        )
        raise DefinitionError(message)
    message = (
        f"{where} names {name!r}, which is not a method of {cls.__qualname__}"
        f"{did_you_mean(name, methods_of(cls))} Define it, or give a callable."
    )
    raise DefinitionError(message)


def methods_of(cls: type) -> list[str]:
    """Return the names of the public methods of *cls*."""
    public = [name for name in dir(cls) if not name.startswith("_")]
    return [name for name in public if callable(getattr(cls, name, None))]


def takes_self(cls: type, name: str) -> bool:
    """Tell whether what ``find_method`` returns takes the task as first argument."""
    found = inspect.getattr_static(cls, name)
    if isinstance(found, staticmethod | classmethod):
        return False
    return hasattr(type(found), "__get__")  # not of a class or an object with __call__
