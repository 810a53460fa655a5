"""
Draw the nine jitter strategies: 500 runs each, as a picture for the docs.

Run ``python docs/draw_jitter.py``; it writes ``docs/_static/jitter.svg``.
The pauses are those of real runs on a clock that does not sleep.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from cmdx import Task, clock, retry_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RUNS = 500
RETRIES = 8
DELAY = 1.0
MAX_DELAY = 6.0

ROWS = [
    (
        "growing",
        "#3b6ea5",
        [
            ("exponential", "delay · 2ⁿ"),
            ("linear", "delay · (n + 1)"),
            ("fibonacci", "delay · 1, 1, 2, 3, 5, 8 …"),
        ],
    ),
    (
        "random",
        "#b5651d",
        [
            ("half_random", "delay/2 to delay"),
            ("full_random", "0 to delay"),
            ("bounded_random", "delay to 2 · delay"),
        ],
    ),
    (
        "growing and random",
        "#2f7d4f",
        [
            ("decorrelated_jitter", "delay to 3 · previous pause"),
            ("equal_jitter", "upper half of delay · 2ⁿ"),
            ("full_jitter", "0 to delay · 2ⁿ"),
        ],
    ),
]
RECOMMENDED = ("equal_jitter", "full_jitter")

INK, MUTED, RULE, CAP = "#24292f", "#6b7280", "#e5e7eb", "#c0392b"


class SeededClock(clock.Clock):
    """Does not sleep, and draws the same numbers each time the picture is made."""

    def __init__(self) -> None:
        self.random = random.Random(20).random  # noqa: S311 -- repeatable

    def sleep(self, seconds: float) -> None:
        """Return at once."""


def pauses_of(strategy: str) -> list[list[float]]:
    """Return the pauses of each run."""

    @retry_on(
        ConnectionError,
        limit=RETRIES,
        delay=DELAY,
        max_delay=MAX_DELAY,
        jitter=strategy,
    )
    class Unreachable(Task[None]):
        def work(self) -> None:
            raise ConnectionError

    with clock.use(SeededClock()):
        runs = [Unreachable.execute().attempts for _ in range(RUNS)]
    return [[attempt.pause for attempt in run[:-1]] for run in runs]


def draw(axes: Axes, strategy: str, formula: str, colour: str) -> None:
    """Draw the spread, the middle half and the median of one strategy."""
    columns = list(zip(*pauses_of(strategy), strict=True))
    numbers = range(1, RETRIES + 1)
    quarters = [statistics.quantiles(column, n=4) for column in columns]

    axes.axhline(MAX_DELAY, color=CAP, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.fill_between(
        numbers,
        [min(column) for column in columns],
        [max(column) for column in columns],
        color=colour,
        alpha=0.18,
        linewidth=0,
        zorder=2,
    )
    axes.fill_between(
        numbers,
        [low for low, _, _ in quarters],
        [high for _, _, high in quarters],
        color=colour,
        alpha=0.32,
        linewidth=0,
        zorder=3,
    )
    axes.plot(
        numbers,
        [median for _, median, _ in quarters],
        color=colour,
        linewidth=2,
        marker="o",
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.8,
        clip_on=False,
        zorder=4,
    )

    name = f"{strategy}  ★" if strategy in RECOMMENDED else strategy
    axes.set_title(name, loc="left", pad=20, color=INK, fontsize=11, weight="bold")
    axes.text(
        0,
        1.045,
        formula,
        transform=axes.transAxes,
        color=MUTED,
        fontsize=9,
        va="bottom",
    )


def dress(axes: Axes) -> None:
    """Remove from the axes what is not needed to read them."""
    axes.set_xlim(0.6, RETRIES + 0.4)
    axes.set_ylim(0, MAX_DELAY * 1.08)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=RETRIES))
    axes.set_yticks([0, 2, 4, 6])
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8.5, colors=MUTED)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(RULE)


def main() -> None:
    """Draw all strategies, one row for each kind."""
    mpl.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "svg.hashsalt": "cmdx",
        }
    )
    figure, grid = plt.subplots(3, 3, figsize=(10, 9), sharex=True, sharey=True)
    figure.subplots_adjust(
        left=0.115, right=0.975, top=0.83, bottom=0.105, hspace=0.52, wspace=0.14
    )
    figure.suptitle(
        "How long nine jitter strategies wait",
        x=0.04, y=0.972, ha="left", fontsize=15, weight="bold", color=INK,
    )  # fmt: skip
    figure.text(
        0.04,
        0.918,
        f"Seconds before each retry; delay {DELAY:g} s, max_delay {MAX_DELAY:g} s, "
        f"{RUNS} runs each.",
        color=MUTED,
        fontsize=10,
    )
    for (kind, colour, strategies), row in zip(ROWS, grid, strict=True):
        for (strategy, formula), axes in zip(strategies, row, strict=True):
            draw(axes, strategy, formula, colour)
            dress(axes)
        row[0].set_ylabel("seconds", color=MUTED, fontsize=9)
        place = row[0].get_position()
        figure.text(
            0.04, (place.y0 + place.y1) / 2, kind, rotation=90, va="center",
            ha="center", color=colour, fontsize=10.5, weight="bold",
        )  # fmt: skip
    for axes in grid[-1]:
        axes.set_xlabel("retry", color=MUTED, fontsize=9)

    legend(figure)
    target = Path(__file__).parent / "_static" / "jitter.svg"
    figure.savefig(target, metadata={"Date": None}, facecolor="white")
    print(target)


def legend(figure: plt.Figure) -> None:
    """Say what line, bands, dashes and star mean."""
    grey = "#7d8590"
    handles = [
        plt.Line2D([], [], color=grey, linewidth=2, marker="o", markersize=4),
        plt.Rectangle((0, 0), 1, 1, color=grey, alpha=0.5, linewidth=0),
        plt.Rectangle((0, 0), 1, 1, color=grey, alpha=0.18, linewidth=0),
        plt.Line2D([], [], color=CAP, linewidth=1, linestyle=(0, (4, 3))),
        plt.Line2D([], [], color=INK, linewidth=0, marker="*", markersize=8),
    ]
    names = ["median", "middle half", "all runs", "max_delay", "recommended"]
    figure.legend(
        handles, names, loc="lower center", ncols=5, frameon=False, fontsize=9,
        labelcolor=MUTED, bbox_to_anchor=(0.54, 0.008),
    )  # fmt: skip


if __name__ == "__main__":
    main()
