"""
Jobs survive ``kill -9``: a short run of ``python -m tests.durability.jobs``.

It is a program of its own, since it forks, and must have no threads when it does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from services import postgres_address

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.durability.jobs import judge  # noqa: E402 -- from the root

KILLS = 48


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_no_job_is_lost_or_doubled_and_keys_are_in_order(database):
    if database == "postgresql":
        postgres_address()
    options = [f"--kills={KILLS}", f"--database={database}"]
    command = [sys.executable, "-m", "tests.durability.jobs", *options]
    done = subprocess.run(  # noqa: S603 -- our own program
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    name, jobs, kills, finished, *_ = done.stdout.splitlines()[2].strip("| ").split("|")
    assert name.strip() == database
    assert int(kills) >= KILLS
    assert int(jobs) >= int(finished) > 0


# -- the judge ----------------------------------------------------------------------

FINE = [
    {"what": "asked", "key": "0-0", "of": "a", "once": False},
    {"what": "told", "key": "0-0"},
    {"what": "asked", "key": "0-1", "of": "a", "once": True},
    {"what": "begins", "key": "0-0"},
    {"what": "effect", "key": "0-0"},
    {"what": "begins", "key": "0-1"},
    {"what": "effect", "key": "0-1"},
    {"what": "stands", "key": "0-0", "state": "done", "error": None},
    {"what": "stands", "key": "0-1", "state": "done", "error": None},
]


def test_a_journal_without_problems_is_judged_as_such():
    assert judge(FINE, 1)[1] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines.pop(7), "0-0 was lost"),
        (lambda lines: lines.append(lines[6]), "0-1 may not run twice"),
        (lambda lines: lines.append(lines[3]), "0-0 began after 1 of the same key"),
        (lambda lines: lines.pop(4), "0-0 is done without an effect"),
        (lambda lines: lines[7].update(state="ready"), "0-0 is ready, and has not"),
        (lambda lines: lines[7].update(state="dead"), "0-0 is dead: None"),
        (
            lambda lines: lines.append({"what": "broke", "key": "", "text": "it hung"}),
            "it hung",
        ),
    ],
)
def test_a_broken_promise_is_found(change, problem):
    lines = [dict(line) for line in FINE]
    change(lines)

    _, broken = judge(lines, 1)

    assert [text for text in broken if text.startswith(problem)]
