"""
Listening on PostgreSQL: a connection that notices the commits of others.

1. Stores send a notification with their commits, on a channel of their own.
2. Every second it asks the server which transactions have ended. Anybody's commit
   shows there, in whatever database of the server, and also behind a pooler, where
   notifications do not come through.

When it starts to listen there may be news, because nobody has listened before. It
cannot tell whose transactions have ended, so it may report one that changes nothing.

A connection that listens must be read: the server keeps notifications for all sessions
until the slowest one has read them. So it is closed when nobody waits any more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from cmdx import clock

SNAPSHOT_INTERVAL = 1.0
"""Seconds between two questions which transactions have ended."""

LISTEN_SECONDS = 0.1
"""How long it listens before it checks whether anything else is to be done."""

REAL_CLOCK = clock.Clock()


class Listener:
    """
    A connection that listens; one thread uses it at a time.

    Args:
        dsn: The address of the database.
        channel: The name under which notifications are sent.
    """

    def __init__(self, dsn: str, channel: str) -> None:
        self._dsn = dsn
        self._channel = channel
        self._connection: psycopg.Connection[Any] | None = None
        self._ended = ""
        self._asked_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that listens."""
        return self._connection is not None

    def poll(self, own: int) -> bool:
        """
        Listen for a moment, and tell whether somebody else may have committed.

        Args:
            own: The number of the session whose notifications are our own.
        """
        connection = self._connection
        if connection is None:
            before, self._ended = self._ended, self._connect()
            return self._ended != before
        notices = list(connection.notifies(timeout=LISTEN_SECONDS, stop_after=1))
        if any(notice.pid != own for notice in notices):
            return True
        if REAL_CLOCK.monotonic() < self._asked_at + SNAPSHOT_INTERVAL:
            return False
        before, self._ended = self._ended, self._ask(connection)
        return self._ended != before

    def close(self) -> None:
        """Close the connection; it is opened again when somebody listens."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def drop(self) -> None:
        """Close a connection that has failed; the next may be to another server."""
        self._ended = ""
        with suppress(psycopg.Error):
            self.close()

    def _connect(self) -> str:
        """Open the connection; return which transactions have ended."""
        connection = psycopg.connect(self._dsn, autocommit=True)
        try:
            connection.execute(f"listen {self._channel}".encode())
            ended = self._ask(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return ended

    def _ask(self, connection: psycopg.Connection[Any]) -> str:
        """Return which transactions of the server have ended."""
        self._asked_at = REAL_CLOCK.monotonic()
        cursor = connection.execute("select cast(txid_current_snapshot() as text)")
        return str(cursor.fetchall()[0][0])
