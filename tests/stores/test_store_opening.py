"""Opening stores by their addresses, and what is said when that fails."""

from __future__ import annotations

import gc
import pickle
import sqlite3
import traceback
from pathlib import Path

import pytest
from notes import Call, add, numbers_in, output_of, start_python
from services import postgres_address

import cmdx.stores
from cmdx import CmdxError, is_retryable
from cmdx.stores import (
    CommitUncertain,
    PostgresStore,
    SqliteStore,
    StoreError,
    StoreUnavailable,
    connect,
)
from cmdx.stores.errors import (
    POSTGRES_ERRORS,
    SQLITE_ERRORS,
    postgres_error,
    sqlite_error,
)


def printed_by(program):
    """Return what another process prints."""
    return output_of(start_python(program))


# -- connect ----------------------------------------------------------------------


def test_a_store_is_returned_as_it_is(memory_store):
    assert connect(memory_store) is memory_store


def test_the_same_path_gives_the_same_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with connect("app.db") as store:
        assert connect(tmp_path / "app.db") is store
        assert connect(str(tmp_path / "other" / ".." / "app.db")) is store
        assert connect("sqlite:///app.db") is store
        assert connect(f"sqlite:///{tmp_path}/app.db") is store
        with connect("else.db") as other:
            assert other is not store


def test_a_link_to_a_file_gives_the_store_of_the_file(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "app.db")
    with connect(tmp_path / "app.db") as store:
        assert connect(tmp_path / "link.db") is store


def test_the_same_address_gives_the_same_store(postgres_place):
    postgres_place.open()
    with connect(postgres_place.address) as store:
        assert connect(postgres_place.address) is store


def test_a_store_that_was_closed_is_opened_again(tmp_path):
    with connect(tmp_path / "app.db") as store:
        pass
    with connect(tmp_path / "app.db") as other:
        assert other is not store
        assert other.id == store.id


def test_a_store_that_nobody_holds_is_closed(tmp_path):
    store = connect(tmp_path / "app.db")
    connection = store._connection
    del store
    gc.collect()

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("select 1")


def test_threads_that_connect_at_once_get_the_same_store(tmp_path):
    calls = [Call(connect, tmp_path / "app.db") for _ in range(8)]
    stores = [call.result() for call in calls]

    assert len({id(store) for store in stores}) == 1
    stores[0].close()


@pytest.mark.parametrize("address", [":memory:", "sqlite://", "sqlite:///:memory:"])
def test_each_store_in_memory_is_a_new_one(address):
    with connect(address) as one, connect(address) as other:
        assert one is not other
        assert one.id != other.id


@pytest.mark.parametrize("address", ["sqlite://app.db", "sqlite://:memory:"])
def test_a_path_after_two_slashes_is_refused(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StoreError, match="before its path") as caught:
        connect(address)

    assert str(caught.value) == (
        "the address of the SQLite database has only two slashes before its path. "
        "Write three, as in 'sqlite:///app.db', or four before an absolute path."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", [None, 7, b"app.db", ["app.db"]])
def test_what_is_no_address_is_refused(target):
    with pytest.raises(TypeError, match=r"path or an address, not by .*Use a path"):
        connect(target)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mysql://host/app", "addresses that begin with 'mysql://'. Write a path, "),
        ("sqlite:app.db", "addresses that begin with 'sqlite:'. Write a path, "),
        ("SQLite:/app.db", "addresses that begin with 'SQLite:/'. Write a path, "),
        (
            "Postgresql+psycopg://ada:4111@host/app",
            r"begin with 'Postgresql\+psycopg://'. Write 'postgresql://' instead.$",
        ),
        ("sqlite+pysqlite:///app.db", "pysqlite://'. Write 'sqlite://' instead.$"),
        ("", "the path of the store is empty. Use a path"),
        ("postgresql://%zz", "cannot be read. Write it as postgresql://user"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(target, message):
    with pytest.raises(StoreError, match=message):
        connect(target)


@pytest.mark.parametrize(
    "address", ["postgresql://127.0.0.1:99999/app", "postgresql://host.invalid/app"]
)
def test_a_wrong_host_or_port_is_answered_with_what_to_correct(address):
    with pytest.raises(StoreUnavailable, match="or correct its host or port"):
        connect(address)


def test_the_scheme_of_an_address_may_be_in_capitals(postgres_place, tmp_path):
    postgres_place.open()
    with connect(postgres_place.address) as store:
        assert (
            connect(postgres_place.address.replace("postgres", "Postgres", 1)) is store
        )
    with connect(f"SQLite:///{tmp_path}/App.db") as store:
        assert store.name == f"{tmp_path}/App.db"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Postgresql://u:secret@127.0.0.1:1/app", "cannot be reached"),
        ("POSTGRES://u:secret@127.0.0.1:1/app", "cannot be reached"),
        ("postgresql://127.0.0.1:1/app?password=secret", "cannot be reached"),
        ("postgresql://u:a@secret@127.0.0.1:1/app", "cannot be read. Write it .*%40"),
        ("postgresql://u:1/secret@127.0.0.1:1/app", "cannot be read"),
        ("postgresql://u:secret/app", "cannot be read"),
        ("postgresql://u:secret@%zz", "cannot be read"),
        ("postgresql+psycopg://u:secret@h/app", r"begin with 'postgresql\+psycopg://'"),
        (" postgresql://u:secret@h/app", "begin with ' postgresql://'"),
        ("postgresql:/u:secret@h/app", "begin with 'postgresql:/'"),
        ("postgres:u:secret@h/app", "begin with 'postgres:'"),
        (Path("postgresql://u:secret@h/app"), "begin with 'postgresql:/'"),
        ("postgresql://h/app?pasword=secret", "the parameter 'pasword', which libpq"),
        ("postgresql://u:1/secret?secret=1@h/app", "cannot be read"),
        ("sqlite://u:secret@h/app", "has only two slashes"),
        ("u:secret://h/app", "no store for such addresses"),
        ("password=secret host=h", "connection string of libpq, not a path. Write"),
        ("host = h password=secret", "connection string of libpq, not a path"),
    ],
    ids=str,
)
def test_a_password_is_never_shown(target, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StoreError, match=message) as caught:
        connect(target)

    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "scheme", ["postgresql", "Postgres", "sqlite", "postgresql+psycopg", "mysql"]
)
def test_an_address_is_not_taken_for_a_path(scheme):
    with pytest.raises(StoreError, match=r"that begin with '[\w+]+://'") as caught:
        SqliteStore(f"{scheme}://u:secret@h/app")

    assert "secret" not in str(caught.value)


