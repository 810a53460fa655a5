"""What a class may say about its inputs, and what it is refused for."""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
import typing as t
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

import attrs
import pytest

import cmdx
from cmdx import (
    DefinitionError,
    Task,
    on_success,
    optional,
    output,
    private,
    required,
)


class Greet(Task[str]):
    """The task most tests derive from."""

    name: str
    greeting: str = "Hello"

    def work(self) -> str:
        return f"{self.greeting}, {self.name}!"


@attrs.frozen
class Ge:
    """A bound in the style of annotated-types."""

    ge: int


class Opaque:
    """Nobody knows how to make one."""


def two_arguments(_task, _other):
    return 3


def refused(*parts):
    """Expect a ``DefinitionError`` whose sentence has all the *parts*, in order."""
    return pytest.raises(DefinitionError, match=".*".join(map(re.escape, parts)))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Import source as a module of its own."""

    def load(source, name="declared_elsewhere"):
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


# -- required and optional -----------------------------------------------------------


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
        number: int = optional(default=7, le=5)

        def work(self):
            return self.day

    assert Tell.execute(number=1).value == date(2024, 2, 29)
    assert Tell.execute().errors.to_dict() == {"number": ["must be at most 5"]}


def test_the_options_of_a_field_can_be_read_on_the_class():
    class Tell(Task[None]):
        number: int = required(ge=3, description="how many")

    assert Tell.number.options["ge"] == 3
    assert Tell.number.required


def test_an_input_read_too_early_says_when_it_has_a_value():
    class Tell(Task[int]):
        number: int = required()

        def work(self):
            return self.number

    with pytest.raises(AttributeError, match="resolved before work"):
        _ = Tell(number=3).number


# -- private, output, ClassVar -------------------------------------------------------


def test_private_marks_an_annotation_that_is_no_field():
    class Count(Task[int]):
        step: int
        total: int = private()
        _cache: dict[str, int] = private()

        def work(self):
            self.total = self.step
            self._cache = {}
            return self.total

    assert Count.execute(step=2).value == 2
    with pytest.raises(TypeError, match="unexpected input 'total'"):
        Count.execute(step=2, total=3)


def test_a_private_name_has_no_value_until_it_is_set():
    class Count(Task[int]):
        total: int = private()

        def work(self):
            return self.total

    assert isinstance(Count.execute().cause, AttributeError)


def test_an_output_is_no_input():
    class Make(Task[None]):
        size: int = 1
        made: str = output()

        def work(self):
            self.made = "it"

    with pytest.raises(TypeError, match="unexpected input 'made'"):
        Make.execute(made="it")


def test_a_class_variable_is_no_field():
    class Count(Task[int]):
        step: int
        limit: ClassVar[int] = 3
        anything: ClassVar = 4

        def work(self):
            return self.limit + self.anything

    assert Count.execute(step=1).value == 7
    with pytest.raises(TypeError, match="unexpected input 'limit'"):
        Count.execute(step=1, limit=9)


def test_a_class_variable_is_known_by_whatever_name_typing_has():
    class Count(Task[int]):
        step: int
        limit: t.ClassVar[int] = 3

        def work(self):
            return self.limit

    assert list(Count.inputs_schema()["properties"]) == ["step"]


def test_a_class_variable_is_known_without_postponed_annotations(module):
    loaded = module("""
        import typing
        from typing import ClassVar
        from cmdx import Task

        class Count(Task[int]):
            step: int
            limit: ClassVar[int] = 3
            other: typing.ClassVar[list] = []
            quoted: "ClassVar[int]" = 5
    """)

    assert list(loaded.Count.inputs_schema()["properties"]) == ["step"]


def test_a_final_annotation_with_a_value_is_a_field_with_a_default():
    class Tell(Task[int]):
        number: Final[int] = 3

        def work(self):
            return self.number

    assert Tell.execute(number="4").value == 4


# -- inheritance ---------------------------------------------------------------------


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


# -- annotations that are not there yet ----------------------------------------------


def test_a_class_in_a_function_may_use_the_names_of_the_function():
    @attrs.frozen
    class Point:
        x: int

    class Tell(Task[int]):
        point: Point
        points: list[Point] = optional(factory=list)

        def work(self):
            return self.point.x + sum(point.x for point in self.points)

    assert Tell.execute(point={"x": "3"}, points=[{"x": 4}]).value == 7


def test_a_class_in_a_function_may_use_its_names_without_postponed_annotations(
    module,
):
    loaded = module("""
        import attrs
        from cmdx import Task, optional

        def make():
            @attrs.frozen
            class Point:
                x: int

            class Tell(Task[int]):
                point: Point
                quoted: "Point | None" = None
                inside: list["Point"] = optional(factory=list)

                def work(self):
                    return self.point.x + sum(point.x for point in self.inside)

            return Tell
    """)

    task = loaded.make()
    assert task.execute(point={"x": 3}, inside=[{"x": "4"}]).value == 7
    assert "inside[0].x" in task.execute(point={"x": 3}, inside=[{}]).errors


FORWARD = """
    {future}
    from typing import Annotated, Optional, Union

    import attrs

    from cmdx import Task

    class Tell(Task[int]):
        later: {annotation}

        def work(self):
            return self.later

    @attrs.frozen
    class Later:
        x: int
