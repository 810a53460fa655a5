"""
The one reader of ``Annotated`` metadata.

``constraints_in(annotation)`` yields what the metadata asks for, as names and values.
Validators, JSON Schema and the words of ``inspect`` are three tables over these names.

The metadata is read as annotated-types writes it, but by its attributes, so that no
library is needed:

- an object with attributes named like a constraint (``Ge(1).ge``) asks for these;
- a compiled pattern is the constraint ``pattern``, flags included;
- a group is read item by item;
- a callable is a validator of the user, ``validate``;
- an object with a callable ``func`` is a ``predicate``.

Everything else is ignored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from cmdx.inputs.annotations import layers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAMES = (
    "presence", "absence", "gt", "ge", "lt", "le", "multiple_of", "length",
    "min_length", "max_length", "pattern", "one_of", "none_of",
)  # fmt: skip
"""The constraints that are also options of ``required`` and ``optional``."""


class Constraint(NamedTuple):
    """One rule: a name of ``NAMES``, ``validate`` or ``predicate``, and its value."""

    name: str
    value: Any


def constraints_in(annotation: Any) -> Iterator[Constraint]:
    """Yield the constraints in the layers around a type, the innermost first."""
    for layer in reversed(layers_of(annotation)):
        if get_origin(layer) is Annotated:
            yield from constraints_of(get_args(layer)[1:])


def constraints_of(metadata: Iterable[Any]) -> Iterator[Constraint]:
    """Yield the constraints that the items of *metadata* ask for."""
    for item in metadata:
        named = _named_constraints(item)
        if isinstance(item, re.Pattern):  # itself, not its text: it has flags
            yield Constraint("pattern", item)
        elif named:
            yield from named
        elif hasattr(item, "__is_annotated_types_grouped_metadata__"):
            yield from constraints_of(item)
        elif callable(item) and not isinstance(item, type):
            yield Constraint("validate", item)
        elif callable(getattr(item, "func", None)):
            yield Constraint("predicate", item.func)


def _named_constraints(item: Any) -> list[Constraint]:
    values = ((name, getattr(item, name, None)) for name in NAMES)
    return [
        Constraint(name, value)
        for name, value in values
        if value is not None and not callable(value)
    ]
