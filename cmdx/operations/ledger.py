"""
``Ledger`` and ``Session``: what people call.

A ledger has a store. A session is a scope of operation ids in it. What happens when an
operation is run is in ``cmdx.operations.ledger``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from cmdx import Task
from cmdx.declare.checks import check_seconds
from cmdx.operations import decide as table
from cmdx.operations.answers import Operation, refuse_inputs
from cmdx.operations.calls import AwaitingCalls, BlockingCalls
from cmdx.operations.errors import OperationIdError
from cmdx.operations.heart import heart
from cmdx.operations.ledger import Call, run_call
from cmdx.operations.records import load_record, write_record
from cmdx.operations.recovery import check_recover
from cmdx.operations.within import new_transaction
from cmdx.run.lifecycle import drive
from cmdx.run.record import check_can_start
from cmdx.stores import connect
from cmdx.wire import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from cmdx import Result
    from cmdx.operations.calls import Calls
    from cmdx.operations.decide import OperationRecord
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
        self.heart = heart
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

    def is_eviction_due(self, now: float) -> bool:
        """Tell whether old records are to be looked for, at most once a minute."""
        if now < self._next_eviction:
            return False
        self._next_eviction = now + EVICTION_PAUSE
        return True


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
        check_invocation(invocation)
        check_can_start(invocation, awaits=False)
        check_recover(type(invocation))
        calls = BlockingCalls(self.ledger.store)
        return drive(self._run(invocation, id, within, wait, calls))

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

        Cancelling the caller cancels a volatile operation. One that persists goes on,
        and a duplicate gets its result.

        Args:
            invocation: As for ``run``.
            id: As for ``run``.
            within: As for ``run``; also an asynchronous connection.
            wait: As for ``run``.
        """
        check_invocation(invocation)
        check_can_start(invocation, awaits=True)
        calls = AwaitingCalls(self.ledger.store)
        return await self._run(invocation, id, within, wait, calls)

    async def _run(
        self,
        invocation: Task[V],
        id: str | None,  # noqa: A002 -- as users write it
        within: Any,
        wait: float | None,
        calls: Calls,
    ) -> Result[V]:
        store = self.ledger.store
        transaction = await new_transaction(within, store, awaits=calls.awaits)
        try:
            call = Call(self, invocation, id, wait, transaction)
            return await run_call(call, calls)
        except RefusedInputError as error:
            return refuse_inputs(invocation, error)
        finally:
            if transaction is not None:
                transaction.release_claim()

    def get(self, id: str) -> Operation | None:  # noqa: A002 -- as users write it
        """Return where an operation stands; None if nobody has heard of it."""
        unit = self._reading_unit(id)
        return self.ledger.store.transact(unit)

    async def aget(self, id: str) -> Operation | None:  # noqa: A002 -- as users write it
        """Do what ``get`` does, without blocking the event loop."""
        return await self.ledger.store.atransact(self._reading_unit(id))

    def cancel(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """
        Release an operation that is running and does not persist.

        Those who wait for it get a failed result. Async ``work`` is cancelled; other
        work runs to its end, and its outcome is dropped. Return False, and change
        nothing, if the operation persists, has ended or is not known.
        """
        store = self.ledger.store
        return self._note_cancelled(store.transact(self._cancelling_unit(id)))

    async def acancel(self, id: str) -> bool:  # noqa: A002 -- as users write it
        """Do what ``cancel`` does, without blocking the event loop."""
        store = self.ledger.store
        return self._note_cancelled(await store.atransact(self._cancelling_unit(id)))

    def _reading_unit(
        self,
        id: str,  # noqa: A002 -- as users write it
    ) -> Callable[[Statements], Operation | None]:
        def read(statements: Statements) -> Operation | None:
            record = load_record(statements, self.name, id)
            if record is None or table.is_forgotten(record, statements.now):
                return None
            return Operation.of(table.present_state(record, statements.now))

        return read

    def _cancelling_unit(
        self,
        id: str,  # noqa: A002 -- as users write it
    ) -> Callable[[Statements], OperationRecord | None]:
        def cancel(statements: Statements) -> OperationRecord | None:
            record = load_record(statements, self.name, id)
            cancelled = table.cancel(record, statements.now)
            write_record(statements, record, cancelled)
            return cancelled

        return cancel

    def _note_cancelled(self, record: OperationRecord | None) -> bool:
        if record is None:
            return False
        self.ledger.heart.cancel(record.owner)
        return True


def check_invocation(invocation: object) -> None:
    """Refuse anything but a task with its inputs."""
    if not isinstance(invocation, Task):
        message = (
            "a session runs an invocation, such as ChargeCard(order_id=7), "
            f"got {invocation!r}."
        )
        raise TypeError(message)
