"""
Group commit: callers that arrive while a commit is under way go together in the next.

1. a caller adds its unit to the queue                    ``transact``, ``atransact``
2. a caller that finds the leader slot free leads         ``_lead``
3. the leader runs the units of the queue, and commits    ``_commit_group``
4. if one raises, all are rolled back and run alone       ``_commit_callers``
5. the units are done, or nothing of them is left         ``_finish_group``
6. the write lock is released, and the others are woken   ``_wake_others``

There is no thread for writing: a lone caller leads at once. Coroutines cannot lead,
since leading blocks; when the first in the queue is one, a helper thread leads.

Units that only read do not wait until another connection releases the database. A
caller with such a unit leads others of its kind only, and a leader that has to wait
runs them meanwhile (``_serve_readers``).

A leader may be interrupted at any instruction, by a signal for example. Callers leave
the queue only when they are done, or gone, so nothing has to be put back. Whether the
commit happened is known from ``_evidence``, and the next leader finishes what this one
could not. A caller that waits checks every ``LEADER_CHECK_AFTER`` seconds whether
anybody leads, and else leads.
"""

from __future__ import annotations

from collections import deque
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import clock
from cmdx.stores.background import Background, new_wakeup, wake
from cmdx.stores.callers import AsyncCaller, Caller, affected_callers, wake_callers
from cmdx.stores.database import Database
from cmdx.stores.errors import CommitUncertain, StoreError, copy_of
from cmdx.stores.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cmdx.stores.statements import Statements

V = TypeVar("V")

monotonic = clock.Clock.monotonic
"""Real time, whatever clock a caller uses."""

LEADER_CHECK_AFTER = 0.1
"""Seconds after which a waiting caller checks whether the leader was lost."""

MOST_UNITS = 500
"""How many units go into one transaction."""

QUICK_COMMIT = 0.000_05
"""A commit that takes less time than this, in seconds, is not worth any waiting."""

LONGEST_GATHERING = 0.002
"""The longest time that a leader waits for more callers, in seconds."""

NESTED_CURE = "Give the inner function the statements of the unit instead"


