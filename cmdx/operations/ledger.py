"""
``Ledger`` and ``Session``: what people call.

A ledger has a store. A session is a scope of operation ids in it. What happens when an
operation is run is in ``cmdx.operations.lifecycle``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import Task
from cmdx.declare.checks import check_seconds
from cmdx.operations import table
from cmdx.operations.answers import Operation, refuse_inputs
from cmdx.operations.call import Call, check_id
from cmdx.operations.errors import OperationIdError
from cmdx.operations.leases import lease_keeper_of
from cmdx.operations.lifecycle import run_call
from cmdx.operations.modes import AsyncMode, SyncMode
from cmdx.operations.records import peek_record
from cmdx.operations.recovery import refuse_async_recover
from cmdx.operations.units import cancelling_unit
from cmdx.operations.within import new_transaction
from cmdx.run.lifecycle import drive
from cmdx.run.record import check_can_start
from cmdx.stores import connect
from cmdx.stores.store import MEMORY, is_postgres
from cmdx.wire import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from cmdx import Result
    from cmdx.operations.modes import Mode
    from cmdx.operations.table import OperationRecord
    from cmdx.stores import Statements, Store

V = TypeVar("V")

LONGEST_NAME = 255
UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that a database cannot store."""
EVICTION_PAUSE = 60.0
"""Seconds between two evictions by a ledger."""


class Ledger:
    """
    Where operations are recorded, so that each is done at most once.

    Example::

        session = Ledger("app.db").session("tenant-3/checkout-42")
        result = session.run(ChargeCard(order_id=7), id="charge-7")

    Args:
        store: A store, the path of a SQLite database, or the DSN of a PostgreSQL one.
        lease: The seconds after which the owner of an operation counts as dead if it
            has not been heard of. Owners extend their leases by themselves.
    """

    def __init__(
        self, store: Store | str | PathLike[str], *, lease: float = 30.0
    ) -> None:
        self.store = connect(store)
        self.lease = check_seconds("Ledger", "lease", lease, above_zero=True)
        self.lease_keeper = lease_keeper_of(self.store)
        name = self.store.name
        self.has_file = name != MEMORY and not is_postgres(name)
        """Whether it is in an SQLite file, which has one writer at a time."""
        self.expects_record = False
        """Whether the last call found a record, or could not write."""
        self._next_eviction = 0.0

    def session(self, name: str) -> Session:
        """
        Return the scope of operation ids called *name*.

        The same id in two sessions means two operations.

        Args:
            name: A text of 1 to 255 characters, such as ``"tenant-3/checkout-42"``.
        """
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
            message = (
                f"the name of a session is a text of 1 to {LONGEST_NAME} characters, "
                f"got {name!r}."
            )
            raise OperationIdError(message)
        if UNSTORABLE.search(name):
            message = f"the name of a session must be storable as text, got {name!r}."
            raise OperationIdError(message)
        return Session(self, name)

    def __repr__(self) -> str:
        """Show the store."""
        return f"Ledger({self.store.name!r})"

    def is_eviction_due(self) -> bool:
        """Tell whether old records are to be looked for, at most once a minute."""
        now = self.store.now()
        if now < self._next_eviction:
            return False
        self._next_eviction = now + EVICTION_PAUSE
        return True

    def evict_soon(self) -> None:
        """Have the next call look for old records again: there are many."""
        self._next_eviction = 0.0


