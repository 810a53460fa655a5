"""Policies and strategies by themselves."""

from __future__ import annotations

from recorder import TransientError, scenario

from cmdx import Task, retriers, retry_on


@scenario("unit_defaults")
def default_policy(_recorder):
    class T(Task):
        pass

    policy = T.retry_policy
    options = [policy.limit, policy.delay, policy.max_delay, policy.jitter]
    return [*options, list(policy.exceptions)]


@scenario("unit_build_noop_identity")
def policy_extended(_recorder):
    """A policy is a value: the same one is an equal one."""

    class T(Task):
        pass

    @retry_on()
    class Same(T):
        pass

    @retry_on(limit=5)
    class Changed(T):
        pass

    return [Same.retry_policy == T.retry_policy, Changed.retry_policy.limit]


@scenario("unit_process_returns_block_value")
def value_of_the_last_attempt(_recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(Task[str]):
        def work(self):
            if self.attempt < 2:
                raise TransientError
            return f"v{self.attempt}"

    return T.execute().value


@scenario("unit_exponential_table", strategy="exponential")
@scenario("unit_fibonacci_table", strategy="fibonacci")
def table(_recorder, strategy):
    return [retriers.lookup(strategy)(attempt, 0.1) for attempt in range(10)]


@scenario("unit_decorrelated_table")
def table_by_the_pause_before(recorder):
    pauses = []
    for previous in (None, 0, 0.1, 1.0, 2.0, 10.0):
        recorder.restart_random()
        pauses.append(retriers.lookup("decorrelated_jitter")(0, 1.0, previous))
    return pauses
