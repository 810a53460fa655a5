"""
Steps that run beside each other, each on a context of its own.

1. each step becomes a ``Sibling`` with a context of its own   ``run_parallel``
2. an executor runs them; a failure keeps others from starting ``run_siblings``
3. those that have begun come to their end, whatever happens   ``wait_for_siblings``
4. interrupts are raised again                                 ``raise_first_error``
5. what was written is merged, in the order of the list        ``merge``
6. failures are thrown or collected                            ``cmdx.workflow.results``
"""

from __future__ import annotations

from contextvars import copy_context
from functools import partial
from threading import Event, get_ident
from typing import TYPE_CHECKING, Any, cast

from cmdx.clock import require_asyncio
from cmdx.run.lifecycle import drive, finish_despite_cancel, lifecycle
from cmdx.workflow.executors import blocks_thread, start_thread
from cmdx.workflow.isolation import changes_in, own_context, own_values
from cmdx.workflow.merging import (
    conflicts_of,
    deep,
    deep_changes_in,
    none,
    write_changes,
)
from cmdx.workflow.results import (
    handle_failure,
    invocation_of,
    lister_of,
    stop_if_collected,
    write_step_value,
)
from cmdx.workflow.steps import Step
from cmdx.workflow.undo import note_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.result import Result
    from cmdx.task import Task
    from cmdx.workflow.executors import Executor, Job
    from cmdx.workflow.merging import Merger, Path
    from cmdx.workflow.steps import Group
    from cmdx.workflow.workflow import Workflow

PURPOSE = "a parallel group in an asynchronous run"
"""What needs asyncio."""


async def run_parallel(workflow: Workflow[Any], group: Group) -> None:
    """Run the steps of *group* beside each other and merge what they wrote."""
    steps = [step for step in group.steps if isinstance(step, Step)]
    siblings = [Sibling(workflow, step) for step in steps]
    try:
        await run_siblings(workflow, group, siblings)
        raise_first_error(siblings)
        note_siblings(workflow, siblings)
        merge(workflow, group, siblings)
        for sibling in siblings:
            if sibling.result is not None and sibling.result.failed:
                handle_failure(workflow, group, sibling.step, sibling.result)
        stop_if_collected(workflow, group)
    finally:
        note_siblings(workflow, siblings)
        for sibling in siblings:
            sibling.forget()


class Sibling:
    """One step of a parallel group, with a context of its own."""

    def __init__(self, workflow: Workflow[Any], step: Step) -> None:
        self.workflow = workflow
        self.step = step
        self.context = own_context(workflow._cmdx_.context, step.map)
        self.task: Task[Any] | None = None
        self.result: Result[Any] | None = None
        self.error: BaseException | None = None
        self.is_recorded = False
        self.ended = Event()

    def claim(self) -> bool:
        """Take the right to begin, or to keep others from it; True for the first."""
        mine = get_ident(), object()
        # In one step: an executor may call a job twice, in several threads.
        return self.__dict__.setdefault("claimed_by", mine) is mine

    def is_running(self) -> bool:
        """Tell whether another thread is running the step."""
        thread, _ = self.__dict__["claimed_by"]
        return not self.ended.is_set() and thread != get_ident()

    def invoke(self) -> Task[Any]:
        """Return the invocation of the step."""
        return invocation_of(self.workflow, self.step.task, self.context)

    def run(self, stopped: list[bool]) -> None:
        """Run the step unless the group was stopped; keep whatever comes of it."""
        if stopped or not self.claim():
            return
        blocks_thread.set(True)  # in a copy of the context variables, see the callers
        try:
            task = self.task = self.invoke()
            self.result = drive(lifecycle(task, task._cmdx_.start(task)))
            self.note_changes()
        except BaseException as error:  # raised again where the workflow runs
            self.error = error
        finally:
            self.ended.set()

    async def arun(self, stopped: list[bool]) -> None:
        """Do what ``run`` does, as a coroutine or, if nothing awaits, in a thread."""
        if stopped:
            return
        try:
            if self.step.task._cmdx_.plan.awaits:
                task = self.task = self.invoke()
                run = task._cmdx_.start(task, awaits=True)
                self.result = await lifecycle(task, run)
                self.note_changes()
            else:
                await run_in_thread(partial(self.run, stopped), stopped)
        except BaseException as error:  # raised again where the workflow runs
            self.error = error

    def note_changes(self) -> None:
        """Find out what it wrote, in its own thread: that may take a while."""
        if self.step.into is None and not self.has_failed():
            own_values(self.context).note_changes()

    def has_failed(self) -> bool:
        """Tell whether the step has failed."""
        return self.result is not None and self.result.failed

    def keeps_others_from_starting(self, group: Group) -> bool:
        """Tell whether those that have not started need not start."""
        is_tolerated = group.continue_on_failure or self.step.on_failure == "continue"
        return self.error is not None or (self.has_failed() and not is_tolerated)

    def forget(self) -> None:
        """Drop what leads to errors: their frames lead to the group of siblings."""
        self.task = self.result = self.error = None


