"""Runs that are suspended instead of pausing, and go on in another invocation."""

from __future__ import annotations

import asyncio
import copy
import json
import multiprocessing
import pickle
import random
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdx import (
    RetryBudget,
    Stop,
    Suspended,
    Task,
    Workflow,
    after_execution,
    around_execution,
    before_execution,
    clock,
    middleware,
    retry_on,
    task_cancelled,
    task_executed,
    task_retried,
    task_rolled_back,
    task_started,
)
from cmdx.testing import instant as virtual_time


@pytest.fixture(params=["sync", "async"])
def leg(request):
    """Run an invocation in one sitting."""
    if request.param == "sync":
        return lambda task, **keywords: task.run(**keywords)
    return lambda task, **keywords: asyncio.run(task.arun(**keywords))


@pytest.fixture(params=["as it is", "as JSON"])
def sent(request):
    """Hand a suspension on, in this process or to another."""
    if request.param == "as it is":
        return lambda suspended: suspended
    return lambda suspended: json.loads(json.dumps(suspended.to_dict()))


@pytest.fixture
def in_legs(leg, sent):
    """Run a task leg by leg, with the pauses in between; return its result."""

    def run(make, *, longest_pause=0.0):
        earlier, legs = None, 0
        while True:
            legs += 1
            try:
                result = leg(make(), earlier=earlier, longest_pause=longest_pause)
            except Suspended as suspended:
                clock.current.get().sleep(suspended.pause)
                earlier = sent(suspended)
                del suspended
            else:
                return result, legs

    return run


@retry_on(ConnectionError, limit=3, delay=2.0, jitter="exponential")
class Flaky(Task[str]):
    works_at: int = 9

    def work(self) -> str:
        if self.attempt < self.works_at:
            raise ConnectionError(f"busy {self.attempt}")
        return f"done by {self.run_id}"


NEVER_RUN = Suspended(
    task=f"{__name__}:Flaky",
    run_id="1",
    xid=None,
    started_at=0.0,
    attempts=(),
    metadata={},
    errors=(),
    pause=1.0,
)


def shown(attempts):
    """What must be equal of attempts that were made here or elsewhere."""
    return [
        (
            getattr(attempt.error, "type_name", type(attempt.error).__name__),
            str(attempt.error),
            attempt.pause,
            attempt.rule,
        )
        for attempt in attempts
    ]


# -- suspending ----------------------------------------------------------------------


def test_a_pause_that_is_too_long_suspends_the_run(leg, instant):
    with pytest.raises(Suspended) as raised:
        leg(Flaky(), longest_pause=1.0)

    suspended = raised.value
    assert suspended.pause == 2.0
    assert [attempt.error.message for attempt in suspended.attempts] == ["busy 0"]
    assert instant.pauses == []


def test_a_pause_that_is_not_too_long_is_slept(leg, instant):
    with pytest.raises(Suspended) as raised:
        leg(Flaky(), longest_pause=4.0)

    assert raised.value.pause == 8.0
    assert instant.pauses == [2.0, 4.0]


@pytest.mark.usefixtures("instant")
def test_without_the_keyword_nothing_is_suspended(leg):
    assert leg(Flaky()).stopped is Stop.EXHAUSTED


@pytest.mark.parametrize("longest_pause", [-1, float("nan"), "long", True])
def test_a_longest_pause_that_is_no_number_of_seconds_is_refused(leg, longest_pause):
    with pytest.raises(ValueError, match="longest_pause must be"):
        leg(Flaky(), longest_pause=longest_pause)


@pytest.mark.parametrize(
    ("earlier", "error", "message"),
    [
        ({}, ValueError, "attempts is missing"),
        ("a suspension", TypeError, "Suspended that a run has raised"),
        (NEVER_RUN, TypeError, "Suspended that a run has raised"),
    ],
    ids=["nothing", "text", "no attempt"],
)
def test_what_is_no_suspension_is_refused_before_the_run(leg, earlier, error, message):
    task = Flaky(works_at=0)

    with pytest.raises(error, match=message):
        leg(task, earlier=earlier)

    assert leg(task).success


