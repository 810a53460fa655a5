"""Middlewares: generator functions around whole runs."""

from __future__ import annotations

import asyncio
import functools

import pytest

from cmdx import (
    CallbackError,
    DefinitionError,
    MiddlewareError,
    Result,
    Status,
    Task,
    around_execution,
    before_execution,
    middleware,
    on_failed,
    on_skipped,
    on_success,
    retry_on,
    task_executed,
    task_started,
)


class Noting(Task[str]):
    """Note down what happens."""

    def note(self, event):
        self.context.setdefault("events", []).append(event)

    def work(self):
        self.note("work")
        return "done"


def noting(name):
    """Return a middleware that notes down its name."""

    def wrap(task):
        task.note(f"{name} opens")
        yield
        task.note(f"{name} closes")

    return wrap


def nested(*names):
    """Return the events of middlewares *names*, the first one outermost."""
    opening = [f"{name} opens" for name in names]
    return [*opening, "work", *(f"{name} closes" for name in reversed(names))]


# -- what it is told ----------------------------------------------------------------


def test_a_middleware_runs_around_work(run):
    @middleware(noting("only"))
    class Wrapped(Noting):
        pass

    result = run(Wrapped)

    assert result.value == "done"
    assert result.context.events == nested("only")


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


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        (lambda task: task.skip("already paid"), "skipped", "already paid"),
        (lambda task: task.fail("no such order"), "failed", "no such order"),
        (lambda task: task.succeed("early"), "success", "early"),
        (lambda _: 1 // 0, "failed", "[ZeroDivisionError] "),
        (lambda task: task.errors.add("name", "is bad"), "failed", "name is bad"),
    ],
)
def test_every_outcome_reaches_a_middleware_as_a_result_and_none_is_raised(
    run, end, status, reason
):
    seen = []

    def watch(_task):
        result = yield
        seen.append((result.status, result.reason))

    @middleware(watch)
    class Ends(Task[None]):
        def work(self):
            end(self)

    run(Ends)

    ((told_status, told_reason),) = seen
    assert told_status == status
    assert told_reason.startswith(reason)


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


def test_a_middleware_runs_once_whatever_the_retries(run):
    @retry_on(TimeoutError, limit=1, delay=0)
    @middleware(noting("only"))
    class Flaky(Noting):
        def work(self):
            self.note(f"work {self.attempt}")
            if self.attempt == 0:
                raise TimeoutError

    assert run(Flaky).context.events == [
        "only opens",
        "work 0",
        "work 1",
        "only closes",
    ]


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


@pytest.mark.parametrize(
    ("gates", "opened"),
    [
        ({"if_": "live"}, {True}),
        ({"unless": "live"}, {False}),
        ({"if_": lambda task: task.context.live}, {True}),
        ({"unless": lambda task: task.context.live}, {False}),
        ({"if_": True, "unless": "live"}, {False}),
        ({"if_": False}, set()),
        ({"unless": True}, set()),
        ({}, {True, False}),
    ],
)
def test_a_middleware_is_gated_for_each_run(run, gates, opened):
    @middleware(noting("gated"), **gates)
    @middleware(noting("other"))
    class Wrapped(Noting):
        def live(self):
            return self.context.live

    for live in (True, False):
        names = ["gated", "other"] if live in opened else ["other"]
        assert run(Wrapped, live=live).context.events == nested(*names)


def test_one_gate_decides_about_each_middleware_of_its_declaration(run):
    @middleware(noting("first"), noting("second"), if_=lambda task: task.context.live)
    class Wrapped(Noting):
        pass

    assert run(Wrapped, live=True).context.events == nested("first", "second")
    assert run(Wrapped, live=False).context.events == nested()


@pytest.mark.parametrize("option", ["if_", "unless"])
@pytest.mark.parametrize("gate", [3, [], object()])
def test_what_is_no_gate_is_refused_at_once(option, gate):
    with pytest.raises(DefinitionError, match=option):
        middleware(noting("only"), **{option: gate})


