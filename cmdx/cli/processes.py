"""
Several workers, each in a process of its own.

1. the command starts itself again, once per process      ``WorkerProcess``
2. a process beats as long as its clerk does rounds       ``beats``
3. one that ends or hangs is replaced                     ``run_processes``
4. SIGTERM and Ctrl-C are passed on to all of them        ``run_processes``
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from cmdx import clock

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from cmdx.queue import Worker

PIPE = "CMDX_WORKER_PIPE"
"""The environment variable with the descriptor that a process beats on."""

PATIENCE = 60.0
"""Seconds after which a process that does not beat is replaced."""

BEAT_EVERY = 1.0
RESTART_PAUSE = 1.0
"""The shortest time between two starts of a process, in seconds."""

monotonic = clock.Clock.monotonic


class WorkerProcess:
    """One of the processes."""

    def __init__(self, asked: argparse.Namespace) -> None:
        reader, writer = os.pipe()
        self.reader = reader
        self.process = subprocess.Popen(  # noqa: S603 -- this very command
            command_of(asked),
            env={**os.environ, PIPE: str(writer)},
            pass_fds=[writer],
            start_new_session=True,  # Ctrl-C comes to us alone, and is passed on
        )
        os.close(writer)
        self.started_at = self.heard_at = monotonic()

    def listen(self) -> None:
        """Note whether it has beaten."""
        while select.select([self.reader], [], [], 0)[0]:
            if not os.read(self.reader, 4096):
                return
            self.heard_at = monotonic()

    @property
    def must_be_replaced(self) -> bool:
        """Whether it has ended, or hangs."""
        if self.process.poll() is not None:
            return monotonic() > self.started_at + RESTART_PAUSE
        return monotonic() > self.heard_at + PATIENCE

    def end(self) -> None:
        """Kill it if it is still there, and forget it."""
        if self.process.poll() is None:
            sys.stderr.write(f"process {self.process.pid} hangs, and is replaced\n")
            self.process.kill()
        self.process.wait()
        os.close(self.reader)


def command_of(asked: argparse.Namespace) -> list[str]:
    """Return the command of one process."""
    options = ("threads", "coroutines", "batch", "grace")
    given = [f"--{name}={getattr(asked, name)}" for name in options]
    return [sys.executable, "-m", "cmdx", "worker", asked.queue, *given]


def run_processes(asked: argparse.Namespace) -> int:
    """Run processes until SIGTERM or Ctrl-C; replace those that end or hang."""
    signals: list[int] = []

    def note(number: int, _frame: Any) -> None:
        signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    workers = [WorkerProcess(asked) for _ in range(asked.processes)]
    passed = 0
    while not passed:
        clock.Clock().sleep(0.1)
        for place, worker in enumerate(workers):
            worker.listen()
            if worker.must_be_replaced and not signals:
                worker.end()
                workers[place] = WorkerProcess(asked)
        passed = pass_signals(workers, signals, passed)
    while any(worker.process.poll() is None for worker in workers):
        clock.Clock().sleep(0.05)
        passed = pass_signals(workers, signals, passed)
    return 0


def pass_signals(workers: list[WorkerProcess], signals: list[int], passed: int) -> int:
    """Pass on signals that have come; return how many were passed on in all."""
    for _ in signals[passed:]:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGTERM)
    return len(signals)


# -- in each process ----------------------------------------------------------------


@contextmanager
def beats(worker: Worker) -> Iterator[None]:
    """Tell the process that has started this one that the worker is alive."""
    descriptor = os.environ.get(PIPE)
    if descriptor is None:
        yield
        return

    def beat() -> None:
        with suppress(OSError):  # the other process has gone
            os.write(int(descriptor), b".")

    with repeated(beat, BEAT_EVERY, worker):
        yield


@contextmanager
def shown_progress(worker: Worker) -> Iterator[None]:
    """Show on a terminal what the worker does."""
    if not sys.stderr.isatty():
        yield
        return

    def show() -> None:
        counts = {
            state: count for state, count in worker.queue.counts().items() if count
        }
        shown = ", ".join(f"{count} {state}" for state, count in counts.items())
        sys.stderr.write(f"\r\x1b[K{worker.legs} legs run; {shown or 'no jobs'}")
        sys.stderr.flush()

    with repeated(show, BEAT_EVERY, worker):
        yield
    sys.stderr.write("\n")


@contextmanager
def repeated(action: Any, seconds: float, worker: Worker) -> Iterator[None]:
    """Call *action* every so many seconds, as long as the clerk does rounds."""
    is_over = Event()

    def repeat() -> None:
        rounds = -1
        while not is_over.wait(seconds):
            if worker.rounds != rounds:
                rounds = worker.rounds
                with suppress(Exception):  # it is only to be seen
                    action()

    thread = Thread(target=repeat, name="cmdx queue: beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
