"""``unique=`` and ``id=``: which job is returned instead of a second one."""

from __future__ import annotations

from threading import Barrier

import pytest
from queues import (
    PATIENCE,
    collected,
    edit,
    in_thread,
    on_each_store,
    postgres_store,
)

from cmdx import RetryOptions, Task
from cmdx.queue import JobConflict, JobState, Queue, job_enqueued, table
from cmdx.queue.claims import Claims
from cmdx.queue.legs import Leg
from cmdx.queue.report import Demand

READY, HELD, RUNNING, DONE, DEAD, CANCELLED = JobState

ONCE = RetryOptions(max_attempts=1)


class Sync(Task[None], name="unique.sync"):
    number: int = 0

    def work(self):
        if self.number < 0:
            raise ValueError(self.number)


class Other(Task[None], name="unique.other"):
    number: int = 0

    def work(self):
        pass


@pytest.fixture
def during(queue):
    """Call something while a job of the class ``During`` runs."""
    calls = []

    class During(Task[None], name="queue.during"):
        def work(self):
            calls.pop()()

    def make(call):
        calls.append(call)
        return During()

    yield make
    assert calls == []
    del queue


def count(queue):
    return sum(queue.counts().values())


# -- unique ----------------------------------------------------------------------------


@on_each_store
def test_a_job_that_has_the_text_is_returned(queue, call):
    first = call(queue, "enqueue", Sync(number=1), unique="x")

    second = call(queue, "enqueue", Sync(number=2), unique="x", priority=7)
    other = call(queue, "enqueue", Sync(), unique="y")

    assert (second.id, second.inputs, second.priority) == (first.id, {"number": 1}, 0)
    assert other.id != first.id
    assert count(queue) == 2


def test_only_a_new_job_is_announced(queue):
    with collected(job_enqueued) as sent:
        first = queue.enqueue(Sync(), unique="x")
        queue.enqueue(Sync(), unique="x")

    assert [payload["job"].id for _, payload in sent] == [first.id]


def test_a_text_belongs_to_one_queue(store, queue):
    first = queue.enqueue(Sync(), unique="x")

    assert Queue(store, "other").enqueue(Sync(), unique="x").id != first.id


@on_each_store
@pytest.mark.parametrize("ending", ["done", "dead", "cancelled"])
def test_a_text_is_free_when_its_job_has_ended(queue, ending):
    number = -1 if ending == "dead" else 1
    first = queue.enqueue(Sync(number=number), unique="x", retry=ONCE)
    if ending == "cancelled":
        queue.cancel(first.id)
    queue.drain()
    assert first.refresh().state == ending

    assert queue.enqueue(Sync(), unique="x").id != first.id


@on_each_store
@pytest.mark.parametrize("until", ["started", "ended"])
def test_a_text_is_taken_until_the_start_or_the_end(queue, during, until):
    seen = []
    call = lambda: seen.append(queue.enqueue(Sync(), unique="x").id)
    first = queue.enqueue(during(call), unique="x", until=until)
    assert queue.enqueue(Sync(), unique="x").id == first.id

    queue.drain()

    assert (seen == [first.id]) == (until == "ended")


@on_each_store
def test_a_job_that_was_claimed_and_not_started_has_its_text_again(queue):
    first = queue.enqueue(Sync(), unique="x", until="started")
    claims = Claims(queue)
    (record,) = claims.do_round((), Demand(1)).claimed
    claims.do_round([Leg(queue, record).end(table.give_back_unstarted)])

    assert queue.enqueue(Sync(), unique="x").id == first.id


@on_each_store
def test_a_job_that_was_not_started_leaves_its_text_to_who_has_it_now(queue):
    first = queue.enqueue(Sync(), unique="x", until="started")
    claims = Claims(queue)
    (record,) = claims.do_round((), Demand(1)).claimed
    second = queue.enqueue(Sync(), unique="x", until="started")
    claims.do_round([Leg(queue, record).end(table.give_back_unstarted)])

    assert second.id != first.id
    assert queue.enqueue(Sync(), unique="x").id == second.id
    assert queue.drain() == 2


@on_each_store
def test_a_job_that_waits_for_its_retry_keeps_its_text(queue):
    first = queue.enqueue(Sync(number=-1), unique="x", retry=RetryOptions(2, 5.0, 20.0))
    queue.drain()
    assert first.refresh().retries == 0
    assert first.attempts != ()

    assert queue.enqueue(Sync(), unique="x").id == first.id


