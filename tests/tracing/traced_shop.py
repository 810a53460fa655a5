"""Tasks and a queue that a worker in another process imports, which is traced."""

from __future__ import annotations

import os

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from cmdx import Task, retry_on
from cmdx.opentelemetry import instrument
from cmdx.queue import Queue

DATABASE, SPANS = "TRACED_SHOP_DATABASE", "TRACED_SHOP_SPANS"


class Print(Task[None], name="traced.print"):
    def work(self):
        pass


@retry_on(ConnectionError, limit=1, delay=0.02)
class Invoice(Task[int], name="traced.invoice"):
    def work(self):
        if self.attempt == 0:
            raise ConnectionError("connection refused")
        Print.execute_or_raise()
        return os.getpid()


class AsyncInvoice(Task[int], name="traced.async"):
    async def work(self):
        await Print.aexecute_or_raise()
        return os.getpid()


def trace_to_file():
    """Write all spans of this process to a file, one JSON object on each line."""
    stream = open(os.environ[SPANS], "a", encoding="utf-8")  # noqa: SIM115, PTH123
    exporter = ConsoleSpanExporter(
        out=stream, formatter=lambda span: span.to_json(indent=None) + "\n"
    )
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(tracer_provider=provider)


if DATABASE in os.environ:
    trace_to_file()
    queue = Queue(os.environ[DATABASE], longest_pause=0.01)
