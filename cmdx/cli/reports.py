"""
What a worker on the command line tells, on the standard error.

1. that it has started, and on which file                   ``start_text``
2. that it stops, and what it waits for                     ``ReportingWorker.stop``
3. that a job has died, and how to look at it               ``report_deaths``
4. warnings, such as that a job hangs                       ``show_warnings``
5. on a terminal, how many jobs there are in each state     ``show_progress``

No line adds inputs, which may be secrets; texts of exceptions may have them.
"""

from __future__ import annotations

import logging
import shlex
import sys
from contextlib import contextmanager, suppress
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any

from cmdx.queue import Worker, job_died
from cmdx.report import escape_controls, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cmdx.queue import Job, Queue

SHOW_EVERY = 1.0
"""Seconds between two lines of progress."""

LONGEST_REASON = 200
"""How much of the reason of a failure is told."""

CLEAR = "\r\x1b[K"
"""What removes the line of progress from a terminal."""


class Screen:
    """
    The standard error: lines that stay, and on a terminal one that changes.

    Args:
        is_shared: Whether another process shows the line that changes.
    """

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_terminal = sys.stderr.isatty()
        self.shows_progress = self.is_terminal and not is_shared
        self._lock = RLock()  # a signal handler may write while its thread does

    def write(self, line: str) -> None:
        """Write a line that stays."""
        with self._lock:
            start = CLEAR if self.is_terminal else ""
            sys.stderr.write(f"{start}{line}\n")
            sys.stderr.flush()

    def show(self, line: str) -> None:
        """Replace the line that changes; an empty one removes it."""
        with self._lock:
            sys.stderr.write(f"{CLEAR}{line}")
            sys.stderr.flush()


# -- starting -----------------------------------------------------------------------


def start_text(queue: Queue) -> str:
    """Return that a worker has started, and on which file if there is one."""
    from cmdx.stores.sqlite import SqliteStore

    # In another folder, app.db is another file, which is created if need be.
    store = queue.store
    place = f" on {store._path}" if isinstance(store, SqliteStore) else ""
    return printable(f"has started{place}; Ctrl-C stops it.")


# -- stopping -----------------------------------------------------------------------


class ReportingWorker(Worker):
    """A worker that tells what happens when it stops."""

    screen: Screen

    def stop(self, grace: float | None = None) -> None:
        """Stop the worker, and tell what it waits for."""
        super().stop(grace)  # first: what is told may be answered by a second signal
        running = self.running
        if running:
            seconds = self.grace if grace is None else grace
            self.screen.write(f"{self} {stop_text(running, seconds)}")


def stop_text(running: int, grace: float) -> str:
    """Return what a worker does when it stops while jobs are running."""
    jobs = count_text(running, "running job")
    if grace <= 0:
        return f"stops at once, with {jobs}."
    return (
        f"is stopping: it waits up to {grace:g} s for {jobs}; a second signal stops "
        "it at once."
    )


def end_text(legs: int, running: int) -> str:
    """Return what a worker has done, and what it has left."""
    done = f"has stopped after {count_text(legs, 'leg')}"
    rest = f", with {count_text(running, 'running job')}" if running else ""
    return f"{done}{rest}."


def count_text(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# -- dead jobs ----------------------------------------------------------------------


@contextmanager
def report_deaths(screen: Screen, queue: Queue, target: str) -> Iterator[None]:
    """
    Tell of each job of a queue that dies in the block.

    Args:
        screen: Where to tell it.
        queue: The queue.
        target: What the queue is called on the command line.
    """

    def report(_sender: Any, *, job: Job[Any], **_facts: Any) -> None:
        if job.queue == queue.name:
            screen.write(death_text(job, target))

    with job_died.connected_to(report):
        yield


def death_text(job: Job[Any], target: str) -> str:
    """Return that a job has died, why, and how to look at it."""
    command = f"python -m cmdx jobs {target} show {shlex.quote(job.id)}"
    reason = "" if job.reason is None else f": {shortened(job.reason.rstrip('.'))}"
    return printable(
        f"the job {job.id} of {job.task} has died{reason}; look at it with `{command}`"
    )


def shortened(text: str) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


# -- warnings -----------------------------------------------------------------------


class ScreenHandler(logging.Handler):
    """Writes what is logged on a screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self.screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Write lines that stay; that they cannot be written stops no worker."""
        try:
            for line in self.format(record).splitlines():
                self.screen.write(escape_controls(line))
        except Exception:
            self.handleError(record)


@contextmanager
def show_warnings(screen: Screen) -> Iterator[None]:
    """Show the warnings of the library, unless the application has a place for them."""
    logger = logging.getLogger("cmdx")
    if logger.hasHandlers():
        yield
        return
    handler = ScreenHandler(screen)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# -- progress -----------------------------------------------------------------------


@contextmanager
def show_progress(screen: Screen, progress: Callable[[], str]) -> Iterator[None]:
    """Show on a terminal what *progress* returns, again and again."""
    if not screen.shows_progress:
        yield
        return
    with repeat(lambda: screen.show(progress()), SHOW_EVERY):
        yield
    screen.show("")


def worker_text(worker: Worker) -> str:
    """Return what a worker has done, and what there is to do."""
    return f"{count_text(worker.legs, 'leg')} run; {state_text(worker.queue)}"


def state_text(queue: Queue) -> str:
    """Return how many jobs there are in each state."""
    counts = [f"{count} {state}" for state, count in queue.counts().items() if count]
    return ", ".join(counts) or "no jobs"


@contextmanager
def repeat(action: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call *action* every so many seconds, while the block lasts."""
    is_over = Event()

    def call_again() -> None:
        while not is_over.wait(seconds):
            with suppress(Exception):  # such as that the store cannot be used
                action()

    thread = Thread(target=call_again, name="cmdx queue: beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