class Commits(Watch, Database):
    """What is common to all stores that commit in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.at: Callable[[str], object] = do_nothing
        """Called at named points; tests replace it, to die or to switch there."""
        self._written = 0
        """How many commits of this store have changed something."""
        self._must_wake_waiters = False
        """Whether those that wait for a commit do not know of the last one."""
        self.group_size = 0
        """How many units the last commit had."""
        self._helper = Background(self._lead_for_coroutines, "cmdx store: helper")
        self._forget_callers()

    def _forget_callers(self) -> None:
        """Start without callers: a forked child has none of their threads."""
        self._queue: deque[Caller[Any]] = deque()
        self._leader_slot: list[None] = [None]
        """Empty while somebody leads; a caller that takes the item out may lead."""
        self._write_lock = Lock()
        """Held by the leader, and by whatever else uses the connection."""
        self._leading_thread = 0
        self._catches: type[BaseException] = Exception
        """What a unit may raise without ending the leader."""
        self._group: Sequence[Caller[Any]] = ()
        self._evidence: list[Any] = []
        self._has_begun = False
        self._expected_callers = 0
        """How many callers a leader waits for, itself included: as many as were in the
        queue after the last group that wrote, but at least half as many as before that.
        After a wait in vain it is as many as had come."""
        self._commit_seconds = 0.0
        """How long the last commit that wrote took; on PostgreSQL it includes the
        statements that were only sent until then."""
        self._enough_callers = new_wakeup()
        self._helper.forget()

    # -- what callers do ----------------------------------------------------------

    def transact(
        self,
        unit: Callable[[Statements], V],
        *,
        sync: bool = False,
        relaxed: bool = False,
        read_only: bool = False,
    ) -> V:
        """
        Run a unit inside a transaction, and return its value once that is committed.

        Args:
            unit: A function of ``Statements``. It may run twice, so it touches nothing
                but its statements.
            sync: Whether the commit must survive a power cut. SQLite writes through to
                the disk then; PostgreSQL does so anyway, if it is configured to.
            relaxed: Whether the commit may be lost: on PostgreSQL in a crash of the
                server, on SQLite in a power cut, whatever the store was opened with.
            read_only: Whether the unit only reads. On SQLite it does not wait then
                until another connection has ended its write transaction.
        """
        self.at("before begin")
        caller = Caller(unit, sync, relaxed, read_only)
        try:
            self._enqueue(caller)
            if self._leader_slot and self._try_to_lead():
                self._lead(caller)
            if not caller.is_done:
                self._wait_or_lead(caller)
        except BaseException:
            caller.is_gone = True
            self._free_lost_slot()
            self._wake_others(())
            raise
        value = caller.answer()
        self.at("after commit")
        return value

    async def atransact(
        self,
        unit: Callable[[Statements], V],
        *,
        sync: bool = False,
        relaxed: bool = False,
        read_only: bool = False,
    ) -> V:
        """
        Do what ``transact`` does without blocking the event loop.

        If the coroutine is cancelled, a unit that was not begun is not run, and one
        that was begun is completed.

        Args:
            unit: As for ``transact``.
            sync: As for ``transact``.
            relaxed: As for ``transact``.
            read_only: As for ``transact``.
        """
        clock.require_asyncio("atransact()")
        self.at("before begin")
        caller = AsyncCaller(unit, sync, relaxed, read_only)
        try:
            self._enqueue(caller)
            self._poll_until_done(caller)
            await caller.future
        except BaseException:
            caller.is_gone = True
            raise
        finally:
            if caller.timer is not None:
                caller.timer.cancel()
        value = caller.answer()
        self.at("after commit")
        return value

    def _enqueue(self, caller: Caller[Any]) -> None:
        """Join the queue, and wake a leader that waits for more callers."""
        self._queue.append(caller)
        if self._expected_callers > 1 and len(self._queue) >= self._expected_callers:
            wake(self._enough_callers)

    def _try_to_lead(self) -> bool:
        """Take the leader slot, if nobody has it."""
        try:
            self._leader_slot.pop()
        except IndexError:
            return False
        return True

    def _wait_or_lead(self, caller: Caller[Any]) -> None:
        """Wait until another leader has run the unit, or lead."""
        wakeup = caller.wakeup = new_wakeup()
        while not caller.is_done:
            if self._try_to_lead():
                self._lead(caller)
            elif not wakeup.acquire(timeout=LEADER_CHECK_AFTER):
                self._refuse_inside_unit("transact()", NESTED_CURE)
                self._free_lost_slot()

    def _refuse_inside_unit(self, call: str, cure: str) -> None:
        """Raise if this very thread leads, that is, if a unit has made this call."""
        if self._leading_thread == get_ident() and self._write_lock.locked():
            raise StoreError(f"a unit called {call} of its own store", cure)

    def _free_lost_slot(self) -> None:
        """Free the leader slot if its owner was interrupted before leading."""
        if not self._write_lock.locked():
            self._leader_slot = [None]

    def _poll_until_done(self, caller: AsyncCaller[Any]) -> None:
        """Have the helper lead if nobody does, and check again after a while."""
        if caller.is_done:
            caller.wake()
            return
        self._free_lost_slot()
        if self._leader_slot:
            self._helper.call()
        caller.timer = caller.loop.call_later(
            LEADER_CHECK_AFTER, self._poll_until_done, caller
        )

    # -- what a leader does -------------------------------------------------------

    def _lead_for_coroutines(self) -> None:
        """Lead instead of a coroutine; what a unit raises is always the unit's here."""
        if self._queue and self._try_to_lead():
            self._lead(None, BaseException)

    def _lead(
        self,
        caller: Caller[Any] | None,
        catches: type[BaseException] = Exception,
    ) -> None:
        """Take the write lock, commit what is in the queue, and wake the others."""
        callers: Sequence[Caller[Any]] = ()
        try:
            # By ``with`` alone: no signal is handled between taking the lock and the
            # block, nor between the block and releasing it.
            with self._write_lock:
                self._leading_thread = get_ident()
                self._catches = catches
                try:
                    if self._group:
                        self._finish_group()
                    callers = self._next_callers(caller)
                    if callers:
                        self._commit_callers(callers)
                except BaseException:
                    if caller is not None:
                        caller.is_gone = True
                    raise
                finally:
                    if self._group:
                        self._finish_group()
                    self._drop_finished()
                    self._leading_thread = 0
                    self._leader_slot = [None]
        finally:
            is_alone = len(callers) == 1 and callers[0] is caller
            self._wake_others(() if is_alone else callers)
        self._checkpoint_if_due()

    def _next_callers(self, leader: Caller[Any] | None) -> Sequence[Caller[Any]]:
        """Return the callers to be served next, without those that have gone."""
        queue = self._queue
        only_readers = leader is not None and leader.read_only
        if queue and self._expected_callers > 1 and not only_readers:
            self._wait_for_more()
        if leader is not None and len(queue) == 1 and queue[0] is leader:
            return (leader,) if leader.is_waiting else ()
        return self._waiting_callers(only_readers=only_readers)

    def _waiting_callers(self, *, only_readers: bool) -> list[Caller[Any]]:
        """Return the first callers of the queue whose units are to be run."""
        return [
            caller
            for caller in self._queue.copy()
            if caller.is_waiting and (caller.read_only or not only_readers)
        ][:MOST_UNITS]

    def _wait_for_more(self) -> None:
        """
        Wait for as many callers as are expected, but no longer than a commit takes.

        Threads that are busy with the store are about to come again. If they come
        within the time of a commit, waiting for them takes less than another commit.
        If they do not, fewer are waited for next time.
        """
        if self._commit_seconds < QUICK_COMMIT:
            return
        end = monotonic() + min(self._commit_seconds, LONGEST_GATHERING)
        while len(self._queue) < self._expected_callers:
            seconds = end - monotonic()
            if seconds <= 0 or not self._enough_callers.acquire(timeout=seconds):
                self._expected_callers = len(self._queue)
                return

    def _commit_callers(self, callers: Sequence[Caller[Any]]) -> None:
        """Commit all units together, or each alone if that fails."""
        self._try_group(callers)
        for caller in callers:
            while not caller.is_done:
                self._try_group((caller,))
        if not are_readers(callers):
            expected = max(len(self._queue), self._expected_callers // 2)
            self._expected_callers = min(expected, MOST_UNITS)

    def _try_group(self, callers: Sequence[Caller[Any]]) -> None:
        """Commit units together; if that fails, roll back and decide what to do."""
        try:
            self._commit_group(callers)
        except self._catches as error:
            self._handle_failure(callers, error)
        else:
            self._finish_group()

    def _commit_group(self, callers: Sequence[Caller[Any]]) -> None:
        """Run units inside one transaction."""
        self._evidence.clear()
        self._has_begun = False
        self._group = callers
        if len(callers) == 1:
            one = callers[0]
            statements = self._begin(one.sync, one.relaxed, one.read_only)
        else:
            statements = self._begin(
                any(caller.sync for caller in callers),
                all(caller.relaxed for caller in callers),
                are_readers(callers),
            )
        self._has_begun = True
        for caller in callers:
            if caller.is_done or (caller.is_gone and not caller.runs):
                continue
            caller.runs += 1
            statements.now = caller.clock.time() + self._offset
            caller.value = caller.unit(statements)
        self.at("before commit")
        began = monotonic()
        self._end(self._evidence)
        if not are_readers(callers):
            self._commit_seconds = monotonic() - began

    def _serve_readers(self) -> None:
        """Run the units that only read while their leader waits for the database."""
        readers = self._waiting_callers(only_readers=True)
        if not readers:
            return
        group_of_leader = self._group
        self._commit_callers(readers)
        self._evidence.clear()
        self._has_begun = False
        self._group = group_of_leader
        wake_callers(readers)

    def _handle_failure(
        self, callers: Sequence[Caller[Any]], error: BaseException
    ) -> None:
        """Roll back, and give the error to those that are not tried again."""
        self._finish_group()
        explained = self._explain(error)
        if not self._has_begun:
            only_writers = self._affects_only_writers(error)
            for caller in affected_callers(callers, only_writers=only_writers):
                caller.fail(copy_of(explained))
            return
        most = self._most_runs(error)
        if len(callers) == 1 and callers[0].runs >= most and not callers[0].is_done:
            callers[0].fail(explained)

    def _finish_group(self) -> None:
        """Mark the units as done if they were committed; otherwise roll back."""
        outcome = self._outcome(self._evidence)
        if outcome:
            self.group_size = len(self._group)
            self._note_commit()
            for caller in self._group:
                caller.is_done = True
        else:
            if outcome is None:
                for caller in self._group:
                    caller.fail(self._uncertain())
            self._rollback()
        self._group = ()

    def _drop_finished(self) -> None:
        """Remove callers from the queue that are done, or gone."""
        queue = self._queue
        while queue and (queue[0].is_done or queue[0].is_gone):
            queue.popleft()

    def _note_commit(self) -> None:
        """Take note that a transaction was committed."""
        if self._has_written():
            self._written += 1
            self._must_wake_waiters = True

    def _uncertain(self) -> CommitUncertain:
        """Return the error for a commit of which nobody can know."""
        return CommitUncertain(
            f"the connection to {self.name} was lost during a commit, which may or may "
            "not have happened",
            "Look whether it has before you try again",
        )

    def _wake_others(self, callers: Sequence[Caller[Any]]) -> None:
        """Wake the next leader, and those whose units are done."""
        if self._queue:
            self._wake_next_leader()
        if callers:
            wake_callers(callers)
        if self._must_wake_waiters:
            self._must_wake_waiters = False
            if self._waiters:
                self._wake_waiters()

    def _wake_next_leader(self) -> None:
        """Wake the first in the queue, to lead."""
        for caller in self._queue.copy():
            if not caller.is_waiting:
                continue
            if isinstance(caller, AsyncCaller):
                self._helper.call()
            elif caller.wakeup is not None:  # else it is about to lead
                wake(caller.wakeup)
            return


def are_readers(callers: Sequence[Caller[Any]]) -> bool:
    """Tell whether all units of a group only read."""
    return all(caller.read_only for caller in callers)


def do_nothing(_point: str) -> None:
    """Go on, whatever the point."""
