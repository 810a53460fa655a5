"""
Several workers, each in a process of its own.

1. the command starts itself again, once per process      ``WorkerProcess``
2. a process beats as long as its worker does rounds      ``beats``
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
from typing import TYPE_CHECKING, Any

from cmdx import clock
from cmdx.cli.reports import Screen, repeat, show_progress, state_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from cmdx.queue import Queue, Worker

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

    def end(self) -> str:
        """Kill it if it is still there, and forget it; return what became of it."""
        is_hung = self.process.poll() is None
        if is_hung:
            self.process.kill()
        code = self.process.wait()
        os.close(self.reader)
        if is_hung:
            return f"was not heard of for {PATIENCE:g} s, and was killed"
        return exit_text(code)


def exit_text(code: int) -> str:
    """Return how a process has ended by itself."""
    if code >= 0:
        return f"has ended with code {code}"
    with suppress(ValueError):  # a signal that Python has no name for
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def command_of(asked: argparse.Namespace) -> list[str]:
    """Return the command of one process."""
    options = ("threads", "coroutines", "batch", "grace")
    given = [f"--{name}={getattr(asked, name)}" for name in options]
    return [sys.executable, "-m", "cmdx", "worker", asked.queue, *given]


def run_processes(queue: Queue, asked: argparse.Namespace) -> int:
    """Run processes until SIGTERM or Ctrl-C; replace those that end or hang."""
    signals: list[int] = []

    def note(number: int, _frame: Any) -> None:
        signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    screen = Screen()
    workers = [WorkerProcess(asked) for _ in range(asked.processes)]
    with show_progress(
        screen, lambda: f"{len(workers)} processes; {state_text(queue)}"
    ):
        run_until_signal(workers, signals, asked, screen)
        passed = 0
        while any(worker.process.poll() is None for worker in workers):
            passed = pass_signals(workers, signals, passed)
            clock.Clock().sleep(0.05)
    return 0


def run_until_signal(
    workers: list[WorkerProcess],
    signals: list[int],
    asked: argparse.Namespace,
    screen: Screen,
) -> None:
    """Replace processes that end or hang, until a signal has come."""
    while not signals:
        clock.Clock().sleep(0.1)
        for place, worker in enumerate(workers):
            worker.listen()
            if worker.must_be_replaced and not signals:
                became = worker.end()
                workers[place] = WorkerProcess(asked)
                screen.write(
                    f"process {worker.process.pid} {became}; process "
                    f"{workers[place].process.pid} replaces it."
                )


def pass_signals(workers: list[WorkerProcess], signals: list[int], passed: int) -> int:
    """Pass on signals that have come; return how many were passed on in all."""
    for _ in signals[passed:]:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGTERM)
    return len(signals)


# -- in each process ----------------------------------------------------------------


def is_one_of_several() -> bool:
    """Tell whether another process has started this one."""
    return PIPE in os.environ


@contextmanager
def beats(worker: Worker) -> Iterator[None]:
    """Tell the process that has started this one that the worker is alive."""
    if not is_one_of_several():
        yield
        return
    descriptor = int(os.environ[PIPE])
    rounds = -1

    def beat() -> None:
        nonlocal rounds
        if worker.rounds != rounds:  # or nobody does rounds
            rounds = worker.rounds
            try:
                os.write(descriptor, b".")
            except BrokenPipeError:  # whoever restarts the other will start this, too
                worker.stop()

    with repeat(beat, BEAT_EVERY):
        yield
