"""
From what a class and its ancestors say to what will be done.

1. A ``Definition`` is what the body and the decorators of one class say. It is the
   ``_cmdx_`` of the class, the only private attribute that cmdx adds to it.
2. A ``Blueprint`` is all of it, folded over the MRO: a value to print, to compare and
   to build tools on.
3. A ``Plan`` is the same made ready to run: tuples of callables, gates compiled, and
   whether anything in it awaits. It is compiled when a class is first used, because
   decorators come after the class statement.
"""

from __future__ import annotations

import inspect
import warnings
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from cmdx.declare.decorators import declarations, definitions
from cmdx.declare.hooks import (
    BEFORE,
    Hook,
    compile_completion_hooks,
    compile_hooks,
    hooks_of,
)
from cmdx.declare.keywords import (
    Settings,
    compile_deprecation,
    compile_refusal,
    frames_of_ours,
)
from cmdx.declare.middleware import (
    MiddlewareDeclaration,
    compile_around_hooks,
    compile_middlewares,
    middleware_name,
    middlewares_of,
)
from cmdx.declare.signatures import awaits, call_problem, positional_count
from cmdx.exceptions import DefinitionError, ImplementationError
from cmdx.inputs.collect import Fields
from cmdx.inputs.outputs import output_plan
from cmdx.retry.decide import Limits, compile_policy
from cmdx.retry.policy import RetryDeclaration, RetryPolicy, rules_without_effect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator
    from types import MethodType

    from cmdx.declare.gates import Ask
    from cmdx.declare.keywords import Keywords
    from cmdx.declare.registry import Registry
    from cmdx.inputs.resolve import InputPlan
    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Run
    from cmdx.task import Task

    AfterWork = Callable[[Any, Run], Awaitable[None]]

T = TypeVar("T")

MOST_DERIVED = 128
"""How much is kept with a plan: callers of a queue may give many different options."""


class computed_once(Generic[T]):  # noqa: N801 -- used like property
    """
    A property that is computed when it is first read, perhaps by several threads.

    ``functools.cached_property`` holds a lock in Python 3.11, the same one for all
    instances, and a child that is forked meanwhile would wait for it for ever.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the name."""
        self.name = name

    def __get__(self, instance: object, owner: type) -> T:
        """Compute the value; of several threads the first one counts."""
        if instance is None:
            return self  # type: ignore[return-value]
        value: T = vars(instance).setdefault(self.name, self.compute(instance))
        return value


class computed_after_each_change(computed_once[T]):  # noqa: N801 -- as above
    """A property of a definition, whose value is of no use once that has changed."""

    def __get__(self, definition: Any, owner: type) -> T:
        """
        Compute the value, once more if another thread changes the definition.

        A third thread may be given the old value until then.
        """
        if definition is None:
            return self  # type: ignore[return-value]
        while True:
            last_change = definition.last_change
            value = super().__get__(definition, owner)
            if definition.last_change is last_change:
                return value
            vars(definition).pop(self.name, None)


class Definition:
    """What the body and the decorators of one class say, and the plan of the class."""

    kind = "Task"
    is_inner = False
    """Whether it is a group of a workflow rather than a class that people wrote."""

    def __init__(self, task: type[Task[Any]]) -> None:
        self.task = task
        self.keywords: Keywords = {}
        self.declarations: tuple[object, ...] = ()
        self.hooks: dict[str, Hook | None] = {}
        self.fields: dict[str, Any] = {}
        self.annotations: dict[str, Any] = {}
        self.registries: dict[str, Registry[Any]] = {}
        self.entry_points: dict[str, MethodType] = {}
        """``execute`` and its like, as methods of this class; made when first used."""
        self.last_change = object()
        """Another object after each change."""

    @computed_after_each_change
    def plan(self) -> Plan:
        """What will be done when the task runs; compiled when it is first used."""
        return self.compile()

    def compile(self) -> Plan:
        """Compile the plan; refuse a class that cannot run."""
        check_decorators(self.task)
        if not callable(getattr(self.task, "work", None)):
            raise ImplementationError(self.task)
        blueprint = Blueprint.of(self.task)
        warn_about_retries(blueprint)
        return Plan(blueprint)

    def inputs(self) -> Iterator[InputPlan]:
        """Yield what takes the values of a source."""
        yield from self.plan.inputs

    def parts(self) -> Iterator[type[Task[Any]]]:
        """Yield the tasks that this one is made of."""
        yield from ()

    def forget_plan(self) -> None:
        """Compile the plan again when it is next used."""
        self.last_change = object()
        self.__dict__.pop("plan", None)


