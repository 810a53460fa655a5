"""
``@middleware``: generators that are wrapped around a run.

A middleware is a generator function of the task with exactly one ``yield``::

    def timed(task):
        started = perf_counter()
        result = yield                      # the finished result
        print(result.status, perf_counter() - started)

``cmdx.run.wrappers`` opens and closes them.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import attrs

from cmdx.declare.checks import refuse_unknown_keywords
from cmdx.declare.decorators import declare, definitions, is_task_class
from cmdx.declare.gates import GATE_WORDS, Ask, Gate, check_gates, compile_gate
from cmdx.declare.hooks import Hook, compile_hooks
from cmdx.declare.signatures import call_problem
from cmdx.exceptions import CallbackError, DefinitionError, MiddlewareError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cmdx.task import Task

T = TypeVar("T", bound="type[Task[Any]]")


@attrs.frozen
class MiddlewareDeclaration:
    """What one ``@middleware`` line said."""

    calls: tuple[Callable[..., Any], ...]
    if_: Gate | None
    unless: Gate | None


class Wrapper(NamedTuple):
    """A middleware or around hook made ready for one class."""

    name: str
    call: Callable[..., Any]
    gate: Ask | None
    misuse: type[CallbackError | MiddlewareError]


@refuse_unknown_keywords(GATE_WORDS)
def middleware(
    *calls: Callable[..., Any], if_: Gate | None = None, unless: Gate | None = None
) -> Callable[[T], T]:
    """
    Wrap each run of the decorated class in *calls*, the first one outermost.

    Inherited middlewares, and those of decorators further out, are outside.

    Args:
        calls: Generator functions of the task with exactly one ``yield``, which
            evaluates to the finished result, or objects whose ``__call__`` is one.
            Async generator functions serve async runs.
        if_: Whether to wrap this run: True, False, the name of a method, or a callable
            of the task.
        unless: Whether not to wrap this run, in the same forms; asked after *if_*.
    """
    if not calls:
        message = (
            "@middleware needs at least one middleware. "
            "Give it generator functions: @middleware(timed, traced)."
        )
        raise DefinitionError(message)
    check_gates("middleware", if_=if_, unless=unless)
    made = tuple(map(check_middleware, calls))
    declaration = MiddlewareDeclaration(made, if_, unless)
    return lambda cls: declare(cls, declaration, by="middleware")


def check_middleware(call: Any) -> Callable[..., Any]:
    """Return *call*, or an instance of it if it is a class; refuse anything else."""
    made = new_middleware(call) if isinstance(call, type) else call
    if not callable(made):
        message = (
            f"@middleware takes generator functions of the task, got {call!r}. "
            "Give a function with one yield, or an object whose __call__ is one."
        )
        raise DefinitionError(message)
    problem = call_problem(made, 1)
    if problem is not None:
        name = getattr(made, "__qualname__", type(made).__qualname__)
        message = (
            f"@middleware calls {name} with the task alone: {problem}. "
            "Write a generator function of the task, with one `yield` where the task "
            "runs: `def audit(task): result = yield`."
        )
        raise DefinitionError(message)
    return made  # type: ignore[no-any-return]


def new_middleware(cls: type) -> Any:
    """Return an instance of *cls*, which must need no arguments."""
    name = cls.__qualname__
    if is_task_class(cls):
        message = (
            f"@middleware takes generator functions, got the task class {name}. "
            "To decorate it, write `@middleware(...)` with middlewares in parentheses."
        )
        raise DefinitionError(message)
    problem = call_problem(cls, 0)
    if problem is not None:
        message = (
            f"@middleware cannot create a {name} without arguments: {problem}. "
            f"Give an instance: `@middleware({name}(...))`."
        )
        raise DefinitionError(message)
    return cls()


def middlewares_of(cls: type) -> Iterator[MiddlewareDeclaration]:
    """Yield the middlewares of *cls* and its ancestors, the outermost first."""
    for definition in definitions(cls):
        # The decorator written first is applied last, and is the outermost one.
        for declaration in reversed(definition.declarations):
            if isinstance(declaration, MiddlewareDeclaration):
                yield declaration


def compile_middlewares(
    cls: type[Task[Any]], declarations: tuple[MiddlewareDeclaration, ...]
) -> tuple[Wrapper, ...]:
    """Make the middlewares of *cls* ready, the outermost first."""
    return tuple(
        Wrapper(
            getattr(call, "__qualname__", repr(call)),
            call,
            compile_gate("@middleware", cls, declaration.if_, declaration.unless),
            MiddlewareError,
        )
        for declaration in declarations
        for call in declaration.calls
    )


def compile_around_hooks(
    cls: type[Task[Any]], hooks: dict[str, Hook]
) -> tuple[Wrapper, ...]:
    """Make the around hooks of *cls* ready, the outermost first."""
    return tuple(
        Wrapper(name, methodcaller(name), gate, CallbackError)
        for name, gate, _ in compile_hooks(cls, hooks, "around_execution")
    )
