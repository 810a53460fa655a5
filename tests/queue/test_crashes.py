"""Workers that die, stall or meet rows that they cannot read."""

# ruff: noqa: F811 -- fixtures are imported

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from queues import column
from workers import (
    PATIENCE,
    ShiftedClock,
    Stop,
    collected,
    edit,
    exit_code_of,
    names,  # noqa: F401
    needs_fork,
    on_a_file,
    on_each_server,
    on_each_store,
    open_file,
    opened_again,
    queue,  # noqa: F401
    released,
    start_child,
    store,  # noqa: F401
    wait_for,
    wait_until,
    wake_workers,
    workers_of,
)

from cmdx import CmdxError, RetryOptions, Task, clock, retry_on
from cmdx.declare.keywords import named_tasks
from cmdx.operations import operation
from cmdx.queue import (
    JobCrashed,
    JobIndeterminate,
    JobState,
    JobUnreadable,
    Queue,
    claims,
    job_died,
    job_finished,
    table,
    unread,
)
from cmdx.queue import worker as worker_module
from cmdx.queue.claims import Claims
from cmdx.queue.legs import Leg
from cmdx.queue.report import Demand
from cmdx.queue.upkeep import LEASE, LOOK_EVERY
from cmdx.run.lifecycle import drive
from cmdx.stores import StoreError, StoreUnavailable


class Note(Task[str], name="crashes.note"):
    """What most jobs here do."""

    text: str = ""

    def work(self):
        return self.text


@operation(persist=True)
class Charge(Task[str], name="crashes.charge"):
    """What may not run twice."""

    def work(self):
        return "charged"


def claim(queue, count=1):
    """Have a worker claim jobs, whose lease nobody extends."""
    claims = Claims(queue)
    return claims, claims.do_round((), Demand(count)).claimed


def run(queue, record):
    """Run a job that was claimed, and return how it ended."""
    from cmdx.queue.legs import run_leg

    return drive(run_leg(Leg(queue, record), awaits=False))


# -- leases --------------------------------------------------------------------------


@on_each_store
def test_a_lease_that_ran_out_gives_its_jobs_back(queue, instant):
    jobs = queue.enqueue_many([Note(), Note()])
    claim(queue, 2)
    instant.advance(LEASE - 1)
    assert queue.drain() == 0
    instant.advance(1.1)
    _, (record,) = claim(queue, 2)
    assert [job.refresh().crashes for job in jobs] == [1, 1]
    assert record.id == jobs[0].id  # a job that may have killed its worker goes alone


@on_each_store
def test_a_leg_that_ends_forgives_the_crashes(queue, instant):
    @retry_on(ConnectionError, limit=1, delay=600)
    class Fail(Task[None], name="fail"):
        def work(self):
            raise ConnectionError

    job = queue.enqueue(Fail())
    claim(queue)
    instant.advance(LEASE + 1)
    claim(queue)
    assert job.refresh().crashes == 1
    instant.advance(LEASE + 1)
    assert queue.drain() == 1
    assert job.refresh().state == JobState.READY
    assert job.crashes == 0


@on_each_store
def test_a_job_whose_processes_died_three_times_is_dead_and_takes_no_other_along(
    queue, instant
):
    poison, *others = queue.enqueue_many([Note(text=str(n)) for n in range(4)])
    with collected(job_died, job_finished) as sent:
        for crashes in range(3):
            _, records = claim(queue, 4)
            assert len(records) == (1 if crashes else 4)
            assert records[0].id == poison.id
            instant.advance(LEASE + 1)
        assert queue.drain() == 3
    assert poison.refresh().state == JobState.DEAD
    assert isinstance(poison.result.cause, JobCrashed)
    assert "3 processes died while they ran the job" in poison.reason
    assert poison.crashes == 3
    assert [job.refresh().state for job in others] == ["done"] * 3
    assert [name for name, _, _ in sent] == ["job_died", *["job_finished"] * 3]
    assert isinstance(sent[0][2]["result"].cause, JobCrashed)


def test_a_job_with_crashes_runs_while_its_process_runs_nothing_else(queue):
    inside, alone, lock = [], [], threading.Lock()

    class Count(Task[None], name="count"):
        crashed: bool = False

        def work(self):
            with lock:
                inside.append(self)
            for _ in range(10):
                time.sleep(0.001)
                if self.crashed:
                    alone.append(len(inside) == 1)
            with lock:
                inside.remove(self)

    jobs = queue.enqueue_many([Count(crashed=n == 5) for n in range(12)])
    edit(jobs[5], crashes=1)
    with queue.worker(threads=4):
        assert all(job.wait(PATIENCE).success for job in jobs)
    assert alone == [True] * 10


@on_each_store
def test_a_job_with_crashes_is_left_to_others_by_a_worker_that_runs_something(queue):
    first, crashed, last = queue.enqueue_many([Note() for _ in range(3)])
    edit(crashed, crashes=1)
    busy = Claims(queue)
    report = busy.do_round((), Demand(5, is_idle=False))
    assert [job.id for job in report.claimed] == [first.id]
    report = busy.do_round((), Demand(5, is_idle=False))
    assert report.claimed == []  # it waits until it is idle, too
    assert report.next_due > queue.store.now()
    _, (taken,) = claim(queue, 5)
    assert taken.id == crashed.id
    report = busy.do_round((), Demand(5, is_idle=False))
    assert [job.id for job in report.claimed] == [last.id]


