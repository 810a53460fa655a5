"""Where on the page the rows and times of a timeline are, in pixels."""

from __future__ import annotations

from itertools import accumulate
from math import floor, log10
from typing import TYPE_CHECKING, NamedTuple

from cmdx.pictures.words import columns, counted

if TYPE_CHECKING:
    from cmdx.pictures.timeline import Row, Span, Timeline

WIDTH = 960
MARGIN = 16
AXIS = 34
"""The height above the rows, for the scale."""
LINE = 26
"""The height of a row."""
NOTE = 15
"""What a row is higher by when a note stands below its bar."""
FOOT = 34
"""The height below the rows, for the legend."""
TIMES = 72
"""Room for the durations."""
GUTTER = 40
"""Room between bars and durations, for marks and arrows."""
RIGHT = WIDTH - MARGIN - TIMES - GUTTER
"""Where the latest bar ends."""

INDENT = 16
DEEPEST_INDENT = 160
MARK = 16
"""Room for the mark before a name."""
LETTER = 7.3
"""The width of a letter of a name."""
SMALL_LETTER = 6.7
GAP = 9
"""Room between a name and what follows it."""
NARROWEST_NAMES = 120
WIDEST_NAMES = 330
NARROWEST_BAR = 2.0

UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
MOST_LABELS = 6


class Page(NamedTuple):
    """Where everything is."""

    left: float
    """Where the earliest bar begins."""
    scale: float
    """Pixels per second."""
    indent: float
    tops: tuple[int, ...]
    notes: tuple[str, ...]
    height: int
    brief: bool

    @classmethod
    def of(cls, line: Timeline, *, brief: bool = False) -> Page:
        """Make room for the names, the notes and the bars of *line*."""
        deepest = max((row.depth for row in line.rows), default=0)
        indent = min(INDENT, DEEPEST_INDENT / max(deepest, 1))
        names = max((_name_width(row, indent) for row in line.rows), default=0.0)
        left = MARGIN + min(max(names, NARROWEST_NAMES), WIDEST_NAMES) + MARGIN
        scale = (RIGHT - left) / line.duration if line.duration > 0 else 0.0
        notes = tuple("" if brief else note_of(row) for row in line.rows)
        heights = (LINE + NOTE * bool(note) for note in notes)
        *tops, end = accumulate(heights, initial=AXIS)
        return cls(left, scale, indent, tuple(tops), notes, end + FOOT, brief)

    def x(self, seconds: float) -> float:
        """Return where a time is."""
        return self.left + seconds * self.scale

    def bar(self, span: Span) -> tuple[float, float]:
        """Return where a stretch of time begins and its width, enough to be seen."""
        width = max(span.width * self.scale, NARROWEST_BAR)
        return min(self.x(span.start), RIGHT - width), width

    def name_x(self, row: Row) -> float:
        """Return where the mark before a name is."""
        return MARGIN + row.depth * self.indent

    def middle(self, number: int) -> float:
        """Return the height at which the bar of a row is."""
        return self.tops[number] + LINE / 2

    def bottom(self, number: int) -> int:
        """Return where a row ends."""
        return self.tops[number] + LINE + NOTE * bool(self.notes[number])


def _name_width(row: Row, indent: float) -> float:
    name = columns(row.name) * LETTER
    return row.depth * indent + MARK + name + small_width(retries_of(row))


def small_width(text: str) -> float:
    """Return the room that *text* takes after a name."""
    return GAP + columns(text) * SMALL_LETTER if text else 0.0


def retries_of(row: Row) -> str:
    """Say how often a task was tried again, if it was."""
    return counted(row.retries, "retry", "retries") if row.retries else ""


def note_of(row: Row) -> str:
    """Say why a task ended as it did, and whether it was undone."""
    why = thrown_from(row) or row.reason
    return " · ".join(filter(None, (why, undone(row))))


def thrown_from(row: Row) -> str:
    """Say where a failure was thrown from, if it was."""
    return f"thrown from {row.origin_name}" if row.thrown else ""


def undone(row: Row) -> str:
    """Say whether the task was rolled back, and whether that went well."""
    if not row.rolled_back:
        return ""
    error = row.rollback_error
    return f"rolled back, but that raised {error}" if error else "rolled back"


def labels_of(whole: float) -> list[tuple[float, str]]:
    """Return round times from 0 to *whole*, and how they are written."""
    if whole <= 0:
        return [(0.0, "0")]
    unit, name = next((each for each in UNITS if whole >= 2 * each[0]), UNITS[-1])
    rough = whole / unit / MOST_LABELS
    power = 10.0 ** floor(log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * 0.999)
    count = floor(whole / unit / step * 1.000001)
    times = (number * step for number in range(count + 1))
    return [(at * unit, f"{at:g} {name}" if at else "0") for at in times]
