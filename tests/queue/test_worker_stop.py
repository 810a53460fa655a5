"""Stopping a worker: in a block, by a signal, and with jobs under way."""

# ruff: noqa: F811 -- fixtures are imported

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from workers import (
    PATIENCE,
    Stop,
    names,  # noqa: F401
    on_a_file,
    on_each_server,
    output_of,
    python,
    queue,  # noqa: F401
    released,
    store,  # noqa: F401
    wait_until,
    workers_of,
)

from cmdx import Task
from cmdx.operations import operation
from cmdx.queue import JobState, progress

# -- in a block ----------------------------------------------------------------------


def test_a_worker_in_a_block_touches_no_signal_handler(queue):
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    with queue.worker():
        assert [signal.getsignal(number) for number in numbers] == before
    assert [signal.getsignal(number) for number in numbers] == before


def test_the_end_of_the_block_waits_for_the_threads(queue):
    stop, ended = Stop(), []

    class Long(Task[int], name="long"):
        def work(self):
            stop.wait()
            ended.append(threading.current_thread())
            return 7

    class Async(Task[None], name="async"):
        async def work(self):
            await asyncio.sleep(0)

    worker = queue.worker(threads=2)
    with worker:
        queue.enqueue(Async()).wait(PATIENCE)
        job = queue.enqueue(Long())
        stop.await_reached()
        threading.Timer(0.05, stop.go_on.set).start()
    assert len(ended) == 1
    assert job.refresh().result.value == 7
    assert not any(thread.is_alive() for thread in worker._started)
    assert workers_of(queue) == []


def test_a_block_that_raises_stops_the_worker_too(queue):
    worker = queue.worker()
    with pytest.raises(LookupError), worker:
        raise LookupError
    assert worker.join(0)


def test_what_was_not_started_is_given_back_within_a_second(queue):
    stop = Stop()

    class Wait(Task[None], name="wait"):
        def work(self):
            stop.wait()

    first, *others = queue.enqueue_many([Wait() for _ in range(4)])
    worker = queue.worker(threads=1)
    with worker, released(stop):
        stop.await_reached()
        wait_until(lambda: any(job.refresh().state == "running" for job in others))
        began = time.monotonic()
        worker.stop()
        wait_until(lambda: all(job.refresh().state == "ready" for job in others))
        assert time.monotonic() - began < 5  # it is a second on a quiet machine
        assert first.refresh().state == JobState.RUNNING
        assert not worker.join(0)
    assert first.refresh().state == JobState.DONE
    assert [job.refresh().state for job in others] == ["ready"] * 3
    assert [job.crashes for job in others] == [0] * 3


def test_a_stopped_worker_claims_no_more(queue):
    class Quick(Task[None], name="quick"):
        def work(self):
            pass

    worker = queue.worker()
    with worker:
        queue.enqueue(Quick()).wait(PATIENCE)
        worker.stop()
        assert worker.join(PATIENCE)
        job = queue.enqueue(Quick())
    assert job.refresh().state == JobState.READY


def test_async_jobs_have_the_grace_to_end(queue):
    is_running, go_on = Event(), Event()

    class Slow(Task[int], name="slow"):
        async def work(self):
            is_running.set()
            await asyncio.to_thread(go_on.wait, PATIENCE)
            return 7

    worker = queue.worker(grace=PATIENCE)
    with worker:
        job = queue.enqueue(Slow())
        assert is_running.wait(PATIENCE)
        worker.stop()
        assert not worker.join(0.3)
        go_on.set()
    assert job.refresh().result.value == 7


def test_after_the_grace_async_jobs_are_cancelled_and_given_back(queue):
    is_running, seen = Event(), []

    class Slow(Task[None], name="slow"):
        async def work(self):
            is_running.set()
            await asyncio.Event().wait()

        def rollback(self):
            seen.append("rolled back")

    with queue.worker(grace=0.01):
        job = queue.enqueue(Slow())
        assert is_running.wait(PATIENCE)
    job.refresh()
    assert (job.state, job.crashes, seen) == ("ready", 0, ["rolled back"])


def test_after_the_grace_an_async_job_that_may_not_run_twice_is_indeterminate(queue):
    is_running = Event()

    @operation(persist=True)
    class Charge(Task[None], name="charge"):
        async def work(self):
            is_running.set()
            await asyncio.Event().wait()

    with queue.worker(grace=0.01):
        job = queue.enqueue(Charge())
        assert is_running.wait(PATIENCE)
    assert job.refresh().state == JobState.DEAD
    assert job.result.indeterminate
    assert "its worker died, was stopped, or was cut off" in job.result.reason


def test_stop_can_shorten_the_grace(queue):
    is_running = Event()

    class Slow(Task[None], name="slow"):
        async def work(self):
            is_running.set()
            await asyncio.Event().wait()

    worker = queue.worker(grace=3600)
    with worker:
        job = queue.enqueue(Slow())
        assert is_running.wait(PATIENCE)
        worker.stop()
        worker.stop(grace=0)
        assert worker.join(PATIENCE)
    assert job.refresh().state == JobState.READY


