"""How a task is run, and what ``execute`` never does."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import ChainMap, UserDict
from types import MappingProxyType, SimpleNamespace

import pytest

from cmdx import (
    Context,
    Fault,
    FinishedTaskError,
    ImplementationError,
    NoValueError,
    Result,
    Task,
    UnknownContextKey,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    clock,
    middleware,
    on_complete,
    on_failed,
    on_interrupted,
    on_ko,
    on_ok,
    on_skipped,
    on_success,
    retry_on,
    task_executed,
    task_started,
)
from cmdx.exceptions import AsyncTaskError


def raising(error):
    """Return a task whose work raises *error*."""

    class Raising(Task[None]):
        def work(self):
            raise error

    return Raising


class Tell(Task[dict]):
    """Return what is in the context."""

    def work(self):
        return self.context.to_dict()


# -- execute --------------------------------------------------------------------


def test_a_run_returns_a_result_with_the_value_of_work(run):
    class Add(Task[int]):
        def work(self):
            return self.context.left + self.context.right

    result = run(Add, left=2, right=3)

    assert isinstance(result, Result)
    assert result.success
    assert result.value == 5


def test_a_task_without_declared_inputs_puts_any_keyword_into_its_context(run):
    inputs = {"name": "Ada", "self": 1, "cls": 2, "source": 3, "inputs": 4, "task": 5}

    assert run(Tell, **inputs).context.to_dict() == inputs


def test_what_work_puts_into_the_context_is_on_the_result(run):
    class Note(Task[None]):
        def work(self):
            self.context.seen = [self.context.name]

    assert run(Note, name="Ada").context.seen == ["Ada"]


def test_runs_of_one_class_share_nothing(run):
    class Collect(Task[list]):
        def work(self):
            self.context.setdefault("names", []).append(self.context.name)
            self.metadata["name"] = self.context.name
            self.errors.add("name", self.context.name)

    first, second = run(Collect, name="Ada"), run(Collect, name="Grace")

    assert (first.context.names, second.context.names) == (["Ada"], ["Grace"])
    assert (first.metadata["name"], second.metadata["name"]) == ("Ada", "Grace")
    assert (first.errors["name"], second.errors["name"]) == (["Ada"], ["Grace"])
    assert first.tid != second.tid


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad order"),
        AssertionError("bad order"),
        ExceptionGroup("bad order", [ValueError()]),
        type("Refused", (RuntimeError,), {})("bad order"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_work_raises_is_the_cause_of_a_failed_result(run, error):
    result = run(raising(error))

    assert result.failed
    assert result.cause is error
    assert result.reason == f"[{type(error).__name__}] {error}"


@pytest.mark.parametrize("error", [StopIteration("end"), StopAsyncIteration("end")])
@pytest.mark.parametrize(
    "execute",
    [lambda task: task.execute(), lambda task: asyncio.run(task.aexecute())],
)
def test_the_end_of_somebody_elses_iterator_is_a_failure_like_any_other(execute, error):
    result = execute(raising(error))

    assert result.failed
    assert result.cause is error


def test_an_exception_that_cannot_be_put_into_words_is_a_failed_result_too(run):
    class Speechless(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    error = Speechless()
    result = run(raising(error))

    assert result.failed
    assert result.cause is error
    assert result.reason.startswith("[Speechless]")


@pytest.mark.usefixtures("instant")
def test_what_user_code_raises_anywhere_is_the_cause_of_a_failed_result(run, ending):
    error = ValueError("bad order")

    def end(_):
        raise error

    result = run(ending(end))

    assert result.failed
    assert result.cause is error
    assert result.reason == "[ValueError] bad order"


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]
)
def test_what_is_no_exception_leaves_execute_from_anywhere(ending, error):
    def end(_):
        raise error

    with pytest.raises(error):
        ending(end).execute()
    assert Tell.execute().root


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError]
)
def test_what_is_no_exception_leaves_aexecute_from_anywhere(ending, error):
    def end(_):
        raise error

    async def main():
        with pytest.raises(error):
            await ending(end).aexecute()
        return await Tell.aexecute()

    assert asyncio.run(main()).root


def test_misuse_of_the_framework_becomes_the_result(run):
    class Misspell(Task[None]):
        def work(self):
            return self.context.nmae

    class Skipped(Task[None]):
        def work(self):
            self.skip()

    class Presume(Task[None]):
        def work(self):
            return Skipped.execute().value

    for task, error in ((Misspell, UnknownContextKey), (Presume, NoValueError)):
        result = run(task, name="Ada")
        assert type(result.cause) is error
        assert result.reason == f"[{error.__name__}] {result.cause}"
        with pytest.raises(error) as raised:
            result.or_raise()
        assert raised.value is result.cause


def test_a_run_after_one_that_was_torn_out_is_a_root_of_its_own(run):
    with pytest.raises(KeyboardInterrupt):
        run(raising(KeyboardInterrupt()))

    result = run(Tell)

    assert result.root
    assert len(result.chain) == 1


def test_a_run_inside_work_is_a_child_and_one_after_it_is_not():
    class Parent(Task[Result]):
        def work(self):
            return Tell.execute()

    parent = Parent.execute()

    assert parent.value.parent_tid == parent.tid
    assert Tell.execute().parent_tid is None


# -- execute_or_raise -----------------------------------------------------------


@pytest.fixture(params=["execute_or_raise", "aexecute_or_raise"])
def run_or_raise(request):
    def call(task, /, *source, **inputs):
        made = getattr(task, request.param)(*source, **inputs)
        return asyncio.run(made) if request.param.startswith("a") else made

    return call


def test_a_strict_run_returns_the_result_of_a_success(run_or_raise):
    result = run_or_raise(Tell, name="Ada")

    assert result.value == {"name": "Ada"}
    assert result.strict
    assert not Tell.execute().strict


def test_a_strict_run_raises_the_very_exception_that_work_raised(run_or_raise):
    error = ValueError("bad order")

    with pytest.raises(ValueError, match="bad order") as caught:
        run_or_raise(raising(error))

    assert caught.value is error


def test_a_strict_run_raises_a_fault_for_a_failure_on_purpose(run_or_raise):
    class Refuse(Task[None]):
        def work(self):
            self.fail("no such order", code=404)

    with pytest.raises(Fault, match="no such order") as caught:
        run_or_raise(Refuse)

    assert type(caught.value) is Refuse.Fault
    assert caught.value.result.metadata == {"code": 404}


def test_a_strict_run_raises_a_fault_for_errors(run_or_raise):
    class Invalid(Task[None]):
        def work(self):
            self.errors.add("name", "is too long")

    with pytest.raises(Invalid.Fault, match="name is too long"):
        run_or_raise(Invalid)


def test_a_strict_run_never_raises_for_a_skip(run_or_raise):
    class Rest(Task[None]):
        def work(self):
            self.skip("nothing to do")

    assert run_or_raise(Rest).reason == "nothing to do"


def test_a_strict_run_raises_after_its_lifecycle_is_complete(run_or_raise):
    events = []

    def watch(_task):
        yield
        events.append("middleware")

    @middleware(watch)
    class Refuse(Task[None]):
        def work(self):
            raise ValueError

        def rollback(self):
            events.append("rollback")

        @on_failed
        def page(self):
            events.append("on_failed")

    def executed(_, *, result, **__):
        events.append(result.status)

    with task_executed.connected_to(executed):
        try:
            run_or_raise(Refuse)
        except ValueError:
            events.append("raised")

    assert events == ["rollback", "on_failed", "middleware", "failed", "raised"]


def test_a_fault_raised_in_work_is_raised_again_by_a_strict_run(run_or_raise):
    faults = []

    class Child(Task[None]):
        def work(self):
            self.fail("empty shelf")

    class Parent(Task[None]):
        def work(self):
            try:
                Child.execute_or_raise()
            except Fault as fault:
                faults.append(fault)
                raise

    with pytest.raises(Child.Fault) as caught:
        run_or_raise(Parent)

    assert [caught.value] == faults


def test_a_strict_child_fails_its_parent_with_its_reason_and_origin(run):
    class Child(Task[None]):
        def work(self):
            self.fail("empty shelf")

    class Parent(Task[None]):
        def work(self):
            Child.execute_or_raise()

    result = run(Parent)

    assert result.reason == "empty shelf"
    assert result.origin.task is Child
    assert isinstance(result.cause, Child.Fault)


def test_a_child_that_is_not_strict_leaves_its_parent_alone(run):
    class Parent(Task[str]):
        def work(self):
            raising(ValueError()).execute()
            return "fine"

    assert run(Parent).value == "fine"


# -- sources --------------------------------------------------------------------


def test_a_context_is_shared(run):
    context = Context(name="Ada")

    assert run(Tell, context).context is context


def test_the_context_of_a_result_is_shared(run):
    first = run(Tell, name="Ada")

    assert run(Tell, first).context is first.context


def test_the_context_of_an_invocation_is_shared(run):
    invocation = Tell(name="Ada")

    assert run(Tell, invocation).context is invocation.context


def test_a_task_shares_its_context_with_a_task_it_runs(run):
    class Child(Task[None]):
        def work(self):
            self.context.total = self.context.price * 2

    class Parent(Task[int]):
        def work(self):
            Child.execute(self)
            return self.context.total

    assert run(Parent, price=4).value == 8


@pytest.mark.parametrize(
    "made", [dict, MappingProxyType, ChainMap, UserDict, lambda values: values | {}]
)
def test_any_other_mapping_is_copied(run, made):
    class Rename(Task[None]):
        def work(self):
            self.context.name = "Grace"

    source = made({"name": "Ada"})
    result = run(Rename, source)

    assert result.context.to_dict() == {"name": "Grace"}
    assert dict(source) == {"name": "Ada"}


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (3, "int"),
        ("name", "str"),
        ([("name", "Ada")], "list"),
        (Tell, "the class Tell"),
        (object(), "object"),
        (SimpleNamespace(context=3), "SimpleNamespace"),
    ],
)
def test_what_is_no_source_is_refused(run, source, kind):
    with pytest.raises(TypeError, match=rf"Tell takes .* mapping.* got {kind}\."):
        run(Tell, source)


@pytest.mark.parametrize("source", [Context(name="Ada"), {"name": "Ada"}])
def test_an_invocation_takes_a_source_too(source):
    assert Tell(source).run().value == {"name": "Ada"}


# -- invocations ----------------------------------------------------------------


def arun(invocation):
    return asyncio.run(invocation.arun())


@pytest.fixture(params=[Task.run, arun])
def run_invocation(request):
    return request.param


def test_an_invocation_holds_its_inputs_and_runs_nothing():
    calls = []

    class Greet(Task[None]):
        def work(self):
            calls.append(self.context.name)

    invocation = Greet(name="Ada")

    assert invocation.context.name == "Ada"
    assert calls == []


def test_an_invocation_is_run_by_run_and_arun(run_invocation):
    result = run_invocation(Tell(name="Ada"))

    assert result.value == {"name": "Ada"}
    assert not result.strict


def test_work_sees_the_invocation_itself(run_invocation):
    class Myself(Task[Task]):
        def work(self):
            return self

    invocation = Myself()

    assert run_invocation(invocation).value is invocation


@pytest.mark.parametrize("first", [Task.run, arun])
@pytest.mark.parametrize("second", [Task.run, arun])
def test_an_instance_runs_once(first, second):
    calls = []

    class Count(Task[None]):
        def work(self):
            calls.append(self)

    invocation = Count()
    first(invocation)

    with pytest.raises(FinishedTaskError, match=r"Count.*once"):
        second(invocation)
    assert calls == [invocation]


def test_an_instance_that_failed_does_not_run_again(run_invocation):
    invocation = raising(ValueError())()
    run_invocation(invocation)

    with pytest.raises(FinishedTaskError):
        run_invocation(invocation)


def test_an_instance_does_not_run_inside_its_own_work():
    class Recurse(Task[None]):
        def work(self):
            self.run()

    class Await(Task[None]):
        async def work(self):
            await self.arun()

    assert isinstance(Recurse.execute().cause, FinishedTaskError)
    assert isinstance(asyncio.run(Await.aexecute()).cause, FinishedTaskError)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("execute", r"\.run\(\)"),
        ("execute_or_raise", r"\.run\(\)\.or_raise\(\)"),
        ("aexecute", r"await .*\.arun\(\)"),
        ("aexecute_or_raise", r"await .*\.arun\(\)\)\.or_raise\(\)"),
        ("check", "of the class"),
    ],
)
def test_executing_an_invocation_is_a_mistake_and_says_so(name, cure):
    invocation = Tell(name="Ada")

    with pytest.raises(TypeError, match=f"{name}.*{cure}"):
        getattr(invocation, name)()
    assert invocation.run().success


def test_or_raise_makes_the_run_of_an_invocation_strict(run_invocation):
    error = ValueError("bad order")

    with pytest.raises(ValueError, match="bad order") as caught:
        run_invocation(raising(error)()).or_raise()

    assert caught.value is error


# -- a class that cannot be run ---------------------------------------------------


@pytest.mark.parametrize(
    "enter",
    [
        lambda task: task.execute(),
        lambda task: task.execute_or_raise(),
        lambda task: asyncio.run(task.aexecute()),
        lambda task: asyncio.run(task.aexecute_or_raise()),
        lambda task: task().run(),
        lambda task: asyncio.run(task().arun()),
    ],
)
def test_a_task_without_work_is_refused_by_every_entry_point(enter):
    class Idle(Task[None]):
        pass

    with pytest.raises(ImplementationError, match=r"Idle has no work\(\)"):
        enter(Idle)


def test_a_task_whose_child_has_no_work_fails_and_is_not_retried(run):
    class Idle(Task[None]):
        pass

    @retry_on(Exception, delay=0)
    class Parent(Task[None]):
        def work(self):
            Idle.execute()

    result = run(Parent)

    assert isinstance(result.cause, ImplementationError)
    assert result.retries == 0


# -- async ------------------------------------------------------------------------


class AwaitingWork(Task[str]):
    async def work(self):
        await asyncio.sleep(0)
        return "done"


class InheritedWork(AwaitingWork):
    pass


class AwaitingRollback(Task[str]):
    def work(self):
        return "done"

    async def rollback(self):
        await asyncio.sleep(0)


class AwaitingAround(Task[str]):
    def work(self):
        return "done"

    @around_execution
    async def wrap(self):
        await asyncio.sleep(0)
        yield


async def awaiting_middleware(_):
    await asyncio.sleep(0)
    yield


class AwaitingObject:
    async def __call__(self, _task):
        await asyncio.sleep(0)
        yield


@middleware(awaiting_middleware)
class AwaitingMiddleware(Task[str]):
    def work(self):
        return "done"


@middleware(AwaitingObject())
class AwaitingMiddlewareObject(Task[str]):
    def work(self):
        return "done"


def hooked_awaiting(decorator):
    class AwaitingHook(Task[str]):
        def work(self):
            return "done"

        @decorator
        async def hook(self):
            await asyncio.sleep(0)

    return AwaitingHook


AWAITING = [
    AwaitingWork,
    InheritedWork,
    AwaitingRollback,
    AwaitingAround,
    AwaitingMiddleware,
    AwaitingMiddlewareObject,
    *map(
        hooked_awaiting,
        [
            before_execution,
            before_validation,
            after_execution,
            on_complete,
            on_interrupted,
            on_success,
            on_skipped,
            on_failed,
            on_ok,
            on_ko,
        ],
    ),
]


@pytest.mark.parametrize("task", AWAITING)
@pytest.mark.parametrize(
    "enter",
    [
        lambda task: task.execute(),
        lambda task: task.execute_or_raise(),
        lambda task: task().run(),
    ],
)
def test_a_class_that_awaits_is_refused_at_once_by_a_synchronous_run(task, enter):
    started = []

    with (
        task_started.connected_to(lambda _, task: started.append(task)),
        pytest.raises(TypeError, match=rf"{task.__name__}\.aexecute"),
    ):
        enter(task)

    assert started == []


@pytest.mark.parametrize("task", AWAITING)
def test_a_class_that_awaits_is_run_by_aexecute(task):
    assert asyncio.run(task.aexecute()).value == "done"


def test_an_invocation_that_was_refused_can_still_be_awaited():
    invocation = AwaitingWork()
    with pytest.raises(TypeError):
        invocation.run()

    assert arun(invocation).value == "done"


def test_a_plain_task_runs_in_place_under_aexecute():
    class Where(Task[int]):
        def work(self):
            return threading.get_ident()

    assert asyncio.run(Where.aexecute()).value == threading.get_ident()


def test_a_plain_task_pauses_without_blocking_the_loop_under_aexecute():
    class Watched(clock.Clock):
        def __init__(self):
            self.pauses = []

        def sleep(self, _seconds):
            pytest.fail("the event loop was blocked")

        async def asleep(self, seconds):
            self.pauses.append(seconds)

    @retry_on(TimeoutError, limit=2, delay=4)
    class Flaky(Task[None]):
        def work(self):
            if self.attempt < 2:
                raise TimeoutError

    with clock.use(Watched()) as watched:
        assert asyncio.run(Flaky.aexecute()).success

    assert watched.pauses == [4, 4]


def test_runs_of_one_loop_take_turns_and_keep_apart():
    class Slow(Task[int]):
        async def work(self):
            for _ in range(self.context.number):
                await asyncio.sleep(0)
            self.metadata["number"] = self.context.number
            return self.context.number

    async def main():
        return await asyncio.gather(*(Slow.aexecute(number=n) for n in (3, 1, 2)))

    results = asyncio.run(main())

    assert [result.value for result in results] == [3, 1, 2]
    assert [result.metadata["number"] for result in results] == [3, 1, 2]
    assert all(result.root for result in results)


def test_an_async_parent_awaits_its_children():
    class Child(Task[int]):
        async def work(self):
            await asyncio.sleep(0)
            return self.context.number

    class Parent(Task[int]):
        async def work(self):
            runs = (Child.aexecute(number=number) for number in range(4))
            self.children = await asyncio.gather(*runs)
            self.context.parents = {child.parent_tid for child in self.children}
            return sum(child.value for child in self.children)

    result = asyncio.run(Parent.aexecute())

    assert result.value == 6
    assert result.context.parents == {result.tid}


def test_what_async_work_raises_is_the_cause_of_a_failed_result():
    error = ValueError("bad order")

    class Raising(Task[None]):
        async def work(self):
            await asyncio.sleep(0)
            raise error

    result = asyncio.run(Raising.aexecute())

    assert result.cause is error
    with pytest.raises(ValueError, match="bad order") as caught:
        asyncio.run(Raising.aexecute_or_raise())
    assert caught.value is error


def test_cancelling_a_run_ends_it():
    events = []

    class Sleepy(Task[None]):
        async def work(self):
            try:
                await asyncio.sleep(3600)
            finally:
                events.append("left")

    async def main():
        running = asyncio.create_task(Sleepy.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    assert events == ["left"]


# -- decorated work -----------------------------------------------------------------


def traced(function):
    @functools.wraps(function)
    def wrapper(self, *args):
        self.metadata["traced"] = True
        return function(self, *args)

    return wrapper


def test_a_decorated_work_is_called_through_its_decorator(run):
    class Greet(Task[str]):
        @traced
        def work(self):
            return "hello"

    result = run(Greet)

    assert result.value == "hello"
    assert result.metadata == {"traced": True}


class DecoratedWork(Task[str]):
    @traced
    async def work(self):
        await asyncio.sleep(0)
        return "hello"


def test_the_coroutine_that_a_decorated_work_returns_is_awaited():
    result = asyncio.run(DecoratedWork.aexecute())

    assert result.value == "hello"
    assert result.metadata == {"traced": True}


@pytest.mark.parametrize(
    "enter", [DecoratedWork.execute, lambda: DecoratedWork().run()]
)
def test_a_synchronous_run_never_returns_a_coroutine_as_its_value(enter):
    result = enter()

    assert isinstance(result.cause, AsyncTaskError)
    assert "aexecute" in result.reason


def test_a_synchronous_run_refuses_a_coroutine_whether_it_suspends_or_not():
    @retry_on(Exception, delay=0)
    class Hidden(Task[str]):
        @traced
        async def work(self):
            return "hello"

    class HiddenHook(Tell):
        @on_success
        @traced
        async def thank(self):
            pass

    for task in (Hidden, HiddenHook):
        result = task.execute()
        assert isinstance(result.cause, AsyncTaskError)
        assert f"{task.__name__}.aexecute" in result.reason
        assert result.retries == 0


def test_a_synchronous_run_keeps_an_async_rollback_it_could_not_foresee_as_error():
    class HiddenRollback(Task[None]):
        def work(self):
            self.fail("no")

        @traced
        async def rollback(self):
            pass

    result = HiddenRollback.execute()

    assert result.reason == "no"
    assert isinstance(result.rollback_error, AsyncTaskError)


def test_a_coroutine_made_by_plain_work_is_awaited_and_retried():
    async def fetch(attempt):
        await asyncio.sleep(0)
        if attempt == 0:
            raise TimeoutError
        return attempt

    @retry_on(TimeoutError, delay=0)
    class Fetch(Task[int]):
        def work(self):
            return fetch(self.attempt)

    result = asyncio.run(Fetch.aexecute())

    assert result.value == 1
    assert result.retries == 1


def test_a_coroutine_that_async_work_returns_was_not_awaited_and_fails_the_task():
    begun = []

    async def charge():
        begun.append(1)

    class Charge(Task[None]):
        async def work(self):
            return charge()  # ``await`` is missing

    result = asyncio.run(Charge.aexecute())

    assert "Charge.work returned the coroutine" in result.reason
    assert "Write `return await ...`" in result.reason
    assert begun == []


def test_the_coroutines_that_decorated_hooks_return_are_awaited():
    events = []

    class Greet(Task[None]):
        def work(self):
            events.append("work")

        @before_execution
        @traced
        async def prepare(self):
            await asyncio.sleep(0)
            events.append("prepare")

        @on_success
        @traced
        async def thank(self):
            await asyncio.sleep(0)
            events.append("thank")

    asyncio.run(Greet.aexecute())

    assert events == ["prepare", "work", "thank"]


def test_an_awaitable_that_async_work_returns_is_its_value():
    class Start(Task[asyncio.Future]):
        async def work(self):
            self.metadata["future"] = asyncio.get_running_loop().create_future()
            return self.metadata["future"]

    result = asyncio.run(Start.aexecute())

    assert result.value is result.metadata["future"]


# -- what work can use --------------------------------------------------------------


def test_work_knows_its_attempt_its_id_and_what_it_notes_down(run):
    seen = []

    @retry_on(TimeoutError, limit=2, delay=0)
    class Flaky(Task[None]):
        def work(self):
            seen.append((self.attempt, self.tid))
            self.metadata[f"attempt {self.attempt}"] = True
            if self.attempt < 2:
                raise TimeoutError

    result = run(Flaky)

    assert seen == [(0, result.tid), (1, result.tid), (2, result.tid)]
    assert result.metadata == {"attempt 0": True, "attempt 1": True, "attempt 2": True}


def test_the_errors_of_a_task_are_those_of_its_result(run):
    class Invalid(Task[None]):
        def work(self):
            self.errors.add("name", "is too long")

    assert run(Invalid).errors.to_dict() == {"name": ["is too long"]}


def test_the_logger_of_a_task_knows_which_run_it_writes_for(run, lines):
    class Greet(Task[None]):
        def work(self):
            self.logger.info("hello", name="Ada")

    result = run(Greet)

    line = lines[0]
    assert (line["event"], line["name"]) == ("hello", "Ada")
    assert line["task"] == result.task.__qualname__
    assert (line["tid"], line["cid"]) == (result.tid, result.cid)
