"""What must hold even if logging, cancelling or odd classes interfere."""

from __future__ import annotations

import asyncio
import contextvars

import pytest
import structlog
from garbage import left_behind

import cmdx
from cmdx import (
    Task,
    Workflow,
    deadline,
    group,
    middleware,
    on_failed,
    output,
    remaining,
    retry_on,
)


@pytest.fixture(autouse=True)
def structlog_as_it_was():
    yield
    structlog.reset_defaults()


def test_a_workflow_is_one_also_behind_a_mixin_that_is_a_task():
    done = []

    class Audited(Task[None]):
        pass

    class First(Task[None]):
        def work(self):
            done.append("first")

        def rollback(self):
            done.append("undone")

    class Second(Task[None]):
        def work(self):
            self.fail("no")

    class Flow(Audited, Workflow[None]):
        steps = (First, group(Second, if_=lambda _: True))

    result = Flow.execute()

    assert result.type == "Workflow"
    assert result.reason == "no"
    assert done == ["first", "undone"]


def test_logging_that_raises_does_not_stop_a_rollback(caplog):
    undone = []

    def raising(_logger, _method, _event):
        raise OSError("disk full")

    class First(Task[None]):
        def work(self):
            pass

        def rollback(self):
            undone.append("first")

    class Second(First):
        def rollback(self):
            raise ValueError("stuck")

    class Last(Task[None]):
        def work(self):
            self.fail("no")

    class Flow(Workflow[None]):
        steps = (First, Second, Last)

    structlog.configure(processors=[raising])
    result = Flow.execute()

    assert result.reason == "no"
    assert undone == ["first"]
    assert f"the log line of {Second!r} failed" in caplog.text


def get_stuck(_task):
    raise ValueError("stuck")


def skip_itself(task):
    task.skip("stuck")


@pytest.mark.parametrize("end", [get_stuck, skip_itself])
def test_cancelling_is_not_lost_when_the_rollback_raises(end):
    async def main():
        begun = asyncio.Event()

        class Pay(Task[None]):
            async def work(self):
                self.fail("no")

            async def rollback(self):
                begun.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                end(self)

        seen = []
        cmdx.task_cancelled.connect(keep := lambda _, result, **__: seen.append(result))
        running = asyncio.create_task(Pay.aexecute())
        await begun.wait()
        running.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await running
        cmdx.task_cancelled.disconnect(keep)
        return seen

    (result,) = asyncio.run(main())

    assert result.stopped == "cancelled"
    assert str(result.rollback_error).endswith("stuck")


@pytest.mark.usefixtures("instant")
def test_attempts_show_errors_with_any_attributes():
    class Odd(Exception):
        passed_on = True

    @retry_on(Odd, limit=1)
    class Fetch(Task[None]):
        def work(self):
            raise Odd

    assert [type(attempt.error) for attempt in Fetch.execute().attempts] == [Odd, Odd]


def test_an_entry_of_a_value_that_is_missing_leaves_the_line():
    class Count(Task[dict], log_fields=("value.total",)):
        def work(self):
            self.fail("no")

    with structlog.testing.capture_logs() as lines:
        Count.execute()

    assert lines[0]["value.total"] is None


def test_outputs_are_not_verified_when_errors_were_collected(run):
    class Check(Task[None]):
        total: int = output()

        def work(self):
            self.errors.add("cart", "is empty")

    result = run(Check)

    assert result.errors.to_dict() == {"cart": ["is empty"]}
    assert result.reason == "cart is empty"


def test_a_run_that_is_closed_elsewhere_leaves_the_deadline_there():
    @retry_on(ValueError, deadline=60)
    class Slow(Task[None]):
        async def work(self):
            await asyncio.sleep(0)

    async def main():
        coroutine = Slow.aexecute()
        contextvars.copy_context().run(coroutine.send, None)
        with deadline(5):
            coroutine.close()
            return remaining()

    assert asyncio.run(main()) <= 5


def test_a_run_that_is_closed_elsewhere_leaves_the_running_task_there():
    class Pending(Task[None]):
        async def work(self):
            await asyncio.sleep(0)

    class Inner(Task[None]):
        def work(self): ...

    class Closing(Task[int]):
        def work(self):
            self.context.pending.close()
            return Inner.execute().depth

    async def main():
        pending = Pending.aexecute()
        contextvars.copy_context().run(pending.send, None)
        return Closing.execute(pending=pending)

    assert asyncio.run(main()).value == 1


def test_a_block_that_is_left_elsewhere_leaves_the_deadline_there():
    block = deadline(60)
    contextvars.copy_context().run(block.__enter__)

    with deadline(5):
        block.__exit__(None, None, None)
        left = remaining()

    assert left is not None
    assert left <= 5
    assert remaining() is None


def test_a_replaced_outcome_with_an_origin_leaves_no_cycle():
    class Child(Task[None]):
        def work(self):
            self.fail("child bad")

    class Parent(Task[None]):
        def work(self):
            self.throw(Child.execute())

        @on_failed
        def page(self):
            raise OSError("no pager")

    assert Parent.execute().replaced.reason == "child bad"
    assert left_behind(Parent.execute, 10) == {}


def test_a_question_about_a_result_that_raises_is_not_a_failed_call():
    calls = []

    class Fetch(Task[int]):
        def work(self):
            return self.retry(lambda: calls.append(1), retry_result=lambda _: 1 / 0)

    result = Fetch.execute()

    assert isinstance(result.cause, ZeroDivisionError)
    assert calls == [1]


def test_an_interrupted_rollback_leaves_no_cycle():
    class First(Task[None]):
        def work(self):
            pass

        def rollback(self):
            raise KeyboardInterrupt

    class Last(Task[None]):
        def work(self):
            self.fail("no")

    class Flow(Workflow[None]):
        steps = (First, Last)

    def interrupted():
        with pytest.raises(KeyboardInterrupt):
            Flow.execute()

    assert left_behind(interrupted, 10) == {}


def test_a_middleware_of_a_class_that_is_mixed_in_is_still_around_it():
    seen = []

    def look(_):
        result = yield
        seen.append(result.status)

    @middleware(look)
    class Audited(Task[None]):
        pass

    class Step(Task[None]):
        def work(self):
            pass

    class Flow(Audited, Workflow[None]):
        steps = (Step,)

    Flow.execute()

    assert seen == ["success"]


def test_middlewares_are_not_opened_when_the_correlation_id_raises(run):
    opened = []

    def look(_):
        opened.append(True)
        yield

    def raising():
        raise LookupError("no request")

    @middleware(look)
    class Fetch(Task[None], correlation_id=raising):
        def work(self):
            opened.append(True)

    result = run(Fetch)

    assert result.reason == "[LookupError] no request"
    assert opened == []
