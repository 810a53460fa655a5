"""``check``: what is wrong with inputs, without a run."""

from __future__ import annotations

import warnings

import pytest

from cmdx import (
    Context,
    DeprecatedTaskError,
    Errors,
    FinishedTaskError,
    ImplementationError,
    Task,
    Workflow,
    before_execution,
    before_validation,
    middleware,
    on_failed,
    optional,
    output,
    required,
    task_deprecated,
)
from cmdx.testing import recorded


class Book(Task[None]):
    guest: str
    seats: int = optional(default=2, ge=1)
    number: int = output()

    def work(self) -> None:
        raise AssertionError("it is only checked")


@pytest.mark.parametrize(
    ("source", "inputs", "found"),
    [
        ((), {"guest": "Ada"}, {}),
        ((), {"guest": "Ada", "seats": "3"}, {}),
        ((), {"guest": "Ada", "seats": 0}, {"seats": ["must be at least 1"]}),
        (({"guest": "Ada"},), {}, {}),
        (
            ({"guest": "Ada", "other": 1},),
            {"seats": 0},
            {"seats": ["must be at least 1"]},
        ),
        ((Context(guest="Ada"),), {}, {}),
        (
            (Context(seats="x"),),
            {"guest": "Ada"},
            {"seats": ["must be a whole number"]},
        ),
        (({},), {}, {"guest": ["is required"]}),
    ],
)
def test_it_returns_the_problems_of_the_inputs(source, inputs, found):
    errors = Book.check(*source, **inputs)

    assert isinstance(errors, Errors)
    assert errors.to_dict() == found


def test_its_problems_are_those_of_a_run():
    given = {"seats": "x"}

    assert list(Book.check(given)) == list(Book.execute(given).errors)


def test_the_context_of_a_task_and_a_result_can_be_the_source():
    class Before(Task[None]):
        def work(self):
            self.context.guest = "Ada"
            self.context.found = dict(Book.check(self))

    result = Before.execute()

    assert result.context.found == {}
    assert not Book.check(result)


def test_a_shared_context_is_not_changed():
    context = Context(guest="Ada")

    Book.check(context, seats=3)

    assert context.to_dict() == {"guest": "Ada"}


def test_the_errors_belong_to_the_caller():
    errors = Book.check(guest="Ada")
    errors.add("guest", "is not welcome")

    assert not Book.check(guest="Ada")


def test_nothing_else_of_the_task_is_called():
    called = []

    def note(_task):
        called.append("middleware")
        yield

    @middleware(note)
    class Noted(Book):
        @before_execution
        def first(self):
            called.append("before_execution")

        @before_validation
        def second(self):
            called.append("before_validation")

        @on_failed
        def last(self):
            called.append("on_failed")

        def rollback(self):
            called.append("rollback")

    with recorded() as recording:
        assert Noted.check({})

    assert called == []
    assert recording.signals == []


def test_a_check_inside_of_a_task_is_not_in_its_chain():
    class Outer(Task[int]):
        def work(self):
            return len(Book.check({}))

    result = Outer.execute()

    assert result.value == 1
    assert len(result.chain) == 1


def test_sources_and_methods_see_the_inputs():
    class Order(Task[None]):
        number: int
        customer: str = required(source="find", validate="is_known")

        def find(self):
            return f"customer of {self.number}"

        def is_known(self, name):
            return name == "customer of 7"

        def work(self): ...

    assert Order.check(number=7).to_dict() == {}
    assert Order.check(number=8).to_dict() == {"customer": ["is invalid"]}


def test_what_a_source_raises_is_raised():
    class Order(Task[None]):
        customer: str = required(source=lambda: 1 / 0)

        def work(self): ...

    with pytest.raises(ZeroDivisionError):
        Order.check()


def test_a_source_cannot_halt_what_does_not_run():
    class Order(Task[None]):
        customer: str = required(source=lambda task: task.fail("nobody"))

        def work(self): ...

    with pytest.raises(FinishedTaskError, match="has not started"):
        Order.check()


def test_a_task_that_awaits_is_checked_without_awaiting():
    class Later(Task[None]):
        name: str

        async def work(self): ...

    assert Later.check(Context()).keys() == ["name"]


def test_the_own_inputs_of_a_workflow_are_checked():
    class Reserve(Task[None]):
        seats: int = required(ge=1)

        def work(self): ...

    class Trip(Workflow[None]):
        to: str
        seats: int
        steps = (Reserve,)

    assert Trip.check({"seats": 0}).keys() == ["to"]
    assert not Trip.check(to="Oslo", seats=0)


def test_a_task_without_inputs_takes_anything():
    class Anything(Task[None]):
        def work(self): ...

    assert not Anything.check(whatever=1)


@pytest.mark.parametrize(
    ("call", "error", "hint"),
    [
        (lambda: Book.check(geust="Ada"), TypeError, "did you mean 'guest'"),
        (lambda: Book.check(7), TypeError, "or from a mapping"),
        (Task.check, ImplementationError, "work"),
        (Workflow.check, ImplementationError, "steps"),
        (lambda: Book(guest="Ada").check(), TypeError, "class method"),
    ],
)
def test_misuse_raises_as_execute_does(call, error, hint):
    with pytest.raises(error, match=hint):
        call()


def test_a_task_that_must_not_run_any_more_is_refused_without_a_signal():
    class Old(Book, deprecated="error"):
        pass

    told = []

    def note(sender, **_):
        told.append(sender)

    with task_deprecated.connected_to(note), pytest.raises(DeprecatedTaskError):
        Old.check(guest="Ada")

    assert told == []


def test_a_task_that_should_not_run_any_more_is_checked_without_a_warning():
    class Old(Book, deprecated="warn"):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not Old.check(guest="Ada")
