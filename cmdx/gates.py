"""
``if_`` and ``unless``: whether something is to happen this time.

A gate is True, False, the name of a method, or a callable.
A callable gets the task and then what the occasion offers; a method gets the same
without the task; both may take fewer. ``if_`` is asked first, and both must agree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.arity import accepted, awaits
from cmdx.exceptions import DefinitionError, did_you_mean

if TYPE_CHECKING:
    from cmdx.task import Task

Gate: TypeAlias = bool | str | Callable[..., Any]
Ask: TypeAlias = Callable[..., Any]


def check_gates(where: str, *, offered: int, **gates: object) -> None:
    """Refuse what is no gate, as soon as it is declared."""
    for option, gate in gates.items():
        if gate is None or isinstance(gate, bool | str):
            continue
        if not callable(gate):
            message = (
                f"{where}: {option} must be True, False, the name of a method or "
                f"a callable, got {gate!r}."
            )
            raise DefinitionError(message)
        _check_callable(f"{where}: {option}", gate, offered)


def compiled_gate(
    where: str,
    cls: type[Task[Any]],
    if_: Gate | None,
    unless: Gate | None,
    *,
    offered: int = 1,
) -> Ask | None:
    """
    Return one callable that asks both gates, or None when there is nothing to ask.

    *offered* counts what the callable is given, the task included.
    """
    wanted = None if if_ in (None, True) else _asker(where, "if_", cls, if_, offered)
    refused = (
        None
        if unless in (None, False)
        else _asker(where, "unless", cls, unless, offered)
    )
    if refused is None:
        return wanted
    if wanted is None:
        return lambda *given: not refused(*given)
    return lambda *given: wanted(*given) and not refused(*given)


def _asker(
    where: str, option: str, cls: type[Task[Any]], gate: Gate | None, offered: int
) -> Ask:
    if isinstance(gate, bool):
        return lambda *_: gate
    if isinstance(gate, str):
        return _method_asker(f"{where}: {option}", cls, gate, offered)
    assert callable(gate)  # noqa: S101 -- checked when it was declared
    call, taken = gate, accepted(gate, offered)
    if taken == offered:
        return call
    return lambda *given: call(*given[:taken])


def _method_asker(where: str, cls: type[Task[Any]], name: str, offered: int) -> Ask:
    method = inspect.getattr_static(cls, name, None)
    bound = isinstance(method, staticmethod | classmethod)
    if not callable(getattr(cls, name, None)):
        methods = [each for each in dir(cls) if not each.startswith("_")]
        message = (
            f"{where} names {name!r}, which is no method of {cls.__qualname__}"
            f"{did_you_mean(name, methods)} Define it, or give a callable."
        )
        raise DefinitionError(message)
    _check_callable(where, getattr(cls, name), offered if not bound else offered - 1)
    taken = accepted(getattr(cls, name), offered if not bound else offered - 1)
    taken -= not bound
    return lambda task, *given: getattr(task, name)(*given[:taken])


def _check_callable(where: str, gate: Callable[..., Any], offered: int) -> None:
    if awaits(gate):
        message = (
            f"{where} is async, but gates are asked without awaiting. "
            "Use a plain function; do what must be awaited in work."
        )
        raise DefinitionError(message)
    try:
        accepted(gate, offered)
    except TypeError as error:
        message = f"{where}: {gate!r} {error}. Take fewer arguments."
        raise DefinitionError(message) from None
