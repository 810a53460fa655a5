"""
What is done to the jobs of a queue inside one transaction.

A round of a worker is one unit, in this order:

1. it finds out what there is to do, by one statement        ``records.survey``
2. how its jobs have ended is written; the next of each key goes    ``write_ends``
3. what dead workers had is taken back                       ``recover_lost_jobs``
4. schedules that are due enqueue their jobs                  ``schedules.fire_due``
5. jobs with a key get their places                      ``upkeep.place_arrivals``
6. what has ended long ago is removed                      ``upkeep.remove_ended``
7. jobs that are due are claimed                                     ``claim_due``
8. other packages do the same for jobs of theirs                    ``visit_lane``

Workers, ``cancel`` and ``replay`` change the order of keys, and lock the row of the
queue before they do. Producers just insert. Every write names its owner: a worker that
lost its lease has lost its jobs, and what it says of them is dropped.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs

from cmdx.queue import records, table
from cmdx.queue.lanes import Visit
from cmdx.queue.records import lock_queue, start_jobs, survey
from cmdx.queue.report import NOTHING, Demand, End, Pile, Report
from cmdx.queue.schedules import MOST_TICKS, fire_due, next_time_of
from cmdx.queue.table import JobState
from cmdx.queue.upkeep import (
    LOOK_EVERY,
    bring_back_jobs,
    is_number,
    look_at_clock,
    place_arrivals,
    readable,
    remove_ended,
    write_changes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cmdx.queue.lanes import Lane
    from cmdx.queue.records import Survey, WaitingRank
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

SMALLEST_PILE = 10
"""So many delayed jobs of one task that are due at once are worth a warning."""


class WorkerLost(Exception):  # noqa: N818 -- it is no error of a user's
    """The lease of a worker is over, and others have taken its jobs."""


@attrs.frozen
class Round:
    """One round of a worker; call it with statements."""

    queue: str
    owner: str
    keep: float
    ends: Sequence[End] = ()
    demand: Demand = NOTHING
    progress: Mapping[int, str] = attrs.field(factory=dict)
    """How far running jobs have come, by their ``sequence``."""
    removes: bool = False
    known: frozenset[int] | None = None
    """The jobs that the worker knows it has; None if it can have no others."""
    told_piles: frozenset[str] = frozenset()
    """The tasks that were warned of already."""
    lanes: Sequence[Lane] = ()

    def __call__(self, statements: Statements) -> Report:
        """Do the round."""
        report, found = Report(), survey(statements, self.queue, self.owner)
        if not found.is_registered:
            raise WorkerLost
        if self.needs_queue_lock(found, statements.now):
            lock_queue(statements, self.queue)
        if self.ends:
            self.write_ends(statements, report)
        if self.progress:
            self.write_progress(statements)
        if self.known is not None:
            self.give_back_unknown(statements, self.known)
        self.tidy(statements, found, report)
        if found.has_cancels:
            report.cancels = self.asked_to_cancel(statements)
        may_claim = not (found.is_paused or self.demand.is_empty)
        if may_claim:
            self.claim_due(statements, report)
            report.piles = self.find_piles(statements, report.claimed)
        for lane in self.lanes:
            self.visit_lane(statements, lane, report, may_claim=may_claim)
        next_event = self.next_event(statements, found, report)
        report.next_due = min(report.next_due, next_event)
        return report

    def needs_queue_lock(self, found: Survey, now: float) -> bool:
        """Tell whether the row of the queue has to be locked, before any job is."""
        has_keys = any(end.record.key is not None for end in self.ends)
        has_lost = is_over(found.first_lease, now)
        is_due = is_over(found.next_tick, now)
        looks = abs(now - (found.seen_at or 0.0)) > LOOK_EVERY
        is_uncertain = self.known is not None
        return bool(
            has_keys
            or has_lost
            or is_due
            or looks
            or found.has_arrivals
            or is_uncertain
            or self.lanes
        )

    def tidy(self, statements: Statements, found: Survey, report: Report) -> None:
        """Do what one worker does for all workers of the queue."""
        now, queue = statements.now, self.queue
        if abs(now - (found.seen_at or 0.0)) > LOOK_EVERY:
            look_at_clock(statements, queue, found.seen_at or 0.0)
        if is_over(found.first_lease, now):
            report.lost = self.recover_lost_jobs(statements)
        if is_over(found.next_tick, now):
            report.ticks = fire_due(statements, queue)
        if found.has_arrivals or report.ticks:
            place_arrivals(statements, queue)
        if self.removes:
            remove_ended(statements, queue)

    def next_event(
        self, statements: Statements, found: Survey, report: Report
    ) -> float:
        """Return when a schedule is due, or the lease of another worker is over."""
        now = statements.now
        lease = None if is_over(found.first_lease, now) else found.first_lease
        next_tick = found.next_tick
        if len(report.ticks) == MOST_TICKS:
            next_tick = now
        elif report.ticks or any(job.schedule for job in report.ended):
            next_tick = next_time_of(statements, self.queue)
        return min(filter(is_number, (lease, next_tick)), default=math.inf)

    # -- ends -----------------------------------------------------------------------

    def write_ends(self, statements: Statements, report: Report) -> None:
        """Write how jobs have ended, those that this worker still has."""
        rows = statements.execute(records.OWNED, queue=self.queue, owner=self.owner)
        owned = {sequence: facts for sequence, *facts in rows}
        changes = []
        for end in self.ends:
            record = self.still_owned(statements, end, owned)
            if record is None:
                continue
            if end.lane is not None:
                report.lane_ends.append((end.lane, record, end.outcome))
                continue
            after = end.change(record, statements.now, self.keep)
            # A job that others found dead may be ended, but not be taken up again.
            if table.is_ended(after) or not table.is_ended(record):
                after = without_taken_text(statements, record, after)
                if end.progress is not None:
                    after = after._replace(progress=end.progress)
                changes.append((record, after))
        write_changes(statements, changes)
        report.ended = [after for _, after in changes]

    def still_owned(
        self, statements: Statements, end: End, owned: dict[int, list[Any]]
    ) -> JobRecord | None:
        """Return the job of *end* as it is stored now; None if it is another's."""
        sequence, owner = end.record.sequence, end.record.owner or ""
        if owner == self.owner and sequence in owned:
            cancels, unique, progress = owned[sequence]
            if not (cancels or unique or progress or end.record.unique_held):
                return end.record
            return end.record._replace(
                cancels=cancels,
                unique_held=unique,  # another job may have taken it since
                progress=progress,
            )
        if not end.record.is_once:
            return None
        stored = records.load_job(statements, end.record.id)
        return stored if stored and table.may_end(stored, owner) else None

    def write_progress(self, statements: Statements) -> None:
        """Write how far jobs have come, those that this worker still has."""
        notes: list[dict[str, Any]] = [
            {"sequence": sequence, "progress": text, "owner": self.owner}
            for sequence, text in self.progress.items()
        ]
        statements.executemany(records.NOTE_PROGRESS, notes)

    def give_back_unknown(self, statements: Statements, known: frozenset[int]) -> None:
        """Give back what this worker has claimed without being told so."""
        lock_queue(statements, self.queue)
        rows = statements.execute(
            records.RUNNING_OF, queue=self.queue, owner=self.owner
        )
        changes = []
        for job in readable(statements, rows):
            if job.sequence not in known:
                after = table.give_back_unstarted(job, statements.now, self.keep)
                changes.append((job, without_taken_text(statements, job, after)))
        write_changes(statements, changes)

    def asked_to_cancel(self, statements: Statements) -> set[int]:
        """Return which running jobs of this worker are to be cancelled."""
        rows = statements.execute(
            records.CANCELS_OF, queue=self.queue, owner=self.owner
        )
        return {sequence for (sequence,) in rows}

    # -- lanes ----------------------------------------------------------------------

    def visit_lane(
        self, statements: Statements, lane: Lane, report: Report, *, may_claim: bool
    ) -> None:
        """Let a lane write the ends of its jobs, and claim others."""
        ends = [(job, outcome) for of, job, outcome in report.lane_ends if of is lane]
        free = self.demand.room_for(1, report.claimed) + self.demand.reserved
        room = free if may_claim else 0
        visit = Visit(self.queue, self.owner, self.keep, ends, room, self.removes)
        lane.visit(statements, visit)
        if visit.claimed:
            self.keep_worker(statements)
        report.claimed += visit.claimed
        report.ended += visit.changed
        report.notices += [(lane, notice) for notice in visit.notices]
        report.next_due = min(report.next_due, visit.next_due)

    # -- dead workers ---------------------------------------------------------------

    def recover_lost_jobs(self, statements: Statements) -> list[JobRecord]:
        """Take back the jobs of other workers whose leases are over."""
        now, queue = statements.now, self.queue
        tokens = statements.execute(records.LOST_WORKERS, queue=queue, owner=self.owner)
        if not tokens:
            return []
        lock_queue(statements, queue)
        crashes = []
        for (token,) in tokens:
            rows = statements.execute(records.RUNNING_OF, queue=queue, owner=token)
            jobs = readable(statements, rows)
            crashes += [(job, table.crash(job, now, self.keep)) for job in jobs]
            statements.execute(records.REMOVE_WORKER, token=token)
        write_changes(statements, crashes)
        return [after for _, after in crashes]

    # -- claims ---------------------------------------------------------------------

    def claim_due(self, statements: Statements, report: Report) -> None:
        """Claim jobs that are due, and find out when the next one is."""
        found: list[JobRecord] = []
        for ranks in self.levels(statements):
            if self.take_level(statements, ranks, found, report):
                break
        if found:
            self.keep_worker(statements)
        now = statements.now
        report.claimed = [table.start(job, self.owner, now) for job in found]
        start_jobs(statements, report.claimed)

    def find_piles(
        self, statements: Statements, claimed: Sequence[JobRecord]
    ) -> list[Pile]:
        """Return which tasks have many delayed jobs that are due, or claimed now."""
        delayed = [job for job in claimed if job.timing is not None]
        counts = Counter((job.task, job.module) for job in delayed)
        if all(task in self.told_piles for task, _ in counts):
            return []
        rows = statements.execute(records.DELAYED, queue=self.queue)
        counts.update({(task, module): count for task, module, count in rows})
        piles = [Pile(*name, count) for name, count in counts.items()]
        return [
            pile
            for pile in piles
            if pile.count >= SMALLEST_PILE and pile.task not in self.told_piles
        ]

    def keep_worker(self, statements: Statements) -> None:
        """Keep others from finding that the lease is over until jobs are claimed."""
        if not statements.execute(records.KEEP_WORKER, token=self.owner):
            raise WorkerLost

    def levels(self, statements: Statements) -> Iterator[Sequence[WaitingRank]]:
        """
        Yield what waits, level by level: the ranks that the worker takes jobs of.

        A level with jobs of the other kind alone is left out.
        """
        above = records.NO_RANK
        while True:
            ranks = records.waiting_ranks(statements, self.queue, above)
            is_all = len(ranks) < records.MOST_RANKS
            levels = [list(some) for _, some in groupby(ranks, attrgetter("level"))]
            if not is_all and len(levels) > 1:
                levels.pop()  # the next statement may find another rank of it
            for of_level in levels:
                wanted = [one for one in of_level if self.demand.kinds[one.is_async]]
                if wanted:
                    yield wanted
            if is_all:
                return
            above = levels[-1][-1].rank

    def take_level(
        self,
        statements: Statements,
        ranks: Sequence[WaitingRank],
        found: list[JobRecord],
        report: Report,
    ) -> bool:
        """Add due jobs of a level to *found*; tell whether to look no further."""
        jobs, has_more = self.due_jobs(statements, ranks, found)
        # Those who are told of a death may pause the queue before the next of its key.
        dead = (job for job in report.ended if job.state == JobState.DEAD)
        keys_of_dead = {job.key for job in dead} - {None}
        for job in sorted(jobs, key=order_of):
            if self.must_wait(job, report):
                return True  # a leg that ends wants a round, so none is planned
            is_full = len(found) >= self.demand.limit or (found and is_alone(job))
            if is_full or job.key in keys_of_dead:
                has_more = True
                break
            found.append(job)
            if is_alone(job):
                has_more = True
                break
        if has_more or len(found) >= self.demand.limit:
            report.next_due = statements.now
            return True
        for one in ranks:
            due = next_due_of(statements, self.queue, one)
            report.next_due = min(report.next_due, due)
        return False

    def due_jobs(
        self,
        statements: Statements,
        ranks: Sequence[WaitingRank],
        found: Sequence[JobRecord],
    ) -> tuple[list[JobRecord], bool]:
        """Return due jobs of a level, and whether there may be more."""
        jobs: list[JobRecord] = []
        demand, has_more = self.demand, False
        passes_crashed = demand.passes_crashed and not demand.is_idle
        sql = records.SELECT_UNCRASHED if passes_crashed else records.SELECT_DUE
        for one in ranks:
            limit = demand.room_for(one.is_async, found)
            if not (limit and one.has_due):
                continue
            place: dict[str, Any] = {"queue": self.queue, "rank": one.rank}
            rows = statements.execute(sql, **place, limit=limit)
            jobs += readable(statements, rows)
            has_more |= len(rows) == limit
        return jobs, has_more

    def must_wait(self, job: JobRecord, report: Report) -> bool:
        """Tell whether a job can be claimed only when something here has ended."""
        if job.crashes and not self.demand.is_idle:
            report.waits_until_idle = True
            return True
        # If the worker died before it began, nobody would know that it had not begun.
        return bool(job.is_once and not job.is_async and self.demand.free_threads <= 0)


