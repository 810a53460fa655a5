"""The run of a job or message is part of the trace of who has sent it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import dramatiq
import pytest
from celery import Celery
from dramatiq.brokers.stub import StubBroker
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from traced_shop import DATABASE, SPANS, AsyncInvoice, Invoice, Print

import cmdx
from cmdx import Task
from cmdx.engines.celery import CeleryEngine
from cmdx.engines.dramatiq import DramatiqEngine
from cmdx.queue import Queue

HERE = Path(__file__).parent
PATIENCE = 30
"""Seconds after which what never comes has failed."""


def enqueue_in_span(traces, queue, invocation):
    with traces.tracer.start_as_current_span("request") as request:
        job = queue.enqueue(invocation)
    return job, request.get_span_context()


# -- in this process ------------------------------------------------------------------


def test_a_job_is_a_child_of_who_enqueued_it_and_linked_to_it(traces):
    queue = Queue(":memory:", "mail")
    job, request = enqueue_in_span(traces, queue, Print())
    queue.drain()
    span = traces.span("Print")

    assert span.context.trace_id == request.trace_id
    assert span.parent.span_id == request.span_id
    assert [link.context.span_id for link in span.links] == [request.span_id]
    assert span.kind is SpanKind.CONSUMER
    assert span.attributes.items() >= {
        ("messaging.system", "cmdx"),
        ("messaging.operation.name", "run"),
        ("messaging.operation.type", "process"),
        ("messaging.message.id", job.id),
        ("messaging.destination.name", "mail"),
    }


def test_inside_of_another_span_a_job_is_a_child_of_that_one_and_linked(traces):
    queue = Queue(":memory:")
    _, request = enqueue_in_span(traces, queue, Print())
    with traces.tracer.start_as_current_span("drain") as draining:
        queue.drain()
    span = traces.span("Print")

    assert span.parent.span_id == draining.get_span_context().span_id
    assert [link.context.span_id for link in span.links] == [request.span_id]


def test_what_a_job_runs_is_inside_of_its_span_and_no_consumer(traces):
    class Root(Task[None], name="traced.root"):
        def work(self):
            Print.execute()
            with cmdx.detached():
                Print.execute()

    queue = Queue(":memory:")
    enqueue_in_span(traces, queue, Root())
    queue.drain()

    assert traces.parents() == [
        ("Print", "Root"),
        ("Print", "Root"),
        ("Root", "request"),
        ("request", None),
    ]
    kinds = {span.kind for span in traces.spans() if span.name == "Print"}
    assert kinds == {SpanKind.INTERNAL}


@pytest.mark.parametrize("traceparent", [None, "not a trace"])
def test_a_job_without_a_trace_begins_one(traces, traceparent):
    queue = Queue(":memory:")
    job = queue.enqueue(Print())
    if traceparent is not None:
        edit_origin(queue, job, traceparent=traceparent)
    queue.drain()
    span = traces.span("Print")

    assert (span.parent, span.links) == (None, ())


def edit_origin(queue, job, **origin):
    sql = "update cmdx_job set origin = :origin where id = :id"
    text = json.dumps(origin)
    queue.store.transact(
        lambda statements: statements.execute(sql, origin=text, id=job.id)
    )


def test_a_job_without_a_trace_is_inside_of_the_span_that_is_current(traces):
    queue = Queue(":memory:")
    queue.enqueue(Print())
    with traces.tracer.start_as_current_span("drain"):
        queue.drain()

    assert traces.parents() == [("Print", "drain"), ("drain", None)]
    assert traces.span("Print").links == ()


@pytest.mark.usefixtures("instant")
def test_each_leg_of_a_job_is_a_child_of_who_enqueued_it(traces):
    queue = Queue(":memory:", longest_pause=0.01)
    enqueue_in_span(traces, queue, Invoice())
    queue.drain(ahead=1)

    assert traces.parents() == [
        ("Invoice", "request"),
        ("Invoice", "request"),
        ("Print", "Invoice"),
        ("request", None),
    ]


@pytest.mark.usefixtures("instant")
def test_jobs_of_a_schedule_begin_traces_that_are_linked_to_its_own(traces):
    queue = Queue(":memory:")
    with traces.tracer.start_as_current_span("deploy") as deploy:
        queue.schedule(Print(), every=60)
    queue.drain(ahead=130)
    spans = [span for span in traces.spans() if span.name == "Print"]

    assert len({span.context.trace_id for span in spans}) == len(spans) > 1
    assert {span.parent for span in spans} == {None}
    linked = {link.context.span_id for span in spans for link in span.links}
    assert linked == {deploy.get_span_context().span_id}


@pytest.mark.parametrize("task", [Invoice, AsyncInvoice])
def test_a_worker_of_threads_or_coroutines_continues_the_trace(traces, task):
    queue = Queue(":memory:")
    job, _ = enqueue_in_span(traces, queue, task())
    with queue.worker():
        assert job.wait(PATIENCE).success
    name = task.__name__

    assert traces.parents() == [
        (name, "request"),
        ("Print", name),
        ("request", None),
    ]


@pytest.mark.parametrize("task", [Invoice, AsyncInvoice])
def test_jobs_are_not_inside_of_the_span_in_which_their_worker_was_started(
    traces, task
):
    queue = Queue(":memory:")
    traced, _ = enqueue_in_span(traces, queue, task())
    untraced = queue.enqueue(task())
    with traces.tracer.start_as_current_span("startup"), queue.worker():
        assert traced.wait(PATIENCE).success
        assert untraced.wait(PATIENCE).success
    name = task.__name__

    assert traces.parents() == [
        (name, None),
        (name, "request"),
        ("Print", name),
        ("Print", name),
        ("request", None),
        ("startup", None),
    ]


class Look(Task[list[object]], name="traced.look"):
    def work(self):
        span = trace.get_current_span().get_span_context()
        return [span.is_valid, baggage.get_baggage("tenant")]


class AsyncLook(Look, name="traced.look.async"):
    async def work(self):
        return super().work()


@pytest.mark.parametrize("task", [Look, AsyncLook])
def test_without_instrument_too_jobs_see_no_trace_of_where_their_worker_was_started(
    task,
):
    queue = Queue(":memory:")
    job = queue.enqueue(task())
    tracer = TracerProvider().get_tracer("test")
    token = context.attach(baggage.set_baggage("tenant", "acme"))
    try:
        with tracer.start_as_current_span("startup"), queue.worker():
            assert job.wait(PATIENCE).value == [False, None]
            assert Look.execute().value == [True, "acme"]
    finally:
        context.detach(token)


class BrokenPropagator(TraceContextTextMapPropagator):
    def inject(self, *_arguments, **_options):
        raise RuntimeError("no baggage")


def test_a_propagator_that_raises_is_logged_and_keeps_no_job_back(traces, caplog):
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(BrokenPropagator())
    try:
        enqueue_in_span(traces, queue := Queue(":memory:"), Print())
    finally:
        propagate.set_global_textmap(before)
    queue.drain()

    assert (traces.span("Print").parent, traces.span("Print").links) == (None, ())
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("cmdx", "WARNING")
    assert "the trace is not sent along" in record.message
    assert "no baggage" in caplog.text


# -- in other processes ---------------------------------------------------------------


SENDER = """if True:
    import sys
    from opentelemetry.sdk.trace import TracerProvider
    from cmdx import Task
    from cmdx.queue import Queue

    class Print(Task[None], name="traced.sent"):
        def work(self): pass

    queue = Queue(":memory:")
    queue.enqueue(Print())
    assert "opentelemetry.propagate" not in sys.modules
    with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
        queue.enqueue(Print())
    sql = "select origin from cmdx_job"
    origins = queue.store.transact(lambda statements: statements.execute(sql))
    trace_id = f"{span.get_span_context().trace_id:032x}"
    print([trace_id in str(row) for row in origins])
