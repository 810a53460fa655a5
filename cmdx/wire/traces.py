"""
The trace of OpenTelemetry that is under way, for what is sent and what is started.

OpenTelemetry is asked only if somebody has imported it: without it there is no trace.
"""

from __future__ import annotations

import logging
import sys
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextvars import Context


def current_traceparent() -> str | None:
    """
    Return the trace that is under way, as W3C Trace Context writes it.

    A propagator of others that raises does not keep anything from being sent.
    """
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    try:
        return injected_traceparent(trace)
    except Exception:
        message = "OpenTelemetry raised an exception; the trace is not sent along"
        logging.getLogger("cmdx").warning(message, exc_info=True)
        return None


def injected_traceparent(trace: Any) -> str | None:
    """Return what the global propagator says of the current span, if there is one."""
    if not trace.get_current_span().get_span_context().is_valid:
        return None
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier.get("traceparent")


def context_without_trace() -> Context:
    """
    Return a copy of the context variables in which no trace is under way.

    It is for what goes on after the caller has ended, such as a worker.
    """
    variables = copy_context()
    telemetry: Any = sys.modules.get("opentelemetry.context")
    if telemetry is not None:
        variables.run(telemetry.attach, telemetry.Context())
    return variables
