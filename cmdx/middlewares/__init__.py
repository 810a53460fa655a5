"""
Middlewares that decide by outcomes, ready to be used.

``circuit``: when a circuit opens, lets probes through and closes  ←
``breaker``: ``Breaker``, which keeps calls from a dependency that is down
``rate_limit``: ``RateLimit``, at most so many runs in so much time
``deadline``: ``Deadline``, a bound for the time of a whole run
``naming``: what is shared by all who give the same name

They are objects to be given to ``@middleware``, and serve plain and async runs alike.
"""

from __future__ import annotations

from cmdx.middlewares.breaker import Breaker, Circuit, circuits
from cmdx.middlewares.circuit import Phase
from cmdx.middlewares.deadline import Deadline
from cmdx.middlewares.rate_limit import Limiter, RateLimit, limiters

__all__ = [
    "Breaker",
    "Circuit",
    "Deadline",
    "Limiter",
    "Phase",
    "RateLimit",
    "circuits",
    "limiters",
]
