"""What only some engines and brokers have: priorities, time limits, shutdowns."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from dramatiq import Worker
from dramatiq.middleware import Shutdown
from engine_tasks import (
    AwaitedHang,
    Dies,
    Hang,
    Skips,
    Stamp,
    Steady,
    count_notes,
    read_notes,
)
from places import PATIENCE, new_name, wait_until

from cmdx.engines import TaskFailed


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("celery-rabbitmq", {"task_queue_max_priority": 9}),
        ("celery-redis", {}),
        ("dramatiq-rabbitmq", {"max_priority": 9}),
    ],
)
def test_what_has_a_higher_priority_goes_first(new, place, options):
    place = new(place, tasks=[Skips], **options)
    names = {priority: new_name() for priority in (1, 9, 5)}
    for priority, name in names.items():
        place.engine.enqueue(Skips(name=name, script=[]), priority=priority)

    with place.working():
        wait_until(lambda: count_notes("ended", names[1]))

    by_time = sorted(
        names.values(), key=lambda name: read_notes().index(f"ended {name}")
    )
    assert by_time == [names[9], names[5], names[1]]


def test_a_task_that_takes_longer_than_dramatiq_allows_is_rolled_back_and_dead(new):
    place, name = new("dramatiq-redis", tasks=[]), new_name()
    place.engine.register(Hang, queue_name=place.queue, time_limit=50)

    place.broker.emit_after("process_boot")  # as the command line of dramatiq does

    with place.working():
        handle = place.engine.enqueue(Hang(name=name))
        with pytest.raises(TaskFailed, match=r"^TimeLimitExceeded$"):
            handle.wait(PATIENCE)
        wait_until(lambda: place.count_dead() == 1)

    assert count_notes("rolled back", name) == 1


def test_a_task_that_is_told_of_a_shutdown_is_rolled_back_and_runs_again(new):
    place, name = new("dramatiq-redis", tasks=[]), new_name()
    place.engine.register(Hang, queue_name=place.queue, notify_shutdown=True)
    handle = place.engine.enqueue(Hang(name=name))

    for times in (1, 2):
        worker = Worker(place.broker, worker_threads=1, worker_timeout=20)
        worker.start()
        wait_until(lambda times=times: count_notes("called", name) == times)
        worker.stop()
        assert count_notes("rolled back", name) == times

    assert place.count_dead() == 0
    with pytest.raises(TimeoutError):
        handle.wait(0)


@pytest.fixture
def event_loop_thread():
    """The event loop of a worker of dramatiq with its middleware AsyncIO."""
    from dramatiq import asyncio as dramatiq_asyncio

    thread = dramatiq_asyncio.EventLoopThread(logging.getLogger("dramatiq"))
    thread.start()
    dramatiq_asyncio.set_event_loop_thread(thread)
    yield thread
    dramatiq_asyncio.set_event_loop_thread(None)
    thread.stop()


@pytest.mark.usefixtures("event_loop_thread")
def test_a_shutdown_waits_for_a_rollback_that_awaits(new):
    place, name = new("dramatiq-redis", tasks=[]), new_name()
    place.engine.register(AwaitedHang, queue_name=place.queue, notify_shutdown=True)
    place.engine.enqueue(AwaitedHang(name=name))
    worker = Worker(place.broker, worker_threads=1, worker_timeout=20)
    worker.start()
    wait_until(lambda: count_notes("called", name))

    worker.stop()

    assert count_notes("rolled back", name) == 1
    assert place.count_dead() == 0


def test_a_shutdown_while_the_run_is_handed_to_the_event_loop_ends_it(
    new, event_loop_thread, monkeypatch
):
    place, name = new("dramatiq-redis", tasks=[]), new_name()
    place.engine.register(AwaitedHang, queue_name=place.queue, notify_shutdown=True)
    place.engine.enqueue(AwaitedHang(name=name))
    run_coroutine = event_loop_thread.run_coroutine

    def hand_over(coroutine):
        monkeypatch.setattr(event_loop_thread, "run_coroutine", run_coroutine)
        asyncio.run_coroutine_threadsafe(coroutine, event_loop_thread.loop)
        wait_until(lambda: count_notes("called", name))
        raise Shutdown

    monkeypatch.setattr(event_loop_thread, "run_coroutine", hand_over)
    worker = Worker(place.broker, worker_threads=1, worker_timeout=20)
    worker.start()
    wait_until(lambda: count_notes("called", name) == 2)
    assert count_notes("rolled back", name) == 1
    worker.stop()

    assert count_notes("rolled back", name) == 2
    assert place.count_dead() == 0


@pytest.mark.parametrize(
    ("task", "script", "method"),
    [(Skips, [], "store_result"), (Steady, ["connection"], "enqueue")],
    ids=["while its result is stored", "while its pause is handed over"],
)
def test_a_shutdown_after_the_work_makes_no_dead_letter(
    new, monkeypatch, task, script, method
):
    place, name = new("dramatiq-redis", tasks=[task]), new_name()
    handle = place.engine.enqueue(task(name=name, script=script))
    owner = place.results if method == "store_result" else place.broker
    interrupt_once(monkeypatch, owner, method)

    with place.working():
        result = handle.wait(PATIENCE)

    assert result.ok
    assert place.count_dead() == 0
    assert count_notes("ended", name) == 1


def interrupt_once(monkeypatch, owner, method):
    """Have the next call of a method be interrupted, as a worker that stops does."""
    call, calls = getattr(owner, method), []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) == 1:
            raise Shutdown
        return call(*args, **kwargs)

    monkeypatch.setattr(owner, method, interrupted)


def test_who_waits_for_a_message_that_is_too_old_is_told(new):
    place = new("dramatiq-redis", tasks=[])
    place.engine.register(Skips, queue_name=place.queue, max_age=1)
    handle = place.engine.enqueue(Skips(name=new_name(), script=[]))
    time.sleep(0.01)

    with place.working(), pytest.raises(TaskFailed, match="is older than max_age"):
        handle.wait(PATIENCE)


def test_a_message_whose_process_dies_is_delivered_again(new):
    place, name = new("celery-rabbitmq"), new_name()

    with place.working():
        result = place.engine.enqueue(Dies(name=name)).wait(PATIENCE)

    assert result.value == f"{name} is done"


def test_a_task_that_takes_longer_than_celery_allows_is_not_delivered_again(new):
    place, name = new("celery-rabbitmq", task_time_limit=0.2), new_name()

    with place.working():
        with pytest.raises(TaskFailed, match="TimeLimitExceeded"):
            place.engine.enqueue(Hang(name=name)).wait(PATIENCE)
        for _ in range(2):  # the second one comes after whatever is delivered again
            place.engine.enqueue(Stamp()).wait(PATIENCE)

    assert count_notes("called", name) == 1


def test_a_wait_is_longer_than_the_client_of_redis_waits(new):
    place = new("dramatiq-redis", tasks=[Stamp])
    options = place.results.client.connection_pool.connection_kwargs
    options["socket_timeout"] = 1.2

    with place.working():
        assert place.engine.enqueue(Stamp(), after=1.5).wait(PATIENCE).success
