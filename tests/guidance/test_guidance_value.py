from __future__ import annotations

import math
import pickle

import attrs
import pytest

from cmdx import DefinitionError
from cmdx.guidance import Guidance, Strategy, Unit

FIXED = Guidance(True, "fixed", 5)
EXPONENTIAL = Guidance(True, "exponential", 5)
IMMEDIATE = Guidance(True, "immediate")


# -- the value ------------------------------------------------------------------------


def test_a_guidance_is_a_value():
    guidance = Guidance(True, "fixed", 60, 3)

    assert guidance == Guidance(True, Strategy.FIXED, 60.0, 3)
    assert guidance != Guidance(True, "fixed", 60, 2)
    assert hash(guidance) == hash(Guidance(True, "fixed", 60, 3))
    assert pickle.loads(pickle.dumps(guidance)) == guidance
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        guidance.allowed = False


def test_a_guidance_prints_as_it_is_made():
    written = "Guidance(allowed=True, strategy='fixed', after=60, max_attempts=3)"

    assert repr(Guidance(True, "fixed", 60, 3)) == written


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"allowed": 1}, "allowed"),
        ({"allowed": None}, "allowed"),
        ({"strategy": "linear"}, "strategy"),
        ({"strategy": 5}, "strategy"),
        ({"after": -1}, "after"),
        ({"after": math.nan}, "after"),
        ({"after": -math.inf}, "after"),
        ({"after": "5"}, "after"),
        ({"after": True}, "after"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"unit": "hour"}, "unit"),
    ],
    ids=str,
)
def test_wrong_values_are_refused(fields, named):
    with pytest.raises(DefinitionError, match=f"Guidance: {named} must be"):
        Guidance(**{"allowed": True, **fields})


# -- on the wire ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guidance", "data"),
    [
        (
            Guidance(True, "exponential", 1, 5),
            {
                "allowed": True,
                "strategy": "exponential",
                "after": {"value": 1, "unit": "second"},
                "max_attempts": 5,
            },
        ),
        (
            Guidance(True, "fixed", 60, 3),
            {
                "allowed": True,
                "strategy": "fixed",
                "after": {"value": 60, "unit": "second"},
                "max_attempts": 3,
            },
        ),
        (
            Guidance(True, "immediate", None, 1),
            {"allowed": True, "strategy": "immediate", "max_attempts": 1},
        ),
        (
            Guidance(True, "fixed", 45),
            {
                "allowed": True,
                "strategy": "fixed",
                "after": {"value": 45, "unit": "second"},
            },
        ),
        (
            Guidance(True, "fixed", 120, unit="minute"),
            {
                "allowed": True,
                "strategy": "fixed",
                "after": {"value": 2, "unit": "minute"},
            },
        ),
        (Guidance(True), {"allowed": True}),
        (Guidance(False), {"allowed": False}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else repr(value),
)
def test_the_wire_form_is_that_of_the_seed_both_ways(guidance, data):  # R-003-2
    assert guidance.to_wire() == data
    assert Guidance.from_wire(data) == guidance
    assert Guidance.from_wire(data).to_wire() == data


def test_a_refusal_says_nothing_else_on_the_wire():  # R-003-4, R-003-11
    refusal = Guidance.build(
        allowed=False, strategy="fixed", after_value=5, max_attempts=3
    )

    assert refusal.to_wire() == {"allowed": False}


def test_an_immediate_retry_has_no_wait_on_the_wire():  # R-003-7
    assert "after" not in Guidance(True, "immediate", 0, 1).to_wire()


def test_what_is_not_set_is_left_out_and_zero_is_set():  # R-003-11
    assert Guidance.build(allowed=True).to_wire() == {"allowed": True}
    built = Guidance.build(allowed=True, strategy="fixed", after_value=0)
    assert built.to_wire()["after"] == {"value": 0, "unit": "second"}
    assert Guidance(True, max_attempts=0).to_wire() == {
        "allowed": True,
        "max_attempts": 0,
    }


def test_the_builder_takes_what_is_written_on_the_wire():  # R-003-11
    built = Guidance.build(
        allowed=True,
        strategy="exponential",
        after_value=5,
        after_unit="minute",
        max_attempts=10,
    )

    assert built.after == 300
    assert built.to_wire() == {
        "allowed": True,
        "strategy": "exponential",
        "after": {"value": 5, "unit": "minute"},
        "max_attempts": 10,
    }


def test_a_wait_is_rounded_up_on_the_wire_and_never_down():
    assert Guidance(True, "fixed", 0.2).to_wire()["after"]["value"] == 1
    assert Guidance(True, "fixed", 90, unit="minute").to_wire()["after"] == {
        "value": 90,
        "unit": "second",
    }


def test_the_unit_counts():  # R-003-19
    after = {"value": 2, "unit": "minute"}
    read = Guidance.from_wire({"allowed": True, "strategy": "fixed", "after": after})

    assert (read.after, read.unit) == (120, Unit.MINUTE)
    assert read == Guidance(True, "fixed", 120)


def test_an_entry_is_read_like_its_data():
    entry = {"urn": "urn:forrst:ext:retry", "data": {"allowed": True}}

    assert Guidance.from_wire(entry) == Guidance(True)


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "retry",
        [],
        {},
        {"allowed": None},
        {"allowed": "yes"},
        {"allowed": 1},
        {"urn": "urn:forrst:ext:retry"},
        {"urn": "x", "data": 5},
    ],
    ids=repr,
)
def test_what_does_not_say_whether_is_no_guidance(data):
    assert Guidance.from_wire(data) is None


