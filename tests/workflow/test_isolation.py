"""A step with a context of its own: what is copied for it, when, and what is shared."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from threading import Barrier, Lock, Thread
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdx import Context, Task, Workflow, group, on_success, parallel, step

PATIENCE = 20


def flow(*listed):
    return type("Flow", (Workflow,), {"steps": listed})


def doing(name, change):
    """Make a task that calls *change* with its context."""

    def work(self):
        return change(self.context)

    return type(name, (Task,), {"work": work})


def beside(*changes, merge="last"):
    """Make a workflow of siblings A, B, ... that call *changes*."""
    tasks = [doing(name, change) for name, change in zip("ABCD", changes, strict=False)]
    return flow(parallel(*tasks, merge=merge))


def nothing(_context):
    pass


class Failing(Task[None]):
    """Changes what it finds, then fails."""

    def work(self):
        spoil(self.context.items())
        self.fail("no")


def spoil(values):
    for _, value in values:
        value.append("spoilt")


# -- apart from each other ----------------------------------------------------------


def test_siblings_do_not_see_what_the_others_write(run):
    seen = {}

    def look(name):
        def change(context):
            context["mark"] = name
            context["list"].append(name)
            seen[name] = list(context["list"]), context.get("other")
            context["other"] = name

        return change

    listed = parallel(doing("A", look("A")), doing("B", look("B")), workers=1)
    run(flow(listed), list=[])

    assert seen == {"A": (["A"], None), "B": (["B"], None)}


def test_the_context_of_the_workflow_does_not_change_before_all_are_done(run):
    given_list, seen = [], []

    def look(context):
        context["list"].append(1)
        seen.append(list(given_list))

    listed = parallel(doing("A", look), doing("B", look), workers=1)
    result = run(flow(listed), list=given_list)

    assert seen == [[], []]
    assert result.context["list"] == [1]


@pytest.mark.parametrize("key", ["changes", "given", "assigned", "current", "get"])
def test_a_sibling_reads_any_key_as_others_do(key):
    read = {}

    def look(context):
        read["item"] = context[key]
        read["attribute"] = getattr(context, key)

    beside(look).execute({key: "value"})

    assert read["item"] == "value"
    assert read["attribute"] == "value" or key == "get"


# -- what is shared -----------------------------------------------------------------


class Handle:
    """Owns a file descriptor, as a connection does."""

    def __init__(self):
        self.descriptor, other = os.pipe()
        os.close(other)

    def __del__(self):
        os.close(self.descriptor)


@pytest.mark.parametrize(
    "listing",
    [lambda task: parallel(task, task), lambda task: step(task, into="seen")],
    ids=["beside", "renamed"],
)
@pytest.mark.parametrize("wrap", [lambda handle: handle, lambda handle: {"in": handle}])
def test_a_handle_is_not_closed(run, listing, wrap):
    look = doing("Look", lambda context: bool(context.handle))
    handle = Handle()

    assert run(flow(listing(look)), handle=wrap(handle)).success
    assert os.fstat(handle.descriptor)


class Untouchable:
    """Notes everything that a copy or a comparison would call."""

    def __init__(self):
        self.calls = []
        self.used = []

    def note(self, *_):
        self.calls.append("called")
        raise ValueError("do not touch")

    __eq__ = __ne__ = __bool__ = __len__ = __iter__ = note
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = note
    __hash__ = object.__hash__


@pytest.mark.parametrize("merge", ["last", "deep"])
def test_what_is_not_plain_data_is_never_copied_or_compared(run, merge):
    thing, other = Untouchable(), Untouchable()
    values = {
        "thing": thing,
        "list": [thing, {"in": thing}],
        "dict": {"in": thing, thing: [thing]},
        "tuple": (thing, [thing]),
        "set": {thing},
    }

    def use(context):
        context.thing.used.append("by a sibling")
        for value in context.values():
            assert value is not None
        context.list[1]["more"] = other
        context.dict["more"] = [other]
        context.set.add(other)
        context.written = other

    result = run(beside(use, use, merge=merge), **values)

    assert result.success
    assert result.conflicts == ()
    assert result.context.thing is thing
    assert result.context.list[0] is result.context.tuple[0] is thing
    assert result.context.list[1]["more"] is other
    assert thing.used == ["by a sibling"] * 2
    assert thing.calls == other.calls == []


def test_different_objects_are_in_conflict_without_being_compared(run):
    one, other = Untouchable(), Untouchable()
    siblings = beside(
        lambda context: context.update(x=one, y=one),
        lambda context: context.update(x=other, y=one),
    )
    result = run(siblings)

    assert result.conflicts == (("x", ("A", "B")),)
    assert one.calls == other.calls == []


class Array:
    """Has an ``==`` without a truth, as arrays and tables have."""

    compared = False

    def __init__(self):
        self.items = [0, 0]

    def __eq__(self, other):
        Array.compared = True
        return Array()

    def __bool__(self):
        raise ValueError("ambiguous")

    __hash__ = None


def test_an_array_is_shared(run):
    array = Array()

    def write(place):
        def change(context):
            context.array.items[place] = 1
            context.held["array"].items[place] += 1

        return change

    result = run(beside(write(0), write(1)), array=array, held={"array": array})

    assert result.context.array is result.context.held["array"] is array
    assert array.items == [2, 2]
    assert not Array.compared
    assert result.conflicts == ()


class Table(dict):
    pass


class Line(NamedTuple):
    tags: list


@pytest.mark.parametrize(
    "value",
    [Table(a=1), Line([1]), type("Rows", (list,), {})([1]), Context(a=1), Lock()],
    ids=lambda value: type(value).__name__,
)
def test_objects_of_other_classes_are_shared(run, value):
    seen = []
    look = doing("Look", lambda context: seen.append(context.value))
    result = run(flow(parallel(look, look)), value=value)

    assert result.context.value is value
    assert all(each is value for each in seen)


# -- what is copied -----------------------------------------------------------------

NOON_IN_ULM = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))

IN_PLACE = [
    ({"a": [1]}, lambda value: value["a"].append(2)),
    (OrderedDict(a=1), lambda value: value.update(b=2)),
    (defaultdict(list, a=[1]), lambda value: value["b"].append(2)),
    (Counter("a"), lambda value: value.update("b")),
    ([[1]], lambda value: value[0].append(2)),
    (deque([[1]], 3), lambda value: value[0].append(2)),
    ({1}, lambda value: value.add(2)),
    (([1], 2), lambda value: value[0].append(2)),
    ({"a": ({"b": [1]},)}, lambda value: value["a"][0]["b"].append(2)),
    (bytearray(b"1"), lambda value: value.extend(b"2")),
    ([0], lambda value: value.__setitem__(0, False)),
    ([Decimal(1)], lambda value: value.__setitem__(0, Decimal("1.00"))),
    ([NOON_IN_ULM], lambda value: value.__setitem__(0, NOON_IN_ULM.astimezone(UTC))),
    (OrderedDict(a=1, b=2), lambda value: value.move_to_end("a")),
]
PLAIN = pytest.mark.parametrize(
    ("value", "change"), IN_PLACE, ids=[repr(value) for value, _ in IN_PLACE]
)


@PLAIN
def test_plain_data_is_a_copy_of_its_own_kind_whose_changes_are_merged(
    run, value, change
):
    before, after = copy.deepcopy(value), copy.deepcopy(value)
    change(after)
    seen = []
    guard = Untouchable()

    def look(context):
        seen.append(context.held)

    result = run(
        beside(lambda context: change(context.held[0]), look), held=[value, guard]
    )

    changed = result.context.held[0]
    assert repr(changed) == repr(after)
    assert repr(value) == repr(seen[0][0]) == repr(before)
    assert type(changed) is type(seen[0][0]) is type(value)
    assert result.context.held[1] is seen[0][1] is guard
    assert guard.calls == []
    assert result.conflicts == ()


@PLAIN
def test_in_place_changes_of_two_siblings_are_in_conflict_if_they_differ(value, change):
    def change_and_more(context):
        change(context.held[0])
        context.held.append("more")

    def change_alone(context):
        change(context.held[0])

    held = [value, Untouchable()]

    assert beside(change_alone, change_alone).execute(held=held).conflicts == ()
    assert beside(change_alone, change_and_more).execute(held=held).conflicts == (
        ("held", ("A", "B")),
    )
    assert held[1].calls == []


def test_what_a_copy_does_besides_holding_values_is_kept():
    seen = []
    look = doing("Look", lambda context: seen.append((context.first, context.second)))
    flow(parallel(look)).execute(first=defaultdict(list), second=deque([1], 2))

    assert seen[0][0].default_factory is list
    assert seen[0][1].maxlen == 2


def test_a_tuple_without_anything_to_change_in_it_is_shared():
    pair = ("a", (1, frozenset({2})))
    seen = []
    flow(parallel(doing("Look", lambda context: seen.append(context.pair)))).execute(
        pair=pair
    )

    assert seen[0] is pair


def test_what_a_sibling_wrote_stays_known_when_later_steps_change_what_it_read(run):
    look = doing("Look", lambda context: context.update(seen=len(context.rows)))
    later = doing("Later", lambda context: context.rows.append(1))
    result = run(flow(parallel(look), later), rows=[])

    assert result.context.rows == [1]
    assert result.chain[1].written == {"seen": 0}


# -- one object in several places ---------------------------------------------------


@pytest.mark.parametrize("merge", ["last", "deep"])
def test_one_object_under_two_keys_stays_one_object(run, merge):
    customer = {"name": "Ada"}
    order = {"customer": customer}
    same = []

    def rename(context):
        same.append(context.order["customer"] is context.customer)
        context.customer["name"] = "Grace"

    result = run(beside(rename, merge=merge), order=order, customer=customer)

    assert same == [True]
    assert result.context.order == {"customer": {"name": "Grace"}}
    assert result.context.order["customer"] is result.context.customer
    assert customer == {"name": "Ada"}


@pytest.mark.parametrize("merge", ["last", "deep"])
def test_an_object_is_changed_under_all_its_keys_though_one_was_read(run, merge):
    def put(key, entry):
        return lambda context: context[key].update({entry: 1})

    one = {}
    result = run(beside(put("x", "a"), merge=merge), x=one, y=one)

    assert result.context.x is result.context.y
    assert result.context.to_dict() == {"x": {"a": 1}, "y": {"a": 1}}

    result = run(beside(put("x", "a"), put("y", "b"), merge="deep"), x=one, y=one)

    assert result.context.x is result.context.y
    assert result.context.x == {"a": 1, "b": 1}
    assert result.conflicts == ()


@pytest.mark.parametrize("merge", ["last", "deep"])
@pytest.mark.parametrize("holds", [list, tuple, deque, lambda items: {"in": items}])
def test_an_object_is_changed_wherever_it_is_though_only_it_was_read(run, merge, holds):
    customer = {"name": "Ada"}
    orders = holds([{"customer": customer}])

    def rename(context):
        context.customer["name"] = "Grace"

    found = run(beside(rename, merge=merge), orders=orders, customer=customer).context

    assert found.orders == holds([{"customer": {"name": "Grace"}}])
    inside = found.orders["in"] if type(orders) is dict else found.orders
    assert inside[0]["customer"] is found.customer
    assert customer == {"name": "Ada"}


def test_a_change_within_what_nobody_read_is_in_conflict(run):
    customer = {"name": "Ada"}

    def rename(context):
        context.customer["name"] = "Grace"

    def reorder(context):
        context.order["number"] = 7

    siblings = beside(rename, reorder)
    result = run(siblings, customer=customer, order={"customer": customer})

    assert dict(result.conflicts) == {"order": ("A", "B")}
    assert result.context.customer == {"name": "Grace"}


def test_a_part_of_what_was_replaced_is_changed_where_it_still_is(run):
    address = {"city": "Rome"}

    def move(context):
        found = context.customer["address"]
        context.customer = "nobody"
        found["city"] = "Oslo"

    given = {"customer": {"address": address}, "order": [address]}
    found = run(beside(move), **given).context

    assert found.to_dict() == {"customer": "nobody", "order": [{"city": "Oslo"}]}


@pytest.mark.parametrize("name", ["Ada", "Grace"])
def test_one_object_stays_one_object_for_a_group_in_a_sibling(run, name):
    customer = {"name": "Ada"}
    seen = []

    def rename(context):
        context.customer["name"] = name

    def look(context):
        assert context.order["customer"] is context.customer
        seen.append(context.order["customer"]["name"])

    inner = flow(doing("Rename", rename), parallel(doing("Look", look)))
    run(flow(parallel(inner)), customer=customer, order={"customer": customer})

    assert seen == [name]


def test_what_nobody_read_is_not_looked_through_after_reading_alone(run):
    unread = [[]]

    def look(context):
        assert context.read == [1]
        context.found = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cmdx.workflow.isolation.ids_within", None)
        result = run(beside(look, nothing), read=[1], unread=unread)

    assert result.context.found
    assert result.context.unread is unread


def test_changes_of_one_object_under_different_keys_are_in_conflict(run):
    one = []
    siblings = beside(
        lambda context: context.x.append(1), lambda context: context.y.append(2)
    )
    result = run(siblings, x=one, y=one)

    assert dict(result.conflicts) == {"x": ("A", "B"), "y": ("A", "B")}


def knot():
    tied = [1]
    tied.append({"back": tied, "pair": (tied, "end")})
    return tied


@pytest.mark.parametrize("merge", ["last", "deep"])
def test_data_that_holds_itself_is_copied_and_merged(run, merge):
    tied = knot()

    def change(context):
        context.tied[1]["pair"][0].append(2)

    result = run(beside(change, nothing, merge=merge), tied=tied)

    found = result.context.tied
    assert found is not tied
    assert len(tied) == 2
    assert found[2:] == [2]
    assert found[1]["back"] is found[1]["pair"][0] is found
    assert result.conflicts == ()


def test_data_that_holds_itself_is_not_written_by_reading_it(run):
    tied = knot()
    result = run(beside(lambda context: context.tied, nothing), tied=tied)

    assert result.context.tied is tied


def test_dicts_that_hold_themselves_are_merged_entry_by_entry(run):
    one = {"name": "Ada"}
    one["self"] = one
    siblings = beside(
        lambda context: context.one.update(a=1),
        lambda context: context.one["self"].update(b=2),
        merge="deep",
    )
    found = run(siblings, one=one).context.one

    assert found["self"] is found
    assert {**found, "self": None} == {"name": "Ada", "self": None, "a": 1, "b": 2}
    assert one.keys() == {"name", "self"}


def test_what_a_failed_sibling_changed_in_place_is_not_seen(run):
    tied = knot()
    listed = parallel(step(Failing, on_failure="continue"), doing("B", nothing))
    result = run(flow(listed), tied=tied)

    assert result.success
    assert result.context.tied is tied
    assert "spoilt" not in tied


def test_data_may_be_nested_deeper_than_calls_can_be(run):
    deepest = innermost = []
    for _ in range(20_000):
        deepest = [deepest]

    def change(context):
        found = context.deepest
        while found:
            found = found[0]
        found.append("bottom")

    result = run(beside(change, nothing), deepest=deepest)

    assert innermost == []
    assert result.context.deepest is not deepest
    result.context.clear()  # a list this deep must not be shown by a failing test


# -- when it is copied --------------------------------------------------------------
#
# A copy holds what the original held when it was made, so changing the original tells
# when that was.


WITHOUT_READING = {
    "repr": repr,
    "str": str,
    "bool": bool,
    "len": len,
    "in": lambda context: "rows" in context,
    "keys": lambda context: [*context, *context.keys()],
    "another key": lambda context: context.other,
    "a missing key": lambda context: context.get("missing"),
    "hasattr": lambda context: hasattr(context, "missing"),
    "set": lambda context: context.update(other=1),
    "delete": lambda context: context.pop("other"),
}


@pytest.mark.parametrize("look", WITHOUT_READING.values(), ids=WITHOUT_READING)
def test_nothing_is_copied_before_it_is_read(run, look):
    rows = [1]

    def change(context):
        look(context)
        rows.append(2)
        seen = context.rows
        rows.append(3)
        return list(seen)

    result = run(flow(step(doing("Look", change), into="seen")), rows=rows, other=0)

    assert result.context.seen == [1, 2]


def test_a_context_shows_what_a_sibling_made_of_it(run):
    def change(context):
        context.x.append(2)
        return repr(context)

    one = [1]
    result = run(flow(step(doing("Look", change), into="seen")), x=one, y=one, z=[3])

    assert result.context.seen == "Context(x=[1, 2], y=[1, 2], z=[3])"


def test_what_a_step_sets_is_what_it_reads(run):
    mine = [2]

    def change(context):
        context.rows = mine
        context.other = context.rows
        return context.rows is mine

    result = run(flow(step(doing("Set", change), into="seen")), rows=[1], other=[])

    assert result.context.seen is True


def test_an_object_is_not_taken_for_one_that_was_there_before():
    first, second = [[1]], []

    def change(context):
        assert context.first == [[1]]
        first.clear()
        second.append([2])  # where [1] was in memory, unless somebody keeps it
        return context.second

    result = flow(step(doing("Read", change), into="seen")).execute(
        first=first, second=second
    )

    assert result.context.seen == [[2]]


def sent(context):
    return pickle.loads(pickle.dumps(context))


READERS = {
    "attribute": lambda context: context.rows,
    "item": lambda context: context["rows"],
    "get": lambda context: context.get("rows"),
    "items": lambda context: dict(context.items())["rows"],
    "values": lambda context: next(iter(context.values())),
    "pop": lambda context: context.pop("rows"),
    "setdefault": lambda context: context.setdefault("rows", []),
    "dig": lambda context: context.dig("rows"),
    "dig deeper": lambda context: context.dig("held", "rows"),
    "dict": lambda context: dict(context)["rows"],
    "to_dict": lambda context: context.to_dict()["rows"],
    "unpacked": lambda context: {**context}["rows"],
    "copy": lambda context: context.copy().rows,
    "copied": lambda context: copy.copy(context).rows,
    "pickled": lambda context: sent(context).rows,
    "another context": lambda context: Context(context).rows,
    "updated": lambda context: (
        (other := Context(), other.update(context), other)[-1].rows
    ),
    "merged": lambda context: (
        (other := Context(), other.deep_merge(context), other)[-1].rows
    ),
    "deep merge": lambda context: (
        context.deep_merge({"held": {"more": 1}}),
        context.held["rows"],
    )[-1],
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_whatever_is_read_is_copied_then(run, read):
    rows = [1]

    def change(context):
        rows.append(2)
        found = read(context)
        rows.append(3)
        found.append("changed")
        return found

    result = run(
        flow(step(doing("Read", change), into="found")), rows=rows, held={"rows": rows}
    )

    assert result.success
    assert rows == [1, 2, 3]
    assert result.context.found == [1, 2, "changed"]


def test_a_context_of_its_own_equals_others(run):
    def compare(context):
        return (context == {"x": [1]}, Context(x=[1]) == context, context != Context())

    result = run(flow(step(doing("Compare", compare), into="seen")), x=[1])

    assert result.context.seen == (True, True, True)


def test_an_input_is_read_when_it_is_resolved(run):
    class Add(Task[None]):
        rows: list
        other: Any

        def work(self) -> None:
            self.rows.append(2)
            self.other["x"].append(2)

    rows, other = [1], {"x": [1]}
    result = run(flow(parallel(Add)), rows=rows, other=other)

    assert (rows, other) == ([1], {"x": [1]})
    assert result.context.other == {"x": [1, 2]}


@pytest.fixture
def _frantic_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_frantic_switching")
def test_threads_of_a_sibling_read_the_same_copy():
    class Look(Task[None]):
        def work(self) -> None:
            together, seen = Barrier(4), []

            def look() -> None:
                together.wait(PATIENCE)
                found = self.context.rows
                seen.append((found, [*map(id, found)]))

            threads = [Thread(target=look) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rows, ids = seen[0]
            assert all(found is rows for found, _ in seen)
            assert all(found == ids for _, found in seen)
            assert ids != [*map(id, original)]

    original = [{"id": number} for number in range(2_000)]

    flow(parallel(Look, Look)).execute(rows=original).or_raise()


# -- groups in siblings -------------------------------------------------------------


def test_a_group_in_a_sibling_begins_with_what_the_sibling_has(run):
    def add(key, value):
        return lambda context: context[key].append(value)

    one = [1]
    inner = group(
        doing("First", add("x", 2)),
        parallel(doing("Second", add("y", 3)), doing("Third", nothing)),
    )
    result = run(flow(parallel(inner, doing("Beside", nothing))), x=one, y=one)

    assert result.context.x == [1, 2, 3]
    assert result.context.x is result.context.y
    assert one == [1]
    assert result.conflicts == ()


def test_a_group_in_a_sibling_copies_nothing_before_it_is_read(run):
    rows = [1]

    def look(context):
        rows.append(2)
        return list(context.rows)

    inner = group(step(doing("Look", look), into="seen"))
    result = run(flow(parallel(inner, doing("Beside", nothing))), rows=rows)

    assert result.context.seen == [1, 2]


def test_a_workflow_in_a_sibling_shares_its_inputs_with_its_steps(run):
    class Add(Workflow[None]):
        numbers: list[int]
        steps = (doing("Put", lambda context: context.numbers.append(3)),)

        @on_success
        def check(self) -> None:
            assert self.numbers == [1, 2, 3]

    class Look(Workflow[None]):
        numbers: list[int]
        steps = (doing("Read", lambda context: context.numbers),)

    result = run(flow(parallel(Add, Look)), numbers=["1", "2"])

    assert result.context.numbers == [1, 2, 3]
    assert result.conflicts == ()


def test_a_step_under_other_names_changes_what_it_was_given_under_both(run):
    add = doing("Add", lambda context: context.goods.append("egg"))
    basket = []
    result = run(flow(step(add, map={"goods": "basket"})), basket=basket)

    assert result.context.basket == ["egg"]
    assert result.context.goods is result.context.basket
    assert basket == []


# -- whatever siblings do -----------------------------------------------------------

LEAVES = st.integers(0, 3) | st.sampled_from(["a", "b"])
DATA = st.recursive(
    st.sets(LEAVES, max_size=3) | st.binary(max_size=3).map(bytearray) | LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(deque)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(LEAVES, inner, max_size=3)
        | st.dictionaries(LEAVES, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from("wxyz")
CHANGES = st.one_of(
    st.tuples(st.just("read"), KEYS),
    st.tuples(st.just("set"), KEYS, DATA),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("link"), KEYS, KEYS),
    st.tuples(st.just("change"), KEYS, st.lists(st.integers(0, 2), max_size=4), DATA),
)


def apply(bag, change):
    """Do one change to a context or a dict, if it can be done."""
    kind, key, *rest = copy.deepcopy(change)
    if kind == "set":
        bag[key] = rest[0]
        return key
    if key not in bag:
        return None
    if kind == "delete":
        del bag[key]
        return key
    if kind == "link":
        bag[rest[0]] = bag[key]
        return rest[0]
    found = bag[key]
    if kind == "change":
        change_within(found, *rest)
    return None


def change_within(found, path, item):
    """Follow *path* as far as it goes, and change what is there."""
    for place in path:
        inside = list(found.values() if isinstance(found, dict) else within(found))
        if place >= len(inside) or not hasattr(inside[place], "__len__"):
            break
        found = inside[place]
    if isinstance(found, dict):
        found["a"] = item
    elif isinstance(found, list | deque):
        found.append(item)
    elif isinstance(found, set):
        found.add("c")
    elif isinstance(found, bytearray):
        found.append(7)


def within(found):
    return found if isinstance(found, list | deque | tuple) else ()


def expected(before, plans):
    """Merge by the book: copy everything at once, and see what became of it."""
    merged = dict(before)
    for plan in plans:
        after = copy.deepcopy(before)
        assigned = {apply(after, change) for change in plan}
        for key in {*before, *after}:
            if key in assigned or before.get(key) != after.get(key):
                merged.pop(key, None)
                if key in after:
                    merged[key] = after[key]
    return merged


def execute(task, source):
    return task.execute(source)


def aexecute(task, source):
    return asyncio.run(task.aexecute(source))


def sharing(bag):
    """Tell which keys have the same object that could be changed."""
    held = {key: value for key, value in bag.items() if type(value) is not tuple}
    return {
        frozenset({one, other})
        for one in held
        for other in held
        if held[one] is held[other] and hasattr(held[one], "__len__")
    }


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([execute, aexecute]),
    st.lists(DATA, min_size=1, max_size=3),
    st.dictionaries(KEYS, st.integers(0, 3), max_size=4),
    st.lists(st.lists(CHANGES, max_size=5), min_size=1, max_size=3),
)
def test_siblings_leave_what_they_would_have_left_on_copies_of_everything(
    run, objects, places, plans
):
    objects.append([objects[0], {"a": objects[-1]}])  # some are inside of others
    before = {key: objects[place % len(objects)] for key, place in places.items()}
    untouched = copy.deepcopy(before)
    tasks = [
        doing("S", lambda context, plan=plan: [apply(context, each) for each in plan])
        for plan in plans
    ]

    result = run(flow(parallel(*tasks)), before).or_raise()

    model = expected(before, plans)
    assert result.context == model
    assert sharing(result.context) == sharing(model)
    assert before == untouched
