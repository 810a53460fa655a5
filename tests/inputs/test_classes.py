"""Classes as annotations: instances, models, protocols, generics, recursion."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypedDict,
    TypeVar,
    Union,
    runtime_checkable,
)

import attrs
import pytest
from typing_extensions import TypeAliasType

from cmdx import DefinitionError, Task, coercions

T = TypeVar("T")
N = TypeVar("N", bound=int)
E = TypeVar("E", int, bytes)


class User:
    def __repr__(self):
        return type(self).__name__.lower()  # the same in every run: it names tests


class Admin(User):
    pass


class Walks(Protocol):
    def walk(self) -> None: ...


@runtime_checkable
class Flies(Protocol):
    def fly(self) -> None: ...


class Bird:
    def fly(self) -> None: ...

    def __repr__(self):
        return "bird"


USER, ADMIN, BIRD = User(), Admin(), Bird()

# -- instances -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (User, USER),
        (User, ADMIN),
        (User | None, USER),
        (list[User], [USER, ADMIN]),
        (dict[str, User], {"a": USER}),
        pytest.param(Iterator[int], iter(()), id="Iterator[int]-iterator"),
        (Callable[[str], int], len),
        (Callable, print),
        (type[User], Admin),
        (type, int),
        (Walks, 3),
        (Flies, BIRD),
        (T, USER),
        (E, b"x"),
    ],
    ids=str,
)
def test_a_value_of_the_right_class_is_taken_as_it_is(taking, annotation, value):
    taken = taking(annotation).execute(x=value).or_raise().value

    assert taken is value or taken == value


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (User, "Ada", ("x", "instance")),
        (User, {"name": "Ada"}, ("x", "instance")),
        (Admin, USER, ("x", "instance")),
        (list[User], [USER, 3], ("x[1]", "instance")),
        (Iterator[int], [1], ("x", "instance")),
        (Callable[[str], int], 3, ("x", "callable")),
        (type[User], int, ("x", "subclass")),
        (type[User], USER, ("x", "subclass")),
        (Flies, USER, ("x", "instance")),
        (N, "x", ("x", "int")),
        (E, 1.5, ("x", "union")),
    ],
    ids=str,
)
def test_a_value_of_another_class_is_refused(problems, annotation, value, expected):
    assert problems(annotation, value) == [expected]


def test_the_message_names_the_class(taking):
    assert taking(User).execute(x=3).reason == "x must be an instance of User"


# -- models that validate themselves ---------------------------------------------------


def test_a_pydantic_model_is_made_from_a_mapping(taking, problems):
    pydantic = pytest.importorskip("pydantic")

    class Line(pydantic.BaseModel):
        sku: str
        quantity: int = pydantic.Field(ge=1)

    class Cart(pydantic.BaseModel):
        lines: list[Line]

    line = Line(sku="cup", quantity=2)
    assert taking(Line).execute(x={"sku": "cup", "quantity": "2"}).value == line
    assert taking(Line).execute(x=line).value is line
    assert problems(Line, 3) == [("x", "object")]
    assert problems(Cart, {"lines": [{"quantity": 0}]}) == [
        ("x.lines[0].sku", "required"),
        ("x.lines[0].quantity", "greater_than_equal"),
    ]


def test_what_a_model_says_is_not_repeated_because_it_quotes_the_value(taking):
    pydantic = pytest.importorskip("pydantic")

    class Login(pydantic.BaseModel):
        password: str = pydantic.Field(min_length=20)

    result = taking(Login).execute(x={"password": "hunter2"})

    assert result.reason == "x.password is invalid"


def test_a_model_of_another_library_is_taken_too(taking):
    class Own:
        def __init__(self, name):
            self.name = name

        @classmethod
        def model_validate(cls, given):
            if set(given) != {"name"}:
                raise ValueError(f"what is {given}?")
            return cls(**given)

    assert taking(Own).execute(x={"name": "Ada"}).value.name == "Ada"
    assert taking(Own).execute(x={"nmae": "Ada"}).reason == "x is invalid"


# -- generics --------------------------------------------------------------------------


@dataclass
class Box(Generic[T]):
    item: T


@dataclass
class IntBox(Box[int]):
    pass


@dataclass
class ListBox(Box[list[T]], Generic[T]):
    extra: T


@dataclass
class OpenBox(Box):
    """It leaves the type variable open."""


@dataclass
class MixedBox(OpenBox, Box[int]):
    pass


@attrs.frozen
class Node(Generic[T]):
    value: T
    next: Node[T] | None = None


class Entry(TypedDict, Generic[T]):
    value: T


BOXES = {"a": (Box(1), Box(2))}
Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Box[int], {"item": "3"}, Box(3)),
        (Box, {"item": "3"}, Box("3")),
        (IntBox, {"item": "3"}, IntBox(3)),
        (Box[Annotated[int, ["a note"]]], {"item": "3"}, Box(3)),
        (MixedBox, {"item": "3"}, MixedBox(3)),
        (ListBox[int], {"item": ["3"], "extra": "4"}, ListBox([3], 4)),
        (Node[int], {"value": "1", "next": {"value": "2"}}, Node(1, Node(2))),
        (Entry[int], {"value": "3"}, {"value": 3}),
        (Pair[int], ["1", "2"], (1, 2)),
        (dict[str, Pair[Box[int]]], {"a": [{"item": "1"}, Box(2)]}, BOXES),
    ],
    ids=str,
)
def test_type_variables_stand_for_what_they_are_given(
    taking, annotation, value, expected
):
    assert taking(annotation).execute(x=value).or_raise().value == expected


def test_the_type_variables_of_a_task_stand_for_what_a_subclass_gives_them():
    class Store(Task[T], Generic[T]):
        item: T
        others: list[T]

        def work(self):
            return self.item, self.others

    class StoreInt(Store[int]):
        pass

    class StoreMore(StoreInt):
        pass

    given = {"item": "3", "others": ["4"]}
    assert Store.execute(given).value == ("3", ["4"])
    assert StoreInt.execute(given).value == (3, [4])
    assert StoreMore.execute(given).value == (3, [4])
    assert StoreInt.inputs_schema()["properties"]["item"] == {"type": "integer"}


# -- types that contain themselves -----------------------------------------------------

Json = Union[dict[str, "Json"], list["Json"], int, None]  # noqa: UP007 -- a quoted name
NESTED = {"a": [1, {"b": [None, "2"]}]}


@dataclass
class Document:
    body: Json


def test_an_alias_may_name_itself_in_quotes(taking):
    class Take(Task[Any]):
        x: Json

        def work(self):
            return self.x

    assert Take.execute(x=NESTED).value == {"a": [1, {"b": [None, 2]}]}
    assert Take.execute(x={"a": [b"x"]}).errors["x[a][0]"] == [
        "must be one of dict[str, Json], list[Json], int, None"
    ]
    assert taking(Document).execute(x={"body": NESTED}).value.body["a"][0] == 1
    schema = Take.inputs_schema()
    assert schema["properties"]["x"]["anyOf"][1]["items"] == {"$ref": "#/$defs/Json"}
    assert schema["$defs"]["Json"]["anyOf"][2] == {"type": "integer"}


TYPE_STATEMENTS = """
type Json = dict[str, Json] | list[Json] | int | None
type Tree[T] = T | list[Tree[T]]
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement")
def test_an_alias_of_a_type_statement_may_name_itself(taking, problems):
    names: dict[str, Any] = {}
    exec(TYPE_STATEMENTS, names)  # noqa: S102 -- newer syntax
    json, tree = names["Json"], names["Tree"]

    assert taking(json).execute(x=NESTED).value == {"a": [1, {"b": [None, 2]}]}
    assert taking(tree[int]).execute(x=["1", ["2"]]).value == [1, [2]]
    assert problems(tree[int], ["1", ["x"]]) == [("x[1][0]", "union")]
    schema = taking(json).inputs_schema()
    assert schema["properties"]["x"] == {"$ref": "#/$defs/Json"}
    assert schema["$defs"]["Json"]["anyOf"][1]["items"] == {"$ref": "#/$defs/Json"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement")
def test_an_alias_that_stands_only_for_itself_is_refused(taking):
    names: dict[str, Any] = {}
    exec("type First = Second\ntype Second = First", names)  # noqa: S102 -- newer

    with pytest.raises(DefinitionError, match="First"):
        taking(names["First"])


# -- what classes take besides their fields --------------------------------------------


def test_a_dataclass_takes_what_only_its_init_knows(taking):
    @dataclass
    class Price:
        cents: int
        tax: InitVar[int]
        currency: ClassVar[str] = "EUR"

        def __post_init__(self, tax):
            self.cents += tax

    assert taking(Price).execute(x={"cents": "100", "tax": "20"}).value.cents == 120
    assert taking(Price).execute(x={"cents": "100"}).reason == "x.tax is required"


@dataclass
class Quoted(Generic[T]):
    amount: InitVar["int"]  # noqa: UP037 -- the case
    parts: InitVar[list["Quoted[int]"]] = ()  # noqa: UP037 -- the case
    other: InitVar[T | None] = None

    def __post_init__(self, amount, parts, other):
        self.given = amount, [part.given for part in parts], other


def test_the_type_of_what_only_init_takes_may_be_in_quotes(taking):
    values = {"amount": "1", "parts": [{"amount": "2"}], "other": "3"}
    result = taking(Quoted[int]).execute(x=values)

    assert result.value.given == (1, [(2, [], None)], 3)
    assert taking(Quoted[int]).execute(x={"other": 3}).reason == "x.amount is required"


class Size(Enum):
    SMALL = 1
    RANGE = [2, 3]  # noqa: RUF012 -- a value that cannot be hashed

    @classmethod
    def _missing_(cls, value):
        return cls.SMALL if value == "tiny" else None


@pytest.mark.parametrize(
    ("value", "member"), [("tiny", Size.SMALL), ([2, 3], Size.RANGE)]
)
def test_an_enum_decides_itself_about_values_that_are_not_listed(taking, value, member):
    assert taking(Size).execute(x=value).value is member


# -- many threads, little memory -------------------------------------------------------


def test_first_runs_in_several_threads_never_see_an_unfinished_coercer():
    def run(task, start, reasons):
        start.wait()
        reasons.append(task.execute(x={"value": "1", "next": {"value": 2}}).reason)

    reasons: list[str | None] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):

            class Take(Task[None]):
                x: Node[Box[int] | int]

                def work(self) -> None: ...

            coercions.register(Bird, lambda _: BIRD)  # all coercers are made anew
            start = threading.Barrier(4)
            threads = [
                threading.Thread(target=run, args=(Take, start, reasons))
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
        coercions.deregister(Bird)

    assert reasons == [None] * 120


def test_a_class_used_as_an_input_is_not_kept_alive():
    def use():
        @dataclass
        class Local:
            number: int

        class Take(Task[Any]):
            x: Local

            def work(self):
                return self.x

        assert Take.execute(x={"number": "1"}).value.number == 1
        return weakref.ref(Local)

    local = use()
    gc.collect()

    assert local() is None
