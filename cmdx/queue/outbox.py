"""
Jobs in the user's own transaction: stored if it is committed, and only then.

The connection may be one of sqlite3 or psycopg, or what SQLAlchemy and Django have
around one. It is recognised by the id of the store in its database.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cmdx.queue import records, table
from cmdx.stores.connections import (
    is_async_connection,
    unwrapped_connection,
    user_connection,
)

if TYPE_CHECKING:
    from cmdx.queue.enqueue import Row
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements, Store
    from cmdx.stores.connections import UserConnection


class Outbox:
    """A connection of the user's to the database of a store."""

    def __init__(
        self, connection: UserConnection, store: Store, *, awaits: bool
    ) -> None:
        self.execute = connection.execute
        self.announcement = store.announcement
        """What wakes workers when the transaction is committed."""
        self._store = store
        self._awaits = awaits
        self._has_whole_database = connection.dialect == "sqlite"

    async def free_text(self, holder: JobRecord) -> None:
        """
        Take the unique text from a job whose time for it is over.

        PostgreSQL locks the row until the transaction ends, and a worker that runs the
        job would wait for that. So it is done in a transaction of the store.
        """
        if self._has_whole_database:
            await self.execute(records.FREE_UNIQUE, sequence=holder.sequence)
        elif self._awaits:
            await self._store.atransact(partial(free_text, holder.sequence))
        else:
            self._store.transact(partial(free_text, holder.sequence))


def free_text(sequence: int, statements: Statements) -> None:
    """Take the unique text from a job."""
    statements.execute(records.FREE_UNIQUE, sequence=sequence)


async def outbox_of(
    given: object, store: Store, *, awaits: bool, twin: str = "aenqueue()"
) -> Outbox:
    """
    Return what writes jobs by a connection; refuse one of another kind.

    Args:
        given: The connection of the user.
        store: The store of the queue.
        awaits: Whether the caller may wait in an event loop.
        twin: The call that takes an asynchronous connection.
    """
    require_plain(given, twin, awaits=awaits)
    connection = await unwrapped_connection(given)
    require_plain(connection, twin, awaits=awaits)
    found = await user_connection(connection, store)
    return Outbox(found, store, awaits=awaits)


def require_plain(connection: object, twin: str, *, awaits: bool) -> None:
    """Refuse an asynchronous connection where nothing can be awaited."""
    if is_async_connection(connection) and not awaits:
        message = f"an asynchronous connection needs {twin}, or pass a synchronous one."
        raise TypeError(message)


async def write_in_outbox(
    outbox: Outbox, row: Row, *, may_be_there: bool
) -> JobRecord | None:
    """
    Store a new job by the user's connection.

    Return the job that has its id or unique text, None if none has. Nothing here fails
    because of a conflict: that would end the transaction, which is not ours to end.
    """
    if not may_be_there:
        await outbox.execute(records.INSERT, **row)
    while may_be_there:
        found = await job_in_the_way(outbox, row)
        if found is not None:
            return found
        await outbox.execute(records.INSERT_UNLESS_THERE, **row)
        if await was_written(outbox, row):
            break  # no other transaction was faster
    if outbox.announcement is not None:
        await outbox.execute(outbox.announcement)
    return None


async def job_in_the_way(outbox: Outbox, row: Row) -> JobRecord | None:
    """Return the job that has the id or the unique text of a new one."""
    found = records.first_record(await outbox.execute(records.PEEK, id=row["id"]))
    text = row["unique_held"]
    if found is not None or text is None:
        return found
    rows = await outbox.execute(records.PEEK_UNIQUE, queue=row["queue"], text=text)
    holder = records.first_record(rows)
    if holder is None or not table.has_lapsed(holder, row["created_at"]):
        return holder
    await outbox.free_text(holder)
    return None


async def was_written(outbox: Outbox, row: Row) -> bool:
    """Tell whether the job with the id of a new one is that one."""
    found = records.first_record(await outbox.execute(records.PEEK, id=row["id"]))
    return found is not None and all(
        getattr(found, name) == row[name] for name in records.NEW_COLUMNS
    )
