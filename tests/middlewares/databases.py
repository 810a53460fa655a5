"""
Ways to give a ``Transaction`` a database, for the tests.

Each has a table ``effect`` of its own. A test writes the body of its task once, as a
coroutine; where the way is a synchronous one, the coroutine never suspends.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing, contextmanager, nullcontext
from inspect import isawaitable
from urllib.parse import urlsplit

from services import postgres_schema

from cmdx import Task, middleware
from cmdx.middlewares import Transaction

INSERT = "insert into effect values ({})"


def run_plainly(steps):
    """Run a coroutine that never suspends."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it was to be awaited")


class Way:
    """A connection of ``sqlite3``, closed after each run."""

    is_async = False
    is_postgres = False

    def __init__(self, address):
        self.address = address
        with self.other_connection() as connection:
            connection.execute("create table effect (number integer unique)")
            connection.commit()
        self.transaction = Transaction(self.factory())

    def other_connection(self):
        return closing(sqlite3.connect(self.address))

    def rows(self):
        """Return what is stored, as another connection sees it."""
        with self.other_connection() as connection:
            found = connection.execute("select number from effect order by number")
            return [number for (number,) in found]

    def factory(self):
        return lambda: closing(sqlite3.connect(self.address))

    async def insert(self, number):
        """Write a row by the connection of the running task."""
        done = self.execute(INSERT.format(number))
        if isawaitable(done):
            await done

    def execute(self, sql):
        return self.transaction.current().execute(sql)

    def task(self, body, *decorators, base=Task):
        """Return a task that runs *body* in the transaction."""

        async def awaiting_work(task):
            return await body(task)

        def work(task):
            return run_plainly(body(task))

        names = {"work": awaiting_work if self.is_async else work}
        task = type("Write", (base,), names)
        for decorate in (middleware(self.transaction), *decorators):
            task = decorate(task)
        return task

    async def run_inside(self, task):
        """Run another task inside of a body."""
        return await task.aexecute() if self.is_async else task.execute()

    def run(self, task):
        return asyncio.run(task.aexecute()) if self.is_async else task.execute()


class SharedSqlite(Way):
    """A connection that stays open."""

    def factory(self):
        self.connection = sqlite3.connect(self.address, isolation_level="IMMEDIATE")
        return lambda: self.connection

    def close(self):
        self.connection.close()


class SqliteInAsyncRuns(Way):
    is_async = True


class AutocommitSqlite(Way):
    """One in which each statement would be committed at once."""

    def factory(self):
        return lambda: closing(sqlite3.connect(self.address, isolation_level=None))


class ExplicitSqlite(Way):
    """One whose methods do nothing, since Python 3.12."""

    def factory(self):
        return lambda: closing(sqlite3.connect(self.address, autocommit=True))


class StandardSqlite(Way):
    """One that always has a transaction open, since Python 3.12."""

    def factory(self):
        return lambda: closing(sqlite3.connect(self.address, autocommit=False))


class Psycopg(Way):
    is_postgres = True

    def other_connection(self):
        import psycopg

        return psycopg.connect(self.address)

    def factory(self):
        return self.other_connection


class AutocommitPsycopg(Psycopg):
    def factory(self):
        import psycopg

        return lambda: psycopg.connect(self.address, autocommit=True)


class PsycopgTransaction(Psycopg):
    """A context manager that decides by the exception, on a connection that is kept."""

    def factory(self):
        self.connection = self.other_connection()
        return self.connection.transaction

    def execute(self, sql):
        return self.connection.execute(sql)

    def close(self):
        self.connection.close()


class PsycopgPool(Psycopg):
    def factory(self):
        from psycopg_pool import ConnectionPool

        self.pool = ConnectionPool(self.address, min_size=1, max_size=1, open=True)
        return self.pool.connection

    def close(self):
        self.pool.close()


class AsyncPsycopg(Psycopg):
    is_async = True

    def factory(self):
        import psycopg

        return lambda: psycopg.AsyncConnection.connect(self.address)


class AsyncAutocommitPsycopg(AsyncPsycopg):
    def factory(self):
        import psycopg

        connect = psycopg.AsyncConnection.connect
        return lambda: connect(self.address, autocommit=True)


