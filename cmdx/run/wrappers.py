"""
Opening and closing wrappers: middlewares and around hooks.

A wrapper is a generator with one ``yield``. ``Wrappers`` is a context manager: on entry
each generator runs to its ``yield``, the outermost first; on exit each is sent what it
is to see, the innermost first. A wrapper that halts or raises ends the run, or replaces
its outcome. If the run is interrupted, the interrupt is thrown into the generators.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cmdx.exceptions import AsyncTaskError, MiddlewareError
from cmdx.outcome import Halt
from cmdx.run.ending import end

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cmdx.declare.middleware import Wrapper
    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Record


class Wrappers:
    """The middlewares or the around hooks of one run."""

    def __init__(
        self,
        task: Invocation,
        wrappers: tuple[Wrapper, ...],
        answer: Callable[[Record], object],
    ) -> None:
        self.task = task
        self.wrappers = wrappers
        self.answer = answer
        """Returns what the wrappers are sent: the result, or the outcome."""
        self.opened: list[tuple[Wrapper, Any]] = []

    async def __aenter__(self) -> None:
        """Open the wrappers, from the outermost in, until one ends the run."""
        task = self.task
        if task._cmdx_.record.outcome is not None:  # its correlation id failed
            return
        try:
            for wrapper in self.wrappers:
                if wrapper.gate is None or wrapper.gate(task):
                    generator = wrapper.call(task)
                    await open_wrapper(wrapper, task, generator)
                    self.opened.append((wrapper, generator))
        except BaseException as error:
            if not end(task, error):
                await self.abort(error)
                raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the wrappers in reverse, or throw the interrupt into them."""
        del kind, traceback
        if error is not None:
            try:
                await self.abort(error)
            finally:
                del error  # its traceback leads to this frame
            return
        task = self.task
        try:
            while self.opened:
                wrapper, generator = self.opened.pop()
                try:
                    await close_wrapper(wrapper, task, generator, self.answer)
                except BaseException as raised:
                    if not end(task, raised):
                        raise
        except BaseException as raised:
            await self.abort(raised)
            raise

    async def abort(self, error: BaseException) -> None:
        """
        Throw *error* into the generators, the innermost first.

        What they raise instead is reported and does not take the place of *error*,
        unless it is an interrupt.
        """
        thrown = error
        while self.opened:
            _, generator = self.opened.pop()
            try:
                await throw_into(generator, thrown)
            except (StopIteration, StopAsyncIteration):
                continue
            except (Exception, Halt) as raised:
                if raised is not thrown:
                    log_lost_error(generator, thrown, raised)
            except BaseException as raised:
                thrown = raised
        try:
            if thrown is not error:
                raise thrown
        finally:
            del error, thrown  # their tracebacks lead to this frame


async def open_wrapper(wrapper: Wrapper, task: Invocation, generator: Any) -> None:
    """Run *generator* to its ``yield``."""
    if hasattr(generator, "__next__"):
        for _ in generator:
            return
    elif is_async(generator):
        if not task._cmdx_.awaits:
            raise AsyncTaskError(type(task))
        async for _ in generator:
            return
    if inspect.iscoroutine(generator):
        generator.close()
    text = misuse_text(wrapper, task, "did not yield")
    raise wrapper.misuse(f"{text}{unopened_cure(generator)}")


def unopened_cure(generator: Any) -> str:
    """Say what else to do about what a wrapper returned, if it is a usual mistake."""
    if hasattr(generator, "__enter__") or hasattr(generator, "__aenter__"):
        return " It returned a context manager: leave out @contextmanager."
    if hasattr(generator, "__next__") or is_async(generator):
        return " To end the run before it, call skip or fail of the task."
    return ""


async def close_wrapper(
    wrapper: Wrapper,
    task: Invocation,
    generator: Any,
    answer: Callable[[Record], object],
) -> None:
    """Send *generator* its answer and let it end."""
    try:
        if is_async(generator):
            await generator.asend(answer(task._cmdx_.record))
        else:
            generator.send(answer(task._cmdx_.record))
    except (StopIteration, StopAsyncIteration):
        return
    if is_async(generator):
        await generator.aclose()
    else:
        generator.close()
    raise wrapper.misuse(misuse_text(wrapper, task, "yielded more than once"))


async def throw_into(generator: Any, error: BaseException) -> None:
    """Raise *error* at the ``yield`` of *generator*."""
    try:
        if is_async(generator):
            await generator.athrow(error)
        else:
            generator.throw(error)
    finally:
        del error  # its traceback leads to this frame


def is_async(generator: Any) -> bool:
    """Tell whether *generator* is an async one."""
    return hasattr(generator, "__anext__")


def log_lost_error(
    generator: Any, thrown: BaseException, raised: BaseException
) -> None:
    """Log an error that a wrapper raised while an interrupt passed through it."""
    import logging

    message = "%r raised an exception while handling %r"
    logging.getLogger("cmdx").error(message, generator, thrown, exc_info=raised)


def misuse_text(wrapper: Wrapper, task: Invocation, mistake: str) -> str:
    """Say what is wrong with *wrapper*, and what to do."""
    kind = "middleware" if wrapper.misuse is MiddlewareError else "around hook"
    return (
        f"the {kind} {wrapper.name} {mistake} while {type(task).__qualname__} ran. "
        "Write it as a generator with exactly one yield."
    )
