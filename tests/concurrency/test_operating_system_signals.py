"""Real signals, while a workflow waits for its parallel steps."""

from __future__ import annotations

import signal
import sys
import threading
import time
from threading import Event

import pytest

from cmdx import Task, Workflow, parallel

PATIENCE = 20

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGUSR1"), reason="there is no such signal here"
)


class Interrupt:
    """An error that the signal handler is to raise once."""

    def __init__(self, error):
        self.error, self.is_due, self.handled = error, False, Event()


class SoftTimeLimit(Exception):
    """What a signal handler raises, as those of task queues do."""


@pytest.fixture
def handle():
    """Have a handler raise errors, one each time that a step sends the signal."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(*errors):
        interrupts = Log(Interrupt(error) for error in errors)

        def handler(_number, _frame):
            for interrupt in interrupts:
                if interrupt.is_due:
                    interrupt.is_due = False
                    interrupt.handled.set()
                    raise interrupt.error

        signal.signal(signal.SIGUSR1, handler)
        return interrupts

    yield install
    signal.signal(signal.SIGUSR1, before)


def wait_until_main_thread_waits():
    """Return when the main thread waits for another one to end."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        names = functions_of_main_thread()
        # A pool whose thread is interrupted while it starts never ends it, in CPython.
        if names[0] == "wait" and "start" not in names:
            return
        time.sleep(0.001)
    pytest.fail("the main thread never waited")


def send(interrupt):
    """Send the signal, again if it came just before the main thread began to wait."""
    interrupt.is_due = True
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        if interrupt.handled.wait(0.01):
            return
    pytest.fail("the signal was never handled")


def functions_of_main_thread():
    """Return what the main thread is in, the innermost function first."""
    frame = sys._current_frames()[threading.main_thread().ident]
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


class Part(Task[None]):
    """In the main thread it ends soon; the other has that thread interrupted first."""

    def work(self) -> None:
        if threading.current_thread() is threading.main_thread():
            while not self.context.begun.is_set():
                time.sleep(0.001)
            return
        self.context.begun.set()
        for interrupt in self.context.interrupts:
            wait_until_main_thread_waits()
            send(interrupt)
        wait_until_main_thread_waits()
        self.context.has_effect = True
        self.context.log.append("effect")

    def rollback(self) -> None:
        if self.context.get("has_effect"):
            self.context.log.append("undone")


class Log(list):
    """A list that the steps share, because it is of a class of its own."""

    def __deepcopy__(self, memo):
        return self


class Both(Workflow[None]):
    steps = (parallel(Part, Part),)


def test_an_error_of_a_signal_handler_waits_for_the_steps_that_run(handle):
    interrupts, log = handle(SoftTimeLimit("too long")), Log()

    result = Both.execute(begun=Event(), interrupts=interrupts, log=log)

    assert log == ["effect", "undone"]
    assert isinstance(result.cause, SoftTimeLimit)


def test_an_interrupt_by_a_signal_waits_for_the_steps_that_run(handle):
    interrupts, log = handle(KeyboardInterrupt()), Log()

    with pytest.raises(KeyboardInterrupt):
        Both.execute(begun=Event(), interrupts=interrupts, log=log)

    assert log == ["effect", "undone"]


def test_further_interrupts_do_not_end_the_waiting(handle):
    interrupts, log = handle(*(KeyboardInterrupt(number) for number in range(4))), Log()

    with pytest.raises(KeyboardInterrupt) as raised:
        Both.execute(begun=Event(), interrupts=interrupts, log=log)

    assert log == ["effect", "undone"]
    assert raised.value.args == (1,)  # the first one that came while it waited
