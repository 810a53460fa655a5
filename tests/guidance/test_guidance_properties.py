from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdx import RetryBudget, Stop, Task, clock, retry_on
from cmdx.guidance import FailedCall, Guidance, call_with_guidance, with_guidance

STRATEGIES = st.sampled_from([None, "immediate", "fixed", "exponential"])
WAITS = st.none() | st.integers(0, 100) | st.floats(0, 100)
GUIDANCES = st.builds(
    Guidance,
    st.booleans() | st.just(True),
    STRATEGIES,
    WAITS,
    st.none() | st.integers(0, 6),
)


class Still(clock.Clock):
    """Time passes while somebody sleeps, and in no other way."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


class ApiError(Exception):
    def __init__(self, guidance):
        super().__init__()
        self.guidance = guidance


def asked(guidance, retry):
    """The rule in other words: what the server asks to be waited before a retry."""
    if guidance is None or guidance.strategy == "immediate":
        return 0
    first = 1 if guidance.after is None else guidance.after
    doubles = guidance.strategy == "exponential"
    doubles |= guidance.strategy is None and guidance.after is None
    return first * 2 ** (retry - 1) if doubles else first


@given(
    said=st.lists(st.none() | GUIDANCES, min_size=1, max_size=8),
    limit=st.integers(0, 7),
    delay=st.sampled_from([0, 0.5, 30]),
    max_delay=st.none() | st.integers(0, 200),
    seconds=st.none() | st.integers(0, 400),
    reserve=st.integers(0, 6),
)
def test_no_run_is_early_late_or_too_often(  # noqa: PLR0913, PLR0917
    said, limit, delay, max_delay, seconds, reserve
):
    @retry_on(
        ApiError,
        limit=limit,
        delay=delay,
        max_delay=max_delay,
        deadline=seconds,
        budget=RetryBudget(ratio=0, reserve=reserve, per=1e9),
        guided=True,
    )
    class Call(Task[None]):
        def work(self) -> None:
            raise ApiError(said[min(self.attempt, len(said) - 1)])

    with clock.use(Still()) as still:
        result = Call.execute()

    heard = [attempt.error.guidance for attempt in result.attempts]
    *retried, last = heard
    for retry, (guidance, attempt) in enumerate(
        zip(retried, result.attempts, strict=False), 1
    ):
        assert attempt.pause >= asked(guidance, retry)
        if guidance is not None:
            assert guidance.allowed
            assert guidance.max_attempts is None or retry < guidance.max_attempts
        assert max_delay is None or attempt.pause <= max(max_delay, 0)
    assert sum(still.pauses) == pytest.approx(still.now)
    assert seconds is None or still.now <= seconds
    assert result.retries <= min(limit, reserve)
    if result.stopped is Stop.GUIDANCE:
        wait = asked(last, result.retries + 1)
        assert (
            not last.permits(result.retries + 1)
            or (max_delay is not None and wait > max_delay)
            or (seconds is not None and still.now + wait >= seconds)
        )


@given(
    said=st.lists(GUIDANCES, min_size=1, max_size=8),
    attempts=st.integers(1, 8),
    successes=st.integers(1, 9),
)
def test_no_call_is_early_or_too_often(said, attempts, successes):
    sent = []

    def send(request):
        sent.append(request)
        if len(sent) >= successes:
            return {"result": 1}
        guidance = said[min(len(sent), len(said)) - 1]
        return with_guidance({"errors": [{"code": "UNAVAILABLE"}]}, guidance)

    with clock.use(Still()) as still:
        try:
            call_with_guidance(send, {}, attempts)
        except FailedCall as failed:
            calls = failed.attempts
        else:
            calls = successes

    heard = [said[min(number, len(said)) - 1] for number in range(1, len(sent))]
    assert len(sent) == calls <= attempts
    assert len({request["id"] for request in sent}) == len(sent)
    least = [min(asked(said, retry), 300) for retry, said in enumerate(heard, 1)]
    assert sum(still.pauses) >= sum(least) - 1e-6
    for retry, guidance in enumerate(heard, 1):
        assert guidance.permits(retry)


@given(GUIDANCES)
def test_the_wire_never_shortens_a_wait(guidance):
    again = Guidance.from_wire(guidance.to_wire())

    assert again.permits(1) == guidance.permits(1)
    assert not guidance.allowed or again.pause_before(1) >= guidance.pause_before(1)
    assert again.to_wire() == guidance.to_wire()


@given(STRATEGIES, st.floats(0, 1e308), st.integers(1, 10**6))
def test_every_pause_can_be_slept(strategy, after, retry):
    pause = Guidance(True, strategy, after).pause_before(retry)

    assert math.isfinite(pause)
    assert 0 <= pause <= 1e9
