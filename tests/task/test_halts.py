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
    noted = {"self": 1, "metadata": 2, "status": 3, "result": 4, "task": 5}
    result = run(halting(lambda task: getattr(task, name)("outer", **noted)))

    assert result.reason == "outer"
    assert result.metadata == noted


@pytest.mark.parametrize("name", ["succeed", "skip", "fail"])
def test_the_reason_of_a_halt_may_be_given_by_keyword(run, name):
    result = run(halting(lambda task: getattr(task, name)(reason="broken", code=3)))

    assert result.reason == "broken"
    assert result.metadata == {"code": 3}


def test_a_thrown_failure_keeps_its_metadata_to_itself(run):
    result = run(halting(lambda task: task.throw(Refuse.execute())))

    assert result.metadata == {}
    assert result.origin.metadata == {"shelf": 4}


# -- reasons ------------------------------------------------------------------------


def test_an_exception_given_as_reason_becomes_the_cause(run):
    error = ValueError("card declined")
    result = run(halting(lambda task: task.fail(error, code=51)))

    assert result.failed
    assert (result.reason, result.cause) == ("card declined", error)
    assert result.metadata == {"code": 51}
    assert "card declined" in f"{result} {result!r} {result.chain.tree()}"
    assert "ValueError: card declined" in result.to_json()


@pytest.mark.parametrize("name", ["succeed", "skip"])
def test_an_exception_may_be_the_reason_of_other_halts_too(run, name):
    error = ValueError("nothing to charge")
    result = run(halting(lambda task: getattr(task, name)(error)))

    assert result.ok
    assert (result.reason, result.cause) == ("nothing to charge", error)


def test_an_exception_without_text_gives_its_name_as_the_reason(run):
    class Declined(Exception):
        pass

    assert run(halting(lambda task: task.fail(Declined()))).reason.endswith("Declined")


def test_a_failure_by_an_exception_is_raised_as_a_fault_that_it_caused(run):
    error = ValueError("card declined")
    task = halting(lambda task: task.fail(error))

    with pytest.raises(Fault) as raised:
        run(task).or_raise()

    assert str(raised.value) == "card declined"
    assert raised.value.__cause__ is error
    assert raised.value.result.cause is error


@pytest.mark.parametrize("name", ["succeed", "skip", "fail"])
@pytest.mark.parametrize(
    "reason", [3, 0, False, b"no", ["no"], {"code": 3}, ValueError], ids=repr
)
def test_a_reason_that_is_neither_text_nor_exception_fails_the_task(run, name, reason):
    result = run(halting(lambda task: getattr(task, name)(reason)))

    assert type(result.cause) is TypeError
    assert type(reason).__qualname__ in result.reason
    assert "Pass other values by keyword" in result.reason


@pytest.mark.parametrize("given", ["no", 3, None, ValueError("no")], ids=repr)
def test_throwing_what_is_no_result_fails_the_task(run, given):
    result = run(halting(lambda task: task.throw(given)))

    assert type(result.cause) is TypeError
    assert "throw takes a result" in result.reason
    assert "Use fail(...)" in result.reason


class Found(Task[int]):
    def work(self):
        return 7


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (Found, "got the task class Found. Run it first: throw(Found.execute(...))."),
        (Found(), "got an invocation of Found. Run it first: throw(task.run())."),
    ],
    ids=["class", "invocation"],
)
def test_throwing_a_task_that_was_not_run_names_the_cure(run, given, cure):
    result = run(halting(lambda task: task.throw(given)))

    assert cure in result.reason


def test_throwing_a_coroutine_fails_the_task_and_says_to_await_it():
    class Throwing(Task[None]):
        async def work(self):
            self.throw(Refuse.aexecute())

    result = asyncio.run(Throwing.aexecute())

    assert type(result.cause) is TypeError
    assert "Await it first" in result.reason


# -- the place of the call ----------------------------------------------------------


def line_of(function, offset=1):
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


@pytest.mark.parametrize("name", ["succeed", "skip", "fail", "throw"])
def test_the_result_tells_where_the_task_was_halted(run, name):
    given = Refuse.execute() if name == "throw" else "enough"

    class Halting(Task[None]):
        def work(self):
            getattr(self, name)(given)

    result = run(Halting)

    assert result.halted_at == line_of(Halting.work)
    assert result.to_dict()["halted_at"] == result.halted_at


def test_a_halt_in_a_function_below_work_is_told_where_it_was_called(run):
    def below(task):
        task.fail("enough")

    assert run(halting(below)).halted_at == line_of(below)


def test_a_result_of_a_task_that_was_not_halted_has_no_such_place(run):
    class Broken(Task[None]):
        def work(self):
            raise ValueError

    assert run(Greet).halted_at is None
    assert run(Broken).halted_at is None


def test_the_place_is_that_of_the_halt_that_counts(run):
    class Twice(Refuse):
        @on_failed
        def again(self):
            self.skip("second")

    class Broken(Refuse):
        @on_failed
        def again(self):
            raise ValueError

    assert run(Twice).halted_at == line_of(Twice.again, 2)
    assert run(Broken).halted_at is None


def test_the_place_is_a_note_of_the_fault():
    with pytest.raises(Refuse.Fault) as raised:
        Refuse.execute_or_raise()

    assert raised.value.__notes__ == [f"halted at {line_of(Refuse.work)}"]


def test_the_fault_of_a_thrown_failure_tells_where_it_began(run):
    thrown = run(halting(lambda task: task.throw(Refuse.execute())))

    with pytest.raises(Refuse.Fault) as raised:
        thrown.or_raise()

    assert raised.value.__notes__ == [f"halted at {line_of(Refuse.work)}"]


def test_the_place_is_in_the_log_line(run, lines):
    run(Refuse)

    assert [line["halted_at"] for line in lines] == [line_of(Refuse.work)]


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


@pytest.mark.parametrize("method", ["succeed", "skip", "fail"])
def test_a_halt_of_the_class_is_refused_with_what_to_call(method):
    with pytest.raises(TypeError, match=r"not of its class. Call self.fail\(...\)"):
        getattr(Greet, method)("not today")


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


def test_a_parents_halt_inside_the_async_rollback_of_a_child_passes_through():
    class Parent(Task[str]):
        async def work(self):
            parent = self

            class Child(Task[None]):
                def work(self):
                    self.fail("no")

                async def rollback(self):
                    parent.skip("enough")

            await Child.aexecute()
            return "went on"

    assert asyncio.run(Parent.aexecute()).reason == "enough"


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
