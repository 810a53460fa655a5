"""Jobs that are run by who drains the queue can be cancelled, and may hang."""

# ruff: noqa: F811 -- fixtures are imported

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from threading import Event

import pytest
from queues import in_thread
from workers import (
    PATIENCE,
    collected,
    names,  # noqa: F401
    on_each_store,
    queue,  # noqa: F401
    store,  # noqa: F401
    wait_until,
)

import cmdx
from cmdx import Task
from cmdx.queue import JobCancelled, JobState, job_hung, queued
from cmdx.queue.claims import Claims
from cmdx.queue.jobs import current_leg
from cmdx.stores import StoreUnavailable


class Quick(Task[None], name="draining.quick"):
    def work(self):
        pass


class Endless(Task[None], name="draining.endless"):
    """Run until it is cancelled."""

    async def work(self):
        running.append(current_leg.get())
        await asyncio.Event().wait()


running = []
"""The leg of ``Endless``, once it runs."""


@pytest.fixture(autouse=True)
def none_running():
    running.clear()


def test_a_plain_job_that_is_drained_can_be_cancelled(queue):
    is_running = Event()

    class Watchful(Task[None], name="draining.watchful"):
        def work(self):
            is_running.set()
            wait_until(lambda: cmdx.remaining() == 0)
            raise InterruptedError

    job = queue.enqueue(Watchful())
    draining = in_thread(queue.drain)
    assert is_running.wait(PATIENCE)
    assert queue.cancel(job.id)
    assert draining.result(PATIENCE) == 1
    assert job.refresh().state == JobState.CANCELLED


def test_an_async_job_that_is_drained_in_a_thread_can_be_cancelled(queue):
    jobs = queue.enqueue_many([Endless(), Quick()])
    draining = in_thread(queue.drain)
    wait_until(lambda: running)
    assert queue.cancel(jobs[0].id)
    assert draining.result(PATIENCE) == 2
    assert [job.refresh().state for job in jobs] == ["cancelled", "done"]


def test_a_drained_job_can_be_cancelled_after_the_store_has_failed(queue, monkeypatch):
    failures, look = [], Claims.is_cancelled

    def fail_once(claims, record):
        if not failures:
            failures.append(StoreUnavailable("it is away", "Wait"))
            raise failures[0]
        return look(claims, record)

    monkeypatch.setattr(Claims, "is_cancelled", fail_once)
    job = queue.enqueue(Endless())
    draining = in_thread(queue.drain)
    wait_until(lambda: failures)
    assert queue.cancel(job.id)
    assert draining.result(PATIENCE) == 1
    assert job.refresh().state == JobState.CANCELLED


def test_no_thread_looks_at_jobs_any_more_when_all_is_drained(queue):
    queue.enqueue(Quick())
    assert queue.drain() == 1
    wait_until(lambda: "cmdx queue: watch" not in map(name_of, threading.enumerate()))


def name_of(thread):
    return thread.name


@on_each_store
def test_an_async_job_is_cancelled_and_not_who_drains_it(queue):
    async def main():
        draining = asyncio.create_task(queue.adrain())
        await asyncio.to_thread(wait_until, lambda: running)
        assert await queue.acancel(jobs[0].id)
        assert await draining == 2
        assert draining.cancelling() == 0

    jobs = queue.enqueue_many([Endless(), Quick()])
    asyncio.run(main())
    assert [job.refresh().state for job in jobs] == ["cancelled", "done"]
    assert isinstance(jobs[0].result.cause, JobCancelled)


def test_an_async_job_and_who_drains_it_are_cancelled_together(queue):
    async def main():
        draining = asyncio.create_task(queue.adrain())
        await asyncio.to_thread(wait_until, lambda: running)
        running[0].cancel()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining

    jobs = queue.enqueue_many([Endless(), Quick()])
    asyncio.run(main())
    assert [job.refresh().state for job in jobs] == ["cancelled", "ready"]


def test_who_is_cancelled_before_the_job_begins_gives_it_back(queue):
    async def main():
        def cancel_before_it_begins(loop, steps, **options):
            loop.call_soon(draining.cancel)
            loop.set_task_factory(None)
            return asyncio.Task(steps, loop=loop, **options)

        draining = asyncio.create_task(queue.adrain())
        asyncio.get_running_loop().set_task_factory(cancel_before_it_begins)
        with pytest.raises(asyncio.CancelledError):
            await draining

    unique = {"unique": "x", "until": "started"}
    job = queue.enqueue(Endless(), **unique)
    asyncio.run(main())
    assert (job.refresh().state, job.crashes, running) == ("ready", 0, [])
    assert queue.enqueue(Endless(), **unique).id == job.id


def test_a_drained_job_that_hangs_is_reported(queue):
    is_reported = Event()

    @queued(timeout=0.01)
    class Hang(Task[None], name="draining.hang"):
        def work(self):
            assert is_reported.wait(PATIENCE)

    with (
        collected(job_hung) as sent,
        job_hung.connected_to(lambda *_, **__: is_reported.set()),
    ):
        queue.enqueue(Hang())
        assert queue.drain() == 1
    assert [(name, sender) for name, sender, _ in sent] == [("job_hung", Hang)]


class CancelItself(Task[None], name="draining.cancels.itself"):
    async def work(self):
        asyncio.current_task().cancel()
        await asyncio.Event().wait()


def test_work_that_cancels_itself_does_not_cancel_who_drains_it(queue):
    jobs = queue.enqueue_many([CancelItself(), CancelItself()])

    assert queue.drain() == 6
    assert [job.refresh().state for job in jobs] == ["dead", "dead"]


def test_work_that_cancels_itself_does_not_cancel_who_awaits_it(queue):
    job = queue.enqueue(CancelItself())

    assert asyncio.run(queue.adrain()) == 3
    assert job.refresh().state == JobState.DEAD


INTERRUPT = """
import asyncio, os, signal
from cmdx import Task
from cmdx.queue import Queue
from cmdx.stores import SqliteStore

class Interrupt(Task[None], name="interrupt"):
    async def work(self):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)
queue = Queue(SqliteStore())
job = queue.enqueue(Interrupt())
queue.store.transact(
    lambda statements: statements.execute("update cmdx_job set is_async = {is_async}")
)
try:
    queue.drain()
except KeyboardInterrupt:
    print(job.refresh().state, job.crashes)
"""


@pytest.mark.parametrize("is_async", [1, 0], ids=["async", "async since"])
def test_ctrl_c_ends_drain_and_gives_an_async_job_back(tmp_path, is_async):
    path = tmp_path / "interrupt.py"
    path.write_text(INTERRUPT.replace("{is_async}", str(is_async)))
    command = [sys.executable, path]
    done = subprocess.run(  # noqa: S603 -- our own program
        command, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (done.stdout, done.stderr) == ("ready 0\n", "")
