"""Inputs that a class inherits, changes and removes."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import attrs
import pytest
from declared import Greet, refused

from cmdx import (
    DefinitionError,
    Task,
    optional,
    output,
    required,
)


def test_a_subclass_takes_the_inputs_of_its_ancestors():
    class GreetTwice(Greet):
        times: int = 2

        def work(self):
            return super().work() * self.times

    assert GreetTwice.execute(name="Ada").value == "Hello, Ada!Hello, Ada!"
    assert list(GreetTwice.inputs_schema()["properties"]) == [
        "name", "greeting", "times",
    ]  # fmt: skip
    with pytest.raises(TypeError, match="unexpected input 'times'"):
        Greet.execute(name="Ada", times=2)


def test_an_override_with_an_annotation_replaces_the_field():
    class GreetNumber(Greet):
        name: int = optional(default=7)

    assert GreetNumber.execute().value == "Hello, 7!"
    assert GreetNumber.execute(name="x").errors.to_dict() == {
        "name": ["must be a whole number"]
    }
    assert Greet.execute(name="x").success


def test_an_override_with_a_bare_annotation_makes_the_input_required():
    class GreetProperly(Greet):
        greeting: str

    assert GreetProperly.execute(name="Ada").errors.to_dict() == {
        "greeting": ["is required"]
    }


def test_an_override_without_an_annotation_keeps_the_inherited_one():
    class Parent(Task[int]):
        number: int = required()

        def work(self):
            return self.number

    class Bounded(Parent):
        number = required(ge=3)

    class Defaulted(Parent):
        number = 5

    assert Bounded.execute(number="4").value == 4
    assert Bounded.execute(number="2").errors.to_dict() == {
        "number": ["must be at least 3"]
    }
    assert Defaulted.execute().value == 5
    assert Defaulted.execute(number="6").value == 6
    assert Parent.execute(number="2").value == 2


def test_an_override_keeps_the_place_of_the_field():
    class GreetAnybody(Greet):
        name: str = "World"
        loud: bool = False

    assert list(GreetAnybody.inputs_schema()["properties"]) == [
        "name", "greeting", "loud",
    ]  # fmt: skip


def test_an_input_can_become_an_output_and_back():
    class Parent(Task[str]):
        total: int

        def work(self):
            self.total = 3
            return "done"

    class Child(Parent):
        total: int = output()

    class Grandchild(Child):
        total: int = 7

    assert Parent.execute().failed
    assert Child.execute().context.total == 3
    assert Grandchild.execute().success
    assert list(Grandchild.inputs_schema()["properties"]) == ["total"]
    assert Grandchild.outputs_schema()["properties"] == {}


@pytest.mark.parametrize("annotated", [True, False])
def test_none_removes_an_inherited_input(annotated):
    if annotated:

        class GreetNobody(Greet):
            name = None
            other: str = "nobody"

            def work(self):
                return f"{self.greeting}, {self.other}!"
    else:

        class GreetNobody(Greet):
            name = None

            def work(self):
                return f"{self.greeting}, nobody!"

    assert GreetNobody.execute().value == "Hello, nobody!"
    assert "name" not in GreetNobody.inputs_schema()["properties"]
    with pytest.raises(TypeError, match="unexpected input 'name'"):
        GreetNobody.execute(name="Ada")
    assert Greet.execute(name="Ada").success


def test_none_removes_an_inherited_output():
    class Make(Task[None]):
        made: str = output()

        def work(self):
            pass

    class MakeNothing(Make):
        made = None

    assert Make.execute().failed
    assert MakeNothing.execute().success


def test_a_removed_field_can_be_declared_again():
    class GreetNobody(Greet):
        name = None

    class GreetSomebody(GreetNobody):
        name: str = "somebody"

    assert GreetSomebody.execute().value == "Hello, somebody!"


def test_another_default_keeps_all_else_that_is_inherited():
    class Parent(Task[int]):
        amount: int = required(ge=1, alias="amt", description="in cents")

        def work(self):
            return self.amount

    class Child(Parent):
        amount = 5

    class Grandchild(Child):
        amount = 6

    assert Parent.execute().errors.to_dict() == {"amt": ["is required"]}
    assert (Child.execute().value, Grandchild.execute().value) == (5, 6)
    assert Child.execute(amt="7").value == 7
    assert Grandchild.execute(amt=-5).errors.to_dict() == {
        "amt": ["must be at least 1"]
    }
    assert Child.inputs_schema()["properties"]["amt"] == {
        "type": "integer",
        "minimum": 1,
        "description": "in cents",
        "default": 5,
    }


def test_another_default_replaces_a_factory():
    class Parent(Task[list]):
        sizes: tuple[int, ...] = optional(factory=tuple, max_length=2)

        def work(self):
            return self.sizes

    class Child(Parent):
        sizes = (1, 2)

    assert Parent.execute().value == ()
    assert Child.execute().value == (1, 2)


def test_another_default_must_keep_the_inherited_rules():
    class Parent(Task[int]):
        amount: int = required(ge=1)

        def work(self): ...

    with pytest.raises(DefinitionError, match=r"Child.*default 0 must be at least 1"):
        type("Child", (Parent,), {"amount": 0})


def test_an_input_that_is_annotated_again_is_declared_anew():
    class Parent(Task[int]):
        amount: int = required(ge=1, alias="amt")

        def work(self):
            return self.amount

    class Child(Parent):
        amount: int = 0

    assert Child.execute().value == 0
    assert Child.execute(amount=-5).value == -5


def test_several_bases_bring_their_fields_together():
    class Timed(Task[Any]):
        timeout: float = 3.0

    class Traced(Task[Any]):
        trace: bool = False

    class Fetch(Timed, Traced):
        url: str

        def work(self):
            return self.timeout, self.trace, self.url

    assert Fetch.execute(url="a", trace="yes").value == (3.0, True, "a")


def test_the_nearest_of_several_bases_decides_about_a_field():
    class Base(Task[int]):
        number: int = 1

        def work(self):
            return self.number

    class Left(Base):
        number: int = 2

    class Right(Base):
        number: int = 3

    class Both(Left, Right):
        pass

    assert Both.execute().value == 2


def test_the_annotations_of_a_mixin_that_is_no_task_are_no_fields():
    class Timed:
        timeout: float = 3.0

        def limit(self):
            return self.timeout

    class Fetch(Timed, Task[float]):
        url: str

        def work(self):
            return self.limit()

    assert Fetch.execute(url="a").value == 3.0
    with pytest.raises(TypeError, match="unexpected input 'timeout'"):
        Fetch.execute(url="a", timeout=4.0)


def test_a_mixin_that_is_no_task_cannot_bring_fields_that_would_be_ignored():
    class Timed:
        timeout: float = required()

    with refused("timeout"):

        class Fetch(Timed, Task[float]):
            url: str


def test_a_generic_base_takes_its_fields_along():
    T = TypeVar("T")

    class Wrap(Task[T], Generic[T]):
        label: str = "it"

    class WrapNumber(Wrap[int]):
        number: int

        def work(self):
            return self.label, self.number

    assert WrapNumber.execute(number="3").value == ("it", 3)


def test_fields_are_found_below_a_base_with_its_own_init_subclass():
    @attrs.frozen
    class Local:
        x: int

    class Registering(Task[Any]):
        known: ClassVar[list] = []

        def __init_subclass__(cls, **keywords):
            super().__init_subclass__(**keywords)
            cls.known.append(cls)

    class Tell(Registering):
        local: Local

        def work(self):
            return self.local

    assert Tell.execute(local={"x": "3"}).value == Local(3)
    assert Tell.known == [Tell]
