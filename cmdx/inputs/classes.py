"""
Classes as annotations: with fields, with a validator of their own, or any other.

Each function returns a coercer. ``object_coercer`` is given *coercer_of*, which returns
the coercer of a field. ``parts_of`` reads the fields of attrs classes, dataclasses and
TypedDicts, for coercion, the schema and the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs

from cmdx.inputs.annotations import (
    annotation_text,
    evaluated_annotation,
    is_qualifier,
    module_names,
    owner_of,
    substitute,
    type_arguments,
)
from cmdx.inputs.blank import admits_blank_text, is_blank_text
from cmdx.inputs.errors import Invalid, error_code
from cmdx.inputs.scalars import Coercer, as_is

if TYPE_CHECKING:
    from cmdx.inputs.structures import CoercerOf


REFUSALS = (ValueError, TypeError, LookupError, ArithmeticError)
"""What functions raise that cannot make anything of a value."""


@attrs.frozen
class Part:
    """One field of a class."""

    key: str
    annotation: Any
    required: bool
    takes_blank_text: bool = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda part: admits_blank_text(part.annotation), takes_self=True
        ),
    )

    def is_given(self, values: Mapping[str, Any]) -> bool:
        """Tell whether *values* have the field; blank text may count as not given."""
        if self.key not in values:
            return False
        return self.takes_blank_text or not is_blank_text(values[self.key])


def object_coercer(kind: type, parts: list[Part], coercer_of: CoercerOf) -> Coercer:
    """Take instances of *kind*, and mappings of its fields."""
    coercers = [(part, coercer_of(part.annotation)) for part in parts]
    is_class = not is_typeddict(kind)
    make = callable_coercer(lambda fields: kind(**fields)) if is_class else as_is

    def coerce_object(value: Any) -> Any:
        if is_class and isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise Invalid("object", name=kind.__name__)
        made, problems = {}, []
        for part, coerce in coercers:
            try:
                if part.is_given(value):
                    made[part.key] = coerce(value[part.key])
                elif part.required:
                    raise Invalid("required")  # noqa: TRY301 -- collected below
            except Invalid as invalid:
                problems.append(invalid.below(part.key))
        if problems:
            raise Invalid.together(problems)
        return make(made)

    return coerce_object


def model_coercer(kind: Any) -> Coercer:
    """Take instances of *kind*, and mappings for its ``model_validate``."""

    def coerce_model(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise Invalid("object", name=kind.__name__)
        try:
            return kind.model_validate(dict(value))
        except (ValueError, TypeError) as error:
            problems = _model_problems(error)
        raise Invalid.together(problems or [Invalid("invalid")])

    return coerce_model


def _model_problems(error: Exception) -> list[Invalid]:
    """Return codes and paths from an error of pydantic, but never its words."""
    try:
        reports = error.errors()  # type: ignore[attr-defined]
        return [
            _model_problem(str(report["type"]), report["loc"]) for report in reports
        ]
    except (AttributeError, LookupError, TypeError):
        return []


def _model_problem(code: str, path: tuple[Any, ...]) -> Invalid:
    problem = Invalid("required" if code == "missing" else code)
    for step in reversed(path):
        problem = problem.below(f"[{step}]" if isinstance(step, int) else str(step))
    return problem


def instance_coercer(kind: type) -> Coercer:
    """Take instances of *kind*, and nothing else."""
    name = annotation_text(kind)

    def coerce_instance(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Invalid("instance", name=name)
        return value

    return coerce_instance


def subclass_coercer(kind: Any) -> Coercer:
    """Take *kind* and classes derived from it."""
    name = annotation_text(kind)
    base = kind if isinstance(kind, type) else object

    def coerce_subclass(value: Any) -> Any:
        if not isinstance(value, type) or not issubclass(value, base):
            raise Invalid("subclass", name=name)
        return value

    return coerce_subclass


def coerce_function(value: Any) -> Any:
    """Take whatever can be called."""
    if not callable(value):
        raise Invalid("callable")
    return value


def callable_coercer(coerce: Callable[[Any], Any]) -> Coercer:
    """
    Let *coerce*, or a transform, refuse a value by raising anything.

    Its text is not shown, because it often quotes the value, which may be a secret.
    A ``code`` of the error selects the message; ``Invalid`` passes as it is.
    """

    def coerce_by_callable(value: Any) -> Any:
        try:
            return coerce(value)
        except (Invalid, RecursionError):
            raise
        except Exception as error:
            if is_read_too_early(error):
                raise
            raise Invalid(error_code(error)) from None

    return coerce_by_callable


def is_read_too_early(error: Exception) -> bool:
    """Tell whether a method has read an input of its task that is not resolved."""
    return isinstance(error, AttributeError) and hasattr(error.obj, "_cmdx_")


def parts_of(annotation: Any) -> list[Part] | None:
    """Return the fields of an attrs class, dataclass or TypedDict; None for others."""
    kind = get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return None
    if attrs.has(kind):
        return _attrs_parts(kind, _hints(annotation, kind))
    if dataclasses.is_dataclass(kind):
        return _dataclass_parts(kind, _hints(annotation, kind))
    if is_typeddict(kind):
        return _typeddict_parts(kind, _hints(annotation, kind))
    return None


def _attrs_parts(kind: Any, hints: Mapping[str, Any]) -> list[Part]:
    return [
        Part(
            field.alias or field.name,
            hints.get(field.name, Any),
            field.default is attrs.NOTHING,
        )
        for field in attrs.fields(kind)
        if field.init
    ]


def _dataclass_parts(kind: Any, hints: Mapping[str, Any]) -> list[Part]:
    missing = dataclasses.MISSING
    parts = []
    # Not fields(): it leaves out what __init__ takes but does not store.
    for name, field in kind.__dataclass_fields__.items():
        annotation = hints[name]
        is_class_variable = annotation is ClassVar or get_origin(annotation) is ClassVar
        if is_class_variable or not field.init:
            continue
        required = field.default is missing and field.default_factory is missing
        parts.append(Part(name, annotation, required))
    return parts


def _typeddict_parts(kind: Any, hints: Mapping[str, Any]) -> list[Part]:
    return [
        Part(name, annotation, _is_needed(annotation, name in kind.__required_keys__))
        for name, annotation in hints.items()
    ]


def _is_needed(annotation: Any, declared: bool) -> bool:  # noqa: FBT001 -- a fact
    """Tell whether a key is required; TypedDict overlooks ``NotRequired`` in text."""
    while get_origin(annotation) is Annotated or is_qualifier(get_origin(annotation)):
        name = getattr(get_origin(annotation), "_name", "")
        if name in ("Required", "NotRequired"):
            return bool(name == "Required")
        annotation = get_args(annotation)[0]
    return declared


def _hints(annotation: Any, kind: type) -> dict[str, Any]:
    """Return the annotations of the fields, with type variables replaced."""
    hints = {
        name: _type_of_variable(hint, owner_of(kind, name))
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }
    types = type_arguments(annotation)
    if not any(types.values()):
        return hints
    return {
        name: substitute(hint, types.get(owner_of(kind, name), {}))
        for name, hint in hints.items()
    }


def _type_of_variable(hint: Any, owner: type) -> Any:
    """Return the type in ``InitVar[...]``, where it may be text; others as they are."""
    if not isinstance(hint, dataclasses.InitVar):
        return hint
    return evaluated_annotation(hint.type, module_names(owner), vars(owner))
