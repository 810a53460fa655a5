"""
``@retry_on``: when to try again, and how long to wait first.

1. each ``@retry_on`` line is kept as a declaration on its class
2. the declarations of a class and its ancestors are folded into a ``RetryPolicy``
3. the policy is compiled when the class is first used, see ``cmdx.retry.decide``
4. after each failure what was compiled makes a ``Decision``

A policy has one unnamed rule, which all plain declarations add to, and a rule for each
name given with ``rule=``. Named rules are asked first, the nearest class's and the
outermost decorator's before others; the first rule that lists the error decides.

Nothing here sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, TypeVar

import attrs

from cmdx.declare.checks import check_count, check_kinds, check_names, check_seconds
from cmdx.declare.decorators import declare, is_task_class
from cmdx.declare.gates import GATE_WORDS, Gate, check_retry_gates
from cmdx.declare.signatures import check_plain_call
from cmdx.exceptions import DefinitionError, did_you_mean
from cmdx.retry.budget import RetryBudget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Unpack

    from cmdx.declare.checks import Instead, Kinds
    from cmdx.task import Task

T = TypeVar("T", bound="type[Task[Any]]")
Jitter = str | Callable[..., Any]

JITTER_ARGUMENTS = 3
"""What a jitter is called with: attempt, delay and previous."""


@attrs.frozen
class RetryRule:
    """When to try again, and how long to wait first."""

    name: str | None = None
    """Its name; None for the unnamed rule."""
    exceptions: tuple[type[BaseException], ...] = ()
    """The exceptions that are retried."""
    limit: int = 3
    """The number of retries."""
    delay: float = 0.5
    """The base delay, in seconds."""
    max_delay: float | None = None
    """The longest pause, in seconds."""
    jitter: Jitter | None = None
    """What computes the pause."""
    if_: Gate | None = None
    """The gate that must be true for a retry."""
    unless: Gate | None = None
    """The gate that must be false for a retry."""
    deadline: float | None = None
    """The seconds for all attempts together."""
    budget: RetryBudget | None = None
    """What limits the retries of many tasks together."""
    guided: bool = False
    """Whether the guidance of errors is followed."""
    nested: Literal["once"] | None = None
    """``"once"`` if it does not retry while an outer task retries."""
    # Only the rule that a queue adds has these.
    max_attempts: int | None = None
    """The most calls of ``work``, by whatever rule."""
    longest_wait: float | None = None
    """The longest wait that guidance may ask for, whatever *max_delay* is."""

    def extend(self, declaration: RetryDeclaration) -> RetryRule:
        """Return this rule with what *declaration* adds and changes."""
        united = dict.fromkeys((*self.exceptions, *declaration.exceptions))
        defaults = attrs.fields_dict(RetryRule)
        options: dict[str, Any] = {
            name: defaults[name].default if value is None else value
            for name, value in declaration.options.items()
        }
        return attrs.evolve(self, exceptions=tuple(united), **options)


@attrs.frozen
class RetryPolicy:
    """
    All rules of a class, in the order they are asked.

    The options of the unnamed rule, which is asked last, can be read from the policy.
    """

    rules: tuple[RetryRule, ...] = (RetryRule(),)

    @property
    def default(self) -> RetryRule:
        """The unnamed rule."""
        return self.rules[-1]

    def __getattr__(self, option: str) -> Any:
        """Read an option of the unnamed rule."""
        if option not in OPTIONS and option != "exceptions":
            message = f"{type(self).__name__!r} object has no attribute {option!r}"
            raise AttributeError(message)
        return getattr(self.default, option)

    @classmethod
    def fold(cls, declarations: Iterable[RetryDeclaration]) -> RetryPolicy:
        """Make a policy of *declarations*, the farthest ancestor's first."""
        rules: dict[str | None, RetryRule] = {None: RetryRule()}
        for declaration in declarations:
            rule = rules.pop(declaration.rule, None) or RetryRule(declaration.rule)
            rules[declaration.rule] = rule.extend(declaration)
        default = rules.pop(None)
        return cls((*reversed(rules.values()), default))


