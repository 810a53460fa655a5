"""
Many histories: ``python -m tests.simulation [operations|jobs] [--histories N]``.

The test command runs 2 000 of them; this is for the long run.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ledger_world
import queue_world

WORLDS = {"operations": ledger_world, "jobs": queue_world}


def main():
    parser = argparse.ArgumentParser(description="Simulate many histories.")
    parser.add_argument("room", nargs="?", choices=WORLDS, default="operations")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # workers that are cut off say so
    counts = Counter()
    for seed in range(given.seed, given.seed + given.histories):
        # It raises if a promise is broken.
        history = WORLDS[given.room].History(seed).run()
        counts["points"] += history.world.points
        counts["kills"] += history.world.killed
        counts["effects"] += sum(history.effects.values())
        counts[history.counted] += history.count
    facts = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    line = f"{given.histories:,} histories, {facts}: every promise held\n"
    sys.stdout.write(line)


if __name__ == "__main__":
    main()
