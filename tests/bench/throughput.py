"""
Jobs per second, and the time from enqueue to start, beside other queues.

Run it with ``python tests/bench/throughput.py``; it prints the tables of the page about
speed. A producer in this process and a worker in another one share a database. Every
line of a table is measured in the same run, in turn, and the best of some rounds
counts. The group ``bench`` has the libraries it compares with. On a disk that is faster
than those of most servers, ``--sync-takes 0.002`` shows what others would see.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from urllib.parse import quote
from uuid import uuid4

from disks import postgres_settings, run_again, seconds_per_sync
from queues import SYSTEMS, CmdxSync

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))

JOBS = 2_000
ROUNDS = 3
PATIENCE = 120.0


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
        yield in_schema(address, schema) + quote(postgres_settings())
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
    parser.add_argument(
        "--sync-takes", type=float, default=0.0, metavar="SECONDS", help="a slow disk"
    )
    given = parser.parse_args(arguments)
    if given.work:
        kind, address = given.work
        SYSTEMS[kind](address).work()
        return
    if given.sync_takes != seconds_per_sync():
        raise SystemExit(run_again(given.sync_takes))
    for name, part in PARTS.items():
        if given.only in name:
            print(f"\n{name}\n")
            for line in part(given.jobs, given.rounds):
                print(line, flush=True)


def sqlite_table(jobs, rounds):
    kinds = ("BareSqlite", "Cmdx", "CmdxMany", "Huey")
    yield from throughput_table(best_of(kinds, jobs, rounds))
    yield from throughput_table(
        best_of(("BareSqliteSync", "CmdxSync", "HueySync"), jobs, rounds),
        head=False,
    )


def postgres_table(jobs, rounds):
    kinds = ("BarePostgres", "CmdxPostgres", "Procrastinate")
    yield from throughput_table(best_of(kinds, jobs, rounds))


def producers_table(jobs, rounds):
    one = best_of(("CmdxPostgres",), jobs, rounds)["CmdxPostgres"]
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
        yield f"| {name} | {seconds * 1e6:,.0f} µs |"


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
