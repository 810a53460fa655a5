"""``recover()``: the task finds out what became of an indeterminate operation."""

from __future__ import annotations

import asyncio
import logging

import pytest
from ledgers import (
    LEASE,
    PATIENCE,
    Arrivals,
    SteppedStore,
    Stop,
    beat,
    come_back,
    fail_from_now_on,
    in_thread,
    on_each_store,
    row_of,
    run_async,
    running,
    steps,
)

from cmdx import (
    AsyncTaskError,
    Task,
    after_execution,
    before_execution,
    optional,
    required,
    retry_on,
)
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationState,
    current_operation,
    operation,
    operation_replayed,
    operation_sealed,
)

RELEASED, SEALED, INDETERMINATE = (
    OperationState.RELEASED,
    OperationState.SEALED,
    OperationState.INDETERMINATE,
)


def charge_that_recovers(answer, **options):
    """Return a task that is interrupted when it runs, and then asks *answer*."""

    @operation(**{"persist": True} | options)
    class Charge(Task[int | str], name="operations.charge"):
        def work(self):
            raise KeyboardInterrupt

        recover = answer

    return Charge


def interrupt(_self):
    raise KeyboardInterrupt


def leave_indeterminate(session, task):
    with pytest.raises(KeyboardInterrupt):
        session.run(task, id="a")


async def a_value(_self):
    await asyncio.sleep(0)
    return 7


async def a_failure(self):
    await asyncio.sleep(0)
    self.fail("refused", code="DECLINED")


async def no_answer(_self):
    await asyncio.sleep(0)


ANSWERS = {
    "value": (lambda _self: 7, "success", 7, None),
    "zero": (lambda _self: 0, "success", 0, None),
    "succeed": (lambda self: self.succeed("found", value=7), "success", 7, "found"),
    "succeed without a value": (lambda self: self.succeed(), "success", None, None),
    "fail": (lambda self: self.fail("refused"), "failed", None, "refused"),
    "skip": (lambda self: self.skip("nothing"), "skipped", None, "nothing"),
}


@on_each_store
@pytest.mark.parametrize("answer", ANSWERS)
def test_r_001_22_what_recover_found_is_the_outcome(session, call, answer):
    recover, status, value, reason = ANSWERS[answer]
    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    for is_replayed in (False, True):
        result = call(session, charge(), id="a")
        assert (result.status, result.reason) == (status, reason)
        assert result.value_or(None) == value
        assert result.operation.state is SEALED
        assert result.operation.replayed is is_replayed
        assert not result.indeterminate
    assert session.get("a").executions == 1


@pytest.mark.parametrize(
    ("recover", "status"), [(a_value, "success"), (a_failure, "failed")]
)
def test_an_async_recover_is_awaited(session, recover, status):
    charge = charge_that_recovers(recover)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(session.arun(charge(), id="a"))
    assert asyncio.run(session.arun(charge(), id="a")).status == status
    assert session.get("a").state is SEALED


def test_an_async_recover_needs_arun(session):
    charge = charge_that_recovers(a_value)
    with pytest.raises(AsyncTaskError, match="recover"):
        session.run(charge(), id="a")
    assert session.get("a") is None


@on_each_store
@pytest.mark.parametrize("recover", [lambda _self: None, lambda _self: 1 / 0])
def test_who_does_not_know_either_leaves_it_indeterminate(session, call, recover):
    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    for _ in range(2):
        result = call(session, charge(), id="a")
        assert isinstance(result.cause, Indeterminate)
        assert result.indeterminate
        assert session.get("a").state is INDETERMINATE


def test_an_async_recover_may_not_know_either(session):
    charge = charge_that_recovers(no_answer)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(session.arun(charge(), id="a"))
    assert asyncio.run(session.arun(charge(), id="a")).indeterminate


def test_what_recover_raises_is_logged(session, call, caplog):
    charge = charge_that_recovers(lambda _self: 1 / 0)
    leave_indeterminate(session, charge())
    with caplog.at_level(logging.ERROR, logger="cmdx"):
        call(session, charge(), id="a")
    (record,) = caplog.records
    assert "Charge raised an exception" in record.getMessage()
    assert record.exc_info[0] is ZeroDivisionError


def test_who_did_not_know_is_asked_again_by_the_next_call(session):
    answers = iter([None, None, 7])
    charge = charge_that_recovers(lambda _self: next(answers))
    leave_indeterminate(session, charge())
    results = [session.run(charge(), id="a") for _ in range(4)]
    assert [result.value_or(None) for result in results] == [None, None, 7, 7]


