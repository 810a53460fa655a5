"""
Objects of any class as text and as JSON.

An object may be huge, contain itself, or have a ``__repr__`` that raises. Showing it
never raises, and the short text of plain data takes as long as what is shown is long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_VALUE = 60
"""How many characters of the repr of a value are shown."""
DEEPEST_DATA = 100
"""How many levels of nested data are written as JSON."""

BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
TEXTS = (str, bytes, bytearray)
HIDDEN_NAMES = (
    r"passw|passphrase|secret|token|credential|api_?key|private_?key|auth(?!or(?!i))"
)
USER_IN_URL = r"(?<=://)[^/\s]+@"
LONGEST_USER = 1000
"""How many characters of a text are searched for the user of a URL."""
HIDDEN = "(hidden)"
PLAIN_MODULES = ("builtins", "datetime", "decimal", "fractions", "pathlib", "uuid")
"""Where the classes are whose repr cannot contain a secret."""
NOT_NUMBERS_IN_JSON = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


# -- text -----------------------------------------------------------------------------


def value_text(value: object, *, hides_secrets: bool = False) -> str:
    """Return the repr of *value*, cut off where it gets too long for one line."""
    text = ""
    pieces = repr_pieces(value, LONGEST_VALUE + 1, hides_secrets=hides_secrets)
    try:
        for piece in pieces:
            text += piece
            if len(text) > LONGEST_VALUE:
                return f"{text[:LONGEST_VALUE]}…"
    except Exception:  # another thread changes the value meanwhile
        return class_text(value)
    return text


def whole_text(value: object) -> str:
    """Return the repr of *value*, in which what has no repr is shown by its class."""
    try:
        return "".join(repr_pieces(value, None))
    except Exception:  # it contains itself, or another thread changes it meanwhile
        return class_text(value)


def repr_pieces(
    value: Any, longest: int | None, *, hides_secrets: bool = False
) -> Iterator[str]:
    """
    Yield the repr of *value* in pieces, so that plain data need not be shown whole.

    Of a text only the first *longest* characters are shown. There is no end to data
    that contains itself.
    """
    kind = type(value)
    if hides_secrets and kind is str:
        yield repr(hide_user(value[:LONGEST_USER])[:longest])
    elif kind in TEXTS:
        yield repr(value[:longest])
    elif kind in BRACKETS and value:
        opening, closing = BRACKETS[kind]
        yield opening
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from repr_pieces(item, longest, hides_secrets=hides_secrets)
            if kind is dict:
                yield ": "
                if hides_secrets and is_secret_name(item):
                    yield HIDDEN
                    continue
                yield from repr_pieces(
                    value[item], longest, hides_secrets=hides_secrets
                )
        yield f",{closing}" if kind is tuple and len(value) == 1 else closing
    else:
        yield harmless_text(value) if hides_secrets else own_repr(value)


def harmless_text(value: object) -> str:
    """Return the repr of a value that cannot contain a secret, else its class."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    is_plain = type(value).__module__.partition(".")[0] in PLAIN_MODULES
    return own_repr(value) if is_plain else class_text(value)


def is_secret_name(name: object) -> bool:
    """Tell whether what is called *name* should not be shown."""
    return re.search(HIDDEN_NAMES, plain_text(name), re.IGNORECASE) is not None


def hide_user(text: str) -> str:
    """Return *text* without the users and passwords of URLs."""
    return re.sub(USER_IN_URL, "***@", text)


def own_repr(value: object) -> str:
    """Return what *value* says about itself, or its class if it cannot."""
    try:
        return repr(value)
    except Exception:
        return class_text(value)


def plain_text(value: object) -> str:
    """Return *value* as ``str`` does, or as its repr if that raises."""
    try:
        return str(value)
    except Exception:
        return whole_text(value)


def text_of(value: Any) -> str:
    """Return text as it is, and anything else as ``str`` does, or as its repr."""
    if issubclass(type(value), str):
        return str.__str__(value)  # a subclass may show another text
    return plain_text(value)


def encodable_text(value: object) -> str:
    """Return *value* as text that UTF-8 can encode: lone surrogates are replaced."""
    text = text_of(value)
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def class_text(value: object) -> str:
    """Return text for a *value* that cannot be shown."""
    return f"<{type(value).__qualname__}>"


# -- JSON -----------------------------------------------------------------------------


def json_text(value: object, *, ascii_only: bool = False) -> str:
    """Return *value* as JSON; see ``json_data`` for what JSON does not know."""
    import json

    text = json.dumps(json_data(value), ensure_ascii=ascii_only, allow_nan=False)
    # Lone surrogates cannot be encoded; this turns them into the escapes of JSON.
    return text.encode("utf-8", "backslashreplace").decode()


def json_data(value: Any, around: tuple[int, ...] = ()) -> Any:
    """
    Return *value* as data that JSON knows.

    Keys of mappings become text, NaN and infinities their names, and what JSON does not
    know its repr. Three dots stand for data that contains itself or is nested too deep;
    *around* has the ids of the containers that *value* is in.
    """
    kind = type(value)  # not ``isinstance``: that asks the value for its class
    if value is None or issubclass(kind, str):
        return value
    if issubclass(kind, float):
        return NOT_NUMBERS_IN_JSON.get(float.__repr__(value), value)
    try:
        if issubclass(kind, int):
            int.__repr__(value)  # raises if there are thousands of digits
            return value
        if issubclass(kind, (Mapping, list, tuple)):
            return container_data(value, around)
    except Exception:
        return whole_text(value)
    return whole_text(value)


def container_data(value: Any, around: tuple[int, ...]) -> Any:
    """Return a mapping, list or tuple as data that JSON knows."""
    if id(value) in around or len(around) >= DEEPEST_DATA:
        return "..."
    inside = (*around, id(value))
    if issubclass(type(value), Mapping):
        return {key_text(key): json_data(entry, inside) for key, entry in value.items()}
    return [json_data(item, inside) for item in value]


def key_text(key: Any) -> str:
    """Return the key of a mapping as text, as JSON needs it."""
    return key if issubclass(type(key), str) else whole_text(key)


def plain_code(value: object) -> str | int | None:
    """Return the code that is a text, a number or an enum member; None for others."""
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str | int) else value.name
    if isinstance(value, str):
        return text_of(value) or None
    if not isinstance(value, int) or isinstance(value, bool) or value == 0:
        return None
    return value if json_data(value) is value else None  # it has thousands of digits