class RetryKeywords(TypedDict, total=False):
    """The keywords of ``retry_on``; None restores a default."""

    limit: int | None
    """Retries after the first call; 3."""
    delay: float | None
    """Seconds before the next call; 0.5. 0 means no pause."""
    max_delay: float | None
    """The longest pause in seconds; no bound unless given."""
    jitter: Jitter | None
    """What computes the pause: the name of a retrier or method, or a callable of
    ``(attempt, delay, previous)`` or fewer. Without one the pause is *delay*."""
    if_: Gate | None
    """Whether to try again: True, False, the name of a method, or a callable of
    ``(error)``, ``(error, attempt)`` or ``(task, error, attempt)``."""
    unless: Gate | None
    """The opposite of *if_*; asked after it."""
    rule: str | None
    """The name of a rule of its own, with its own limit and count."""
    deadline: float | None
    """Seconds for all attempts and pauses together."""
    budget: RetryBudget | None
    """A budget of retries, shared by several tasks."""
    guided: bool | None
    """Whether to obey what the error says about trying again."""
    nested: Literal["once"] | None
    """``"once"``: do not retry while an outer task retries."""


OPTIONS = tuple(
    field.name
    for field in attrs.fields(RetryRule)
    if field.name not in ("name", "exceptions", "max_attempts", "longest_wait")
)


@attrs.frozen
class RetryDeclaration:
    """What one ``@retry_on`` line said."""

    exceptions: tuple[type[BaseException], ...]
    options: dict[str, Any]
    rule: str | None


def retry_on(
    *exceptions: type[BaseException] | Iterable[type[BaseException]],
    **keywords: Unpack[RetryKeywords],
) -> Callable[[T], T]:
    """
    Call ``work`` of the decorated class again after *exceptions*.

    Example::

        @retry_on(ConnectionError, limit=5, delay=0.1, jitter="full_jitter")
        class FetchRate(Task[float]): ...

    Declarations accumulate over the class and its ancestors: exceptions are united and
    options are merged. The nearest class wins, and on one class the outermost
    decorator. None restores the default of an option.

    Args:
        exceptions: The exception classes to retry after, one by one or in lists.
        limit: The number of retries after the first call; 0 disables retrying. 3 by
            default.
        delay: The base delay in seconds; 0 means no pause. 0.5 by default.
        max_delay: The longest pause in seconds.
        jitter: What computes the pause: the name of a retrier ("full_jitter",
            "exponential", ...) or of a method, or a callable of
            ``(attempt, delay, previous)`` or fewer. Without one the pause is *delay*.
        if_: Whether to retry: a callable of ``(error)``, ``(error, attempt)`` or
            ``(task, error, attempt)``, the name of a method, True or False.
        unless: Whether not to retry, in the same forms; asked after *if_*.
        rule: The name of a separate rule, with its own exceptions, options and count.
        deadline: Seconds for all attempts and pauses together.
        budget: A ``RetryBudget`` that several tasks share.
        guided: Whether to follow what the error says about retrying.
        nested: ``"once"`` does not retry while an outer task retries.
    """
    options: dict[str, Any] = dict(keywords)
    check_names("retry_on", options, RetryKeywords.__annotations__, OTHER_WORDS)
    rule = options.pop("rule", None)
    if rule is not None and (not isinstance(rule, str) or not rule):
        message = (
            f"retry_on: rule must be a non-empty string, got {rule!r}. "
            'Write for example rule="network".'
        )
        raise DefinitionError(message)
    check_options(options)
    classes = tuple(exception_classes(exceptions))
    declaration = RetryDeclaration(classes, options, rule)
    return lambda cls: declare(cls, declaration, by="retry_on")


def rules_without_effect(cls: type[Task[Any]], policy: RetryPolicy) -> list[str]:
    """
    Say which rules that *cls* declares itself retry nothing, though they should.

    A class that inherits such a rule need not use it: a base class may declare the
    options that the tasks derived from it have in common.
    """
    own = {
        declaration.rule
        for declaration in vars(cls)["_cmdx_"].declarations
        if isinstance(declaration, RetryDeclaration)
    }
    return [
        f"@retry_on{'' if rule.name is None else f' with rule={rule.name!r}'} lists no "
        f"exceptions, so nothing is retried{other_rule(rule, policy)} List them: "
        f"@retry_on(TimeoutError, ...)."
        for rule in policy.rules
        if rule.name in own and rule.limit and not rule.exceptions
    ]


