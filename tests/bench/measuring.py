"""
How long something takes, as a ratio to something else measured beside it.

A ``Subject`` is something that is timed; subjects can be added and subtracted.
A ``Row`` compares two of them. All subjects of a row are timed in turn, in slices well
under a millisecond, forwards and backwards, round after round, and the best slice of
each counts: what slows a shared machine down for a while hits all of them or none.

A row is over its target only if it is over each time it is measured: what hits a row
once on a shared machine is not the row's fault.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from contextlib import nullcontext
from inspect import iscoroutinefunction
from itertools import repeat
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    Sample = Mapping["Subject", float]

SLICE = 200_000
"""Nanoseconds that one subject is timed for at a stretch."""

WARM_UP = 100
"""So many times a subject is run first, untimed."""

RUNNER = asyncio.Runner()
"""One event loop for all: making one each time would disturb the slice after it."""

COMPILED = TemporaryDirectory()
"""Where new processes find what they need not compile again."""

REPEATS = (2, 4, 4, 8)
"""A row over its target is measured again with so many times the rounds, in turn."""

IMPORT_ROUNDS = 3
"""For so many rounds in memory there is one in a new process, which costs more."""


class Amount:
    """So many times these subjects, and so many nanoseconds."""

    def __init__(self, parts: dict[Subject, int], nanoseconds: float = 0) -> None:
        self.parts = parts
        self.nanoseconds = nanoseconds

    def of(self, sample: Sample) -> float:
        parts = self.parts.items()
        return sum((sample[part] * count for part, count in parts), self.nanoseconds)

    def __add__(self, other: Amount) -> Amount:
        return self.plus(other, 1)

    def __sub__(self, other: Amount) -> Amount:
        return self.plus(other, -1)

    def plus(self, other: Amount, times: int) -> Amount:
        parts = dict(self.parts)
        for part, count in other.parts.items():
            parts[part] = parts.get(part, 0) + times * count
        return Amount(parts, self.nanoseconds + times * other.nanoseconds)


MILLISECOND = Amount({}, 1e6)


class Subject(Amount):
    """Something that is timed."""

    def __init__(self) -> None:
        super().__init__({self: 1})

    def sample(self) -> float:
        """Return the nanoseconds one of it took just now."""
        raise NotImplementedError


class Call(Subject):
    """
    A call without arguments, of a plain or a coroutine function.

    *during* makes a context manager that is open while it is timed.
    """

    def __init__(
        self,
        call: Callable[[], Any],
        during: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        super().__init__()
        self.call = call
        self.during = during
        self.time = self.time_async if iscoroutinefunction(call) else self.time_sync
        self.count = 0

    def sample(self) -> float:
        if not self.count:
            self.count = self.calibrated()
        with self.during():
            return self.time(self.count) / self.count

    def calibrated(self) -> int:
        """Return how many fill a slice, once everything is warm."""
        self.time(WARM_UP)
        count = 1
        while min(self.time(count) for _ in range(3)) < SLICE:
            count *= 2
        return count

    def time_sync(self, count: int) -> int:
        call = self.call
        start = perf_counter_ns()
        for _ in repeat(None, count):
            call()
        return perf_counter_ns() - start

    def time_async(self, count: int) -> int:
        async def timed() -> int:
            call = self.call
            start = perf_counter_ns()
            for _ in repeat(None, count):
                await call()
            return perf_counter_ns() - start

        return RUNNER.run(timed())


class Importing(Subject):
    """An import statement in a new process."""

    def __init__(self, modules: str) -> None:
        super().__init__()
        self.code = (
            "from time import perf_counter_ns as now; start = now(); "
            f"import {modules}; print(now() - start)"
        )

    def sample(self) -> float:
        return float(printed_by(self.code))


def printed_by(code: str) -> str:
    """Run *code* in a new process that need not compile what it imports."""
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPYCACHEPREFIX": COMPILED.name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        command, capture_output=True, check=True, text=True, env=environment
    )
    return done.stdout


class Row(NamedTuple):
    """A promise: *measured* is at most so many times *baseline*."""

    name: str
    measured: Amount | None
    against: str
    baseline: Amount | None
    at_most: float | None = None

    def taken(self, rounds: int) -> Reading:
        """Measure, unless one side is not there to be measured."""
        if self.measured is None or self.baseline is None:
            return Reading(self)
        subjects = list(dict.fromkeys((*self.measured.parts, *self.baseline.parts)))
        if any(isinstance(subject, Importing) for subject in subjects):
            rounds = max(1, rounds // IMPORT_ROUNDS)
        samples = list(interleaved(subjects, rounds))
        best = {
            subject: min(sample[subject] for sample in samples) for subject in subjects
        }
        return Reading(self, self.measured.of(best), self.baseline.of(best))


class Reading(NamedTuple):
    """What a row came to; nothing if it could not be measured."""

    row: Row
    measured: float | None = None
    baseline: float | None = None

    @property
    def ratio(self) -> float | None:
        if self.measured is None or self.baseline is None:
            return None
        return self.measured / self.baseline

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "absent"
        if self.row.at_most is None:
            return ""
        return "ok" if self.ratio <= self.row.at_most else "over"


def measure_again(reading: Reading, rounds: int) -> list[Reading]:
    """Repeat the row of *reading* while it is over, with more rounds each time."""
    readings = [reading]
    for times in REPEATS:
        if readings[-1].verdict != "over":
            break
        readings.append(reading.row.taken(rounds * times))
    return readings


def interleaved(subjects: list[Subject], rounds: int) -> Iterable[Sample]:
    """Time the *subjects* in turn, the other way round every other time."""
    for subject in subjects:
        subject.sample()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            order = reversed(subjects) if number % 2 else subjects
            yield {subject: subject.sample() for subject in order}
    finally:
        gc.enable()


def table(readings: Iterable[Reading]) -> str:
    """Return the readings as lines of aligned columns."""
    head = ("measured", "ns", "baseline", "ns", "ratio", "target", "")
    rows = [head, *(cells(reading) for reading in readings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = (0, 2)  # the other columns hold numbers
    lines = (
        "  ".join(
            f"{cell:<{width}}" if column in texts else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def cells(reading: Reading) -> tuple[str, ...]:
    row = reading.row
    return (
        row.name,
        number(reading.measured, ",.0f"),
        row.against,
        number(reading.baseline, ",.0f"),
        number(reading.ratio, ",.2f"),
        number(row.at_most, ",.2f"),
        reading.verdict,
    )


def number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)
