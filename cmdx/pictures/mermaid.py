"""
Workflows and chains as mermaid flowcharts.

The chart of a workflow has its steps in order, groups and nested workflows in frames,
and parallel steps between a fork and a join. The chart of a chain has its results,
children below their parents, coloured by status. A result whose rollback failed is red.

Texts of the user are never ids. Characters with a meaning in mermaid, Markdown or HTML
are written as character codes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx.pictures.layout import conflict_text, rollback_text
from cmdx.pictures.text import callable_name, class_name, one_line, quantity, truncate
from cmdx.pictures.theme import MARKS
from cmdx.pictures.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmdx.chain import Chain
    from cmdx.pictures.timeline import ResultRow
    from cmdx.workflow.steps import Group, Step
    from cmdx.workflow.workflow import Workflow

SPECIAL = re.compile(r"(?<![^\W_])[_-]|[_-](?![^\W_])|[^\w ,✓○✗→…\[\]-]")
"""All but letters, digits, a few other characters, and ``_`` and ``-`` in words."""

LONGEST_LABEL = 120

DASHED = "stroke-dasharray:4 3"
FAILED_COLOURS = "fill:#fde3e1,stroke:#d93a3a,color:#7a1414"
STYLES = (
    "classDef success fill:#dff5e8,stroke:#2b9a66,color:#0f4a2d",
    f"classDef skipped fill:#fdf0d0,stroke:#d08700,color:#5c3a00,{DASHED}",
    f"classDef failed {FAILED_COLOURS}",
    f"classDef rollback_failed {FAILED_COLOURS},stroke-width:4px",
)
WORKFLOW_STYLES = (
    "classDef point fill:#8593a6,stroke:#8593a6,color:#8593a6",
    f"classDef tolerated {DASHED}",
)


def workflow_mermaid(workflow: type[Workflow[Any]]) -> str:
    """Return the steps of *workflow* as a mermaid flowchart."""
    chart = Chart()
    start = chart.add_node("([", class_name(workflow), "])")
    parts = [_draw_part(chart, part) for part in workflow._cmdx_.group.steps]
    end = chart.add_point("(((", ")))")
    chart.link(ChartPart(start), *parts, ChartPart(end))
    return chart.text(WORKFLOW_STYLES)


def chain_mermaid(chain: Chain) -> str:
    """Return the results of *chain* as a mermaid flowchart, coloured by status."""
    chart = Chart()
    rows = timeline(chain).rows
    for row in rows:
        opening, closing = ('[["', '"]]') if row.workflow else ('["', '"]')
        label = "<br/>".join(map(label_text, _label_lines(row)))
        rollback_failed = row.rollback_error is not None
        style = "rollback_failed" if rollback_failed else row.status.value
        chart.add_shape(opening + label + closing, style)
    for number, row in enumerate(rows):
        if row.parent is not None:
            passed_on = rows[row.parent].origin == number
            chart.add_line(f"n{row.parent} {'==>' if passed_on else '-->'} n{number}")
    for number, row in enumerate(rows):
        if row.origin is not None and rows[row.origin].parent != number:
            chart.add_line(f'n{number} -. "thrown from" .-> n{row.origin}')
    return chart.text(STYLES)


def _label_lines(row: ResultRow) -> Iterable[str]:
    yield f"{MARKS[row.status]} {row.name}"
    if row.retries:
        yield quantity(row.retries, "retry", "retries")
    if row.reason and not row.thrown:
        yield truncate(row.reason, LONGEST_LABEL)
    yield from filter(None, (rollback_text(row), conflict_text(row)))


def label_text(text: str) -> str:
    """Return *text* escaped for use in a label."""
    return SPECIAL.sub(lambda found: f"#{ord(found[0])};", one_line(text))


# -- the steps of a workflow ---------------------------------------------------------


class ChartPart(NamedTuple):
    """The node or frame of a step or a group."""

    name: str
    given: tuple[str, ...] = ()
    """The label of the line to it."""
    taken: tuple[str, ...] = ()
    """The label of the line from it."""


def _draw_part(chart: Chart, part: Step | Group) -> ChartPart:
    from cmdx.workflow.steps import Group

    if not isinstance(part, Group) and part.task._cmdx_.is_inner:
        part = part.task._cmdx_.group.steps[0]  # a group that runs beside others
    if isinstance(part, Group):
        return _draw_group(chart, part)
    return _draw_step(chart, part)


def _draw_step(chart: Chart, step: Step) -> ChartPart:
    given = tuple(f"{key} → {name}" for name, key in step.map.items())
    taken = () if step.into is None else (f"→ {step.into}",)
    tolerated = step.on_failure == "continue"
    inner: Group | None = getattr(step.task._cmdx_, "group", None)
    style = "tolerated" if tolerated else ""
    label = f"{class_name(step.task)}, may fail" if tolerated else class_name(step.task)
    if inner is None or not inner.steps:
        node = chart.add_node("[", label, "]", style)
        return ChartPart(node, given, taken)
    frame = chart.open_frame(label)
    chart.link(*[_draw_part(chart, part) for part in inner.steps])
    chart.close_frame()
    if tolerated:
        chart.add_line(f"style {frame} {DASHED}")
    return ChartPart(frame, given, taken)


def _draw_group(chart: Chart, group: Group) -> ChartPart:
    frame = chart.open_frame(", ".join(_group_label(group)))
    if group.parallel:
        _draw_parallel(chart, group)
    else:
        chart.link(*[_draw_part(chart, part) for part in group.steps])
    chart.close_frame()
    return ChartPart(frame)


def _group_label(group: Group) -> Iterable[str]:
    yield "parallel" if group.parallel else "group"
    if group.if_ is not None and group.if_ is not True:
        yield f"if {callable_name(group.if_)}"
    if group.unless is not None and group.unless is not False:
        yield f"unless {callable_name(group.unless)}"
    if group.continue_on_failure:
        yield "continue on failure"
    if group.workers is not None:
        yield quantity(group.workers, "worker", "workers")
    if group.executor is not None:
        yield f"executor {callable_name(group.executor)}"
    if group.parallel and group.merge != "last":
        yield f"merge {callable_name(group.merge)}"


def _draw_parallel(chart: Chart, group: Group) -> None:
    fork = chart.add_point("((", "))")
    parts = [_draw_part(chart, part) for part in group.steps]
    join = chart.add_point("((", "))")
    for part in parts:
        chart.link(ChartPart(fork), part, ChartPart(join))


# -- the chart -----------------------------------------------------------------------


class Chart:
    """The lines of a flowchart."""

    def __init__(self) -> None:
        self.lines = ["flowchart TD"]
        self.count = 0
        self.depth = 1

    def add_line(self, text: str) -> None:
        """Add a line, indented like its frame."""
        self.lines.append("    " * self.depth + text)

    def add_shape(self, body: str, style: str = "") -> str:
        """Add a node and return its id."""
        name = f"n{self.count}"
        self.count += 1
        self.add_line(f"{name}{body}:::{style}" if style else f"{name}{body}")
        return name

    def add_node(self, opening: str, label: str, closing: str, style: str = "") -> str:
        """Add a node with a label and return its id."""
        return self.add_shape(f'{opening}"{label_text(label)}"{closing}', style)

    def add_point(self, opening: str, closing: str) -> str:
        """Add a node without a label and return its id."""
        return self.add_shape(f'{opening}" "{closing}', "point")

    def open_frame(self, label: str) -> str:
        """Open a frame around what is added next."""
        name = f"g{self.count}"
        self.count += 1
        self.add_line(f'subgraph {name}["{label_text(label)}"]')
        self.depth += 1
        self.add_line("direction TB")
        return name

    def close_frame(self) -> None:
        """Close the frame that was opened last."""
        self.depth -= 1
        self.add_line("end")

    def link(self, *parts: ChartPart) -> None:
        """Add the lines from each part to the next."""
        for before, after in pairwise(parts):
            words = "<br/>".join(map(label_text, before.taken + after.given))
            label = f'|"{words}"|' if words else ""
            self.add_line(f"{before.name} -->{label} {after.name}")

    def text(self, styles: Sequence[str]) -> str:
        """Return the whole flowchart."""
        for style in styles:
            self.add_line(style)
        return "\n".join(self.lines) + "\n"
