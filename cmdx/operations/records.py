"""Reading and writing the records of operations, inside a transaction of a store."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.operations.table import (
    TOMBSTONES,
    OperationRecord,
    OperationState,
    end_lease,
)
from cmdx.stores.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmdx.stores import Statements

Key: TypeAlias = tuple[str, str]
"""The session and the id of an operation."""

FIELDS = OperationRecord._fields
FLAGS = ("persist", "idempotent", "has_streams", "has_no_effect_unsealed")
PLACES_OF_FLAGS = [FIELDS.index(name) for name in FLAGS]
PLACE_OF_STATE = FIELDS.index("state")
STATES: dict[Any, OperationState] = {state.value: state for state in OperationState}
OTHER_NAMES = {"has_no_effect_unsealed": "is_transactional"}
"""The columns that are not called as the field."""
COLUMNS = [OTHER_NAMES.get(name, name) for name in FIELDS]

LISTED = ", ".join(COLUMNS)
BOUND = ", ".join(f":{field}" for field in FIELDS)
ASSIGNED = ", ".join(
    f"{column} = :{field}"
    for column, field in zip(COLUMNS[2:], FIELDS[2:], strict=True)
)

PEEK = f"""
    select {LISTED} from cmdx_operation where session = :session and id = :id
"""  # noqa: S608 -- names of columns
LOAD = f"{PEEK.rstrip()} for update"
INSERT = f"""
    insert into cmdx_operation ({LISTED}) values ({BOUND}) on conflict do nothing
"""  # noqa: S608 -- names of columns
UPDATE = f"""
    update cmdx_operation set {ASSIGNED} where session = :session and id = :id
"""  # noqa: S608 -- names of columns
SEAL = """
    update cmdx_operation set state = :state, outcome = :outcome, ending = :ending,
    lease = :lease, sealed_at = :sealed_at, expires_at = :expires_at
    where session = :session and id = :id and owner = :owner
    and state in ('live', 'indeterminate')
"""
MOST_EVICTED = 500
"""How many records are ended, expired or forgotten by one eviction, of each kind."""
LAPSED = f"""
    select {LISTED} from cmdx_operation
    where state = 'live' and lease <= :now
    limit {MOST_EVICTED} for update skip locked
"""  # noqa: S608 -- names of columns
MOST_KEYS = 32
"""How many records are read by one statement."""
ANY_KEY = " or ".join(
    f"(session = :session{place} and id = :id{place})" for place in range(MOST_KEYS)
)
LOAD_SOME = f"""
    select {LISTED} from cmdx_operation where {ANY_KEY} for update skip locked
"""  # noqa: S608 -- names of columns
EXTEND = """
    update cmdx_operation set lease = :lease where session = :session and id = :id
"""
EXPIRE = f"""
    update cmdx_operation
    set state = 'expired', outcome = null, expires_at = expires_at + keep * :times
    where (session, id) in (
        select session, id from cmdx_operation
        where state in ('sealed', 'released', 'indeterminate') and expires_at <= :now
        limit {MOST_EVICTED} for update skip locked
    )
"""  # noqa: S608 -- a number
FORGET = f"""
    delete from cmdx_operation where (session, id) in (
        select session, id from cmdx_operation
        where state = 'expired' and expires_at <= :now
        limit {MOST_EVICTED} for update skip locked
    )
