"""
What becomes of an operation: pure functions from a record and an event to a record.

Nothing here reads a clock, a store or a task. ``decide`` is the table of duplicates:

=============  ======================  =====================================
state          idempotent              not idempotent
=============  ======================  =====================================
none           run                     run
live           attach                  attach
sealed         replay                  replay
released       run again               indeterminate
indeterminate  run again               recover if it can, else indeterminate
=============  ======================  =====================================

Before the table, in this order: another task or other inputs under the same id are a
conflict, whatever the state; an id whose outcome is no longer kept is refused. An
operation is live while its lease holds; the owner that let it run out counts as dead.

Whatever the policy, it runs again if nothing can have happened: it was to run within a
transaction that was not committed, or ``work`` was not called. A caller whose own run
was lost does not run again if that has used up its inputs.

The other functions return the record to be written, or None if the event comes too late
or from somebody else: ``seal``, ``end_unsealed``, ``cancel``, ``stop_recovery`` and
``beat``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cmdx.operations.policy import OperationPolicy

TOMBSTONES = 7
"""An id is refused for so many times ``keep`` after its outcome is gone."""


class OperationState(StrEnum):
    """Where an operation stands."""

    LIVE = "live"
    """An owner runs it."""
    RELEASED = "released"
    """It ended without an outcome, and may run again."""
    SEALED = "sealed"
    """Its outcome is recorded."""
    INDETERMINATE = "indeterminate"
    """Nobody can know whether its work was done."""
    EXPIRED = "expired"
    """Its outcome was kept for long enough, and is gone."""


class Answer(StrEnum):
    """What an attempt is to do."""

    RUN = "run"
    ATTACH = "attach"
    REPLAY = "replay"
    RECOVER = "recover"
    REFUSE_CONFLICT = "conflict"
    REFUSE_EXPIRED = "expired"
    REFUSE_CANCELLED = "cancelled"
    REFUSE_INDETERMINATE = "indeterminate"
    REFUSE_USED_INPUTS = "used inputs"


class Ending(StrEnum):
    """Why an operation ended without an outcome."""

    CANCELLED = "cancelled"
    """It was cancelled, or its run was interrupted."""
    LOST = "lost"
    """Its lease ran out: the owner has died or was cut off."""
    DELETED = "deleted"
    """Its record was gone when its run ended."""
    RAISED = "raised"
    """It raised, and only decided outcomes are sealed."""
    WITHDRAWN = "withdrawn"
    """Its caller left before ``work`` was called."""
    TRANSACTION_ENDED = "transaction ended"
    """``work`` ended the transaction, which the ledger was to commit with the seal."""


class Request(NamedTuple):
    """An attempt to run an operation."""

    session: str
    id: str
    task: str
    module: str
    fingerprint: str
    policy: OperationPolicy
    owner: str
    """The token that this attempt would own the operation with."""
    has_streams: bool = False
    is_transactional: bool = False
    """Whether its work and its seal are one transaction."""
    can_recover: bool = False
    attached_to: str | None = None
    """The owner that it has waited for so far, perhaps itself."""
    has_seen_recovery: bool = False
    """Whether it has waited for a recovery."""
    has_run: bool = False
    """Whether it was the owner once, and may have called ``work``."""
    has_used_inputs: bool = False
    """Whether its inputs cannot be used a second time, as those that are streams."""


class OperationRecord(NamedTuple):
    """An operation as it is stored."""

    session: str
    id: str
    task: str
    module: str
    fingerprint: str
    persist: bool
    idempotent: bool
    seal: str
    keep: float
    has_streams: bool
    has_no_effect_unsealed: bool
    """Whether nothing has happened as long as it is not sealed: its work and its seal
    are one transaction, or ``work`` was not called. Its column is older, and is called
    ``is_transactional``."""
    state: OperationState
    owner: str
    """The token of who runs it, or ran it last."""
    lease: float
    """Until when the owner is alive, or, if it is indeterminate, is recovering it."""
    executions: int
    outcome: str | None
    """The result as JSON, once it is sealed."""
    ending: str | None
    """Why it ended without an outcome, an ``Ending``."""
    admitted_at: float
    sealed_at: float | None
    expires_at: float | None
    """Until when its outcome is kept, or, if it is expired, its tombstone."""


class Decision(NamedTuple):
    """What to do, and the record as it is to be stored."""

    answer: Answer
    record: OperationRecord


def decide(
    record: OperationRecord | None, request: Request, now: float, lease: float
) -> Decision:
    """Decide what becomes of an attempt."""
    if record is None or is_forgotten(record, now):
        return decide_unknown(request, now, lease)
    if (record.task, record.fingerprint) != (request.task, request.fingerprint):
        return Decision(Answer.REFUSE_CONFLICT, record)
    if record.state is OperationState.LIVE and record.owner == request.owner:
        # It was admitted, but the store could not say so, perhaps for long.
        is_held = record.lease > now
        kept = record if is_held else record._replace(lease=now + lease)
        return Decision(Answer.RUN, kept)
    record = end_lease(record, now)
    if is_expired(record, now):
        return Decision(Answer.REFUSE_EXPIRED, record)
    if record.state is OperationState.SEALED:
        return Decision(Answer.REPLAY, record)
    if record.state is OperationState.LIVE:
        return Decision(Answer.ATTACH, record)
    return decide_unsealed(record, request, now, lease)


def decide_unknown(request: Request, now: float, lease: float) -> Decision:
    """Decide about an operation of which there is no record, or no more."""
    admitted = new_record(request, now, lease)
    if not request.has_run:
        return Decision(Answer.RUN, admitted)
    ended = end_without_outcome(admitted, Ending.DELETED, now)
    if not (request.policy.idempotent or request.is_transactional):
        return Decision(Answer.REFUSE_INDETERMINATE, ended)
    if request.has_used_inputs:
        return Decision(Answer.REFUSE_USED_INPUTS, ended)
    return Decision(Answer.RUN, admitted)


def decide_unsealed(
    record: OperationRecord, request: Request, now: float, lease: float
) -> Decision:
    """Decide about an operation that ended without an outcome."""
    was_attached = record.owner == request.attached_to
    if was_attached and record.ending == Ending.CANCELLED:
        return Decision(refusal_after_cancel(record), record)
    if record.idempotent or record.has_no_effect_unsealed:
        if request.has_used_inputs:
            return Decision(Answer.REFUSE_USED_INPUTS, record)
        return Decision(Answer.RUN, admit_again(record, request, now, lease))
    is_recoverable = record.state is OperationState.INDETERMINATE
    if not is_recoverable or not request.can_recover:
        return Decision(Answer.REFUSE_INDETERMINATE, record)
    if record.lease > now:  # somebody else is asking
        return Decision(Answer.ATTACH, record)
    if request.has_seen_recovery:
        return Decision(Answer.REFUSE_INDETERMINATE, record)
    return Decision(Answer.RECOVER, record._replace(lease=now + lease))


def refusal_after_cancel(record: OperationRecord) -> Answer:
    """Return what the owner and those attached to it are told."""
    may_have_happened = not record.has_no_effect_unsealed
    if record.state is OperationState.INDETERMINATE and may_have_happened:
        return Answer.REFUSE_INDETERMINATE
    return Answer.REFUSE_CANCELLED


def new_record(request: Request, now: float, lease: float) -> OperationRecord:
    """Return the record of an operation that begins."""
    policy = request.policy
    return OperationRecord(
        session=request.session,
        id=request.id,
        task=request.task,
        module=request.module,
        fingerprint=request.fingerprint,
        persist=policy.persist,
        idempotent=policy.idempotent,
        seal=policy.seal,
        keep=policy.keep,
        has_streams=request.has_streams,
        has_no_effect_unsealed=request.is_transactional,
        state=OperationState.LIVE,
        owner=request.owner,
        lease=now + lease,
        executions=1,
        outcome=None,
        ending=None,
        admitted_at=now,
        sealed_at=None,
        expires_at=None,
    )


def admit_again(
    record: OperationRecord, request: Request, now: float, lease: float
) -> OperationRecord:
    """Return the record of an operation that runs once more, with another owner."""
    return record._replace(
        state=OperationState.LIVE,
        owner=request.owner,
        lease=now + lease,
        executions=record.executions + 1,
        has_no_effect_unsealed=request.is_transactional,
        ending=None,
        expires_at=None,
    )


def end_lease(record: OperationRecord, now: float) -> OperationRecord:
    """Return *record*; if its lease ran out, as its owner left it by dying."""
    if record.state is not OperationState.LIVE or record.lease > now:
        return record
    return end_without_outcome(record, Ending.LOST, now)


def end_without_outcome(
    record: OperationRecord, ending: Ending, now: float
) -> OperationRecord:
    """Return the record of an operation about whose outcome nothing is known."""
    is_ambiguous = record.has_streams and not record.idempotent
    is_indeterminate = record.persist or is_ambiguous
    state = (
        OperationState.INDETERMINATE if is_indeterminate else OperationState.RELEASED
    )
    return record._replace(
        state=state, ending=ending, lease=0.0, expires_at=now + record.keep
    )


def seal(
    record: OperationRecord | None, owner: str, outcome: str, now: float
) -> OperationRecord | None:
    """Record the outcome for good; the owner may do so while its token stands."""
    if record is None or record.owner != owner:
        return None
    if record.state is OperationState.SEALED:
        # Its own seal, whose commit the store could not confirm.
        return record if record.outcome == outcome else None
    if record.state not in (OperationState.LIVE, OperationState.INDETERMINATE):
        return None
    return with_outcome(record, outcome, now)


def with_outcome(record: OperationRecord, outcome: str, now: float) -> OperationRecord:
    """Return the record of an operation that is sealed at *now*."""
    return record._replace(
        state=OperationState.SEALED,
        outcome=outcome,
        ending=None,
        lease=0.0,
        sealed_at=now,
        expires_at=now + record.keep,
    )


def end_unsealed(
    record: OperationRecord | None, owner: str, ending: Ending, now: float
) -> OperationRecord | None:
    """End an operation whose run gave no outcome."""
    is_live = record is not None and record.state is OperationState.LIVE
    if record is None or not is_live or record.owner != owner:
        return None
    if ending is Ending.TRANSACTION_ENDED:
        record = record._replace(has_no_effect_unsealed=False)
    ended = end_without_outcome(record, ending, now)
    if ending is not Ending.WITHDRAWN:
        return ended
    # Nothing has happened, whatever the policy, so it may run again.
    return ended._replace(
        state=OperationState.RELEASED,
        has_no_effect_unsealed=True,
        executions=record.executions - 1,
    )


def cancel(record: OperationRecord | None, now: float) -> OperationRecord | None:
    """Release a live operation that does not persist."""
    if record is None or record.persist:
        return None
    if end_lease(record, now).state is not OperationState.LIVE:
        return None
    return end_without_outcome(record, Ending.CANCELLED, now)


def stop_recovery(record: OperationRecord | None, owner: str) -> OperationRecord | None:
    """Let others ask again after a recovery that found nothing."""
    is_own = record is not None and record.owner == owner
    if record is None or not is_own or record.state is not OperationState.INDETERMINATE:
        return None
    return record._replace(lease=0.0)


def beat(
    record: OperationRecord | None,
    owner: str,
    now: float,
    lease: float,
    *,
    is_recovery: bool = False,
) -> OperationRecord | None:
    """Extend the lease of the owner, or of a recovery."""
    if record is None or record.owner != owner:
        return None
    expected = OperationState.INDETERMINATE if is_recovery else OperationState.LIVE
    was_stopped = is_recovery and record.lease == 0.0
    if record.state is not expected or was_stopped:
        return None
    return record._replace(lease=now + lease)


def is_taken(record: OperationRecord, owner: str) -> bool:
    """Tell whether *owner* cannot seal the operation any more: it has lost it."""
    return record.owner != owner or record.state is OperationState.RELEASED


def present_state(record: OperationRecord, now: float) -> OperationRecord:
    """Return *record* as it stands at *now*, whether anybody has stored that or not."""
    if is_expired(record, now):
        return record._replace(state=OperationState.EXPIRED)
    return end_lease(record, now)


def has_lost_owner(before: OperationRecord | None, after: OperationRecord) -> bool:
    """Tell whether a decision has ended an operation that its owner could not end."""
    if before is None:
        return after.ending == Ending.DELETED
    return before.state is OperationState.LIVE and after.ending == Ending.LOST


def is_expired(record: OperationRecord, now: float) -> bool:
    """Tell whether the outcome is no longer kept; a live operation never expires."""
    if record.state is OperationState.EXPIRED:
        return True
    return record.expires_at is not None and record.expires_at <= now


def is_forgotten(record: OperationRecord, now: float) -> bool:
    """Tell whether even the tombstone of an expired operation is gone."""
    if record.expires_at is None:
        return False
    if record.state is OperationState.EXPIRED:
        return record.expires_at <= now
    return record.expires_at + record.keep * TOMBSTONES <= now
