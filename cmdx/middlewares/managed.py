"""
Transactions that a context manager ends by itself, such as ``atomic()`` of Django.

It commits if no exception is raised in it. Some of them roll back nevertheless, without
an error, so they are asked before they are left:

- ``transaction()`` of psycopg, ``begin()`` of SQLAlchemy: what ``with`` binds leads to
  the connection or session, which is asked like any other.
- ``atomic()`` of Django: ``with`` binds nothing. It is found by the connections of
  Django that have one more block after the context manager was entered.

For a savepoint, another one is entered inside. What it binds shows whether it is in the
same transaction, or has begun one of its own, which is refused.

If they were entered in a transaction that was begun outside, leaving them commits
nothing. Django tells when the commit comes; the others do not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx import DefinitionError
from cmdx.middlewares.connections import (
    abort_error,
    is_connection,
    is_in_transaction,
    refuse_aborted,
    refuse_aborted_driver,
    refuse_ended,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias


class State(NamedTuple):
    """What is known of a connection of Django."""

    blocks: int
    """The number of its ``atomic()`` blocks."""
    error: BaseException | None
    """The error that last marked one of them for rollback, in this block or before."""


if TYPE_CHECKING:
    States: TypeAlias = dict[Any, State]

OUTSIDE = State(0, None)

SECOND_CONNECTION = (
    "the factory of a Transaction was called inside of its own transaction, to set a "
    "savepoint for an attempt or for a task inside another one. It returned a context "
    "manager that binds {found!r}, and not {outer!r} as before, so it has opened a "
    "second connection, which would be committed apart from the first. Bind the "
    "connection or session itself, as in "
    "`Transaction(lambda: contextlib.closing(connect()))`, and savepoints are set on "
    "it. If the context manager does set savepoints, bind the same object again, or "
    "nothing."
)


def django_states() -> States:
    """Return the connections of Django in this thread; none if it is not in use."""
    django = sys.modules.get("django.db.transaction")
    if django is None or not sys.modules["django.conf"].settings.configured:
        return {}
    return {
        connection: State(
            len(connection.atomic_blocks), getattr(connection, "rollback_exc", None)
        )
        for connection in django.connections.all(initialized_only=True)
    }


def blocks_since(before: States) -> list[Any]:
    """Return the connections of Django in which a block was entered since *before*."""
    return [
        connection
        for connection, state in django_states().items()
        if state.blocks > before.get(connection, OUTSIDE).blocks
    ]


async def refuse_to_leave(
    found: Any, connections: Iterable[Any], before: States
) -> None:
    """Raise if a context manager would roll back although nothing is raised in it."""
    if getattr(found, "force_rollback", False):
        cause = "the transaction of psycopg is to be rolled back in any case"
        raise abort_error(cause, "Open it without force_rollback.")
    held = connection_of(found)
    if held is not None:
        await refuse_aborted(held)
    for connection in connections:
        refuse_marked(connection, before.get(connection, OUTSIDE).error)


def refuse_marked(connection: Any, earlier_error: BaseException | None) -> None:
    """Raise if a block of Django can only be rolled back."""
    if connection.needs_rollback:
        error = getattr(connection, "rollback_exc", None)
        raise abort_error(
            "atomic() of Django is marked for rollback, by an error that work has "
            "caught or by set_rollback(True)"
        ) from (error if error is not earlier_error else None)
    refuse_aborted_driver(connection.connection)
    refuse_ended(connection.connection)


def refuse_second_connection(found: Any, outer: Any, before: States) -> None:
    """
    Raise if a context manager that was to set a savepoint has begun a transaction.

    Args:
        found: What it has bound.
        outer: What the one around it has bound.
        before: The connections of Django before it was entered.
    """
    held = connection_of(found)
    is_same = found is outer or (held is not None and held is connection_of(outer))
    if not (is_same or is_inside_django(before)):
        raise DefinitionError(SECOND_CONNECTION.format(found=found, outer=outer))


def is_inside_django(before: States) -> bool:
    """Tell whether a block of Django was entered inside of another one."""
    return any(before.get(entered, OUTSIDE).blocks for entered in blocks_since(before))


def connection_of(found: Any) -> Any:
    """Return the connection or session that a transaction is of; None if unknown."""
    for name in ("session", "connection", "db"):  # the last one is of peewee
        held = getattr(found, name, None)
        if is_connection(held):
            return held
    return None


def is_unfinished(found: Any) -> bool:
    """Tell whether a transaction goes on after the context manager was left."""
    if is_connection(found):  # it was committed
        return False
    held = connection_of(found)
    return held is not None and is_in_transaction(held)
