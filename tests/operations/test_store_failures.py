"""Stores that cannot be reached, and rows that somebody has edited."""

from __future__ import annotations

import asyncio
import json

import pytest
from ledgers import (
    LEASE,
    PATIENCE,
    Arrivals,
    QuietKeeper,
    Stop,
    after_admission,
    beat,
    come_back,
    edit_row,
    fail_from_now_on,
    in_thread,
    on_each_store,
    row_of,
    running,
    wait_until,
)

from cmdx import NoValueError, Task, is_retryable, retry_on
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationState,
    operation,
    operation_indeterminate,
    operation_released,
)
from cmdx.operations.leases import RETRY_PAUSE, LeaseKeeper
from cmdx.stores import SqliteStore, StoreError, StoreUnavailable
from cmdx.stores.errors import CommitUncertain

LIVE, RELEASED, SEALED, INDETERMINATE, EXPIRED = OperationState

runs = []


class Charge(Task[int]):
    order: int = 7

    def work(self):
        runs.append(self.order)
        return len(runs)


@pytest.fixture(autouse=True)
def forget_runs():
    runs.clear()


# -- before admission ------------------------------------------------------------------


@on_each_store
def test_r_001_36_a_store_that_is_away_before_admission_may_be_retried(
    session, store, call
):
    fail_from_now_on(store)
    result = call(session, Charge(), id="a")
    assert isinstance(result.cause, StoreUnavailable)
    assert is_retryable(result.cause)
    assert not result.indeterminate
    assert result.operation is None
    with pytest.raises(StoreUnavailable, match="the store is away"):
        result.or_raise()
    come_back(store)
    assert runs == []
    assert call(session, Charge(), id="a").value == 1


@pytest.mark.parametrize("listed", [Exception, StoreUnavailable])
def test_r_001_36_a_caller_that_retries_what_is_retryable_gets_through(
    session, store, instant, listed
):
    @retry_on(listed, if_=is_retryable, limit=5, delay=1)
    class Checkout(Task[int]):
        def work(self):
            return session.run(Charge(), id="a").or_raise().value

    fail_from_now_on(store, 4)  # each call asks twice
    assert Checkout.execute().value == 1
    assert len(instant.pauses) == 2


@pytest.mark.parametrize("state", [RELEASED, INDETERMINATE, EXPIRED])
def test_r_001_36_a_caller_that_retries_what_is_retryable_gives_up_on_the_rest(
    session, store, state
):
    attempts = []

    @retry_on(Exception, if_=is_retryable, limit=5, delay=0)
    class Checkout(Task[int]):
        def work(self):
            attempts.append(1)
            return session.run(Charge(), id="a").or_raise().value

    session.run(Charge(), id="a")
    edit_row(store, "a", state=state.value, outcome=None)
    assert Checkout.execute().failed
    assert len(attempts) == 1


@on_each_store
def test_an_admission_of_which_nobody_heard_is_admitted_once(session, store, call):
    """The commit happened, and the connection was lost before it was confirmed."""

    def lose_the_answer():
        raise CommitUncertain("the connection was lost", "Look")

    after_admission(store, lose_the_answer)
    assert call(session, Charge(), id="a").value == 1
    assert session.get("a").executions == len(runs) == 1


@on_each_store
def test_an_admission_of_which_nobody_ever_heard_is_taken_back(session, store, call):
    """Both commits happened, and no answer came: ``work`` was not called."""

    def lose_the_answer(point):
        if point == "after commit" and store._written != written:
            raise CommitUncertain("the connection was lost", "Look")

    written = store._written
    session.ledger.lease_keeper = QuietKeeper()
    store.at = lose_the_answer
    result = call(session, Charge(), id="a")
    assert isinstance(result.cause, StoreUnavailable)
    come_back(store)
    assert session.get("a").state is OperationState.LIVE
    beat(session.ledger, RETRY_PAUSE)
    assert session.get("a").state is OperationState.RELEASED
    assert call(session, Charge(), id="a", wait=0).value == 1
    assert len(runs) == 1


def test_a_store_that_was_closed_is_told_as_a_result(session, store, call):
    store.close()
    result = call(session, Charge(), id="a")
    assert type(result.cause) is StoreError
    assert not is_retryable(result.cause)
    assert "was closed" in result.reason
    assert runs == []


def test_those_attached_are_told_that_the_store_is_away(session, store):
    stop = Stop()

    class Wait(Task[int], name="operations.wait"):
        def work(self):
            stop.wait()
            return 7

    with running(lambda: session.run(Wait(), id="a"), stop) as owner:
        arrivals = Arrivals(store, 1)
        attached = in_thread(lambda: session.run(Wait(), id="a"))
        arrivals.wait()
        fail_from_now_on(store)
        assert isinstance(attached.result(PATIENCE).cause, StoreUnavailable)
        come_back(store)
    assert owner.result().value == 7


