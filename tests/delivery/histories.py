"""
Histories of couriers: real transactions, but no network and no time.

Workers do the real rounds. What a send comes to is decided here, by the plan of a
history: endpoints go down and come back, answer late, and workers are killed while they
send.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack
from itertools import pairwise

import attrs

from cmdx.delivery import Courier, Endpoint, courier_changed
from cmdx.delivery.lane import CourierLane
from cmdx.delivery.machine import FAILED, TRANSITIONS, UP
from cmdx.delivery.records import EventFacts
from cmdx.delivery.sending import Exchange
from cmdx.queue import JobState, Queue, table
from cmdx.queue.claims import Claims
from cmdx.queue.lanes import lane_beside
from cmdx.queue.report import Demand, End
from cmdx.run.lifecycle import drive
from cmdx.stores import SqliteStore
from cmdx.testing import instant

TYPES = ("a", "b", "drops")
RETENTION = 400.0
LEASE = 30.0
WORKERS = 2


class QuietClaims(Claims):
    """Has no thread: the history extends its lease."""

    def __enter__(self):
        drive(self.register(awaits=False))
        return self


@attrs.define
class Flight:
    """An event on its way."""

    record: object
    accepted: bool
    ends_at: float


class Worker:
    """What claims events and sends them."""

    def __init__(self, history):
        self.history = history
        self.claims = QuietClaims(history.queue, LEASE).__enter__()
        self.flights: dict[int, Flight] = {}

    def do_round(self, ends=()):
        history = self.history
        before = history.courier_state()
        report = self.claims.do_round(list(ends), Demand(50))
        if before is FAILED and history.courier_state() is FAILED:
            history.check_probes(report.claimed)
        for record in report.claimed:
            event_type = history.type_of(record)
            history.began.append(history.now)
            self.flights[record.sequence] = Flight(
                record, not history.is_down[event_type], history.now + history.slowness
            )
        return report.next_due

    def finish_due(self):
        """Write the ends of all sends that are over."""
        due = [
            flight
            for flight in self.flights.values()
            if flight.ends_at <= self.history.now
        ]
        for flight in due:
            del self.flights[flight.record.sequence]
        ends = [self.history.end_of(flight) for flight in due]
        return self.do_round(ends)

    def die(self):
        """Be killed: some of what was on its way has arrived all the same."""
        for flight in self.flights.values():
            self.history.doubtful.add(flight.record.sequence)
            if flight.accepted:
                self.history.receive(flight.record)


class History:
    """One courier, some workers, and what the endpoints have received."""

    def __init__(self):
        self.stack = ExitStack()
        self.clock = self.stack.enter_context(instant())
        self.store = self.stack.enter_context(SqliteStore())
        self.queue = Queue(self.store, keep=1e6)
        self.courier = Courier(
            self.queue,
            {
                "a": Endpoint("https://a.example"),
                "b": Endpoint("https://b.example"),
                "drops": Endpoint("https://c.example", max_retries=0),
            },
            retention=RETENTION,
        )
        self.lane = lane_beside(self.queue, CourierLane, CourierLane)
        self.states = [UP]
        self.stack.enter_context(courier_changed.connected_to(self.note_change))
        self.sent: list[object] = []
        self.began: list[float] = []
        """When events were sent."""
        self.received: list[int] = []
        """The numbers of the jobs, in the order the endpoints accepted them."""
        self.doubtful: set[int] = set()
        """What a killed worker was sending."""
        self.is_down = dict.fromkeys(TYPES, False)
        self.slowness = 0.0
        self.workers = [Worker(self) for _ in range(WORKERS)]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    @property
    def now(self):
        return self.store.now()

    # -- what happens -----------------------------------------------------------------

    def send(self, event_type, conversation):
        number = len(self.sent)
        delivery = self.courier.send(event_type, number, conversation=conversation)
        self.sent.append(delivery)
        self.workers[0].do_round()

    def switch(self, event_type):
        self.is_down[event_type] = not self.is_down[event_type]

    def slow_down(self, seconds):
        self.slowness = seconds

    def kill(self, number):
        self.workers[number].die()
        self.workers[number] = Worker(self)

    def pass_time(self, seconds):
        """Let time pass, and let the workers do on the way what is due."""
        end = self.now + seconds
        while True:
            next_due = min([worker.finish_due() for worker in self.workers])
            flights = [
                flight.ends_at
                for worker in self.workers
                for flight in worker.flights.values()
            ]
            moment = min([next_due, end, self.now + LEASE / 3, *flights])
            self.clock.advance(max(moment - self.now, 0.0005))
            for worker in self.workers:
                drive(worker.claims.extend_lease(awaits=False))
            if self.now >= end:
                return

    def heal(self):
        """Let all endpoints answer, until everything is over."""
        self.is_down = dict.fromkeys(TYPES, False)
        self.slowness = 0.1
        self.pass_time(LEASE + 1)
        if self.courier_state() is FAILED:
            self.send("b", None)  # what is silent needs an event to probe with
        self.pass_time(3 * RETENTION)

    # -- what is noted ----------------------------------------------------------------

    def note_change(self, _sender, *, old, new, **_facts):
        assert old is self.states[-1]
        self.states.append(new)

    def courier_state(self):
        return self.courier.state

    def type_of(self, record):
        return self.courier._record.event_type_of(record.lane)

    def end_of(self, flight):
        if flight.accepted:
            self.receive(flight.record)
        reason = None if flight.accepted else "it answered with 500"
        exchange = Exchange(self.now, 0.0, 200, reason, text="{}")
        return End(flight.record, table.give_back, lane=self.lane, outcome=exchange)

    def receive(self, record):
        self.received.append(record.sequence)

    def check_probes(self, claimed):
        """Only probes go out while the install has failed: one for each endpoint."""
        types = Counter(map(self.type_of, claimed))
        assert sum(types.values()) <= len(TYPES), types

    # -- what must hold ---------------------------------------------------------------

    def check(self):
        assert self.courier_state() is UP
        assert all(way in TRANSITIONS for way in pairwise(self.states))
        jobs = [delivery.refresh().job for delivery in self.sent]
        counts = Counter(self.received)
        for job in jobs:
            record = job._record
            count, is_certain = (
                counts[record.sequence],
                record.sequence not in self.doubtful,
            )
            if job.state == JobState.DONE:
                assert count == 1 if is_certain else count >= 1
            else:
                assert (job.state, record.error) == ("dead", "JobDropped")
                assert count == 0 or not is_certain
                self.check_drop(record)
        self.check_order(jobs)

    def check_drop(self, record):
        if record.reason == "too old":
            assert record.ended_at - record.created_at > RETENTION
        else:
            assert (record.reason, self.type_of(record)) == ("out of retries", "drops")

    def check_order(self, jobs):
        """Each conversation is in order, but for those that are flagged."""
        firsts = {
            number: place for place, number in reversed([*enumerate(self.received)])
        }
        places = defaultdict(list)
        for delivery, job in zip(self.sent, jobs, strict=True):
            number, facts = job._record.sequence, EventFacts.of(job._record)
            if delivery.conversation is not None and number in firsts:
                places[delivery.conversation, facts.out_of_order].append(firsts[number])
        for found in places.values():
            assert found == sorted(found)
