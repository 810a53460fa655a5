"""
Tasks that run tasks.

Python has no matchers: a ``Fault`` of one task is a class, and a reason is for a gate.
"""

from __future__ import annotations

from recorder import TransientError, boom, ok, scenario

from cmdx import Fault, retry_on


def failing(reason):
    return lambda task, _call: task.fail(reason, k=1)


def running(child):
    """Return a step that runs *child* on the same context, and raises as it does."""
    return lambda task, _call: child.execute_or_raise(task)


@scenario("nested_parent_retries_on_child_exception")
def error_of_a_child(recorder):
    class Child(recorder.Task):
        plan = (boom, boom, ok)

    @retry_on(TransientError, limit=2, delay=0)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute()


@scenario("nested_fault_exhausted")
def fault_of_a_child(recorder):
    class Child(recorder.Task):
        plan = (failing("child bad"),)

    @retry_on(Fault, limit=1, delay=0)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute()


@scenario("nested_fault_exhausted_execute_bang")
def fault_of_a_child_raised(recorder):
    class Child(recorder.Task):
        plan = (failing("child bad"),)

    @retry_on(Fault, limit=1, delay=0)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute_or_raise()


@scenario("nested_standard_error_catches_fault")
def fault_is_an_ordinary_error(recorder):
    class Child(recorder.Task):
        plan = (failing("child bad"), ok)

    @retry_on(Exception, limit=1, delay=0)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute()


@scenario("nested_fault_matcher_match")
def fault_of_this_task(recorder):
    class Child(recorder.Task):
        plan = (failing("child bad"), ok)

    @retry_on(Child.Fault, limit=1, delay=0)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute()


@scenario("nested_fault_matcher_no_match")
def fault_of_another_task(recorder):
    class Child(recorder.Task):
        plan = (failing("child bad"),)

    class Other(recorder.Task):
        pass

    @retry_on(Other.Fault, limit=1, delay=0)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute()


@scenario("nested_fault_reason_matcher")
def fault_for_a_reason(recorder):
    class Child(recorder.Task):
        plan = (failing("busy"), failing("busy"), failing("dead"))

    def busy(fault):
        return fault.result.reason == "busy"

    @retry_on(Fault, limit=3, delay=0, if_=busy)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute()


@scenario("nested_both_retry_multiply")
def retries_multiply(recorder):
    @retry_on(TransientError, limit=1, delay=0)
    class Child(recorder.Task):
        plan = (boom,)

    @retry_on(TransientError, limit=1, delay=0)
    class T(recorder.Task):
        plan = (running(Child),)

    return T.execute()


@scenario("nested_child_non_strict_not_retried")
def failed_result_of_a_child(recorder):
    class Child(recorder.Task):
        plan = (boom,)

    @retry_on(Exception, limit=3, delay=0)
    class T(recorder.Task):
        plan = (lambda task, _call: Child.execute(task),)

    return T.execute()