def test_a_gate_that_halts_ends_the_run(run):
    @middleware(noting("outer"))
    @middleware(noting("gated"), if_=lambda task: task.skip("closed today"))
    class Wrapped(Noting):
        pass

    result = run(Wrapped)

    assert (result.status, result.reason) == ("skipped", "closed today")
    assert result.context.events == ["outer opens", "outer closes"]


# -- ending the run -----------------------------------------------------------------


def watching(seen):
    """Return a middleware that remembers the results it is given."""

    def watch(_task):
        result = yield
        seen.append((result.status, result.reason))

    return watch


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda task: task.succeed("early", value=7), Status.SUCCESS),
        (lambda task: task.skip("early"), Status.SKIPPED),
        (lambda task: task.fail("early"), Status.FAILED),
    ],
)
def test_a_halt_before_the_yield_keeps_everything_inside_from_running(run, end, status):
    outside, inside, started = [], [], []

    def halt(task):
        end(task)
        yield

    @middleware(watching(outside), halt, watching(inside))
    class Wrapped(Noting):
        @before_execution
        def prepare(self):
            self.note("prepare")

        def rollback(self):
            self.note("rollback")

    with task_started.connected_to(lambda _, task: started.append(task)):
        result = run(Wrapped, events=[])

    assert (result.status, result.reason) == (status, "early")
    assert result.value_or(None) == (7 if status == "success" else None)
    assert outside == [(status, "early")]
    assert (inside, started, result.context.events) == ([], [], [])


def test_an_exception_before_the_yield_fails_the_task(run):
    error = ValueError("bad order")
    outside = []

    def refuse(_task):
        raise error
        yield

    @middleware(watching(outside), refuse)
    class Wrapped(Noting):
        @on_failed
        def page(self):
            self.note("page")

    result = run(Wrapped)

    assert result.cause is error
    assert outside == [(Status.FAILED, "[ValueError] bad order")]
    assert result.context.events == ["page"]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda task: task.succeed("late", value=7), Status.SUCCESS),
        (lambda task: task.skip("late"), Status.SKIPPED),
        (lambda task: task.fail("late"), Status.FAILED),
    ],
)
@pytest.mark.parametrize("fails", [True, False])
def test_a_halt_after_the_yield_replaces_the_outcome(run, end, status, fails):
    outside, inside = [], []

    def halt(task):
        yield
        end(task)

    @middleware(watching(outside), halt, watching(inside))
    class Wrapped(Task[None]):
        def work(self):
            if fails:
                self.fail("first")

    result = run(Wrapped)

    assert (result.status, result.reason) == (status, "late")
    assert result.value_or(None) == (7 if status == "success" else None)
    assert outside == [(status, "late")]
    assert inside == [("failed", "first") if fails else ("success", None)]


def test_an_exception_after_the_yield_fails_the_task(run):
    error = ValueError("bad order")
    outside = []

    def check(_task):
        yield
        raise error

    @middleware(watching(outside), check)
    class Wrapped(Noting):
        @on_success
        def thank(self):
            self.note("thank")

        @on_failed
        def page(self):
            self.note("page")

    result = run(Wrapped)

    assert result.cause is error
    assert outside == [(Status.FAILED, "[ValueError] bad order")]
    assert result.context.events == ["work", "thank"]


def test_a_late_outcome_is_the_one_that_is_sent_and_keeps_the_attempts(run):
    sent = []

    def forgive(task):
        yield
        task.succeed("never mind")

    @retry_on(TimeoutError, limit=1, delay=0)
    @middleware(forgive)
    class Flaky(Task[None]):
        def work(self):
            raise TimeoutError

    def receiver(_sender, *, result, **_):
        sent.append((result.reason, result.retries, len(result.attempts)))

    with task_executed.connected_to(receiver):
        result = run(Flaky)

    assert result.reason == "never mind"
    assert sent == [("never mind", 1, 2)]


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


