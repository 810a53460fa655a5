"""Jobs that failed for good: what is kept of them, and how they run again."""

from __future__ import annotations

import logging
import traceback

import pytest
from queues import collected, column, edit, in_thread, on_each_server, on_each_store

from cmdx import DefinitionError, RetryOptions, Stop, Task, Workflow, retry_on
from cmdx.declare.keywords import named_tasks
from cmdx.exceptions import RecordedError
from cmdx.operations import operation
from cmdx.queue import (
    JobCancelled,
    JobCrashed,
    JobGone,
    JobIndeterminate,
    JobState,
    JobUnreadable,
    Queue,
    job_cancelled,
    job_died,
    job_enqueued,
    job_finished,
    progress,
)
from cmdx.queue.claims import Claims
from cmdx.queue.report import Demand
from cmdx.queue.upkeep import LEASE
from cmdx.run.lifecycle import drive
from cmdx.stores import SqliteStore

READY, HELD, RUNNING, DONE, DEAD, CANCELLED = JobState

ONCE = RetryOptions(max_attempts=1)


class Pay(Task[int], name="dead.pay"):
    """Fails while its customer is one of those that are out of money."""

    broke = {-1, -2}  # noqa: RUF012 -- of all of them
    customer: int

    def work(self) -> int:
        progress(1)
        if self.customer in self.broke:
            raise LookupError(f"no money {self.customer}")
        return self.customer


class Exits(Task[None], name="dead.exits"):
    """Ends its process, or would."""

    def work(self):
        raise SystemExit(1)


@operation()
class ChargeOnce(Task[None], name="dead.charge_once"):
    def work(self):
        raise SystemExit(1)


@pytest.fixture
def dead(queue):
    """Return a job that is dead."""
    job = queue.enqueue(Pay(customer=-1), retry=ONCE)
    queue.drain()
    assert job.refresh().state is DEAD
    return job


@pytest.fixture
def rich(monkeypatch):
    """Let all customers have money from now on."""
    return lambda: monkeypatch.setattr(Pay, "broke", set())


def fault_of(task, result):
    """Return what ``or_raise`` raises, which is the fault of the task."""
    with pytest.raises(task.Fault) as raised:
        result.or_raise()
    return raised.value


# -- what is kept ----------------------------------------------------------------------


@on_each_store
def test_a_dead_job_keeps_inputs_attempts_reason_and_the_last_traceback(queue):
    job = queue.enqueue(Pay(customer=-1), retry=RetryOptions(2, 2.0, 3.0))
    queue.drain(ahead=60)

    (found,) = queue.find(state="dead")
    assert (found.id, found.inputs, found.retries) == (job.id, {"customer": -1}, 1)
    assert found.reason == "[LookupError] no money -1"
    assert [attempt.error.message for attempt in found.attempts] == ["no money -1"] * 2
    assert found.result.stopped is Stop.EXHAUSTED
    assert 'raise LookupError(f"no money' in found.result.cause.traceback
    assert found.due_at is None


@on_each_store
def test_or_raise_raises_the_fault_of_the_task_with_the_record_as_its_cause(
    queue, dead
):
    result = queue.get(dead.id).result
    cause = fault_of(Pay, result).__cause__

    assert isinstance(cause, RecordedError)
    assert (cause.type_name, cause.message) == ("LookupError", "no money -1")
    assert result.cause is cause
    assert "no money -1" in "".join(traceback.format_exception(cause))


def test_a_halt_is_the_fault_without_another_error(queue):
    class Refuse(Task[None], name="queue.refuse"):
        def work(self):
            self.fail("closed", code=7)

    job = queue.enqueue(Refuse())
    queue.drain()

    fault = fault_of(Refuse, job.wait(5))
    assert job.reason == "closed"
    assert job.result.metadata["code"] == 7
    assert fault.result.reason == "closed"


@on_each_store
def test_r_000_28_a_final_failure_is_told_and_the_next_job_runs(queue, caplog):
    def raise_something(_sender, **_payload):
        raise RuntimeError("the receiver is broken")

    caplog.set_level(logging.CRITICAL)
    first = queue.enqueue(Pay(customer=-1), retry=ONCE)
    second = queue.enqueue(Pay(customer=1))
    with (
        job_died.connected_to(raise_something),
        collected(job_died, job_finished) as sent,
    ):
        queue.drain()

    assert [(name, payload["job"].id) for name, payload in sent] == [
        ("job_died", first.id),
        ("job_finished", second.id),
    ]
    assert sent[0][1]["result"].reason == "[LookupError] no money -1"
    assert sent[1][1]["result"].value == 1


