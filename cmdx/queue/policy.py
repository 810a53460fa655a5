"""
What a class says about its jobs, and how they are retried.

1. ``@queued`` gives a class a priority, a key and a timeout    ``queued``
2. the options of the rule that the queue adds are resolved     ``job_options``
3. they are stored with the job, and make its policy            ``job_policy``
4. the job runs by a plan with that policy                      ``plan_under``

The rule of the queue is called ``job``. It lists ``Exception`` and is asked last, so a
rule of the class that lists an error decides alone.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import attrs

from cmdx import DefinitionError, RetryOptions, Workflow
from cmdx.declare.checks import check_kinds, check_names, check_seconds
from cmdx.declare.decorators import declarations, declare
from cmdx.declare.signatures import check_plain_call
from cmdx.guidance import LONGEST_WAIT
from cmdx.operations.policy import (
    OperationDeclaration,
    OperationPolicy,
    warn_about_value,
)
from cmdx.queue.lanes import require_free_key
from cmdx.retry.decide import Limits, compile_policy
from cmdx.retry.inline import BUILT_IN
from cmdx.retry.policy import RetryPolicy, RetryRule
from cmdx.retry.strategies import full_jitter
from cmdx.wire.names import task_module, task_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Never, Unpack

    from cmdx import Task
    from cmdx.declare.blueprint import Plan

T = TypeVar("T", bound=type)

RULE = "job"
"""The name of the rule that a queue adds."""

LARGEST_PRIORITY = 2**31 - 1


class QueuedKeywords(TypedDict, total=False):
    """The options of ``queued``."""

    priority: int | None
    key: str | Callable[[Any], str] | None
    timeout: float | None


@attrs.frozen
class QueuedDeclaration:
    """What one ``@queued`` line said."""

    options: QueuedKeywords


def queued(*misplaced: Never, **keywords: Unpack[QueuedKeywords]) -> Callable[[T], T]:
    """
    Say how jobs of the decorated task are run.

    Subclasses inherit the options and may change them one by one; None restores the
    default.

    Example::

        @queued(priority=5, key=lambda task: str(task.customer_id), timeout=30)
        class ChargeCard(Task[Receipt]): ...

    Args:
        priority: Higher goes first; 0 by default.
        key: A text, or a callable of the task that returns one. Jobs with the same key
            run one after the other, in the order they were enqueued.
        timeout: The seconds of one attempt. An asynchronous one fails then with
            ``TimeoutError``; for a plain one, or one that blocks the event loop, a
            warning is logged and the signal ``job_hung`` is sent.
    """
    if misplaced:
        message = (
            "queued takes keywords only: write @queued(priority=5), with parentheses."
        )
        raise DefinitionError(message)
    options: dict[str, Any] = dict(keywords)
    check_names("queued", options, QueuedKeywords.__annotations__)
    check_kinds("queued", options, QUEUED_KINDS)
    check_key(options.get("key"))
    if options.get("timeout") is not None:
        options["timeout"] = check_seconds(
            "queued", "timeout", options["timeout"], above_zero=True
        )
    declaration = QueuedDeclaration(QueuedKeywords(**options))  # type: ignore[typeddict-item]
    return lambda cls: declare(cls, declaration, by="queued")


def check_key(key: Any) -> None:
    """Refuse a callable that cannot be called with the task, and a key of others."""
    if callable(key):
        cure = "It is called with the task."
        check_plain_call("queued: key", key, 1, cure, least=1)
    elif key is not None:
        require_free_key("queued", key)


def is_priority(value: object) -> bool:
    """Tell whether *value* can be a priority."""
    return type(value) is int and abs(value) <= LARGEST_PRIORITY


PRIORITY_WORDS = "a whole number of at most 31 bits"
QUEUED_KINDS = {
    "priority": (is_priority, PRIORITY_WORDS),
    "key": (
        lambda value: callable(value) or (isinstance(value, str) and value != ""),
        "a text, or a callable of the task that returns one",
    ),
}


@attrs.frozen
class QueuePlan:
    """What a queue has to know about a class, read once."""

    task: type[Task[Any]]
    name: str
    module: str
    priority: int
    key: str | Callable[[Any], str] | None
    timeout: float | None
    is_async: bool
    is_once: bool
    """Whether the class is an operation that may not run twice."""
    is_workflow: bool
    has_policy: bool

    @classmethod
    def of(cls, task: type[Task[Any]]) -> QueuePlan:
        """Return the plan of *task*; there is a new one if a decorator changes it."""
        plan: Plan = task._cmdx_.plan
        return plan.derive(cls.compile)

    @classmethod
    def compile(cls, plan: Plan) -> QueuePlan:
        """Read the declarations of a task."""
        task = plan.task
        options: QueuedKeywords = {}
        for declaration in declarations(task, QueuedDeclaration):
            options |= declaration.options
        is_operation = next(declarations(task, OperationDeclaration), None) is not None
        warn_about_value(task)
        return cls(
            task=task,
            name=task_name(task),
            module=task_module(task),
            priority=options.get("priority") or 0,
            key=options.get("key"),
            timeout=options.get("timeout"),
            is_async=plan.awaits,
            is_once=is_operation and not OperationPolicy.of(task).idempotent,
            is_workflow=issubclass(task, Workflow),
            has_policy=bool(plan.retry.catches),
        )


# -- retries ------------------------------------------------------------------------


def job_options(
    plan: QueuePlan, of_call: RetryOptions | None, of_queue: RetryOptions | None
) -> RetryOptions | None:
    """Return the resolved options of the rule that is added, None without one."""
    if plan.is_workflow:
        if of_call is not None:
            message = (
                f"{plan.task.__qualname__} is a workflow, which is not retried as a "
                "whole. Declare @retry_on for its steps, and leave out retry=."
            )
            raise DefinitionError(message)
        return None
    if of_call is None and (plan.has_policy or plan.is_once):
        return None
    of_class = plan.task._cmdx_.plan.settings.retry
    return resolved_options(of_call, of_class, of_queue)


@lru_cache
def resolved_options(*given: RetryOptions | None) -> RetryOptions:
    """Return options field by field, the nearest first, over the built-in ones."""
    options = RetryOptions()
    for defaults in given:
        # From the nearest on: each step compares base_delay with max_delay, and must
        # not compare one that a nearer value replaces.
        options = options.over(defaults or RetryOptions())
    return options.over(BUILT_IN)


def check_retry(retry: object) -> RetryOptions | None:
    """Return the options that a caller gave; refuse anything else."""
    if retry is None or isinstance(retry, RetryOptions):
        return retry
    message = (
        f"retry must be RetryOptions(max_attempts, base_delay, max_delay), "
        f"got {retry!r}. Write RetryOptions(max_attempts=3), for example."
    )
    raise DefinitionError(message)


@lru_cache
def options_text(options: RetryOptions | None) -> str | None:
    """Return options as JSON."""
    if options is None:
        return None
    return json.dumps([options.max_attempts, options.base_delay, options.max_delay])


@lru_cache
def options_from(text: str | None) -> RetryOptions | None:
    """Return the options behind JSON."""
    return None if text is None else RetryOptions(*json.loads(text))


def job_rule(options: RetryOptions) -> RetryRule:
    """Return the rule that a queue adds to a policy."""
    attempts, base_delay, max_delay = options.with_defaults()
    return RetryRule(
        name=RULE,
        exceptions=(Exception,),
        limit=attempts - 1,
        delay=2 * base_delay,  # the longest pause after the first failure
        max_delay=max_delay,
        jitter=full_jitter,
        guided=True,
        max_attempts=attempts,
        longest_wait=LONGEST_WAIT,
    )


def job_policy(task: type[Task[Any]], options: RetryOptions | None) -> RetryPolicy:
    """Return the policy that a job of *task* runs by."""
    policy = task.retry_policy
    if options is None:
        return policy
    rules = tuple(rule for rule in policy.rules if rule.exceptions)
    return RetryPolicy((*rules, job_rule(options)))


def plan_under(task: type[Task[Any]], options: RetryOptions | None) -> Plan:
    """Return the plan of *task* with the policy of a job."""
    plan: Plan = task._cmdx_.plan
    return plan if options is None else plan.derive(with_job_rule, options)


def with_job_rule(plan: Plan, options: RetryOptions) -> Plan:
    """Return another plan, which has the rule of a job with some options, too."""
    policy = job_policy(plan.task, options)
    return plan.with_changes(
        retry=compile_policy(plan.task, policy), limits=Limits.of(policy)
    )
