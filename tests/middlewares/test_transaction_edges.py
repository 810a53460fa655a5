"""
``Transaction`` where a database, a factory or a run does something unusual.

What it promises for every database is in ``test_transaction.py``.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing, contextmanager, nullcontext
from contextvars import copy_context
from threading import Thread
from weakref import ref

import pytest
from databases import (
    AlchemySession,
    AsyncAlchemySession,
    AsyncPsycopg,
    AutocommitPsycopg,
    PostgresAlchemySession,
    PostgresDjango,
    Psycopg,
    PsycopgPool,
    SharedSqlite,
    SqliteInAsyncRuns,
    Way,
    opened,
)
from garbage import left_behind, left_behind_by_coroutines

from cmdx import (
    AsyncTaskError,
    DefinitionError,
    Suspended,
    Task,
    Workflow,
    middleware,
    parallel,
    retry_on,
)
from cmdx.middlewares import Transaction, TransactionAborted


def ways(*kinds):
    """Run a test with these databases."""
    return pytest.mark.parametrize(
        "way", kinds, indirect=True, ids=lambda k: k.__name__
    )


@pytest.fixture(params=[Way])
def way(request, tmp_path):
    with opened(request.param, tmp_path) as database:
        yield database


class Managed:
    """A context manager that notes down how it is left."""

    def __init__(self, events, answer=None):
        self.events = events
        self.answer = answer

    def __enter__(self):
        self.events.append("open")
        return self.answer

    def __exit__(self, kind, *_error):
        self.events.append("commit" if kind is None else "rollback")


def new_task(transaction, do=lambda _task: None, **names):
    return middleware(transaction)(type("Write", (Task,), {"work": do, **names}))


def raise_error(_task):
    raise ValueError("no")


# -- the commit ---------------------------------------------------------------------


@ways(Psycopg, AutocommitPsycopg, AsyncPsycopg, PostgresAlchemySession, PostgresDjango)
def test_a_commit_that_fails_makes_the_result_failed(way):
    with way.other_connection() as connection:
        connection.execute("alter table effect drop constraint effect_number_key")
        connection.execute(
            "alter table effect add unique (number) deferrable initially deferred"
        )
    called = []

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("too early"))
        await way.insert(1)
        await way.insert(1)

    result = way.run(way.task(body))

    assert "IntegrityError" in result.reason or "UniqueViolation" in result.reason
    assert result.cause is not None
    assert result.replaced.status == "success"
    assert called == []
    assert way.rows() == []


@ways(SharedSqlite)
def test_a_commit_that_fails_leaves_the_connection_usable(way):
    way.connection.execute("pragma foreign_keys = on")
    way.connection.execute(
        "create table part (whole integer references effect (number) "
        "deferrable initially deferred)"
    )

    async def body(_task):
        way.execute("insert into part values (7)")

    async def write(_task):
        await way.insert(1)

    result = way.run(way.task(body))

    assert isinstance(result.cause, sqlite3.IntegrityError)
    assert not way.connection.in_transaction
    assert way.run(way.task(write)).success
    assert way.rows() == [1]


@ways(Psycopg, AsyncPsycopg, PostgresAlchemySession, AsyncAlchemySession, PsycopgPool)
def test_a_transaction_that_the_database_has_aborted_is_not_taken_for_committed(way):
    async def body(_task):
        await way.insert(1)
        try:
            await way.insert(1)
        except Exception:
            return "all is well"

    result = way.run(way.task(body))

    assert isinstance(result.cause, TransactionAborted)
    assert result.replaced.status == "success"
    assert way.rows() == []


def test_a_rollback_that_fails_leaves_the_failure_of_the_task_alone(tmp_path, caplog):
    with opened(Psycopg, tmp_path) as way:

        async def body(_task):
            way.transaction.current().close()
            raise ValueError("no")

        with caplog.at_level(logging.ERROR, logger="cmdx"):
            result = way.run(way.task(body))

    assert result.reason == "[ValueError] no"
    (record,) = caplog.records
    assert "could not be rolled back" in record.message


def test_a_savepoint_that_is_gone_leaves_the_failure_of_the_task_alone(way, caplog):
    async def fail(_task):
        way.transaction.current().rollback()
        raise ValueError("no")

    inner, results = way.task(fail), []

    async def body(_task):
        results.append(await way.run_inside(inner))

    with caplog.at_level(logging.ERROR, logger="cmdx"):
        way.run(way.task(body))

    assert results[0].reason == "[ValueError] no"
    assert "lost its savepoint" in caplog.records[0].message


# -- the beginning ------------------------------------------------------------------


@ways(Way, SharedSqlite)
def test_sqlite_rolls_back_tables_too(way):
    async def body(_task):
        way.execute("create table other (number integer)")
        raise ValueError

    way.run(way.task(body))

    with way.other_connection() as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("select * from other")


@ways(SharedSqlite)
def test_the_transaction_of_sqlite_is_of_the_kind_that_the_connection_names(way):
    async def body(_task):
        with closing(sqlite3.connect(way.address, timeout=0)) as other:
            other.execute("insert into effect values (1)")

    assert "locked" in way.run(way.task(body)).reason


@ways(SharedSqlite)
@pytest.mark.parametrize(("number", "rows"), [(2, [1, 2]), (1, [])])
def test_what_was_written_before_the_run_ends_with_it(way, number, rows):
    way.connection.execute("insert into effect values (1)")

    way.run(way.task(lambda _task: way.insert(number)))

    assert way.rows() == rows


def test_a_statement_of_sqlite_that_is_not_finished_is_named_as_the_cause(way):
    async def body(task):
        task.context.cursor = way.execute("insert into effect values (1) returning *")

    result = way.run(way.task(body))

    assert isinstance(result.cause, sqlite3.OperationalError)
    assert "SQL statements in progress" in result.reason
    assert way.rows() == []


def test_a_transaction_that_cannot_begin_fails_the_task_before_work(tmp_path):
    called = []
    missing = tmp_path / "missing" / "app.db"
    transaction = Transaction(lambda: closing(sqlite3.connect(missing)))

    result = new_task(transaction, called.append).execute()

    assert isinstance(result.cause, sqlite3.OperationalError)
    assert called == []


def test_sessions_of_several_databases_are_committed(tmp_path):
    from sqlalchemy.orm import Session, declarative_base, mapped_column
    from sqlalchemy.types import Integer

    base = declarative_base()

    class Effect(base):
        __tablename__ = "effect"
        number = mapped_column(Integer, primary_key=True)

    with opened(AlchemySession, tmp_path) as way:
        transaction = Transaction(lambda: Session(binds={Effect: way.engine}))

        @middleware(transaction)
        class Write(Task[None]):
            def work(self):
                transaction.current().add(Effect(number=1))

        assert Write.execute().success
        assert way.rows() == [1]


# -- the factory --------------------------------------------------------------------


def test_the_factory_is_called_once_for_each_run():
    calls = []
    transaction = Transaction(lambda: calls.append("call") or nullcontext())
    task = new_task(transaction)

    task.execute()
    task.execute()

    assert calls == ["call", "call"]


def test_a_factory_that_requires_an_argument_is_given_the_task():
    seen = []

    def open_for(task):
        return nullcontext(seen.append(task.context.tenant))

    new_task(Transaction(open_for)).execute(tenant="acme")

    assert seen == ["acme"]


def test_arguments_that_a_factory_does_not_require_keep_their_defaults():
    seen = []

    def open_with(using="default"):
        return nullcontext(seen.append(using))

    new_task(Transaction(open_with)).execute()

    assert seen == ["default"]


@pytest.mark.parametrize("wrong", [None, "app.db", nullcontext()])
def test_what_cannot_be_called_is_refused_at_once(wrong):
    with pytest.raises(DefinitionError, match="Transaction takes a callable"):
        Transaction(wrong)


def test_a_factory_that_wants_more_than_the_task_is_refused_at_once():
    with pytest.raises(DefinitionError, match=r"with the task alone: .*'password'"):
        Transaction(lambda _user, password: nullcontext(password))


@pytest.mark.parametrize("wrong", [None, "app.db", object()])
def test_a_factory_that_returns_no_context_manager_fails_the_task(wrong):
    result = new_task(Transaction(lambda: wrong)).execute()

    assert isinstance(result.cause, TypeError)
    assert "contextlib.nullcontext" in result.reason


def test_a_connection_is_closed_if_with_closes_it(tmp_path):
    with opened(Psycopg, tmp_path) as way:
        seen = []

        async def body(_task):
            seen.append(way.transaction.current())

        assert way.run(way.task(body)).success
        assert seen[0].closed


def test_a_connection_in_a_null_context_stays_open(tmp_path):
    with opened(Psycopg, tmp_path) as way, way.other_connection() as connection:
        way.transaction.factory = lambda: nullcontext(connection)

        async def body(_task):
            await way.insert(1)

        assert way.run(way.task(body)).success
        assert not connection.closed
        assert way.rows() == [1]


@ways(SharedSqlite)
def test_an_interrupt_rolls_back_a_connection_that_stays_open(way):
    way.transaction.factory = lambda: nullcontext(way.connection)

    async def body(_task):
        await way.insert(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        way.run(way.task(body))
    assert not way.connection.in_transaction
    assert way.rows() == []


@ways(AlchemySession)
def test_a_session_that_is_not_used_does_not_connect(way):
    from sqlalchemy import event

    connected = []
    event.listen(way.engine, "connect", lambda *_: connected.append("connected"))

    async def body(_task): ...

    assert way.run(way.task(body)).success
    assert connected == []


def test_it_shows_its_factory():
    def connect(): ...

    assert repr(Transaction(connect)).endswith(".connect)")


# -- context managers that decide by the exception ----------------------------------


@pytest.mark.parametrize(
    ("work", "events"),
    [
        (lambda _task: None, ["open", "commit"]),
        (lambda task: task.skip("enough"), ["open", "commit"]),
        (lambda task: task.fail("no"), ["open", "rollback"]),
        (raise_error, ["open", "rollback"]),
    ],
)
def test_a_context_manager_is_left_by_the_outcome(work, events):
    seen = []

    new_task(Transaction(lambda: Managed(seen)), work).execute()

    assert seen == events


class Either(Managed):
    """A context manager for ``with`` and ``async with``."""

    async def __aenter__(self):
        self.events.append("await")

    async def __aexit__(self, kind, *_error):
        self.events.append("commit" if kind is None else "rollback")


def test_a_context_manager_of_both_kinds_is_entered_as_the_run_is():
    events = []
    task = new_task(Transaction(lambda: Either(events)))

    assert task.execute().success
    assert asyncio.run(task.aexecute()).success

    assert events == ["open", "commit", "await", "commit"]


def test_what_leaving_a_context_manager_raises_is_the_result(caplog):
    @contextmanager
    def refuse():
        yield
        raise ConnectionError("gone")

    result = new_task(Transaction(refuse)).execute()

    assert result.reason == "[ConnectionError] gone"
    assert result.replaced.status == "success"
    assert caplog.text == ""  # there are no callbacks to name


def test_a_context_manager_that_swallows_everything_commits_nothing():
    called = []

    class Swallowing(Managed):
        def __exit__(self, kind, *_error):
            return True

    transaction = Transaction(lambda: Swallowing([]))

    def work(_task):
        transaction.on_commit(lambda: called.append("committed"))
        raise ValueError("no")

    assert new_task(transaction, work).execute().reason == "[ValueError] no"
    assert called == []


def test_a_session_that_is_begun_by_hand_is_committed(tmp_path):
    from sqlalchemy import text
    from sqlalchemy.orm import Session

    with opened(AlchemySession, tmp_path) as way, Session(way.engine) as session:

        def work(task):
            session.execute(text("insert into effect values (1)"))
            if task.context.failing:
                task.fail("no")

        task = new_task(Transaction(session.begin), work)

        task.execute(failing=True)
        assert way.rows() == []
        task.execute(failing=False)
        assert way.rows() == [1]


# -- what work asks for -------------------------------------------------------------


def test_there_is_no_connection_outside_of_a_run():
    transaction = Transaction(lambda: nullcontext(3))

    with pytest.raises(LookupError, match="no run is in Transaction"):
        transaction.current()


def test_there_is_no_connection_of_another_transaction():
    inner, outer = (Transaction(lambda: nullcontext(3)) for _ in range(2))

    result = new_task(outer, lambda _task: inner.current()).execute()

    assert isinstance(result.cause, LookupError)


def test_two_transactions_around_one_task_are_independent():
    first, second = (
        Transaction(lambda answer=answer: Managed([], answer)) for answer in "ab"
    )

    @middleware(first, second)
    class Both(Task[str]):
        def work(self):
            return first.current() + second.current()

    assert Both.execute().value == "ab"


def test_a_coroutine_that_outlives_the_run_has_no_connection():
    transaction = Transaction(lambda: nullcontext(3))
    left = []

    class Leave(Task[None]):
        async def work(self):
            async def look(released):
                await released.wait()
                return transaction.current()

            released = asyncio.Event()
            left.append((released, asyncio.create_task(look(released))))

    async def run():
        await middleware(transaction)(Leave).aexecute()
        ((released, task),) = left
        released.set()
        with pytest.raises(LookupError):
            await task

    asyncio.run(run())


def test_a_context_that_outlives_the_run_does_not_keep_the_connection():
    class Connection:
        pass

    transaction = Transaction(lambda: nullcontext(Connection()))
    kept = []

    @middleware(transaction)
    class Keep(Task[None]):
        def work(self):
            kept.extend([copy_context(), ref(transaction.current())])

    assert Keep.execute().success
    assert kept[1]() is None


# -- threads and coroutines ---------------------------------------------------------


def test_a_task_in_another_thread_has_a_transaction_of_its_own():
    events = []
    transaction = Transaction(lambda: Managed(events))
    inner = new_task(transaction)

    def work(_task):
        thread = Thread(target=copy_context().run, args=(inner.execute,))
        thread.start()
        thread.join()
        events.append("work")

    new_task(transaction, work).execute()

    assert events == ["open", "open", "commit", "work", "commit"]


@ways(AsyncPsycopg)
def test_tasks_in_parallel_have_transactions_of_their_own(way):
    def writing(number, *, fails):
        async def body(_task):
            await way.insert(number)
            if fails:
                raise ValueError

        return way.task(body)

    async def body(_task):
        await way.insert(1)
        runs = (writing(2, fails=False).aexecute(), writing(3, fails=True).aexecute())
        await asyncio.gather(*runs)
        raise ValueError

    way.run(way.task(body))

    assert way.rows() == [2]


@ways(Psycopg)
def test_a_workflow_in_a_transaction_undoes_its_steps(way):
    async def write(_task):
        await way.insert(1)

    async def refuse(task):
        task.fail("no")

    @middleware(way.transaction)
    class Order(Workflow):
        steps = [way.task(write), way.task(refuse)]  # noqa: RUF012

    assert Order.execute().reason == "no"
    assert way.rows() == []


@ways(Psycopg)
def test_parallel_steps_are_not_part_of_the_transaction_of_their_workflow(way):
    def writing(number):
        async def body(_task):
            await way.insert(number)

        return way.task(body)

    async def refuse(task):
        task.fail("no")

    @middleware(way.transaction)
    class Order(Workflow):
        steps = [parallel(writing(1), writing(2)), way.task(refuse)]  # noqa: RUF012

    assert Order.execute().failed
    assert way.rows() == [1, 2]


@ways(SqliteInAsyncRuns, AsyncPsycopg)
def test_a_task_inside_an_async_rollback_is_in_the_transaction_of_the_run(way):
    inner = way.task(lambda _task: way.insert(2))
    results = []

    async def body(_task):
        await way.insert(1)
        raise ValueError("no")

    class Write(way.task(body)):
        async def rollback(self):
            results.append(await way.run_inside(inner))

    assert way.run(Write).reason == "[ValueError] no"
    assert results[0].success, results[0].reason
    assert way.rows() == []


def test_a_coroutine_that_an_async_rollback_starts_has_a_transaction_of_its_own(way):
    connect, calls = way.factory(), []
    transaction = Transaction(lambda: calls.append("call") or connect())

    async def rollback(_task):
        await inner.aexecute()
        assert calls == ["call"]
        await asyncio.create_task(inner.aexecute())

    inner = new_task(transaction)
    task = new_task(transaction, raise_error, rollback=rollback)

    assert asyncio.run(task.aexecute()).rollback_error is None
    assert calls == ["call", "call"]


@ways(SqliteInAsyncRuns)
def test_a_task_after_an_async_rollback_is_in_the_transaction_of_the_run(way):
    async def fail(_task):
        raise ValueError("no")

    class Fail(way.task(fail)):
        async def rollback(self):
            await asyncio.sleep(0)

    inner = way.task(lambda _task: way.insert(1))

    async def body(_task):
        assert (await way.run_inside(Fail)).failed
        assert (await way.run_inside(inner)).success
        raise ValueError("no")

    assert way.run(way.task(body)).failed
    assert way.rows() == []


@ways(Psycopg)
def test_two_transactions_of_one_task_do_not_keep_others_from_joining(way):
    inner = way.task(lambda _task: way.insert(1))

    async def body(_task):
        assert (await way.run_inside(inner)).success
        assert (await way.run_inside(inner)).failed
        raise ValueError

    other = Transaction(nullcontext)
    result = way.run(middleware(other)(way.task(body, middleware(other))))

    assert result.failed
    assert way.rows() == []


# -- synchronous and asynchronous ---------------------------------------------------


@ways(AsyncPsycopg, AsyncAlchemySession)
def test_an_asynchronous_connection_is_refused_by_execute(way):
    result = new_task(way.transaction).execute()

    assert isinstance(result.cause, AsyncTaskError)
    assert "the connection of its transaction is async" in result.reason


@ways(AsyncPsycopg)
def test_an_asynchronous_connection_that_stays_open_is_refused_by_execute(way):
    async def run():
        async with await way.transaction.factory() as connection:
            transaction = Transaction(lambda: nullcontext(connection))
            return new_task(transaction).execute()

    assert isinstance(asyncio.run(run()).cause, AsyncTaskError)


@ways(AsyncPsycopg)
def test_a_synchronous_task_cannot_join_an_asynchronous_connection(way):
    inner = new_task(way.transaction)

    async def body(_task):
        return inner.execute()

    result = way.run(way.task(body)).value

    assert isinstance(result.cause, AsyncTaskError)


@ways(AsyncPsycopg)
def test_a_cancelled_run_is_rolled_back(way):
    async def run():
        written = asyncio.Event()

        async def body(_task):
            await way.insert(1)
            written.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(way.task(body).aexecute())
        await written.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())

    assert way.rows() == []


def retry_never(task):
    return task


hidden = pytest.mark.parametrize(
    "decorate", [retry_never, retry_on(Exception, limit=1, delay=0)]
)


@hidden
def test_a_work_that_hides_that_it_is_async_is_refused_also_if_it_retries(
    way, decorate
):
    async def write():
        way.execute("insert into effect values (1)")

    task = decorate(new_task(way.transaction, lambda _task: write()))
    result = task.execute()

    assert isinstance(result.cause, AsyncTaskError)
    assert result.retries == 0
    assert way.rows() == []


@hidden
def test_a_coroutine_that_an_async_work_returns_is_refused_also_if_it_retries(
    way, decorate
):
    async def write(): ...

    async def work(_task):
        way.execute("insert into effect values (1)")
        return write()

    result = asyncio.run(decorate(new_task(way.transaction, work)).aexecute())

    assert "Write `return await ...`" in result.reason
    assert way.rows() == []


# -- callbacks on commit ------------------------------------------------------------


def test_a_callback_on_commit_that_raises_changes_nothing(caplog):
    called = []
    transaction = Transaction(nullcontext)

    class Notify(Task[str]):
        def work(self):
            transaction.on_commit(lambda: raise_error(self))
            transaction.on_commit(lambda: self.fail("too late"))
            transaction.on_commit(lambda: called.append("next"))
            return "done"

    with caplog.at_level(logging.ERROR, logger="cmdx"):
        result = middleware(transaction)(Notify).execute()

    assert result.value == "done"
    assert called == ["next"]
    assert len(caplog.records) == 2
    assert "after the transaction was committed" in caplog.records[0].message


def send_receipt():
    raise AssertionError("it is not known whether anything was committed")


@pytest.mark.parametrize("bind", [lambda connection: connection, lambda _: None])
def test_callbacks_are_named_if_leaving_the_transaction_raises(way, bind, caplog):
    @contextmanager
    def begin():
        with way.other_connection() as connection, connection:
            yield bind(connection)
        raise ConnectionError("no metrics")

    transaction = Transaction(begin)
    task = new_task(transaction, lambda _task: transaction.on_commit(send_receipt))

    with caplog.at_level(logging.ERROR, logger="cmdx"):
        result = task.execute()

    assert result.reason == "[ConnectionError] no metrics"
    (record,) = caplog.records
    assert "may have been committed" in record.message
    assert "send_receipt" in record.message


def test_callbacks_of_a_savepoint_that_cannot_be_left_are_not_reported(caplog):
    depths = iter([0, 1])

    @contextmanager
    def begin():
        depth = next(depths)
        yield
        if depth:
            raise ConnectionError

    transaction = Transaction(begin)
    inner = new_task(transaction, lambda _task: transaction.on_commit(send_receipt))
    outer = new_task(transaction, lambda _task: inner.execute().failed)

    with caplog.at_level(logging.ERROR, logger="cmdx"):
        assert outer.execute().value is True
    assert caplog.records == []


def test_callbacks_are_not_reported_if_nothing_was_committed(way, caplog):
    def work(task):
        way.transaction.on_commit(send_receipt)
        way.transaction.current().commit()
        if task.context.failing:
            task.fail("no")

    with caplog.at_level(logging.ERROR, logger="cmdx"):
        assert new_task(way.transaction, work).execute(failing=True).failed
        assert new_task(way.transaction, work).execute(failing=False).failed

    assert caplog.records == []


def test_a_callback_on_commit_is_outside_of_the_transaction():
    events = []
    transaction = Transaction(lambda: Managed(events))
    inner = new_task(transaction)

    new_task(transaction, lambda _: transaction.on_commit(inner.execute)).execute()

    assert events == ["open", "commit", "open", "commit"]


def test_a_callback_on_commit_may_be_async_in_an_async_run():
    called = []
    transaction = Transaction(nullcontext)

    async def call():
        await asyncio.sleep(0)
        called.append("called")

    task = new_task(transaction, lambda _: transaction.on_commit(call))

    assert asyncio.run(task.aexecute()).success
    assert called == ["called"]
    assert "is async, but the run is not" in task.execute().reason


def test_a_callback_that_hides_that_it_is_async_is_reported(caplog):
    transaction = Transaction(nullcontext)

    async def call(_number): ...

    task = new_task(transaction, lambda _: transaction.on_commit(lambda: call(1)))
    with caplog.at_level(logging.ERROR, logger="cmdx"):
        assert task.execute().success

    assert "is async, but the run is not" in caplog.text


# -- what is left behind ------------------------------------------------------------


def test_a_run_that_is_to_be_continued_elsewhere_is_rolled_back(way):
    async def body(task):
        await way.insert(task.attempt)
        if task.attempt == 0:
            raise ValueError

    task = way.task(body, retry_on(ValueError, delay=60))
    with pytest.raises(Suspended) as suspended:
        task().run(longest_pause=1)
    assert way.rows() == []

    assert task().run(earlier=suspended.value).success
    assert way.rows() == [1]


def test_a_task_keeps_its_own_work(way):
    async def body(_task): ...

    invocation = way.task(body, retry_on(ValueError))()
    invocation.run()

    assert "work" not in vars(invocation)


@ways(Way, SqliteInAsyncRuns)
def test_each_of_two_transactions_around_a_task_undoes_the_attempts(way, tmp_path):
    (tmp_path / "other").mkdir()
    with opened(type(way), tmp_path / "other") as other:

        async def body(task):
            await way.insert(1)
            await other.insert(2)
            if task.attempt == 0:
                raise ValueError

        retrying = retry_on(ValueError, limit=1, delay=0)
        task = way.task(body, middleware(other.transaction), retrying)
        result = way.run(task)

        assert result.success, result.reason
        assert (way.rows(), other.rows()) == ([1], [2])


def test_two_transactions_around_a_task_give_its_own_work_back():
    first, second = Transaction(nullcontext), Transaction(nullcontext)

    @retry_on(ValueError)
    @middleware(first, second)
    class Write(Task[None]):
        def work(self): ...

    invocation = Write()

    assert invocation.run().success
    assert "work" not in vars(invocation)


def write_in_vain(way, error):
    async def body(task):
        await way.insert(1)
        if error is None:
            task.fail("no")
        raise error()

    inner = way.task(body)

    async def outer(_task):
        await way.run_inside(inner)
        await way.insert(2)
        await way.insert(2)

    return way.task(outer, retry_on(Exception, limit=1, delay=0))


@ways(Way, Psycopg)
@pytest.mark.parametrize("error", [None, ValueError])
def test_runs_leave_nothing_for_the_garbage_collector(way, error):
    task = write_in_vain(way, error)

    assert left_behind(lambda: way.run(task), 20) == {}


@ways(AsyncPsycopg)
def test_async_runs_leave_nothing_for_the_garbage_collector(way):
    task = write_in_vain(way, ValueError)

    async def run():
        await task.aexecute()

    assert asyncio.run(left_behind_by_coroutines(run, 5)) == {}


@ways(Psycopg, AsyncPsycopg, PostgresAlchemySession)
def test_a_failure_after_an_error_of_the_database_is_the_outcome_though_it_retries(way):
    async def body(task):
        await way.insert(1)
        try:
            await way.insert(1)
        except Exception:
            task.fail("already paid", code=409)

    result = way.run(way.task(body, retry_on(Exception, limit=2, delay=0)))

    assert (result.reason, result.retries) == ("already paid", 0)


@ways(Way)
def test_halts_of_a_task_that_retries_leave_nothing_for_the_garbage_collector(way):
    async def body(task):
        task.fail("no")

    task = way.task(body, retry_on(ValueError))

    assert left_behind(lambda: way.run(task), 20) == {}


def test_a_failed_commit_leaves_nothing_for_the_garbage_collector():
    @contextmanager
    def refuse():
        yield
        raise ConnectionError

    task = new_task(Transaction(refuse))

    assert left_behind(task.execute, 20) == {}