@on_each_store
def test_of_many_callers_one_asks_and_all_are_told(session, store):
    asked, stop = [], Stop()

    def recover(_self):
        asked.append(1)
        stop.wait()
        return 7

    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    with running(lambda: session.run(charge(), id="a"), stop) as first:
        arrivals = Arrivals(store, 8)
        others = [in_thread(lambda: session.run(charge(), id="a")) for _ in range(8)]
        arrivals.wait()
    results = [first.result(), *(other.result(PATIENCE) for other in others)]
    assert [result.value_or(None) for result in results] == [7] * 9
    assert len(asked) == 1


def test_those_who_waited_for_an_answer_in_vain_do_not_ask_themselves(session, store):
    asked, stop = [], Stop()

    def recover(_self):
        asked.append(1)
        stop.wait()

    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    with running(lambda: session.run(charge(), id="a"), stop):
        arrivals = Arrivals(store, 1)
        other = in_thread(lambda: session.run(charge(), id="a"))
        arrivals.wait()
    assert other.result(PATIENCE).indeterminate
    assert len(asked) == 1


def test_a_caller_that_waits_no_longer_is_told_so_while_another_asks(session):
    stop = Stop()

    def recover(_self):
        stop.wait()
        return 7

    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    with running(lambda: session.run(charge(), id="a"), stop):
        assert "still running" in session.run(charge(), id="a", wait=0).reason


@on_each_store
def test_the_lease_of_one_who_asks_for_long_is_extended(session, store, instant):
    asked, stop = [], Stop()

    def recover(_self):
        asked.append(1)
        stop.wait()
        return 7

    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    with running(lambda: session.run(charge(), id="a"), stop) as first:
        for turn in range(1, 4):
            instant.advance(LEASE * 0.8)
            beat(session.ledger, LEASE * turn)
        arrivals = Arrivals(store, 1)
        other = in_thread(lambda: session.run(charge(), id="a"))
        arrivals.wait()
    assert first.result().value == other.result(PATIENCE).value == 7
    assert len(asked) == 1


@on_each_store
def test_a_beat_that_comes_after_the_end_does_not_keep_the_next_from_asking(
    session, store
):
    seen = []

    def recover(_self):
        seen.extend(session.ledger.lease_keeper._runs.values())

    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    assert session.run(charge(), id="a").indeterminate
    session.ledger.lease_keeper._extend(seen, 0.0)  # it was due, and had to wait
    assert row_of(store, "a", "lease") == 0.0
    assert "still running" not in session.run(charge(), id="a", wait=0).reason


@pytest.mark.parametrize("count", range(12))
def test_one_who_leaves_before_asking_lets_the_next_ask(count):
    charge = charge_that_recovers(lambda _self: 7)
    session = Ledger(SteppedStore()).session("shop")
    leave_indeterminate(session, charge())

    async def main():
        leaving = asyncio.create_task(session.arun(charge(), id="a"))
        await steps(count)
        leaving.cancel()
        await asyncio.wait([leaving])
        return await session.arun(charge(), id="a", wait=0)

    assert run_async(main()).value_or(None) == 7


def test_after_one_who_asked_and_died_the_next_asks(session, instant):
    charge = charge_that_recovers(interrupt)
    leave_indeterminate(session, charge())
    with pytest.raises(KeyboardInterrupt):
        session.run(charge(), id="a")
    later = charge_that_recovers(lambda _self: 7)
    instant.advance(LEASE)
    assert session.run(later(), id="a").value == 7


def test_after_one_who_was_interrupted_while_asking_the_next_asks_at_once(session):
    charge = charge_that_recovers(interrupt)
    leave_indeterminate(session, charge())
    with pytest.raises(KeyboardInterrupt):
        session.run(charge(), id="a")
    later = charge_that_recovers(lambda _self: 7)
    assert session.run(later(), id="a", wait=0).value_or(None) == 7


def test_the_owner_may_seal_while_another_asks(session, instant):
    stop, asking = Stop(), Stop()

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            stop.wait()
            return 7

        def recover(self):
            asking.wait()
            return 8

    with running(lambda: session.run(Charge(), id="a"), stop) as owner:
        instant.advance(LEASE)
        asker = in_thread(lambda: session.run(Charge(), id="a"))
        assert asking.reached.wait(PATIENCE)
    assert owner.result().value == 7
    asking.let_go()
    assert asker.result(PATIENCE).value == 7


