"""
Benchmarks, each a ratio to a baseline in the same process.

Run them with ``python tests/bench/run.py``. The group ``bench`` has the libraries they
compare with; without one, its rows are marked as absent. A ratio over its target is
reported. With ``--check`` it is measured up to four more times, with more rounds, and
is an error if it is over every time.
"""

from __future__ import annotations

import argparse
import platform
import sys

import core
import inputs
import jobs
import operations
import workflows
from measuring import measure_again, table

ROUNDS = 300

ROWS = [*core.ROWS, *inputs.ROWS, *workflows.ROWS, *operations.ROWS, *jobs.ROWS]


def main(arguments=None):
    """Print the table, and return the exit status."""
    given = parser().parse_args(arguments)
    rows = [row for row in ROWS if given.only in row.name]
    readings = [row.taken(given.rounds) for row in rows]
    print(f"Python {platform.python_version()}, best of {given.rounds} rounds\n")
    print(table(readings))
    if given.check:
        readings = [check(reading, given.rounds) for reading in readings]
    heavy = core.heavy_imports()
    print(f"\nimport cmdx imports asyncio, structlog: {' '.join(heavy) or 'neither'}")
    over = sum(reading.verdict == "over" for reading in readings)
    print(f"{over} over target" if over else "all within target")
    return int(given.check and bool(over or heavy))


def parser():
    parser = argparse.ArgumentParser(description="Measure cmdx against its promises.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument(
        "--check",
        action="store_true",
        help="measure rows over target again, and exit 1 if one stays over",
    )
    return parser


def check(reading, rounds):
    """Return the reading that counts, and print those on the way to it."""
    readings = measure_again(reading, rounds)
    if len(readings) > 1:
        row = reading.row
        ratios = ", ".join(f"{reading.ratio:.2f}" for reading in readings)
        verdict = readings[-1].verdict
        print(f"\n{row.name} / {row.against}, measured again: {ratios}: {verdict}")
    return readings[-1]


if __name__ == "__main__":
    sys.exit(main())
