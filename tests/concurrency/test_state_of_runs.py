"""State of a run belongs to the run, whoever else runs the same class."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from cmdx import Task, Workflow, clock, on_failed, parallel, retry_on

THREADS = 16
RUNS = 1_000
LIMIT = 3


class NoWaiting(clock.Clock):
    """Pauses only as long as it takes to let others go first."""

    def sleep(self, seconds: float) -> None:
        pass

    async def asleep(self, seconds: float) -> None:
        await asyncio.sleep(0 * seconds)


class Step(Task[None]):
    def work(self) -> None: ...


@retry_on(TimeoutError, limit=LIMIT, delay=1.0, jitter="noted")
class Flaky(Task[int]):
    def work(self) -> int:
        Step.execute()
        if self.attempt < failures_of(self.context.key):
            raise TimeoutError(f"{self.context.key}: {self.attempt}")
        return self.context.key

    def noted(self, attempt: int, delay: float, previous: float | None) -> float:
        self.context.noted.append((attempt, delay, previous))
        return pause_of(self.context.key, attempt)


class LaterFlaky(Flaky):
    async def work(self) -> int:
        await asyncio.sleep(0)
        return super().work()


def failures_of(key):
    """From never failing to failing more often than it is tried."""
    return key % (LIMIT + 2)


def pause_of(key, attempt):
    """A pause that no other run and no other attempt has."""
    return key + 1 + attempt / 10


def told_by(result):
    """What one run said about itself."""
    return {
        "value": result.value_or("none"),
        "retries": result.retries,
        "error": result.cause and str(result.cause),
        "noted": result.context.noted,
        "pauses": [attempt.pause for attempt in result.attempts],
        "chain": [each.task for each in result.chain],
        "parents": {each.parent_tid for each in result.chain[1:]} == {result.tid},
        "root": result.chain.root == result,
        "cids": {each.cid for each in result.chain} == {result.cid},
    }


def expected_of(task, key):
    """What that run should say."""
    failures = failures_of(key)
    retries = min(failures, LIMIT)
    exhausted = failures > LIMIT
    pauses = [pause_of(key, attempt) for attempt in range(retries)]
    befores = [None, *pauses]
    return {
        "value": "none" if exhausted else key,
        "retries": retries,
        "error": f"{key}: {retries}" if exhausted else None,
        "noted": [(attempt, 1.0, befores[attempt]) for attempt in range(retries)],
        "pauses": [*pauses, None] if failures else [],
        "chain": [task, *[Step] * (retries + 1)],
        "parents": True,
        "root": True,
        "cids": True,
    }


def wrong_among(results):
    """The runs that told something else than they should have."""
    return [
        (key, told_by(result))
        for key, result in results.items()
        if told_by(result) != expected_of(result.task, key)
    ]


@pytest.fixture(params=[None, 1e-6], ids=["usual switching", "frantic switching"])
def _switching(request):
    usual = sys.getswitchinterval()
    sys.setswitchinterval(request.param or usual)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_switching")
def test_threads_that_run_one_class_do_not_disturb_each_other():
    start = Barrier(THREADS)

    def run_many(thread):
        start.wait()
        keys = range(thread * RUNS, (thread + 1) * RUNS)
        with clock.use(NoWaiting()):
            return {key: Flaky.execute(key=key, noted=[]) for key in keys}

    with ThreadPoolExecutor(THREADS) as pool:
        shares = list(pool.map(run_many, range(THREADS)))
    results = {key: result for share in shares for key, result in share.items()}

    assert len(results) == THREADS * RUNS
    assert wrong_among(results) == []
    assert len({result.cid for result in results.values()}) == THREADS * RUNS
    assert len({result.tid for result in results.values()}) == THREADS * RUNS


@pytest.mark.parametrize("task", [Flaky, LaterFlaky])
def test_coroutines_that_run_one_class_do_not_disturb_each_other(task):
    async def run_many():
        with clock.use(NoWaiting()):
            runs = (task.aexecute(key=key, noted=[]) for key in range(RUNS))
            return dict(enumerate(await asyncio.gather(*runs)))

    results = asyncio.run(run_many())

    assert len(results) == RUNS
    assert wrong_among(results) == []
    assert len({result.cid for result in results.values()}) == RUNS


@pytest.mark.usefixtures("_switching")
def test_threads_with_event_loops_do_not_disturb_each_other():
    start = Barrier(4)

    async def run_some(keys):
        with clock.use(NoWaiting()):
            runs = (LaterFlaky.aexecute(key=key, noted=[]) for key in keys)
            return dict(zip(keys, await asyncio.gather(*runs), strict=True))

    def run_loop(thread):
        start.wait()
        return asyncio.run(run_some(range(thread * 100, (thread + 1) * 100)))

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(run_loop, range(4)))
    results = {key: result for share in shares for key, result in share.items()}

    assert len(results) == 400
    assert wrong_among(results) == []


@pytest.mark.usefixtures("_switching")
def test_threads_that_use_a_class_first_at_the_same_time_agree_on_it():
    for _ in range(50):
        start = Barrier(THREADS)

        @retry_on(TimeoutError, limit=1, delay=0)
        class New(Task[int]):
            def work(self) -> int:
                raise TimeoutError

        def run_first(_thread, task=New, start=start):
            start.wait()
            return task.execute().retries

        with ThreadPoolExecutor(THREADS) as pool:
            assert set(pool.map(run_first, range(THREADS))) == {1}


@pytest.mark.usefixtures("_switching")
def test_threads_that_ask_for_a_registry_at_the_same_time_agree_on_it():
    for _ in range(50):
        start = Barrier(THREADS)

        class New(Task[None]):
            def work(self) -> None: ...

        def register(thread, task=New, start=start):
            start.wait()
            task.retriers.register(f"retrier {thread}", lambda: 1.0)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(register, range(THREADS)))

        own = {name for name in New.retriers if name.startswith("retrier ")}
        assert len(own) == THREADS


# -- every way to end, at once ------------------------------------------------------


class Leave(BaseException):
    """An interrupt of one's own."""


