"""
Histories of jobs: producers, workers, schedules, kills, stalls and outages.

A worker is the real clerk: its rounds, leases and legs, with an actor in place of its
threads. What must hold in each history:

1. no job is lost: a worker that is left alone brings each of them to its end
2. what may not run twice has at most one effect, whatever dies
3. what is done has had an effect, and the stored value is that of its last owner
4. after each transaction, one job of a key may run, and it is the first of them
5. a schedule by interval has one job at a time
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial

from ledger_world import Broken
from world import Process, World, WorldStore, new_store

from cmdx import Task, retry_on
from cmdx.operations import operation
from cmdx.queue import Queue, clerk
from cmdx.queue.claims import Claims
from cmdx.queue.jobs import current_job
from cmdx.queue.legs import Leg, run_leg
from cmdx.queue.report import Demand
from cmdx.queue.table import JobState
from cmdx.run.lifecycle import drive
from cmdx.stores import StoreError
from cmdx.wire import load_result

LEASE = 30.0
WORKERS = 3
PRODUCERS = 2
JOBS = 4
"""Of each producer."""
KEYS = (None, None, "a", "b")

ENDED = {JobState.DONE, JobState.DEAD, JobState.CANCELLED}
STORE = new_store()


@retry_on(ConnectionError, limit=2, delay=5.0)
class Send(Task[str], name="simulated.send"):
    """May run again; fails now and then."""

    name: str

    def work(self):
        return History.current.work(self.name)


@operation(persist=True)
class SendOnce(Task[str], name="simulated.send_once"):
    """Must not run twice."""

    name: str

    def work(self):
        return History.current.work(self.name)


class QuietClaims(Claims):
    """Has no thread: an actor of the world extends its lease."""

    def __enter__(self):
        drive(self.register(awaits=False))
        return self


class CheckedStore(WorldStore):
    """Looks after each transaction whether all is in order."""

    def transact(self, unit, **options):
        def checked(statements):
            value = unit(statements)
            History.current.check_keys(statements)
            History.current.check_schedule(statements)
            History.current.note_owners(statements)
            return value

        return super().transact(checked, **options)


class History:
    """One seed."""

    current = None
    counted = "legs"

    def __init__(self, seed, **options):
        self.seed = seed
        self.world = World(seed, longest_jump=LEASE * 1.3, **options)
        self.random = self.world.random
        self.queue = Queue(STORE, f"seed {seed}", keep=1e9)
        self.queue.store = CheckedStore(self.world, STORE)
        self.enqueued = {}
        """The names of jobs whose commit was confirmed, with their ids."""
        self.effects = Counter()
        self.legs = 0
        self.owners = {}

    @property
    def count(self):
        return self.legs

    def run(self):
        """Let it happen, have a last worker finish it, and check what must hold."""
        History.current = self
        try:
            for number in range(PRODUCERS):
                process = Process(self.world, f"producer {number}")
                process.start(partial(self.produce, number))
            for number in range(WORKERS):
                process = Process(self.world, f"worker {number}")
                claims = QuietClaims(self.queue, LEASE)
                worker = process.start(partial(self.work_on, claims, 25))
                process.start(partial(self.beat, claims, worker))
            self.world.run()
            self.finish()
            self.check()
        finally:
            self.clean()
        return self

    # -- actors ---------------------------------------------------------------------

    def produce(self, number):
        for count in range(JOBS):
            self.world.point(self.random.random() * 10)
            name = f"{number}-{count}"
            kind = self.random.choice((Send, Send, SendOnce))
            options = {"key": self.random.choice(KEYS)}
            if self.random.random() < 0.2:
                options["after"] = self.random.random() * 40
            with suppress(StoreError):
                job = self.queue.enqueue(kind(name=name), **options)
                self.enqueued[name] = job.id
                if self.random.random() < 0.15:
                    self.world.point(self.random.random() * 20)
                    self.queue.cancel(job.id)
        with suppress(StoreError):
            self.queue.schedule(Send(name="tick"), every=15.0, id=f"s{self.seed}")

    def work_on(self, claims, rounds):
        ends = []
        with suppress(StoreError):
            claims.__enter__()
        for _ in range(rounds):
            demand = Demand(self.random.randint(1, 3))
            try:
                if not claims.token:
                    drive(claims.register(awaits=False))
                report = claims.do_round(ends, demand)
            except StoreError:
                self.world.point(0.5)
                continue
            ends = []
            for record in report.claimed:
                leg = Leg(self.queue, record)
                if record.sequence in report.cancels:
                    leg.cancel()
                if self.random.random() < 0.1:
                    ends.append(leg.end(clerk.table.give_back_unstarted))
                else:
                    ends.append(drive(run_leg(leg, awaits=False)))
                self.legs += 1
            self.world.point(self.random.random() * 8)
        while ends:
            try:
                claims.do_round(ends)
            except StoreError:
                self.world.point(0.5)
            else:
                return

    def beat(self, claims, worker):
        while not worker.dead:
            with suppress(StoreError):
                if claims.token:
                    drive(claims.extend_lease(awaits=False))
            self.world.point(LEASE / 3)

    def work(self, name):
        self.world.point()
        self.effects[current_job().id] += 1
        self.world.point()
        for _ in range(self.random.randint(0, 2)):
            self.world.point(LEASE * self.random.random() * 0.7)
        if name != "tick" and self.random.random() < 0.3:
            raise ConnectionError(name)
        return f"{current_job().id} {current_job()._record.owner}"

    # -- the end --------------------------------------------------------------------

    def finish(self):
        """Bring everything to its end, with no more kills, stalls or outages."""
        self.world.kills = self.world.jumps = self.world.outages = 0.0
        process = Process(self.world, "last")
        process.start(self.finish_all)
        self.world.run()

    def finish_all(self):
        self.world.point(2 * LEASE)
        with suppress(StoreError):
            self.queue.unschedule(f"s{self.seed}")
        claims = QuietClaims(self.queue, LEASE)
        claims.__enter__()
        ends = []
        for _ in range(400):
            drive(claims.extend_lease(awaits=False))
            report = claims.do_round(ends, Demand(5))
            ends = [
                drive(run_leg(Leg(self.queue, record), awaits=False))
                for record in report.claimed
            ]
            if not ends and not self.unended():
                return
            self.world.point(2.0)

    def unended(self):
        return [row for row in self.rows() if row["state"] not in ENDED]

    def rows(self):
        names = ("id", "task", "state", "key", "position", "sequence", "is_once",
                 "started_at", "ended_at", "result", "schedule", "owner")  # fmt: skip
        sql = f"select {', '.join(names)} from cmdx_job where queue = :queue"  # noqa: S608
        found = STORE.transact(lambda rows: rows.execute(sql, queue=self.queue.name))
        return [dict(zip(names, row, strict=True)) for row in found]

    # -- what must hold -------------------------------------------------------------

    def check_keys(self, statements):
        """Look whether one job of each key may run, and is the first of them."""
        sql = (
            "select key, state, position from cmdx_job where queue = :queue "
            "and key is not null and state in ('ready', 'running', 'held')"
        )
        keys = defaultdict(list)
        for key, state, position in statements.execute(sql, queue=self.queue.name):
            keys[key].append((position, state))
        for key, jobs in keys.items():
            (_, first), *others = sorted(jobs)
            if first == "held" or {state for _, state in others} - {"held"}:
                raise Broken(self.seed, key, "not one after the other", jobs)

    def check_schedule(self, statements):
        """Look whether the schedule has at most one job that has not ended."""
        sql = (
            "select count(*) from cmdx_job where queue = :queue "
            "and schedule is not null and state in ('ready', 'running')"
        )
        ((count,),) = statements.execute(sql, queue=self.queue.name)
        if count > 1:
            raise Broken(self.seed, "schedule", "two jobs at once", count)

    def note_owners(self, statements):
        """Remember who has run each job last."""
        sql = (
            "select id, owner from cmdx_job where queue = :queue and state = 'running'"
        )
        self.owners.update(statements.execute(sql, queue=self.queue.name))

    def check(self):
        rows = {row["id"]: row for row in self.rows()}
        for name, id_ in self.enqueued.items():
            if id_ not in rows:
                raise Broken(self.seed, name, "lost", id_)
        for row in rows.values():
            self.check_job(row)

    def check_job(self, row):
        effects = self.effects[row["id"]]
        if row["state"] not in ENDED:
            raise Broken(self.seed, row["id"], "has not ended", row)
        if row["is_once"] and effects > 1:
            raise Broken(self.seed, row["id"], "more than one effect", effects)
        if row["state"] != JobState.DONE:
            return
        if not effects:
            raise Broken(self.seed, row["id"], "done without an effect", row)
        value = load_result(json.loads(row["result"])).value
        if value != f"{row['id']} {self.owners[row['id']]}":
            raise Broken(self.seed, row["id"], "not the result of its owner", value)

    def clean(self):
        name = self.queue.name

        def remove(statements):
            for table, column in (
                ("cmdx_job", "queue"),
                ("cmdx_schedule", "queue"),
                ("cmdx_worker", "queue"),
                ("cmdx_queue", "name"),
            ):
                sql = f"delete from {table} where {column} = :name"  # noqa: S608
                statements.execute(sql, name=name)

        STORE.transact(remove)
