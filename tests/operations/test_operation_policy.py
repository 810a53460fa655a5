"""What a class says by ``@operation``, and what it must not say."""

from __future__ import annotations

import io
import warnings
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import IO, Annotated, Any

import attrs
import pytest

from cmdx import DefinitionError, Task
from cmdx.operations import (
    Indeterminate,
    OperationPolicy,
    OperationState,
    operation,
)


class Plain(Task[int]):
    def work(self):
        return 1


# -- options ---------------------------------------------------------------------------


def test_r_001_14_a_task_is_volatile_and_not_idempotent_unless_it_says_so():
    default = OperationPolicy(False, False, 86_400.0, "all")
    assert OperationPolicy.of(Plain) == default
    assert OperationPolicy.of(operation()(type("Empty", (Plain,), {}))) == default


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("idempotent", [True, False])
def test_r_001_14_persist_and_idempotent_are_independent(persist, idempotent):
    @operation(persist=persist, idempotent=idempotent)
    class Charge(Plain): ...

    assert OperationPolicy.of(Charge) == OperationPolicy(persist, idempotent)


def test_a_subclass_inherits_each_option_by_itself():
    @operation(persist=True, keep=60)
    class Parent(Plain): ...

    @operation(idempotent=True, seal="decided")
    class Child(Parent): ...

    @operation(persist=False)
    class Grandchild(Child): ...

    assert OperationPolicy.of(Parent) == OperationPolicy(True, False, 60, "all")
    assert OperationPolicy.of(Child) == OperationPolicy(True, True, 60, "decided")
    assert OperationPolicy.of(Grandchild) == OperationPolicy(False, True, 60, "decided")


def test_of_two_lines_the_upper_one_counts():
    @operation(keep=20)
    @operation(keep=10, idempotent=True)
    class Charge(Plain): ...

    assert OperationPolicy.of(Charge) == OperationPolicy(False, True, 20)


def test_a_declaration_made_later_counts_from_then_on(session):
    class Charge(Plain, name="operations.charge"): ...

    session.run(Charge(), id="a")
    assert operation(keep=60)(Charge) is Charge
    assert OperationPolicy.of(Charge).keep == 60


