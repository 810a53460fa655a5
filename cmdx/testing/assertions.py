"""
Assertions about results.

``assert_failed(result, cause=TimeoutError, retries=3)`` returns the result, or raises
an ``AssertionError`` that shows expected and found values, attempts and chain.
"""

from __future__ import annotations

import difflib
import re
from pprint import pformat
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from cmdx.exceptions import did_you_mean
from cmdx.outcome import Status
from cmdx.report import error_line
from cmdx.result import Result
from cmdx.values import whole_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

V = TypeVar("V")

LABEL_WIDTH = 9
MOST_ATTEMPT_LINES = 12
SHOWN_WITH_ATTEMPTS = {"retries", "stopped"}
STATUS_TEXTS = {
    Status.SUCCESS: "succeeded",
    Status.SKIPPED: "was skipped",
    Status.FAILED: "failed",
}


class Expected(TypedDict, total=False):
    """What can be expected of every result."""

    reason: str | re.Pattern[str] | None
    """The whole reason, or a pattern to search for."""
    errors: Mapping[str, Sequence[str]]
    """All messages by key."""
    metadata: Mapping[str, Any]
    """Some of the metadata."""
    retries: int
    stopped: str | None


class ExpectedOfSuccess(Expected, total=False):
    """What can be expected of a success."""

    value: Any


class ExpectedOfFailure(Expected, total=False):
    """What can be expected of a failure."""

    cause: BaseException | type[BaseException] | None
    """The same exception, or its class."""


def assert_success(
    result: Result[V], /, **expected: Unpack[ExpectedOfSuccess]
) -> Result[V]:
    """
    Return *result* if it is a success with the expected attributes.

    Args:
        result: The result to check.
        value: An equal value.
        reason: The same text, or a compiled pattern to search for.
        errors: The same messages by key.
        metadata: Items that the metadata must have.
        retries: The number of retries.
        stopped: Why there was no further attempt.
    """
    __tracebackhide__ = True
    return _check_result(result, Status.SUCCESS, ExpectedOfSuccess, expected)


def assert_skipped(result: Result[V], /, **expected: Unpack[Expected]) -> Result[V]:
    """
    Return *result* if it is a skip with the expected attributes.

    Args:
        result: The result to check.
        reason: The same text, or a compiled pattern to search for.
        errors: The same messages by key.
        metadata: Items that the metadata must have.
        retries: The number of retries.
        stopped: Why there was no further attempt.
    """
    __tracebackhide__ = True
    return _check_result(result, Status.SKIPPED, Expected, expected)


def assert_failed(
    result: Result[V], /, **expected: Unpack[ExpectedOfFailure]
) -> Result[V]:
    """
    Return *result* if it is a failure with the expected attributes.

    Args:
        result: The result to check.
        cause: The same exception, a class that it is an instance of, or None.
        reason: The same text, or a compiled pattern to search for.
        errors: The same messages by key.
        metadata: Items that the metadata must have.
        retries: The number of retries.
        stopped: Why there was no further attempt.
    """
    __tracebackhide__ = True
    return _check_result(result, Status.FAILED, ExpectedOfFailure, expected)


def _check_result(
    result: Result[V], status: Status, known: type[Any], expected: Mapping[str, Any]
) -> Result[V]:
    __tracebackhide__ = True
    if not isinstance(result, Result):
        message = (
            f"expected a Result, got {result!r}. "
            "Pass what execute returns, or what awaiting aexecute returns."
        )
        raise TypeError(message)
    _check_names(status, known, expected)
    wanted = {"status": status, **expected}
    differing = [name for name in wanted if not _matches(result, name, wanted[name])]
    if not differing:
        return result
    failure = result.caused_failure
    cause = None if failure is None else failure.cause
    raise AssertionError(_failure_message(result, wanted, differing)) from cause


def _check_names(status: Status, known: Any, expected: Mapping[str, Any]) -> None:
    names = sorted((*known.__required_keys__, *known.__optional_keys__))
    for name in expected:
        if name not in names:
            message = (
                f"unexpected keyword {name!r} for a run that "
                f"{STATUS_TEXTS[status]}{did_you_mean(name, names)} "
                f"Valid keywords: {', '.join(names)}."
            )
            raise TypeError(message)


# -- comparing -----------------------------------------------------------------------


