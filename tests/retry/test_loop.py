from __future__ import annotations

import asyncio
import logging
import traceback

import pytest
import structlog

from cmdx import (
    Attempt,
    CmdxError,
    Fault,
    FinishedTaskError,
    ImplementationError,
    Status,
    Stop,
    Task,
    UnknownContextKey,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    clock,
    middleware,
    on_failed,
    output,
    required,
    retry_on,
    task_executed,
    task_retried,
    task_rolled_back,
)

pytestmark = pytest.mark.usefixtures("instant")


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        self.context.calls = self.attempt + 1
        raise self.context.get("error", TimeoutError)("down")


class Outage(BaseException):
    """Neither an ordinary error nor one of those that are never retried."""


# -- which errors are retried, and how often ------------------------------------------


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


# -- what is never retried ------------------------------------------------------------

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
def test_misuse_of_the_framework_leaves_execute_unretried(
    execute, instant, misuse, error
):  # R-004-35
    calls = []

    @retry_on(Exception, CmdxError, UnknownContextKey, FinishedTaskError)
    class Charge(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)
            misuse(self)

    with pytest.raises(error):
        execute(Charge)

    assert (calls, instant.pauses) == ([0], [])


@pytest.mark.parametrize("entry", ["execute", "execute_or_raise"])
def test_a_missing_work_is_not_retried(instant, entry):
    @retry_on(Exception, NotImplementedError, ImplementationError)
    class Charge(Task[None]):
        pass

    with pytest.raises(ImplementationError):
        getattr(Charge, entry)()

    assert instant.pauses == []


# -- interrupting a pause -------------------------------------------------------------


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


# -- what the result says -------------------------------------------------------------


def returns(_task):
    return "value"


def times_out(_task):
    raise TimeoutError


def is_wrong(_task):
    raise KeyError


@pytest.mark.parametrize(
    ("steps", "options", "stopped", "retries"),
    [
        ([returns], {}, Stop.SUCCESS, 0),
        ([times_out, returns], {}, Stop.SUCCESS, 1),
        ([times_out] * 4, {}, Stop.EXHAUSTED, 3),
        ([times_out], {"limit": 0}, Stop.EXHAUSTED, 0),
        ([is_wrong], {}, Stop.NOT_LISTED, 0),
        ([times_out, is_wrong], {}, Stop.NOT_LISTED, 1),
        ([times_out], {"if_": False}, Stop.GATE, 0),
        ([times_out], {"unless": True}, Stop.GATE, 0),
        (
            [times_out] * 2,
            {"if_": lambda _t, _e, attempt: attempt < 1},
            Stop.GATE,
            1,
        ),
        ([halt_by_failing], {}, Stop.HALTED, 0),
        ([times_out, halt_by_skipping], {}, Stop.HALTED, 1),
        ([times_out], {"if_": halt_by_failing}, Stop.HALTED, 0),
    ],
)
def test_the_result_says_why_the_loop_ended(execute, steps, options, stopped, retries):
    @retry_on(TimeoutError, **options)
    class Charge(Task[object]):
        def work(self) -> object:
            return steps[self.attempt](self)

    result = execute(Charge)

    assert (result.stopped, result.retries) == (stopped, retries)
    assert result.stopped == stopped.value  # it reads as text, too


def test_without_a_declaration_an_error_is_one_that_is_not_listed(execute):
    assert execute(Down).stopped is Stop.NOT_LISTED


def test_nothing_stopped_a_loop_that_never_began(execute):
    @retry_on(TimeoutError)
    class Charge(Down):
        @before_execution
        def refuse(self) -> None:
            self.skip("closed")

    result = execute(Charge)

    assert (result.skipped, result.stopped) == (True, None)
    assert (result.retries, result.retried, result.attempts) == (0, False, ())


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_retries_is_the_index_of_the_last_attempt(execute, failures):  # R-004-33
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            if self.attempt < failures:
                raise TimeoutError

    result = execute(Charge)

    assert (result.retries, result.retried) == (failures, failures > 0)
    facts = result.to_dict()
    assert (facts["retries"], facts["retried"]) == (failures, failures > 0)


def test_retries_stand_in_the_log_line(execute):  # R-004-33
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            if self.attempt < 2:
                raise TimeoutError

    try:
        with structlog.testing.capture_logs() as lines:
            execute(Charge)
    finally:
        structlog.reset_defaults()

    facts = [(line["event"], line["retries"], line["retried"]) for line in lines]
    assert facts == [("task_executed", 2, True)]