# -- misuse -------------------------------------------------------------------------


def forgetful(task):
    task.note("forgetful")


def empty(task):
    if task.context.get("never"):
        yield


def twice(_task):
    yield
    yield


@pytest.mark.parametrize("wrap", [forgetful, empty, lambda _: [None]])
def test_not_yielding_is_refused(run, wrap):
    @middleware(wrap)
    class Wrapped(Noting):
        pass

    events = []
    with pytest.raises(MiddlewareError, match=r"did not yield.*one yield"):
        run(Wrapped, events=events)
    assert "work" not in events


def test_the_message_names_the_middleware_and_the_task(run):
    @middleware(forgetful)
    class Wrapped(Noting):
        pass

    with pytest.raises(MiddlewareError, match=r"middleware forgetful .*Wrapped"):
        run(Wrapped)


def test_yielding_twice_is_refused_and_does_not_run_work_twice(run):
    events = []

    def tidy(task):
        try:
            yield
            yield
        finally:
            task.note("tidy")

    @middleware(tidy)
    class Wrapped(Noting):
        pass

    with pytest.raises(
        MiddlewareError, match=r"tidy yielded more than once.*one yield"
    ):
        run(Wrapped, events=events)
    assert events == ["work", "tidy"]


@pytest.mark.parametrize("wrap", [forgetful, empty, twice])
def test_misuse_is_thrown_through_the_middlewares_outside(run, wrap):
    events = []

    def guard(name):
        def wrap(_task):
            try:
                yield
                events.append("never")
            except MiddlewareError:
                events.append(name)
                raise

        return wrap

    @middleware(guard("outer"), guard("inner"), wrap)
    class Wrapped(Noting):
        pass

    with pytest.raises(MiddlewareError):
        run(Wrapped)
    assert events == ["inner", "outer"]


def test_a_middleware_that_swallows_misuse_does_not_hide_it(run):
    def swallow(_task):
        try:
            yield
        except BaseException:
            return

    @middleware(swallow, forgetful)
    class Wrapped(Noting):
        pass

    with pytest.raises(MiddlewareError, match="forgetful"):
        run(Wrapped)


def test_misuse_in_work_is_thrown_through_the_middlewares(run):
    errors = []

    def guard(_task):
        try:
            yield
        except CallbackError as error:
            errors.append(error)
            raise

    @middleware(guard)
    class Wrapped(Noting):
        @around_execution
        def forgetful(self):
            pass

    with pytest.raises(CallbackError) as caught:
        run(Wrapped)
    assert errors == [caught.value]


# -- being torn down ----------------------------------------------------------------


def guarding(events, name):
    """Return a middleware that notes down what is thrown into it."""

    def guard(_task):
        try:
            yield
            events.append("never")
        except BaseException as error:
            events.append(f"{name} {type(error).__name__}")
            raise
        finally:
            events.append(f"{name} finally")

    return guard


