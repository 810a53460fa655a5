"""
A shop whose card payment fails, on a clock that moves only when told to.

::

    0.0      0.1                     0.5                                        1.0
    Checkout ✗ ──────────────────────────────────────────────────────────────────
    ValidateCart ✓
             ReserveStock ✓ ─────────
              QuoteShipping ✓ ──
                                     ApplyVoucher ○
                                     Pay ✗ ──────────────────────────────────────
                                     ChargeCard ✗ ── pause ── pause ─────────────
"""

from __future__ import annotations

import asyncio

from cmdx import Task, Workflow, clock, retry_on

TIMES = {
    "Checkout": (0.0, 1.0),
    "ValidateCart": (0.0, 0.1),
    "ReserveStock": (0.1, 0.4),
    "QuoteShipping": (0.11, 0.29),
    "ApplyVoucher": (0.5, 0.0),
    "Pay": (0.5, 0.5),
    "ChargeCard": (0.5, 0.5),
}
"""When each task began, in the order of the tree, and how long it took."""


class StillClock(clock.Clock):
    """Stands still but for sleeping, which takes no time at all."""

    def __init__(self) -> None:
        self.now = 5000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


def spend(seconds: float) -> None:
    clock.current.get().sleep(seconds)


class ValidateCart(Task[None]):
    def work(self) -> None:
        spend(0.1)


class ReserveStock(Task[None]):
    async def work(self) -> None:
        spend(0.01)
        await asyncio.sleep(0)
        spend(0.1)


class QuoteShipping(Task[str]):
    async def work(self) -> str:
        spend(0.29)
        return "the-price-that-was-quoted"


class ApplyVoucher(Task[None]):
    def work(self) -> None:
        self.skip("no voucher given")


@retry_on(TimeoutError, limit=2, delay=0.1)
class ChargeCard(Task[None]):
    def work(self) -> None:
        spend(0.1)
        if self.attempt < 2:
            raise TimeoutError("the-message-of-an-attempt")
        self.fail("card declined", code="the-code-of-the-bank")


class Pay(Task[None]):
    def work(self) -> None:
        self.throw(ChargeCard.execute(self))

    def rollback(self) -> None:
        raise OSError("the-message-of-the-rollback")


class Checkout(Task[None]):
    async def work(self) -> None:
        ValidateCart.execute(self)
        await asyncio.gather(ReserveStock.aexecute(), QuoteShipping.aexecute())
        ApplyVoucher.execute(self)
        self.throw(Pay.execute(self))


def visit():
    """Return the chain of a visit to the shop, always the same but for ids."""
    with clock.use(StillClock()):
        return asyncio.run(Checkout.aexecute(card="the-number-of-the-card")).chain


class Reserve(Task[None]):
    def work(self) -> None: ...

    def rollback(self) -> None:
        raise OSError("the warehouse does not answer")


class Book(Task[None]):
    def work(self) -> None: ...

    def rollback(self) -> None: ...


class Charge(Task[None]):
    def work(self) -> None:
        self.fail("card declined")


class Order(Workflow[None]):
    steps = (Reserve, Book, Charge)


def chain_with_failed_rollback():
    """Return the chain of an order of which one step could not be rolled back."""
    return Order.execute().chain


SECRETS = [
    "the-price-that-was-quoted",
    "the-message-of-an-attempt",
    "the-code-of-the-bank",
    "the-message-of-the-rollback",
    "the-number-of-the-card",
]
"""Values, inputs, metadata and messages, none of which belongs into a picture."""

NASTY = (
    "</title></text><script>alert(1)</script> & \"quoted\" 'single' "
    "#quot; %%{init: {}}%% `code` ]] }} -- \x00\x1b[31m\u202e\nnext"
)
"""What somebody might call a task, or give as a reason."""

NASTY_SHOWN = (
    "</title></text><script>alert(1)</script> & \"quoted\" 'single' "
    "#quot; %%{init: {}}%% `code` ]] }} -- ��[31m� next"
)


def nasty_chain():
    """Return the chain of a task with a nasty name that fails for a nasty reason."""

    def work(self):
        self.fail(NASTY)

    return type("Nasty", (Task,), {"work": work, "__qualname__": NASTY}).execute().chain
