"""
How jobs are retried: by which policy, and the same as inline.

The last part compares whole runs: a job ends as the inline run of the same class under
``job.policy`` does.
"""

from __future__ import annotations

import asyncio
import json
import math
from itertools import cycle
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from queues import StillClock, collected, column, is_empty, on_each_store

from cmdx import (
    DefinitionError,
    RetryBudget,
    RetryOptions,
    RetryPolicy,
    Stop,
    Task,
    Workflow,
    after_execution,
    clock,
    required,
    retry_on,
    task_executed,
    task_retried,
    task_started,
)
from cmdx.operations import operation
from cmdx.queue import JobState, Queue, job_died, job_retried
from cmdx.queue.policy import options_from, plan_under
from cmdx.report import error_name
from cmdx.retry.strategies import full_jitter
from cmdx.run.lifecycle import drive, lifecycle
from cmdx.stores import SqliteStore
from cmdx.task import begin_leg
from cmdx.testing import instant as virtual_time

READY, HELD, RUNNING, DONE, DEAD, CANCELLED = JobState
ALMOST_ONE = 1 - 2**-20


class Plain(Task[None]):
    def work(self):
        raise ValueError("no")


class Fine(Task[None]):
    def work(self):
        pass


class Fussy(Task[None], retry=RetryOptions(max_attempts=4, base_delay=1)):
    def work(self):
        raise ValueError("no")


@retry_on(ConnectionError, limit=7)
class Careful(Task[None], retry=RetryOptions(max_attempts=4)):
    def work(self):
        raise ValueError("no")


@operation()
class Charge(Task[None]):
    def work(self):
        raise ValueError("no")


@operation(idempotent=True)
class Refund(Task[None]):
    def work(self):
        raise ValueError("no")


class Both(Workflow):
    steps = [Plain, Fussy]  # noqa: RUF012 -- a declaration


def job_rule(job):
    """Return the options of the rule ``job``; None if there is none."""
    rule = job.policy.rules[-1]
    if rule.name != "job":
        return None
    return rule.max_attempts, rule.delay / 2, rule.max_delay


# -- which policy a job gets -----------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "of_queue", "of_call", "expected"),
    [
        (Plain, None, None, (3, 0.1, 3.0)),
        (Plain, RetryOptions(5, 1, 2), None, (5, 1, 2)),
        (Plain, RetryOptions(max_attempts=5), RetryOptions(base_delay=1), (5, 1, 3.0)),
        (Plain, RetryOptions(5, 1, 2), RetryOptions(max_attempts=1), (1, 1, 2)),
        (Fussy, None, None, (4, 1, 3.0)),
        (Fussy, RetryOptions(5, 0.5, 2), None, (4, 1, 2)),
        (Fussy, RetryOptions(5, 0.5, 2), RetryOptions(base_delay=2), (4, 2, 2)),
        (Fussy, None, RetryOptions(9, 8, 7.0 + 1), (9, 8, 8)),
        (Careful, RetryOptions(5, 1, 2), None, None),
        (Careful, None, RetryOptions(), (4, 0.1, 3.0)),
        (Charge, RetryOptions(5, 1, 2), None, None),
        (Charge, RetryOptions(5, 1, 2), RetryOptions(max_delay=9), (5, 1, 9)),
        (Refund, None, None, (3, 0.1, 3.0)),
        (Both, RetryOptions(5, 1, 2), None, None),
    ],
)
def test_options_come_from_the_call_the_class_the_queue_or_are_built_in(
    store, task, of_queue, of_call, expected
):
    queue = Queue(store, retry=of_queue)
    job = queue.enqueue(task(), retry=of_call)

    for shown in (job, queue.get(job.id)):
        assert job_rule(shown) == expected
        assert shown.retry_options == of_call
        rules = shown.policy.rules
        own = [rule for rule in task.retry_policy.rules if rule.exceptions]
        if expected is None:
            assert shown.policy == task.retry_policy
        else:
            assert list(rules[:-1]) == own


