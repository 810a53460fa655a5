"""
``Task``: what people subclass.

Annotations say what it takes, methods what it does, method decorators when, class
decorators how it is run, and class keywords what it is.
"""

from __future__ import annotations

import inspect
import math
from functools import partial, update_wrapper
from types import FunctionType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from cmdx import exceptions
from cmdx.declare.blueprint import Blueprint, Definition, check_work, new_definition
from cmdx.declare.checks import check_longest_pause
from cmdx.declare.decorators import forget_plans
from cmdx.declare.hooks import collect_hooks
from cmdx.declare.keywords import check_keywords, claim_name
from cmdx.declare.registry import Registry
from cmdx.exceptions import DefinitionError
from cmdx.inputs.collect import Fields, collect_fields
from cmdx.inputs.fields import optional, private, required
from cmdx.inputs.outputs import output
from cmdx.inputs.resolve import resolve
from cmdx.retry.strategies import retriers as global_retriers
from cmdx.run.continuation import check_earlier, resume
from cmdx.run.invocation import Invocation
from cmdx.run.lifecycle import drive, lifecycle
from cmdx.run.record import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Unpack

    from cmdx.declare.keywords import Keywords
    from cmdx.inputs.collect import Input
    from cmdx.inputs.errors import Errors
    from cmdx.result import Result
    from cmdx.retry.policy import RetryPolicy
    from cmdx.retry.strategies import Retrier
    from cmdx.run.continuation import Suspended
    from cmdx.run.invocation import Source

    class_only = classmethod

P = ParamSpec("P")
V = TypeVar("V")
E = TypeVar("E", bound="Callable[..., Any]")
V_co = TypeVar("V_co", covariant=True)

new = object.__new__


class ClassRegistry(Generic[E]):
    """A registry for each class: its own, its ancestors', then the global one."""

    def __init__(self, everyone: Registry[E]) -> None:
        self.everyone = everyone

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the name, and which class has the global registry."""
        self.owner, self.name = owner, name
        self.everyone.changed = partial(forget_plans, owner)

    def __get__(self, task: object, cls: type[Task[Any]]) -> Registry[E]:
        """Return the registry of *cls*; make it when it is first asked for."""
        if cls is self.owner:
            return self.everyone
        registries = cls._cmdx_.registries
        if self.name not in registries:
            bases: list[Any] = [
                base for base in cls.__mro__[1:] if issubclass(base, self.owner)
            ]
            ancestors = [self.__get__(None, base) for base in bases]
            registry = Registry(
                self.everyone.kind, ancestors, check=self.everyone.check
            )
            registry.changed = partial(forget_plans, cls)
            # In one step, so that threads agree on one registry.
            registries.setdefault(self.name, registry)
        return cast("Registry[E]", registries[self.name])


class ClassPolicy:
    """The effective retry policy of a class."""

    def __get__(self, task: object, cls: type[Task[Any]]) -> RetryPolicy:
        """Fold the declarations of *cls* and its ancestors."""
        return Blueprint.of(cls).retry_policy


class ClassSignature:
    """The signature of a class for ``help`` and editors: its inputs, by keyword."""

    def __get__(self, task: object, cls: type[Task[Any]]) -> inspect.Signature:
        """Read the fields of *cls* and its ancestors."""
        kind = inspect.Parameter.KEYWORD_ONLY
        empty = inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(
                    field.key,
                    kind,
                    default=empty if field.required else shown_default(field),
                    annotation=field.annotation,
                )
                for field in Fields.of(cls).inputs.values()
                if field.key.isidentifier() and "source" not in field.field.options
            ]
        )


def shown_default(field: Input) -> Any:
    """Return the default of an input, an ellipsis if a factory makes it."""
    return ... if field.field.factory is not None else field.field.default


if not TYPE_CHECKING:

    class class_only:  # noqa: N801 -- used like classmethod
        """A method of the class alone; an instance says what to call instead."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self.function = function
            self.name = function.__name__
            self.__doc__ = function.__doc__

        def __get__(self, task: object, cls: type) -> Any:
            """Bind to the class, or to what refuses the call."""
            if task is not None:
                return partial(refuse_instance, self.name)
            known = cls._cmdx_.entry_points
            try:
                return known[self.name]
            except KeyError:
                return known.setdefault(self.name, entry_point(self.function, cls))


