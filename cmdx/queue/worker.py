"""
``Worker``: claims jobs and runs them.

1. a round writes how jobs have ended, and claims others    ``_do_round``
2. what it has claimed goes to threads or an event loop     ``_dispatch``
3. a thread runs one leg after another                      ``_serve``
4. a thread that has none does the next round itself        ``cmdx.queue.rounds``

So a job need not go from one thread to another. If all threads are busy, one more, the
spare thread, does the round. An end is written with the next claim, or 2 ms later.

When the worker stops, what was not started is given back at once, and what runs has
``grace`` seconds to end.
"""

from __future__ import annotations

import atexit
import logging
import math
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from cmdx import clock
from cmdx.declare.checks import check_count, check_seconds
from cmdx.exceptions import CmdxError
from cmdx.queue import table
from cmdx.queue.buffer import LONGEST_IN_BUFFER, Buffer
from cmdx.queue.claims import Claims
from cmdx.queue.lanes import lanes_of
from cmdx.queue.legs import CHECK_EVERY, Leg, run_guarded
from cmdx.queue.loops import LegLoop
from cmdx.queue.report import NOTHING
from cmdx.queue.rounds import AT_ONCE, END_WAITS, ROUND_EVERY, RoundTimer
from cmdx.run.lifecycle import drive
from cmdx.stores.errors import StoreError
from cmdx.wire.traces import context_without_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from cmdx.queue.queue import Queue
    from cmdx.queue.report import Demand, End, Report
    from cmdx.queue.table import JobRecord

