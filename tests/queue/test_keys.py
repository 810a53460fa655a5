"""Jobs with a key: one after the other, in their order, and nobody else waits."""

from __future__ import annotations

from functools import partial

import pytest
from queues import PATIENCE, column, in_thread, on_each_store, other_connection

from cmdx import DefinitionError, RetryOptions, Task, retry_on
from cmdx.queue import JobState, Queue, job_started, queued

READY, HELD, RUNNING, DONE, DEAD, CANCELLED = JobState

ONCE = RetryOptions(max_attempts=1)


class Flow(Task[None], name="keys.flow"):
    """Notes down that it ran; a text with an exclamation mark fails."""

    ran = []  # noqa: RUF012 -- of all of them
    text: str

    def work(self):
        self.ran.append(self.text)
        if self.text.endswith("!"):
            raise ValueError(self.text)


@pytest.fixture
def ran():
    Flow.ran.clear()
    return Flow.ran


def put(queue, *texts, key="k", **options):
    """Enqueue jobs of one key; return them."""
    return [queue.enqueue(Flow(text=text), key=key, **options) for text in texts]


def states(jobs):
    return [job.refresh().state for job in jobs]


# -- order -----------------------------------------------------------------------------


@on_each_store
def test_jobs_of_a_key_run_in_the_order_they_were_enqueued(queue, ran):
    put(queue, *"abc")
    queue.enqueue_many([Flow(text="without")])
    put(queue, *"de")

    assert queue.drain() == 6
    assert [text for text in ran if text != "without"] == [*"abcde"]


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("rounds", "order"), [(0, ["first", "second"]), (1, ["second", "first"])]
)
def test_a_worker_gives_places_to_the_jobs_of_a_key_that_it_finds(
    store, queue, ran, rounds, order
):
    with other_connection(store) as one, other_connection(store) as another:
        queue.enqueue(Flow(text="first"), key="k", within=one)
        queue.enqueue(Flow(text="second"), key="k", within=another)
        another.commit()
        for _ in range(rounds):
            queue.drain()
        one.commit()

    queue.drain()

    assert ran == order


@on_each_store
def test_the_first_of_a_key_is_ready_and_the_others_are_held(queue):
    jobs = put(queue, *"abc")
    assert states(jobs) == [HELD, HELD, HELD]  # until a worker has seen them

    queue.pause()
    queue.drain()

    assert states(jobs) == [READY, HELD, HELD]


@on_each_store
def test_two_jobs_of_a_key_never_run_at_once(queue):
    counts = []

    class Watch(Task[None], name="queue.watch"):
        number: int

        def work(self):
            if self.number == 0:
                # Somebody else claims whatever can be claimed meanwhile.
                in_thread(queue.drain).result(PATIENCE)
            counts.append((self.number, queue.counts()[RUNNING]))

    queue.enqueue(Watch(number=0), key="k")
    for number in (1, 2):
        queue.enqueue(Watch(number=number), key="k")
    queue.enqueue(Watch(number=7))

    queue.drain()

    # The one without a key ran beside the first; those of the key after it.
    assert counts == [(7, 2), (0, 1), (1, 1), (2, 1)]


@on_each_store
def test_the_database_holds_the_rule_whatever_the_code_does(store, queue):
    first, second = put(queue, "a", "b")
    queue.pause()
    queue.drain()
    sql = "update cmdx_job set state = 'running' where id = :id"

    with pytest.raises(Exception, match=r"(?i)unique"):
        store.transact(lambda statements: statements.execute(sql, id=second.id))

    assert states([first, second]) == [READY, HELD]


@on_each_store
def test_priority_does_not_count_among_jobs_with_a_key(queue, ran):
    put(queue, "a", priority=8)
    put(queue, "b", priority=9)
    put(queue, "low", key=None, priority=-1)
    put(queue, "high", key=None, priority=1)

    queue.drain()

    assert ran == ["high", "a", "b", "low"]  # a key is as good as priority 0


def test_a_later_job_of_a_key_keeps_the_next_one_waiting(queue, ran):
    put(queue, "a", after=10)
    put(queue, "b")

    assert queue.drain(ahead=9) == 0
    assert queue.drain(ahead=1) == 2
    assert ran == ["a", "b"]


def test_keys_do_not_wait_for_each_other(queue, ran):
    put(queue, "a", after=10)
    put(queue, "b", key="other")

    queue.drain()

    assert ran == ["b"]


def test_the_same_key_in_another_queue_is_another_key(store, queue, ran):
    put(queue, "a", after=10)
    put(Queue(store, "other"), "b")

    Queue(store, "other").drain()

    assert ran == ["b"]


# -- retries and ends ------------------------------------------------------------------


