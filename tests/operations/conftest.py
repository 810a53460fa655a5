"""A session on each store, and callers of both kinds."""

from __future__ import annotations

import asyncio

import pytest
from ledgers import LEASE, new_store

from cmdx.declare.keywords import named_tasks
from cmdx.operations import Ledger


@pytest.fixture(autouse=True)
def names():
    """Let two tests give the same name to tasks of their own."""
    before = dict(named_tasks)
    yield
    named_tasks.clear()
    named_tasks.update(before)


@pytest.fixture
def store(request, tmp_path):
    """A store in memory, or the one that ``on_each_store`` asks for."""
    with new_store(getattr(request, "param", "memory"), tmp_path) as made:
        yield made


@pytest.fixture
def ledger(store):
    return Ledger(store, lease=LEASE)


@pytest.fixture
def session(ledger):
    return ledger.session("shop")


@pytest.fixture(params=["sync", "async"])
def call(request):
    """Run an invocation through a session, by ``run`` or by ``arun``."""
    if request.param == "sync":
        return lambda session, task, **options: session.run(task, **options)
    return lambda session, task, **options: asyncio.run(session.arun(task, **options))
