"""
Listening on PostgreSQL: a connection that notices the commits of others.

1. Stores send a notification with their commits, on a channel of their own.
2. Every second it asks the server which transactions have ended. Anybody's commit
   shows there, in whatever database of the server, and also behind a pooler, where
   notifications do not come through.

The first time it is asked there is news in any case, because nobody listened before.
"""

from __future__ import annotations

from typing import Any

import psycopg

from cmdx import clock

PERIOD = 1.0
"""Seconds between two looks at the transactions that have ended."""

SLICE = 0.1
"""Seconds that it listens before it looks whether anything else is to be done."""

REAL = clock.Clock()


class Ear:
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

    def hear(self, own: int) -> bool:
        """
        Listen for a moment, and tell whether somebody else may have committed.

        Args:
            own: The number of the session whose notifications are our own.
        """
        connection = self._connection
        if connection is None:
            self._ended = self._connect()
            return True
        notices = list(connection.notifies(timeout=SLICE, stop_after=1))
        if any(notice.pid != own for notice in notices):
            return True
        if REAL.monotonic() < self._asked_at + PERIOD:
            return False
        before, self._ended = self._ended, self._ask(connection)
        return self._ended != before

    def close(self) -> None:
        """Close the connection; it is opened again when somebody listens."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

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
        self._asked_at = REAL.monotonic()
        cursor = connection.execute("select cast(txid_current_snapshot() as text)")
        return str(cursor.fetchall()[0][0])
