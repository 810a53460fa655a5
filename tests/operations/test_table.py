"""
The decisions about operations, each combination of facts once.

The expectations are the table of R-001-22 written out; nothing here needs a store.
"""

from __future__ import annotations

from itertools import product

import pytest

from cmdx.operations import OperationPolicy, OperationState
from cmdx.operations.table import (
    Answer,
    Ending,
    OperationRecord,
    Request,
    beat,
    cancel,
    decide,
    end_lease,
    end_unsealed,
    is_expired,
    is_forgotten,
    is_taken,
    new_record,
    present_state,
    seal,
    stop_recovery,
)

NOW = 1_000.0
LEASE = 30.0
KEEP = 100.0

LIVE, RELEASED, SEALED, INDETERMINATE, EXPIRED = (
    OperationState.LIVE,
    OperationState.RELEASED,
    OperationState.SEALED,
    OperationState.INDETERMINATE,
    OperationState.EXPIRED,
)


def request(**changes):
    policy = OperationPolicy(
        persist=changes.pop("persist", False),
        idempotent=changes.pop("idempotent", False),
        keep=KEEP,
    )
    facts = {
        "session": "s",
        "id": "charge-7",
        "task": "shop:Charge",
        "module": "shop",
        "fingerprint": "abc",
        "policy": policy,
        "owner": "me",
    }
    return Request(**facts | changes)


def record(state=LIVE, **changes):
    lease = NOW + 10 if state is LIVE else 0.0
    kept = None if state is LIVE else NOW + 50
    made = new_record(
        request(
            persist=changes.pop("persist", False),
            idempotent=changes.pop("idempotent", False),
            owner="first",
        ),
        NOW - 20,
        LEASE,
    )
    facts = {"state": state, "lease": lease, "expires_at": kept}
    return made._replace(**facts | changes)


# -- the table, exhaustively ---------------------------------------------------------

STATES = (None, *OperationState)
FLAGS = (False, True)

BY_STATE = {
    # state: (idempotent, not idempotent)
    None: (Answer.RUN, Answer.RUN),
    LIVE: (Answer.ATTACH, Answer.ATTACH),
    SEALED: (Answer.REPLAY, Answer.REPLAY),
    RELEASED: (Answer.RUN, Answer.REFUSE_INDETERMINATE),
    INDETERMINATE: (Answer.RUN, Answer.REFUSE_INDETERMINATE),
    EXPIRED: (Answer.REFUSE_EXPIRED, Answer.REFUSE_EXPIRED),
}


@pytest.mark.parametrize("is_same_payload", FLAGS, ids=["same", "other"])
@pytest.mark.parametrize("persist", FLAGS, ids=["volatile", "persist"])
@pytest.mark.parametrize("idempotent", FLAGS, ids=["once", "idempotent"])
@pytest.mark.parametrize("state", STATES, ids=str)
def test_r_001_22_every_state_answers_as_the_table_says(
    state, idempotent, persist, is_same_payload
):
    for lease_left, kept_left in product((-5.0, 0.0, 5.0), (-5.0, 0.0, 5.0)):
        stored = stored_operation(state, idempotent, persist, lease_left, kept_left)
        asked = request(
            persist=persist,
            idempotent=idempotent,
            fingerprint="abc" if is_same_payload else "other",
        )
        standing = standing_state(state, persist, lease_left, kept_left)
        expected = Answer.REFUSE_CONFLICT
        if is_same_payload or standing is None:
            expected = BY_STATE[standing][0 if idempotent else 1]
        found = decide(stored, asked, NOW, LEASE)
        assert (lease_left, kept_left, found.answer) == (
            lease_left,
            kept_left,
            expected,
        )
        check_record_after(stored if standing else None, asked, found)


def stored_operation(state, idempotent, persist, lease_left, kept_left):
    if state is None:
        return None
    made = record(state, idempotent=idempotent, persist=persist)
    if state is LIVE:
        return made._replace(lease=NOW + lease_left)
    return made._replace(expires_at=NOW + kept_left)


