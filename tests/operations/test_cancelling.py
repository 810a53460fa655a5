"""Cancelling an operation, and interrupts that end its work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator  # noqa: TC003 -- the task resolves it

import pytest
from ledgers import (
    PATIENCE,
    Arrivals,
    QuietKeeper,
    SteppedStore,
    Stop,
    after_admission,
    beat,
    edit_row,
    in_thread,
    on_each_store,
    run_async,
    running,
    steps,
)

from cmdx import Task, before_execution, is_retryable
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationCancelled,
    OperationState,
    operation,
    operation_admitted,
    operation_indeterminate,
    operation_released,
)
from cmdx.operations.leases import MOST_CANCELLED
from cmdx.telemetry import task_cancelled, task_executed

LIVE, RELEASED, SEALED, INDETERMINATE, EXPIRED = OperationState


# -- callers who leave while they are admitted ----------------------------------------


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_who_is_cancelled_twice_while_it_is_admitted_withdraws(session, store, persist):
    ran, held = [], Stop()

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            ran.append(1)
            return 7

    async def main():
        store.at = lambda point: point == "before commit" and held.wait()
        caller = asyncio.create_task(session.arun(Charge(), id="a"))
        await asyncio.to_thread(held.reached.wait, PATIENCE)
        store.at = lambda _point: None
        for _ in range(3):  # as the cancel scopes of anyio do, until it has ended
            caller.cancel()
            await asyncio.sleep(0)
        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert (ran, (await session.aget("a")).state is LIVE) == ([], False)
        return await session.arun(Charge(), id="a")

    assert run_async(main()).value == 7
    assert ran == [1]


# -- cancel ----------------------------------------------------------------------------


@on_each_store
def test_r_001_30_a_cancelled_operation_is_released_and_all_are_told(session, store):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        arrivals = Arrivals(store, 3)
        others = [in_thread(lambda: session.run(Charge(), id="a")) for _ in range(3)]
        arrivals.wait()
        assert session.cancel("a") is True
        assert session.get("a").state is RELEASED
        told = [other.result(PATIENCE) for other in others]
    for result in (*told, owner.result()):
        assert isinstance(result.cause, OperationCancelled)
        assert not is_retryable(result.cause)
        assert not result.indeterminate
        assert result.operation.state is RELEASED
        with pytest.raises(OperationCancelled, match="'a' was cancelled"):
            result.or_raise()


@pytest.mark.parametrize("idempotent", [False, True])
def test_after_a_cancellation_one_that_is_idempotent_may_start_over(
    session, idempotent
):
    stop = Stop()

    @operation(idempotent=idempotent)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop):
        assert session.cancel("a") is True
    again = session.run(Charge(), id="a")
    assert again.success is idempotent
    assert str(OperationCancelled("a")).endswith(
        "Use a new id to start over, or the same one if it is idempotent."
    )


@on_each_store
@pytest.mark.parametrize("who", ["a thread", "the event loop"])
def test_r_001_30_async_work_is_cancelled(session, who):
    ended = []
    session.ledger.lease_keeper = QuietKeeper()  # at once, and not by the next beat

    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        def rollback(self):
            ended.append("rolled back")

    async def main():
        owner = asyncio.create_task(session.arun(Charge(), id="a"))
        await begun.wait()
        if who == "a thread":
            assert await asyncio.to_thread(session.cancel, "a")
        else:
            assert await session.acancel("a")
        return await owner

    begun = asyncio.Event()
    result = run_async(main())
    assert isinstance(result.cause, OperationCancelled)
    assert ended == ["cancelled", "rolled back"]


def test_r_001_30_async_work_that_ignores_the_cancel_has_no_outcome(session):
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return 7

    async def main():
        owner = asyncio.create_task(session.arun(Charge(), id="a"))
        await begun.wait()
        await session.acancel("a")
        return await owner

    begun = asyncio.Event()
    assert isinstance(run_async(main()).cause, OperationCancelled)
    assert session.get("a").state is RELEASED


def test_r_001_33_the_outcome_of_sync_work_is_dropped_after_a_cancel(session):
    stop, done = Stop(), []

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            done.append(1)
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        session.cancel("a")
    assert done == [1]
    assert isinstance(owner.result().cause, OperationCancelled)


@on_each_store
def test_r_001_33_a_seal_that_beats_the_cancel_wins(session, store):
    def cancel_first(point):
        if point == "after commit":
            store.at = lambda _point: None
            answers.append(session.cancel("a"))

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            store.at = cancel_first  # when the seal is committed
            return 7

    answers = []
    assert session.run(Charge(), id="a").value == 7
    assert answers == [False]


@on_each_store
def test_r_001_33_a_cancel_that_beats_the_seal_wins(session, store, call):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            edit_row(store, "a", state="released", ending="cancelled")
            return 7

    assert isinstance(call(session, Charge(), id="a").cause, OperationCancelled)


def test_r_001_33_a_cancel_while_the_outcome_is_sealed_is_told_as_a_result(session):
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            assert session.cancel("a")  # the asyncio task is cancelled after work
            return 7

    async def main():
        try:
            return await session.arun(Charge(), id="a")
        except asyncio.CancelledError:
            pytest.fail("nobody has cancelled the caller")

    assert isinstance(run_async(main()).cause, OperationCancelled)


def test_r_001_33_cancel_at_any_step_gives_one_of_two_answers():
    """What the canceller is told and what the owner is told agree, at every step."""

    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            await steps(4)
            return 7

    async def main(session, count):
        owner = asyncio.create_task(session.arun(Charge(), id="a"))
        await steps(count)
        answer = session.cancel("a")
        return answer, await owner

    seen = set()
    for count in range(20):
        session = Ledger(SteppedStore()).session("shop")
        answer, result = run_async(main(session, count))
        seen.add(answer)
        assert result.success is not answer, count
        assert answer is isinstance(result.cause, OperationCancelled), count
    assert seen == {True, False}


def test_r_001_31_what_persists_is_not_cancelled(session, call):
    stop = Stop()

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        arrivals = Arrivals(session.ledger.store, 1)
        attached = in_thread(lambda: call(session, Charge(), id="a"))
        arrivals.wait()
        assert session.cancel("a") is False
        assert session.get("a").state is LIVE
    assert owner.result().value == attached.result(PATIENCE).value == 7


def test_r_001_31_the_owner_of_what_persists_still_gets_its_outcome(session, call):
    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7 if session.cancel("a") is False else 0

    assert call(session, Charge(), id="a").value == 7


@pytest.mark.parametrize("state", [None, RELEASED, SEALED, INDETERMINATE, EXPIRED])
def test_r_001_34_cancelling_what_is_not_running_changes_nothing(session, store, state):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    if state is not None:
        session.run(Charge(), id="a")
        edit_row(store, "a", state=state.value)
    version = store.version()
    assert session.cancel("a") is False
    assert asyncio.run(session.acancel("a")) is False
    assert store.version() == version or state is not None
    assert (session.get("a") and session.get("a").state) == state


def test_r_001_34_a_cancel_counts_once(session):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()

    with running(lambda: session.run(Charge(), id="a"), stop):
        assert [session.cancel("a") for _ in range(3)] == [True, False, False]


def test_a_cancel_in_another_session_is_a_cancel_of_something_else(session, ledger):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        assert ledger.session("other").cancel("a") is False
    assert owner.result().value == 7


@on_each_store
@pytest.mark.parametrize("idempotent", [False, True])
def test_r_001_20_after_a_cancel_only_what_is_idempotent_runs_again(
    session, call, idempotent
):
    runs, stop = [], Stop()

    @operation(idempotent=idempotent)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append(1)
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop):
        session.cancel("a")
    again = call(session, Charge(), id="a")
    if idempotent:
        assert (again.value, again.operation.executions) == (7, 2)
    else:
        assert isinstance(again.cause, Indeterminate)
        assert len(runs) == 1


def test_a_cancel_sends_the_signal_of_a_release_once(session):
    stop, sent = Stop(), []

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()

    with (
        operation_released.connected_to(lambda *_, **__: sent.append(1)),
        running(lambda: session.run(Charge(), id="a"), stop),
    ):
        session.cancel("a")
    assert sent == [1]


# -- cancelled before work is called ---------------------------------------------------


def charge_that_notes(runs):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append(1)
            return 7

    return Charge


@on_each_store
def test_r_001_30_a_cancel_right_after_the_admission_keeps_work_from_being_called(
    session, store, call
):
    """Nobody in this process knows the run yet."""
    runs, answers = [], []
    after_admission(store, lambda: answers.append(session.cancel("a")))
    result = call(session, charge_that_notes(runs)(), id="a")
    assert answers == [True]
    assert isinstance(result.cause, OperationCancelled)
    assert runs == []
    assert session.get("a").state is RELEASED


def test_r_001_30_a_cancel_right_before_work_keeps_it_from_being_called(session, call):
    runs, answers = [], []

    def cancel(*_, **__):
        answers.append(session.cancel("a"))

    with operation_admitted.connected_to(cancel):
        result = call(session, charge_that_notes(runs)(), id="a")
    assert answers == [True]
    assert isinstance(result.cause, OperationCancelled)
    assert runs == []


def test_a_process_remembers_so_many_cancelled_operations_at_most():
    keeper = QuietKeeper()
    for number in range(2 * MOST_CANCELLED):
        keeper.cancel(f"owner {number}")
    assert len(keeper._cancelled) == MOST_CANCELLED


def test_what_was_cancelled_may_still_be_recovered(session):
    """The one who asks has the token of the owner, which was cancelled."""

    class Charge(Task[int], name="operations.charge"):
        lines: Iterator[str]

        async def work(self):
            begun.set()
            await asyncio.Event().wait()

        def recover(self):
            return 7

    async def main():
        owner = asyncio.create_task(session.arun(Charge(lines=iter("ab")), id="a"))
        await begun.wait()
        assert await session.acancel("a")
        await owner
        return await session.arun(Charge(lines=iter("ab")), id="a")

    begun = asyncio.Event()
    assert run_async(main()).value_or(None) == 7


# -- cancelled elsewhere ---------------------------------------------------------------


@on_each_store
def test_async_work_that_was_cancelled_elsewhere_is_cancelled_by_the_next_beat(
    session, store
):
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            begun.set()
            await asyncio.Event().wait()

    async def main():
        owner = asyncio.create_task(session.arun(Charge(), id="a"))
        await begun.wait()
        elsewhere = Ledger(store).session("shop")
        elsewhere.ledger.lease_keeper = QuietKeeper()  # of another process
        assert elsewhere.cancel("a")
        await steps(5)
        assert not owner.done()
        await asyncio.to_thread(beat, session.ledger)
        return await owner

    begun = asyncio.Event()
    assert isinstance(run_async(main()).cause, OperationCancelled)


# -- interrupts ------------------------------------------------------------------------


@on_each_store
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("persist", [False, True])
def test_r_001_29_an_interrupt_ends_the_operation_without_an_outcome(
    session, persist, interrupt
):
    rolled_back, sent = [], []

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            raise interrupt

        def rollback(self):
            rolled_back.append(1)

    signal = operation_indeterminate if persist else operation_released
    with (
        signal.connected_to(lambda *_, **__: sent.append("ended")),
        pytest.raises(interrupt),
    ):
        session.run(Charge(), id="a")
    assert session.get("a").state is (INDETERMINATE if persist else RELEASED)
    assert (rolled_back, sent) == ([1], ["ended"])
    again = session.run(Charge(), id="a")
    assert isinstance(again.cause, Indeterminate)
    assert again.indeterminate
    assert "it was interrupted" in again.reason


@pytest.mark.parametrize("persist", [False, True])
def test_r_001_29_an_interrupt_of_async_work_ends_it_as_well(session, persist):
    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            await steps(2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(session.arun(Charge(), id="a"))
    assert session.get("a").state is (INDETERMINATE if persist else RELEASED)


@pytest.mark.parametrize("persist", [False, True])
def test_r_001_29_those_who_wait_are_told_of_the_interrupt(session, store, persist):
    stop = Stop()

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            raise KeyboardInterrupt

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        arrivals = Arrivals(store, 1)
        attached = in_thread(lambda: session.run(Charge(), id="a"))
        arrivals.wait()
    assert isinstance(owner.exception(), KeyboardInterrupt)
    expected = Indeterminate if persist else OperationCancelled
    assert isinstance(attached.result(PATIENCE).cause, expected)


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_an_interrupt_before_work_was_called_takes_the_admission_back(
    session, store, persist
):
    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    def interrupt():
        raise KeyboardInterrupt

    after_admission(store, interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
    found = session.get("a")
    assert (found.state, found.executions) == (RELEASED, 0)
    result = session.run(Charge(), id="a", wait=0)
    assert (result.value, result.operation.executions) == (7, 1)


def test_an_interrupt_of_a_callback_before_work_takes_the_admission_back(session):
    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

        @before_execution
        def prepare(self):
            if not interrupted:
                interrupted.append(1)
                raise KeyboardInterrupt

    interrupted = []
    with pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
    assert session.run(Charge(), id="a").value == 7


def test_an_interrupt_is_announced_as_of_any_task(session):
    sent = []

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            raise KeyboardInterrupt

    with (
        task_cancelled.connected_to(lambda *_, **__: sent.append("cancelled")),
        task_executed.connected_to(lambda *_, **__: sent.append("executed")),
        pytest.raises(KeyboardInterrupt),
    ):
        session.run(Charge(), id="a")
    assert sent == ["cancelled"]


def test_an_interrupt_propagates_even_if_the_operation_was_cancelled_before(session):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            session.cancel("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")


def test_the_error_of_an_interrupt_that_cannot_be_stored_is_the_interrupt(session):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            session.ledger.store.close()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
