"""From an invocation to a job: what is checked, stored and found again."""

from __future__ import annotations

import asyncio
import math
import re
import sys
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from queues import (
    StillClock,
    collected,
    column,
    edit,
    is_empty,
    on_each_server,
    on_each_store,
)

from cmdx import (
    DefinitionError,
    RetryOptions,
    Task,
    Workflow,
    after_execution,
    clock,
    optional,
    output,
    task_started,
    testing,
)
from cmdx.exceptions import DeprecatedTaskError, FinishedTaskError
from cmdx.queue import (
    JobGone,
    JobState,
    Progress,
    Queue,
    current_job,
    job_enqueued,
    progress,
    queued,
)
from cmdx.queue.claims import Claims
from cmdx.queue.report import Demand
from cmdx.stores import SqliteStore, StoreError
from cmdx.wire import RefusedInputError, WireError

READY, HELD, RUNNING, DONE, DEAD, CANCELLED = JobState


@attrs.frozen
class Receipt:
    order_id: int
    total: Decimal


class ChargeCard(Task[Receipt]):
    order_id: int
    total: Decimal = Decimal("9.50")

    def work(self) -> Receipt:
        return Receipt(self.order_id, self.total)


class Note(Task[None]):
    """Notes down that it ran."""

    ran = []  # noqa: RUF012 -- of all of them
    text: str

    def work(self) -> None:
        self.ran.append(self.text)


class AsyncNote(Note):
    """Does so in an event loop."""

    async def work(self) -> None:
        super().work()


@pytest.fixture
def ran():
    Note.ran.clear()
    return Note.ran


# -- what comes back -------------------------------------------------------------------


@on_each_store
def test_a_job_gives_back_the_value_of_its_task(queue, call):
    job = call(queue, "enqueue", ChargeCard(order_id="7"))
    assert (job.result, job.reason, job.state) == (None, None, READY)

    assert call(queue, "drain") == 1

    assert job.wait(5).value == Receipt(7, Decimal("9.50"))
    assert (job.state, job.result.status, job.attempts) == (DONE, "success", ())


def test_a_job_can_be_awaited(queue):
    async def enqueue_and_await():
        job = await queue.aenqueue(ChargeCard(order_id=7))
        await queue.adrain()
        return await job

    assert asyncio.run(enqueue_and_await()).value.order_id == 7


@on_each_store
def test_a_job_shows_what_was_enqueued(queue):
    options = RetryOptions(max_attempts=5)
    job = queue.enqueue(
        ChargeCard(order_id="7"), key="k", priority=2, after=3, retry=options
    )

    assert job.id == str(uuid.UUID(job.id))
    assert uuid.UUID(job.id).version == 7
    for shown in (job, queue.get(job.id)):
        assert shown.queue == "default"
        assert shown.task == f"{__name__}:ChargeCard"
        assert shown.inputs == {"order_id": 7}  # coerced; what was not given is not
        assert (shown.key, shown.priority, shown.state) == ("k", 2, HELD)
        assert shown.due_at - shown.created_at == 3.0
        assert shown.retry_options == options
        assert [rule.name for rule in shown.policy.rules] == ["job"]
        assert (shown.retries, shown.attempts, shown.crashes) == (0, (), 0)
        assert (shown.progress, shown.result) == (None, None)
        assert repr(shown) == f"<Job {job.id} of {__name__}:ChargeCard: held>"


def test_an_input_that_was_not_given_is_made_when_the_job_runs(queue):
    made = []

    class Stamp(Task[str], name="queue.stamp"):
        at: str = optional(factory=lambda: made.append(1) or f"moment {len(made)}")

        def work(self) -> str:
            return self.at

    job = queue.enqueue(Stamp())
    before = len(made)

    queue.drain()

    assert job.inputs == {}
    assert job.wait(5).value == f"moment {before + 1}"


def test_enqueuing_does_not_run_the_task(queue):
    calls = []

    class Charge(Task[None], name="queue.charge"):
        @after_execution
        def note(self):
            calls.append("after")

        def work(self):
            calls.append("work")

    with collected(task_started) as started:
        invocation = Charge()
        queue.enqueue(invocation)
        queue.enqueue(invocation)  # it is a value, not a run

    assert (calls, started) == ([], [])
    assert queue.counts()[READY] == 2