def other_rule(rule: RetryRule, policy: RetryPolicy) -> str:
    """End a sentence about *rule*, with the nearest rule that has exceptions."""
    known = [other.name for other in policy.rules if other.name and other.exceptions]
    return did_you_mean(rule.name or "", known)


def other_words(words: str, use: str) -> dict[str, str]:
    """Say for each of *words* what to use instead."""
    return dict.fromkeys(words.split(), f"use {use}")


OTHER_WORDS: Instead = {
    **other_words(
        "max_attempts attempts max_tries tries times stop",
        "`limit`, which counts the retries after the first call and so is one less",
    ),
    **other_words("max_retries retries", "`limit`"),
    **other_words(
        "wait wait_initial countdown default_retry_delay interval",
        "`delay`, in seconds",
    ),
    **other_words("wait_max max_wait retry_backoff_max backoff_max", "`max_delay`"),
    **other_words(
        "backoff retry_backoff factor wait_exp_base strategy wait_jitter retry_jitter",
        '`jitter`, such as jitter="exponential"',
    ),
    **other_words(
        "exceptions on autoretry_for", "positional arguments: `retry_on(TimeoutError)`"
    ),
    **other_words("timeout max_time", "`deadline`"),
    **other_words("should_retry predicate", "`if_`"),
    **other_words("giveup", "`unless`"),
    **GATE_WORDS,
}
"""What other libraries call the options: tenacity, stamina, backoff and Celery."""


def exception_classes(exceptions: Iterable[Any]) -> Iterator[type[BaseException]]:
    """Yield the exception classes that were listed, alone or in lists."""
    for exception in exceptions:
        if isinstance(exception, list | tuple | set | frozenset):
            yield from exception_classes(exception)
        elif isinstance(exception, type) and issubclass(exception, BaseException):
            yield exception
        else:
            refuse_exception(exception)


def refuse_exception(given: Any) -> NoReturn:
    """Raise: *given* is not an exception class."""
    message = (
        f"retry_on takes exception classes, got {given!r}. "
        "List classes such as TimeoutError, and pass options by keyword."
    )
    if is_task_class(given):
        name = given.__qualname__
        message = (
            f"retry_on takes exception classes, got the task class {name}. To decorate "
            f"it, write `@retry_on(...)` with exceptions in parentheses; to retry "
            f"after its failures, list {name}.Fault."
        )
    raise DefinitionError(message)


def check_options(options: dict[str, Any]) -> None:
    """Refuse values of a wrong kind, and turn numbers into ints and floats."""
    if options.get("limit") is not None:
        check_count("retry_on", "limit", options["limit"], least=0)
    for name in ("delay", "max_delay", "deadline"):
        if options.get(name) is not None:
            options[name] = check_seconds("retry_on", name, options[name])
    check_retry_gates("retry_on", if_=options.get("if_"), unless=options.get("unless"))
    check_kinds("retry_on", options, RETRY_KINDS)
    jitter = options.get("jitter")
    if callable(jitter):
        check_jitter("retry_on: jitter", jitter)


RETRY_KINDS: Kinds = {
    "jitter": (
        lambda value: callable(value) or (isinstance(value, str) and value != ""),
        "the name of a retrier or method, or a callable",
    ),
    "budget": (lambda value: isinstance(value, RetryBudget), "a RetryBudget"),
    "guided": (lambda value: isinstance(value, bool), "True or False"),
    "nested": (lambda value: value == "once", '"once" or None'),
}


def check_jitter(
    where: str, jitter: Callable[..., Any], *, has_self: bool = False
) -> int:
    """Return how many arguments *jitter* takes; refuse an async one, and too many."""
    cure = (
        "It is called with attempt, delay and previous, or fewer of them, and with "
        "max_delay if it has that keyword."
    )
    return check_plain_call(
        where,
        jitter,
        JITTER_ARGUMENTS,
        cure,
        has_self=has_self,
        keywords=("max_delay",),
    )