def new_definition(cls: type[Task[Any]]) -> Definition:
    """Return a definition for *cls*, of the most derived type among its bases."""
    kinds = [type(definition) for definition in definitions(cls)]
    return max(kinds, key=lambda kind: len(kind.__mro__))(cls)


@attrs.frozen
class Blueprint:
    """Everything that was declared for a task."""

    task: type[Task[Any]]
    settings: Settings
    fields: Fields
    hooks: dict[str, Hook]
    middlewares: tuple[MiddlewareDeclaration, ...]
    retry_policy: RetryPolicy

    @classmethod
    def of(cls, task: type[Task[Any]]) -> Blueprint:
        """Fold the declarations of *task* over its MRO."""
        settings = Settings()
        for definition in definitions(task):
            settings = settings.extend(definition.keywords)
        return cls(
            task,
            settings,
            Fields.of(task),
            hooks_of(task),
            middlewares_of(task),
            RetryPolicy.fold(declarations(task, RetryDeclaration)),
        )


class Plan:
    """What will be done when a task runs."""

    def __init__(self, blueprint: Blueprint) -> None:
        task, hooks = blueprint.task, blueprint.hooks
        self.task = task
        self.settings = blueprint.settings
        # What goes in and out.
        self.fields = blueprint.fields
        self.inputs = compile_inputs(task, self.fields)
        outputs = self.fields.outputs.values()
        self.outputs = tuple(output_plan(task, output) for output in outputs)
        self.keywords = keywords_of(self.inputs)
        # What happens around work.
        self.retry = compile_policy(task, blueprint.retry_policy)
        self.limits = Limits.of(blueprint.retry_policy)
        self.before = compile_hooks(task, hooks, *BEFORE)
        self.after = compile_completion_hooks(task, hooks)
        self.around = compile_around_hooks(task, hooks)
        self.middlewares = compile_middlewares(task, blueprint.middlewares)
        self.deprecation = compile_deprecation(task, self.settings)
        self.refusal: Callable[[Invocation], None] | None = None
        if self.settings.deprecated == "error" and self.deprecation is not None:
            self.refusal, self.deprecation = compile_refusal(self.deprecation)
        self.correlation_id = compile_correlation_id(self.settings.correlation_id)
        self.rolls_back = callable(getattr(task, "rollback", None))
        self.after_work: AfterWork | None = None
        """Of workflows: what is done with the steps that succeeded."""
        self.gates: dict[int, Ask | None] = {}
        """Of workflows: the gates of groups, by ``id``, as groups have no hash."""
        self.awaiting_part = awaiting_part(blueprint)
        self._derived: dict[tuple[Any, ...], Any] = {}
        """What packages above have made of this plan, see ``derive``."""

    @property
    def awaits(self) -> bool:
        """Whether the task can only be run by ``aexecute``."""
        return self.awaiting_part is not None

    @computed_once
    def is_bare(self) -> bool:
        """Whether a run consists of ``work`` alone, so that the rest can be skipped."""
        wrapped = self.middlewares or self.correlation_id or self.around
        called = self.before or self.after or self.deprecation
        filled = self.inputs or self.outputs or self.rolls_back
        return not (wrapped or called or filled or self.limits or self.after_work)

    def derive(self, make: Callable[..., T], *arguments: Hashable) -> T:
        """
        Return what a package above makes of this plan; it is kept with the plan.

        Args:
            make: A function of the plan, and perhaps of more.
            arguments: What it takes beside the plan.
        """
        key = (make, *arguments)
        found: T | None = self._derived.get(key)
        if found is not None:
            return found
        if len(self._derived) >= MOST_DERIVED:
            self._derived.clear()
        made: T = self._derived.setdefault(key, make(self, *arguments))
        return made

    def with_changes(self, **changes: Any) -> Plan:
        """Return a plan that has some other attributes, and keeps nothing derived."""
        plan = copy(self)
        plan._derived = {}
        vars(plan).pop("is_bare", None)
        for name, value in changes.items():
            getattr(plan, name)  # a misspelt name would be set without any effect
            setattr(plan, name, value)
        return plan


