"""When everything in a chain happened, as plain values."""

from __future__ import annotations

import asyncio
import heapq
import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictured_shop import NASTY_SHOWN, TIMES, StillClock, nasty_chain, spend

from cmdx import Chain, Task, before_execution, clock, retry_on
from cmdx.pictures import timeline
from cmdx.report import tree_order


def rows_of(chain):
    return {row.name: row for row in timeline(chain).rows}


# -- rows and bars --------------------------------------------------------------


def test_rows_are_in_tree_order(chain):
    rows = timeline(chain).rows

    assert [row.name for row in rows] == list(TIMES)
    assert [row.depth for row in rows] == [0, 1, 1, 1, 1, 1, 2]
    assert [row.parent for row in rows] == [None, 0, 0, 0, 0, 0, 5]
    assert [row.last for row in rows] == [6, 1, 2, 3, 4, 6, 6]


def test_bars_are_counted_from_the_start_of_the_root(chain):
    line = timeline(chain)

    assert [tuple(row.bar) for row in line.rows] == [
        pytest.approx(times) for times in TIMES.values()
    ]
    assert line.duration == pytest.approx(1.0)


def test_rows_tell_what_became_of_the_tasks(chain):
    rows = rows_of(chain)

    assert [str(row.status) for row in rows.values()] == [
        *("failed", "success", "success", "success", "skipped", "failed", "failed"),
    ]
    assert rows["ApplyVoucher"].reason == "no voucher given"
    assert rows["ChargeCard"].retries == 2
    assert timeline(chain).root == rows["Checkout"]


def test_siblings_are_in_order_of_start_though_the_wall_clock_stands_still():
    class Frozen(EventClock):
        def time(self) -> float:
            return 0.0

    class Child(Task[None]):
        async def work(self) -> None:
            await clock.current.get().asleep(self.context.seconds)

    class Short(Child):
        pass

    class Long(Child):
        pass

    class Parent(Task[None]):
        async def work(self) -> None:
            first = asyncio.create_task(Long.aexecute(seconds=9))
            await clock.current.get().asleep(1)
            await Short.aexecute(seconds=1)
            await first

    with clock.use(Frozen()) as events:
        chain = asyncio.run(events.run(Parent.aexecute())).chain

    assert [result.task for result in chain] == [Parent, Short, Long]
    assert [row.name for row in timeline(chain).rows] == ["Parent", "Long", "Short"]
    assert [(depth, result.task) for depth, _, result in tree_order(chain)] == [
        (0, Parent),
        (1, Long),
        (1, Short),
    ]


@pytest.mark.usefixtures("still")
def test_while_the_root_runs_times_are_counted_from_the_earliest_result():
    class Inner(Task[None]):
        def work(self) -> None:
            spend(1)

    class Outer(Task[None]):
        def work(self) -> None:
            spend(2)
            Inner.execute()

    class Root(Task[None]):
        def work(self) -> None:
            spend(7)
            Outer.execute()
            self.context.seen = timeline(Inner.execute().chain)

    line = Root.execute().context.seen

    assert [tuple(row.bar) for row in line.rows] == [(0, 3), (2, 1), (3, 1)]
    assert [row.parent for row in line.rows] == [None, 0, None]
    assert line.root is None


def test_a_chain_without_results_has_no_rows():
    assert timeline(Chain()) == ((), (), 0.0, None)


def test_a_chain_that_was_pickled_has_the_same_timeline(chain):
    assert timeline(pickle.loads(pickle.dumps(chain[0])).chain) == timeline(chain)


@pytest.mark.usefixtures("still")
def test_many_levels_are_one_below_the_other():
    class Nested(Task[None]):
        def work(self) -> None:
            if self.context.left:
                self.context.left -= 1
                Nested.execute(self)

    rows = timeline(Nested.execute(left=60).chain).rows

    assert [row.depth for row in rows] == list(range(61))


@pytest.mark.usefixtures("still")
def test_names_are_without_the_functions_they_were_defined_in():
    class Local(Task[None]):
        def work(self) -> None: ...

    assert [*rows_of(Local.execute().chain)] == ["Local"]


