"""How long records are kept, and what an id means after that."""

from __future__ import annotations

import math

import pytest
from ledgers import (
    LEASE,
    PATIENCE,
    Stop,
    admitted,
    beat,
    edit_row,
    in_thread,
    on_each_store,
    other_connection,
    row_of,
    running,
    wait_until,
)

from cmdx import Task, is_retryable
from cmdx.operations import (
    Ledger,
    OperationConflict,
    OperationExpired,
    OperationState,
    lifecycle,
    operation,
)
from cmdx.operations.records import INSERT, MOST_EVICTED, columns_of, update_record
from cmdx.stores import StoreUnavailable

LIVE, RELEASED, SEALED, INDETERMINATE, EXPIRED = OperationState

KEEP = 1000.0
MINUTE = 60.0

runs = []


@operation(keep=KEEP)
class Charge(Task[int]):
    order: int = 7

    def work(self):
        runs.append(self.order)
        return len(runs)


class Other(Task[None]):
    def work(self):
        return None


@operation(persist=True, keep=KEEP)
class Interrupted(Task[None]):
    def work(self):
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def forget_runs():
    runs.clear()


@on_each_store
def test_r_001_42_an_outcome_is_replayed_as_long_as_it_is_kept(session, instant, call):
    call(session, Charge(), id="a")
    instant.advance(KEEP - 2)
    assert call(session, Charge(), id="a").operation.replayed
    assert runs == [7]


@on_each_store
def test_r_001_45_an_expired_id_is_refused_and_not_run(session, instant, call):
    call(session, Charge(), id="a")
    instant.advance(KEEP + 1)
    for _ in range(2):
        result = call(session, Charge(), id="a")
        assert isinstance(result.cause, OperationExpired)
        assert "Look at its effects before you use a new id" in result.reason
        assert not is_retryable(result.cause)
        assert not result.indeterminate
        with pytest.raises(OperationExpired):
            result.or_raise()
    assert runs == [7]


@on_each_store
@pytest.mark.parametrize("is_evicted", [False, True])
def test_r_001_45_a_tombstone_stands_for_seven_times_as_long(
    session, instant, is_evicted
):
    session.run(Charge(), id="a")
    instant.advance(KEEP + 1)
    if is_evicted:
        session.run(Other())
    instant.advance(7 * KEEP - 5)
    assert isinstance(session.run(Charge(), id="a").cause, OperationExpired)
    instant.advance(10)
    assert session.run(Charge(), id="a").value == 2


@on_each_store
def test_an_eviction_drops_the_outcome_and_later_the_tombstone(session, store, instant):
    session.run(Charge(), id="a")
    assert row_of(store, "a", "outcome") is not None
    instant.advance(KEEP + 1)
    session.run(Other())
    assert (row_of(store, "a"), row_of(store, "a", "outcome")) == ("expired", None)
    instant.advance(7 * KEEP)
    session.run(Other())
    assert row_of(store, "a") is None


def test_r_001_4_an_expired_id_is_a_conflict_for_other_inputs(session, instant):
    session.run(Charge(), id="a")
    instant.advance(KEEP + 1)
    result = session.run(Charge(order=8), id="a")
    assert isinstance(result.cause, OperationConflict)


def test_an_expired_operation_is_shown_as_expired(session, instant):
    session.run(Charge(), id="a")
    instant.advance(KEEP + 1)
    assert session.get("a").state is EXPIRED
    assert session.run(Charge(), id="a").operation.state is EXPIRED


def test_what_is_forgotten_is_not_known(session, instant):
    session.run(Charge(), id="a")
    instant.advance(8 * KEEP + 1)
    assert session.get("a") is None
    assert session.cancel("a") is False


@on_each_store
def test_r_001_43_what_is_live_is_never_evicted(session, store, instant):
    stop = Stop()

    @operation(keep=1)
    class Slow(Task[int], name="operations.slow"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Slow(), id="a"), stop) as owner:
        for turn in range(1, 6):
            instant.advance(LEASE - 5)
            beat(session.ledger, turn * LEASE)
            session.run(Other())
            assert row_of(store, "a") == "live"
    assert owner.result().value == 7


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_a_record_whose_owner_died_is_ended_by_an_eviction(
    session, store, instant, persist
):
    session.run(Charge(), id="a")
    lapsed = store.now() - 1
    edit_row(store, "a", state="live", lease=lapsed, persist=int(persist), outcome=None)
    instant.advance(MINUTE + 1)
    session.run(Other())
    assert row_of(store, "a") == ("indeterminate" if persist else "released")
    assert row_of(store, "a", "ending") == "lost"
    assert row_of(store, "a", "expires_at") == pytest.approx(store.now() + KEEP, abs=5)


