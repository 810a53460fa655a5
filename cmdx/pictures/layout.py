"""The positions of the rows and times of a timeline on the page, in pixels."""

from __future__ import annotations

from itertools import accumulate
from math import floor, log10
from typing import TYPE_CHECKING, NamedTuple

from cmdx.pictures.text import column_count, quantity

if TYPE_CHECKING:
    from cmdx.pictures.timeline import ResultRow, Span, Timeline

WIDTH = 960
MARGIN = 16
AXIS = 34
"""The height of the time axis above the rows."""
LINE = 26
"""The height of a row."""
NOTE = 15
"""The additional height of a row with a note below its bar."""
FOOT = 34
"""The height of the legend below the rows."""
TIMES = 72
"""The width of the column of durations."""
GUTTER = 40
"""The space between bars and durations, for marks and arrows."""
RIGHT = WIDTH - MARGIN - TIMES - GUTTER
"""The right end of the latest bar."""

INDENT = 16
DEEPEST_INDENT = 160
MARK = 16
"""The width of the mark before a name."""
LETTER = 7.3
"""The width of a letter of a name."""
SMALL_LETTER = 6.7
GAP = 9
"""The space between a name and the number of retries."""
NARROWEST_NAMES = 120
WIDEST_NAMES = 330
NARROWEST_BAR = 2.0

UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
MOST_LABELS = 6


class Page(NamedTuple):
    """The positions of everything on the page."""

    left: float
    """The left end of the earliest bar."""
    scale: float
    """Pixels per second."""
    indent: float
    tops: tuple[int, ...]
    notes: tuple[str, ...]
    height: int
    brief: bool

    @classmethod
    def of(cls, line: Timeline, *, brief: bool = False) -> Page:
        """Return the positions for *line*; a *brief* page has no notes."""
        deepest = max((row.depth for row in line.rows), default=0)
        indent = min(INDENT, DEEPEST_INDENT / max(deepest, 1))
        names = max((_name_width(row, indent) for row in line.rows), default=0.0)
        left = MARGIN + min(max(names, NARROWEST_NAMES), WIDEST_NAMES) + MARGIN
        scale = (RIGHT - left) / line.duration if line.duration > 0 else 0.0
        notes = tuple("" if brief else note_text(row) for row in line.rows)
        heights = (LINE + NOTE * bool(note) for note in notes)
        *tops, end = accumulate(heights, initial=AXIS)
        return cls(left, scale, indent, tuple(tops), notes, end + FOOT, brief)

    def x(self, seconds: float) -> float:
        """Return the x of a time."""
        return self.left + seconds * self.scale

    def bar(self, span: Span) -> tuple[float, float]:
        """Return the x and the width of a span, wide enough to be visible."""
        width = max(span.width * self.scale, NARROWEST_BAR)
        return min(self.x(span.start), RIGHT - width), width

    def name_x(self, row: ResultRow) -> float:
        """Return the x of the mark before a name."""
        return MARGIN + row.depth * self.indent

    def middle(self, number: int) -> float:
        """Return the y of the middle of a bar."""
        return self.tops[number] + LINE / 2

    def bottom(self, number: int) -> int:
        """Return the y of the end of a row."""
        return self.tops[number] + LINE + NOTE * bool(self.notes[number])


def _name_width(row: ResultRow, indent: float) -> float:
    name = column_count(row.name) * LETTER
    return row.depth * indent + MARK + name + small_width(retry_text(row))


def small_width(text: str) -> float:
    """Return the width of a small *text* after a name."""
    return GAP + column_count(text) * SMALL_LETTER if text else 0.0


def retry_text(row: ResultRow) -> str:
    """Return the number of retries, or no text for none."""
    return quantity(row.retries, "retry", "retries") if row.retries else ""


def note_text(row: ResultRow) -> str:
    """Return why a task ended as it did, and whether it was rolled back."""
    why = origin_text(row) or row.reason
    return " · ".join(filter(None, (why, rollback_text(row), conflict_text(row))))


def origin_text(row: ResultRow) -> str:
    """Return the task that a failure was thrown from, or no text."""
    return f"thrown from {row.origin_name}" if row.thrown else ""


def rollback_text(row: ResultRow) -> str:
    """Return whether the task was rolled back, and whether that failed."""
    if row.rollback_error is not None:
        return f"✗ rollback failed: {row.rollback_error}"
    return "rolled back" if row.rolled_back else ""


def conflict_text(row: ResultRow) -> str:
    """Return the keys that parallel steps wrote with different values, or no text."""
    return f"conflicting writes: {', '.join(row.conflicts)}" if row.conflicts else ""


def axis_labels(whole: float) -> list[tuple[float, str]]:
    """Return round times from 0 to *whole* with their labels."""
    if whole <= 0:
        return [(0.0, "0")]
    fitting = ((size, name) for size, name in UNITS if whole >= 2 * size)
    unit, name = next(fitting, UNITS[-1])
    rough = whole / unit / MOST_LABELS
    power = 10.0 ** floor(log10(rough))
    steps = (power * factor for factor in (1, 2, 5, 10))
    step = next(step for step in steps if step >= rough * 0.999)
    count = floor(whole / unit / step * 1.000001)
    times = (number * step for number in range(count + 1))
    return [(at * unit, f"{at:g} {name}" if at else "0") for at in times]
