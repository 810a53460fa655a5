"""
A secret in the inputs, the context or the value of a task is told to nobody unasked.

Each test plants one, and looks for it in all that the library writes or sends by
itself: log lines, signals, reasons, errors, warnings, tracebacks, texts and pictures.
"""

from __future__ import annotations

import io
import logging
import re
import traceback
import warnings
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypedDict, runtime_checkable
from uuid import UUID

import attrs
import pydantic
import pytest
import structlog
from annotated_types import Ge, Len, MaxLen, MultipleOf, Predicate

import cmdx
from cmdx import Task, Workflow, output, parallel, required, retry_on, telemetry

PASSWORD = "hunter2"  # noqa: S105 -- it is planted
CARD = 4111_1111_1111_1111
PLANTED = re.compile("hunter2|411111111")

SIGNALS = (
    telemetry.task_started,
    telemetry.task_deprecated,
    telemetry.task_retried,
    telemetry.task_rolled_back,
    telemetry.task_executed,
    telemetry.task_cancelled,
)


@pytest.fixture(autouse=True)
def _structlog_as_it_was():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def told(caplog, capfd):
    """Run a task with everything turned on, and return all that was told about it."""

    def tell(task, /, *source, **inputs):
        caplog.set_level(logging.DEBUG)
        texts = {}
        for renderer in ("console", "json"):
            stream = io.StringIO()
            cmdx.enable_logging(renderer, stream=stream)
            results = run_and_listen(task, *source, **inputs)
            texts[renderer] = stream.getvalue()
        capture = structlog.testing.LogCapture()
        structlog.configure(processors=[capture])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            results = run_and_listen(task, *source, **inputs)
        texts["events"] = str(capture.entries)
        texts["warnings"] = str([str(warning.message) for warning in warned])
        texts["logging"] = caplog.text
        texts["printed"] = str(capfd.readouterr())
        for result in results:
            for name, text in texts_of(result).items():
                texts[name] = texts.get(name, "") + text
        return texts

    return tell


def run_and_listen(task, *source, **inputs):
    """Run *task*, and return the results that were sent."""
    results = []

    def receive(_sender, result=None, **_):
        results.extend([] if result is None else [result])

    for signal in SIGNALS:
        signal.connect(receive)
    try:
        task.execute(*source, **inputs)
    except KeyboardInterrupt:
        pass
    finally:
        for signal in SIGNALS:
            signal.disconnect(receive)
    assert results
    return results


def texts_of(result):
    chain = result.chain
    return {
        "reason": str(result.reason),
        "errors": repr(result.errors) + str(list(result.errors)),
        "attempts": repr(result.attempts),
        "outcome": repr(result.replaced) + repr(result.stopped),
        "result": f"{result} {result!r}",
        "facts": result.to_json(),
        "tree": chain.tree() + repr(chain),
        "raised": raised_by(result),
        "mermaid": chain.to_mermaid(),
        "svg": chain.to_svg(),
        "html": chain.to_html() + chain._repr_html_(),
    }


def raised_by(result):
    try:
        result.or_raise()
    except BaseException as error:
        return "".join(traceback.format_exception(error))
    return ""


def leaks(texts):
    return {name: text for name, text in texts.items() if PLANTED.search(text)}


# -- values that are refused ---------------------------------------------------------


class Color(Enum):
    RED = "red"


@dataclass
class Card:
    number: int

    def __post_init__(self):
        if self.number == CARD:
            raise ValueError(f"what is {self.number}?")


@attrs.frozen
class Login:
    password: str = attrs.field(validator=attrs.validators.max_len(3))


class Profile(TypedDict):
    age: int


class Account(pydantic.BaseModel):
    password: str = pydantic.Field(max_length=3)
    age: int = 3

    @pydantic.field_validator("age")
    @classmethod
    def check(cls, age):
        if age == CARD:
            raise ValueError(f"what is {age}?")
        return age


class Money:
    pass


@runtime_checkable
class Flies(Protocol):
    def fly(self) -> None: ...


def is_even(text):
    return int(text) % 2 == 0


class Unreadable(Exception):
    pass


def refuse_anyhow(value):
    raise Unreadable(f"what is {value}?")


def refuse_type(value):
    raise TypeError(f"what is {value}?")


SCALARS = (int, float, bool, complex, Decimal, Fraction, UUID)
SCALARS += (date, datetime, time, timedelta)

SHORT = pydantic.TypeAdapter(Annotated[str, MaxLen(3)])

