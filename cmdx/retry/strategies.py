"""
The strategies that say how long to wait before the next attempt.

A retrier is called with as many of ``(attempt, delay, previous)`` as it takes:
the attempt that failed, counted from 0; the base delay; and the pause before, or None.
One with a keyword-only ``max_delay`` is given that too.

Growth saturates instead of overflowing: exponents at 30, Fibonacci numbers at 78.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.clock import draw
from cmdx.declare.registry import Registry
from cmdx.retry.policy import check_jitter

if TYPE_CHECKING:
    from collections.abc import Callable

    Retrier: TypeAlias = Callable[..., Any]

MOST_DOUBLINGS = 30
HIGHEST_FIBONACCI = 78

retriers: Registry[Retrier] = Registry("retrier", check=check_jitter)


@retriers.register("exponential")
def exponential(attempt: int, delay: float) -> float:
    """Double the delay each time."""
    return delay * (1 << min(attempt, MOST_DOUBLINGS))


@retriers.register("half_random")
def half_random(_attempt: int, delay: float) -> float:
    """Draw from the upper half of the delay."""
    return delay / 2 + draw() * delay / 2


@retriers.register("full_random")
def full_random(_attempt: int, delay: float) -> float:
    """Draw from zero to the delay."""
    return draw() * delay


@retriers.register("bounded_random")
def bounded_random(_attempt: int, delay: float) -> float:
    """Draw from the delay to twice the delay."""
    return delay + draw() * delay


@retriers.register("linear")
def linear(attempt: int, delay: float) -> float:
    """Add the delay each time."""
    return delay * (attempt + 1)


@retriers.register("fibonacci")
def fibonacci(attempt: int, delay: float) -> float:
    """Multiply the delay by 1, 1, 2, 3, 5, 8 and so on."""
    return delay * _fibonacci(min(attempt + 1, HIGHEST_FIBONACCI))


@retriers.register("decorrelated_jitter")
def decorrelated_jitter(_attempt: int, delay: float, previous: float | None) -> float:
    """Draw from the delay to three times the pause before."""
    upper = max(3 * (delay if previous is None else previous), delay)
    return delay + draw() * (upper - delay)


@retriers.register("full_jitter")
def full_jitter(attempt: int, delay: float, *, max_delay: float | None) -> float:
    """Draw from zero to the doubled delay; recommended."""
    return _capped_growth(attempt, delay, max_delay) * draw()


@retriers.register("equal_jitter")
def equal_jitter(attempt: int, delay: float, *, max_delay: float | None) -> float:
    """Draw from the upper half of the doubled delay."""
    half = _capped_growth(attempt, delay, max_delay) / 2
    return half + draw() * half


def _capped_growth(attempt: int, delay: float, max_delay: float | None) -> float:
    # Clamped before the draw: clamped after it, jitter would die at the cap.
    growth: float = exponential(attempt, delay)
    return growth if max_delay is None else min(growth, max_delay)


@lru_cache
def _fibonacci(index: int) -> int:
    before, number = 0, 1
    for _ in range(index - 1):
        before, number = number, before + number
    return number
