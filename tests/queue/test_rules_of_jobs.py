"""
The rules of queues and schedules, one test each.

The numbers are those of the specification that this package answers to, the retries of
Cloudflare's Agents. The rules that are not here are named in the other files. Where the
original has a quirk, the test is of what is done instead.
"""

# ruff: noqa: F811 -- fixtures are imported

from __future__ import annotations

import pytest
from workers import (
    collected,
    edit_row,
    names,  # noqa: F401
    on_a_file,
    on_each_store,
    queue,  # noqa: F401
    store,  # noqa: F401
)

from cmdx import DefinitionError, RetryOptions, Task, is_retryable
from cmdx.queue import (
    JobCrashed,
    JobState,
    Queue,
    job_died,
    job_retried,
    schedule_cancelled,
    schedule_created,
    schedule_fired,
    schedule_piled_up,
)
from cmdx.queue.claims import Claims
from cmdx.queue.report import Demand
from cmdx.queue.upkeep import LEASE
from cmdx.stores import SqliteStore


class Work(Task[None], name="rules.work"):
    number: int = 0

    def work(self):
        pass


class Fail(Task[None], name="rules.fail"):
    def work(self):
        raise ConnectionError("no")


def test_r_000_35_an_interval_is_positive_and_at_most_30_days(queue):
    with pytest.raises(DefinitionError, match=r"^every must be a positive number$"):
        queue.schedule(Work(), every=0)
    message = r"^every cannot exceed 2592000 seconds \(30 days\)$"
    with pytest.raises(DefinitionError, match=message):
        queue.schedule(Work(), every=2_592_001)
    assert queue.schedules() == []


def test_r_000_36_the_same_schedule_again_keeps_the_old_options_and_is_not_told(queue):
    for times in ({"every": 60}, {"cron": "0 9 * * *"}):
        first = queue.schedule(Work(), retry=RetryOptions(7), **times)
        with collected(schedule_created) as sent:
            again = queue.schedule(Work(), retry=RetryOptions(2), **times)
        assert (again.id, again.retry_options) == (first.id, RetryOptions(7))
        assert sent == []


def test_r_000_36_the_same_delayed_job_again_is_one_only_if_that_is_asked_for(queue):
    assert queue.enqueue(Work(), after=5).id != queue.enqueue(Work(), after=5).id
    first = queue.enqueue(Work(), after=5, unique="digest")
    assert queue.enqueue(Work(), after=50, unique="digest").id == first.id


@pytest.mark.usefixtures("instant")
def test_r_000_37_a_run_is_told_once_its_retries_before_each_and_its_end(queue):
    queue.schedule(Fail(), every=60, retry=RetryOptions(3))
    with collected(schedule_fired, job_retried, job_died) as sent:
        queue.drain(ahead=62)
    assert [name for name, _, _ in sent] == [
        "schedule_fired",
        "job_retried",
        "job_retried",
        "job_died",
    ]
    assert len(sent[-1][2]["result"].attempts) == 3


@pytest.mark.usefixtures("instant")
def test_r_000_37_a_payload_that_cannot_be_parsed_is_told_and_not_run(queue, caplog):
    schedule = queue.schedule(Work(), every=60)
    edit_row(queue.store, "cmdx_schedule", schedule.id, template="{")
    assert queue.drain(ahead=61) == 0
    assert "cannot be read, and does not fire any more" in caplog.text


@pytest.mark.parametrize("task", [Work(), Fail()])
@pytest.mark.usefixtures("instant")
def test_r_000_38_after_the_run_cron_is_at_its_next_time_and_an_interval_starts(
    queue, task
):
    once = RetryOptions(1)
    interval = queue.schedule(task, every=3600, retry=once)
    hourly = queue.schedule(type(task)(), cron="0 * * * *", retry=once)
    queue.drain(ahead=3601)
    now = queue.store.now()
    due = {schedule.id: schedule.due_at for schedule in queue.schedules()}
    assert 3590 < due[interval.id] - now <= 3600
    assert 0 < due[hourly.id] - now <= 3600
    assert due[hourly.id] % 3600 == 0


