"""The task of the benchmarks of queues, in a module that workers can import."""

from __future__ import annotations

import time

from cmdx import Task


class Add(Task[float], name="bench.add"):
    number: int

    def work(self):
        return time.time()
