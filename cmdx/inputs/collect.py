"""
What a class declares: its fields, with those of its ancestors, and annotations.

``collect_fields`` reads the body of a class when the class is made, and refuses what
contradicts itself. ``Fields.of`` folds the fields of a class over its MRO.
"""

from __future__ import annotations

import inspect
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_origin

import attrs

from cmdx.context import MISSING
from cmdx.exceptions import DefinitionError
from cmdx.inputs.annotations import (
    evaluated_annotation,
    module_names,
    substitute,
    type_arguments,
)
from cmdx.inputs.fields import Field, Private, refuse_unhashable_default
from cmdx.inputs.outputs import Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import FrameType
    from typing import Self

    from cmdx.task import Task

DESCRIPTORS = (property, staticmethod, classmethod, cached_property)
FOREIGN_FIELDS = (
    "dataclasses.Field", "attr._make._CountingAttr", "pydantic.fields.FieldInfo",
)  # fmt: skip
"""What ``field(...)`` of other libraries returns; they need not be imported here."""


@attrs.frozen
class Input:
    """One input of a task, with everything inherited."""

    name: str
    annotation: Any
    field: Field
    names: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """The names of the module whose class annotates it."""

    @property
    def key(self) -> str:
        """The name callers use."""
        return str(self.field.options.get("alias") or self.name)

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.field.required

    @property
    def description(self) -> str:
        """A sentence for people."""
        return str(self.field.options.get("description", ""))


@attrs.frozen
class Fields:
    """The inputs and outputs of a task."""

    inputs: dict[str, Input]
    outputs: dict[str, Output]

    @classmethod
    def of(cls, task: type[Task[Any]]) -> Fields:
        """Fold the fields of *task* and its ancestors."""
        inputs: dict[str, Input] = {}
        outputs: dict[str, Output] = {}
        for base in reversed(task.__mro__):
            for name, field in _own_fields(base).items():
                annotation, names = _annotation_of(task, name)
                if isinstance(field, Output):
                    inputs.pop(name, None)
                    outputs[name] = attrs.evolve(field, annotation=annotation)
                elif field is None:
                    inputs.pop(name, None)
                    outputs.pop(name, None)
                else:
                    outputs.pop(name, None)
                    inputs[name] = Input(name, annotation, field, names)
        return cls(inputs, outputs)


def collect_fields(cls: type[Task[Any]], reserved: Iterable[str]) -> None:
    """Store the fields in the body of *cls*, and refuse what contradicts itself."""
    own = _own_annotations(cls)
    cls._cmdx_.fields = {
        name: _put_field(cls, name, field)
        for name, field in dict(_fields_in_body(cls, own, reserved)).items()
    }
    cls._cmdx_.annotations = own
    for base in cls.__mro__[1:]:
        if not hasattr(base, "_cmdx_"):
            _refuse_fields_of(cls, base)
    fields = Fields.of(cls)
    for name in (*fields.inputs, *fields.outputs):  # inherited ones included
        _refuse_reserved(cls, name, reserved)
    _check_aliases(cls, fields)
    if fields.inputs:
        from cmdx.inputs.pipeline import check_inputs

        check_inputs(cls, fields)


def _put_field(
    cls: type[Task[Any]], name: str, field: Field | Output | None
) -> Field | Output | None:
    """Put *field* into the class, so that reading it too early explains itself."""
    if field is None:
        return None
    # A new one with its name: the same field may stand in several classes.
    named = attrs.evolve(field, name=name)
    setattr(cls, name, named)
    return named


def _own_fields(base: type) -> Mapping[str, Field | Output | None]:
    """Return the fields in the body of *base*; None marks a removed one."""
    definition = vars(base).get("_cmdx_")
    return {} if definition is None else definition.fields


# -- the body of a class ---------------------------------------------------------------


def _fields_in_body(
    cls: type[Task[Any]], annotations: Mapping[str, Any], reserved: Iterable[str]
) -> Iterator[tuple[str, Field | Output | None]]:
    for name, annotation in annotations.items():
        if isinstance(vars(cls).get(name), Private):
            delattr(cls, name)
        elif not _is_class_variable(annotation):
            yield name, _annotated_field(cls, name, reserved)
    inherited = {
        name: field
        for base in reversed(cls.__mro__[1:])
        for name, field in _own_fields(base).items()
        if field is not None
    }
    for name, value in list(vars(cls).items()):
        if name in annotations:
            continue
        if name in inherited:
            yield name, _override(cls, name, value, inherited[name])
        elif isinstance(value, Field | Output):
            message = (
                f"{cls.__qualname__}.{name} is a field without an annotation. "
                f"Write `{name}: SomeType = ...`."
            )
            raise DefinitionError(message)


def _annotated_field(
    cls: type[Task[Any]], name: str, reserved: Iterable[str]
) -> Field | Output:
    value = vars(cls).get(name, MISSING)
    where = f"{cls.__qualname__}.{name}"
    _refuse_reserved(cls, name, reserved)
    if name.startswith("_"):
        message = (
            f"{where} starts with an underscore, so callers could not pass it. "
            f"If it is not an input, declare it with `{name}: ... = private()`; "
            "otherwise rename it."
        )
        raise DefinitionError(message)
    if value is MISSING:
        return Field(required=True)
    if isinstance(value, Field | Output):
        return value
    is_own_function = getattr(value, "__qualname__", "") == where
    if is_own_function or isinstance(value, DESCRIPTORS):
        message = (
            f"{where} is a field and a method at once, because every annotation is a "
            "field. Rename one of them."
        )
        raise DefinitionError(message)
    _check_literal(where, value)
    return Field(required=False, default=value)


