"""The real ledger in simulated histories, and bugs that they find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("greenlet", reason="greenlet is in the dependency group tests")
sys.path.insert(0, str(Path(__file__).parent))

from ledger_world import Broken, History

from cmdx.operations import lifecycle, records, table
from cmdx.operations.table import Answer, Decision, OperationState

HISTORIES = 2_000
UNTIL_FOUND = 1_500


def test_no_history_breaks_what_is_promised():
    killed = sum(History(seed).run().world.killed for seed in range(HISTORIES))
    assert killed > HISTORIES / 4  # the histories are not peaceful


def test_one_seed_is_one_history():
    for seed in range(20):
        first, second = History(seed).run(), History(seed).run()
        assert (first.world.points, first.told) == (second.world.points, second.told)


# -- planted bugs ----------------------------------------------------------------------


def any_owner_may_seal(monkeypatch):
    seal = table.seal

    def plant(record, owner, outcome, now):
        stands = record is not None and record.state is OperationState.LIVE
        return seal(record, record.owner if stands else owner, outcome, now)

    monkeypatch.setattr(table, "seal", plant)


def tell_though_fenced_off(monkeypatch):
    seal_outcome = lifecycle.seal_outcome

    async def plant(call, mode, record, result, execution):
        answer = await seal_outcome(call, mode, record, result, execution)
        return result if answer is None else answer

    monkeypatch.setattr(lifecycle, "seal_outcome", plant)


def take_over_when_the_lease_is_over(monkeypatch):
    decide = table.decide

    def plant(record, request, now, lease):
        is_dead = record is not None and record.state is OperationState.LIVE
        if is_dead and record.lease <= now:
            again = table.admit_again(record, request, now, lease)
            return Decision(Answer.RUN, again)
        return decide(record, request, now, lease)

    monkeypatch.setattr(table, "decide", plant)


def tell_before_sealing(monkeypatch):
    async def plant(_call, mode, _record, result, _owned_run):
        mode.store.world.point()
        return result

    monkeypatch.setattr(lifecycle, "seal_outcome", plant)


def run_again_what_was_released(monkeypatch):
    decide_unsealed = table.decide_unsealed

    def plant(record, request, now, lease):
        lax = record._replace(idempotent=True)
        return decide_unsealed(lax, request, now, lease)

    monkeypatch.setattr(table, "decide_unsealed", plant)


def forget_what_is_live(monkeypatch):
    is_forgotten = table.is_forgotten

    def plant(record, now):
        is_old = record.admitted_at + 20 < now
        return is_old or is_forgotten(record, now)

    monkeypatch.setattr(table, "is_forgotten", plant)


def seal_what_was_released(monkeypatch):
    seal = table.seal

    def plant(record, owner, outcome, now):
        if record is not None and record.state is OperationState.RELEASED:
            record = record._replace(state=OperationState.LIVE, owner=owner)
        return seal(record, owner, outcome, now)

    monkeypatch.setattr(table, "seal", plant)


def seal_without_naming_the_owner(monkeypatch):
    seal = records.SEAL.replace("and owner = :owner", "")
    assert seal != records.SEAL
    monkeypatch.setattr(records, "SEAL", seal)


def admit_in_two_transactions(monkeypatch):
    async def plant(call, mode):
        request, lease = call.request, call.ledger.lease

        def read(statements):
            record = records.load_record(statements, request.session, request.id)
            return record, table.decide(record, request, statements.now, lease)

        def write(statements):
            if record is None:
                records.insert_record(statements, decision.record)
            else:
                records.write_record(statements, record, decision.record)

        record, decision = await mode.transact(read)
        await mode.transact(write)
        return decision

    monkeypatch.setattr(lifecycle, "admit", plant)


BUGS = [
    any_owner_may_seal,
    tell_though_fenced_off,
    take_over_when_the_lease_is_over,
    tell_before_sealing,
    run_again_what_was_released,
    forget_what_is_live,
    seal_what_was_released,
    seal_without_naming_the_owner,
    admit_in_two_transactions,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(Broken):
        for seed in range(UNTIL_FOUND):
            History(seed).run()
