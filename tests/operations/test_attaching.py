"""A duplicate of what is running waits for it, and is told the same."""

from __future__ import annotations

import asyncio
from threading import Barrier

import pytest
from ledgers import (
    LEASE,
    PATIENCE,
    Arrivals,
    SteppedStore,
    Stop,
    in_thread,
    on_each_store,
    run_async,
    running,
    steps,
)

from cmdx import RecordedError, Task, deadline, is_retryable
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationState,
    StillRunning,
    operation,
    operation_replayed,
    operation_sealed,
)

MANY = 64
POLICIES = [
    {"persist": persist, "idempotent": idempotent}
    for persist in (False, True)
    for idempotent in (False, True)
]


# -- many callers ----------------------------------------------------------------------


@on_each_store
def test_r_001_9_of_64_threads_one_runs_and_all_are_told_the_same(session, store):
    runs, arrivals, together = [], Arrivals(store, MANY), Barrier(MANY)

    class Charge(Task[dict], name="operations.charge"):
        def work(self):
            runs.append(1)
            arrivals.wait()
            return {"receipt": [7]}

    def call():
        together.wait(PATIENCE)
        return session.run(Charge(), id="a")

    futures = [in_thread(call) for _ in range(MANY)]
    results = [future.result(PATIENCE) for future in futures]
    assert len(runs) == 1
    assert [result.value for result in results] == [{"receipt": [7]}] * MANY
    assert {result.run_id for result in results} == {results[0].run_id}
    assert sum(result.operation.attached for result in results) == MANY - 1
    assert not any(result.operation.replayed for result in results)


@on_each_store
def test_r_001_9_of_64_coroutines_one_runs_and_all_are_told_the_same(session, store):
    runs, arrivals = [], Arrivals(store, MANY)

    class Charge(Task[dict], name="operations.charge"):
        async def work(self):
            runs.append(1)
            await arrivals.await_all()
            return {"receipt": [7]}

    async def main():
        calls = [session.arun(Charge(), id="a") for _ in range(MANY)]
        return await asyncio.gather(*calls)

    results = run_async(main())
    assert len(runs) == 1
    assert [result.value for result in results] == [{"receipt": [7]}] * MANY
    assert sum(result.operation.attached for result in results) == MANY - 1


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_r_001_22_a_live_operation_is_attached_to_whatever_its_policy(
    session, call, policy
):
    runs, stop = [], Stop()

    @operation(**policy)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append(1)
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop):
        arrivals = Arrivals(session.ledger.store, 1)
        duplicate = in_thread(lambda: call(session, Charge(), id="a"))
        arrivals.wait()
    assert duplicate.result(PATIENCE).value == 7
    assert duplicate.result().operation.attached
    assert len(runs) == 1


@pytest.mark.parametrize("ending", ["success", "skip", "fail", "raise"])
def test_r_001_23_those_attached_are_told_what_the_owner_is_told(session, ending):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            self.metadata["gateway"] = "acme"
            if ending == "skip":
                self.skip("nothing to do")
            if ending == "fail":
                self.fail("refused", code="DECLINED")
            if ending == "raise":
                raise ConnectionError("away")
            return 7

    owner = in_thread(lambda: session.run(Charge(), id="a"))
    assert stop.reached.wait(PATIENCE)
    arrivals = Arrivals(session.ledger.store, 3)
    others = [in_thread(lambda: session.run(Charge(), id="a")) for _ in range(3)]
    arrivals.wait()
    stop.let_go()
    first = owner.result(PATIENCE)
    for other in others:
        told = other.result(PATIENCE)
        assert (told.status, told.reason) == (first.status, first.reason)
        assert told.metadata == first.metadata
        assert told.value_or(None) == first.value_or(None)
        assert told.operation.attached
        assert told.operation.state is OperationState.SEALED


def test_those_attached_raise_the_fault_of_the_task(session):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            raise ConnectionError("away")

    with running(lambda: session.run(Charge(), id="a"), stop):
        arrivals = Arrivals(session.ledger.store, 1)
        attached = in_thread(lambda: session.run(Charge(), id="a"))
        arrivals.wait()
    with pytest.raises(Charge.Fault) as raised:
        attached.result(PATIENCE).or_raise()
    assert type(raised.value.__cause__) is RecordedError