def test_the_rule_of_a_job_is_what_the_contract_says(queue):
    (rule,) = queue.enqueue(Plain(), retry=RetryOptions(4, 0.5, 3)).policy.rules

    assert (rule.name, rule.exceptions) == ("job", (Exception,))
    assert (rule.limit, rule.max_attempts) == (3, 4)
    assert (rule.delay, rule.max_delay, rule.jitter) == (1.0, 3, full_jitter)
    assert (rule.guided, rule.longest_wait) == (True, 3600)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "retry.max_attempts must be >= 1"),
        ({"max_attempts": 2.5}, "retry.max_attempts must be an integer"),
        ({"base_delay": 0}, "retry.base_delay must be > 0"),
        ({"max_delay": -1}, "retry.max_delay must be > 0"),
        ({"base_delay": 5}, "retry.base_delay must be <= retry.max_delay"),
        ({"max_delay": 0.05}, "retry.base_delay must be <= retry.max_delay"),
    ],
)
def test_r_000_3_wrong_options_are_refused_before_anything_is_stored(
    queue, options, message
):
    with pytest.raises(DefinitionError) as raised:
        queue.enqueue(Plain(), retry=RetryOptions(**options))

    assert str(raised.value) == message
    assert is_empty(queue)


def test_delays_are_compared_when_all_of_them_are_known(store):
    queue = Queue(store, retry=RetryOptions(max_delay=0.5))

    with pytest.raises(DefinitionError, match=r"base_delay must be <= retry\.max_"):
        queue.enqueue(Fussy())
    assert job_rule(queue.enqueue(Fussy(), retry=RetryOptions(max_delay=2)))[2] == 2


@pytest.mark.parametrize("name", ["enqueue", "enqueue_many"])
def test_a_workflow_is_not_retried_as_a_whole(queue, name):
    given = Both() if name == "enqueue" else [Both()]

    with pytest.raises(DefinitionError, match="Both is a workflow, which is not retri"):
        getattr(queue, name)(given, retry=RetryOptions())

    assert is_empty(queue)


def test_a_failed_step_makes_the_job_of_a_workflow_dead(queue, instant):
    undone = []

    class Book(Task[None], name="queue.book"):
        def work(self):
            pass

        def rollback(self):
            undone.append("book")

    @retry_on(ValueError, limit=1, delay=2.0)
    class Pay(Task[None], name="queue.pay"):
        def work(self):
            raise ValueError("no money")

    class Checkout(Workflow, name="queue.checkout"):
        steps = [Book, Pay]  # noqa: RUF012 -- a declaration

    job = queue.enqueue(Checkout())

    assert queue.drain(ahead=60) == 1  # its steps sleep their pauses
    assert job.refresh().state is DEAD
    assert instant.pauses == [2.0]
    assert undone == ["book"]


# -- what the rule does ----------------------------------------------------------------


def failing(*errors, **keywords):
    """Return a task whose attempts raise these errors, one after the other."""

    class Failing(Task[str], name="queue.failing", **keywords):
        def work(self) -> str:
            if self.attempt < len(errors):
                raise errors[self.attempt]
            return f"done at {self.attempt}"

    failing.last = Failing  # names alone do not keep a class
    return Failing


def pauses(job):
    return [attempt.pause for attempt in job.attempts]


def rules(job):
    return [attempt.rule for attempt in job.attempts]


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        (RetryOptions(3), [0.2, 0.4]),
        (RetryOptions(5, 0.5, 3.0), [1, 2, 3, 3]),
        (RetryOptions(2, 3.0, 3.0), [3]),
    ],
)
def test_r_000_11_pauses_are_drawn_below_a_doubling_bound(
    queue, instant, options, bounds
):
    instant.randoms = ALMOST_ONE
    job = queue.enqueue(failing(*[ValueError("no")] * 9)(), retry=options)
    queue.drain(ahead=60)

    assert job.refresh().retries == options.max_attempts - 1
    *pauses_between, last = pauses(job)
    assert pauses_between == pytest.approx([bound * ALMOST_ONE for bound in bounds])
    assert all(pause < bound for pause, bound in zip(pauses_between, bounds, strict=1))
    assert last is None


