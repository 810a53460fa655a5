"""Reading and writing couriers and their events, inside a transaction of a store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from cmdx.delivery.machine import CourierState, Install, Mark
from cmdx.queue.records import SELECT
from cmdx.queue.table import LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cmdx.delivery.sending import Exchange
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

TRACKS = 2**20
"""How many event types a courier can ever have."""

# -- couriers -------------------------------------------------------------------------

ADD_COURIER = """
    insert into cmdx_courier (queue, name, state, install, tracks)
    values (:queue, :name, 'up', '{}', '{}') on conflict do nothing
"""
COURIER_COLUMNS = "number, queue, name, install, tracks"
COURIER_BY_NAME = f"""
    select {COURIER_COLUMNS} from cmdx_courier
    where queue = :queue and name = :name for update
"""  # noqa: S608 -- names of columns
COURIER_BY_NUMBER = f"""
    select {COURIER_COLUMNS} from cmdx_courier where number = :number for update
"""  # noqa: S608 -- names of columns
SAVE_INSTALL = """
    update cmdx_courier set state = :state, install = :install, wakes_at = :wakes_at
    where number = :number
"""
SAVE_TRACKS = "update cmdx_courier set tracks = :tracks where number = :number"
WAKE = "update cmdx_courier set wakes_at = :now where number = :number"
STATE = "select state from cmdx_courier where queue = :queue and name = :name"
NOT_UP = """
    select number, state, wakes_at from cmdx_courier
    where queue = :queue and state <> 'up'
