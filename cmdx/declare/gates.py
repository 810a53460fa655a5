"""
``if_`` and ``unless``: whether something is to happen this time.

A gate is True, False, the name of a method, or a callable. ``if_`` is asked first, and
both must agree. A method takes nothing, a callable the task or nothing.

The gates of ``retry_on`` are told more: a method takes ``(error, attempt)`` or fewer, a
callable ``(task, error, attempt)``, ``(error, attempt)`` or ``(error)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.declare.methods import find_method, takes_self
from cmdx.declare.signatures import check_plain_call
from cmdx.exceptions import DefinitionError

if TYPE_CHECKING:
    from cmdx.declare.checks import Instead
    from cmdx.task import Task

Gate: TypeAlias = bool | str | Callable[..., Any]
Ask: TypeAlias = Callable[..., Any]
"""A gate made ready: called with the task and the facts, whatever it takes of them."""

GATE_WORDS: Instead = dict.fromkeys(("when", "condition"), "use `if_`")

RETRY_FACTS = 2
"""What a retry gate is told beside the task: the error and the attempt."""


def check_gates(where: str, **gates: object) -> None:
    """Refuse what cannot be a gate, as soon as it is declared."""
    for option, gate in gates.items():
        check_gate(f"{where}: {option}", gate, facts=0)


def check_retry_gates(where: str, **gates: object) -> None:
    """Refuse what cannot be a gate of ``retry_on``, as soon as it is declared."""
    for option, gate in gates.items():
        check_gate(f"{where}: {option}", gate, facts=RETRY_FACTS)


def compile_gate(
    where: str, cls: type[Task[Any]], if_: Gate | None, unless: Gate | None
) -> Ask | None:
    """Return one callable that asks both gates, or None if there is nothing to ask."""
    return compile_both(where, cls, if_, unless, facts=0)


def compile_retry_gate(
    where: str, cls: type[Task[Any]], if_: Gate | None, unless: Gate | None
) -> Ask | None:
    """Do what ``compile_gate`` does for the gates of ``retry_on``."""
    return compile_both(where, cls, if_, unless, facts=RETRY_FACTS)


def compile_both(
    where: str,
    cls: type[Task[Any]],
    if_: Gate | None,
    unless: Gate | None,
    *,
    facts: int,
) -> Ask | None:
    """Return one callable that asks *if_* and then *unless*, each told *facts*."""
    wanted = refused = None
    if if_ not in (None, True):
        wanted = ask_of(f"{where}: if_", cls, if_, facts)
    if unless not in (None, False):
        refused = ask_of(f"{where}: unless", cls, unless, facts)
    if refused is None:
        return wanted
    if wanted is None:
        return lambda *given: not refused(*given)
    return lambda *given: wanted(*given) and not refused(*given)


def ask_of(where: str, cls: type[Task[Any]], gate: Gate | None, facts: int) -> Ask:
    """Return a callable that asks *gate* with as much as it takes."""
    if isinstance(gate, bool):
        return lambda *_: gate
    if isinstance(gate, str):
        return ask_method(where, cls, gate, facts)
    assert callable(gate)  # noqa: S101 -- checked when it was declared
    call, taken = gate, check_call(where, gate, facts + 1)
    if taken == facts + 1:
        return call
    return lambda _, *given: call(*given[:taken])


def ask_method(where: str, cls: type[Task[Any]], name: str, facts: int) -> Ask:
    """Return a callable that asks the method *name* with as much as it takes."""
    method = find_method(where, cls, name)
    taken = check_call(where, method, facts, has_self=takes_self(cls, name))
    return lambda task, *given: getattr(task, name)(*given[:taken])


def check_gate(where: str, gate: object, *, facts: int) -> None:
    """Refuse what cannot be a gate."""
    if gate is None or isinstance(gate, bool | str):
        return
    if not callable(gate):
        message = (
            f"{where} must be True, False, the name of a method or a callable, "
            f"got {gate!r}."
        )
        raise DefinitionError(message)
    check_call(where, gate, facts + 1)


def check_call(
    where: str, gate: Callable[..., Any], offered: int, *, has_self: bool = False
) -> int:
    """Return how many of *offered* arguments *gate* takes; refuse an async one."""
    cure = "Take fewer arguments, or give them defaults."
    return check_plain_call(f"{where}:", gate, offered, cure, has_self=has_self)