def test_a_draw_of_zero_pauses_not_at_all(queue, instant):
    instant.randoms = 0.0
    job = queue.enqueue(failing(ValueError("no"))())

    assert queue.drain() == 1
    assert (job.refresh().retries, instant.pauses) == (1, [])


def test_one_attempt_means_no_retry(queue):
    job = queue.enqueue(failing(ValueError("no"))(), retry=RetryOptions(max_attempts=1))
    queue.drain(ahead=60)

    assert (job.refresh().state, job.retries) == (DEAD, 0)
    assert job.result.stopped is Stop.EXHAUSTED


def test_the_rule_of_a_job_is_asked_last(queue):
    task = failing(*[ConnectionError("busy")] * 9)
    retry_on(ConnectionError, limit=1, delay=0, rule="network")(task)
    job = queue.enqueue(task(), retry=RetryOptions(max_attempts=5))
    queue.drain(ahead=60)

    assert rules(job.refresh()) == ["network", None]  # that one decides alone
    assert job.result.stopped is Stop.EXHAUSTED


def test_what_no_rule_of_the_class_lists_is_decided_by_that_of_the_job(queue):
    task = failing(ValueError("no"), ConnectionError("busy"), ValueError("no"))
    retry_on(ConnectionError, limit=1, delay=0, rule="network")(task)
    job = queue.enqueue(task(), retry=RetryOptions(max_attempts=5))
    queue.drain(ahead=60)

    assert job.refresh().state is DONE
    assert rules(job) == ["job", "network", "job", None]


def test_the_rule_gives_up_when_there_were_enough_attempts_by_any_rule(queue):
    task = failing(ConnectionError("1"), ConnectionError("2"), ValueError("3"))
    retry_on(ConnectionError, limit=5, delay=0, rule="network")(task)
    job = queue.enqueue(task(), retry=RetryOptions(max_attempts=3))
    queue.drain(ahead=60)

    assert (job.refresh().state, rules(job)) == (DEAD, ["network", "network", None])
    assert job.result.stopped is Stop.EXHAUSTED


def test_a_rule_of_the_class_goes_on_beyond_the_attempts_of_the_job(queue):
    task = failing(*[ConnectionError("busy")] * 4)
    retry_on(ConnectionError, limit=5, delay=0, rule="network")(task)
    job = queue.enqueue(task(), retry=RetryOptions(max_attempts=2))
    queue.drain(ahead=60)

    assert (job.refresh().state, job.retries) == (DONE, 4)


def test_a_class_without_the_rule_does_not_retry_what_it_does_not_list(queue):
    job = queue.enqueue(Careful())
    queue.drain(ahead=60)

    assert (job.refresh().state, job.retries) == (DEAD, 0)
    assert job.result.stopped is Stop.NOT_LISTED


class Busy(Exception):
    def __init__(self, text, retry_after=None):
        super().__init__(text)
        if retry_after is not None:
            self.retry_after = retry_after


def test_a_wait_that_an_error_asks_for_may_be_up_to_an_hour(queue, instant):
    job = queue.enqueue(failing(Busy("later", 3600))())
    begin = instant.slept

    assert queue.drain(ahead=3599) == 1
    assert job.refresh().due_at == job.created_at + 3600
    assert queue.drain(ahead=1) == 1
    assert job.refresh().state is DONE
    assert pauses(job) == [3600, None]
    assert instant.slept - begin == 3600


def test_a_wait_of_more_than_an_hour_ends_the_job(queue):
    job = queue.enqueue(failing(Busy("much later", 3601))())
    queue.drain(ahead=60)

    assert (job.refresh().state, job.retries) == (DEAD, 0)
    assert job.result.stopped is Stop.GUIDANCE