@on_each_store
def test_dead_jobs_are_kept_while_others_are_removed(queue, dead):
    done = queue.enqueue(Pay(customer=1))
    queue.drain(ahead=queue.keep + 60)
    queue.drain()

    assert dead.refresh().state is DEAD
    assert queue.get(done.id) is None


@on_each_store
def test_dead_jobs_are_found_by_error_inputs_and_time(queue, instant):
    class OutOfStock(Exception):
        pass

    class Ship(Task[None], name="queue.ship"):
        def work(self):
            raise OutOfStock

    first = queue.enqueue(Pay(customer=-1), retry=ONCE)
    second = queue.enqueue(Pay(customer=-2), retry=ONCE)
    queue.drain()
    instant.advance(60)
    third = queue.enqueue(Ship(), retry=ONCE)
    queue.drain()

    def found(**filters):
        return [job.id for job in queue.find(state="dead", **filters)]

    assert found(error=LookupError) == [first.id, second.id]
    assert found(error=OutOfStock) == found(error="OutOfStock") == [third.id]
    assert found(error="Stock") == found(error="outofstock") == []
    assert found(task=Pay, inputs={"customer": -2}) == [second.id]
    assert found(since=instant.time()) == [third.id]
    assert found(until=instant.time()) == [first.id, second.id]


# -- every way to end without a result -------------------------------------------------


def test_the_error_of_a_job_is_the_one_that_made_it_fail(queue):
    class Step(Task[None], name="dead.step"):
        def work(self):
            raise ConnectionError("down")

    class Flow(Workflow[None], name="dead.flow"):
        steps = (Step,)

    class Pass(Task[None], name="dead.pass"):
        def work(self):
            self.throw(Step.execute())

    jobs = [queue.enqueue(Flow()), queue.enqueue(Pass(), retry=RetryOptions(1))]
    queue.drain()
    found = queue.find(error=ConnectionError)
    assert [job.id for job in found] == [job.id for job in jobs]


def test_delayed_jobs_that_are_replayed_are_no_pile(queue, caplog):
    class Fail(Task[None], name="dead.late"):
        def work(self):
            raise OSError

    for number in range(12):
        queue.enqueue(Fail(), after=1 + 100 * number, retry=RetryOptions(1))
    queue.drain(ahead=2000)
    queue.replay_all(everything=True)
    queue.drain()
    assert "are due at once" not in caplog.text


@on_each_store
def test_a_job_that_ends_its_process_three_times_is_dead(queue):
    job = queue.enqueue(Exits())
    after = queue.enqueue(Pay(customer=1))
    with collected(job_died) as sent:
        assert queue.drain() == 4

    assert (job.refresh().state, job.crashes) == (DEAD, 3)
    assert after.refresh().state is DONE
    assert isinstance(job.result.cause, JobCrashed)
    assert "3 times in a row, the last time by SystemExit: 1" in job.reason
    assert sent[0][1]["job"].id == job.id
    assert queue.find(error=JobCrashed)[0].id == job.id
    with pytest.raises(JobCrashed):  # there is no error of the task
        job.result.or_raise()


@on_each_store
def test_what_may_not_run_twice_is_indeterminate_when_its_process_ends(queue):
    job = queue.enqueue(ChargeOnce())

    assert queue.drain(ahead=LEASE + 1) == 1
    assert job.refresh().state is DEAD
    assert job.result.indeterminate
    assert isinstance(job.result.cause, JobIndeterminate)
    assert queue.find(error="JobIndeterminate")[0].id == job.id
    with pytest.raises(JobIndeterminate):
        job.result.or_raise()


@on_each_store
def test_inputs_that_are_not_json_are_dead_at_once(queue):
    broken = queue.enqueue(Pay(customer=1))
    edit(broken, inputs="{")
    after = queue.enqueue(Pay(customer=2))

    assert queue.drain() == 2
    assert (broken.refresh().state, after.refresh().state) == (DEAD, DONE)
    assert isinstance(broken.result.cause, JobUnreadable)
    assert "its inputs are not JSON" in broken.reason
    with pytest.raises(JobUnreadable, match="its inputs are not JSON"):
        broken.result.or_raise()


