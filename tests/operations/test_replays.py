"""A duplicate of what has ended is told the same, and nothing runs."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

import attrs
import pytest
from ledgers import (
    PATIENCE,
    edit_row,
    in_thread,
    on_each_store,
    other_connection,
    row_of,
)

from cmdx import (
    Fault,
    NoValueError,
    RecordedError,
    Task,
    Workflow,
    after_execution,
    before_execution,
    output,
    retry_on,
)
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationCancelled,
    OperationConflict,
    OperationExpired,
    OperationState,
    operation,
    operation_replayed,
)
from cmdx.stores import SqliteStore, sqlite
from cmdx.telemetry import task_executed, task_started
from cmdx.wire import dump_result

POLICIES = [
    {"persist": persist, "idempotent": idempotent}
    for persist in (False, True)
    for idempotent in (False, True)
]


@attrs.frozen
class Receipt:
    amount: Decimal
    at: datetime
    lines: list[str]


RECEIPT = Receipt(Decimal("9.90"), datetime(2026, 7, 1, tzinfo=UTC), ["tea", "cake"])


class Charge(Task[Receipt]):
    order: int = 7
    total: Decimal = output()

    def work(self):
        self.metadata["gateway"] = "acme"
        self.context.total = Decimal(10)
        return Receipt(RECEIPT.amount, RECEIPT.at, list(RECEIPT.lines))


class Refused(Task[Receipt]):
    def work(self):
        self.fail("card refused", code="DECLINED", retry_after=5)


class Skipped(Task[Receipt]):
    def work(self):
        self.skip("nothing to pay", because="free")


class Raising(Task[Receipt]):
    def work(self):
        raise ConnectionError("gateway is away")


class Invalid(Task[Receipt]):
    def work(self):
        self.errors.add("card", "has expired", "expired")


@retry_on(TimeoutError, limit=2, delay=0)
class Retried(Task[Receipt]):
    def work(self):
        if self.attempt < 2:
            raise TimeoutError(f"attempt {self.attempt}")
        return RECEIPT


class Steps(Workflow[Receipt]):
    steps = (Charge, Refused)


TASKS = [Charge, Refused, Skipped, Raising, Invalid, Retried]

FACTS = [
    "status", "state", "reason", "metadata", "retries", "stopped", "halted_at",
    "run_id", "cid", "started_at", "duration", "guidance", "task", "rolled_back",
]  # fmt: skip


@on_each_store
@pytest.mark.parametrize("task", TASKS)
def test_r_001_22_what_is_sealed_is_replayed_fact_by_fact(session, call, task):
    owner, again = (call(session, task(), id="a") for _ in range(2))
    for fact in FACTS:
        assert getattr(again, fact) == getattr(owner, fact), fact
    assert again.value_or(None) == owner.value_or(None)
    assert list(again.errors) == list(owner.errors)
    assert [(attempt.start, str(attempt.error)) for attempt in again.attempts] == [
        (attempt.start, str(attempt.error)) for attempt in owner.attempts
    ]
    assert (owner.operation.replayed, again.operation.replayed) == (False, True)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("ending", ["success", "skip", "fail", "raise"])
def test_r_001_27_whatever_ended_is_never_run_again(session, call, policy, ending):
    runs = []

    @operation(**policy)
    class Once(Task[int], name="operations.once"):
        def work(self):
            runs.append(1)
            if ending == "skip":
                self.skip()
            if ending == "fail":
                self.fail("no")
            if ending == "raise":
                raise ConnectionError
            return 7

    results = [call(session, Once(), id="a") for _ in range(3)]
    assert len(runs) == 1
    assert len({(result.status, result.reason) for result in results}) == 1
    assert [result.operation.replayed for result in results] == [False, True, True]
    assert {result.operation.executions for result in results} == {1}


def test_r_001_12_a_failure_is_sealed_like_a_success(session):
    for task in (Charge, Refused, Skipped, Raising, Invalid):
        assert session.run(task(), id=task.__name__).operation.state == "sealed"
        assert session.get(task.__name__).state is OperationState.SEALED


def test_replay_is_a_read_that_bypasses_the_lifecycle(session, call, recorded):
    seen = []

    class Charge(Task[int], name="operations.charge"):
        order: int

        @before_execution
        def note_before(self):
            seen.append("before")

        @after_execution
        def note_after(self):
            seen.append("after")

        def work(self):
            seen.append("work")
            return 1

        def rollback(self):
            seen.append("rollback")

    call(session, Charge(order=1), id="a")
    first, sent = list(seen), len(recorded.signals)
    call(session, Charge(order=1), id="a")
    assert (seen, len(recorded.signals)) == (first, sent)


def test_replay_sends_one_signal(session, call):
    sent = []

    def note(sender, **payload):
        sent.append((sender, payload))

    call(session, Charge(), id="a")
    with operation_replayed.connected_to(note):
        task = Charge()
        again = call(session, task, id="a")
    ((sender, payload),) = sent
    assert sender is Charge
    assert payload == {"task": task, "operation": again.operation, "result": again}


def test_replay_stores_nothing(session, store, call):
    call(session, Charge(), id="a")
    before_it, version = row_of(store, "a", "*"), store.version()
    call(session, Charge(), id="a")
    assert store.version() == version
    assert row_of(store, "a", "*") == before_it


@on_each_store
def test_r_001_24_a_caller_that_changes_the_value_changes_no_record(session, call):
    owner = call(session, Charge(), id="a")
    owner.value.lines.append("more")
    first = call(session, Charge(), id="a")
    first.value.lines.clear()
    first.context.total = 0
    second = call(session, Charge(), id="a")
    assert second.value == RECEIPT
    assert second.context.total == 10


@pytest.mark.parametrize("name", ["gone:Task", "test_replays:Refused"])
def test_r_001_24_an_outcome_is_read_as_that_of_the_task_it_belongs_to(
    session, store, name
):
    session.run(Charge(), id="a")
    outcome = row_of(store, "a", "outcome")
    edited = outcome.replace('"test_replays:Charge"', f'"{name}"', 1)
    assert edited != outcome
    edit_row(store, "a", outcome=edited)
    result = session.run(Charge(), id="a")
    assert result.failed
    assert "'a'" in result.reason


def test_a_replayed_value_that_could_not_be_stored_is_missed_by_name(session, call):
    class Handle(Task[object], name="operations.handle"):
        def work(self):
            return object()

    owner, again = (call(session, Handle(), id="a") for _ in range(2))
    assert type(owner.value) is object
    assert again.success
    with pytest.raises(NoValueError, match=r"value of .*Handle could not be stored"):
        _ = again.value


def test_a_workflow_is_an_operation_as_a_whole(session, call):
    owner, again = (call(session, Steps(), id="a") for _ in range(2))
    assert len(owner.chain) == 3
    assert (again.status, again.reason) == (owner.status, owner.reason)
    assert len(again.chain) == 1
    assert again.operation.executions == 1


def test_a_replayed_result_can_be_asked_for_all_it_knows(session):
    session.run(Raising(), id="a")
    again = session.run(Raising(), id="a")
    assert again.to_dict()["status"] == "failed"
    assert "gateway is away" in repr(again)


# -- or_raise --------------------------------------------------------------------------


@pytest.mark.parametrize("task", [Refused, Raising, Invalid])
def test_or_raise_raises_the_fault_of_the_task_for_owner_and_replayed(
    session, call, task
):
    for _ in range(2):
        result = call(session, task(), id="a")
        with pytest.raises(task.Fault) as raised:
            result.or_raise()
        assert isinstance(raised.value, Fault)
        assert raised.value.__cause__ is result.cause
    assert (result.cause is not None) is (task is Raising)


class Passing(Task[None], name="operations.passing"):
    def work(self):
        self.throw(Raising.execute())


class Asking(Task[None], name="operations.asking"):
    def work(self):
        return Raising.execute().value


class Stepping(Workflow[None], name="operations.stepping"):
    steps = (Raising,)


@pytest.mark.parametrize("task", [Passing, Asking, Stepping])
def test_or_raise_raises_the_fault_of_the_operation_if_another_task_failed(
    session, call, task
):
    owner, again = (call(session, task(), id="a") for _ in range(2))
    raised = []
    for result in (owner, again):
        with pytest.raises(Fault) as info:
            result.or_raise()
        raised.append((type(info.value), str(info.value), info.value.__cause__))
    (kind, text, cause), (again_kind, again_text, record) = raised
    assert (kind, again_kind) == (task.Fault, task.Fault)
    assert text == again_text
    assert type(cause) is ConnectionError
    assert (record.type_name, record.message) == ("ConnectionError", str(cause))
    assert dump_result(again)["origins"] == dump_result(owner)["origins"]


@pytest.mark.parametrize(
    "error", [Indeterminate("b", "it died"), OperationCancelled("b")], ids=repr
)
def test_r_001_35_a_sealed_failure_is_never_told_as_anything_else(session, call, error):
    """Its work was told by another operation what is no answer of this one."""

    class Outer(Task[None], name="operations.outer"):
        def work(self):
            raise error

    for _ in range(2):
        result = call(session, Outer(), id="a")
        assert result.operation.state is OperationState.SEALED
        assert not result.indeterminate
        with pytest.raises(Outer.Fault):
            result.or_raise()


def test_the_cause_is_the_error_and_later_its_record(session):
    owner, again = (session.run(Raising(), id="a") for _ in range(2))
    assert type(owner.cause) is ConnectionError
    assert type(again.cause) is RecordedError
    assert again.cause.type_name == "ConnectionError"
    assert "in work" in again.cause.traceback


def test_or_raise_returns_a_success(session, call):
    for _ in range(2):
        assert call(session, Charge(), id="a").or_raise().value == RECEIPT


# -- what a result says about its operation --------------------------------------------


def test_results_elsewhere_have_no_operation():
    for result in (Charge.execute(), Raising.execute(), Steps.execute()):
        assert result.operation is None
        assert result.indeterminate is False


def test_steps_of_an_operation_are_none_themselves(session):
    result = session.run(Steps(), id="a")
    assert result.operation.id == "a"
    others = [other for other in result.chain if other is not result]
    assert [other.operation for other in others] == [None] * len(others)


def test_operations_inside_an_operation_have_their_own_ids(session, call):
    class Outer(Task[list], name="operations.outer"):
        def work(self):
            inner = [session.run(Charge(), id=f"inner-{n}") for n in range(2)]
            return [result.operation.id for result in inner]

    assert call(session, Outer(), id="outer").value == ["inner-0", "inner-1"]
    assert session.get("inner-1").state is OperationState.SEALED


def test_a_replay_needs_no_event_loop_of_its_owner(tmp_path):
    session = Ledger(SqliteStore(tmp_path / "app.db")).session("shop")

    class Wait(Task[int], name="operations.wait"):
        async def work(self):
            await asyncio.sleep(0)
            return 7

    for _ in range(3):
        assert asyncio.run(session.arun(Wait(), id="a")).value == 7


def test_signals_of_tasks_are_of_the_owner_alone(session):
    names = []
    with (
        task_started.connected_to(lambda *_, **__: names.append("started")),
        task_executed.connected_to(lambda *_, **__: names.append("executed")),
    ):
        for _ in range(3):
            session.run(Charge(), id="a")
    assert names == ["started", "executed"]


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_replay_does_not_wait_for_a_lock_on_the_row(session, store):
    session.run(Charge(), id="a")
    with other_connection(store) as other:
        other.execute("select id from cmdx_operation for update")
        replayed = in_thread(lambda: session.run(Charge(), id="a"))
        assert replayed.result(PATIENCE).operation.replayed
        assert session.get("a").state is OperationState.SEALED
        other.rollback()


# -- a replay is a read ----------------------------------------------------------------


@contextmanager
def held(store):
    """Have the only writer of an SQLite file be somebody else during the block."""
    with other_connection(store) as holder:
        holder.execute("begin immediate")
        yield
        holder.rollback()


@pytest.mark.parametrize("store", ["file"], indirect=True)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_replay_does_not_wait_for_who_writes(session, store, call, policy):
    @operation(**policy)
    class Count(Task[int], name="operations.count"):
        number: int = 7

        def work(self):
            return self.number

    for _ in range(2):
        session.run(Count(), id="a")
    session.ledger.evict_soon()  # who only reads leaves that to others
    with held(store):
        result = call(session, Count(), id="a")
        assert (result.value_or(None), result.operation.replayed) == (7, True)
        assert isinstance(
            call(session, Count(number=8), id="a").cause, OperationConflict
        )


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_what_is_refused_does_not_wait_for_who_writes(session, store, call):
    expected = {
        "released": Indeterminate,
        "indeterminate": Indeterminate,
        "expired": OperationExpired,
    }
    for state in expected:
        session.run(Charge(), id=state)
        edit_row(store, state, state=state, outcome=None)
        session.run(Charge(), id=state)
    with held(store):
        for state, cause in expected.items():
            assert isinstance(call(session, Charge(), id=state).cause, cause)


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_who_is_interrupted_while_it_only_reads_writes_nothing(session, store):
    def interrupt(point):
        points.append(point)
        if point == "after commit":
            raise KeyboardInterrupt

    points = []
    for _ in range(2):
        session.run(Charge(), id="a")
    store.at = interrupt
    with pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
    assert points.count("before begin") == 1


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_a_replay_that_had_to_write_is_answered_when_it_cannot(
    session, store, call, monkeypatch
):
    """After an admission, another one is expected; it holds up one replay at most."""
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", 0.05)
    session.run(Charge(), id="a")
    with held(store):
        assert call(session, Charge(), id="a").operation.replayed
        assert session.ledger.expects_record


@pytest.mark.parametrize("store", ["file"], indirect=True)
@pytest.mark.parametrize("is_new", [False, True])
def test_what_is_new_is_not_looked_for(session, store, is_new):
    points = []
    session.ledger._next_eviction = math.inf
    session.ledger.expects_record = is_new
    store.at = points.append
    session.run(Charge(), id=None if is_new else "a")
    assert points.count("before begin") == 2  # the admission and the seal
