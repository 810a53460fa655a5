"""
When there is something to do for a courier, if nothing happens before.

Nothing is changed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmdx.delivery import machine
from cmdx.delivery.machine import FAILED, RECOVERED, UP
from cmdx.delivery.waiting import HELD, READY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.delivery.offers import View

TICK = 0.001
"""Seconds after which an event that is as old as it may be is too old."""


def wakeups_of(view: View) -> Iterator[float]:
    """Yield all moments; what is due already waits for others, or for their events."""
    if view.install.state is FAILED:
        yield from probe_times(view)
    if view.install.state is RECOVERED:
        yield from overtaking_times(view)
    yield from pace_times(view)
    yield from expiry_times(view)


def probe_times(view: View) -> Iterator[float]:
    """Yield when the next round of probes begins, if there is something to send."""
    install, waiting = view.install, view.waiting
    if not install.probes and not waiting.is_empty():
        failing = filter(waiting.has_type, install.failing)
        yield machine.next_probe_time(install, failing)


def overtaking_times(view: View) -> Iterator[float]:
    """Yield when new events have waited long enough for those that are drained."""
    patience = machine.DRAIN_PATIENCE
    for came_at in view.waiting.first_times(HELD, view.now - patience):
        yield came_at + patience + TICK


def pace_times(view: View) -> Iterator[float]:
    """Yield when the next events may go that ``recovery_rate`` keeps waiting."""
    install, waiting = view.install, view.waiting
    for event_type in install.paces:
        moment = machine.next_pace(install, event_type)
        is_known = event_type in waiting.ranks
        if moment > view.now and is_known and waiting.has_type(event_type):
            yield moment


def expiry_times(view: View) -> Iterator[float]:
    """Yield when stored events are too old."""
    retention, install = view.courier.retention, view.install
    if retention is None or install.state is UP:
        return
    for state in (READY, HELD):
        for stored_at in view.waiting.first_times(state):
            moment = machine.expiry_of(install, stored_at, retention) + TICK
            # What is too old by now is kept for a round that is late.
            yield moment if moment > view.now else moment + machine.LATE_ROUND
