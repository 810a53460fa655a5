"""
``@retry_on``: when to try again, and how long to wait first.

This room decides and never sleeps.

1. each ``@retry_on`` line is kept as a declaration on its class
2. the declarations of a class and its ancestors are folded into a ``RetryPolicy``
3. the policy of a class is compiled when the class first runs
4. after each failure the lifecycle asks what was compiled for a ``Decision``

A policy has one unnamed rule, which all plain declarations add to, and a rule for each
name given with ``rule=``. Named rules are asked first, the nearest class's and the
outermost decorator's before others; the first rule that lists the error decides.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from numbers import Real
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    cast,
)

import attrs

from cmdx import deadlines
from cmdx.arity import accepted, awaits, takes_keyword
from cmdx.budget import RetryBudget
from cmdx.declarations import declare
from cmdx.exceptions import (
    CmdxError,
    DefinitionError,
    Fault,
    UnknownEntryError,
    did_you_mean,
)
from cmdx.gates import Ask, Gate, check_gates, compiled_gate
from cmdx.outcome import Stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Unpack

    from cmdx.blueprint import Plan
    from cmdx.invocation import Invocation
    from cmdx.registry import Registry
    from cmdx.task import Task

T = TypeVar("T", bound="type[Task[Any]]")
Jitter = str | Callable[..., Any]

NEVER_RETRIED = (KeyboardInterrupt, SystemExit, GeneratorExit)

# What a retry gate and a jitter are offered.
GATE_ARGUMENTS = 3
JITTER_ARGUMENTS = 3

# Where the fields of an attempt are.
PAUSE, RULE = 3, 4


@attrs.frozen
class RetryRule:
    """When to try again, and how long to wait first."""

    name: str | None = None
    exceptions: tuple[type[BaseException], ...] = ()
    limit: int = 3
    delay: float = 0.5
    max_delay: float | None = None
    jitter: Jitter | None = None
    if_: Gate | None = None
    unless: Gate | None = None
    deadline: float | None = None
    budget: RetryBudget | None = None
    guided: bool = False
    nested: Literal["once"] | None = None

    def extended(self, declaration: RetryDeclaration) -> RetryRule:
        """Return this rule with what *declaration* adds and changes."""
        united = dict.fromkeys((*self.exceptions, *declaration.exceptions))
        return attrs.evolve(
            self, exceptions=tuple(united), **_defaults_restored(declaration.options)
        )


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
    def folded(cls, declarations: Iterable[RetryDeclaration]) -> RetryPolicy:
        """Fold declarations, the farthest ancestor's first, into a policy."""
        rules: dict[str | None, RetryRule] = {None: RetryRule()}
        for declaration in declarations:
            rule = rules.pop(declaration.rule, None) or RetryRule(declaration.rule)
            rules[declaration.rule] = rule.extended(declaration)
        default = rules.pop(None)
        return cls((*reversed(rules.values()), default))


class RetryKeywords(TypedDict, total=False):
    """The keywords of ``retry_on``; None restores a default."""

    limit: int | None
    delay: float | None
    max_delay: float | None
    jitter: Jitter | None
    if_: Gate | None
    unless: Gate | None
    rule: str | None
    deadline: float | None
    budget: RetryBudget | None
    guided: bool | None
    nested: Literal["once"] | None


