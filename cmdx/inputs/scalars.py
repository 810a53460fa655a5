"""
The scalars: one function for each type, which converts a value or raises ``Invalid``.

Whole numbers are never rounded: ``3.9`` is refused as an ``int``, and an ``int`` that
no ``float`` equals is refused as a ``float``. Text, decimals and fractions become the
nearest ``float``, and durations are rounded to microseconds. ``"010"`` is 10.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from cmdx.inputs.errors import Invalid

Coercer: TypeAlias = Callable[[Any], Any]
T = TypeVar("T")

MOST_DIGITS = 4300
"""Python itself refuses to convert text with more digits than this."""

TRUE = frozenset({"true", "yes", "on", "y", "1", "t"})
FALSE = frozenset({"false", "no", "off", "n", "0", "f"})

WHOLE = re.compile(r"[+-]?[0-9]{1,4300}")
FRACTION = re.compile(r"[+-]?[0-9]{1,4300}(?:/[0-9]{1,4300}|\.[0-9]{1,4300})?")
DURATION = re.compile(
    r"([+-])?P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?"
)
AROUND_SIGN = re.compile(r"(?<=[0-9.]) ([+-]) (?=[0-9.j])")
CLOCK = re.compile(r"([0-9]{1,9}):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,9})?))?")


def to_str(value: Any) -> str:
    """Take text, and numbers as text."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)  # str() of an Enum would be its name
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _convert("str", str, value)
    raise Invalid("str")


def to_int(value: Any) -> int:
    """Take whole numbers, also as text or as a float without a fraction."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        if not WHOLE.fullmatch(text := value.strip()):
            raise Invalid("int")
        return int(text)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Invalid("int")
    if isinstance(value, Decimal) and not (
        value.is_finite() and value.adjusted() < MOST_DIGITS
    ):
        raise Invalid("int")
    if not math.isfinite(value) or value != int(value):
        raise Invalid("int")
    return int(value)


def to_float(value: Any) -> float:
    """Take numbers, also as text; text must be finite."""
    if type(value) is float:
        return value
    if isinstance(value, str):
        return _finite_number("float", float, value)
    if isinstance(value, bool) or not isinstance(
        value, int | float | Decimal | Fraction
    ):
        raise Invalid("float")
    number = _convert("float", float, value)
    if isinstance(value, int) and number != value:
        raise Invalid("float")  # too large to be exact
    return number


def to_bool(value: Any) -> bool:
    """Take booleans, the words for them in any case, and 0 and 1."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    word = value.strip().lower() if isinstance(value, str) else None
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Invalid("bool")


def to_decimal(value: Any) -> Decimal:
    """Take numbers, also as text; a float counts as it is printed."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Invalid("Decimal")
    text = str(value).strip() if isinstance(value, str | float) else value
    number = _convert("Decimal", Decimal, text)
    if not number.is_finite() or (isinstance(text, str) and "_" in text):
        raise Invalid("Decimal")
    return number


def to_fraction(value: Any) -> Fraction:
    """Take numbers and texts such as ``1/3`` and ``0.25``."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Invalid("Fraction")
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, str):
        text = value.strip()
        if not FRACTION.fullmatch(text):
            raise Invalid("Fraction")
        return _convert("Fraction", Fraction, text)
    number = Decimal(str(value))
    if not number.is_finite() or abs(number.adjusted()) >= MOST_DIGITS:
        raise Invalid("Fraction")
    return Fraction(number)


def to_complex(value: Any) -> complex:
    """Take numbers and texts such as ``1+2j``."""
    if isinstance(value, bool) or not isinstance(value, int | float | complex | str):
        raise Invalid("complex")
    if isinstance(value, str):
        value = AROUND_SIGN.sub(r"\1", value.strip())
        if "_" in value:
            raise Invalid("complex")
    return _convert("complex", complex, value)


def to_date(value: Any) -> date:
    """Take dates, and texts in ISO 8601."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise Invalid("date")
    return _convert("date", date.fromisoformat, value.strip())


def to_datetime(value: Any) -> datetime:
    """Take dates with time, and texts in ISO 8601."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise Invalid("datetime")
    return _convert("datetime", datetime.fromisoformat, value.strip())


def to_time(value: Any) -> time:
    """Take times of day, and texts in ISO 8601."""
    if isinstance(value, time):
        return value
    if not isinstance(value, str):
        raise Invalid("time")
    return _convert("time", time.fromisoformat, value.strip())


def to_timedelta(value: Any) -> timedelta:
    """Take durations, seconds, and texts: ``90``, ``1:30:00``, ``PT1H30M``."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Invalid("timedelta")
    if not isinstance(value, str):
        return _convert("timedelta", _duration, value)
    text = value.strip()
    if found := DURATION.fullmatch(text):
        return _convert("timedelta", _iso_duration, found)
    if found := CLOCK.fullmatch(text):
        hours, minutes, seconds = found.groups(default="0")
        total = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        return _convert("timedelta", _duration, total)
    return _convert("timedelta", _duration, _finite_number("timedelta", float, text))


def to_uuid(value: Any) -> UUID:
    """Take UUIDs and their texts."""
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str):
        raise Invalid("UUID")
    return _convert("UUID", UUID, value.strip())


def to_path(value: Any) -> Path:
    """Take paths and texts."""
    if not isinstance(value, str | PurePath) or "\0" in str(value) or value == "":
        raise Invalid("Path")
    return Path(value)


def to_bytes(value: Any) -> bytes:
    """Take bytes, and text as UTF-8."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise Invalid("bytes")
    return _convert("bytes", str.encode, value)


def as_is(value: Any) -> Any:
    """Take anything."""
    return value


SCALAR_COERCERS: dict[Any, Coercer] = {
    str: to_str,
    int: to_int,
    float: to_float,
    bool: to_bool,
    Decimal: to_decimal,
    Fraction: to_fraction,
    complex: to_complex,
    date: to_date,
    datetime: to_datetime,
    time: to_time,
    timedelta: to_timedelta,
    UUID: to_uuid,
    Path: to_path,
    PurePath: to_path,
    bytes: to_bytes,
    Any: as_is,
    object: as_is,
}

DATED = {date: "date", datetime: "datetime", time: "time"}


def strptime_coercer(kind: Any, form: str) -> Coercer:
    """Return a coercer for text in a format of ``strptime``."""
    code = DATED[kind]

    def parse(text: str) -> datetime:
        return datetime.strptime(text, form)  # noqa: DTZ007 -- the format decides

    def coerce(value: Any) -> Any:
        if not isinstance(value, str):
            return SCALAR_COERCERS[kind](value)
        moment = _convert(code, parse, value.strip())
        return {date: datetime.date, time: datetime.timetz}.get(kind, as_is)(moment)

    return coerce


def _convert(code: str, make: Callable[[Any], T], value: Any) -> T:
    try:
        return make(value)
    except (ValueError, TypeError, ArithmeticError, InvalidOperation):
        raise Invalid(code) from None


def _finite_number(code: str, make: Callable[[Any], float], text: str) -> float:
    number = _convert(code, make, text)
    if not math.isfinite(number) or "_" in text:
        raise Invalid(code)
    return number


def _duration(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _iso_duration(found: re.Match[str]) -> timedelta:
    sign, weeks, days, hours, minutes, seconds = found.groups()
    if found.group(0).rstrip("PT+-") == "" or found.group(0).endswith("T"):
        raise ValueError
    duration = timedelta(
        weeks=int(weeks or 0),
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=float(seconds or 0),
    )
    return -duration if sign == "-" else duration
