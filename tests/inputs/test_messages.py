"""The catalogue of messages: what it says, and how to change it."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Literal

import attrs
import pytest

import cmdx
from cmdx import Errors, Task, messages, optional, output, required


@pytest.fixture(autouse=True)
def catalogue():
    """Put the messages back as they were."""
    kept = dict(messages)
    yield messages
    messages.clear()
    messages.update(kept)


@attrs.frozen
class Point:
    x: int


class Order(Task[None]):
    """Many ways to be wrong."""

    number: int = required(ge=3)
    day: date = required()
    color: Literal["red", "blue"] = optional(default="red")
    point: Point = required(alias="where")
    total: int = output()

    def work(self) -> None:
        pass


def test_a_message_can_be_replaced():
    messages["int"] = "muss eine ganze Zahl sein"

    result = Order.execute({"number": "x", "day": "2024-01-02", "where": {"x": 1}})

    assert result.errors.to_dict() == {"number": ["muss eine ganze Zahl sein"]}
    assert result.reason == "number muss eine ganze Zahl sein"


def test_the_whole_catalogue_can_be_replaced():
    assert cmdx.messages is messages
    messages.update({code: f"<{code}>" for code in messages})

    result = Order.execute({"day": "x", "color": "green", "where": {"x": "y"}})

    assert result.errors.to_dict() == {
        "number": ["<required>"],
        "day": ["<date>"],
        "color": ["<choice>"],
        "where.x": ["<int>"],
    }


def test_a_message_for_outputs_can_be_replaced():
    messages["unset"] = "fehlt"

    given = {"number": 3, "day": "2024-01-02", "where": {"x": 1}}

    assert Order.execute(given).errors.to_dict() == {"total": ["fehlt"]}


def test_a_placeholder_is_filled_with_what_the_check_says():
    messages["ge"] = "mindestens {ge}, nicht weniger als {ge}"
    messages["choice"] = "eins von: {choices}"

    result = Order.execute({"number": 1, "color": "x"})

    assert result.errors["number"] == ["mindestens 3, nicht weniger als 3"]
    assert result.errors["color"] == ["eins von: red, blue"]


def test_a_message_need_not_use_what_the_check_says():
    messages["ge"] = "zu klein"

    assert Order.execute(number=1).errors["number"] == ["zu klein"]


@pytest.mark.parametrize(
    "text",
    [
        "{unknown}",
        "at least {ge} of {unknown}",
        "{0}",
        "{}",
        "{",
        "}",
        "{ge!x}",
        "{ge:%%%}",
        "{ge.unknown}",
        "{ge[unknown]}",
        "{choices[unknown]}",
    ],
)
def test_a_placeholder_nobody_fills_leaves_the_message_as_it_is(text):
    messages["ge"] = text
    messages["choice"] = text

    result = Order.execute({"number": 1, "color": "x"})

    assert result.cause is None
    assert text in result.errors["number"]
    assert list(result.errors.to_dict()) == ["number", "day", "color", "where"]


def test_a_message_that_is_taken_out_is_said_in_the_built_in_words():
    built_in = messages.pop("required")

    assert Order.execute().errors["number"] == [built_in]


def test_an_empty_catalogue_still_says_something():
    messages.clear()

    result = Order.execute()

    assert len(result.errors) == 3
    assert all(problem.message for problem in result.errors)


def test_the_code_stays_whatever_the_message_says():
    messages["int"] = "falsch"

    assert [problem.code for problem in Order.execute(number="x").errors] == [
        "int", "required", "required",
    ]  # fmt: skip


def test_a_message_of_ones_own_stands_for_a_code_of_ones_own():
    class Unlucky(ValueError):
        code = "unlucky"

    def validate(number):
        if number == 13:
            raise Unlucky

    class Draw(Task[int]):
        number: int = required(validate=validate)

        def work(self):
            return self.number

    assert Draw.execute(number=13).errors["number"] == ["is invalid"]
    messages["unlucky"] = "brings bad luck"
    assert Draw.execute(number=13).errors["number"] == ["brings bad luck"]
    assert [problem.code for problem in Draw.execute(number=13).errors] == ["unlucky"]


def test_a_message_of_an_error_is_not_formatted():
    def validate(_):
        raise ValueError("must not have {braces}")

    class Draw(Task[int]):
        number: int = required(validate=validate)

        def work(self):
            return self.number

    assert Draw.execute(number=1).errors["number"] == ["must not have {braces}"]


def test_what_a_check_says_is_not_formatted_again(taking):
    task = taking(Any, one_of=["{a}", "{0}"])

    assert task.execute(x="b").errors["x"] == ["must be one of {a}, {0}"]


def test_every_placeholder_of_the_built_in_messages_is_filled(taking):
    kinds = [
        (Literal["a", "b"], "c", {}),
        (tuple[int, int], [1], {}),
        (Point, 3, {}),
        (Errors, 3, {}),
        (type[Errors], int, {}),
        (int | date, "x", {}),
        (int, 3, {"gt": 3}),
        (int, 2, {"ge": 3}),
        (int, 3, {"lt": 3}),
        (int, 4, {"le": 3}),
        (int, 4, {"multiple_of": 3}),
        (str, "a", {"min_length": 3}),
        (str, "abcd", {"max_length": 3}),
        (str, "a", {"length": 3}),
        (str, "a", {"one_of": ["b"]}),
        (str, "a", {"none_of": ["a"]}),
    ]
    said = set()
    for annotation, value, options in kinds:
        (problem,) = taking(annotation, **options).execute(x=value).errors
        assert "{" not in problem.message
        said.add(problem.code)

    placeholders = {code for code, text in messages.items() if re.search("{.*}", text)}
    assert placeholders == said & placeholders