@on_each_server
def test_r_000_32_options_and_inputs_survive_a_restart(store, queue):
    job = queue.enqueue(
        ChargeCard(order_id=7), retry=RetryOptions(max_attempts=4, max_delay=9)
    )
    if isinstance(store, SqliteStore):
        store.close()
        queue = Queue(SqliteStore(store.name))

    again = queue.get(job.id)

    assert again.retry_options == RetryOptions(max_attempts=4, max_delay=9)
    assert again.policy == job.policy
    queue.drain()  # nobody has to enqueue anything first
    assert again.refresh().state is DONE


def test_r_000_31_a_job_without_options_of_its_own_has_none(queue):
    assert queue.enqueue(ChargeCard(order_id=7)).retry_options is None


def test_r_000_30_work_sees_its_inputs_and_its_job(queue):
    seen = []

    class Export(Task[None], name="queue.export"):
        of: int

        def work(self):
            progress(1, of=self.of, note="half")
            seen.append((self.of, current_job().id, current_job().inputs))

    job = queue.enqueue(Export(of=2))
    queue.drain()

    assert seen == [(2, job.id, {"of": 2})]
    assert job.refresh().progress == Progress(1, 2, "half")
    assert current_job() is None
    progress(1)  # outside of a job it does nothing


@on_each_store
def test_r_000_25_enqueuing_is_announced_after_the_commit(queue, call):
    stored = []

    def look(_sender, job):
        stored.append(queue.get(job.id) is not None)

    with job_enqueued.connected_to(look), collected(job_enqueued) as sent:
        job = call(queue, "enqueue", ChargeCard(order_id=7))

    assert stored == [True]
    assert sent == [("job_enqueued", {"sender": ChargeCard, "job": job})]


# -- what is refused -------------------------------------------------------------------


class Old(Task[None], deprecated="error"):
    def work(self):
        pass


class Sweep(Task[None]):
    def work(self):
        pass


class Steps(Workflow):
    steps = [ChargeCard]  # noqa: RUF012


def ran_before():
    invocation = ChargeCard(order_id=7)
    invocation.run()
    return invocation


def local_class():
    class Local(Task[None]):
        def work(self):
            pass

    return Local()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (ChargeCard, RefusedInputError, "order_id is required"),
        (lambda: ChargeCard(order_id="x"), RefusedInputError, "order_id"),
        (lambda: ChargeCard(order_id=object()), RefusedInputError, "order_id"),
        (lambda: ChargeCard, TypeError, r"got the class ChargeCard\. Give it its"),
        (lambda: Sweep, TypeError, r"got the class Sweep\. Write Sweep\(\)\."),
        (lambda: Steps, TypeError, r"got the class Steps\. Give it its inputs: Steps"),
        (ChargeCard.execute, TypeError, "result of a task that has run"),
        (lambda: "charge", TypeError, "got 'charge'"),
        (ran_before, FinishedTaskError, "has already run, and an instance runs once"),
        (local_class, WireError, "Local is defined in a function"),
        (Old, DeprecatedTaskError, "Old"),
    ],
)
@pytest.mark.parametrize("name", ["enqueue", "enqueue_many"])
@on_each_store
def test_what_cannot_run_is_refused_and_not_stored(queue, name, make, error, message):
    given = make()
    with pytest.raises(error, match=message):
        if name == "enqueue":
            queue.enqueue(given)
        else:
            queue.enqueue_many([ChargeCard(order_id=7), given])

    assert is_empty(queue)


def test_what_is_refused_says_where_to_go(queue):
    with pytest.raises(FinishedTaskError, match=r"queue\.enqueue\(ChargeCard\(\.\.\."):
        queue.enqueue(ran_before())


