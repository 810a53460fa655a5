"""
What a task takes: fields declared as annotations, resolved before ``work``.

1. a class body says ``x: int``, ``x: int = 3``, ``required(...)`` or ``optional(...)``
2. the fields of a class and its ancestors are folded into ``Input`` values
3. each is compiled into an ``InputPlan`` by ``cmdx.resolving``
4. at the start of a run ``resolve`` takes each value through
   source → present? → default → coerce → transform → validate,
   and collects every problem before the task fails
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    get_origin,
    get_type_hints,
    overload,
)

import attrs

from cmdx.context import MISSING
from cmdx.exceptions import DefinitionError, did_you_mean
from cmdx.gates import Gate, check_gates
from cmdx.outputs import Output
from cmdx.validation import VALIDATORS, Invalid

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping
    from typing import Self, Unpack

    from cmdx.coercion import Coercer
    from cmdx.invocation import Invocation
    from cmdx.task import Task

T = TypeVar("T")

# -- what one line says --------------------------------------------------------------


class SourcedOptions(TypedDict, total=False):
    """The options of an input that callers do not give."""

    alias: str
    coerce: Callable[[Any], Any] | bool
    transform: Callable[[Any], Any]
    validate: Callable[[Any], Any] | Iterable[Callable[[Any], Any]]
    if_: Gate | None
    unless: Gate | None
    description: str
    format: str
    presence: bool
    absence: bool
    gt: Any
    ge: Any
    lt: Any
    le: Any
    multiple_of: Any
    length: int
    min_length: int
    max_length: int
    pattern: str | re.Pattern[str]
    one_of: Iterable[Any]
    none_of: Iterable[Any]


class InputOptions(SourcedOptions, total=False):
    """The options that ``required`` and ``optional`` share."""

    source: str | Callable[..., Any]


@attrs.frozen(eq=False)
class Field:
    """What ``required(...)`` or ``optional(...)`` said; stands in the class body."""

    required: bool
    default: Any = MISSING
    factory: Callable[..., Any] | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def __get__(self, task: object, cls: type | None = None) -> Field:
        """Be readable on the class alone; a task has the value once it is resolved."""
        if task is None:
            return self
        message = (
            "this input has no value yet. Inputs are resolved before work is called."
        )
        raise AttributeError(message, obj=task)


class Private:
    """What ``private()`` said: an annotation that is no field."""


@overload
def required(
    *,
    source: str | Callable[..., Any],
    init: Literal[False] = False,
    **options: Unpack[SourcedOptions],
) -> Any: ...
@overload
def required(**options: Unpack[InputOptions]) -> Any: ...
def required(**options: Any) -> Any:
    """Declare an input that must be given, or that *source* must provide."""
    for name in ("default", "factory"):
        if name in options:
            message = (
                f"required() takes no {name}: an input with a {name} need not be "
                f"given. Use optional({name}=...)."
            )
            raise DefinitionError(message)
    return Field(required=True, options=_checked("required", options))


@overload
def optional(
    *,
    default: T,
    source: str | Callable[..., Any],
    init: Literal[False] = False,
    **options: Unpack[SourcedOptions],
) -> T: ...
@overload
def optional(
    *,
    factory: Callable[..., T],
    source: str | Callable[..., Any],
    init: Literal[False] = False,
    **options: Unpack[SourcedOptions],
) -> T: ...
@overload
def optional(*, default: T, **options: Unpack[InputOptions]) -> T: ...
@overload
def optional(*, factory: Callable[..., T], **options: Unpack[InputOptions]) -> T: ...
def optional(*, default: Any = MISSING, factory: Any = None, **options: Any) -> Any:
    """Declare an input that takes *default*, or what *factory* makes, if not given."""
    if (default is MISSING) == (factory is None):
        message = (
            "optional() needs a value for when nothing is given. "
            "Give either default=... or factory=..., such as factory=list."
        )
        raise DefinitionError(message)
    if factory is not None and not callable(factory):
        message = f"optional(): factory must be callable, got {factory!r}."
        raise DefinitionError(message)
    _refuse_mutable("optional()", default)
    return Field(
        required=False,
        default=default,
        factory=factory,
        options=_checked("optional", options),
    )


def private(*, init: Literal[False] = False) -> Any:
    """Mark an annotation that is no field; *init* is for type checkers alone."""
    if init is not False:
        message = "private(): a caller cannot give it. Leave init out."
        raise DefinitionError(message)
    return Private()


def _checked(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    known = (*SourcedOptions.__annotations__, "source")
    options = dict(options)
    for name in ("validate", "one_of", "none_of"):  # each is read more than once
        if isinstance(options.get(name), Iterable) and not callable(options[name]):
            options[name] = tuple(options[name])
    for name in options:
        if name not in known:
            message = (
                f"{where}() has no option {name!r}{did_you_mean(name, known)} "
                f"Its options are {', '.join(known)}."
            )
            raise DefinitionError(message)
    check_gates(
        f"{where}()",
        offered=1,
        if_=options.get("if_"),
        unless=options.get("unless"),
    )
    for name, (fits, expected) in KINDS.items():
        if name in options and not fits(options[name]):
            message = f"{where}(): {name} must be {expected}, got {options[name]!r}."
            raise DefinitionError(message)
    for name, value in options.items():
        if name in VALIDATORS:
            try:
                VALIDATORS[name](value)
            except Exception as error:
                message = f"{where}(): {name}={value!r} is refused: {error}."
                raise DefinitionError(message) from None
    return options


def _are_callables(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return callable(value)
    return all(map(callable, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "alias": (_is_text, "a name"),
    "source": (
        lambda value: callable(value) or _is_text(value),
        "a callable or the name of a method",
    ),
    "coerce": (
        lambda value: callable(value) or isinstance(value, bool),
        "a callable, or False to take values as they are",
    ),
    "transform": (callable, "a callable"),
    "validate": (_are_callables, "one callable or several"),
    "description": (lambda value: isinstance(value, str), "text"),
    "format": (_is_text, "a form for strptime"),
}


def _refuse_mutable(where: str, default: Any) -> None:
    try:
        hash(default)
    except TypeError:
        message = (
            f"{where}: the default {default!r} is mutable, and runs would share it. "
            f"Use optional(factory={type(default).__name__}) or another factory."
        )
        raise DefinitionError(message) from None


# -- what a class says ---------------------------------------------------------------


@attrs.frozen(eq=False)
class Input:
    """One input of a task, everything inherited."""

    name: str
    annotation: Any
    field: Field

    @property
    def key(self) -> str:
        """The name callers use."""
        return str(self.field.options.get("alias") or self.name)

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.field.required

    @property
    def description(self) -> str:
        """What it is, in words."""
        return str(self.field.options.get("description", ""))


@attrs.frozen(eq=False)
class Fields:
    """The inputs and outputs of a task."""

    inputs: dict[str, Input]
    outputs: dict[str, Output]

    @classmethod
    def of(cls, task: type[Task[Any]]) -> Fields:
        """Fold the fields of *task* and its ancestors."""
        inputs: dict[str, Input] = {}
        outputs: dict[str, Output] = {}
        for each in reversed(task.__mro__):
            for name, field in vars(each).get("_fields_", {}).items():
                if isinstance(field, Output):
                    inputs.pop(name, None)
                    field.annotation = _annotation(task, name)
                    outputs[name] = field
                elif field is None:
                    inputs.pop(name, None)
                    outputs.pop(name, None)
                else:
                    outputs.pop(name, None)
                    inputs[name] = Input(name, _annotation(task, name), field)
        return cls(inputs, outputs)


def collect_fields(cls: type[Task[Any]], reserved: Iterable[str]) -> None:
    """Note the fields in the body of *cls* and refuse what contradicts itself."""
    own = _own_annotations(cls)
    inherited = {
        name
        for each in cls.__mro__[1:]
        for name, field in vars(each).get("_fields_", {}).items()
        if field is not None
    }
    fields: dict[str, Field | Output | None] = {}
    for name, annotation in own.items():
        if isinstance(vars(cls).get(name), Private):
            delattr(cls, name)
        elif not _is_class_variable(annotation):
            fields[name] = _field_of(cls, name, reserved)
    for name, value in list(vars(cls).items()):
        if name in own:
            continue
        if name in inherited:
            fields[name] = _overridden(cls, name, value)
        elif isinstance(value, Field | Output):
            message = (
                f"{cls.__qualname__}.{name} is a field without an annotation. "
                f"Write `{name}: SomeType = ...`."
            )
            raise DefinitionError(message)
    for base in cls.__mro__[1:]:
        if not hasattr(base, "_fields_"):
            _refuse_fields_of(cls, base)
    cls._fields_ = fields
    cls._annotations_ = own
    _check_aliases(cls)
    _check_annotations(cls)


def _field_of(
    cls: type[Task[Any]], name: str, reserved: Iterable[str]
) -> Field | Output:
    value = vars(cls).get(name, MISSING)
    where = f"{cls.__qualname__}.{name}"
    if name in reserved:
        message = (
            f"{where} is named like something every task has. "
            f"Choose another name, and give callers this one with alias={name!r}."
        )
        raise DefinitionError(message)
    if name.startswith("_"):
        message = (
            f"{where} begins with an underscore, but callers must be able to name a "
            f"field. Mark it as none with `{name}: ... = private()`, or rename it."
        )
        raise DefinitionError(message)
    if value is MISSING:
        return Field(required=True)
    if isinstance(value, Field | Output):
        return value
    if getattr(value, "__qualname__", "") == f"{cls.__qualname__}.{name}":
        message = (
            f"{where} is a field and a method at once. "
            "Rename one of them, and mind that annotations are fields."
        )
        raise DefinitionError(message)
    _refuse_mutable(where, value)
    return Field(required=False, default=value)


def _refuse_fields_of(cls: type[Task[Any]], base: type) -> None:
    for name, value in vars(base).items():
        if isinstance(value, Field | Output):
            message = (
                f"{cls.__qualname__} inherits the field {name!r} from "
                f"{base.__qualname__}, which is no task, so nobody would see it. "
                f"Derive {base.__qualname__} from Task."
            )
            raise DefinitionError(message)


def _overridden(cls: type[Task[Any]], name: str, value: Any) -> Field | Output | None:
    if value is None or isinstance(value, Field | Output):
        return value
    if callable(value) or isinstance(value, property | staticmethod | classmethod):
        message = (
            f"{cls.__qualname__}.{name} is an inherited field and cannot become a "
            f"method. Rename the method, or remove the field with {name} = None."
        )
        raise DefinitionError(message)
    _refuse_mutable(f"{cls.__qualname__}.{name}", value)
    return Field(required=False, default=value)


def _check_aliases(cls: type[Task[Any]]) -> None:
    fields = Fields.of(cls)
    names = {name: name for name in fields.outputs}
    for each in fields.inputs.values():
        if each.key in names:
            message = (
                f"{cls.__qualname__}: the fields {names[each.key]!r} and {each.name!r} "
                f"are both called {each.key!r} outside. Change one of the aliases."
            )
            raise DefinitionError(message)
        names[each.key] = each.name


def _check_annotations(cls: type[Task[Any]]) -> None:
    inputs = Fields.of(cls).inputs.values()
    if not inputs:
        return
    from cmdx.resolving import compiled_input

    for each in inputs:
        if not isinstance(each.annotation, NotYet):
            with suppress(NotThereYet):
                compiled_input(cls, each)


# -- annotations ---------------------------------------------------------------------


def _own_annotations(cls: type[Task[Any]]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        form = annotationlib.Format.FORWARDREF
        raw = annotationlib.get_annotations(cls, format=form)
    else:
        raw = inspect.get_annotations(cls)
    module = vars(sys.modules.get(cls.__module__, SimpleNamespace()))
    # The class statement may stand in a function; its names are there now, not later.
    frame = sys._getframe(3)
    while frame.f_code.co_name == "__init_subclass__" and frame.f_back is not None:
        frame = frame.f_back
    return {
        name: _evaluated(name, annotation, {**module, **vars(cls)}, frame.f_locals)
        for name, annotation in raw.items()
    }


class NotYet(str):
    """An annotation with names that nobody has defined yet, as it is written."""

    __slots__ = ("annotation",)

    annotation: Any

    def __new__(cls, annotation: Any) -> Self:
        """Keep *annotation* itself beside its text."""
        written = getattr(annotation, "__forward_arg__", None) or str(annotation)
        made = super().__new__(cls, written)
        made.annotation = annotation
        return made


class NotThereYet(DefinitionError):  # noqa: N818 -- it says what a name is
    """A name of an annotation, or of a class it names, is not defined."""


def _evaluated(
    name: str, annotation: Any, names: dict[str, Any], local: Mapping[str, Any]
) -> Any:
    # A class, because only there ClassVar and Final are in their place.
    holder = type("Holder", (), {"__annotations__": {name: annotation}})
    try:
        hints = get_type_hints(holder, names, dict(local), include_extras=True)
    except NameError:
        return NotYet(annotation)
    except TypeError:
        return annotation
    return hints[name]


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, NotYet):
        return annotation.partition("[")[0].endswith("ClassVar")
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _annotation(task: type[Task[Any]], name: str) -> Any:
    """Return the annotation of a field, evaluated if its names are known by now."""
    for each in task.__mro__:
        annotation = vars(each).get("_annotations_", {}).get(name, MISSING)
        if annotation is MISSING:
            continue
        if isinstance(annotation, NotYet):
            names = vars(sys.modules.get(each.__module__, SimpleNamespace()))
            annotation = _evaluated(name, annotation.annotation, dict(names), {})
        return annotation
    return Any


# -- what will be done ---------------------------------------------------------------


class InputPlan(NamedTuple):
    """One input made ready to be resolved."""

    name: str
    shown: str
    key: Any
    convert: Coercer
    absent: Callable[[Invocation, Any], Any]


def resolve(task: Invocation, inputs: tuple[InputPlan, ...]) -> None:
    """Set every input of *task*, or note every problem in its errors."""
    context = task._context_
    values = task._given_ if context is None else context._values
    for name, shown, key, convert, absent in inputs:
        try:
            value = values.get(key, MISSING)
            if value is MISSING or value is None:
                value = absent(task, value)
            else:
                value = convert(value)
        except Invalid as invalid:
            task.errors.add_invalid(shown, invalid)
        except RecursionError:
            task.errors.add_invalid(shown, Invalid("too_deep"))
        except AttributeError as error:
            if not task._errors_ or error.obj is not task:
                raise
            # It asked for an input that is wrong itself, and that is noted already.
        else:
            setattr(task, name, value)
