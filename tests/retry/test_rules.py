from __future__ import annotations

import sys

import pytest

from cmdx import RetryRule, Stop, Task, retry_on

pytestmark = pytest.mark.usefixtures("instant")


class Failing(Task[None]):
    """Raises what it is told to, one error for each attempt, then returns."""

    def work(self) -> None:
        plan = self.context.plan
        if self.attempt < len(plan):
            raise plan[self.attempt]


def test_each_rule_has_a_limit_and_a_count_of_its_own(execute):
    @retry_on(TimeoutError, limit=2, rule="network")
    @retry_on(KeyError, limit=1)
    class Charge(Failing):
        pass

    network, other = TimeoutError, KeyError

    assert execute(Charge, plan=[network, other, network]).success
    assert execute(Charge, plan=[other, network, network]).success
    result = execute(Charge, plan=[network, network, other, network, network])
    assert (result.retries, result.stopped) == (3, Stop.EXHAUSTED)
    result = execute(Charge, plan=[other, network, other, network])
    assert (result.retries, result.stopped) == (2, Stop.EXHAUSTED)


def test_each_rule_has_a_delay_of_its_own(execute, instant):
    @retry_on(TimeoutError, delay=0.25, rule="network")
    @retry_on(KeyError, delay=2.0)
    class Charge(Failing):
        pass

    execute(Charge, plan=[TimeoutError, KeyError, TimeoutError])

    assert instant.pauses == [0.25, 2.0, 0.25]


def test_each_rule_has_a_jitter_of_its_own_that_grows_with_its_own_count(
    execute, instant
):
    @retry_on(TimeoutError, delay=1, jitter="exponential", rule="network")
    @retry_on(KeyError, delay=10, max_delay=25, jitter="linear", rule="data")
    @retry_on(ValueError, delay=100)
    class Charge(Failing):
        pass

    network, data, other = TimeoutError, KeyError, ValueError
    execute(Charge, plan=[network, data, other, network, data, network, data, other])

    assert instant.pauses == [1, 10, 100, 2, 20, 4, 25, 100]


@pytest.mark.parametrize(
    ("error", "stopped"), [(TimeoutError, Stop.SUCCESS), (KeyError, Stop.GATE)]
)
def test_each_rule_has_gates_of_its_own(execute, error, stopped):
    @retry_on(TimeoutError, rule="network")
    @retry_on(KeyError, if_=False)
    class Charge(Failing):
        pass

    assert execute(Charge, plan=[error]).stopped is stopped


def test_a_rule_takes_no_options_from_the_unnamed_one():
    @retry_on(KeyError, limit=9, delay=9, max_delay=9, jitter="linear", if_=False)
    @retry_on(TimeoutError, rule="network")
    class Charge(Failing):
        pass

    named, unnamed = Charge.retry_policy.rules

    assert named == RetryRule(name="network", exceptions=(TimeoutError,))
    assert (unnamed.name, unnamed.exceptions, unnamed.limit) == (None, (KeyError,), 9)


def test_a_rule_is_merged_by_name_over_the_ancestors():
    @retry_on(TimeoutError, limit=1, delay=0.25, rule="network")
    @retry_on(ValueError, limit=7)
    class Parent(Failing):
        pass

    @retry_on(KeyError, limit=2, rule="network")
    class Child(Parent):
        pass

    named, unnamed = Child.retry_policy.rules

    assert named == RetryRule(
        name="network", exceptions=(TimeoutError, KeyError), limit=2, delay=0.25
    )
    assert (unnamed.exceptions, unnamed.limit) == ((ValueError,), 7)
    assert Parent.retry_policy.rules[0].limit == 1


def test_a_subclass_may_change_a_rule_by_options_alone(execute):
    @retry_on(TimeoutError, limit=1, rule="network")
    class Parent(Failing):
        pass

    @retry_on(limit=3, rule="network")
    class Child(Parent):
        pass

    plan = [TimeoutError] * 5
    assert execute(Parent, plan=plan).retries == 1
    assert execute(Child, plan=plan).retries == 3


def test_none_restores_the_default_of_an_option_of_a_rule():
    @retry_on(TimeoutError, limit=1, delay=9, rule="network")
    class Parent(Failing):
        pass

    @retry_on(limit=None, rule="network")
    class Child(Parent):
        pass

    [named, _] = Child.retry_policy.rules
    assert (named.limit, named.delay) == (3, 9)


@pytest.mark.filterwarnings("ignore:.*lists no exceptions")
def test_the_options_of_a_rule_leave_the_unnamed_one_alone(execute):
    @retry_on(limit=5, rule="network")
    @retry_on(TimeoutError, limit=1)
    class Charge(Failing):
        pass

    assert execute(Charge, plan=[TimeoutError] * 3).retries == 1
    assert Charge.retry_policy.limit == 1


@pytest.mark.filterwarnings("ignore:.*lists no exceptions")
def test_a_rule_without_exceptions_retries_nothing(execute):
    @retry_on(limit=5, rule="network")
    class Charge(Failing):
        pass

    result = execute(Charge, plan=[TimeoutError])

    assert (result.retries, result.stopped) == (0, Stop.NOT_LISTED)


def test_the_name_none_means_the_unnamed_rule():
    @retry_on(TimeoutError, limit=5, rule=None)
    class Charge(Failing):
        pass

    assert Charge.retry_policy.limit == 5
    assert len(Charge.retry_policy.rules) == 1


def test_a_named_rule_may_stand_alone(execute, retried):
    @retry_on(TimeoutError, limit=2, rule="network")
    class Charge(Failing):
        pass

    result = execute(Charge, plan=[TimeoutError] * 3)

    assert (result.retries, result.stopped) == (2, Stop.EXHAUSTED)
    assert [each["rule"] for each in retried] == ["network", "network"]


