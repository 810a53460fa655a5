"""Resolution never raises and never loses a problem, whatever arrives."""

from __future__ import annotations

import dataclasses
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cmdx import Context, Task, required

LEVELS = 10_000
HUGE = 10**5000


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Ge:
    ge: int


@attrs.frozen
class Node:
    name: str = ""
    children: list[Node] = attrs.field(factory=list)
    by_name: dict[str, Node] = attrs.field(factory=dict)
    parent: Node | None = None
    pair: tuple[Node, ...] = ()


@dataclasses.dataclass
class Tree:
    left: Tree | None = None


class Link(TypedDict, total=False):
    next: Link


@attrs.frozen
class Inner:
    number: int
    when: date


@dataclasses.dataclass
class Model:
    first: int
    second: date
    third: bool
    inner: Inner
    many: list[int]
    named: dict[str, UUID]


class Movie(TypedDict):
    title: str
    items: int


ANNOTATIONS = [
    str, int, float, bool, Decimal, Fraction, complex, date, datetime, time, timedelta,
    UUID, Path, bytes, Any, Color, Literal["a", 1, True],
    list[int], list[str], list[Any], list[list[float]], tuple[int, str],
    tuple[Decimal, ...], set[int], set[Any], frozenset[str], dict[str, int],
    dict[int, Any], dict[Any, Any], int | str, int | None, list[int] | dict[str, int],
    date | timedelta, Annotated[int, Ge(3)], Annotated[str, str.isalpha],
    Inner, Model, Movie, Node, Tree, Node | Inner | None,
]  # fmt: skip


def taking(annotation, **options):
    class Taking(Task[Any]):
        x: annotation = required(**options)
        other: int

        def work(self):
            return self.x

    return Taking


TASKS = [
    *map(taking, ANNOTATIONS),
    taking(Any, ge=3, min_length=2, pattern="a", one_of=[[], 1], none_of=[{}]),
    taking(Any, presence=True, multiple_of=3, length=1),
    taking(str, min_length=1, pattern="[a-z]*"),
    taking(date, format="%d.%m.%Y"),
    taking(float, gt=0, le=10),
]

# -- JSON-like values, and a little worse ----------------------------------------------

names = st.sampled_from(["items", "get", "keys", "__class__", "number", "name", "left"])
texts = st.one_of(
    st.text(max_size=8),
    names,
    st.sampled_from(
        ["\ud800", "a\udfff", "\0", "1", "yes", "2024-01-02", "1:30", "red"]
    ),
    st.from_regex(r"[-+]?[0-9]{1,5}([./:eE-][0-9]{1,5})?", fullmatch=True),
)
numbers = st.one_of(
    st.integers(),
    st.integers(4400, 4500).map(lambda digits: 10**digits),
    st.sampled_from([2**53 + 1, -(10**400)]),
    st.floats(),
)
scalars = st.one_of(
    st.none(), st.booleans(), numbers, texts, st.decimals(), st.binary(max_size=4)
)
keys = st.one_of(
    texts, names, numbers, st.none(), st.booleans(), st.tuples(st.integers())
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.tuples(inner, inner),
    ),
    max_leaves=12,
)


def looked_at(result):
    """Check what holds for every run, and return the problems of ``x``."""
    assert result.cause is None
    assert result.success is (len(result.errors) == 0)
    found = [problem for problem in result.errors if problem.key != "other"]
    for key, message, code in found:
        assert key.startswith("x")
        assert message
        assert code
    return found


@given(task=st.sampled_from(TASKS), value=values)
@example(task=TASKS[0], value=HUGE)
@example(task=TASKS[3], value=HUGE)
@example(task=taking(dict[str, int]), value={HUGE: 1})
@example(task=taking(dict[str, int]), value={"\ud800": "\ud800"})
@example(task=taking(set[Any]), value=[{}])
@settings(max_examples=600, deadline=None)
def test_whatever_arrives_is_taken_or_reported(task, value):
    looked_at(task.execute(x=value, other=1))
    looked_at(task.execute({"x": value, "other": 1, HUGE: 2, None: 3}))
    looked_at(task.execute(Context({"x": value, "other": 1})))


@given(task=st.sampled_from(TASKS), value=values)
@settings(max_examples=200, deadline=None)
def test_the_problem_of_one_input_does_not_hide_that_of_another(task, value):
    alone = looked_at(task.execute(x=value, other=1))
    together = task.execute(x=value, other="wrong")

    assert looked_at(together) == alone
    assert together.errors["other"] == ["must be a whole number"]


