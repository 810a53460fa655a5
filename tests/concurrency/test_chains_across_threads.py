"""Which chain a task belongs to when it runs somewhere else."""

from __future__ import annotations

import asyncio
import sys
from contextvars import copy_context
from functools import partial
from itertools import count
from threading import Barrier, Event, Thread

import pytest

from cmdx import FinishedTaskError, Task


@pytest.fixture
def _frantic_switching():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


class Leaf(Task[int]):
    def work(self) -> int:
        return 1


class Branch(Task[int]):
    def work(self) -> int:
        return Leaf.execute().value


class Waiting(Task[None]):
    """Says that it has started, and ends when it is told to."""

    def work(self) -> None:
        self.context.started.set()
        assert self.context.go.wait(timeout=10)


def in_thread(call, *, copied):
    """Start *call* in a thread, in a copy of this context or in an empty one."""
    results = []

    def run():
        results.append(call())

    target = partial(copy_context().run, run) if copied else run
    thread = Thread(target=target)
    thread.start()
    return thread, results


def test_a_thread_started_with_a_copied_context_joins_the_chain():
    class Parent(Task[None]):
        def work(self) -> None:
            thread, _ = in_thread(Branch.execute, copied=True)
            thread.join()

    root, leaf, branch = Parent.execute().chain

    assert (root.task, leaf.task, branch.task) == (Parent, Leaf, Branch)
    assert branch.parent == root
    assert leaf.parent == branch
    assert [each.depth for each in (root, branch, leaf)] == [0, 1, 2]


def test_a_task_in_a_bare_thread_begins_a_chain_of_its_own():
    class Parent(Task[object]):
        def work(self) -> object:
            thread, results = in_thread(Branch.execute, copied=False)
            thread.join()
            return results[0]

    result = Parent.execute()
    branch = result.value

    assert len(result.chain) == 1
    assert branch.root
    assert branch.cid != result.cid
    assert branch.parent_tid is None
    assert [each.task for each in branch.chain] == [Branch, Leaf]


@pytest.mark.usefixtures("_frantic_switching")
def test_two_children_in_two_threads_agree_on_one_chain():
    class Parent(Task[None]):
        def work(self) -> None:
            start = Barrier(2)

            def begin():
                start.wait()
                return Branch.execute()

            threads = [in_thread(begin, copied=True) for _ in range(2)]
            for thread, _ in threads:
                thread.join()

    for _ in range(200):
        result = Parent.execute()

        assert sorted(each.task.__name__ for each in result.chain[1:]) == [
            "Branch",
            "Branch",
            "Leaf",
            "Leaf",
        ]
        assert {each.cid for each in result.chain} == {result.cid}
        assert sorted(each.index for each in result.chain) == [0, 1, 2, 3, 4]
        assert {each.parent_tid for each in result.chain if each.task is Branch} == {
            result.tid
        }


@pytest.mark.usefixtures("_frantic_switching")
def test_many_threads_add_to_one_chain_without_losing_results():
    class Parent(Task[None]):
        def work(self) -> None:
            def many():
                for _ in range(100):
                    Leaf.execute()

            threads = [in_thread(many, copied=True) for _ in range(8)]
            for thread, _ in threads:
                thread.join()

    chain = Parent.execute().chain

    assert len(chain) == 801
    assert len({result.tid for result in chain}) == 801
    assert [result.index for result in chain] == list(range(801))


def test_a_child_that_starts_after_its_parent_has_ended_is_a_root():
    threads = []

    class Parent(Task[Event]):
        def work(self) -> Event:
            go = Event()

            def late():
                assert go.wait(timeout=10)
                return Branch.execute()

            threads.append(in_thread(late, copied=True))
            return go

    result = Parent.execute()
    result.value.set()
    ((thread, branches),) = threads
    thread.join()
    (branch,) = branches

    assert len(result.chain) == 1
    assert branch.root
    assert branch.depth == 0
    assert branch.parent_tid is None
    assert branch.cid != result.cid
    assert [each.task for each in branch.chain] == [Branch, Leaf]


def test_a_child_that_outlives_its_parent_still_joins_its_chain():
    started, go = Event(), Event()
    threads = []

    class Parent(Task[None]):
        def work(self) -> None:
            threads.append(
                in_thread(lambda: Waiting.execute(started=started, go=go), copied=True)
            )
            assert started.wait(timeout=10)

    result = Parent.execute()
    before = len(result.chain)
    go.set()
    ((thread, children),) = threads
    thread.join()
    (child,) = children

    assert before == 1
    assert list(result.chain) == [result, child]
    assert child.chain is result.chain
    assert child.parent == result
    assert child.index == 1


# -- every way in which a start and an end can meet ------------------------------
#
# These two tests stop a thread before each instruction of ours in turn. If one fails,
# the instruction it stood at (``step`` in the traceback) lies between a write and a
# read of ``phase`` and ``chain`` that are in the wrong order: see ``chain_for_child``.
# If one never ends or takes minutes, more code of ours runs there than before: have
# ``is_ours`` follow fewer modules rather than lower ``PATIENCE``.

PATIENCE = 0.2
"""Seconds to let one side stand still; the other may be waiting for its lock."""


def is_ours(frame):
    return frame.f_globals.get("__name__", "").startswith("cmdx.")