def test_each_attempt_is_recorded(execute, still):
    raised = []

    @retry_on(TimeoutError, delay=0.5, jitter="linear")
    class Charge(Task[None]):
        def work(self) -> None:
            still.seconds += 2.0
            if self.attempt < 2:
                raised.append(TimeoutError(self.attempt))
                raise raised[-1]

    result = execute(Charge)

    assert result.attempts == (
        Attempt(start=0.0, duration=2.0, error=raised[0], pause=0.5, rule=None),
        Attempt(start=2.5, duration=2.0, error=raised[1], pause=1.0, rule=None),
        Attempt(start=5.5, duration=2.0, error=None, pause=None, rule=None),
    )


def test_attempts_start_after_what_comes_before_work(execute, still):
    @retry_on(TimeoutError, limit=1)
    class Charge(Task[None]):
        @before_execution
        def prepare(self) -> None:
            still.seconds += 4.0

        def work(self) -> None:
            raise TimeoutError

    result = execute(Charge)

    assert [each.start for each in result.attempts] == [4.0, 4.5]


def test_the_last_attempt_of_an_exhausted_run_has_no_pause(execute):
    @retry_on(TimeoutError, limit=1)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert [each.pause for each in result.attempts] == [0.5, None]
    assert result.attempts[-1].error is result.cause


def test_an_attempt_without_delay_has_a_pause_of_zero(execute):
    @retry_on(TimeoutError, limit=1, delay=0)
    class Charge(Down):
        pass

    assert [each.pause for each in execute(Charge).attempts] == [0.0, None]


def test_one_clean_attempt_leaves_no_records(execute):
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            """Do nothing."""

    assert execute(Charge).attempts == ()


@pytest.mark.parametrize("listed", [TimeoutError, KeyError])
def test_one_failed_attempt_leaves_a_record(execute, listed):
    @retry_on(listed, limit=0)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert [(each.error, each.pause) for each in result.attempts] == [
        (result.cause, None)
    ]


def test_an_attempt_that_halts_is_recorded_without_an_error(execute):
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            if self.attempt == 0:
                raise TimeoutError
            self.fail("enough")

    result = execute(Charge)

    assert [(type(each.error), each.pause) for each in result.attempts] == [
        (TimeoutError, 0.5),
        (type(None), None),
    ]


def test_a_failure_tells_its_cause_and_reason(execute):  # R-004-34
    @retry_on(TimeoutError, limit=1)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert result.failed
    assert isinstance(result.cause, TimeoutError)
    assert result.reason == "[TimeoutError] down"


@pytest.mark.parametrize(
    ("error", "options"),
    [(TimeoutError, {"limit": 1}), (KeyError, {}), (TimeoutError, {"if_": False})],
    ids=["exhausted", "not listed", "gate"],
)
def test_a_strict_run_is_complete_before_the_very_error_is_raised(
    execute, error, options
):  # R-004-34
    trace = []

    def audit(_task):
        result = yield
        trace.append(f"middleware {result.status}")

    @middleware(audit)
    @retry_on(TimeoutError, **options)
    class Charge(Down):
        def rollback(self) -> None:
            trace.append("rollback")

        @on_failed
        def page(self) -> None:
            trace.append("on_failed")

    results = []

    def receive(_sender, *, result, **_):
        trace.append("task_executed")
        results.append(result)

    with (
        task_executed.connected_to(receive),
        structlog.testing.capture_logs() as lines,
        pytest.raises(error) as caught,
    ):
        execute.or_raise(Charge, error=error)
    structlog.reset_defaults()

    assert trace == ["rollback", "on_failed", "middleware failed", "task_executed"]
    assert [line["event"] for line in lines] == ["task_executed"]
    assert caught.value is results[0].cause
    assert not isinstance(caught.value, Fault)


def test_errors_of_earlier_attempts_are_not_chained_to_the_last(execute):
    @retry_on(TimeoutError, limit=3)
    class Charge(Down):
        pass

    result = execute(Charge)

    for attempt in result.attempts:
        assert attempt.error.__context__ is None
        assert attempt.error.__cause__ is None


def test_what_the_user_chained_stays_chained(execute):
    @retry_on(TimeoutError, limit=1)
    class Charge(Task[None]):
        def work(self) -> None:
            try:
                _ = {}["card"]
            except KeyError as error:
                raise TimeoutError from error

    result = execute(Charge)

    assert [type(each.error.__cause__) for each in result.attempts] == [KeyError] * 2


def test_the_traceback_of_the_last_error_leads_into_work(execute):
    @retry_on(TimeoutError, limit=1)
    class Charge(Down):
        pass

    with pytest.raises(TimeoutError) as caught:
        execute.or_raise(Charge)

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert (frames[-1].filename, frames[-1].name) == (__file__, "work")


def test_only_the_last_error_keeps_its_traceback(execute):
    @retry_on(TimeoutError, limit=2)
    class Charge(Down):
        pass

    kept = [each.error.__traceback__ is not None for each in execute(Charge).attempts]

    assert kept == [False, False, True]


