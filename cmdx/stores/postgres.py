"""
PostgreSQL, with psycopg 3: one connection that writes, and one that listens.

- Several processes write at the same time. A unit that loads rows in order to change
  them says ``for update``; one that the server refuses because of another process is
  run again.
- A lost connection is opened again. A unit whose transaction surely was not committed
  is run again once; if nobody can know, its caller gets ``StoreUnavailable``.
- Commits are announced by ``notify``, at most every 5 ms: the server commits those
  that notify one after the other. A commit that was not announced is announced by the
  next one, or after 5 ms by a thread.
- A caller that waits is woken by such a notification, or within a second without one.
- Tables are where the ``search_path`` of the address says.
"""

from __future__ import annotations

import atexit
import re
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from weakref import WeakSet

from cmdx import clock
from cmdx.extras import how_to_install
from cmdx.stores import schema
from cmdx.stores.background import Background
from cmdx.stores.database import LOCK_TIMEOUT
from cmdx.stores.errors import StoreError, postgres_error
from cmdx.stores.store import Store, with_lower_scheme

try:
    import psycopg
    from psycopg import conninfo, errors, pq

    from cmdx.stores.listening import SNAPSHOT_INTERVAL, Listener
    from cmdx.stores.pipeline import PostgresStatements
except ImportError as error:
    raise StoreError(
        f"PostgreSQL needs psycopg, which cannot be imported ({error})",
        how_to_install("postgres"),
    ) from error

if TYPE_CHECKING:
    from cmdx.stores.statements import Statements

REAL_CLOCK = clock.Clock()

NOTIFY_INTERVAL = 0.005
"""The shortest time between two notifications, in seconds."""

IDLE_CHECK_AFTER = 1.0
"""Seconds without use after which a connection is tested before a unit runs."""

CLOCK_CHECK_AFTER = 60.0
"""Seconds after which the clock of the server is read again."""

MIGRATION_LOCK = 0x636D6478
"""The advisory lock of migrations: "cmdx"."""

ADDRESS_DEFAULTS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "30000",
    "fallback_application_name": "cmdx",
}
"""What is set unless the address says otherwise."""

CONFLICTS = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
)
"""What another process may cause; a unit that is run again sees what that has done."""

POOLER_ERRORS = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
"""What shows that a pooler hands out connections that do not know our statements."""


