"""Workers of dramatiq, with the broker that it has for tests."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AsyncIO, Retries, Shutdown
from dramatiq.results import Results, ResultTimeout
from dramatiq.results.backends import StubBackend
from engine_tasks import Halts, Skips, Stamp, Steady, count_notes
from places import LONGEST_PAUSE, PATIENCE, new_name, silence

from cmdx import Task, retry_on
from cmdx.engines import current_message
from cmdx.engines.dramatiq import DramatiqEngine


def results_of(engine):
    middleware = engine.broker.middleware
    return next(one for one in middleware if isinstance(one, Results)).backend


def new_engine(*tasks, middleware=None, store_results=False, **options):
    silence()
    broker = StubBroker(middleware=middleware)
    results = Results(backend=StubBackend(), store_results=store_results)
    broker.add_middleware(results)
    engine = DramatiqEngine(broker, longest_pause=LONGEST_PAUSE)
    engine.register(*tasks, **options)
    return engine


@contextmanager
def working(broker):
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=20)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def run_until_empty(broker):
    """Run all messages, those that are due later too."""
    with working(broker):
        broker.join("default", timeout=PATIENCE * 1000, fail_fast=False)


def test_dramatiq_does_not_retry_whatever_a_message_says():
    engine, name = new_engine(Halts), new_name()
    inputs, options = {"name": name, "script": []}, {"max_retries": 3, "min_backoff": 1}
    message = dramatiq.Message("default", "engine_tasks:Halts", (), inputs, options)
    engine.broker.enqueue(message)

    run_until_empty(engine.broker)

    assert count_notes("called", name) == len(engine.broker.dead_letters) == 1


def test_dramatiq_does_not_retry_whatever_the_broker_says():
    retries = Retries(retry_when=lambda retries, _error: retries < 3, min_backoff=1)
    engine, name = new_engine(Halts, middleware=[retries]), new_name()
    engine.enqueue(Halts(name=name, script=[]))

    run_until_empty(engine.broker)

    assert count_notes("called", name) == len(engine.broker.dead_letters) == 1


def test_other_actors_of_the_broker_are_retried_as_they_were():
    broker, calls = new_engine(Stamp).broker, []

    @dramatiq.actor(broker=broker, max_retries=1, min_backoff=1)
    def other():
        calls.append(1)
        raise ConnectionError

    other.send()
    run_until_empty(broker)

    assert (len(calls), len(broker.dead_letters)) == (2, 1)


def test_what_is_skipped_of_other_actors_stores_nothing(monkeypatch):
    engine, stored = new_engine(Stamp), []
    note = lambda *given: stored.append(given)
    monkeypatch.setattr(results_of(engine), "store_result", note)

    @dramatiq.actor(broker=engine.broker, max_age=-1)
    def other(): ...

    other.send()
    run_until_empty(engine.broker)

    assert stored == []


def test_a_broker_that_stores_all_results_stores_none_for_a_pause():
    engine = new_engine(Steady, store_results=True)
    handle = engine.enqueue(Steady(name=new_name(), script=["connection"]))

    run_until_empty(engine.broker)

    assert handle.wait(0).retries == 1


def test_a_short_pause_is_slept():
    engine = new_engine(Naps)
    handle = engine.enqueue(Naps())

    run_until_empty(engine.broker)

    assert handle.wait(0).value == []


@retry_on(ConnectionError, limit=1, delay=LONGEST_PAUSE)
class Naps(Task[list[object]]):
    """Waits for as long as a worker may sleep, and says where it was stopped."""

    def work(self):
        if self.attempt == 0:
            raise ConnectionError
        return list(current_message().earlier)


def test_a_shutdown_in_a_later_part_of_a_run_keeps_the_attempts_before():
    calls = []

    @retry_on(ConnectionError, limit=1, delay=0.06)
    class Interrupted(Task[None], name="engines.interrupted"):
        def work(self):
            calls.append(self.attempt)
            if self.attempt == 0:
                raise ConnectionError
            if len(calls) == 2:
                raise Shutdown

    engine = new_engine(Interrupted)
    handle = engine.enqueue(Interrupted())
    run_until_empty(engine.broker)

    assert (handle.wait(0).retries, calls) == (1, [0, 1, 1])


def test_asynchronous_tasks_share_the_event_loop_of_the_worker():
    loops = []

    class Loops(Task[None], name="engines.loops"):
        async def work(self):
            loops.append(asyncio.get_running_loop())

    engine = new_engine(Loops, middleware=[AsyncIO()])
    engine.broker.emit_after("process_boot")  # as the command line of dramatiq does
    with working(engine.broker):
        for _ in range(2):
            engine.enqueue(Loops()).wait(PATIENCE)
    engine.broker.emit_before("process_stop")

    assert loops[0] is loops[1]


def test_results_are_kept_for_as_long_as_the_task_says(monkeypatch):
    engine, kept = new_engine(Stamp, result_ttl=7_000), []
    note = lambda *given: kept.append(given[-1])
    monkeypatch.setattr(results_of(engine), "store_result", note)
    engine.enqueue(Stamp())

    run_until_empty(engine.broker)

    assert kept == [7_000]


def test_a_result_that_cannot_be_stored_is_logged_and_makes_no_dead_letter(
    monkeypatch, caplog
):
    engine, name = new_engine(Skips), new_name()

    def store_result(*_):
        raise ConnectionError("no answer")

    monkeypatch.setattr(results_of(engine), "store_result", store_result)
    engine.enqueue(Skips(name=name, script=[]))

    with caplog.at_level(logging.ERROR, logger="cmdx"):
        run_until_empty(engine.broker)

    assert (count_notes("ended", name), len(engine.broker.dead_letters)) == (1, 0)
    assert "cannot be stored" in caplog.text


def test_a_failed_task_is_dead_on_a_broker_without_retries():
    engine = new_engine(Halts, middleware=[])
    engine.enqueue(Halts(name=new_name(), script=[]))

    run_until_empty(engine.broker)

    assert len(engine.broker.dead_letters) == 1


def test_a_wait_counts_real_time(instant, monkeypatch):
    engine, calls = new_engine(Stamp), []
    handle = engine.enqueue(Stamp())
    run_until_empty(engine.broker)
    get_result = results_of(engine).get_result

    def late(*given, **options):
        calls.append(given)
        if len(calls) == 1:
            instant.sleep(3600)
            raise ResultTimeout("nothing yet")
        return get_result(*given, **options)

    monkeypatch.setattr(results_of(engine), "get_result", late)

    assert handle.wait(PATIENCE).success
