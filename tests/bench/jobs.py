"""
The rows about jobs on SQLite: what a queue adds to the bare statements.

A bare insert writes the same row as the queue does, with the same settings. How many
jobs per second go through is measured by ``throughput.py``, with other queues.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_tasks import Add
from measuring import Call, Row

from cmdx.queue import Queue
from cmdx.queue.enqueue import new_row
from cmdx.queue.records import INSERT
from cmdx.stores.statements import sqlite_query

FOLDER = TemporaryDirectory()
numbers = count()


@cache
def queue():
    return Queue(Path(FOLDER.name, "queue.db"))


def enqueue():
    return queue().enqueue(Add(number=7))


class Bare:
    """The same statement without a queue."""

    def __init__(self):
        other = Queue(Path(FOLDER.name, "bare.db"))  # creates the tables
        self.row = new_row(other, Add(number=7), {}, other.store.now())
        path = Path(FOLDER.name, "bare.db")
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("pragma synchronous = normal")
        self.connection.execute("pragma wal_autocheckpoint = 0")

    def insert(self):
        execute = self.connection.execute
        execute("begin immediate")
        row = {**self.row, "id": f"{self.row['id']}-{next(numbers)}"}
        execute(sqlite_query(INSERT), row)
        execute("commit")


@cache
def bare():
    return Bare()


# The goal is 2; the target guards what is reached.
ROWS = [
    Row(
        "enqueue",
        Call(enqueue),
        "bare insert",
        Call(lambda: bare().insert()),
        at_most=5,
    ),
]
