"""What ``Transaction`` promises, whatever the database and its library."""

from __future__ import annotations

import pytest
from databases import WAYS, opened

from cmdx import (
    Status,
    on_skipped,
    on_success,
    retry_on,
    task_cancelled,
    task_executed,
)


@pytest.fixture(params=WAYS, ids=lambda kind: kind.__name__)
def way(request, tmp_path):
    with opened(request.param, tmp_path) as database:
        yield database


def insert(way, *numbers):
    """Return a body that writes rows."""

    async def body(_task):
        for number in numbers:
            await way.insert(number)
        return numbers

    return body


# -- by the outcome -----------------------------------------------------------------


def test_a_success_is_committed(way):
    result = way.run(way.task(insert(way, 1, 2)))

    assert result.value == (1, 2)
    assert way.rows() == [1, 2]


def test_an_exception_of_work_rolls_back(way):
    async def body(_task):
        await way.insert(1)
        raise ValueError("no")

    result = way.run(way.task(body))

    assert result.reason == "[ValueError] no"
    assert result.replaced is None
    assert way.rows() == []


def test_a_halt_that_fails_rolls_back(way):
    async def body(task):
        await way.insert(1)
        task.fail("no")

    assert way.run(way.task(body)).reason == "no"
    assert way.rows() == []


def test_a_skip_is_committed(way):
    async def body(task):
        await way.insert(1)
        task.skip("enough")

    assert way.run(way.task(body)).skipped
    assert way.rows() == [1]


def test_an_error_of_the_database_rolls_back(way):
    result = way.run(way.task(insert(way, 1, 1)))

    assert "IntegrityError" in result.reason or "UniqueViolation" in result.reason
    assert way.rows() == []


