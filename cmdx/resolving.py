"""
From a declared input to what is done with its value.

Each input becomes an ``InputPlan``: one callable that coerces, transforms and
validates, and one that deals with what was not given. This room knows all coercions,
so it is imported when the first task with inputs is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from cmdx.arity import accepted, awaits
from cmdx.coercion import (
    DATED,
    Unknown,
    admits_none,
    as_is,
    by_callable,
    coercer,
    constrained,
    constraints_in,
    described,
    to_formatted,
    unwrapped,
)
from cmdx.context import MISSING
from cmdx.exceptions import DefinitionError
from cmdx.gates import compiled_gate
from cmdx.inputs import InputPlan, NotThereYet, NotYet
from cmdx.validation import VALIDATORS, Invalid, check_all
from cmdx.validation import by_callable as validator

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.coercion import Coercer
    from cmdx.inputs import Input
    from cmdx.invocation import Invocation
    from cmdx.task import Task
    from cmdx.validation import Check


def compiled_input(cls: type[Task[Any]], declared: Input) -> InputPlan:
    """Make *declared* ready; refuse what cannot work."""
    where = f"{cls.__qualname__}.{declared.name}"
    convert = _pipeline(where, declared)
    source = _sourced(cls, where, declared)
    # No caller has this key, so a sourced input always takes the longer way.
    key = declared.key if source is None else object()
    absent = _absence(cls, where, declared, convert, source)
    return InputPlan(declared.name, declared.key, key, convert, absent)


def _pipeline(where: str, declared: Input) -> Coercer:
    """Return coerce, transform and validate as one callable."""
    options = declared.field.options
    coerce = _coercion(where, declared)
    transform = options.get("transform")
    validate = options.get("validate", ())
    checks: list[Check] = [
        *(
            VALIDATORS[name](value)
            for name, value in options.items()
            if name in VALIDATORS
        ),
        *map(validator, (validate,) if callable(validate) else validate),
    ]
    if transform is None and not checks:
        return coerce

    def convert(value: Any) -> Any:
        made = coerce(value)
        if transform is not None:
            made = transform(made)
        check_all(checks, made)
        return made

    return convert


def _coercion(where: str, declared: Input) -> Coercer:
    options = declared.field.options
    annotation, coerce = declared.annotation, options.get("coerce")
    if callable(coerce):
        return constrained(by_callable(coerce), constraints_in(annotation))
    if coerce is False:
        return constrained(as_is, constraints_in(annotation))
    try:
        if isinstance(annotation, NotYet):
            raise NameError(f"{annotation} is not defined")  # noqa: TRY004, TRY301
        if "format" in options:
            return _formatted(where, annotation, options["format"])
        return coercer(annotation)
    except NameError as error:
        message = (
            f"{where}: {error}. Define it at the top of its module before the task "
            "runs, or take values as they are with coerce=False."
        )
        raise NotThereYet(message) from None
    except Unknown as unknown:
        name = described(unknown.annotation)
        message = (
            f"{where}: nobody knows how to make a {name} of what callers give. "
            f"Give coerce=..., register one with cmdx.coercions.register({name}, ...), "
            "or take values as they are with coerce=False."
        )
        raise DefinitionError(message) from None


def _formatted(where: str, annotation: Any, form: str) -> Coercer:
    kind = unwrapped(annotation)
    members = get_args(kind) if admits_none(kind) else (kind,)
    kinds = [each for each in members if each is not type(None)]
    if len(kinds) != 1 or unwrapped(kinds[0]) not in DATED:
        message = (
            f"{where}: format is for date, datetime and time, "
            f"not for {described(kind)}."
        )
        raise DefinitionError(message)
    checks = [*constraints_in(kinds[0]), *constraints_in(annotation)]
    return constrained(to_formatted(unwrapped(kinds[0]), form), checks)


def _sourced(
    cls: type[Task[Any]], where: str, declared: Input
) -> Callable[[Invocation], Any] | None:
    source = declared.field.options.get("source")
    if isinstance(source, str):
        if not callable(getattr(cls, source, None)):
            message = (
                f"{where}: source names {source!r}, which is no method of "
                f"{cls.__qualname__}. Define it, or give a callable."
            )
            raise DefinitionError(message)
        _refuse_async(f"{where}: source", getattr(cls, source))
        return lambda task: getattr(task, source)()
    if source is None or _taken(f"{where}: source", source):
        return source
    return lambda _: source()


def _taken(where: str, call: Callable[..., Any]) -> int:
    """Tell whether *call* takes the task; refuse it if it wants more."""
    _refuse_async(where, call)
    try:
        return accepted(call, 1)
    except TypeError as error:
        message = f"{where} {call!r} {error}. Take the task, or nothing."
        raise DefinitionError(message) from None


def _refuse_async(where: str, call: Callable[..., Any]) -> None:
    if awaits(call):
        message = (
            f"{where} {call!r} is async, but inputs are resolved without awaiting. "
            "Await in work, or in a @before_execution hook that sets the context."
        )
        raise DefinitionError(message)


def _absence(
    cls: type[Task[Any]],
    where: str,
    declared: Input,
    convert: Coercer,
    source: Callable[[Invocation], Any] | None,
) -> Callable[[Invocation, Any], Any]:
    """Return what deals with an input that was not given, is None, or has a source."""
    field = declared.field
    options = field.options
    nullable = admits_none(declared.annotation)
    must_be_present = bool(options.get("presence"))
    gate = compiled_gate(where, cls, options.get("if_"), options.get("unless"))
    default = _defaulted(where, declared, nullable=nullable)

    def absent(task: Invocation, value: Any) -> Any:
        if source is not None:
            value = source(task)
            if value is not None:
                return convert(value)
        if value is MISSING or source is not None:
            task._absent_.add(declared.name)
        if value is None and nullable:
            if must_be_present:
                raise Invalid("presence")
            return None
        if default is not None:
            made = default(task)
            return None if made is None else convert(made)
        if gate is not None and not gate(task):
            return None
        raise Invalid("required" if value is MISSING else "none")

    return absent


def _defaulted(
    where: str, declared: Input, *, nullable: bool
) -> Callable[[Invocation], Any] | None:
    field = declared.field
    if field.required:
        return None
    factory = field.factory
    if factory is not None:
        return (
            factory
            if not isinstance(factory, type) and _taken(f"{where}: factory", factory)
            else lambda _: factory()
        )
    if field.default is None and not nullable:
        message = (
            f"{where}: the default is None, which {described(declared.annotation)} "
            "does not admit. Annotate it as `... | None`, or give another default."
        )
        raise DefinitionError(message)
    return lambda _: field.default
