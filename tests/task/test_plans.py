"""Plans: what packages above make of them is kept, but not for other plans."""

from __future__ import annotations

import pytest

from cmdx import Task
from cmdx.declare import blueprint


@pytest.fixture
def plan():
    class Plain(Task[None]):
        def work(self):
            pass

    return Plain._cmdx_.plan


def pair_of(plan, number):
    """Make a list of something of a plan and a number."""
    return [plan.rolls_back, number]


def test_what_is_derived_is_kept_with_its_plan(plan):
    first = plan.derive(pair_of, 1)

    assert plan.derive(pair_of, 1) is first
    assert plan.derive(pair_of, 2) == [False, 2]


def test_a_plan_with_changes_keeps_nothing_of_the_other(plan):
    plan.derive(pair_of, 1)
    changed = plan.with_changes(rolls_back=True)

    assert changed.derive(pair_of, 1) == [True, 1]
    assert plan.derive(pair_of, 1) == [False, 1]
    assert plan.derive(pair_of, 2) == [False, 2]


def test_a_plan_does_not_keep_more_and_more(plan):
    made = [plan.derive(pair_of, number) for number in range(blueprint.MOST_DERIVED)]
    assert plan.derive(pair_of, 0) is made[0]
    plan.derive(pair_of, -1)

    assert plan.derive(pair_of, 0) is not made[0]
    assert plan.derive(pair_of, 0) == made[0]
