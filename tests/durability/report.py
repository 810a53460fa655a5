"""The tables of a run, in Markdown."""

from __future__ import annotations

from collections import Counter

from .kinds import KINDS
from .points import POINTS, POINTS_WITHIN

COLUMNS = (
    "database",
    "kind",
    "operations",
    "kills",
    "amid calls",
    "effects",
    "told",
    "indeterminate",
    "exactly one",
    "lost",
    "doubled",
    "contradicting",
)
MOST_SHOWN = 5


def table_of(head, rows, *, texts):
    """Return a table whose first columns are texts, and the others numbers."""
    marks = ["---"] * texts + ["---:"] * (len(head) - texts)
    lines = [head, marks, *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def table_of_kills(tallies):
    """Return one line per database and kind, and the sums."""
    rows = [tally.row() for tally in tallies]
    return table_of(COLUMNS, map(cells_of, (*rows, sum_of(rows))), texts=2)


def sum_of(rows):
    """Return the sums of all rows; only ``within=`` promises exactly one effect."""
    total = Counter()
    for row in rows:
        total.update({name: row.get(name, 0) for name in COLUMNS[2:]})
        total["succeeded"] += row["succeeded"] * ("exactly one" in row)
    return {"database": "all", "kind": "", **total}


def cells_of(row):
    cells = {column: row.get(column, 0) for column in COLUMNS}
    exactly = f"{row.get('exactly one')} of {row['succeeded']}"
    cells["exactly one"] = exactly if "exactly one" in row else ""
    return cells.values()


def table_of_points(ends):
    """Return what the next caller finds after a kill at each point."""
    points = dict.fromkeys((*POINTS_WITHIN[:5], *POINTS))
    rows = [
        [point, *[cell_of_point(ends, point, kind) for kind in KINDS]]
        for point in points
    ]
    head = ["killed", *[kind.name for kind in KINDS]]
    return table_of(head, rows, texts=len(head))


def cell_of_point(ends, point, kind):
    """Return the answer and the number of effects, if the databases agree."""
    found = [
        "{}, {}".format(*end["end"])
        for end in ends
        if (end["point"], end["kind"]) == (point, kind.name)
    ]
    return " / ".join(dict.fromkeys(found))


def text_of_broken(broken):
    """Return the first promises that were broken, with what led there."""
    lines = []
    for found in broken[:MOST_SHOWN]:
        lines.append("{database}, {kind}: {promise}: {why}".format(**found))
        lines += [f"    {line}" for line in found["lines"]]
    return "\n".join(lines)