VALID = "Valid options: persist, idempotent, keep, seal."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"persist": 1}, "operation: persist must be True or False, got 1."),
        (
            {"idempotent": "yes"},
            "operation: idempotent must be True or False, got 'yes'.",
        ),
        ({"seal": "some"}, 'operation: seal must be "all" or "decided", got \'some\'.'),
        (
            {"keep": 0},
            "operation: keep must be a finite number of seconds, above 0, got 0.",
        ),
        (
            {"keep": "1 day"},
            "operation: keep must be a finite number of seconds, above 0, got '1 day'.",
        ),
        (
            {"idem": True},
            f"operation has no option 'idem'; use `idempotent`. {VALID}",
        ),
        (
            {"persists": True},
            f"operation has no option 'persists'; did you mean 'persist'? {VALID}",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_option_is_refused_with_the_right_ones(options, message):
    with pytest.raises(DefinitionError) as refused:
        operation(**options)
    assert str(refused.value) == message


@pytest.mark.parametrize("keep", [30 * 86_400, 30 * 86_400.0, 0.001])
def test_an_outcome_is_kept_up_to_30_days(keep):
    @operation(keep=keep)
    class Charge(Plain): ...

    assert OperationPolicy.of(Charge).keep == keep


def test_more_than_30_days_are_refused():
    with pytest.raises(DefinitionError) as refused:
        operation(keep=30 * 86_400 + 1)
    assert str(refused.value) == (
        "operation: keep cannot exceed 2592000 seconds (30 days), got 2592001. "
        "Store what is needed for longer in your own tables."
    )


@pytest.mark.parametrize("option", ["persist", "idempotent", "seal"])
def test_an_option_that_is_none_is_not_set(session, option):
    @operation(persist=True, idempotent=True, seal="decided")
    class Parent(Plain): ...

    @operation(**{option: None})
    class Child(Parent, name="operations.child"): ...

    assert OperationPolicy.of(Child) == OperationPolicy.of(Parent)
    assert session.run(Child(), id="a").success


@pytest.mark.parametrize("decorated", [len, 7, str, Plain()], ids=lambda _: "")
def test_only_task_classes_are_decorated(decorated):
    with pytest.raises(DefinitionError, match="operation decorates task classes"):
        operation()(decorated)


def test_positional_arguments_are_refused():
    with pytest.raises(DefinitionError, match="takes keywords only"):
        operation(True)


def test_a_policy_is_a_value():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        OperationPolicy().keep = 5


def test_a_value_that_cannot_be_stored_is_warned_of_once_when_declared():
    with pytest.warns(UserWarning, match="Iterator") as warned:

        @operation()
        class Count(Task[Iterator[int]]):
            def work(self):
                return iter((1, 2))

    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        operation(keep=5)(Count)


# -- without a ledger ------------------------------------------------------------------


def test_r_001_6_without_a_ledger_a_declared_task_runs_as_ever(recorded):
    ran = []

    @operation(persist=True)
    class Charge(Task[int]):
        def work(self):
            ran.append(self)
            return len(ran)

    first, second = Charge.execute(), Charge().run()
    assert (first.value, second.value) == (1, 2)
    assert first.operation is None
    assert not first.indeterminate
    assert len(recorded.sent("task_executed")) == 2


def test_r_001_6_without_a_ledger_an_exception_is_raised_as_it_is():
    @operation()
    class Charge(Task[None]):
        def work(self):
            raise ConnectionError

    with pytest.raises(ConnectionError):
        Charge.execute().or_raise()


def test_a_task_that_declares_nothing_can_be_an_operation(session, call):
    assert call(session, Plain(), id="a").value == 1
    assert call(session, Plain(), id="a").operation.replayed


# -- streams ---------------------------------------------------------------------------

STREAMS = [
    Iterator[int],
    AsyncIterator[int],
    Generator[int, None, None],
    IO[str],
    io.TextIOWrapper,
    Iterator[int] | None,
]


@pytest.mark.parametrize("kind", STREAMS, ids=str)
def test_r_001_21_a_stream_cannot_persist(kind):
    with pytest.raises(DefinitionError) as refused:

        @operation(persist=True)
        class Upload(Task[None]):
            name: str
            source: kind

            def work(self): ...

    assert "Upload.source is a stream" in str(refused.value)
    assert "declare @operation(persist=False)" in str(refused.value)


NESTED_STREAMS = [
    list[Iterator[int]],
    dict[str, IO[bytes]],
    tuple[int, Iterator[int]],
    Annotated[list[list[Iterator[int] | None]], "a note"],
    Sequence[AsyncIterator[int]],
]


@pytest.mark.parametrize("kind", NESTED_STREAMS, ids=str)
def test_a_container_of_streams_cannot_persist(kind):
    with pytest.raises(DefinitionError) as refused:

        @operation(persist=True)
        class Upload(Task[None]):
            sources: kind

            def work(self): ...

    assert "Upload.sources contains a stream, which ends with its process" in str(
        refused.value
    )


@pytest.mark.parametrize(
    "kind",
    [list[int], Iterable[int], dict[int, int], Callable[[IO[str]], None], Any],
    ids=str,
)
def test_a_container_of_other_things_can_persist(kind):
    @operation(persist=True)
    class Upload(Task[None]):
        numbers: kind

        def work(self): ...

    assert OperationPolicy.of(Upload).persist


def test_a_subclass_that_adds_a_stream_may_stop_to_persist():
    """The decorator comes after the class, which therefore cannot be refused before."""

    @operation(persist=True)
    class Upload(Task[None]):
        def work(self): ...

    @operation(persist=False)
    class Streamed(Upload):
        source: Iterator[int]

    assert not OperationPolicy.of(Streamed).persist


def test_r_001_21_a_subclass_that_adds_a_stream_is_refused_when_it_is_used(session):
    @operation(persist=True)
    class Upload(Task[None]):
        def work(self): ...

    class Streamed(Upload, name="operations.streamed"):
        source: Iterator[int]

    with pytest.raises(DefinitionError, match=r"Streamed\.source is a stream"):
        session.run(Streamed(source=iter(())), id="a")
    assert session.get("a") is None


def test_r_001_21_a_subclass_that_begins_to_persist_is_refused():
    class Upload(Task[None]):
        source: Iterator[int]

        def work(self): ...

    with pytest.raises(DefinitionError, match=r"Child\.source is a stream"):

        @operation(persist=True)
        class Child(Upload): ...


class Total(Task[int]):
    name: str
    numbers: Iterator[int]

    def work(self):
        return sum(self.numbers)


def test_r_001_46_a_stream_is_no_part_of_the_intention(session, call):
    first = call(session, Total(name="a", numbers=iter([1, 2])), id="a")
    unread = iter([5])
    again = call(session, Total(name="a", numbers=unread), id="a")
    assert (first.value, again.value) == (3, 3)
    assert next(unread) == 5  # a replay does not read it


@pytest.mark.parametrize("idempotent", [False, True])
def test_r_001_47_an_ambiguous_run_with_a_stream_is_indeterminate(session, idempotent):
    @operation(idempotent=idempotent)
    class Upload(Task[int], name="operations.upload"):
        numbers: Iterator[int]

        def work(self):
            if next(self.numbers) == 0:
                raise KeyboardInterrupt
            return 1

    with pytest.raises(KeyboardInterrupt):
        session.run(Upload(numbers=iter([0])), id="a")
    ended = OperationState.RELEASED if idempotent else OperationState.INDETERMINATE
    assert session.get("a").state is ended
    again = session.run(Upload(numbers=iter([1])), id="a")  # a fresh handle
    if idempotent:
        assert again.value == 1
    else:
        assert isinstance(again.cause, Indeterminate)


def test_parentheses_cannot_be_left_out():
    class Charge(Task[int]):
        def work(self):
            return 7

    with pytest.raises(DefinitionError, match="with parentheses"):
        operation(Charge)


def test_a_recover_that_takes_arguments_is_refused_at_once():
    class Charge(Task[int]):
        def work(self):
            return 7

        def recover(self, id):  # noqa: A002
            return id

    with pytest.raises(DefinitionError, match="It is called without arguments"):
        operation(persist=True)(Charge)