# -- what is never retried -------------------------------------------------------------


def test_halts_are_not_retried(queue):
    class Failed(Task[None], name="queue.failed"):
        def work(self):
            self.fail("out of stock")

    class Skipped(Task[None], name="queue.skipped"):
        def work(self):
            self.skip("nothing to do")

    failed, skipped = (queue.enqueue(task()) for task in (Failed, Skipped))

    assert queue.drain(ahead=60) == 2
    assert (failed.refresh().state, failed.reason) == (DEAD, "out of stock")
    assert (skipped.refresh().state, skipped.result.status) == (DONE, "skipped")
    assert [failed.retries, skipped.retries] == [0, 0]


def test_inputs_that_are_refused_at_the_run_are_not_retried(queue):
    allowed = [5]

    class Book(Task[None], name="queue.book"):
        seats: int = required(validate=lambda value: value in allowed)

        def work(self):
            pass

    job = queue.enqueue(Book(seats=5))
    allowed.clear()

    assert queue.drain(ahead=60) == 1
    assert (job.refresh().state, job.retries) == (DEAD, 0)
    assert "seats" in job.reason


# -- pauses that free the worker -------------------------------------------------------


@on_each_store
def test_a_long_pause_frees_the_worker_and_the_run_goes_on(queue, instant, call):
    seen = []

    @retry_on(ConnectionError, limit=3, delay=2.0, jitter="exponential")
    class Sync(Task[str], name="queue.sync"):
        def work(self):
            seen.append((self.run_id, self.attempt))
            if self.attempt < 2:
                raise ConnectionError(f"busy {self.attempt}")
            return "done"

    job = queue.enqueue(Sync())
    assert call(queue, "drain", ahead=1) == 1

    assert job.refresh().state is READY
    assert job.due_at == job.created_at + 2.0
    assert (job.retries, len(job.attempts), job.result) == (0, 1, None)
    assert job.attempts[0].error.type_name == "ConnectionError"
    assert (job.attempts[0].pause, job.crashes) == (2.0, 0)
    assert json.loads(column(job, "suspension"))["pause"] == 2.0
    assert column(job, "owner") is None

    other = queue.enqueue(Plain(), retry=RetryOptions(max_attempts=1))
    assert call(queue, "drain") == 1  # the other one
    assert other.refresh().state is DEAD

    assert call(queue, "drain", ahead=1) == 1
    assert job.refresh().due_at == job.created_at + 6.0
    assert call(queue, "drain", ahead=4) == 1
    assert job.wait(5).value == "done"
    assert seen == [(seen[0][0], 0), (seen[0][0], 1), (seen[0][0], 2)]
    assert column(job, "suspension") is None
    assert instant.pauses == []  # nothing was slept away


@pytest.mark.parametrize(
    ("longest_pause", "legs"), [(0, 3), (0.5, 2), (1.0, 2), (2.0, 1), (math.inf, 1)]
)
def test_a_pause_is_slept_up_to_the_longest_one(store, instant, longest_pause, legs):
    task = failing(ConnectionError("1"), ConnectionError("2"))
    retry_on(ConnectionError, delay=0.5, jitter=lambda attempt: 0.5 + 1.5 * attempt)(
        task
    )
    queue = Queue(store, longest_pause=longest_pause)
    job = queue.enqueue(task())

    assert queue.drain(ahead=60) == legs
    assert job.refresh().state is DONE
    assert instant.pauses == [pause for pause in (0.5, 2.0) if pause <= longest_pause]


def test_the_last_leg_alone_completes_the_run(queue):
    done = []

    @retry_on(ConnectionError, limit=2, delay=5.0)
    class Sync(Task[None], name="queue.sync"):
        @after_execution
        def note(self):
            done.append("after")

        def work(self):
            raise ConnectionError("busy")

        def rollback(self):
            done.append("rollback")

    queue.enqueue(Sync())
    signals = (task_started, task_executed, task_retried)
    with collected(*signals) as sent:
        assert queue.drain(ahead=60) == 3

    names = [name for name, _ in sent]
    assert names.count("task_started") == 3
    assert names.count("task_executed") == 1
    assert names.count("task_retried") == 2
    assert sorted(done) == ["after", "rollback"]