WRONG = [
    ({"after": -1}, "after must be a finite number of seconds, 0 or more, got -1"),
    ({"after": math.nan}, "after must be a finite number of seconds"),
    ({"after": "soon"}, "after must be a finite number of seconds"),
    ({"after": True}, "after must be a finite number of seconds"),
    (
        {"after": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
        "takes after= or at=, got both",
    ),
    ({"at": datetime(2030, 1, 1)}, "at must be a datetime with a time zone"),  # noqa: DTZ001
    ({"at": datetime(2030, 1, 1)}, r"now\(UTC\) for now, or \.astimezone\(\) after"),  # noqa: DTZ001
    ({"at": 1_900_000_000}, r"at must be a .*\. Write datetime\(\.\.\., tzinfo=UTC\)"),
    ({"priority": "high"}, "priority must be a whole number"),
    ({"priority": True}, "priority must be a whole number"),
    ({"priority": 2**31}, "priority must be a whole number of at most 31 bits"),
    ({"retry": 3}, r"retry must be RetryOptions\(max_attempts.* for example"),
    ({"after": timedelta(minutes=5)}, r"seconds: delta\.total_seconds\(\)"),
    ({"delay": 3}, "no option 'delay'; use `after`, in seconds"),
    ({"timeout": 5}, r"no option 'timeout'; declare it with @queued\(timeout="),
    ({"prio": 3}, "no option 'prio'"),
]
WRONG_ALONE = [
    *[
        ({name: value}, f"{name} must be")
        for name in ("key", "id", "unique")
        for value in ("", 5, "x" * 256, "a\0b", "a\ud800b")
    ],
    ({"unique": "a", "until": "never"}, 'until must be "started", "ended" or a number'),
    ({"unique": "a", "until": 0}, "until must be a finite number of seconds, above 0"),
    ({"unique": "a", "until": -1}, "until must be a finite number of seconds, above 0"),
    ({"countdown": 3}, "no option 'countdown'; use `after`, in seconds"),
    ({"until": "started"}, "until= belongs to unique="),
    ({"until": 60}, "until= belongs to unique="),
]


@pytest.mark.parametrize(("options", "message"), WRONG + WRONG_ALONE)
def test_a_wrong_option_is_refused_and_nothing_is_stored(queue, options, message):
    with pytest.raises(DefinitionError, match=message):
        queue.enqueue(ChargeCard(order_id=7), **options)

    assert is_empty(queue)


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_a_wrong_option_of_many_is_refused_too(queue, options, message):
    with pytest.raises(DefinitionError, match=message):
        queue.enqueue_many([ChargeCard(order_id=7)], **options)

    assert is_empty(queue)


@pytest.mark.parametrize("name", ["key", "id", "unique", "until", "within"])
def test_many_jobs_cannot_have_one_identity(queue, name):
    with pytest.raises(DefinitionError, match=f"no option '{name}'; .*one by one"):
        queue.enqueue_many([ChargeCard(order_id=7)], **{name: "a"})


def test_many_jobs_may_have_the_key_of_their_class(queue):
    with pytest.raises(DefinitionError, match=r"declare it with @queued\(key="):
        queue.enqueue_many([ChargeCard(order_id=7)], key="a")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": ""}, DefinitionError),
        ({"longest_pause": -1}, DefinitionError),
        ({"keep": "long"}, DefinitionError),
        ({"retry": {"max_attempts": 3}}, DefinitionError),
    ],
)
def test_a_queue_refuses_wrong_options(store, options, error):
    with pytest.raises(error):
        Queue(store, **options)


def test_a_key_that_raises_is_the_callers_error(queue):
    @queued(key=lambda task: task.customer.upper())
    class Charge(Task[None], name="queue.charge"):
        customer: int

        def work(self):
            pass

    with pytest.raises(AttributeError):
        queue.enqueue(Charge(customer=3))

    assert is_empty(queue)


def test_the_key_sees_resolved_inputs(queue):
    @queued(key=lambda task: f"customer {task.customer + 1}")
    class Charge(Task[None], name="queue.charge"):
        customer: int = 1

        def work(self):
            pass

    assert queue.enqueue(Charge()).key == "customer 2"
    assert queue.enqueue(Charge(customer="3")).key == "customer 4"
    assert queue.enqueue(Charge(), key="mine").key == "mine"


@pytest.mark.parametrize(
    "options",
    [{"priority": 1.5}, {"key": 5}, {"timeout": 0}, {"priorty": 1}],
)
def test_wrong_options_of_a_class_are_refused_when_it_is_defined(options):
    with pytest.raises(DefinitionError):

        @queued(**options)
        class Charge(Task[None]):
            pass


def test_what_a_class_says_is_inherited_and_changed_one_by_one(queue):
    @queued(priority=5, key="one")
    class Parent(Task[None], name="queue.parent"):
        def work(self):
            pass

    @queued(priority=None)
    class Child(Parent, name="queue.child"):
        pass

    parent, child = queue.enqueue(Parent()), queue.enqueue(Child())

    assert (parent.priority, parent.key) == (5, "one")
    assert (child.priority, child.key) == (0, "one")
    assert queue.enqueue(Parent(), priority=-1).priority == -1


