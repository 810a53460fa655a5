"""Which errors are retried, how often, and what is never retried."""

from __future__ import annotations

import asyncio

import pytest

from cmdx import (
    CmdxError,
    Fault,
    FinishedTaskError,
    ImplementationError,
    Status,
    Stop,
    Task,
    UnknownContextKey,
    clock,
    on_failed,
    retry_on,
    task_retried,
)
from cmdx.outcome import Halt

pytestmark = pytest.mark.usefixtures("instant")


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        self.context.calls = self.attempt + 1
        raise self.context.get("error", TimeoutError)("down")


class Outage(BaseException):
    """Neither an ordinary error nor one of those that are never retried."""


# -- which errors are retried, and how often ---------------------------------------


def test_attempts_are_counted_from_zero_and_inside_work(execute):  # R-004-9
    seen = []

    @retry_on(TimeoutError, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            seen.append(self.attempt)
            raise TimeoutError

    execute(Charge)

    assert seen == [0, 1, 2]


@pytest.mark.parametrize(
    ("listed", "raised", "retries"),
    [
        (ConnectionError, ConnectionError, 3),
        (ConnectionError, ConnectionResetError, 3),
        (OSError, TimeoutError, 3),
        (ConnectionResetError, ConnectionError, 0),
        (KeyError, IndexError, 0),
        (LookupError, IndexError, 3),
        (Exception, ZeroDivisionError, 3),
    ],
)
def test_an_error_matches_its_class_and_the_bases_of_it(
    execute, listed, raised, retries
):  # R-004-9
    @retry_on(listed)
    class Charge(Down):
        pass

    result = execute(Charge, error=raised)

    assert result.retries == retries
    assert result.context.calls == retries + 1


def test_an_error_that_is_not_listed_passes_at_once(execute, instant):  # R-004-9
    @retry_on(TimeoutError)
    class Charge(Down):
        pass

    result = execute(Charge, error=KeyError)

    assert (result.retries, instant.pauses) == (0, [])
    assert (result.stopped, type(result.cause)) == (Stop.NOT_LISTED, KeyError)


def test_an_unlisted_error_ends_the_retries_of_a_listed_one(execute, instant):
    @retry_on(TimeoutError)  # R-004-9
    class Charge(Task[None]):
        def work(self) -> None:
            raise (TimeoutError, KeyError)[self.attempt]

    result = execute(Charge)

    assert (result.retries, instant.pauses) == (1, [0.5])
    assert (result.stopped, type(result.cause)) == (Stop.NOT_LISTED, KeyError)


def test_pauses_lie_between_attempts_and_not_after_the_last(execute):  # R-004-10
    trace = []

    class Traced(clock.Clock):
        def sleep(self, seconds: float) -> None:
            trace.append(seconds)

        async def asleep(self, seconds: float) -> None:
            trace.append(seconds)

    @retry_on(TimeoutError, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            trace.append("work")
            raise TimeoutError

    with clock.use(Traced()):
        execute(Charge)

    assert trace == ["work", 0.5, "work", 0.5, "work"]


def test_the_last_error_is_the_very_object_that_was_raised(execute):  # R-004-10
    raised = []

    @retry_on(TimeoutError, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            raised.append(TimeoutError(f"number {self.attempt}"))
            raise raised[-1]

    result = execute(Charge)

    assert result.cause is raised[2]
    assert result.reason == "[TimeoutError] number 2"


@pytest.mark.parametrize("value", [None, False, 0, [], TimeoutError()], ids=repr)
def test_the_first_attempt_that_returns_ends_the_loop(execute, value):  # R-004-16
    @retry_on(TimeoutError, limit=5)
    class Charge(Task[object]):
        def work(self) -> object:
            if self.attempt < 2:
                raise TimeoutError
            return value

    result = execute(Charge)

    assert (result.success, result.retries) == (True, 2)
    assert result.value is value


def test_plain_work_is_retried_under_aexecute(instant):
    @retry_on(TimeoutError)
    class Charge(Task[int]):
        def work(self) -> int:
            if self.attempt < 2:
                raise TimeoutError
            return self.attempt

    assert asyncio.run(Charge.aexecute()).value == 2
    assert instant.pauses == [0.5, 0.5]


def test_an_invocation_is_retried_as_well(instant):
    @retry_on(TimeoutError)
    class Charge(Down):
        pass

    assert Charge().run().retries == 3
    assert asyncio.run(Charge().arun()).retries == 3
    assert instant.pauses == [0.5] * 6


def test_each_run_has_all_its_retries(execute):
    @retry_on(TimeoutError, limit=2)
    class Charge(Down):
        pass

    assert [execute(Charge).retries for _ in range(3)] == [2, 2, 2]


def test_a_synchronous_run_sleeps_and_an_asynchronous_one_awaits():
    slept = []

    class Told(clock.Clock):
        def sleep(self, seconds: float) -> None:
            slept.append(("sync", seconds))

        async def asleep(self, seconds: float) -> None:
            slept.append(("async", seconds))

    @retry_on(TimeoutError, limit=1)
    class Charge(Down):
        pass

    with clock.use(Told()):
        Charge.execute()
        asyncio.run(Charge.aexecute())

    assert slept == [("sync", 0.5), ("async", 0.5)]


# -- what is never retried ---------------------------------------------------------


NEVER = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]


@pytest.mark.parametrize("listing", ["BaseException", "itself", "both"])
@pytest.mark.parametrize("error", NEVER)
def test_interruptions_are_never_retried(execute, instant, error, listing):
    calls = []
    listed = {"BaseException": [BaseException], "itself": [error]}

    @retry_on(listed.get(listing, [BaseException, error]), limit=5)
    class Charge(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            raise error

    with pytest.raises(error):
        execute(Charge)

    assert (calls, instant.pauses) == ([0], [])


@pytest.mark.parametrize("listed", [Halt, BaseException, (Halt, TimeoutError)])
@pytest.mark.parametrize("halt", ["succeed", "skip", "fail"])
def test_a_listed_halt_is_not_retried(execute, instant, halt, listed):
    calls = []

    @retry_on(listed, limit=3)
    class Charge(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            getattr(self, halt)("enough")

    result = execute(Charge)

    assert (calls, instant.pauses) == ([0], [])
    assert (result.reason, result.stopped) == ("enough", Stop.HALTED)


def test_an_interruption_after_a_retry_ends_the_run(execute, instant):
    @retry_on(BaseException, TimeoutError, limit=5)
    class Charge(Task[None]):
        def work(self) -> None:
            raise (TimeoutError, KeyboardInterrupt)[self.attempt]

    with pytest.raises(KeyboardInterrupt):
        execute(Charge)

    assert instant.pauses == [0.5]


def test_listing_the_root_of_all_exceptions_retries_ordinary_errors(execute):
    @retry_on(BaseException)
    class Charge(Down):
        pass

    assert execute(Charge).retries == 3


def test_an_extraordinary_error_is_not_retried_for_the_root_alone(execute, instant):
    @retry_on(BaseException)
    class Charge(Task[None]):
        def work(self) -> None:
            raise Outage

    with pytest.raises(Outage):
        execute(Charge)

    assert instant.pauses == []


def test_an_extraordinary_error_is_retried_when_its_class_is_listed(execute):
    @retry_on(Outage)
    class Charge(Task[int]):
        def work(self) -> int:
            if self.attempt < 2:
                raise Outage
            return self.attempt

    assert execute(Charge).value == 2


def test_an_extraordinary_error_leaves_execute_when_retries_are_used_up(
    execute, instant
):
    raised = []

    @retry_on(Outage, limit=1)
    class Charge(Task[None]):
        def work(self) -> None:
            raised.append(Outage(self.attempt))
            raise raised[-1]

    with pytest.raises(Outage) as caught:
        execute(Charge)

    assert caught.value is raised[-1]
    assert (len(raised), instant.pauses) == (2, [0.5])


def halt_by_succeeding(task):
    task.succeed("done")


def halt_by_skipping(task):
    task.skip("nothing to do")


def halt_by_failing(task):
    task.fail("no")


def halt_by_throwing(task):
    class Inner(Task[None]):
        def work(self) -> None:
            self.fail("inner")

    task.throw(Inner.execute())


HALTS = {
    halt_by_succeeding: Status.SUCCESS,
    halt_by_skipping: Status.SKIPPED,
    halt_by_failing: Status.FAILED,
    halt_by_throwing: Status.FAILED,
}


@pytest.mark.parametrize(("halt", "status"), HALTS.items())
@pytest.mark.parametrize("failures", [0, 2])
def test_halts_are_never_retried(execute, instant, halt, status, failures):  # R-004-15
    @retry_on(BaseException, Exception, limit=5)
    class Charge(Task[None]):
        def work(self) -> None:
            if self.attempt < failures:
                raise TimeoutError
            halt(self)

    result = execute(Charge)

    assert (result.status, result.stopped) == (status, Stop.HALTED)
    assert (result.retries, len(instant.pauses)) == (failures, failures)


class Refusing(Task[None]):
    def work(self) -> None:
        self.fail("refused")


class Elsewhere(Task[None]):
    def work(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("listed", "retries"),
    [
        (Refusing.Fault, 2),
        (Fault, 2),
        (Task.Fault, 2),
        (CmdxError, 2),
        (Exception, 2),
        (Elsewhere.Fault, 0),
        (TimeoutError, 0),
    ],
)
def test_the_fault_of_a_strict_run_inside_is_an_error_like_others(
    execute, listed, retries
):  # R-004-15
    @retry_on(listed, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            Refusing.execute_or_raise()

    result = execute(Charge)

    assert (result.failed, result.retries) == (True, retries)
    assert isinstance(result.cause, Refusing.Fault)


def test_a_failed_result_of_an_inner_run_is_no_error(execute):  # R-004-15
    @retry_on(Exception, Fault)
    class Charge(Task[bool]):
        def work(self) -> bool:
            return Refusing.execute().failed

    result = execute(Charge)

    assert (result.value, result.retries) == (True, 0)


def misuse_the_context(task):
    _ = task.context.nowhere


def halt_another_task(_task):
    Elsewhere().fail("not running")


@pytest.mark.parametrize(
    ("misuse", "error"),
    [(misuse_the_context, UnknownContextKey), (halt_another_task, FinishedTaskError)],
)
def test_misuse_of_the_framework_becomes_the_result_unretried(
    execute, instant, misuse, error
):  # R-004-35
    calls = []

    @retry_on(Exception, CmdxError, UnknownContextKey, FinishedTaskError)
    class Charge(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            misuse(self)

    result = execute(Charge)

    assert isinstance(result.cause, error)
    assert result.stopped is Stop.NOT_LISTED
    assert (calls, instant.pauses) == ([0], [])


@pytest.mark.parametrize("entry", ["execute", "execute_or_raise"])
def test_a_missing_work_is_not_retried(instant, entry):
    @retry_on(Exception, NotImplementedError, ImplementationError)
    class Charge(Task[None]):
        pass

    with pytest.raises(ImplementationError):
        getattr(Charge, entry)()

    assert instant.pauses == []


# -- interrupting a pause ----------------------------------------------------------


def test_cancelling_during_a_pause_ends_the_run_at_once():
    calls, sent = [], []

    class Waiting(clock.Clock):
        def __init__(self) -> None:
            self.pausing = asyncio.Event()

        async def asleep(self, seconds: float) -> None:
            self.pausing.set()
            await asyncio.sleep(seconds)

    @retry_on(BaseException, asyncio.CancelledError, TimeoutError, delay=3600)
    class Charge(Task[None]):
        async def work(self) -> None:
            calls.append(self.attempt)
            raise TimeoutError

    async def cancel_in_the_pause():
        with clock.use(Waiting()) as waiting:
            running = asyncio.create_task(Charge.aexecute())
            await waiting.pausing.wait()
            running.cancel()
            async with asyncio.timeout(10):
                await asyncio.wait([running])
            return running

    with task_retried.connected_to(lambda *_, **payload: sent.append(payload)):
        running = asyncio.run(cancel_in_the_pause())

    assert running.cancelled()
    assert (calls, sent) == ([0], [])


def test_an_interrupt_during_a_pause_ends_the_run_at_once():
    calls = []

    class Interrupted(clock.Clock):
        def sleep(self, _seconds: float) -> None:
            raise KeyboardInterrupt

    @retry_on(BaseException, KeyboardInterrupt)
    class Charge(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            raise TimeoutError

    with clock.use(Interrupted()), pytest.raises(KeyboardInterrupt):
        Charge.execute()

    assert calls == [0]


@pytest.mark.parametrize("hooked", [False, True], ids=["bare", "hooked"])
def test_an_error_raised_during_a_pause_fails_the_run(execute, hooked):
    """As when the handler of an alarm signal raises; execute itself never does."""

    class AlarmError(Exception):
        pass

    class Alarmed(clock.Clock):
        def sleep(self, _seconds: float) -> None:
            raise AlarmError

        async def asleep(self, _seconds: float) -> None:
            raise AlarmError

    @retry_on(TimeoutError)
    class Charge(Down):
        if hooked:

            @on_failed
            def notice(self) -> None:
                self.context.noticed = True

            def rollback(self) -> None:
                """Do nothing."""

    with clock.use(Alarmed()):
        result = execute(Charge)

    assert result.failed
    assert isinstance(result.cause, AlarmError)
    assert result.context.get("noticed", False) == hooked
    assert result.rolled_back == hooked
