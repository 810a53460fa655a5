"""
Tools for testing tasks.

``instant``: virtual time, so that retries do not wait
``recorded``: the signals and results of a block
``stub``: a given outcome instead of a run
``assert_…``: assertions about a result, with a readable difference

They affect only this thread or coroutine, and those that inherit its context. With
pytest the first three are also fixtures, which need no import.
"""

from __future__ import annotations

from cmdx.testing.assertions import assert_failed, assert_skipped, assert_success
from cmdx.testing.clock import InstantClock, instant
from cmdx.testing.recording import Recording, Sent, recorded
from cmdx.testing.stubs import Stub, stub

__all__ = [
    "InstantClock",
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
