from __future__ import annotations

import math

import attrs
import pytest

from cmdx import DefinitionError, RetryPolicy, RetryRule, Task, retry_on

pytestmark = pytest.mark.usefixtures("instant")


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        raise self.context.get("error", TimeoutError)("down")


def test_a_task_without_a_declaration_is_not_retried(execute, instant):
    result = execute(Down)

    assert (result.failed, result.retries, instant.pauses) == (True, 0, [])


def test_options_without_an_exception_retry_nothing(execute, instant):  # R-004-1
    @retry_on(limit=5, delay=1.0, jitter="linear", if_=True)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert (result.retries, instant.pauses) == (0, [])


def test_retry_on_without_anything_retries_nothing(execute):  # R-004-1
    @retry_on()
    class Charge(Down):
        pass

    assert execute(Charge).retries == 0
    assert Charge.retry_policy == Down.retry_policy


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


def test_a_later_gate_also_governs_earlier_exceptions(execute):  # R-004-4
    @retry_on(KeyError, if_=False)
    @retry_on(TimeoutError)
    class Charge(Down):
        pass

    assert execute(Charge).retries == 0


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


def test_a_subclass_can_clear_an_inherited_gate(execute):  # R-004-12
    @retry_on(TimeoutError, if_=False)
    class Parent(Down):
        pass

    @retry_on(if_=None)
    class Child(Parent):
        pass

    assert execute(Parent).retries == 0
    assert execute(Child).retries == 3


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
    "listed",
    [int, object, Task, TimeoutError(), "TimeoutError", 3, None, [int], ({"a": 1},)],
    ids=repr,
)
def test_only_classes_of_exceptions_can_be_listed(listed):
    with pytest.raises(DefinitionError) as refused:
        retry_on(KeyError, listed)

    message = str(refused.value)
    assert "retry_on takes exception classes" in message
    assert "List classes such as TimeoutError" in message


def test_the_message_shows_what_was_listed_instead_of_an_exception():
    with pytest.raises(DefinitionError, match=r"got 3\..*options go by keyword"):
        retry_on(TimeoutError, 3)


NO_LIMITS = [-1, True, False, 2.0, 1.5, math.nan, math.inf, "3", (3,)]  # R-004-3


@pytest.mark.parametrize("limit", NO_LIMITS, ids=repr)
def test_a_limit_is_a_whole_number_from_zero_up(limit):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, limit=limit)

    message = str(refused.value)
    assert "limit must be a whole number" in message
    assert f"got {limit!r}" in message
    assert "0 disables retrying" in message


NO_SECONDS = [-1, -0.001, True, False, math.nan, math.inf, -math.inf, "1", 1j, [1]]


@pytest.mark.parametrize("option", ["delay", "max_delay"])
@pytest.mark.parametrize("seconds", NO_SECONDS, ids=repr)
def test_a_delay_is_a_finite_number_from_zero_up(option, seconds):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: seconds})

    message = str(refused.value)
    assert f"retry_on: {option} must be a finite number of seconds" in message
    assert f"got {seconds!r}" in message
    assert "None restores the default" in message


@pytest.mark.parametrize("option", ["delay", "max_delay"])
@pytest.mark.parametrize("seconds", [0, 0.0, 1, 0.001, 1e6])
def test_whole_and_broken_seconds_are_fine(option, seconds):
    @retry_on(TimeoutError, **{option: seconds})
    class Charge(Down):
        pass

    assert getattr(Charge.retry_policy, option) == seconds


@pytest.mark.parametrize("jitter", [5, 0.5, True, "", [], object()], ids=repr)
def test_a_jitter_is_a_name_or_a_callable(jitter):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, jitter=jitter)

    message = str(refused.value)
    assert "jitter must be the name of a retrier or method, or a callable" in message
    assert f"got {jitter!r}" in message


def test_a_jitter_must_not_insist_on_more_than_it_is_given():
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, jitter=lambda _attempt, delay, _previous, _more: delay)

    message = str(refused.value)
    assert "jitter" in message
    assert "takes 4 arguments, but only 3 are given" in message
    assert "attempt, delay and previous, or fewer" in message


@pytest.mark.parametrize("option", ["if_", "unless"])
@pytest.mark.parametrize("gate", [1, 0, 0.5, [], {}, object()], ids=repr)
def test_a_gate_is_a_truth_value_a_name_or_a_callable(option, gate):  # R-004-13
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: gate})

    message = str(refused.value)
    assert f"retry_on: {option} must be True, False, the name of a method" in message
    assert f"got {gate!r}" in message


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_must_not_insist_on_more_than_it_is_given(option):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: lambda _task, _error, _attempt, _more: True})

    message = str(refused.value)
    assert f"retry_on: {option}" in message
    assert "takes 4 arguments, but only 3 are given" in message
    assert "Take fewer" in message


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_must_not_be_async(option):
    async def ask(_task, _error, _attempt):
        return True

    with pytest.raises(DefinitionError, match=f"{option} is async.*plain function"):
        retry_on(TimeoutError, **{option: ask})


@pytest.mark.parametrize("rule", ["", 5, True, ["network"]], ids=repr)
def test_the_name_of_a_rule_is_text(rule):
    with pytest.raises(DefinitionError, match=r"rule must be a name.*as text"):
        retry_on(TimeoutError, rule=rule)


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_that_names_no_method_is_refused_when_the_task_is_run(execute, option):
    @retry_on(TimeoutError, **{option: "is_transient"})
    class Charge(Down):
        def is_transiend(self):
            return True

    with pytest.raises(DefinitionError) as refused:
        execute(Charge)

    message = str(refused.value)
    assert f"{option} names 'is_transient', which is no method of" in message
    assert "did you mean 'is_transiend'?" in message
    assert "or give a callable" in message


def test_a_gate_that_names_something_other_than_a_method_is_refused():
    @retry_on(TimeoutError, if_="limit")
    class Charge(Down):
        limit = 5

    with pytest.raises(DefinitionError, match="names 'limit', which is no method"):
        Charge.execute()


def test_a_named_gate_must_not_insist_on_more_than_it_is_given():
    @retry_on(TimeoutError, if_="is_transient")
    class Charge(Down):
        def is_transient(self, _error, _attempt, _more):
            return True

    with pytest.raises(DefinitionError, match="Take fewer arguments"):
        Charge.execute()


def test_a_subclass_may_define_the_method_a_gate_names():
    @retry_on(TimeoutError, if_="is_transient")
    class Parent(Down):
        pass

    class Child(Parent):
        def is_transient(self):
            return True

    assert Child.execute().retries == 3


@pytest.mark.parametrize("target", [object, dict, lambda: None, 5, Down()], ids=repr)
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
