"""The outcome is recorded for good, and only then told."""

from __future__ import annotations

import asyncio
import json
import math
from itertools import product

import pytest
from ledgers import (
    PATIENCE,
    QuietKeeper,
    Stop,
    beat,
    come_back,
    fail_from_now_on,
    in_thread,
    on_each_server,
    on_each_store,
    other_connection,
    row_of,
    running,
)

from cmdx import Task, Workflow, on_success, retry_on
from cmdx.operations import (
    Indeterminate,
    Operation,
    OperationPolicy,
    OperationState,
    current_operation,
    operation,
    operation_admitted,
    operation_indeterminate,
    operation_released,
    operation_sealed,
)
from cmdx.operations.leases import RETRY_PAUSE
from cmdx.operations.records import insert_record, peek_record
from cmdx.operations.table import (
    Ending,
    Request,
    end_lease,
    end_unsealed,
    new_record,
    seal,
    with_outcome,
)
from cmdx.operations.units import changing_unit, sealing_unit
from cmdx.wire import load_result

RELEASED, SEALED, INDETERMINATE = (
    OperationState.RELEASED,
    OperationState.SEALED,
    OperationState.INDETERMINATE,
)


def seen_by_others(store):
    """Return what another connection reads about the only operation."""
    with other_connection(store) as connection:
        rows = connection.execute("select state, outcome from cmdx_operation")
        return rows.fetchone()


# -- before anything happens -----------------------------------------------------------


@on_each_server
@pytest.mark.parametrize("persist", [True, False])
def test_r_001_17_the_admission_is_stored_before_work_begins(
    session, store, call, persist
):
    seen = []

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            seen.append(seen_by_others(store))
            return 7

    call(session, Charge(), id="a")
    assert seen == [("live", None)]


def test_r_001_17_an_admission_that_persists_is_synced_and_so_is_its_seal(session):
    asked = []

    def transact(unit, *, sync=False, **options):
        asked.append(sync)
        return original(unit, sync=sync, **options)

    session.ledger._next_eviction = math.inf
    original, session.ledger.store.transact = session.ledger.store.transact, transact
    for persist in (True, False):

        @operation(persist=persist)
        class Charge(Task[int], name="operations.charge"):
            def work(self):
                return 7

        session.run(Charge(), id=str(persist))
    assert asked == [True, True, False, False]


# -- before anybody is told ------------------------------------------------------------


@on_each_server
@pytest.mark.parametrize("persist", [True, False])
def test_r_001_18_the_outcome_is_stored_before_anybody_is_told(
    session, store, call, persist
):
    seen = []

    @operation(persist=persist)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    def note(_sender, **_payload):
        seen.append(seen_by_others(store))

    with operation_sealed.connected_to(note):
        call(session, Charge(), id="a")
    ((state, outcome),) = seen
    assert state == "sealed"
    assert load_result(json.loads(outcome)).value == 7


@on_each_store
def test_r_001_18_an_outcome_that_was_not_stored_is_told_to_nobody(
    session, store, call
):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            fail_from_now_on(store)
            return 7

    sent = []
    with operation_sealed.connected_to(lambda *_, **__: sent.append("sealed")):
        result = call(session, Charge(), id="a")
    assert isinstance(result.cause, Indeterminate)
    assert result.value_or(None) is None
    assert sent == []


@on_each_store
def test_r_001_18_those_attached_are_told_after_the_seal(session, store):
    stop, sealing = Stop(), Stop()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            store.at = hold_the_seal
            return 7

    def hold_the_seal(point):
        if point == "before begin" and not sealing.reached.is_set():
            sealing.wait()

    owner = in_thread(lambda: session.run(Charge(), id="a"))
    assert stop.reached.wait(PATIENCE)
    stop.let_go()
    assert sealing.reached.wait(PATIENCE)
    assert session.run(Charge(), id="a", wait=0).failed  # work is done, nobody knows
    assert not owner.done()
    sealing.let_go()
    assert owner.result(PATIENCE).value == 7
    assert session.run(Charge(), id="a").value == 7


@on_each_store
@pytest.mark.parametrize("point", ["before begin", "before commit", "after commit"])
def test_an_outcome_whose_seal_is_interrupted_is_stored_later(session, store, point):
    def interrupt(reached):
        if reached == point:
            come_back(store)
            raise KeyboardInterrupt

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            store.at = interrupt
            return 7

    session.ledger.lease_keeper = QuietKeeper()
    with pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
    beat(session.ledger, RETRY_PAUSE)
    again = session.run(Charge(), id="a", wait=0)
    assert (again.value_or(None), again.operation.replayed) == (7, True)


# -- what is sealed --------------------------------------------------------------------


class Halts(Task[int]):
    def work(self):
        self.fail("refused")


class FailsBy(Task[int]):
    def work(self):
        self.fail(ConnectionError("away"))


