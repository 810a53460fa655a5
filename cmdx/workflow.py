"""
Workflows: tasks composed into a task.

1. ``steps`` lists tasks, workflows, ``step(...)``, ``group(...)`` and ``parallel(...)``
2. the class statement checks them and makes ``Step`` and ``Group`` values of them
3. sequential steps share the context; parallel ones work on copies that are merged
4. a failure stops the workflow and is thrown; a skip does not
5. when the workflow has failed, the steps that succeeded are rolled back in reverse,
   those of nested workflows that had already finished included
"""

from __future__ import annotations

import warnings
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar, cast

import attrs

from cmdx.endings import keeps
from cmdx.exceptions import DefinitionError, ImplementationError
from cmdx.executors import executors, in_pool, pool
from cmdx.gates import Gate, check_gates, compiled_gate
from cmdx.inputs import Fields
from cmdx.lifecycle import drive, lifecycle, roll_back, unhindered
from cmdx.merging import (
    Merger,
    changes_in,
    conflicts_of,
    deep_changes_in,
    give,
    mergers,
    sibling_context,
)
from cmdx.outcome import Halt, Outcome, Status
from cmdx.result import Record, Result
from cmdx.task import ClassRegistry, Task
from cmdx.working import asleep

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from typing import Unpack

    from cmdx.blueprint import Keywords, Plan
    from cmdx.context import Context
    from cmdx.executors import Executor
    from cmdx.gates import Ask
    from cmdx.inputs import Input
    from cmdx.merging import Path

V_co = TypeVar("V_co", covariant=True)

OnFailure = Literal["stop", "continue"]


# -- what is listed ------------------------------------------------------------------


@attrs.frozen
class Step:
    """A task in a workflow, possibly under other names."""

    task: type[Task[Any]]
    map: Mapping[str, str] = attrs.field(factory=dict)
    into: str | None = None
    on_failure: OnFailure = "stop"

    @property
    def renamed(self) -> bool:
        """Whether it has other names, and so works on a context of its own."""
        return bool(self.map) or self.into is not None


@attrs.frozen
class Group:
    """Steps that are run one after the other, or beside each other."""

    steps: tuple[Step | Group, ...]
    if_: Gate | None = None
    unless: Gate | None = None
    continue_on_failure: bool = False
    parallel: bool = False
    workers: int | None = None
    executor: str | Executor | None = None
    merge: str | Merger = "last"

    @property
    def gated(self) -> bool:
        """Whether it has a gate."""
        return self.if_ is not None or self.unless is not None


def step(
    task: type[Task[Any]],
    /,
    *,
    map: Mapping[str, str] | None = None,  # noqa: A002 -- the word for it
    into: str | None = None,
    on_failure: OnFailure = "stop",
) -> Step:
    """
    List a task under other names, or one whose failure is tolerated.

    *map* gives its inputs the values of other keys of the context; *into* names the key
    its value is put under. Either has it work on a context of its own.
    """
    where = "step()"
    _check_task(where, task)
    renames = dict(map or {})
    if not all(isinstance(name, str) for pair in renames.items() for name in pair):
        message = f"{where}: map must map names of inputs to keys, got {map!r}."
        raise DefinitionError(message)
    if into is not None and not (isinstance(into, str) and into):
        message = f"{where}: into must be the name of a key, got {into!r}."
        raise DefinitionError(message)
    if on_failure not in ("stop", "continue"):
        message = (
            f'{where}: on_failure must be "stop" or "continue", got {on_failure!r}.'
        )
        raise DefinitionError(message)
    return Step(task, renames, into, on_failure)


def group(
    *steps: Any,
    if_: Gate | None = None,
    unless: Gate | None = None,
    continue_on_failure: bool = False,
) -> Group:
    """List steps that belong together: gated together, or all run before failing."""
    check_gates("group()", offered=1, if_=if_, unless=unless)
    listed = _listed("group()", steps)
    return Group(listed, if_, unless, bool(continue_on_failure))


