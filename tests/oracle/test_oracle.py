"""The recorded behaviour of the Ruby gem, replayed by both colours of a run."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from pathlib import Path

import pytest
from differences import DIFFERENCES, NO_ANALOGUE
from recorder import RECORD, recorded, replay, scenarios

for path in sorted(Path(__file__).parent.glob("scenarios_*.py")):
    import_module(path.stem)

NAMES = [each["name"] for each in RECORD["scenarios"]]
REPLAYED = [name for name in NAMES if name not in NO_ANALOGUE]


@pytest.mark.parametrize("color", ["sync", "async"])
@pytest.mark.parametrize("name", REPLAYED)
def test_a_scenario_goes_as_recorded_or_as_said_in_the_table(name, color):
    expected = recorded(name)
    if name in DIFFERENCES:
        expected = altered(expected, DIFFERENCES[name].expected)

    assert unlike(expected, replay(name, awaits=color == "async")) == {}


def test_every_recorded_scenario_is_written_or_has_no_analogue():
    assert len(NAMES) == RECORD["count"] == 113
    assert sorted([*scenarios, *NO_ANALOGUE]) == sorted(NAMES)


def test_the_table_of_differences_names_recorded_scenarios():
    assert set(DIFFERENCES) <= set(REPLAYED)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name, (_, expected) in DIFFERENCES.items()
        for field in expected
    ],
)
def test_every_listed_difference_differs_from_the_record(name, field):
    assert found(recorded(name), field) != DIFFERENCES[name].expected[field]


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_difference_has_a_reason_in_one_sentence(name):
    assert is_a_sentence(DIFFERENCES[name].reason)
    assert DIFFERENCES[name].expected


@pytest.mark.parametrize("name", NO_ANALOGUE)
def test_what_has_no_analogue_says_why_in_one_sentence(name):
    assert is_a_sentence(NO_ANALOGUE[name])


def is_a_sentence(text):
    return text.endswith(".") and text.count(". ") == 0


def found(fields, path):
    """Return the field at *path*, such as ``result.reason`` or ``sleeps``."""
    holder, _, name = path.rpartition(".")
    return (fields[holder] if holder else fields)[name]


def altered(fields, differences):
    """Return *fields* with the values of *differences* at their paths."""
    fields = deepcopy(fields)
    for path, value in differences.items():
        holder, _, name = path.rpartition(".")
        (fields[holder] if holder else fields)[name] = value
    return fields


def unlike(expected, actual):
    """Return each field that is not as expected, with what is and what should be."""
    expected, actual = flat(expected), flat(actual)
    return {
        field: {"expected": expected.get(field), "got": actual.get(field)}
        for field in expected | actual
        if field not in expected
        or field not in actual
        or expected[field] != actual[field]
    }


def flat(fields):
    """Return *fields* with those of the result and of what was raised beside them."""
    flattened = {}
    for name, value in fields.items():
        if name in ("result", "raised") and value is not None:
            flattened |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flattened[name] = value
    return flattened
