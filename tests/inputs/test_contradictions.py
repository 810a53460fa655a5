"""Declarations that are refused when the class is made."""

from __future__ import annotations

import dataclasses
import re
from datetime import date  # noqa: TC003 -- evaluated by the task
from functools import cached_property
from typing import Annotated, Any, Never

import attrs
import pytest
from declared import Greet, refused

from cmdx import (
    DefinitionError,
    Task,
    on_success,
    optional,
    output,
    private,
    required,
)


def two_arguments(_task, _other):
    return 3


@pytest.mark.parametrize("name", ["default", "factory"])
def test_required_takes_no_default(name):
    with refused("required()", name, "optional("):
        required(**{name: list})


@pytest.mark.parametrize("options", [{}, {"ge": 3}, {"default": 1, "factory": int}])
def test_optional_needs_one_default(options):
    with refused("optional()", "default=", "factory="):
        optional(**options)


@pytest.mark.parametrize("factory", [3, "list", []])
def test_a_factory_must_be_callable(factory):
    with refused("factory must be callable", repr(factory)):
        optional(factory=factory)


@pytest.mark.parametrize("declare", [required, output])
@pytest.mark.parametrize("name", ["context", "execute", "errors", "given", "retry"])
def test_a_field_cannot_be_named_like_something_every_task_has(name, declare):
    with refused(name, "every task has", f"alias={name!r}"):
        type("Tell", (Task,), {"__annotations__": {name: "int"}, name: declare()})


@pytest.mark.parametrize("name", ["work", "rollback"])
def test_a_field_cannot_be_named_like_a_method_of_the_user(name):
    with refused(name, "every task has"):
        type("Tell", (Task,), {"__annotations__": {name: "int"}})


def test_a_field_cannot_begin_with_an_underscore():
    with refused("Tell._number", "underscore", "private()"):

        class Tell(Task[None]):
            _number: int


def test_two_fields_cannot_have_one_alias():
    with refused("'first'", "'second'", "'number'", "aliases"):

        class Tell(Task[None]):
            first: int = required(alias="number")
            second: int = required(alias="number")


def test_an_alias_cannot_be_the_name_of_another_input():
    with refused("'second'"):

        class Tell(Task[None]):
            first: int = required(alias="second")
            second: int


def test_an_alias_cannot_collide_with_an_inherited_field():
    with refused("'name'"):

        class GreetMore(Greet):
            other: str = required(alias="name")


def test_an_alias_cannot_be_the_name_of_an_output():
    with refused("'total'"):

        class Tell(Task[None]):
            number: int = required(alias="total")
            total: int = output()


@pytest.mark.parametrize(
    "annotation",
    [Never, list[Never], dict[str, Never], tuple[int, Never], Annotated[Never, 3], 3],
)
def test_an_annotation_nobody_can_coerce_is_refused(annotation):
    with refused("Tell.opaque", "coerce=", "cmdx.coercions.register"):

        class Tell(Task[None]):
            opaque: annotation


@attrs.frozen
class Holder:
    opaque: Never


def test_a_model_with_a_field_nobody_can_coerce_is_refused():
    with refused("Tell.holder", "Never", "coerce="):

        class Tell(Task[None]):
            holder: Holder


def test_a_model_is_refused_every_time_it_is_used():
    for _ in range(2):
        with refused("Tell.holder", "Never"):

            class Tell(Task[None]):
                holder: Holder


@pytest.mark.parametrize(
    ("declare", "wrong", "right"),
    [
        (required, "defualt", None),
        (required, "allias", "alias"),
        (required, "min_lenght", "min_length"),
        (required, "patern", "pattern"),
        (required, "frobnicate", None),
    ],
)
def test_an_unknown_option_is_refused_with_a_suggestion(declare, wrong, right):
    with pytest.raises(DefinitionError) as caught:
        declare(**{wrong: 3})

    message = str(caught.value)
    assert f"no option {wrong!r}" in message
    assert ("did you mean" in message) is (right is not None)
    assert right is None or f"did you mean {right!r}?" in message
    assert "Valid options: alias" in message


