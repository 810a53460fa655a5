"""
The table of benchmarks can be made, and a row over its target is an error if asked for.

Which rows are over is not a matter of these tests: ``.ci/run bench`` tells.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent / "bench" / "run.py"
VERDICTS = {"ok", "over", "absent"}
WITH_TARGETS = [
    "empty task",
    "empty task, async",
    "two failures",
    "with a deadline",
    "with a budget",
    "fail()",
    "one receiver",
    "4 callbacks, 2 middlewares",
    "nested 3 deep",
    "three inputs",
    "import cmdx, further",
    "workflow of three",
    "parallel of four",
    "four beside 45 MB",
    "renamed beside 20,000 rows",
    "four sleep 50 ms",
]


def table(*options):
    command = [sys.executable, str(BENCH), "--rounds", "1", *options]
    done = subprocess.run(  # noqa: S603 -- our own script
        command, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_round_of_each_benchmark_makes_a_table():
    lines = table()
    head = next(line for line in lines if line.startswith("measured"))
    assert head.split() == ["measured", "ns", "baseline", "ns", "ratio", "target"]
    for name in WITH_TARGETS:
        rows = [line for line in lines if line.startswith(f"{name}  ")]
        verdicts = {row.split()[-1] for row in rows}
        assert verdicts & {"ok", "over"}
        assert verdicts - {"-"} <= VERDICTS


def test_one_benchmark_can_be_asked_for_alone():
    rows = [line for line in table("--only", "fail()") if line.endswith(("ok", "over"))]
    assert [row.split()[0] for row in rows] == ["fail()"]


# -- checking -------------------------------------------------------------------


@pytest.fixture(scope="module")
def measuring():
    path = BENCH.with_name("measuring.py")
    spec = importlib.util.spec_from_file_location("measuring", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["measuring"] = module
    spec.loader.exec_module(module)
    yield module
    module.COMPILED.cleanup()
    del sys.modules["measuring"]


@pytest.fixture
def measure(measuring):
    """Measure a row with a target of 2 whose ratios come out as given."""

    def measure(*ratios):
        class Told(measuring.Row):
            def taken(self, rounds):
                rounds_taken.append(rounds)
                return measuring.Reading(self, upcoming.pop(0), 1)

        rounds_taken, upcoming = [], list(ratios)
        row = Told("told", None, "1", None, at_most=2)
        readings = measuring.measure_again(row.taken(10), 10)
        return readings[-1].verdict, rounds_taken

    return measure


def test_a_row_within_its_target_is_measured_once(measure):
    assert measure(2) == ("ok", [10])


def test_a_row_that_was_over_once_is_within_its_target(measure):
    assert measure(3, 1) == ("ok", [10, 20])
    assert measure(3, 2.5, 1) == ("ok", [10, 20, 40])


def test_a_row_that_is_over_five_times_is_over(measure):
    assert measure(3, 3, 2.5, 3, 2.1, 1) == ("over", [10, 20, 40, 40, 80])


def test_a_row_that_cannot_be_measured_is_not_over(measuring):
    row = measuring.Row("absent", None, "nobody", None, at_most=2)

    readings = measuring.measure_again(row.taken(1), 1)

    assert [reading.verdict for reading in readings] == ["absent"]


def exit_status(at_most, *options):
    """Run the script with one row whose target is *at_most*."""
    program = f"""if True:
        import sys
        sys.path.insert(0, {str(BENCH.parent)!r})
        import run
        run.ROWS[:] = [run.ROWS[0]._replace(at_most={at_most})]
        sys.exit(run.main(["--rounds", "1", *{options!r}]))
    """
    command = [sys.executable, "-c", program]
    done = subprocess.run(  # noqa: S603 -- our own script
        command, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert ("measured again" in done.stdout) == (at_most == 0 and "--check" in options)
    return done.returncode


def test_a_row_over_its_target_is_an_error_if_it_is_checked():
    assert exit_status(0, "--check") == 1
    assert exit_status(1e9, "--check") == 0


def test_a_row_over_its_target_is_only_reported_otherwise():
    assert exit_status(0) == 0
