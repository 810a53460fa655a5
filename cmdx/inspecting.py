"""
``python -m cmdx inspect module:Task``: the contract of a task as a table.

1. ``add_inspect`` makes the command known to the command line
2. ``found`` imports what was named, or says in one sentence why it cannot
3. ``describe`` writes what was declared, section by section

Only declarations are read, and nothing is run. Defaults that look like a secret, and
objects of which nobody knows what their ``repr`` tells, are not shown.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import PurePath
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
)
from uuid import UUID

import cmdx
from cmdx.arity import awaits
from cmdx.blueprint import Blueprint
from cmdx.coercion import Unknown, parts_of, unwrapped
from cmdx.exceptions import did_you_mean
from cmdx.task import Task
from cmdx.validation import VALIDATORS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from cmdx.gates import Gate
    from cmdx.inputs import Input
    from cmdx.retry import RetryRule

WIDEST = 60
"""A cell longer than this is cut, except in the last column."""

SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|api_?key|private_?key|auth(?!or(?!i))",
    re.IGNORECASE,
)
USER_IN_URL = re.compile(r"(?<=://)[^/\s]+@")
HIDDEN = "(hidden)"
PLAIN = (
    str, int, float, complex, Decimal, Fraction, date, time, timedelta, UUID,
    PurePath, type(None),
)  # fmt: skip

EVENTS = (
    "before_execution", "before_validation", "around_execution", "after_execution",
    "on_complete", "on_interrupted", "on_success", "on_skipped", "on_failed",
    "on_ok", "on_ko",
)  # fmt: skip
"""What can be hooked into, in the order it happens."""

QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final")

Row = tuple[str, ...]


class NotFound(Exception):  # noqa: N818 -- it says what became of a search
    """Nothing can be described; the message says why, and what to do."""


# -- the command -----------------------------------------------------------------------


def add_inspect(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Make ``inspect`` known to the command line."""
    parser = subparsers.add_parser(
        "inspect",
        help="print the contract of a task",
        description="Print what a task takes, leaves, hooks into and retries.",
    )
    parser.add_argument(
        "task",
        metavar="MODULE:TASK",
        help="where the task is, such as shop.orders:ChargeCard",
    )
    parser.set_defaults(run=run_inspect)


def run_inspect(asked: argparse.Namespace) -> int:
    """Print the contract, or what is wrong with the question."""
    try:
        task = found(asked.task)
    except NotFound as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    sys.stdout.write(f"{describe(task)}\n")
    return 0


def found(target: str) -> type[Task[Any]]:
    """Return the task that *target* names, or raise ``NotFound``."""
    name, _, path = target.partition(":")
    if not name:
        message = f"{target!r} names no module. Write it as module:Task."
        raise NotFound(message)
    module = _imported(name)
    if not path:
        message = f"{name} is a module with {_listed(module)}. Write {name}:Task."
        raise NotFound(message)
    return _checked(target, module, _attribute(module, path))


def _imported(name: str) -> ModuleType:
    if "/" in name or "\\" in name or name.endswith(".py"):
        dotted = re.sub(r"[/\\]+", ".", name.removesuffix(".py")).strip(".")
        message = f"{name} is a file. Name the module instead: {dotted}:Task."
        raise NotFound(message)
    try:
        with _here():
            return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            message = (
                f"there is no module {error.name!r}. Write module:Task, and run this "
                "where Python finds the module: beside it, or where it is installed."
            )
            raise NotFound(message) from None
        raise _broken(name, error) from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from None


def _broken(name: str, error: BaseException) -> NotFound:
    said = " ".join(str(error).split())
    kind = type(error).__name__
    return NotFound(
        f"the module {name!r} cannot be imported: {kind}{said and ': '}{said}. "
        f"Make `import {name}` work first."
    )