def test_what_is_no_address_is_not_shown():
    with pytest.raises(TypeError, match="by an instance of bytes") as caught:
        connect(b"postgresql://u:secret@h/app")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["./host=h", "hosts.db", "a=b.db"])
def test_a_file_may_have_an_equals_sign_in_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with connect(name) as store:
        assert store.name == name
    assert (tmp_path / name).exists()


def test_any_connection_string_of_libpq_will_do_for_the_class(postgres_place):
    from psycopg import conninfo

    postgres_place.open()
    given = conninfo.conninfo_to_dict(postgres_place.address)
    address = conninfo.make_conninfo("", **given)
    assert "://" not in address

    with PostgresStore(address) as store:
        assert store.transact(lambda statements: statements.execute("select 1"))


def test_stores_of_one_database_have_the_same_id(shared_place):
    assert shared_place.open().id == shared_place.open().id


# -- what cannot be opened --------------------------------------------------------


def test_a_missing_directory_is_named(tmp_path):
    path = tmp_path / "missing" / "app.db"

    with pytest.raises(StoreError, match=r"there is no directory .*Create") as caught:
        SqliteStore(path)

    assert str(path.parent) in str(caught.value)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_what_is_not_a_database_is_left_alone(tmp_path):
    path = tmp_path / "app.db"
    path.write_text("dear diary, " * 100)

    with pytest.raises(StoreError, match="is not an SQLite database") as caught:
        SqliteStore(path)

    assert str(path) in str(caught.value)
    assert "remove" not in str(caught.value)  # it may be the only copy
    assert caught.value.cure.startswith("Use another path, or move the file away")
    assert path.read_text().startswith("dear diary")


@pytest.mark.parametrize(
    ("version", "threadsafety", "message"),
    [
        ((3, 33, 0), 3, "is too old. Use a Python with SQLite 3.34.0 or later"),
        ((3, 40, 0), 1, "without support for threads"),
    ],
)
def test_an_sqlite_that_will_not_do_is_refused(
    monkeypatch, version, threadsafety, message
):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(sqlite3, "threadsafety", threadsafety)

    with pytest.raises(StoreError, match=message):
        SqliteStore()


def test_a_libpq_that_will_not_do_is_refused(postgres_place, monkeypatch):
    monkeypatch.setattr("psycopg.Pipeline.is_supported", lambda: False)

    with pytest.raises(StoreError, match=r"libpq .* is too old. Use version 14"):
        connect(postgres_place.address)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (("/test", "/nowhere_cmdx"), StoreError, "does not exist on its server"),
        (("//", "//nobody_cmdx:secret@"), StoreError, "does not let this user in"),
        ((":5432", ":1"), StoreUnavailable, "cannot be reached"),
    ],
)
def test_a_server_that_refuses_is_named_without_the_password(change, kind, message):
    address = postgres_address()
    if not address.endswith("@127.0.0.1:5432/test"):
        pytest.skip("the address of the server is another one")
    plain = address.replace(address.split("//")[1].split("@")[0] + "@", "")

    with pytest.raises(StoreError, match=message) as caught:
        connect(plain.replace(*change))

    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_a_schema_that_is_missing_is_to_be_created_first(postgres_place):
    address = postgres_place.address + "_missing"

    with pytest.raises(StoreError, match=r"Create the schema first") as caught:
        PostgresStore(address, migrate=True)

    assert "traceback" not in str(caught.value)