@contextmanager
def busy_worker(queue, threads):
    """Yield a worker that runs a job which waits, and what lets that go on."""
    stop = Stop()

    class Wait(Task[None], name="wait"):
        def work(self):
            stop.wait()

    worker = queue.worker(threads)
    with worker, released(stop):
        queue.enqueue(Wait())
        stop.await_reached()
        yield worker, stop


def test_a_busy_worker_keeps_no_other_from_a_job_with_crashes(queue):
    with busy_worker(queue, threads=2):
        crashed = queue.enqueue(Note(), after=3600)
        edit(crashed, crashes=1, due_at=0.0)
        wake_workers(queue)
        with queue.worker():
            assert crashed.wait(PATIENCE).success


def test_a_job_with_crashes_does_not_keep_others_waiting_for_long(queue, monkeypatch):
    monkeypatch.setattr(worker_module, "HOLD_SECONDS", 0.05)
    with busy_worker(queue, threads=2) as (_, stop):
        crashed = queue.enqueue(Note(), after=3600)
        edit(crashed, crashes=1, due_at=0.0)
        assert queue.enqueue(Note(text="on")).wait(PATIENCE).value == "on"
        assert crashed.refresh().state == JobState.READY
        stop.go_on.set()
        assert crashed.wait(PATIENCE).success  # once nothing else runs


@on_each_store
def test_a_worker_that_lost_its_lease_changes_nothing_and_starts_anew(
    queue, instant, caplog
):
    job = queue.enqueue(Note(text="late"))
    claims, (record,) = claim(queue)
    late = run(queue, record)
    instant.advance(LEASE + 1)
    other, (taken,) = claim(queue)
    assert taken.id == job.id
    token = claims.token
    claims.do_round([late])
    assert job.refresh().state == JobState.RUNNING  # of the other
    assert claims.token != token
    assert "was cut off for longer than its lease" in caplog.text
    other.do_round([run(queue, taken)])
    assert job.refresh().state == JobState.DONE
    queue.enqueue(Note())
    (record,) = claims.do_round((), Demand(1)).claimed
    assert record.owner == claims.token


def test_a_late_end_is_dropped_even_if_its_worker_has_claimed_the_job_again(
    queue, instant
):
    job = queue.enqueue(Note(text="late"))
    claims, (record,) = claim(queue)
    late = run(queue, record)
    instant.advance(LEASE + 1)
    Claims(queue).do_round()
    assert claims.do_round().claimed == []  # it notices
    (again,) = claims.do_round((), Demand(1)).claimed
    assert again.id == job.id
    assert claims.do_round([late]).ended == []
    assert job.refresh().state == JobState.RUNNING
    assert len(claims.do_round([run(queue, again)]).ended) == 1


def test_a_stalled_worker_runs_again_what_others_took_from_it(queue, instant):
    stop, runs = Stop(), []

    class Slow(Task[int], name="slow"):
        def work(self):
            runs.append(self.tid)
            if len(runs) == 1:
                stop.wait()
            return len(runs)

    with queue.worker(threads=1), released(stop):
        job = queue.enqueue(Slow())
        stop.await_reached()
        instant.advance(LEASE + 1)
        Claims(queue).do_round()  # another worker finds it
        assert job.refresh().state == JobState.READY
        tokens = workers_of(queue)
        wake_workers(queue)
        wait_until(lambda: workers_of(queue) != tokens)  # it has started anew
        assert job.refresh().state == JobState.READY  # until nothing else runs here
        stop.go_on.set()
        assert job.wait(PATIENCE).value == 2
        assert queue.enqueue(Note(text="on")).wait(PATIENCE).value == "on"
    assert len(runs) == 2
    assert job.crashes == 0


def test_a_stalled_worker_does_not_start_what_others_took_from_it(queue, instant):
    stop, runs = Stop(), []

    class Slow(Task[None], name="slow"):
        number: int

        def work(self):
            runs.append(self.number)
            if self.number == 0:
                stop.wait()

    jobs = queue.enqueue_many([Slow(number=0), Slow(number=1)])
    with queue.worker(threads=1) as worker, released(stop):
        stop.await_reached()
        assert jobs[1].refresh().state == JobState.RUNNING
        queue.pause()
        instant.advance(LEASE + 1)
        Claims(queue).do_round()
        rounds = worker.rounds
        wake_workers_of_paused(queue)
        wait_until(lambda: worker.rounds > rounds + 1)
        stop.go_on.set()
    assert runs == [0]
    assert [job.refresh().state for job in jobs] == ["ready", "ready"]


def wake_workers_of_paused(queue):
    queue.pause()


def test_leases_are_extended_while_a_job_runs(queue, monkeypatch):
    monkeypatch.setattr(claims, "LEASE", 0.3)
    stop = Stop()

    class Slow(Task[int], name="slow"):
        def work(self):
            stop.wait()
            return 7

    with queue.worker(), released(stop):
        job = queue.enqueue(Slow())
        stop.await_reached()
        other, began = Claims(queue), time.monotonic()
        while time.monotonic() < began + 0.8:
            assert other.do_round().lost == []
            time.sleep(0.05)
        stop.go_on.set()
        assert job.wait(PATIENCE).value == 7


