"""``coerce``, ``transform`` and ``validate``, and registered types."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 -- evaluated by the task
from typing import Annotated, Any

import attrs
import pytest

import cmdx
from cmdx import (
    Invalid,
    Task,
    optional,
    required,
)


@attrs.frozen
class Ge:
    """A bound in the style of annotated-types."""

    ge: int


class Opaque:
    """Nobody knows how to make one."""


def test_a_callable_given_as_coerce_takes_the_place_of_the_annotation():
    class Tell(Task[int]):
        number: int = required(coerce=lambda text: int(text, 2))

        def work(self):
            return self.number

    assert Tell.execute(number="101").value == 5
    assert Tell.execute(number="7").errors.to_dict()["number"] == ["is invalid"]


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_what_coerce_refuses_is_a_problem_of_the_input(error):
    def coerce(_):
        raise error("cannot read this")

    class Tell(Task[Opaque]):
        opaque: Opaque = required(coerce=coerce)

        def work(self):
            return self.opaque

    result = Tell.execute(opaque=1)
    assert [(p.key, p.message, p.code) for p in result.errors] == [
        ("opaque", "is invalid", "invalid")
    ]


def test_an_invalid_may_be_raised_again_and_again():
    empty, odd = Invalid("empty", "is empty"), Invalid("odd", "is odd")

    def refuse(_value):
        raise empty

    def refuse_items(_value):
        raise Invalid.together([empty.below("[0]"), odd.below("[1]")])

    class Pay(Task[None]):
        amount: Opaque = required(coerce=refuse)
        notes: Opaque = required(coerce=refuse_items)

        def work(self): ...

    expected = {
        "amount": ["is empty"],
        "notes[0]": ["is empty"],
        "notes[1]": ["is odd"],
    }
    assert Pay.execute(amount=1, notes=[]).errors.to_dict() == expected
    assert Pay.execute(amount=1, notes=[]).errors.to_dict() == expected


def test_an_invalid_is_joined_and_moved_as_a_new_one_of_its_class():
    class Refused(Invalid):
        def __init__(self):
            super().__init__("refused", "is {what}", what="refused")

    one, other = Refused(), Invalid("odd")
    both = Invalid.together([one, other]).below("amount")

    assert type(both) is Refused
    assert both.message == one.message
    assert [problem.path for problem in both.all()] == ["amount", "amount"]
    assert (one.path, one.others) == (other.path, other.others) == ("", [])


def test_an_invalid_that_coerce_raises_is_shown_as_it_is():
    def parse(text):
        currency = text[-3:]
        if currency == "GBP":
            raise Invalid("currency")
        raise Invalid("amount", "must be an amount in EUR").below("value")

    class Pay(Task[None]):
        amount: Opaque = required(coerce=parse)

        def work(self): ...

    cmdx.messages["currency"] = "has a currency we do not take"
    try:
        assert Pay.execute(amount="1 GBP").errors.to_dict() == {
            "amount": ["has a currency we do not take"]
        }
    finally:
        del cmdx.messages["currency"]
    assert Pay.execute(amount="1 USD").errors.to_dict() == {
        "amount.value": ["must be an amount in EUR"]
    }


def test_coerce_false_takes_values_as_they_are():
    class Tell(Task[Any]):
        number: int = required(coerce=False)

        def work(self):
            return self.number

    assert Tell.execute(number="101").value == "101"


def test_coerce_true_is_the_coercion_of_the_annotation():
    class Tell(Task[Any]):
        number: int = required(coerce=True)

        def work(self):
            return self.number

    assert Tell.execute(number="101").value == 101


def test_coerce_false_takes_what_nobody_can_coerce():
    class Tell(Task[Any]):
        call: Callable[[], int] = required(coerce=False)

        def work(self):
            return self.call()

    assert Tell.execute(call=lambda: 5).value == 5


def test_constraints_hold_whatever_coerces():
    class Tell(Task[Any]):
        first: Annotated[int, Ge(3)] = required(coerce=False)
        second: Annotated[int, Ge(3)] = required(coerce=len)

        def work(self):
            return None

    assert Tell.execute(first=2, second="ab").errors.to_dict() == {
        "first": ["must be at least 3"],
        "second": ["must be at least 3"],
    }


def test_transform_changes_the_coerced_value():
    class Tell(Task[int]):
        number: int = required(transform=lambda number: number + 1)

        def work(self):
            return self.number

    assert Tell.execute(number="6").value == 7


def test_a_method_of_the_type_is_a_fine_transform():
    class Tell(Task[str]):
        name: str = required(transform=str.strip)

        def work(self):
            return self.name

    assert Tell.execute(name="  Ada ").value == "Ada"


def test_validators_see_the_transformed_value():
    class Tell(Task[str]):
        name: str = required(transform=str.strip, max_length=3)

        def work(self):
            return self.name

    assert Tell.execute(name="  Ada ").value == "Ada"


def test_one_validator_refuses_with_the_message_of_its_error():
    def even(number):
        if number % 2:
            raise ValueError(f"{number} is odd")

    class Tell(Task[int]):
        number: int = required(validate=even)

        def work(self):
            return self.number

    assert Tell.execute(number="4").value == 4
    assert [tuple(problem) for problem in Tell.execute(number="3").errors] == [
        ("number", "3 is odd", "invalid")
    ]


def test_the_code_of_an_error_is_the_code_of_the_problem():
    class TooOld(ValueError):
        code = "too_old"

    def validate(_):
        raise TooOld("is too old")

    class Tell(Task[int]):
        number: int = required(validate=validate)

        def work(self):
            return self.number

    assert [tuple(problem) for problem in Tell.execute(number=3).errors] == [
        ("number", "is too old", "too_old")
    ]


def test_a_validator_that_returns_false_refuses():
    class Tell(Task[str]):
        name: str = required(validate=str.isalpha)

        def work(self):
            return self.name

    assert Tell.execute(name="Ada").success
    assert [tuple(problem) for problem in Tell.execute(name="4da").errors] == [
        ("name", "is invalid", "invalid")
    ]


@pytest.mark.parametrize("answer", [None, 0, "", True, ["no"]])
def test_a_validator_that_returns_neither_false_nor_text_agrees(answer):
    class Tell(Task[str]):
        name: str = required(validate=lambda _: answer)

        def work(self):
            return self.name

    assert Tell.execute(name="Ada").success


def test_text_that_a_validator_returns_is_the_message():
    class Tell(Task[None]):
        number: int = required(
            validate=lambda value: "must be odd" if value % 2 == 0 else None
        )
        other: Annotated[int, lambda _: "is never right"] = 3

        def work(self): ...

    result = Tell.execute(number=2)
    assert result.errors.to_dict() == {
        "number": ["must be odd"],
        "other": ["is never right"],
    }


def fail_with(message):
    def validate(_):
        raise ValueError(message)

    return validate


@pytest.mark.parametrize("several", [list, tuple, iter], ids=["list", "tuple", "iter"])
def test_all_of_several_validators_are_asked(several):
    class Tell(Task[str]):
        name: str = required(
            validate=several([fail_with("first"), str.isalpha, fail_with("second")]),
            min_length=9,
        )

        def work(self):
            return self.name

    for _ in range(2):
        assert sorted(Tell.execute(name="Ada").errors["name"]) == [
            "first", "must have a length of at least 9", "second",
        ]  # fmt: skip


def test_an_error_of_a_validator_that_is_no_value_error_fails_the_task_with_it():
    class Tell(Task[str]):
        name: str = required(validate=lambda name: {}[name])

        def work(self):
            return self.name

    result = Tell.execute(name="Ada")
    assert result.failed
    assert isinstance(result.cause, KeyError)


def test_a_registered_type_is_known_in_classes_made_afterwards():
    class Money:
        def __init__(self, cents):
            self.cents = cents

    cmdx.coercions.register(Money, lambda text: Money(int(text)))
    try:

        class Pay(Task[int]):
            amount: Money
            fees: list[Money] = optional(factory=list)

            def work(self):
                return self.amount.cents + sum(fee.cents for fee in self.fees)

        assert Pay.execute(amount="7", fees=["1", "2"]).value == 10
        assert "fees[1]" in Pay.execute(amount="7", fees=["1", "x"]).errors
    finally:
        cmdx.coercions.deregister(Money)
