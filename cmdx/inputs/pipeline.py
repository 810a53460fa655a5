"""
From a declared input to what is done with its value.

Each input becomes an ``InputPlan``: one callable that coerces, transforms and
validates a value, and a fallback for all other cases. This module imports all
coercions, so it is imported when the first task with inputs is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, get_args, get_origin

from cmdx.declare.methods import find_method, takes_self
from cmdx.declare.signatures import positional_count
from cmdx.exceptions import DefinitionError, did_you_mean
from cmdx.inputs.annotations import (
    admits_none,
    annotation_text,
    bare_annotation,
    is_union,
    union_members,
)
from cmdx.inputs.classes import callable_coercer
from cmdx.inputs.coercion import Unknown, coercer, with_checks
from cmdx.inputs.collect import Unevaluated
from cmdx.inputs.constraints import NAMES, constraints_in
from cmdx.inputs.errors import Invalid
from cmdx.inputs.fallback import (
    constant_default,
    fallback_of,
    from_source,
    has_constant_default,
    refuse_async,
    source_of,
    takes_blank_text,
)
from cmdx.inputs.fields import INSTEAD, is_call
from cmdx.inputs.resolve import InputPlan
from cmdx.inputs.scalars import DATED, as_is, strptime_coercer
from cmdx.inputs.structures import SEQUENCES
from cmdx.inputs.validation import (
    CHECKS,
    VALIDATORS,
    check_all,
    checks_in,
    placeholders_of,
    user_check,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cmdx.inputs.collect import Fields, Input
    from cmdx.inputs.fields import Call
    from cmdx.inputs.scalars import Coercer
    from cmdx.inputs.texts import Text
    from cmdx.inputs.validation import Check
    from cmdx.run.invocation import Invocation
    from cmdx.task import Task


Given = ParamSpec("Given")

SAMPLES: dict[Any, Any] = {int: 1, float: 1.0, Decimal: Decimal(1)}
"""A number of each kind, to try rules on."""

NOT_FOR_NUMBERS = ("numeric", "sized", "pattern")
"""What rules say about a value of a kind that they do not apply to."""


class Undefined(Exception):  # noqa: N818 -- it says what a name is
    """A name in an annotation, or of a method, is not defined yet."""


def check_inputs(cls: type[Task[Any]], fields: Fields) -> None:
    """Refuse inputs that cannot work; names that are not defined yet are fine."""
    for declared in fields.inputs.values():
        if not isinstance(declared.annotation, Unevaluated):
            with suppress(Undefined):
                _input_plan(cls, declared)
                _check_rules(cls, declared)
                _check_default(cls, declared)


def input_plans(cls: type[Task[Any]], fields: Fields) -> tuple[InputPlan, ...]:
    """Return the plans of all inputs; refuse what cannot work."""
    plans = []
    try:
        for declared in fields.inputs.values():
            plans.append(_input_plan(cls, declared))
            _check_rules(cls, declared)
            _check_default(cls, declared)
        return tuple(plans)
    except Undefined as error:
        message = str(error)
    raise DefinitionError(message)


def _input_plan(cls: type[Task[Any]], declared: Input) -> InputPlan:
    where = f"{cls.__qualname__}.{declared.name}"
    try:
        return _compile_plan(cls, where, declared)
    except NameError as error:
        message = (
            f"{where}: {error}. Is it imported under TYPE_CHECKING? Import it at "
            "runtime, or define it at the top of its module before the task runs. "
            "Or take values unchanged with coerce=False."
        )
        raise Undefined(message) from None
    except Unknown as unknown:
        name = annotation_text(unknown.annotation)
        message = (
            f"{where}: cmdx cannot convert input to {name}. Pass coerce=..., "
            f"register a converter with cmdx.coercions.register({name}, ...), "
            "or accept values unchanged with coerce=False."
        )
        raise DefinitionError(message) from None


def _compile_plan(cls: type[Task[Any]], where: str, declared: Input) -> InputPlan:
    bind = _converter_binder(cls, where, declared)
    needs_task = any(isinstance(call, str) for _, call in _calls(declared))
    convert = None if needs_task else bind(None)
    converter_for = bind if convert is None else lambda _: convert
    fallback = fallback_of(cls, where, declared, converter_for)
    key: object = declared.key
    source = source_of(cls, where, declared)
    if source is not None:
        fallback = from_source(declared.name, source, fallback)
        key = object()  # no caller has this key, so the fallback is always used
    elif has_constant_default(declared):
        fallback = partial(constant_default, declared.name, declared.field.default)
    plan = InputPlan(
        name=declared.name,
        public_name=declared.key,
        key=key,
        convert=convert,
        fallback=fallback,
        admits_blank_text=takes_blank_text(declared),
        takes_all_values=_takes_all_values(declared),
    )
    return _in_words(where, declared, plan)


# -- coerce, transform, validate -------------------------------------------------------


def _converter_binder(
    cls: type[Task[Any]], where: str, declared: Input
) -> Callable[[Invocation | None], Coercer]:
    """Return what makes coerce, transform and validate of a task one callable."""
    options = declared.field.options
    for option, call in _calls(declared):
        if isinstance(call, str):
            _check_method(cls, f"{where}: {option}", call)
        else:
            refuse_async(f"{where}: {option}", call)
    coerce, transform = options.get("coerce"), options.get("transform")
    by_annotation = None if is_call(coerce) else input_coercer(where, declared)
    constraints = checks_in(declared.annotation)
    rules = [VALIDATORS[name](options[name]) for name in options if name in VALIDATORS]

    def bind(task: Invocation | None) -> Coercer:
        make = by_annotation
        if make is None:
            make = with_checks(
                callable_coercer(_callable_of(task, coerce)), constraints
            )
        change = None
        if transform is not None:
            change = callable_coercer(_callable_of(task, transform))
        validators = (_callable_of(task, call) for call in _validators(declared))
        return _converter(make, change, [*rules, *map(user_check, validators)])

    return bind


def _converter(
    coerce: Coercer, transform: Coercer | None, checks: list[Check]
) -> Coercer:
    if transform is None:
        return with_checks(coerce, checks)

    def convert(value: Any) -> Any:
        made = transform(coerce(value))
        check_all(checks, made)
        return made

    return convert


def _validators(declared: Input) -> tuple[Call, ...]:
    validate = declared.field.options.get("validate", ())
    return (validate,) if is_call(validate) else tuple(validate)


def _calls(declared: Input) -> list[tuple[str, Call]]:
    """Return the callables, and names of methods, with the options they are from."""
    options = declared.field.options
    steps = [(name, options.get(name)) for name in ("coerce", "transform")]
    validators = [("validate", call) for call in _validators(declared)]
    return [(option, call) for option, call in (*steps, *validators) if is_call(call)]


def _callable_of(task: Invocation | None, call: Any) -> Callable[[Any], Any]:
    """Return *call*, or the method of *task* that it names."""
    method: Callable[[Any], Any] = (
        getattr(task, call) if isinstance(call, str) else call
    )
    return method


def _check_method(cls: type[Task[Any]], where: str, name: str) -> None:
    try:
        method = find_method(where, cls, name)
    except DefinitionError as error:
        raise Undefined(str(error)) from None
    refuse_async(where, method)
    try:
        fits = positional_count(method, 1, has_self=takes_self(cls, name)) == 1
    except TypeError:
        fits = False
    if not fits:
        message = f"{where}: {name} must take one argument, the value."
        raise DefinitionError(message)


def input_coercer(where: str, declared: Input) -> Coercer:
    """Return the coercer of an input that has no function for it."""
    options, annotation = declared.field.options, declared.annotation
    if options.get("coerce") is False:
        return with_checks(as_is, checks_in(annotation))
    if isinstance(annotation, Unevaluated):
        raise NameError(f"name {annotation.undefined!r} is not defined")  # noqa: TRY004
    if "format" in options:
        return _formatted_coercer(where, annotation, options["format"])
    return coercer(annotation, declared.names)


def _formatted_coercer(where: str, annotation: Any, form: str) -> Coercer:
    kind = bare_annotation(annotation)
    members = get_args(kind) if admits_none(kind) else (kind,)
    kinds = [member for member in members if member is not type(None)]
    if len(kinds) != 1 or bare_annotation(kinds[0]) not in DATED:
        message = (
            f"{where}: format applies only to date, datetime and time, "
            f"not to {annotation_text(kind)}."
        )
        raise DefinitionError(message)
    checks = [*checks_in(kinds[0]), *checks_in(annotation)]
    return with_checks(strptime_coercer(bare_annotation(kinds[0]), form), checks)


# -- messages --------------------------------------------------------------------------


def _in_words(where: str, declared: Input, plan: InputPlan) -> InputPlan:
    """Return *plan* with the messages that the input declares, if it does."""
    if "message" not in declared.field.options:
        return plan
    texts = _messages_by_rule(where, declared)
    values = placeholders_of(_rules_of(declared))

    def reword(convert: Callable[Given, Any]) -> Callable[Given, Any]:
        def convert_in_words(*args: Given.args, **kwargs: Given.kwargs) -> Any:
            try:
                return convert(*args, **kwargs)
            except Invalid as invalid:
                raise invalid.reworded(texts, values) from None

        return convert_in_words

    convert = None if plan.convert is None else reword(plan.convert)
    return plan._replace(convert=convert, fallback=reword(plan.fallback))


def _messages_by_rule(where: str, declared: Input) -> Mapping[str, Text]:
    """Return the messages that an input declares; refuse one of an unknown rule."""
    message: Text | Mapping[str, Text] = declared.field.options["message"]
    # A predicate and a validator are both callables of the user.
    names = (
        "validate" if rule == "predicate" else rule for rule, _ in _rules_of(declared)
    )
    rules = list(dict.fromkeys(names))
    if not isinstance(message, Mapping):
        if not rules:
            _refuse_message_without_rules(where, message)
        return dict.fromkeys(rules, message)
    for name in message:
        _check_rule_name(where, name, ["required", "coerce", *rules])
    return message


def _rules_of(declared: Input) -> list[tuple[str, Any]]:
    """Return the rules in the annotation and the options of an input."""
    bare = bare_annotation(declared.annotation)
    members = get_args(bare) if is_union(bare) else ()
    annotations = (*members, declared.annotation)
    options = declared.field.options
    return [
        *(rule for annotation in annotations for rule in constraints_in(annotation)),
        *((name, options[name]) for name in options if name in CHECKS),
    ]


def _refuse_message_without_rules(where: str, message: Text) -> NoReturn:
    refusal = (
        f"{where}: message={message!r} is for the rules of the input, and it has none. "
        "Add a rule such as ge=1, or say what the message is for: "
        'message={"required": ...} or message={"coerce": ...}.'
    )
    raise DefinitionError(refusal)


def _check_rule_name(where: str, name: str, known: list[str]) -> None:
    if name in known:
        return
    hint = f"; {INSTEAD[name]}." if name in INSTEAD else did_you_mean(name, known)
    refusal = (
        f"{where}: message has a text for {name!r}, which is no rule of this input"
        f"{hint} Its rules: {', '.join(known)}."
    )
    raise DefinitionError(refusal)


# -- what was given --------------------------------------------------------------------


def _takes_all_values(declared: Input) -> bool:
    """Tell whether the input is a list, and so takes all values of a multi-dict."""
    members = union_members(declared.annotation)
    kinds = [get_origin(kind) or kind for kind in members if kind is not type(None)]
    return bool(kinds) and all(kind is tuple or kind in SEQUENCES for kind in kinds)


def _check_rules(cls: type[Task[Any]], declared: Input) -> None:
    """Refuse a rule that no number can keep, for an input that is a number."""
    options = declared.field.options
    kind = bare_annotation(declared.annotation)
    sample = SAMPLES.get(kind) if isinstance(kind, type) else None
    if sample is None or not {"coerce", "transform"}.isdisjoint(options):
        return
    for name, value in (*constraints_in(declared.annotation), *options.items()):
        try:
            if name in NAMES:
                VALIDATORS[name](value)(sample)
        except Invalid as invalid:
            if invalid.code in NOT_FOR_NUMBERS:
                message = (
                    f"{cls.__qualname__}.{declared.name}: the rule {name}={value!r} "
                    f"refuses every {type(sample).__name__}. Use a rule for numbers, "
                    "with a number."
                )
                raise DefinitionError(message) from None


def _check_default(cls: type[Task[Any]], declared: Input) -> None:
    """Refuse a default that its own type or constraints refuse."""
    field, options = declared.field, declared.field.options
    has_literal = not field.required and field.factory is None
    is_made_otherwise = not {"coerce", "transform", "format"}.isdisjoint(options)
    if not has_literal or field.default is None or is_made_otherwise:
        return
    # Constraints only: a callable of the user may not be ready to be called yet.
    constraints = [*constraints_in(declared.annotation), *options.items()]
    checks = [VALIDATORS[name](value) for name, value in constraints if name in NAMES]
    try:
        coerce = coercer(bare_annotation(declared.annotation), declared.names)
        with_checks(coerce, checks)(field.default)
    except Invalid as invalid:
        message = (
            f"{cls.__qualname__}.{declared.name}: the default {field.default!r} "
            f"{invalid.message}. Use a default that the input itself accepts."
        )
        raise DefinitionError(message) from None
