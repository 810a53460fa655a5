"""A queue on each store, and time that passes only in pauses and while draining."""

from __future__ import annotations

import asyncio

import pytest
from queues import Servers, StillClock, new_store

from cmdx import clock, testing
from cmdx.declare.keywords import named_tasks
from cmdx.queue import Queue


@pytest.fixture(autouse=True)
def names():
    """Let two tests give the same name to tasks of their own."""
    before = dict(named_tasks)
    yield
    named_tasks.clear()
    named_tasks.update(before)


@pytest.fixture
def instant():
    """Virtual time; that of the wall does not move by itself either."""
    with clock.use(StillClock()), testing.instant() as virtual:
        yield virtual


@pytest.fixture(scope="session")
def servers():
    made = Servers()
    yield made
    made.close()


@pytest.fixture
def store(request, tmp_path, servers):
    """A store in memory, or the one that ``on_each_store`` asks for."""
    with new_store(getattr(request, "param", "memory"), tmp_path, servers) as made:
        yield made


@pytest.fixture
def queue(store, instant):  # noqa: ARG001 -- while it is used
    """A queue on the store, in virtual time."""
    return Queue(store)


@pytest.fixture(params=["sync", "async"])
def call(request):
    """Call a method of a queue by its name, or its twin for coroutines."""

    def call_plainly(queue, name, *arguments, **options):
        return getattr(queue, name)(*arguments, **options)

    def call_twin(queue, name, *arguments, **options):
        twin = getattr(queue, f"a{name}")
        return asyncio.run(awaited(twin, *arguments, **options))

    return call_plainly if request.param == "sync" else call_twin


async def awaited(method, *arguments, **options):
    return await method(*arguments, **options)
