"""An owner is heard of again and again, or it counts as dead."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Iterator  # noqa: TC003 -- the task resolves it
from threading import Event, Thread

import attrs
import pytest
from ledgers import (
    LEASE,
    PATIENCE,
    Arrivals,
    Died,
    QuietKeeper,
    SteppedStore,
    Stop,
    admitted,
    beat,
    come_back,
    die_after_admission,
    edit_row,
    fail_from_now_on,
    in_thread,
    on_each_store,
    row_of,
    run_async,
    running,
    steps,
    wait_until,
)

from cmdx import Context, Task, clock, is_retryable
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationError,
    OperationState,
    leases,
    operation,
)
from cmdx.operations.leases import LeaseKeeper, OwnedRun
from cmdx.operations.records import insert_record
from cmdx.stores import SqliteStore

LIVE, RELEASED, SEALED, INDETERMINATE, EXPIRED = OperationState


@attrs.define
class Basket:
    lines: list[str]


class Other(Task[None]):
    def work(self):
        return None


# -- beats -----------------------------------------------------------------------------


@on_each_store
def test_a_beat_extends_the_lease_of_what_runs(session, store, instant):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        for turn in range(1, 6):
            instant.advance(LEASE * 0.8)
            beat(session.ledger, LEASE * turn)
            assert session.get("a").state is LIVE
        assert row_of(store, "a", "lease") == pytest.approx(store.now() + LEASE, abs=5)
        assert session.run(Charge(), id="a", wait=0).operation.state is LIVE
    assert owner.result().value == 7


def test_only_what_is_due_is_extended(session, store, instant):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()

    with running(lambda: session.run(Charge(), id="a"), stop):
        lease = row_of(store, "a", "lease")
        instant.advance(1)
        beat(session.ledger, LEASE / 3 - 5)
        assert row_of(store, "a", "lease") == lease
        beat(session.ledger, LEASE / 3 + 5)
        assert row_of(store, "a", "lease") > lease


def test_what_has_ended_is_not_extended(session, store):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    session.ledger.lease_keeper = QuietKeeper()
    session.run(Charge(), id="a")
    assert session.ledger.lease_keeper._runs == {}
    version = store.version()
    beat(session.ledger)
    assert store.version() == version


def test_a_store_has_one_keeper_and_another_store_another():
    with SqliteStore() as first, SqliteStore() as second:
        ledgers = [Ledger(first), Ledger(first), Ledger(second)]
        keepers = [ledger.lease_keeper for ledger in ledgers]
        assert keepers[0] is keepers[1]
        assert keepers[0] is not keepers[2]


@on_each_store
def test_leases_that_are_due_are_extended_in_one_transaction(session, store):
    keeper = session.ledger.lease_keeper = QuietKeeper()
    records = [admitted(f"operation-{number}") for number in range(100)]
    store.transact(
        lambda statements: [insert_record(statements, record) for record in records]
    )
    for record in records:
        keeper.add(OwnedRun(store, record, LEASE))
    commits = []
    store.at = commits.append
    beat(session.ledger)
    assert commits.count("after commit") == 1
    come_back(store)
    sql = "select count(*) from cmdx_operation where lease > :now"
    counted = store.transact(
        lambda statements: statements.execute(sql, now=statements.now + LEASE / 2)
    )
    assert counted == [(100,)]


def test_a_lease_that_could_not_be_extended_is_tried_again_soon(session, store):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()

    stop, keeper = Stop(), QuietKeeper()
    session.ledger.lease_keeper = keeper
    with running(lambda: session.run(Charge(), id="a"), stop):
        (run,) = keeper._runs.values()
        fail_from_now_on(store)
        keeper.do_what_is_due(run.due)
        assert 0 < run.due - clock.Clock.monotonic() < LEASE / 3 + 1
        come_back(store)


def test_a_thread_without_leases_ends_and_the_next_lease_starts_another(
    session, monkeypatch
):
    monkeypatch.setattr(leases, "LINGER", 0.001)

    class Charge(Task[int], name="operations.charge"):
        number: int

        def work(self):
            return keeper._thread

    ledger = Ledger(session.ledger.store, lease=1.0)  # it may wait for its next beat
    keeper = ledger.lease_keeper = LeaseKeeper()
    session = ledger.session("threads")
    threads = []
    for number in range(2):
        threads.append(session.run(Charge(number=number), id=f"{number}").value)
        wait_until(lambda: keeper._thread is None)
        threads[-1].join(PATIENCE)
    assert threads[0] is not threads[1]
    assert not any(thread.is_alive() for thread in threads)


def test_each_store_extends_its_leases_by_itself():
    """This test waits for a real beat of short leases."""
    stops = [Stop(), Stop()]

    class Charge(Task[None], name="operations.charge"):
        number: int

        def work(self):
            stops[self.number].wait()

    stores = [SqliteStore(), SqliteStore()]
    sessions = [Ledger(store, lease=0.3).session("shop") for store in stores]
    calls = [
        in_thread(
            lambda number=number: sessions[number].run(Charge(number=number), id="a")
        )
        for number in range(2)
    ]
    assert all(stop.reached.wait(PATIENCE) for stop in stops)
    for store in stores:
        first = row_of(store, "a", "lease")
        while row_of(store, "a", "lease") == first:
            assert store.wait(PATIENCE)
    for stop in stops:
        stop.let_go()
    assert all(call.result(PATIENCE).success for call in calls)
    for store in stores:
        store.close()


def test_a_beat_that_the_store_misses_is_made_up_by_the_next(session, store, instant):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        fail_from_now_on(store)
        beat(session.ledger)
        come_back(store)
        instant.advance(LEASE - 1)
        beat(session.ledger, 2 * LEASE)
        instant.advance(LEASE - 1)
        assert session.get("a").state is LIVE
    assert owner.result().value == 7


def test_an_error_that_nobody_expects_does_not_keep_others_waiting(session, store):
    """Such as ``can't start new thread``; the next operation starts no thread again."""

    def fail(_point):
        store.at = lambda _point: None
        raise RuntimeError("can't start new thread")

    class Charge(Task[None], name="operations.charge"):
        def work(self):
            stop.wait()

    stop, done = Stop(), []
    keeper = session.ledger.lease_keeper = QuietKeeper()
    with running(lambda: session.run(Charge(), id="a"), stop):
        (run,) = keeper._runs.values()
        keeper.keep_trying(store, lambda _statements: done.append("b"), 2 * LEASE)
        store.at = fail
        beat(session.ledger)
        assert done == ["b"]
        assert [*keeper._runs.values()] == [run]


