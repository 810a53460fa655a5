from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from cmdx import Stop, Task, is_retryable, retry_on
from cmdx.retry.classify import (
    classifier,
    error_and_causes,
    is_memory_limit,
    is_platform_transient,
    is_storage_reset,
    is_superseded,
)

STORAGE_RESET = "Internal error in Durable Object storage caused object to be reset"


class PlatformError(Exception):
    def __init__(self, text="", **said):
        super().__init__(text)
        for name, value in said.items():
            setattr(self, name, value)


def raised_from(*errors):
    """Chain errors, each raised from the one after it."""
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def wrapped(error, times):
    return raised_from(*(ValueError() for _ in range(times)), error)


# -- is_retryable ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (PlatformError(retryable=True), True),
        (PlatformError(retryable=1), True),
        (PlatformError(retryable=False), False),
        (PlatformError(retryable=0), False),
        (PlatformError(), False),
        (PlatformError(retryable=True, overloaded=True), False),
        (PlatformError(retryable=True, overloaded=False), True),
        (PlatformError(overloaded=True), False),
        (PlatformError("Durable Object is overloaded. Wait", retryable=True), False),
        (PlatformError("durable object is overloaded", retryable=True), True),
        (SimpleNamespace(retryable=True), True),
        (SimpleNamespace(retryable=True, text="Durable Object is overloaded"), False),
        (None, False),
        ("retryable", False),
        (503, False),
        (ValueError("network connection lost"), False),
    ],
    ids=repr,
)
def test_an_error_says_whether_trying_again_may_help(error, answer):  # R-000-19
    assert is_retryable(error) is answer


@pytest.mark.parametrize(("times", "answer"), [(1, True), (7, True), (8, False)])
def test_eight_errors_of_a_chain_are_asked(times, answer):  # R-000-20
    assert is_retryable(wrapped(PlatformError(retryable=True), times)) is answer
    lost = wrapped(PlatformError("network connection lost"), times)
    assert is_platform_transient(lost) is answer


def test_a_cycle_of_causes_comes_to_an_end():  # R-000-20
    first, second = PlatformError("a"), PlatformError("b")
    first.__cause__, second.__cause__ = second, first

    assert not is_retryable(first)
    assert not is_platform_transient(first)
    assert list(error_and_causes(first)) == [first, second] * 4


def test_the_nearest_that_is_overloaded_says_no():
    busy = PlatformError(overloaded=True)
    fine = PlatformError(retryable=True)

    assert not is_retryable(raised_from(busy, PlatformError(retryable=True)))
    assert is_retryable(raised_from(fine, PlatformError(overloaded=True)))


def test_what_was_only_being_handled_is_no_cause():
    error = ValueError()
    error.__context__ = PlatformError(retryable=True)

    assert not is_retryable(error)


def test_an_error_that_cannot_be_put_into_words_is_classified_all_the_same():
    class Wordless(Exception):
        retryable = True

        def __str__(self):
            raise RuntimeError

    assert is_retryable(Wordless())
    assert is_platform_transient(Wordless())


# -- kinds of failures ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Durable Object reset because its code was updated.", True),
        ("RESET BECAUSE ITS CODE WAS UPDATED", True),
        ("This script has been upgraded. Please send a new request", True),
        ("Your subscription script has been upgraded to premium", False),
        ("the script has been upgraded", False),
        ("reset because its code is updated", False),
        ("", False),
    ],
)
def test_a_newer_version_supersedes_the_old(text, answer):  # R-000-21
    assert is_superseded(PlatformError(text)) is answer
    assert is_superseded(text) is answer
    assert is_platform_transient(PlatformError(text)) is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (STORAGE_RESET, True),
        (f"{STORAGE_RESET}; reference = 7", True),
        (STORAGE_RESET.upper(), True),
        ("Internal error in Durable Object storage", False),
        ("Internal error in storage caused object to be reset", False),
        (
            "Internal error in Durable Object storage write caused object to be reset",
            False,
        ),
    ],
)
def test_storage_may_reset_an_object(text, answer):  # R-000-22
    assert is_storage_reset(PlatformError(text)) is answer
    assert is_platform_transient(PlatformError(text)) is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Durable Object exceeded its memory limit and was reset.", True),
        ("EXCEEDED ITS MEMORY LIMIT", True),
        ("exceeded the memory limit", False),
    ],
)
def test_an_object_may_run_out_of_memory(text, answer):  # R-000-23
    assert is_memory_limit(text) is answer
    assert is_memory_limit(PlatformError(text)) is answer