@on_each_store
def test_a_text_is_taken_for_seconds_from_the_creation(queue, instant):
    first = queue.enqueue(Sync(), unique="x", until=10)
    queue.drain()
    assert first.refresh().state is DONE
    assert queue.enqueue(Sync(), unique="x").id == first.id  # though it has ended

    instant.advance(9.5)
    assert queue.enqueue(Sync(), unique="x").id == first.id
    instant.advance(0.5)
    second = queue.enqueue(Sync(), unique="x", until=10)

    assert second.id != first.id
    assert queue.enqueue(Sync(), unique="x").id == second.id


@on_each_store
def test_a_job_is_kept_as_long_as_its_text_is_taken(queue, instant):
    first = queue.enqueue(Sync(), unique="x", until=86_400)
    queue.drain()
    instant.advance(queue.keep + 100)
    queue.drain()
    assert queue.enqueue(Sync(), unique="x").id == first.id

    instant.advance(86_400)
    queue.drain()
    assert queue.get(first.id) is None


@on_each_store
def test_a_text_is_free_after_its_seconds_though_its_job_has_not_ended(queue, instant):
    first = queue.enqueue(Sync(), after=60, unique="x", until=10)
    instant.advance(10)
    second = queue.enqueue(Sync(), after=60, unique="x")

    assert second.id != first.id
    queue.drain(ahead=60)
    assert (first.refresh().state, second.refresh().state) == (DONE, DONE)


@on_each_store
def test_a_job_that_runs_longer_than_its_seconds_ends_all_the_same(
    queue, during, instant
):
    def take_text():
        instant.advance(10)
        queue.enqueue(Sync(), unique="x")

    first = queue.enqueue(during(take_text), unique="x", until=10)

    queue.drain()

    assert first.refresh().state is DONE


@on_each_store
def test_threads_that_enqueue_the_same_text_get_one_job(queue):
    barrier = Barrier(4)

    def enqueue(number):
        barrier.wait(PATIENCE)
        return queue.enqueue(Sync(number=number), unique="x").id

    for _ in range(5):
        futures = [in_thread(lambda n=number: enqueue(n)) for number in range(4)]
        assert len({future.result(PATIENCE) for future in futures}) == 1
    assert count(queue) == 1


# -- ids -------------------------------------------------------------------------------


@on_each_store
def test_an_id_again_returns_the_job(queue, call):
    first = call(queue, "enqueue", Sync(number=1), id="a")
    again = call(queue, "enqueue", Sync(number="1"), id="a", after=60, priority=9)

    assert (first.id, again.id) == ("a", "a")
    assert (again.priority, count(queue)) == (0, 1)
    queue.drain()
    assert call(queue, "enqueue", Sync(number=1), id="a").state is DONE


def test_a_default_that_is_given_makes_no_other_job(queue):
    queue.enqueue(Sync(), id="a")

    assert queue.enqueue(Sync(number=0), id="a").inputs == {}
    assert count(queue) == 1


def test_an_id_whose_job_somebody_broke_is_a_conflict(queue):
    edit(queue.enqueue(Sync(number=1), id="a"), inputs="{")

    with pytest.raises(JobConflict):
        queue.enqueue(Sync(number=1), id="a")


def test_the_id_of_a_job_of_a_schedule_is_taken_as_well(queue):
    queue.schedule(Sync(number=1), every=60)
    queue.drain(ahead=60)
    (job,) = queue.find(state="done")

    assert queue.enqueue(Sync(number=1), id=job.id).state is DONE
    with pytest.raises(JobConflict):
        queue.enqueue(Sync(number=2), id=job.id)


@on_each_store
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Sync(number=2), r"'a' was enqueued with other inputs of unique\.sync"),
        (lambda: Other(number=1), r"'a' was enqueued for unique\.sync"),
    ],
)
def test_an_id_with_another_fingerprint_is_a_conflict(queue, other, message, call):
    queue.enqueue(Sync(number=1), id="a")

    with pytest.raises(JobConflict, match=message):
        call(queue, "enqueue", other(), id="a")

    assert count(queue) == 1
    assert queue.get("a").inputs == {"number": 1}


def test_an_id_belongs_to_all_queues(store, queue):
    queue.enqueue(Sync(number=1), id="a")

    with pytest.raises(JobConflict):
        Queue(store, "other").enqueue(Sync(number=1), id="a")


def test_a_conflict_with_another_queue_names_it(store, queue):
    queue.enqueue(Sync(), id="a")
    with pytest.raises(JobConflict, match="was enqueued in the queue 'default'"):
        Queue(store, "other").enqueue(Sync(), id="a")


