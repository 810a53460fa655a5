"""The tables: created, completed, and refused when they are newer than the code."""

from __future__ import annotations

import re

import pytest
from notes import in_forked_child, output_of, start_python

from cmdx.stores import PostgresStore, SqliteStore, StoreError, connect, schema


def columns_of(store, table):
    return store.transact(lambda statements: statements.columns_of(table))


def run(store, *texts):
    store.transact(lambda statements: [statements.execute(sql) for sql in texts][-1])


def test_a_new_database_gets_all_tables(store):
    for table in (schema.SCHEMA, *schema.tables()):
        assert columns_of(store, table.name) == set(table.columns)


def test_the_id_of_a_store_is_a_uuid_of_version_seven(store):
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-.{4}-.{12}", store.id)
    assert store.transact(
        lambda statements: statements.execute("select version, store from cmdx_schema")
    ) == [(schema.VERSION, store.id)]


def test_opening_again_changes_nothing(shared_place):
    one, other = shared_place.open(), shared_place.open()

    assert one.id == other.id
    assert other.transact(
        lambda statements: statements.execute("select count(*) from cmdx_schema")
    ) == [(1,)]


def test_a_newer_database_is_refused(shared_place):
    run(shared_place.open(), "update cmdx_schema set version = 99")

    with pytest.raises(StoreError, match=r"has version 99 .* knows .*Install"):
        shared_place.open()


def test_an_older_database_is_migrated(shared_place):
    store = shared_place.open()
    run(store, "drop table cmdx_operation", "update cmdx_schema set version = 0")

    other = shared_place.open()

    assert columns_of(other, "cmdx_operation") == set(schema.OPERATION.columns)
    assert other.id == store.id
    assert other.transact(
        lambda statements: statements.execute("select version from cmdx_schema")
    ) == [(schema.VERSION,)]


def test_missing_columns_are_added_without_losing_rows(shared_place):
    store = shared_place.open()
    run(
        store,
        "drop table cmdx_operation",
        "create table cmdx_operation (session text not null, id text not null, "
        "state text not null, primary key (session, id))",
        "insert into cmdx_operation values ('s', 'one', 'live')",
    )

    other = shared_place.open()

    assert columns_of(other, "cmdx_operation") == set(schema.OPERATION.columns)
    sql = "select session, id, state, task, lease, outcome from cmdx_operation"
    rows = other.transact(lambda statements: statements.execute(sql))
    assert rows == [("s", "one", "live", "", 0, None)]


def test_processes_that_migrate_at_once_find_it_done(shared_place):
    program = """
import sys
from cmdx.stores import PostgresStore, SqliteStore

sys.stdin.readline()
if "://" in sys.argv[1]:
    store = PostgresStore(sys.argv[1], migrate=True)
else:
    store = SqliteStore(sys.argv[1])
print(store.id)
store.close()
"""
    processes = [start_python(program, shared_place.address) for _ in range(4)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    ids = {output_of(process) for process in processes}

    assert ids == {f"{shared_place.open().id}\n"}


# -- PostgreSQL -------------------------------------------------------------------


def test_a_server_is_not_migrated_unasked(postgres_place):
    message = "does not have the tables .*python -m cmdx migrate.*migrate=True"
    with pytest.raises(StoreError, match=message):
        connect(postgres_place.address)

    with postgres_place.connect() as connection:
        found = connection.execute("select to_regclass('cmdx_schema')").fetchone()
    assert found == (None,)


def test_a_missing_column_on_a_server_is_not_added_unasked(postgres_place):
    run(postgres_place.open(), "alter table cmdx_operation drop column lease")

    with pytest.raises(StoreError, match="does not have the tables"):
        PostgresStore(postgres_place.address)


def test_a_table_that_was_restored_without_its_key_is_refused(postgres_place):
    drop = "alter table cmdx_operation drop constraint cmdx_operation_pkey"
    run(postgres_place.open(), drop)

    for migrates in (False, True):
        with pytest.raises(StoreError, match="does not have the primary key"):
            PostgresStore(postgres_place.address, migrate=migrates)


@pytest.mark.parametrize("place", ["file", "postgres"], indirect=True)
def test_a_table_of_somebody_else_is_left_alone(place):
    connection = place.connect()
    connection.execute("create table cmdx_operation (session text, id text)")
    connection.commit()

    with pytest.raises(StoreError, match="or is not one of cmdx"):
        schema.migrate(place.address)

    connection.execute("insert into cmdx_operation values ('a', 'b')")
    found = connection.execute("select * from cmdx_operation").fetchall()
    assert found == [("a", "b")]
    connection.close()


@pytest.mark.parametrize("place", ["file", "postgres"], indirect=True)
def test_a_database_is_migrated_by_its_address(place):
    schema.migrate(place.address)

    with connect(place.address) as store:
        assert columns_of(store, "cmdx_operation") == set(schema.OPERATION.columns)


# -- SQL to be run by hand --------------------------------------------------------


@pytest.mark.parametrize("place", ["file", "postgres"], indirect=True)
def test_the_printed_sql_does_what_a_migration_does(place):
    dialect = "postgresql" if place.kind == "postgres" else "sqlite"
    connection = place.connect()
    for _ in range(2):  # again without harm
        for sql in schema.migration_sql(dialect).split(";\n")[:-1]:
            connection.execute(sql)
    connection.close()

    with connect(place.address) as store:  # is not migrated when opened
        assert columns_of(store, "cmdx_operation") == set(schema.OPERATION.columns)
        assert len(store.id) >= 32


def test_the_printed_sql_adds_missing_columns_on_a_server(postgres_place):
    run(postgres_place.open(), "alter table cmdx_operation drop column lease")
    connection = postgres_place.connect()
    connection.execute(schema.migration_sql("postgresql"))
    connection.close()

    with connect(postgres_place.address) as store:
        assert "lease" in columns_of(store, "cmdx_operation")


# -- memory -----------------------------------------------------------------------


def test_a_store_in_memory_has_all_tables_in_a_child_too():
    with SqliteStore() as store:
        assert in_forked_child(lambda: bool(columns_of(store, "cmdx_operation"))) == 0
