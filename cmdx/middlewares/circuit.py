"""
When a circuit opens, lets probes through and closes.

Closed: every call is let through. Too many failures, in a row or as a part of the calls
of the last while, open it.

Open: every call is refused, until ``recovery`` seconds have passed.

Half open: as many calls as there are ``probes`` are let through, others are refused. If
all probes go well the circuit closes; one that fails opens it again. Probes that have
not come back after ``recovery`` seconds are given up for lost, and others are let
through instead; if they come back after all, they still count.

A call is given a ticket when it is let through, and hands it in with its verdict. What
began before the circuit last changed says nothing about it as it is now.

Here is only what is decided, as functions of values; ``breaker`` keeps the state.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple

import attrs

from cmdx import DefinitionError
from cmdx.middlewares.naming import check_count, check_seconds, rest

SLICES = 10
"""So many parts the time that failures are counted over is divided into."""

WHERE = "Breaker"


class Phase(StrEnum):
    """What a circuit does with calls."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Verdict(Enum):
    """What a call tells about the dependency."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


@attrs.frozen
class Thresholds:
    """When a circuit changes; ``failures`` are 5 if there is no ``ratio`` either."""

    failures: int | None = None
    ratio: float | None = None
    per: float = 10.0
    minimum: int = 10
    recovery: float = 30.0
    probes: int = 1

    def __attrs_post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.failures is not None:
            check_count(WHERE, "failures", self.failures)
        elif self.ratio is None:
            object.__setattr__(self, "failures", 5)
        if self.ratio is not None:
            check_share(self.ratio)
        check_seconds(WHERE, "per", self.per)
        check_count(WHERE, "minimum", self.minimum)
        check_seconds(WHERE, "recovery", self.recovery)
        check_count(WHERE, "probes", self.probes)


def check_share(ratio: object) -> None:
    """Refuse what is no share of all calls."""
    if type(ratio) not in (int, float) or not 0 < ratio <= 1:  # type: ignore[operator]
        message = f"{WHERE}: ratio must be above 0 and at most 1, got {ratio!r}."
        raise DefinitionError(message)


class Slice(NamedTuple):
    """How many calls ended in a part of the time, and how many of them failed."""

    number: int
    calls: int
    failures: int


@attrs.frozen
class Condition:
    """All that a circuit remembers."""

    phase: Phase = Phase.CLOSED
    round: int = 0  # goes up whenever the phase changes
    # Closed:
    consecutive: int = 0
    slices: tuple[Slice, ...] = ()
    # Open, and half open:
    until: float = 0.0
    # Half open:
    turn: int = 0  # goes up whenever probes are given up for lost
    probing: int = 0
    passed: int = 0


class Ticket(NamedTuple):
    """When a call was let through."""

    round: int
    turn: int


class Answer(NamedTuple):
    """Whether a call is let through, and if not, the seconds it had better wait."""

    ticket: Ticket | None
    wait: float = 0.0


def asked(
    condition: Condition, thresholds: Thresholds, now: float
) -> tuple[Condition, Answer]:
    """Return what becomes of a circuit when a call asks, and what it is told."""
    if condition.phase is Phase.CLOSED:
        return condition, Answer(ticket_of(condition))
    condition = waited(condition, thresholds, now)
    taken = condition.probing + condition.passed
    if condition.phase is Phase.OPEN or taken >= thresholds.probes:
        return condition, Answer(None, rest(condition.until, now))
    probing = attrs.evolve(condition, probing=condition.probing + 1)
    return probing, Answer(ticket_of(probing))


def waited(condition: Condition, thresholds: Thresholds, now: float) -> Condition:
    """Return what time has made of a circuit that is not closed."""
    until = now + thresholds.recovery
    if condition.until > until:  # it was set by another clock
        return attrs.evolve(condition, until=until)
    if now < condition.until:
        return condition
    if condition.phase is Phase.OPEN:
        return Condition(Phase.HALF_OPEN, condition.round + 1, until=until)
    turn = condition.turn + 1
    return attrs.evolve(condition, until=until, turn=turn, probing=0)


def told(
    condition: Condition,
    thresholds: Thresholds,
    ticket: Ticket,
    verdict: Verdict,
    now: float,
) -> Condition:
    """Return what becomes of a circuit when a call has ended."""
    if ticket.round != condition.round:
        return condition
    if condition.phase is Phase.CLOSED:
        return counted(condition, thresholds, verdict, now)
    probing = condition.probing - (ticket.turn == condition.turn)
    passed = condition.passed + (verdict is Verdict.GOOD)
    if verdict is Verdict.BAD:
        return opened(condition, thresholds, now)
    if passed >= thresholds.probes:
        return closed(condition)
    return attrs.evolve(condition, probing=probing, passed=passed)


def counted(
    condition: Condition, thresholds: Thresholds, verdict: Verdict, now: float
) -> Condition:
    """Count a call that ended while the circuit was closed."""
    if verdict is Verdict.UNKNOWN:
        return condition
    failed = verdict is Verdict.BAD
    if not failed and not condition.consecutive and thresholds.ratio is None:
        return condition
    slices: tuple[Slice, ...] = ()
    if thresholds.ratio is not None:
        number = int(now * SLICES / thresholds.per)
        slices = with_call(condition.slices, number, failed=failed)
    consecutive = condition.consecutive + 1 if failed else 0
    if failed and too_many(thresholds, consecutive, slices):
        return opened(condition, thresholds, now)
    return attrs.evolve(condition, consecutive=consecutive, slices=slices)


def with_call(
    slices: tuple[Slice, ...], number: int, *, failed: bool
) -> tuple[Slice, ...]:
    """Count a call in the slice *number*, and forget those that are too old."""
    recent = [each for each in slices if number - SLICES < each.number <= number]
    last = Slice(number, 0, 0)
    if recent and recent[-1].number == number:
        last = recent.pop()
    return (*recent, Slice(number, last.calls + 1, last.failures + failed))


def too_many(
    thresholds: Thresholds, consecutive: int, slices: tuple[Slice, ...]
) -> bool:
    """Tell whether there were so many failures that the circuit opens."""
    if thresholds.failures is not None and consecutive >= thresholds.failures:
        return True
    if thresholds.ratio is None:
        return False
    calls = sum(each.calls for each in slices)
    failures = sum(each.failures for each in slices)
    return calls >= thresholds.minimum and failures >= thresholds.ratio * calls


def opened(condition: Condition, thresholds: Thresholds, now: float) -> Condition:
    """Return a circuit that has just been opened."""
    until = now + thresholds.recovery
    return Condition(Phase.OPEN, condition.round + 1, until=until)


def closed(condition: Condition) -> Condition:
    """Return a circuit that has just been closed."""
    return Condition(Phase.CLOSED, condition.round + 1)


def ticket_of(condition: Condition) -> Ticket:
    """Return the ticket of a call that is let through now."""
    return Ticket(condition.round, condition.turn)
