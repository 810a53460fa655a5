"""Leaving out inherited middlewares."""

from __future__ import annotations

import pytest
from noting import nested, noting

from cmdx import DefinitionError, Task, middleware, without_middleware

first, second, third = noting("first"), noting("second"), noting("third")


class Bracket:
    """A middleware that a class is given as a class."""

    def __init__(self, name="bracket"):
        self.name = name

    def __call__(self, task):
        yield from noting(self.name)(task)

    def method(self, task):
        yield from noting(f"{self.name} method")(task)


class Other(Bracket):
    pass


@middleware(first, second)
class Base(Task[None]):
    def note(self, event):
        self.context.setdefault("events", []).append(event)

    def work(self):
        self.note("work")


def events_of(run, task):
    return run(task).context.events


def test_a_subclass_leaves_out_an_inherited_middleware(run):
    @without_middleware(first)
    class Child(Base):
        pass

    assert events_of(run, Child) == nested("second")


def test_the_base_class_and_its_other_subclasses_keep_it(run):
    @without_middleware(first)
    class Child(Base):
        pass

    class Sibling(Base):
        pass

    assert run(Child).success
    assert events_of(run, Base) == nested("first", "second")
    assert events_of(run, Sibling) == nested("first", "second")


def test_several_can_be_left_out_at_once(run):
    @without_middleware(second, first)
    class Child(Base):
        pass

    assert events_of(run, Child) == ["work"]


def test_a_subclass_inherits_that_it_is_left_out(run):
    @without_middleware(first)
    class Child(Base):
        pass

    @middleware(third)
    class Grandchild(Child):
        pass

    assert events_of(run, Grandchild) == nested("second", "third")


def test_it_works_on_a_class_that_has_run(run):
    class Child(Base):
        pass

    class Grandchild(Child):
        pass

    assert events_of(run, Grandchild) == nested("first", "second")
    without_middleware(first)(Child)
    assert events_of(run, Grandchild) == nested("second")


@pytest.mark.parametrize(
    "decorators",
    [
        (middleware(first), without_middleware(first)),
        (without_middleware(first), middleware(first)),
    ],
)
def test_one_that_is_declared_again_moves_inside(run, decorators):
    class Child(Base):
        pass

    for decorate in decorators:
        decorate(Child)

    assert events_of(run, Child) == nested("second", "first")


def test_the_nearer_class_decides_among_several_bases(run):
    @without_middleware(first)
    class Quiet(Base):
        pass

    class Loud(Base):
        pass

    class Both(Quiet, Loud):
        pass

    assert events_of(run, Both) == nested("second")


def test_gates_of_the_others_stay(run):
    @middleware(third, Bracket, if_=lambda task: task.context.get("live"))
    class Gated(Base):
        pass

    @without_middleware(third)
    class Child(Gated):
        pass

    assert events_of(run, Child) == nested("first", "second")
    assert run(Child, live=True).context.events == nested("first", "second", "bracket")


def test_a_class_stands_for_its_instances(run):
    @middleware(Bracket, Bracket("given"), Other("derived"), third)
    class Wrapped(Base):
        pass

    @without_middleware(Bracket)
    class Child(Wrapped):
        pass

    assert events_of(run, Child) == nested("first", "second", "third")


def test_an_instance_stands_for_itself_alone(run):
    kept, removed = Bracket("kept"), Bracket("removed")

    @middleware(kept, removed)
    class Wrapped(Base):
        pass

    @without_middleware(removed)
    class Child(Wrapped):
        pass

    assert events_of(run, Child) == nested("first", "second", "kept")


def test_a_bound_method_is_known_again(run):
    bracket = Bracket()

    @middleware(bracket.method)
    class Wrapped(Base):
        pass

    @without_middleware(bracket.method)
    class Child(Wrapped):
        pass

    assert events_of(run, Child) == nested("first", "second")


def test_a_class_without_its_async_middleware_runs_synchronously():
    async def awaiting(_task):
        yield

    @middleware(awaiting)
    class Awaiting(Base):
        pass

    @without_middleware(awaiting)
    class Child(Awaiting):
        pass

    assert Child.execute().success


def timed(_task):
    yield


def audited(_task):
    yield


@middleware(timed, Bracket("given"))
class Named(Task[None]):
    def work(self): ...


@pytest.mark.parametrize("given", [audited, Other, "timed"])
def test_one_that_is_not_inherited_is_refused_with_the_names_of_those_that_are(given):
    with pytest.raises(DefinitionError) as refused:

        @without_middleware(timed, given)
        class Child(Named):
            pass

    name = getattr(given, "__qualname__", repr(given))
    assert f"Child does not inherit the middleware {name}." in str(refused.value)
    assert "The inherited ones are: timed, <test_without" in str(refused.value)


def test_one_of_the_class_itself_is_not_inherited():
    with pytest.raises(DefinitionError, match="inherited ones are: none"):

        @without_middleware(timed)
        @middleware(timed)
        class Own(Task[None]):
            def work(self): ...


def test_what_was_left_out_before_is_not_inherited():
    @without_middleware(timed)
    class Child(Named):
        pass

    with pytest.raises(DefinitionError, match="does not inherit the middleware timed"):

        @without_middleware(timed)
        class Grandchild(Child):
            pass


def test_a_refused_line_changes_nothing(run):
    class Child(Base):
        pass

    with pytest.raises(DefinitionError):
        without_middleware(first, third)(Child)

    assert events_of(run, Child) == nested("first", "second")


def test_none_at_all_is_refused_at_once():
    with pytest.raises(DefinitionError, match="needs at least one middleware"):
        without_middleware()


def test_the_decorator_without_parentheses_is_refused_at_once():
    with pytest.raises(DefinitionError, match="needs at least one middleware"):

        @without_middleware
        class Child(Base):
            pass


@pytest.mark.parametrize("target", [dict, len, Base()])
def test_only_task_classes_can_be_decorated(target):
    with pytest.raises(DefinitionError, match="without_middleware decorates task"):
        without_middleware(first)(target)
