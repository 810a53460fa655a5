"""
What is not an ``Exception`` leaves a running task, after it was rolled back.

So does the halt of an outer task on its way through an inner run.
"""

from __future__ import annotations

import asyncio

import pytest

from cmdx import (
    FinishedTaskError,
    Task,
    around_execution,
    middleware,
    on_failed,
    on_success,
    retry_on,
    task_cancelled,
    task_executed,
    task_rolled_back,
)


class Leave(BaseException):
    """An interrupt of one's own."""


INTERRUPTS = [KeyboardInterrupt, SystemExit, GeneratorExit, Leave]

BEFORE_WORK = {
    "middleware gate",
    "middleware before",
    "deprecation gate",
    "deprecation",
    "callback gate",
    "before_execution",
    "before_validation",
    "around gate",
    "around before",
}


@pytest.fixture
def sent():
    """Collect the signals at the end of runs."""
    signals = []

    def receive(signal):
        def heard(sender, **payload):
            signals.append((signal.name, sender, payload))

        return heard

    ends = task_cancelled, task_executed, task_rolled_back
    receivers = {signal: receive(signal) for signal in ends}
    for signal, receiver in receivers.items():
        signal.connect(receiver)
    yield signals
    for signal, receiver in receivers.items():
        signal.disconnect(receiver)


def named(sent):
    return [name for name, _, _ in sent]


def undoing(task):
    """Return *task* with a rollback that is counted in the context."""

    class Undoing(task):
        def rollback(self):
            self.context.undone = self.context.get("undone", 0) + 1

    return Undoing


def raising(error):
    def end(_task):
        raise error

    return end


# -- anywhere -----------------------------------------------------------------------


@pytest.mark.usefixtures("instant")
def test_an_interrupt_anywhere_cancels_the_run(run, ending, request, sent, lines):
    place = request.node.callspec.params["ending"]
    error = Leave("now")
    context = {"events": []}

    with pytest.raises(Leave) as raised:
        run(undoing(ending(raising(error))), context)

    (payload,) = [payload for name, _, payload in sent if name == "task_cancelled"]
    result = payload["result"]
    assert raised.value is error
    assert "task_executed" not in named(sent)
    assert (result.status, result.stopped) == ("failed", "cancelled")
    assert (result.cause, result.reason) == (error, "[Leave] now")
    assert result.context.get("undone", 0) == (place not in BEFORE_WORK)
    assert result.rolled_back == (place not in BEFORE_WORK)
    ended = [line for line in lines if line["event"] == "task_executed"]
    assert [(line["status"], line["stopped"]) for line in ended] == [
        ("failed", "cancelled")
    ]
    assert ended[0]["log_level"] == "warning"


@pytest.mark.usefixtures("instant")
def test_a_halt_of_an_outer_task_anywhere_cancels_the_inner_run(
    run, ending, request, sent
):
    place = request.node.callspec.params["ending"]

    class Outer(Task[None]):
        def work(self):
            inner = undoing(ending(lambda _: self.skip("enough")))
            inner.execute()

    result = run(Outer)

    assert (result.status, result.reason) == ("skipped", "enough")
    outer, inner = result.chain
    assert outer == result
    assert (inner.status, inner.stopped) == ("failed", "cancelled")
    assert inner.parent == result
    assert inner.context.get("undone", 0) == (place not in BEFORE_WORK)
    ends = [name for name in named(sent) if name != "task_rolled_back"]
    assert ends == ["task_cancelled", "task_executed"]


def test_the_reason_of_an_inner_run_names_the_outer_task_that_was_halted(run):
    class Outer(Task[None]):
        def work(self):
            outer = self

            class Inner(Task[None]):
                def work(self):
                    outer.fail("no such order")

            Inner.execute()

    inner = run(Outer).chain[1]

    assert inner.reason.endswith("Outer was halted: no such order")


def test_a_halt_passes_through_several_runs_and_ends_the_one_it_belongs_to(run):
    undone = []

    class Outermost(Task[None]):
        def work(self):
            outermost = self

            class Inner(Task[None]):
                def work(self):
                    outermost.fail("enough")

                def rollback(self):
                    undone.append("inner")

            class Middle(Task[None]):
                def work(self):
                    Inner.execute()

                def rollback(self):
                    undone.append("middle")

            Middle.execute()

        def rollback(self):
            undone.append("outermost")

    result = run(Outermost)

    assert result.reason == "enough"
    assert undone == ["inner", "middle", "outermost"]
    assert [str(each.stopped) for each in result.chain] == [
        "halted",
        "cancelled",
        "cancelled",
    ]


# -- rolled back first --------------------------------------------------------------


@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_interrupted_task_is_rolled_back_before_it_is_announced(error, sent):
    class Pay(Task[None]):
        def work(self):
            raise error

        def rollback(self):
            self.context.refunded = True

    with pytest.raises(error):
        Pay.execute()

    assert named(sent) == ["task_rolled_back", "task_cancelled"]
    (_, sender, payload) = sent[-1]
    assert sender is Pay
    assert payload.keys() == {"task", "result"}
    assert type(payload["task"]) is Pay
    assert payload["result"].context.refunded


def test_an_interrupted_task_is_rolled_back_inside_of_the_wrappers(run):
    events = []

    def guard(_task):
        try:
            yield
        finally:
            events.append("middleware")

    @middleware(guard)
    class Pay(Task[None]):
        def work(self):
            raise KeyboardInterrupt

        def rollback(self):
            events.append("rollback")

        @around_execution
        def wrap(self):
            try:
                yield
            finally:
                events.append("around")

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    assert events == ["rollback", "around", "middleware"]


def test_an_interrupt_in_work_replaces_nothing(run, sent):
    class Pay(Task[None]):
        def work(self):
            raise KeyboardInterrupt

        @around_execution
        def wrap(self):
            yield

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    assert sent[-1][2]["result"].replaced is None