@pytest.mark.parametrize(
    "unreadable",
    [
        {"strategy": "linear"},
        {"strategy": ["fixed"]},
        {"after": "soon"},
        {"after": {"value": -1, "unit": "second"}},
        {"after": {"value": True, "unit": "second"}},
        {"after": {"value": 1, "unit": "fortnight"}},
        {"after": {"unit": "second"}},
        {"after": [5]},
        {"max_attempts": "3"},
        {"max_attempts": -1},
        {"max_attempts": True},
        {"max_attempts": 2.5},
    ],
    ids=repr,
)
def test_a_field_that_cannot_be_read_counts_as_not_given(unreadable):
    assert Guidance.from_wire({"allowed": True, **unreadable}) == Guidance(True)


def test_a_wait_without_a_unit_is_in_seconds():
    assert Guidance.from_wire({"allowed": True, "after": {"value": 7}}).after == 7


def test_a_wait_too_large_to_read_is_written_as_the_longest_pause():
    endless = Guidance(True, "fixed", 10**400)

    assert endless.after == math.inf
    assert endless.to_wire()["after"] == {"value": 10**9, "unit": "second"}
    assert Guidance(True, "fixed", math.inf, unit="minute").to_wire() == (
        endless.to_wire()
    )


# -- what it means --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guidance", "permitted"),
    [
        (Guidance(True, max_attempts=3), [True, True, False, False]),
        (Guidance(True, max_attempts=1), [False, False, False, False]),
        (Guidance(True, max_attempts=0), [False, False, False, False]),
        (Guidance(True), [True, True, True, True]),
        (Guidance(False), [False, False, False, False]),
        (Guidance(False, max_attempts=9), [False, False, False, False]),
    ],
    ids=repr,
)
def test_attempts_are_counted_in_total(guidance, permitted):  # R-003-17, R-003-18
    assert [guidance.permits(attempts) for attempts in (1, 2, 3, 4)] == permitted


@pytest.mark.parametrize(
    ("guidance", "pauses"),
    [
        (IMMEDIATE, [0, 0, 0, 0]),
        (FIXED, [5, 5, 5, 5]),
        (EXPONENTIAL, [5, 10, 20, 40]),
        (Guidance(True, "fixed"), [1, 1, 1, 1]),
        (Guidance(True, "exponential"), [1, 2, 4, 8]),
        (Guidance(True, "fixed", 0), [0, 0, 0, 0]),
        (Guidance(True, "exponential", 0), [0, 0, 0, 0]),
        (Guidance(True, None, 5), [5, 5, 5, 5]),
        (Guidance(True, None, 0), [0, 0, 0, 0]),
        (Guidance(True), [1, 2, 4, 8]),
    ],
    ids=repr,
)
def test_the_strategy_says_how_pauses_go_on(guidance, pauses):  # R-003-19, R-003-20
    assert [guidance.pause_before(retry) for retry in (1, 2, 3, 4)] == pauses


def test_growth_can_be_ended_but_a_plain_wait_is_never_shortened():  # R-003-25
    capped = [EXPONENTIAL.pause_before(retry, longest=12) for retry in (1, 2, 3, 4)]

    assert capped == [5, 10, 12, 12]
    assert FIXED.pause_before(1, longest=2) == 5
    assert Guidance(True, "exponential", 600).pause_before(3, longest=300) == 600


@pytest.mark.parametrize(
    ("strategy", "pause"),
    [
        ("fixed", math.inf),
        ("exponential", math.inf),
        (None, math.inf),
        ("immediate", 0),
    ],
)
def test_an_infinite_wait_stays_infinite(strategy, pause):
    assert Guidance(True, strategy, math.inf).pause_before(1, longest=300) == pause


@pytest.mark.parametrize("retry", [31, 1100, 10**9])
def test_growth_saturates_instead_of_overflowing(retry):
    assert math.isfinite(Guidance(True, "exponential", 1e300).pause_before(retry))
    assert EXPONENTIAL.pause_before(retry) == Guidance(
        True, "exponential", 5
    ).pause_before(31)
