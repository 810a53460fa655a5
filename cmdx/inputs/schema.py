"""
The contract of a task as JSON Schema 2020-12.

It describes what callers may send: a date is text in the format of a date, an attrs
class is an object. What JSON Schema cannot express is left out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ForwardRef, Literal, get_args, get_origin
from uuid import UUID

import attrs

from cmdx.inputs.annotations import (
    admits_none,
    annotation_text,
    evaluated_annotation,
    inner_annotation,
    is_alias,
    is_union,
    module_names,
)
from cmdx.inputs.classes import parts_of
from cmdx.inputs.coercion import coercions
from cmdx.inputs.constraints import Constraint, constraints_of
from cmdx.inputs.patterns import ecma_pattern
from cmdx.inputs.structures import MAPPINGS, SEQUENCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cmdx.inputs.collect import Fields, Input

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SCALAR_SCHEMAS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Decimal: {"type": ["number", "string"]},
    Fraction: {"type": ["number", "string"]},
    complex: {"type": ["number", "string"]},
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": ["number", "string"], "format": "duration"},
    UUID: {"type": "string", "format": "uuid"},
    Path: {"type": "string"},
    PurePath: {"type": "string"},
    bytes: {"type": "string"},
    type(None): {"type": "null"},
    None: {"type": "null"},
}


def inputs_schema(fields: Fields) -> Schema:
    """Describe what a task takes."""
    given = [
        declared
        for declared in fields.inputs.values()
        if "source" not in declared.field.options
    ]
    description = _Description()
    properties = {
        declared.key: _input_schema(declared, description) for declared in given
    }
    required = [
        declared.key
        for declared in given
        if declared.required and not _is_gated(declared.field.options)
    ]
    return description.document(properties, required)


def outputs_schema(fields: Fields) -> Schema:
    """Describe what a task writes into the context."""
    description = _Description()
    properties = {
        name: _with_description(
            description.schema_of(output.annotation), output.description
        )
        for name, output in fields.outputs.items()
    }
    required = [
        name
        for name, output in fields.outputs.items()
        if output.if_ is None and output.unless is None
    ]
    return description.document(properties, required)


def _input_schema(declared: Input, description: _Description) -> Schema:
    options = declared.field.options
    description.names = declared.names
    if options.get("coerce", True) is not True:
        schema: Schema = {}  # only the callable knows what it takes
    elif "format" in options:
        schema = {"type": ["string", "null"] if _is_nullable(declared) else "string"}
    else:
        schema = description.schema_of(declared.annotation)
    if options.get("coerce", True) is True and "transform" not in options:
        schema = _constrain(schema, (Constraint(*option) for option in options.items()))
    schema = _with_description(schema, declared.description)
    if not declared.required and declared.field.factory is None:
        schema["default"] = _json_value(declared.field.default)
    return schema


def _with_description(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description else schema


def _is_nullable(declared: Input) -> bool:
    return admits_none(declared.annotation)


def _is_gated(options: Mapping[str, Any]) -> bool:
    return options.get("if_") is not None or options.get("unless") is not None


# -- types -----------------------------------------------------------------------------


class _Description:
    """The schemas of the types of one document, and the definitions they refer to."""

    def __init__(self) -> None:
        self.names: Mapping[str, Any] = {}
        self._definitions: dict[str, Schema] = {}
        self._named: dict[Any, str] = {}
        """The names of classes and recursive aliases."""
        self._open: list[Any] = []
        """The aliases that are being described."""

    def document(self, properties: Schema, required: list[str]) -> Schema:
        """Return the schema of an object, with all definitions."""
        schema = {"type": "object", "properties": properties, "required": required}
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def schema_of(self, annotation: Any) -> Schema:
        """Describe the values of *annotation*; classes become definitions."""
        if annotation in coercions:
            return {}
        if isinstance(annotation, ForwardRef) or is_alias(annotation):
            return self._alias_schema(annotation)
        if (inner := inner_annotation(annotation)) is not annotation:
            metadata = getattr(annotation, "__metadata__", ())
            return _constrain(self.schema_of(inner), constraints_of(metadata))
        try:
            if annotation in SCALAR_SCHEMAS:
                return dict(SCALAR_SCHEMAS[annotation])
        except TypeError:  # an annotation may be unhashable
            return {}
        return self._structure_schema(annotation)

    def _structure_schema(self, annotation: Any) -> Schema:
        origin, args = get_origin(annotation), get_args(annotation)
        if is_union(annotation):
            return {"anyOf": [self.schema_of(member) for member in args]}
        if origin is Literal:
            return {"enum": [_json_value(choice) for choice in args]}
        kind = origin or annotation
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [_json_value(member.value) for member in kind]}
        if kind in SEQUENCES:
            return self._array_schema(args[:1], unique=SEQUENCES[kind][1] == "set")
        if kind is tuple:
            return self._tuple_schema(args)
        if kind in MAPPINGS:
            values = self.schema_of(args[1]) if args else {}
            more = {"additionalProperties": values} if values else {}
            return {"type": "object", **more}
        return self._class_schema(annotation)

    def _array_schema(self, args: tuple[Any, ...], *, unique: bool) -> Schema:
        items = self.schema_of(args[0]) if args else {}
        schema: Schema = {"type": "array"}
        if items:
            schema["items"] = items
        if unique:
            schema["uniqueItems"] = True
        return schema

    def _tuple_schema(self, args: tuple[Any, ...]) -> Schema:
        if not args or args[-1] is ...:
            return self._array_schema(args[:1], unique=False)
        return {
            "type": "array",
            "prefixItems": [self.schema_of(arg) for arg in args],
            "minItems": len(args),
            "maxItems": len(args),
        }

    def _class_schema(self, annotation: Any) -> Schema:
        kind = get_origin(annotation) or annotation
        is_model = callable(getattr(kind, "model_validate", None))
        parts = None if is_model else parts_of(annotation)
        if parts is None:
            return {}
        if annotation not in self._named:
            name = self._define(annotation, kind.__name__)
            names, self.names = self.names, module_names(kind)
            self._definitions[name] |= {
                "type": "object",
                "properties": {
                    part.key: self.schema_of(part.annotation) for part in parts
                },
                "required": [part.key for part in parts if part.required],
            }
            self.names = names
        return {"$ref": f"#/$defs/{self._named[annotation]}"}

    def _alias_schema(self, alias: Any) -> Schema:
        """Describe an alias; if it names itself, it becomes a definition."""
        if alias in self._open and alias not in self._named:
            self._define(alias, annotation_text(alias))
        if alias in self._named:
            return {"$ref": f"#/$defs/{self._named[alias]}"}
        self._open.append(alias)
        schema = self.schema_of(self._alias_value(alias))
        self._open.remove(alias)
        if alias not in self._named:
            return schema
        self._definitions[self._named[alias]] |= schema
        return {"$ref": f"#/$defs/{self._named[alias]}"}

    def _alias_value(self, alias: Any) -> Any:
        if isinstance(alias, ForwardRef):
            return evaluated_annotation(alias, self.names, {})
        return inner_annotation(alias)

    def _define(self, annotation: Any, title: str) -> str:
        """Reserve a definition with a name that no other type has."""
        name = title
        while name in self._definitions:
            name = f"{name}_"
        self._named[annotation] = name
        self._definitions[name] = {"title": title}
        return name


# -- constraints -----------------------------------------------------------------------

KEYWORDS: dict[str, Callable[[Any], Schema]] = {
    "gt": lambda bound: _bound_schema("exclusiveMinimum", bound),
    "ge": lambda bound: _bound_schema("minimum", bound),
    "lt": lambda bound: _bound_schema("exclusiveMaximum", bound),
    "le": lambda bound: _bound_schema("maximum", bound),
    "multiple_of": lambda step: _bound_schema("multipleOf", step),
    "pattern": lambda pattern: _pattern_schema(re.compile(pattern)),
    "one_of": lambda choices: {"enum": [_json_value(choice) for choice in choices]},
    "none_of": lambda choices: {
        "not": {"enum": [_json_value(choice) for choice in choices]}
    },
}
"""The JSON Schema of each constraint; that of lengths depends on the type."""

LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


def _constrain(schema: Schema, constraints: Iterable[Constraint]) -> Schema:
    """Add what *constraints* ask for, as far as JSON Schema can express it."""
    for name, value in constraints:
        describe = KEYWORDS.get(name)
        keywords = (
            describe(value) if describe else dict(_length_schema(name, value, schema))
        )
        for keyword, bound in keywords.items():
            if schema.get(keyword, bound) == bound:
                schema = {**schema, keyword: bound}
            else:  # both hold, and JSON Schema has each keyword once
                more = [*schema.get("allOf", ()), {keyword: bound}]
                schema = {**schema, "allOf": more}
    return schema


def _length_schema(name: str, value: Any, schema: Schema) -> Iterator[tuple[str, int]]:
    least = most = None
    if name in ("length", "min_length"):
        least = value
    if name in ("length", "max_length"):
        most = value
    if name == "presence" and value and "type" in schema:
        least = 1
    for suffix in sorted(
        {LENGTHS[kind] for kind in _types_in(schema) & LENGTHS.keys()}
    ):
        if least is not None:
            yield f"min{suffix}", least
        if most is not None:
            yield f"max{suffix}", most


def _types_in(schema: Schema) -> set[str]:
    """Return the types that *schema* admits, as far as known."""
    if "anyOf" in schema:
        return {kind for member in schema["anyOf"] for kind in _types_in(member)}
    kinds = schema.get("type", list(LENGTHS))
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _bound_schema(keyword: str, bound: Any) -> Schema:
    """Describe a bound; JSON Schema knows only bounds of numbers."""
    if isinstance(bound, bool) or not isinstance(
        bound, int | float | Decimal | Fraction
    ):
        return {}
    return {keyword: bound if isinstance(bound, int | float) else float(bound)}


def _pattern_schema(pattern: re.Pattern[str]) -> Schema:
    """Describe a pattern in the syntax that JSON Schema asks for."""
    translated = ecma_pattern(pattern)
    return {} if translated is None else {"pattern": f"^(?:{translated})$"}


# -- values ----------------------------------------------------------------------------


def _json_value(value: Any) -> Any:
    """Return *value* as JSON would write it."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return _json_value(value.value)
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item) for item in value]
    if attrs.has(type(value)):
        return {
            field.alias: _json_value(getattr(value, field.name))
            for field in attrs.fields(type(value))
            if field.init
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _json_value(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        }
    return str(value.isoformat()) if isinstance(value, date | time) else str(value)