class PostgresStore(Store):
    """
    A store in a PostgreSQL database.

    Args:
        dsn: The address, ``postgresql://user@host/database``.
        migrate: Whether to create or change tables if need be. Without it, a database
            that needs that is refused.
    """

    def __init__(self, dsn: str, *, migrate: bool = False) -> None:
        require_usable_libpq()
        super().__init__()
        self._dsn, self.name = complete_address(dsn)
        self._migrates = migrate
        self._prepares = True
        self._connection: psycopg.Connection[Any] | None = None
        self._statements: PostgresStatements | None = None
        self._used_at = self._measured_at = REAL_CLOCK.monotonic()
        self._notified_at = float("-inf")
        self._notifies = False
        """Whether the transaction under way announces itself."""
        self._announcement_pending = False
        """Whether a commit is still to be announced."""
        self._announcer = Background(self._notify_when_due, "cmdx store: announcer")
        self._noticed = 0
        """How often a commit of others was noticed."""
        self._listener_lock = Lock()
        self._open()
        self._listener = Listener(self._dsn, self._channel)
        _stores.add(self)

    def version(self) -> int:
        """Return a number that changes with each commit that was noticed."""
        self._require_open()
        return self._written + self._noticed

    # -- opening and closing ------------------------------------------------------

    def _connect(self) -> PostgresStatements:
        """Open the writing connection, and see that the tables are there."""
        connection = psycopg.connect(self._dsn, autocommit=True)
        try:
            statements = PostgresStatements(connection, prepares=self._prepares)
            statements.begin(relaxed=False)
            self._migrate(statements)
            self._measure(statements)
            limit_lock_waits(statements)
            statements.commit([])
            statements.require_success()
        except BaseException:
            connection.close()
            raise
        self._connection, self._statements = connection, statements
        return statements

    def _migrate(self, statements: PostgresStatements) -> None:
        """Check the tables; bring them into their present form if that is allowed."""
        state = schema.read_state(statements)
        schema.require_known(state, self.name)
        self._know_id(state.store)
        if state.is_current:
            schema.require_keys(statements, self.name)
            return
        if not self._migrates:
            raise StoreError(
                f"{self.name} does not have the tables that this version needs",
                "Run `python -m cmdx migrate` with its address, or open it with "
                "PostgresStore(..., migrate=True)",
            )
        statements.execute("select pg_advisory_xact_lock(:key)", key=MIGRATION_LOCK)
        self._know_id(schema.upgrade(statements, self.name))

    def _know_id(self, store: str) -> None:
        """Take note of the id of the store; only its users listen to its channel."""
        self.id = store
        self._channel = f"cmdx_{store.replace('-', '')}"
        self.announcement = f"notify {self._channel}"

    def _measure(self, statements: PostgresStatements) -> None:
        """Find out how much the clock of the server is ahead of the real one."""
        before = REAL_CLOCK.time()
        ((there,),) = statements.execute(
            "select cast(extract(epoch from clock_timestamp()) as double precision)"
        )
        self._offset = there - (before + REAL_CLOCK.time()) / 2
        self._measured_at = REAL_CLOCK.monotonic()

    def _disconnect(self) -> None:
        if self._announcement_pending and self._connection is not None:
            self._notify_now()
        self._drop()
        with self._listener_lock:
            self._listener.close()

    def _drop(self) -> None:
        """Close the writing connection, whatever its state; the next unit opens it."""
        connection, self._connection = self._connection, None
        self._statements = None
        if connection is None:
            return
        if connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=1.0)
        connection.close()

    def _resume_in_child(self) -> None:
        """Keep the connections of the parent: closing them would end its sessions."""
        _inherited.extend([self._connection, self._listener])
        self._connection = self._statements = None
        self._listener = Listener(self._dsn, self._channel)
        self._listener_lock = Lock()
        self._announcer.forget()
        self._announcement_pending = False

    # -- one transaction ----------------------------------------------------------

    def _begin(
        self,
        _sync: bool,  # noqa: FBT001
        relaxed: bool,  # noqa: FBT001
        _read_only: bool,  # noqa: FBT001
        /,
    ) -> Statements:
        """Begin a transaction, on a new connection if the old one is lost."""
        self._require_open()
        now = REAL_CLOCK.monotonic()
        is_fresh = now < min(
            self._used_at + IDLE_CHECK_AFTER, self._measured_at + CLOCK_CHECK_AFTER
        )
        self._used_at = now
        statements = self._statements
        if statements is not None and statements.is_idle:
            with suppress(psycopg.OperationalError):
                statements.require_connected()
                statements.begin(relaxed=relaxed)
                if not is_fresh:
                    self._measure(statements)
                return statements
        self._drop()
        statements = self._connect()
        statements.begin(relaxed=relaxed)
        return statements

    def _end(self, evidence: list[Any]) -> None:
        """Commit, and announce it if that is due."""
        statements = self._open_statements()
        self._notifies = self._shall_notify(statements)
        if self._notifies:
            statements.send(self._notification)
        statements.commit(evidence)
        statements.require_success()

    def _shall_notify(self, statements: PostgresStatements) -> bool:
        """Tell whether the transaction is announced together with its commit."""
        if REAL_CLOCK.monotonic() < self._notified_at + NOTIFY_INTERVAL:
            return False
        if self._announcement_pending or statements.has_surely_written:
            return True
        if statements.may_have_written:
            statements.catch_up()
        return statements.written > 0

    def _outcome(self, evidence: list[Any]) -> bool | None:
        if not evidence or self._statements is None:
            return False
        return self._statements.outcome(evidence)

    def _has_written(self) -> bool:
        statements = self._open_statements()
        statements.check()
        return statements.written > 0

    def _note_commit(self) -> None:
        """Have the commit be announced by and by, if that was not done with it."""
        super()._note_commit()
        if self._notifies:
            self._announcement_pending = False
            self._notified_at = REAL_CLOCK.monotonic()
        elif self._must_wake_waiters and not self._announcement_pending:
            self._announcement_pending = True
            self._announcer.call()

    def _rollback(self) -> None:
        if self._statements is None:
            return
        try:
            self._statements.roll_back()
        except psycopg.Error:
            self._drop()

    def _open_statements(self) -> PostgresStatements:
        assert self._statements is not None  # noqa: S101 -- a transaction is under way
        return self._statements

    def _explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, psycopg.Error):
            return error
        return postgres_error(error, self.name)

    def _most_runs(self, error: BaseException) -> int:
        """Return how often a unit may be run in all, if it fails by this error."""
        if isinstance(error, CONFLICTS):
            return 5
        if isinstance(error, POOLER_ERRORS):
            self._prepares = False
            self._drop()
            return 2
        is_lost = self._connection is None and isinstance(error, psycopg.Error)
        return 2 if is_lost else 1

    # -- announcing ---------------------------------------------------------------

    @property
    def _notification(self) -> bytes:
        return f"notify {self._channel}".encode()

    def _notify_when_due(self) -> None:
        """Announce commits that came too soon after others to be announced."""
        REAL_CLOCK.sleep(
            max(0.0, self._notified_at + NOTIFY_INTERVAL - REAL_CLOCK.monotonic())
        )
        with self._write_lock:
            if self._announcement_pending and not self._is_closed:
                self._notify_now()
        self._wake_others(())

    def _notify_now(self) -> None:
        """Announce what was not announced; if that fails, others find out later."""
        self._announcement_pending = False
        statements = self._statements
        if statements is None or not statements.is_idle:
            return
        with suppress(psycopg.Error):
            statements.begin(relaxed=True)
            statements.send(self._notification)
            statements.commit([])
            statements.require_success()
            self._notified_at = REAL_CLOCK.monotonic()

    # -- watching -----------------------------------------------------------------

    def _poll_for_commits(self) -> bool:
        """Listen a little, and tell whether anybody may have committed."""
        with self._listener_lock:
            if self._is_closed:
                return True  # the callers that wait will find out
            connection = self._connection
            own = 0 if connection is None else connection.pgconn.backend_pid
            try:
                has_changed = self._listener.poll(own)
            except psycopg.Error:
                self._listener.drop()
            else:
                self._noticed += has_changed
                return has_changed
        REAL_CLOCK.sleep(SNAPSHOT_INTERVAL)
        return False

    def _stop_watching(self) -> None:
        """Stop listening: notifications that nobody reads fill the server's queue."""
        with self._listener_lock:
            self._listener.close()


