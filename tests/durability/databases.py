"""
The databases, each with a table of the user's beside those of the store.

``new_place`` returns where processes meet: a file of their own on SQLite, and the
schema of the whole run on PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import cycle
from pathlib import Path
from uuid import uuid4

TABLE = "create table if not exists effect (session text, key text, token text)"

BEGINNING = ("before the transaction begins", "after the transaction has begun")
TRANSACTION_POINTS = {
    "begin": BEGINNING,
    "begin immediate": BEGINNING,
    "commit": ("before the seal is committed", "after the seal is committed"),
}
"""The named points of a transaction of the user's, by its statements."""


class Sqlite:
    """One file per round."""

    name = "sqlite"

    def __init__(self):
        import cmdx.stores.sqlite  # noqa: F401 -- children find it imported

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        """Leave the files to the directory they are in."""

    def new_place(self, directory):
        return SqlitePlace(Path(directory, "kills.db"))


class SqlitePlace:
    """A file."""

    insertion = "insert into effect values (?, ?, ?)"
    selection = "select key, token from effect where session = ?"

    def __init__(self, path):
        self.path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(TABLE)

    def open_store(self):
        from cmdx.stores import SqliteStore

        return SqliteStore(self.path)

    def connect(self, at):
        """Return a connection of the user's, of which *at* hears the named points."""
        cursor = cursor_with_points(sqlite3.Cursor, at)

        class Connection(sqlite3.Connection):
            def cursor(self):
                return super().cursor(cursor)

        path, factory = self.path, Connection
        return sqlite3.connect(path, factory=factory, check_same_thread=False)


class Postgres:
    """A schema for the whole run, dropped at its end."""

    name = "postgresql"

    def __init__(self):
        import cmdx.stores.postgres  # noqa: F401 -- children find it imported
        from tests.services import find_postgres, in_schema

        self.address, reason = find_postgres()
        if self.address is None:
            raise SystemExit(reason)
        self.schema = f"cmdx_kills_{uuid4().hex}"
        self.address_in_schema = in_schema(self.address, self.schema)

    def __enter__(self):
        self.execute(self.address, f"create schema {self.schema}")
        self.execute(self.address_in_schema, TABLE)
        return self

    def __exit__(self, *_error):
        self.execute(self.address, f"drop schema {self.schema} cascade")

    def execute(self, address, sql):
        import psycopg

        with psycopg.connect(address) as connection:
            connection.execute(sql)

    def new_place(self, _directory):
        return PostgresPlace(self.address_in_schema)


class PostgresPlace:
    """A schema of a database."""

    insertion = "insert into effect values (%s, %s, %s)"
    selection = "select key, token from effect where session = %s"

    def __init__(self, address):
        self.address = address
        self.autocommits = cycle((True, False))  # some users have it, and some not

    def open_store(self):
        from cmdx.stores import PostgresStore

        return PostgresStore(self.address, migrate=True)

    def connect(self, at):
        """Return a connection of the user's, of which *at* hears the named points."""
        import psycopg

        # Not by the connection: the library brings its own cursors.
        psycopg.Cursor = cursor_with_points(psycopg.cursor.Cursor, at)
        return psycopg.connect(self.address, autocommit=next(self.autocommits))


DATABASES = {"sqlite": Sqlite, "postgresql": Postgres}


def cursor_with_points(base, at):
    """Return a class of cursors that call *at* around the ends of a transaction."""

    class Cursor(base):
        def execute(self, sql, *values, **options):
            text = sql.decode() if isinstance(sql, bytes) else sql
            if text not in TRANSACTION_POINTS:
                return super().execute(sql, *values, **options)
            before, after = TRANSACTION_POINTS[text]
            at(before)
            found = super().execute(sql, *values, **options)
            at(after)
            return found

    return Cursor