"""


@pytest.mark.parametrize(
    "annotation",
    [
        '"Later"',
        '"Later | None"',
        'list["Later"]',
        'Optional["Later"]',
        'Union["Later", int]',
        'Annotated["Later", "a note"]',
        'dict[str, list["Later"]]',
    ],
)
@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_an_annotation_may_name_a_class_that_is_defined_later(
    module, future, annotation
):
    loaded = module(FORWARD.format(future=future, annotation=annotation))

    wrap = {"list": lambda value: [value], "dict": lambda value: {"k": [value]}}
    kind = re.match(r"\w*", annotation).group()
    value = wrap.get(kind, lambda value: value)({"x": "3"})
    made = loaded.Tell.execute(later=value).value

    assert "Later(x=3)" in repr(made)


def test_postponed_annotations_may_name_a_class_that_is_defined_later(module):
    loaded = module(
        FORWARD.format(
            future="from __future__ import annotations", annotation="list[Later]"
        )
    )

    assert repr(loaded.Tell.execute(later=[{"x": 1}]).value) == "[Later(x=1)]"


def test_a_name_that_never_comes_is_refused_when_the_task_is_first_run(module):
    loaded = module("""
        from cmdx import Task

        class Tell(Task[int]):
            later: "Never"

            def work(self):
                return self.later
    """)

    with refused("Tell.later", "Never"):
        loaded.Tell.execute(later=3)


def test_a_name_for_type_checkers_alone_is_enough_when_nothing_is_coerced(module):
    loaded = module("""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from cmdx import Task, required

        if TYPE_CHECKING:
            from somewhere import Later

        class Tell(Task[int]):
            later: Later = required(coerce=False)

            def work(self):
                return self.later
    """)

    assert loaded.Tell.execute(later=3).value == 3


def test_a_model_may_name_a_class_that_is_defined_later(module):
    loaded = module("""
        from __future__ import annotations

        import attrs

        from cmdx import Task

        @attrs.frozen
        class Outer:
            inner: Inner

        class Tell(Task[int]):
            outer: Outer

            def work(self):
                return self.outer.inner.x

        @attrs.frozen
        class Inner:
            x: int
    """)

    assert loaded.Tell.execute(outer={"inner": {"x": "3"}}).value == 3


def test_a_model_that_names_what_only_its_function_knows_is_refused_with_a_cure():
    @attrs.frozen
    class Inner:
        x: int

    @attrs.frozen
    class Outer:
        inner: Inner

    class Tell(Task[int]):
        outer: Outer

        def work(self):
            return self.outer.inner.x

    with refused("Tell.outer", "Inner", "not defined", "coerce="):
        Tell.execute(outer={"inner": {"x": "3"}})


# -- alias ---------------------------------------------------------------------------


def test_callers_use_the_alias_and_the_task_its_own_name():
    class Tell(Task[str]):
        kind: str = required(alias="type")

        def work(self):
            return self.kind

    assert Tell.execute(type="book").value == "book"
    assert Tell.execute({"type": "book"}).value == "book"
    with pytest.raises(TypeError, match="unexpected input 'kind'"):
        Tell.execute(kind="book")


def test_errors_are_reported_under_the_alias():
    class Tell(Task[int]):
        kind: int = required(alias="type")

        def work(self):
            return self.kind

    assert Tell.execute().errors.to_dict() == {"type": ["is required"]}
    assert Tell.execute(type="x").errors.to_dict() == {
        "type": ["must be a whole number"]
    }


def test_an_alias_may_be_named_like_something_every_task_has():
    class Tell(Task[str]):
        surroundings: str = required(alias="context")

        def work(self):
            return self.surroundings

    assert Tell.execute(context="here").value == "here"


# -- source --------------------------------------------------------------------------


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


# -- coerce, transform, validate -----------------------------------------------------


def test_a_callable_given_as_coerce_takes_the_place_of_the_annotation():
    class Tell(Task[int]):
        number: int = required(coerce=lambda text: int(text, 2))

        def work(self):
            return self.number

    assert Tell.execute(number="101").value == 5
    assert Tell.execute(number="7").errors.to_dict()["number"] == [
        "invalid literal for int() with base 2: '7'"
    ]


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
        ("opaque", "cannot read this", "invalid")
    ]


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


@pytest.mark.parametrize("answer", [None, 0, "", True, "yes"])
def test_a_validator_that_returns_anything_but_false_agrees(answer):
    class Tell(Task[str]):
        name: str = required(validate=lambda _: answer)

        def work(self):
            return self.name

    assert Tell.execute(name="Ada").success


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


# -- gates and descriptions ----------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "gate"),
    [
        ("if_", lambda task: task.context.get("strict")),
        ("if_", "is_strict"),
        ("unless", lambda task: not task.context.get("strict")),
        ("unless", "is_lax"),
    ],
    ids=["if_ callable", "if_ method", "unless callable", "unless method"],
)
def test_a_gate_says_whether_an_input_is_required(option, gate):
    class Tell(Task[Any]):
        number: int = required(**{option: gate})

        def is_strict(self):
            return self.context.get("strict")

        def is_lax(self):
            return not self.is_strict()

        def work(self):
            return self.number

    assert Tell.execute({"strict": False}).value is None
    assert Tell.execute({"strict": True}).errors.to_dict() == {
        "number": ["is required"]
    }
    assert Tell.execute({"strict": False, "number": "3"}).value == 3
    assert Tell.execute({"strict": False, "number": "x"}).failed


def test_a_gate_may_look_at_the_inputs_before_it():
    class Ship(Task[Any]):
        pickup: bool = False
        address: str = required(unless=lambda task: task.pickup)

        def work(self):
            return self.address

    assert Ship.execute(pickup="yes").value is None
    assert Ship.execute().errors.to_dict() == {"address": ["is required"]}


@pytest.mark.parametrize(
    ("gates", "needed"),
    [
        ({"if_": True}, True),
        ({"if_": False}, False),
        ({"unless": True}, False),
        ({"unless": False}, True),
        ({"if_": True, "unless": True}, False),
        ({"if_": None, "unless": None}, True),
    ],
)
def test_a_gate_may_be_a_boolean(gates, needed):
    class Tell(Task[Any]):
        number: int = required(**gates)

        def work(self):
            return self.number

    assert Tell.execute().failed is needed


def test_a_description_is_part_of_the_schema():
    class Tell(Task[int]):
        number: int = required(description="how many")

    assert Tell.inputs_schema()["properties"]["number"]["description"] == "how many"


# -- contradictions ------------------------------------------------------------------


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
    [
        Opaque,
        list[Opaque],
        dict[str, Opaque],
        Opaque | None,
        tuple[int, Opaque],
        Annotated[Opaque, 3],
        Callable[[], int],
        type[int],
        TypeVar("T"),
        3,
    ],
)
def test_an_annotation_nobody_can_coerce_is_refused(annotation):
    with refused("Tell.opaque", "coerce=", "cmdx.coercions.register"):

        class Tell(Task[None]):
            opaque: annotation


@attrs.frozen
class Holder:
    opaque: Opaque


def test_a_model_with_a_field_nobody_can_coerce_is_refused():
    with refused("Tell.holder", "Opaque", "coerce="):

        class Tell(Task[None]):
            holder: Holder


def test_a_model_is_refused_every_time_it_is_used():
    for _ in range(2):
        with refused("Tell.holder", "Opaque"):

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
    assert "Its options are alias" in message


def test_optional_refuses_unknown_options_too():
    with refused("optional()", "'dscription'", "did you mean 'description'?"):
        optional(default=3, dscription="how many")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"alias": 3}, "a name"),
        ({"alias": ""}, "a name"),
        ({"source": 3}, "the name of a method"),
        ({"source": ""}, "the name of a method"),
        ({"coerce": 3}, "a callable"),
        ({"coerce": "int"}, "a callable"),
        ({"transform": "strip"}, "a callable"),
        ({"validate": "check"}, "callable"),
        ({"validate": [len, 3]}, "callable"),
        ({"description": 3}, "text"),
        ({"format": 3}, "strptime"),
        ({"if_": 3}, "a callable"),
        ({"unless": []}, "a callable"),
        ({"pattern": "("}, "unterminated"),
        ({"pattern": 3}, "is refused"),
        ({"one_of": 3}, "is refused"),
        ({"none_of": 3}, "is refused"),
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
    with refused("Tell.number", "'found'", "no method", "Define it"):

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
            opaque: Opaque

    assert "Tell" not in locals()


# -- registered types ----------------------------------------------------------------


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
