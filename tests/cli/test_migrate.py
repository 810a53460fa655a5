"""``python -m cmdx migrate``: the tables of a database, or the SQL that makes them."""

from __future__ import annotations

import sqlite3
import sys

import pytest

from cmdx.cli.main import main
from cmdx.stores import StoreError, connect
from cmdx.stores.schema import VERSION


def test_a_file_gets_its_tables(tmp_path, capsys):
    path = tmp_path / "app.db"

    assert main(["migrate", str(path)]) == 0

    assert capsys.readouterr().out == f"The tables of cmdx are at version {VERSION}.\n"
    with sqlite3.connect(path) as connection:
        found = connection.execute("select version from cmdx_schema").fetchall()
    connection.close()
    assert found == [(VERSION,)]


def test_the_sql_makes_what_a_store_opens(tmp_path, capsys):
    path = tmp_path / "by-hand.db"

    assert main(["migrate", "--sql", str(path)]) == 0

    assert not path.exists()
    connection = sqlite3.connect(path)
    connection.executescript(capsys.readouterr().out)
    connection.close()
    with connect(path) as store:
        counted = store.transact(
            lambda statements: statements.execute("select count(*) from cmdx_operation")
        )
    assert counted == [(0,)]


def test_the_sql_of_postgresql_needs_no_server(capsys):
    assert main(["migrate", "--sql", "postgresql://nowhere.invalid/app"]) == 0

    script = capsys.readouterr().out
    assert "create table if not exists cmdx_operation" in script
    assert "add column if not exists" in script


@pytest.mark.parametrize("database", ["folder/that/is/not/there.db", "mysql://host/db"])
def test_what_cannot_be_opened_is_an_error_message(database, tmp_path, capsys):
    missing = str(tmp_path / database) if "mysql" not in database else database

    assert main(["migrate", missing]) == 2

    written = capsys.readouterr()
    assert written.out == ""
    assert "Traceback" not in written.err
    assert written.err.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--sql"]])
def test_a_name_that_is_no_file_is_not_taken_for_a_new_one(
    options, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)

    assert main(["migrate", "shop", *options]) == 2

    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == (
        "there is no file 'shop'. Write a DSN such as postgresql://localhost/shop, or "
        "a path with a suffix, such as shop.db, and the SQLite file is created.\n"
    )


@pytest.mark.parametrize("target", ["pgshop:pg", "shop.orders:queue", "app.py:queue"])
@pytest.mark.parametrize("options", [[], ["--sql"]])
def test_the_name_of_a_queue_is_not_taken_for_a_new_file(
    target, options, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)

    assert main(["migrate", target, *options]) == 2

    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == (
        f"{target!r} is MODULE:QUEUE. Give `migrate` the address of the database "
        "instead, such as postgresql://localhost/shop, or the path of its SQLite file, "
        "such as shop.db.\n"
    )


@pytest.mark.parametrize("address", ["./shop:queue", "./app.py:queue", "shop:1"])
def test_a_name_with_a_colon_is_not_taken_for_a_new_file(
    address, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)

    assert main(["migrate", address]) == 2

    assert list(tmp_path.iterdir()) == []
    assert f"there is no file {address!r}." in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="files have no colons there")
def test_a_file_with_a_colon_that_is_there_is_migrated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop:queue").touch()

    assert main(["migrate", "shop:queue"]) == 0


@pytest.mark.parametrize("address", [":memory:", "sqlite:///app.db"])
def test_memory_and_addresses_of_sqlite_are_migrated(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert main(["migrate", address]) == 0


@pytest.mark.parametrize("address", ["postgresql:ada:4111@db/shop", "sqlite:app.db"])
def test_a_misspelt_address_is_refused_without_its_password(address, capsys):
    assert main(["migrate", address]) == 2

    told = capsys.readouterr().err
    assert "there is no store for addresses that begin with" in told
    assert "4111" not in told


@pytest.mark.parametrize("options", [[], ["--sql"]])
def test_a_connection_string_is_answered_as_queues_do(
    options, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    address = "host=localhost dbname=x password=4111"
    with pytest.raises(StoreError) as caught:
        connect(address)

    assert main(["migrate", address, *options]) == 2

    assert capsys.readouterr().err == f"{caught.value}\n"
    assert "'postgresql://user@host/database'" in str(caught.value)


def test_a_file_without_a_suffix_that_is_there_is_migrated(tmp_path):
    (tmp_path / "shop").touch()

    assert main(["migrate", str(tmp_path / "shop")]) == 0
