"""Mistakes with ``Transaction``: each is refused with what to do instead."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from threading import Thread

import pytest
from databases import (
    AlchemyScopedSession,
    AlchemySession,
    AsyncPsycopg,
    Django,
    Psycopg,
    PsycopgPool,
    SharedSqlite,
    Way,
    opened,
)

from cmdx import DefinitionError, Task, Workflow, middleware, parallel, retry_on
from cmdx.middlewares import Transaction


def ways(*kinds):
    """Run a test with these databases."""
    return pytest.mark.parametrize(
        "way", kinds, indirect=True, ids=lambda k: k.__name__
    )


@pytest.fixture(params=[Way])
def way(request, tmp_path):
    with opened(request.param, tmp_path) as database:
        yield database


def result_with(factory):
    """Run a task in a transaction; it must not come to its work."""

    @middleware(Transaction(factory))
    class Write(Task[None]):
        def work(self):
            raise AssertionError("it was not refused before work")

    return Write.execute()


# -- the factory --------------------------------------------------------------------


@contextmanager
def block():
    yield


@pytest.mark.parametrize(
    "open_now", [block, nullcontext, partial(sqlite3.connect, ":memory:")]
)
def test_a_context_manager_in_place_of_a_factory_is_refused_at_once(open_now):
    manager = open_now()

    with pytest.raises(
        DefinitionError, match=r"for each run, .* `Transaction\(lambda:"
    ):
        Transaction(manager)
    getattr(manager, "close", lambda: None)()


@ways(Django)
def test_a_block_of_django_in_place_of_atomic_is_refused_at_once(way):
    with pytest.raises(DefinitionError, match="without calling it"):
        Transaction(way.module.atomic())


@ways(Psycopg)
def test_a_connection_of_psycopg_in_place_of_a_factory_is_refused_at_once(way):
    with (
        way.other_connection() as connection,
        pytest.raises(DefinitionError, match="for each run"),
    ):
        Transaction(connection)


def test_a_factory_that_returns_nothing_is_told_to_return():
    result = result_with(lambda: None)

    assert "returned None, which is no context manager" in result.reason


def connect_by_generator():
    yield sqlite3.connect(":memory:")


async def connect_by_async_generator():
    yield sqlite3.connect(":memory:")


generators = pytest.mark.parametrize(
    "function",
    [
        connect_by_generator,
        connect_by_async_generator,
        partial(connect_by_generator),
    ],
)


@generators
def test_a_generator_function_is_refused_at_once(function):
    with pytest.raises(DefinitionError, match=r"Put @contextlib\.contextmanager on"):
        Transaction(function)


@generators
def test_a_factory_that_returns_a_generator_is_told_the_decorator(function):
    def return_generator():
        return function()

    result = result_with(return_generator)

    assert isinstance(result.cause, TypeError)
    assert "Put @contextlib.contextmanager on" in result.reason
    assert "closing" not in result.reason


# -- what the factory returns -------------------------------------------------------


def test_a_context_manager_that_an_earlier_run_has_used_up_is_refused():
    manager = block()

    @middleware(Transaction(lambda: manager))
    class Write(Task[None]):
        def work(self): ...

    assert Write.execute().success
    result = Write.execute()
    assert isinstance(result.cause, DefinitionError)
    assert "Make one for each run" in result.reason


@ways(Way, Psycopg)
def test_a_cursor_is_refused(way):
    with way.other_connection() as connection:
        results = [
            result_with(lambda: closing(connection.cursor())),
            result_with(connection.cursor),
        ]

    for result in results:
        assert isinstance(result.cause, DefinitionError)
        assert "is a cursor" in result.reason


@pytest.mark.parametrize("wrap", [lambda file: file, closing])
def test_a_file_is_refused_and_closed(tmp_path, wrap):
    files = []

    def open_file():
        files.append((tmp_path / "app.db").open("w"))
        return wrap(files[0])

    result = result_with(open_file)

    assert isinstance(result.cause, DefinitionError)
    assert "is a file and has no transaction" in result.reason
    assert files[0].closed


@pytest.mark.parametrize("name", ["execute", "connect", "begin"])
def test_a_context_manager_with_one_of_their_methods_is_not_taken_for_them(name):
    unit = type("Unit", (nullcontext,), {name: lambda _unit: None})

    @middleware(Transaction(unit))
    class Write(Task[None]):
        def work(self): ...

    assert Write.execute().success


@ways(PsycopgPool)
def test_a_pool_is_refused_and_stays_open(way):
    result = result_with(lambda: way.pool)

    assert "`Transaction(pool.connection)`" in result.reason
    assert not way.pool.closed


@ways(AlchemySession)
def test_an_engine_is_refused(way):
    for factory in (lambda: way.engine, lambda: nullcontext(way.engine)):
        assert "`Transaction(engine.connect)`" in result_with(factory).reason


@ways(Django)
def test_a_connection_of_django_is_refused(way):
    connection = way.module.connections["default"]

    for factory in (lambda: connection, lambda: nullcontext(connection)):
        assert "`Transaction(transaction.atomic)`" in result_with(factory).reason


@ways(Way, Psycopg)
def test_a_closed_connection_is_refused_before_work(way):
    with way.other_connection() as connection:
        connection.close()

        for factory in (lambda: connection, lambda: nullcontext(connection)):
            result = result_with(factory)
            assert isinstance(result.cause, DefinitionError)
            assert "is closed" in result.reason


def test_a_connection_whose_attribute_closed_is_a_method_is_not_taken_for_closed(way):
    class Connection(sqlite3.Connection):
        def closed(self):
            return False

    connect = partial(sqlite3.connect, way.address, factory=Connection)
    transaction = Transaction(lambda: closing(connect()))

    @middleware(transaction)
    class Write(Task[None]):
        def work(self):
            transaction.current().execute("insert into effect values (1)")

    assert Write.execute().success
    assert way.rows() == [1]


@ways(Psycopg)
def test_a_connection_that_with_has_closed_is_refused_in_the_next_run(way):
    connection = way.other_connection()

    @middleware(Transaction(lambda: connection))
    class Write(Task[None]):
        def work(self): ...

    assert Write.execute().success
    assert "contextlib.nullcontext(connection)" in Write.execute().reason


@ways(AlchemySession)
def test_a_closed_connection_of_sqlalchemy_is_refused(way):
    with way.engine.connect() as connection:
        pass

    assert "is closed" in result_with(lambda: nullcontext(connection)).reason


@ways(AlchemySession)
def test_an_engine_of_sqlalchemy_that_commits_each_statement_is_refused(way):
    from sqlalchemy import create_engine
    from sqlalchemy.orm import sessionmaker

    by_option = way.engine.execution_options(isolation_level="AUTOCOMMIT")
    from_start = create_engine(way.engine.url, isolation_level="AUTOCOMMIT")
    for engine in (by_option, from_start):
        for factory in (engine.connect, engine.begin, sessionmaker(engine)):
            result = result_with(factory)
            assert isinstance(result.cause, DefinitionError)
            assert "without AUTOCOMMIT" in result.reason
    from_start.dispose()


@ways(AsyncPsycopg)
def test_an_async_engine_that_commits_each_statement_is_refused(way):
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    async def run():
        engine = create_async_engine(
            way.address.replace("postgresql://", "postgresql+psycopg://", 1),
            isolation_level="AUTOCOMMIT",
        )
        for factory in (engine.connect, async_sessionmaker(engine)):

            @middleware(Transaction(factory))
            class Write(Task[None]):
                async def work(self): ...

            assert "without AUTOCOMMIT" in (await Write.aexecute()).reason
        await engine.dispose()

    asyncio.run(run())


# -- two runs on one connection -----------------------------------------------------


class ThreadsSqlite(SharedSqlite):
    """A connection that all threads use."""

    def factory(self):
        self.connection = sqlite3.connect(self.address, check_same_thread=False)
        return lambda: self.connection


class KeptSqlite(ThreadsSqlite):
    def factory(self):
        super().factory()
        return lambda: nullcontext(self.connection)


class KeptPsycopg(Psycopg):
    def factory(self):
        self.connection = self.other_connection()
        return lambda: nullcontext(self.connection)

    def close(self):
        self.connection.close()


class KeptAsyncPsycopg(AsyncPsycopg):
    """A connection that all runs of one event loop use."""

    def factory(self):
        connect = super().factory()

        async def kept():
            self.connection = self.connection or await connect()
            return nullcontext(self.connection)

        self.connection = None
        return kept


def writing(way, number):
    async def body(_task):
        await way.insert(number)

    return way.task(body)


def assert_in_use(result):
    assert isinstance(result.cause, DefinitionError)
    assert (
        "is in another transaction already, in that of a run of Write" in result.reason
    )
    assert "open a connection for each run" in result.reason


@ways(ThreadsSqlite, KeptSqlite, KeptPsycopg)
def test_a_connection_cannot_be_in_the_transactions_of_two_threads(way):
    results = []
    inner = writing(way, 2)

    async def body(_task):
        await way.insert(1)
        thread = Thread(
            target=copy_context().run, args=(lambda: results.append(inner.execute()),)
        )
        thread.start()
        thread.join()
        await way.insert(3)

    assert way.run(way.task(body)).success
    assert_in_use(*results)
    assert way.rows() == [1, 3]
    assert way.run(inner).success


@ways(ThreadsSqlite, KeptPsycopg)
def test_parallel_steps_cannot_share_the_connection_of_their_workflow(way):
    @middleware(way.transaction)
    class Write(Workflow):
        steps = [writing(way, 1), parallel(writing(way, 2), writing(way, 3))]  # noqa: RUF012

    result = Write.execute()

    assert "is in another transaction already, in that of" in result.reason
    assert way.rows() == []


class NestedTransactions(Psycopg):
    """Transactions of psycopg on one connection, each inside of the one before."""

    is_async = True

    def factory(self):
        import psycopg

        connect = psycopg.AsyncConnection.connect
        self.connection = None

        async def begin():
            self.connection = self.connection or await connect(self.address)
            return self.connection.transaction()

        return begin

    def execute(self, sql):
        return self.connection.execute(sql)


@ways(KeptAsyncPsycopg, NestedTransactions)
def test_a_connection_cannot_be_in_the_transactions_of_two_coroutines(way):
    async def run():
        written, seen = asyncio.Event(), asyncio.Event()

        async def body(_task):
            await way.insert(1)
            assert (await way.run_inside(writing(way, 4))).success
            written.set()
            await seen.wait()
            raise ValueError

        first = asyncio.create_task(way.task(body).aexecute())
        await written.wait()
        second = await writing(way, 2).aexecute()
        seen.set()
        assert (await first).failed
        assert_in_use(second)  # else it would be undone, or commit the first one
        assert (await writing(way, 3).aexecute()).success
        await way.connection.close()

    asyncio.run(run())

    assert way.rows() == [3]


@ways(SharedSqlite)
def test_a_connection_cannot_be_in_two_transaction_objects_at_once(way):
    other = Transaction(lambda: way.connection)
    results = []

    @middleware(other)
    class Inner(Task[None]):
        def work(self):
            raise AssertionError("it would commit the work of the other task")

    async def body(task):
        await way.insert(1)
        results.append(Inner.execute())
        task.fail("no")

    way.run(way.task(body))

    assert_in_use(*results)
    assert "the same Transaction object" in results[0].reason
    assert way.rows() == []


@ways(KeptSqlite, KeptPsycopg)
def test_two_transaction_objects_of_one_task_cannot_have_the_same_connection(way):
    other = Transaction(lambda: nullcontext(way.connection))

    async def body(_task):
        raise AssertionError("the inner transaction would commit for the outer one")

    assert_in_use(way.task(body, middleware(other)).execute())


@ways(AlchemySession)
def test_a_session_behind_a_context_manager_is_in_one_transaction_at_a_time(way):
    with way.opener()() as session:
        first, second = (Transaction(session.begin_nested) for _ in range(2))

        @middleware(first, second)
        class Write(Task[None]):
            def work(self):
                raise AssertionError("the outer one would undo the inner one")

        assert "is in another transaction already" in Write.execute().reason


@ways(AlchemyScopedSession)
def test_threads_have_sessions_of_their_own_in_a_scoped_session(way):
    results = []

    async def read(_task):
        way.execute("select * from effect")
        way.session.remove()

    inner = way.task(read)

    async def body(_task):
        thread = Thread(target=lambda: results.append(inner.execute()))
        thread.start()
        thread.join()
        await way.insert(1)

    assert way.run(way.task(body)).success
    assert results[0].success
    assert way.rows() == [1]


# -- a second connection in one run -------------------------------------------------


class Repository:
    """What people write around a connection."""

    def __init__(self, connection):
        self.sql = connection.execute


def repositories(way):
    """Return a transaction that has a connection of its own for each call."""

    @contextmanager
    def begin():
        with way.other_connection() as connection, connection:
            yield Repository(connection)

    return Transaction(begin)


def assert_second_connection(result):
    assert isinstance(result.cause, DefinitionError), result.reason
    assert "has opened a second connection" in result.reason
    assert "contextlib.closing(connect())" in result.reason


@ways(Way)
def test_attempts_on_a_second_connection_are_refused(way):
    transaction = repositories(way)

    @retry_on(Exception, limit=2, delay=0)
    @middleware(transaction)
    class Write(Task[None]):
        def work(self):
            transaction.current().sql("insert into effect values (1)")
            raise ValueError

    result = Write.execute()

    assert_second_connection(result)
    assert result.retries == 0
    assert way.rows() == []


@ways(Psycopg)
def test_a_task_inside_on_a_second_connection_is_refused(way):
    transaction, results = repositories(way), []

    @middleware(transaction)
    class Inner(Task[None]):
        def work(self):
            transaction.current().sql("insert into effect values (2)")

    @middleware(transaction)
    class Outer(Task[None]):
        def work(self):
            transaction.current().sql("insert into effect values (1)")
            results.append(Inner.execute())

    assert Outer.execute().success
    assert_second_connection(*results)
    assert way.rows() == [1]


def write_in_attempts(transaction, write):
    @retry_on(ValueError, limit=1, delay=0)
    @middleware(transaction)
    class Write(Task[None]):
        def work(self):
            write()
            if self.attempt == 0:
                raise ValueError

    return Write.execute()


@ways(Django)
def test_a_block_of_django_may_bind_another_object_each_time(way):
    @contextmanager
    def begin():
        with way.module.atomic():
            yield object()

    def write():
        way.execute("insert into effect values (1)")

    result = write_in_attempts(Transaction(begin), write)

    assert result.success, result.reason
    assert way.rows() == [1]


@ways(SharedSqlite)
def test_a_context_manager_that_names_the_same_connection_may_be_another_one(way):
    connection, names = way.connection, iter("abc")
    connection.isolation_level = None

    class Atomic:
        db = connection

        def __enter__(self):
            self.name = next(names)
            self.db.execute(f"savepoint {self.name}")
            return self

        def __exit__(self, kind, *_error):
            if kind is not None:
                self.db.execute(f"rollback to {self.name}")
            self.db.execute(f"release {self.name}")

    def write():
        connection.execute("insert into effect values (1)")

    result = write_in_attempts(Transaction(Atomic), write)

    assert result.success, result.reason
    assert way.rows() == [1]


# -- on_commit ----------------------------------------------------------------------


def on_commit_with(callback):
    transaction = Transaction(nullcontext)

    @middleware(transaction)
    class Write(Task[None]):
        def work(self):
            transaction.on_commit(callback())

    return Write.execute()


@pytest.mark.parametrize("wrong", [None, "send_mail", [print]])
def test_a_callback_on_commit_that_cannot_be_called_is_refused_at_once(wrong):
    result = on_commit_with(lambda: wrong)

    assert isinstance(result.cause, TypeError)
    assert f"got {wrong!r}. Write `on_commit(lambda: ...)`" in result.reason


@pytest.mark.filterwarnings("error")
def test_a_coroutine_as_a_callback_on_commit_is_refused_at_once():
    async def send(): ...

    result = on_commit_with(send)

    assert "`on_commit(lambda: ...)`" in result.reason


def test_a_callback_on_commit_that_requires_arguments_is_refused_at_once():
    result = on_commit_with(lambda: lambda order: order)

    assert "missing a required argument: 'order'" in result.reason
    assert "`on_commit(lambda: ...)`" in result.reason
