"""
The contract of a task as JSON Schema 2020-12.

Describes what callers may send: a date is text in the form of a date, an attrs class is
an object. What JSON Schema cannot say, such as a validator of one's own, is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import attrs

from cmdx.coercion import MAPPINGS, SEQUENCES, Unknown, parts_of, within

if TYPE_CHECKING:
    from cmdx.inputs import Fields, Input

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SCALARS: dict[Any, Schema] = {
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

CONSTRAINTS: dict[str, Callable[[Any], Schema]] = {
    "gt": lambda bound: _number("exclusiveMinimum", bound),
    "ge": lambda bound: _number("minimum", bound),
    "lt": lambda bound: _number("exclusiveMaximum", bound),
    "le": lambda bound: _number("maximum", bound),
    "multiple_of": lambda step: _number("multipleOf", step),
    "pattern": lambda wanted: {
        "pattern": f"^(?:{getattr(wanted, 'pattern', wanted)})$"
    },
    "one_of": lambda choices: {"enum": [_plain(each) for each in choices]},
    "none_of": lambda choices: {"not": {"enum": [_plain(each) for each in choices]}},
}
TITLE = "title"
LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


def inputs_schema(fields: Fields) -> Schema:
    """Describe what a task takes."""
    definitions: dict[str, Schema] = {}
    properties = {
        each.key: _input_schema(each, definitions)
        for each in fields.inputs.values()
        if "source" not in each.field.options
    }
    needed = [
        each.key
        for each in fields.inputs.values()
        if each.key in properties and each.required and not _is_gated(each)
    ]
    schema: Schema = {"type": "object", "properties": properties, "required": needed}
    if properties:
        schema["additionalProperties"] = False
    if definitions:
        schema["$defs"] = {
            name: each | {TITLE: each[TITLE].__name__}
            for name, each in definitions.items()
        }
    return schema


def outputs_schema(fields: Fields) -> Schema:
    """Describe what a task leaves in the context."""
    definitions: dict[str, Schema] = {}
    properties = {}
    for name, declared in fields.outputs.items():
        schema = schema_of(declared.annotation, definitions)
        if declared.description:
            schema = schema | {"description": declared.description}
        properties[name] = schema
    needed = [
        name
        for name, declared in fields.outputs.items()
        if declared.if_ is None and declared.unless is None
    ]
    schema = {"type": "object", "properties": properties, "required": needed}
    if definitions:
        schema["$defs"] = {
            name: each | {TITLE: each[TITLE].__name__}
            for name, each in definitions.items()
        }
    return schema


def schema_of(annotation: Any, definitions: dict[str, Schema]) -> Schema:
    """Describe the values of *annotation*; classes go into *definitions*."""
    if (inner := within(annotation)) is not annotation:
        metadata = getattr(annotation, "__metadata__", ())
        return _constrained(schema_of(inner, definitions), metadata)
    origin, args = get_origin(annotation), get_args(annotation)
    try:
        if annotation in SCALARS:
            return dict(SCALARS[annotation])
    except TypeError:  # an annotation may be unhashable
        return {}
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(member, definitions) for member in args]}
    if origin is Literal:
        return {"enum": [_plain(choice) for choice in args]}
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [_plain(member.value) for member in kind]}
    if kind in SEQUENCES:
        return _array(args[:1], definitions, unique=SEQUENCES[kind][1] == "set")
    if kind is tuple:
        return _tuple(args, definitions)
    if kind in MAPPINGS:
        values = schema_of(args[1], definitions) if args else {}
        return {
            "type": "object",
            **({"additionalProperties": values} if values else {}),
        }
    return _class(annotation, definitions)


def _input_schema(declared: Input, definitions: dict[str, Schema]) -> Schema:
    options = declared.field.options
    schema = _with_options(schema_of(declared.annotation, definitions), options)
    if declared.description:
        schema["description"] = declared.description
    default = declared.field.default
    if not declared.required and declared.field.factory is None:
        schema["default"] = _plain(default)
    return schema


def _with_options(schema: Schema, options: Mapping[str, Any]) -> Schema:
    for name, describe in CONSTRAINTS.items():
        if options.get(name) is not None:
            schema = schema | describe(options[name])
    suffixes = {LENGTHS[kind] for kind in _kinds(schema) if kind in LENGTHS}
    exact = options.get("length")
    least = options.get("min_length") if exact is None else exact
    most = options.get("max_length") if exact is None else exact
    if least is None and options.get("presence") and "type" in schema:
        least = 1 if suffixes else None
    for suffix in sorted(suffixes):
        schema = (
            schema
            | ({} if least is None else {f"min{suffix}": least})
            | ({} if most is None else {f"max{suffix}": most})
        )
    return schema


def _kinds(schema: Schema) -> list[str]:
    """Return the types that *schema* admits, as far as it says."""
    if "anyOf" in schema:
        return [kind for each in schema["anyOf"] for kind in _kinds(each)]
    kinds = schema.get("type", list(LENGTHS))
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _constrained(schema: Schema, metadata: Iterable[Any]) -> Schema:
    names = (*CONSTRAINTS, "min_length", "max_length", "length")
    for each in metadata:
        wishes = {
            name: value
            for name in names
            if (value := getattr(each, name, None)) is not None and not callable(value)
        }
        schema = _with_options(schema, wishes)
    return schema


def _array(
    args: tuple[Any, ...], definitions: dict[str, Schema], *, unique: bool
) -> Schema:
    items = schema_of(args[0], definitions) if args else {}
    schema: Schema = {"type": "array"}
    if items:
        schema["items"] = items
    if unique:
        schema["uniqueItems"] = True
    return schema


def _tuple(args: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if not args or args[-1] is ...:
        return _array(args[:1], definitions, unique=False)
    items = [schema_of(arg, definitions) for arg in args]
    return {
        "type": "array",
        "prefixItems": items,
        "minItems": len(items),
        "maxItems": len(items),
    }


def _class(kind: Any, definitions: dict[str, Schema]) -> Schema:
    try:
        parts = parts_of(kind)
    except Unknown:
        return {}
    name = _definition_name(kind, definitions)
    if name not in definitions:
        definitions[name] = {TITLE: kind}  # a class may have fields of its own type
        definitions[name] = {
            TITLE: kind,
            "type": "object",
            "properties": {
                part.key: schema_of(part.annotation, definitions) for part in parts
            },
            "required": [part.key for part in parts if part.required],
        }
    return {"$ref": f"#/$defs/{name}"}


def _definition_name(kind: Any, definitions: dict[str, Schema]) -> str:
    """Return the name of *kind*, made longer if another class has it."""
    name = str(kind.__name__)
    while name in definitions and definitions[name][TITLE] is not kind:
        name = f"{name}_"
    return name


def _number(keyword: str, bound: Any) -> Schema:
    """Describe a bound; JSON Schema knows bounds of numbers alone."""
    if isinstance(bound, bool) or not isinstance(
        bound, int | float | Decimal | Fraction
    ):
        return {}
    return {keyword: bound if isinstance(bound, int | float) else float(bound)}


def _is_gated(declared: Input) -> bool:
    options = declared.field.options
    return options.get("if_") is not None or options.get("unless") is not None


def _plain(value: Any) -> Any:
    """Return *value* as JSON would write it."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if attrs.has(type(value)):
        fields = attrs.fields(type(value))
        return {
            each.alias: _plain(getattr(value, each.name))
            for each in fields
            if each.init
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: _plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.init
        }
    return str(value.isoformat()) if isinstance(value, date | time) else str(value)
