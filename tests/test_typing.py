"""The promises in ``tests/typing`` are kept, as mypy sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted((HERE / "typing").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_right_uses_pass_and_wrong_uses_are_flagged(path):
    # An ignored error that does not occur is an error to mypy's strict mode.
    options = ["--strict", "--follow-imports=silent"]
    command = [sys.executable, "-m", "mypy", *options, str(path)]

    done = subprocess.run(  # noqa: S603
        command, cwd=HERE.parent, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_something_to_check():
    assert {"core", "decorators"} <= {path.stem for path in FILES}