REFUSED = {
    "str": (str, {}, [PASSWORD]),
    "bytes": (bytes, {}, [PASSWORD]),
    "Path": (Path, {}, [PASSWORD]),
    **{kind.__name__: (kind, {}, PASSWORD) for kind in SCALARS},
    "number as text": (int, {}, f"{CARD}-{CARD}"),
    "number as float": (int, {}, CARD + 0.5),
    "none": (None, {}, PASSWORD),
    "list": (list[int], {}, PASSWORD),
    "item of a list": (list[int], {}, [1, PASSWORD]),
    "item of a tuple": (tuple[int, str], {}, (PASSWORD, "a")),
    "length of a tuple": (tuple[int, str], {}, (PASSWORD,)),
    "item of a set": (set[Any], {}, [[PASSWORD]]),
    "dict": (dict[str, int], {}, PASSWORD),
    "value of a dict": (dict[str, int], {}, {"a": PASSWORD}),
    "union": (int | date, {}, PASSWORD),
    "optional": (int | None, {}, PASSWORD),
    "Literal": (Literal["a", "b"], {}, PASSWORD),
    "Enum": (Color, {}, PASSWORD),
    "instance": (Money, {}, PASSWORD),
    "subclass": (type[Money], {}, PASSWORD),
    "protocol": (Flies, {}, PASSWORD),
    "dataclass": (Card, {}, PASSWORD),
    "field of a dataclass": (Card, {}, {"number": PASSWORD}),
    "constructor of a dataclass": (Card, {}, {"number": CARD}),
    "attrs class": (Login, {}, [PASSWORD]),
    "validator of attrs": (Login, {}, {"password": PASSWORD}),
    "TypedDict": (Profile, {}, {"age": PASSWORD}),
    "pydantic model": (Account, {}, PASSWORD),
    "field of a pydantic model": (Account, {}, {"password": PASSWORD}),
    "validator of pydantic": (Account, {}, {"password": "a", "age": CARD}),
    "Annotated length": (Annotated[str, MaxLen(3)], {}, PASSWORD),
    "Annotated lengths": (Annotated[str, Len(1, 3)], {}, PASSWORD),
    "Annotated bound": (Annotated[int, Ge(0)], {}, -CARD),
    "Annotated step": (Annotated[int, MultipleOf(7)], {}, CARD),
    "Annotated pattern": (Annotated[str, re.compile("[a-z]+")], {}, PASSWORD),
    "Annotated predicate": (Annotated[str, Predicate(str.isdigit)], {}, PASSWORD),
    "Annotated predicate that raises": (
        Annotated[str, Predicate(is_even)],
        {},
        PASSWORD,
    ),
    "Annotated predicate that raises anything": (
        Annotated[str, Predicate(refuse_anyhow)],
        {},
        PASSWORD,
    ),
    "length": (str, {"length": 3}, PASSWORD),
    "min_length": (str, {"min_length": 30}, PASSWORD),
    "max_length": (str, {"max_length": 3}, PASSWORD),
    "pattern": (str, {"pattern": "[a-z]+"}, PASSWORD),
    "gt": (int, {"gt": 3}, -CARD),
    "ge": (int, {"ge": 3}, -CARD),
    "lt": (int, {"lt": 3}, CARD),
    "le": (int, {"le": 3}, CARD),
    "bound without an order": (str, {"le": 3}, PASSWORD),
    "multiple_of": (int, {"multiple_of": 7}, CARD),
    "one_of": (str, {"one_of": ("a", "b")}, PASSWORD),
    "absence": (str, {"absence": True}, PASSWORD),
    "coerce": (int, {"coerce": int}, f"{CARD}-{CARD}"),
    "coerce to a date": (date, {"coerce": date.fromisoformat}, PASSWORD),
    "coerce that raises TypeError": (int, {"coerce": refuse_type}, PASSWORD),
    "coerce that raises anything": (int, {"coerce": refuse_anyhow}, PASSWORD),
    "coerce by a method": (int, {"coerce": "parse"}, PASSWORD),
    "format": (date, {"format": "%d.%m.%Y"}, PASSWORD),
    "validate": (str, {"validate": lambda _: False}, PASSWORD),
    "transform by int": (str, {"transform": int}, PASSWORD),
    "transform by a table": (str, {"transform": lambda text: {}[text]}, PASSWORD),
    "validate by a table": (str, {"validate": {}.__getitem__}, PASSWORD),
    "validate by int": (str, {"validate": int}, PASSWORD),
    "validate by pydantic": (str, {"validate": SHORT.validate_python}, PASSWORD),
    "validate by words": (str, {"validate": lambda _: "is not allowed"}, PASSWORD),
    "validate by several": (str, {"validate": (str.islower, str.isdigit)}, PASSWORD),
    "source": (int, {"source": lambda: PASSWORD}, None),
}


def taking(annotation, options):
    class Taking(Task[None], log_level="critical"):
        x: annotation = required(**options)

        def work(self) -> None:
            raise AssertionError("nothing was refused")

        def parse(self, value):
            return int(value)

    return Taking


@pytest.mark.parametrize("kind", REFUSED)
def test_a_value_that_is_refused_is_quoted_nowhere(told, kind):
    annotation, options, value = REFUSED[kind]
    inputs = {} if "source" in options else {"x": value}

    texts = told(taking(annotation, options), inputs)

    assert "x" in texts["reason"]
    assert "AssertionError" not in texts["reason"]
    assert leaks(texts) == {}


# -- values that are taken -----------------------------------------------------------


class Word(Enum):
    FIRST = PASSWORD


