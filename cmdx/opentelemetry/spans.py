"""
What a span says about a run.

A span has ids, names and numbers, and the reason of an outcome; never inputs, outputs
or the context of the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import opentelemetry.propagate  # noqa: F401 -- ``cmdx.wire.traces`` looks for it
from opentelemetry import context, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cmdx.chain import chain_of
from cmdx.outcome import FAILED, Halt, Stop
from cmdx.outcome import Status as TaskStatus
from cmdx.report import error_name, error_text
from cmdx.run.ending import reason_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from cmdx import Result
    from cmdx.run.record import Message, Run

headers = TraceContextTextMapPropagator()


class Ending(NamedTuple):
    """How a run ended."""

    status: TaskStatus
    stopped: Stop | None
    reason: str | None
    cause: BaseException | None
    """The exception behind a failure of its own, not of another task inside of it."""

    @classmethod
    def of(cls, result: Result[Any]) -> Ending:
        """Return what a result says."""
        cause = result.cause if result.is_caused_failure else None
        return cls(result.status, result.stopped, result.reason, cause)


def ending_of(error: BaseException) -> Ending:
    """Return the end of a run that an interrupt, or a halt of an outer task, ends."""
    if isinstance(error, Halt):
        return Ending(FAILED, Stop.CANCELLED, str(error), None)
    return Ending(FAILED, Stop.CANCELLED, reason_of(error), error)


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
        "cmdx.tags": tags or None,
    }
    return without_none(facts)


def message_facts(message: Message) -> dict[str, Any]:
    """Return what the conventions for messaging ask for."""
    facts = {
        "messaging.system": message.system,
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.message.id": message.id,
        "messaging.destination.name": message.queue,
    }
    return without_none(facts)


def origin_of(message: Message) -> tuple[Context, list[Link]]:
    """
    Return the parent and the links of the span of a message.

    By the conventions for messaging it has a link to who has sent it. That is its
    parent as well, unless it is run inside of another span, as by ``drain``, or is one
    of many that a schedule sends: the trace would never end.
    """
    here = context.get_current()
    sender = headers.extract({"traceparent": message.traceparent or ""}, here)
    sent_by = trace.get_current_span(sender).get_span_context()
    links = [Link(sent_by)] if sender is not here else []
    is_inside = trace.get_current_span(here).get_span_context().is_valid
    return (here if is_inside or message.is_scheduled else sender), links


# -- retries, and the end -------------------------------------------------------------


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
        "exception.type": error_name(error),
        "exception.message": error_text(error),
    }
    span.add_event("cmdx.retry", without_none(facts))


def describe_end(span: Span, run: Run, ending: Ending) -> None:
    """Say how a run ended."""
    span.set_attributes(end_facts(run, ending))
    if ending.status is FAILED:
        span.set_status(Status(StatusCode.ERROR, ending.reason))
    if ending.cause is not None:
        span.record_exception(ending.cause)


def end_facts(run: Run, ending: Ending) -> dict[str, Any]:
    """Return what is known of a run when it ends."""
    facts = {
        "cmdx.status": str(ending.status),
        "cmdx.stopped": None if ending.stopped is None else str(ending.stopped),
        "cmdx.reason": ending.reason,
        "cmdx.retries": run.attempt,
        "cmdx.rolled_back": run.rolled_back or None,
        "error.type": None if ending.cause is None else error_name(ending.cause),
    }
    return without_none(facts)


def without_none(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not known, which OpenTelemetry would warn about."""
    return {name: fact for name, fact in facts.items() if fact is not None}
