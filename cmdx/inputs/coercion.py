"""
From an annotation to a coercer: a callable that makes values of it.

``coercer(annotation)`` returns a function that takes text from a form or a value from
JSON and returns what the annotation promises, or raises ``Invalid``.

1. a type that was registered with ``coercions.register`` comes first
2. then the scalars, ``str`` to ``UUID``
3. then unions, choices and containers
4. then classes with fields, and models
5. any other class takes its instances; what cannot be checked takes anything

Add a type of your own with ``coercions.register(Money, parse_money)``.
"""

from __future__ import annotations

from collections import abc
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ForwardRef,
    Literal,
    TypeVar,
    get_args,
    get_origin,
)

from cmdx.declare.signatures import awaits
from cmdx.exceptions import DefinitionError
from cmdx.inputs.annotations import (
    bare_annotation,
    evaluated_annotation,
    inner_annotation,
    is_alias,
    is_unchecked,
    is_union,
    module_names,
)
from cmdx.inputs.classes import (
    Part,
    callable_coercer,
    coerce_function,
    instance_coercer,
    model_coercer,
    object_coercer,
    parts_of,
    subclass_coercer,
)
from cmdx.inputs.errors import Invalid
from cmdx.inputs.scalars import SCALAR_COERCERS, Coercer, as_is
from cmdx.inputs.structures import (
    MAPPINGS,
    SEQUENCES,
    choice_coercer,
    enum_coercer,
    mapping_coercer,
    sequence_coercer,
    tuple_coercer,
    union_coercer,
)
from cmdx.inputs.validation import Check, check_all, checks_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Coercions:
    """The coercers of registered types; register your own types here."""

    def __init__(self) -> None:
        self._by_type: dict[Any, Coercer] = {}

    def register(self, kind: type[T], coerce: Callable[[Any], T]) -> Callable[[Any], T]:
        """Use *coerce* to make values of *kind*; it raises ``ValueError`` to refuse."""
        if not callable(coerce):
            message = f"the coercion of {kind!r} must be callable, got {coerce!r}."
            raise DefinitionError(message)
        if awaits(coerce):
            message = (
                f"the coercion of {kind!r} is async, but inputs are resolved without "
                "awaiting. Register a plain function."
            )
            raise DefinitionError(message)
        made = callable_coercer(coerce)
        if isinstance(kind, type) and kind not in SCALAR_COERCERS:
            made = _unless_instance(kind, made)
        self._by_type[kind] = made
        return coerce

    def deregister(self, kind: type) -> None:
        """Remove the coercion of *kind*."""
        del self._by_type[kind]

    def find(self, kind: Any) -> Coercer | None:
        """Return the coercer registered for *kind*, or None."""
        try:
            return self._by_type.get(kind)
        except TypeError:  # an annotation may be unhashable
            return None

    def __contains__(self, kind: object) -> bool:
        """Tell whether *kind* is registered."""
        return self.find(kind) is not None


coercions = Coercions()


def _unless_instance(kind: type, coerce: Coercer) -> Coercer:
    return lambda value: value if isinstance(value, kind) else coerce(value)


class Unknown(Exception):  # noqa: N818 -- it says what an annotation is
    """No coercer exists for an annotation."""

    def __init__(self, annotation: Any) -> None:
        super().__init__(annotation)
        self.annotation = annotation


def coercer(annotation: Any, names: Mapping[str, Any] = EMPTY) -> Coercer:
    """
    Return a callable that makes values of *annotation*, or raise ``Unknown``.

    *names* are those of the module, for aliases that name themselves in quotes.
    """
    return _Choice(names).coercer_of(annotation)


def with_checks(coerce: Coercer, checks: list[Check]) -> Coercer:
    """Return *coerce* followed by all *checks*."""
    if not checks:
        return coerce
    check = checks[0] if len(checks) == 1 else partial(check_all, checks)

    def coerce_and_check(value: Any) -> Any:
        made = coerce(value)
        check(made)
        return made

    return coerce_and_check


