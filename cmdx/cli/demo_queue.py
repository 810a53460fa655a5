"""
``python -m cmdx demo queue``: a worker is killed, and nothing is lost.

1. twelve invoices are enqueued
2. a worker in another process sends them, and is killed by SIGKILL
3. a second worker sends the rest, and what the first one was about to send
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cmdx import Task, clock
from cmdx.queue import JobState, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

INVOICES = 12
SENT_BEFORE_KILL = 4
SECONDS_EACH = 0.1
LEASE = 2.0
"""Short, so that nobody has to wait for 30 s to see what happens."""
PATIENCE = 30.0
"""Seconds after which the demo gives up."""


class SendInvoice(Task[None]):
    """Send an invoice, which takes a while."""

    number: int
    journal: str

    def work(self) -> None:
        """Note the begin and the end in a file that survives the process."""
        self.note(f"begins {self.number}")
        clock.current.get().sleep(SECONDS_EACH)
        self.note(f"sent {self.number}")

    def note(self, line: str) -> None:
        """Add a line to the file."""
        with Path(self.journal).open("a", encoding="utf-8") as journal:
            journal.write(f"{line}\n")


def show() -> bool:
    """Run the demo; tell whether nothing was lost."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        database, journal = str(Path(folder, "app.db")), Path(folder, "journal.txt")
        journal.touch()
        queue = Queue(database)
        jobs = [SendInvoice(number=n, journal=str(journal)) for n in range(INVOICES)]
        queue.enqueue_many(jobs)
        say(f"{INVOICES} invoices are enqueued in an SQLite file.")
        with running_worker(database):
            wait_until(lambda: count_sent(journal) >= SENT_BEFORE_KILL)
        sent = count_sent(journal)
        say(f"A worker has sent {sent} of them, and was killed by SIGKILL.")
        with running_worker(database):
            say(f"Another worker goes on; the lease of the first ends in {LEASE:g} s.")
            wait_until(lambda: queue.counts()[JobState.DONE] == INVOICES)
        return tell(queue, journal)


def tell(queue: Queue, journal: Path) -> bool:
    """Print what became of the invoices."""
    counts = queue.counts()
    lines = journal.read_text(encoding="utf-8").splitlines()
    begun = Counter(line.removeprefix("begins ") for line in lines if "begins" in line)
    again = [number for number, count in begun.items() if count > 1]
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    say(f"Jobs: {states}. Lost: {INVOICES - len(begun)}.")
    if again:
        say(repeats_text(again))
    queue.store.close()
    return len(begun) == INVOICES


def repeats_text(numbers: Sequence[str]) -> str:
    """Say which invoices were begun twice, and why."""
    if len(numbers) == 1:
        invoices, done = f"Invoice {numbers[0]} was", "it was done"
    else:
        invoices = f"Invoices {', '.join(numbers[:-1])} and {numbers[-1]} were"
        done = "they were done"
    return f"{invoices} begun twice: the worker died before it could say that {done}."


@contextmanager
def running_worker(database: str) -> Iterator[None]:
    """Have a worker in a process of its own run jobs in a block, and kill it then."""
    program = "import sys; from cmdx.cli.demo_queue import work; work(sys.argv[1])"
    command = [sys.executable, "-c", program, database]
    # In a session of its own, so that Ctrl-C comes to us alone.
    with subprocess.Popen(command, start_new_session=True) as process:  # noqa: S603 -- our own program
        try:
            yield
        finally:
            process.kill()


def work(database: str) -> None:
    """Run jobs until this process is killed."""
    worker = Queue(database).worker()
    worker.lease = LEASE
    worker.run()


def count_sent(journal: Path) -> int:
    """Return how many invoices were sent."""
    return journal.read_text(encoding="utf-8").count("sent ")


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for something to happen."""
    end = clock.Clock.monotonic() + PATIENCE
    while not is_true():
        if clock.Clock.monotonic() > end:
            message = "the demo did not come to its end in time."
            raise TimeoutError(message)
        clock.Clock().sleep(0.02)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)
