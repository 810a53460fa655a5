"""
Schedules: jobs that are enqueued again and again.

1. a schedule is stored with what its jobs need      ``write_schedule``
2. a worker finds that it is due                     ``fire_due``
3. what that means is decided                        ``decide_tick``
4. the job is enqueued in the same transaction, so two workers cannot both do it
5. ``every`` is counted from the end of the job      ``note_end``

When a schedule is due is in ``cmdx.queue.times``.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

import attrs

from cmdx.chain import new_id
from cmdx.exceptions import CmdxError, DefinitionError
from cmdx.queue import records
from cmdx.queue.enqueue import check_text
from cmdx.queue.policy import options_from
from cmdx.queue.table import ENDED_STATES
from cmdx.queue.times import check_cron, check_interval, next_time, require_one_time
from cmdx.wire.encoding import canonical_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cmdx import RetryOptions
    from cmdx.stores import Statements

Missed: TypeAlias = Literal["once", "skip"]

UNREAD_PAUSE = 5.0
"""Seconds until a schedule that a worker could not read is offered again."""

LATE = 60.0
"""Seconds after which a run counts as missed."""

MOST_TICKS = 100
"""How many schedules fire in one round."""


class ScheduleKeywords(TypedDict, total=False):
    """The options of ``Queue.schedule``."""

    every: float | None
    """The seconds from the end of a run to the next."""
    cron: str | None
    """An expression of cron."""
    zone: str | None
    """The time zone of *cron*."""
    missed: Missed | None
    """What to do if nobody was there in time."""
    retry: RetryOptions | None
    """The retry options of its jobs."""
    id: str | None
    """The id of the schedule."""


class ScheduleRecord(NamedTuple):
    """A schedule as it is stored."""

    id: str
    queue: str
    identity: str
    """What no other schedule of the queue has, see ``identity_of``."""
    task: str
    module: str
    inputs: str
    template: str
    """What a job of it has, as JSON."""
    every: float | None
    cron: str | None
    zone: str
    missed: str
    due_at: float | None
    """When a worker looks at it; None while a job of ``every`` has not ended."""
    job: str | None
    """The id of the last job."""
    created_at: float
    was_due_at: float | None = None
    """When it should have fired, since a worker could not read it."""

    @property
    def fires_at(self) -> float | None:
        """When it fires, or should have."""
        return self.due_at if self.was_due_at is None else self.was_due_at


@attrs.frozen
class Schedule:
    """A task that is enqueued again and again; made by ``Queue.schedule``."""

    id: str
    """Its id."""
    queue: str
    """The name of the queue."""
    task: str
    """The name of the task."""
    inputs: dict[str, Any]
    """The inputs, as JSON."""
    every: float | None
    """The seconds from the end of a run to the next, or None."""
    cron: str | None
    """The expression of cron, or None."""
    zone: str
    """The time zone of *cron*."""
    missed: str
    """What is done if nobody was there in time: ``"once"`` or ``"skip"``."""
    retry_options: RetryOptions | None
    """The retry options of its jobs."""
    due_at: float | None
    """When it fires next; None while a job of ``every`` has not ended."""
    job: str | None
    """The id of the job that was enqueued last."""
    created_at: float
    """When it was made, in seconds since 1970."""

    @classmethod
    def of(cls, record: ScheduleRecord) -> Schedule:
        """Return what is public of a record."""
        return cls(
            id=record.id,
            queue=record.queue,
            task=record.task,
            inputs=object_in(record.inputs),
            every=record.every,
            cron=record.cron,
            zone=record.zone,
            missed=record.missed,
            retry_options=options_from(object_in(record.template).get("retry")),
            due_at=record.fires_at,
            job=record.job,
            created_at=record.created_at,
        )

    def __repr__(self) -> str:
        """Show the id, the task, the times, and when it fires next."""
        try:
            times = f"{self._interval_text()}, next {self._next_text()}"
        except ERRORS_OF_EDITS:
            times = "it was edited, and cannot be read"
        return f"<Schedule {self.id} of {self.task}: {times}>"

    def _interval_text(self) -> str:
        if self.every is None:
            return f"{self.cron!r} in {self.zone}"
        return f"every {self.every:.15g} s"

    def _next_text(self) -> str:
        if self.due_at is None:
            return "when its job has ended"
        moment = datetime.fromtimestamp(self.due_at, UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def object_in(text: str) -> dict[str, Any]:
    """Return what is stored as a JSON object; empty if somebody has edited it."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# -- making ---------------------------------------------------------------------------


