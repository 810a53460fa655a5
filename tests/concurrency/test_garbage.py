"""A run leaves nothing behind that only the garbage collector could free."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import garbage
import pytest

from cmdx import (
    Fault,
    Task,
    Workflow,
    around_execution,
    before_execution,
    clock,
    middleware,
    on_failed,
    parallel,
    retry_on,
    task_cancelled,
    task_executed,
    task_retried,
)

RUNS = 1_000
FEWER_RUNS = 100


@pytest.fixture(autouse=True, scope="module")
def _no_collector():
    with garbage.no_collector():
        yield


def left_behind(run, times=FEWER_RUNS):
    return garbage.left_behind(run, times)


def left_behind_by_coroutines(run, times=FEWER_RUNS):
    return asyncio.run(garbage.left_behind_by_coroutines(run, times))


# -- tasks with two failures each -----------------------------------------------


@retry_on(TimeoutError, limit=2, delay=0)
class Recovered(Task[int]):
    def work(self) -> int:
        if self.attempt < 2:
            raise TimeoutError(f"attempt {self.attempt}")
        return self.attempt


@retry_on(TimeoutError, limit=1, delay=0)
class Exhausted(Task[int]):
    def work(self) -> int:
        raise TimeoutError(f"attempt {self.attempt}")


@retry_on(TimeoutError, limit=2, delay=0)
class NotListed(Task[int]):
    def work(self) -> int:
        if self.attempt == 0:
            raise TimeoutError
        raise ValueError("never heard of")


@retry_on(TimeoutError, limit=2, delay=0)
class Halted(Task[int]):
    def work(self) -> int:
        if self.attempt == 0:
            raise TimeoutError
        self.fail("enough", code=1)


@retry_on(ConnectionError, limit=1, delay=0)
class Chained(Task[int]):
    def work(self) -> int:
        try:
            return {}["inner"]
        except KeyError as error:
            raise ConnectionError("outer") from error


class OnceBroken(Task[int]):
    def work(self) -> int:
        raise ValueError("once")


class OnceFailed(Task[int]):
    def work(self) -> int:
        self.fail("once")


class Skipped(Task[int]):
    def work(self) -> int:
        self.skip("not now")


class Nesting(Task[int]):
    def work(self) -> int:
        Exhausted.execute()
        Halted.execute()
        raise ValueError("after two")


class Throwing(Task[int]):
    def work(self) -> int:
        Recovered.execute()
        self.throw(Halted.execute())
        return 1


class ThrowingAnError(Task[int]):
    def work(self) -> int:
        self.throw(Exhausted.execute())
        return 1


class ThrowingTwice(Task[int]):
    def work(self) -> int:
        self.throw(ThrowingAnError.execute())
        return 1


class Strict(Task[int]):
    def work(self) -> int:
        return OnceFailed.execute_or_raise().value


class StrictTwice(Task[int]):
    def work(self) -> int:
        return Strict.execute_or_raise().value


class StrictAboutAnError(Task[int]):
    def work(self) -> int:
        return Exhausted.execute_or_raise().value


@retry_on(Fault, limit=2, delay=0)
class RetriedFault(Task[int]):
    def work(self) -> int:
        return OnceFailed.execute_or_raise().value


@retry_on(TimeoutError, limit=2, if_=lambda error: error.args[1])
class BrokenGate(Task[int]):
    def work(self) -> int:
        raise TimeoutError


@retry_on(TimeoutError, limit=2, jitter=lambda attempt: 1 / attempt)
class BrokenJitter(Task[int]):
    def work(self) -> int:
        raise TimeoutError


class BrokenRollback(Task[int]):
    def work(self) -> int:
        raise ValueError("first")

    def rollback(self) -> None:
        raise OSError("second")


class BrokenHook(OnceBroken):
    @on_failed
    def page(self) -> None:
        raise OSError("no pager")


class BrokenBefore(Recovered):
    @before_execution
    def prepare(self) -> None:
        raise OSError("not ready")


class BrokenAround(OnceBroken):
    @around_execution
    def wrap(self):
        yield
        raise OSError("not tidy")


def raising_before(_task):
    raise OSError("closed")
    yield


def raising_after(_task):
    yield
    raise OSError("lost")


def keeping(_task):
    result = yield
    assert result.reason


@middleware(raising_before)
class BrokenOutside(OnceBroken):
    pass


@middleware(raising_after)
class BrokenAfterwards(OnceBroken):
    pass


@middleware(keeping)
class Wrapped(Exhausted):
    @around_execution
    def wrap(self):
        outcome = yield
        assert outcome.cause


class Correlated(Nesting, correlation_id=lambda: "request-1"):
    pass


class FailedByAnError(Task[int]):
    def work(self) -> int:
        try:
            return {}["order"]
        except KeyError as error:
            self.fail(error)


class FailedByAnErrorInHand(Task[int]):
    def work(self) -> int:
        self.fail(ValueError("never raised"))


class SkippedByAnError(Task[int]):
    def work(self) -> int:
        self.skip(ValueError("never raised"))


class Misspelt(Task[int]):
    def work(self) -> int:
        return self.context.nmae


class Unyielding(Task[int]):
    def work(self) -> int:
        return 1

    @around_execution
    def wrap(self):
        return None


@middleware(raising_after)
class ReplacedThrice(BrokenHook):
    @around_execution
    def wrap(self):
        yield
        raise LookupError("not tidy")


class ReplacedByAHalt(OnceBroken):
    @on_failed
    def forgive(self):
        self.succeed("never mind", value=3)


@retry_on(TimeoutError, limit=2, if_=lambda: Strict.execute_or_raise().value)
class FaultInAGate(Task[int]):
    def work(self) -> int:
        raise TimeoutError


class HaltedRollback(OnceBroken):
    def rollback(self) -> None:
        self.skip("gone")


class HaltingItsParent(Task[int]):
    def work(self) -> int:
        self.context.pop("parent").fail("enough")

    def rollback(self) -> None: ...


class HaltedByItsChild(Task[int]):
    def work(self) -> int:
        return HaltingItsParent.execute({"parent": self}).value


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


@retry_on(Frozen, limit=2, delay=0)
class RaisingFrozen(Task[int]):
    def work(self) -> int:
        raise Frozen(self.attempt)


TASKS = pytest.mark.parametrize(
    "task",
    [
        Recovered,
        Exhausted,
        NotListed,
        Halted,
        Chained,
        OnceBroken,
        OnceFailed,
        Skipped,
        Nesting,
        Throwing,
        ThrowingAnError,
        ThrowingTwice,
        Strict,
        StrictTwice,
        StrictAboutAnError,
        RetriedFault,
        BrokenGate,
        BrokenJitter,
        BrokenRollback,
        BrokenHook,
        BrokenBefore,
        BrokenAround,
        BrokenOutside,
        BrokenAfterwards,
        Wrapped,
        Correlated,
        FailedByAnError,
        FailedByAnErrorInHand,
        SkippedByAnError,
        Misspelt,
        Unyielding,
        ReplacedThrice,
        ReplacedByAHalt,
        FaultInAGate,
        HaltedRollback,
        HaltedByItsChild,
        RaisingFrozen,
    ],
)


def awaiting(task):
    """The same task, with a ``work`` that suspends."""

    class Later(task):
        async def work(self):
            await asyncio.sleep(0)
            return super().work()

    return Later


def test_the_collector_would_find_a_cycle_if_there_was_one():
    def knot():
        try:
            return 1 / 0
        except ZeroDivisionError as error:
            kept = error
        return kept.args

    assert left_behind(knot)["ZeroDivisionError"] == FEWER_RUNS


@TASKS
def test_execute_leaves_no_cycles(task):
    assert left_behind(task.execute, RUNS) == {}


@TASKS
@pytest.mark.usefixtures("instant")
def test_execute_or_raise_leaves_no_cycles_when_caught(task):
    def caught():
        with suppress(Exception):
            task.execute_or_raise()

    assert left_behind(caught, RUNS) == {}


@TASKS
def test_aexecute_leaves_no_cycles(task):
    assert left_behind_by_coroutines(awaiting(task).aexecute, RUNS) == {}


@TASKS
def test_aexecute_or_raise_leaves_no_cycles_when_caught(task):
    later = awaiting(task)

    async def caught():
        with suppress(Exception):
            await later.aexecute_or_raise()

    assert left_behind_by_coroutines(caught, RUNS) == {}


@TASKS
def test_reading_a_result_leaves_no_cycles(task):
    # From Python 3.12 on the frames of an error hold all they were called from, and so
    # a function that keeps a failed result in a local of its own makes a cycle itself.
    def read(result):
        result.to_json()
        result.chain.tree()
        return result.attempts, result.parent, result.chain.root, list(result.chain)

    assert left_behind(lambda: read(task.execute())) == {}


@TASKS
def test_asking_a_failed_result_for_its_value_leaves_no_cycles(task):
    def ask():
        with suppress(Exception):
            return task.execute().value

    assert left_behind(ask) == {}


@TASKS
def test_or_raise_leaves_no_cycles_when_caught(task):
    def caught():
        with suppress(Exception):
            task.execute().or_raise()

    assert left_behind(caught) == {}


@TASKS
def test_listening_leaves_no_cycles(task):
    def note(_sender, **payload):
        return str(payload)

    with task_retried.connected_to(note), task_executed.connected_to(note):
        left = left_behind(task.execute)

    assert left == {}


def test_a_kept_invocation_leaves_no_cycles():
    def run():
        invocation = Exhausted()
        return invocation.run().failed

    assert left_behind(run) == {}


def test_retrying_a_callable_inside_work_leaves_no_cycles():
    class Calling(Task[int]):
        def work(self) -> int:
            def flaky(attempt):
                raise TimeoutError(attempt)

            return self.retry(flaky, max_attempts=3, base_delay=1e-9, max_delay=1e-9)

    assert left_behind(Calling.execute) == {}


# -- interrupts -------------------------------------------------------------------


class Leave(BaseException):
    pass


class Interrupted(Task[int]):
    def work(self) -> int:
        raise Leave

    def rollback(self) -> None: ...


@retry_on(TimeoutError, limit=2, delay=0)
class InterruptedLater(Task[int]):
    def work(self) -> int:
        raise (TimeoutError, Leave)[self.attempt]


class Restless(clock.Clock):
    def sleep(self, seconds):
        raise Leave(seconds)


class InterruptedPause(Task[int]):
    def work(self) -> int:
        with clock.use(Restless()):
            return self.retry(plainly)


class InterruptedInside(Task[int]):
    def work(self) -> int:
        OnceBroken.execute()
        return Interrupted.execute().value


class InterruptedRollback(OnceBroken):
    def rollback(self) -> None:
        raise Leave


class InterruptedAfterwards(OnceBroken):
    @on_failed
    def page(self) -> None:
        raise Leave

    def rollback(self) -> None:
        raise OSError("second")


class InterruptedAndStuck(Interrupted):
    def rollback(self) -> None:
        raise OSError("second")


@middleware(keeping)
class InterruptedWithin(Interrupted):
    @around_execution
    def wrap(self):
        try:
            yield
        finally:
            self.context.closed = True


def swallowing(_task):
    with suppress(BaseException):
        yield


@middleware(swallowing)
class InterruptedInVain(Interrupted):
    pass


def turning(_task):
    try:
        yield
    except Leave:
        raise Leave("another") from None


def clumsy(_task):
    try:
        yield
    finally:
        raise OSError("cannot close")


@middleware(turning, turning)
class InterruptedTwice(Interrupted):
    pass


@middleware(keeping, clumsy)
class InterruptedClumsily(Interrupted):
    pass


@middleware(swallowing)
@middleware(clumsy, if_=lambda task: task.context.nowhere)
class BrokenWrapperGate(Interrupted):
    @on_failed
    def page(self) -> None:
        raise Leave


def interrupted_opening(_task):
    raise Leave
    yield


@middleware(turning, interrupted_opening)
class InterruptedOpening(OnceBroken):
    pass


INTERRUPTED = pytest.mark.parametrize(
    "task",
    [
        Interrupted,
        InterruptedLater,
        InterruptedPause,
        InterruptedInside,
        InterruptedRollback,
        InterruptedAfterwards,
        InterruptedAndStuck,
        InterruptedWithin,
        InterruptedInVain,
        InterruptedTwice,
        InterruptedClumsily,
        BrokenWrapperGate,
        InterruptedOpening,
    ],
)


@INTERRUPTED
@pytest.mark.parametrize("heard", [False, True], ids=["silent", "heard"])
def test_an_interrupt_leaves_no_cycles_when_caught(task, heard):
    def caught():
        with suppress(Leave):
            task.execute()

    def note(_sender, **payload):
        return str(payload)

    with task_cancelled.connected_to(note) if heard else nullcontext():
        assert left_behind(caught) == {}


@INTERRUPTED
def test_an_interrupt_of_a_coroutine_leaves_no_cycles_when_caught(task):
    later = awaiting(task)

    async def caught():
        with suppress(Leave):
            await later.aexecute()

    assert left_behind_by_coroutines(caught) == {}


class Endless(Task[None]):
    async def work(self) -> None:
        await asyncio.sleep(3600)


class SlowToUndo(OnceBroken):
    async def rollback(self) -> None:
        await asyncio.sleep(0)


class Undone(Task[None]):
    def work(self) -> None: ...

    async def rollback(self) -> None:
        await asyncio.sleep(0)


class CancelledSteps(Workflow[None]):
    steps = (Undone, Endless)


class CancelledSiblings(Workflow[None]):
    steps = (Undone, parallel(Endless, Endless))


class CancelledUndoing(Workflow[None]):
    steps = (Undone, OnceBroken)


@pytest.mark.parametrize(
    "task",
    [Endless, SlowToUndo, CancelledSteps, CancelledSiblings, CancelledUndoing],
)
def test_a_cancelled_coroutine_leaves_no_cycles(task):
    async def cancel():
        running = asyncio.ensure_future(task.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert running.cancelled()

    assert left_behind_by_coroutines(cancel) == {}


# -- what a failed attempt held on to -------------------------------------------


class Ballast:
    """Something large in a local variable of ``work``."""


def plainly():
    raise TimeoutError("plainly")


def from_another():
    try:
        plainly()
    except TimeoutError as error:
        raise ConnectionError("outer") from error


def while_handling_another():
    try:
        plainly()
    finally:
        raise ConnectionError("outer")


def in_a_group():
    message = "several"
    try:
        plainly()
    except TimeoutError as error:
        raise ExceptionGroup(message, [error]) from None


def in_another_task():
    OnceFailed.execute_or_raise()


@pytest.mark.parametrize(
    "failing",
    [plainly, from_another, while_handling_another, in_a_group, in_another_task],
)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_locals_of_a_failed_attempt_are_freed_before_the_next(failing, colour):
    alive = []

    @retry_on(Exception, limit=2, delay=0)
    class Heavy(Task[None]):
        def work(self) -> None:
            alive.append([each() is not None for each in self.context.ballast])
            ballast = Ballast()
            self.context.ballast.append(weakref.ref(ballast))
            failing()

    if colour == "sync":
        result = Heavy.execute(ballast=[])
    else:
        result = asyncio.run(awaiting(Heavy).aexecute(ballast=[]))

    assert result.retries == 2
    assert alive == [[], [False], [False, False]]


def test_locals_of_the_last_attempt_live_as_long_as_the_result():
    class Heavy(Task[None]):
        def work(self) -> None:
            ballast = Ballast()
            self.context.ballast = weakref.ref(ballast)
            raise TimeoutError

    result = Heavy.execute()
    ballast = result.context.ballast
    alive = ballast() is not None
    del result

    assert alive
    assert ballast() is None
