"""What is repeated when ``work`` is tried again, and what is announced."""

from __future__ import annotations

import logging

import pytest

from cmdx import (
    Stop,
    Task,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    clock,
    middleware,
    output,
    required,
    retry_on,
    task_retried,
    task_rolled_back,
)

pytestmark = pytest.mark.usefixtures("instant")


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        self.context.calls = self.attempt + 1
        raise self.context.get("error", TimeoutError)("down")


# -- what is repeated, and what is not ---------------------------------------------


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


# -- task_retried ------------------------------------------------------------------


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