def test_r_001_24_those_attached_have_values_of_their_own(session):
    stop = Stop()

    class Charge(Task[list[int]], name="operations.charge"):
        def work(self):
            stop.wait()
            return [7]

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        arrivals = Arrivals(session.ledger.store, 1)
        attached = in_thread(lambda: session.run(Charge(), id="a"))
        arrivals.wait()
    owner.result().value.append(8)
    assert attached.result(PATIENCE).value == [7]


def test_those_attached_send_no_signals(session):
    stop, sent = Stop(), []

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with (
        operation_replayed.connected_to(lambda *_, **__: sent.append("replayed")),
        operation_sealed.connected_to(lambda *_, **__: sent.append("sealed")),
    ):
        with running(lambda: session.run(Charge(), id="a"), stop):
            arrivals = Arrivals(session.ledger.store, 1)
            attached = in_thread(lambda: session.run(Charge(), id="a"))
            arrivals.wait()
        attached.result(PATIENCE)
    assert sent == ["sealed"]


# -- waiting no longer -----------------------------------------------------------------


@on_each_store
@pytest.mark.parametrize("wait", [0, 0.001])
def test_r_001_35_who_waits_no_longer_is_told_that_it_is_still_running(
    session, call, wait
):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop):
        result = call(session, Charge(), id="a", wait=wait)
        assert isinstance(result.cause, StillRunning)
        assert "'a' is still running after" in result.reason
        assert result.guidance.after == 1.0
        assert not is_retryable(result.cause)
        assert not result.indeterminate
        assert result.operation.state is OperationState.LIVE
        with pytest.raises(StillRunning):
            result.or_raise()
    assert call(session, Charge(), id="a", wait=wait).value == 7


def test_who_has_a_deadline_does_not_wait_longer(session, call, instant):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop), deadline(5):
        instant.advance(6)
        result = call(session, Charge(), id="a")
        assert isinstance(result.cause, StillRunning)


def test_an_owner_does_not_wait(session, call):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    assert call(session, Charge(), id="a", wait=0).value == 7


@pytest.mark.parametrize("wait", [-1, "1", float("inf"), float("nan"), True])
def test_a_wrong_wait_is_refused(session, call, wait):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    with pytest.raises(ValueError, match=r"run\(\): wait must be a finite number"):
        call(session, Charge(), id="a", wait=wait)
    assert session.get("a") is None


@on_each_store
def test_r_001_37_who_waits_for_an_owner_that_died_is_told_that_nobody_knows(
    session, store, instant
):
    stop = Stop()

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop):
        arrivals = Arrivals(store, 1)
        attached = in_thread(lambda: session.run(Charge(), id="a"))
        arrivals.wait()
        instant.advance(LEASE + 1)
        session.run(Other())  # whoever commits wakes those who wait
        told = attached.result(PATIENCE)
        assert isinstance(told.cause, Indeterminate)
        assert told.indeterminate


class Other(Task[None]):
    def work(self):
        return None


# -- coroutines that leave -------------------------------------------------------------


@pytest.mark.parametrize("persist", [False, True])
def test_r_001_31_an_attached_coroutine_that_is_cancelled_detaches_alone(
    session, store, persist
):
    arrivals = Arrivals(store, 3)

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            await arrivals.await_all()
            await gone.wait()
            return 7

    async def main():
        first, second, third = (
            asyncio.create_task(session.arun(Charge(), id="a")) for _ in range(3)
        )
        await arrivals.await_all()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gone.set()
        return await first, await third

    gone = asyncio.Event()
    owner, other = run_async(main())
    assert owner.value == other.value == 7
    assert session.get("a").executions == 1


@pytest.mark.parametrize("persist", [False, True])
def test_r_001_32_cancelling_at_any_step_harms_nobody(persist):
    """A duplicate is cancelled after 0, 1, 2 … steps of the event loop."""

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            await steps(12)
            return 7

    async def main(session, count):
        owner = asyncio.create_task(session.arun(Charge(), id="a"))
        await steps(4)
        leaving = asyncio.create_task(session.arun(Charge(), id="a"))
        staying = asyncio.create_task(session.arun(Charge(), id="a"))
        await steps(count)
        leaving.cancel()
        await asyncio.wait([leaving])
        return await owner, await staying

    for count in range(30):
        session = Ledger(SteppedStore()).session("shop")
        results = run_async(main(session, count))
        assert [result.value for result in results] == [7, 7], count
        assert session.get("a").executions == 1


