"""
What a class says about running at most once: ``@operation``.

The policy is read when an operation is admitted and stored with it. It governs that
operation from then on, whatever the class says later.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    get_args,
    get_origin,
)
from weakref import WeakSet

import attrs

from cmdx.declare.checks import check_kinds, check_names, check_seconds
from cmdx.declare.decorators import declarations, declare
from cmdx.declare.signatures import positional_count
from cmdx.exceptions import DefinitionError
from cmdx.inputs.annotations import union_members
from cmdx.wire.invocations import STREAM_TYPES, is_stream
from cmdx.wire.names import name_and_module, task_name
from cmdx.wire.values import unstorable_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Never, Unpack

    from cmdx import Task
    from cmdx.declare.blueprint import Plan

T = TypeVar("T", bound=type)

Seal: TypeAlias = Literal["all", "decided"]

LONGEST_KEEP = 30 * 86_400.0
"""The longest time that an outcome is kept: 30 days, in seconds."""


class OperationKeywords(TypedDict, total=False):
    """The options of ``operation``."""

    persist: bool
    idempotent: bool
    keep: float
    seal: Seal


@attrs.frozen
class OperationPolicy:
    """What was declared about running at most once, inherited declarations included."""

    persist: bool = False
    """Whether an operation outlives its process."""
    idempotent: bool = False
    """Whether ``work`` may run again if nobody knows how far it came."""
    keep: float = 86_400.0
    """The seconds that the outcome is kept."""
    seal: Seal = "all"
    """Which outcomes are recorded for good."""

    @classmethod
    def of(cls, task: type[Task[Any]]) -> OperationPolicy:
        """Fold the declarations of *task* over its MRO; the nearest class wins."""
        policy = cls()
        for declaration in declarations(task, OperationDeclaration):
            policy = attrs.evolve(policy, **declaration.options)
        if policy.persist:
            refuse_streams(task)
        check_recover(task)
        return policy


@attrs.frozen
class OperationPlan:
    """What a ledger has to know about a class, read once."""

    name: str
    module: str
    policy: OperationPolicy
    has_streams: bool
    can_recover: bool

    @classmethod
    def of(cls, task: type[Task[Any]]) -> OperationPlan:
        """Return the plan of *task*; there is a new one if a decorator changes it."""
        plan: Plan = task._cmdx_.plan
        return plan.derive(cls.compile)

    @classmethod
    def compile(cls, plan: Plan) -> OperationPlan:
        """Read the declarations of a task."""
        task = plan.task
        return cls(
            name=task_name(task),
            module=name_and_module(task)[1],
            policy=OperationPolicy.of(task),
            has_streams=bool(streams_of(task)),
            can_recover=callable(getattr(task, "recover", None)),
        )


warned_about: WeakSet[type] = WeakSet()


@attrs.frozen
class OperationDeclaration:
    """What one ``@operation`` line said."""

    options: OperationKeywords


def operation(
    *misplaced: Never, **keywords: Unpack[OperationKeywords]
) -> Callable[[T], T]:
    """
    Say how the decorated task runs through a ``Ledger``.

    Without a ledger it runs as every task does. Subclasses inherit the options, and
    may change them one by one; None leaves an option as it is.

    Example::

        @operation(persist=True)
        class ChargeCard(Task[Receipt]): ...

    Args:
        persist: Whether the operation outlives its process: it is on disk before
            ``work`` begins, and its outcome before anybody is told. Cancelling does not
            stop it. False by default.
        idempotent: Whether ``work`` may run again if nobody knows how far it came.
            False by default.
        keep: The seconds that the outcome is kept; at most 30 days, one day by default.
        seal: Which outcomes are recorded for good: ``"all"``, the default, or
            ``"decided"``, which leaves out exceptions that ``work`` raised.
    """
    if misplaced:
        message = (
            "operation takes keywords only: write @operation(persist=True), or "
            "@operation() for the defaults, with parentheses."
        )
        raise DefinitionError(message)
    options = {name: value for name, value in keywords.items() if value is not None}
    known = OperationKeywords.__annotations__
    check_names("operation", keywords, known, {"idem": "use `idempotent`"})
    check_kinds("operation", options, KINDS)
    if "keep" in options:
        options["keep"] = check_keep(options["keep"])
    declaration = OperationDeclaration(OperationKeywords(**options))  # type: ignore[typeddict-item]

    def decorate(cls: T) -> T:
        declare(cls, declaration, by="operation")
        OperationPolicy.of(cls)  # refuses what cannot work
        warn_about_value(cls)
        return cls

    return decorate


KINDS = {
    "persist": (lambda value: isinstance(value, bool), "True or False"),
    "idempotent": (lambda value: isinstance(value, bool), "True or False"),
    "seal": (lambda value: value in ("all", "decided"), '"all" or "decided"'),
}


def check_keep(seconds: object) -> float:
    """Return the seconds to keep an outcome; refuse more than 30 days."""
    number = check_seconds("operation", "keep", seconds, above_zero=True)
    if number > LONGEST_KEEP:
        message = (
            f"operation: keep cannot exceed {LONGEST_KEEP:.0f} seconds (30 days), "
            f"got {seconds!r}. Store what is needed for longer in your own tables."
        )
        raise DefinitionError(message)
    return number


def refuse_streams(task: type[Task[Any]]) -> None:
    """Refuse a task that must outlive its process but is given a stream."""
    for declared in task._cmdx_.plan.fields.inputs.values():
        if not contains_stream(declared.annotation):
            continue
        verb = "is" if is_stream(declared) else "contains"
        message = (
            f"{task.__qualname__}.{declared.name} {verb} a stream, which ends with its "
            "process, so the operation cannot persist. Take the data or where it is "
            "stored, or declare @operation(persist=False)."
        )
        raise DefinitionError(message)


def contains_stream(annotation: Any) -> bool:
    """
    Tell whether a value is read once, or is a container of such values.

    The fields of classes are not looked at: theirs may be None in each instance.
    """
    seen: list[Any] = []  # a type alias may contain itself
    unseen = [annotation]
    while unseen:
        for found in union_members(unseen.pop()):
            kind = get_origin(found) or found
            if any(found is known for known in seen) or not isinstance(kind, type):
                continue
            seen.append(found)
            if issubclass(kind, STREAM_TYPES):
                return True
            if issubclass(kind, Collection):
                unseen += get_args(found)
    return False


def check_recover(task: type[Task[Any]]) -> None:
    """Refuse a ``recover`` that cannot be called when it is needed."""
    method = getattr(task, "recover", None)
    if not callable(method):
        return
    try:
        positional_count(method, 0, has_self=True)
    except TypeError as error:
        message = (
            f"{task.__qualname__}.recover {error}. It is called without arguments, and "
            "finds the inputs on self."
        )
        raise DefinitionError(message) from None


def warn_about_value(task: type[Task[Any]]) -> None:
    """Warn if the value of *task* is lost to everybody but its owner."""
    kind = unstorable_value(task)
    if kind is not None and task not in warned_about:
        warned_about.add(task)
        message = (
            f"{task.__qualname__} returns {kind.__qualname__}, which cannot be stored: "
            "only the caller that runs it will have the value. Return plain data, or "
            f"register it with cmdx.wire.encodings.register({kind.__name__}, ...)."
        )
        warnings.warn(message, stacklevel=3)


def streams_of(task: type[Task[Any]]) -> list[str]:
    """Return the names of the inputs of *task* that are read once."""
    inputs = task._cmdx_.plan.fields.inputs.values()
    return [declared.name for declared in inputs if is_stream(declared)]
