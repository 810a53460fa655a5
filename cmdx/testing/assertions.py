"""
Results looked at as a whole.

``assert_failed(result, cause=TimeoutError, retries=3)`` returns the result, or shows
what was expected beside what was found, with the attempts and the chain.
"""

from __future__ import annotations

import difflib
import re
from pprint import pformat
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from cmdx.exceptions import did_you_mean
from cmdx.outcome import Status
from cmdx.result import Result, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Unpack

V = TypeVar("V")

WIDTH = 9
MOST_ATTEMPTS = 12
SHOWN_WITH_ATTEMPTS = {"retries", "stopped"}
SAID = {
    Status.SUCCESS: "succeeded",
    Status.SKIPPED: "was skipped",
    Status.FAILED: "failed",
}


class Expected(TypedDict, total=False):
    """What can be expected of every result."""

    reason: str | re.Pattern[str] | None
    """The whole reason, or a pattern that is found in it."""
    errors: Mapping[str, Sequence[str]]
    """The messages by key, all of them."""
    metadata: Mapping[str, Any]
    """What is among the metadata."""
    retries: int
    stopped: str | None


class ExpectedOfSuccess(Expected, total=False):
    """What can be expected of a success."""

    value: Any


class ExpectedOfFailure(Expected, total=False):
    """What can be expected of a failure."""

    cause: BaseException | type[BaseException] | None
    """The very exception, or the class of it."""


def assert_success(
    result: Result[V], /, **expected: Unpack[ExpectedOfSuccess]
) -> Result[V]:
    """Return *result* if it is a success, and as expected."""
    __tracebackhide__ = True
    return _checked(result, Status.SUCCESS, ExpectedOfSuccess, expected)


def assert_skipped(result: Result[V], /, **expected: Unpack[Expected]) -> Result[V]:
    """Return *result* if it is a skip, and as expected."""
    __tracebackhide__ = True
    return _checked(result, Status.SKIPPED, Expected, expected)


def assert_failed(
    result: Result[V], /, **expected: Unpack[ExpectedOfFailure]
) -> Result[V]:
    """Return *result* if it is a failure, and as expected."""
    __tracebackhide__ = True
    return _checked(result, Status.FAILED, ExpectedOfFailure, expected)


def _checked(
    result: Result[V], status: Status, known: type[Any], expected: Mapping[str, Any]
) -> Result[V]:
    __tracebackhide__ = True
    if not isinstance(result, Result):
        message = (
            f"this looks at a result, got {result!r}. "
            "Give it what execute returns, or what awaiting aexecute returns."
        )
        raise TypeError(message)
    _check_names(status, known, expected)
    wanted = {"status": status, **expected}
    differing = [name for name in wanted if not _fits(result, name, wanted[name])]
    if not differing:
        return result
    failure = result.caused_failure
    cause = None if failure is None else failure.cause
    raise AssertionError(_shown(result, wanted, differing)) from cause


def _check_names(status: Status, known: Any, expected: Mapping[str, Any]) -> None:
    names = sorted((*known.__required_keys__, *known.__optional_keys__))
    for name in expected:
        if name not in names:
            message = (
                f"nothing called {name!r} can be expected of a run that "
                f"{SAID[status]}{did_you_mean(name, names)} "
                f"Known are {', '.join(names)}."
            )
            raise TypeError(message)


# -- comparing -----------------------------------------------------------------------


def _fits(result: Result[Any], name: str, expected: Any) -> bool:
    if name == "value" and not result.success:
        return False
    found = FOUND[name](result)
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


FOUND: dict[str, Callable[[Result[Any]], Any]] = {
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


def _shown(
    result: Result[Any], expected: Mapping[str, Any], differing: Sequence[str]
) -> str:
    """Show what was expected (-) beside what was found (+), and the rest of it."""
    name, said = result.task.__qualname__, SAID[result.status]
    status = expected["status"]
    if status is result.status:
        head = f"{name} {said}, but not as expected"
    else:
        head = f"{name} {said}, but it should have {_should(status)}"
    lines = [head, ""]
    for each, look in FOUND.items():
        if each in differing:
            lines += _compared(result, each, expected[each])
        elif each not in SHOWN_WITH_ATTEMPTS and not _is_empty(look(result)):
            lines += _row(" ", each, _said(each, look(result)))
    lines += _row(" ", "attempts", "\n".join(_attempts(result)))
    lines += _row(" ", "chain", result.chain.tree())
    return "\n".join(lines)


def _should(status: Status) -> str:
    return SAID[status].replace("was", "been")


def _is_empty(found: Any) -> bool:
    return found is None or (type(found) is dict and not found)


def _row(mark: str, name: str, text: str) -> list[str]:
    first, *others = text.splitlines() or [""]
    indent = " " * WIDTH
    return [
        f"{mark} {name:<{WIDTH}} {first}",
        *(f"{mark} {indent} {line}" for line in others),
    ]


def _compared(result: Result[Any], name: str, expected: Any) -> list[str]:
    found = FOUND[name](result)
    before, after = _said(name, expected), _said(name, found)
    if name == "value" and not result.success:
        after = "(no value)"
    if before == after:  # they look the same
        before += f" ({type(expected).__qualname__}, {id(expected):#x})"
        after += f" ({type(found).__qualname__}, {id(found):#x})"
    if "\n" not in before + after:
        return [*_row("-", name, before), *_row("+", name, after)]
    names = iter([name])
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [
        f"{line[0]} {next(names, ''):<{WIDTH}} {line[2:]}"
        for line in lines
        if not line.startswith("?")
    ]


def _said(name: str, value: Any) -> str:
    if name == "value":
        return pformat(value, compact=True)
    if value is None:
        return "(none)"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, re.Pattern):
        return f"(matching) {value.pattern}"
    if isinstance(value, BaseException):
        return described(value) or ""
    if isinstance(value, type):
        return value.__qualname__
    return pformat(value, compact=True)


def _attempts(result: Result[Any]) -> Iterator[str]:
    if result.stopped is None:
        yield "none"
        return
    yield f"{result.retries + 1}, stopped: {result.stopped.value}"
    for number, each in enumerate(result.attempts[:MOST_ATTEMPTS]):
        said = described(each.error) or "returned"
        pause = "" if each.pause is None else f", then {each.pause:g} s pause"
        rule = "" if each.rule is None else f" by {each.rule!r}"
        yield f"{number}: {each.duration * 1000:.1f} ms, {said}{pause}{rule}"
    if len(result.attempts) > MOST_ATTEMPTS:
        yield f"… and {len(result.attempts) - MOST_ATTEMPTS} more"
