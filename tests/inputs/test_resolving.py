"""How the inputs of a run get their values, and what becomes of problems."""

from __future__ import annotations

import asyncio
from collections import ChainMap, OrderedDict
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from cmdx import (
    Context,
    DefinitionError,
    Fault,
    Task,
    after_execution,
    before_execution,
    before_validation,
    middleware,
    on_failed,
    on_ko,
    optional,
    output,
    required,
    retry_on,
)
from cmdx.queue import Queue


def execute(task, *source, **inputs):
    return task.execute(*source, **inputs)


def execute_or_raise(task, *source, **inputs):
    return task.execute_or_raise(*source, **inputs)


def aexecute(task, *source, **inputs):
    return asyncio.run(task.aexecute(*source, **inputs))


def aexecute_or_raise(task, *source, **inputs):
    return asyncio.run(task.aexecute_or_raise(*source, **inputs))


def invoke(task, *source, **inputs):
    return task(*source, **inputs).run()


every_entry = pytest.mark.parametrize(
    "run", [execute, execute_or_raise, aexecute, aexecute_or_raise, invoke]
)


class Order(Task[tuple]):
    """Three inputs, one of them optional."""

    number: int
    name: str = required(presence=True)
    currency: str = "EUR"

    def work(self) -> tuple:
        return self.number, self.name, self.currency


class Bare(Task[None]):
    """Has a context, and nothing else."""

    def work(self) -> None:
        pass


# -- once per run ----------------------------------------------------------------------


def test_inputs_are_resolved_once_whatever_the_retries(instant):
    calls = []

    def note(name, value):
        calls.append(name)
        return value

    @retry_on(LookupError, limit=3)
    class Flaky(Task[list]):
        text: int = required(coerce=lambda value: note("coerce", int(value)))
        made: list = optional(factory=lambda: note("factory", []))
        found: int = required(source=lambda: note("source", 1))
        changed: int = required(transform=lambda value: note("transform", value))
        checked: int = required(validate=lambda _: note("validate", None))

        def work(self):
            self.made.append(self.attempt)
            if self.attempt < 3:
                raise LookupError
            return self.made

    result = Flaky.execute(text="1", changed=1, checked=1)

    assert result.value == [0, 1, 2, 3]
    assert calls == ["coerce", "factory", "source", "transform", "validate"]
    assert len(instant.pauses) == 3


def test_problems_are_found_once_and_not_retried(instant):
    calls = []

    @retry_on(Exception, limit=3)
    class Flaky(Task[None]):
        number: int = required(coerce=lambda value: calls.append(value) or int(value))

        def work(self):
            calls.append("work")

    result = Flaky.execute(number="x")

    assert result.failed
    assert result.retries == 0
    assert result.attempts == ()
    assert result.stopped is None
    assert calls == ["x"]
    assert instant.pauses == []


def test_each_run_resolves_anew():
    numbers = iter([1, 2])

    class Tell(Task[int]):
        number: int = optional(factory=lambda: next(numbers))

        def work(self):
            return self.number

    assert [Tell.execute().value, Tell.execute().value] == [1, 2]


# -- values live on the instance -------------------------------------------------------


def test_values_live_on_the_instance_and_the_context_keeps_what_was_given():
    class Tell(Task[int]):
        number: int
        currency: str = "EUR"

        def work(self):
            assert vars(self)["number"] == self.number
            return self.number

    result = Tell.execute(number="7")

    assert result.value == 7
    assert result.context.to_dict() == {"number": "7"}
    assert Tell.currency == "EUR"


def test_work_may_change_its_inputs_without_changing_anybody_elses():
    given = {"tags": ["a"]}

    class Tell(Task[list]):
        tags: list[str]

        def work(self):
            self.tags.append("b")
            return self.tags

    assert Tell.execute(given).value == ["a", "b"]
    assert given == {"tags": ["a"]}
    assert Tell.execute(given).value == ["a", "b"]


# -- all problems at once --------------------------------------------------------------


def test_all_problems_are_reported_at_once():
    result = Order.execute({"number": "x", "name": " ", "currency": []})

    assert result.errors.to_dict() == {
        "number": ["must be a whole number"],
        "name": ["must be present"],
        "currency": ["must be text"],
    }
    assert [problem.code for problem in result.errors] == ["int", "presence", "str"]