def test_optional_refuses_unknown_options_too():
    with refused("optional()", "'dscription'", "did you mean 'description'?"):
        optional(default=3, dscription="how many")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"alias": 3}, "a non-empty string"),
        ({"alias": ""}, "a non-empty string"),
        ({"source": 3}, "the name of a method"),
        ({"source": ""}, "the name of a method"),
        ({"coerce": 3}, "a callable"),
        ({"coerce": ""}, "the name of a method"),
        ({"transform": 3}, "the name of a method"),
        ({"validate": ""}, "the name of a method"),
        ({"validate": [len, 3]}, "callable"),
        ({"description": 3}, "a string"),
        ({"format": 3}, "strptime"),
        ({"if_": 3}, "a callable"),
        ({"unless": []}, "a callable"),
        ({"pattern": "("}, "unterminated"),
        ({"pattern": 3}, "is not valid"),
        ({"one_of": 3}, "is not valid"),
        ({"none_of": 3}, "is not valid"),
    ],
)
def test_an_option_of_a_wrong_kind_is_refused_where_it_is_written(options, expected):
    (name,) = options
    with refused("required()", name, expected):
        required(**options)


@pytest.mark.parametrize("name", ["length", "min_length", "max_length"])
@pytest.mark.parametrize("value", ["3", 2.5, -1])
def test_a_length_that_is_no_length_is_refused(name, value):
    with refused("required()", name):
        required(**{name: value})


def test_a_step_of_zero_is_refused():
    with refused("required()", "multiple_of"):
        required(multiple_of=0)


def test_a_gate_that_takes_too_much_is_refused():
    with refused("if_"):
        required(if_=two_arguments)


def test_a_gate_that_names_no_method_is_refused():
    with refused("Tell.number", "if_", "'is_open'"):

        class Tell(Task[None]):
            number: int = required(if_="is_open")


def test_a_source_that_names_no_method_is_refused():
    with refused("Tell.number", "'found'", "not a method", "Define it"):

        class Tell(Task[None]):
            number: int = required(source="found")


@pytest.mark.parametrize(
    "options",
    [
        {"source": two_arguments},
        {"default": None, "source": two_arguments},
        {"factory": two_arguments},
    ],
    ids=["required source", "optional source", "factory"],
)
def test_a_source_or_factory_that_takes_too_much_is_refused(options):
    declare = optional if {"default", "factory"} & options.keys() else required
    with refused("Tell.number"):

        class Tell(Task[None]):
            number: int | None = declare(**options)


def test_a_format_is_for_dates_alone():
    with refused("Tell.number", "format", "date, datetime and time"):

        class Tell(Task[None]):
            number: int = required(format="%d")


@pytest.mark.parametrize("default", [[], {}, set(), [1], bytearray()])
@pytest.mark.parametrize("declared", [True, False], ids=["optional", "plain"])
def test_a_mutable_default_is_refused(default, declared):
    with refused("mutable", f"factory={type(default).__name__}"):

        class Tell(Task[None]):
            numbers: Any = optional(default=default) if declared else default


def test_a_mutable_thing_inside_a_default_is_refused():
    with refused("mutable"):

        class Tell(Task[None]):
            numbers: tuple = ([],)


def test_a_mutable_default_is_refused_in_an_override_without_annotation():
    class Parent(Task[None]):
        numbers: tuple[int, ...] = ()

    with refused("Child.numbers", "mutable"):

        class Child(Parent):
            numbers = []  # noqa: RUF012 -- it is what is refused


def test_a_default_of_none_needs_an_annotation_that_admits_it():
    with refused("Tell.number", "None", "int", "| None"):

        class Tell(Task[None]):
            number: int = None


@pytest.mark.parametrize("field", [required(), output()], ids=["input", "output"])
def test_a_field_needs_an_annotation(field):
    with refused("Tell.number", "without an annotation", "number: SomeType"):
        type("Tell", (Task,), {"number": field, "__qualname__": "Tell"})


def test_an_inherited_field_cannot_become_a_method():
    with refused("Child.name", "inherited field", "name = None"):

        class Child(Greet):
            def name(self):
                return "x"


def test_a_method_and_a_field_of_one_class_cannot_share_a_name():
    with refused("Tell.number"):

        class Tell(Task[None]):
            number: int

            def number(self):
                return 3