def entry_point(function: FunctionType, cls: type[Task[Any]]) -> MethodType:
    """Return a method of *cls* that shows the inputs of *cls* as its parameters."""
    own = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    update_wrapper(own, function)
    inputs = cls.__signature__.parameters
    name = "_cls" if "cls" in inputs else "cls"  # an input may be called so
    first = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
    vars(own)["__signature__"] = inspect.Signature([first, *inputs.values()])
    return MethodType(own, cls)


def refuse_instance(name: str, /, *_: Any, **__: Any) -> NoReturn:
    """Raise: *name* was called on an invocation."""
    message = (
        f"{name}() is a class method and creates the instance itself. "
        f"This instance already has its inputs: {INSTEAD[name]}."
    )
    raise TypeError(message)


INSTEAD = {
    "execute": "call .run() on it",
    "execute_or_raise": "call .run().or_raise() on it",
    "aexecute": "call await .arun() on it",
    "aexecute_or_raise": "call (await .arun()).or_raise() on it",
    "check": "pass them to check() of the class",
}


@dataclass_transform(
    kw_only_default=True,
    eq_default=False,
    field_specifiers=(required, optional, output, private),
)
class Task(Invocation, Generic[V_co]):
    """
    A piece of business logic; each instance runs once and produces a ``Result``.

    Derive from it, declare inputs as annotations, and define ``work``::

        class Greet(Task[str]):
            name: str

            def work(self) -> str:
                return f"Hello, {self.name}"

        Greet.execute(name="Ada").value

    Class keywords are inherited and merged, except *name*. The name ``_cmdx_`` is
    reserved.

    Class keywords:
        name: What stored data calls this class, see ``cmdx.wire``; by default it is
            called by its module and name.
        tags: Texts to find results by; added to those of the base classes.
        log: Whether each run writes a log line.
        log_level: The level of the line; by default it depends on the outcome.
        log_fields: More fields of the line, such as ``"context.order_id"``.
        correlation_id: A callable, of the task or without arguments, that returns the
            ``xid`` of a root run.
        deprecated: ``"log"``, ``"warn"``, ``"error"``, or a callable of the task.
        deprecated_if: A gate: whether the task is deprecated in this run.
        deprecated_unless: The opposite gate.
        retry: ``RetryOptions``, the defaults of ``self.retry``.
    """

    Fault: ClassVar[type[exceptions.Fault]] = exceptions.Fault
    """What ``execute_or_raise`` raises for a failure of this class."""
    retriers: ClassVar[ClassRegistry[Retrier]] = ClassRegistry(global_retriers)
    """The jitter strategies of this class and its subclasses."""
    retry_policy: ClassVar[ClassPolicy] = ClassPolicy()
    """The rules that all ``@retry_on`` of this class and its ancestors come to."""
    __signature__: ClassVar[ClassSignature] = ClassSignature()

    _cmdx_: Any  # of the class a Definition, of an instance a Run

    if TYPE_CHECKING:

        def work(self) -> V_co | Coroutine[Any, Any, V_co]:
            """Do what the task is for, and return its value."""
            raise NotImplementedError

    def __init_subclass__(cls, **keywords: Unpack[Keywords]) -> None:
        """Check what can be checked now; the rest when the class is first used."""
        super().__init_subclass__()
        if "__init__" in vars(cls):
            message = (
                f"{cls.__qualname__} defines __init__, which execute never calls. "
                "Declare inputs as annotations; prepare things in a hook such as "
                "@before_execution."
            )
            raise DefinitionError(message)
        if cls.__doc__ is None:
            cls.__doc__ = ""  # ``help`` would show that of a base class
        definition = cls._cmdx_ = new_definition(cls)
        definition.keywords = check_keywords(cls, dict(keywords))
        definition.hooks = collect_hooks(cls)
        cls.Fault = own_fault(cls)
        check_work(cls)
        collect_fields(cls, reserved_names(cls))
        claim_name(cls, definition.keywords)

    def __init__(self, source: Source | None = None, /, **inputs: Any) -> None:
        self._cmdx_ = Run(type(self)._cmdx_.plan, source, inputs)

    # -- running ----------------------------------------------------------------

    @overload
    @class_only  # pyright: ignore[reportArgumentType]
    def execute(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @class_only
    def execute(cls: type[Task[V]], source: Source, /, **inputs: Any) -> Result[V]: ...
    @class_only  # type: ignore[misc]  # the keywords are those of P
    def execute(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """
        Run the task and return its result; never raise because the task failed.

        Args:
            source: A context, task, result or mapping to take inputs from.
            inputs: The inputs by keyword; they take precedence over *source*.
        """
        task = new(cls)
        run = task._cmdx_ = Run(cls._cmdx_.plan, source, inputs)
        return drive(lifecycle(task, run.start(task)))

    @overload
    @class_only  # pyright: ignore[reportArgumentType]
    def execute_or_raise(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @class_only
    def execute_or_raise(
        cls: type[Task[V]], source: Source, /, **inputs: Any
    ) -> Result[V]: ...
    @class_only  # type: ignore[misc]  # the keywords are those of P
    def execute_or_raise(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """
        Run the task and return its result, or raise if it failed.

        The exception that ``work`` raised is raised as it is, otherwise a ``Fault``,
        after the whole lifecycle is done. The arguments are those of ``execute``.
        """
        task = new(cls)
        run = task._cmdx_ = Run(cls._cmdx_.plan, source, inputs)
        return drive(lifecycle(task, run.start(task, strict=True))).or_raise()

    @overload
    @class_only  # pyright: ignore[reportArgumentType]
    async def aexecute(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @class_only
    async def aexecute(
        cls: type[Task[V]], source: Source, /, **inputs: Any
    ) -> Result[V]: ...
    @class_only  # type: ignore[misc]  # the keywords are those of P
    async def aexecute(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Do what ``execute`` does, and await what has to be awaited."""
        task = new(cls)
        run = task._cmdx_ = Run(cls._cmdx_.plan, source, inputs)
        return await lifecycle(task, run.start(task, awaits=True))

    @overload
    @class_only  # pyright: ignore[reportArgumentType]
    async def aexecute_or_raise(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @class_only
    async def aexecute_or_raise(
        cls: type[Task[V]], source: Source, /, **inputs: Any
    ) -> Result[V]: ...
    @class_only  # type: ignore[misc]  # the keywords are those of P
    async def aexecute_or_raise(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Do what ``execute_or_raise`` does, and await what has to be awaited."""
        task = new(cls)
        run = task._cmdx_ = Run(cls._cmdx_.plan, source, inputs)
        run.start(task, awaits=True, strict=True)
        return (await lifecycle(task, run)).or_raise()

    @overload
    @class_only  # pyright: ignore[reportArgumentType]
    def check(
        cls: Callable[P, Task[Any]], *args: P.args, **kwargs: P.kwargs
    ) -> Errors: ...
    @overload
    @class_only
    def check(cls: type[Task[Any]], source: Source, /, **inputs: Any) -> Errors: ...
    @class_only  # type: ignore[misc]  # the keywords are those of P
    def check(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """
        Return the problems of inputs without running the task; none if all is well.

        Inputs are resolved and validated as in a run, sources and factories included.
        No callback and no middleware is called, no signal is sent, and a context that
        is passed as *source* is not changed. The arguments are those of ``execute``.
        """
        plan = cls._cmdx_.plan
        # A copy, because keywords would be written into the context of the source.
        values = None if source is None else Run(plan, source, {}).context.to_dict()
        task = new(cls)
        task._cmdx_ = Run(plan, values, inputs)
        return errors_of_inputs(task)

    def run(
        self,
        *,
        earlier: Suspended | Mapping[str, Any] | None = None,
        longest_pause: float = math.inf,
    ) -> Result[V_co]:
        """
        Run this invocation, once.

        Args:
            earlier: The suspension of a run of this task, or its ``to_dict()``; the run
                goes on where it stopped.
            longest_pause: A pause before a retry that is longer than this many seconds
                is not slept: ``cmdx.Suspended`` is raised.
        """
        if earlier is not None or longest_pause != math.inf:
            return drive(lifecycle(self, begin_leg(self, earlier, longest_pause)))
        self._cmdx_.plan = type(self)._cmdx_.plan  # it may have changed since
        return drive(lifecycle(self, self._cmdx_.start(self)))

    async def arun(
        self,
        *,
        earlier: Suspended | Mapping[str, Any] | None = None,
        longest_pause: float = math.inf,
    ) -> Result[V_co]:
        """
        Run this invocation, once, and await what has to be awaited.

        Args:
            earlier: As for ``run``.
            longest_pause: As for ``run``.
        """
        run = begin_leg(self, earlier, longest_pause, awaits=True)
        return await lifecycle(self, run)

    # -- the contract as data ---------------------------------------------------

    @classmethod
    def inputs_schema(cls) -> dict[str, Any]:
        """Describe the inputs as JSON Schema."""
        from cmdx.inputs.schema import inputs_schema

        return inputs_schema(Fields.of(cls))

    @classmethod
    def outputs_schema(cls) -> dict[str, Any]:
        """Describe the outputs as JSON Schema."""
        from cmdx.inputs.schema import outputs_schema

        return outputs_schema(Fields.of(cls))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Describe what callers may give as a JSON Schema 2020-12 document."""
        from cmdx.inputs.schema import DIALECT

        head = {"$schema": DIALECT, "title": cls.__name__}
        text = inspect.getdoc(cls) if vars(cls).get("__doc__") else None
        described = {"description": text} if text else {}
        return {**head, **described, **cls.inputs_schema()}


def reserved_names(cls: type[Task[Any]]) -> frozenset[str]:
    """Return the names that fields cannot have: those of the base classes of cmdx."""
    ours = (base for base in cls.__mro__[1:] if base.__module__.startswith("cmdx."))
    return frozenset(("work", "rollback")).union(*map(vars, ours))


def errors_of_inputs(task: Task[Any]) -> Errors:
    """Resolve the inputs of a task that will not run, and return what is wrong."""
    run: Run = task._cmdx_
    run.is_announced = False
    if run.plan.refusal is not None:
        run.plan.refusal(task)
    resolve(task, run.plan.inputs)
    return run.errors


def begin_leg(
    task: Task[Any],
    earlier: Suspended | Mapping[str, Any] | None,
    longest_pause: float,
    *,
    awaits: bool = False,
) -> Run:
    """Begin the one run of an invocation, or a further leg of an earlier one."""
    run: Run = task._cmdx_
    run.plan = type(task)._cmdx_.plan  # it may have changed since
    run.longest_pause = check_longest_pause("run()", longest_pause)
    suspended = None if earlier is None else check_earlier(earlier, type(task))
    run.start(task, awaits=awaits)
    if suspended is not None:
        resume(run, suspended)
    return run


def own_fault(cls: type[Task[Any]]) -> type[exceptions.Fault]:
    """Return the ``Fault`` in the body of a class, or make one."""
    bases = [base.Fault for base in cls.__bases__ if issubclass(base, Task)]
    if "Fault" in vars(cls):
        return check_fault(cls, vars(cls)["Fault"], bases)
    names = {
        "__doc__": f"A run of ``{cls.__qualname__}`` failed.",
        "__module__": cls.__module__,
        "__qualname__": f"{cls.__qualname__}.Fault",
    }
    return cast("type[exceptions.Fault]", type("Fault", tuple(bases), names))


def check_fault(
    cls: type[Task[Any]], fault: Any, bases: list[type[exceptions.Fault]]
) -> type[exceptions.Fault]:
    """Return *fault*; refuse one that ``except`` for a base would not catch."""
    if isinstance(fault, type) and all(issubclass(fault, base) for base in bases):
        return fault
    names = [
        "cmdx.Fault" if base is exceptions.Fault else base.__qualname__
        for base in bases
    ]
    message = (
        f"{cls.__qualname__}.Fault does not derive from {' and '.join(names)}, so "
        f"what catches the failures of its base classes would miss those of this one. "
        f"Write `class Fault({', '.join(names)})`."
    )
    raise DefinitionError(message)


Task._cmdx_ = Definition(Task)
