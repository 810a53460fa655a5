"""
What a worker has claimed, under a lease, and the rounds that change it.

A worker is a token in the table of workers, with a lease that a thread of its own
extends. What others do when the lease is over is in ``cmdx.queue.clerk``.

What uses the store is a coroutine that is told whether it may wait: for a thread it
never suspends, and ``drive`` runs it.
"""

from __future__ import annotations

import contextvars
import logging
import os
import socket
from contextlib import suppress
from threading import Event, Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import clock
from cmdx.clock import entropy
from cmdx.queue import clerk, records, table
from cmdx.queue.clerk import Round, WorkerLost
from cmdx.queue.jobs import Job
from cmdx.queue.lanes import lanes_of
from cmdx.queue.report import NOTHING, Demand, Report
from cmdx.queue.schedules import Schedule
from cmdx.queue.signals import (
    announce,
    job_cancelled,
    job_died,
    job_finished,
    schedule_fired,
    schedule_missed,
    schedule_piled_up,
)
from cmdx.queue.table import JobState
from cmdx.queue.unread import warn_of_unread
from cmdx.queue.upkeep import LEASE
from cmdx.run.lifecycle import drive
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from cmdx.queue.queue import Queue
    from cmdx.queue.report import End, Pile
    from cmdx.queue.schedules import Tick
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

T = TypeVar("T")

BEATS_PER_LEASE = 3
REMOVE_EVERY = 5.0
"""Seconds between two rounds that remove what has ended."""
NO_PROGRESS: Mapping[int, str] = MappingProxyType({})
PILE_EVERY = 60.0
"""Seconds between two warnings of many jobs of one task."""


class Claims:
    """What one worker has claimed; use it in a ``with`` block."""

    def __init__(self, queue: Queue, lease: float | None = None) -> None:
        self.queue = queue
        self.lease = LEASE if lease is None else lease
        self.token = ""
        """What others know it by; empty until it is registered."""
        self._claimed: set[int] = set()
        """The numbers of the jobs that it has, as far as it was told."""
        self._is_uncertain = False
        """Whether the store may have given it jobs that it was not told of."""
        self._unwritten: Sequence[End] = ()
        """The ends that the store may not have."""
        self._told_piles: dict[str, float] = {}
        """When there was a warning of many jobs of a task."""
        self._next_removal = 0.0
        self._is_over = Event()
        self._context = contextvars.copy_context()
        """That of who made it: leases are counted by its clock."""
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        """Extend the lease of the worker, which is registered by its first round."""
        self._thread = Thread(
            target=self._context.run,
            args=[self._extend_leases],
            name="cmdx queue: lease",
            daemon=True,
        )
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Extend the lease no longer; what is still claimed is taken back then."""
        self._is_over.set()

    async def leave(self, *, awaits: bool) -> None:
        """Forget the worker, and complete a round before that was interrupted."""
        with suppress(StoreError):
            if self._is_uncertain:
                await self.round(self._unwritten, awaits=awaits)
            token = self.token
            await self._transact(
                lambda statements: forget_worker(statements, self.queue.name, token),
                awaits=awaits,
            )

    async def register(self, *, awaits: bool) -> None:
        """Take a new token, and store it with a lease."""
        token, queue = new_token(), self.queue

        def add(statements: Statements) -> None:
            clerk.add_worker(
                statements, token, queue.name, self.lease, place_of_worker()
            )

        self.token = token  # also if this is cancelled: ``leave`` removes it
        self._claimed.clear()
        try:
            await self._transact(add, awaits=awaits)
        except Exception:
            self.token = ""
            raise

    def do_round(
        self,
        ends: Sequence[End] = (),
        demand: Demand = NOTHING,
        progress: Mapping[int, str] = NO_PROGRESS,
    ) -> Report:
        """Do what ``round`` does in this thread."""
        return drive(self.round(ends, demand, progress, awaits=False))

    async def round(
        self,
        ends: Sequence[End] = (),
        demand: Demand = NOTHING,
        progress: Mapping[int, str] = NO_PROGRESS,
        *,
        awaits: bool,
    ) -> Report:
        """Write ends and claim jobs in one transaction, then announce what happened."""
        if not self.token:
            await self.register(awaits=awaits)
        unit = Round(
            self.queue.name,
            self.token,
            self.queue.keep,
            ends,
            demand,
            progress,
            removes=self._is_removal_due(),
            known=frozenset(self._claimed) if self._is_uncertain else None,
            told_piles=self._recent_piles(),
            lanes=lanes_of(self.queue),
        )
        is_strict = any(end.record.is_once for end in ends)
        # If it fails, nobody may know whether it was committed. Then the next round
        # gives back the jobs that it has claimed and that nobody was told of.
        self._is_uncertain, self._unwritten = True, ends
        try:
            report = await self._transact(unit, sync=is_strict, awaits=awaits)
        except WorkerLost:
            logging.getLogger("cmdx").warning(
                "a worker of %s was cut off for longer than its lease; others have "
                "taken its jobs, and it starts anew",
                self.queue,
            )
            self.token, self._is_uncertain = "", False
            late = [end for end in ends if end.record.is_once]
            return await self.round(late, awaits=awaits)
        written = (end.record for end in ends if end.record.owner == self.token)
        self._claimed.difference_update(record.sequence for record in written)
        if any(record.is_once for record in report.claimed):
            # Before it runs, a power cut must not undo that it was claimed.
            await self.extend_lease(sync=True, awaits=awaits)
        self._claimed.update(record.sequence for record in report.claimed)
        self._is_uncertain, self._unwritten = False, ()
        tell(self.queue, report)
        for pile in report.piles:
            self._told_piles[pile.task] = clock.now()
        return report

    def is_cancelled(self, record: JobRecord) -> bool:
        """Tell whether a job that runs here is to be cancelled."""
        place = {"queue": self.queue.name, "owner": self.token}
        rows = self.queue.store.transact(
            lambda statements: statements.execute(records.CANCELS_OF, **place),
            read_only=True,
        )
        return (record.sequence,) in rows

    async def extend_lease(self, *, awaits: bool, sync: bool = False) -> None:
        """
        Extend the lease; if it is over, the next round notices that.

        Args:
            awaits: Whether the caller may wait in an event loop.
            sync: Whether this, and all that was committed before, is on disk then.
        """
        token = self.token
        await self._transact(
            lambda statements: clerk.extend_lease(statements, token, self.lease),
            sync=sync,
            awaits=awaits,
        )

    async def _transact(
        self,
        unit: Callable[[Statements], T],
        *,
        awaits: bool,
        sync: bool = False,
    ) -> T:
        store = self.queue.store
        if awaits:
            return await store.atransact(unit, sync=sync, relaxed=not sync)
        return store.transact(unit, sync=sync, relaxed=not sync)

    def _recent_piles(self) -> frozenset[str]:
        now = clock.now()
        piles = self._told_piles.items()
        return frozenset(task for task, told in piles if now < told + PILE_EVERY)

    def _is_removal_due(self) -> bool:
        now = clock.now()
        if now < self._next_removal:
            return False
        self._next_removal = now + REMOVE_EVERY
        return True

    def _extend_leases(self) -> None:
        """Extend the lease every third of it, until the worker is over."""
        pause = self.lease / BEATS_PER_LEASE
        while not self._is_over.wait(pause):
            try:
                drive(self.extend_lease(awaits=False))
                pause = self.lease / BEATS_PER_LEASE
            except StoreError:
                pause = 0.5  # sooner again: the lease goes on
            except Exception:
                logging.getLogger("cmdx").exception("a lease could not be extended")


def forget_worker(statements: Statements, queue: str, token: str) -> None:
    """Remove a worker, unless it still has jobs."""
    rows = statements.execute(records.OWNED, queue=queue, owner=token)
    if not rows:
        clerk.remove_worker(statements, token)


def new_token() -> str:
    """Return the token of a worker, which nobody else can have."""
    return f"{entropy():020x}"


def place_of_worker() -> str:
    """Return where a worker runs, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