# -- by a signal, in another process -------------------------------------------------

# The tasks of the process, and of this one, which knows them by their names.


class Hang(Task[None], name="stopping.hang"):
    """Run until the process ends."""

    def work(self):
        progress(1)
        while True:
            time.sleep(0.01)


class HangAwaiting(Task[None], name="stopping.hang-awaiting"):
    async def work(self):
        progress(1)
        await asyncio.Event().wait()


@operation(persist=True)
class HangOnce(Task[None], name="stopping.hang-once"):
    def work(self):
        progress(1)
        while True:
            time.sleep(0.01)


def wait_until_it_runs(job):
    """Wait until ``work`` was called: a job is running when it was only claimed."""
    wait_until(lambda: job.refresh().progress is not None)


class Quick(Task[None], name="stopping.quick"):
    def work(self):
        pass


RUN = """
import test_worker_stop
from cmdx.queue import Queue

Queue(sys.argv[1]).worker(threads=2, grace=float(sys.argv[2])).run()
print("the end", flush=True)
"""


def address_of(store):
    return getattr(store, "address", None) or store.name


@on_each_server
def test_sigterm_gives_back_what_is_not_started_and_what_runs(queue):
    running, once, waiting = queue.enqueue_many([Hang(), HangOnce(), Quick()])
    awaiting = queue.enqueue(HangAwaiting())
    with python(RUN, address_of(queue.store), 0.01) as process:
        for job in (running, once, awaiting):
            wait_until_it_runs(job)
        process.send_signal(signal.SIGTERM)
        assert output_of(process) == "the end\n"
    for job in (running, waiting, awaiting):
        job.refresh()
        assert (job.state, job.crashes) == ("ready", 0)
    # Nobody can know what became of it, so it is not given back.
    assert once.refresh().state == JobState.RUNNING


@on_a_file
def test_an_idle_worker_ends_at_once_by_sigterm_and_by_sigint(queue):
    for number in (signal.SIGTERM, signal.SIGINT):
        with python(RUN, queue.store.name, 3600) as process:
            queue.enqueue(Quick()).wait(PATIENCE)
            process.send_signal(number)
            assert output_of(process) == "the end\n"
    assert workers_of(queue) == []


def signal_until_it_ends(process):
    """Signal again; two signals count as one if the process was too busy for them."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        process.send_signal(signal.SIGTERM)
        wait_a_second_for(process)


def wait_a_second_for(process):
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)


@on_a_file
def test_a_second_signal_ends_the_grace_at_once(queue):
    job = queue.enqueue(Hang())
    with python(RUN, queue.store.name, 3600) as process:
        wait_until_it_runs(job)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):
            job.wait(0.5)
        assert process.poll() is None
        signal_until_it_ends(process)
        assert output_of(process) == "the end\n"
    assert job.refresh().state == JobState.READY


@on_a_file
def test_after_the_worker_has_run_the_signals_are_those_of_before(queue):
    program = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
{RUN}
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    with python(program, queue.store.name, 0) as process:
        queue.enqueue(Quick()).wait(PATIENCE)
        process.send_signal(signal.SIGTERM)
        assert output_of(process).split("\n")[:2] == ["the end", "True"]


IDLE = """
import os, time
import test_worker_stop
from cmdx.queue import Queue

queue = Queue(sys.argv[1])
with queue.worker(threads=4):
    queue.enqueue(test_worker_stop.Quick()).wait(30)
    queue.enqueue(test_worker_stop.HangAwaiting(), after=3600)
    time.sleep(1.5)  # the store polls less often after a quiet second
    before = os.times()
    time.sleep(3)
    after = os.times()
seconds = after.elapsed - before.elapsed
print((after.user + after.system - before.user - before.system) / seconds)
"""


@on_a_file
def test_an_idle_worker_uses_next_to_no_cpu(queue):
    with python(IDLE, queue.store.name) as process:
        share = float(output_of(process))
    assert share <= 0.03  # about 0.01 on a quiet machine


def test_run_outside_of_the_main_thread_leaves_the_signals_alone(queue):
    before = signal.getsignal(signal.SIGTERM)
    worker = queue.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    queue.enqueue(Quick()).wait(PATIENCE)
    assert signal.getsignal(signal.SIGTERM) is before
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()


class RollBack(Task[None], name="stopping.roll_back"):
    path: str

    async def work(self):
        progress(1)
        await asyncio.sleep(3600)

    def rollback(self):
        Path(self.path).write_text("rolled back")


@on_a_file
def test_a_second_signal_rolls_back_what_runs_in_the_event_loop(queue, tmp_path):
    path = tmp_path / "rolled-back"
    job = queue.enqueue(RollBack(path=str(path)))
    with python(RUN, queue.store.name, 3600) as process:
        wait_until_it_runs(job)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):
            job.wait(0.5)
        signal_until_it_ends(process)
        assert output_of(process) == "the end\n"
    assert path.read_text() == "rolled back"
    assert job.refresh().state == JobState.READY
