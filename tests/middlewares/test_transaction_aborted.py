"""``Transaction`` where nothing can be committed although the task has succeeded."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import contextmanager, nullcontext
from subprocess import run

import pytest
from databases import (
    AlchemyConnection,
    AlchemyScopedSession,
    AlchemySession,
    AlchemySessionBegun,
    AsyncAlchemySession,
    AsyncPsycopg,
    AutocommitSqlite,
    Django,
    ExplicitSqlite,
    PostgresAlchemyConnection,
    PostgresAlchemySession,
    PostgresDjango,
    Psycopg,
    PsycopgTransaction,
    SharedSqlite,
    SqliteInAsyncRuns,
    StandardSqlite,
    Way,
    opened,
)

from cmdx import Task, middleware, retry_on
from cmdx.middlewares import Transaction, TransactionAborted


def ways(*kinds):
    """Run a test with these databases."""
    return pytest.mark.parametrize(
        "way", kinds, indirect=True, ids=lambda k: k.__name__
    )


@pytest.fixture
def way(request, tmp_path):
    with opened(request.param, tmp_path) as database:
        yield database


def catch_error(way, called):
    """Return a body that writes a row, and catches an error of the database."""

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("called"))
        await way.insert(1)
        try:
            await way.insert(1)
        except Exception:
            return "all is well"

    return body


def assert_aborted(result, cure="Let the error propagate"):
    assert isinstance(result.cause, TransactionAborted), result.reason
    assert cure in result.reason
    assert result.replaced.status == "success"


# -- PostgreSQL ---------------------------------------------------------------------


@ways(PsycopgTransaction, PostgresDjango)
def test_a_context_manager_does_not_hide_that_postgres_has_aborted(way):
    called = []

    assert_aborted(way.run(way.task(catch_error(way, called))))

    assert called == []
    assert way.rows() == []


@ways(PostgresAlchemySession, PostgresAlchemyConnection)
def test_a_transaction_of_sqlalchemy_does_not_hide_that_postgres_has_aborted(way):
    from sqlalchemy import text
    from sqlalchemy.exc import IntegrityError

    with way.opener()() as connection:

        @middleware(Transaction(connection.begin))
        class Write(Task[None]):
            def work(self):
                connection.execute(text("insert into effect values (1)"))
                with pytest.raises(IntegrityError):
                    connection.execute(text("insert into effect values (1)"))

        assert_aborted(Write.execute())

    assert way.rows() == []


@ways(Psycopg, AsyncPsycopg, PostgresAlchemySession, AsyncAlchemySession)
def test_a_task_inside_that_has_aborted_is_undone_and_the_one_around_it_goes_on(way):
    inner, results = way.task(catch_error(way, [])), []

    async def body(_task):
        results.append(await way.run_inside(inner))
        await way.insert(2)

    assert way.run(way.task(body)).success
    assert_aborted(*results)
    assert way.rows() == [2]


@ways(Psycopg, PostgresDjango)
def test_an_attempt_that_has_aborted_fails_the_task(way):
    called = []
    task = way.task(catch_error(way, called), retry_on(Exception, limit=1, delay=0))

    result = way.run(task)

    assert result.retries == 0
    assert isinstance(result.cause, TransactionAborted)
    assert called == []
    assert way.rows() == []


@ways(PsycopgTransaction)
def test_a_transaction_of_psycopg_that_always_rolls_back_is_not_taken_for_committed(
    way,
):
    transaction = Transaction(lambda: way.connection.transaction(force_rollback=True))
    called = []

    @middleware(transaction)
    class Write(Task[None]):
        def work(self):
            transaction.on_commit(lambda: called.append("called"))
            way.execute("insert into effect values (1)")

    assert_aborted(Write.execute(), "force_rollback")
    assert called == []


# -- Django -------------------------------------------------------------------------


def save_twice(way):
    """Break a rule of the database as ``Model.save`` does, and catch the error."""
    from django.db.utils import IntegrityError

    with pytest.raises(IntegrityError), way.module.mark_for_rollback_on_error():
        way.execute("insert into effect values (1)")
        way.execute("insert into effect values (1)")


@ways(Django, PostgresDjango)
def test_an_error_that_marks_a_block_of_django_for_rollback_fails_the_task(way):
    from django.db.utils import IntegrityError

    called = []

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("called"))
        save_twice(way)

    result = way.run(way.task(body))

    assert_aborted(result)
    assert isinstance(result.cause.__cause__, IntegrityError)
    assert called == []
    assert way.rows() == []


@ways(Django)
def test_a_block_of_django_that_is_marked_by_hand_fails_the_task(way):
    called = []

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("called"))
        await way.insert(1)
        way.module.set_rollback(True)

    result = way.run(way.task(body))

    assert_aborted(result, "set_rollback(True)")
    assert result.cause.__cause__ is None
    assert called == []
    assert way.rows() == []


@ways(Django)
def test_the_error_of_an_earlier_run_is_not_the_cause_of_a_later_mark(way):
    async def fail(_task):
        save_twice(way)

    async def mark(_task):
        way.module.set_rollback(True)

    way.run(way.task(fail))

    assert way.run(way.task(mark)).cause.__cause__ is None


@ways(Django, PostgresDjango)
def test_a_task_inside_that_is_marked_for_rollback_fails_alone(way):
    called, results = [], []

    async def marked(_task):
        way.transaction.on_commit(lambda: called.append("inner"))
        save_twice(way)

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("outer"))
        results.append(await way.run_inside(way.task(marked)))
        await way.insert(2)

    assert way.run(way.task(body)).success
    assert_aborted(*results)
    assert called == ["outer"]
    assert way.rows() == [2]


@ways(Django)
def test_a_block_of_django_inside_another_context_manager_is_seen(way):
    @contextmanager
    def block():
        with way.module.atomic():
            yield

    @middleware(Transaction(block))
    class Write(Task[None]):
        def work(self):
            save_twice(way)

    assert_aborted(Write.execute())


@ways(Django)
def test_a_failure_in_a_block_that_is_marked_for_rollback_stays_the_outcome(way):
    async def body(task):
        save_twice(way)
        task.fail("already paid")

    assert way.run(way.task(body)).reason == "already paid"


@ways(Django)
def test_a_mark_of_another_database_of_django_is_not_that_of_the_task(way):
    connections = way.module.connections
    connections.settings["archive"] = {**connections.settings["default"]}
    with way.module.atomic("archive"):
        way.module.set_rollback(True, "archive")

        async def body(_task):
            await way.insert(1)

        assert way.run(way.task(body)).success
    connections["archive"].close()


@ways(Django)
def test_a_callback_waits_for_the_block_of_django_around_the_task(way):
    called = []

    async def body(_task):
        await way.insert(1)
        way.transaction.on_commit(lambda: called.append(way.rows()))

    with way.module.atomic():
        assert way.run(way.task(body)).success
        assert called == []
    assert called == [[1]]


@ways(Django)
def test_a_callback_is_not_called_if_the_block_of_django_around_the_task_fails(way):
    called = []

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("called"))

    with pytest.raises(ValueError, match="no"), way.module.atomic():
        assert way.run(way.task(body)).success
        raise ValueError("no")
    with way.module.atomic():
        pass

    assert called == []


def test_a_program_that_imports_django_without_settings_can_use_transactions():
    program = """
