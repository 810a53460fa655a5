"""What a callable takes of the arguments we offer, and whether it awaits."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def accepted(call: Callable[..., Any], offered: int) -> int:
    """
    Return how many of *offered* positional arguments *call* takes.

    Raise ``TypeError`` when it insists on more than that.
    What has no readable signature, as some builtins, is taken to accept them all.
    """
    try:
        parameters = _parameters(call)
    except ValueError:
        return offered
    taken = needed = 0
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            taken = offered
        elif parameter.kind in POSITIONAL:
            taken += 1
            needed += parameter.default is inspect.Parameter.empty
    if needed > offered:
        message = f"takes {needed} arguments, but only {offered} are given"
        raise TypeError(message)
    return min(taken, offered)


def takes_keyword(call: Callable[..., Any], name: str) -> bool:
    """Tell whether *call* has a keyword-only parameter called *name*."""
    try:
        parameters = _parameters(call)
    except ValueError:
        return False
    return any(
        parameter.name == name and parameter.kind is inspect.Parameter.KEYWORD_ONLY
        for parameter in parameters
    )


def awaits(call: Callable[..., Any]) -> bool:
    """Tell whether *call* is a coroutine function or an async generator function."""
    inner = call if inspect.isroutine(call) else getattr(call, "__call__", call)  # noqa: B004
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def _parameters(call: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    if inspect.ismethod(call):
        return _parameters(call.__func__)[1:]
    try:
        found = _known.get(call)
        if found is None:
            found = _known[call] = _read(call)
    except TypeError:  # neither every callable can be hashed nor referred to weakly
        return _read(call)
    return found


def _read(call: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(call).parameters.values())


# Weak: to know the parameters of a closure must not keep alive what it holds.
_known: WeakKeyDictionary[Callable[..., Any], tuple[inspect.Parameter, ...]]
_known = WeakKeyDictionary()
