"""
A store: one call that reads and writes, and one that waits for others to write.

    store.transact(unit)    a unit runs inside a transaction, with others  commits.py
      statements.execute    one SQL text for all databases                 statements.py
    store.wait(timeout)     until anybody commits                          watch.py
    store.now()             the time that all users of a database share

``sqlite.py`` and ``postgres.py`` say what a database does differently, and
``schema.py`` which tables there are. Rooms load, decide and write in one unit.
"""

from __future__ import annotations

import os
import re
import sys
from abc import abstractmethod
from threading import get_ident
from typing import TYPE_CHECKING
from weakref import WeakSet, WeakValueDictionary

from cmdx import clock
from cmdx.locks import new_lock
from cmdx.stores.commits import Commits
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

MEMORY = ":memory:"


class Store(Commits):
    """Where durable state lives; made by ``connect``, or by the class of a database."""

    id: str
    """The id of the database, a UUIDv7, whoever has opened it."""

    announcement: str | None = None
    """What a connection of the user's runs in a transaction to wake who waits, if
    the database does not do that by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = True  # until it is open

    def now(self) -> float:
        """Return the time, in seconds since 1970, by the clock of the database."""
        return clock.current.get().time() + self._offset

    def close(self) -> None:
        """Close the store; those who use it afterwards get a ``StoreError``."""
        with self._baton:
            self._is_closed = True
            self._disconnect()
        self._pass_on(())
        self._announce()

    def _open(self) -> None:
        """Connect for the first time."""
        try:
            self._connect()
        except Exception as error:
            explained = self._explain(error)
            if explained is error:
                raise
            raise explained from error
        self._is_closed = False
        _stores.add(self)

    @abstractmethod
    def _connect(self) -> object:
        """Open the connection that writes."""

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreError(
                f"the store {self.name} was closed",
                "Open it again with cmdx.stores.connect()",
            )

    @abstractmethod
    def _disconnect(self) -> None:
        """Close all connections."""

    def _prepare_for_fork(self) -> None:
        """Leave nothing open that a child must not inherit."""

    def _go_on_in_parent(self) -> None:
        """Undo what was done for the fork."""

    def _go_on_in_child(self) -> None:
        """Leave alone what belongs to the parent."""

    def __enter__(self) -> Self:
        """Close the store when the block ends."""
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    def __del__(self) -> None:
        """Close the connections of a store that nobody uses any more."""
        if not getattr(self, "_is_closed", True) and not sys.is_finalizing():
            self._disconnect()

    def __repr__(self) -> str:
        """Show where it is."""
        return f"{type(self).__name__}({self.name!r})"


# -- opening ----------------------------------------------------------------------

_open_stores: WeakValueDictionary[str, Store] = WeakValueDictionary()
_opening = new_lock()


def connect(target: Store | str | os.PathLike[str]) -> Store:
    """
    Open a store, or return the one that this process has open already.

    Args:
        target: A path, ``":memory:"``, ``"sqlite:///app.db"`` or
            ``"postgresql://…"``; or a store, which is returned. A store in memory is
            a new one each time.
    """
    if isinstance(target, Store):
        return target
    if not isinstance(target, str | os.PathLike):
        message = (
            f"a store is given by a path or an address, not by {target!r}. "
            "Use a path such as 'app.db', or 'postgresql://…'."
        )
        raise TypeError(message)
    address = os.fspath(target)
    if is_postgres(address):
        return _shared(address, address)
    path = path_of(address)
    if path == MEMORY:
        return _new_store(path)
    return _shared(os.path.realpath(path), path)


def is_postgres(address: str) -> bool:
    """Tell whether *address* is one of PostgreSQL."""
    return address.startswith(("postgresql://", "postgres://"))


def path_of(address: str) -> str:
    """Return the path of an SQLite database."""
    scheme, separator, rest = address.partition("://")
    if not separator or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        path = address
    elif scheme == "sqlite":
        path = rest[1:] or MEMORY
    else:
        raise StoreError(
            f"there is no store for {scheme}:// addresses",
            "Use a path, 'sqlite:///app.db' or 'postgresql://…'",
        )
    if not path:
        raise StoreError(
            "the path of the store is empty",
            "Use a path such as 'app.db', or ':memory:'",
        )
    return path


def _shared(key: str, address: str) -> Store:
    """Return the open store of this key, or open one."""
    with _opening:
        store = _open_stores.get(key)
        if store is None or store._is_closed:
            store = _open_stores[key] = _new_store(address)
        return store


def _new_store(address: str) -> Store:
    if is_postgres(address):
        from cmdx.stores.postgres import PostgresStore

        return PostgresStore(address)
    from cmdx.stores.sqlite import SqliteStore

    return SqliteStore(address)


# -- forking ----------------------------------------------------------------------

_stores: WeakSet[Store] = WeakSet()
_held: list[Store] = []
"""The stores that are kept still during a fork."""


def _hold_still() -> None:
    """Wait until no store is in the middle of a transaction, and keep it so."""
    for store in list(_stores):
        if store._leader != get_ident():
            store._baton.acquire()
            _held.append(store)
            store._prepare_for_fork()


def _go_on() -> None:
    """Let the stores of the parent go on."""
    while _held:
        store = _held.pop()
        store._go_on_in_parent()
        store._baton.release()
        store._pass_on(())


def _begin_anew() -> None:
    """Let the stores of the child begin without the threads of the parent."""
    _held.clear()
    for store in list(_stores):
        store._forget_callers()
        store._forget_waiters()
        store._go_on_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_still, after_in_parent=_go_on, after_in_child=_begin_anew
    )
