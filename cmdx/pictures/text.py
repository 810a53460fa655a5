"""Names and reasons as text in pictures."""

from __future__ import annotations

import unicodedata
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmdx.declare.gates import Gate

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
"""Not printable, but part of words in some languages and of emoji."""


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


def quantity(number: int, one: str, many: str) -> str:
    """Return *number* with the singular or plural word."""
    return f"{number:,} {one if number == 1 else many}".replace(",", "\u202f")
