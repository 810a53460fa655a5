"""
Draw the four states of a courier, from the table of its state machine.

Run ``python docs/draw_states.py``; it writes ``docs/_static/courier-states.svg``.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from cmdx.delivery.machine import (
    FAILED,
    IN_TRANSITION,
    RECOVERED,
    TRANSITIONS,
    UP,
    CourierState,
)
from cmdx.pictures.theme import SANS, style_sheet

TARGET = Path(__file__).parent / "_static" / "courier-states.svg"

WIDTH, HEIGHT = 1060, 300
BOX_WIDTH, BOX_HEIGHT = 150, 76
TOP = 130
LEFTS = {UP: 20, FAILED: 310, IN_TRANSITION: 600, RECOVERED: 890}
LABEL_WIDTH = 18
"""Characters."""

NOTES = {
    UP: ("all events go out",),
    FAILED: ("probes go out,", "events are stored"),
    IN_TRANSITION: ("all go out,", "stored ones first"),
    RECOVERED: ("all go out, the rest", "that was stored, too"),
}
"""What goes out in a state."""

SHAPES = (
    f"text{{font-family:{SANS};font-size:13px;text-anchor:middle}}",
    ".name{font-size:15px;font-weight:700}",
    ".box{stroke-width:1.6}",
    "path{fill:none;stroke-width:1.6}",
)
COLOURS = (
    "text{fill:text}",
    ".note{fill:dim}",
    ".up,.recovered,.in_transition{fill:card;stroke:success}",
    ".failed{fill:card;stroke:failed}",
    ".back path{stroke:failed}",
    ".back text{fill:failed-text}",
    ".forth path{stroke:accent}",
    ".forth text{fill:accent-text}",
    ".forth polygon{fill:accent}",
    ".back polygon{fill:failed}",
)


def draw() -> str:
    """Return the picture."""
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" class="courier-states" '
        'aria-labelledby="courier-title courier-desc">'
    )
    parts = [
        begin,
        '<title id="courier-title">The four states of a courier</title>',
        f'<desc id="courier-desc">{description()}</desc>',
        f"<style>{style_sheet('.courier-states', SHAPES, COLOURS)}</style>",
        *(arrow(old, new, why) for (old, new), why in TRANSITIONS.items()),
        *(box(state) for state in CourierState),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def description() -> str:
    """Return the picture in words."""
    ways = (
        f"{words(old)} becomes {words(new)} when {why}"
        for (old, new), why in TRANSITIONS.items()
    )
    return "; ".join(ways) + "."


def words(state: CourierState) -> str:
    return state.value.replace("_", " ")


def box(state: CourierState) -> str:
    left, middle = LEFTS[state], LEFTS[state] + BOX_WIDTH / 2
    frame = (
        f'<rect class="box {state.value}" x="{left}" y="{TOP}" rx="8" '
        f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}"/>'
    )
    name = f'<text class="name" x="{middle:g}" y="{TOP + 25}">{words(state)}</text>'
    lines = [frame, name]
    for number, note in enumerate(NOTES[state]):
        y = TOP + 46 + 17 * number
        lines.append(f'<text class="note" x="{middle:g}" y="{y}">{note}</text>')
    return "\n".join(lines)


def arrow(old: CourierState, new: CourierState, why: str) -> str:
    """Draw an arrow: straight to the next state, else around those between."""
    begin, end = LEFTS[old], LEFTS[new]
    kind = "back" if new is FAILED else "forth"
    if end > begin:
        path, label = straight(begin + BOX_WIDTH, end, TOP + 38, why)
    else:
        path, label = around(old, new, why)
    return f'<g class="{kind}">{path}{label}</g>'


def straight(begin: float, end: float, y: float, why: str) -> tuple[str, str]:
    middle = (begin + end) / 2
    tip = f"{end - 9:g},{y - 4:g} {end:g},{y:g} {end - 9:g},{y + 4:g}"
    path = f'<path d="M{begin:g},{y:g}H{end - 8:g}"/><polygon points="{tip}"/>'
    rows = wrap(why, LABEL_WIDTH)
    first = y - 10 - 17 * (len(rows) - 1)
    label = "".join(
        f'<text x="{middle:g}" y="{first + 17 * number:g}">{row}</text>'
        for number, row in enumerate(rows)
    )
    return path, label


def around(old: CourierState, new: CourierState, why: str) -> tuple[str, str]:
    """Draw an arrow back, above the boxes if it leads to failed, else below."""
    is_above = new is FAILED
    begin = LEFTS[old] + BOX_WIDTH / 2
    end = LEFTS[new] + BOX_WIDTH / 2
    if is_above:
        end += -30 if old is RECOVERED else 30  # so that they do not cross
    edge = TOP if is_above else TOP + BOX_HEIGHT
    far = (40 if old is RECOVERED else 90) if is_above else HEIGHT - 40
    tip_y = edge - 9 if is_above else edge + 9
    tip = f"{end - 4:g},{tip_y} {end:g},{edge} {end + 4:g},{tip_y}"
    path = (
        f'<path d="M{begin:g},{edge}V{far}H{end:g}V{tip_y}"/><polygon points="{tip}"/>'
    )
    return path, f'<text x="{(begin + end) / 2:g}" y="{far - 7}">{why}</text>'


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
