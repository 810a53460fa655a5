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
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any

from cmdx import AsyncTaskError, CmdxError
from cmdx.declare.signatures import awaits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cmdx import Task

SAVEPOINT = "cmdx_savepoint"
"""The name of all savepoints; databases take the innermost one of that name."""
CONNECTION = "the connection of its transaction"
"""What is async about a task whose transaction has to be awaited."""
IN_ERROR = 3
"""The status of a transaction that PostgreSQL can only roll back."""


class TransactionAborted(CmdxError):  # noqa: N818 -- it says what happened
    """The database has aborted the transaction of a run that has succeeded."""


async def manager_from(opened: Any, task: Task[Any]) -> Any:
    """Return the context manager that a factory has returned; refuse anything else."""
    if is_manager_for(opened, task):
        return opened
    if isawaitable(opened) and task._cmdx_.awaits:
        return await manager_from(await opened, task)
    if iscoroutine(opened):
        opened.close()
    if isawaitable(opened) or hasattr(opened, "__aenter__"):
        raise AsyncTaskError(type(task), CONNECTION)
    message = (
        f"the factory of a Transaction returned {opened!r}, which is no context "
        "manager. Return contextlib.closing(...) around what is to be closed after "
        "the run, or contextlib.nullcontext(...) around what is not."
    )
    raise TypeError(message)


def is_manager_for(opened: object, task: Task[Any]) -> bool:
    """Tell whether *opened* is a context manager that this run can enter."""
    is_async = task._cmdx_.awaits and hasattr(opened, "__aenter__")
    return is_async or hasattr(opened, "__enter__")


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


def refuse_async_connection(connection: Any, task: Task[Any]) -> None:
    """Raise if the connection has to be awaited, and nothing in the run can do so."""
    if awaits(connection.commit) and not task._cmdx_.awaits:
        raise AsyncTaskError(type(task), CONNECTION)


@asynccontextmanager
async def transaction_of(connection: Any) -> AsyncIterator[None]:
    """Begin a transaction; commit it after the block, or roll back if that raises."""
    await begin(connection)
    try:
        yield
        await refuse_aborted(connection)
        await end(connection, "commit")
    except BaseException:
        await roll_back(connection)
        raise


async def begin(connection: Any) -> None:
    """Begin a transaction where the driver would not, or would do so too late."""
    if is_sqlalchemy(connection):
        return
    if getattr(connection, "in_transaction", None) is False:  # sqlite3
        await run_sql(connection, f"begin {connection.isolation_level or ''}")
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
        await end(connection, "rollback")
    except Exception:  # of any driver, for example because the connection is lost
        logging.getLogger("cmdx").exception("%r could not be rolled back", connection)


async def refuse_aborted(connection: Any) -> None:
    """Raise if PostgreSQL would answer a commit by rolling back, without an error."""
    if is_idle(connection):
        return
    driver = await driver_connection(connection)
    info = getattr(driver, "info", None)
    if getattr(info, "transaction_status", None) != IN_ERROR:
        return
    message = (
        "nothing can be committed: the database has aborted the transaction after an "
        "error that work has caught. Let the error propagate, or run what may fail in "
        "a savepoint, such as a task of its own with the same Transaction."
    )
    raise TransactionAborted(message)


@asynccontextmanager
async def savepoint_of(connection: Any, task: Task[Any]) -> AsyncIterator[None]:
    """Set a savepoint; release it at the end of the block, or return to it."""
    if is_sqlalchemy(connection):
        await begin_sqlite(connection)
        async with enter(connection.begin_nested(), task):
            yield
        return
    await run_sql(connection, f"savepoint {SAVEPOINT}")
    try:
        yield
        await run_sql(connection, f"release savepoint {SAVEPOINT}")
    except BaseException:
        await return_to_savepoint(connection)
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
    if hasattr(found, "registry"):  # a scoped session
        found = found.registry()
    return is_sqlalchemy(found) and not found.in_transaction()


async def run_sql(connection: Any, sql: str) -> None:
    """Run one statement."""
    cursor = await settle(connection.cursor())
    await settle(cursor.execute(sql))
    await settle(cursor.close())


async def settle(answer: Any) -> Any:
    """Return *answer*, which an asynchronous connection has to be awaited for."""
    return await answer if isawaitable(answer) else answer