# -- processes that are killed -------------------------------------------------------


class Kill(Task[None], name="crashes.kill"):
    """Kill the process in the middle of the work."""

    def work(self):
        os.kill(os.getpid(), signal.SIGKILL)


@operation(persist=True)
class KillOnce(Task[None], name="crashes.kill-once"):
    def work(self):
        os.kill(os.getpid(), signal.SIGKILL)


def drain_in_child(store):
    """Do what there is to do, one job after the other, until this process is killed."""
    with opened_again(store) as again:
        while True:
            Queue(again).drain(ahead=0.1)


@needs_fork
@on_each_server
def test_a_job_that_kills_its_process_is_dead_after_three_of_them(queue, monkeypatch):
    monkeypatch.setattr(claims, "LEASE", 0.2)
    poison, once = queue.enqueue(Kill()), queue.enqueue(KillOnce())
    for _ in range(4):
        child = start_child(lambda: drain_in_child(queue.store))
        assert exit_code_of(child) == -signal.SIGKILL
    with queue.worker():
        assert isinstance(poison.wait(PATIENCE).cause, JobCrashed)
        assert isinstance(once.wait(PATIENCE).cause, JobIndeterminate)
        assert queue.enqueue(Note(text="on")).wait(PATIENCE).value == "on"
    assert poison.crashes == 3
    assert queue.counts()[JobState.RUNNING] == 0


# -- what may not run twice ----------------------------------------------------------


@on_each_store
def test_what_may_not_run_twice_is_claimed_alone(queue):
    jobs = queue.enqueue_many([Note(), Charge(), Charge(), Note()])
    claims = Claims(queue)
    batches = []
    while records := claims.do_round((), Demand(10)).claimed:
        batches.append([record.id for record in records])
    assert batches == [[job.id] for job in jobs]


def test_what_may_not_run_twice_is_claimed_for_a_free_thread_only(queue):
    with busy_worker(queue, threads=1) as (worker, stop):
        charge, rounds = queue.enqueue(Charge()), worker.rounds
        wait_until(lambda: worker.rounds > rounds + 1)
        assert charge.refresh().state == JobState.READY
        stop.go_on.set()
        assert charge.wait(PATIENCE).value == "charged"


@on_each_store
def test_what_may_not_run_twice_is_indeterminate_if_its_worker_dies(queue, instant):
    job = queue.enqueue(Charge())
    claim(queue)
    instant.advance(LEASE + 1)
    with collected(job_died) as sent:
        assert queue.drain() == 0
        assert queue.drain(ahead=7200) == 0
    assert job.refresh().state == JobState.DEAD
    assert job.result.indeterminate
    assert isinstance(job.result.cause, JobIndeterminate)
    ((_, sender, payload),) = sent
    assert sender is Charge
    assert payload["result"].indeterminate


@on_each_store
def test_an_owner_may_still_end_what_was_found_to_be_indeterminate(queue, instant):
    job = queue.enqueue(Charge())
    claims, (record,) = claim(queue)
    instant.advance(LEASE + 1)
    queue.drain()
    assert job.refresh().result.indeterminate
    claims.do_round([run(queue, record)])
    job.refresh()
    assert (job.state, job.result.value) == (JobState.DONE, "charged")


def test_an_owner_may_not_end_what_was_replayed_meanwhile(queue, instant):
    job = queue.enqueue(Charge())
    claims, (record,) = claim(queue)
    late = run(queue, record)
    instant.advance(LEASE + 1)
    queue.drain()
    queue.replay(job.id)
    assert claims.do_round([late]).ended == []
    assert job.refresh().state == JobState.READY


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_would_end_the_process_counts_as_a_crash(queue, error, caplog):
    runs = []

    class Exit(Task[None], name="exit"):
        def work(self):
            runs.append(error)
            raise error(3)

    with queue.worker():
        job = queue.enqueue(Exit())
        assert isinstance(job.wait(PATIENCE).cause, JobCrashed)
        assert queue.enqueue(Note(text="on")).wait(PATIENCE).value == "on"
    assert len(runs) == job.crashes == 3
    said = f"{error.__name__}: 3"
    assert f"3 times in a row, the last time by {said}, so it is not" in job.reason
    assert [line for line in caplog.messages if said in line] == 3 * [
        f"the job {job.id!r} raised {said}, which counts as a crash"
    ]
    assert "raise error(3)" in caplog.text


def test_system_exit_in_async_work_counts_as_a_crash(queue):
    class Exit(Task[None], name="exit"):
        async def work(self):
            raise SystemExit

    class On(Task[int], name="on"):
        async def work(self):
            return 7

    with queue.worker():
        job = queue.enqueue(Exit())
        assert isinstance(job.wait(PATIENCE).cause, JobCrashed)
        assert queue.enqueue(On()).wait(PATIENCE).value == 7


def test_system_exit_of_what_may_not_run_twice_is_indeterminate(queue):
    runs = []

    @operation(persist=True)
    class Exit(Task[None], name="exit"):
        def work(self):
            runs.append(1)
            raise SystemExit

    with queue.worker():
        assert queue.enqueue(Exit()).wait(PATIENCE).indeterminate
        queue.enqueue(Note()).wait(PATIENCE)
    assert runs == [1]


# -- interrupts of who drains --------------------------------------------------------