def parallel(  # noqa: PLR0913 -- they are all optional
    *steps: Any,
    workers: int | None = None,
    executor: str | Executor | None = None,
    merge: str | Merger = "last",
    if_: Gate | None = None,
    unless: Gate | None = None,
    continue_on_failure: bool = False,
) -> Group:
    """
    List steps that run beside each other, each on a copy of the context.

    What each wrote is merged in the order they are listed: ``"last"``, ``"deep"``,
    ``"none"``, a registered merger, or a callable of the context and a result.
    """
    where = "parallel()"
    check_gates(where, offered=1, if_=if_, unless=unless)
    if workers is not None and (type(workers) is not int or workers < 1):
        message = f"{where}: workers must be a whole number from 1 on, got {workers!r}."
        raise DefinitionError(message)
    for name, value in (("executor", executor), ("merge", merge)):
        if value is not None and not isinstance(value, str) and not callable(value):
            message = f"{where}: {name} must be a name or a callable, got {value!r}."
            raise DefinitionError(message)
    beside = tuple(map(_as_step, _listed(where, steps)))
    return Group(
        beside,
        if_,
        unless,
        bool(continue_on_failure),
        parallel=True,
        workers=workers,
        executor=executor,
        merge=merge,
    )


def _listed(where: str, steps: Iterable[Any]) -> tuple[Step | Group, ...]:
    listed = []
    for each in steps:
        if isinstance(each, Step | Group):
            listed.append(each)
        else:
            _check_task(where, each)
            listed.append(Step(each))
    if not listed:
        message = f"{where} lists no steps. Give it tasks, workflows or groups."
        raise DefinitionError(message)
    return tuple(listed)


def _as_step(each: Step | Group) -> Step:
    """Make a workflow of a group, so that it can run beside others on a context."""
    if isinstance(each, Step):
        return each
    name = "Parallel" if each.parallel else "Group"
    return Step(type(name, (Inner,), {"steps": (each,), "__module__": __name__}))


def _check_task(where: str, task: Any) -> None:
    if not (isinstance(task, type) and issubclass(task, Task)):
        message = (
            f"{where}: a step is a task, a workflow, step(...), group(...) or "
            f"parallel(...), got {task!r}."
        )
        raise DefinitionError(message)


# -- the class -----------------------------------------------------------------------


class Workflow(Task[V_co]):
    """
    A task that runs other tasks.

    Its value is that of the last step; None if that has none, for it did not run, was
    skipped, failed where that is tolerated, or was several beside each other.
    """

    steps: ClassVar[tuple[Any, ...]] = ()
    executors: ClassVar[ClassRegistry[Executor]] = ClassRegistry(executors)
    mergers: ClassVar[ClassRegistry[Merger]] = ClassRegistry(mergers)

    _kind_: ClassVar[str] = "Workflow"
    _group_: ClassVar[Group] = Group(())

    def __init_subclass__(cls, **keywords: Unpack[Keywords]) -> None:
        """Check the steps as soon as the class is made."""
        super().__init_subclass__(**keywords)
        if cls.work is not Workflow.work:
            message = (
                f"{cls.__qualname__} defines work, but the work of a workflow is its "
                "steps. List tasks in `steps`, or derive from Task."
            )
            raise DefinitionError(message)
        steps = cls.steps
        if not isinstance(steps, tuple | list):
            message = (
                f"{cls.__qualname__}.steps must be a tuple, got {steps!r}. "
                "Write `steps = (First, Second)`."
            )
            raise DefinitionError(message)
        where = f"{cls.__qualname__}.steps"
        cls._group_ = Group(_listed(where, steps)) if steps else Group(())
        _warn_about_wiring(cls)

    def work(self) -> Any:
        """Run the steps."""
        values: list[Any] = []
        steps = run_steps(self, values)
        if self._awaits_:
            return value_of(steps, values)
        drive(steps)
        return values[0]

    @classmethod
    def wiring(cls) -> list[Unwired]:
        """Name each required input of a step that nothing before it provides."""
        inputs = Fields.of(cls).inputs.values()
        return list(_unwired(cls._group_, {each.key for each in inputs}))

    @classmethod
    def to_mermaid(cls) -> str:
        """Draw the steps as a mermaid flowchart."""
        from cmdx.pictures import workflow_mermaid

        return workflow_mermaid(cls)

    @classmethod
    def _parts_(cls) -> tuple[type[Task[Any]], ...]:
        return tuple(each.task for each in _flat(cls._group_))

    @classmethod
    def _compiled_(cls) -> Plan:
        if not cls._group_.steps:
            raise ImplementationError(cls, "has no steps", "List tasks in `steps`.")
        plan = super()._compiled_()
        plan.gates = cls._gates_()
        plan.awaits |= any(each.executor == "asyncio" for each in _groups(cls._group_))
        plan.settle = settle
        plan.fielded = True
        return plan

    @classmethod
    def _gates_(cls) -> dict[int, Ask | None]:
        where = f"{cls.__qualname__}.steps"
        return {
            id(each): compiled_gate(where, cls, each.if_, each.unless)
            for each in _groups(cls._group_)
        }