def new_record(  # noqa: PLR0913 -- the options of a schedule
    row: Mapping[str, Any],
    *,
    every: float | None = None,
    cron: str | None = None,
    zone: str = "UTC",
    missed: str = "once",
    id: str | None = None,  # noqa: A002 -- as users write it
) -> ScheduleRecord:
    """Return the record of a new schedule, whose jobs are like *row*."""
    require_one_time(every, cron, zone)
    if missed not in ("once", "skip"):
        message = f'schedule: missed is "once" or "skip", got {missed!r}.'
        raise DefinitionError(message)
    zone = getattr(zone, "key", zone)  # of a ZoneInfo
    every = None if every is None else check_interval(every)
    cron = None if cron is None else check_cron(cron, zone)
    template = {name: row[name] for name in records.NEW_COLUMNS}
    record = ScheduleRecord(
        id=new_id() if id is None else check_text("id", id, where="schedule"),
        queue=row["queue"],
        identity="" if id is None else canonical_text(["id", id]),
        task=row["task"],
        module=row["module"],
        inputs=row["inputs"],
        template=json.dumps(template),
        every=every,
        cron=cron,
        zone=zone,
        missed=missed,
        due_at=None,
        job=None,
        created_at=row["created_at"],
    )
    if id is None:
        record = record._replace(identity=identity_of(record))
    return record._replace(due_at=time_after(record, record.created_at))


# -- deciding -----------------------------------------------------------------------


@attrs.frozen
class Tick:
    """What happens when a schedule is due."""

    record: ScheduleRecord
    """As it is to be stored."""
    fires: bool
    missed: float | None = None
    """When it should have fired, if that is too long ago."""
    error: str | None = None
    """Why it cannot be read, and does not fire any more."""
    unread: str | None = None
    """Why this process cannot read it; others may."""


def decide_tick(record: ScheduleRecord, now: float, *, is_busy: bool) -> Tick:
    """
    Decide what happens to a schedule that is due.

    Args:
        record: The schedule.
        now: The time.
        is_busy: Whether its last job has not ended.
    """
    due = now if record.fires_at is None else record.fires_at
    after_due = time_after(record, due)
    is_missed = now - due > LATE or after_due <= now
    fires = not is_busy and not (is_missed and record.missed == "skip")
    waits_for_end = record.every is not None and fires
    next_due = None if waits_for_end else time_after(record, now)
    job = new_id() if fires else record.job
    return Tick(
        record._replace(due_at=next_due, was_due_at=None, job=job),
        fires,
        due if is_missed else None,
    )


def time_after(record: ScheduleRecord, moment: float) -> float:
    """Return when a schedule is due after *moment*."""
    if record.every is not None:
        return moment + record.every
    return next_time(str(record.cron), record.zone, moment)


# -- storing ------------------------------------------------------------------------

COLUMNS = ScheduleRecord._fields
LISTED = ", ".join(COLUMNS)
BOUND = ", ".join(f":{name}" for name in COLUMNS)
ASSIGNED = ", ".join(
    f"{name} = :{name}" for name in COLUMNS if name not in ("id", "created_at")
)
SELECT = f"select {LISTED} from cmdx_schedule"  # noqa: S608 -- names of columns
SELECT_ALL = f"{SELECT} where queue = :queue order by created_at, id"
LOAD = f"{SELECT} where queue = :queue and id = :id for update"
LOAD_SAME = f"{SELECT} where queue = :queue and identity = :identity for update"
SELECT_DUE = f"""
    {SELECT} where queue = :queue and due_at <= :now
    order by due_at, id limit {MOST_TICKS} for update skip locked
"""
NEXT_DUE = "select min(due_at) from cmdx_schedule where queue = :queue"
INSERT = f"""
    insert into cmdx_schedule ({LISTED}) values ({BOUND}) on conflict do nothing
"""  # noqa: S608 -- names of columns
UPDATE = f"update cmdx_schedule set {ASSIGNED} where id = :id"  # noqa: S608 -- names of columns
REMOVE = "delete from cmdx_schedule where queue = :queue and id = :id"
NOTE_END = """
    update cmdx_schedule set due_at = :now + every
    where id = :id and job = :job and every is not null
"""
STOP = "update cmdx_schedule set due_at = null where id = :id"
STATE = "select state from cmdx_job where id = :id"