def test_a_deadline_is_counted_from_the_first_leg(queue, instant):
    calls = []

    @retry_on(ConnectionError, limit=9, delay=5.0, deadline=12.0)
    class Sync(Task[None], name="queue.sync"):
        def work(self):
            calls.append(instant.slept)
            raise ConnectionError("busy")

    job = queue.enqueue(Sync())
    queue.drain(ahead=60)

    assert calls == [0, 5, 10]
    assert job.refresh().result.stopped is Stop.DEADLINE


@pytest.mark.parametrize(
    ("limit", "stopped"),
    [
        ({"deadline": 12.0}, Stop.DEADLINE),
        ({"budget": RetryBudget(0, 2, 1e6)}, Stop.BUDGET),
    ],
)
def test_limits_of_the_class_hold_beside_the_rule_of_the_job(queue, limit, stopped):
    task = failing(*[ConnectionError("busy")] * 9)
    retry_on(ConnectionError, limit=9, delay=5.0, **limit)(task)
    job = queue.enqueue(task(), retry=RetryOptions(max_attempts=9))
    queue.drain(ahead=600)

    assert (job.refresh().retries, job.result.stopped) == (2, stopped)


def test_a_leg_that_begins_after_the_deadline_calls_nothing(queue, instant):
    calls = []

    @retry_on(ConnectionError, limit=9, delay=5.0, deadline=12.0)
    class Sync(Task[None], name="queue.sync"):
        def work(self):
            calls.append(1)
            raise ConnectionError("busy")

    job = queue.enqueue(Sync())
    queue.drain()
    instant.advance(60)  # no worker was there
    queue.drain()

    assert len(calls) == 1
    assert job.refresh().result.stopped is Stop.DEADLINE
    assert job.reason == "[ConnectionError] busy"


@on_each_store
def test_r_000_27_each_retry_is_announced_with_the_job(queue):
    task = failing(ValueError("first"), ValueError("second"))
    job = queue.enqueue(task(), retry=RetryOptions(3, 2.0, 9.0))
    with collected(job_retried) as sent:
        queue.drain(ahead=60)

    told = [payload for _, payload in sent]
    assert [payload["attempt"] for payload in told] == [1, 2]
    assert [payload["max_attempts"] for payload in told] == [3, 3]
    assert [payload["delay"] for payload in told] == [2.0, 4.0]
    assert [str(payload["error"]) for payload in told] == ["first", "second"]
    assert {payload["job"].id for payload in told} == {job.id}
    assert {payload["sender"] for payload in told} == {task}


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
@on_each_store
def test_an_error_with_any_text_is_stored(queue, text):
    job = queue.enqueue(failing(*[ValueError(text)] * 3)(), retry=RetryOptions(2, 2, 3))
    after = queue.enqueue(Fine())
    queue.drain(ahead=60)

    assert (job.refresh().state, after.refresh().state) == (DEAD, DONE)
    assert [error.error.message[0] for error in job.attempts] == ["a", "a"]
    assert queue.find(error=ValueError)[0].id == job.id


# -- the same as inline ----------------------------------------------------------------

SECONDS = (0, 0.25, 0.5, 1.5, 4, 64)
"""Parts of a second whose sums are exact."""


class Down(ConnectionError):
    pass


class Slow(TimeoutError):
    pass


class Wrong(ValueError):
    pass


ERRORS = (Down, Slow, Wrong, Busy)
LISTED = (*ERRORS, OSError, ConnectionError, Exception, LookupError)


