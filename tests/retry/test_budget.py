from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdx import DefinitionError, RetryBudget, Stop, Task, clock, retry_on
from cmdx.testing import instant

in_still_time = pytest.mark.usefixtures("still")


def dead(budget, **options):
    """Make a task that calls a dead dependency."""

    @retry_on(TimeoutError, **{"limit": 3, "delay": 0, "budget": budget, **options})
    class Dead(Task[None]):
        def work(self) -> None:
            self.context.get("calls", []).append(self.attempt)
            raise TimeoutError

    return Dead


# -- how much -------------------------------------------------------------------------


@in_still_time
def test_a_thousand_calls_to_the_dead_are_hardly_more(execute):
    Dead, calls = dead(RetryBudget()), []  # noqa: N806
    for _ in range(1000):
        execute(Dead, calls=calls)

    assert len(calls) == 1000 + 1000 * 0.2 + 10


@in_still_time
def test_without_a_budget_they_are_four_times_as_many():
    Dead, calls = dead(None), []  # noqa: N806
    for _ in range(1000):
        Dead.execute(calls=calls)

    assert len(calls) == 4000


@in_still_time
def test_first_attempts_are_never_refused(execute):
    Dead, calls = dead(RetryBudget(ratio=0, reserve=0)), []  # noqa: N806
    stopped = [execute(Dead, calls=calls).stopped for _ in range(50)]

    assert calls == [0] * 50
    assert stopped == [Stop.BUDGET] * 50


@in_still_time
def test_the_reserve_lets_rare_callers_retry(execute):
    Dead = dead(RetryBudget(ratio=0, reserve=4))  # noqa: N806
    results = [execute(Dead) for _ in range(3)]

    assert [each.retries for each in results] == [3, 1, 0]
    assert [each.stopped.value for each in results] == ["exhausted", "budget", "budget"]
    assert all(type(each.cause) is TimeoutError for each in results)


@in_still_time
def test_successes_are_calls_too():
    budget = RetryBudget(ratio=0.5, reserve=0)

    @retry_on(TimeoutError, budget=budget)
    class Alive(Task[None]):
        def work(self) -> None:
            pass

    for _ in range(5):
        Alive.execute()

    assert [dead(budget).execute().retries for _ in range(2)] == [3, 0]


def test_a_refusal_comes_without_a_pause(execute, instant):
    result = execute(dead(RetryBudget(ratio=0, reserve=1), delay=0.5))

    assert instant.pauses == [0.5]
    assert result.stopped is Stop.BUDGET


# -- who shares it --------------------------------------------------------------------


@in_still_time
def test_many_classes_share_one_budget():
    budget = RetryBudget(ratio=0, reserve=4)
    first, second = dead(budget), dead(budget)

    class Child(first):
        pass

    assert [each.execute().retries for each in (first, second, Child)] == [3, 1, 0]


@in_still_time
def test_budgets_of_their_own_are_apart():
    first, second = (dead(RetryBudget(ratio=0, reserve=2)) for _ in range(2))

    assert (first.execute().retries, second.execute().retries) == (2, 2)


@in_still_time
def test_each_rule_pays_from_its_own_budget(execute):
    @retry_on(KeyError, rule="keys", budget=RetryBudget(ratio=0, reserve=1))
    class Mixed(dead(RetryBudget(ratio=0, reserve=9), limit=9)):
        def work(self) -> None:
            raise KeyError if self.attempt % 2 else TimeoutError

    result = execute(Mixed)

    assert [each.rule for each in result.attempts[:-1]] == [None, "keys", None]
    assert (type(result.cause), result.stopped) == (KeyError, Stop.BUDGET)


def test_threads_share_one_budget_to_the_last_call():
    budget = RetryBudget(per=1e6)
    Dead = dead(budget)  # noqa: N806
    lists = [[] for _ in range(8)]
    ready = threading.Barrier(8)

    def storm(calls):
        ready.wait()
        return Counter(Dead.execute(calls=calls).retries for _ in range(125))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            counts = sum(pool.map(storm, lists), Counter())
    finally:
        sys.setswitchinterval(interval)

    calls = sum(map(len, lists))
    retries = sum(retries * runs for retries, runs in counts.items())
    assert counts.total() == 1000
    assert calls == 1000 + retries
    assert calls <= 1210
    assert retries >= 1000 * 0.2 - 3  # the last calls may come after the last retries


