"""The same task inline, on the queue and on an engine, and messages of all kinds."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from engine_tasks import (
    AwaitedSteady,
    Echo,
    Exits,
    Gated,
    Growing,
    Guided,
    Halts,
    Hurried,
    Inside,
    Order,
    Skips,
    Stamp,
    Steady,
    count_notes,
)
from places import PATIENCE, new_name, wait_until
from services import postgres_schema

from cmdx import Task, testing
from cmdx.engines import TaskFailed, current_message
from cmdx.queue import Queue
from cmdx.report import error_name
from cmdx.stores import PostgresStore

# -- the same everywhere --------------------------------------------------------------

HISTORIES = [
    (Steady, []),
    (Steady, ["connection", "connection"]),
    (Steady, ["connection"] * 9),
    (Steady, ["connection", "key"]),
    (Growing, ["connection", "timeout", "connection"]),
    (Growing, ["connection", "timeout", "timeout"]),
    (Guided, ["guided", "guided"]),
    (Gated, ["connection"] * 9),
    (Hurried, ["connection"] * 9),
    (AwaitedSteady, ["connection"]),
    (AwaitedSteady, ["connection"] * 9),
    (Halts, []),
    (Skips, []),
    (Order, ["connection"]),
]
each_history = pytest.mark.parametrize(
    ("task", "script"),
    HISTORIES,
    ids=[f"{task.__name__}-{len(script)}-{script[-1:]}" for task, script in HISTORIES],
)


def story_of(result):
    """Return what has to be the same wherever a task is run."""
    return {
        "status": result.status,
        "reason": result.reason,
        "retries": result.retries,
        "stopped": result.stopped,
        "value": result.value if result.success else None,
        "attempts": [
            (
                attempt.error and error_name(attempt.error),
                str(attempt.error),
                attempt.pause,
                attempt.rule,
            )
            for attempt in result.attempts
        ],
    }


def run_inline(invocation):
    with testing.instant():
        if type(invocation)._cmdx_.plan.awaits:
            return asyncio.run(invocation.arun())
        return invocation.run()


def run_and_count(run, task, script):
    """Run a task; return its story, and how often it was called and has ended."""
    name = new_name()
    story = story_of(run(task(name=name, script=script)))
    wait_until(lambda: count_notes("ended", name))
    for field in ("reason", "value"):
        story[field] = story[field] and story[field].replace(name, "it")
    return story, count_notes("called", name), count_notes("ended", name)


@each_history
def test_a_task_ends_as_it_does_inline(engine, task, script):
    expected = run_and_count(run_inline, task, script)

    found = run_and_count(lambda it: engine.enqueue(it).wait(PATIENCE), task, script)

    assert found == expected


@each_history
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_task_ends_on_the_queue_as_it_does_inline(store, task, script):
    def run_as_job(invocation, database=":memory:"):
        queue = Queue(database)
        with testing.instant():
            job = queue.enqueue(invocation)
            queue.drain(ahead=60)
            return job.wait(0)

    def run_on_postgres(invocation):
        with postgres_schema() as address:
            store = PostgresStore(address, migrate=True)
            try:
                return run_as_job(invocation, store)
            finally:
                store.close()

    run = run_as_job if store == "sqlite" else run_on_postgres
    assert run_and_count(run, task, script) == run_and_count(run_inline, task, script)


# -- what travels ---------------------------------------------------------------------


def test_the_ids_of_who_enqueues_travel_along(engine):
    handles = []

    class Enqueue(Task[None], correlation_id=lambda: "order-3"):
        def work(self):
            handles.append(engine.enqueue(Inside()))

    sender = Enqueue.execute_or_raise()
    (handle,) = handles
    result = handle.wait(PATIENCE)

    assert result.xid == "order-3"
    assert result.cid != sender.cid
    assert result.value == {"id": handle.id, "cid": sender.cid, "xid": "order-3"}


def test_without_a_task_around_it_a_run_has_its_own_correlation_id(engine):
    result = engine.enqueue(Inside()).wait(PATIENCE)

    assert (result.xid, result.value["cid"]) == ("request-7", None)


def test_outside_of_a_worker_there_is_no_message():
    assert current_message() is None


# -- time -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["after", "at"])
def test_a_task_runs_when_it_is_due(engine, way):
    due = time.time() + 0.3
    when = {
        "after": {"after": 0.3},
        "at": {"at": datetime.fromtimestamp(due, UTC)},
    }[way]

    ran_at = engine.enqueue(Stamp(), **when).wait(PATIENCE).value

    assert ran_at >= due - 0.001  # engines count in milliseconds


def test_a_time_that_is_past_means_now(engine):
    past = datetime.now(UTC) - timedelta(days=1)

    assert engine.enqueue(Stamp(), at=past).wait(PATIENCE).success


def test_a_pause_of_minutes_does_not_block_a_worker(engine):
    name = new_name()
    waiting = engine.enqueue(Guided(name=name, script=["minutes", "minutes"]))
    wait_until(lambda: count_notes("called", name))

    assert engine.enqueue(Stamp()).wait(PATIENCE).success
    with pytest.raises(TimeoutError, match="has not ended after 0 s"):
        waiting.wait(0)
    assert count_notes("called", name) == 1


# -- messages that cannot be run ------------------------------------------------------


def test_other_programs_can_send_messages(place):
    name = new_name()

    place.send_plainly("engine_tasks:Skips", name=name, script=[])

    wait_until(lambda: count_notes("ended", name))


@contextmanager
def one_more_dead(place):
    """Expect that a message becomes a dead letter, if the engine has them there."""
    before = place.count_dead()
    yield
    if before is not None:
        wait_until(lambda: place.count_dead() == before + 1)


BAD_MESSAGES = [
    ("Steady", (), {"name": "n", "script": "no list"}, "must be a list"),
    ("Steady", (), {"name": "n", "script": [], "old": 1}, "has no input 'old'"),
    ("Steady", ({"left": "in"},), {"name": "n", "script": []}, "cannot be run"),
    ("Steady", (7,), {"name": "n", "script": []}, "as keyword arguments"),
    ("Steady", ({}, 7), {"name": "n", "script": []}, "as keyword arguments"),
]


@pytest.mark.parametrize(("task", "args", "inputs", "reason"), BAD_MESSAGES)
def test_a_message_that_cannot_be_run_is_dead_and_the_worker_goes_on(
    place, task, args, inputs, reason
):
    with one_more_dead(place):
        wait = place.send_plainly(f"engine_tasks:{task}", *args, **inputs)
        with pytest.raises(TaskFailed, match=reason) as caught:
            wait()

    assert caught.value.result is None
    assert place.engine.enqueue(Stamp()).wait(PATIENCE).success


def test_a_message_without_an_input_fails_as_the_task_does(place):
    name = new_name()

    with one_more_dead(place):
        wait = place.send_plainly("engine_tasks:Steady", name=name)
        with suppress(TaskFailed):  # Celery raises it, and the handle has a result
            assert wait().failed

    assert count_notes("called", name) == 0


def test_a_message_of_an_unknown_task_is_dead_and_the_worker_goes_on(place):
    with one_more_dead(place):
        place.send_plainly("engine_tasks:Unknown", name="n")

    assert place.engine.enqueue(Stamp()).wait(PATIENCE).success


def test_a_task_that_exits_is_dead_with_its_reason_and_the_worker_goes_on(place):
    name = new_name()

    with one_more_dead(place):
        handle = place.engine.enqueue(Exits(name=name))
        with pytest.raises(TaskFailed, match="SystemExit: 3"):
            handle.wait(PATIENCE)

    assert place.engine.enqueue(Stamp()).wait(PATIENCE).success
    assert count_notes("called", name) == count_notes("rolled back", name) == 1


def test_results_come_as_they_are_whatever_keys_they_have(engine):
    data = {"a": 1}
    tagged = {"__type__": "money", "__value__": data}

    value = engine.enqueue(Echo(data=data, wraps=True)).wait(PATIENCE).value
    failed = engine.enqueue(Echo(data=data, wraps=True, fails=True)).wait(PATIENCE)

    assert value == tagged
    assert (failed.reason, failed.metadata["data"]) == ("no", tagged)


def test_a_header_of_another_program_is_no_origin(place):
    name = new_name()

    place.send_plainly("engine_tasks:Skips", name=name, script=[], origin="theirs")

    wait_until(lambda: count_notes("ended", name))


def test_a_failed_task_is_dead_with_its_reason(place):
    with one_more_dead(place):
        handle = place.engine.enqueue(Halts(name=new_name(), script=[]))
        result = handle.wait(PATIENCE)

    assert (result.reason, result.metadata["code"]) == ("card declined", "declined")
    with pytest.raises(Halts.Fault, match="card declined"):
        result.or_raise()
