"""Forms as they come: blank fields, and keys with several values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum, StrEnum
from typing import Any, Literal, NotRequired, TypedDict
from urllib.parse import parse_qsl

import attrs
import pytest

from cmdx import Task, Workflow, group, optional, parallel, required, step

# -- blank text ------------------------------------------------------------------------


class Color(Enum):
    RED = "red"


class Shade(StrEnum):
    DARK = "dark"


class Answer(Enum):
    NONE = ""
    YES = "yes"


@attrs.frozen
class Point:
    x: int


class Slug(str):
    __slots__ = ()


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
@pytest.mark.parametrize(
    "annotation",
    [
        int, float, bool, date, int | date, list[str], dict[str, str], Point, Color,
        Shade, Literal["a"], type[int],
    ],
    ids=str,
)  # fmt: skip
def test_blank_text_counts_as_not_given_for_anything_but_text(annotation, blank):
    class Take(Task[Any]):
        needed: annotation
        spare: annotation | None = None

        def work(self):
            return self.spare, self.given("spare")

    result = Take.execute(needed=blank)
    assert [(problem.key, problem.code) for problem in result.errors] == [
        ("needed", "required")
    ]

    class Spare(Take):
        needed = None

    assert Spare.execute(spare=blank).value == (None, False)


@pytest.mark.parametrize(
    ("annotation", "taken"),
    [
        (str, " "),
        (str | None, " "),
        (int | str, " "),
        (bytes, b" "),
        (Any, " "),
        (object, " "),
        (Literal[" ", "a"], " "),
    ],
    ids=str,
)
def test_blank_text_is_a_value_where_text_is(taking, annotation, taken):
    assert taking(annotation).execute(x=" ").value == taken


def test_blank_text_is_a_value_of_an_enum_and_of_a_class_of_text(taking):
    assert taking(Answer).execute(x="").value is Answer.NONE
    assert taking(Slug).execute(x=Slug("")).value == ""
    assert taking(int, coerce=False).execute(x="").value == ""


def test_a_blank_field_takes_its_default():
    class Book(Task[Any]):
        seats: int = 2
        tags: list[str] = optional(default="", coerce=str.split)
        found: int = optional(source=lambda: "", default=7)

        def work(self):
            return self.seats, self.tags, self.found

    assert Book.execute({"seats": "", "tags": " "}).value == (2, [], 7)
    assert Book.execute({"seats": "4", "tags": "a b"}).value == (4, ["a", "b"], 7)


# -- several values --------------------------------------------------------------------


class Form(Mapping[str, Any]):
    """A multi-dict: reading a key gives its last value."""

    def __init__(self, *pairs: tuple[str, Any]) -> None:
        self.pairs = pairs

    def __getitem__(self, key: str) -> Any:
        return dict(self.pairs)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.pairs))

    def __len__(self) -> int:
        return len(dict(self.pairs))

    def values_of(self, key: str) -> tuple[Any, ...]:
        return tuple(value for name, value in self.pairs if name == key)


class Werkzeug(Form):
    getlist = Form.values_of


class MultiDict(Form):
    getall = Form.values_of


class Httpx(Form):
    def multi_items(self):
        return list(self.pairs)


class Django(dict):
    """A dict with lists inside, which copying as a dict would show."""

    def __getitem__(self, key):
        return super().__getitem__(key)[-1]

    def getlist(self, key):
        return super().__getitem__(key)


PAIRS = [("guest", "Ada"), ("tags", "a"), ("tags", "b"), ("codes", "7"), ("more", "x")]


class Book(Task[Any]):
    guest: str
    tags: list[str]
    codes: set[int] | None = None
    seats: tuple[int, ...] = ()

    def work(self):
        return self.guest, self.tags, self.codes, self.seats, self.context.more


@pytest.mark.parametrize(
    "form",
    [
        Werkzeug(*PAIRS),
        MultiDict(*PAIRS),
        Httpx(*PAIRS),
        Django(guest=["Ada"], tags=["a", "b"], codes=["7"], more=["y", "x"]),
    ],
    ids=lambda form: type(form).__name__,
)
def test_a_list_takes_all_values_of_a_multi_dict(form):
    assert Book.execute(form).value == ("Ada", ["a", "b"], {7}, (), "x")
    assert Book.execute(form, tags=["c"]).value[1] == ["c"]


def query_dict(sent):
    from django.conf import settings
    from django.http import QueryDict

    if not settings.configured:
        settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
    return QueryDict(sent)


def werkzeug_form(sent):
    from werkzeug.datastructures import ImmutableMultiDict

    return ImmutableMultiDict(parse_qsl(sent, keep_blank_values=True))


def starlette_form(sent):
    from starlette.datastructures import FormData

    return FormData(parse_qsl(sent, keep_blank_values=True))


def starlette_query(sent):
    from starlette.datastructures import QueryParams

    return QueryParams(sent)


def httpx_query(sent):
    from httpx import QueryParams

    return QueryParams(sent)


@pytest.mark.parametrize(
    "form_of",
    [query_dict, werkzeug_form, starlette_form, starlette_query, httpx_query],
)
@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ("guest=Ada", ("Ada", ["none"], set(), 2, False)),
        ("guest=&seats=&codes=&news=", ("", ["none"], set(), 2, False)),
        (
            "guest=Ada&tags=a&tags=b&codes=7&codes=8&seats=3&news=on&other=1",
            ("Ada", ["a", "b"], {7, 8}, 3, True),
        ),
        ("guest=Ada&tags=a&codes=7&news=off", ("Ada", ["a"], {7}, 2, False)),
        ("guest=Ada&tags=&tags=b", ("Ada", ["", "b"], set(), 2, False)),
    ],
)
def test_the_forms_of_web_frameworks_are_taken_as_they_come(form_of, sent, taken):
    class Reserve(Task[Any]):
        guest: str
        tags: list[str] = optional(factory=lambda: ["none"])
        codes: set[int] = optional(factory=set)
        seats: int = 2
        news: bool = False

        def work(self):
            return self.guest, self.tags, self.codes, self.seats, self.news

    form = form_of(sent)

    assert Reserve.execute(form).or_raise().value == taken
    assert Reserve.execute(form, guest="Bob").value == ("Bob", *taken[1:])


@pytest.mark.parametrize(
    ("form_of", "taken"),
    [(query_dict, 2), (werkzeug_form, 1), (starlette_form, 2)],
)
def test_a_single_input_takes_the_value_that_the_framework_chooses(form_of, taken):
    class Reserve(Task[int]):
        seats: int

        def work(self) -> int:
            return self.seats

    assert Reserve.execute(form_of("seats=1&seats=2")).value == taken


def test_a_list_that_is_not_in_a_multi_dict_is_not_given():
    result = Book.execute(Werkzeug(("guest", "Ada")))

    assert result.errors.to_dict() == {"tags": ["is required"]}


def test_a_list_under_an_alias_takes_all_values():
    class Tag(Task[list[str]]):
        names: list[str] = required(alias="tags")

        def work(self):
            return self.names

    assert Tag.execute(Werkzeug(*PAIRS)).value == ["a", "b"]


@pytest.mark.parametrize("blank", ["", " "])
@pytest.mark.parametrize("annotation", [list[int], list[str], set[int], tuple[int]])
def test_one_blank_value_of_a_multi_dict_is_not_given(taking, annotation, blank):
    class Spare(Task[Any]):
        x: annotation | None = None

        def work(self):
            return self.x, self.given("x")

    form = Werkzeug(("x", blank))
    assert taking(annotation).execute(form).reason == "x is required"
    assert Spare.execute(form).value == (None, False)


def test_blank_values_beside_others_are_values(taking):
    form = Werkzeug(("x", ""), ("x", "7"))

    assert taking(list[str]).execute(form).value == ["", "7"]
    assert taking(list[int]).execute(form).reason == "x[0] must be a whole number"


def test_a_list_without_coercion_keeps_its_blank_value(taking):
    form = Werkzeug(("x", ""))

    assert taking(list[str], coerce=False).execute(form).value == [""]


class Label(Task[Any]):
    tags: list[str]

    def work(self):
        return self.tags


class Shout(Task[Any]):
    word: str

    def work(self):
        return self.word.upper()


@pytest.mark.parametrize(
    "steps",
    [
        (Label,),
        (Shout, Label),
        (group(Shout, group(Label)),),
        (parallel(group(Label), Shout, executor="inline", merge="none"), Label),
        (step(Label, map={"tags": "marks"}),),
    ],
    ids=str,
)
def test_the_steps_of_a_workflow_get_all_values_of_a_multi_dict(steps):
    listed = steps

    class Flow(Workflow[Any]):
        steps = listed

    class Outer(Workflow[Any]):
        steps = (Flow,)

    form = Werkzeug(
        ("tags", "a"), ("tags", "b"), ("word", "c"), ("word", "d"),
        ("marks", "a"), ("marks", "b"),
    )  # fmt: skip

    assert Flow.execute(form).or_raise().value == ["a", "b"]
    assert Outer.execute(form).or_raise().value == ["a", "b"]


def test_the_first_that_takes_a_key_decides_whether_it_gets_all_values():
    class Split(Task[None]):
        tags: str

        def work(self):
            self.context.tags = self.tags.split()

    class Flow(Workflow[Any]):
        steps = (Split, Label)

    class Declared(Workflow[Any]):
        tags: str
        steps = (Label,)

    form = Werkzeug(("tags", "a"), ("tags", "b c"))
    assert Flow.execute(form).value == ["b", "c"]
    assert Declared.execute(form).reason == "tags must be a list"


def test_one_value_of_a_plain_mapping_is_still_not_a_list():
    assert Book.execute(guest="Ada", tags="a").errors.to_dict() == {
        "tags": ["must be a list"]
    }


# -- nested fields ---------------------------------------------------------------------


@dataclass
class Net:
    port: int | None = None
    speed: int = 3
    name: str = "lan"


@attrs.frozen
class Link:
    net: Net
    on: date | None = None


class Reading(TypedDict):
    unit: str
    value: NotRequired[float]


@pytest.mark.parametrize(
    ("annotation", "given", "taken"),
    [
        (Net, {"port": "", "speed": " "}, Net(None, 3)),
        (Net, {"port": "80", "name": ""}, Net(80, 3, "")),
        (Link, {"net": {"port": ""}, "on": ""}, Link(Net())),
        (list[Net], [{"speed": ""}, {"speed": "9"}], [Net(), Net(speed=9)]),
        (Reading, {"unit": "", "value": ""}, {"unit": ""}),
    ],
    ids=str,
)
def test_blank_text_counts_as_not_given_in_nested_fields(
    taking, annotation, given, taken
):
    assert taking(annotation).execute(x=given).value == taken


def test_a_nested_field_that_is_blank_and_required_is_missing(problems):
    assert problems(Point, {"x": " "}) == [("x.x", "required")]
    assert problems(Link, {"net": ""}) == [("x.net", "required")]
