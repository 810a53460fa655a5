"""
SQLite: a file, or memory.

- The file has a write-ahead log: readers and the writer do not block each other. A
  commit survives the death of the process. One whose caller asks for ``sync`` is
  written through to the disk, and survives a power cut as well.
- A transaction begins as a writing one, so it never fails half-way because another
  process writes. One that only reads does not wait for those that write.
- Commits of others are noticed by ``pragma data_version`` on a second connection,
  every millisecond for a second after another process has committed. Then it is asked
  only if the time of the log has changed, which is checked every 20 ms.
- No connection to a file is open during a fork. SQLite remembers per process which
  locks it has on a file, and a child inherits that memory, but not the locks.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import clock
from cmdx.stores import schema
from cmdx.stores.busy import BusyWait, is_busy
from cmdx.stores.database import LOCK_TIMEOUT
from cmdx.stores.errors import StoreError, sqlite_error
from cmdx.stores.statements import Statements, sqlite_query
from cmdx.stores.store import MEMORY, Store, require_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cmdx.stores.statements import Row, Value

A = TypeVar("A")
T = TypeVar("T")

OLDEST_SQLITE = (3, 34, 0)
"""The oldest version of SQLite that will do."""

SERIALIZED = 3
"""The thread-safety of an SQLite whose connections can be used by all threads."""

ACTIVE_POLL, QUIET_POLL = 0.001, 0.020
"""Seconds between two checks for commits of others, after some and without any."""

QUIET_AFTER = 1.0
"""Seconds after which there is nothing going on any more."""

UNSURE_FOR = 0.050
"""Seconds in which to look for commits of others that this process may have hidden."""

SMALL_LOG, LARGE_LOG = 16 << 20, 64 << 20
"""Bytes from which the write-ahead log is emptied, and from which it is cut.

