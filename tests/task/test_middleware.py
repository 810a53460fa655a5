"""
Middlewares: generator functions around whole runs.

What they have in common with around hooks is in ``test_wrappers.py``.
"""

from __future__ import annotations

import asyncio
import functools

import pytest
from noting import nested, noting

from cmdx import (
    DefinitionError,
    Result,
    Task,
    around_execution,
    before_execution,
    middleware,
    on_failed,
    on_skipped,
    on_success,
    retry_on,
    task_started,
)


class Noting(Task[str]):
    """Note down what happens."""

    def note(self, event):
        self.context.setdefault("events", []).append(event)

    def work(self):
        self.note("work")
        return "done"


# -- what it is told ----------------------------------------------------------------


def test_its_yield_gives_it_the_finished_result(run):
    seen = []

    def watch(_task):
        result = yield
        seen.append((result, result.value, result.duration, result.cid))

    @middleware(watch)
    class Wrapped(Noting):
        pass

    result = run(Wrapped, name="Ada")

    ((told, value, duration, cid),) = seen
    assert isinstance(told, Result)
    assert told == result
    assert told.context is result.context
    assert (value, cid) == ("done", result.cid)
    assert 0 < duration <= result.duration


def test_a_middleware_is_told_about_retries_and_rollback(run):
    seen = []

    def watch(_task):
        result = yield
        seen.append((result.retries, result.rolled_back, result.cause))

    error = TimeoutError()

    @retry_on(TimeoutError, limit=2, delay=0)
    @middleware(watch)
    class Undo(Task[None]):
        def work(self):
            raise error

        def rollback(self):
            pass

    run(Undo)

    assert seen == [(2, True, error)]


def test_a_middleware_sees_what_a_completion_callback_made_of_the_outcome(run):
    seen = []

    def watch(_task):
        seen.append((yield).reason)

    @middleware(watch)
    class Late(Noting):
        @on_success
        def regret(self):
            self.fail("late")

    run(Late)

    assert seen == ["late"]


def test_what_a_middleware_notes_down_is_on_the_result(run):
    def annotate(task):
        task.metadata["before"] = 1
        yield
        task.metadata["after"] = 2

    @middleware(annotate)
    class Wrapped(Noting):
        pass

    assert run(Wrapped).metadata == {"before": 1, "after": 2}


# -- nesting ------------------------------------------------------------------------


def test_the_first_middleware_is_the_outermost(run):
    @middleware(noting("first"), noting("second"), noting("third"))
    class Wrapped(Noting):
        pass

    assert run(Wrapped).context.events == nested("first", "second", "third")


def test_of_stacked_decorators_the_upper_one_is_outside(run):
    @middleware(noting("upper"))
    @middleware(noting("middle"))
    @middleware(noting("lower"))
    class Wrapped(Noting):
        pass

    assert run(Wrapped).context.events == nested("upper", "middle", "lower")


def test_inherited_middlewares_are_outside(run):
    @middleware(noting("grandparent"))
    class Grandparent(Noting):
        pass

    @middleware(noting("parent 1"), noting("parent 2"))
    class Parent(Grandparent):
        pass

    @middleware(noting("upper"))
    @middleware(noting("lower"))
    class Child(Parent):
        pass

    assert run(Child).context.events == nested(
        "grandparent", "parent 1", "parent 2", "upper", "lower"
    )
    assert run(Grandparent).context.events == nested("grandparent")


def test_siblings_do_not_share_their_middlewares(run):
    class Parent(Noting):
        pass

    @middleware(noting("left"))
    class Left(Parent):
        pass

    class Right(Parent):
        pass

    assert run(Left).context.events == nested("left")
    assert run(Right).context.events == nested()
    assert run(Parent).context.events == nested()


def test_a_middleware_added_after_the_first_run_is_seen_by_class_and_child(run):
    class Parent(Noting):
        pass

    class Child(Parent):
        pass

    run(Parent)
    run(Child)
    middleware(noting("late"))(Parent)

    assert run(Parent).context.events == nested("late")
    assert run(Child).context.events == nested("late")


def test_middlewares_are_outside_of_callbacks_and_around_hooks(run):
    @middleware(noting("middleware"))
    class Wrapped(Noting):
        @before_execution
        def prepare(self):
            self.note("prepare")

        @around_execution
        def wrap(self):
            self.note("around opens")
            yield
            self.note("around closes")

        @on_success
        def thank(self):
            self.note("thank")

    assert run(Wrapped).context.events == [
        "middleware opens",
        "prepare",
        "around opens",
        "work",
        "around closes",
        "thank",
        "middleware closes",
    ]


# -- what it may be -----------------------------------------------------------------


