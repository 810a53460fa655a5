"""
The four states of an install: pure functions from a state and an event to a state.

Nothing here reads a clock, a store or the network. An install is all endpoints of a
courier. What is *stored* waits in the queue, because it could not be sent, or because
the install had failed when it came.

==================  ==================================================================
state               what goes out
==================  ==================================================================
``up``              all events
``failed``          probes alone; everything else is stored
``in_transition``   all events, those that were stored before first
``recovered``       all events; what was stored during the transition is drained
==================  ==================================================================

A probe is one stored event. A round of probes, here just called a round, has one for
each endpoint that fails, and begins when no probe is under way. If nothing is stored
for any of them, another event stands in. The gap after a round that has failed is 2 s,
4 s, 8 s and so on up to 300 s. If all endpoints have answered that something is stored
for, the install is in transition.

Sends that began before the install failed prove nothing about it. They are told apart
by the epoch, which counts how often it has failed.
"""

from __future__ import annotations

import math
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from cmdx.queue.table import JobRecord

FIRST_GAP, LONGEST_GAP = 2.0, 300.0
"""Seconds between two rounds; a ``Retry-After`` counts for the longest gap at most."""

LATE_ROUND = 1.0
"""Seconds that a round may be late, and still send what was young enough for it."""

LATE_PACE = 0.05
"""Seconds that a send may be behind its pace, and the next one makes up for."""

DRAIN_PATIENCE = 4.0
"""Seconds that a new event waits for the stored ones of its conversation."""


class CourierState(StrEnum):
    """What is known about the endpoints of a courier."""

    UP = "up"
    """All endpoints work, and events are sent as they come."""
    FAILED = "failed"
    """An endpoint fails: it is probed, and all events are stored."""
    IN_TRANSITION = "in_transition"
    """All endpoints work again, and stored events are sent first."""
    RECOVERED = "recovered"
    """What was stored during the transition is sent."""


UP, FAILED = CourierState.UP, CourierState.FAILED
IN_TRANSITION, RECOVERED = CourierState.IN_TRANSITION, CourierState.RECOVERED

TRANSITIONS: dict[tuple[CourierState, CourierState], str] = {
    (UP, FAILED): "an endpoint fails",
    (FAILED, IN_TRANSITION): "all endpoints answer again",
    (IN_TRANSITION, FAILED): "an endpoint fails",
    (IN_TRANSITION, RECOVERED): "all that was stored before is sent",
    (RECOVERED, FAILED): "an endpoint fails",
    (RECOVERED, UP): "all that was stored meanwhile is sent",
}
"""Which state may follow which, and when; there is no other way."""


class Fate(Enum):
    """What becomes of an event that was sent."""

    DELIVERED = "delivered"
    STORED = "stored"
    DROPPED = "dropped"


@attrs.frozen
class Send:
    """An event that was sent: to which endpoint, and in which epoch."""

    id: str
    event_type: str
    epoch: int
    drops: bool = False
    """Whether its endpoint takes no retries, so that a failure drops it."""


@attrs.frozen
class Mark:
    """A moment, and the last event that there was by then."""

    sequence: int
    time: float

    def covers(self, sequence: int, stored_at: float) -> bool:
        """Tell whether an event was stored by then; a replayed one is stored anew."""
        return sequence <= self.sequence and stored_at <= self.time

    def has(self, event: JobRecord) -> bool:
        """Tell whether a job that waits was stored by then."""
        return self.covers(event.sequence, event.due_at)


@attrs.frozen
class Install:
    """The state of a courier, and what its next decisions need."""

    state: CourierState = UP
    epoch: int = 0
    """How often it has failed."""
    failed_at: float = 0.0
    """When it ceased to be up; nothing counts as stored before."""
    failing: Mapping[str, float] = attrs.field(factory=dict)
    """The event types whose endpoints fail, and when each may be probed again."""
    rounds: int = 0
    """How many rounds have failed, one after the other."""
    round_at: float = 0.0
    """When the next round may begin."""
    probes: frozenset[str] = frozenset()
    """The probes under way, by their ids."""
    has_failed_probe: bool = False
    """Whether a probe of this round has failed; its end clears it."""
    has_answered: bool = False
    """Whether the last probe was accepted, and nothing has failed since; each failure
    clears it."""
    recovers_since: float = 0.0
    """When all endpoints answered again; what came later goes directly."""
    mark: Mark | None = None
    """What was stored by then has to be sent before the state changes."""
    paces: Mapping[str, float] = attrs.field(factory=dict)
    """When the next event of a type may go, if recovery has a rate."""
    is_turn_of_new: bool = True
    """Whether a new event goes next while it recovers, or one that was stored."""
    overtaken: frozenset[str] = frozenset()
    """The keys of conversations that have events which overtake others."""

    @property
    def can_send(self) -> bool:
        """Whether other events than probes may go out."""
        return self.state is not FAILED

    @property
    def is_recovering(self) -> bool:
        """Whether stored events are being sent."""
        return self.state in (IN_TRANSITION, RECOVERED)


