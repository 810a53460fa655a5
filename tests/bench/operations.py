"""
The rows about operations on SQLite: what a ledger adds to the bare statements.

A bare commit writes the same row as the ledger does, with the same settings.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from measuring import Call, Row

from cmdx import Task
from cmdx.operations import Ledger, operation
from cmdx.operations.records import INSERT, LOAD, UPDATE, columns_of, load_record
from cmdx.stores.statements import sqlite_query

FOLDER = TemporaryDirectory()


class Charge(Task[int], name="bench.charge"):
    order: int

    def work(self):
        return self.order


@operation(persist=True)
class ChargeSurely(Charge, name="bench.charge_surely"):
    pass


@cache
def session():
    ledger = Ledger(Path(FOLDER.name, "ledger.db"))
    return ledger.session("bench")


numbers = count()


def admit_and_seal(cls):
    return lambda: session().run(cls(order=7), id=f"charge-{next(numbers)}")


def replay():
    return session().run(Charge(order=7), id="replayed")


class Bare:
    """The same statements without a ledger."""

    def __init__(self, name, synchronous):
        path = Path(FOLDER.name, name)
        Ledger(path)  # creates the tables
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute(f"pragma synchronous = {synchronous}")
        self.connection.execute("pragma wal_autocheckpoint = 0")
        replay()
        store = session().ledger.store
        record = store.transact(lambda rows: load_record(rows, "bench", "replayed"))
        self.sealed = columns_of(record)
        self.admitted = {**self.sealed, "state": "live", "outcome": None}
        self.connection.execute(sqlite_query(INSERT), self.sealed)

    def commit(self, sql, values):
        self.connection.execute("begin immediate")
        self.connection.execute(sqlite_query(sql), values)
        self.connection.execute("commit")

    def two_commits(self):
        name = f"charge-{next(numbers)}"
        self.commit(INSERT, {**self.admitted, "id": name})
        self.commit(UPDATE, {**self.sealed, "id": name})

    def select(self):
        values = {"session": "bench", "id": "replayed"}
        self.connection.execute(sqlite_query(LOAD), values).fetchall()


@cache
def bare(name, synchronous):
    return Bare(name, synchronous)


# The goals are 3, 1.5 and 8; the targets guard what is reached.
ROWS = [
    Row(
        "operation",
        Call(admit_and_seal(Charge)),
        "two bare commits",
        Call(lambda: bare("bare.db", "normal").two_commits()),
        at_most=5,
    ),
    Row(
        "operation, with sync",
        Call(admit_and_seal(ChargeSurely)),
        "two bare commits, with sync",
        Call(lambda: bare("bare-sync.db", "full").two_commits()),
        at_most=2,
    ),
    Row(
        "replay",
        Call(replay),
        "bare select",
        Call(lambda: bare("bare.db", "normal").select()),
        at_most=12,
    ),
]
