"""
A given outcome instead of a run.

While a class is stubbed, its plan is replaced by a descriptor. In the context of the
stub the descriptor returns a plan with one middleware, which ends every run before it
begins. Everywhere else it returns the original plan.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from cmdx import telemetry
from cmdx.declare.middleware import Wrapper
from cmdx.exceptions import MiddlewareError
from cmdx.outcome import Halt, Outcome, Status
from cmdx.result import Result
from cmdx.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cmdx.declare.blueprint import Definition, Plan
    from cmdx.inputs.errors import Errors

NOTHING: Mapping[Any, Any] = MappingProxyType({})

_active_stubs: ContextVar[tuple[Stub, ...]] = ContextVar("cmdx.stubs", default=())
"""The stubs of this context, inner ones last."""

_plan_lock = Lock()


@contextmanager
def stub(  # noqa: PLR0913 -- by keyword
    task: type[Task[Any]],
    outcome: Any = None,
    /,
    *,
    skipped: str | None = None,
    failed: str | None = None,
    metadata: Mapping[str, Any] = NOTHING,
    outputs: Mapping[str, Any] = NOTHING,
) -> Iterator[Stub]:
    """
    Give each run of a task in the block the same outcome, without running it.

    Give *outcome*, *skipped*, *failed*, or none of them for a success. Subclasses of
    the task run as usual, and so do other threads and coroutines unless they inherit
    this context.

    Args:
        task: The class.
        outcome: A ``Result`` to repeat, an exception to raise, an ``Outcome``, or any
            other value: then the run succeeds with it.
        skipped: The reason of a skip.
        failed: The reason of a failure.
        metadata: Items to add to the metadata of the result.
        outputs: Items to add to the context.
    """
    _check(task, outcome, skipped, failed)
    if skipped is not None:
        outcome = Outcome(Status.SKIPPED, skipped)
    if failed is not None:
        outcome = Outcome(Status.FAILED, failed)
    made = Stub(task, Ending.of(outcome, metadata, outputs))
    _share_plan(task)
    outer = (other for other in _active_stubs.get() if other._active)
    token = _active_stubs.set((*outer, made))
    try:
        yield made
    finally:
        made._active = False  # even in contexts that still have it
        with suppress(ValueError):  # the block is left in another context
            _active_stubs.reset(token)
        _give_plan_back(task)


class Stub:
    """A stub of a task, and the inputs it was run with."""

    def __init__(self, task: type[Task[Any]], ending: Ending) -> None:
        self.task = task
        self.calls: list[dict[str, Any]] = []
        """The context of each run, including its inputs."""
        self._ending = ending
        self._active = True

    def _run(self, task: Task[Any]) -> NoReturn:
        self.calls.append(dict(task.context.items()))
        telemetry.send(telemetry.task_started, task)
        self._ending.end(task)

    def __repr__(self) -> str:
        """Show the task, and how often it was run."""
        return f"<Stub of {self.task.__qualname__}, run {len(self.calls)} times>"


@attrs.frozen
class Ending:
    """How a stubbed run ends."""

    status: Status = Status.SUCCESS
    reason: str | None = None
    value: Any = None
    error: BaseException | type[BaseException] | None = None
    origin: Result[Any] | None = None
    problems: Errors | tuple[()] = ()
    metadata: Mapping[str, Any] = NOTHING
    outputs: Mapping[str, Any] = NOTHING

    @classmethod
    def of(
        cls, outcome: Any, metadata: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Ending:
        """Return the ending for the arguments of ``stub``."""
        ending = cls(value=outcome)
        if _is_error(outcome):
            ending = cls(Status.FAILED, error=outcome)
        elif isinstance(outcome, Outcome):
            status, reason, noted, cause, origin = outcome
            ending = cls(status, reason, None, cause, origin, metadata=noted)
        elif isinstance(outcome, Result):
            ending = cls.repeating(outcome)
        return attrs.evolve(
            ending,
            metadata={**ending.metadata, **metadata},
            outputs={**ending.outputs, **outputs},
        )

    @classmethod
    def repeating(cls, result: Result[Any]) -> Ending:
        """Return the ending of *result*, with the outputs in its context."""
        names = result.task._cmdx_.plan.fields.outputs
        left = {name: result.context[name] for name in names if name in result.context}
        return cls(
            result.status,
            result.reason,
            result.value_or(None),
            result.cause,
            result.origin,
            result.errors,
            dict(result.metadata),
            left,
        )

    def end(self, task: Task[Any]) -> NoReturn:
        """End the run of *task*."""
        task.context.update(self.outputs)
        for key, message, code in self.problems:
            task.errors.add(key, message, code)
        if self.error is None:
            raise Halt(
                task,
                self.status,
                self.reason,
                self.metadata,
                value=self.value,
                origin=self.origin,
            )
        task.metadata.update(self.metadata)
        if isinstance(self.error, BaseException):
            raise self.error.with_traceback(None)
        raise self.error


class StubbedDefinition:
    """The definition of a class while it is stubbed in some context."""

    own: Definition
    stubs: int

    def __init__(self, own: Definition) -> None:
        self.__dict__.update(own=own, stubs=0)

    @property
    def plan(self) -> Plan:
        """The plan for the current context."""
        for candidate in reversed(_active_stubs.get()):
            if candidate.task is self.own.task and candidate._active:
                return _stubbed_plan(self.own.plan, candidate)
        return self.own.plan

    def __getattr__(self, name: str) -> Any:
        """Read everything else from the definition of the class."""
        return getattr(self.own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Change the definition of the class."""
        setattr(self.own, name, value)


def _stubbed_plan(own: Plan, stubbed: Stub) -> Plan:
    """Return a plan that accepts the same inputs, and only ends the run."""
    return own.with_changes(
        middlewares=(Wrapper("stub", stubbed._run, None, MiddlewareError),),
        correlation_id=None,
        rolls_back=False,
        after={},
    )


def _share_plan(task: Any) -> None:
    with _plan_lock:
        if not isinstance(task._cmdx_, StubbedDefinition):
            task._cmdx_ = StubbedDefinition(task._cmdx_)
        vars(task._cmdx_)["stubs"] += 1


def _give_plan_back(task: Any) -> None:
    with _plan_lock:
        shared = task._cmdx_
        vars(shared)["stubs"] -= 1
        if not shared.stubs:
            task._cmdx_ = shared.own


def _is_error(outcome: Any) -> bool:
    if isinstance(outcome, type):
        return issubclass(outcome, BaseException)
    return isinstance(outcome, BaseException)


def _check(task: Any, outcome: Any, *reasons: str | None) -> None:
    if not (isinstance(task, type) and issubclass(task, Task)):
        message = f"stub: the first argument must be a task class, got {task!r}."
        raise TypeError(message)
    if sum(ending is not None for ending in (outcome, *reasons)) > 1:
        message = (
            f"stub: a run of {task.__qualname__} has only one outcome. "
            "Pass only one of them: an outcome, skipped=... or failed=...."
        )
        raise TypeError(message)