def test_an_interrupt_ends_drain_and_gives_the_job_back(queue):
    class Interrupt(Task[None], name="interrupt"):
        def work(self):
            raise KeyboardInterrupt

    jobs = queue.enqueue_many([Interrupt(), Note()])
    with pytest.raises(KeyboardInterrupt):
        queue.drain()
    assert [job.refresh().state for job in jobs] == ["ready", "ready"]
    assert jobs[0].crashes == 0
    assert workers_of(queue) == []


def test_cancelling_adrain_ends_it_and_gives_the_job_back(queue):
    class Wait(Task[None], name="wait"):
        async def work(self):
            is_running.set()
            await asyncio.Event().wait()

    async def main():
        draining = asyncio.create_task(queue.adrain())
        await is_running.wait()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining

    is_running = asyncio.Event()
    job = queue.enqueue(Wait())
    asyncio.run(main())
    assert (job.refresh().state, job.crashes) == ("ready", 0)


@on_each_server
@pytest.mark.parametrize("commits", [1, 2], ids=["registers", "claims"])
def test_cancelling_adrain_while_it_commits_leaves_nothing(queue, commits):
    async def main():
        loop, held = asyncio.get_running_loop(), Stop()
        left = iter([None] * (commits - 1))

        def stop_at(point):
            if point == "before commit" and next(left, held) is held:
                held.wait()

        queue.store.at = stop_at
        draining = asyncio.create_task(queue.adrain())
        with released(held):
            await loop.run_in_executor(None, held.await_reached)
            draining.cancel()
            await asyncio.sleep(0)  # the event loop goes on meanwhile
            queue.store.at = lambda _point: None
        with pytest.raises(asyncio.CancelledError):
            await draining

    job = queue.enqueue(Note())
    asyncio.run(main())
    assert (job.refresh().state, job.crashes) == ("ready", 0)
    assert workers_of(queue) == []


@on_each_store
def test_cancelling_adrain_before_it_writes_an_end_does_not_lose_it(queue):
    held = Stop()

    class Wait(Task[str], name="wait"):
        async def work(self):
            threading.Thread(
                target=queue.store.transact, args=[lambda _: held.wait()]
            ).start()
            await asyncio.to_thread(held.await_reached)
            return "done"

    async def main():
        draining = asyncio.create_task(queue.adrain())
        await asyncio.to_thread(held.await_reached)
        while len(queue.store._queue) < 2:  # noqa: ASYNC110 -- its end waits there
            await asyncio.sleep(0.001)
        draining.cancel()
        await asyncio.sleep(0)
        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await draining

    job = queue.enqueue(Wait())
    with released(held):
        asyncio.run(main())
    assert job.refresh().result.value == "done"
    assert workers_of(queue) == []


def test_cancelling_adrain_when_work_has_just_ended_does_not_lose_its_end(queue):
    class Last(Task[str], name="last"):
        async def work(self):
            asyncio.get_running_loop().call_soon(draining.cancel)
            return "done"

    async def main():
        nonlocal draining
        draining = asyncio.create_task(queue.adrain())
        with pytest.raises(asyncio.CancelledError):
            await draining

    draining = None
    job = queue.enqueue(Last())
    asyncio.run(main())
    assert job.refresh().result.value == "done"


def test_a_task_that_was_cancelled_before_can_call_adrain(queue):
    class Async(Task[int], name="async"):
        async def work(self):
            await asyncio.sleep(0)
            return 7

    async def drain_in_the_end():
        try:
            await asyncio.Event().wait()
        finally:
            counts.append(await queue.adrain())

    async def main():
        waiting = asyncio.create_task(drain_in_the_end())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    counts = []
    jobs = queue.enqueue_many([Async(), Async()])
    asyncio.run(main())
    assert counts == [2]
    assert [job.refresh().result.value for job in jobs] == [7, 7]


def test_async_work_that_cancels_itself_counts_as_a_crash(queue):
    class Cancel(Task[None], name="cancel"):
        async def work(self):
            raise asyncio.CancelledError

    with queue.worker():
        job = queue.enqueue(Cancel())
        assert isinstance(job.wait(PATIENCE).cause, JobCrashed)


# -- rows that cannot be read --------------------------------------------------------


@on_each_store
@pytest.mark.parametrize("text", ["{", "", "NaN?", "9" * 5000])
def test_inputs_that_are_no_json_are_dead_at_once_and_stop_no_other(queue, text):
    before, broken, after = queue.enqueue_many([Note(text=str(n)) for n in range(3)])
    edit(broken, inputs=text)
    with collected(job_died) as sent, queue.worker():
        assert isinstance(broken.wait(PATIENCE).cause, JobUnreadable)
        assert before.wait(PATIENCE).success
        assert after.wait(PATIENCE).success
    assert broken.state == JobState.DEAD
    assert [(sender, said["job"].id) for _, sender, said in sent] == [(Note, broken.id)]


def test_inputs_that_are_nested_too_deeply_stop_no_other(queue):
    broken, after = queue.enqueue_many([Note(), Note()])
    edit(broken, inputs="[" * 100_000)
    with queue.worker():
        wait_for(broken, "dead")
        assert after.wait(PATIENCE).success


