"""
A tree of tasks that changes while they run, on a terminal.

1. signals tell which tasks begin and end                        ``LiveTree.listen``
2. each becomes a row; what it is doing is read from its run     ``row_words``
3. rich draws the rows again and again, in a thread of its own   ``show_live_tree``
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import clock
from cmdx.extras import how_to_install
from cmdx.report import (
    UNICODE_MARKS,
    branches_of,
    duration_text,
    error_line,
    marks,
    printable,
    retries_text,
    rows_of,
    summary_of,
)
from cmdx.telemetry import task_cancelled, task_executed, task_started

try:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text
except ImportError:
    message = f"a live tree needs rich. {how_to_install('cli')}."
    raise ImportError(message) from None

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx import Result
    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Record, Run

FRAMES_PER_SECOND = 10
FRAMES, ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"
STYLES = {"success": "green", "skipped": "yellow", "failed": "red"}
RUNNING = "cyan"


@contextmanager
def show_live_tree(root: Invocation) -> Iterator[None]:
    """Show what *root* and the tasks inside it do, as long as the block lasts."""
    console = Console(file=sys.stderr, highlight=False)
    tree = LiveTree(root)
    live = Live(
        get_renderable=lambda: tree.render(console.height),
        console=console,
        refresh_per_second=FRAMES_PER_SECOND,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what it prints goes above the tree
    )
    with tree.listen(), live:
        yield


@attrs.define
class Row:
    """A task of the tree."""

    run: Run
    result: Result[Any] | None = None
    """What became of it; None while it runs."""


class LiveTree:
    """
    The tasks of one run, those that have ended and those that still run.

    Args:
        root: The invocation that is going to run.
    """

    def __init__(self, root: Invocation) -> None:
        self._root = root._cmdx_
        self._rows: dict[str, Row] = {}
        self._running: dict[str, Row] = {}
        self._lock = Lock()  # steps run in threads, and another one draws
        self._shapes = marks(sys.stderr)

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Learn what tasks do, as long as the block lasts."""
        with ExitStack() as stack:
            stack.enter_context(task_started.connected_to(self.note_start))
            stack.enter_context(task_executed.connected_to(self.note_end))
            stack.enter_context(task_cancelled.connected_to(self.note_end))
            yield

    def note_start(self, _sender: Any, *, task: Invocation, **_facts: Any) -> None:
        """Add a row."""
        self.note_end(_sender, task=task, result=None)

    def note_end(
        self, _sender: Any, *, task: Invocation, result: Result[Any] | None
    ) -> None:
        """Keep what became of a task; one that a middleware ended is new."""
        if self.is_inside(task._cmdx_):
            with self._lock:
                row = self._rows[task._cmdx_.tid] = Row(task._cmdx_, result)
                self._running.pop(row.run.tid, None)
                if result is None:
                    self._running[row.run.tid] = row

    def is_inside(self, run: Run) -> bool:
        """Tell whether *run* is one of those that are shown."""
        return any(around is self._root for around in runs_around(run))

    def render(self, height: int) -> Text:
        """Return the rows as text; of too many, those that run and the latest ones."""
        room = height - 1
        count = len(self._rows)
        lines = self.lines(None if count <= room else room - 1)
        if count > room:
            dots = "…" if self._shapes is UNICODE_MARKS else "..."
            lines.insert(1, Text(f"{dots} {count - len(lines)} rows", "dim"))
        text = Text("\n", no_wrap=True, overflow="ellipsis")
        return text.join(lines)

    def lines(self, most: int | None = None) -> list[Text]:
        """Return lines of rows, *most* of them or all, in the order of a tree."""
        with self._lock:
            kept = self._rows.values() if most is None else self.latest_rows(most)
            rows = sorted(kept, key=lambda row: row.run.started)
        nodes = {row.run.tid: (parent_tid(row.run), row) for row in rows}
        drawn = list(branches_of(rows_of(nodes), self._shapes))
        widths = [len(branch) + len(name_of(row)) for branch, row in drawn]
        width = max(widths, default=0)
        return [
            self.line(branch, row, width - taken)
            for (branch, row), taken in zip(drawn, widths, strict=True)
        ]

    def latest_rows(self, most: int) -> list[Row]:
        """
        Return at most so many rows: those that run, then the latest that have ended.

        A row is taken only together with the rows around it, up to the root. Looking
        for them takes no longer in a run of many tasks than in one of few.
        """
        found: dict[str, Row] = {}
        running, latest = self._running.values(), self._rows.values()
        for row in chain(reversed(running), reversed(latest)):
            if len(found) >= most:
                break
            path = [
                self._rows[run.tid]
                for run in runs_around(row.run)
                if run.tid in self._rows and run.tid not in found
            ]
            if found and len(found) + len(path) > most:
                break
            found.update({around.run.tid: around for around in path[:most]})
        return list(found.values())

    def line(self, branch: str, row: Row, padding: int) -> Text:
        """Return the line of *row*."""
        result = row.result
        style = RUNNING if result is None else STYLES[result.status.value]
        mark = self.frame() if result is None else self._shapes.of(result.status)
        is_plain = result is None or result.success
        return Text.assemble(
            (branch, "dim"),
            (mark, style),
            f" {name_of(row)}{' ' * padding}  ",
            (f"{time_of(row):>9}", "dim"),
            (f"  {row_words(row)}", "" if is_plain else style),
        )

    def frame(self) -> str:
        """Return how a task that runs is marked at this moment."""
        frames = FRAMES if self._shapes is UNICODE_MARKS else ASCII_FRAMES
        return frames[int(clock.Clock.monotonic() * FRAMES_PER_SECOND) % len(frames)]


def runs_around(run: Run | None) -> Iterator[Run]:
    """Yield *run*, the one that started it, and so on to the root."""
    while run is not None:
        yield run
        run = run.parent


def parent_tid(run: Run) -> str | None:
    """Return the id of the run that started *run*."""
    return None if run.parent is None else run.parent.tid


def name_of(row: Row) -> str:
    """Return the name of the task of *row*."""
    return printable(row.run.task.__qualname__)


def time_of(row: Row) -> str:
    """Return how long a task took, or has been running."""
    seconds = row.run.duration
    return f"{seconds:.1f} s" if row.result is None else duration_text(seconds)


def row_words(row: Row) -> str:
    """Say in a few words what a task does, or what became of it."""
    if row.result is not None:
        return summary_of(row.result)
    # Another thread runs it, and takes the record away at the end.
    record: Record | None = vars(row.run).get("record")
    words = [retries_text(row.run.attempt)] if row.run.attempt else []
    if record is not None:
        words += pause_words(row.run, record)
    return printable(", ".join(words))


def pause_words(run: Run, record: Record) -> list[str]:
    """Say that a run pauses before its next attempt, and after which error."""
    attempts = record.attempts
    if len(attempts) <= run.attempt:  # the attempt that runs is added at its end
        return []
    start, duration, error, pause, _ = attempts[-1]
    if not pause:
        return []
    left = max(start + duration + pause - run.duration, 0.0)
    return [f"next attempt in {left:.1f} s after {error_line(error)}"]
