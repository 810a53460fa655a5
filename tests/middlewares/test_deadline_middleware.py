from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from cmdx import DefinitionError, Stop, Task, deadline, middleware, remaining, retry_on
from cmdx.middlewares import Deadline
from cmdx.run.deadlines import DeadlineExceeded

pytestmark = pytest.mark.usefixtures("still")


def test_work_can_ask_how_much_time_is_left():
    @middleware(Deadline(2.0))
    class Ask(Task[float | None]):
        def work(self) -> float | None:
            return remaining()

    assert Ask.execute().value == 2.0
    assert remaining() is None


def test_no_retry_begins_that_would_end_too_late():
    @middleware(Deadline(0.30))
    @retry_on(TimeoutError, limit=9, delay=0.25)
    class Flaky(Task[None]):
        def work(self) -> None:
            raise TimeoutError

    result = Flaky.execute()
    assert (result.retries, result.stopped) == (1, Stop.DEADLINE)


@pytest.mark.parametrize(("outer", "left"), [(0.5, 0.5), (9.0, 2.0)])
def test_an_earlier_deadline_outside_stays(outer, left):
    @middleware(Deadline(2.0))
    class Ask(Task[float | None]):
        def work(self) -> float | None:
            return remaining()

    with deadline(outer):
        assert Ask.execute().value == left
        assert remaining() == outer


def test_nested_tasks_have_what_is_left(still):
    @middleware(Deadline(60.0))
    class Inner(Task[float | None]):
        def work(self) -> float | None:
            return remaining()

    @middleware(Deadline(2.0))
    class Outer(Task[float | None]):
        def work(self) -> float | None:
            still.seconds += 0.5
            return Inner.execute().value

    assert Outer.execute().value == 1.5


def test_a_task_is_not_begun_when_the_time_is_up(still):
    worked = []

    @middleware(Deadline(2.0))
    class Late(Task[None]):
        def work(self) -> None:
            worked.append(self)

    with deadline(1.0):
        still.seconds += 1.0
        result = Late.execute()
    assert result.failed
    assert result.metadata["code"] == "DEADLINE_EXCEEDED"
    assert result.reason == "the deadline had passed before the task started"
    assert worked == []


def test_a_synchronous_run_is_waited_for_in_its_own_thread(still):
    threads = []

    @middleware(Deadline(1.0))
    class Long(Task[str]):
        def work(self) -> str:
            threads.append(threading.current_thread())
            still.seconds += 60.0
            return "late, but done"

    before = set(threading.enumerate())
    result = Long.execute()
    assert result.value == "late, but done"
    assert threads == [threading.current_thread()]
    assert set(threading.enumerate()) <= before  # those of other tests may end


def test_an_asynchronous_run_is_cancelled_when_the_time_is_up():
    cancelled = []

    @middleware(Deadline(0.02))
    class Long(Task[None]):
        async def work(self) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(self)
                raise

    result = asyncio.run(Long.aexecute())
    assert isinstance(result.cause, DeadlineExceeded)
    assert result.stopped is Stop.DEADLINE
    assert len(cancelled) == 1


def test_concurrent_runs_have_each_their_own_deadline(still):
    @middleware(Deadline(2.0))
    class Ask(Task[float | None]):
        async def work(self) -> float | None:
            before = remaining()
            await asyncio.sleep(0)
            return before

    async def both():
        first = asyncio.create_task(Ask.aexecute())
        await asyncio.sleep(0)
        still.seconds += 1.0
        second = await Ask.aexecute()
        return (await first).value, second.value, remaining()

    assert asyncio.run(both()) == (2.0, 2.0, None)


@pytest.mark.parametrize("how", [ValueError(), KeyboardInterrupt()])
def test_the_deadline_ends_with_the_run_however_it_ends(how):
    @middleware(Deadline(2.0))
    class Ask(Task[None]):
        def work(self) -> None:
            raise how

    with suppress(KeyboardInterrupt):
        Ask.execute()
    assert remaining() is None


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, "2", None])
def test_wrong_seconds_are_refused_when_it_is_made(wrong):
    with pytest.raises(DefinitionError, match="Deadline: seconds must be a finite"):
        Deadline(wrong)


def test_it_shows_its_seconds():
    assert repr(Deadline(2.0)) == "Deadline(2.0)"