@on_each_store
def test_r_000_29_a_class_that_is_gone_is_waited_for_for_an_hour(queue, instant):
    job = queue.enqueue(Pay(customer=1))
    other = queue.enqueue(Exits())
    queue.cancel(other.id)
    pay = named_tasks.pop("dead.pay")

    assert queue.drain() == 1
    assert job.refresh().state is READY
    assert job.due_at == job.created_at + 30
    instant.advance(3500)
    queue.drain()
    assert job.refresh().state is READY
    queue.drain(ahead=120)

    assert job.refresh().state is DEAD
    assert isinstance(job.result.cause, JobUnreadable)
    assert "no class has this name" in job.reason
    with collected(job_enqueued) as sent:
        queue.replay(job.id)
    assert sent[0][1]["sender"] == "dead.pay"  # the class is gone
    named_tasks["dead.pay"] = pay
    queue.drain()
    assert job.wait(5).value == 1


def test_r_000_29_a_class_that_comes_back_runs_the_job(queue):
    job = queue.enqueue(Pay(customer=1))
    pay = named_tasks.pop("dead.pay")
    queue.drain(ahead=100)
    named_tasks["dead.pay"] = pay

    queue.drain(ahead=30)

    assert job.refresh().result.value == 1


@pytest.mark.parametrize("store", ["memory", "file"], indirect=True)
def test_a_row_that_somebody_edited_is_dead_and_stops_nobody(queue):
    broken, fine = (queue.enqueue(Pay(customer=1)) for _ in range(2))
    edit(broken, crashes="many")

    queue.drain()

    assert fine.refresh().state is DONE
    assert broken.refresh().state is DEAD
    assert isinstance(broken.result.cause, JobUnreadable)


@on_each_store
def test_a_cancelled_job_has_a_failed_result(queue):
    job = queue.enqueue(Pay(customer=1))
    queue.cancel(job.id)

    assert job.refresh().state is CANCELLED
    assert job.result.failed
    assert isinstance(job.result.cause, JobCancelled)
    assert job.result.stopped is Stop.CANCELLED
    with pytest.raises(JobCancelled):
        job.result.or_raise()


def test_what_was_cancelled_between_two_legs_keeps_its_attempts(queue):
    undone = []

    @retry_on(ConnectionError, delay=5.0)
    class Flaky(Task[None], name="queue.flaky"):
        def work(self):
            raise ConnectionError("busy")

        def rollback(self):
            undone.append(1)

    job = queue.enqueue(Flaky())
    queue.drain()
    with collected(job_cancelled) as sent:
        assert queue.cancel(job.id)

    assert [attempt.error.message for attempt in job.refresh().attempts] == ["busy"]
    assert [name for name, _ in sent] == ["job_cancelled"]
    assert undone == []


# -- replaying -------------------------------------------------------------------------


@on_each_store
def test_a_replayed_job_starts_anew(queue, dead, rich, call):
    assert dead.progress is not None
    rich()
    with collected(job_enqueued) as sent:
        again = call(queue, "replay", dead.id)

    assert [payload["job"].id for _, payload in sent] == [dead.id]
    assert (again.id, again.state, again.result) == (dead.id, READY, None)
    assert (again.attempts, again.retries, again.crashes) == ((), 0, 0)
    assert again.progress is None
    queue.drain()
    assert dead.refresh().result.value == -1


def test_r_000_41_a_replayed_job_has_all_its_attempts_again(queue):
    job = queue.enqueue(Pay(customer=-1), retry=RetryOptions(3, 2.0, 4.0))
    queue.drain(ahead=60)
    run_id = job.refresh().result.run_id
    queue.replay(job.id)
    queue.drain(ahead=60)

    assert (job.refresh().state, job.retries) == (DEAD, 2)
    assert job.result.run_id != run_id


@pytest.mark.parametrize("state", ["done", "cancelled"])
def test_any_job_that_has_ended_can_be_replayed(queue, state):
    job = queue.enqueue(Pay(customer=1))
    if state == "cancelled":
        queue.cancel(job.id)
    queue.drain()
    assert job.refresh().state == state

    queue.replay(job.id)
    assert queue.drain() == 1


