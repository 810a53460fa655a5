"""Mistakes in a class are found when it is made or first used, not in production."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
from dataclasses import dataclass
from functools import partial

import attrs
import pytest

from cmdx import (
    Context,
    DefinitionError,
    Task,
    UnknownEntryError,
    Workflow,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    middleware,
    on_complete,
    on_failed,
    on_interrupted,
    on_ko,
    on_ok,
    on_skipped,
    on_success,
    parallel,
    required,
    retry_on,
)
from cmdx.middlewares import Deadline

HOOKS = [
    before_execution,
    before_validation,
    around_execution,
    after_execution,
    on_complete,
    on_interrupted,
    on_success,
    on_skipped,
    on_failed,
    on_ok,
    on_ko,
]


# -- work ---------------------------------------------------------------------------


def yields(self):
    yield self


async def yields_later(self):
    yield self


def takes_an_input(self, name):
    return self, name


def takes_a_keyword(self, *, name):
    return self, name


def takes_nothing():
    return None


@pytest.mark.parametrize("work", [yields, yields_later])
def test_a_work_with_a_yield_is_refused_when_the_class_is_made(work):
    with pytest.raises(DefinitionError, match=r"Wrong\.work contains a yield.*Return"):
        type("Wrong", (Task,), {"work": work})


@pytest.mark.parametrize("work", [takes_an_input, takes_a_keyword, takes_nothing])
def test_a_work_that_cannot_be_called_is_refused_when_the_class_is_made(work):
    with pytest.raises(DefinitionError) as refused:
        type("Wrong", (Task,), {"work": work})

    message = str(refused.value)
    assert "Wrong.work is called without arguments" in message
    assert "`name: str`" in message


@pytest.mark.parametrize(
    "work",
    [
        lambda self: self,
        lambda self, limit=3: (self, limit),
        lambda *arguments: arguments,
        lambda self, **keywords: (self, keywords),
        staticmethod(lambda: 1),
        classmethod(lambda cls: cls),
        staticmethod(partial(int, 3)),
    ],
    ids=["self", "default", "any", "keywords", "static", "class", "partial"],
)
def test_a_work_that_can_be_called_is_taken(work):
    assert type("Right", (Task,), {"work": work}).execute().success


def test_a_work_is_checked_where_it_is_defined_and_not_where_it_is_inherited():
    class Parent(Task[None]):
        def work(self):
            return None

    with pytest.raises(DefinitionError, match=r"Child\.work"):
        type("Child", (Parent,), {"work": takes_an_input})


# -- other decorators ---------------------------------------------------------------


@pytest.mark.parametrize("decorate", [dataclass, attrs.define(slots=False)])
def test_a_task_that_is_made_a_dataclass_is_refused_when_it_is_used(decorate):
    @decorate
    class Wrong(Task[None]):
        name: str = required()

        def work(self):
            return None

    for use in (Wrong.execute, lambda name: Wrong(name=name).run()):
        with pytest.raises(DefinitionError, match="Remove the decorator"):
            use(name="Ada")


@pytest.mark.parametrize("decorator", HOOKS, ids=repr)
@pytest.mark.parametrize("gated", [False, True])
def test_a_hook_on_a_class_is_refused(decorator, gated):
    decorate = decorator(if_=True) if gated else decorator

    with pytest.raises(DefinitionError, match=rf"@{decorator.event} decorates methods"):

        @decorate
        class Wrong(Task[None]):
            pass


@pytest.mark.parametrize("given", [None, 3, "archive", [print]], ids=repr)
def test_a_hook_on_what_cannot_be_called_is_refused(given):
    with pytest.raises(DefinitionError, match="Put it above a `def`"):
        on_success(if_=True)(given)


@pytest.mark.parametrize("decorator", HOOKS, ids=repr)
def test_an_unknown_option_of_a_callback_is_refused_with_the_right_one(decorator):
    with pytest.raises(DefinitionError) as refused:
        decorator(iff="is_live")

    message = str(refused.value)
    assert f"{decorator.event} has no option 'iff'; did you mean 'if_'?" in message
    assert "Valid options: if_, unless." in message


@pytest.mark.parametrize("word", ["when", "condition"])
def test_other_words_for_a_gate_lead_to_it(word):
    with pytest.raises(DefinitionError, match="use `if_`"):
        on_success(**{word: True})


# -- middlewares --------------------------------------------------------------------


def test_an_unknown_option_of_middleware_is_refused_with_the_right_one():
    with pytest.raises(DefinitionError) as refused:
        middleware(yields, unles=True)

    message = str(refused.value)
    assert "middleware() has no option 'unles'; did you mean 'unless'?" in message


def test_middleware_above_a_class_needs_parentheses():
    with pytest.raises(
        DefinitionError, match=r"the task class Step.*`@middleware\(\.\.\.\)`"
    ):
        middleware(Step)


class NeedsSeconds:
    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, task):
        yield task


@pytest.mark.parametrize("given", [Deadline, NeedsSeconds])
def test_a_middleware_class_that_needs_arguments_asks_for_an_instance(given):
    with pytest.raises(DefinitionError) as refused:
        middleware(given)

    name = given.__name__
    message = str(refused.value)
    assert f"@middleware cannot create a {name} without arguments" in message
    assert f"Give an instance: `@middleware({name}(...))`." in message


def two_parameters(task, next):  # noqa: A002 -- as other libraries call it
    yield task, next


def a_needed_keyword(task, *, name):
    yield task, name


class TwoParameters:
    def __call__(self, task, call_next):
        yield task, call_next


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (two_parameters, "two_parameters .* missing a required argument: 'next'"),
        (takes_nothing, "takes_nothing .* too many positional arguments"),
        (a_needed_keyword, "a_needed_keyword .* missing a required .*argument: 'name'"),
        (TwoParameters(), "TwoParameters .* missing a required argument: 'call_next'"),
        (TwoParameters, "TwoParameters .* missing a required argument: 'call_next'"),
    ],
)
def test_a_middleware_with_other_parameters_is_refused_when_it_is_declared(given, said):
    with pytest.raises(DefinitionError, match=said) as refused:
        middleware(given)

    assert "one `yield` where the task runs" in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [lambda task, retries=3: iter((task, retries)), lambda *given: iter(given), iter],
    ids=["default", "any", "builtin"],
)
def test_a_middleware_that_can_be_called_with_the_task_is_taken(given):
    assert middleware(given)


# -- names that nobody knows --------------------------------------------------------


class Step(Task[None]):
    def work(self):
        self.context.ran = True


@pytest.mark.parametrize("option", ["merge", "executor"])
def test_an_unknown_merger_or_executor_is_refused_before_any_step(option):
    context = Context()

    class Flow(Workflow[None]):
        steps = (Step, parallel(Step, Step, **{option: "lats"}))

    for use in (Flow, Flow.execute, lambda given: asyncio.run(Flow.aexecute(given))):
        with pytest.raises(UnknownEntryError, match="'lats'"):
            use(context)
    assert "ran" not in context


@pytest.mark.parametrize("option", ["merge", "executor"])
def test_an_unknown_name_in_a_group_beside_others_is_refused_too(option):
    class Flow(Workflow[None]):
        steps = (parallel(parallel(Step, Step, **{option: "lats"}), Step),)

    with pytest.raises(UnknownEntryError, match="'lats'"):
        Flow.execute()


def in_turn(jobs, _workers):
    for job in jobs:
        job()


@pytest.mark.parametrize(
    ("option", "registry", "entry"),
    [
        ("executor", "executors", in_turn),
        ("merge", "mergers", lambda *_: None),
    ],
)
def test_a_name_may_be_registered_after_it_was_refused(option, registry, entry):
    class Flow(Workflow[None]):
        steps = (
            parallel(Step, **{option: "mine"}),
            parallel(parallel(Step, Step, **{option: "mine"}), Step),
        )

    with pytest.raises(UnknownEntryError):
        Flow.execute()
    getattr(Flow, registry).register("mine", entry)
    assert Flow.execute().success
    getattr(Flow, registry).deregister("mine")
    with pytest.raises(UnknownEntryError):
        Flow.execute()


async def later(_attempt):
    return 1.0


def greedy(_attempt, _delay, _previous, _more):
    return 1.0


def choosy(_attempt, *, factor):
    return factor


@pytest.mark.parametrize(
    ("jitter", "said"),
    [
        (later, "is async"),
        (greedy, "takes 4 arguments"),
        (choosy, "requires the keyword argument 'factor'"),
    ],
)
def test_a_jitter_that_could_not_be_called_is_refused_wherever_it_is_named(
    jitter, said
):
    with pytest.raises(DefinitionError, match=said):
        retry_on(TimeoutError, jitter=jitter)
    with pytest.raises(DefinitionError, match=f"the retrier 'odd'.*{said}"):
        Step.retriers.register("odd", jitter)

    @retry_on(TimeoutError, jitter="odd")
    class Wrong(Step):
        odd = staticmethod(jitter)

    with pytest.raises(DefinitionError, match=said):
        Wrong.execute()


@pytest.mark.parametrize("fields", [("nonsense",), ("contxt.order",), "value", [3]])
def test_log_fields_that_no_result_has_are_refused_when_the_class_is_made(fields):
    with pytest.raises(DefinitionError, match="log_fields must be attributes of a res"):
        type("Wrong", (Task,), {}, log_fields=fields)


# -- inputs that nobody declared ----------------------------------------------------


class AsksForAnother(Task[bool]):
    name: str
    greeting: str = "Hello"

    def work(self):
        return self.given("nmae")


def test_asking_for_an_unknown_input_lists_the_inputs():
    reason = AsksForAnother.execute(name="Ada").reason

    assert "AsksForAnother has no input 'nmae'; did you mean 'name'?" in reason
    assert reason.endswith("Valid inputs: name, greeting.")


def test_asking_a_task_without_inputs_for_one_says_that_it_has_none():
    class Asks(Task[bool]):
        def work(self):
            return self.given("name")

    assert Asks.execute().reason.endswith("has no input 'name'. It declares no inputs.")


# -- looking at a class -------------------------------------------------------------


class Abstract(Task[None]):
    """Has no work, and may still be looked at."""

    name: str


class Greet(Abstract):
    """Greet somebody."""

    greeting: str = "Hello"
    name: str = required(alias="who")

    def work(self):
        return None


class Flow(Workflow[None]):
    """Greet in a workflow."""

    steps = (Step,)


class Endless(Workflow[None]):
    """Lists no steps yet."""


EVERY_CLASS = pytest.mark.parametrize(
    "task", [Task, Workflow, Abstract, Greet, Flow, Endless]
)


@EVERY_CLASS
def test_help_works_for_every_class(task):
    text = pydoc.render_doc(task)

    assert task.__name__ in text
    assert inspect.getdoc(task).splitlines()[0] in text


@EVERY_CLASS
def test_the_members_of_every_class_can_be_listed(task):
    members = dict(inspect.getmembers(task))

    assert {"execute", "aexecute", "retry_policy", "retriers"} <= members.keys()
    assert callable(members["execute"])


def test_the_members_of_an_invocation_can_be_listed():
    members = dict(inspect.getmembers(Greet(who="Ada")))

    assert {"context", "errors", "metadata", "logger", "tid"} <= members.keys()


def test_the_signature_of_a_class_shows_its_inputs():
    parameters = inspect.signature(Greet).parameters

    assert list(parameters) == ["who", "greeting"]
    assert {each.kind for each in parameters.values()} == {
        inspect.Parameter.KEYWORD_ONLY
    }
    assert parameters["who"].default is inspect.Parameter.empty
    assert parameters["greeting"].default == "Hello"
    assert parameters["who"].annotation in ("str", str)


@EVERY_CLASS
def test_every_class_has_a_signature(task):
    assert inspect.signature(task)


@EVERY_CLASS
@pytest.mark.parametrize(
    "name", ["execute", "execute_or_raise", "aexecute", "aexecute_or_raise", "check"]
)
def test_what_runs_a_class_shows_its_inputs_too(task, name):
    method = getattr(task, name)

    assert inspect.signature(method) == inspect.signature(task)
    assert inspect.iscoroutinefunction(method) == name.startswith("a")
    assert inspect.getdoc(method) == inspect.getdoc(vars(Task)[name].function)


def test_a_subclass_shows_inputs_of_its_own():
    class Shout(Greet):
        volume: int = 3

    inspect.signature(Greet.execute)

    assert list(inspect.signature(Shout.execute).parameters) == [
        "who", "greeting", "volume",
    ]  # fmt: skip


def test_the_only_private_name_of_ours_on_a_class_is_cmdx():
    ours = {name for name in vars(Greet) if name.startswith("_") and name[1] != "_"}

    assert ours == {"_cmdx_"}


# -- running ------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["execute", "execute_or_raise", "check"])
def test_a_class_method_of_an_invocation_names_the_cure_whatever_it_is_given(call):
    class Greet(Task[str]):
        name: str

        def work(self) -> str:
            return self.name

    with pytest.raises(TypeError, match="This instance already has its inputs"):
        getattr(Greet(name="Ada"), call)(name="Ada")


@pytest.mark.parametrize("call", ["execute", "execute_or_raise", "check"])
def test_an_input_may_be_called_cls(call):
    class Book(Task[str]):
        cls: str

        def work(self) -> str:
            return self.cls

    assert str(inspect.signature(Book.execute)) == "(*, cls: str)"
    assert Book(cls="second").run().value == "second"
    getattr(Book, call)(cls="second")
