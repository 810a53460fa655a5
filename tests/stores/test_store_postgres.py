"""PostgreSQL: lost connections, other processes that write, notifications."""

from __future__ import annotations

import re
import socket
from contextlib import closing, suppress
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest
from notes import (
    INSERT,
    PATIENCE,
    Call,
    add,
    look_and_add,
    nobody_leads,
    numbers_in,
    output_of,
    start_python,
    wait_for_queue,
    wait_until,
)

from cmdx import clock
from cmdx.stores import PostgresStore, StoreError, StoreUnavailable


@pytest.fixture
def store(postgres_store):
    return postgres_store


def end_session(place, store):
    """Have the server end the session of a store."""
    process = store._connection.pgconn.backend_pid
    with closing(place.connect()) as connection:
        connection.execute("select pg_terminate_backend(%s, 10000)", [process])


def once(action):
    """Return a function that does *action* the first time it is called."""
    done = []

    def call(*_arguments):
        if not done:
            done.append(True)
            action()

    return call


# -- lost connections -------------------------------------------------------------


@pytest.mark.parametrize("unit", [add, look_and_add])
def test_a_session_that_ended_while_it_was_idle_is_not_noticed(
    postgres_place, store, unit
):
    end_session(postgres_place, store)

    assert store.transact(unit(1)) == 1
    assert numbers_in(store) == [1]


def test_a_unit_during_which_the_session_ends_is_run_again_once(postgres_place, store):
    runs = []
    end = once(lambda: end_session(postgres_place, store))

    def unit(statements):
        runs.append(1)
        statements.execute(INSERT, id=1, words="")
        end()
        return statements.execute("select count(*) from note")

    assert store.transact(unit) == [(1,)]
    assert len(runs) == 2
    assert numbers_in(store) == [1]


def test_a_unit_during_which_each_session_ends_is_given_up(postgres_place, store):
    runs = []

    def unit(statements):
        runs.append(1)
        end_session(postgres_place, store)
        statements.execute("select 1")

    with pytest.raises(StoreUnavailable, match="Try again when the server") as caught:
        store.transact(unit)

    assert not caught.value.is_uncertain
    assert len(runs) == 2
    assert store.transact(add(1)) == 1


def test_a_session_that_ended_before_the_commit_has_not_committed(
    postgres_place, store
):
    end = once(lambda: end_session(postgres_place, store))
    store.at = lambda point: point == "before commit" and end()

    assert store.transact(add(1)) == 1
    assert numbers_in(store) == [1]


def test_all_units_of_a_group_are_run_again_when_the_session_ended(
    postgres_place, store
):
    end = once(lambda: end_session(postgres_place, store))
    store.at = lambda point: point == "before commit" and end()
    with nobody_leads(store):
        calls = [Call(store.transact, add(number)) for number in range(5)]
        wait_for_queue(store, 5)

    assert [call.result() for call in calls] == list(range(5))
    assert numbers_in(store) == list(range(5))


def test_all_that_wait_are_told_that_the_server_is_gone(postgres_place, store):
    end_session(postgres_place, store)
    store._dsn = re.sub(r"port=\d+", "port=1", store._dsn)
    with nobody_leads(store):
        calls = [Call(store.transact, add(number)) for number in range(3)]
        wait_for_queue(store, 3)

    for call in calls:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            call.result()


# -- a connection that is cut -----------------------------------------------------