def _flat(listed: Group) -> Iterator[Step]:
    for each in listed.steps:
        if isinstance(each, Step):
            yield each
        else:
            yield from _flat(each)


def _groups(listed: Group) -> Iterator[Group]:
    yield listed
    for each in listed.steps:
        if isinstance(each, Group):
            yield from _groups(each)
        elif issubclass(each.task, Inner):
            yield from _groups(each.task._group_)


# -- wiring --------------------------------------------------------------------------


class Unwired(NamedTuple):
    """A required input of a step that nothing provides."""

    task: str
    input: str

    def __str__(self) -> str:
        """Say what is missing."""
        return f"{self.task} needs {self.input!r}, which nothing before it provides"


def _unwired(listed: Group, known: set[str]) -> Iterator[Unwired]:
    """Yield what is missing in *listed*, and add what it provides to *known*."""
    provided: set[str] = set()
    for each in listed.steps:
        before = set(known) if listed.parallel else known
        if isinstance(each, Group):
            yield from _unwired(each, before)
        else:
            yield from _unwired_step(each, before)
            before |= _provided(each)
        provided |= before
    known |= provided


def _unwired_step(each: Step, known: set[str]) -> Iterator[Unwired]:
    seen = {name for name, key in each.map.items() if key in known}
    seen |= known - each.map.keys()
    inputs = {given.key: given for given in Fields.of(each.task).inputs.values()}
    for name, given in inputs.items():
        if _must_be_given(given) and name not in seen:
            yield Unwired(each.task.__name__, each.map.get(name, name))
    if issubclass(each.task, Workflow):
        yield from _unwired(each.task._group_, seen | inputs.keys())


def _must_be_given(declared: Input) -> bool:
    options = declared.field.options
    gated = options.get("if_") is not None or options.get("unless") is not None
    return declared.required and not gated and "source" not in options


def _provided(each: Step) -> set[str]:
    if each.into is not None:
        return {each.into}
    outputs = set(Fields.of(each.task).outputs)
    if issubclass(each.task, Workflow):
        for _ in _unwired(each.task._group_, outputs):
            pass
    return outputs


def _warn_about_wiring(cls: type[Workflow[Any]]) -> None:
    if not Fields.of(cls).inputs:  # it takes anything, so nobody can tell
        return
    for unwired in cls.wiring():
        message = (
            f"{cls.__qualname__}: {unwired}. Declare it as an input of the workflow, "
            "or as an output of an earlier step."
        )
        warnings.warn(message, UserWarning, stacklevel=3)


class Inner(Workflow[Any]):
    """A group that runs beside others; its gates are those of who lists it."""

    @classmethod
    def _gates_(cls) -> dict[int, Ask | None]:
        return {}


# -- running -------------------------------------------------------------------------


async def value_of(steps: Coroutine[Any, Any, None], values: list[Any]) -> Any:
    """Await *steps* and return the value they put into *values*."""
    await steps
    return values[0]


