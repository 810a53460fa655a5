from __future__ import annotations

import asyncio
from contextvars import Context
from threading import Thread

import pytest

from cmdx import Task, parallel, retry_on, task_executed, task_retried, telemetry
from cmdx.testing import recorded
from cmdx.workflow.workflow import Workflow


@retry_on(ConnectionError, limit=2, delay=0)
class Flaky(Task[str]):
    def work(self) -> str:
        if self.attempt < 2:
            raise ConnectionError(self.attempt)
        return "there"


class Shy(Flaky):
    pass


class Plain(Task[int]):
    def work(self) -> int:
        return 1


class Outer(Task[int]):
    def work(self) -> int:
        return Plain.execute().value + 1


def test_signals_are_recorded_in_their_order():
    with recorded() as recording:
        Flaky.execute()

    assert [sent.name for sent in recording.signals] == [
        "task_started",
        "task_retried",
        "task_retried",
        "task_executed",
    ]
    assert {sent.task for sent in recording.signals} == {Flaky}


def test_a_signal_is_recorded_with_what_it_carried():
    with recorded() as recording:
        result = Flaky.execute()

    first, second = recording.sent("task_retried")
    assert (first.payload["attempt"], second.payload["attempt"]) == (1, 2)
    assert isinstance(second.payload["error"], ConnectionError)
    assert first.invocation.tid == result.tid


def test_results_are_recorded_in_the_order_they_ended():
    with recorded() as recording:
        result = Outer.execute()

    assert [result.task for result in recording.results] == [Plain, Outer]
    assert recording.results[1] is result


def test_what_was_sent_can_be_asked_for_by_signal_and_by_task():
    with recorded() as recording:
        Flaky.execute()
        Plain.execute()

    assert recording.sent("task_retried") == recording.sent(task_retried)
    assert len(recording.sent("task_retried")) == 2
    assert recording.sent("task_retried", task=Plain) == []
    assert [sent.name for sent in recording.sent(task=Plain)] == [
        "task_started",
        "task_executed",
    ]
    assert recording.sent() == recording.signals


def test_a_task_includes_its_subclasses():
    with recorded() as recording:
        first, second = Shy.execute(), Flaky.execute()

    assert recording.results_of(Flaky) == [first, second]
    assert recording.results_of(Shy) == [first]
    assert len(recording.sent("task_executed", task=Shy)) == 1


def test_a_signal_that_does_not_exist_is_not_taken_for_one_that_was_not_sent():
    with (
        recorded() as recording,
        pytest.raises(LookupError, match="did you mean 'task_retried'"),
    ):
        recording.sent("task_retreid")


def test_all_signals_there_are_can_be_asked_for():
    names = [name for name in vars(telemetry) if name.startswith("task_")]

    with recorded() as recording:
        assert [recording.sent(name) for name in names] == [[] for _ in names]


def test_nothing_outside_the_block_is_recorded():
    receivers = len(task_executed.receivers)
    Plain.execute()
    with recorded() as recording:
        pass
    Plain.execute()

    assert recording.signals == []
    assert len(task_executed.receivers) == receivers


def test_the_block_ends_when_it_is_left_by_an_error():
    receivers = len(task_executed.receivers)
    with pytest.raises(KeyError), recorded():
        raise KeyError

    assert len(task_executed.receivers) == receivers


def test_nested_recordings_each_record():
    with recorded() as outer:
        Plain.execute()
        with recorded() as inner:
            Plain.execute()
        Plain.execute()

    assert (len(outer.results), len(inner.results)) == (3, 1)


def test_a_block_may_be_left_in_another_context():
    receivers = len(task_executed.receivers)
    elsewhere, block = Context(), recorded()
    recording = elsewhere.run(block.__enter__)
    result = elsewhere.run(Plain.execute)
    block.__exit__(None, None, None)
    elsewhere.run(Plain.execute)

    assert recording.results == [result]
    assert len(task_executed.receivers) == receivers


def run_in_a_thread_of_its_own():
    thread = Thread(target=Plain.execute)
    Context().run(thread.start)
    thread.join()


def test_another_thread_is_not_recorded():
    with recorded() as recording:
        run_in_a_thread_of_its_own()

    assert recording.signals == []


def test_another_thread_is_recorded_when_asked_for():
    with recorded(everywhere=True) as recording:
        run_in_a_thread_of_its_own()

    assert [result.task for result in recording.results] == [Plain]


def test_coroutines_are_recorded_if_they_inherit_the_context():
    async def main():
        with recorded() as recording:
            await asyncio.gather(
                asyncio.create_task(Plain.aexecute()),
                asyncio.create_task(Flaky.aexecute(), context=Context()),
            )
        return recording

    assert [result.task for result in asyncio.run(main()).results] == [Plain]


def test_parallel_steps_are_recorded():
    class Both(Workflow[None]):
        steps = (parallel(Plain, Flaky),)

    with recorded() as recording:
        Both.execute()

    assert {result.task for result in recording.results} == {Plain, Flaky, Both}


def test_a_recording_shows_what_was_sent():
    with recorded() as recording:
        assert repr(recording) == "<Recording: nothing>"
        Plain.execute()

    assert repr(recording) == ("<Recording: Plain task_started, Plain task_executed>")
