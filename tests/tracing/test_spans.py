"""Each run has a span, which says what the run did, inside of the right one."""

from __future__ import annotations

import asyncio
import gc
from contextvars import copy_context
from threading import Thread
from weakref import ref

import pytest
from garbage import left_behind
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import cmdx
from cmdx import (
    Suspended,
    Task,
    Workflow,
    group,
    middleware,
    on_success,
    parallel,
    retry_on,
)


class Leaf(Task[int]):
    def work(self):
        return trace.get_current_span().get_span_context().span_id


class Branch(Task[int]):
    def work(self):
        return Leaf.execute().value


class Broken(Task[None]):
    def work(self):
        raise ConnectionError("connection refused")


# -- what is inside of what -----------------------------------------------------------


def test_a_run_has_a_span_that_is_current_inside_of_work(traces, run):
    class Charge(Task[int], tags=("billing",), correlation_id=lambda: "order-7"):
        def work(self):
            return trace.get_current_span().get_span_context().span_id

    result = run(Charge)
    span = traces.span("Charge")

    assert span.context.span_id == result.value
    assert (span.parent, span.kind) == (None, SpanKind.INTERNAL)
    assert span.attributes == {
        "cmdx.task": Charge.__qualname__,
        "cmdx.type": "Task",
        "cmdx.tid": result.tid,
        "cmdx.cid": result.cid,
        "cmdx.xid": "order-7",
        "cmdx.tags": ("billing",),
        "cmdx.status": "success",
        "cmdx.stopped": "success",
        "cmdx.retries": 0,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_run_is_inside_of_the_span_that_was_current(traces, run):
    with traces.tracer.start_as_current_span("request") as request:
        run(Leaf)
        assert trace.get_current_span() is request

    assert traces.parents() == [("Leaf", "request"), ("request", None)]


def test_what_work_does_is_inside_of_its_span(traces, run):
    class Fetch(Task[None]):
        def work(self):
            with traces.tracer.start_as_current_span("GET /rates"):
                Leaf.execute()

    run(Fetch)

    assert traces.parents() == [
        ("Fetch", None),
        ("GET /rates", "Fetch"),
        ("Leaf", "GET /rates"),
    ]


def test_nested_tasks_are_inside_of_each_other(traces, run):
    class Root(Task[None]):
        def work(self):
            Branch.execute()
            Leaf.execute()

    run(Root)

    assert traces.parents() == [
        ("Branch", "Root"),
        ("Leaf", "Branch"),
        ("Leaf", "Root"),
        ("Root", None),
    ]


def test_callbacks_and_middlewares_are_inside_of_the_span(traces, run):
    def around(_task):
        with traces.tracer.start_as_current_span("middleware"):
            yield

    @middleware(around)
    class Root(Task[None]):
        def work(self):
            Leaf.execute()

        @on_success
        def thank(self):
            Branch.execute()

    run(Root)

    assert traces.parents() == [
        ("Branch", "middleware"),
        ("Leaf", "Branch"),
        ("Leaf", "middleware"),
        ("Root", None),
        ("middleware", "Root"),
    ]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_context_that_work_leaves_behind_ends_with_the_run(traces, run):
    class Careless(Task[None]):
        def work(self):
            traces.tracer.start_as_current_span("never left").__enter__()

    run(Careless)

    assert not trace.get_current_span().get_span_context().is_valid
    gc.collect()  # which leaves it at last, in whatever context


def test_a_detached_task_is_inside_of_the_span_that_is_current(traces, run):
    class Root(Task[None]):
        def work(self):
            with cmdx.detached():
                Leaf.execute()

    run(Root)

    assert traces.parents() == [("Leaf", "Root"), ("Root", None)]


@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_steps_are_inside_of_their_workflow(traces, executor):
    class Report(Workflow[None]):
        steps = (
            Leaf,
            group(Leaf),
            parallel(Branch, Branch, Leaf, workers=3, executor=executor),
        )

    assert Report.execute().success
    assert traces.parents() == [
        ("Branch", "Report"),
        ("Branch", "Report"),
        ("Leaf", "Branch"),
        ("Leaf", "Branch"),
        ("Leaf", "Report"),
        ("Leaf", "Report"),
        ("Leaf", "Report"),
        ("Report", None),
    ]


class AsyncLeaf(Task[int]):
    async def work(self):
        await asyncio.sleep(0)
        return trace.get_current_span().get_span_context().span_id


def test_parallel_steps_that_await_are_inside_of_their_workflow(traces):
    class Report(Workflow[None]):
        steps = (parallel(AsyncLeaf, Branch, AsyncLeaf),)

    assert asyncio.run(Report.aexecute()).success
    assert traces.parents() == [
        ("AsyncLeaf", "Report"),
        ("AsyncLeaf", "Report"),
        ("Branch", "Report"),
        ("Leaf", "Branch"),
        ("Report", None),
    ]


def test_asyncio_tasks_have_spans_of_their_own(traces):
    class Gather(Task[list[int]]):
        async def work(self):
            runs = [AsyncLeaf.aexecute() for _ in range(3)]
            return [result.value for result in await asyncio.gather(*runs)]

    result = asyncio.run(Gather.aexecute())

    assert traces.parents() == [("AsyncLeaf", "Gather")] * 3 + [("Gather", None)]
    assert len(set(result.value)) == 3


def test_roots_that_run_at_once_do_not_see_each_other(traces):
    async def run_both():
        await asyncio.gather(AsyncLeaf.aexecute(), AsyncLeaf.aexecute())

    asyncio.run(run_both())

    assert traces.parents() == [("AsyncLeaf", None), ("AsyncLeaf", None)]


@pytest.mark.parametrize(("is_copied", "parent"), [(True, "Root"), (False, None)])
def test_a_thread_is_inside_of_the_span_whose_context_it_has(
    traces, run, is_copied, parent
):
    class Root(Task[None]):
        def work(self):
            call = copy_context().run if is_copied else lambda leaf: leaf()
            thread = Thread(target=call, args=(Leaf.execute,))
            thread.start()
            thread.join()

    run(Root)

    assert traces.parents() == [("Leaf", parent), ("Root", None)]


# -- retries --------------------------------------------------------------------------


@pytest.mark.usefixtures("instant")
def test_retries_are_events(traces, run):
    @retry_on(ConnectionError, limit=3, delay=0.5, rule="network")
    @retry_on(TimeoutError, limit=1, delay=2.0)
    class Fetch(Task[None]):
        def work(self):
            if self.attempt == 0:
                raise ConnectionError("connection refused")
            if self.attempt == 1:
                raise TimeoutError("too slow")

    assert run(Fetch).success
    span = traces.span("Fetch")

    assert span.attributes["cmdx.retries"] == 2
    assert [(event.name, dict(event.attributes)) for event in span.events] == [
        (
            "cmdx.retry",
            {
                "cmdx.attempt": 1,
                "cmdx.pause": 0.5,
                "cmdx.rule": "network",
                "exception.type": "ConnectionError",
                "exception.message": "connection refused",
            },
        ),
        (
            "cmdx.retry",
            {
                "cmdx.attempt": 2,
                "cmdx.pause": 2.0,
                "exception.type": "TimeoutError",
                "exception.message": "too slow",
            },
        ),
    ]


@pytest.mark.usefixtures("instant")
def test_a_retry_is_an_event_of_the_run_even_inside_of_another_span(traces, run):
    def around(_task):
        with traces.tracer.start_as_current_span("middleware"):
            yield

    @middleware(around)
    @retry_on(ConnectionError, limit=1)
    class Fetch(Task[None]):
        def work(self):
            raise ConnectionError

    run(Fetch)
    names = [event.name for event in traces.span("Fetch").events]

    assert names == ["cmdx.retry", "exception"]
    assert traces.span("middleware").events == ()


# -- interrupts -----------------------------------------------------------------------


def test_an_interrupt_ends_the_span(traces, run):
    class Stop(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Stop)
    span = traces.span("Stop")

    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "[KeyboardInterrupt]"
    assert span.attributes["cmdx.status"] == "failed"
    assert span.attributes["cmdx.stopped"] == "cancelled"
    assert not trace.get_current_span().get_span_context().is_valid


def test_cancelling_ends_all_spans_from_the_inside_out(traces):
    class Wait(Task[None]):
        async def work(self):
            await asyncio.Event().wait()

    class Outer(Task[None]):
        async def work(self):
            await Wait.aexecute()

    async def cancel():
        waiting = asyncio.create_task(Outer.aexecute())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancel())

    assert traces.names() == ["Wait", "Outer"]
    assert traces.parents() == [("Outer", None), ("Wait", "Outer")]
    stopped = [span.attributes["cmdx.stopped"] for span in traces.spans()]
    assert stopped == ["cancelled", "cancelled"]


