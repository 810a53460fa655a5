"""
Tools for testing tasks.

``instant``: virtual time, so that retries do not wait
``recorded``: the signals and results of a block
``stub``: a given outcome instead of a run
``assert_…``: assertions about a result, with a readable difference
``Receiver``: a real server for webhooks

They affect only this thread or coroutine, and those that inherit its context. With
pytest the first three are also fixtures, which need no import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx.testing.assertions import assert_failed, assert_skipped, assert_success
from cmdx.testing.clock import InstantClock, instant
from cmdx.testing.recording import Recording, Sent, recorded
from cmdx.testing.stubs import Stub, stub

if TYPE_CHECKING:
    from cmdx.testing.receiver import Answer, Received, Receiver

__all__ = [
    "Answer",
    "InstantClock",
    "Received",
    "Receiver",
    "Recording",
    "Sent",
    "Stub",
    "assert_failed",
    "assert_skipped",
    "assert_success",
    "instant",
    "recorded",
    "stub",
]

if not TYPE_CHECKING:  # or checkers would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        """Import the receiver when it is first asked for: it is a whole server."""
        if name not in ("Answer", "Received", "Receiver"):
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        from cmdx.testing import receiver

        return getattr(receiver, name)
