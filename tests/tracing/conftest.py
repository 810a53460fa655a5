"""Tasks that are instrumented, and what they have exported."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cmdx.declare.keywords import named_tasks
from cmdx.opentelemetry import instrument, uninstrument


@pytest.fixture(autouse=True)
def _names():
    """Let two tests give the same name to tasks of their own."""
    before = dict(named_tasks)
    yield
    named_tasks.clear()
    named_tasks.update(before)


class Traces:
    """What was exported, by the last part of the name of the task."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def spans(self):
        return self.exporter.get_finished_spans()

    def names(self):
        return [last_part(span.name) for span in self.spans()]

    def span(self, name):
        """The one span of that name."""
        (found,) = [span for span in self.spans() if last_part(span.name) == name]
        return found

    def parents(self):
        """Who is inside of whom, by names."""
        names = {
            span.context.span_id: last_part(span.name) for span in self.spans()
        } | {None: None}
        pairs = [
            (last_part(span.name), names[span.parent and span.parent.span_id])
            for span in self.spans()
        ]
        return sorted(pairs, key=lambda pair: (pair[0], pair[1] or ""))

    def points(self, name):
        """The values of a metric: attributes, and the point."""
        data = self.reader.get_metrics_data()
        found = [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]
        return {
            tuple(last_part(str(value)) for value in point.attributes.values()): point
            for point in found
        }


def last_part(name):
    return name.rpartition(".")[2]


@pytest.fixture
def traces():
    made = Traces()
    instrument(tracer_provider=made.provider, meter_provider=made.meters)
    yield made
    uninstrument()
