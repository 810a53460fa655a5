"""Units that only read: they do not wait for a connection that writes to the file."""

from __future__ import annotations

import asyncio

import pytest
from notes import (
    PATIENCE,
    Call,
    Refused,
    add,
    count_notes,
    nobody_leads,
    numbers_in,
    wait_for_queue,
    wait_until,
)

from cmdx.stores import StoreUnavailable, sqlite


@pytest.fixture(params=["thread", "coroutine"])
def read(request):
    """Run a unit that only reads, in a thread or in a coroutine."""
    if request.param == "thread":
        return lambda store, unit: store.transact(unit, read_only=True)
    return lambda store, unit: asyncio.run(store.atransact(unit, read_only=True))


@pytest.fixture
def writer(file_place, file_store, monkeypatch):
    """Another connection, in the middle of a write transaction."""
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", PATIENCE)
    file_store.transact(add(1))
    connection = file_place.connect()
    connection.execute("begin immediate")
    connection.execute("insert into note values (2, 'not committed')")
    yield connection
    connection.close()


def test_a_unit_that_only_reads_returns_its_value(store, read):
    store.transact(add(1))

    assert read(store, count_notes) == 1


def test_a_unit_that_only_reads_can_raise(store, read):
    def unit(_statements):
        raise Refused

    with pytest.raises(Refused):
        read(store, unit)

    assert store.transact(add(1)) == 1


def test_a_unit_that_only_reads_takes_no_write_lock(file_store):
    statements = []
    file_store._connection.set_trace_callback(statements.append)
    file_store.transact(count_notes, read_only=True)
    file_store._connection.set_trace_callback(None)

    assert [text.lower() for text in statements][0::2] == ["begin", "commit"]


@pytest.mark.usefixtures("writer")
def test_reading_works_while_another_connection_writes(file_store, read):
    assert read(file_store, count_notes) == 1


def test_reading_works_while_a_writer_of_the_store_waits(file_store, writer, read):
    waiting = Call(file_store.transact, add(3))
    wait_until(lambda: file_store._group)

    assert read(file_store, count_notes) == 1
    assert waiting.is_alive()
    writer.execute("commit")

    assert waiting.result() == 3
    assert numbers_in(file_store) == [1, 2, 3]


def test_reading_works_while_a_writing_coroutine_waits(file_store, writer, read):
    waiting = Call(asyncio.run, file_store.atransact(add(3)))
    wait_until(lambda: file_store._group)

    assert read(file_store, count_notes) == 1
    writer.execute("commit")

    assert waiting.result() == 3


@pytest.mark.parametrize("first", ["reads", "writes"])
def test_a_caller_that_only_reads_does_not_wait_with_those_that_write(
    file_store, writer, first
):
    runs = []

    def unit(statements):
        runs.append(1)
        return count_notes(statements)

    with nobody_leads(file_store):
        if first == "reads":
            reading = Call(file_store.transact, unit, read_only=True)
            wait_for_queue(file_store, 1)
        waiting = Call(file_store.transact, add(3))
        wait_for_queue(file_store, 1 + (first == "reads"))
        if first == "writes":
            reading = Call(file_store.transact, unit, read_only=True)
            wait_for_queue(file_store, 2)

    assert reading.result() == 1
    writer.execute("rollback")

    assert waiting.result() == 3
    assert len(runs) == 1
    assert numbers_in(file_store) == [1, 3]


def test_a_reading_unit_that_raises_while_a_writer_waits_hurts_nobody(
    file_store, writer
):
    def unit(_statements):
        raise Refused

    waiting = Call(file_store.transact, add(3))
    wait_until(lambda: file_store._group)

    with pytest.raises(Refused):
        file_store.transact(unit, read_only=True)
    assert file_store.transact(count_notes, read_only=True) == 1
    writer.execute("commit")

    assert waiting.result() == 3


def test_units_that_read_and_write_go_together(store):
    with nobody_leads(store):
        calls = [
            Call(store.transact, add(1)),
            Call(store.transact, lambda _statements: "read", read_only=True),
            Call(store.transact, add(2)),
        ]
        wait_for_queue(store, 3)

    assert [call.result() for call in calls] == [1, "read", 2]
    assert numbers_in(store) == [1, 2]


def test_a_unit_that_only_reads_wakes_nobody(store):
    since = store._written
    store.transact(count_notes, read_only=True)

    assert store._written == since


@pytest.mark.usefixtures("writer")
def test_a_lock_that_is_not_released_is_told_only_to_those_that_write(
    file_store, monkeypatch
):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", 0)
    with nobody_leads(file_store):
        writing = Call(file_store.transact, add(3))
        wait_for_queue(file_store, 1)
        reading = Call(file_store.transact, count_notes, read_only=True)
        wait_for_queue(file_store, 2)

    assert reading.result() == 1
    with pytest.raises(StoreUnavailable, match="is locked"):
        writing.result()
