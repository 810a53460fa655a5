"""
The ``Guidance`` value, and what it permits.

1. ``allowed``: whether a retry is allowed at all
2. ``permits``: whether another attempt is allowed after the attempts so far
3. ``pause_before``: the shortest pause before it

``max_attempts`` counts all attempts, including the first: 1 means no retry. Retries are
counted from 1. Times are seconds.

In a response, guidance is the ``data`` of an extension entry::

    {"allowed": true, "strategy": "fixed",
     "after": {"value": 60, "unit": "second"}, "max_attempts": 3}

Fields that are not set are left out. ``{"allowed": false}`` has no other field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from numbers import Real
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import DefinitionError
from cmdx.declare.checks import check_count, check_seconds, finite_number
from cmdx.retry.strategies import exponential

if TYPE_CHECKING:
    from typing import Self

FIRST_PAUSE = 1.0
"""Seconds before the first retry when a strategy is given without ``after``."""

LONGEST_WAIT = 3600.0
"""The longest wait in seconds for a server where no ``max_delay`` is set: one hour."""

LONGEST_PAUSE = 1e9
"""The upper limit of finite pauses; clocks cannot sleep arbitrarily long."""

LARGEST_FLOAT = math.nextafter(math.inf, 0)

SECONDS_PER_UNIT = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
"""The units that are read; only the first two are written."""


class Strategy(StrEnum):
    """How the pauses between attempts change."""

    IMMEDIATE = "immediate"
    """No pause."""
    FIXED = "fixed"
    """The same pause each time."""
    EXPONENTIAL = "exponential"
    """Twice the pause each time."""


class Unit(StrEnum):
    """The unit in which a pause is written in a response."""

    SECOND = "second"
    """Seconds."""
    MINUTE = "minute"
    """Minutes."""


def _as_strategy(strategy: str | None) -> Strategy | None:
    if strategy is None:
        return None
    if strategy in tuple(Strategy):
        return Strategy(strategy)
    known = ", ".join(Strategy)
    raise DefinitionError(f"Guidance: strategy must be {known}, got {strategy!r}.")


def _as_unit(unit: str) -> Unit:
    if unit in tuple(Unit):
        return Unit(unit)
    raise DefinitionError(f"Guidance: unit must be second or minute, got {unit!r}.")


def _as_after(after: object) -> float | None:
    if after is None:
        return None
    seconds = readable_seconds(after)
    return check_seconds("Guidance", "after", after) if seconds is None else seconds


@attrs.frozen
class Guidance:
    """
    Whether, when and how often something may be retried.

    Args:
        allowed: Whether another attempt is allowed.
        strategy: ``"immediate"``, ``"fixed"`` or ``"exponential"``.
        after: The shortest pause in seconds, infinite if it is too large to read.
        max_attempts: The number of attempts in total, including the first.
        unit: ``"second"`` or ``"minute"``: how the pause is written in a response.
    """

    allowed: bool
    strategy: Strategy | None = attrs.field(
        default=None,
        converter=_as_strategy,
        repr=lambda strategy: repr(strategy and strategy.value),
    )
    after: float | None = attrs.field(default=None, converter=_as_after)
    max_attempts: int | None = None
    unit: Unit = attrs.field(
        default=Unit.SECOND, converter=_as_unit, kw_only=True, eq=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.allowed, bool):
            message = f"Guidance: allowed must be True or False, got {self.allowed!r}."
            raise DefinitionError(message)
        if self.max_attempts is not None:
            check_count("Guidance", "max_attempts", self.max_attempts, least=0)

    def permits(self, attempts: int) -> bool:
        """Tell whether another attempt is allowed after *attempts* attempts."""
        if not self.allowed:
            return False
        return self.max_attempts is None or attempts < self.max_attempts

    def pause_before(self, retry: int, *, longest: float | None = None) -> float:
        """
        Return the seconds to wait before a retry.

        No pause is shorter than ``after``. The pause is infinite if ``after`` is: then
        there should be no retry.

        Args:
            retry: The number of the retry, counted from 1.
            longest: The seconds at which exponential growth ends.
        """
        first = FIRST_PAUSE if self.after is None else self.after
        strategy = self.strategy
        if strategy is None:
            fixed = self.after is not None
            strategy = Strategy.FIXED if fixed else Strategy.EXPONENTIAL
        if strategy is Strategy.IMMEDIATE:
            return 0.0
        if first == math.inf:
            return first
        if strategy is Strategy.FIXED:
            return min(first, LONGEST_PAUSE)
        pause: float = exponential(max(retry, 1) - 1, first)
        if longest is not None:
            pause = min(pause, max(first, longest))
        return min(pause, LONGEST_PAUSE)

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
        """
        Make guidance from the fields of a retry entry.

        Args:
            allowed: Whether another attempt is allowed.
            strategy: ``"immediate"``, ``"fixed"`` or ``"exponential"``.
            after_value: The shortest pause, in units.
            after_unit: ``"second"`` or ``"minute"``.
            max_attempts: The number of attempts in total, including the first.
        """
        unit = _as_unit(after_unit)
        after = None if after_value is None else after_value * SECONDS_PER_UNIT[unit]
        return cls(allowed, strategy, after, max_attempts, unit=unit)

    @classmethod
    def for_code(
        cls, code: object, *, codes: Mapping[str, Guidance] | None = None
    ) -> Guidance:
        """
        Return the guidance for a code; codes that are not listed forbid a retry.

        Args:
            code: The code; anything that is not text forbids a retry.
            codes: A table to use instead of ``cmdx.guidance.codes``.
        """
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
        by_status: bool = False,
    ) -> Guidance | None:
        """
        Read an HTTP response; None if it is not an error, or has no guidance.

        The first of these that is found counts: the retry entry of a Forrst response,
        ``Retry-After``, ``RateLimit``, a wait in the body, a code in the body.

        Args:
            status: The HTTP status.
            headers: A mapping or pairs.
            body: JSON, as text, bytes or decoded.
            codes: A table to use instead of ``cmdx.guidance.codes``.
            by_status: Whether a status alone is read as the code it corresponds to;
                otherwise it says nothing about retrying.
        """
        from cmdx.guidance.parse import http_guidance

        return http_guidance(status, headers, body, codes=codes, by_status=by_status)

    @classmethod
    def from_wire(cls, data: object) -> Self | None:
        """
        Read a retry entry or its data; None if *data* is neither.

        Data must have a readable ``allowed``. Any other field that cannot be read
        counts as not given.
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
            seconds_from_wire(after),
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
            data["after"] = wire_duration(self.after, self.unit)
        if self.max_attempts is not None:
            data["max_attempts"] = self.max_attempts
        return data