def test_a_job_that_has_not_ended_is_returned_as_it_is(queue):
    job = queue.enqueue(Pay(customer=1), after=60)
    with collected(job_enqueued) as sent:
        again = queue.replay(job.id)

    assert (again.id, again.due_at, sent) == (job.id, job.due_at, [])


def test_a_job_that_is_not_there_cannot_be_replayed(queue, call):
    with pytest.raises(JobGone, match="nobody"):
        call(queue, "replay", "nobody")


@on_each_store
def test_a_job_of_another_queue_is_not_replayed_but_found(queue, call):
    mails = Queue(queue.store, "mails")
    job = mails.enqueue(Pay(customer=1))
    mails.cancel(job.id)

    with pytest.raises(JobGone, match=r"is in another queue, 'mails'\. Use that one"):
        call(queue, "replay", job.id)

    assert job.refresh().state is CANCELLED
    assert call(mails, "replay", job.id).state is READY


@on_each_store
def test_dead_jobs_are_replayed_together(queue, instant, rich, call):
    for customer in (-1, -2, -2):
        queue.enqueue(Pay(customer=customer), retry=ONCE)
    done = queue.enqueue(Pay(customer=1))
    queue.drain()
    rich()

    assert call(queue, "replay_all", task=Pay, inputs={"customer": -2}) == 2
    assert (queue.counts()[READY], queue.counts()[DEAD]) == (2, 1)
    queue.drain()
    assert call(queue, "replay_all", error=LookupError, until=instant.time() + 1) == 1
    assert call(queue, "replay_all", everything=True) == 0
    assert done.refresh().state is DONE  # dead ones only, unless a state is given
    assert call(queue, "replay_all", state="done") == 3


# -- what concerns many jobs -----------------------------------------------------------


@pytest.mark.parametrize("name", ["cancel_all", "replay_all"])
@pytest.mark.parametrize("filters", [{}, {"task": None, "state": None}])
def test_all_jobs_are_changed_only_if_that_is_said(queue, dead, name, filters, call):
    job = queue.enqueue(Pay(customer=1))

    with pytest.raises(DefinitionError, match=f"{name} needs a filter, or everything"):
        call(queue, name, **filters)

    assert (job.refresh().state, dead.refresh().state) == (READY, DEAD)


@pytest.mark.parametrize("name", ["cancel_all", "replay_all"])
def test_filters_of_many_jobs_are_those_of_find(queue, name):
    with pytest.raises(DefinitionError, match="inputs= can be looked for only"):
        getattr(queue, name)(inputs={"customer": 1})
    with pytest.raises(DefinitionError, match=f"{name} has no option 'customer'"):
        getattr(queue, name)(customer=1)
    one = name.removesuffix("_all")
    with pytest.raises(DefinitionError, match=rf"no option 'id'; use `{one}\(id\)`"):
        getattr(queue, name)(id="mine")


@on_each_store
def test_r_000_31_jobs_are_cancelled_by_task_or_all_of_them(queue, dead, call):
    jobs = [queue.enqueue(Pay(customer=number)) for number in range(3)]
    other = queue.enqueue(Exits())
    with collected(job_cancelled) as sent:
        assert call(queue, "cancel_all", task=Pay) == 3
        assert call(queue, "cancel_all", everything=True) == 1
        assert call(queue, "cancel_all", everything=True) == 0

    told = [payload["job"].id for _, payload in sent]
    assert told == [job.id for job in (*jobs, other)]
    assert dead.refresh().state is DEAD
    assert queue.drain() == 0


@on_each_store
def test_r_000_43_cancelling_tells_whether_there_was_something_to_cancel(queue, call):
    job = queue.enqueue(Pay(customer=1))
    with collected(job_cancelled) as sent:
        assert call(queue, "cancel", "nobody") is False
        assert call(queue, "cancel", job.id) is True
        assert call(queue, "cancel", job.id) is False

    assert [payload["sender"] for _, payload in sent] == [Pay]
    assert queue.drain() == 0


@on_each_store
def test_ended_jobs_are_pruned_by_state_and_time(queue, dead, instant, call):
    instant.advance(10)
    later = queue.enqueue(Pay(customer=-1), retry=ONCE)
    done = queue.enqueue(Pay(customer=1))
    queue.drain()
    moment = instant.time()

    assert call(queue, "prune", "dead", moment) == 1
    assert (queue.get(dead.id), later.refresh().state) == (None, DEAD)
    assert call(queue, "prune", JobState.DEAD, moment + 1) == 1
    assert call(queue, "prune", "cancelled", moment + 1) == 0
    assert done.refresh().state is DONE


