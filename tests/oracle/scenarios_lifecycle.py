"""What repeats and what does not: halts, errors, callbacks and telemetry."""

from __future__ import annotations

from recorder import TransientError, boom, ok, scenario, shown_error

from cmdx import before_execution, retry_on, task_retried


def stop(task, _call):
    task.fail("stop", code=1)


@scenario("signal_fail_second_attempt")
def fail_is_not_retried(recorder):
    @retry_on(Exception, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom, stop)

    return T.execute()


@scenario("signal_fail_not_caught_by_widest")
def fail_is_not_retried_by_anything(recorder):
    @retry_on(BaseException, limit=3, delay=0)
    class T(recorder.Task):
        plan = (lambda task, _call: task.fail("stop"),)

    return T.execute()


@scenario("signal_fail_execute_bang")
def fail_is_raised_as_a_fault(recorder):
    @retry_on(Exception, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom, stop)

    return T.execute_or_raise()


@scenario("signal_success_second_attempt")
def success_after_a_retry(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom, lambda task, _call: task.succeed("early", n=2))

    return T.execute()


@scenario("context_and_ivars_persist")
def one_task_and_context(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        calls = 0

        def work(self):
            call = recorder.working(self)
            self.context.setdefault("seen", []).append(call)
            self.calls += 1
            if call < 3:
                boom(self, call)
            self.context.ivar = self.calls

    return T.execute()


@scenario("errors_accumulate_and_dedupe")
def errors_of_all_attempts(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        def work(self):
            call = recorder.working(self)
            self.errors.add("base", "same")
            self.errors.add("base", f"bad {call}")
            if call < 3:
                boom(self, call)

    return T.execute()


@scenario("errors_cleared_at_top")
def errors_cleared(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        def work(self):
            call = recorder.working(self)
            self.errors.clear()
            if call == 1:
                self.errors.add("base", "bad")
                boom(self, call)
            ok(self, call)

    return T.execute()


@scenario("errors_and_exhausted")
def errors_beside_the_cause(recorder):
    @retry_on(TransientError, limit=1, delay=0)
    class T(recorder.Task):
        def work(self):
            call = recorder.working(self)
            self.errors.add("base", f"bad {call}")
            boom(self, call)

    return T.execute()


@scenario("errors_and_success_signal")
def errors_before_succeed(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        def work(self):
            call = recorder.working(self)
            if call == 1:
                self.errors.add("base", "bad")
                boom(self, call)
            self.succeed("fine")

    return T.execute()


@scenario("lifecycle_order")
def everything_in_order(recorder):
    @retry_on(TransientError, limit=3, delay=0.5, jitter="linear")
    class T(recorder.Task):
        plan = (boom, boom, ok)

    return T.execute()


@scenario("rollback_not_on_success")
def no_rollback_of_a_success(recorder):
    @retry_on(TransientError, limit=2, delay=0)
    class T(recorder.Task):
        plan = (boom, ok)

        def rollback(self):
            recorder.trace.append("rollback T")

    return T.execute()


@scenario("rollback_not_on_skip")
def no_rollback_of_a_skip(recorder):
    @retry_on(TransientError, limit=2, delay=0)
    class T(recorder.Task):
        plan = (boom, lambda task, _call: task.skip("x"))

        def rollback(self):
            recorder.trace.append("rollback T")

    return T.execute()


@scenario("before_callback_raises_declared")
def callback_that_raises(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        @before_execution
        def prepare(self):
            raise TransientError("cb")

    return T.execute()


@scenario("callback_fails_signal")
def callback_that_fails(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom,)

        @before_execution
        def prepare(self):
            self.fail("cb stop")

    return T.execute()


@scenario("telemetry_payload")
def what_the_signal_says(recorder):
    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom,)

    payloads = recorder.notes["payloads"] = []
    runs = set()

    def keep(_sender, *, task, **payload):
        runs.add(task.tid)
        payloads.append(payload | {"error": shown_error(payload["error"])})

    with task_retried.connected_to(keep):
        result = T.execute()
    recorder.notes["root"] = runs == {result.tid} and result.root
    return result
