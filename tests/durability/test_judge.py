"""Each promise can be broken: small journals that break one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from judge import broken_promises, histories_of
from kinds import KINDS

VOLATILE, IDEMPOTENT, PERSIST, _, WITHIN = KINDS


def effect(token):
    return {"what": "effect", "who": 0, "key": "a", "token": token}


def row(token):
    return {**effect(token), "what": "row"}


def told(answer, token=None, *, who="checker", moment=9):
    """Return a line: a call began and was told its answer at *moment*."""
    telling = {"answer": answer, "began": moment, "ended": moment}
    return {"what": "told", "who": who, "key": "a", "token": token, **telling}


def promises_broken_by(kind, lines):
    (history,) = histories_of(kind, lines)
    return {promise for promise, _ in broken_promises(kind, history)}


KEPT = [
    (VOLATILE, [effect("x"), told("success", "x")]),
    (PERSIST, [effect("x"), told("failed", "x")]),
    (PERSIST, [effect("x"), told("indeterminate")]),
    (PERSIST, [told("indeterminate")]),
    (IDEMPOTENT, [effect("x"), effect("y"), told("success", "y")]),
    (WITHIN, [row("x"), told("success", "x")]),
    (WITHIN, [told("failed", "x")]),
    (
        PERSIST,  # its owner still lived when another call was told that nobody knows
        [
            effect("x"),
            told("indeterminate", who=1, moment=1),
            told("success", "x", who=0, moment=2),
            told("success", "x"),
        ],
    ),
]


@pytest.mark.parametrize(("kind", "lines"), KEPT, ids=range(len(KEPT)))
def test_an_honest_journal_breaks_no_promise(kind, lines):
    assert promises_broken_by(kind, lines) == set()


LOST = [
    (VOLATILE, [effect("x")]),
    (VOLATILE, [effect("x"), told("still running")]),
    (IDEMPOTENT, [effect("x"), told("indeterminate")]),
    (WITHIN, [told("indeterminate")]),
    (PERSIST, [told("success", "x")]),
    (WITHIN, [told("success", "x")]),
]


@pytest.mark.parametrize(("kind", "lines"), LOST, ids=range(len(LOST)))
def test_an_operation_without_answer_or_effect_is_lost(kind, lines):
    assert promises_broken_by(kind, lines) == {"lost"}


DOUBLED = [
    (VOLATILE, [effect("x"), effect("y"), told("success", "y")]),
    (PERSIST, [effect("x"), effect("y"), told("indeterminate")]),
    (WITHIN, [row("x"), row("y"), told("success", "y")]),
]


@pytest.mark.parametrize(("kind", "lines"), DOUBLED, ids=range(len(DOUBLED)))
def test_two_effects_are_doubled_unless_idempotent(kind, lines):
    assert promises_broken_by(kind, lines) == {"doubled"}


FIRST = told("success", "x", who=0, moment=1)
CONTRADICTING = [
    (IDEMPOTENT, [effect("x"), effect("y"), FIRST, told("success", "y")]),
    (VOLATILE, [effect("x"), FIRST, told("indeterminate")]),
    (VOLATILE, [effect("x"), FIRST, told("failed", "x")]),
    (
        PERSIST,
        [effect("x"), FIRST, told("still running", who=1), FIRST, told("success", "x")],
    ),
    (WITHIN, [row("x"), told("failed", "x")]),
]


@pytest.mark.parametrize(
    ("kind", "lines"), CONTRADICTING, ids=range(len(CONTRADICTING))
)
def test_another_answer_after_the_outcome_is_contradicting(kind, lines):
    assert promises_broken_by(kind, lines) == {"contradicting"}
