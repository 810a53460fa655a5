"""How long is waited: strategies, clamping, and jitters of one's own."""

from __future__ import annotations

from math import inf, nan

from recorder import TransientError, boom, scenario

from cmdx import retry_on


@scenario("jitter_none")
def constant_delay(recorder):
    @retry_on(TransientError, limit=3, delay=1.5)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("jitter_exponential_max_delay", jitter="exponential", max_delay=3.0)
@scenario("jitter_linear", jitter="linear")
@scenario("jitter_linear_max_delay", jitter="linear", max_delay=3.0)
@scenario("jitter_fibonacci", jitter="fibonacci")
@scenario("jitter_fibonacci_max_delay", jitter="fibonacci", max_delay=3.0)
@scenario("jitter_half_random", jitter="half_random")
@scenario("jitter_half_random_max_delay", jitter="half_random", max_delay=3.0)
@scenario("jitter_full_random", jitter="full_random")
@scenario("jitter_decorrelated_jitter", jitter="decorrelated_jitter")
@scenario(
    "jitter_decorrelated_jitter_max_delay", jitter="decorrelated_jitter", max_delay=3.0
)
def built_in(recorder, jitter, max_delay=None):
    @retry_on(TransientError, limit=6, delay=2.0, jitter=jitter, max_delay=max_delay)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("jitter_exponential_saturates")
def doubling_ends(recorder):
    @retry_on(TransientError, limit=33, delay=1.0, jitter="exponential")
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("jitter_linear_integer_delay")
def whole_numbers_stay_whole(recorder):
    @retry_on(TransientError, limit=3, delay=1, jitter="linear")
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("jitter_decorrelated_max_below_delay")
def decorrelated_below_the_delay(recorder):
    @retry_on(
        TransientError,
        limit=4,
        delay=1.0,
        max_delay=0.3,
        jitter="decorrelated_jitter",
    )
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("max_delay_below_delay_no_jitter")
def clamped_without_jitter(recorder):
    @retry_on(TransientError, limit=2, delay=5.0, max_delay=2.0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("max_delay_negative")
def negative_max_delay(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, max_delay=-1)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("jitter_returns_nan", answer=nan)
@scenario("jitter_returns_nan_max_delay", answer=nan, max_delay=0.4)
@scenario("jitter_returns_inf", answer=inf)
@scenario("jitter_returns_neg_inf_max_delay", answer=-inf, max_delay=0.4)
@scenario("jitter_returns_nil", answer=None)
@scenario("jitter_returns_nil_max_delay", answer=None, max_delay=0.4)
@scenario("jitter_returns_true", answer=True)
@scenario("jitter_returns_zero_max_delay", answer=0, max_delay=0.4)
@scenario("jitter_returns_negative_max_delay", answer=-1, max_delay=0.4)
@scenario("jitter_returns_integer", answer=2)
def odd_answers(recorder, answer, max_delay=None):
    jitter = recorder.jitter(answer)

    @retry_on(TransientError, limit=2, delay=0.5, jitter=jitter, max_delay=max_delay)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("custom_lambda_two_params")
def jitter_that_takes_less(recorder):
    jitter = lambda attempt, delay: delay + attempt

    @retry_on(TransientError, limit=2, delay=1.0, jitter=jitter)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("custom_method_name_missing")
def unknown_jitter(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter="nope")
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()
