"""
What a span says about a run.

A span has ids, names and numbers, and the reason of an outcome; never inputs, outputs
or the context of the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import context, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cmdx.chain import chain_of
from cmdx.exceptions import RecordedError
from cmdx.outcome import FAILED, SUCCEEDED, Halt, Stop
from cmdx.outcome import Status as TaskStatus
from cmdx.report import error_line, error_name, error_text
from cmdx.run.continuation import record_error
from cmdx.run.ending import reason_of
from cmdx.values import encodable_text

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from cmdx import Result
    from cmdx.run.record import Message, Run

trace_context = TraceContextTextMapPropagator()


class Ending(NamedTuple):
    """How a run ended."""

    status: TaskStatus
    stopped: Stop | None
    reason: str | None
    error_type: str | None = None
    """The class of the error behind a failure, perhaps of another task inside."""
    cause: BaseException | None = None
    """The exception that the run failed by, unless it passes on a failed result."""

    @classmethod
    def of(cls, result: Result[Any]) -> Ending:
        """Return what a result says."""
        cause = result.cause if result.is_caused_failure else None
        kind = failure_type(result)
        return cls(result.status, result.stopped, result.reason, kind, cause)


def ending_of(error: BaseException) -> Ending:
    """Return the end of a run that an interrupt, or a halt of an outer task, ends."""
    if isinstance(error, Halt):
        return Ending(FAILED, Stop.CANCELLED, str(error))
    reason, kind = reason_of(error), error_type(error)
    return Ending(FAILED, Stop.CANCELLED, reason, kind, error)


def failure_type(result: Result[Any]) -> str | None:
    """Return the class of what made a task fail: an exception, or else a fault."""
    failure = result.caused_failure
    if failure is None:
        return None
    if failure.cause is None:
        return full_name(failure.task.Fault)
    return error_type(failure.cause)


def error_type(error: BaseException) -> str:
    """Return the class of an exception, as the conventions write it."""
    if isinstance(error, RecordedError):
        return error_name(error)
    return full_name(type(error))


def full_name(kind: type) -> str:
    """Return the name of a class with its module, unless it is built in."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


# -- the start ------------------------------------------------------------------------


def start_span(tracer: Tracer, run: Run) -> Span:
    """Start the span of a run, inside of the span that is current."""
    name, facts = run.task.__qualname__, run_facts(run)
    if run.message is None:
        return tracer.start_span(name, attributes=facts)
    parent, links = origin_of(run.message)
    return tracer.start_span(
        name,
        context=parent,
        kind=SpanKind.CONSUMER,
        attributes=facts | message_facts(run.message),
        links=links,
    )


def run_facts(run: Run) -> dict[str, Any]:
    """Return what is known of a run when it begins."""
    chain, tags = chain_of(run), run.plan.settings.tags
    facts = {
        "cmdx.task": run.task.__qualname__,
        "cmdx.type": run.task._cmdx_.kind,
        "cmdx.tid": run.tid,
        "cmdx.cid": chain.id,
        "cmdx.xid": None if chain.xid is None else str(chain.xid),
        "cmdx.tags": tuple(map(encodable_text, tags)) or None,
    }
    return encodable(facts)


def message_facts(message: Message) -> dict[str, Any]:
    """Return what the conventions for messaging ask for."""
    facts = {
        "messaging.system": message.system,
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.message.id": message.id,
        "messaging.destination.name": message.queue,
    }
    return encodable(facts)


def origin_of(message: Message) -> tuple[Context, list[Link]]:
    """
    Return the parent and the links of the span of a message.

    By the conventions for messaging it has a link to who has sent it. That is its
    parent as well, unless it is run inside of another span, as by ``drain``, or is one
    of many that a schedule sends: the trace would never end.
    """
    here = context.get_current()
    sender = trace_context.extract({"traceparent": message.traceparent or ""}, here)
    sent_by = trace.get_current_span(sender).get_span_context()
    links = [Link(sent_by)] if sender is not here else []
    is_inside = trace.get_current_span(here).get_span_context().is_valid
    return (here if is_inside or message.is_scheduled else sender), links


# -- retries, rollbacks, and the end --------------------------------------------------


def add_retry(
    span: Span,
    *,
    attempt: int,
    delay: float,
    error: BaseException,
    rule: str | None,
    **_: Any,
) -> None:
    """Add a retry to the span of a run."""
    facts = {
        "cmdx.attempt": attempt,
        "cmdx.pause": delay,
        "cmdx.rule": rule,
        **error_facts(error),
    }
    span.add_event("cmdx.retry", encodable(facts))


def add_rollback(span: Span, run: Run, error: BaseException | None) -> None:
    """Add a rollback to the span of the task that failed, or of its workflow."""
    facts = {
        "cmdx.task": run.task.__qualname__,
        "cmdx.tid": run.tid,
        "cmdx.status": str(SUCCEEDED if error is None else FAILED),
    }
    if error is not None:
        facts |= error_facts(error)
    span.add_event("cmdx.rollback", encodable(facts))


def error_facts(error: BaseException) -> dict[str, str]:
    """Return what an event says of an exception."""
    return {
        "exception.type": error_type(error),
        "exception.message": error_text(error),
    }


def describe_end(span: Span, run: Run, ending: Ending, results_before: int) -> None:
    """
    Say how a run ended, unless nobody records the span.

    Args:
        span: The span of the run.
        run: The run.
        ending: How it ended.
        results_before: How many results its chain had when it began.
    """
    if not span.is_recording():
        return
    span.set_attributes(end_facts(run, ending))
    if ending.status is FAILED:
        reason = None if ending.reason is None else encodable_text(ending.reason)
        span.set_status(Status(StatusCode.ERROR, reason))
    cause = ending.cause
    if cause is None or is_of_task_inside(run, cause, results_before):
        return
    record_exception(span, cause)


def record_exception(span: Span, error: BaseException) -> None:
    """Add an exception to a span, also one that cannot be put into words."""
    recorded = record_error(error)
    stack = recorded.traceback or error_line(error)
    facts = error_facts(error) | {"exception.stacktrace": stack}
    try:
        str(error)
    except Exception:  # OpenTelemetry asks for the text as well
        error = recorded
    span.record_exception(error, encodable(facts))


def is_of_task_inside(run: Run, cause: BaseException, results_before: int) -> bool:
    """Tell whether a task that *run* has run failed by the same exception."""
    records = (result._record for result in chain_of(run)[results_before:])
    return any(
        record.run.parent is run and record.outcome.cause is cause for record in records
    )


def end_facts(run: Run, ending: Ending) -> dict[str, Any]:
    """Return what is known of a run when it ends."""
    facts = {
        "cmdx.status": str(ending.status),
        "cmdx.stopped": None if ending.stopped is None else str(ending.stopped),
        "cmdx.reason": ending.reason,
        "cmdx.retries": run.attempt,
        "cmdx.rolled_back": run.rolled_back or None,
        "error.type": ending.error_type,
    }
    return encodable(facts)


def encodable(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not known, and replace what exporters cannot encode."""
    return {
        name: encodable_text(fact) if isinstance(fact, str) else fact
        for name, fact in facts.items()
        if fact is not None
    }
