"""A worker that is killed loses no message."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kills import SAFE
from kills import __file__ as program
from services import rabbitmq_address, redis_address


@pytest.mark.parametrize("place", SAFE)
def test_workers_that_are_killed_lose_no_message(place):
    rabbitmq_address(), redis_address()

    done = subprocess.run(  # noqa: S603 -- ours; a process without threads can fork
        [sys.executable, program, "--only", place],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    place_, messages, kills, *_, lost = (
        done.stdout.splitlines()[-1].strip("| ").split(" | ")
    )
    assert (place_, messages, kills, lost) == (place, "100", "6", "0")
