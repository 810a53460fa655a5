"""What the span of a run says about its end: errors, rollbacks and the reason."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.trace import StatusCode

import cmdx
from cmdx import RecordedError, Task, Workflow, middleware, retry_on


class Good(Task[None]):
    def work(self): ...


class Declined(Task[None]):
    def work(self):
        self.fail("card declined")


class Broken(Task[None]):
    def work(self):
        raise ConnectionError("connection refused")


def test_a_failure_is_an_error_with_its_reason(traces, run):
    run(Declined)
    span = traces.span("Declined")

    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "card declined"
    assert span.attributes["cmdx.status"] == "failed"
    assert span.attributes["cmdx.reason"] == "card declined"
    assert span.events == ()
    assert "cmdx.tags" not in span.attributes


def test_an_exception_is_recorded_with_its_traceback(traces, run):
    run(Broken)
    span = traces.span("Broken")
    (event,) = span.events

    assert span.status.description == "[ConnectionError] connection refused"
    assert span.attributes["error.type"] == "ConnectionError"
    assert event.name == "exception"
    assert event.attributes["exception.type"] == "ConnectionError"
    assert event.attributes["exception.message"] == "connection refused"
    assert "in work" in event.attributes["exception.stacktrace"]


def test_an_exception_is_recorded_where_it_was_raised_alone(traces, run):
    class Outer(Task[None]):
        def work(self):
            self.throw(Broken.execute())

    class Strict(Task[None]):
        def work(self):
            Outer.execute().or_raise()

    run(Strict)
    recorded = {name: len(traces.span(name).events) for name in traces.names()}

    assert recorded == {"Broken": 1, "Outer": 0, "Strict": 0}
    assert traces.span("Strict").status.status_code is StatusCode.ERROR


class BrokenLater(Task[None]):
    async def work(self):
        await asyncio.sleep(0)
        raise ConnectionError("connection refused")


def test_an_exception_that_is_passed_on_is_recorded_where_it_came_from(traces, run):
    class Middle(Task[None]):
        def work(self):
            Broken.execute_or_raise()

    class Outer(Task[None]):
        def work(self):
            Good.execute()
            Middle.execute_or_raise()

    result = run(Outer)
    failed = {name: traces.span(name) for name in ("Broken", "Middle", "Outer")}
    recorded = {name: len(span.events) for name, span in failed.items()}

    assert isinstance(result.cause, ConnectionError)
    assert recorded == {"Broken": 1, "Middle": 0, "Outer": 0}
    for span in failed.values():
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "[ConnectionError] connection refused"
        assert span.attributes["error.type"] == "ConnectionError"


def test_an_exception_of_a_detached_task_is_recorded_where_it_was_raised(traces, run):
    class Middle(Task[None]):
        def work(self):
            with cmdx.detached():
                Broken.execute().or_raise()

    class Outer(Task[None]):
        def work(self):
            with cmdx.detached():
                Middle.execute_or_raise()

    run(Outer)
    recorded = {
        span.name.rpartition(".")[2]: len(span.events) for span in traces.spans()
    }

    assert recorded == {"Broken": 1, "Middle": 0, "Outer": 0}
    assert traces.span("Outer").attributes["error.type"] == "ConnectionError"


def test_an_exception_that_is_raised_after_other_tasks_is_not_recorded_again(
    traces, run
):
    class BrokenToo(Broken):
        pass

    class Outer(Task[None]):
        def work(self):
            with cmdx.detached():
                failed = Broken.execute()
                Good.execute()
            BrokenToo.execute()
            failed.or_raise()

    run(Outer)

    assert len(traces.span("Broken").events) == 1
    assert traces.span("Outer").events == ()


def test_tasks_beside_each_other_record_an_exception_that_they_share(traces):
    shared = ConnectionError("the pool is closed")

    class First(Task[None]):
        async def work(self):
            raise shared

    class Second(Task[None]):
        async def work(self):
            await others
            raise shared

    class Gather(Task[None]):
        async def work(self):
            nonlocal others
            others = asyncio.create_task(First.aexecute())
            await Second.aexecute()

    others = None
    asyncio.run(Gather.aexecute())

    assert len(traces.span("First").events) == 1
    assert len(traces.span("Second").events) == 1


def test_of_tasks_that_fail_at_once_each_exception_is_recorded_once(traces):
    class Gather(Task[None]):
        async def work(self):
            runs = [BrokenLater.aexecute_or_raise() for _ in range(3)]
            failures = await asyncio.gather(*runs, return_exceptions=True)
            raise failures[0]

    asyncio.run(Gather.aexecute())

    assert traces.names() == ["BrokenLater"] * 3 + ["Gather"]
    assert [len(span.events) for span in traces.spans()] == [1, 1, 1, 0]


def test_an_exception_that_is_raised_from_another_is_recorded_too(traces, run):
    class Wrap(Task[None]):
        def work(self):
            try:
                Broken.execute_or_raise()
            except ConnectionError as error:
                raise LookupError("no rate") from error

    run(Wrap)

    assert len(traces.span("Broken").events) == 1
    assert len(traces.span("Wrap").events) == 1


def test_an_exception_that_two_tasks_raise_is_recorded_on_both(traces, run):
    refused = ConnectionError("connection refused")

    class First(Task[None]):
        def work(self):
            raise refused

    class Second(First): ...

    class Outer(Task[None]):
        def work(self):
            First.execute()
            Second.execute()

    run(Outer)

    assert len(traces.span("First").events) == 1
    assert len(traces.span("Second").events) == 1


def test_an_interrupt_is_recorded_once(traces, run):
    class Stop(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    class Outer(Task[None]):
        def work(self):
            Stop.execute()

    with pytest.raises(KeyboardInterrupt):
        run(Outer)

    assert len(traces.span("Stop").events) == 1
    assert traces.span("Outer").events == ()
    assert traces.span("Outer").attributes["error.type"] == "KeyboardInterrupt"


class PaymentError(Exception):
    class Refused(Exception): ...


@pytest.mark.parametrize("kind", [PaymentError, PaymentError.Refused])
@pytest.mark.usefixtures("instant")
def test_classes_of_exceptions_have_their_full_name(traces, run, kind):
    @retry_on(PaymentError, PaymentError.Refused, limit=1)
    class Pay(Task[None]):
        def work(self):
            raise kind("card declined")

    run(Pay)
    span = traces.span("Pay")
    name = f"{__name__}.{kind.__qualname__}"

    assert span.attributes["error.type"] == name
    assert [event.attributes["exception.type"] for event in span.events] == [name] * 2


def test_an_exception_of_another_process_has_the_name_it_had_there(traces, run):
    class Wait(Task[None]):
        def work(self):
            raise RecordedError("Timeout", "too slow")

    run(Wait)
    span = traces.span("Wait")

    assert span.attributes["error.type"] == "Timeout"
    assert span.events[0].attributes["exception.type"] == "Timeout"
    assert span.events[0].attributes["exception.stacktrace"] == "Timeout: too slow"


def test_a_failure_without_an_exception_has_a_fault_as_its_type(traces, run):
    class Outer(Task[None]):
        def work(self):
            self.throw(Declined.execute())

    run(Outer)

    types = [span.attributes["error.type"] for span in traces.spans()]
    assert types == [f"{__name__}.Declined.Fault"] * 2


def test_a_skip_is_no_error(traces, run):
    class Pay(Task[None]):
        def work(self):
            self.skip("nothing to pay")

    run(Pay)
    span = traces.span("Pay")

    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes["cmdx.status"] == "skipped"
    assert span.attributes["cmdx.reason"] == "nothing to pay"


def test_inputs_that_are_refused_are_a_failure_and_not_on_the_span(traces, run):
    class Pay(Task[None]):
        amount: int
        card: str

        def work(self): ...

    run(Pay, {"amount": "secret-1", "card": "secret-2"})
    span = traces.span("Pay")

    assert span.status.description == "amount must be a whole number"
    assert "cmdx.stopped" not in span.attributes
    assert "secret" not in span.to_json()


def test_a_rollback_is_noted(traces, run):
    class Book(Task[None]):
        def work(self):
            self.fail("sold out")

        def rollback(self): ...

    run(Book)

    assert traces.span("Book").attributes["cmdx.rolled_back"] is True


def rollbacks_on(span):
    return [
        dict(event.attributes) for event in span.events if event.name == "cmdx.rollback"
    ]


def test_a_rollback_is_an_event_of_its_own_span(traces, run):
    class Book(Task[None]):
        def work(self):
            self.fail("sold out")

        def rollback(self): ...

    result = run(Book)

    assert rollbacks_on(traces.span("Book")) == [
        {
            "cmdx.task": Book.__qualname__,
            "cmdx.tid": result.tid,
            "cmdx.status": "success",
        }
    ]


class Reserve(Task[None]):
    def work(self): ...

    def rollback(self): ...


class ReserveLater(Task[None]):
    async def work(self): ...

    async def rollback(self):
        await asyncio.sleep(0)


class Charge(Task[None]):
    def work(self): ...

    def rollback(self):
        raise PaymentError("refund refused")


@pytest.mark.parametrize("first", [Reserve, ReserveLater])
def test_steps_that_are_rolled_back_are_events_of_the_workflow(traces, first):
    class Prepare(Workflow[None]):
        steps = (first,)

    class Checkout(Workflow[None]):
        steps = (Prepare, Charge, Declined)

    asyncio.run(Checkout.aexecute())

    assert rollbacks_on(traces.span("Checkout")) == [
        {
            "cmdx.task": "Charge",
            "cmdx.tid": traces.span("Charge").attributes["cmdx.tid"],
            "cmdx.status": "failed",
            "exception.type": f"{__name__}.PaymentError",
            "exception.message": "refund refused",
        },
        {
            "cmdx.task": first.__qualname__,
            "cmdx.tid": traces.span(first.__name__).attributes["cmdx.tid"],
            "cmdx.status": "success",
        },
    ]
    assert rollbacks_on(traces.span("Prepare")) == []


def test_the_last_outcome_counts(traces, run):
    def spoil(_task):
        yield
        raise RuntimeError("spoilt")

    @middleware(spoil)
    class Cook(Task[None]):
        def work(self): ...

    run(Cook)

    assert traces.span("Cook").status.description == "[RuntimeError] spoilt"


def test_a_run_that_a_middleware_ends_has_a_span(traces, run):
    def refuse(task):
        task.skip("closed")
        yield

    @middleware(refuse)
    class Enter(Task[None]):
        def work(self): ...

    run(Enter)

    assert traces.span("Enter").attributes["cmdx.reason"] == "closed"


class Wordless(ValueError):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_exception_without_a_text_is_recorded(traces, run):
    class Raise(Task[None]):
        def work(self):
            raise Wordless

    run(Raise)
    (event,) = traces.span("Raise").events

    assert event.attributes["exception.type"].endswith("Wordless")
    assert event.attributes["exception.message"] == ""
    assert "in work" in event.attributes["exception.stacktrace"]


SURROGATE = "caf\udce9"
"""A file name that is not UTF-8, as Python reads it."""


def test_all_texts_of_a_span_can_be_encoded(traces, run):
    @retry_on(OSError, limit=1, delay=0, rule=SURROGATE)
    class Read(Task[None], tags=(SURROGATE,), correlation_id=lambda _task: SURROGATE):
        def work(self):
            raise OSError(SURROGATE)

        def rollback(self):
            raise LookupError(SURROGATE)

    run(Read)
    span = traces.span("Read")
    facts = [span.attributes, *(event.attributes for event in span.events)]
    texts = [span.status.description, *span.attributes["cmdx.tags"]]
    texts += [fact for known in facts for fact in known.values() if type(fact) is str]

    assert [event.name for event in span.events] == [
        "cmdx.retry",
        "cmdx.rollback",
        "exception",
    ]
    assert "[OSError] caf\ufffd" in texts
    for text in texts:
        text.encode()
