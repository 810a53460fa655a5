"""
The events of a courier that wait: what is read of them, inside a transaction.

An event that heads its conversation, or has none, is ready; those behind it are held.
They are found by the rank of their type, in the order of ``due_at``: when they were
stored. Without a retention it is the time of the next attempt, and an event that no
worker can read has a later one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cmdx.delivery import records
from cmdx.queue.records import HEAD
from cmdx.queue.table import JobState
from cmdx.queue.upkeep import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cmdx.delivery.machine import Mark
    from cmdx.delivery.records import CourierRecord
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

READY, HELD = JobState.READY.value, JobState.HELD.value

FOREVER = 1e18
"""Later than any time, and a number that databases know."""

PENDING = {
    READY: records.IS_WAITING,
    HELD: records.IS_WAITING,
    JobState.RUNNING.value: records.IS_RUNNING_SINCE,
}
"""How an event is found that was stored by a mark and is not sent yet. What was on its
way by then was not stored."""


class WaitingEvents:
    """
    The events of a courier that wait.

    Args:
        statements: Those of the transaction.
        courier: The courier.
        ranks: The rank of each event type that has an endpoint, in whatever process.
    """

    def __init__(
        self, statements: Statements, courier: CourierRecord, ranks: Mapping[str, int]
    ) -> None:
        self._statements = statements
        self._execute = statements.execute
        self._now = statements.now
        self.has_buried = False
        """Whether an event was in the way that cannot be read, and is dead now."""
        self._queue = courier.queue
        self._lane = courier.ranks
        self.ranks = ranks

    # -- whether there are any ------------------------------------------------------

    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
        return not any(map(self.has_type, self.ranks))

    def has_type(self, event_type: str) -> bool:
        """Tell whether events of a type wait."""
        rank = self.ranks[event_type]
        return any(self.first_time(state, rank) < math.inf for state in (READY, HELD))

    def has_pending(self, mark: Mark) -> bool:
        """Tell whether an event is still to be sent that was stored by a mark."""
        by_mark: dict[str, Any] = {"time": mark.time, "sequence": mark.sequence}
        return any(
            self._execute(sql, state=state, **self._place(rank), **by_mark)
            for rank in self.ranks.values()
            for state, sql in PENDING.items()
        )

    # -- times ----------------------------------------------------------------------

    def first_time(self, state: str, rank: int, after: float = -FOREVER) -> float:
        """Return when the first event of a state and rank was stored, after a time."""
        rows = self._execute(
            records.FIRST_TIME, state=state, after=after, **self._place(rank)
        )
        return math.inf if rows[0][0] is None else float(rows[0][0])

    def first_times(self, state: str, after: float = -FOREVER) -> list[float]:
        """Return when the first event of a state was stored, for each type."""
        return [self.first_time(state, rank, after) for rank in self.ranks.values()]

    # -- events ---------------------------------------------------------------------

    def due(
        self, rank: int, limit: int, after: float = -FOREVER, by: float = FOREVER
    ) -> list[JobRecord]:
        """Return the first events with a rank that may go, stored between two times."""
        times: dict[str, Any] = {"after": after, "now": min(self._now, by)}
        return self._select(records.DUE, rank, state=READY, limit=limit, **times)

    def older(self, state: str, moment: float, limit: int) -> list[JobRecord]:
        """Return events of a state that were stored before a moment."""
        limits: dict[str, Any] = {"state": state, "moment": moment, "limit": limit}
        return [
            event
            for rank in self.ranks.values()
            for event in self._select(records.OLDER, rank, **limits)
        ]

    def held_since(self, mark: Mark, moment: float, limit: int) -> list[JobRecord]:
        """Return events that others keep waiting, stored after a mark and so long."""
        limits: dict[str, Any] = {
            "state": HELD,
            "time": mark.time,
            "sequence": mark.sequence,
            "moment": moment,
            "limit": limit,
        }
        return [
            event
            for rank in self.ranks.values()
            for event in self._select(records.OLDER_SINCE, rank, **limits)
        ]

    def bring_back(self, latest: float) -> None:
        """Have no event wait for longer than until a moment."""
        for rank in self.ranks.values():
            self._execute(records.BRING_BACK, latest=latest, **self._place(rank))

    def oldest(self) -> JobRecord | None:
        """Return the event that was stored first, of those that may go."""
        heads = [event for rank in self.ranks.values() for event in self.due(rank, 1)]
        return min(heads, key=order_of, default=None)

    def probe_of(self, event_type: str) -> JobRecord | None:
        """
        Return the event to probe an endpoint with; None if it cannot be sent now.

        It is the oldest that heads its conversation, else what stands before it.
        """
        rank = self.ranks[event_type]
        heads = self.due(rank, 1)
        if heads:
            return heads[0]
        rows = self._execute(records.OLDEST_KEY, state=HELD, **self._place(rank))
        before = self.head_of(rows[0][0]) if rows else None
        return before if before is not None and before.state == READY else None

    def head_of(self, key: str) -> JobRecord | None:
        """
        Return the event of a conversation that goes first, or is on its way.

        None also if a job of others is in its place.
        """
        lane: dict[str, Any] = {"first": self._lane.start, "end": self._lane.stop}
        found = self._read(records.HEAD_OF_KEY, queue=self._queue, key=key, **lane)
        return found[0] if found else None

    def has_head(self, key: str) -> bool:
        """Tell whether another job with a key must not become ready."""
        return bool(self._execute(HEAD, queue=self._queue, key=key))

    def _select(self, sql: str, rank: int, **values: Any) -> list[JobRecord]:
        return self._read(sql, **self._place(rank), **values)

    def _read(self, sql: str, **values: Any) -> list[JobRecord]:
        rows = self._execute(sql, **values)
        found = list(readable(self._statements, rows))
        self.has_buried |= len(found) < len(rows)
        return found

    def _place(self, rank: int) -> dict[str, Any]:
        return {"queue": self._queue, "rank": rank}


def order_of(event: JobRecord) -> tuple[float, int]:
    """Return what events are sorted by."""
    return event.due_at, event.sequence
