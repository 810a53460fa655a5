"""
The timeline of a chain as an SVG document.

There is one bar per task, with its name on the left and its duration on the right. A
tick marks the start of an attempt, hatching a pause, a bracket and a shade tasks that
ran at the same time, an arrow the task that a failure was thrown from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmdx.outcome import Status
from cmdx.pictures.layout import (
    AXIS,
    FOOT,
    GAP,
    LETTER,
    LINE,
    MARGIN,
    MARK,
    SMALL_LETTER,
    WIDTH,
    Page,
    axis_labels,
    retry_text,
    rollback_text,
    small_width,
)
from cmdx.pictures.text import column_count, escape, quantity, truncate
from cmdx.pictures.theme import MARKS, MONOSPACE, SANS, style_sheet
from cmdx.pictures.timeline import timeline
from cmdx.report import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cmdx.chain import Chain
    from cmdx.pictures.timeline import Lanes, ResultRow, Span, Timeline

BAR = 12
THIN_BAR = 6
"""The height of the bar of a task that ran others."""
CLOSEST_TICKS = 1.5
"""Ticks closer than this are drawn as one."""
TOO_NARROW = 0.3
"""Spans narrower than this are not drawn."""
SHORTEST_NAME = 4
SWATCH = 'width="12" height="10" y="-9"'
HEAD = "l6-3.5v7z"
MOST_IN_NOTEBOOK = 200

SHAPES = (
    f"text{{font:12px {SANS};font-variant-numeric:tabular-nums}}",
    f".name{{font:12px {MONOSPACE}}}",
    ".note,.axis text,.legend text,.retries{font-size:11px}",
    ".time{text-anchor:end}",
    ".axis text{text-anchor:middle}",
    ".mark{font-weight:700}",
    ".grid,.branch,.origin,.tick,.hatch,.undo,.lanes path{fill:none}",
    ".tick,.origin,.undo{stroke-width:1.5}",
    ".hatch,.lanes path{stroke-width:2}",
    ".lanes rect{fill-opacity:.07}",
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
    ".failed .bar,.error,.swatch.failed,.head{fill:failed}",
    ".success .mark{fill:success-text}",
    ".skipped .mark,.skipped .note{fill:skipped-text}",
    ".failed .mark,.failed .note{fill:failed-text}",
    ".gap{fill:card}",
    ".hatch{stroke:pause}",
    ".tick{stroke:text}",
    ".lanes rect{fill:accent}",
    ".lanes path{stroke:accent}",
    ".origin{stroke:failed}",
    ".undo{stroke:accent-text}",
    ".undo.rollback-failed{stroke:failed}",
    ".note.rollback-failed{fill:failed-text}",
)
STYLE = style_sheet(".cmdx-timeline", SHAPES, COLOURS)


def chain_svg(chain: Chain) -> str:
    """Return the timeline of *chain* as an SVG document."""
    return timeline_svg(timeline(chain), chain.id)


def chain_notebook(chain: Chain) -> str:
    """Return the first rows of the timeline of *chain* as HTML for a notebook."""
    whole = timeline(chain)
    drawing = timeline_svg(whole.first_rows(MOST_IN_NOTEBOOK), chain.id)
    left = len(whole.rows) - MOST_IN_NOTEBOOK
    more = f"<p>and {quantity(left, 'row', 'rows')} more: see chain.to_html()</p>"
    return f'<div style="overflow-x:auto">{drawing}</div>{more if left > 0 else ""}'


def timeline_svg(line: Timeline, name: str, *, brief: bool = False) -> str:
    """
    Return *line* as an SVG document; *name* makes its ids unique on a page.

    With *brief* it has only names, bars and durations.
    """
    page = Page.of(line, brief=brief)
    crossings = _arrow_crossings(page, line.rows)
    hatch = f"cmdx-pause-{name[-12:]}"
    card = _box_attributes(0.5, 0.5, WIDTH - 1, page.height - 1)
    parts = (
        _opening_tag(page.height),
        f"<title>{escape(headline(line))}</title>",
        f"<style>{STYLE}</style>",
        _hatch_pattern(hatch),
        f'<rect class="card" {card} rx="8"/>',
        _axis_group(page, line.duration),
        *(_lanes_group(page, lanes) for lanes in line.lanes),
        _branch_lines(page, line.rows),
        *(
            _row_group(page, number, row, hatch, crossings.get(number, []))
            for number, row in enumerate(line.rows)
        ),
        *_origin_arrows(page, line.rows),
        _legend_group(page, line, hatch),
        "</svg>",
    )
    return "\n".join(filter(None, parts))


def headline(line: Timeline) -> str:
    """Return the outcome of the chain in a few words."""
    results = quantity(len(line.rows), "result", "results")
    rollbacks = failed_rollbacks_text(line)
    counts = f"{results}, {rollbacks}" if rollbacks else results
    root = line.root
    if root is None:
        return f"still running, {counts}"
    duration = duration_text(root.bar.width)
    return f"{root.name}: {root.status} after {duration}, {counts}"


def failed_rollbacks_text(line: Timeline) -> str:
    """Return how many rollbacks failed, or no text for none."""
    count = sum(row.rollback_error is not None for row in line.rows)
    return quantity(count, "rollback failed", "rollbacks failed") if count else ""


# -- rows ----------------------------------------------------------------------------


def _row_group(
    page: Page, number: int, row: ResultRow, hatch: str, crossings: Sequence[float]
) -> str:
    left, width = page.bar(row.bar)
    high = BAR if row.last == number else THIN_BAR
    top = (LINE - high) // 2
    note = page.notes[number]
    parts = (
        f'<g class="row {row.status}" transform="translate(0 {page.tops[number]})">',
        "" if page.brief else _tooltip_element(row),
        _name_text(page, row),
        f'<rect class="bar" {_box_attributes(left, top, width, high)} rx="2"/>',
        _attempt_marks(page, row, top, high, hatch) if row.ticks else "",
        _rollback_mark(row, left + width),
        _text_element("time", WIDTH - MARGIN, 17, duration_text(row.bar.width)),
        _note_element(page, row, note, left, crossings) if note else "",
        "</g>",
    )
    return "".join(parts)


def _tooltip_element(row: ResultRow) -> str:
    start = f"{row.name}, from {duration_text(row.bar.start)}"
    why = " · ".join(filter(None, (row.reason, rollback_text(row))))
    return f"<title>{escape(': '.join(filter(None, (start, why))))}</title>"


def _name_text(page: Page, row: ResultRow) -> str:
    x = page.name_x(row)
    retries = retry_text(row)
    room = page.left - MARGIN - x - MARK - small_width(retries)
    letters = round(room / LETTER, 2)  # the longest name must not miss it by an ulp
    name = escape(truncate(row.name, max(letters, SHORTEST_NAME)))
    if retries:
        name += f'<tspan class="retries" dx="{GAP}">{retries}</tspan>'
    mark = f'<tspan class="mark">{MARKS[row.status]}</tspan>'
    return _text_element("name", x, 17, f"{mark} {name}")


def _attempt_marks(page: Page, row: ResultRow, top: int, high: int, hatch: str) -> str:
    """Return the failed attempts, the pauses, and a tick at each start."""
    failed = [tick.span for tick in row.ticks if tick.error]
    errors = "" if row.status is Status.FAILED else _box_paths(page, failed, top, high)
    pauses = _box_paths(page, row.pauses, top, high)
    starts = _distinct_places(page.x(tick.span.start) for tick in row.ticks)
    ticks = "".join(f"M{x:.5g} {top - 3}v{high + 6}" for x in starts)
    return (
        (f'<path class="error" d="{errors}"/>' if errors else "")
        + (f'<path class="pause" fill="url(#{hatch})" d="{pauses}"/>' if pauses else "")
        + f'<path class="tick" d="{ticks}"/>'
    )


def _box_paths(page: Page, spans: Iterable[Span], top: int, high: int) -> str:
    boxes = ((page.x(span.start), span.width * page.scale) for span in spans)
    return "".join(
        f"M{x:.5g} {top}h{width:.5g}v{high}h-{width:.5g}z"
        for x, width in boxes
        if width >= TOO_NARROW
    )


def _distinct_places(places: Iterable[float]) -> Iterator[float]:
    before = float("-inf")
    for x in places:
        if x - before >= CLOSEST_TICKS:
            yield x
            before = x


def _rollback_mark(row: ResultRow, x: float) -> str:
    if row.rollback_error is not None:
        return _rollback_cross(x)
    return _rollback_arrow(x) if row.rolled_back else ""


def _rollback_cross(x: float) -> str:
    """Return a cross for a rollback that failed, after the end of a bar."""
    lines = f"M{x + 4:.5g} 9l8 8m0-8l-8 8"
    return f'<path class="undo rollback-failed" d="{lines}"/>'


def _rollback_arrow(x: float) -> str:
    """Return an arrow that turns back, after the end of a bar."""
    curve = f"M{x + 13:.5g} 17a5 5 0 1 0-9-4m-2.5-3l2.5 3.5 3.5-2"
    return f'<path class="undo" d="{curve}"/>'


def _note_element(
    page: Page, row: ResultRow, note: str, left: float, crossings: Sequence[float]
) -> str:
    """Return *note* below a bar, left of it if it is long or would meet an arrow."""
    edge = WIDTH - MARGIN
    text = truncate(note, (edge - page.left) / SMALL_LETTER)
    width = column_count(text) * SMALL_LETTER
    x = min(left, edge - width)
    arrow = min((at for at in crossings if at > x), default=edge + GAP)
    if page.left <= arrow - GAP - width < x:
        x = arrow - GAP - width
    style = "note" if row.rollback_error is None else "note rollback-failed"
    return _text_element(style, x, LINE + 7, escape(text))


# -- around the rows -----------------------------------------------------------------


def _opening_tag(height: int) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="cmdx-timeline" role="img" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    )


def _hatch_pattern(name: str) -> str:
    return (
        f'<defs><pattern id="{name}" width="5" height="5" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect class="gap" width="5" height="5"/><path class="hatch" d="M1 0v5"/>'
        "</pattern></defs>"
    )


def _axis_group(page: Page, whole: float) -> str:
    """Return a line and a label at round times."""
    places = [(page.x(at), label) for at, label in axis_labels(whole)]
    bottom = page.height - FOOT
    lines = "".join(f"M{x:.5g} {AXIS - 6}V{bottom}" for x, _ in places)
    labels = "".join(
        f'<text x="{x:.5g}" y="{AXIS - 14}">{label}</text>' for x, label in places
    )
    return f'<g class="axis"><path class="grid" d="{lines}"/>{labels}</g>'


def _lanes_group(page: Page, lanes: Lanes) -> str:
    """Return a shade behind tasks that ran at the same time, and a bracket."""
    left, width = page.bar(lanes.span)
    top, bottom = page.tops[lanes.first] + 2, page.bottom(lanes.last) - 2
    return (
        f'<g class="lanes"><title>{lanes.at_once} at the same time</title>'
        f"<rect {_box_attributes(left, top, width, bottom - top)}/>"
        f'<path d="M{left - 2:.5g} {top}h-4V{bottom}h4"/></g>'
    )


def _branch_lines(page: Page, rows: Sequence[ResultRow]) -> str:
    """Return the lines of the tree: down from parents, and across to children."""
    children: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        if row.parent is not None:
            children.setdefault(row.parent, []).append(number)
    reach = max(page.indent - 6, 2)
    lines = []
    for parent, below in children.items():
        x = page.name_x(rows[parent]) + 3.5
        lines.append(f"M{x:.5g} {page.tops[parent] + 21}V{page.middle(below[-1]):g}")
        lines += [f"M{x:.5g} {page.middle(child):g}h{reach:.3g}" for child in below]
    return f'<path class="branch" d="{"".join(lines)}"/>' if lines else ""


def _arrow_crossings(page: Page, rows: Sequence[ResultRow]) -> dict[int, list[float]]:
    """Return where arrows to origins cross the notes of rows, by row."""
    crossings: dict[int, list[float]] = {}
    for number, row in enumerate(rows):
        if row.origin is not None:
            first, last = sorted((number, row.origin))
            for between in range(first, last):
                crossings.setdefault(between, []).append(_arrow_turn(page, rows, row))
    return crossings


def _arrow_turn(page: Page, rows: Sequence[ResultRow], row: ResultRow) -> float:
    """Return the x of the upright part of the arrow from *row* to its origin."""
    origin = rows[row.origin or 0]
    return max(_end_of_bar(page, row), _end_of_bar(page, origin) + 5) + 8


def _origin_arrows(page: Page, rows: Sequence[ResultRow]) -> Iterator[str]:
    """Yield an arrow from each thrown failure to its origin."""
    for number, row in enumerate(rows):
        if row.origin is not None:
            start, end = _end_of_bar(page, row), _end_of_bar(page, rows[row.origin])
            turn = _arrow_turn(page, rows, row)
            tip = page.middle(row.origin)
            yield (
                f'<path class="origin" d="M{start:.5g} {page.middle(number):g}'
                f'H{turn:.5g}V{tip:g}H{end + 4:.5g}"/>'
                f'<path class="head" d="M{end:.5g} {tip:g}{HEAD}"/>'
            )


def _end_of_bar(page: Page, row: ResultRow) -> float:
    """Return the x after a bar and its mark."""
    left, width = page.bar(row.bar)
    has_mark = row.rolled_back or row.rollback_error is not None
    return left + width + (18 if has_mark else 3)


def _legend_group(page: Page, line: Timeline, hatch: str) -> str:
    """Return the legend, only for what the picture contains."""
    x, parts = float(MARGIN), []
    for word, shape in _legend_entries(line, hatch):
        text = f'<text x="18">{word}</text>'
        parts.append(f'<g transform="translate({x:.5g} 0)">{shape}{text}</g>')
        x += 18 + len(word) * SMALL_LETTER + 16
    shift = f"translate(0 {page.height - 13})"
    return f'<g class="legend" transform="{shift}">{"".join(parts)}</g>'


def _legend_entries(line: Timeline, hatch: str) -> Iterator[tuple[str, str]]:
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
        arrow = f'<path class="head" d="M0-4{HEAD}"/>'
        yield "thrown from", f'<path class="origin" d="M12-9V-4H5"/>{arrow}'
    marks = {_rollback_mark(row, 0) for row in rows}
    for mark, meaning in (
        (_rollback_arrow(0), "rolled back"),
        (_rollback_cross(0), "rollback failed"),
    ):
        if mark in marks:
            yield meaning, f'<g transform="translate(-2 -17)">{mark}</g>'


def _box_attributes(x: float, y: float, width: float, height: float) -> str:
    return f'x="{x:.5g}" y="{y:g}" width="{width:.5g}" height="{height:.9g}"'


def _text_element(style: str, x: float, y: int, text: str) -> str:
    return f'<text class="{style}" x="{x:.5g}" y="{y}">{text}</text>'
