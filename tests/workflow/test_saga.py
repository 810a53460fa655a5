"""What was done is undone when a later step fails."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from contextvars import ContextVar
from threading import Event

import garbage
import pytest

from cmdx import (
    FinishedTaskError,
    Task,
    Workflow,
    group,
    on_failed,
    on_success,
    output,
    parallel,
    retry_on,
    step,
    task_cancelled,
    task_rolled_back,
)

PATIENCE = 20


@pytest.fixture
def undone():
    """Collect the names of those that are rolled back, in that order."""
    names = []

    def heard(sender, **_):
        names.append(sender.__name__)

    with task_rolled_back.connected_to(heard):
        yield names


class Undoable(Task[str]):
    def work(self) -> str:
        self.context.id = type(self).__name__
        return type(self).__name__

    def rollback(self) -> None:
        self.context.log.append((type(self).__name__, self.context.id))


class A(Undoable):
    pass


class B(Undoable):
    pass


class C(Undoable):
    pass


class Plain(Task[None]):
    def work(self) -> None: ...


class Failing(Task[None]):
    def work(self) -> None:
        self.fail("no")


class Skipping(Undoable):
    def work(self) -> str:
        self.skip("nothing to do")


def flow(*listed, **names):
    return type("Flow", (Workflow,), {"steps": listed, **names})


def named(results):
    return [each.task.__name__ for each in results]


# -- the order ------------------------------------------------------------------


def test_steps_that_succeeded_are_rolled_back_in_reverse(run, undone):
    result = run(flow(A, Plain, B, C, Failing), log=[])

    assert undone == ["C", "B", "A"]
    assert result.context.log == [("C", "C"), ("B", "C"), ("A", "C")]


def test_nothing_is_rolled_back_after_a_success(run, undone):
    result = run(flow(A, B), log=[])

    assert undone == []
    assert result.compensated == ()
    assert not any(each.rolled_back for each in result.chain)


def test_a_step_that_did_not_run_or_skipped_is_not_rolled_back(run, undone):
    run(flow(A, Skipping, group(B, if_=False), Failing, C), log=[])

    assert undone == ["A"]


def test_the_failed_step_rolls_itself_back_first(run, undone):
    class Fails(Undoable):
        def work(self) -> str:
            super().work()
            raise ValueError

    result = run(flow(A, Fails), log=[])

    assert undone == ["Fails", "A"]
    assert named(result.compensated) == ["A"]


def test_a_tolerated_failure_rolls_back_nothing_but_itself(run, undone):
    class Fails(Undoable):
        def work(self) -> str:
            super().work()
            self.fail()

    result = run(flow(A, step(Fails, on_failure="continue"), B), log=[])

    assert result.success
    assert undone == ["Fails"]


def test_collected_failures_roll_back_after_the_whole_group(run, undone):
    run(flow(A, group(Failing, B, continue_on_failure=True)), log=[])

    assert undone == ["B", "A"]


def test_a_workflow_that_fails_by_itself_rolls_its_steps_back(run, undone):
    class Flow(Workflow[None]):
        shelf: int = output()
        steps = (A, B)

    assert run(Flow, log=[]).reason == "shelf must be set in the context"
    assert undone == ["B", "A"]


def test_a_gate_that_fails_the_workflow_rolls_its_steps_back(run, undone):
    run(flow(A, group(B, if_=lambda workflow: workflow.fail("closed"))), log=[])

    assert undone == ["A"]


# -- nested workflows -----------------------------------------------------------


def test_workflows_that_had_finished_are_rolled_back_too(run, undone):
    result = run(flow(flow(A, flow(B)), C, Failing), log=[])

    assert undone == ["C", "B", "A"]
    assert named(result.compensated) == ["C", "B", "A"]


def test_a_nested_workflow_that_failed_rolls_itself_back_once(run, undone):
    inner = flow(B, Failing)
    result = run(flow(A, inner), log=[])
    nested = next(each for each in result.chain if each.task is inner)

    assert undone == ["B", "A"]
    assert named(nested.compensated) == ["B"]
    assert named(result.compensated) == ["A"]


def test_a_nested_workflow_that_ended_as_a_skip_is_rolled_back(run, undone):
    inner = flow(A, group(B, if_=lambda workflow: workflow.skip("enough")))

    run(flow(inner, Failing), log=[])

    assert undone == ["A"]


def test_a_nested_workflow_that_failed_after_its_steps_is_rolled_back(run, undone):
    class Inner(Workflow[None]):
        steps = (A,)

        @on_success
        def confirm(self) -> None:
            raise OSError("no mail today")

    run(flow(Inner, B), log=[])

    assert undone == ["A"]


class Own(Workflow[str]):
    """A workflow with something of its own to undo."""

    steps = (A, B)

    def rollback(self) -> None:
        self.context.log.append(("Own", self.context.id))


def test_the_rollback_of_a_failed_workflow_comes_after_those_of_its_steps(run, undone):
    class Fails(Own):
        steps = (*Own.steps, Failing)

    result = run(Fails, log=[])

    assert undone == ["B", "A", "Fails"]
    assert result.rolled_back


def test_the_rollback_of_a_finished_workflow_comes_after_those_of_its_steps(
    run, undone
):
    result = run(flow(Own, C, Failing), log=[])

    assert undone == ["C", "B", "A", "Own"]
    assert named(result.compensated) == ["C", "B", "A", "Own"]
    assert not result.rolled_back


# -- parallel siblings ----------------------------------------------------------


def test_siblings_are_rolled_back_each_with_the_context_it_wrote(run, undone):
    result = run(flow(parallel(A, B, C), Failing), log=[])

    assert undone == ["C", "B", "A"]
    assert result.context.id == "C"
    logs = {each.task.__name__: each.context.log for each in result.compensated}
    assert logs == {"A": [("A", "A")], "B": [("B", "B")], "C": [("C", "C")]}


def test_siblings_of_a_failed_one_are_rolled_back(run, undone):
    failed = Event()

    class Late(Undoable):
        def work(self) -> str:
            assert failed.wait(PATIENCE)
            return super().work()

    class Fails(Task[None]):
        def work(self) -> None:
            failed.set()
            self.fail("no")

    run(flow(A, parallel(Late, Fails, B, workers=2)), log=[])

    assert set(undone) <= {"A", "B", "Late"}
    assert undone[-2:] == ["Late", "A"]


def test_steps_of_groups_beside_each_other_are_rolled_back(run, undone):
    result = run(flow(parallel(group(A, B), flow(C)), Failing), log=[])

    assert undone == ["C", "B", "A"]
    assert named(result.compensated) == ["C", "B", "A"]


@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_siblings_of_any_executor_are_rolled_back(run, undone, executor):
    run(flow(parallel(A, B, executor=executor), Failing), log=[])

    assert undone == ["B", "A"]


def test_a_renamed_step_is_rolled_back_with_its_own_context(run, undone):
    class Book(Task[str]):
        room: int

        def work(self) -> str:
            self.context.booked = self.room
            return f"room {self.room}"

        def rollback(self) -> None:
            freed.append(self.context.booked)

    freed = []
    listed = (
        step(Book, map={"room": "single"}, into="first"),
        step(Book, map={"room": "double"}, into="second"),
    )
    run(flow(*listed, Failing), single=1, double=2)

    assert freed == [2, 1]
    assert undone == ["Book", "Book"]


# -- what the result tells ------------------------------------------------------


def test_the_result_tells_what_was_compensated(run):
    result = run(flow(A, Plain, B, Failing), log=[])

    assert named(result.compensated) == ["B", "A"]
    assert all(each in result.chain for each in result.compensated)
    assert {each.task.__name__: each.rolled_back for each in result.chain} == {
        "Flow": False,
        "A": True,
        "Plain": False,
        "B": True,
        "Failing": False,
    }


def test_a_compensated_step_is_still_a_success(run):
    result = run(flow(A, Failing), log=[])

    assert result.compensated[0].success
    assert result.compensated[0].value == "A"
    assert result.compensated[0].parent == result


def test_each_rollback_is_sent_with_what_it_raised(run):
    sent = []

    class Stuck(A):
        def rollback(self) -> None:
            raise OSError("stuck")

    def heard(sender, *, task, error):
        sent.append((sender, type(task), repr(error)))

    with task_rolled_back.connected_to(heard):
        run(flow(B, Stuck, Failing), log=[])

    assert sent == [(Stuck, Stuck, "OSError('stuck')"), (B, B, "None")]


@pytest.mark.parametrize("error", [OSError("stuck"), FinishedTaskError("misused")])
def test_a_rollback_that_raises_is_recorded_and_the_rest_still_run(run, undone, error):
    class Stuck(Undoable):
        def rollback(self) -> None:
            raise error

    result = run(flow(A, Stuck, C, Failing), log=[])

    assert undone == ["C", "Stuck", "A"]
    assert result.reason == "no"
    assert [each.rollback_error for each in result.compensated] == [None, error, None]
    assert result.rollback_error is None


def test_a_rollback_that_halts_is_recorded_and_the_rest_still_run(run, undone):
    class Stuck(Undoable):
        def rollback(self) -> None:
            self.fail("cannot undo")

    result = run(flow(A, Stuck, Failing), log=[])

    assert undone == ["Stuck", "A"]
    assert result.reason == "no"
    assert isinstance(result.compensated[0].rollback_error, FinishedTaskError)


def test_tasks_run_by_a_rollback_belong_to_the_workflow(run):
    class Refund(Task[None]):
        def work(self) -> None: ...

    class Charge(Undoable):
        def rollback(self) -> None:
            Refund.execute(self)

    result = run(flow(Charge, Failing), log=[])
    refund = next(each for each in result.chain if each.task is Refund)

    assert refund.parent == result
    assert refund.depth == 1


def test_the_chain_shows_rolled_back_steps_after_pickling():
    result = Pickled.execute(log=[])
    copied = pickle.loads(pickle.dumps(result))

    assert named(copied.compensated) == ["B", "A"]


class Pickled(Workflow[None]):
    steps = (A, B, Failing)


# -- more than one attempt, and none --------------------------------------------


def test_what_an_earlier_attempt_did_is_rolled_back_too(run, undone, instant):
    def gate():
        raise TimeoutError

    result = run(retry_on(TimeoutError, limit=1)(flow(A, group(B, if_=gate))), log=[])

    assert result.retries == 1
    assert undone == ["A", "A"]
    assert len(result.compensated) == 2
    assert instant.pauses == [0.5]


class Misused(Task[None]):
    def work(self) -> None:
        Plain().fail("never started")


@pytest.mark.parametrize("misused", [Misused, parallel(Misused, C, workers=1)])
def test_misuse_rolls_back_what_was_done(run, undone, misused):
    result = run(flow(flow(A), B, misused), log=[])

    assert isinstance(result.origin.cause, FinishedTaskError)
    assert undone == ["B", "A"]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (lambda stop: (A, B, stop), ["Interrupting", "B", "A"]),
        (lambda stop: (flow(A, B), stop, C), ["Interrupting", "B", "A"]),
        (lambda stop: (A, flow(B, stop)), ["Interrupting", "B", "A"]),
        (lambda stop: (A, group(B, stop, continue_on_failure=True)), None),
        (lambda stop: (A, parallel(B, stop, workers=1)), None),
        (lambda stop: (A, parallel(B, group(C, stop), workers=1)), None),
    ],
    ids=["step", "after", "nested", "group", "beside", "within"],
)
def test_an_interrupt_in_a_step_rolls_back_it_and_what_was_done(
    run, undone, listed, expected
):
    class Interrupting(Undoable):
        def work(self) -> str:
            super().work()
            raise KeyboardInterrupt

    workflow = flow(*listed(Interrupting))
    with pytest.raises(KeyboardInterrupt):
        run(workflow, log=[])

    assert undone[0] == "Interrupting"
    assert undone[-1] == "A"
    assert undone == (expected or undone)
    assert len(undone) == len(set(undone)) >= 3


@pytest.mark.parametrize("own", [True, False], ids=["own rollback", "none"])
def test_an_interrupt_after_the_steps_rolls_them_back(run, undone, own):
    class Late(Workflow[None]):
        steps = (A, flow(B), parallel(C))

        @on_success
        def thank(self) -> None:
            raise KeyboardInterrupt

        if own:

            def rollback(self) -> None: ...

    sent = []

    def receive(_sender, *, result, **_):
        sent.append((named(result.compensated), result.stopped))

    with (
        task_cancelled.connected_to(receive, sender=Late),
        pytest.raises(KeyboardInterrupt),
    ):
        run(Late, log=[])

    assert undone == ["C", "B", "A", *(["Late"] if own else [])]
    assert sent == [(["C", "B", "A"], "cancelled")]


def test_a_halt_of_an_outer_task_in_a_step_rolls_back_what_was_done(run, undone):
    class Outer(Task[None]):
        def work(self) -> None:
            outer = self

            class Stopping(Undoable):
                def work(self) -> str:
                    outer.fail("enough")

            flow(A, B, Stopping).execute({"log": []})

    result = run(Outer)

    assert result.reason == "enough"
    assert undone == ["Stopping", "B", "A"]
    assert [each.stopped for each in result.chain if each.task.__name__ == "Flow"] == [
        "cancelled"
    ]


def test_an_interrupt_rolls_back_what_was_done(undone):
    class Interrupted(Task[None]):
        def work(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flow(A, parallel(B, Interrupted, workers=1)).execute(log=[])

    assert undone == ["B", "A"]


# -- async ----------------------------------------------------------------------


class Later(Undoable):
    async def work(self) -> str:
        await asyncio.sleep(0)
        return super().work()

    async def rollback(self) -> None:
        await asyncio.sleep(0)
        super().rollback()


class Later2(Later):
    pass


def test_async_rollbacks_are_awaited_in_their_turn(undone):
    listed = (Later, A, parallel(Later2, B), Failing)
    result = asyncio.run(flow(*listed).aexecute(log=[]))

    assert undone == ["B", "Later2", "A", "Later"]
    assert result.context.log == [("A", "B"), ("Later", "B")]


class Careful(Task[None]):
    """Takes its time to undo, and says when it begins."""

    def work(self) -> None: ...

    async def rollback(self) -> None:
        self.context.begun.set()
        await asyncio.sleep(0.01)
        self.context.log.append(type(self).__name__)


class Careful2(Careful):
    pass


class CarefulFailing(Careful):
    def work(self) -> None:
        self.fail("no")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ((Careful, Careful2, Failing), ["Careful2", "Careful"]),
        ((Careful, CarefulFailing), ["CarefulFailing", "Careful"]),
        ((Careful, parallel(CarefulFailing)), ["CarefulFailing", "Careful"]),
    ],
    ids=["of steps", "of the failed one", "beside others"],
)
@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_does_not_keep_rollbacks_from_their_end(
    undone, listed, expected, times
):
    async def main():
        begun = asyncio.Event()
        running = asyncio.create_task(flow(*listed).aexecute(begun=begun, log=[]))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0)
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert undone == expected


class MeetsACancelledFuture(Undoable):
    async def rollback(self) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future


def test_a_rollback_that_meets_a_cancelled_future_is_recorded_and_the_rest_run(undone):
    listed = (A, MeetsACancelledFuture, B, Failing)
    result = asyncio.run(flow(*listed).aexecute(log=[]))

    assert undone == ["B", "MeetsACancelledFuture", "A"]
    error = result.compensated[1].rollback_error
    assert isinstance(error, asyncio.CancelledError)


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), KeyboardInterrupt(), BaseExceptionGroup("", [SystemExit(1)])],
    ids=lambda error: type(error).__name__,
)
def test_what_leaves_a_rollback_does_so_when_the_rest_is_undone(run, undone, error):
    class Leaving(Undoable):
        def rollback(self) -> None:
            raise error

    with pytest.raises(type(error)) as raised:
        run(flow(A, Leaving, B, Failing), log=[])

    assert raised.value is error
    assert undone == ["B", "Leaving", "A"]


def test_rollbacks_come_to_their_end_when_the_event_loop_shuts_down(undone):
    log = []

    async def main():
        begun = asyncio.Event()
        running = asyncio.create_task(
            flow(Careful, Failing).aexecute(begun=begun, log=log)
        )
        await asyncio.wait_for(begun.wait(), PATIENCE)
        return running  # asyncio.run cancels it, and all others

    asyncio.run(main())

    assert undone == ["Careful"]
    assert log == ["Careful"]


def test_a_timeout_within_a_rollback_is_an_error_of_the_rollback(undone):
    class Slow(Undoable):
        async def rollback(self) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(PATIENCE)

    result = asyncio.run(flow(A, Slow, Failing).aexecute(log=[]))

    assert undone == ["Slow", "A"]
    assert isinstance(result.compensated[0].rollback_error, TimeoutError)


def test_a_rollback_sees_and_sets_the_context_variables_of_the_run():
    session = ContextVar("session", default="none")
    seen = []

    class Scoped(Task[None]):
        async def work(self) -> None:
            session.set("open")
            self.fail("no")

        async def rollback(self) -> None:
            seen.append(session.get())
            session.set("rolled back")

        @on_failed
        def look(self) -> None:
            seen.append(session.get())

    asyncio.run(Scoped.aexecute())

    assert seen == ["open", "rolled back"]


# -- nothing is left behind -----------------------------------------------------


def left_behind(run, workflow):
    """Name what only the collector finds after a few runs."""
    return set(garbage.left_behind(lambda: run(workflow, log=[]), 20))


class Stuck(Undoable):
    def rollback(self) -> None:
        raise OSError("stuck")


class Broken(Undoable):
    def work(self) -> str:
        raise LookupError("nowhere")


@pytest.mark.parametrize(
    "listed",
    [
        (A, B),
        (A, Failing),
        (A, Broken),
        (A, Stuck, Failing),
        (Own, Failing),
        (parallel(A, B), Plain),
        (parallel(A, Failing, B),),
        (parallel(A, Broken), B),
        (parallel(group(A, Stuck), C), Failing),
        (group(A, Broken, Failing, continue_on_failure=True),),
        (step(A, into="x"), step(Broken, on_failure="continue")),
    ],
    ids=lambda listed: "-".join(getattr(each, "__name__", "group") for each in listed),
)
@pytest.mark.parametrize("forget", ["execute", "aexecute"])
def test_a_workflow_leaves_no_cycles(forget, listed):
    def run(workflow, **inputs):
        workflow.execute(**inputs)

    # asyncio.run keeps what it returns in its own frame, which an error holds too.
    def arun(workflow, **inputs):
        async def forgotten():
            await workflow.aexecute(**inputs)

        asyncio.run(forgotten())

    runs = {"execute": run, "aexecute": arun}

    assert left_behind(runs[forget], flow(*listed)) == set()


def test_the_collector_would_find_a_cycle_if_there_was_one():
    class Knot(Task[None]):
        def work(self) -> None:
            self.knot = self

    left = left_behind(lambda task, **_: task.execute(), Knot)

    assert Knot.__qualname__ in left


class Interrupted(Task[None]):
    def work(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "listed",
    [
        (parallel(Interrupted, A),),
        (parallel(A, Interrupted),),
        (parallel(A, Interrupted, executor="inline"),),
        (parallel(Interrupted, A, executor="inline"),),
        (A, Interrupted),
        (flow(A), Interrupted),
        (parallel(A, flow(B, Interrupted), workers=1),),
        (parallel(A, Misused),),
    ],
    ids=[
        "first",
        "last",
        "inline last",
        "inline first",
        "after",
        "nested",
        "in",
        "ours",
    ],
)
@pytest.mark.parametrize("color", ["sync", "async"])
def test_an_interrupt_beside_others_leaves_no_cycles(color, listed):
    def run(workflow, **inputs):
        with suppress(KeyboardInterrupt):
            workflow.execute(**inputs)

    def arun(workflow, **inputs):
        async def forgotten():
            with suppress(KeyboardInterrupt):  # here: the loop would keep it
                await workflow.aexecute(**inputs)

        asyncio.run(forgotten())

    runs = {"sync": run, "async": arun}

    assert left_behind(runs[color], flow(*listed)) == set()
