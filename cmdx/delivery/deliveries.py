"""``Delivery``: what became of an event, and of each attempt to send it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx.delivery.machine import CourierState
from cmdx.delivery.records import EventFacts, read_state
from cmdx.queue.table import JobState

if TYPE_CHECKING:
    from collections.abc import Generator

    from cmdx.queue import Job


class DeliveryAttempt(NamedTuple):
    """One attempt to send an event."""

    number: int
    """Counted from 1."""
    sent_at: float
    """When it was sent, in seconds since 1970."""
    duration: float
    """How long it took, in seconds."""
    status: int | None
    """The status of the answer; None if there was none."""
    reason: str | None
    """Why it failed; None if it did not."""
    answer: str
    """The first 4 KB of the answer."""


class Delivery:
    """One event to one endpoint; made by ``Courier.send``."""

    def __init__(self, job: Job[int]) -> None:
        self.job: Job[int] = job
        """The job of the queue that it is."""

    @property
    def id(self) -> str:
        """The id of the webhook, which is the same in each attempt."""
        return self.job.id

    @property
    def courier(self) -> str:
        """The name of the courier."""
        return str(self.job.inputs["courier"])

    @property
    def event_type(self) -> str:
        """The type of the event."""
        return str(self.job.inputs["event_type"])

    @property
    def conversation(self) -> str | None:
        """Events of one conversation are sent in order."""
        found = self.job.inputs.get("conversation")
        return None if found is None else str(found)

    @property
    def body(self) -> str:
        """The body that is sent."""
        return str(self.job.inputs["body"])

    @property
    def payload(self) -> Any:
        """The payload, as JSON."""
        return json.loads(self.body)

    @property
    def state(self) -> JobState:
        """The state of the job: ``done`` if it was sent, ``dead`` if it was dropped."""
        return self.job.state

    @property
    def created_at(self) -> float:
        """When ``send`` was called, in seconds since 1970."""
        return self.job.created_at

    @property
    def attempts(self) -> int:
        """How often it was sent so far, since it was last replayed."""
        return EventFacts.of(self.job._record).attempts

    @property
    def out_of_order(self) -> bool:
        """Whether it has overtaken events of its conversation, to go out in time."""
        return EventFacts.of(self.job._record).out_of_order

    @property
    def reason(self) -> str | None:
        """Why it was dropped; None if it was not."""
        is_dead = self.state is JobState.DEAD
        return self.job._record.reason if is_dead else None

    def refresh(self) -> Delivery:
        """Read it again, and return it."""
        self.job.refresh()
        return self

    async def arefresh(self) -> Delivery:
        """Do what ``refresh`` does, without blocking the event loop."""
        await self.job.arefresh()
        return self

    def wait(self, timeout: float | None = None) -> Delivery:
        """
        Wait until it was sent or dropped, and return it.

        Args:
            timeout: The longest time to wait, in seconds; ``TimeoutError`` is raised
                then. Without limit by default.
        """
        try:
            self.job.wait(timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{error}{self._why_not_sent()}") from None
        return self

    def _why_not_sent(self) -> str:
        """Return what is known about the courier that explains a long wait."""
        name, courier = self.job.queue, self.courier
        state = self.job._queue.store.transact(
            lambda statements: read_state(statements, name, courier), read_only=True
        )
        if state is CourierState.UP:
            return ""
        return (
            f" Its courier {courier!r} is {state}: events are stored until the "
            "endpoints answer. courier.attempts(id) shows what became of the last ones."
        )

    def __await__(self) -> Generator[Any, None, Delivery]:
        """Wait until it was sent or dropped, without blocking the event loop."""
        yield from self.job.__await__()
        return self

    def __repr__(self) -> str:
        """Show the id, the type and the state."""
        return f"<Delivery {self.id} of {self.event_type}: {self.state}>"
