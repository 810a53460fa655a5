"""
From an annotation to a callable that makes values of it.

``coercer(annotation)`` returns a function that takes text from a form or a value from
JSON and returns what the annotation promises, or raises ``Invalid``.
Nothing is converted at a loss: ``3.9`` is no ``int``, and ``"010"`` is ten.

A type of one's own is made known by ``coercions.register(Money, parse_money)``.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from fractions import Fraction
from itertools import repeat
from pathlib import Path, PurePath
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import attrs

from cmdx.exceptions import DefinitionError
from cmdx.validation import Invalid, check_all, constraints_of

Coercer: TypeAlias = Callable[[Any], Any]
T = TypeVar("T")

MOST_DIGITS = 4300
"""More digits than Python itself turns into a number without being told to."""

TRUE = frozenset({"true", "yes", "on", "y", "1", "t"})
FALSE = frozenset({"false", "no", "off", "n", "0", "f"})

WHOLE = re.compile(r"[+-]?[0-9]{1,4300}")
FRACTION = re.compile(r"[+-]?[0-9]{1,4300}(?:/[0-9]{1,4300}|\.[0-9]{1,4300})?")
DURATION = re.compile(
    r"([+-])?P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?"
)
AROUND_SIGN = re.compile(r"(?<=[0-9.]) ([+-]) (?=[0-9.j])")
CLOCK = re.compile(r"([0-9]{1,9}):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,9})?))?")


class Coercions:
    """How values of a type are made; register your own types here."""

    def __init__(self) -> None:
        self._by_type: dict[Any, Coercer] = {}

    def register(self, kind: type[T], coerce: Callable[[Any], T]) -> Callable[[Any], T]:
        """Have *coerce* make values of *kind*; it raises ``ValueError`` to refuse."""
        if not callable(coerce):
            message = f"the coercion of {kind!r} must be callable, got {coerce!r}."
            raise DefinitionError(message)
        made = by_callable(coerce)
        if isinstance(kind, type) and kind not in SCALARS:
            made = _unless_instance(kind, made)
        self._by_type[kind] = made
        _classes.clear()  # they may have parts of this kind
        return coerce

    def deregister(self, kind: type) -> None:
        """Forget how values of *kind* are made."""
        del self._by_type[kind]
        _classes.clear()

    def find(self, kind: Any) -> Coercer | None:
        """Return what makes values of *kind*, or None."""
        try:
            return self._by_type.get(kind)
        except TypeError:  # an annotation may be unhashable
            return None

    def __contains__(self, kind: object) -> bool:
        """Tell whether *kind* is known."""
        return self.find(kind) is not None


coercions = Coercions()


def by_callable(coerce: Callable[[Any], Any]) -> Coercer:
    """Have *coerce* refuse values by raising ``ValueError`` or ``TypeError``."""

    def coerced(value: Any) -> Any:
        try:
            return coerce(value)
        except (ValueError, TypeError) as error:
            code = getattr(error, "code", None) or "invalid"
            raise Invalid(code, str(error) or None) from None

    return coerced


def _unless_instance(kind: type, coerce: Coercer) -> Coercer:
    return lambda value: value if isinstance(value, kind) else coerce(value)


# -- the scalars -----------------------------------------------------------------------


def to_str(value: Any) -> str:
    """Take text, and numbers as text."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)  # str() of an Enum would be its name
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _made("str", str, value)
    raise Invalid("str")


def to_int(value: Any) -> int:
    """Take whole numbers, also as text or as a float without a fraction."""
    if type(value) is int:
        return value
    if isinstance(value, str) and WHOLE.fullmatch(text := value.strip()):
        return int(text)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Invalid("int")
    if isinstance(value, Decimal) and not (
        value.is_finite() and value.adjusted() < MOST_DIGITS
    ):
        raise Invalid("int")
    if not math.isfinite(value) or value != int(value):
        raise Invalid("int")
    return int(value)


