"""What is checked when a courier is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cmdx.declare.checks import Kinds, finite_number
from cmdx.delivery.endpoints import LONGEST_RETENTION
from cmdx.delivery.signing import SIGNINGS
from cmdx.exceptions import DefinitionError
from cmdx.queue import Queue

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,60}")

STATUSES = range(200, 600)

LOWEST_RATE = 1 / LONGEST_RETENTION
"""With fewer events per second, stored events would be too old before the next goes."""


def are_statuses(value: object) -> bool:
    """Tell whether *value* has statuses of HTTP."""
    is_collection = isinstance(value, list | tuple | set | frozenset | range)
    return is_collection and bool(value) and all(map(is_status, value))  # type: ignore[call-overload]


def is_status(value: object) -> bool:
    """Tell whether *value* is a status of HTTP."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and value in STATUSES


KINDS: Kinds = {
    "signing": (lambda value: value in SIGNINGS, '"standard", "sha1" or "sha256"'),
    "accept": (are_statuses, "statuses of HTTP, such as (200, 201)"),
    "allow_http": (lambda value: isinstance(value, bool), "True or False"),
}


def check_options(**options: object) -> None:
    """Refuse options whose value does not fit their kind; None fits none of them."""
    for name, value in options.items():
        fits, expected = KINDS[name]
        if not fits(value):
            message = f"Courier: {name} must be {expected}, got {value!r}."
            raise DefinitionError(message)


def check_queue(queue: object) -> Queue:
    """Return the queue of a courier; refuse one that keeps everything in one order."""
    if not isinstance(queue, Queue):
        message = (  # its value may have a password
            f"Courier takes a Queue, got an instance of {type(queue).__name__}. "
            'Write Courier(Queue("app.db"), {...}).'
        )
        raise TypeError(message)
    if queue.strict:
        message = (
            "a courier needs a queue that is not strict: one endpoint that fails would "
            "hold up everything else. Give it a queue of its own."
        )
        raise DefinitionError(message)
    return queue


def check_name(name: object) -> str:
    """Return the name of a courier, which is part of the keys of its events."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        message = (
            f"Courier: name must be 1 to 60 letters, digits and -_.:, got {name!r}."
        )
        raise DefinitionError(message)
    return name


def check_rate(rate: object) -> float | None:
    """Return how many events per second are sent; None for as many as there are."""
    if rate is None:
        return None
    number = finite_number(rate)
    if number is None or number < LOWEST_RATE:
        message = (
            "Courier: recovery_rate must be a number of events per second, at least "
            f"1/{LONGEST_RETENTION} (one in 3 days), got {rate!r}."
        )
        raise DefinitionError(message)
    return number


def check_mapping(endpoints: object) -> Mapping[str, Any]:
    """Return the endpoints by their event types."""
    if not isinstance(endpoints, Mapping) or not endpoints:
        message = (
            "Courier takes endpoints by event types, such as "
            '{"paid": Endpoint("https://a.example/hook")}, '
            f"got {type(endpoints).__name__}."
        )
        raise DefinitionError(message)
    return endpoints
