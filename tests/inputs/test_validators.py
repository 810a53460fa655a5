"""The built-in validators, as options and as metadata of ``Annotated``."""

from __future__ import annotations

import re
from collections import UserDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import attrs
import pytest

from cmdx import Errors, Task, optional, required

NAN = float("nan")


def shown(part):
    """Name a row of a table by what is in it, the same in every run."""
    try:
        return re.sub(r" at 0x\w+", "", repr(part))[:60]
    except ValueError:  # a number too long to be written
        return "huge"


named = partial(pytest.mark.parametrize, ids=shown)


class Pretending:
    """Has a length and nothing else."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


# -- as options ------------------------------------------------------------------------

# option, what is asked for, values that pass, values that do not
RULES = [
    ("presence", True, ["a", " a ", 0, 0.0, False, [0], {"a": 1}, NAN, object()],
        ["", " ", "\t\n", "\u00a0", [], (), {}, set(), b"", Pretending(0)]),
    ("absence", True, ["", " ", [], {}, ()], ["a", 0, False, [0], NAN]),
    ("gt", 3, [4, 3.5, Decimal("3.1"), Fraction(7, 2), float("inf")],
        [3, 2, 3.0, -4, NAN, Decimal(3), float("-inf")]),
    ("ge", 3, [3, 3.0, 4, 10**400], [2, 2.999, -3, NAN]),
    ("lt", 3, [2, 2.999, -4], [3, 3.0, 4, NAN, 10**400]),
    ("le", 3, [3, 3.0, -3], [4, 3.001, NAN]),
    ("gt", 0, [1], [0, -1]),
    ("ge", 0, [0], [-1]),
    ("ge", date(2024, 1, 1), [date(2024, 1, 1)], [date(2023, 12, 31)]),
    ("le", "m", ["a", "m"], ["n"]),
    ("multiple_of", 3, [0, 3, -6, 9.0], [1, 2, 4.5, NAN]),
    ("multiple_of", 0.5, [0.5, 1, 2.5], [0.25]),
    ("multiple_of", Decimal("0.1"), [Decimal("0.3")], [Decimal("0.35")]),
    ("length", 2, ["ab", [1, 2], {"a": 1, "b": 2}, Pretending(2)],
        ["", "a", "abc", [], [1, 2, 3]]),
    ("length", 0, ["", []], ["a", [0]]),
    ("min_length", 2, ["ab", "abc", [1, 2]], ["", "a", [1], {}]),
    ("min_length", 0, ["", []], []),
    ("max_length", 2, ["", "ab", [1, 2], {}], ["abc", [1, 2, 3]]),
    ("max_length", 0, ["", []], ["a"]),
    ("pattern", "[a-z]+", ["abc"], ["", "abc1", "1abc", "ab c", "abc\n", "ABC", 7, []]),
    ("pattern", "a|ab", ["a", "ab"], ["abc", "b"]),
    ("pattern", re.compile("[a-z]+", re.IGNORECASE), ["abc", "ABC"], ["1"]),
    ("pattern", ".*", ["", "a", "\ud800"], ["a\nb", None.__class__, b"a"]),
    ("one_of", ["a", "b"], ["a", "b"], ["", "c", "ab", 1, [], {}]),
    ("one_of", ("a",), ["a"], ["b"]),
    ("one_of", {"a": 1}, ["a"], ["b"]),
    ("one_of", range(3), [0, 2], [3, -1, "0"]),
    ("one_of", [], [], ["a", ""]),
    ("one_of", [[1], {}], [[1], {}], [[2], "a"]),
    ("none_of", ["a", "b"], ["", "c", 1, []], ["a", "b"]),
    ("none_of", [], ["a"], []),
]  # fmt: skip

CASES = [
    (option, wanted, value, passes)
    for option, wanted, good, bad in RULES
    for values, passes in ((good, True), (bad, False))
    for value in values
]


@named("case", CASES)
def test_a_validator_takes_and_refuses(problems, case):
    option, wanted, value, passes = case

    found = problems(Any, value, **{option: wanted})

    assert found == ([] if passes else [("x", option)])


@named(("option", "wanted"), [("gt", 3), ("ge", 3), ("lt", 3), ("le", 3)])
@named("value", ["4", [], {}, b"4", 1j, object()])
def test_a_bound_for_what_has_no_order_with_it_says_so(problems, option, wanted, value):
    assert problems(Any, value, **{option: wanted}) == [("x", "numeric")]


def test_a_bound_for_text_that_is_no_number_is_an_ordinary_message(taking):
    result = taking(str, ge=3).execute(x="4")

    assert result.errors.to_dict() == {"x": ["must be numeric"]}
    assert result.cause is None


@named("value", [Decimal("NaN"), Decimal("sNaN")])
def test_a_decimal_that_is_no_number_is_within_no_bounds(problems, value):
    assert problems(Decimal, value, ge=1, le=3) == [("x", "numeric")]


@named("option", ["length", "min_length", "max_length"])
@named("value", [7, 1.5, True, object()])
def test_a_length_of_what_has_none_says_so(problems, option, value):
    assert problems(Any, value, **{option: 3}) == [("x", "sized")]


@named(
    ("options", "value", "message"),
    [
        ({"presence": True}, " ", "must be present"),
        ({"absence": True}, "a", "must be absent"),
        ({"gt": 3}, 3, "must be greater than 3"),
        ({"ge": 3}, 2, "must be at least 3"),
        ({"lt": 3}, 3, "must be less than 3"),
        ({"le": 3}, 4, "must be at most 3"),
        ({"multiple_of": 3}, 4, "must be a multiple of 3"),
        ({"length": 3}, "ab", "must have a length of 3"),
        ({"min_length": 3}, "ab", "must have a length of at least 3"),
        ({"max_length": 3}, "abcd", "must have a length of at most 3"),
        ({"pattern": "a"}, "b", "has the wrong format"),
        ({"one_of": ["a", 1]}, "b", "must be one of a, 1"),
        ({"none_of": ["a", 1]}, "a", "must not be one of a, 1"),
    ],
)
def test_a_validator_says_what_it_wants(taking, options, value, message):
    assert taking(Any, **options).execute(x=value).errors["x"] == [message]


@named("option", ["presence", "absence"])
@named("value", ["a", "", [], 0])
def test_a_validator_that_is_switched_off_asks_nothing(problems, option, value):
    assert problems(Any, value, **{option: False}) == []


def test_all_rules_that_are_given_are_applied(problems):
    options = {"min_length": 3, "max_length": 5, "gt": 1, "lt": 9, "multiple_of": 2}

    assert problems(int, 3, gt=5, le=2, multiple_of=2) == [
        ("x", "gt"), ("x", "le"), ("x", "multiple_of"),
    ]  # fmt: skip
    assert {code for _, code in problems(Any, "ab", **options)} == {
        "min_length", "numeric",
    }  # fmt: skip


@named("option", ["one_of", "none_of"])
def test_choices_may_be_made_by_a_generator(problems, option):
    found = problems(str, "a", **{option: (letter for letter in "ab")})

    assert found == ([] if option == "one_of" else [("x", option)])


def test_choices_that_are_changed_afterwards_do_not_change_the_rule(taking):
    choices = ["a"]
    task = taking(str, one_of=choices)
    choices.append("b")

    assert task.execute(x="a").success
    assert task.execute(x="b").failed


def test_a_validator_sees_what_the_coercion_made(taking):
    task = taking(int, ge=10, one_of=[10, 11])

    assert task.execute(x="10").value == 10
    assert task.execute(x="9").failed


def test_presence_refuses_none_where_the_annotation_admits_it(problems):
    assert problems(str | None, None, presence=True) == [("x", "presence")]


def test_presence_lets_none_pass_where_none_is_the_default():
    with pytest.warns(UserWarning, match=r"does not refuse None.*required") as warned:

        class Tell(Task[str]):
            name: str | None = optional(default=None, presence=True)

            def work(self):
                return self.name

    assert [warning.filename for warning in warned] == [__file__]
    assert Tell.execute().value is None
    assert Tell.execute(name=None).value is None
    assert Tell.execute(name=" ").errors.to_dict() == {"name": ["must be present"]}


def test_presence_of_what_was_never_given_is_that_it_is_required():
    class Tell(Task[str]):
        name: str = required(presence=True)

        def work(self):
            return self.name

    assert [problem.code for problem in Tell.execute().errors] == ["required"]


@named(
    "text",
    ["1" * 10**6, " " * 10**6 + "x", "-" * 10**6, "P" + "1" * 10**6, "1/" * 10**6],
    ids=["digits", "blanks", "signs", "duration", "slashes"],
)
def test_long_text_is_refused_without_delay(taking, text):
    for kind in (int, bool, Fraction, date, timedelta, UUID):
        result = taking(kind).execute(x=text)
        assert len(result.errors) == 1
        assert result.cause is None


# -- as metadata -----------------------------------------------------------------------


@attrs.frozen
class Gt:
    gt: Any


@attrs.frozen
class Ge:
    ge: Any


@attrs.frozen
class Lt:
    lt: Any


@attrs.frozen
class Le:
    le: Any


@attrs.frozen
class Interval:
    """All bounds at once, as a group that is also its own attributes."""

    gt: Any = None
    ge: Any = None
    lt: Any = None
    le: Any = None

    @property
    def __is_annotated_types_grouped_metadata__(self):
        return True

    def __iter__(self):
        for kind, bound in [(Gt, self.gt), (Ge, self.ge), (Lt, self.lt), (Le, self.le)]:
            if bound is not None:
                yield kind(bound)


@attrs.frozen
class Group:
    """A group that says nothing itself."""

    members: tuple

    __is_annotated_types_grouped_metadata__ = True

    def __iter__(self):
        return iter(self.members)


@attrs.frozen
class MultipleOf:
    multiple_of: Any


@attrs.frozen
class Len:
    min_length: int = 0
    max_length: int | None = None


@attrs.frozen
class Predicate:
    func: Any


def at_least(bound, value):
    if value < bound:
        raise ValueError(f"is less than {bound}")


class Checker:
    def __call__(self, value):
        return value % 2 == 0


# metadata, values that pass, values that do not with their code
METADATA = [
    ((Gt(3),), [4], [(3, "gt")]),
    ((Ge(3),), [3], [(2, "ge")]),
    ((Lt(3),), [2], [(3, "lt")]),
    ((Le(3),), [3], [(4, "le")]),
    ((Ge(0),), [0], [(-1, "ge")]),
    ((Ge(1), Le(3)), [1, 3], [(0, "ge"), (4, "le")]),
    ((Interval(ge=1, lt=3),), [1, 2], [(0, "ge"), (3, "lt")]),
    ((Interval(),), [1, -1], []),
    ((Group((Ge(1), Le(3))),), [2], [(0, "ge"), (4, "le")]),
    ((Group((Group((Ge(1),)),)),), [2], [(0, "ge")]),
    ((MultipleOf(3),), [3], [(4, "multiple_of")]),
    ((Predicate(lambda value: value > 3),), [4], [(3, "invalid")]),
    ((partial(at_least, 3),), [3], [(2, "invalid")]),
    ((lambda value: at_least(3, value),), [3], [(2, "invalid")]),
    ((Checker(),), [2], [(3, "invalid")]),
    (("a note", 7, None, int, object(), {"ge": 3}), [1], []),
]
TEXTS = [
    ((Len(2, 3),), ["ab", "abc"], [("a", "min_length"), ("abcd", "max_length")]),
    ((Len(1),), ["a"], [("", "min_length")]),
    ((Len(),), [""], []),
    ((re.compile("[a-z]+"),), ["a"], [("A", "pattern"), ("", "pattern")]),
    ((re.compile("[a-z]+", re.IGNORECASE),), ["a", "A"], [("1", "pattern")]),
    ((Predicate(str.islower),), ["a"], [("A", "invalid")]),
    ((str.isalpha,), ["a"], [("1", "invalid")]),
]


@named(
    ("annotation", "value", "code"),
    [
        (Annotated[(kind, *metadata)], value, code)
        for kind, table in ((int, METADATA), (str, TEXTS))
        for metadata, good, bad in table
        for value, code in [*((each, None) for each in good), *bad]
    ],
)
def test_constraints_of_the_annotation_take_and_refuse(
    problems, annotation, value, code
):
    assert problems(annotation, value) == ([] if code is None else [("x", code)])


def test_constraints_and_options_are_both_applied(problems):
    assert problems(Annotated[int, Ge(1)], 4, multiple_of=3) == [("x", "multiple_of")]
    assert problems(Annotated[int, Ge(1)], 0, multiple_of=3) == [("x", "ge")]


def test_all_constraints_of_an_annotation_are_reported_at_once(problems):
    assert problems(Annotated[int, Ge(5), MultipleOf(2), Le(1)], 3) == [
        ("x", "ge"), ("x", "multiple_of"), ("x", "le"),
    ]  # fmt: skip


def test_constraints_hold_inside_containers_and_classes(problems):
    @attrs.define
    class Inner:
        number: Annotated[int, Ge(1)]

    assert problems(list[Annotated[int, Ge(1)]], [1, 0]) == [("x[1]", "ge")]
    assert problems(dict[str, Annotated[int, Ge(1)]], {"a": 0}) == [("x[a]", "ge")]
    assert problems(Annotated[list[int], Len(2)], [1]) == [("x", "min_length")]
    assert problems(Inner, {"number": 0}) == [("x.number", "ge")]


def test_constraints_may_bound_dates(problems):
    annotation = Annotated[datetime, Ge(datetime(2024, 1, 1, tzinfo=UTC))]

    assert problems(annotation, "2024-01-01T00:00Z") == []
    assert problems(annotation, "2023-12-31T00:00Z") == [("x", "ge")]
    assert problems(annotation, "2024-01-01T00:00") == [("x", "numeric")]


def test_constraints_of_the_real_annotated_types_are_understood(problems):
    types = pytest.importorskip("annotated_types")

    assert problems(Annotated[int, types.Ge(1)], 0) == [("x", "ge")]
    assert problems(Annotated[int, types.Gt(1)], 1) == [("x", "gt")]
    assert problems(Annotated[int, types.Le(1)], 2) == [("x", "le")]
    assert problems(Annotated[int, types.Lt(1)], 1) == [("x", "lt")]
    assert problems(Annotated[int, types.MultipleOf(2)], 1) == [("x", "multiple_of")]
    assert problems(Annotated[int, types.Interval(ge=1, lt=3)], 3) == [("x", "lt")]
    assert problems(Annotated[str, types.Len(2, 3)], "a") == [("x", "min_length")]
    assert problems(Annotated[str, types.Len(2, 3)], "abcd") == [("x", "max_length")]
    assert problems(Annotated[str, types.MinLen(2)], "a") == [("x", "min_length")]
    assert problems(types.LowerCase[str], "A") == [("x", "invalid")]
    assert problems(Annotated[str, types.doc("a note")], "A") == []


# -- errors ----------------------------------------------------------------------------


def test_errors_are_kept_once_and_in_order():
    errors = Errors()
    errors.add("b", "is odd", "odd")
    errors.add("a", "is even")
    errors.add("b", "is odd", "odd")
    errors.add("b", "is large")

    assert [tuple(problem) for problem in errors] == [
        ("b", "is odd", "odd"), ("a", "is even", None), ("b", "is large", None),
    ]  # fmt: skip
    assert len(errors) == 3
    assert errors.to_dict() == {"b": ["is odd", "is large"], "a": ["is even"]}
    assert errors.full_messages() == ["b is odd", "a is even", "b is large"]
    assert str(errors) == "b is odd. a is even. b is large"
    assert errors["b"] == ["is odd", "is large"]
    assert errors["c"] == []
    assert "a" in errors
    assert "c" not in errors


def test_errors_are_false_when_there_are_none():
    errors = Errors()
    assert not errors
    assert str(errors) == ""
    errors.add("a", "is odd")
    assert errors
    errors.clear()
    assert not errors
    assert errors.to_dict() == {}


def test_errors_may_be_added_while_they_are_looked_at():
    errors = Errors()
    errors.add("a", "is odd")
    for problem in errors:
        errors.add(f"{problem.key}.x", "is odd")

    assert errors.to_dict() == {"a": ["is odd"], "a.x": ["is odd"]}


def test_errors_show_themselves():
    errors = Errors()
    errors.add("a", "is odd")

    assert repr(errors) == "Errors({'a': ['is odd']})"


def test_a_mapping_that_is_no_dict_has_a_length(problems):
    assert problems(Any, UserDict(a=1), max_length=0) == [("x", "max_length")]
