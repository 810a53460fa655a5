"""
Draining: all that is due is run here and now, as one worker would run it.

A thread looks at what runs now and then: whether it is cancelled, or hangs.

Under ``cmdx.testing.instant()`` nothing is waited for: time moves on to when the next
job is due, and is left at the start plus ``ahead``.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from contextvars import copy_context
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from cmdx import clock
from cmdx.declare.checks import check_seconds
from cmdx.exceptions import CmdxError
from cmdx.queue.claims import Claims
from cmdx.queue.legs import CHECK_EVERY, Leg, run_in_task, run_leg
from cmdx.queue.report import Demand
from cmdx.run.lifecycle import finish_despite_cancel
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import NoReturn, Self

    from cmdx.queue.queue import Queue
    from cmdx.queue.report import End


async def drain(queue: Queue, ahead: float, *, awaits: bool) -> int:
    """Run all that is due until *ahead* seconds from now; return how many legs."""
    end = clock.now() + check_seconds("drain", "ahead", ahead)
    if not awaits:
        refuse_in_event_loop()
    with Claims(queue) as claims, LegWatch(claims) as watch:
        try:
            return await run_until(end, claims, watch, awaits=awaits)
        finally:
            await finish(claims.leave(awaits=awaits), awaits=awaits)


async def run_until(
    end: float, claims: Claims, watch: LegWatch, *, awaits: bool
) -> int:
    """Claim jobs and run them, one by one, until none is due before *end*."""
    queue, count = claims.queue, 0
    ends: list[End] = []
    while True:
        report = await claims.round(ends, Demand(1), awaits=awaits)
        legs = [Leg(queue, record) for record in report.claimed]
        ends = [await run_here(leg, watch, awaits=awaits) for leg in legs]
        count += len(ends)
        if any(leg.interrupt is not None for leg in legs):
            await finish(claims.round(ends, awaits=awaits), awaits=awaits)
            raise_interrupt(legs[0], awaits=awaits)
        if ends:
            continue
        until_due = max(report.next_due - queue.store.now(), 0.0)
        left = end - clock.now()
        if until_due > 0:
            await pass_time(min(until_due, left), awaits=awaits)
            await claims.extend_lease(awaits=awaits)
        if until_due > left:
            return count


async def finish(steps: Coroutine[Any, Any, Any], *, awaits: bool) -> None:
    """Take *steps* to their end, even if the caller is cancelled meanwhile."""
    if awaits:
        await finish_despite_cancel(steps)
    else:
        await steps


async def pass_time(seconds: float, *, awaits: bool) -> None:
    """Let time pass; virtual time at once, and not as a pause of a task."""
    if seconds <= 0:
        return
    advance = getattr(clock.current.get(), "advance", None)
    if advance is not None:
        advance(seconds)
    else:
        await clock.pause(seconds, awaits=awaits)


async def run_here(leg: Leg, watch: LegWatch, *, awaits: bool) -> End:
    """Run a leg in this thread, or in an event loop of its own if it needs one."""
    leg.is_of_caller = True
    with watch.over(leg):
        if not leg.record.is_async:
            return await run_leg(leg, awaits=False)
        if awaits:
            return await run_in_task(leg)
        import asyncio

        return asyncio.run(run_in_task(leg))


class LegWatch:
    """A thread that looks at the leg that is run here, as a worker does at its legs."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._leg: Leg | None = None
        self._is_over = Event()

    def __enter__(self) -> Self:
        """Start the thread."""
        context = copy_context()
        name = "cmdx queue: watch"
        Thread(target=context.run, args=[self._run], name=name, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the thread end."""
        self._is_over.set()

    @contextmanager
    def over(self, leg: Leg) -> Iterator[None]:
        """Look at a leg while the block runs."""
        self._leg = leg
        try:
            yield
        finally:
            self._leg = None

    def _run(self) -> None:
        """Look now and then, until all is drained."""
        while not self._is_over.wait(CHECK_EVERY):
            leg = self._leg
            if leg is not None:
                leg.report_if_hung()
                with suppress(StoreError):  # who drains will find out
                    if not leg.is_cancelled and self._claims.is_cancelled(leg.record):
                        leg.cancel()


def refuse_in_event_loop() -> None:
    """Refuse to block an event loop, before anything is claimed."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        message = "drain() would block the event loop. Use `await queue.adrain()`."
        raise CmdxError(message)


def raise_interrupt(leg: Leg, *, awaits: bool) -> NoReturn:
    """Raise what has interrupted the user; the job was given back."""
    interrupt = leg.interrupt
    if interrupt is not None and (awaits or isinstance(interrupt, KeyboardInterrupt)):
        raise interrupt
    raise KeyboardInterrupt  # for which asyncio.run has cancelled the leg
