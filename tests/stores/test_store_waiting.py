"""Waiting until anybody commits, here or elsewhere."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from notes import PATIENCE, Call, add, numbers_in, start_python, wait_until

from cmdx.clock import Clock
from cmdx.stores.sqlite import ACTIVE_POLL, QUIET_POLL

ADD_ONE = """
import sys
from cmdx.stores import connect

store = connect(sys.argv[1])
sys.stdin.readline()
store.transact(lambda statements: statements.execute("insert into note values (1, '')"))
store.close()
"""


@pytest.fixture(autouse=True)
def _no_rechecks(monkeypatch):
    """Have callers that wait check the version only if they are woken."""
    monkeypatch.setattr("cmdx.stores.watch.RECHECK_EVERY", PATIENCE)


@pytest.fixture(params=["thread", "coroutine"])
def wait(request):
    """Wait in a thread, or in a coroutine."""

    def wait_in_coroutine(store, timeout, **options):
        return asyncio.run(store.await_commit(timeout, **options))

    if request.param == "coroutine":
        return wait_in_coroutine
    return lambda store, timeout, **options: store.wait(timeout, **options)


def start_to_wait(wait, store, **options):
    """Wait in another thread, and go on here once it does."""
    since = settled_version(store)
    call = Call(wait, store, PATIENCE, since=since, **options)
    wait_until(lambda: store._waiters)
    return call


def settled_version(store):
    """Return the version; on PostgreSQL the first that waits is woken for nothing."""
    if type(store).__name__ == "PostgresStore" and not store._listener._connection:
        assert store.wait(PATIENCE)
    return store.version()


# -- commits of others and of this process ----------------------------------------


def test_a_commit_of_another_thread_is_noticed(store, wait):
    call = start_to_wait(wait, store)

    store.transact(add(1))

    assert call.result() is True


def test_a_commit_of_another_store_is_noticed(shared_place, wait):
    store, other = shared_place.open(), shared_place.open()
    call = start_to_wait(wait, store)

    other.transact(add(1))

    assert call.result() is True


def test_a_commit_of_another_process_is_noticed(shared_place, wait):
    store = shared_place.open()
    process = start_python(ADD_ONE, shared_place.address)
    call = start_to_wait(wait, store)

    communication = Call(process.communicate, "\n")

    assert call.result() is True
    communication.result()
    assert process.returncode == 0


def test_a_commit_of_a_plain_connection_is_noticed(shared_place, wait, monkeypatch):
    monkeypatch.setattr("cmdx.stores.listening.SNAPSHOT_INTERVAL", 0.2)
    store = shared_place.open()
    call = start_to_wait(wait, store)
    connection = shared_place.connect()

    connection.execute("insert into note values (1, 'by hand')")
    connection.close()

    assert call.result() is True


@pytest.mark.parametrize("touches_log", [True, False])
def test_a_commit_in_quiet_times_is_noticed(file_place, monkeypatch, touches_log):
    if not touches_log:  # a file system whose times are coarse
        monkeypatch.setattr("cmdx.stores.sqlite.time_of", lambda _path: 7)
    monkeypatch.setattr("cmdx.stores.sqlite.QUIET_AFTER", 0.1)
    store, other, woken = file_place.open(), file_place.open(), threading.Event()
    with store.watching(woken.set):
        wait_until(lambda: 0 < store._active_until < time.monotonic())  # it is quiet
        woken.clear()

        other.transact(add(1))

        assert woken.wait(PATIENCE)


def test_in_quiet_times_the_database_is_asked_only_now_and_then(
    file_place, monkeypatch
):
    monkeypatch.setattr("cmdx.stores.sqlite.QUIET_AFTER", PATIENCE)
    store, asked = file_place.open(), []
    store._is_log_untouched()
    monkeypatch.setattr(store, "version", lambda: asked.append(1))
    for _ in range(5):
        assert store._poll_for_commits() is False
    assert not asked


class SleeplessClock(Clock):
    """Keeps the pauses of the thread that made it; other threads sleep."""

    def __init__(self):
        self.pauses, self.thread = [], threading.get_ident()

    def sleep(self, seconds):
        if threading.get_ident() == self.thread:
            self.pauses.append(seconds)
        else:
            super().sleep(seconds)


def test_who_commits_after_each_commit_of_another_looks_for_the_next_one_soon(
    file_place, monkeypatch
):
    store, other, clock = file_place.open(), file_place.open(), SleeplessClock()
    monkeypatch.setattr("cmdx.stores.sqlite.QUIET_AFTER", 0)
    monkeypatch.setattr("cmdx.stores.sqlite.UNSURE_FOR", PATIENCE)
    store._poll_for_commits()
    monkeypatch.setattr("cmdx.stores.sqlite.REAL_CLOCK", clock)

    for number in (1, 3):
        other.transact(add(number))
        store.transact(add(number + 1))
        assert store._poll_for_commits() is True

    assert clock.pauses == [QUIET_POLL, ACTIVE_POLL]


def test_the_announcement_wakes_other_stores_at_once(postgres_place, monkeypatch):
    monkeypatch.setattr("cmdx.stores.listening.SNAPSHOT_INTERVAL", 3600.0)
    store = postgres_place.open()
    call = start_to_wait(type(store).wait, store)
    connection = postgres_place.connect()

    with connection.transaction():
        connection.execute("insert into note values (1, 'by hand')")
        connection.execute(store.announcement)
    connection.close()

    assert call.result() is True


def test_all_that_wait_are_woken(store):
    since = settled_version(store)
    threads = [Call(store.wait, PATIENCE, since=since) for _ in range(5)]

    async def main():
        waits = (store.await_commit(PATIENCE, since=since) for _ in range(5))
        return await asyncio.gather(*waits)

    loop = Call(asyncio.run, main())
    wait_until(lambda: len(store._waiters) == 10)
    store.transact(add(1))

    assert [call.result() for call in threads] == [True] * 5
    assert loop.result() == [True] * 5


# -- when -------------------------------------------------------------------------


def test_a_commit_between_version_and_wait_is_not_missed(store, wait):
    since = store.version()
    store.transact(add(1))

    assert wait(store, PATIENCE, since=since) is True


def test_a_commit_of_others_between_version_and_wait_is_not_missed(shared_place, wait):
    store = shared_place.open()
    since = store.version()
    connection = shared_place.connect()
    connection.execute("insert into note values (1, 'by hand')")
    connection.close()

    assert wait(store, PATIENCE, since=since) is True


def test_no_wake_up_is_lost_whenever_the_commit_comes(store, wait):
    for number in range(30):
        since = store.version()
        call = Call(store.transact, add(number))
        assert wait(store, PATIENCE, since=since) is True
        call.result()
    assert len(numbers_in(store)) == 30


def test_waiting_ends_when_the_time_is_over(store, wait):
    # Others may use the server meanwhile.
    assert any(wait(store, 0.01) is False for _ in range(20))
    assert store._waiters == []


def test_no_time_to_wait_is_a_look(store, wait):
    since = settled_version(store)

    assert wait(store, 0, since=since) is False
    store.transact(add(1))
    assert wait(store, 0, since=since) is True


def test_a_version_stays_while_nobody_commits(store):
    since = settled_version(store)

    assert store.version() == since


def test_a_unit_that_changes_nothing_wakes_nobody(store):
    since = settled_version(store)
    numbers_in(store)
    store.transact(lambda statements: statements.execute("update note set id = 1"))

    assert store.version() == since


def test_the_time_to_wait_is_real_time(store, instant):
    instant.advance(-3600)
    began = time.monotonic()
    store.wait(0.05, since=store.version())
    instant.advance(7200)

    assert store.wait(0.05) in (True, False)
    assert time.monotonic() - began < PATIENCE


def test_a_caller_that_was_not_woken_checks_all_the_same(
    memory_store, wait, monkeypatch
):
    monkeypatch.setattr("cmdx.stores.watch.RECHECK_EVERY", 0.01)
    call = start_to_wait(wait, memory_store)
    memory_store._wake_waiters = lambda: (
        None
    )  # as if a leader had been interrupted there
    memory_store.transact(add(1))

    assert call.result() is True


# -- the thread that watches ------------------------------------------------------


def watchers():
    return {thread for thread in threading.enumerate() if "watcher" in thread.name}


def test_one_thread_watches_for_all_that_wait(shared_store):
    before = watchers()
    since = settled_version(shared_store)
    calls = [Call(shared_store.wait, PATIENCE, since=since) for _ in range(8)]
    wait_until(lambda: len(shared_store._waiters) == 8)

    assert len(watchers() - before) == 1
    shared_store.transact(add(1))
    for call in calls:
        call.result()


def test_the_thread_that_watches_ends_when_nobody_waits(shared_store):
    shared_store.wait(0.05)

    wait_until(lambda: not watchers())
    assert shared_store.wait(PATIENCE, since=-1)


def test_a_store_in_memory_needs_no_thread_that_watches(memory_store):
    before = watchers()
    memory_store.wait(0.01)

    assert watchers() <= before


def test_a_cancelled_wait_is_forgotten(store):
    async def main():
        task = asyncio.ensure_future(store.await_commit(PATIENCE, since=since))
        while not store._waiters:  # noqa: ASYNC110 -- seen from outside
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    since = settled_version(store)
    asyncio.run(main())

    assert store._waiters == []


def test_waiting_does_not_keep_a_store_that_is_closed(shared_store, wait):
    call = start_to_wait(wait, shared_store)

    shared_store.close()

    with pytest.raises(Exception, match="was closed"):
        call.result()
