"""
Prove by ``kill -9`` that operations are neither lost nor doubled.

Run it with ``python -m tests.durability`` from the root of the repository. Processes
are killed at every named point, then at random; each database and each kind of
operation has its share of the kills. The exit status is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from contextlib import ExitStack

from .campaign import kill_at_points, kill_at_random, shares
from .databases import DATABASES
from .plants import PLANTS
from .report import table_of_kills, table_of_points, text_of_broken

KILLS = 10_000


def main(arguments=None):
    """Kill, print what was found, and return the exit status."""
    given = parser().parse_args(arguments)
    if given.plant:
        PLANTS[given.plant]()
    gc.collect()
    gc.freeze()  # a fork need not copy what is never collected
    began = time.perf_counter()
    with ExitStack() as stack:
        databases = [stack.enter_context(new()) for new in given.databases]
        found = kill_all(given, databases)
    found["seconds"] = round(time.perf_counter() - began, 1)
    write(as_json(found, given) if given.json else as_text(found, given))
    return int(bool(found["broken"]))


def parser():
    parser = argparse.ArgumentParser(
        prog="python -m tests.durability",
        description="Prove by kill -9 that operations are neither lost nor doubled.",
    )
    add = parser.add_argument
    add("--kills", type=int, default=KILLS, help="random kills, on all databases")
    add(
        "--databases",
        type=databases_of,
        default=tuple(DATABASES.values()),
        help="names, with commas; all by default",
    )
    add("--seed", type=int, default=0, help="makes the same choices again")
    add("--no-points", action="store_true", help="leave out kills at named points")
    add("--plant", choices=PLANTS, help="plant a bug, which has to be found")
    add("--json", action="store_true", help="print JSON in place of tables")
    return parser


def databases_of(text):
    """Return the databases that are named, with commas in between."""
    unknown = set(text.split(",")) - set(DATABASES)
    if unknown:
        names = f"{', '.join(sorted(unknown))}; known are {', '.join(DATABASES)}"
        raise argparse.ArgumentTypeError(f"there is no database called {names}")
    return [DATABASES[name] for name in text.split(",")]


def kill_all(given, databases):
    """Return what was found at named points and at random."""
    points, ends, at_random = [], [], []
    for database, kind, kills in shares(given.kills, databases):
        note_progress(f"{database.name}, {kind.name}")
        if not given.no_points:
            tally, found = kill_at_points(database, kind)
            points.append(tally)
            ends += found
        at_random.append(kill_at_random(database, kind, kills, given.seed))
    broken = [found for tally in (*points, *at_random) for found in tally.broken]
    return {"points": points, "ends": ends, "random": at_random, "broken": broken}


def note_progress(text):
    """Tell who waits at a terminal what is being done."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


def as_json(found, given):
    rows = {
        name: [tally.row() for tally in found[name]] for name in ("points", "random")
    }
    return json.dumps({**found, **rows, "seed": given.seed})


def as_text(found, given):
    parts = []
    if found["points"]:
        parts += ["Killed at named points; the next answer, and all effects:"]
        parts += [table_of_points(found["ends"]), table_of_kills(found["points"])]
    if given.kills:
        parts += [f"Killed at random, with the seed {given.seed}:"]
        parts += [table_of_kills(found["random"])]
    parts += [text_of_broken(found["broken"])]
    number = len(found["broken"])
    verdict = f"{number} promises broken" if number else "all promises kept"
    parts += [f"{verdict}, in {found['seconds']} s"]
    return "\n\n".join(filter(None, parts))


def write(text):
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
