"""What each annotation makes of text and JSON-like values, and what it refuses."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import OrderedDict, UserDict, deque
from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import (
    Set as AbstractSet,
)
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    Union,
)
from uuid import UUID

import attrs
import pytest

from cmdx import DefinitionError, Task, coercions, optional

HUGE = 10**5000
LONG = "9" * 4300


def shown(part):
    """Name a row of a table by what is in it, the same in every run."""
    try:
        return re.sub(r" at 0x\w+", "", repr(part))[:60]
    except ValueError:  # a number too long to be written
        return "huge"


named = partial(pytest.mark.parametrize, ids=shown)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Unit(StrEnum):
    METRE = "m"
    SECOND = "s"


class Text(str, Enum):  # noqa: UP042 -- its str() is its name
    HELLO = "hello"


class Access(Flag):
    READ = 1
    WRITE = 2


class Crossed(Enum):
    """The name of each is the value of the other."""

    UP = "DOWN"
    DOWN = "UP"


class Listed(Enum):
    PAIR = (1, 2)
    MANY = [3]  # noqa: RUF012 -- unhashable on purpose


@attrs.frozen
class Point:
    x: int
    y: int = 0
    _hidden: str = "h"
    made: int = attrs.field(init=False, default=7)


@attrs.frozen
class Aliased:
    kind: str = attrs.field(alias="type")


@attrs.frozen
class Positive:
    number: int = attrs.field(validator=attrs.validators.ge(1))


@dataclasses.dataclass
class Size:
    width: int
    height: float = 1.0
    tags: list[str] = dataclasses.field(default_factory=list)
    area: float = dataclasses.field(init=False, default=0.0)

    def __post_init__(self):
        if self.width < 0:
            raise ValueError("cannot be inside out")


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Partial(TypedDict, total=False):
    title: Required[str]
    year: int


@attrs.frozen
class Node:
    name: str
    children: list[Node] = attrs.field(factory=list)
    parent: Node | None = None


@attrs.frozen
class Deep:
    movies: dict[str, list[Movie]]
    size: Size | None = None
    color: Color = Color.RED
    when: tuple[date, time] | None = None


UserId = NewType("UserId", int)
UserIds = NewType("UserIds", list[UserId])


# -- the scalars -----------------------------------------------------------------------

ACCEPTED = [
    # str: text, and numbers as text
    (str, "abc", "abc"),
    (str, "", ""),
    (str, "  padded ", "  padded "),
    (str, "\ud800", "\ud800"),
    (str, "\0", "\0"),
    (str, 7, "7"),
    (str, -7, "-7"),
    (str, 1.5, "1.5"),
    (str, 1.0, "1.0"),
    (str, Decimal("1.50"), "1.50"),
    (str, Unit.METRE, "m"),
    (str, Text.HELLO, "hello"),
    # int: whole numbers, base ten
    (int, 7, 7),
    (int, -7, -7),
    (int, 0, 0),
    (int, HUGE, HUGE),
    (int, "7", 7),
    (int, " 7 ", 7),
    (int, "+7", 7),
    (int, "-7", -7),
    (int, "010", 10),
    (int, "-0", 0),
    (int, LONG, int(LONG)),
    (int, 3.0, 3),
    (int, -0.0, 0),
    (int, 1e22, 10**22),
    (int, Decimal("3.00"), 3),
    (int, Decimal("1E+3"), 1000),
    (int, Level.HIGH, 2),
    # float: numbers without loss
    (float, 1.5, 1.5),
    (float, 7, 7.0),
    (float, "1.5", 1.5),
    (float, " 1.5 ", 1.5),
    (float, "1e3", 1000.0),
    (float, ".5", 0.5),
    (float, "-0", -0.0),
    (float, 2**53, float(2**53)),
    (float, Decimal("0.1"), 0.1),
    (float, Fraction(1, 4), 0.25),
    (float, float("inf"), float("inf")),
    # bool: the table of CMDx
    (bool, True, True),
    (bool, False, False),
    *((bool, word, True) for word in ("true", "yes", "on", "y", "1", "t")),
    *((bool, word, False) for word in ("false", "no", "off", "n", "0", "f")),
    (bool, "TRUE", True),
    (bool, "No", False),
    (bool, " oN ", True),
    (bool, 1, True),
    (bool, 0, False),
    # Decimal
    (Decimal, Decimal("1.50"), Decimal("1.50")),
    (Decimal, "1.50", Decimal("1.50")),
    (Decimal, " 1.50 ", Decimal("1.50")),
    (Decimal, 7, Decimal(7)),
    (Decimal, 0.1, Decimal("0.1")),
    (Decimal, "1e3", Decimal("1E+3")),
    (Decimal, HUGE, Decimal(HUGE)),
    # Fraction
    (Fraction, Fraction(1, 3), Fraction(1, 3)),
    (Fraction, "1/3", Fraction(1, 3)),
    (Fraction, "-1/3", Fraction(-1, 3)),
    (Fraction, " 0.25 ", Fraction(1, 4)),
    (Fraction, "2", Fraction(2)),
    (Fraction, 7, Fraction(7)),
    (Fraction, 0.1, Fraction(1, 10)),
    (Fraction, 1e-7, Fraction(1, 10**7)),
    (Fraction, 1e22, Fraction(10**22)),
    (Fraction, Decimal("0.25"), Fraction(1, 4)),
    (Fraction, Decimal("1E+2"), Fraction(100)),
    # complex
    (complex, 1 + 2j, 1 + 2j),
    (complex, "1+2j", 1 + 2j),
    (complex, "1 + 2j", 1 + 2j),
    (complex, " (1+2j) ", 1 + 2j),
    (complex, 7, 7 + 0j),
    (complex, 1.5, 1.5 + 0j),
    (complex, "j", 1j),
    # date, datetime, time: ISO 8601
    (date, date(2024, 2, 29), date(2024, 2, 29)),
    (date, "2024-02-29", date(2024, 2, 29)),
    (date, " 2024-02-29 ", date(2024, 2, 29)),
    (date, "20240229", date(2024, 2, 29)),
    (date, "2024-W09-4", date(2024, 2, 29)),
    (
        datetime,
        datetime(2024, 2, 29, 12, tzinfo=UTC),
        datetime(2024, 2, 29, 12, tzinfo=UTC),
    ),
    (datetime, "2024-02-29T12:30:00Z", datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
    (
        datetime,
        "2024-02-29 12:30:00.5+02:00",
        datetime(2024, 2, 29, 12, 30, 0, 500_000, timezone(timedelta(hours=2))),
    ),
    (datetime, "2024-02-29T12:30", datetime(2024, 2, 29, 12, 30)),  # noqa: DTZ001
    (datetime, "2024-02-29", datetime(2024, 2, 29)),  # noqa: DTZ001
    (time, time(12, 30), time(12, 30)),
    (time, "12:30", time(12, 30)),
    (time, " 12:30:05.5 ", time(12, 30, 5, 500_000)),
    (time, "12:30Z", time(12, 30, tzinfo=UTC)),
    # timedelta: seconds, clock, ISO 8601
    (timedelta, timedelta(hours=1), timedelta(hours=1)),
    (timedelta, 90, timedelta(seconds=90)),
    (timedelta, 1.5, timedelta(seconds=1.5)),
    (timedelta, -1, timedelta(seconds=-1)),
    (timedelta, "90", timedelta(seconds=90)),
    (timedelta, "1.5", timedelta(seconds=1.5)),
    (timedelta, "1:30:00", timedelta(hours=1, minutes=30)),
    (timedelta, "1:30", timedelta(hours=1, minutes=30)),
    (timedelta, "0:00:01.5", timedelta(seconds=1.5)),
    (timedelta, "PT1H30M", timedelta(hours=1, minutes=30)),
    (timedelta, "P1DT12H", timedelta(days=1, hours=12)),
    (timedelta, "P2W", timedelta(weeks=2)),
    (timedelta, "PT0.5S", timedelta(seconds=0.5)),
    (timedelta, "-P1D", timedelta(days=-1)),
    (timedelta, "+PT1S", timedelta(seconds=1)),
    (timedelta, "PT0S", timedelta(0)),
    # UUID
    (UUID, UUID(int=7), UUID(int=7)),
    (UUID, "00000000-0000-0000-0000-000000000007", UUID(int=7)),
    (UUID, " 00000000000000000000000000000007 ", UUID(int=7)),
    (UUID, "urn:uuid:00000000-0000-0000-0000-00000000000A", UUID(int=10)),
    # Path
    (Path, "a/b", Path("a/b")),
    (Path, Path("a/b"), Path("a/b")),
    (Path, PurePosixPath("a/b"), Path("a/b")),
    (Path, ".", Path()),
    (PurePath, "a/b", Path("a/b")),
    # bytes
    (bytes, b"abc", b"abc"),
    (bytes, bytearray(b"abc"), b"abc"),
    (bytes, memoryview(b"abc"), b"abc"),
    (bytes, "añ", b"a\xc3\xb1"),
    (bytes, "", b""),
    # anything
    (Any, [1, {"a": 2}], [1, {"a": 2}]),
    (object, {1: 2}, {1: 2}),
    # Enum: members, values, names
    (Color, Color.RED, Color.RED),
    (Color, "red", Color.RED),
    (Color, "RED", Color.RED),
    (Color, " blue ", Color.BLUE),
    (Level, 2, Level.HIGH),
    (Level, "2", Level.HIGH),
    (Level, "HIGH", Level.HIGH),
    (Unit, "s", Unit.SECOND),
    (Text, "hello", Text.HELLO),
    (Access, 1, Access.READ),
    *((Access, value, Access.READ | Access.WRITE) for value in (3, "3")),
    (Access, 0, Access(0)),
    (Access, Access.READ | Access.WRITE, Access.READ | Access.WRITE),
    (Crossed, "UP", Crossed.DOWN),
    (Crossed, "DOWN", Crossed.UP),
    (Listed, "PAIR", Listed.PAIR),
    (Listed, "MANY", Listed.MANY),
    # Literal
    (Literal["a", "b"], "a", "a"),
    (Literal["a", "b"], " b ", "b"),
    (Literal[1, 2], 2, 2),
    (Literal[1, 2], "2", 2),
    (Literal[True], True, True),
    (Literal["1", 1], 1, 1),
    (Literal["1", 1], "1", "1"),
    (Literal[1, "1"], "1", "1"),
    (Literal[Color.RED], Color.RED, Color.RED),
    (Literal[Color.RED], "red", Color.RED),
    (Literal["a", None], None, None),  # noqa: PYI061 -- people write it
]

REFUSED = [
    *((str, value, "str") for value in (True, False, [], {}, b"a", 1j, object())),
    *((str, value, "str") for value in (["a"], HUGE, Color.RED, date(2024, 1, 1))),
    *((int, text, "int") for text in ("x", "1.5", "3.0", "1e3", "0x10")),
    *((int, text, "int") for text in ("1_000", "1,000", "٣", "+", "--1", "1 2")),
    (int, LONG + "9", "int"),
    *((int, value, "int") for value in (True, False, 3.9, [], {}, b"7", 1j, "\ud800")),
    *((int, float(text), "int") for text in ("nan", "inf", "-inf")),
    *((int, Decimal(text), "int") for text in ("3.9", "NaN", "sNaN", "Infinity")),
    (int, Decimal("1E+999999"), "int"),
    *((float, text, "float") for text in ("x", "nan", "inf", "-Infinity")),
    *((float, text, "float") for text in ("1_0", "1,5", "0x1p3", "1e999")),
    *((float, value, "float") for value in (True, [], {}, b"1", 1j, HUGE, "\ud800")),
    (float, 2**53 + 1, "float"),
    (float, Decimal("sNaN"), "float"),
    *((bool, word, "bool") for word in ("x", "2", "truee", "ja", "none")),
    *((bool, value, "bool") for value in (2, -1, 1.0, 0.0, [], {}, HUGE, "\ud800")),
    *((Decimal, text, "Decimal") for text in ("x", "1,5", "nan", "sNaN")),
    *((Decimal, text, "Decimal") for text in ("inf", "1_000", "1e9999999999999999999")),
    *((Decimal, value, "Decimal") for value in (True, [], {}, 1j, "\ud800")),
    *((Decimal, float(text), "Decimal") for text in ("nan", "inf")),
    *((Fraction, text, "Fraction") for text in ("x", "1/0", "1/", "/3")),
    *((Fraction, text, "Fraction") for text in ("1//3", "1_0/3", "0.5/2", "nan")),
    *((Fraction, value, "Fraction") for value in (True, [], 1j, "\ud800")),
    *((Fraction, float(text), "Fraction") for text in ("nan", "inf")),
    (Fraction, Decimal("NaN"), "Fraction"),
    *((complex, text, "complex") for text in ("x", "1+2", "1+2i", "1 2", "1_0")),
    *((complex, value, "complex") for value in (True, [], {}, HUGE, "\ud800")),
    *((date, text, "date") for text in ("x", "2023-02-29", "29.02.2024")),
    *((date, text, "date") for text in ("Tuesday the 3rd", "2024-2-9", "\ud800")),
    (date, "2024-02-29T12:00:00", "date"),
    (date, datetime(2024, 2, 29, tzinfo=UTC), "date"),
    *((date, value, "date") for value in (0, 20240229, 1.5, [], True)),
    *((datetime, text, "datetime") for text in ("x", "2024-02-29T25:00")),
    *((datetime, text, "datetime") for text in ("12:30", "29.02.2024", "\ud800")),
    *((datetime, value, "datetime") for value in (0, [], date(2024, 2, 29))),
    *((time, text, "time") for text in ("x", "25:00", "12:60", "\ud800")),
    *(
        (time, value, "time")
        for value in (12, 1.5, [], datetime(2024, 1, 1, tzinfo=UTC))
    ),
    *((timedelta, text, "timedelta") for text in ("x", "P", "PT", "P1DT", "P1Y")),
    *((timedelta, text, "timedelta") for text in ("1:60:00", "1:5", "1d", "nan")),
    *((timedelta, text, "timedelta") for text in ("P999999999W", "1e30", "\ud800")),
    *((timedelta, float(text), "timedelta") for text in ("nan", "inf")),
    *((timedelta, value, "timedelta") for value in (True, [], HUGE)),
    *((UUID, value, "UUID") for value in ("x", "7", 7, [], "\ud800" * 32)),
    (UUID, "0000000000000000000000000000000g", "UUID"),
    *((Path, value, "Path") for value in ("a\0b", 7, [], b"a", None)),
    *((bytes, value, "bytes") for value in (7, [], [1, 2], "\ud800", True)),
    *((Color, value, "choice") for value in ("Red", "green", 1, [], {}, True)),
    *((Level, value, "choice") for value in (3, 1.0, True, "3", "high", HUGE)),
    *((Access, value, "choice") for value in (True, 1.0, "x", 8)),
    *((Listed, value, "choice") for value in ("x", [4], 1)),
    *((Literal["a"], value, "choice") for value in ("A", 1, [], {}, True)),
    *((Literal[1], value, "choice") for value in (True, 1.0, 2, "01", HUGE)),
    (Literal[True], 1, "choice"),
    (Literal["a", None], "None", "choice"),  # noqa: PYI061 -- people write it
]


@named("case", ACCEPTED)
def test_a_value_becomes_what_the_annotation_says(taking, case):
    annotation, value, expected = case

    made = taking(annotation).execute(x=value).value

    assert made == expected
    assert type(made) is type(expected)


@named("case", REFUSED)
def test_a_value_is_refused_with_the_code_of_its_kind(problems, case):
    annotation, value, code = case

    assert problems(annotation, value) == [("x", "none" if value is None else code)]


@named("case", ACCEPTED)
def test_what_was_coerced_is_coerced_to_itself(taking, case):
    annotation, _, expected = case

    made = taking(annotation).execute(x=expected).value

    assert made == expected
    assert type(made) is type(expected)


def test_not_a_number_stays_one_for_a_float_that_was_one_already(taking):
    made = taking(float).execute(x=float("nan")).value

    assert made != made  # noqa: PLR0124 -- what NaN is


# -- containers ------------------------------------------------------------------------


class Reader:
    """Something to iterate over that is nothing else."""

    def __iter__(self):
        return iter(["1", "2"])


@named(
    ("annotation", "value", "expected"),
    [
        (list[int], ["1", 2, 3.0], [1, 2, 3]),
        (list[int], [], []),
        (list[int], ("1", "2"), [1, 2]),
        (list[int], deque(["1"]), [1]),
        (list[int], Reader(), [1, 2]),
        (list[int], range(3), [0, 1, 2]),
        (list, ["1", 2], ["1", 2]),
        (list[Any], [None, []], [None, []]),
        (list[int | None], ["1", None], [1, None]),
        (list[list[int]], [["1"], []], [[1], []]),
        (Sequence[int], ["1"], [1]),
        (MutableSequence[int], ["1"], [1]),
        (Iterable[int], ["1"], [1]),
        (Collection[int], ["1"], [1]),
        (tuple[int, ...], ["1", "2"], (1, 2)),
        (tuple[int, ...], [], ()),
        (tuple[int, str], ["1", "2"], (1, "2")),
        (tuple[int, str], Reader(), (1, "2")),
        (tuple, ["1", 2], ("1", 2)),
        (set[int], ["1", 2], {1, 2}),
        (set[int], ["1", 1], {1}),
        (set, ["1"], {"1"}),
        (AbstractSet[int], ["1"], {1}),
        (MutableSet[int], ["1"], {1}),
        (frozenset[int], {"1"}, frozenset({1})),
        (dict[str, int], {"a": "1"}, {"a": 1}),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (dict[int, list[date]], {"1": ["2024-01-02"]}, {1: [date(2024, 1, 2)]}),
        (dict, {"a": "1", 2: []}, {"a": "1", 2: []}),
        (dict[str, int], OrderedDict(a="1"), {"a": 1}),
        (dict[str, int], UserDict(a="1"), {"a": 1}),
        (dict[str, int], MappingProxyType({"a": "1"}), {"a": 1}),
        (Mapping[str, int], {"a": "1"}, {"a": 1}),
        (MutableMapping[str, int], {"a": "1"}, {"a": 1}),
        (dict[str, int], {"items": 1, "get": 2, "__class__": 3}, None),
    ],
)
def test_a_container_is_made_of_its_coerced_parts(taking, annotation, value, expected):
    made = taking(annotation).execute(x=value).value

    expected = value if expected is None else expected
    assert made == expected
    assert type(made) is type(expected)


def test_a_container_is_never_the_one_that_was_given(taking):
    for annotation, value in [
        (list[int], [1]),
        (list, [1]),
        (set[int], {1}),
        (dict[str, int], {"a": 1}),
        (dict, {"a": 1}),
        (Movie, {"title": "a"}),
    ]:
        made = taking(annotation).execute(x=value).value
        assert made == value
        assert made is not value


@named(
    ("annotation", "value", "expected"),
    [
        (list[int], "12", [("x", "list")]),
        (list[int], b"12", [("x", "list")]),
        (list[int], bytearray(b"12"), [("x", "list")]),
        (list[int], {"1": 2}, [("x", "list")]),
        (list[int], 12, [("x", "list")]),
        (list[int], True, [("x", "list")]),
        (list[int], ["1", "x", None], [("x[1]", "int"), ("x[2]", "int")]),
        (list[list[int]], [[1], ["x"], 3], [("x[1][0]", "int"), ("x[2]", "list")]),
        (tuple[int, ...], "12", [("x", "tuple")]),
        (tuple[int, ...], ["x"], [("x[0]", "int")]),
        (tuple[int, str], ["1"], [("x", "length_of_tuple")]),
        (tuple[int, str], ["1", "2", "3"], [("x", "length_of_tuple")]),
        (tuple[int, str], ["x", []], [("x[0]", "int"), ("x[1]", "str")]),
        (set[int], "12", [("x", "set")]),
        (set[int], ["x"], [("x[0]", "int")]),
        (set, [[]], [("x", "set_item")]),
        (set[Any], [{}], [("x", "set_item")]),
        (frozenset[int], 3, [("x", "set")]),
        (dict[str, int], [("a", 1)], [("x", "dict")]),
        (dict[str, int], "a", [("x", "dict")]),
        (dict[str, int], {"a": "x", "b": 1}, [("x[a]", "int")]),
        (dict[int, int], {"a": 1, "2": "x"}, [("x[a]", "int"), ("x[2]", "int")]),
        (dict[int, int], {"a": "x"}, [("x[a]", "int")]),
        (dict[str, int], {True: 1}, [("x[True]", "str")]),
        (dict[str, int], {(1, 2): 1}, [("x[(1, 2)]", "str")]),
        (dict[str, list[int]], {"a": ["x"]}, [("x[a][0]", "int")]),
        (dict[list[int], int], {(1,): 1}, [("x[(1,)]", "dict")]),
    ],
)  # fmt: skip
def test_the_problems_of_a_container_have_their_place(
    problems, annotation, value, expected
):
    assert problems(annotation, value) == expected


def test_a_key_too_long_to_be_written_is_reported_all_the_same(taking):
    result = taking(dict[str, int]).execute(x={HUGE: 1, "a": "x"})

    assert result.cause is None
    assert [problem.code for problem in result.errors] == ["str", "int"]


# -- unions ----------------------------------------------------------------------------


@named(
    ("annotation", "value", "expected"),
    [
        (int | str, "7", "7"),
        (str | int, 7, 7),
        (int | str, 7.0, 7),
        (int | float, 7, 7),
        (float | int, 7, 7),
        (int | float, 1.5, 1.5),
        (int | float, "1.5", 1.5),
        (int | bool, True, True),
        (bool | int, 1, 1),
        (bool | int, "yes", True),
        (int | None, "7", 7),
        (int | None, None, None),
        (Optional[int], "7", 7),  # noqa: UP045 -- the old spelling
        (Union[int, str], [], None),  # noqa: UP007 -- the old spelling
        (date | datetime, "2024-02-29", date(2024, 2, 29)),
        (
            date | datetime,
            "2024-02-29T12:00Z",
            datetime(2024, 2, 29, 12, tzinfo=UTC),
        ),
        (
            date | datetime,
            datetime(2024, 2, 29, tzinfo=UTC),
            datetime(2024, 2, 29, tzinfo=UTC),
        ),
        (list[int] | int, ["7"], [7]),
        (list[int] | int, "7", 7),
        (list[int] | list[str], [1, 2], [1, 2]),
        (list[str] | list[int], ["a"], ["a"]),
        (list[int] | list[str], ["a"], ["a"]),
        (dict[str, int] | dict[str, str], {"a": "b"}, {"a": "b"}),
        (dict[str, str] | dict[str, int], {"a": "b"}, {"a": "b"}),
        (Movie | dict[str, int], {"title": "a"}, {"title": "a"}),
        (Literal["auto"] | int, "auto", "auto"),
        (Literal["auto"] | int, "7", 7),
        (Color | int, "red", Color.RED),
        (Point | Size, {"x": 1}, Point(1)),
        (Point | Size, {"width": 1}, Size(1)),
        (Point | None, {"x": "1"}, Point(1)),
        (Point | str, "x", "x"),
    ],
)
def test_a_union_takes_the_first_of_its_types_that_fits_unless_one_is_exact(
    taking, annotation, value, expected
):
    result = taking(annotation).execute(x=value)

    if expected is None and value is not None:
        assert [problem.code for problem in result.errors] == ["union"]
        return
    assert result.value == expected
    assert type(result.value) is type(expected)


@named(
    ("annotation", "value", "expected"),
    [
        (int | date, "x", [("x", "union")]),
        (int | None, "x", [("x", "int")]),
        (Point | None, {"x": "y"}, [("x.x", "int")]),
        (Point | int, {"x": "y"}, [("x.x", "int")]),
        (list[int] | int, ["x"], [("x[0]", "int")]),
        (list[int | date], ["x"], [("x[0]", "union")]),
    ],
)
def test_a_union_says_what_is_wrong(problems, annotation, value, expected):
    assert problems(annotation, value) == expected


def test_a_union_names_its_types(taking):
    result = taking(int | date).execute(x="x")

    assert result.errors["x"] == ["must be one of int, date"]


# -- classes with fields ---------------------------------------------------------------


@named(
    ("annotation", "value", "expected"),
    [
        (Point, {"x": "1"}, Point(1)),
        (Point, {"x": "1", "y": 2.0}, Point(1, 2)),
        (Point, {"x": 1, "hidden": "a"}, Point(1, hidden="a")),
        (Point, {"x": 1, "z": 3}, Point(1)),
        (Point, UserDict(x="1"), Point(1)),
        (Point, Point(3), Point(3)),
        (Aliased, {"type": "a"}, Aliased("a")),
        (Size, {"width": "1"}, Size(1)),
        (Size, {"width": 1, "height": "2", "tags": ("a",)}, Size(1, 2.0, ["a"])),
        (Size, Size(3), Size(3)),
        (Movie, {"title": "a"}, {"title": "a"}),
        (Movie, {"title": "a", "year": "1999"}, {"title": "a", "year": 1999}),
        (Movie, {"title": "a", "other": 1}, {"title": "a"}),
        (Partial, {"title": "a"}, {"title": "a"}),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
        (
            Node,
            {"name": "a", "parent": {"name": "b"}},
            Node("a", parent=Node("b")),
        ),
        (
            Deep,
            {
                "movies": {"old": [{"title": "a", "year": "1999"}]},
                "size": {"width": "2"},
                "color": "BLUE",
                "when": ["2024-01-02", "12:30"],
            },
            Deep(
                {"old": [{"title": "a", "year": 1999}]},
                Size(2),
                Color.BLUE,
                (date(2024, 1, 2), time(12, 30)),
            ),
        ),
    ],
)
def test_a_class_is_made_of_a_mapping_of_its_fields(
    taking, annotation, value, expected
):
    made = taking(annotation).execute(x=value).value

    assert made == expected
    assert type(made) is type(expected)


@named(
    ("annotation", "value", "expected"),
    [
        (Point, {}, [("x.x", "required")]),
        (Point, {"x": "a", "y": "b"}, [("x.x", "int"), ("x.y", "int")]),
        (Point, {"x": None}, [("x.x", "int")]),
        (Point, [1, 2], [("x", "object")]),
        (Point, "x", [("x", "object")]),
        (Point, Size(1), [("x", "object")]),
        (Point, {"_hidden": 1, "made": 2}, [("x.x", "required")]),
        (Aliased, {"kind": "a"}, [("x.type", "required")]),
        (Positive, {"number": 0}, [("x", "invalid")]),
        (Size, {"width": -1}, [("x", "invalid")]),
        (Size, {"width": 1, "tags": ["a", []]}, [("x.tags[1]", "str")]),
        (Movie, {"year": "x"}, [("x.title", "required"), ("x.year", "int")]),
        (Movie, [], [("x", "object")]),
        (Partial, {}, [("x.title", "required")]),
        (
            Node,
            {"name": "a", "children": [{"name": "b", "children": [{}, 3]}]},
            [
                ("x.children[0].children[0].name", "required"),
                ("x.children[0].children[1]", "object"),
            ],
        ),
        (
            Deep,
            {"movies": {"old": [{"title": "a"}, {}]}, "size": {}, "when": ["x", "12"]},
            [
                ("x.movies[old][1].title", "required"),
                ("x.size.width", "required"),
                ("x.when[0]", "date"),
            ],
        ),
    ],
)  # fmt: skip
def test_the_problems_of_a_class_have_their_path(problems, annotation, value, expected):
    assert problems(annotation, value) == expected


@attrs.frozen
class Named:
    """Every field is named like something a mapping has."""

    items: int
    get: int
    keys: int = 1
    copy: int = 2


def test_keys_named_like_what_a_mapping_has_are_keys(taking, problems):
    given = {"items": "1", "get": "2", "__class__": "3"}

    assert taking(Named).execute(x=given).value == Named(1, 2)
    assert problems(Named, {}) == [("x.items", "required"), ("x.get", "required")]
    assert problems(Named, {"items": "a", "get": 1}) == [("x.items", "int")]


def test_what_a_class_says_when_it_refuses_is_not_shown(taking):
    result = taking(Size).execute(x={"width": -1})

    assert result.errors["x"] == ["is invalid"]


def test_a_problem_inside_a_class_does_not_call_it(taking):
    made = []

    @attrs.define
    class Watched:
        number: int

        def __attrs_post_init__(self):
            made.append(self.number)

    task = taking(Watched)
    task.execute(x={"number": "x"})
    assert made == []
    task.execute(x={"number": "1"})
    assert made == [1]


# -- NewType, Annotated, aliases -------------------------------------------------------


@attrs.frozen
class Ge:
    ge: int


@attrs.frozen
class Le:
    le: int


class Bounded(TypedDict):
    plain: Annotated[int, Ge(1)]
    maybe: NotRequired[Annotated[int, Ge(1)]]


Positives = NewType("Positives", Annotated[int, Ge(1)])


@named(
    ("annotation", "value", "expected"),
    [
        (UserId, "7", 7),
        (UserIds, ["7"], [7]),
        (UserId | None, "7", 7),
        (dict[UserId, str], {"7": "a"}, {7: "a"}),
        (Annotated[int, "a note"], "7", 7),
        (Annotated[int, Ge(1)], "7", 7),
        (Annotated[Annotated[int, Ge(1)], Le(9)], "7", 7),
        (list[Annotated[int, Ge(1)]], ["7"], [7]),
        (Annotated[list[int], "a note"], ["7"], [7]),
        (Annotated[int, Ge(1)] | None, "7", 7),
        (Annotated[int, Ge(10)] | Annotated[int, Le(0)], 20, 20),
        (Annotated[int, Ge(10)] | Annotated[int, Le(0)], -5, -5),
        (Bounded, {"plain": "1", "maybe": "2"}, {"plain": 1, "maybe": 2}),
    ],
)
def test_what_wraps_a_type_is_seen_through(taking, annotation, value, expected):
    assert taking(annotation).execute(x=value).value == expected


@named(
    ("annotation", "value", "expected"),
    [
        (UserId, "x", [("x", "int")]),
        (Annotated[int, Ge(1)], "0", [("x", "ge")]),
        (Annotated[int, Ge(1)], "x", [("x", "int")]),
        (Annotated[Annotated[int, Ge(1)], Le(9)], 0, [("x", "ge")]),
        (Annotated[Annotated[int, Ge(1)], Le(9)], 10, [("x", "le")]),
        (Annotated[int, Ge(5), Le(3)], 4, [("x", "ge"), ("x", "le")]),
        (list[Annotated[int, Ge(1)]], ["7", 0], [("x[1]", "ge")]),
        (Annotated[int, Ge(1)] | None, 0, [("x", "ge")]),
        (Positives, 0, [("x", "ge")]),
        (Annotated[Positives, Le(9)], 0, [("x", "ge")]),
        (Bounded, {"plain": 0, "maybe": 0}, [("x.plain", "ge"), ("x.maybe", "ge")]),
    ],
)
def test_what_is_wrong_inside_a_wrapped_type_is_reported(
    problems, annotation, value, expected
):
    assert problems(annotation, value) == expected


def test_the_alias_of_a_type_is_seen_through(taking, problems):
    alias = pytest.importorskip("typing_extensions").TypeAliasType
    port = alias("Port", Annotated[int, Ge(1)])

    assert taking(port).execute(x="7").value == 7
    assert taking(list[port]).execute(x=["7"]).value == [7]
    assert problems(port, 0) == [("x", "ge")]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement")
def test_the_type_statement_is_seen_through(taking, problems):
    names = {"Annotated": Annotated, "Ge": Ge}
    exec("type Port = Annotated[int, Ge(1)]", names)  # noqa: S102 -- newer syntax

    assert taking(names["Port"]).execute(x="7").value == 7
    assert problems(names["Port"], 0) == [("x", "ge")]


# -- format ----------------------------------------------------------------------------


@named(
    ("annotation", "form", "value", "expected"),
    [
        (date, "%d.%m.%Y", "29.02.2024", date(2024, 2, 29)),
        (date, "%d.%m.%Y", " 29.02.2024 ", date(2024, 2, 29)),
        (date, "%d.%m.%Y", date(2024, 2, 29), date(2024, 2, 29)),
        (
            datetime,
            "%d.%m.%Y %H:%M %z",
            "29.02.2024 12:30 +0000",
            datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        ),
        (time, "%Hh%M", "12h30", time(12, 30)),
        (time, "%H%M%z", "1230+0000", time(12, 30, tzinfo=UTC)),
        (Annotated[date, "a note"], "%d.%m.%Y", "29.02.2024", date(2024, 2, 29)),
        (date | None, "%d.%m.%Y", "29.02.2024", date(2024, 2, 29)),
        (date | None, "%d.%m.%Y", None, None),
    ],
)
def test_a_format_says_how_a_date_is_written(taking, annotation, form, value, expected):
    made = taking(annotation, format=form).execute(x=value).value

    assert made == expected
    assert type(made) is type(expected)


@named(
    ("annotation", "form", "value", "code"),
    [
        (date, "%d.%m.%Y", "2024-02-29", "date"),
        (date, "%d.%m.%Y", "30.02.2024", "date"),
        (date, "%d.%m.%Y", "\ud800", "date"),
        (date, "%d.%m.%Y", 20240229, "date"),
        (date, "%d.%m.%Y", datetime(2024, 2, 29, tzinfo=UTC), "date"),
        (datetime, "%d.%m.%Y", "x", "datetime"),
        (time, "%Hh%M", "12:30", "time"),
        (Annotated[date, Ge(date(2024, 1, 1))], "%Y", "2023", "ge"),
    ],
)
def test_what_is_written_otherwise_is_refused(problems, annotation, form, value, code):
    assert problems(annotation, value, format=form) == [("x", code)]


# -- registered types ------------------------------------------------------------------


@attrs.frozen
class Money:
    cents: int

    @classmethod
    def parse(cls, text):
        if not isinstance(text, str):
            raise TypeError("write it as text")
        whole, _, cents = text.partition(".")
        return cls(int(whole) * 100 + int(cents or 0))


@pytest.fixture
def money():
    coercions.register(Money, Money.parse)
    yield Money
    coercions.deregister(Money)


def test_a_registered_coercion_makes_values_of_its_type(taking, money):
    assert money in coercions
    assert taking(Money).execute(x="3.50").value == Money(350)
    assert taking(list[Money]).execute(x=["1", "2"]).value == [Money(100), Money(200)]
    assert taking(Money | None).execute(x=None).value is None


def test_what_a_registered_coercion_refuses_is_a_problem_of_the_input(problems, money):
    assert problems(money, "x") == [("x", "invalid")]
    assert problems(money, 3) == [("x", "invalid")]
    assert problems(dict[str, money], {"a": "x"}) == [("x[a]", "invalid")]


def test_a_value_of_a_registered_type_is_taken_as_it_is(taking, money):
    value = money(350)

    assert taking(money).execute(x=value).value is value
    assert taking(list[money]).execute(x=[value]).value == [value]
    assert taking(money | None).execute(x=value).value is value


def test_a_default_of_a_registered_type_is_taken_as_it_is(money):
    class Pay(Task[Any]):
        amount: money = optional(default=money(100))

        def work(self):
            return self.amount

    assert Pay.execute().value == money(100)


def test_a_registered_coercion_takes_the_place_of_a_built_in_one(taking):
    coercions.register(bytes, bytes.fromhex)
    try:
        assert taking(bytes).execute(x="00ff").value == b"\x00\xff"
    finally:
        coercions.deregister(bytes)
    assert taking(bytes).execute(x="00ff").value == b"00ff"


@attrs.frozen
class Bill:
    total: Money


def test_a_coercion_registered_after_a_model_was_used_is_used_in_it(taking):
    assert taking(Bill).execute(x={"total": {"cents": 1}}).value == Bill(Money(1))

    coercions.register(Money, Money.parse)
    try:
        assert taking(Bill).execute(x={"total": "1"}).value == Bill(Money(100))
    finally:
        coercions.deregister(Money)


def test_a_default_goes_through_a_registered_coercion():
    coercions.register(str, lambda value: value.upper())
    try:

        class Tell(Task[str]):
            name: str = "ada"

            def work(self):
                return self.name

        assert Tell.execute().value == "ADA"
        assert Tell.execute(name="bob").value == "BOB"
    finally:
        coercions.deregister(str)


def test_what_was_deregistered_is_not_known_any_more(taking):
    class Foreign:
        pass

    coercions.register(Foreign, lambda _: Foreign())
    assert isinstance(taking(Foreign).execute(x=1).value, Foreign)
    coercions.deregister(Foreign)

    assert Foreign not in coercions
    assert taking(Foreign).execute(x=1).errors["x"] == [
        "must be an instance of Foreign"
    ]


@named("coerce", [3, "parse", None])
def test_a_coercion_must_be_callable(coerce):
    with pytest.raises(DefinitionError, match="must be callable"):
        coercions.register(Money, coerce)


def test_a_coercion_that_awaits_is_refused():
    async def parse(_): ...

    with pytest.raises(DefinitionError, match="is async"):
        coercions.register(Money, parse)
    assert Money not in coercions
