"""
``Task``: what people subclass.

Annotations say what it takes, methods what it does, method decorators when, class
decorators how it is run, and class keywords what it is.
"""

from __future__ import annotations

import inspect
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
from cmdx.blueprint import Blueprint, Plan, checked_keywords
from cmdx.callbacks import collect_hooks
from cmdx.declarations import LAZY_PLAN
from cmdx.exceptions import AsyncTaskError, DefinitionError, ImplementationError
from cmdx.inputs import Fields, collect_fields, optional, private, required
from cmdx.invocation import Invocation
from cmdx.lifecycle import drive, lifecycle
from cmdx.outputs import output
from cmdx.registry import Registry
from cmdx.retriers import retriers as global_retriers
from cmdx.working import asleep, sleep

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from cmdx.blueprint import Keywords
    from cmdx.invocation import Source
    from cmdx.result import Result
    from cmdx.retriers import Retrier
    from cmdx.retry import RetryPolicy

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
        """Learn the name, and whose registry is the global one."""
        self.owner, self.name = owner, name

    def __get__(self, task: object, cls: type[Task[Any]]) -> Registry[E]:
        """Make the registry of *cls* when it is first asked for."""
        if cls is self.owner:
            return self.everyone
        registries = vars(cls).get("_registries_")
        if registries is None:
            registries = cls._registries_ = {}
        if self.name not in registries:
            bases: list[Any] = [
                base for base in cls.__mro__[1:] if issubclass(base, self.owner)
            ]
            ancestors = [self.__get__(None, base) for base in bases]
            registries[self.name] = Registry(self.everyone.kind, ancestors)
        return registries[self.name]  # type: ignore[no-any-return]


class ClassPolicy:
    """The effective retry policy of a class."""

    def __get__(self, task: object, cls: type[Task[Any]]) -> RetryPolicy:
        """Fold the declarations of *cls* and its ancestors."""
        return Blueprint.of(cls).retry_policy