@pytest.mark.parametrize("state", ["ready", "held", "running", "lost", None])
def test_only_what_has_ended_is_pruned(queue, state):
    with pytest.raises(DefinitionError, match="state is done, dead or cancelled"):
        queue.prune(state, 1e12)


def test_a_state_that_is_not_pruned_is_answered_with_the_right_one(queue):
    with pytest.raises(DefinitionError, match=r"got 'failed'; a job that .* is 'dead'"):
        queue.prune("failed", 1e12)


# -- the quirks of the seed ------------------------------------------------------------


@on_each_store
def test_r_000_33_jobs_of_the_same_moment_run_in_their_order(queue):
    ran = []

    class Note(Task[None], name="queue.note"):
        number: int

        def work(self):
            ran.append(self.number)

    jobs = [queue.enqueue(Note(number=number)) for number in range(20)]
    assert len({job.created_at for job in jobs}) == 1

    queue.drain()

    assert ran == list(range(20))


@on_each_store
def test_r_000_33_a_job_that_is_cancelled_meanwhile_does_not_run(queue):
    ran = []

    class First(Task[None], name="queue.first"):
        def work(self):
            in_thread(lambda: queue.cancel(second.id)).result(30)

    class Second(Task[None], name="queue.second"):
        def work(self):
            ran.append(1)

    queue.enqueue(First())
    second = queue.enqueue(Second())

    assert queue.drain() == 1
    assert (ran, second.refresh().state) == ([], CANCELLED)


@on_each_store
def test_r_000_33_broken_data_stops_nobody_and_does_not_stay(queue):
    jobs = [queue.enqueue(Pay(customer=number)) for number in range(3)]
    edit(jobs[1], inputs="not JSON")

    queue.drain()

    assert [job.refresh().state for job in jobs] == [DONE, DEAD, DONE]


@on_each_server
def test_r_000_33_stored_jobs_run_after_a_restart(store, queue):
    job = queue.enqueue(Pay(customer=1))
    if isinstance(store, SqliteStore):
        store.close()
        store = SqliteStore(store.name)

    again = Queue(store)

    assert again.drain() == 1
    assert again.get(job.id).state is DONE


# -- what a restart interrupts ---------------------------------------------------------


@on_each_store
def test_r_000_41_what_a_restart_interrupts_is_kept_and_runs_again(queue, instant):
    @retry_on(ConnectionError, delay=5.0)
    class Flaky(Task[str], name="queue.flaky"):
        def work(self):
            if self.attempt == 0:
                raise ConnectionError("busy")
            return self.run_id

    job = queue.enqueue(Flaky())
    queue.drain(ahead=0)
    instant.advance(5)
    lost = Claims(queue)
    drive(lost.register(awaits=False))
    assert len(lost.do_round((), Demand(1)).claimed) == 1  # and its process dies

    assert queue.drain(ahead=LEASE - 1) == 0
    assert job.refresh().state is RUNNING
    queue.drain(ahead=1)
    queue.drain()
    assert job.refresh().state is DONE
    assert len(job.attempts) == 2  # it went on where the last leg had stopped
    assert job.attempts[0].error.message == "busy"


def test_draining_ahead_runs_what_a_dead_worker_had(queue):
    job = queue.enqueue(Pay(customer=1))
    lost = Claims(queue)
    drive(lost.register(awaits=False))
    lost.do_round((), Demand(1))

    queue.drain(ahead=LEASE + 1)

    assert job.refresh().state is DONE


@on_each_store
def test_a_worker_that_lost_its_lease_changes_nothing(queue, instant):
    from cmdx.queue.report import End
    from cmdx.queue.table import end_cancelled

    job = queue.enqueue(Pay(customer=1))
    late = Claims(queue)
    drive(late.register(awaits=False))
    (record,) = late.do_round((), Demand(1)).claimed
    instant.advance(LEASE)
    queue.drain()
    assert job.refresh().state is DONE

    late.do_round([End(record, end_cancelled)])

    assert job.refresh().state is DONE
    assert column(job, "owner") is None
