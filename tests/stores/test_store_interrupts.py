"""An interrupted leader: nothing of its own is half done, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import dis
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from notes import (
    PATIENCE,
    Call,
    add,
    add_and_raise,
    count_notes,
    look_and_add,
    nobody_leads,
    numbers_in,
    wait_for_queue,
    wait_until,
)

import cmdx.stores
from cmdx.stores import StoreError, StoreUnavailable, commits, sqlite

OURS = str(Path(cmdx.stores.__file__).parent)


@pytest.fixture
def _impatient(monkeypatch):
    """Have lost leaders be noticed sooner, as these tests lose many."""
    monkeypatch.setattr(commits, "LEADER_CHECK_AFTER", 0.003)


@pytest.fixture
def loop(stack):
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Call(loop.run_forever)
    stack.callback(loop.close)
    stack.callback(thread.join, PATIENCE)
    stack.callback(loop.call_soon_threadsafe, loop.stop)
    return loop


# -- at each instruction at which CPython handles signals -------------------------


class Tracer:
    """Raises in this thread, after so many calls and jumps inside the package."""

    def __init__(self, number, error):
        self.left, self.error = number, error
        self.last = {}
        self.closed = set()
        self.is_over = False

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(OURS) or code.co_name == "__del__":
            return None
        if event == "exception" and argument[0] is GeneratorExit:
            self.closed.add(frame)  # Python 3.12 also traces generators that are closed
        if frame in self.closed:
            return self
        frame.f_trace_opcodes = True
        if event != "opcode":
            return self
        name = dis.opname[code.co_code[frame.f_lasti]]
        before = self.last.get(frame)
        self.last[frame] = name
        if is_checked(before):
            self.left -= 1
            if self.left < 0 and not self.is_over:
                self.is_over = True
                raise self.error
        return self


def is_checked(name):
    """Tell whether CPython handles signals after this instruction."""
    return name is not None and (
        name.startswith("CALL") or name in ("RESUME", "JUMP_BACKWARD")
    )


def is_interrupted(number, function):
    """Call *function*, interrupted at that instruction; tell whether it was."""
    tracer = Tracer(number, KeyboardInterrupt)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return tracer.is_over


def interrupt_everywhere(store, loop, *, own_unit=add, is_free=True):
    """
    Interrupt a caller at each instruction in turn, while others wait with it.

    Returns how many instructions there were.
    """
    number = misses = 0
    expected = Counter()
    while misses < 3:  # another caller may have been faster once
        own, one, two = 3 * number, 3 * number + 1, 3 * number + 2
        with nobody_leads(store, calls=False):
            thread = Call(store.transact, add(one))
            waiting = store.atransact(add(two))
            coroutine = asyncio.run_coroutine_threadsafe(waiting, loop)
            wait_for_queue(store, 2)
        if not is_free:
            store._leader_slot.clear()
        misses += not is_interrupted(number, lambda: store.transact(own_unit(own)))  # noqa: B023
        assert thread.result() == one
        assert coroutine.result(PATIENCE) == two
        expected.update([one, two])
        number += 1
    found = Counter(numbers_in(store))
    own = Counter({key: count for key, count in found.items() if key % 3 == 0})
    assert found - own == expected
    assert set(own.values()) == {1}  # interrupted before the commit, or after it
    return number


def in_thread(function, *args, **options):
    """
    Call *function*, which waits hundreds of times, in a thread that ends after it.

    After a tracer has raised, Python 3.13 takes an error that was handled by then for
    the context of all later errors of the thread.
    """
    return Call(function, *args, **options).result(20 * PATIENCE)


is_traced = pytest.mark.skipif(
    sys.gettrace() is not None, reason="something else traces, coverage for example"
)


@is_traced
@pytest.mark.usefixtures("_impatient")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # interrupted while connecting
@pytest.mark.parametrize("own_unit", [add, look_and_add])
def test_a_leader_interrupted_at_any_instruction_harms_nobody(store, loop, own_unit):
    psycopg = sys.modules.get("psycopg")
    if psycopg and psycopg.pq.__impl__ == "python" and store.announcement:
        pytest.skip("a signal can come between sending a commit and noting that")
    assert in_thread(interrupt_everywhere, store, loop, own_unit=own_unit) > 60


@is_traced
@pytest.mark.usefixtures("_impatient")
def test_a_waiting_caller_interrupted_at_any_instruction_harms_nobody(
    memory_store, loop
):
    assert in_thread(interrupt_everywhere, memory_store, loop, is_free=False) > 10


@is_traced
@pytest.mark.usefixtures("_impatient")
def test_a_leader_interrupted_while_it_waits_for_the_file_harms_nobody_that_reads(
    file_place, loop, monkeypatch
):
    store, connection = file_place.open(), file_place.connect()
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", 0.001)
    connection.execute("begin immediate")

    assert in_thread(interrupt_while_locked, store, loop) > 60

    connection.execute("rollback")
    connection.close()
    assert numbers_in(store) == []
    assert store.transact(add(1)) == 1


def interrupt_while_locked(store, loop):
    """Interrupt a writer at each instruction in turn, while others want to read."""

    def write():
        with suppress(StoreUnavailable):
            store.transact(add(0))

    number = misses = 0
    while misses < 3:
        with nobody_leads(store, calls=False):
            thread = Call(store.transact, count_notes, read_only=True)
            reading = store.atransact(count_notes, read_only=True)
            coroutine = asyncio.run_coroutine_threadsafe(reading, loop)
            wait_for_queue(store, 2)
        misses += not is_interrupted(number, write)
        assert thread.result() == 0
        assert coroutine.result(PATIENCE) == 0
        number += 1
    return number


# -- at the named points ----------------------------------------------------------


def raise_at(store, point, error):
    """Raise once in this thread, at a named point."""
    here = threading.get_ident()

    def at(name):
        if name == point and threading.get_ident() == here:
            store.at = lambda _point: None
            raise error

    store.at = at


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(
    ("point", "stored"),
    [
        ("before begin", [1, 2]),
        ("before commit", [1, 2]),
        ("after commit", [0, 1, 2]),
    ],
)
def test_a_leader_interrupted_at_a_named_point_leaves_the_others_to_the_next(
    store, point, stored, error
):
    with nobody_leads(store, calls=False):
        others = [Call(store.transact, add(number)) for number in (1, 2)]
        wait_for_queue(store, 2)
    raise_at(store, point, error)

    with pytest.raises(error):
        store.transact(add(0))

    assert [other.result() for other in others] == [1, 2]
    assert numbers_in(store) == stored


def test_a_unit_of_which_the_caller_was_interrupted_is_not_run_by_the_next(store):
    raise_at(store, "before commit", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        store.transact(add(0))

    store.transact(add(1))

    assert numbers_in(store) == [1]


def test_an_interrupted_leader_leaves_no_transaction_open(shared_place):
    store, other = shared_place.open(), shared_place.open()
    raise_at(store, "before commit", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        store.transact(add(0))

    assert other.transact(add(1)) == 1


# -- by real signals --------------------------------------------------------------


needs_signals = pytest.mark.skipif(
    not hasattr(signal, "SIGUSR1"), reason="there is no such signal here"
)


class RaisingSignal:
    """
    SIGUSR1, which raises KeyboardInterrupt in the main thread once it is armed.

    A plain attribute: the handler may run in the midst of whatever sets it.
    """

    is_armed = False

    def handle(self, _number, frame):
        # Who measures the coverage has a lock, which must not be left locked.
        if self.is_armed and Path(frame.f_code.co_filename).parent.name != "coverage":
            self.is_armed = False
            raise KeyboardInterrupt


@pytest.fixture
def raising_signal():
    raising = RaisingSignal()
    before = signal.signal(signal.SIGUSR1, raising.handle)
    yield raising
    raising.is_armed = False
    signal.signal(signal.SIGUSR1, before)


@needs_signals
@pytest.mark.usefixtures("_impatient")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_signals_at_random_moments_harm_nobody_else(store, raising_signal):
    rounds, others, most = 200, 3, 10**8
    chance = random.Random(7)
    told, ended = Counter(), Event()

    def write(name):
        for number in range(name * most, (name + 1) * most):
            if ended.is_set():
                return
            told[store.transact(add(number))] += 1

    def send():
        while not ended.is_set():
            time.sleep(chance.random() * 0.004)
            os.kill(os.getpid(), signal.SIGUSR1)

    threads = [Call(write, name) for name in range(1, others + 1)]
    sender = Call(send)
    own = interrupted = 0
    try:
        while interrupted < rounds:
            try:
                raising_signal.is_armed = True
                store.transact(add(own))
                raising_signal.is_armed = False
                told[own] += 1
            except KeyboardInterrupt:
                interrupted += 1
            own += 1
    finally:
        raising_signal.is_armed = False
        ended.set()
        sender.result()
    for thread in threads:
        thread.result()

    found = Counter(numbers_in(store))
    assert told - found == Counter()  # all that was told is there
    assert set(found.values()) == {1}  # and nothing twice
    assert all(number < most for number in found - told)  # more of the victim only


@needs_signals
def test_a_signal_ends_waiting_for_a_lock_on_sqlite(file_place, raising_signal):
    store, connection = file_place.open(), file_place.connect()
    connection.execute("begin immediate")
    raising_signal.is_armed = True
    sender = Call(send_until_handled, raising_signal, lambda: store._group)

    with pytest.raises(KeyboardInterrupt):
        store.transact(add(0))

    sender.result()
    connection.execute("rollback")
    connection.close()
    assert store.transact(add(1)) == 1
    assert numbers_in(store) == [1]


@needs_signals
def test_a_signal_ends_waiting_for_a_row_on_postgres(postgres_place, raising_signal):
    store, connection = postgres_place.open(), postgres_place.connect()
    store.transact(add(1))
    sql = "select id from note for update"
    with postgres_place.connect() as observer, connection.transaction():
        connection.execute(sql)
        session = store._connection.pgconn.backend_pid
        raising_signal.is_armed = True
        sender = Call(
            send_until_handled, raising_signal, lambda: is_waiting(observer, session)
        )
        with pytest.raises(KeyboardInterrupt):
            store.transact(lambda statements: statements.execute(sql))
        sender.result()
        assert store.transact(add(2)) == 2  # by another session
        wait_until(lambda: has_ended(connection, session))
    connection.close()

    assert store.transact(lambda statements: statements.execute(sql)) == [(1,), (2,)]


def send_until_handled(raising, is_time):
    """Send the signal once it is time, again until it is handled."""
    wait_until(is_time)
    while raising.is_armed:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)


def is_waiting(connection, session):
    """Tell whether a session waits for a lock; before, a signal need not end it."""
    sql = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    return connection.execute(sql, [session]).fetchall() != []


def has_ended(connection, session):
    """Tell whether the server has ended a session."""
    sql = "select 1 from pg_stat_activity where pid = %s"
    return connection.execute(sql, [session]).fetchall() == []


# -- units that raise what interrupts ---------------------------------------------


def test_what_a_unit_raises_in_the_helper_thread_is_told_to_its_coroutine(store):
    class Stopped(BaseException):
        pass

    async def main():
        other = asyncio.ensure_future(store.atransact(add(1)))
        with pytest.raises(Stopped):
            await store.atransact(add_and_raise(0, Stopped))
        assert await other == 1

    asyncio.run(main())
    assert numbers_in(store) == [1]


def test_a_unit_that_calls_transact_of_its_own_store_is_told_so(store):
    with pytest.raises(StoreError, match="a unit called transact"):
        store.transact(lambda _statements: store.transact(add(0)))

    assert store.transact(add(1)) == 1
    assert numbers_in(store) == [1]
