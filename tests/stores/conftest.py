"""Stores to test: in memory, in a file, on PostgreSQL; each with a table of notes."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack

import pytest
from services import postgres_schema

from cmdx.stores import PostgresStore, SqliteStore

CREATE = "create table if not exists note (id integer, words text)"


class Place:
    """A database for one test, with all stores that the test opens on it."""

    def __init__(self, kind, address):
        self.kind, self.address = kind, address
        self.stores = []

    def open(self, **options):
        """Open a store; those of a file or a server can be several."""
        if self.kind == "postgres":
            store = PostgresStore(self.address, **{"migrate": True, **options})
        else:
            store = SqliteStore(self.address, **options)
        self.stores.append(store)
        store.transact(lambda statements: statements.execute(CREATE))
        return store

    def connect(self):
        """Open a plain connection of the driver, which commits each statement."""
        if self.kind == "postgres":
            import psycopg

            return psycopg.connect(self.address, autocommit=True)
        return sqlite3.connect(self.address, isolation_level=None, timeout=30)

    def close(self):
        for store in self.stores:
            store.close()


@pytest.fixture(autouse=True)
def _short_lived_threads(monkeypatch):
    """Have threads in the background end soon, so that tests do not see others'."""
    monkeypatch.setattr("cmdx.stores.background.LINGER", 0.05)


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def new_place(kind, tmp_path, stack):
    if kind == "memory":
        place = Place(kind, ":memory:")
    elif kind == "file":
        place = Place(kind, str(tmp_path / "notes.db"))
    else:
        place = Place(kind, stack.enter_context(postgres_schema()))
    stack.callback(place.close)
    return place


@pytest.fixture(params=["memory", "file", "postgres"])
def place(request, tmp_path, stack):
    return new_place(request.param, tmp_path, stack)


@pytest.fixture(params=["file", "postgres"])
def shared_place(request, tmp_path, stack):
    """A place that other processes can open too."""
    return new_place(request.param, tmp_path, stack)


@pytest.fixture
def postgres_place(tmp_path, stack):
    return new_place("postgres", tmp_path, stack)


@pytest.fixture
def file_place(tmp_path, stack):
    return new_place("file", tmp_path, stack)


@pytest.fixture
def store(place):
    return place.open()


@pytest.fixture
def shared_store(shared_place):
    return shared_place.open()


@pytest.fixture
def memory_store(tmp_path, stack):
    return new_place("memory", tmp_path, stack).open()


@pytest.fixture
def file_store(file_place):
    return file_place.open()


@pytest.fixture
def postgres_store(postgres_place):
    return postgres_place.open()
