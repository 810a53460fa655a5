"""Waiting for a job: time-outs, and warnings to those who wait in vain."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import attrs
import pytest
from queues import PATIENCE, edit, on_each_server
from workers import wait_until

from cmdx import DefinitionError, Task
from cmdx.queue import JobState, Queue, waiting
from cmdx.queue.claims import Claims
from cmdx.queue.table import LANES
from cmdx.queue.waiting import (
    StuckWarning,
    Surroundings,
    is_stuck,
    looking,
    reason_to_wait,
)


class Pay(Task[None], name="waiting.pay"):
    customer: int

    def work(self):
        pass


def test_waiting_ends_with_a_time_out(queue):
    job = queue.enqueue(Pay(customer=1))

    with pytest.raises(TimeoutError, match=f"{job.id}.*has not ended yet: it is ready"):
        job.wait(0.001)


@pytest.mark.parametrize("timeout", ["5", timedelta(seconds=5), True])
def test_a_time_out_is_a_number_of_seconds(queue, timeout):
    job = queue.enqueue(Pay(customer=1))

    with pytest.raises(DefinitionError, match="wait: timeout must be a number of sec"):
        job.wait(timeout)


def add_worker(queue, *, lease, token=None):
    """Store a worker, as one in another process does."""
    facts = {"queue": queue.name, "lease": queue.store.now() + lease}
    facts["token"] = token or queue.name
    sql = "insert into cmdx_worker values (:token, :queue, :lease, 'elsewhere')"
    queue.store.transact(lambda statements: statements.execute(sql, **facts))


def why_it_waits(job):
    """Return what the error of a wait says behind the id."""
    with pytest.raises(TimeoutError) as caught:
        job.wait(0.0)
    return str(caught.value).removeprefix(f"the job {job.id!r} has not ended yet: ")


NO_WORKER = "no worker of the queue 'default' is running. "
START_ONE = (
    "Start one with `python -m cmdx worker MODULE:QUEUE`, "
    "or run what is due here with queue.drain()."
)


@on_each_server
def test_a_time_out_tells_that_no_worker_is_running(queue):
    add_worker(queue, lease=0.0)
    add_worker(Queue(queue.store, "other"), lease=30.0)

    assert why_it_waits(queue.enqueue(Pay(customer=1))) == (
        f"it is ready, and {NO_WORKER}{START_ONE}"
    )


def test_a_time_out_tells_to_drain_until_the_job_is_due(queue):
    assert why_it_waits(queue.enqueue(Pay(customer=1), after=59.5)) == (
        f"it is ready, and due in 59.5 s, and {NO_WORKER}Start one in this process "
        "with queue.worker(), or run it here with queue.drain(ahead=60)."
    )


@on_each_server
@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("ready", "ready, and due in 60.0 s."),
        ("running", "running."),
    ],
)
def test_a_time_out_of_a_held_job_tells_what_is_before_it(queue, state, why):
    first = queue.enqueue(Pay(customer=1), id="a", key="k", after=60)
    second = queue.enqueue(Pay(customer=1), key="k")
    queue.drain()
    edit(first, state=state)
    add_worker(queue, lease=30.0)

    assert why_it_waits(second) == (
        f"it is held. It waits for the job 'a' of the same key, which is {why}"
    )


@on_each_server
def test_a_time_out_without_a_worker_tells_what_is_before_a_held_job(queue):
    queue.enqueue(Pay(customer=1), id="a", key="k", after=60.5)
    second = queue.enqueue(Pay(customer=1), key="k")
    queue.drain()

    assert why_it_waits(second) == (
        f"it is held, and {NO_WORKER}Start one with `python -m cmdx worker "
        "MODULE:QUEUE`, or run it here with queue.drain(ahead=61). It waits for the "
        "job 'a' of the same key, which is ready, and due in 60.5 s."
    )
    queue.drain(ahead=61)
    assert second.wait(0.0).success


def test_a_time_out_tells_to_drain_until_a_held_job_is_due_itself(queue):
    queue.enqueue(Pay(customer=1), key="k", after=10)
    second = queue.enqueue(Pay(customer=1), key="k", after=60.5)
    queue.drain()

    assert "queue.drain(ahead=61)" in why_it_waits(second)
    queue.drain(ahead=61)
    assert second.wait(0.0).success


def test_nothing_is_said_of_busy_workers_to_who_waits_for_a_job_of_a_lane(queue):
    record = queue.enqueue(Pay(customer=1))._record
    around = Surroundings(
        record.due_at, has_worker=True, is_paused=False, is_in_memory=True
    )

    assert "are busy" in reason_to_wait(record, around)
    assert reason_to_wait(record._replace(lane=LANES), around) == "it is ready."


def test_a_queue_in_memory_needs_a_worker_of_the_same_process(queue):
    assert why_it_waits(queue.enqueue(Pay(customer=1), key="k")) == (
        f"it is held, and {NO_WORKER}Start one in this process with queue.worker(), "
        "or run what is due here with queue.drain()."
    )


@pytest.mark.parametrize(
    ("columns", "state"),
    [({}, "ready"), ({"is_once": 1}, "dead"), ({"crashes": 2}, "dead")],
)
@on_each_server
def test_a_time_out_tells_where_a_job_runs_and_what_comes_if_its_worker_died(
    queue, instant, columns, state
):
    job = queue.enqueue(Pay(customer=1))
    instant.advance(5)
    add_worker(queue, lease=30.0)
    edit(
        job,
        state="running",
        owner=queue.name,
        started_at=queue.store.now(),
        **columns,
    )
    instant.advance(12.5)
    add_worker(queue, lease=30.0, token="another")  # noqa: S106 -- no secret

    assert why_it_waits(job) == (
        "it has been running on elsewhere for 12.5 s. If that worker has died, it "
        f"becomes {state} when the lease is over, in 17.5 s."
    )
    instant.advance(20)
    assert why_it_waits(job) == (
        "its worker on elsewhere has died, or cannot reach the database: its lease is "
        f"over. Another worker finds that within seconds, and it becomes {state} then."
    )
    instant.advance(20)
    assert why_it_waits(job) == (
        f"its worker on elsewhere has died, and no other {NO_WORKER[3:]}{START_ONE}"
    )


def test_a_time_out_tells_that_a_running_job_was_asked_to_end(queue):
    job = queue.enqueue(Pay(customer=1))
    add_worker(queue, lease=30.0)
    edit(job, state="running", owner=queue.name, started_at=queue.store.now())
    queue.cancel(job.id)

    assert why_it_waits(job) == (
        "it has been running on elsewhere for 0.0 s. If that worker has died, it "
        "becomes cancelled when the lease is over, in 30.0 s. It was asked to end, "
        "because it is cancelled."
    )


@on_each_server
def test_a_time_out_tells_that_the_worker_of_the_job_has_died(queue):
    job = queue.enqueue(Pay(customer=1))
    edit(job, state="running", owner="somebody")

    assert why_it_waits(job) == (
        "its worker has died, and no other worker of the queue 'default' is running. "
        + START_ONE
    )


BUSY = (
    "the workers of the queue 'default' are busy. If a job waits for it, start more "
    "threads, or have async work `await job`."
)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, f"it is ready, and {BUSY}"),
        ({"key": "k"}, "it is held."),
        ({"after": 60}, "it is ready, and due in 60.0 s."),
    ],
)
def test_a_time_out_with_a_worker_tells_the_state(queue, options, why):
    add_worker(queue, lease=30.0)

    assert why_it_waits(queue.enqueue(Pay(customer=1), **options)) == why


class Outer(Task[None]):
    """Waits for another job, which no thread is left for."""

    queue = None

    def work(self) -> None:
        wait_in_vain(self.queue)


def wait_in_vain(queue):
    queue.enqueue(Pay(customer=1), id="inner").wait()


def await_in_vain(queue):
    async def enqueue_and_await():
        await (await queue.aenqueue(Pay(customer=1), id="inner"))

    asyncio.run(enqueue_and_await())


def wait_inside_of_a_job(queue):
    Outer.queue = queue
    with queue.worker():
        queue.enqueue(Outer()).wait()


class CancelWhenTold(logging.Handler):
    """Cancels the job that somebody waits for in vain, so that the wait ends."""

    def __init__(self, queue):
        super().__init__()
        self.queue = queue

    def emit(self, record):
        if "'inner'" in record.getMessage():
            self.queue.cancel("inner")


@pytest.mark.parametrize(
    ("wait", "why"),
    [
        (wait_in_vain, f"it is ready, and {NO_WORKER}"),
        (await_in_vain, f"it is ready, and {NO_WORKER}"),
        (wait_inside_of_a_job, f"it is ready, and {BUSY}"),
    ],
)
def test_who_waits_in_vain_is_told_why(store, monkeypatch, caplog, wait, why):
    queue = Queue(store)
    told = CancelWhenTold(queue)
    logging.getLogger("cmdx").addHandler(told)
    monkeypatch.setattr(waiting, "WARN_AFTER", 0.0)
    try:
        wait(queue)
    finally:
        logging.getLogger("cmdx").removeHandler(told)

    said = f"the job 'inner' has not ended yet: {why}"
    assert any(text.startswith(said) for text in caplog.messages)


def test_who_waits_for_a_job_that_runs_is_told_nothing(store, monkeypatch, caplog):
    queue = Queue(store)
    with queue.worker():
        queue.enqueue(Pay(customer=1)).wait(PATIENCE)  # the worker is there
        monkeypatch.setattr(waiting, "WARN_AFTER", 0.0)
        assert queue.enqueue(Pay(customer=1)).wait(PATIENCE).success

    assert "has not ended" not in caplog.text


def test_a_time_out_tells_that_nobody_can_read_the_job(queue):
    add_worker(queue, lease=30.0)
    job = queue.enqueue(Pay(customer=1))
    edit(job, unread_since=queue.store.now(), due_at=queue.store.now() + 30)

    assert why_it_waits(job) == (
        "it is ready, and due in 30.0 s. No worker could read it so far. Deploy one "
        f"that knows {job.task}."
    )


def test_a_time_out_without_a_worker_tells_that_nobody_can_read_the_job(queue):
    job = queue.enqueue(Pay(customer=1))
    edit(job, unread_since=queue.store.now(), reason="Pay is not there. Deploy it.")

    assert why_it_waits(job) == (
        f"it is ready, and {NO_WORKER}Start one in this process with queue.worker(). "
        "No worker could read it so far: Pay is not there. Deploy it."
    )


def test_a_time_out_tells_that_the_queue_is_paused(queue):
    add_worker(queue, lease=30.0)
    queue.pause()
    job = queue.enqueue(Pay(customer=1))

    assert why_it_waits(job) == (
        "it is ready, and the queue 'default' is paused. Resume it with queue.resume()."
    )


def test_a_time_out_without_a_worker_tells_that_the_queue_is_paused_too(queue):
    queue.pause()

    assert why_it_waits(queue.enqueue(Pay(customer=1))).endswith(
        "with queue.drain(). The queue is paused, too: resume it with queue.resume()."
    )


def test_a_job_that_runs_does_not_wait_for_a_paused_queue(queue):
    add_worker(queue, lease=30.0)
    queue.pause()
    job = queue.enqueue(Pay(customer=1))
    edit(job, state="running", owner="somebody")

    assert why_it_waits(job) == "it is running."


def test_a_job_that_was_let_go_meanwhile_does_not_wait_for_itself(queue):
    first, second = (queue.enqueue(Pay(customer=n), key="k") for n in range(2))
    Claims(queue).do_round()  # they get their places
    held = second.refresh()._record
    assert queue.store.transact(looking(queue.store, held)).before[0] == first.id

    queue.cancel(first.id)

    assert queue.store.transact(looking(queue.store, held)).before is None


# -- who is warned, and when -----------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "around", "expected"),
    [
        ({"state": "ready"}, {}, False),
        ({"state": "ready"}, {"has_worker": False}, True),
        ({"state": "ready"}, {"is_paused": True}, True),
        ({"state": "held"}, {"is_paused": True}, True),
        ({"state": "running"}, {"has_worker": False}, True),
        ({"state": "running"}, {"is_paused": True}, False),
    ],
)
def test_a_job_is_stuck_if_somebody_has_to_do_something(queue, job, around, expected):
    record = queue.enqueue(Pay(customer=1))._record._replace(**job)
    facts = {"has_worker": True, "is_paused": False, "is_in_memory": True, **around}

    assert is_stuck(record, Surroundings(record.due_at, **facts)) is expected


@pytest.mark.parametrize(
    ("state", "late", "expected"),
    [
        ("ready", 0, True),
        ("ready", -1, False),
        ("running", 0, False),
        ("held", 0, False),
    ],
)
def test_a_job_that_is_due_is_stuck_if_who_waits_occupies_a_worker(
    queue, state, late, expected
):
    record = queue.enqueue(Pay(customer=1))._record._replace(state=state)
    facts = {"has_worker": True, "is_paused": False, "is_in_memory": True}
    around = Surroundings(record.due_at + late, **facts)

    assert is_stuck(record, around, occupies_worker=True) is expected
    assert not is_stuck(record, around)


def test_who_waits_is_warned_once_even_if_the_worker_dies_later(
    queue, caplog, monkeypatch
):
    record = queue.enqueue(Pay(customer=1))._record
    facts = {"is_paused": False, "is_in_memory": True}
    alive = Surroundings(record.due_at, has_worker=True, **facts)
    monkeypatch.setattr(waiting, "WARN_AFTER", 0.0)
    warning = StuckWarning()

    warning.look(record, alive)
    assert (warning.is_due, caplog.text) == (True, "")

    warning.look(record, attrs.evolve(alive, has_worker=False))
    assert caplog.text.count("has not ended yet") == 1
    assert not warning.is_due


def test_nobody_is_warned_before_some_seconds_have_passed():
    assert not StuckWarning().is_due


class WaitForOther(Task[None], name="waiting.other"):
    """Wait for a job of some queue."""

    queue = None

    def work(self) -> None:
        self.queue.enqueue(Pay(customer=1)).wait(PATIENCE)


@pytest.mark.parametrize(("name", "warnings"), [("default", 1), ("other", 0)])
def test_a_job_that_waits_for_one_of_its_own_queue_is_warned(
    store, monkeypatch, caplog, name, warnings
):
    look = StuckWarning.look

    def look_and_cancel(self, record, around):
        look(self, record, around)
        WaitForOther.queue.cancel(record.id)  # so that the wait ends

    monkeypatch.setattr(StuckWarning, "look", look_and_cancel)
    monkeypatch.setattr(waiting, "WARN_AFTER", 0.0)
    queue, WaitForOther.queue = Queue(store), Queue(store, name)
    add_worker(WaitForOther.queue, lease=30.0)
    with queue.worker():
        queue.enqueue(WaitForOther())
        wait_until(lambda: queue.counts()[JobState.DONE] == 1)

    assert caplog.text.count("has not ended yet") == warnings
