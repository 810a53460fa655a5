"""What is around jobs: twins for coroutines, traces, signals of the system, cures."""

from __future__ import annotations

import asyncio
import atexit
import os
import pickle
import re
import signal
import sys
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from workers import PATIENCE, Stop, released, wait_until

import cmdx
from cmdx import CmdxError, DefinitionError, Task
from cmdx.cli.main import main
from cmdx.queue import JobConflict, JobGone, JobState, Queue, current_job, queued
from cmdx.queue.worker import Worker


class Note(Task[str], name="around.note"):
    text: str = "noted"

    def work(self):
        return self.text


class AsyncNote(Task[str], name="around.async_note"):
    async def work(self):
        return current_job().id


# -- twins --------------------------------------------------------------------------


def test_every_call_has_a_twin_that_does_the_same(instant):
    queue = Queue(":memory:")

    async def use():
        job = await queue.aenqueue(Note(text="one"))
        many = await queue.aenqueue_many([Note(), AsyncNote()])
        await queue.apause()
        assert await queue.apaused()
        assert await queue.adrain() == 0
        await queue.aresume()
        assert not await queue.apaused()
        assert await queue.adrain() == 3
        assert (await job).value == "one"
        assert (await many[1]).value == many[1].id
        assert (await queue.aget(job.id)).state is JobState.DONE
        assert len(await queue.afind(state="done")) == 3
        assert (await queue.acounts())[JobState.DONE] == 3
        assert (await queue.areplay(job.id)).state is JobState.READY
        assert await queue.acancel(job.id)
        assert await queue.areplay_all(state="cancelled") == 1
        assert await queue.acancel_all(everything=True) == 1
        assert await queue.aprune("cancelled", until=4e9) == 1
        with pytest.raises(JobGone):
            await job.arefresh()
        schedule = await queue.aschedule(Note(), every=60)
        assert await queue.aschedules() == [schedule]
        assert await queue.adrain(ahead=61) == 1
        assert await queue.aunschedule(schedule.id)

    asyncio.run(use())
    assert instant.slept == 61


def test_draining_ahead_waits_in_real_time():
    queue = Queue(":memory:")
    job = queue.enqueue(Note(), after=0.05)

    assert queue.drain(ahead=0.1) == 1
    assert job.refresh().state is JobState.DONE


def test_an_async_job_is_drained_in_an_event_loop_of_its_own():
    queue = Queue(":memory:")
    job = queue.enqueue(AsyncNote())

    assert queue.drain() == 1
    assert job.refresh().result.value == job.id


# -- what a job carries -------------------------------------------------------------


def test_a_job_carries_the_ids_and_the_trace_of_who_enqueued_it():
    queue = Queue(":memory:")

    class Order(Task[object], name="around.order", correlation_id=lambda: "order-7"):
        def work(self):
            return queue.enqueue(Note())

    with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
        result = Order.execute()
    job, sent_by = result.value, span.get_span_context()

    assert (job.xid, job.cid) == ("order-7", result.cid)
    ids = f"{sent_by.trace_id:032x}-{sent_by.span_id:016x}"
    assert job.traceparent == f"00-{ids}-{sent_by.trace_flags:02x}"
    queue.drain()
    assert job.refresh().result.xid == "order-7"


def test_a_job_outside_of_a_run_carries_nothing():
    job = Queue(":memory:").enqueue(Note())

    assert (job.xid, job.cid, job.traceparent) == (None, None, None)
    assert current_job() is None


class Nested(Task[float | None], name="around.nested"):
    def work(self):
        return cmdx.remaining()


@pytest.mark.parametrize("how", ["worker", "drain"])
def test_jobs_do_not_belong_to_the_task_that_runs_them(how):
    queue = Queue(":memory:")
    job = queue.enqueue(Nested())

    class Serve(Task[None], name="around.serve"):
        def work(self):
            with cmdx.deadline(60):
                if how == "drain":
                    queue.drain()
                else:
                    with queue.worker():
                        job.wait(PATIENCE)

    result = Serve.execute().or_raise()
    assert len(result.chain) == 1
    assert job.refresh().result.value is None  # no deadline but its own


# -- signals of the system ----------------------------------------------------------


@pytest.fixture
def exits(monkeypatch):
    """Collect what is to be done when the process exits."""
    found = []
    monkeypatch.setattr(atexit, "register", found.append)
    return found


def send_signal_when(is_time, number=signal.SIGTERM):
    """Have this process get a signal once it is time."""

    def send():
        wait_until(is_time)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()


needs_main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(),
    reason="signals are handled in the main thread",
)


@needs_main_thread
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_that_runs_in_the_main_thread(exits, number):
    before = signal.getsignal(number)
    queue = Queue(":memory:")
    job = queue.enqueue(Note())
    worker = queue.worker()
    send_signal_when(lambda: worker.legs, number)
    worker.run()

    assert job.refresh().state is JobState.DONE
    assert exits == []
    assert signal.getsignal(number) is before


