"""
An invocation: an instance of a task with its inputs, and the state of its one run.

What is here belongs to the run. It holds no exception and no result, because their
tracebacks lead back to it: so a finished run leaves no cycles behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NoReturn,
    TypeAlias,
    TypeVar,
    Union,
    cast,
)

from cmdx.adhoc import RetryOptions, call_again, value_or_raise
from cmdx.chain import chain_of, making, new_id
from cmdx.context import Context
from cmdx.exceptions import DefinitionError, FinishedTaskError, did_you_mean
from cmdx.lifecycle import driven
from cmdx.log import bound_logger
from cmdx.outcome import Halt, Status
from cmdx.result import Result
from cmdx.validation import Errors
from cmdx.working import asleep, sleep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import Self

    from cmdx.blueprint import Plan
    from cmdx.chain import Chain
    from cmdx.merging import Conflict
    from cmdx.result import Record

T = TypeVar("T")
Source: TypeAlias = Union[Context, "Invocation", Result[Any], Mapping[str, Any]]

KEPT_WHEN_DETACHED = (
    "_strict_", "_attempt_", "_started_", "_started_at_", "_duration_", "_deprecated_",
    "_rolled_back_",
)  # fmt: skip


class Invocation:
    """What ``self`` is inside ``work``."""

    if TYPE_CHECKING:

        def work(self) -> Any:
            """Do what the task is for."""

        def rollback(self) -> Any:
            """Undo it."""

    _kind_: ClassVar[str] = "Task"
    _plan_: ClassVar[Plan]

    # As it is before the run; an instance holds only what differs from this.
    _phase_: str = "new"
    _given_: dict[str, Any]
    _strict_: bool = False
    _awaits_: bool = False
    _parent_: Invocation | None = None
    _chain_: Chain | None = None
    _attempt_: int = 0
    _started_: float = 0.0
    _started_at_: float = 0.0
    _duration_: float = 0.0
    _deprecated_: bool = False
    _rolled_back_: bool = False
    _context_: Context | None = None
    _errors_: Errors | None = None
    _metadata_: dict[str, Any] | None = None
    _noted_: bool = False
    _tid_: str | None = None
    _missed_: set[str] | None = None
    # Of workflows: what is done and may have to be undone, and who wrote the same key.
    _succeeded_: Sequence[Record] = ()
    _conflicts_: tuple[Conflict, ...] = ()

    @property
    def context(self) -> Context:
        """The values this task works on, and may share with others."""
        if self._context_ is None:
            self._context_ = Context.around(self._given_)
        return self._context_

    @property
    def errors(self) -> Errors:
        """The problems found so far; any left after ``work`` fail the task."""
        if self._errors_ is None:
            self._errors_ = Errors()
            self._noted_ = True
        return self._errors_

    @property
    def metadata(self) -> dict[str, Any]:
        """What is to be noted on the result."""
        if self._metadata_ is None:
            self._metadata_ = {}
            self._noted_ = True
        return self._metadata_

    @property
    def logger(self) -> Any:
        """A structlog logger that knows which run it writes for."""
        running = self._phase_ == "running"
        return bound_logger(self, chain_of(self).id if running else None)

    @property
    def tid(self) -> str:
        """The id of this run, a UUIDv7."""
        if self._tid_ is None:
            with making:
                self._tid_ = self._tid_ or new_id()
        return self._tid_

    @property
    def run_id(self) -> str:
        """The id of this run, the same in all attempts: an idempotency key."""
        return self.tid

    @property
    def attempt(self) -> int:
        """Which call of ``work`` this is, counted from 0."""
        return self._attempt_

    def given(self, name: str) -> bool:
        """Tell whether the caller gave the input *name*, were it with None."""
        if name not in self._plan_.fields.inputs:
            known = self._plan_.fields.inputs
            message = (
                f"{type(self).__qualname__} has no input {name!r}"
                f"{did_you_mean(name, known)}"
            )
            raise DefinitionError(message)
        if name in self.__dict__:
            return name not in (self._missed_ or ())
        return self._plan_.fields.inputs[name].key in self.context

    def succeed(
        self, reason: str | None = None, /, *, value: Any = None, **metadata: Any
    ) -> NoReturn:
        """End the run here, as a success with *value*."""
        if self._phase_ != "running":
            self._refuse_halt_()
        raise Halt(self, Status.SUCCESS, reason, metadata, value)

    def skip(self, reason: str | None = None, /, **metadata: Any) -> NoReturn:
        """End the run here, because there is nothing to do."""
        if self._phase_ != "running":
            self._refuse_halt_()
        raise Halt(self, Status.SKIPPED, reason, metadata)

    def fail(self, reason: str | None = None, /, **metadata: Any) -> NoReturn:
        """End the run here, as a failure."""
        if self._phase_ != "running":
            self._refuse_halt_()
        raise Halt(self, Status.FAILED, reason, metadata)

    def throw(self, result: Result[Any], /, **metadata: Any) -> None:
        """Fail as *result* did; do nothing if it did not."""
        if result.failed:
            if self._phase_ != "running":
                self._refuse_halt_()
            raise Halt(self, Status.FAILED, result.reason, metadata, origin=result)

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
        called = call_again(function, options, should_retry, sleep, awaits=False)
        return cast("T", value_or_raise(*driven(called)))

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
        called = call_again(function, options, should_retry, asleep, awaits=True)
        return cast("T", value_or_raise(*await called))

    # -- for the library --------------------------------------------------------

    @property
    def _absent_(self) -> set[str]:
        if self._missed_ is None:
            self._missed_ = set()
        return self._missed_

    def _hold_(self, plan: Plan, source: Source | None, inputs: dict[str, Any]) -> None:
        if plan.keywords is not None and not inputs.keys() <= plan.keywords:
            self._refuse_keywords_(inputs, sorted(plan.keywords))
        if source is not None:
            self._share_(source, inputs)
        self._given_ = inputs

    def _refuse_keywords_(self, inputs: dict[str, Any], known: list[str]) -> NoReturn:
        name = next(each for each in inputs if each not in known)
        message = (
            f"{type(self).__qualname__} got an unexpected input {name!r}"
            f"{did_you_mean(name, known)} It takes {', '.join(known)}."
        )
        raise TypeError(message)

    def _share_(self, source: object, inputs: dict[str, Any]) -> None:
        if isinstance(source, Invocation | Result):
            source = source.context
        if isinstance(source, Context):
            self._context_ = source
            source.update(inputs)
        elif isinstance(source, Mapping):
            inputs.update({**source, **inputs})
        else:
            message = (
                f"{type(self).__qualname__} takes inputs by keyword, or a mapping, "
                f"context, task or result to take them from, got {source!r}."
            )
            raise TypeError(message)

    def _claim_(self) -> None:
        if self._phase_ != "new":
            name = type(self).__qualname__
            message = (
                f"this {name} has run already, and an instance runs once. "
                f"Make another: {name}(...).run(), or use {name}.execute(...)."
            )
            raise FinishedTaskError(message)
        self._phase_ = "claimed"

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
        depth, parent = 0, self._parent_
        while parent is not None:
            depth, parent = depth + 1, parent._parent_
        return depth

    def _detached_(self) -> Self:
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
