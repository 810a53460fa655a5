from __future__ import annotations

import asyncio
from contextvars import Context
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import freezegun
import pytest

from cmdx import Task, clock, deadline, parallel, remaining, retry_on
from cmdx.testing import instant
from cmdx.workflow.workflow import Workflow


@retry_on(ConnectionError, limit=10, delay=60)
class Patient(Task[None]):
    def work(self) -> None:
        raise ConnectionError


@retry_on(ConnectionError, limit=10, delay=60)
class PatientCoroutine(Task[None]):
    async def work(self) -> None:
        raise ConnectionError


@retry_on(ConnectionError, limit=1, delay=10, jitter="full_random")
class Spread(Task[None]):
    def work(self) -> None:
        raise ConnectionError


def test_no_pause_is_slept(monkeypatch):
    slept = []

    async def asleep(_clock, seconds):
        slept.append(seconds)

    monkeypatch.setattr(clock.Clock, "sleep", slept.append)
    monkeypatch.setattr(clock.Clock, "asleep", asleep)

    with instant():
        assert Patient.execute().retries == 10
        assert asyncio.run(PatientCoroutine.aexecute()).retries == 10

    assert set(slept) == {0}  # which lets other coroutines run


def test_pauses_are_recorded_and_time_passes_in_them_alone():
    with instant() as time:
        result = Patient.execute()

    assert time.pauses == [60] * 10
    assert result.duration == 600
    assert [attempt.start for attempt in result.attempts] == list(range(0, 601, 60))
    assert [attempt.duration for attempt in result.attempts] == [0.0] * 11


def test_awaited_pauses_are_recorded_too():
    with instant() as time:
        result = asyncio.run(PatientCoroutine.aexecute())

    assert time.pauses == [60] * 10
    assert result.duration == 600


def test_the_time_of_day_moves_with_the_pauses():
    class Twice(Task[tuple]):
        def work(self):
            return Patient.execute().started_at, Patient.execute().started_at

    with freezegun.freeze_time(), instant():
        first, second = Twice.execute().value

    assert second - first == timedelta(seconds=600)


def test_time_can_be_advanced_by_hand():
    @retry_on(TimeoutError, limit=5, delay=0.25, deadline=0.30)
    class Slow(Task[None]):
        def work(self) -> None:
            time.advance(0.20)
            raise TimeoutError

    with instant() as time:
        result = Slow.execute()

    assert (result.retries, result.stopped) == (0, "deadline")
    assert result.attempts[0].duration == pytest.approx(0.20)
    assert time.pauses == []


def test_a_deadline_set_outside_keeps_its_meaning():
    with deadline(100), instant():
        before = remaining()
        Patient.execute()
        after = remaining()

    assert before == pytest.approx(100, abs=5)
    assert before - after == pytest.approx(60)


@pytest.mark.parametrize(
    ("randoms", "pauses"),
    [
        (0.1, [1.0, 1.0, 1.0]),
        (0, [0, 0, 0]),
        ([0.2, 0.9, 0.4], [2.0, 9.0, 4.0]),
        (iter([0.2, 0.9, 0.4]), [2.0, 9.0, 4.0]),
    ],
)
def test_jitters_draw_the_given_numbers(randoms, pauses):
    with instant() as time:
        time.randoms = randoms
        drawn = [Spread.execute().attempts[0].pause for _ in range(3)]

    assert drawn == pytest.approx(pauses)


def test_random_numbers_can_be_given_at_once():
    with instant(randoms=[0.7]) as time:
        Spread.execute()

    assert time.pauses == [7.0]


def test_the_default_random_number_is_one_half():
    with instant() as time:
        Spread.execute()

    assert time.pauses == [5.0]


def test_a_draw_without_a_number_left_is_an_error():
    with instant(randoms=[0.7]):
        Spread.execute()
        result = Spread.execute()

    assert isinstance(result.cause, LookupError)
    assert "instant.randoms = 0.5" in result.reason


def test_nested_use_restores_the_outer_one():
    with instant() as outer:
        Spread.execute()
        with instant(randoms=0.9) as inner:
            Spread.execute()
            assert clock.current.get() is inner
        Spread.execute()

    assert outer.pauses == [5.0, 5.0]
    assert inner.pauses == [9.0]
    assert outer.slept == 10.0


def test_nested_use_begins_where_the_outer_one_is():
    with instant() as outer:
        outer.advance(1000)
        moment, day = outer.monotonic(), outer.time()
        with instant() as inner:
            assert inner.monotonic() == moment
            assert inner.time() == pytest.approx(day, abs=5)


def test_the_block_ends_when_it_is_left_by_an_error():
    before = clock.current.get()
    with pytest.raises(KeyError), instant():
        raise KeyError

    assert clock.current.get() is before