"""  # noqa: S608 -- a number


def load_record(
    statements: Statements,
    session: str,
    id: str,  # noqa: A002 -- as users write it
) -> OperationRecord | None:
    """Return the record of an operation and keep others from changing it."""
    rows = statements.execute(LOAD, session=session, id=id)
    return record_of(rows[0]) if rows else None


def peek_record(
    statements: Statements,
    session: str,
    id: str,  # noqa: A002 -- as users write it
) -> OperationRecord | None:
    """Return the record of an operation, which others may be changing."""
    rows = statements.execute(PEEK, session=session, id=id)
    return record_of(rows[0]) if rows else None


def insert_record(statements: Statements, record: OperationRecord) -> bool:
    """Store a new record; False if there is one already."""
    return statements.change(INSERT, **columns_of(record)) > 0


def update_record(statements: Statements, record: OperationRecord) -> None:
    """Store a record that is there already."""
    if not statements.change(UPDATE, **columns_of(record)):
        raise StoreUnavailable(
            f"the stored operation {record.id!r} of session {record.session!r} was "
            "deleted meanwhile",
            "Try again",
        )


def write_record(
    statements: Statements,
    record: OperationRecord | None,
    changed: OperationRecord | None,
) -> bool:
    """Store what an event made of *record*; False if the event was refused."""
    if changed is not None and changed is not record:
        update_record(statements, changed)
    return changed is not None


def seal_record(statements: Statements, sealed: OperationRecord) -> bool:
    """
    Seal the operation unless it has ended or has another owner; tell if it was done.

    It may also be indeterminate, as after its lease ran out. What can have changed
    since its owner has seen the record is then its state, lease, ending and expiry. All
    of them are set by the seal, so the record need not be loaded.
    """
    return statements.change(SEAL, **columns_of(sealed)) > 0


def load_records(
    statements: Statements, keys: Sequence[Key]
) -> dict[Key, OperationRecord]:
    """Return records by session and id, but those that another transaction has."""
    found = {}
    for start in range(0, len(keys), MOST_KEYS):
        some = keys[start : start + MOST_KEYS]
        some = [*some, *repeat(some[-1], MOST_KEYS - len(some))]  # one text for all
        values = {f"session{place}": key[0] for place, key in enumerate(some)}
        values |= {f"id{place}": key[1] for place, key in enumerate(some)}
        for row in statements.execute(LOAD_SOME, **values):
            with suppress(StoreError):  # somebody has edited it: who calls it is told
                found[row[0], row[1]] = record_of(row)
    return found


def extend_leases(statements: Statements, records: Iterable[OperationRecord]) -> None:
    """Store the leases of *records*."""
    statements.executemany(
        EXTEND,
        [
            {"session": record.session, "id": record.id, "lease": record.lease}
            for record in records
        ],
    )


def evict_records(statements: Statements) -> bool:
    """
    Drop outcomes that are no longer kept, then tombstones; nothing that is live.

    Records that another transaction has are left out. Tell whether there may be more.
    """
    now, ended = statements.now, 0
    for row in statements.execute(LAPSED):
        with suppress(StoreError):  # somebody has edited it: who calls it is told
            update_record(statements, end_lease(record_of(row), now))
            ended += 1
    expired = statements.change(EXPIRE, times=TOMBSTONES)
    forgotten = statements.change(FORGET)
    return max(ended, expired, forgotten) >= MOST_EVICTED


def record_of(row: tuple[Any, ...]) -> OperationRecord:
    """Return the record in a row."""
    values = list(row)
    for place in PLACES_OF_FLAGS:
        values[place] = bool(values[place])
    try:
        state = values[PLACE_OF_STATE]
        values[PLACE_OF_STATE] = STATES.get(state) or OperationState(state)
        record = OperationRecord._make(values)
        # Whether the numbers are numbers: a SQLite file takes anything.
        moments = (
            record.admitted_at,
            record.sealed_at or 0.0,
            record.expires_at or 0.0,
        )
        math.fsum((record.keep, record.lease, record.executions, *moments))
    except (TypeError, ValueError) as error:
        session, id_, *_ = row
        raise StoreError(
            f"the stored operation {id_!r} of session {session!r} cannot be read: "
            f"{error}",
            "Somebody has edited the table cmdx_operation: restore or delete the row",
        ) from None
    return record


def columns_of(record: OperationRecord) -> dict[str, Any]:
    """Return the values of a row."""
    values = record._asdict()
    for name in FLAGS:
        values[name] = int(values[name])
    values["state"] = record.state.value
    return values
