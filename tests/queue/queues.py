"""What the tests of the queue share: stores, stored rows, callers that meet."""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import cache
from threading import Thread

import pytest
from services import postgres_schema

from cmdx import clock
from cmdx.stores import SqliteStore

PATIENCE = 30.0
"""Seconds after which something that never comes has failed."""

on_each_store = pytest.mark.parametrize(
    "store", ["memory", "file", "postgresql"], indirect=True
)
on_each_server = pytest.mark.parametrize("store", ["file", "postgresql"], indirect=True)
"""Databases that other connections can reach."""


# -- time ------------------------------------------------------------------------------


class StillClock(clock.Clock):
    """Time stands still, that of the wall too."""

    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return 2.0**30  # a time in 2004; sums of it and parts of a second are exact


# -- stores ----------------------------------------------------------------------------


class Servers:
    """The PostgreSQL store of a session of tests: a schema of its own, opened once."""

    def __init__(self):
        self._stack = ExitStack()

    @cache  # noqa: B019 -- there is one
    def store(self):
        address = self._stack.enter_context(postgres_schema())
        store = self._stack.enter_context(postgres_store(address, migrate=True))
        store.address = address
        return store

    def close(self):
        self._stack.close()


def postgres_store(address, **options):
    """Open a store whose server has our clock, so that times are exact."""
    from cmdx.stores import PostgresStore

    class SameClock(PostgresStore):
        def _measure(self, statements):
            super()._measure(statements)
            self._offset = 0.0

    return SameClock(address, **options)


def empty_tables(store):
    """Remove what the test before has left."""

    def remove(statements):
        for table in ("cmdx_job", "cmdx_queue", "cmdx_worker", "cmdx_schedule"):
            statements.execute(f"delete from {table}")  # noqa: S608

    store.transact(remove)


@contextmanager
def new_store(kind, directory, servers):
    """Open a store of a kind, whose tables are empty."""
    if kind == "memory":
        with SqliteStore() as store:
            yield store
    elif kind == "file":
        with SqliteStore(directory / "app.db") as store:
            yield store
    else:
        store = servers.store()
        empty_tables(store)
        yield store


def is_postgres(store):
    return store.name.startswith("postgresql")


@contextmanager
def other_connection(store):
    """Open a connection of the user's to the database of *store*."""
    if is_postgres(store):
        import psycopg

        connection = psycopg.connect(store.address)
    else:
        connection = sqlite3.connect(
            store.name, timeout=PATIENCE, check_same_thread=False
        )
    try:
        yield connection
    finally:
        connection.close()


def column(job, name):
    """Return what is stored in one column of a job."""
    sql = f"select {name} from cmdx_job where id = :id"  # noqa: S608
    store = job._queue.store
    rows = store.transact(lambda statements: statements.execute(sql, id=job.id))
    return rows[0][0] if rows else None


def edit(job, **columns):
    """Change what is stored about a job, as somebody else may."""
    assigned = ", ".join(f"{name} = :{name}" for name in columns)
    sql = f"update cmdx_job set {assigned} where id = :id"  # noqa: S608
    store = job._queue.store
    store.transact(lambda statements: statements.execute(sql, **columns, id=job.id))


def is_empty(queue):
    """Tell whether no job is stored."""
    return not any(queue.counts().values())


# -- callers ---------------------------------------------------------------------------


def in_thread(call):
    """Start *call* in a thread that has our clock; return its future."""
    future = Future()

    def run():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return future


@contextmanager
def collected(*signals):
    """Collect what signals send during the block: their names and what they say."""
    sent = []
    with ExitStack() as stack:
        for signal in signals:
            receive = receiver(sent, signal.name)
            stack.enter_context(signal.connected_to(receive))
        yield sent


def receiver(sent, name):
    def receive(sender, **payload):
        sent.append((name, {"sender": sender, **payload}))

    return receive
