"""Values that cannot be shown, are huge, or are not JSON: a result shows itself."""

from __future__ import annotations

import io
import json
import sys
import tracemalloc
from collections import OrderedDict, UserDict
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdx import Task, Workflow

# -- what cannot be shown -------------------------------------------------------------


class Raising:
    def __repr__(self):
        raise ZeroDivisionError("no words")


class Wordless:
    def __repr__(self):
        return None

    __str__ = __repr__


class Endless:
    def __repr__(self):
        return repr(self)


class Disguised:
    """Its class cannot be asked for, as that of a lazy object whose source is gone."""

    @property
    def __class__(self):
        raise RuntimeError("not loaded")

    def __repr__(self):
        return "disguised"


class Unlistable(list):
    def __iter__(self):
        raise OSError("gone")


class Unmappable(Mapping):
    def __getitem__(self, key):
        raise OSError("gone")

    def __iter__(self):
        raise OSError("gone")

    def __len__(self):
        return 1

    __repr__ = Raising.__repr__


class Failure(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return str(self.value)


class Return(Task[object]):
    def work(self):
        self.metadata["noted"] = self.context.value
        return self.context.value


class Raise(Task[None]):
    def work(self):
        self.metadata[self.context.value] = 1
        raise Failure(self.context.value)

    def rollback(self):
        raise Failure(self.context.value)


class Flow(Workflow[object]):
    steps = (Return, Raise)


UNSHOWABLE = {
    "raising": Raising(),
    "without words": Wordless(),
    "endless": Endless(),
    "an int of 5000 digits": 10**5000,
}


@pytest.fixture(params=UNSHOWABLE)
def unshowable(request):
    return UNSHOWABLE[request.param]


@pytest.mark.parametrize("task", [Return, Raise, Flow])
def test_no_text_or_data_of_a_run_raises(task, unshowable):
    result = task.execute(value=unshowable)

    for text in (repr(result), str(result), result.summary(), result.chain.tree()):
        assert text
    assert json.loads(result.to_json()) == json.loads(result.to_json())
    for picture in ("to_mermaid", "to_svg", "to_html", "_repr_html_"):
        assert getattr(result.chain, picture)()


def test_a_value_that_cannot_be_shown_is_shown_by_its_class(unshowable):
    name = type(unshowable).__name__
    result = Return.execute(value=unshowable)

    assert repr(result).endswith(f"value=<{name}>")
    assert result.chain.tree().endswith(f"value=<{name}>")
    assert json.loads(result.to_json())["value"] == f"<{name}>"


def test_what_is_beside_it_is_shown(unshowable):
    name = type(unshowable).__name__
    result = Return.execute(value=[1, {"a": (unshowable,)}, {unshowable}])

    assert repr(result).endswith(f"value=[1, {{'a': (<{name}>,)}}, {{<{name}>}}]")
    assert json.loads(result.to_json())["value"] == [
        1,
        {"a": [f"<{name}>"]},
        f"{{<{name}>}}",
    ]


def test_a_value_that_changes_meanwhile_is_shown_by_its_class():
    entries = {}

    class Growing:
        def __repr__(self):
            entries[len(entries)] = 0
            return "growing"

    entries["first"] = Growing()

    assert repr(Return.execute(value=entries)).endswith("value=<dict>")


def test_a_failure_without_words_is_named_by_its_class(unshowable):
    result = Raise.execute(value=unshowable)

    assert result.reason == "[Failure]"
    assert repr(result).endswith(": [Failure], rollback failed: Failure")


# -- how values look ------------------------------------------------------------------

PLAIN = [
    [], (), {}, set(), frozenset(), [1, 2], (1,), (1, 2), {1}, frozenset({1}),
    {"a": [1, (2, "three")], 4: {5: None}}, [[]], [()], "it's", 'say "x"', b"raw",
    bytearray(b"raw"), 1.5, -7, True, None, range(3), Decimal("1.50"), 1j,
    OrderedDict(a=1), [frozenset(), set()],
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_short_value_looks_as_its_repr(value):
    assert repr(Return.execute(value=[value])).endswith(f"value={[value]!r}")


@pytest.mark.parametrize(
    "value", [list(range(99)), "x" * 99, b"x" * 99, dict.fromkeys(range(99))]
)
def test_a_long_value_is_the_start_of_its_repr(value):
    assert repr(Return.execute(value=value)).endswith(f"value={repr(value)[:60]}…")


def test_a_value_that_contains_itself_is_cut():
    value = {"items": []}
    value["items"].append(value)

    assert repr(Return.execute(value=value)).endswith("…")


def test_the_names_of_classes_cannot_forge_a_line():
    name = "Fine\n✓ Other \x1b[31m"
    result = type(name, (Return,), {"__qualname__": name}).execute(value=1)

    for text in (repr(result), result.chain.tree()):
        assert len(text.splitlines()) == 1
        assert "\x1b" not in text


@pytest.mark.parametrize("encoding", [Mock(), 7, "a\0b", "no such thing"])
def test_marks_are_ascii_if_nobody_knows_the_encoding(monkeypatch, encoding):
    monkeypatch.setattr(sys, "stdout", Mock(encoding=encoding))

    assert repr(Return.execute(value=1)).startswith("+ ")


def test_a_stream_is_asked_for_its_encoding_even_if_it_is_false(monkeypatch):
    class Empty(io.StringIO):
        encoding = "ascii"

        def __bool__(self):
            raise TypeError("neither true nor false")

    monkeypatch.setattr(sys, "stdout", Empty())

    assert repr(Return.execute(value=1)).startswith("+ ")


# -- what is huge ---------------------------------------------------------------------


class Counting:
    """Counts how many of its kind are shown."""

    shown = 0

    def __repr__(self):
        Counting.shown += 1
        return "c"

    def __hash__(self):
        return id(self)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, dict.fromkeys])
