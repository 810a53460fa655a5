"""``instrument`` and ``uninstrument``, metrics, and what others do wrong."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from cmdx import (
    CmdxError,
    Status,
    Suspended,
    Task,
    Workflow,
    retry_on,
    task_retried,
    task_rolled_back,
)
from cmdx.opentelemetry import instrument, uninstrument


class Good(Task[int]):
    def work(self):
        return 1


@retry_on(ConnectionError, limit=2, delay=0.5)
class Flaky(Task[None]):
    def work(self):
        raise ConnectionError("connection refused")


class Both(Workflow[None]):
    steps = (Good, Good)


# -- metrics --------------------------------------------------------------------------


@pytest.mark.usefixtures("instant")
def test_runs_are_counted_by_task_status_and_why_they_stopped(traces, run):
    class Skip(Task[None]):
        def work(self):
            self.skip()

    for task in (Good, Good, Flaky, Skip):
        run(task)
    counts = traces.points("cmdx.task.runs")

    assert {names: point.value for names, point in counts.items()} == {
        ("Good", "success", "success"): 2,
        ("Flaky", "failed", "exhausted"): 1,
        ("Skip", "skipped", "halted"): 1,
    }


def test_a_run_that_is_cancelled_is_counted_as_such(traces, run):
    class Stop(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Stop)

    assert list(traces.points("cmdx.task.runs")) == [("Stop", "failed", "cancelled")]


@pytest.mark.usefixtures("instant")
def test_retries_are_counted_by_task(traces, run):
    run(Flaky)
    run(Flaky)
    counts = traces.points("cmdx.task.retries")

    assert {names: point.value for names, point in counts.items()} == {("Flaky",): 4}


@pytest.mark.usefixtures("instant")
def test_durations_are_measured_in_seconds_with_pauses(traces, run):
    run(Flaky)
    run(Good)
    points = traces.points("cmdx.task.duration")

    assert points["Flaky", "failed"].sum == pytest.approx(1.0, abs=0.1)
    assert points["Good", "success"].count == 1
    assert points["Good", "success"].explicit_bounds[:3] == (0.001, 0.0025, 0.005)


@pytest.mark.usefixtures("instant")
def test_a_leg_is_not_counted_as_a_run(traces):
    with pytest.raises(Suspended):
        Flaky().run(longest_pause=0.1)

    assert traces.points("cmdx.task.runs") == {}


# -- on and off -----------------------------------------------------------------------


def test_without_instrument_there_are_no_spans(run):
    class Look(Task[bool]):
        def work(self):
            return trace.get_current_span().get_span_context().is_valid

    assert run(Look).value is False
    assert Look._cmdx_.plan.is_bare


def test_uninstrument_undoes_it(traces, run):
    assert not Good._cmdx_.plan.is_bare
    uninstrument()
    assert run(Good).success
    assert Both.execute().success

    assert traces.spans() == ()
    assert Good._cmdx_.plan.is_bare
    assert not task_retried.receivers
    assert not task_rolled_back.receivers


def test_a_run_that_has_begun_ends_its_span_after_uninstrument(traces, run):
    class Undo(Task[None]):
        def work(self):
            uninstrument()
            Good.execute()

    run(Undo)

    assert traces.names() == ["Undo"]


@pytest.mark.usefixtures("traces")
def test_uninstrument_twice_does_nothing():
    uninstrument()
    uninstrument()

    assert Good.execute().success


def test_it_can_be_instrumented_again(traces):
    uninstrument()
    instrument(tracer_provider=traces.provider)
    Good.execute()

    assert traces.names() == ["Good"]


def test_instrument_twice_is_refused(traces):
    with pytest.raises(CmdxError, match=r"already. Call uninstrument\(\) first"):
        instrument()
    Good.execute()

    assert traces.names() == ["Good"]


def test_classes_of_before_and_after_are_traced(traces, run):
    class New(Task[None]):
        def work(self): ...

    run(New)
    Both.execute()

    assert sorted(traces.names()) == ["Both", "Good", "Good", "New"]


def test_the_global_providers_are_the_default():
    program = """if True:
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
            InMemorySpanExporter,
        )
        from cmdx import Task
        from cmdx.opentelemetry import instrument

        instrument()
        class Good(Task[None]):
            def work(self): ...

        Good.execute()  # nobody has set a provider so far
        exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([reader]))
        Good.execute()
        print(len(exporter.get_finished_spans()))
        (resource,) = reader.get_metrics_data().resource_metrics
        (scope,) = resource.scope_metrics
        print(scope.scope.name, sorted(metric.name for metric in scope.metrics))
    """

    assert printed_by(program) == "1\ncmdx ['cmdx.task.duration', 'cmdx.task.runs']\n"


def printed_by(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


def test_the_package_does_not_hide_the_library():
    program = """if True:
        import opentelemetry.trace
        import cmdx.opentelemetry.instrumentation as ours
        print(ours.trace is opentelemetry.trace)
    """

    assert printed_by(program) == "True\n"


def test_without_the_library_the_error_names_the_extra():
    program = """if True:
        import sys
        sys.modules["opentelemetry"] = None
        try:
            import cmdx.opentelemetry
        except ImportError as error:
            print(error)
    """

    assert printed_by(program) == (
        "cmdx.opentelemetry needs the API of OpenTelemetry. Install what the extra "
        "'otel' of pycmdx has: pip install \"opentelemetry-api>=1.30\".\n"
    )


# -- what others do wrong -------------------------------------------------------------


class BrokenExporter(SpanExporter):
    def export(self, spans):
        del spans
        raise OSError("no space left on device")


class BrokenProcessor(SpanProcessor):
    def __init__(self, place):
        self.place = place

    def on_start(self, span, parent_context=None):
        del span, parent_context
        if self.place == "start":
            raise OSError("no space left on device")

    def on_end(self, span):
        del span
        if self.place == "end":
            raise OSError("no space left on device")


@pytest.mark.parametrize(
    "broken",
    [
        SimpleSpanProcessor(BrokenExporter()),
        BrokenProcessor("start"),
        BrokenProcessor("end"),
    ],
    ids=["exporter", "start", "end"],
)
@pytest.mark.usefixtures("instant")
def test_what_others_raise_changes_no_run(traces, run, caplog, broken):
    traces.provider.add_span_processor(broken)

    class Outer(Task[int]):
        def work(self):
            assert Flaky.execute().retries == 2
            return Good.execute().value

    with caplog.at_level(logging.ERROR):
        result = run(Outer)

    assert (result.status, result.value) == (Status.SUCCESS, 1)
    assert "no space left on device" in caplog.text
    assert not trace.get_current_span().get_span_context().is_valid
    assert len(traces.points("cmdx.task.runs")) == 3


@pytest.mark.usefixtures("instant")
def test_a_retry_of_a_run_without_a_span_is_no_event_of_the_run_around_it(traces, run):
    class Outer(Task[None]):
        def work(self):
            traces.provider.add_span_processor(BrokenProcessor("start"))
            Flaky.execute()

    run(Outer)

    assert traces.names() == ["Outer"]
    assert traces.span("Outer").events == ()


class BrokenSpan(trace.NonRecordingSpan):
    """The span of a library that nobody can write to."""

    ended = 0

    def is_recording(self):
        return True

    def refuse(self, *_, **__):
        raise OSError("no space left on device")

    set_attribute = set_attributes = set_status = add_event = refuse
    record_exception = refuse

    def end(self, *_, **__):
        type(self).ended += 1
        self.refuse()


class BrokenTracer(trace.NoOpTracer):
    def start_span(self, *_, **__):
        return BrokenSpan(trace.SpanContext(1, 2, is_remote=False))


class BrokenProvider(trace.TracerProvider):
    def get_tracer(self, *_, **__):
        return BrokenTracer()


@pytest.fixture
def broken_spans():
    instrument(tracer_provider=BrokenProvider())
    yield
    uninstrument()


@pytest.mark.usefixtures("instant", "broken_spans")
def test_a_span_that_raises_changes_no_run(run, caplog, monkeypatch):
    monkeypatch.setattr(BrokenSpan, "ended", 0)

    assert run(Good).success
    assert run(Flaky).retries == 2
    with pytest.raises(Suspended):
        Flaky().run(longest_pause=0.1)

    assert BrokenSpan.ended == 3
    assert "the run of Flaky continues" in caplog.text
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_context_that_cannot_be_attached_changes_no_run(traces, run, monkeypatch):
    def refuse(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(context, "attach", refuse)

    assert run(Good).success
    assert traces.names() == ["Good"]


@pytest.mark.usefixtures("instant")
def test_a_run_that_began_before_instrument_has_no_span(run, caplog):
    @retry_on(ConnectionError, limit=1, delay=0)
    class Begun(Task[None]):
        def work(self):
            if self.attempt == 0:
                instrument()
                raise ConnectionError

    try:
        assert run(Begun).success
    finally:
        uninstrument()
    assert caplog.text == ""


class CountedError(Exception):
    """Counts how often its text was asked for."""

    asked = 0

    def __str__(self):
        type(self).asked += 1
        return "counted"


@pytest.mark.usefixtures("instant")
def test_nothing_is_described_for_a_span_that_nobody_records(run, monkeypatch):
    @retry_on(CountedError, limit=1)
    class Count(Task[None]):
        def work(self):
            raise CountedError

    def asked_by_a_run():
        monkeypatch.setattr(CountedError, "asked", 0)
        run(Count)
        return CountedError.asked

    without = asked_by_a_run()
    instrument(tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    try:
        assert asked_by_a_run() == without
    finally:
        uninstrument()


def test_what_others_raise_does_not_replace_an_interrupt(traces, run):
    traces.provider.add_span_processor(BrokenProcessor("end"))

    class Stop(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Stop)


def test_metrics_that_raise_change_no_run(traces, run, monkeypatch, caplog):
    from cmdx.opentelemetry.metrics import Metrics

    def refuse(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(Metrics, "count_run", refuse)

    assert run(Good).success
    assert traces.names() == ["Good"]
    assert "OpenTelemetry raised an exception; the run of Good continues" in caplog.text


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_error_that_has_no_text_changes_no_run(traces, run):
    class Mute(Task[None]):
        def work(self):
            raise UnspeakableError

    assert isinstance(run(Mute).cause, UnspeakableError)
    name = f"{__name__}.UnspeakableError"
    assert traces.span("Mute").attributes["error.type"] == name