@on_each_store
def test_what_is_idempotent_runs_again_instead(session):
    runs = []

    @operation(persist=True, idempotent=True)
    class Charge(Task[int], name="operations.charge"):
        def work(self):
            runs.append("work")
            if len(runs) == 1:
                raise KeyboardInterrupt
            return 7

        def recover(self):
            runs.append("recover")

    leave_indeterminate(session, Charge())
    assert session.run(Charge(), id="a").value == 7
    assert runs == ["work", "work"]


def test_what_was_released_is_not_asked_about(session):
    asked = []
    charge = charge_that_recovers(lambda _self: asked.append(1), persist=False)
    leave_indeterminate(session, charge())
    assert session.get("a").state is RELEASED
    assert session.run(charge(), id="a").indeterminate
    assert asked == []


def test_recover_sees_resolved_inputs(session):
    seen = []

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        order: int
        currency: str = "EUR"
        note: str = optional(factory=lambda: "made")

        def work(self):
            raise KeyboardInterrupt

        def recover(self):
            seen.append((self.order, self.currency, self.note))
            self.metadata["by"] = "recover"
            return 7

    leave_indeterminate(session, Charge(order="7"))
    result = session.run(Charge(order="7"), id="a")
    assert seen == [(7, "EUR", "made")]
    assert result.metadata == {"by": "recover"}


def test_inputs_that_are_refused_by_then_leave_it_indeterminate(session, call, caplog):
    account = {"ada": 50}

    @operation(persist=True)
    class Withdraw(Task[str], name="operations.withdraw"):
        balance: int = required(source=lambda: account["ada"])
        amount: int = required(validate="require_cover")

        def require_cover(self, amount):
            if amount > self.balance:
                raise ValueError("is more than the balance")

        def work(self):
            account["ada"] -= self.amount
            raise KeyboardInterrupt

        def recover(self):
            return "found"

    leave_indeterminate(session, Withdraw(amount=30))
    result = call(session, Withdraw(amount=30), id="a")
    assert result.indeterminate
    assert session.get("a").state is INDETERMINATE
    assert "recover() of" in caplog.text
    assert "amount is more than the balance" in caplog.text
    account["ada"] = 100
    assert call(session, Withdraw(amount=30), id="a").value == "found"


def test_recover_knows_the_operation_it_is_asked_about(session, call):
    """Whoever asks a bank needs the key that ``work`` has used there."""
    charge = charge_that_recovers(lambda _self: current_operation().id)
    leave_indeterminate(session, charge())
    assert call(session, charge(), id="a").value_or(None) == "a"


def test_recover_runs_no_callbacks_and_no_retries(session, recorded, instant):
    seen = []

    @operation(persist=True)
    @retry_on(ConnectionError, limit=3, delay=1)
    class Charge(Task[int], name="operations.charge"):
        @before_execution
        def begin(self):
            seen.append("before")

        @after_execution
        def end(self):
            seen.append("after")

        def work(self):
            raise KeyboardInterrupt

        def rollback(self):
            seen.append("rollback")

        def recover(self):
            seen.append("recover")
            raise ConnectionError

    leave_indeterminate(session, Charge())
    seen.clear()
    sent = len(recorded.signals)
    assert session.run(Charge(), id="a").indeterminate
    assert seen == ["recover"]
    assert len(recorded.signals) == sent
    assert instant.pauses == []


def test_who_asked_is_an_owner_and_who_comes_later_is_replayed(session):
    sent = []
    charge = charge_that_recovers(lambda _self: 7)
    leave_indeterminate(session, charge())
    with operation_replayed.connected_to(lambda *_, **__: sent.append("replayed")):
        session.run(charge(), id="a")
        session.run(charge(), id="a")
    assert sent == ["replayed"]


def test_what_recover_found_is_announced_as_sealed(session):
    sent = []
    charge = charge_that_recovers(lambda _self: 7)
    leave_indeterminate(session, charge())
    with operation_sealed.connected_to(lambda *_, **__: sent.append("sealed")):
        session.run(charge(), id="a")
    assert sent == ["sealed"]


def test_a_recovered_failure_is_raised_as_the_fault_of_the_task(session, call):
    charge = charge_that_recovers(lambda self: self.fail("refused"))
    leave_indeterminate(session, charge())
    for _ in range(2):
        with pytest.raises(charge.Fault, match="refused"):
            call(session, charge(), id="a").or_raise()


def test_a_recovery_that_cannot_be_sealed_says_that_nobody_knows(session, store, call):
    def recover(_self):
        fail_from_now_on(store)
        return 7

    charge = charge_that_recovers(recover)
    leave_indeterminate(session, charge())
    assert call(session, charge(), id="a").indeterminate
    come_back(store)
    assert row_of(store, "a") == "indeterminate"
