"""
What is done with one courier in one round of a worker, inside its transaction.

1. what came of events that were sent is written, and told         ``write_ends``
2. what is too old is dropped, and the install recovers            ``look``
3. events are offered: all that may go, or probes                  ``offers``
4. those that are claimed are noted                                ``claim``
5. the state is stored, and when there is something to do next     ``finish``

What becomes of an event and of the install is decided in ``cmdx.delivery.machine``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from cmdx.delivery import machine, records
from cmdx.delivery.machine import FAILED, RECOVERED, UP, Fate, Install, Send
from cmdx.delivery.offers import View, offers_of
from cmdx.delivery.overtaking import Overtaking
from cmdx.delivery.records import EventFacts
from cmdx.delivery.signals import (
    courier_changed,
    delivery_dropped,
    delivery_failed,
    delivery_sent,
)
from cmdx.delivery.waiting import HELD, READY, WaitingEvents
from cmdx.delivery.wakeups import wakeups_of
from cmdx.queue import table
from cmdx.queue.table import JobState
from cmdx.queue.upkeep import LOOK_EVERY, write_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blinker import NamedSignal

    from cmdx.delivery.courier import Courier
    from cmdx.delivery.offers import Offer
    from cmdx.delivery.records import CourierRecord
    from cmdx.delivery.sending import Exchange
    from cmdx.queue.lanes import Visit
    from cmdx.queue.records import Change
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

Ended: TypeAlias = "tuple[JobRecord, Exchange]"
"""An event that was sent, and what came of it."""

NUMBERED_PAUSE = 30.0
"""Seconds before a retry, if events are retried by number."""

MOST_DROPPED = 200
"""How many events of a type are dropped in one round."""

TOO_OLD, NO_ENDPOINT, NO_RETRIES = "too old", "no endpoint", "out of retries"
"""Why events are dropped."""

LONGEST_SLEEP = 5.0
"""Seconds after which an install that has failed is looked at, whatever happens."""


@attrs.frozen
class Notice:
    """What is to be told after the commit: a signal, the event, and more facts."""

    signal: NamedSignal
    courier: Courier
    event: JobRecord | None
    facts: Mapping[str, Any]


class CourierVisit:
    """One courier in one round."""

    def __init__(
        self,
        statements: Statements,
        visit: Visit,
        courier: Courier,
        record: CourierRecord,
        ends: Sequence[Ended],
    ) -> None:
        self.statements = statements
        self.visit = visit
        self.courier = courier
        self.record = record
        self.ends = ends
        self.install: Install = record.install
        self.now = statements.now
        # They include types that are only known to processes that began later.
        self.ranks = {
            event_type: record.rank_of(event_type)
            for event_type in record.tracks
            if event_type not in courier.gone_types
        }
        self.waiting = WaitingEvents(statements, record, self.ranks)
        self.overtaking = Overtaking(statements, visit.queue, self.waiting)

    # -- ends -----------------------------------------------------------------------

    def write_ends(self) -> None:
        """Write what came of events that were sent."""
        if not self.ends:
            return
        records.add_attempts(self.statements, self.ends)
        changes = []
        for event, exchange in self.ends:
            facts = EventFacts.of(event)
            facts = facts._replace(attempts=facts.attempts + 1)
            sent = event._replace(lane_facts=facts.text())
            changes.append((event, self.after_send(sent, facts, exchange)))
        self.write(changes)

    def write(self, changes: list[Change]) -> None:
        """Write what became of events; those that they kept waiting may go then."""
        write_changes(self.statements, changes)
        self.visit.changed += [after for _, after in changes]

    def after_send(
        self, event: JobRecord, facts: EventFacts, exchange: Exchange
    ) -> JobRecord:
        """Return an event after it was sent."""
        install, fate = self.decide(event, facts, exchange)
        told = {"status": exchange.status, "duration": exchange.duration}
        if fate is Fate.DELIVERED:
            after = table.finish(
                event, self.now, self.visit.keep, is_success=True, result=exchange.text
            )
            self.tell(delivery_sent, after, **told)
        else:
            after = self.after_failure(event, facts, fate, install.failed_at)
            self.tell(delivery_failed, after, reason=exchange.reason, **told)
        if after.state == JobState.DEAD:
            self.tell(delivery_dropped, after, reason=after.reason)
        self.become(install)
        return after

    def decide(
        self, event: JobRecord, facts: EventFacts, exchange: Exchange
    ) -> tuple[Install, Fate]:
        """Decide what becomes of the install, and of an event that was sent."""
        accepted = exchange.is_accepted
        event_type = self.record.event_type_of(event.lane or 0)
        endpoint = self.courier.endpoints.get(event_type)
        if self.courier.retention is None:
            most = (endpoint and endpoint.max_retries) or 0
            if accepted:
                return self.install, Fate.DELIVERED
            is_left = facts.attempts <= most
            return self.install, Fate.STORED if is_left else Fate.DROPPED
        drops = endpoint is not None and endpoint.max_retries == 0
        send = Send(event.id, event_type, facts.epoch, drops)
        return machine.end_send(
            self.install, send, self.now, accepted=accepted, wait=exchange.wait
        )

    def after_failure(
        self, event: JobRecord, facts: EventFacts, fate: Fate, failed_at: float
    ) -> JobRecord:
        """Return an event that could not be delivered; the install has failed then."""
        if event.cancels:
            return table.end_cancelled(event, self.now, self.visit.keep)
        if fate is Fate.DROPPED:
            return self.dropped(event, NO_RETRIES)
        if self.courier.retention is None:
            return table.wait_until(event, self.now + NUMBERED_PAUSE)
        # Nothing is older than the failure, so the event that has caused it can stay
        # before all others.
        is_in_place = facts.was_stored or self.now <= failed_at
        facts = facts._replace(was_stored=True)
        stored = event._replace(lane_facts=facts.text())
        return table.wait_until(stored, event.due_at if is_in_place else self.now)

    def dropped(self, event: JobRecord, reason: str) -> JobRecord:
        """Return an event that is given up."""
        return table.end(
            event,
            JobState.DEAD,
            self.now,
            self.visit.keep,
            error="JobDropped",
            reason=reason,
        )

    # -- looking --------------------------------------------------------------------

    def look(self) -> None:
        """Do what is due by the time alone, or because of what others have done."""
        self.drop_without_endpoint()
        self.become(self.overtaking.keep_behind(self.install))
        if self.install.state is UP:
            return
        if self.courier.retention is None:  # it had one before
            self.become(Install(epoch=self.install.epoch))
            return
        rate = self.courier.recovery_rate
        self.become(machine.within_reach(self.install, self.now, rate))
        self.forget_lost_probes()
        self.forget_gone_endpoints()
        self.drop_expired()
        self.forget_silent_endpoints()  # also those whose last event was dropped
        self.advance()  # all that kept it from recovery is forgotten by now
        if self.install.state is RECOVERED:
            self.become(self.overtaking.let_late_events_go(self.install, self.now))
        if self.is_resting():
            self.become(machine.rest(self.install, self.now))

    def is_resting(self) -> bool:
        """Tell whether the install has failed, and has nothing to probe with."""
        install = self.install
        is_quiet = install.state is FAILED and not install.probes
        return is_quiet and self.waiting.is_empty()

    def drop_without_endpoint(self) -> None:
        """Drop events of types that have no endpoint any more."""
        for event_type in self.courier.gone_types:
            rank = self.record.rank_of(event_type)
            self.drop(self.waiting.due(rank, MOST_DROPPED), NO_ENDPOINT)

    def drop(self, events: list[JobRecord], reason: str) -> None:
        """Give events up."""
        changes = [(event, self.dropped(event, reason)) for event in events]
        for _, dropped in changes:
            self.tell(delivery_dropped, dropped, reason=reason)
        self.write(changes)
        if changes:
            self.visit.next_due = self.now  # what they kept waiting may be the next

    def forget_lost_probes(self) -> None:
        """Forget probes that nobody sends any more: their process has died."""
        lost = {
            id_
            for id_ in self.install.probes
            if not self.statements.execute(records.RUNNING, id=id_)
        }
        if lost:
            self.become(machine.without_probes(self.install, lost, self.now))

    def forget_gone_endpoints(self) -> None:
        """Forget failures of endpoints that are not there any more."""
        known = {
            event_type: moment
            for event_type, moment in self.install.failing.items()
            if event_type in self.ranks
        }
        if len(known) != len(self.install.failing):
            self.become(attrs.evolve(self.install, failing=known))

    def forget_silent_endpoints(self) -> None:
        """Forget failures of endpoints that nothing is stored for, if others answer."""
        silent = {
            event_type
            for event_type in self.install.failing
            if not self.waiting.has_type(event_type)
        }
        self.become(machine.without_silent(self.install, silent))

    def drop_expired(self) -> None:
        """Drop events that were stored too long ago."""
        retention = self.courier.retention or 0.0
        install, now = self.install, machine.judging_time(self.install, self.now)
        for state in (READY, HELD):
            events = self.waiting.older(state, now - retention, MOST_DROPPED)
            old = [
                event
                for event in events
                if machine.expiry_of(install, event.due_at, retention) < now
            ]
            self.drop(old, TOO_OLD)

    def advance(self) -> None:
        """Take the steps to recovery that are due."""
        while True:
            here = records.mark_of(self.statements)
            install = machine.advance(self.install, self.waiting.has_pending, here)
            if install == self.install:
                return
            self.become(install)

    # -- claims ---------------------------------------------------------------------

    def offers(self, room: int, in_flight: Mapping[int, int]) -> Iterator[Offer]:
        """Yield the events that may go, see ``offers_of``."""
        return offers_of(self.view, room, in_flight)

    @property
    def view(self) -> View:
        """The courier as it is by now."""
        return View(self.courier, self.record, self.install, self.waiting, self.now)

    def claim(self, offer: Offer) -> None:
        """Claim the next event of an offer; ``start_events`` stores that."""
        event, install = offer.events.popleft(), self.install
        facts = self.facts_of_claim(event)
        claimed = table.start(event, self.visit.owner, self.now)
        claimed = claimed._replace(lane_facts=facts.text())
        self.visit.claimed.append(claimed)
        if offer.are_probes:
            install = machine.begin_probes(install, [event.id])
        elif install.is_recovering:
            install = machine.take_turn(install)
            if self.courier.recovery_rate is not None:
                rate = self.courier.recovery_rate
                install = machine.keep_pace(install, offer.event_type, self.now, rate)
        self.become(install)

    def facts_of_claim(self, event: JobRecord) -> EventFacts:
        """Return the facts of an event that is sent now."""
        facts, install = EventFacts.of(event), self.install
        is_stored = install.state is FAILED or (
            install.mark is not None and install.mark.has(event)
        )
        return facts._replace(
            epoch=install.epoch, was_stored=facts.was_stored or is_stored
        )

    # -- the end of the round -------------------------------------------------------

    def finish(self) -> None:
        """Store the courier, and tell when there is something to do for it."""
        retries = self.waiting.first_times(READY, self.now)
        wakeups = [*retries, *wakeups_of(self.view)]
        self.plan_next_round(wakeups)
        if self.waiting.has_buried or self.bring_back(min(retries, default=math.inf)):
            self.visit.next_due = self.now
        if self.install.state is FAILED or self.install != self.record.install:
            self.save(wakeups)

    def plan_next_round(self, wakeups: list[float]) -> None:
        """Have the worker come back at the next wakeup; soon for one that is due."""
        # What is due is done by another process, or waits for an event on its way.
        look_at = self.now + LONGEST_SLEEP
        later = [moment if moment > self.now else look_at for moment in wakeups]
        self.visit.next_due = min([self.visit.next_due, *later])

    def save(self, wakeups: list[float]) -> None:
        """Store the install; it sleeps until the next wakeup, or the next event."""
        latest = self.now + LONGEST_SLEEP
        wakes_at = None if self.is_resting() else min([*wakeups, latest])
        number = self.record.number
        records.save_install(self.statements, number, self.install, wakes_at)

    def bring_back(self, first_retry: float) -> bool:
        """
        Keep events from waiting for a time that was there: the clock was set back.

        Only retries by number wait for a later time, and not for longer than that.
        """
        pause = NUMBERED_PAUSE if self.courier.retention is None else 0.0
        if not self.now + pause + LOOK_EVERY < first_retry < math.inf:
            return False
        self.waiting.bring_back(self.now + pause)
        return True

    # -- telling --------------------------------------------------------------------

    def become(self, install: Install) -> None:
        """Take over the next state of the install, and tell if it is another one."""
        old, self.install = self.install.state, install
        if old is not install.state:
            self.tell(courier_changed, None, old=old, new=install.state)

    def tell(self, signal: NamedSignal, event: JobRecord | None, **facts: Any) -> None:
        """Have a signal be sent after the commit."""
        self.visit.notices.append(Notice(signal, self.courier, event, facts))