async def run_steps(workflow: Workflow[Any], values: list[Any]) -> None:
    """Run all steps of *workflow* and put the value of the last one into *values*."""
    if workflow._plan_.inputs:
        provide_inputs(workflow)
    workflow._succeeded_ = [*workflow._succeeded_]
    try:
        values.append(await run_group(workflow, workflow._group_, workflow.context))
    except BaseException as error:
        if not keeps(workflow, error):  # there may be no result, so undo it now
            await undo(workflow, workflow._succeeded_)
        raise


def provide_inputs(workflow: Workflow[Any]) -> None:
    """Put what the inputs came to where the steps look, if nothing is there."""
    for each in workflow._plan_.fields.inputs.values():
        value = getattr(workflow, each.name)
        if value is not None and workflow.context.get(each.key) is None:
            give(workflow.context, each.key, value)


async def run_group(workflow: Workflow[Any], listed: Group, context: Context) -> Any:
    """Run the steps of *listed* unless its gate says no."""
    if listed.gated and not is_open(workflow, listed):
        return None
    if listed.parallel:
        return await run_beside(workflow, listed, context)
    awaits = workflow._awaits_
    value = result = None
    try:
        for each in listed.steps:
            if isinstance(each, Group):
                value = await run_within(workflow, listed, each, context)
                continue
            given = sibling_context(context, each.map) if each.renamed else context
            task = each.task
            result = await arun(task, given) if awaits else task.execute(given)
            value = note_done(workflow, result)
            if each.renamed:
                take_over(each, context, result)
            if result._record.outcome.status is Status.FAILED:
                take_failure(workflow, listed, each, result)
        stop_if_collected(workflow, listed)
        return value
    finally:
        del result  # the frames of its error hold this one, see ``worked``


def is_open(workflow: Workflow[Any], listed: Group) -> bool:
    """Ask the gate of a group."""
    asked = asked_by(workflow)
    gate = asked._plan_.gates[id(listed)]
    return gate is None or bool(gate(asked))


def asked_by(workflow: Workflow[Any]) -> Workflow[Any]:
    """Return the workflow that gates are asked of: the one that people wrote."""
    while isinstance(workflow, Inner):
        workflow = cast("Workflow[Any]", workflow._parent_)
    return workflow


async def run_within(
    workflow: Workflow[Any], listed: Group, each: Group, context: Context
) -> Any:
    """Run a group of a group, which may collect the failure that ended it."""
    try:
        return await run_group(workflow, each, context)
    except Halt as halt:
        if not listed.continue_on_failure or halt.task is not workflow:
            raise
        if halt.origin is not None:
            collect_failure(workflow, halt.origin)
        elif not isinstance(halt, Collected):
            raise
    return None


async def arun(task: type[Task[Any]], context: Context) -> Result[Any]:
    """Run a step as ``aexecute`` does; roll it back if it is cancelled halfway."""
    invocation, plan = task.__new__(task), task._plan_
    invocation._hold_(plan, context, {})
    invocation._awaits_ = True
    ended: list[Result[Any]] = []
    try:
        await lifecycle(invocation, plan, asleep, ended)
    except BaseException as error:
        if not isinstance(error, Exception):
            await undo_cancelled(invocation)
        raise
    return ended.pop()


def note_done(workflow: Workflow[Any], result: Result[Any]) -> Any:
    """Remember what may have to be undone, and return the value of a success."""
    record = result._record
    done = cast("list[Record]", workflow._succeeded_)
    if record.outcome.status is not Status.SUCCESS:
        done.extend(record.succeeded)
        return None
    done.append(record)
    if record.succeeded:
        done.extend(record.succeeded)
    return record.value


def take_failure(
    workflow: Workflow[Any], listed: Group, each: Step, result: Result[Any]
) -> None:
    """Throw the failure of a step on, collect it, or let it pass."""
    if each.on_failure == "continue":
        return
    if not listed.continue_on_failure:
        workflow.throw(result)
    collect_failure(workflow, result)