# -- telling ------------------------------------------------------------------------


def tell(queue: Queue, report: Report) -> None:
    """Announce what a round has done; if that fails, its jobs run all the same."""
    if any(signal.receivers for signal in ENDS.values()):
        for record in (*report.ended, *report.lost):
            try_to(tell_end, queue, record)
    for lane, notice in report.notices:
        try_to(lane.tell, notice)
    for tick in report.ticks:
        try_to(tell_tick, queue, tick)
    for pile in report.piles:
        try_to(tell_pile, pile)


def try_to(announce_it: Callable[..., None], *facts: Any) -> None:
    """Send signals; what is stored cannot always be read, nor the store be used."""
    try:
        announce_it(*facts)
    except Exception:
        logging.getLogger("cmdx").exception("a signal of the queue could not be sent")


def tell_end(queue: Queue, record: JobRecord) -> None:
    """Announce that a job has ended."""
    if not table.is_ended(record):
        return
    signal = ENDS[JobState(record.state)]
    if not signal.receivers:
        return
    job: Job[Any] = Job(queue, record)
    if signal is job_cancelled:
        announce(signal, record.task, record.module, job=job)
    else:
        announce(signal, record.task, record.module, job=job, result=job.result)


ENDS = {
    JobState.DONE: job_finished,
    JobState.DEAD: job_died,
    JobState.CANCELLED: job_cancelled,
}


def tell_tick(queue: Queue, tick: Tick) -> None:
    """Announce that a schedule has fired, or should have."""
    record = tick.record
    if tick.error is not None:
        logging.getLogger("cmdx").warning(
            "the schedule %r was edited, cannot be read, and does not fire any more "
            "(%s); unschedule it, or schedule it again",
            record.id,
            tick.error,
        )
        return
    if tick.unread is not None:
        warn_of_unread(f"the schedule {record.id!r} is", tick.unread)
        return
    if not (schedule_fired.receivers or schedule_missed.receivers):
        return
    schedule = Schedule.of(record)
    if tick.missed is not None:
        announce(
            schedule_missed,
            record.task,
            record.module,
            schedule=schedule,
            missed=tick.missed,
        )
    if tick.fires:
        job = queue.get(record.job or "")
        announce(schedule_fired, record.task, record.module, schedule=schedule, job=job)


def tell_pile(pile: Pile) -> None:
    """Warn of many jobs of one task that were enqueued for the same time."""
    logging.getLogger("cmdx").warning(
        "%d jobs of %s that were enqueued for a later time are due at once; "
        "should they be one job with unique=?",
        pile.count,
        pile.task,
    )
    announce(
        schedule_piled_up, pile.task, pile.module, task=pile.task, count=pile.count
    )