Emptying it takes two syncs of the disk while nobody can write."""

LOG_CHECK_EVERY = 32
"""How many groups are committed between two checks of the size of the log."""

REPAIR_RUNS, REPAIR_PAUSE = 100, 0.02
"""How often a unit that only reads is run, and the seconds in between, while another
process repairs the log after a crash."""

COMMIT = ("commit",)

REAL_CLOCK = clock.Clock()

_inherited: list[object] = []
"""What a forked child has of its parent, and must not close."""


class SqliteStatements(Statements):
    """The statements of one transaction on SQLite."""

    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    def execute(self, sql: str, /, **values: Value) -> list[Row]:
        """Run one statement and return all its rows."""
        values.setdefault("now", self.now)
        return self._cursor.execute(sqlite_query(sql), values).fetchall()

    def change(self, sql: str, /, **values: Value) -> int:
        """Run one statement that changes rows, and return how many it has changed."""
        values.setdefault("now", self.now)
        return self._cursor.execute(sqlite_query(sql), values).rowcount

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Value]], /) -> None:
        """Run one statement with the values of each of *rows*."""
        values = [{"now": self.now, **row} for row in rows]
        self._cursor.executemany(sqlite_query(sql), values)

    def columns_of(self, table: str) -> set[str]:
        """Return the names of the columns of *table*; none if there is none."""
        return {row[1] for row in self._cursor.execute(f"pragma table_info({table})")}

    def key_of(self, table: str) -> set[str]:
        """Return the columns of the primary key of *table*; none if there is none."""
        rows = self._cursor.execute(f"pragma table_info({table})")
        return {row[1] for row in rows if row[5]}


class SqliteStore(Store):
    """
    A store in an SQLite file, or in memory.

    Args:
        path: The path of the file, which is created if need be, or ``":memory:"``.
        sync: Whether every commit must survive a power cut, not only those whose
            callers ask for it. Those whose callers can do without it, the ``relaxed``
            ones, need not.
    """

    _execute: Callable[[str], sqlite3.Cursor]

    def __init__(
        self, path: str | os.PathLike[str] = MEMORY, *, sync: bool = False
    ) -> None:
        require_usable_sqlite()
        super().__init__()
        self.name = os.fspath(path)
        require_path(self.name)
        self._has_other_writers = self.name != MEMORY
        self._path = os.path.realpath(self.name) if self._has_other_writers else MEMORY
        self._sync = sync
        self._is_full: bool | None = None
        """Whether commits are written through to the disk, as last set."""
        self._changes = 0
        """How many rows were changed before the transaction under way."""
        self._groups_since_check = 0
        self._large = SMALL_LOG
        self._connection: sqlite3.Connection | None = None
        self._watch_connection: sqlite3.Connection | None = None
        """The connection that watches for commits."""
        self._watch_generation = 0
        """How many there were so far; after a fork there is another one."""
        self._watch_lock = Lock()
        self._seen = 0
        self._active_until = 0.0
        self._seen_own = 0
        """How many commits of this store there were at the last check."""
        self._touched_at = 0
        """The time of the log at the last check, by the clock of the file system."""
        self._asked_at = 0.0
        self._open()

    def version(self) -> int:
        """Return a number that changes with each commit that changes rows."""
        self._require_open()
        if not self._has_other_writers:
            return self._written
        with self._watch_lock:
            if self._watch_connection is None:
                self._watch_connection = open_connection(self._path)
                self._watch_generation += 1
            row = run_patiently(
                self._watch_connection.execute, "pragma data_version"
            ).fetchone()
        count = int(row[0])  # each connection has its own
        return (self._watch_generation << 32) + count

    # -- opening and closing ------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        """Open the file, and migrate it if need be."""
        connection = open_connection(self._path)
        try:
            if self._has_other_writers:
                start_log(connection, self.name)
            self._statements = SqliteStatements(connection)
            self._execute = connection.cursor().execute
            self._migrate()
        except BaseException:
            connection.close()
            raise
        self._is_full = None
        self._connection = connection
        return connection

    def _migrate(self) -> None:
        """Bring the tables into their present form; one of several processes does."""
        # The first that reads after a crash repairs the log, and others wait for it.
        state = run_patiently(schema.read_state, self._statements)
        schema.require_known(state, self.name)
        self.id = state.store
        if state.is_current:
            schema.require_keys(self._statements, self.name)
            return
        run_patiently(self._execute, "begin immediate")
        self.id = schema.upgrade(self._statements, self.name)
        self._execute("commit")

    def _disconnect(self) -> None:
        with self._watch_lock:
            self._close_connections()

    def _close_connections(self) -> None:
        for connection in (self._watch_connection, self._connection):
            if connection is not None:
                connection.close()
        self._watch_connection = self._connection = None

    def _prepare_for_fork(self) -> None:
        """Close the file; a store in memory is copied as it is."""
        self._watch_lock.acquire()
        if self._has_other_writers:
            self._close_connections()

    def _resume_in_parent(self) -> None:
        self._watch_lock.release()

    def _resume_in_child(self) -> None:
        self._watch_lock = Lock()
        if self._has_other_writers:  # still open only if a unit has forked
            _inherited.extend([self._connection, self._watch_connection])
            self._connection = self._watch_connection = None

    # -- one transaction ----------------------------------------------------------

    def _begin(
        self,
        sync: bool,  # noqa: FBT001
        relaxed: bool,  # noqa: FBT001
        read_only: bool,  # noqa: FBT001
        /,
    ) -> Statements:
        """Begin a transaction, which takes the write lock unless it only reads."""
        self._require_open()
        connection = self._connection or self._connect()
        if read_only:
            self._execute("begin")
        else:
            is_full = sync or (self._sync and not relaxed)
            if self._has_other_writers and self._is_full is not is_full:
                self._set_full(is_full=is_full)
            try:
                self._execute("begin immediate")
            except sqlite3.OperationalError:
                run_patiently(
                    self._execute, "begin immediate", meanwhile=self._serve_readers
                )
        self._changes = connection.total_changes
        return self._statements

    def _set_full(self, *, is_full: bool) -> None:
        """Have commits be written through to the disk, or not."""
        self._is_full = None
        self._execute(f"pragma synchronous={'full' if is_full else 'normal'}")
        self._is_full = is_full

    def _end(self, evidence: list[Any]) -> None:
        """Commit."""
        evidence.extend(map(self._execute, COMMIT))

    def _outcome(self, evidence: list[Any]) -> bool:
        return bool(evidence)

    def _has_written(self) -> bool:
        connection = self._connection
        return connection is not None and connection.total_changes != self._changes

    def _rollback(self) -> None:
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            self._execute("rollback")
        except sqlite3.Error:
            if self._has_other_writers:  # a new connection has no transaction open
                self._disconnect()

    def _explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        return sqlite_error(error, self.name, self._path)

    def _affects_only_writers(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.OperationalError) and is_busy(error)

    def _most_runs(self, error: BaseException) -> int:
        """Return how often a unit may be run in all: more often if the log is busy."""
        if not isinstance(error, sqlite3.OperationalError) or not is_busy(error):
            return 1
        REAL_CLOCK.sleep(REPAIR_PAUSE)
        return REPAIR_RUNS

    # -- the write-ahead log ------------------------------------------------------

    def _checkpoint_if_due(self) -> None:
        """Empty the log now and then, when it has grown."""
        self._groups_since_check += 1
        if self._groups_since_check < LOG_CHECK_EVERY or not self._has_other_writers:
            return
        self._groups_since_check = 0
        if size_of(f"{self._path}-wal") <= self._large:
            return
        with self._write_lock, suppress(sqlite3.Error):
            if self._connection is not None:
                self._empty_log()
        self._wake_others(())

    def _empty_log(self) -> None:
        """
        Write what is in the log to the database, as far as no reader needs it there.

        The file keeps its size, and is filled again from its start; so this is due
        again when it is larger than now. But if somebody is in a transaction, the log
        goes on where it ends. Then this is done later: it takes as long as many
        commits.
        """
        size = size_of(f"{self._path}-wal")
        mode = "truncate" if size > LARGE_LOG else "restart"
        has_others, *_ = self._execute(f"pragma wal_checkpoint({mode})").fetchone()
        size = size_of(f"{self._path}-wal")
        self._large = size + SMALL_LOG if has_others else max(size, SMALL_LOG)

    # -- watching -----------------------------------------------------------------

    def _poll_for_commits(self) -> bool:
        """Sleep a little, and tell whether anybody has committed since the last."""
        is_active = REAL_CLOCK.monotonic() < self._active_until
        REAL_CLOCK.sleep(ACTIVE_POLL if is_active else QUIET_POLL)
        if not is_active and self._is_log_untouched():
            return False
        try:
            version = self.version()
        except (sqlite3.Error, StoreError):
            return True  # the callers that wait will find out
        if version == self._seen:
            return False
        self._seen = version
        own, self._seen_own = self._written - self._seen_own, self._written
        if not own:  # of others, who may go on
            self._active_until = REAL_CLOCK.monotonic() + QUIET_AFTER
        elif not is_active:  # of others too, perhaps: each was followed by one of ours
            self._active_until = REAL_CLOCK.monotonic() + UNSURE_FOR
        return True

    def _is_log_untouched(self) -> bool:
        """
        Tell whether nobody can have committed since the last check.

        The time of the log changes with each commit, and looking at it takes less than
        asking the database. Times of files are coarse, so this is for quiet times, and
        the database is asked now and then all the same.
        """
        now, touched_at = REAL_CLOCK.monotonic(), time_of(f"{self._path}-wal")
        if touched_at == self._touched_at and now < self._asked_at + QUIET_AFTER:
            return True
        self._touched_at, self._asked_at = touched_at, now
        return False


def require_usable_sqlite() -> None:
    """Refuse an SQLite that is too old, or cannot be used by several threads."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old",
            f"Use a Python with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or later",
        )
    if sqlite3.threadsafety != SERIALIZED:
        raise StoreError(
            "this SQLite was compiled without support for threads",
            f"Use a Python whose sqlite3.threadsafety is {SERIALIZED}",
        )


