"""
Calls with errors in them, which every type checker must see.

A line that must be reported ends in ``planted:`` and what is wrong; no other may be.
"""

# pyright: strict
# ruff: noqa: DTZ005

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar, assert_type

import attrs

from cmdx import Context, Errors, Result, Task, optional, output, private, required

T = TypeVar("T")


@attrs.frozen
class Address:
    street: str


class Charge(Task[int]):
    order_id: int = required(ge=1, description="which order")
    currency: str = optional(default="EUR", min_length=3, max_length=3)
    tags: list[str] = optional(factory=list, max_length=5)
    address: Address | None = None
    charged_at: datetime = output(description="when")
    _cache: dict[str, int] = private()

    def work(self) -> int:
        self.charged_at = datetime.now()
        return self.order_id


class Refund(Charge):
    currency: str = required()
    why: str


class Aliased(Task[str]):
    kind: str = required(alias="type")

    def work(self) -> str:
        return self.kind


class Sourced(Task[str]):
    name: str
    user: str = required(source="load")
    role: str = optional(default="guest", source=lambda: None)

    def load(self) -> str:
        return f"user {self.name}"

    def work(self) -> str:
        return self.user


class Bare(Task[None]):
    def work(self) -> None: ...


class Wrap(Task[T], Generic[T]):
    label: str = ""


class WrapNumber(Wrap[float]):
    number: float

    def work(self) -> float:
        return self.number


# -- right calls -----------------------------------------------------------------------

assert_type(Charge.execute(order_id=7), Result[int])
assert_type(Charge.execute(order_id=7, currency="USD", tags=["a"]), Result[int])
assert_type(Charge.execute(order_id=7, address=Address("here")), Result[int])
assert_type(Charge.execute(order_id=7, address=None), Result[int])
assert_type(Charge.execute({"order_id": "7"}), Result[int])
assert_type(Charge.execute(Context(order_id="7")), Result[int])
assert_type(Charge.execute(Charge.execute(order_id=7)), Result[int])
assert_type(Charge.execute({"order_id": "7"}, currency="USD"), Result[int])
assert_type(Charge.execute(Context(), order_id=7), Result[int])
assert_type(Charge.execute(Bare(), order_id=7), Result[int])
assert_type(Charge.execute(Bare.execute(), order_id=7), Result[int])
assert_type(Charge.execute_or_raise(Context(), order_id=7), Result[int])
assert_type(Charge.execute_or_raise(Context(), order_id=7).value, int)
assert_type(Bare.execute({"any": 1}, thing=2), Result[None])
assert_type(Aliased.execute({}, type="book"), Result[str])
assert_type(WrapNumber.execute({}, number=1.5), Result[float])
assert_type(Charge.execute_or_raise(order_id=7), Result[int])
assert_type(Charge.execute_or_raise(order_id=7).value, int)
assert_type(Charge.check(order_id=7), Errors)
assert_type(Charge.check({"order_id": "7"}), Errors)
assert_type(Charge.check(Context(), order_id=7), Errors)
assert_type(Charge(order_id=7), Charge)
assert_type(Charge(order_id=7).run(), Result[int])
assert_type(Charge(order_id=7).charged_at, datetime)
assert_type(Refund.execute(order_id=7, currency="USD", why="broken"), Result[int])
assert_type(Aliased.execute(type="book"), Result[str])
assert_type(Sourced.execute(name="Ada"), Result[str])
assert_type(Bare.execute(), Result[None])
assert_type(WrapNumber.execute(number=1.5), Result[float])
assert_type(WrapNumber.execute(number=1.5, label="it"), Result[float])


async def right() -> None:
    assert_type(await Charge.aexecute(order_id=7), Result[int])
    assert_type(await Charge.aexecute({"order_id": "7"}), Result[int])
    assert_type(await Charge.aexecute_or_raise(order_id=7), Result[int])
    assert_type(await Charge.aexecute({}, order_id=7), Result[int])
    assert_type(await Charge.aexecute_or_raise(Context(), order_id=7), Result[int])
    assert_type(await Charge(order_id=7).arun(), Result[int])


# -- missing ---------------------------------------------------------------------------

