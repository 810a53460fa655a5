"""
``python -m cmdx demo``: a web shop with an order that fails.

The carrier answers the third call, no voucher is given, and the card is declined.
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from cmdx import Task, Workflow, clock, parallel, retry_on
from cmdx.cli.trees import tree_text

if TYPE_CHECKING:
    from cmdx import Chain


@retry_on(ConnectionError, limit=3, delay=0.05, jitter="exponential")
class QuoteShipping(Task[str]):
    """Ask the carrier for its price; it is hard to reach."""

    def work(self) -> str:
        """Fail twice, then succeed."""
        spend(0.01)
        if self.attempt < 2:  # noqa: PLR2004 -- the third call is answered
            message = "the carrier does not answer"
            raise ConnectionError(message)
        return "4.90 EUR"


class ApplyVoucher(Task[None]):
    """Subtract the voucher from the price."""

    def work(self) -> None:
        """Skip if there is no voucher."""
        if "voucher" not in self.context:
            self.skip("no voucher given")


class ChargeCard(Task[None]):
    """Charge the customer."""

    def work(self) -> None:
        """Fail with a code."""
        spend(0.02)
        self.fail("card declined", code="insufficient_funds")


class ReserveStock(Task[int]):
    """Reserve the goods."""

    cart: list[str]

    def work(self) -> int:
        """Reserve each item of the cart."""
        spend(0.005)
        self.context.reserved = list(self.cart)
        return len(self.context.reserved)

    def rollback(self) -> None:
        """Release the goods."""
        self.context.reserved.clear()


class CheckAddress(Task[None]):
    """Look up where the goods go."""

    def work(self) -> None:
        """Take a while."""
        spend(0.06)


class Checkout(Workflow[None]):
    """Turn a cart into an order."""

    cart: list[str]
    steps = (
        ReserveStock,
        parallel(QuoteShipping, CheckAddress),
        ApplyVoucher,
        ChargeCard,
    )


def spend(seconds: float) -> None:
    """Sleep, as if there were work to do."""
    clock.current.get().sleep(seconds)


def show() -> Chain:
    """Run the tasks and print their results; return the chain of the workflow."""
    quote = QuoteShipping.execute()
    _headline("A flaky task is tried again")
    print(tree_text(quote.chain))
    print(indent(str(quote.attempts), "   "))

    skipped = ApplyVoucher.execute()
    _headline("A task may have nothing to do")
    print(tree_text(skipped.chain))

    declined = ChargeCard.execute()
    _headline("A failure is a result, not an exception")
    print(tree_text(declined.chain))
    print(f"   metadata: {dict(declined.metadata)}")

    checkout = Checkout.execute(cart=["teapot", "two cups"])
    _headline("A workflow runs its steps, some in parallel; a failure undoes them")
    print(tree_text(checkout.chain))
    return checkout.chain


def _headline(text: str) -> None:
    print(f"\n{text}\n")
