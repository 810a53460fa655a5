"""
The couriers of this process beside a queue: what a round of a worker does with them.

1. how events have ended is written                          ``CourierVisit.write_ends``
2. what is due by the time, or by what others did, is done         ``CourierVisit.look``
3. events that may go are claimed, in turn over all endpoints           ``claim_events``
4. the states of the couriers are stored                         ``CourierVisit.finish``

It is all done inside the transaction of the round. A courier is one row, which is
locked for that. So all processes obey one state, and whether an event may go is decided
by the state that it is claimed in.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from cmdx.delivery import records
from cmdx.delivery.machine import FAILED
from cmdx.delivery.records import number_of
from cmdx.delivery.sending import exchange_of
from cmdx.delivery.visits import LONGEST_SLEEP, CourierVisit
from cmdx.queue.table import LANES
from cmdx.telemetry import deliver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cmdx import Result
    from cmdx.delivery.courier import Courier
    from cmdx.delivery.sending import Exchange
    from cmdx.delivery.visits import Ended, Notice
    from cmdx.queue.lanes import Visit
    from cmdx.stores import Statements


class CourierLane:
    """The couriers of this process beside one queue; a ``cmdx.queue.lanes.Lane``."""

    ranks = range(LANES, 2**62)

    def __init__(self) -> None:
        self.couriers: dict[int, Courier] = {}
        """By their numbers."""
        # These may go on though a transaction is rolled back: nothing is lost.
        self._owners: set[str] = set()
        """The workers of this process that are sending, or were the last to claim."""
        self._turn = 0
        """Counts the rounds, so that each endpoint is the first one now and then."""
        self._checked = ""
        """The id of the delivery whose attempts were checked last."""

    def visit(self, statements: Statements, visit: Visit) -> None:
        """Write how events have ended, and claim others."""
        courier_visits = list(self.courier_visits(statements, visit))
        for courier_visit in courier_visits:
            courier_visit.write_ends()
            courier_visit.look()
        self.claim_events(statements, visit, courier_visits)
        for courier_visit in courier_visits:
            courier_visit.finish()
        if visit.removes:
            self._checked = records.remove_attempts(statements, self._checked)

    def courier_visits(
        self, statements: Statements, visit: Visit
    ) -> Iterator[CourierVisit]:
        """Yield a visit to each courier that there may be something to do for."""
        ended: dict[int, list[Ended]] = {}
        for job, exchange in visit.ends:
            ended.setdefault(number_of(job.lane or 0), []).append((job, exchange))
        numbers = {*ended, *self.busy_couriers(statements, visit)}
        for number in sorted(numbers & self.couriers.keys()):
            record = records.load_courier(statements, number)
            if record is not None:
                courier, ends = self.couriers[number], ended.get(number, [])
                yield CourierVisit(statements, visit, courier, record, ends)

    def busy_couriers(self, statements: Statements, visit: Visit) -> set[int]:
        """
        Return the couriers that there may be something to do for.

        One that has failed sleeps until a moment that is stored with it, or until the
        next event comes if it has none. Without a retention it has nothing to wait for.
        """
        now = statements.now
        rows = statements.execute(records.READY_RANKS, queue=visit.queue)
        busy = {number_of(rank) for (rank,) in rows}
        rows = statements.execute(records.NOT_UP, queue=visit.queue)
        for number, state, wakes_at in rows:
            may_sleep = state == FAILED and self.keeps_events(number)
            if may_sleep and wakes_at is None:
                continue
            # The clock may have been set back, so it never sleeps for longer.
            sleeps = now < (wakes_at or now) <= now + LONGEST_SLEEP
            if may_sleep and sleeps:
                busy.discard(number)
                visit.next_due = min(visit.next_due, wakes_at)
            else:
                busy.add(number)
        return busy

    def keeps_events(self, number: int) -> bool:
        """Tell whether a courier of this process stores events that cannot be sent."""
        courier = self.couriers.get(number)
        return courier is not None and courier.retention is not None

    def claim_events(
        self,
        statements: Statements,
        visit: Visit,
        courier_visits: Iterable[CourierVisit],
    ) -> None:
        """Claim events that may go, one of each endpoint in turn."""
        if visit.room <= 0:
            return
        in_flight = self.in_flight(statements, visit)
        turns = deque(
            (courier_visit, offer)
            for courier_visit in courier_visits
            for offer in courier_visit.offers(visit.room, in_flight)
            if offer.events
        )
        if turns:
            turns.rotate(-self._turn % len(turns))
            self._turn += 1
        while turns and len(visit.claimed) < visit.room:
            courier_visit, offer = turns.popleft()
            courier_visit.claim(offer)
            if offer.events:
                turns.append((courier_visit, offer))
        records.start_events(statements, visit.claimed)

    def in_flight(self, statements: Statements, visit: Visit) -> Counter[int]:
        """Count what this process is sending, by the ranks of the types."""
        rows = statements.execute(records.IN_FLIGHT, queue=visit.queue)
        own = [row for row in rows if row[1] in self._owners or row[1] == visit.owner]
        self._owners = {visit.owner, *(owner for _, owner, _ in own)}
        found: Counter[int] = Counter()
        for rank, _, count in own:
            found[rank] += count
        return found

    def outcome_of(self, result: Result[Any], note: Any) -> Exchange:
        """Return what came of a send."""
        return exchange_of(result, note)

    def tell(self, notice: Notice) -> None:
        """Send the signal of a notice."""
        if not notice.signal.receivers:
            return
        courier, payload = notice.courier, dict(notice.facts)
        if notice.event is not None:
            payload["delivery"] = courier._delivery_of(notice.event)
        deliver(notice.signal, courier, payload)
