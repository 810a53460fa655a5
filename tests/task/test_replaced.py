"""What replaces an outcome keeps it."""

from __future__ import annotations

import pytest

from cmdx import (
    Task,
    after_execution,
    around_execution,
    middleware,
    on_failed,
    on_interrupted,
    on_success,
    retry_on,
)


class Declined(Task[None]):
    """Fail without an exception."""

    def work(self):
        self.fail("card declined", code=51)


class Broken(Task[None]):
    """Fail by an exception."""

    def work(self):
        raise ValueError("bad order")


class Child(Task[None]):
    """Fail, to be passed on."""

    def work(self):
        self.fail("child bad")


def test_an_error_in_a_callback_keeps_the_failure_before_it(run):
    class Paging(Declined):
        @on_failed
        def page(self):
            raise OSError("no pager")

    result = run(Paging)

    assert result.reason == "[OSError] no pager"
    assert result.cause.__context__ is None
    assert result.replaced.status == "failed"
    assert result.replaced.reason == "card declined"
    assert result.halted_at is None


def test_an_error_in_a_callback_has_the_error_before_it_as_context(run):
    class Paging(Broken):
        @on_failed
        def page(self):
            raise OSError("no pager")

    result = run(Paging)

    assert isinstance(result.cause.__context__, ValueError)
    assert result.replaced.cause is result.cause.__context__


def test_an_error_that_has_a_context_of_its_own_keeps_that_too(run):
    class Paging(Broken):
        @on_failed
        def page(self):
            try:
                return {}["on duty"]
            except LookupError:
                raise OSError("no pager")  # noqa: B904 -- the context is what matters

    result = run(Paging)

    assert isinstance(result.cause.__context__, LookupError)
    assert isinstance(result.replaced.cause, ValueError)
    assert result.cause.__context__.__context__ is result.replaced.cause


def test_errors_of_a_run_inside_a_handler_are_kept_in_their_order(run):
    class Paging(Broken):
        @on_failed
        def page(self):
            raise OSError("no pager")

    class Outer(Task[None]):
        def work(self):
            try:
                return {}["order"]
            except LookupError:
                return Paging.execute()

    cause = run(Outer).value.cause

    assert isinstance(cause, OSError)
    assert isinstance(cause.__context__, ValueError)
    assert isinstance(cause.__context__.__context__, LookupError)
    assert cause.__context__.__context__.__context__ is None


def test_contexts_that_lead_to_themselves_are_left_alone(run):
    first, second = OSError("first"), OSError("second")
    first.__context__, second.__context__ = second, first

    class Paging(Broken):
        @on_failed
        def page(self):
            raise first

    assert run(Paging).cause is first
    assert (first.__context__, second.__context__) == (second, first)


def test_an_error_that_refuses_attributes_is_kept_in_order_all_the_same(run):
    class Sealed(Exception):
        def __setattr__(self, name, value):
            raise TypeError(name)

    class Paging(Broken):
        @on_failed
        def page(self):
            try:
                self.find()
            except Sealed:
                raise OSError("no pager")  # noqa: B904 -- the context is what matters

        def find(self):
            raise Sealed

    cause = run(Paging).cause

    assert isinstance(cause.__context__, Sealed)
    assert isinstance(cause.__context__.__context__, ValueError)


def test_an_error_raised_again_is_not_its_own_context(run):
    class Again(Broken):
        @on_failed
        def again(self, outcome):
            raise outcome.cause

    result = run(Again)

    assert isinstance(result.cause, ValueError)
    assert result.cause.__context__ is None
    assert result.replaced.cause is result.cause


def test_an_error_behind_the_earlier_one_does_not_come_to_lead_to_itself(run):
    first = LookupError("first")

    class Again(Task[None]):
        def work(self):
            raise ValueError("second") from first

        @on_failed
        def again(self):
            raise first

    result = run(Again)

    assert result.cause is first
    assert first.__context__ is None


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda task: task.succeed("late"), "success"),
        (lambda task: task.skip("late"), "skipped"),
        (lambda task: task.fail("late"), "failed"),
        (lambda task: task.throw(Child.execute()), "failed"),
    ],
    ids=["succeed", "skip", "fail", "throw"],
)
def test_a_halt_in_a_callback_keeps_the_failure_before_it(run, end, status):
    class Late(Broken):
        @after_execution
        def late(self):
            end(self)

    result = run(Late)

    assert (result.status, result.cause) == (status, None)
    assert result.replaced.reason == "[ValueError] bad order"
    assert isinstance(result.replaced.cause, ValueError)


