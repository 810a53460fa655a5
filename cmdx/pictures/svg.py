"""
The timeline of a chain as a drawing.

One bar per task, names on the left, durations on the right. A tick marks the start of
an attempt, hatching a pause, a frame what ran at the same time, an arrow where a
failure was thrown from.
"""

from __future__ import annotations

from itertools import accumulate
from math import floor, log10
from typing import TYPE_CHECKING, NamedTuple

from cmdx.outcome import Status
from cmdx.pictures.theme import MARKS, MONOSPACE, SANS, style
from cmdx.pictures.timeline import timeline
from cmdx.pictures.words import columns, counted, cut, duration, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cmdx.chain import Chain
    from cmdx.pictures.timeline import Lanes, Row, Span, Timeline

WIDTH = 960
MARGIN = 16
AXIS = 34
"""The height above the rows, for the scale."""
LINE = 26
"""The height of a row."""
NOTE = 15
"""What a row is higher by when a note stands below its bar."""
FOOT = 34
BAR = 12
THIN_BAR = 6
"""The height of the bar of a task that ran others."""
GUTTER = 40
"""Room between the bars and the durations, for marks and arrows."""
TIMES = 72
INDENT = 16
DEEPEST_INDENT = 160
LETTER = 7.3
"""The width of a letter of a name."""
SMALL_LETTER = 6.7
NARROWEST_NAMES = 120
WIDEST_NAMES = 330
NARROWEST_BAR = 2.0
APART = 1.5
"""Marks closer than this cannot be told apart, and are drawn once."""
TOO_NARROW = 0.3
"""Stretches of time narrower than this are not drawn."""
MARK = 16
"""Room for the mark before a name."""
RIGHT = WIDTH - MARGIN - TIMES - GUTTER
"""Where the latest bar ends."""
SWATCH = 'width="12" height="10" y="-9"'
UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
MOST_TICKS = 6
MOST_IN_NOTEBOOK = 200

SHAPES = (
    f"text{{font:12px {SANS};font-variant-numeric:tabular-nums}}",
    f".name{{font:12px {MONOSPACE}}}",
    ".note,.axis text,.legend text,.retries{font-size:11px}",
    ".time,.end{text-anchor:end}",
    ".axis text{text-anchor:middle}",
    ".mark{font-weight:700}",
    ".grid,.branch,.origin,.tick,.hatch,.undo,.lanes path{fill:none}",
    ".tick,.origin,.undo{stroke-width:1.5}",
    ".hatch{stroke-width:2}",
    ".lanes path{stroke-width:2}",
    ".lanes rect{fill-opacity:.09}",
    ".row.away{opacity:.12}",
)
COLOURS = (
    ".card{fill:card;stroke:line}",
    "text{fill:text}",
    ".time,.note,.axis text,.legend text,.retries{fill:dim}",
    ".grid{stroke:line}",
    ".branch{stroke:branch}",
    ".success .bar,.swatch.success{fill:success}",
    ".skipped .bar,.swatch.skipped{fill:skipped}",
    ".failed .bar,.error,.swatch.failed{fill:failed}",
    ".success .mark{fill:success-text}",
    ".skipped .mark,.skipped .note{fill:skipped-text}",
    ".failed .mark,.failed .note{fill:failed-text}",
    ".gap{fill:card}",
    ".hatch{stroke:pause}",
    ".tick{stroke:text}",
    ".lanes rect{fill:accent}",
    ".lanes path{stroke:accent}",
    ".origin{stroke:failed}",
    ".head{fill:failed}",
    ".undo{stroke:accent-text}",
)
STYLE = style(".cmdx-timeline", SHAPES, COLOURS)


def chain_svg(chain: Chain) -> str:
    """Return the timeline of *chain* as an SVG document."""
    return drawn(timeline(chain), chain.id)


def chain_notebook(chain: Chain) -> str:
    """Return the beginning of the timeline of *chain*, to be shown in a notebook."""
    whole = timeline(chain)
    drawing = drawn(whole.clipped(MOST_IN_NOTEBOOK), chain.id)
    left = len(whole.rows) - MOST_IN_NOTEBOOK
    more = f"<p>{counted(left, 'row', 'rows')} more: use chain.to_html().</p>"
    return f'<div style="overflow-x:auto">{drawing}</div>{more if left > 0 else ""}'


