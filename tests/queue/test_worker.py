"""A worker: how it runs jobs, and what is seen of them."""

# ruff: noqa: F811 -- fixtures are imported

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from threading import Barrier, Event, Lock

import pytest
from workers import (
    PATIENCE,
    Stop,
    collected,
    names,  # noqa: F401
    on_each_server,
    on_each_store,
    opened_again,
    queue,  # noqa: F401
    released,
    store,  # noqa: F401
    wait_for,
    wait_until,
)

import cmdx
from cmdx import (
    CmdxError,
    DefinitionError,
    RetryOptions,
    Task,
    clock,
    retry_on,
    task_cancelled,
    testing,
)
from cmdx.queue import (
    JobCancelled,
    JobState,
    Queue,
    current_job,
    job_cancelled,
    job_died,
    job_finished,
    job_hung,
    job_retried,
    job_started,
    legs,
    progress,
    queued,
)

# -- threads and the event loop ------------------------------------------------------


@on_each_store
def test_plain_tasks_run_in_threads_and_async_ones_in_an_event_loop(queue):
    class Plain(Task[str], name="plain"):
        def work(self):
            return threading.current_thread().name

    class Async(Task[str], name="async"):
        async def work(self):
            assert asyncio.get_running_loop().is_running()
            return threading.current_thread().name

    with queue.worker():
        plain, asynchronous = queue.enqueue(Plain()), queue.enqueue(Async())
        assert plain.wait(PATIENCE).value == "cmdx queue: thread"
        assert asynchronous.wait(PATIENCE).value == "cmdx queue: event loop"


def test_a_busy_thread_does_not_keep_async_jobs_waiting(queue):
    stop = Stop()

    class Plain(Task[None], name="plain"):
        def work(self):
            stop.wait()

    class Async(Task[int], name="async"):
        async def work(self):
            return 7

    with queue.worker(threads=1), released(stop):
        queue.enqueue(Plain())
        stop.await_reached()
        jobs = queue.enqueue_many([Async() for _ in range(20)])
        assert [job.wait(PATIENCE).value for job in jobs] == [7] * 20


def test_busy_coroutines_do_not_keep_plain_jobs_waiting(queue):
    is_running, go_on = Event(), Event()

    class Plain(Task[int], name="plain"):
        def work(self):
            return 7

    class Async(Task[None], name="async"):
        async def work(self):
            is_running.set()
            await asyncio.to_thread(go_on.wait, PATIENCE)

    with queue.worker(coroutines=1):
        waiting = queue.enqueue(Async())
        assert is_running.wait(PATIENCE)
        jobs = queue.enqueue_many([Plain() for _ in range(20)])
        assert [job.wait(PATIENCE).value for job in jobs] == [7] * 20
        go_on.set()
        assert waiting.wait(PATIENCE).success


def test_threads_bound_how_many_plain_jobs_run_at_once(queue):
    meeting, count = Barrier(2), Counter()

    class Meet(Task[None], name="meet"):
        def work(self):
            with count:
                meeting.wait(PATIENCE)

    jobs = queue.enqueue_many([Meet() for _ in range(20)])
    with queue.worker(threads=2):
        assert all(job.wait(PATIENCE).success for job in jobs)
    assert count.most == 2


def test_coroutines_bound_how_many_async_jobs_run_at_once(queue):
    count = Counter()

    class Count(Task[None], name="count"):
        async def work(self):
            with count:
                while count.most < 3:  # noqa: ASYNC110 -- others count
                    await asyncio.sleep(0.001)
                for _ in range(10):
                    await asyncio.sleep(0.001)

    jobs = queue.enqueue_many([Count() for _ in range(20)])
    with queue.worker(coroutines=3):
        assert all(job.wait(PATIENCE).success for job in jobs)
    assert count.most == 3


def test_no_more_plain_jobs_are_claimed_than_the_threads_can_run_soon(queue):
    stop = Stop()

    class Wait(Task[None], name="wait"):
        def work(self):
            stop.wait()

    jobs = queue.enqueue_many([Wait() for _ in range(40)])
    with queue.worker(threads=1), released(stop):
        stop.await_reached()
        claimed = sum(job.refresh().state == JobState.RUNNING for job in jobs)
        assert 1 <= claimed <= 10