"""


def test_a_process_that_only_makes_spans_sends_its_trace_along(tmp_path):
    program = tmp_path / "sender.py"
    program.write_text(SENDER, encoding="utf-8")
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- ours

    assert (done.stdout, done.stderr) == ("[False, True]\n", "")


@contextmanager
def worker_process(directory):
    """Run a worker in another process, which is asked to stop in the end."""
    environment = os.environ | {
        DATABASE: str(directory / "app.db"),
        SPANS: str(directory / "spans.jsonl"),
        "PYTHONPATH": str(HERE),
    }
    command = [sys.executable, "-m", "cmdx", "worker", "traced_shop:queue"]
    process = subprocess.Popen(  # noqa: S603 -- ours
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("task", [Invoice, AsyncInvoice])
def test_a_worker_process_continues_the_trace(traces, tmp_path, task):
    queue = Queue(tmp_path / "app.db")
    job, request = enqueue_in_span(traces, queue, task())
    with worker_process(tmp_path):
        assert job.wait(PATIENCE).value != os.getpid()
    lines = (tmp_path / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    spans = [json.loads(line) for line in lines]
    legs = [span for span in spans if span["name"] == task.__name__]
    (inner,) = [span for span in spans if span["name"] == "Print"]

    assert {span["context"]["trace_id"] for span in spans} == {
        f"0x{request.trace_id:032x}"
    }
    assert {span["parent_id"] for span in legs} == {f"0x{request.span_id:016x}"}
    assert inner["parent_id"] == legs[-1]["context"]["span_id"]


# -- engines --------------------------------------------------------------------------


def test_a_message_of_celery_is_a_child_of_who_is_running_and_linked(traces):
    app = Celery("traced", broker="memory://")
    app.conf.task_always_eager = True
    engine = CeleryEngine(app)
    engine.register(Print)
    handle, request = enqueue_in_span(traces, engine, Print())
    app.close()
    span = traces.span("Print")

    assert span.parent.span_id == request.span_id
    assert [link.context.span_id for link in span.links] == [request.span_id]
    assert span.kind is SpanKind.CONSUMER
    assert span.attributes["messaging.system"] == "celery"
    assert span.attributes["messaging.message.id"] == handle.id


def test_a_message_of_dramatiq_continues_the_trace_of_who_sent_it(traces):
    broker = StubBroker()
    engine = DramatiqEngine(broker)
    engine.register(Print)
    _, request = enqueue_in_span(traces, engine, Print())
    worker = dramatiq.Worker(broker, worker_timeout=50)
    worker.start()
    try:
        broker.join("default", timeout=PATIENCE * 1000)
        worker.join()
    finally:
        worker.stop()
        broker.close()
    span = traces.span("Print")

    assert span.context.trace_id == request.trace_id
    assert span.parent.span_id == request.span_id
    assert span.attributes["messaging.system"] == "dramatiq"