@pytest.mark.usefixtures("instant")
def test_r_000_39_a_run_that_has_not_ended_skips_its_tick_however_long_it_takes(queue):
    queue.schedule(Work(), cron="* * * * *")
    queue.pause()
    with collected(schedule_fired) as sent:
        queue.drain(ahead=3600)
    assert len(sent) == 1
    assert queue.counts()[JobState.READY] == 1


@pytest.mark.usefixtures("instant")
def test_r_000_40_ten_dated_jobs_of_one_task_are_worth_a_warning_and_all_run(queue):
    jobs = queue.enqueue_many([Work(number=n) for n in range(10)], after=5)
    with collected(schedule_piled_up) as sent:
        assert queue.drain(ahead=6) == 10
    ((_, sender, said),) = sent
    assert (sender, said) == (Work, {"task": "rules.work", "count": 10})
    assert all(job.refresh().state == JobState.DONE for job in jobs)


def test_r_000_40_a_worker_tells_of_the_pile_once(queue, instant):
    jobs = queue.enqueue_many([Work(number=n) for n in range(200)], after=5)
    instant.advance(6)
    with collected(schedule_piled_up) as sent, queue.worker(threads=2):
        assert all(job.wait(30).success for job in jobs)
    assert [said["count"] for _, _, said in sent] == [200]


@on_each_store
def test_r_000_42_exactly_the_job_that_kills_three_processes_is_dead(queue, instant):
    poison, neighbour = queue.enqueue_many([Work(number=1), Work(number=2)])
    for _ in range(3):
        Claims(queue).do_round((), Demand(2))
        instant.advance(LEASE + 1)
    queue.drain()
    assert isinstance(poison.refresh().result.cause, JobCrashed)
    assert neighbour.refresh().state == JobState.DONE


def test_r_000_43_a_schedule_is_cancelled_once_and_told_once(queue):
    schedule = queue.schedule(Work(), every=60)
    with collected(schedule_cancelled) as sent:
        assert not queue.unschedule("unknown")
        assert queue.unschedule(schedule.id)
        assert not queue.unschedule(schedule.id)
    assert len(sent) == 1


def test_r_000_44_control_calls_are_tried_three_times_while_retryable(queue, instant):
    class Busy(Exception):
        retryable = True

    calls = []

    def terminate(attempt):
        calls.append(attempt)
        raise Busy if len(calls) < 3 else ValueError

    class Terminate(Task[None], name="terminate"):
        def work(self):
            self.retry(
                terminate,
                max_attempts=3,
                base_delay=0.2,
                max_delay=3.0,
                should_retry=is_retryable,
            )

    job = queue.enqueue(Terminate(), retry=RetryOptions(1))
    queue.drain()
    assert calls == [1, 2, 3]
    assert job.refresh().result.cause.type_name == "ValueError"
    assert instant.pauses == [0.2, 0.4]  # half of the bounds 0.4 and 0.8


@pytest.mark.usefixtures("instant")
def test_r_000_45_a_returned_failure_is_retried_and_the_last_one_returned(queue):
    states = iter(["failed", "failed", "failed", "ready"])

    class Connect(Task[str], name="connect"):
        def work(self):
            return self.retry(
                lambda _attempt: next(states),
                max_attempts=3,
                base_delay=0.5,
                max_delay=5.0,
                retry_result=lambda state: state == "failed",
            )

    job = queue.enqueue(Connect())
    queue.drain()
    assert job.refresh().result.value == "failed"
    assert next(states) == "ready"


@on_a_file
def test_r_000_46_a_missing_column_is_added_without_losing_jobs(queue):
    job = queue.enqueue(Work(number=7))
    path = queue.store.name
    queue.store.transact(
        lambda statements: statements.execute(
            "alter table cmdx_job drop column suspension"
        )
    )
    queue.store.close()
    with SqliteStore(path) as again:
        kept = Queue(again).get(job.id)
        assert kept.inputs == {"number": 7}
        assert Queue(again).drain() == 1