class Counter:
    """Counts how many are inside at the same time."""

    def __init__(self):
        self.now = self.most = 0
        self.lock = Lock()

    def __enter__(self):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_error):
        with self.lock:
            self.now -= 1


# -- order ---------------------------------------------------------------------------


@on_each_store
def test_jobs_run_by_priority_then_due_time_then_sequence(queue, instant):
    order = []

    class Note(Task[None], name="note"):
        text: str

        def work(self):
            order.append(self.text)

    moment = datetime.fromtimestamp(queue.store.now() + 5, UTC)
    queue.enqueue(Note(text="late"), after=9)
    queue.enqueue(Note(text="first of two"), at=moment)
    queue.enqueue(Note(text="second of two"), at=moment)
    queue.enqueue(Note(text="soon"), after=1)
    queue.enqueue(Note(text="important"), after=8, priority=5)
    queue.enqueue(Note(text="unimportant"), priority=-1)
    instant.advance(10)
    with queue.worker(threads=1):
        wait_until(lambda: len(order) == 6)
    assert order == [
        "important",
        "soon",
        "first of two",
        "second of two",
        "late",
        "unimportant",
    ]


def test_an_end_is_seen_while_the_worker_is_busy_with_a_long_job(queue):
    stop = Stop()

    class Short(Task[int], name="short"):
        def work(self):
            return 7

    class Long(Task[None], name="long"):
        def work(self):
            stop.wait()

    short, long = queue.enqueue_many([Short(), Long()])
    with queue.worker(threads=1), released(stop):
        stop.await_reached()
        assert short.wait(PATIENCE).value == 7
        assert long.refresh().state == JobState.RUNNING


def test_a_job_behind_a_long_one_is_given_back_and_run_by_another_worker(queue):
    stop = Stop()

    class Long(Task[None], name="long"):
        def work(self):
            stop.wait()

    class Short(Task[int], name="short"):
        def work(self):
            return 7

    long, short = queue.enqueue_many([Long(), Short()])
    with queue.worker(threads=1), released(stop):
        stop.await_reached()
        assert short.refresh().state == JobState.RUNNING  # claimed, behind it
        with queue.worker(threads=1):
            assert short.wait(PATIENCE).value == 7
        assert long.refresh().state == JobState.RUNNING
    assert long.refresh().state == JobState.DONE
    assert (long.crashes, short.crashes) == (0, 0)


# -- cancelling ----------------------------------------------------------------------


@on_each_store
def test_a_running_async_job_is_cancelled_and_rolled_back(queue):
    is_running, seen = Event(), []

    class Wait(Task[None], name="wait"):
        async def work(self):
            is_running.set()
            await asyncio.Event().wait()

        def rollback(self):
            seen.append("rolled back")

    with (
        collected(task_cancelled, job_cancelled, job_died) as sent,
        queue.worker(),
    ):
        job = queue.enqueue(Wait())
        assert is_running.wait(PATIENCE)
        assert queue.cancel(job.id)
        result = job.wait(PATIENCE)
    assert job.state == JobState.CANCELLED
    assert isinstance(result.cause, JobCancelled)
    assert seen == ["rolled back"]
    assert [(name, sender) for name, sender, _ in sent] == [
        ("task_cancelled", Wait),
        ("job_cancelled", Wait),
    ]
    assert sent[-1][2]["job"].id == job.id
    assert not queue.cancel(job.id)


def test_a_running_plain_job_that_is_cancelled_has_no_time_left(queue):
    is_running, seen = Event(), []

    class Watchful(Task[None], name="watchful"):
        def work(self):
            assert cmdx.remaining() is None
            is_running.set()
            wait_until(lambda: cmdx.remaining() == 0)
            raise InterruptedError

        def rollback(self):
            seen.append("rolled back")

    with queue.worker():
        job = queue.enqueue(Watchful())
        assert is_running.wait(PATIENCE)
        assert queue.cancel(job.id)
        result = job.wait(PATIENCE)
    assert job.state == JobState.CANCELLED
    assert isinstance(result.cause, JobCancelled)
    assert seen == ["rolled back"]


