"""Runs outside asyncio, as under trio: what needs asyncio says so, with the cure."""

from __future__ import annotations

import pytest

from cmdx import Task, Workflow, deadline, parallel, retry_on
from cmdx.testing import instant


def run_without_asyncio(task, **inputs):
    """Run a task as another framework would, whose event loop is not asyncio's."""
    steps = task.aexecute(**inputs)
    with pytest.raises(StopIteration) as stopped:
        steps.send(None)
    return stopped.value.value


def assert_cure(error, purpose):
    assert type(error) is RuntimeError
    assert str(error) == (
        f"{purpose} needs asyncio, but no event loop of asyncio is running. "
        "Run the task with asyncio.run(), or with anyio on its asyncio backend."
    )


class Good(Task[int]):
    async def work(self):
        return 7

    async def rollback(self):
        self.context.undone = True


class Plain(Task[int]):
    def work(self):
        self.context.ran = True
        return 7


@retry_on(TimeoutError, limit=1)
class Slow(Task[None]):
    async def work(self):
        raise TimeoutError("no answer")


def test_anyio_on_its_asyncio_backend_is_a_cure():
    anyio = pytest.importorskip("anyio")
    with instant() as clock:
        result = anyio.run(Slow.aexecute)

    assert (result.reason, clock.pauses) == ("[TimeoutError] no answer", [0.5])


@pytest.mark.parametrize("task", [Good, Plain])
def test_a_plain_run_does_not_need_asyncio(task):
    assert run_without_asyncio(task).value == 7


def test_a_sequence_of_steps_does_not_need_asyncio():
    class Flow(Workflow[int]):
        steps = (Plain, Good)

    assert run_without_asyncio(Flow).value == 7


def test_retries_without_a_pause_do_not_need_asyncio():
    @retry_on(TimeoutError, delay=0)
    class Immediate(Slow):
        pass

    assert run_without_asyncio(Immediate).reason == "[TimeoutError] no answer"


def test_a_pause_names_the_cure_and_keeps_the_failure():
    result = run_without_asyncio(Slow)

    assert_cure(result.cause, "a pause in an asynchronous run")
    assert isinstance(result.cause.__context__, TimeoutError)
    assert result.replaced.reason == "[TimeoutError] no answer"


def test_a_pause_of_aretry_names_the_cure():
    class Fetch(Task[None]):
        async def work(self):
            await self.aretry(self.ask)

        async def ask(self):
            raise TimeoutError("no answer")

    assert_cure(run_without_asyncio(Fetch).cause, "a pause in an asynchronous run")


def test_an_async_rollback_names_the_cure_and_keeps_the_failure():
    class Bad(Good):
        async def work(self):
            self.fail("no stock")

    result = run_without_asyncio(Bad)

    assert result.reason == "no stock"
    assert "undone" not in result.context
    assert_cure(result.rollback_error, "an async rollback")


def test_the_async_rollback_of_a_step_names_the_cure_and_others_still_run():
    class Undone(Plain):
        def rollback(self):
            self.context.undone = True

    class Bad(Task[None]):
        def work(self):
            self.fail("no stock")

    class Flow(Workflow[None]):
        steps = (Undone, Good, Bad)

    result = run_without_asyncio(Flow)

    assert result.reason == "no stock"
    assert result.context.undone
    assert_cure(result.chain[2].rollback_error, "an async rollback")


@pytest.mark.parametrize(
    ("executor", "steps"),
    [
        (None, (Plain, Plain)),
        (None, (Plain, Good)),
        ("asyncio", (Good, Good)),
        ("threads", (Plain, Plain)),
    ],
)
def test_a_parallel_group_names_the_cure_and_starts_nothing(executor, steps):
    body = {"steps": (parallel(*steps, executor=executor),)}
    result = run_without_asyncio(type("Flow", (Workflow,), body))

    assert_cure(result.cause, "a parallel group in an asynchronous run")
    assert "ran" not in result.context
    assert len(result.chain) == 1


def test_a_deadline_of_async_work_names_the_cure():
    @retry_on(TimeoutError, deadline=60)
    class Bounded(Good):
        rollback = None

    with deadline(60):
        within = run_without_asyncio(type("Within", (Good,), {"rollback": None}))

    for result in (run_without_asyncio(Bounded), within):
        assert_cure(result.cause, "a deadline of async work")


def test_a_deadline_of_plain_work_does_not_need_asyncio():
    with deadline(60):
        assert run_without_asyncio(Plain).value == 7
