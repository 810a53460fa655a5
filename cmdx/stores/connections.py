"""
The user's connection to the database of a store.

It is recognised by its type, without importing a driver, and by the id of the store in
``cmdx_schema``. What is written through it belongs to the user's transaction.

The methods are coroutines, because those of an asynchronous connection have to be
awaited. Those of the others never suspend.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import lru_cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from cmdx.clock import Clock
from cmdx.stores.busy import BusyWait
from cmdx.stores.errors import StoreError
from cmdx.stores.statements import TOKENS, sqlite_query
from cmdx.stores.store import MEMORY

if TYPE_CHECKING:
    from cmdx.stores.statements import Row, Value
    from cmdx.stores.store import Store


class UserConnection(Protocol):
    """What other packages do with the user's connection."""

    dialect: str
    is_async: bool

    def is_idle(self) -> bool:
        """Tell whether no transaction is open."""
        ...

    def is_closed(self) -> bool:
        """Tell whether the connection cannot be used any more."""
        ...

    def is_lost(self) -> bool:
        """Tell whether the server is gone, and has rolled back the transaction."""
        ...

    async def begin(self, *, awaits: bool) -> None:
        """Begin a transaction that may write; if *awaits*, without blocking a loop."""
        ...

    async def execute(self, sql: str, /, **values: Value) -> list[Row]:
        """Run one statement, written for ``Statements``, and return its rows."""
        ...


class UserSqlite:
    """A connection of ``sqlite3``."""

    dialect = "sqlite"
    is_async = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def is_idle(self) -> bool:
        """Tell whether no transaction is open."""
        return not self.connection.in_transaction

    def is_closed(self) -> bool:
        """Tell whether the connection cannot be used any more."""
        try:
            self.connection.total_changes  # noqa: B018 -- it raises if it is closed
        except Exception as error:
            return "closed" in str(error)
        return False

    def is_lost(self) -> bool:
        """Return False: there is no server."""
        return False

    async def begin(self, *, awaits: bool) -> None:
        """Begin a transaction that may write; if *awaits*, without blocking a loop."""
        if not awaits:
            await self.execute("begin immediate")
            return
        # Whatever holds the file may need the event loop to go on.
        ((patience,),) = await self.execute("pragma busy_timeout")
        await self.execute("pragma busy_timeout = 0")
        try:
            await self._begin_patiently(patience / 1000)
        finally:
            await self.execute(f"pragma busy_timeout = {patience}")

    async def _begin_patiently(self, seconds: float) -> None:
        wait = BusyWait(seconds)
        while True:
            try:
                await self.execute("begin immediate")
            except sqlite_errors() as error:
                pause = wait.pause_after(error)
            else:
                return
            await Clock().asleep(pause)

    async def execute(self, sql: str, /, **values: Value) -> list[Row]:
        """Run one statement and return its rows as plain tuples."""
        cursor = self.connection.cursor()
        cursor.row_factory = None  # whatever the user has set
        text_factory = self.connection.text_factory  # which cursors do not have
        try:
            self.connection.text_factory = str
            cursor.execute(sqlite_query(sql), values)
            return cursor.fetchall() if cursor.description else []
        finally:
            self.connection.text_factory = text_factory
            cursor.close()


class UserPostgres:
    """A connection of psycopg."""

    dialect = "postgresql"
    is_async = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def is_idle(self) -> bool:
        """Tell whether no transaction is open."""
        return bool(self.connection.info.transaction_status == 0)

    def is_closed(self) -> bool:
        """Tell whether the connection cannot be used any more."""
        return bool(self.connection.closed)

    def is_lost(self) -> bool:
        """Tell whether the server is gone, and has rolled back the transaction."""
        return bool(self.connection.broken)

    async def begin(self, *, awaits: bool) -> None:
        """Begin a transaction; psycopg does so itself unless it is in autocommit."""
        del awaits
        if self.connection.autocommit:
            await self.execute("begin")

    async def execute(self, sql: str, /, **values: Value) -> list[Row]:
        """Run one statement and return its rows as plain tuples."""
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        # Not the user's kind of cursor, which may want values in another form.
        with Cursor(self.connection, row_factory=tuple_row) as cursor:
            cursor.execute(psycopg_query(sql), values)
            return cursor.fetchall() if cursor.description else []


class UserAsyncPostgres(UserPostgres):
    """An asynchronous connection of psycopg."""

    is_async = True

    async def execute(self, sql: str, /, **values: Value) -> list[Row]:
        """Run one statement and return its rows as plain tuples."""
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self.connection, row_factory=tuple_row) as cursor:
            await cursor.execute(psycopg_query(sql), values)
            return await cursor.fetchall() if cursor.description else []


@lru_cache(maxsize=256)
def psycopg_query(sql: str) -> bytes:
    """Return *sql* with values as psycopg wants them, ``%(name)s``."""
    pieces, end = [], 0
    for token in TOKENS.finditer(sql):
        if token.lastgroup == "value":
            pieces += [
                sql[end : token.start()].replace("%", "%%"),
                f"%({token[0][1:]})s",
            ]
            end = token.end()
    return "".join([*pieces, sql[end:].replace("%", "%%")]).encode()


def is_async_connection(connection: object) -> bool:
    """Tell whether what a connection returns has to be awaited."""
    found = known_connection(connection)
    if found is not None:
        return found.is_async
    return "sqlalchemy.ext.asyncio" in packages_of(connection, 3)


def packages_of(given: object, depth: int) -> set[str]:
    """Return where the class of an object and its ancestors come from."""
    modules = (base.__module__.split(".") for base in type(given).__mro__)
    return {".".join(module[:depth]) for module in modules}