def test_those_attached_to_a_store_that_is_closed_are_told_so(session, store):
    stop = Stop()

    class Wait(Task[int], name="operations.wait"):
        def work(self):
            stop.wait()

    with running(lambda: session.run(Wait(), id="a"), stop):
        arrivals = Arrivals(store, 1)
        attached = in_thread(lambda: session.run(Wait(), id="a"))
        arrivals.wait()
        wait_until(lambda: store._waiters)
        store.close()
        assert attached.result(PATIENCE).failed


# -- at the seal -----------------------------------------------------------------------


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_r_001_13_an_outcome_that_cannot_be_stored_is_indeterminate(
    session, store, call, persist
):
    @operation(persist=persist)
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            runs.append(1)
            fail_from_now_on(store)
            return 7

    result = call(session, Lose(), id="a")
    assert isinstance(result.cause, Indeterminate)
    assert result.indeterminate
    assert not is_retryable(result.cause)
    assert "its outcome could not be stored" in result.reason
    assert "the store is away" in result.reason
    come_back(store)
    assert row_of(store, "a") == "live"
    beat(session.ledger, RETRY_PAUSE + 1)
    later = call(session, Lose(), id="a")
    assert (later.value, later.operation.replayed) == (7, True)
    assert runs == [1]


def test_what_a_store_says_in_parentheses_has_no_full_stop(session, store, call):
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            store.close()
            return 7

    reason = call(session, Lose(), id="a").reason
    assert "was closed" in reason
    assert ".)" not in reason


def test_the_keeper_tries_to_seal_until_it_can(session, store):
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            fail_from_now_on(store)
            return 7

    session.run(Lose(), id="a")
    for turn in range(1, 5):
        beat(session.ledger, turn * (RETRY_PAUSE + 1))
    come_back(store)
    assert row_of(store, "a") == "live"
    beat(session.ledger, 9 * RETRY_PAUSE + 9)
    assert row_of(store, "a") == "sealed"


def test_the_keeper_gives_up_when_the_lease_is_over(session, store, instant):
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            fail_from_now_on(store)
            return 7

    session.run(Lose(), id="a")
    beat(session.ledger, LEASE + 1)
    come_back(store)
    beat(session.ledger, LEASE + 2)
    assert row_of(store, "a") == "live"
    instant.advance(LEASE + 1)
    assert session.run(Lose(), id="a").indeterminate


def test_a_late_seal_does_not_replace_that_of_another_owner(session, store, instant):
    values = iter([1, 2])

    @operation(idempotent=True)
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            value = next(values)
            if value == 1:
                fail_from_now_on(store)
            return value

    assert session.run(Lose(), id="a").indeterminate
    come_back(store)
    instant.advance(LEASE)
    assert session.run(Lose(), id="a").value == 2
    beat(session.ledger, RETRY_PAUSE + 1)
    assert session.run(Lose(), id="a").value == 2


def test_the_keeper_is_woken_for_an_outcome_that_is_still_to_be_sealed(session, store):
    woken = []

    class Noted(LeaseKeeper):
        def _wake_thread(self):
            woken.append(1)
            super()._wake_thread()

    class Lose(Task[int], name="operations.lose"):
        def work(self):
            fail_from_now_on(store)
            woken.clear()
            return 7

    session.ledger.lease_keeper = Noted()
    session.run(Lose(), id="a")
    come_back(store)
    assert woken == [1]


@on_each_store
def test_a_seal_of_which_nobody_heard_is_found_sealed(session, store, call):
    def lose_the_answer(point):
        if point == "after commit":
            come_back(store)
            raise CommitUncertain("the connection was lost", "Look")

    class Lose(Task[int], name="operations.lose"):
        def work(self):
            store.at = lose_the_answer
            return 7

    assert call(session, Lose(), id="a").indeterminate
    beat(session.ledger, RETRY_PAUSE + 1)
    assert call(session, Lose(), id="a").value == 7


def test_any_error_of_the_store_at_the_seal_is_told_as_indeterminate(
    session, store, call
):
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            store.close()
            return 7

    assert call(session, Lose(), id="a").indeterminate