def test_the_reason_of_the_failure_tells_all_problems():
    result = Order.execute()

    assert result.failed
    assert result.reason == "number is required. name is required"
    assert result.reason == str(result.errors)
    assert result.cause is None


def test_work_is_not_called_while_an_input_is_wrong():
    calls = []

    class Tell(Task[None]):
        number: int

        def work(self):
            calls.append(self.number)

    Tell.execute(number="x")
    assert calls == []
    Tell.execute(number="1")
    assert calls == [1]


def test_all_rules_of_one_input_are_reported_at_once():
    class Tell(Task[None]):
        name: str = required(
            min_length=5, pattern="[a-z]+", none_of=["42"], one_of=["hello"]
        )

        def work(self):
            pass

    assert sorted(problem.code for problem in Tell.execute(name="42").errors) == [
        "min_length", "none_of", "one_of", "pattern",
    ]  # fmt: skip


def test_a_failure_of_the_inputs_raises_a_fault_that_knows_them():
    with pytest.raises(Fault, match="number is required") as caught:
        Order.execute_or_raise(name="Ada")

    assert caught.value.result.errors["number"] == ["is required"]
    assert type(caught.value) is Order.Fault


@attrs.frozen
class Line:
    zip: str
    count: int = 1


@attrs.frozen
class Address:
    lines: list[Line]
    by_name: dict[str, Line] = attrs.field(factory=dict)


def test_problems_inside_a_value_have_a_path():
    class Ship(Task[None]):
        address: Address
        number: int

        def work(self):
            pass

    given = {
        "lines": [{"zip": "1"}, {"count": "x"}, 3],
        "by_name": {"home": {"zip": []}},
    }
    result = Ship.execute({"address": given, "number": "x"})

    assert [(problem.key, problem.code) for problem in result.errors] == [
        ("address.lines[1].zip", "required"),
        ("address.lines[1].count", "int"),
        ("address.lines[2]", "object"),
        ("address.by_name[home].zip", "str"),
        ("number", "int"),
    ]


# -- None ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "code"),
    [
        (int, "none"),
        (str, "none"),
        (list[int], "none"),
        (int | str, "none"),
        (int | None, None),
        (Any, None),
        (object, None),
        (None, None),
    ],
)
def test_none_is_refused_unless_the_annotation_admits_it(problems, annotation, code):
    assert problems(annotation, None) == ([] if code is None else [("x", code)])


def test_a_nullable_required_input_must_still_be_given():
    class Tell(Task[Any]):
        number: int | None

        def work(self):
            return self.number

    assert Tell.execute(number=None).value is None
    assert Tell.execute().errors.to_dict() == {"number": ["is required"]}


def test_none_for_an_optional_input_that_does_not_admit_it_takes_the_default():
    class Tell(Task[Any]):
        number: int = 3
        numbers: list[int] = optional(factory=lambda: [1])

        def work(self):
            return self.number, self.numbers

    assert Tell.execute(number=None, numbers=None).value == (3, [1])


def test_none_for_an_optional_input_that_admits_it_is_none():
    class Tell(Task[Any]):
        number: int | None = 3

        def work(self):
            return self.number

    assert Tell.execute().value == 3
    assert Tell.execute(number=None).value is None


def test_none_is_not_transformed_or_validated_where_it_is_admitted():
    class Tell(Task[Any]):
        name: str | None = optional(default=None, transform=str.strip, min_length=3)

        def work(self):
            return self.name

    assert Tell.execute().value is None
    assert Tell.execute(name=None).value is None
    assert Tell.execute(name=" Ada ").value == "Ada"
    assert Tell.execute(name=" A ").failed


@pytest.mark.parametrize("value", [False, 0, 0.0, "", [], ()])
def test_what_is_false_is_not_none(taking, value):
    assert taking(Any).execute(x=value).value == value


# -- given -----------------------------------------------------------------------------


class Given(Task[dict]):
    needed: int | None
    number: int | None = None
    text: str = optional(default="a", alias="words")

    def work(self) -> dict:
        return {name: self.given(name) for name in ("needed", "number", "text")}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"needed": None}, {"needed": True, "number": False, "text": False}),
        (
            {"needed": 1, "number": None},
            {"needed": True, "number": True, "text": False},
        ),
        ({"needed": 1, "words": None}, {"needed": True, "number": False, "text": True}),
        ({"needed": 1, "words": "b"}, {"needed": True, "number": False, "text": True}),
    ],
)
@pytest.mark.parametrize("wrap", [dict, Context], ids=["keywords", "context"])
def test_given_tells_not_given_from_none(wrap, inputs, expected):
    result = Given.execute(**inputs) if wrap is dict else Given.execute(Context(inputs))

    assert result.value == expected


