"""
How the siblings of a parallel group are run.

An executor takes jobs, plain callables, and runs each once, at most *workers* at once.
The threads come from one bounded pool that all groups share. The caller works as well:
it runs whatever no thread has begun, so a group inside a group can never be stuck
waiting for a thread.
"""

from __future__ import annotations

import os
from collections import deque
from threading import local
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.chain import making
from cmdx.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import ThreadPoolExecutor

    Job: TypeAlias = Callable[[], Any]
    Executor: TypeAlias = Callable[[Sequence[Job], int], None]

MOST_THREADS = min(32, (os.cpu_count() or 1) + 28)

executors: Registry[Executor] = Registry("executor")

_pools: list[ThreadPoolExecutor] = []
_here = local()


@executors.register("threads")
def threads(jobs: Sequence[Job], workers: int) -> None:
    """Run *jobs* in this thread and in those of the shared pool."""
    waiting = deque(jobs)

    def work_off() -> None:
        while waiting:
            try:
                job = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            job()

    helpers = [pool().submit(work_off) for _ in range(min(workers, len(jobs)) - 1)]
    try:
        work_off()
    finally:
        for helper in helpers:
            if not helper.cancel():  # it began: it may be in the middle of a job
                helper.result()


@executors.register("asyncio")
def on_event_loop(jobs: Sequence[Job], workers: int) -> None:
    """Refuse: asyncio tasks can only be had under ``aexecute``."""
    del jobs, workers
    message = 'the executor "asyncio" needs an event loop. Use `await ....aexecute()`.'
    raise TypeError(message)


@executors.register("inline")
def inline(jobs: Sequence[Job], workers: int) -> None:
    """Run *jobs* one after the other, for debugging."""
    del workers
    for job in jobs:
        job()


def pool() -> ThreadPoolExecutor:
    """Return the shared pool; make it when it is first needed."""
    if not _pools:
        from concurrent.futures import ThreadPoolExecutor

        with making:
            if not _pools:
                _pools.append(ThreadPoolExecutor(MOST_THREADS, "cmdx", _mark))
    return _pools[0]


def in_pool() -> bool:
    """Tell whether this is a thread of the shared pool."""
    return hasattr(_here, "pooled")


def _mark() -> None:
    _here.pooled = True


def forget_pool() -> None:
    """Begin without threads in a forked child; they stayed with the parent."""
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_pool)