def suspension():
    """What a run of ``Flaky`` leaves that has to wait."""
    with virtual_time(), pytest.raises(Suspended) as raised:
        Flaky().run(longest_pause=0)
    return raised.value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pause": "soon"}, "pause cannot be str"),
        ({"pause": True}, "pause cannot be bool"),
        ({"pause": float("nan")}, "pause cannot be NaN"),
        ({"pause": -1}, "pause cannot be negative"),
        ({"started_at": None}, "started_at cannot be NoneType"),
        ({"run_id": 7}, "run_id cannot be int"),
        ({"metadata": [1]}, "metadata cannot be list"),
        ({"attempts": None}, "attempts cannot be NoneType"),
        ({"attempts": [7]}, r"attempts\[0\] cannot be int"),
        ({"attempts": [{}]}, r"attempts\[0\]\.duration is missing"),
        ({"errors": [["name"]]}, r"errors\[0\] must be a key, a message and a code"),
        ({"errors": [["name", 5, None]]}, r"errors\[0\]\.message cannot be int"),
        ({"other": 1}, "other is not known"),
    ],
    ids=repr,
)
def test_an_edited_suspension_is_refused_with_its_path(change, message):
    data = {**suspension().to_dict(), **change}

    with pytest.raises(ValueError, match=f"to_dict.. returns: {message}"):
        Flaky().run(earlier=data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pause": "soon"}, r"attempts\[0\]\.pause cannot be str"),
        ({"rule": 5}, r"attempts\[0\]\.rule cannot be int"),
        ({"error": "down"}, r"attempts\[0\]\.error cannot be str"),
        ({"error": {"message": "x"}}, r"attempts\[0\]\.error\.traceback is missing"),
    ],
    ids=repr,
)
def test_an_edited_attempt_is_refused_with_its_path(change, message):
    data = suspension().to_dict()
    data["attempts"][0] |= change

    with pytest.raises(ValueError, match=message):
        Flaky().run(earlier=data)


class Other(Flaky):
    """Another task, though its policy and inputs are the same."""


class Named(Flaky, name="continuation.named"):
    """A task with a name of its own."""


@pytest.mark.usefixtures("instant")
def test_another_task_does_not_continue_a_run(leg):
    task = Other(works_at=0)

    with pytest.raises(
        ValueError, match=r"a run of \S+:Flaky was suspended, and \S+:O"
    ):
        leg(task, earlier=pickle.loads(pickle.dumps(suspension())))

    assert leg(task).success


@pytest.mark.parametrize(
    ("task", "name", "is_same"),
    [
        (Flaky, f"{__name__}:Flaky", True),
        (Flaky, "__main__:Flaky", True),
        (Flaky, "elsewhere:Flaky", False),
        (Flaky, "__main__:Other", False),
        (Named, "continuation.named", True),
        (Named, f"{__name__}:Named", False),
    ],
)
@pytest.mark.usefixtures("instant")
def test_a_task_is_the_same_by_its_name_or_else_its_place(task, name, is_same):
    earlier = Suspended.from_dict(suspension().to_dict(), name)
    if is_same:
        assert task(works_at=1).run(earlier=earlier).success
    else:
        with pytest.raises(ValueError, match="cannot continue it"):
            task(works_at=1).run(earlier=earlier)


# -- copies --------------------------------------------------------------------------


def by_pickle(suspended):
    return pickle.loads(pickle.dumps(suspended))


@pytest.mark.parametrize("copied", [by_pickle, copy.copy, copy.deepcopy])
def test_a_suspension_can_be_pickled_and_copied(copied):
    suspended = suspension()
    suspended.metadata = {"lock": threading.Lock(), "count": 7}
    again = copied(suspended)

    assert type(again) is Suspended
    assert again.to_dict() == suspended.to_dict()
    assert again.metadata["count"] == 7
    assert str(again) == str(suspended)


def suspend_in_another_process():
    Flaky().run(longest_pause=0)


def test_a_suspension_leaves_a_process_pool():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        raised = pool.submit(suspend_in_another_process).exception()

    assert isinstance(raised, Suspended)
    assert raised.task == f"{__name__}:Flaky"


class Unprintable:
    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


def test_only_a_mapping_is_read_as_a_suspension():
    with pytest.raises(ValueError, match="returns: it cannot be list"):
        Suspended.from_dict([])


@pytest.mark.usefixtures("instant")
def test_whatever_a_leg_has_noted_can_be_stored():
    class Down(ConnectionError):
        def __len__(self):
            return 0

    @retry_on(ConnectionError, delay=1)
    class Odd(Task[None], correlation_id=lambda: 42):
        def work(self) -> None:
            self.metadata[7] = Unprintable()
            self.errors.add("a", 5)
            self.errors.add("b", Unprintable(), Unprintable())
            error = Down("at night")
            error.add_note("and by day")
            raise error

    with pytest.raises(Suspended) as raised:
        Odd().run(longest_pause=0)
    data = json.loads(json.dumps(raised.value.to_dict()))

    assert Suspended.from_dict(data).to_dict() == data
    assert data["attempts"][0]["error"]["message"] == "at night"
    assert data["xid"] == "42"
    assert data["metadata"] == {"7": "<Unprintable>"}
    assert data["errors"] == [
        ["a", "5", None],
        ["b", "<Unprintable>", "<Unprintable>"],
    ]