def test_an_id_is_free_again_when_its_job_is_removed(queue):
    queue.enqueue(Sync(number=1), id="a")
    queue.drain()
    queue.prune("done", 1e12)

    assert queue.enqueue(Sync(number=2), id="a").state is READY


@on_each_store
@pytest.mark.parametrize("state", ["done", "cancelled"])
def test_an_id_is_free_as_soon_as_its_job_was_kept_long_enough(queue, instant, state):
    first = queue.enqueue(Sync(number=1), id="a")
    if state == "cancelled":
        queue.cancel("a")
    queue.drain()
    instant.advance(queue.keep - 1)
    assert queue.enqueue(Sync(number=1), id="a").created_at == first.created_at
    with pytest.raises(JobConflict):
        queue.enqueue(Sync(number=2), id="a")

    instant.advance(1)

    assert queue.enqueue(Sync(number=2), id="a").state is READY
    assert queue.get("a").inputs == {"number": 2}


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_job_that_is_replayed_while_its_id_is_wanted_is_kept(
    store, queue, instant, monkeypatch
):
    queue.enqueue(Sync(number=1), id="a")
    queue.drain()
    instant.advance(queue.keep)
    is_past_keeping = table.is_past_keeping

    def replay_meanwhile(record, now):
        monkeypatch.undo()
        elsewhere.replay("a")
        return is_past_keeping(record, now)

    monkeypatch.setattr(table, "is_past_keeping", replay_meanwhile)
    with postgres_store(store.address) as other:
        elsewhere = Queue(other)
        with pytest.raises(JobConflict):
            queue.enqueue(Sync(number=2), id="a")

    assert (queue.get("a").state, queue.get("a").inputs) == (READY, {"number": 1})


@on_each_store
def test_the_id_is_asked_before_the_unique_text(queue):
    by_id = queue.enqueue(Sync(number=1), id="a")
    by_text = queue.enqueue(Sync(number=1), unique="x")

    both = queue.enqueue(Sync(number=1), id="a", unique="x")
    assert both.id == by_id.id
    assert queue.enqueue(Sync(number=1), id="b", unique="x").id == by_text.id
    with pytest.raises(JobConflict):
        queue.enqueue(Sync(number=2), id="a", unique="x")
    assert count(queue) == 2


@on_each_store
def test_threads_that_enqueue_the_same_id_get_one_job(queue):
    barrier = Barrier(4)

    def enqueue():
        barrier.wait(PATIENCE)
        return queue.enqueue(Sync(number=1), id="a").id

    futures = [in_thread(enqueue) for _ in range(4)]

    assert {future.result(PATIENCE) for future in futures} == {"a"}
    assert count(queue) == 1


# -- replays ---------------------------------------------------------------------------


@on_each_store
def test_a_replay_whose_text_is_taken_returns_the_holder(queue, call):
    dead = queue.enqueue(Sync(number=-1), unique="x", retry=ONCE)
    queue.drain()
    holder = queue.enqueue(Sync(number=1), unique="x")

    assert call(queue, "replay", dead.id).id == holder.id
    assert dead.refresh().state is DEAD


@on_each_store
def test_a_replayed_job_has_its_text_again(queue):
    dead = queue.enqueue(Sync(number=-1), unique="x", retry=ONCE)
    queue.drain()

    assert queue.replay(dead.id).id == dead.id
    assert queue.enqueue(Sync(), unique="x").id == dead.id


def test_of_dead_jobs_with_one_text_one_is_replayed(queue):
    for _ in range(2):
        queue.enqueue(Sync(number=-1), unique="x", retry=ONCE)
        queue.drain()

    assert queue.replay_all(everything=True) == 1
    assert (queue.counts()[READY], queue.counts()[DEAD]) == (1, 1)


@on_each_store
def test_a_text_whose_seconds_are_over_does_not_hinder_a_replay(queue, instant):
    dead = queue.enqueue(Sync(number=-1), unique="x", retry=ONCE)
    queue.drain()
    holder = queue.enqueue(Sync(), after=60, unique="x", until=10)
    instant.advance(10)

    assert queue.replay(dead.id).id == dead.id
    assert queue.enqueue(Sync(), unique="x").id == dead.id
    queue.drain(ahead=60)
    assert holder.refresh().state is DONE


def test_a_replay_after_its_seconds_has_no_text(queue, instant):
    dead = queue.enqueue(Sync(number=-1), unique="x", until=10, retry=ONCE)
    queue.drain()
    instant.advance(10)
    queue.replay(dead.id)

    assert queue.enqueue(Sync(), unique="x").id != dead.id