def drawn(line: Timeline, name: str, *, brief: bool = False) -> str:
    """
    Return *line* as an SVG document; *name* keeps its ids apart from others'.

    A *brief* one says nothing but names and durations.
    """
    page = Page.of(line, brief=brief)
    hatch = f"cmdx-pause-{name[-12:]}"
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cmdx-timeline" role="img" '
        f'width="{WIDTH}" height="{page.height}" '
        f'viewBox="0 0 {WIDTH} {page.height}">',
        f"<title>{escaped(headline(line))}</title>",
        f"<style>{STYLE}</style>",
        _hatching(hatch),
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" '
        f'height="{page.height - 1}" rx="8"/>',
        _axis(page, line.duration),
        _lanes(page, line.lanes),
        _branches(page, line.rows),
        *(_row(page, number, row, hatch) for number, row in enumerate(line.rows)),
        _origins(page, line.rows),
        _legend(page, line, hatch),
        "</svg>",
    )
    return "\n".join(filter(None, parts))


def headline(line: Timeline) -> str:
    """Say in a few words what the chain came to."""
    if not line.rows:
        return "nothing has ended yet"
    top = line.rows[0]
    results = counted(len(line.rows), "result", "results")
    return f"{top.name}: {top.status} after {duration(line.duration)}, {results}"


# -- where things are ----------------------------------------------------------------


class Page(NamedTuple):
    """Where on the page rows and times are, in pixels."""

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
    def of(cls, line: Timeline, *, brief: bool) -> Page:
        """Make room for the names, the notes and the bars of *line*."""
        deepest = max((row.depth for row in line.rows), default=0)
        indent = min(INDENT, DEEPEST_INDENT / max(deepest, 1))
        names = max((_name_width(row, indent) for row in line.rows), default=0)
        left = MARGIN + min(max(names, NARROWEST_NAMES), WIDEST_NAMES) + MARGIN
        notes = tuple("" if brief else note_of(row) for row in line.rows)
        heights = (LINE + NOTE * bool(note) for note in notes)
        *tops, end = accumulate(heights, initial=AXIS)
        room = RIGHT - left
        scale = room / line.duration if line.duration > 0 else 0.0
        return cls(left, scale, indent, tuple(tops), notes, end + FOOT, brief)

    def x(self, seconds: float) -> float:
        """Return where a time is."""
        return self.left + seconds * self.scale

    def bar(self, span: Span) -> tuple[float, float]:
        """Return where a stretch of time is, wide enough to be seen."""
        width = max(span.width * self.scale, NARROWEST_BAR)
        return min(self.x(span.start), RIGHT - width), width

    def middle(self, row: int) -> float:
        """Return the height at which the bar of a row is."""
        return self.tops[row] + LINE / 2

    def bottom(self, row: int) -> int:
        """Return where a row ends."""
        return self.tops[row] + LINE + NOTE * bool(self.notes[row])


def _name_width(row: Row, indent: float) -> float:
    small = columns(_retries(row)) * SMALL_LETTER
    return row.depth * indent + MARK + columns(row.name) * LETTER + small


def _retries(row: Row) -> str:
    return f"  {counted(row.retries, 'retry', 'retries')}" if row.retries else ""


def note_of(row: Row) -> str:
    """Say why it ended as it did, and what was undone."""
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


# -- rows ----------------------------------------------------------------------------


def _row(page: Page, number: int, row: Row, hatch: str) -> str:
    left, width = page.bar(row.bar)
    high = BAR if row.last == number else THIN_BAR
    top = (LINE - high) // 2
    parts = (
        f'<g class="row {row.status}" transform="translate(0 {page.tops[number]})">',
        "" if page.brief else _tooltip(row),
        _name(page, row),
        f'<rect class="bar" x="{left:.5g}" y="{top}" width="{width:.5g}" '
        f'height="{high}" rx="2"/>',
        _attempts(page, row, top, high, hatch) if row.ticks else "",
        _undo(left + width) if row.rolled_back else "",
        f'<text class="time" x="{WIDTH - MARGIN}" y="17">{duration(row.bar.width)}'
        "</text>",
        _note(page, page.notes[number], left, width) if page.notes[number] else "",
        "</g>",
    )
    return "".join(parts)


