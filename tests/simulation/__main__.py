"""
Many histories: ``python -m tests.simulation [--histories N] [--seed FIRST]``.

The test command runs 2 000 of them; this is for the long run.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from ledger_world import History


def main():
    parser = argparse.ArgumentParser(description="Simulate histories of operations.")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    counts = Counter()
    for seed in range(given.seed, given.seed + given.histories):
        history = History(seed).run()  # raises if a promise is broken
        counts["points"] += history.world.points
        counts["kills"] += history.world.killed
        counts["effects"] += sum(history.effects.values())
        counts["answers"] += sum(map(len, history.told.values()))
    facts = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    line = f"{given.histories:,} histories, {facts}: every promise held\n"
    sys.stdout.write(line)


if __name__ == "__main__":
    main()