def test_r_001_44_what_is_indeterminate_is_kept_as_long_as_an_outcome(session, instant):
    with pytest.raises(KeyboardInterrupt):
        session.run(Interrupted(), id="a")
    instant.advance(KEEP - 1)
    assert session.run(Interrupted(), id="a").indeterminate
    instant.advance(2)
    assert isinstance(session.run(Interrupted(), id="a").cause, OperationExpired)


def test_an_outcome_is_kept_from_its_seal_and_not_from_its_start(session, instant):
    @operation(keep=KEEP)
    class Slow(Task[int], name="operations.slow"):
        def work(self):
            instant.advance(KEEP)
            return 7

    session.run(Slow(), id="a")
    instant.advance(KEEP - 1)
    assert session.run(Slow(), id="a").value == 7


def test_a_ledger_evicts_at_most_once_a_minute(session, store, instant):
    session.run(Other())
    session.run(Charge(), id="a")
    edit_row(store, "a", expires_at=0.0, keep=1e9)
    instant.advance(MINUTE - 5)
    session.run(Other())
    assert row_of(store, "a") == "sealed"
    instant.advance(10)
    session.run(Other())
    assert row_of(store, "a") == "expired"


def test_every_ledger_evicts_for_all_sessions(session, store, instant):
    session.run(Charge(), id="a")
    instant.advance(KEEP + 1)
    Ledger(store).session("another").run(Other())
    assert row_of(store, "a") == "expired"


# -- evictions concern nobody else -----------------------------------------------------


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("state", ["sealed", "expired"])
def test_an_eviction_leaves_out_what_others_have_locked(session, store, state):
    for key in ("a", "b"):
        session.run(Charge(), id=key)
        edit_row(store, key, state=state, expires_at=store.now() - 1)
    with other_connection(store) as other:
        other.execute("select 1 from cmdx_operation where id = 'a' for update")
        assert Ledger(store).session("another").run(Other()).success
        assert row_of(store, "a") == state
        assert row_of(store, "b") == ("expired" if state == "sealed" else None)


@on_each_store
def test_an_eviction_that_fails_concerns_no_operation(session, call, monkeypatch):
    def fail(statements):
        statements.execute("select * from nowhere")

    monkeypatch.setattr(lifecycle, "evict_records", fail)
    assert call(session, Charge(), id="a").value == 1


@on_each_store
def test_an_eviction_is_short_and_goes_on_with_the_next_call(session, store):
    facts = {"state": SEALED, "expires_at": store.now() - 1}
    ended = [
        columns_of(admitted(f"old-{number}")._replace(**facts))
        for number in range(MOST_EVICTED + 10)
    ]
    store.transact(lambda statements: statements.executemany(INSERT, ended))
    counts = []
    for _ in range(3):
        session.run(Other())
        counts.append(count_rows(store, "expired"))
    assert counts == [MOST_EVICTED, MOST_EVICTED + 10, MOST_EVICTED + 10]


def count_rows(store, state):
    sql = "select count(*) from cmdx_operation where state = :state"
    return store.transact(lambda rows: rows.execute(sql, state=state))[0][0]


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_r_001_9_an_id_whose_tombstone_is_being_deleted_is_admitted_once(
    session, store, end
):
    """Another process evicts it, and commits after this one has seen the tombstone."""
    session.run(Charge(), id="a")
    edit_row(store, "a", state="expired", expires_at=0.0)
    session.ledger._next_eviction = math.inf
    with other_connection(store) as evictor:
        evictor.execute("delete from cmdx_operation where id = 'a'")
        call = in_thread(lambda: session.run(Charge(), id="a"))
        wait_until(lambda: blocks_others(evictor))
        getattr(evictor, end)()
    result = call.result(PATIENCE)
    assert (result.value, result.operation.executions) == (2, 1)
    assert row_of(store, "a") == "sealed"
    assert runs == [7, 7]


def blocks_others(connection):
    (row,) = connection.execute(
        "select count(*) from pg_stat_activity "
        "where pg_backend_pid() = any(pg_blocking_pids(pid))"
    )
    return row[0] > 0


@on_each_store
def test_a_record_that_is_gone_cannot_be_changed(store):
    with pytest.raises(StoreUnavailable, match="was deleted meanwhile"):
        store.transact(lambda statements: update_record(statements, admitted("a")))


def test_a_replay_does_not_extend_how_long_it_is_kept(session, store, instant):
    session.run(Charge(), id="a")
    expires_at = row_of(store, "a", "expires_at")
    instant.advance(KEEP / 2)
    session.run(Charge(), id="a")
    assert row_of(store, "a", "expires_at") == expires_at


def test_an_id_that_is_forgotten_begins_with_the_policy_of_then(session, instant):
    session.run(Charge(), id="a")
    instant.advance(8 * KEEP + 1)
    result = session.run(Other(), id="a")
    assert result.success
    assert result.operation.executions == 1
