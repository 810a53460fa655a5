"""A forked child does not wait for what a thread of its parent has locked."""

from __future__ import annotations

import os
import signal
import warnings
from contextlib import contextmanager
from io import StringIO
from threading import Event, Lock, Thread, current_thread, get_ident

import pytest
import structlog

from cmdx import RetryBudget, Task, clock, enable_logging, locks, middleware, retry_on
from cmdx.middlewares import Breaker, RateLimit

PATIENCE = 20

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

BUDGET = RetryBudget()
BREAKER = Breaker("forked", failures=3)
LIMIT = RateLimit("forked", limit=100)


class StoppedClock(clock.Clock):
    """Has whoever asks for the time wait; all of these ask with their lock held."""

    def __init__(self):
        self.asked, self.go_on = Event(), Event()

    def monotonic(self):
        self.asked.set()
        assert self.go_on.wait(PATIENCE)
        return 0.0


@contextmanager
def locked_by_a_thread(call):
    """Have another thread be in the middle of *call*."""
    stopped = StoppedClock()

    def work():
        with clock.use(stopped):
            call()

    thread = Thread(target=work)
    thread.start()
    assert stopped.asked.wait(PATIENCE)
    yield
    stopped.go_on.set()
    thread.join()


def exit_code_of_child(call):
    """Fork, and have the child call *call*; it must not wait for ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        os._exit(0 if call() else 1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


class Plain(Task[None]):
    def work(self) -> None: ...


@pytest.mark.parametrize("name", ["tid", "cid"])
def test_a_forked_child_makes_an_id_while_its_parent_makes_one(monkeypatch, name):
    is_asked, go_on, main = Event(), Event(), current_thread()
    entropy = clock.entropy

    def stopped_entropy():
        if current_thread() is not main:
            is_asked.set()
            assert go_on.wait(PATIENCE)
        return entropy()

    monkeypatch.setattr(clock, "entropy", stopped_entropy)
    thread = Thread(target=lambda: getattr(Plain.execute(), name))
    thread.start()
    assert is_asked.wait(PATIENCE)
    code = exit_code_of_child(lambda: getattr(Plain.execute(), name))
    go_on.set()
    thread.join()

    assert code == 0


def test_the_random_part_of_an_id_is_another_one_in_a_forked_child():
    def random_parts():
        return {Plain.execute().tid.split("-", 2)[2] for _ in range(100)}

    random_parts()  # some are drawn from the system in advance
    reading, writing = os.pipe()
    code = exit_code_of_child(
        lambda: os.write(writing, "\n".join(random_parts()).encode())
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        of_child = set(pipe.read().split())

    assert code == 0
    assert len(of_child) == 100
    assert of_child.isdisjoint(random_parts())


@retry_on(ConnectionError, limit=1, delay=0, budget=BUDGET)
class Budgeted(Task[None]):
    def work(self) -> None:
        if self.attempt == 0:
            raise ConnectionError


@middleware(BREAKER)
class Guarded(Task[None]):
    def work(self) -> None: ...


@middleware(LIMIT)
class Limited(Task[None]):
    def work(self) -> None: ...


@pytest.mark.parametrize(
    ("lock", "task"),
    [
        (BUDGET.withdraw, Budgeted),
        (BREAKER.circuit.ask, Guarded),
        (LIMIT.limiter.ask, Limited),
    ],
    ids=["budget", "breaker", "rate limit"],
)
def test_a_forked_child_runs_while_its_parent_holds_a_lock(lock, task):
    with locked_by_a_thread(lock):
        assert exit_code_of_child(lambda: task.execute().success) == 0


def test_a_forked_child_runs_while_another_class_is_used_for_the_first_time():
    compiling, go_on = Event(), Event()

    class Slow(Task[None], correlation_id=lambda: "x"):
        def work(self) -> None: ...

    class Other(Task[None]):
        def work(self) -> None: ...

    compile_plan = Slow._cmdx_.compile

    def compile_slowly():
        compiling.set()
        assert go_on.wait(PATIENCE)
        return compile_plan()

    Slow._cmdx_.compile = compile_slowly
    thread = Thread(target=Slow.execute)
    thread.start()
    assert compiling.wait(PATIENCE)
    try:
        assert exit_code_of_child(lambda: Other.execute().success) == 0
    finally:
        go_on.set()
        thread.join()


class SlowStream(StringIO):
    """Has whoever writes the first line wait in the middle of it."""

    def __init__(self):
        super().__init__()
        self.writing, self.go_on = Event(), Event()

    def write(self, text):
        if not self.writing.is_set():
            self.writing.set()
            self.go_on.wait(0.2)  # a fork waits for the line to be written
        return super().write(text)


def test_a_forked_child_logs_while_its_parent_was_logging(logging_to):
    stream = SlowStream()
    logging_to(stream)
    thread = Thread(target=Quiet.execute)
    thread.start()
    assert stream.writing.wait(PATIENCE)

    def runs_and_logs():
        return Quiet.execute().success and stream.getvalue().count("Quiet") == 2

    assert exit_code_of_child(runs_and_logs) == 0
    thread.join()


class RecordedLock:
    """A lock that notes which thread takes and releases it."""

    def __init__(self):
        self.lock, self.events, self.is_taken = Lock(), [], Event()

    def acquire(self, timeout):
        assert self.lock.acquire(timeout=timeout)
        self.events.append(("acquire", get_ident()))
        self.is_taken.set()
        return True

    def release(self):
        self.events.append(("release", get_ident()))
        self.is_taken.clear()
        self.lock.release()
        self.is_taken.wait(0.2)  # which nobody does before this fork has ended

    def _at_fork_reinit(self):
        self.lock._at_fork_reinit()


def test_threads_that_fork_do_not_release_each_others_locks(monkeypatch):
    lock = RecordedLock()
    monkeypatch.setattr(locks, "_held_during_fork", {lock})
    codes = []

    def fork_twice():
        codes.extend(exit_code_of_child(lambda: True) for _ in range(2))

    threads = [Thread(target=fork_twice) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes == [0] * 4
    assert [name for name, _ in lock.events] == ["acquire", "release"] * 4
    takers = [thread for _, thread in lock.events[::2]]
    assert takers == [thread for _, thread in lock.events[1::2]]


class Quiet(Task[None]):
    def work(self) -> None: ...


@pytest.fixture
def logging_to():
    def enable(stream):
        enable_logging("json", stream=stream)

    yield enable
    structlog.reset_defaults()