def test_a_parameter_that_libpq_does_not_know_is_named():
    with pytest.raises(StoreError) as caught:
        connect("postgresql://host/app?sslmode=require&search_path=shop")

    assert str(caught.value) == (
        "the address of the PostgreSQL database has the parameter 'search_path', which "
        "libpq does not know. Correct its name; settings of the server go into "
        "options, as in ?options=-csearch_path%3Dshop."
    )


def test_a_missing_driver_is_named_with_the_way_to_install_it():
    program = """
import sys
sys.modules["psycopg"] = None
from cmdx.stores import StoreError, connect
try:
    connect("postgresql://localhost/app")
except StoreError as error:
    print(error)
"""

    assert printed_by(program).endswith(
        ". Install what the extra 'postgres' of pycmdx has: "
        'pip install "psycopg[binary]>=3.2".\n'
    )


# -- errors -----------------------------------------------------------------------


def test_errors_are_errors_of_the_library():
    assert issubclass(StoreError, CmdxError)
    assert issubclass(StoreUnavailable, StoreError)


def test_only_what_may_pass_is_worth_a_retry():
    assert is_retryable(StoreUnavailable("it is locked", "Try again"))
    assert not is_retryable(StoreError("it is broken", "Mend it"))


@pytest.mark.parametrize("kind", [StoreError, StoreUnavailable, CommitUncertain])
def test_errors_can_be_pickled(kind):
    error = pickle.loads(pickle.dumps(kind("it is locked", "Try again")))

    assert type(error) is kind
    assert str(error) == "it is locked. Try again."
    assert (error.cause, error.cure) == ("it is locked", "Try again")


def test_a_sentence_of_a_driver_gets_no_second_full_stop():
    error = StoreError("the file is closed.", "Open it again.")

    assert str(error) == "the file is closed. Open it again."
    assert (error.cause, error.cure) == ("the file is closed", "Open it again")


def test_a_sentence_in_parentheses_has_no_full_stop(tmp_path):
    problem = sqlite3.ProgrammingError("Cannot operate on a closed database.")

    for error in (
        sqlite_error(problem, "app.db", str(tmp_path / "app.db")),
        postgres_error(problem, "postgresql://host/app"),
    ):
        assert "(Cannot operate on a closed database). Look" in str(error)


def test_only_a_commit_that_may_have_happened_is_uncertain():
    assert CommitUncertain("", "").is_uncertain
    assert not StoreUnavailable("", "").is_uncertain


@pytest.mark.parametrize("code", SQLITE_ERRORS)
@pytest.mark.parametrize("detail", ["", "_SOMETHING"])
def test_errors_of_sqlite_are_told_by_their_names(code, detail, tmp_path):
    problem = sqlite3.OperationalError("as SQLite says")
    problem.sqlite_errorname = code + detail

    error = sqlite_error(problem, "app.db", str(tmp_path / "app.db"))

    assert type(error) is SQLITE_ERRORS[code][0]
    assert str(error).startswith("app.db ")
    assert "(as SQLite says). " in str(error)
    assert error.__cause__ is problem


@pytest.mark.parametrize("code", POSTGRES_ERRORS)
def test_errors_of_postgres_are_told_by_their_codes(code):
    class Problem(Exception):
        sqlstate = code.ljust(5, "0")

    error = postgres_error(Problem("first\nsecond"), "postgresql://host/app")

    assert type(error) is POSTGRES_ERRORS[code][0]
    assert str(error).startswith("postgresql://host/app ")
    assert "(first). " in str(error)


# -- imports ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import cmdx", ["sqlite3", "psycopg", "cmdx.stores"]),
        ("import cmdx.stores", ["sqlite3", "psycopg", "asyncio"]),
        ("import cmdx.stores; cmdx.stores.connect(':memory:')", ["psycopg", "asyncio"]),
    ],
)
def test_nothing_is_imported_before_it_is_needed(program, absent):
    check = f"{program}; import sys; print(*(set(sys.modules) & set({absent!r})))"

    assert printed_by(check).split() == []


@pytest.mark.parametrize("name", cmdx.stores.__all__)
def test_every_public_name_is_there(name):
    assert getattr(cmdx.stores, name).__name__ == name


def test_all_is_sorted():
    assert cmdx.stores.__all__ == sorted(cmdx.stores.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'MysqlStore'"):
        _ = cmdx.stores.MysqlStore


def test_a_file_with_a_strange_name_is_a_file(tmp_path):
    with SqliteStore(tmp_path / "file:odd?mode=ro&x #1.db") as store:
        store.transact(
            lambda statements: statements.execute("create table note (id integer)")
        )
        store.transact(
            lambda statements: statements.execute("insert into note values (1)")
        )
        assert numbers_in(store) == [1]
    assert Path(store._path).exists()


def test_the_path_is_the_one_at_the_time_of_opening(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with SqliteStore("app.db") as store:
        monkeypatch.chdir(tmp_path / "other")
        store._prepare_for_fork()  # closes the file, which is opened again
        store._resume_in_parent()
        store.transact(
            lambda statements: statements.execute(
                "create table note (id integer, words text)"
            )
        )
        store.transact(add(1))
        assert numbers_in(store) == [1]
    assert list((tmp_path / "other").iterdir()) == []
