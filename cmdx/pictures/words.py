"""Names, reasons and times as they are written into pictures."""

from __future__ import annotations

import unicodedata
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmdx.gates import Gate

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
"""Invisible, but words and emoji are spelt with them."""

SHORT = 9.95
LONG = 99.5
MINUTE = 60.0
HOUR = 3600.0


def plain(text: object) -> str:
    """Return *text* on one line, without what a document may not contain."""
    line = text if isinstance(text, str) else str(text)
    if line.isprintable():
        return line
    return "".join(
        each if each.isprintable() or each in JOINERS else REPLACEMENT
        for each in " ".join(line.split())
    )


def escaped(text: str) -> str:
    """Return *text* as it is written between tags and in attributes."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#39;")


def columns(text: str) -> int:
    """Return how many columns *text* takes in a fixed-width font."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def cut(text: str, most: float) -> str:
    """Return *text*, cut off where it gets wider than *most* columns."""
    if columns(text) <= most:
        return text
    taken, room = [], most - 1
    for each in text:
        room -= columns(each)
        if room < 0:
            break
        taken.append(each)
    return f"{''.join(taken).rstrip()}…"


def name_of(task: type[Any]) -> str:
    """Return the name of *task* without the functions it was defined in."""
    return plain(task.__qualname__.rpartition("<locals>.")[2])


def name_of_call(call: Gate) -> str:
    """Return the name of what is called; never its ``repr``, which tells too much."""
    if isinstance(call, str | bool):
        return plain(call)
    if isinstance(call, partial):
        return name_of_call(call.func)
    name = getattr(call, "__qualname__", type(call).__qualname__)
    local = plain(name.rpartition("<locals>.")[2])
    return "a lambda" if local.endswith("<lambda>") else local


def duration(seconds: float) -> str:
    """Return *seconds* with a unit that suits them."""
    if seconds >= HOUR:
        return f"{seconds // HOUR:.0f} h {seconds % HOUR // MINUTE:02.0f} min"
    if seconds >= MINUTE - 0.05:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    if seconds >= 0.9995:  # noqa: PLR2004 -- from here on it would be 1000 ms
        return f"{seconds:.2f} s" if seconds < SHORT else f"{seconds:.1f} s"
    if seconds >= 0.0009995:  # noqa: PLR2004 -- and here 1000 µs
        digits = (seconds * 1e3 < SHORT) + (seconds * 1e3 < LONG)
        return f"{seconds * 1e3:.{digits}f} ms"
    return f"{seconds * 1e6:.0f} µs"


def counted(number: int, one: str, many: str) -> str:
    """Return *number* and the word for so many."""
    return f"{number:,} {one if number == 1 else many}".replace(",", "\u202f")
