"""
What a task leaves in the context: ``output()`` fields, verified after ``work``.

Setting ``self.total = 7`` in ``work`` puts the value into the context, where the tasks
that follow find it; reading ``self.total`` reads it from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cmdx.exceptions import DefinitionError
from cmdx.gates import Gate, check_gates, compiled_gate
from cmdx.validation import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.invocation import Invocation
    from cmdx.task import Task

OutputPlan = tuple[str, "Callable[[Invocation], Any] | None"]


class Output:
    """What ``output()`` said; stands in the class body and leads to the context."""

    name = ""
    annotation: Any = Any

    def __init__(self, description: str, if_: Gate | None, unless: Gate | None) -> None:
        self.description = description
        self.if_ = if_
        self.unless = unless

    def __set_name__(self, cls: type, name: str) -> None:
        """Learn the name of the field."""
        self.name = name

    def __get__(self, task: Invocation | None, cls: type | None = None) -> Any:
        """Read the value from the context."""
        if task is None:
            return self
        try:
            return task.context[self.name]
        except KeyError:
            message = (
                f"the output {self.name!r} has not been set. "
                f"Set it in work: self.{self.name} = ..."
            )
            raise AttributeError(message) from None

    def __set__(self, task: Invocation, value: Any) -> None:
        """Put the value into the context."""
        task.context[self.name] = value

    def __delete__(self, task: Invocation) -> None:
        """Take the value out of the context."""
        del task.context[self.name]


def output(
    *,
    description: str = "",
    if_: Gate | None = None,
    unless: Gate | None = None,
    init: Literal[False] = False,
) -> Any:
    """
    Declare a value that ``work`` must set when it returns.

    *if_* and *unless* say when it must. *init* tells type checkers that callers
    do not give it; it cannot be changed.
    """
    if init is not False:
        message = "output(): a caller cannot give an output. Leave init out."
        raise DefinitionError(message)
    check_gates("output()", offered=1, if_=if_, unless=unless)
    return Output(description, if_, unless)


def compiled_output(cls: type[Task[Any]], declared: Output) -> OutputPlan:
    """Make *declared* ready to be verified."""
    where = f"{cls.__qualname__}.{declared.name}"
    return declared.name, compiled_gate(where, cls, declared.if_, declared.unless)


def verify(task: Invocation, outputs: tuple[OutputPlan, ...]) -> None:
    """Note every output that is not set in the errors of *task*."""
    for name, gate in outputs:
        if name not in task.context and (gate is None or gate(task)):
            task.errors.add_invalid(name, Invalid("unset"))