@on_each_store
@pytest.mark.parametrize("failures", [1, None], ids=["once", "for long"])
@pytest.mark.parametrize("persist", [False, True])
def test_r_001_13_an_exception_that_cannot_be_stored_is_indeterminate(
    session, store, call, failures, persist
):
    @operation(seal="decided", persist=persist)
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            runs.append(1)
            fail_from_now_on(store, failures)
            raise ConnectionError("read timed out")

    session.ledger.lease_keeper = QuietKeeper()
    result = call(session, Lose(), id="a")
    assert isinstance(result.cause, Indeterminate)
    assert result.indeterminate
    assert not is_retryable(result.cause)
    assert "read timed out" in result.reason
    assert "the store is away" in result.reason
    come_back(store)
    beat(session.ledger, RETRY_PAUSE)
    assert row_of(store, "a") == ("indeterminate" if persist else "released")
    assert row_of(store, "a", "ending") == "raised"
    assert runs == [1]


def test_the_ending_of_an_interrupt_is_stored_as_soon_as_the_store_is_back(
    session, store
):
    class Interrupted(Task[int], name="operations.interrupted"):
        def work(self):
            fail_from_now_on(store)
            raise KeyboardInterrupt

    session.ledger.lease_keeper = QuietKeeper()
    with pytest.raises(KeyboardInterrupt):
        session.run(Interrupted(), id="a")
    come_back(store)
    beat(session.ledger, RETRY_PAUSE)
    assert row_of(store, "a", "ending") == "cancelled"


def test_what_could_not_be_stored_in_time_is_logged(session, store, caplog):
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            fail_from_now_on(store)
            return 7

    session.ledger.lease_keeper = QuietKeeper()
    session.run(Lose(), id="a")
    beat(session.ledger, RETRY_PAUSE)
    beat(session.ledger, LEASE + 1)
    (logged,) = caplog.records
    assert "could not be stored in time" in logged.getMessage()
    assert "the store is away" in logged.getMessage()


@pytest.mark.parametrize("persist", [False, True])
def test_an_ending_that_cannot_be_stored_ends_with_the_lease(
    session, store, instant, persist
):
    @operation(persist=persist)
    class Interrupted(Task[int], name="operations.interrupted"):
        def work(self):
            fail_from_now_on(store)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.run(Interrupted(), id="a")
    come_back(store)
    instant.advance(LEASE)
    assert session.get("a").state is (INDETERMINATE if persist else RELEASED)


# -- rows that somebody has edited -----------------------------------------------------


def edited(text, **changes):
    return json.dumps(json.loads(text) | changes)


