"""
Event types that a process has no endpoint for: pure functions.

During a deploy, some processes have an endpoint for a type and others do not, because
they are older or newer. Those without it leave its events to the others, and note since
when the type is *unattended*. A worker with an endpoint for it takes the note away
whenever it looks at the courier, which it does every few seconds while events wait.

- after 30 s nobody can be expected to probe the endpoint: it does not count any more
- after an hour events that have waited for so long are dropped
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cmdx.queue.table import UNREAD_LIMIT, UNREAD_PAUSE

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

Unattended: TypeAlias = "Mapping[str, float]"
"""Event types that no worker seems to have an endpoint for, and since when."""


def note_unattended(
    before: Unattended, endpoints: Container[str], in_use: Iterable[str], now: float
) -> dict[str, float]:
    """
    Return which types are unattended, as a process sees it.

    Args:
        before: What was noted before.
        endpoints: The types that the process has an endpoint for.
        in_use: The types that events wait for, or whose endpoints fail.
        now: The time; the clock may have been set back.
    """
    return {
        event_type: min(before.get(event_type, now), now)
        for event_type in in_use
        if event_type not in endpoints
    }


def types_that_count(
    known: Iterable[str], endpoints: Collection[str], unattended: Unattended, now: float
) -> list[str]:
    """Return the types that the state of a courier depends on."""
    return [
        event_type
        for event_type in known
        if event_type in endpoints
        or now - unattended.get(event_type, now) < UNREAD_PAUSE
    ]


def types_to_drop(unattended: Unattended, now: float) -> list[str]:
    """Return the types whose events are given up."""
    return [name for name, since in unattended.items() if now - since >= UNREAD_LIMIT]


def next_changes(unattended: Unattended, now: float) -> list[float]:
    """Return when types do not count any more, and when their events are given up."""
    since = unattended.values()
    pauses = [moment + UNREAD_PAUSE for moment in since]
    limits = [moment + UNREAD_LIMIT for moment in since]  # later events are left then
    return [*limits, *(moment for moment in pauses if moment > now)]
