"""The circuit beside a model that remembers everything and is never clever."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cmdx.middlewares.breaker_state import (
    Condition,
    Phase,
    Thresholds,
    Verdict,
    on_request,
    on_result,
)

RECOVERY = 5.0


class CircuitMachine(RuleBasedStateMachine):
    """Calls come and go while time passes in steps that floats can hold exactly."""

    @initialize(failures=st.integers(1, 4), probes=st.integers(1, 3))
    def begin(self, failures, probes):
        self.thresholds = Thresholds(failures, recovery=RECOVERY, probes=probes)
        self.condition = Condition()
        self.now = 0.0
        self.tickets = []
        # The model: what is known, in words.
        self.phase = "closed"
        self.era = 0
        self.row = 0
        self.since = 0.0
        self.round_of_probes = 0
        self.let_through = []  # of this round of probes
        self.good = 0

    @rule(steps=st.integers(1, 24))
    def time_passes(self, steps):
        self.now += steps / 4

    @rule()
    def a_call_asks(self):
        if self.phase != "closed" and self.now >= self.since + RECOVERY:
            if self.phase == "open":
                self.enter("half_open")
            self.since = self.now
            self.round_of_probes += 1
            self.let_through = []
        full = len(self.let_through) + self.good >= self.thresholds.probes
        refused = self.phase == "open" or (self.phase == "half_open" and full)

        self.condition, answer = on_request(self.condition, self.thresholds, self.now)

        assert (answer.ticket is None) == refused
        if refused:
            assert answer.wait == self.since + RECOVERY - self.now
            assert answer.wait > 0
            return
        call = (answer.ticket, self.era, self.round_of_probes, object())
        self.tickets.append(call)
        if self.phase == "half_open":
            self.let_through.append(call)

    @rule(data=st.data(), verdict=st.sampled_from(Verdict))
    def a_call_ends(self, data, verdict):
        if not self.tickets:
            return
        number = data.draw(st.integers(0, len(self.tickets) - 1))
        call = self.tickets.pop(number)
        before = self.condition
        self.condition = on_result(
            self.condition, self.thresholds, call[0], verdict, self.now
        )
        if call[1] != self.era:
            assert self.condition == before
            return
        if call in self.let_through:
            self.let_through.remove(call)
        self.learn(verdict)

    def learn(self, verdict):
        if verdict is Verdict.UNKNOWN:
            return
        if self.phase == "closed":
            self.row = self.row + 1 if verdict is Verdict.BAD else 0
            if self.row == self.thresholds.failures:
                self.enter("open")
        elif verdict is Verdict.BAD:
            self.enter("open")
        else:
            self.good += 1
            if self.good == self.thresholds.probes:
                self.enter("closed")

    def enter(self, phase):
        self.phase = phase
        self.era += 1
        self.row = self.good = 0
        self.let_through = []
        self.since = self.now

    @invariant()
    def the_phases_agree(self):
        assert self.condition.phase.value == self.phase

    @invariant()
    def there_are_never_more_probes_than_allowed(self):
        assert 0 <= self.condition.probing <= self.thresholds.probes
        if self.condition.phase is Phase.HALF_OPEN:
            assert self.condition.probing == len(self.let_through)
            assert self.condition.passed < self.thresholds.probes


CircuitMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestCircuit = CircuitMachine.TestCase


@pytest.mark.parametrize("verdict", Verdict)
def test_what_is_decided_changes_nothing_it_was_given(verdict):
    condition, thresholds = Condition(), Thresholds(1)
    before = repr(condition)
    later, answer = on_request(condition, thresholds, 0.0)
    on_result(later, thresholds, answer.ticket, verdict, 0.0)

    assert repr(condition) == before
