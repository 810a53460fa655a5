"""
From values to JSON.

JSON has no decimals, dates or classes. ``encode`` writes them in one of two ways: as
what the coercion of an annotation reads, ``"2.50"``, or with a tag that has the type,
``{"$": "Decimal", "value": "2.50"}``. With tags, two values are the same if their JSON
is. Their own ``__eq__`` is never called.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs

from cmdx.exceptions import DefinitionError
from cmdx.inputs.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TAG = "$"
CODE = "unstorable"


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


def encode(value: Any, *, tagged: bool) -> Any:
    """Return *value* as JSON, or raise ``Invalid`` with the path of what is none."""
    kind = type(value)
    registered = encodings.find(kind)
    if registered is not None:
        return _tag(kind, encode(registered(value), tagged=False), tagged=tagged)
    if value is None or kind in (bool, str):
        return value
    if kind in (int, float):
        return _number(value)
    if kind in SCALAR_ENCODINGS:
        name, write_text, write_whole = SCALAR_ENCODINGS[kind]
        if tagged:
            return {TAG: name, "value": write_whole(value)}
        return write_text(value)
    if kind in CONTAINERS:
        return CONTAINERS[kind](value, tagged)
    return _encode_object(value, tagged=tagged)


def _number(value: float) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        if type(value) is int:
            raise Invalid(CODE, "has too many digits to be stored") from None
        return {TAG: "float", "value": repr(value)}
    return value


def _tag(kind: type, data: Any, *, tagged: bool, **more: Any) -> Any:
    """Return *data* of an instance, with the name of its class if *tagged*."""
    if not tagged:
        return data
    return {TAG: "object", "of": kind.__qualname__, "value": data, **more}


def _encode_items(value: Any, tagged: bool) -> list[Any]:  # noqa: FBT001 -- of a table
    return [
        _encode_below(f"[{number}]", item, tagged=tagged)
        for number, item in enumerate(value)
    ]


def _encode_tuple(value: Any, tagged: bool) -> Any:  # noqa: FBT001 -- of a table
    items = _encode_items(value, tagged)
    return {TAG: "tuple", "value": items} if tagged else items


def _encode_set(value: Any, tagged: bool) -> Any:  # noqa: FBT001 -- of a table
    items = sorted(_encode_items(value, tagged), key=canonical_text)
    return {TAG: type(value).__name__, "value": items} if tagged else items


def _encode_dict(value: Any, tagged: bool) -> Any:  # noqa: FBT001 -- of a table
    keys = [_key(key, tagged=tagged) for key in value]
    if None in keys or TAG in keys:
        pairs = [
            [
                _encode_below(f"[{number}]", key, tagged=tagged),
                _encode_below(f"[{number}]", item, tagged=tagged),
            ]
            for number, (key, item) in enumerate(value.items())
        ]
        return {TAG: "dict", "value": pairs}
    return {
        text: _encode_below(f"[{text}]", item, tagged=tagged)
        for text, item in zip(keys, value.values(), strict=True)
    }


def _key(key: Any, *, tagged: bool) -> str | None:
    """Return the key of a mapping as JSON needs it, None if it is not text."""
    if type(key) is str or tagged:
        return key if type(key) is str else None
    made = encode(key, tagged=False)
    if type(made) in (int, float):
        return repr(made)
    return made if isinstance(made, str) else None


def _encode_below(step: str, value: Any, *, tagged: bool) -> Any:
    try:
        return encode(value, tagged=tagged)
    except Invalid as invalid:
        raise invalid.below(step) from None


def _encode_object(value: Any, *, tagged: bool) -> Any:
    kind = type(value)
    if isinstance(value, Enum):
        return _encode_member(value, tagged=tagged)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _tag(kind, _encode_items(value, tagged), tagged=tagged)
    if callable(getattr(kind, "model_validate", None)):
        data = encode(_model_data(value), tagged=False)
        return _tag(kind, data, tagged=tagged, state=_model_state(value))
    if attrs.has(kind) or dataclasses.is_dataclass(kind):
        taken, kept = _fields_of(value)
        data, state = (
            {
                key: _encode_below(key, getattr(value, name, None), tagged=tagged)
                for key, name in fields.items()
            }
            for fields in (taken, kept)
        )
        return _tag(kind, data, tagged=tagged, **({"state": state} if kept else {}))
    message = (
        f"is an instance of {kind.__qualname__}; say how to store it with "
        f"cmdx.wire.encodings.register({kind.__name__}, ...)"
    )
    raise Invalid(CODE, message)


def _encode_member(member: Enum, *, tagged: bool) -> Any:
    kind = type(member)
    if tagged:
        has_name = member.name in kind.__members__
        data = {"name": member.name} if has_name else {"number": member.value}
        return _tag(kind, data, tagged=True)
    value = member.value
    return value if type(value) in (str, int, bool) else member.name


def _model_data(model: Any) -> Any:
    """Return a pydantic model as JSON that it reads: by name, or else by alias."""
    data = None
    for by_alias in (False, True):
        try:
            data = model.model_dump(mode="json", warnings=False, by_alias=by_alias)
            type(model).model_validate(data)
        except (ValueError, TypeError):
            continue
        return data
    if data is None:
        raise Invalid(CODE, "has a model_dump that raises")
    return data


def _model_state(value: Any) -> Any:
    """Return the types inside a pydantic model, which its JSON does not tell."""
    if hasattr(value, "get_secret_value"):
        raise Invalid(CODE, "has a secret, which pydantic does not write as JSON")
    if isinstance(value, dict):
        return {str(key): _model_state(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_model_state(item) for item in value]
    if callable(getattr(type(value), "model_validate", None)):
        return [type(value).__qualname__, _model_state(vars(value))]
    return type(value).__qualname__


def _fields_of(value: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields that ``__init__`` takes, and the others: their keys, names."""
    kind: Any = type(value)
    if attrs.has(kind):
        fields = [(field.alias or field.name, field) for field in attrs.fields(kind)]
    else:
        fields = [(field.name, field) for field in dataclasses.fields(kind)]
    taken = {key: field.name for key, field in fields if field.init}
    return taken, {key: field.name for key, field in fields if not field.init}