class Raised(NamedTuple):
    """What an attempt does: the error, what it asks for, and how long it takes."""

    error: type[Exception] | None
    retry_after: float | None
    seconds: float

    def do(self, task):
        clock.current.get().advance(self.seconds)
        if self.error is None:
            return task.fail(f"halted at {task.attempt}")
        error = self.error(f"number {task.attempt}")
        if self.retry_after is not None:
            error.retry_after = self.retry_after
        raise error


class Case(NamedTuple):
    """A policy, and what happens."""

    rules: list[dict]
    retry: RetryOptions | None
    plan: list[Raised]
    randoms: list[float]
    longest_pause: float
    is_async: bool


GATES = {
    "even": lambda _task, _error, attempt: attempt % 2 == 0,
    "not the third": lambda error: "2" not in str(error),
    "late": lambda task, _error, _attempt: task.attempt > 0,
    "never": False,
}

JITTERS = (
    "exponential", "linear", "full_jitter", "equal_jitter", "half_random",
    "decorrelated_jitter", "fibonacci", "own",
)  # fmt: skip

brakes = st.one_of(
    st.just({}),
    st.just({}),
    st.just({"guided": True}),
    st.fixed_dictionaries({"if_": st.sampled_from(sorted(GATES))}),
    st.fixed_dictionaries({"unless": st.sampled_from(sorted(GATES))}),
    st.fixed_dictionaries({"deadline": st.sampled_from([0, 0.5, 2, 8, 8, 100])}),
    st.fixed_dictionaries({"budget": st.integers(0, 3)}),
)
bare_rules = st.fixed_dictionaries(
    {"exceptions": st.lists(st.sampled_from(LISTED), min_size=1, max_size=3)},
    optional={
        "rule": st.sampled_from(["network", "slow", "other"]),
        "limit": st.integers(0, 4),
        "delay": st.sampled_from(SECONDS),
        "max_delay": st.sampled_from(SECONDS),
        "jitter": st.sampled_from(JITTERS),
    },
)
rules_of_a_class = st.builds(lambda rule, brake: rule | brake, bare_rules, brakes)
delays_of_options = st.sampled_from([(0.25, 1), (1, 4), (0.5, 64), (2, 2)])
options_of_a_call = st.builds(
    lambda attempts, delays: RetryOptions(attempts, *delays),
    st.integers(1, 5),
    delays_of_options,
)
raised = st.builds(
    Raised,
    st.sampled_from([*ERRORS, *ERRORS, *ERRORS, None]),
    st.sampled_from([None, None, None, None, 0, 2, 3600, 4000]),
    st.sampled_from([0, 0, 0.5, 3]),
)
cases = st.builds(
    Case,
    st.lists(rules_of_a_class, max_size=3),
    st.none() | options_of_a_call,
    st.integers(0, 8).flatmap(lambda count: st.lists(raised, min_size=count)),
    st.lists(st.sampled_from([0, 0.25, 0.5, 0.75]), min_size=1, max_size=4),
    st.sampled_from([0, 1.0, 1e9]),
    st.sampled_from([False, False, False, True]),
)


def declared(rule):
    """Return the exceptions and keywords of one line of ``retry_on``."""
    keywords = dict(rule)
    exceptions = keywords.pop("exceptions")
    for gate in ("if_", "unless"):
        if gate in keywords:
            keywords[gate] = GATES[keywords[gate]]
    if keywords.get("jitter") == "own":
        keywords["jitter"] = lambda attempt, delay, previous: (
            delay + attempt + (previous or 0.0)
        )
    if "budget" in keywords:
        keywords["budget"] = RetryBudget(0.5, keywords["budget"], 8.0)
    return exceptions, keywords


def task_of(case, name):
    """Return a class with the policy of a case; its budgets are its own."""
    done = []

    class Flaky(Task[str], name=name):
        @after_execution
        def complete(self):
            done.append((self.run_id, self.attempt))

        def work(self) -> str:
            if self.attempt < len(case.plan):
                return case.plan[self.attempt].do(self)
            return f"done at {self.attempt}"

    if case.is_async:
        plain = Flaky.work

        async def work(self) -> str:
            await asyncio.sleep(0)
            return plain(self)

        Flaky = type(Flaky)("Flaky", (Flaky,), {"work": work}, name=f"{name}.async")  # noqa: N806
    for rule in case.rules:
        exceptions, keywords = declared(rule)
        retry_on(exceptions, **keywords)(Flaky)
    return Flaky, done