@pytest.mark.parametrize("text", ["[]", '"text"', "7", "null", '{"wrong": 1}'])
@pytest.mark.usefixtures("instant")
def test_inputs_of_another_shape_are_left_for_others(queue, text):
    broken, after = queue.enqueue_many([Note(), Note()])
    edit(broken, inputs=text)
    queue.drain()
    assert after.refresh().state == JobState.DONE
    assert broken.refresh().state == JobState.READY
    queue.drain(ahead=3700)
    assert broken.refresh().state == JobState.DEAD
    assert isinstance(broken.result.cause, JobUnreadable)


@pytest.mark.parametrize("column", ["suspension", "options", "origin"])
def test_other_columns_that_are_no_json_make_a_job_dead(queue, column):
    broken, after = queue.enqueue_many([Note(), Note()])
    edit(broken, **{column: "{"})
    with queue.worker():
        assert broken.wait(PATIENCE).failed
        assert after.wait(PATIENCE).success
    assert broken.state == JobState.DEAD


@pytest.mark.parametrize("column", ["priority", "crashes", "created_at"])
@pytest.mark.parametrize("key", [None, "one"])
def test_columns_that_somebody_edited_stop_no_other_job(queue, column, key):
    jobs = [queue.enqueue(Note(text=str(n)), key=key) for n in range(3)]
    edit(jobs[1], **{column: "abc"})
    with queue.worker():
        assert jobs[0].wait(PATIENCE).success
        assert jobs[2].wait(PATIENCE).success
        assert isinstance(jobs[1].wait(PATIENCE).cause, JobUnreadable)
    assert len(queue.find()) == 3


def test_a_held_job_that_somebody_edited_lets_the_next_go(queue):
    jobs = [queue.enqueue(Note(), key="one") for _ in range(3)]
    Claims(queue).do_round()  # they get their places
    edit(jobs[1], priority="abc")
    with queue.worker():
        assert jobs[2].wait(PATIENCE).success
    assert jobs[1].refresh().state == JobState.DEAD


@pytest.mark.parametrize("edited", [{"due_at": "abc"}, {"rank": 0.5}, {"rank": "abc"}])
def test_a_place_in_the_queue_that_somebody_edited_stops_no_other_job(queue, edited):
    jobs = queue.enqueue_many([Note(), Note()])
    edit(jobs[0], **edited)
    with queue.worker():
        assert jobs[1].wait(PATIENCE).success
        assert queue.enqueue(Note()).wait(PATIENCE).success


@pytest.mark.usefixtures("instant")
def test_many_jobs_of_one_level_that_somebody_edited_stop_no_other(queue):
    jobs = queue.enqueue_many([Note() for _ in range(10)])
    for number, job in enumerate(jobs[:9], start=1):
        edit(job, rank=number / 20)
    queue.drain()
    assert jobs[9].refresh().state == JobState.DONE


@pytest.mark.usefixtures("instant")
def test_an_edited_job_that_is_due_later_hides_no_other(queue):
    edited, other = queue.enqueue(Note(), after=1), queue.enqueue(Note(), after=2)
    edit(edited, created_at="abc")
    assert queue.drain(ahead=3) == 1
    assert other.refresh().state == JobState.DONE
    assert edited.refresh().state == JobState.DEAD


def test_a_running_job_that_somebody_edited_stops_no_other(queue, instant):
    job, other = queue.enqueue_many([Note(), Note()])
    claim(queue, 2)
    edit(job, priority="abc")
    instant.advance(LEASE + 1)
    assert queue.drain() == 1
    assert job.refresh().state == JobState.DEAD
    assert other.refresh().state == JobState.DONE


# -- rolling deploys -----------------------------------------------------------------


@on_each_store
@pytest.mark.usefixtures("instant")
def test_a_task_that_nobody_knows_is_left_for_others_and_dead_after_an_hour(queue):
    class New(Task[int], name="new"):
        def work(self):
            return 7

    job, other = queue.enqueue(New()), queue.enqueue(Note())
    named_tasks.pop("new")
    with collected(job_died) as sent:
        assert queue.drain() == 2
        assert other.refresh().state == JobState.DONE
        assert job.refresh().state == JobState.READY
        assert 29 < job.due_at - queue.store.now() <= 30
        assert queue.drain(ahead=25) == 0
        assert queue.drain(ahead=6) == 1
        queue.drain(ahead=3540)
        assert job.refresh().state == JobState.READY
        queue.drain(ahead=90)
    assert job.refresh().state == JobState.DEAD
    assert isinstance(job.result.cause, JobUnreadable)
    assert [(name, sender) for name, sender, _ in sent] == [("job_died", "new")]
    named_tasks["new"] = New
    queue.replay(job.id)
    queue.drain()
    assert job.refresh().result.value == 7


@pytest.mark.usefixtures("instant")
def test_a_worker_that_knows_the_task_runs_what_another_could_not_read(queue):
    class New(Task[int], name="new"):
        def work(self):
            return 7

    job = queue.enqueue(New())
    named_tasks.pop("new")
    queue.drain(ahead=1000)
    assert job.refresh().state == JobState.READY
    named_tasks["new"] = New
    queue.drain(ahead=31)
    assert job.refresh().result.value == 7


def test_a_task_that_has_become_async_runs_in_the_event_loop(queue):
    class Work(Task[int], name="work"):
        def work(self):
            return 1

    job = queue.enqueue(Work())

    class NewWork(Task[int], name="new-work"):
        async def work(self):
            await asyncio.sleep(0)
            return 2

    named_tasks["work"] = NewWork
    with queue.worker():
        assert job.wait(PATIENCE).value == 2
    queue.replay(job.id)
    asyncio.run(queue.adrain())
    assert job.refresh().result.value == 2


