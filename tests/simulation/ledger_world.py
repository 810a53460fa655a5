"""
Histories of operations: callers in several processes, the real ledger, kills and jumps.

What must hold in each of them:

1. what is not idempotent has at most one effect
2. all who are told an outcome are told the same one
3. whoever is told an outcome was told after it was sealed
4. the sealed outcome is that of the last owner
5. an operation that is live is never evicted
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial

from greenlet import getcurrent
from world import Process, World, WorldStore, new_store

from cmdx import Task
from cmdx.operations import (
    Ledger,
    OperationPolicy,
    leases,
    operation,
    operation_admitted,
)
from cmdx.operations.leases import LeaseKeeper
from cmdx.operations.records import load_record
from cmdx.stores import StoreUnavailable
from cmdx.wire import load_result

LEASE = 30.0
PROCESSES = 3
CALLERS = 3
"""In each process, beside the one that extends the leases."""
IDS = ("a", "b")


class Broken(AssertionError):
    """An invariant does not hold."""


POLICIES = [
    OperationPolicy(persist=persist, idempotent=idempotent, keep=200.0)
    for persist in (False, True)
    for idempotent in (False, True)
]


def effect_class(policy):
    """Return the task with a policy; the history it belongs to is no part of it."""
    number = POLICIES.index(policy)

    @operation(persist=policy.persist, idempotent=policy.idempotent, keep=policy.keep)
    class Charge(Task[dict], name=f"simulated.charge{number}"):
        key: str

        def work(self):
            return History.current.work(self.key)

    return Charge


CLASSES = {policy: effect_class(policy) for policy in POLICIES}
STORE = new_store()


class LedgerStore(WorldStore):
    """Reads are points as well."""

    def transact(self, unit, *, read_only=False, **options):
        del read_only
        return super().transact(unit, **options)


class QuietKeeper(LeaseKeeper):
    """Has no thread: an actor of the world beats it."""

    def _wake_thread(self):
        return None

    def is_busy(self):
        return bool(self._runs or self._late)


class History:
    """One seed."""

    current = None
    counted = "answers"

    def __init__(self, seed, **options):
        self.seed = seed
        self.world = World(seed, longest_jump=LEASE * 1.3, **options)
        self.store = LedgerStore(self.world, STORE)
        self.session = f"seed {seed}"
        self.policies = {key: self.world.random.choice(POLICIES) for key in IDS}
        self.effects = Counter()
        self.told = defaultdict(list)

    @property
    def count(self):
        return sum(map(len, self.told.values()))

    def run(self):
        """Let it happen, and check what must hold."""
        History.current = self
        real, leases.Clock = leases.Clock, self.world.clock
        operation_admitted.connect(self.note_admitted)
        try:
            for number in range(PROCESSES):
                self.start_process(Process(self.world, number))
            self.world.run()
            for key in IDS:
                self.check(key)
        finally:
            leases.Clock = real
            operation_admitted.disconnect(self.note_admitted)
            self.clean()
        return self

    def note_admitted(self, _sender, operation, **_payload):
        """Remember which execution the actor is about to begin."""
        getcurrent().execution = operation.executions

    def start_process(self, process):
        ledger = Ledger(STORE, lease=LEASE)
        ledger.store, ledger.lease_keeper = self.store, QuietKeeper()
        ledger.has_file = self.world.random.random() < 0.5
        keys = self.world.random.choices(IDS, k=CALLERS)
        callers = [process.start(partial(self.call, ledger, key)) for key in keys]
        process.start(lambda: self.beat(ledger.lease_keeper, callers))

    def beat(self, keeper, callers):
        while not all(caller.dead for caller in callers) or keeper.is_busy():
            keeper.do_what_is_due(self.world.now)
            self.world.point(LEASE / 3)

    def call(self, ledger, key):
        for _ in range(self.world.random.randint(0, 3)):
            self.world.point(self.world.random.random() * LEASE)
        session = ledger.session(self.session)
        if self.world.random.random() < 0.1:
            with suppress(StoreUnavailable):
                session.cancel(key)
        task = CLASSES[self.policies[key]](key=key)
        result = session.run(task, id=key)
        if result.success:
            self.note_told(key, result.value)

    def work(self, key):
        self.world.point()
        self.effects[key] += 1
        self.world.point()
        for _ in range(self.world.random.randint(0, 3)):
            self.world.point(LEASE * self.world.random.random() * 0.7)
        return {"receipt": key, "execution": getcurrent().execution}

    def note_told(self, key, value):
        """Remember what a caller was told, and look whether it was sealed by then."""
        self.told[key].append(value)
        record = self.record_of(key)
        if record is None or record.sealed_at is None:  # it may have expired since
            raise Broken(self.seed, key, "told before it was sealed", record)

    def record_of(self, key):
        return STORE.transact(lambda rows: load_record(rows, self.session, key))

    def check(self, key):
        policy, told = self.policies[key], self.told[key]
        if not policy.idempotent and self.effects[key] > 1:
            raise Broken(self.seed, key, "more than one effect", self.effects[key])
        if any(value != told[0] for value in told):
            raise Broken(self.seed, key, "two answers", told)
        record = self.record_of(key)
        if record is not None and record.state == "sealed":
            self.check_sealed(key, record)
        if self.effects[key] and record is None:
            raise Broken(self.seed, key, "evicted while it was needed", None)

    def check_sealed(self, key, record):
        value = load_result(json.loads(record.outcome)).value
        if value["execution"] != record.executions:
            raise Broken(self.seed, key, "sealed by an earlier owner", value)

    def clean(self):
        STORE.transact(
            lambda rows: rows.execute(
                "delete from cmdx_operation where session = :session",
                session=self.session,
            )
        )
