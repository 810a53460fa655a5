"""``within=``: the effects of the user and the seal are committed together."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing, suppress
from inspect import isawaitable

import pytest
from ledgers import (
    LEASE,
    PATIENCE,
    Arrivals,
    Died,
    SteppedStore,
    Stop,
    after_admission,
    die_after_admission,
    in_thread,
    is_postgres,
    new_store,
    on_each_server,
    other_connection,
    row_of,
    run_async,
    running,
    steps,
)

from cmdx import RetryPolicy, Task, Workflow, is_retryable, retry_on
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationState,
    StillRunning,
    connection,
    lifecycle,
    operation,
    operation_sealed,
)
from cmdx.stores import SqliteStore, StoreError, StoreUnavailable
from cmdx.stores.connections import known_connection

LIVE, RELEASED, SEALED, INDETERMINATE, EXPIRED = OperationState

INSERT = "insert into effect values (1)"


class Way:
    """One way to give a connection: whose it is, and how the operation is run."""

    def __init__(self, kind, store):
        self.kind, self.store = kind, store
        self.session = Ledger(store, lease=LEASE).session("shop")
        self.awaits = kind == "async psycopg"
        with other_connection(store) as made:
            made.execute("create table effect (number integer)")
            made.commit()

    def run(self, task):
        """Run a task as the operation ``a``."""
        if self.awaits:
            return asyncio.run(self.run_async(task))
        with other_connection(self.store) as given:
            if "autocommit" in self.kind:
                set_autocommit(given)
            if "arun" in self.kind:
                return asyncio.run(self.session.arun(task, id="a", within=given))
            result = self.session.run(task, id="a", within=given)
            assert is_idle(given)
            return result

    async def run_async(self, task):
        import psycopg

        given = await psycopg.AsyncConnection.connect(self.store.address)
        async with given:
            return await self.session.arun(task, id="a", within=given)

    def effects(self):
        """Return how many rows others see."""
        with other_connection(self.store) as other:
            return other.execute("select count(*) from effect").fetchone()[0]

    def charge(self, then, **options):
        """Return a task that inserts a row and then calls *then* with itself."""
        if self.awaits:

            @operation(**options)
            class Charge(Task[int], name="operations.charge"):
                async def work(self):
                    await connection().execute(INSERT)
                    return then(self)
        else:

            @operation(**options)
            class Charge(Task[int], name="operations.charge"):
                def work(self):
                    connection().execute(INSERT)
                    return then(self)

        return Charge


def set_autocommit(given):
    if isinstance(given, sqlite3.Connection):
        given.isolation_level = None
    else:
        given.autocommit = True


def is_idle(given):
    """Tell whether no transaction is open; a lost connection has none."""
    if isinstance(given, sqlite3.Connection):
        try:
            return not given.in_transaction
        except sqlite3.ProgrammingError:
            return True
    return given.closed or given.info.transaction_status == 0


WAYS = [
    "sqlite", "sqlite autocommit", "sqlite by arun",
    "psycopg", "psycopg autocommit", "psycopg by arun", "async psycopg",
]  # fmt: skip

in_every_way = pytest.mark.parametrize("way", WAYS, indirect=True)


@pytest.fixture(params=["sqlite", "psycopg", "async psycopg"])
def way(request, tmp_path):
    kind = "file" if "sqlite" in request.param else "postgresql"
    with new_store(kind, tmp_path) as store:
        yield Way(request.param, store)


# -- together --------------------------------------------------------------------------


@in_every_way
def test_the_work_and_its_outcome_are_committed_once(way):
    charge = way.charge(lambda _task: 7)
    results = [way.run(charge()) for _ in range(3)]
    assert [result.value for result in results] == [7, 7, 7]
    assert [result.operation.replayed for result in results] == [False, True, True]
    assert way.effects() == 1
    assert way.session.get("a").state is SEALED


@in_every_way
def test_r_001_18_nothing_is_told_before_it_is_committed(way):
    seen = []

    def look(when):
        seen.append((when, way.effects(), seen_state(way.store)))

    charge = way.charge(lambda _task: look("in work"))
    with operation_sealed.connected_to(lambda *_, **__: look("told")):
        way.run(charge())
    assert seen == [("in work", 0, "live"), ("told", 1, "sealed")]


def test_the_work_and_its_seal_are_one_transaction(tmp_path):
    with SqliteStore(tmp_path / "app.db") as store, other_connection(store) as given:
        given.execute("create table effect (number integer)")
        statements = []
        given.set_trace_callback(lambda sql: statements.append(sql.split()[0].lower()))
        way = Ledger(store).session("shop")

        class Charge(Task[int], name="operations.charge"):
            def work(self):
                connection().execute(INSERT)
                return 7

        way.run(Charge(), within=given)
    begin = statements.index("begin")
    assert statements[begin:].count("commit") == 1
    assert statements[-1] == "commit"
    assert statements[begin:].index("insert") < statements[begin:].index("update")


def seen_state(store):
    with other_connection(store) as other:
        return other.execute("select state from cmdx_operation").fetchone()[0]


def test_work_finds_the_connection_that_was_given(tmp_path):
    with SqliteStore(tmp_path / "app.db") as store, other_connection(store) as given:
        found = []

        class Charge(Task[None], name="operations.charge"):
            def work(self):
                found.append(connection())

        session = Ledger(store).session("shop")
        session.run(Charge(), within=given)
        asyncio.run(session.arun(Charge(), within=given))
        assert found == [given, given]
        with pytest.raises(LookupError, match=r"session\.run\(\.\.\., within="):
            connection()


def test_outside_of_such_an_operation_there_is_no_connection(session, call):
    class Charge(Task[None], name="operations.charge"):
        def work(self):
            connection()

    result = call(session, Charge(), id="a")
    assert isinstance(result.cause, LookupError)
    assert "no operation runs within a connection here" in result.reason


def test_steps_of_a_workflow_share_the_connection(way):
    charge = way.charge(lambda _task: 7)

    class Steps(Workflow[None], name="operations.steps"):
        steps = (charge, charge)

    way.run(Steps())
    assert way.effects() == 2


def test_a_workflow_that_fails_leaves_nothing(way):
    first = way.charge(lambda _task: 7)

    class Failing(Task[None], name="operations.failing"):
        def work(self):
            self.fail("refused")

    class Steps(Workflow[None], name="operations.steps"):
        steps = (first, Failing)

    assert way.run(Steps()).failed
    assert way.effects() == 0


# -- failures, retries, halts ----------------------------------------------------------


def halt(task):
    task.fail("refused")


def collect(task):
    task.errors.add("card", "has expired")


def divide(_task):
    return 1 / 0


def interrupt():
    raise KeyboardInterrupt


@in_every_way
@pytest.mark.parametrize("then", [halt, collect, divide])
def test_r_001_26_a_failed_run_is_rolled_back_and_sealed_alone(way, then):
    charge = way.charge(then)
    results = [way.run(charge()) for _ in range(2)]
    assert [result.failed for result in results] == [True, True]
    assert [result.operation.replayed for result in results] == [False, True]
    assert results[0].reason == results[1].reason
    assert way.effects() == 0
    assert way.session.get("a").state is SEALED


@in_every_way
def test_each_attempt_begins_where_the_first_began(way):
    def fail_twice(task):
        if task.attempt < 2:
            raise ConnectionError
        return 7

    charge = retry_on(ConnectionError, limit=3, delay=0)(way.charge(fail_twice))
    assert isinstance(charge.retry_policy, RetryPolicy)
    result = way.run(charge())
    assert (result.value, result.retries) == (7, 2)
    assert way.effects() == 1
    assert result.operation.executions == 1


@pytest.mark.parametrize("halting", ["skip", "succeed"])
def test_a_halt_that_is_no_failure_is_committed(way, halting):
    charge = way.charge(lambda task: getattr(task, halting)("enough"))
    for _ in range(2):
        assert way.run(charge()).ok
    assert way.effects() == 1


def test_a_wrong_statement_of_the_user_is_a_failure_like_any_other(way):
    if way.awaits:

        class Charge(Task[None], name="operations.charge"):
            async def work(self):
                await connection().execute("select * from nowhere")
    else:

        class Charge(Task[None], name="operations.charge"):
            def work(self):
                connection().execute("select * from nowhere")

    result = way.run(Charge())
    assert "nowhere" in result.reason
    assert way.session.get("a").state is SEALED


@pytest.mark.parametrize("persist", [False, True])
def test_by_decided_an_exception_may_run_again(way, persist):
    runs = []

    def raise_once(_task):
        runs.append(1)
        return 1 // (len(runs) - 1)

    charge = way.charge(raise_once, persist=persist, seal="decided")
    assert way.run(charge()).failed
    assert way.effects() == 0
    again = way.run(charge())
    assert (again.value, again.operation.executions) == (1, 2)
    assert way.effects() == 1


# -- ends without an outcome -----------------------------------------------------------


@pytest.mark.parametrize("persist", [False, True])
def test_an_interrupt_rolls_back_and_it_may_run_again(way, persist):
    runs = []

    def interrupt_once(_task):
        runs.append(1)
        if len(runs) == 1:
            raise KeyboardInterrupt
        return 7

    charge = way.charge(interrupt_once, persist=persist)
    with pytest.raises(KeyboardInterrupt):
        way.run(charge())
    assert way.effects() == 0
    assert way.session.get("a").state is (INDETERMINATE if persist else RELEASED)
    assert way.run(charge()).value == 7  # though it is not idempotent
    assert way.effects() == 1


@on_each_server
def test_r_001_20_an_unsealed_record_proves_that_nothing_happened(store, instant):
    """The process was killed before the commit."""
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)
    charge = way.charge(lambda _task: 7, persist=True)

    die_after_admission(store)
    with suppress(Died):
        way.run(charge())
    store.at = lambda _point: None
    instant.advance(LEASE)
    assert way.session.get("a").state is INDETERMINATE
    again = way.run(charge())
    assert (again.value, again.operation.executions) == (7, 2)
    assert way.effects() == 1


@on_each_server
def test_after_a_run_without_a_connection_it_does_not_run_again(store):
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)
    charge = way.charge(lambda _task: 7)
    interrupted = charge()
    interrupted.work = interrupt
    with pytest.raises(KeyboardInterrupt):
        way.session.run(interrupted, id="a")
    assert isinstance(way.run(charge()).cause, Indeterminate)
    assert way.effects() == 0


def test_of_two_owners_one_commits(tmp_path, instant):
    """On PostgreSQL no file is locked: the first one stalls, and is taken over."""
    with new_store("postgresql", tmp_path) as store:
        way = Way("psycopg", store)
        stop, runs = Stop(), []

        def stall_first(_task):
            runs.append(1)
            number = len(runs)
            if number == 1:
                stop.wait()
            return number

        charge = way.charge(stall_first)
        with running(lambda: way.run(charge()), stop) as first:
            instant.advance(LEASE)
            assert way.run(charge()).value == 2
        assert first.result().value == 2
        assert way.effects() == 1


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_transaction_block_inside_of_work_is_a_savepoint(store):
    way = Way("psycopg", store)

    def nest(_task):
        with suppress(ZeroDivisionError), connection().transaction():
            connection().execute(INSERT)
            raise ZeroDivisionError
        with connection().transaction():
            connection().execute(INSERT)

    assert way.run(way.charge(nest)()).success
    assert way.effects() == 2


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_an_owner_that_was_not_heard_of_rolls_back_and_runs_again(store, instant):
    way = Way("psycopg", store)
    runs = []

    def stall_once(_task):
        runs.append(1)
        if len(runs) == 1:
            instant.advance(LEASE + 60)
            way.session.run(Charge())  # which evicts
        return len(runs)

    result = way.run(way.charge(stall_once)())
    assert (result.value, result.operation.executions) == (2, 2)
    assert way.effects() == 1


@on_each_server
@pytest.mark.parametrize("then", ["return", "raise"])
def test_a_connection_that_work_has_closed_is_told_as_a_result(store, then):
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)

    def close(_task):
        connection().close()
        if then == "raise":
            raise ValueError
        return 7

    for _ in range(2):  # nobody can know whether work had committed before
        assert isinstance(way.run(way.charge(close)()).cause, Indeterminate)
    assert way.effects() == 0


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_connection_that_the_server_ends_leaves_nothing(store):
    way = Way("psycopg", store)

    def lose(_task):
        process = connection().info.backend_pid
        with other_connection(store) as other:
            other.execute(f"select pg_terminate_backend({process})")
        connection().execute(INSERT)

    result = way.run(way.charge(lose)())
    assert isinstance(result.cause, StoreUnavailable)
    assert is_retryable(result.cause)
    assert way.effects() == 0
    assert way.run(way.charge(lambda _task: 8)()).value == 8
    assert way.effects() == 1


@on_each_server
def test_a_commit_that_the_database_refuses_is_no_success(store):
    """A constraint that is checked at the commit alone."""
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)
    with other_connection(store) as made:
        made.execute("create table parent (number integer primary key)")
        made.execute(
            "create table child (number integer references parent(number) "
            "deferrable initially deferred)"
        )
        made.commit()

    class Charge(Task[int], name="operations.charge"):
        def work(self):
            connection().execute(INSERT)
            connection().execute("insert into child values (7)")
            return 7

    with other_connection(store) as given:
        if not is_postgres(store):
            given.execute("pragma foreign_keys = on")
        refused = way.session.run(Charge(), id="a", within=given)
        assert is_idle(given)
        assert way.effects() == 0
        given.execute("insert into parent values (7)")
        given.commit()
        mended = way.session.run(Charge(), id="a", within=given)
    assert "the database refused to commit the work" in refused.reason
    assert isinstance(refused.cause, StoreError)
    assert not refused.indeterminate
    assert refused.operation.state is not LIVE
    assert mended.value == 7
    assert way.effects() == 1


@on_each_server
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_work_that_ends_the_transaction_by_itself_is_told_so(store, end):
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)

    def end_early(_task):
        getattr(connection(), end)()
        return 7

    charge = way.charge(end_early)
    result = way.run(charge())
    assert way.effects() == (end == "commit")
    assert isinstance(result.cause, Indeterminate)
    assert result.operation.state is not LIVE
    assert "committed or rolled back the transaction given as within=" in result.reason
    again = way.run(charge())
    assert isinstance(again.cause, Indeterminate)  # nobody can know what was kept
    assert way.effects() == (end == "commit")


@on_each_server
@pytest.mark.parametrize("begins_another", [False, True])
@pytest.mark.parametrize("then", ["fail", "interrupt"])
def test_r_001_20_what_work_has_committed_is_not_done_twice(
    store, then, begins_another
):
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)

    def commit(task):
        connection().commit()
        if begins_another:
            connection().execute("delete from effect where number > 1")
        if then == "fail":
            task.fail("refused")
        interrupt()

    charge = way.charge(commit)
    with suppress(KeyboardInterrupt):
        assert way.run(charge()).indeterminate
    with suppress(KeyboardInterrupt):
        assert way.run(charge()).indeterminate
    assert way.effects() == 1


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_r_001_20_what_a_block_of_psycopg_has_committed_is_not_done_twice(store):
    """``with connection:`` commits and closes; a lost connection is ``broken``."""
    way = Way("psycopg", store)

    def commit_and_close(_task):
        with connection():
            pass
        return 7

    charge = way.charge(commit_and_close)
    for _ in range(2):
        assert not is_retryable(way.run(charge()).cause)
    assert way.effects() == 1


@on_each_server
def test_work_that_ends_the_transaction_and_begins_another_is_told_so(store):
    """Both drivers begin a transaction by themselves when something is inserted."""
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)

    def end_early(_task):
        connection().commit()
        connection().execute(INSERT)
        return 7

    result = way.run(way.charge(end_early)())
    assert way.effects() == 1
    assert result.indeterminate


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_connection_that_the_server_ends_before_a_halt_leaves_nothing(store):
    way = Way("psycopg", store)

    def lose(task):
        process = connection().info.backend_pid
        with other_connection(store) as other:
            other.execute(f"select pg_terminate_backend({process})")
        task.fail("refused")

    result = way.run(way.charge(lose)())
    assert isinstance(result.cause, StoreUnavailable)
    assert way.effects() == 0


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_work_that_hides_the_error_of_a_statement_has_failed(store):
    """PostgreSQL refuses all further statements, and so the seal."""
    way = Way("psycopg", store)

    def hide(_task):
        with suppress(Exception):
            connection().execute("selec 1")
        return 7

    result = way.run(way.charge(hide)())
    assert type(result.cause).__name__ == "InFailedSqlTransaction"
    assert way.session.get("a").state is SEALED
    assert way.effects() == 0


# -- callers that leave ----------------------------------------------------------------


@asynccontextmanager
async def opened(way):
    """Open a connection as a coroutine of *way* does."""
    if way.awaits:
        import psycopg

        async with await psycopg.AsyncConnection.connect(way.store.address) as given:
            yield given
    else:
        with other_connection(way.store) as given:
            yield given


async def insert():
    done = connection().execute(INSERT)
    if isawaitable(done):
        await done


def slow_charge(begun, **options):
    """Return a task that inserts two rows, and tells when it has inserted the first."""

    @operation(**options)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            await insert()
            begun.set()
            await steps(5)
            await insert()
            return 7

    return Charge


@pytest.mark.parametrize(
    "way", ["sqlite by arun", "psycopg by arun", "async psycopg"], indirect=True
)
@pytest.mark.parametrize("persist", [False, True])
def test_a_caller_who_leaves_gets_a_connection_back_with_nothing_on_it(way, persist):
    """The caller may commit then, and must not commit half of the work."""

    async def main():
        begun = asyncio.Event()
        charge = slow_charge(begun, persist=persist)
        async with opened(way) as given:
            call = way.session.arun(charge(), id="a", within=given)
            caller = asyncio.create_task(call)
            await begun.wait()
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert is_idle(given)
            committed = given.commit()
            if committed is not None:
                await committed
            await steps(20)
            assert is_idle(given)
            assert way.effects() == 0
            return await way.session.arun(charge(), id="a", within=given, wait=0)

    assert run_async(main()).value == 7
    assert way.effects() == 2
    assert way.session.get("a").state is SEALED


@pytest.mark.parametrize("count", range(30))
def test_a_caller_who_leaves_at_any_step_leaves_all_or_nothing(tmp_path, count):
    class SteppedFile(SteppedStore):
        def version(self):
            return self._written

    with SteppedFile(tmp_path / "app.db") as store:
        way = Way("sqlite by arun", store)

        async def main():
            charge = slow_charge(asyncio.Event(), persist=True)
            async with opened(way) as given:
                call = way.session.arun(charge(), id="a", within=given)
                caller = asyncio.create_task(call)
                await steps(count)
                caller.cancel()
                await asyncio.wait([caller])
                assert is_idle(given)
                found = way.session.get("a")
                is_sealed = found is not None and found.state is SEALED
                assert way.effects() == (2 if is_sealed else 0)
                await way.session.arun(charge(), id="a", within=given, wait=0)

        run_async(main())
        assert way.effects() == 2


class Interrupt(BaseException):
    """Unlike a ``KeyboardInterrupt``, it does not end the event loop."""


@in_every_way
def test_an_interrupt_while_the_transaction_begins_leaves_none_open(way, monkeypatch):
    kind = type(known_connection_of(way))
    execute = kind.execute

    async def interrupted(self, sql, /, **values):
        rows = await execute(self, sql, **values)
        if sql == "savepoint cmdx_operation":
            monkeypatch.undo()
            raise Interrupt
        return rows

    monkeypatch.setattr(kind, "execute", interrupted)
    assert_interrupted_and_idle(way)
    assert way.session.get("a").executions == 0
    assert way.run(way.charge(lambda _task: 7)()).value == 7


@in_every_way
def test_an_interrupt_right_after_work_leaves_no_transaction_open(way, monkeypatch):
    async def interrupted(*_arguments):
        raise Interrupt

    monkeypatch.setattr(lifecycle, "seal_outcome", interrupted)
    assert_interrupted_and_idle(way)
    assert way.effects() == 0


def known_connection_of(way):
    """Return what the ledger makes of a connection of *way*."""

    async def main():
        async with opened(way) as given:
            return known_connection(given)

    return asyncio.run(main())


def assert_interrupted_and_idle(way):
    charge = way.charge(lambda _task: 7)

    async def main():
        async with opened(way) as given:
            if "autocommit" in way.kind:
                set_autocommit(given)
            with pytest.raises(Interrupt):
                if way.awaits or "arun" in way.kind:
                    await way.session.arun(charge(), id="a", within=given)
                else:
                    way.session.run(charge(), id="a", within=given)
            assert is_idle(given)

    asyncio.run(main())


# -- one operation inside of another, and beside it ------------------------------------


@on_each_server
def test_operations_can_be_looked_at_while_one_runs_within_a_connection(store):
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)

    def look(_task):
        seen.append(way.session.get("a").state)
        seen.append(asyncio.run(way.session.aget("b")))
        return 7

    seen = []
    assert way.run(way.charge(look)()).success
    assert seen == [LIVE, None]


@operation()
class Inner(Task[str]):
    def work(self):
        try:
            connection()
        except LookupError:
            return "no connection"
        return "a connection"


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_an_operation_inside_of_another_does_not_see_its_connection(store):
    way = Way("psycopg", store)

    def run_inner(_task):
        seen.append(way.session.run(Inner(), id="inner").value)
        seen.append(connection() is not None)
        return 7

    seen = []
    assert way.run(way.charge(run_inner)()).success
    assert seen == ["no connection", True]


def test_an_operation_inside_of_one_that_holds_the_file_is_refused_at_once(tmp_path):
    with new_store("file", tmp_path) as store:
        way = Way("sqlite", store)

        def run_inner(_task):
            return way.session.run(Inner(), id="inner").value

        result = way.run(way.charge(run_inner)())
        assert isinstance(result.cause, StoreError)
        assert "is locked until that operation ends" in result.reason
        assert way.session.get("inner") is None


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_two_operations_cannot_run_within_one_connection(store):
    import psycopg

    way = Way("async psycopg", store)

    @operation()
    class Slow(Task[int], name="operations.slow"):
        async def work(self):
            await connection().execute(INSERT)
            reached.set()
            await go_on.wait()
            return 7

    async def main():
        async with await psycopg.AsyncConnection.connect(store.address) as given:
            first = asyncio.create_task(
                way.session.arun(Slow(), id="first", within=given)
            )
            await asyncio.wait_for(reached.wait(), PATIENCE)
            with pytest.raises(StoreError, match="another operation runs within"):
                await way.session.arun(Slow(), id="second", within=given)
            go_on.set()
            result = await first
            again = await way.session.arun(Slow(), id="third", within=given)
        return result, again

    reached, go_on = asyncio.Event(), asyncio.Event()
    assert [result.value for result in asyncio.run(main())] == [7, 7]
    assert way.effects() == 2
    assert way.session.get("second") is None


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_transaction_that_somebody_has_begun_meanwhile_is_left_alone(store):
    way = Way("psycopg", store)

    with other_connection(store) as given:
        after_admission(store, lambda: given.execute(INSERT))
        result = way.session.run(way.charge(lambda _task: 7)(), id="a", within=given)
        assert isinstance(result.cause, StoreUnavailable)
        assert "somebody else has begun one" in result.reason
        given.commit()
        assert way.effects() == 1
        again = way.session.run(way.charge(lambda _task: 7)(), id="a", within=given)
    assert again.value == 7
    assert way.effects() == 2


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_the_commit_of_the_user_wakes_those_who_wait(store):
    def listen(_task):
        other.execute(store.announcement.replace("notify", "listen"))
        other.commit()  # whatever was announced before is not heard
        return 7

    way = Way("psycopg", store)
    with other_connection(store) as other:
        assert way.run(way.charge(listen)()).value == 7
        assert [*other.notifies(timeout=PATIENCE, stop_after=1)]


# -- connections that will not do ------------------------------------------------------


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_isolation_level_in_which_leases_collide_is_refused(session, store, level):
    with other_connection(store) as given:
        given.execute(
            f"set session characteristics as transaction isolation level {level}"
        )
        given.commit()
        with pytest.raises(StoreError, match=f"isolation level {level.lower()}"):
            session.run(Charge(), id="a", within=given)
        assert is_idle(given)
    assert session.get("a") is None


@on_each_server
def test_a_connection_that_is_closed_is_refused(session, store, call):
    with other_connection(store) as given:
        given.close()
        with pytest.raises(StoreError, match="given as within= cannot be used"):
            call(session, Charge(), id="a", within=given)
    assert session.get("a") is None


class Charge(Task[int]):
    def work(self):
        return 7


@on_each_server
def test_a_connection_with_a_transaction_open_is_refused(session, store, call):
    with other_connection(store) as given:
        given.execute("create table effect (number integer)")
        given.execute(INSERT)
        with pytest.raises(StoreError) as refused:
            call(session, Charge(), id="a", within=given)
        assert "has a transaction open. Commit or roll back first" in str(refused.value)
        assert given.execute("select count(*) from effect").fetchone() == (1,)
        given.rollback()
    assert session.get("a") is None


@on_each_server
def test_a_connection_to_another_database_is_refused(session, tmp_path, call):
    with (
        SqliteStore(tmp_path / "other.db") as other,
        other_connection(other) as given,
        pytest.raises(StoreError, match=r"the connection is not one to .*Pass a"),
    ):
        call(session, Charge(), id="a", within=given)
    assert session.get("a") is None


@on_each_server
def test_a_connection_to_a_database_without_our_tables_is_refused(session, call):
    with (
        closing(sqlite3.connect(":memory:")) as given,
        pytest.raises(StoreError, match="the connection is not one to"),
    ):
        call(session, Charge(), id="a", within=given)


def test_a_store_in_memory_has_no_connection_but_its_own(session, call):
    with (
        closing(sqlite3.connect(":memory:")) as given,
        pytest.raises(StoreError, match=r"a store in memory .* Use a file"),
    ):
        call(session, Charge(), id="a", within=given)


@pytest.mark.parametrize("given", ["app.db", 7, object], ids=str)
def test_what_is_no_connection_is_refused(session, call, given):
    with pytest.raises(TypeError, match="a connection of sqlite3 or psycopg is needed"):
        call(session, Charge(), id="a", within=given)


def test_the_password_of_an_address_is_not_shown(session, call):
    address = "postgresql://shop:secret@db/shop"
    with pytest.raises(TypeError, match="got an instance of str") as caught:
        call(session, Charge(), id="a", within=address)
    assert "secret" not in str(caught.value)


@on_each_server
def test_a_cursor_is_no_connection(session, store, call):
    with (
        other_connection(store) as given,
        pytest.raises(TypeError, match="not an address, a cursor, an engine or a pool"),
    ):
        call(session, Charge(), id="a", within=given.cursor())


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_an_asynchronous_connection_needs_arun(session, store):
    import psycopg

    async def main():
        given = await psycopg.AsyncConnection.connect(store.address)
        async with given:
            with pytest.raises(TypeError, match=r"needs arun\(\)"):
                session.run(Charge(), id="a", within=given)

    asyncio.run(main())
    assert session.get("a") is None


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_a_transaction_that_cannot_begin_is_told_as_unavailable(session, store, call):
    with other_connection(store) as given, other_connection(store) as writer:
        given.execute("pragma busy_timeout = 0")

        def lock():
            writer.execute("begin immediate")
            store.at = unlock

        def unlock(_point):
            writer.rollback()

        after_admission(store, lock)
        result = call(session, Charge(), id="a", within=given)
        assert isinstance(result.cause, StoreUnavailable)
        assert is_retryable(result.cause)
        assert "a transaction could not begin" in result.reason
        assert session.get("a").state is RELEASED
        again = call(session, Charge(), id="a", within=given)
        assert (again.value, again.operation.executions) == (7, 2)


@on_each_server
def test_rows_of_any_form_are_read(session, store):
    with other_connection(store) as given:
        if is_postgres(store):
            from psycopg.rows import dict_row

            given.row_factory = dict_row
        else:
            given.row_factory = sqlite3.Row
        assert session.run(Charge(), id="a", within=given).value == 7
        assert session.run(Charge(), id="a", within=given).operation.replayed


@on_each_server
def test_a_duplicate_within_a_connection_attaches(store):
    """On SQLite the owner holds the file, so that nobody else can write."""
    way = Way("sqlite" if not is_postgres(store) else "psycopg", store)
    stop, runs = Stop(), []

    def wait(_task):
        runs.append(1)
        stop.wait()
        return 7

    charge = way.charge(wait)
    with running(lambda: way.run(charge()), stop):
        impatient = way.session.run(charge(), id="a", wait=0)
        assert isinstance(impatient.cause, StillRunning)
        arrivals = Arrivals(store, 1)
        duplicate = in_thread(lambda: way.run(charge()))
        arrivals.wait()
    assert duplicate.result(PATIENCE).value == 7
    assert duplicate.result().operation.attached
    assert (len(runs), way.effects()) == (1, 1)
    assert row_of(store, "a", "executions") == 1


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_r_001_30_a_cancelled_operation_within_a_connection_is_rolled_back(store):
    way = Way("async psycopg", store)

    @operation()
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            await connection().execute(INSERT)
            begun.set()
            await asyncio.Event().wait()

    async def main():
        owner = asyncio.create_task(way.run_async(Charge()))
        await begun.wait()
        assert await way.session.acancel("a")
        return await owner

    begun = asyncio.Event()
    assert "cancelled" in asyncio.run(main()).reason
    assert way.effects() == 0


# -- what goes on after it -------------------------------------------------------------


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_what_goes_on_after_an_operation_is_not_within_its_connection(store):
    session, later = Ledger(store).session("shop"), []

    class Note(Task[int], name="operations.note"):
        def work(self):
            return 1

    async def go_on(ended):
        await ended.wait()
        with pytest.raises(LookupError, match="no operation runs within a connection"):
            connection()
        return await session.arun(Note(), id="b")

    @operation(persist=True)
    class Charge(Task[int], name="operations.charge"):
        async def work(self):
            later.append(asyncio.create_task(go_on(ended)))
            assert connection() is database
            return 7

    async def main():
        assert (await session.arun(Charge(), id="a", within=database)).value == 7
        ended.set()
        return await later[0]

    ended = asyncio.Event()
    with closing(sqlite3.connect(store.name)) as database:
        assert run_async(main()).value == 1


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_who_is_cancelled_during_the_check_of_a_connection_is_not_told_of_it(store):
    import anyio
    import psycopg

    session = Ledger(store).session("shop")

    async def main():
        given = await psycopg.AsyncConnection.connect(store.address)
        async with given:
            with other_connection(store) as other:
                other.execute("lock table cmdx_schema")  # so that the check waits
                with anyio.move_on_after(0.05) as scope:
                    await session.arun(Charge(), id="a", within=given)
        assert scope.cancelled_caught

    asyncio.run(main())
    assert session.get("a") is None


# -- connections of any form -----------------------------------------------------------


@pytest.mark.parametrize("store", ["file"], indirect=True)
@pytest.mark.parametrize("factory", [bytes, bytearray, len])
def test_text_of_any_form_is_read(session, store, factory):
    with other_connection(store) as given:
        given.text_factory = factory
        assert session.run(Charge(), id="a", within=given).value == 7
        assert session.run(Charge(), id="a", within=given).operation.replayed
        assert given.text_factory is factory


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("kind", ["Cursor", "ClientCursor", "RawCursor"])
def test_cursors_of_any_form_will_do(session, store, kind):
    import psycopg

    async def run_async():
        factory = getattr(psycopg, f"Async{kind}")
        given = await psycopg.AsyncConnection.connect(
            store.address, cursor_factory=factory
        )
        async with given:
            return await session.arun(Charge(), id="b", within=given)

    with other_connection(store) as given:
        given.cursor_factory = getattr(psycopg, kind)
        assert session.run(Charge(), id="a", within=given).value == 7
    assert asyncio.run(run_async()).value == 7


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_connection_inside_of_a_pipeline_is_refused(session, store, call):
    with other_connection(store) as given, given.pipeline():
        with pytest.raises(StoreError) as refused:
            call(session, Charge(), id="a", within=given)
        assert str(refused.value) == (
            "the connection is in pipeline mode, in which the database answers too "
            "late. Leave the block of connection.pipeline() first."
        )
        assert is_idle(given)


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("attempts", [1, 2])
def test_work_may_use_a_pipeline(store, attempts):
    way = Way("psycopg", store)

    def insert(task):
        with connection().pipeline():
            connection().execute(INSERT)
            if task.attempt < attempts - 1:
                connection().execute("select * from nowhere")

    charge = retry_on(Exception, limit=2, delay=0)(way.charge(insert))
    assert way.run(charge()).success
    assert way.effects() == 2


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_connection_with_another_search_path_is_refused(session, store, call):
    with other_connection(store) as given:
        given.execute("set search_path = public")
        given.commit()
        with pytest.raises(StoreError, match="the connection is not one to") as refused:
            call(session, Charge(), id="a", within=given)
        assert "the same search_path" in str(refused.value)
