"""Workflows under ``aexecute``: both colours mixed, and what cancelling does."""

from __future__ import annotations

import asyncio
import threading
from threading import Event

import pytest

from cmdx import (
    FinishedTaskError,
    Task,
    Workflow,
    deadline,
    group,
    parallel,
    retry_on,
    step,
    task_rolled_back,
)
from cmdx.exceptions import AsyncTaskError
from cmdx.run.deadlines import DeadlineExceeded

PATIENCE = 20


def flow(*listed, **names):
    return type("Flow", (Workflow,), {"steps": listed, **names})


@pytest.fixture
def undone():
    names = []

    def heard(sender, **_):
        names.append(sender.__name__)

    with task_rolled_back.connected_to(heard):
        yield names


class Sync(Task[str]):
    def work(self) -> str:
        self.context.sync = threading.get_ident()
        return "sync"

    def rollback(self) -> None: ...


class Async(Task[str]):
    async def work(self) -> str:
        await asyncio.sleep(0)
        self.context["async"] = threading.get_ident()
        return "async"

    async def rollback(self) -> None:
        await asyncio.sleep(0)


# -- both colours ---------------------------------------------------------------


@pytest.mark.parametrize("listed", [(Sync, Async), (Async, Sync)])
def test_sync_and_async_steps_follow_each_other(listed):
    result = asyncio.run(flow(*listed).aexecute())

    assert result.value == listed[-1].__name__.lower()
    assert set(result.context) == {"sync", "async"}


def test_sync_and_async_steps_run_beside_each_other():
    met = Event()

    class Waits(Task[None]):
        def work(self) -> None:
            assert met.wait(PATIENCE)

    class Meets(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(0)
            met.set()

    result = asyncio.run(flow(parallel(Waits, Meets)).aexecute())

    assert result.success


def test_async_siblings_run_on_the_loop_and_sync_ones_in_threads():
    context = asyncio.run(flow(parallel(Sync, Async)).aexecute()).context

    assert context["async"] == threading.get_ident()
    assert context.sync != threading.get_ident()


@pytest.mark.parametrize(
    "listed",
    [
        (Async,),
        (group(Async),),
        (parallel(Sync, Async),),
        (parallel(group(Sync, Async)),),
        (flow(Async),),
        (parallel(Sync, executor="asyncio"),),
        (flow(parallel(Sync, executor="asyncio")),),
    ],
    ids=["step", "group", "beside", "within", "nested", "executor", "nested executor"],
)
def test_a_workflow_that_awaits_anywhere_is_refused_by_execute(listed):
    with pytest.raises(TypeError, match=r"Flow awaits.*await Flow\.aexecute"):
        flow(*listed).execute()


@pytest.mark.parametrize(
    ("listed", "part"),
    [
        ((Sync, Async), "Async is async"),
        ((flow(Sync, Async),), "Flow is async"),
        ((parallel(Sync, executor="asyncio"),), 'executor="asyncio" is async'),
    ],
)
def test_the_refusal_names_the_part_that_awaits_and_both_cures(listed, part):
    with pytest.raises(AsyncTaskError) as refused:
        flow(*listed).execute()

    message = str(refused.value)
    assert f"Flow awaits ({part})" in message
    assert "await Flow.aexecute(...)" in message
    assert "asyncio.run(Flow.aexecute(...))" in message


@pytest.mark.parametrize("executor", [None, "asyncio"])
def test_the_asyncio_executor_runs_siblings_as_tasks(executor):
    class Who(Task[None]):
        async def work(self) -> None:
            self.context[type(self).__name__] = id(asyncio.current_task())

    class Who2(Who):
        pass

    async def main():
        here = id(asyncio.current_task())
        listed = parallel(Who, Who2, executor=executor)
        return here, (await flow(listed).aexecute()).context

    here, context = asyncio.run(main())

    assert len({here, context.Who, context.Who2}) == 3


def test_an_async_step_cannot_be_run_by_threads():
    result = asyncio.run(flow(parallel(Async, executor="threads")).aexecute())

    assert isinstance(result.cause, AsyncTaskError)


def test_a_sibling_whose_decorator_hides_that_it_awaits_is_told_the_cure():
    def hide(function):
        def call(self):
            return function(self)

        return call

    class Hidden(Task[None]):
        @hide
        async def work(self) -> None: ...

    result = asyncio.run(flow(parallel(Hidden)).aexecute())

    assert isinstance(result.caused_failure.cause, AsyncTaskError)
    assert "must return an `async def` function" in result.reason
    assert asyncio.run(flow(Hidden).aexecute()).success


def test_the_loop_is_not_blocked_by_siblings_that_do_not_await():
    ticked = Event()

    class Waits(Task[None]):
        def work(self) -> None:
            assert ticked.wait(PATIENCE)

    async def main():
        async def tick():
            ticked.set()

        ticking = asyncio.create_task(tick())
        result = await flow(parallel(Waits, executor="threads")).aexecute()
        await ticking
        return result

    assert asyncio.run(main()).success


# -- at the same time -----------------------------------------------------------


class Meeting:
    """Four that wait for each other: all must be there before one may go."""

    def __init__(self):
        self.absent = 4
        self.complete = Event()
        self.lock = threading.Lock()

    def arrive(self):
        with self.lock:
            self.absent -= 1
            if not self.absent:
                self.complete.set()


class Meets(Task[None]):
    def work(self) -> None:
        self.context.meeting.arrive()
        assert self.context.meeting.complete.wait(PATIENCE)


class MeetsLater(Task[None]):
    async def work(self) -> None:
        self.context.meeting.arrive()
        assert await asyncio.to_thread(self.context.meeting.complete.wait, PATIENCE)


def test_four_that_wait_run_at_the_same_time(run):
    assert run(flow(parallel(*[Meets] * 4)), meeting=Meeting()).success


@pytest.mark.parametrize(
    "listed", [[MeetsLater] * 4, [Meets, MeetsLater] * 2], ids=["loop", "both kinds"]
)
def test_four_that_await_run_at_the_same_time(listed):
    workflow = flow(parallel(*listed))

    assert asyncio.run(workflow.aexecute(meeting=Meeting())).success


# -- cancelling -----------------------------------------------------------------


class Endless(Task[None]):
    async def work(self) -> None:
        self.context.begun.set()
        await asyncio.sleep(PATIENCE)

    async def rollback(self) -> None:
        await asyncio.sleep(0)


class Endless2(Endless):
    pass


async def cancelled(workflow, begun=None, times=1, **inputs):
    """Cancel a run that has begun, then let it go on; return what ended it."""
    begun = begun or asyncio.Event()
    running = asyncio.create_task(workflow.aexecute(begun=begun, **inputs))
    if isinstance(begun, Event):
        await asyncio.to_thread(begun.wait, PATIENCE)
    else:
        await asyncio.wait_for(begun.wait(), PATIENCE)
    await asyncio.sleep(0)
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0)
    if "go" in inputs:
        assert not running.done()  # it waits for what cannot be cancelled
        inputs["go"].set()
    (ended,) = await asyncio.gather(running, return_exceptions=True)
    return ended


