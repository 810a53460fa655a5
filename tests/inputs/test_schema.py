"""The contract of a task as JSON Schema."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdx import Task, coercions, optional, output, private, required

try:
    import jsonschema
except ImportError:  # pragma: no cover -- in the tests group
    jsonschema = None

needs_jsonschema = pytest.mark.skipif(
    jsonschema is None, reason="jsonschema is not installed"
)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Ge:
    ge: Any


@attrs.frozen
class Len:
    min_length: int = 0
    max_length: int | None = None


@attrs.frozen
class Point:
    x: int
    y: Annotated[int, Ge(0)] = 0
    _hidden: str = ""


@dataclasses.dataclass
class Size:
    width: float
    tags: list[str] = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@attrs.frozen
class Node:
    name: str
    children: list[Node] = attrs.field(factory=list)


UserId = NewType("UserId", int)

SCHEMAS = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (Decimal, {"type": ["number", "string"]}),
    (Fraction, {"type": ["number", "string"]}),
    (complex, {"type": ["number", "string"]}),
    (date, {"type": "string", "format": "date"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (time, {"type": "string", "format": "time"}),
    (timedelta, {"type": ["number", "string"], "format": "duration"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (Path, {"type": "string"}),
    (bytes, {"type": "string"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (Color, {"enum": ["red", "blue"]}),
    (Level, {"enum": [1, 2]}),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (Literal[Color.RED], {"enum": ["red"]}),
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (list[Any], {"type": "array"}),
    (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    (frozenset, {"type": "array", "uniqueItems": True}),
    (tuple, {"type": "array"}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
        },
    ),
    (dict, {"type": "object"}),
    (
        dict[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ),
    (UserId, {"type": "integer"}),
    (Annotated[int, "a note"], {"type": "integer"}),
    (Annotated[int, Ge(1)], {"type": "integer", "minimum": 1}),
    (Annotated[str, Len(1, 5)], {"type": "string", "minLength": 1, "maxLength": 5}),
    (
        Annotated[list[int], Len(1)],
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    ),
    (
        Annotated[str, re.compile("[a-z]+")],
        {"type": "string", "pattern": "^(?:[a-z]+)$"},
    ),
    (Point, {"$ref": "#/$defs/Point"}),
    (
        list[Point] | None,
        {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/Point"}},
                {"type": "null"},
            ]
        },
    ),
]

OPTIONS = [
    (int, {"gt": 1}, {"exclusiveMinimum": 1}),
    (int, {"ge": 1}, {"minimum": 1}),
    (int, {"lt": 1}, {"exclusiveMaximum": 1}),
    (int, {"le": 1}, {"maximum": 1}),
    (int, {"ge": 0, "le": 0}, {"minimum": 0, "maximum": 0}),
    (int, {"multiple_of": 3}, {"multipleOf": 3}),
    (str, {"min_length": 1}, {"minLength": 1}),
    (str, {"max_length": 0}, {"maxLength": 0}),
    (str, {"length": 3}, {"minLength": 3, "maxLength": 3}),
    (str, {"presence": True}, {"minLength": 1}),
    (list[str], {"presence": True}, {"minItems": 1}),
    (list[str], {"min_length": 1, "max_length": 2}, {"minItems": 1, "maxItems": 2}),
    (dict[str, str], {"length": 2}, {"minProperties": 2, "maxProperties": 2}),
    (str, {"pattern": "a|b"}, {"pattern": "^(?:a|b)$"}),
    (str, {"pattern": re.compile("a")}, {"pattern": "^(?:a)$"}),
    (str, {"one_of": ["a", "b"]}, {"enum": ["a", "b"]}),
    (str, {"none_of": ["a"]}, {"not": {"enum": ["a"]}}),
    (str, {"description": "what"}, {"description": "what"}),
]


def x_of(task):
    return task.inputs_schema()["properties"]["x"]


@pytest.mark.parametrize(("annotation", "expected"), SCHEMAS)
def test_an_annotation_is_described(taking, annotation, expected):
    assert x_of(taking(annotation)) == expected


@pytest.mark.parametrize(("annotation", "options", "expected"), OPTIONS)
def test_the_options_of_an_input_are_described(taking, annotation, options, expected):
    plain = x_of(taking(annotation))

    assert x_of(taking(annotation, **options)) == plain | expected


@pytest.mark.parametrize(
    ("pattern", "translated"),
    [
        (r"\Aab\Z", "^ab$"),
        (r"(?P<year>[0-9]{4})-(?P=year)", r"(?<year>[0-9]{4})-\k<year>"),
        (r"(a)\1", r"(a)(?:\1)"),
        (r"ab$", "ab$"),
        (r"(?:a$|b)\n?", r"(?:a(?=\n?$)|b)\n?"),
        (r"a.c", r"a[^\n]c"),
        (r"a(?# any number)*", "a*"),
        (r"a{,3}b{2}c{,}", "a{0,3}b{2}c{0,}"),
        (r"a{}b]", r"a\{\}b\]"),
        (r"[]a[]", r"[\]a\[]"),
        (r"[^]\-\#]", r"[^\]\-#]"),
        (re.escape("a-b #1"), "a-b #1"),
        (r"\d+\s\.", r"\d+\s\."),
        (r"\a\0\141\x41", r"\u0007\u0000\u0061\u0041"),
        (r"\N{EM DASH}\U0001F600", r"\u2014\u{1f600}"),
        (r"(?<=a)b(?!c)", "(?<=a)b(?!c)"),
        (re.compile(r"\w+\b", re.ASCII), r"\w+\b"),
    ],
)
def test_a_pattern_is_translated_to_the_syntax_of_json_schema(
    taking, pattern, translated
):
    schema = x_of(taking(str, pattern=pattern))

    assert schema == {"type": "string", "pattern": f"^(?:{translated})$"}


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?i:a)b", r"(?s-i:.)", r"(?>a)", r"a*+", r"(a)?(?(1)b|c)", r"(?=a)*b",
        r"(a)|\1", r"(?P<n>a)?(?P=n)", r"\w+", r"[\w.]+", r"a\b", r"\B", r"\ud83d",
    ],
)  # fmt: skip
def test_a_pattern_that_json_schema_cannot_express_is_left_out(taking, pattern):
    assert x_of(taking(str, pattern=pattern)) == {"type": "string"}


class Small:
    """A group of constraints, as annotated-types has them."""

    __is_annotated_types_grouped_metadata__ = True

    def __iter__(self):
        return iter([SimpleNamespace(ge=1), SimpleNamespace(le=5)])


@pytest.mark.parametrize(
    ("annotation", "options", "expected"),
    [
        (date, {"format": "%d.%m.%Y"}, {"type": "string"}),
        (date | None, {"format": "%d.%m.%Y"}, {"type": ["string", "null"]}),
        (list[str], {"coerce": str.split, "min_length": 2}, {}),
        (int, {"coerce": False}, {}),
        (str, {"transform": str.strip, "max_length": 3}, {"type": "string"}),
        (str, {"pattern": re.compile("ab", re.IGNORECASE)}, {"type": "string"}),
        (str, {"pattern": "(?i)ab"}, {"type": "string"}),
        (Annotated[str, re.compile("ab", re.IGNORECASE)], {}, {"type": "string"}),
        (
            Annotated[str, re.compile("ab")],
            {},
            {"type": "string", "pattern": "^(?:ab)$"},
        ),
        (
            Annotated[int, Small()],
            {},
            {"type": "integer", "minimum": 1, "maximum": 5},
        ),
        (
            Annotated[int, Small()],
            {"ge": 3, "le": 5},
            {
                "type": "integer",
                "minimum": 1,
                "maximum": 5,
                "allOf": [{"minimum": 3}],
            },
        ),
        (Annotated[int, str.isdigit], {}, {"type": "integer"}),
    ],
)
def test_what_a_schema_cannot_say_is_left_out(taking, annotation, options, expected):
    assert x_of(taking(annotation, **options)) == expected


# -- a whole task ----------------------------------------------------------------------


class Order(Task[int]):
    """Order something."""

    number: int = required(ge=1, description="which")
    kind: str = required(alias="type")
    point: Point
    node: Node | None = None
    color: Color = Color.RED
    tags: list[str] = optional(factory=list)
    found: str = required(source=lambda: "x")
    gated: int = required(if_=False)
    hidden: int = private()
    total: Decimal = output(description="what it costs")
    maybe: Point = output(unless=True)

    def work(self) -> int:
        self.total = Decimal(1)
        return self.number


def test_the_inputs_are_described():
    assert Order.inputs_schema() == {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "minimum": 1, "description": "which"},
            "type": {"type": "string"},
            "point": {"$ref": "#/$defs/Point"},
            "node": {
                "anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}],
                "default": None,
            },
            "color": {"enum": ["red", "blue"], "default": "red"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "gated": {"type": "integer"},
        },
        "required": ["number", "type", "point"],
        "$defs": {
            "Point": {
                "title": "Point",
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "y": {"type": "integer", "minimum": 0},
                    "hidden": {"type": "string"},
                },
                "required": ["x"],
            },
            "Node": {
                "title": "Node",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
                "required": ["name"],
            },
        },
    }


def test_the_outputs_are_described():
    schema = Order.outputs_schema()

    assert schema["properties"] == {
        "total": {"type": ["number", "string"], "description": "what it costs"},
        "maybe": {"$ref": "#/$defs/Point"},
    }
    assert schema["required"] == ["total"]
    assert list(schema["$defs"]) == ["Point"]


def test_the_document_says_what_it_is_about():
    document = Order.json_schema()

    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert document["title"] == "Order"
    assert document["description"] == "Order something."
    inputs = {
        key: value
        for key, value in document.items()
        if key not in ("$schema", "title", "description")
    }
    assert inputs == Order.inputs_schema()


def test_a_task_without_inputs_takes_anything():
    class Anything(Task[None]):
        pass

    assert Anything.inputs_schema() == {
        "type": "object",
        "properties": {},
        "required": [],
    }
    assert "description" not in Anything.json_schema()


def test_the_parts_of_dataclasses_and_typed_dicts_are_described(taking):
    assert taking(Size).inputs_schema()["$defs"]["Size"] == {
        "title": "Size",
        "type": "object",
        "properties": {
            "width": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["width"],
    }
    assert taking(Movie).inputs_schema()["$defs"]["Movie"] == {
        "title": "Movie",
        "type": "object",
        "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
        "required": ["title"],
    }


billing, shipping = SimpleNamespace(), SimpleNamespace()
billing.Address = attrs.make_class("Address", {"iban": attrs.field(type=str)})
shipping.Address = attrs.make_class("Address", {"street": attrs.field(type=str)})


def test_two_classes_of_one_name_are_described_apart():
    class Ship(Task[None]):
        pay: billing.Address
        send: shipping.Address

    schema = Ship.inputs_schema()
    parts = []
    for name in ("pay", "send"):
        key = schema["properties"][name]["$ref"].removeprefix("#/$defs/")
        parts += schema["$defs"][key]["properties"]

    assert parts == ["iban", "street"]


def test_a_schema_belongs_to_whoever_asked_for_it(taking):
    task = taking(list[int])
    x_of(task)["items"]["type"] = "changed"

    assert x_of(task) == {"type": "array", "items": {"type": "integer"}}
    assert x_of(taking(int)) == {"type": "integer"}


def test_a_registered_type_may_be_anything(taking):
    class Money:
        pass

    coercions.register(Money, lambda _: Money())
    try:
        assert x_of(taking(Money)) == {}
    finally:
        coercions.deregister(Money)


# -- it is JSON, and JSON Schema -------------------------------------------------------

DEFAULTS = [
    (str, "a"),
    (int, 3),
    (float, 1.5),
    (bool, False),
    (Decimal, Decimal("1.50")),
    (Fraction, Fraction(1, 3)),
    (complex, 1 + 2j),
    (date, date(2024, 2, 29)),
    (datetime, datetime(2024, 2, 29, 12, tzinfo=UTC)),
    (time, time(12, 30)),
    (timedelta, timedelta(hours=1, minutes=30)),
    (timedelta, timedelta(days=2)),
    (timedelta, timedelta(seconds=-1)),
    (UUID, UUID(int=7)),
    (Path, Path("a/b")),
    (bytes, b"abc"),
    (Color, Color.BLUE),
    (Level, Level.HIGH),
    (Literal["a", 1], 1),
    (int | None, None),
    (tuple[int, str], (1, "a")),
    (frozenset[int], frozenset({1})),
    (Point, Point(1, 2, "h")),
    (tuple[Point, ...], (Point(1),)),
    (tuple[date, ...], (date(2024, 2, 29),)),
]


@pytest.mark.parametrize(("annotation", "default"), DEFAULTS)
def test_a_default_is_described_as_callers_would_send_it(annotation, default):
    class Tell(Task[Any]):
        x: annotation = default

        def work(self):
            return self.x

    sent = json.loads(json.dumps(x_of(Tell), allow_nan=False))["default"]

    assert Tell.execute(x=sent).value == default


BOUNDS = [
    (Decimal, {"ge": Decimal("1.5"), "multiple_of": Decimal("0.5")}),
    (Fraction, {"gt": Fraction(1, 3)}),
    (date, {"ge": date(2024, 1, 1)}),
    (datetime, {"lt": datetime(2024, 1, 1, tzinfo=UTC)}),
    (timedelta, {"le": timedelta(hours=1)}),
    (date, {"one_of": [date(2024, 1, 1)]}),
    (Decimal, {"none_of": [Decimal("1.5")]}),
    (Annotated[date, Ge(date(2024, 1, 1))], {}),
    (str, {"one_of": {"a": 1}}),
    (str, {"le": "m"}),
]


@needs_jsonschema
@pytest.mark.parametrize(
    "case",
    [
        *((annotation, {}) for annotation, _ in SCHEMAS),
        *((annotation, options) for annotation, options, _ in OPTIONS),
        *BOUNDS,
    ],
)
def test_a_schema_is_valid_and_can_be_written_as_json(taking, case):
    annotation, options = case
    document = taking(annotation, **options).json_schema()

    jsonschema.Draft202012Validator.check_schema(document)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@needs_jsonschema
def test_the_schema_of_a_whole_task_is_valid():
    for document in (Order.json_schema(), Order.outputs_schema()):
        jsonschema.Draft202012Validator.check_schema(document)
        assert json.loads(json.dumps(document)) == document


@needs_jsonschema
@pytest.mark.parametrize(
    ("inputs", "valid"),
    [
        ({"number": 1, "type": "a", "point": {"x": 1}}, True),
        ({"number": 1, "type": "a", "point": {"x": 1}, "node": None}, True),
        ({"number": 0, "type": "a", "point": {"x": 1}}, False),
        ({"number": 1, "kind": "a", "point": {"x": 1}}, False),
        ({"number": 1, "type": "a", "point": {}}, False),
        ({"number": 1, "type": "a", "point": {"x": 1}, "total": 3}, True),
        ({"number": 1, "type": "a", "point": {"x": 1}, "found": "y"}, True),
        ({}, False),
    ],
)
def test_a_schema_judges_as_the_task_does(inputs, valid):
    validator = jsonschema.Draft202012Validator(Order.json_schema())

    assert validator.is_valid(inputs) is valid
    assert Order.execute(inputs).success is valid


# -- what the schema accepts, the task accepts -----------------------------------------

SIMPLE = [
    (str, {}),
    (str, {"min_length": 2, "max_length": 3}),
    (str, {"pattern": "[a-c]+"}),
    (str, {"one_of": ["a", "b"]}),
    (str, {"none_of": ["a", "b"]}),
    (int, {}),
    (int, {"ge": 0, "lt": 5}),
    (int, {"multiple_of": 3}),
    (float, {}),
    (float, {"gt": 0, "le": 1}),
    (bool, {}),
    (Color, {}),
    (Level, {}),
    (Literal["a", 1], {}),
    (int | None, {}),
    (int | str, {}),
    (list[int], {}),
    (list[str], {"min_length": 1, "max_length": 2}),
    (list[int] | None, {"min_length": 1}),
    (set[int], {}),
    (tuple[int, str], {}),
    (dict[str, int], {}),
    (dict[str, int], {"length": 1}),
    (Annotated[int, Ge(1)], {}),
    (Annotated[str, Len(1, 2)], {}),
    (Point, {}),
    (Movie, {}),
]


def simple(annotation, options):
    class Simple(Task[Any]):
        x: annotation = required(**options)

        def work(self):
            return self.x

    return Simple


SIMPLE_TASKS = [simple(annotation, options) for annotation, options in SIMPLE]
# What every JSON writer and reader agrees on: no larger numbers, no 1.0 beside 1.
WHOLE = st.integers(-(2**53), 2**53)
BROKEN = st.floats(-1e9, 1e9).filter(lambda number: number % 1)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 7),
    WHOLE,
    BROKEN,
    st.sampled_from([0.5, "a", "b", "ab", "red", "blue", ""]),
    st.text("abc", max_size=4),
)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["x", "y", "title", "year", "z"]), inner),
    ),
    max_leaves=6,
)


@cache
def judged():
    """Pair each task with a validator of its schema."""
    validator = jsonschema.Draft202012Validator
    return [(task, validator(task.json_schema())) for task in SIMPLE_TASKS]


@needs_jsonschema
@given(value=json_values)
@settings(max_examples=150, deadline=None)
def test_what_the_schema_accepts_the_task_accepts(value):
    for task, validator in judged():
        if validator.is_valid({"x": value}):
            result = task.execute(x=value)
            assert result.success, (validator.schema, result.reason)


@needs_jsonschema
@pytest.mark.parametrize("task", SIMPLE_TASKS)
def test_the_schema_accepts_something_and_refuses_something(task):
    validator = jsonschema.Draft202012Validator(task.json_schema())
    tried = [
        None, True, 1, 3, 0.5, "a", "ab", "abc", "red", [], [1], ["a"], [1, "a"],
        {}, {"x": 1}, {"title": "a"}, object(),
    ]  # fmt: skip

    assert {validator.is_valid({"x": value}) for value in tried} == {True, False}