async def run_siblings(
    workflow: Workflow[Any], group: Group, siblings: list[Sibling]
) -> None:
    """Run *siblings* as asyncio tasks, or have an executor run them."""
    if workflow._cmdx_.awaits and group.executor in (None, "asyncio"):
        await run_as_asyncio_tasks(group, siblings)
        return
    executor = lister_of(workflow).executors.resolve(group.executor or "threads")
    await run_by_executor(workflow, group, siblings, cast("Executor", executor))


async def run_by_executor(
    workflow: Workflow[Any],
    group: Group,
    siblings: list[Sibling],
    executor: Executor,
) -> None:
    """Have *executor* run the siblings, each in a copy of the context variables."""
    stopped: list[bool] = []

    def run_sibling(sibling: Sibling) -> None:
        sibling.run(stopped)
        if sibling.keeps_others_from_starting(group):
            stopped.append(True)

    jobs: list[Job] = [
        partial(copy_context().run, run_sibling, sibling)  # pyright: ignore[reportAssignmentType]
        for sibling in siblings
    ]
    workers = group.workers or len(jobs)

    def run_jobs() -> None:
        try:
            executor(jobs, workers)
        finally:
            wait_for_siblings(siblings)

    if workflow._cmdx_.awaits:
        await run_in_thread(run_jobs, stopped)
    else:
        run_jobs()
    if not stopped:
        require_all_ran(group, siblings)


def wait_for_siblings(siblings: list[Sibling]) -> None:
    """
    Wait for the siblings that have begun, and keep the others from beginning.

    What a signal handler raises meanwhile is raised when all have ended: only then can
    they be rolled back.
    """
    interrupts: list[BaseException] = []
    begun = [sibling for sibling in siblings if not sibling.claim()]
    for sibling in begun:
        while sibling.is_running():
            try:
                sibling.ended.wait()
            except BaseException as error:
                interrupts.append(error)
    if interrupts:
        raise interrupts.pop(0)  # off the list, which this frame holds


def require_all_ran(group: Group, siblings: list[Sibling]) -> None:
    """Refuse to go on without a step that the executor has not run."""
    for sibling in siblings:
        if not sibling.ended.is_set():
            message = (
                f"the executor {group.executor!r} has not run "
                f"{sibling.step.task.__qualname__}. An executor must call each job "
                "once, and return when all are done."
            )
            raise TypeError(message)


async def run_as_asyncio_tasks(group: Group, siblings: list[Sibling]) -> None:
    """Run the siblings as asyncio tasks; sync ones run in threads."""
    import asyncio

    require_asyncio(PURPOSE)
    free = asyncio.Semaphore(group.workers or len(siblings))
    stopped: list[bool] = []

    async def run_sibling(sibling: Sibling) -> None:
        async with free:
            await sibling.arun(stopped)
            if sibling.keeps_others_from_starting(group):
                stopped.append(True)

    tasks = [asyncio.create_task(run_sibling(sibling)) for sibling in siblings]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        stopped.append(True)
        for task in tasks:
            task.cancel()
        await finish_despite_cancel(asyncio.wait(tasks))
        raise


async def run_in_thread(call: Callable[[], None], stopped: list[bool]) -> None:
    """Run *call* in a thread of the shared pool, and never leave it running."""
    import asyncio

    require_asyncio(PURPOSE)
    try:
        future = start_thread(partial(copy_context().run, call))
    except RuntimeError:  # the interpreter exits: there are no more threads
        call()
        return
    waiting = asyncio.wrap_future(future)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        stopped.append(True)
        future.cancel()
        await finish_despite_cancel(asyncio.wait([waiting]))
        raise


def raise_first_error(siblings: list[Sibling]) -> None:
    """Raise what no result could be made of, the first one listed."""
    for sibling in siblings:
        error, sibling.error = sibling.error, None
        if error is None:
            continue
        try:
            raise error
        finally:
            del error  # its traceback leads to this frame


def note_siblings(workflow: Workflow[Any], siblings: list[Sibling]) -> None:
    """Remember once what the siblings did, so that it can be undone."""
    for sibling in siblings:
        if sibling.task is None or sibling.result is None or sibling.is_recorded:
            continue
        sibling.is_recorded = True
        note_step(workflow._cmdx_, sibling.task, sibling.result._record)


def merge(workflow: Workflow[Any], group: Group, siblings: list[Sibling]) -> None:
    """Merge what the siblings that did not fail wrote, in the order of the list."""
    run = workflow._cmdx_
    merger = lister_of(workflow).mergers.resolve(group.merge)
    assert merger is not None  # noqa: S101 -- "last" unless given
    merged = own_context(run.context, {})  # mergers may change in place what they find
    written = []
    for sibling in siblings:
        result = sibling.result
        if result is None or result.failed:
            continue
        paths = written_paths(sibling.step, merger, result)
        written.append((result.task.__name__, paths))
        if sibling.step.into is None:
            merger(merged, result)
        else:
            write_step_value(sibling.step, merged, result)
    write_changes(run.context, changes_in(merged))
    run.conflicts = (*run.conflicts, *conflicts_of(written))


def written_paths(step: Step, merger: Merger, result: Result[Any]) -> dict[Path, Any]:
    """Return the paths at which a sibling wrote something that is merged."""
    if step.into is not None:
        return {(step.into,): result.value} if result.success else {}
    if merger is none:
        return {}
    if merger is deep:
        return deep_changes_in(result.context)
    return {(key,): value for key, value in changes_in(result.context).items()}