class Names:
    """Names that parallel steps share; a list would be copied for each."""

    def __init__(self):
        self.names = []
        self.append = self.names.append


class Undone(Task[int]):
    def work(self) -> int:
        return self.context.key

    def rollback(self) -> None:
        self.context.undone.append(type(self).__name__)


def end_as(task, way, key):
    """End a run in one of the ways there are."""
    if way == "fail":
        task.fail(f"{key}", key=key)
    if way == "error":
        task.fail(ValueError(f"{key}"))
    if way == "misuse":
        return task.context[f"nowhere {key}"]
    if way == "interrupt":
        raise Leave(key)
    return key


class Ending(Undone):
    def work(self) -> int:
        return end_as(self, self.context.way, self.context.key)


class Replaced(Ending):
    @on_failed
    def page(self, outcome) -> None:
        raise OSError(f"{outcome.reason} of {self.context.key}")


class Saga(Workflow[int]):
    steps = (Undone, parallel(Undone, Undone), Replaced)


WAYS = ("success", "fail", "error", "misuse", "interrupt")


def ended(task, key):
    """Run *task* and return what is to be the same for each run of that way."""
    way = WAYS[key % len(WAYS)]
    undone = Names()
    try:
        result = task.execute({"key": key, "way": way, "undone": undone})
    except Leave as leave:
        return way, leave.args == (key,), sorted(undone.names)
    if result.success:
        return way, result.value == key, sorted(undone.names)
    ours = str(key) in result.reason and result.chain.root == result
    replaced = result.caused_failure.replaced
    return way, ours and str(key) in replaced.reason, sorted(undone.names)


@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize("task", [Replaced, Saga])
def test_runs_that_end_in_every_way_at_once_do_not_disturb_each_other(task):
    start = Barrier(THREADS)

    def run_many(thread):
        start.wait()
        return [ended(task, key) for key in range(thread * 20, (thread + 1) * 20)]

    with ThreadPoolExecutor(THREADS) as pool:
        told = [each for share in pool.map(run_many, range(THREADS)) for each in share]

    before = ["Undone"] * 3 if task is Saga else []
    undone = ["Replaced", *before]
    assert len(told) == THREADS * 20
    assert sorted(set(map(repr, told))) == sorted(
        repr((way, True, [] if way == "success" else undone)) for way in WAYS
    )
