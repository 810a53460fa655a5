"""The page that compares shows what the script computes, where that is exact."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "explanation" / "beside-other-libraries.md"
SCRIPT = TESTS / "bench" / "comparison.py"


@pytest.fixture(scope="module")
def comparison():
    spec = importlib.util.spec_from_file_location("comparison", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["comparison"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["comparison"]


def shown():
    """The tables of the page: titles, and rows by their first cell."""
    tables = {}
    for part in PAGE.read_text("utf-8").split("### ")[1:]:
        title, _, rest = part.partition("\n")
        lines = [line for line in rest.splitlines() if line.startswith("| ")]
        cells = [
            tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines
        ]
        tables[title] = {row[0]: row for row in cells}
    return tables


def of_cmdx(ways):
    """Keep the ways of cmdx; of an outer and an inner one, the inner one names both."""
    named = [(way, getattr(way, "label", None) or way[1].label) for way in ways]
    return [way for way, label in named if label.startswith("cmdx")]


@pytest.mark.parametrize("part", ["deadline", "jitter", "storm", "nested"])
def test_the_exact_cells_of_cmdx_are_those_of_the_script(comparison, part):
    ways = getattr(comparison, f"{part}_ways")()
    table = getattr(comparison, part)(of_cmdx(ways))
    page = shown()[table.title]

    assert page[""] == table.head
    assert {row[0] for row in page.values() if "cmdx" in row[0]} == {
        row[0] for row in table.rows
    }
    for row in table.rows:
        assert page[row[0]] == row


def test_the_table_of_costs_has_the_shape_the_script_gives_it(comparison):
    table = comparison.overhead(rounds=1)
    page = shown()[table.title]

    assert page[""] == table.head
    assert {row[0] for row in table.rows} <= set(page)
    assert page["a loop by hand"][2::2] == ("1.0", "1.0")


def test_the_page_keeps_the_promises_of_the_library():
    deadline = shown()["A budget of 0.30 s, pauses of 0.25 s"]["cmdx `deadline`"]
    storm = shown()["1000 callers of a dead dependency, 3 retries each"]
    nested = shown()["Three attempts inside three attempts"]

    assert deadline[1:] == ("2", "0.25", "1", "0.20")
    assert int(storm["cmdx with a `RetryBudget`"][1]) <= 1000 * 1.2 + 10
    assert nested['cmdx with `nested="once"`'][1] == "3"