def standing_state(state, persist, lease_left, kept_left):
    """The row of the table that counts: an owner may have died, an outcome be gone."""
    if state is EXPIRED and kept_left <= 0:
        return None  # its tombstone is gone as well
    if state is LIVE and lease_left <= 0:
        return INDETERMINATE if persist else RELEASED
    if state not in (None, LIVE) and kept_left <= 0:
        return EXPIRED
    return state


def check_record_after(stored, asked, found):
    """What is written fits the answer, and what is refused changes nothing else."""
    written = found.record
    if found.answer is Answer.RUN:
        assert written.state is LIVE
        assert written.owner == asked.owner
        assert written.lease == NOW + LEASE
        assert written.executions == (1 if stored is None else stored.executions + 1)
        assert written.outcome is None
    elif stored.state is LIVE and found.answer is not Answer.REFUSE_CONFLICT:
        assert written == end_lease(stored, NOW)
    else:
        assert written is stored


def test_r_001_4_a_conflict_is_found_in_every_state_and_changes_nothing():
    for state, change in product(OperationState, ("task", "fingerprint")):
        stored = record(state)
        found = decide(stored, request(**{change: "another"}), NOW, LEASE)
        assert found == (Answer.REFUSE_CONFLICT, stored)


def test_r_001_4_a_conflict_is_found_before_the_outcome_counts_as_expired():
    stored = record(SEALED)._replace(expires_at=NOW - 1)
    found = decide(stored, request(fingerprint="other"), NOW, LEASE)
    assert found.answer is Answer.REFUSE_CONFLICT


def test_r_001_15_the_policy_at_admission_governs_later_attempts():
    once = record(RELEASED, idempotent=False)
    again = record(RELEASED, idempotent=True)
    says_idempotent, says_once = request(idempotent=True), request(idempotent=False)
    refused = decide(once, says_idempotent, NOW, LEASE)
    assert refused.answer is Answer.REFUSE_INDETERMINATE
    assert decide(again, says_once, NOW, LEASE).answer is Answer.RUN


def test_an_admission_that_the_store_could_not_confirm_is_admitted_once():
    stored = record(LIVE, owner="me")
    assert decide(stored, request(owner="me"), NOW, LEASE) == (Answer.RUN, stored)


def test_an_admission_that_the_store_confirms_late_is_admitted_with_a_new_lease():
    stored = record(LIVE, owner="me", persist=True, lease=NOW)
    found = decide(stored, request(owner="me"), NOW, LEASE)
    assert found == (Answer.RUN, stored._replace(lease=NOW + LEASE))


@pytest.mark.parametrize("is_transactional", FLAGS)
@pytest.mark.parametrize("idempotent", FLAGS)
@pytest.mark.parametrize("stored", [None, "forgotten"])
def test_r_001_20_who_has_run_it_runs_it_again_only_if_that_does_no_harm(
    stored, idempotent, is_transactional
):
    if stored is not None:
        stored = record(EXPIRED, expires_at=NOW)
    asked = request(
        has_run=True,
        persist=True,
        idempotent=idempotent,
        is_transactional=is_transactional,
    )
    found = decide(stored, asked, NOW, LEASE)
    if idempotent or is_transactional:
        assert found.answer is Answer.RUN
        return
    assert found.answer is Answer.REFUSE_INDETERMINATE
    assert (found.record.state, found.record.ending) == (INDETERMINATE, Ending.DELETED)
    newcomer = decide(found.record, request(owner="another"), NOW, LEASE)
    assert newcomer.answer is Answer.REFUSE_INDETERMINATE


def test_r_001_47_an_ambiguous_run_with_streams_is_indeterminate_unless_idempotent():
    for idempotent, state in ((False, INDETERMINATE), (True, RELEASED)):
        stored = record(LIVE, idempotent=idempotent, has_streams=True)
        assert end_unsealed(stored, "first", Ending.CANCELLED, NOW).state is state
        dead = stored._replace(lease=NOW)
        assert end_lease(dead, NOW).state is state


