from __future__ import annotations

import asyncio
from threading import Barrier

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmdx import DefinitionError, Task, clock, middleware
from cmdx.middlewares import RateLimit, limiters
from cmdx.middlewares.rate_limit import SWEEP_FROM, Rate, Window
from cmdx.middlewares.shared import seconds_until

pytestmark = pytest.mark.usefixtures("still")


def task_with(limit):
    @middleware(limit)
    class Search(Task[int]):
        def work(self) -> int:
            return 1

    return Search


def statuses(task, times, **inputs):
    return [task.execute(**inputs).status.value for _ in range(times)]


def test_runs_beyond_the_limit_are_refused(name):
    search = task_with(RateLimit(name, limit=2, per=10.0))

    assert statuses(search, 4) == ["success", "success", "failed", "failed"]


def test_work_is_not_called_when_it_is_refused(name):
    worked = []

    @middleware(RateLimit(name, limit=1))
    class Search(Task[None]):
        def work(self) -> None:
            worked.append(self)

    Search.execute()
    assert Search.execute().stopped is None
    assert len(worked) == 1


def test_a_refusal_tells_the_rest_of_the_window(still, name):
    search = task_with(RateLimit(name, limit=2, per=10.0))
    search.execute()
    still.seconds += 3.0
    search.execute()
    still.seconds += 4.0
    result = search.execute()

    assert result.reason == f"the rate limit {name!r} is reached"
    assert dict(result.metadata) == {
        "code": "RATE_LIMITED",
        "rate_limit": name,
        "retry_after": 3.0,
    }


def test_refused_runs_do_not_count(still, name):
    search = task_with(RateLimit(name, limit=1, per=10.0))
    search.execute()
    for _ in range(9):
        still.seconds += 1.0
        assert search.execute().failed
    still.seconds += 1.0

    assert search.execute().success


def test_the_window_slides(still, name):
    search = task_with(RateLimit(name, limit=2, per=10.0))
    seen = []
    for _ in range(5):
        seen += statuses(search, 1)
        still.seconds += 4.0

    assert seen == ["success", "success", "failed", "success", "success"]


def test_failed_runs_count_as_others_do(name):
    @middleware(RateLimit(name, limit=1))
    class Search(Task[None]):
        def work(self) -> None:
            raise ValueError

    assert "code" not in Search.execute().metadata
    assert Search.execute().metadata["code"] == "RATE_LIMITED"


def test_a_refused_run_can_be_skipped_instead(name):
    search = task_with(RateLimit(name, limit=1, skip=True))
    search.execute()
    result = search.execute()

    assert result.skipped
    assert result.metadata["retry_after"] == 1.0


def test_the_code_can_be_chosen(name):
    search = task_with(RateLimit(name, limit=1, code="SLOW_DOWN"))
    search.execute()

    assert search.execute().metadata["code"] == "SLOW_DOWN"


def test_tasks_that_give_the_same_name_share_the_limit(name):
    first, second = task_with(RateLimit(name, limit=2)), task_with(RateLimit(name))

    assert statuses(first, 1) + statuses(second, 2) == ["success", "success", "failed"]


def test_each_value_of_by_has_a_limit_of_its_own(name):
    by_user = RateLimit(name, limit=1, by=lambda task: task.context.user)
    search = task_with(by_user)

    assert statuses(search, 2, user="ada") == ["success", "failed"]
    assert statuses(search, 2, user="bob") == ["success", "failed"]


def test_a_function_by_that_raises_fails_the_run(name):
    search = task_with(RateLimit(name, limit=1, by=lambda task: task.nonsense))

    assert isinstance(search.execute().cause, AttributeError)


def test_idle_windows_are_removed(still, name):
    limiter = RateLimit(name, limit=1, per=1.0).limiter
    for number in range(10 * SWEEP_FROM):
        limiter.ask(number)
        assert limiter.ask(max(number - 50, 0)) > 0  # still remembered
        still.seconds += 0.01

    assert len(limiter._windows) <= SWEEP_FROM


def test_exactly_the_limit_passes_between_threads(name, in_threads):
    search = task_with(RateLimit(name, limit=50, per=3600.0))
    together = Barrier(8)

    def call(_):
        together.wait()
        return statuses(search, 20).count("success")

    assert sum(in_threads(call, 8)) == 50