class Cable:
    """Passes everything on between a client and the server, until it is cut."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = address.replace(
            f"@{parts.hostname}:{parts.port}", f"@127.0.0.1:{self.port}"
        )
        self.cut_at = None
        """Before or after which message of the client it is cut, and how."""
        self.seen = Event()
        self.sockets = []
        Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.server)
                self.sockets += [client, server]
                ends = [(client, server, self.is_cut), (server, client, self.is_deaf)]
                for source, target, stops in ends:
                    arguments = (source, target, stops)
                    Thread(target=self.pass_on, args=arguments, daemon=True).start()

    def pass_on(self, source, target, stops):
        with suppress(OSError):
            while message := source.recv(65_536):
                if stops(message):
                    break
                target.sendall(message)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def hang_up(self):
        """End all connections, without a word."""
        for end in self.sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def is_cut(self, message):
        """Cut the cable before the server gets a commit."""
        if self.cut_at is None or b"commit\0" not in message:
            return False
        self.seen.set()
        return self.cut_at == "before"

    def is_deaf(self, _message):
        """Cut the cable before the client gets the answer to a commit."""
        return self.cut_at == "after" and self.seen.is_set()


@pytest.fixture
def cable(postgres_place, stack):
    postgres_place.open()
    cable = Cable(postgres_place.address)
    if str(cable.port) not in cable.address:
        pytest.skip("the address of the server has no host and port")
    cable.address += "&sslmode=disable&gssencmode=disable"
    stack.callback(cable.listener.close)
    return cable


def test_a_cable_that_was_cut_while_it_was_idle_is_not_noticed(cable, store, stack):
    far = stack.enter_context(PostgresStore(cable.address))
    far.transact(add(0))
    runs = []
    cable.hang_up()

    def unit(statements):
        runs.append(1)
        return add(1)(statements)

    assert far.transact(unit) == 1
    assert len(runs) == 1
    assert numbers_in(store) == [0, 1]


@pytest.mark.parametrize(("cut_at", "stored"), [("before", []), ("after", [0, 1, 2])])
def test_a_commit_of_which_nobody_can_know_is_called_uncertain(
    cable, store, stack, cut_at, stored
):
    far = stack.enter_context(PostgresStore(cable.address))
    runs = []

    def unit_of(number):
        def unit(statements):
            runs.append(number)
            return add(number)(statements)

        return unit

    cable.cut_at = cut_at
    with nobody_leads(far):
        calls = [Call(far.transact, unit_of(number)) for number in range(3)]
        wait_for_queue(far, 3)

    for call in calls:
        with pytest.raises(StoreUnavailable, match="may or may not") as caught:
            call.result()
        assert caught.value.is_uncertain
    assert sorted(runs) == [0, 1, 2]  # nothing is run again
    assert numbers_in(store) == stored
    cable.cut_at = None
    assert far.transact(add(9)) == 9


# -- others that write ------------------------------------------------------------


def test_a_unit_that_collides_with_another_process_is_run_again(postgres_place, store):
    other = postgres_place.open()
    store.transact(
        lambda statements: statements.execute("create unique index on note (id)")
    )
    interfere = once(lambda: other.transact(add(1, "theirs")))

    def unit(statements):
        rows = statements.execute("select words from note where id = :id", id=1)
        interfere()
        if rows:
            return rows[0][0]
        statements.execute(INSERT, id=1, words="mine")
        return "mine"

    assert store.transact(unit) == "theirs"
    assert numbers_in(store) == [1]


def test_a_unit_that_collides_again_and_again_is_told_why(store):
    store.transact(
        lambda statements: statements.execute("create unique index on note (id)")
    )
    store.transact(add(1))

    with pytest.raises(StoreError, match="duplicate key"):
        store.transact(add(1))


def test_units_that_deadlock_are_run_again(postgres_place, store):
    other = postgres_place.open()
    for number in (1, 2):
        store.transact(add(number, "0"))
    first, second = Event(), Event()
    sql = "update note set words = :words where id = :id"

    def unit_of(numbers, own, its):
        def unit(statements):
            statements.execute(sql, id=numbers[0], words="x")
            statements.execute("select 1")
            own.set()
            its.wait(PATIENCE)
            statements.execute(sql, id=numbers[1], words="x")
            return statements.execute("select count(*) from note where words = 'x'")

        return unit

    one = Call(store.transact, unit_of((1, 2), first, second))
    two = Call(other.transact, unit_of((2, 1), second, first))

    assert [one.result(), two.result()] == [[(2,)], [(2,)]]


def test_rows_that_another_process_has_locked_are_skipped(postgres_place, store):
    for number in (1, 2):
        store.transact(add(number))
    sql = "select id from note order by id limit 1 for update skip locked"
    with closing(postgres_place.connect()) as connection, connection.transaction():
        connection.execute(sql)

        rows = store.transact(lambda statements: statements.execute(sql))

    assert rows == [(2,)]


@pytest.fixture
def locked_row(postgres_place, store):
    """A row that another connection has locked."""
    store.transact(add(1))
    with closing(postgres_place.connect()) as connection, connection.transaction():
        connection.execute("select id from note where id = 1 for update")
        yield


def change_the_row(statements):
    return statements.execute("update note set words = 'x' where id = 1 returning id")


@pytest.mark.usefixtures("locked_row")
def test_a_unit_does_not_wait_for_ever_for_a_row(postgres_place, monkeypatch):
    monkeypatch.setattr("cmdx.stores.postgres.LOCK_TIMEOUT", 0.05)
    store = postgres_place.open()
    with nobody_leads(store):
        blocked = Call(store.transact, change_the_row)
        wait_for_queue(store, 1)
        other = Call(store.transact, add(2))
        wait_for_queue(store, 2)

    with pytest.raises(
        StoreUnavailable, match=r"locked for too long.*Try again.*If .* is your own"
    ):
        blocked.result()
    assert other.result() == 2


@pytest.mark.usefixtures("locked_row")
def test_the_time_to_wait_for_a_row_can_be_set_in_the_address(postgres_place, stack):
    address = f"{postgres_place.address}%20-clock_timeout%3D50ms"
    store = stack.enter_context(PostgresStore(address))

    with pytest.raises(StoreUnavailable, match="locked for too long"):
        Call(store.transact, change_the_row).result()
    ((limit,),) = store.transact(
        lambda statements: statements.execute("select current_setting('lock_timeout')")
    )
    assert limit == "50ms"


def test_a_row_is_waited_for_as_long_as_for_a_file(store):
    ((limit,),) = store.transact(
        lambda statements: statements.execute("select current_setting('lock_timeout')")
    )

    assert limit == "5s"


def test_an_error_that_a_unit_ignores_is_not_ignored(store):
    def unit(statements):
        with suppress(Exception):
            statements.execute("select * from nothing")
        statements.execute(INSERT, id=1, words="")

    with pytest.raises(StoreError, match="the unit went on without it"):
        store.transact(unit)

    assert numbers_in(store) == []
    assert store.transact(add(2)) == 2


def test_an_error_that_shows_with_the_commit_is_told(store):
    def unit(statements):
        statements.execute("insert into note (id) values (:id)", id="one")
        return "too early"

    with pytest.raises(StoreError, match="integer"):
        store.transact(unit)

    assert store.transact(add(2)) == 2


# -- how commits are written ------------------------------------------------------


def level(statements):
    """A unit that returns how its commit is written."""
    ((name,),) = statements.execute("select current_setting('synchronous_commit')")
    return name


def test_only_relaxed_units_may_be_lost(store):
    assert store.transact(level) == "on"
    assert store.transact(level, relaxed=True) == "off"
    assert store.transact(level) == "on"


def test_one_that_is_not_relaxed_is_enough_for_a_group(store):
    with nobody_leads(store):
        calls = [Call(store.transact, level, relaxed=is_it) for is_it in (1, 0, 1)]
        wait_for_queue(store, 3)

    assert [call.result() for call in calls] == ["on"] * 3


# -- notifications ----------------------------------------------------------------


@pytest.fixture
def listener(postgres_place, store, stack):
    wait_until(lambda: not store._announcement_pending)  # that there is a table
    with store._write_lock:
        store._notified_at = -3600.0
    connection = stack.enter_context(closing(postgres_place.connect()))
    connection.execute(store.announcement.replace("notify", "listen"))
    return connection


def notices(connection, timeout):
    return len(list(connection.notifies(timeout=timeout, stop_after=1)))


def test_the_last_of_many_commits_is_announced_too(postgres_place, store, listener):
    reader = postgres_place.open()
    for number in range(40):
        store.transact(add(number))

    received = 0
    while len(numbers_in(reader)) < 40 or not received:
        received += notices(listener, PATIENCE)
    received += notices(listener, 0.1)

    assert received >= 2


def test_commits_in_a_row_are_announced_together(store, listener, monkeypatch):
    monkeypatch.setattr("cmdx.stores.postgres.NOTIFY_INTERVAL", 0.5)
    for number in range(20):
        store.transact(add(number))

    assert notices(listener, PATIENCE) == 1
    assert notices(listener, PATIENCE) == 1  # half a second later
    assert notices(listener, 0.6) == 0


WRITES = [
    "insert into note values (1, '')",
    "insert into note values (1, '') returning id",
    "insert into note values (1, '') on conflict do nothing",
    "update note set id = 1 returning id",
    "delete from note returning id",
    "delete from note",
    "with gone as (delete from note returning id) select id from gone",
    "with one as (select 1 as id) update note set id = one.id from one",
    "select id into other from note",
    "create table other (id integer)",
    "truncate note",
    "do $$ begin delete from note; end $$",
]


@pytest.mark.parametrize("sql", WRITES)
def test_whatever_writes_changes_the_version_and_is_announced(store, listener, sql):
    with store._write_lock:
        store._notified_at = clock.Clock.monotonic() + 3600  # not yet
    store.transact(add(0))
    with store._write_lock:
        store._announcement_pending = False
        store._notified_at = -3600.0
    before = store.version()

    store.transact(lambda statements: statements.execute(sql))

    assert store.version() != before
    assert notices(listener, PATIENCE) == 1


def test_units_that_change_nothing_are_not_announced(store, listener):
    numbers_in(store)
    store.transact(lambda statements: statements.execute("delete from note"))

    assert notices(listener, 0.1) == 0


def test_what_is_not_announced_yet_is_announced_when_the_store_closes(
    store, listener, monkeypatch
):
    monkeypatch.setattr("cmdx.stores.postgres.NOTIFY_INTERVAL", 3600.0)
    store._notified_at = clock.Clock.monotonic()
    store.transact(add(1))
    assert store._announcement_pending
    store.close()

    assert notices(listener, PATIENCE) == 1


def test_what_is_not_announced_yet_is_announced_when_the_process_ends(
    postgres_place, listener
):
    program = """
