"""Names, reasons and times as text in pictures."""

from __future__ import annotations

import unicodedata
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmdx.declare.gates import Gate

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
"""Not printable, but part of words in some languages and of emoji."""

TWO_DECIMALS_BELOW = 9.95
ONE_DECIMAL_BELOW = 99.5
MINUTE = 60.0
HOUR = 3600.0


def one_line(text: object) -> str:
    """Return *text* on one line; characters that are not printable are replaced."""
    line = text if isinstance(text, str) else str(text)
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() or character in JOINERS else REPLACEMENT
        for character in " ".join(line.split())
    )


def escape(text: str) -> str:
    """Return *text* escaped for use between tags and in attributes."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#39;")


def column_count(text: str) -> int:
    """Return how many columns *text* takes in a fixed-width font."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide


def truncate(text: str, most: float) -> str:
    """Return *text*, shortened to at most *most* columns."""
    if column_count(text) <= most:
        return text
    taken, room = [], most - 1
    for letter in text:
        room -= column_count(letter)
        if room < 0:
            break
        taken.append(letter)
    return f"{''.join(taken).rstrip()}…"


def class_name(task: type[Any]) -> str:
    """Return the name of a class without the functions it was defined in."""
    return one_line(task.__qualname__.rpartition("<locals>.")[2])


def callable_name(call: Gate) -> str:
    """Return the name of a callable; its ``repr`` could show values."""
    if isinstance(call, str | bool):
        return one_line(call)
    if isinstance(call, partial):
        return callable_name(call.func)
    name = getattr(call, "__qualname__", type(call).__qualname__)
    local = one_line(name.rpartition("<locals>.")[2])
    return "a lambda" if local.endswith("<lambda>") else local


def duration_text(seconds: float) -> str:
    """Return *seconds* in a fitting unit."""
    if seconds >= HOUR:
        return f"{seconds // HOUR:.0f} h {seconds % HOUR // MINUTE:02.0f} min"
    if seconds >= MINUTE - 0.05:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    if seconds >= 0.9995:  # noqa: PLR2004 -- from here on it would be 1000 ms
        return f"{seconds:.{max(_decimals(seconds), 1)}f} s"
    if seconds >= 0.0009995:  # noqa: PLR2004 -- and here 1000 µs
        return f"{seconds * 1e3:.{_decimals(seconds * 1e3)}f} ms"
    return f"{seconds * 1e6:.0f} µs"


def _decimals(number: float) -> int:
    return (number < TWO_DECIMALS_BELOW) + (number < ONE_DECIMAL_BELOW)


def quantity(number: int, one: str, many: str) -> str:
    """Return *number* with the singular or plural word."""
    return f"{number:,} {one if number == 1 else many}".replace(",", "\u202f")