"""
FIELDS = [field.name for field in attrs.fields(Install)]


class CourierRecord(NamedTuple):
    """A courier as it is stored."""

    number: int
    queue: str
    name: str
    install: Install
    tracks: Mapping[str, int]
    """The number of each event type that it has ever had."""

    @property
    def ranks(self) -> range:
        """Those of its events, and of no other jobs."""
        return range(first_rank(self.number), first_rank(self.number + 1))

    def rank_of(self, event_type: str) -> int:
        """
        Return what waiting events of a type are found by.

        It is the number of the courier times ``TRACKS``, plus that of the type, above
        the ranks of all other jobs.
        """
        return first_rank(self.number) + self.tracks[event_type]

    def event_type_of(self, rank: int) -> str:
        """Return the type of events with a rank."""
        types = {number: name for name, number in self.tracks.items()}
        return types[rank - first_rank(self.number)]


def first_rank(number: int) -> int:
    """Return the lowest rank of the events of a courier."""
    return LANES + number * TRACKS


def number_of(rank: int) -> int:
    """Return the number of the courier whose events have a rank."""
    return (rank - LANES) // TRACKS


def register_courier(
    statements: Statements, queue: str, name: str, event_types: Collection[str]
) -> CourierRecord:
    """Return a courier, which is stored if there is none, with its event types."""
    place: dict[str, Any] = {"queue": queue, "name": name}
    statements.execute(ADD_COURIER, **place)
    record = courier_of(statements.execute(COURIER_BY_NAME, **place)[0])
    tracks = dict(record.tracks)
    for event_type in event_types:
        tracks.setdefault(event_type, len(tracks))
    if tracks != record.tracks:
        text = json.dumps(tracks)
        statements.execute(SAVE_TRACKS, tracks=text, number=record.number)
    if record.install.failing.keys() - set(event_types):  # it may wait for these alone
        statements.execute(WAKE, number=record.number)
    return record._replace(tracks=tracks)


def load_courier(statements: Statements, number: int) -> CourierRecord | None:
    """Return a courier, and keep others from changing it."""
    rows = statements.execute(COURIER_BY_NUMBER, number=number)
    return courier_of(rows[0]) if rows else None


def read_state(statements: Statements, queue: str, name: str) -> CourierState:
    """Return the state of a courier."""
    ((state,),) = statements.execute(STATE, queue=queue, name=name)
    return CourierState(state)


def courier_of(row: Sequence[Any]) -> CourierRecord:
    """Return the courier in a row."""
    number, queue, name, install, tracks = row
    return CourierRecord(number, queue, name, install_from(install), json.loads(tracks))


def save_install(
    statements: Statements, number: int, install: Install, wakes_at: float | None
) -> None:
    """Store the state of a courier, and when there is something to do for it."""
    facts = attrs.asdict(install)
    sets = {"probes": sorted(install.probes), "overtaken": sorted(install.overtaken)}
    statements.execute(
        SAVE_INSTALL,
        state=install.state.value,
        install=json.dumps({**facts, **sets}),
        wakes_at=wakes_at,
        number=number,
    )


READERS: dict[str, Callable[[Any], Any]] = {
    "state": CourierState,
    "probes": lambda ids: frozenset(map(str, ids)),
    "overtaken": frozenset,
    "mark": lambda mark: None if mark is None else Mark(**mark),
}
"""How fields of an install are read that JSON does not know."""


def install_from(text: str) -> Install:
    """
    Return the install behind JSON, without what later versions have added.

    If somebody has edited it so that it cannot be read, it is up: an endpoint that
    fails will soon be noticed, and nobody else has to wait.
    """
    try:
        facts: dict[str, Any] = json.loads(text)
        known = {name: facts[name] for name in FIELDS if name in facts}
        for name, read in READERS.items():
            if name in known:
                known[name] = read(known[name])
        return Install(**known)
    except (TypeError, ValueError, AttributeError, KeyError):
        return Install()


# -- events ---------------------------------------------------------------------------


class EventFacts(NamedTuple):
    """What a courier keeps with an event, as a list of JSON."""

    epoch: int = 0
    """In which epoch of the install it was last sent."""
    attempts: int = 0
    """How often it was sent since it was last replayed."""
    was_stored: bool = False
    """Whether it was stored before it was last sent. Then a failure leaves its place
    and its age, which count from ``due_at``, as they are."""
    out_of_order: bool = False
    """Whether it has overtaken others of its conversation."""

    @classmethod
    def of(cls, event: JobRecord) -> EventFacts:
        """Return the facts that are stored with an event."""
        if event.lane_facts is None:
            return cls()
        try:  # somebody may have edited it, and later versions may have more
            return cls(*json.loads(event.lane_facts)[: len(cls._fields)])
        except (TypeError, ValueError):
            return cls()

    def text(self) -> str:
        """Return them as JSON."""
        return json.dumps(self)


NEXT_READY = """
    select min(rank) from cmdx_job where queue = :queue and state = 'ready'
"""
READY_RANKS = f"""
    with recursive found(rank) as (
        select ({NEXT_READY} and rank >= {LANES})
        union all
        select ({NEXT_READY} and rank >=
                {LANES} + ((found.rank - {LANES}) / {TRACKS} + 1) * {TRACKS})
        from found where found.rank is not null
    )
    select rank from found where rank is not null
"""  # noqa: S608 -- constants
"""One rank of each courier that has events which may go."""
IN_FLIGHT = f"""
    select rank, owner, count(*) from cmdx_job
    where queue = :queue and state = 'running' and rank >= {LANES}
    group by rank, owner
"""  # noqa: S608 -- a constant
WAITING = "queue = :queue and state = :state and rank = :rank"
OLDEST_FIRST = "order by due_at, sequence limit :limit for update skip locked"
DUE = f"""
    {SELECT} where {WAITING} and due_at > :after and due_at <= :now {OLDEST_FIRST}
"""
OLDER = f"{SELECT} where {WAITING} and due_at < :moment {OLDEST_FIRST}"
OLDER_SINCE = f"""
    {SELECT} where {WAITING} and due_at < :moment and due_at >= :time
    and (due_at > :time or sequence > :sequence) {OLDEST_FIRST}
"""
FIRST_TIME = f"select min(due_at) from cmdx_job where {WAITING} and due_at > :after"  # noqa: S608
OLDEST_KEY = f"""
    select key from cmdx_job where {WAITING} order by due_at, sequence limit 1
