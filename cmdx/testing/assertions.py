"""
Assertions about results.

``assert_failed(result, cause=TimeoutError, retries=3)`` returns the result, or raises
an ``AssertionError`` that shows expected and found values, attempts and chain.

What can be expected has an entry in ``Expected`` and in ``READERS``, which returns what
was found; ``MATCHERS`` and ``TEXTS`` have those that are compared or shown in a way of
their own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pprint import pformat
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from cmdx.exceptions import did_you_mean
from cmdx.outcome import Status
from cmdx.report import error_line
from cmdx.result import Result
from cmdx.values import whole_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from cmdx.task import Task

V = TypeVar("V")

LABEL_WIDTH = 11
MOST_ATTEMPT_LINES = 12
SHOWN_IF_DIFFERENT = {
    "compensated", "context", "duration", "outputs", "retries", "rolled_back",
    "stopped",
}  # fmt: skip
"""The attempts and the chain show these too, or they may be large or secret."""
LEAST_DIFFERENCE = 1e-9
"""Durations are sums of numbers that a float can only approximate."""
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
    context: Mapping[str, Any]
    """Some of the items of the context."""
    outputs: Mapping[str, Any]
    """Some of the outputs that the task declares."""
    retries: int
    stopped: str | None
    rolled_back: bool
    """Whether ``rollback`` was called."""
    compensated: Sequence[type[Task[Any]]]
    """The classes of all steps that were rolled back, in that order."""
    duration: float | tuple[float, float]
    """The seconds, or the least and the most."""


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
        context: Items that the context must have.
        outputs: Outputs that must be set to these values.
        retries: The number of retries.
        stopped: Why there was no further attempt.
        rolled_back: Whether ``rollback`` was called.
        compensated: The classes of the steps that a workflow has rolled back, in order.
        duration: The seconds, or a pair of the least and the most.
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
        context: Items that the context must have.
        outputs: Outputs that must be set to these values.
        retries: The number of retries.
        stopped: Why there was no further attempt.
        rolled_back: Whether ``rollback`` was called.
        compensated: The classes of the steps that a workflow has rolled back, in order.
        duration: The seconds, or a pair of the least and the most.
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
        context: Items that the context must have.
        outputs: Outputs that must be set to these values.
        retries: The number of retries.
        stopped: Why there was no further attempt.
        rolled_back: Whether ``rollback`` was called.
        compensated: The classes of the steps that a workflow has rolled back, in order.
        duration: The seconds, or a pair of the least and the most.
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
    _check_values(result, expected)
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


def _check_values(result: Result[Any], expected: Mapping[str, Any]) -> None:
    for name in expected.get("outputs", ()):
        declared = result.task._cmdx_.plan.fields.outputs
        if name not in declared:
            message = (
                f"{result.task.__qualname__} declares no output {name!r}"
                f"{did_you_mean(name, declared)} For other values use context={{...}}."
            )
            raise TypeError(message)
    if not isinstance(expected.get("compensated", ()), Sequence):
        message = (
            "compensated must be a list of task classes, in the order in which they "
            f"were rolled back, got {expected['compensated']!r}."
        )
        raise TypeError(message)


# -- comparing -----------------------------------------------------------------------


def _matches(result: Result[Any], name: str, expected: Any) -> bool:
    if name == "value" and not result.success:
        return False
    matches = MATCHERS.get(name)
    found = READERS[name](result)
    return bool(found == expected if matches is None else matches(found, expected))


def _is_reason(found: str | None, expected: Any) -> bool:
    if isinstance(expected, re.Pattern):
        return found is not None and expected.search(found) is not None
    return bool(found == expected)


def _is_cause(found: BaseException | None, expected: Any) -> bool:
    if isinstance(expected, type):
        return isinstance(found, expected)
    return found is expected


def _has_items(found: Any, expected: Mapping[str, Any]) -> bool:
    return all(key in found and found[key] == expected[key] for key in expected)


def _has_messages(found: Any, expected: Mapping[str, Sequence[str]]) -> bool:
    return bool(found == {key: list(texts) for key, texts in expected.items()})


def _are_steps(found: list[Any], expected: Sequence[Any]) -> bool:
    return found == list(expected)


def _is_duration(found: float, expected: float | tuple[float, float]) -> bool:
    least, most = expected if isinstance(expected, tuple) else (expected, expected)
    slack = LEAST_DIFFERENCE * max(1.0, found)
    return least - slack <= found <= most + slack


def _outputs_of(result: Result[Any]) -> dict[str, Any]:
    names = result.task._cmdx_.plan.fields.outputs
    return {name: result.context[name] for name in names if name in result.context}


READERS: dict[str, Callable[[Result[Any]], Any]] = {
    "status": lambda result: result.status,
    "value": lambda result: result.value_or(None),
    "reason": lambda result: result.reason,
    "errors": lambda result: result.errors.to_dict(),
    "cause": lambda result: result.cause,
    "metadata": lambda result: dict(result.metadata),
    "context": lambda result: result.context.to_dict(),
    "outputs": _outputs_of,
    "retries": lambda result: result.retries,
    "stopped": lambda result: result.stopped,
    "rolled_back": lambda result: result.rolled_back,
    "compensated": lambda result: [step.task for step in result.compensated],
    "duration": lambda result: result.duration,
}

MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "reason": _is_reason,
    "errors": _has_messages,
    "cause": _is_cause,
    "metadata": _has_items,
    "context": _has_items,
    "outputs": _has_items,
    "compensated": _are_steps,
    "duration": _is_duration,
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
        elif attribute not in SHOWN_IF_DIFFERENT and not _is_empty(read(result)):
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
    if name == "context":  # the rest of it may be large, or secret
        found = {key: found[key] for key in expected if key in found}
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
    if name in TEXTS:
        return TEXTS[name](value)
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


def _steps_text(steps: Sequence[Any]) -> str:
    names = [getattr(step, "__qualname__", repr(step)) for step in steps]
    return ", ".join(names) or "(none)"


def _seconds_text(seconds: float | tuple[float, float]) -> str:
    if isinstance(seconds, tuple):
        return f"{seconds[0]:g} s to {seconds[1]:g} s"
    return f"{seconds:g} s"


def _pretty(value: Any) -> str:
    try:
        return pformat(value, compact=True)
    except Exception:
        return whole_text(value)


TEXTS: dict[str, Callable[[Any], str]] = {
    "value": _pretty,
    "compensated": _steps_text,
    "duration": _seconds_text,
}


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