def test_a_record_that_cannot_be_read_does_not_end_the_beats_of_others(
    session, store, instant
):
    stops = [Stop(), Stop()]

    class Charge(Task[None], name="operations.charge"):
        number: int

        def work(self):
            stops[self.number].wait()

    def call(number):
        return session.run(Charge(number=number), id=f"charge-{number}")

    with running(lambda: call(0), stops[0]), running(lambda: call(1), stops[1]):
        edit_row(store, "charge-0", state="of a newer version")
        before = row_of(store, "charge-1", "lease")
        instant.advance(1)
        try:
            beat(session.ledger)
        finally:
            edit_row(store, "charge-0", state="live")
        assert row_of(store, "charge-1", "lease") > before


def test_an_execution_that_comes_while_the_keeper_falls_asleep_is_heard(session):
    """The thread has counted what there is, and has not yet said when it wakes."""
    counted, added = Event(), Event()

    class Slow(LeaseKeeper):
        def _pause(self):
            pause = super()._pause()
            if counted.is_set():
                return pause
            counted.set()
            added.wait(1.0)  # others may go on meanwhile, or wait for the lock
            return pause

    keeper = Slow()
    keeper._wakes_at = 0.0  # as it is while the thread beats
    keeper._thread = Thread(target=keeper._run, daemon=True)
    keeper._thread.start()
    assert counted.wait(PATIENCE)

    session.ledger.lease_keeper = keeper
    stop = Stop()

    class Charge(Task[None], name="operations.charge"):
        def work(self):
            stop.wait()

    with running(lambda: session.run(Charge(), id="a"), stop):
        added.set()
        end = clock.Clock.monotonic() + 1
        while keeper._wakes_at in (0.0, float("inf")) and clock.Clock.monotonic() < end:
            clock.Clock().sleep(0.01)
        assert keeper._wakes_at < clock.Clock.monotonic() + LEASE


# -- interrupts ------------------------------------------------------------------------


def interrupted_once(name):
    """Return a keeper whose method is interrupted when it is called first."""

    def interrupt(keeper, *arguments):
        if not keeper.interrupts:
            keeper.interrupts.append(name)
            raise KeyboardInterrupt
        getattr(QuietKeeper, name)(keeper, *arguments)

    keeper = type("Interrupted", (QuietKeeper,), {name: interrupt})()
    keeper.interrupts = []
    return keeper


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_an_interrupt_while_a_lease_begins_to_be_kept_takes_the_admission_back(
    session, persist
):
    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    keeper = session.ledger.lease_keeper = interrupted_once("_wake_thread")
    with pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
    assert keeper._runs == {}
    found = session.get("a")
    assert (found.state, found.executions) == (RELEASED, 0)
    assert session.run(Charge(), id="a", wait=0).value == 7


@on_each_store
def test_a_run_that_an_interrupt_left_behind_is_dropped_by_the_next_beat(session):
    keeper = session.ledger.lease_keeper = interrupted_once("remove")
    with pytest.raises(KeyboardInterrupt):
        session.run(Other(), id="a")
    assert session.get("a").state is SEALED
    assert keeper._runs
    beat(session.ledger)
    assert keeper._runs == {}