class Counting:
    """Count its runs."""

    def __init__(self):
        self.count = 0

    def __call__(self, task):
        self.count += 1
        task.note(f"counting {self.count}")
        yield


def test_an_object_whose_call_is_a_generator_is_a_middleware(run):
    @middleware(Counting())
    class Wrapped(Noting):
        pass

    assert run(Wrapped).context.events == ["counting 1", "work"]
    assert run(Wrapped).context.events == ["counting 2", "work"]


def test_a_class_is_made_into_such_an_object_once_for_each_declaration(run):
    @middleware(Counting)
    class First(Noting):
        pass

    @middleware(Counting)
    class Second(Noting):
        pass

    assert run(First).context.events == ["counting 1", "work"]
    assert run(First).context.events == ["counting 2", "work"]
    assert run(Second).context.events == ["counting 1", "work"]


def test_a_callable_that_returns_a_generator_is_a_middleware(run):
    def wrap(name, task):
        yield from noting(name)(task)

    class Methods:
        def wrap(self, task):
            return wrap("method", task)

    @middleware(functools.partial(wrap, "partial"), Methods().wrap)
    class Wrapped(Noting):
        pass

    assert run(Wrapped).context.events == nested("partial", "method")


@pytest.mark.parametrize("given", [None, 3, "audit", [noting("only")]])
def test_what_cannot_be_called_is_refused_at_once(given):
    with pytest.raises(DefinitionError, match="@middleware"):
        middleware(given)


def test_no_middleware_at_all_is_refused_at_once():
    with pytest.raises(DefinitionError, match="@middleware"):
        middleware()


@pytest.mark.parametrize("target", [dict, len, Noting()])
def test_only_task_classes_can_be_decorated(target):
    with pytest.raises(DefinitionError, match="middleware decorates task classes"):
        middleware(noting("only"))(target)


# -- gates --------------------------------------------------------------------------


def test_one_gate_decides_about_each_middleware_of_its_declaration(run):
    @middleware(noting("first"), noting("second"), if_=lambda task: task.context.live)
    class Wrapped(Noting):
        pass

    assert run(Wrapped, live=True).context.events == nested("first", "second")
    assert run(Wrapped, live=False).context.events == nested()


def test_a_middleware_whose_gate_was_closed_is_not_torn_down(run):
    thrown = []

    def guard(_task):
        try:
            yield
        except KeyboardInterrupt:
            thrown.append("guard")
            raise

    @middleware(guard)
    @middleware(guard, if_=False)
    class Interrupted(Task[None]):
        def work(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted)
    assert thrown == ["guard"]


# -- ending the run -----------------------------------------------------------------


def test_a_halt_before_the_yield_comes_before_the_signal_and_the_callbacks(run):
    started = []

    def halt(task):
        task.skip("early")
        yield

    @middleware(halt)
    class Wrapped(Noting):
        @before_execution
        def prepare(self):
            self.note("prepare")

    with task_started.connected_to(lambda _, task: started.append(task)):
        result = run(Wrapped, events=[])

    assert result.reason == "early"
    assert (started, result.context.events) == ([], [])


def test_an_exception_after_the_yield_comes_after_the_callbacks(run):
    def check(_task):
        yield
        raise ValueError("bad order")

    @middleware(check)
    class Wrapped(Noting):
        @on_success
        def thank(self):
            self.note("thank")

        @on_failed
        def page(self):
            self.note("page")

    result = run(Wrapped)

    assert result.failed
    assert result.context.events == ["work", "thank"]


def test_completion_callbacks_run_once_when_a_middleware_halts_before_its_yield(run):
    def halt(task):
        task.skip("not today")
        yield

    @middleware(halt)
    class Wrapped(Noting):
        @on_skipped
        def shrug(self, outcome):
            self.note(f"shrug at {outcome.reason}")

    assert run(Wrapped).context.events == ["shrug at not today"]


# -- async --------------------------------------------------------------------------


def test_an_async_middleware_may_be_an_object():
    class Audit:
        async def __call__(self, task):
            await asyncio.sleep(0)
            task.note("audit")
            yield

    @middleware(Audit)
    class Wrapped(Noting):
        pass

    assert asyncio.run(Wrapped.aexecute()).context.events == ["audit", "work"]


# -- state --------------------------------------------------------------------------


def test_each_run_has_a_generator_of_its_own():
    def remember(task):
        number = task.context.number
        yield
        task.context.seen = number

    @middleware(remember)
    class Slow(Task[None]):
        async def work(self):
            for _ in range(self.context.number):
                await asyncio.sleep(0)

    async def main():
        return await asyncio.gather(*(Slow.aexecute(number=n) for n in (3, 1, 2)))

    assert [result.context.seen for result in asyncio.run(main())] == [3, 1, 2]
