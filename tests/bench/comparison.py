"""
cmdx beside tenacity, stamina and backoff: overhead, deadline, jitter, storm, nesting.

Run it with ``python tests/bench/comparison.py``; what it prints is the middle part of
``docs/explanation/beside-other-libraries.md``. Only the overhead is measured in real
time. Everything else runs in virtual time and with seeded chance, and comes out the
same everywhere. A library that is not installed is left out.
"""

from __future__ import annotations

import datetime as dt
import gc
import platform
import random
import time
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from cmdx import RetryBudget, Task, clock, middleware, retry_on
from cmdx.middlewares import Breaker, circuits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Wrap = Callable[[Callable[[], Any]], Callable[[], Any]]

try:
    import tenacity
except ImportError:
    tenacity = None

try:
    import stamina
except ImportError:
    stamina = None
else:
    stamina.instrumentation.set_on_retry_hooks([])  # as silent as the others

try:
    import backoff
except ImportError:
    backoff = None

LIBRARIES = ("pycmdx", "tenacity", "stamina", "backoff")


class Way(NamedTuple):
    """A way to have a function tried again."""

    label: str
    wrap: Wrap


class Table(NamedTuple):
    """What is printed under one title."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def __str__(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        cells = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join([f"### {self.title}", "", *cells])


# -- the four libraries, asked for the same -------------------------------------


def cmdx_way(label: str, around: Any = None, **options: Any) -> Way:
    """Retry with a task; what cmdx puts into a result is left there."""

    def wrap(function):
        @retry_on(TimeoutError, **options)
        class Call(Task[None], log=False):
            def work(self) -> None:
                return function()

        if around is not None:
            Call = middleware(around)(Call)  # noqa: N806
        return Call.execute

    return Way(label, wrap)


def tenacity_way(label: str, *, reraise: bool = True, **options: Any) -> Way:
    listed = tenacity.retry_if_exception_type(TimeoutError)
    return Way(label, tenacity.retry(retry=listed, reraise=reraise, **options))


def stamina_way(label: str, **options: Any) -> Way:
    return Way(label, stamina.retry(on=TimeoutError, **options))


def backoff_way(label: str, waits: Any, **options: Any) -> Way:
    return Way(label, backoff.on_exception(waits, TimeoutError, **options))


def plain_ways(attempts: int, **cmdx_options: Any) -> Iterator[Way]:
    """Yield each library with so many attempts and no pauses."""
    yield cmdx_way("cmdx", limit=attempts - 1, delay=0, **cmdx_options)
    if tenacity:
        yield tenacity_way("tenacity", stop=tenacity.stop_after_attempt(attempts))
    if stamina:
        none = {"wait_initial": 0, "wait_max": 0, "wait_jitter": 0}
        yield stamina_way("stamina", attempts=attempts, timeout=None, **none)
    if backoff:
        none = {"interval": 0, "jitter": None, "logger": None}
        yield backoff_way("backoff", backoff.constant, max_tries=attempts, **none)


# -- virtual time ---------------------------------------------------------------


class VirtualTime(clock.Clock):
    """Time that passes when somebody sleeps, for cmdx and for the others."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds

    def today(self) -> dt.datetime:
        start = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
        return start + dt.timedelta(seconds=self.seconds)


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """Have everything in the block run in virtual time."""
    virtual = VirtualTime()
    with ExitStack() as stack:
        stack.enter_context(clock.use(virtual))
        stack.enter_context(patch.object(time, "sleep", virtual.sleep))
        stack.enter_context(patch.object(time, "monotonic", virtual.monotonic))
        if backoff:
            dates = SimpleNamespace(now=virtual.today)
            module = SimpleNamespace(datetime=dates, timedelta=dt.timedelta)
            stack.enter_context(patch.object(backoff._sync, "datetime", module))
        yield virtual


class Dead:
    """A dependency that takes its time and then does not answer."""

    __name__ = "dead"  # which backoff logs

    def __init__(self, takes: Callable[[], None] = lambda: None) -> None:
        self.takes = takes
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        self.takes()
        raise TimeoutError


def call_in_vain(call: Callable[[], Any]) -> None:
    with suppress(TimeoutError):
        call()


