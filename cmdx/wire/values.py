"""
The values of tasks as JSON.

A value is stored by the ``V`` of its ``Task[V]``, an output by its annotation. Type
checkers may have been wrong about it, and the run is over, so as much is kept of it as
can be. Of these, the first that comes back the same is stored:

1. the value, to be read as its annotation promises    ``encode_value``
2. what the coercion of the annotation makes of it
3. the value as it is, to be read without the annotation
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from types import UnionType
from typing import TYPE_CHECKING, Any, get_origin

import attrs

from cmdx import Task
from cmdx.inputs.annotations import (
    evaluated_annotation,
    module_names,
    type_arguments,
)
from cmdx.inputs.errors import Invalid
from cmdx.inputs.scalars import as_is
from cmdx.wire.codecs import Codec, too_deep
from cmdx.wire.decoding import classes_in
from cmdx.wire.encoding import CONTAINERS, TAG, UNSTORABLE, is_storable
from cmdx.wire.invocations import STREAM_TYPES

if TYPE_CHECKING:
    from cmdx.declare.blueprint import Plan

UNTYPED = "untyped"
"""The tag of a value that is not what its annotation promises."""


def encode_value(codec: Codec, value: Any) -> Any:
    """Return a value as JSON, coerced or without its annotation if need be."""
    try:
        return codec.encode(value)
    except Invalid as invalid:
        refusal = invalid
    if is_read_once(value):  # the coercion would use it up
        raise refusal
    for encode_other in (encode_coerced, encode_untyped):
        with suppress(Exception):  # it does not fit, or a coercion of the user's raises
            return encode_other(codec, value)
    raise refusal


def encode_coerced(codec: Codec, value: Any) -> Any:
    """Return what the annotation makes of a value of another type, as JSON."""
    try:
        return codec.encode(codec.coerce(value))
    except RecursionError:
        raise too_deep() from None


def encode_untyped(codec: Codec, value: Any) -> Any:
    """Return a value as JSON, with a tag that keeps the annotation out of it."""
    return {TAG: UNTYPED, "value": attrs.evolve(codec, coerce=as_is).encode(value)}


def decode_value(codec: Codec, stored: Any) -> Any:
    """Return the value behind what ``encode_value`` returned, or raise ``Invalid``."""
    if isinstance(stored, dict) and stored.get(TAG) == UNTYPED:
        codec, stored = attrs.evolve(codec, coerce=as_is), stored.get("value")
    try:
        return codec.decode(stored)
    except Invalid:
        raise
    except Exception as error:  # of a coercion or class of the user's
        raise raised(error) from None


def raised(error: Exception) -> Invalid:
    """Return the refusal of a value whose class or coercion has raised *error*."""
    return Invalid(UNSTORABLE, f"raised {type(error).__qualname__}")


def is_read_once(value: Any) -> bool:
    """Tell whether a value, or an item of it, is an iterator or a file."""
    if isinstance(value, STREAM_TYPES):
        return True
    if type(value) not in CONTAINERS:
        return False
    items = value.values() if type(value) is dict else value
    try:
        return any(map(is_read_once, items))
    except RecursionError:
        raise too_deep() from None


def value_codec(cls: type[Task[Any]]) -> Codec:
    """Return how the value ``V`` of a ``Task[V]`` is stored."""
    plan: Plan = cls._cmdx_.plan
    return plan.derive(make_value_codec)


def make_value_codec(plan: Plan) -> Codec:
    """Make what ``value_codec`` returns."""
    return Codec.of(value_annotation(plan.task), module_names(plan.task))


def output_codecs(plan: Plan) -> dict[str, Codec]:
    """Return how the outputs of a task are stored, by name."""
    return plan.derive(make_output_codecs)


def make_output_codecs(plan: Plan) -> dict[str, Codec]:
    """Make what ``output_codecs`` returns."""
    names = module_names(plan.task)
    return {
        output.name: Codec.of(output.annotation, names)
        for output in plan.fields.outputs.values()
    }


def value_annotation(cls: type[Task[Any]]) -> Any:
    """Return ``V`` of a ``Task[V]``; ``None`` promises nothing, as ``Any`` does."""
    arguments = type_arguments(cls).get(Task, {})
    annotation = next(iter(arguments.values()), Any)
    try:
        annotation = evaluated_annotation(annotation, module_names(cls), {})
    except NameError:
        return Any
    return Any if annotation in (None, type(None)) else annotation


def unstorable_value(cls: type[Task[Any]]) -> type | None:
    """Return the class in the annotation of the value that cannot be stored, if any."""
    for found in classes_in(value_annotation(cls), module_names(cls)):
        kind: type = get_origin(found) or found
        if issubclass(kind, STREAM_TYPES):
            return kind
        if not promises_nothing(kind) and not is_storable(kind):
            return kind
    return None


def promises_nothing(kind: type) -> bool:
    """Tell whether a value of *kind* may be an instance of any class."""
    is_interface = inspect.isabstract(kind) or getattr(kind, "_is_protocol", False)
    return kind in (Any, object, UnionType) or is_interface
