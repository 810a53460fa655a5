"""
What a round of a worker is given, and what it reports.

A worker gives it the ends of legs, and its demand for jobs. What the round does with
them, in one transaction, is in ``cmdx.queue.clerk``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cmdx.queue.lanes import Lane
    from cmdx.queue.schedules import Tick
    from cmdx.queue.table import JobRecord

RESERVED = 8
"""How many places jobs of lanes have to themselves, in every second round."""


@attrs.frozen
class End:
    """How a leg has ended: the job as it was claimed, and what becomes of it."""

    record: JobRecord
    change: Callable[[JobRecord, float, float], JobRecord]
    """A function of ``cmdx.queue.table``: of the record, the time, and ``keep``."""
    progress: str | None = None
    lane: Lane | None = None
    """Who decides what becomes of the job instead."""
    outcome: Any = None
    """What the lane decides by."""


@attrs.frozen
class Demand:
    """How many jobs a worker can take: in all, plain ones, and asynchronous ones."""

    limit: int
    plain: float = math.inf
    coroutines: float = math.inf
    free_threads: float = math.inf
    """How many threads could begin a plain job at once."""
    is_idle: bool = True
    """Whether it runs nothing, so that a job may be claimed that may kill it."""
    passes_crashed: bool = False
    """Whether such jobs are passed over, so that others need not wait for them."""
    reserved: int = 0
    """How many more jobs can be taken that are jobs of lanes."""

    @property
    def kinds(self) -> tuple[bool, bool]:
        """Whether it takes plain jobs, and asynchronous ones."""
        return self.plain > 0, self.coroutines > 0

    @property
    def is_empty(self) -> bool:
        """Whether it takes nothing."""
        return self.limit <= 0 or not any(self.kinds)

    def with_reserve(self) -> Demand:
        """Return the demand, with some places for jobs of lanes alone."""
        count = max(int(min(RESERVED, self.limit - 1, self.coroutines - 1)), 0)
        return attrs.evolve(
            self,
            limit=self.limit - count,
            coroutines=self.coroutines - count,
            reserved=count,
        )

    def room_for(self, is_async: int, found: Sequence[JobRecord]) -> int:
        """Return how many jobs of a kind can be taken besides those that were found."""
        most = self.coroutines if is_async else self.plain
        taken = sum(bool(job.is_async) == bool(is_async) for job in found)
        return int(max(min(most - taken, self.limit - len(found)), 0))


NOTHING = Demand(0)


@attrs.frozen
class Pile:
    """Many jobs of one task that were enqueued for a later time and are due at once."""

    task: str
    module: str
    count: int


@attrs.define
class Report:
    """What a round has done, for the worker and for signals."""

    claimed: list[JobRecord] = attrs.field(factory=list)
    ended: list[JobRecord] = attrs.field(factory=list)
    """What has ended, or waits for its next leg, as it is stored now."""
    lost: list[JobRecord] = attrs.field(factory=list)
    """What dead workers had, as it is stored now."""
    ticks: list[Tick] = attrs.field(factory=list)
    piles: list[Pile] = attrs.field(factory=list)
    cancels: set[int] = attrs.field(factory=set)
    """The ``sequence`` of each job of this worker that is to be cancelled."""
    lane_ends: list[tuple[Lane, JobRecord, Any]] = attrs.field(factory=list)
    """Jobs of lanes that have ended, and the outcome of each."""
    notices: list[tuple[Lane, Any]] = attrs.field(factory=list)
    """What lanes have to tell."""
    waits_until_idle: bool = False
    """Whether a job is due that may be run only while nothing else is."""
    next_due: float = math.inf
    """When there is something to do, unless somebody writes before."""
