"""
``instrument``: a span for each run, and metrics.

1. ``Task`` gets a middleware, the outermost one of all tasks    ``instrument``
2. a run begins: its span starts, and becomes the current one    ``trace``
3. a retry is an event of the span, and is counted               ``note_retry``
4. a rollback is an event, also that of a step that has ended    ``note_rollback``
5. the run ends, and so does its span; it is counted             ``SpanScope.close``

A middleware, because a span is current inside of a block: what opens it has to close
it too, outside of all that tasks open themselves. Signals are sent further in.

OpenTelemetry calls code of others, such as span processors. What that raises is logged,
and never changes a run.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cmdx.extras import how_to_install

try:
    from opentelemetry import context, trace
except ImportError:
    message = (
        f"cmdx.opentelemetry needs the API of OpenTelemetry. {how_to_install('otel')}."
    )
    raise ImportError(message) from None

from cmdx import CmdxError, Task, __version__, task_retried, task_rolled_back
from cmdx.chain import chain_of
from cmdx.declare.decorators import declare, withdraw
from cmdx.declare.middleware import MiddlewareDeclaration
from cmdx.opentelemetry.metrics import Metrics
from cmdx.opentelemetry.spans import (
    Ending,
    add_retry,
    add_rollback,
    describe_end,
    ending_of,
    start_span,
)
from cmdx.run.continuation import is_suspension

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from cmdx import Result
    from cmdx.run.record import Run

SCOPE = context.create_key("cmdx.scope")
"""Where a context has the scope of the run, and so its span."""


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """
    Record a span for each run of a task, and metrics, from now on.

    Call it once, when the program starts. Global providers may be set before or after.

    Example::

        trace.set_tracer_provider(TracerProvider())
        cmdx.opentelemetry.instrument()

    Args:
        tracer_provider: Who makes the spans; by default the global one.
        meter_provider: Who makes the metrics; by default the global one.
    """
    global _installed  # noqa: PLW0603 -- there is one, as there is one ``Task``
    if _installed is not None:
        message = "tasks are instrumented already. Call uninstrument() first."
        raise CmdxError(message)
    tracer = trace.get_tracer("cmdx", __version__, tracer_provider)
    _installed = Instrumentation(tracer, Metrics(meter_provider))
    _installed.install()


def uninstrument() -> None:
    """Record nothing of runs that begin from now on; undo ``instrument``."""
    global _installed  # noqa: PLW0603
    if _installed is not None:
        _installed.remove()
        _installed = None


_installed: Instrumentation | None = None


class Instrumentation:
    """What is done with each run."""

    def __init__(self, tracer: Tracer, metrics: Metrics) -> None:
        self.tracer = tracer
        self.metrics = metrics
        self.declaration = MiddlewareDeclaration((self.trace,), None, None)

    def install(self) -> None:
        """Wrap all runs that begin from now on."""
        declare(Task, self.declaration, by="instrument")
        task_retried.connect(self.note_retry)
        task_rolled_back.connect(self.note_rollback)

    def remove(self) -> None:
        """Wrap no more runs."""
        withdraw(Task, self.declaration)
        task_retried.disconnect(self.note_retry)
        task_rolled_back.disconnect(self.note_rollback)

    def trace(self, task: Task[Any]) -> Generator[None, Result[Any], None]:
        """Run *task* inside of a span; a middleware."""
        run: Run = task._cmdx_
        scope = SpanScope(task)
        scope.open(self.tracer)
        try:
            result = yield
        except BaseException as error:
            if is_suspension(error, run):
                scope.close_leg()
            else:
                scope.close(self.metrics, ending_of(error))
            raise
        scope.close(self.metrics, Ending.of(result))

    def note_retry(self, sender: type[Task[Any]], **facts: Any) -> None:
        """Add a retry to the span of its run, and count it; a receiver."""
        self.metrics.count_retry(sender)
        span = recorded_span()
        if span is not None:
            add_retry(span, **facts)

    def note_rollback(
        self,
        _sender: type[Task[Any]],
        *,
        task: Task[Any],
        error: BaseException | None,
    ) -> None:
        """Add a rollback to the span of the run that does it; a receiver."""
        span = recorded_span()
        if span is not None:
            add_rollback(span, task._cmdx_, error)


class SpanScope:
    """The block in which the span of a run is the current one."""

    def __init__(self, task: Task[Any]) -> None:
        self.task = task
        self.run: Run = task._cmdx_
        self.span: Span = trace.INVALID_SPAN
        self.token: Token[Context] | None = None
        self.results_before = len(chain_of(self.run))
        self.outer = current_scope()
        self.detached_error: BaseException | None = None
        """What the last failed task of another chain inside of it has failed by."""

    def open(self, tracer: Tracer) -> None:
        """Start the span, and make it the current one."""
        with errors_logged(self.task):
            self.span = start_span(tracer, self.run)
        with errors_logged(self.task):
            self.token = context.attach(context_inside(self))

    def close(self, metrics: Metrics, ending: Ending) -> None:
        """Count the run, and end its span."""
        with errors_logged(self.task):
            metrics.count_run(self.run, ending)  # inside, so that it has an exemplar
        self.leave()
        is_recorded = ending.cause is self.detached_error
        with errors_logged(self.task):
            described = ending._replace(cause=None) if is_recorded else ending
            describe_end(self.span, self.run, described, self.results_before)
        outer = self.outer if self.run.parent is None else None
        if outer is not None and ending.cause is not None:
            outer.detached_error = ending.cause
        self.end_span()

    def close_leg(self) -> None:
        """End the span of a run that goes on elsewhere."""
        self.leave()
        with errors_logged(self.task):
            self.span.set_attribute("cmdx.suspended", value=True)
        self.end_span()

    def leave(self) -> None:
        """Make the span current that was so before; not in a context of others."""
        if self.token is not None and current_scope() is self:
            context.detach(self.token)

    def end_span(self) -> None:
        """End the span."""
        self.outer = self.detached_error = None  # contexts of others may keep this
        with errors_logged(self.task):
            self.span.end()


def context_inside(scope: SpanScope) -> Context:
    """Return the context of a run; one without a span leaves the current one so."""
    is_started = scope.span is not trace.INVALID_SPAN
    inside = trace.set_span_in_context(scope.span) if is_started else None
    return context.set_value(SCOPE, scope, inside)


def current_scope() -> SpanScope | None:
    """Return the scope of the run; the current span may be one inside of it."""
    scope = context.get_value(SCOPE)
    return scope if isinstance(scope, SpanScope) else None


def recorded_span() -> Span | None:
    """Return the span of the run, if somebody records it."""
    scope = current_scope()
    return scope.span if scope is not None and scope.span.is_recording() else None


@contextmanager
def errors_logged(task: Task[Any]) -> Iterator[None]:
    """Log what OpenTelemetry raises in the block, and continue after it."""
    try:
        yield
    except Exception:
        message = "OpenTelemetry raised an exception; the run of %s continues"
        logging.getLogger("cmdx").exception(message, type(task).__qualname__)
