"""Interrupts and cancellation in the callbacks of a run in a ``Transaction``."""

from __future__ import annotations

import asyncio
import logging

import pytest
from databases import AsyncPsycopg, Django, Psycopg, SqliteInAsyncRuns, Way, opened

from cmdx import before_execution, on_success, task_cancelled


def ways(*kinds):
    """Run a test with these databases."""
    return pytest.mark.parametrize(
        "way", kinds, indirect=True, ids=lambda k: k.__name__
    )


@pytest.fixture(params=[Way])
def way(request, tmp_path):
    with opened(request.param, tmp_path) as database:
        yield database


def interrupt():
    raise KeyboardInterrupt


def write_and_call(way, *callbacks):
    """Return a body that writes a row, and has callbacks wait for the commit."""

    async def body(_task):
        await way.insert(1)
        for callback in callbacks:
            way.transaction.on_commit(callback)

    return body


@ways(Way, Psycopg, AsyncPsycopg, Django)
def test_an_interrupt_in_a_callback_on_commit_propagates_and_undoes_nothing(
    way, caplog
):
    called = []

    def first():
        called.append("first")

    def last():
        called.append("last")

    task = way.task(write_and_call(way, first, interrupt, last))
    with (
        caplog.at_level(logging.ERROR, logger="cmdx"),
        pytest.raises(KeyboardInterrupt),
    ):
        way.run(task)

    assert called == ["first"]
    assert way.rows() == [1]
    (record,) = caplog.records
    assert "were not called" in record.message
    assert "last" in record.message
    assert "first" not in record.message


def test_an_interrupt_in_the_last_callback_on_commit_is_not_logged(way, caplog):
    with pytest.raises(KeyboardInterrupt):
        way.run(way.task(write_and_call(way, interrupt)))

    assert caplog.records == []


def test_the_connection_is_usable_after_an_interrupt_in_a_callback_on_commit(way):
    with pytest.raises(KeyboardInterrupt):
        way.run(way.task(write_and_call(way, interrupt)))

    async def body(_task):
        await way.insert(2)

    assert way.run(way.task(body)).success
    assert way.rows() == [1, 2]


def test_a_run_that_is_interrupted_after_its_commit_is_announced_as_cancelled(way):
    seen = []

    def receive(_sender, result, **_payload):
        seen.append((result.replaced.status, result.stopped))

    task = way.task(write_and_call(way, interrupt))
    with (
        task_cancelled.connected_to(receive, sender=task),
        pytest.raises(KeyboardInterrupt),
    ):
        way.run(task)

    assert seen == [("success", "cancelled")]


def test_rollback_is_outside_of_the_transaction_if_it_was_committed_before(way):
    seen = []

    class Pay(way.task(write_and_call(way, interrupt))):
        def rollback(self):
            seen.append(way.rows())
            with pytest.raises(LookupError):
                way.transaction.current()

    with pytest.raises(KeyboardInterrupt):
        Pay.execute()

    assert seen == [[1]]


@ways(AsyncPsycopg, SqliteInAsyncRuns)
def test_a_run_that_is_cancelled_in_a_callback_on_commit_stays_committed(way):
    async def run():
        begun, called = asyncio.Event(), []

        async def wait():
            begun.set()
            await asyncio.Event().wait()

        body = write_and_call(way, wait, lambda: called.append("next"))
        running = asyncio.create_task(way.task(body).aexecute())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert called == []

    asyncio.run(run())

    assert way.rows() == [1]


@ways(Way, Psycopg, AsyncPsycopg, Django)
@pytest.mark.parametrize("hook", [before_execution, on_success])
def test_an_interrupt_in_a_callback_of_the_task_rolls_back(way, hook):
    called = []

    class Write(way.task(write_and_call(way, lambda: called.append("called")))):
        @hook
        def stop(self):
            interrupt()

    with pytest.raises(KeyboardInterrupt):
        way.run(Write)

    assert called == []
    assert way.rows() == []


@ways(AsyncPsycopg)
def test_a_run_that_is_cancelled_in_a_callback_of_the_task_is_rolled_back(way):
    async def run():
        begun, called = asyncio.Event(), []

        class Write(way.task(write_and_call(way, lambda: called.append("called")))):
            @on_success
            async def wait(self):
                begun.set()
                await asyncio.Event().wait()

        running = asyncio.create_task(Write.aexecute())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert called == []

    asyncio.run(run())

    assert way.rows() == []
