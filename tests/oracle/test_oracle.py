"""The recorded behaviour of the Ruby gem, replayed."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from pathlib import Path

import pytest
from differences import DIFFERENCES
from recorder import RECORD, recorded, replay, scenarios

for path in sorted(Path(__file__).parent.glob("scenarios_*.py")):
    import_module(path.stem)

NAMES = [each["name"] for each in RECORD["scenarios"]]


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_goes_as_recorded_or_as_said_in_the_table(name):
    expected = recorded(name)
    if name in DIFFERENCES:
        expected = altered(expected, DIFFERENCES[name].expected)

    assert unlike(expected, replay(name)) == {}


def test_every_recorded_scenario_is_written_and_no_other():
    assert len(NAMES) == RECORD["count"] == 113
    assert sorted(scenarios) == sorted(NAMES)


def test_the_table_of_differences_names_recorded_scenarios():
    assert set(DIFFERENCES) <= set(NAMES)


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
    assert DIFFERENCES[name].reason.endswith(".")
    assert DIFFERENCES[name].reason.count(". ") == 0
    assert DIFFERENCES[name].expected


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