def test_names_and_reasons_are_cleaned_of_what_no_document_may_contain():
    (row,) = timeline(nasty_chain()).rows

    assert row.name == NASTY_SHOWN
    assert row.reason == NASTY_SHOWN


def test_half_a_character_is_shown_as_none():
    class Half(Task[None]):
        def work(self) -> None:
            self.fail("\ud83d")

    (row,) = timeline(Half.execute().chain).rows

    assert row.reason == "\N{REPLACEMENT CHARACTER}"


def test_words_that_are_spelt_with_joiners_are_kept():
    class Persian(Task[None]):
        def work(self) -> None:
            self.skip("می‌خواهم 👩‍🔧")

    assert timeline(Persian.execute().chain).rows[0].reason == "می‌خواهم 👩‍🔧"


def test_the_first_rows_are_a_timeline_too(chain):
    whole = timeline(chain)
    part = whole.first_rows(3)

    assert [row.name for row in part.rows] == list(TIMES)[:3]
    assert part.rows[0].last == 2
    assert part.rows[0].origin is None
    assert [(lanes.first, lanes.last) for lanes in part.lanes] == [(2, 2)]
    assert part.duration == whole.duration
    assert whole.first_rows(2).lanes == ()
    assert whole.first_rows(7) == whole


# -- attempts -------------------------------------------------------------------


def test_each_attempt_is_a_tick(chain):
    ticks = rows_of(chain)["ChargeCard"].ticks

    assert [tuple(tick.span) for tick in ticks] == [
        pytest.approx((start, 0.1)) for start in (0.5, 0.7, 0.9)
    ]
    assert [tick.error for tick in ticks] == ["TimeoutError", "TimeoutError", None]


def test_one_clean_attempt_has_no_ticks(chain):
    assert rows_of(chain)["ValidateCart"].ticks == ()


@pytest.mark.usefixtures("still")
def test_an_attempt_starts_when_work_is_called_not_when_the_task_starts():
    class Prepared(Task[None]):
        @before_execution
        def prepare(self) -> None:
            spend(2)

        def work(self) -> None:
            spend(1)
            raise ValueError

    (row,) = timeline(Prepared.execute().chain).rows

    assert row.bar == (0, 3)
    assert [tick.span for tick in row.ticks] == [(2, 1)]


def test_pauses_lie_between_attempts(chain):
    assert [tuple(pause) for pause in rows_of(chain)["ChargeCard"].pauses] == [
        pytest.approx((0.6, 0.1)),
        pytest.approx((0.8, 0.1)),
    ]


def test_a_pause_is_as_long_as_was_waited_not_as_was_decided():
    class Late(StillClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 0.5)

    @retry_on(ValueError, limit=1, delay=1)
    class Flaky(Task[None]):
        def work(self) -> None:
            if self.attempt == 0:
                raise ValueError

    with clock.use(Late()):
        (row,) = timeline(Flaky.execute().chain).rows

    assert row.pauses == ((0, 1.5),)


@pytest.mark.usefixtures("still")
def test_without_a_delay_there_is_no_pause():
    @retry_on(ValueError, limit=1, delay=0)
    class Flaky(Task[None]):
        def work(self) -> None:
            spend(1)
            if self.attempt == 0:
                raise ValueError

    (row,) = timeline(Flaky.execute().chain).rows

    assert row.pauses == ()
    assert [tick.span for tick in row.ticks] == [(0, 1), (1, 1)]


# -- lanes ----------------------------------------------------------------------


def test_siblings_that_ran_at_the_same_time_are_in_lanes(chain):
    line = timeline(chain)
    (lanes,) = line.lanes

    assert (lanes.first, lanes.last, lanes.at_once) == (2, 3, 2)
    assert tuple(lanes.span) == pytest.approx((0.1, 0.4))
    assert [row.lane for row in line.rows] == [0, 0, 0, 1, 0, 0, 0]


