"""
``python -m cmdx demo delivery``: an endpoint fails for a minute, and nothing is lost.

The receiver is a real server on this machine; time is virtual, so nobody has to wait.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cmdx import clock
from cmdx.delivery import (
    Courier,
    Endpoint,
    courier_changed,
    delivery_failed,
    delivery_sent,
    new_secret,
)
from cmdx.queue import Queue
from cmdx.testing import Receiver, instant

if TYPE_CHECKING:
    from typing import Self

    from cmdx.delivery import Delivery

OUTAGE = 5
"""How many requests the endpoint refuses."""

EVENTS = 4
"""How many events each customer gets in the outage."""


def show() -> bool:
    """Run the demo; tell whether everything was delivered, in order."""
    with instant(), Receiver() as hook, Timeline() as timeline:
        queue = Queue(":memory:")
        courier = Courier(
            queue,
            {
                "paid": Endpoint(f"{hook.url}/paid"),
                "left": Endpoint(f"{hook.url}/left"),
            },
            retention=3600,
            secret=new_secret(),
            allow=["127.0.0.1"],
            allow_http=True,
        )
        print(
            f"Two customers get events. The endpoint of `paid` refuses {OUTAGE} "
            "requests.\n"
        )
        print(" seconds  event            answer")
        hook.script("/paid", [503] * OUTAGE)
        deliveries = send_events(courier, 0)
        queue.drain(ahead=1)
        for number in range(1, EVENTS):
            deliveries += send_events(courier, number)
            queue.drain(ahead=10)
        queue.drain(ahead=60)
        is_complete = all(delivery.refresh().state == "done" for delivery in deliveries)
        queue.store.close()
    lost = sum(delivery.state != "done" for delivery in deliveries)
    in_order = timeline.is_in_order()
    order = "in order" if in_order else "NOT in order"
    print(
        f"\n{len(deliveries)} events, {timeline.requests} requests, {lost} lost; each "
        f"conversation {order}."
    )
    return is_complete and in_order


def send_events(courier: Courier, number: int) -> list[Delivery]:
    """Send one event to each customer: about a payment, and about one who left."""
    return [
        courier.send("paid", {"event": number}, conversation="ada"),
        courier.send("left", {"event": number}, conversation="bob"),
    ]


class Timeline:
    """Prints what couriers tell, line by line, in the block that it is used in."""

    def __init__(self) -> None:
        self.requests = 0
        self._begin = clock.current.get().time()
        self._sent: dict[str | None, list[int]] = {}

    def __enter__(self) -> Self:
        """Listen."""
        delivery_sent.connect(self.note_sent)
        delivery_failed.connect(self.note_failed)
        courier_changed.connect(self.note_change)
        return self

    def __exit__(self, *_error: object) -> None:
        """Listen no longer."""
        delivery_sent.disconnect(self.note_sent)
        delivery_failed.disconnect(self.note_failed)
        courier_changed.disconnect(self.note_change)

    def is_in_order(self) -> bool:
        """Tell whether each conversation was delivered in order."""
        return all(numbers == sorted(numbers) for numbers in self._sent.values())

    def note_sent(self, _courier: Any, *, delivery: Delivery, **facts: Any) -> None:
        """Print that an event was accepted."""
        number = delivery.payload["event"]
        self._sent.setdefault(delivery.conversation, []).append(number)
        self._note(delivery, f"{facts['status']}")

    def note_failed(self, _courier: Any, *, delivery: Delivery, **facts: Any) -> None:
        """Print that an event was refused."""
        self._note(delivery, f"{facts['status']}, is sent again later")

    def note_change(self, _courier: Any, *, new: str, **_facts: Any) -> None:
        """Print that the state has changed."""
        print(f"{self._seconds()}  -- the courier is {new.replace('_', ' ')} --")

    def _note(self, delivery: Delivery, answer: str) -> None:
        self.requests += 1
        number = delivery.payload["event"]
        event = f"{delivery.event_type} {number} for {delivery.conversation}"
        print(f"{self._seconds()}  {event:15}  {answer}")

    def _seconds(self) -> str:
        sys.stdout.flush()
        return f"{clock.current.get().time() - self._begin:8.1f}"
