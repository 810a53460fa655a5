"""Class keywords: what a task is."""

from __future__ import annotations

from contextvars import Context
from functools import partial

import pytest

from cmdx import DefinitionError, RetryOptions, Task, on_failed


class Base(Task[str]):
    """The base class of an application."""

    def work(self):
        return "done"


# -- tags ---------------------------------------------------------------------------


def test_a_task_has_no_tags_unless_it_is_given_some(run):
    assert run(Base).tags == ()


@pytest.mark.parametrize("tags", [("billing", "slow"), ["billing", "slow"]])
def test_the_tags_of_a_class_are_on_its_results(run, tags):
    class Tagged(Base, tags=tags):
        pass

    assert run(Tagged).tags == ("billing", "slow")


def test_a_subclass_adds_to_the_tags_it_inherits(run):
    class Parent(Base, tags=("billing", "slow")):
        pass

    class Child(Parent, tags=("nightly", "slow")):
        pass

    class Sibling(Parent):
        pass

    assert run(Child).tags == ("billing", "slow", "nightly")
    assert run(Sibling).tags == ("billing", "slow")
    assert run(Parent).tags == ("billing", "slow")


def test_tags_of_several_parents_are_united(run):
    class Left(Base, tags=("left", "both")):
        pass

    class Right(Base, tags=("right", "both")):
        pass

    class Bottom(Left, Right, tags=("bottom",)):
        pass

    assert sorted(run(Bottom).tags) == ["both", "bottom", "left", "right"]


def test_changing_the_list_that_was_given_changes_nothing(run):
    tags = ["billing"]

    class Tagged(Base, tags=tags):
        pass

    tags.append("late")

    assert run(Tagged).tags == ("billing",)


# -- logging ------------------------------------------------------------------------


def test_log_false_keeps_a_class_and_its_descendants_from_being_logged(run, lines):
    class Quiet(Base, log=False):
        pass

    class QuietChild(Quiet):
        pass

    class Loud(Quiet, log=True):
        pass

    run(Quiet)
    run(QuietChild)
    assert lines == []

    run(Loud)
    assert [line["event"] for line in lines] == ["task_executed"]


@pytest.mark.parametrize(
    ("level", "logged"),
    [("error", "error"), ("ERROR", "error"), (30, "warning"), (None, "info")],
)
def test_log_level_sets_the_level_of_the_line(run, lines, level, logged):
    class Parent(Base, log_level="critical"):
        pass

    class Child(Parent, log_level=level):
        pass

    run(Parent)
    run(Child)

    assert [line["log_level"] for line in lines] == ["critical", logged]


def test_a_subclass_adds_to_the_log_fields_it_inherits(run, lines):
    class Parent(Base, log_fields=("context.order",)):
        pass

    class Child(Parent, log_fields=["context.user"]):
        pass

    run(Parent, order=7, user="Ada", purse="full")
    run(Child, order=7, user="Ada", purse="full")

    parent, child = lines
    assert parent["context.order"] == 7
    assert "context.user" not in parent
    assert (child["context.order"], child["context.user"]) == (7, "Ada")
    assert "full" not in repr(lines)


# -- others -------------------------------------------------------------------------


def test_the_nearest_correlation_id_wins(run):
    class Parent(Base, correlation_id=lambda: "parent"):
        pass

    class Child(Parent, correlation_id=lambda task: f"child of {task.context.name}"):
        pass

    class Without(Parent, correlation_id=None):
        pass

    assert run(Parent).xid == "parent"
    assert run(Child, name="Ada").xid == "child of Ada"
    assert run(Without).xid is None


def test_a_correlation_id_that_raises_fails_the_task_before_it_begins(run):
    error = ValueError("no request")

    def correlation_id():
        raise error

    class Lost(Task[None], correlation_id=correlation_id):
        def work(self):
            self.context.worked = True

        @on_failed
        def page(self):
            self.context.paged = True

    result = run(Lost)

    assert result.cause is error
    assert result.context == {"paged": True}


def test_a_correlation_id_may_halt_the_task(run):
    class Quiet(Task[None], correlation_id=lambda task: task.skip("nobody asked")):
        def work(self):
            self.context.worked = True

    result = run(Quiet)

    assert (result.status, result.reason) == ("skipped", "nobody asked")
    assert result.context == {}


def test_a_correlation_id_may_halt_an_outer_task(run):
    class Outer(Task[None]):
        def work(self):
            class Apart(Task[None], correlation_id=lambda: self.skip("nobody asked")):
                def work(self):
                    raise AssertionError

            Context().run(Apart.execute)  # there, it is the root of another chain

    result = run(Outer)

    assert (result.status, result.reason) == ("skipped", "nobody asked")


