"""Both colours of a run, time that stands still, and the retries that were sent."""

from __future__ import annotations

import asyncio

import pytest

from cmdx import clock, task_retried


class Plain:
    """Runs a task synchronously."""

    def __call__(self, task, **inputs):
        return task.execute(**inputs)

    def or_raise(self, task, **inputs):
        return task.execute_or_raise(**inputs)


class Awaited:
    """Runs a task asynchronously, with its ``work`` as a coroutine that suspends."""

    def __call__(self, task, **inputs):
        return asyncio.run(self.twin(task).aexecute(**inputs))

    def or_raise(self, task, **inputs):
        return asyncio.run(self.twin(task).aexecute_or_raise(**inputs))

    def twin(self, task):
        class Twin(task):
            async def work(self):
                await asyncio.sleep(0)
                return super().work()

        return Twin


@pytest.fixture(scope="session", params=[Plain, Awaited], ids=["sync", "async"])
def execute(request):
    return request.param()


class StillClock(clock.Clock):
    """Time passes only when it is told to, or slept away."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def still():
    with clock.use(StillClock()) as replacement:
        yield replacement


@pytest.fixture
def retried():
    """Collect what ``task_retried`` sends."""
    sent = []

    def receive(sender, **payload):
        sent.append({"sender": sender, **payload})

    with task_retried.connected_to(receive):
        yield sent