from contextlib import nullcontext
import django.db.transaction
from cmdx import Task, middleware
from cmdx.middlewares import Transaction

@middleware(Transaction(nullcontext))
class Write(Task[None]):
    def work(self): ...

Write.execute_or_raise()
"""
    run([sys.executable, "-c", program], check=True)  # noqa: S603


# -- a transaction that others have begun -------------------------------------------


@ways(PsycopgTransaction)
def test_callbacks_are_not_called_if_the_transaction_goes_on_after_the_task(
    way, caplog
):
    called = []

    async def body(_task):
        await way.insert(1)
        way.transaction.on_commit(lambda: called.append("called"))

    with way.connection.transaction():
        assert way.run(way.task(body)).success

    assert called == []
    assert "was begun outside of the task" in caplog.text
    assert way.rows() == [1]


@ways(PsycopgTransaction)
def test_nothing_is_logged_of_callbacks_if_there_are_none(way, caplog):
    with way.connection.transaction():
        assert way.run(way.task(lambda _task: way.insert(1))).success

    assert caplog.text == ""
    assert way.rows() == [1]


# -- sessions of SQLAlchemy ---------------------------------------------------------


def mapped_effect():
    from sqlalchemy.orm import declarative_base, mapped_column
    from sqlalchemy.types import Integer

    class Effect(declarative_base()):
        __tablename__ = "effect"
        number = mapped_column(Integer, primary_key=True)

    return Effect


def flush_twice(session, effect):
    """Break a rule of the database when the session is flushed, and catch the error."""
    from sqlalchemy.exc import IntegrityError

    session.add(effect(number=1))
    session.flush()
    session.expunge_all()
    session.add(effect(number=1))
    with pytest.raises(IntegrityError):
        session.flush()


@ways(AlchemySession, AlchemySessionBegun, AlchemyScopedSession, PostgresAlchemySession)
def test_a_session_whose_flush_has_failed_is_not_taken_for_committed(way):
    called, effect = [], mapped_effect()

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("called"))
        flush_twice(way.transaction.current(), effect)

    assert_aborted(way.run(way.task(body)))
    assert called == []
    assert way.rows() == []


@ways(AlchemySession)
def test_a_session_that_is_begun_by_hand_does_not_hide_that_its_flush_has_failed(way):
    called, effect = [], mapped_effect()
    with way.opener()() as session:
        transaction = Transaction(session.begin)

        @middleware(transaction)
        class Write(Task[None]):
            def work(self):
                transaction.on_commit(lambda: called.append("called"))
                flush_twice(session, effect)

        assert_aborted(Write.execute())

    assert called == []
    assert way.rows() == []


@ways(AlchemySession)
def test_a_task_inside_whose_flush_has_failed_fails_alone(way):
    effect, results = mapped_effect(), []

    async def flush(_task):
        flush_twice(way.transaction.current(), effect)

    async def body(_task):
        results.append(await way.run_inside(way.task(flush)))
        await way.insert(2)

    assert way.run(way.task(body)).success
    assert_aborted(*results)
    assert way.rows() == [2]


@ways(AlchemyConnection, AlchemySession)
def test_an_error_that_sqlite_survives_is_not_taken_for_an_abort(way):
    called = []

    assert way.run(way.task(catch_error(way, called))).success

    assert called == ["called"]
    assert way.rows() == [1]


# -- SQLite -------------------------------------------------------------------------

SQLITE = [Way, SharedSqlite, SqliteInAsyncRuns, AutocommitSqlite]
if sys.version_info >= (3, 12):
    SQLITE += [ExplicitSqlite, StandardSqlite]


def lose_transaction(way):
    """Have SQLite roll back the whole transaction, and catch the error."""
    with pytest.raises(Exception, match="UNIQUE"):
        way.execute("insert or rollback into effect values (1)")


@ways(*SQLITE)
def test_a_transaction_that_sqlite_has_rolled_back_is_not_taken_for_committed(
    way, caplog
):
    called = []

    async def body(_task):
        way.transaction.on_commit(lambda: called.append("called"))
        await way.insert(1)
        lose_transaction(way)

    assert_aborted(way.run(way.task(body)))
    assert called == []
    assert caplog.records == []
    assert way.rows() == []


@ways(Way, SharedSqlite)
def test_a_transaction_that_begins_anew_in_work_is_not_taken_for_committed(way):
    async def body(_task):
        await way.insert(1)
        lose_transaction(way)
        await way.insert(2)

    assert_aborted(way.run(way.task(body)))
    assert way.rows() == []


@ways(Django)
def test_a_block_of_django_that_sqlite_has_rolled_back_is_not_taken_for_committed(way):
    async def body(_task):
        await way.insert(1)
        lose_transaction(way)

    assert_aborted(way.run(way.task(body)))
    assert way.rows() == []


@ways(Way, AutocommitSqlite)
def test_a_task_inside_cannot_begin_after_sqlite_has_rolled_back(way):
    called, results = [], []

    async def write(_task):
        called.append("called")

    async def body(_task):
        await way.insert(1)
        lose_transaction(way)
        results.append(await way.run_inside(way.task(write)))

    assert_aborted(way.run(way.task(body)))
    assert isinstance(results[0].cause, TransactionAborted)
    assert called == []


@ways(Way)
def test_a_task_inside_that_loses_the_transaction_fails(way):
    results = []

    async def lose(_task):
        await way.insert(1)
        lose_transaction(way)

    async def body(_task):
        results.append(await way.run_inside(way.task(lose)))

    assert_aborted(way.run(way.task(body)))
    assert_aborted(*results)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_work_that_ends_the_transaction_of_sqlite_itself_fails(tmp_path, end):
    connection = sqlite3.connect(tmp_path / "app.db")

    @middleware(Transaction(lambda: nullcontext(connection)))
    class Write(Task[None]):
        def work(self):
            getattr(connection, end)()

    assert_aborted(Write.execute(), "commit() or rollback()")
    connection.close()
