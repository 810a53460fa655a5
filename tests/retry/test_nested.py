from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from cmdx import DefinitionError, Stop, Task, Workflow, parallel, retry_on

pytestmark = pytest.mark.usefixtures("instant")


def retrying(limit=2, **options):
    return retry_on(ConnectionError, **{"limit": limit, "delay": 0, **options})


def calling(*policies):
    """Make tasks that call each other, the innermost last, and count its calls."""
    calls = []

    @policies[-1]
    class Task0(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            raise ConnectionError

    inner = Task0
    for policy in reversed(policies[:-1]):
        inner = outside(inner, policy)
    return inner, calls


def outside(inner, policy):
    @policy
    class Outer(Task[None]):
        def work(self) -> None:
            result = inner.execute(self.context)
            self.context.setdefault("inner", []).append(result)
            result.or_raise()

    return Outer


def bare(task):
    return task


# -- how calls multiply ---------------------------------------------------------------


def test_nested_policies_multiply(execute):
    outer, calls = calling(retrying(), retrying())
    execute(outer)

    assert len(calls) == 9


def test_a_policy_can_stand_back_while_an_outer_one_retries(execute):
    outer, calls = calling(retrying(), retrying(nested="once"))
    result = execute(outer)

    assert calls == [0, 0, 0]
    assert [each.stopped for each in result.context.inner] == [Stop.EXHAUSTED] * 3
    assert (result.retries, result.stopped) == (2, Stop.EXHAUSTED)


def test_on_its_own_it_retries(execute):
    alone, calls = calling(retrying(nested="once"))
    execute(alone)

    assert calls == [0, 1, 2]


@pytest.mark.parametrize("policy", [bare, retrying(limit=0)], ids=["none", "disabled"])
def test_an_outer_task_that_never_retries_is_no_reason_to_stand_back(execute, policy):
    outer, calls = calling(policy, retrying(nested="once"))
    execute(outer)

    assert calls == [0, 1, 2]


def test_a_policy_further_out_counts(execute):
    outer, calls = calling(retrying(), bare, retrying(nested="once"))
    execute(outer)

    assert calls == [0, 0, 0]


def test_the_outermost_may_say_it_too(execute):
    outer, calls = calling(retrying(nested="once"), retrying(nested="once"))
    execute(outer)

    assert calls == [0, 0, 0]


def test_it_is_said_for_one_rule(execute):
    @retry_on(ConnectionError, limit=2, delay=0)
    @retry_on(KeyError, rule="keys", limit=2, delay=0, nested="once")
    class Inner(Task[None]):
        def work(self) -> None:
            raise self.context.error

    outer = outside(Inner, retrying())

    assert execute(outer, error=ConnectionError()).context.inner[0].retries == 2
    assert execute(outer, error=KeyError()).context.inner[0].retries == 0


def test_awaited_tasks_stand_back_too():
    calls = []

    @retrying(nested="once")
    class Inner(Task[None]):
        async def work(self) -> None:
            calls.append(self.attempt)
            await asyncio.sleep(0)
            raise ConnectionError

    @retrying()
    class Outer(Task[None]):
        async def work(self) -> None:
            await Inner.aexecute_or_raise()

    asyncio.run(Outer.aexecute())

    assert calls == [0, 0, 0]


def test_steps_in_threads_stand_back_too():
    calls = []

    class Step(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            raise ConnectionError

    @retrying(nested="once")
    class First(Step):
        pass

    @retrying(nested="once")
    class Second(Step):
        pass

    class Both(Workflow[None]):
        steps = (parallel(First, Second, workers=2),)

    outside(Both, retrying(limit=1)).execute()

    assert set(calls) == {0}


@pytest.mark.parametrize("value", ["twice", True, 1, ""])
def test_what_is_neither_once_nor_none_is_refused(value):
    with pytest.raises(DefinitionError, match="nested must be"):
        retry_on(ConnectionError, nested=value)


def test_none_restores_the_default(execute):
    @retry_on(nested=None)
    class Inner(calling(retrying(nested="once"))[0]):
        pass

    assert execute(outside(Inner, retrying())).context.inner[0].retries == 2


# -- what is announced ----------------------------------------------------------------


def announced(retried):
    return {(each["depth"], each["product"]) for each in retried}


def test_a_retry_tells_how_deep_it_is_and_what_it_may_come_to(execute, retried):
    outer, calls = calling(retrying(), retrying())
    execute(outer)

    assert announced(retried) == {(0, 3), (1, 9)}
    inner = [each["attempt"] for each in retried if each["depth"] == 1]
    assert inner == [1, 2] * 3
    assert len(calls) == 9


def test_a_retry_on_its_own_is_not_nested(execute, retried):
    execute(calling(retrying(limit=3))[0])

    assert announced(retried) == {(0, 4)}


def test_three_policies_multiply_and_tasks_without_one_do_not(execute, retried):
    outer, calls = calling(retrying(), bare, retrying(limit=1), retrying())
    execute(outer)

    assert announced(retried) == {(0, 3), (1, 6), (2, 18)}
    assert len(calls) == 18


def test_rules_of_one_class_are_one_policy(execute, retried):
    @retry_on(KeyError, rule="keys", limit=3, delay=0)
    class Two(calling(retrying())[0]):
        pass

    execute(Two)

    assert announced(retried) == {(0, 6)}


# -- one id for all attempts ----------------------------------------------------------


def test_a_run_has_one_id_in_all_its_attempts(execute):
    seen = []

    @retrying()
    class Charge(Task[None]):
        def work(self) -> None:
            seen.append(self.run_id)
            raise ConnectionError

    result = execute(Charge)

    assert seen == [result.run_id] * 3
    assert result.run_id == result.tid
    assert UUID(result.run_id).version == 7


def test_another_run_has_another_id(execute):
    task, _ = calling(retrying())

    assert execute(task).run_id != execute(task).run_id


def test_a_task_inside_has_an_id_of_its_own(execute):
    result = execute(calling(retrying(), retrying(limit=0))[0])
    ids = [each.run_id for each in result.context.inner]

    assert len({result.run_id, *ids}) == 4
