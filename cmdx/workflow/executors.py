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
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.chain import creation_lock
from cmdx.declare.registry import Registry
from cmdx.declare.signatures import check_plain_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    Job: TypeAlias = Callable[[], Any]
    Executor: TypeAlias = Callable[[Sequence[Job], int], None]

MOST_THREADS = min(32, (os.cpu_count() or 1) + 28)


def check_executor(where: str, executor: Callable[..., Any]) -> int:
    """Refuse an executor that has to be awaited or takes other arguments."""
    cure = "An executor takes (jobs, workers)."
    return check_plain_call(where, executor, 2, cure, least=2)


executors: Registry[Executor] = Registry("executor", check=check_executor)

blocks_thread: ContextVar[bool] = ContextVar("cmdx.blocks_thread", default=False)
"""Whether this is part of a step that blocks a thread, in that thread or elsewhere."""

_pools: list[ThreadPoolExecutor] = []


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

    helpers = []
    try:
        for _ in range(min(workers, len(jobs)) - 1):
            with suppress(RuntimeError):  # the interpreter exits, and starts no threads
                helpers.append(pool().submit(work_off))
        work_off()
        for helper in helpers:
            if not helper.cancel():  # it began: it may be in the middle of a job
                helper.result()
    except BaseException:  # a signal handler has raised
        waiting.clear()
        raise


@executors.register("asyncio")
def on_event_loop(jobs: Sequence[Job], workers: int) -> None:
    """Refuse: asyncio tasks can only be had under ``aexecute``."""
    del jobs, workers
    message = (
        'the executor "asyncio" needs an event loop. Run the workflow with aexecute().'
    )
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

        with creation_lock:
            if not _pools:
                _pools.append(ThreadPoolExecutor(MOST_THREADS, "cmdx"))
    return _pools[0]


def start_thread(call: Job) -> Future[Any]:
    """
    Have a thread call *call*: one of the pool, or else one of its own.

    A step that blocks a thread may wait for *call*. If the pool is full of such steps,
    they would wait for each other for ever.
    """
    if not blocks_thread.get():
        return pool().submit(call)
    from concurrent.futures import ThreadPoolExecutor

    one = ThreadPoolExecutor(1, "cmdx")
    try:
        return one.submit(call)
    finally:
        one.shutdown(wait=False)


def forget_pool() -> None:
    """Begin without threads in a forked child; they stayed with the parent."""
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_pool)
