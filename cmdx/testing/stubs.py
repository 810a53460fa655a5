"""
An outcome in the place of a run.

A stub takes the place of the plan of a class: one middleware that ends every run before
it begins. The class keeps its own plan for everybody else, for the stub is looked up
in a context variable each time the plan is asked for.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from cmdx import telemetry
from cmdx.exceptions import MiddlewareError
from cmdx.middleware import Wrapper
from cmdx.outcome import Halt, Outcome, Status
from cmdx.result import Result
from cmdx.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cmdx.blueprint import Plan
    from cmdx.validation import Errors

NOTHING: Mapping[Any, Any] = MappingProxyType({})

_here: ContextVar[Mapping[type[Task[Any]], Stub]] = ContextVar(
    "cmdx.stubs", default=NOTHING
)
_changing = Lock()


@contextmanager
def stub(  # noqa: PLR0913 -- one of three, and what goes with it
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
    Let each run of *task* in the block come to a given outcome, and do nothing else.

    *outcome* is a ``Result`` to be repeated, an exception to be raised, an ``Outcome``,
    or else the value of a success; or name the reason of a skip or a failure.
    *outputs* are left in the context. Classes derived from *task* run as ever, and so
    do other threads and coroutines unless they inherit this context.
    """
    _check(task, outcome, skipped, failed)
    if skipped is not None:
        outcome = Outcome(Status.SKIPPED, skipped)
    if failed is not None:
        outcome = Outcome(Status.FAILED, failed)
    made = Stub(task, Ending.of(outcome, metadata, outputs))
    _share_plan(task)
    token = _here.set({**_here.get(), task: made})
    try:
        yield made
    finally:
        _here.reset(token)
        _give_plan_back(task)


class Stub:
    """What stands in for a task, and what it was run with."""

    def __init__(self, task: type[Task[Any]], ending: Ending) -> None:
        self.task = task
        self.calls: list[dict[str, Any]] = []
        """What the context held at each run, its inputs included."""
        self._ending = ending

    def _run(self, task: Task[Any]) -> NoReturn:
        self.calls.append(dict(task.context.items()))
        telemetry.send(telemetry.task_started, task)
        self._ending.end(task)

    def __repr__(self) -> str:
        """Show whom it stands in for, and how often it was run."""
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
        """Read what was given to ``stub``."""
        ending = cls(value=outcome)
        if _is_error(outcome):
            ending = cls(Status.FAILED, error=outcome)
        elif isinstance(outcome, Outcome):
            status, reason, noted, cause, origin = outcome
            ending = cls(status, reason, None, cause, origin, metadata=noted)
        elif isinstance(outcome, Result):
            ending = cls.again(outcome)
        return attrs.evolve(
            ending,
            metadata={**ending.metadata, **metadata},
            outputs={**ending.outputs, **outputs},
        )

    @classmethod
    def again(cls, result: Result[Any]) -> Ending:
        """Return what repeats *result*, together with the outputs it left."""
        names = result.task._plan_.fields.outputs
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
            said = (self.reason, self.metadata, self.value, self.origin)
            raise Halt(task, self.status, *said)
        task.metadata.update(self.metadata)
        if isinstance(self.error, BaseException):
            raise self.error.with_traceback(None)
        raise self.error


class SharedPlan:
    """The plan of a class while it is stubbed somewhere."""

    def __init__(self, own: Plan) -> None:
        self.own = own
        self.stubs = 0

    def __get__(self, task: object, cls: type[Task[Any]]) -> Plan:
        """Return the plan that counts here."""
        stubbed = _here.get().get(cls)
        return self.own if stubbed is None else _stubbed_plan(self.own, stubbed)


def _stubbed_plan(own: Plan, stubbed: Stub) -> Plan:
    """Return a plan that takes the same inputs, but does nothing with them."""
    plan = copy(own)
    vars(plan).update(
        middlewares=(Wrapper("stub", stubbed._run, None, MiddlewareError),),
        wrapped=True,
        correlation_id=None,
        rolls_back=False,
        after=dict.fromkeys(own.after, ()),
    )
    return plan


def _share_plan(task: Any) -> None:
    with _changing:
        if not isinstance(vars(task)["_plan_"], SharedPlan):
            task._plan_ = SharedPlan(task._plan_)
        vars(task)["_plan_"].stubs += 1


def _give_plan_back(task: Any) -> None:
    with _changing:
        shared = vars(task)["_plan_"]
        if not isinstance(shared, SharedPlan):  # declared anew in the meantime
            return
        shared.stubs -= 1
        if not shared.stubs:
            task._plan_ = shared.own


def _is_error(outcome: Any) -> bool:
    if isinstance(outcome, type):
        return issubclass(outcome, BaseException)
    return isinstance(outcome, BaseException)


def _check(task: Any, outcome: Any, *reasons: str | None) -> None:
    if not (isinstance(task, type) and issubclass(task, Task)):
        message = f"stub takes the class of a task, got {task!r}."
        raise TypeError(message)
    if sum(each is not None for each in (outcome, *reasons)) > 1:
        message = (
            f"a run of {task.__qualname__} ends in one way only. "
            "Give stub an outcome, skipped=... or failed=..., not several."
        )
        raise TypeError(message)
