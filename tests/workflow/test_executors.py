"""What runs parallel steps: names, the shared pool, and a forked child."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import warnings
from threading import Barrier, Thread

import pytest

from cmdx import (
    Task,
    UnknownEntryError,
    Workflow,
    executors,
    mergers,
    parallel,
)
from cmdx.chain import creation_lock

PATIENCE = 20
"""Seconds to wait for what comes at once unless something is stuck."""


def flow(*listed, **names):
    return type("Flow", (Workflow,), {"steps": listed, **names})


@pytest.fixture
def _registries():
    before = dict(executors._entries), dict(mergers._entries)
    yield
    executors._entries, mergers._entries = before


class Quick(Task[None]):
    def work(self) -> None:
        self.context.quick = True


# -- executors ---------------------------------------------------------------------


class Where(Task[None]):
    def work(self) -> None:
        self.context[type(self).__name__] = threading.get_ident()


class Where2(Where):
    pass


def test_the_inline_executor_runs_siblings_in_order_in_one_thread():
    result = flow(parallel(Where, Where2, executor="inline")).execute()

    assert [each.task for each in result.chain[1:]] == [Where, Where2]
    assert set(result.context.values()) == {threading.get_ident()}


def test_the_thread_that_asks_works_as_well():
    result = flow(parallel(Where, executor="threads")).execute()

    assert result.context.Where == threading.get_ident()


def backwards(jobs, workers):
    calls.append(workers)
    for job in reversed(jobs):
        job()


calls: list[int] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@pytest.mark.parametrize(("workers", "told"), [(None, 2), (5, 5), (1, 1)])
def test_an_executor_may_be_any_callable_of_jobs_and_workers(run, workers, told):
    listed = parallel(Where, Where2, executor=backwards, workers=workers)
    result = run(flow(listed))

    assert [each.task for each in result.chain[1:]] == [Where2, Where]
    assert calls == [told]


@pytest.mark.usefixtures("_registries")
def test_an_executor_can_be_registered_for_all(run):
    executors.register("backwards", backwards)

    run(flow(parallel(Where, Where2, executor="backwards")))

    assert calls == [2]


def test_an_executor_can_be_registered_for_a_class_and_its_subclasses(run):
    class Base(Workflow[None]):
        steps = (parallel(Where, Where2, executor="mine"),)

    class Child(Base):
        pass

    Base.executors.register("mine", backwards)
    run(Base)
    run(Child)

    assert calls == [2, 2]
    assert "mine" not in executors


def test_a_class_can_have_another_default_executor():
    class Base(Workflow[None]):
        steps = (parallel(Where, Where2),)

    Base.executors.register("threads", backwards)
    Base.execute()
    flow(parallel(Where, Where2)).execute()

    assert calls == [2]


@pytest.mark.parametrize("first", ["Workflow", "executors", "mergers", "parallel"])
def test_the_registries_are_registries_whatever_was_imported_before(first):
    program = f"""if True:
        from cmdx import {first}
        from cmdx import executors, mergers
        assert {{"threads", "asyncio", "inline"}} <= set(executors)
        assert {{"last", "deep", "none"}} <= set(mergers)
    """
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603


def test_an_unknown_executor_is_told_with_those_that_are_known(run):
    with pytest.raises(
        UnknownEntryError, match=r"executor.*'thread'; did you mean 'threads'"
    ):
        run(flow(parallel(Where, executor="thread")))


def test_the_asyncio_executor_needs_an_event_loop():
    with pytest.raises(TypeError, match=r"awaits.*aexecute"):
        flow(parallel(Where, executor="asyncio")).execute()


# -- the pool ----------------------------------------------------------------------


def nested(depth, width):
    if not depth:
        return Quick
    return parallel(*[nested(depth - 1, width)] * width)


@pytest.mark.parametrize("threads", [1, 2])
def test_nested_groups_cannot_deadlock_a_small_pool(run, pool_of, in_time, threads):
    pool_of(threads)

    result = in_time(run, flow(nested(depth=3, width=4)))

    assert result.success
    assert sum(each.task is Quick for each in result.chain) == 64


@pytest.mark.parametrize("threads", [1, 2])
def test_many_nested_groups_at_once_cannot_deadlock_a_small_pool(
    run, pool_of, in_time, threads
):
    pool_of(threads)
    task = flow(nested(depth=2, width=3))
    results = []

    def many():
        crowd = [Thread(target=lambda: results.append(run(task))) for _ in range(8)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()

    in_time(many)

    assert [result.success for result in results] == [True] * 8
    assert {sum(each.task is Quick for each in result.chain) for result in results} == {
        9
    }


def test_siblings_that_run_workflows_themselves_cannot_deadlock_the_pool(
    run, pool_of, in_time
):
    pool_of(1)

    class Within(Task[None]):
        def work(self) -> None:
            run(flow(nested(depth=2, width=2))).or_raise()

    assert in_time(run, flow(parallel(*[Within] * 4))).success


def test_all_groups_share_one_pool_of_so_many_threads(pool_of, in_time):
    pool_of(3)
    names = set()

    class Name(Task[None]):
        def work(self) -> None:
            names.add(threading.current_thread().name)

    task = flow(parallel(*[Name] * 20), parallel(*[Name] * 20))
    for _ in range(10):
        in_time(task.execute)

    pooled = {name for name in names if name.startswith("cmdx")}
    assert len(pooled) <= 3


def test_siblings_that_wait_for_the_event_loop_cannot_deadlock_the_pool(
    pool_of, in_time
):
    pool_of(2)

    async def main():
        loop = asyncio.get_running_loop()

        class Within(Task[None]):
            def work(self) -> None:
                inner = flow(parallel(Quick, Quick)).aexecute()
                asyncio.run_coroutine_threadsafe(inner, loop).result(PATIENCE)

        return await flow(parallel(*[Within] * 4)).aexecute()

    assert in_time(asyncio.run, main()).success


@pytest.mark.parametrize("how", ["task.execute()", "asyncio.run(task.aexecute())"])
def test_a_group_runs_when_the_interpreter_exits(how):
    program = f"""if True:
        import asyncio, atexit
        from cmdx import Task, Workflow, parallel

        class Step(Task[None]):
            def work(self):
                print("ran", flush=True)

        class task(Workflow[None]):
            steps = (parallel(Step, Step, Step),)

        atexit.register(lambda: print({how}.status, flush=True))
    """
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert ended.stdout.split() == ["ran", "ran", "ran", "success"]
    assert ended.stderr == ""


# -- executors that do not keep to the rules ------------------------------------------


def test_a_job_that_is_called_twice_runs_once(run):
    done = []

    class Note(Task[None]):
        def work(self) -> None:
            done.append(type(self).__name__)

    def eager(jobs, _workers):
        for job in [*jobs, *jobs]:
            job()

    assert run(flow(parallel(Note, Note, executor=eager))).success
    assert done == ["Note", "Note"]


def test_a_step_that_the_executor_did_not_run_fails_the_workflow(run):
    def lazy(jobs, _workers):
        jobs[0]()

    result = run(flow(parallel(Where, Where2, executor=lazy)))

    assert result.failed
    assert "has not run Where2. An executor must call each job once" in result.reason
    assert [each.task for each in result.chain[1:]] == [Where]


def test_jobs_that_still_run_when_the_executor_returns_are_waited_for(run):
    returned = threading.Event()

    class Slow(Task[int]):
        def work(self) -> int:
            begun.wait(PATIENCE)
            self.context.begun_when_returned = returned.wait(PATIENCE)
            return 1

    begun = threading.Barrier(2)

    def hasty(jobs, _workers):
        for job in jobs:
            Thread(target=job).start()
        begun.wait(PATIENCE)
        returned.set()

    result = run(flow(parallel(Slow, executor=hasty)))

    assert result.success
    assert result.context.begun_when_returned is True


# -- in a forked child, and called by hand --------------------------------------------


class Step(Task[None]):
    def work(self) -> None: ...


def test_the_executor_of_asyncio_cannot_be_called_without_an_event_loop():
    with pytest.raises(TypeError, match="aexecute"):
        executors.lookup("asyncio")([], 1)


@pytest.mark.parametrize("name", ["threads", "inline"])
@pytest.mark.parametrize("workers", [1, 2, 9])
def test_an_executor_runs_each_job_once(name, workers):
    done = []
    jobs = [lambda number=number: done.append(number) for number in range(5)]

    executors.lookup(name)(jobs, workers)

    assert sorted(done) == [0, 1, 2, 3, 4]


class Meeting(Task[None]):
    """Waits for another one, so it takes a thread for each."""

    def work(self) -> None:
        self.context.barrier.wait(10)


class Together(Workflow[None]):
    steps = (parallel(Meeting, Meeting),)


class Nested(Task[None]):
    def work(self) -> None:
        Step.execute_or_raise()


def meet():
    return Together.execute(barrier=Barrier(2)).success


def nest():
    return Nested.execute().success


def exit_code_of_child(call):
    """Fork, and have the child call *call*; it must not wait for ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if call() else 1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@forking
def test_a_forked_child_has_a_pool_of_its_own():
    assert meet()  # the pool of this process has threads now

    assert exit_code_of_child(meet) == 0


@forking
def test_a_forked_child_does_not_wait_for_what_its_parent_has_locked():
    with creation_lock:
        assert exit_code_of_child(nest) == 0
