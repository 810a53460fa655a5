"""
The trace of OpenTelemetry that is under way, for what is sent and what is started.

OpenTelemetry is asked only if somebody has imported it: without it there is no trace.
"""

from __future__ import annotations

import sys
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Context


def trace_headers() -> Mapping[str, str]:
    """Return the trace that is under way, if there is one."""
    propagate: Any = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        return {}
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return {name: headers[name] for name in ("traceparent",) if name in headers}


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
