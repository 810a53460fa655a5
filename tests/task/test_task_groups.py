"""
Halts and cancelling inside the task groups of asyncio and anyio.

A task group wraps what a child raises, halts included, into an exception group.
"""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
import pytest

from cmdx import (
    Task,
    after_execution,
    around_execution,
    before_execution,
    middleware,
    on_success,
    task_cancelled,
)

PLACES = (
    "middleware before",
    "before_execution",
    "around before",
    "work",
    "around after",
    "after_execution",
    "on_success",
    "middleware after",
)


async def in_group_of_asyncio(child):
    async with asyncio.TaskGroup() as group:
        group.create_task(child())


async def in_group_of_anyio(child):
    async with anyio.create_task_group() as group:
        group.start_soon(child)


async def in_groups_of_both(child):
    await in_group_of_anyio(partial(in_group_of_asyncio, child))


@pytest.fixture(params=[in_group_of_asyncio, in_group_of_anyio, in_groups_of_both])
def in_group(request):
    return request.param


def task_calling(place, call):
    """Make a task that awaits *call* at one place."""

    async def at(here, task):
        if here == place:
            await call(task)

    async def wrap(task):
        await at("middleware before", task)
        yield
        await at("middleware after", task)

    @middleware(wrap)
    class Calling(Task[str]):
        @before_execution
        async def first(self):
            await at("before_execution", self)

        @around_execution
        async def second(self):
            await at("around before", self)
            yield
            await at("around after", self)

        async def work(self):
            await at("work", self)
            return "done"

        @after_execution
        async def third(self):
            await at("after_execution", self)

        @on_success
        async def fourth(self):
            await at("on_success", self)

    return Calling


@pytest.mark.parametrize("place", PLACES)
def test_a_halt_in_a_child_of_a_group_ends_the_run(in_group, place):
    async def call(task):
        async def child():
            await asyncio.sleep(0)
            task.skip("enough", code=7)

        await in_group(child)

    result = asyncio.run(task_calling(place, call).aexecute())

    assert (result.status, result.reason) == ("skipped", "enough")
    assert result.metadata == {"code": 7}
    assert result.halted_at.startswith(__file__)


@pytest.mark.parametrize("place", PLACES)
def test_a_halt_of_an_outer_task_passes_through_the_inner_run(in_group, place):
    class Outer(Task[str]):
        async def work(self):
            async def call(_task):
                async def child():
                    self.skip("enough")

                await in_group(child)

            await task_calling(place, call).aexecute()
            return "went on"

    result = asyncio.run(Outer.aexecute())

    assert (result.status, result.reason) == ("skipped", "enough")
    assert result.chain[1].stopped == "cancelled"


@pytest.mark.parametrize("halt", ["fail", "skip", "succeed"])
def test_an_error_beside_a_halt_is_not_lost(halt):
    class Both(Task[None]):
        async def work(self):
            async with asyncio.TaskGroup() as group:
                group.create_task(self.stop())
                group.create_task(self.break_down())

        async def stop(self):
            getattr(self, halt)("enough")

        async def break_down(self):
            raise OSError("the disk is full")

    result = asyncio.run(Both.aexecute())

    assert result.failed
    assert [str(error) for error in result.cause.exceptions] == ["the disk is full"]
    assert (result.reason == "enough") is (halt == "fail")


def test_a_halt_in_a_group_of_a_rollback_is_kept_as_its_error(in_group):
    class Pay(Task[None]):
        async def work(self):
            self.fail("declined")

        async def rollback(self):
            async def child():
                self.skip("gone")

            await in_group(child)

    result = asyncio.run(Pay.aexecute())

    assert (result.status, result.reason) == ("failed", "declined")
    assert "was halted: gone" in str(result.rollback_error)


def test_a_halt_of_an_outer_task_in_a_group_of_a_rollback_passes_through(in_group):
    class Outer(Task[str]):
        async def work(self):
            outer = self

            class Pay(Task[None]):
                async def work(self):
                    self.fail("declined")

                async def rollback(self):
                    async def child():
                        outer.skip("gone")

                    await in_group(child)

            await Pay.aexecute()
            return "went on"

    result = asyncio.run(Outer.aexecute())

    assert (result.status, result.reason) == ("skipped", "gone")


# -- cancel scopes -------------------------------------------------------------------


class Pay(Task[None]):
    """Takes its time to fail or to be undone."""

    async def work(self):
        self.context.events.append("charged")
        if self.context.get("fails"):
            self.fail("declined")
        self.context.reached()
        await asyncio.sleep(3600)

    async def rollback(self):
        self.context.reached()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.context.events.append("refunded")


@pytest.mark.parametrize("fails", [True, False], ids=["in rollback", "in work"])
def test_a_scope_of_anyio_catches_the_cancelling_it_asked_for(fails):
    events, cancelled = [], []

    def receive(_sender, result, **_):
        cancelled.append(result)

    async def main():
        with anyio.CancelScope() as scope:
            await Pay.aexecute(reached=scope.cancel, events=events, fails=fails)
            events.append("went on")
        await asyncio.sleep(0)  # what is outside the scope is not cancelled
        return scope.cancelled_caught

    with task_cancelled.connected_to(receive):
        assert asyncio.run(main())

    assert events == ["charged", "refunded"]
    assert [result.stopped for result in cancelled] == ["cancelled"]


def test_a_scope_of_anyio_whose_time_is_up_during_a_rollback_catches_it():
    events = []

    async def main():
        with anyio.move_on_after(3600) as scope:
            await Pay.aexecute(
                reached=lambda: setattr(scope, "deadline", -1),
                events=events,
                fails=True,
            )
        return scope.cancelled_caught

    assert asyncio.run(main())
    assert events == ["charged", "refunded"]


def test_a_rollback_in_a_cancelled_scope_of_anyio_does_not_keep_the_loop_busy(
    monkeypatch,
):
    waits = []
    wait = asyncio.wait

    def count_waits(tasks, **options):
        waits.append(tasks)
        return wait(tasks, **options)

    class Slow(Task[None]):
        async def work(self):
            self.fail("declined")

        async def rollback(self):
            self.context.reached()
            for _ in range(50):
                await asyncio.sleep(0)

    async def main():
        with anyio.CancelScope() as scope:
            await Slow.aexecute(reached=scope.cancel)
        return scope.cancelled_caught

    monkeypatch.setattr(asyncio, "wait", count_waits)
    assert asyncio.run(main())
    assert len(waits) == 2  # until the first cancel, and then to the end


def test_cancelling_a_group_of_anyio_ends_the_runs_in_it():
    events = []

    async def main():
        async with anyio.create_task_group() as group:
            reached = group.cancel_scope.cancel
            group.start_soon(partial(Pay.aexecute, reached=reached, events=events))

    asyncio.run(main())

    assert events == ["charged", "refunded"]
