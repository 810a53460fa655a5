"""
Annotations taken apart: layers, aliases, unions, type variables, and their text.

A layer wraps a type without being one: ``Annotated``, ``NewType``, an
alias, and the qualifiers ``Required``, ``NotRequired``, ``ReadOnly`` and ``Final``.
"""

from __future__ import annotations

import sys
from enum import Enum
from types import SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final")


def inner_annotation(annotation: Any) -> Any:
    """Return what the outermost layer contains, *annotation* if there is no layer."""
    origin = get_origin(annotation)
    if origin is Annotated or is_qualifier(origin):
        return get_args(annotation)[0]
    if hasattr(annotation, "__supertype__"):
        return annotation.__supertype__
    if not is_alias(annotation):
        return annotation
    if origin is None:
        return annotation.__value__
    types = dict(zip(origin.__type_params__, get_args(annotation), strict=False))
    return substitute(origin.__value__, types)


def layers_of(annotation: Any) -> list[Any]:
    """Return *annotation* and what its layers contain, the outermost first."""
    layers = [annotation]
    while (inner := inner_annotation(layers[-1])) is not layers[-1]:
        if any(inner is layer for layer in layers):
            break  # aliases of each other, and of nothing else
        layers.append(inner)
    return layers


def bare_annotation(annotation: Any) -> Any:
    """Return *annotation* without any layers."""
    return layers_of(annotation)[-1]


def is_alias(annotation: Any) -> bool:
    """Tell whether *annotation* is an alias made by a ``type`` statement."""
    alias = get_origin(annotation) or annotation
    if isinstance(alias, type | Enum):
        return False
    return hasattr(alias, "__value__") and hasattr(alias, "__type_params__")


def is_qualifier(origin: Any) -> bool:
    """Tell whether *origin* qualifies a type, as ``NotRequired[...]`` does."""
    return origin is not None and getattr(origin, "_name", None) in QUALIFIERS


def is_union(annotation: Any) -> bool:
    """Tell whether *annotation* is ``A | B`` or ``Optional[A]``."""
    return get_origin(annotation) in (Union, UnionType)


def union_members(annotation: Any) -> list[Any]:
    """Return the types of a union, without layers; otherwise the bare type alone."""
    members: list[Any] = []
    unseen = [annotation]
    while unseen:
        bare = bare_annotation(unseen.pop())
        if any(bare is member for member in members):
            continue
        members.append(bare)
        if is_union(bare):
            unseen += reversed(get_args(bare))
    return [member for member in members if not is_union(member)]


def admits_none(annotation: Any) -> bool:
    """Tell whether None is a value of *annotation*."""
    return any(
        None in get_args(member)
        if get_origin(member) is Literal
        else member in (None, type(None), Any, object)
        for member in union_members(annotation)
    )


def is_unchecked(kind: type) -> bool:
    """Tell whether *kind* is a protocol that ``isinstance`` cannot check."""
    is_protocol = getattr(kind, "_is_protocol", False)
    return bool(is_protocol and not getattr(kind, "_is_runtime_protocol", False))


def substitute(annotation: Any, types: Mapping[Any, Any]) -> Any:
    """Return *annotation* with type variables replaced by those of *types*."""
    if isinstance(annotation, TypeVar):
        return types.get(annotation, annotation)
    variables = getattr(annotation, "__parameters__", ())
    if not variables or not types or isinstance(annotation, type):
        return annotation
    try:
        return annotation[tuple(types.get(name, name) for name in variables)]
    except TypeError:  # parameters that are lists of types, as those of a Callable
        return annotation


def type_arguments(annotation: Any) -> dict[type, Mapping[Any, Any]]:
    """Return, for a class and each of its bases, the types of its type variables."""
    kind = get_origin(annotation) or annotation
    variables = getattr(kind, "__parameters__", ())
    types = dict(zip(variables, get_args(annotation), strict=False))
    found: dict[type, Mapping[Any, Any]] = {kind: types}
    for base in vars(kind).get("__orig_bases__", kind.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and origin not in (Generic, Protocol):
            above = type_arguments(substitute(base, types))
            found.update({cls: above[cls] for cls in above if not found.get(cls)})
    return found


def owner_of(kind: type, name: str) -> type:
    """Return the class whose body annotates the attribute *name* of *kind*."""
    owners = (
        base for base in kind.__mro__ if name in getattr(base, "__annotations__", ())
    )
    return next(owners, kind)


def evaluated_annotation(
    annotation: Any, names: Mapping[str, Any], local: Mapping[str, Any]
) -> Any:
    """Return *annotation* with its names looked up, or raise ``NameError``."""
    # A class, because ClassVar and Final are allowed only there.
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    try:
        hints = get_type_hints(holder, dict(names), dict(local), include_extras=True)
    except TypeError:
        return annotation
    return hints["it"]


def module_names(cls: type) -> dict[str, Any]:
    """Return the names of the module that defines *cls*."""
    return vars(sys.modules.get(cls.__module__, SimpleNamespace()))


def annotation_text(annotation: Any) -> str:
    """Return *annotation* as people write it, without constraints and modules."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated or is_qualifier(origin):
        return annotation_text(args[0])
    if is_union(annotation):
        return " | ".join(map(annotation_text, args))
    if origin is Literal:
        return f"Literal[{', '.join(map(_choice_text, args))}]"
    if isinstance(annotation, list):  # the arguments of a Callable
        return f"[{', '.join(map(annotation_text, annotation))}]"
    if origin is not None:
        return f"{annotation_text(origin)}[{', '.join(map(annotation_text, args))}]"
    return _name_text(annotation)


def local_name(name: str) -> str:
    """Return a qualified name without the functions it was defined in."""
    return name.rpartition("<locals>.")[2]


def _choice_text(choice: Any) -> str:
    if isinstance(choice, Enum):
        return f"{type(choice).__name__}.{choice.name}"
    return repr(choice)


def _name_text(annotation: Any) -> str:
    if annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    for attribute in ("__qualname__", "__name__", "__forward_arg__"):
        if isinstance(name := getattr(annotation, attribute, None), str):
            return local_name(name)
    return str(annotation).replace("typing.", "")
