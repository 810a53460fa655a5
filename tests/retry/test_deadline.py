from __future__ import annotations

import asyncio
import threading
import time
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdx import (
    DefinitionError,
    Status,
    Stop,
    Task,
    clock,
    deadline,
    on_failed,
    remaining,
    retry_on,
    task_retried,
)
from cmdx.run.deadlines import DeadlineExceeded

in_still_time = pytest.mark.usefixtures("still")


def down(**options):
    """Make a task whose calls take as long as the context says, and fail."""

    @retry_on(TimeoutError, **{"limit": 9, "delay": 0.25, **options})
    class Down(Task[None]):
        def work(self) -> None:
            calls = self.context.setdefault("calls", [])
            now = clock.current.get()
            calls.append(round(now.monotonic(), 9))
            now.seconds += self.context.get("takes", 0.0)
            raise TimeoutError

    return Down


# -- no pause that would end too late -------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "calls"), [(0.0, [0.0, 0.25]), (0.2, [0.0]), (0.04, [0.0, 0.29])]
)
def test_no_pause_begins_that_would_end_past_the_deadline(execute, still, takes, calls):
    result = execute(down(deadline=0.30), takes=takes)

    assert result.context.calls == calls
    assert still.seconds == pytest.approx(calls[-1] + takes)
    assert (result.status, result.stopped) == (Status.FAILED, Stop.DEADLINE)


@pytest.mark.parametrize(("takes", "calls"), [(0.0, [0.0, 0.25]), (0.2, [0.0])])
@in_still_time
def test_a_block_has_a_deadline_too(execute, takes, calls):
    with deadline(0.30):
        result = execute(down(), takes=takes)

    assert result.context.calls == calls
    assert result.stopped is Stop.DEADLINE


@pytest.mark.parametrize(("late", "calls"), [(0.04, 2), (0.06, 1)])
def test_no_attempt_begins_after_a_pause_that_took_too_long(
    execute, still, monkeypatch, late, calls
):
    def oversleep(seconds):
        still.seconds += seconds + late

    async def aoversleep(seconds):
        oversleep(seconds)

    monkeypatch.setattr(still, "sleep", oversleep)
    monkeypatch.setattr(still, "asleep", aoversleep)

    result = execute(down(deadline=0.30))

    assert len(result.context.calls) == len(result.attempts) == calls
    assert (result.retries, result.stopped) == (calls - 1, Stop.DEADLINE)
    assert result.attempts[-1].pause is None


@pytest.mark.parametrize(
    ("delay", "retries", "stopped"),
    [(0.001, 1, Stop.EXHAUSTED), (3600, 0, Stop.DEADLINE)],
)
def test_real_time_counts_the_same(execute, delay, retries, stopped):
    @retry_on(TimeoutError, limit=1, delay=delay, deadline=600)
    class Down(Task[None]):
        def work(self) -> None:
            raise TimeoutError

    result = execute(Down)

    assert (result.retries, result.stopped) == (retries, stopped)


@in_still_time
def test_a_pause_that_ends_exactly_at_the_deadline_is_too_late(execute):
    assert execute(down(delay=0.5, deadline=0.5)).retries == 0
    assert execute(down(delay=0.5, deadline=0.51)).retries == 1


@in_still_time
def test_the_first_attempt_is_made_even_when_there_is_no_time():
    result = down(deadline=0).execute()

    assert result.context.calls == [0.0]
    assert result.stopped is Stop.DEADLINE


@in_still_time
def test_without_a_pause_the_time_counts_all_the_same(execute):
    result = execute(down(delay=0, deadline=0.30), takes=0.2)

    assert result.context.calls == [0.0, 0.2]
    assert result.stopped is Stop.DEADLINE


@in_still_time
def test_the_last_error_stays_the_cause(execute):
    result = execute(down(deadline=0.30))

    assert result.cause is result.attempts[-1].error
    assert [each.pause for each in result.attempts] == [0.25, None]


@in_still_time
def test_a_run_that_succeeds_in_time_knows_nothing_of_it(execute):
    @retry_on(TimeoutError, delay=0.25, deadline=0.30)
    class Fetch(Task[int]):
        def work(self) -> int:
            if self.attempt == 0:
                raise TimeoutError
            return 7

    result = execute(Fetch)

    assert (result.value, result.stopped) == (7, Stop.SUCCESS)


@in_still_time
def test_the_earliest_deadline_of_several_rules_is_that_of_the_run(execute):
    @retry_on(KeyError, rule="keys", deadline=0.30)
    class Down(down(deadline=9.0)):
        pass

    assert execute(Down).context.calls == [0.0, 0.25]


def test_the_time_of_day_does_not_matter(execute):
    class Jumping(clock.Clock):
        seconds = 0.0

        def monotonic(self):
            return self.seconds

        def time(self):
            return 1e9 - 5000 * self.seconds

        def sleep(self, seconds):
            self.seconds += seconds

        async def asleep(self, seconds):
            self.sleep(seconds)

    with clock.use(Jumping()):
        assert execute(down(deadline=0.30)).context.calls == [0.0, 0.25]


