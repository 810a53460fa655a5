from __future__ import annotations

import inspect
import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import attrs
import pytest

from cmdx import (
    DefinitionError,
    RetryPolicy,
    RetryRule,
    Task,
    retriers,
    retry_on,
)

pytestmark = pytest.mark.usefixtures("instant")


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        raise self.context.get("error", TimeoutError)("down")


def test_a_task_without_a_declaration_is_not_retried(execute, instant):
    result = execute(Down)

    assert (result.failed, result.retries, instant.pauses) == (True, 0, [])


@pytest.mark.filterwarnings("ignore:.*lists no exceptions")
def test_options_without_an_exception_retry_nothing(execute, instant):  # R-004-1
    @retry_on(limit=5, delay=1.0, jitter="linear", if_=True)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert (result.retries, instant.pauses) == (0, [])


@pytest.mark.filterwarnings("ignore:.*lists no exceptions")
def test_retry_on_without_anything_retries_nothing(execute):  # R-004-1
    @retry_on()
    class Charge(Down):
        pass

    assert execute(Charge).retries == 0
    assert Charge.retry_policy == Down.retry_policy


def test_a_rule_that_retries_nothing_is_a_warning_at_the_line_that_uses_it():
    @retry_on(limit=2)
    class Charge(Down):
        pass

    with pytest.warns(UserWarning, match="lists no") as warned:
        Charge.execute()
    here = inspect.currentframe().f_lineno - 1

    (warning,) = warned
    assert (warning.filename, warning.lineno) == (__file__, here)
    assert str(warning.message) == (
        f"{Charge.__qualname__}: @retry_on lists no exceptions, so nothing is retried. "
        "List them: @retry_on(TimeoutError, ...)."
    )


def test_a_misspelt_rule_is_a_warning_that_names_the_right_one():
    @retry_on(TimeoutError, rule="network", delay=0)
    class Parent(Down):
        pass

    @retry_on(limit=5, rule="netwrok")
    class Child(Parent):
        pass

    words = r"rule='netwrok' lists no .*did you mean 'network'\?"
    with pytest.warns(UserWarning, match=words):
        assert Child.execute().retries == 3


def test_options_that_are_meant_for_other_exceptions_are_no_warning(execute):
    @retry_on(limit=5, delay=0)  # what tasks derived from it have in common
    class Base(Down):
        pass

    class Plain(Base):
        pass

    @retry_on(TimeoutError)
    @retry_on(limit=1)
    class Retried(Base):
        pass

    @retry_on(limit=0)
    class Disabled(Retried):
        pass

    @retry_on(limit=0)
    class Never(Down):
        pass

    tasks = (Plain, Retried, Disabled, Never)
    assert [execute(task).retries for task in tasks] == [0, 1, 0, 0]


def test_by_default_work_is_tried_four_times_half_a_second_apart(execute, instant):
    calls = []  # R-004-2

    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            raise TimeoutError

    result = execute(Charge)

    assert calls == [0, 1, 2, 3]
    assert result.retries == 3
    assert instant.pauses == [0.5, 0.5, 0.5]


DEFAULTS = {
    "limit": 3,
    "delay": 0.5,
    "max_delay": None,
    "jitter": None,
    "if_": None,
    "unless": None,
}
OTHERS = {
    "limit": 7,
    "delay": 0.25,
    "max_delay": 9.0,
    "jitter": "linear",
    "if_": "_always",
    "unless": "_never",
}


@pytest.mark.parametrize(("option", "default"), DEFAULTS.items())
def test_each_option_has_a_default(option, default):  # R-004-2
    @retry_on(TimeoutError)
    class Charge(Down):
        pass

    assert getattr(Charge.retry_policy, option) == default


@pytest.mark.parametrize("option", DEFAULTS)
def test_none_restores_the_default_of_one_option_alone(option):  # R-004-2
    @retry_on(TimeoutError, **OTHERS)
    class Parent(Down):
        pass

    @retry_on(**{option: None})
    class Child(Parent):
        pass

    effective = {name: getattr(Child.retry_policy, name) for name in DEFAULTS}
    assert effective == {**OTHERS, option: DEFAULTS[option]}
    assert Child.retry_policy.exceptions == (TimeoutError,)


