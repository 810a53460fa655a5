"""
``@middleware``: generators that are wrapped around a run.

``@without_middleware`` leaves out some of those that a class inherits.

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
    from collections.abc import Callable, Iterable

    from cmdx.declare.blueprint import Definition
    from cmdx.task import Task

T = TypeVar("T", bound="type[Task[Any]]")


@attrs.frozen
class MiddlewareDeclaration:
    """What one ``@middleware`` line said."""

    calls: tuple[Callable[..., Any], ...]
    if_: Gate | None
    unless: Gate | None


@attrs.frozen
class MiddlewareRemoval:
    """What one ``@without_middleware`` line said."""

    calls: tuple[Callable[..., Any], ...]

    def removes(self, call: Callable[..., Any]) -> bool:
        """Tell whether *call* is one of those, or an instance of one."""
        return call in self.calls or any(
            isinstance(call, given) for given in self.calls if isinstance(given, type)
        )


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


def without_middleware(*calls: Callable[..., Any]) -> Callable[[T], T]:
    """
    Leave out *calls* from the middlewares that the decorated class inherits.

    Middlewares of the class itself stay, so one that is left out and declared again
    moves inside. Subclasses inherit that it is left out.

    Args:
        calls: The middlewares, as they were given to ``@middleware``; a class stands
            for all its instances.
    """
    if not calls or is_task_class(calls[0]):
        message = (
            "@without_middleware needs at least one middleware. "
            "Give it those to leave out: @without_middleware(timed, traced)."
        )
        raise DefinitionError(message)
    return lambda cls: leave_out(cls, MiddlewareRemoval(calls))


def leave_out(cls: T, removal: MiddlewareRemoval) -> T:
    """Add *removal* to the declarations of *cls*, which must inherit what it names."""
    if is_task_class(cls):
        check_removal(cls, removal)
    return declare(cls, removal, by="without_middleware")


def check_removal(cls: type[Task[Any]], removal: MiddlewareRemoval) -> None:
    """Refuse what *cls* does not inherit."""
    known = [call for declared in inherited_by(cls) for call in declared.calls]
    for given in removal.calls:
        if not any(map(MiddlewareRemoval((given,)).removes, known)):
            names = ", ".join(dict.fromkeys(map(middleware_name, known))) or "none"
            message = (
                f"{cls.__qualname__} does not inherit the middleware "
                f"{middleware_name(given)}. The inherited ones are: {names}. "
                "Give @without_middleware the object that was given to @middleware, "
                "or its class."
            )
            raise DefinitionError(message)


def inherited_by(cls: type) -> list[MiddlewareDeclaration]:
    """Return the middlewares that the ancestors of *cls* give it."""
    return fold_middlewares(list(definitions(cls))[:-1])


def middleware_name(call: Callable[..., Any]) -> str:
    """Return what a middleware is called in messages."""
    return str(getattr(call, "__qualname__", repr(call)))


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


def middlewares_of(cls: type) -> tuple[MiddlewareDeclaration, ...]:
    """Return the middlewares of *cls* and its ancestors, the outermost first."""
    return tuple(fold_middlewares(definitions(cls)))


def fold_middlewares(
    definitions: Iterable[Definition],
) -> list[MiddlewareDeclaration]:
    """Return what classes declare, without what those further down leave out."""
    found: list[MiddlewareDeclaration] = []
    for definition in definitions:
        # The decorator written first is applied last, and is the outermost one.
        said = definition.declarations[::-1]
        for removal in (item for item in said if isinstance(item, MiddlewareRemoval)):
            found = [remaining_part(declared, removal) for declared in found]
        found += [item for item in said if isinstance(item, MiddlewareDeclaration)]
    return [declared for declared in found if declared.calls]


def remaining_part(
    declared: MiddlewareDeclaration, removal: MiddlewareRemoval
) -> MiddlewareDeclaration:
    """Return a declaration without the middlewares that *removal* leaves out."""
    kept = tuple(call for call in declared.calls if not removal.removes(call))
    return attrs.evolve(declared, calls=kept)


def compile_middlewares(
    cls: type[Task[Any]], declarations: tuple[MiddlewareDeclaration, ...]
) -> tuple[Wrapper, ...]:
    """Make the middlewares of *cls* ready, the outermost first."""
    return tuple(
        Wrapper(
            middleware_name(call),
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