# -- stores that fail ----------------------------------------------------------------


def fail_at(store, point, count, error):
    """Have the next *count* transactions fail at a point."""
    left = iter(range(count))
    lock = threading.Lock()

    def fail(reached):
        with lock:
            if reached == point and next(left, None) is not None:
                raise error

    store.at = fail
    return left


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr("cmdx.queue.worker.STORE_PAUSE", 0.01)


@pytest.mark.parametrize("point", ["before begin", "before commit", "after commit"])
@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("the store is away", "Try again"),
        StoreError("the disk is full", "Make room"),
        MemoryError("no memory"),
    ],
)
def test_a_store_that_fails_for_a_while_loses_no_job(queue, point, error, caplog):
    stop, runs = Stop(), []

    class Count(Task[None], name="count"):
        number: int

        def work(self):
            runs.append(self.number)
            if self.number == 0:
                stop.wait()

    jobs = queue.enqueue_many([Count(number=n) for n in range(30)])
    with queue.worker(threads=1), released(stop):
        stop.await_reached()
        left = fail_at(queue.store, point, 5, error)
        stop.go_on.set()
        wait_until(lambda: next(left, None) is None)
        queue.store.at = lambda _point: None
        assert all(job.wait(PATIENCE).success for job in jobs)
    assert sorted(runs) == [*range(30)]
    assert "worker" in caplog.text.lower()


def test_an_end_that_could_not_be_stored_is_stored_soon_after(queue):
    stop = Stop()

    class First(Task[int], name="first"):
        def work(self):
            error = StoreUnavailable("the store is away", "Try again")
            fail_at(queue.store, "before begin", 3, error)
            return 7

    class Long(Task[None], name="long"):
        def work(self):
            stop.wait()

    first, *_others = queue.enqueue_many([First(), Long(), Long()])
    with queue.worker(threads=1), released(stop):
        stop.await_reached()
        wait_until(lambda: state_of_failing(first) == "done")


def state_of_failing(job):
    try:
        return job.refresh().state
    except StoreUnavailable:
        return None


def test_a_worker_waits_for_a_store_that_is_not_there_yet(queue):
    job = queue.enqueue(Note(text="on"))
    fail_at(queue.store, "before begin", 5, StoreUnavailable("it is away", "Wait"))
    with queue.worker():
        wait_until(lambda: workers_of_failing(queue))
        queue.store.at = lambda _point: None
        assert job.wait(PATIENCE).value == "on"


def workers_of_failing(queue):
    try:
        return workers_of(queue)
    except StoreUnavailable:
        return []


@on_a_file
def test_a_database_that_somebody_locks_is_waited_for(queue):
    stop = Stop()

    class Slow(Task[int], name="slow"):
        def work(self):
            stop.wait()
            return 7

    jobs = queue.enqueue_many([Slow(), Slow()])
    with queue.worker(threads=1), released(stop):
        stop.await_reached()
        connection = open_file(queue.store.name)
        connection.execute("begin immediate")
        stop.go_on.set()
        with pytest.raises(TimeoutError):
            jobs[0].wait(0.3)
        connection.execute("rollback")
        connection.close()
        assert [job.wait(PATIENCE).value for job in jobs] == [7, 7]


def test_signals_that_cannot_be_sent_lose_no_job(queue, monkeypatch, caplog):
    def fail(*_args, **_options):
        raise RuntimeError("it cannot be told")

    monkeypatch.setattr("cmdx.queue.claims.tell_end", fail)
    with queue.worker(), collected(job_finished):
        jobs = queue.enqueue_many([Note(text="on") for _ in range(20)])
        assert [job.wait(PATIENCE).value for job in jobs] == ["on"] * 20
    assert "it cannot be told" in caplog.text


# -- the clock -----------------------------------------------------------------------


@on_each_store
def test_a_clock_that_is_set_back_an_hour_keeps_no_job_waiting(queue):
    shifted = ShiftedClock()
    with clock.use(shifted), queue.worker():
        queue.enqueue(Note()).wait(PATIENCE)
        queue.pause()
        before = queue.enqueue(Note(text="before"))
        shifted.shift = -3600.0
        after = queue.enqueue(Note(text="after"))
        queue.resume()
        assert after.wait(PATIENCE).value == "after"
        assert before.wait(PATIENCE).value == "before"
    assert workers_of(queue) == []


@on_each_store
@pytest.mark.parametrize("was_noticed", [True, False])
def test_a_clock_that_is_set_back_keeps_no_replayed_job_waiting(
    queue, instant, was_noticed
):
    queue.keep = 1e6
    jobs = [queue.enqueue(Note(), key=key) for key in (None, "k", "k")]
    queue.drain()
    instant.advance(7200)
    if was_noticed:
        queue.drain()
    for job in jobs:
        queue.replay(job.id)
    instant.advance(-3600)
    assert queue.drain(ahead=60) == 3