def test_what_runs_in_the_transaction_of_its_seal_may_run_again():
    for state in (RELEASED, INDETERMINATE):
        stored = record(state, has_no_effect_unsealed=True, persist=True)
        found = decide(stored, request(is_transactional=True), NOW, LEASE)
        assert found.answer is Answer.RUN
        assert found.record.executions == 2


# -- recovery --------------------------------------------------------------------------


def test_an_indeterminate_operation_is_recovered_by_one_caller_at_a_time():
    stored = record(INDETERMINATE, persist=True)
    first = decide(stored, request(can_recover=True), NOW, LEASE)
    assert first.answer is Answer.RECOVER
    assert first.record == stored._replace(lease=NOW + LEASE)
    second = decide(first.record, request(can_recover=True), NOW + 1, LEASE)
    assert second == (Answer.ATTACH, first.record)
    late = decide(first.record, request(can_recover=True), NOW + LEASE, LEASE)
    assert late.answer is Answer.RECOVER


def test_who_waited_for_a_recovery_that_found_nothing_does_not_ask_again():
    stored = stop_recovery(record(INDETERMINATE, persist=True, lease=NOW + 5), "first")
    waited = request(can_recover=True, has_seen_recovery=True)
    assert decide(stored, waited, NOW, LEASE).answer is Answer.REFUSE_INDETERMINATE
    assert decide(stored, request(can_recover=True), NOW, LEASE).answer is (
        Answer.RECOVER
    )


@pytest.mark.parametrize("state", [RELEASED, SEALED, LIVE])
def test_only_what_is_indeterminate_is_recovered(state):
    found = decide(record(state), request(can_recover=True), NOW, LEASE)
    assert found.answer is not Answer.RECOVER


def test_an_idempotent_operation_runs_again_rather_than_recover():
    stored = record(INDETERMINATE, persist=True, idempotent=True)
    found = decide(stored, request(can_recover=True), NOW, LEASE)
    assert found.answer is Answer.RUN


# -- sealing ---------------------------------------------------------------------------


def test_r_001_28_only_the_owner_seals_and_only_once():
    stored = record(LIVE)
    assert seal(stored, "second", "{}", NOW) is None
    sealed = seal(stored, "first", "{}", NOW)
    assert (sealed.state, sealed.outcome) == (SEALED, "{}")
    assert (sealed.sealed_at, sealed.expires_at) == (NOW, NOW + KEEP)
    assert seal(sealed, "first", '{"other": 1}', NOW) is None
    assert seal(sealed, "second", "{}", NOW) is None
    assert seal(None, "first", "{}", NOW) is None


def test_a_seal_that_the_store_could_not_confirm_counts_as_sealed():
    sealed = seal(record(LIVE), "first", "{}", NOW)
    assert seal(sealed, "first", "{}", NOW + 9) is sealed


def test_r_001_8_an_owner_whose_token_still_stands_seals_what_is_indeterminate():
    stored = end_lease(record(LIVE, persist=True), NOW + 99)
    assert stored.state is INDETERMINATE
    assert seal(stored, "first", "{}", NOW).state is SEALED


def test_r_001_25_after_another_run_began_the_old_owner_seals_no_more():
    stored = record(RELEASED, idempotent=True)
    again = decide(stored, request(idempotent=True), NOW, LEASE).record
    assert seal(again, "first", "{}", NOW) is None
    assert seal(again, "me", "{}", NOW).state is SEALED


def test_r_001_33_a_release_that_beats_the_seal_wins_and_the_reverse():
    stored = record(LIVE)
    released = cancel(stored, NOW)
    assert seal(released, "first", "{}", NOW) is None
    sealed = seal(stored, "first", "{}", NOW)
    assert cancel(sealed, NOW) is None
    assert end_unsealed(sealed, "first", Ending.CANCELLED, NOW) is None


# -- releasing, cancelling, beating ----------------------------------------------------