class Session:
    """A scope of operation ids; made by ``Ledger.session``."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = name

    def __repr__(self) -> str:
        """Show the ledger and the name."""
        return f"{self.ledger!r}.session({self.name!r})"

    def run(
        self,
        invocation: Task[V],
        /,
        *,
        id: str | None = None,  # noqa: A002 -- as users write it
        within: Any = None,
        wait: float | None = None,
    ) -> Result[V]:
        """
        Run a task at most once, or return the result of the run that was.

        Args:
            invocation: The task with its inputs, such as ``ChargeCard(order_id=7)``.
            id: The id of the intention: 1 to 255 letters, digits, and ``-_:.``. The
                same id is the same operation. Without one, a new id is made.
            within: An idle connection to the database of the ledger. ``work`` runs in a
                transaction of it that also records the outcome, so that it takes effect
                exactly once.
            wait: The seconds to wait for another run of the same operation; without
                limit by default.
        """
        check_invocation(invocation, awaits=False)
        refuse_async_recover(type(invocation))
        mode = SyncMode(self.ledger.store)
        return drive(self._run(invocation, id, within, wait, mode))

    async def arun(
        self,
        invocation: Task[V],
        /,
        *,
        id: str | None = None,  # noqa: A002 -- as users write it
        within: Any = None,
        wait: float | None = None,
    ) -> Result[V]:
        """
        Do what ``run`` does, and await what has to be awaited.

        Cancelling the caller cancels a volatile operation, and one that runs within a
        connection. Any other that persists goes on, and a duplicate gets its result.

        Args:
            invocation: As for ``run``.
            id: As for ``run``.
            within: As for ``run``; also an asynchronous connection.
            wait: As for ``run``.
        """
        check_invocation(invocation, awaits=True)
        mode = AsyncMode(self.ledger.store)
        return await self._run(invocation, id, within, wait, mode)

    async def _run(
        self,
        invocation: Task[V],
        id: str | None,  # noqa: A002 -- as users write it
        within: Any,
        wait: float | None,
        mode: Mode,
    ) -> Result[V]:
        store = self.ledger.store
        transaction = await new_transaction(within, store, awaits=mode.awaits)
        try:
            call = Call(self, invocation, id, wait, transaction)
            return await run_call(call, mode)
        except RefusedInputError as error:
            return refuse_inputs(invocation, error)
        finally:
            if transaction is not None:
                await transaction.give_back()

    def get(self, id: str) -> Operation | None:  # noqa: A002 -- as users write it
        """Return where an operation stands; None if nobody has heard of it."""
        unit = self._reading_unit(id)
        return self.ledger.store.transact(unit, read_only=True)

    async def aget(self, id: str) -> Operation | None:  # noqa: A002 -- as users write it
        """Do what ``get`` does, without blocking the event loop."""
        unit = self._reading_unit(id)
        return await self.ledger.store.atransact(unit, read_only=True)

    def cancel(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """
        Release an operation that is running and does not persist.

        Those who wait for it get a failed result. Async ``work`` is cancelled; other
        work runs to its end, and its outcome is dropped. Return False, and change
        nothing, if the operation persists, has ended or is not known.
        """
        unit = cancelling_unit((self.name, check_id(id)))
        return self._note_cancelled(self.ledger.store.transact(unit))

    async def acancel(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """Do what ``cancel`` does, without blocking the event loop."""
        unit = cancelling_unit((self.name, check_id(id)))
        return self._note_cancelled(await self.ledger.store.atransact(unit))

    def _reading_unit(
        self,
        id: str,  # noqa: A002 -- as users write it
    ) -> Callable[[Statements], Operation | None]:
        check_id(id)

        def read(statements: Statements) -> Operation | None:
            record = peek_record(statements, self.name, id)
            if record is None or table.is_forgotten(record, statements.now):
                return None
            return Operation.of(table.present_state(record, statements.now))

        return read

    def _note_cancelled(self, record: OperationRecord | None) -> bool:
        if record is None:
            return False
        self.ledger.lease_keeper.cancel(record.owner)
        return True


def check_invocation(invocation: object, *, awaits: bool) -> None:
    """Refuse anything but a task with its inputs that can run now."""
    if not isinstance(invocation, Task):
        message = (
            "a session runs an invocation, such as ChargeCard(order_id=7), "
            f"got {invocation!r}."
        )
        raise TypeError(message)
    check_can_start(
        invocation,
        awaits=awaits,
        instead="await session.arun(%s(...), id=...)",
        again=f"session.{'arun' if awaits else 'run'}(%s(...), id=...)",
    )
