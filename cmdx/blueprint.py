"""
From what a class and its ancestors say to what will be done.

A ``Blueprint`` is everything that was declared, folded over the MRO: a value to print,
to compare and to build tools on. A ``Plan`` is the same made ready to run: tuples of
callables, gates compiled, and whether anything in it awaits. It is compiled when a
class is first used, because decorators come after the class statement.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypedDict, cast

import attrs

from cmdx.adhoc import RetryOptions
from cmdx.arity import accepted, awaits
from cmdx.callbacks import AFTER, BEFORE, Hook, compiled_hooks, hooks_of
from cmdx.declarations import declared
from cmdx.deprecation import LOUDNESS, Deprecation, compiled_deprecation
from cmdx.exceptions import (
    CallbackError,
    DefinitionError,
    MiddlewareError,
    did_you_mean,
)
from cmdx.gates import Ask, Gate, check_gates, compiled_gate
from cmdx.inputs import Fields
from cmdx.log import level_number
from cmdx.middleware import MiddlewareDeclaration, Wrapper
from cmdx.outputs import compiled_output
from cmdx.retry import Limits, RetryDeclaration, RetryPolicy, compiled_policy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cmdx.inputs import InputPlan
    from cmdx.invocation import Invocation
    from cmdx.task import Task


class Keywords(TypedDict, total=False):
    """The class keywords of a task."""

    tags: Sequence[str]
    log: bool
    log_level: int | str | None
    log_fields: Sequence[str]
    correlation_id: Callable[..., str] | None
    deprecated: Deprecation | None
    deprecated_if: Gate | None
    deprecated_unless: Gate | None
    retry: RetryOptions


NO_OPTIONS = RetryOptions()


@attrs.frozen
class Settings:
    """What the class keywords of a task and its ancestors come to."""

    tags: tuple[str, ...] = ()
    log: bool = True
    log_level: int | None = None
    log_fields: tuple[str, ...] = ()
    correlation_id: Callable[..., str] | None = None
    deprecated: Deprecation | None = None
    deprecated_if: Gate | None = None
    deprecated_unless: Gate | None = None
    retry: RetryOptions = NO_OPTIONS

    def extended(self, keywords: Keywords) -> Settings:
        """Return these settings with what a nearer class says."""
        changes: dict[str, Any] = dict(keywords)
        for name in ("tags", "log_fields"):
            if name in changes:
                united = dict.fromkeys((*getattr(self, name), *changes[name]))
                changes[name] = tuple(united)
        if "retry" in changes:
            changes["retry"] = changes["retry"].over(self.retry)
        return attrs.evolve(self, **changes)


def checked_keywords(cls: type, keywords: Keywords) -> Keywords:
    """Refuse class keywords that nobody knows, or of a wrong kind."""
    where = f"class {cls.__qualname__}"
    for name, value in keywords.items():
        if name not in CHECKS:
            message = (
                f"{where} has the unknown keyword {name!r}"
                f"{did_you_mean(name, CHECKS)} Known are {', '.join(CHECKS)}."
            )
            raise DefinitionError(message)
        fits, expected = CHECKS[name]
        if not fits(value):
            message = f"{where}: {name} must be {expected}, got {value!r}."
            raise DefinitionError(message)
    if "log_level" in keywords:
        keywords["log_level"] = level_number(keywords["log_level"])
    for name in ("tags", "log_fields"):
        if name in keywords:  # a copy: the caller may change his list
            cast("dict[str, Any]", keywords)[name] = tuple(keywords[name])  # type: ignore[literal-required]
    gates: dict[str, Any] = dict(keywords)
    gates = {name: gates.get(name) for name in ("deprecated_if", "deprecated_unless")}
    check_gates(where, offered=1, **gates)
    return keywords


def _are_texts(value: Any) -> bool:
    if not isinstance(value, list | tuple | set | frozenset):
        return False
    return all(isinstance(each, str) for each in value)


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tags": (_are_texts, "a sequence of texts"),
    "log": (lambda value: isinstance(value, bool), "True or False"),
    "log_level": (
        lambda value: value is None or level_number(value) is not None,
        'a level such as "info" or logging.INFO',
    ),
    "log_fields": (_are_texts, "a sequence of texts"),
    "correlation_id": (lambda value: value is None or callable(value), "a callable"),
    "deprecated": (
        lambda value: value in (None, *LOUDNESS) or callable(value),
        f"{', '.join(map(repr, LOUDNESS))} or a callable",
    ),
    "deprecated_if": (lambda _: True, "a gate"),
    "deprecated_unless": (lambda _: True, "a gate"),
    "retry": (lambda value: isinstance(value, RetryOptions), "RetryOptions(...)"),
}


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
        middlewares: list[MiddlewareDeclaration] = []
        for each in reversed(task.__mro__):
            settings = settings.extended(vars(each).get("_keywords_", {}))
            own = vars(each).get("_declarations_", ())
            # The decorator written last is the outermost one.
            middlewares += [
                d for d in reversed(own) if isinstance(d, MiddlewareDeclaration)
            ]
        policy = RetryPolicy.folded(declared(task, RetryDeclaration))
        fields, hooks = Fields.of(task), hooks_of(task)
        return cls(task, settings, fields, hooks, tuple(middlewares), policy)


class Plan:
    """What will be done when a task runs."""

    def __init__(self, blueprint: Blueprint) -> None:
        task, hooks = blueprint.task, blueprint.hooks
        self.settings = blueprint.settings
        self.log = self.settings.log
        # What goes in and out.
        self.fields = blueprint.fields
        self.inputs = _compiled_inputs(task, self.fields)
        outputs = self.fields.outputs.values()
        self.outputs = tuple(compiled_output(task, each) for each in outputs)
        self.keywords = _keywords(self.inputs)
        # What happens around work.
        self.retry = compiled_policy(task, blueprint.retry_policy)
        self.limits = Limits.of(blueprint.retry_policy)
        self.before = compiled_hooks(task, hooks, *BEFORE)
        self.after = {
            status: compiled_hooks(task, hooks, *events)
            for status, events in AFTER.items()
        }
        self.around = _compiled_around(task, hooks)
        self.middlewares = _compiled_middlewares(task, blueprint.middlewares)
        self.deprecation = _compiled_deprecation(task, self.settings)
        self.correlation_id = self._correlation_id()
        self.rolls_back = callable(getattr(task, "rollback", None))
        # Of workflows: the gates of their groups, and what is done after the steps.
        self.gates: dict[int, Ask | None] = {}
        self.settle: Callable[..., Awaitable[None]] | None = None
        # Which way through the lifecycle is the shortest.
        self.awaits = self._awaits(blueprint)
        self.wrapped = bool(self.middlewares or self.correlation_id)
        after = any(self.after.values())
        self.hooked = bool(self.before or self.around or after or self.deprecation)
        self.fielded = bool(self.inputs or self.outputs or self.rolls_back)

    def _correlation_id(self) -> Callable[[Invocation], str] | None:
        call = self.settings.correlation_id
        if call is None or accepted(call, 1):
            return call
        return lambda _: call()

    def _awaits(self, blueprint: Blueprint) -> bool:
        task = blueprint.task
        hooks = (hook.function for hook in blueprint.hooks.values())
        wrappers = (wrapper.call for wrapper in self.middlewares)
        methods = (getattr(task, name, None) for name in ("work", "rollback"))
        calls = (call for call in (*methods, *hooks, *wrappers) if call is not None)
        parts = (part._plan_.awaits for part in task._parts_())
        return any(parts) or any(map(awaits, calls))


def _compiled_inputs(task: type[Task[Any]], fields: Fields) -> tuple[InputPlan, ...]:
    if not fields.inputs:
        return ()
    from cmdx.resolving import compiled_input

    return tuple(compiled_input(task, each) for each in fields.inputs.values())


def _keywords(inputs: tuple[InputPlan, ...]) -> frozenset[str] | None:
    """Return the keywords callers may give; None stands for any."""
    if not inputs:
        return None
    # An input with a source has a key that nobody can give.
    return frozenset(each.key for each in inputs if each.key == each.shown)


def _compiled_around(
    task: type[Task[Any]], hooks: dict[str, Hook]
) -> tuple[Wrapper, ...]:
    return tuple(
        Wrapper(name, methodcaller(name), gate, CallbackError)
        for name, gate, _ in compiled_hooks(task, hooks, "around_execution")
    )


def _compiled_middlewares(
    task: type[Task[Any]], declarations: tuple[MiddlewareDeclaration, ...]
) -> tuple[Wrapper, ...]:
    return tuple(
        Wrapper(
            getattr(call, "__qualname__", repr(call)),
            call,
            compiled_gate("@middleware", task, declaration.if_, declaration.unless),
            MiddlewareError,
        )
        for declaration in declarations
        for call in declaration.calls
    )


def _compiled_deprecation(
    task: type[Task[Any]], settings: Settings
) -> Callable[[Invocation], None] | None:
    gate = compiled_gate(
        f"class {task.__qualname__}",
        task,
        settings.deprecated_if,
        settings.deprecated_unless,
    )
    return compiled_deprecation(settings.deprecated, gate)
