"""Steps that run beside each other: failures, groups, threads."""

from __future__ import annotations

import pickle
import sys
import threading
from contextvars import ContextVar
from threading import Barrier, Event, Thread

import pytest

from cmdx import (
    DefinitionError,
    FinishedTaskError,
    Task,
    Workflow,
    group,
    parallel,
    step,
    task_executed,
)

PATIENCE = 20


def flow(*listed, **names):
    return type("Flow", (Workflow,), {"steps": listed, **names})


def doing(name, change):
    """Make a task that calls *change* with its context."""

    def work(self):
        return change(self.context)

    return type(name, (Task,), {"work": work})


def writing(name, **values):
    return doing(name, lambda context: context.update(values))


# -- failures ----------------------------------------------------------------------


class Failing(Task[None]):
    def work(self) -> None:
        self.fail(f"{type(self).__name__} failed")


class Other(Failing):
    pass


class Quick(Task[None]):
    def work(self) -> None:
        self.context.quick = True


def test_a_failure_cancels_what_has_not_started(run):
    result = run(flow(parallel(Quick, Failing, Other, Quick, workers=1), Quick))

    assert result.reason == "Failing failed"
    assert result.origin.task is Failing
    assert [each.task for each in result.chain[1:]] == [Quick, Failing]


def test_a_failure_lets_those_that_run_finish_and_keeps_their_results(run):
    failed, results = Event(), []

    class Slow(Task[str]):
        def work(self) -> str:
            running.set()
            assert failed.wait(PATIENCE)
            self.context.slow = "finished"
            return Inside.execute(self).value

    class Inside(Task[str]):
        def work(self) -> str:
            return "inside"

    class Fails(Task[None]):
        def work(self) -> None:
            assert running.wait(PATIENCE)
            self.fail("no")

    running = Event()

    def heard(sender, *, result, **_):
        results.append(result)
        if sender is Fails:
            failed.set()

    with task_executed.connected_to(heard):
        result = run(flow(parallel(Slow, Fails)))
    tree = {each.task: (each.parent, each.depth) for each in result.chain}
    slow = next(each for each in result.chain if each.task is Slow)

    assert result.reason == "no"
    assert tree == {
        result.task: (None, 0),
        Fails: (result, 1),
        Slow: (result, 1),
        Inside: (slow, 2),
    }
    assert slow.value == "inside"
    assert slow.context.slow == "finished"
    assert len(results) == len(result.chain) == 4


def test_what_the_others_wrote_is_merged_though_one_failed(run):
    result = run(flow(parallel(writing("A", x=1), Failing, workers=1)))

    assert result.failed
    assert result.context.to_dict() == {"x": 1}


def test_the_first_failure_that_is_listed_is_thrown(run):
    barrier = Barrier(2, timeout=PATIENCE)

    class Together(Failing):
        def work(self) -> None:
            barrier.wait()
            super().work()

    class First(Together):
        pass

    class Second(Together):
        pass

    assert run(flow(parallel(First, Second))).reason == "First failed"


def test_a_group_that_continues_starts_all_and_collects_failures(run):
    listed = parallel(Failing, Quick, Other, workers=1, continue_on_failure=True)
    result = run(flow(listed, Quick))

    assert result.failed
    assert result.errors.to_dict() == {
        "Failing.failed": ["Failing failed"],
        "Other.failed": ["Other failed"],
    }
    assert [each.task for each in result.chain[1:]] == [Failing, Quick, Other]


def test_a_tolerated_failure_cancels_nothing(run):
    listed = parallel(step(Failing, on_failure="continue"), Quick, workers=1)
    result = run(flow(listed))

    assert result.success
    assert result.context.quick


@pytest.mark.parametrize("workers", [1, None])
def test_misuse_in_a_sibling_fails_it_and_the_workflow(run, workers):
    class Misused(Task[None]):
        def work(self) -> None:
            Quick().fail("never started")

    result = run(flow(parallel(Quick, Misused, workers=workers)))

    assert result.origin.task is Misused
    assert isinstance(result.origin.cause, FinishedTaskError)
    assert result.reason.startswith("[FinishedTaskError] ")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_is_raised_where_the_workflow_runs(error):
    class Interrupted(Task[None]):
        def work(self) -> None:
            raise error

    with pytest.raises(error):
        flow(parallel(Quick, Interrupted)).execute()


def test_a_halt_of_the_workflow_in_a_gate_beside_others_ends_the_workflow(run):
    class Flow(Workflow[None]):
        steps = (parallel(group(Quick, if_="enough"), Quick),)

        def enough(self):
            self.skip("enough")

    result = run(Flow)

    assert result.skipped
    assert result.reason == "enough"