@pytest.mark.parametrize("option", DEFAULTS)
def test_none_on_the_first_declaration_means_the_default(option):  # R-004-2
    @retry_on(TimeoutError, **{option: None})
    class Charge(Down):
        pass

    assert getattr(Charge.retry_policy, option) == DEFAULTS[option]


@pytest.mark.parametrize("option", ["limit", "delay", "max_delay"])
def test_zero_is_a_value_and_not_the_default(option):  # R-004-2
    @retry_on(TimeoutError, **OTHERS)
    class Parent(Down):
        pass

    @retry_on(**{option: 0})
    class Child(Parent):
        pass

    assert getattr(Child.retry_policy, option) == 0


def test_a_limit_of_zero_disables_retrying(execute, instant):  # R-004-2
    @retry_on(TimeoutError, limit=0)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert (result.retries, instant.pauses) == (0, [])


def test_collections_of_exceptions_are_flattened(execute):  # R-004-3
    @retry_on([TimeoutError, (KeyError,)], {ValueError}, frozenset({LookupError}))
    class Charge(Down):
        pass

    assert Charge.retry_policy.exceptions == (
        TimeoutError,
        KeyError,
        ValueError,
        LookupError,
    )
    assert execute(Charge, error=KeyError).retries == 3


def test_exceptions_are_united_in_order_and_without_duplicates():  # R-004-3
    @retry_on(KeyError, TimeoutError, KeyError, limit=1)
    class Parent(Down):
        pass

    @retry_on(ValueError, TimeoutError)
    class Child(Parent):
        pass

    assert Parent.retry_policy.exceptions == (KeyError, TimeoutError)
    assert Child.retry_policy.exceptions == (KeyError, TimeoutError, ValueError)


def test_declarations_of_one_class_accumulate_and_the_outer_one_wins():  # R-004-4
    @retry_on(KeyError, limit=5, delay=2.0)
    @retry_on(TimeoutError, limit=1, jitter="linear")
    class Charge(Down):
        pass

    policy = Charge.retry_policy
    assert policy.exceptions == (TimeoutError, KeyError)
    assert (policy.limit, policy.delay, policy.jitter) == (5, 2.0, "linear")


@pytest.mark.parametrize("error", [TimeoutError, KeyError])
def test_one_set_of_options_governs_all_exceptions_of_a_class(execute, instant, error):
    @retry_on(KeyError, limit=2, delay=2.0)  # R-004-4
    @retry_on(TimeoutError, limit=1, delay=1.0)
    class Charge(Down):
        pass

    assert execute(Charge, error=error).retries == 2
    assert instant.pauses == [2.0, 2.0]


def test_a_limit_is_shared_by_the_exceptions_of_a_class(execute):  # R-004-4
    @retry_on(TimeoutError, KeyError, limit=3)
    class Charge(Task[None]):
        def work(self) -> None:
            raise (TimeoutError, KeyError)[self.attempt % 2]

    assert execute(Charge).retries == 3


def test_a_subclass_adds_to_the_exceptions_it_inherits(execute):  # R-004-5
    @retry_on(TimeoutError, limit=2)
    class Parent(Down):
        pass

    @retry_on(ConnectionError)
    class Child(Parent):
        pass

    assert execute(Parent, error=ConnectionError).retries == 0
    assert execute(Child, error=ConnectionError).retries == 2
    assert execute(Child, error=TimeoutError).retries == 2


def test_a_subclass_changes_options_key_by_key(execute, instant):  # R-004-5
    @retry_on(TimeoutError, limit=1, delay=0.25)
    class Parent(Down):
        pass

    @retry_on(TimeoutError, limit=2)
    class Child(Parent):
        pass

    execute(Child)

    assert instant.pauses == [0.25, 0.25]


def test_parent_and_siblings_stay_as_they_were(execute):  # R-004-5
    @retry_on(TimeoutError, limit=1)
    class Parent(Down):
        pass

    class Sibling(Parent):
        pass

    before = Parent.retry_policy

    @retry_on(KeyError, limit=2, delay=0, jitter="linear", if_=True)
    class Child(Parent):
        pass

    assert execute(Child, error=KeyError).retries == 2
    assert before == Parent.retry_policy == Sibling.retry_policy
    assert before.exceptions == (TimeoutError,)
    for task in (Parent, Sibling):
        assert execute(task, error=KeyError).retries == 0
        assert execute(task, error=TimeoutError).retries == 1


