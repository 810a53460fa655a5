"""
Workflows and chains as mermaid flowcharts.

A workflow is drawn as it is written: steps in order, groups and nested workflows in
frames, parallel steps between a fork and a join. A chain is drawn as it was run: who
ran whom, coloured by what became of it.

No text of the user's is ever an id, and whatever could mean something to mermaid, to
Markdown or to HTML is written as a character code.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx.pictures.theme import MARKS
from cmdx.pictures.timeline import timeline
from cmdx.pictures.words import counted, cut, name_of, name_of_call, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmdx.chain import Chain
    from cmdx.pictures.timeline import Row
    from cmdx.workflow import Group, Step, Workflow

MEANINGFUL = re.compile(r"(?<![^\W_])[_-]|[_-](?![^\W_])|[^\w ,✓○✗→…\[\]-]")
"""All but letters, digits, a few harmless signs, and ``_`` and ``-`` within words."""

LONGEST_REASON = 120

DASHED = "stroke-dasharray:4 3"
STYLES = (
    "classDef success fill:#dff5e8,stroke:#2b9a66,color:#0f4a2d",
    f"classDef skipped fill:#fdf0d0,stroke:#d08700,color:#5c3a00,{DASHED}",
    "classDef failed fill:#fde3e1,stroke:#d93a3a,color:#7a1414",
)
WORKFLOW_STYLES = (
    "classDef point fill:#8593a6,stroke:#8593a6,color:#8593a6",
    f"classDef tolerated {DASHED}",
)


def workflow_mermaid(workflow: type[Workflow[Any]]) -> str:
    """Return the steps of *workflow* as a mermaid flowchart."""
    chart = Chart()
    start = chart.node("([", name_of(workflow), "])")
    parts = [_drawn(chart, each) for each in workflow._group_.steps]
    end = chart.point("(((", ")))")
    chart.link(Part(start), *parts, Part(end))
    return chart.text(WORKFLOW_STYLES)


def chain_mermaid(chain: Chain) -> str:
    """Return who ran whom in *chain* as a mermaid flowchart, coloured by status."""
    chart = Chart()
    rows = timeline(chain).rows
    for row in rows:
        opening, closing = ('[["', '"]]') if row.workflow else ('["', '"]')
        label = "<br/>".join(map(safe, _told(row)))
        chart.shape(opening + label + closing, str(row.status))
    for number, row in enumerate(rows):
        if row.parent is not None:
            passed_on = rows[row.parent].origin == number
            chart.line(f"n{row.parent} {'==>' if passed_on else '-->'} n{number}")
    for number, row in enumerate(rows):
        if row.origin is not None and rows[row.origin].parent != number:
            chart.line(f'n{number} -. "thrown from" .-> n{row.origin}')
    return chart.text(STYLES)


def _told(row: Row) -> Iterable[str]:
    yield f"{MARKS[row.status]} {row.name}"
    if row.retries:
        yield counted(row.retries, "retry", "retries")
    if row.reason and not row.thrown:
        yield cut(row.reason, LONGEST_REASON)
    if row.rolled_back:
        yield "rolled back"


def safe(text: str) -> str:
    """Return *text* as it can stand in any label, whatever it says."""
    return MEANINGFUL.sub(lambda found: f"#{ord(found[0])};", plain(text))


# -- the steps of a workflow ---------------------------------------------------------


class Part(NamedTuple):
    """What was drawn for a step or a group."""

    name: str
    given: tuple[str, ...] = ()
    """What the line to it says."""
    taken: tuple[str, ...] = ()
    """What the line from it says."""


def _drawn(chart: Chart, each: Step | Group) -> Part:
    from cmdx.workflow import Group, Inner

    if not isinstance(each, Group) and issubclass(each.task, Inner):
        each = each.task._group_.steps[0]  # a group that runs beside others
    if isinstance(each, Group):
        return _group(chart, each)
    return _step(chart, each)


def _step(chart: Chart, step: Step) -> Part:
    given = tuple(f"{key} → {name}" for name, key in step.map.items())
    taken = () if step.into is None else (f"→ {step.into}",)
    tolerated = step.on_failure == "continue"
    inner: Group | None = getattr(step.task, "_group_", None)
    style = "tolerated" if tolerated else ""
    label = f"{name_of(step.task)}, may fail" if tolerated else name_of(step.task)
    if inner is None or not inner.steps:
        node = chart.node("[", label, "]", style)
        return Part(node, given, taken)
    frame = chart.frame(label)
    chart.link(*[_drawn(chart, each) for each in inner.steps])
    chart.close()
    if tolerated:
        chart.line(f"style {frame} {DASHED}")
    return Part(frame, given, taken)


def _group(chart: Chart, group: Group) -> Part:
    frame = chart.frame(", ".join(_group_words(group)))
    if group.parallel:
        _side_by_side(chart, group)
    else:
        chart.link(*[_drawn(chart, each) for each in group.steps])
    chart.close()
    return Part(frame)


def _group_words(group: Group) -> Iterable[str]:
    yield "parallel" if group.parallel else "group"
    if group.if_ is not None and group.if_ is not True:
        yield f"if {name_of_call(group.if_)}"
    if group.unless is not None and group.unless is not False:
        yield f"unless {name_of_call(group.unless)}"
    if group.continue_on_failure:
        yield "continue on failure"
    if group.workers is not None:
        yield counted(group.workers, "worker", "workers")
    if group.executor is not None:
        yield f"executor {name_of_call(group.executor)}"
    if group.parallel and group.merge != "last":
        yield f"merge {name_of_call(group.merge)}"


def _side_by_side(chart: Chart, group: Group) -> None:
    fork = chart.point("((", "))")
    parts = [_drawn(chart, each) for each in group.steps]
    join = chart.point("((", "))")
    for part in parts:
        chart.link(Part(fork), part, Part(join))


# -- the chart -----------------------------------------------------------------------


class Chart:
    """The lines of a flowchart."""

    def __init__(self) -> None:
        self.lines = ["flowchart TD"]
        self.count = 0
        self.depth = 1

    def line(self, text: str) -> None:
        """Write a line, as deep as the frame it is in."""
        self.lines.append("    " * self.depth + text)

    def shape(self, body: str, style: str = "") -> str:
        """Write a node and return its id."""
        name = f"n{self.count}"
        self.count += 1
        self.line(f"{name}{body}:::{style}" if style else f"{name}{body}")
        return name

    def node(self, opening: str, label: str, closing: str, style: str = "") -> str:
        """Write a node with a label and return its id."""
        return self.shape(f'{opening}"{safe(label)}"{closing}', style)

    def point(self, opening: str, closing: str) -> str:
        """Write a node that says nothing and return its id."""
        return self.shape(f'{opening}" "{closing}', "point")

    def frame(self, label: str) -> str:
        """Open a frame around what is written next."""
        name = f"g{self.count}"
        self.count += 1
        self.line(f'subgraph {name}["{safe(label)}"]')
        self.depth += 1
        self.line("direction TB")
        return name

    def close(self) -> None:
        """Close the frame opened last."""
        self.depth -= 1
        self.line("end")

    def link(self, *parts: Part) -> None:
        """Write the lines from each part to the next."""
        for before, after in pairwise(parts):
            words = "<br/>".join(map(safe, before.taken + after.given))
            label = f'|"{words}"|' if words else ""
            self.line(f"{before.name} -->{label} {after.name}")

    def text(self, styles: Sequence[str]) -> str:
        """Return the whole flowchart."""
        for style in styles:
            self.line(style)
        return "\n".join(self.lines) + "\n"
