"""
The checks of options: numbers of seconds, counts, kinds and names.

Each returns a right value, and refuses a wrong one with a ``DefinitionError`` that says
where it was given, what was expected and what was given instead.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from cmdx.clock import FOREVER
from cmdx.exceptions import DefinitionError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

Kinds: TypeAlias = Mapping[str, tuple[Callable[[Any], bool], str]]
"""For each option: whether a value fits, and in words what is expected."""
Instead: TypeAlias = Mapping[str, str]
"""For words that people may try as options: in words what to use instead."""


def finite_number(value: object) -> float | None:
    """Return *value* as an int or a float, or None if it is not a finite number."""
    if type(value) is float or (isinstance(value, int) and not isinstance(value, bool)):
        number = value
    elif is_real(value):
        number = _as_float(value)
    else:
        return None
    return number if -math.inf < number < math.inf else None


def check_seconds(
    where: str, name: str, value: object, *, above_zero: bool = False
) -> float:
    """
    Return *value* if it is a finite number of seconds, 0 or more, or above 0.

    More than ``FOREVER`` is as much as that.
    """
    if is_timedelta(value):
        message = f"{where}: {name} is a number of seconds: delta.total_seconds()."
        raise DefinitionError(message)
    number = finite_number(value)
    if number is None or number < 0 or (above_zero and number == 0):
        least = "above 0" if above_zero else "0 or more"
        message = (
            f"{where}: {name} must be a finite number of seconds, {least}, "
            f"got {value!r}."
        )
        raise DefinitionError(message)
    return min(number, FOREVER)


def check_longest_pause(where: str, seconds: object) -> float:
    """Return the longest pause that is slept, in seconds; infinity sets no limit."""
    if seconds == math.inf:
        return math.inf
    return check_seconds(where, "longest_pause", seconds)


def check_number(where: str, name: str, value: object) -> float:
    """Return *value* if it is a finite number, 0 or more."""
    number = finite_number(value)
    if number is None or number < 0:
        message = f"{where}: {name} must be a finite number, 0 or more, got {value!r}."
        raise DefinitionError(message)
    return number


def check_count(where: str, name: str, value: object, *, least: int = 1) -> int:
    """Return *value* if it is a whole number, *least* or more."""
    if type(value) is not int or value < least:
        message = (
            f"{where}: {name} must be a whole number, {least} or more, got {value!r}."
        )
        raise DefinitionError(message)
    return value


def check_kinds(where: str, options: Mapping[str, Any], kinds: Kinds) -> None:
    """Refuse options whose value does not fit their kind; None always fits."""
    for name, (fits, expected) in kinds.items():
        value = options.get(name)
        if value is not None and not fits(value):
            message = f"{where}: {name} must be {expected}, got {value!r}."
            raise DefinitionError(message)


def check_names(
    where: str,
    given: Iterable[str],
    known: Iterable[str],
    instead: Instead | None = None,
) -> None:
    """Refuse options that *where* does not have, and name the right ones."""
    known = tuple(known)
    for name in given:
        if name not in known:
            use = (instead or {}).get(name)
            hint = f"; {use}." if use else did_you_mean(name, known)
            message = (
                f"{where} has no option {name!r}{hint} "
                f"Valid options: {', '.join(known)}."
            )
            raise DefinitionError(message)


def refuse_unknown_keywords(
    instead: Instead,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Make the decorated function refuse unknown keywords as ``check_names`` does.

    Python's own ``TypeError`` would not name the right one. Type checkers and ``help``
    see the function as it is.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        where = f"{name}()"
        parameters = inspect.signature(function).parameters.values()
        known = [
            parameter.name
            for parameter in parameters
            if parameter.kind
            in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and parameter.name != "self"
        ]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            check_names(where, kwargs, known, instead)
            return function(*args, **kwargs)

        return call

    return decorate


def is_real(value: object) -> bool:
    """Tell whether *value* is a real number of another kind, such as a Decimal."""
    from numbers import Real  # here, because few give such a number

    decimal = sys.modules.get("decimal")  # whoever has a Decimal has imported it
    kinds = (Real,) if decimal is None else (Real, decimal.Decimal)
    return isinstance(value, kinds) and not isinstance(value, bool)


def is_timedelta(value: object) -> bool:
    """Tell whether *value* is a ``timedelta``."""
    datetime = sys.modules.get("datetime")  # whoever has a timedelta has imported it
    return datetime is not None and isinstance(value, datetime.timedelta)


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except (OverflowError, ValueError):  # too large, or a signalling NaN
        return math.nan