# -- going on ------------------------------------------------------------------------


@pytest.mark.parametrize("works_at", [0, 1, 3, 9])
@pytest.mark.usefixtures("instant")
def test_a_run_in_legs_ends_as_one_in_one_sitting(leg, in_legs, works_at):
    whole = leg(Flaky(works_at=works_at))
    result, legs = in_legs(lambda: Flaky(works_at=works_at))

    assert legs == min(works_at, 3) + 1
    assert (result.status, result.retries, result.stopped) == (
        whole.status,
        whole.retries,
        whole.stopped,
    )
    assert shown(result.attempts) == shown(whole.attempts)
    assert [attempt.start for attempt in result.attempts] == pytest.approx(
        [attempt.start for attempt in whole.attempts], abs=0.5
    )
    if whole.failed:
        assert result.reason == whole.reason
        assert isinstance(result.cause, ConnectionError)


@pytest.mark.usefixtures("instant")
def test_a_continued_run_keeps_its_id_and_its_start(in_legs):
    ids = set()

    @retry_on(ConnectionError, delay=60)
    class Note(Flaky):
        def work(self) -> str:
            ids.add((self.run_id, self.tid))
            return super().work()

    before = clock.current.get().time()
    result, _ = in_legs(lambda: Note(works_at=2))

    assert ids == {(result.run_id, result.tid)}
    assert result.value == f"done by {result.run_id}"
    assert result.started_at.timestamp() == pytest.approx(before, abs=0.5)
    assert result.duration == pytest.approx(60 + 120, abs=0.5)


@pytest.mark.usefixtures("instant")
def test_a_continued_run_keeps_metadata_errors_and_correlation_id(in_legs):
    @retry_on(ConnectionError, delay=1)
    class Noting(Task[None], correlation_id=lambda: f"request {random.random()}"):
        def work(self) -> None:
            self.metadata[f"seen {self.attempt}"] = self.attempt
            if self.attempt == 0:
                self.metadata["xid"] = self.context.xid = current_xid(self)
                self.errors.add("name", "is empty", "blank")
                raise ConnectionError
            assert current_xid(self) == self.metadata["xid"]

    result, _ = in_legs(Noting)

    assert result.reason == "name is empty"
    assert [problem.code for problem in result.errors] == ["blank"]
    assert {"seen 0", "seen 1"} < set(result.metadata)
    assert result.xid == result.metadata["xid"]


def current_xid(task):
    return task._cmdx_.chain.xid


@pytest.mark.usefixtures("instant")
def test_each_rule_goes_on_with_its_own_count_and_pause(leg, in_legs):
    pauses = {"slow": [], "fast": []}

    def noting(name):
        def jitter(attempt, delay, previous):
            pauses[name].append((attempt, previous))
            return delay + attempt

        return jitter

    @retry_on(ConnectionError, rule="slow", limit=3, delay=5, jitter=noting("slow"))
    @retry_on(TimeoutError, rule="fast", limit=2, delay=1, jitter=noting("fast"))
    class Both(Task[None]):
        def work(self) -> None:
            raise (ConnectionError if self.attempt % 2 else TimeoutError)("down")

    whole = leg(Both())
    expected = {name: list(told) for name, told in pauses.items()}
    for told in pauses.values():
        told.clear()
    result, _ = in_legs(Both)

    assert pauses == expected
    assert shown(result.attempts) == shown(whole.attempts)
    assert result.stopped is whole.stopped


# -- the deadline and budgets --------------------------------------------------------


def limited(**options):
    @retry_on(ConnectionError, **{"limit": 9, "delay": 10} | options)
    class Limited(Flaky):
        pass

    return Limited


@pytest.mark.usefixtures("instant")
def test_the_deadline_counts_from_the_first_leg(leg, in_legs):
    whole = leg(limited(deadline=25, jitter=lambda: 10)())
    result, _ = in_legs(limited(deadline=25, jitter=lambda: 10))

    assert result.stopped is whole.stopped is Stop.DEADLINE
    assert result.retries == whole.retries == 2


