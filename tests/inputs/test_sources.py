"""``source``: values that callers do not give."""

from __future__ import annotations

import pytest

from cmdx import (
    Task,
    optional,
    required,
)


def test_a_source_names_a_method_that_gives_the_value():
    class Tell(Task[int]):
        text: str
        number: int = required(source="found")

        def found(self):
            return self.text.removeprefix("no. ")

        def work(self):
            return self.number

    assert Tell.execute(text="no. 7").value == 7


def test_a_source_may_be_a_callable_of_the_task():
    class Tell(Task[int]):
        text: str
        number: int = required(source=lambda task: len(task.text))

        def work(self):
            return self.number

    assert Tell.execute(text="abc").value == 3


def test_a_source_may_be_a_callable_without_arguments():
    class Tell(Task[int]):
        number: int = required(source=lambda: "7")

        def work(self):
            return self.number

    assert Tell.execute().value == 7


def test_a_source_may_be_static_or_of_the_class():
    class Tell(Task[tuple]):
        first: int = required(source="one")
        second: str = required(source="named")

        @staticmethod
        def one():
            return 1

        @classmethod
        def named(cls):
            return cls.__name__

        def work(self):
            return self.first, self.second

    assert Tell.execute().value == (1, "Tell")


def test_a_source_method_may_be_overridden():
    class Parent(Task[int]):
        number: int = required(source="found")

        def found(self):
            return 1

        def work(self):
            return self.number

    class Child(Parent):
        def found(self):
            return 2

    assert Parent.execute().value == 1
    assert Child.execute().value == 2


def test_a_sourced_value_is_coerced_transformed_and_validated():
    class Tell(Task[int]):
        number: int = required(
            source=lambda: "7", transform=lambda number: number * 10, le=50
        )

        def work(self):
            return self.number

    assert Tell.execute().errors.to_dict() == {"number": ["must be at most 50"]}


def test_a_source_without_a_value_leaves_the_default():
    class Tell(Task[int]):
        number: int = optional(default=3, source=lambda: None)

        def work(self):
            return self.number

    assert Tell.execute().value == 3


def test_a_source_without_a_value_leaves_a_required_input_missing():
    class Tell(Task[int]):
        number: int = required(source=lambda: None)

        def work(self):
            return self.number

    result = Tell.execute()
    assert list(result.errors.to_dict()) == ["number"]
    assert result.cause is None


def test_a_caller_cannot_give_what_has_a_source():
    class Tell(Task[int]):
        text: str
        number: int = required(source=lambda task: len(task.text))

        def work(self):
            return self.number

    with pytest.raises(TypeError, match="unexpected input 'number'"):
        Tell.execute(text="abc", number=5)
    assert Tell.execute({"text": "abc", "number": 5}).value == 3
