"""
What to do after a failure: the policy of a class, made ready to decide.

``compile_policy`` turns the rules of a ``RetryPolicy`` into one object. Its ``decide``
is asked after each listed error; it returns a ``Decision``: pause and try again, or
stop.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cmdx.declare.checks import finite_number
from cmdx.declare.gates import compile_retry_gate
from cmdx.declare.methods import find_method, takes_self
from cmdx.declare.signatures import takes_keyword
from cmdx.exceptions import CmdxError, Fault, UnknownEntryError
from cmdx.outcome import Halt, Stop
from cmdx.retry.policy import check_jitter
from cmdx.run import deadlines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cmdx.declare.blueprint import Plan
    from cmdx.retry.budget import RetryBudget
    from cmdx.retry.policy import RetryPolicy, RetryRule
    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Run
    from cmdx.task import Task

NEVER_RETRIED = (KeyboardInterrupt, SystemExit, GeneratorExit, Halt)


Decision: TypeAlias = "tuple[Stop | None, float, str | None]"
"""Why to stop, or None to try again; the seconds to pause first; the rule's name."""


class JitterCall(NamedTuple):
    """A jitter, and how much of what it is offered it takes."""

    call: Callable[..., Any] | str
    """The jitter, or the name of a method of the task."""
    taken: int
    takes_max_delay: bool

    @classmethod
    def of(cls, where: str, call: Callable[..., Any]) -> JitterCall:
        """Read the signature of *call*."""
        taken = check_jitter(where, call)
        return cls(call, taken, takes_keyword(call, "max_delay"))


class RulePlan:
    """A rule made ready for one class."""

    def __init__(self, cls: type[Task[Any]], rule: RetryRule) -> None:
        where = f"retry_on of {cls.__qualname__}"
        self.name = rule.name
        self.catches = tuple(dict.fromkeys(map(narrow, rule.exceptions)))
        self.lists_unretryable = any(map(includes_unretryable, self.catches))
        self.limit = rule.limit
        self.delay = rule.delay
        self.max_delay = rule.max_delay
        self.budget = rule.budget
        self.once = rule.nested == "once"
        self.guided = rule.guided
        self.is_bounded = rule.guided or rule.budget is not None
        self.max_attempts = rule.max_attempts
        self.longest_wait = rule.longest_wait or rule.max_delay
        self.gate = compile_retry_gate(where, cls, rule.if_, rule.unless)
        self.jitter = compile_jitter(f"{where}: jitter", cls, rule.jitter)

    def decide(
        self, task: Invocation, error: BaseException, count: int, previous: float
    ) -> Decision:
        """
        Decide on a listed *error*.

        *count* is how often this rule has tried again, *previous* its last pause.
        """
        if self.lists_unretryable and not is_retryable_at_all(error):
            return Stop.NOT_LISTED, 0.0, None
        if count >= self.limit or (self.once and outer_policy_retries(task._cmdx_)):
            return Stop.EXHAUSTED, 0.0, None
        if self.max_attempts is not None and task.attempt + 1 >= self.max_attempts:
            return Stop.EXHAUSTED, 0.0, None
        if self.gate is not None and not self.gate(task, error, count):
            return Stop.GATE, 0.0, None
        pause = self.next_pause(task, count, previous) if self.delay > 0 else 0.0
        if self.is_bounded or deadlines.current.get() is not None:
            return self.decide_within_bounds(task, error, pause)
        return None, pause, self.name

    def decide_within_bounds(
        self, task: Invocation, error: BaseException, pause: float
    ) -> Decision:
        """Stop if guidance, the deadline or the budget does not allow the pause."""
        if self.guided:
            pause = self.guided_pause(task, error, pause)
            if pause == math.inf:
                return Stop.GUIDANCE, 0.0, None
        if not deadlines.allows(pause):
            return Stop.DEADLINE, 0.0, None
        if self.budget is not None and not self.budget.withdraw():
            return Stop.BUDGET, 0.0, None
        return None, pause, self.name

    def next_pause(self, task: Invocation, count: int, previous: float) -> float:
        """Return the seconds to wait, clamped to ``[0, max_delay]`` if there is one."""
        pause = self.delay
        if self.jitter is not None:
            call, taken, takes_max_delay = self.jitter
            if isinstance(call, str):
                call = getattr(task, call)
            offered = (count, self.delay, previous if count else None)[:taken]
            keywords = {"max_delay": self.max_delay} if takes_max_delay else {}
            number = finite_number(call(*offered, **keywords))
            pause = self.delay if number is None else number
        return pause if self.max_delay is None else min(max(pause, 0), self.max_delay)

    def guided_pause(
        self, task: Invocation, error: BaseException, pause: float
    ) -> float:
        """Obey what *error* says; it may only delay, or forbid, which is infinity."""
        from cmdx.guidance import LONGEST_WAIT, guidance_of

        guidance = guidance_of(error)
        if guidance is None:
            return pause
        attempts = task._cmdx_.attempt + 1  # of all rules: the other side counts calls
        if not guidance.permits(attempts):
            return math.inf
        asked = guidance.pause_before(attempts)
        longest = LONGEST_WAIT if self.longest_wait is None else self.longest_wait
        if asked > longest or (asked > 0 and not deadlines.allows(asked)):
            return math.inf
        return max(pause, asked)