class EventClock(clock.Clock):
    """Jumps from one end of a sleep to the next; sleepers overlap as in real time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.count = 0
        self.sleepers: list[tuple[float, int, asyncio.Event]] = []

    def monotonic(self) -> float:
        return self.now

    async def asleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self.count += 1
        heapq.heappush(self.sleepers, (self.now + seconds, self.count, event))
        await event.wait()

    async def run(self, main):
        task = asyncio.ensure_future(main)
        while not task.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if self.sleepers:
                self.now, _, event = heapq.heappop(self.sleepers)
                event.set()
        return task.result()


def run_beside(times):
    """Return the chain of a task whose children start and last as *times* say."""

    class Child(Task[None]):
        async def work(self) -> None:
            await clock.current.get().asleep(self.context.seconds)

    async def later(start, seconds):
        await clock.current.get().asleep(start)
        await Child.aexecute(seconds=seconds)

    class Parent(Task[None]):
        async def work(self) -> None:
            await asyncio.gather(*(later(*time) for time in times))

    with clock.use(EventClock()) as events:
        return asyncio.run(events.run(Parent.aexecute())).chain


def overlap(one, other):
    return one.start < other.end and other.start < one.end


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=8))
def test_rows_in_one_lane_never_overlap_and_there_are_no_more_lanes_than_needed(times):
    line = timeline(run_beside(times))
    rows = line.rows[1:]
    together = {
        number: lanes
        for lanes in line.lanes
        for number in range(lanes.first, lanes.last + 1)
    }

    assert sorted(tuple(row.bar) for row in rows) == sorted(times)
    for number, row in enumerate(rows, 1):
        others = [other for other in rows if overlap(row.bar, other.bar)]
        assert [other.lane for other in others].count(row.lane) == 1
        assert (number in together) == (len(others) > 1)
    for lanes in line.lanes:
        inside = [row.bar for row in line.rows[lanes.first : lanes.last + 1]]
        busy = [sum(bar.start <= t < bar.end for bar in inside) for t in range(20)]
        assert lanes.at_once == max(busy)
        assert lanes.span.start == min(bar.start for bar in inside)
        assert lanes.span.end == max(bar.end for bar in inside)


def test_each_of_many_at_the_same_time_has_a_lane_of_its_own():
    line = timeline(run_beside([(0, 1)] * 300))

    assert [lanes.at_once for lanes in line.lanes] == [300]
    assert sorted(row.lane for row in line.rows[1:]) == list(range(300))


def test_siblings_that_overlap_only_by_rounding_ran_one_after_the_other(still):
    still.now = 0.3

    class Child(Task[None]):
        def work(self) -> None:
            spend(0.1)

    class Parent(Task[None]):
        def work(self) -> None:
            for _ in range(100):
                Child.execute()

    line = timeline(Parent.execute().chain)
    bars = [row.bar for row in line.rows[1:]]

    assert any(one.end > other.start for one, other in pairwise(bars))
    assert line.lanes == ()


# -- failures -------------------------------------------------------------------


def test_a_thrown_failure_points_to_the_row_it_came_from(chain):
    rows = timeline(chain).rows

    assert [(row.thrown, row.origin, row.origin_name) for row in rows] == [
        (True, 5, "Pay"),
        *[(False, None, None)] * 4,
        (True, 6, "ChargeCard"),
        (False, None, None),
    ]


@pytest.mark.usefixtures("still")
def test_a_failure_thrown_from_another_chain_has_a_name_but_no_row():
    class Elsewhere(Task[None]):
        def work(self) -> None:
            self.fail("long ago")

    failure = Elsewhere.execute()

    class Here(Task[None]):
        def work(self) -> None:
            self.throw(failure)

    (row,) = timeline(Here.execute().chain).rows

    assert (row.thrown, row.origin, row.origin_name) == (True, None, "Elsewhere")


def test_a_row_has_the_class_of_the_error_of_its_rollback(chain):
    rows = rows_of(chain)

    assert (rows["Pay"].rolled_back, rows["Pay"].rollback_error) == (True, "OSError")
    assert not rows["Checkout"].rolled_back
    assert rows["Checkout"].rollback_error is None
