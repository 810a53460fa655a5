"""
``self.retry``: try one callable again inside ``work``.

Attempts are counted from 1 and in total. Delays grow exponentially with full jitter:
after the first failure up to twice the base delay, then doubling up to the maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cmdx import deadlines
from cmdx.arity import accepted
from cmdx.clock import draw
from cmdx.exceptions import DefinitionError
from cmdx.retry import finite, retryable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HIGHEST_EXPONENT = 1023
"""That of the largest float; more would overflow."""

DEFAULT_ATTEMPTS = 3
DEFAULT_BASE_DELAY = 0.1
DEFAULT_MAX_DELAY = 3.0


@attrs.frozen
class RetryOptions:
    """How often to try, and how long to wait; what is left out is decided later."""

    max_attempts: int | None = None
    base_delay: float | None = None
    max_delay: float | None = None

    def __attrs_post_init__(self) -> None:
        """Check each field that is given, and the delays against each other."""
        attempts, base, longest = self.max_attempts, self.base_delay, self.max_delay
        if attempts is not None and not finite(attempts, 0) >= 1:
            raise DefinitionError("retry.max_attempts must be >= 1")
        if attempts is not None and not isinstance(attempts, int):
            raise DefinitionError("retry.max_attempts must be an integer")
        if base is not None and not finite(base, 0) > 0:
            raise DefinitionError("retry.base_delay must be > 0")
        if longest is not None and not finite(longest, 0) > 0:
            raise DefinitionError("retry.max_delay must be > 0")
        if base is not None and longest is not None and base > longest:
            raise DefinitionError("retry.base_delay must be <= retry.max_delay")

    def over(self, defaults: RetryOptions) -> RetryOptions:
        """Return these options, field by field over *defaults*."""
        given = attrs.asdict(self, filter=lambda _, value: value is not None)
        return attrs.evolve(defaults, **given)

    def resolved(self) -> tuple[int, float, float]:
        """Return all three, the built-in defaults for what is left out."""
        full = self.over(BUILT_IN)
        return full.max_attempts, full.base_delay, full.max_delay  # type: ignore[return-value]


BUILT_IN = RetryOptions(DEFAULT_ATTEMPTS, DEFAULT_BASE_DELAY, DEFAULT_MAX_DELAY)


async def call_again(
    function: Callable[..., Any],
    options: RetryOptions,
    should_retry: Callable[..., Any] | None,
    pause: Callable[[float], Awaitable[None]],
    *,
    awaits: bool,
) -> tuple[Any, Exception | None]:
    """
    Call *function* until it returns, attempts run out, or *should_retry* says no.

    Return the value, or the last error to be raised where this is driven: a coroutine
    cannot raise a ``StopIteration``.
    """
    max_attempts, base_delay, max_delay = options.resolved()
    takes_attempt = accepted(function, 1)
    asked = 0 if should_retry is None else accepted(should_retry, 2)
    attempt = 1
    while True:
        try:
            value = function(attempt) if takes_attempt else function()
            return (await value if awaits else value), None
        except Exception as error:
            if attempt >= max_attempts or not retryable(error):
                return None, error
            if should_retry and not should_retry(*(error, attempt + 1)[:asked]):
                return None, error
            last = error
        seconds = draw() * longest_pause(attempt, base_delay, max_delay)
        if not deadlines.allows(seconds):
            return None, last
        del last
        if seconds > 0:
            await pause(seconds)
        attempt += 1


def value_or_raise(value: Any, error: Exception | None) -> Any:
    """Return *value*, or raise *error* as it is."""
    if error is None:
        return value
    try:
        raise error
    finally:
        del error  # its traceback leads here, and must not lead back


def longest_pause(attempt: int, base_delay: float, max_delay: float) -> float:
    """Return the bound of the pause after *attempt*, counted from 1, has failed."""
    return min(2.0 ** min(attempt, HIGHEST_EXPONENT) * base_delay, max_delay)
