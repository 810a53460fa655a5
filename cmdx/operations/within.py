"""
Exactly once, with a database of the user's.

``work`` runs in a transaction of the user's connection, and the seal is written into
the same transaction: both are committed, or neither. A record that is not sealed proves
that nothing happened, so the operation may run again.

1. the operation is admitted, by the store                  ``cmdx.operations.ledger``
2. a transaction begins, and ``work`` finds its connection  ``Transaction.run``
3. an attempt is a savepoint, rolled back if it raises      ``attempt_in_savepoint``
4. a success or skip is sealed and committed together       ``Transaction.seal``
5. a failure is rolled back, and then sealed alone          ``cmdx.operations.ledger``
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from cmdx.exceptions import CmdxError
from cmdx.operations import decide as table
from cmdx.operations.records import LOAD, UPDATE, columns_of, record_of
from cmdx.report import error_line
from cmdx.run.lifecycle import drive
from cmdx.stores.connections import is_async_connection, user_connection
from cmdx.stores.errors import CommitUncertain, StoreError, StoreUnavailable
from cmdx.wire.results import result_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cmdx import Result, Task
    from cmdx.operations.calls import Calls
    from cmdx.operations.decide import OperationRecord
    from cmdx.operations.heart import Execution
    from cmdx.stores import Store
    from cmdx.stores.connections import UserConnection

SAVEPOINT = "cmdx_attempt"
ENDED = (
    "work committed or rolled back the transaction given as within=, which is the "
    "ledger's to end; leave out commit(), `with connection:` and executescript()"
)

current: ContextVar[Any] = ContextVar("cmdx.operations.connection", default=None)


def connection() -> Any:
    """
    Return the connection that was given as ``within=`` to the running operation.

    Example::

        def work(self):
            connection().execute("update account set balance = balance - ?", (7,))
    """
    found = current.get()
    if found is None:
        message = (
            "no operation runs within a connection here. Run the task with "
            "session.run(..., within=connection), and ask inside work."
        )
        raise LookupError(message)
    return found


async def new_transaction(
    given: object, store: Store, *, awaits: bool
) -> Transaction | None:
    """Return what runs within the connection *given*, if there is one."""
    if given is None:
        return None
    if is_async_connection(given) and not awaits:
        message = "an asynchronous connection needs arun(), or pass a synchronous one."
        raise TypeError(message)
    found = await user_connection(given, store)
    if not found.is_idle():
        raise StoreError(
            "the connection given as within= has a transaction open",
            "Commit or roll back first: the operation commits a transaction of its own",
        )
    return Transaction(found, given)


class TransactionEnded(CmdxError):  # noqa: N818 -- it says what happened
    """``work`` committed or rolled back the transaction it was given."""


class Transaction:
    """A transaction of the user's connection, for one run of an operation."""

    def __init__(self, connection: UserConnection, given: Any) -> None:
        self.connection = connection
        self.given = given
        self.was_ended = False
        """Whether ``work`` has ended the transaction, which is not its to end."""

    @property
    def holds_file(self) -> bool:
        """Whether nobody else can write meanwhile, so that no lease is needed."""
        return self.connection.dialect == "sqlite"

    async def begin(self, *, awaits: bool) -> None:
        """Begin; nothing has happened if this raises."""
        try:
            await self.connection.begin(awaits=awaits)
        except Exception as error:  # of any driver
            raise StoreUnavailable(
                f"a transaction could not begin: {error_line(error)}",
                "Try again when the database can be written",
            ) from error

    async def run(self, task: Task[Any], calls: Calls, execution: Execution) -> Any:
        """Run *task* in the transaction; roll back if it is interrupted."""
        token = current.set(self.given)
        try:
            attempt = self.attempt_in_savepoint(task.work)
            task.work = attempt if calls.awaits else partial(run_now, attempt)  # type: ignore[method-assign]
            result = await calls.run(task, execution)
            self.note_end()
        except BaseException:
            self.note_end()
            await self.roll_back()
            raise
        finally:
            current.reset(token)
        if self.connection.is_lost():
            raise StoreUnavailable(
                "the connection given as within= was lost, and nothing was kept",
                "Try again with the same id and another connection",
            )
        if self.was_ended:
            await self.roll_back()  # work may have begun another one
            raise TransactionEnded(ENDED)
        return result

    def attempt_in_savepoint(
        self, work: Callable[[], Any]
    ) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Return *work* so that an attempt which raises leaves nothing behind."""
        execute = self.connection.execute

        async def attempt() -> Any:
            await execute(f"savepoint {SAVEPOINT}")
            try:
                value = work()
                if type(value) is CoroutineType:
                    value = await value
            except Exception:
                await self.end_savepoint("rollback to savepoint")
                raise
            await self.end_savepoint("release savepoint")
            return value

        return attempt

    async def end_savepoint(self, command: str) -> None:
        """End the savepoint of an attempt; it is gone if ``work`` has committed."""
        try:
            await self.connection.execute(f"{command} {SAVEPOINT}")
        except Exception as error:  # of any driver
            if self.connection.is_lost():
                raise
            self.was_ended = True
            raise TransactionEnded(ENDED) from error

    def note_end(self) -> None:
        """Remember if ``work`` has ended the transaction."""
        if self.connection.is_lost():
            return
        is_ended = self.connection.is_closed() or self.connection.is_idle()
        self.was_ended = self.was_ended or is_ended

    async def seal(
        self, record: OperationRecord, result: Result[Any], now: float
    ) -> OperationRecord | None:
        """Commit the work together with its outcome; None if the record was lost."""
        execute = self.connection.execute
        try:
            rows = await execute(LOAD, session=record.session, id=record.id)
            stored = record_of(rows[0]) if rows else None
            outcome = result_text(result)
            sealed = table.seal(stored, record.owner, outcome, now)
            if sealed is not None:
                await execute(UPDATE, **columns_of(sealed))
                await execute("commit")
        except Exception as error:  # of any driver
            raise CommitUncertain(
                f"the transaction could not be committed: {error_line(error)}",
                "Ask again with the same id: the database knows whether it was",
            ) from error
        finally:
            await self.roll_back()
        return sealed

    async def roll_back(self) -> None:
        """Leave nothing of a transaction that was not committed."""
        if not self.connection.is_closed() and not self.connection.is_idle():
            await self.connection.execute("rollback")


def run_now(attempt: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run an attempt that never suspends."""
    return drive(attempt())
