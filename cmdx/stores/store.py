"""
A store: one call that reads and writes, and one that waits for others to write.

    store.transact(unit)    a unit runs inside a transaction, with others  commits.py
      statements.execute    one SQL text for all databases                 statements.py
    store.wait(timeout)     until anybody commits                          watch.py
    store.now()             the time that all users of a database share

``sqlite.py`` and ``postgres.py`` say what a database does differently, and
``schema.py`` which tables there are. Packages load, decide and write in one unit.
"""

from __future__ import annotations

import os
import re
import sys
from abc import abstractmethod
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from cmdx import clock
from cmdx.locks import ForkTurn, new_lock
from cmdx.stores.commits import Commits
from cmdx.stores.errors import StoreError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn, Self

MEMORY = ":memory:"


class Store(Commits):
    """Where durable state lives; made by ``connect``, or by the class of a database."""

    id: str
    """The id of the database, a UUIDv7, whoever has opened it."""

    announcement: str | None = None
    """What the user's connection runs in a transaction to wake those that wait, if
    the database does not do that by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = True  # until it is open
        self.companions: dict[tuple[str, type], Any] = {}
        """Objects of other packages that live as long as the store, such as lanes, by
        the name of a queue and their class."""

    def now(self) -> float:
        """Return the time, in seconds since 1970, by the clock of the database."""
        return clock.current.get().time() + self._offset

    def close(self) -> None:
        """Close the store; a call that comes later raises a ``StoreError``."""
        self._refuse_inside_unit("close()", "Close it after the unit has returned")
        with self._write_lock:
            self._is_closed = True
            self._disconnect()
        self._wake_others(())
        self._wake_waiters()

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

    def _resume_in_parent(self) -> None:
        """Undo what was done for the fork."""

    def _resume_in_child(self) -> None:
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

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a connection belongs to its process."""
        message = (
            f"{self!r} cannot be pickled, nor can what uses it, such as a queue or a "
            "job. Open it again in the other process, and pass job.id instead of a job."
        )
        raise TypeError(message)

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
        message = (  # its value may have a password
            "a store is given by a path or an address, not by an instance of "
            f"{type(target).__name__}. Use a path such as 'app.db', or 'postgresql://…'."
        )
        raise TypeError(message)
    address = os.fspath(target)
    if is_postgres(address):
        address = with_lower_scheme(address)
        return _shared(address, address)
    path = path_of(address)
    if path == MEMORY:
        return _new_store(path)
    return _shared(os.path.realpath(path), path)


def is_postgres(address: str) -> bool:
    """Tell whether *address* is one of PostgreSQL."""
    return with_lower_scheme(address).startswith(("postgresql://", "postgres://"))


def with_lower_scheme(address: str) -> str:
    """Return *address* with its scheme in lower case, as libpq wants it."""
    return SCHEME.sub(lambda scheme: scheme[0].lower(), address)


def path_of(address: str) -> str:
    """Return the path of an SQLite database; refuse other addresses."""
    scheme, separator, rest = with_lower_scheme(address).partition("://")
    if scheme == "sqlite" and separator:
        path = path_after(rest)
    elif separator:
        raise no_store_for(address)
    elif KEYWORDS.match(address):
        raise StoreError(
            "the address is a connection string of libpq, not a path",
            "Write it as 'postgresql://user@host/database', or open it with "
            "PostgresStore(); a file of this name is './' and its name",
        )
    else:
        path = address
    require_path(path)
    return path


def path_after(rest: str) -> str:
    """Return the path in what follows ``sqlite://``."""
    if rest and not rest.startswith("/"):  # where other addresses have their host
        raise StoreError(
            "the address of the SQLite database has only two slashes before its path",
            "Write three, as in 'sqlite:///app.db', or four before an absolute path",
        )
    return rest[1:] or MEMORY


def require_path(path: str) -> None:
    """Refuse what is given as a path, but is an address or empty."""
    if ADDRESS.match(path) or "://" in path:
        raise no_store_for(path)
    if not path:
        raise StoreError(
            "the path of the store is empty",
            "Use a path such as 'app.db', or ':memory:'",
        )


def no_store_for(address: str) -> StoreError:
    """Return the error for an address that leads nowhere."""
    begin = ADDRESS.match(address) or SCHEME.match(address)
    # The rest may be a password.
    kind = f"addresses that begin with {begin[0]!r}" if begin else "such addresses"
    return StoreError(f"there is no store for {kind}", address_cure(address))


def address_cure(address: str) -> str:
    """Say what to write in place of an address that leads nowhere."""
    with_driver = WITH_DRIVER.match(address)
    if with_driver:
        return f"Write '{with_driver[1].lower()}://' instead"
    return "Write a path, 'sqlite:///app.db' or 'postgresql://user@host/database'"


SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)

WITH_DRIVER = re.compile(r"(postgres(?:ql)?|sqlite)\+\w+://", re.IGNORECASE)
"""How an address begins that names a driver, as those of SQLAlchemy do."""

ADDRESS = re.compile(r"\s*(postgres(ql)?|sqlite):/*", re.IGNORECASE)
"""How an address begins, also one that is not written well."""

KEYWORDS = re.compile(
    r"\s*(host|hostaddr|port|dbname|user|password|passfile|service|options|"
    r"application_name|connect_timeout|target_session_attrs|ssl\w+)\s*=",
    re.IGNORECASE,
)
"""How a connection string of libpq begins."""


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

FORK_PATIENCE = 30.0
"""How long a fork waits for another fork, and for a transaction, in seconds."""

_stores: WeakSet[Store] = WeakSet()
_turn = ForkTurn()
_stopped: list[Store] = []
"""The stores whose write lock the forking thread has taken."""


def all_stores() -> list[Store]:
    """Return the stores of this process."""
    # In one step, unlike ``list(_stores)``: another thread may be opening a store.
    references = list(_stores.data)  # type: ignore[attr-defined]
    return [store for reference in references if (store := reference()) is not None]


def _before_fork() -> None:
    """Wait until no store is in the middle of a transaction, and keep it so."""
    own = get_ident()
    stores = all_stores()
    # The other thread would wait for ever for a unit that waits for it.
    is_inside_unit = any(store._leading_thread == own for store in stores)
    if not _turn.begin(0 if is_inside_unit else FORK_PATIENCE):
        return
    for store in stores:
        # Not for ever: a unit that forks, too, may wait for a lock of another library
        # that this fork holds.
        if store._leading_thread != own and store._write_lock.acquire(
            timeout=FORK_PATIENCE
        ):
            _stopped.append(store)
            store._prepare_for_fork()


def _after_fork_in_parent() -> None:
    """Let the stores of the parent go on."""
    if not _turn.is_own:
        return
    while _stopped:
        store = _stopped.pop()
        store._resume_in_parent()
        store._write_lock.release()
        store._wake_others(())
    _turn.end()


def _after_fork_in_child() -> None:
    """Let the stores of the child start without the threads of the parent."""
    _turn.forget()
    _stopped.clear()
    for store in all_stores():
        store._forget_callers()
        store._forget_waiters()
        store._resume_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