def _tooltip(row: Row) -> str:
    words = (f"{row.name}, from {duration(row.bar.start)}", row.reason)
    return f"<title>{escaped(': '.join(filter(None, words)))}</title>"


def _name(page: Page, row: Row) -> str:
    x = MARGIN + row.depth * page.indent
    retries = _retries(row)
    room = page.left - MARGIN - x - MARK - columns(retries) * SMALL_LETTER
    name = escaped(cut(row.name, max(room / LETTER, 4)))
    if retries:
        name += f'<tspan class="retries" xml:space="preserve">{retries}</tspan>'
    return (
        f'<text class="name" x="{x:.5g}" y="17">'
        f'<tspan class="mark">{MARKS[row.status]}</tspan> {name}</text>'
    )


def _attempts(page: Page, row: Row, top: int, high: int, hatch: str) -> str:
    """Draw what failed, what was waited, and a tick where each attempt began."""
    failed = [each.span for each in row.ticks if each.error]
    errors = _boxes(page, failed, top, high) if row.status != Status.FAILED else ""
    pauses = _boxes(page, row.pauses, top, high)
    starts = _apart(page.x(each.span.start) for each in row.ticks)
    ticks = "".join(f"M{x:.5g} {top - 3}v{high + 6}" for x in starts)
    return (
        (f'<path class="error" d="{errors}"/>' if errors else "")
        + (f'<path class="pause" fill="url(#{hatch})" d="{pauses}"/>' if pauses else "")
        + f'<path class="tick" d="{ticks}"/>'
    )


def _boxes(page: Page, spans: Iterable[Span], top: int, high: int) -> str:
    boxes = ((page.x(span.start), span.width * page.scale) for span in spans)
    return "".join(
        f"M{x:.5g} {top}h{width:.5g}v{high}h-{width:.5g}z"
        for x, width in boxes
        if width >= TOO_NARROW
    )


def _apart(places: Iterable[float]) -> Iterator[float]:
    before = float("-inf")
    for x in places:
        if x - before >= APART:
            yield x
            before = x


def _undo(x: float) -> str:
    """Draw an arrow that turns back, after the end of a bar."""
    return (
        f'<path class="undo" d="M{x + 13:.5g} 17a5 5 0 1 0-9-4m-2.5-3l2.5 3.5 3.5-2"/>'
    )


def _note(page: Page, note: str, left: float, width: float) -> str:
    """Write *note* below a bar, to the right if it fits or there is more room."""
    right = left + width
    room_right, room_left = WIDTH - MARGIN - left, right - page.left
    needed = columns(note) * SMALL_LETTER
    rightwards = needed <= room_right or room_right >= room_left
    room = room_right if rightwards else room_left
    text = escaped(cut(note, room / SMALL_LETTER))
    if rightwards:
        return f'<text class="note" x="{left:.5g}" y="{LINE + 7}">{text}</text>'
    return f'<text class="note end" x="{right:.5g}" y="{LINE + 7}">{text}</text>'


# -- what is between rows ------------------------------------------------------------


def _hatching(name: str) -> str:
    return (
        f'<defs><pattern id="{name}" width="5" height="5" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect class="gap" width="5" height="5"/><path class="hatch" d="M1 0v5"/>'
        "</pattern></defs>"
    )


def _axis(page: Page, whole: float) -> str:
    """Draw the scale: a line and a label at round times."""
    ticks = scale_of(whole) if page.tops else []
    bottom = page.height - FOOT
    lines = "".join(f"M{page.x(at):.5g} {AXIS - 6}V{bottom}" for at, _ in ticks)
    labels = "".join(
        f'<text x="{page.x(at):.5g}" y="{AXIS - 14}">{label}</text>'
        for at, label in ticks
    )
    return f'<g class="axis"><path class="grid" d="{lines}"/>{labels}</g>'


def scale_of(whole: float) -> list[tuple[float, str]]:
    """Return round times from 0 to *whole*, and how they are written."""
    if whole <= 0:
        return [(0.0, "0")]
    unit, name = next(
        (unit, name)
        for unit, name in UNITS
        if whole >= 2 * unit or unit == UNITS[-1][0]
    )
    rough = whole / unit / MOST_TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * 0.999)
    count = floor(whole / unit / step * 1.000001)
    times = [(number * step) for number in range(count + 1)]
    return [(at * unit, f"{at:g} {name}" if at else "0") for at in times]