def compile_inputs(task: type[Task[Any]], fields: Fields) -> tuple[InputPlan, ...]:
    """Make the inputs of *task* ready to be resolved."""
    if not fields.inputs:
        return ()
    from cmdx.inputs.pipeline import input_plans

    return input_plans(task, fields)


def keywords_of(inputs: tuple[InputPlan, ...]) -> frozenset[str] | None:
    """Return the keywords that callers may pass; None stands for any."""
    if not inputs:
        return None
    # An input with a source has a key that nobody can pass.
    return frozenset(plan.key for plan in inputs if plan.key == plan.public_name)


def compile_correlation_id(
    call: Callable[..., str] | None,
) -> Callable[[Invocation], str] | None:
    """Return a callable of the task, whether *call* takes it or not."""
    if call is None or positional_count(call, 1):
        return call
    return lambda _: call()


def awaiting_part(blueprint: Blueprint) -> str | None:
    """Name what awaits: ``work``, a hook, a middleware or a step; None if nothing."""
    task = blueprint.task
    for name in ("work", "rollback", *blueprint.hooks):
        method = getattr(task, name, None)
        if method is not None and awaits(method):
            return str(name)
    for declaration in blueprint.middlewares:
        for call in declaration.calls:
            if awaits(call):
                return middleware_name(call)
    for part in task._cmdx_.parts():
        if part._cmdx_.plan.awaits:
            return str(part.__qualname__)
    return None


def check_work(cls: type[Task[Any]]) -> None:
    """Refuse a ``work`` that cannot be called without arguments."""
    work = vars(cls).get("work")
    function = getattr(work, "__func__", work)
    if not inspect.isfunction(function):
        return
    where = f"{cls.__qualname__}.work"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = (
            f"{where} contains a yield, so calling it would not run it. "
            "Return a value, or a list of several values."
        )
        raise DefinitionError(message)
    problem = call_problem(function, 0 if isinstance(work, staticmethod) else 1)
    if problem is not None:
        message = (
            f"{where} is called without arguments: {problem}. "
            "Write `def work(self)`, and declare inputs as annotations of the class: "
            "`name: str`."
        )
        raise DefinitionError(message)


def warn_about_retries(blueprint: Blueprint) -> None:
    """Warn, at the line that uses the task, about rules that retry nothing."""
    task = blueprint.task
    for problem in rules_without_effect(task, blueprint.retry_policy):
        message = f"{task.__qualname__}: {problem}"
        warnings.warn(message, UserWarning, stacklevel=frames_of_ours() + 1)


def check_decorators(cls: type[Task[Any]]) -> None:
    """Refuse a class that ``@dataclass`` or attrs has made into another kind."""
    if "__dataclass_fields__" in vars(cls) or "__attrs_attrs__" in vars(cls):
        message = (
            f"{cls.__qualname__} is decorated as a dataclass or attrs class, which "
            "replaces its __init__. Remove the decorator; annotations declare inputs."
        )
        raise DefinitionError(message)
