"""Several processes: writing at once, and forked from one that has a store open."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Event, Thread, get_ident

import pytest
from notes import (
    PATIENCE,
    Call,
    add,
    in_forked_child,
    numbers_in,
    output_of,
    start_python,
    wait_until,
)

from cmdx.stores import store as stores

WRITE = """
import sys
from threading import Thread
from cmdx.stores import connect

store, first = connect(sys.argv[1]), int(sys.argv[2])

def write(start):
    for number in range(start, start + 50):
        store.transact(lambda statements: statements.execute(
            "insert into note (id, words) values (:id, '')", id=number))

threads = [Thread(target=write, args=[first + 50 * name]) for name in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
store.close()
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def test_two_processes_write_at_once(shared_place):
    store = shared_place.open()
    processes = [start_python(WRITE, shared_place.address, n * 200) for n in (0, 1)]

    for number in range(400, 450):
        store.transact(add(number))
    for process in processes:
        output_of(process)

    assert numbers_in(store) == list(range(450))


@pytest.mark.skipif(not hasattr(os, "kill"), reason="there is no kill here")
@pytest.mark.parametrize(
    ("point", "stored"),
    [("before begin", []), ("before commit", []), ("after commit", [1])],
)
def test_a_process_that_is_killed_has_committed_or_not(shared_place, point, stored):
    program = """
import os, signal, sys
from cmdx.stores import connect

store = connect(sys.argv[1])
store.at = lambda point: point == sys.argv[2] and os.kill(os.getpid(), signal.SIGKILL)
store.transact(lambda statements: statements.execute("insert into note values (1, '')"))
"""
    store = shared_place.open()
    process = start_python(program, shared_place.address, point)
    process.communicate(timeout=PATIENCE)

    assert process.returncode == -9
    assert numbers_in(store) == stored
    assert store.transact(add(2)) == 2


# -- forks ------------------------------------------------------------------------


@needs_fork
def test_a_forked_child_and_its_parent_both_use_the_store(shared_store):
    shared_store.transact(add(0))

    def work():
        return shared_store.transact(add(1)) == 1

    assert in_forked_child(work) == 0
    assert shared_store.transact(add(2)) == 2
    assert in_forked_child(lambda: numbers_in(shared_store) == [0, 1, 2]) == 0
    assert numbers_in(shared_store) == [0, 1, 2]


@needs_fork
def test_a_forked_child_has_a_copy_of_a_store_in_memory(memory_store):
    memory_store.transact(add(0))

    def work():
        memory_store.transact(add(1))
        return numbers_in(memory_store) == [0, 1]

    assert in_forked_child(work) == 0
    assert numbers_in(memory_store) == [0]


@needs_fork
def test_a_child_can_wait_for_its_parent(shared_store):
    shared_store.wait(0.05)  # the parent watches already
    go_on, told = os.pipe()

    def work():
        since = shared_store.version()
        os.write(told, b"x")
        return shared_store.wait(PATIENCE, since=since)

    child = Call(in_forked_child, work)
    assert os.read(go_on, 1) == b"x"
    shared_store.transact(add(1))
    os.close(go_on)
    os.close(told)

    assert child.result() == 0


@needs_fork
def test_a_commit_before_a_fork_is_not_missed_after_it(shared_store):
    since = shared_store.version()
    shared_store.transact(add(1))

    assert in_forked_child(lambda: shared_store.wait(PATIENCE, since=since)) == 0
    assert shared_store.wait(PATIENCE, since=since)


@needs_fork
def test_a_fork_waits_for_the_transaction_under_way(store):
    began, go_on = Event(), Event()

    def unit(statements):
        began.set()
        assert go_on.wait(PATIENCE)
        return add(0)(statements)

    leader = Call(store.transact, unit)
    assert began.wait(PATIENCE)
    child = Call(in_forked_child, lambda: store.transact(add(1)) == 1)
    assert not child.join(0.05)
    assert child.is_alive()
    go_on.set()

    assert leader.result() is not None
    assert child.result() == 0
    assert 0 in numbers_in(store)


@needs_fork
def test_a_child_does_not_wait_for_callers_of_its_parent(store):
    ended = Event()

    def write():
        number = 100
        while not ended.is_set():
            store.transact(add(number))
            number += 1

    threads = [Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            assert in_forked_child(lambda: store.transact(add(1)) == 1) == 0
            assert store.transact(add(number)) == number
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE)


@needs_fork
def test_a_fork_inside_a_unit_does_not_wait_for_itself(memory_store):
    codes = []
    memory_store.transact(
        lambda _statements: codes.append(in_forked_child(lambda: True))
    )

    assert codes == [0]


@needs_fork
def test_threads_fork_one_after_the_other(file_store):
    """Else a thread lets a store go on that another one has stopped for its fork."""
    events = []
    prepare, resume = file_store._prepare_for_fork, file_store._resume_in_parent

    def note_prepare():
        events.append(("prepare", get_ident()))
        prepare()
        time.sleep(0.05)  # a thread that has forked goes on meanwhile

    def note_resume():
        events.append(("resume", get_ident()))
        resume()

    def give_way(_callers):
        """Let another thread begin its fork, if it can."""
        count, end = len(events), time.monotonic() + 0.2
        while len(events) == count and time.monotonic() < end:
            time.sleep(0.001)

    def fork_twice():
        return [in_forked_child(lambda: True) for _ in range(2)]

    file_store._prepare_for_fork = note_prepare
    file_store._resume_in_parent = note_resume
    file_store._wake_others = give_way
    calls = [Call(fork_twice) for _ in range(2)]
    assert [call.result() for call in calls] == [[0, 0], [0, 0]]
    del file_store._wake_others

    assert [name for name, _ in events] == ["prepare", "resume"] * 4
    threads = [thread for _, thread in events]
    assert threads[::2] == threads[1::2]
    assert file_store.transact(add(1)) == 1


@needs_fork
def test_a_unit_that_forks_does_not_wait_for_a_fork_that_waits_for_it(
    store, monkeypatch
):
    monkeypatch.setattr(stores, "FORK_PATIENCE", 0.2)
    began, codes = Event(), []

    def unit(_statements):
        began.set()
        wait_until(lambda: stores._turn.is_taken)
        codes.append(in_forked_child(lambda: True))

    leader = Call(store.transact, unit)
    assert began.wait(PATIENCE)

    other = Call(in_forked_child, lambda: True)
    leader.result()
    assert (codes, other.result()) == ([0], 0)
    assert store.transact(add(1)) == 1


@needs_fork
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/locks")
def test_a_forked_child_has_locks_of_its_own_on_the_file(file_store):
    """Without them, another process would delete the log that the child writes to."""

    def work():
        file_store.transact(add(1))
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        files = Path(file_store._path).parent.glob("notes.db*")
        inodes = {str(path.stat().st_ino) for path in files}
        own = [line for line in lines if f" {os.getpid()} " in line]
        return any(line.split()[-3].rsplit(":")[-1] in inodes for line in own)

    assert in_forked_child(work) == 0


@needs_fork
def test_a_child_that_ends_leaves_the_sessions_of_its_parent_open(postgres_store):
    process = postgres_store._connection.pgconn.backend_pid

    def work():
        import gc

        postgres_store.transact(add(1))
        postgres_store.close()
        gc.collect()
        return True

    assert in_forked_child(work) == 0
    assert postgres_store.transact(add(2)) == 2
    assert postgres_store._connection.pgconn.backend_pid == process


@needs_fork
def test_threads_in_the_background_are_started_anew_in_a_child(shared_store):
    import asyncio

    assert asyncio.run(shared_store.atransact(add(0))) == 0
    shared_store.wait(0.01)

    def work():
        return asyncio.run(shared_store.atransact(add(1))) == 1

    assert in_forked_child(work) == 0
    wait_until(lambda: numbers_in(shared_store) == [0, 1])