def test_a_value_that_cannot_be_stored_is_warned_about_once(queue):
    class Connect(Task[socket_type()], name="queue.connect"):
        def work(self):
            return None

    with pytest.warns(UserWarning, match="Connect"):
        queue.enqueue(Connect())
    queue.enqueue(Connect())  # a second warning would be an error here


def socket_type():
    import socket

    return socket.socket


# -- when it is due --------------------------------------------------------------------


@on_each_store
def test_r_000_34_fractions_of_seconds_are_kept(queue, ran):
    job = queue.enqueue(Note(text="a"), after=0.25)
    assert job.refresh().due_at == job.created_at + 0.25

    assert queue.drain(ahead=0.125) == 0
    assert queue.drain(ahead=0.125) == 1
    assert ran == ["a"]


@on_each_store
def test_a_job_is_due_at_the_moment_it_is_given(queue, instant):
    begin = instant.time()
    berlin = timezone(timedelta(hours=2))
    moment = datetime.fromtimestamp(begin + 60.5, berlin)
    job = queue.enqueue(ChargeCard(order_id=7), at=moment)

    assert job.due_at == begin + 60.5
    assert queue.drain(ahead=60) == 0
    assert queue.drain(ahead=1) == 1


def test_what_is_past_means_now(queue, instant):
    moment = datetime.fromtimestamp(instant.time() - 60, UTC)
    job = queue.enqueue(ChargeCard(order_id=7), at=moment)

    assert job.due_at == job.created_at
    assert queue.drain() == 1


def test_zero_seconds_means_now(queue):
    job = queue.enqueue(ChargeCard(order_id=7), after=0)

    assert job.due_at == job.created_at


@on_each_store
def test_jobs_run_by_priority_then_time_then_in_their_order(queue, ran):
    queue.enqueue(Note(text="later"), after=10)
    for text in ("a", "b", "c"):
        queue.enqueue(Note(text=text))
    queue.enqueue(Note(text="low"), priority=-1)
    queue.enqueue(Note(text="high"), priority=7)
    queue.enqueue(Note(text="high and later"), priority=7, after=5)

    assert queue.drain(ahead=10) == 7

    assert ran == ["high", "a", "b", "c", "low", "high and later", "later"]


@settings(deadline=None, max_examples=60)
@given(
    waiting=st.lists(
        st.tuples(st.integers(-12, 12), st.integers(0, 3), st.booleans()), max_size=40
    )
)
@example(
    waiting=[
        *((level, 3, False) for level in range(7)),
        *2 * [(-1, 0, True), (-1, 0, False)],
    ]
)
@example(waiting=[*((level, 2, level % 3 > 0) for level in range(25)), (-1, 1, True)])
def test_among_many_priorities_the_highest_that_is_due_goes_first(waiting):
    Note.ran.clear()
    with clock.use(StillClock()), testing.instant(), SqliteStore() as store:
        queue = Queue(store)
        for number, (priority, after, is_async) in enumerate(waiting):
            note = (AsyncNote if is_async else Note)(text=str(number))
            queue.enqueue(note, priority=priority, after=after)
        queue.drain(ahead=3)

    now = 0
    left = {
        str(number): (-priority, after, number)
        for number, (priority, after, _) in enumerate(waiting)
    }
    for text in Note.ran:
        now = max(now, min(after for _, after, _ in left.values()))
        due = [place for place in left.values() if place[1] <= now]
        assert left.pop(text) == min(due)
    assert not left


def test_of_jobs_that_have_waited_the_one_due_first_goes_first(queue, instant, ran):
    queue.enqueue(Note(text="second"), after=2)
    queue.enqueue(Note(text="first"), after=1)
    instant.advance(10)

    queue.drain()

    assert ran == ["first", "second"]


@on_each_store
def test_two_kinds_of_jobs_that_fill_a_worker_do_not_hide_those_below(queue):
    queue.enqueue_many([Note(text="a"), AsyncNote(text="b")], priority=1)
    queue.enqueue(Note(text="c"))

    with Claims(queue) as claims:
        report = claims.do_round((), Demand(2))

    assert [job.priority for job in report.claimed] == [1, 1]
    assert report.next_due <= queue.store.now()


# -- many ------------------------------------------------------------------------------