def test_a_success_can_be_replaced_too(run):
    class Regret(Task[str]):
        def work(self):
            return "done"

        @on_success
        def regret(self):
            raise OSError("no mail")

    result = run(Regret)

    assert result.failed
    assert result.replaced.status == "success"
    assert result.cause.__context__ is None


def test_the_first_of_several_outcomes_is_kept(run):
    def late(_task):
        yield
        raise OSError("third")

    @middleware(late)
    class Late(Declined):
        @around_execution
        def wrap(self):
            yield
            raise LookupError("first error")

        @on_interrupted
        def page(self):
            raise ValueError("second error")

    result = run(Late)

    assert result.reason == "[OSError] third"
    assert result.replaced.reason == "card declined"
    assert isinstance(result.cause.__context__, ValueError)
    assert isinstance(result.cause.__context__.__context__, LookupError)


def test_nothing_is_replaced_by_a_rollback_that_raises(run):
    class Stuck(Broken):
        def rollback(self):
            raise OSError("stuck")

    result = run(Stuck)

    assert result.replaced is None
    assert isinstance(result.cause, ValueError)
    assert isinstance(result.rollback_error, OSError)


def test_nothing_is_replaced_in_an_ordinary_run(run):
    assert run(Declined).replaced is None
    assert run(Broken).replaced is None


@pytest.mark.parametrize("place", ["gate", "jitter", "callback"])
def test_the_fault_of_a_child_keeps_its_reason_and_origin(run, place):
    def ask():
        Child.execute_or_raise()

    asking = {"gate": {"if_": ask}, "jitter": {"jitter": ask}, "callback": {}}

    @retry_on(ValueError, limit=int(place != "callback"), **asking[place])
    class Asking(Broken):
        @on_failed(if_=place == "callback")
        def page(self):
            ask()

    result = run(Asking)

    assert (result.reason, result.origin.task) == ("child bad", Child)
    assert isinstance(result.cause, Child.Fault)
    assert isinstance(result.replaced.cause, ValueError)


def test_a_failure_that_was_passed_on_and_replaced_keeps_its_origin(run):
    class Passing(Task[None]):
        def work(self):
            self.throw(Child.execute())

        @on_failed
        def page(self):
            raise OSError("no line")

    result = run(Passing)

    assert result.replaced.origin.task is Child
    assert result.replaced.origin in result.chain


def test_the_attempts_are_kept_when_a_callback_replaces_the_outcome(run):
    @retry_on(TimeoutError, limit=2, delay=0)
    class Tired(Task[None]):
        def work(self):
            raise TimeoutError(f"number {self.attempt}")

        @on_failed
        def page(self):
            raise OSError("no pager")

    result = run(Tired)

    assert (result.retries, result.stopped) == (2, "exhausted")
    assert [str(attempt.error) for attempt in result.attempts] == [
        "number 0",
        "number 1",
        "number 2",
    ]


def test_what_was_replaced_is_in_the_data_of_the_result(run):
    class Paging(Broken):
        @on_failed
        def page(self):
            raise OSError("no pager")

    assert run(Paging).to_dict()["replaced"] == {
        "status": "failed",
        "reason": "[ValueError] bad order",
        "cause": "ValueError: bad order",
    }


def test_the_metadata_of_a_replaced_outcome_stay_as_they_were(run):
    class Paging(Declined):
        @on_failed
        def page(self):
            self.metadata["code"] = 0
            raise OSError("no pager")

        @around_execution
        def look(self):
            outcome = yield
            assert outcome.metadata["code"] == 51

    replaced = run(Paging).replaced

    assert replaced.metadata == {"code": 0}
    with pytest.raises(TypeError):
        replaced.metadata["code"] = 1
