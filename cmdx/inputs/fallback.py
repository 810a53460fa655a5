"""
What an input gets where its value cannot simply be converted.

Nothing was given, or None, or blank text where text cannot be a value, or the value
comes from a source. ``fallback_of`` returns what is called then:

1. a source is asked in place of the caller                ``from_source``
2. blank text counts as not given                          ``takes_blank_text``
3. None is taken, refused, or counts as not given          ``_none_resolver``
4. what was not given has its default, or is refused       ``_absent_resolver``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx.context import MISSING
from cmdx.declare.gates import compile_gate
from cmdx.declare.methods import find_method
from cmdx.declare.signatures import awaits, positional_count
from cmdx.exceptions import DefinitionError
from cmdx.inputs.annotations import admits_none, annotation_text, bare_annotation
from cmdx.inputs.blank import admits_blank_text, is_blank_text
from cmdx.inputs.coercion import coercions
from cmdx.inputs.collect import Unevaluated
from cmdx.inputs.constraints import constraints_in
from cmdx.inputs.errors import broken
from cmdx.inputs.resolve import mark_absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.inputs.collect import Input
    from cmdx.inputs.scalars import Coercer
    from cmdx.run.invocation import Invocation
    from cmdx.task import Task

    ConverterFor = Callable[[Invocation], Coercer]
    Fallback = Callable[[Invocation, Any], Any]

CONSTANTS = (str, int, float, bool)
"""The types whose values the coercion by annotation returns unchanged."""


def source_of(
    cls: type[Task[Any]], where: str, declared: Input
) -> Callable[[Invocation], Any] | None:
    """Return what is asked in place of the caller, None if there is no source."""
    source = declared.field.options.get("source")
    if isinstance(source, str):
        place = f"{where}: source"
        refuse_async(place, find_method(place, cls, source))
        return lambda task: getattr(task, source)()
    if source is None or _takes_task(f"{where}: source", source):
        return source
    return lambda _: source()


def _takes_task(where: str, call: Callable[..., Any]) -> int:
    """Tell whether *call* takes the task; refuse it if it needs more."""
    refuse_async(where, call)
    try:
        return positional_count(call, 1)
    except TypeError as error:
        message = f"{where} {call!r} {error}. Take the task, or no arguments."
        raise DefinitionError(message) from None


def refuse_async(where: str, call: Callable[..., Any]) -> None:
    """Refuse a callable that would have to be awaited."""
    if awaits(call):
        message = (
            f"{where} {call!r} is async, but inputs are resolved without awaiting. "
            "Await in work, or in a @before_execution hook that sets the context."
        )
        raise DefinitionError(message)


def from_source(
    name: str, source: Callable[[Invocation], Any], fallback: Fallback
) -> Fallback:
    """Return what resolves an input that callers cannot give."""

    def resolve_source(task: Invocation, _: Any) -> Any:
        mark_absent(task, name)
        return fallback(task, source(task))

    return resolve_source


def fallback_of(
    cls: type[Task[Any]], where: str, declared: Input, converter_for: ConverterFor
) -> Fallback:
    """Return what resolves an input where ``convert`` alone is not enough."""
    takes_blank = takes_blank_text(declared)
    resolve_absent = _absent_resolver(cls, where, declared, converter_for)
    resolve_none = _none_resolver(declared, resolve_absent)

    def fallback(task: Invocation, value: Any) -> Any:
        if not takes_blank and is_blank_text(value):
            value = MISSING
        if value is MISSING:
            mark_absent(task, declared.name)
            return resolve_absent(task, "required")
        if value is None:
            return resolve_none(task)
        return converter_for(task)(value)

    return fallback


def _absent_resolver(
    cls: type[Task[Any]], where: str, declared: Input, converter_for: ConverterFor
) -> Callable[[Invocation, str], Any]:
    """Return what makes the value of an input that was left out, or refuses it."""
    options = declared.field.options
    gate = compile_gate(where, cls, options.get("if_"), options.get("unless"))
    default = _default(where, declared)

    def refuse_absent(task: Invocation, code: str) -> None:
        if gate is None or gate(task):
            raise broken("required", code)

    if default is None:
        return refuse_absent

    def resolve_default(task: Invocation, _: str) -> Any:
        made = default(task)
        return None if made is None else converter_for(task)(made)

    return resolve_default


def _none_resolver(
    declared: Input, resolve_absent: Callable[[Invocation, str], Any]
) -> Callable[[Invocation], Any]:
    """Return what takes None, refuses it, or counts it as left out."""
    if not admits_none(declared.annotation):
        return lambda task: resolve_absent(task, "none")
    # None cannot be refused where leaving the input out gives None.
    if declared.field.options.get("presence") and declared.field.default is not None:
        return _refuse_none
    return lambda _: None


def _refuse_none(_: Invocation) -> None:
    raise broken("presence")


def _default(where: str, declared: Input) -> Callable[[Invocation], Any] | None:
    """Return what makes the default of an optional input, None for a required one."""
    field = declared.field
    if field.required:
        return None
    factory = field.factory
    if factory is not None:
        takes_task = not isinstance(factory, type) and _takes_task(
            f"{where}: factory", factory
        )
        return factory if takes_task else lambda _: factory()
    if field.default is None and not admits_none(declared.annotation):
        kind = annotation_text(declared.annotation)
        message = (
            f"{where}: the default is None, which {kind} does not allow. "
            "Annotate it as `... | None`, or give another default."
        )
        raise DefinitionError(message)
    return lambda _: field.default


def has_constant_default(declared: Input) -> bool:
    """Tell whether no run can change or refuse the default; its rules are checked."""
    rules = (*declared.field.options, *dict(constraints_in(declared.annotation)))
    if not {"coerce", "transform", "validate", "predicate"}.isdisjoint(rules):
        return False
    kind = bare_annotation(declared.annotation)
    is_unchanged = kind in CONSTANTS and kind not in coercions
    return is_unchanged and type(declared.field.default) is kind


def constant_default(name: str, default: Any, task: Invocation, value: Any) -> Any:
    """Return *default*, whatever else was given in place of a value."""
    if value is MISSING:
        mark_absent(task, name)
    return default


def takes_blank_text(declared: Input) -> bool:
    """Tell whether blank text may be a value of the input."""
    annotation = declared.annotation
    if declared.field.options.get("coerce") is False:
        return True
    if isinstance(annotation, Unevaluated):  # unknown, so coerce= decides
        return True
    return admits_blank_text(annotation)
