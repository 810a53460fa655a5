"""What may be listed in ``steps``, and what is refused with the class statement."""

from __future__ import annotations

import asyncio
import inspect
from typing import ClassVar

import pytest

from cmdx import (
    DefinitionError,
    ImplementationError,
    Task,
    Workflow,
    group,
    on_success,
    output,
    parallel,
    required,
    step,
)


class Note(Task[str]):
    """Writes its name into the context."""

    def work(self) -> str:
        name = type(self).__name__
        self.context["noted"] = [*self.context.get("noted", []), name]
        return name


class A(Note):
    pass


class B(Note):
    pass


class C(Note):
    pass


def noted_by(workflow, run):
    return run(workflow).context.get("noted", [])


# -- what may be listed ---------------------------------------------------------


def test_steps_are_run_in_the_order_they_are_listed(run):
    class Flow(Workflow[str]):
        steps = (A, B, C)

    assert noted_by(Flow, run) == ["A", "B", "C"]


def test_steps_may_be_a_list(run):
    class Flow(Workflow[str]):
        steps = [A, B]  # noqa: RUF012 -- what is asked

    assert noted_by(Flow, run) == ["A", "B"]


def test_a_task_may_be_listed_twice(run):
    class Flow(Workflow[str]):
        steps = (A, B, A)

    assert noted_by(Flow, run) == ["A", "B", "A"]


def test_a_workflow_is_a_step_like_any_other(run):
    class Inside(Workflow[str]):
        steps = (A, B)

    class Flow(Workflow[str]):
        steps = (Inside, C)

    assert noted_by(Flow, run) == ["A", "B", "C"]


def test_groups_and_steps_may_be_listed_in_groups(run):
    class Flow(Workflow[str]):
        steps = (group(A, group(step(B))), parallel(step(C)))

    assert noted_by(Flow, run) == ["A", "B", "C"]


def test_a_workflow_is_a_task():
    class Flow(Workflow[str]):
        steps = (A,)

    result = Flow.execute()

    assert issubclass(Flow, Task)
    assert result.type == "Workflow"
    assert result.task is Flow
    assert [each.type for each in result.chain] == ["Workflow", "Task"]


def test_an_invocation_of_a_workflow_is_run_once():
    class Flow(Workflow[str]):
        steps = (A,)

    assert Flow().run().context.noted == ["A"]


def test_hooks_of_a_workflow_run_as_those_of_a_task(run):
    class Flow(Workflow[str]):
        steps = (A,)

        @on_success
        def note(self) -> None:
            self.context.noted.append("hook")

    assert noted_by(Flow, run) == ["A", "hook"]


# -- inheritance ----------------------------------------------------------------


class Base(Workflow[str]):
    steps = (A, B)


def test_a_subclass_has_the_steps_of_its_parent(run):
    class Child(Base):
        pass

    assert noted_by(Child, run) == ["A", "B"]


def test_a_subclass_extends_the_steps_it_inherits(run):
    class Child(Base):
        steps = (*Base.steps, C)

    assert noted_by(Child, run) == ["A", "B", "C"]
    assert noted_by(Base, run) == ["A", "B"]


def test_a_subclass_may_list_steps_of_its_own(run):
    class Child(Base):
        steps = (C,)

    assert noted_by(Child, run) == ["C"]


def test_steps_of_a_mixin_count(run):
    class Mixin:
        steps = (C,)

    class Child(Mixin, Workflow[str]):
        pass

    assert noted_by(Child, run) == ["C"]


def test_changing_a_list_of_steps_later_changes_nothing():
    listed = [A]

    class Flow(Workflow[str]):
        steps = listed

    listed.append(B)

    assert Flow.execute().context.noted == ["A"]


# -- refusals -------------------------------------------------------------------


def test_a_workflow_that_defines_work_is_refused():
    with pytest.raises(DefinitionError, match=r"Flow defines work.*derive from Task"):

        class Flow(Workflow[None]):
            steps = (A,)

            def work(self) -> None: ...


def test_work_that_comes_from_another_base_is_refused():
    with pytest.raises(DefinitionError, match="Flow defines work"):

        class Flow(A, Workflow[str]):
            steps = (B,)


@pytest.mark.parametrize("wrong", [3, "A", None, lambda: None, object, Task[str]])
def test_what_is_no_step_is_refused_when_the_class_is_made(wrong):
    with pytest.raises(DefinitionError) as caught:
        type("Flow", (Workflow,), {"steps": (A, wrong)})

    message = str(caught.value)
    assert message.startswith("Flow.steps: a step is a task, a workflow, step(...), ")
    assert message.endswith(f"got {wrong!r}.")