@needs_main_thread
def test_what_outlasts_the_grace_is_given_back_when_the_process_exits(exits):
    stop = Stop()

    class Hang(Task[None], name="around.hang"):
        def work(self):
            stop.wait()

    queue = Queue(":memory:")
    job = queue.enqueue(Hang())
    worker = queue.worker(grace=0)

    def send():
        stop.await_reached()
        os.kill(os.getpid(), signal.SIGTERM)

    with released(stop):
        threading.Thread(target=send).start()
        worker.run()
        (give_back,) = exits
        give_back()
        assert (job.refresh().state, job.crashes) == (JobState.READY, 0)


def test_a_worker_that_runs_in_another_thread_handles_no_signals():
    before = signal.getsignal(signal.SIGTERM)
    queue = Queue(":memory:")
    worker = queue.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert queue.enqueue(Note()).wait(30).value == "noted"

    assert signal.getsignal(signal.SIGTERM) is before
    worker.stop()
    thread.join()


@needs_main_thread
def test_the_command_runs_a_worker_until_a_signal_comes(tmp_path, monkeypatch, capsys):
    (tmp_path / "around_app.py").write_text(
        "from cmdx.queue import Queue\nqueue = Queue('around.db')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    start_worker = Worker.start

    def start(self):
        send_signal_when(lambda: self.rounds)
        start_worker(self)

    monkeypatch.setattr(Worker, "start", start)

    assert main(["worker", "around_app:queue"]) == 0
    assert "has stopped after 0 legs" in capsys.readouterr().err
    sys.modules.pop("around_app").queue.store.close()


# -- cures --------------------------------------------------------------------------


def test_a_queue_and_a_job_cannot_be_given_to_another_process():
    queue = Queue(":memory:")
    job = queue.enqueue(Note())

    for given in (queue, job, queue.store, {"job": job}):
        with pytest.raises(TypeError) as caught:
            pickle.dumps(given)
        assert str(caught.value) == (
            "SqliteStore(':memory:') cannot be pickled, nor can what uses it, such as "
            "a queue or a job. Open it again in the other process, and pass job.id "
            "instead of a job."
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Queue(":memory:", queue_name="a"),
            "Queue() has no option 'queue_name'; use `name`. Valid options: ",
        ),
        (
            lambda: Queue(":memory:", task=["a"]),
            "Queue() has no option 'task'; did you mean 'tasks'? Valid options: ",
        ),
        (
            lambda: Queue(":memory:").worker(processes=2),
            "worker() has no option 'processes'; use `python -m cmdx worker`. Valid",
        ),
    ],
)
def test_an_option_that_a_queue_has_not_is_answered_with_the_right_one(call, message):
    with pytest.raises(DefinitionError, match=re.escape(message)):
        call()


def test_a_queue_takes_its_options_by_name():
    assert Queue(store=":memory:", name="a").worker(threads=2).queue.name == "a"


def test_a_missing_cronsim_is_named_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)

    with pytest.raises(CmdxError) as caught:
        Queue(":memory:").schedule(Note(), cron="@daily")

    assert str(caught.value) == (
        "schedules by cron need cronsim. Install what the extra 'queue' of pycmdx has: "
        'pip install "cronsim>=2.6".'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": 5}, "cron must be a text"),
        ({"cron": "@noon"}, "cron knows @yearly"),
        ({"cron": "0 0 30 2 *"}, "is not an expression of cron"),
        ({"cron": "@daily", "zone": "Mars"}, "there is no time zone 'Mars'"),
        ({"cron": "@daily", "every": 60}, "every= or cron=, got both"),
        ({}, "every= or cron=, got neither"),
        ({"every": 60, "zone": "Europe/Berlin"}, "zone= belongs to cron="),
        ({"every": 60, "missed": "twice"}, 'missed is "once" or "skip"'),
        ({"every": 60, "id": ""}, "schedule: id must be a text"),
        ({"each": 60}, "schedule has no option 'each'"),
    ],
)
def test_a_wrong_schedule_is_refused(options, message):
    queue = Queue(":memory:")

    with pytest.raises(DefinitionError, match=message):
        queue.schedule(Note(), **options)
    assert queue.schedules() == []


def test_queued_takes_keywords_only():
    with pytest.raises(DefinitionError, match="with parentheses"):
        queued(Note)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"key": ""}, "key must be a text, or a callable"),
        ({"key": lambda: "x"}, "key"),
        ({"timeout": 0}, "timeout must be a finite number of seconds, above 0"),
        ({"prio": 1}, "queued has no option 'prio'"),
    ],
)
def test_wrong_options_of_a_class_are_refused(options, message):
    with pytest.raises(DefinitionError, match=message):
        queued(**options)


@pytest.mark.parametrize(
    "error",
    [
        JobGone("a"),
        JobGone("a", is_uncommitted=True),
        JobGone("a", queue="mails"),
        JobConflict("a", "x", "y"),
    ],
)
def test_errors_of_jobs_pickle(error):
    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy)) == (type(error), str(error))
