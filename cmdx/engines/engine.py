"""
What all engines have in common: from an invocation to its result.

1. a task is registered, which declares it to the engine       ``Engine.register``
2. an invocation is checked, and its inputs become a message   ``Engine.enqueue``
3. a worker of the engine makes the invocation again           ``load_task``
4. it runs until it ends, or has to wait for long              ``run_leg``
5. a long pause is handed to the engine, as a message with     ``hand_over`` in
   the same inputs, and where the run stopped                  ``celery``, ``dramatiq``
6. a failed run fails for the engine too                       ``failure_of``
7. the caller reads the result, if the engine stores it        ``Handle.wait``

The retries are those of the task: the engine's own are off, and no rule is added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

import attrs

from cmdx import Task, clock, detached
from cmdx.chain import chain_of
from cmdx.clock import FOREVER
from cmdx.declare.checks import check_longest_pause, check_seconds
from cmdx.exceptions import CmdxError, DefinitionError
from cmdx.run.deadlines import unlimited
from cmdx.run.lifecycle import drive, lifecycle
from cmdx.run.record import Message
from cmdx.task import begin_leg
from cmdx.wire import load_result
from cmdx.wire.invocations import input_codecs, inputs_data, invocation_of
from cmdx.wire.names import task_name
from cmdx.wire.sending import check_unused, due_time, resolved_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import datetime

    from cmdx import Result
    from cmdx.run.record import Run

V = TypeVar("V")


class TaskFailed(CmdxError):  # noqa: N818 -- named in the contract
    """
    A task has failed on an engine, or could not be run there.

    Workers raise it, so that the engine knows of the failure.

    Args:
        reason: Why it failed.
        result: Its result as JSON; None if it was not run.
    """

    retryable = False

    def __init__(self, reason: str, result: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason, result)
        self.reason = reason
        self.result = result

    def __str__(self) -> str:
        """Show the reason alone: logs and dashboards print this."""
        return self.reason

    def __repr__(self) -> str:
        """Show the reason alone: Celery stores this of its errors."""
        return f"{type(self).__qualname__}({self.reason!r})"


def mapping_or_none(given: Any) -> Mapping[str, str] | None:
    """Return what other programs have not filled with something else."""
    return given if isinstance(given, dict) else None


@attrs.frozen
class EngineMessage:
    """What a worker of an engine has received."""

    id: str
    """The id that the engine knows it by."""
    engine: str
    """``"celery"`` or ``"dramatiq"``."""
    inputs: Mapping[str, Any]
    """The inputs of the task, as JSON."""
    earlier: Sequence[Any] = ()
    """
    Its positional arguments: where an earlier leg has stopped, if there was one, and
    nothing else.
    """
    origin: Mapping[str, str] | None = attrs.field(
        default=None, converter=mapping_or_none
    )
    """What it carries of who has sent it; None if that was not an engine."""

    @property
    def cid(self) -> str | None:
        """The id of the chain that has enqueued it."""
        return self.origin.get("cid") if self.origin else None

    @property
    def xid(self) -> str | None:
        """The correlation id of who has enqueued it, which the run has as well."""
        return self.origin.get("xid") if self.origin else None

    @property
    def traceparent(self) -> str | None:
        """The trace of who has enqueued it, as W3C Trace Context writes it."""
        return self.origin.get("traceparent") if self.origin else None


_current: ContextVar[EngineMessage | None] = ContextVar("cmdx.engines", default=None)


def current_message() -> EngineMessage | None:
    """Return the message whose task this worker runs; None outside of one."""
    return _current.get()


class Handle(ABC, Generic[V]):
    """An invocation that was sent to an engine; made by ``enqueue`` of the engine."""

    def __init__(self, id: str) -> None:  # noqa: A002 -- as users write it
        self.id: str = id
        """The id that the engine knows it by."""

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Handle {self.id}>"

    def wait(self, timeout: float | None = None) -> Result[V]:
        """
        Wait until the task has ended, and return its result.

        The engine needs a result backend for this. ``TaskFailed`` is raised if there is
        none: the message could not be read, or a time limit has ended the run.

        Args:
            timeout: The longest time to wait, in seconds; ``TimeoutError`` is raised
                then. Without limit by default.
        """
        if timeout is not None:
            timeout = check_seconds("wait", "timeout", timeout)
        answer = self._read(timeout)
        if answer is None:
            message = (
                f"{self.id} has not ended after {timeout} s. Wait longer, or look "
                "whether a worker runs."
            )
            raise TimeoutError(message)
        if isinstance(answer, TaskFailed) and answer.result is not None:
            answer = answer.result
        if isinstance(answer, TaskFailed):
            raise answer
        if isinstance(answer, BaseException):
            raise lost_run(answer) from answer
        result: Result[V] = load_result(answer)
        result._record.raises_fault = True
        return result

    @abstractmethod
    def _read(self, timeout: float | None) -> Any:
        """Return what is stored, or the error of a failure; None if that is late."""


class Engine(ABC):
    """Sends invocations to the workers of a distributed engine."""

    refused_options: ClassVar[Mapping[str, str]]
    """Options of the engine that ``register`` does not take, and what to do instead."""

    def __init__(self, longest_pause: float) -> None:
        where = type(self).__name__
        self.longest_pause = check_longest_pause(where, longest_pause)
        self._declared: dict[type[Task[Any]], Any] = {}

    def register(self, *tasks: type[Task[Any]], **options: Any) -> None:
        """
        Declare tasks to the engine, in the processes that send and that work.

        Args:
            tasks: The classes.
            options: Options of the engine for all of them, such as the queue.
        """
        check_options(type(self).__name__, options, self.refused_options)
        if not tasks:
            message = "register takes classes of tasks, such as ChargeCard, got none."
            raise TypeError(message)
        for cls in tasks:
            check_class(cls)
            if cls in self._declared or tasks.count(cls) > 1:
                message = f"{cls.__qualname__} is registered already. Do that once."
                raise DefinitionError(message)
        for cls in tasks:
            self._declared[cls] = self._declare(cls, task_name(cls), options)

    def enqueue(
        self,
        invocation: Task[V],
        /,
        *,
        after: float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> Handle[V]:
        """
        Send an invocation, to be run by a worker of the engine.

        Inputs are checked now; nothing is sent if anything is wrong.

        Args:
            invocation: The task with its inputs, such as ``ChargeCard(order_id=7)``.
            after: The seconds to wait first.
            at: When to run it, with a time zone; what is past means now.
            priority: Higher goes first, where the engine can do that.
        """
        check_unused(invocation, "engine")
        cls = type(invocation)
        if cls not in self._declared:
            name = cls.__qualname__
            message = f"{name} is not registered. Write engine.register({name})."
            raise DefinitionError(message)
        now = clock.current.get().time()
        seconds = min(due_time(now, after, at) - now, FOREVER)
        resolved_copy(invocation)  # which refuses wrong inputs
        inputs = inputs_data(invocation)
        check_priority(priority)
        return self._send(self._declared[cls], inputs, seconds, priority)

    @abstractmethod
    def _declare(
        self, cls: type[Task[Any]], name: str, options: Mapping[str, Any]
    ) -> Any:
        """Declare a task to the engine, and return what ``_send`` needs of it."""

    @abstractmethod
    def _send(
        self,
        declared: Any,
        inputs: dict[str, Any],
        seconds: float,
        priority: int | None,
    ) -> Handle[Any]:
        """Send a message."""


def check_class(cls: object) -> None:
    """Refuse anything but a class of tasks."""
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        message = f"register takes classes of tasks, such as ChargeCard, got {cls!r}."
        raise TypeError(message)
    if "self" in input_codecs(cls._cmdx_.plan):
        message = (
            f"{cls.__qualname__} has an input that callers write 'self', which is what "
            "engines call something else. Give it another name, or an alias."
        )
        raise DefinitionError(message)


def check_options(
    where: str, options: Mapping[str, Any], refused: Mapping[str, str]
) -> None:
    """Refuse options that would contradict what a task says itself."""
    for name in options:
        if name in refused:
            message = f"{where}.register takes no {name!r}: {refused[name]}."
            raise DefinitionError(message)


def check_priority(priority: object) -> None:
    """Refuse a priority that is no whole number."""
    if priority is None or type(priority) is int:
        return
    message = f"enqueue: priority must be a whole number, got {priority!r}."
    raise DefinitionError(message)


# -- in a worker ----------------------------------------------------------------------


def run_leg(
    cls: type[Task[Any]],
    message: EngineMessage,
    longest_pause: float,
    run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any],
) -> Result[Any]:
    """
    Run a task, or go on with it; raise ``Suspended`` if it has to wait for long.

    What interrupts a run is raised too, after the run was rolled back.

    Args:
        cls: The task.
        message: Its message.
        longest_pause: The longest pause that is slept here, in seconds.
        run_coroutine: What runs asynchronous tasks.
    """
    check_arguments(cls, message)
    task = load_task(cls, message.inputs)
    awaits = cls._cmdx_.plan.awaits
    token = _current.set(message)
    try:
        with detached(), unlimited():  # a task may enqueue it, and be its worker
            run = begin_run(task, message, longest_pause)
            steps = lifecycle(task, run)
            result: Result[Any] = run_coroutine(steps) if awaits else drive(steps)
            return result
    finally:
        _current.reset(token)


def check_arguments(cls: type[Task[Any]], message: EngineMessage) -> None:
    """Refuse positional arguments, unless a leg has sent its suspension as one."""
    if len(message.earlier) > 1 or any(
        not isinstance(argument, dict) for argument in message.earlier
    ):
        reason = (
            f"the message for {cls.__qualname__} has positional arguments. Send its "
            "inputs as keyword arguments."
        )
        raise TaskFailed(reason)


def load_task(cls: type[Task[Any]], inputs: Mapping[str, Any]) -> Task[Any]:
    """Return the invocation of a message; ``TaskFailed`` if its inputs do not fit."""
    try:
        return invocation_of(cls, inputs)
    except Exception as error:  # such as inputs of another version of the class
        message = f"the message for {cls.__qualname__} cannot be read: {error}"
        raise TaskFailed(message) from error


def begin_run(task: Task[Any], message: EngineMessage, longest_pause: float) -> Run:
    """Begin the run of a task, or go on where it stopped."""
    cls = type(task)
    suspended = message.earlier[0] if message.earlier else None
    awaits = cls._cmdx_.plan.awaits
    try:
        run = begin_leg(task, suspended, longest_pause, awaits=awaits)
    except Exception as error:  # a class that cannot run, or a message of others
        raise TaskFailed(f"{cls.__qualname__} cannot be run: {error}") from error
    run.message = Message(message.engine, message.id, None, message.traceparent)
    if message.xid is not None:
        chain_of(run).xid = message.xid
    return run


def failure_of(result: Result[Any], stored: Any) -> TaskFailed:
    """Return what a worker raises for a failed result, with what is stored of it."""
    failure = TaskFailed(result.reason or "no reason given", stored)
    failure.__cause__ = result.cause
    return failure


def lost_run(error: BaseException) -> TaskFailed:
    """Return the failure of a run that was interrupted, as by a time limit."""
    name, text = type(error).__qualname__, str(error)
    if text.startswith(name):  # as errors of Celery do
        return TaskFailed(text)
    return TaskFailed(f"{name}: {text}" if text else name)


def refuse_call(cls: type[Task[Any]]) -> NoReturn:
    """Say what to do instead of calling what was declared to an engine."""
    name = cls.__qualname__
    message = (
        f"what an engine has declared of {name} runs in its workers alone. Run it here "
        f"by {name}.execute(...), or send it: engine.enqueue({name}(...))."
    )
    raise TypeError(message)
