"""The exception behind a failure is the user's: its traceback, cause and context."""

from __future__ import annotations

import asyncio
import traceback
from weakref import ref

import pytest

from cmdx import (
    Task,
    around_execution,
    before_execution,
    middleware,
    on_failed,
    on_success,
    retry_on,
)


def functions_of(error):
    """The functions a traceback leads through, the outermost first."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def modules_of(error):
    return {
        frame.f_globals["__name__"]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    }


def execute(task):
    return task.execute()


def aexecute(task):
    """Run the same task with a ``work`` that suspends."""

    class Later(task):
        async def work(self):
            await asyncio.sleep(0)
            return super().work()

    return asyncio.run(Later.aexecute())


@pytest.fixture(params=[execute, aexecute])
def run(request):
    return request.param


def deeper():
    raise ValueError("no luck")


class Broken(Task[None]):
    def work(self) -> None:
        deeper()


@retry_on(ValueError, TimeoutError, limit=2, delay=0)
class Tired(Task[None]):
    def work(self) -> None:
        if self.attempt == 0:
            raise TimeoutError("first")
        deeper()


@retry_on(ValueError, limit=2, delay=0, if_="again")
class BrokenGate(Broken):
    def again(self) -> bool:
        return self.nothing_of_the_kind


@retry_on(ValueError, limit=2, jitter="spread")
class BrokenJitter(Broken):
    def spread(self, attempt: int) -> float:
        return 1 / attempt


class Fine(Task[None]):
    def work(self) -> None: ...


class BrokenBefore(Fine):
    @before_execution
    def prepare(self) -> None:
        deeper()


class BrokenAfter(Fine):
    @on_success
    def thank(self) -> None:
        deeper()


class BrokenPager(Broken):
    @on_failed
    def page(self) -> None:
        raise OSError("no pager")


class BrokenAround(Fine):
    @around_execution
    def wrap(self):
        yield
        deeper()


def opening(_task):
    deeper()
    yield


def closing(_task):
    yield
    deeper()


@middleware(opening)
class BrokenOpening(Fine):
    pass


@middleware(closing)
class BrokenClosing(Fine):
    pass


class BrokenCorrelation(Fine, correlation_id=deeper):
    pass


@pytest.mark.parametrize(
    ("task", "functions"),
    [
        (Broken, ["work", "deeper"]),
        (Tired, ["work", "deeper"]),
        (BrokenGate, ["again"]),
        (BrokenJitter, ["spread"]),
        (BrokenBefore, ["prepare", "deeper"]),
        (BrokenAfter, ["thank", "deeper"]),
        (BrokenPager, ["page"]),
        (BrokenAround, ["wrap", "deeper"]),
        (BrokenOpening, ["opening", "deeper"]),
        (BrokenClosing, ["closing", "deeper"]),
        (BrokenCorrelation, ["deeper"]),
    ],
)
def test_a_traceback_begins_in_the_code_of_the_user(task, functions):
    error = task.execute().cause

    assert functions_of(error) == functions
    assert modules_of(error) == {__name__}


def test_a_traceback_of_a_coroutine_begins_in_the_code_of_the_user():
    class Later(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(0)
            deeper()

    error = asyncio.run(Later.aexecute()).cause

    assert functions_of(error) == ["work", "deeper"]


def test_the_error_of_a_rollback_has_its_own_traceback():
    class Stuck(Broken):
        def rollback(self) -> None:
            deeper()

    result = Stuck.execute()

    assert functions_of(result.rollback_error) == ["rollback", "deeper"]
    assert functions_of(result.cause) == ["work", "deeper"]
    assert result.rollback_error.__context__ is None


@pytest.mark.parametrize(
    "task",
    [
        Broken,
        Tired,
        BrokenBefore,
        BrokenAfter,
        BrokenAround,
        BrokenOpening,
        BrokenClosing,
        BrokenCorrelation,
    ],
)
def test_no_error_happened_during_the_handling_of_another(run, task):
    error = run(task).cause

    assert error.__context__ is None
    assert error.__cause__ is None
    assert "During handling" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("task", [BrokenGate, BrokenJitter, BrokenPager])
def test_what_replaces_a_failure_has_it_as_its_context(run, task):
    result = run(task)
    error, earlier = result.cause, result.replaced.cause

    assert isinstance(earlier, ValueError)
    assert error.__context__ is earlier
    assert earlier.__context__ is None
    assert functions_of(earlier)[-2:] == ["work", "deeper"]
    assert "ValueError: no luck" in "".join(traceback.format_exception(error))


def test_no_attempt_remembers_the_ones_before(run):
    @retry_on(Exception, limit=3, delay=0)
    class Various(Task[None]):
        def work(self) -> None:
            raise (KeyError, TimeoutError, OSError, ValueError)[self.attempt]

    result = run(Various)

    assert [type(attempt.error) for attempt in result.attempts] == [
        KeyError,
        TimeoutError,
        OSError,
        ValueError,
    ]
    assert [attempt.error.__context__ for attempt in result.attempts] == [None] * 4


def test_only_the_last_attempt_keeps_its_traceback(run):
    result = run(Tired)

    assert [bool(functions_of(attempt.error)) for attempt in result.attempts] == [
        False,
        False,
        True,
    ]


def test_what_an_earlier_attempt_was_raised_from_keeps_no_frames(run):
    held = []

    @retry_on(OSError, limit=2, delay=0)
    class Chained(Task[None]):
        def work(self) -> None:
            payload = Payload()
            held.append(ref(payload))
            try:
                deeper()
            except ValueError as error:
                saved = error
            raise OSError("again") from saved  # outside: it has no context

    result = run(Chained)

    assert [attempt.error.__context__ for attempt in result.attempts] == [None] * 3
    assert [payload() is None for payload in held] == [True, True, False]


class Payload:
    """What a frame holds."""


def test_one_error_raised_again_and_again_shows_the_last_time_only():
    error = TimeoutError("always the same")

    @retry_on(TimeoutError, limit=3, delay=0)
    class Same(Task[None]):
        def work(self) -> None:
            raise error

    result = Same.execute()

    assert result.cause is error
    assert functions_of(error) == ["work"]


def test_cause_and_context_of_the_user_are_left_alone(run):
    class Translating(Task[None]):
        def work(self) -> None:
            try:
                deeper()
            except ValueError as error:
                raise LookupError("translated") from error

    error = run(Translating).cause

    assert type(error.__cause__) is ValueError
    assert error.__context__ is error.__cause__
    assert functions_of(error.__cause__)[-2:] == ["work", "deeper"]


def test_an_implicit_context_of_the_user_is_left_alone(run):
    class Clumsy(Task[None]):
        def work(self) -> None:
            try:
                deeper()
            finally:
                raise LookupError("while cleaning up")

    error = run(Clumsy).cause

    assert type(error.__context__) is ValueError
    assert error.__cause__ is None
    assert not error.__suppress_context__


def test_a_retried_error_keeps_the_cause_the_user_gave_it(run):
    @retry_on(LookupError, limit=1, delay=0)
    class Translating(Task[None]):
        def work(self) -> None:
            if self.attempt:
                return
            try:
                deeper()
            except ValueError as error:
                raise LookupError("translated") from error

    (first, _) = run(Translating).attempts

    assert type(first.error.__cause__) is ValueError


def test_execute_or_raise_raises_with_the_place_it_came_from():
    with pytest.raises(ValueError, match="no luck") as raised:
        Tired.execute_or_raise()

    assert functions_of(raised.value)[-2:] == ["work", "deeper"]
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None


def test_aexecute_or_raise_raises_with_the_place_it_came_from():
    with pytest.raises(ValueError, match="no luck") as raised:
        asyncio.run(Tired.aexecute_or_raise())

    assert functions_of(raised.value)[-2:] == ["work", "deeper"]
    assert raised.value.__context__ is None


def test_a_callable_retried_inside_work_keeps_its_traceback_to_the_user():
    class Calling(Task[None]):
        def work(self) -> None:
            self.retry(deeper, max_attempts=3, base_delay=1e-9, max_delay=1e-9)

    error = Calling.execute().cause

    assert functions_of(error)[0] == "work"
    assert functions_of(error)[-1] == "deeper"
    assert error.__context__ is None