@given(
    seconds=st.floats(0, 5),
    outer=st.none() | st.floats(0, 5),
    delay=st.floats(0, 2),
    takes=st.floats(0, 2),
    limit=st.integers(0, 20),
)
def test_no_attempt_begins_past_the_deadline(seconds, outer, delay, takes, limit):
    class Still(clock.Clock):
        seconds = 0.0

        def monotonic(self):
            return self.seconds

        def sleep(self, seconds):
            self.seconds += seconds

    Down = down(deadline=seconds, delay=delay, limit=limit)  # noqa: N806
    with clock.use(Still()), deadline(9.0 if outer is None else outer):
        result = Down.execute(takes=takes)

    bound = seconds if outer is None else min(seconds, outer)
    first, *retries = result.context.calls
    assert first == 0
    assert all(start <= bound + 1e-9 for start in retries)
    assert len(retries) <= limit
    if result.stopped is Stop.DEADLINE:
        ended = result.context.calls[-1] + takes
        assert ended + delay >= bound - 1e-6


# -- what is left ---------------------------------------------------------------------


def test_without_a_deadline_nothing_is_said_about_what_is_left():
    assert remaining() is None


@in_still_time
def test_work_can_ask_how_much_time_is_left(execute):
    left = []

    @retry_on(TimeoutError, limit=9, delay=0.5, deadline=1.2)
    class Ask(Task[None]):
        def work(self) -> None:
            left.append(round(remaining(), 6))
            raise TimeoutError

    execute(Ask)

    assert left == [1.2, 0.7, 0.2]
    assert remaining() is None


def test_what_is_left_is_never_less_than_nothing(still):
    with deadline(1.0):
        still.seconds += 5

        assert remaining() == 0.0


@in_still_time
def test_a_deadline_inside_can_only_be_earlier():
    with deadline(2.0):
        with deadline(5.0):
            assert remaining() == 2.0
        with deadline(0.5):
            assert remaining() == 0.5
        assert remaining() == 2.0
    assert remaining() is None


@pytest.mark.parametrize(("own", "left"), [(5.0, 1.5), (0.5, 0.5), (None, 1.5)])
def test_a_task_inside_gets_the_smaller_remainder(execute, still, own, left):
    class Inner(Task[float]):
        def work(self) -> float:
            return remaining()

    if own is not None:
        Inner = retry_on(TimeoutError, deadline=own)(Inner)  # noqa: N806

    @retry_on(TimeoutError, deadline=2.0)
    class Outer(Task[None]):
        def work(self) -> None:
            still.seconds += 0.5
            self.context.inner = Inner.execute().value
            self.context.own = remaining()

    context = execute(Outer).context

    assert (context.inner, context.own) == (left, 1.5)


def test_a_deadline_ends_with_its_block_also_when_that_raises():
    with pytest.raises(KeyError), deadline(1.0):
        raise KeyError

    assert remaining() is None


def test_another_thread_has_time():
    left = []
    with deadline(1.0):
        thread = threading.Thread(target=lambda: left.append(remaining()))
        thread.start()
        thread.join()

    assert left == [None]


@in_still_time
def test_a_coroutine_inherits_the_deadline_and_keeps_its_own():
    async def hurry(seconds):
        with deadline(seconds):
            await asyncio.sleep(0)
            return remaining()

    async def both():
        with deadline(2.0):
            return await asyncio.gather(hurry(1.0), hurry(3.0))

    assert asyncio.run(both()) == [1.0, 2.0]


@pytest.mark.parametrize("seconds", [-1, float("nan"), "2", None, True, 1j])
def test_a_deadline_that_is_no_time_is_refused(seconds):
    with pytest.raises(DefinitionError, match="number of seconds"), deadline(seconds):
        pass


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "2", True])
def test_an_option_that_is_no_time_is_refused(seconds):
    with pytest.raises(DefinitionError, match="deadline must be a finite number"):
        retry_on(TimeoutError, deadline=seconds)


# -- attempts that take too long ------------------------------------------------------


@pytest.mark.parametrize("ambient", [False, True])
def test_an_async_attempt_is_cancelled_at_the_deadline(ambient):
    ended = []

    @retry_on(TimeoutError, limit=5, delay=0, deadline=None if ambient else 0.05)
    class Hang(Task[None]):
        async def work(self) -> None:
            try:
                await asyncio.sleep(30)
            finally:
                ended.append(self.attempt)

    async def run():
        with deadline(0.05 if ambient else 9):
            return await Hang.aexecute()

    result = asyncio.run(run())

    assert ended == [0]
    assert isinstance(result.cause, DeadlineExceeded)
    assert (result.retries, result.stopped) == (0, Stop.DEADLINE)


