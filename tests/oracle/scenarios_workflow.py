"""Workflows: what their tasks retry, and what they themselves do not."""

from __future__ import annotations

from recorder import TransientError, boom, ok, scenario

from cmdx import Workflow, parallel, retry_on


@scenario("workflow_retry_on_ignores_task_failure")
def failed_step(recorder):
    class A(recorder.Task):
        plan = (ok,)

    class B(recorder.Task):
        plan = (boom,)

    @retry_on(Exception, limit=3, delay=0)
    class W(Workflow, recorder.Task):
        steps = (A, B)

    return W.execute()


@scenario("workflow_parallel_retry")
def retries_in_threads(recorder):
    @retry_on(TransientError, limit=1, delay=0.5)
    class A(recorder.Task):
        plan = (boom, ok)

    @retry_on(TransientError, limit=1, delay=0.5)
    class B(recorder.Task):
        plan = (boom, ok)

    class W(Workflow, recorder.Task):
        steps = (parallel(A, B),)

    recorder.in_any_order = True
    return W.execute()
