"""
From JSON to values.

Tags are replaced by the values they stand for. A tag never leads to an import: classes
are looked up among those that an annotation is made of.
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
from cmdx.wire.encoding import CODE, TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CHOICES = (Enum, list, str, bytes, int)
"""What stands between brackets in an annotation without being a type."""


def decode(stored: Any, kinds: Mapping[str, Any]) -> Any:
    """Return *stored* with values in place of its tags, or raise ``Invalid``."""
    if isinstance(stored, list):
        return [decode(item, kinds) for item in stored]
    if not isinstance(stored, dict):
        return stored
    if TAG not in stored:
        return {key: decode(item, kinds) for key, item in stored.items()}
    try:
        value = decode(stored["value"], kinds)
        if stored[TAG] == "object":
            return _object(kinds[stored["of"]], value)
        return READERS[stored[TAG]](value)
    except (*REFUSALS, AttributeError, OSError):
        raise Invalid(CODE, "has a tag that cannot be read") from None


def _object(annotation: Any, value: Any) -> Any:
    """Return an instance of a class that the annotation names."""
    kind = get_origin(annotation) or annotation
    if issubclass(kind, Enum):
        return kind[value["name"]] if "name" in value else kind(value["number"])
    if issubclass(kind, tuple):
        return kind(*map(_read_field, get_type_hints(kind).values(), value))
    return coercer(annotation, module_names(kind))(value)


def _read_field(annotation: Any, value: Any) -> Any:
    return coercer(annotation)(value)


def _read_moment(kind: Any) -> Callable[[Any], Any]:
    def read(pieces: Any) -> Any:
        text, zone, fold = pieces
        moment = kind.fromisoformat(text)
        if zone is not None:
            moment = moment.replace(tzinfo=ZoneInfo(zone))
        return moment.replace(fold=fold)

    return read


READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "Decimal": Decimal,
    "Fraction": to_fraction,  # the class would compute 10**999999999
    "complex": lambda pieces: complex(*map(float, pieces)),
    "date": date.fromisoformat,
    "datetime": _read_moment(datetime),
    "time": _read_moment(time),
    "timedelta": lambda pieces: timedelta(*pieces),
    "UUID": UUID,
    "Path": Path,
    "bytes": lambda text: b64decode(text, validate=True),
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}


def kinds_in(annotation: Any, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the classes that *annotation* is made of, with their names."""
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
        if isinstance(kind, type) and kind.__module__ != "builtins":
            yield kind.__qualname__, found
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
    return members + [part for part in arguments if not isinstance(part, CHOICES)]