@dataclass_transform(
    kw_only_default=True,
    eq_default=False,
    field_specifiers=(required, optional, output, private),
)
class Task(Invocation, Generic[V_co]):
    """
    A piece of business logic; each instance runs once and comes to a ``Result``.

    Derive from it and define ``work``. Names like ``_this_`` belong to the library.
    """

    Fault: ClassVar[type[exceptions.Fault]] = exceptions.Fault
    retriers: ClassVar[ClassRegistry[Retrier]] = ClassRegistry(global_retriers)
    retry_policy: ClassVar[ClassPolicy] = ClassPolicy()

    _plan_: ClassVar[Plan] = LAZY_PLAN  # type: ignore[assignment]
    _registries_: ClassVar[dict[str, Any]] = {}
    _declarations_: ClassVar[tuple[object, ...]] = ()
    _keywords_: ClassVar[Keywords] = {}
    _hooks_: ClassVar[dict[str, Any]] = {}
    _fields_: ClassVar[dict[str, Any]] = {}
    _annotations_: ClassVar[dict[str, Any]] = {}

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
        cls._keywords_ = checked_keywords(cls, keywords)
        cls._plan_ = LAZY_PLAN  # type: ignore[assignment]
        cls.Fault = _own_fault(cls)
        collect_hooks(cls)
        collect_fields(cls, RESERVED)

    def __init__(self, source: Source | None = None, /, **inputs: Any) -> None:
        self._hold_(self._plan_, source, inputs)
        self.__dict__.update(MISTAKEN_CALLS)

    # -- running ----------------------------------------------------------------

    @overload
    @classmethod  # pyright: ignore[reportArgumentType]
    def execute(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    def execute(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod  # type: ignore[misc]  # the keywords are those of P
    def execute(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Run the task and return its result; never raises because the task failed."""
        task, plan = new(cls), cls._plan_
        if source is None and plan.keywords is None:
            task._given_ = inputs
        else:
            task._hold_(plan, source, inputs)
        if plan.awaits:
            raise AsyncTaskError(cls)
        ended: list[Any] = []
        drive(lifecycle(task, plan, sleep, ended))
        return ended.pop()

    @overload
    @classmethod  # pyright: ignore[reportArgumentType]
    def execute_or_raise(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    def execute_or_raise(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod  # type: ignore[misc]  # the keywords are those of P
    def execute_or_raise(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """
        Run the task and return its result, or raise if it failed.

        Raises the very exception that ``work`` raised, otherwise a ``Fault``,
        after the whole lifecycle is done.
        """
        task, plan = new(cls), cls._plan_
        task._hold_(plan, source, inputs)
        task._strict_ = True
        if plan.awaits:
            raise AsyncTaskError(cls)
        ended: list[Any] = []
        drive(lifecycle(task, plan, sleep, ended))
        return ended.pop().or_raise()

    @overload
    @classmethod  # pyright: ignore[reportArgumentType]
    async def aexecute(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    async def aexecute(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod  # type: ignore[misc]  # the keywords are those of P
    async def aexecute(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Run the task, awaiting what is to be awaited, and return its result."""
        task, plan = new(cls), cls._plan_
        if source is None and plan.keywords is None:
            task._given_ = inputs
        else:
            task._hold_(plan, source, inputs)
        task._awaits_ = True
        ended: list[Any] = []
        await lifecycle(task, plan, asleep, ended)
        return ended.pop()

    @overload
    @classmethod  # pyright: ignore[reportArgumentType]
    async def aexecute_or_raise(
        cls: Callable[P, Task[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Result[V]: ...
    @overload
    @classmethod
    async def aexecute_or_raise(cls: type[Task[V]], source: Source, /) -> Result[V]: ...
    @classmethod  # type: ignore[misc]  # the keywords are those of P
    async def aexecute_or_raise(cls, source: Any = None, /, **inputs: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Run the task as ``aexecute`` does, and raise as ``execute_or_raise`` does."""
        task, plan = new(cls), cls._plan_
        task._hold_(plan, source, inputs)
        task._strict_ = task._awaits_ = True
        ended: list[Any] = []
        await lifecycle(task, plan, asleep, ended)
        return ended.pop().or_raise()

    def run(self) -> Result[V_co]:
        """Run this invocation, once."""
        if self._plan_.awaits:
            raise AsyncTaskError(type(self))
        self._claim_()
        ended: list[Any] = []
        drive(lifecycle(self, self._plan_, sleep, ended))
        return cast("Result[V_co]", ended.pop())

    async def arun(self) -> Result[V_co]:
        """Run this invocation, once, awaiting what is to be awaited."""
        self._claim_()
        self._awaits_ = True
        ended: list[Any] = []
        await lifecycle(self, self._plan_, asleep, ended)
        return cast("Result[V_co]", ended.pop())

    # -- the contract as data ---------------------------------------------------

    @classmethod
    def inputs_schema(cls) -> dict[str, Any]:
        """Describe the inputs as JSON Schema."""
        from cmdx.schema import inputs_schema

        return inputs_schema(Fields.of(cls))

    @classmethod
    def outputs_schema(cls) -> dict[str, Any]:
        """Describe the outputs as JSON Schema."""
        from cmdx.schema import outputs_schema

        return outputs_schema(Fields.of(cls))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Describe what callers may give as a JSON Schema 2020-12 document."""
        from cmdx.schema import DIALECT

        head = {"$schema": DIALECT, "title": cls.__name__}
        text = inspect.getdoc(cls) if vars(cls).get("__doc__") else None
        described = {"description": text} if text else {}
        return {**head, **described, **cls.inputs_schema()}

    @classmethod
    def _parts_(cls) -> tuple[type[Task[Any]], ...]:
        """Return the tasks that this one is made of."""
        return ()

    @classmethod
    def _compiled_(cls) -> Plan:
        if not callable(getattr(cls, "work", None)):
            raise ImplementationError(cls)
        return Plan(Blueprint.of(cls))


def _own_fault(cls: type[Task[Any]]) -> type[exceptions.Fault]:
    """Make the ``Fault`` of a class, derived from those of its bases."""
    bases = [base.Fault for base in cls.__bases__ if issubclass(base, Task)]
    names = {
        "__doc__": f"A run of ``{cls.__qualname__}`` failed.",
        "__module__": cls.__module__,
        "__qualname__": f"{cls.__qualname__}.Fault",
    }
    return cast("type[exceptions.Fault]", type("Fault", tuple(bases), names))


RESERVED = frozenset(dir(Task)) | {"work", "rollback"}


def _mistaken(name: str, cure: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        message = (
            f"{name} is called on the class, and makes the invocation itself. "
            f"This one holds its inputs already: run it with {cure}."
        )
        raise TypeError(message)

    return refuse


MISTAKEN_CALLS = {
    "execute": _mistaken("execute", ".run()"),
    "execute_or_raise": _mistaken("execute_or_raise", ".run().or_raise()"),
    "aexecute": _mistaken("aexecute", "await .arun()"),
    "aexecute_or_raise": _mistaken("aexecute_or_raise", "(await .arun()).or_raise()"),
}