@on_each_store
def test_a_clock_that_is_set_back_leaves_dates_and_pauses_alone(queue, instant):
    queue.keep = 1e6
    queue.enqueue(Note())
    queue.drain()
    later = queue.enqueue(Note(), after=7200)
    dated = queue.enqueue(
        Note(), at=datetime.fromtimestamp(queue.store.now() + 7200, UTC)
    )
    instant.advance(-3600)
    queue.drain(ahead=7199)
    assert (later.refresh().state, dated.refresh().state) == ("ready", "ready")
    queue.drain(ahead=10)
    assert (later.refresh().state, dated.refresh().state) == ("done", "ready")


@on_each_store
def test_a_clock_that_is_set_back_keeps_no_worker_busy_with_a_dated_job(queue, instant):
    date = queue.store.now() + 7200
    dated = queue.enqueue(Note(), at=datetime.fromtimestamp(date, UTC))
    instant.advance(-3600)
    with Claims(queue) as claims:
        reports = [claims.do_round((), Demand(1)) for _ in range(2)]

    assert [report.next_due for report in reports] == [date, date]
    assert column(dated, "due_at") == date


@on_each_store
def test_a_clock_that_is_set_back_keeps_no_worker_busy_with_a_pause(queue, instant):
    @retry_on(OSError, delay=7200, limit=1)
    class Fail(Task[None], name="crashes.fail"):
        def work(self):
            raise OSError

    job = queue.enqueue(Fail())
    claims, (record,) = claim(queue)
    claims.do_round([run(queue, record)])
    instant.advance(-3600)
    reports = [claims.do_round((), Demand(1)) for _ in range(2)]

    due_at = queue.store.now() + 7200
    assert [report.next_due for report in reports] == [due_at, due_at]
    assert column(job, "due_at") == due_at


@on_each_store
def test_a_clock_some_seconds_behind_another_brings_no_job_forward(queue, instant):
    queue.drain()
    instant.advance(LOOK_EVERY - 1)
    job = queue.enqueue(Note(), after=10)
    due_at = column(job, "due_at")
    instant.advance(1 - LOOK_EVERY)
    with Claims(queue) as claims:
        report = claims.do_round((), Demand(1))

    assert report.next_due == column(job, "due_at") == due_at


@on_each_store
@pytest.mark.usefixtures("instant")
def test_a_worker_does_not_wake_up_for_a_job_that_it_has_no_room_for(queue):
    queue.enqueue(Note(), after=60)
    with Claims(queue) as claims:
        without_room = claims.do_round((), Demand(50, plain=0))
        with_room = claims.do_round((), Demand(50, coroutines=0))

    assert without_room.next_due == math.inf
    assert with_room.next_due == queue.store.now() + 60


def test_a_clock_that_is_set_forward_an_hour_takes_no_job_from_its_worker(queue):
    stop, shifted = Stop(), ShiftedClock()

    class Slow(Task[int], name="slow"):
        def work(self):
            stop.wait()
            return 7

    with clock.use(shifted), queue.worker(), released(stop):
        job = queue.enqueue(Slow())
        stop.await_reached()
        shifted.shift = 3600.0
        wake_workers(queue)
        queue.enqueue(Note())
        stop.go_on.set()
        assert job.wait(PATIENCE).value == 7


# -- late and odd ends ---------------------------------------------------------------


@on_each_store
def test_who_is_told_of_a_death_can_pause_the_queue_before_the_next_of_its_key(queue):
    def pause(*_, **__):
        queue.pause()

    class Fail(Task[None], name="fail"):
        def work(self):
            raise OSError

    with job_died.connected_to(pause):
        dead = queue.enqueue(Fail(), key="k", retry=RetryOptions(1))
        held = queue.enqueue(Note(), key="k")
        queue.drain()
    assert dead.refresh().state == JobState.DEAD
    assert held.refresh().state == JobState.READY
    queue.resume()
    assert queue.drain() == 1


def test_the_late_end_of_a_dead_job_leaves_its_unique_text_to_others(queue, instant):
    job = queue.enqueue(Charge(), unique="x", until=5)
    late, (record,) = claim(queue)
    instant.advance(LEASE + 1)
    queue.drain()
    other = queue.enqueue(Charge(), unique="x", until=1000)
    assert other.id != job.id

    late.do_round([run(queue, record)])

    assert job.refresh().result.value == "charged"
    assert queue.enqueue(Charge(), unique="x").id == other.id


@on_each_store
def test_a_dead_job_is_ended_late_but_not_taken_up_again(queue, instant):
    job = queue.enqueue(Charge(), key="k")
    late, (record,) = claim(queue)
    instant.advance(LEASE + 1)
    queue.drain()
    following = queue.enqueue(Note(), key="k")

    late.do_round([Leg(queue, record).end(table.give_back)])

    assert job.refresh().state is JobState.DEAD
    queue.drain()
    assert following.refresh().state is JobState.DONE


def test_a_job_whose_module_exits_on_import_is_left_to_other_workers(
    queue, tmp_path, monkeypatch, caplog
):
    (tmp_path / "exits_on_import.py").write_text("raise SystemExit('no settings')")
    monkeypatch.syspath_prepend(tmp_path)
    queue.tasks = ("exits_on_import",)
    broken = queue.enqueue(Note())
    edit(broken, task="exits_on_import:Note", module="exits_on_import")
    with queue.worker():
        for _ in range(3):
            assert queue.enqueue(Note(text="fine")).wait(30).value == "fine"
        wait_until(lambda: "exits_on_import:Note are left to other" in caplog.text)

    assert "cannot be imported: SystemExit: no settings." in caplog.text
    assert (broken.refresh().state, broken.crashes) == (JobState.READY, 0)


