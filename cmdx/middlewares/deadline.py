"""
``Deadline``: a time limit for a whole run.

It is ``with cmdx.deadline(...)`` around the run. A retry whose pause would end after
the deadline is not made, and no step of a workflow starts after it. Tasks that run
inside have the time that is left, and ``work`` can call ``cmdx.remaining()``. An
asynchronous attempt is cancelled when the deadline passes. A synchronous attempt runs
to its end, because a thread cannot be stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cmdx
from cmdx.declare.checks import check_seconds

if TYPE_CHECKING:
    from collections.abc import Generator

    from cmdx import Result, Task


class Deadline:
    """
    Limits the time of a whole run; an earlier deadline outside is kept.

    If no time is left when the run starts, the task fails and ``work`` is not called.

    Args:
        seconds: The seconds for all attempts and pauses together, above 0.
        code: The ``code`` in the metadata of a run that was not started.
    """

    def __init__(self, seconds: float, *, code: str = "DEADLINE_EXCEEDED") -> None:
        self.seconds = check_seconds("Deadline", "seconds", seconds, above_zero=True)
        self.code = code

    def __call__(self, task: Task[Any]) -> Generator[None, Result[Any], None]:
        """Run the task with the deadline set."""
        with cmdx.deadline(self.seconds):
            if not cmdx.remaining():
                reason = "the deadline had passed before the task started"
                task.fail(reason, code=self.code)
            yield

    def __repr__(self) -> str:
        """Show the seconds."""
        return f"Deadline({self.seconds})"