@pytest.mark.parametrize("found", ["Ada", None])
def test_what_a_source_returns_was_not_given(found):
    class Greet(Task[bool]):
        who: str | None = required(source=lambda: found)

        def work(self) -> bool:
            return self.given("who")

    assert Greet.execute().value is False
    assert Greet.execute({"who": "Grace"}).value is False  # it is ignored


def test_given_tells_the_same_before_inputs_are_resolved():
    told = {}

    class Tell(Task[None]):
        number: int = 3
        text: str = "a"

        @before_validation
        def ask(self):
            told.update({name: self.given(name) for name in ("number", "text")})

        def work(self):
            pass

    Tell.execute(number=4)
    assert told == {"number": True, "text": False}


def test_given_is_not_changed_by_what_work_does():
    class Tell(Task[bool]):
        number: int = 3

        def work(self):
            self.number = 4
            self.context.number = 5
            return self.given("number")

    assert Tell.execute().value is False


def test_given_is_false_for_what_a_gate_left_out():
    class Tell(Task[bool]):
        number: int = required(if_=False)

        def work(self):
            return self.given("number")

    assert Tell.execute().value is False
    assert Tell.execute(number=1).value is True


def test_given_refuses_a_name_that_is_no_input():
    class Tell(Task[None]):
        number: int = 3
        made: int = output()

        def work(self):
            self.given("nubmer")

    result = Tell.execute()

    assert isinstance(result.cause, DefinitionError)
    assert "'nubmer'; did you mean 'number'" in result.reason


# -- keywords, mappings, contexts ------------------------------------------------------


@every_entry
def test_an_undeclared_keyword_is_refused_with_a_suggestion(run):
    with pytest.raises(
        TypeError, match="unexpected input 'nmae'; did you mean 'name'"
    ) as caught:
        run(Order, number=1, nmae="Ada")

    assert "currency, name, number" in str(caught.value)


@every_entry
def test_an_undeclared_keyword_beside_a_source_is_refused_too(run):
    with pytest.raises(TypeError, match="unexpected input 'nmae'"):
        run(Order, {"number": 1}, nmae="Ada")


def test_a_keyword_that_is_near_nothing_is_refused_without_a_suggestion():
    with pytest.raises(TypeError, match="unexpected input 'zzz'") as caught:
        Order.execute(number=1, name="Ada", zzz=1)

    assert "did you mean" not in str(caught.value)


def test_a_class_that_declares_only_outputs_takes_any_keyword():
    class Make(Task[None]):
        made: int = output()

        def work(self):
            self.made = self.context.number

    assert Make.execute(number=3).context.made == 3


@every_entry
@pytest.mark.parametrize(
    "wrap",
    [
        dict,
        OrderedDict,
        MappingProxyType,
        lambda values: ChainMap({}, values),
        Context,
        Bare.execute,
        Bare,
    ],
    ids=["dict", "OrderedDict", "proxy", "ChainMap", "Context", "Result", "Task"],
)
def test_extra_keys_of_a_source_are_fine(run, wrap):
    source = wrap({"number": "7", "name": "Ada", "nmae": 1, "zzz": 2})

    result = run(Order, source)

    assert result.value == (7, "Ada", "EUR")
    assert result.context["zzz"] == 2


def test_keywords_win_over_the_mapping_beside_them():
    assert Order.execute({"number": 1, "name": "Ada"}, number=2).value[0] == 2


def test_a_mapping_is_copied():
    given = {"number": "7", "name": "Ada"}

    class Change(Order):
        def work(self):
            self.context.number = 8

    Change.execute(given)

    assert given == {"number": "7", "name": "Ada"}


def test_a_context_is_shared_and_inputs_are_taken_from_it():
    shared = Context(number="7", name="Ada", other=1)

    class Change(Order):
        def work(self):
            self.context.seen = self.number

    result = Change.execute(shared)

    assert result.context is shared
    assert shared.seen == 7
    assert shared.number == "7"


def test_what_a_task_leaves_in_a_context_is_an_input_of_the_next():
    class Make(Task[None]):
        number: int = output()
        name: str = output()

        def work(self):
            self.number, self.name = 7, "Ada"

    made = Make.execute()

    assert Order.execute(made).value == (7, "Ada", "EUR")
    assert Order.execute(made.context).value == (7, "Ada", "EUR")


