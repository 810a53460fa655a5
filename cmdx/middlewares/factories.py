"""
What the factory of a ``Transaction`` is, and what it may return.

1. the factory itself is checked when it is declared           ``takes_task``
2. what it returns must be a context manager                   ``manager_from``
3. what has no transaction, or cannot roll back, is refused    ``refuse_unusable``,
                                                               ``refuse_file``
4. a connection is in one transaction at a time                ``claim``

All of it is checked before ``work``, and each error says what to write instead. A
context manager that merely does something else, such as a lock, cannot be told from one
that begins a transaction.
"""

from __future__ import annotations

from contextlib import contextmanager
from inspect import (
    GEN_CREATED,
    getgeneratorstate,
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutine,
    isgenerator,
    isgeneratorfunction,
)
from typing import TYPE_CHECKING, Any

from cmdx import AsyncTaskError, DefinitionError
from cmdx.declare.signatures import awaits, call_problem
from cmdx.middlewares.connections import (
    is_connection,
    is_sqlalchemy,
    session_of,
    transaction_status,
)
from cmdx.middlewares.managed import connection_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cmdx import Task
    from cmdx.middlewares.transaction import TransactionScope

CONNECTION = "the connection of its transaction"
"""What is async about a task whose transaction has to be awaited."""

GENERATOR = (
    "a generator, which is no context manager. Put @contextlib.contextmanager on the "
    "function with the yield, or @contextlib.asynccontextmanager if it is async."
)
NO_MANAGER = (
    "which is no context manager. Return contextlib.closing(...) around what is to be "
    "closed after the run, or contextlib.nullcontext(...) around what is not."
)


def takes_task(factory: Callable[..., Any]) -> bool:
    """Tell whether *factory* requires the task; refuse what is not a factory."""
    if is_context_manager(type(factory)) or not callable(factory):
        message = (
            "Transaction takes a callable that opens a connection for each run, got "
            f"{factory!r}. Write `Transaction(lambda: ...)`, or give the function "
            "without calling it, as in `Transaction(transaction.atomic)`."
        )
        raise DefinitionError(message)
    if isgeneratorfunction(factory) or isasyncgenfunction(factory):
        raise DefinitionError(f"Transaction was given {factory!r}, {GENERATOR}")
    if call_problem(factory, 0) is None:
        return False
    problem = call_problem(factory, 1)
    if problem is None:
        return True
    message = (
        f"Transaction calls {factory!r} without arguments, or with the task alone: "
        f"{problem}. Write `Transaction(lambda: ...)`."
    )
    raise DefinitionError(message)


def is_context_manager(found: object) -> bool:
    """Tell whether *found* can be entered by ``with`` or ``async with``."""
    return hasattr(found, "__enter__") or hasattr(found, "__aenter__")


async def manager_from(opened: Any, task: Task[Any]) -> Any:
    """Return the context manager that a factory has returned; refuse anything else."""
    if not isawaitable(opened):  # else it is no connection yet
        refuse_unusable(opened)
    if is_manager_for(opened, task):
        return opened
    if isawaitable(opened) and task._cmdx_.awaits:
        return await manager_from(await opened, task)
    if iscoroutine(opened):
        opened.close()
    if isawaitable(opened) or hasattr(opened, "__aenter__"):
        raise AsyncTaskError(type(task), CONNECTION)
    sentence = GENERATOR if isgenerator(opened) or isasyncgen(opened) else NO_MANAGER
    message = f"the factory of a Transaction returned {opened!r}, {sentence}"
    raise TypeError(message)


def is_manager_for(opened: object, task: Task[Any]) -> bool:
    """Tell whether *opened* is a context manager that this run can enter."""
    is_async = task._cmdx_.awaits and hasattr(opened, "__aenter__")
    return is_async or hasattr(opened, "__enter__")


def refuse_async_connection(connection: Any, task: Task[Any]) -> None:
    """Raise if the connection has to be awaited, and nothing in the run can do so."""
    if awaits(connection.commit) and not task._cmdx_.awaits:
        raise AsyncTaskError(type(task), CONNECTION)


def refuse_unusable(found: Any) -> None:
    """Raise if a transaction of *found* could not be ended by the outcome of a run."""
    problem = problem_of_connection if is_connection(found) else problem_of_other
    sentence = problem(found)
    if sentence is not None:
        message = f"the factory of a Transaction returned {found!r}, {sentence}"
        raise DefinitionError(message)


