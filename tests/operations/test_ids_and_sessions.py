"""Which operation an id means, and what else it must not mean."""

from __future__ import annotations

import asyncio

import attrs
import pytest
from ledgers import LEASE, Stop, on_each_store, row_of, running

from cmdx import AsyncTaskError, FinishedTaskError, Task, optional
from cmdx.operations import (
    Ledger,
    Operation,
    OperationConflict,
    OperationIdError,
    OperationState,
    Session,
    operation,
)
from cmdx.stores import SqliteStore

LIVE, RELEASED, SEALED, INDETERMINATE, EXPIRED = OperationState


class Charge(Task[str]):
    order: int
    currency: str = "EUR"

    def work(self):
        return f"{self.order} {self.currency}"


# -- ids -------------------------------------------------------------------------------


@on_each_store
def test_r_001_1_every_attempt_of_an_operation_carries_its_id(session, call):
    results = [call(session, Charge(order=7), id="charge-7") for _ in range(3)]
    assert {result.operation.id for result in results} == {"charge-7"}
    assert [result.operation.replayed for result in results] == [False, True, True]


def test_r_001_2_without_an_id_every_call_is_a_new_intention(session, call):
    first, second = (call(session, Charge(order=7)) for _ in range(2))
    assert first.operation.id != second.operation.id
    assert not second.operation.replayed
    assert call(session, Charge(order=7), id=first.operation.id) == first


def test_r_001_7_an_operation_has_another_id_than_its_run(session):
    owner = session.run(Charge(order=7))
    assert owner.operation.id not in (owner.run_id, owner.cid)


def test_an_id_that_was_minted_can_be_given(session):
    minted = session.run(Charge(order=1)).operation.id
    assert session.run(Charge(order=1), id=minted).operation.replayed


@pytest.mark.parametrize("key", ["a", "A-z_0:9.", "x" * 255, "-", ":", "2026-07"])
def test_an_id_has_letters_digits_and_four_marks(session, key):
    assert session.run(Charge(order=7), id=key).operation.id == key
    assert session.get(key).state is SEALED


@pytest.mark.parametrize(
    "key", ["", "x" * 256, "a b", "a/b", "a\n", "ä", "a\x00", "a'b", 7, b"a", ["a"]]
)
def test_other_ids_are_refused_before_anything_is_stored(session, store, call, key):
    with pytest.raises(
        OperationIdError, match=r"is a text of 1 to 255 letters.*got"
    ) as refused:
        call(session, Charge(order=7), id=key)
    assert isinstance(refused.value, ValueError)
    rows = store.transact(lambda rows: rows.execute("select * from cmdx_operation"))
    assert rows == []


# -- sessions --------------------------------------------------------------------------


@on_each_store
def test_r_001_3_the_same_id_in_two_sessions_is_two_operations(ledger, call):
    first, second = ledger.session("tenant-1"), ledger.session("tenant-2")
    assert call(first, Charge(order=1), id="a").value == "1 EUR"
    assert call(second, Charge(order=2), id="a").value == "2 EUR"
    assert call(first, Charge(order=1), id="a").operation.session == "tenant-1"


@pytest.mark.parametrize("name", ["", "x" * 256, 7, None, b"shop"])
def test_a_session_has_a_name_of_1_to_255_characters(ledger, name):
    with pytest.raises(OperationIdError, match="is a text of 1 to 255 characters, got"):
        ledger.session(name)


@on_each_store
@pytest.mark.parametrize(
    "name", ["x", "ä" * 255, "tenant-3/checkout 42", "'; --", "\t"]
)
def test_a_session_may_be_called_anything_that_is_text(ledger, name):
    session = ledger.session(name)
    assert isinstance(session, Session)
    session.run(Charge(order=7), id="a")
    assert session.run(Charge(order=7), id="a").operation.session == name


@on_each_store
@pytest.mark.parametrize("name", ["tenant\x003", "tenant\ud800"], ids=["NUL", "lone"])
def test_a_name_that_no_database_can_store_is_refused_when_it_is_given(ledger, name):
    with pytest.raises(OperationIdError):
        ledger.session(name)