# -- overhead -------------------------------------------------------------------

FAILURES = 2
CALLS = 200
"""So many calls are timed at a stretch."""


def by_hand(function: Callable[[], Any]) -> Callable[[], Any]:
    """The loop that people write themselves."""

    def call():
        attempt = 0
        while True:
            try:
                return function()
            except TimeoutError:
                if attempt >= 3:
                    raise
            attempt += 1

    return call


def flaky(failures: int) -> Callable[[], None]:
    numbers = count(1)

    def call():
        if next(numbers) % (failures + 1):
            raise TimeoutError

    return call


def overhead(rounds: int) -> Table:
    """Time a call that succeeds, and one that fails twice before."""
    ways = [Way("a loop by hand", by_hand), *plain_ways(4)]
    columns = [
        [way.wrap(flaky(failures)) for way in ways] for failures in (0, FAILURES)
    ]
    # Some sleep for zero seconds, which takes as long as the machine is busy.
    with patch.object(time, "sleep", lambda _: None):
        times = [best_times(calls, rounds) for calls in columns]
    rows = [
        (way.label, *(cell for column in times for cell in timing(column, number)))
        for number, way in enumerate(ways)
    ]
    head = ("", "success, ns", "ratio", "two failures, ns", "ratio")
    return Table("What a call costs", head, rows)


def timing(times: list[float], number: int) -> tuple[str, str]:
    ratio = times[number] / times[0]
    return f"{times[number]:,.0f}".replace(",", " "), f"{ratio:.1f}"


