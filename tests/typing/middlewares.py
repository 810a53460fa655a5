"""What type checkers say about shipped middlewares; checked by them, never run."""

from __future__ import annotations

import sqlite3
from contextlib import (
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING, Any, assert_type

from cmdx import Result, Task, middleware
from cmdx.middlewares import Transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# -- Transaction ----------------------------------------------------------------


def connect() -> sqlite3.Connection:
    return sqlite3.connect("app.db")


def connect_for(task: Task[Any]) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(task.context.path))


async def connect_later() -> closing[sqlite3.Connection]:
    return closing(connect())


@contextmanager
def atomic() -> Iterator[None]:
    yield


@asynccontextmanager
async def acquire() -> AsyncIterator[bytes]:
    yield b""


database = Transaction(lambda: closing(sqlite3.connect("app.db")))

assert_type(database, Transaction[sqlite3.Connection])
assert_type(Transaction(connect).current(), sqlite3.Connection)
assert_type(Transaction(connect_for).current(), sqlite3.Connection)
assert_type(Transaction(lambda: nullcontext(3)).current(), int)
assert_type(Transaction(acquire).current(), bytes)
Transaction(connect_later).current().execute("select 1")
Transaction(atomic)


@middleware(database)
class Pay(Task[int]):
    def work(self) -> int:
        database.on_commit(lambda: print("paid"))  # noqa: T201
        return database.current().total_changes


assert_type(Pay.execute(), Result[int])

Transaction()  # type: ignore[call-arg]
Transaction("app.db")  # type: ignore[arg-type]
Transaction(lambda: 3)  # type: ignore[arg-type,return-value]
database.on_commit(print, 3)  # type: ignore[call-arg]