async def cancel_after(count, call):
    """Cancel *call* after some steps, and return what it came to."""
    task = asyncio.create_task(call)
    await steps(count)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


LATEST = 25
"""A step of the event loop at which every owner below has ended."""


def cancelled_owners():
    """Yield where a volatile operation stands whose owner left at each step."""
    ran = []

    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            ran.append("begun")
            await steps(6)
            ran.append("done")
            return 7

    async def main(session, count):
        await cancel_after(count, session.arun(Charge(), id="a"))
        return await session.aget("a")

    for count in range(LATEST):
        ran.clear()
        session = Ledger(SteppedStore()).session("shop")
        found = run_async(main(session, count))
        yield list(ran), found and found.state


def test_r_001_32_a_volatile_owner_that_is_cancelled_at_work_has_released_it():
    states = {state for ran, state in cancelled_owners() if ran == ["begun"]}
    assert states == {OperationState.RELEASED}


def test_r_001_32_a_volatile_owner_that_is_cancelled_after_work_has_sealed_it():
    states = {state for ran, state in cancelled_owners() if "done" in ran}
    assert states == {OperationState.SEALED}


@pytest.mark.parametrize("persist", [False, True])
def test_a_caller_cancelled_while_it_is_admitted_leaves_nothing_live(persist):
    """The commit is done, and nobody has begun to own the record."""
    ran = []

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            ran.append(1)

    async def main(session, count):
        await cancel_after(count, session.arun(Charge(), id="a"))
        await steps(LATEST)  # a run that persists goes on
        return await session.aget("a")

    for count in range(LATEST):
        session = Ledger(SteppedStore()).session("shop")
        found = run_async(main(session, count))
        if ran:
            return
        assert found is None or found.state is not OperationState.LIVE, count


def test_r_001_32_who_waits_for_a_caller_that_left_before_work_runs_what_persists():
    """The first caller is admitted and leaves; the second one has attached to it."""
    ran = []

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            ran.append(1)
            return 7

    async def main(session, count, later):
        first = asyncio.create_task(session.arun(Charge(), id="a"))
        await steps(later)
        second = asyncio.create_task(session.arun(Charge(), id="a"))
        await steps(count)
        first.cancel()
        await asyncio.wait([first])
        has_begun = bool(ran)
        return has_begun, await second

    for later in range(6):
        for count in range(8):
            ran.clear()
            session = Ledger(SteppedStore()).session("shop")
            has_begun, result = run_async(main(session, count, later))
            assert has_begun or result.success, (later, count, result)
            assert len(ran) == 1, (later, count)


def test_r_001_32_what_persists_goes_on_without_its_caller_and_seals():
    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            await steps(6)
            return 7

    async def main(session, count):
        await cancel_after(count, session.arun(Charge(), id="a"))
        return await session.arun(Charge(), id="a")

    for count in range(4, LATEST):
        session = Ledger(SteppedStore()).session("shop")
        result = run_async(main(session, count))
        assert result.value == 7, count
        assert result.operation.executions == 1, count


def test_r_001_16_neither_timeout_nor_drop_releases_what_persists(session):
    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            begun.set()
            await go_on.wait()
            return 7

    async def main():
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    owner = asyncio.create_task(begun.wait())
                    owner.add_done_callback(lambda _: limit.reschedule(0))
                    await session.arun(Charge(), id="a")
        assert (await session.aget("a")).state is OperationState.LIVE
        go_on.set()
        return await session.arun(Charge(), id="a")

    begun, go_on = asyncio.Event(), asyncio.Event()
    result = run_async(main())
    assert (result.value, result.operation.executions) == (7, 1)


def test_an_event_loop_that_ends_leaves_what_persists_indeterminate(session):
    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            begun.set()
            await asyncio.Event().wait()

    async def main():
        caller = asyncio.create_task(session.arun(Charge(), id="a"))
        await begun.wait()
        caller.cancel()

    begun = asyncio.Event()
    run_async(main())
    assert session.get("a").state is OperationState.INDETERMINATE
