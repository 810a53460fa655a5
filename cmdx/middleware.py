"""
``@middleware`` and how generators are wrapped around a run.

A middleware is a generator function of the task with exactly one ``yield``::

    def timed(task):
        started = perf_counter()
        result = yield                      # the finished result
        print(result.status, perf_counter() - started)

Around hooks are driven the same way; their ``yield`` evaluates to the outcome.
"""

from __future__ import annotations

import inspect
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import attrs

from cmdx.declarations import declare
from cmdx.exceptions import (
    AsyncTaskError,
    CallbackError,
    DefinitionError,
    MiddlewareError,
)
from cmdx.gates import Ask, Gate, check_gates
from cmdx.outcome import Halt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cmdx.invocation import Invocation
    from cmdx.task import Task

T = TypeVar("T", bound="type[Task[Any]]")

NO_YIELD = "did not yield"
TWO_YIELDS = "yielded more than once"


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


def middleware(
    *calls: Callable[..., Any], if_: Gate | None = None, unless: Gate | None = None
) -> Callable[[T], T]:
    """
    Wrap each run of the decorated class into *calls*, the first one outermost.

    Inherited ones, and those of decorators further out, are outside.
    """
    if not calls:
        message = (
            "@middleware needs something to wrap with. Give it a generator function."
        )
        raise DefinitionError(message)
    check_gates("middleware", offered=1, if_=if_, unless=unless)
    declaration = MiddlewareDeclaration(tuple(map(_checked, calls)), if_, unless)
    return lambda cls: declare(cls, declaration, by="middleware")


def _checked(call: Any) -> Callable[..., Any]:
    made = call() if isinstance(call, type) else call
    if not callable(made):
        message = (
            f"@middleware takes generator functions of the task, got {call!r}. "
            "Give a function with one yield, or an object whose __call__ is one."
        )
        raise DefinitionError(message)
    return made  # type: ignore[no-any-return]


def opened(
    wrapper: Wrapper, task: Invocation, generator: Any
) -> Awaitable[None] | None:
    """Take *generator* to its ``yield``; return what is to be awaited for it."""
    if type(generator) is GeneratorType:
        for _ in generator:
            return None
    if hasattr(generator, "__anext__") and task._awaits_:
        return _aopened(wrapper, task, generator)
    if hasattr(generator, "__next__"):
        for _ in generator:
            return None
    if hasattr(generator, "__anext__"):
        raise AsyncTaskError(type(task))
    if inspect.iscoroutine(generator):
        generator.close()
    raise wrapper.misuse(_said(wrapper, task, NO_YIELD))


async def _aopened(wrapper: Wrapper, task: Invocation, generator: Any) -> None:
    async for _ in generator:
        return
    raise wrapper.misuse(_said(wrapper, task, NO_YIELD))


def closed(
    wrapper: Wrapper, task: Invocation, generator: Any, answer: Any
) -> Awaitable[None] | None:
    """Send *answer* into *generator* and have it end; return what is to be awaited."""
    if type(generator) is not GeneratorType and hasattr(generator, "__anext__"):
        return _aclosed(wrapper, task, generator, answer)
    try:
        generator.send(answer)
    except StopIteration:
        return None
    finally:
        del answer  # an error of the generator holds this frame
    generator.close()
    raise wrapper.misuse(_said(wrapper, task, TWO_YIELDS))


async def _aclosed(
    wrapper: Wrapper, task: Invocation, generator: Any, answer: Any
) -> None:
    try:
        await generator.asend(answer)
    except StopAsyncIteration:
        return
    finally:
        del answer  # an error of the generator holds this frame
    await generator.aclose()
    raise wrapper.misuse(_said(wrapper, task, TWO_YIELDS))


async def torn_down(generators: list[Any], error: BaseException) -> None:
    """
    Throw into *generators* what no result can be made of, the innermost first.

    An error they raise instead is reported, and does not take the place of *error*;
    an interrupt does, and is raised.
    """
    thrown = error
    for generator in generators:
        try:
            if hasattr(generator, "__anext__"):
                await generator.athrow(thrown)
            else:
                generator.throw(thrown)
        except (StopIteration, StopAsyncIteration):
            continue
        except (Exception, Halt) as raised:
            if raised is not thrown:
                import logging

                said = "%r raised while %r went through it"
                logging.getLogger("cmdx").exception(said, generator, thrown)
        except BaseException as raised:
            thrown = raised
    if thrown is not error:
        raise thrown


def _said(wrapper: Wrapper, task: Invocation, what: str) -> str:
    name = wrapper.name
    kind = "middleware" if wrapper.misuse is MiddlewareError else "around hook"
    return (
        f"the {kind} {name} {what} while {type(task).__qualname__} ran. "
        "Write it as a generator with exactly one yield."
    )
