"""Steps that run beside each other, and what comes of what they write."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from contextvars import ContextVar
from threading import Barrier, Event, Thread

import pytest

from cmdx import (
    DefinitionError,
    FinishedTaskError,
    Task,
    UnknownEntryError,
    Workflow,
    executors,
    group,
    mergers,
    optional,
    output,
    parallel,
    required,
    step,
    task_executed,
)

PATIENCE = 20


def flow(*listed, **names):
    return type("Flow", (Workflow,), {"steps": listed, **names})


def doing(name, change):
    """Make a task that calls *change* with its context."""

    def work(self):
        return change(self.context)

    return type(name, (Task,), {"work": work})


def writing(name, **values):
    return doing(name, lambda context: context.update(values))


def merged(siblings, /, merge="last", **inputs):
    """Return what the context is after *siblings*, changes by name, ran beside."""
    tasks = [doing(name, change) for name, change in siblings.items()]
    return flow(parallel(*tasks, merge=merge)).execute(**inputs).context.to_dict()


def setting(**values):
    return lambda context: context.update(values)


def deleting(*keys):
    def change(context):
        for key in keys:
            del context[key]

    return change


# -- copies ---------------------------------------------------------------------


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
    given = []

    class Look(Task[None]):
        def work(self) -> None:
            self.context["list"].append(1)
            seen.append(list(given))

    seen = []
    result = run(flow(parallel(Look, Look, workers=1)), list=given)

    assert seen == [[], []]
    assert result.context["list"] == [1]


def test_a_list_of_things_that_have_no_equal_copy_is_still_copied():
    class Opaque:
        pass

    one, two, three = Opaque(), Opaque(), Opaque()

    def add(thing):
        return lambda context: context["things"].append(thing)

    things = [one]
    result = merged({"A": add(two), "B": add(three)}, things=things)

    assert things == [one]
    assert result["things"] == [one, three]


@pytest.mark.parametrize("merge", ["last", "deep"])
def test_what_has_no_equal_copy_is_shared(merge):
    class Connection:
        def __init__(self):
            self.used = []

    connection, lock = Connection(), threading.Lock()

    def use(name):
        def change(context):
            with context.lock:
                context.connection.used.append(name)

        return change

    result = merged(
        {"A": use("A"), "B": use("B")},
        merge=merge,
        connection=connection,
        lock=lock,
        held={"by": [connection]},
    )

    assert result["connection"] is connection
    assert result["lock"] is lock
    assert result["held"]["by"][0] is connection
    assert sorted(connection.used) == ["A", "B"]


def test_what_cannot_even_be_compared_is_shared():
    class Array:
        def __eq__(self, other):
            raise ValueError("ambiguous")

        __hash__ = None

    array = Array()
    result = merged({"A": setting(x=1)}, array=array)

    assert result == {"array": array, "x": 1} or result["array"] is array
    assert result["x"] == 1


def test_a_list_that_holds_itself_is_shared():
    knot = []
    knot.append(knot)

    assert merged({"A": setting(x=1)}, knot=knot)["knot"] is knot


@pytest.mark.parametrize("key", ["changes", "of", "give", "touched", "before", "get"])
def test_a_sibling_reads_any_key_as_others_do(key):
    read = {}

    def look(context):
        read["item"] = context[key]
        read["attribute"] = getattr(context, key)

    merged({"A": look}, **{key: "value"})

    assert read["item"] == "value"
    assert read["attribute"] == "value" or key == "get"


# -- merging --------------------------------------------------------------------

BEFORE = {"x": 1, "list": [1], "map": {"a": 1, "b": {"c": 1}}}


@pytest.mark.parametrize("merge", ["last", "deep"])
@pytest.mark.parametrize(
    ("siblings", "changed"),
    [
        ({"A": setting(x=2)}, {"x": 2}),
        ({"A": setting(y=2), "B": setting(z=3)}, {"y": 2, "z": 3}),
        ({"A": setting(x=2), "B": setting(x=3)}, {"x": 3}),
        ({"A": setting(x=2), "B": lambda _: None}, {"x": 2}),
        ({"A": setting(x=2), "B": setting(y=3)}, {"x": 2, "y": 3}),
        ({"A": setting(x=2), "B": setting(x=1)}, {"x": 1}),
        ({"A": deleting("x"), "B": setting(y=2)}, {"x": None, "y": 2}),
        ({"A": deleting("x"), "B": setting(x=1)}, {"x": 1}),
        ({"A": setting(y=2), "B": lambda c: (setting(y=3)(c), c.pop("y"))}, {"y": 2}),
        ({"A": setting(x=2), "B": deleting("x")}, {"x": None}),
        ({"A": lambda context: context["list"].append(2)}, {"list": [1, 2]}),
        (
            {"A": lambda context: context["list"].append(2), "B": lambda _: None},
            {"list": [1, 2]},
        ),
        (
            {
                "A": lambda context: context["list"].append(2),
                "B": lambda context: context["list"].append(3),
            },
            {"list": [1, 3]},
        ),
        ({"A": lambda context: context.pop("x")}, {"x": None}),
        ({"A": lambda context: context.pop("nothing", 0)}, {}),
        ({"A": lambda context: context.setdefault("y", []).append(1)}, {"y": [1]}),
        ({"A": lambda context: context.setdefault("list", []).clear()}, {"list": []}),
        ({"A": lambda context: context.deep_merge({"map": {"d": 2}})}, "deep_merge"),
        (
            {"A": lambda context: context.clear()},
            {"x": None, "list": None, "map": None},
        ),
        ({"A": lambda context: setattr(context, "x", 5)}, {"x": 5}),
        ({"A": lambda context: delattr(context, "x")}, {"x": None}),
    ],
)
def test_only_what_was_written_is_merged_in_the_order_of_listing(
    merge, siblings, changed
):
    if changed == "deep_merge":
        changed = {"map": {**BEFORE["map"], "d": 2}}
    expected = {**BEFORE, **changed}
    expected = {key: value for key, value in expected.items() if value is not None}

    assert merged(siblings, merge=merge, **BEFORE) == expected
    assert BEFORE == {"x": 1, "list": [1], "map": {"a": 1, "b": {"c": 1}}}


@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_of_listing_counts_not_that_of_ending(run, backwards):
    first_ended, second_ended = Event(), Event()

    class First(Task[None]):
        def work(self) -> None:
            if backwards:
                assert second_ended.wait(PATIENCE)
            self.context.winner = "First"
            first_ended.set()

    class Second(Task[None]):
        def work(self) -> None:
            if not backwards:
                assert first_ended.wait(PATIENCE)
            self.context.winner = "Second"
            second_ended.set()

    assert run(flow(parallel(First, Second))).context.winner == "Second"


def change_map(path, value):
    *steps, key = path.split(".")

    def change(context):
        holder = context["map"]
        for each in steps:
            holder = holder[each]
        if value is None:
            del holder[key]
        else:
            holder[key] = value

    return change


@pytest.mark.parametrize(
    ("siblings", "last", "deep"),
    [
        (
            {"A": change_map("a", 2), "B": change_map("b.c", 3)},
            {"a": 1, "b": {"c": 3}},
            {"a": 2, "b": {"c": 3}},
        ),
        (
            {"A": change_map("b.d", 2), "B": change_map("b.e", 3)},
            {"a": 1, "b": {"c": 1, "e": 3}},
            {"a": 1, "b": {"c": 1, "d": 2, "e": 3}},
        ),
        (
            {"A": change_map("a", None), "B": change_map("b.c", None)},
            {"a": 1, "b": {}},
            {"b": {}},
        ),
        (
            {"A": change_map("b", 5), "B": change_map("b.d", 2)},
            {"a": 1, "b": {"c": 1, "d": 2}},
            {"a": 1, "b": {"d": 2}},
        ),
        (
            {"A": change_map("b.d", 2), "B": change_map("b", 5)},
            {"a": 1, "b": 5},
            {"a": 1, "b": 5},
        ),
        (
            {"A": deleting("map"), "B": change_map("b.d", 2)},
            {"a": 1, "b": {"c": 1, "d": 2}},
            {"b": {"d": 2}},
        ),
        (
            {"A": deleting("map"), "B": setting(map={"a": 1, "b": {"c": 1}})},
            {"a": 1, "b": {"c": 1}},
            {"a": 1, "b": {"c": 1}},
        ),
        (
            {"A": change_map("a", 2), "B": setting(map={"n": 1})},
            {"n": 1},
            {"n": 1},
        ),
        (
            {"A": change_map("new", 2), "B": setting(map={"n": 1})},
            {"n": 1},
            {"new": 2, "n": 1},
        ),
        (
            {"A": setting(map=7), "B": setting(map={"n": 1})},
            {"n": 1},
            {"n": 1},
        ),
        (
            {
                "A": change_map("new", 2),
                "B": lambda context: context.update(map={**context["map"], "n": 1}),
            },
            {"a": 1, "b": {"c": 1}, "n": 1},
            {"a": 1, "b": {"c": 1}, "new": 2, "n": 1},
        ),
    ],
)
def test_a_deep_merge_merges_entry_by_entry(siblings, last, deep):
    before = {"a": 1, "b": {"c": 1}}

    assert merged(siblings, map=before)["map"] == last
    assert merged(siblings, merge="deep", map=before)["map"] == deep
    assert before == {"a": 1, "b": {"c": 1}}


@pytest.mark.parametrize("before", [{}, {"map": 5}, {"map": None}, {"map": {}}])
def test_a_deep_merge_brings_new_mappings_together(before):
    siblings = {
        "A": setting(map={"a": 1, "deep": {"a": 1}}),
        "B": setting(map={}),
        "C": setting(map={"b": 2, "deep": {"b": 2}}),
    }

    assert merged(siblings, merge="deep", **before) == {
        "map": {"a": 1, "b": 2, "deep": {"a": 1, "b": 2}}
    }


@pytest.mark.parametrize("merge", ["last", "deep"])
def test_a_mapping_that_one_sibling_wrote_keeps_its_type(merge):
    class Table(dict):
        pass

    table = Table(a=1)

    assert merged({"A": setting(map=table)}, merge=merge, map=Table())["map"] is table


def test_a_deep_merge_leaves_each_sibling_what_it_wrote():
    listed = parallel(
        writing("A", map={"a": {"x": 1}}),
        writing("B", map={"a": {"y": 1}}),
        merge="deep",
    )
    result = flow(listed).execute()
    contexts = {each.task.__name__: each.context.to_dict() for each in result.chain}

    assert contexts == {
        "Flow": {"map": {"a": {"x": 1, "y": 1}}},
        "A": {"map": {"a": {"x": 1}}},
        "B": {"map": {"a": {"y": 1}}},
    }


def test_merge_none_merges_nothing():
    assert merged({"A": setting(x=2), "B": deleting("x")}, merge="none", x=1) == {
        "x": 1
    }


def test_a_callable_merges_as_it_likes(run):
    seen = []

    def tally(context, result):
        seen.append(result.task.__name__)
        context.total = context.get("total", 0) + result.context.count

    listed = parallel(writing("A", count=1), writing("B", count=2), merge=tally)
    result = run(flow(listed))

    assert seen == ["A", "B"]
    assert result.context.to_dict() == {"total": 3}


@pytest.fixture
def _registries():
    before = dict(executors._entries), dict(mergers._entries)
    yield
    executors._entries, mergers._entries = before


@pytest.mark.usefixtures("_registries")
def test_a_merger_can_be_registered_for_all():
    @mergers.register("first")
    def first(context, result):
        for key, value in result.context.items():
            context.setdefault(key, value)

    assert merged({"A": setting(x=1), "B": setting(x=2)}, merge="first") == {"x": 1}


def test_a_merger_can_be_registered_for_a_class_and_its_subclasses():
    class Base(Workflow[None]):
        steps = (parallel(writing("A", x=1), merge="mine"),)

    class Child(Base):
        pass

    Base.mergers.register("mine", lambda context, _: context.update(mine=True))

    assert Base.execute().context.to_dict() == {"mine": True}
    assert Child.execute().context.to_dict() == {"mine": True}
    assert "mine" not in mergers


def test_an_unknown_merger_is_told_with_those_that_are_known():
    listed = parallel(writing("A", x=1), merge="newest")

    with pytest.raises(UnknownEntryError, match=r"merger.*'newest'.*deep, last, none"):
        flow(listed).execute()


def test_a_merger_that_raises_fails_the_workflow(run):
    error = ValueError("cannot merge")

    def refuse(_context, _result):
        raise error

    assert run(flow(parallel(writing("A", x=1), merge=refuse))).cause is error


def test_a_step_that_follows_finds_what_was_merged(run):
    class Sum(Task[int]):
        a: int
        b: int

        def work(self) -> int:
            return self.a + self.b

    assert run(flow(parallel(writing("A", a=1), writing("B", b=2)), Sum)).value == 3


def test_a_sibling_writes_nothing_by_reading_its_inputs(run):
    class Read(Task[None]):
        x: int
        y: int = optional(default=3)
        z: list = optional(factory=list)
        w: int = output()

        def work(self) -> None:
            self.w = self.x + self.y

    result = run(flow(parallel(Read)), x="1")

    assert result.context.to_dict() == {"x": "1", "w": 4}


def test_a_workflow_beside_others_keeps_its_defaults_to_itself(run):
    class Price(Task[None]):
        currency: str

        def work(self) -> None:
            self.context[self.currency] = "priced"

    class Euro(Workflow[None]):
        currency: str = "EUR"
        steps = (Price,)

    class Krone(Workflow[None]):
        currency: str = "NOK"
        steps = (Price,)

    result = run(flow(parallel(Euro, Krone)))

    assert result.context.to_dict() == {"EUR": "priced", "NOK": "priced"}
    assert result.conflicts == ()


# -- under other names ----------------------------------------------------------


class Find(Task[str]):
    id: int = required()

    def work(self) -> str:
        self.context.found = self.id
        return f"thing {self.id}"


def test_one_task_runs_beside_itself_under_other_names(run):
    listed = parallel(
        step(Find, map={"id": "product_id"}, into="product"),
        step(Find, map={"id": "owner_id"}, into="owner"),
        merge="none",
    )
    result = run(flow(listed), product_id=7, owner_id=8)

    assert result.context.to_dict() == {
        "product_id": 7,
        "owner_id": 8,
        "product": "thing 7",
        "owner": "thing 8",
    }
    assert result.conflicts == ()


def test_a_mapped_value_is_a_copy_too(run):
    class Add(Task[int]):
        def work(self) -> int:
            self.context.goods.append("egg")
            return len(self.context.goods)

    basket = []
    listed = parallel(
        step(Add, map={"goods": "basket"}, into="first"),
        step(Add, map={"goods": "basket"}, into="second"),
    )
    result = run(flow(listed), basket=basket)

    assert basket == []
    assert (result.context.first, result.context.second) == (1, 1)


# -- conflicts ------------------------------------------------------------------


def conflicts(merge, /, *siblings, **inputs):
    tasks = [doing(name, change) for name, change in zip("ABC", siblings, strict=False)]
    result = flow(parallel(*tasks, merge=merge)).execute(**inputs)
    return [(each.key, each.tasks) for each in result.conflicts]


@pytest.mark.parametrize(
    ("siblings", "last", "deep"),
    [
        ([setting(x=1), setting(y=2)], [], []),
        ([setting(x=1), setting(x=1)], [], []),
        ([setting(x=1), setting(x=2)], [("x", "AB")], [("x", "AB")]),
        ([setting(x=1), setting(y=1), setting(x=2)], [("x", "AC")], [("x", "AC")]),
        ([setting(x=1), setting(x=1), setting(x=2)], [("x", "ABC")], [("x", "ABC")]),
        ([setting(v=1), deleting("v")], [("v", "AB")], [("v", "AB")]),
        ([deleting("v"), deleting("v")], [], []),
        ([deleting("map"), change_map("a", 2)], [("map", "AB")], [("map", "AB")]),
        ([change_map("a", 2), change_map("b.c", 2)], [("map", "AB")], []),
        (
            [change_map("b.c", 2), change_map("b.c", 3)],
            [("map", "AB")],
            [("map.b.c", "AB")],
        ),
        (
            [setting(map=5), change_map("b.c", 3), change_map("b.d", 3)],
            [("map", "ABC")],
            [("map", "ABC")],
        ),
        (
            [change_map("b.c", 3), change_map("b", 5)],
            [("map", "AB")],
            [("map.b", "AB")],
        ),
        ([setting(n={"a": 1}), setting(n={"b": 1})], [("n", "AB")], []),
        ([setting(n={}), setting(n={"b": 1})], [("n", "AB")], []),
        ([setting(n={"a": 1}), setting(n={"a": 2})], [("n", "AB")], [("n.a", "AB")]),
    ],
)
def test_conflicts_are_keys_that_siblings_wrote_differently(siblings, last, deep):
    def shown(found):
        return [(key, tuple(names)) for key, names in found]

    before = {"v": 0, "map": {"a": 1, "b": {"c": 1}}}

    assert conflicts("last", *siblings, **before) == shown(last)
    assert conflicts("deep", *siblings, **before) == shown(deep)
    assert conflicts("none", *siblings, **before) == []


def test_two_steps_into_one_key_are_in_conflict():
    listed = parallel(
        step(Find, map={"id": "one"}, into="thing"),
        step(Find, map={"id": "two"}, into="thing"),
        writing("Write", thing=3),
    )
    result = flow(listed).execute(one=1, two=2)

    assert result.conflicts == (("thing", ("Find", "Find", "Write")),)
    assert result.context.thing == 3


def test_a_run_without_parallel_steps_has_no_conflicts():
    assert flow(Find).execute(id=1).conflicts == ()


def test_conflicts_of_all_groups_are_told_together(run):
    clash = parallel(writing("A", x=1), writing("B", x=2))
    result = run(flow(clash, parallel(writing("C", y=1), writing("D", y=2))))

    assert result.conflicts == (("x", ("A", "B")), ("y", ("C", "D")))


def test_a_failed_sibling_is_in_no_conflict_and_merges_nothing(run):
    class Failing(Task[None]):
        def work(self) -> None:
            self.context.x = "wrong"
            self.fail("no")

    listed = parallel(
        writing("A", x=1), step(Failing, on_failure="continue"), workers=1
    )
    result = run(flow(listed))

    assert result.conflicts == ()
    assert result.context.to_dict() == {"x": 1}


def test_a_skipped_sibling_merges_what_it_wrote(run):
    class Skipping(Task[None]):
        def work(self) -> None:
            self.context.seen = True
            self.skip()

    assert run(flow(parallel(Skipping))).context.to_dict() == {"seen": True}


# -- failures -------------------------------------------------------------------


class Failing(Task[None]):
    def work(self) -> None:
        self.fail(f"{type(self).__name__} failed")


class Other(Failing):
    pass


class Quick(Task[None]):
    def work(self) -> None:
        self.context.quick = True


def test_a_failure_cancels_what_has_not_started(run):
    result = run(flow(parallel(Quick, Failing, Other, Quick, workers=1), Quick))

    assert result.reason == "Failing failed"
    assert result.origin.task is Failing
    assert [each.task for each in result.chain[1:]] == [Quick, Failing]


def test_a_failure_lets_those_that_run_finish_and_keeps_their_results(run):
    failed, results = Event(), []

    class Slow(Task[str]):
        def work(self) -> str:
            running.set()
            assert failed.wait(PATIENCE)
            self.context.slow = "finished"
            return Inside.execute(self).value

    class Inside(Task[str]):
        def work(self) -> str:
            return "inside"

    class Fails(Task[None]):
        def work(self) -> None:
            assert running.wait(PATIENCE)
            self.fail("no")

    running = Event()

    def heard(sender, *, result, **_):
        results.append(result)
        if sender is Fails:
            failed.set()

    with task_executed.connected_to(heard):
        result = run(flow(parallel(Slow, Fails)))
    tree = {each.task: (each.parent, each.depth) for each in result.chain}
    slow = next(each for each in result.chain if each.task is Slow)

    assert result.reason == "no"
    assert tree == {
        result.task: (None, 0),
        Fails: (result, 1),
        Slow: (result, 1),
        Inside: (slow, 2),
    }
    assert slow.value == "inside"
    assert slow.context.slow == "finished"
    assert len(results) == len(result.chain) == 4


def test_what_the_others_wrote_is_merged_though_one_failed(run):
    result = run(flow(parallel(writing("A", x=1), Failing, workers=1)))

    assert result.failed
    assert result.context.to_dict() == {"x": 1}


def test_the_first_failure_that_is_listed_is_thrown(run):
    barrier = Barrier(2, timeout=PATIENCE)

    class Together(Failing):
        def work(self) -> None:
            barrier.wait()
            super().work()

    class First(Together):
        pass

    class Second(Together):
        pass

    assert run(flow(parallel(First, Second))).reason == "First failed"


def test_a_group_that_continues_starts_all_and_collects_failures(run):
    listed = parallel(Failing, Quick, Other, workers=1, continue_on_failure=True)
    result = run(flow(listed, Quick))

    assert result.failed
    assert result.errors.to_dict() == {
        "Failing.failed": ["Failing failed"],
        "Other.failed": ["Other failed"],
    }
    assert [each.task for each in result.chain[1:]] == [Failing, Quick, Other]


def test_a_tolerated_failure_cancels_nothing(run):
    listed = parallel(step(Failing, on_failure="continue"), Quick, workers=1)
    result = run(flow(listed))

    assert result.success
    assert result.context.quick


@pytest.mark.parametrize("workers", [1, None])
def test_misuse_in_a_sibling_is_raised_where_the_workflow_runs(run, workers):
    class Misused(Task[None]):
        def work(self) -> None:
            Quick().fail("never started")

    with pytest.raises(FinishedTaskError, match="has not started"):
        run(flow(parallel(Quick, Misused, workers=workers)))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_is_raised_where_the_workflow_runs(error):
    class Interrupted(Task[None]):
        def work(self) -> None:
            raise error

    with pytest.raises(error):
        flow(parallel(Quick, Interrupted)).execute()


def test_a_halt_of_the_workflow_in_a_gate_beside_others_ends_the_workflow(run):
    class Flow(Workflow[None]):
        steps = (parallel(group(Quick, if_="enough"), Quick),)

        def enough(self):
            self.skip("enough")

    result = run(Flow)

    assert result.skipped
    assert result.reason == "enough"


# -- groups beside each other ---------------------------------------------------


def test_groups_run_beside_each_other_in_their_own_order(run):
    first = group(writing("A", a=1), doing("B", lambda c: c.update(b=c.a + 1)))
    result = run(flow(parallel(first, writing("C", c=3))))

    assert result.context.to_dict() == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("wanted", [True, False])
def test_the_gate_of_a_group_beside_others_is_asked_of_the_workflow(run, wanted):
    class Flow(Workflow[None]):
        steps = (
            parallel(
                group(writing("A", a=1), if_="wanted"),
                parallel(group(writing("B", b=1), unless="wanted"), writing("C", c=1)),
                group(writing("D", d=1), if_=lambda flow: type(flow) is Flow),
            ),
        )

        def wanted(self):
            return self.context.wanted

    result = run(Flow, wanted=wanted)
    done = {"a": 1} if wanted else {"b": 1}

    assert result.context.to_dict() == {"wanted": wanted, "c": 1, "d": 1, **done}


def test_a_wrong_gate_of_a_group_beside_others_is_told_of_the_workflow():
    class Flow(Workflow[None]):
        steps = (parallel(group(Quick, if_="nowhere"), Quick),)

    with pytest.raises(
        DefinitionError, match=r"'nowhere', which is no method of .*Flow"
    ):
        Flow.execute()


def test_a_parallel_group_in_a_parallel_group_merges_outwards(run):
    inner = parallel(writing("A", a=1, x=1), writing("B", b=1, x=2))
    result = run(flow(parallel(inner, writing("C", c=1))))

    assert result.context.to_dict() == {"a": 1, "b": 1, "x": 2, "c": 1}


# -- context variables and threads ----------------------------------------------

REQUEST: ContextVar[str] = ContextVar("request", default="none")


class Here(Task[None]):
    """Waits until all are here, so that each has a thread of its own."""

    def work(self) -> None:
        seen = threading.current_thread().name, REQUEST.get()
        self.context.barrier.wait()
        self.context[type(self).__name__] = seen


class Here2(Here):
    pass


class Here3(Here):
    pass


def test_context_variables_reach_the_workers(run):
    token = REQUEST.set("request 7")
    try:
        barrier = Barrier(3, timeout=PATIENCE)
        context = run(flow(parallel(Here, Here2, Here3)), barrier=barrier).context
    finally:
        REQUEST.reset(token)

    seen = [context.Here, context.Here2, context.Here3]
    assert [request for _, request in seen] == ["request 7"] * 3
    assert len({thread for thread, _ in seen}) == 3


def test_what_a_sibling_sets_in_a_context_variable_stays_with_it(run):
    class Change(Task[None]):
        def work(self) -> None:
            assert REQUEST.get() == "none"
            REQUEST.set(type(self).__name__)

    result = run(flow(parallel(Change, Change, workers=1)))

    assert result.success
    assert REQUEST.get() == "none"


def test_a_bare_thread_begins_a_chain_of_its_own():
    results = []

    class Bare(Task[None]):
        def work(self) -> None:
            thread = Thread(target=lambda: results.append(Quick.execute()))
            thread.start()
            thread.join()

    result = flow(parallel(Bare, Quick)).execute()

    assert results[0].root
    assert results[0].cid != result.cid
    assert len(result.chain) == 3


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("executor", [None, "threads"])
def test_no_more_than_workers_run_at_once(run, workers, executor):
    running, most = [], []
    lock = threading.Lock()
    full = Barrier(workers)

    class Busy(Task[None]):
        def work(self) -> None:
            with lock:
                running.append(self)
                most.append(len(running))
            full.wait(PATIENCE)
            with lock:
                running.remove(self)

    listed = parallel(*[Busy] * 6, workers=workers, executor=executor)
    result = run(flow(listed))

    assert result.success
    assert max(most) == workers
    assert len(most) == 6


# -- executors ------------------------------------------------------------------


class Where(Task[None]):
    def work(self) -> None:
        self.context[type(self).__name__] = threading.get_ident()


class Where2(Where):
    pass


def test_the_inline_executor_runs_siblings_in_order_in_one_thread():
    result = flow(parallel(Where, Where2, executor="inline")).execute()

    assert [each.task for each in result.chain[1:]] == [Where, Where2]
    assert set(result.context.values()) == {threading.get_ident()}


def test_the_thread_that_asks_works_as_well():
    result = flow(parallel(Where, executor="threads")).execute()

    assert result.context.Where == threading.get_ident()


def backwards(jobs, workers):
    calls.append(workers)
    for job in reversed(jobs):
        job()


calls: list[int] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@pytest.mark.parametrize(("workers", "told"), [(None, 2), (5, 5), (1, 1)])
def test_an_executor_may_be_any_callable_of_jobs_and_workers(run, workers, told):
    listed = parallel(Where, Where2, executor=backwards, workers=workers)
    result = run(flow(listed))

    assert [each.task for each in result.chain[1:]] == [Where2, Where]
    assert calls == [told]


@pytest.mark.usefixtures("_registries")
def test_an_executor_can_be_registered_for_all(run):
    executors.register("backwards", backwards)

    run(flow(parallel(Where, Where2, executor="backwards")))

    assert calls == [2]


def test_an_executor_can_be_registered_for_a_class_and_its_subclasses(run):
    class Base(Workflow[None]):
        steps = (parallel(Where, Where2, executor="mine"),)

    class Child(Base):
        pass

    Base.executors.register("mine", backwards)
    run(Base)
    run(Child)

    assert calls == [2, 2]
    assert "mine" not in executors


def test_a_class_can_have_another_default_executor():
    class Base(Workflow[None]):
        steps = (parallel(Where, Where2),)

    Base.executors.register("threads", backwards)
    Base.execute()
    flow(parallel(Where, Where2)).execute()

    assert calls == [2]


@pytest.mark.parametrize("first", ["Workflow", "executors", "mergers", "parallel"])
def test_the_registries_are_registries_whatever_was_imported_before(first):
    program = f"""if True:
        from cmdx import {first}
        from cmdx import executors, mergers
        assert {{"threads", "asyncio", "inline"}} <= set(executors)
        assert {{"last", "deep", "none"}} <= set(mergers)
    """
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603


def test_an_unknown_executor_is_told_with_those_that_are_known(run):
    with pytest.raises(
        UnknownEntryError, match=r"executor.*'thread'; did you mean 'threads'"
    ):
        run(flow(parallel(Where, executor="thread")))


def test_the_asyncio_executor_needs_an_event_loop():
    with pytest.raises(TypeError, match=r"awaits.*aexecute"):
        flow(parallel(Where, executor="asyncio")).execute()


# -- the pool -------------------------------------------------------------------


def nested(depth, width):
    if not depth:
        return Quick
    return parallel(*[nested(depth - 1, width)] * width)


@pytest.mark.parametrize("threads", [1, 2])
def test_nested_groups_cannot_deadlock_a_small_pool(run, pool_of, in_time, threads):
    pool_of(threads)

    result = in_time(run, flow(nested(depth=3, width=4)))

    assert result.success
    assert sum(each.task is Quick for each in result.chain) == 64


@pytest.mark.parametrize("threads", [1, 2])
def test_many_nested_groups_at_once_cannot_deadlock_a_small_pool(
    run, pool_of, in_time, threads
):
    pool_of(threads)
    task = flow(nested(depth=2, width=3))
    results = []

    def many():
        crowd = [Thread(target=lambda: results.append(run(task))) for _ in range(8)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()

    in_time(many)

    assert [result.success for result in results] == [True] * 8
    assert {sum(each.task is Quick for each in result.chain) for result in results} == {
        9
    }


def test_siblings_that_run_workflows_themselves_cannot_deadlock_the_pool(
    run, pool_of, in_time
):
    pool_of(1)

    class Within(Task[None]):
        def work(self) -> None:
            run(flow(nested(depth=2, width=2))).or_raise()

    assert in_time(run, flow(parallel(*[Within] * 4))).success


def test_all_groups_share_one_pool_of_so_many_threads(pool_of, in_time):
    pool_of(3)
    names = set()

    class Name(Task[None]):
        def work(self) -> None:
            names.add(threading.current_thread().name)

    task = flow(parallel(*[Name] * 20), parallel(*[Name] * 20))
    for _ in range(10):
        in_time(task.execute)

    pooled = {name for name in names if name.startswith("cmdx")}
    assert len(pooled) <= 3


# -- the rest -------------------------------------------------------------------


class Paired(Workflow[None]):
    steps = (parallel(Quick, Failing, workers=1),)


def test_the_result_of_a_parallel_workflow_is_pickled():
    result = Paired.execute(list=[1])
    copied = pickle.loads(pickle.dumps(result))

    assert copied.reason == "Failing failed"
    assert copied.chain[1].context.to_dict() == {"list": [1], "quick": True}


def test_frantic_switching_loses_no_result():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            siblings = [
                writing(f"T{number}", **{f"k{number}": 1}) for number in range(8)
            ]
            result = flow(parallel(*siblings)).execute()
            assert len(result.chain) == 9
            assert len(result.context) == 8
    finally:
        sys.setswitchinterval(usual)