def test_a_grandchild_sees_the_declarations_of_all_ancestors(execute, instant):
    @retry_on(TimeoutError, limit=1, delay=0.25)  # R-004-5
    class Grandparent(Down):
        pass

    @retry_on(KeyError, limit=2)
    class Parent(Grandparent):
        pass

    class Child(Parent):
        pass

    assert execute(Child, error=TimeoutError).retries == 2
    assert instant.pauses == [0.25, 0.25]
    assert execute(Child, error=KeyError).retries == 2


def test_of_several_bases_the_first_one_wins():  # R-004-5
    class Base(Down):
        pass

    @retry_on(TimeoutError, limit=1, delay=1.0)
    class Left(Base):
        pass

    @retry_on(KeyError, limit=2, delay=2.0, max_delay=8.0)
    class Right(Base):
        pass

    class Child(Left, Right):
        pass

    policy = Child.retry_policy
    assert policy.exceptions == (KeyError, TimeoutError)
    assert (policy.limit, policy.delay, policy.max_delay) == (1, 1.0, 8.0)


def test_a_child_that_has_run_sees_what_its_parent_declares_later(execute):
    class Parent(Down):  # R-004-5, as the contract has it
        pass

    class Child(Parent):
        pass

    class Grandchild(Child):
        pass

    assert [execute(task).retries for task in (Child, Grandchild)] == [0, 0]

    retry_on(TimeoutError, limit=2)(Parent)

    assert [execute(task).retries for task in (Child, Grandchild)] == [2, 2]
    assert Child.retry_policy.exceptions == (TimeoutError,)


def test_a_declaration_counts_that_comes_while_the_class_is_first_used(execute):
    class Late:  # as another thread would
        is_told = False

        def __get__(self, task, cls):
            if not self.is_told:
                self.is_told = True
                retry_on(TimeoutError, limit=2)(cls)
            return lambda: None

    class Charge(Down):
        rollback = Late()

    assert execute(Charge).retries == 2


def test_a_child_keeps_its_own_word_over_a_later_one_of_its_parent(execute, instant):
    @retry_on(TimeoutError, limit=1)  # R-004-5
    class Parent(Down):
        pass

    @retry_on(limit=4)
    class Child(Parent):
        pass

    retry_on(limit=2, delay=0.25)(Parent)

    assert execute(Child).retries == 4
    assert instant.pauses == [0.25] * 4


def test_options_alone_apply_on_a_fresh_subclass(execute):  # R-004-6
    @retry_on(TimeoutError, limit=1)
    class Parent(Down):
        pass

    @retry_on(limit=2)
    class Child(Parent):
        pass

    assert execute(Child).retries == 2


def test_options_alone_apply_a_second_time_in_the_same_class(execute, instant):
    @retry_on(delay=0.25)  # R-004-6
    @retry_on(limit=2)
    @retry_on(TimeoutError, limit=1)
    class Charge(Down):
        pass

    assert execute(Charge).retries == 2
    assert instant.pauses == [0.25, 0.25]


def test_the_policy_of_a_class_can_be_read():  # R-004-7
    gate = lambda _task: True

    @retry_on(TimeoutError, limit=5, delay=1, max_delay=8, jitter="linear", if_=gate)
    class Charge(Down):
        pass

    policy = Charge.retry_policy
    rule = RetryRule(
        exceptions=(TimeoutError,),
        limit=5,
        delay=1,
        max_delay=8,
        jitter="linear",
        if_=gate,
    )
    assert isinstance(policy, RetryPolicy)
    assert policy.rules == (rule,)
    assert policy.default == rule
    assert (policy.limit, policy.if_, policy.unless) == (5, gate, None)


def test_the_policy_of_a_class_without_declarations_lists_nothing():
    assert Down.retry_policy.exceptions == ()
    assert Down.retry_policy.limit == 3


def test_a_policy_has_only_options_to_read():
    with pytest.raises(AttributeError, match="limt"):
        _ = Down.retry_policy.limt


def test_a_policy_cannot_be_changed():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Down.retry_policy.rules = ()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Down.retry_policy.default.limit = 5