def _refuse_reserved(cls: type[Task[Any]], name: str, reserved: Iterable[str]) -> None:
    if name in reserved:
        message = (
            f"{cls.__qualname__}.{name} has the name of an attribute that every "
            f"{cls._cmdx_.kind.lower()} has. If it is an input, choose another name, "
            f"and let callers use this one with alias={name!r}; "
            "otherwise leave out its annotation."
        )
        raise DefinitionError(message)


def _check_literal(where: str, value: Any) -> None:
    """Refuse what cannot be a default."""
    if f"{type(value).__module__}.{type(value).__name__}" in FOREIGN_FIELDS:
        message = (
            f"{where}: field(...) of another library cannot be used in a task. "
            "Use optional(factory=list), optional(default=...) or required(...)."
        )
        raise DefinitionError(message)
    refuse_unhashable_default(where, value)


def _override(
    cls: type[Task[Any]], name: str, value: Any, inherited: Field | Output
) -> Field | Output | None:
    """Return the field that *value* makes of the one that *cls* inherits."""
    if value is None or isinstance(value, Field | Output):
        return value
    if callable(value) or isinstance(value, DESCRIPTORS):
        message = (
            f"{cls.__qualname__}.{name} is an inherited field and cannot become a "
            f"method. Rename the method, or remove the field with {name} = None."
        )
        raise DefinitionError(message)
    _check_literal(f"{cls.__qualname__}.{name}", value)
    if isinstance(inherited, Output):
        return Field(required=False, default=value)
    return inherited.with_default(value)


def _refuse_fields_of(cls: type[Task[Any]], base: type) -> None:
    for name, value in vars(base).items():
        if isinstance(value, Field | Output):
            message = (
                f"{cls.__qualname__} inherits the field {name!r} from "
                f"{base.__qualname__}, which is not a task, so it would be ignored. "
                f"Derive {base.__qualname__} from Task."
            )
            raise DefinitionError(message)


def _check_aliases(cls: type[Task[Any]], fields: Fields) -> None:
    names = {name: name for name in fields.outputs}
    for declared in fields.inputs.values():
        if declared.key in names:
            message = (
                f"{cls.__qualname__}: the fields {names[declared.key]!r} and "
                f"{declared.name!r} would both be passed as {declared.key!r}. "
                "Change one of the aliases."
            )
            raise DefinitionError(message)
        names[declared.key] = declared.name


# -- annotations ---------------------------------------------------------------------


class Unevaluated(str):
    """An annotation that cannot be evaluated yet: a name in it is undefined."""

    __slots__ = ("annotation", "undefined")

    annotation: Any
    undefined: str
    """The first name in it that is not defined."""

    def __new__(cls, annotation: Any, undefined: str | None) -> Self:
        """Keep *annotation* itself beside its text."""
        written = getattr(annotation, "__forward_arg__", None) or str(annotation)
        made = super().__new__(cls, written)
        made.annotation = annotation
        made.undefined = undefined or written
        return made


def _own_annotations(cls: type[Task[Any]]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        form = annotationlib.Format.FORWARDREF
        raw = annotationlib.get_annotations(cls, format=form)
    else:
        raw = inspect.get_annotations(cls)
    names = {**module_names(cls), **vars(cls)}
    local = _names_around(cls)
    return {
        name: _evaluate(annotation, names, local) for name, annotation in raw.items()
    }


def _names_around(cls: type) -> Mapping[str, Any]:
    """Return the local names where the class statement is: only now they are known."""
    scope = cls.__qualname__.rpartition(".")[0].removesuffix(".<locals>")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "__init_subclass__":
        frame = frame.f_back
    # Between it and the class statement are others, and those of metaclasses (ABC).
    between = ("__init_subclass__", "__new__", "__call__")
    while frame is not None and frame.f_code.co_name in between:
        if frame.f_code.co_qualname == scope:
            break
        frame = frame.f_back
    return {} if frame is None else frame.f_locals


def _evaluate(
    annotation: Any, names: Mapping[str, Any], local: Mapping[str, Any]
) -> Any:
    try:
        return evaluated_annotation(annotation, names, local)
    except NameError as error:
        return Unevaluated(annotation, error.name)


def _annotation_of(task: type[Task[Any]], name: str) -> tuple[Any, dict[str, Any]]:
    """Return the annotation of a field, evaluated if possible, and its names."""
    for base in task.__mro__:
        definition = vars(base).get("_cmdx_")
        own = {} if definition is None else definition.annotations
        annotation = own.get(name, MISSING)
        if annotation is MISSING:
            continue
        names = module_names(base)
        if isinstance(annotation, Unevaluated):
            annotation = _evaluate(annotation.annotation, names, {})
        if getattr(annotation, "__parameters__", ()) or isinstance(annotation, TypeVar):
            annotation = substitute(annotation, type_arguments(task).get(base, {}))
        return annotation, names
    return Any, {}


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, Unevaluated):
        return annotation.partition("[")[0].endswith("ClassVar")
    return annotation is ClassVar or get_origin(annotation) is ClassVar
