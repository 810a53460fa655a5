"""``message=``: messages of an input, beside the catalogue."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Annotated, Any

import attrs
import pytest
from annotated_types import Ge, Len, Predicate
from django.utils.functional import lazy

from cmdx import (
    DefinitionError,
    Invalid,
    Task,
    before_execution,
    messages,
    optional,
    required,
)
from cmdx.inputs.constraints import NAMES
from cmdx.inputs.fields import RuleMessages


@attrs.frozen
class Point:
    x: int


class Coded(ValueError):
    code = "coded"


def refuse(_value):
    raise Coded("says the validator")


def refuse_as_invalid(_value):
    raise Invalid("own", "says the validator")


@pytest.fixture
def messages_for(taking):
    """Return the messages by key for a value of ``x``, and for nothing if it is ..."""

    def find(annotation, value, **options):
        given = {} if value is ... else {"x": value}
        return taking(annotation, **options).check(given).to_dict()

    return find


BREAKING = [
    (str, "", {"presence": True}),
    (str, "a", {"absence": True}),
    (int, 3, {"gt": 3}),
    (int, 3, {"ge": 4}),
    (int, 3, {"lt": 3}),
    (int, 3, {"le": 2}),
    (int, 3, {"multiple_of": 2}),
    (str, "a", {"length": 2}),
    (str, "a", {"min_length": 2}),
    (str, "abc", {"max_length": 2}),
    (str, "a", {"pattern": "b"}),
    (str, "a", {"one_of": ["b"]}),
    (str, "a", {"none_of": ["a"]}),
    (str, "a", {"validate": refuse}),
    (str, "a", {"validate": refuse_as_invalid}),
    (str, "a", {"validate": lambda _: "says the lambda"}),
    (str, "a", {"validate": lambda _: False}),
    (object, "a", {"ge": 1}),
    (object, 3, {"length": 1}),
]


@pytest.mark.parametrize(("annotation", "value", "rule"), BREAKING)
def test_a_text_is_the_message_of_every_rule(messages_for, annotation, value, rule):
    found = messages_for(annotation, value, **rule, message="is wrong")

    assert found == {"x": ["is wrong"]}


@pytest.mark.parametrize(("annotation", "value", "rule"), BREAKING)
def test_a_mapping_has_the_message_of_a_rule(messages_for, annotation, value, rule):
    (name,) = rule

    found = messages_for(annotation, value, **rule, message={name: "is wrong"})

    assert found == {"x": ["is wrong"]}


@pytest.mark.parametrize(
    ("annotation", "value", "rule"),
    [
        (Annotated[int, Ge(4)], 3, "ge"),
        (Annotated[int, Ge(4)] | None, 3, "ge"),
        (Annotated[str, Len(2)], "a", "min_length"),
        (Annotated[str, Predicate(str.islower)], "A", "validate"),
        (Annotated[str, refuse], "a", "validate"),
    ],
)
@pytest.mark.parametrize("form", ["text", "mapping"])
def test_rules_in_annotations_have_it_too(messages_for, annotation, value, rule, form):
    message = "is wrong" if form == "text" else {rule: "is wrong"}

    assert messages_for(annotation, value, message=message) == {"x": ["is wrong"]}


def test_rules_that_a_mapping_does_not_name_keep_theirs(messages_for):
    found = messages_for(int, 3, ge=9, le=1, message={"ge": "is small"})

    assert found == {"x": ["is small", "must be at most 1"]}


def test_one_text_for_several_broken_rules_is_one_problem(messages_for):
    assert messages_for(int, 3, ge=9, le=1, message="no") == {"x": ["no"]}


def test_the_code_stays_that_of_the_rule(taking):
    task = taking(int, ge=4, validate=refuse, message="is wrong")

    assert [problem.code for problem in task.check(x=3)] == ["ge"]
    assert [problem.code for problem in task.check(x=5)] == ["coded"]


@pytest.mark.parametrize(
    ("value", "rule", "found"),
    [
        (..., "required", "is wrong"),
        (None, "required", "is wrong"),
        ("", "required", "is wrong"),
        ("x", "coerce", "is wrong"),
        ("x", "required", "must be a whole number"),
        (..., "coerce", "is required"),
    ],
)
def test_a_mapping_may_name_what_is_no_rule_of_its_own(
    messages_for, value, rule, found
):
    assert messages_for(int, value, message={rule: "is wrong"}) == {"x": [found]}


@pytest.mark.parametrize(
    ("value", "found"), [(..., "is required"), ("x", "must be a whole number")]
)
def test_a_text_is_for_rules_only(messages_for, value, found):
    assert messages_for(int, value, ge=1, message="is wrong") == {"x": [found]}


def test_what_coerce_and_transform_refuse_is_not_converted(messages_for):
    message = {"coerce": "is wrong"}

    assert messages_for(int, "a", coerce=refuse, message=message) == {"x": ["is wrong"]}
    assert messages_for(int, 1, transform=refuse, message=message) == {
        "x": ["is wrong"]
    }


@pytest.mark.parametrize(
    ("annotation", "value", "key"),
    [(list[int], ["x"], "x[0]"), (Point, {"x": "y"}, "x.x")],
)
def test_parts_of_a_value_keep_their_messages(messages_for, annotation, value, key):
    found = messages_for(annotation, value, message={"coerce": "is wrong"})

    assert found == {key: ["must be a whole number"]}


@pytest.mark.parametrize("value", [3, 30])
def test_the_values_of_all_rules_fill_the_placeholders(messages_for, value):
    found = messages_for(
        Annotated[int, Ge(5)], value, le=9, message="must be in {ge} to {le}"
    )

    assert found == {"x": ["must be in 5 to 9"]}


def test_choices_are_listed_as_in_the_catalogue(messages_for):
    found = messages_for(str, "c", one_of=["a", "b"], message="say {one_of}")

    assert found == {"x": ["say a, b"]}


def test_a_placeholder_nobody_fills_leaves_the_message_as_it_is(messages_for):
    found = messages_for(str, "c", one_of=["a"], message="say {one_of}, not {it}")

    assert found == {"x": ["say {one_of}, not {it}"]}


def test_the_form_of_a_text_of_ones_own_decides(messages_for):
    class Translated(str):
        __slots__ = ()

        def format(self, **values):
            return f"mindestens {values['ge']}"

    assert messages_for(int, 3, ge=4, message=Translated("ge")) == {
        "x": ["mindestens 4"]
    }


def test_a_method_that_validates_has_it_too():
    class Draw(Task[None]):
        number: int = required(validate="is_lucky", message="brings bad luck")

        def is_lucky(self, number):
            return number != 13

        def work(self): ...

    assert Draw.check(number=13)["number"] == ["brings bad luck"]


def test_a_default_that_is_refused_has_it_too():
    class Draw(Task[None]):
        number: int = optional(factory=lambda: 13, le=12, message={"le": "is too much"})

        def work(self): ...

    assert Draw.check()["number"] == ["is too much"]


def test_a_subclass_that_changes_the_default_keeps_the_messages():
    class Parent(Task[None]):
        x: int = required(ge=1, message={"ge": "is small", "required": "where is it"})

        def work(self): ...

    class Child(Parent):
        x = 3

    assert Child.check(x=0)["x"] == ["is small"]
    assert not Child.check()


def test_a_mapping_that_is_changed_later_changes_nothing():
    texts = {"ge": "is small"}

    class Tell(Task[None]):
        x: int = required(ge=1, message=texts)

        def work(self): ...

    texts["ge"] = "is changed"

    assert Tell.check(x=0)["x"] == ["is small"]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"message": {"min": "x"}}, "use `ge`. Its rules: required, coerce, ge."),
        ({"message": {"gee": "x"}}, "did you mean 'ge'"),
        ({"message": {"le": "x"}}, "X.x: message has a text for 'le'"),
        ({"message": {"predicate": "x"}}, "no rule of this input"),
    ],
)
def test_a_rule_that_the_input_has_not_is_refused_with_those_it_has(options, hint):
    with pytest.raises(DefinitionError) as caught:

        class X(Task[None]):
            x: int = required(ge=1, **options)

            def work(self): ...

    assert hint in str(caught.value)
    assert "Its rules: required, coerce, ge." in str(caught.value)


def test_a_rule_is_listed_once():
    with pytest.raises(DefinitionError, match=r"coerce, validate\.$"):

        class X(Task[None]):
            x: Annotated[Any, Predicate(str.islower), refuse] = required(
                validate=refuse, message={"ge": "x"}
            )

            def work(self): ...


def test_a_text_without_a_rule_is_refused():
    with pytest.raises(DefinitionError, match=r'message={"required": \.\.\.}'):

        class X(Task[None]):
            x: int = required(message="is wrong")

            def work(self): ...


@pytest.mark.parametrize("message", ["", 3, {}, {"ge": 3}, {"ge": ""}, ["is wrong"]])
@pytest.mark.parametrize("declare", [required, lambda **kw: optional(default=1, **kw)])
def test_what_is_no_message_is_refused(declare, message):
    with pytest.raises(DefinitionError, match="message must be a text, or a mapping"):
        declare(ge=1, message=message)


def test_an_optional_input_cannot_be_missing():
    with pytest.raises(DefinitionError, match="may be left out"):
        optional(default=1, message={"required": "is missing"})


def test_type_checkers_know_all_rules():
    assert RuleMessages.__annotations__.keys() == {
        "required", "coerce", "validate", *NAMES,
    }  # fmt: skip


# -- in the language of the moment ----------------------------------------------------

language = ContextVar("language", default="en")
TEXTS = {"en": "must be {ge} or more", "de": "muss mindestens {ge} sein"}


def translated():
    return TEXTS[language.get()]


class Proxy:
    """A lazy string that passes on all attributes, as that of Babel does."""

    def __init__(self, call):
        self.__dict__["call"] = call

    def __getattr__(self, name):
        return getattr(self.call(), name)

    def __str__(self):
        return self.call()


LAZY = pytest.mark.parametrize(
    "text",
    [translated, lazy(translated, str)(), Proxy(translated)],
    ids=["callable", "Django", "proxy"],
)


@pytest.fixture
def in_german():
    token = language.set("de")
    yield
    language.reset(token)


@LAZY
@pytest.mark.parametrize("is_mapping", [False, True])
def test_a_lazy_text_is_made_in_the_language_of_the_run(text, is_mapping):
    class Rent(Task[None]):
        age: int = required(ge=21, message={"ge": text} if is_mapping else text)

        def work(self): ...

    english = Rent.execute(age=18)
    token = language.set("de")
    german = Rent.execute(age=18)
    language.reset(token)

    assert english.reason == "age must be 21 or more"
    assert german.reason == "age muss mindestens 21 sein"
    assert type(german.errors["age"][0]) is str
    assert "muss mindestens 21 sein" in german.to_json()


@LAZY
@pytest.mark.usefixtures("in_german")
def test_errors_and_catalogue_take_lazy_texts_too(text, monkeypatch):
    monkeypatch.setitem(messages, "ge", text)

    class Rent(Task[None]):
        age: int = required(ge=21)

        def work(self): ...

        @before_execution
        def note(self):
            self.errors.add("note", text)

    found = Rent.execute(age=18).errors.to_dict()

    assert found == {
        "note": ["muss mindestens {ge} sein"],
        "age": ["muss mindestens 21 sein"],
    }


def test_a_lazy_text_is_not_looked_up_when_it_is_declared():
    def fail():
        raise RuntimeError("the languages are not loaded")

    for text in (fail, lazy(fail, str)(), Proxy(fail)):
        required(ge=1, message=text)
        required(ge=1, message={"ge": text})


async def later():
    return "is wrong"


@pytest.mark.parametrize("message", [len, lambda value: value, later])
def test_a_callable_that_cannot_be_a_message_is_refused(message):
    with pytest.raises(
        DefinitionError, match=r"required.*: message .*(async|argument)"
    ):
        required(ge=1, message={"ge": message})