def test_a_ledger_takes_a_store_a_path_or_an_address(tmp_path):
    store = SqliteStore()
    assert Ledger(store).store is store
    path = tmp_path / "app.db"
    assert Ledger(path).store is Ledger(f"sqlite:///{path}").store


@pytest.mark.parametrize("lease", [0, -1, float("nan"), "30", None])
def test_a_lease_is_a_number_of_seconds_above_0(store, lease):
    with pytest.raises(ValueError, match="Ledger: lease must be a finite number"):
        Ledger(store, lease=lease)


# -- looking an operation up -----------------------------------------------------------


@on_each_store
def test_get_tells_where_an_operation_stands(session):
    stop, charge = Stop(), Charge(order=7)
    charge.work = stop.wait
    assert session.get("a") is None
    with running(lambda: session.run(charge, id="a"), stop):
        assert session.get("a") == Operation("a", "shop", LIVE)
    assert session.get("a") == Operation("a", "shop", SEALED)
    assert asyncio.run(session.aget("a")) == session.get("a")


def test_get_changes_nothing(session, store, instant):
    stop, charge = Stop(), Charge(order=7)
    charge.work = stop.wait
    with running(lambda: session.run(charge, id="a"), stop):
        instant.advance(LEASE)
        assert session.get("a").state is RELEASED
        assert row_of(store, "a") == "live"


# -- conflicts -------------------------------------------------------------------------


class Refund(Task[str]):
    order: int

    def work(self):
        return "refunded"


@on_each_store
@pytest.mark.parametrize("state", OperationState)
def test_r_001_4_another_task_or_other_inputs_are_a_conflict_in_every_state(
    session, store, call, instant, state
):
    stop = Stop()

    @operation(persist=state is INDETERMINATE, keep=100)
    class Pay(Task[None], name="operations.pay"):
        order: int

        def work(self):
            stop.wait()
            if state in (RELEASED, INDETERMINATE):
                raise KeyboardInterrupt

    def check():
        before = row_of(store, "a", "*")
        for other in (Pay(order=8), Refund(order=7)):
            result = call(session, other, id="a")
            assert isinstance(result.cause, OperationConflict)
            assert "Use a new id for a new intention" in result.reason
            assert not result.indeterminate
        assert row_of(store, "a", "*") == before

    with running(lambda: session.run(Pay(order=7), id="a"), stop):
        if state is LIVE:
            check()
    if state is EXPIRED:
        instant.advance(101)
        session.run(Refund(order=1))  # which evicts
    assert state in (LIVE, session.get("a").state)
    check()


def test_r_001_4_the_conflict_does_not_run_anything(session):
    ran = []

    class Note(Task[None], name="operations.note"):
        text: str

        def work(self):
            ran.append(self.text)

    for text in ("first", "second", "first"):
        session.run(Note(text=text), id="a")
    assert ran == ["first"]


def test_r_001_4_inputs_that_mean_the_same_are_no_conflict(session):
    session.run(Charge(order=7), id="a")
    for same in (Charge(order="7"), Charge(order=7, currency="EUR")):
        assert session.run(same, id="a").operation.replayed


def test_what_a_factory_makes_is_no_part_of_the_intention(session):
    class Note(Task[object], name="operations.note"):
        sink: object = optional(factory=object)

        def work(self):
            return None

    session.run(Note(sink=object()), id="a")
    assert session.run(Note(sink=object()), id="a").operation.replayed


# -- the policy at admission -----------------------------------------------------------


def declared(**options):
    """Return one task under changing policies, as over several releases."""

    @operation(**options)
    class Pay(Task[None], name="operations.pay"):
        def work(self):
            if Pay.interrupted:
                raise KeyboardInterrupt

    Pay.interrupted = False
    return Pay


@on_each_store
@pytest.mark.parametrize("idempotent", [True, False])
def test_r_001_15_a_later_class_does_not_change_whether_it_may_run_again(
    session, idempotent
):
    first = declared(idempotent=idempotent)
    first.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        session.run(first(), id="a")
    second = declared(idempotent=not idempotent)
    result = session.run(second(), id="a")
    assert result.success is idempotent
    assert result.indeterminate is not idempotent


