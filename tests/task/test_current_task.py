"""``current_task``: which task is running here."""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from functools import partial
from threading import Thread

import pytest

from cmdx import (
    Task,
    Workflow,
    before_execution,
    current_task,
    detached,
    middleware,
    on_success,
    parallel,
    task_executed,
    task_started,
)


class Names(Task[str | None]):
    def work(self) -> str | None:
        return name_of_current()


def name_of_current():
    task = current_task()
    return None if task is None else type(task).__name__


def result_in_thread(call):
    """Return what *call* returns in another thread."""
    found = []
    thread = Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_there_is_none_outside_of_a_task():
    assert current_task() is None


def test_in_work_it_is_the_task_itself(run):
    class Same(Task[bool]):
        def work(self):
            return current_task() is self

    assert run(Same).value is True


def test_after_the_run_there_is_none(run):
    run(Names)

    assert current_task() is None


def test_of_nested_tasks_it_is_the_innermost():
    class Outer(Task[list[str]]):
        def work(self):
            return [name_of_current(), Names.execute().value, name_of_current()]

    assert Outer.execute().value == ["Outer", "Names", "Outer"]


def test_after_a_nested_task_that_failed_it_is_the_outer_one():
    class Fails(Task[None]):
        def work(self):
            raise ValueError

    class Outer(Task[str]):
        def work(self):
            Fails.execute()
            return name_of_current()

    assert Outer.execute().value == "Outer"


def test_callbacks_middlewares_and_rollback_have_it_too():
    seen = []

    def note(_task):
        seen.append(name_of_current())
        yield
        seen.append(name_of_current())

    @middleware(note)
    class Noted(Task[None]):
        def work(self):
            self.fail("no")

        @before_execution
        def begin(self):
            seen.append(name_of_current())

        def rollback(self):
            seen.append(name_of_current())

    Noted.execute()

    assert seen == ["Noted"] * 4


def test_receivers_of_the_first_signal_have_it_and_those_of_the_last_do_not():
    seen = []

    def note(_sender, **_):
        seen.append(name_of_current())

    with task_started.connected_to(note), task_executed.connected_to(note):
        Names.execute()

    assert seen == ["Names", None]


@pytest.mark.parametrize(
    ("context", "found"), [(copy_context, "Outer"), (Context, None)]
)
def test_a_thread_has_it_if_it_runs_in_a_copy_of_the_context(context, found):
    class Outer(Task[str | None]):
        def work(self):
            return result_in_thread(partial(context().run, name_of_current))

    assert Outer.execute().value == found


def test_coroutines_side_by_side_have_each_their_own():
    class First(Task[str]):
        async def work(self):
            await asyncio.sleep(0)
            return name_of_current()

    class Second(First):
        pass

    async def both():
        return await asyncio.gather(First.aexecute(), Second.aexecute())

    first, second = asyncio.run(both())
    assert (first.value, second.value) == ("First", "Second")


def test_what_outlives_the_run_has_none_any_more():
    class Starts(Task[object]):
        async def work(self):
            return asyncio.create_task(look_later())

    async def look_later():
        await asyncio.sleep(0)
        return name_of_current()

    async def outlive():
        return await (await Starts.aexecute()).value

    assert asyncio.run(outlive()) is None


def test_a_detached_block_has_none():
    class Outer(Task[object]):
        def work(self):
            with detached():
                return name_of_current(), Names.execute().value

    assert Outer.execute().value == (None, "Names")


def test_parallel_steps_have_each_their_own():
    class Left(Task[None]):
        def work(self):
            self.context[f"seen_{type(self).__name__}"] = name_of_current()

    class Right(Left):
        pass

    class Both(Workflow[None]):
        steps = (parallel(Left, Right),)

    context = Both.execute().context
    assert (context.seen_Left, context.seen_Right) == ("Left", "Right")


def test_a_workflow_is_it_while_its_steps_are_rolled_back():
    seen = []

    class Undone(Task[None]):
        def work(self): ...

        def rollback(self):
            seen.append(name_of_current())

    class Fails(Task[None]):
        def work(self):
            self.fail("no")

    class Flow(Workflow[None]):
        steps = (Undone, Fails)

    Flow.execute()

    assert seen == ["Flow"]


def test_a_completion_callback_can_note_on_the_current_task():
    def annotate():
        current_task().metadata["user"] = "Ada"

    class Noted(Task[None]):
        def work(self): ...

        @on_success
        def note(self):
            annotate()

    assert Noted.execute().metadata == {"user": "Ada"}
