"""
Class keywords: ``class ChargeCard(Task[Receipt], tags=("billing",), log=False)``.

They are inherited and merged; ``Settings`` is what they come to for one class. Only
``name=`` is of one class alone: ``named_tasks`` has the class of each name.
``deprecated=`` says what happens when the class is still run: ``"log"`` writes a line,
``"warn"`` gives a ``DeprecationWarning``, ``"error"`` raises ``DeprecatedTaskError``
before the run begins, and a callable is called with the task.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict
from weakref import WeakValueDictionary

import attrs

from cmdx.declare.checks import check_kinds
from cmdx.declare.gates import Gate, check_gates, compile_gate
from cmdx.declare.signatures import check_plain_call
from cmdx.exceptions import DefinitionError, DeprecatedTaskError, did_you_mean
from cmdx.log import level_number, log_deprecation
from cmdx.result import Result
from cmdx.retry.inline import RetryOptions
from cmdx.telemetry import send, task_deprecated

if TYPE_CHECKING:
    from cmdx.declare.checks import Kinds
    from cmdx.run.invocation import Invocation
    from cmdx.task import Task

Deprecation: TypeAlias = str | Callable[..., Any]


class Keywords(TypedDict, total=False):
    """The class keywords of a task."""

    name: str
    """What stored data calls this class; subclasses have names of their own."""
    tags: Sequence[str]
    """Texts to find the results of this class by; added to those inherited."""
    log: bool
    """Whether each run writes a log line."""
    log_level: int | str | None
    """The level of the line; by the outcome unless given."""
    log_fields: Sequence[str]
    """Further fields of the line: attributes of the result, or ``"context.key"``."""
    correlation_id: Callable[..., str] | None
    """Called once for a root run, with the task if it takes one; gives ``xid``."""
    deprecated: Deprecation | None
    """``"log"``, ``"warn"``, ``"error"``, or a callable of the task."""
    deprecated_if: Gate | None
    """Whether it is deprecated this time."""
    deprecated_unless: Gate | None
    """The opposite of *deprecated_if*."""
    retry: RetryOptions
    """The defaults of ``self.retry``."""


NO_OPTIONS = RetryOptions()

named_tasks: WeakValueDictionary[str, type[Task[Any]]] = WeakValueDictionary()
"""The classes that have the keyword ``name=``."""

RESULT_ATTRIBUTES = frozenset(
    name for name, value in vars(Result).items() if isinstance(value, property)
)


@attrs.frozen
class Settings:
    """What the class keywords of a task and its ancestors come to."""

    tags: tuple[str, ...] = ()
    log: bool = True
    log_level: int | None = None
    log_fields: tuple[str, ...] = ()
    correlation_id: Callable[..., str] | None = None
    deprecated: Deprecation | None = None
    deprecated_if: Gate | None = None
    deprecated_unless: Gate | None = None
    retry: RetryOptions = NO_OPTIONS

    def extend(self, keywords: Keywords) -> Settings:
        """Return these settings with what a nearer class says."""
        changes: dict[str, Any] = dict(keywords)
        changes.pop("name", None)
        for name in ("tags", "log_fields"):
            if name in changes:
                united = dict.fromkeys((*getattr(self, name), *changes[name]))
                changes[name] = tuple(united)
        if "retry" in changes:
            changes["retry"] = changes["retry"].over(self.retry)
        return attrs.evolve(self, **changes)


def check_keywords(cls: type, keywords: dict[str, Any]) -> Keywords:
    """Return the keywords of *cls*; refuse unknown ones and those of a wrong kind."""
    where = f"class {cls.__qualname__}"
    for name in keywords:
        if name not in KEYWORD_KINDS:
            message = (
                f"{where}: unknown keyword {name!r}{did_you_mean(name, KEYWORD_KINDS)} "
                f"Valid keywords: {', '.join(KEYWORD_KINDS)}."
            )
            raise DefinitionError(message)
    for name in (
        "name",
        "tags",
        "log",
        "log_fields",
        "retry",
    ):  # the others may be None
        if keywords.get(name, ...) is None:
            message = f"{where}: {name} must be {KEYWORD_KINDS[name][1]}, got None."
            raise DefinitionError(message)
    check_kinds(where, keywords, KEYWORD_KINDS)
    gates = ("deprecated_if", "deprecated_unless")
    check_gates(where, **{name: keywords.get(name) for name in gates})
    check_calls(where, keywords)
    if "log_level" in keywords:
        keywords["log_level"] = level_number(keywords["log_level"])
    for name in ("tags", "log_fields"):
        if name in keywords:  # a copy: the caller may change their list later
            keywords[name] = tuple(keywords[name])
    return keywords  # type: ignore[return-value]


def check_calls(where: str, keywords: dict[str, Any]) -> None:
    """Refuse callables that nothing would await, or that take other arguments."""
    correlation_id = keywords.get("correlation_id")
    if correlation_id is not None:
        cure = "Take the task, or no arguments."
        check_plain_call(f"{where}: correlation_id", correlation_id, 1, cure)
    deprecated = keywords.get("deprecated")
    if callable(deprecated):
        cure = "Take the task alone."
        check_plain_call(f"{where}: deprecated", deprecated, 1, cure, least=1)


def claim_name(cls: type[Task[Any]], keywords: Keywords) -> None:
    """Let stored data call *cls* by its ``name=``; refuse the name of another class."""
    name = keywords.get("name")
    if name is None:
        return
    other = named_tasks.get(name)
    if other is not None and place_of(other) != place_of(cls):
        message = (
            f"class {cls.__qualname__}: {place_of(other)} already has the name "
            f"{name!r}, and stored data could mean both. Choose another name."
        )
        raise DefinitionError(message)
    named_tasks[name] = cls  # of a module that is reloaded: the newer one


def place_of(cls: type) -> str:
    """Return where a class is defined."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_name(value: Any) -> bool:
    """Tell whether *value* can be the name of a task in stored data."""
    if not isinstance(value, str) or not value.isprintable():
        return False
    return value != "" and not any(letter in " :" for letter in value)