@pytest.mark.parametrize(
    "error",
    [
        PlatformError("exceeded its memory limit"),
        PlatformError("exceeded its memory limit", retryable=True),
        PlatformError(f"{STORAGE_RESET}: exceeded its memory limit"),
        raised_from(
            PlatformError("Network connection lost."),
            PlatformError("exceeded its memory limit"),
        ),
        "exceeded its memory limit",
    ],
    ids=repr,
)
def test_running_out_of_memory_does_not_pass(error):  # R-000-23
    assert not is_platform_transient(error)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (PlatformError("Network connection lost."), True),
        ("network connection lost", True),
        (STORAGE_RESET, True),
        ("this script has been upgraded", True),
        (PlatformError(retryable=True), True),
        (PlatformError(retryable=True, overloaded=True), False),
        (raised_from(ValueError(), PlatformError("Network connection lost.")), True),
        (raised_from(ValueError(), PlatformError(retryable=True)), True),
        (PlatformError("connection lost"), False),
        ("retryable", False),
        (None, False),
        (7, False),
    ],
    ids=repr,
)
def test_the_platform_fails_in_ways_that_pass(error, answer):  # R-000-24
    assert is_platform_transient(error) is answer


# -- as gates -------------------------------------------------------------------------


class Flaky(Task[None]):
    def work(self) -> None:
        raise self.context.error


def test_a_classifier_is_a_gate(instant):
    @retry_on(Exception, limit=2, if_=is_retryable)
    class Fetch(Flaky):
        pass

    passing, final = PlatformError(retryable=True), PlatformError()

    assert Fetch.execute(error=passing).retries == 2
    assert Fetch.execute(error=final).stopped is Stop.GATE
    assert instant.pauses == [0.5, 0.5]


@pytest.mark.usefixtures("instant")
def test_a_classifier_may_close_a_gate():
    @retry_on(Exception, limit=2, if_=is_platform_transient, unless=is_superseded)
    class Fetch(Flaky):
        pass

    assert Fetch.execute(error=PlatformError("network connection lost")).retries == 2
    assert (
        Fetch.execute(error=PlatformError("this script has been upgraded")).retries == 0
    )


@pytest.mark.usefixtures("instant")
def test_a_classifier_decides_for_one_call_too():
    calls = []

    class Fetch(Task[None]):
        def work(self) -> None:
            self.retry(self.ask, should_retry=is_retryable)

        def ask(self) -> None:
            calls.append(self.context.error)
            raise self.context.error

    Fetch.execute(error=PlatformError(retryable=True))
    assert len(calls) == 3
    Fetch.execute(error=PlatformError())
    assert len(calls) == 4


@pytest.mark.usefixtures("instant")
def test_anybody_can_make_a_classifier():
    @classifier
    def is_busy(error):
        """Tell whether somebody else is at it."""
        return "busy" in str(error)

    @retry_on(Exception, limit=2, if_=is_busy)
    class Fetch(Flaky):
        pass

    assert is_busy("busy") is True
    assert (is_busy.__name__, repr(is_busy)) == ("is_busy", "<classifier is_busy>")
    assert is_busy.__doc__ == "Tell whether somebody else is at it."
    assert Fetch.execute(error=ValueError("busy")).retries == 2
    assert Fetch.execute(error=ValueError("gone")).retries == 0
