"""
``Transaction``: a run in a transaction of a database.

1. the factory is called, and what it returns is entered      ``Transaction.begin``
2. a run inside such a run gets a savepoint instead           ``Transaction.nest``
3. if the task retries, each attempt is a savepoint           ``attempt_in_savepoints``
4. a success or a skip commits; anything else rolls back      ``around``,
                                                              ``around_async``
5. callbacks that wait for the commit are called              ``call_when_committed``

A failed task is a result and not an exception, so an exception is raised for the
context managers that decide by one.

It is written once, as coroutines, like the lifecycle. ``factories`` knows what can be
opened, ``connections`` and ``managed`` what can be done with it.
"""

from __future__ import annotations

from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cmdx.middlewares.callbacks import (
    call_when_committed,
    refuse_callback,
    report_dropped_callbacks,
)
from cmdx.middlewares.connections import (
    enter,
    is_connection,
    savepoint_of,
    transaction_of,
)
from cmdx.middlewares.factories import (
    claim,
    manager_from,
    refuse_async_connection,
    refuse_file,
    refuse_unusable,
    takes_task,
)
from cmdx.middlewares.managed import (
    blocks_since,
    django_states,
    refuse_second_connection,
    refuse_to_leave,
)
from cmdx.outcome import Halt, Status
from cmdx.run.attempts import refuse_unawaited, require_async_run
from cmdx.run.lifecycle import drive
from cmdx.run.scopes import Scope, open_scopes

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Generator,
        Iterator,
    )
    from types import TracebackType
    from typing import TypeAlias

    from cmdx import Result, Task

C = TypeVar("C")

if TYPE_CHECKING:
    EitherContextManager: TypeAlias = (
        AbstractContextManager[C, Any] | AbstractAsyncContextManager[C, Any]
    )


class RollBack(Exception):  # noqa: N818 -- it is a command
    """
    Makes a context manager that decides by exceptions roll back.

    The context managers of the user see it; the caller of the task does not.
    """


class Transaction(Generic[C]):
    """
    Runs the task in a transaction, which is committed unless the task fails.

    What the factory returns is entered as in ``with factory() as connection:``, so it
    is closed if ``with`` closes it. Use ``contextlib.closing`` to have something closed
    that is not, and ``contextlib.nullcontext`` to keep something open.

    A run inside a run of the same transaction is a savepoint of it, and so is each
    attempt of a task that retries.

    Example::

        database = Transaction(lambda: closing(sqlite3.connect("app.db")))

        @middleware(database)
        class Pay(Task[None]):
            def work(self) -> None:
                database.current().execute("insert into payment values (7)")

    Args:
        factory: Called once per run, without arguments, or with the task if it requires
            one. It returns a context manager, or an awaitable of one: a connection of
            sqlite3 or psycopg, a session or connection of SQLAlchemy, or one that
            commits and rolls back by itself, such as ``atomic()`` of Django.
    """

    def __init__(
        self,
        factory: Callable[
            ..., EitherContextManager[C] | Awaitable[EitherContextManager[C]]
        ],
    ) -> None:
        self.factory = factory
        self._takes_task = takes_task(factory)

    def current(self) -> C:
        """
        Return the connection or session of the run that this is called in.

        It is what ``with`` binds: None for ``atomic()`` of Django.
        """
        return self._scope().connection  # type: ignore[no-any-return]

    def on_commit(self, callback: Callable[[], object]) -> None:
        """
        Call *callback* after the transaction was committed.

        It is not called if this run, or one around it in the same transaction, fails.
        What it raises is logged by ``logging.getLogger("cmdx")``, because the commit
        cannot be taken back. An interrupt propagates, and the callbacks after it are
        not called.

        Args:
            callback: A callable without parameters; it may be async if the run is.
        """
        scope = self._scope()
        refuse_callback(callback, is_async=scope.is_async)
        scope.callbacks.append(callback)

    def __call__(
        self, task: Task[Any]
    ) -> Generator[None, Result[Any], None] | AsyncGenerator[None, Result[Any]]:
        """Run the task in a transaction."""
        opening = self.open(task)
        return around_async(opening) if task._cmdx_.awaits else around(opening)

    @asynccontextmanager
    async def open(self, task: Task[Any]) -> AsyncIterator[None]:
        """Open a transaction, or a savepoint in the one that this run is part of."""
        outer = self._outer_scope()
        opening = self.begin(task) if outer is None else self.nest(task, outer)
        has_ended = False
        async with report_dropped_callbacks(opening, outer) as scope:
            found = scope.connection  # the scope forgets it when it ends
            with scope, attempt_in_savepoints(task, scope):
                yield
            has_ended = True
        if not has_ended:
            return  # a context manager has swallowed the exception
        if outer is not None:
            outer.callbacks += scope.callbacks
        elif scope.callbacks:
            await call_when_committed(scope, found)

    @asynccontextmanager
    async def begin(
        self, task: Task[Any], outer: TransactionScope | None = None
    ) -> AsyncIterator[TransactionScope]:
        """
        Begin a transaction that is ended by this run.

        Args:
            task: The task that is run in it.
            outer: The scope around it, if the context manager is to set a savepoint.
        """
        scope = TransactionScope(self, task, outer)
        opened = self.factory(task) if self._takes_task else self.factory()
        manager = await manager_from(opened, task)
        states = django_states()
        with claim(manager, scope):
            async with enter(manager, task) as found:
                refuse_unusable(found)
                refuse_file(found)
                scope.connection, scope.django = found, blocks_since(states)
                with claim(found, scope):
                    if is_connection(found):
                        refuse_async_connection(found, task)
                        async with transaction_of(found):
                            yield scope
                    else:
                        yield scope
                        await refuse_to_leave(found, scope.django, states)
                scope.may_be_committed = True

    @asynccontextmanager
    async def nest(
        self, task: Task[Any], outer: TransactionScope
    ) -> AsyncIterator[TransactionScope]:
        """Set a savepoint in the transaction of *outer*."""
        connection = outer.connection
        if is_connection(connection):
            refuse_async_connection(connection, task)
            scope = TransactionScope(self, task, outer)
            scope.connection = connection
            async with savepoint_of(connection, task):
                yield scope
            return
        states = django_states()
        async with self.begin(task, outer) as scope:
            refuse_second_connection(scope.connection, connection, states)
            yield scope

    def _scope(self) -> TransactionScope:
        for scope in reversed(open_scopes.get()):
            if not (isinstance(scope, TransactionScope) and scope.is_open):
                continue
            if scope.transaction is self:
                return scope
        message = (
            f"no run is in {self!r} here. Put @middleware(...) with it on the task, "
            "and ask inside work or a callback."
        )
        raise LookupError(message)

    def _outer_scope(self) -> TransactionScope | None:
        """Return the scope of the run around this one, if it waits for this one."""
        with suppress(LookupError):
            scope = self._scope()
            return scope if scope.is_waiting() else None
        return None

    def __repr__(self) -> str:
        """Show the factory."""
        name = getattr(self.factory, "__qualname__", repr(self.factory))
        return f"Transaction({name})"


