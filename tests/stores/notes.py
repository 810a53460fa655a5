"""Small units on the table of notes, and what tests do with threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from threading import Thread

import pytest

PATIENCE = 30
"""Seconds after which a test fails that would wait for ever."""

INSERT = "insert into note (id, words) values (:id, :words)"


class Refused(Exception):
    """What a unit raises on purpose."""


def add(number, words=""):
    """Return a unit that adds a note, and returns its number."""

    def unit(statements):
        statements.execute(INSERT, id=number, words=words)
        return number

    return unit


def add_and_raise(number, error=Refused):
    """Return a unit that adds a note, and raises."""

    def unit(statements):
        statements.execute(INSERT, id=number, words="never")
        raise error

    return unit


def numbers_in(store):
    """Return the numbers of all notes, in order."""
    rows = store.transact(
        lambda statements: statements.execute("select id from note order by id")
    )
    return [number for (number,) in rows]


def count_notes(statements):
    """A unit that returns how many notes there are."""
    ((count,),) = statements.execute("select count(*) from note")
    return count


def look_and_add(number):
    """Return a unit that reads, and then adds a note."""

    def unit(statements):
        statements.execute("select count(*) from note where id = :id", id=number)
        statements.execute(INSERT, id=number, words="looked")
        return number

    return unit


def count_commits(store):
    """Return a list that gets an item for each transaction that is committed."""
    commits = []
    store.at = lambda point: point == "before commit" and commits.append(point)
    return commits


class Call(Thread):
    """A thread that calls one function, and keeps what became of it."""

    def __init__(self, function, *args, **options):
        super().__init__(daemon=True)
        self.call = lambda: function(*args, **options)
        self.value = self.error = None
        self.start()

    def run(self):
        try:
            self.value = self.call()
        except BaseException as error:
            self.error = error

    def result(self, patience=PATIENCE):
        self.join(patience)
        if self.is_alive():
            pytest.fail("a thread never ended")
        if self.error is not None:
            raise self.error
        return self.value


def wait_until(is_true):
    """Wait until something is true, which another thread does."""
    limit = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > limit:
            pytest.fail("it never came true")
        time.sleep(0.0005)


@contextmanager
def nobody_leads(store, *, calls=True):
    """Have callers queue up; in the end the first is woken to lead, or nobody."""
    with store._write_lock:
        store._leader_slot.clear()
        yield
        store._leader_slot = [None]
    if calls:
        store._wake_others(())


def wait_for_queue(store, count):
    """Wait until this many callers are in the queue."""
    wait_until(lambda: len(store._queue) >= count)


def in_forked_child(function):
    """Fork, have the child call *function*, and return its exit code: 0 if true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.alarm(PATIENCE)
            code = 0 if function() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def start_python(program, *arguments):
    """Start another Python process, which can be spoken to."""
    return subprocess.Popen(  # noqa: S603 -- programs of the tests
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process):
    """Wait for a process, and return what it printed."""
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return output
