"""
Processes that are forked, call operations and are killed.

``Child`` is what the parent has of one, ``Process`` what it knows of itself. The parent
has neither threads nor an open store, so a fork is cheap and takes nothing along.
"""

from __future__ import annotations

import os
import signal
import time
import traceback

import attrs

from cmdx import clock
from cmdx.operations import Ledger, StillRunning
from cmdx.stores import StoreUnavailable

from .charges import Charging, new_charge
from .journal import Journal, moment

LEASE = 30.0
LEAP = 1.5 * LEASE
"""How far the clock of a later process is ahead, so that earlier leases are over."""

PATIENCE = 60
"""Seconds after which a process that does not end counts as hung."""


@attrs.frozen
class Scene:
    """Where the processes of a round meet, and what they do there."""

    place: object
    kind: object
    name: str
    """The name of their session."""
    journal: str
    """The path of the file that they write down everything in."""

    def expect(self, status, found, who):
        """Write down that a process did not end as it should, if that is so."""
        if found != status:
            text = f"{who} ended with status {found}"
            Journal(self.journal, "parent").write("broke", "", text=text)


class Child:
    """
    A process forked from this one.

    Args:
        function: What it does, called with a function that says that it has begun.
    """

    def __init__(self, function):
        self.reader, writer = os.pipe()
        self.number = os.fork()
        if self.number == 0:
            run_and_exit(function, writer)
        os.close(writer)

    def await_begin(self):
        """Wait until it has said that it has begun, or has ended."""
        os.read(self.reader, 1)

    def kill(self):
        os.kill(self.number, signal.SIGKILL)
        return self.wait()

    def wait(self):
        """Return how it ended: its exit status, or the negative number of a signal."""
        _, status = os.waitpid(self.number, 0)
        os.close(self.reader)
        return os.waitstatus_to_exitcode(status)


def run_and_exit(function, writer):
    """Do what a child does; nothing of the parent's is cleaned up by it."""
    signal.alarm(PATIENCE)
    status = 1
    try:
        function(lambda: os.write(writer, b"."))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class ShiftedClock(clock.Clock):
    """Real time, some seconds ahead."""

    def __init__(self, ahead):
        self.ahead = ahead

    def time(self):
        return time.time() + self.ahead


class Process:
    """What a process knows of itself; made after the fork."""

    def __init__(self, scene, who, *, ahead=0.0):
        self.scene = scene
        self.journal = Journal(scene.journal, who)
        self.clock = ShiftedClock(ahead)
        self.at = ignore
        self.store = scene.place.open_store()
        self.session = Ledger(self.store, lease=LEASE).session(scene.name)
        Charging.process = self

    def ask(self, key, *, wait=None, within=None):
        """Call an operation, and write down what one is told."""
        began = self.note_asked(key)
        with clock.use(self.clock):
            charge = new_charge(self.scene.kind, key)
            result = self.session.run(charge, id=key, wait=wait, within=within)
        return self.note_told(key, result, began)

    async def aask(self, key, *, wait=None, within=None):
        """Do what ``ask`` does, in an event loop."""
        began = self.note_asked(key)
        with clock.use(self.clock):
            charge = new_charge(self.scene.kind, key)
            result = await self.session.arun(charge, id=key, wait=wait, within=within)
        return self.note_told(key, result, began)

    def note_asked(self, key):
        self.journal.write("asked", key)
        return moment()

    def note_told(self, key, result, began):
        answer, token = answer_of(result)
        facts = {"answer": answer, "token": token, "began": began, "ended": moment()}
        self.journal.write("told", key, **facts)
        self.at("after the answer is told")
        return answer

    def new_connection(self):
        """Return a connection of the user's if operations run within one."""
        if not self.scene.kind.is_within:
            return None
        return self.scene.place.connect(self.at)

    def insert_effect(self, connection, key, token):
        """Take effect in the table of the user."""
        row = (self.scene.name, key, token)
        connection.execute(self.scene.place.insertion, row)

    def note_rows(self, connection):
        """Write down what is in the table of the user."""
        selection = self.scene.place.selection
        for key, token in connection.execute(selection, (self.scene.name,)):
            self.journal.write("row", key, token=token)


def ignore(_point):
    """Go on, whatever the point."""


def answer_of(result):
    """Return what a caller was told, and the token of the execution it tells of."""
    if result.success:
        return "success", result.value
    if result.indeterminate:
        return "indeterminate", None
    if isinstance(result.cause, StillRunning):
        return "still running", None
    if isinstance(result.cause, StoreUnavailable):
        return "unavailable", None
    if result.cause is None:
        return "failed", result.reason
    return "odd", str(result.cause)[:80]