HOSTILE_OUTCOMES = {
    "no outcome": lambda _outcome: None,
    "no JSON": lambda _outcome: "{",
    "no object": lambda _outcome: "[1, 2]",
    "half": lambda outcome: outcome[: len(outcome) // 2],
    "empty": lambda _outcome: "{}",
    "wrong type": lambda outcome: edited(outcome, attempts=7),
    "wrong reason": lambda outcome: edited(
        outcome, outcome={"status": "success", "reason": 7}
    ),
    "unknown status": lambda outcome: outcome.replace('"success"', '"great"'),
    "missing": lambda outcome: json.dumps(
        {key: value for key, value in json.loads(outcome).items() if key != "tid"}
    ),
    "10 MB": lambda _outcome: json.dumps({"task": "x" * 10_000_000}),
}


@pytest.mark.parametrize("change", HOSTILE_OUTCOMES)
def test_an_outcome_that_was_edited_is_told_and_nothing_runs(
    session, store, call, change
):
    session.run(Charge(), id="a")
    edit_row(
        store, "a", outcome=HOSTILE_OUTCOMES[change](row_of(store, "a", "outcome"))
    )
    result = call(session, Charge(), id="a")
    assert result.failed
    assert "the outcome of the operation 'a' was stored, but cannot be read" in (
        result.reason
    )
    assert len(result.reason) < 1000
    assert not is_retryable(result.cause)
    assert runs == [7]


def test_an_outcome_that_is_too_deep_is_told_and_nothing_runs(session, store):
    session.run(Charge(), id="a")
    edit_row(store, "a", outcome="[" * 100_000)
    assert session.run(Charge(), id="a").failed


def test_a_value_of_10_mb_is_replayed(session, call):
    class Large(Task[str], name="operations.large"):
        def work(self):
            return "x" * 10_000_000

    owner, again = (call(session, Large(), id="a") for _ in range(2))
    assert again.value == owner.value


@pytest.mark.parametrize("value", ['"text"', "{}", "null", "[7]"])
def test_a_value_that_was_edited_is_not_told_as_one(session, store, value):
    session.run(Charge(), id="a")
    outcome = row_of(store, "a", "outcome").replace('"value": 1', f'"value": {value}')
    edit_row(store, "a", outcome=outcome)
    result = session.run(Charge(), id="a")
    if value == "null":
        assert result.value is None
    else:
        with pytest.raises(NoValueError, match="value of Charge was stored, but"):
            _ = result.value


HOSTILE_ROWS = {
    "unknown state": {"state": "paused"},
    "empty state": {"state": ""},
    "lease": {"state": "live", "lease": "soon"},
    "expiry": {"expires_at": "never"},
    "keep": {"keep": "long"},
    "executions": {"state": "live", "executions": "many"},
    "sealed at": {"sealed_at": "now"},
}


@pytest.mark.parametrize("change", HOSTILE_ROWS)
def test_a_row_that_was_edited_is_told_and_nothing_runs(session, store, call, change):
    session.run(Charge(), id="a")
    edit_row(store, "a", **HOSTILE_ROWS[change])
    result = call(session, Charge(), id="a")
    assert isinstance(result.cause, StoreError)
    assert not is_retryable(result.cause)
    assert "the stored operation 'a' of session 'shop' cannot be read" in result.reason
    assert "restore or delete the row" in result.reason
    assert runs == [7]
    for look in (session.get, session.cancel):
        with pytest.raises(StoreError, match="'a' of session 'shop' cannot be read"):
            look("a")


def test_a_row_that_was_edited_disturbs_nobody_else(session, store, instant):
    session.run(Charge(), id="a")
    edit_row(store, "a", state="live", lease=0.0, keep="long")
    instant.advance(61)
    assert session.run(Charge(), id="b").success


def test_a_row_of_another_task_is_a_conflict(session, store):
    session.run(Charge(), id="a")
    edit_row(store, "a", task="gone:Task")
    assert "was started by gone:Task, not by" in session.run(Charge(), id="a").reason


def test_a_sealed_row_that_was_deleted_is_a_new_intention(session, store):
    session.run(Charge(), id="a")
    store.transact(lambda rows: rows.execute("delete from cmdx_operation"))
    assert session.run(Charge(), id="a").value == 2


@on_each_store
@pytest.mark.parametrize("persist", [False, True])
def test_r_001_20_an_owner_whose_row_was_deleted_does_not_run_again(
    session, store, call, persist
):
    """As by somebody who restores a backup while it runs."""

    @operation(persist=persist)
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            runs.append(1)
            if len(runs) == 1:
                delete_rows(store)
            return len(runs)

    signal = operation_indeterminate if persist else operation_released
    sent = []
    with signal.connected_to(lambda *_, **__: sent.append(1)):
        result = call(session, Lose(), id="a")
    assert result.indeterminate
    assert "its record was deleted while it ran" in result.reason
    assert sent == [1]
    assert call(session, Lose(), id="a").indeterminate  # nor does anybody else run it
    assert runs == [1]


def test_an_owner_whose_row_was_deleted_runs_again_what_is_idempotent(session, store):
    @operation(idempotent=True)
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            runs.append(1)
            if len(runs) == 1:
                delete_rows(store)
            return len(runs)

    assert session.run(Lose(), id="a").value == 2
    assert session.run(Lose(), id="a").value == 2


def test_an_owner_that_lost_its_row_and_the_store_does_not_say_that_it_may_be_retried(
    session, store, call
):
    class Lose(Task[int], name="operations.lose"):
        def work(self):
            delete_rows(store)
            after_one_transaction(store, lambda: fail_from_now_on(store))
            return 7

    result = call(session, Lose(), id="a")
    assert isinstance(result.cause, Indeterminate)
    assert not is_retryable(result.cause)
    assert "the store is away" in result.reason


def delete_rows(store):
    store.transact(lambda rows: rows.execute("delete from cmdx_operation"))


def after_one_transaction(store, do):
    def act(point):
        if point == "after commit":
            do()

    store.at = act


def test_a_table_that_is_gone_is_told(session, store, call):
    store.transact(lambda rows: rows.execute("drop table cmdx_operation"))
    result = call(session, Charge(), id="a")
    assert isinstance(result.cause, StoreError)
    assert runs == []


def test_reading_from_a_store_that_is_away_raises(session, store):
    fail_from_now_on(store)
    for call in (session.get, session.cancel):
        with pytest.raises(StoreUnavailable):
            call("a")
    for acall in (session.aget, session.acancel):
        with pytest.raises(StoreUnavailable):
            asyncio.run(acall("a"))


def test_a_path_that_cannot_be_opened_is_refused_when_the_ledger_is_made(tmp_path):
    with pytest.raises(StoreError, match="Create the directory first"):
        Ledger(tmp_path / "nowhere" / "app.db")
    (tmp_path / "text.db").write_text("this is no database, by far not one" * 100)
    with pytest.raises(StoreError, match="is not an SQLite database"):
        SqliteStore(tmp_path / "text.db")