class StandsStill:
    """Traces a thread, and calls *halt* before one instruction of ours."""

    def __init__(self, step, halt):
        self.left = step
        self.halt = halt

    def __call__(self, frame, event, _argument):
        if not is_ours(frame):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if self.left == 0:
                self.halt()
            self.left -= 1
        return self

    def watch(self, frame):
        """Trace also what is being executed already."""
        while frame is not None:
            if is_ours(frame):
                frame.f_trace = self
                frame.f_trace_opcodes = True
            frame = frame.f_back
        sys.settrace(self)


def assert_they_agree(parent, child):
    if child.root:
        assert child.chain.root == child
        assert child.parent_tid is None
        assert list(child.chain) == [child]
        assert list(parent.chain) == [parent]
    else:
        assert child.chain is parent.chain
        assert child.parent == parent
        assert list(parent.chain) == [parent, child]


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="3.12 does not tell a tracer of each instruction in a frame just entered",
)
def test_a_child_that_stands_still_anywhere_while_its_parent_ends_agrees_with_it():
    class Parent(Task[None]):
        def work(self) -> None:
            stood, go = Event(), self.context.go

            def halt():
                stood.set()
                go.wait(PATIENCE)

            tracer = StandsStill(self.context.step, halt)

            def begin():
                sys.settrace(tracer)
                try:
                    return Leaf.execute()
                finally:
                    sys.settrace(None)
                    stood.set()

            self.context.started = in_thread(begin, copied=True)
            self.context.tracer = tracer
            assert stood.wait(timeout=10)

    roots = set()
    for step in count():
        go = Event()
        result = Parent.execute(step=step, go=go)
        go.set()
        thread, children = result.context.started
        thread.join()
        roots.add(children[0].root)
        assert_they_agree(result, children[0])
        if result.context.tracer.left >= 0:
            break

    assert roots == {True, False}


def test_a_parent_that_stands_still_anywhere_as_it_ends_agrees_with_its_child():
    class Parent(Task[None]):
        def work(self) -> None:
            go = Event()

            def begin():
                assert go.wait(timeout=10)
                return Leaf.execute()

            self.context.started = in_thread(begin, copied=True)
            thread, _ = self.context.started

            def halt():
                go.set()
                thread.join(PATIENCE)

            self.context.go = go
            self.context.tracer = StandsStill(self.context.step, halt)
            self.context.tracer.watch(sys._getframe())

    roots = set()
    for step in count():
        before = sys.gettrace()
        try:
            result = Parent.execute(step=step)
        finally:
            sys.settrace(before)
        result.context.go.set()
        thread, children = result.context.started
        thread.join()
        roots.add(children[0].root)
        assert_they_agree(result, children[0])
        if result.context.tracer.left >= 0:
            break

    assert roots == {True, False}


# -- coroutines -----------------------------------------------------------------


class Later(Task[int]):
    async def work(self) -> int:
        await asyncio.sleep(0)
        return 1


def test_coroutines_started_inside_work_join_the_chain():
    class Parent(Task[None]):
        async def work(self) -> None:
            await asyncio.gather(*(Later.aexecute() for _ in range(10)))

    chain = asyncio.run(Parent.aexecute()).chain

    assert [result.task for result in chain] == [Parent, *[Later] * 10]
    assert {result.parent_tid for result in chain[1:]} == {chain.root.tid}


def test_to_thread_joins_the_chain():
    class Parent(Task[None]):
        async def work(self) -> None:
            await asyncio.to_thread(Branch.execute)

    chain = asyncio.run(Parent.aexecute()).chain

    assert [result.task for result in chain] == [Parent, Leaf, Branch]


def test_tasks_run_side_by_side_do_not_see_each_other():
    class Parent(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(0)
            await Later.aexecute()
            await asyncio.sleep(0)

    async def side_by_side():
        return await asyncio.gather(*(Parent.aexecute() for _ in range(20)))

    results = asyncio.run(side_by_side())

    assert [[each.task for each in result.chain] for result in results] == [
        [Parent, Later]
    ] * 20
    assert len({result.cid for result in results}) == 20


def test_a_task_run_after_a_coroutine_was_cancelled_is_a_root():
    class Endless(Task[None]):
        async def work(self) -> None:
            await asyncio.sleep(3600)

    async def cancelled():
        running = asyncio.create_task(Endless.aexecute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return await Later.aexecute()

    assert asyncio.run(cancelled()).root


def at_once(call, threads):
    """Call something in so many threads at once, and return what they got."""
    ready, got = Barrier(threads), []

    def go():
        ready.wait()
        got.append(call())

    crowd = [Thread(target=go) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return got


@pytest.mark.usefixtures("_frantic_switching")
def test_threads_that_ask_a_result_for_its_chain_first_agree_on_one():
    for _ in range(300):
        result = Leaf.execute()
        assert len(set(at_once(lambda: result.cid, 4))) == 1  # noqa: B023 -- in turn


@pytest.mark.usefixtures("_frantic_switching")
def test_one_of_several_threads_runs_an_invocation():
    def run_once():
        try:
            return invocation.run().value
        except FinishedTaskError:
            return None

    for _ in range(300):
        invocation = Leaf()
        assert sorted(at_once(run_once, 4), key=str) == [1, None, None, None]
