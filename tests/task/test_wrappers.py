"""
What around hooks and middlewares have in common.

Both are generators with one ``yield``; a middleware is around the whole run and is sent
its result, an around hook is around inputs, work and outputs and is sent the outcome.
What is special to each is in ``test_middleware.py`` and ``test_around.py``.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager

import pytest
from noting import nested, noting

from cmdx import (
    CallbackError,
    MiddlewareError,
    Task,
    around_execution,
    middleware,
    on_failed,
    retry_on,
    task_cancelled,
    task_executed,
)
from cmdx.exceptions import AsyncTaskError


class Noting(Task[str]):
    """Note down what happens."""

    def note(self, event):
        self.context.setdefault("events", []).append(event)

    def work(self):
        self.note("work")
        return "done"


def with_middlewares(task, *wrappers):
    return middleware(*wrappers)(type(task.__name__, (task,), {}))


def with_around_hooks(task, *wrappers):
    hooks = {f"hook_{n}": around_execution(each) for n, each in enumerate(wrappers)}
    return type(task.__name__, (task,), hooks)


class Kind:
    """Wraps the runs of a class into generator functions, the first one outermost."""

    def __init__(self, wrap, misuse):
        self.wrap = wrap
        self.misuse = misuse

    def __call__(self, task, *wrappers):
        return self.wrap(task, *wrappers)


@pytest.fixture(
    params=[
        Kind(with_middlewares, MiddlewareError),
        Kind(with_around_hooks, CallbackError),
    ],
    ids=["middleware", "around hook"],
)
def wrapped(request):
    return request.param


def watching(seen):
    """Return a wrapper that remembers what became of the run."""

    def watch(_task):
        sent = yield
        seen.append((sent.status, sent.reason))

    return watch


def guarding(events, name):
    """Return a wrapper that notes down what is thrown into it."""

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


# -- around the run -----------------------------------------------------------------


def test_a_wrapper_runs_around_work(run, wrapped):
    result = run(wrapped(Noting, noting("only")))

    assert result.value == "done"
    assert result.context.events == nested("only")


def test_a_wrapper_runs_once_whatever_the_retries(run, wrapped):
    @retry_on(TimeoutError, limit=2, delay=0)
    class Flaky(Noting):
        def work(self):
            self.note(f"work {self.attempt}")
            raise TimeoutError

        def rollback(self):
            self.note("rollback")

    assert run(wrapped(Flaky, noting("only"))).context.events == [
        "only opens",
        "work 0",
        "work 1",
        "work 2",
        "rollback",
        "only closes",
    ]


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        (lambda _: None, "success", None),
        (lambda task: task.skip("already paid"), "skipped", "already paid"),
        (lambda task: task.fail("no such order"), "failed", "no such order"),
        (lambda task: task.succeed("early"), "success", "early"),
        (lambda _: int("x"), "failed", "[ValueError] invalid literal"),
        (lambda task: task.context.nowhere, "failed", "[UnknownContextKey] "),
        (lambda task: task.errors.add("name", "is bad"), "failed", "name is bad"),
    ],
    ids=["return", "skip", "fail", "succeed", "raise", "misuse", "errors"],
)
def test_its_yield_tells_it_how_the_run_ended_and_never_raises(
    run, wrapped, end, status, reason
):
    seen = []

    class Ends(Task[None]):
        def work(self):
            end(self)

    run(wrapped(Ends, watching(seen)))

    ((told_status, told_reason),) = seen
    assert told_status == status
    assert (told_reason or "").startswith(reason or "")


def test_its_yield_tells_it_cause_and_metadata(run, wrapped):
    error = ValueError("bad order")
    seen = []

    def watch(_task):
        sent = yield
        seen.append((sent.cause, dict(sent.metadata)))

    class Broken(Task[None]):
        def work(self):
            self.metadata["code"] = 1
            raise error

    run(wrapped(Broken, watch))

    assert seen == [(error, {"code": 1})]


def test_wrappers_nest_in_the_order_they_are_listed_ancestors_outside(run, wrapped):
    parent = wrapped(Noting, noting("zebra"))
    child = type("Child", (parent,), {})
    names = ("mole", "ant")

    def of_child(task):
        # Other names than those of the parent, which a hook would override.
        if wrapped.misuse is MiddlewareError:
            return middleware(*map(noting, names))(task)
        hooks = {name: around_execution(noting(name)) for name in names}
        return type("Child", (task,), hooks)

    assert run(of_child(child)).context.events == nested("zebra", "mole", "ant")
    assert run(parent).context.events == nested("zebra")


# -- ending the run -----------------------------------------------------------------

ENDS = {
    "succeed": (lambda task, reason: task.succeed(reason, value=7), "success"),
    "skip": (lambda task, reason: task.skip(reason), "skipped"),
    "fail": (lambda task, reason: task.fail(reason), "failed"),
}


@pytest.mark.parametrize("halt", ENDS)
def test_a_halt_before_the_yield_keeps_everything_inside_from_running(
    run, wrapped, halt
):
    end, status = ENDS[halt]
    outside, inside = [], []

    def wrap(task):
        end(task, "early")
        yield

    class Rolling(Noting):
        def rollback(self):
            self.note("rollback")

    result = run(wrapped(Rolling, watching(outside), wrap, watching(inside)), events=[])

    assert (result.status, result.reason) == (status, "early")
    assert result.value_or(None) == (7 if halt == "succeed" else None)
    assert (outside, inside) == ([(status, "early")], [])
    assert result.context.events == []
    assert (result.replaced, result.stopped) == (None, None)


def test_an_exception_before_the_yield_fails_the_task(run, wrapped):
    error = ValueError("bad order")
    outside = []

    def refuse(_task):
        raise error
        yield

    class Paging(Noting):
        @on_failed
        def page(self):
            self.note("page")

    result = run(wrapped(Paging, watching(outside), refuse))

    assert result.cause is error
    assert outside == [("failed", "[ValueError] bad order")]
    assert result.context.events == ["page"]


@pytest.mark.parametrize("fails", [True, False], ids=["failure", "success"])
@pytest.mark.parametrize("halt", ENDS)
def test_a_halt_after_the_yield_replaces_the_outcome(run, wrapped, halt, fails):
    end, status = ENDS[halt]
    outside, inside = [], []

    def wrap(task):
        yield
        end(task, "late")

    class Maybe(Task[None]):
        def work(self):
            if fails:
                self.fail("first")

    result = run(wrapped(Maybe, watching(outside), wrap, watching(inside)))

    before = ("failed", "first") if fails else ("success", None)
    assert (result.status, result.reason) == (status, "late")
    assert result.value_or(None) == (7 if halt == "succeed" else None)
    assert (outside, inside) == ([(status, "late")], [before])
    assert (result.replaced.status, result.replaced.reason) == before


def test_an_exception_after_the_yield_fails_the_task_and_keeps_the_error_before(
    run, wrapped
):
    first, second, third = ValueError("first"), ValueError("second"), ValueError("3rd")
    outside = []

    def raising(error):
        def wrap(_task):
            yield
            raise error

        return wrap

    class Broken(Task[None]):
        def work(self):
            raise first

    result = run(wrapped(Broken, watching(outside), raising(third), raising(second)))

    assert result.cause is third
    assert (third.__context__, second.__context__) == (second, first)
    assert first.__context__ is None
    assert result.replaced.cause is first
    assert outside == [("failed", "[ValueError] 3rd")]


def test_a_late_outcome_is_the_one_that_is_sent_and_keeps_the_attempts(run, wrapped):
    sent = []

    def forgive(task):
        yield
        task.succeed("never mind", value="nothing")

    @retry_on(TimeoutError, limit=1, delay=0)
    class Flaky(Task[None]):
        def work(self):
            raise TimeoutError

    def receiver(_sender, *, result, **_):
        sent.append((result.reason, result.retries, len(result.attempts)))

    with task_executed.connected_to(receiver):
        result = run(wrapped(Flaky, forgive))

    assert (result.status, result.value) == ("success", "nothing")
    assert sent == [("never mind", 1, 2)]


# -- misuse -------------------------------------------------------------------------


def forgetful(_task):
    return None


def empty(task):
    if task.context.get("never"):
        yield


def listing(_task):
    return [None]


def twice(_task):
    yield
    yield


@pytest.mark.parametrize("wrap", [forgetful, empty, listing])
def test_not_yielding_fails_the_task_before_it_works(run, wrapped, wrap):
    result = run(wrapped(Noting, noting("outer"), wrap))

    assert type(result.cause) is wrapped.misuse
    assert result.reason == f"[{wrapped.misuse.__name__}] {result.cause}"
    assert "did not yield" in result.reason
    assert "exactly one yield" in result.reason
    assert result.context.events == ["outer opens", "outer closes"]


@contextmanager
def managed(_task):
    yield


@asynccontextmanager
async def amanaged(_task):
    yield


@pytest.mark.parametrize("wrap", [managed, amanaged])
def test_a_context_manager_in_place_of_a_generator_is_named(run, wrapped, wrap):
    reason = run(wrapped(Noting, wrap)).reason
    assert reason.endswith(
        "one yield. It returned a context manager: leave out @contextmanager."
    )


def test_a_wrapper_that_returns_before_its_yield_is_told_how_to_end_the_run(
    run, wrapped
):
    reason = run(wrapped(Noting, empty)).reason
    assert reason.endswith("To end the run before it, call skip or fail of the task.")


def test_the_message_names_the_wrapper_and_the_task(run):
    @middleware(forgetful)
    class Wrapped(Noting):
        pass

    class Hooked(Noting):
        @around_execution
        def careless(self):
            return None

    assert "the middleware forgetful did not yield while" in run(Wrapped).reason
    assert "Wrapped ran" in run(Wrapped).reason
    assert "the around hook careless did not yield while" in run(Hooked).reason
    assert "Hooked ran" in run(Hooked).reason


def test_yielding_twice_fails_the_task_closes_it_and_does_not_work_twice(run, wrapped):
    def tidy(task):
        try:
            yield
            yield
        finally:
            task.note("tidy")

    result = run(wrapped(Noting, tidy))

    assert type(result.cause) is wrapped.misuse
    assert "yielded more than once" in result.reason
    assert "exactly one yield" in result.reason
    assert result.replaced.status == "success"
    assert result.context.events == ["work", "tidy"]


@pytest.mark.parametrize("wrap", [forgetful, empty, twice])
def test_misuse_reaches_the_wrappers_outside_as_a_failure(run, wrapped, wrap):
    seen = []

    run(wrapped(Noting, watching(seen), watching(seen), wrap))

    assert [status for status, _ in seen] == ["failed", "failed"]
    assert all(f"[{wrapped.misuse.__name__}]" in reason for _, reason in seen)


def test_misuse_of_an_around_hook_reaches_the_middlewares_as_a_failure(run):
    seen = []

    @middleware(watching(seen))
    class Wrapped(Noting):
        @around_execution
        def careless(self):
            pass

    result = run(Wrapped)

    assert isinstance(result.cause, CallbackError)
    assert seen == [("failed", result.reason)]


def test_misuse_is_announced_and_logged_like_any_failure(run, wrapped, lines):
    sent = []

    def receiver(_sender, *, result, **_):
        sent.append(result.reason)

    with task_executed.connected_to(receiver):
        result = run(wrapped(Noting, forgetful))

    assert sent == [result.reason]
    assert [line["reason"] for line in lines] == [result.reason]


# -- interrupts ---------------------------------------------------------------------


def interrupted_by(error):
    class Interrupted(Task[None]):
        def work(self):
            raise error

        @on_failed
        def page(self):
            self.context.paged = True

    return Interrupted


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()], ids=repr
)
def test_an_interrupt_is_thrown_into_all_wrappers_from_the_inside_out(wrapped, error):
    events = []
    wrappers = guarding(events, "outer"), guarding(events, "inner")

    with pytest.raises(type(error)) as caught:
        wrapped(interrupted_by(error), *wrappers).execute()

    name = type(error).__name__
    assert caught.value is error
    assert events == [
        f"inner {name}",
        "inner finally",
        f"outer {name}",
        "outer finally",
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_an_interrupt_is_thrown_into_all_wrappers_of_an_async_run(wrapped, error):
    events = []
    wrappers = guarding(events, "outer"), guarding(events, "inner")

    with pytest.raises(type(error)):
        asyncio.run(wrapped(interrupted_by(error), *wrappers).aexecute())

    assert [event for event in events if event.endswith("finally")] == [
        "inner finally",
        "outer finally",
    ]


def test_a_wrapper_cannot_swallow_an_interrupt(run, wrapped):
    def swallow(_task):
        try:
            yield
        except BaseException:
            return

    with pytest.raises(KeyboardInterrupt):
        run(wrapped(interrupted_by(KeyboardInterrupt()), swallow))


@pytest.mark.parametrize("end", [lambda task: task.skip("late"), lambda _: 1 // 0])
def test_what_a_wrapper_does_meanwhile_is_reported_and_hides_no_interrupt(
    run, wrapped, end, caplog
):
    events = []

    def clumsy(task):
        try:
            yield
        finally:
            end(task)

    task = interrupted_by(KeyboardInterrupt())
    with caplog.at_level(logging.ERROR, "cmdx"), pytest.raises(KeyboardInterrupt):
        run(wrapped(task, guarding(events, "outer"), clumsy))

    assert events == ["outer KeyboardInterrupt", "outer finally"]
    assert ["clumsy" in record.message for record in caplog.records] == [True]


def test_a_wrapper_may_turn_an_interrupt_into_another(run, wrapped):
    events = []

    def leave(_task):
        try:
            yield
        except SystemExit:
            raise SystemExit(130) from None

    with pytest.raises(SystemExit, match="130"):
        run(wrapped(interrupted_by(SystemExit(1)), guarding(events, "outer"), leave))
    assert events[-1] == "outer finally"


@pytest.mark.parametrize("opens", [True, False], ids=["opens", "closes"])
def test_an_interrupt_while_a_wrapper_opens_or_closes_cancels_the_run(
    run, wrapped, opens
):
    events, sent = [], []

    def interrupted(_task):
        if opens:
            raise KeyboardInterrupt
        yield
        raise KeyboardInterrupt

    def receiver(_sender, *, result, **_):
        sent.append((result.status, result.stopped, type(result.cause)))

    task = wrapped(Noting, guarding(events, "outer"), interrupted)
    with task_cancelled.connected_to(receiver), pytest.raises(KeyboardInterrupt):
        run(task)

    assert events == ["outer KeyboardInterrupt", "outer finally"]
    assert sent == [("failed", "cancelled", KeyboardInterrupt)]


# -- async --------------------------------------------------------------------------


def anoting(name):
    """Return an async wrapper that notes down its name."""

    async def wrap(task):
        await asyncio.sleep(0)
        task.note(f"{name} opens")
        yield
        await asyncio.sleep(0)
        task.note(f"{name} closes")

    return wrap


class AwaitingNoting(Noting):
    """Note down what happens, after a while."""

    async def work(self):
        await asyncio.sleep(0)
        self.note("work")
        return "done"


@pytest.mark.parametrize("base", [Noting, AwaitingNoting])
def test_async_and_plain_wrappers_nest_in_async_runs(wrapped, base):
    task = wrapped(base, anoting("first"), noting("second"), anoting("third"))

    events = asyncio.run(task.aexecute()).context.events

    assert events == nested("first", "second", "third")


def test_an_async_wrapper_is_told_how_the_run_ended(wrapped):
    seen = []

    async def watch(_task):
        sent = yield
        await asyncio.sleep(0)
        seen.append(sent.status)

    asyncio.run(wrapped(AwaitingNoting, watch).aexecute())

    assert seen == ["success"]


def test_an_async_wrapper_may_halt_before_and_after_its_yield(wrapped):
    outside = []

    async def halt(task):
        await asyncio.sleep(0)
        if task.context.early:
            task.skip("early")
        yield
        await asyncio.sleep(0)
        task.fail("late")

    task = wrapped(AwaitingNoting, watching(outside), halt)
    asyncio.run(task.aexecute(early=True))
    asyncio.run(task.aexecute(early=False))

    assert outside == [("skipped", "early"), ("failed", "late")]


def test_an_async_wrapper_may_raise_before_and_after_its_yield(wrapped):
    error = ValueError("bad order")

    async def refuse(task):
        if task.context.early:
            raise error
        yield
        raise error

    task = wrapped(AwaitingNoting, refuse)
    early = asyncio.run(task.aexecute(early=True, events=[]))
    late = asyncio.run(task.aexecute(early=False, events=[]))

    assert (early.cause, late.cause) == (error, error)
    assert (early.context.events, late.context.events) == ([], ["work"])


def test_a_function_that_returns_an_async_generator_serves_async_runs(wrapped):
    def hidden(task):
        return anoting("hidden")(task)

    task = wrapped(Noting, hidden)

    assert asyncio.run(task.aexecute()).context.events == nested("hidden")


def test_a_synchronous_run_fails_by_an_async_generator_it_could_not_foresee(wrapped):
    def hidden(task):
        return anoting("hidden")(task)

    result = wrapped(Noting, hidden).execute(events=[])

    assert isinstance(result.cause, AsyncTaskError)
    assert "aexecute" in result.reason
    assert result.context.events == []


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
        (aforgetful, "did not yield"),
        (aempty, "did not yield"),
        (atwice, "yielded more than once"),
    ],
)
def test_an_async_wrapper_that_does_not_yield_once_fails_the_task(wrapped, wrap, said):
    seen = []

    result = asyncio.run(wrapped(Noting, watching(seen), wrap).aexecute())

    assert type(result.cause) is wrapped.misuse
    assert said in result.reason
    assert seen == [("failed", result.reason)]


class Sleepy(Noting):
    async def work(self):
        await asyncio.sleep(3600)


def cancelled(task, **inputs):
    """Run *task* and cancel it when it first suspends for long."""

    async def main():
        running = asyncio.create_task(task.aexecute(**inputs))
        for _ in range(3):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_cancelling_tears_down_plain_and_async_wrappers(wrapped):
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

    cancelled(wrapped(Sleepy, guarding(events, "plain"), guard))

    assert events == [
        "async CancelledError",
        "async finally",
        "plain CancelledError",
        "plain finally",
    ]


def test_cancelling_while_a_wrapper_opens_tears_down_those_outside(wrapped):
    events = []

    async def slow(_task):
        await asyncio.sleep(3600)
        yield

    cancelled(wrapped(Noting, guarding(events, "outer"), slow), events=events)

    assert events == ["outer CancelledError", "outer finally"]


def test_an_async_wrapper_cannot_swallow_a_cancellation(wrapped):
    async def swallow(_task):
        try:
            yield
        except asyncio.CancelledError:
            return

    cancelled(wrapped(Sleepy, swallow))


def test_what_an_async_wrapper_raises_while_torn_down_hides_no_cancellation(wrapped):
    async def clumsy(_task):
        try:
            yield
        finally:
            raise OSError("cannot close")

    cancelled(wrapped(Sleepy, clumsy))


def test_a_cancellation_while_a_parents_halt_tears_down_is_not_lost(wrapped):
    async def slow_to_leave(_task):
        try:
            yield
        finally:
            await asyncio.sleep(3600)

    class Parent(Task[None]):
        async def work(self):
            parent = self

            class Child(Task[None]):
                async def work(self):
                    parent.fail("enough")

            await wrapped(Child, slow_to_leave).aexecute()

    cancelled(Parent)