def test_retry_options_are_merged_field_by_field(run, instant):
    class Parent(Task[int], retry=RetryOptions(max_attempts=5, max_delay=9.0)):
        def work(self):
            calls = []

            def flaky():
                calls.append(1)
                raise TimeoutError

            with pytest.raises(TimeoutError):
                self.retry(flaky)
            return len(calls)

    class Child(Parent, retry=RetryOptions(base_delay=1.0)):
        pass

    assert run(Child).value == 5
    # Full jitter draws 0.5 of 2, 4, 8 and then of max_delay.
    assert instant.pauses == [1.0, 2.0, 4.0, 4.5]


def test_keywords_of_one_class_do_not_undo_others_of_its_ancestors(run, lines):
    class Parent(Base, tags=("billing",), log_level="error"):
        pass

    class Child(Parent, correlation_id=lambda: "child"):
        pass

    result = run(Child)

    assert (result.tags, result.xid) == (("billing",), "child")
    assert lines[0]["log_level"] == "error"


def test_a_mixin_may_have_class_keywords_of_its_own(run):
    class Coloured:
        def __init_subclass__(cls, color="none", **keywords):
            super().__init_subclass__(**keywords)
            cls.color = color

    class Mixed(Coloured, Base, color="red", tags=("billing",)):
        pass

    assert Mixed.color == "red"
    assert run(Mixed).tags == ("billing",)


# -- refusals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [
        ("tag", "tags"),
        ("tagz", "tags"),
        ("loglevel", "log_level"),
        ("depricated", "deprecated"),
        ("correlationid", "correlation_id"),
        ("retries", "retry"),
    ],
)
def test_an_unknown_keyword_is_refused_with_a_suggestion(keyword, meant):
    with pytest.raises(DefinitionError, match=f"{keyword}.*did you mean '{meant}'"):
        type("Misspelt", (Base,), {}, **{keyword: None})


def test_an_unknown_keyword_that_resembles_none_is_refused_with_all_there_are():
    known = "tags.*log.*log_level.*log_fields.*correlation_id.*deprecated.*retry"

    with pytest.raises(DefinitionError, match=f"class Misspelt.*zzz.*{known}"):
        type("Misspelt", (Base,), {}, zzz=1)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("tags", "billing"),
        ("tags", 3),
        ("tags", [1, 2]),
        ("tags", None),
        ("tags", (tag for tag in ("billing", "slow"))),
        ("log", "no"),
        ("log", 1),
        ("log", None),
        ("log_level", "loud"),
        ("log_level", 3.5),
        ("log_level", True),
        ("log_level", ["info"]),
        ("log_fields", "context"),
        ("log_fields", [3]),
        ("correlation_id", "abc"),
        ("correlation_id", 3),
        ("deprecated", "loud"),
        ("deprecated", True),
        ("deprecated", 3),
        ("deprecated", ["warn"]),
        ("deprecated_if", 3),
        ("deprecated_if", []),
        ("deprecated_unless", object()),
        ("retry", 5),
        ("retry", {"max_attempts": 5}),
        ("retry", None),
    ],
)
def test_a_keyword_of_a_wrong_kind_is_refused_with_the_class(keyword, value):
    with pytest.raises(DefinitionError, match=f"class Wrong.*{keyword}"):
        type("Wrong", (Base,), {}, **{keyword: value})


async def never_awaited(*_arguments):
    return "x"


@pytest.mark.parametrize("keyword", ["correlation_id", "deprecated"])
@pytest.mark.parametrize(
    "call",
    [never_awaited, partial(never_awaited, 1)],
    ids=["function", "partial"],
)
def test_an_async_callable_is_refused_with_the_class(keyword, call):
    with pytest.raises(DefinitionError, match=f"class Wrong: {keyword} .* is async.*"):
        type("Wrong", (Base,), {}, **{keyword: call})


@pytest.mark.parametrize(
    ("keyword", "call", "cure"),
    [
        ("correlation_id", lambda _task, _other: "x", "Take the task, or no arguments"),
        ("correlation_id", lambda *, request: request, "Take the task, or no argument"),
        ("deprecated", lambda _task, _other: None, "Take the task alone"),
        ("deprecated", lambda: None, "Take the task alone"),
    ],
)
def test_a_callable_of_other_arguments_is_refused_with_the_class(keyword, call, cure):
    with pytest.raises(DefinitionError, match=f"class Wrong: {keyword} .*{cure}"):
        type("Wrong", (Base,), {}, **{keyword: call})


def test_a_class_that_was_refused_leaves_its_parent_as_it_was(run):
    class Parent(Base, tags=("billing",)):
        pass

    with pytest.raises(DefinitionError):
        type("Wrong", (Parent,), {}, tags="slow")

    assert run(Parent).tags == ("billing",)


def test_an_init_is_refused_because_nothing_would_call_it():
    with pytest.raises(DefinitionError, match=r"Constructed defines __init__"):

        class Constructed(Base):
            def __init__(self, name):
                self.name = name
