"""
What a task writes into the context: ``output()`` fields, verified after ``work``.

Setting ``self.total = 7`` in ``work`` puts the value into the context, where the tasks
that follow find it; reading ``self.total`` reads it from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

from cmdx.declare.gates import Gate, check_gates, compile_gate
from cmdx.exceptions import DefinitionError
from cmdx.inputs.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.run.invocation import Invocation
    from cmdx.task import Task

OutputPlan = tuple[str, "Callable[[Invocation], Any] | None"]


@attrs.frozen
class Output:
    """What ``output()`` declared; reads and writes the context."""

    description: str = ""
    if_: Gate | None = None
    unless: Gate | None = None
    name: str = ""
    """What the class calls it; set when the class is made."""
    annotation: Any = Any
    """Set where the fields of a class are folded, as subclasses may change it."""

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
    Declare a value that ``work`` must set before it returns.

    Args:
        description: A sentence for people, shown in the JSON Schema and by ``inspect``.
        if_: A gate: if it is false, the output need not be set.
        unless: A gate: if it is true, the output need not be set.
        init: Tells type checkers that callers do not give it; leave it out.
    """
    if init is not False:
        message = "output(): init must be False, as callers cannot pass an output."
        raise DefinitionError(message)
    check_gates("output()", if_=if_, unless=unless)
    return Output(description, if_, unless)


def output_plan(cls: type[Task[Any]], declared: Output) -> OutputPlan:
    """Return what is needed to verify *declared*."""
    where = f"{cls.__qualname__}.{declared.name}"
    return declared.name, compile_gate(where, cls, declared.if_, declared.unless)


def verify(task: Invocation, outputs: tuple[OutputPlan, ...]) -> None:
    """Add every output that is not set to the errors of *task*."""
    for name, gate in outputs:
        if name not in task.context and (gate is None or gate(task)):
            task.errors.add_invalid(name, Invalid("unset"))
