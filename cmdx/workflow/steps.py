"""
What a workflow lists: tasks, ``step(...)``, ``group(...)`` and ``parallel(...)``.

The class statement checks them and makes ``Step`` and ``Group`` values of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from cmdx.declare.checks import check_count, check_kinds, refuse_unknown_keywords
from cmdx.declare.gates import GATE_WORDS, Gate, check_gates
from cmdx.exceptions import DefinitionError, did_you_mean, valid_inputs
from cmdx.inputs.collect import Fields
from cmdx.task import Task
from cmdx.workflow.executors import check_executor
from cmdx.workflow.merging import check_merger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cmdx.declare.checks import Instead, Kinds
    from cmdx.workflow.executors import Executor
    from cmdx.workflow.merging import Merger

OnFailure: TypeAlias = Literal["stop", "continue"]


@attrs.frozen
class Step:
    """A task in a workflow, possibly under other names."""

    task: type[Task[Any]]
    map: Mapping[str, str] = attrs.field(factory=dict)
    into: str | None = None
    on_failure: OnFailure = "stop"
    is_renamed: bool = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda step: bool(step.map) or step.into is not None, takes_self=True
        ),
        repr=False,
        eq=False,
    )
    """Whether it has other names, and so works on a context of its own."""


@attrs.frozen
class Group:
    """Steps that are run one after the other, or beside each other."""

    steps: tuple[Step | Group, ...]
    if_: Gate | None = None
    unless: Gate | None = None
    continue_on_failure: bool = False
    parallel: bool = False
    workers: int | None = None
    executor: str | Executor | None = None
    merge: str | Merger = "last"

    @property
    def is_gated(self) -> bool:
        """Whether it has a gate."""
        return self.if_ is not None or self.unless is not None


STEP_WORDS: Instead = {
    "if_": "put it in a group: `group(Task, if_=...)`",
    "unless": "put it in a group: `group(Task, unless=...)`",
    "continue_on_failure": 'use `on_failure="continue"`',
}
PARALLEL_WORDS: Instead = {
    **GATE_WORDS,
    "on_failure": "use `continue_on_failure=True`, or `step(Task, on_failure=...)`",
}
GROUP_WORDS: Instead = {
    **PARALLEL_WORDS,
    **dict.fromkeys(
        ("workers", "executor", "merge"),
        "use `parallel(...)` for steps that run at the same time",
    ),
}


@refuse_unknown_keywords(STEP_WORDS)
def step(
    task: type[Task[Any]],
    /,
    *,
    map: Mapping[str, str] | None = None,  # noqa: A002 -- the word for it
    into: str | None = None,
    on_failure: OnFailure = "stop",
) -> Step:
    """
    List a task with other names, or one whose failure is tolerated.

    With *map* or *into* the task works on a context of its own.

    Args:
        task: A task or a workflow.
        map: For inputs of the task, the keys of the context to take their values from.
        into: The key of the context to store the value of the task under.
        on_failure: ``"stop"``, or ``"continue"`` to go on as if the step had been
            skipped.
    """
    where = "step()"
    check_task(where, task)
    renames = dict(map or {})
    if not all(isinstance(name, str) for pair in renames.items() for name in pair):
        message = f"{where}: map must map names of inputs to keys, got {map!r}."
        raise DefinitionError(message)
    check_renames(where, task, renames)
    check_kinds(where, {"into": into, "on_failure": on_failure}, STEP_KINDS)
    return Step(task, renames, into, on_failure)


@refuse_unknown_keywords(GROUP_WORDS)
def group(
    *steps: Any,
    if_: Gate | None = None,
    unless: Gate | None = None,
    continue_on_failure: bool = False,
) -> Group:
    """
    List steps that share a gate, or that all run before the workflow fails.

    Args:
        steps: Tasks, workflows, ``step(...)``, ``group(...)`` and ``parallel(...)``.
        if_: Whether to run them: True, False, the name of a method of the workflow, or
            a callable of the workflow.
        unless: Whether not to run them, in the same forms; asked after *if_*.
        continue_on_failure: Run all steps, collect their failures in ``errors``, and
            stop the workflow after the group.
    """
    check_gates("group()", if_=if_, unless=unless)
    listed = list_steps("group()", steps)
    return Group(listed, if_, unless, bool(continue_on_failure))


@refuse_unknown_keywords(PARALLEL_WORDS)
def parallel(  # noqa: PLR0913 -- they are all optional
    *steps: Any,
    workers: int | None = None,
    executor: str | Executor | None = None,
    merge: str | Merger = "last",
    if_: Gate | None = None,
    unless: Gate | None = None,
    continue_on_failure: bool = False,
) -> Group:
    """
    List steps that run at the same time, each on a context of its own.

    Args:
        steps: Tasks, workflows, ``step(...)``, ``group(...)`` and ``parallel(...)``.
        workers: How many run at once; all of them by default.
        executor: What runs them: ``"threads"``, ``"asyncio"`` (under ``aexecute``),
            ``"inline"``, another registered name, or a callable of
            ``(jobs, workers)``.
        merge: How the values they wrote are merged, in the order of the list:
            ``"last"``, ``"deep"``, ``"none"``, another registered name, or a callable
            of ``(context, result)``.
        if_: Whether to run them, as for ``group``.
        unless: Whether not to run them, as for ``group``.
        continue_on_failure: As for ``group``.
    """
    where = "parallel()"
    check_gates(where, if_=if_, unless=unless)
    if workers is not None:
        check_count(where, "workers", workers)
    check_kinds(where, {"executor": executor, "merge": merge}, PARALLEL_KINDS)
    if callable(executor):
        check_executor(f"{where}: executor", executor)
    if callable(merge):
        check_merger(f"{where}: merge", merge)
    return Group(
        tuple(map(as_step, list_steps(where, steps))),
        if_,
        unless,
        bool(continue_on_failure),
        parallel=True,
        workers=workers,
        executor=executor,
        merge=merge,
    )


STEP_KINDS: Kinds = {
    "into": (lambda key: isinstance(key, str) and key != "", "the name of a key"),
    "on_failure": (lambda how: how in ("stop", "continue"), '"stop" or "continue"'),
}
PARALLEL_KINDS: Kinds = {
    name: (
        lambda value: isinstance(value, str) or callable(value),
        "a name or callable",
    )
    for name in ("executor", "merge")
}


def list_steps(where: str, steps: Iterable[Any]) -> tuple[Step | Group, ...]:
    """Return what was listed as ``Step`` and ``Group`` values."""
    listed: list[Step | Group] = []
    for entry in steps:
        if isinstance(entry, Step | Group):
            listed.append(entry)
        else:
            check_task(where, entry)
            listed.append(Step(entry))
    if not listed:
        message = f"{where} lists no steps. Give it tasks, workflows or groups."
        raise DefinitionError(message)
    return tuple(listed)


def as_step(entry: Step | Group) -> Step:
    """Make a workflow of a group, so that it can run beside others on a context."""
    if isinstance(entry, Step):
        return entry
    from cmdx.workflow.workflow import Inner

    name = "Parallel" if entry.parallel else "Group"
    return Step(type(name, (Inner,), {"steps": (entry,), "__module__": __name__}))


def check_task(where: str, task: Any) -> None:
    """Refuse what is not a task class."""
    if isinstance(task, Task):
        name = type(task).__qualname__
        message = (
            f"{where}: a step is a class, got an instance of {name}. "
            f"List the class: `{name}`. It takes its inputs from the context."
        )
        raise DefinitionError(message)
    if not (isinstance(task, type) and issubclass(task, Task)):
        message = (
            f"{where}: a step is a task, a workflow, step(...), group(...) or "
            f"parallel(...), got {task!r}."
        )
        if isinstance(task, list | tuple):
            call = where[:-2] if where in ("group()", "parallel()") else "group"
            message += f" List tasks like this: {call}(First, Second)."
        raise DefinitionError(message)


def check_renames(
    where: str, task: type[Task[Any]], renames: Mapping[str, str]
) -> None:
    """Refuse another name for an input that the task does not have."""
    known = names_read_by(task)
    for name in renames:
        if known is not None and name not in known:
            message = (
                f"{where}: map names {name!r}, which is no input of "
                f"{task.__qualname__}{did_you_mean(name, known)} {valid_inputs(known)}"
            )
            raise DefinitionError(message)


def names_read_by(task: type[Task[Any]]) -> dict[str, None] | None:
    """Return the inputs of a task and of its steps; None if it takes anything."""
    names = dict.fromkeys(field.key for field in Fields.of(task).inputs.values())
    inner = group_of(task)
    if inner is None:
        return names or None
    for entry in steps_in(inner):
        read = names_read_by(entry.task)
        if read is None:
            return None
        names |= dict.fromkeys(entry.map.get(name, name) for name in read)
    return names


def group_of(task: type[Task[Any]]) -> Group | None:
    """Return the steps of a workflow, None for another task."""
    return getattr(task._cmdx_, "group", None)


def steps_in(group: Group) -> Iterator[Step]:
    """Yield the steps of *group* and of the groups in it."""
    for entry in group.steps:
        if isinstance(entry, Step):
            yield entry
        else:
            yield from steps_in(entry)
