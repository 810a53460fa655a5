"""
Group commit: callers who arrive while a commit is under way go together in the next.

1. a caller stands in line with its unit                ``transact``, ``atransact``
2. who finds the right to lead takes the baton          ``_lead``
3. the leader runs the units of the line, and commits   ``_commit``
4. if one raises, all are rolled back and run alone     ``_commit_line``
5. the units are done, or nothing of them is left       ``_settle``
6. the baton is laid down, and the others are called    ``_pass_on``

There is no thread for writing: a lone caller leads at once. Coroutines cannot lead,
since leading blocks; when the first in line is one, a helper thread leads.

A leader may be interrupted at any instruction, by a signal for example. Callers leave
the line only when they are done, so nothing has to be put back. Whether the commit
happened is known from ``_evidence``, and the next leader settles what this one could
not. Who waits looks every ``PATIENCE`` seconds whether anybody leads, and else leads.
"""

from __future__ import annotations

from collections import deque
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import clock
from cmdx.stores.background import Background, new_bell, ring
from cmdx.stores.callers import AsyncCaller, Caller, call_all
from cmdx.stores.database import Database
from cmdx.stores.errors import CommitUncertain, StoreError, copy_of
from cmdx.stores.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cmdx.stores.statements import Statements

V = TypeVar("V")

monotonic = clock.Clock.monotonic
"""Real time, whatever clock a caller uses."""

PATIENCE = 0.1
"""Seconds after which a waiting caller looks whether the leader was lost."""

MOST = 500
"""How many units go into one transaction."""

SHORT = 0.000_05
"""A commit that takes less time than this, in seconds, is not worth any waiting."""

LONG = 0.002
"""The longest time that a leader waits for others to come, in seconds."""


