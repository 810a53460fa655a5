"""What the result of a retried run says."""

from __future__ import annotations

import traceback

import pytest
import structlog

from cmdx import (
    Attempt,
    Fault,
    Stop,
    Task,
    before_execution,
    middleware,
    on_failed,
    retry_on,
    task_executed,
)

pytestmark = pytest.mark.usefixtures("instant")


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        self.context.calls = self.attempt + 1
        raise self.context.get("error", TimeoutError)("down")


def halt_by_skipping(task):
    task.skip("nothing to do")


def halt_by_failing(task):
    task.fail("no")


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
        ([times_out], {"if_": lambda task, *_: task.fail("no")}, Stop.HALTED, 0),
        ([times_out], {"if_": lambda: 1 // 0}, Stop.GATE, 0),
        ([times_out], {"jitter": lambda: 1 // 0}, Stop.GATE, 0),
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
