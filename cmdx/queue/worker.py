"""
``Worker``: claims jobs and runs them.

One thread, the clerk, does all that concerns the store, round by round:

1. it writes how jobs have ended and claims others, in one transaction   ``_do_round``
2. it hands them to the threads, or to an event loop                     ``_dispatch``
3. it waits until a job has ended, somebody has committed, or one is due     ``_wait``

An end is written with the next claim, or 2 ms later. How many jobs are claimed depends
on how long they take, so that none waits here for long while other workers are idle;
what has waited for a second is given back.

When the worker stops, what was not started is given back at once, and what runs has
``grace`` seconds to end.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import math
from collections import deque
from contextlib import contextmanager
from threading import Condition, Event, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from cmdx import clock
from cmdx.declare.checks import check_count, check_seconds
from cmdx.exceptions import CmdxError
from cmdx.queue import table
from cmdx.queue.claims import Claims
from cmdx.queue.clerk import NOTHING, Demand
from cmdx.queue.legs import Leg, run_guarded
from cmdx.queue.loops import LegLoop
from cmdx.run.lifecycle import drive
from cmdx.stores.background import new_wakeup, wake
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    from cmdx.queue.clerk import End, Report
    from cmdx.queue.queue import Queue
    from cmdx.queue.table import JobRecord

LINGER = 0.002
"""The longest time that an end waits to be written, in seconds."""
BUFFER_SECONDS = 0.05
"""For how long the jobs that a thread has ahead of it should last."""
LONGEST_IN_BUFFER = 1.0
"""Seconds after which a job that was not started is given back."""
PROGRESS_EVERY = 0.2
"""Seconds between two times that the progress of jobs is stored."""
CHECK_EVERY = 0.25
"""Seconds between two looks at jobs that run: whether they are cancelled or hang."""
ROUND_EVERY = 5.0
"""Seconds after which the clerk does a round, even if nothing happens."""
HOLD_SECONDS, PASS_SECONDS = 5.0, 60.0
"""How long a busy worker claims nothing, so that a job that has crashed before can run
alone; and for how long it passes such jobs over if it could not."""
STORE_PAUSE = 0.5
"""Seconds before a round is tried again, if the store cannot be used."""

monotonic = clock.Clock.monotonic


class Worker:
    """What claims the jobs of a queue and runs them; made by ``Queue.worker``."""

    def __init__(
        self,
        queue: Queue,
        threads: int = 1,
        *,
        coroutines: int = 100,
        batch: int = 50,
        grace: float = 25.0,
    ) -> None:
        self.queue = queue
        self.threads = check_count("worker", "threads", threads)
        self.coroutines = check_count("worker", "coroutines", coroutines)
        self.batch = check_count("worker", "batch", batch)
        self.grace = check_seconds("worker", "grace", grace)
        self.lease: float | None = None
        """Seconds after which others take its jobs, if it was not heard of; 30."""
        self.legs = 0
        """How many legs it has run."""
        self.rounds = 0
        """How many rounds its clerk has done."""
        self._changed = Condition()
        """Guards what follows, and wakes threads that wait for a leg."""
        self._ready: deque[Leg] = deque()
        """Claimed, for threads, and not started."""
        self._running: dict[int, Leg] = {}
        self._ends: list[End] = []
        self._first_end_at = math.inf
        self._seconds_per_leg = 0.01
        """How long a leg in a thread takes, about."""
        self._last_start_at = 0.0
        """When a thread last began a leg."""
        self._stored_progress_at = -math.inf
        self._crashed_waits_since = math.inf
        """Since when nothing is claimed, because a job with crashes is due."""
        self._passes_crashed_until = -math.inf
        self._is_stopping = False
        self._grace_ends_at = math.inf
        self._is_over = Event()
        self._wakeup = new_wakeup()
        self._clerk: Thread | None = None
        self._has_written = False
        """Whether the clerk itself has committed since it last looked for jobs."""
        self._context = contextvars.copy_context()
        self._started: list[Thread] = []
        self._loop = LegLoop(self._context, self._add_end)

    def __repr__(self) -> str:
        """Show the queue and the number of threads."""
        noun = "thread" if self.threads == 1 else "threads"
        return f"<Worker of {self.queue}, {self.threads} {noun}>"

    @property
    def running(self) -> int:
        """How many jobs it runs at this moment."""
        return len(self._running)

    # -- starting and stopping ----------------------------------------------------

    def __enter__(self) -> Self:
        """Start the worker."""
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop the worker, and wait until its threads have ended."""
        self.stop()
        self.join()

    def start(self) -> None:
        """Start the clerk and the threads."""
        if self._started:
            message = "this worker was started before. Make another: queue.worker()."
            raise CmdxError(message)
        names = [("clerk", self._tend), *(("thread", self._serve),) * self.threads]
        for name, target in names:
            context = self._context.copy()
            thread = Thread(
                target=context.run,
                args=[target],
                name=f"cmdx queue: {name}",
                daemon=True,
            )
            self._started.append(thread)
            thread.start()

    def stop(self, grace: float | None = None) -> None:
        """
        Claim no more jobs, and give back what was not started; do not wait.

        Args:
            grace: The seconds that running jobs have to end, as given to the worker by
                default. Asynchronous ones are cancelled then and given back.
        """
        seconds = self.grace if grace is None else check_seconds("stop", "grace", grace)
        with self._changed:
            self._is_stopping = True
            end = monotonic() + seconds
            self._grace_ends_at = min(self._grace_ends_at, end)
            self._changed.notify_all()
        wake(self._wakeup)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the worker is over; tell whether it is."""
        if not self._is_over.wait(timeout):
            return False
        for thread in (*self._started, *self._loop.threads):
            thread.join()
        return True

    def run(self) -> None:
        """
        Run until ``stop`` is called, or SIGTERM or SIGINT comes.

        The signals are handled only in the main thread. The first one stops the worker,
        and a second one ends the grace. Jobs that still run in threads then are given
        back when the process exits.
        """
        with stopped_by_signals(self):
            self.start()
            while not self.join(CHECK_EVERY):
                late = monotonic() - self._grace_ends_at
                is_rolled_back = late > 0 and not self._runs_coroutines()
                if is_rolled_back or late > LONGEST_IN_BUFFER:
                    atexit.register(self._give_back_running)
                    return

    def _runs_coroutines(self) -> bool:
        """Tell whether asynchronous jobs run; they are cancelled when it is late."""
        with self._changed:
            return any(leg.record.is_async for leg in self._running.values())

    def _give_back_running(self) -> None:
        """Write what is not written, and give back what runs; the process exits now."""
        with self._changed:
            legs = list(self._running.values())
        given_back = (
            leg.end(table.give_back) for leg in legs if not leg.record.is_once
        )
        ends: dict[str, list[End]] = {}
        for end in (*self._take_ends(), *given_back):
            ends.setdefault(end.record.owner or "", []).append(end)
        for token, some in ends.items():
            claims = Claims(self.queue, self.lease)
            claims.token = token
            claims.do_round(some)

    # -- the clerk ----------------------------------------------------------------

    def _tend(self) -> None:
        """Do rounds until the worker has stopped and nothing runs any more."""
        self._clerk = current_thread()
        try:
            claims = Claims(self.queue, self.lease)
            with claims, self.queue.store.watching(self._note_commit):
                while not self._is_done():
                    next_due = self._do_round(claims)
                    self._wait(next_due)
                drive(claims.leave(awaits=False))
        finally:
            self._loop.stop()
            self._is_over.set()
            with self._changed:
                self._is_stopping = True
                self._changed.notify_all()

    def _note_commit(self) -> None:
        """
        Look for jobs soon, because somebody has committed.

        A commit of the clerk itself may have taken others along, but that can wait: the
        threads are about to run what it has claimed.
        """
        if current_thread() is self._clerk:
            self._has_written = True
        else:
            wake(self._wakeup)

    def _is_done(self) -> bool:
        with self._changed:
            is_idle = not (self._running or self._ready or self._ends)
            return self._is_stopping and is_idle

    def _do_round(self, claims: Claims) -> float:
        """Write, claim and dispatch; return when the next job is due."""
        self._give_back_unstarted()
        self._has_written = False
        ends = self._take_ends()
        demand, token = self._demand(), claims.token
        progress = self._new_progress()
        try:
            report = claims.do_round(ends, demand, progress)
        except Exception as error:
            self._keep_ends(ends)
            if claims.token != token:
                self._forget_unstarted()
            self._report_failure(error)
            clock.Clock().sleep(STORE_PAUSE)
            return self.queue.store.now()
        self.rounds += 1
        if claims.token != token:
            self._forget_unstarted()
        self._note_stored(progress)
        self._note_crashed(waits=report.waits_until_idle)
        self._look_at_running(report.cancels)
        self._dispatch(report)
        return report.next_due

    def _note_crashed(self, *, waits: bool) -> None:
        """Let no job wait for long until one that has crashed before can run."""
        now = monotonic()
        if not waits:
            self._crashed_waits_since = math.inf
        elif now - self._crashed_waits_since > HOLD_SECONDS:
            self._crashed_waits_since = math.inf
            self._passes_crashed_until = now + PASS_SECONDS
        else:
            self._crashed_waits_since = min(self._crashed_waits_since, now)

    def _report_failure(self, error: Exception) -> None:
        logger = logging.getLogger("cmdx")
        if isinstance(error, StoreError):
            logger.warning("%r cannot use its store: %s", self, error)
        else:
            logger.error("%r has met an error, and goes on", self, exc_info=error)

    def _take_ends(self) -> list[End]:
        with self._changed:
            ends, self._ends = self._ends, []
            self._first_end_at = math.inf
            return ends

    def _keep_ends(self, ends: list[End]) -> None:
        """Write ends later: the store cannot be used now."""
        with self._changed:
            self._ends = ends + self._ends
            self._first_end_at = monotonic()

    def _new_progress(self) -> dict[int, str]:
        """Return how far running jobs have come, where that is not stored yet."""
        if monotonic() < self._stored_progress_at + PROGRESS_EVERY:
            return {}
        with self._changed:
            return {
                number: text
                for number, leg in self._running.items()
                if (text := leg.progress) is not None and text != leg.stored_progress
            }

    def _note_stored(self, progress: dict[int, str]) -> None:
        if progress:
            self._stored_progress_at = monotonic()
        with self._changed:
            for number, text in progress.items():
                if number in self._running:
                    self._running[number].stored_progress = text

    def _demand(self) -> Demand:
        """Return how many jobs are to be claimed, and of which kind."""
        with self._changed:
            legs = [*self._running.values(), *self._ready]
            if self._is_stopping or any(leg.record.crashes for leg in legs):
                return NOTHING  # what has crashed before runs while nothing else does
            running = sum(not leg.record.is_async for leg in self._running.values())
            wanted, waiting = self._wanted_in_buffer(running), len(self._ready)
            # Many at once, and not one by one.
            plain = wanted - waiting if 2 * waiting <= wanted else 0
            free = self.coroutines - (len(self._running) - running)
        return Demand(
            min(self.batch, plain + free),
            plain,
            free,
            free_threads=self.threads - running - waiting,
            is_idle=not legs,
            passes_crashed=monotonic() < self._passes_crashed_until,
        )

    def _wanted_in_buffer(self, running: int) -> int:
        """Return how many jobs threads should have ahead of them."""
        idle = self.threads - running
        busy_for = 0.0 if idle > 0 else monotonic() - self._last_start_at
        seconds = max(self._seconds_per_leg, busy_for, 1e-6)
        ahead = self.threads * BUFFER_SECONDS / seconds
        return min(self.batch, max(idle, int(ahead)))

    def _look_at_running(self, cancels: set[int]) -> None:
        """Cancel jobs that are to be cancelled, and report those that hang."""
        with self._changed:
            self._give_back(
                [leg for leg in self._ready if leg.record.sequence in cancels]
            )
            legs = list(self._running.values())
            is_late = monotonic() > self._grace_ends_at
        for leg in legs:
            if leg.record.sequence in cancels and not leg.is_cancelled:
                leg.cancel()
            if is_late and leg.record.is_async and not leg.is_given_back:
                leg.is_given_back = True
                leg.cancel_coroutine()
            leg.report_if_hung()

    def _give_back_unstarted(self) -> None:
        """Give back jobs that have waited here too long, or will not be started."""
        with self._changed:
            oldest = monotonic() - LONGEST_IN_BUFFER
            late = [leg for leg in self._ready if leg.claimed_at < oldest]
            self._give_back(list(self._ready) if self._is_stopping else late)

    def _give_back(self, legs: Iterable[Leg]) -> None:
        """Give back jobs that were not started; those to be cancelled are then."""
        for leg in legs:
            if leg in self._ready:
                self._ready.remove(leg)
            self._ends.append(leg.end(table.put_back))
            self._first_end_at = min(self._first_end_at, monotonic())

    def _forget_unstarted(self) -> None:
        """Leave jobs to others, who have taken them: the lease was over."""
        with self._changed:
            self._ready.clear()

    # -- handing over -------------------------------------------------------------

    def _dispatch(self, report: Report) -> None:
        """Hand claimed jobs to the threads or to the event loop."""
        legs = [self._new_leg(record) for record in report.claimed]
        with self._changed:
            for leg in legs:
                if leg.record.is_async:
                    self._start_async(leg)
                else:
                    self._ready.append(leg)
            self._changed.notify(len(self._ready))

    def _new_leg(self, record: JobRecord) -> Leg:
        return Leg(self.queue, record)

    def _wait(self, next_due: float) -> None:
        """Wait until there is something to do."""
        pause = min(next_due - self.queue.store.now(), ROUND_EVERY)
        with self._changed:
            if self._running or self._ready or self._is_stopping:
                pause = min(pause, CHECK_EVERY)
            if self._has_written:
                pause = min(pause, LINGER)
            if self._ends:
                pause = min(pause, self._linger())
            if self._is_stopping and not self._running:
                pause = 0.0
        if pause > 0:
            self._wakeup.acquire(timeout=pause)
        with self._changed:
            linger = self._linger() if self._ends else 0.0
        if linger > 0:
            clock.Clock().sleep(linger)

    def _linger(self) -> float:
        """Return how long ends may still wait for others, in seconds."""
        if not self._ready or any(end.record.is_once for end in self._ends):
            return 0.0
        return max(self._first_end_at + LINGER - monotonic(), 0.0)

    def _add_end(self, leg: Leg, end: End) -> None:
        """Note how a leg has ended, and wake the clerk."""
        with self._changed:
            if self._running.get(leg.record.sequence) is leg:
                del self._running[leg.record.sequence]
            is_first = not self._ends
            self._ends.append(end)
            self.legs += 1
            if is_first:
                self._first_end_at = monotonic()
            must_wake = is_first or not self._ready or bool(leg.record.is_once)
        if must_wake:
            wake(self._wakeup)

    def _start_async(self, leg: Leg) -> None:
        """Have the event loop run a leg."""
        self._running[leg.record.sequence] = leg
        self._loop.start(leg)

    # -- threads ------------------------------------------------------------------

    def _serve(self) -> None:
        """Run legs until the worker stops."""
        while (leg := self._next_leg()) is not None:
            began = monotonic()
            context = self._context.copy()
            end = context.run(drive, run_guarded(leg, awaits=False))
            self._note_duration(monotonic() - began)
            self._add_end(leg, end)

    def _next_leg(self) -> Leg | None:
        """Wait for a leg; None when the worker stops."""
        with self._changed:
            while not self._ready:
                if self._is_stopping:
                    return None
                self._changed.wait()
            leg = self._ready.popleft()
            self._running[leg.record.sequence] = leg
            self._last_start_at = monotonic()
            return leg

    def _note_duration(self, seconds: float) -> None:
        """Follow how long legs take: longer ones at once, shorter ones by and by."""
        known = self._seconds_per_leg
        weight = 0.5 if seconds > known else 0.1
        self._seconds_per_leg = known + weight * (seconds - known)


@contextmanager
def stopped_by_signals(worker: Worker) -> Iterator[None]:
    """Have SIGTERM and SIGINT stop a worker, in the main thread."""
    if current_thread() is not main_thread():
        yield
        return
    import signal

    signals = (signal.SIGTERM, signal.SIGINT)

    def stop(_number: int, _frame: Any) -> None:
        worker.stop(0.0 if worker._is_stopping else None)

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
