"""
An invocation: what ``self`` is inside ``work``.

It has one attribute of ours, ``_cmdx_``, which holds the facts of its run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    NoReturn,
    TypeAlias,
    TypeVar,
    Union,
    cast,
)

from cmdx.chain import chain_of
from cmdx.context import Context
from cmdx.declare.decorators import is_task_class
from cmdx.exceptions import (
    DefinitionError,
    FinishedTaskError,
    did_you_mean,
    valid_inputs,
)
from cmdx.log import bound_logger
from cmdx.outcome import FAILED, Halt, Status
from cmdx.report import error_text, invocation_line
from cmdx.result import Result
from cmdx.retry.inline import RetryOptions, call_again, value_or_raise
from cmdx.run.lifecycle import drive

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from cmdx.inputs.errors import Errors
    from cmdx.run.record import Run

T = TypeVar("T")

Source: TypeAlias = Union[Context, "Invocation", Result[Any], Mapping[str, Any]]


class Invocation:
    """An instance of a task with its inputs, which runs once."""

    if TYPE_CHECKING:
        _cmdx_: Run

        def work(self) -> Any:
            """Do what the task is for, and return its value."""

        def rollback(self) -> Any:
            """Undo what ``work`` did; called when the task has failed."""

    def __repr__(self) -> str:
        """Show the task, and its inputs until it runs; what looks secret is hidden."""
        return invocation_line(self)

    @property
    def context(self) -> Context:
        """The values this task works on, and may share with others."""
        return self._cmdx_.context

    @property
    def errors(self) -> Errors:
        """The problems found so far; any left after ``work`` fail the task."""
        return self._cmdx_.errors

    @property
    def metadata(self) -> dict[str, Any]:
        """A dict whose entries end up on the result."""
        return self._cmdx_.metadata

    @property
    def logger(self) -> Any:
        """A structlog logger bound to this run; silent until logging is configured."""
        run = around = self._cmdx_
        # A step that is rolled back has ended, and so has left its chain.
        while around.phase == "finished" and around.parent is not None:
            around = around.parent
        cid = chain_of(around).id if around.phase == "running" else None
        return bound_logger(run, cid)

    @property
    def tid(self) -> str:
        """The id of this run, a UUIDv7."""
        return self._cmdx_.tid

    @property
    def run_id(self) -> str:
        """The id of this run, the same in all attempts: an idempotency key."""
        return self._cmdx_.tid

    @property
    def attempt(self) -> int:
        """Which call of ``work`` this is, counted from 0."""
        return self._cmdx_.attempt

    def given(self, name: str) -> bool:
        """
        Tell whether the caller passed an input, even as None.

        Args:
            name: The name of the input in the class, not its alias.
        """
        run = self._cmdx_
        inputs = run.plan.fields.inputs
        if name not in inputs:
            message = (
                f"{type(self).__qualname__} has no input {name!r}"
                f"{did_you_mean(name, inputs)} {valid_inputs(inputs)}"
            )
            raise DefinitionError(message)
        if name in self.__dict__:  # it has been resolved
            return name not in run.not_given
        return inputs[name].key in run.context

    def succeed(
        self,
        /,
        reason: str | BaseException | None = None,
        *,
        value: Any = None,
        **metadata: Any,
    ) -> NoReturn:
        """
        End the run here, as a success.

        Args:
            reason: A text, or an exception that becomes the cause.
            value: The value of the result.
            metadata: Items to add to the metadata of the result.
        """
        raise halt_of(self, Status.SUCCESS, reason, metadata, value=value)

    def skip(
        self, /, reason: str | BaseException | None = None, **metadata: Any
    ) -> NoReturn:
        """
        End the run here, because there is nothing to do.

        Args:
            reason: A text, or an exception that becomes the cause.
            metadata: Items to add to the metadata of the result.
        """
        raise halt_of(self, Status.SKIPPED, reason, metadata)

    def fail(
        self, /, reason: str | BaseException | None = None, **metadata: Any
    ) -> NoReturn:
        """
        End the run here, as a failure.

        Args:
            reason: A text, or an exception that becomes the cause.
            metadata: Items to add to the metadata of the result.
        """
        raise halt_of(self, FAILED, reason, metadata)

    def throw(self, result: Result[Any], /, **metadata: Any) -> None:
        """
        Fail as *result* did; do nothing if it did not fail.

        Args:
            result: The result of another task; it becomes the origin of the failure.
            metadata: Items to add to the metadata of the result.
        """
        if not isinstance(result, Result):
            refuse_thrown(result)
        if result.failed:
            raise halt_of(self, FAILED, result.reason, metadata, origin=result)

    def retry(  # noqa: PLR0913 -- they are all optional
        self,
        function: Callable[..., T],
        /,
        *,
        max_attempts: int | None = None,
        base_delay: float | None = None,
        max_delay: float | None = None,
        should_retry: Callable[..., Any] | None = None,
        retry_result: Callable[[T], Any] | None = None,
    ) -> T:
        """
        Call *function* until it returns, and return its value.

        If all attempts fail, the last error is raised. The pause after the first
        failure is a random number of seconds up to twice *base_delay*; this bound
        doubles with each failure, up to *max_delay*. The class keyword ``retry`` sets
        other defaults.

        Example::

            rates = self.retry(fetch_rates, max_attempts=5, base_delay=0.2)

        Args:
            function: A callable without parameters, or of the number of the attempt,
                which starts at 1.
            max_attempts: The number of calls in total; 3 by default.
            base_delay: The base delay in seconds; 0.1 by default.
            max_delay: The longest pause in seconds; 3.0 by default.
            should_retry: Whether to retry after an error: a callable of ``(error)`` or
                ``(error, next_attempt)``. Without one, every error is retried.
            retry_result: Whether to retry after a value was returned: a callable of the
                value. After the last attempt the value is returned as it is.
        """
        options = RetryOptions(max_attempts, base_delay, max_delay)
        options = options.over(self._cmdx_.plan.settings.retry)
        calls = call_again(function, options, should_retry, retry_result, awaits=False)
        return cast("T", value_or_raise(*drive(calls)))

    async def aretry(  # noqa: PLR0913 -- they are all optional
        self,
        function: Callable[..., Awaitable[T]],
        /,
        *,
        max_attempts: int | None = None,
        base_delay: float | None = None,
        max_delay: float | None = None,
        should_retry: Callable[..., Any] | None = None,
        retry_result: Callable[[T], Any] | None = None,
    ) -> T:
        """
        Await *function* until it returns, and return its value.

        It does what ``retry`` does, for a coroutine function.

        Example::

            rates = await self.aretry(fetch_rates, max_attempts=5, base_delay=0.2)

        Args:
            function: A coroutine function without parameters, or of the number of the
                attempt, which starts at 1.
            max_attempts: The number of calls in total; 3 by default.
            base_delay: The base delay in seconds; 0.1 by default.
            max_delay: The longest pause in seconds; 3.0 by default.
            should_retry: Whether to retry after an error, as for ``retry``.
            retry_result: Whether to retry after a value, as for ``retry``.
        """
        options = RetryOptions(max_attempts, base_delay, max_delay)
        options = options.over(self._cmdx_.plan.settings.retry)
        calls = call_again(function, options, should_retry, retry_result, awaits=True)
        return cast("T", value_or_raise(*await calls))


def halt_of(  # noqa: PLR0913 -- all facts of a halt
    task: Invocation,
    status: Status,
    reason: str | BaseException | None,
    metadata: dict[str, Any],
    *,
    value: Any = None,
    origin: Result[Any] | None = None,
) -> Halt:
    """Return the halt that a method of *task* raises, with the place it was called."""
    if not isinstance(task, Invocation) or task._cmdx_.phase != "running":
        refuse_halt(task)
    cause = None
    if isinstance(reason, BaseException):
        cause = reason
        reason = error_text(cause) or type(cause).__qualname__
    elif reason is not None and not isinstance(reason, str):
        message = (
            f"the reason must be a string or an exception, got "
            f"{type(reason).__qualname__}. Pass other values by keyword."
        )
        raise TypeError(message)
    caller = sys._getframe(2)
    at = caller.f_code.co_filename, caller.f_lineno
    return Halt(
        task, status, reason, metadata, value=value, cause=cause, origin=origin, at=at
    )


def refuse_halt(task: object) -> NoReturn:
    """Raise: *task* is not running, or no task, as in ``Greet.fail("why")``."""
    if not isinstance(task, Invocation):
        message = (
            "succeed, skip and fail are methods of the task that runs, not of its "
            "class. Call self.fail(...) inside work."
        )
        raise TypeError(message)
    name = type(task).__qualname__
    when = "has ended" if task._cmdx_.phase == "finished" else "has not started"
    message = (
        f"the run of this {name} {when}, so it cannot be halted. "
        "Call succeed, skip, fail and throw inside work, callbacks or middlewares."
    )
    raise FinishedTaskError(message)


def refuse_thrown(value: Any) -> NoReturn:
    """Raise: only a result can be thrown."""
    kind, cure = type(value).__qualname__, "Use fail(...) for a reason or an exception."
    if isinstance(value, Coroutine):
        value.close()
        kind, cure = "a coroutine", "Await it first."
    elif is_task_class(value):
        kind = f"the task class {value.__qualname__}"
        cure = f"Run it first: throw({value.__qualname__}.execute(...))."
    elif is_task_class(type(value)):
        kind, cure = f"an invocation of {kind}", "Run it first: throw(task.run())."
    raise TypeError(f"throw takes a result, got {kind}. {cure}")
