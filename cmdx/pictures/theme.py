"""
The colours of the pictures, for light and dark themes.

The contrast of text to its background is at least 4.5 : 1, that of bars 3 : 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmdx.outcome import Status
from cmdx.report import UNICODE_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterable

LIGHT = {
    "page": "#f4f6f9",
    "card": "#ffffff",
    "line": "#e3e8ef",
    "branch": "#c3ccd8",
    "text": "#1c2733",
    "dim": "#556173",
    "success": "#2b9a66",
    "success-text": "#16693f",
    "skipped": "#c27c00",
    "skipped-text": "#8f5a00",
    "failed": "#d93a3a",
    "failed-text": "#b42323",
    "accent": "#5b6ee1",
    "accent-text": "#4757c4",
    "pause": "#8593a6",
}

DARK = {
    "page": "#0e1217",
    "card": "#161b22",
    "line": "#272e38",
    "branch": "#465160",
    "text": "#e4e9f0",
    "dim": "#9da9b8",
    "success": "#3fb27f",
    "success-text": "#5fcb9a",
    "skipped": "#e0a030",
    "skipped-text": "#ecb550",
    "failed": "#ef5d5d",
    "failed-text": "#ff8a85",
    "accent": "#8c9bff",
    "accent-text": "#a5b1ff",
    "pause": "#7d8a9b",
}

MONOSPACE = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"

MARKS = {status: getattr(UNICODE_MARKS, status.value) for status in Status}


def style_sheet(scope: str, shapes: Iterable[str], colours: Iterable[str]) -> str:
    """
    Return a style sheet for light and dark themes with rules inside *scope* only.

    The rules in *colours*, ``selector{property:name}``, use the names of the colours
    above. They are replaced here, because not every SVG viewer supports variables.
    """
    colours = tuple(colours)
    light = "".join(_rule_with_colours(scope, rule, LIGHT) for rule in colours)
    dark = "".join(_rule_with_colours(scope, rule, DARK) for rule in colours)
    common = "".join(_rule_in_scope(scope, rule) for rule in shapes)
    return f"{common}{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _rule_with_colours(scope: str, rule: str, theme: dict[str, str]) -> str:
    selector, _, body = _rule_in_scope(scope, rule).rstrip("}").partition("{")
    declarations = (declaration.partition(":") for declaration in body.split(";"))
    coloured = (f"{name}:{theme[key]}" for name, _, key in declarations)
    return f"{selector}{{{';'.join(coloured)}}}"


def _rule_in_scope(scope: str, rule: str) -> str:
    """Put *scope* before each selector; ``&`` stands for the scope itself."""
    selectors, brace, body = rule.partition("{")
    scoped = (
        scope + selector[1:]
        if selector.startswith("&")
        else f"{scope} {selector}".lstrip()
        for selector in selectors.split(",")
    )
    return ",".join(scoped) + brace + body