class Raises(Task[int]):
    def work(self):
        raise ConnectionError("away")


class Invalid(Task[int]):
    def work(self):
        self.errors.add("card", "has expired")


class Skips(Task[int]):
    def work(self):
        self.skip("nothing to do")


class LateRaises(Task[int]):
    def work(self):
        return 7

    @on_success
    def tell(self):
        raise ConnectionError("away")


class HaltsInside(Task[int]):
    def work(self):
        self.throw(Halts.execute())


class RaisesInside(Task[int]):
    def work(self):
        self.throw(Raises.execute())


class HaltingSteps(Workflow[int]):
    steps = (Skips, Halts)


class RaisingSteps(Workflow[int]):
    steps = (Skips, Raises)


DECIDED = [Halts, FailsBy, Invalid, Skips, HaltsInside, HaltingSteps]
RAISED = [Raises, LateRaises, RaisesInside, RaisingSteps]


def as_operation(task, **options):
    return operation(**options)(
        type(task)("Operation", (task,), {}, name="operations.operation")
    )


@pytest.mark.parametrize("persist", [False, True])
@pytest.mark.parametrize("task", DECIDED + RAISED)
def test_r_001_26_everything_that_ended_is_sealed(session, call, task, persist):
    result = call(session, as_operation(task, persist=persist)(), id="a")
    assert result.operation.state is SEALED
    assert session.get("a").state is SEALED


@pytest.mark.parametrize("persist", [False, True])
@pytest.mark.parametrize("task", DECIDED)
def test_what_the_task_decided_is_sealed_by_decided_too(session, call, task, persist):
    charge = as_operation(task, persist=persist, seal="decided")
    assert call(session, charge(), id="a").operation.state is SEALED
    assert call(session, charge(), id="a").operation.replayed


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
@pytest.mark.parametrize("task", RAISED)
def test_by_decided_an_exception_leaves_no_outcome(session, task, persist):
    charge = as_operation(task, persist=persist, seal="decided")
    signal = operation_indeterminate if persist else operation_released
    sent = []
    with signal.connected_to(lambda _sender, **payload: sent.append(payload)):
        result = session.run(charge(), id="a")
    state = INDETERMINATE if persist else RELEASED
    assert (result.reason, result.operation.state) == ("[ConnectionError] away", state)
    assert [payload["operation"] for payload in sent] == [result.operation]
    again = session.run(charge(), id="a")
    assert isinstance(again.cause, Indeterminate)
    assert "it raised an exception" in again.reason


@pytest.mark.parametrize("persist", [False, True])
def test_r_001_8_by_decided_what_is_idempotent_runs_again_after_an_exception(
    session, call, persist
):
    runs = []

    @operation(persist=persist, idempotent=True, seal="decided")
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append(1)
            if len(runs) < 3:
                raise ConnectionError("away")
            return 7

    results = [call(session, Charge(), id="a") for _ in range(4)]
    assert [result.operation.executions for result in results] == [1, 2, 3, 3]
    assert [result.value_or(None) for result in results] == [None, None, 7, 7]


def test_by_decided_the_owner_raises_the_fault_of_its_task(session):
    charge = as_operation(Raises, seal="decided")
    with pytest.raises(charge.Fault) as raised:
        session.run(charge(), id="a").or_raise()
    assert type(raised.value.__cause__) is ConnectionError


def test_retries_happen_within_one_execution(session, call, instant):
    runs = []

    @retry_on(ConnectionError, limit=3, delay=5)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append(session.ledger.store and self.attempt)
            if self.attempt < 2:
                raise ConnectionError("away")
            return 7

    admitted = []
    with operation_admitted.connected_to(lambda *_, **__: admitted.append(1)):
        result = call(session, Charge(), id="a")
    assert (result.value, result.retries, runs) == (7, 2, [0, 1, 2])
    assert result.operation.executions == len(admitted) == 1
    assert len(instant.pauses) == 2


# -- the seal is for good --------------------------------------------------------------


@on_each_store
def test_r_001_28_nothing_changes_what_is_sealed(session, store, call):
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            return 7

    call(session, Charge(), id="a")
    sealed = row_of(store, "a", "outcome"), row_of(store, "a", "sealed_at")
    assert session.cancel("a") is False
    assert asyncio.run(session.acancel("a")) is False
    call(session, Charge(), id="a")
    call(session, Charge(), id="a", wait=0)
    assert (row_of(store, "a", "outcome"), row_of(store, "a", "sealed_at")) == sealed


