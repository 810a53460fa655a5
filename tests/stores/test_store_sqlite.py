"""SQLite: what is written through, what is locked, full or read-only, and the log."""

from __future__ import annotations

import sqlite3
import sys
from threading import Timer

import pytest
from notes import (
    Call,
    add,
    nobody_leads,
    numbers_in,
    start_python,
    wait_for_queue,
)

from cmdx.stores import SqliteStore, StoreError, StoreUnavailable, sqlite

NORMAL, FULL = 1, 2


def level(statements):
    """A unit that returns how its commit is written."""
    ((number,),) = statements.execute("pragma synchronous")
    return number


# -- sync -------------------------------------------------------------------------


def test_a_commit_is_written_through_only_for_those_that_ask(file_store):
    assert file_store.transact(level) == NORMAL
    assert file_store.transact(level, sync=True) == FULL
    assert file_store.transact(level) == NORMAL


def test_one_that_asks_is_enough_for_a_group(file_store):
    with nobody_leads(file_store):
        calls = [Call(file_store.transact, level, sync=is_it) for is_it in (0, 1, 0)]
        wait_for_queue(file_store, 3)

    assert [call.result() for call in calls] == [FULL] * 3
    assert file_store.transact(level) == NORMAL


def test_a_store_can_write_all_commits_through(file_place):
    store = file_place.open(sync=True)

    assert store.transact(level) == FULL
    assert store.transact(level, sync=True) == FULL


def test_what_may_be_lost_is_never_written_through_unless_somebody_asks(file_place):
    store = file_place.open(sync=True)

    assert store.transact(level, relaxed=True) == NORMAL
    assert store.transact(level, relaxed=True, sync=True) == FULL


def test_one_that_may_not_be_lost_is_enough_for_a_group(file_place):
    store = file_place.open(sync=True)
    with nobody_leads(store):
        calls = [Call(store.transact, level, relaxed=is_it) for is_it in (1, 0, 1)]
        wait_for_queue(store, 3)

    assert [call.result() for call in calls] == [FULL] * 3


def test_nothing_is_set_again_while_nobody_asks_for_something_else(file_store):
    file_store.transact(add(0))
    statements = []
    file_store._connection.set_trace_callback(statements.append)
    for number in range(3):
        file_store.transact(add(number))
    file_store._connection.set_trace_callback(None)

    assert [text for text in statements if "synchronous" in text] == []
    assert len(statements) == 9


def test_every_transaction_begins_as_a_writing_one(file_store):
    statements = []
    file_store._connection.set_trace_callback(statements.append)
    numbers_in(file_store)
    file_store._connection.set_trace_callback(None)

    assert [text.lower() for text in statements][0::2] == ["begin immediate", "commit"]


# -- locked -----------------------------------------------------------------------


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", 0.05)


@pytest.mark.usefixtures("_impatient")
def test_all_that_wait_are_told_that_the_database_is_locked(file_place):
    store = file_place.open()
    connection = file_place.connect()
    connection.execute("begin immediate")
    with nobody_leads(store):
        calls = [Call(store.transact, add(number)) for number in range(3)]
        wait_for_queue(store, 3)

    for call in calls:
        with pytest.raises(StoreUnavailable, match=r"is locked .*Try again") as caught:
            call.result()
        assert store.name in str(caught.value)
    assert len({id(call.error) for call in calls}) == 3  # each has an error of its own
    connection.execute("rollback")
    connection.close()
    assert store.transact(add(1)) == 1


def test_a_database_that_is_locked_for_a_moment_is_waited_for(file_place):
    store = file_place.open()
    connection = file_place.connect()
    connection.execute("begin immediate")
    call = Call(store.transact, add(1))
    wait_for_queue(store, 1)
    connection.execute("commit")
    connection.close()

    assert call.result() == 1


@pytest.mark.usefixtures("_impatient")
def test_a_database_that_is_locked_when_it_is_opened_is_named(file_place):
    connection = file_place.connect()
    connection.execute("begin exclusive")

    with pytest.raises(StoreUnavailable, match="is locked"):
        SqliteStore(file_place.address)

    connection.close()


