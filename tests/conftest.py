"""Time and chance, faked in one place, and the ways to run a task."""

from __future__ import annotations

import asyncio
import gc
import os

import pytest

from cmdx import testing


@pytest.fixture
def instant():
    with testing.instant() as clock:
        yield clock


def execute(task, /, *source, **inputs):
    return task.execute(*source, **inputs)


def aexecute(task, /, *source, **inputs):
    return asyncio.run(task.aexecute(*source, **inputs))


def aexecute_awaiting(task, /, *source, **inputs):
    """Run a class that is the same but for its ``work``, which suspends."""

    async def work(self):
        await asyncio.sleep(0)
        return super(awaiting, self).work()

    names = {"work": work, "__module__": task.__module__}
    awaiting = type(task.__name__, (task,), names)
    awaiting.__qualname__ = task.__qualname__
    return asyncio.run(awaiting.aexecute(*source, **inputs))


@pytest.fixture(
    params=[execute, aexecute, aexecute_awaiting], ids=["sync", "async", "awaiting"]
)
def run(request):
    return request.param


def pytest_configure():
    """Let processes that tests start share compiled files; compiling takes longer."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish():
    """Keep the tests themselves out of collections, which many tests ask for."""
    gc.collect()
    gc.freeze()
