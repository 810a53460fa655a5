"""Several processes and one operation."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import warnings
from pathlib import Path

import pytest
from ledgers import LEASE, PATIENCE, is_postgres, on_each_server, wait_until

from cmdx import Task
from cmdx.operations import Indeterminate, Ledger, OperationState, operation
from cmdx.stores import SqliteStore

MANY = 8

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


# -- what the processes do -------------------------------------------------------------


class Meeting:
    """Where the processes leave files, and how many they are."""

    place = Path()
    count = 1


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    made = tmp_path / "place"
    made.mkdir()
    monkeypatch.setattr(Meeting, "place", made)
    monkeypatch.setattr(Meeting, "count", 1)
    return made


def note(what):
    """Leave a file that says what this process does."""
    (Meeting.place / f"{what}-{os.getpid()}").touch()


def notes_of(what):
    """Return the files of all processes that do the same."""
    return list(Meeting.place.glob(f"{what}-*"))


@operation(persist=True)
class Meet(Task[dict]):
    """Wait until all processes were answered by the store."""

    def work(self):
        note("run")
        while len(notes_of("answered")) < Meeting.count:
            time.sleep(0.002)
        return {"receipt": [7], "by": os.getpid()}


class Wait(Task[None]):
    """Wait until it is cancelled."""

    async def work(self):
        note("run")
        await asyncio.Event().wait()


@operation(persist=True)
class Die(Task[int]):
    """Die in the middle of the work."""

    def work(self):
        note("run")
        os._exit(1)


@operation(persist=True, idempotent=True)
class DieOnce(Task[int]):
    """Die in the first run only."""

    def work(self):
        is_first = not notes_of("run")
        note("run")
        if is_first:
            os._exit(1)
        return 7


def run_in_child(store, task, lease=LEASE):
    """Run a task as the operation ``a``, and return what was told."""
    ledger = Ledger(opened_again(store), lease=lease)
    ledger.store.at = lambda point: (
        note("answered") if point == "after commit" else None
    )
    session = ledger.session("shop")
    if task is Wait:
        result = asyncio.run(session.arun(task(), id="a"))
    else:
        result = session.run(task(), id="a")
    return {
        "value": result.value_or(None),
        "reason": result.reason,
        "attached": result.operation.attached,
        "replayed": result.operation.replayed,
        "run_id": result.run_id,
    }


def opened_again(store):
    """Open the database of *store* once more, as another process does."""
    if not is_postgres(store):
        return SqliteStore(store.name)
    from cmdx.stores import PostgresStore

    return PostgresStore(store.address)


# -- starting and ending them ----------------------------------------------------------


class Child:
    """A forked process that calls something and writes down what it returned."""

    def __init__(self, call):
        self.answer = Meeting.place / f"child-{id(self)}.json"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process = os.fork()
        if self.process == 0:
            signal.alarm(int(PATIENCE))
            code = 2
            try:
                self.answer.write_text(json.dumps(call()))
                code = 0
            finally:
                os._exit(code)

    def exit_code(self):
        _, status = os.waitpid(self.process, 0)
        return os.waitstatus_to_exitcode(status)

    def told(self):
        """Return what the process was told."""
        assert self.exit_code() == 0
        return json.loads(self.answer.read_text())


def children(store, task, count=1, **options):
    """Have processes run an operation."""
    Meeting.count = count
    return [Child(lambda: run_in_child(store, task, **options)) for _ in range(count)]


# -- tests -----------------------------------------------------------------------------


@on_each_server
def test_r_001_9_of_8_processes_one_runs_and_all_are_told_the_same(session, store):
    answers = [child.told() for child in children(store, Meet, MANY)]
    assert len(notes_of("run")) == 1
    assert all(answer["value"] == answers[0]["value"] for answer in answers)
    assert answers[0]["value"]["receipt"] == [7]
    assert len({answer["run_id"] for answer in answers}) == 1
    assert sum(answer["attached"] for answer in answers) == MANY - 1
    assert not any(answer["replayed"] for answer in answers)
    assert session.run(Meet(), id="a").operation.replayed


@on_each_server
def test_r_001_30_what_another_process_runs_is_cancelled(session, store):
    (child,) = children(store, Wait, lease=0.3)
    wait_until(lambda: notes_of("run"))
    wait_until(lambda: session.cancel("a"))  # its lease is short, and may lapse
    answer = child.told()  # a beat has told it
    assert "[OperationCancelled]" in answer["reason"]
    assert session.get("a").state is OperationState.RELEASED


@on_each_server
def test_r_001_19_what_a_process_died_of_is_indeterminate(session, store, instant):
    (child,) = children(store, Die)
    assert child.exit_code() == 1
    assert session.get("a").state is OperationState.LIVE
    instant.advance(LEASE + 1)
    result = session.run(Die(), id="a")
    assert isinstance(result.cause, Indeterminate)
    assert len(notes_of("run")) == 1


@on_each_server
def test_r_001_8_what_a_process_died_of_is_taken_over_if_it_is_idempotent(
    session, store, instant
):
    (child,) = children(store, DieOnce)
    assert child.exit_code() == 1
    instant.advance(LEASE + 1)
    result = session.run(DieOnce(), id="a")
    assert (result.value, result.operation.executions) == (7, 2)


@on_each_server
def test_r_001_10_what_a_process_has_sealed_another_one_replays(session, store):
    (child,) = children(store, Meet)
    answer = child.told()
    result = session.run(Meet(), id="a")
    assert result.operation.replayed
    assert (result.value, result.run_id) == (answer["value"], answer["run_id"])
