"""Limits, defaults, and which errors are tried again."""

from __future__ import annotations

from recorder import (
    HardError,
    OtherError,
    SubTransientError,
    TransientError,
    boom,
    hard,
    ok,
    other,
    scenario,
    sub,
)

from cmdx import retry_on


@scenario("basic_no_retry_ok")
def nothing_declared(recorder):
    class T(recorder.Task):
        plan = (ok,)

    return T.execute()


@scenario("basic_defaults_always_fail")
def defaults(recorder):
    @retry_on(TransientError)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("basic_exhausted_execute")
def exhausted(recorder):
    @retry_on(TransientError, limit=2, delay=0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("basic_exhausted_execute_bang")
def exhausted_and_raised(recorder):
    @retry_on(TransientError, limit=2, delay=0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute_or_raise()


@scenario("basic_ok_execute_bang")
def success_does_not_raise(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom, boom, ok)

    return T.execute_or_raise()


@scenario("basic_limit_zero", limit=0)
@scenario("basic_limit_negative", limit=-1)
def no_retries(recorder, limit):
    @retry_on(TransientError, limit=limit, delay=1.0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("basic_limit_nil")
def none_means_the_default(recorder):
    @retry_on(TransientError, limit=None, delay=0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("basic_delay_negative")
def negative_delay(recorder):
    @retry_on(TransientError, limit=2, delay=-1.0)
    class T(recorder.Task):
        plan = (boom, boom, ok)

    return T.execute()


@scenario("basic_no_sleep_after_last")
def no_sleep_after_the_last_attempt(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter="linear")
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("match_non_matching")
def not_listed(recorder):
    @retry_on(OtherError, limit=3, delay=1.0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("match_subclass_of_declared")
def subclass_is_listed(recorder):
    @retry_on(TransientError, limit=2, delay=0)
    class T(recorder.Task):
        plan = (sub, ok)

    return T.execute()


@scenario("match_superclass_not_matched")
def superclass_is_not_listed(recorder):
    @retry_on(SubTransientError, limit=2, delay=0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("match_several_alternating")
def one_limit_for_several(recorder):
    @retry_on(TransientError, OtherError, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom, other, boom, ok)

    return T.execute()


@scenario("match_standard_error_catches_all")
def all_ordinary_errors(recorder):
    @retry_on(Exception, limit=2, delay=0)
    class T(recorder.Task):
        plan = (other, sub, ok)

    return T.execute()


@scenario("match_hard_declared_exhausted")
def listed_though_not_ordinary(recorder):
    @retry_on(HardError, limit=1, delay=0)
    class T(recorder.Task):
        plan = (hard,)

    return T.execute()