@on_each_store
def test_a_seal_without_loading_is_what_the_table_says(store):
    """Compared for every state that a record can be in when its owner seals it."""
    compared = 0
    for policy, is_transactional, is_known_live, stored in product(
        POLICIES, FLAGS, FLAGS, [None, *STORED]
    ):
        request = Request(
            "shop", "a", "t", "m", "f", policy, "me", is_transactional=is_transactional
        )
        live = new_record(request, 1.0, 30.0)
        known = live if is_known_live else end_lease(live, 50.0)._replace(lease=80.0)
        row = None if stored is None else stored(live)
        expected = after_unit(store, row, changing_unit(("shop", "a"), seal_by_table))
        assert after_unit(store, row, sealing_unit(known, "{}")) == expected
        compared += 1
    assert compared == 4 * 2 * 2 * (1 + len(STORED))


POLICIES = [
    OperationPolicy(persist=persist, idempotent=idempotent)
    for persist in (False, True)
    for idempotent in (False, True)
]
FLAGS = (False, True)
STORED = [
    lambda live: live,
    lambda live: live._replace(lease=9e9),
    lambda live: live._replace(owner="another"),
    lambda live: end_lease(live, 50.0),
    lambda live: end_lease(live, 50.0)._replace(state=INDETERMINATE, lease=80.0),
    lambda live: end_lease(live, 50.0)._replace(state=INDETERMINATE, owner="another"),
    lambda live: end_unsealed(live, "me", Ending.CANCELLED, 50.0),
    lambda live: end_unsealed(live, "me", Ending.WITHDRAWN, 50.0),
    lambda live: with_outcome(live, "{}", 50.0),
    lambda live: with_outcome(live, '{"another": 1}', 50.0),
    lambda live: with_outcome(live, "{}", 50.0)._replace(owner="another"),
    lambda live: with_outcome(live, "{}", 50.0)._replace(
        state=OperationState.EXPIRED, outcome=None
    ),
]


def seal_by_table(stored, now):
    return seal(stored, "me", "{}", now)


def after_unit(store, row, unit):
    """Return what a unit returns for a row, and the row that it leaves."""

    def run(statements):
        statements.execute("delete from cmdx_operation")
        if row is not None:
            insert_record(statements, row)
        statements.now = 100.0
        return unit(statements), peek_record(statements, "shop", "a")

    return store.transact(run)


@on_each_store
def test_r_001_25_after_another_run_began_the_first_owner_seals_no_more(
    session, instant
):
    stop, runs = Stop(), []

    @operation(idempotent=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append(1)
            number = len(runs)
            if number == 1:
                stop.wait()
            return number

    with running(lambda: session.run(Charge(), id="a"), stop) as first:
        instant.advance(31)
        second = session.run(Charge(), id="a")
    assert (second.value, second.operation.executions) == (2, 2)
    assert first.result().value == 2  # its own outcome is dropped
    assert first.result().operation.state is SEALED


def test_r_001_26_a_value_of_none_is_an_outcome(session, call):
    class Charge(Task[None], name="operations.charge"):
        def work(self):
            return None

    owner, again = (call(session, Charge(), id="a") for _ in range(2))
    assert owner.value is again.value is None
    assert again.success


def test_work_that_is_rolled_back_is_sealed_as_failed(session):
    undone = []

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            self.fail("refused")

        def rollback(self):
            undone.append(self)

    owner, again = (session.run(Charge(), id="a") for _ in range(2))
    assert owner.rolled_back
    assert again.rolled_back
    assert len(undone) == 1


# -- inside of work --------------------------------------------------------------------


def test_work_knows_the_operation_it_belongs_to(session, call):
    seen = []

    class Charge(Task[None], name="operations.charge"):
        def work(self):
            seen.append(current_operation())

    result = call(session, Charge(), id="a")
    assert seen == [Operation("a", "shop", OperationState.LIVE)]
    assert current_operation() is None
    assert result.operation.state is SEALED


def test_an_operation_inside_another_has_an_id_of_its_own(session, call):
    seen = []

    class Inner(Task[None], name="operations.inner"):
        def work(self):
            seen.append(current_operation().id)

    class Outer(Task[None], name="operations.outer"):
        def work(self):
            session.run(Inner(), id="inner")
            seen.append(current_operation().id)

    call(session, Outer(), id="outer")
    assert seen == ["inner", "outer"]


def test_operations_beside_each_other_do_not_mix_their_ids(session):
    class Charge(Task[str], name="operations.charge"):
        order: int

        async def work(self):
            await asyncio.sleep(0)
            return current_operation().id

    async def main():
        orders = range(20)
        calls = [session.arun(Charge(order=order), id=f"{order}") for order in orders]
        return [result.value for result in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [str(order) for order in range(20)]


def test_another_run_of_an_operation_keeps_its_id(session):
    seen = []

    @operation(idempotent=True, seal="decided")
    class Charge(Task[None], name="operations.charge"):
        def work(self):
            seen.append(current_operation())
            raise ConnectionError

    for _ in range(2):
        session.run(Charge(), id="a")
    assert [(known.id, known.executions) for known in seen] == [("a", 1), ("a", 2)]