@on_each_store
def test_many_jobs_are_stored_in_one_transaction(store, queue, ran, call):
    points = []
    store.at = points.append
    jobs = call(
        queue, "enqueue_many", (Note(text=text) for text in "abc"), after=1, priority=2
    )
    store.at = lambda _point: None

    assert points.count("after commit") == 1
    assert [job.inputs["text"] for job in jobs] == ["a", "b", "c"]
    assert {(job.priority, job.due_at - job.created_at) for job in jobs} == {(2, 1.0)}
    queue.drain(ahead=1)
    assert ran == ["a", "b", "c"]


@on_each_store
def test_many_jobs_are_stored_all_or_none(store, queue):
    def fail(point):
        if point == "before commit":
            store.at = lambda _point: None
            raise StoreError("the disk is gone", "Buy another")

    store.at = fail
    with pytest.raises(StoreError):
        queue.enqueue_many([Note(text="a"), Note(text="b")])

    assert is_empty(queue)


def test_one_invocation_is_not_taken_for_many(queue, call):
    message = "takes several invocations, such as a list; one is for enqueue"
    with pytest.raises(TypeError, match=message):
        call(queue, "enqueue_many", Pay(customer=1))
    assert is_empty(queue)


def test_many_may_be_none(queue):
    assert queue.enqueue_many([]) == []


class Outsider(RuntimeError):
    """An error of the caller."""


def invocations_that_end_early():
    yield ChargeCard(order_id=1)
    raise Outsider


@pytest.mark.parametrize(
    ("invocations", "kind", "place"),
    [
        ([ChargeCard(order_id=1), ChargeCard(order_id="x")], RefusedInputError, 1),
        ([ChargeCard], TypeError, 0),
        (invocations_that_end_early(), Outsider, None),
    ],
    ids=["inputs", "class", "caller"],
)
def test_which_of_many_is_refused_is_told(queue, invocations, kind, place):
    with pytest.raises(kind) as caught:
        queue.enqueue_many(invocations)
    told = f"enqueue_many: it is number {place} of the invocations, counted from 0."
    expected = [] if place is None else [told]
    assert getattr(caught.value, "__notes__", []) == expected
    assert queue.find() == []


def test_many_jobs_are_announced_one_by_one(queue):
    with collected(job_enqueued) as sent:
        jobs = queue.enqueue_many([Note(text="a"), Note(text="b")])

    assert [payload["job"].id for _, payload in sent] == [job.id for job in jobs]


# -- finding ---------------------------------------------------------------------------


class Pay(Task[None], name="enqueuing.pay"):
    customer: int
    amount: Decimal = Decimal(1)

    def work(self):
        if self.customer < 0:
            raise LookupError(f"no customer {self.customer}")


@pytest.fixture
def shop(queue, instant):
    """A queue with a job in each state but running; return the jobs by name."""
    jobs = {
        "done": queue.enqueue(Pay(customer=1, amount="2.50"), key="k"),
        "dead": queue.enqueue(Pay(customer=-1), retry=RetryOptions(max_attempts=1)),
        "halted": queue.enqueue(Halt(), after=1),
    }
    queue.drain(ahead=1)
    instant.advance(10)
    jobs["ready"] = queue.enqueue(Pay(customer=1), key="k")
    jobs["held"] = queue.enqueue(Pay(customer=2), key="k")
    jobs["cancelled"] = queue.enqueue(Note(text="a"))
    queue.cancel(jobs["cancelled"].id)
    queue.pause()
    queue.drain()  # places are given
    queue.resume()
    return jobs


class Halt(Task[None], name="enqueuing.halt"):
    def work(self):
        self.fail("no")


