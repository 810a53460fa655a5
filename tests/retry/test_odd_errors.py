"""Exceptions with behaviour of their own are retried and kept like others."""

from __future__ import annotations

from dataclasses import dataclass

import attrs
import pytest

from cmdx import Task, on_failed, retry_on

pytestmark = pytest.mark.usefixtures("instant")


@dataclass(frozen=True)
class FrozenDataclass(Exception):
    code: int


@attrs.frozen
class FrozenAttrs(Exception):
    code: int


class Sealed(Exception):
    """Lets nobody set anything."""

    def __init__(self, code):
        super().__init__(code)

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Unequal(Exception):
    """Cannot be compared, as a dataclass that holds an array."""

    def __eq__(self, other):
        raise ValueError("ambiguous")

    __hash__ = None


class Unspeakable(Exception):
    """Cannot be put into words."""

    def __str__(self):
        raise RuntimeError("no words")


ODD = [FrozenDataclass, FrozenAttrs, Sealed, Unequal, Unspeakable]


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_error_becomes_the_cause(execute, odd):
    class Charge(Task[None]):
        def work(self) -> None:
            raise odd(3)

    result = execute(Charge)

    assert type(result.cause) is odd
    assert result.reason.startswith(f"[{odd.__name__}]")
    assert repr(result)
    assert result.to_json()


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_error_is_retried(execute, odd):
    @retry_on(odd, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            raise odd(self.attempt)

    result = execute(Charge)

    assert (result.retries, result.stopped) == (2, "exhausted")
    assert [type(attempt.error) for attempt in result.attempts] == [odd] * 3
    assert result.attempts[0].error.__traceback__ is None
    assert result.cause.__traceback__ is not None


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_error_that_led_to_another_is_retried(execute, odd):
    @retry_on(ConnectionError, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            raise ConnectionError from odd(self.attempt)

    result = execute(Charge)

    assert result.retries == 2
    assert type(result.cause.__cause__) is odd


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_error_keeps_the_one_it_replaces(execute, odd):
    class Charge(Task[None]):
        def work(self) -> None:
            raise odd(1)

        @on_failed
        def page(self) -> None:
            raise odd(2)

    result = execute(Charge)

    assert result.cause.__context__ is result.replaced.cause
    assert result.replaced.cause.__context__ is None


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_error_may_be_the_reason_of_a_failure(execute, odd):
    class Charge(Task[None]):
        def work(self) -> None:
            self.fail(odd(3))

    result = execute(Charge)

    assert type(result.cause) is odd
    assert result.reason
    with pytest.raises(Charge.Fault):
        result.or_raise()


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_error_is_raised_by_a_strict_run(execute, odd):
    error = odd(3)

    class Charge(Task[None]):
        def work(self) -> None:
            raise error

    raised = None
    try:
        execute.or_raise(Charge)
    except odd as caught:
        raised = caught

    assert raised is error
