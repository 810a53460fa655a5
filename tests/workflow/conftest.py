"""Both colours of a run, a pool of a few threads, and what must not last for ever."""

from __future__ import annotations

import asyncio
import sys
from contextvars import copy_context
from threading import Thread

import pytest

PATIENCE = 20
"""Seconds after which what should be done in no time is taken to be stuck."""


def execute(task, /, *source, **inputs):
    return task.execute(*source, **inputs)


def aexecute(task, /, *source, **inputs):
    return asyncio.run(task.aexecute(*source, **inputs))


@pytest.fixture(params=[execute, aexecute], ids=["sync", "async"])
def run(request):
    return request.param


@pytest.fixture
def pool_of(monkeypatch):
    """Have the shared pool be a new one of so many threads."""
    module = sys.modules["cmdx.workflow.executors"]
    pools = []

    def make(threads):
        monkeypatch.setattr(module, "MOST_THREADS", threads)
        monkeypatch.setattr(module, "_pools", pools)

    yield make
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def in_time():
    """Call something that might be stuck, and return what it returns."""

    def call(function, *arguments, **keywords):
        returned = []

        def keep():
            returned.append(function(*arguments, **keywords))

        thread = Thread(target=copy_context().run, args=(keep,), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it is stuck"
        return returned[0]

    return call
