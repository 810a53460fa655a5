"""
Bugs to be planted into the ledger, which prove that the kills can find some.

They are planted before the first fork, so all processes have them.
"""

from __future__ import annotations

import json
from threading import local

from cmdx.operations import lifecycle, table, within
from cmdx.operations.answers import with_operation
from cmdx.wire import dump_result


def run_again():
    """Run again what has ended without an outcome, as if it was idempotent."""
    decide_unsealed = table.decide_unsealed

    def plant(record, request, now, lease):
        lax = record._replace(idempotent=True)
        return decide_unsealed(lax, request, now, lease)

    table.decide_unsealed = plant


def tell_before_seal():
    """Tell an outcome at once, and seal it with the next call of the same thread."""
    own = local()
    admit, seal_outcome = lifecycle.admit, lifecycle.seal_outcome

    async def plant(call, mode, record, result, owned_run):
        if call.transaction is not None:
            return await seal_outcome(call, mode, record, result, owned_run)
        outcome = json.dumps(dump_result(result))
        own.unsealed = lifecycle.sealing_unit(record, outcome)
        return with_operation(call, result, record)

    async def admit_later(call, mode):
        unsealed, own.unsealed = getattr(own, "unsealed", None), None
        if unsealed is not None:
            await mode.transact(unsealed)
        return await admit(call, mode)

    lifecycle.seal_outcome = plant
    lifecycle.admit = admit_later


def seal_apart():
    """Commit the transaction of the user, and seal the operation in another one."""
    seal = within.Transaction.seal

    async def plant(self, record, result, now):
        await self.connection.execute("commit")
        await self.connection.begin(awaits=False)
        return await seal(self, record, result, now)

    within.Transaction.seal = plant


PLANTS = {
    "run-again": run_again,
    "tell-before-seal": tell_before_seal,
    "seal-apart": seal_apart,
}
