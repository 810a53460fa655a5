"""Methods of the task as coerce, transform and validate."""

from __future__ import annotations

import re

import pytest

from cmdx import DefinitionError, Task, optional, required


class Rent(Task[object]):
    """Each step looks at the input before it."""

    currency: str
    amount: int = required(coerce="parse", transform="convert", validate="check", le=99)

    def parse(self, text):
        number, _, currency = text.partition(" ")
        if currency != self.currency:
            raise ValueError(f"what is {text}?")
        return int(number)

    def convert(self, number):
        return number * 2 if self.currency == "GBP" else number

    def check(self, number):
        if number < 10:
            raise ValueError(f"is too small in {self.currency}")

    def work(self):
        return self.amount


def test_a_method_sees_the_task_and_gets_the_value():
    assert Rent.execute(currency="EUR", amount="10 EUR").value == 10
    assert Rent.execute(currency="GBP", amount="10 GBP").value == 20


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        ("10 EUR", ["is invalid"]),
        ("4 GBP", ["is too small in GBP"]),
        ("60 GBP", ["must be at most 99"]),
        (None, ["must not be null"]),
        ("", ["is required"]),
    ],
)
def test_what_a_method_refuses_is_a_problem_of_the_input(amount, expected):
    result = Rent.execute({"currency": "GBP", "amount": amount})

    assert result.errors.to_dict() == {"amount": expected}


def test_names_and_callables_may_be_mixed_and_all_are_asked():
    class Tell(Task[None]):
        number: int = required(
            validate=["is_small", lambda _: "says the lambda", "is_odd"]
        )

        def is_small(self, value):
            return "is too large" if value > 5 else None

        @staticmethod
        def is_odd(value):
            return value % 2 == 1

        def work(self) -> None: ...

    result = Tell.execute(number=8)
    assert result.errors["number"] == ["is too large", "says the lambda", "is invalid"]


def test_a_subclass_may_override_the_method():
    class Cheap(Rent):
        def check(self, number):
            pass

    assert Cheap.execute(currency="EUR", amount="1 EUR").value == 1


def test_a_default_and_a_source_go_through_the_methods_too():
    class Tell(Task[object]):
        number: int = optional(default=1, transform="double")
        found: int = required(source=lambda: "3", transform="double")

        def double(self, value):
            return value * 2

        def work(self):
            return self.number, self.found

    assert Tell.execute().value == (2, 6)
    assert Tell.execute(number="5").value == (10, 6)


def test_the_keyword_of_an_input_with_a_method_is_known():
    with pytest.raises(TypeError, match="did you mean 'amount'"):
        Rent.execute(currency="EUR", amuont="1 EUR")


def test_a_method_that_needs_an_input_that_is_wrong_does_not_hide_the_problem():
    assert Rent.execute(amount="10 EUR").errors.to_dict() == {
        "currency": ["is required"]
    }


@pytest.mark.parametrize("option", ["coerce", "transform", "validate"])
def test_a_name_without_a_method_is_refused_when_the_class_is_first_used(option):
    class Tell(Task[None]):
        number: int = required(**{option: "chekc"})

        def work(self) -> None: ...

    class Mended(Tell):
        def chekc(self, value):
            return value

    assert Mended.execute(number=1).value is None
    with pytest.raises(DefinitionError) as caught:
        Tell.execute(number=1)
    assert type(caught.value) is DefinitionError
    assert re.search(rf"Tell.number: {option} names 'chekc'.*Define", str(caught.value))


def test_the_nearest_method_is_suggested():
    class Tell(Task[None]):
        number: int = required(validate="chekc")

        def check(self, value): ...

        def work(self) -> None: ...

    with pytest.raises(DefinitionError, match="did you mean 'check'"):
        Tell.execute(number=1)


async def check_later(value): ...


@pytest.mark.parametrize("option", ["coerce", "transform", "validate"])
@pytest.mark.parametrize("call", ["check", check_later], ids=["method", "callable"])
def test_what_awaits_is_refused(option, call):
    with pytest.raises(DefinitionError, match="is async"):

        class Tell(Task[None]):
            number: int = required(**{option: call})

            async def check(self, value): ...


@pytest.mark.parametrize("method", [lambda _: None, lambda _, __, ___: None])
def test_a_method_must_take_the_value_and_nothing_else(method):
    with pytest.raises(DefinitionError, match="check must take one argument"):
        type(
            "Tell",
            (Task,),
            {
                "__annotations__": {"number": int},
                "number": required(validate="check"),
                "check": method,
            },
        )