def refuse_file(found: Any) -> None:
    """Raise if *found* is a file; inside of its ``with``, which closes it."""
    if hasattr(found, "readline"):
        message = (
            f"the factory of a Transaction opened {found!r}, which is a file and has "
            "no transaction: what is written stays written. Open files in work, or by "
            "a middleware of your own, and give Transaction a connection."
        )
        raise DefinitionError(message)


def problem_of_connection(found: Any) -> str | None:
    """Say what is wrong with a connection or session, and what to do."""
    if isinstance(getattr(found, "in_atomic_block", None), bool):
        return (
            "which is a connection of Django. Write `Transaction(transaction.atomic)`."
        )
    if is_closed(found):
        return (
            "which is closed. Open a connection for each run, or return "
            "contextlib.nullcontext(connection) if `with` is not to close it."
        )
    if is_sqlalchemy(found) and commits_each_statement(found):
        return (
            "which commits each statement, so that nothing could be rolled back. "
            "Use an engine without AUTOCOMMIT."
        )
    return None


def problem_of_other(found: Any) -> str | None:
    """Say why *found* has no transaction although it looks like it, and what to do."""
    kind = type(found)
    if hasattr(kind, "fetchone"):
        return "which is a cursor. Return the connection, and let work open cursors."
    if is_used_up(found):
        return (
            "which was entered before. Make one for each run: call the function that "
            "makes it inside of the factory."
        )
    if hasattr(kind, "getconn"):
        return "which is a pool. Write `Transaction(pool.connection)`."
    if hasattr(kind, "connect") and hasattr(kind, "begin"):
        return "which is an engine. Write `Transaction(engine.connect)`."
    return None


def is_used_up(manager: Any) -> bool:
    """Tell whether a context manager of ``contextlib`` was entered before."""
    generator = getattr(manager, "gen", None)
    return isgenerator(generator) and getgeneratorstate(generator) != GEN_CREATED


def is_closed(connection: Any) -> bool:
    """Tell whether a connection was closed."""
    try:
        closed = getattr(connection, "closed", False)
        getattr(connection, "in_transaction", None)
    except Exception:  # sqlite3 refuses to read it
        return True
    return isinstance(closed, int) and bool(closed)  # psycopg2 has a number


def commits_each_statement(found: Any) -> bool:
    """Tell whether SQLAlchemy was told to begin no transactions."""
    try:
        bind = found.get_bind() if hasattr(found, "get_bind") else found
    except Exception:  # it has several databases
        return False
    bind = getattr(bind, "sync_connection", bind)  # of an asynchronous one
    chosen = bind.get_execution_options().get("isolation_level")
    default = getattr(bind.dialect, "_on_connect_isolation_level", None)
    return (chosen or default) == "AUTOCOMMIT"


claims: dict[int, TransactionScope] = {}
"""The transactions that are under way, by the id of their connection or session."""


@contextmanager
def claim(found: Any, scope: TransactionScope) -> Iterator[None]:
    """
    Keep other transactions off a connection; refuse one that is in another already.

    To wait for the other one is no choice: it may be the one that waits for this one.
    """
    connection, owner = connection_to_claim(found), scope.outermost
    if connection is None:
        yield
        return
    key = id(connection)
    if claims.get(key) is owner:  # by its context manager, or around a savepoint
        yield
        return
    try:
        earlier = claims.setdefault(key, owner)
        if earlier is not owner:
            raise in_use_error(connection, earlier)
        yield
    finally:
        if claims.get(key) is owner:
            del claims[key]


def connection_to_claim(found: Any) -> Any:
    """Return the connection or session that *found* is or leads to; None if unknown."""
    if is_connection(found):
        return session_of(found)
    held = connection_of(found)
    # Others may be one object for the connections of all threads, as that of peewee is.
    if is_sqlalchemy(held) or transaction_status(held) is not None:
        return session_of(held)
    return None


def in_use_error(connection: Any, owner: TransactionScope) -> DefinitionError:
    """Return the error of a connection that is in another transaction."""
    return DefinitionError(
        f"{connection!r} is in another transaction already, in that of a run of "
        f"{owner.task_class.__qualname__}, and the two would commit each other's work. "
        "Have the factory open a connection for each run, or take it from a pool. A "
        "task that is to be part of the transaction needs the same Transaction object, "
        "and runs in the same thread or coroutine, not as a parallel step."
    )