NOT_AGAIN = Guidance(allowed=False)


def seconds_before_retry(guidance: Guidance | None) -> int:
    """Return the value of ``Retry-After``: whole seconds, rounded up; 0 for none."""
    if guidance is None or not guidance.allowed:
        return 0
    return math.ceil(min(guidance.pause_before(1), LONGEST_PAUSE))


def wire_duration(seconds: float, unit: str = Unit.SECOND) -> dict[str, Any]:
    """Return *seconds* as a response writes them: a whole number, rounded up."""
    seconds = min(seconds, LONGEST_PAUSE)
    if unit == Unit.MINUTE and seconds % SECONDS_PER_UNIT[unit] == 0:
        value = int(seconds / SECONDS_PER_UNIT[unit])
        return {"value": value, "unit": Unit.MINUTE.value}
    return {"value": math.ceil(seconds), "unit": Unit.SECOND.value}


def seconds_from_wire(duration: object) -> float | None:
    """Return the seconds of a value with a unit, or of a number; None for neither."""
    if not isinstance(duration, Mapping):
        return readable_seconds(duration)
    factor = SECONDS_PER_UNIT.get(str(duration.get("unit", Unit.SECOND)))
    value = readable_seconds(duration.get("value"))
    if factor is None or value is None:
        return None
    return readable_seconds(value * factor)


def readable_seconds(value: object) -> float | None:
    """Return *value* as seconds, infinite if it is too large; None if not seconds."""
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return None
    if _is_too_large(value):
        return math.inf
    number = finite_number(value)
    return None if number is None or number < 0 else number


def _is_too_large(number: Any) -> bool:
    try:
        return bool(number > LARGEST_FLOAT)
    except ArithmeticError:  # of a Decimal that is not a number
        return False


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