def test_a_block_may_be_left_in_another_context():
    class Outside(clock.Clock):
        def __init__(self):
            self.slept = []

        def sleep(self, seconds):
            self.slept.append(seconds)

        def monotonic(self):
            return 7.0

        def time(self):
            return 8.0

        def random(self):
            return 0.25

    elsewhere, outside, block = Context(), Outside(), instant()
    elsewhere.run(clock.current.set, outside)
    time = elsewhere.run(block.__enter__)
    elsewhere.run(Spread.execute)
    block.__exit__(None, None, None)
    later = elsewhere.run(Spread.execute)

    assert time.pauses == [5.0]
    assert outside.slept == [2.5]
    assert later.duration == 0.0
    assert later.started_at == datetime(1970, 1, 1, 0, 0, 8, tzinfo=UTC)


def test_a_replaced_clock_may_be_taken_back_in_another_context():
    elsewhere, block = Context(), clock.use(clock.Clock())
    elsewhere.run(block.__enter__)
    before = clock.current.get()
    block.__exit__(None, None, None)

    assert clock.current.get() is before


def test_another_thread_keeps_real_time():
    clocks = []
    with instant() as time:
        thread = Thread(target=lambda: clocks.append(clock.current.get()))
        # A context of its own, whatever threads inherit in this Python.
        Context().run(thread.start)
        thread.join()

    assert clocks != [time]
    assert type(clocks[0]) is clock.Clock


def test_two_threads_have_a_time_each():
    meeting = Barrier(2)
    pauses = {}

    def run(chance):
        with instant(randoms=chance) as time:
            meeting.wait(20)
            Spread.execute()
            meeting.wait(20)
            pauses[chance] = time.pauses

    threads = [Thread(target=run, args=(chance,)) for chance in (0.1, 0.9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert pauses == {0.1: [1.0], 0.9: [9.0]}


def test_a_coroutine_that_was_started_before_keeps_real_time():
    async def main():
        begun, used = asyncio.Event(), asyncio.Event()

        async def bystander():
            begun.set()
            await used.wait()
            return clock.current.get()

        other = asyncio.create_task(bystander())
        await begun.wait()
        with instant():
            used.set()
            return await other

    assert type(asyncio.run(main())) is clock.Clock


def test_a_coroutine_with_a_context_of_its_own_keeps_real_time():
    async def current():
        return clock.current.get()

    async def main():
        with instant() as time:
            alone = asyncio.create_task(current(), context=Context())
            heir = asyncio.create_task(current())
            return time, await alone, await heir

    time, alone, heir = asyncio.run(main())

    assert type(alone) is clock.Clock
    assert heir is time


def test_two_coroutines_have_a_time_each():
    async def run(chance):
        with instant(randoms=chance) as time:
            await asyncio.sleep(0)
            await Spread.aexecute()
            return time.pauses

    async def main():
        return await asyncio.gather(run(0.1), run(0.9))

    assert asyncio.run(main()) == [[1.0], [9.0]]


def test_coroutines_that_share_a_time_pause_beside_each_other():
    @retry_on(ConnectionError, limit=3, delay=20)
    class Shorter(Task[None]):
        async def work(self) -> None:
            raise ConnectionError

    async def main():
        await asyncio.gather(PatientCoroutine.aexecute(), Shorter.aexecute())

    with instant() as time:
        asyncio.run(main())

    assert sorted(time.pauses) == [20] * 3 + [60] * 10
    assert time.slept == 600


def test_a_pause_can_be_cancelled():
    async def main():
        run = asyncio.create_task(PatientCoroutine.aexecute())
        await asyncio.sleep(0)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        return run.cancelled()

    with instant() as time:
        assert asyncio.run(main())
    assert time.pauses == [60]


def test_parallel_steps_are_instant_too():
    class Both(Workflow[None]):
        steps = (parallel(Spread, Spread, continue_on_failure=True),)

    with instant() as time:
        Both.execute()

    assert time.pauses == [5.0, 5.0]


def test_freezegun_says_what_time_it_is():
    new_year = datetime(2030, 1, 1, tzinfo=UTC)

    with instant() as time, freezegun.freeze_time(new_year) as frozen:
        first = Patient.execute()
        frozen.tick(timedelta(days=1))
        second = Patient.execute()
        assert datetime.now(UTC) == new_year + timedelta(days=1)

    assert first.started_at == new_year
    assert second.started_at == new_year + timedelta(days=1, seconds=600)
    assert (first.duration, len(time.pauses)) == (600, 20)


def test_freezegun_may_also_be_outside():
    new_year = datetime(2030, 1, 1, tzinfo=UTC)

    with freezegun.freeze_time(new_year), instant() as time:
        result = asyncio.run(PatientCoroutine.aexecute())

    assert result.started_at == new_year
    assert time.pauses == [60] * 10


def test_an_outer_clock_says_what_time_it_is():
    class Noon(clock.Clock):
        def time(self) -> float:
            return 43200.0

    with clock.use(Noon()), instant():
        assert Patient.execute().started_at == datetime(1970, 1, 1, 12, tzinfo=UTC)