def test_r_001_29_a_run_without_an_answer_is_released_or_indeterminate():
    volatile = end_unsealed(record(LIVE), "first", Ending.CANCELLED, NOW)
    assert (volatile.state, volatile.ending) == (RELEASED, Ending.CANCELLED)
    assert volatile.expires_at == NOW + KEEP
    persisted = end_unsealed(record(LIVE, persist=True), "first", Ending.CANCELLED, NOW)
    assert persisted.state is INDETERMINATE


@pytest.mark.parametrize("state", [RELEASED, SEALED, INDETERMINATE, EXPIRED], ids=str)
def test_only_what_is_live_is_released_cancelled_or_beaten(state):
    stored = record(state)
    assert end_unsealed(stored, "first", Ending.RAISED, NOW) is None
    assert cancel(stored, NOW) is None
    assert beat(stored, "first", NOW, LEASE) is None


def test_r_001_34_cancelling_what_is_not_known_changes_nothing():
    assert cancel(None, NOW) is None
    assert end_unsealed(None, "first", Ending.CANCELLED, NOW) is None
    assert beat(None, "first", NOW, LEASE) is None


def test_r_001_31_what_persists_is_not_cancelled():
    assert cancel(record(LIVE, persist=True), NOW) is None


def test_an_operation_whose_owner_has_died_is_not_cancelled():
    assert cancel(record(LIVE, lease=NOW), NOW) is None


def test_r_001_30_the_owner_and_those_attached_are_told_of_the_cancel():
    released = cancel(record(LIVE), NOW)
    for idempotent in FLAGS:
        stored = released._replace(idempotent=idempotent)
        attached = request(attached_to="first")
        assert decide(stored, attached, NOW, LEASE).answer is Answer.REFUSE_CANCELLED
        newcomer = decide(stored, request(), NOW, LEASE).answer
        expected = Answer.RUN if idempotent else Answer.REFUSE_INDETERMINATE
        assert newcomer is expected


def test_r_001_29_those_who_wait_for_what_persists_hear_that_nobody_knows():
    stored = end_unsealed(record(LIVE, persist=True), "first", Ending.CANCELLED, NOW)
    attached = decide(stored, request(attached_to="first"), NOW, LEASE)
    assert attached.answer is Answer.REFUSE_INDETERMINATE


def test_r_001_29_those_who_wait_for_what_left_nothing_hear_of_the_interrupt():
    """A newcomer may run it, so nobody is told that it may have happened."""
    stored = record(LIVE, persist=True, has_no_effect_unsealed=True)
    ended = end_unsealed(stored, "first", Ending.CANCELLED, NOW)
    attached = decide(ended, request(attached_to="first"), NOW, LEASE)
    assert attached.answer is Answer.REFUSE_CANCELLED
    assert decide(ended, request(), NOW, LEASE).answer is Answer.RUN


def test_those_attached_to_an_owner_that_died_may_run_what_is_idempotent():
    dead = record(LIVE, idempotent=True, lease=NOW)
    found = decide(dead, request(attached_to="first"), NOW, LEASE)
    assert found.answer is Answer.RUN


def test_a_beat_extends_the_lease_of_the_owner_alone():
    stored = record(LIVE)
    assert beat(stored, "first", NOW, LEASE).lease == NOW + LEASE
    assert beat(stored, "second", NOW, LEASE) is None


def test_stopping_a_recovery_is_for_those_who_hold_it():
    stored = record(INDETERMINATE, lease=NOW + 5)
    assert stop_recovery(stored, "first").lease == 0.0
    assert stop_recovery(stored, "second") is None
    assert stop_recovery(record(SEALED), "first") is None
    assert stop_recovery(None, "first") is None


# -- lifetime --------------------------------------------------------------------------


def test_r_001_43_what_is_live_never_expires():
    stored = record(LIVE, lease=NOW + 1)
    for later in (NOW, NOW + 10 * KEEP):
        assert not is_expired(stored, later)
        assert not is_forgotten(stored, later)