def test_the_duration_covers_all_attempts_and_pauses(execute, still):  # R-004-37
    @retry_on(TimeoutError, delay=0.5)
    class Charge(Task[None]):
        def work(self) -> None:
            still.seconds += 1.0
            if self.attempt < 2:
                raise TimeoutError

    assert execute(Charge).duration == 4.0


# -- what is repeated, and what is not ------------------------------------------------


def test_only_work_is_repeated(execute):  # R-004-29
    trace = []

    def audit(_task):
        trace.append("middleware opens")
        yield
        trace.append("middleware closes")

    @middleware(audit)
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        @before_execution
        def prepare(self) -> None:
            trace.append("before_execution")

        @before_validation
        def clean(self) -> None:
            trace.append("before_validation")

        @around_execution
        def measure(self):
            trace.append("around opens")
            yield
            trace.append("around closes")

        def work(self) -> None:
            trace.append("work")
            if self.attempt < 2:
                raise TimeoutError

        @after_execution
        def tidy(self) -> None:
            trace.append("after_execution")

    execute(Charge)

    assert trace == [
        "middleware opens",
        "before_execution",
        "before_validation",
        "around opens",
        *["work"] * 3,
        "around closes",
        "after_execution",
        "middleware closes",
    ]


def test_inputs_are_resolved_once(execute):  # R-004-29
    resolved = []

    @retry_on(TimeoutError)
    class Charge(Task[int]):
        amount: int = required(source="find_amount")

        def find_amount(self):
            resolved.append(self.attempt)
            return "7"

        def work(self) -> int:
            if self.attempt < 2:
                raise TimeoutError
            return self.amount

    result = execute(Charge)

    assert (result.value, result.retries, resolved) == (7, 2, [0])


def test_a_source_that_raises_a_listed_error_is_not_asked_again(execute, instant):
    asked = []  # R-004-29

    @retry_on(TimeoutError)
    class Charge(Task[None]):
        amount: int = required(source="find_amount")

        def find_amount(self):
            asked.append(self.attempt)
            raise TimeoutError

        def work(self) -> None:
            asked.append("work")

    result = execute(Charge)

    assert isinstance(result.cause, TimeoutError)
    assert (asked, result.retries, instant.pauses) == ([0], 0, [])
    assert result.stopped is None


def test_a_missing_input_is_not_retried(execute, instant):  # R-004-29
    @retry_on(Exception)
    class Charge(Down):
        amount: int

    result = execute(Charge)

    assert "amount" in result.errors
    assert (result.retries, result.stopped, instant.pauses) == (0, None, [])


def test_outputs_are_verified_once_after_the_last_attempt(execute):  # R-004-29
    verified = []

    def note(task):
        verified.append(task.attempt)
        return True

    @retry_on(TimeoutError)
    class Charge(Task[None]):
        receipt: str = output(if_=note)

        def work(self) -> None:
            if self.attempt < 2:
                raise TimeoutError

    result = execute(Charge)

    assert (verified, result.retries) == ([2], 2)
    assert "receipt" in result.errors


def test_a_callback_that_raises_a_listed_error_is_not_repeated(execute, instant):
    calls = []  # R-004-29

    @retry_on(TimeoutError)
    class Charge(Task[None]):
        @before_execution
        def prepare(self) -> None:
            calls.append("prepare")
            raise TimeoutError

        def work(self) -> None:
            calls.append("work")

    result = execute(Charge)

    assert isinstance(result.cause, TimeoutError)
    assert (calls, result.retries, instant.pauses) == (["prepare"], 0, [])


