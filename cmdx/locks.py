"""
Locks that are free in a forked child, whoever held them in the parent.

A fork copies a lock as it is, but not the thread that holds it: nobody in the child
would ever release it.
"""

from __future__ import annotations

import os
from threading import Lock, get_ident
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


class ForkTurn:
    """
    Has threads fork one after the other.

    What is done before a fork is undone after it, and must not be undone by another
    thread that forks at the same time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread = 0

    def begin(self, timeout: float) -> bool:
        """Wait for the other threads that fork; tell whether they have ended."""
        if not self._lock.acquire(timeout=timeout):
            return False
        self._thread = get_ident()
        return True

    @property
    def is_own(self) -> bool:
        """Whether this thread has begun its turn."""
        return self._thread == get_ident()

    @property
    def is_taken(self) -> bool:
        """Whether a thread is about to fork."""
        return self._lock.locked()

    def end(self) -> None:
        """Let the next thread fork."""
        self._thread = 0
        self._lock.release()

    def forget(self) -> None:
        """Be free in a forked child, which has no other threads."""
        self._thread = 0
        self._lock = Lock()


_turn = ForkTurn()


def _before_fork() -> None:
    # Not for ever: the thread that forks may hold one itself, or another thread that
    # forks may wait for something that this one holds.
    if _turn.begin(PATIENCE):
        locks = [*_held_during_fork]
        _held.extend(lock for lock in locks if lock.acquire(timeout=PATIENCE))


def _after_fork_in_parent() -> None:
    if not _turn.is_own:
        return
    while _held:
        _held.pop().release()
    _turn.end()


def _after_fork_in_child() -> None:
    _turn.forget()
    _held.clear()
    for lock in (*_held_during_fork, *_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