def test_a_halt_of_an_outer_task_ends_the_spans_it_passes(traces, run):
    class Outer(Task[None]):
        def work(self):
            outer = self

            class Inner(Task[None]):
                def work(self):
                    outer.skip("enough")

            Inner.execute()

    run(Outer)

    assert traces.span("Inner").attributes["cmdx.stopped"] == "cancelled"
    assert traces.span("Inner").events == ()
    assert traces.span("Outer").attributes["cmdx.status"] == "skipped"


@pytest.mark.usefixtures("instant")
def test_each_leg_of_a_run_has_a_span(traces):
    @retry_on(ConnectionError, limit=1, delay=60)
    class Fetch(Task[None]):
        def work(self):
            if self.attempt == 0:
                raise ConnectionError("connection refused")

    with pytest.raises(Suspended) as caught:
        Fetch().run(longest_pause=1)
    Fetch().run(earlier=caught.value)
    first, second = traces.spans()

    assert first.attributes["cmdx.tid"] == second.attributes["cmdx.tid"]
    assert first.attributes["cmdx.suspended"] is True
    assert first.status.status_code is StatusCode.UNSET
    assert "cmdx.status" not in first.attributes
    assert [event.name for event in second.events] == ["cmdx.retry"]
    assert second.attributes["cmdx.status"] == "success"
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_coroutine_that_is_closed_in_another_context_ends_its_span(traces, caplog):
    class Wait(Task[None]):
        async def work(self):
            await asyncio.sleep(3600)

    async def abandon():
        steps = Wait.aexecute()
        asyncio.get_running_loop().call_soon(steps.close)  # in another context
        copy_context().run(steps.send, None)
        await asyncio.sleep(0)

    asyncio.run(abandon())

    assert traces.span("Wait").attributes["cmdx.stopped"] == "cancelled"
    assert caplog.text == ""


# -- what is left ---------------------------------------------------------------------


def test_failed_runs_leave_nothing_for_the_garbage_collector(traces):
    def fail():
        Broken.execute()
        traces.exporter.clear()

    assert left_behind(fail, 20) == {}


def test_a_context_that_is_kept_does_not_keep_the_error_of_a_detached_task(traces, run):
    class LostError(Exception):
        def __init__(self):
            lost.append(ref(self))

    class Lose(Task[None]):
        def work(self):
            raise LostError

    class Outer(Task[None]):
        def work(self):
            with cmdx.detached():
                Lose.execute()
            kept.append(copy_context())

    lost, kept = [], []
    run(Outer)
    traces.exporter.clear()

    assert lost[0]() is None


def test_failed_runs_that_are_detached_leave_nothing_either(traces):
    class Outer(Task[None]):
        def work(self):
            with cmdx.detached():
                Broken.execute_or_raise()

    def fail():
        Outer.execute()
        traces.exporter.clear()

    assert left_behind(fail, 20) == {}