@pytest.mark.parametrize("wrong", [(A, B), [A, B]])
def test_steps_in_brackets_are_told_to_be_a_group(wrong):
    with pytest.raises(DefinitionError) as caught:
        type("Flow", (Workflow,), {"steps": (A, wrong)})

    told = f"got {wrong!r}. List tasks like this: group(First, Second)."
    assert str(caught.value).endswith(told)


@pytest.mark.parametrize("listing", [group, parallel])
def test_a_list_of_steps_is_told_to_be_arguments(listing):
    with pytest.raises(DefinitionError) as caught:
        listing([A, B])

    told = f". List tasks like this: {listing.__name__}(First, Second)."
    assert str(caught.value).endswith(told)


@pytest.mark.parametrize("listing", [group, parallel])
def test_what_is_no_step_is_refused_by_a_group(listing):
    with pytest.raises(DefinitionError, match=r"\(\): a step is a task.*got 3"):
        listing(A, 3)


@pytest.mark.parametrize("listing", [group, parallel, step])
def test_an_instance_is_refused_with_the_class_to_list(listing):
    with pytest.raises(DefinitionError) as refused:
        listing(A())

    message = str(refused.value)
    assert f"{listing.__name__}(): a step is a class, got an instance of A." in message
    assert "List the class: `A`" in message


@pytest.mark.parametrize("listing", [group, parallel])
def test_a_group_without_steps_is_refused(listing):
    with pytest.raises(DefinitionError, match=r"lists no steps. Give it tasks"):
        listing()


@pytest.mark.parametrize("steps", [A, None, {A}, "A"], ids=repr)
def test_steps_that_are_no_tuple_are_refused(steps):
    with pytest.raises(DefinitionError, match=r"steps must be a tuple.*Write `steps ="):
        type("Flow", (Workflow,), {"steps": steps})


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"], ids=repr)
def test_workers_must_be_a_whole_number_from_one_on(workers):
    with pytest.raises(DefinitionError, match="a whole number, 1 or more"):
        parallel(A, workers=workers)


@pytest.mark.parametrize("option", ["executor", "merge"])
def test_executor_and_merge_are_names_or_callables(option):
    with pytest.raises(DefinitionError, match=f"{option} must be a name or callable"):
        parallel(A, **{option: 3})


async def awaiting(_first, _second):
    """Nobody awaits an executor or a merger."""


def too_many(_first, _second, _third):
    """An executor and a merger are given two arguments."""


def too_few(_first):
    """An executor and a merger are given two arguments."""


def choosy(_first, _second, *, order):
    """Nobody passes the keyword."""


@pytest.mark.parametrize("option", ["executor", "merge"])
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (awaiting, "is async"),
        (too_many, "takes 3 arguments"),
        (too_few, "too many positional arguments"),
        (choosy, "requires the keyword argument 'order'"),
    ],
)
def test_executors_and_mergers_that_could_not_be_called_are_refused(option, call, said):
    with pytest.raises(DefinitionError, match=said):
        parallel(A, **{option: call})


@pytest.mark.parametrize("registry", [Workflow.executors, Workflow.mergers])
def test_entries_that_would_have_to_be_awaited_are_not_registered(registry):
    with pytest.raises(DefinitionError, match="is async"):
        registry.register("awaiting", awaiting)

    assert "awaiting" not in registry


def test_only_tasks_can_be_listed_under_other_names():
    with pytest.raises(DefinitionError, match=r"step\(\): a step is a task"):
        step(group(A))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": {"id": 3}}, "map must map names of inputs to keys"),
        ({"map": {3: "id"}}, "map must map names of inputs to keys"),
        ({"into": ""}, "into must be the name of a key"),
        ({"into": 3}, "into must be the name of a key"),
        ({"on_failure": "ignore"}, 'on_failure must be "stop" or "continue"'),
        ({"on_failure": True}, 'on_failure must be "stop" or "continue"'),
    ],
    ids=repr,
)
def test_wrong_options_of_a_step_are_refused(options, message):
    with pytest.raises(DefinitionError, match=message):
        step(A, **options)


class Ask(Task[None]):
    order_id: int
    number: int = required(alias="nr")
    hint: str | None = None

    def work(self) -> None: ...


class Asks(Workflow[None]):
    order_id: int = required()
    count: int = 1
    steps = (step(Ask, map={"nr": "count"}),)


class Open(Workflow[None]):
    order_id: int = required()
    steps = (A,)