@pytest.mark.parametrize("depth", [1, 2])
def test_only_what_is_shown_of_plain_data_is_looked_at(monkeypatch, kind, depth):
    monkeypatch.setattr(Counting, "shown", 0)
    value = kind([Counting() for _ in range(10_000)])
    for _ in range(1, depth):
        value = [value] * 1000

    line = repr(Return.execute(value=value))

    assert line.endswith("…")
    assert Counting.shown <= 60


@pytest.mark.parametrize("kind", [str, bytes, bytearray])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_huge_text_is_cut_before_it_is_shown(kind, depth):
    letters = kind(b"x" * 10_000_000, *(["ascii"] if kind is str else []))
    result = Return.execute(value=[letters] if depth else letters)

    tracemalloc.start()
    line = repr(result)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000
    assert line.endswith("xxx…")


# -- JSON -----------------------------------------------------------------------------


class Color(Enum):
    RED = 1


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    YES = "yes"


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def written(value):
    """Return how *value* arrives in a program that reads the JSON of a result."""
    text = Return.execute(value=value).to_json()
    return json.loads(text.encode().decode(), parse_constant=refuse)["value"]


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (({1: "a"}, {(1, 2): "b"}), [{"1": "a"}, {"(1, 2)": "b"}]),
        ({"a": ({None: 1},)}, {"a": [{"None": 1}]}),
        (MappingProxyType({1: [2]}), {"1": [2]}),
        (UserDict({1: 2}), {"1": 2}),
        (OrderedDict({Word.YES: Word.YES}), {"yes": "yes"}),
        ([Size.SMALL, Color.RED], [1, "<Color.RED: 1>"]),
        ({frozenset({1}): {2}}, {"frozenset({1})": "{2}"}),
        (b"x" * 99, repr(b"x" * 99)),
        (float("nan"), "NaN"),
        ([float("inf"), float("-inf"), 1.5], ["Infinity", "-Infinity", 1.5]),
        ("lone \ud800 surrogate", "lone \ud800 surrogate"),
        ({"\udcff": "\udcff"}, {"\udcff": "\udcff"}),
        (10**5000, "<int>"),
        ({10**5000: 1}, {"<int>": 1}),
        (Disguised(), "disguised"),
        ({Disguised(): 1}, {"disguised": 1}),
        (Unlistable([1]), "[1]"),
        (Unmappable(), "<Unmappable>"),
        ({Raising(): Raising()}, {"<Raising>": "<Raising>"}),
    ],
    ids=lambda _: "",
)
def test_json_has_what_it_can_have(value, arrives):
    assert written(value) == arrives


def test_json_has_three_dots_where_data_contains_itself():
    entries, items = {"name": "Ada"}, [1]
    entries["self"] = entries
    items.append((items, entries))

    assert written(entries) == {"name": "Ada", "self": "..."}
    assert written(items) == [1, ["...", {"name": "Ada", "self": "..."}]]


def test_json_has_the_same_data_in_several_places():
    shared = [1]

    assert written([shared, {"again": shared}]) == [[1], {"again": [1]}]


@pytest.mark.parametrize("depth", [500, 100_000])
@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"a": x}])
def test_json_has_three_dots_where_data_is_nested_too_deep(depth, wrap):
    value = "innermost"
    for _ in range(depth):
        value = wrap(value)

    assert "..." in json.dumps(written(value))
    assert repr(Return.execute(value=value)).endswith("…")


HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.builds(lambda: 10**5000),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(), max_size=5),  # lone surrogates included
    st.binary(max_size=5),
    *map(st.builds, (Raising, Wordless, Endless)),
    st.sampled_from([Size.SMALL, Color.RED, Word.YES]),
)
ODD = st.recursive(
    HASHABLE | st.builds(Unmappable),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.lists(inner).map(Unlistable),
        st.sets(HASHABLE),
        st.dictionaries(HASHABLE, inner),
        st.dictionaries(HASHABLE, inner).map(MappingProxyType),
        st.dictionaries(st.tuples(HASHABLE), inner).map(UserDict),
    ),
    max_leaves=20,
)


@given(ODD)
def test_the_json_of_any_value_can_be_sent_and_read(value):
    for result in (Return.execute(value=value), Raise.execute(value=(id(value),))):
        json.loads(result.to_json().encode().decode(), parse_constant=refuse)
        assert repr(result).encode()