def _moment(value: Any) -> list[Any]:
    """Return date and time of day, time zone and fold."""
    zone = value.tzinfo
    if zone is None or type(zone) is timezone:
        return [value.isoformat(), None, value.fold]
    if type(zone) is not ZoneInfo or zone.key is None:
        message = "has a time zone that cannot be stored; use zoneinfo.ZoneInfo"
        raise Invalid(CODE, message)
    return [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]


def _duration_text(value: timedelta) -> str:
    sign = "-" if value < timedelta() else ""
    try:
        size = abs(value)
    except OverflowError:
        raise Invalid(CODE) from None
    return f"{sign}P{size.days}DT{size.seconds}.{size.microseconds:06}S"


def _utf8_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Invalid(CODE) from None


SCALAR_ENCODINGS: dict[Any, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    Decimal: ("Decimal", str, str),
    Fraction: ("Fraction", str, str),
    complex: ("complex", str, lambda value: [repr(value.real), repr(value.imag)]),
    date: ("date", date.isoformat, date.isoformat),
    datetime: ("datetime", datetime.isoformat, _moment),
    time: ("time", time.isoformat, _moment),
    timedelta: (
        "timedelta",
        _duration_text,
        lambda value: [value.days, value.seconds, value.microseconds],
    ),
    UUID: ("UUID", str, str),
    type(Path()): ("Path", str, str),
    bytes: ("bytes", _utf8_text, lambda value: b64encode(value).decode()),
}
"""For each type: its tag, what writes it without a tag, and what writes it with one."""

CONTAINERS: dict[Any, Callable[[Any, bool], Any]] = {
    list: _encode_items,
    tuple: _encode_tuple,
    set: _encode_set,
    frozenset: _encode_set,
    dict: _encode_dict,
}


def is_storable(kind: type) -> bool:
    """Tell whether instances of a class can be stored, as far as its type tells."""
    if kind in SCALAR_ENCODINGS or kind in CONTAINERS or encodings.find(kind):
        return True
    is_record = attrs.has(kind) or dataclasses.is_dataclass(kind)
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    is_model = callable(getattr(kind, "model_validate", None))
    return is_record or is_tuple or is_model or issubclass(kind, Enum | dict | PurePath)


CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical_text(stored: Any) -> str:
    """Return JSON as text that is the same for the same values."""
    return CANONICAL.encode(_in_order(stored))


def _in_order(stored: Any) -> Any:
    """Return *stored* with the pairs of tagged mappings in order."""
    if isinstance(stored, list):
        return [_in_order(item) for item in stored]
    if not isinstance(stored, dict):
        return stored
    if stored.get(TAG) == "dict":
        return {TAG: "dict", "value": sorted(map(canonical_text, stored["value"]))}
    return {key: _in_order(item) for key, item in stored.items()}