def interrupted_by(error):
    class Interrupted(Task[None]):
        def work(self):
            raise error

        @on_failed
        def page(self):
            self.context.paged = True

    return Interrupted


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()]
)
def test_what_is_no_exception_is_thrown_through_all_middlewares(error):
    events = []
    task = interrupted_by(error)
    middleware(guarding(events, "outer"), guarding(events, "inner"))(task)

    with pytest.raises(type(error)) as caught:
        task.execute()

    name = type(error).__name__
    assert caught.value is error
    assert events == [
        f"inner {name}",
        "inner finally",
        f"outer {name}",
        "outer finally",
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_is_no_exception_is_thrown_through_all_middlewares_of_an_async_run(error):
    events = []
    task = interrupted_by(error)
    middleware(guarding(events, "outer"), guarding(events, "inner"))(task)

    with pytest.raises(type(error)):
        asyncio.run(task.aexecute())

    assert [event for event in events if event.endswith("finally")] == [
        "inner finally",
        "outer finally",
    ]


def test_a_middleware_cannot_swallow_an_interrupt(run):
    def swallow(_task):
        try:
            yield
        except BaseException:
            return

    task = middleware(swallow)(interrupted_by(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        run(task)


@pytest.mark.parametrize("end", [lambda task: task.skip("late"), lambda _: 1 // 0])
def test_what_a_middleware_does_while_torn_down_does_not_hide_the_interrupt(run, end):
    events = []

    def clumsy(task):
        try:
            yield
        finally:
            end(task)

    task = interrupted_by(KeyboardInterrupt())
    middleware(guarding(events, "outer"), clumsy)(task)

    with pytest.raises(KeyboardInterrupt):
        run(task)
    assert events == ["outer KeyboardInterrupt", "outer finally"]


def test_what_a_middleware_raises_while_torn_down_does_not_hide_misuse(run):
    def clumsy(_task):
        try:
            yield
        finally:
            raise OSError("cannot close")

    @middleware(clumsy, forgetful)
    class Wrapped(Noting):
        pass

    with pytest.raises(MiddlewareError, match="forgetful"):
        run(Wrapped)


def test_a_middleware_may_turn_an_interrupt_into_another(run):
    events = []

    def leave(_task):
        try:
            yield
        except SystemExit:
            raise SystemExit(130) from None

    task = interrupted_by(SystemExit(1))
    middleware(guarding(events, "outer"), leave)(task)

    with pytest.raises(SystemExit, match="130"):
        run(task)
    assert events[-1] == "outer finally"


def test_an_interrupt_while_misuse_tears_down_is_not_lost(run):
    def interrupted(_task):
        try:
            yield
        finally:
            raise KeyboardInterrupt

    @middleware(interrupted, forgetful)
    class Wrapped(Noting):
        pass

    with pytest.raises(KeyboardInterrupt):
        run(Wrapped)


def test_a_cancellation_while_a_parents_halt_tears_down_is_not_lost():
    async def slow_to_leave(_task):
        try:
            yield
        finally:
            await asyncio.sleep(3600)

    class Parent(Task[None]):
        async def work(self):
            parent = self

            @middleware(slow_to_leave)
            class Child(Task[None]):
                async def work(self):
                    parent.fail("enough")

            await Child.aexecute()

    async def main():
        running = asyncio.create_task(Parent.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_a_middleware_whose_gate_was_closed_is_not_torn_down(run):
    events = []
    task = interrupted_by(KeyboardInterrupt())
    middleware(guarding(events, "gated"), if_=False)(task)
    middleware(guarding(events, "open"))(task)

    with pytest.raises(KeyboardInterrupt):
        run(task)
    assert events == ["open KeyboardInterrupt", "open finally"]


# -- async --------------------------------------------------------------------------


def anoting(name):
    """Return an async middleware that notes down its name."""

    async def wrap(task):
        await asyncio.sleep(0)
        task.note(f"{name} opens")
        yield
        await asyncio.sleep(0)
        task.note(f"{name} closes")

    return wrap


class ANoting(Noting):
    """Note down what happens, after a while."""

    async def work(self):
        await asyncio.sleep(0)
        self.note("work")
        return "done"


@pytest.mark.parametrize("base", [Noting, ANoting])
def test_async_and_plain_middlewares_nest_in_async_runs(base):
    @middleware(anoting("first"), noting("second"), anoting("third"))
    class Wrapped(base):
        pass

    events = asyncio.run(Wrapped.aexecute()).context.events

    assert events == nested("first", "second", "third")


def test_an_async_middleware_is_given_the_finished_result():
    seen = []

    async def watch(_task):
        result = yield
        seen.append((result.status, result.value))

    @middleware(watch)
    class Wrapped(ANoting):
        pass

    asyncio.run(Wrapped.aexecute())

    assert seen == [("success", "done")]


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


def test_a_function_that_returns_an_async_generator_is_an_async_middleware():
    def wrap(task):
        return anoting("hidden")(task)

    @middleware(wrap)
    class Wrapped(Noting):
        pass

    assert asyncio.run(Wrapped.aexecute()).context.events == nested("hidden")


def test_a_synchronous_run_refuses_an_async_generator_it_could_not_foresee():
    def wrap(task):
        return anoting("hidden")(task)

    @middleware(wrap)
    class Wrapped(Noting):
        pass

    events = []
    with pytest.raises((MiddlewareError, TypeError), match="aexecute"):
        Wrapped.execute(events=events)
    assert events == []


def test_an_async_middleware_may_halt_before_and_after_its_yield():
    outside = []

    async def halt(task):
        await asyncio.sleep(0)
        if task.context.early:
            task.skip("early")
        yield
        await asyncio.sleep(0)
        task.fail("late")

    @middleware(watching(outside), halt)
    class Wrapped(ANoting):
        pass

    asyncio.run(Wrapped.aexecute(early=True))
    asyncio.run(Wrapped.aexecute(early=False))

    assert outside == [("skipped", "early"), ("failed", "late")]


def test_an_async_middleware_may_raise_before_and_after_its_yield():
    error = ValueError("bad order")

    async def refuse(task):
        if task.context.early:
            raise error
        yield
        raise error

    @middleware(refuse)
    class Wrapped(ANoting):
        pass

    early = asyncio.run(Wrapped.aexecute(early=True, events=[]))
    late = asyncio.run(Wrapped.aexecute(early=False, events=[]))

    assert (early.cause, late.cause) == (error, error)
    assert (early.context.events, late.context.events) == ([], ["work"])


async def aforgetful(_task):
    await asyncio.sleep(0)


async def aempty(task):
    if task.context.get("never"):
        yield


async def atwice(_task):
    yield
    yield


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (aforgetful, "aforgetful did not yield"),
        (aempty, "aempty did not yield"),
        (atwice, "atwice yielded more than once"),
    ],
)
def test_an_async_middleware_that_does_not_yield_once_is_refused(wrap, said):
    events = []

    @middleware(guarding(events, "outer"), wrap)
    class Wrapped(Noting):
        pass

    with pytest.raises(MiddlewareError, match=said):
        asyncio.run(Wrapped.aexecute())
    assert events == ["outer MiddlewareError", "outer finally"]


def test_cancelling_tears_down_plain_and_async_middlewares():
    events = []

    async def guard(_task):
        try:
            yield
        except asyncio.CancelledError:
            events.append("async CancelledError")
            raise
        finally:
            await asyncio.sleep(0)
            events.append("async finally")

    @middleware(guarding(events, "plain"), guard)
    class Sleepy(Task[None]):
        async def work(self):
            await asyncio.sleep(3600)

    async def main():
        running = asyncio.create_task(Sleepy.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    assert events == [
        "async CancelledError",
        "async finally",
        "plain CancelledError",
        "plain finally",
    ]


def test_cancelling_while_a_middleware_opens_tears_down_those_outside():
    events = []

    async def slow(_task):
        await asyncio.sleep(3600)
        yield

    @middleware(guarding(events, "outer"), slow)
    class Wrapped(Noting):
        pass

    async def main():
        running = asyncio.create_task(Wrapped.aexecute(events=events))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    assert events == ["outer CancelledError", "outer finally"]


def test_an_async_middleware_cannot_swallow_a_cancellation():
    async def swallow(_task):
        try:
            yield
        except asyncio.CancelledError:
            return

    @middleware(swallow)
    class Sleepy(Task[None]):
        async def work(self):
            await asyncio.sleep(3600)

    async def main():
        running = asyncio.create_task(Sleepy.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_what_an_async_middleware_raises_while_torn_down_hides_no_cancellation():
    async def clumsy(_task):
        try:
            yield
        finally:
            raise OSError("cannot close")

    @middleware(clumsy)
    class Sleepy(Task[None]):
        async def work(self):
            await asyncio.sleep(3600)

    async def main():
        running = asyncio.create_task(Sleepy.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


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
