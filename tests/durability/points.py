"""
Kills at named points.

A process calls one operation and kills itself at one point. Then a fresh process, for
which all leases are over, asks for the same operation. What it must find is known.
"""

from __future__ import annotations

import os
import signal
from functools import partial

from .databases import BEGINNING
from .journal import read_journal
from .processes import LEAP, Child, Process
from .rounds import ask_all

ADMISSION = (
    "before the admission begins",
    "before the admission is committed",
    "after the admission is committed",
)
POINTS = (
    *ADMISSION,
    "before the effect",
    "after the effect",
    "before the seal begins",
    "before the seal is committed",
    "after the seal is committed",
    "after the answer is told",
)
POINTS_WITHIN = (
    *ADMISSION,
    *BEGINNING,
    "before the effect",
    "after the effect",
    "before the seal is committed",
    "after the seal is committed",
    "after the answer is told",
)
"""With ``within=``, the seal is committed by the transaction of the user."""

STORE_POINTS = {
    "before begin": "before the {} begins",
    "before commit": "before the {} is committed",
    "after commit": "after the {} is committed",
}


def points_of(kind):
    """Return the points of a kind, in the order in which they are reached."""
    return POINTS_WITHIN if kind.is_within else POINTS


def expected_end(kind, point):
    """Return the answer and the number of effects that are found afterwards."""
    points = points_of(kind)
    reached = points.index(point)
    if reached < points.index("after the admission is committed"):
        return "success", 1  # nothing is known of it: it runs for the first time
    if reached >= points.index("after the seal is committed") or kind.is_within:
        return "success", 1
    effects = int(reached >= points.index("after the effect"))
    return ("success", effects + 1) if kind.idempotent else ("indeterminate", effects)


def kill_at(scene, point):
    """Kill a process at *point*, ask again, and return the journal."""
    victim = Child(partial(die_at, scene, point))
    scene.expect(-signal.SIGKILL, victim.wait(), f"what was to die {point}")
    ask_all(scene, LEAP)
    return read_journal(scene.journal)


def die_at(scene, point, _begin):
    """Call an operation, and be killed at *point*."""
    process = Process(scene, "victim")
    process.at = partial(die_if_same, point)
    process.store.at = StorePoints(process.at)
    process.ask("charge-1", within=process.new_connection())


def die_if_same(point, reached):
    if reached == point:
        os.kill(os.getpid(), signal.SIGKILL)


class StorePoints:
    """Called by the store, whose transactions are the admission and then the seal."""

    def __init__(self, at):
        self.at = at
        self.transactions = iter(("admission", "seal"))
        self.current = ""

    def __call__(self, point):
        if point == "before begin":
            self.current = next(self.transactions, "eviction")
        self.at(STORE_POINTS[point].format(self.current))