# -- the end of a send ----------------------------------------------------------------


def end_send(
    install: Install, send: Send, now: float, *, accepted: bool, wait: float = 0.0
) -> tuple[Install, Fate]:
    """
    Decide what becomes of an event that was sent, and of the install.

    Args:
        install: The install.
        send: What was sent.
        now: The time.
        accepted: Whether the endpoint has accepted it in time.
        wait: The seconds that the endpoint asks to wait.
    """
    if send.id in install.probes:
        return end_probe(install, send, now, accepted=accepted, wait=wait)
    if accepted:
        return install, Fate.DELIVERED
    if install.state is FAILED:
        return note_straggler(install, send, now, wait), Fate.STORED
    if send.drops:
        return install, Fate.DROPPED
    if send.epoch == install.epoch:
        install = fail(install, send.event_type, now, wait)
    return install, Fate.STORED


def end_probe(
    install: Install, send: Send, now: float, *, accepted: bool, wait: float
) -> tuple[Install, Fate]:
    """Decide what the end of a probe means."""
    failing = dict(install.failing)
    if accepted:
        failing.pop(send.event_type, None)
        has_failed = install.has_failed_probe
    else:
        if not send.drops:  # else it can stand in for others, but fails for itself
            failing[send.event_type] = now + min(wait, LONGEST_GAP)
        has_failed = True
    install = attrs.evolve(
        install, failing=failing, has_answered=accepted, has_failed_probe=has_failed
    )
    fate = Fate.DELIVERED if accepted else Fate.STORED
    return without_probes(install, {send.id}, now), fate


def without_probes(install: Install, gone: Collection[str], now: float) -> Install:
    """Return the install without probes that are over; the round may be over too."""
    probes = install.probes.difference(gone)
    if probes or not install.probes:
        return attrs.evolve(install, probes=probes)
    if not install.has_failed_probe:  # the next one may go at once
        return attrs.evolve(install, probes=probes, round_at=now)
    rounds = install.rounds + 1
    return attrs.evolve(
        install,
        probes=probes,
        has_failed_probe=False,
        rounds=rounds,
        round_at=now + gap_after(rounds),
    )


def note_straggler(install: Install, send: Send, now: float, wait: float) -> Install:
    """Note that an event has failed that was sent before the install did."""
    if send.drops:
        return install
    earliest = now + max(FIRST_GAP, min(wait, LONGEST_GAP))
    known = install.failing.get(send.event_type, 0.0)
    failing = {**install.failing, send.event_type: max(known, earliest)}
    return attrs.evolve(install, failing=failing, has_answered=False)


def fail(install: Install, event_type: str, now: float, wait: float) -> Install:
    """Let the install fail, because an endpoint does."""
    return attrs.evolve(
        change(install, FAILED),
        epoch=install.epoch + 1,
        failed_at=now if install.state is UP else install.failed_at,
        failing={event_type: now + min(wait, LONGEST_GAP)},
        rounds=1,
        round_at=now + gap_after(1),
        probes=frozenset(),
        has_failed_probe=False,
        has_answered=False,
        mark=None,
    )


def gap_after(rounds: int) -> float:
    """Return the seconds between a round and the next, after so many have failed."""
    growth = min(rounds - 1, 10)  # far more than the longest gap needs
    return min(FIRST_GAP * float(1 << growth), LONGEST_GAP)


def change(install: Install, state: CourierState) -> Install:
    """Return the install in another state, which must be one that may follow."""
    if (install.state, state) not in TRANSITIONS:
        message = f"a courier that is {install.state} cannot become {state}"
        raise ValueError(message)
    return attrs.evolve(install, state=state)


# -- probes ---------------------------------------------------------------------------


