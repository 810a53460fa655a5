from __future__ import annotations

import subprocess
import sys

import pytest

from cmdx import RetryBudget, Stop, Task, deadline, retry_on
from cmdx.guidance import LONGEST_WAIT, Guidance

pytestmark = pytest.mark.usefixtures("instant")


class ApiError(Exception):
    """What a client raises for an answer that is a failure."""

    def __init__(self, guidance=None):
        super().__init__("no")
        self.guidance = guidance


class Call(Task[int]):
    """Gets the answers of its context one after the other, the last one for ever."""

    def work(self) -> int:
        answers = self.context.answers
        answer = answers[min(self.attempt, len(answers) - 1)]
        if isinstance(answer, int):
            return answer
        raise answer if isinstance(answer, Exception) else ApiError(answer)


def guided(**options):
    @retry_on(ApiError, **{"limit": 4, "delay": 0.5, "guided": True, **options})
    class Guided(Call):
        pass

    return Guided


# -- whether --------------------------------------------------------------------------


def test_a_refusal_stops_at_once(execute, instant):  # R-003-17
    result = execute(guided(), answers=[Guidance(False)])

    assert (result.retries, instant.pauses) == (0, [])
    assert (result.stopped, type(result.cause)) == (Stop.GUIDANCE, ApiError)
    assert result.guidance == Guidance(False)


@pytest.mark.parametrize("silent", [None, "nonsense", {"allowed": "?"}, float("nan")])
def test_an_error_that_says_nothing_leaves_it_to_the_policy(execute, instant, silent):
    result = execute(guided(limit=2), answers=[silent])

    assert (result.retries, instant.pauses) == (2, [0.5, 0.5])
    assert (result.stopped, result.guidance) == (Stop.EXHAUSTED, None)


@pytest.mark.parametrize("status", [404, 429, 500, 503])
def test_a_status_alone_leaves_it_to_the_policy(execute, instant, status):
    result = execute(guided(limit=2), answers=[Guidance.from_http(status)])

    assert (result.retries, instant.pauses) == (2, [0.5, 0.5])
    assert (result.stopped, result.guidance) == (Stop.EXHAUSTED, None)


def test_a_status_counts_when_asked_for(execute, instant):
    said = Guidance.from_http(503, by_status=True)
    result = execute(guided(limit=9), answers=[said])

    assert (result.retries, instant.pauses) == (4, [1, 2, 4, 8])
    assert result.stopped is Stop.GUIDANCE


def test_guidance_is_followed_only_when_asked_for(execute, instant):
    result = execute(guided(guided=False, limit=2), answers=[Guidance(False)])

    assert (result.retries, instant.pauses) == (2, [0.5, 0.5])


def test_an_error_that_is_not_listed_is_not_retried_whatever_it_says(execute):
    class OtherError(Exception):
        retry_after = 1

    result = execute(guided(), answers=[OtherError()])

    assert (result.retries, result.stopped) == (0, Stop.NOT_LISTED)


def test_a_gate_may_still_refuse(execute, instant):
    result = execute(guided(if_=False), answers=[Guidance(True, "immediate")])

    assert (result.retries, result.stopped, instant.pauses) == (0, Stop.GATE, [])


# -- when -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guidance", "pauses"),
    [
        (Guidance(True, "fixed", 60), [60, 60, 60]),
        (Guidance(True, "exponential", 2), [2, 4, 8]),
        (Guidance(True, "exponential", 0.2), [0.5, 0.5, 0.8]),
        (Guidance(True, "immediate"), [0.5, 0.5, 0.5]),
        (Guidance(True, "fixed", 0), [0.5, 0.5, 0.5]),
        (Guidance(True, "fixed"), [1, 1, 1]),
        (Guidance(True), [1, 2, 4]),
    ],
    ids=repr,
)
def test_the_wait_of_the_server_is_a_lower_bound(execute, instant, guidance, pauses):
    result = execute(guided(limit=3), answers=[guidance])  # R-003-19, R-003-20

    assert (
        instant.pauses == [attempt.pause for attempt in result.attempts[:-1]] == pauses
    )


def test_minutes_count(execute, instant):
    after = {"value": 1, "unit": "minute"}
    wire = {"allowed": True, "strategy": "fixed", "after": after}
    execute(guided(limit=1), answers=[wire])

    assert instant.pauses == [60]


def test_jitter_can_only_make_the_wait_longer(execute, instant):
    Jittery = guided(limit=3, jitter=lambda attempt: (9, 1, 0)[attempt])  # noqa: N806
    execute(Jittery, answers=[Guidance(True, "fixed", 5)])

    assert instant.pauses == [9, 5, 5]


def test_zero_is_zero_and_no_pause_is_made_of_it(execute, instant):  # R-003-20
    execute(guided(delay=0), answers=[Guidance(True, "fixed", 0)])

    assert instant.pauses == []


def test_guidance_is_read_again_from_each_failure(execute, instant):  # R-003-21
    answers = [
        Guidance(True, "fixed", 3),
        None,
        Guidance(True, "exponential", 2),
        Guidance(False),
    ]
    result = execute(guided(limit=9), answers=answers)

    assert instant.pauses == [3, 0.5, 8]
    assert (result.retries, result.stopped) == (3, Stop.GUIDANCE)


def test_a_wait_above_the_cap_stops_at_once(execute, instant):
    result = execute(guided(max_delay=30), answers=[Guidance(True, "fixed", 31)])

    assert (result.retries, instant.pauses) == (0, [])
    assert (result.stopped, result.guidance.after) == (Stop.GUIDANCE, 31)


