"""
Benchmarks, each a ratio to a baseline in the same process.

Run them with ``python tests/bench/run.py``. The group ``bench`` has the libraries they
compare with; without one, its rows are marked as absent. A ratio over its target is
reported, and is no error.
"""

from __future__ import annotations

import argparse
import platform
import sys

import core
import inputs
import workflows
from measuring import table

ROUNDS = 300


def main():
    parser = argparse.ArgumentParser(description="Measure cmdx against its promises.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    given = parser.parse_args()
    rows = (*core.ROWS, *inputs.ROWS, *workflows.ROWS)
    rows = [row for row in rows if given.only in row.name]
    readings = [row.taken(given.rounds) for row in rows]
    print(f"Python {platform.python_version()}, best of {given.rounds} rounds\n")
    print(table(readings))
    heavy = core.heavy_imports()
    print(f"\nimport cmdx imports asyncio, structlog: {' '.join(heavy) or 'neither'}")
    over = sum(reading.verdict == "over" for reading in readings)
    print(f"{over} over target" if over else "all within target")


if __name__ == "__main__":
    sys.exit(main())