import sys
from cmdx import clock
from cmdx.stores import connect, postgres

store = connect(sys.argv[1])
postgres.NOTIFY_INTERVAL = 0.5
store._notified_at = clock.Clock.monotonic()
store.transact(lambda statements: statements.execute("insert into note values (1, '')"))
postgres.NOTIFY_INTERVAL = 0.005
"""
    output_of(start_python(program, postgres_place.address))

    assert notices(listener, PATIENCE) == 1


def test_a_listening_session_that_ended_is_opened_again(postgres_place, monkeypatch):
    monkeypatch.setattr("cmdx.stores.postgres.SNAPSHOT_INTERVAL", 0.01)
    store, other = postgres_place.open(), postgres_place.open()
    assert store.wait(PATIENCE)  # it listens now
    session = store._listener._connection.pgconn.backend_pid
    with closing(postgres_place.connect()) as connection:
        connection.execute("select pg_terminate_backend(%s, 10000)", [session])

    since = store.version()
    other.transact(add(1))

    assert store.wait(PATIENCE, since=since)


def has_session(connection, process):
    sql = "select 1 from pg_stat_activity where pid = %s"
    return connection.execute(sql, [process]).fetchall() != []


def test_the_store_does_not_listen_when_nobody_waits(postgres_place, store):
    """The server keeps what a listening session has not read, for all sessions."""
    store.wait(0.01)
    wait_until(lambda: store._listener.is_open)
    listening = store._listener._connection
    process = listening.pgconn.backend_pid if listening else None
    with closing(postgres_place.connect()) as connection:
        wait_until(lambda: not has_session(connection, process))

    assert not store._listener.is_open


def test_a_commit_while_nobody_listened_is_not_missed(postgres_place, store):
    store.wait(0.01)
    wait_until(lambda: not store._listener.is_open)
    since = store.version()
    with closing(postgres_place.connect()) as connection:
        connection.execute("insert into note values (1, 'by hand')")

    assert store.wait(PATIENCE, since=since)


# -- the clock of the server ------------------------------------------------------


class LateClock(clock.Clock):
    """The clock of a machine that is an hour behind, and can be forwarded."""

    ahead = 0.0

    def time(self):
        return clock.Clock.time() - 3600 + self.ahead

    def monotonic(self):
        return clock.Clock.monotonic() + self.ahead


def test_the_time_of_a_store_is_that_of_its_server(postgres_place, monkeypatch):
    monkeypatch.setattr("cmdx.stores.postgres.REAL_CLOCK", LateClock())
    store = postgres_place.open()
    with clock.use(LateClock()):
        assert store.now() == pytest.approx(clock.Clock.time(), abs=30)


def test_the_clock_of_the_server_is_read_again_after_a_minute(
    postgres_place, monkeypatch
):
    real = LateClock()
    monkeypatch.setattr("cmdx.stores.postgres.REAL_CLOCK", real)
    store = postgres_place.open()
    monkeypatch.setattr(real, "time", clock.Clock.time)  # somebody has set it right
    store.transact(add(1))
    assert store._offset == pytest.approx(3600, abs=30)

    real.ahead = 61
    store.transact(add(2))

    assert store._offset == pytest.approx(0, abs=30)


# -- poolers ----------------------------------------------------------------------


def test_statements_that_a_pooler_does_not_know_are_sent_in_full(store):
    store.transact(add(1))
    store.transact(lambda statements: statements.execute("deallocate all"))

    assert store.transact(add(2)) == 2
    assert store.transact(add(3)) == 3
    assert numbers_in(store) == [1, 2, 3]


def test_more_statements_than_are_prepared_can_be_run(store, monkeypatch):
    monkeypatch.setattr("cmdx.stores.pipeline.MOST_PREPARED", 5)
    for number in range(20):
        sql = f"select {number} + :more"
        rows = store.transact(
            lambda statements, sql=sql: statements.execute(sql, more=1)
        )
        assert rows == [(number + 1,)]


def test_tables_are_where_the_address_says(postgres_place):
    postgres_place.open()
    with closing(postgres_place.connect()) as connection:
        rows = connection.execute(
            "select schemaname from pg_tables where tablename = 'cmdx_schema' "
            "and schemaname = current_schema()"
        ).fetchall()

    assert len(rows) == 1
    assert rows[0][0].startswith("cmdx_test_")
