"""
Everything cmdx raises.

    CmdxError
    ├── DefinitionError         a declaration is wrong            (ValueError)
    ├── ImplementationError     a task has no ``work``
    ├── AsyncTaskError          a task that awaits was run by execute  (TypeError)
    ├── CallbackError           an around hook did not yield exactly once
    ├── MiddlewareError         a middleware did not yield exactly once
    ├── DeprecatedTaskError     a task with ``deprecated="error"`` was run
    ├── FinishedTaskError       a task was run twice, or halted outside its run
    ├── UnknownContextKey       the context has no such key       (AttributeError)
    ├── UnknownEntryError       no entry has this name            (LookupError)
    ├── NoValueError            the value of a skipped task was read
    └── Fault                   a task failed; has the result

Before a run has begun, ``execute`` raises them.
Once it has begun, they become its failed result like any other ``Exception``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cmdx.chain import Chain
    from cmdx.context import Context
    from cmdx.result import Result
    from cmdx.task import Task


class CmdxError(Exception):
    """The root of all errors of this library."""


class DefinitionError(CmdxError, ValueError):
    """A declaration is wrong or contradicts another one."""


class ImplementationError(CmdxError):
    """A task was run that does not say what it does."""

    def __init__(
        self,
        task: type[object],
        what: str = "has no work()",
        cure: str = "Define `def work(self)` in it or in a class it derives from.",
    ) -> None:
        super().__init__(f"{task.__qualname__} {what}. {cure}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the finished sentence."""
        return rebuild_error, (type(self), self.args, {})


class AsyncTaskError(CmdxError, TypeError):
    """
    A task that awaits was run synchronously.

    Args:
        task: The class.
        part: The part of it that awaits, if it is not ``work``.
        is_hidden: Whether a decorator hides that it awaits, which adds a hint.
        cure: What to do, if it is not to use ``aexecute``.
    """

    def __init__(
        self,
        task: type[object],
        part: str | None = None,
        *,
        is_hidden: bool = False,
        cure: str | None = None,
    ) -> None:
        name = task.__qualname__
        because = "" if part in (None, "work") else f" ({part} is async)"
        hint = (
            " In a parallel group, a decorator around an async method must return an "
            "`async def` function, or the step is run in a thread."
        )
        if cure is None:
            cure = (
                f"Use `await {name}.aexecute(...)`, or outside an event loop "
                f"`asyncio.run({name}.aexecute(...))`.{hint if is_hidden else ''}"
            )
        super().__init__(
            f"{name} awaits{because}, so it cannot run synchronously. {cure}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the finished sentence."""
        return rebuild_error, (type(self), self.args, {})


class CallbackError(CmdxError):
    """An around hook did not yield exactly once."""


class MiddlewareError(CmdxError):
    """A middleware did not yield exactly once."""


class DeprecatedTaskError(CmdxError):
    """A task was run that is deprecated with ``deprecated="error"``."""


class FinishedTaskError(CmdxError):
    """A task was used outside its one run: run twice, or halted before or after it."""


class UnknownContextKey(CmdxError, AttributeError):  # noqa: N818 -- named in the contract
    """An attribute of the context was read that nobody has set."""

    def __init__(self, key: str, known: Iterable[str] = ()) -> None:
        super().__init__(
            f"the context has no key {key!r}{did_you_mean(key, known)} "
            f"Set it first, or read it with context.get({key!r})."
        )
        # AttributeError has a `name` of its own, which tools use for suggestions.
        self.name = key

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the key, not from the sentence."""
        return rebuild_error, (type(self), self.args, {"name": self.name})


class UnknownEntryError(CmdxError, LookupError):
    """A name was looked up that nobody registered."""

    def __init__(
        self,
        kind: str,
        name: object,
        known: Iterable[str],
        named_by: type | None = None,
    ) -> None:
        names = sorted(known)
        correct = f", or correct it in {named_by.__qualname__}" if named_by else ""
        super().__init__(
            f"no {kind} is called {name!r}{did_you_mean(str(name), names)} "
            f"Known names: {', '.join(names)}. "
            f"Register it with {kind}s.register({name!r}, ...){correct}."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the finished sentence."""
        return rebuild_error, (type(self), self.args, {})


class NoValueError(CmdxError):
    """The value of a skipped task was asked for, or one that was not stored."""


class Fault(CmdxError):  # noqa: N818 -- the program works as intended
    """
    A task failed on purpose, or the failure of another task was thrown on.

    Each task class has a ``Fault`` of its own, derived from those of its bases,
    so that ``except ChargeCard.Fault`` catches the failures of that task alone.
    """

    def __init__(self, result: Result[Any]) -> None:
        super().__init__(result.reason or f"{result.task.__qualname__} failed")
        self.result: Result[Any] = result
        """The result of the task where the failure started."""

    _passed_on_by: Result[Any] | None = None
    """The result it was raised for, if that passes the failure on."""

    @property
    def _failure(self) -> Result[Any]:
        """The result it was raised for, which may give the failure another code."""
        by = self._passed_on_by
        return self.result if by is None else by

    @property
    def task(self) -> type[Task[Any]]:
        """The class of the task that failed."""
        return self.result.task

    @property
    def context(self) -> Context:
        """The context the failed task worked on."""
        return self.result.context

    @property
    def chain(self) -> Chain:
        """The chain the failed task belongs to."""
        return self.result.chain

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the result, not from the sentence; notes are kept."""
        return type(self), (self.result,), {**vars(self)}


class RecordedError(Exception):
    """
    Stands for an exception of another process, as far as it could be stored.

    Args:
        type_name: The name of its class.
        message: Its text.
        traceback: Where it was raised, as text; empty if that is not known.
        code: Its ``code``, if that is a text or an HTTP status.
        class_code: The code that ``cmdx.guidance.causes`` had for its class.
    """

    def __init__(
        self,
        type_name: str,
        message: str,
        traceback: str = "",
        *,
        code: str | int | None = None,
        class_code: str | None = None,
    ) -> None:
        super().__init__(type_name, message, traceback)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
        self.code = code
        self.class_code = class_code

    def __str__(self) -> str:
        """Return the text of the exception."""
        return self.message


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End a sentence about *name*, with the nearest of *known* if one is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def valid_inputs(names: Iterable[str]) -> str:
    """List the inputs of a task in a sentence."""
    listing = ", ".join(names)
    return f"Valid inputs: {listing}." if listing else "It declares no inputs."


def rebuild_error(
    kind: type[CmdxError], args: tuple[Any, ...], state: dict[str, Any]
) -> CmdxError:
    """Make an error again without running its ``__init__``."""
    error = kind.__new__(kind, *args)
    error.args = args
    for name, value in state.items():
        setattr(error, name, value)
    return error
