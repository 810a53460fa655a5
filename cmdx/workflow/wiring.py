"""Which required inputs of steps nothing before them provides."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx.inputs.collect import Fields
from cmdx.workflow.steps import Group, group_of, steps_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.inputs.collect import Input
    from cmdx.workflow.steps import Step
    from cmdx.workflow.workflow import Workflow


class Unwired(NamedTuple):
    """A required input of a step that nothing provides."""

    task: str
    input: str

    def __str__(self) -> str:
        """Say what is missing."""
        return f"{self.task} needs {self.input!r}, which nothing before it provides"


def unwired_in(group: Group, known: set[str]) -> Iterator[Unwired]:
    """Yield what is missing in *group*, and add what it provides to *known*."""
    provided: set[str] = set()
    for entry in group.steps:
        before = set(known) if group.parallel else known
        if isinstance(entry, Group):
            yield from unwired_in(entry, before)
        else:
            yield from unwired_in_step(entry, before)
            before |= provided_by(entry)
        provided |= before
    known |= provided


def unwired_in_step(step: Step, known: set[str]) -> Iterator[Unwired]:
    """Yield the inputs of *step* that are not among the *known* keys."""
    seen = {name for name, key in step.map.items() if key in known}
    seen |= known - step.map.keys()
    inputs = {field.key: field for field in Fields.of(step.task).inputs.values()}
    for name, field in inputs.items():
        if must_be_given(field) and name not in seen:
            yield Unwired(step.task.__name__, step.map.get(name, name))
    inner = group_of(step.task)
    if inner is not None:
        yield from unwired_in(inner, seen | inputs.keys())


def must_be_given(field: Input) -> bool:
    """Tell whether a run always fails without the input."""
    options = field.field.options
    is_gated = options.get("if_") is not None or options.get("unless") is not None
    return field.required and not is_gated and "source" not in options


def provided_by(step: Step) -> set[str]:
    """Return the keys that *step* leaves in the context."""
    if step.into is not None:
        return {step.into}
    provided = set(Fields.of(step.task).outputs)
    inner = group_of(step.task)
    if inner is not None:
        provided.update(*map(provided_by, steps_in(inner)))
    return provided


def warn_about_wiring(cls: type[Workflow[Any]]) -> None:
    """Warn about each input of a step that nothing provides."""
    if not Fields.of(cls).inputs:  # it takes anything, so nobody can tell
        return
    for unwired in cls.wiring():
        message = (
            f"{cls.__qualname__}: {unwired}. Declare it as an input of the workflow, "
            "or as an output of an earlier step."
        )
        warnings.warn(message, UserWarning, stacklevel=3)