# -- groups beside each other ------------------------------------------------------


def test_groups_run_beside_each_other_in_their_own_order(run):
    first = group(writing("A", a=1), doing("B", lambda c: c.update(b=c.a + 1)))
    result = run(flow(parallel(first, writing("C", c=3))))

    assert result.context.to_dict() == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("wanted", [True, False])
def test_the_gate_of_a_group_beside_others_is_asked_of_the_workflow(run, wanted):
    class Flow(Workflow[None]):
        steps = (
            parallel(
                group(writing("A", a=1), if_="wanted"),
                parallel(group(writing("B", b=1), unless="wanted"), writing("C", c=1)),
                group(writing("D", d=1), if_=lambda flow: type(flow) is Flow),
            ),
        )

        def wanted(self):
            return self.context.wanted

    result = run(Flow, wanted=wanted)
    done = {"a": 1} if wanted else {"b": 1}

    assert result.context.to_dict() == {"wanted": wanted, "c": 1, "d": 1, **done}


def test_a_wrong_gate_of_a_group_beside_others_is_told_of_the_workflow():
    class Flow(Workflow[None]):
        steps = (parallel(group(Quick, if_="nowhere"), Quick),)

    with pytest.raises(
        DefinitionError, match=r"'nowhere', which is not a method of .*Flow"
    ):
        Flow.execute()


def test_a_parallel_group_in_a_parallel_group_merges_outwards(run):
    inner = parallel(writing("A", a=1, x=1), writing("B", b=1, x=2))
    result = run(flow(parallel(inner, writing("C", c=1))))

    assert result.context.to_dict() == {"a": 1, "b": 1, "x": 2, "c": 1}


# -- context variables and threads -------------------------------------------------


REQUEST: ContextVar[str] = ContextVar("request", default="none")


class Here(Task[None]):
    """Waits until all are here, so that each has a thread of its own."""

    def work(self) -> None:
        seen = threading.current_thread().name, REQUEST.get()
        self.context.barrier.wait()
        self.context[type(self).__name__] = seen


class Here2(Here):
    pass


class Here3(Here):
    pass


def test_context_variables_reach_the_workers(run):
    token = REQUEST.set("request 7")
    try:
        barrier = Barrier(3, timeout=PATIENCE)
        context = run(flow(parallel(Here, Here2, Here3)), barrier=barrier).context
    finally:
        REQUEST.reset(token)

    seen = [context.Here, context.Here2, context.Here3]
    assert [request for _, request in seen] == ["request 7"] * 3
    assert len({thread for thread, _ in seen}) == 3


def test_what_a_sibling_sets_in_a_context_variable_stays_with_it(run):
    class Change(Task[None]):
        def work(self) -> None:
            assert REQUEST.get() == "none"
            REQUEST.set(type(self).__name__)

    result = run(flow(parallel(Change, Change, workers=1)))

    assert result.success
    assert REQUEST.get() == "none"


def test_a_bare_thread_begins_a_chain_of_its_own():
    results = []

    class Bare(Task[None]):
        def work(self) -> None:
            thread = Thread(target=lambda: results.append(Quick.execute()))
            thread.start()
            thread.join()

    result = flow(parallel(Bare, Quick)).execute()

    assert results[0].root
    assert results[0].cid != result.cid
    assert len(result.chain) == 3


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("executor", [None, "threads"])
def test_no_more_than_workers_run_at_once(run, workers, executor):
    running, most = [], []
    lock = threading.Lock()
    full = Barrier(workers)

    class Busy(Task[None]):
        def work(self) -> None:
            with lock:
                running.append(self)
                most.append(len(running))
            full.wait(PATIENCE)
            with lock:
                running.remove(self)

    listed = parallel(*[Busy] * 6, workers=workers, executor=executor)
    result = run(flow(listed))

    assert result.success
    assert max(most) == workers
    assert len(most) == 6


# -- the rest ----------------------------------------------------------------------


class Paired(Workflow[None]):
    steps = (parallel(Quick, Failing, workers=1),)


def test_the_result_of_a_parallel_workflow_is_pickled():
    result = Paired.execute(list=[1])
    copied = pickle.loads(pickle.dumps(result))

    assert copied.reason == "Failing failed"
    assert copied.chain[1].context.to_dict() == {"list": [1], "quick": True}


def test_frantic_switching_loses_no_result():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            siblings = [
                writing(f"T{number}", **{f"k{number}": 1}) for number in range(8)
            ]
            result = flow(parallel(*siblings)).execute()
            assert len(result.chain) == 9
            assert len(result.context) == 8
    finally:
        sys.setswitchinterval(usual)
