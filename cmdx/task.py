"""
``Task``: what people subclass.

Annotations say what it takes, methods what it does, method decorators when, class
decorators how it is run, and class keywords what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    overload,
)

from cmdx import exceptions
from cmdx.adhoc import RetryOptions, call_again
from cmdx.blueprint import Blueprint, Plan, checked_keywords
from cmdx.callbacks import hooks_of
from cmdx.chain import chain_of, new_id
from cmdx.context import Context
from cmdx.declarations import LAZY_PLAN
from cmdx.exceptions import DefinitionError, FinishedTaskError
from cmdx.lifecycle import asleep, drive, lifecycle, sleep
from cmdx.log import bound_logger
from cmdx.outcome import Halt, Outcome, Status
from cmdx.registry import Registry
from cmdx.result import Result
from cmdx.retriers import retriers as global_retriers
from cmdx.validation import Errors

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Unpack

    from cmdx.blueprint import Keywords
    from cmdx.retriers import Retrier
    from cmdx.retry import RetryPolicy

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
Source: TypeAlias = Union[Context, "Task[Any]", Result[Any], Mapping[str, Any]]


class ClassRetriers:
    """The retriers of a class: its own, its ancestors', then the global ones."""

    def __get__(self, task: object, cls: type[Task[Any]]) -> Registry[Retrier]:
        """Make the registry of *cls* when it is first asked for."""
        if "_retriers_" not in vars(cls):
            tasks = [each for each in cls.__mro__[1:] if issubclass(each, Task)]
            cls._retriers_ = Registry("retrier", [each.retriers for each in tasks])
        return cls._retriers_


class ClassPolicy:
    """The effective retry policy of a class."""

    def __get__(self, task: object, cls: type[Task[Any]]) -> RetryPolicy:
        """Fold the declarations of *cls* and its ancestors."""
        return Blueprint.of(cls).retry_policy