def test_r_001_45_an_expired_id_is_refused_until_its_tombstone_is_gone():
    sealed = seal(record(LIVE), "first", "{}", NOW)
    times = {
        NOW + KEEP - 1: Answer.REPLAY,
        NOW + KEEP: Answer.REFUSE_EXPIRED,
        NOW + KEEP * 8 - 1: Answer.REFUSE_EXPIRED,
        NOW + KEEP * 8: Answer.RUN,
    }
    answers = {now: decide(sealed, request(), now, LEASE).answer for now in times}
    assert answers == times


def test_r_001_42_what_ended_without_an_outcome_is_kept_as_long():
    for ended in (
        end_unsealed(record(LIVE), "first", Ending.RAISED, NOW),
        cancel(record(LIVE), NOW),
        end_lease(record(LIVE, lease=NOW), NOW),
    ):
        assert ended.expires_at == NOW + KEEP


def test_a_record_says_all_that_a_request_said():
    made = new_record(request(persist=True, has_streams=True), NOW, LEASE)
    assert made == OperationRecord(
        session="s",
        id="charge-7",
        task="shop:Charge",
        module="shop",
        fingerprint="abc",
        persist=True,
        idempotent=False,
        seal="all",
        keep=KEEP,
        has_streams=True,
        has_no_effect_unsealed=False,
        state=LIVE,
        owner="me",
        lease=NOW + LEASE,
        executions=1,
        outcome=None,
        ending=None,
        admitted_at=NOW,
        sealed_at=None,
        expires_at=None,
    )


# -- withdrawing, and looking ----------------------------------------------------------


def test_what_was_withdrawn_before_work_was_called_may_run_whatever_its_policy():
    for persist in FLAGS:
        stored = record(LIVE, persist=persist)
        withdrawn = end_unsealed(stored, "first", Ending.WITHDRAWN, NOW)
        assert (withdrawn.state, withdrawn.executions) == (RELEASED, 0)
        found = decide(withdrawn, request(persist=persist), NOW, LEASE)
        assert (found.answer, found.record.executions) == (Answer.RUN, 1)


def test_only_the_owner_of_what_is_live_withdraws():
    assert end_unsealed(record(LIVE), "second", Ending.WITHDRAWN, NOW) is None
    assert end_unsealed(record(SEALED), "first", Ending.WITHDRAWN, NOW) is None
    assert end_unsealed(None, "first", Ending.WITHDRAWN, NOW) is None


def test_a_recovery_has_a_lease_of_its_own():
    asked = record(INDETERMINATE, lease=NOW + 1)
    assert beat(asked, "first", NOW, LEASE, is_recovery=True).lease == NOW + LEASE
    assert beat(asked, "second", NOW, LEASE, is_recovery=True) is None
    assert beat(asked, "first", NOW, LEASE) is None
    assert beat(record(LIVE), "first", NOW, LEASE, is_recovery=True) is None
    stopped = stop_recovery(asked, "first")
    assert beat(stopped, "first", NOW, LEASE, is_recovery=True) is None


def test_an_owner_has_lost_what_another_one_has_or_what_was_released():
    for state in (LIVE, INDETERMINATE, SEALED):
        assert not is_taken(record(state), "first")
        assert is_taken(record(state), "second")
    assert is_taken(record(RELEASED), "first")


def test_a_transaction_that_work_has_ended_proves_nothing():
    stored = record(LIVE, has_no_effect_unsealed=True)
    ended = end_unsealed(stored, "first", Ending.TRANSACTION_ENDED, NOW)
    found = decide(ended, request(is_transactional=True), NOW, LEASE)
    assert found.answer is Answer.REFUSE_INDETERMINATE


def test_a_record_is_shown_as_it_stands_whether_that_is_stored_or_not():
    assert present_state(record(LIVE), NOW).state is LIVE
    assert present_state(record(LIVE, lease=NOW), NOW).state is RELEASED
    assert present_state(record(SEALED), NOW).state is SEALED
    assert present_state(record(SEALED, expires_at=NOW), NOW).state is EXPIRED