async def unwrapped_connection(given: Any) -> Any:
    """
    Return the connection of the driver behind what a framework has around it.

    Known are ``Connection``, ``Session`` and ``scoped_session`` of SQLAlchemy with
    their asynchronous forms, what its ``raw_connection()`` returns, and connections of
    Django; anything else is returned as it is.
    """
    packages = packages_of(given, 1)
    if "sqlalchemy" in packages:
        return await sqlalchemy_connection(given)
    if "django" in packages and hasattr(given, "ensure_connection"):
        given.ensure_connection()
        return given.connection
    return given


async def sqlalchemy_connection(given: Any) -> Any:
    """Return the connection of the driver that SQLAlchemy uses, in a transaction."""
    if callable(getattr(type(given), "connection", None)):  # a session
        given = given.connection()
        if isawaitable(given):
            given = await given
    if hasattr(type(given), "driver_connection"):
        return raw_connection(given)
    if not hasattr(given, "in_transaction"):
        return given  # an engine, for example
    is_begun = given.in_transaction()
    # SQLAlchemy does not see what we do, and would have nothing to commit.
    if hasattr(given, "get_raw_connection"):
        if not is_begun:
            await given.begin()
        return (await given.get_raw_connection()).driver_connection
    if not is_begun:
        given.begin()
    return given.connection.driver_connection


def raw_connection(given: Any) -> Any:
    """Return the connection in what ``raw_connection()`` of an engine has returned."""
    connection = given.driver_connection
    if connection is None:
        raise StoreError("the connection was closed", "Pass one that is open")
    return connection  # SQLAlchemy begins and commits nothing for it


async def user_connection(connection: object, store: Store) -> UserConnection:
    """Return the user's connection; refuse one to another database."""
    found = known_connection(connection)
    if found is None:
        raise not_usable(connection)
    refuse_mode(connection, found.dialect)
    if store.name == MEMORY:
        raise StoreError(
            "a store in memory has no connection but its own",
            "Use a file, so that your connection can share its transactions",
        )
    if await store_id_of(found) != store.id:
        path = "" if found.dialect == "sqlite" else ", and with the same search_path"
        raise StoreError(
            f"the connection is not one to {store.name}",
            f"Pass a connection to the database that the store was opened with{path}",
        )
    return found


USE_PSYCOPG = "Use psycopg 3, with SQLAlchemy as postgresql+psycopg://"
USE_SQLITE3 = (
    "Use sqlite3, with SQLAlchemy as sqlite://; coroutines may pass its connections too"
)
OTHER_DRIVERS = {
    "asyncpg": USE_PSYCOPG,
    "pg8000": USE_PSYCOPG,
    "psycopg2": USE_PSYCOPG,
    "aiosqlite": USE_SQLITE3,
}
"""What to use instead of drivers whose connections cannot be used, by packages."""


def not_usable(given: object) -> TypeError:
    """Return the error for what is no connection, or one of another driver."""
    driver = next(iter(packages_of(given, 1) & OTHER_DRIVERS.keys()), None)
    if driver is not None:
        got, cure = f"one of {driver}", OTHER_DRIVERS[driver]
    else:
        got = f"an instance of {class_name(given)}"  # its value may have a password
        cure = (
            "Pass the connection itself, not an address, a cursor, an engine or a pool"
        )
    message = f"a connection of sqlite3 or psycopg is needed, got {got}. {cure}."
    return TypeError(message)


def class_name(given: object) -> str:
    """Return the name of the class of an object, with its module."""
    kind = type(given)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def refuse_mode(connection: Any, dialect: str) -> None:
    """Refuse a connection in a mode in which its transactions cannot be used."""
    if dialect == "sqlite" and getattr(connection, "autocommit", None) is False:
        raise StoreError(
            "the connection was opened with autocommit=False, so it is never idle",
            "Open it with autocommit=True, or without that argument",
        )
    if dialect == "postgresql" and connection.info.pipeline_status:
        raise StoreError(
            "the connection is in pipeline mode, in which the database answers too "
            "late",
            "Leave the block of connection.pipeline() first",
        )


def known_connection(connection: object) -> UserConnection | None:
    """Return what wraps a connection, by its type; None if nothing does."""
    sqlite3, psycopg = sys.modules.get("sqlite3"), sys.modules.get("psycopg")
    if sqlite3 is not None and isinstance(connection, sqlite3.Connection):
        return UserSqlite(connection)
    if psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        return UserAsyncPostgres(connection)
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return UserPostgres(connection)
    return None


def is_missing_table(error: BaseException) -> bool:
    """Tell whether a driver says that there is no such table."""
    is_postgres = type(error).__name__ == "UndefinedTable"
    return is_postgres or str(error).startswith("no such table")


def sqlite_errors() -> type[Exception]:
    """Return what ``sqlite3`` raises; it is imported where there is a connection."""
    import sqlite3

    return sqlite3.OperationalError


async def store_id_of(connection: UserConnection) -> str | None:
    """Return the id of the store in the database of a connection, None without one."""
    was_idle = connection.is_idle()
    try:
        rows = await connection.execute("select store from cmdx_schema")
    except BaseException as error:
        with suppress(Exception):  # an interrupt may have closed the connection
            await leave_transaction(connection, was_idle=was_idle)
        if not is_missing_table(error):
            raise
        return None
    await leave_transaction(connection, was_idle=was_idle)
    return str(rows[0][0]) if rows else None


async def leave_transaction(connection: UserConnection, *, was_idle: bool) -> None:
    """Roll back what psycopg has begun by itself."""
    if was_idle and not connection.is_idle():
        await connection.execute("rollback")