def test_a_task_that_a_worker_does_not_know_is_logged_once(queue, caplog, monkeypatch):
    monkeypatch.setattr(unread, "warned_of", set())
    for job in queue.enqueue_many([Note(), Note()]):
        edit(job, task="nowhere:Note", module="nowhere")
    queue.drain()

    (line,) = [text for text in caplog.messages if "nowhere:Note" in text]
    assert line.startswith("jobs of nowhere:Note are left to other workers, because")
    assert "or list it, as in Queue(..., tasks=('nowhere',))." in line


DEPLOY = (
    "Deploy a worker whose code has {}, or keep that name as an alias if the class was "
    "renamed or moved."
)
UNREADABLE = {
    "the class is gone": (
        {"task": "workers:Gone", "module": "workers"},
        "the stored task 'workers:Gone' cannot be used: no class has this name.",
        DEPLOY.format("workers:Gone"),
    ),
    "the module is gone": (
        {"task": "crashes.new:Note", "module": "crashes.new"},
        (
            "the stored task 'crashes.new:Note' cannot be used: crashes.new cannot be "
            "imported: ModuleNotFoundError: No module named 'crashes'."
        ),
        DEPLOY.format("crashes.new:Note"),
    ),
    "the package is not listed": (
        {"task": "nowhere.new:Note", "module": "nowhere.new"},
        (
            "the stored task 'nowhere.new:Note' cannot be used: nowhere.new is not "
            "imported, and this process has no task of nowhere yet."
        ),
        (
            "Import it first, or list it, as in Queue(..., tasks=('nowhere',)); tasks= "
            "lists 'crashes' now."
        ),
    ),
    "an input is gone": (
        {"inputs": '{"text": "a", "lines": 2}'},
        "Note has no input 'lines', but it was given.",
        (
            "Deploy a worker whose crashes.note takes lines, or declare lines again, "
            "with a default."
        ),
    ),
    "an input has another type": (
        {"inputs": '{"text": [1]}'},
        "Note.text was stored, but must be text.",
        "Deploy a worker whose crashes.note can read what was stored.",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
@pytest.mark.usefixtures("instant")
def test_what_to_do_about_a_job_that_cannot_be_read_is_said_everywhere(
    queue, caplog, monkeypatch, case
):
    columns, problem, cure = UNREADABLE[case]
    why = f"{problem} {cure}"
    monkeypatch.setattr(unread, "warned_of", set())
    queue.tasks = ("crashes",)
    job = queue.enqueue(Note(text="a"))
    edit(job, **columns)
    queue.drain()
    task = job.refresh().task

    assert f"jobs of {task} are left to other workers, because {why}" in caplog.messages
    with pytest.raises(TimeoutError) as caught:
        job.wait(0.0)
    assert str(caught.value).endswith(f"No worker could read it so far: {why}")

    queue.drain(ahead=3700)
    assert str(job.refresh().result.cause) == (
        f"the job '{job.id}' cannot be run: {why} Then replay it."
    )


def test_a_value_that_cannot_be_stored_is_logged_once_per_task(
    queue, caplog, monkeypatch
):
    monkeypatch.setattr(unread, "warned_of", set())

    class Open(Task[object], name="crashes.open"):
        fails: bool = False

        def work(self):
            if self.fails:
                self.fail("no file")
            return {"file": object()}

    class Same(Task[dict], name="crashes.same"):
        def work(self):
            return {"lost_value": "no"}

    jobs = queue.enqueue_many([Open(fails=True), Open(), Open(), Same()])
    queue.drain()
    result = jobs[1].wait(0.0)

    (message,) = caplog.messages
    assert message == (
        "the values of jobs of crashes.open are lost: value[file] of "
        f"{Open.__qualname__} could not be stored: it is an instance of object; say "
        "how to store it with cmdx.wire.encodings.register(object, ...). Let work "
        "return what can be stored, such as an id or a path."
    )
    assert result.success
    assert str(result).endswith(": value not available")
    assert jobs[3].wait(0.0).value == {"lost_value": "no"}


def test_drain_refuses_an_event_loop_before_it_claims_anything(queue):
    job = queue.enqueue(Charge())

    async def drain():
        queue.drain()

    with pytest.raises(CmdxError, match="adrain"):
        asyncio.run(drain())
    assert job.refresh().state is JobState.READY


@on_each_store
def test_a_worker_locks_no_more_jobs_than_it_has_room_for(queue):
    first = queue.enqueue_many([Note() for _ in range(3)], priority=5)
    queue.enqueue_many([Note() for _ in range(3)])
    claims = Claims(queue)
    (taken,) = claims.do_round((), Demand(50, 1, 100)).claimed

    assert taken.id == first[0].id
    assert [job.id for job in Claims(queue).do_round((), Demand(2)).claimed] == [
        job.id for job in first[1:]
    ]


@pytest.mark.parametrize("call", ["get", "cancel", "replay"])
def test_a_job_in_place_of_its_id_is_refused(queue, call):
    job = queue.enqueue(Note())

    with pytest.raises(TypeError, match=r"a job is named by its id, such as job\.id"):
        getattr(queue, call)(job)
