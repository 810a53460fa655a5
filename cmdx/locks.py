"""
Locks that are free in a forked child, whoever held them in the parent.

A fork copies a lock as it is, but not the thread that holds it: nobody in the child
would ever release it.
"""

from __future__ import annotations

import os
from threading import Lock
from weakref import WeakSet

_locks: WeakSet[Lock] = WeakSet()
_held_during_fork: WeakSet[Lock] = WeakSet()
_held: list[Lock] = []

PATIENCE = 5.0
"""How long a fork waits for a lock, in seconds."""


def new_lock() -> Lock:
    """Return a lock that is made anew in a forked child."""
    lock = Lock()
    _locks.add(lock)
    return lock


def lock_for_fork() -> Lock:
    """
    Return a lock that no other thread holds during a fork.

    It is for what is not to be interrupted by a fork, such as writing to a file whose
    buffer has a lock of its own.
    """
    lock = Lock()
    _held_during_fork.add(lock)
    return lock


def _hold_locks() -> None:
    # Not for ever: the thread that forks may hold one itself.
    locks = [*_held_during_fork]
    _held.extend(lock for lock in locks if lock.acquire(timeout=PATIENCE))


def _release_locks() -> None:
    while _held:
        _held.pop().release()


def _free_locks() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # type: ignore[attr-defined]


def _begin_child() -> None:
    _release_locks()
    _free_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_locks,
        after_in_parent=_release_locks,
        after_in_child=_begin_child,
    )