def test_a_cancelled_coroutine_is_rolled_back_before_it_is_announced(sent):
    class Pay(Task[None]):
        async def work(self):
            await asyncio.sleep(3600)

        async def rollback(self):
            await asyncio.sleep(0)
            self.context.refunded = True

    async def main():
        running = asyncio.create_task(Pay.aexecute())
        await asyncio.sleep(0)
        running.cancel("changed my mind")
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    assert named(sent) == ["task_rolled_back", "task_cancelled"]
    result = sent[-1][2]["result"]
    assert isinstance(result.cause, asyncio.CancelledError)
    assert (result.stopped, result.context.refunded) == ("cancelled", True)


def test_what_a_rollback_raises_then_is_kept_and_does_not_hide_the_interrupt(run, sent):
    class Pay(Task[None]):
        def work(self):
            raise KeyboardInterrupt

        def rollback(self):
            raise OSError("no answer")

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    result = sent[-1][2]["result"]
    assert named(sent) == ["task_rolled_back", "task_cancelled"]
    assert isinstance(result.rollback_error, OSError)
    assert isinstance(result.cause, KeyboardInterrupt)


def test_an_interrupt_in_a_rollback_is_announced_and_not_rolled_back_again(run, sent):
    class Pay(Task[None]):
        def work(self):
            self.fail("declined")

        def rollback(self):
            self.context.undone = self.context.get("undone", 0) + 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    result = sent[-1][2]["result"]
    assert named(sent) == ["task_rolled_back", "task_cancelled"]
    assert (result.stopped, result.context.undone) == ("cancelled", 1)
    assert result.replaced.reason == "declined"


def test_a_halt_in_a_rollback_is_kept_as_its_error_unless_an_outer_task_is_meant(run):
    class Inner(Task[None]):
        def work(self):
            self.fail("declined")

        def rollback(self):
            (self.context.get("outer") or self).skip("gone")

    class Outer(Task[None]):
        def work(self):
            Inner.execute({"outer": self})

    own, outer = run(Inner), run(Outer)

    assert (own.status, own.reason) == ("failed", "declined")
    assert "was halted: gone" in str(own.rollback_error)
    assert (outer.status, outer.reason) == ("skipped", "gone")
    assert outer.chain[1].stopped == "cancelled"


# -- what is kept of the run --------------------------------------------------------


def test_an_interrupt_after_a_failure_keeps_it_as_replaced(run, sent):
    class Pay(Task[None]):
        def work(self):
            self.fail("declined")

        @on_failed
        def page(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    result = sent[-1][2]["result"]
    assert result.reason == "[KeyboardInterrupt]"
    assert result.replaced.reason == "declined"


def test_an_interrupt_after_a_success_leaves_no_value(run, sent):
    class Pay(Task[str]):
        def work(self):
            return "paid"

        @on_success
        def thank(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    result = sent[-1][2]["result"]
    assert result.replaced.status == "success"
    assert result.value_or("none") == "none"


def test_an_interrupt_keeps_the_attempts_before_it(run, sent):
    @retry_on(TimeoutError, limit=3, delay=0)
    class Pay(Task[None]):
        def work(self):
            raise (TimeoutError, KeyboardInterrupt)[self.attempt]

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    result = sent[-1][2]["result"]
    assert (result.retries, result.stopped) == (1, "cancelled")
    assert isinstance(result.attempts[0].error, TimeoutError)


def test_cancelling_a_pause_ends_the_run_at_once(sent):
    @retry_on(TimeoutError, delay=3600)
    class Pay(Task[None]):
        async def work(self):
            raise TimeoutError

        def rollback(self):
            self.context.refunded = True

    async def main():
        running = asyncio.create_task(Pay.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    result = sent[-1][2]["result"]
    assert (result.retries, result.stopped) == (0, "cancelled")
    assert result.context.refunded


def test_an_inner_run_that_was_interrupted_is_in_the_chain(run, sent):
    class Inner(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    class Outer(Task[None]):
        def work(self):
            Inner.execute()

    with pytest.raises(KeyboardInterrupt):
        run(Outer)

    outer = sent[-1][2]["result"]
    assert named(sent) == ["task_cancelled", "task_cancelled"]
    assert [each.stopped for each in outer.chain] == ["cancelled", "cancelled"]
    assert outer.chain[1].task is Inner


def test_a_task_that_catches_the_interrupt_of_its_child_goes_on(run):
    class Inner(Task[None]):
        def work(self):
            raise SystemExit(3)

    class Outer(Task[str]):
        def work(self):
            try:
                Inner.execute()
            except SystemExit as leaving:
                return f"code {leaving.code}"

    result = run(Outer)

    assert result.value == "code 3"
    assert result.chain[1].stopped == "cancelled"


def test_an_interrupted_task_has_ended(run, sent):
    class Pay(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    task = sent[-1][2]["task"]
    with pytest.raises(FinishedTaskError, match="has ended"):
        task.fail("too late")
    with pytest.raises(FinishedTaskError, match="already run"):
        asyncio.run(task.arun())


def test_nothing_of_an_interrupted_run_is_left_for_the_next(run):
    class Pay(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    class Fine(Task[None]):
        def work(self):
            pass

    with pytest.raises(KeyboardInterrupt):
        run(Pay)

    assert run(Fine).root


def test_what_a_receiver_of_the_signal_raises_does_not_hide_the_interrupt(run, caplog):
    def broken(_sender, **_):
        raise OSError("no pager")

    class Pay(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    with task_cancelled.connected_to(broken), pytest.raises(KeyboardInterrupt):
        run(Pay)

    assert "a receiver of task_cancelled raised" in caplog.text