def test_a_wait_at_the_cap_is_waited(execute, instant):
    execute(guided(limit=1, max_delay=30), answers=[Guidance(True, "fixed", 30)])

    assert instant.pauses == [30]


def test_without_a_cap_a_wait_above_an_hour_stops_at_once(execute, instant):
    said = Guidance(True, "fixed", LONGEST_WAIT + 1)
    result = execute(guided(limit=1), answers=[said])

    assert (result.retries, instant.pauses) == (0, [])
    assert result.stopped is Stop.GUIDANCE


def test_without_a_cap_a_wait_of_an_hour_is_waited(execute, instant):
    execute(guided(limit=1), answers=[Guidance(True, "fixed", LONGEST_WAIT)])

    assert instant.pauses == [3600]


@pytest.mark.parametrize("max_delay", [None, 30], ids=["no cap", "cap"])
def test_a_wait_too_large_to_read_stops_at_once(execute, instant, max_delay):
    said = Guidance.from_http(429, {"Retry-After": "9" * 400})
    result = execute(guided(limit=1, max_delay=max_delay), answers=[said])

    assert (result.retries, instant.pauses) == (0, [])
    assert result.stopped is Stop.GUIDANCE


def test_growth_above_the_cap_stops_too(execute, instant):
    result = execute(guided(max_delay=5), answers=[Guidance(True, "exponential", 2)])

    assert instant.pauses == [2, 4]
    assert result.stopped is Stop.GUIDANCE


def test_a_wait_past_the_deadline_stops_at_once(execute, instant):
    result = execute(guided(deadline=30), answers=[Guidance(True, "fixed", 31)])

    assert (result.retries, instant.pauses) == (0, [])
    assert result.stopped is Stop.GUIDANCE


def test_a_wait_past_the_deadline_around_stops_at_once(execute, instant):
    with deadline(30):
        result = execute(guided(), answers=[Guidance(True, "fixed", 20)])

    assert (result.retries, instant.pauses) == (1, [20])
    assert result.stopped is Stop.GUIDANCE


def test_the_deadline_stops_when_the_pause_of_the_policy_is_too_long(execute):
    result = execute(
        guided(delay=20, deadline=10), answers=[Guidance(True, "fixed", 1)]
    )

    assert (result.retries, result.stopped) == (0, Stop.DEADLINE)


# -- how often ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "max_attempts", "calls", "stopped"),
    [
        (4, 3, 3, Stop.GUIDANCE),
        (4, 1, 1, Stop.GUIDANCE),
        (4, 0, 1, Stop.GUIDANCE),
        (1, 9, 2, Stop.EXHAUSTED),
        (0, 9, 1, Stop.EXHAUSTED),
        (4, None, 5, Stop.EXHAUSTED),
        (4, 5, 5, Stop.EXHAUSTED),
    ],
)
def test_the_lower_limit_counts_in_total(execute, limit, max_attempts, calls, stopped):
    guidance = Guidance(True, "immediate", None, max_attempts)  # R-003-18
    result = execute(guided(limit=limit, delay=0), answers=[guidance])

    assert (result.retries + 1, result.stopped) == (calls, stopped)


def test_attempts_of_other_rules_count_for_the_server(execute):
    @retry_on(TimeoutError, rule="timeouts", limit=9, delay=0)
    class Mixed(guided(delay=0, limit=9)):
        pass

    answers = [TimeoutError(), TimeoutError(), Guidance(True, "immediate", None, 3)]
    result = execute(Mixed, answers=answers)

    assert (result.retries + 1, result.stopped) == (3, Stop.GUIDANCE)


def test_a_budget_counts_beside_it(execute):
    budget = RetryBudget(ratio=0, reserve=2)
    answers = [Guidance(True, "immediate", None, 9)]
    result = execute(guided(budget=budget, delay=0), answers=answers)

    assert (result.retries, result.stopped) == (2, Stop.BUDGET)


def test_what_the_server_refuses_costs_no_budget(execute):
    budget = RetryBudget(ratio=0, reserve=1)
    execute(guided(budget=budget, delay=0), answers=[Guidance(False)])

    assert budget.withdraw()


# -- and then -------------------------------------------------------------------------


def test_a_success_after_the_wait_has_no_guidance(execute, instant):
    result = execute(guided(), answers=[Guidance(True, "fixed", 9, 2), 7])

    assert (result.value, instant.pauses, result.guidance) == (7, [9], None)


def test_the_guidance_of_a_fault_is_followed(execute, instant):
    class Inner(Task[None]):
        def work(self) -> None:
            self.fail("busy", code="RATE_LIMITED", retry_after=30)

    @retry_on(Inner.Fault, limit=1, guided=True)
    class Outer(Task[None]):
        def work(self) -> None:
            Inner.execute_or_raise()

    result = execute(Outer)

    assert (result.retries, instant.pauses) == (1, [30])
    assert result.guidance == Guidance(True, "fixed", 30)


def test_the_guidance_of_any_exception_is_followed(execute, instant):
    class Throttled(ApiError):
        retry_after = "12"

    execute(guided(limit=1), answers=[Throttled()])

    assert instant.pauses == [12]


def test_guidance_is_imported_only_for_a_guided_policy():
    program = """if True:
        import sys
        from cmdx import Task, retry_on

        def tired(**options):
            @retry_on(TimeoutError, limit=1, delay=0, **options)
            class Tired(Task[None]):
                def work(self):
                    raise TimeoutError
            return Tired

        tired().execute()
        before = "cmdx.guidance" in sys.modules
        tired(guided=True).execute()
        sys.exit(before or "cmdx.guidance" not in sys.modules)
    """
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603