def to_float(value: Any) -> float:
    """Take numbers, also as text; text must be finite."""
    if type(value) is float:
        return value
    if isinstance(value, str):
        return _finite("float", float, value)
    if isinstance(value, bool) or not isinstance(
        value, int | float | Decimal | Fraction
    ):
        raise Invalid("float")
    number = _made("float", float, value)
    if isinstance(value, int) and number != value:
        raise Invalid("float")  # too large to be told from its neighbours
    return number


def to_bool(value: Any) -> bool:
    """Take booleans, the words for them in any case, and 0 and 1."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    word = value.strip().lower() if isinstance(value, str) else None
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Invalid("bool")


def to_decimal(value: Any) -> Decimal:
    """Take numbers, also as text; a float counts as it is written."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Invalid("Decimal")
    text = str(value).strip() if isinstance(value, str | float) else value
    number = _made("Decimal", Decimal, text)
    if not number.is_finite() or (isinstance(text, str) and "_" in text):
        raise Invalid("Decimal")
    return number


def to_fraction(value: Any) -> Fraction:
    """Take numbers and texts such as ``1/3`` and ``0.25``."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Invalid("Fraction")
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, str):
        text = value.strip()
        if not FRACTION.fullmatch(text):
            raise Invalid("Fraction")
        return _made("Fraction", Fraction, text)
    number = Decimal(str(value))
    if not number.is_finite() or abs(number.adjusted()) >= MOST_DIGITS:
        raise Invalid("Fraction")
    return Fraction(number)


def to_complex(value: Any) -> complex:
    """Take numbers and texts such as ``1+2j``."""
    if isinstance(value, bool) or not isinstance(value, int | float | complex | str):
        raise Invalid("complex")
    if isinstance(value, str):
        value = AROUND_SIGN.sub(r"\1", value.strip())
        if "_" in value:
            raise Invalid("complex")
    return _made("complex", complex, value)


def to_date(value: Any) -> date:
    """Take dates, and texts in ISO 8601."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise Invalid("date")
    return _made("date", date.fromisoformat, value.strip())


def to_datetime(value: Any) -> datetime:
    """Take dates with time, and texts in ISO 8601."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise Invalid("datetime")
    return _made("datetime", datetime.fromisoformat, value.strip())


def to_time(value: Any) -> time:
    """Take times of day, and texts in ISO 8601."""
    if isinstance(value, time):
        return value
    if not isinstance(value, str):
        raise Invalid("time")
    return _made("time", time.fromisoformat, value.strip())


def to_timedelta(value: Any) -> timedelta:
    """Take durations, seconds, and texts: ``90``, ``1:30:00``, ``PT1H30M``."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Invalid("timedelta")
    if not isinstance(value, str):
        return _made("timedelta", _seconds, value)
    text = value.strip()
    if found := DURATION.fullmatch(text):
        return _made("timedelta", _from_iso, found)
    if found := CLOCK.fullmatch(text):
        hours, minutes, seconds = found.groups(default="0")
        total = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        return _made("timedelta", _seconds, total)
    return _made("timedelta", _seconds, _finite("timedelta", float, text))


def to_uuid(value: Any) -> UUID:
    """Take UUIDs and their texts."""
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str):
        raise Invalid("UUID")
    return _made("UUID", UUID, value.strip())


def to_path(value: Any) -> Path:
    """Take paths and texts."""
    if not isinstance(value, str | PurePath) or "\0" in str(value) or value == "":
        raise Invalid("Path")
    return Path(value)


