"""The results of one root run, and who ran whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextvars import copy_context
from functools import reduce
from operator import or_
from uuid import RFC_4122, UUID
from weakref import ref

import pytest

from cmdx import Chain, Status, Task, clock, detached, middleware, retry_on
from cmdx.chain import new_id


class Leaf(Task[str]):
    def work(self) -> str:
        return "leaf"


class Branch(Task[None]):
    def work(self) -> None:
        Leaf.execute()
        Leaf.execute()


class Root(Task[None]):
    def work(self) -> None:
        Branch.execute()
        Leaf.execute()


class Failing(Task[None]):
    def work(self) -> None:
        Leaf.execute()
        self.fail("no")


# -- a sequence -----------------------------------------------------------------


def test_the_root_comes_first_then_results_in_the_order_they_ended():
    chain = Root.execute().chain

    assert [result.task for result in chain] == [Root, Leaf, Leaf, Branch, Leaf]


def test_a_task_alone_is_a_chain_of_one():
    result = Leaf.execute()

    assert list(result.chain) == [result]


def test_a_chain_is_a_sequence():
    result = Root.execute()
    chain = result.chain

    assert isinstance(chain, Chain)
    assert isinstance(chain, Sequence)
    assert len(chain) == 5
    assert chain[0] == result
    assert chain[-1].task is Leaf
    assert [each.task for each in chain[2:4]] == [Leaf, Branch]
    assert result in chain
    assert chain.index(chain[3]) == 3
    assert chain.count(result) == 1
    assert next(reversed(chain)) == chain[4]


@pytest.mark.parametrize("index", [5, -6])
def test_a_chain_ends_where_it_ends(index):
    with pytest.raises(IndexError):
        Root.execute().chain[index]


def test_a_chain_does_not_contain_the_results_of_others():
    assert Leaf.execute() not in Root.execute().chain


def test_iterating_is_safe_while_results_are_added():
    class Counting(Task[int]):
        def work(self) -> int:
            first = Leaf.execute()
            return len([Leaf.execute() for _ in first.chain])

    result = Counting.execute()

    assert result.value == 1
    assert len(result.chain) == 3


def test_every_result_of_a_run_knows_the_same_chain():
    chain = Root.execute().chain

    assert all(result.chain is chain for result in chain)


def test_two_root_runs_have_two_chains():
    first, second = Root.execute(), Root.execute()

    assert first.chain is not second.chain
    assert first.cid != second.cid
    assert len(first.chain) == len(second.chain) == 5


def test_a_task_run_again_in_each_attempt_adds_a_result_each_time(instant):
    @retry_on(TimeoutError, limit=2)
    class Again(Task[None]):
        def work(self) -> None:
            Leaf.execute()
            if self.attempt < 2:
                raise TimeoutError

    chain = Again.execute().chain

    assert [result.task for result in chain] == [Again, Leaf, Leaf, Leaf]
    assert instant.pauses == [0.5, 0.5]


# -- root and status ------------------------------------------------------------


def test_the_root_is_the_result_of_the_outermost_task():
    result = Root.execute()

    assert result.chain.root == result
    assert [each.root for each in result.chain] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("task", "status"), [(Root, Status.SUCCESS), (Failing, Status.FAILED)]
)
def test_the_status_of_a_chain_is_that_of_its_root(task, status):
    chain = task.execute().chain

    assert chain.status is status
    assert chain[1].status is Status.SUCCESS


def test_a_chain_can_be_read_while_its_root_still_runs():
    class Reading(Task[None]):
        def work(self) -> None:
            first = Leaf.execute()
            chain = self.context.chain = first.chain
            assert chain.root is None
            assert chain.status is None
            assert list(chain) == [first]
            assert first.parent is None
            assert first.parent_tid == self.tid
            assert first.index == 1
            second = Leaf.execute()
            assert list(chain) == [first, second]

    result = Reading.execute()

    assert result.reason is None
    assert result.context.chain is result.chain
    assert result.chain.root == result
    assert [each.index for each in result.chain] == [0, 1, 2]


def test_a_middleware_reads_the_chain_that_its_result_will_join():
    seen = []

    def watching(_task):
        result = yield
        seen.append((result.chain, result.cid, len(result.chain)))

    @middleware(watching)
    class Watched(Branch):
        pass

    result = Watched.execute()

    assert seen == [(result.chain, result.cid, 2)]
    assert len(result.chain) == 3


# -- ids ------------------------------------------------------------------------

UUIDV7 = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)


def test_ids_are_uuids_of_version_seven():
    for result in Root.execute().chain:
        assert UUIDV7.fullmatch(result.tid)
        assert UUIDV7.fullmatch(result.cid)
        assert str(UUID(result.tid)) == result.tid


class Wound(clock.Clock):
    """Stands still until it is set."""

    at = 1_700_000_000.0

    def time(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@pytest.mark.parametrize("at", [0.0, 1_700_000_000.123, 4_102_444_800.999])
def test_an_id_begins_with_its_milliseconds(at):
    watch = Wound()
    watch.at = at
    with clock.use(watch):
        tid = Leaf.execute().tid

    milliseconds = UUID(tid).int >> 80

    assert abs(milliseconds - at * 1000) <= 1


def test_ids_sort_by_time():
    watch = Wound()
    tids = []
    with clock.use(watch):
        for _ in range(200):
            tids.append(Leaf.execute().tid)
            watch.at += 0.25

    assert tids == sorted(tids)


def test_ids_of_one_millisecond_differ():
    with clock.use(Wound()):
        tids = {Leaf.execute().tid for _ in range(1_000)}

    assert len(tids) == 1_000


def test_ids_stay_what_they_are():
    result = Root.execute()
    first = [(each.tid, each.cid) for each in result.chain]
    again = [(each.tid, each.cid) for each in result.chain]

    assert first == again


def test_all_share_the_id_of_the_chain_and_none_the_id_of_a_run():
    chain = Root.execute().chain

    assert {result.cid for result in chain} == {chain.id}
    assert len({result.tid for result in chain} | {chain.id}) == 6


# -- chains of their own --------------------------------------------------------


class Polling(Task[None]):
    """Runs tasks for days, and keeps nothing of them."""

    def work(self):
        with detached():
            self.context.found = Branch.execute()
        Leaf.execute()


def test_detached_tasks_begin_chains_of_their_own():
    result = Polling.execute()
    found = result.context.found

    assert [each.task for each in result.chain] == [Polling, Leaf]
    assert found.root
    assert found.chain[0].task is Branch
    assert found.cid != result.cid


def test_what_detached_tasks_held_is_freed_at_once():
    class Payload:
        pass

    class Worker(Task[bool]):
        def work(self):
            payload = Payload()
            watched = ref(payload)
            with detached():
                Leaf.execute(payload=payload)
            del payload
            return watched() is None

    assert Worker.execute().value


def test_a_block_of_detached_tasks_may_be_left_in_another_context():
    block = detached()
    copy_context().run(block.__enter__)

    block.__exit__(None, None, None)

    assert Root.execute().root


# -- who ran whom ---------------------------------------------------------------


def test_index_is_the_place_in_the_chain():
    chain = Root.execute().chain

    assert [result.index for result in chain] == [0, 1, 2, 3, 4]


def test_indexes_of_results_are_counted_once():
    class Counted(list):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            return super().__getitem__(index)

        def __iter__(self):
            for item in super().__iter__():
                self.reads += 1
                yield item

    class Many(Task[int]):
        def work(self):
            chain = Leaf.execute().chain
            chain._records = records = Counted(chain._records)
            indexes = [Leaf.execute().index for _ in range(100)]
            assert indexes == list(range(2, 102))
            return records.reads

    assert Many.execute().value <= 2 * 101


def test_the_index_of_a_task_that_still_runs_is_the_next_one():
    seen = []

    def look(_task):
        result = yield
        seen.append((result.index, result))

    @middleware(look)
    class Watched(Task[None]):
        def work(self):
            Leaf.execute()
            Leaf.execute()

    class Outer(Task[None]):
        def work(self):
            Leaf.execute()
            Watched.execute()

    Outer.execute()

    ((index, result),) = seen
    assert (index, result.index) == (4, 4)


def test_parents_are_the_results_of_those_who_ran_them():
    root, leaf, _, branch, last = Root.execute().chain

    assert root.parent is None
    assert root.parent_tid is None
    assert branch.parent == root
    assert branch.parent_tid == root.tid
    assert leaf.parent == branch
    assert leaf.parent_tid == branch.tid
    assert last.parent == root


def test_depth_counts_the_tasks_around():
    root, leaf, _, branch, last = Root.execute().chain

    assert (root.depth, branch.depth, leaf.depth, last.depth) == (0, 1, 2, 1)


def test_a_task_run_after_another_ended_is_no_child_of_it():
    class Kept(Task[None]):
        def work(self) -> None: ...

    kept = Kept()
    kept.run()

    assert Leaf.execute(kept).root


# -- correlation ----------------------------------------------------------------


def test_the_correlation_id_is_asked_once_per_root():
    asked = []

    def from_header(task):
        asked.append(task)
        return f"request-{len(asked)}"

    class Part(Task[None], correlation_id=from_header):
        def work(self) -> None: ...

    class Whole(Part):
        def work(self) -> None:
            Part.execute()
            Part.execute()

    first, second = Whole.execute(), Whole.execute()

    assert [type(task) for task in asked] == [Whole, Whole]
    assert {result.xid for result in first.chain} == {"request-1"}
    assert {result.xid for result in second.chain} == {"request-2"}
    assert first.chain.xid == "request-1"


def test_a_child_has_no_say_in_the_correlation_id_of_its_root():
    class Part(Task[None], correlation_id=lambda: "part"):
        def work(self) -> None: ...

    class Whole(Task[None]):
        def work(self) -> None:
            Part.execute()

    result = Whole.execute()

    assert [each.xid for each in result.chain] == [None, None]
    assert Part.execute().xid == "part"


def test_the_correlation_id_is_there_while_the_root_runs():
    class Whole(Task[str], correlation_id=lambda task: f"order-{task.context.id}"):
        def work(self) -> str:
            return Leaf.execute().xid

    assert Whole.execute(id=7).value == "order-7"


def test_a_correlation_id_that_raises_fails_the_task():
    def broken():
        raise LookupError("no header")

    class Whole(Task[None], correlation_id=broken):
        def work(self) -> None: ...

    result = Whole.execute()

    assert result.reason == "[LookupError] no header"
    assert result.xid is None


# -- the drawing ----------------------------------------------------------------


class Discount(Task[None]):
    def work(self) -> None:
        self.skip("none today")


class Price(Task[int]):
    def work(self) -> int:
        Discount.execute()
        Leaf.execute()
        return 3


@retry_on(TimeoutError, limit=1, delay=0)
class Reserve(Task[None]):
    def work(self) -> None:
        if self.attempt == 0:
            raise TimeoutError
        self.fail("no stock")


class Order(Task[None]):
    def work(self) -> None:
        Price.execute()
        self.throw(Reserve.execute())


class Ticking(Wound):
    """Moves on by a second with each look at the calendar, and measures nothing."""

    def time(self) -> float:
        self.at += 1
        return self.at

    def monotonic(self) -> float:
        return 0.0


def test_tree_draws_children_under_their_parents_in_order_of_start():
    with clock.use(Ticking()):
        drawing = Order.execute().chain.tree()

    rows = drawing.splitlines()

    assert [re.sub(" {2,}", "  ", row) for row in rows] == [
        "✗ Order  0 µs  no stock",
        "├─ ✓ Price  0 µs  value=3",
        "│  ├─ ○ Discount  0 µs  none today",
        "│  └─ ✓ Leaf  0 µs  value='leaf'",
        "└─ ✗ Reserve  0 µs  1 retry, no stock",
    ]
    assert len({row.index(" µs") for row in rows}) == 1


class StoppedWall(clock.Clock):
    """The time of day stands still, as with a coarse clock, and is set back."""

    def __init__(self):
        self.hours = 24.0

    def time(self):
        self.hours -= 1
        return self.hours * 3600


def test_tree_is_in_order_of_start_whatever_the_time_of_day():
    class Waits(Task[None]):
        async def work(self) -> None:
            await self.context.go.wait()

    class Goes(Task[None]):
        async def work(self) -> None:
            self.context.go.set()

    class Both(Task[None]):
        async def work(self) -> None:
            given = {"go": asyncio.Event()}
            await asyncio.gather(Waits.aexecute(given), Goes.aexecute(given))

    with clock.use(StoppedWall()):
        chain = asyncio.run(Both.aexecute()).chain

    assert [each.task for each in chain] == [Both, Goes, Waits]
    rows = chain.tree().splitlines()
    assert ["Waits" in rows[1], "Goes" in rows[2]] == [True, True]


def test_tree_of_a_single_task_is_one_line():
    with clock.use(Ticking()):
        drawing = Leaf.execute().chain.tree()

    assert drawing.split() == ["✓", "Leaf", "0", "µs", "value='leaf'"]
    assert "\n" not in drawing


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 µs"),
        (0.0000004, "0 µs"),
        (0.000085, "85 µs"),
        (0.0009994, "999 µs"),
        (0.0009996, "1.00 ms"),
        (0.0012345, "1.23 ms"),
        (0.01, "10.0 ms"),
        (0.15, "150 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (2.0, "2.00 s"),
        (59.94, "59.9 s"),
        (60.0, "1 min 00 s"),
        (420.0, "7 min 00 s"),
        (3660.0, "1 h 01 min"),
    ],
)
def test_a_duration_is_told_in_a_fitting_unit(instant, seconds, shown):
    class Slow(Task[None]):
        def work(self) -> None:
            instant.slept += seconds

    result = Slow.execute()

    assert str(result).endswith(f"Slow {shown}")
    assert result.chain.tree().endswith(f"Slow  {shown}")


def test_durations_stand_one_below_the_other(instant):
    class Short(Task[None]):
        def work(self) -> None:
            instant.slept += 0.00001

    class Long(Task[None]):
        def work(self) -> None:
            Short.execute()
            instant.slept += 7

    lines = Long.execute().chain.tree().splitlines()
    assert [line[-8:] for line in lines] == ["  7.00 s", "   10 µs"]


def test_a_chain_is_printed_as_its_tree():
    chain = Order.execute().chain

    assert str(chain) == chain.tree()
    assert repr(chain) == f"<Chain {chain.id} of 5>"


def test_a_chain_without_results_is_printed_by_its_id():
    chain = Chain()

    assert str(chain) == repr(chain) == f"<Chain {chain.id} of 0>"


def test_tree_can_be_drawn_while_the_root_still_runs():
    class Drawing(Task[str]):
        def work(self) -> str:
            Leaf.execute()
            return Branch.execute().chain.tree()

    rows = [row.split("  ")[0] for row in Drawing.execute().value.splitlines()]

    assert rows == ["✓ Leaf", "✓ Branch", "├─ ✓ Leaf", "└─ ✓ Leaf"]


def test_tree_has_one_row_per_result_whatever_the_reason():
    class Verbose(Task[None]):
        def work(self) -> None:
            Leaf.execute()
            self.fail("first line\nsecond line")

    drawing = Verbose.execute().chain.tree()

    assert len(drawing.splitlines()) == 2
    assert "first line second line" in drawing


def test_a_chain_shows_its_id_and_its_length():
    chain = Root.execute().chain

    assert chain.id in repr(chain)
    assert "5" in repr(chain).replace(chain.id, "")


# -- ids ------------------------------------------------------------------------


def test_74_bits_of_an_id_are_random():
    ids = [UUID(new_id()).int for _ in range(300)]
    sometimes_one = reduce(or_, ids)
    sometimes_zero = reduce(or_, (~number for number in ids))
    vary = sometimes_one & sometimes_zero & (2**80 - 1)

    assert vary.bit_count() == 74
    assert {UUID(int=number).version for number in ids} == {7}
    assert {UUID(int=number).variant for number in ids} == {RFC_4122}
