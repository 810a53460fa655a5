from __future__ import annotations

import pytest

import cmdx
from cmdx import DefinitionError, Task, UnknownEntryError, retriers, retry_on

pytestmark = pytest.mark.usefixtures("instant")

BUILT_IN = {
    "exponential",
    "linear",
    "fibonacci",
    "half_random",
    "full_random",
    "bounded_random",
    "decorrelated_jitter",
    "full_jitter",
    "equal_jitter",
}


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        raise TimeoutError("down")


@pytest.fixture
def globally():
    """Register retriers for everyone, and put the old ones back afterwards."""
    before = {name: retriers.lookup(name) for name in retriers}
    yield retriers
    for name in list(retriers):
        if name not in before:
            retriers.deregister(name)
    for name, entry in before.items():
        retriers.register(name, entry)


# -- registering ----------------------------------------------------------------------


def test_nine_strategies_are_built_in():  # R-004-26
    assert set(retriers) == BUILT_IN
    assert len(retriers) == 9
    assert all(callable(retriers.lookup(name)) for name in BUILT_IN)


def test_the_global_registry_is_public():
    assert cmdx.retriers is retriers


def test_a_retrier_is_registered_by_name(execute, instant, globally):  # R-004-26
    globally.register("slow", lambda attempt, delay: delay * 10 + attempt)

    @retry_on(TimeoutError, limit=2, jitter="slow")
    class Charge(Down):
        pass

    execute(Charge)

    assert instant.pauses == [5.0, 6.0]


def test_registering_can_be_chained(globally):  # R-004-26
    chained = globally.register("one", lambda: 1).register("two", lambda: 2)

    assert chained is globally
    assert {"one", "two"} <= set(globally)


def test_a_retrier_is_registered_by_a_decorator(execute, instant, globally):
    @globally.register("slow")  # R-004-26
    def slow():
        return 10.0

    @retry_on(TimeoutError, limit=1, jitter="slow")
    class Charge(Down):
        pass

    execute(Charge)

    assert slow() == 10.0
    assert globally.lookup("slow") is slow
    assert instant.pauses == [10.0]


def test_the_same_name_replaces_what_was_there(globally):  # R-004-26
    first, second = (lambda: 1), (lambda: 2)
    globally.register("slow", first).register("slow", second)

    assert globally.lookup("slow") is second
    assert len(globally) == 10


@pytest.mark.parametrize("entry", [5, "linear", [], b"linear"], ids=repr)
def test_only_callables_can_be_registered(entry):  # R-004-26
    with pytest.raises(DefinitionError) as refused:
        retriers.register("slow", entry)

    message = str(refused.value)
    assert "the retrier 'slow' must be callable" in message
    assert type(entry).__name__ in message
    assert "Register a function" in message
    assert "slow" not in retriers


def test_the_decorator_refuses_what_cannot_be_called():  # R-004-26
    with pytest.raises(DefinitionError, match="'slow' must be callable"):
        retriers.register("slow")(5)


@pytest.mark.parametrize("name", ["", None, 5, b"name"], ids=repr)
def test_a_retrier_needs_a_name(name):
    with pytest.raises(DefinitionError, match=r"non-empty string, got .* Write"):
        retriers.register(name, lambda: 1)


# -- looking up -----------------------------------------------------------------------


def test_an_unknown_name_is_refused_with_the_known_ones():  # R-004-27
    with pytest.raises(UnknownEntryError) as refused:
        retriers.lookup("exponentail")

    message = str(refused.value)
    assert "no retrier is called 'exponentail'; did you mean 'exponential'?" in message
    assert ", ".join(sorted(BUILT_IN)) in message
    assert "Register it with retriers.register('exponentail', ...)" in message
    assert isinstance(refused.value, LookupError)


def test_an_unknown_jitter_is_refused_with_the_task_that_names_it():
    @retry_on(ConnectionError, jitter="expo")
    class ChargeCard(Task[None]):
        def work(self):
            pass

    with pytest.raises(UnknownEntryError, match=r", or correct it in .*ChargeCard\."):
        ChargeCard.execute()


@pytest.mark.parametrize(
    ("name", "known"),
    [("linear", True), ("nowhere", False), (5, False), ([], False), (None, False)],
)
def test_a_registry_tells_whether_it_knows_a_name(name, known):  # R-004-26
    assert (name in retriers) is known


def test_resolving_lets_none_and_callables_pass():  # R-004-27
    call = lambda: 1

    assert retriers.resolve(None) is None
    assert retriers.resolve(call) is call
    assert retriers.resolve("linear") is retriers.lookup("linear")


@pytest.mark.parametrize("entry", ["nowhere", 5, []], ids=repr)
def test_resolving_refuses_the_rest(entry):  # R-004-27
    with pytest.raises(UnknownEntryError):
        retriers.resolve(entry)


def test_a_deregistered_retrier_is_gone(globally):  # R-004-26
    globally.register("slow", lambda: 1)

    assert globally.deregister("slow") is globally
    assert "slow" not in globally
    assert "slow" not in list(globally)
    with pytest.raises(UnknownEntryError):
        globally.lookup("slow")


def test_an_unknown_name_cannot_be_deregistered():
    with pytest.raises(UnknownEntryError, match="nowhere"):
        retriers.deregister("nowhere")


# -- per class ------------------------------------------------------------------------


