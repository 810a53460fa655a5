"""
``Deadline``: a bound for the time of a whole run.

It does what ``with cmdx.deadline(...)`` around the run would do. No retry is begun that
would come too late, tasks run inside have no more time than is left, and ``work`` can
ask ``cmdx.remaining()``. An asynchronous attempt is cancelled when the time is up; a
synchronous one is waited for, since a thread cannot be stopped, only abandoned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cmdx
from cmdx.middlewares.naming import check_seconds

if TYPE_CHECKING:
    from collections.abc import Generator

    from cmdx import Result, Task


class Deadline:
    """
    Gives all attempts of a run *seconds* together, and no more than is left outside.

    If nothing is left when it begins, the task fails without being run.
    """

    def __init__(self, seconds: float, *, code: str = "DEADLINE_EXCEEDED") -> None:
        check_seconds("Deadline", "seconds", seconds)
        self.seconds = seconds
        self.code = code

    def __call__(self, task: Task[Any]) -> Generator[None, Result[Any], None]:
        """Run the task in the time there is."""
        with cmdx.deadline(self.seconds):
            if not cmdx.remaining():
                task.fail("the time was up before it began", code=self.code)
            yield

    def __repr__(self) -> str:
        """Show the seconds."""
        return f"Deadline({self.seconds})"