@pytest.mark.parametrize(
    ("task", "name", "words"),
    [
        (Ask, "ordr_id", "which is no input of Ask; did you mean 'order_id'?"),
        (Ask, "number", "Valid inputs: order_id, nr, hint."),
        (Asks, "cuont", "Valid inputs: order_id, count, hint."),
    ],
)
def test_a_name_for_an_input_that_a_task_does_not_have_is_refused(task, name, words):
    with pytest.raises(
        DefinitionError, match=rf"step\(\): map names '{name}'"
    ) as error:
        step(task, map={"order_id": "id", name: "key"})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (Ask, "nr"),
        (Ask, "hint"),
        (Asks, "count"),
        (Asks, "hint"),
        (A, "x"),
        (Open, "x"),
    ],
)
def test_a_name_that_a_task_or_its_steps_can_read_is_taken(task, name):
    assert step(task, map={name: "key"}).map == {name: "key"}


@pytest.mark.parametrize(
    ("listing", "keyword", "said"),
    [
        (step, "inot", "did you mean 'into'? Valid options: map, into, on_failure."),
        (step, "if_", "put it in a group: `group(Task, if_=...)`."),
        (step, "unless", "put it in a group: `group(Task, unless=...)`."),
        (step, "continue_on_failure", 'use `on_failure="continue"`.'),
        (group, "unles", "did you mean 'unless'? Valid options: if_, unless, contin"),
        (group, "workers", "use `parallel(...)` for steps that run at the same time."),
        (group, "on_failure", "use `continue_on_failure=True`"),
        (parallel, "max_workers", "did you mean 'workers'? Valid options: workers, e"),
        (parallel, "when", "use `if_`."),
        (parallel, "colour", "has no option 'colour'. Valid options: workers, exec"),
    ],
)
def test_an_unknown_option_is_refused_with_the_right_one(listing, keyword, said):
    with pytest.raises(DefinitionError) as refused:
        listing(A, **{keyword: True})

    message = str(refused.value)
    assert message.startswith(f"{listing.__name__}() has no option {keyword!r}")
    assert said in message


@pytest.mark.parametrize(
    ("listing", "options"),
    [
        (step, "map into on_failure"),
        (group, "if_ unless continue_on_failure"),
        (parallel, "workers executor merge if_ unless continue_on_failure"),
    ],
)
def test_the_options_can_be_read_from_the_signature(listing, options):
    parameters = inspect.signature(listing).parameters.values()
    shown = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]

    assert shown == options.split()


# -- no steps -------------------------------------------------------------------


ENTRY_POINTS = [
    lambda task: task.execute(),
    lambda task: task.execute_or_raise(),
    lambda task: task().run(),
    lambda task: asyncio.run(task.aexecute()),
    lambda task: asyncio.run(task.aexecute_or_raise()),
]


@pytest.mark.parametrize("enter", ENTRY_POINTS)
def test_a_workflow_without_steps_cannot_run(enter):
    class Flow(Workflow[None]):
        pass

    with pytest.raises(ImplementationError, match=r"Flow has no steps\. List tasks in"):
        enter(Flow)


def test_a_base_without_steps_may_be_derived_from():
    class Application(Workflow[str], tags=("shop",)):
        pass

    class Flow(Application):
        steps = (A,)

    assert Flow.execute().tags == ("shop",)


def test_removed_steps_are_no_steps():
    class Child(Base):
        steps = ()

    with pytest.raises(ImplementationError, match="Child has no steps"):
        Child.execute()


# -- names that workflows use -----------------------------------------------------

USED = ["steps", "executors", "mergers", "wiring", "to_mermaid"]


@pytest.mark.parametrize("name", [*USED, "context", "work", "execute"])
@pytest.mark.parametrize("values", [(), (1,), ([A],), (output(),)])
def test_an_input_cannot_have_a_name_that_workflows_use(name, values):
    body = {"steps": (A,), "__annotations__": {name: "object"}}
    body |= dict.fromkeys([name], *values) if values else {}

    with pytest.raises(DefinitionError, match=rf"{name}.*every workflow has.*alias="):
        type("Flow", (Workflow,), body)


@pytest.mark.parametrize("name", USED)
def test_an_inherited_input_cannot_have_such_a_name_either(name):
    parent = type("Parent", (Task,), {"__annotations__": {name: "object"}})

    with pytest.raises(DefinitionError, match=rf"Flow.{name}.*every workflow has"):
        type("Flow", (parent, Workflow), {"steps": (A,)})


def test_a_task_may_have_inputs_with_the_names_that_workflows_use(run):
    body = {
        "__annotations__": dict.fromkeys(USED, int),
        "work": lambda task: task.steps,
    }

    assert run(type("Plain", (Task,), body), **dict.fromkeys(USED, 7)).value == 7


def test_callers_may_use_such_a_name(run):
    class Flow(Workflow[str]):
        pools: int = required(alias="executors")
        steps = (A,)

    assert run(Flow, executors=3).success


def test_steps_may_be_annotated_as_a_class_variable(run):
    class Flow(Workflow[str]):
        steps: ClassVar[tuple[type[Task[str]], ...]] = (A, B)

    assert noted_by(Flow, run) == ["A", "B"]