def test_a_class_registers_for_itself_and_its_subclasses(execute, instant):
    @retry_on(TimeoutError, limit=1, jitter="slow")  # R-004-28
    class Parent(Down):
        pass

    class Child(Parent):
        pass

    Parent.retriers.register("slow", lambda: 9.0)
    execute(Parent)
    execute(Child)

    assert instant.pauses == [9.0, 9.0]


def test_what_a_class_registers_reaches_neither_parent_nor_sibling_nor_everyone():
    class Parent(Down):  # R-004-28
        pass

    class Child(Parent):
        pass

    class Sibling(Parent):
        pass

    Child.retriers.register("slow", lambda: 9.0)
    Child.retriers.register("linear", lambda: 9.0)

    for registry in (Parent.retriers, Sibling.retriers, retriers):
        assert "slow" not in registry
        assert registry.lookup("linear") is not Child.retriers.lookup("linear")


def test_a_class_replaces_a_built_in_for_itself(execute, instant):  # R-004-23
    @retry_on(TimeoutError, limit=1, jitter="linear")
    class Parent(Down):
        pass

    class Child(Parent):
        pass

    Child.retriers.register("linear", lambda: 9.0)
    execute(Parent)
    execute(Child)

    assert instant.pauses == [0.5, 9.0]


def test_the_nearest_class_wins(execute, instant):  # R-004-23
    @retry_on(TimeoutError, limit=1, jitter="slow")
    class Grandparent(Down):
        pass

    class Parent(Grandparent):
        pass

    class Child(Parent):
        pass

    Grandparent.retriers.register("slow", lambda: 1.0)
    Parent.retriers.register("slow", lambda: 2.0)
    for task in (Grandparent, Parent, Child):
        execute(task)

    assert instant.pauses == [1.0, 2.0, 2.0]


def test_of_several_bases_the_first_one_is_asked_first(instant):
    class Left(Down):
        pass

    class Right(Down):
        pass

    @retry_on(TimeoutError, limit=1, jitter="slow")
    class Child(Left, Right):
        pass

    Right.retriers.register("slow", lambda: 2.0)
    Child.execute()
    Left.retriers.register("slow", lambda: 1.0)
    Child.execute()

    assert instant.pauses == [2.0, 1.0]


def test_a_base_is_asked_after_all_classes_that_derive_from_it(instant):
    class Base(Down):
        pass

    class Left(Base):
        pass

    class Right(Base):
        pass

    @retry_on(TimeoutError, limit=1, jitter="slow")
    class Child(Left, Right):
        pass

    Base.retriers.register("slow", lambda: 1.0)
    Right.retriers.register("slow", lambda: 2.0)
    Child.execute()

    assert instant.pauses == [2.0]


def test_names_are_looked_up_live(execute, instant, globally):  # R-004-28
    @retry_on(TimeoutError, limit=1, jitter="slow")
    class Parent(Down):
        pass

    class Child(Parent):
        pass

    with pytest.raises(UnknownEntryError, match="'slow'"):
        execute(Child)
    globally.register("slow", lambda: 1.0)
    execute(Child)
    Parent.retriers.register("slow", lambda: 2.0)
    execute(Child)
    Child.retriers.register("slow", lambda: 3.0)
    execute(Child)

    assert instant.pauses == [1.0, 2.0, 3.0]


def test_a_global_change_reaches_classes_that_looked_before(globally):  # R-004-28
    class Charge(Down):
        pass

    assert "slow" not in Charge.retriers
    globally.register("slow", lambda: 1.0)
    assert "slow" in Charge.retriers
    assert "slow" in list(Charge.retriers)
    globally.deregister("slow")
    assert "slow" not in Charge.retriers


def test_a_class_takes_out_an_inherited_name_for_itself_and_its_subclasses():
    class Parent(Down):
        pass

    class Child(Parent):
        pass

    class Sibling(Down):
        pass

    Parent.retriers.deregister("linear")

    for registry in (Parent.retriers, Child.retriers):
        assert "linear" not in registry
        assert "linear" not in list(registry)
        assert len(registry) == 8
    for registry in (Sibling.retriers, retriers):
        assert "linear" in registry
        assert len(registry) == 9


def test_what_was_taken_out_can_be_registered_again():
    class Charge(Down):
        pass

    again = lambda: 1.0
    Charge.retriers.deregister("linear").register("linear", again)

    assert Charge.retriers.lookup("linear") is again


def test_a_registered_name_hides_a_method(execute, instant):  # R-004-23
    @retry_on(TimeoutError, limit=1, jitter="linear")
    class Charge(Down):
        def linear(self):
            return 9.0

    execute(Charge)
    Charge.retriers.deregister("linear")
    execute(Charge)

    assert instant.pauses == [0.5, 9.0]


def test_a_class_iterates_over_its_own_names_and_those_it_inherits():
    class Parent(Down):
        pass

    class Child(Parent):
        pass

    Parent.retriers.register("slow", lambda: 1.0)
    Child.retriers.register("slower", lambda: 2.0)

    assert set(Child.retriers) == BUILT_IN | {"slow", "slower"}
    assert set(Parent.retriers) == BUILT_IN | {"slow"}


def test_an_unknown_name_is_refused_with_those_the_class_knows():
    class Charge(Down):
        pass

    Charge.retriers.register("slow", lambda: 1.0)

    with pytest.raises(UnknownEntryError, match=r"did you mean 'slow'\?.*linear, slow"):
        Charge.retriers.lookup("slwo")