def test_a_cancelled_job_that_succeeds_all_the_same_is_done(queue):
    is_running = Event()

    class Stubborn(Task[int], name="stubborn"):
        def work(self):
            is_running.set()
            wait_until(lambda: cmdx.remaining() == 0)
            return 7

    with queue.worker():
        job = queue.enqueue(Stubborn())
        assert is_running.wait(PATIENCE)
        assert queue.cancel(job.id)
        assert job.wait(PATIENCE).value == 7
    assert job.state == JobState.DONE


def test_a_job_that_is_cancelled_in_a_pause_makes_no_further_attempt(queue):
    is_paused, calls = Event(), []

    class LongPauses(clock.Clock):
        def sleep(self, _seconds):
            is_paused.set()
            wait_until(lambda: cmdx.remaining() == 0)

    @retry_on(ConnectionError, limit=3, delay=0.9)
    class FailsOnce(Task[None], name="fails.once"):
        def work(self):
            calls.append(self.attempt)
            if self.attempt == 0:
                raise ConnectionError

    with clock.use(LongPauses()), queue.worker():
        job = queue.enqueue(FailsOnce())
        assert is_paused.wait(PATIENCE)
        assert queue.cancel(job.id)
        job.wait(PATIENCE)
    assert (job.state, calls) == (JobState.CANCELLED, [0])


def test_a_cancelled_job_is_rolled_back_even_if_its_error_would_be_retried(queue):
    is_running, seen = Event(), []

    @retry_on(ConnectionError, limit=3, delay=600)
    class Retried(Task[None], name="retried"):
        def work(self):
            is_running.set()
            wait_until(lambda: cmdx.remaining() == 0)
            raise ConnectionError

        def rollback(self):
            seen.append("rolled back")

    with queue.worker():
        job = queue.enqueue(Retried())
        assert is_running.wait(PATIENCE)
        assert queue.cancel(job.id)
        job.wait(PATIENCE)
    assert job.state == JobState.CANCELLED
    assert seen == ["rolled back"]


def test_a_job_that_is_cancelled_behind_a_long_one_does_not_run(queue):
    stop, ran = Stop(), []

    class Long(Task[None], name="long"):
        def work(self):
            stop.wait()

    class Second(Task[None], name="second"):
        def work(self):
            ran.append(1)

    _, second = queue.enqueue_many([Long(), Second()])
    with queue.worker(threads=1) as worker, released(stop):
        stop.await_reached()
        assert second.refresh().state == JobState.RUNNING  # claimed, not started
        rounds = worker.rounds
        assert queue.cancel(second.id)
        wait_until(lambda: worker.rounds > rounds + 1)
        stop.go_on.set()
        wait_for(second, "cancelled")
    assert ran == []


# -- timeouts ------------------------------------------------------------------------


def test_an_async_attempt_that_takes_too_long_fails_and_is_retried(queue):
    @queued(timeout=0.05)
    class Slow(Task[str], name="slow"):
        async def work(self):
            if self.attempt == 0:
                await asyncio.Event().wait()
            return "in time"

    with collected(job_retried) as sent, queue.worker():
        job = queue.enqueue(Slow(), retry=RetryOptions(2, 0.001, 0.001))
        assert job.wait(PATIENCE).value == "in time"
    ((_, _, payload),) = sent
    assert isinstance(payload["error"], TimeoutError)
    assert "took longer than 0.05 s" in str(payload["error"])


def test_an_async_job_whose_last_attempt_takes_too_long_is_dead(queue):
    @queued(timeout=0.05)
    class Slow(Task[None], name="slow"):
        async def work(self):
            await asyncio.Event().wait()

    with queue.worker():
        job = queue.enqueue(Slow(), retry=RetryOptions(1))
        result = job.wait(PATIENCE)
    assert job.state == JobState.DEAD
    assert result.cause.type_name == "TimeoutError"


def test_a_timeout_of_the_work_itself_is_told_as_it_is(queue):
    @queued(timeout=60)
    class Slow(Task[None], name="slow"):
        async def work(self):
            raise TimeoutError("the bank does not answer")

    with queue.worker():
        result = queue.enqueue(Slow(), retry=RetryOptions(1)).wait(PATIENCE)
    assert result.reason == "[TimeoutError] the bank does not answer"