Charge.execute()  # planted: missing
Charge.execute(currency="EUR")  # planted: missing
Charge.execute_or_raise()  # planted: missing
Charge.check()  # planted: missing
Charge()  # planted: missing
Refund.execute(order_id=7, currency="USD")  # planted: missing
Refund.execute(order_id=7, why="broken")  # planted: missing, no default any more
WrapNumber.execute(label="it")  # planted: missing

# -- misspelt --------------------------------------------------------------------------

Charge.execute(order=7)  # planted: misspelt
Charge.execute(order_id=7, curency="EUR")  # planted: misspelt
Charge.execute_or_raise(order_id=7, curency="EUR")  # planted: misspelt
Charge.check(order_id=7, curency="EUR")  # planted: misspelt
Charge(order_id=7, curency="EUR")  # planted: misspelt
Aliased.execute(kind="book")  # planted: the alias is what callers use

# -- mistyped --------------------------------------------------------------------------

Charge.execute(order_id="7")  # planted: mistyped
Charge.execute(order_id=None)  # planted: mistyped
Charge.execute(order_id=7, currency=None)  # planted: mistyped
Charge.execute(order_id=7, tags=[1])  # planted: mistyped
Charge.execute(order_id=7, address={"street": "here"})  # planted: mistyped
Charge.execute_or_raise(order_id="7")  # planted: mistyped
Charge.check(order_id="7")  # planted: mistyped
Charge(order_id="7")  # planted: mistyped
Charge.execute(7)  # planted: neither a mapping nor a context
Charge.execute(7, order_id=7)  # planted: neither a mapping nor a context
Charge.execute({}, {}, order_id=7)  # planted: one source is enough
WrapNumber.execute(number="x")  # planted: mistyped

# -- what callers cannot give ----------------------------------------------------------

Charge.execute(order_id=7, charged_at=datetime.now())  # planted: output
Charge(order_id=7, charged_at=datetime.now())  # planted: output
Charge.execute(order_id=7, _cache={})  # planted: private
Sourced.execute(name="Ada", user="Ada")  # planted: it has a source
Sourced.execute(name="Ada", role="admin")  # planted: it has a source

# -- the wrong result ------------------------------------------------------------------

wrong: Result[str] = Charge.execute(order_id=7)  # planted: result
shared: Result[str] = Charge.execute({"order_id": 7})  # planted: result
both: Result[str] = Charge.execute({"order_id": 7}, currency="USD")  # planted: result
text: str = Charge.execute(order_id=7).value  # planted: value
raised: str = Charge.execute_or_raise(order_id=7).value  # planted: value
invoked: Result[str] = Charge(order_id=7).run()  # planted: result
nothing: Result[int] = Bare.execute()  # planted: result


async def astray() -> None:
    await Charge.aexecute()  # planted: missing
    await Charge.aexecute(order_id=7, curency="EUR")  # planted: misspelt
    await Charge.aexecute_or_raise(order_id="7")  # planted: mistyped
    _: Result[str] = await Charge.aexecute(order_id=7)  # planted: result
    __: Result[str] = await Charge.aexecute({}, order_id=7)  # planted: result


# -- declarations ----------------------------------------------------------------------


class Contradictory(Task[None]):
    no_default: int = optional(ge=3)  # planted: a default is needed
    other_type: int = optional(default="3")  # planted: of another type
    other_made: int = optional(factory=list)  # planted: of another type
    no_name: int = required(alias=3)  # planted: an alias is text
    plain: int = "3"  # planted: of another type


# -- work ------------------------------------------------------------------------------


class Later(Task[str]):
    async def work(self) -> str:
        return "later"


class Narrower(Task[object]):
    def work(self) -> str:
        return "of a narrower type"


class Deriving(Charge):
    def work(self) -> int:
        return super().work() + 1


assert_type(Later(), Later)
assert_type(Narrower.execute(), Result[object])
assert_type(Deriving.execute(order_id=7), Result[int])


async def later() -> None:
    assert_type(await Later.aexecute(), Result[str])


class ReturnsAnother(Task[str]):
    def work(self) -> int:  # planted: work
        return 3


class ReturnsAnotherLater(Task[str]):
    async def work(self) -> int:  # planted: work
        return 3


class ReturnsNothing(Task[str]):
    def work(self) -> None: ...  # planted: work


class TakesAnInput(Task[str]):
    def work(self, name: str) -> str:  # planted: inputs are annotations
        return name
