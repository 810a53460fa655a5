"""The event loop of a worker, in a thread of its own: it runs asynchronous legs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import TYPE_CHECKING

from cmdx.queue.legs import run_guarded

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from contextvars import Context

    from cmdx.queue.legs import Leg
    from cmdx.queue.report import End

MOST_THREADS = 64
"""How many calls of ``asyncio.to_thread`` run at the same time; asyncio would allow
four more than there are processors."""


class LegLoop:
    """
    An event loop that is started when the first leg needs it.

    Args:
        context: What the legs see of the context variables of the worker.
        add_end: Called with each leg, and how it has ended.
    """

    def __init__(self, context: Context, add_end: Callable[[Leg, End], None]) -> None:
        self.threads: list[Thread] = []
        """The thread of the loop, once it was started."""
        self._context = context
        self._add_end = add_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """What runs; asyncio itself keeps only weak references."""

    def start(self, legs: Sequence[Leg]) -> None:
        """Have the loop run legs."""
        loop = self._loop or self._start_loop()
        loop.call_soon_threadsafe(self._create_tasks, legs)

    def stop(self) -> None:
        """Stop the loop; nothing runs in it any more."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        loop = self._loop = asyncio.new_event_loop()
        # Names are looked up in them, and that may take as long as a timeout.
        loop.set_default_executor(ThreadPoolExecutor(MOST_THREADS))
        thread = Thread(
            target=self._context.copy().run,
            args=[run_loop, loop],
            name="cmdx queue: event loop",
            daemon=True,
        )
        self.threads.append(thread)
        thread.start()
        return loop

    def _create_tasks(self, legs: Sequence[Leg]) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        for leg in legs:
            task = loop.create_task(self._run(leg), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, leg: Leg) -> None:
        self._add_end(leg, await run_guarded(leg, awaits=True))


def run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, and close it."""
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