@on_each_store
def test_a_job_that_waits_for_its_retry_blocks_its_key_and_nobody_else(queue):
    ran = []

    @retry_on(ConnectionError, delay=10.0)
    class Flaky(Task[None], name="queue.flaky"):
        def work(self):
            ran.append(f"flaky {self.attempt}")
            if self.attempt == 0:
                raise ConnectionError

    class Fine(Task[None], name="queue.fine"):
        text: str

        def work(self):
            ran.append(self.text)

    head = queue.enqueue(Flaky(), key="k")
    behind = queue.enqueue(Fine(text="behind"), key="k")
    queue.enqueue(Fine(text="other key"), key="l")
    queue.enqueue(Fine(text="no key"))

    queue.drain(ahead=5)
    assert set(ran) == {"flaky 0", "other key", "no key"}
    assert states([head, behind]) == [READY, HELD]

    queue.drain(ahead=5)
    assert ran[3:] == ["flaky 1", "behind"]


@on_each_store
def test_a_dead_job_lets_the_next_go(queue, ran):
    jobs = put(queue, "a!", "b!", "c", retry=ONCE)

    queue.drain()

    assert ran == ["a!", "b!", "c"]
    assert states(jobs) == [DEAD, DEAD, DONE]


@on_each_store
def test_a_replayed_job_goes_to_the_end_of_its_key(queue, ran):
    (dead,) = put(queue, "a!", retry=ONCE)
    queue.drain()
    put(queue, "b", after=5)
    queue.drain()  # it has its place
    put(queue, "c")  # it has none yet
    queue.replay(dead.id)
    put(queue, "d")

    queue.drain(ahead=5)

    assert ran == ["a!", "b", "c", "a!", "d"]


def test_jobs_that_are_replayed_one_by_one_run_in_that_order(queue, ran):
    jobs = put(queue, "a!", "b!", "c!", retry=ONCE)
    queue.drain()
    for job in reversed(jobs):
        queue.replay(job.id)
    ran.clear()

    queue.drain()

    assert ran == ["c!", "b!", "a!"]


def test_jobs_that_are_replayed_together_keep_their_order(queue, ran):
    put(queue, "a!", "b!", "c!", retry=ONCE)
    queue.drain()
    ran.clear()

    assert queue.replay_all(key="k") == 3
    queue.drain()

    assert ran == ["a!", "b!", "c!"]


@on_each_store
def test_a_cancelled_head_lets_the_next_go(queue, ran, call):
    head, second, third = jobs = put(queue, *"abc", after=5)
    queue.drain()
    assert states(jobs) == [READY, HELD, HELD]

    assert call(queue, "cancel", head.id) is True

    assert states(jobs) == [CANCELLED, READY, HELD]
    queue.drain(ahead=5)
    assert ran == ["b", "c"]
    assert states([second, third]) == [DONE, DONE]


@on_each_store
def test_a_cancelled_job_that_was_held_leaves_its_place(queue, ran):
    first, second, third = jobs = put(queue, *"abc", after=5)
    queue.drain()

    assert queue.cancel(second.id) is True

    assert states(jobs) == [READY, CANCELLED, HELD]
    queue.drain(ahead=5)
    assert ran == ["a", "c"]
    assert states([first, third]) == [DONE, DONE]


def test_a_job_is_cancelled_before_it_has_its_place(queue, ran):
    first, second = put(queue, "a", "b")

    assert queue.cancel(first.id)

    queue.drain()
    assert ran == ["b"]
    assert states([first, second]) == [CANCELLED, DONE]


@on_each_store
def test_all_jobs_of_a_key_are_cancelled_together(queue, ran):
    jobs = put(queue, *"abc", after=5)
    queue.drain()
    put(queue, "other", key="l", after=5)

    assert queue.cancel_all(key="k") == 3

    assert states(jobs) == [CANCELLED] * 3
    queue.drain(ahead=5)
    assert ran == ["other"]


def test_a_pruned_job_does_not_stop_its_key(queue, instant, ran):
    put(queue, "a!", retry=ONCE)
    queue.drain()
    instant.advance(1)
    assert queue.prune("dead", instant.time()) == 1
    put(queue, "b")

    queue.drain()

    assert ran == ["a!", "b"]


# -- strict ----------------------------------------------------------------------------


@on_each_store
def test_r_000_26_a_strict_queue_runs_one_after_the_other(store, queue, ran):
    del queue  # its clock
    queue = Queue(store, strict=True)
    put(queue, "a", priority=-1)
    put(queue, "b", key="other", priority=9)
    put(queue, "c", key=None)
    queue.enqueue_many([Flow(text="d")], priority=9)

    queue.drain()

    assert ran == [*"abcd"]