def test_all_attempts_share_the_task_its_context_and_its_metadata(execute):
    seen = []  # R-004-30

    @retry_on(TimeoutError, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            seen.append((self, self.context, self.metadata))
            self.noted = [*getattr(self, "noted", []), self.attempt]
            self.context.setdefault("tried", []).append(self.attempt)
            self.metadata[f"attempt {self.attempt}"] = True
            raise TimeoutError

    result = execute(Charge)

    assert len(seen) == 3
    for task, context, metadata in seen:
        assert task is seen[0][0]
        assert context is result.context
        assert metadata is seen[0][2]
    assert seen[0][0].noted == result.context.tried == [0, 1, 2]
    assert list(result.metadata) == ["attempt 0", "attempt 1", "attempt 2"]


def test_errors_of_a_failed_attempt_fail_a_later_success(execute):  # R-004-31
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            if self.attempt < 2:
                self.errors.add("card", f"was refused ({self.attempt})")
                raise TimeoutError

    result = execute(Charge)

    assert (result.failed, result.retries, result.stopped) == (True, 2, Stop.SUCCESS)
    assert result.reason == str(result.errors)
    assert result.errors["card"] == ["was refused (0)", "was refused (1)"]
    assert result.cause is None


def test_errors_that_work_clears_are_gone(execute):  # R-004-31
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            self.errors.clear()
            if self.attempt < 2:
                self.errors.add("card", "was refused")
                raise TimeoutError

    assert execute(Charge).success


def test_errors_of_a_failed_attempt_win_over_succeed(execute):  # R-004-31
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            if self.attempt == 0:
                self.errors.add("card", "was refused")
                raise TimeoutError
            self.succeed("fine")

    result = execute(Charge)

    assert (result.failed, result.reason) == (True, "card was refused")


def test_an_exhausted_run_fails_by_its_exception_and_not_by_errors(execute):
    @retry_on(TimeoutError, limit=1)  # R-004-31
    class Charge(Task[None]):
        def work(self) -> None:
            self.errors.add("card", f"was refused ({self.attempt})")
            raise TimeoutError("late")

    result = execute(Charge)

    assert result.reason == "[TimeoutError] late"
    assert result.errors["card"] == ["was refused (0)", "was refused (1)"]


def test_rollback_runs_once_after_the_last_attempt(execute):  # R-004-36
    trace = []

    def receive(_sender, **_):
        trace.append("task_rolled_back")

    @retry_on(TimeoutError, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            trace.append("work")
            raise TimeoutError

        def rollback(self) -> None:
            trace.append("rollback")

    with task_rolled_back.connected_to(receive):
        result = execute(Charge)

    assert trace == ["work", "work", "work", "rollback", "task_rolled_back"]
    assert result.rolled_back


def test_a_late_success_is_not_rolled_back(execute):  # R-004-36
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            if self.attempt < 2:
                raise TimeoutError

        def rollback(self) -> None:
            self.context.undone = True

    result = execute(Charge)

    assert (result.rolled_back, "undone" in result.context) == (False, False)


# -- task_retried ---------------------------------------------------------------------


def test_each_retry_is_announced_with_what_led_to_it(execute, retried):  # R-004-32
    @retry_on(TimeoutError, limit=3, jitter="linear")
    class Charge(Down):
        pass

    result = execute(Charge)

    facts = [(each["attempt"], each["delay"], each["rule"]) for each in retried]
    assert facts == [(1, 0.5, None), (2, 1.0, None), (3, 1.5, None)]
    failed = [each.error for each in result.attempts[:-1]]
    assert [each["error"] for each in retried] == failed
    for each in retried:
        assert each["sender"] is type(each["task"]) is result.task
        assert each["task"].tid == result.tid
        keywords = {"attempt", "delay", "error", "rule", "depth", "product"}
        assert set(each) == {"sender", "task", *keywords}
        assert (each["depth"], each["product"]) == (0, 4)


def test_a_retry_is_announced_after_the_pause_and_before_work(execute):  # R-004-32
    trace = []

    class Traced(clock.Clock):
        def sleep(self, _seconds: float) -> None:
            trace.append("pause")

        async def asleep(self, _seconds: float) -> None:
            trace.append("pause")

    @retry_on(TimeoutError, limit=2)
    class Charge(Task[None]):
        def work(self) -> None:
            trace.append(f"work {self.attempt}")
            raise TimeoutError

    def receive(_sender, *, task, attempt, **_):
        trace.append(f"retried {attempt}, in attempt {task.attempt}")

    with clock.use(Traced()), task_retried.connected_to(receive):
        execute(Charge)

    assert trace == [
        "work 0",
        "pause",
        "retried 1, in attempt 1",
        "work 1",
        "pause",
        "retried 2, in attempt 2",
        "work 2",
    ]


def test_a_retry_without_a_pause_is_announced_with_a_delay_of_zero(execute, retried):
    @retry_on(TimeoutError, limit=1, delay=0)
    class Charge(Down):
        pass

    execute(Charge)

    assert [each["delay"] for each in retried] == [0.0]


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"if_": False}], ids=["exhausted", "gate"]
)
def test_nothing_is_announced_when_work_is_called_once(execute, retried, options):
    @retry_on(TimeoutError, **options)  # R-004-32
    class Charge(Down):
        pass

    execute(Charge)

    assert retried == []


def test_a_receiver_that_raises_does_not_change_the_run(execute, caplog):
    def receive(_sender, **_):
        raise ValueError("receiver")

    @retry_on(TimeoutError)
    class Charge(Task[int]):
        def work(self) -> int:
            if self.attempt < 2:
                raise TimeoutError
            return self.attempt

    with (
        caplog.at_level(logging.ERROR, logger="cmdx"),
        task_retried.connected_to(receive),
    ):
        assert execute(Charge).value == 2

    assert len(caplog.records) == 2
