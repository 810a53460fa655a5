"""Errors and results of operations cross the borders of processes."""

from __future__ import annotations

import copy
import pickle

import pytest
from ledgers import fail_from_now_on

from cmdx import CmdxError, Fault, Task, is_retryable
from cmdx.operations import (
    Indeterminate,
    Operation,
    OperationCancelled,
    OperationConflict,
    OperationError,
    OperationExpired,
    OperationIdError,
    OperationPolicy,
    OperationState,
    StillRunning,
)
from cmdx.stores import StoreUnavailable

ERRORS = [
    OperationConflict("charge-7", "shop:Charge", "shop:Charge"),
    Indeterminate("charge-7", "it was interrupted"),
    OperationCancelled("charge-7"),
    OperationExpired("charge-7"),
    StillRunning("charge-7", 2.5),
    OperationIdError("the id is wrong."),
]


class Charge(Task[int]):
    order: int = 7

    def work(self):
        return 7


class Refused(Task[int]):
    def work(self):
        self.fail("refused")


@pytest.mark.parametrize("error", ERRORS[:-1], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_an_error_comes_back_as_it_was(error, again):
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)


def test_a_refused_id_comes_back_as_it_was():
    assert str(pickle.loads(pickle.dumps(ERRORS[-1]))) == "the id is wrong."


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_no_error_of_an_operation_asks_for_a_retry(error):
    assert isinstance(error, CmdxError)
    assert isinstance(error, OperationError | OperationIdError)
    assert not is_retryable(error)


@pytest.mark.parametrize("error", ERRORS[:-1], ids=lambda error: type(error).__name__)
def test_an_error_names_the_operation_and_the_cure(error):
    cause, cure, *_ = str(error).split(". ")
    assert "'charge-7'" in cause
    assert cure.split()[0] in ("Use", "Look", "Ask")


@pytest.mark.parametrize("task", [Charge, Refused])
def test_the_result_of_an_operation_comes_back_with_it(session, call, task):
    for _ in range(2):  # of an owner, and a replayed one
        result = call(session, task(), id="a")
        other = pickle.loads(pickle.dumps(result))
        assert other == result
        assert other.operation == result.operation
        assert (other.status, other.reason) == (result.status, result.reason)
        assert other.value_or(None) == result.value_or(None)
        assert other.indeterminate is False


def test_the_fault_of_an_operation_comes_back(session):
    with pytest.raises(Fault) as raised:
        session.run(Refused(), id="a").or_raise()
    other = pickle.loads(pickle.dumps(raised.value))
    assert type(other) is Refused.Fault
    assert other.result.operation == raised.value.result.operation


class Raises(Task[int]):
    def work(self):
        raise ConnectionError("away")


def test_a_result_that_was_pickled_raises_the_fault_too(session):
    result = pickle.loads(pickle.dumps(session.run(Raises(), id="a")))
    with pytest.raises(Raises.Fault) as raised:
        result.or_raise()
    assert isinstance(raised.value.__cause__, ConnectionError)


def test_an_indeterminate_result_comes_back_as_one(session, store):
    task = Charge()
    task.work = lambda: fail_from_now_on(store)
    result = session.run(task, id="a")
    assert result.indeterminate
    other = pickle.loads(pickle.dumps(result))
    assert other.indeterminate
    assert other.reason == result.reason


def test_a_refusal_by_the_store_comes_back(session, store):
    fail_from_now_on(store)
    other = pickle.loads(pickle.dumps(session.run(Charge(), id="a")))
    assert isinstance(other.cause, StoreUnavailable)
    assert is_retryable(other.cause)


@pytest.mark.parametrize(
    "value",
    [
        Operation("a", "shop", OperationState.SEALED, replayed=True, executions=2),
        OperationPolicy(persist=True, keep=5.0),
        OperationState.LIVE,
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_equal(value):
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert hash(value) == hash(copy.copy(value))
