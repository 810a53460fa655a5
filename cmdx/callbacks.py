"""
The eleven decorators that hook a method into the lifecycle.

    before_execution  before_validation  around_execution  after_execution
    on_complete  on_interrupted  on_success  on_skipped  on_failed  on_ok  on_ko

Hooks of ancestors run first, then in the order they are defined.
An override keeps the hook, and ``name = None`` removes it.
A hook that runs after ``work`` may take the outcome as a second argument.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import attrs

from cmdx.arity import accepted
from cmdx.exceptions import DefinitionError
from cmdx.gates import Ask, Gate, check_gates, compiled_gate
from cmdx.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cmdx.task import Task

F = TypeVar("F", bound="Callable[..., Any]")

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


class Hooked(NamedTuple):
    """A hook made ready for one class."""

    name: str
    gate: Ask | None
    takes_outcome: bool


class Decorator:
    """Hooks a function into one event, bare or with gates."""

    def __init__(self, event: str, summary: str) -> None:
        self.event = event
        self.__doc__ = summary

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
    ) -> Any:
        """Hook *function*, or return a decorator that does."""
        check_gates(self.event, offered=1, if_=if_, unless=unless)
        occasion = Occasion(self.event, if_, unless)
        if function is None:
            return lambda decorated: self._hooked(decorated, occasion)
        return self._hooked(function, occasion)

    def _hooked(self, function: Any, occasion: Occasion) -> Hook:
        if isinstance(function, Hook):
            return Hook(function.function, (*function.occasions, occasion))
        if not callable(function):
            message = (
                f"@{self.event} hooks a method, got {function!r}. "
                f"Put it above a `def`, or give it a function."
            )
            raise DefinitionError(message)
        return Hook(function, (occasion,))

    def __repr__(self) -> str:
        """Show the name."""
        return f"<decorator {self.event}>"


before_execution = Decorator("before_execution", "Run first of all.")
before_validation = Decorator("before_validation", "Run before inputs are resolved.")
around_execution = Decorator(
    "around_execution",
    "Run around inputs, work and outputs: a generator with one yield.",
)
after_execution = Decorator(
    "after_execution", "Run after the work, whatever came of it."
)
on_complete = Decorator("on_complete", "Run when the task came to its end.")
on_interrupted = Decorator("on_interrupted", "Run when the task was skipped or failed.")
on_success = Decorator("on_success", "Run when the task succeeded.")
on_skipped = Decorator("on_skipped", "Run when the task was skipped.")
on_failed = Decorator("on_failed", "Run when the task failed.")
on_ok = Decorator("on_ok", "Run when the task succeeded or was skipped.")
on_ko = Decorator("on_ko", "Run when the task was skipped or failed.")


def collect_hooks(cls: type[Task[Any]]) -> None:
    """
    Note the hooks in the body of *cls*, None for those it removes.

    They are noted once, so that a test may put a mock in the place of a method later.
    """
    cls._hooks_ = _own_hooks(cls, _folded(cls.__mro__[1:]))


def _overridden(cls: type[Task[Any]], name: str, inherited: Hook) -> Hook | None:
    attribute = getattr(cls, name)
    if attribute is None:
        return None
    if not callable(attribute):
        message = (
            f"{cls.__qualname__}.{name} overrides a hook and must be "
            f"callable, got {attribute!r}. To remove it, set {name} = None."
        )
        raise DefinitionError(message)
    return Hook(attribute, inherited.occasions)


def hooks_of(cls: type[Task[Any]]) -> dict[str, Hook]:
    """Return the hooks of *cls* by method name, those of ancestors first."""
    return _folded(cls.__mro__)


def _folded(classes: Sequence[type]) -> dict[str, Hook]:
    hooks: dict[str, Hook] = {}
    for each in reversed(classes):
        noted = vars(each).get("_hooks_")
        own = _own_hooks(each, hooks) if noted is None else noted
        both = {**hooks, **own}
        hooks = {name: hook for name, hook in both.items() if hook is not None}
    return hooks


def _own_hooks(cls: Any, inherited: dict[str, Hook]) -> dict[str, Hook | None]:
    hooks: dict[str, Hook | None] = {}
    for name, attribute in vars(cls).items():
        if isinstance(attribute, Hook):
            hooks[name] = attribute
        elif name in inherited:
            hooks[name] = _overridden(cls, name, inherited[name])
    return hooks


def compiled_hooks(
    cls: type[Task[Any]], hooks: dict[str, Hook], *events: str
) -> tuple[Hooked, ...]:
    """Make ready what is hooked into *events*, one event after the other."""
    return tuple(
        _compiled(cls, name, hook, occasion)
        for event in events
        for name, hook in hooks.items()
        for occasion in hook.occasions
        if occasion.event == event
    )


def _compiled(
    cls: type[Task[Any]], name: str, hook: Hook, occasion: Occasion
) -> Hooked:
    where = f"@{occasion.event} {cls.__qualname__}.{name}"
    offered = 1 if occasion.event in (*BEFORE, "around_execution") else 2
    try:
        taken = accepted(hook.function, offered)
    except TypeError as error:
        message = f"{where} {error}. A hook takes self, and after work the outcome too."
        raise DefinitionError(message) from None
    gate = compiled_gate(where, cls, occasion.if_, occasion.unless)
    return Hooked(name, gate, takes_outcome=taken > 1)
