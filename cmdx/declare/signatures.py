"""Which of the arguments we offer a callable takes, and whether it awaits."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cmdx.exceptions import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def positional_count(
    call: Callable[..., Any],
    offered: int,
    *,
    has_self: bool = False,
    keywords: Collection[str] = (),
) -> int:
    """
    Return how many of *offered* positional arguments *call* takes.

    Raise ``TypeError`` when it requires more than that, or a keyword argument.
    Callables without a readable signature, such as some builtins, are assumed to take
    one.

    Args:
        call: The callable.
        offered: The number of arguments, without ``self``.
        has_self: Whether it is read from a class and is given ``self`` first.
        keywords: The keyword arguments that it may require.
    """
    try:
        parameters = parameters_of(call)
    except ValueError:
        return min(1, offered)
    if has_self:
        parameters = without_self(parameters)
    problem = unmet_requirement(parameters, offered, keywords)
    if problem is not None:
        raise TypeError(problem)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return offered
    return min(sum(parameter.kind in POSITIONAL for parameter in parameters), offered)


def unmet_requirement(
    parameters: Iterable[inspect.Parameter], offered: int, keywords: Collection[str]
) -> str | None:
    """Say what is required beyond what is given; None if nothing is."""
    required = [known for known in parameters if known.default is known.empty]
    needed = sum(parameter.kind in POSITIONAL for parameter in required)
    if needed > offered:
        return f"takes {needed} arguments, but is called with {offered}"
    for parameter in required:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in keywords:
            name = parameter.name
            return f"requires the keyword argument {name!r}, but is called without it"
    return None


def takes_keyword(call: Callable[..., Any], name: str) -> bool:
    """Tell whether *call* has a keyword-only parameter called *name*."""
    try:
        parameters = parameters_of(call)
    except ValueError:
        return False
    return any(
        parameter.name == name and parameter.kind is inspect.Parameter.KEYWORD_ONLY
        for parameter in parameters
    )


def call_problem(call: Callable[..., Any], count: int) -> str | None:
    """Say why *call* cannot be called with *count* arguments; None if it can."""
    try:
        inspect.signature(call).bind(*[None] * count)
    except TypeError as error:
        return str(error)
    except ValueError:  # a builtin without a readable signature
        return None
    return None


def awaits(call: Callable[..., Any]) -> bool:
    """Tell whether calling *call* makes a coroutine or an async generator."""
    while isinstance(call, partial):
        call = call.func
    if isinstance(call, type):  # its ``__call__`` is that of its instances
        return False
    inner = call if inspect.isroutine(call) else getattr(call, "__call__", call)  # noqa: B004
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def check_plain_call(  # noqa: PLR0913 -- what one may say about a callable
    where: str,
    call: Callable[..., Any],
    offered: int,
    cure: str,
    *,
    least: int = 0,
    has_self: bool = False,
    keywords: Collection[str] = (),
) -> int:
    """
    Return how many of *offered* arguments *call* takes.

    Raise ``DefinitionError`` if it has to be awaited, takes fewer than *least*, or
    requires more than it is given, see ``positional_count``.
    """
    if awaits(call):
        message = (
            f"{where} {call!r} is async, but nothing awaits it. "
            "Use a plain function, and await in work."
        )
        raise DefinitionError(message)
    try:
        taken = positional_count(call, offered, has_self=has_self, keywords=keywords)
    except TypeError as error:
        message = f"{where} {call!r} {error}. {cure}"
        raise DefinitionError(message) from None
    problem = call_problem(call, least + has_self) if taken < least else None
    if problem is not None:
        message = f"{where} {call!r} cannot be called: {problem}. {cure}"
        raise DefinitionError(message)
    return taken


def parameters_of(call: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of *call*, those of a bound method without ``self``."""
    if inspect.ismethod(call):
        return without_self(parameters_of(call.__func__))
    try:
        found = _known.get(call)
        if found is None:
            found = _known[call] = read_parameters(call)
    except TypeError:  # not every callable is hashable or weakly referenceable
        return read_parameters(call)
    return found


def without_self(
    parameters: tuple[inspect.Parameter, ...],
) -> tuple[inspect.Parameter, ...]:
    """Return the parameters that remain when the first argument is given."""
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return parameters  # it takes self and whatever follows
    return parameters[1:]


def read_parameters(call: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Read the signature of *call*."""
    return tuple(inspect.signature(call).parameters.values())


# Weak keys: caching a signature must not keep a closure alive.
_known: WeakKeyDictionary[Callable[..., Any], tuple[inspect.Parameter, ...]]
_known = WeakKeyDictionary()