@dataclass_transform(kw_only_default=True, eq_default=False)
class Task(Generic[V_co]):
    """
    A piece of business logic; each instance runs once and comes to a ``Result``.

    Derive from it and define ``work``. Names like ``_this_`` belong to the library.
    """

    Fault: ClassVar[type[exceptions.Fault]] = exceptions.Fault
    retriers: ClassVar[ClassRetriers] = ClassRetriers()
    retry_policy: ClassVar[ClassPolicy] = ClassPolicy()

    _kind_: ClassVar[str] = "Task"
    _plan_: ClassVar[Plan] = LAZY_PLAN  # type: ignore[assignment]
    _retriers_: ClassVar[Registry[Retrier]] = global_retriers
    _declarations_: ClassVar[tuple[object, ...]] = ()
    _keywords_: ClassVar[Keywords] = {}

    # The state of a run, as it is before the run; the instance holds what differs.
    _phase_ = "new"
    _strict_ = False
    _parent_: ClassVar[Any] = None
    _attempt_ = 0
    _started_ = 0.0
    _started_at_ = 0.0
    _duration_ = 0.0
    _deprecated_ = False
    _rolled_back_ = False
    _context_: ClassVar[Any] = None
    _errors_: ClassVar[Any] = None
    _metadata_: ClassVar[Any] = None
    _tid_: ClassVar[Any] = None

    def __init_subclass__(cls, **keywords: Unpack[Keywords]) -> None:
        """Check what can be checked now; the rest is done when the class is first used."""
        super().__init_subclass__()
        if "__init__" in vars(cls):
            message = (
                f"{cls.__qualname__} defines __init__, which is never called by execute. "
                "Declare inputs as annotations; prepare things in a @before_execution hook."
            )
            raise DefinitionError(message)
        cls._keywords_ = checked_keywords(cls, keywords)
        cls._plan_ = LAZY_PLAN  # type: ignore[assignment]
        cls.Fault = _own_fault(cls)
        hooks_of(cls)

    def __init__(self, source: Source | None = None, /, **inputs: Any) -> None:
        self._hold_(source, inputs)
        self.__dict__.update(MISTAKEN_CALLS)

    # -- running ----------------------------------------------------------------

    @overload
    @classmethod
    def execute(  # pyright: ignore[reportArgumentType]
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    def execute(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod
    def execute(cls, source: Any = None, /, **inputs: Any) -> Any:
        """Run the task and return its result; never raises because the task failed."""
        task = cls.__new__(cls)
        task._hold_(source, inputs)
        return task._drive_()

    @overload
    @classmethod
    def execute_or_raise(  # pyright: ignore[reportArgumentType]
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    def execute_or_raise(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod
    def execute_or_raise(cls, source: Any = None, /, **inputs: Any) -> Any:
        """
        Run the task and return its result, or raise if it failed.

        Raises the very exception that ``work`` raised, otherwise a ``Fault``,
        after the whole lifecycle is done.
        """
        task = cls.__new__(cls)
        task._hold_(source, inputs)
        task._strict_ = True
        return task._drive_().or_raise()

    @overload
    @classmethod
    async def aexecute(  # pyright: ignore[reportArgumentType]
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    async def aexecute(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod
    async def aexecute(cls, source: Any = None, /, **inputs: Any) -> Any:
        """Run the task, awaiting what is to be awaited, and return its result."""
        task = cls.__new__(cls)
        task._hold_(source, inputs)
        return await lifecycle(task, asleep)

    @overload
    @classmethod
    async def aexecute_or_raise(  # pyright: ignore[reportArgumentType]
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    async def aexecute_or_raise(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod
    async def aexecute_or_raise(cls, source: Any = None, /, **inputs: Any) -> Any:
        """Run the task as ``aexecute`` does, and raise as ``execute_or_raise`` does."""
        task = cls.__new__(cls)
        task._hold_(source, inputs)
        task._strict_ = True
        return (await lifecycle(task, asleep)).or_raise()

    def run(self) -> Result[V_co]:
        """Run this invocation, once."""
        self._claim_()
        return self._drive_()

    async def arun(self) -> Result[V_co]:
        """Run this invocation, once, awaiting what is to be awaited."""
        self._claim_()
        return await lifecycle(self, asleep)

    # -- inside work ------------------------------------------------------------

    @property
    def context(self) -> Context:
        """The values this task works on, and may share with others."""
        if self._context_ is None:
            self._context_ = Context.around(self._given_)
        return self._context_  # type: ignore[no-any-return]

    @property
    def errors(self) -> Errors:
        """The problems found so far; any left after ``work`` fail the task."""
        if self._errors_ is None:
            self._errors_ = Errors()
        return self._errors_  # type: ignore[no-any-return]

    @property
    def metadata(self) -> dict[str, Any]:
        """What is to be noted on the result."""
        if self._metadata_ is None:
            self._metadata_ = {}
        return self._metadata_  # type: ignore[no-any-return]

    @property
    def logger(self) -> Any:
        """A structlog logger that knows which run it writes for."""
        return bound_logger(self, chain_of(self).id)

    @property
    def tid(self) -> str:
        """The id of this run, a UUIDv7."""
        if self._tid_ is None:
            self._tid_ = new_id()
        return self._tid_  # type: ignore[no-any-return]

    @property
    def attempt(self) -> int:
        """Which call of ``work`` this is, counted from 0."""
        return self._attempt_

    def succeed(self, reason: str | None = None, /, *, value: Any = None, **metadata: Any) -> NoReturn:
        """End the run here, as a success with *value*."""
        self._halt_(Status.SUCCESS, reason, metadata, value)

    def skip(self, reason: str | None = None, /, **metadata: Any) -> NoReturn:
        """End the run here, because there is nothing to do."""
        self._halt_(Status.SKIPPED, reason, metadata)

    def fail(self, reason: str | None = None, /, **metadata: Any) -> NoReturn:
        """End the run here, as a failure."""
        self._halt_(Status.FAILED, reason, metadata)

    def throw(self, result: Result[Any], /, **metadata: Any) -> None:
        """Fail as *result* did; do nothing if it did not."""
        if result.failed:
            self._halt_(Status.FAILED, result.reason, metadata, origin=result)

    def retry(
        self,
        function: Callable[..., T],
        /,
        *,
        max_attempts: int | None = None,
        base_delay: float | None = None,
        max_delay: float | None = None,
        should_retry: Callable[..., Any] | None = None,
    ) -> T:
        """
        Call *function* until it returns, at most *max_attempts* times in total.

        It is given the number of the attempt, from 1, if it takes one.
        ``should_retry(error, next_attempt)`` may stop it; the last error is raised.
        """
        options = RetryOptions(max_attempts, base_delay, max_delay)
        options = options.over(self._plan_.settings.retry)
        return drive(call_again(function, options, should_retry, sleep, awaits=False))  # type: ignore[no-any-return]

    async def aretry(
        self,
        function: Callable[..., Awaitable[T]],
        /,
        *,
        max_attempts: int | None = None,
        base_delay: float | None = None,
        max_delay: float | None = None,
        should_retry: Callable[..., Any] | None = None,
    ) -> T:
        """Do what ``retry`` does for a coroutine function."""
        options = RetryOptions(max_attempts, base_delay, max_delay)
        options = options.over(self._plan_.settings.retry)
        return await call_again(function, options, should_retry, asleep, awaits=True)  # type: ignore[no-any-return]

    # -- for the library --------------------------------------------------------

    def _hold_(self, source: Source | None, inputs: dict[str, Any]) -> None:
        if source is not None:
            self._share_(source, inputs)
        self._given_ = inputs

    def _share_(self, source: Source, inputs: dict[str, Any]) -> None:
        if isinstance(source, Task | Result):
            source = source.context
        if isinstance(source, Context):
            self._context_ = source
            source.update(inputs)
        elif isinstance(source, Mapping):
            inputs.update({**source, **inputs})
        else:
            message = (
                f"{type(self).__qualname__} takes inputs by keyword, or a mapping, context, "
                f"task or result to take them from, got {source!r}."
            )
            raise TypeError(message)

    def _drive_(self) -> Result[V_co]:
        if self._plan_.awaits:
            name = type(self).__qualname__
            message = (
                f"{name} awaits, so it cannot run synchronously. "
                f"Use `await {name}.aexecute(...)`."
            )
            raise TypeError(message)
        return drive(lifecycle(self, sleep))

    def _claim_(self) -> None:
        if self._phase_ != "new":
            name = type(self).__qualname__
            message = (
                f"this {name} has run already, and an instance runs once. "
                f"Make another: {name}(...).run(), or use {name}.execute(...)."
            )
            raise FinishedTaskError(message)
        self._phase_ = "claimed"

    def _halt_(
        self,
        status: Status,
        reason: str | None,
        metadata: dict[str, Any],
        value: Any = None,
        origin: Result[Any] | None = None,
    ) -> NoReturn:
        if self._phase_ != "running":
            self._refuse_halt_()
        if metadata:
            self.metadata.update(metadata)
        outcome = Outcome(status, reason, self._metadata_ or {}, None, origin)
        raise Halt(self, outcome, value)

    def _refuse_halt_(self) -> NoReturn:
        name = type(self).__qualname__
        when = "has ended" if self._phase_ == "finished" else "has not started"
        message = (
            f"the run of this {name} {when}, so it cannot be halted. "
            "Call succeed, skip, fail and throw inside work, callbacks or middlewares."
        )
        raise FinishedTaskError(message)

    @property
    def _depth_(self) -> int:
        parent = self._parent_
        return 0 if parent is None else parent._depth_ + 1  # type: ignore[no-any-return]

    def _detached_(self) -> Task[V_co]:
        """Return a copy without what users hung on it, to be pickled."""
        copy = self.__new__(type(self))
        copy.__dict__.update(
            _given_={},
            _phase_="finished",
            _tid_=self.tid,
            _context_=self.context,
            _errors_=self.errors,
            _metadata_=self.metadata,
            _parent_=self._parent_ and self._parent_._detached_(),
        )
        for name in KEPT_WHEN_DETACHED:
            if name in self.__dict__:
                copy.__dict__[name] = self.__dict__[name]
        return copy

    @classmethod
    def _compiled_(cls) -> Plan:
        if not callable(getattr(cls, "work", None)):
            raise exceptions.ImplementationError(cls)
        return Plan(Blueprint.of(cls))


KEPT_WHEN_DETACHED = (
    "_strict_", "_attempt_", "_started_", "_started_at_", "_duration_", "_deprecated_",
    "_rolled_back_",
)  # fmt: skip


def _own_fault(cls: type[Task[Any]]) -> type[exceptions.Fault]:
    """Make the ``Fault`` of a class, derived from those of its bases."""
    bases = [base.Fault for base in cls.__bases__ if issubclass(base, Task)]
    names = {
        "__doc__": f"A run of ``{cls.__qualname__}`` failed.",
        "__module__": cls.__module__,
        "__qualname__": f"{cls.__qualname__}.Fault",
    }
    return type("Fault", tuple(dict.fromkeys(bases)), names)


def _mistaken(name: str, cure: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        message = (
            f"{name} is called on the class, and makes the invocation itself. "
            f"This one holds its inputs already: run it with {cure}."
        )
        raise TypeError(message)

    return refuse


MISTAKEN_CALLS = {
    "execute": _mistaken("execute", ".run()"),
    "execute_or_raise": _mistaken("execute_or_raise", ".run().or_raise()"),
    "aexecute": _mistaken("aexecute", "await .arun()"),
    "aexecute_or_raise": _mistaken("aexecute_or_raise", "(await .arun()).or_raise()"),
}
