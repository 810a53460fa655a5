"""
Units: what is done with the record of an operation inside a transaction of a store.

Each loads the record, asks ``cmdx.operations.table`` what becomes of it, and stores
that. A unit may run twice, so it touches nothing but its statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cmdx.operations import table
from cmdx.operations.records import (
    insert_record,
    load_record,
    peek_record,
    seal_record,
    write_record,
)
from cmdx.operations.table import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.operations.records import Key
    from cmdx.operations.table import Decision, Ending, OperationRecord, Request
    from cmdx.stores import Statements

Unit: TypeAlias = "Callable[[Statements], OperationRecord | None]"
"""What changes one record; it returns the changed one, None if it came too late."""


def looking_unit(
    request: Request, lease: float
) -> Callable[[Statements], Decision | None]:
    """Return what asks the table and only reads; None if something is to be stored."""

    def look(statements: Statements) -> Decision | None:
        record = peek_record(statements, request.session, request.id)
        if record is None:
            return None
        decision = table.decide(record, request, statements.now, lease)
        is_final = decision.record is record and decision.answer is not Answer.RUN
        return decision if is_final else None

    return look


def asking_unit(
    request: Request, lease: float, *, expects_none: bool
) -> Callable[[Statements], tuple[Decision, bool]]:
    """
    Return what asks the table, and stores what it says.

    It also returns whether it has ended an operation whose owner was lost. If nothing
    is to be changed, nothing is locked: replays must not wait for each other.

    Args:
        request: The attempt.
        lease: The seconds that its lease would hold.
        expects_none: Whether there probably is no record, so that looking first is
            not worth it.
    """

    def ask(statements: Statements) -> tuple[Decision, bool]:
        now, key = statements.now, (request.session, request.id)
        seen = None if expects_none else peek_record(statements, *key)
        if seen is not None:
            decision = table.decide(seen, request, now, lease)
            if decision.record is seen:
                return decision, False
        # Insert in any case: what was seen may be deleted by now.
        record, decision = None, table.decide(None, request, now, lease)
        if not insert_record(statements, decision.record):
            record = load_record(statements, *key)
            decision = table.decide(record, request, now, lease)
            write_record(statements, record, decision.record)
        return decision, table.has_lost_owner(record, decision.record)

    return ask


def sealing_unit(record: OperationRecord, outcome: str) -> Unit:
    """Return what seals an operation, if its owner has not lost it."""

    def seal(stored: OperationRecord | None, now: float) -> OperationRecord | None:
        return table.seal(stored, record.owner, outcome, now)

    load_and_seal = changing_unit((record.session, record.id), seal)

    def seal_as_known(statements: Statements) -> OperationRecord | None:
        sealed = table.with_outcome(record, outcome, statements.now)
        if seal_record(statements, sealed):
            return sealed
        return load_and_seal(statements)  # perhaps it was this very seal

    return seal_as_known


def ending_unit(key: Key, owner: str, ending: Ending) -> Unit:
    """Return what ends an operation that has no outcome."""

    def end(stored: OperationRecord | None, now: float) -> OperationRecord | None:
        return table.end_unsealed(stored, owner, ending, now)

    return changing_unit(key, end)


def cancelling_unit(key: Key) -> Unit:
    """Return what releases an operation that is live and does not persist."""
    return changing_unit(key, table.cancel)


def stopping_unit(key: Key, owner: str) -> Unit:
    """Return what lets others ask again after a recovery that found nothing."""

    def stop(stored: OperationRecord | None, _now: float) -> OperationRecord | None:
        return table.stop_recovery(stored, owner)

    return changing_unit(key, stop)


def changing_unit(
    key: Key,
    change: Callable[[OperationRecord | None, float], OperationRecord | None],
) -> Unit:
    """Return what loads a record, and stores and returns what *change* makes of it."""

    def load_and_write(statements: Statements) -> OperationRecord | None:
        stored = load_record(statements, *key)
        changed = change(stored, statements.now)
        write_record(statements, stored, changed)
        return changed

    return load_and_write
