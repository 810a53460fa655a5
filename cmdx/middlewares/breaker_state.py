"""
When a circuit opens, lets probes through and closes.

Closed: every call passes. Too many failures, in a row or as a share of the calls in the
last ``per`` seconds, open the circuit.

Open: every call is refused until ``recovery`` seconds have passed.

Half open: as many calls as there are ``probes`` pass, others are refused. If all probes
succeed, the circuit closes; if one fails, it opens again. Probes that have not ended
after ``recovery`` seconds are replaced by others; if they end later, they still count.

A call that passes gets a ticket, and returns it with its verdict when it has ended. A
call that began before the phase of the circuit last changed does not count.

These functions take a state and an event, and return the next state. ``breaker`` stores
the state.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple

import attrs

from cmdx import DefinitionError
from cmdx.declare.checks import check_count, check_seconds, finite_number
from cmdx.middlewares.shared import seconds_until

SLICES = 10
"""The number of parts that the time span of ``ratio`` is divided into."""


class Phase(StrEnum):
    """What a circuit does with calls."""

    CLOSED = "closed"
    """They pass."""
    OPEN = "open"
    """They are refused."""
    HALF_OPEN = "half_open"
    """Probes pass, and all others are refused."""


class Verdict(Enum):
    """What the end of a call says about the dependency."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


def _as_ratio(ratio: object) -> float | None:
    number = finite_number(ratio)
    if ratio is None or (number is not None and 0 < number <= 1):
        return number
    message = f"Breaker: ratio must be above 0 and at most 1, got {ratio!r}."
    raise DefinitionError(message)


@attrs.frozen
class Thresholds:
    """When a circuit changes; ``failures`` is 5 if neither it nor a ratio is given."""

    failures: int | None = None
    ratio: float | None = attrs.field(default=None, converter=_as_ratio)
    per: float = 10.0
    minimum: int = 10
    recovery: float = 30.0
    probes: int = 1

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.failures is not None:
            check_count("Breaker", "failures", self.failures)
        elif self.ratio is None:
            object.__setattr__(self, "failures", 5)
        for name in ("minimum", "probes"):
            check_count("Breaker", name, getattr(self, name))
        for name in ("per", "recovery"):
            value = getattr(self, name)
            seconds = check_seconds("Breaker", name, value, above_zero=True)
            object.__setattr__(self, name, seconds)


class Slice(NamedTuple):
    """How many calls ended in a part of the time span, and how many of them failed."""

    number: int
    calls: int
    failures: int


@attrs.frozen
class Condition:
    """The state of a circuit."""

    phase: Phase = Phase.CLOSED
    round: int = 0  # goes up whenever the phase changes
    # Closed:
    consecutive: int = 0
    slices: tuple[Slice, ...] = ()
    # Open, and half open:
    until: float = 0.0
    # Half open:
    turn: int = 0  # goes up whenever probes are replaced
    probing: int = 0
    passed: int = 0


class Ticket(NamedTuple):
    """The round and turn in which a call passed."""

    round: int
    turn: int


class Answer(NamedTuple):
    """The ticket of a call that passes, or the seconds until it may ask again."""

    ticket: Ticket | None
    wait: float = 0.0


def on_request(
    condition: Condition, thresholds: Thresholds, now: float
) -> tuple[Condition, Answer]:
    """Return the state after a call has asked to pass, and the answer to it."""
    if condition.phase is Phase.CLOSED:
        return condition, Answer(ticket_of(condition))
    condition = on_time(condition, thresholds, now)
    taken = condition.probing + condition.passed
    if condition.phase is Phase.OPEN or taken >= thresholds.probes:
        return condition, Answer(None, seconds_until(condition.until, now))
    probing = attrs.evolve(condition, probing=condition.probing + 1)
    return probing, Answer(ticket_of(probing))


def on_time(condition: Condition, thresholds: Thresholds, now: float) -> Condition:
    """Return the state at *now* of a circuit that is not closed."""
    until = now + thresholds.recovery
    if condition.until > until:  # it was set by another clock
        return attrs.evolve(condition, until=until)
    if now < condition.until:
        return condition
    if condition.phase is Phase.OPEN:
        return Condition(Phase.HALF_OPEN, condition.round + 1, until=until)
    turn = condition.turn + 1
    return attrs.evolve(condition, until=until, turn=turn, probing=0)


def on_result(
    condition: Condition,
    thresholds: Thresholds,
    ticket: Ticket,
    verdict: Verdict,
    now: float,
) -> Condition:
    """Return the state after the call with *ticket* has ended."""
    if ticket.round != condition.round:
        return condition
    if condition.phase is Phase.CLOSED:
        return count_result(condition, thresholds, verdict, now)
    probing = condition.probing - (ticket.turn == condition.turn)
    passed = condition.passed + (verdict is Verdict.GOOD)
    if verdict is Verdict.BAD:
        return open_condition(condition, thresholds, now)
    if passed >= thresholds.probes:
        return closed_condition(condition)
    return attrs.evolve(condition, probing=probing, passed=passed)


def count_result(
    condition: Condition, thresholds: Thresholds, verdict: Verdict, now: float
) -> Condition:
    """Return the state after a call has ended while the circuit was closed."""
    if verdict is Verdict.UNKNOWN:
        return condition
    failed = verdict is Verdict.BAD
    if not failed and not condition.consecutive and thresholds.ratio is None:
        return condition
    slices: tuple[Slice, ...] = ()
    if thresholds.ratio is not None:
        number = int(now * SLICES / thresholds.per)
        slices = slices_with_call(condition.slices, number, failed=failed)
    consecutive = condition.consecutive + 1 if failed else 0
    if failed and has_too_many_failures(thresholds, consecutive, slices):
        return open_condition(condition, thresholds, now)
    return attrs.evolve(condition, consecutive=consecutive, slices=slices)


def slices_with_call(
    slices: tuple[Slice, ...], number: int, *, failed: bool
) -> tuple[Slice, ...]:
    """Return *slices* with a call added to slice *number*, without those too old."""
    recent = [part for part in slices if number - SLICES < part.number <= number]
    last = Slice(number, 0, 0)
    if recent and recent[-1].number == number:
        last = recent.pop()
    return (*recent, Slice(number, last.calls + 1, last.failures + failed))


def has_too_many_failures(
    thresholds: Thresholds, consecutive: int, slices: tuple[Slice, ...]
) -> bool:
    """Tell whether there were enough failures to open the circuit."""
    if thresholds.failures is not None and consecutive >= thresholds.failures:
        return True
    if thresholds.ratio is None:
        return False
    calls = sum(part.calls for part in slices)
    failures = sum(part.failures for part in slices)
    return calls >= thresholds.minimum and failures >= thresholds.ratio * calls


def open_condition(
    condition: Condition, thresholds: Thresholds, now: float
) -> Condition:
    """Return the state of a circuit that opens at *now*."""
    until = now + thresholds.recovery
    return Condition(Phase.OPEN, condition.round + 1, until=until)


def closed_condition(condition: Condition) -> Condition:
    """Return the state of a circuit that closes."""
    return Condition(Phase.CLOSED, condition.round + 1)


def ticket_of(condition: Condition) -> Ticket:
    """Return the ticket of a call that passes now."""
    return Ticket(condition.round, condition.turn)