def test_an_async_attempt_is_cancelled_without_being_listed():
    class Hang(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(30)

    async def run():
        with deadline(0.02):
            return await Hang.aexecute()

    result = asyncio.run(run())

    assert isinstance(result.cause, TimeoutError)
    assert result.stopped is Stop.DEADLINE


def test_a_timeout_of_work_itself_is_not_the_deadline():
    @retry_on(KeyError, deadline=5.0)
    class Hang(Task[None]):
        async def work(self) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)

    result = asyncio.run(Hang.aexecute())

    assert type(result.cause) is TimeoutError
    assert result.stopped is Stop.NOT_LISTED


def test_cancelling_from_outside_is_still_that():
    @retry_on(TimeoutError, deadline=60.0)
    class Hang(Task[None]):
        async def work(self) -> None:
            self.context.begun.set()
            await asyncio.sleep(60)

    async def run():
        begun = asyncio.Event()
        running = asyncio.create_task(Hang.aexecute(begun=begun))
        await begun.wait()
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_what_comes_after_the_last_attempt_is_not_cancelled():
    done = []

    class Hang(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(30)

        async def rollback(self) -> None:
            await asyncio.sleep(0)
            done.append("rollback")

        @on_failed
        async def report(self) -> None:
            await asyncio.sleep(0)
            done.append("report")

    async def run():
        with deadline(0.02):
            return await Hang.aexecute()

    result = asyncio.run(run())

    assert done == ["rollback", "report"]
    assert result.rollback_error is None
    assert isinstance(result.cause, DeadlineExceeded)


def test_async_attempts_never_overlap(instant):
    trace = []

    @retry_on(ConnectionError, limit=3, delay=0, deadline=60)
    class Slow(Task[None]):
        async def work(self) -> None:
            trace.append("begin")
            try:
                await asyncio.sleep(60 if self.attempt == 2 else 0)
                raise ConnectionError
            finally:
                await asyncio.sleep(0)  # it takes its time to clean up
                trace.append("end")

    def be_late(_sender, *, attempt, **_):
        instant.advance(60 if attempt == 2 else 0)

    with task_retried.connected_to(be_late):
        result = asyncio.run(Slow.aexecute())

    assert trace == ["begin", "end"] * 3
    assert isinstance(result.cause, DeadlineExceeded)


def test_a_sync_attempt_is_never_abandoned():
    trace = []
    threads = set()

    @retry_on(ConnectionError, limit=3, delay=0, deadline=0.03)
    class Slow(Task[str]):
        def work(self) -> str:
            threads.add(threading.get_ident())
            trace.append("begin")
            time.sleep(0.05)
            trace.append("end")
            return "done all the same"

    before = set(threading.enumerate())
    result = Slow.execute()

    assert result.value == "done all the same"
    assert trace == ["begin", "end"]
    assert threads == {threading.get_ident()}
    assert set(threading.enumerate()) <= before  # those of other tests may end


# -- one call inside work -------------------------------------------------------------


def test_a_retried_call_keeps_to_the_deadline_too(instant):
    calls = []

    class Fetch(Task[None]):
        def work(self) -> None:
            self.retry(self.ask, max_attempts=9, base_delay=0.25, max_delay=0.5)

        def ask(self) -> None:
            calls.append(remaining())
            raise TimeoutError

    with deadline(0.30):  # half of the longest pause, twice: 0.25 and 0.25
        result = Fetch.execute()

    assert instant.pauses == [0.25]
    assert len(calls) == 2
    assert isinstance(result.cause, TimeoutError)


# -- what outlives the run or the block ----------------------------------------------


class Left(Task[float | None]):
    def work(self) -> float | None:
        return remaining()


@retry_on(ConnectionError, deadline=5)
class StartsAPoller(Task[None]):
    async def work(self) -> None:
        self.context.poller = asyncio.create_task(self.poll(self.context.ended))
        await asyncio.sleep(0)

    async def poll(self, ended):
        before = Left.execute().value
        await ended.wait()
        return before, Left.execute().value


@in_still_time
@pytest.mark.parametrize("around", [None, 60.0])
def test_what_a_run_started_and_outlives_it_does_not_have_its_deadline(around):
    async def main():
        ended = asyncio.Event()
        result = await StartsAPoller.aexecute(ended=ended)
        ended.set()
        return await result.context.poller

    with nullcontext() if around is None else deadline(around):
        assert asyncio.run(main()) == (5.0, around)


@in_still_time
def test_what_a_block_started_and_outlives_it_does_not_have_its_deadline():
    async def main():
        with deadline(5):
            later = asyncio.create_task(Left.aexecute())
        return await later

    assert asyncio.run(main()).value is None


def test_a_timeout_of_its_own_at_the_deadline_is_kept_as_the_cause():
    class Own(Task[None]):
        async def work(self) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise TimeoutError("the bank did not answer") from None

    async def main():
        with deadline(0.01):
            return await Own.aexecute()

    result = asyncio.run(main())

    assert isinstance(result.cause, DeadlineExceeded)
    assert str(result.cause.__cause__) == "the bank did not answer"
