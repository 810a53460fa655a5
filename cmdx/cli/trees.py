"""Trees of results on the standard output, in colour where somebody wants it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from cmdx.log import COLORS, DIM, PLAIN, wants_colors
from cmdx.outcome import Status
from cmdx.report import ASCII_MARKS, UNICODE_MARKS

if TYPE_CHECKING:
    from cmdx import Chain

MARK_COLORS = {
    shapes.of(status): COLORS[status]
    for shapes in (UNICODE_MARKS, ASCII_MARKS)
    for status in Status
}
LINE = re.compile(
    r"(?P<branch>[│├└─|` -]*)(?P<mark>[✓○✗+ox])(?P<name> .*? +)"
    r"(?P<time>[\d.]+ (µs|us|ms|s|min \d\d s|h \d\d min)\b)(?P<words>.*)"
)
"""A line of a tree."""


def tree_text(chain: Chain) -> str:
    """Return the tree of *chain*, in colour if the standard output is a terminal."""
    tree = chain.tree()
    if not wants_colors(sys.stdout):
        return tree
    return "\n".join(map(painted_line, tree.splitlines()))


def painted_line(line: str) -> str:
    """Return a line of a tree with its parts in colour."""
    parts = LINE.fullmatch(line)
    if parts is None:
        return line
    color = MARK_COLORS[parts["mark"]]
    is_success = color == COLORS[Status.SUCCESS]
    return "".join(
        (
            painted(parts["branch"], DIM),
            painted(parts["mark"], color),
            parts["name"],
            painted(parts["time"], DIM),
            parts["words"] if is_success else painted(parts["words"], color),
        )
    )


def painted(text: str, color: str) -> str:
    """Return *text* in *color*."""
    return f"{color}{text}{PLAIN}" if text else ""