def collect_failure(workflow: Workflow[Any], result: Result[Any]) -> None:
    """Put what a step failed of into the errors of the workflow, under its name."""
    name = result.task.__name__
    for problem in result.errors:
        workflow.errors.add(f"{name}.{problem.key}", problem.message, problem.code)
    if not result.errors:
        workflow.errors.add(f"{name}.failed", result.reason or "failed", "failed")


class Collected(Halt):
    """Ends a workflow after a group that collected failures."""

    __slots__ = ()


def stop_if_collected(workflow: Workflow[Any], listed: Group) -> None:
    """End the workflow after a group that collected failures."""
    if listed.continue_on_failure and workflow._errors_:
        reason = str(workflow.errors)
        raise Collected(workflow, Status.FAILED, reason, {}, None, None)


def take_over(each: Step, context: Context, result: Result[Any]) -> None:
    """Take the value of a renamed step, or else what it wrote, unless it failed."""
    if result.failed:
        return
    if each.into is None:
        mergers.lookup("last")(context, result)
    elif result.success:
        context[each.into] = result.value


# -- beside each other ---------------------------------------------------------------


async def run_beside(workflow: Workflow[Any], listed: Group, context: Context) -> None:
    """Run the steps of *listed* on copies of *context* and merge what they wrote."""
    siblings = [
        Sibling(each, context) for each in listed.steps if isinstance(each, Step)
    ]
    try:
        if workflow._awaits_ and listed.executor in (None, "asyncio"):
            await beside_awaited(listed, siblings)
        else:
            executor = workflow.executors.resolve(listed.executor or "threads")
            await beside_executed(workflow, listed, siblings, executor)
        raise_first(siblings)
        note_all_done(workflow, siblings)
        merge(workflow, listed, context, siblings)
        for sibling in siblings:
            if sibling.result is not None and sibling.result.failed:
                take_failure(workflow, listed, sibling.step, sibling.result)
        stop_if_collected(workflow, listed)
    except BaseException:
        note_all_done(workflow, siblings)
        raise
    finally:
        for sibling in siblings:
            sibling.result = None  # the frames of its error hold the sibling


def note_all_done(workflow: Workflow[Any], siblings: list[Sibling]) -> None:
    """Remember what the siblings did, once."""
    for sibling in siblings:
        if sibling.result is not None and not sibling.noted:
            sibling.noted = True
            note_done(workflow, sibling.result)


class Sibling:
    """One step of a parallel group, with a context of its own."""

    def __init__(self, each: Step, context: Context) -> None:
        self.step = each
        self.context = sibling_context(context, each.map)
        self.result: Result[Any] | None = None
        self.error: BaseException | None = None
        self.noted = False

    def run(self) -> None:
        """Run the step, and keep whatever comes of it."""
        try:
            self.result = self.step.task.execute(self.context)
        except BaseException as error:  # raised again where the workflow runs
            self.error = error

    async def arun(self, stopped: list[bool]) -> None:
        """Run the step as a coroutine, or in a thread if it does not await."""
        try:
            if self.step.task._plan_.awaits:
                self.result = await arun(self.step.task, self.context)
            else:
                await in_thread(self.run, stopped)
        except BaseException as error:  # raised again where the workflow runs
            self.error = error

    def stops(self, listed: Group) -> bool:
        """Tell whether those that have not started need not start."""
        if self.error is not None:
            return True
        failed = self.result is not None and self.result.failed
        tolerated = listed.continue_on_failure or self.step.on_failure == "continue"
        return failed and not tolerated


async def beside_executed(
    workflow: Workflow[Any], listed: Group, siblings: list[Sibling], executor: Any
) -> None:
    """Have an executor run the siblings, each in a copy of the context variables."""
    stopped: list[bool] = []

    def run(sibling: Sibling) -> None:
        if stopped:
            return
        sibling.run()
        if sibling.stops(listed):
            stopped.append(True)

    jobs = [partial(copy_context().run, run, sibling) for sibling in siblings]
    workers = listed.workers or len(jobs)
    if workflow._awaits_:
        await in_thread(partial(executor, jobs, workers), stopped)
    else:
        executor(jobs, workers)