ROUND_PAUSE = 0.002
"""Seconds between two rounds that find some jobs, but not many: the next one finds more
then, and others can write meanwhile."""
PROGRESS_EVERY = 0.2
"""Seconds between two times that the progress of jobs is stored."""
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
        """Seconds without a sign of it until others take its jobs; None means 30."""
        self.rounds: int = 0
        """How many rounds it has done."""
        self._buffer = Buffer(threads, coroutines, batch)
        self._changed = self._buffer.changed
        """Guards the buffer, the timer, and whether the worker stops."""
        self._timer = RoundTimer(self._changed)
        self._claims: Claims
        self._commit_was_shared = False
        """Whether the commit of the round also had units of other callers."""
        self._stored_progress_at = -math.inf
        self._crashed_waits_since = math.inf
        """Since when nothing is claimed, because a job with crashes is due."""
        self._passes_crashed_until = -math.inf
        self._is_stopping = False
        self._grace_ends_at = math.inf
        self._is_over = Event()
        self._context = context_without_trace()
        """What jobs see of the context variables of who made the worker."""
        self._started: list[Thread] = []
        self._loop = LegLoop(self._context, self._end_async)

    def __repr__(self) -> str:
        """Show the queue and the number of threads."""
        noun = "thread" if self.threads == 1 else "threads"
        return f"<Worker of {self.queue}, {self.threads} {noun}>"

    @property
    def running(self) -> int:
        """How many jobs it runs at this moment."""
        return len(self._buffer.running)

    @property
    def legs(self) -> int:
        """How many legs it has run."""
        return self._buffer.legs

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
        """Start the threads, and the spare one."""
        if self._started:
            message = "this worker was started before. Make another: queue.worker()."
            raise CmdxError(message)
        self._claims = self._context.copy().run(Claims, self.queue, self.lease)
        names = [
            ("spare thread", self._tend),
            *(("thread", self._serve),) * self.threads,
        ]
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
            self._timer.plan(AT_ONCE)
            self._changed.notify_all()
            self._timer.wake_spare_thread()

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
        return any(leg.record.is_async for leg in self._buffer.running_legs())

    def _give_back_running(self) -> None:
        """Write what is not written, and give back what runs; the process exits now."""
        given_back = (
            leg.end(table.give_back)
            for leg in self._buffer.running_legs()
            if not leg.record.is_once
        )
        ends: dict[str, list[End]] = {}
        for end in (*self._buffer.take_ends(), *given_back):
            ends.setdefault(end.record.owner or "", []).append(end)
        for token, some in ends.items():
            claims = Claims(self.queue, self.lease)
            claims.token = token
            claims.do_round(some)

    # -- rounds -------------------------------------------------------------------

    def _tend(self) -> None:
        """Do rounds that no other thread does, until nothing runs any more."""
        try:
            with self._claims, self.queue.store.watching(self._note_commit):
                self._timer.plan(AT_ONCE)
                while not self._is_done():
                    if self._timer.wait_as_spare(is_alone=self._is_stopping):
                        self._try_round()
                drive(self._claims.leave(awaits=False))
        finally:
            self._loop.stop()
            self._is_over.set()
            with self._changed:
                self._is_stopping = True
                self._changed.notify_all()

    def _is_done(self) -> bool:
        with self._changed:
            return self._is_stopping and self._buffer.is_empty

    def _note_commit(self) -> None:
        """
        Look for jobs, because somebody has committed.

        The commit of a round may also have had units of other callers. What they have
        done can wait: the threads are about to run what the round has claimed.
        """
        if self._timer.is_own_turn:
            self._commit_was_shared = self.queue.store.group_size > 1
        else:
            self._timer.plan(monotonic())

    def _try_round(self) -> bool:
        """Do a round if it is due and no other thread does; tell whether."""
        with self._timer.turn() as is_due:
            if is_due:
                try:
                    self._do_round()
                except BaseException:  # such as a receiver of a signal that exits
                    self.stop(0.0)
                    raise
            return is_due

    def _do_round(self) -> None:
        """Write, claim and dispatch, and plan the next round."""
        claims, buffer, began = self._claims, self._buffer, monotonic()
        self._commit_was_shared = False
        buffer.give_back_late(is_stopping=self._is_stopping)
        ends = buffer.take_ends()
        token, progress = claims.token, self._new_progress()
        try:
            report = claims.do_round(ends, self._demand(), progress)
        except Exception as error:
            buffer.keep_ends(ends)
            if claims.token != token:
                buffer.forget_unstarted()
            self._report_failure(error)
            self._timer.hold_until(monotonic() + STORE_PAUSE)
            self._timer.plan(monotonic())
            return
        self.rounds += 1
        if claims.token != token:
            buffer.forget_unstarted()
        self._note_stored(progress)
        self._note_crashed(waits=report.waits_until_idle)
        self._look_at_running(report.cancels)
        self._dispatch(report)
        self._plan_next(report, began)

    def _plan_next(self, report: Report, began: float) -> None:
        """Plan the next round, after one was done."""
        until_due = report.next_due - self.queue.store.now()
        gathers = until_due > 0 and len(report.claimed) > 1
        self._timer.hold_until(began + ROUND_PAUSE if gathers else AT_ONCE)
        pause = min(until_due, ROUND_EVERY)
        with self._changed:
            if self._commit_was_shared:
                pause = min(pause, END_WAITS)
            if not self._buffer.is_empty:
                pause = min(pause, CHECK_EVERY)
            if self._buffer.ends or (self._is_stopping and not self._buffer.running):
                pause = 0.0
            self._timer.plan(monotonic() + pause)

    def _demand(self) -> Demand:
        passes_crashed = monotonic() < self._passes_crashed_until
        if self._is_stopping:
            return NOTHING
        demand = self._buffer.demand(passes_crashed=passes_crashed) or NOTHING
        has_lanes = self.rounds % 2 and lanes_of(self.queue)
        return demand.with_reserve() if has_lanes else demand

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

    def _new_progress(self) -> dict[int, str]:
        if monotonic() < self._stored_progress_at + PROGRESS_EVERY:
            return {}
        return self._buffer.new_progress()

    def _note_stored(self, progress: dict[int, str]) -> None:
        if progress:
            self._stored_progress_at = monotonic()
            self._buffer.note_stored(progress)

    def _look_at_running(self, cancels: set[int]) -> None:
        """Cancel jobs that are to be cancelled, and report those that hang."""
        if cancels:
            self._buffer.give_back_cancelled(cancels)
        is_late = monotonic() > self._grace_ends_at
        for leg in self._buffer.running_legs():
            if leg.record.sequence in cancels and not leg.is_cancelled:
                leg.cancel()
            if is_late and leg.record.is_async and not leg.is_given_back:
                leg.is_given_back = True
                leg.cancel_coroutine()
            leg.report_if_hung()

    def _dispatch(self, report: Report) -> None:
        """Hand claimed jobs to the threads or to the event loop."""
        if not report.claimed:
            return
        legs = [self._new_leg(record) for record in report.claimed]
        with self._changed:
            for leg in legs:
                if leg.record.is_async:
                    self._buffer.begin_leg(leg)
                else:
                    self._buffer.add_leg(leg)
            self._changed.notify(len(self._buffer.ready))
        asynchronous = [leg for leg in legs if leg.record.is_async]
        if asynchronous:
            self._loop.start(asynchronous)

    def _new_leg(self, record: JobRecord) -> Leg:
        return Leg(self.queue, record)

    # -- running legs -------------------------------------------------------------

    def _serve(self) -> None:
        """Run legs, and do rounds between them, until the worker stops."""
        while True:
            leg = self._buffer.take_leg()
            if leg is not None:
                self._timer.wake_spare_thread()
                self._run(leg)
            elif self._is_stopping:
                return
            elif not self._try_round():
                self._wait_for_leg()

    def _run(self, leg: Leg) -> None:
        """Run a leg in this thread."""
        began = monotonic()
        context = self._context.copy()
        end = context.run(drive, run_guarded(leg, awaits=False))
        now = monotonic()
        with self._changed:
            self._buffer.add_end(leg, end, now - began)
            looks_next = not (self._buffer.ready or self._is_stopping)
            moment = AT_ONCE if leg.record.is_once else now
            self._timer.plan(moment, by_caller=looks_next)
        if not looks_next and self._timer.is_due_between_legs():
            self._try_round()

    def _wait_for_leg(self) -> None:
        """Wait until there may be something to do."""
        with self._changed:
            if not (self._buffer.ready or self._is_stopping):
                self._timer.wait_for_leg()

    def _end_async(self, leg: Leg, end: End) -> None:
        """Note how an asynchronous leg has ended; others may end in a moment."""
        with self._changed:
            self._buffer.add_end(leg, end)
            if leg.record.is_once:
                self._timer.plan(AT_ONCE)
            elif not self._buffer.running:
                self._timer.plan(monotonic())
            elif leg.record.lane is None:
                self._timer.plan(monotonic() + END_WAITS)
            else:
                self._timer.gather()


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