def test_a_leg_that_begins_after_the_deadline_calls_nothing(leg, sent, instant):
    calls = []

    @retry_on(ConnectionError, limit=9, delay=10, jitter=lambda: 10, deadline=25)
    class Late(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            raise ConnectionError("busy")

        def rollback(self) -> None:
            calls.append("undone")

    with pytest.raises(Suspended) as raised:
        leg(Late(), longest_pause=1)
    instant.advance(3600)
    result = leg(Late(), earlier=sent(raised.value))

    assert calls == [0, "undone"]
    assert result.stopped is Stop.DEADLINE
    assert result.reason == "[ConnectionError] busy"
    assert result.retries == 0
    assert [attempt.pause for attempt in result.attempts] == [None]


@pytest.mark.usefixtures("instant")
def test_a_continued_leg_deposits_nothing_into_budgets(in_legs):
    class Counting(RetryBudget):
        deposits = 0

        def deposit(self):
            self.deposits += 1
            super().deposit()

    budget = Counting()
    _, legs = in_legs(limited(budget=budget, limit=3, jitter=None))

    assert legs == 4
    assert budget.deposits == 1


# -- what happens in each leg, and what in the last one -------------------------------


@pytest.mark.usefixtures("instant")
def test_each_leg_is_opened_and_only_the_last_one_ends_the_run(in_legs):
    told = []

    def wrap(_task):
        told.append("open")
        try:
            yield
        finally:
            told.append("close")

    @middleware(wrap)
    @retry_on(ConnectionError, limit=1, delay=60)
    class Told(Task[None]):
        @before_execution
        def before(self):
            told.append("before")

        @around_execution
        def around(self):
            told.append("around")
            yield

        def work(self):
            told.append("work")
            raise ConnectionError

        def rollback(self):
            told.append("rollback")

        @after_execution
        def after(self):
            told.append("after")

    in_legs(Told)

    opened = ["open", "before", "around", "work"]
    assert told == [*opened, "close", *opened, "rollback", "after", "close"]


@pytest.mark.usefixtures("instant")
def test_the_signals_of_legs(in_legs):
    heard = []

    def hear(signal):
        def receive(_sender, **payload):
            heard.append((signal.name, payload.get("attempt")))

        return receive

    signals = (
        task_started, task_retried, task_executed, task_cancelled, task_rolled_back
    )  # fmt: skip
    receivers = [(signal, hear(signal)) for signal in signals]
    for signal, receiver in receivers:
        signal.connect(receiver)
    try:
        in_legs(lambda: Flaky(works_at=2))
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver)

    assert heard == [
        ("task_started", None),
        ("task_started", None),
        ("task_retried", 1),
        ("task_started", None),
        ("task_retried", 2),
        ("task_executed", None),
    ]


@pytest.mark.usefixtures("instant")
def test_tasks_inside_a_run_sleep_their_pauses(leg, instant):
    class Outer(Workflow[str]):
        steps = (Flaky,)

    result = leg(Outer(works_at=2), longest_pause=0)

    assert result.success
    assert instant.pauses == [2.0, 4.0]


def test_a_suspension_of_another_run_is_an_interrupt_of_this_one(instant):
    undone = []

    class Outer(Task[None]):
        def work(self) -> None:
            Flaky().run(longest_pause=0)

        def rollback(self) -> None:
            undone.append("undone")

    with pytest.raises(Suspended):
        Outer.execute()

    assert undone == ["undone"]
    assert instant.pauses == []


# -- any policy ----------------------------------------------------------------------

POLICIES = st.fixed_dictionaries(
    {
        "limit": st.integers(0, 5),
        "delay": st.sampled_from([0, 0.5, 3]),
        "jitter": st.sampled_from(
            [None, "exponential", "full_jitter", "decorrelated_jitter", "linear"]
        ),
        "max_delay": st.sampled_from([None, 2, 30]),
        "deadline": st.sampled_from([None, 5, 60]),
    }
)


@given(POLICIES, st.integers(0, 6), st.sampled_from([0.0, 1.0, 5.0]), st.integers())
def test_whatever_the_policy_legs_make_no_difference(options, works_at, longest, seed):
    @retry_on(ConnectionError, **options)
    class Any(Flaky):
        pass

    with virtual_time() as time:
        time.random = random.Random(seed).random
        whole = Any(works_at=works_at).run()
    with virtual_time() as time:
        time.random = random.Random(seed).random
        earlier = None
        while True:
            try:
                result = Any(works_at=works_at).run(
                    earlier=earlier, longest_pause=longest
                )
                break
            except Suspended as suspended:
                earlier = json.loads(json.dumps(suspended.to_dict()))
                time.sleep(suspended.pause)

    assert (result.status, result.stopped, result.retries) == (
        whole.status,
        whole.stopped,
        whole.retries,
    )
    assert shown(result.attempts) == shown(whole.attempts)
