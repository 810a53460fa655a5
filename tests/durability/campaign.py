"""
All kills of one run, on all databases, and what was counted.

1. at each named point, for each kind of operation      ``kill_at_points``
2. at random moments, in rounds of 20                   ``kill_at_random``
3. each journal is judged as soon as it is complete     ``Tally.add``
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .judge import count_histories, histories_of, kills_amid_calls
from .kinds import KINDS
from .points import expected_end, kill_at, points_of
from .processes import Scene
from .rounds import KILLS, run_round


class Tally:
    """What was counted for one kind of operation on one database."""

    def __init__(self, database, kind):
        self.database, self.kind = database, kind
        self.counts = Counter()
        self.broken = []

    def add(self, lines, kills):
        """Judge a journal, and return the histories in it."""
        histories = histories_of(self.kind, lines)
        counts, broken = count_histories(self.kind, histories)
        self.counts.update(counts)
        self.counts["kills"] += kills
        self.counts["amid calls"] += kills_amid_calls(lines)
        for promise, why, history in broken:
            self.add_broken(promise, why, history.lines)
        for line in lines:
            if line["what"] == "broke":
                self.add_broken("broke", line["text"], [line])
        return histories

    def add_broken(self, promise, why, lines):
        found = {"promise": promise, "why": why, "lines": lines}
        self.broken.append({**self.names(), **found})

    def add_unexpected(self, point, end, lines):
        expected = expected_end(self.kind, point)
        self.counts["unexpected"] += 1
        why = f"killed {point}: expected {expected}, found {end}"
        self.add_broken("unexpected", why, lines)

    def names(self):
        return {"database": self.database.name, "kind": self.kind.name}

    def row(self):
        return {**self.names(), **self.counts}


def kill_at_points(database, kind):
    """Kill at every named point; return the tally, and what was found after each."""
    tally, ends = Tally(database, kind), []
    with new_scenes(database, kind) as new_scene:
        for point in points_of(kind):
            lines = kill_at(new_scene(point), point)
            end = end_of(tally.add(lines, 1))
            ends.append({**tally.names(), "point": point, "end": end})
            if end != expected_end(kind, point):
                tally.add_unexpected(point, end, lines)
    return tally, ends


def end_of(histories):
    """Return the last answer and the number of effects of the only operation."""
    for history in histories:
        return history.final, len(history.effects)
    return "none", 0


def kill_at_random(database, kind, kills, seed):
    """Kill so often, and return the tally."""
    tally = Tally(database, kind)
    for number, size in enumerate(sizes_of_rounds(kills)):
        name = f"{seed}/{database.name}/{kind.name}/{number}"
        with new_scenes(database, kind) as new_scene:
            lines = run_round(new_scene(f"round {number}"), size, name)
        tally.add(lines, size)
    return tally


def sizes_of_rounds(kills):
    """Return how many kills each round has."""
    whole, rest = divmod(kills, KILLS)
    return [KILLS] * whole + [rest] * (rest > 0)


@contextmanager
def new_scenes(database, kind):
    """Return a function that makes scenes; their files are removed afterwards."""
    with TemporaryDirectory(prefix="cmdx-kills-") as directory:
        place = database.new_place(directory)

        def new_scene(name):
            journal = Path(directory, f"{name}.journal")
            return Scene(place, kind, f"{kind.name} {name}", journal)

        yield new_scene


def shares(kills, databases):
    """Yield each database with each kind, and how many of the kills are theirs."""
    pairs = [(database, kind) for database in databases for kind in KINDS]
    whole, rest = divmod(kills, len(pairs))
    for number, (database, kind) in enumerate(pairs):
        yield database, kind, whole + (number < rest)
