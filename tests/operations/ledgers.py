"""What the tests of the ledger share: stores, callers that meet, and records."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event, Thread, current_thread

import pytest
from services import postgres_schema

from cmdx import clock
from cmdx.operations import OperationPolicy
from cmdx.operations.leases import LeaseKeeper
from cmdx.operations.table import Request, new_record
from cmdx.stores import SqliteStore, StoreUnavailable

PATIENCE = 30.0
"""Seconds after which something that never comes has failed."""

LEASE = 30.0

on_each_store = pytest.mark.parametrize(
    "store", ["memory", "file", "postgresql"], indirect=True
)
on_each_server = pytest.mark.parametrize("store", ["file", "postgresql"], indirect=True)
"""Databases that other connections can reach."""


# -- callers ---------------------------------------------------------------------------


class Stop:
    """A place in ``work`` that waits until the test lets it go on."""

    def __init__(self):
        self.reached, self.go_on = Event(), Event()

    def wait(self):
        self.reached.set()
        assert self.go_on.wait(PATIENCE)

    def let_go(self):
        assert self.reached.wait(PATIENCE)
        self.go_on.set()


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
def running(call, stop):
    """Have a thread be in the middle of *call*, at *stop*, during the block."""
    future = in_thread(call)
    assert stop.reached.wait(PATIENCE)
    try:
        yield future
    finally:
        stop.go_on.set()
    future.exception(PATIENCE)


class Arrivals:
    """Tells when so many callers were answered by the store for the first time."""

    def __init__(self, store, count):
        self.count, self.callers, self.all_here = count, set(), Event()
        store.at = self.note

    def note(self, point):
        if point == "after commit":
            self.callers.add(current_caller())
            if len(self.callers) >= self.count:
                self.all_here.set()

    def wait(self):
        assert self.all_here.wait(PATIENCE)

    async def await_all(self):
        while not self.all_here.is_set():  # noqa: ASYNC110 -- threads set it too
            await asyncio.sleep(0)


def current_caller():
    """Return what tells one thread or coroutine from another."""
    try:
        return asyncio.current_task() or current_thread()
    except RuntimeError:
        return current_thread()


class SteppedStore(SqliteStore):
    """In memory; every call of a coroutine is done in three steps of the event loop."""

    async def atransact(self, unit, **options):
        await asyncio.sleep(0)
        value = self.transact(unit, **options)
        await asyncio.sleep(0)
        return value

    async def await_commit(self, _timeout=None, since=None):
        while self.version() == since:  # noqa: ASYNC110 -- in steps, as it says
            await asyncio.sleep(0)
        return True


def run_async(steps):
    """Run a coroutine in an event loop of its own; it must not wait for ever."""

    async def main():
        return await asyncio.wait_for(steps, PATIENCE)

    return asyncio.run(main())


class QuietKeeper(LeaseKeeper):
    """Beats when it is told to, and never by itself."""

    def _wake_thread(self):
        return None


async def steps(count):
    """Let the event loop go on for so many steps."""
    for _ in range(count):
        await asyncio.sleep(0)


# -- stores ----------------------------------------------------------------------------


@contextmanager
def new_store(kind, directory):
    """Open a store of a kind; on PostgreSQL it has a schema of its own."""
    if kind == "memory":
        with SqliteStore() as store:
            yield store
    elif kind == "file":
        with SqliteStore(directory / "app.db") as store:
            yield store
    else:
        with postgres_schema() as address:
            from cmdx.stores import PostgresStore

            with PostgresStore(address, migrate=True) as store:
                store.address = address
                yield store


def is_postgres(store):
    return store.name.startswith("postgresql")


def fail_from_now_on(store, count=None, error=None):
    """Have the next *count* transactions of *store* not begin; all by default."""
    failures = iter(range(10**9 if count is None else count))

    def fail(point):
        if point == "before begin" and next(failures, None) is not None:
            raise error or StoreUnavailable("the store is away", "Try again")

    store.at = fail


def after_admission(store, do):
    """Call *do* when the next transaction that changes something is committed."""
    written = store._written

    def act(point):
        if point == "after commit" and store._written != written:
            come_back(store)
            do()

    store.at = act


class Died(BaseException):
    """The process is gone, and does nothing any more."""


def die_after_admission(store):
    """Have the process die when the next transaction that changes something is over."""

    def die():
        store.at = die_again
        raise Died

    def die_again(_point):
        raise Died

    after_admission(store, die)


def come_back(store):
    """End ``fail_from_now_on``."""
    store.at = lambda _point: None


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


def admitted(key):
    """Return the record of an operation that was admitted."""
    policy = OperationPolicy()
    return new_record(
        Request("shop", key, "t", "m", "f", policy, f"owner of {key}"), 0, 1
    )


def row_of(store, key, column="state"):
    """Return what is stored about the operation with the id *key*."""
    sql = f"select {column} from cmdx_operation where id = :id"  # noqa: S608
    rows = store.transact(lambda statements: statements.execute(sql, id=key))
    return rows[0][0] if rows else None


def edit_row(store, key, **columns):
    """Change what is stored about an operation, as somebody else may."""
    assigned = ", ".join(f"{name} = :{name}" for name in columns)
    sql = f"update cmdx_operation set {assigned} where id = :id"  # noqa: S608
    store.transact(lambda statements: statements.execute(sql, **columns, id=key))


def beat(ledger, seconds=LEASE):
    """Have the leases that are due within *seconds* be extended now."""
    ledger.lease_keeper.do_what_is_due(clock.Clock.monotonic() + seconds)


# -- processes -------------------------------------------------------------------------


def wait_until(is_so):
    """Look again and again, for what other processes do."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)