def endpoints_to_probe(install: Install, now: float) -> list[str]:
    """Return the event types whose endpoints are to be probed now."""
    if install.state is not FAILED or install.probes or now < install.round_at:
        return []
    return [name for name, earliest in install.failing.items() if earliest <= now]


def next_probe_time(install: Install, names: Iterable[str]) -> float:
    """Return when the next of these endpoints may be probed; at once for none."""
    earliest = (install.failing.get(name, 0.0) for name in names)
    return max(install.round_at, min(earliest, default=0.0))


def may_probe_with(install: Install, event_type: str, now: float) -> bool:
    """Tell whether an endpoint may get a probe, also one for another endpoint."""
    return install.failing.get(event_type, 0.0) <= now


def begin_probes(install: Install, probes: Collection[str]) -> Install:
    """Note which probes are under way."""
    return attrs.evolve(install, probes=install.probes.union(probes))


def rest(install: Install, now: float) -> Install:
    """Let an install with nothing stored probe with the next event, at once."""
    return attrs.evolve(install, rounds=0, round_at=min(install.round_at, now))


def without_silent(install: Install, silent: Collection[str]) -> Install:
    """
    Return the install without endpoints that nothing is stored for.

    They cannot be probed, and must not keep all others waiting. So they count no more
    once a probe was accepted.
    """
    if install.state is not FAILED or install.probes or not install.has_answered:
        return install
    failing = {
        event_type: earliest
        for event_type, earliest in install.failing.items()
        if event_type not in silent
    }
    return attrs.evolve(install, failing=failing)


# -- recovery -------------------------------------------------------------------------


def advance(
    install: Install, has_pending: Callable[[Mark], bool], here: Mark
) -> Install:
    """
    Take the next step to recovery, if it is time for it.

    Args:
        install: The install.
        has_pending: Tells whether an event is still to be sent that was stored by a
            mark.
        here: A mark for this moment.
    """
    if install.state is FAILED:
        if install.failing or install.probes:
            return install
        return attrs.evolve(
            change(install, IN_TRANSITION),
            rounds=0,
            recovers_since=here.time,
            mark=here,
        )
    if install.mark is None or has_pending(install.mark):
        return install
    if install.state is IN_TRANSITION:
        return attrs.evolve(change(install, RECOVERED), mark=here)
    return attrs.evolve(change(install, UP), mark=None, paces={})


def next_pace(install: Install, event_type: str) -> float:
    """Return when the next event of a type may go while the install recovers."""
    return install.paces.get(event_type, 0.0) if install.is_recovering else 0.0


def take_turn(install: Install) -> Install:
    """Let an event of the other kind go next: a new one, or one that was stored."""
    return attrs.evolve(install, is_turn_of_new=not install.is_turn_of_new)


def keep_pace(install: Install, event_type: str, now: float, rate: float) -> Install:
    """Note that an event of a type goes, of so many in a second."""
    since = max(install.paces.get(event_type, now), now - LATE_PACE)
    return attrs.evolve(install, paces={**install.paces, event_type: since + 1 / rate})


# -- age ------------------------------------------------------------------------------


def expiry_of(install: Install, stored_at: float, retention: float) -> float:
    """
    Return when an event that waits is too old; what is older is dropped.

    While the install recovers, what has come since is about to go, and is not stored.
    """
    if install.is_recovering and stored_at > install.recovers_since:
        return math.inf
    return max(stored_at, install.failed_at) + retention


def judging_time(install: Install, now: float) -> float:
    """
    Return the time that the age of events is judged by.

    It is that of the round that is due, because a worker comes a little later. A
    retention of two seconds would leave no room for the probe after two seconds.
    """
    if install.state is not FAILED or install.probes:
        return now
    return max(min(now, next_probe_time(install, install.failing)), now - LATE_ROUND)


def within_reach(install: Install, now: float, rate: float | None = None) -> Install:
    """
    Return the install without moments that are too far away: the clock went back.

    Args:
        install: The install.
        now: The time.
        rate: How many events go in a second while the install recovers.
    """
    latest = now + LONGEST_GAP
    next_pace = now + (0.0 if rate is None else 1 / rate)
    return attrs.evolve(
        install,
        failed_at=min(install.failed_at, now),
        failing={name: min(at, latest) for name, at in install.failing.items()},
        round_at=min(install.round_at, latest),
        paces={name: min(at, next_pace) for name, at in install.paces.items()},
    )
