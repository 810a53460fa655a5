"""
Middlewares for use with ``@middleware``.

``breaker_state``: when a circuit opens, lets probes through and closes  ←
``breaker``: ``Breaker``, no calls to a dependency that is down
``rate_limit``: ``RateLimit``, a limit on the number of runs in a time span
``deadline``: ``Deadline``, a time limit for a whole run
``transaction``: ``Transaction``, a run in a transaction of a database
``callbacks``: callbacks that wait for the commit
``factories``: what the factory of a ``Transaction`` is, and what it may return
``connections``: transactions and savepoints of connections and sessions
``managed``: transactions that a context manager ends by itself
``shared``: state that is shared by name

Each works for synchronous and asynchronous runs.
"""

from __future__ import annotations

from cmdx.middlewares.breaker import Breaker, Circuit, circuits
from cmdx.middlewares.breaker_state import Phase
from cmdx.middlewares.connections import TransactionAborted
from cmdx.middlewares.deadline import Deadline
from cmdx.middlewares.rate_limit import Limiter, RateLimit, limiters
from cmdx.middlewares.transaction import Transaction

__all__ = [
    "Breaker",
    "Circuit",
    "Deadline",
    "Limiter",
    "Phase",
    "RateLimit",
    "Transaction",
    "TransactionAborted",
    "circuits",
    "limiters",
]