async def beside_awaited(listed: Group, siblings: list[Sibling]) -> None:
    """Run the siblings as asyncio tasks; those that do not await, in threads."""
    import asyncio

    seats = asyncio.Semaphore(listed.workers or len(siblings))
    stopped: list[bool] = []

    async def run(sibling: Sibling) -> None:
        async with seats:
            if stopped:
                return
            await sibling.arun(stopped)
            if sibling.stops(listed):
                stopped.append(True)

    tasks = [asyncio.create_task(run(sibling)) for sibling in siblings]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        stopped.append(True)
        for task in tasks:
            task.cancel()
        await unhindered(asyncio.wait(tasks))
        raise


async def in_thread(call: Callable[[], None], stopped: list[bool]) -> None:
    """Run *call* in a thread of the shared pool; never leave it running behind."""
    import asyncio

    if in_pool():  # to wait here for another thread of the pool might take for ever
        call()
        return
    future = pool().submit(copy_context().run, call)
    waiting = asyncio.wrap_future(future)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        stopped.append(True)
        future.cancel()
        await unhindered(asyncio.wait([waiting]))
        raise


async def undo_cancelled(invocation: Task[Any]) -> None:
    """Roll back a step that was cancelled in the middle of its work."""
    if invocation._plan_.rolls_back and not invocation._rolled_back_:
        record = Record(invocation, Outcome(Status.FAILED, "cancelled"), None)
        await unhindered(roll_back(invocation, record))


def raise_first(siblings: list[Sibling]) -> None:
    """Raise what no result could be made of, the first one listed."""
    for sibling in siblings:
        error, sibling.error = sibling.error, None
        if error is None:
            continue
        try:
            raise error
        finally:
            del error  # its traceback leads here


def merge(
    workflow: Workflow[Any], listed: Group, context: Context, siblings: list[Sibling]
) -> None:
    """Merge what the siblings that did not fail wrote, in the order they are listed."""
    merger = workflow.mergers.resolve(listed.merge)
    assert merger is not None  # noqa: S101 -- "last" unless given
    written = []
    for sibling in siblings:
        result = sibling.result
        if result is None or result.failed:
            continue
        written.append((result.task.__name__, written_by(sibling.step, listed, result)))
        if sibling.step.into is None:
            merger(context, result)
        else:
            take_over(sibling.step, context, result)
    workflow._conflicts_ = (*workflow._conflicts_, *conflicts_of(written))


def written_by(each: Step, listed: Group, result: Result[Any]) -> dict[Path, Any]:
    """Return the paths at which a sibling wrote something that is merged."""
    if each.into is not None:
        return {(each.into,): result.value} if result.success else {}
    if listed.merge == "none":
        return {}
    if listed.merge == "deep":
        return deep_changes_in(result.context)
    return {(key,): value for key, value in changes_in(result.context).items()}


# -- undoing -------------------------------------------------------------------------


async def settle(workflow: Workflow[Any], record: Record) -> None:
    """Hand what was done over to the record; undo it if the workflow failed."""
    done, workflow._succeeded_ = workflow._succeeded_, []
    if record.outcome.status is Status.FAILED:
        record.compensated = await undo(workflow, done)
    else:
        record.succeeded = done
    del record, done  # see ``worked``


async def undo(workflow: Workflow[Any], done: Sequence[Record]) -> list[Record]:
    """Roll back *done* in reverse; one that raises does not keep the rest from it."""
    undone = [each for each in reversed(done) if each.task._plan_.rolls_back]
    undoing = roll_back_all(each for each in undone if not each.task._rolled_back_)
    await (unhindered(undoing) if workflow._awaits_ else undoing)
    try:
        return undone
    finally:
        del done, undone  # see ``worked``


async def roll_back_all(done: Iterable[Record]) -> None:
    """Roll back one after the other."""
    for each in done:
        await roll_back(each.task, each)
        del each  # see ``worked``