def test_a_recovery_that_ends_leaves_the_next_one_alone(store):
    keeper, record = QuietKeeper(), admitted("a")
    first, second = (OwnedRun(store, record, LEASE, is_recovery=True) for _ in range(2))
    for run in (first, second):
        keeper.add(run)
    keeper.remove(first)
    assert [*keeper._runs.values()] == [second]


# -- an owner that was not heard of ----------------------------------------------------


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_r_001_19_an_owner_that_died_leaves_a_record_that_says_so(
    session, store, instant, persist
):
    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    admit_and_die(session, Charge())
    assert session.get("a").state is LIVE
    instant.advance(LEASE)
    assert session.get("a").state is (INDETERMINATE if persist else RELEASED)
    result = session.run(Charge(), id="a")
    assert isinstance(result.cause, Indeterminate)
    assert "its process has died" in result.reason
    assert row_of(store, "a") == ("indeterminate" if persist else "released")


def admit_and_die(session, task):
    """Admit an operation as a process does that dies before its work begins."""

    store = session.ledger.store
    die_after_admission(store)
    try:
        session.run(task, id="a")
    except Died:
        pass
    finally:
        store.at = lambda _point: None


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_r_001_8_what_is_idempotent_is_taken_over_from_a_dead_owner(
    session, instant, call, persist
):
    @operation(persist=persist, idempotent=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    admit_and_die(session, Charge())
    instant.advance(LEASE)
    result = call(session, Charge(), id="a")
    assert (result.value, result.operation.executions) == (7, 2)
    assert not result.operation.replayed


@on_each_store
def test_r_001_25_an_owner_that_was_taken_over_answers_as_a_duplicate(
    session, store, instant
):
    stops, runs = [Stop(), Stop()], []

    @operation(idempotent=True, persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append(1)
            number = len(runs)
            stops[number - 1].wait()
            return number

    first = in_thread(lambda: session.run(Charge(), id="a"))
    assert stops[0].reached.wait(PATIENCE)
    instant.advance(LEASE)
    second = in_thread(lambda: session.run(Charge(), id="a"))
    assert stops[1].reached.wait(PATIENCE)
    arrivals = Arrivals(store, 1)
    stops[0].let_go()
    arrivals.wait()  # the first owner has found that its record was lost
    stops[1].let_go()
    assert first.result(PATIENCE).value == second.result(PATIENCE).value == 2
    assert first.result().run_id == second.result().run_id
    facts = first.result().operation
    assert facts.replayed or facts.attached


@pytest.mark.parametrize("source", [dict, Context])
def test_who_runs_an_operation_again_runs_it_with_the_same_inputs(
    session, store, source
):
    seen = []

    @operation(idempotent=True)
    class Charge(Task[int], name="operations.charge"):
        lines: list[str]

        def work(self):
            seen.append(list(self.lines))
            self.lines.append("more")
            self.context.lines = ["others"]
            if len(seen) == 1:
                edit_row(store, "a", state="released", ending="lost", owner="another")
            return len(seen)

    assert session.run(Charge(source(lines=["tea"])), id="a").value == 2
    assert seen == [["tea"], ["tea"]]


def test_who_runs_an_operation_again_has_what_work_changed_as_it_was(session, store):
    seen = []

    @operation(idempotent=True)
    class Charge(Task[int], name="operations.charge"):
        basket: Basket

        def work(self):
            seen.append(list(self.basket.lines))
            self.basket.lines.clear()
            if len(seen) == 1:
                edit_row(store, "a", state="released", ending="lost", owner="another")
            return len(seen)

    assert session.run(Charge(basket=Basket(["tea"])), id="a").value == 2
    assert seen == [["tea"], ["tea"]]


def test_r_001_47_an_owner_that_used_up_its_stream_does_not_run_again(session, store):
    @operation(idempotent=True)
    class Total(Task[int], name="operations.total"):
        rows: Iterator[int]

        def work(self):
            total = sum(self.rows)
            edit_row(store, "a", state="released", ending="lost", owner="another")
            return total

    result = session.run(Total(rows=iter([1, 2])), id="a")
    assert isinstance(result.cause, OperationError)
    assert not is_retryable(result.cause)
    assert "cannot be used a second time" in result.reason
    assert session.get("a").state is OperationState.RELEASED
    assert session.get("a").executions == 1


@on_each_store
def test_r_001_8_an_owner_whose_token_still_stands_seals_what_is_indeterminate(
    session, instant
):
    stop = Stop()

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        instant.advance(LEASE)
        assert session.run(Charge(), id="a").indeterminate
    assert owner.result().value == 7
    assert session.run(Charge(), id="a").value == 7


@on_each_store
def test_r_001_11_a_volatile_owner_that_was_not_heard_of_drops_its_outcome(
    session, instant
):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        instant.advance(LEASE)
        assert session.run(Charge(), id="a").indeterminate
        assert session.get("a").state is RELEASED
    told = owner.result()
    assert isinstance(told.cause, Indeterminate)
    assert told.indeterminate
    assert session.get("a").state is RELEASED


@on_each_store
def test_an_owner_that_nobody_missed_seals_though_its_lease_was_over(session, instant):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            instant.advance(10 * LEASE)
            return 7

    assert session.run(Charge(), id="a").value == 7


def test_a_taken_over_coroutine_is_cancelled_by_the_next_beat(session, instant):
    runs = []

    @operation(idempotent=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            runs.append(1)
            if len(runs) == 1:
                begun.set()
                await asyncio.Event().wait()
            return 7

    async def main():
        first = asyncio.create_task(session.arun(Charge(), id="a"))
        await begun.wait()
        instant.advance(LEASE)
        second = await session.arun(Charge(), id="a")
        await asyncio.to_thread(beat, session.ledger)
        return await first, second

    begun = asyncio.Event()
    first, second = run_async(main())
    assert first.value == second.value == 7
    assert len(runs) == 2


def test_a_taken_over_coroutine_that_persists_is_not_cancelled(session, instant):
    runs, ends = [], []

    @operation(persist=True, idempotent=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            runs.append(1)
            number = len(runs)
            if number == 1:
                begun.set()
                await go_on.wait()
            ends.append(number)
            return number

    async def main():
        first = asyncio.create_task(session.arun(Charge(), id="a"))
        await begun.wait()
        instant.advance(LEASE)
        second = await session.arun(Charge(), id="a")
        await asyncio.to_thread(beat, session.ledger)
        go_on.set()
        return await first, second

    begun, go_on = asyncio.Event(), asyncio.Event()
    first, second = run_async(main())
    assert first.value == second.value == 2
    assert ends == [2, 1]


@on_each_store
def test_r_001_8_a_coroutine_that_persists_goes_on_though_nobody_heard_of_it(
    session, instant
):
    """As after a suspend of the whole machine, while others found it indeterminate."""

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            begun.set()
            await go_on.wait()
            return 7

    async def main():
        first = asyncio.create_task(session.arun(Charge(), id="a"))
        await begun.wait()
        instant.advance(LEASE)
        second = await session.arun(Charge(), id="a")
        await asyncio.to_thread(beat, session.ledger)
        go_on.set()
        return await first, second

    begun, go_on = asyncio.Event(), asyncio.Event()
    first, second = run_async(main())
    assert second.indeterminate
    assert first.value == 7
    assert session.get("a").state is SEALED


def test_a_beat_after_the_seal_does_not_cancel_the_caller():
    """The seal is committed, and the coroutine has not heard of it yet."""

    class Beaten(SteppedStore):
        ledger = None

        async def atransact(self, unit, **options):
            value = await super().atransact(unit, **options)
            if self.ledger is not None:
                beat(self.ledger)
                await steps(2)
            return value

    store = Beaten()
    store.ledger = ledger = Ledger(store)

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            return 7

    async def main():
        return await ledger.session("shop").arun(Charge(), id="a")

    assert run_async(main()).value == 7


# -- forks -----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_extends_no_lease_of_its_parent(tmp_path):
    stop = Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

    def lease(store):
        return row_of(store, "a", "lease")

    def child_extends(store, ledger):
        before = lease(store)
        beat(ledger, 3 * LEASE)
        return lease(store) != before or bool(ledger.lease_keeper._runs)

    with SqliteStore(tmp_path / "app.db") as store:
        ledger = Ledger(store, lease=LEASE)
        session = ledger.session("shop")
        with running(lambda: session.run(Charge(), id="a"), stop) as owner:
            assert exit_code_of_child(lambda: child_extends(store, ledger)) == 0
            before = lease(store)
            beat(ledger, 3 * LEASE)
            assert lease(store) > before
        assert owner.result().value == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_extends_the_leases_of_its_own(tmp_path):
    with SqliteStore(tmp_path / "app.db") as store:
        ledger = Ledger(store, lease=LEASE)
        ledger.session("shop").run(Other())

        class Charge(Task[int], name="operations.charge"):
            def work(self):
                before = row_of(store, "a", "lease")
                beat(ledger, 3 * LEASE)
                return row_of(store, "a", "lease") > before

        def child_fails():
            return not ledger.session("shop").run(Charge(), id="a").value

        assert exit_code_of_child(child_fails) == 0
        assert ledger.session("shop").run(Charge(), id="a").operation.replayed


def exit_code_of_child(call):
    """Fork, and have the child exit with the truth of *call*; it must not hang."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        code = 2
        try:
            code = int(call())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