# -- the run --------------------------------------------------------------------------


class TransactionScope(Scope):
    """
    The part of a run that is in a transaction.

    Coroutines and threads that were started in it, and parallel steps, find the
    connection while the scope is open. But a task that they run gets a transaction of
    its own, because a connection cannot be in two savepoints at the same time.
    """

    def __init__(
        self,
        transaction: Transaction[Any],
        task: Task[Any],
        outer: TransactionScope | None,
    ) -> None:
        self.transaction = transaction
        self.outer = outer
        """The scope around it, if it is a savepoint."""
        self.task_class = type(task)
        self.is_async = task._cmdx_.awaits
        self.connection: Any = None
        """What ``with`` has bound, until the scope ends."""
        self.django: list[Any] = []
        """The connections of Django on which a block was entered for it."""
        self.may_be_committed = False
        """Whether all is done but to leave the context manager, which may commit."""
        self.callbacks: list[Callable[[], object]] = []

    @property
    def outermost(self) -> TransactionScope:
        """The scope of the whole transaction."""
        return self if self.outer is None else self.outer.outermost

    def __exit__(self, *error: object) -> None:
        """Hide the connection, also from what lives longer than the scope."""
        super().__exit__(*error)
        self.connection = None


def around(
    opening: AbstractAsyncContextManager[None],
) -> Generator[None, Result[Any], None]:
    """Run a task in the transaction of *opening*, which never suspends."""
    with suppress(RollBack), Driven(opening):
        if (yield).failed:
            raise RollBack


async def around_async(
    opening: AbstractAsyncContextManager[None],
) -> AsyncGenerator[None, Result[Any]]:
    """Run a task in the transaction of *opening*."""
    with suppress(RollBack):
        async with opening:
            if (yield).failed:
                raise RollBack


class Driven:
    """An opening that never suspends, to be entered by ``with``."""

    def __init__(self, opening: AbstractAsyncContextManager[None]) -> None:
        self.opening = opening

    def __enter__(self) -> None:
        """Open the transaction."""
        drive(self.opening.__aenter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """End the transaction."""
        try:
            return drive(self.opening.__aexit__(kind, error, traceback))
        finally:
            del error, traceback  # they lead to this frame


@contextmanager
def attempt_in_savepoints(task: Task[Any], scope: TransactionScope) -> Iterator[None]:
    """Replace ``work`` by one in a savepoint, if the task retries."""
    run = task._cmdx_
    if not run.plan.retry.catches:
        yield
        return
    attempt = in_savepoint(task, scope)
    earlier = vars(task).get("work")  # of another Transaction around this one
    task.work = attempt if run.awaits else lambda: drive(attempt())  # type: ignore[method-assign]
    try:
        yield
    finally:
        del vars(task)["work"]
        if earlier is not None:
            task.work = earlier  # type: ignore[method-assign]


def in_savepoint(task: Task[Any], scope: TransactionScope) -> Any:
    """Return ``work`` as a coroutine function that does it in a savepoint."""
    work, run = task.work, task._cmdx_

    async def attempt() -> Any:
        halt, value = None, None
        async with savepoint_in(scope, task):
            try:
                value = work()
                if iscoroutine(value):
                    value = await require_async_run(run, value)
                    if iscoroutine(value):
                        refuse_unawaited(run, value)
            except Halt as raised:
                if raised.status is Status.FAILED:  # the database may refuse to go on
                    raise
                halt = raised  # the run ends here, and its outcome decides
        try:
            if halt is not None:
                raise halt
        finally:
            del halt  # its traceback leads to this frame
        return value

    return attempt


@asynccontextmanager
async def savepoint_in(scope: TransactionScope, task: Task[Any]) -> AsyncIterator[None]:
    """Set a savepoint for an attempt; drop its callbacks if it raises."""
    count = len(scope.callbacks)
    try:
        async with scope.transaction.nest(task, scope):
            yield
    except BaseException:
        del scope.callbacks[count:]
        raise