def left_running():
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_cancelling_cancels_siblings_and_rolls_them_back(undone):
    async def main():
        ended = await cancelled(flow(parallel(Endless, Endless2)))
        return ended, left_running()

    ended, left = asyncio.run(main())

    assert isinstance(ended, asyncio.CancelledError)
    assert sorted(undone) == ["Endless", "Endless2"]
    assert left == []


def test_cancelling_rolls_back_what_had_been_done_before(undone):
    listed = (Async, flow(Sync), parallel(Endless, Async))
    ended = asyncio.run(cancelled(flow(*listed)))

    assert isinstance(ended, asyncio.CancelledError)
    assert undone == ["Endless", "Async", "Sync", "Async"]


def test_cancelling_a_step_in_a_sequence_rolls_it_back(undone):
    ended = asyncio.run(cancelled(flow(Sync, Endless, Async)))

    assert isinstance(ended, asyncio.CancelledError)
    assert undone == ["Endless", "Sync"]


def test_cancelling_reaches_nested_workflows(undone):
    nested = flow(Sync, Endless)
    ended = asyncio.run(cancelled(flow(Async, parallel(nested, Async))))

    assert isinstance(ended, asyncio.CancelledError)
    assert undone[:2] == ["Endless", "Sync"]
    assert undone[2:] == ["Async", "Async"]


def test_cancelling_starts_nobody_else(undone):
    class Never(Sync):
        def work(self) -> str:
            started.append(True)

    started = []
    listed = parallel(Endless, Never, Never, workers=1)

    assert isinstance(asyncio.run(cancelled(flow(listed))), asyncio.CancelledError)
    assert started == []
    assert undone == ["Endless"]


class Blocking(Task[str]):
    """Does not await, so it cannot be cancelled."""

    def work(self) -> str:
        self.context.running.append(type(self).__name__)
        self.context.begun.set()
        assert self.context.go.wait(PATIENCE)
        self.context.ended.append(type(self).__name__)
        if self.context.get("fails"):
            self.fail("no")
        return "done"

    def rollback(self) -> None: ...


