"""Inputs are resolved once before all attempts, outputs verified once after."""

from __future__ import annotations

from recorder import TransientError, boom, ok, scenario

from cmdx import optional, output, required, retry_on


@scenario("inputs_resolved_once")
def default_made_once(recorder):
    recorder.notes["default_calls"] = 0

    def seven():
        recorder.notes["default_calls"] += 1
        return 7

    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        v: int = optional(factory=seven)

        def work(self):
            call = recorder.working(self)
            if call < 3:
                boom(self, call)
            self.context.v = self.v

    return T.execute()


@scenario("input_source_raises_declared")
def source_that_raises(recorder):
    def source(_task):
        raise TransientError("src")

    @retry_on(TransientError, limit=3, delay=0)
    class T(recorder.Task):
        v: int = required(source=source)

    return T.execute()


@scenario("input_missing_not_retried")
def missing_input(recorder):
    @retry_on(Exception, limit=3, delay=0)
    class T(recorder.Task):
        v: int = required()

    return T.execute()


@scenario("output_missing_after_retry")
def missing_output(recorder):
    @retry_on(Exception, limit=3, delay=0)
    class T(recorder.Task):
        plan = (boom, ok)

        out: int = output()

    return T.execute()