class RuleSet:
    """Several rules of one class, or none; each counts its own attempts."""

    def __init__(self, rules: Sequence[RulePlan]) -> None:
        self.rules = rules
        self.catches = tuple(error for rule in rules for error in rule.catches)
        self.limit = sum(rule.limit for rule in rules)

    def decide(
        self, task: Invocation, error: BaseException, count: int, previous: float
    ) -> Decision:
        """Have the first rule that lists *error* decide, by its own count and pause."""
        del count, previous  # of all rules together
        run = task._cmdx_
        rule = next(rule for rule in self.rules if isinstance(error, rule.catches))
        count, previous = run.retries_by_rule.get(rule.name, (0, 0.0))
        decision = rule.decide(task, error, count, previous)
        _, pause, _ = decision
        run.retries_by_rule = {**run.retries_by_rule, rule.name: (count + 1, pause)}
        return decision


class Limits(NamedTuple):
    """What a policy limits beyond the number of attempts."""

    deadline: float | None
    budgets: tuple[RetryBudget, ...]

    @classmethod
    def of(cls, policy: RetryPolicy) -> Limits | None:
        """Return the limits of *policy*; the earliest deadline is that of the run."""
        rules = [rule for rule in policy.rules if rule.exceptions]
        seconds = [rule.deadline for rule in rules if rule.deadline is not None]
        budgets = dict.fromkeys(rule.budget for rule in rules if rule.budget)
        if not seconds and not budgets:
            return None
        return cls(min(seconds, default=None), tuple(budgets))


def compile_policy(cls: type[Task[Any]], policy: RetryPolicy) -> RulePlan | RuleSet:
    """Make *policy* ready for *cls*."""
    rules = [RulePlan(cls, rule) for rule in policy.rules if rule.exceptions]
    return rules[0] if len(rules) == 1 else RuleSet(rules)


def compile_jitter(
    where: str, cls: type[Task[Any]], jitter: str | Callable[..., Any] | None
) -> JitterCall | None:
    """Find a jitter by name in the registries of *cls*, then among its methods."""
    if jitter is None:
        return None
    if not isinstance(jitter, str):
        return JitterCall.of(where, jitter)
    registry = cls.retriers
    if jitter in registry:
        return JitterCall.of(where, registry.lookup(jitter))
    if not callable(getattr(cls, jitter, None)):
        raise UnknownEntryError("retrier", jitter, registry, cls)
    return method_jitter(where, cls, jitter)


def method_jitter(where: str, cls: type[Task[Any]], name: str) -> JitterCall:
    """Return what calls the method *name* as a jitter."""
    method = find_method(where, cls, name)
    taken = check_jitter(where, method, has_self=takes_self(cls, name))
    return JitterCall(name, taken, takes_keyword(method, "max_delay"))


def outer_policy_retries(run: Run) -> bool:
    """Tell whether a task that runs this one would try again itself."""
    return any(plan.retry.limit > 0 for plan in retrying_plans(run.parent))


def retrying_plans(run: Run | None) -> Iterator[Plan]:
    """Yield the plans with a retry policy of *run* and all it is nested in."""
    while run is not None:
        if run.plan.retry.catches:
            yield run.plan
        run = run.parent


def nesting(run: Run) -> tuple[int, int]:
    """Return how many policies are around that of *run*, and how calls multiply."""
    limits = [plan.retry.limit for plan in retrying_plans(run)]
    return len(limits) - 1, math.prod(limit + 1 for limit in limits)


def is_retryable_at_all(error: BaseException) -> bool:
    """Tell whether *error* may be retried, whatever was listed."""
    if isinstance(error, CmdxError):  # of ours only what says so: a store, for example
        return isinstance(error, Fault) or getattr(error, "retryable", False) is True
    if isinstance(error, Exception):
        return True
    return not isinstance(error, (*NEVER_RETRIED, *cancellation_errors()))


def includes_unretryable(listed: type[BaseException]) -> bool:
    """Tell whether *listed* catches errors that are never retried."""
    if not issubclass(listed, Exception) or issubclass(listed, CmdxError):
        return True
    return issubclass(CmdxError, listed)


def cancellation_errors() -> tuple[type[BaseException], ...]:
    """Return what asyncio cancels with; nothing if it was never imported."""
    asyncio = sys.modules.get("asyncio")
    return () if asyncio is None else (asyncio.CancelledError,)


def narrow(exception: type[BaseException]) -> type[BaseException]:
    """Return what listing *exception* means: ``BaseException`` is any error."""
    return Exception if exception is BaseException else exception
