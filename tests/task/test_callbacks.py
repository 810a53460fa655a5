"""The eleven decorators: which methods run when, and who decides about it."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock, Mock, patch

import pytest

from cmdx import (
    DefinitionError,
    Outcome,
    State,
    Status,
    Task,
    after_execution,
    before_execution,
    before_validation,
    on_complete,
    on_failed,
    on_interrupted,
    on_ko,
    on_ok,
    on_skipped,
    on_success,
)

BEFORE = [before_execution, before_validation]
COMPLETION = [
    after_execution,
    on_complete,
    on_interrupted,
    on_success,
    on_skipped,
    on_failed,
    on_ok,
    on_ko,
]
ENDS = {
    "success": lambda _: None,
    "skipped": lambda task: task.skip(),
    "failed": lambda task: task.fail(),
}


def one_of_the_ends(decorator):
    """Return an end after which hooks of *decorator* run."""
    if decorator in (on_interrupted, on_failed, on_ko):
        return "failed"
    return "skipped" if decorator is on_skipped else "success"


class Ends(Task[None]):
    """End as the context says."""

    def work(self):
        ENDS[self.context.get("end", "success")](self)

    def note(self, event="called"):
        self.context.setdefault("events", []).append(event)


# -- when they run ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decorator", "ends"),
    [
        (before_execution, {"success", "skipped", "failed"}),
        (before_validation, {"success", "skipped", "failed"}),
        (after_execution, {"success", "skipped", "failed"}),
        (on_complete, {"success"}),
        (on_interrupted, {"skipped", "failed"}),
        (on_success, {"success"}),
        (on_skipped, {"skipped"}),
        (on_failed, {"failed"}),
        (on_ok, {"success", "skipped"}),
        (on_ko, {"skipped", "failed"}),
    ],
)
def test_each_decorator_names_the_outcomes_its_hooks_run_after(run, decorator, ends):
    class Hooked(Ends):
        @decorator
        def hook(self):
            self.note()

    called = {end for end in ENDS if "events" in run(Hooked, end=end).context}

    assert called == ends


def test_a_hook_runs_once_for_each_run(run):
    class Hooked(Ends):
        @on_success
        def hook(self):
            self.note()

    assert run(Hooked).context.events == ["called"]
    assert run(Hooked).context.events == ["called"]


def test_hooks_run_in_the_order_they_are_defined(run):
    class Hooked(Ends):
        @on_success
        def zebra(self):
            self.note("zebra")

        @on_success
        def ant(self):
            self.note("ant")

        @on_success
        def mole(self):
            self.note("mole")

    assert run(Hooked).context.events == ["zebra", "ant", "mole"]


def test_hooks_share_the_task_with_work(run):
    class Hooked(Task[None]):
        @before_execution
        def prepare(self):
            self.total = 1

        def work(self):
            self.total += 1

        @on_success
        def report(self):
            self.metadata["total"] = self.total

    assert run(Hooked).metadata == {"total": 2}


@pytest.mark.parametrize("decorator", [*BEFORE, *COMPLETION])
def test_async_hooks_are_awaited(decorator):
    class Hooked(Ends):
        @decorator
        async def hook(self):
            await asyncio.sleep(0)
            self.note()

    end = one_of_the_ends(decorator)

    assert asyncio.run(Hooked.aexecute(end=end)).context.events == ["called"]


def test_a_hook_is_still_a_method():
    class Hooked(Ends):
        @on_success
        def greet(self, name="Ada"):
            """Say hello."""
            return f"hello {name}"

    assert Hooked().greet("Grace") == "hello Grace"
    assert Hooked.greet.__doc__ == "Say hello."


# -- the outcome --------------------------------------------------------------------


@pytest.mark.parametrize("decorator", COMPLETION)
def test_a_hook_after_work_may_take_the_outcome(run, decorator):
    outcomes = []

    class Hooked(Ends):
        @decorator
        def hook(self, outcome):
            outcomes.append(outcome)

    end = one_of_the_ends(decorator)
    run(Hooked, end=end)

    (outcome,) = outcomes
    assert isinstance(outcome, Outcome)
    assert outcome.status == end


@pytest.mark.parametrize("decorator", COMPLETION)
def test_a_static_hook_takes_the_outcome_alone(run, decorator):
    outcomes = []

    class Hooked(Ends):
        @decorator
        @staticmethod
        def hook(outcome):
            outcomes.append(outcome)

    end = one_of_the_ends(decorator)
    run(Hooked, end=end)

    assert [outcome.status for outcome in outcomes] == [end]


def test_a_static_hook_of_a_mixin_takes_the_outcome_alone(run):
    outcomes = []

    class Mixin:
        @on_success
        @staticmethod
        def hook(outcome):
            outcomes.append(outcome)

    class Hooked(Mixin, Ends):
        pass

    run(Hooked, end="success")

    assert [outcome.status for outcome in outcomes] == ["success"]


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_an_override_may_become_a_static_or_class_method(run, kind):
    told = []

    class Parent(Ends):
        @on_success
        def hook(self):
            raise AssertionError

    class Child(Parent):
        hook = kind(lambda *arguments: told.append(arguments[-1]))

    run(Child, end="success")

    assert [outcome.status for outcome in told] == ["success"]


@pytest.mark.parametrize("decorator", [*BEFORE, *COMPLETION])
def test_a_static_hook_may_take_nothing(run, decorator):
    calls = []

    class Hooked(Ends):
        @decorator
        @staticmethod
        def hook():
            calls.append(1)

    run(Hooked, end="success" if decorator in BEFORE else one_of_the_ends(decorator))

    assert calls == [1]


@pytest.mark.parametrize("decorator", BEFORE)
def test_a_static_hook_before_work_is_told_nothing(decorator):
    class Hooked(Ends):
        @decorator
        @staticmethod
        def hook(task):
            raise AssertionError(task)

    with pytest.raises(DefinitionError, match=r"takes 1 arguments.*static"):
        Hooked.execute(end="success")


def test_the_outcome_tells_all_there_is_to_know_about_a_halt(run):
    outcomes = []

    class Child(Task[None]):
        def work(self):
            self.fail("empty shelf")

    class Hooked(Task[None]):
        def work(self):
            self.throw(Child.execute(), code=1)

        @on_failed
        def page(self, outcome):
            outcomes.append(outcome)

    run(Hooked)

    (outcome,) = outcomes
    assert (outcome.status, outcome.state) == (Status.FAILED, State.INTERRUPTED)
    assert outcome.reason == "empty shelf"
    assert outcome.metadata == {"code": 1}
    assert outcome.origin.task is Child


def test_the_outcome_has_the_cause_of_a_failure(run):
    error = ValueError("bad order")
    outcomes = []

    class Hooked(Task[None]):
        def work(self):
            raise error

        @on_failed
        def page(self, outcome):
            outcomes.append(outcome)

    run(Hooked)

    assert outcomes[0].cause is error
    assert outcomes[0].reason == "[ValueError] bad order"


def test_the_outcome_has_what_a_success_noted_down(run):
    noted = []

    class Hooked(Task[None]):
        def work(self):
            self.metadata["code"] = 1

        @on_success
        def thank(self, outcome):
            noted.append(dict(outcome.metadata))

    run(Hooked)

    assert noted == [{"code": 1}]


@pytest.mark.parametrize("decorator", [*BEFORE, *COMPLETION])
def test_a_hook_that_insists_on_more_is_refused(decorator):
    with pytest.raises(DefinitionError, match="hook"):

        class Greedy(Ends):
            @decorator
            def hook(self, outcome, more):
                pass

        Greedy.execute()


class Gated(Ends):
    """Has something to ask."""

    def live(self):
        return self.context.get("live")


# -- inheritance --------------------------------------------------------------------


def test_hooks_of_ancestors_run_first(run):
    class Grandparent(Ends):
        @on_success
        def zebra(self):
            self.note("grandparent")

    class Parent(Grandparent):
        @on_success
        def mole(self):
            self.note("parent")

    class Child(Parent):
        @on_success
        def ant(self):
            self.note("child")

    assert run(Child).context.events == ["grandparent", "parent", "child"]


def test_parents_and_siblings_do_not_get_a_childs_hooks(run):
    class Parent(Ends):
        pass

    class Child(Parent):
        @on_success
        def hook(self):
            self.note()

    class Sibling(Parent):
        pass

    assert run(Child).context.events == ["called"]
    assert "events" not in run(Parent).context
    assert "events" not in run(Sibling).context


def test_a_mixin_brings_its_hooks(run):
    class Audited:
        @on_success
        def audit(self):
            self.note("audit")

    class Mixed(Audited, Ends):
        @on_success
        def thank(self):
            self.note("thank")

    assert run(Mixed).context.events == ["audit", "thank"]


def test_a_mixin_may_remove_and_override_the_hooks_of_a_task(run):
    class Parent(Ends):
        @on_success
        def thank(self):
            self.note("parent thanks")

        @on_success
        def greet(self):
            self.note("parent greets")

    class Quiet:
        thank = None

        def greet(self, outcome):
            self.note(f"mixin greets after {outcome.status}")

    class Mixed(Quiet, Parent):
        pass

    result = run(Mixed)

    assert result.success
    assert result.context.events == ["mixin greets after success"]


def test_a_hook_inherited_twice_runs_once(run):
    class Top(Ends):
        @on_success
        def hook(self):
            self.note()

    class Left(Top):
        pass

    class Right(Top):
        pass

    class Bottom(Left, Right):
        pass

    assert run(Bottom).context.events == ["called"]


def test_an_override_keeps_the_hook_its_place_and_its_gate(run):
    class Parent(Gated):
        @on_success(if_="live")
        def first(self):
            self.note("parent's first")

        @on_success
        def second(self):
            self.note("second")

    class Child(Parent):
        def first(self):
            self.note("child's first")

    assert run(Child, live=True).context.events == ["child's first", "second"]
    assert run(Child, live=False).context.events == ["second"]
    assert run(Parent, live=True).context.events == ["parent's first", "second"]


def test_an_override_may_call_what_it_overrides(run):
    class Parent(Ends):
        @on_success
        def hook(self):
            self.note("parent")

    class Child(Parent):
        def hook(self):
            super().hook()
            self.note("child")

    assert run(Child).context.events == ["parent", "child"]


def test_an_override_may_begin_to_take_the_outcome(run):
    class Parent(Ends):
        @on_success
        def hook(self):
            self.note("parent")

    class Child(Parent):
        def hook(self, outcome):
            self.note(outcome.status)

    assert run(Child).context.events == ["success"]


def test_an_override_may_begin_to_await():
    class Parent(Ends):
        @on_success
        def hook(self):
            self.note("parent")

    class Child(Parent):
        async def hook(self):
            await asyncio.sleep(0)
            self.note("child")

    with pytest.raises(TypeError, match="aexecute"):
        Child.execute()
    assert asyncio.run(Child.aexecute()).context.events == ["child"]


def test_none_removes_a_hook_from_a_class_and_its_descendants_alone(run):
    class Parent(Ends):
        @on_success
        def hook(self):
            self.note()

    class Child(Parent):
        hook = None

    class Grandchild(Child):
        pass

    assert "events" not in run(Child).context
    assert "events" not in run(Grandchild).context
    assert run(Parent).context.events == ["called"]


@pytest.mark.parametrize("attribute", [3, "text", property(lambda _: 3), [len]])
def test_an_override_that_cannot_be_called_is_refused_with_the_class(attribute):
    class Parent(Ends):
        @on_success
        def hook(self):
            self.note()

    with pytest.raises(DefinitionError, match=r"hook.*hook = None"):
        type("Child", (Parent,), {"hook": attribute})


# -- shared functions and stacked decorators ----------------------------------------


def archive_file(task):
    task.note(f"archived by {type(task).__name__}")


def test_a_function_can_be_shared_by_several_classes(run):
    class Invoice(Ends):
        archive = on_success(archive_file)

    class Letter(Ends):
        archive = on_failed(archive_file)

    assert run(Invoice).context.events == ["archived by Invoice"]
    assert run(Letter, end="failed").context.events == ["archived by Letter"]
    assert "events" not in run(Letter).context


def test_a_shared_function_can_be_gated(run):
    class Invoice(Gated):
        archive = on_success(if_="live")(archive_file)

    assert "events" not in run(Invoice).context
    assert run(Invoice, live=True).context.events == ["archived by Invoice"]


def test_sharing_a_function_leaves_the_function_alone():
    on_success(archive_file)
    task = Ends()

    archive_file(task)

    assert task.context.events == ["archived by Ends"]


@pytest.mark.parametrize("target", [None, 3, "archive_file"])
def test_only_functions_can_be_hooked(target):
    with pytest.raises((DefinitionError, TypeError)):

        class Invoice(Ends):
            archive = on_success(if_=True)(target)


def test_one_method_can_be_hooked_into_several_events(run):
    class Hooked(Ends):
        @before_execution
        @on_skipped
        @on_failed
        def hook(self):
            self.note()

    events = {end: run(Hooked, end=end).context.events for end in ENDS}

    assert events == {
        "success": ["called"],
        "skipped": ["called", "called"],
        "failed": ["called", "called"],
    }


def test_each_of_several_stacked_decorators_has_its_own_gate(run):
    class Hooked(Gated):
        @on_success(if_="live")
        @on_failed(unless="live")
        def hook(self):
            self.note()

    def called(**inputs):
        return "events" in run(Hooked, **inputs).context

    assert called(end="success", live=True)
    assert not called(end="success", live=False)
    assert not called(end="failed", live=True)
    assert called(end="failed", live=False)


def test_a_skipped_task_fires_on_ok_and_on_ko(run):
    class Hooked(Ends):
        @on_ok
        def fine(self):
            self.note("ok")

        @on_ko
        def not_fine(self):
            self.note("ko")

    events = {end: run(Hooked, end=end).context.events for end in ENDS}

    assert events == {"success": ["ok"], "skipped": ["ok", "ko"], "failed": ["ko"]}


# -- patching -----------------------------------------------------------------------


def hooked_class():
    """Return a class that has never been run."""

    class Hooked(Ends):
        @on_success
        def thank(self):
            self.note("thank")

        @on_success
        def greet(self):
            self.note("greet")

    return Hooked


@pytest.mark.parametrize("was_run", [True, False])
def test_a_hook_can_be_patched(was_run):
    task = hooked_class()
    if was_run:
        task.execute()

    with patch.object(task, "thank") as thank:
        events = task.execute().context.events

    assert thank.call_count == 1
    assert events == ["greet"]


@pytest.mark.parametrize("was_run", [True, False])
def test_a_patched_hook_runs_again_when_the_patch_is_gone(was_run):
    task = hooked_class()
    if was_run:
        task.execute()

    with patch.object(task, "thank"):
        task.execute()
    result = task.execute()

    assert result.success
    assert result.context.events == ["thank", "greet"]


def test_a_patch_may_raise():
    task = hooked_class()

    with patch.object(task, "thank", side_effect=ValueError("bad order")):
        result = task.execute()

    assert result.reason == "[ValueError] bad order"


def test_a_function_in_the_place_of_a_hook_is_called_with_the_task():
    task = hooked_class()

    with patch.object(task, "thank", lambda self: self.note("patched")):
        assert task.execute().context.events == ["patched", "greet"]


def test_an_inherited_hook_can_be_patched_on_either_class():
    parent = hooked_class()
    child = type("Child", (parent,), {})

    with patch.object(parent, "thank") as thank:
        child.execute()
    with patch.object(child, "greet") as greet:
        child.execute()

    assert (thank.call_count, greet.call_count) == (1, 1)
    assert child.execute().context.events == ["thank", "greet"]


def test_a_hook_can_be_patched_on_one_invocation():
    task = hooked_class()
    invocation = task()
    invocation.thank = Mock()

    assert invocation.run().context.events == ["greet"]
    assert invocation.thank.call_count == 1
    assert task.execute().context.events == ["thank", "greet"]


def test_work_and_rollback_can_be_patched():
    class Undo(Ends):
        def rollback(self):
            self.note("rollback")

    with (
        patch.object(Undo, "work", side_effect=ValueError("bad order")),
        patch.object(Undo, "rollback") as rollback,
    ):
        result = Undo.execute()

    assert result.reason == "[ValueError] bad order"
    assert rollback.call_count == 1
    assert Undo.execute(end="failed").context.events == ["rollback"]


def test_async_hooks_and_work_can_be_patched():
    class Fetch(Ends):
        async def work(self):
            await asyncio.sleep(0)
            return "fetched"

        @on_success
        async def thank(self):
            self.note("thank")

    with (
        patch.object(Fetch, "work", AsyncMock(return_value="patched")),
        patch.object(Fetch, "thank", new_callable=AsyncMock) as thank,
    ):
        assert asyncio.run(Fetch.aexecute()).value == "patched"

    assert thank.await_count == 1
    result = asyncio.run(Fetch.aexecute())
    assert (result.value, result.context.events) == ("fetched", ["thank"])
