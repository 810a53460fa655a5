"""
From JSON to values.

Tags are replaced by the values they stand for. A tag never leads to an import: classes
are looked up among those that an annotation is made of.

1. tags become values                        ``decode``
2. which classes an annotation is made of    ``classes_in``
"""

from __future__ import annotations

from base64 import b64decode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ForwardRef,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID
from zoneinfo import ZoneInfo

from cmdx.inputs.annotations import evaluated_annotation, layers_of, module_names
from cmdx.inputs.classes import REFUSALS, parts_of
from cmdx.inputs.coercion import coercer
from cmdx.inputs.errors import Invalid
from cmdx.inputs.scalars import to_fraction
from cmdx.wire.encoding import TAG, UNSTORABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NOT_TYPES = (Enum, list, str, bytes, int)
"""What stands between brackets in an annotation without being a type."""


def decode(stored: Any, classes: Mapping[str, Any]) -> Any:
    """Return *stored* with values in place of its tags, or raise ``Invalid``."""
    if isinstance(stored, list):
        return [decode(item, classes) for item in stored]
    if not isinstance(stored, dict):
        return stored
    if TAG not in stored:
        return {key: decode(item, classes) for key, item in stored.items()}
    try:
        value = decode(stored["value"], classes)
        if stored[TAG] == "object":
            return _read_instance(classes[stored["of"]], value)
        return TAG_READERS[stored[TAG]](value)
    except (*REFUSALS, AttributeError, OSError):
        raise Invalid(UNSTORABLE, "has a tag that cannot be read") from None


def _read_instance(annotation: Any, value: Any) -> Any:
    """Return an instance of a class that the annotation names."""
    kind = get_origin(annotation) or annotation
    if issubclass(kind, Enum):
        return kind[value["name"]] if "name" in value else kind(value["number"])
    if issubclass(kind, tuple):
        return kind(*map(_read_field, get_type_hints(kind).values(), value))
    return coercer(annotation, module_names(kind))(value)


def _read_field(annotation: Any, value: Any) -> Any:
    return coercer(annotation)(value)


def _moment_reader(kind: Any) -> Callable[[Any], Any]:
    def read(pieces: Any) -> Any:
        text, zone, fold = pieces
        moment = kind.fromisoformat(text)
        if zone is not None:
            moment = moment.replace(tzinfo=ZoneInfo(zone))
        return moment.replace(fold=fold)

    return read


TAG_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "Decimal": Decimal,
    "Fraction": to_fraction,  # the class would compute 10**999999999
    "complex": lambda pieces: complex(*map(float, pieces)),
    "date": date.fromisoformat,
    "datetime": _moment_reader(datetime),
    "time": _moment_reader(time),
    "timedelta": lambda pieces: timedelta(*pieces),
    "UUID": UUID,
    "Path": Path,
    "bytes": lambda text: b64decode(text, validate=True),
    "bytearray": lambda text: bytearray(b64decode(text, validate=True)),
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}


def named_classes(annotation: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the classes that a tag may name in values of *annotation*, by name."""
    found = ((get_origin(part) or part, part) for part in classes_in(annotation, names))
    return {
        kind.__qualname__: part for kind, part in found if kind.__module__ != "builtins"
    }


def classes_in(annotation: Any, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the classes in *annotation*: ``list[int]`` has itself and ``int``."""
    seen: list[Any] = []
    unseen: list[tuple[Any, Mapping[str, Any]]] = [(annotation, names)]
    while unseen:
        found, around = unseen.pop()
        if isinstance(found, ForwardRef):
            found = evaluated_annotation(found, around, {})
        found = layers_of(found)[-1]
        if any(found is known or found == known for known in seen):
            continue
        seen.append(found)
        kind = get_origin(found) or found
        if isinstance(kind, type):
            yield found
            if kind.__module__ != "builtins":
                around = module_names(kind)
        unseen += [(part.annotation, around) for part in parts_of(found) or ()]
        unseen += [(argument, around) for argument in _types_in(found)]


def _types_in(annotation: Any) -> list[Any]:
    """Return the types that *annotation* is made of, and members of a ``Literal``."""
    if isinstance(annotation, TypeVar):
        bound = annotation.__bound__
        return [*annotation.__constraints__, *([] if bound is None else [bound])]
    arguments = get_args(annotation)
    members = [type(choice) for choice in arguments if isinstance(choice, Enum)]
    return members + [part for part in arguments if not isinstance(part, NOT_TYPES)]
