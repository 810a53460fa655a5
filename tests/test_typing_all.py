"""
All four type checkers see exactly the errors that are planted.

mypy and basedpyright belong to the tests; ty and pyrefly are run where installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLANTED = [ROOT / "tests" / "planted" / "inputs.py"]
PROMISES = [ROOT / "tests" / "typing" / "inputs.py"]
OPTIONAL = ("ty", "pyrefly")


def run(*command):
    done = subprocess.run(  # noqa: S603 -- a type checker and our own files
        [sys.executable, "-m", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return done.stdout or done.stderr


def found_in(output, pattern):
    """Collect the lines of the errors that *pattern* finds."""
    return {int(found["line"]) for found in re.finditer(pattern, output, re.MULTILINE)}


def mypy(file, _folder):  # with the usual cache, which knows the library already
    options = ("--strict", "--no-pretty", "--follow-imports=silent")
    output = run("mypy", *options, file)
    assert re.search(r"^(Found|Success)", output, re.MULTILINE), output
    return found_in(output, r"^[^:\n]+:(?P<line>\d+): error: ")


def basedpyright(file, folder):
    settings = {"include": [str(file)], "enableTypeIgnoreComments": False}
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(settings | {"typeCheckingMode": "standard"}))
    options = ("--outputjson", "--pythonpath", sys.executable, "--project", config)
    output = run("basedpyright", *options)
    report = json.loads(output)
    assert report["summary"]["filesAnalyzed"] == 1, output
    return {
        problem["range"]["start"]["line"] + 1
        for problem in report["generalDiagnostics"]
        if problem["severity"] == "error"
    }


def ty(file, _folder):
    options = ("--output-format", "concise", "--python", sys.prefix)
    output = run("ty", "check", *options, file)
    assert re.search(r"^(Found|All checks passed)", output, re.MULTILINE), output
    return found_in(output, r"^[^:\n]+:(?P<line>\d+):\d+: error")


def pyrefly(file, _folder):
    options = ("--preset", "default", "--enabled-ignores", "pyrefly")
    interpreter = ("--python-interpreter-path", sys.executable)
    output = run(
        "pyrefly", "check", *options, *interpreter, "--output-format=json", file
    )
    return {
        problem["line"]
        for problem in json.loads(output)["errors"]
        if problem["severity"] == "error"
    }


@pytest.fixture(
    params=[mypy, basedpyright, ty, pyrefly], ids=lambda call: call.__name__
)
def checker(request):
    name = request.param.__name__
    if name in OPTIONAL and find_spec(name) is None:
        pytest.skip(f"{name} is not installed; it is in the dependency group types")
    assert find_spec(name), f"{name} is needed; it is in the dependency group tests"
    return request.param


def marked(file, mark):
    """Return the numbers of the lines that have *mark* in them."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if mark in line}


@pytest.mark.parametrize(
    "kind", ["missing", "misspelt", "mistyped", "output", "result", "work"]
)
def test_there_are_errors_planted_of_every_kind(kind):
    assert any(marked(file, f"# planted: {kind}") for file in PLANTED)


@pytest.mark.parametrize("file", PLANTED, ids=lambda file: file.name)
def test_every_checker_reports_exactly_what_is_planted(checker, tmp_path, file):
    reported, planted = checker(file, tmp_path), marked(file, "# planted: ")

    assert sorted(planted - reported) == []
    assert sorted(reported - planted) == []


@pytest.mark.parametrize("file", PROMISES, ids=lambda file: file.name)
def test_what_one_checker_is_told_to_ignore_all_of_them_see(checker, tmp_path, file):
    # mypy alone heeds the comments, and reports those that are not needed.
    ignored = set() if checker is mypy else marked(file, "# type: ignore[")

    assert sorted(checker(file, tmp_path) ^ ignored) == []
