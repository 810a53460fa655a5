"""
``Transaction``: a run in a transaction of a database.

1. the factory is called, and what it returns is entered      ``Transaction.begin``
2. a run inside such a run gets a savepoint instead           ``Transaction.nest``
3. if the task retries, each attempt is a savepoint           ``attempt_in_savepoints``
4. a success or a skip commits; anything else rolls back      ``Transaction.__call__``
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
from contextvars import ContextVar
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cmdx.middlewares.callbacks import call_when_committed, refuse_callback
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
    refuse_unusable,
    takes_task,
)
from cmdx.middlewares.managed import (
    blocks_since,
    django_states,
    refuse_to_leave,
)
from cmdx.outcome import Halt, Status
from cmdx.run.lifecycle import drive

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
    Manager: TypeAlias = (
        AbstractContextManager[C, Any] | AbstractAsyncContextManager[C, Any]
    )


class RollBack(Exception):  # noqa: N818 -- it is a command, and never leaves this file
    """Makes a context manager that decides by exceptions roll back."""


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
        self, factory: Callable[..., Manager[C] | Awaitable[Manager[C]]]
    ) -> None:
        self.factory = factory
        self._takes_task = takes_task(factory)

    def current(self) -> C:
        """
        Return the connection or session of the run that this is called in.

        It is what ``with`` binds: None for ``atomic()`` of Django.
        """
        return self._block().connection  # type: ignore[no-any-return]

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
        block = self._block()
        refuse_callback(callback, is_async=block.is_async)
        block.callbacks.append(callback)

    def __call__(
        self, task: Task[Any]
    ) -> Generator[None, Result[Any], None] | AsyncGenerator[None, Result[Any]]:
        """Run the task in a transaction."""
        block = self.open(task)
        return around_async(block) if task._cmdx_.awaits else around(block)

    @asynccontextmanager
    async def open(self, task: Task[Any]) -> AsyncIterator[None]:
        """Open a transaction, or a savepoint in the one that this run is part of."""
        outer = self._outer_block()
        opening = self.begin(task) if outer is None else self.nest(task, outer)
        states = django_states()
        has_ended = False
        async with opening as found:
            block = Block(self, found, is_async=task._cmdx_.awaits)
            django = blocks_since(states)
            with block, attempt_in_savepoints(task, block):
                yield
            has_ended = True
        if not has_ended:
            return  # a context manager has swallowed the exception
        if outer is not None:
            outer.callbacks += block.callbacks
        elif block.callbacks:
            await call_when_committed(block, found, django)

    @asynccontextmanager
    async def begin(self, task: Task[Any]) -> AsyncIterator[Any]:
        """Begin a transaction that is ended by this run."""
        opened = self.factory(task) if self._takes_task else self.factory()
        manager = await manager_from(opened, task)
        states = django_states()
        with claim(manager, task):
            async with enter(manager, task) as found:
                refuse_unusable(found)
                if not is_connection(found):
                    django = blocks_since(states)
                    yield found
                    await refuse_to_leave(found, django, states)
                    return
                refuse_async_connection(found, task)
                with claim(found, task):
                    async with transaction_of(found):
                        yield found

    @asynccontextmanager
    async def nest(self, task: Task[Any], block: Block) -> AsyncIterator[Any]:
        """Set a savepoint in the transaction of *block*."""
        if not is_connection(block.connection):
            async with self.begin(task) as found:
                yield found
            return
        refuse_async_connection(block.connection, task)
        async with savepoint_of(block.connection, task):
            yield block.connection

    def _block(self) -> Block:
        for block in reversed(current_blocks.get()):
            if block.transaction is self and block.is_open:
                return block
        message = (
            f"no run is in {self!r} here. Put @middleware(...) with it on the task, "
            "and ask inside work or a callback."
        )
        raise LookupError(message)

    def _outer_block(self) -> Block | None:
        """Return the block of the run around this one, if it waits for this one."""
        with suppress(LookupError):
            block = self._block()
            return block if block.is_waiting() else None
        return None

    def __repr__(self) -> str:
        """Show the factory."""
        name = getattr(self.factory, "__qualname__", repr(self.factory))
        return f"Transaction({name})"


# -- the run --------------------------------------------------------------------------


class Block:
    """
    The part of a run that is in a transaction.

    Coroutines and threads that were started in it, and parallel steps, have a copy of
    the context variables. They find the connection while the block is open, but a task
    that they run gets a transaction of its own, because a connection cannot be in two
    savepoints at the same time.
    """

    def __init__(
        self, transaction: Transaction[Any], connection: Any, *, is_async: bool
    ) -> None:
        self.transaction = transaction
        self.connection = connection
        self.is_async = is_async
        self.is_open = True
        self.callbacks: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        """Let the code inside find the connection."""
        self._token = current_blocks.set((*current_blocks.get(), self))

    def __exit__(self, *_error: object) -> None:
        """Hide it again, also from what lives longer than the block."""
        self.is_open = False
        self.connection = None
        with suppress(ValueError):  # the run was closed in another context
            current_blocks.reset(self._token)

    def is_waiting(self) -> bool:
        """Tell whether the block goes on only after the code that asks."""
        blocks = current_blocks.get()
        try:
            current_blocks.reset(self._token)  # refused in a copy of the context
        except (ValueError, RuntimeError):  # the other one while the block itself asks
            return False
        self._token = current_blocks.set(blocks)
        return True


current_blocks: ContextVar[tuple[Block, ...]] = ContextVar(
    "cmdx.transactions", default=()
)


def around(
    block: AbstractAsyncContextManager[None],
) -> Generator[None, Result[Any], None]:
    """Run a task in *block*, which never suspends."""
    with suppress(RollBack), Driven(block):
        if (yield).failed:
            raise RollBack


async def around_async(
    block: AbstractAsyncContextManager[None],
) -> AsyncGenerator[None, Result[Any]]:
    """Run a task in *block*."""
    with suppress(RollBack):
        async with block:
            if (yield).failed:
                raise RollBack


class Driven:
    """A block that never suspends, to be entered by ``with``."""

    def __init__(self, block: AbstractAsyncContextManager[None]) -> None:
        self.block = block

    def __enter__(self) -> None:
        """Enter the block."""
        drive(self.block.__aenter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Leave the block."""
        try:
            return drive(self.block.__aexit__(kind, error, traceback))
        finally:
            del error, traceback  # they lead to this frame


@contextmanager
def attempt_in_savepoints(task: Task[Any], block: Block) -> Iterator[None]:
    """Have an attempt that raises leave nothing behind, if the task retries."""
    run = task._cmdx_
    if not run.plan.retry.catches:
        yield
        return
    attempt = in_savepoint(task, block)
    task.work = attempt if run.awaits else lambda: drive(attempt())  # type: ignore[method-assign]
    try:
        yield
    finally:
        del vars(task)["work"]


def in_savepoint(task: Task[Any], block: Block) -> Any:
    """Return ``work`` as a coroutine function that does it in a savepoint."""
    work = task.work

    async def attempt() -> Any:
        halt, value = None, None
        async with savepoint_in(block, task):
            try:
                value = work()
                if iscoroutine(value):
                    value = await value
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
async def savepoint_in(block: Block, task: Task[Any]) -> AsyncIterator[None]:
    """Set a savepoint for an attempt, whose callbacks go if it raises."""
    count = len(block.callbacks)
    try:
        async with block.transaction.nest(task, block):
            yield
    except BaseException:
        del block.callbacks[count:]
        raise
