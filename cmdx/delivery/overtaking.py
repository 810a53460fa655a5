"""
Events that overtake others of their conversation, because those take too long.

A new event waits 4 s for those that were stored before it and are drained. Then it gets
another key, which those share that overtake, and goes. Later events of the conversation
get that key too, for as long as events with it wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cmdx.delivery import records
from cmdx.delivery.keys import overtaking_key
from cmdx.delivery.machine import DRAIN_PATIENCE
from cmdx.delivery.records import EventFacts
from cmdx.delivery.waiting import HELD, READY
from cmdx.queue.upkeep import promote_next

if TYPE_CHECKING:
    from cmdx.delivery.machine import Install, Mark
    from cmdx.delivery.waiting import WaitingEvents
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

MOST_OVERTAKING = 200
"""How many events of a type begin to overtake others in one round."""


class Overtaking:
    """
    Gives keys to events that overtake, inside a transaction.

    Args:
        statements: Those of the transaction.
        queue: The name of the queue.
        waiting: The events of the courier that wait.
    """

    def __init__(
        self, statements: Statements, queue: str, waiting: WaitingEvents
    ) -> None:
        self._statements = statements
        self._queue = queue
        self._waiting = waiting

    def let_late_events_go(self, install: Install, now: float) -> Install:
        """Let new events go that have waited too long for those that are drained."""
        mark, moment = install.mark, now - DRAIN_PATIENCE
        if mark is None:
            return install
        late: dict[str, list[JobRecord]] = {}
        for event in self._waiting.held_since(mark, moment, MOST_OVERTAKING):
            late.setdefault(event.key or "", []).append(event)
        for key, events in late.items():
            if self._is_drained(key, mark):
                install = with_overtaken(install, key)
                for event in sorted(events, key=place_of):
                    self._change_key(key, event, out_of_order=True)
        return install

    def keep_behind(self, install: Install) -> Install:
        """Keep later events of a conversation behind those that overtake and wait."""
        for key in install.overtaken:
            first = self._waiting.head_of(overtaking_key(key))
            if first is None:
                install = without_overtaken(install, key)
                continue
            while (later := self._later_than(first, key)) is not None:
                self._change_key(key, later, out_of_order=False)
                promote_next(self._statements, self._queue, key)
        return install

    def _is_drained(self, key: str, mark: Mark) -> bool:
        """Tell whether a conversation waits for an event that was stored by a mark."""
        head = self._waiting.head_of(key)
        if head is None or not mark.has(head):
            return False
        # One that was on its way by then was not stored.
        return head.started_at is None or head.started_at >= mark.time

    def _later_than(self, first: JobRecord, key: str) -> JobRecord | None:
        """Return the next event of a conversation, if it is later than another one."""
        head = self._waiting.head_of(key)
        if head is None or head.state != READY or place_of(head) < place_of(first):
            return None
        return head

    def _change_key(self, key: str, event: JobRecord, *, out_of_order: bool) -> None:
        """Give an event the key of those that overtake, and put it behind them."""
        has_head = self._waiting.has_head(overtaking_key(key))
        facts = EventFacts.of(event)._replace(out_of_order=out_of_order)
        self._statements.execute(
            records.CHANGE_KEY,
            key=overtaking_key(key),
            state=HELD if has_head else READY,
            facts=facts.text(),
            sequence=event.sequence,
        )


def with_overtaken(install: Install, key: str) -> Install:
    """Return the install with a conversation that has events which overtake."""
    return attrs.evolve(install, overtaken=install.overtaken | {key})


def without_overtaken(install: Install, key: str) -> Install:
    """Return the install without a conversation whose events have overtaken."""
    return attrs.evolve(install, overtaken=install.overtaken - {key})


def place_of(event: JobRecord) -> int:
    """Return what decides about the order of events of a conversation."""
    return event.position or 0