@dataclass
class Person:
    password: str


@attrs.frozen
class User:
    password: str


class Member(pydantic.BaseModel):
    password: str


TAKEN = {
    "str": (str, PASSWORD),
    "bytes": (bytes, PASSWORD.encode()),
    "int": (int, CARD),
    "int of text": (int, str(CARD)),
    "float": (float, float(CARD)),
    "Decimal": (Decimal, str(CARD)),
    "Path": (Path, PASSWORD),
    "list": (list[str], [PASSWORD]),
    "tuple": (tuple[str, int], (PASSWORD, CARD)),
    "set": (set[str], {PASSWORD}),
    "dict": (dict[str, str], {PASSWORD: PASSWORD}),
    "Enum": (Word, PASSWORD),
    "Literal": (Literal["hunter2"], PASSWORD),
    "dataclass": (Person, {"password": PASSWORD}),
    "attrs class": (User, {"password": PASSWORD}),
    "pydantic model": (Member, {"password": PASSWORD}),
    "Annotated": (Annotated[str, MaxLen(30)], PASSWORD),
    "anything": (Any, PASSWORD),
}


def succeed(task):
    task.succeed("enough")


def skip(task):
    task.skip("nothing to do")


def fail(task):
    task.fail("declined", code=3)


def add_an_error(task):
    task.errors.add("x", "is not good")


def raise_an_error(_task):
    raise LookupError("no such account")


def raise_twice(task):
    if task.attempt < 2:
        raise ConnectionError("down")


def be_interrupted(_task):
    raise KeyboardInterrupt


def read_what_is_missing(task):
    return task.context.pasword


def forget_the_output(task):
    del task.made


ENDINGS = [
    succeed,
    skip,
    fail,
    add_an_error,
    raise_an_error,
    raise_twice,
    be_interrupted,
    read_what_is_missing,
    forget_the_output,
]


def ending(annotation, end):
    def watch(_task):
        yield

    @retry_on(ConnectionError, delay=0)
    @cmdx.middleware(watch)
    class Ending(Task[None], log_level="critical", deprecated="warn"):
        x: annotation = required()
        made: Any = output()

        def work(self) -> None:
            self.made = self.x
            self.context.kept = [self.x, self.context.x]
            self.logger.info("at work")
            end(self)

        def rollback(self) -> None:
            raise OSError("stuck")

    return Ending


@pytest.mark.parametrize("kind", TAKEN)
@pytest.mark.parametrize("end", ENDINGS)
def test_a_value_that_is_taken_is_told_nowhere(told, kind, end):
    annotation, value = TAKEN[kind]

    texts = told(ending(annotation, end), {"x": value, "password": PASSWORD})

    assert "Ending" in texts["console"]
    assert leaks(texts) == {}


def test_the_context_of_a_workflow_is_told_nowhere(told):
    class First(Task[None]):
        password: str
        token: str = output()

        def work(self) -> None:
            self.token = self.password + "1"

        def rollback(self) -> None: ...

    class Second(First):
        def work(self) -> None:
            self.token = self.password + "2"

    class Last(Task[None]):
        token: str

        def work(self) -> None:
            self.fail("declined")

    class Sign(Workflow[None]):
        password: str
        steps = (parallel(First, Second), Last)

    texts = told(Sign, password=PASSWORD)

    assert "conflicting writes: token" in texts["tree"]
    assert leaks(texts) == {}


# -- what is returned ----------------------------------------------------------------


def return_it(task):
    return task.x


def succeed_with_it(task):
    task.succeed(value=task.x)


@pytest.mark.parametrize("end", [return_it, succeed_with_it])
def test_a_value_that_is_returned_is_shown_by_texts_of_the_result_alone(told, end):
    class Returning(Task[str], log_level="critical"):
        x: str

        def work(self) -> str:
            return end(self)

    class Parent(Task[str], log_level="critical"):
        def work(self) -> str:
            return Returning.execute(self.context).value

    assert set(leaks(told(Parent, x=PASSWORD))) == {"result", "tree", "facts"}


# -- misuse --------------------------------------------------------------------------


@pytest.mark.parametrize("source", [PASSWORD, CARD, [PASSWORD], (CARD,)], ids=repr)
def test_what_cannot_be_a_source_is_not_quoted(source):
    class Pay(Task[None]):
        card: int

        def work(self) -> None: ...

    with pytest.raises(TypeError) as refused:
        Pay.execute(source)

    assert type(source).__name__ in str(refused.value)
    assert not PLANTED.search(str(refused.value))


# -- what the author says ------------------------------------------------------------


def test_what_a_rule_of_the_author_says_is_shown_as_it_is(told):
    """It also shows that the texts in which others are looked for have it."""

    def refuse(value):
        raise ValueError(f"is {value}, which is not allowed")

    texts = told(taking(str, {"validate": refuse}), x=PASSWORD)

    silent = {"attempts", "outcome", "warnings", "logging", "printed"}
    assert texts.keys() - leaks(texts).keys() == silent