def limit_lock_waits(statements: PostgresStatements) -> None:
    """
    Limit how long later units wait for a lock, unless the server or the address does.

    All callers of a store wait while one of its units does.
    """
    if statements.execute("select current_setting('lock_timeout')") == [("0",)]:
        statements.lock_timeout = LOCK_TIMEOUT


def require_usable_libpq() -> None:
    """Refuse a libpq that waits for the answer to each statement."""
    if not psycopg.Pipeline.is_supported():
        raise StoreError(
            f"libpq {psycopg.pq.version_pretty(psycopg.pq.version())} is too old",
            f"Use version 14 or later. {how_to_install('postgres')}",
        )


def complete_address(dsn: str) -> tuple[str, str]:
    """Return the address with defaults, and the one to be shown."""
    given = parameters_of(with_lower_scheme(dsn))
    shown = "postgresql://"
    if given.get("user"):
        shown += f"{given['user']}@"
    shown += str(given.get("host") or "")
    if given.get("port"):
        shown += f":{given['port']}"
    return conninfo.make_conninfo("", **{**ADDRESS_DEFAULTS, **given}), (
        f"{shown}/{given.get('dbname') or ''}"
    )


def parameters_of(dsn: str) -> dict[str, Any]:
    """Return what an address says; refuse one that libpq reads wrongly or not."""
    try:
        given = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        given = None
    name = unknown_parameter(dsn) if given is None else None
    if name is not None:
        raise StoreError(  # without its value, which may be the password
            f"the address of the PostgreSQL database has the parameter {name!r}, which "
            "libpq does not know",
            "Correct its name; settings of the server go into options, as in "
            "?options=-csearch_path%3Dshop",
        )
    if given is None or has_misread_password(dsn, str(given.get("port") or "")):
        raise StoreError(  # without the address, which has a part of the password
            "the address of the PostgreSQL database cannot be read",
            "Write it as postgresql://user:password@host:5432/database, with %40 for "
            "an @ and %2F for a / in the password",
        )
    return given


def unknown_parameter(dsn: str) -> str | None:
    """Return the name of a parameter of an address that libpq does not know, if any."""
    query = dsn.partition("?")[2]
    if "@" in query:  # then the question mark may be one of the password
        return None
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    names = [unquote(part.partition("=")[0]) for part in query.split("&") if part]
    return next((name for name in names if name not in {*known, "ssl"}), None)


def has_misread_password(dsn: str, port: str) -> bool:
    """Tell whether libpq takes a part of the password for the host or the port."""
    scheme, separator, rest = dsn.partition("://")
    place = re.sub(r"^[^@/]*@", "", rest).partition("?")[0]
    is_split = bool(separator) and "=" not in scheme and "@" in place
    return is_split or not re.fullmatch(r"[0-9,]*", port)


# -- the end of the process -------------------------------------------------------

_stores: WeakSet[PostgresStore] = WeakSet()
_inherited: list[object] = []
"""What a forked child has of its parent, and must not close."""


@atexit.register
def _announce_all() -> None:
    """Announce what is not announced yet before the process ends."""
    for store in list(_stores):
        if store._announcement_pending:
            store._notify_when_due()
