"""
The eleven decorators that hook a method into the lifecycle.

    before_execution  before_validation  around_execution  after_execution
    on_complete  on_interrupted  on_success  on_skipped  on_failed  on_ok  on_ko

Hooks of ancestors run first, then in the order they are defined.
An override keeps the hook, and ``name = None`` removes it.
A hook that runs after ``work`` may take the outcome as a second argument, a static or
class method as its only one.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import attrs

from cmdx.declare.checks import check_names
from cmdx.declare.gates import GATE_WORDS, Ask, Gate, check_gates, compile_gate
from cmdx.declare.signatures import positional_count
from cmdx.exceptions import DefinitionError
from cmdx.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cmdx.task import Task

F = TypeVar("F", bound="Callable[..., Any]")

EVENTS = (
    "before_execution", "before_validation", "around_execution", "after_execution",
    "on_complete", "on_interrupted", "on_success", "on_skipped", "on_failed",
    "on_ok", "on_ko",
)  # fmt: skip
"""All events, in the order they happen."""

BEFORE = ("before_execution", "before_validation")

AFTER = {
    Status.SUCCESS: ("after_execution", "on_complete", "on_success", "on_ok"),
    Status.SKIPPED: (
        "after_execution",
        "on_interrupted",
        "on_skipped",
        "on_ok",
        "on_ko",
    ),
    Status.FAILED: ("after_execution", "on_interrupted", "on_failed", "on_ko"),
}
"""The events after each outcome, in the order they happen."""


@attrs.frozen
class Occasion:
    """When a hook is to run."""

    event: str
    if_: Gate | None = None
    unless: Gate | None = None


@attrs.frozen
class Hook:
    """A function and the occasions it is hooked into; behaves as the function does."""

    function: Callable[..., Any]
    occasions: tuple[Occasion, ...]

    @property
    def method(self) -> Any:
        """What stands in the class: the function, or what binds another callable."""
        return self.function if hasattr(self.function, "__get__") else self

    @property
    def takes_task(self) -> bool:
        """Whether the function is called with the task; a bound method is not."""
        return not isinstance(self.function, staticmethod | MethodType)

    def __get__(self, task: object, cls: type | None = None) -> Any:
        """Bind as the function alone would."""
        bind = getattr(self.function, "__get__", None)
        if bind is not None:
            return bind(task, cls)
        # A callable object or a partial, which has the task as its first argument.
        return self.function if task is None else MethodType(self.function, task)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


class HookCall(NamedTuple):
    """A hook made ready for one class."""

    name: str
    gate: Ask | None
    takes_outcome: bool


HOOK_OPTIONS = """

Used bare or with gates: ``@on_failed``, ``@on_failed(if_="is_live")``.

Args:
    if_: Whether to run in this case: True, False, the name of a method, or a callable
        of the task.
    unless: Whether not to run in this case, in the same forms; asked after *if_*.