class Shared(list):
    """A list that is shared by all who have it."""

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("executor", [None, "threads"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_sibling_that_does_not_await_is_never_left_running(
    undone, times, executor, fails
):
    begun, go = Event(), Event()
    running, ended = Shared(), Shared()

    async def main():
        workflow = flow(parallel(Blocking, executor=executor))
        return await cancelled(
            workflow,
            begun=begun,
            times=times,
            go=go,
            running=running,
            ended=ended,
            fails=fails,
        )

    assert isinstance(asyncio.run(main()), asyncio.CancelledError)
    assert running == ended == ["Blocking"]
    assert undone == ["Blocking"]


@pytest.mark.parametrize("executor", [None, "threads"])
def test_siblings_that_wait_for_a_thread_are_not_started_after_cancelling(
    undone, pool_of, executor
):
    pool_of(1)
    begun, go = Event(), Event()
    running, ended = Shared(), Shared()

    async def main():
        workflow = flow(parallel(Blocking, Blocking, Blocking, executor=executor))
        inputs = {"go": go, "running": running, "ended": ended}
        return await cancelled(workflow, begun=begun, **inputs)

    assert isinstance(asyncio.run(main()), asyncio.CancelledError)
    assert running == ended == undone == ["Blocking"]


def test_a_workflow_in_a_thread_is_rolled_back_whole_after_cancelling(undone):
    class Idle(Endless):
        async def work(self) -> None:
            await asyncio.sleep(PATIENCE)

    begun, go = Event(), Event()

    async def main():
        workflow = flow(parallel(flow(Sync, Blocking), Idle))
        return await cancelled(
            workflow, begun=begun, go=go, running=Shared(), ended=Shared()
        )

    assert isinstance(asyncio.run(main()), asyncio.CancelledError)
    assert undone == ["Idle", "Blocking", "Sync"]


def test_a_sibling_that_was_cancelled_by_others_ends_the_workflow(undone):
    class Given(Task[None]):
        async def work(self) -> None:
            await self.context.future

    async def main():
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        workflow = flow(parallel(Async, Given), Sync)
        return await workflow.aexecute(future=future)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert undone == ["Async"]


def test_a_rollback_that_raises_does_not_replace_the_cancelling():
    class Stuck(Endless):
        async def rollback(self) -> None:
            raise OSError("stuck")

    ended = asyncio.run(cancelled(flow(parallel(Stuck, Endless))))

    assert isinstance(ended, asyncio.CancelledError)


def test_a_timeout_around_a_workflow_is_a_timeout(undone):
    async def main():
        async with asyncio.timeout(0.05):
            await flow(parallel(Endless, Endless2)).aexecute(begun=asyncio.Event())

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert sorted(undone) == ["Endless", "Endless2"]


@pytest.mark.usefixtures("instant")  # no step is late, however slow the machine is
def test_a_deadline_cancels_the_steps_and_fails_the_workflow(undone):
    @retry_on(ConnectionError, deadline=0.05)
    class Limited(Workflow[None]):
        steps = (Sync, parallel(Endless, Endless2))

    result = asyncio.run(Limited.aexecute(begun=asyncio.Event()))

    # Whose time is up first, that of the workflow or of a step, is a matter of chance.
    assert isinstance(result.caused_failure.cause, DeadlineExceeded)
    assert sorted(undone[:2]) == ["Endless", "Endless2"]
    assert undone[2:] == ["Sync"]
    assert [each.task for each in result.compensated] == [Sync]


@pytest.mark.usefixtures("instant")
def test_a_workflow_that_is_late_tells_what_was_compensated(undone):
    @retry_on(ConnectionError, deadline=0.05)
    class Limited(Workflow[None]):
        steps = (Async, parallel(Blocking, executor="threads"))

    async def main():
        go = Event()
        inputs = {"go": go, "begun": Event(), "running": Shared(), "ended": Shared()}
        running = asyncio.create_task(Limited.aexecute(inputs))
        while not running.cancelling():  # noqa: ASYNC110 -- until the time is up
            await asyncio.sleep(0)
        go.set()
        return await running

    result = asyncio.run(main())

    assert isinstance(result.cause, DeadlineExceeded)
    assert [each.task for each in result.compensated] == [Blocking, Async]
    assert undone == ["Blocking", "Async"]


def test_the_deadline_around_a_workflow_is_seen_by_its_steps():
    class Late(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(PATIENCE)

    async def main():
        with deadline(0.05):
            return await flow(parallel(Late, Late)).aexecute()

    assert isinstance(asyncio.run(main()).caused_failure.cause, DeadlineExceeded)


# -- failures -------------------------------------------------------------------


def test_a_failure_lets_async_siblings_finish():
    class Slow(Task[str]):
        async def work(self) -> str:
            await self.context.failed.wait()
            return "finished"

    class Fails(Task[None]):
        async def work(self) -> None:
            self.context.failed.set()
            self.fail("no")

    async def main():
        failed = asyncio.Event()
        return await flow(parallel(Slow, Fails, Async, workers=2)).aexecute(
            failed=failed
        )

    result = asyncio.run(main())

    assert result.reason == "no"
    assert [each.task for each in result.chain[1:]] == [Fails, Slow]
    assert result.chain[2].value == "finished"


def test_a_tolerated_async_failure_goes_on():
    class Fails(Task[None]):
        async def work(self) -> None:
            raise OSError("no mail")

    listed = (step(Fails, on_failure="continue"), Async)

    assert asyncio.run(flow(*listed).aexecute()).success


def test_misuse_of_an_async_sibling_fails_it_and_the_workflow():
    class Misused(Task[None]):
        async def work(self) -> None:
            Sync().fail("never started")

    result = asyncio.run(flow(parallel(Async, Misused)).aexecute())

    assert result.origin.task is Misused
    assert isinstance(result.origin.cause, FinishedTaskError)