class _Choice:
    """
    The choice of one coercer and of those for its parts.

    A type may contain itself, so the coercers being made are remembered, but only here:
    other threads never see an unfinished one, and no class is kept alive by a cache.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._made: dict[Any, Coercer] = {}

    def coercer_of(self, annotation: Any) -> Coercer:
        if isinstance(annotation, ForwardRef):
            return self._once(annotation, lambda: self._referred_coercer(annotation))
        coerce = self._type_coercer(annotation)
        return with_checks(coerce, checks_in(annotation))

    def _referred_coercer(self, reference: ForwardRef) -> Coercer:
        """Return the coercer of an alias that names itself in quotes."""
        return self.coercer_of(evaluated_annotation(reference, self._names, {}))

    def _type_coercer(self, annotation: Any) -> Coercer:
        known = coercions.find(annotation) or _scalar_coercer(annotation)
        if known is not None:
            return known
        if (inner := inner_annotation(annotation)) is annotation:
            return self._structure_coercer(annotation)
        if is_alias(bare_annotation(annotation)):
            raise Unknown(annotation)
        if is_alias(annotation):
            return self._once(annotation, lambda: self._type_coercer(inner))
        return self._type_coercer(inner)

    def _structure_coercer(self, annotation: Any) -> Coercer:
        origin, args = get_origin(annotation), get_args(annotation)
        if is_union(annotation):
            return union_coercer(args, self.coercer_of)
        if origin is Literal:
            return choice_coercer(args)
        if isinstance(annotation, TypeVar):
            return self._variable_coercer(annotation)
        kind = origin or annotation
        if not isinstance(kind, type):
            raise Unknown(annotation)
        return self._kind_coercer(annotation, kind, args)

    def _kind_coercer(
        self, annotation: Any, kind: Any, args: tuple[Any, ...]
    ) -> Coercer:
        if kind in SEQUENCES:
            return sequence_coercer(*SEQUENCES[kind], args, self.coercer_of)
        if kind is tuple:
            return tuple_coercer(args, self.coercer_of)
        if kind in MAPPINGS:
            return mapping_coercer(args, self.coercer_of)
        if kind is abc.Callable:
            return coerce_function
        if kind is type:
            return subclass_coercer(args[0] if args else object)
        if issubclass(kind, Enum):
            return enum_coercer(kind)
        return self._once(annotation, lambda: self._class_coercer(annotation, kind))

    def _variable_coercer(self, variable: TypeVar) -> Coercer:
        """Return the coercer of what a type variable is bound to, if it is."""
        if variable.__constraints__:
            return union_coercer(variable.__constraints__, self.coercer_of)
        return self.coercer_of(variable.__bound__ or Any)

    def _class_coercer(self, annotation: Any, kind: type) -> Coercer:
        if callable(getattr(kind, "model_validate", None)):
            return model_coercer(kind)
        parts = parts_of(annotation)
        if parts is not None:
            return self._object_coercer(kind, parts)
        if is_unchecked(kind):
            return as_is
        return instance_coercer(kind)

    def _object_coercer(self, kind: type, parts: list[Part]) -> Coercer:
        names = self._names
        self._names = module_names(kind)
        try:
            return object_coercer(kind, parts, self.coercer_of)
        finally:
            self._names = names

    def _once(self, key: Any, make: Callable[[], Coercer]) -> Coercer:
        """Make a coercer; what asks for it while it is being made gets it later."""
        try:
            hash(key)
        except TypeError:  # such as Box[Annotated[int, [...]]]
            return make()
        if key not in self._made:
            made: list[Coercer] = []
            self._made[key] = lambda value: made[0](value)  # noqa: PLW0108 -- later
            made.append(make())
            self._made[key] = made[0]
        return self._made[key]


def _scalar_coercer(annotation: Any) -> Coercer | None:
    if annotation is None or annotation is type(None):
        return _to_none
    try:
        return SCALAR_COERCERS.get(annotation)
    except TypeError:  # an annotation may be unhashable
        return None


def _to_none(value: Any) -> None:
    if value is not None:
        raise Invalid("none")
