"""
What a task takes: fields declared as annotations, resolved before ``work``.

1. a class body has ``x: int``, ``x: int = 3``, ``required(...)`` or ``optional(...)``
2. ``collect`` gathers the fields of a class and its ancestors as ``Input`` values
3. ``pipeline`` compiles each into an ``InputPlan``, with the ``coercion`` that its
   annotation asks for and the checks of ``validation``
4. at the start of a run ``resolve`` takes each value through
   source → present? → default → coerce → transform → validate,
   and collects all problems before the task fails
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    TypedDict,
    TypeGuard,
    TypeVar,
    overload,
)

import attrs

from cmdx.context import MISSING
from cmdx.declare.checks import check_kinds, check_names
from cmdx.declare.gates import Gate, check_gates
from cmdx.declare.signatures import check_plain_call
from cmdx.exceptions import DefinitionError
from cmdx.inputs.texts import Text, is_text
from cmdx.inputs.validation import VALIDATORS

if TYPE_CHECKING:
    import re
    from typing import Unpack

    from cmdx.declare.checks import Kinds

T = TypeVar("T")

INSTEAD = {"min": "use `ge`", "max": "use `le`"}
"""What to use instead of rules that do not exist."""

Call: TypeAlias = str | Callable[[Any], Any]
"""A callable of the value, or the name of a method that is given the value."""


class RuleMessages(TypedDict, total=False):
    """Messages by the rules of an input; ``{ge}`` and the like are placeholders."""

    required: Text
    """The value is missing, or None where None is not allowed."""
    coerce: Text
    """The value cannot be converted to the type of the input."""
    validate: Text
    """A callable refuses the value, also one in ``Annotated``."""
    presence: Text
    absence: Text
    gt: Text
    ge: Text
    lt: Text
    le: Text
    multiple_of: Text
    length: Text
    min_length: Text
    max_length: Text
    pattern: Text
    one_of: Text
    none_of: Text


class SourcedOptions(TypedDict, total=False):
    """The options of an input whose value comes from *source*."""

    alias: str
    """The name callers use, and the key of its errors."""
    coerce: Call | bool
    """Replaces the coercion by annotation; False takes values unchanged."""
    transform: Call
    """Changes the coerced value before it is validated."""
    validate: Call | Iterable[Call]
    """One rule or several; each raises ``ValueError`` to refuse the value."""
    message: Text | RuleMessages
    """One message for all rules of the input, or messages by rule."""
    if_: Gate | None
    """A gate: if it is false, a required input may be left out and is None."""
    unless: Gate | None
    """A gate: if it is true, a required input may be left out and is None."""
    description: str
    """A sentence for people, shown in the JSON Schema and by ``inspect``."""
    format: str
    """The format of text, as for ``strptime``; for date, datetime and time."""
    presence: bool
    """True refuses None, blank text and empty containers."""
    absence: bool
    """True refuses everything but None, blank text and empty containers."""
    gt: Any
    """The value must be greater than this."""
    ge: Any
    """The value must be at least this."""
    lt: Any
    """The value must be less than this."""
    le: Any
    """The value must be at most this."""
    multiple_of: Any
    """The value must be a multiple of this."""
    length: int
    """Text or a container must have exactly this length."""
    min_length: int
    """Text or a container must have at least this length."""
    max_length: int
    """Text or a container must have at most this length."""
    pattern: str | re.Pattern[str]
    """Text must match this regular expression from start to end."""
    one_of: Iterable[Any]
    """The value must be one of these."""
    none_of: Iterable[Any]
    """The value must not be one of these."""


class InputOptions(SourcedOptions, total=False):
    """The options that ``required`` and ``optional`` share."""

    source: str | Callable[..., Any]
    """The name of a method, or a callable of the task, that returns the value."""


@attrs.frozen(eq=False)
class Field:
    """
    What ``required(...)``, ``optional(...)`` or a default declared.

    It stands in the class under the name of the input. Read from the class it is the
    default, or the field itself if there is none. Read from a task it raises, until the
    input is resolved: then the task has the value as an attribute of its own.
    """

    required: bool
    default: Any = MISSING
    factory: Callable[..., Any] | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)
    name: str = ""
    """What the class calls it; set when the class is made."""

    if not TYPE_CHECKING:  # checkers would apply it wherever a field is an attribute

        def __get__(self, task: object, cls: type | None = None) -> Any:
            """Return the default on the class; explain that a task has no value yet."""
            if task is None:
                return self if self.default is MISSING else self.default
            message = (
                f"the input {self.name!r} has no value: it was refused, or is not "
                "resolved yet. Inputs are resolved after the before_* hooks and before "
                "work. Read it in work or later, and run the task with execute() "
                "instead of calling work() directly."
            )
            raise AttributeError(message, obj=task)

    def with_default(self, default: Any) -> Field:
        """Return the same field with another default."""
        return attrs.evolve(self, required=False, default=default, factory=None)


class Private:
    """What ``private()`` returns: the annotation is not a field."""


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
    """
    Declare an input that must be given, or that *source* must provide.

    Example::

        amount: int = required(ge=1, description="in cents")

    *coerce*, *transform* and *validate* take a callable of the value, or the name of a
    method that is given the value.

    Args:
        alias: The name callers use, and the key of its errors.
        source: The name of a method, or a callable of the task, that returns the
            value; what callers give is then ignored.
        coerce: Replaces the coercion by annotation; False takes values unchanged.
        transform: Changes the coerced value before it is validated.
        validate: One rule or several; each raises ``ValueError``, or returns False or
            text, to refuse the value.
        message: One message for all rules of the input, or a mapping of messages by
            rule, such as ``{"ge": "must be at least {ge}", "required": "is missing"}``.
        if_: A gate: if it is false, the input may be left out and is None.
        unless: A gate: if it is true, the input may be left out and is None.
        description: A sentence for people, shown in the JSON Schema and by ``inspect``.
        format: The format of text, as for ``strptime``; for date, datetime and time.
        presence: True refuses None, blank text and empty containers.
        absence: True refuses everything but None, blank text and empty containers.
        gt: The value must be greater than this.
        ge: The value must be at least this.
        lt: The value must be less than this.
        le: The value must be at most this.
        multiple_of: The value must be a multiple of this.
        length: Text or a container must have exactly this length.
        min_length: Text or a container must have at least this length.
        max_length: Text or a container must have at most this length.
        pattern: Text must match this regular expression from start to end.
        one_of: The value must be one of these.
        none_of: The value must not be one of these.
        init: Tells type checkers that callers do not give it; leave it out.
    """
    for name in ("default", "factory"):
        if name in options:
            message = (
                f"required() has no option {name!r}, because an input with a {name} "
                f"may be left out. Use optional({name}=...)."
            )
            raise DefinitionError(message)
    return Field(required=True, options=_check_options("required()", options))


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
    """
    Declare an input that may be left out.

    Example::

        currency: str = optional(default="EUR", one_of=("EUR", "USD"))
        notes: list[str] = optional(factory=list)

    Either *default* or *factory* is needed. *coerce*, *transform* and *validate* take a
    callable of the value, or the name of a method that is given the value.

    Args:
        default: The value if none is given; must be hashable.
        factory: A callable that makes the default for each run, of the task or without
            arguments.
        alias: The name callers use, and the key of its errors.
        source: The name of a method, or a callable of the task, that returns the
            value; what callers give is then ignored.
        coerce: Replaces the coercion by annotation; False takes values unchanged.
        transform: Changes the coerced value before it is validated.
        validate: One rule or several; each raises ``ValueError``, or returns False or
            text, to refuse the value.
        message: One message for all rules of the input, or a mapping of messages by
            rule, such as ``{"ge": "must be at least {ge}"}``.
        if_: Has no effect: an optional input may always be left out.
        unless: Has no effect: an optional input may always be left out.
        description: A sentence for people, shown in the JSON Schema and by ``inspect``.
        format: The format of text, as for ``strptime``; for date, datetime and time.
        presence: True refuses None, blank text and empty containers.
        absence: True refuses everything but None, blank text and empty containers.
        gt: The value must be greater than this.
        ge: The value must be at least this.
        lt: The value must be less than this.
        le: The value must be at most this.
        multiple_of: The value must be a multiple of this.
        length: Text or a container must have exactly this length.
        min_length: Text or a container must have at least this length.
        max_length: Text or a container must have at most this length.
        pattern: Text must match this regular expression from start to end.
        one_of: The value must be one of these.
        none_of: The value must not be one of these.
        init: Tells type checkers that callers do not give it; leave it out.
    """
    checked = _check_options("optional()", options, "default", "factory")
    message = checked.get("message")
    if isinstance(message, Mapping) and "required" in message:
        message = (
            "optional(): message has a text for 'required', but an optional input may "
            "be left out. Remove the text, or use required()."
        )
        raise DefinitionError(message)
    if (default is MISSING) == (factory is None):
        message = (
            "optional() needs a default value. "
            "Give either default=... or factory=..., such as factory=list."
        )
        raise DefinitionError(message)
    if factory is not None and not callable(factory):
        message = f"optional(): factory must be callable, got {factory!r}."
        raise DefinitionError(message)
    refuse_unhashable_default("optional()", default)
    if default is None and options.get("presence"):
        message = (
            "optional(): presence=True does not refuse None, because None is the "
            "default. Use required(presence=True), or leave out presence."
        )
        warnings.warn(message, UserWarning, stacklevel=2)
    return Field(
        required=False,
        default=default,
        factory=factory,
        options=checked,
    )


def private(*, init: Literal[False] = False) -> Any:
    """
    Mark an annotation that is not a field.

    Args:
        init: Tells type checkers that callers do not give it; leave it out.
    """
    if init is not False:
        message = "private(): init must be False, as callers cannot pass it."
        raise DefinitionError(message)
    return Private()


def refuse_unhashable_default(where: str, default: Any) -> None:
    """Refuse a default that is not hashable, as runs would share what may change."""
    try:
        hash(default)
    except TypeError:
        message = (
            f"{where}: the default {default!r} is not hashable, so it counts as "
            "mutable, and runs would share it. "
            f"Use optional(factory={type(default).__name__}) or another factory."
        )
        raise DefinitionError(message) from None


def _check_options(
    where: str, options: Mapping[str, Any], *others: str
) -> dict[str, Any]:
    """Return *options*, with iterables as tuples, or refuse what is wrong."""
    known = (*SourcedOptions.__annotations__, "source", *others)
    check_names(where, options, known, INSTEAD)
    options = {name: value for name, value in options.items() if value is not None}
    for name in ("validate", "one_of", "none_of"):  # these are read more than once
        value = options.get(name)
        if isinstance(value, Iterable) and not (
            callable(value) or isinstance(value, str)
        ):
            options[name] = tuple(value)
    check_gates(where, if_=options.get("if_"), unless=options.get("unless"))
    check_kinds(where, options, INPUT_KINDS)
    for text in _texts_in(options.get("message", "")):
        if callable(text):
            check_plain_call(f"{where}: message", text, 0, NO_ARGUMENTS)
    if isinstance(options.get("message"), Mapping):
        options["message"] = dict(options["message"])  # the caller may change theirs
    for name in options.keys() & VALIDATORS.keys():
        try:
            VALIDATORS[name](options[name])
        except Exception as error:
            message = f"{where}: {name}={options[name]!r} is not valid: {error}."
            raise DefinitionError(message) from None
    return options


def _are_messages(value: Any) -> bool:
    return bool(texts := _texts_in(value)) and all(map(is_text, texts))


def _texts_in(message: Any) -> list[Any]:
    return list(message.values()) if isinstance(message, Mapping) else [message]


def is_call(value: Any) -> TypeGuard[Call]:
    """Tell whether *value* is a callable or the name of a method."""
    return callable(value) or _is_filled_text(value)


def _are_calls(value: Any) -> bool:
    return is_call(value) or (isinstance(value, tuple) and all(map(is_call, value)))


def _is_filled_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


NO_ARGUMENTS = "It is called without arguments, and returns the text."

INPUT_KINDS: Kinds = {
    "alias": (_is_filled_text, "a non-empty string"),
    "source": (is_call, "a callable or the name of a method"),
    "coerce": (
        lambda value: is_call(value) or isinstance(value, bool),
        "a callable, the name of a method, or False to take values unchanged",
    ),
    "transform": (is_call, "a callable or the name of a method"),
    "validate": (_are_calls, "a callable or the name of a method, or several"),
    "message": (_are_messages, "a text, or a mapping of rules to texts"),
    "description": (lambda value: isinstance(value, str), "a string"),
    "format": (_is_filled_text, "a format for strptime"),
}
