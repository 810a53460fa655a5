"""
Prove by ``kill -9`` that jobs are not lost, and those of a key run in order.

Run it with ``python -m tests.durability.jobs`` from the root of the repository. In each
generation a producer and two workers are killed at random moments; the clock of the
next one is ahead, so that the leases of the dead are over. In the end a fresh worker
runs what is left. A job that three processes have died with may be dead. The exit
status is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from cmdx import Task, clock, retry_on
from cmdx.operations import operation
from cmdx.queue import JobState, Queue
from cmdx.queue.upkeep import LEASE

from .databases import DATABASES
from .journal import Journal, read_journal
from .processes import Child, ShiftedClock

KILLS = 10_000
GENERATIONS = 8
"""In one round; three processes are killed in each."""
WORKERS = 2
LEAP = 1.5 * LEASE
LONGEST_LIFE = 0.06
"""Seconds until a process is killed, counted from when it has begun."""
KEYS = (None, None, "a", "b", "c")
BATCH = 10
PATIENCE = 50.0


class Noting:
    """What ``work`` needs of the process it runs in."""

    journal = None


@retry_on(ConnectionError, limit=20, delay=0.001)
class Send(Task[str], name="durability.send"):
    """May run again, and fails now and then."""

    name: str

    def work(self):
        Noting.journal.write("begins", self.name)
        time.sleep(random.random() * 0.001)
        Noting.journal.write("effect", self.name)
        if random.random() < 0.05:
            raise ConnectionError(self.name)
        return self.name


@operation(persist=True)
class SendOnce(Task[str], name="durability.send_once"):
    """Must not run twice."""

    name: str

    def work(self):
        Noting.journal.write("begins", self.name)
        time.sleep(random.random() * 0.001)
        Noting.journal.write("effect", self.name)
        return self.name


class Round:
    """One database, and all that is killed on it."""

    def __init__(self, place, path, seed):
        self.place, self.path = place, path
        self.chance = random.Random(seed)
        self.name = str(seed)
        self.kills = 0

    def run(self):
        """Kill generation after generation; return the journal."""
        for generation in range(GENERATIONS):
            ahead = generation * LEAP
            lives = [partial(self.produce, generation, ahead)]
            lives += [partial(self.work, ahead)] * WORKERS
            self.kill_all([Child(life) for life in lives])
        finish = Child(partial(self.finish, (GENERATIONS + 1) * LEAP))
        if finish.wait() != 0:
            Journal(self.path, "parent").write("broke", "", text="it did not finish")
        return read_journal(self.path)

    def kill_all(self, children):
        self.chance.shuffle(children)
        for child in children:
            child.await_begin()
        for child in children:
            time.sleep(self.chance.random() * LONGEST_LIFE / len(children))
            if child.kill() != -signal.SIGKILL:
                text = "a process ended before it was killed"
                Journal(self.path, "parent").write("broke", "", text=text)
            self.kills += 1

    def open_queue(self):
        Noting.journal = Journal(self.path, os.getpid())
        return Queue(self.place.open_store(), self.name, keep=1e9)

    def produce(self, generation, ahead, begin):
        """Enqueue jobs until somebody kills this process."""
        chance = random.Random(f"{self.name}/{generation}")
        queue = self.open_queue()
        begin()
        with clock.use(ShiftedClock(ahead)):
            for number in count():
                name = f"{generation}-{number}"
                kind = chance.choice((Send, Send, SendOnce))
                key = chance.choice(KEYS)
                Noting.journal.write("asked", name, of=key, once=kind is SendOnce)
                queue.enqueue(kind(name=name), key=key)
                Noting.journal.write("told", name)
                time.sleep(0.0005)

    def work(self, ahead, begin):
        """Run jobs until somebody kills this process."""
        queue = self.open_queue()
        with clock.use(ShiftedClock(ahead)):
            worker = queue.worker(threads=2, batch=BATCH)
            worker.start()
        begin()
        while True:
            signal.pause()

    def finish(self, ahead, _begin):
        """Run what is left, and write down where each job stands."""
        queue = self.open_queue()
        end = time.monotonic() + PATIENCE
        with clock.use(ShiftedClock(ahead)), queue.worker(threads=1, batch=BATCH):
            while any(queue.counts()[state] for state in UNENDED):
                if time.monotonic() > end:
                    break
                time.sleep(0.01)
        for job in queue.find(limit=10**6):
            error = None if job.result is None else type(job.result.cause).__name__
            name = job.inputs["name"]
            Noting.journal.write("stands", name, state=job.state, error=error)


UNENDED = (JobState.READY, JobState.HELD, JobState.RUNNING)


# -- judging ------------------------------------------------------------------------


def judge(lines, kills):
    """Return what was counted, and which promises were broken."""
    told = {line["key"] for line in lines if line["what"] == "told"}
    asked = {line["key"]: line for line in lines if line["what"] == "asked"}
    stands = {line["key"]: line for line in lines if line["what"] == "stands"}
    effects = Counter(line["key"] for line in lines if line["what"] == "effect")
    broken = [line["text"] for line in lines if line["what"] == "broke"]
    broken += [f"{name} was lost" for name in told - stands.keys()]
    for name, line in stands.items():
        broken += broken_promises(name, line, asked[name], effects[name])
    broken += order_problems(lines, asked)
    again = sum(count - 1 for count in effects.values() if count > 1)
    if again > kills * BATCH * 2 + len(effects) // 5:  # retries of errors included
        broken.append(f"{again} jobs ran again")
    counts = Counter(
        jobs=len(stands),
        kills=kills,
        done=sum(line["state"] == "done" for line in stands.values()),
        indeterminate=sum(
            line["error"] == "JobIndeterminate" for line in stands.values()
        ),
        crashed=sum(line["error"] == "JobCrashed" for line in stands.values()),
        again=again,
    )
    return counts, broken


def broken_promises(name, line, asked, effects):
    """Yield what does not hold for one job."""
    if line["state"] not in ("done", "dead"):
        yield f"{name} is {line['state']}, and has not ended"
    if asked["once"] and effects > 1:
        yield f"{name} may not run twice, and had {effects} effects"
    if line["state"] == "done" and not effects:
        yield f"{name} is done without an effect"
    if line["state"] == "dead" and line["error"] != expected_error(asked):
        yield f"{name} is dead: {line['error']}"


def expected_error(asked):
    """Return how a job may end though its task never fails for good."""
    return "JobIndeterminate" if asked["once"] else "JobCrashed"


def order_problems(lines, asked):
    """Yield jobs of a key that began after a later one of the same producer."""
    latest = defaultdict(lambda: -1)
    for line in lines:
        if line["what"] != "begins" or asked[line["key"]]["of"] is None:
            continue
        generation, number = map(int, line["key"].split("-"))
        place = asked[line["key"]]["of"], generation
        if number < latest[place]:
            yield f"{line['key']} began after {latest[place]} of the same key"
        latest[place] = max(latest[place], number)


# -- the command --------------------------------------------------------------------


def kill_jobs(database, kills, seed=0):
    """Kill so often on a database; return what was counted and broken."""
    counts, broken = Counter(), []
    numbers = count()
    while counts["kills"] < kills:
        number = next(numbers)
        with TemporaryDirectory(prefix="cmdx-kills-") as directory:
            place = database.new_place(directory)
            journal = Path(directory, "journal")
            this = Round(place, journal, f"{seed}/{database.name}/{number}")
            found, problems = judge(this.run(), this.kills)
        counts += found
        broken += problems
    return counts, broken


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.durability.jobs")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=DATABASES, help="both by default")
    given = parser.parse_args(arguments)
    gc.collect()
    gc.freeze()  # a fork need not copy what is never collected
    all_broken = []
    columns = ("jobs", "kills", "done", "indeterminate", "crashed", "again")
    write(f"| database | {' | '.join(columns)} | broken |")
    write(f"| --- | {' | '.join(['---:'] * len(columns))} | ---: |")
    with ExitStack() as stack:
        names = [given.database] if given.database else list(DATABASES)
        for name in names:
            database = stack.enter_context(DATABASES[name]())
            share = given.kills // len(names)
            counts, broken = kill_jobs(database, share, given.seed)
            cells = " | ".join(str(counts[column]) for column in columns)
            write(f"| {database.name} | {cells} | {len(broken)} |")
            all_broken += broken
    for problem in all_broken:
        write(problem)
    return int(bool(all_broken))


def write(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