def test_r_001_15_a_later_class_does_not_change_how_long_it_is_kept(session, instant):
    session.run(declared(keep=10)(), id="short")
    session.run(declared(keep=1000)(), id="long")
    later = declared(keep=100)
    instant.advance(50)
    assert session.run(later(), id="short").failed
    assert session.run(later(), id="long").success


def test_r_001_15_a_later_class_does_not_change_what_persists(session):
    stop = Stop()
    first = declared(persist=True)
    task = first()
    task.work = stop.wait
    with running(lambda: session.run(task, id="a"), stop):
        declared(persist=False)
        assert session.cancel("a") is False


# -- invocations -----------------------------------------------------------------------


def test_an_invocation_that_has_run_is_refused(session, call):
    task = Charge(order=7)
    task.run()
    with pytest.raises(FinishedTaskError, match="an instance runs once"):
        call(session, task, id="a")


def test_an_invocation_is_used_by_its_call_alone(session, call):
    task = Charge(order=7)
    call(session, task, id="a")
    with pytest.raises(FinishedTaskError):
        call(session, task, id="a")


@pytest.mark.parametrize("given", [None, Charge, "Charge"], ids=repr)
def test_what_is_no_invocation_is_refused_with_the_cure(session, call, given):
    with pytest.raises(TypeError, match=r"ChargeCard\(order_id=7\)"):
        call(session, given)


def test_wrong_inputs_belong_to_no_operation(session, call):
    result = call(session, Charge(order="seven"), id="a")
    assert result.failed
    assert [problem.key for problem in result.errors] == ["order"]
    assert result.operation is None
    assert session.get("a") is None
    assert result.reason == Charge(order="seven").run().reason


def test_wrong_inputs_are_a_failed_result_even_if_a_default_raises(session, call):
    class Fragile(Task[None], name="operations.fragile"):
        order: int
        sink: object = optional(factory=lambda: 1 / 0)

        def work(self):
            return None

    assert call(session, Fragile(order="seven"), id="a").failed


def test_r_001_10_records_outlive_the_connection(tmp_path):
    path = tmp_path / "app.db"
    with SqliteStore(path) as first:
        owner = Ledger(first).session("shop").run(Charge(order=7), id="a")
    with SqliteStore(path) as second:
        later = Ledger(second).session("shop").run(Charge(order=7), id="a")
    assert later.operation == attrs.evolve(owner.operation, replayed=True)
    assert later == owner


# -- mistakes --------------------------------------------------------------------------


def test_an_instance_that_has_run_is_refused_with_the_call_of_a_session(session):
    task = Charge()
    session.run(task, id="a")
    with pytest.raises(FinishedTaskError, match=r"session\.run\(Charge\(\.\.\.\), id="):
        session.run(task, id="a")


def test_an_async_task_is_refused_with_the_call_of_a_session(session):
    class Slow(Task[int], name="operations.slow"):
        async def work(self):
            return 7

    with pytest.raises(AsyncTaskError, match=r"Use `await session\.arun\("):
        session.run(Slow(), id="a")


@pytest.mark.parametrize("id", ["a b", "", 7, None])
def test_an_id_that_no_operation_can_have_is_refused_everywhere(session, id):  # noqa: A002
    for ask in (session.get, session.cancel):
        with pytest.raises(OperationIdError):
            ask(id)


def test_an_operation_that_calls_itself_does_not_wait_for_itself(session, call):
    @operation()
    class Outer(Task[int], name="operations.outer"):
        def work(self):
            inner = session.run(Outer(), id="a")
            reasons.append(inner.reason)
            return 7

    @operation()
    class Around(Task[int], name="operations.around"):
        def work(self):
            return session.run(Outer(), id="a").value

    reasons = []
    assert call(session, Around(), id="b").value == 7
    assert "was called inside of its own work" in reasons[0]
    assert session.get("a").state is OperationState.SEALED


def test_a_conflict_names_what_differs(session):
    class Other(Task[int], name="operations.other"):
        number: int

        def work(self):
            return self.number

    session.run(Other(number=7), id="a")
    same = session.run(Other(number=8), id="a")
    assert "started with other inputs of operations.other" in same.reason
    other = session.run(Charge(), id="a")
    assert "started by operations.other, not by" in other.reason