def test_threads_never_spend_the_same_retry():
    class Slow(float):
        def __rmul__(self, calls):
            time.sleep(0.005)  # others get their turn while the budget is looked at
            return calls * float(self)

    budget = RetryBudget(ratio=0, reserve=2, per=1e6)
    budget.ratio = Slow(0)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: budget.withdraw(), range(4)))

    assert sum(answers) == 2


# -- what costs nothing ---------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"if_": False}, {"delay": 5, "deadline": 1}],
    ids=["exhausted", "gate", "deadline"],
)
@in_still_time
def test_a_retry_that_is_refused_otherwise_costs_nothing(execute, options):
    budget = RetryBudget(ratio=0, reserve=1)
    execute(dead(budget, **options))

    assert budget.withdraw()
    assert not budget.withdraw()


# -- how long -------------------------------------------------------------------------


def test_what_was_spent_is_forgotten_after_a_while(still):
    Dead = dead(RetryBudget(ratio=0, reserve=3, per=10))  # noqa: N806
    retries = []
    for still.seconds in (0, 5, 9.9, 10.5, 12):
        retries.append(Dead.execute().retries)

    assert retries == [3, 0, 0, 3, 0]


def test_what_was_earned_is_forgotten_too(still):
    budget = RetryBudget(ratio=1, reserve=0, per=10)
    for _ in range(5):
        budget.deposit()
    still.seconds = 10.5

    assert not budget.withdraw()


def test_a_budget_outlives_long_silence(still):
    budget = RetryBudget(ratio=0, reserve=1, per=10)
    answers = []
    for still.seconds in (0, 1e6, 1e6 + 1, 1e9):
        answers.append(budget.withdraw())

    assert answers == [True, True, False, True]


@given(
    ratio=st.sampled_from([0, 0.2, 0.5, 1]),
    reserve=st.integers(0, 3),
    steps=st.lists(
        st.tuples(st.floats(0, 8), st.sampled_from(["call", "retry"])), max_size=80
    ),
)
def test_retries_are_never_more_than_their_part(ratio, reserve, steps):
    class Still(clock.Clock):
        seconds = 0.0

        def monotonic(self):
            return self.seconds

    budget, calls, retries = RetryBudget(ratio, reserve, per=10), [], []
    with clock.use(Still()) as still:
        for seconds, step in steps:
            still.seconds += seconds
            # Time is looked at in slices of a second, of which the last ten count.
            oldest = int(still.seconds) - 10
            lately = [sum(int(at) > oldest for at in each) for each in (calls, retries)]
            if step == "call":
                budget.deposit()
                calls.append(still.seconds)
            elif budget.withdraw():
                retries.append(still.seconds)
                assert lately[1] + 1 <= lately[0] * ratio + reserve
            else:
                assert lately[1] + 1 > lately[0] * ratio + reserve


# -- declaring it ---------------------------------------------------------------------


@pytest.mark.parametrize("option", ["ratio", "reserve", "per"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", None, True])
def test_a_budget_of_nonsense_is_refused(option, value):
    with pytest.raises(DefinitionError, match=f"RetryBudget: {option} must be"):
        RetryBudget(**{option: value})


def test_a_budget_over_no_time_is_refused():
    with pytest.raises(DefinitionError, match=r"per must be .* above 0"):
        RetryBudget(per=0)


@pytest.mark.parametrize("budget", [5, 0, True, "all", RetryBudget])
def test_what_is_no_budget_is_refused(budget):
    with pytest.raises(DefinitionError, match="budget must be a RetryBudget"):
        retry_on(TimeoutError, budget=budget)


@in_still_time
def test_none_takes_an_inherited_budget_away():
    @retry_on(budget=None)
    class Free(dead(RetryBudget(ratio=0, reserve=0))):
        pass

    assert Free.execute().retries == 3


def test_a_budget_prints_as_it_is_made():
    assert repr(RetryBudget()) == "RetryBudget(ratio=0.2, reserve=10, per=10.0)"


def test_a_budget_that_was_used_in_virtual_time_goes_on_in_real_time():
    budget = RetryBudget(ratio=0, reserve=10, per=0.001)
    Dead = dead(budget, limit=10)  # noqa: N806

    with instant() as virtual:
        virtual.advance(10**9)
        assert Dead.execute().retries == 10

    assert Dead.execute().retries > 0