def test_r_000_26_the_retries_of_a_strict_queue_delay_all_others(store, instant):
    ran = []

    class Step(Task[None], name="queue.step"):
        number: int

        def work(self):
            ran.append((self.number, instant.slept))
            if self.number == 0 and self.attempt < 2:
                raise ConnectionError

    queue = Queue(store, strict=True, retry=RetryOptions(3, 2.0, 4.0))
    for number in range(2):
        queue.enqueue(Step(number=number))

    queue.drain(ahead=60)

    assert ran == [(0, 0), (0, 2), (0, 4), (1, 4)]


def test_r_000_26_what_is_added_while_it_runs_is_run_as_well(store, instant):
    ran = []

    class Step(Task[None], name="queue.step"):
        number: int

        def work(self):
            ran.append(self.number)
            if self.number < 3:
                queue.enqueue(Step(number=self.number + 1))

    queue = Queue(store, strict=True)
    queue.enqueue(Step(number=0))

    assert queue.drain() == 4
    assert ran == [0, 1, 2, 3]
    assert instant.pauses == []


# -- many ------------------------------------------------------------------------------


@queued(key="k")
class Keyed(Task[None], log=False):
    ran = []  # noqa: RUF012 -- of all of them
    number: int

    def work(self):
        self.ran.append(self.number)


def steps_of(store, run):
    """Return how many steps SQLite does for *run*, in hundreds."""
    steps = []
    store._connection.set_progress_handler(lambda: steps.append(1), 100)
    run()
    store._connection.set_progress_handler(None, 0)
    return len(steps)


def new_keyed_queue(store, count):
    """Return a queue with so many jobs of one key, which have their places."""
    Keyed.ran.clear()
    queue = Queue(store, f"queue of {count}", keep=1e6)
    queue.enqueue_many(Keyed(number=number) for number in range(count))
    queue.pause()
    for _ in range(0, count, 1000):
        queue.drain()
    queue.resume()
    return queue


@pytest.mark.usefixtures("instant")
def test_many_jobs_of_a_key_drain_in_order(store):
    queue = new_keyed_queue(store, 2000)

    assert queue.drain() == 2000
    assert Keyed.ran == list(range(2000))


@pytest.mark.usefixtures("instant")
def test_a_job_of_a_key_takes_as_much_work_however_many_wait_behind_it(store):
    def run_some(queue):
        def stop(_sender, job):
            if job.inputs["number"] == 199:
                queue.pause()

        with job_started.connected_to(stop):
            assert queue.drain() == 200
        assert Keyed.ran == list(range(200))

    few, many = (
        steps_of(store, partial(run_some, new_keyed_queue(store, count)))
        for count in (400, 10_000)
    )

    assert many < few * 1.5
    waiting = Queue(store, "queue of 10000").counts()
    assert (waiting[READY], waiting[HELD]) == (1, 9799)


def test_places_are_given_in_order_over_several_rounds(queue, monkeypatch, ran):
    monkeypatch.setattr("cmdx.queue.upkeep.MOST_ARRIVALS", 3)
    jobs = put(queue, *"abcdefgh")

    queue.drain()

    assert ran == [*"abcdefgh"]
    assert [column(job, "position") for job in jobs] == list(range(1, 9))


def test_a_replay_goes_behind_more_jobs_than_get_their_places_at_once(
    queue, monkeypatch, ran
):
    (dead,) = put(queue, "a!", retry=ONCE)
    queue.drain()
    monkeypatch.setattr("cmdx.queue.upkeep.MOST_ARRIVALS", 3)
    put(queue, *"bcdefgh")
    queue.replay(dead.id)

    queue.drain()

    assert ran == ["a!", *"bcdefgh", "a!"]


@pytest.mark.parametrize("key", ["courier/a/b", "courier-overtaking/a/b", "courier/"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_key_of_deliveries_is_refused(store, key, strict):
    queue = Queue(store, "reserved", strict=strict)
    with pytest.raises(DefinitionError, match=r"enqueue: key must not begin with 'cou"):
        queue.enqueue(Flow(text="a"), key=key)
    with pytest.raises(DefinitionError, match=r"queued: key must not begin .* Choose"):
        queued(key=key)
    assert queue.find() == []


def test_a_key_that_a_task_computes_is_refused_if_deliveries_have_it(queue):
    @queued(key=lambda _: "courier/a/b")
    class Keyed(Task[None], name="keys.reserved"):
        def work(self): ...

    with pytest.raises(DefinitionError, match="for the events of couriers"):
        queue.enqueue(Keyed())


@pytest.mark.parametrize("key", ["courier", "courier-a", "couriers/a", "a/courier/"])
def test_a_key_may_look_like_that_of_a_delivery(queue, key):
    assert queue.enqueue(Flow(text="a"), key=key).key == key