def run_inline(task, options):
    """Run a task here under the policy of a job."""
    invocation = task()
    run = begin_leg(invocation, None, math.inf, awaits=task._cmdx_.plan.awaits)
    run.plan = plan_under(task, options)
    steps = lifecycle(invocation, run)
    return asyncio.run(steps) if task._cmdx_.plan.awaits else drive(steps)


def run_as_job(task, case):
    """Run a task as a job, to its end; return the job and its result."""
    with SqliteStore() as store:
        queue = Queue(store, longest_pause=case.longest_pause, keep=1e8)
        job = queue.enqueue(task(), retry=case.retry)
        queue.drain(ahead=1e6)
        job.refresh()
        assert job.state is (DEAD if job.result.failed else DONE)
        return job, job.result


def shown(result):
    """Return what must be equal of a result."""
    cause = result.cause
    return {
        "status": result.status,
        "reason": result.reason,
        "retries": result.retries,
        "stopped": result.stopped,
        "cause": None if cause is None else (error_name(cause), str(cause)),
        "attempts": [
            (
                None if attempt.error is None else error_name(attempt.error),
                None if attempt.error is None else str(attempt.error),
                attempt.pause,
                attempt.rule,
            )
            for attempt in result.attempts
        ],
    }


def observed(run, case):
    """Return the value of *run*, and what was told of retries meanwhile."""
    with (
        clock.use(StillClock()),
        virtual_time(randoms=cycle(case.randoms)),
        collected(task_retried) as sent,
    ):
        value = run()
    told = [
        (payload["attempt"], payload["delay"], payload["rule"], str(payload["error"]))
        for _, payload in sent
    ]
    return value, told


NETWORK = {"exceptions": [OSError], "rule": "network", "delay": 4, "limit": 3}


@settings(deadline=None, max_examples=150)
@given(case=cases)
@example(
    case=Case(
        [{**NETWORK, "budget": 1, "deadline": 100}, {"exceptions": [Wrong]}],
        RetryOptions(4, 1, 4),
        [Raised(Down, None, 3), Raised(Busy, 3600, 0), Raised(Slow, None, 0)],
        [0.5],
        1.0,
        False,
    )
)
def test_a_job_ends_as_the_inline_run_under_its_policy_does(case):
    inline, done_inline = task_of(case, "queue.inline")
    queued, done_queued = task_of(case, "queue.flaky")

    (job, in_queue), told_queued = observed(lambda: run_as_job(queued, case), case)
    options = options_from(job._record.options)
    here, told_here = observed(lambda: run_inline(inline, options), case)

    assert shown(in_queue) == shown(here)
    assert in_queue.value_or(None) == here.value_or(None)
    assert told_queued == told_here
    assert len(told_here) == here.retries
    assert len(done_queued) == len(done_inline) == 1
    assert done_queued[0][1] == done_inline[0][1]


def test_a_job_without_an_added_rule_runs_by_the_policy_of_its_class(queue):
    task = failing(ConnectionError("busy"))
    retry_on(ConnectionError, delay=2.0)(task)
    job = queue.enqueue(task())
    queue.drain(ahead=60)

    assert job.policy == task.retry_policy
    assert isinstance(job.policy, RetryPolicy)
    assert shown(job.refresh().result) == shown(task.execute())


def test_a_job_that_died_tells_the_result(queue):
    with collected(job_died) as sent:
        job = queue.enqueue(Plain())
        queue.drain(ahead=60)

    ((_, payload),) = sent
    assert payload["job"].id == job.id
    assert payload["result"].reason == "[ValueError] no"
    assert payload["sender"] is Plain