# -- full, read-only, closed underneath -------------------------------------------


@pytest.mark.parametrize("place", ["memory", "file"], indirect=True)
def test_a_full_database_says_so_and_others_go_on(place):
    store = place.open()
    ((pages,),) = store._connection.execute("pragma page_count")
    store._connection.execute(f"pragma max_page_count={pages + 4}")
    with nobody_leads(store):
        large = Call(store.transact, add(1, "x" * 1_000_000))
        small = Call(store.transact, add(2, "x"))
        wait_for_queue(store, 2)

    assert small.result() == 2
    with pytest.raises(StoreUnavailable, match=r"cannot grow.*Free some space"):
        large.result()
    assert numbers_in(store) == [2]


def test_a_read_only_database_says_so(file_store):
    file_store._connection.execute("pragma query_only=on")

    with pytest.raises(StoreError, match=r"is read-only .*Let this user write") as told:
        file_store.transact(add(1))

    assert type(told.value) is StoreError
    file_store._connection.execute("pragma query_only=off")


def test_a_directory_without_a_log_is_refused(file_place, monkeypatch):
    monkeypatch.setattr(sqlite, "run_patiently", lambda _execute, _sql: Refuses())

    class Refuses:
        def fetchone(self):
            return ("delete",)

    with pytest.raises(StoreError, match=r"write-ahead log .*local disk"):
        SqliteStore(file_place.address)


# -- the log ----------------------------------------------------------------------


@pytest.fixture
def _small_log(monkeypatch):
    monkeypatch.setattr(sqlite, "SMALL_LOG", 100_000)
    monkeypatch.setattr(sqlite, "LOG_CHECK_EVERY", 1)


def size_of_log(store):
    return sqlite.size_of(f"{store._path}-wal")


@pytest.mark.usefixtures("_small_log")
def test_the_log_is_emptied_when_it_has_grown(file_place):
    store = file_place.open()
    for number in range(200):
        store.transact(add(number, "x" * 10_000))

    assert size_of_log(store) < 400_000
    assert len(numbers_in(store)) == 200


@pytest.mark.usefixtures("_small_log")
def test_a_log_that_a_reader_has_kept_large_is_cut(file_place, monkeypatch):
    monkeypatch.setattr(sqlite, "LARGE_LOG", 1_000_000)
    store = file_place.open()
    reader = file_place.connect()
    reader.execute("begin")
    reader.execute("select * from note").fetchall()
    for number in range(200):
        store.transact(add(number, "x" * 10_000))
    assert size_of_log(store) > 1_000_000

    reader.execute("commit")
    reader.close()
    for number in range(200, 300):
        store.transact(add(number, "x" * 10_000))

    assert size_of_log(store) < 1_000_000


def test_the_log_is_not_emptied_by_sqlite_itself(file_store):
    rows = file_store._connection.execute("pragma wal_autocheckpoint").fetchall()

    assert rows == [(0,)]


def test_a_file_of_another_mode_gets_a_log(tmp_path):
    connection = sqlite3.connect(tmp_path / "app.db")
    connection.execute("create table mine (id integer)")
    connection.commit()
    connection.close()

    with SqliteStore(tmp_path / "app.db") as store:
        assert store._connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert store.transact(lambda statements: statements.columns_of("mine")) == {
            "id"
        }


REPAIR = """
import fcntl, sys
with open(sys.argv[1] + "-shm", "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX, 1, 122)  # the lock of who repairs the log
    index.write(bytes(96))  # its head, as a crash may leave it
    index.flush()
    print("repairing", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
@pytest.mark.parametrize("read_only", [True, False])
def test_a_unit_waits_while_another_process_repairs_the_log(tmp_path, read_only):
    store = SqliteStore(tmp_path / "app.db")
    count = "select count(*) from cmdx_operation"
    repair = start_python(REPAIR, tmp_path / "app.db")
    assert repair.stdout.readline() == "repairing\n"
    timer = Timer(0.2, repair.communicate)
    timer.start()
    rows = store.transact(lambda rows: rows.execute(count), read_only=read_only)
    timer.join()

    assert rows == [(0,)]
    assert repair.returncode == 0
