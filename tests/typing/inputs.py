"""What type checkers know about inputs and outputs; checked, never run."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, assert_type

import attrs

from cmdx import (
    Context,
    Errors,
    Result,
    Task,
    coercions,
    messages,
    optional,
    output,
    private,
    required,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class Color(Enum):
    RED = "red"


@attrs.frozen
class Address:
    street: str


class Movie(TypedDict):
    title: str


class Ship(Task[Decimal]):
    """Every way to declare a field."""

    number: int
    weight: Decimal = required(gt=0, description="in kilograms")
    color: Color = Color.RED
    mode: Literal["fast", "slow"] = "slow"
    address: Address | None = None
    movie: Movie = required(coerce=False)
    bounded: Annotated[int, "a note"] = optional(default=3, ge=1, le=5, multiple_of=1)
    name: str = optional(
        default="",
        transform=str.strip,
        validate=[str.isprintable, len],
        pattern="[a-z]*",
        none_of=("root",),
    )
    code: str = optional(
        default="x", coerce="parse", transform="tidy", validate=["check", len]
    )
    day: date | None = optional(default=None, format="%d.%m.%Y")
    height: int = optional(default=1, ge=1, message="must be at least {ge}")
    width: int = optional(default=1, ge=1, message={"ge": "is small", "coerce": "no"})
    tags: list[str] = optional(factory=list, max_length=3)
    mapping: dict[str, int] = optional(factory=dict[str, int])
    needed: int = required(if_=lambda task: task.given("number"), unless="is_light")
    shipped_at: datetime = output(description="when", unless="is_light")
    took: timedelta = output()
    _cache: dict[str, int] = private()

    def is_light(self) -> bool:
        return self.weight < 1

    def work(self) -> Decimal:
        assert_type(self.number, int)
        assert_type(self.weight, Decimal)
        assert_type(self.color, Color)
        assert_type(self.mode, Literal["fast", "slow"])
        assert_type(self.address, Address | None)
        assert_type(self.movie["title"], str)
        assert_type(self.name, str)
        assert_type(self.day, date | None)
        assert_type(self.tags, list[str])
        assert_type(self.took, timedelta)
        assert_type(self.given("number"), bool)
        assert_type(self.errors, Errors)
        assert_type(self.errors["number"], list[str])
        self.shipped_at = datetime(2024, 1, 1)  # noqa: DTZ001 -- any will do
        self.took = timedelta(seconds=1)
        self._cache = {}
        self.took = 3  # type: ignore[assignment]
        self.number = "7"  # type: ignore[assignment]
        return self.weight


MOVIE: Movie = {"title": "Metropolis"}


def right(given: Mapping[str, Any], shared: Context) -> None:
    result = Ship.execute(number=1, weight=Decimal(2), movie=MOVIE, needed=3)
    assert_type(result, Result[Decimal])
    assert_type(result.value, Decimal)
    assert_type(result.errors.to_dict(), dict[str, list[str]])
    for key, message, code in result.errors:
        assert_type(key, str)
        assert_type(message, str)
        assert_type(code, str | None)
    assert_type(Ship.execute(given), Result[Decimal])
    assert_type(Ship.execute(shared), Result[Decimal])
    assert_type(Ship.execute(result), Result[Decimal])
    assert_type(Ship.inputs_schema(), dict[str, Any])
    assert_type(Ship.outputs_schema(), dict[str, Any])
    assert_type(Ship.json_schema(), dict[str, Any])
    assert_type(Ship.check(number=1, weight=Decimal(2), movie=MOVIE, needed=3), Errors)
    assert_type(Ship.check(given), Errors)
    assert_type(Ship.check(shared, number=1), Errors)
    assert_type(Ship.check(result), Errors)
    mine = Errors()
    mine.merge(result.errors, prefix="ship")
    mine.merge(result.errors.to_dict())
    mine.merge(given)
    assert_type(mine.delete("number"), list[str])
    assert_type(mine.keys(), list[str])
    mine.merge(result)  # type: ignore[arg-type]
    mine.merge({"number": 3})  # type: ignore[dict-item]
    coercions.register(Address, Address)
    messages.update(required="fehlt", int="muss eine ganze Zahl sein")
    messages["float"] = lambda: "muss eine Zahl sein"
    messages["bool"] = 3  # type: ignore[assignment]


def wrong(moment: datetime) -> None:
    two = Decimal(2)
    Ship.execute(number=1, weight=two, movie=MOVIE)  # type: ignore[call-overload]
    Ship(number=1, weight=two, movie=MOVIE)  # type: ignore[call-arg]
    Ship(nubmer=1, number=1, weight=two, movie=MOVIE, needed=3)  # type: ignore[call-arg]
    Ship(number="1", weight=two, movie=MOVIE, needed=3)  # type: ignore[arg-type]
    Ship(number=1, weight=two, movie=MOVIE, needed=3, took=moment)  # type: ignore[call-arg]
    Ship(number=1, weight=two, movie=MOVIE, needed=3, mode="slwo")  # type: ignore[arg-type]
    result = Ship.execute(number=1, weight=two, movie=MOVIE, needed=3)
    other: Result[int] = result  # type: ignore[assignment]
    assert_type(other, Result[int])


class Mistold(Task[None]):
    other_rule: int = required(ge=1, message={"min": "x"})  # type: ignore[call-overload]
    other_text: int = required(ge=1, message={"ge": 3})  # type: ignore[call-overload]
    no_text: int = required(ge=1, message=3)  # type: ignore[call-overload]


def misspelt() -> None:
    Ship.execute(nubmer=1)  # type: ignore[call-overload]
    Ship.execute_or_raise(nubmer=1)  # type: ignore[call-overload]
    Ship.execute(1)  # type: ignore[call-overload]
    Ship.check(nubmer=1)  # type: ignore[call-overload]
    Ship.check(1)  # type: ignore[call-overload]


async def wrong_later() -> None:
    await Ship.aexecute(nubmer=1)  # type: ignore[call-overload]
    await Ship.aexecute_or_raise(number="1")  # type: ignore[call-overload]
