"""A wall clock that stands still, and both colours of a run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from cmdx import Task, clock

NOON = datetime(2024, 3, 15, 12, 0, 0, tzinfo=UTC)


class Noon(clock.Clock):
    """It is noon on a Friday in March, whatever happens."""

    def time(self) -> float:
        return NOON.timestamp()


@pytest.fixture
def noon():
    with clock.use(Noon()):
        yield NOON


def plainly(task, **inputs):
    return task.execute(**inputs)


def awaited(task, **inputs):
    class Twin(task):
        async def work(self):
            await asyncio.sleep(0)
            return super().work()

    return asyncio.run(Twin.aexecute(**inputs))


@pytest.fixture(params=[plainly, awaited], ids=["sync", "async"])
def execute(request):
    return request.param


@pytest.fixture
def failed():
    """Make a failed result: halted with metadata, or by an exception."""

    def make(reason="no", error=None, **metadata):
        class Serve(Task[None]):
            def work(self) -> None:
                if error is None:
                    self.fail(reason, **metadata)
                self.metadata.update(metadata)
                raise error

        return Serve.execute()

    return make
