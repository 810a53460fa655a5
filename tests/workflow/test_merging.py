"""What comes of what parallel steps write."""

from __future__ import annotations

from threading import Event

import pytest

from cmdx import (
    Task,
    UnknownEntryError,
    Workflow,
    executors,
    mergers,
    optional,
    output,
    parallel,
    required,
    step,
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


class Failing(Task[None]):
    def work(self) -> None:
        self.fail(f"{type(self).__name__} failed")


# -- merging -----------------------------------------------------------------------


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


def test_a_deep_merge_replaces_mappings_of_other_classes_as_a_whole():
    class Table(dict):
        pass

    first, second = Table(a=1), Table(b=2)
    siblings = setting(map=first), setting(map=second)

    assert merged(dict(zip("AB", siblings, strict=True)), merge="deep") == {
        "map": {"b": 2}
    }
    assert conflicts("deep", *siblings) == [("map", ("A", "B"))]
    assert (first, second) == ({"a": 1}, {"b": 2})


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


def test_a_merger_that_raises_leaves_the_context_as_it_was(run):
    def tear(context, _result):
        context.x.append(1)
        context.y = 2
        raise ValueError

    result = run(flow(parallel(doing("A", lambda _: None), merge=tear)), x=[])

    assert result.failed
    assert result.context.to_dict() == {"x": []}


def test_a_merger_may_change_in_place_what_it_finds(run):
    def collect(context, result):
        context.found.extend(result.context.found)

    def find(number):
        return lambda context: context.found.append(number)

    siblings = doing("A", find(1)), doing("B", find(2)), doing("C", lambda _: None)
    found = []
    result = run(flow(parallel(*siblings, merge=collect)), found=found)

    assert result.context.found == [1, 2]
    assert found == []


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


# -- under other names -------------------------------------------------------------


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


# -- conflicts ---------------------------------------------------------------------


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
    assert conflicts(mergers.lookup("deep"), *siblings, **before) == shown(deep)
    assert conflicts(mergers.lookup("none"), *siblings, **before) == []


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


def test_a_conflict_is_named_even_if_its_key_has_no_words(run):
    class Wordless:
        def __repr__(self):
            raise ZeroDivisionError("no words")

    key = Wordless()

    class Left(Task[None]):
        def work(self):
            self.context.found = {key: type(self).__name__}

    class Right(Left):
        pass

    class Both(Workflow[None]):
        steps = (parallel(Left, Right, merge="deep"),)

    (conflict,) = run(Both).conflicts

    assert conflict.key == f"found.<{Wordless.__qualname__}>"
