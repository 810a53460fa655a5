"""
Workflows, made of tasks alone.

How steps are run is said in ``in_sequence`` and ``in_parallel`` and nowhere else.
"""

from __future__ import annotations

from contextvars import copy_context
from threading import Thread

from recorder import TransientError, boom, ok, scenario

from cmdx import retry_on


def in_sequence(base, *steps):
    """Return a task that runs *steps* on its own context, until one fails."""

    class W(base):
        def work(self):
            for step in steps:
                self.throw(step.execute(self))

    return W


def in_parallel(base, *steps):
    """Return a task that runs *steps* on copies of its context, each in a thread."""

    class W(base):
        def work(self):
            results = {}

            def run(step):
                results[step] = step.execute(self.context.copy())

            threads = [
                Thread(target=copy_context().run, args=(run, step)) for step in steps
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for step in steps:
                self.throw(results[step])
                self.context.update(results[step].context)

    return W


@scenario("workflow_retry_on_ignores_task_failure")
def failed_step(recorder):
    class A(recorder.Task):
        plan = (ok,)

    class B(recorder.Task):
        plan = (boom,)

    workflow = in_sequence(recorder.Task, A, B)
    return retry_on(Exception, limit=3, delay=0)(workflow).execute()


@scenario("workflow_parallel_retry")
def retries_in_threads(recorder):
    @retry_on(TransientError, limit=1, delay=0.5)
    class A(recorder.Task):
        plan = (boom, ok)

    @retry_on(TransientError, limit=1, delay=0.5)
    class B(recorder.Task):
        plan = (boom, ok)

    recorder.in_any_order = True
    return in_parallel(recorder.Task, A, B).execute()
