"""
Which events of a courier may go now: all that are due, or probes.

Nothing is changed here. ``CourierVisit.claim`` notes what is claimed of an offer.
"""

from __future__ import annotations

from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING

import attrs

from cmdx.delivery import machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cmdx.delivery.courier import Courier
    from cmdx.delivery.machine import Install
    from cmdx.delivery.records import CourierRecord
    from cmdx.delivery.waiting import WaitingEvents
    from cmdx.queue.table import JobRecord

MOST_IN_FLIGHT = 8
"""How many events go to one endpoint at the same time, from one process."""


@attrs.frozen
class Offer:
    """Events of one type that may go, the oldest first."""

    event_type: str
    events: deque[JobRecord]
    are_probes: bool = False


@attrs.frozen
class View:
    """A courier as one round of a worker sees it."""

    courier: Courier
    record: CourierRecord
    install: Install
    waiting: WaitingEvents
    now: float


def offers_of(view: View, room: int, in_flight: Mapping[int, int]) -> Iterator[Offer]:
    """
    Yield the events that may go, by their types.

    Args:
        view: The courier.
        room: How many can be claimed at the most.
        in_flight: How many this process is sending, by the ranks of their types.
    """
    if not view.install.can_send:
        yield from probes_of(view)
        return
    for event_type, rank in view.waiting.ranks.items():
        free = min(room, MOST_IN_FLIGHT - in_flight.get(rank, 0))
        limit = min(free, most_by_pace(view, event_type))
        if limit > 0 and event_type in view.courier.endpoints:
            yield Offer(event_type, deque(due_events(view, rank, limit)))


def due_events(view: View, rank: int, limit: int) -> list[JobRecord]:
    """Return events that may go: new and stored ones in turn, if both wait."""
    mark = view.install.mark
    if mark is None:
        return view.waiting.due(rank, limit)
    stored = view.waiting.due(rank, limit, by=mark.time)
    new = view.waiting.due(rank, limit, after=mark.time)
    kinds = (new, stored) if view.install.is_turn_of_new else (stored, new)
    pairs = zip_longest(*kinds)
    return [event for pair in pairs for event in pair if event][:limit]


def most_by_pace(view: View, event_type: str) -> int:
    """Return how many events of a type may go now while the install recovers."""
    rate = view.courier.recovery_rate
    if rate is None or not view.install.is_recovering:
        return MOST_IN_FLIGHT
    missed = view.now - machine.next_pace(view.install, event_type)
    return 0 if missed < 0 else 1 + int(min(missed, machine.LATE_PACE) * rate)


def probes_of(view: View) -> Iterator[Offer]:
    """Yield one event for each endpoint that is to be probed."""
    install, waiting = view.install, view.waiting
    if install.probes or view.now < install.round_at:
        return
    if any(map(waiting.has_type, install.failing)):
        names = machine.endpoints_to_probe(install, view.now)
        found = [waiting.probe_of(name) for name in names]
    else:
        found = [waiting.oldest()]
    # One event may stand before two others.
    probes = {probe.id: probe for probe in found if probe is not None}
    for probe in probes.values():
        event_type = view.record.event_type_of(probe.rank)
        is_own = event_type in view.courier.endpoints  # else another process sends it
        if is_own and machine.may_probe_with(install, event_type, view.now):
            yield Offer(event_type, deque([probe]), are_probes=True)