def test_threads_are_answered_one_after_the_other(name, in_threads):
    limiter = RateLimit(name, limit=4, per=3600.0).limiter
    reading, most = [], []

    class SlowClock(clock.Clock):
        def monotonic(self) -> float:
            reading.append(self)
            self.sleep(0.005)
            most.append(len(reading))
            reading.pop()
            return 0.0

    with clock.use(SlowClock()):
        waits = in_threads(lambda _: limiter.ask(), 8)
    assert set(most) == {1}
    assert waits.count(0.0) == 4


def test_an_async_task_is_limited_alike(name):
    @middleware(RateLimit(name, limit=2))
    class Search(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(0)

    async def all_at_once():
        return await asyncio.gather(*(Search.aexecute() for _ in range(5)))

    results = asyncio.run(all_at_once())
    assert sum(result.success for result in results) == 2


def test_the_moments_of_a_replaced_clock_are_forgotten(still, name):
    search = task_with(RateLimit(name, limit=1, per=10.0))
    still.seconds += 1e6
    search.execute()
    still.seconds = 0.0

    assert search.execute().success


def test_a_cleared_limiter_has_no_runs(name):
    search = task_with(RateLimit(name, limit=1))
    search.execute()
    limiters[name].clear()

    assert search.execute().success


@given(
    limit=st.integers(1, 5),
    per=st.floats(0.01, 100),
    start=st.floats(0, 1e9),
    gaps=st.lists(st.floats(0, 50), max_size=40),
)
def test_never_more_than_the_limit_begins_in_any_window(limit, per, start, gaps):
    window = Window(Rate(limit, per))
    now, begun = start, []
    for gap in gaps:
        now += gap
        wait = window.take(now)
        assert wait >= 0
        if wait:
            assert now < begun[-limit] + per <= now + wait
        else:
            begun.append(now)

    spans = zip(begun, begun[limit:], strict=False)
    assert all(first + per <= last for first, last in spans)


@given(limit=st.integers(1, 5), per=st.floats(0.01, 100), start=st.floats(0, 1e9))
def test_waiting_for_retry_after_is_long_enough(limit, per, start):
    window = Window(Rate(limit, per))
    waits = [window.take(start) for _ in range(limit + 1)]

    assert waits[:-1] == [0.0] * limit
    later = [window.take(start + waits[-1]) for _ in range(limit + 1)]
    assert later[:-1] == [0.0] * limit
    assert later[-1] > 0


@given(now=st.floats(0, 1e9), until=st.floats(0, 1e9))
@example(now=11.392, until=57.004)  # 11.392 + (57.004 - 11.392) < 57.004
@example(now=7.574, until=30.739)
def test_the_seconds_until_a_time_are_never_too_few(now, until):
    now, until = sorted((now, until))

    assert now + seconds_until(until, now) >= until


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 0}, "limit must be a whole number"),
        ({"limit": True}, "limit"),
        ({"limit": 1, "per": 0}, "per must be a finite number"),
        ({"limit": 1, "per": float("nan")}, "per"),
        ({"per": 1.0}, "per needs a limit"),
        ({"limit": 1, "by": "user"}, "by must be a function"),
    ],
)
def test_wrong_options_are_refused_when_it_is_made(name, options, said):
    with pytest.raises(DefinitionError, match=said):
        RateLimit(name, **options)
    assert name not in limiters


def test_another_limit_replaces_the_earlier_one_with_a_warning(name):
    search = task_with(RateLimit(name, limit=1, per=10.0))
    search.execute()
    with pytest.warns(UserWarning, match="declared again with other options") as seen:
        RateLimit(name, limit=2, per=10.0)

    assert seen[0].filename == __file__
    assert statuses(search, 2) == ["success", "failed"]


def test_a_name_without_a_limit_fails_the_run(name):
    result = task_with(RateLimit(name)).execute()

    assert isinstance(result.cause, DefinitionError)
    assert "has no limit" in result.reason


def test_it_shows_its_name_and_rate(name):
    limit = RateLimit(name, limit=3)

    assert repr(limit) == f"RateLimit({name!r})"
    assert repr(limit.limiter) == f"<Limiter {name!r}: Rate(limit=3, per=1.0)>"