"""  # noqa: S608 -- constants
HEAD_OF_KEY = f"""
    {SELECT} where queue = :queue and key = :key
    and (state = 'ready' or state = 'running') and rank >= :first and rank < :end
"""
STORED_BY = f"""
    select 1 from cmdx_job where {WAITING} and due_at <= :time and sequence <= :sequence
"""  # noqa: S608 -- constants
IS_WAITING = f"{STORED_BY} limit 1"
IS_RUNNING_SINCE = f"{STORED_BY} and started_at >= :time limit 1"
LAST_SEQUENCE = "select max(sequence) from cmdx_job"
RUNNING = "select 1 from cmdx_job where id = :id and state = 'running'"
START = """
    update cmdx_job set state = 'running', owner = :owner, started_at = :now,
    lane_facts = :facts where sequence = :sequence
"""
BRING_BACK = """
    update cmdx_job set due_at = :latest where queue = :queue and rank = :rank
    and state in ('ready', 'held') and due_at > :latest
"""
CHANGE_KEY = """
    update cmdx_job set key = :key, state = :state, lane_facts = :facts
    where sequence = :sequence
"""


def start_events(statements: Statements, events: Iterable[JobRecord]) -> None:
    """Store that a worker sends events."""
    statements.executemany(
        START,
        [
            {
                "owner": event.owner,
                "now": event.started_at,
                "facts": event.lane_facts,
                "sequence": event.sequence,
            }
            for event in events
        ],
    )


def mark_of(statements: Statements) -> Mark:
    """Return a mark for this moment."""
    ((last,),) = statements.execute(LAST_SEQUENCE)
    return Mark(last or 0, statements.now)


# -- attempts -------------------------------------------------------------------------

ADD_ATTEMPT = """
    insert into cmdx_delivery_attempt
    (delivery, number, sent_at, duration, status, reason, answer)
    values (
        :delivery,
        (select coalesce(max(number), 0) + 1 from cmdx_delivery_attempt
         where delivery = :delivery),
        :sent_at, :duration, :status, :reason, :answer
    )
"""
ATTEMPTS_OF = """
    select number, sent_at, duration, status, reason, answer
    from cmdx_delivery_attempt where delivery = :delivery order by number
"""
NEXT_DELIVERIES = """
    select distinct delivery from cmdx_delivery_attempt
    where delivery > :after order by delivery limit :limit
"""
REMOVE_ATTEMPTS = """
    delete from cmdx_delivery_attempt where delivery > :after and delivery <= :last
    and not exists (select 1 from cmdx_job where id = delivery)
"""
FORGET_ATTEMPTS = "delete from cmdx_delivery_attempt where delivery = :delivery"
"""For a new event that has the id of one that was removed."""


def add_attempts(
    statements: Statements, ends: Iterable[tuple[JobRecord, Exchange]]
) -> None:
    """Store attempts to send events."""
    statements.executemany(
        ADD_ATTEMPT,
        [
            {
                "delivery": event.id,
                "sent_at": exchange.sent_at,
                "duration": exchange.duration,
                "status": exchange.status,
                "reason": exchange.reason,
                "answer": exchange.answer,
            }
            for event, exchange in ends
        ],
    )


MOST_CHECKED = 5000
"""How many deliveries are checked for attempts that nobody can ask for any more."""


def remove_attempts(statements: Statements, after: str) -> str:
    """
    Remove attempts of deliveries that were removed; return where to go on.

    Args:
        statements: Those of the transaction.
        after: The id of the delivery that was checked last; empty to begin.
    """
    rows = statements.execute(NEXT_DELIVERIES, after=after, limit=MOST_CHECKED)
    if not rows:
        return ""
    last: str = rows[-1][0]
    statements.execute(REMOVE_ATTEMPTS, after=after, last=last)
    return last if len(rows) == MOST_CHECKED else ""
