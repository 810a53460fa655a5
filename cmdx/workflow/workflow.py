"""
Workflows: tasks composed into a task.

1. ``steps`` lists tasks, groups and parallel groups     ``cmdx.workflow.steps``
2. the class statement checks them                       ``Workflow``, ``wiring``
3. sequential steps share the context                    ``sequence``
4. parallel steps work on contexts of their own          ``parallel``, ``isolation``
   and what they wrote is merged                         ``merging``
5. a failure stops the workflow and is thrown; a skip
   does not                                              ``results``
6. when the workflow has failed, the steps that
   succeeded are rolled back in reverse                  ``undo``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cmdx.declare.blueprint import Definition
from cmdx.declare.gates import compile_gate
from cmdx.exceptions import DefinitionError, ImplementationError, UnknownEntryError
from cmdx.inputs.collect import Fields
from cmdx.run.lifecycle import drive
from cmdx.task import ClassRegistry, Task
from cmdx.workflow.executors import executors
from cmdx.workflow.merging import Merger, mergers
from cmdx.workflow.sequence import run_steps
from cmdx.workflow.steps import Group, list_steps, steps_in
from cmdx.workflow.undo import settle_steps
from cmdx.workflow.wiring import Unwired, unwired_in, warn_about_wiring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from cmdx.declare.blueprint import Plan
    from cmdx.declare.gates import Ask
    from cmdx.declare.keywords import Keywords
    from cmdx.inputs.resolve import InputPlan
    from cmdx.workflow.executors import Executor

V_co = TypeVar("V_co", covariant=True)


class WorkflowDefinition(Definition):
    """What the body of one workflow says."""

    kind = "Workflow"
    task: type[Workflow[Any]]
    group = Group(())

    def compile(self) -> Plan:
        """Compile the plan and the gates of the groups."""
        if not self.group.steps:
            raise ImplementationError(
                self.task, "has no steps", "List tasks in `steps`."
            )
        plan = super().compile()
        plan.gates = self.compile_gates()
        plan.after_work = settle_steps
        if plan.awaiting_part is None and self.needs_event_loop():
            plan.awaiting_part = 'executor="asyncio"'
        return plan

    def compile_gates(self) -> dict[int, Ask | None]:
        """Make the gates of all groups ready, and check the names that groups use."""
        where = f"{self.task.__qualname__}.steps"
        for group in self.groups():
            check_names_of(self.task, group)
        return {
            id(group): compile_gate(where, self.task, group.if_, group.unless)
            for group in self.groups()
        }

    def groups(self) -> Iterator[Group]:
        """Yield all groups, those that run beside others included."""
        return groups_in(self.group)

    def needs_event_loop(self) -> bool:
        """Tell whether a group names the executor of asyncio."""
        return any(group.executor == "asyncio" for group in self.groups())

    def inputs(self) -> Iterator[InputPlan]:
        """Yield the own inputs, then those of the steps by the keys they read."""
        yield from super().inputs()
        for step in steps_in(self.group):
            for plan in step.task._cmdx_.inputs():
                yield plan._replace(key=step.map.get(plan.key, plan.key))

    def parts(self) -> Iterator[type[Task[Any]]]:
        """Yield the tasks that are steps."""
        return (step.task for step in steps_in(self.group))


class Workflow(Task[V_co]):
    """
    A task that runs other tasks, which ``steps`` lists.

    Its value is that of the last step, or None if that step did not run, was skipped,
    failed with ``on_failure="continue"``, or is a parallel group.
    """

    steps: ClassVar[tuple[Any, ...] | list[Any]] = ()
    """Tasks, workflows, ``step(...)``, ``group(...)`` and ``parallel(...)``."""
    executors: ClassVar[ClassRegistry[Executor]] = ClassRegistry(executors)
    """What runs the parallel groups of this class and its subclasses."""
    mergers: ClassVar[ClassRegistry[Merger]] = ClassRegistry(mergers)
    """What merges the contexts of parallel steps."""

    def __init_subclass__(cls, **keywords: Unpack[Keywords]) -> None:
        """Check the steps as soon as the class is made."""
        super().__init_subclass__(**keywords)
        if cls.work is not Workflow.work:
            message = (
                f"{cls.__qualname__} defines work, but the work of a workflow is its "
                "steps. List tasks in `steps`, or derive from Task."
            )
            raise DefinitionError(message)
        steps = cls.steps
        if not isinstance(steps, tuple | list):
            message = (
                f"{cls.__qualname__}.steps must be a tuple, got {steps!r}. "
                "Write `steps = (First, Second)`, and `steps = (First,)` for one, with "
                "a comma."
            )
            raise DefinitionError(message)
        if steps:
            cls._cmdx_.group = Group(list_steps(f"{cls.__qualname__}.steps", steps))
        warn_about_wiring(cls)

    def work(self) -> Any:
        """Run the steps."""
        steps = run_steps(self, self._cmdx_)
        return steps if self._cmdx_.awaits else drive(steps)

    @classmethod
    def wiring(cls) -> list[Unwired]:
        """Return each required input of a step that nothing before it provides."""
        inputs = Fields.of(cls).inputs.values()
        return list(unwired_in(cls._cmdx_.group, {field.key for field in inputs}))

    @classmethod
    def to_mermaid(cls) -> str:
        """Return the steps as a mermaid flowchart."""
        from cmdx.pictures import workflow_mermaid

        return workflow_mermaid(cls)


class InnerDefinition(WorkflowDefinition):
    """A group that runs beside others."""

    is_inner = True

    def compile_gates(self) -> dict[int, Ask | None]:
        """Return none: its gates are those of the workflow that lists it."""
        return {}


class Inner(Workflow[Any]):
    """A group that runs beside others, as a workflow of its own."""


Workflow._cmdx_ = WorkflowDefinition(Workflow)
Inner._cmdx_ = InnerDefinition(Inner)


def groups_in(group: Group) -> Iterator[Group]:
    """Yield *group* and all groups in it."""
    yield group
    for entry in group.steps:
        if isinstance(entry, Group):
            yield from groups_in(entry)
        elif issubclass(entry.task, Inner):
            yield from groups_in(entry.task._cmdx_.group)


def check_names_of(workflow: type[Workflow[Any]], group: Group) -> None:
    """Refuse an executor or a merger that nobody has registered."""
    for registry, name in (
        (workflow.executors, group.executor),
        (workflow.mergers, group.merge),
    ):
        if isinstance(name, str) and name not in registry:
            raise UnknownEntryError(registry.kind, name, registry, workflow)