def test_a_thread_that_hangs_is_reported_once_per_attempt(queue, caplog):
    class Quick(Task[None], name="quick"):
        def work(self):
            pass

    with collected(job_hung) as sent:

        @queued(timeout=0.05)
        class Hang(Task[None], name="hang"):
            def work(self):
                wait_until(lambda: len(sent) == self.attempt + 1)
                for _ in range(3):  # a round looks at it again and again
                    queue.enqueue(Quick()).wait(PATIENCE)
                raise ConnectionError

        with queue.worker(threads=2):
            job = queue.enqueue(Hang(), retry=RetryOptions(2, 0.001, 0.001))
            job.wait(PATIENCE)
    assert [(name, sender) for name, sender, _ in sent] == [("job_hung", Hang)] * 2
    assert all(payload["job"].id == job.id for _, _, payload in sent)
    assert all(payload["seconds"] > 0.05 for _, _, payload in sent)
    assert len(caplog.messages) == 2
    assert all(
        re.fullmatch(
            rf"the job '{job.id}' of hang has been running for \d+\.\d s, longer than "
            r"its timeout of 0\.05 s, and cannot be ended: it runs in a thread\. Give "
            r"what it waits for a timeout of its own; if it hangs, restart the "
            r"worker\.",
            message,
        )
        for message in caplog.messages
    )


def test_an_event_loop_that_hangs_is_reported(queue, monkeypatch, caplog):
    monkeypatch.setattr(legs, "SLACK", 0.0)
    with collected(job_hung) as sent:

        @queued(timeout=0.05)
        class Hang(Task[str], name="hang"):
            async def work(self):
                wait_until(lambda: sent)  # without giving way to the event loop
                return "late"

        with queue.worker():
            job = queue.enqueue(Hang(), retry=RetryOptions(1))
            job.wait(PATIENCE)
    assert [name for name, _, _ in sent] == ["job_hung"]
    (message,) = caplog.messages
    assert re.fullmatch(
        rf"the job '{job.id}' of hang has been running for \d+\.\d s, longer than its "
        r"timeout of 0\.05 s, and cannot be ended: an `async def work`, this one or "
        r"another, blocks the event loop, so that no asynchronous job goes on, or this "
        r"one ignores that it was cancelled\. Await what takes long, or call it in a "
        r"thread with asyncio\.to_thread\.",
        message,
    )


# -- virtual time --------------------------------------------------------------------


def test_the_time_of_day_goes_on_for_a_worker_in_virtual_time(store):
    class Later(Task[None], name="later"):
        def work(self):
            pass

    queue = Queue(store)
    with testing.instant() as instant, queue.worker():
        job = queue.enqueue(Later(), after=0.2)
        assert job.wait(PATIENCE).success
        assert instant.slept == 0.0


# -- inside of work ------------------------------------------------------------------


def test_progress_is_seen_while_a_job_runs_and_after(queue):
    stop = Stop()

    class Export(Task[None], name="export"):
        def work(self):
            progress(1, of=3, note="reading")
            stop.wait()
            progress(2, of=3)
            progress(3, of=3, note="done")

    with queue.worker(), released(stop):
        job = queue.enqueue(Export())
        stop.await_reached()
        wait_until(lambda: job.refresh().progress == (1, 3, "reading"))
        stop.go_on.set()
        job.wait(PATIENCE)
    assert job.progress == (3, 3, "done")
    assert queue.get(job.id).progress.note == "done"