def are_texts(value: Any) -> bool:
    """Tell whether *value* is a sequence of texts."""
    if not isinstance(value, list | tuple | set | frozenset):
        return False
    return all(isinstance(text, str) for text in value)


def are_log_fields(value: Any) -> bool:
    """Tell whether *value* names things that a result has."""
    return are_texts(value) and all(
        field.partition(".")[0] in RESULT_ATTRIBUTES for field in value
    )


KEYWORD_KINDS: Kinds = {
    "name": (is_name, "text without spaces and colons"),
    "tags": (are_texts, "a list or tuple of strings"),
    "log": (lambda value: isinstance(value, bool), "True or False"),
    "log_level": (
        lambda value: level_number(value) is not None,
        'a level such as "info" or logging.INFO',
    ),
    "log_fields": (
        are_log_fields,
        'attributes of a result, such as "value", "context" or "context.order_id"',
    ),
    "correlation_id": (callable, "a callable"),
    "deprecated": (
        lambda value: callable(value) or value in ("log", "warn", "error"),
        '"log", "warn", "error" or a callable',
    ),
    "deprecated_if": (lambda _: True, "a gate"),
    "deprecated_unless": (lambda _: True, "a gate"),
    "retry": (lambda value: isinstance(value, RetryOptions), "RetryOptions(...)"),
}


# -- deprecation ----------------------------------------------------------------------

Announce: TypeAlias = "Callable[[Invocation], None]"


def compile_deprecation(cls: type[Task[Any]], settings: Settings) -> Announce | None:
    """Return what is called when a deprecated task runs; it may raise or halt."""
    deprecated = settings.deprecated
    if deprecated is None:
        return None
    gate = compile_gate(
        f"class {cls.__qualname__}",
        cls,
        settings.deprecated_if,
        settings.deprecated_unless,
    )
    tell = TELLING[deprecated] if isinstance(deprecated, str) else deprecated

    def announce(task: Invocation) -> None:
        if gate is not None and not gate(task):
            return
        task._cmdx_.deprecated = True
        if task_deprecated.receivers and task._cmdx_.is_announced:
            send(task_deprecated, task)
        tell(task)

    return announce


def compile_refusal(announce: Announce) -> tuple[Announce, Announce]:
    """
    Return what refuses a task before its run begins, and what is called in the run.

    Only a deprecated task is refused. A gate that raises is asked again in the run,
    which it then ends like any other gate.
    """

    def refuse(task: Invocation) -> None:
        try:
            announce(task)
        except DeprecatedTaskError:
            raise
        except Exception:
            task._cmdx_.asks_gate_again = True

    def ask_again(task: Invocation) -> None:
        if task._cmdx_.asks_gate_again:
            announce(task)

    return refuse, ask_again


def deprecation_text(task: Invocation) -> str:
    """Say that *task* is deprecated."""
    return f"{type(task).__qualname__} is deprecated and should no longer be run"


def warn_of_deprecation(task: Invocation) -> None:
    """Warn, at the line that runs the task."""
    level = frames_of_ours() + 1
    warnings.warn(deprecation_text(task), DeprecationWarning, stacklevel=level)


def refuse_deprecated(task: Invocation) -> None:
    """Raise ``DeprecatedTaskError``."""
    message = f"{deprecation_text(task)}. Use the task that replaces it."
    raise DeprecatedTaskError(message)


def frames_of_ours() -> int:
    """Count the frames of this package, so that a warning names the caller."""
    frame, count = sys._getframe(1), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("cmdx."):
        frame, count = frame.f_back, count + 1  # type: ignore[assignment]
    return count


TELLING: dict[str, Announce] = {
    "log": log_deprecation,
    "warn": warn_of_deprecation,
    "error": refuse_deprecated,
}