def best_times(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the nanoseconds of each call at its best, all timed in turn."""
    best = [float("inf")] * len(calls)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for number, call in enumerate(calls):
                best[number] = min(best[number], nanoseconds(call))
            gc.collect()
    finally:
        gc.enable()
    return best


def nanoseconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS


# -- deadline -------------------------------------------------------------------

BUDGET, WAIT, SLOW = 0.30, 0.25, 0.20


def deadline_ways() -> Iterator[Way]:
    yield cmdx_way("cmdx `deadline`", limit=99, delay=WAIT, deadline=BUDGET)
    if tenacity:
        for name in ("stop_before_delay", "stop_after_delay"):
            stop = getattr(tenacity, name)(BUDGET)
            fixed = tenacity.wait_fixed(WAIT)
            yield tenacity_way(f"tenacity `{name}`", stop=stop, wait=fixed)
    if stamina:
        fixed = {"wait_initial": WAIT, "wait_max": WAIT, "wait_jitter": 0}
        label = "stamina `timeout`"
        yield stamina_way(label, attempts=None, timeout=BUDGET, **fixed)
    if backoff:
        fixed = {"interval": WAIT, "jitter": None}
        label = "backoff `max_time`"
        yield backoff_way(label, backoff.constant, max_time=BUDGET, **fixed)


def deadline(ways: Iterable[Way]) -> Table:
    """Give a dead dependency 0.30 s with pauses of 0.25 s."""
    rows = [(way.label, *probed(way, 0.0), *probed(way, SLOW)) for way in ways]
    slow = f"attempts of {SLOW:.2f} s"
    head = ("", "failing at once: calls", "seconds", f"{slow}: calls", "seconds")
    return Table(f"A budget of {BUDGET:.2f} s, pauses of {WAIT:.2f} s", head, rows)


def probed(way: Way, takes: float) -> tuple[str, str]:
    with virtual_time() as virtual:

        def pass_time():
            virtual.seconds += takes

        dead = Dead(pass_time)
        call_in_vain(way.wrap(dead))
    return str(dead.calls), f"{virtual.seconds:.2f}"


# -- jitter at the cap ----------------------------------------------------------

BASE, CAP, ATTEMPT, DRAWS, SEED = 0.1, 5.0, 12, 5_000, 7


def jitter_ways() -> Iterator[Way]:
    for name in ("full_jitter", "equal_jitter", "decorrelated_jitter"):
        options = {"delay": BASE, "max_delay": CAP, "jitter": name}
        yield cmdx_way(f"cmdx `{name}`", limit=ATTEMPT, **options)
    if tenacity:
        stop = tenacity.stop_after_attempt(ATTEMPT + 1)
        spread = tenacity.wait_random_exponential(multiplier=BASE, max=CAP)
        yield tenacity_way("tenacity `wait_random_exponential`", stop=stop, wait=spread)
        spread = tenacity.wait_exponential_jitter(multiplier=BASE, max=CAP)
        yield tenacity_way("tenacity `wait_exponential_jitter`", stop=stop, wait=spread)
    if stamina:
        waits = {"wait_initial": BASE, "wait_max": CAP}
        yield stamina_way("stamina", attempts=ATTEMPT + 1, timeout=None, **waits)
    if backoff:
        waits = {"factor": BASE, "max_value": CAP, "max_tries": ATTEMPT + 1}
        yield backoff_way("backoff `full_jitter`", backoff.expo, **waits)


def jitter(ways: Iterable[Way]) -> Table:
    """Look at the pause after the twelfth failure, in five thousand runs."""
    rows = [(way.label, f"{share_at_the_cap(way):.0%}") for way in ways]
    title = f"Pauses that are exactly the cap, after failure {ATTEMPT}"
    return Table(title, ("", f"base {BASE} s, cap {CAP:.0f} s, {DRAWS} runs"), rows)


def share_at_the_cap(way: Way) -> float:
    call = way.wrap(Dead())
    state = random.getstate()
    random.seed(SEED)
    try:
        with virtual_time() as virtual:
            for _ in range(DRAWS):
                call_in_vain(call)
    finally:
        random.setstate(state)
    drawn = virtual.pauses[ATTEMPT - 1 :: ATTEMPT]
    assert len(drawn) == DRAWS
    return drawn.count(CAP) / DRAWS


# -- storm ----------------------------------------------------------------------

CALLERS = 1_000


def storm_ways() -> Iterator[Way]:
    yield from plain_ways(4)
    budget = RetryBudget(ratio=0.2, reserve=10)
    yield cmdx_way("cmdx with a `RetryBudget`", limit=3, delay=0, budget=budget)
    circuits.forget("storm")
    breaker = Breaker("storm", failures=5)
    yield cmdx_way("cmdx with a `Breaker`", breaker, limit=3, delay=0)


def storm(ways: Iterable[Way]) -> Table:
    """Have a thousand callers call a dead dependency."""
    rows = [(way.label, str(calls_of_all(way))) for way in ways]
    title = f"{CALLERS} callers of a dead dependency, 3 retries each"
    return Table(title, ("", "calls made"), rows)


def calls_of_all(way: Way) -> int:
    dead = Dead()
    with virtual_time():
        call = way.wrap(dead)
        for _ in range(CALLERS):
            call_in_vain(call)
    return dead.calls


# -- nested ---------------------------------------------------------------------


def nested_ways() -> Iterator[tuple[Way, Way]]:
    for way in plain_ways(3):
        yield way, way
    outer = cmdx_way("cmdx", limit=2, delay=0)
    yield outer, cmdx_way('cmdx with `nested="once"`', limit=2, delay=0, nested="once")


def nested(ways: Iterable[tuple[Way, Way]]) -> Table:
    """Have a call with three attempts make a call with three attempts."""
    rows = [(inner.label, str(calls_of_both(outer, inner))) for outer, inner in ways]
    return Table("Three attempts inside three attempts", ("", "calls made"), rows)


def calls_of_both(outer: Way, inner: Way) -> int:
    dead = Dead()
    call = inner.wrap(dead)

    def pass_on():
        result = call()
        if result is not None:  # of cmdx, which does not raise
            result.or_raise()

    with virtual_time():
        call_in_vain(outer.wrap(pass_on))
    return dead.calls


# -- all of it ------------------------------------------------------------------


def exact_tables() -> list[Table]:
    """Return what comes out the same everywhere."""
    return [
        deadline(deadline_ways()),
        jitter(jitter_ways()),
        storm(storm_ways()),
        nested(nested_ways()),
    ]


def installed() -> str:
    versions = [f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return ", ".join(versions)


def main(rounds: int = 100) -> None:
    print(f"Measured with {installed()}.")
    for table in (overhead(rounds), *exact_tables()):
        print(f"\n{table}")


if __name__ == "__main__":
    main()
