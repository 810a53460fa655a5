"""Five signals tell what tasks do, and nobody who listens changes it."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import ExitStack

import pytest

from cmdx import (
    DeprecatedTaskError,
    Status,
    Task,
    middleware,
    retry_on,
    task_deprecated,
    task_executed,
    task_retried,
    task_rolled_back,
    task_started,
    telemetry,
)

SIGNALS = {
    "task_started": task_started,
    "task_deprecated": task_deprecated,
    "task_retried": task_retried,
    "task_rolled_back": task_rolled_back,
    "task_executed": task_executed,
}


@pytest.fixture
def heard():
    """All that is sent during a test: the name of the signal, sender and payload."""
    messages = []

    def listening(name):
        return lambda sender, **payload: messages.append((name, sender, payload))

    with ExitStack() as stack:
        for name, signal in SIGNALS.items():
            stack.enter_context(signal.connected_to(listening(name)))
        yield messages


def names_of(messages):
    return [name for name, _, _ in messages]


class Good(Task[int]):
    def work(self) -> int:
        return 1


@retry_on(TimeoutError, limit=2, delay=0.25)
class Flaky(Task[int]):
    def work(self) -> int:
        if self.attempt < self.context.failures:
            raise TimeoutError(f"attempt {self.attempt}")
        return self.attempt


class Undone(Task[None]):
    def work(self) -> None:
        self.fail("no")

    def rollback(self) -> None:
        if self.context.get("stuck"):
            raise OSError("stuck")


class Old(Good, deprecated=lambda _: None):
    pass


class Everything(Flaky, deprecated=lambda _: None):
    def rollback(self) -> None: ...


# -- which signals, when --------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "inputs", "sent"),
    [
        (Good, {}, ["task_started", "task_executed"]),
        (Old, {}, ["task_started", "task_deprecated", "task_executed"]),
        (Undone, {}, ["task_started", "task_rolled_back", "task_executed"]),
        (Flaky, {"failures": 0}, ["task_started", "task_executed"]),
        (Flaky, {"failures": 1}, ["task_started", "task_retried", "task_executed"]),
        (
            Everything,
            {"failures": 3},
            [
                "task_started",
                "task_deprecated",
                "task_retried",
                "task_retried",
                "task_rolled_back",
                "task_executed",
            ],
        ),
    ],
)
@pytest.mark.usefixtures("instant")
def test_signals_are_sent_in_the_order_of_the_lifecycle(heard, task, inputs, sent):
    task.execute(**inputs)

    assert names_of(heard) == sent


@pytest.mark.usefixtures("instant")
def test_a_coroutine_sends_the_same_signals(heard):
    @retry_on(TimeoutError, limit=1)
    class Later(Task[None], deprecated=lambda _: None):
        async def work(self) -> None:
            raise TimeoutError

        async def rollback(self) -> None: ...

    asyncio.run(Later.aexecute())

    assert names_of(heard) == [
        "task_started",
        "task_deprecated",
        "task_retried",
        "task_rolled_back",
        "task_executed",
    ]


def test_the_sender_is_the_class_and_the_task_is_the_one_that_runs(heard):
    class Naming(Task[str]):
        def work(self) -> str:
            return self.tid

    result = Naming.execute()

    assert {sender for _, sender, _ in heard} == {Naming}
    assert {payload["task"].tid for _, _, payload in heard} == {result.value}
    assert all(type(payload["task"]) is Naming for _, _, payload in heard)


def test_a_nested_task_sends_its_own_signals_between_those_of_its_parent(heard):
    class Parent(Task[None]):
        def work(self) -> None:
            Good.execute()

    Parent.execute()

    assert [(name, sender) for name, sender, _ in heard] == [
        ("task_started", Parent),
        ("task_started", Good),
        ("task_executed", Good),
        ("task_executed", Parent),
    ]


def test_started_is_sent_inside_the_middlewares_and_executed_after_them(heard):
    def noting(_task):
        heard.append(("middleware opens", None, {}))
        yield
        heard.append(("middleware closes", None, {}))

    @middleware(noting)
    class Wrapped(Good):
        pass

    Wrapped.execute()

    assert names_of(heard) == [
        "middleware opens",
        "task_started",
        "middleware closes",
        "task_executed",
    ]


def test_a_task_that_a_middleware_kept_from_starting_was_still_executed(heard):
    def forbidding(task):
        task.fail("not today")
        yield

    @middleware(forbidding)
    class Forbidden(Good):
        pass

    Forbidden.execute()

    assert names_of(heard) == ["task_executed"]
    assert heard[0][2]["result"].reason == "not today"


# -- payloads -------------------------------------------------------------------


@pytest.mark.usefixtures("instant")
def test_every_signal_carries_what_belongs_to_it_and_no_more(heard):
    Everything.execute(failures=3)

    assert {name: set(payload) for name, _, payload in heard} == {
        "task_started": {"task"},
        "task_deprecated": {"task"},
        "task_retried": {
            "task",
            "attempt",
            "delay",
            "error",
            "rule",
            "depth",
            "product",
        },
        "task_rolled_back": {"task", "error"},
        "task_executed": {"task", "result"},
    }


def test_retried_tells_attempt_delay_error_and_rule(instant, heard):
    @retry_on(TimeoutError, limit=1, delay=0.25)
    @retry_on(KeyError, limit=1, delay=2.0, rule="keys")
    class TwoRules(Task[None]):
        def work(self) -> None:
            if self.attempt == 0:
                raise TimeoutError("slow")
            if self.attempt == 1:
                raise KeyError("missing")

    result = TwoRules.execute()
    first, second = (payload for name, _, payload in heard if name == "task_retried")

    assert (first["attempt"], first["delay"], first["rule"]) == (1, 0.25, None)
    assert (second["attempt"], second["delay"], second["rule"]) == (2, 2.0, "keys")
    assert first["error"] is result.attempts[0].error
    assert second["error"] is result.attempts[1].error
    assert instant.pauses == [0.25, 2.0]


def test_retried_is_sent_after_the_pause_at_the_start_of_the_attempt(instant):
    seen = []

    @retry_on(TimeoutError, limit=1, delay=0.25)
    class Again(Task[None]):
        def work(self) -> None:
            seen.append(f"work {self.attempt}")
            raise TimeoutError

    def note(_sender, *, task, **_):
        seen.append(f"retried {task.attempt} after {instant.pauses}")

    with task_retried.connected_to(note):
        Again.execute()

    assert seen == ["work 0", "retried 1 after [0.25]", "work 1"]


def test_retried_tells_no_delay_when_there_was_no_pause(heard):
    @retry_on(TimeoutError, limit=1, delay=0)
    class AtOnce(Task[None]):
        def work(self) -> None:
            raise TimeoutError

    AtOnce.execute()
    (payload,) = (payload for name, _, payload in heard if name == "task_retried")

    assert payload["delay"] == 0.0


@pytest.mark.parametrize(
    ("inputs", "error"), [({}, type(None)), ({"stuck": True}, OSError)]
)
def test_rolled_back_tells_what_the_rollback_raised(heard, inputs, error):
    Undone.execute(**inputs)
    (payload,) = (payload for name, _, payload in heard if name == "task_rolled_back")

    assert type(payload["error"]) is error


def test_executed_carries_the_finished_result(heard):
    result = Good.execute()
    payload = heard[-1][2]

    assert payload["result"] == result
    assert payload["result"].status is Status.SUCCESS
    assert payload["result"].duration > 0


def test_executed_carries_a_result_that_has_joined_its_chain():
    chains = []

    class Parent(Task[None]):
        def work(self) -> None:
            Good.execute()

    def note(_sender, *, result, **_):
        chains.append([each.task for each in result.chain])

    with task_executed.connected_to(note):
        Parent.execute()

    assert chains == [[Good], [Parent, Good]]


def test_deprecated_is_sent_also_when_the_task_refuses_to_run(heard):
    class Gone(Good, deprecated="error"):
        pass

    with pytest.raises(DeprecatedTaskError):
        Gone.execute()

    assert names_of(heard) == ["task_deprecated"]


@pytest.mark.usefixtures("instant")
def test_no_payload_shows_inputs_or_context(heard):
    @retry_on(TimeoutError, limit=1)
    class Secretive(Task[None], deprecated=lambda _: None):
        def work(self) -> None:
            self.context.written = "hunter3"
            raise TimeoutError

        def rollback(self) -> None: ...

    Secretive.execute(given="hunter2")

    assert len(heard) == 5
    assert "hunter" not in repr(heard)


# -- who hears what -------------------------------------------------------------


def test_a_receiver_connected_to_a_class_hears_that_class_alone():
    class Child(Good):
        pass

    senders = []

    def note(sender, **_):
        senders.append(sender)

    with task_executed.connected_to(note, sender=Good):
        Good.execute()
        Child.execute()
        Flaky.execute(failures=0)

    assert senders == [Good]


def test_telemetry_connect_hears_a_class_and_its_descendants():
    class Child(Good):
        pass

    class Grandchild(Child):
        pass

    heard = []

    def note(sender, *, task, result):
        heard.append((sender, type(task), result.status))

    disconnect = telemetry.connect(task_executed, note, task=Child)
    try:
        for task in (Good, Child, Grandchild, Undone):
            task.execute()
    finally:
        disconnect()
    Child.execute()

    assert heard == [
        (Child, Child, Status.SUCCESS),
        (Grandchild, Grandchild, Status.SUCCESS),
    ]


def test_telemetry_connect_keeps_a_receiver_that_nobody_else_keeps():
    class Local(Good):
        pass

    heard = []
    telemetry.connect(
        task_executed, lambda sender, **_: heard.append(sender), task=Local
    )
    gc.collect()
    Local.execute()
    for receiver in list(task_executed.receivers_for(Local)):
        task_executed.disconnect(receiver)

    assert heard == [Local]


def test_nothing_is_sent_while_a_signal_is_muted(heard):
    with task_executed.muted():
        Good.execute()
    Good.execute()

    assert names_of(heard) == ["task_started", "task_started", "task_executed"]


def test_a_receiver_that_disconnects_itself_does_not_disturb_the_others():
    calls = []

    def first(_sender, **_):
        calls.append("first")
        task_executed.disconnect(first)

    def second(_sender, **_):
        calls.append("second")

    with task_executed.connected_to(first), task_executed.connected_to(second):
        Good.execute()
        Good.execute()

    assert sorted(calls) == ["first", "second", "second"]


# -- receivers at their own risk ------------------------------------------------


def raising(_sender, **_):
    raise LookupError("the receiver is broken")


def halting(_sender, *, task, **_):
    task.fail("the receiver wants it to fail", code=500)


async def awaiting(_sender, **_):
    pytest.fail("nobody awaits a receiver")


@pytest.mark.parametrize("receiver", [raising, halting, awaiting])
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.usefixtures("instant")
def test_a_receiver_never_changes_a_run(name, receiver, caplog):
    untouched = Everything.execute(failures=3)
    with SIGNALS[name].connected_to(receiver), caplog.at_level(logging.ERROR, "cmdx"):
        result = Everything.execute(failures=3)

    assert result.reason == untouched.reason == "[TimeoutError] attempt 2"
    assert result.retries == untouched.retries == 2
    assert result.stopped is untouched.stopped
    assert result.rolled_back
    assert result.metadata == {}


@pytest.mark.parametrize("receiver", [raising, halting, awaiting])
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.usefixtures("instant")
def test_a_bad_receiver_is_reported_to_the_logger_of_cmdx(name, receiver, caplog):
    with SIGNALS[name].connected_to(receiver), caplog.at_level(logging.ERROR, "cmdx"):
        Everything.execute(failures=1 if name != "task_rolled_back" else 3)

    assert {record.name for record in caplog.records} == {"cmdx"}
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert all(name in record.getMessage() for record in caplog.records)
    assert all("Everything" in record.getMessage() for record in caplog.records)


def test_the_report_has_the_exception_of_the_receiver(caplog):
    with task_started.connected_to(raising):
        Good.execute()
    (record,) = caplog.records

    assert record.exc_info[0] is LookupError
    assert "the receiver is broken" in caplog.text


def test_the_report_of_an_async_receiver_says_what_to_do(caplog):
    with task_started.connected_to(awaiting):
        Good.execute()

    assert "is async" in caplog.text
    assert "plain function" in caplog.text


def test_the_receivers_after_a_bad_one_are_still_called(caplog):
    heard = []

    def note(sender, **_):
        heard.append(sender)

    with (
        task_started.connected_to(raising),
        task_started.connected_to(note),
        task_started.connected_to(halting),
    ):
        Good.execute()

    assert heard == [Good]
    assert len(caplog.records) == 2


def test_a_descendant_receiver_is_isolated_too(caplog):
    disconnect = telemetry.connect(task_executed, raising, task=Good)
    try:
        result = Good.execute()
    finally:
        disconnect()

    assert result.success
    assert "the receiver is broken" in caplog.text


def test_an_interrupt_in_a_receiver_is_not_swallowed():
    def interrupting(_sender, **_):
        raise KeyboardInterrupt

    with task_started.connected_to(interrupting), pytest.raises(KeyboardInterrupt):
        Good.execute()


def test_a_receiver_may_run_tasks_of_its_own():
    runs = []

    class Audit(Task[None]):
        def work(self) -> None:
            runs.append(self.context.audited)

    def audit(_sender, *, result, **_):
        if result.task is not Audit:
            runs.append(Audit.execute(audited=result.tid).root)

    with task_executed.connected_to(audit):
        result = Good.execute()

    assert runs == [result.tid, True]
    assert len(result.chain) == 1