def to_bytes(value: Any) -> bytes:
    """Take bytes, and text as UTF-8."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise Invalid("bytes")
    return _made("bytes", str.encode, value)


def as_is(value: Any) -> Any:
    """Take anything."""
    return value


SCALARS: dict[Any, Coercer] = {
    str: to_str,
    int: to_int,
    float: to_float,
    bool: to_bool,
    Decimal: to_decimal,
    Fraction: to_fraction,
    complex: to_complex,
    date: to_date,
    datetime: to_datetime,
    time: to_time,
    timedelta: to_timedelta,
    UUID: to_uuid,
    Path: to_path,
    PurePath: to_path,
    bytes: to_bytes,
    Any: as_is,
    object: as_is,
}

DATED = {date: "date", datetime: "datetime", time: "time"}


def to_formatted(kind: Any, form: str) -> Coercer:
    """Return a coercer for dates written in a form of ``strptime``."""
    code = DATED[kind]

    def coerced(value: Any) -> Any:
        if not isinstance(value, str):
            return SCALARS[kind](value)
        moment = _made(code, lambda text: datetime.strptime(text, form), value.strip())  # noqa: DTZ007 -- the form says
        return {date: datetime.date, time: datetime.timetz}.get(kind, as_is)(moment)

    return coerced


def _made(code: str, make: Callable[[Any], T], value: Any) -> T:
    try:
        return make(value)
    except (ValueError, TypeError, ArithmeticError, InvalidOperation):
        raise Invalid(code) from None


def _finite(code: str, make: Callable[[Any], float], text: str) -> float:
    number = _made(code, make, text)
    if not math.isfinite(number) or "_" in text:
        raise Invalid(code)
    return number


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def _from_iso(found: re.Match[str]) -> timedelta:
    sign, weeks, days, hours, minutes, seconds = found.groups()
    if found.group(0).rstrip("PT+-") == "" or found.group(0).endswith("T"):
        raise ValueError
    duration = timedelta(
        weeks=int(weeks or 0),
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=float(seconds or 0),
    )
    return -duration if sign == "-" else duration


# -- choosing a coercer ----------------------------------------------------------------


class Unknown(Exception):  # noqa: N818 -- it says what an annotation is
    """Nobody knows how to make values of an annotation."""

    def __init__(self, annotation: Any) -> None:
        super().__init__(annotation)
        self.annotation = annotation


def coercer(annotation: Any) -> Coercer:
    """Return a callable that makes values of *annotation*, or raise ``Unknown``."""
    registered = coercions.find(annotation)
    if registered is not None:
        return registered
    try:
        if annotation in SCALARS:
            return SCALARS[annotation]
    except TypeError:
        pass
    if annotation is None or annotation is type(None):
        return _to_none
    return _structured(annotation)


def admits_none(annotation: Any) -> bool:
    """Tell whether None is a value of *annotation*."""
    annotation = unwrapped(annotation)
    if annotation in (None, type(None), Any, object):
        return True
    if get_origin(annotation) is Literal:
        return None in get_args(annotation)
    members = get_args(annotation) if _is_union(annotation) else ()
    return any(admits_none(member) for member in members)


def unwrapped(annotation: Any) -> Any:
    """Strip ``Annotated``, ``NewType``, aliases and the qualifiers of TypedDict."""
    while (inner := within(annotation)) is not annotation:
        annotation = inner
    return annotation


def constraints_in(annotation: Any) -> list[Callable[[Any], None]]:
    """Return the checks in the layers around a type, the innermost first."""
    inner = within(annotation)
    if inner is annotation:
        return []
    own = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return [*constraints_in(inner), *constraints_of(own)]


def within(annotation: Any) -> Any:
    """Return what stands inside the outermost layer, *annotation* if there is none."""
    origin = get_origin(annotation)
    if origin is Annotated or _qualifies(origin):
        return get_args(annotation)[0]
    if hasattr(annotation, "__supertype__"):
        return annotation.__supertype__
    if isinstance(annotation, type | Enum):
        return annotation
    return getattr(annotation, "__value__", annotation)


def _structured(annotation: Any) -> Coercer:
    bare = unwrapped(annotation)
    if bare is not annotation:
        return constrained(coercer(bare), constraints_in(annotation))
    origin, args = get_origin(annotation), get_args(annotation)
    if _is_union(annotation):
        return _union(args)
    if origin is Literal:
        return _choice(args)
    kind = origin or annotation
    if kind in SEQUENCES:
        return _sequence(*SEQUENCES[kind], args)
    if kind is tuple:
        return _tuple(args)
    if kind in MAPPINGS:
        return _mapping(args)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if isinstance(annotation, type):
        return _class(annotation)
    raise Unknown(annotation)


def _qualifies(origin: Any) -> bool:
    qualifiers = ("Required", "NotRequired", "ReadOnly", "Final")
    return origin is not None and getattr(origin, "_name", None) in qualifiers


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def constrained(coerce: Coercer, checks: list[Callable[[Any], None]]) -> Coercer:
    """Have *checks* look at what *coerce* makes, all of them."""
    if not checks:
        return coerce

    def coerced(value: Any) -> Any:
        made = coerce(value)
        check_all(checks, made)
        return made

    return coerced


def _to_none(value: Any) -> None:
    if value is not None:
        raise Invalid("none")


# -- choices -------------------------------------------------------------------------


def _union(members: tuple[Any, ...]) -> Coercer:
    coercers = [(_runtime(member), coercer(member)) for member in members]
    kinds = ", ".join(described(member) for member in members)
    runtimes = {runtime for runtime, _ in coercers}
    makers = [coerce for runtime, coerce in coercers if runtime is not type(None)]

    def coerced(value: Any) -> Any:
        tried, kind = makers, type(value)
        if kind in runtimes:
            # A value that is of one of the types already is not made into another.
            tried = [coerce for runtime, coerce in coercers if runtime is kind]
            tried += [coerce for runtime, coerce in coercers if runtime is not kind]
        refusals: list[Invalid] = []
        for coerce in tried:
            try:
                return coerce(value)
            except Invalid as refusal:
                refusals.append(refusal)
        # A single candidate, or one that got somewhere, says more than a list of kinds.
        deep = [refusal for refusal in refusals if refusal.path]
        if len(makers) == 1 or len(deep) == 1:
            raise (deep or refusals)[0]
        raise Invalid("union", kinds=kinds)

    return coerced


def _runtime(annotation: Any) -> Any:
    """Return the type that values of *annotation* have."""
    bare = unwrapped(annotation)
    return dict if is_typeddict(bare) else get_origin(bare) or bare


def _choice(choices: tuple[Any, ...]) -> Coercer:
    exact = {(type(choice), choice): choice for choice in choices}
    for choice in choices:
        if isinstance(choice, Enum):  # callers may send its value
            exact.setdefault((type(choice.value), choice.value), choice)
    texts: dict[str, Any] = {}
    for (_, said), choice in exact.items():
        if said is not None:
            texts.setdefault(str(said), choice)
    listing = ", ".join(map(str, choices))

    def coerced(value: Any) -> Any:
        try:
            found = exact.get((type(value), value), exact)
        except TypeError:  # unhashable
            found = exact
        if found is exact and isinstance(value, str):
            found = texts.get(value.strip(), exact)
        if found is exact:
            raise Invalid("choice", choices=listing)
        return found

    return coerced


def _enum(kind: type[Enum]) -> Coercer:
    members = [member for member in kind if type(member.value).__hash__ is not None]
    by_value = _choice(tuple(member.value for member in members))
    names = kind.__members__

    def coerced(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        try:
            return kind(by_value(value))
        except Invalid:
            pass
        if isinstance(value, str) and value.strip() in names:
            return names[value.strip()]
        raise Invalid("choice", choices=", ".join(names))

    return coerced


# -- containers ----------------------------------------------------------------------


def _items_of(code: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(
        value, Iterable
    ):
        raise Invalid(code)
    return list(value)


def _each(coercers: Iterable[Coercer], items: Iterable[Any]) -> list[Any]:
    made, problems = [], []
    for index, (coerce, item) in enumerate(zip(coercers, items, strict=False)):
        try:
            made.append(coerce(item))
        except Invalid as invalid:
            problems.append(invalid.below(f"[{index}]"))
    if problems:
        raise Invalid.together(problems)
    return made


def _sequence(
    make: Callable[[list[Any]], Any], code: str, args: tuple[Any, ...]
) -> Coercer:
    coerce = coercer(args[0]) if args else as_is

    def coerced(value: Any) -> Any:
        items = _each(repeat(coerce), _items_of(code, value))
        return make(items) if make is list else _made(code, make, items)

    return coerced


def _tuple(args: tuple[Any, ...]) -> Coercer:
    if not args or args[-1] is ...:
        return _sequence(tuple, "tuple", args[:1])
    coercers = [coercer(arg) for arg in args]

    def coerced(value: Any) -> Any:
        items = _items_of("tuple", value)
        if len(items) != len(coercers):
            raise Invalid("length_of_tuple", length=len(coercers))
        return tuple(_each(coercers, items))

    return coerced


def _mapping(args: tuple[Any, ...]) -> Coercer:
    key_coercer, value_coercer = map(coercer, args or (Any, Any))

    def coerced(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise Invalid("dict")
        made, problems = {}, []
        for key in value:
            try:
                made[key_coercer(key)] = value_coercer(value[key])
            except Invalid as invalid:
                problems.append(invalid.below(f"[{_shown(key)}]"))
            except TypeError:  # a key that was made cannot be hashed
                problems.append(Invalid("dict").below(f"[{_shown(key)}]"))
        if problems:
            raise Invalid.together(problems)
        return made

    return coerced


def _shown(key: Any) -> str:
    if isinstance(key, str):
        return key
    try:
        return repr(key)
    except Exception:  # an int too long to be written, or code of users
        return f"<{type(key).__name__}>"


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
MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


# -- classes with fields ---------------------------------------------------------------


@dataclasses.dataclass
class Part:
    """One field of a class."""

    key: str
    name: str
    annotation: Any
    required: bool
    coerce: Coercer = as_is


_classes: dict[type, Coercer] = {}


def _class(kind: type) -> Coercer:
    if kind not in _classes:
        parts_of(kind)  # raises Unknown for what is no class with fields
        # Put in first: a class may have fields of its own type.
        made: list[Coercer] = []
        _classes[kind] = lambda value: made[0](value)  # noqa: PLW0108 -- later
        try:
            made.append(_fields(kind))
            _classes[kind] = made[0]
        except BaseException:
            del _classes[kind]
            raise
    return _classes[kind]


def _fields(kind: type) -> Coercer:
    parts = parts_of(kind)
    for part in parts:
        part.coerce = coercer(part.annotation)
    make: Callable[..., Any] = dict if is_typeddict(kind) else kind

    def coerced(value: Any) -> Any:
        if make is kind and isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise Invalid("object", name=kind.__name__)
        made, problems = {}, []
        for part in parts:
            try:
                if part.key in value:
                    made[part.name] = part.coerce(value[part.key])
                elif part.required:
                    raise Invalid("required")  # noqa: TRY301 -- collected below
            except Invalid as invalid:
                problems.append(invalid.below(part.key))
        if problems:
            raise Invalid.together(problems)
        return by_callable(lambda fields: make(**fields))(made)

    return coerced


def parts_of(kind: type) -> list[Part]:
    """Return the fields of an attrs class, a dataclass or a TypedDict."""
    if attrs.has(kind):
        hints = _hints(kind)
        return [
            Part(
                field.alias or field.name,
                field.alias or field.name,
                hints.get(field.name, Any),
                field.default is attrs.NOTHING,
            )
            for field in attrs.fields(kind)
            if field.init
        ]
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        missing = dataclasses.MISSING
        return [
            Part(
                field.name,
                field.name,
                hints[field.name],
                field.default is missing and field.default_factory is missing,
            )
            for field in dataclasses.fields(kind)
            if field.init
        ]
    if is_typeddict(kind):
        needed: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
        return [
            Part(name, name, annotation, _is_needed(annotation, name in needed))
            for name, annotation in _hints(kind).items()
        ]
    raise Unknown(kind)


def _is_needed(annotation: Any, declared: bool) -> bool:  # noqa: FBT001 -- a fact
    """Tell whether a key must be there; text hides ``NotRequired`` from TypedDict."""
    while get_origin(annotation) is Annotated or _qualifies(get_origin(annotation)):
        name = getattr(get_origin(annotation), "_name", "")
        if name in ("Required", "NotRequired"):
            return name == "Required"
        annotation = get_args(annotation)[0]
    return declared


def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def described(annotation: Any) -> str:
    """Return how people would write *annotation*."""
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")