# -- which rule decides ---------------------------------------------------------------


def names_of(task):
    return [rule.name for rule in task.retry_policy.rules]


def test_named_rules_are_asked_before_the_unnamed_one(execute):
    @retry_on(TimeoutError, limit=5)
    @retry_on(OSError, limit=1, rule="system")
    class Charge(Failing):
        pass

    assert names_of(Charge) == ["system", None]
    assert execute(Charge, plan=[TimeoutError] * 9).retries == 1


def test_the_outermost_of_several_rules_is_asked_first(execute):
    @retry_on(TimeoutError, limit=1, rule="outer")
    @retry_on(TimeoutError, limit=2, rule="inner")
    class Charge(Failing):
        pass

    assert names_of(Charge) == ["outer", "inner", None]
    assert execute(Charge, plan=[TimeoutError] * 9).retries == 1


def test_the_rule_of_the_nearest_class_is_asked_first(execute):
    @retry_on(TimeoutError, limit=2, rule="general")
    class Parent(Failing):
        pass

    @retry_on(TimeoutError, limit=1, rule="special")
    class Child(Parent):
        pass

    assert names_of(Child) == ["special", "general", None]
    assert execute(Child, plan=[TimeoutError] * 9).retries == 1


def test_a_rule_that_a_nearer_class_speaks_of_is_the_nearer_one():
    @retry_on(TimeoutError, limit=2, rule="second")
    @retry_on(TimeoutError, limit=1, rule="first")
    class Parent(Failing):
        pass

    @retry_on(delay=1, rule="first")
    class Child(Parent):
        pass

    assert names_of(Parent) == ["second", "first", None]
    assert names_of(Child) == ["first", "second", None]


def test_a_rule_that_does_not_list_the_error_is_passed_over(execute):
    @retry_on(KeyError, limit=1, rule="data")
    @retry_on(TimeoutError, limit=2, rule="network")
    @retry_on(ValueError, limit=3)
    class Charge(Failing):
        pass

    errors = (KeyError, TimeoutError, ValueError, IndexError)
    retries = [execute(Charge, plan=[error] * 9).retries for error in errors]

    assert retries == [1, 2, 3, 0]


def test_no_other_rule_takes_over_when_one_is_used_up(execute):
    @retry_on(TimeoutError, limit=1, rule="network")
    @retry_on(TimeoutError, OSError, limit=5)
    class Charge(Failing):
        pass

    result = execute(Charge, plan=[TimeoutError] * 9)

    assert (result.retries, result.stopped) == (1, Stop.EXHAUSTED)


def test_no_other_rule_takes_over_when_a_gate_is_closed(execute):
    @retry_on(TimeoutError, if_=False, rule="network")
    @retry_on(TimeoutError, limit=5)
    class Charge(Failing):
        pass

    result = execute(Charge, plan=[TimeoutError] * 9)

    assert (result.retries, result.stopped) == (0, Stop.GATE)


def test_attempts_and_signals_name_the_rule(execute, retried):
    @retry_on(TimeoutError, rule="network")
    @retry_on(KeyError)
    class Charge(Failing):
        pass

    result = execute(Charge, plan=[TimeoutError, KeyError])

    assert [each["rule"] for each in retried] == ["network", None]
    assert [each["attempt"] for each in retried] == [1, 2]
    assert [each.rule for each in result.attempts] == ["network", None, None]


def test_rules_of_siblings_stay_apart():
    class Parent(Failing):
        pass

    @retry_on(TimeoutError, rule="left")
    class Left(Parent):
        pass

    @retry_on(TimeoutError, rule="right")
    class Right(Parent):
        pass

    assert names_of(Parent) == [None]
    assert names_of(Left) == ["left", None]
    assert names_of(Right) == ["right", None]


def test_misnamed_rules_show_in_the_policy():
    @retry_on(TimeoutError, rule="network")
    class Parent(Failing):
        pass

    @retry_on(limit=5, rule="netwrok")
    class Child(Parent):
        pass

    assert names_of(Child) == ["netwrok", "network", None]


# -- many attempts --------------------------------------------------------------------


def instructions_of(call, *arguments):
    """Count the instructions of Python that a call executes."""
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*arguments)
    finally:
        sys.settrace(before)
    return count


def test_an_attempt_costs_the_same_however_many_came_before():
    @retry_on(TimeoutError, limit=1000, delay=1, jitter="linear", rule="network")
    @retry_on(KeyError, limit=1000, delay=1, rule="data")
    class Charge(Failing):
        pass

    def run(number):
        assert Charge.execute(plan=[TimeoutError, KeyError] * number).success

    run(1)

    assert instructions_of(run, 200) < 11 * instructions_of(run, 20)


def test_a_jitter_is_passed_the_previous_pause_of_its_own_rule(execute):
    passed = []

    def note(rule):
        def jitter(attempt, delay, previous):
            passed.append((rule, attempt, previous))
            return delay + attempt

        return jitter

    @retry_on(TimeoutError, delay=10, jitter=note("network"), rule="network")
    @retry_on(KeyError, delay=20, jitter=note("data"), rule="data")
    @retry_on(ValueError, delay=0)
    class Charge(Failing):
        pass

    network, data, other = TimeoutError, KeyError, ValueError
    execute(Charge, plan=[network, other, data, network, other, network, data])

    assert passed == [
        ("network", 0, None),
        ("data", 0, None),
        ("network", 1, 10),
        ("network", 2, 11),
        ("data", 1, 20),
    ]