def test_progress_does_not_wait_for_the_store(queue):
    held, noted = Stop(), Event()

    class Export(Task[None], name="export"):
        async def work(self):
            await asyncio.to_thread(held.reached.wait, PATIENCE)
            progress(2, of=2)
            noted.set()

    with queue.worker(), released(held):
        job = queue.enqueue(Export())
        wait_for(job, "running")
        holder = threading.Thread(
            target=queue.store.transact, args=[lambda _: held.wait()]
        )
        holder.start()
        assert noted.wait(PATIENCE)  # while nobody can write
        held.go_on.set()
        holder.join()
        assert job.wait(PATIENCE).success
    assert job.progress == (2, 2, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("half",), "progress: done must be a finite number, got 'half'."),
        ((None,), "progress: done must be a finite number, got None."),
        ((float("nan"),), "progress: done must be a finite number, got nan."),
        ((1, "x"), "progress: of must be a finite number, got 'x'."),
        ((1, 2, 3), "progress: note must be a text, got 3."),
    ],
)
def test_progress_is_told_in_numbers_inside_of_a_job_and_outside(
    queue, arguments, message
):
    class Export(Task[None], name="export"):
        def work(self):
            progress(*arguments)

    with pytest.raises(DefinitionError, match=re.escape(message)):
        progress(*arguments)
    job = queue.enqueue(Export(), retry=RetryOptions(max_attempts=1))
    queue.drain()
    assert job.refresh().reason == f"[DefinitionError] {message}"


@pytest.mark.parametrize("number", [Decimal("0.5"), Fraction(1, 2), 0.5, -0.5])
def test_progress_may_be_any_number(queue, number):
    class Export(Task[None], name="export"):
        def work(self):
            progress(number, of=number)

    job = queue.enqueue(Export())
    queue.drain()
    assert job.refresh().progress == (float(number), float(number), None)


def test_progress_outside_of_a_job_does_nothing():
    class Export(Task[int], name="export"):
        def work(self):
            progress(1)
            assert current_job() is None
            return 7

    assert Export.execute().value == 7


@on_each_store
def test_the_current_job_is_that_of_the_thread_or_coroutine(queue):
    class Plain(Task[str], name="plain"):
        def work(self):
            return current_job().id

    class Async(Task[str], name="async"):
        async def work(self):
            before = current_job().id
            await asyncio.sleep(0)
            assert current_job().id == before
            return before

    kinds = [kind() for _ in range(5) for kind in (Plain, Async)]
    jobs = queue.enqueue_many(kinds)
    with queue.worker(threads=3):
        assert [job.wait(PATIENCE).value for job in jobs] == [job.id for job in jobs]
    assert current_job() is None


def test_a_job_carries_the_correlation_id_of_its_enqueuer(queue):
    class Notify(Task[None], name="notify"):
        def work(self):
            pass

    class Order(Task[str], name="order", correlation_id=lambda: "request-7"):
        def work(self):
            return queue.enqueue(Notify()).id

    ordered = Order.execute()
    job = queue.get(ordered.value)
    with queue.worker():
        assert job.wait(PATIENCE).xid == "request-7"
    assert job._record.origin is not None
    assert ordered.cid in job._record.origin


# -- signals -------------------------------------------------------------------------


@on_each_store
def test_signals_tell_what_becomes_of_a_job_after_it_is_stored(queue):
    states = []

    def look(_sender, *, job, **_payload):
        states.append(queue.get(job.id).state)

    class Work(Task[int], name="work"):
        fails: bool

        def work(self):
            if self.fails:
                raise ConnectionError("no")
            return 7

    signals = (job_started, job_finished, job_died)
    with collected(*signals) as sent:
        for signal in signals:
            signal.connect(look)
        with queue.worker():
            good = queue.enqueue(Work(fails=False))
            good.wait(PATIENCE)
            bad = queue.enqueue(Work(fails=True), retry=RetryOptions(1))
            bad.wait(PATIENCE)
        for signal in signals:
            signal.disconnect(look)
    assert [(name, sender, said["job"].id) for name, sender, said in sent] == [
        ("job_started", Work, good.id),
        ("job_finished", Work, good.id),
        ("job_started", Work, bad.id),
        ("job_died", Work, bad.id),
    ]
    assert states == ["running", "done", "running", "dead"]
    assert sent[1][2]["result"].value == 7
    assert sent[3][2]["result"].reason == "[ConnectionError] no"


