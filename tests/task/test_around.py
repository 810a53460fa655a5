"""Around hooks: generator methods around inputs, work and outputs."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from cmdx import (
    CallbackError,
    Outcome,
    Status,
    Task,
    around_execution,
    before_execution,
    middleware,
    on_failed,
    on_skipped,
    on_success,
    retry_on,
)


class Noting(Task[str]):
    """Note down what happens."""

    def note(self, event):
        self.context.setdefault("events", []).append(event)

    def work(self):
        self.note("work")
        return "done"


def test_an_around_hook_runs_around_work(run):
    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            self.note("opens")
            yield
            self.note("closes")

    result = run(Wrapped)

    assert result.value == "done"
    assert result.context.events == ["opens", "work", "closes"]


def test_an_around_hook_runs_once_whatever_the_retries(run):
    @retry_on(TimeoutError, limit=2, delay=0)
    class Wrapped(Noting):
        def work(self):
            self.note(f"work {self.attempt}")
            raise TimeoutError

        def rollback(self):
            self.note("rollback")

        @around_execution
        def wrap(self):
            self.note("opens")
            yield
            self.note("closes")

    assert run(Wrapped).context.events == [
        "opens",
        "work 0",
        "work 1",
        "work 2",
        "rollback",
        "closes",
    ]


def test_its_yield_evaluates_to_the_outcome_of_a_success(run):
    outcomes = []

    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            outcomes.append((yield))

    run(Wrapped)

    (outcome,) = outcomes
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.reason) == (Status.SUCCESS, None)


def test_its_yield_evaluates_to_the_outcome_of_a_halt(run):
    outcomes = []

    class Wrapped(Task[None]):
        def work(self):
            self.skip("already paid", code=1)

        @around_execution
        def wrap(self):
            outcomes.append((yield))

    run(Wrapped)

    (outcome,) = outcomes
    assert (outcome.status, outcome.reason) == (Status.SKIPPED, "already paid")
    assert outcome.metadata == {"code": 1}


def test_its_yield_evaluates_to_the_outcome_of_an_exception_and_never_raises_it(run):
    error = ValueError("bad order")
    outcomes = []

    class Wrapped(Task[None]):
        def work(self):
            raise error

        @around_execution
        def wrap(self):
            outcomes.append((yield))

    run(Wrapped)

    assert outcomes[0].cause is error


def test_its_yield_evaluates_to_the_outcome_of_errors(run):
    outcomes = []

    class Wrapped(Task[None]):
        def work(self):
            self.errors.add("name", "is too long")

        @around_execution
        def wrap(self):
            outcomes.append((yield))

    run(Wrapped)

    assert (outcomes[0].status, outcomes[0].reason) == ("failed", "name is too long")


def test_around_hooks_nest_in_the_order_they_are_defined_ancestors_outside(run):
    class Parent(Noting):
        @around_execution
        def zebra(self):
            self.note("zebra opens")
            yield
            self.note("zebra closes")

    class Child(Parent):
        @around_execution
        def mole(self):
            self.note("mole opens")
            yield
            self.note("mole closes")

        @around_execution
        def ant(self):
            self.note("ant opens")
            yield
            self.note("ant closes")

    assert run(Child).context.events == [
        "zebra opens",
        "mole opens",
        "ant opens",
        "work",
        "ant closes",
        "mole closes",
        "zebra closes",
    ]


def test_an_override_keeps_the_hook_and_none_removes_it(run):
    class Parent(Noting):
        @around_execution
        def wrap(self):
            self.note("parent")
            yield

    class Child(Parent):
        def wrap(self):
            self.note("child")
            yield from super().wrap()

    class Bare(Parent):
        wrap = None

    assert run(Child).context.events == ["child", "parent", "work"]
    assert run(Bare).context.events == ["work"]


@pytest.mark.parametrize(
    ("gates", "opened"),
    [
        ({"if_": "live"}, {True}),
        ({"unless": "live"}, {False}),
        ({"if_": lambda task: task.context.live}, {True}),
        ({"if_": False}, set()),
        ({}, {True, False}),
    ],
)
def test_an_around_hook_can_be_gated(run, gates, opened):
    class Wrapped(Noting):
        def live(self):
            return self.context.live

        @around_execution(**gates)
        def wrap(self):
            self.note("opens")
            yield

    def events(live):
        return run(Wrapped, live=live).context.events

    assert {live for live in (True, False) if "opens" in events(live)} == opened
    assert events(live=True)[-1] == "work"


# -- ending the run -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda task: task.succeed("early", value="early"), "success"),
        (lambda task: task.skip("early"), "skipped"),
        (lambda task: task.fail("early"), "failed"),
    ],
)
def test_a_halt_before_the_yield_keeps_everything_inside_from_running(run, end, status):
    class Wrapped(Noting):
        def rollback(self):
            self.note("rollback")

        @around_execution
        def outer(self):
            self.note("outer opens")
            outcome = yield
            self.note(f"outer sees {outcome.status}")

        @around_execution
        def halt(self):
            end(self)
            yield

        @around_execution
        def inner(self):
            self.note("inner opens")
            yield

    result = run(Wrapped)

    assert (result.status, result.reason) == (status, "early")
    assert result.context.events == ["outer opens", f"outer sees {status}"]


def test_an_exception_before_the_yield_fails_the_task(run):
    error = ValueError("bad order")

    class Wrapped(Noting):
        @around_execution
        def refuse(self):
            raise error
            yield

        @on_failed
        def page(self):
            self.note("page")

    result = run(Wrapped)

    assert result.cause is error
    assert result.context.events == ["page"]


def test_a_halt_after_the_yield_replaces_the_outcome(run):
    class Wrapped(Noting):
        @around_execution
        def outer(self):
            outcome = yield
            self.note(f"outer sees {outcome.reason}")

        @around_execution
        def halt(self):
            yield
            self.skip("second thoughts")

        @on_success
        def thank(self):
            self.note("thank")

        @on_skipped
        def shrug(self):
            self.note("shrug")

    result = run(Wrapped)

    assert (result.status, result.reason) == ("skipped", "second thoughts")
    assert result.context.events == ["work", "outer sees second thoughts", "shrug"]


def test_an_exception_after_the_yield_fails_the_task(run):
    error = ValueError("bad order")

    class Wrapped(Noting):
        @around_execution
        def check(self):
            yield
            raise error

    result = run(Wrapped)

    assert result.cause is error
    assert result.reason == "[ValueError] bad order"
    assert result.retries == 0


def test_a_late_outcome_keeps_the_attempts_before_it(run):
    @retry_on(TimeoutError, limit=1, delay=0)
    class Wrapped(Task[None]):
        def work(self):
            raise TimeoutError

        @around_execution
        def forgive(self):
            yield
            self.succeed("never mind", value="nothing")

    result = run(Wrapped)

    assert (result.status, result.value) == ("success", "nothing")
    assert (result.retries, len(result.attempts)) == (1, 2)


def test_a_gate_that_halts_keeps_everything_inside_from_running(run):
    class Wrapped(Noting):
        def ready(self):
            self.skip("not ready")

        @around_execution(if_="ready")
        def wrap(self):
            self.note("opens")
            yield

    result = run(Wrapped, events=[])

    assert result.reason == "not ready"
    assert result.context.events == []


# -- misuse -------------------------------------------------------------------------


def test_not_yielding_is_refused(run):
    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            if self.context.get("never"):
                yield

    with pytest.raises(CallbackError, match=r"wrap did not yield.*one yield"):
        run(Wrapped)


def test_a_method_that_is_no_generator_is_refused(run):
    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            return None

    with pytest.raises(CallbackError, match="wrap did not yield"):
        run(Wrapped)


def test_yielding_twice_is_refused_and_the_generator_is_closed(run):
    events = []

    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            try:
                yield
                yield
            finally:
                events.append("closed")

    with pytest.raises(CallbackError, match=r"wrap yielded more than once.*one yield"):
        run(Wrapped)
    assert events == ["closed"]


def test_misuse_passes_through_the_hooks_and_middlewares_around_it(run):
    events = []

    def watch(_task):
        try:
            yield
        except CallbackError:
            events.append("middleware")
            raise

    @middleware(watch)
    class Wrapped(Noting):
        @around_execution
        def outer(self):
            try:
                yield
            except CallbackError:
                events.append("outer")
                raise

        @around_execution
        def forgetful(self):
            return None

    with pytest.raises(CallbackError, match="forgetful"):
        run(Wrapped)
    assert events == ["outer", "middleware"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_runs_the_finally_blocks_from_the_inside_out(run, error):
    events = []

    class Wrapped(Task[None]):
        def work(self):
            raise error

        @around_execution
        def outer(self):
            try:
                yield
                events.append("never")
            finally:
                events.append("outer")

        @around_execution
        def inner(self):
            try:
                yield
                events.append("never")
            finally:
                events.append("inner")

    with pytest.raises(error):
        run(Wrapped)
    assert events == ["inner", "outer"]


# -- async --------------------------------------------------------------------------


def test_an_async_generator_method_is_an_around_hook_of_async_runs():
    class Wrapped(Noting):
        @around_execution
        def plain(self):
            self.note("plain opens")
            yield
            self.note("plain closes")

        @around_execution
        async def awaiting(self):
            await asyncio.sleep(0)
            self.note("awaiting opens")
            outcome = yield
            await asyncio.sleep(0)
            self.note(f"awaiting sees {outcome.status}")

    assert asyncio.run(Wrapped.aexecute()).context.events == [
        "plain opens",
        "awaiting opens",
        "work",
        "awaiting sees success",
        "plain closes",
    ]


def test_an_async_around_hook_may_halt_before_and_after_its_yield():
    class Wrapped(Noting):
        @around_execution
        async def wrap(self):
            await asyncio.sleep(0)
            if self.context.early:
                self.skip("early")
            yield
            await asyncio.sleep(0)
            self.fail("late")

    assert asyncio.run(Wrapped.aexecute(early=True)).reason == "early"
    assert asyncio.run(Wrapped.aexecute(early=False)).reason == "late"


def test_an_async_around_hook_that_does_not_yield_once_is_refused():
    class Wrapped(Noting):
        @around_execution
        async def wrap(self):
            for _ in range(self.context.times):
                yield

    class Forgetful(Noting):
        @around_execution
        async def wrap(self):
            await asyncio.sleep(0)

    with pytest.raises(CallbackError, match="did not yield"):
        asyncio.run(Wrapped.aexecute(times=0))
    with pytest.raises(CallbackError, match="more than once"):
        asyncio.run(Wrapped.aexecute(times=2))
    with pytest.raises(CallbackError, match="did not yield"):
        asyncio.run(Forgetful.aexecute())
    assert asyncio.run(Wrapped.aexecute(times=1)).success


def test_cancelling_runs_the_finally_block_of_an_async_around_hook():
    events = []

    class Wrapped(Task[None]):
        async def work(self):
            await asyncio.sleep(3600)

        @around_execution
        async def wrap(self):
            try:
                yield
            finally:
                await asyncio.sleep(0)
                events.append("closed")

    async def main():
        running = asyncio.create_task(Wrapped.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    assert events == ["closed"]


# -- with other hooks ---------------------------------------------------------------


def test_callbacks_before_and_after_run_outside(run):
    class Wrapped(Noting):
        @on_success
        def thank(self):
            self.note("thank")

        @around_execution
        def wrap(self):
            self.note("opens")
            yield
            self.note("closes")

        @before_execution
        def prepare(self):
            self.note("prepare")

    assert run(Wrapped).context.events == [
        "prepare",
        "opens",
        "work",
        "closes",
        "thank",
    ]


@pytest.mark.parametrize("was_run", [True, False])
def test_an_around_hook_can_be_patched(was_run):
    class Wrapped(Noting):
        @around_execution
        def wrap(self):
            self.note("opens")
            yield

    def replacement(task):
        task.note("patched")
        yield

    if was_run:
        Wrapped.execute()
    with patch.object(Wrapped, "wrap", replacement):
        assert Wrapped.execute().context.events == ["patched", "work"]
    assert Wrapped.execute().context.events == ["opens", "work"]
