"""
Exactly once, with the user's own database.

``work`` runs in a transaction of the user's connection, and the seal is written into
the same transaction: both are committed, or neither. A record that is not sealed proves
that nothing happened, so the operation may run again.

1. the connection is checked and claimed                    ``new_transaction``
2. the operation is admitted, by the store                  ``lifecycle.admit``
3. a transaction begins, and ``work`` finds its connection  ``Transaction.run``
4. an attempt is a savepoint, rolled back if it raises      ``attempt_in_savepoint``
5. a success or skip is sealed and committed together       ``Transaction.seal``
6. a failure is rolled back, and then sealed alone          ``lifecycle.seal_outcome``

A savepoint around all attempts is released last. If it is gone by then, ``work`` has
ended the transaction, and nobody can know what was kept.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from cmdx.exceptions import CmdxError
from cmdx.operations import table
from cmdx.operations.records import LOAD, UPDATE, columns_of, record_of
from cmdx.report import error_line
from cmdx.run.lifecycle import drive
from cmdx.stores.connections import is_async_connection, user_connection
from cmdx.stores.errors import CommitUncertain, StoreError, StoreUnavailable
from cmdx.wire.results import result_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cmdx import Result, Task
    from cmdx.operations.leases import OwnedRun
    from cmdx.operations.modes import Mode
    from cmdx.operations.table import OperationRecord
    from cmdx.stores import Store
    from cmdx.stores.connections import UserConnection

OPERATION = "cmdx_operation"
ATTEMPT = "cmdx_attempt"
"""The names of savepoints."""
NO_SAVEPOINT = ("3B001", "25P01")
"""What PostgreSQL says if a savepoint, or the whole transaction, is gone."""
ENDED = (
    "work committed or rolled back the transaction given as within=, which is the "
    "ledger's to end; leave out commit(), `with connection:` and executescript()"
)

current: ContextVar[Transaction | None] = ContextVar(
    "cmdx.operations.transaction", default=None
)
claimed: dict[int, Transaction] = {}
"""The connections that operations run within, by their ids."""


def connection() -> Any:
    """
    Return the connection that was given as ``within=`` to the running operation.

    Example::

        def work(self):
            connection().execute("update account set balance = balance - ?", (7,))
    """
    found = current.get()
    if found is None or not found.is_open:
        message = (
            "no operation runs within a connection here. Run the task with "
            "session.run(..., within=connection), and ask inside work."
        )
        raise LookupError(message)
    return found.given


async def new_transaction(
    given: object, store: Store, *, awaits: bool
) -> Transaction | None:
    """Return what runs within the connection *given*, if there is one."""
    refuse_nesting(store)
    if given is None:
        return None
    if is_async_connection(given) and not awaits:
        message = "an asynchronous connection needs arun(), or pass a synchronous one."
        raise TypeError(message)
    transaction = Transaction.claim(given, store)
    try:
        await transaction.check_connection()
    except BaseException:
        transaction.release_claim()
        raise
    return transaction


def refuse_nesting(store: Store) -> None:
    """Refuse an operation that would wait for the file which the running one holds."""
    outer = current.get()
    if outer is not None and outer.is_open and outer.holds_file_of(store):
        raise StoreError(
            "an operation runs here within a connection to the same SQLite file, which "
            "is locked until that operation ends",
            "Run the other operation before it or after it",
        )


class NoConnection:
    """A block that hides the connection of an outer operation from an inner one."""

    def __enter__(self) -> None:
        """Hide it."""
        self._token = current.set(None)

    def __exit__(self, *_error: object) -> None:
        """Show it again."""
        with suppress(ValueError):  # the block is left in another context
            current.reset(self._token)


class TransactionEnded(CmdxError):  # noqa: N818 -- it says what happened
    """``work`` committed or rolled back the transaction it was given."""


class CommitRefused(StoreError):  # noqa: N818 -- it says what happened
    """The database refused to commit, so that nothing was kept."""


class Transaction:
    """A transaction of the user's connection, for one run of an operation."""

    def __init__(self, given: Any, store: Store) -> None:
        self.given = given
        self.store = store
        self.connection: UserConnection
        self.is_open = False
        """Whether it was begun, and neither committed nor rolled back by the ledger."""
        self.was_ended = False
        """Whether ``work`` has ended the transaction, which is not its to end."""

    @classmethod
    def claim(cls, given: object, store: Store) -> Transaction:
        """Keep others from using a connection; refuse one that is in use."""
        transaction = cls(given, store)
        if claimed.setdefault(id(given), transaction) is not transaction:
            raise StoreError(
                "another operation runs within the connection given as within=",
                "Give each operation a connection of its own",
            )
        return transaction

    def release_claim(self) -> None:
        """Let other operations use the connection."""
        claimed.pop(id(self.given), None)

    async def give_back(self) -> None:
        """Give the connection back; an interrupt may have left the transaction open."""
        try:
            if self.is_open:
                await self.roll_back()
        finally:
            self.release_claim()

    async def check_connection(self) -> None:
        """Refuse a connection that cannot be used, or not with the store."""
        try:
            self.connection = await user_connection(self.given, self.store)
            is_idle = self.connection.is_idle()
            isolation = await self.isolation() if is_idle else None
        except (StoreError, TypeError):
            raise
        except Exception as error:  # of any driver
            raise StoreError(
                f"the connection given as within= cannot be used: {error_line(error)}",
                "Pass one that is open, in the thread that may use it",
            ) from error
        if not is_idle:
            raise StoreError(
                "the connection given as within= has a transaction open",
                "Commit or roll back first: the operation commits one of its own",
            )
        if isolation not in (None, "read committed"):
            raise StoreError(
                f"the connection given as within= has the isolation level {isolation}, "
                "in which the outcome could not be written after a lease was extended",
                "Pass a connection with the isolation level read committed",
            )

    async def isolation(self) -> str | None:
        """Return the isolation level of PostgreSQL; None for SQLite, which has one."""
        if self.connection.dialect == "sqlite":
            return None
        try:
            rows = await self.connection.execute("show transaction_isolation")
        finally:
            await self.roll_back()  # psycopg has begun a transaction
        return str(rows[0][0])

    @property
    def holds_file(self) -> bool:
        """Whether nobody else can write meanwhile, so that no lease is needed."""
        return self.connection.dialect == "sqlite"

    def holds_file_of(self, store: Store) -> bool:
        """Tell whether *store* cannot write until this ends."""
        return self.holds_file and self.store is store

    async def begin(self, *, awaits: bool) -> None:
        """Begin; nothing has happened, and nothing is open, if this raises."""
        if not self.connection.is_idle():
            raise not_begun("somebody else has begun one on this connection")
        self.is_open = True
        try:
            await self.connection.begin(awaits=awaits)
            await self.connection.execute(f"savepoint {OPERATION}")
        except Exception as error:  # of any driver
            await self.roll_back()
            raise not_begun(error_line(error)) from error
        except BaseException:
            await self.roll_back()
            raise

    async def run(self, task: Task[Any], mode: Mode, owned_run: OwnedRun) -> Any:
        """Run *task* in the transaction; roll back if it fails or is interrupted."""
        token = current.set(self)
        try:
            attempt = self.attempt_in_savepoint(task.work)
            task.work = attempt if mode.awaits else partial(run_now, attempt)  # type: ignore[method-assign]
            result = await mode.run(task, owned_run)
        except BaseException:
            await self.undo()
            raise
        finally:
            current.reset(token)
        self.note_end()
        if result.failed or self.was_ended:
            await self.undo()
        if self.connection.is_lost():
            raise StoreUnavailable(
                "the connection given as within= was lost, and nothing was kept",
                "Try again with the same id and another connection",
            )
        if self.was_ended:
            raise TransactionEnded(ENDED)
        return result

    def attempt_in_savepoint(
        self, work: Callable[[], Any]
    ) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Return *work* so that an attempt which raises leaves nothing behind."""
        execute = self.connection.execute

        async def attempt() -> Any:
            await execute(f"savepoint {ATTEMPT}")
            try:
                value = work()
                if type(value) is CoroutineType:
                    value = await value
                await self.end_savepoint("release", ATTEMPT)
            except TransactionEnded:
                raise
            except Exception:
                await self.end_savepoint("rollback to", ATTEMPT)
                raise
            return value

        return attempt

    async def end_savepoint(self, command: str, name: str) -> None:
        """End a savepoint; it is gone if ``work`` has ended the transaction."""
        try:
            await self.connection.execute(f"{command} savepoint {name}")
        except Exception as error:  # of any driver
            is_gone = self.connection.is_closed() or is_without_savepoint(error)
            if self.connection.is_lost() or not is_gone:
                raise
            self.was_ended = True
            raise TransactionEnded(ENDED) from error

    async def undo(self) -> None:
        """Leave nothing of the work, unless it has ended the transaction itself."""
        self.note_end()
        try:
            if not self.is_over():
                await self.end_savepoint("rollback to", OPERATION)
        except TransactionEnded:
            pass  # it is noted, and what work has begun then is rolled back
        except Exception:  # of any driver
            if not self.connection.is_lost():
                raise
        await self.roll_back()

    def is_over(self) -> bool:
        """Tell whether there is no transaction any more."""
        return self.connection.is_closed() or self.connection.is_idle()

    def note_end(self) -> None:
        """Remember if ``work`` has ended the transaction."""
        if not self.connection.is_lost() and self.is_over():
            self.was_ended = True

    async def seal(
        self, record: OperationRecord, result: Result[Any], now: float
    ) -> OperationRecord | None:
        """Commit the work together with its outcome; None if the record was lost."""
        execute = self.connection.execute
        try:
            await self.end_savepoint("release", OPERATION)
            rows = await execute(LOAD, session=record.session, id=record.id)
            stored = record_of(rows[0]) if rows else None
            sealed = table.seal(stored, record.owner, result_text(result), now)
            if sealed is not None:
                await execute(UPDATE, **columns_of(sealed))
                if self.store.announcement is not None:
                    await execute(self.store.announcement)
                await execute("commit")
        except TransactionEnded:
            raise
        except Exception as error:  # of any driver
            raise self.explain(error) from error
        finally:
            await self.roll_back()
        return sealed

    def explain(self, error: Exception) -> StoreError:
        """Return what a failed commit means: that nothing was kept, or nobody knows."""
        text = error_line(error)
        if is_refusal(error) and not self.connection.is_closed():
            return CommitRefused(
                f"the database refused to commit the work: {text}",
                "Nothing was kept: mend the cause, and call again with the same id",
            )
        return CommitUncertain(
            f"the transaction could not be committed: {text}",
            "Ask again with the same id: the database knows whether it was",
        )

    async def roll_back(self) -> None:
        """Leave nothing of a transaction that was not committed."""
        try:
            if not self.is_over():
                await self.connection.execute("rollback")
        except Exception:  # of any driver
            if not self.connection.is_lost():
                raise
        self.is_open = False


def not_begun(why: str | None) -> StoreUnavailable:
    """Say that there is no transaction to run in."""
    return StoreUnavailable(
        f"a transaction could not begin: {why}",
        "Try again when the database can be written",
    )


def is_file_held(store: Store) -> bool:
    """Tell whether an operation of this process keeps others from writing to a file."""
    return any(
        transaction.store is store and transaction.is_open
        for transaction in [*claimed.values()]
    )


def is_without_savepoint(error: Exception) -> bool:
    """Tell whether a driver says that there is no such savepoint."""
    code = getattr(error, "sqlstate", None)
    return code in NO_SAVEPOINT or "no such savepoint" in str(error)


def is_refusal(error: Exception) -> bool:
    """Tell whether a database has refused something, and is there to say so."""
    is_constraint = type(error).__name__ == "IntegrityError"  # of sqlite3
    return is_constraint or getattr(error, "sqlstate", None) is not None


def run_now(attempt: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run an attempt that never suspends."""
    return drive(attempt())