def test_a_retry_tells_the_attempt_the_most_attempts_the_delay_and_the_error(queue):
    class Fail(Task[None], name="fail"):
        def work(self):
            raise ConnectionError(f"attempt {self.attempt}")

    options = RetryOptions(3, 0.002, 0.002)
    with collected(job_retried) as sent, queue.worker():
        job = queue.enqueue(Fail(), retry=options)
        job.wait(PATIENCE)
    said = [payload for _, sender, payload in sent if sender is Fail]
    assert [each["attempt"] for each in said] == [1, 2]  # from 0
    assert [each["max_attempts"] for each in said] == [3, 3]
    assert [str(each["error"]) for each in said] == ["attempt 0", "attempt 1"]
    assert all(0 <= each["delay"] <= 0.002 for each in said)
    assert all(each["job"].id == job.id for each in said)


@pytest.mark.usefixtures("instant")
def test_a_retry_after_a_long_pause_is_told_when_it_begins(queue):
    @retry_on(ConnectionError, limit=1, delay=600)
    class Fail(Task[None], name="fail"):
        def work(self):
            raise ConnectionError

    with collected(job_started, job_retried) as sent:
        queue.enqueue(Fail())
        queue.drain()
        assert [name for name, _, _ in sent] == ["job_started"]
        queue.drain(ahead=600)
    assert [name for name, _, _ in sent[1:]] == ["job_started", "job_retried"]
    assert sent[-1][2]["attempt"] == 1
    assert sent[-1][2]["max_attempts"] == 2
    assert sent[-1][2]["delay"] == 600


def test_a_receiver_that_raises_does_not_stop_the_worker(queue, caplog):
    class Work(Task[int], name="work"):
        def work(self):
            return 7

    def refuse(_sender, **_payload):
        raise RuntimeError("a receiver")

    with job_finished.connected_to(refuse), queue.worker():
        jobs = queue.enqueue_many([Work() for _ in range(3)])
        assert [job.wait(PATIENCE).value for job in jobs] == [7] * 3
    assert "a receiver of job_finished raised" in caplog.text


# -- several workers -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_receiver_that_exits_stops_the_worker_and_its_jobs_are_kept(queue):
    class Quick(Task[int], name="quick"):
        def work(self):
            return 7

    def leave(_sender, **_payload):
        raise SystemExit

    worker = queue.worker(threads=2)
    with job_finished.connected_to(leave), worker:
        job = queue.enqueue(Quick())
        assert worker.join(PATIENCE)
    assert job.refresh().result.value == 7


@on_each_server
def test_two_workers_never_run_one_job_twice(store):
    runs, lock = [], Lock()

    class Plain(Task[None], name="plain"):
        number: int

        def work(self):
            with lock:
                runs.append(self.number)

    class Async(Task[None], name="async"):
        number: int

        async def work(self):
            with lock:
                runs.append(self.number)

    with opened_again(store) as other:
        queues = [Queue(store), Queue(other)]
        workers = [queue.worker(threads=2, batch=7) for queue in queues]
        with workers[0], workers[1], ThreadPoolExecutor(2) as pool:
            kinds = [[kind(number=n) for n in range(150)] for kind in (Plain, Async)]
            jobs = pool.map(
                lambda pair: pair[0].enqueue_many(pair[1]),
                zip(queues, kinds, strict=True),
            )
            jobs = [job for some in jobs for job in some]
            assert all(job.wait(PATIENCE).success for job in jobs)
    assert sorted(runs) == sorted([*range(150)] * 2)
    assert workers[0].legs + workers[1].legs == 300


# -- the worker itself ---------------------------------------------------------------


def test_a_paused_queue_claims_nothing_until_it_is_resumed(queue):
    ran = Event()

    class Note(Task[None], name="note"):
        def work(self):
            ran.set()

    class Ask(Task[None], name="ask"):
        def work(self):
            pass

    other = Queue(queue.store, "other")
    queue.pause()
    assert queue.paused
    with queue.worker(), other.worker():
        job = queue.enqueue(Note())
        other.enqueue(Ask()).wait(PATIENCE)  # other queues go on
        assert not ran.is_set()
        assert job.refresh().state == JobState.READY
        queue.resume()
        assert job.wait(PATIENCE).success
    assert not queue.paused


def test_a_worker_cannot_be_started_twice(queue):
    worker = queue.worker()
    with worker, pytest.raises(CmdxError, match="started before"):
        worker.start()
    with pytest.raises(CmdxError, match="started before"):
        worker.start()
