"""What type checkers say about decorators; checked by them, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from cmdx import (
    Outcome,
    Result,
    RetryOptions,
    RetryPolicy,
    RetryRule,
    Task,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    clock,
    enable_logging,
    group,
    middleware,
    on_complete,
    on_failed,
    on_interrupted,
    on_ko,
    on_ok,
    on_skipped,
    on_success,
    parallel,
    retriers,
    retry_on,
    step,
    task_executed,
    telemetry,
    without_middleware,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

# -- retry_on -------------------------------------------------------------------


def is_worth_it(_task: Task[Any], error: Exception, attempt: int) -> bool:
    return attempt < 2 and bool(error.args)


def spread(attempt: int, delay: float, previous: float | None) -> float:
    return delay * attempt + (previous or 0.0)


@retry_on(TimeoutError, ConnectionError, limit=5, jitter="exponential")
@retry_on([OSError, KeyError], delay=0, max_delay=2.5, jitter=spread, if_=is_worth_it)
@retry_on(
    LookupError, rule="lookups", limit=None, delay=None, if_="again", unless=False
)
@retry_on(limit=2)
class Flaky(Task[int]):
    def again(self, error: Exception, attempt: int) -> bool:
        return attempt < 2 and bool(error.args)

    def work(self) -> int:
        return self.attempt


# The decorated class is still the class it was.
assert_type(Flaky.execute(), Result[int])
assert_type(Flaky().again(ValueError(), 1), bool)
assert_type(Flaky.retry_policy, RetryPolicy)
assert_type(Flaky.retry_policy.rules, tuple[RetryRule, ...])
assert_type(Flaky.retry_policy.default.limit, int)


@retry_on(Flaky.Fault, limit=1)
class Patient(Task[int]):
    def work(self) -> int:
        return Flaky.execute_or_raise().value


retry_on(TimeoutError, limt=3)  # type: ignore[call-arg]
retry_on(TimeoutError, limit="3")  # type: ignore[arg-type]
retry_on(TimeoutError, delay="1 s")  # type: ignore[arg-type]
retry_on(TimeoutError, jitter=3)  # type: ignore[arg-type]
retry_on(TimeoutError, if_=3)  # type: ignore[arg-type]
retry_on(TimeoutError())  # type: ignore[arg-type]
retry_on(int)  # type: ignore[arg-type]
retry_on("TimeoutError")  # type: ignore[arg-type]


class NoTask:
    pass


retry_on(TimeoutError)(NoTask)  # type: ignore[type-var]


# -- retriers -------------------------------------------------------------------

retriers.register("doubled", spread)
Flaky.retriers.register("doubled", spread)
retriers.register("wrong", 3)  # type: ignore[call-overload]


@retriers.register("tripled")
def tripled(attempt: int, delay: float) -> float:
    return 3.0 * delay * attempt


assert_type(tripled(1, 2.0), float)
assert_type("doubled" in retriers, bool)


# -- callbacks ------------------------------------------------------------------


class Hooked(Task[None]):
    @before_execution
    def first(self) -> None: ...

    @before_validation(if_="is_live")
    def second(self) -> None: ...

    @around_execution
    def third(self) -> Generator[None, Outcome, None]:
        outcome = yield
        assert_type(outcome, Outcome)

    @after_execution(unless=True)
    def fourth(self) -> None: ...

    @on_complete
    @on_interrupted
    def fifth(self, outcome: Outcome) -> None: ...

    @on_success(if_=lambda task: task.context.live)
    def sixth(self) -> None: ...

    @on_skipped
    async def seventh(self) -> None: ...

    @on_failed
    @on_ok
    @on_ko
    def eighth(self) -> int:
        return 8

    def is_live(self) -> bool:
        return True

    def work(self) -> None: ...


# A hooked method is still the method it was.
assert_type(Hooked().eighth(), int)
Hooked().eighth("too much")  # type: ignore[call-arg]


on_success(if_=3)  # type: ignore[call-overload]
on_failed(iff="is_live")  # type: ignore[call-overload]
on_ok("is_live")  # type: ignore[call-overload]


# -- middleware -----------------------------------------------------------------


def audited(_task: Task[Any]) -> Generator[None, Result[Any], None]:
    result = yield
    assert_type(result.reason, str | None)


async def awaited(_task: Task[Any]) -> AsyncGenerator[None, Result[Any]]:
    result = yield
    assert_type(result, Result[Any])


class Limited:
    def __call__(self, _task: Task[Any]) -> Generator[None, Result[Any], None]:
        yield


@middleware(audited, Limited())
@middleware(awaited, if_="is_live", unless=lambda task: task.context.quiet)
class Wrapped(Hooked):
    pass


assert_type(Wrapped.execute(), Result[None])

middleware(3)  # type: ignore[arg-type]
middleware(audited, iff=True)  # type: ignore[call-arg]
middleware(audited)(NoTask)  # type: ignore[type-var]


@without_middleware(audited, Limited)
class Unwrapped(Wrapped):
    pass


assert_type(Unwrapped.execute(), Result[None])

without_middleware(3)  # type: ignore[arg-type]
without_middleware("audited")  # type: ignore[arg-type]
without_middleware(audited, if_=True)  # type: ignore[call-arg]
without_middleware(audited)(NoTask)  # type: ignore[type-var]


# -- steps ----------------------------------------------------------------------

step(Flaky, map={"order_id": "id"}, into="count", on_failure="continue")
group(Flaky, Patient, if_="is_live", unless=False, continue_on_failure=True)
parallel(
    Flaky,
    workers=2,
    executor="threads",
    merge="deep",
    if_=True,
    unless=lambda task: task.context.quiet,
    continue_on_failure=True,
)

step(Flaky, inot="count")  # type: ignore[call-arg]
step(Flaky, on_failure="ignore")  # type: ignore[arg-type]
step(Flaky())  # type: ignore[arg-type]
group(Flaky, workers=2)  # type: ignore[call-arg]
group(Flaky, if_=3)  # type: ignore[arg-type]
parallel(Flaky, max_workers=2)  # type: ignore[call-arg]
parallel(Flaky, workers="2")  # type: ignore[arg-type]


# -- class keywords -------------------------------------------------------------


class Configured(
    Task[None],
    tags=("billing",),
    log=False,
    log_level="info",
    log_fields=["context.order"],
    correlation_id=lambda: "request-1",
    deprecated="warn",
    deprecated_if=True,
    retry=RetryOptions(max_attempts=5),
):
    pass


class Misconfigured(Task[None], tgas=("billing",)):  # type: ignore[call-arg]
    pass


class Mistyped(Task[None], log="no"):  # type: ignore[arg-type]
    pass


# -- telemetry, logging, time ---------------------------------------------------


def note(sender: type[Task[Any]], *, task: Task[Any], result: Result[Any]) -> None:
    assert_type(sender.execute(), Result[Any])
    assert_type(task.tid, str)
    assert_type(result.duration, float)


disconnect = telemetry.connect(task_executed, note, task=Flaky)
assert_type(disconnect(), None)
telemetry.connect(task_executed, note, task=NoTask)  # type: ignore[arg-type]

enable_logging()
enable_logging("json")
enable_logging("xml")  # type: ignore[arg-type]


class Frozen(clock.Clock):
    def random(self) -> float:
        return 0.5


with clock.use(Frozen()) as replacement:
    assert_type(replacement.random(), float)
