"""
The timeline of a chain as a drawing.

One bar per task, names on the left, durations on the right. A tick marks the start of
an attempt, hatching a pause, a bracket and a shade what ran at the same time, an arrow
where a failure was thrown from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmdx.outcome import Status
from cmdx.pictures.page import (
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
    labels_of,
    retries_of,
    small_width,
)
from cmdx.pictures.theme import MARKS, MONOSPACE, SANS, style
from cmdx.pictures.timeline import timeline
from cmdx.pictures.words import columns, counted, cut, duration, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cmdx.chain import Chain
    from cmdx.pictures.timeline import Lanes, Row, Span, Timeline

BAR = 12
THIN_BAR = 6
"""The height of the bar of a task that ran others."""
APART = 1.5
"""Ticks closer than this cannot be told apart, and are drawn once."""
TOO_NARROW = 0.3
"""Stretches of time narrower than this are not drawn."""
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
    more = f"<p>and {counted(left, 'row', 'rows')} more: see chain.to_html()</p>"
    return f'<div style="overflow-x:auto">{drawing}</div>{more if left > 0 else ""}'


def drawn(line: Timeline, name: str, *, brief: bool = False) -> str:
    """
    Return *line* as an SVG document; *name* keeps its ids apart from others'.

    A *brief* one says nothing but names and durations.
    """
    page = Page.of(line, brief=brief)
    hatch = f"cmdx-pause-{name[-12:]}"
    parts = (
        _opening(page.height),
        f"<title>{escaped(headline(line))}</title>",
        f"<style>{STYLE}</style>",
        _hatching(hatch),
        f'<rect class="card" {_box(0.5, 0.5, WIDTH - 1, page.height - 1)} rx="8"/>',
        _axis(page, line.duration),
        *(_lanes(page, each) for each in line.lanes),
        _branches(page, line.rows),
        *(_row(page, number, row, hatch) for number, row in enumerate(line.rows)),
        *_origins(page, line.rows),
        _legend(page, line, hatch),
        "</svg>",
    )
    return "\n".join(filter(None, parts))


def headline(line: Timeline) -> str:
    """Say in a few words what the chain came to."""
    results = counted(len(line.rows), "result", "results")
    root = line.root
    if root is None:
        return f"still running, {results}"
    return f"{root.name}: {root.status} after {duration(root.bar.width)}, {results}"


# -- rows ----------------------------------------------------------------------------


def _row(page: Page, number: int, row: Row, hatch: str) -> str:
    left, width = page.bar(row.bar)
    high = BAR if row.last == number else THIN_BAR
    top = (LINE - high) // 2
    note = page.notes[number]
    parts = (
        f'<g class="row {row.status}" transform="translate(0 {page.tops[number]})">',
        "" if page.brief else _tooltip(row),
        _name(page, row),
        f'<rect class="bar" {_box(left, top, width, high)} rx="2"/>',
        _attempts(page, row, top, high, hatch) if row.ticks else "",
        _undo(left + width) if row.rolled_back else "",
        _text("time", WIDTH - MARGIN, 17, duration(row.bar.width)),
        _note(page, note, left) if note else "",
        "</g>",
    )
    return "".join(parts)


def _tooltip(row: Row) -> str:
    words = (f"{row.name}, from {duration(row.bar.start)}", row.reason)
    return f"<title>{escaped(': '.join(filter(None, words)))}</title>"


def _name(page: Page, row: Row) -> str:
    x = page.name_x(row)
    retries = retries_of(row)
    room = page.left - MARGIN - x - MARK - small_width(retries)
    name = escaped(cut(row.name, max(room / LETTER, SHORTEST_NAME)))
    if retries:
        name += f'<tspan class="retries" dx="{GAP}">{retries}</tspan>'
    mark = f'<tspan class="mark">{MARKS[row.status]}</tspan>'
    return _text("name", x, 17, f"{mark} {name}")


def _attempts(page: Page, row: Row, top: int, high: int, hatch: str) -> str:
    """Draw what failed, what was waited, and a tick where each attempt began."""
    failed = [each.span for each in row.ticks if each.error]
    errors = "" if row.status is Status.FAILED else _boxes(page, failed, top, high)
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
    curve = f"M{x + 13:.5g} 17a5 5 0 1 0-9-4m-2.5-3l2.5 3.5 3.5-2"
    return f'<path class="undo" d="{curve}"/>'


def _note(page: Page, note: str, left: float) -> str:
    """Write *note* below a bar, further to the left if it is long."""
    edge = WIDTH - MARGIN
    text = cut(note, (edge - page.left) / SMALL_LETTER)
    x = min(left, edge - columns(text) * SMALL_LETTER)
    return _text("note", x, LINE + 7, escaped(text))


# -- around the rows -----------------------------------------------------------------


def _opening(height: int) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="cmdx-timeline" role="img" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    )


def _hatching(name: str) -> str:
    return (
        f'<defs><pattern id="{name}" width="5" height="5" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect class="gap" width="5" height="5"/><path class="hatch" d="M1 0v5"/>'
        "</pattern></defs>"
    )


def _axis(page: Page, whole: float) -> str:
    """Draw a line and a label at round times."""
    places = [(page.x(at), label) for at, label in labels_of(whole)]
    bottom = page.height - FOOT
    lines = "".join(f"M{x:.5g} {AXIS - 6}V{bottom}" for x, _ in places)
    labels = "".join(
        f'<text x="{x:.5g}" y="{AXIS - 14}">{label}</text>' for x, label in places
    )
    return f'<g class="axis"><path class="grid" d="{lines}"/>{labels}</g>'


def _lanes(page: Page, lanes: Lanes) -> str:
    """Draw a shade behind what ran at the same time, and a bracket beside it."""
    left, width = page.bar(lanes.span)
    top, bottom = page.tops[lanes.first] + 2, page.bottom(lanes.last) - 2
    return (
        f'<g class="lanes"><title>{lanes.at_once} at the same time</title>'
        f"<rect {_box(left, top, width, bottom - top)}/>"
        f'<path d="M{left - 2:.5g} {top}h-4V{bottom}h4"/></g>'
    )


def _branches(page: Page, rows: Sequence[Row]) -> str:
    """Draw the lines of the tree: down from each parent, and across to its children."""
    children: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        if row.parent is not None:
            children.setdefault(row.parent, []).append(number)
    reach = max(page.indent - 6, 2)
    lines = []
    for parent, below in children.items():
        x = page.name_x(rows[parent]) + 3.5
        lines.append(f"M{x:.5g} {page.tops[parent] + 21}V{page.middle(below[-1]):g}")
        lines += [f"M{x:.5g} {page.middle(each):g}h{reach:.3g}" for each in below]
    return f'<path class="branch" d="{"".join(lines)}"/>' if lines else ""


def _origins(page: Page, rows: Sequence[Row]) -> Iterator[str]:
    """Draw an arrow from each thrown failure to where it came from."""
    for number, row in enumerate(rows):
        if row.origin is not None:
            start, end = _after(page, row), _after(page, rows[row.origin])
            turn = max(start, end + 5) + 8
            tip = page.middle(row.origin)
            yield (
                f'<path class="origin" d="M{start:.5g} {page.middle(number):g}'
                f'H{turn:.5g}V{tip:g}H{end + 4:.5g}"/>'
                f'<path class="head" d="M{end:.5g} {tip:g}{HEAD}"/>'
            )


def _after(page: Page, row: Row) -> float:
    """Return where there is room after a bar and its mark."""
    left, width = page.bar(row.bar)
    return left + width + (18 if row.rolled_back else 3)


def _legend(page: Page, line: Timeline, hatch: str) -> str:
    """Explain what is in the picture, and nothing else."""
    x, parts = float(MARGIN), []
    for word, shape in _explained(line, hatch):
        text = f'<text x="18">{word}</text>'
        parts.append(f'<g transform="translate({x:.5g} 0)">{shape}{text}</g>')
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
        arrow = f'<path class="head" d="M0-4{HEAD}"/>'
        yield "thrown from", f'<path class="origin" d="M12-9V-4H5"/>{arrow}'
    if any(row.rolled_back for row in rows):
        yield "rolled back", f'<g transform="translate(-2 -17)">{_undo(0)}</g>'


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'x="{x:.5g}" y="{y:g}" width="{width:.5g}" height="{height:.9g}"'


def _text(style: str, x: float, y: int, text: str) -> str:
    return f'<text class="{style}" x="{x:.5g}" y="{y}">{text}</text>'