"""


class Decorator:
    """Hooks a function into one event, bare or with gates."""

    def __init__(self, event: str, summary: str) -> None:
        self.event = event
        self.__doc__ = summary + HOOK_OPTIONS

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(
        self, *, if_: Gate | None = None, unless: Gate | None = None
    ) -> Callable[[F], F]: ...
    def __call__(  # type: ignore[misc]  # mypy sees F and no default in overload 2
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        if_: Gate | None = None,
        unless: Gate | None = None,
        **unknown: Any,
    ) -> Any:
        """Hook *function*, or return a decorator that does."""
        check_names(self.event, unknown, ("if_", "unless"), GATE_WORDS)
        check_gates(self.event, if_=if_, unless=unless)
        occasion = Occasion(self.event, if_, unless)
        if function is None:
            return lambda function: self.hook(function, occasion)
        return self.hook(function, occasion)

    def hook(self, function: Any, occasion: Occasion) -> Hook:
        """Return *function* hooked into *occasion*."""
        if isinstance(function, Hook):
            return Hook(function.function, (*function.occasions, occasion))
        if not callable(function) or isinstance(function, type):
            message = (
                f"@{self.event} decorates methods, got {function!r}. "
                "Put it above a `def`, or pass it a function."
            )
            raise DefinitionError(message)
        return Hook(function, (occasion,))

    def __repr__(self) -> str:
        """Show the name."""
        return f"<decorator {self.event}>"


before_execution = Decorator(
    "before_execution",
    "Run first, inside the middlewares; inputs do not have values yet.",
)
before_validation = Decorator(
    "before_validation",
    "Run before inputs are resolved, after all ``before_execution`` hooks.",
)
around_execution = Decorator(
    "around_execution",
    "Run around inputs, work, outputs and rollback: a generator with one yield.",
)
after_execution = Decorator("after_execution", "Run after every outcome.")
on_complete = Decorator("on_complete", "Run when the task completed its work.")
on_interrupted = Decorator("on_interrupted", "Run when the task was skipped or failed.")
on_success = Decorator("on_success", "Run when the task succeeded.")
on_skipped = Decorator("on_skipped", "Run when the task was skipped.")
on_failed = Decorator("on_failed", "Run when the task failed.")
on_ok = Decorator("on_ok", "Run when the task succeeded or was skipped.")
on_ko = Decorator("on_ko", "Run when the task was skipped or failed.")


def collect_hooks(cls: type[Task[Any]]) -> dict[str, Hook | None]:
    """
    Return the hooks in the body of *cls*, None for those it removes.

    They are collected once, and the class keeps the plain functions: so methods bind
    as usual, and a test may replace one by a mock.
    """
    hooks = own_hooks(cls, fold_hooks(cls.__mro__[1:]))
    for name, hook in hooks.items():
        if isinstance(vars(cls)[name], Hook) and hook is not None:
            setattr(cls, name, hook.method)
    return hooks


def hooks_of(cls: type[Task[Any]]) -> dict[str, Hook]:
    """Return the hooks of *cls* by method name, those of ancestors first."""
    return fold_hooks(cls.__mro__)


def fold_hooks(classes: Sequence[type]) -> dict[str, Hook]:
    """Return the hooks of *classes*, which are in the order of an MRO."""
    hooks: dict[str, Hook] = {}
    for cls in reversed(classes):
        definition = vars(cls).get("_cmdx_")
        own = own_hooks(cls, hooks) if definition is None else definition.hooks
        both = {**hooks, **own}
        hooks = {name: hook for name, hook in both.items() if hook is not None}
    return hooks


def own_hooks(cls: Any, inherited: dict[str, Hook]) -> dict[str, Hook | None]:
    """Return the hooks that *cls* defines, and those it overrides or removes."""
    hooks: dict[str, Hook | None] = {}
    for name, attribute in vars(cls).items():
        if isinstance(attribute, Hook):
            hooks[name] = attribute
        elif name in inherited:
            hooks[name] = override_hook(cls, name, inherited[name])
    return hooks


def override_hook(cls: type[Task[Any]], name: str, inherited: Hook) -> Hook | None:
    """Return *inherited* with the function of *cls*; None if *cls* removes it."""
    attribute = getattr(cls, name)
    if attribute is None:
        return None
    if not callable(attribute):
        message = (
            f"{cls.__qualname__}.{name} overrides a hook and must be "
            f"callable, got {attribute!r}. To remove the hook, set {name} = None."
        )
        raise DefinitionError(message)
    own = vars(cls)[name]
    function = own if isinstance(own, staticmethod) else attribute
    return Hook(function, inherited.occasions)


def compile_hooks(
    cls: type[Task[Any]], hooks: dict[str, Hook], *events: str
) -> tuple[HookCall, ...]:
    """Make ready what is hooked into *events*, one event after the other."""
    return tuple(
        compile_hook(cls, name, hook, occasion)
        for event in events
        for name, hook in hooks.items()
        for occasion in hook.occasions
        if occasion.event == event
    )


def compile_completion_hooks(
    cls: type[Task[Any]], hooks: dict[str, Hook]
) -> dict[Status, tuple[HookCall, ...]]:
    """Make ready what is hooked into each status; an empty dict if there is nothing."""
    after = {
        status: compile_hooks(cls, hooks, *events) for status, events in AFTER.items()
    }
    return after if any(after.values()) else {}


def compile_hook(
    cls: type[Task[Any]], name: str, hook: Hook, occasion: Occasion
) -> HookCall:
    """Make a hook ready for one occasion."""
    where = f"@{occasion.event} {cls.__qualname__}.{name}"
    told = 0 if occasion.event in (*BEFORE, "around_execution") else 1
    try:
        taken = positional_count(hook.function, told, has_self=hook.takes_task)
    except TypeError as error:
        message = (
            f"{where} {error}. A hook takes self, unless it is a static or class "
            "method; one that runs after work may also take the outcome."
        )
        raise DefinitionError(message) from None
    gate = compile_gate(where, cls, occasion.if_, occasion.unless)
    return HookCall(name, gate, takes_outcome=taken > 0)