@contextmanager
def _here() -> Iterator[None]:
    # `python -m cmdx` looks into the working folder by itself, the script does not.
    here = os.getcwd()  # noqa: PTH109 -- sys.path holds text
    if sys.flags.safe_path or here in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _attribute(module: ModuleType, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            known = [each for each in dir(value) if not each.startswith("_")]
            message = (
                f"{module.__name__} has no {path!r}{did_you_mean(name, known)} "
                f"It is a module with {_listed(module)}."
            )
            raise NotFound(message) from None
    return value


def _checked(target: str, module: ModuleType, value: Any) -> type[Task[Any]]:
    if isinstance(value, type) and issubclass(value, Task):
        return value
    # Its type alone: what was named by mistake may be a secret.
    kind = "another class" if isinstance(value, type) else type(value).__name__
    message = (
        f"{target} is no task, but {kind}. Name a class that derives from cmdx.Task; "
        f"{module.__name__} is a module with {_listed(module)}."
    )
    raise NotFound(message)


def _listed(module: ModuleType) -> str:
    tasks = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Task)
        and getattr(cmdx, name, None) is not value
    ]
    if not tasks:
        return "no tasks"
    return f"the task{'s' if len(tasks) > 1 else ''} {', '.join(tasks)}"


# -- the description -------------------------------------------------------------------


def describe(task: type[Task[Any]]) -> str:
    """Return the contract of *task* as plain text, aligned."""
    blueprint = Blueprint.of(task)
    sections = [
        ("", _summary(blueprint)),
        ("Inputs", _inputs(blueprint)),
        ("Outputs", _outputs(blueprint)),
        ("Hooks", _hooks(blueprint)),
        ("Middlewares", _middlewares(blueprint)),
        ("Retries", _retries(blueprint)),
    ]
    return "\n\n".join(
        "\n".join((heading, *(f"  {line}" for line in lines)) if heading else lines)
        for heading, lines in sections
        if lines
    )


def _summary(blueprint: Blueprint) -> list[str]:
    task, settings = blueprint.task, blueprint.settings
    text = inspect.getdoc(task) if vars(task).get("__doc__") else None
    facts = [
        ("value", _value(task)),
        ("tags", ", ".join(settings.tags)),
        ("run with", _run_with(blueprint)),
        ("deprecated", _deprecated(blueprint)),
    ]
    return [
        _local(task.__qualname__),
        *([_one_line(text.split("\n\n")[0])] if text else []),
        "",
        *_aligned([(name, fact) for name, fact in facts if fact]),
    ]


def _value(task: type[Task[Any]]) -> str:
    for each in task.__mro__:
        for base in vars(each).get("__orig_bases__", ()):
            origin, args = get_origin(base), get_args(base)
            is_task = isinstance(origin, type) and issubclass(origin, Task)
            if is_task and args and not isinstance(args[0], TypeVar):
                return _typed(args[0])
    return ""


def _run_with(blueprint: Blueprint) -> str:
    task = blueprint.task
    if not callable(getattr(task, "work", None)):
        return "nothing yet: it has no work(), so it is there to be derived from"
    names = ("work", "rollback", *blueprint.hooks)
    calls = [getattr(task, name, None) for name in names]
    calls += [call for each in blueprint.middlewares for call in each.calls]
    if any(awaits(call) for call in calls if call is not None):
        return "aexecute, because it awaits"
    return "execute or aexecute"


def _deprecated(blueprint: Blueprint) -> str:
    settings = blueprint.settings
    how = settings.deprecated
    if how is None:
        return ""
    gate = _gated(settings.deprecated_if, settings.deprecated_unless)
    return _joined(how if isinstance(how, str) else _named(how), gate)


def _inputs(blueprint: Blueprint) -> list[str]:
    inputs = blueprint.fields.inputs.values()
    if not inputs:
        return ["none declared: any keyword goes into the context"]
    rows = [row for each in inputs for row in _input_rows(each)]
    return _table(("name", "type", "given", "rules", "description"), rows)


def _input_rows(declared: Input) -> Iterator[Row]:
    renamed = "" if declared.key == declared.name else f" (self.{declared.name})"
    yield (
        f"{declared.key}{renamed}",
        _typed(declared.annotation),
        _given(declared),
        ", ".join(_rules(declared)),
        _one_line(declared.description),
    )
    if not {"coerce", "source"} & declared.field.options.keys():
        yield from _part_rows(declared.key, declared.annotation, ())


