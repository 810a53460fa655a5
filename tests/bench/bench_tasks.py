"""The task of the benchmarks of queues, in a module that workers can import."""

from __future__ import annotations

import time
from typing import ClassVar

from cmdx import Task


class Add(Task[float], name="bench.add"):
    number: int

    def work(self):
        return time.time()


class Count(Task[None]):
    """Counts how often it was run, for other processes."""

    counter: ClassVar = None

    number: int

    def work(self) -> None:
        self.counter.add_one()