def identity_of(record: ScheduleRecord) -> str:
    """Return a text that is the same for the same task, inputs and times."""
    times: list[Any] = [record.cron, record.zone]
    if record.every is not None:
        is_whole = record.every.is_integer()
        times = [int(record.every) if is_whole else record.every]
    return canonical_text([record.task, json.loads(record.inputs), times])


def write_schedule(
    statements: Statements, record: ScheduleRecord, *, replaces: bool
) -> tuple[ScheduleRecord, bool]:
    """
    Store a schedule; return it, or the one that is there, and whether it is new.

    Args:
        statements: Those of the transaction.
        record: The schedule.
        replaces: Whether its id was given, so that it replaces the one that has it.
    """
    if statements.change(INSERT, **record._asdict()):
        return record, True
    sql, same = (LOAD, "id") if replaces else (LOAD_SAME, "identity")
    given = {"queue": record.queue, same: getattr(record, same)}
    rows = statements.execute(sql, **given)
    if not rows:
        message = (
            f"schedule: the id {record.id!r} belongs to a schedule of another queue. "
            "Use another id."
        )
        raise DefinitionError(message)
    stored = ScheduleRecord(*rows[0])
    if not replaces:
        return stored, False
    changed = record._replace(created_at=stored.created_at, job=stored.job)
    statements.execute(UPDATE, **changed._asdict())
    return changed, False


def fire_due(statements: Statements, queue: str) -> list[Tick]:
    """Enqueue the jobs of schedules that are due."""
    rows = statements.execute(SELECT_DUE, queue=queue)
    return [fire(statements, ScheduleRecord(*row)) for row in rows]


def next_time_of(statements: Statements, queue: str) -> float:
    """Return when the next schedule of a queue is due."""
    ((due,),) = statements.execute(NEXT_DUE, queue=queue)
    return math.inf if due is None else float(due)


ERRORS_OF_EDITS = (ArithmeticError, LookupError, TypeError, ValueError)
"""What is raised for a schedule that somebody has edited."""


def fire(statements: Statements, record: ScheduleRecord) -> Tick:
    """Do what is to be done with a schedule that is due."""
    now, busy = statements.now, is_busy(statements, record)
    try:
        tick = decide_tick(record, now, is_busy=busy)
        row = job_row(tick.record, now) if tick.fires else None
    except CmdxError as error:  # cronsim or the zone is not on this machine
        waiting = record._replace(due_at=now + UNREAD_PAUSE, was_due_at=record.fires_at)
        tick, row = Tick(waiting, fires=False, unread=str(error)), None
    except ERRORS_OF_EDITS as error:
        statements.execute(STOP, id=record.id)
        return Tick(record, fires=False, error=str(error))
    if row is not None:
        records.insert_job(statements, row)
    statements.execute(UPDATE, **tick.record._asdict())
    return tick


def is_busy(statements: Statements, record: ScheduleRecord) -> bool:
    """Tell whether the last job of a schedule has not ended."""
    if record.job is None:
        return False
    rows = statements.execute(STATE, id=record.job)
    return bool(rows) and rows[0][0] not in ENDED_STATES


def job_row(record: ScheduleRecord, now: float) -> dict[str, Any]:
    """Return the row of the job that a schedule enqueues."""
    template: dict[str, Any] = json.loads(record.template)
    json.loads(template["inputs"])  # raises if they were edited: no job could be run
    times = {"due_at": now, "created_at": now}
    row = {**dict.fromkeys(records.NEW_COLUMNS), **template}  # an older one has fewer
    return {**row, "id": record.job, "schedule": record.id, **times}


def note_end(statements: Statements, job: Any) -> None:
    """Count the time until the next run from the end of this one."""
    statements.execute(NOTE_END, id=job.schedule, job=job.id)