def test_a_mapping_with_keys_that_are_no_text_is_taken():
    assert Order.execute({1: 2, None: 3, "number": 1, "name": "a"}).success


@pytest.mark.parametrize(
    "key", ["items", "get", "keys", "copy", "__class__", "_values"]
)
def test_a_context_key_named_like_a_method_is_an_input_like_any_other(key):
    class Read(Task[int]):
        number: int = required(alias=key)

        def work(self):
            return self.number

    assert Read.execute({key: "7"}).value == 7
    assert Read.execute(Context({key: "7"})).value == 7
    assert Read.execute({}).errors.to_dict() == {key: ["is required"]}


def test_a_hook_before_may_provide_an_input_through_the_context():
    class Late(Order):
        @before_validation
        def provide(self):
            self.context.name = "Grace"

    assert Late.execute(number=1).value == (1, "Grace", "EUR")


# -- sources and defaults that fail ----------------------------------------------------


class Broken(Exception):
    pass


def broken(*_):
    raise Broken("no answer")


@pytest.mark.parametrize(
    "field",
    [
        required(source=broken),
        required(source="find"),
        optional(default=None, source=broken),
        optional(factory=broken),
        required(if_=broken),
        required(unless="find"),
    ],
    ids=["source", "method", "optional", "factory", "if_", "unless"],
)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_failing_source_default_or_gate_is_a_failed_result_and_not_retried(
    instant, field, asynchronous
):
    calls = []

    @retry_on(Broken, limit=3)
    class Tell(Task[None]):
        number: int | None = field

        def find(self):
            return broken()

        def work(self):
            calls.append("work")

    result = aexecute(Tell) if asynchronous else Tell.execute()

    assert result.failed
    assert type(result.cause) is Broken
    assert result.reason == "[Broken] no answer"
    assert result.retries == 0
    assert calls == []
    assert instant.pauses == []
    with pytest.raises(Broken):
        Tell.execute_or_raise()


@pytest.mark.parametrize("option", ["coerce", "transform"])
def test_whatever_coerce_or_transform_raises_makes_the_value_invalid(option):
    class Tell(Task[None]):
        number: int = required(**{option: broken})

        def work(self):
            pass

    result = Tell.execute(number=3)

    assert result.reason == "number is invalid"
    assert result.cause is None


def test_a_rule_that_is_broken_itself_fails_the_task():
    class Tell(Task[None]):
        number: int = required(validate=broken)

        def work(self):
            pass

    result = Tell.execute(number=3)

    assert result.failed
    assert type(result.cause) is Broken


def test_a_source_may_halt():
    class Tell(Task[None]):
        number: int = required(source="find")

        def find(self):
            self.skip("nothing to do", code=7)

        def work(self):
            raise AssertionError

    result = Tell.execute()

    assert result.skipped
    assert result.reason == "nothing to do"
    assert result.metadata == {"code": 7}


def test_a_source_that_needs_an_input_that_is_wrong_does_not_hide_the_problem():
    class Load(Task[None]):
        number: int
        name: str = required()
        order: str = required(source="find")

        def find(self):
            return f"order {self.number} of {self.name}"

        def work(self):
            pass

    result = Load.execute(number="x")

    assert result.failed
    assert result.errors.to_dict() == {
        "number": ["must be a whole number"],
        "name": ["is required"],
    }
    assert result.reason == str(result.errors)
    assert result.cause is None


def test_a_source_is_asked_once_and_in_the_order_of_the_fields():
    asked = []

    class Load(Task[None]):
        first: int = required(source=lambda: asked.append("first") or 1)
        second: int = required(source=lambda task: asked.append(task.first) or 2)

        def work(self):
            pass

    assert Load.execute().success
    assert asked == ["first", 1]


# -- defaults are never shared ---------------------------------------------------------


@pytest.mark.parametrize("factory", [list, dict, set, lambda: [1], lambda _: [1]])
def test_what_a_factory_makes_is_never_shared(factory):
    class Tell(Task[Any]):
        made: Any = optional(factory=factory)

        def work(self):
            return self.made

    first, second = Tell.execute().value, Tell.execute().value

    assert first == second
    assert first is not second


