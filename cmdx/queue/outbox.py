"""
Jobs in the user's own transaction: stored if it is committed, and only then.

The connection may be one of sqlite3 or psycopg, or what SQLAlchemy and Django have
around one. It is recognised by the id of the store in its database.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

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
        self._is_sqlite = connection.dialect == "sqlite"

    async def free(self, sql: str, job: JobRecord, now: float) -> None:
        """
        Free the id or the unique text of another job by a statement about its row.

        PostgreSQL locks the row until the transaction ends, and a worker that runs the
        job would wait for that. So it is done in a transaction of the store.
        """
        values = {"sequence": job.sequence, "now": now}
        if self._is_sqlite:
            await self.execute(sql, **values)
        elif self._awaits:
            await self._store.atransact(partial(run_statement, sql, values))
        else:
            self._store.transact(partial(run_statement, sql, values))


def run_statement(sql: str, values: dict[str, Any], statements: Statements) -> None:
    """Run one statement, in a transaction of its own."""
    statements.execute(sql, **values)


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
    outbox: Outbox, row: Row, *, may_exist: bool
) -> JobRecord | None:
    """
    Store a new job by the user's connection.

    Return the job that has its id or unique text, None if none has. Nothing here fails
    because of a conflict: that would end the transaction, which is not ours to end.
    """
    found = None
    if may_exist:
        found = await write_unless_there(outbox, row)
    else:
        await outbox.execute(records.INSERT, **row)
    if found is None and outbox.announcement is not None:
        await outbox.execute(outbox.announcement)
    return found


async def write_unless_there(outbox: Outbox, row: Row) -> JobRecord | None:
    """Store a new job, or return the one that has its id or its unique text."""
    while True:
        found = await job_in_the_way(outbox, row)
        if found is not None:
            return found
        await outbox.execute(records.INSERT_UNLESS_THERE, **row)
        if await was_written(outbox, row):
            return None  # no other transaction was faster


async def job_in_the_way(outbox: Outbox, row: Row) -> JobRecord | None:
    """Return the job that has the id or the unique text of a new one."""
    text, now = row["unique_held"], row["created_at"]
    found = records.first_record(await outbox.execute(records.PEEK, id=row["id"]))
    if found is not None and not table.is_past_keeping(found, now):
        return found
    if found is not None:
        await outbox.free(records.REMOVE_PAST_KEEPING, found, now)
    if text is None:
        return None
    rows = await outbox.execute(records.PEEK_UNIQUE, queue=row["queue"], text=text)
    holder = records.first_record(rows)
    if holder is None or not table.has_lapsed(holder, now):
        return holder
    await outbox.free(records.FREE_UNIQUE, holder, now)
    return None


async def was_written(outbox: Outbox, row: Row) -> bool:
    """
    Tell whether the job with the id of a new one is that one.

    A transaction that reads what was there when it began also sees one whose id was
    freed since.
    """
    found = map(records.record_of, await outbox.execute(records.PEEK, id=row["id"]))
    return any(
        all(getattr(job, name) == row[name] for name in records.NEW_COLUMNS)
        for job in found
    )
