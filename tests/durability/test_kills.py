"""
Operations survive ``kill -9``: a short run of ``python -m tests.durability``.

It is a program of its own, since it forks, and must have no threads when it does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from services import postgres_address

KILLS = 150
POINTS = 4 * 9 + 10
"""Nine of each policy, and ten with ``within=``."""

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def run(*options):
    """Return the exit status of the program, and what it has found."""
    command = [sys.executable, "-m", "tests.durability", "--json", *options]
    done = subprocess.run(  # noqa: S603 -- our own program
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request):
    if request.param == "postgresql":
        postgres_address()
    return request.param


def test_kills_lose_nothing_double_nothing_and_contradict_nobody(database):
    status, found = run("--databases", database, "--kills", str(KILLS))

    assert (status, found["broken"]) == (0, [])
    assert sum(row["kills"] for row in found["points"]) == POINTS
    assert sum(row["kills"] for row in found["random"]) == KILLS
    assert all(row["told"] for row in found["random"])
    within = found["random"][-1]
    assert 0 < within["exactly one"] == within["succeeded"] == within["effects"]
    # The run was not peaceful.
    assert sum(row["amid calls"] for row in found["random"]) > KILLS / 4
    assert sum(row["indeterminate"] for row in found["random"]) > 3


PLANTED = [
    ("run-again", "doubled"),
    ("tell-before-seal", "contradicting"),
    ("seal-apart", "doubled"),
]


@pytest.mark.parametrize(("plant", "promise"), PLANTED)
def test_kills_at_named_points_find_a_planted_bug(plant, promise):
    status, found = run("--databases", "sqlite", "--kills", "0", "--plant", plant)

    assert status == 1
    assert promise in {broken["promise"] for broken in found["broken"]}


def test_random_kills_find_a_planted_bug():
    options = ("--no-points", "--kills", "50", "--plant", "tell-before-seal")
    status, found = run("--databases", "sqlite", *options)

    assert status == 1
    assert {broken["promise"] for broken in found["broken"]} == {"contradicting"}
