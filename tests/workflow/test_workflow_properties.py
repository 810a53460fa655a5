"""Whatever siblings write, in any interleaving, is merged as in the specification."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from itertools import permutations
from threading import Semaphore, Thread

from hypothesis import given, settings
from hypothesis import strategies as st

from cmdx import Task, Workflow, parallel

PATIENCE = 20

# -- what siblings do -----------------------------------------------------------

KEYS = st.sampled_from("abcd")
NAMES = st.sampled_from("xyz")

values = st.recursive(
    st.integers(2, 6),
    lambda inner: (
        st.lists(st.integers(2, 6), max_size=2)
        | st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=5,
)
bags = st.dictionaries(KEYS, values, max_size=4)
paths = st.tuples(KEYS, NAMES) | st.tuples(KEYS, NAMES, NAMES)
changes = st.one_of(
    st.tuples(st.just("set"), KEYS, values),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("append"), KEYS, st.integers(2, 6)),
    st.tuples(st.just("put"), paths, values),
    st.tuples(st.just("drop"), paths),
    st.tuples(st.just("replace"), KEYS, NAMES, values),
)
siblings = st.lists(st.lists(changes, max_size=4), min_size=1, max_size=4)
schedules = st.lists(st.integers(0, 3), max_size=16)
in_any_case = settings(max_examples=150, deadline=None)


def apply(bag, change):
    """Do one change, if it can be done; return the key that was set or deleted."""
    kind, where, *given = deepcopy(change)
    if kind == "set":
        bag[where] = given[0]
        return where
    if kind == "delete" and where in bag:
        del bag[where]
        return where
    if kind == "append" and isinstance(bag.get(where), list):
        bag[where].append(given[0])
    if kind == "replace" and isinstance(bag.get(where), dict):
        bag[where] = {**bag[where], given[0]: given[1]}
        return where
    if kind in ("put", "drop"):
        change_within(bag, where, *given)
    return None


def change_within(bag, path, *given):
    *steps, name = path
    for step in steps:
        bag = bag.get(step)
        if not isinstance(bag, dict):
            return
    if given:
        bag[name] = given[0]
    else:
        bag.pop(name, None)


# -- what is to come of it ------------------------------------------------------


def written_alone(before, plan):
    """Return what a sibling has in the end, and which keys it set, or changed."""
    after = deepcopy(before)
    assigned = {apply(after, change) for change in plan} - {None}
    changed = {
        key
        for key in before.keys() | after.keys()
        if key in assigned or before.get(key) != after.get(key)
    }
    return after, assigned, changed


def expected_last(before, plans):
    merged = deepcopy(before)
    for plan in plans:
        after, _, changed = written_alone(before, plan)
        for key in changed:
            merged.pop(key, None)
            if key in after:
                merged[key] = after[key]
    return merged


GONE = object()


def expected_deep(before, plans):
    merged = deepcopy(before)
    for plan in plans:
        after, assigned, changed = written_alone(before, plan)
        for key in changed:
            there = merged.get(key, GONE)
            if key not in after:
                value = GONE
            elif key in assigned and not isinstance(there, dict):
                value = after[key]
            else:
                value = merged_deep(there, before.get(key, GONE), after[key])
            merged.pop(key, None)
            if value is not GONE:
                merged[key] = value
    return merged


def merged_deep(there, before, after):
    """Entries that did not change stay as they are there; the others are written."""
    if not isinstance(after, dict):
        return after
    if not isinstance(there, dict) and not isinstance(before, dict):
        return after
    there, before = (each if isinstance(each, dict) else {} for each in (there, before))
    merged = {}
    for name in {**there, **before, **after}:
        old, new = before.get(name, GONE), after.get(name, GONE)
        kept = there.get(name, GONE)
        value = kept if old == new else merged_deep(kept, old, new)
        if value is not GONE:
            merged[name] = value
    return merged


EXPECTED = {"last": expected_last, "deep": expected_deep}


# -- running them, in any interleaving ------------------------------------------


class Turns:
    """Lets siblings do one change each time it is their turn."""

    def __init__(self, plans, schedule):
        self.plans = plans
        rest = [number for number, plan in enumerate(plans) for _ in plan]
        wanted = [number % len(plans) for number in schedule]
        self.order = []
        for number in (*wanted, *rest):
            if self.order.count(number) < len(plans[number]):
                self.order.append(number)
        self.turns = [Semaphore(0) for _ in plans]
        self.done = Semaphore(0)

    def threads(self, jobs, _workers):
        """Run jobs in threads, an executor that decides who is next."""
        crowd = [Thread(target=job) for job in jobs]
        for thread in crowd:
            thread.start()
        for number in self.order:
            self.turns[number].release()
            assert self.done.acquire(timeout=PATIENCE)
        for thread in crowd:
            thread.join()

    def task(self, number):
        turns = self

        class Sibling(Task[None]):
            def work(self) -> None:
                for change in turns.plans[number]:
                    assert turns.turns[number].acquire(timeout=PATIENCE)
                    try:
                        apply(self.context, change)
                    finally:
                        turns.done.release()

        Sibling.__name__ = f"S{number}"
        return Sibling

    def async_task(self, number):
        turns = self

        class Sibling(Task[None]):
            async def work(self) -> None:
                for change in turns.plans[number]:
                    while turns.order[0] != number:  # noqa: ASYNC110 -- no time passes
                        await asyncio.sleep(0)
                    turns.order.pop(0)
                    apply(self.context, change)

        return Sibling


def merged_in_threads(merge, before, plans, schedule):
    turns = Turns(plans, schedule)
    tasks = [turns.task(number) for number in range(len(plans))]

    class Flow(Workflow[None]):
        steps = (parallel(*tasks, merge=merge, executor=turns.threads),)

    return Flow.execute(deepcopy(before)).or_raise()


def merged_on_a_loop(merge, before, plans, schedule):
    turns = Turns(plans, schedule)
    tasks = [turns.async_task(number) for number in range(len(plans))]

    class Flow(Workflow[None]):
        steps = (parallel(*tasks, merge=merge),)

    return asyncio.run(Flow.aexecute(deepcopy(before))).or_raise()


def merged_in_order(merge, before, plans):
    return merged_in_threads(merge, before, plans, [])


# -- properties -----------------------------------------------------------------


@in_any_case
@given(st.sampled_from(["last", "deep"]), bags, siblings, schedules)
def test_the_merged_context_is_as_specified_in_any_interleaving(
    merge, before, plans, schedule
):
    expected = EXPECTED[merge](before, plans)

    assert merged_in_threads(merge, before, plans, schedule).context == expected


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["last", "deep"]), bags, siblings, schedules)
def test_the_merged_context_is_as_specified_on_an_event_loop(
    merge, before, plans, schedule
):
    expected = EXPECTED[merge](before, plans)

    assert merged_on_a_loop(merge, before, plans, schedule).context == expected


@in_any_case
@given(st.sampled_from(["last", "deep"]), bags, siblings)
def test_what_only_one_sibling_changed_is_never_lost(merge, before, plans):
    context = merged_in_order(merge, before, plans).context.to_dict()
    alone = [written_alone(before, plan) for plan in plans]

    for key in "abcd":
        writers = [after for after, _, changed in alone if key in changed]
        if not writers:
            assert context.get(key) == before.get(key)
        elif len(writers) == 1:
            assert context.get(key) == writers[0].get(key)


@in_any_case
@given(bags, siblings)
def test_an_entry_that_only_one_sibling_changed_is_never_lost(before, plans):
    context = merged_in_order("deep", before, plans).context.to_dict()
    alone = [written_alone(before, plan) for plan in plans]

    for key in "abcd":
        held = [after.get(key) for after, _, changed in alone if key in changed]
        if not all(isinstance(each, dict) for each in (before.get(key), *held)):
            continue
        for name in "xyz":
            old = before[key].get(name, GONE)
            new = [each.get(name, GONE) for each in held]
            changed = [each for each in new if each is not old and each != old]
            if len(changed) == 1 and not isinstance(changed[0], dict):
                assert context[key].get(name, GONE) == changed[0]
            if not changed:
                assert context[key].get(name, GONE) == old


@in_any_case
@given(st.sampled_from(["last", "deep"]), bags, st.lists(changes, max_size=6))
def test_a_single_sibling_leaves_what_it_would_have_left_in_a_sequence(
    merge, before, plan
):
    after, _, _ = written_alone(before, plan)

    assert merged_in_order(merge, before, [plan]).context == after


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["last", "deep"]), bags, st.lists(siblings, max_size=1))
def test_siblings_with_keys_of_their_own_may_be_listed_in_any_order(
    merge, before, plans
):
    own = [
        [change for change in plan if change[1][0] == key]
        for key, plan in zip("abc", plans[0] if plans else [], strict=False)
    ]
    contexts = [
        merged_in_order(merge, before, listed).context.to_dict()
        for listed in permutations(own)
        if listed
    ]

    assert all(each == contexts[0] for each in contexts)


@in_any_case
@given(bags, siblings)
def test_a_conflict_is_a_key_that_was_changed_to_different_values(before, plans):
    result = merged_in_order("last", before, plans)
    alone = [written_alone(before, plan) for plan in plans]
    expected = {}
    for key in "abcd":
        wrote = [
            (f"S{number}", after.get(key, GONE))
            for number, (after, _, changed) in enumerate(alone)
            if key in changed
        ]
        if any(value != wrote[0][1] for _, value in wrote):
            expected[key] = tuple(name for name, _ in wrote)

    assert dict(result.conflicts) == expected


@in_any_case
@given(bags, siblings)
def test_without_conflicts_the_order_does_not_matter(before, plans):
    result = merged_in_order("deep", before, plans)
    backwards = merged_in_order("deep", before, plans[::-1])

    assert bool(result.conflicts) == bool(backwards.conflicts)
    if not result.conflicts:
        assert result.context == backwards.context.to_dict()


@in_any_case
@given(st.sampled_from(["last", "deep"]), bags, siblings)
def test_the_values_that_were_given_are_left_alone(merge, before, plans):
    given_values = deepcopy(before)
    tasks = [Turns([plan], []).async_task(0) for plan in plans]

    class Flow(Workflow[None]):
        steps = (parallel(*tasks, merge=merge),)

    asyncio.run(Flow.aexecute(given_values)).or_raise()

    assert given_values == before