def test_a_list_of_the_caller_is_not_the_list_of_the_task():
    given = ["a"]

    class Tell(Task[list]):
        tags: list[str]

        def work(self):
            self.tags.append("b")
            return self.tags

    assert Tell.execute(tags=given).value == ["a", "b"]
    assert given == ["a"]


# -- the lifecycle around it -----------------------------------------------------------


def test_wrong_inputs_run_rollback_and_the_completion_callbacks():
    seen = []

    def watch(task):
        result = yield
        seen.append(("middleware", result.failed, len(task.errors)))

    @middleware(watch)
    class Tell(Task[None]):
        number: int

        @before_execution
        def before(self):
            seen.append("before")

        def work(self):
            seen.append("work")

        def rollback(self):
            seen.append("rollback")

        @after_execution
        def after(self):
            seen.append("after")

        @on_failed
        def failed(self):
            seen.append("failed")

        @on_ko
        def ko(self):
            seen.append("ko")

    result = Tell.execute(number="x")

    assert result.rolled_back
    assert seen == [
        "before", "rollback", "after", "failed", "ko", ("middleware", True, 1),
    ]  # fmt: skip


def test_errors_added_before_the_inputs_fail_the_task_with_theirs():
    class Tell(Task[None]):
        number: int

        @before_validation
        def doubt(self):
            self.errors.add("base", "is closed", "closed")

        def work(self):
            raise AssertionError

    assert Tell.execute(number="x").errors.to_dict() == {
        "base": ["is closed"],
        "number": ["must be a whole number"],
    }
    assert Tell.execute(number=1).errors.to_dict() == {"base": ["is closed"]}


def test_a_nested_run_resolves_its_own_inputs():
    class Inner(Task[int]):
        number: int

        def work(self):
            return self.number

    class Outer(Task[int]):
        number: int

        def work(self):
            inner = Inner.execute(number=f"{self.number}1")
            assert inner.context is not self.context
            return inner.value + self.number

    assert Outer.execute(number="2").value == 23


@every_entry
def test_every_way_to_run_a_task_resolves_its_inputs(run):
    assert run(Order, number="7", name="Ada").value == (7, "Ada", "EUR")


def test_an_async_task_resolves_its_inputs():
    class Tell(Task[int]):
        number: int

        async def work(self):
            await asyncio.sleep(0)
            return self.number

    assert aexecute(Tell, number="7").value == 7
    assert aexecute(Tell, number="x").errors.to_dict() == {
        "number": ["must be a whole number"]
    }


@pytest.mark.parametrize(
    ("coerce", "given"),
    [({"a": 1}.__getitem__, "hunter2"), ([1].__getitem__, 7), (lambda n: 1 / n, 0)],
    ids=["KeyError", "IndexError", "ZeroDivisionError"],
)
def test_a_coercion_that_can_make_nothing_of_a_value_refuses_it(coerce, given):
    class Look(Task[None]):
        x: object = required(coerce=coerce)

        def work(self) -> None: ...

    assert Look.execute(x=given).reason == "x is invalid"


# -- setting an input before it is resolved -------------------------------------------


class Greeting(Task[str]):
    name: str = required(alias="to")

    def work(self) -> str:
        return f"Hello, {self.name}"


def test_an_input_that_is_set_on_an_invocation_is_not_lost_silently():
    invocation = Greeting(to="Ada")
    invocation.name = "Bob"

    result = invocation.run()

    assert isinstance(result.cause, AttributeError)
    assert "'name' was set before inputs were resolved" in result.reason
    assert "Greeting(to=...)" in result.reason


def test_an_input_that_is_set_in_a_before_callback_is_not_lost_silently():
    class Loud(Greeting):
        @before_validation
        def raise_the_voice(self) -> None:
            self.name = self.context["to"].upper()

    assert "self.context['to']" in Loud.execute(to="Ada").reason


def test_a_before_callback_can_set_an_input_in_the_context():
    class Loud(Greeting):
        @before_validation
        def raise_the_voice(self) -> None:
            self.context["to"] = self.context["to"].upper()
            self.is_loud = True  # an attribute that is no input

    assert Loud.execute(to="Ada").value == "Hello, ADA"


def test_an_invocation_with_an_input_that_was_set_is_not_enqueued():
    invocation = Greeting(to="Ada")
    invocation.name = "Bob"

    with pytest.raises(AttributeError, match="'name' was set before"):
        Queue(":memory:").enqueue(invocation)