def _lanes(page: Page, lanes: Sequence[Lanes]) -> str:
    """Draw a frame around what ran at the same time, and a bracket beside it."""
    return "".join(_lane(page, each) for each in lanes)


def _lane(page: Page, each: Lanes) -> str:
    left, width = page.bar(each.span)
    top = page.tops[each.first] + 2
    bottom = page.bottom(each.last) - 2
    bracket = page.left - 5
    return (
        f'<g class="lanes"><title>{each.count} at the same time</title>'
        f'<rect x="{left:.5g}" y="{top}" width="{width:.5g}" height="{bottom - top}"/>'
        f'<path d="M{bracket:.5g} {top}h-4V{bottom}h4"/></g>'
    )


def _branches(page: Page, rows: Sequence[Row]) -> str:
    """Draw the lines of the tree: down from each parent, and across to its children."""
    across: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        if row.parent is not None:
            across.setdefault(row.parent, []).append(number)
    lines = []
    for parent, children in across.items():
        x = MARGIN + rows[parent].depth * page.indent + 3.5
        reach = max(page.indent - 6, 2)
        lines.append(f"M{x:.5g} {page.tops[parent] + 21}V{page.middle(children[-1]):g}")
        lines += [f"M{x:.5g} {page.middle(each):g}h{reach:.3g}" for each in children]
    return f'<path class="branch" d="{"".join(lines)}"/>' if lines else ""


def _origins(page: Page, rows: Sequence[Row]) -> str:
    """Draw an arrow from each thrown failure to where it came from."""
    return "".join(
        _arrow(page, rows, number, row.origin)
        for number, row in enumerate(rows)
        if row.thrown and row.origin is not None
    )


def _arrow(page: Page, rows: Sequence[Row], thrower: int, origin: int) -> str:
    start, end = _bar_end(page, rows[thrower]), _bar_end(page, rows[origin])
    x = max(start, end + 5) + 8
    tip = page.middle(origin)
    return (
        f'<path class="origin" d="M{start:.5g} {page.middle(thrower):g}H{x:.5g}'
        f'V{tip:g}H{end + 4:.5g}"/>'
        f'<path class="head" d="M{end:.5g} {tip:g}l6-3.5v7z"/>'
    )


def _bar_end(page: Page, row: Row) -> float:
    left, width = page.bar(row.bar)
    return left + width + (18 if row.rolled_back else 3)


# -- the legend ----------------------------------------------------------------------


def _legend(page: Page, line: Timeline, hatch: str) -> str:
    """Explain what is in the picture, and nothing else."""
    x, parts = float(MARGIN), []
    for word, shape in _explained(line, hatch):
        parts.append(f'<g transform="translate({x:.5g} 0)">{shape}')
        parts.append(f'<text x="18">{word}</text></g>')
        x += 18 + len(word) * SMALL_LETTER + 16
    shift = f"translate(0 {page.height - 13})"
    return f'<g class="legend" transform="{shift}">{"".join(parts)}</g>'


def _explained(line: Timeline, hatch: str) -> Iterator[tuple[str, str]]:
    rows = line.rows
    there = {row.status for row in rows}
    for status in Status:
        if status in there:
            yield status.value, f'<rect class="swatch {status}" {SWATCH} rx="2"/>'
    if any(row.ticks for row in rows):
        yield "attempt", '<path class="tick" d="M6-11V3"/>'
    if any(row.pauses for row in rows):
        yield "pause", f'<rect class="swatch" {SWATCH} fill="url(#{hatch})"/>'
    if line.lanes:
        yield "at the same time", '<g class="lanes"><path d="M8-10h-4V2h4"/></g>'
    if any(row.origin is not None for row in rows):
        yield (
            "thrown from",
            '<path class="origin" d="M12-9V-4H5"/><path class="head" d="M0-4l6-3.5v7z"/>',
        )
    if any(row.rolled_back for row in rows):
        yield "rolled back", f'<g transform="translate(-2 -17)">{_undo(0)}</g>'
