"""
Jobs per second, and the time from enqueue to start, beside other queues.

Run it with ``python tests/bench/throughput.py``; it prints the tables of the page about
speed. A producer in this process and a worker in another one share a database. Every
line of a table is measured in the same run, in turn, and the best of some rounds
counts. The group ``bench`` has the libraries it compares with.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from uuid import uuid4

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

JOBS = 2_000
ROUNDS = 3
BATCH = 50
PATIENCE = 120.0
BARE_TABLE = "create table if not exists bare (id integer primary key, body text)"
BODY = '{"task": "bench:add", "inputs": {"number": 7}}'


class System:
    """A queue: how it is set up, filled, worked on in another process, and counted."""

    name = ""

    def __init__(self, address):
        self.address = address

    def set_up(self):
        """Create tables."""

    def enqueue(self, number):
        """Store one job."""
        raise NotImplementedError

    def enqueue_all(self, numbers):
        """Store jobs, one after the other."""
        for number in numbers:
            self.enqueue(number)

    def work(self):
        """Run jobs until this process is killed."""
        raise NotImplementedError

    def left(self, count):
        """Return how many of *count* jobs are not done."""
        raise NotImplementedError

    def close(self):
        """Release connections."""


# -- SQLite -------------------------------------------------------------------------


class BareSqlite(System):
    """Inserts with a commit each; claims and deletes in batches."""

    name = "bare SQLite"

    def set_up(self):
        self.connection = self.connect()
        self.connection.execute("pragma journal_mode=wal")
        self.connection.execute(BARE_TABLE)

    def connect(self):
        connection = sqlite3.connect(
            self.address, isolation_level=None, timeout=30, check_same_thread=False
        )
        connection.execute("pragma synchronous=normal")
        return connection

    def enqueue(self, _number):
        execute = self.connection.execute
        execute("begin immediate")
        execute("insert into bare (body) values (?)", (BODY,))
        execute("commit")

    def work(self):
        execute = self.connect().execute
        while True:
            execute("begin immediate")
            rows = execute("select id, body from bare limit ?", (BATCH,)).fetchall()
            for row in rows:
                execute("delete from bare where id = ?", (row[0],))
            execute("commit")
            if not rows:
                time.sleep(0.001)

    def left(self, _count):
        return self.connection.execute("select count(*) from bare").fetchone()[0]

    def close(self):
        self.connection.close()


class BareSqliteSync(BareSqlite):
    name = "bare SQLite, each insert on disk"

    def set_up(self):
        super().set_up()
        self.connection.execute("pragma synchronous=full")


class Cmdx(System):
    name = "cmdx"
    sync = False

    def set_up(self):
        from bench_tasks import Add

        from cmdx.queue import Queue

        self.task = Add
        self.queue = Queue(self.open_store())

    def open_store(self):
        from cmdx.stores import SqliteStore

        return SqliteStore(self.address, sync=self.sync)

    def enqueue(self, number):
        return self.queue.enqueue(self.task(number=number))

    def work(self):
        self.set_up()
        self.queue.worker().run()

    def left(self, count):
        return count - self.queue.counts()["done"]

    def close(self):
        self.queue.store.close()


class CmdxMany(Cmdx):
    name = "cmdx, enqueued in batches of 50"

    def enqueue_all(self, numbers):
        for start in range(0, len(numbers), BATCH):
            tasks = [self.task(number=number) for number in numbers[start:][:BATCH]]
            self.queue.enqueue_many(tasks)


class CmdxSync(Cmdx):
    name = "cmdx, each enqueue on disk"
    sync = True


class Huey(System):
    name = "huey"
    fsync = False

    def set_up(self):
        from huey import SqliteHuey

        self.huey = SqliteHuey(filename=str(self.address), fsync=self.fsync)

        @self.huey.task(name="add")
        def add(number):
            del number
            return time.time()

        self.add = add

    def enqueue(self, number):
        return self.add(number)

    def work(self):
        self.set_up()
        self.huey.create_consumer(workers=1, initial_delay=0.01).run()

    def left(self, count):
        return count - self.huey.result_count()


class HueySync(Huey):
    name = "huey, each enqueue on disk"
    fsync = True


# -- PostgreSQL ---------------------------------------------------------------------


class BarePostgres(System):
    """Inserts with a commit each; claims and deletes in batches."""

    name = "bare PostgreSQL"

    def set_up(self):
        self.connection = self.connect()
        self.connection.execute(
            "create table if not exists bare (id bigserial primary key, body text)"
        )

    def connect(self):
        import psycopg

        return psycopg.connect(self.address, autocommit=True)

    def enqueue(self, _number):
        self.connection.execute("insert into bare (body) values (%s)", (BODY,))

    def work(self):
        connection = self.connect()
        connection.execute("set synchronous_commit = off")
        sql = (
            "delete from bare where id in (select id from bare order by id "
            "limit %s for update skip locked) returning id, body"
        )
        while True:
            if not connection.execute(sql, (BATCH,)).fetchall():
                time.sleep(0.001)

    def left(self, _count):
        return self.connection.execute("select count(*) from bare").fetchone()[0]

    def close(self):
        self.connection.close()


class CmdxPostgres(Cmdx):
    name = "cmdx"

    def open_store(self):
        from cmdx.stores import PostgresStore

        return PostgresStore(self.address, migrate=True)


class Procrastinate(System):
    name = "procrastinate"

    def set_up(self):
        import procrastinate

        connector = procrastinate.SyncPsycopgConnector(conninfo=self.address)
        self.app = self.new_app(connector)
        self.app.open()
        if not self.has_tables():
            self.app.schema_manager.apply_schema()

    def new_app(self, connector):
        import procrastinate

        app = procrastinate.App(connector=connector)

        @app.task(name="add")
        def add(number):
            return number

        self.add = add
        return app

    def has_tables(self):
        import psycopg

        with psycopg.connect(self.address) as connection:
            sql = "select to_regclass('procrastinate_jobs')"
            return connection.execute(sql).fetchone()[0] is not None

    def enqueue(self, number):
        return self.add.defer(number=number)

    def work(self):
        import procrastinate

        app = self.new_app(procrastinate.PsycopgConnector(conninfo=self.address))
        app.run_worker(install_signal_handlers=False)

    def left(self, count):
        import psycopg

        with psycopg.connect(self.address) as connection:
            sql = "select count(*) from procrastinate_jobs where status = 'succeeded'"
            return count - connection.execute(sql).fetchone()[0]

    def close(self):
        self.app.close()


SYSTEMS = {
    kind.__name__: kind
    for kind in (
        BareSqlite, BareSqliteSync, Cmdx, CmdxMany, CmdxSync, Huey, HueySync,
        BarePostgres, CmdxPostgres, Procrastinate,
    )
}  # fmt: skip


# -- measuring ----------------------------------------------------------------------


@contextmanager
def running(kind):
    """Yield a system on a database of its own, with a worker in another process."""
    with database_for(kind) as address:
        system = SYSTEMS[kind](address)
        system.set_up()
        command = [sys.executable, str(HERE), "--work", kind, str(address)]
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            system.enqueue(0)
            wait_until(lambda: system.left(1) <= 0)
            yield system
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            system.close()


@contextmanager
def database_for(kind):
    if "Postgres" not in kind and kind != "Procrastinate":
        with TemporaryDirectory() as folder:
            yield Path(folder, "bench.db")
        return
    import psycopg
    from services import find_postgres, in_schema

    address, reason = find_postgres()
    if address is None:
        raise SystemExit(reason)
    schema = f"cmdx_bench_{uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"create schema {schema}")
    try:
        yield in_schema(address, schema)
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"drop schema {schema} cascade")


def wait_until(is_true):
    end = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError("the jobs were not done in time")
        time.sleep(0.002)


def jobs_per_second(kind, jobs, producers=1):
    """Return how many jobs per second are enqueued and done."""
    with running(kind) as system:
        began = time.perf_counter()
        produced = produce(system, jobs, producers)
        wait_until(lambda: system.left(produced + 1) <= 0)
        return produced / (time.perf_counter() - began)


def produce(system, jobs, producers):
    """Enqueue jobs, in threads if there are several producers; return how many."""
    share = range(jobs // producers)
    threads = [
        Thread(target=system.enqueue_all, args=[share]) for _ in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(share) * producers


def best_of(kinds, jobs, rounds, producers=1):
    """Measure each kind in turn, some rounds; return the best of each."""
    found = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            found[kind].append(jobs_per_second(kind, jobs, producers))
    return {kind: max(values) for kind, values in found.items()}


def seconds_to_start(kind, count=60):
    """Return the median time from enqueue to start in another process."""
    with running(kind) as system:
        delays = []
        for number in range(count):
            began = time.time()
            waiting = system.enqueue(number)
            started = (
                waiting.get(blocking=True, timeout=30, backoff=1, max_delay=0.001)
                if kind.startswith("Huey")
                else waiting.wait(30).value
            )
            delays.append(started - began)
            time.sleep(0.01)
        return statistics.median(delays)


def seconds_to_start_here(count=200):
    """Return the median time from enqueue to start with a worker in this process."""
    from bench_tasks import Add

    from cmdx.queue import Queue

    with TemporaryDirectory() as folder:
        queue = Queue(Path(folder, "bench.db"))
        delays = []
        with queue.worker():
            for number in range(count):
                began = time.time()
                delays.append(queue.enqueue(Add(number=number)).wait(30).value - began)
        queue.store.close()
        return statistics.median(delays)


def seconds_to_hand_over(count=2000):
    """Return the median time until a thread that waits for an event goes on."""
    given, taken, delays = Event(), Event(), []
    moment = [0.0]

    def wait():
        for _ in range(count):
            given.wait()
            delays.append(time.time() - moment[0])
            given.clear()
            taken.set()

    thread = Thread(target=wait)
    thread.start()
    for _ in range(count):
        moment[0] = time.time()
        given.set()
        taken.wait()
        taken.clear()
    thread.join()
    return statistics.median(delays)


def sync_gain(threads=16, jobs=640):
    """Return how much faster threads enqueue with sync than through one lock."""
    from threading import Lock

    with TemporaryDirectory() as folder:
        together = CmdxSync(Path(folder, "together.db"))
        one_by_one = CmdxSync(Path(folder, "one.db"))
        together.set_up()
        one_by_one.set_up()
        lock = Lock()
        enqueue = one_by_one.enqueue

        def enqueue_locked(number):
            with lock:
                enqueue(number)

        one_by_one.enqueue = enqueue_locked
        seconds = []
        for system in (together, one_by_one):
            began = time.perf_counter()
            produce(system, jobs, threads)
            seconds.append(time.perf_counter() - began)
        together.close()
        one_by_one.close()
        return seconds[1] / seconds[0]


def idle_share(seconds=5.0):
    """Return which share of a core an idle worker takes."""
    with running("Cmdx") as system:
        del system
        (worker,) = [pid for pid in children_of(os.getpid()) if pid]
        time.sleep(1.5)
        before = cpu_seconds(worker)
        time.sleep(seconds)
        return (cpu_seconds(worker) - before) / seconds


def children_of(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- the tables ---------------------------------------------------------------------


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Measure jobs per second.")
    parser.add_argument("--work", nargs=2, metavar=("SYSTEM", "ADDRESS"))
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="parts whose name contains this")
    given = parser.parse_args(arguments)
    if given.work:
        kind, address = given.work
        SYSTEMS[kind](address).work()
        return
    for name, part in PARTS.items():
        if given.only in name:
            print(f"\n{name}\n")
            for line in part(given.jobs, given.rounds):
                print(line, flush=True)


def sqlite_table(jobs, rounds):
    kinds = ("BareSqlite", "Cmdx", "CmdxMany", "Huey")
    yield from throughput_table(best_of(kinds, jobs, rounds))
    yield from throughput_table(
        best_of(("BareSqliteSync", "CmdxSync", "HueySync"), jobs // 4, rounds),
        head=False,
    )


def postgres_table(jobs, rounds):
    kinds = ("BarePostgres", "CmdxPostgres", "Procrastinate")
    yield from throughput_table(best_of(kinds, jobs // 2, rounds))


def producers_table(jobs, rounds):
    one = best_of(("CmdxPostgres",), jobs // 2, rounds)["CmdxPostgres"]
    many = best_of(("CmdxPostgres",), jobs, rounds, producers=16)["CmdxPostgres"]
    yield "| producers | jobs per second |"
    yield "|---|---:|"
    yield f"| 1 | {one:,.0f} |"
    yield f"| 16 threads | {many:,.0f} |"


def latency_table(_jobs, _rounds):
    rows = {
        "a thread that waits for an event": seconds_to_hand_over(),
        "cmdx, worker in the same process": seconds_to_start_here(),
        "cmdx, worker in another process": seconds_to_start("Cmdx"),
        "huey, worker in another process": seconds_to_start("Huey"),
    }
    yield "| from enqueue to start | median |"
    yield "|---|---:|"
    for name, seconds in rows.items():
        yield f"| {name} | {seconds * 1000:.2f} ms |"


def other_table(_jobs, rounds):
    yield "| | |"
    yield "|---|---:|"
    gain = f"{max(sync_gain() for _ in range(rounds)):.1f} times as fast"
    yield f"| 16 threads that enqueue with sync, against one lock | {gain} |"
    yield f"| CPU of an idle worker | {idle_share() * 100:.2f} % of a core |"


def throughput_table(found, *, head=True):
    if head:
        yield "| | jobs per second |"
        yield "|---|---:|"
    for kind, value in found.items():
        yield f"| {SYSTEMS[kind].name} | {value:,.0f} |"


PARTS = {
    "Enqueued and done, SQLite": sqlite_table,
    "Enqueued and done, PostgreSQL": postgres_table,
    "Producers, PostgreSQL": producers_table,
    "Latency": latency_table,
    "Others": other_table,
}

if __name__ == "__main__":
    with closing(sys.stdout):
        main()