@pytest.mark.parametrize("wrap", [property, cached_property, staticmethod])
def test_a_property_and_a_field_of_one_class_cannot_share_a_name(wrap):
    with refused("Tell.number", "field and a method", "Rename"):

        class Tell(Task[None]):
            number: int

            @wrap
            def number(self):
                return 3


@pytest.mark.parametrize(
    "field", [dataclasses.field(default_factory=list), attrs.field(factory=list)]
)
def test_a_field_of_another_library_is_refused_with_the_cure(field):
    with refused("Tell.numbers", "optional(factory=list)"):

        class Tell(Task[None]):
            numbers: list[int] = field


@pytest.mark.parametrize(
    ("annotation", "options", "message"),
    [
        (int, {"default": 1, "ge": 2}, "the default 1 must be at least 2"),
        (int, {"default": "many"}, "the default 'many' must be a whole number"),
        (str, {"default": "", "presence": True}, "the default '' must be present"),
        (Annotated[str, re.compile("x")], {"default": "y"}, "has the wrong format"),
        (str | None, {"default": "x", "one_of": "ab"}, "must be one of a, b"),
    ],
)
def test_a_default_that_breaks_its_own_rules_is_refused(annotation, options, message):
    with refused("Tell.it", message):

        class Tell(Task[None]):
            it: annotation = optional(**options)


def test_a_default_of_a_type_that_is_defined_later_is_checked_at_first_use(module):
    loaded = module("""
        from __future__ import annotations
        from typing import Annotated
        from cmdx import Task

        class Least:
            ge = 5

        class Tell(Task[int]):
            number: Large = 3

            def work(self):
                return self.number

        Large = Annotated[int, Least()]
    """)

    with refused("Tell.number", "the default 3 must be at least 5"):
        loaded.Tell.execute()


def test_a_default_is_not_handed_to_callables_before_the_task_runs():
    calls = []

    class Tell(Task[None]):
        first: int = optional(default=1, validate=calls.append)
        second: str = optional(default="x", coerce=lambda it: calls.append(it) or it)
        third: str = optional(default="x", transform=str.upper, one_of=["X"])
        fourth: Annotated[int, calls.append] = 4
        day: date = optional(default="29.02.2024", format="%d.%m.%Y")

        def work(self): ...

    assert calls == []
    assert Tell.execute().success
    assert calls == [1, "x", 4]


@pytest.mark.parametrize(
    ("annotation", "options", "rule"),
    [
        (int, {"ge": "1"}, "ge='1'"),
        (float, {"max_length": 3}, "max_length=3"),
        (int, {"pattern": "[0-9]+"}, "pattern="),
        (Annotated[int, re.compile("x")], {}, "pattern="),
    ],
)
def test_a_rule_that_no_number_can_keep_is_refused(annotation, options, rule):
    with refused("Tell.it", rule, "Use a rule for numbers"):

        class Tell(Task[None]):
            it: annotation = required(**options)


@pytest.mark.parametrize(
    ("declare", "options", "hint"),
    [
        (optional, {"defualt": 1}, "did you mean 'default'?"),
        (required, {"min": 1}, "use `ge`"),
        (required, {"max": 1}, "use `le`"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_right_one(declare, options, hint):
    with refused(hint):
        declare(**options)


def test_a_rule_is_not_tried_on_what_a_function_makes_of_the_input():
    class Tell(Task[str]):
        it: int = required(transform=str, max_length=3)

        def work(self):
            return self.it

    assert Tell.execute(it=7).value == "7"
    assert Tell.execute(it=7000).failed


def test_a_hook_cannot_take_the_name_of_an_inherited_field():
    with refused("Child.name"):

        class Child(Greet):
            @on_success
            def name(self):
                pass


def test_outputs_and_private_names_cannot_be_given_by_callers():
    with refused("output()", "init"):
        output(init=True)
    with refused("private()", "init"):
        private(init=True)


def test_everything_is_refused_when_the_class_is_made_and_not_when_it_is_run():
    assert issubclass(DefinitionError, ValueError)
    with pytest.raises(DefinitionError):

        class Tell(Task[None]):
            opaque: Never

    assert "Tell" not in locals()