OPTIONS = tuple(
    field.name
    for field in attrs.fields(RetryRule)
    if field.name not in ("name", "exceptions")
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
    Have ``work`` of the decorated class called again after *exceptions*.

    Declarations accumulate over the class and its ancestors: exceptions are united,
    options merged, and the nearest class and the outermost decorator win.
    Give ``rule=`` a name to keep a declaration, its limit and its count apart.
    """
    declaration = _declared(exceptions, dict(keywords))

    return lambda cls: declare(cls, declaration, by="retry_on")


class Decision(NamedTuple):
    """What to do about a failure: wait and try again, or stop."""

    stopped: Stop | None
    pause: float | None = None
    rule: str | None = None


EXHAUSTED = Decision(Stop.EXHAUSTED)
NOT_LISTED = Decision(Stop.NOT_LISTED)
REFUSED = Decision(Stop.GATE)
GUIDED = Decision(Stop.GUIDANCE)
LATE = Decision(Stop.DEADLINE)
SPENT = Decision(Stop.BUDGET)

Past = Sequence[tuple[Any, ...]]
"""The attempts of a run so far, as the fields of ``cmdx.result.Attempt``."""


class RulePlan:
    """A rule made ready for one class."""

    def __init__(self, cls: type[Task[Any]], rule: RetryRule) -> None:
        self.name = rule.name
        self.catches = tuple(dict.fromkeys(map(_narrowed, rule.exceptions)))
        self.limit = rule.limit
        self.delay = rule.delay
        self.max_delay = rule.max_delay
        self.jitter = rule.jitter
        self.at_once = Decision(None, 0.0, rule.name)
        self.budget = rule.budget
        self.once = rule.nested == "once"
        self.guided = rule.guided
        # Nothing to ask and nothing to wait for.
        said = (rule.if_, rule.unless, rule.budget, rule.nested)
        self.simple = rule.delay <= 0 and not rule.guided and said == (None,) * 4
        self.gate: Ask | None = compiled_gate(
            f"retry_on of {cls.__qualname__}",
            cls,
            rule.if_,
            rule.unless,
            offered=GATE_ARGUMENTS,
        )

    def decide(self, task: Invocation, error: BaseException, past: Past) -> Decision:
        """Decide about a listed *error*; *past* are the attempts this rule has had."""
        ordinary = isinstance(error, Exception) and not isinstance(error, CmdxError)
        if not ordinary and not retryable(error):
            return NOT_LISTED
        count = len(past)
        if count >= self.limit:
            return EXHAUSTED
        if self.simple and deadlines.current.get() is None:
            return self.at_once
        if self.once and outer_policy(task):
            return EXHAUSTED
        if self.gate is not None and not self.gate(task, error, count):
            return REFUSED
        if self.delay <= 0:
            decision = self.at_once
        else:
            previous = past[-1][PAUSE] if past else None
            decision = Decision(None, self.next_pause(task, count, previous), self.name)
        if self.guided:
            decision = self.guide(task, error, decision)
        if self.budget is None and deadlines.current.get() is None:
            return decision
        return self.permit(decision)

    def guide(
        self, task: Invocation, error: BaseException, decision: Decision
    ) -> Decision:
        """Obey what *error* says about trying again; it may only delay or forbid."""
        from cmdx.guidance import guidance_of

        guidance = guidance_of(error)
        if guidance is None:
            return decision
        attempts = task._attempt_ + 1  # of all rules: the other side counts calls
        if not guidance.permits(attempts):
            return GUIDED
        asked = guidance.pause_before(attempts)
        if self.max_delay is not None and asked > self.max_delay:
            return GUIDED
        if asked > 0 and not deadlines.allows(asked):
            return GUIDED
        return decision._replace(pause=max(decision.pause or 0.0, asked))

    def permit(self, decision: Decision) -> Decision:
        """Refuse what would end too late, or what the budget has no room for."""
        if decision.stopped is not None:
            return decision
        if not deadlines.allows(decision.pause or 0.0):
            return LATE
        if self.budget is not None and not self.budget.withdraw():
            return SPENT
        return decision

    def next_pause(self, task: Invocation, count: int, previous: float | None) -> float:
        """Return the seconds to wait, clamped to ``[0, max_delay]`` if there is one."""
        pause = self.delay
        if self.jitter is not None:
            pause = finite(self.jittered(task, count, previous), self.delay)
        return pause if self.max_delay is None else min(max(pause, 0), self.max_delay)

    def jittered(self, task: Invocation, count: int, previous: float | None) -> Any:
        """Call the jitter with as much as it takes."""
        jitter = self.jitter
        if isinstance(jitter, str):
            jitter = _named_jitter(task, jitter)
        assert callable(jitter)  # noqa: S101 -- checked when it was declared
        given = (count, self.delay, previous)[: accepted(jitter, JITTER_ARGUMENTS)]
        if takes_keyword(jitter, "max_delay"):
            return jitter(*given, max_delay=self.max_delay)
        return jitter(*given)


class SeveralRules:
    """The rules of one class, made ready; each counts its own attempts."""

    def __init__(self, rules: Sequence[RulePlan]) -> None:
        self.rules = rules
        self.catches = tuple(error for rule in rules for error in rule.catches)
        self.limit = sum(rule.limit for rule in rules)

    def decide(self, task: Invocation, error: BaseException, past: Past) -> Decision:
        """Have the first rule that lists *error* decide."""
        rule = next(rule for rule in self.rules if isinstance(error, rule.catches))
        own = [attempt for attempt in past if attempt[RULE] == rule.name]
        return rule.decide(task, error, own)


class Limits(NamedTuple):
    """What a policy limits beyond the number of attempts."""

    deadline: float | None
    budgets: tuple[RetryBudget, ...]

    @classmethod
    def of(cls, policy: RetryPolicy) -> Limits | None:
        """Return the limits of *policy*; the earliest deadline is that of the run."""
        rules = [rule for rule in policy.rules if rule.exceptions]
        deadlines = [rule.deadline for rule in rules if rule.deadline is not None]
        budgets = dict.fromkeys(rule.budget for rule in rules if rule.budget)
        if not deadlines and not budgets:
            return None
        return cls(min(deadlines, default=None), tuple(budgets))


def compiled_policy(
    cls: type[Task[Any]], policy: RetryPolicy
) -> RulePlan | SeveralRules:
    """Make *policy* ready for *cls*."""
    rules = [RulePlan(cls, rule) for rule in policy.rules if rule.exceptions]
    return rules[0] if len(rules) == 1 else SeveralRules(rules)


def outer_policy(task: Invocation) -> bool:
    """Tell whether a task that runs this one would try again itself."""
    return any(each.retry.limit > 0 for each in retrying_plans(task._parent_))


def retrying_plans(task: Invocation | None) -> Iterator[Plan]:
    """Yield the plans with a retry policy of *task* and all it is nested in."""
    while task is not None:
        if task._plan_.retry.catches:
            yield task._plan_
        task = task._parent_


def nesting(task: Invocation) -> tuple[int, int]:
    """Return how many policies are around that of *task*, and how calls multiply."""
    limits = [each.retry.limit for each in retrying_plans(task)]
    return len(limits) - 1, math.prod(limit + 1 for limit in limits)


def retryable(error: BaseException) -> bool:
    """Tell whether *error* may be retried at all, whatever was listed."""
    if isinstance(error, CmdxError):
        return isinstance(error, Fault)
    if isinstance(error, Exception):
        return True
    return not isinstance(error, (*NEVER_RETRIED, *_cancellation()))


def finite(number: object, otherwise: float) -> float:
    """Return *number* if it is a finite one, else *otherwise*."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return otherwise
    if isinstance(number, int):
        return number
    number = float(number)
    return number if math.isfinite(number) else otherwise


def _cancellation() -> tuple[type[BaseException], ...]:
    # Without asyncio in the process, nothing can have been cancelled by it.
    asyncio = sys.modules.get("asyncio")
    return () if asyncio is None else (asyncio.CancelledError,)


def _narrowed(exception: type[BaseException]) -> type[BaseException]:
    # Listing BaseException means "any error"; halts and cancellation are none.
    return Exception if exception is BaseException else exception


def _named_jitter(task: Invocation, name: str) -> Callable[..., Any]:
    registry: Registry[Callable[..., Any]] = type(task).retriers  # type: ignore[attr-defined]
    found = registry.find(name)
    if found is not None:
        return found
    method = getattr(task, name, None)
    if callable(method):
        return cast("Callable[..., Any]", method)
    raise UnknownEntryError("retrier", name, registry)


def _defaults_restored(options: dict[str, Any]) -> dict[str, Any]:
    defaults = attrs.fields_dict(RetryRule)
    return {
        name: defaults[name].default if value is None else value
        for name, value in options.items()
    }


def _declared(
    exceptions: tuple[Any, ...], keywords: dict[str, Any]
) -> RetryDeclaration:
    for keyword in keywords:
        if keyword not in OPTIONS and keyword != "rule":
            known = (*OPTIONS, "rule")
            message = (
                f"retry_on has no option {keyword!r}{did_you_mean(keyword, known)} "
                f"Its options are {', '.join(known)}."
            )
            raise DefinitionError(message)
    rule = keywords.pop("rule", None)
    if rule is not None and (not isinstance(rule, str) or not rule):
        message = f"retry_on: rule must be a name, got {rule!r}. Give it as text."
        raise DefinitionError(message)
    _check_options(keywords)
    return RetryDeclaration(tuple(_flattened(exceptions)), keywords, rule)


def _flattened(exceptions: Iterable[Any]) -> Iterable[type[BaseException]]:
    for exception in exceptions:
        if isinstance(exception, list | tuple | set | frozenset):
            yield from _flattened(exception)
        elif isinstance(exception, type) and issubclass(exception, BaseException):
            yield exception
        else:
            message = (
                f"retry_on takes exception classes, got {exception!r}. "
                "List classes such as TimeoutError; options go by keyword."
            )
            raise DefinitionError(message)


def _check_options(options: dict[str, Any]) -> None:
    _check_numbers(options)
    check_gates(
        "retry_on",
        offered=GATE_ARGUMENTS,
        if_=options.get("if_"),
        unless=options.get("unless"),
    )
    for name, (fits, expected) in KINDS.items():
        value = options.get(name)
        if value is not None and not fits(value):
            message = f"retry_on: {name} must be {expected}, got {value!r}."
            raise DefinitionError(message)
    if callable(options.get("jitter")):
        _check_jitter(options["jitter"])


KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "jitter": (
        lambda value: callable(value) or (isinstance(value, str) and value != ""),
        "the name of a retrier or method, or a callable",
    ),
    "budget": (lambda value: isinstance(value, RetryBudget), "a RetryBudget"),
    "guided": (lambda value: isinstance(value, bool), "True or False"),
    "nested": (lambda value: value == "once", '"once" or None'),
}


def _check_numbers(options: dict[str, Any]) -> None:
    limit = options.get("limit")
    if limit is not None and (type(limit) is not int or limit < 0):
        message = (
            "retry_on: limit must be a whole number of retries, 0 or more, "
            f"got {limit!r}. 0 disables retrying, None restores the default of 3."
        )
        raise DefinitionError(message)
    for name in ("delay", "max_delay", "deadline"):
        seconds = options.get(name)
        if seconds is not None and not (finite(seconds, -1) >= 0):
            message = (
                f"retry_on: {name} must be a finite number of seconds, 0 or more, "
                f"got {seconds!r}. None restores the default."
            )
            raise DefinitionError(message)


def _check_jitter(jitter: Callable[..., Any]) -> None:
    if awaits(jitter):
        message = (
            f"retry_on: jitter {jitter!r} is async, but nobody awaits it. "
            "Use a plain function."
        )
        raise DefinitionError(message)
    try:
        accepted(jitter, JITTER_ARGUMENTS)
    except TypeError as error:
        message = (
            f"retry_on: jitter {jitter!r} {error}. "
            "It is called with attempt, delay and previous, or fewer of them."
        )
        raise DefinitionError(message) from None