def open_connection(path: str) -> sqlite3.Connection:
    """Open a connection that begins no transaction by itself."""
    return sqlite3.connect(
        path,
        timeout=0,  # waiting is done in Python, where a signal can end it
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
    )


def start_log(connection: sqlite3.Connection, name: str) -> None:
    """Have a file use a write-ahead log that only we empty."""
    mode = run_patiently(connection.execute, "pragma journal_mode").fetchone()
    if mode != ("wal",):
        mode = run_patiently(connection.execute, "pragma journal_mode=wal").fetchone()
    if mode != ("wal",):
        raise StoreError(
            f"{name} cannot have a write-ahead log where it is",
            "Put it on a local disk",
        )
    connection.execute("pragma wal_autocheckpoint=0")


def run_patiently(
    call: Callable[[A], T],
    argument: A,
    *,
    meanwhile: Callable[[], None] | None = None,
) -> T:
    """Read or write, again while another connection has a lock on the file."""
    wait = None
    while True:
        try:
            return call(argument)
        except sqlite3.OperationalError as error:
            wait = wait or BusyWait(LOCK_TIMEOUT)
            pause = wait.pause_after(error)
        if meanwhile is not None:
            meanwhile()
        REAL_CLOCK.sleep(pause)


def size_of(path: str) -> int:
    """Return the size of a file, in bytes; 0 if there is none."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def time_of(path: str) -> int:
    """Return when a file was last written to, in nanoseconds; 0 if there is none."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 -- many times a second
    except OSError:
        return 0