def _part_rows(path: str, annotation: Any, above: tuple[Any, ...]) -> Iterator[Row]:
    """Yield a row for each field of the classes in *annotation*."""
    annotation = unwrapped(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        for member in args:
            yield from _part_rows(path, member, above)
    elif origin is not None and origin is not Literal:
        for member in args:
            yield from _part_rows(f"{path}[]", member, above)
    elif isinstance(annotation, type) and annotation not in above:
        try:
            parts = parts_of(annotation)
        except Unknown:
            return
        for part in parts:
            below = f"{path}.{part.key}"
            given = "required" if part.required else "optional"
            rules = ", ".join(_constraints(part.annotation))
            yield below, _typed(part.annotation), given, rules, ""
            yield from _part_rows(below, part.annotation, (*above, annotation))


def _given(declared: Input) -> str:
    field, options = declared.field, declared.field.options
    source = options.get("source")
    taken = "" if source is None else f"from {_named(source)}"
    if field.factory is not None:
        return _joined(taken, f"default by {_named(field.factory)}", comma=True)
    if not field.required:
        default = HIDDEN if _is_secret(declared) else _shown(field.default)
        return _joined(taken, f"default {default}", comma=True)
    needed = _joined("required", _gated(options.get("if_"), options.get("unless")))
    return taken or needed


def _is_secret(declared: Input) -> bool:
    default = declared.field.default
    if default is None or isinstance(default, bool) or default == "":
        return False
    return SECRET.search(f"{declared.name} {declared.key}") is not None


def _outputs(blueprint: Blueprint) -> list[str]:
    rows = [
        (
            name,
            _typed(declared.annotation),
            _gated(declared.if_, declared.unless) or "always",
            _one_line(declared.description),
        )
        for name, declared in blueprint.fields.outputs.items()
    ]
    return _table(("name", "type", "set", "description"), rows)


def _hooks(blueprint: Blueprint) -> list[str]:
    rows = [
        (occasion.event, name, _gated(occasion.if_, occasion.unless))
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
        (_named(call), _gated(declaration.if_, declaration.unless))
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
        ", ".join(each.__name__ for each in rule.exceptions),
        str(rule.limit),
        _seconds(rule.delay),
        "" if rule.jitter is None else _named(rule.jitter),
        _seconds(rule.max_delay),
        _seconds(rule.deadline),
        "" if rule.budget is None else "shared",
        "yes" if rule.guided else "",
        rule.nested or "",
        _gated(rule.if_, rule.unless),
    )


# -- the rules of an input -------------------------------------------------------------

WORDS: dict[str, Callable[[Any], str]] = {
    "presence": lambda wanted: "present" if wanted else "absent",
    "absence": lambda wanted: "absent" if wanted else "present",
    "gt": lambda bound: f"> {_shown(bound)}",
    "ge": lambda bound: f">= {_shown(bound)}",
    "lt": lambda bound: f"< {_shown(bound)}",
    "le": lambda bound: f"<= {_shown(bound)}",
    "multiple_of": lambda step: f"multiple of {_shown(step)}",
    "length": lambda size: f"length {size}",
    "min_length": lambda size: f"length >= {size}",
    "max_length": lambda size: f"length <= {size}",
    "pattern": lambda wanted: f"pattern {getattr(wanted, 'pattern', wanted)}",
    "one_of": lambda choices: f"one of {_shown(list(choices))}",
    "none_of": lambda choices: f"none of {_shown(list(choices))}",
}


def _rules(declared: Input) -> Iterator[str]:
    """Yield the rules in the order they are applied."""
    options = declared.field.options
    coerce = options.get("coerce", True)
    if coerce is False:
        yield "taken as it is"
    elif coerce is not True:
        yield f"made by {_named(coerce)}"
    if "format" in options:
        yield f"format {options['format']}"
    yield from _constraints(declared.annotation)
    if "transform" in options:
        yield f"then {_named(options['transform'])}"
    yield from (WORDS[name](options[name]) for name in options if name in VALIDATORS)
    validate = options.get("validate", ())
    for check in (validate,) if callable(validate) else validate:
        yield f"checked by {_named(check)}"


def _constraints(annotation: Any) -> Iterator[str]:
    if _wraps(get_origin(annotation)):
        inner, *metadata = get_args(annotation)
        yield from _constraints(inner)
        yield from _worded(metadata)


def _worded(metadata: Iterable[Any]) -> Iterator[str]:
    for each in metadata:
        wishes = {name: getattr(each, name, None) for name in VALIDATORS}
        wishes = {
            name: value
            for name, value in wishes.items()
            if value is not None and not callable(value)
        }
        if wishes:
            yield from (WORDS[name](value) for name, value in wishes.items())
        elif callable(getattr(each, "func", None)):
            yield f"checked by {_named(each.func)}"
        elif isinstance(each, re.Pattern):
            yield WORDS["pattern"](each)
        elif hasattr(each, "__is_annotated_types_grouped_metadata__"):
            yield from _worded(each)
        elif callable(each) and not isinstance(each, type):
            yield f"checked by {_named(each)}"


# -- words for values ------------------------------------------------------------------


def _typed(annotation: Any) -> str:
    """Return *annotation* as people write it, without constraints and modules."""
    origin, args = get_origin(annotation), get_args(annotation)
    if _wraps(origin):
        return _typed(args[0])
    if origin in (Union, UnionType):
        return " | ".join(map(_typed, args))
    if origin is Literal:
        return f"Literal[{', '.join(map(_shown, args))}]"
    if isinstance(annotation, list):  # the arguments of a Callable
        return f"[{', '.join(map(_typed, annotation))}]"
    if origin is not None:
        return f"{_typed(origin)}[{', '.join(map(_typed, args))}]"
    return _atom(annotation)


def _wraps(origin: Any) -> bool:
    return origin is Annotated or getattr(origin, "_name", None) in QUALIFIERS


def _atom(annotation: Any) -> str:
    if annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    for attribute in ("__qualname__", "__name__", "__forward_arg__"):
        if isinstance(name := getattr(annotation, attribute, None), str):
            return _local(name)
    return str(annotation).replace("typing.", "")


def _gated(if_: Gate | None, unless: Gate | None) -> str:
    return _joined(
        "" if if_ in (None, True) else f"if {_named(if_)}",
        "" if unless in (None, False) else f"unless {_named(unless)}",
    )


def _named(call: Any) -> str:
    """Return the name of what is called; never its ``repr``, which tells too much."""
    if isinstance(call, str | bool):
        return str(call)
    if isinstance(call, partial):
        return _named(call.func)
    name = getattr(call, "__qualname__", None)
    if not isinstance(name, str):
        return _local(type(call).__qualname__)
    return "a lambda" if name.endswith("<lambda>") else _local(name)


def _local(name: str) -> str:
    """Return a qualified name without the functions it was defined in."""
    return name.rpartition("<locals>.")[2]


def _shown(value: Any) -> str:
    """Return the ``repr`` of what is known to be harmless, else what it is."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_shown, value)) or "()"
    if isinstance(value, Mapping):
        return f"{len(value)} keys"
    if isinstance(value, PLAIN):
        return USER_IN_URL.sub("***@", repr(value))
    return f"a {type(value).__name__}"


# -- words into lines ------------------------------------------------------------------


def _seconds(number: float | None) -> str:
    return "" if number is None else f"{number:g} s"


def _joined(*parts: str, comma: bool = False) -> str:
    return (", " if comma else " ").join(filter(None, parts))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(headings: Row, rows: Sequence[Row]) -> list[str]:
    """Return *rows* below *headings*, without the columns that are empty."""
    if not rows:
        return []
    kept = [n for n in range(len(headings)) if any(row[n] for row in rows)]
    return _aligned([tuple(row[n] for n in kept) for row in (headings, *rows)])


def _aligned(rows: Sequence[Row]) -> list[str]:
    rows = [(*map(_cut, row[:-1]), *row[-1:]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _cut(cell: str) -> str:
    return cell if len(cell) <= WIDEST else f"{cell[: WIDEST - 1]}…"
