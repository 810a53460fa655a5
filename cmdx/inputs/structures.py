"""
The structures: unions, choices and containers.

Each function returns a coercer. Those for types made of other types are given
*coercer_of*, which returns the coercer of a part.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag
from itertools import repeat
from typing import Any, TypeAlias, get_origin, is_typeddict

from cmdx.inputs.annotations import annotation_text, bare_annotation
from cmdx.inputs.errors import Invalid
from cmdx.inputs.scalars import Coercer, as_is

CoercerOf: TypeAlias = Callable[[Any], Coercer]

# -- choices -------------------------------------------------------------------------


def union_coercer(members: tuple[Any, ...], coercer_of: CoercerOf) -> Coercer:
    """Take a value of one of the types as it is, or make the first that fits."""
    coercers = [(_runtime_type(member), coercer_of(member)) for member in members]
    kinds = ", ".join(annotation_text(member) for member in members)
    runtimes = {runtime for runtime, _ in coercers}
    candidates = [coerce for runtime, coerce in coercers if runtime is not type(None)]

    def coerce_union(value: Any) -> Any:
        tried, kind = candidates, type(value)
        if kind in runtimes:
            # A value that already has one of the types is not converted to another.
            tried = [coerce for runtime, coerce in coercers if runtime is kind]
            tried += [coerce for runtime, coerce in coercers if runtime is not kind]
        refusals: list[Invalid] = []
        for coerce in tried:
            try:
                return coerce(value)
            except Invalid as refusal:
                refusals.append(refusal)
        # One candidate, or one that failed further inside, says more than the kinds.
        deep = [refusal for refusal in refusals if refusal.path]
        if len(candidates) == 1 or len(deep) == 1:
            raise (deep or refusals)[0]
        raise Invalid("union", kinds=kinds)

    return coerce_union


def _runtime_type(annotation: Any) -> Any:
    """Return the type that values of *annotation* have."""
    bare = bare_annotation(annotation)
    return dict if is_typeddict(bare) else get_origin(bare) or bare


def choice_coercer(choices: tuple[Any, ...]) -> Coercer:
    """Take one of *choices*, also as text."""
    exact = {(type(choice), choice): choice for choice in choices}
    for choice in choices:
        if isinstance(choice, Enum):  # callers may send its value
            exact.setdefault((type(choice.value), choice.value), choice)
    texts: dict[str, Any] = {}
    for (_, value), choice in exact.items():
        if value is not None:
            texts.setdefault(str(value), choice)
    listing = ", ".join(map(str, choices))

    def coerce_choice(value: Any) -> Any:
        try:
            found = exact.get((type(value), value), exact)
        except TypeError:  # unhashable
            found = exact
        if found is exact and isinstance(value, str):
            found = texts.get(value.strip(), exact)
        if found is exact:
            raise Invalid("choice", choices=listing)
        return found

    return coerce_choice


def enum_coercer(kind: type[Enum]) -> Coercer:
    """Take members of *kind*, their values and their names."""
    members = [member for member in kind if type(member.value).__hash__ is not None]
    value_of = choice_coercer(tuple(member.value for member in members))
    names = kind.__members__

    def coerce_enum(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        try:
            return kind(value_of(value))
        except Invalid:
            pass
        if isinstance(value, str) and value.strip() in names:
            return names[value.strip()]
        member = _computed_member(kind, value)
        if member is None:
            raise Invalid("choice", choices=", ".join(names))
        return member

    return coerce_enum


def _computed_member(kind: type[Enum], value: Any) -> Enum | None:
    """Ask *kind* itself: flags combine, values may be lists, ``_missing_`` decides."""
    if issubclass(kind, Flag) and isinstance(value, str):
        value = int(value) if value.strip().isdecimal() else value
    try:
        member = kind(value)
    except (ValueError, TypeError):
        return None
    # True == 1, but True is not the value of a member whose value is 1.
    is_equal = member.value == value and type(member.value) is not type(value)
    return None if is_equal else member


# -- containers ----------------------------------------------------------------------

SEQUENCES: dict[Any, tuple[Callable[[list[Any]], Any], str]] = {
    list: (list, "list"),
    abc.Sequence: (list, "list"),
    abc.MutableSequence: (list, "list"),
    abc.Iterable: (list, "list"),
    abc.Collection: (list, "list"),
    set: (set, "set"),
    abc.Set: (set, "set"),
    abc.MutableSet: (set, "set"),
    frozenset: (frozenset, "set"),
}
"""For each sequence type: what makes it of a list, and the code of its problem."""

MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


def sequence_coercer(
    make: Callable[[list[Any]], Any],
    code: str,
    args: tuple[Any, ...],
    coercer_of: CoercerOf,
) -> Coercer:
    """Take iterables other than text, bytes and mappings, and coerce each item."""
    coerce = coercer_of(args[0]) if args else as_is

    def coerce_sequence(value: Any) -> Any:
        items = _coerce_items(repeat(coerce), _items_of(code, value))
        try:
            return make(items)
        except TypeError:  # an item is not hashable
            raise Invalid("set_item") from None

    return coerce_sequence


def tuple_coercer(args: tuple[Any, ...], coercer_of: CoercerOf) -> Coercer:
    """Take what a list takes; ``tuple[A, B]`` also counts the items."""
    if not args or args[-1] is ...:
        return sequence_coercer(tuple, "tuple", args[:1], coercer_of)
    coercers = [coercer_of(arg) for arg in args]

    def coerce_tuple(value: Any) -> Any:
        items = _items_of("tuple", value)
        if len(items) != len(coercers):
            raise Invalid("length_of_tuple", length=len(coercers))
        return tuple(_coerce_items(coercers, items))

    return coerce_tuple


def mapping_coercer(args: tuple[Any, ...], coercer_of: CoercerOf) -> Coercer:
    """Take mappings, and coerce each key and value."""
    coerce_key, coerce_value = map(coercer_of, args or (Any, Any))

    def coerce_mapping(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise Invalid("dict")
        made, problems = {}, []
        for key in value:
            try:
                made[coerce_key(key)] = coerce_value(value[key])
            except Invalid as invalid:
                problems.append(invalid.below(f"[{_key_text(key)}]"))
            except TypeError:  # the coerced key is not hashable
                problems.append(Invalid("dict").below(f"[{_key_text(key)}]"))
        if problems:
            raise Invalid.together(problems)
        return made

    return coerce_mapping


def _items_of(code: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(
        value, Iterable
    ):
        raise Invalid(code)
    return list(value)


def _coerce_items(coercers: Iterable[Coercer], items: Iterable[Any]) -> list[Any]:
    made, problems = [], []
    for index, (coerce, item) in enumerate(zip(coercers, items, strict=False)):
        try:
            made.append(coerce(item))
        except Invalid as invalid:
            problems.append(invalid.below(f"[{index}]"))
    if problems:
        raise Invalid.together(problems)
    return made


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    try:
        return repr(key)
    except Exception:  # an int with too many digits, or user code
        return f"<{type(key).__name__}>"
