"""
Transactions and savepoints of whatever a factory returns.

A context manager is entered as ``with`` would do it. What it returns is recognised by
what it can do, so that no driver has to be imported:

==============================  =======================  ==========================
it has                          a transaction            a savepoint
==============================  =======================  ==========================
``commit``, ``begin_nested``    ends by ``commit()`` or  ``begin_nested()``
(SQLAlchemy)                    ``rollback()``
``commit``, ``cursor``          the same                 ``SAVEPOINT``
(sqlite3, psycopg)
none of them                    the context manager      another context manager
(``atomic()`` of Django)        decides by exceptions    of the same factory
==============================  =======================  ==========================

The functions are coroutines, because asynchronous connections have to be awaited. With
other connections they never suspend.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from cmdx import CmdxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cmdx import Task

SAVEPOINT = "cmdx_savepoint"
"""The name of all savepoints; databases take the innermost one of that name."""
BEGINNING = "cmdx_transaction"
"""The savepoint at the beginning of a transaction of SQLite, which ends with it."""
IN_TRANSACTION, IN_ERROR = 2, 3
"""The status of a transaction of PostgreSQL; in error, it can only be rolled back."""
RUN_INSIDE = (
    "Let the error propagate, or run what may fail in a savepoint, such as a task of "
    "its own with the same Transaction; to undo everything on purpose, use self.fail()."
)


class TransactionAborted(CmdxError):  # noqa: N818 -- it says what happened
    """Nothing can be committed, although the run has succeeded."""


def abort_error(cause: str, cure: str = RUN_INSIDE) -> TransactionAborted:
    """Return the error of a transaction that cannot be committed any more."""
    return TransactionAborted(f"nothing can be committed: {cause}. {cure}")


@asynccontextmanager
async def enter(manager: Any, task: Task[Any]) -> AsyncIterator[Any]:
    """Enter and leave a context manager, as ``async with`` if this run can."""
    if task._cmdx_.awaits and hasattr(manager, "__aenter__"):
        async with manager as found:
            yield found
    else:
        with manager as found:
            yield found


def is_connection(found: object) -> bool:
    """Tell whether a transaction of *found* is ended by its methods."""
    has_methods = hasattr(found, "commit") and hasattr(found, "rollback")
    return has_methods and (hasattr(found, "cursor") or is_sqlalchemy(found))


def is_sqlalchemy(found: object) -> bool:
    """Tell whether *found* is a session or connection of SQLAlchemy."""
    return hasattr(found, "begin_nested")


def is_sqlite(found: object) -> bool:
    """Tell whether *found* is a connection of sqlite3, or one with its attributes."""
    return hasattr(found, "in_transaction") and hasattr(found, "total_changes")


@asynccontextmanager
async def transaction_of(connection: Any) -> AsyncIterator[None]:
    """Begin a transaction; commit it after the block, or roll back if that raises."""
    await begin(connection)
    try:
        yield
        await refuse_aborted(connection)
        if is_sqlite(connection):
            await release(connection, BEGINNING)
        await end(connection, "commit")
    except BaseException:
        await roll_back(connection)
        raise


async def begin(connection: Any) -> None:
    """Begin a transaction where the driver would not, or would do so too late."""
    if is_sqlalchemy(connection):
        return
    if is_sqlite(connection):
        if not connection.in_transaction:
            await run_sql(connection, f"begin {connection.isolation_level or ''}")
        await run_sql(connection, f"savepoint {BEGINNING}")
    elif getattr(connection, "autocommit", None) is True:
        await run_sql(connection, "begin")


async def end(connection: Any, command: str) -> None:
    """Commit or roll back."""
    if getattr(connection, "autocommit", None) is True:  # the methods do nothing
        await run_sql(connection, command)
    else:
        await settle(getattr(connection, command)())


async def roll_back(connection: Any) -> None:
    """Roll back; if this fails, the error that led to it stays the one to be raised."""
    try:
        if not has_ended(connection):
            await end(connection, "rollback")
    except Exception:  # of any driver, for example because the connection is lost
        logging.getLogger("cmdx").exception("%r could not be rolled back", connection)


async def refuse_aborted(connection: Any) -> None:
    """Raise if a commit would roll back, or would commit nothing, without an error."""
    if is_idle(connection):
        return
    if getattr(connection, "is_active", True) is False:
        raise abort_error(
            "SQLAlchemy has rolled back the session after an error that work has caught"
        )
    refuse_aborted_driver(await driver_connection(connection))


def refuse_aborted_driver(driver: Any) -> None:
    """Raise if PostgreSQL would answer a commit by rolling back."""
    if transaction_status(driver) == IN_ERROR:
        raise abort_error(
            "the database has aborted the transaction after an error that work has "
            "caught"
        )


def refuse_ended(driver: Any) -> None:
    """Raise if SQLite has no transaction where one was begun."""
    if has_ended(driver):
        raise early_end_error()


def has_ended(driver: Any) -> bool:
    """Tell whether SQLite has no transaction."""
    return is_sqlite(driver) and not driver.in_transaction


def early_end_error() -> TransactionAborted:
    """Return the error of a transaction of SQLite that is over before its run is."""
    return abort_error(
        "the transaction of SQLite has ended before the task, by an error that work "
        "has caught, such as one of ON CONFLICT ROLLBACK, or by commit() or rollback() "
        "or executescript() in work",
        "Let the error propagate or use ON CONFLICT ABORT, and leave the end of the "
        "transaction to the outcome of the task.",
    )


@asynccontextmanager
async def savepoint_of(connection: Any, task: Task[Any]) -> AsyncIterator[None]:
    """Set a savepoint; release it at the end of the block, or return to it."""
    if is_sqlalchemy(connection):
        await begin_sqlite(connection)
        async with enter(connection.begin_nested(), task):
            yield
            await refuse_aborted(connection)
        return
    refuse_ended(connection)
    await run_sql(connection, f"savepoint {SAVEPOINT}")
    try:
        yield
        await refuse_aborted(connection)
        await release(connection, SAVEPOINT)
    except BaseException:
        await return_to_savepoint(connection)
        raise


async def release(connection: Any, savepoint: str) -> None:
    """Release a savepoint; raise if its transaction has ended since."""
    try:
        await run_sql(connection, f"release savepoint {savepoint}")
    except Exception as error:
        if is_sqlite(connection) and "no such savepoint" in str(error):
            raise early_end_error() from None
        raise


async def return_to_savepoint(connection: Any) -> None:
    """Undo what was done since the savepoint; an error leaves the first one alone."""
    try:
        await run_sql(connection, f"rollback to savepoint {SAVEPOINT}")
        await run_sql(connection, f"release savepoint {SAVEPOINT}")
    except Exception:  # of any driver, for example because the connection is lost
        logging.getLogger("cmdx").exception("%r lost its savepoint", connection)


async def begin_sqlite(connection: Any) -> None:
    """
    Begin a transaction of SQLite before a savepoint, if SQLAlchemy has not.

    Otherwise releasing the savepoint would commit what was written since.
    """
    driver = await driver_connection(connection)
    if getattr(driver, "in_transaction", None) is False:
        await run_sql(driver, "begin")


async def driver_connection(found: Any) -> Any:
    """Return the connection of the driver that SQLAlchemy uses, or *found* itself."""
    if not is_sqlalchemy(found):
        return found
    if callable(getattr(type(found), "connection", None)):  # a session
        try:
            found = await settle(found.connection())
        except Exception:  # it has several databases, or must be rolled back
            return None
    if hasattr(found, "get_raw_connection"):  # asynchronous
        return (await found.get_raw_connection()).driver_connection
    return found.connection.driver_connection


def is_idle(found: Any) -> bool:
    """Tell whether SQLAlchemy has not begun a transaction."""
    return is_sqlalchemy(found) and not session_of(found).in_transaction()


def is_in_transaction(found: Any) -> bool:
    """Tell whether a connection or session is in a transaction."""
    if is_sqlalchemy(found):
        return not is_idle(found)
    return transaction_status(found) in {IN_TRANSACTION, IN_ERROR}


def session_of(found: Any) -> Any:
    """Return the session of this thread for a scoped one, else *found* itself."""
    return found.registry() if hasattr(found, "registry") else found


def transaction_status(driver: Any) -> Any:
    """Return what psycopg knows about the transaction of a connection, or None."""
    info = getattr(driver, "info", None)
    return getattr(info, "transaction_status", None)


async def run_sql(connection: Any, sql: str) -> None:
    """Run one statement."""
    cursor = await settle(connection.cursor())
    await settle(cursor.execute(sql))
    await settle(cursor.close())


async def settle(answer: Any) -> Any:
    """Return *answer*, which an asynchronous connection has to be awaited for."""
    return await answer if isawaitable(answer) else answer
