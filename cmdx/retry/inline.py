"""
``self.retry``: try one callable again inside ``work``.

Attempts are counted from 1 and in total. Delays grow exponentially with full jitter:
after the first failure up to twice the base delay, then doubling up to the maximum.
"""

from __future__ import annotations

from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import clock
from cmdx.declare.checks import finite_number
from cmdx.declare.signatures import check_plain_call, positional_count
from cmdx.exceptions import DefinitionError
from cmdx.retry.decide import is_retryable_at_all
from cmdx.run import deadlines

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST_FLOAT_EXPONENT = 1023
"""More would overflow."""

DEFAULT_ATTEMPTS = 3
DEFAULT_BASE_DELAY = 0.1
DEFAULT_MAX_DELAY = 3.0


def as_plain_number(value: Any) -> Any:
    """Return a finite number as an int or float, anything else as it is."""
    number = finite_number(value)
    return value if number is None else number


@attrs.frozen
class RetryOptions:
    """
    The options of ``self.retry``; those that are left out take their default.

    Args:
        max_attempts: The number of calls in total; 3 by default.
        base_delay: Seconds; the longest first pause is twice as long. 0.1 by default.
        max_delay: The longest pause in seconds; 3.0 by default.
    """

    max_attempts: int | None = None
    base_delay: float | None = attrs.field(default=None, converter=as_plain_number)
    max_delay: float | None = attrs.field(default=None, converter=as_plain_number)

    def __attrs_post_init__(self) -> None:
        """Check each field that is given, and the delays against each other."""
        attempts, base, longest = self.max_attempts, self.base_delay, self.max_delay
        if attempts is not None and not number_or_zero(attempts) >= 1:
            raise DefinitionError("retry.max_attempts must be >= 1")
        if attempts is not None and not isinstance(attempts, int):
            raise DefinitionError("retry.max_attempts must be an integer")
        if base is not None and not number_or_zero(base) > 0:
            raise DefinitionError("retry.base_delay must be > 0")
        if longest is not None and not number_or_zero(longest) > 0:
            raise DefinitionError("retry.max_delay must be > 0")
        if base is not None and longest is not None and base > longest:
            raise DefinitionError("retry.base_delay must be <= retry.max_delay")

    def over(self, defaults: RetryOptions) -> RetryOptions:
        """Return these options, field by field over *defaults*."""
        given = attrs.asdict(self, filter=lambda _, value: value is not None)
        return attrs.evolve(defaults, **given)

    def with_defaults(self) -> tuple[int, float, float]:
        """Return all three, the built-in defaults for what is left out."""
        full = self.over(BUILT_IN)
        return full.max_attempts, full.base_delay, full.max_delay  # type: ignore[return-value]


def number_or_zero(value: object) -> float:
    """Return *value* as a finite number, 0 if it is not one."""
    return finite_number(value) or 0


BUILT_IN = RetryOptions(DEFAULT_ATTEMPTS, DEFAULT_BASE_DELAY, DEFAULT_MAX_DELAY)


async def call_again(  # noqa: C901 -- the loop is the story
    function: Callable[..., Any],
    options: RetryOptions,
    should_retry: Callable[..., Any] | None,
    retry_result: Callable[[Any], Any] | None,
    *,
    awaits: bool,
) -> tuple[Any, Exception | None]:
    """
    Call *function* until it returns, attempts run out, or *should_retry* says no.

    Return the value, or the last error to be raised where this is driven: a coroutine
    cannot raise a ``StopIteration``.
    """
    max_attempts, base_delay, max_delay = options.with_defaults()
    takes_attempt = takes_number(function)
    asked = check_predicates(should_retry, retry_result)
    attempt = 1
    while True:
        last: Exception | None = None
        value = None
        try:
            value = function(attempt) if takes_attempt else function()
            refusal = refusal_of(value, awaits=awaits)
            if refusal is not None:
                return None, refusal  # trying again would not help
            if awaits:
                value = await value
        except Exception as error:
            if attempt >= max_attempts or not is_retryable_at_all(error):
                return None, error
            if should_retry and not should_retry(*(error, attempt + 1)[:asked]):
                return None, error
            last = error
        else:
            if attempt >= max_attempts or not (retry_result and retry_result(value)):
                return value, None
        seconds = clock.draw() * longest_pause(attempt, base_delay, max_delay)
        if not deadlines.allows(seconds):
            return value, last
        del last
        if seconds > 0:
            await clock.pause(seconds, awaits=awaits)
        attempt += 1


def takes_number(function: Callable[..., Any]) -> bool:
    """Tell whether *function* takes the number of the attempt; refuse it if more."""
    try:
        return positional_count(function, 1) == 1
    except TypeError as error:
        message = f"retry: {function!r} {error}. Wrap it: lambda: function(...)."
        raise TypeError(message) from None


def check_predicates(
    should_retry: Callable[..., Any] | None, retry_result: Callable[..., Any] | None
) -> int:
    """Return how many arguments *should_retry* takes; refuse what cannot be asked."""
    if retry_result is not None:
        cure = "It is called with the value that was returned."
        check_plain_call("retry: retry_result", retry_result, 1, cure, least=1)
    if should_retry is None:
        return 0
    cure = "It is called with the error and the next attempt, or fewer of them."
    return check_plain_call("retry: should_retry", should_retry, 2, cure)


def refusal_of(value: Any, *, awaits: bool) -> TypeError | None:
    """Return what refuses a function that is of the other kind, None if it is not."""
    if awaits and not isawaitable(value):
        message = "aretry was given a plain function. Use `self.retry(...)`."
        return TypeError(message)
    if not awaits and iscoroutine(value):
        value.close()
        message = "retry was given a coroutine function. Use `await self.aretry(...)`."
        return TypeError(message)
    return None


def value_or_raise(value: Any, error: Exception | None) -> Any:
    """Return *value*, or raise *error* as it is."""
    if error is None:
        return value
    try:
        raise error
    finally:
        del error  # the traceback holds this frame: no reference cycle


def longest_pause(attempt: int, base_delay: float, max_delay: float) -> float:
    """Return the longest pause after *attempt*, counted from 1, has failed."""
    return min(2.0 ** min(attempt, LARGEST_FLOAT_EXPONENT) * base_delay, max_delay)
