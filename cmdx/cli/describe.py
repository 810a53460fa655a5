"""
The contract of a task as text, section by section.

Only declarations are read, and nothing is run. Defaults that look like a secret are
hidden, and so is the ``repr`` of objects that could contain one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin
from uuid import UUID

from cmdx.declare.blueprint import Blueprint
from cmdx.declare.hooks import EVENTS
from cmdx.exceptions import CmdxError, ImplementationError
from cmdx.inputs.annotations import (
    annotation_text,
    bare_annotation,
    is_union,
    local_name,
)
from cmdx.inputs.classes import parts_of
from cmdx.inputs.constraints import NAMES, constraints_in
from cmdx.pictures.text import callable_name, quantity
from cmdx.task import Task
from cmdx.values import HIDDEN, hide_user, is_secret_name
from cmdx.workflow.steps import Group, Step
from cmdx.workflow.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cmdx.declare.blueprint import Plan
    from cmdx.declare.gates import Gate
    from cmdx.inputs.collect import Input
    from cmdx.retry.policy import RetryRule

WIDEST = 60
"""A cell longer than this is cut, except in the last column."""

PLAIN = (
    str, int, float, complex, Decimal, Fraction, date, time, timedelta, UUID,
    PurePath, type(None),
)  # fmt: skip

Row = tuple[str, ...]


def describe(task: type[Task[Any]]) -> str:
    """Return the contract of *task* as plain text, aligned."""
    blueprint = Blueprint.of(task)
    sections = [
        ("", _summary(blueprint)),
        ("Inputs", _inputs(blueprint)),
        ("Outputs", _outputs(blueprint)),
        ("Steps", _steps(task)),
        ("Hooks", _hooks(blueprint)),
        ("Middlewares", _middlewares(blueprint)),
        ("Retries", _retries(blueprint)),
    ]
    return "\n\n".join(
        "\n".join((heading, *(f"  {line}" for line in lines)) if heading else lines)
        for heading, lines in sections
        if lines
    )


def describe_inputs(task: type[Task[Any]]) -> str:
    """Return what *task* is called, what it is for, and what it takes."""
    blueprint = Blueprint.of(task)
    inputs = (f"  {line}" for line in _inputs(blueprint))
    return "\n".join((*_headline(task), "", "Inputs", *inputs))


def command_that_runs(task: type[Task[Any]], target: str) -> str:
    """Return the command that runs *task*, which is found at *target*, or no text."""
    try:
        _plan_of(task)
    except CmdxError:  # ``describe`` says why
        return ""
    inputs = task.inputs_schema()["required"] or inputs_of_steps(task)
    return " ".join(("python -m cmdx run", target, *(f"{key}=..." for key in inputs)))


def inputs_of_steps(task: type[Task[Any]]) -> list[str]:
    """Return what the steps of a workflow need and nothing provides."""
    if not issubclass(task, Workflow):
        return []
    return list(dict.fromkeys(unwired.input for unwired in task.wiring()))


def _headline(task: type[Task[Any]]) -> list[str]:
    text = inspect.getdoc(task) if vars(task).get("__doc__") else None
    name = local_name(task.__qualname__)
    return [name, _one_line(text.split("\n\n")[0])] if text else [name]


def _summary(blueprint: Blueprint) -> list[str]:
    task, settings = blueprint.task, blueprint.settings
    facts = [
        ("value", _value(task)),
        ("tags", ", ".join(settings.tags)),
        ("run with", _run_with(task)),
        ("deprecated", _deprecation(blueprint)),
    ]
    return [
        *_headline(task),
        "",
        *_align([(name, fact) for name, fact in facts if fact]),
    ]


def _value(task: type[Task[Any]]) -> str:
    for cls in task.__mro__:
        for base in vars(cls).get("__orig_bases__", ()):
            origin, args = get_origin(base), get_args(base)
            is_task = isinstance(origin, type) and issubclass(origin, Task)
            if is_task and args and not isinstance(args[0], TypeVar):
                return annotation_text(args[0])
    return ""


def _run_with(task: type[Task[Any]]) -> str:
    try:
        awaits = _plan_of(task).awaits
    except ImplementationError:
        missing = "steps" if issubclass(task, Workflow) else "work()"
        return f"nothing yet: it has no {missing}, so it is a base class"
    except CmdxError as error:
        return f"nothing yet: {error}"
    return "aexecute, because it awaits" if awaits else "execute or aexecute"


def _plan_of(task: type[Task[Any]]) -> Plan:
    plan: Plan = task._cmdx_.plan
    return plan


def _deprecation(blueprint: Blueprint) -> str:
    settings = blueprint.settings
    how = settings.deprecated
    if how is None:
        return ""
    gate = _gate_words(settings.deprecated_if, settings.deprecated_unless)
    return _join(how if isinstance(how, str) else callable_name(how), gate)


def _inputs(blueprint: Blueprint) -> list[str]:
    inputs = blueprint.fields.inputs.values()
    if not inputs:
        needed = ", ".join(inputs_of_steps(blueprint.task))
        undeclared = "none declared: any keyword goes into the context"
        return [f"{undeclared}; its steps need {needed}" if needed else undeclared]
    rows = [row for declared in inputs for row in _input_rows(declared)]
    return _table(("name", "type", "given", "rules", "description"), rows)


def _input_rows(declared: Input) -> Iterator[Row]:
    renamed = "" if declared.key == declared.name else f" (self.{declared.name})"
    yield (
        f"{declared.key}{renamed}",
        annotation_text(declared.annotation),
        _given_words(declared),
        ", ".join(_rules(declared)),
        _one_line(declared.description),
    )
    if not {"coerce", "source"} & declared.field.options.keys():
        yield from _part_rows(declared.key, declared.annotation, ())


def _part_rows(path: str, annotation: Any, above: tuple[Any, ...]) -> Iterator[Row]:
    """Yield a row for each field of the classes in *annotation*."""
    bare = bare_annotation(annotation)
    if bare in above:  # a type that contains itself
        return
    above = (*above, bare)
    if is_union(bare):
        for member in get_args(bare):
            yield from _part_rows(path, member, above)
    elif (parts := parts_of(bare)) is not None:
        for part in parts:
            below = f"{path}.{part.key}"
            given = "required" if part.required else "optional"
            rules = ", ".join(_constraint_words(part.annotation))
            yield below, annotation_text(part.annotation), given, rules, ""
            yield from _part_rows(below, part.annotation, above)
    elif get_origin(bare) not in (None, Literal):
        for member in get_args(bare):
            yield from _part_rows(f"{path}[]", member, above)


def _given_words(declared: Input) -> str:
    field, options = declared.field, declared.field.options
    source = options.get("source")
    taken = "" if source is None else f"from {callable_name(source)}"
    if field.factory is not None:
        return _join(taken, f"default by {callable_name(field.factory)}", comma=True)
    if not field.required:
        default = HIDDEN if _is_secret(declared) else _value_text(field.default)
        return _join(taken, f"default {default}", comma=True)
    needed = _join("required", _gate_words(options.get("if_"), options.get("unless")))
    return taken or needed


def _is_secret(declared: Input) -> bool:
    default = declared.field.default
    if default is None or isinstance(default, bool) or default == "":
        return False
    return is_secret_name(f"{declared.name} {declared.key}")


def _outputs(blueprint: Blueprint) -> list[str]:
    rows = [
        (
            name,
            annotation_text(declared.annotation),
            _gate_words(declared.if_, declared.unless) or "always",
            _one_line(declared.description),
        )
        for name, declared in blueprint.fields.outputs.items()
    ]
    return _table(("name", "type", "set", "description"), rows)


def _hooks(blueprint: Blueprint) -> list[str]:
    rows = [
        (occasion.event, name, _gate_words(occasion.if_, occasion.unless))
        for event in EVENTS
        for name, hook in blueprint.hooks.items()
        for occasion in hook.occasions
        if occasion.event == event
    ]
    if callable(getattr(blueprint.task, "rollback", None)):
        rows.append(("rollback", "rollback", "if failed"))
    return _table(("event", "method", "when"), rows)


def _middlewares(blueprint: Blueprint) -> list[str]:
    rows = [
        (callable_name(call), _gate_words(declaration.if_, declaration.unless))
        for declaration in blueprint.middlewares
        for call in declaration.calls
    ]
    return _table(("outermost first", "when"), rows)


def _retries(blueprint: Blueprint) -> list[str]:
    rules = [rule for rule in blueprint.retry_policy.rules if rule.exceptions]
    if not rules:
        return ["none: a failure is final"]
    headings = (
        "rule", "errors", "limit", "delay", "jitter", "max_delay", "deadline",
        "budget", "guided", "nested", "when",
    )  # fmt: skip
    return _table(headings, [_rule_row(rule) for rule in rules])


def _rule_row(rule: RetryRule) -> Row:
    return (
        rule.name or "",
        ", ".join(error.__name__ for error in rule.exceptions),
        str(rule.limit),
        _seconds(rule.delay),
        "" if rule.jitter is None else callable_name(rule.jitter),
        _seconds(rule.max_delay),
        _seconds(rule.deadline),
        "" if rule.budget is None else "shared",
        "yes" if rule.guided else "",
        rule.nested or "",
        _gate_words(rule.if_, rule.unless),
    )


# -- the steps of a workflow -----------------------------------------------------------


def _steps(task: type[Task[Any]]) -> list[str]:
    if not issubclass(task, Workflow):
        return []
    rows = list(_group_rows(task._cmdx_.group, ""))
    return _table(("step", "when", "how", "on failure"), rows)


def _group_rows(group: Group, indent: str) -> Iterator[Row]:
    """Yield a row for each step of *group*, those inside it indented."""
    on_failure = "collect, then stop" if group.continue_on_failure else "stop"
    for step in group.steps:
        if isinstance(step, Step) and step.task._cmdx_.is_inner:
            step = step.task._cmdx_.group.steps[0]  # noqa: PLW2901 -- a group among siblings
        if isinstance(step, Group):
            when = _gate_words(step.if_, step.unless)
            kind = "parallel" if step.parallel else "group"
            yield f"{indent}{kind}", when, ", ".join(_group_words(step)), ""
            yield from _group_rows(step, f"{indent}  ")
        else:
            tolerated = step.on_failure == "continue"
            name = local_name(step.task.__qualname__)
            how = ", ".join(_step_words(step))
            yield f"{indent}{name}", "", how, "continue" if tolerated else on_failure
            if issubclass(step.task, Workflow):
                yield from _group_rows(step.task._cmdx_.group, f"{indent}  ")


def _group_words(group: Group) -> Iterator[str]:
    if group.workers is not None:
        yield quantity(group.workers, "worker", "workers")
    if group.executor is not None:
        yield f"executor {callable_name(group.executor)}"
    if group.parallel and group.merge != "last":
        yield f"merge {callable_name(group.merge)}"


def _step_words(step: Step) -> Iterator[str]:
    for name, key in step.map.items():
        yield f"{name} from {key}"
    if step.into is not None:
        yield f"value into {step.into}"


# -- the rules of an input -------------------------------------------------------------

WORDS: dict[str, Callable[[Any], str]] = {
    "presence": lambda wanted: "present" if wanted else "absent",
    "absence": lambda wanted: "absent" if wanted else "present",
    "gt": lambda bound: f"> {_value_text(bound)}",
    "ge": lambda bound: f">= {_value_text(bound)}",
    "lt": lambda bound: f"< {_value_text(bound)}",
    "le": lambda bound: f"<= {_value_text(bound)}",
    "multiple_of": lambda step: f"multiple of {_value_text(step)}",
    "length": lambda size: f"length {size}",
    "min_length": lambda size: f"length >= {size}",
    "max_length": lambda size: f"length <= {size}",
    "pattern": lambda wanted: f"pattern {getattr(wanted, 'pattern', wanted)}",
    "one_of": lambda choices: f"one of {_value_text(list(choices))}",
    "none_of": lambda choices: f"none of {_value_text(list(choices))}",
    "validate": lambda call: f"checked by {callable_name(call)}",
    "predicate": lambda call: f"checked by {callable_name(call)}",
}


def _rules(declared: Input) -> Iterator[str]:
    """Yield the rules in the order they are applied."""
    options = declared.field.options
    coerce = options.get("coerce", True)
    if coerce is False:
        yield "unchanged"
    elif coerce is not True:
        yield f"made by {callable_name(coerce)}"
    if "format" in options:
        yield f"format {options['format']}"
    yield from _constraint_words(declared.annotation)
    if "transform" in options:
        yield f"then {callable_name(options['transform'])}"
    yield from (WORDS[name](options[name]) for name in options if name in NAMES)
    validate = options.get("validate", ())
    for call in validate if isinstance(validate, tuple) else (validate,):
        yield WORDS["validate"](call)


def _constraint_words(annotation: Any) -> Iterator[str]:
    return (WORDS[name](value) for name, value in constraints_in(annotation))


# -- words for values ------------------------------------------------------------------


def _gate_words(if_: Gate | None, unless: Gate | None) -> str:
    return _join(
        "" if if_ in (None, True) else f"if {callable_name(if_)}",
        "" if unless in (None, False) else f"unless {callable_name(unless)}",
    )


def _value_text(value: Any) -> str:
    """Return the ``repr`` of what is known to be harmless, else what it is."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_value_text, value)) or "()"
    if isinstance(value, Mapping):
        return f"{len(value)} keys"
    if isinstance(value, PLAIN):
        return hide_user(repr(value))
    return f"a {type(value).__name__}"


# -- words into lines ------------------------------------------------------------------


def _seconds(number: float | None) -> str:
    return "" if number is None else f"{number:g} s"


def _join(*parts: str, comma: bool = False) -> str:
    return (", " if comma else " ").join(filter(None, parts))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(headings: Row, rows: Sequence[Row]) -> list[str]:
    """Return *rows* below *headings*, without the columns that are empty."""
    if not rows:
        return []
    kept = [n for n in range(len(headings)) if any(row[n] for row in rows)]
    return _align([tuple(row[n] for n in kept) for row in (headings, *rows)])


def _align(rows: Sequence[Row]) -> list[str]:
    rows = [(*map(_shorten, row[:-1]), *row[-1:]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _shorten(cell: str) -> str:
    return cell if len(cell) <= WIDEST else f"{cell[: WIDEST - 1]}…"
