"""
What runs leave behind for the garbage collector.

Threads that other tests have started may leave something, too, but not each time. So
runs are repeated if something is found, and only what is found each time counts.
"""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import contextmanager
from types import CoroutineType, FrameType, GeneratorType, TracebackType

from cmdx import Task

KINDS = (Task, BaseException, FrameType, TracebackType, GeneratorType, CoroutineType)
TRIES = 3


@contextmanager
def no_collector():
    """
    Turn the collector off, and keep from it what was there before.

    That stays so: looking at all tests again would take most of the time of the next.
    """
    if not gc.isenabled():  # it is off already
        yield
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def left_behind(run, times):
    """Count by type what only the collector finds after *times* runs."""
    run()  # what is made once, when a class is first used, does not count
    with no_collector():
        for _ in range(TRIES):
            gc.collect()
            for _ in range(times):
                run()
            found = found_by_collector()
            if not found:
                break
    return found


async def left_behind_by_coroutines(run, times):
    """Do what ``left_behind`` does, in an event loop."""
    await run()
    with no_collector():
        for _ in range(TRIES):
            gc.collect()
            for _ in range(times):
                await run()
            found = found_by_collector()
            if not found:
                break
    return found


def found_by_collector():
    """Count what the collector finds now, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(
            type(thing).__qualname__ for thing in gc.garbage if is_ours(thing)
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


def is_ours(thing):
    return isinstance(thing, KINDS) or type(thing).__module__.startswith("cmdx")