FOUND = [
    ({}, ["done", "dead", "halted", "ready", "held", "cancelled"]),
    ({"state": "dead"}, ["dead", "halted"]),
    ({"state": JobState.HELD}, ["held"]),
    ({"task": Pay}, ["done", "dead", "ready", "held"]),
    ({"task": "enqueuing.pay"}, ["done", "dead", "ready", "held"]),
    ({"task": "pay"}, ["done", "dead", "ready", "held"]),
    ({"task": "pa"}, []),
    ({"task": "Note"}, ["cancelled"]),
    ({"task": f"{__name__}:Note"}, ["cancelled"]),
    ({"task": "note"}, []),
    ({"task": "pay", "inputs": {"customer": 2}}, ["held"]),
    ({"task": Pay, "inputs": {"customer": 1}}, ["done", "ready"]),
    ({"task": Pay, "inputs": {"customer": "1"}}, ["done", "ready"]),
    ({"task": Pay, "inputs": {"customer": 1, "amount": "2.50"}}, ["done"]),
    ({"task": Pay, "inputs": {"amount": Decimal("2.50")}}, ["done"]),
    ({"task": "enqueuing.pay", "inputs": {"customer": 2}}, ["held"]),
    ({"task": Pay, "inputs": {}}, ["done", "dead", "ready", "held"]),
    ({"key": "k"}, ["done", "ready", "held"]),
    ({"key": "k", "state": "done"}, ["done"]),
    ({"error": LookupError}, ["dead"]),
    ({"error": "LookupError"}, ["dead"]),
    ({"error": KeyError}, []),
    ({"since": 2.0**30 + 5}, ["ready", "held", "cancelled"]),
    ({"until": 2.0**30 + 5}, ["done", "dead", "halted"]),
    (
        {"until": datetime.fromtimestamp(2.0**30 + 5, UTC)},
        ["done", "dead", "halted"],
    ),
    ({"limit": 2}, ["done", "dead"]),
    ({"limit": 0}, []),
    ({"state": "dead", "task": Pay, "error": LookupError, "since": 0}, ["dead"]),
]


@pytest.mark.parametrize(("filters", "names"), FOUND)
def test_r_000_31_jobs_are_found_by_all_filters(queue, shop, filters, names):
    assert [job.id for job in queue.find(**filters)] == [
        shop[name].id for name in names
    ]


@on_each_store
def test_filters_and_counts_work_on_every_store(queue, shop, call):
    for filters, names in FOUND:
        found = call(queue, "find", **filters)
        assert [job.id for job in found] == [shop[name].id for name in names]

    assert call(queue, "counts") == {
        READY: 1,
        HELD: 1,
        RUNNING: 0,
        DONE: 1,
        DEAD: 2,
        CANCELLED: 1,
    }


def test_a_job_that_has_just_arrived_is_held(queue):
    job = queue.enqueue(Pay(customer=1), key="k")

    assert [found.id for found in queue.find(state="held")] == [job.id]
    assert queue.counts()[HELD] == 1


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"inputs": {"customer": 1}}, "inputs= can be looked for only together with"),
        ({"state": "lost"}, "state is one of ready, held, running, done, dead"),
        ({"since": datetime(2030, 1, 1)}, "since must be a datetime with a time"),  # noqa: DTZ001
        ({"until": "now"}, "until must be a datetime with a time zone"),
        ({"since": datetime(2030, 1, 1)}, r"or \.astimezone\(\) after a local time"),  # noqa: DTZ001
        ({"until": "now"}, r"\. Write datetime\(\.\.\., tzinfo=UTC\)"),
        ({"customer": 1}, "find has no option 'customer'"),
        ({"key": 7}, "filters: key must be a text, got 7"),
        ({"error": ValueError("no")}, "filters: error must be the class of an error,"),
        ({"task": Pay, "inputs": [1]}, "filters: inputs must be a mapping of names"),
        ({"limit": "10"}, "find: limit must be a whole number, 0 or more, got '10'"),
        ({"limit": -1}, "find: limit must be a whole number, 0 or more, got -1"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(queue, filters, message):
    with pytest.raises(DefinitionError, match=message):
        queue.find(**filters)


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("failed", "; a job that failed for good is 'dead'."),
        ("Failed", "; a job that failed for good is 'dead'."),
        ("queued", "; a job that waits is 'ready', or 'held' behind another job."),
        ("completed", "; a job that has ended well is 'done'."),
        ("started", "; a job that a worker has claimed is 'running'."),
        ("canceled", "; did you mean 'cancelled'?"),
        ("runing", "; did you mean 'running'?"),
        ("lost", "."),
        (7, "."),
    ],
)
@pytest.mark.parametrize("name", ["find", "cancel_all", "replay_all"])
def test_a_state_of_other_queues_is_answered_with_ours(queue, call, name, state, hint):
    with pytest.raises(DefinitionError) as caught:
        call(queue, name, state=state)
    assert str(caught.value) == (
        "state is one of ready, held, running, done, dead, cancelled, "
        f"got {state!r}{hint}"
    )


