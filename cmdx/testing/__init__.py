"""
Help for those who test their tasks.

``instant``     time that passes only in pauses, so nothing is waited for
``recorded``    the signals that were sent, and the results there were
``stub``        an outcome in the place of a run
``assert_…``    results looked at as a whole, with a readable difference

Each is seen by this thread or coroutine alone, and by what inherits its context.
With pytest the first three are fixtures as well, without an import.
"""

from __future__ import annotations

from cmdx.testing.assertions import assert_failed, assert_skipped, assert_success
from cmdx.testing.recording import Recording, Sent, recorded
from cmdx.testing.stubs import Stub, stub
from cmdx.testing.virtual import InstantClock, instant

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
