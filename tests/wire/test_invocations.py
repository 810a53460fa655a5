"""Invocations come back from JSON as they were, or are refused when dumped."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum, auto
from fractions import Fraction
from pathlib import Path
from typing import (
    IO,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from cmdx import Context, Task, coercions, optional, required
from cmdx.wire import (
    RefusedInputError,
    WireError,
    dump_invocation,
    encodings,
    fingerprint,
    load_invocation,
)

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = "RED"
    PAIR = (1, 2)


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Word(StrEnum):
    YES = auto()


class Right(Flag):
    READ = auto()
    WRITE = auto()


@attrs.frozen
class Address:
    street: str
    _zip: Decimal | str = "0"


@dataclass
class Order:
    number: int
    to: Address
    lines: list[Line] = field(default_factory=list)


@dataclass
class Line:
    title: str
    price: Decimal


@dataclass
class OtherLine:
    title: str
    price: Decimal


@dataclass
class Box(Generic[T]):
    inside: T


@attrs.define
class Node:
    name: str
    below: list[Node] = attrs.field(factory=list)


class Point(NamedTuple):
    x: int
    y: Decimal


class Note(TypedDict):
    text: str
    at: NotRequired[datetime]


class Base(BaseModel):
    at: date


class Model(BaseModel):
    name: str
    price: Decimal
    base: Base | None = None


class Aliased(BaseModel):
    name: str = Field(alias="Name")


class Picture(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    body: bytes


class PlainPicture(BaseModel):
    body: bytes


class Holder(BaseModel):
    held: Any


circle: list[Any] = []
circle.append(circle)

OrderId = NewType("OrderId", int)
BERLIN = ZoneInfo("Europe/Berlin")


def task_with(annotation, **options):
    """A task with one input; locals need names."""
    names = {
        "__annotations__": {"it": annotation},
        "__module__": __name__,
        "__qualname__": "WithInput",
        "work": lambda self: self.it,
    }
    if options:
        names["it"] = required(**options)
    return type("WithInput", (Task,), names, name="test.with_input")


def come_back(annotation, value, **options):
    """What the input is after the task was stored and loaded."""
    task = task_with(annotation, **options)(it=value)
    loaded = load_invocation(json.loads(json.dumps(dump_invocation(task))))
    return loaded._cmdx_.given["it"]


def stored(annotation, value, **options):
    return dump_invocation(task_with(annotation, **options)(it=value))["inputs"]["it"]


# -- every annotation comes back -----------------------------------------------------

EVERY_VALUE = [
    ("str", str, "x"),
    ("blank str", str, " "),
    ("int", int, 10**4000),
    ("float", float, -0.0),
    ("infinity", float, float("inf")),
    ("bool", bool, False),
    ("Decimal", Decimal, Decimal("2.50")),
    ("Decimal NaN", Decimal, Decimal("NaN")),
    ("Fraction", Fraction, Fraction(-1, 3)),
    ("complex", complex, complex(-0.0, 2)),
    ("complex infinity", complex, complex(1, float("-inf"))),
    ("date", date, date(2026, 2, 3)),
    ("datetime", datetime, datetime(2026, 2, 3, 4, 5, 6, 7)),  # noqa: DTZ001
    ("datetime UTC", datetime, datetime(2026, 2, 3, tzinfo=UTC)),
    ("datetime zone", datetime, datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)),
    (
        "datetime offset",
        datetime,
        datetime(2026, 2, 3, tzinfo=timezone(-timedelta(0, 1))),
    ),
    ("time", time, time(1, 2, 3, fold=1)),
    ("timedelta", timedelta, timedelta(days=-400, microseconds=1)),
    ("timedelta min", timedelta, timedelta.min),
    ("UUID", UUID, UUID(int=7)),
    ("Path", Path, Path("a/b")),
    ("bytes", bytes, b"text"),
    ("bytes no UTF-8", bytes, b"\xff\x00"),
    ("bytearray", bytearray, bytearray(b"\xff")),
    ("bytearray in a union", bytes | bytearray, bytearray(b"a")),
    ("Enum", Color, Color.RED),
    ("Enum value is a name", Color, Color.BLUE),
    ("Enum tuple", Color, Color.PAIR),
    ("IntEnum", Size, Size.LARGE),
    ("Flag", Right, Right.READ | Right.WRITE),
    ("Literal", Literal[1, "1"], "1"),
    ("Literal bytes", Literal[b"a"], b"a"),
    ("Literal Enum", Literal[Color.BLUE, "RED"], Color.BLUE),
    ("list", list[Decimal], [Decimal(1)]),
    ("tuple", tuple[int, str], (1, "a")),
    ("tuple of any length", tuple[UUID, ...], (UUID(int=1),)),
    ("set", set[int], {3, 1}),
    ("frozenset", frozenset[date], frozenset({date(2026, 1, 1)})),
    ("dict", dict[int, Decimal], {7: Decimal(1)}),
    ("dict of tuples", dict[tuple[int, int], str], {(1, 2): "a"}),
    ("dict with the key of tags", dict[str, Any], {"$": "float", "value": "1"}),
    ("dict of both", dict[int | str, int], {1: 1, "1": 2}),
    ("union", Decimal | str, Decimal(1)),
    ("union text", Decimal | str, "1"),
    ("union number", int | float | str, 1.0),
    ("union Enum", str | Color, Color.RED),
    ("union classes", Line | OtherLine, OtherLine("a", Decimal(1))),
    ("union StrEnum", Word | str, Word.YES),
    ("optional", int | None, None),
    ("attrs", Address, Address("a", Decimal(1))),
    ("attrs text", Address, Address("a", "1")),
    ("dataclass", Order, Order(1, Address("a"), [Line("b", Decimal(2))])),
    ("generic", Box[Decimal], Box(Decimal(1))),
    ("recursive", Node, Node("a", [Node("b")])),
    ("TypedDict", Note, {"text": "a", "at": datetime(2026, 1, 1, tzinfo=UTC)}),
    ("NamedTuple", Point, Point(1, Decimal(2))),
    (
        "pydantic",
        Model,
        Model(name="a", price=Decimal("1.0"), base=Base(at="2026-01-01")),
    ),
    ("list of models", list[Model], [Model(name="a", price=1)]),
    ("pydantic alias", Aliased, Aliased(Name="a")),
    ("pydantic bytes", Picture, Picture(body=b"\xff")),
    ("NewType", OrderId, 7),
    ("Annotated", Annotated[Decimal | str, "a note"], Decimal(1)),
    ("Any", Any, {"a": [1, (Decimal(1), {b"x"})], 2: None}),
]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [row[1:] for row in EVERY_VALUE],
    ids=[row[0] for row in EVERY_VALUE],
)
def test_a_value_comes_back_equal_and_of_the_same_type(annotation, value):
    back = come_back(annotation, value)

    assert type(back) is type(value)
    assert repr(back) == repr(value)


SCALARS = {
    str: st.text(),
    int: st.integers(),
    float: st.floats(),
    bool: st.booleans(),
    Decimal: st.decimals(allow_nan=False),
    Fraction: st.fractions(),
    complex: st.complex_numbers(),
    date: st.dates(),
    datetime: st.datetimes(timezones=st.none() | st.timezones()),
    time: st.times(),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    bytes: st.binary(),
    Color: st.sampled_from(Color),
    Right: st.sampled_from([Right.READ, Right.WRITE, Right.READ | Right.WRITE]),
    type(None): st.none(),
}
scalars = st.sampled_from(list(SCALARS)).map(lambda kind: (kind, SCALARS[kind]))


def containers(parts):
    keys = st.sampled_from([str, int, date, Color, UUID])
    return st.one_of(
        parts.map(lambda part: (list[part[0]], st.lists(part[1], max_size=3))),
        parts.map(lambda part: (tuple[part[0], ...], st.tuples(part[1]))),
        keys.map(lambda kind: (set[kind], st.sets(SCALARS[kind], max_size=3))),
        st.tuples(keys, parts).map(
            lambda both: (
                dict[both[0], both[1][0]],
                st.dictionaries(SCALARS[both[0]], both[1][1], max_size=3),
            )
        ),
        st.tuples(parts, parts).map(
            lambda both: (both[0][0] | both[1][0], both[0][1] | both[1][1])
        ),
        parts.map(lambda part: (Box[part[0]], part[1].map(Box))),
    )


annotated_values = st.recursive(scalars, containers, max_leaves=4).flatmap(
    lambda pair: st.tuples(st.just(pair[0]), pair[1])
)


@given(annotated_values)
def test_whatever_the_coercion_takes_comes_back_the_same_or_is_refused(pair):
    annotation, value = pair
    task = task_with(annotation)
    coerced = task.execute(it=value).value
    try:
        data = dump_invocation(task(it=value))
    except WireError:
        assert is_ambiguous(annotation)
        return
    back = load_invocation(json.loads(json.dumps(data))).run().value

    assert type(back) is type(coerced)
    assert ordered_repr(back) == ordered_repr(coerced)


def is_ambiguous(annotation):
    """
    Whether an instance may be refused because its fields would be read as others.

    The coercion takes instances as they are, but reads stored fields by annotation.
    """
    text = repr(annotation)
    return text.count("Box[") > 1 or ("Box[" in text and "|" in text)


def ordered_repr(value):
    """The repr of a value; sets have no order of their own."""
    if isinstance(value, set):
        return sorted(map(repr, value))
    if isinstance(value, dict):
        return [(repr(key), ordered_repr(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [ordered_repr(item) for item in value]
    return [ordered_repr(value.inside)] if isinstance(value, Box) else repr(value)


# -- what is stored -------------------------------------------------------------------


def test_a_value_is_stored_as_the_json_that_its_type_reads():
    assert stored(Line, Line("a", Decimal("2.50"))) == {"title": "a", "price": "2.50"}


def test_an_ambiguous_value_carries_its_type():
    assert stored(Decimal | str, Decimal(1)) == {"$": "Decimal", "value": "1"}


def test_inputs_are_stored_coerced():
    assert stored(int, "7") == 7


def test_inputs_are_stored_before_they_are_transformed():
    task = task_with(str, transform=str.upper)
    data = dump_invocation(task(it="a"))

    assert data["inputs"] == {"it": "a"}
    assert load_invocation(data).run().value == "A"


def test_what_a_function_coerces_is_stored_as_it_was_given():
    task = task_with(int, coerce=len)
    data = dump_invocation(task(it="abc"))

    assert data["inputs"] == {"it": "abc"}
    assert load_invocation(data).run().value == 3


def test_what_is_not_coerced_comes_back():
    assert come_back(Decimal, Decimal(1), coerce=False) == Decimal(1)


def test_a_date_with_a_format_of_its_own_comes_back():
    assert come_back(date, "03.02.2026", format="%d.%m.%Y") == date(2026, 2, 3)


def test_the_public_name_of_an_input_is_stored():
    task = task_with(int, alias="number")

    assert dump_invocation(task(number=7))["inputs"] == {"number": 7}


def test_what_was_not_given_is_left_out():
    class Default(Task[int], name="test.default"):
        number: int = 7
        made: list[int] = optional(factory=list)
        asked: int = required(source=lambda: 8)

        def work(self) -> int:
            return self.number

    assert dump_invocation(Default())["inputs"] == {}


def test_blank_text_for_what_is_no_text_was_not_given():
    class Blank(Task[int], name="test.blank"):
        number: int = 7

        def work(self) -> int:
            return self.number

    assert dump_invocation(Blank(number=" "))["inputs"] == {}


def test_of_a_context_the_declared_inputs_are_stored():
    task = task_with(int)(Context(it=7, connection=object()))

    assert dump_invocation(task)["inputs"] == {"it": 7}


def test_a_task_without_inputs_stores_json():
    class Free(Task[None], name="test.free"):
        def work(self) -> None: ...

    data = dump_invocation(Free(a=[1, {"b": None}]))

    assert load_invocation(data).context.to_dict() == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    "value", [(1,), Decimal(1), b"a"], ids=["tuple", "Decimal", "bytes"]
)
def test_a_task_without_inputs_stores_json_only(value):
    class Bare(Task[None], name="test.bare"):
        def work(self) -> None: ...

    with pytest.raises(WireError, match=r"Bare\.a cannot be stored: it is not JSON"):
        dump_invocation(Bare(a=value))


def deep_list(levels):
    deep: list[Any] = []
    for _ in range(levels):
        deep = [deep]
    return deep


@pytest.mark.parametrize("dump", [dump_invocation, fingerprint])
@pytest.mark.parametrize("value", [deep_list(3000), circle], ids=["deep", "circle"])
def test_a_task_without_inputs_refuses_data_without_end(dump, value):
    class Endless(Task[None], name="test.endless"):
        def work(self) -> None: ...

    with pytest.raises(
        WireError, match=r"Endless\.a cannot be stored: it is nested"
    ) as (refusal):
        dump(Endless(a=value))
    assert not isinstance(refusal.value, RefusedInputError)


def test_a_declared_input_that_is_nested_too_deeply_is_refused():
    with pytest.raises(
        WireError, match=r"WithInput\.it cannot be stored: it is nested"
    ):
        stored(list, deep_list(3000))


def test_a_registered_class_is_stored_by_its_encoding():
    class Money:
        def __init__(self, text):
            self.text = text

        def __eq__(self, other):
            raise AssertionError

        __hash__ = None

    coercions.register(Money, Money)
    encodings.register(Money, lambda money: money.text)
    try:
        assert stored(Money, Money("7 EUR")) == "7 EUR"
        assert come_back(list[Money], [Money("7 EUR")])[0].text == "7 EUR"
    finally:
        coercions.deregister(Money)
        encodings.deregister(Money)


def test_a_value_that_is_encoded_as_null_carries_its_type():
    class Nothing:
        pass

    coercions.register(Nothing, lambda _null: Nothing())
    encodings.register(Nothing, lambda _nothing: None)
    try:
        assert stored(Nothing, Nothing())["$"] == "object"
        assert type(come_back(Nothing, Nothing())) is Nothing
    finally:
        coercions.deregister(Nothing)
        encodings.deregister(Nothing)


# -- what is refused ------------------------------------------------------------------


class Zone(tzinfo):
    def utcoffset(self, _):
        return timedelta(hours=1)


@dataclass
class Counted:
    start: InitVar[int]
    count: int = field(init=False)

    def __post_init__(self, start):
        self.count = start


class Secret(BaseModel):
    password: SecretStr


class Derived(Base):
    more: int = 1


@dataclass
class LongLine(Line):
    pass


REFUSED = [
    ("object", Any, object(), "it is an instance of object"),
    ("nested", dict[str, list[Any]], {"a": [1, object()]}, r"it\[a\]\[1\] "),
    ("field", Any, {"a": OrderedDict()}, r"it\[a\] "),
    ("function", Callable[[], int], len, "builtin_function"),
    ("class", type[int], int, "instance of type"),
    ("subclass", Line, LongLine("a", Decimal(1)), "another value"),
    ("wrong type inside", Line, Line("a", "1"), r"price cannot be stored: it would"),
    ("time zone", datetime, datetime(2026, 1, 1, tzinfo=Zone()), "zoneinfo"),
    ("not rebuilt", Counted, Counted(1), "another value"),
    ("secret", Secret, Secret(password="a"), "secret"),  # noqa: S106
    (
        "bytes in a model",
        PlainPicture,
        PlainPicture(body=b"\xff"),
        'bytes that are not UTF-8.* set ser_json_bytes="base64" and val_json_bytes',
    ),
    (
        "object in a model",
        Holder,
        Holder(held=object()),
        "raises PydanticSerializationError; give it a field_serializer",
    ),
    (
        "derived inside",
        Model,
        Model(name="a", price=1, base=Derived(at="2026-01-01")),
        "another",
    ),
    ("contains itself", Any, circle, "nested too deeply"),
    ("too many digits", int, 10**5000, "too many digits"),
    ("invalid", int, "x", "must be a whole number"),
    ("stream", Iterator[int], iter([1]), "list_iterator"),
]


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
def test_what_would_not_come_back_is_refused(annotation, value, message):
    with pytest.raises(WireError, match=message):
        stored(annotation, value)


# -- hostile data ---------------------------------------------------------------------


def load(data, annotation=int):
    task = task_with(annotation)
    assert task is not None
    return load_invocation(data)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"task": "test.with_input"},
        {"task": None, "module": "", "inputs": {}},
        {"task": "test.with_input", "module": "", "inputs": []},
        {"task": ["test.with_input"], "module": "", "inputs": {}},
    ],
    ids=repr,
)
def test_what_no_dump_looks_like_is_refused(data):
    with pytest.raises(WireError, match="this is not what dump_invocation returns"):
        load(data)


@pytest.mark.parametrize(
    "value",
    [
        "x",
        [],
        {"$": "eval", "value": "1"},
        {"$": []},
        {"$": "object", "of": "Popen", "value": []},
        {"$": "object", "of": [], "value": []},
        {"$": "bytes", "value": "?"},
        {"$": "datetime", "value": 7},
        {"$": "datetime", "value": ["2026-01-01", "../secret", 0]},
        {"$": "timedelta", "value": [10**30]},
        {"$": "UUID", "value": 7},
        {"$": "Fraction", "value": "1e999999999"},
        {"$": "time", "value": ["01:00", "Europe", 0]},
    ],
    ids=repr,
)
def test_an_edited_input_is_refused(value):
    data = {"task": "test.with_input", "module": "", "inputs": {"it": value}}

    with pytest.raises(WireError, match=r"WithInput\.it was stored, but"):
        load(data)


def test_an_edited_field_of_a_named_tuple_is_refused():
    point = {"$": "object", "of": "Point", "value": ["x", "1"]}
    data = {"task": "test.with_input", "module": "", "inputs": {"it": point}}

    with pytest.raises(WireError, match=r"WithInput\.it was stored, but"):
        load(data, Point)


@pytest.mark.parametrize("dump", [dump_invocation, fingerprint])
def test_a_class_is_not_an_invocation(dump):
    with pytest.raises(TypeError, match="an invocation is needed"):
        dump(Charge)


def test_an_input_that_the_task_does_not_have_is_refused():
    data = {"task": "test.with_input", "module": "", "inputs": {"other": 1}}

    with pytest.raises(WireError, match="has no input 'other'"):
        load(data)


# -- fingerprints ---------------------------------------------------------------------


class Charge(Task[None], name="test.charge"):
    order_id: int
    currency: str = "EUR"
    parts: dict[tuple[int, int], int] = optional(factory=dict)
    client: Any = optional(factory=object)
    body: IO[bytes] | None = None

    def work(self) -> None: ...


def test_a_fingerprint_is_the_sha_256_of_name_and_inputs_as_canonical_json():
    text = b'["test.charge",{"currency":"USD","order_id":7}]'
    task = Charge(order_id="7", currency="USD")

    assert fingerprint(task) == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    ("inputs", "others"),
    [
        ({"order_id": 7}, {"order_id": "7"}),
        ({"order_id": 7}, {"order_id": 7, "currency": "EUR"}),
        ({"order_id": 7}, {"order_id": 7, "client": object}),
        ({"order_id": 7}, {"order_id": 7, "body": None}),
        (
            {"order_id": 7, "parts": {(1, 2): 3, (4, 5): 6}},
            {"order_id": 7, "parts": {(4, 5): 6, (1, 2): 3}},
        ),
    ],
    ids=["coerced", "default", "factory", "stream", "order of keys"],
)
def test_the_same_inputs_have_the_same_fingerprint(inputs, others):
    assert fingerprint(Charge(**inputs)) == fingerprint(Charge(**others))


@pytest.mark.parametrize(
    "others",
    [
        {"order_id": 8},
        {"order_id": 7, "currency": "USD"},
        {"order_id": 7, "parts": {(1, 2): 3}},
    ],
    ids=["input", "default", "factory"],
)
def test_other_inputs_have_another_fingerprint(others):
    assert fingerprint(Charge(order_id=7)) != fingerprint(Charge(**others))


def test_other_tasks_have_another_fingerprint():
    class Refund(Charge, name="test.refund"):
        pass

    assert fingerprint(Charge(order_id=7)) != fingerprint(Refund(order_id=7))


def test_a_stream_is_no_part_of_the_fingerprint(tmp_path):
    (tmp_path / "body").write_bytes(b"a")
    with (tmp_path / "body").open("rb") as body:
        with_body = fingerprint(Charge(order_id=7, body=body))

    assert with_body == fingerprint(Charge(order_id=7))
