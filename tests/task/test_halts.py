"""``succeed``, ``skip``, ``fail`` and ``throw``: ending a run early, on purpose."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from cmdx import (
    Fault,
    FinishedTaskError,
    State,
    Status,
    Task,
    middleware,
    on_failed,
    on_success,
    retry_on,
    task_executed,
)


class Refuse(Task[None]):
    def work(self):
        self.fail("empty shelf", shelf=4)


class Rest(Task[None]):
    def work(self):
        self.skip("nothing to do")


class Greet(Task[str]):
    def work(self):
        return "hello"


def halting(end):
    """Return a task that does nothing else than *end*."""

    class Halting(Task[str]):
        def work(self):
            end(self)
            return "went on"

    return Halting


# -- what each one means ------------------------------------------------------------


def test_succeed_ends_the_run_as_a_success_with_a_value(run):
    result = run(halting(lambda task: task.succeed("early", value=7, code=1)))

    assert (result.status, result.state) == (Status.SUCCESS, State.COMPLETE)
    assert (result.value, result.reason) == (7, "early")
    assert result.metadata == {"code": 1}


def test_succeed_without_a_value_has_none(run):
    result = run(halting(lambda task: task.succeed()))

    assert result.success
    assert (result.value, result.reason) == (None, None)


def test_skip_ends_the_run_as_skipped(run):
    result = run(halting(lambda task: task.skip("already paid", code=1)))

    assert (result.status, result.state) == (Status.SKIPPED, State.INTERRUPTED)
    assert (result.reason, result.cause) == ("already paid", None)
    assert result.metadata == {"code": 1}


def test_fail_ends_the_run_as_failed(run):
    result = run(halting(lambda task: task.fail("no such order", code=404)))

    assert (result.status, result.state) == (Status.FAILED, State.INTERRUPTED)
    assert (result.reason, result.cause) == ("no such order", None)
    assert result.metadata == {"code": 404}


def test_throw_fails_as_another_result_did(run):
    refused = Refuse.execute()
    result = run(halting(lambda task: task.throw(refused, code=1)))

    assert (result.status, result.state) == (Status.FAILED, State.INTERRUPTED)
    assert result.reason == "empty shelf"
    assert result.origin == refused
    assert result.metadata == {"code": 1}


@pytest.mark.parametrize("other", [Greet, Rest])
def test_throw_does_nothing_with_a_result_that_did_not_fail(run, other):
    result = run(halting(lambda task: task.throw(other.execute(), code=1)))

    assert result.value == "went on"
    assert result.origin is None
    assert result.metadata == {}


def test_a_failure_thrown_twice_leads_back_to_its_origin(run):
    inner = halting(lambda task: task.throw(Refuse.execute()))
    result = run(halting(lambda task: task.throw(inner.execute())))

    assert result.origin.task is inner
    assert result.caused_failure.task is Refuse
    assert result.reason == "empty shelf"


def test_a_thrown_exception_is_raised_as_a_fault_that_it_caused():
    error = ValueError("bad order")

    def end(_task):
        raise error

    raising = halting(end)
    throwing = halting(lambda task: task.throw(raising.execute()))

    with pytest.raises(Fault, match="bad order") as caught:
        throwing.execute_or_raise()

    assert type(caught.value) is raising.Fault
    assert caught.value.__cause__ is error


# -- where they work ----------------------------------------------------------------

HALTS = {
    "succeed": (lambda task: task.succeed("enough", value=7, code=1), Status.SUCCESS),
    "skip": (lambda task: task.skip("enough", code=1), Status.SKIPPED),
    "fail": (lambda task: task.fail("enough", code=1), Status.FAILED),
}


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize("halt", HALTS)
def test_a_run_can_be_halted_anywhere(run, ending, halt):
    end, status = HALTS[halt]
    result = run(ending(end))

    assert (result.status, result.reason) == (status, "enough")
    assert result.metadata == {"code": 1}
    assert result.cause is None
    assert result.value_or("none") == (7 if halt == "succeed" else "none")


@pytest.mark.usefixtures("instant")
def test_a_failure_can_be_thrown_anywhere(run, ending):
    refused = Refuse.execute()
    result = run(ending(lambda task: task.throw(refused, code=1)))

    assert (result.status, result.reason) == (Status.FAILED, "empty shelf")
    assert result.origin == refused
    assert result.metadata == {"code": 1}


def test_a_halt_below_work_ends_the_run(run):
    class Deep(Task[None]):
        def work(self):
            self.find()

        def find(self):
            for number in range(10):
                if number == 3:
                    self.skip("found", number=number)

    assert run(Deep).metadata == {"number": 3}


def test_a_halt_in_a_thread_that_work_waits_for_ends_the_run(run):
    class Threaded(Task[None]):
        def work(self):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self.fail, "in a thread").result()

    assert run(Threaded).reason == "in a thread"


def test_a_halt_in_a_coroutine_that_work_gathers_ends_the_run():
    class Gathering(Task[None]):
        async def work(self):
            await asyncio.gather(self.find(), asyncio.sleep(0))

        async def find(self):
            await asyncio.sleep(0)
            self.skip("found")

    assert asyncio.run(Gathering.aexecute()).reason == "found"


def test_a_halt_in_a_task_group_of_work_ends_the_run():
    class Grouping(Task[None]):
        async def work(self):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(3600))
                group.create_task(self.find())

        async def find(self):
            await asyncio.sleep(0)
            self.skip("found", code=1)

    result = asyncio.run(Grouping.aexecute())

    assert (result.status, result.reason) == ("skipped", "found")
    assert result.metadata == {"code": 1}


# -- that they are no errors --------------------------------------------------------


@pytest.mark.parametrize("halt", HALTS)
def test_except_exception_never_sees_a_halt(run, halt):
    end, status = HALTS[halt]

    class Careful(Task[str]):
        def work(self):
            try:
                end(self)
            except Exception:
                return "swallowed"

    assert (run(Careful).status, run(Careful).reason) == (status, "enough")


@pytest.mark.parametrize("listed", [Exception, BaseException])
@pytest.mark.parametrize("halt", HALTS)
def test_a_halt_is_never_retried(run, halt, listed, instant):
    end, status = HALTS[halt]
    result = run(retry_on(listed)(halting(end)))

    assert (result.status, result.retries) == (status, 0)
    assert instant.pauses == []


def test_a_halt_runs_the_finally_blocks_of_work(run):
    events = []

    class Tidy(Task[None]):
        def work(self):
            try:
                self.fail("no")
            finally:
                events.append("tidy")

    assert run(Tidy).failed
    assert events == ["tidy"]


# -- metadata -----------------------------------------------------------------------


def test_keywords_of_a_halt_are_merged_into_the_metadata_of_the_task(run):
    class Noting(Task[None]):
        def work(self):
            self.metadata.update(code=1, step="first")
            self.fail("no", code=2, shelf=4)

    assert run(Noting).metadata == {"code": 2, "step": "first", "shelf": 4}


@pytest.mark.parametrize("name", ["succeed", "skip", "fail"])
def test_any_keyword_can_be_noted_down_by_a_halt(run, name):
    noted = {"reason": "inner", "self": 1, "metadata": 2, "status": 3, "result": 4}
    result = run(halting(lambda task: getattr(task, name)("outer", **noted)))

    assert result.reason == "outer"
    assert result.metadata == noted


def test_a_thrown_failure_keeps_its_metadata_to_itself(run):
    result = run(halting(lambda task: task.throw(Refuse.execute())))

    assert result.metadata == {}
    assert result.origin.metadata == {"shelf": 4}


# -- errors -------------------------------------------------------------------------


def test_errors_win_over_succeed(run):
    class Optimist(Task[None]):
        def work(self):
            self.errors.add("name", "is too long")
            self.succeed("fine", value=7)

    result = run(Optimist)

    assert result.failed
    assert result.reason == str(result.errors)
    assert result.value_or(None) is None


# -- outside a run ------------------------------------------------------------------


@pytest.mark.parametrize(
    "halt",
    [
        lambda task: task.succeed("late"),
        lambda task: task.skip("late"),
        lambda task: task.fail("late", code=1),
        lambda task: task.throw(Refuse.execute()),
    ],
)
def test_a_halt_outside_a_run_is_refused(halt):
    invocation = Greet()

    with pytest.raises(FinishedTaskError, match="Greet has not started"):
        halt(invocation)

    result = invocation.run()
    assert result.value == "hello"

    with pytest.raises(FinishedTaskError, match="Greet has ended"):
        halt(invocation)

    assert result.success
    assert result.metadata == {}


def test_a_halt_after_the_end_of_an_async_run_is_refused():
    invocation = Greet()
    asyncio.run(invocation.arun())

    with pytest.raises(FinishedTaskError):
        invocation.fail("late")


def test_a_halt_after_a_run_that_was_torn_out_is_refused():
    def end(_):
        raise KeyboardInterrupt

    invocation = halting(end)()
    with pytest.raises(KeyboardInterrupt):
        invocation.run()

    with pytest.raises(FinishedTaskError):
        invocation.fail("late")


def test_a_receiver_cannot_halt_a_run_that_has_ended(run, caplog):
    def receiver(_, *, task, **__):
        task.fail("late")

    with task_executed.connected_to(receiver), caplog.at_level(logging.ERROR, "cmdx"):
        result = run(Greet)

    assert result.value == "hello"
    assert "FinishedTaskError" in caplog.text


# -- the halt of another task -------------------------------------------------------


@pytest.mark.usefixtures("instant")
def test_a_parents_halt_inside_a_child_passes_through(run, ending):
    class Parent(Task[str]):
        def work(self):
            ending(lambda _: self.skip("enough", code=1)).execute()
            return "went on"

    result = run(Parent)

    assert (result.status, result.reason) == (Status.SKIPPED, "enough")
    assert result.metadata == {"code": 1}


@pytest.mark.usefixtures("instant")
def test_a_parents_halt_inside_an_async_child_passes_through(ending):
    class Parent(Task[str]):
        async def work(self):
            await ending(lambda _: self.skip("enough")).aexecute()
            return "went on"

    assert asyncio.run(Parent.aexecute()).reason == "enough"


def test_a_parents_halt_inside_the_rollback_of_a_child_passes_through(run):
    class Parent(Task[str]):
        def work(self):
            parent = self

            class Child(Task[None]):
                def work(self):
                    self.fail("no")

                def rollback(self):
                    parent.skip("enough")

            Child.execute()
            return "went on"

    assert run(Parent).reason == "enough"


def test_a_parents_halt_is_no_outcome_of_the_child(run):
    events = []

    def watch(_task):
        try:
            yield
            events.append("result")
        finally:
            events.append("torn down")

    class Parent(Task[str]):
        def work(self):
            parent = self

            @retry_on(BaseException, delay=0)
            @middleware(watch)
            class Child(Task[None]):
                def work(self):
                    parent.fail("enough")

                @on_failed
                def page(self):
                    events.append("page")

            Child.execute()

        @on_failed
        def page(self):
            events.append("parent's page")

    result = run(Parent)

    assert result.reason == "enough"
    assert result.is_caused_failure
    assert events == ["torn down", "parent's page"]


def test_a_grandparents_halt_passes_through_all_between(run):
    class Parent(Task[None]):
        def work(self):
            grandparent = self.context.grandparent
            halting(lambda _: grandparent.skip("enough")).execute()

    class Grandparent(Task[str]):
        def work(self):
            Parent.execute(grandparent=self)
            return "went on"

        @on_success
        def celebrate(self):
            self.fail("too early")

    assert run(Grandparent).reason == "enough"


def test_a_parent_goes_on_as_itself_after_catching_its_own_halt(run):
    class Parent(Task[str]):
        def work(self):
            try:
                halting(lambda _: self.skip("enough")).execute()
            except BaseException as halt:
                assert not isinstance(halt, Exception)  # noqa: PT017
            return Greet.execute().parent_tid

    result = run(Parent)

    assert result.value == result.tid


def test_a_childs_halt_ends_the_child_alone(run):
    class Parent(Task[str]):
        def work(self):
            return Refuse.execute().reason

    assert run(Parent).value == "empty shelf"