@pytest.mark.parametrize("task", [int, Pay(customer=1), 7])
def test_only_a_task_or_its_name_can_be_looked_for(queue, task):
    with pytest.raises(DefinitionError, match="filters: task must be the class"):
        queue.find(task=task)


@pytest.mark.parametrize("name", ["find", "cancel_all", "replay_all"])
def test_the_end_of_a_name_must_mean_one_task(store, queue, call, name):
    Queue(store, "other").enqueue(Pay(customer=1))
    for task in ("billing:Pay", "shop.cards:Pay", "shop.cards:PrePay", "Cards.Pay"):
        edit(queue.enqueue(Pay(customer=1)), task=task)
    queue.cancel_all(everything=True)

    message = (
        "in the queue 'default', 'Pay' may be Cards.Pay, billing:Pay or "
        "shop.cards:Pay. Give more of the name."
    )
    with pytest.raises(DefinitionError, match=re.escape(message)):
        call(queue, name, task="Pay")
    assert len(call(queue, "find", task="cards:Pay")) == 1
    assert len(call(queue, "find", task="PrePay")) == 1
    assert call(queue, "cancel_all", task="cards:Pay") == 0
    assert call(queue, "replay_all", task="cards:Pay", state="cancelled") == 1


def test_a_full_name_is_not_taken_for_the_end_of_another(queue):
    for task in ("Pay", "billing:Pay"):
        edit(queue.enqueue(Pay(customer=1)), task=task)

    assert [job.task for job in queue.find(task="Pay")] == ["Pay"]


def test_jobs_of_another_queue_are_not_found(store, queue):
    other = Queue(store, "other")
    job = other.enqueue(Pay(customer=1))

    assert queue.find() == []
    assert queue.get(job.id) is None
    assert queue.cancel(job.id) is False
    assert is_empty(queue)
    with pytest.raises(JobGone):
        queue.replay(job.id)
    assert other.get(job.id).state is READY


def test_an_unknown_id_finds_nothing(queue, call):
    assert call(queue, "get", "nobody") is None


def test_more_jobs_are_found_than_are_read_at_once(queue):
    queue.enqueue_many(Pay(customer=number % 7) for number in range(1100))

    assert len(queue.find(limit=2000)) == 1100
    found = queue.find(task=Pay, inputs={"customer": 3}, limit=2000)
    assert {job.inputs["customer"] for job in found} == {3}
    assert len(found) == len([number for number in range(1100) if number % 7 == 3])


@pytest.mark.usefixtures("instant")
def test_looking_imports_nothing(store, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    queue = Queue(store, tasks=("trap",))
    job = queue.enqueue(Pay(customer=1))
    edit(job, task="trap:Trap", module="trap")

    for found in (queue.get(job.id), *queue.find(task="trap:Trap"), job.refresh()):
        assert (found.state, found.inputs) == (READY, {"customer": 1})
        assert (found.attempts, found.retries) == ((), 0)
    assert len(queue.find(task="trap:Trap", inputs={"customer": 1})) == 1
    queue.cancel(job.id)
    assert "trap" not in sys.modules


def test_inputs_that_somebody_broke_do_not_hide_other_jobs(queue):
    broken, fine = (queue.enqueue(Pay(customer=1)) for _ in range(2))
    edit(broken, inputs="{")

    found = queue.find(task=Pay, inputs={"customer": 1})

    assert [job.id for job in found] == [fine.id]
    assert len(queue.find(task=Pay)) == 2


@on_each_store
def test_a_job_that_was_removed_is_gone(queue):
    job = queue.enqueue(Pay(customer=1))
    queue.drain(ahead=queue.keep - 1)
    assert job.refresh().state is DONE

    queue.drain(ahead=1)
    queue.drain()

    with pytest.raises(JobGone, match="it has ended and was removed"):
        job.refresh()
    with pytest.raises(JobGone):
        job.wait(1)


def test_outputs_come_back_with_the_result(queue):
    class Split(Task[None], name="queue.split"):
        half: int = output()

        def work(self):
            self.context.half = 4

    job = queue.enqueue(Split())
    queue.drain()

    assert job.wait(5).context.half == 4


def test_a_queue_on_a_path_is_the_store_at_that_path(tmp_path):
    first, second = (Queue(tmp_path / "app.db") for _ in range(2))
    job = first.enqueue(Pay(customer=1))

    assert first.store is second.store
    assert second.get(job.id) is not None
    assert column(job, "queue") == "default"
    first.store.close()
