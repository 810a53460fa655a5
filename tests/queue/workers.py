"""What the tests of workers share: stores, stops in ``work``, signals, processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Event

import pytest
from queues import (
    PATIENCE,
    edit,
    is_postgres,
    on_each_server,
    on_each_store,
    postgres_store,
)
from services import postgres_schema

from cmdx import clock
from cmdx.declare.keywords import named_tasks
from cmdx.queue import JobState, Queue
from cmdx.stores import SqliteStore

__all__ = ["PATIENCE", "edit", "is_postgres", "on_each_server", "on_each_store"]

HERE = Path(__file__).parent

on_a_file = pytest.mark.parametrize("store", ["file"], indirect=True)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


# -- fixtures ------------------------------------------------------------------------


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
def queue(store):
    return Queue(store)


@contextmanager
def new_store(kind, directory):
    """Open a store of a kind; on PostgreSQL it has a schema of its own."""
    if kind == "memory":
        with SqliteStore() as store:
            yield store
    elif kind == "file":
        with SqliteStore(directory / "app.db") as store:
            yield store
    else:
        with (
            postgres_schema() as address,
            postgres_store(address, migrate=True) as store,
        ):
            store.address = address
            yield store


@contextmanager
def opened_again(store):
    """Open the database of *store* once more, as another process does."""
    if not is_postgres(store):
        with SqliteStore(store.name) as other:
            yield other
        return
    with postgres_store(store.address) as other:
        yield other


def edit_row(store, table, key, **columns):
    """Change a row, as somebody else may."""
    assigned = ", ".join(f"{name} = :{name}" for name in columns)
    sql = f"update {table} set {assigned} where id = :id"  # noqa: S608
    store.transact(lambda statements: statements.execute(sql, **columns, id=key))


def workers_of(queue):
    """Return the tokens of the workers that are stored."""
    rows = queue.store.transact(
        lambda statements: statements.execute("select token from cmdx_worker")
    )
    return [token for (token,) in rows]


# -- waiting -------------------------------------------------------------------------


class Stop:
    """A place in ``work`` that waits until the test lets it go on."""

    def __init__(self):
        self.reached, self.go_on = Event(), Event()

    def wait(self):
        self.reached.set()
        assert self.go_on.wait(PATIENCE)

    def await_reached(self):
        assert self.reached.wait(PATIENCE)


@contextmanager
def released(*stops):
    """Let all go on when the block ends, so that a failing test ends too."""
    try:
        yield
    finally:
        for stop in stops:
            stop.go_on.set()


def wait_until(is_so):
    """Look again and again, for what other threads and processes do."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def wait_for(job, state):
    """Wait until a job is in a state."""
    wait_until(lambda: job.refresh().state == JobState(state))


def pass_time(queue, instant, seconds):
    """Let virtual time pass, and wake the workers of the queue."""
    instant.advance(seconds)
    wake_workers(queue)


def wake_workers(queue):
    """Commit something, which wakes all who wait for a commit."""
    queue.resume()


@contextmanager
def collected(*signals):
    """Collect what signals send: their names, senders and payloads."""
    sent = []
    with ExitStack() as stack:
        for each in signals:
            stack.enter_context(each.connected_to(receiver(sent, each.name)))
        yield sent


def receiver(sent, name):
    def receive(sender, **payload):
        sent.append((name, sender, payload))

    return receive


class ShiftedClock(clock.Clock):
    """Real time, whose wall clock somebody can set."""

    shift = 0.0

    def time(self):
        return clock.Clock.time() + self.shift


# -- processes -----------------------------------------------------------------------


def start_child(call):
    """Fork a process that calls something and ends; return its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.alarm(int(PATIENCE))
            call()
            code = 0
        finally:
            os._exit(code)
    return child


def exit_code_of(child):
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def kill(child):
    """Kill a process that cannot do anything about it."""
    os.kill(child, signal.SIGKILL)
    assert exit_code_of(child) == -signal.SIGKILL


@contextmanager
def python(program, *arguments):
    """Run a program in another process of Python, next to this module."""
    path = f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]\n"
    process = Popen(  # noqa: S603 -- programs of the tests
        [sys.executable, "-c", path + program, *map(str, arguments)],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def output_of(process):
    """Wait for a process, and return what it printed."""
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return output


def open_file(path):
    """Open a connection of the user's to an SQLite file."""
    return sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
