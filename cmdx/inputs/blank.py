"""
Blank text: what a form sends for an empty field.

It counts as not given, for an input and for a field of a nested class, unless text may
be a value of the annotation.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, TypeVar, get_args, get_origin

from cmdx.inputs.annotations import is_unchecked, union_members


def is_blank_text(value: Any) -> bool:
    """Tell whether *value* is text that has nothing but white space."""
    return isinstance(value, str) and not value.strip()


def admits_blank_text(annotation: Any) -> bool:
    """Tell whether blank text may be a value of *annotation*."""
    return any(map(_admits_blank, union_members(annotation)))


def _admits_blank(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(map(_is_blank_choice, get_args(kind)))
    if isinstance(kind, TypeVar) or kind in (Any, object):
        return True
    if not isinstance(kind, type):
        return False
    if issubclass(kind, Enum):
        return any(map(_is_blank_choice, kind))
    return issubclass(kind, str | bytes) or is_unchecked(kind)


def _is_blank_choice(choice: Any) -> bool:
    return is_blank_text(choice.value if isinstance(choice, Enum) else choice)