def without_taken_text(
    statements: Statements, before: JobRecord, after: JobRecord
) -> JobRecord:
    """Return a job without the unique text that it wants back, if another has it."""
    text = after.unique_held
    if text is None or before.unique_held is not None:
        return after
    rows = statements.execute(records.PEEK_UNIQUE, queue=after.queue, text=text)
    return after._replace(unique_held=None) if rows else after


def order_of(job: JobRecord) -> tuple[float, int]:
    """Return what jobs of one level are sorted by."""
    return job.due_at, job.sequence


def next_due_of(statements: Statements, queue: str, waiting: WaitingRank) -> float:
    """
    Return when the next job of a rank becomes due.

    If the clock was set back, jobs are brought back first.
    """
    due, stored_by = waiting.next_due, waiting.stored_by
    if not is_number(due):
        return math.inf
    if not is_number(stored_by) or stored_by <= statements.now + LOOK_EVERY:
        return float(due)
    # The clock was set back while nobody was there to notice it.
    bring_back_jobs(statements, queue)
    return statements.now


def is_over(moment: float | None, now: float) -> bool:
    """Tell whether a moment, if there is one, has come."""
    return is_number(moment) and moment <= now


def is_alone(job: JobRecord) -> bool:
    """Tell whether a job is claimed alone: it may take others down with it."""
    return bool(job.is_once or job.crashes)


# -- workers ------------------------------------------------------------------------


def add_worker(
    statements: Statements, token: str, queue: str, lease: float, place: str
) -> None:
    """Store a worker, which is alive for *lease* seconds."""
    statements.execute(
        records.ADD_WORKER,
        token=token,
        queue=queue,
        lease=statements.now + lease,
        place=place,
    )


def extend_lease(statements: Statements, token: str, lease: float) -> bool:
    """Extend the lease of a worker; False if others have taken its jobs."""
    moment = statements.now + lease
    return statements.change(records.BEAT, token=token, lease=moment) > 0


def remove_worker(statements: Statements, token: str) -> None:
    """Forget a worker that has no jobs any more."""
    statements.execute(records.REMOVE_WORKER, token=token)
