"""
A ``Guidance``, and what it means for the one who obeys it.

1. may it be tried again at all                  ``allowed``
2. has it been tried often enough                ``permits``
3. how long to wait first, at the least          ``pause_before``

Attempts are counted in total, the first one included: ``max_attempts`` of 1 means that
there is no second one. Retries are counted from 1. Times are seconds.

On the wire a guidance is the ``data`` of an entry of the response::

    {"allowed": true, "strategy": "fixed",
     "after": {"value": 60, "unit": "second"}, "max_attempts": 3}

What is not said is left out, and where nothing may be tried again nothing else is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from numbers import Real
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import DefinitionError
from cmdx.retriers import exponential

if TYPE_CHECKING:
    from typing import Self

FIRST_PAUSE = 1.0
"""Seconds to wait when a strategy is given without them."""

FOREVER = 1e9
"""No pause is longer than this: clocks cannot sleep for any number of seconds."""

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
"""The units that are understood; the first two are those of the wire."""


class Strategy(StrEnum):
    """How the pauses between attempts go on."""

    IMMEDIATE = "immediate"
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class Unit(StrEnum):
    """In what a pause is written on the wire."""

    SECOND = "second"
    MINUTE = "minute"


def _strategy(strategy: str | None) -> Strategy | None:
    if strategy is None:
        return None
    if strategy in tuple(Strategy):
        return Strategy(strategy)
    known = ", ".join(Strategy)
    raise DefinitionError(f"Guidance: strategy must be {known}, got {strategy!r}.")


def _unit(unit: str) -> Unit:
    if unit in tuple(Unit):
        return Unit(unit)
    raise DefinitionError(f"Guidance: unit must be second or minute, got {unit!r}.")


@attrs.frozen
class Guidance:
    """
    Whether, when and how often something may be tried again.

    *after* is the least wait in seconds; *max_attempts* counts the first attempt too.
    *unit* is only how the wait is written on the wire.
    """

    allowed: bool
    strategy: Strategy | None = attrs.field(
        default=None, converter=_strategy, repr=lambda each: repr(each and each.value)
    )
    after: float | None = None
    max_attempts: int | None = None
    unit: Unit = attrs.field(
        default=Unit.SECOND, converter=_unit, kw_only=True, eq=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        """Refuse what could not be obeyed."""
        if not isinstance(self.allowed, bool):
            message = f"Guidance: allowed must be True or False, got {self.allowed!r}."
            raise DefinitionError(message)
        if self.after is not None and readable_seconds(self.after) is None:
            message = (
                "Guidance: after must be a finite number of seconds, 0 or more, "
                f"got {self.after!r}."
            )
            raise DefinitionError(message)
        if self.max_attempts is not None and not _is_count(self.max_attempts):
            message = (
                "Guidance: max_attempts must be a whole number, 0 or more, "
                f"got {self.max_attempts!r}."
            )
            raise DefinitionError(message)

    def permits(self, attempts: int) -> bool:
        """Tell whether there may be another attempt after so many."""
        if not self.allowed:
            return False
        return self.max_attempts is None or attempts < self.max_attempts

    def pause_before(self, retry: int, *, longest: float | None = None) -> float:
        """
        Return the seconds to wait before *retry*, counted from 1.

        Growth ends at *longest*, but nothing is shorter than ``after``.
        """
        first = FIRST_PAUSE if self.after is None else self.after
        strategy = self.strategy
        if strategy is None:
            fixed = self.after is not None
            strategy = Strategy.FIXED if fixed else Strategy.EXPONENTIAL
        if strategy is Strategy.IMMEDIATE:
            return 0.0
        if strategy is Strategy.FIXED:
            return min(first, FOREVER)
        pause: float = exponential(max(retry, 1) - 1, first)
        if longest is not None:
            pause = min(pause, max(first, longest))
        return min(pause, FOREVER)

    @classmethod
    def build(
        cls,
        *,
        allowed: bool,
        strategy: str | None = None,
        after_value: int | None = None,
        after_unit: str = "second",
        max_attempts: int | None = None,
    ) -> Self:
        """Make one of what is written on the wire."""
        unit = _unit(after_unit)
        after = None if after_value is None else after_value * SECONDS[unit]
        return cls(allowed, strategy, after, max_attempts, unit=unit)

    @classmethod
    def for_code(
        cls, code: object, *, codes: Mapping[str, Guidance] | None = None
    ) -> Guidance:
        """Return what *code* means when nobody says more; unknown codes mean no."""
        from cmdx.guidance.codes import codes as known

        table = known if codes is None else codes
        row = table.get(code) if isinstance(code, str) else None
        return NOT_AGAIN if row is None else row

    @classmethod
    def from_http(
        cls,
        status: int | None,
        headers: Any = None,
        body: Any = None,
        *,
        codes: Mapping[str, Guidance] | None = None,
    ) -> Guidance | None:
        """
        Read the answer to an HTTP request; None if it is no failure or says nothing.

        *headers* are a mapping or pairs, *body* is JSON as text, bytes or decoded.
        What says more goes first: the retry entry of a response, ``Retry-After``,
        ``RateLimit``, what a problem or a ``RetryInfo`` says, a code, the status.
        """
        from cmdx.guidance.reading import http_guidance

        return http_guidance(status, headers, body, codes=codes)

    @classmethod
    def from_wire(cls, data: object) -> Self | None:
        """
        Read the data of a retry entry, or the entry; None if it is neither.

        What does not say whether another attempt is allowed is no guidance; any other
        field that cannot be read counts as not given.
        """
        if isinstance(data, Mapping) and "urn" in data:
            data = data.get("data")
        if not isinstance(data, Mapping) or not isinstance(data.get("allowed"), bool):
            return None
        strategy, attempts = data.get("strategy"), data.get("max_attempts")
        after = data.get("after")
        minutes = isinstance(after, Mapping) and after.get("unit") == Unit.MINUTE
        return cls(
            data["allowed"],
            strategy if strategy in tuple(Strategy) else None,
            seconds_in(after),
            attempts if _is_count(attempts) else None,
            unit=Unit.MINUTE if minutes else Unit.SECOND,
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the data of a retry entry."""
        if not self.allowed:
            return {"allowed": False}
        data: dict[str, Any] = {"allowed": True}
        if self.strategy is not None:
            data["strategy"] = self.strategy.value
        if self.after is not None and self.strategy is not Strategy.IMMEDIATE:
            data["after"] = duration(self.after, self.unit)
        if self.max_attempts is not None:
            data["max_attempts"] = self.max_attempts
        return data


NOT_AGAIN = Guidance(allowed=False)


def duration(seconds: float, unit: str = Unit.SECOND) -> dict[str, Any]:
    """Write *seconds* as the wire has them: whole, rounded up, never too short."""
    if unit == Unit.MINUTE and seconds % SECONDS[unit] == 0:
        return {"value": int(seconds / SECONDS[unit]), "unit": Unit.MINUTE.value}
    return {"value": math.ceil(seconds), "unit": Unit.SECOND.value}


def seconds_in(duration: object) -> float | None:
    """Read a value with a unit, or a number of seconds; None if it is neither."""
    if not isinstance(duration, Mapping):
        return readable_seconds(duration)
    factor = SECONDS.get(str(duration.get("unit", Unit.SECOND)))
    value = readable_seconds(duration.get("value"))
    if factor is None or value is None:
        return None
    return readable_seconds(value * factor)


def readable_seconds(number: object) -> float | None:
    """Return *number* if one can wait that long, else None."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return None
    try:
        finite = 0 <= float(number) < math.inf
    except OverflowError:
        return None
    return number if finite else None  # type: ignore[return-value]


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