class AlchemySession(Way):
    def factory(self):
        from sqlalchemy import NullPool, create_engine

        self.engine = create_engine(self.engine_address(), poolclass=NullPool)
        return self.opener()

    def engine_address(self):
        return f"sqlite:///{self.address}"

    def opener(self):
        from sqlalchemy.orm import sessionmaker

        return sessionmaker(self.engine)

    def execute(self, sql):
        from sqlalchemy import text

        return self.transaction.current().execute(text(sql))


class AlchemySessionBegun(AlchemySession):
    def opener(self):
        return super().opener().begin


class AlchemyScopedSession(AlchemySession):
    """A session for each thread, which stays open."""

    def opener(self):
        from sqlalchemy.orm import scoped_session

        self.session = scoped_session(super().opener())
        return lambda: nullcontext(self.session)

    def close(self):
        self.session.remove()


class AlchemyConnection(AlchemySession):
    def opener(self):
        return self.engine.connect


class AlchemyEngineBegun(AlchemySession):
    def opener(self):
        return self.engine.begin


class OnPostgres:
    is_postgres = True
    other_connection = Psycopg.other_connection

    def engine_address(self):
        return self.address.replace("postgresql://", "postgresql+psycopg://", 1)


class PostgresAlchemySession(OnPostgres, AlchemySession):
    pass


class PostgresAlchemySessionBegun(OnPostgres, AlchemySessionBegun):
    pass


class PostgresAlchemyConnection(OnPostgres, AlchemyConnection):
    pass


class AsyncAlchemySession(PostgresAlchemySession):
    is_async = True

    def factory(self):
        from sqlalchemy import NullPool
        from sqlalchemy.ext.asyncio import create_async_engine

        self.engine = create_async_engine(self.engine_address(), poolclass=NullPool)
        return self.opener()

    def opener(self):
        from sqlalchemy.ext.asyncio import async_sessionmaker

        return async_sessionmaker(self.engine)


class AsyncAlchemySessionBegun(AsyncAlchemySession):
    def opener(self):
        return super().opener().begin


class AsyncAlchemyConnection(AsyncAlchemySession):
    def opener(self):
        return self.engine.connect


class Django(Way):
    """``transaction.atomic``, on the databases of a project."""

    def factory(self):
        import django
        from django.apps import apps
        from django.conf import settings
        from django.db import transaction
        from django.db.utils import ConnectionHandler

        if not settings.configured:
            settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        if not apps.ready:
            django.setup()
        self.module, self.original = transaction, transaction.connections
        self.module.connections = ConnectionHandler({"default": self.database()})
        return transaction.atomic

    def database(self):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.address}

    def execute(self, sql):
        with self.module.connections["default"].cursor() as cursor:
            cursor.execute(sql)

    def close(self):
        self.module.connections["default"].close()
        self.module.connections = self.original


class PostgresDjango(OnPostgres, Django):
    def database(self):
        parts = urlsplit(self.address)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path[1:],
            "USER": parts.username or "",
            "PASSWORD": parts.password or "",
            "HOST": parts.hostname,
            "PORT": parts.port,
            "OPTIONS": {"options": self.options()},
        }

    def options(self):
        from psycopg.conninfo import conninfo_to_dict

        return conninfo_to_dict(self.address)["options"]


WAYS = [
    Way, SharedSqlite, SqliteInAsyncRuns, AutocommitSqlite, Psycopg, AutocommitPsycopg,
    PsycopgTransaction, PsycopgPool, AsyncPsycopg, AsyncAutocommitPsycopg,
    AlchemySession, AlchemySessionBegun, AlchemyScopedSession, AlchemyConnection,
    AlchemyEngineBegun, PostgresAlchemySession, PostgresAlchemySessionBegun,
    PostgresAlchemyConnection, AsyncAlchemySession, AsyncAlchemySessionBegun,
    AsyncAlchemyConnection, Django, PostgresDjango,
]  # fmt: skip
if sys.version_info >= (3, 12):
    WAYS += [ExplicitSqlite, StandardSqlite]


@contextmanager
def opened(kind, folder):
    """Open a way to a database that nobody else uses."""
    with postgres_schema() if kind.is_postgres else nullcontext() as address:
        way = kind(address or str(folder / "app.db"))
        try:
            yield way
        finally:
            getattr(way, "close", lambda: None)()