def test_an_interrupt_rolls_back(way):
    async def body(_task):
        await way.insert(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        way.run(way.task(body))
    assert way.rows() == []


def test_a_callback_that_fails_rolls_back(way):
    class Base(way.task(insert(way, 1))):
        @on_success
        def refuse(self):
            raise ValueError("no receipt")

    result = way.run(Base)

    assert result.reason == "[ValueError] no receipt"
    assert way.rows() == []


def test_the_next_run_is_in_a_transaction_of_its_own(way):
    async def body(_task):
        await way.insert(2)
        raise ValueError

    way.run(way.task(insert(way, 1)))
    way.run(way.task(body))
    way.run(way.task(insert(way, 3)))

    assert way.rows() == [1, 3]


# -- inside each other --------------------------------------------------------------


def test_a_task_inside_is_committed_with_the_one_around_it(way):
    inner = way.task(insert(way, 2))
    seen = []

    async def body(_task):
        await way.insert(1)
        assert (await way.run_inside(inner)).success
        seen.extend(way.rows())
        await way.insert(3)

    assert way.run(way.task(body)).success
    assert seen == []
    assert way.rows() == [1, 2, 3]


def test_a_task_inside_is_rolled_back_with_the_one_around_it(way):
    inner = way.task(insert(way, 1))

    async def body(_task):
        assert (await way.run_inside(inner)).success
        raise ValueError

    assert way.run(way.task(body)).failed
    assert way.rows() == []


def test_a_task_inside_that_fails_leaves_nothing_and_the_one_around_it_goes_on(way):
    inner = way.task(insert(way, 2, 2))

    async def body(_task):
        await way.insert(1)
        assert (await way.run_inside(inner)).failed
        assert (await way.run_inside(inner)).failed
        await way.insert(3)

    assert way.run(way.task(body)).success
    assert way.rows() == [1, 3]


def test_tasks_can_be_inside_each_other_at_any_depth(way):
    deepest = way.task(insert(way, 3, 3))

    async def middle(_task):
        await way.insert(2)
        assert (await way.run_inside(deepest)).failed

    inner = way.task(middle)

    async def body(_task):
        await way.insert(1)
        assert (await way.run_inside(inner)).success
        assert (await way.run_inside(inner)).failed  # 2 is there already
        await way.insert(4)

    assert way.run(way.task(body)).success
    assert way.rows() == [1, 2, 4]


# -- retries ------------------------------------------------------------------------

retrying = retry_on(Exception, limit=2, delay=0)


def test_an_attempt_that_raises_leaves_nothing_for_the_next_one(way):
    async def body(task):
        await way.insert(1)
        if task.attempt < 2:
            raise ValueError
        return task.attempt

    result = way.run(way.task(body, retrying))

    assert result.value == 2
    assert way.rows() == [1]


def test_an_error_of_the_database_can_be_retried(way):
    async def body(task):
        await way.insert(1)
        await way.insert(1 + task.attempt)

    result = way.run(way.task(body, retrying))

    assert result.retries == 1
    assert way.rows() == [1, 2]


def test_a_run_whose_last_attempt_raises_leaves_nothing(way):
    async def body(_task):
        await way.insert(1)
        raise ValueError

    assert way.run(way.task(body, retrying)).retries == 2
    assert way.rows() == []


def test_an_attempt_is_undone_from_its_beginning_also_after_a_task_inside_failed(way):
    async def fail(task):
        await way.insert(2)
        task.fail("no")

    inner = way.task(fail)

    async def body(task):
        await way.insert(1)
        assert (await way.run_inside(inner)).failed
        if task.attempt == 0:
            raise ValueError

    assert way.run(way.task(body, retrying)).retries == 1
    assert way.rows() == [1]


def test_a_skip_of_a_task_that_retries_is_committed(way):
    async def body(task):
        await way.insert(1)
        task.skip("enough")

    assert way.run(way.task(body, retrying)).reason == "enough"
    assert way.rows() == [1]


def test_a_task_inside_an_attempt_is_undone_with_it(way):
    inner = way.task(insert(way, 1))

    async def body(task):
        assert (await way.run_inside(inner)).success
        if task.attempt == 0:
            raise ValueError

    assert way.run(way.task(body, retrying)).success
    assert way.rows() == [1]


# -- after the commit ---------------------------------------------------------------


def test_a_callback_on_commit_is_called_after_the_commit(way):
    seen = []

    async def body(_task):
        await way.insert(1)
        way.transaction.on_commit(lambda: seen.append(way.rows()))
        seen.append("work")

    assert way.run(way.task(body)).success
    assert seen == ["work", [1]]


def test_callbacks_on_commit_of_a_task_that_fails_are_not_called(way):
    seen = []

    async def body(_task):
        way.transaction.on_commit(lambda: seen.append("called"))
        raise ValueError

    way.run(way.task(body))

    assert seen == []


def test_a_task_inside_waits_for_the_commit_of_the_one_around_it(way):
    seen = []

    async def succeed(_task):
        way.transaction.on_commit(lambda: seen.append("success"))

    async def fail(task):
        way.transaction.on_commit(lambda: seen.append("failure"))
        task.fail("no")

    async def body(_task):
        await way.run_inside(way.task(succeed))
        await way.run_inside(way.task(fail))
        seen.append("work")

    assert way.run(way.task(body)).success
    assert seen == ["work", "success"]


def test_callbacks_on_commit_of_an_attempt_that_raises_are_not_called(way):
    seen = []

    async def body(task):
        way.transaction.on_commit(lambda: seen.append(number))
        number = task.attempt
        if task.attempt == 0:
            raise ValueError

    assert way.run(way.task(body, retrying)).success
    assert seen == [1]


def test_the_signal_of_the_end_comes_after_the_commit(way):
    seen = []

    def receive(_sender, result, **_payload):
        seen.append((result.status, way.rows()))

    task = way.task(insert(way, 1))
    with task_executed.connected_to(receive, sender=task):
        way.run(task)

    assert seen == [(Status.SUCCESS, [1])]


def test_the_signal_of_an_interrupt_comes_after_the_rollback(way):
    seen = []

    async def body(_task):
        await way.insert(1)
        raise KeyboardInterrupt

    def receive(_sender, **_payload):
        seen.append(way.rows())

    task = way.task(body)
    with (
        task_cancelled.connected_to(receive, sender=task),
        pytest.raises(KeyboardInterrupt),
    ):
        way.run(task)

    assert seen == [[]]


def test_completion_callbacks_are_in_the_transaction(way):
    seen = []

    async def body(task):
        await way.insert(1)
        task.skip("enough")

    class Write(way.task(body)):
        @on_skipped
        def look(self):
            seen.append(way.rows())

    way.run(Write)

    assert seen == [[]]
