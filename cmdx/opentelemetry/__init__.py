"""
Spans and metrics of OpenTelemetry for all tasks.

``instrument()`` starts it. The story is in ``instrumentation``.
"""

from cmdx.opentelemetry.instrumentation import instrument, uninstrument

__all__ = ["instrument", "uninstrument"]