class Commits(Watch, Database):
    """What is common to all stores that commit in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.at: Callable[[str], object] = do_nothing
        """Called at named points; tests replace it, to die or to switch there."""
        self._written = 0
        """How many commits of this store have changed something."""
        self._has_news = False
        """Whether the last of them is still to be announced."""
        self._helper = Background(self._help, "cmdx store: helper")
        self._forget_callers()

    def _forget_callers(self) -> None:
        """Begin without callers: a forked child has none of their threads."""
        self._line: deque[Caller[Any]] = deque()
        self._right: list[None] = [None]
        """Empty while somebody leads; who takes the item out may lead."""
        self._baton = Lock()
        self._leader = 0
        self._group: Sequence[Caller[Any]] = ()
        self._evidence: list[Any] = []
        self._has_begun = False
        self._company = 0
        """How many went together last time, or stood in line then."""
        self._duration = 0.0
        """The seconds that this took."""
        self._gathered = new_bell()
        self._helper.forget()

    # -- what callers do ----------------------------------------------------------

    def transact(
        self,
        unit: Callable[[Statements], V],
        *,
        sync: bool = False,
        relaxed: bool = False,
    ) -> V:
        """
        Run a unit inside a transaction, and return its value once that is committed.

        Args:
            unit: A function of ``Statements``. It may run twice, so it touches nothing
                but its statements.
            sync: Whether the commit must survive a power cut. SQLite writes through to
                the disk then; PostgreSQL does so anyway, if it is configured to.
            relaxed: Whether a crash of a PostgreSQL server may lose the commit.
        """
        self.at("before begin")
        caller = Caller(unit, sync, relaxed)
        try:
            self._stand_in_line(caller)
            if self._right and self._claim():
                self._lead(caller)
            if not caller.is_done:
                self._ride(caller)
        except BaseException:
            caller.is_gone = True
            self._reclaim()
            self._pass_on(())
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
    ) -> V:
        """
        Do what ``transact`` does without blocking the event loop.

        If the coroutine is cancelled, a unit that was not begun is not run, and one
        that was begun is completed.

        Args:
            unit: As for ``transact``.
            sync: As for ``transact``.
            relaxed: As for ``transact``.
        """
        clock.require_asyncio("atransact()")
        self.at("before begin")
        caller = AsyncCaller(unit, sync, relaxed)
        try:
            self._stand_in_line(caller)
            self._attend(caller)
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

    def _stand_in_line(self, caller: Caller[Any]) -> None:
        """Stand in line, and tell a leader who waits for company."""
        self._line.append(caller)
        if self._company > 1 and len(self._line) >= self._company:
            ring(self._gathered)

    def _claim(self) -> bool:
        """Take the right to lead, if nobody has it."""
        try:
            self._right.pop()
        except IndexError:
            return False
        return True

    def _ride(self, caller: Caller[Any]) -> None:
        """Wait until another leader has run the unit, or lead."""
        bell = caller.bell = new_bell()
        while not caller.is_done:
            if self._claim():
                self._lead(caller)
            elif not bell.acquire(timeout=PATIENCE):
                self._refuse_nesting()
                self._reclaim()

    def _refuse_nesting(self) -> None:
        """Raise if this very thread leads, that is, if a unit called ``transact``."""
        if self._leader == get_ident() and self._baton.locked():
            raise StoreError(
                "a unit called transact() of its own store",
                "Give the inner function the statements of the unit instead",
            )

    def _reclaim(self) -> None:
        """Put the right to lead back if who had it was interrupted before leading."""
        if not self._baton.locked():
            self._right = [None]

    def _attend(self, caller: AsyncCaller[Any]) -> None:
        """Have a helper lead if nobody does, and look again after a while."""
        if caller.is_done:
            caller.wake()
            return
        self._reclaim()
        if self._right:
            self._helper.call()
        caller.timer = caller.loop.call_later(PATIENCE, self._attend, caller)

    # -- what a leader does -------------------------------------------------------

    def _help(self) -> None:
        """Lead instead of a coroutine; what a unit raises is always the unit's here."""
        if self._line and self._claim():
            self._lead(None, BaseException)

    def _lead(
        self,
        caller: Caller[Any] | None,
        catches: type[BaseException] = Exception,
    ) -> None:
        """Take the baton, commit what stands in line, and pass the baton on."""
        callers: Sequence[Caller[Any]] = ()
        try:
            # By ``with`` alone: no signal is handled between taking the lock and the
            # block, nor between the block and releasing it.
            with self._baton:
                self._leader = get_ident()
                try:
                    if self._group:
                        self._settle()
                    callers = self._next_callers()
                    if callers:
                        self._commit_line(callers, catches)
                except BaseException:
                    if caller is not None:
                        caller.is_gone = True
                    raise
                finally:
                    if self._group:
                        self._settle()
                    self._leave_line()
                    self._leader = 0
                    self._right = [None]
        finally:
            is_alone = len(callers) == 1 and callers[0] is caller
            self._pass_on(() if is_alone else callers)
        self._tidy()

    def _next_callers(self) -> Sequence[Caller[Any]]:
        """Return who is served next, without those who have gone."""
        line = self._line
        if line and self._company > 1:
            self._gather()
        if len(line) == 1 and line[0].is_waiting:
            return (line[0],)
        return [caller for caller in line.copy() if caller.is_waiting][:MOST]

    def _gather(self) -> None:
        """
        Wait for those who went together last time.

        Threads that are busy with the store are about to come again. A commit costs
        more than waiting for them, if that takes less time than the last commit.
        """
        if self._duration < SHORT:
            return
        end = monotonic() + min(self._duration, LONG)
        while len(self._line) < self._company:
            seconds = end - monotonic()
            if seconds <= 0 or not self._gathered.acquire(timeout=seconds):
                return

    def _commit_line(
        self, callers: Sequence[Caller[Any]], catches: type[BaseException]
    ) -> None:
        """Commit all units together, or each alone if that fails."""
        began = monotonic()
        self._try(callers, catches)
        for caller in callers:
            while not caller.is_done:
                self._try((caller,), catches)
        self._company = max(len(self._line), self._company // 2)
        self._duration = monotonic() - began

    def _try(
        self, callers: Sequence[Caller[Any]], catches: type[BaseException]
    ) -> None:
        """Commit units together; roll back and decide who is to blame if that fails."""
        try:
            self._commit(callers)
        except catches as error:
            self._blame(callers, error)
        else:
            self._settle()

    def _commit(self, callers: Sequence[Caller[Any]]) -> None:
        """Run units inside one transaction."""
        self._evidence.clear()
        self._has_begun = False
        self._group = callers
        if len(callers) == 1:
            sync, relaxed = callers[0].sync, callers[0].relaxed
        else:
            sync = any(caller.sync for caller in callers)
            relaxed = all(caller.relaxed for caller in callers)
        statements = self._begin(sync, relaxed)
        self._has_begun = True
        for caller in callers:
            if caller.is_gone and not caller.runs:
                continue
            caller.runs += 1
            statements.now = caller.clock.time() + self._offset
            caller.value = caller.unit(statements)
        self.at("before commit")
        self._end(self._evidence)

    def _blame(self, callers: Sequence[Caller[Any]], error: BaseException) -> None:
        """Roll back, and tell the error to those who are not tried again."""
        self._settle()
        explained = self._explain(error)
        if not self._has_begun:
            for caller in callers:
                caller.fail(copy_of(explained))
            return
        most = self._most_runs(error)
        if len(callers) == 1 and callers[0].runs >= most and not callers[0].is_done:
            callers[0].fail(explained)

    def _settle(self) -> None:
        """Have the units be done if they were committed, and else leave nothing."""
        outcome = self._outcome(self._evidence)
        if outcome:
            self._note_commit()
            for caller in self._group:
                caller.is_done = True
        else:
            if outcome is None:
                for caller in self._group:
                    caller.fail(self._uncertain())
            self._rollback()
        self._group = ()

    def _leave_line(self) -> None:
        """Have those leave the line who are done, or gone."""
        line = self._line
        while line and not line[0].is_waiting:
            line.popleft()

    def _note_commit(self) -> None:
        """Take note that a transaction was committed."""
        if self._has_written():
            self._written += 1
            self._has_news = True

    def _uncertain(self) -> CommitUncertain:
        """Return the error for a commit of which nobody can know."""
        return CommitUncertain(
            f"the connection to {self.name} was lost during a commit, which may or may "
            "not have happened",
            "Look whether it has before you try again",
        )

    def _pass_on(self, callers: Sequence[Caller[Any]]) -> None:
        """Call the next leader, and those whose units are done."""
        if self._line:
            self._call_next()
        if callers:
            call_all(callers)
        if self._has_news:
            self._has_news = False
            if self._waiters:
                self._announce()

    def _call_next(self) -> None:
        """Call the first in line, to lead."""
        for caller in self._line.copy():
            if not caller.is_waiting:
                continue
            if isinstance(caller, AsyncCaller):
                self._helper.call()
            elif caller.bell is not None:  # else it is about to lead
                ring(caller.bell)
            return


def do_nothing(_point: str) -> None:
    """Go on, whatever the point."""