def _matches(result: Result[Any], name: str, expected: Any) -> bool:
    if name == "value" and not result.success:
        return False
    found = READERS[name](result)
    if name == "reason":
        return _is_reason(found, expected)
    if name == "cause":
        return _is_cause(found, expected)
    if name == "metadata":
        return all(key in found and found[key] == expected[key] for key in expected)
    if name == "errors":
        expected = {key: list(messages) for key, messages in expected.items()}
    return bool(found == expected)


def _is_reason(found: str | None, expected: Any) -> bool:
    if isinstance(expected, re.Pattern):
        return found is not None and expected.search(found) is not None
    return bool(found == expected)


def _is_cause(found: BaseException | None, expected: Any) -> bool:
    if isinstance(expected, type):
        return isinstance(found, expected)
    return found is expected


READERS: dict[str, Callable[[Result[Any]], Any]] = {
    "status": lambda result: result.status,
    "value": lambda result: result.value_or(None),
    "reason": lambda result: result.reason,
    "errors": lambda result: result.errors.to_dict(),
    "cause": lambda result: result.cause,
    "metadata": lambda result: dict(result.metadata),
    "retries": lambda result: result.retries,
    "stopped": lambda result: result.stopped,
}

# -- showing -------------------------------------------------------------------------


def _failure_message(
    result: Result[Any], expected: Mapping[str, Any], differing: Sequence[str]
) -> str:
    """Return the expected (-) and found (+) values, and the rest of the result."""
    name, ended = result.task.__qualname__, STATUS_TEXTS[result.status]
    status = expected["status"]
    if status is result.status:
        head = f"{name} {ended}, but not as expected"
    else:
        head = f"{name} {ended}, but it should have {_expected_text(status)}"
    lines = [head, ""]
    for attribute, read in READERS.items():
        if attribute in differing:
            lines += _difference_lines(result, attribute, expected[attribute])
        elif attribute not in SHOWN_WITH_ATTEMPTS and not _is_empty(read(result)):
            text = _value_text(attribute, read(result))
            lines += _labelled_lines(" ", attribute, text)
    lines += _labelled_lines(" ", "attempts", _attempt_text(result))
    lines += _labelled_lines(" ", "chain", result.chain.tree())
    return "\n".join(lines)


def _expected_text(status: Status) -> str:
    return STATUS_TEXTS[status].replace("was", "been")


def _is_empty(found: Any) -> bool:
    return found is None or (type(found) is dict and not found)


def _labelled_lines(mark: str, name: str, text: str) -> list[str]:
    first, *others = text.splitlines() or [""]
    indent = " " * LABEL_WIDTH
    return [
        f"{mark} {name:<{LABEL_WIDTH}} {first}",
        *(f"{mark} {indent} {line}" for line in others),
    ]


def _difference_lines(result: Result[Any], name: str, expected: Any) -> list[str]:
    found = READERS[name](result)
    before, after = _value_text(name, expected), _value_text(name, found)
    if name == "value" and not result.success:
        after = "(no value)"
    if before == after:  # they look the same
        before += f" ({type(expected).__qualname__}, {id(expected):#x})"
        after += f" ({type(found).__qualname__}, {id(found):#x})"
    if "\n" not in before + after:
        return [*_labelled_lines("-", name, before), *_labelled_lines("+", name, after)]
    names = iter([name])
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [
        f"{line[0]} {next(names, ''):<{LABEL_WIDTH}} {line[2:]}"
        for line in lines
        if not line.startswith("?")
    ]


def _value_text(name: str, value: Any) -> str:
    if name == "value":
        return _pretty(value)
    if value is None:
        return "(none)"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, re.Pattern):
        return f"(matching) {value.pattern}"
    if isinstance(value, BaseException):
        return error_line(value) or ""
    if isinstance(value, type):
        return value.__qualname__
    return _pretty(value)


def _pretty(value: Any) -> str:
    try:
        return pformat(value, compact=True)
    except Exception:
        return whole_text(value)


def _attempt_text(result: Result[Any]) -> str:
    if result.stopped is None:
        return "none"
    if not result.attempts:
        return f"1, stopped: {result.stopped.value}"
    lines = str(result.attempts).splitlines()
    left_out = len(lines) - MOST_ATTEMPT_LINES
    if left_out > 0:
        lines[MOST_ATTEMPT_LINES - 1 : -1] = [f"… {left_out} more"]
    return "\n".join(lines)
