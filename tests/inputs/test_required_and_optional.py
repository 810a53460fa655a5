"""Inputs as ``required`` and ``optional`` declare them."""

from __future__ import annotations

import inspect
import re
from datetime import date

import pytest
from declared import Greet

import cmdx
from cmdx import (
    Task,
    optional,
    required,
)
from cmdx.inputs.fields import InputOptions


def test_an_annotation_without_a_value_is_a_required_input():
    assert Greet.execute(name="Ada").value == "Hello, Ada!"
    assert Greet.execute().errors.to_dict() == {"name": ["is required"]}


def test_an_annotation_with_a_value_is_an_input_with_a_default():
    assert Greet.execute(name="Ada", greeting="Salve").value == "Salve, Ada!"


def test_required_declares_what_a_bare_annotation_declares():
    class Square(Task[int]):
        number: int = required()

        def work(self):
            return self.number**2

    assert Square.execute(number="7").value == 49
    assert Square.execute().errors.to_dict() == {"number": ["is required"]}


def test_optional_takes_its_default_when_nothing_is_given():
    class Tell(Task[str]):
        currency: str = optional(default="EUR")

        def work(self):
            return self.currency

    assert Tell.execute().value == "EUR"
    assert Tell.execute(currency="USD").value == "USD"


def test_optional_calls_its_factory_when_nothing_is_given():
    class Tell(Task[list]):
        tags: list[str] = optional(factory=lambda: ["new"])

        def work(self):
            return self.tags

    assert Tell.execute().value == ["new"]
    assert Tell.execute(tags=["old"]).value == ["old"]


def test_a_factory_may_take_the_task():
    class Tell(Task[str]):
        name: str
        greeting: str = optional(factory=lambda task: f"Dear {task.name}")

        def work(self):
            return self.greeting

    assert Tell.execute(name="Ada").value == "Dear Ada"


def test_a_class_as_factory_is_called_without_the_task():
    class Tell(Task[list]):
        tags: list[str] = optional(factory=list)

        def work(self):
            return self.tags

    assert Tell.execute().value == []


def test_a_default_goes_through_the_pipeline_like_a_given_value():
    class Tell(Task[date]):
        day: date = "2024-02-29"
        number: int = optional(factory=lambda: 7, le=5)

        def work(self):
            return self.day

    assert Tell.execute(number=1).value == date(2024, 2, 29)
    assert Tell.execute().errors.to_dict() == {"number": ["must be at most 5"]}


def test_the_options_of_a_field_can_be_read_on_the_class():
    class Tell(Task[None]):
        number: int = required(ge=3, description="how many")

    assert Tell.number.options["ge"] == 3
    assert Tell.number.required


TOO_EARLY = "the input 'number' has no value.*resolved after the before_. hooks"
DECLARED = pytest.mark.parametrize(
    "declared", [None, 3, required(), optional(default=3), optional(factory=int)]
)


def task_with_number(declared):
    names = {} if declared is None else {"number": declared}
    namespace = {
        "__annotations__": {"number": int},
        "work": lambda self: self.number,
        **names,
    }
    return type("Tell", (Task,), namespace)


@DECLARED
def test_an_input_read_too_early_says_when_it_has_a_value(declared):
    tell = task_with_number(declared)

    for read in (lambda: tell(number=3).number, lambda: tell(number=3).work()):
        with pytest.raises(AttributeError, match=TOO_EARLY):
            read()


@DECLARED
@pytest.mark.parametrize("decorator", [cmdx.before_execution, cmdx.before_validation])
def test_a_hook_before_inputs_are_resolved_cannot_read_them(declared, decorator):
    class Early(task_with_number(declared)):
        @decorator
        def look(self):
            self.context.seen = self.number

    result = Early.execute(number=7)

    assert isinstance(result.cause, AttributeError)
    assert re.search(TOO_EARLY, str(result.cause))


def test_an_input_that_was_refused_cannot_be_read_as_its_default():
    class Refused(task_with_number(3)):
        @cmdx.on_failed
        def look(self):
            self.context.seen = getattr(self, "number", "nothing")

    assert Refused.execute(number="many").context.seen == "nothing"


@pytest.mark.parametrize("declared", [3, optional(default=3)])
def test_the_default_of_an_input_can_be_read_from_the_class(declared):
    tell = task_with_number(declared)

    assert tell.number == type("Child", (tell,), {}).number == 3
    assert type("Child", (tell,), {"number": 4}).number == 4


def test_one_field_may_stand_under_several_names():
    positive = required(ge=1)

    class Both(Task[None]):
        one: int = positive
        other: int = positive

        def work(self): ...

    for name in ("one", "other"):
        with pytest.raises(AttributeError, match=f"the input '{name}' has no value"):
            getattr(Both(one=1, other=2), name)


def test_a_description_is_part_of_the_schema():
    class Tell(Task[int]):
        number: int = required(description="how many")

    assert Tell.inputs_schema()["properties"]["number"]["description"] == "how many"


@pytest.mark.parametrize("declare", [required, optional])
def test_help_has_a_line_for_each_option(declare):
    keywords = {*inspect.signature(declare).parameters} - {"options"}
    names = keywords | InputOptions.__optional_keys__
    text = inspect.getdoc(declare)

    assert [name for name in names if f"\n    {name}: " not in text] == []


def test_a_default_that_is_missing_is_shown_by_its_name():
    assert "default: 'Any' = MISSING" in str(inspect.signature(optional))
