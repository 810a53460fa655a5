"""Coroutines: they never block their event loop, and can be cancelled."""

from __future__ import annotations

import asyncio
from threading import Event, get_ident

import pytest
from notes import (
    PATIENCE,
    Call,
    Refused,
    add,
    add_and_raise,
    count_commits,
    nobody_leads,
    numbers_in,
    wait_for_queue,
    wait_until,
)

from cmdx.stores import StoreError


def run(main):
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


async def until(is_true):
    """Let the event loop run until something is true."""
    while not is_true():  # noqa: ASYNC110 -- other threads make it true
        await asyncio.sleep(0.001)


def test_a_coroutine_gets_the_value_of_its_unit(store):
    assert run(store.atransact(add(3))) == 3
    assert numbers_in(store) == [3]


def test_a_coroutine_gets_the_error_of_its_unit(store):
    with pytest.raises(Refused):
        run(store.atransact(add_and_raise(3)))

    assert numbers_in(store) == []


def test_coroutines_that_wait_go_together_in_one_transaction(store):
    commits = count_commits(store)

    async def main():
        units = (store.atransact(add(number)) for number in range(200))
        with nobody_leads(store):
            answers = asyncio.gather(*units)
            await asyncio.sleep(0)
        return await answers

    assert run(main()) == list(range(200))
    assert len(commits) == 1
    assert numbers_in(store) == list(range(200))


def test_a_unit_of_a_coroutine_runs_in_another_thread(store):
    async def main():
        return await store.atransact(lambda _statements: get_ident()), get_ident()

    worker, loop = run(main())
    assert worker != loop


def test_the_event_loop_goes_on_while_a_unit_runs(store):
    began, go_on = Event(), Event()

    def unit(_statements):
        began.set()
        assert go_on.wait(PATIENCE)

    async def main():
        waiting = asyncio.ensure_future(store.atransact(unit))
        await until(began.is_set)
        assert not waiting.done()
        go_on.set()
        await waiting

    run(main())


def test_threads_and_coroutines_share_groups(store):
    commits = count_commits(store)

    async def main():
        with nobody_leads(store):
            thread = Call(store.transact, add(0))
            wait_for_queue(store, 1)
            coroutines = [
                asyncio.ensure_future(store.atransact(add(number))) for number in (1, 2)
            ]
            await until(lambda: len(store._queue) == 3)
        assert await asyncio.gather(*coroutines) == [1, 2]
        await until(lambda: not thread.is_alive())
        return thread.result()

    assert run(main()) == 0
    assert len(commits) == 1


def test_several_event_loops_in_several_threads_share_a_store(store):
    async def main(name):
        units = (store.atransact(add(100 * name + number)) for number in range(40))
        return await asyncio.gather(*units)

    calls = [Call(run, main(name)) for name in range(4)]

    for name, call in enumerate(calls):
        assert call.result() == [100 * name + number for number in range(40)]
    assert len(numbers_in(store)) == 160


def test_an_event_loop_that_was_closed_hurts_nobody(store):
    began, go_on = Event(), Event()

    def unit(_statements):
        began.set()
        assert go_on.wait(PATIENCE)

    async def main():
        asyncio.ensure_future(store.atransact(unit))  # noqa: RUF006 -- it is abandoned
        await until(began.is_set)

    run(main())
    go_on.set()

    assert store.transact(add(1)) == 1


# -- cancelling -------------------------------------------------------------------


def test_a_unit_that_was_not_begun_when_it_was_cancelled_never_runs(store):
    async def main():
        with nobody_leads(store):
            cancelled = asyncio.ensure_future(store.atransact(add(0)))
            other = asyncio.ensure_future(store.atransact(add(1)))
            await until(lambda: len(store._queue) == 2)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled  # at once, though nobody has led
        return await other

    assert run(main()) == 1
    assert numbers_in(store) == [1]


def test_a_unit_whose_group_has_begun_without_it_never_runs_either(store):
    began, go_on = Event(), Event()

    def unit(_statements):
        began.set()
        assert go_on.wait(PATIENCE)

    async def main():
        with nobody_leads(store):
            first = asyncio.ensure_future(store.atransact(unit))
            cancelled = asyncio.ensure_future(store.atransact(add(0)))
            await until(lambda: len(store._queue) == 2)
        await until(began.is_set)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        go_on.set()
        await first

    run(main())
    assert numbers_in(store) == []


def test_a_unit_that_was_begun_when_it_was_cancelled_is_completed(store):
    began, go_on = Event(), Event()

    def unit(statements):
        began.set()
        assert go_on.wait(PATIENCE)
        return add(0)(statements)

    async def main():
        cancelled = asyncio.ensure_future(store.atransact(unit))
        await until(began.is_set)
        other = asyncio.ensure_future(store.atransact(add(1)))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled  # at once, though the unit is still under way
        assert not go_on.is_set()
        go_on.set()
        return await other

    assert run(main()) == 1
    assert numbers_in(store) == [0, 1]


def test_a_cancelled_unit_that_has_begun_is_completed_though_its_group_failed(store):
    began, go_on = Event(), Event()

    def unit(statements):
        began.set()
        assert go_on.wait(PATIENCE)
        return add(0)(statements)

    async def main():
        with nobody_leads(store):
            cancelled = asyncio.ensure_future(store.atransact(unit))
            failing = asyncio.ensure_future(store.atransact(add_and_raise(1)))
            await until(lambda: len(store._queue) == 2)
        await until(began.is_set)
        cancelled.cancel()
        go_on.set()
        with pytest.raises(Refused):
            await failing

    run(main())
    wait_until(lambda: numbers_in(store) == [0])


def test_a_coroutine_of_a_closed_store_is_told_so(store):
    store.close()

    with pytest.raises(StoreError, match="was closed"):
        run(store.atransact(add(1)))


# -- leaders that were lost -------------------------------------------------------


def test_a_helper_leads_for_a_coroutine_if_the_leader_slot_was_lost(store):
    store._leader_slot.clear()  # as if the caller that took it had been interrupted

    assert run(store.atransact(add(1))) == 1


def test_a_thread_leads_if_the_leader_slot_was_lost(store):
    store._leader_slot.clear()

    assert store.transact(add(1)) == 1
