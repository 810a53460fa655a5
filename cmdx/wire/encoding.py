"""
From values to JSON.

JSON has no decimals, dates or classes. ``encode`` writes them in one of two ways: as
what the coercion of an annotation reads, ``"2.50"``, or with a tag that has the type,
``{"$": "Decimal", "value": "2.50"}``. With tags, two values are the same if their JSON
is. Their own ``__eq__`` is never called. The type of a value decides how it is written:

1. a registered class, by its encoding                  ``encodings``
2. null, text, numbers and truth values, as they are
3. other scalars, as text or with a tag                 ``SCALARS``
4. containers, item by item                             ``CONTAINERS``
5. enums, named tuples, models and classes with fields  ``CLASSES``
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    is_typeddict,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs

from cmdx.exceptions import DefinitionError
from cmdx.inputs.errors import Invalid
from cmdx.inputs.scalars import SCALAR_COERCERS

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TAG = "$"
"""The key of the type in a value that is stored with it."""
UNSTORABLE = "unstorable"
"""The code of a value that cannot be stored, whatever the annotation says."""


class Encodings:
    """How instances of registered classes become JSON; register your own here."""

    def __init__(self) -> None:
        self._by_type: dict[type, Callable[[Any], Any]] = {}

    def register(self, kind: type[T], encode: Callable[[T], Any]) -> Callable[[T], Any]:
        """
        Use *encode* to store instances of *kind*.

        Args:
            kind: The class; subclasses need encodings of their own.
            encode: Returns JSON that the coercion of *kind* takes; register that with
                ``cmdx.coercions.register``.
        """
        if not isinstance(kind, type) or not callable(encode):
            message = (
                "encodings.register takes a class and a callable, "
                f"got {kind!r} and {encode!r}."
            )
            raise DefinitionError(message)
        self._by_type[kind] = encode
        return encode

    def deregister(self, kind: type) -> None:
        """Remove the encoding of *kind*."""
        del self._by_type[kind]

    def find(self, kind: type) -> Callable[[Any], Any] | None:
        """Return the encoding of *kind*, or None."""
        return self._by_type.get(kind)


encodings = Encodings()


class Encoder(Protocol):
    """Writes values of one type as JSON, or raises ``Invalid``."""

    def __call__(self, value: Any, /, *, tagged: bool) -> Any:
        """Return *value* as JSON."""


def encode(value: Any, *, tagged: bool) -> Any:
    """
    Return *value* as JSON.

    Raises ``Invalid`` with the path of the part that cannot be encoded.
    """
    kind = type(value)
    registered = encodings.find(kind)
    if registered is not None:
        return _tag(kind, encode(registered(value), tagged=False), tagged=tagged)
    if value is None or kind in (bool, str):
        return value
    if kind in (int, float):
        return _encode_number(value)
    if kind in SCALARS:
        return _encode_scalar(value, tagged=tagged)
    if kind in CONTAINERS:
        return CONTAINERS[kind](value, tagged=tagged)
    for fits, encode_instance in CLASSES:
        if fits(kind):
            return encode_instance(value, tagged=tagged)
    message = (
        f"is an instance of {kind.__qualname__}; say how to store it with "
        f"cmdx.wire.encodings.register({kind.__name__}, ...)"
    )
    raise Invalid(UNSTORABLE, message)


def is_storable(kind: type) -> bool:
    """Tell whether instances of a class can be encoded, as far as the class tells."""
    return (
        encodings.find(kind) is not None
        or kind in SCALAR_COERCERS
        or kind in SCALARS
        or kind in CONTAINERS
        or kind is type(None)
        or is_typeddict(kind)
        or any(fits(kind) for fits, _ in CLASSES)
    )


# -- scalars --------------------------------------------------------------------------


def _encode_number(value: float) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        if type(value) is int:
            raise Invalid(UNSTORABLE, "has too many digits to be stored") from None
        return {TAG: "float", "value": repr(value)}
    return value


def _encode_scalar(value: Any, *, tagged: bool) -> Any:
    scalar = SCALARS[type(value)]
    if tagged:
        return {TAG: scalar.tag, "value": scalar.pieces(value)}
    return scalar.text(value)


def _moment_pieces(value: Any) -> list[Any]:
    """Return date and time of day, time zone and fold."""
    zone = value.tzinfo
    if zone is None or type(zone) is timezone:
        return [value.isoformat(), None, value.fold]
    if type(zone) is not ZoneInfo or zone.key is None:
        message = "has a time zone that cannot be stored; use zoneinfo.ZoneInfo"
        raise Invalid(UNSTORABLE, message)
    return [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]


def _duration_text(value: timedelta) -> str:
    sign = "-" if value < timedelta() else ""
    try:
        size = abs(value)
    except OverflowError:
        raise Invalid(UNSTORABLE) from None
    return f"{sign}P{size.days}DT{size.seconds}.{size.microseconds:06}S"


def _duration_pieces(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _complex_pieces(value: complex) -> list[str]:
    return [repr(value.real), repr(value.imag)]


def _utf8_text(value: bytes | bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Invalid(UNSTORABLE) from None


def _base64_text(value: bytes | bytearray) -> str:
    return b64encode(value).decode()


class Scalar(NamedTuple):
    """How values of a type are written that JSON does not have."""

    tag: str
    text: Callable[[Any], str]
    """Returns what the coercion of the type reads."""
    pieces: Callable[[Any], Any]
    """Returns all that makes up the value, to be stored with the tag."""


SCALARS: dict[Any, Scalar] = {
    Decimal: Scalar("Decimal", str, str),
    Fraction: Scalar("Fraction", str, str),
    complex: Scalar("complex", str, _complex_pieces),
    date: Scalar("date", date.isoformat, date.isoformat),
    datetime: Scalar("datetime", datetime.isoformat, _moment_pieces),
    time: Scalar("time", time.isoformat, _moment_pieces),
    timedelta: Scalar("timedelta", _duration_text, _duration_pieces),
    UUID: Scalar("UUID", str, str),
    type(Path()): Scalar("Path", str, str),
    bytes: Scalar("bytes", _utf8_text, _base64_text),
    bytearray: Scalar("bytearray", _utf8_text, _base64_text),
}


# -- containers -----------------------------------------------------------------------


def _encode_items(value: Any, *, tagged: bool) -> list[Any]:
    return [
        _encode_part(f"[{number}]", item, tagged=tagged)
        for number, item in enumerate(value)
    ]


def _encode_part(step: str, value: Any, *, tagged: bool) -> Any:
    """Encode what is found by *step* from the value around it."""
    try:
        return encode(value, tagged=tagged)
    except Invalid as invalid:
        raise invalid.below(step) from None


def _encode_tuple(value: Any, *, tagged: bool) -> Any:
    items = _encode_items(value, tagged=tagged)
    return {TAG: "tuple", "value": items} if tagged else items


def _encode_set(value: Any, *, tagged: bool) -> Any:
    items = sorted(_encode_items(value, tagged=tagged), key=canonical_text)
    return {TAG: type(value).__name__, "value": items} if tagged else items


def _encode_dict(value: Any, *, tagged: bool) -> Any:
    keys = [_key_text(key, tagged=tagged) for key in value]
    if None in keys or TAG in keys:
        pairs = [
            [
                _encode_part(f"[{number}]", key, tagged=tagged),
                _encode_part(f"[{number}]", item, tagged=tagged),
            ]
            for number, (key, item) in enumerate(value.items())
        ]
        return {TAG: "dict", "value": pairs}
    return {
        text: _encode_part(f"[{text}]", item, tagged=tagged)
        for text, item in zip(keys, value.values(), strict=True)
    }


def _key_text(key: Any, *, tagged: bool) -> str | None:
    """Return the key of a mapping as JSON needs it, None if it is not text."""
    if type(key) is str or tagged:
        return key if type(key) is str else None
    encoded = encode(key, tagged=False)
    if type(encoded) in (int, float):
        return repr(encoded)
    return encoded if isinstance(encoded, str) else None


CONTAINERS: dict[Any, Encoder] = {
    list: _encode_items,
    tuple: _encode_tuple,
    set: _encode_set,
    frozenset: _encode_set,
    dict: _encode_dict,
}


# -- classes --------------------------------------------------------------------------


def _tag(kind: type, fields: Any, *, tagged: bool, **more: Any) -> Any:
    """Return the *fields* of an instance, with the name of its class if *tagged*."""
    if not tagged:
        return fields
    return {TAG: "object", "of": kind.__qualname__, "value": fields, **more}


def _is_enum(kind: type) -> bool:
    return issubclass(kind, Enum)


def _encode_member(member: Enum, *, tagged: bool) -> Any:
    kind = type(member)
    if tagged:
        has_name = member.name in kind.__members__
        fields = {"name": member.name} if has_name else {"number": member.value}
        return _tag(kind, fields, tagged=True)
    value = member.value
    return value if type(value) in (str, int, bool) else member.name


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _encode_named_tuple(value: Any, *, tagged: bool) -> Any:
    return _tag(type(value), _encode_items(value, tagged=tagged), tagged=tagged)


def _is_model(kind: type) -> bool:
    return callable(getattr(kind, "model_validate", None))


def _encode_model(model: Any, *, tagged: bool) -> Any:
    fields = encode(_model_json(model), tagged=False)
    return _tag(type(model), fields, tagged=tagged, state=_types_inside(model))


def _model_json(model: Any) -> Any:
    """Return a pydantic model as JSON that it reads: by name, or else by alias."""
    written, refusal = None, ""
    for by_alias in (False, True):
        try:
            written = model.model_dump(mode="json", warnings=False, by_alias=by_alias)
            type(model).model_validate(written)
        except (ValueError, TypeError) as error:
            refusal = _dump_refusal(error)
            continue
        return written
    if written is None:
        raise Invalid(UNSTORABLE, refusal)
    return written


def _dump_refusal(error: Exception) -> str:
    """Say why pydantic cannot write a model as JSON."""
    if isinstance(error, UnicodeDecodeError):
        return (
            "has bytes that are not UTF-8, which pydantic does not write as JSON; set "
            'ser_json_bytes="base64" and val_json_bytes="base64" in its model_config'
        )
    return (
        f"has a model_dump that raises {type(error).__qualname__}; give it a "
        "field_serializer for what JSON does not have"
    )


def _types_inside(value: Any) -> Any:
    """Return the types inside a pydantic model, which its JSON does not tell."""
    if hasattr(value, "get_secret_value"):
        raise Invalid(UNSTORABLE, "has a secret, which pydantic does not write as JSON")
    if isinstance(value, dict):
        return {str(key): _types_inside(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_types_inside(item) for item in value]
    if _is_model(type(value)):
        return [type(value).__qualname__, _types_inside(vars(value))]
    return type(value).__qualname__


def _has_fields(kind: type) -> bool:
    return attrs.has(kind) or dataclasses.is_dataclass(kind)


def _encode_fields(value: Any, *, tagged: bool) -> Any:
    taken, computed = _field_names(type(value))
    fields, state = (
        {
            key: _encode_part(key, getattr(value, name, None), tagged=tagged)
            for key, name in names.items()
        }
        for names in (taken, computed)
    )
    more = {"state": state} if computed else {}
    return _tag(type(value), fields, tagged=tagged, **more)


def _field_names(kind: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of fields by key: those ``__init__`` takes, and the others."""
    if attrs.has(kind):
        fields = [(field.alias or field.name, field) for field in attrs.fields(kind)]
    else:
        fields = [(field.name, field) for field in dataclasses.fields(kind)]
    taken = {key: field.name for key, field in fields if field.init}
    return taken, {key: field.name for key, field in fields if not field.init}


Predicate: TypeAlias = "Callable[[type], bool]"

CLASSES: tuple[tuple[Predicate, Encoder], ...] = (
    (_is_enum, _encode_member),
    (_is_named_tuple, _encode_named_tuple),
    (_is_model, _encode_model),
    (_has_fields, _encode_fields),
)
"""Which classes can be encoded without being registered, and how."""


# -- comparison -----------------------------------------------------------------------

CANONICAL_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical_text(stored: Any) -> str:
    """Return JSON as text that is the same for the same values."""
    text = CANONICAL_JSON.encode(stored)
    if TAG not in text:  # most data has no tagged mappings, whose pairs have no order
        return text
    return CANONICAL_JSON.encode(_in_order(stored))


def _in_order(stored: Any) -> Any:
    """Return *stored* with the pairs of tagged mappings in order."""
    if isinstance(stored, list):
        return list(map(_in_order, stored))
    if not isinstance(stored, dict):
        return stored
    if stored.get(TAG) == "dict":
        return {TAG: "dict", "value": sorted(map(canonical_text, stored["value"]))}
    if not any(isinstance(item, list | dict) for item in stored.values()):
        return stored
    return {key: _in_order(item) for key, item in stored.items()}