def same(one, other):
    """Tell whether two values are equal, and NaN itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    return one is other or one == other or one != one  # noqa: PLR0124 -- NaN


@given(task=st.sampled_from(TASKS), value=values)
@settings(max_examples=400, deadline=None)
def test_coercing_what_was_coerced_gives_it_back(task, value):
    first = task.execute(x=value, other=1)
    if first.failed:
        return
    again = task.execute(x=first.value, other=1)

    assert again.success
    assert same(again.value, first.value)


# -- as many keys as there are bad fields ----------------------------------------------

GOOD = {
    "first": "1",
    "second": "2024-01-02",
    "third": "yes",
    "inner.number": 3,
    "inner.when": "2024-01-02",
    "many[0]": 1,
    "many[1]": "2",
    "named[a]": str(UUID(int=1)),
    "named[items]": str(UUID(int=2)),
}
BAD = st.sampled_from(["x", [], {}, None, 1.5, "\ud800", b"", float("nan")])


def put(model, path, value):
    *way, last = re.findall(r"\w+", path)
    for step in way:
        model = model[step]
    if isinstance(model, list):
        model.append(value)
    else:
        model[last] = value


@given(bad=st.dictionaries(st.sampled_from(sorted(GOOD)), BAD))
@settings(max_examples=150, deadline=None)
def test_a_model_has_as_many_keys_in_the_errors_as_bad_fields(bad):
    model = {"inner": {}, "many": [], "named": {}}
    for path, value in (GOOD | bad).items():
        put(model, path, value)

    result = taking(Model).execute(x=model, other=1)

    assert list(result.errors.to_dict()) == [
        f"x.{path}" for path in GOOD if path in bad
    ]
    assert result.failed is bool(bad)


@given(missing=st.sets(st.sampled_from(["first", "second", "third", "many", "named"])))
def test_a_model_has_a_key_in_the_errors_for_every_missing_field(missing):
    model = {
        "first": 1,
        "second": "2024-01-02",
        "third": True,
        "inner": {"number": 1, "when": "2024-01-02"},
        "many": [],
        "named": {},
    }
    for name in missing:
        del model[name]

    result = taking(Model).execute(x=model, other=1)

    assert set(result.errors.to_dict()) == {f"x.{name}" for name in missing}
    assert {problem.code for problem in result.errors} <= {"required"}


@given(flags=st.lists(st.booleans(), max_size=30))
def test_a_list_has_a_key_in_the_errors_for_every_bad_item(flags):
    items = ["1" if flag else "x" for flag in flags]

    result = taking(list[int]).execute(x=items, other=1)

    assert list(result.errors.to_dict()) == [
        f"x[{index}]" for index, flag in enumerate(flags) if not flag
    ]


# -- depth -----------------------------------------------------------------------------


def nested(wrap, levels=LEVELS):
    value = wrap(None)
    for _ in range(levels):
        value = wrap(value)
    return value


def in_list(value):
    return [] if value is None else [value]


def in_tuple(value):
    return () if value is None else (value,)


def in_mapping(name, wrap=lambda value: value):
    return lambda value: {} if value is None else {name: wrap(value)}


SHAPES = {
    "list": in_list,
    "tuple": in_tuple,
    "mapping": in_mapping("a"),
    "children": in_mapping("children", in_list),
    "by_name": in_mapping("by_name", in_mapping("a")),
    "parent": in_mapping("parent"),
    "pair": in_mapping("pair", in_list),
    "left": in_mapping("left"),
    "next": in_mapping("next"),
}


@pytest.mark.parametrize(
    ("annotation", "shape"),
    [
        (Node, "children"),
        (Node, "by_name"),
        (Node, "parent"),
        (Node, "pair"),
        (list[Node], "children"),
        (Tree, "left"),
        (Link, "next"),
        (Tree | int, "left"),
    ],
)
def test_a_value_of_ten_thousand_levels_is_an_error_and_not_a_crash(annotation, shape):
    value = nested(SHAPES[shape])
    if annotation == list[Node]:
        value = [value]

    result = taking(annotation).execute(x=value, other="wrong")

    assert result.cause is None
    assert [(problem.key, problem.code) for problem in result.errors] == [
        ("x", "too_deep"), ("other", "int"),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_deep_value_is_refused_by_what_is_not_made_for_it(shape):
    value = nested(SHAPES[shape])

    for task in TASKS:
        result = task.execute(x=value, other="wrong")
        assert result.cause is None
        assert result.errors["other"] == ["must be a whole number"]


@pytest.mark.parametrize("annotation", [list[int], list[list[list[int]]], set[int]])
def test_a_deep_list_is_refused_by_a_type_of_less_depth(annotation):
    result = taking(annotation).execute(x=nested(in_list), other=1)

    assert len(looked_at(result)) == 1


@pytest.mark.parametrize("annotation", [Any, list, list[Any], object])
def test_a_deep_list_is_taken_where_anything_is(annotation):
    value = nested(in_list)

    assert taking(annotation).execute(x=value, other=1).success


def test_a_moderately_deep_value_is_made():
    result = taking(Node).execute(x=nested(SHAPES["children"], 50), other=1)

    depth, node = 0, result.value
    while node.children:
        depth, node = depth + 1, node.children[0]
    assert depth == 50


def test_a_problem_deep_down_has_its_whole_path():
    value = {"name": []}
    for _ in range(20):
        value = {"children": [{}, value]}

    (problem,) = taking(Node).execute(x=value, other=1).errors

    assert problem.key == "x" + ".children[1]" * 20 + ".name"
    assert problem.code == "str"


def test_a_value_that_contains_itself_is_an_error_and_not_a_crash():
    value = {}
    value["parent"] = value

    (problem,) = taking(Node).execute(x=value, other=1).errors

    assert tuple(problem)[::2] == ("x", "too_deep")
