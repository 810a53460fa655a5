"""What other libraries take; None where they are not installed."""

from __future__ import annotations

from measuring import Call

try:
    import tenacity
except ImportError:
    tenacity = None

try:
    import stamina
except ImportError:
    stamina = None
else:
    stamina.instrumentation.set_on_retry_hooks([])

ATTEMPTS = 4


def nothing():
    return None


async def nothing_async():
    return None


tenacity_call = tenacity and Call(tenacity.retry(nothing))
tenacity_async_call = tenacity and Call(tenacity.retry(nothing_async))
stamina_call = stamina and Call(stamina.retry(on=TimeoutError)(nothing))


def tenacity_retry(flaky):
    """Return what two failures cost beyond a call without one."""
    if tenacity is None:
        return None
    retrying = tenacity.retry(
        retry=tenacity.retry_if_exception_type(TimeoutError),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
    )
    return with_failures(retrying, flaky(2)) - with_failures(retrying, flaky(0))


def stamina_retry(flaky):
    """Return what two failures cost beyond a call without one."""
    if stamina is None:
        return None
    retrying = stamina.retry(
        on=TimeoutError, attempts=ATTEMPTS, wait_initial=0, wait_max=0, wait_jitter=0
    )
    return with_failures(retrying, flaky(2)) - with_failures(retrying, flaky(0))


def with_failures(retrying, operation):
    def call():
        return operation()

    return Call(retrying(call))
