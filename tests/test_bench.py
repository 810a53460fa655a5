"""The table of benchmarks can be made; what it says is not a matter of tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent / "bench" / "run.py"
VERDICTS = {"ok", "over", "absent"}
WITH_TARGETS = [
    "empty task",
    "empty task, async",
    "two failures",
    "fail()",
    "one receiver",
    "4 callbacks, 2 middlewares",
    "nested 3 deep",
    "three inputs",
    "import cmdx, further",
    "workflow of three",
    "parallel of four",
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