def test_a_callable_jitter_is_inherited_until_it_is_replaced(execute, instant):
    @retry_on(TimeoutError, limit=1, jitter=lambda: 0.125)  # R-004-8
    class Parent(Down):
        pass

    @retry_on(KeyError)
    class Inheriting(Parent):
        pass

    @retry_on(jitter=lambda: 0.25)
    class Replacing(Parent):
        pass

    @retry_on(jitter=None)
    class Removing(Parent):
        pass

    for task in (Inheriting, Replacing, Removing):
        execute(task)

    assert instant.pauses == [0.125, 0.25, 0.5]


def test_retry_on_hands_back_the_class_it_decorates():
    assert retry_on(TimeoutError)(charge := type("Charge", (Down,), {})) is charge


# -- misuse ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [("limt", "limit"), ("if", "if_"), ("maxdelay", "max_delay"), ("jiter", "jitter")],
)
def test_an_unknown_option_is_refused_with_a_suggestion(keyword, meant):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{keyword: 3})

    assert f"no option {keyword!r}; did you mean {meant!r}?" in str(refused.value)


def test_an_unknown_option_without_a_likeness_gets_the_list_of_options():
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, colour="red")

    message = str(refused.value)
    assert "'colour'" in message
    assert "did you mean" not in message
    for option in (*DEFAULTS, "rule", "deadline", "budget", "guided", "nested"):
        assert option in message


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("max_attempts attempts max_tries tries stop times", "`limit`"),
        ("max_retries retries", "`limit`"),
        ("wait wait_initial countdown default_retry_delay interval", "`delay`"),
        ("wait_max max_wait retry_backoff_max backoff_max", "`max_delay`"),
        ("backoff retry_backoff factor wait_exp_base strategy", "`jitter`"),
        ("wait_jitter retry_jitter", "`jitter`"),
        ("exceptions on autoretry_for", "positional arguments: `retry_on(TimeoutE"),
        ("timeout max_time", "`deadline`"),
        ("when condition should_retry predicate", "`if_`"),
        ("giveup", "`unless`"),
    ],
)
def test_the_words_of_other_libraries_lead_to_the_option(words, meant):
    for word in words.split():
        with pytest.raises(DefinitionError) as refused:
            retry_on(TimeoutError, **{word: 3})

        message = str(refused.value)
        assert f"retry_on has no option {word!r}; use {meant}" in message
        assert "Valid options: limit, delay" in message


def test_total_attempts_are_told_from_retries():
    with pytest.raises(DefinitionError, match=r"after the first call.*one less"):
        retry_on(TimeoutError, max_attempts=5)


def test_retry_on_above_a_class_needs_parentheses():
    with pytest.raises(DefinitionError) as refused:
        retry_on(Down)

    assert "got the task class Down" in str(refused.value)
    assert "write `@retry_on(...)`" in str(refused.value)
    assert "list Down.Fault" in str(refused.value)


@pytest.mark.parametrize(
    "listed",
    [int, object, TimeoutError(), "TimeoutError", 3, None, [int], ({"a": 1},)],
    ids=repr,
)
def test_only_classes_of_exceptions_can_be_listed(listed):
    with pytest.raises(DefinitionError) as refused:
        retry_on(KeyError, listed)

    message = str(refused.value)
    assert "retry_on takes exception classes" in message
    assert "List classes such as TimeoutError" in message


def test_the_message_shows_what_was_listed_instead_of_an_exception():
    with pytest.raises(DefinitionError, match=r"got 3\..*pass options by keyword"):
        retry_on(TimeoutError, 3)


NO_LIMITS = [-1, True, False, 2.0, 1.5, math.nan, math.inf, "3", (3,)]  # R-004-3


@pytest.mark.parametrize("limit", NO_LIMITS, ids=repr)
def test_a_limit_is_a_whole_number_from_zero_up(limit):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, limit=limit)

    assert str(refused.value) == (
        f"retry_on: limit must be a whole number, 0 or more, got {limit!r}."
    )


NO_SECONDS = [
    Decimal("NaN"),
    Decimal("-0.5"),
    Decimal("Infinity"),
    Fraction(-1, 2),
    -1,
    -0.001,
    True,
    False,
    math.nan,
    math.inf,
    -math.inf,
    "1",
    1j,
    [1],
]


@pytest.mark.parametrize("option", ["delay", "max_delay"])
@pytest.mark.parametrize("seconds", NO_SECONDS, ids=repr)
def test_a_delay_is_a_finite_number_from_zero_up(option, seconds):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: seconds})

    assert str(refused.value) == (
        f"retry_on: {option} must be a finite number of seconds, 0 or more, "
        f"got {seconds!r}."
    )


