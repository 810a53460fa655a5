"""
Where durable state lives: SQLite and PostgreSQL.

``connect`` opens a store by its path or address, and everything goes through one call::

    store = connect("app.db")
    store.transact(lambda statements: statements.execute("select 1"))

A unit is a function of ``Statements`` that runs inside one transaction. It may run
twice, so it touches nothing but its statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx.stores.errors import CommitUncertain, StoreError, StoreUnavailable
from cmdx.stores.statements import Statements
from cmdx.stores.store import Store, connect

if TYPE_CHECKING:
    from cmdx.stores.postgres import PostgresStore
    from cmdx.stores.sqlite import SqliteStore

__all__ = [
    "CommitUncertain",
    "PostgresStore",
    "SqliteStore",
    "Statements",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "connect",
]

# A program needs one driver, and may not have the other.
_LATER = {
    "PostgresStore": "cmdx.stores.postgres",
    "SqliteStore": "cmdx.stores.sqlite",
}

if not TYPE_CHECKING:  # or checkers would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        """Import a store when it is first asked for."""
        if name not in _LATER:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        from importlib import import_module

        value = getattr(import_module(_LATER[name]), name)
        globals()[name] = value
        return value
