"""
The tables of all packages, and how a database gets them.

A package declares its tables here in their present form, and a migration that creates
them. A new column is added to the declaration of its table: a process that
opens a database without the column adds it. Other changes are migrations of SQL.

``cmdx_schema`` has one row: how many migrations were done, and the id of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from cmdx.chain import new_id
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cmdx.stores.statements import Statements


@attrs.frozen
class Table:
    """
    A table in its present form.

    Args:
        name: Its name.
        columns: The type of each column, such as ``"text not null"``.
        key: The columns of the primary key.
        indexes: The columns of each further index.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()


SCHEMA = Table("cmdx_schema", {"version": "integer not null", "store": "text not null"})

OPERATION = Table(
    "cmdx_operation",
    {
        "session": "text not null",
        "id": "text not null",
        "task": "text not null",
        "module": "text not null",
        "fingerprint": "text not null",
        "persist": "integer not null",
        "idempotent": "integer not null",
        "seal": "text not null",
        "keep": "double precision not null",
        "has_streams": "integer not null",
        "is_transactional": "integer not null",
        "state": "text not null",
        "owner": "text not null",
        "lease": "double precision not null",
        "executions": "integer not null",
        "outcome": "text",
        "ending": "text",
        "admitted_at": "double precision not null",
        "sealed_at": "double precision",
        "expires_at": "double precision",
    },
    key=("session", "id"),
    indexes=(("state", "expires_at"), ("state", "lease")),
)

Migration: TypeAlias = tuple[Table | str, ...]

MIGRATIONS: tuple[Migration, ...] = ((OPERATION,),)
"""What each version adds: tables, or SQL that both databases understand."""

VERSION = len(MIGRATIONS)


def tables() -> list[Table]:
    """Return all tables but ``cmdx_schema``."""
    return [step for steps in MIGRATIONS for step in steps if isinstance(step, Table)]


# -- the state of a database ------------------------------------------------------


@attrs.frozen
class State:
    """How far a database is: its version, its id, and the columns it lacks."""

    version: int
    store: str
    missing: tuple[tuple[Table, str], ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether nothing has to be done."""
        return self.version == VERSION and not self.missing


def read_state(statements: Statements) -> State:
    """Return how far a database is."""
    if not statements.columns_of(SCHEMA.name):
        return State(0, "")
    rows = statements.execute("select version, store from cmdx_schema")
    if not rows:
        return State(0, "")
    version, store = rows[0]
    missing = missing_columns(statements) if version == VERSION else ()
    return State(version, store, missing)


def missing_columns(statements: Statements) -> tuple[tuple[Table, str], ...]:
    """Return the columns that the tables of a database lack."""
    return tuple(
        (table, column)
        for table in tables()
        for column in sorted(table.columns.keys() - statements.columns_of(table.name))
    )


def require_known(state: State, name: str) -> None:
    """Refuse a database that a newer version of this library has migrated."""
    if state.version > VERSION:
        raise StoreError(
            f"{name} has version {state.version} of the tables of cmdx, and this "
            f"installation knows {VERSION}",
            "Install the version of pycmdx that other processes use with it",
        )


def require_keys(statements: Statements, name: str) -> None:
    """Refuse tables without their keys, in which one id could have two rows."""
    for table in tables():
        exists = bool(statements.columns_of(table.name))
        if exists and statements.key_of(table.name) != set(table.key):
            listed = ", ".join(table.key)
            raise StoreError(
                f"the table {table.name} of {name} does not have the primary key "
                f"({listed}): it was restored without it, or is not one of cmdx",
                "Add the key, or rename a table that is not one of cmdx",
            )


# -- migrating --------------------------------------------------------------------


def upgrade(statements: Statements, name: str) -> str:
    """Do what has to be done to a database, in one transaction; return its id."""
    require_keys(statements, name)
    statements.execute(creation_of(SCHEMA))
    state = read_state(statements)
    require_known(state, name)
    if state.is_current:  # another process was faster
        return state.store
    for sql in upgrade_steps(statements, state.version):
        statements.execute(sql)
    statements.execute("delete from cmdx_schema")
    store = state.store or new_id()
    statements.execute(
        "insert into cmdx_schema (version, store) values (:version, :store)",
        version=VERSION,
        store=store,
    )
    return store


def upgrade_steps(statements: Statements, version: int) -> Iterator[str]:
    """Yield the SQL that leads from *version* to the present form."""
    yield from map(creation_of, tables())
    for table, column in missing_columns(statements):
        yield f"alter table {table.name} add column {column} {addable(table, column)}"
    for steps in MIGRATIONS[version:]:
        yield from (step for step in steps if isinstance(step, str))
    for table in tables():
        yield from indexes_of(table)


def creation_of(table: Table) -> str:
    """Return the SQL that creates a table."""
    lines = [f"{column} {kind}" for column, kind in table.columns.items()]
    if table.key:
        lines.append(f"primary key ({', '.join(table.key)})")
    body = ",\n  ".join(lines)
    return f"create table if not exists {table.name} (\n  {body}\n)"


def indexes_of(table: Table) -> Iterator[str]:
    """Yield the SQL that creates the indexes of a table."""
    for columns in table.indexes:
        name = "_".join((table.name, *columns))
        listed = ", ".join(columns)
        yield f"create index if not exists {name} on {table.name} ({listed})"


def addable(table: Table, column: str) -> str:
    """Return the type of a column, with a default for the rows that are there."""
    kind = table.columns[column]
    if not kind.endswith("not null"):
        return kind
    default = "''" if kind.startswith("text") else "0"
    return f"{kind} default {default}"


# -- by hand ----------------------------------------------------------------------

STORE_IDS = {
    "sqlite": "lower(hex(randomblob(16)))",
    "postgresql": "cast(gen_random_uuid() as text)",
}


def migrate(target: str) -> None:
    """Bring the tables of a database into their present form, by its address."""
    from cmdx.stores.store import is_postgres, path_of

    if is_postgres(target):
        from cmdx.stores.postgres import PostgresStore

        PostgresStore(target, migrate=True).close()
        return
    from cmdx.stores.sqlite import SqliteStore

    SqliteStore(path_of(target)).close()  # it migrates when it is opened


def migration_sql(dialect: str) -> str:
    """
    Return the SQL that a migration runs, to be run by hand.

    It can be run again without harm. SQLite cannot add columns only if they are
    missing, so for it the SQL creates new databases alone.

    Args:
        dialect: ``"sqlite"`` or ``"postgresql"``.
    """
    return "".join(f"{sql};\n" for sql in ("begin", *_script(dialect), "commit"))


def _script(dialect: str) -> Iterator[str]:
    """Yield the statements of a whole migration."""
    yield from map(creation_of, (SCHEMA, *tables()))
    if dialect == "postgresql":
        for table in tables():
            for column in table.columns:
                added = f"{column} {addable(table, column)}"
                yield f"alter table {table.name} add column if not exists {added}"
    for steps in MIGRATIONS:
        yield from (step for step in steps if isinstance(step, str))
    for table in tables():
        yield from indexes_of(table)
    yield (
        f"insert into cmdx_schema (version, store) select 0, {STORE_IDS[dialect]} "  # noqa: S608 -- our own texts
        "where not exists (select 1 from cmdx_schema)"
    )
    yield f"update cmdx_schema set version = {VERSION}"  # noqa: S608