@pytest.mark.parametrize("option", ["delay", "max_delay", "deadline"])
def test_a_timedelta_is_answered_with_how_to_make_it_seconds(option):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: timedelta(minutes=1)})

    assert str(refused.value) == (
        f"retry_on: {option} is a number of seconds: delta.total_seconds()."
    )


@pytest.mark.parametrize("option", ["delay", "max_delay"])
@pytest.mark.parametrize(
    "seconds", [0, 0.0, 1, 0.001, 1e6, Decimal("0.5"), Fraction(1, 4)], ids=repr
)
def test_whole_and_broken_seconds_are_fine(option, seconds):
    @retry_on(TimeoutError, **{option: seconds})
    class Charge(Down):
        pass

    assert getattr(Charge.retry_policy, option) == seconds
    assert type(getattr(Charge.retry_policy, option)) in (int, float)


@pytest.mark.parametrize("seconds", [Decimal("0.25"), Fraction(1, 4)], ids=repr)
def test_a_decimal_or_a_fraction_can_be_slept(execute, instant, seconds):
    @retry_on(TimeoutError, limit=2, delay=seconds, jitter="linear", deadline=seconds)
    class Charge(Down):
        pass

    @retry_on(deadline=None)
    class Patient(Charge):
        pass

    assert execute(Charge).stopped == "deadline"
    assert execute(Patient).retries == 2
    assert instant.pauses == [0.25, 0.5]


@pytest.mark.parametrize("jitter", [5, 0.5, True, "", [], b"linear"], ids=repr)
def test_a_jitter_is_a_name_or_a_callable(jitter):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, jitter=jitter)

    message = str(refused.value)
    assert "jitter must be the name of a retrier or method, or a callable" in message
    assert f"got {jitter!r}" in message


def by_option(jitter):
    retry_on(TimeoutError, jitter=jitter)


def by_registering(jitter):
    retriers.register("spread", jitter)


def by_registering_for_a_class(jitter):
    class Charge(Down):
        pass

    Charge.retriers.register("spread", jitter)


def by_name_of_a_method(jitter):
    @retry_on(TimeoutError, jitter="spread")
    class Charge(Down):
        spread = staticmethod(jitter)

    Charge.execute()


def greedy(_attempt, delay, _previous, _more):
    return delay


async def awaited(_attempt, delay):
    return delay


@pytest.mark.parametrize(
    ("jitter", "problem"),
    [
        (greedy, r"takes 4 .* called with 3.*attempt, delay and previous, or fewer"),
        (awaited, "is async, but nothing awaits it"),
    ],
    ids=["greedy", "async"],
)
@pytest.mark.parametrize(
    "give",
    [by_option, by_registering, by_registering_for_a_class, by_name_of_a_method],
)
def test_a_jitter_that_could_not_be_called_is_refused(give, jitter, problem):
    with pytest.raises(DefinitionError, match=problem):
        give(jitter)


@pytest.mark.parametrize("rule", ["", 5, True, ["network"]], ids=repr)
def test_the_name_of_a_rule_is_a_string(rule):
    with pytest.raises(DefinitionError, match=r"rule must be a non-empty string"):
        retry_on(TimeoutError, rule=rule)


@pytest.mark.parametrize(
    "target",
    [object, dict, lambda: None, 5, Down()],
    ids=["object", "dict", "lambda", "5", "task"],
)
def test_retry_on_decorates_task_classes_only(target):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError)(target)

    message = str(refused.value)
    assert "retry_on decorates task classes" in message
    assert "above a class that derives from Task" in message


def test_a_refused_declaration_leaves_the_class_as_it_was():
    @retry_on(TimeoutError, limit=1)
    class Charge(Down):
        pass

    before = Charge.retry_policy
    with pytest.raises(DefinitionError):
        retry_on(KeyError, limit=-1)(Charge)

    assert Charge.retry_policy == before


def test_a_policy_has_the_options_of_its_unnamed_rule_and_no_others():
    policy = Down.retry_policy

    assert policy.limit == policy.default.limit
    with pytest.raises(AttributeError, match="has no attribute 'limits'"):
        _ = policy.limits
    assert not hasattr(policy, "name")
