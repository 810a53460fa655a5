"""
Around hooks: generator methods around inputs, work and outputs.

What they have in common with middlewares is in ``test_wrappers.py``.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest

from cmdx import (
    Outcome,
    Status,
    Task,
    around_execution,
    before_execution,
    on_skipped,
    on_success,
)


class Noting(Task[str]):
    """Note down what happens."""

    def note(self, event):
        self.context.setdefault("events", []).append(event)

    def work(self):
        self.note("work")
        return "done"


def test_its_yield_evaluates_to_the_outcome_of_a_success(run):
    outcomes = []

    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            outcomes.append((yield))

    run(Wrapped)

    (outcome,) = outcomes
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.reason) == (Status.SUCCESS, None)


def test_around_hooks_nest_in_the_order_they_are_defined_ancestors_outside(run):
    class Parent(Noting):
        @around_execution
        def zebra(self):
            self.note("zebra opens")
            yield
            self.note("zebra closes")

    class Child(Parent):
        @around_execution
        def mole(self):
            self.note("mole opens")
            yield
            self.note("mole closes")

        @around_execution
        def ant(self):
            self.note("ant opens")
            yield
            self.note("ant closes")

    assert run(Child).context.events == [
        "zebra opens",
        "mole opens",
        "ant opens",
        "work",
        "ant closes",
        "mole closes",
        "zebra closes",
    ]


def test_an_override_keeps_the_hook_and_none_removes_it(run):
    class Parent(Noting):
        @around_execution
        def wrap(self):
            self.note("parent")
            yield

    class Child(Parent):
        def wrap(self):
            self.note("child")
            yield from super().wrap()

    class Bare(Parent):
        wrap = None

    assert run(Child).context.events == ["child", "parent", "work"]
    assert run(Bare).context.events == ["work"]


def test_a_halt_after_the_yield_decides_which_callbacks_run(run):
    class Wrapped(Noting):
        @around_execution
        def outer(self):
            outcome = yield
            self.note(f"outer sees {outcome.reason}")

        @around_execution
        def halt(self):
            yield
            self.skip("second thoughts")

        @on_success
        def thank(self):
            self.note("thank")

        @on_skipped
        def shrug(self):
            self.note("shrug")

    result = run(Wrapped)

    assert (result.status, result.reason) == ("skipped", "second thoughts")
    assert result.context.events == ["work", "outer sees second thoughts", "shrug"]


# -- with other hooks ---------------------------------------------------------------


def test_callbacks_before_and_after_run_outside(run):
    class Wrapped(Noting):
        @on_success
        def thank(self):
            self.note("thank")

        @around_execution
        def wrap(self):
            self.note("opens")
            yield
            self.note("closes")

        @before_execution
        def prepare(self):
            self.note("prepare")

    assert run(Wrapped).context.events == [
        "prepare",
        "opens",
        "work",
        "closes",
        "thank",
    ]


@pytest.mark.parametrize("was_run", [True, False])
def test_an_around_hook_can_be_patched(was_run):
    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            self.note("opens")
            yield

    def replacement(task):
        task.note("patched")
        yield

    if was_run:
        Wrapped.execute()
    with patch.object(Wrapped, "wrap", replacement):
        assert Wrapped.execute().context.events == ["patched", "work"]
    assert Wrapped.execute().context.events == ["opens", "work"]
