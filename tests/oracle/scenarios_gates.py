"""Gates: whether a listed error is tried again this time."""

from __future__ import annotations

from recorder import TransientError, boom, scenario

from cmdx import retry_on


@scenario("gate_if_method_true")
def method(recorder):
    @retry_on(TransientError, limit=2, delay=0, if_="_gate")
    class T(recorder.Task):
        plan = (boom,)

        def _gate(self, error, attempt):
            recorder.gate(type(error).__name__, str(error), attempt)
            return True

    return T.execute()


@scenario("gate_if_method_false")
def method_that_refuses(recorder):
    @retry_on(TransientError, limit=3, delay=1.0, if_="_gate")
    class T(recorder.Task):
        plan = (boom,)

        def _gate(self, error, attempt):
            recorder.gate(str(error), attempt)
            return False

    return T.execute()


@scenario("gate_if_lambda_stops_later")
def function(recorder):
    def early(task, error, attempt):
        recorder.gate(str(error), attempt, isinstance(task, T))
        return attempt < 1

    @retry_on(TransientError, limit=5, delay=1.0, if_=early)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("gate_if_callable")
def callable_object(recorder):
    class First:
        def __call__(self, task, error, attempt):
            recorder.gate(type(task).__name__, str(error), attempt)
            return attempt == 0

    @retry_on(TransientError, limit=5, delay=0, if_=First())
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("gate_unless_lambda")
def unless(recorder):
    def second(_task, error, attempt):
        recorder.gate(str(error), attempt)
        return "2" in str(error)

    @retry_on(TransientError, limit=5, delay=0, unless=second)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("gate_if_and_unless")
def both(recorder):
    def always(_task, _error, attempt):
        recorder.gate("if", attempt)
        return True

    def late(_task, _error, attempt):
        recorder.gate("unless", attempt)
        return attempt >= 2

    @retry_on(TransientError, limit=5, delay=0, if_=always, unless=late)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("gate_unless_false_literal")
def literal(recorder):
    @retry_on(TransientError, limit=1, delay=0, unless=False)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("gate_invalid_type")
def text_that_names_nothing(recorder):
    @retry_on(TransientError, limit=3, delay=0, if_="yes")
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("gate_before_sleep")
def asked_before_the_sleep(recorder):
    def first(_task, _error, attempt):
        recorder.gate(attempt)
        return attempt == 0

    @retry_on(TransientError, limit=5, delay=1.0, jitter="linear", if_=first)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("gate_rejects_execute_bang")
def refused_and_raised(recorder):
    @retry_on(TransientError, limit=3, delay=0, if_=False)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute_or_raise()


@scenario("gate_reads_context")
def reading_the_context(recorder):
    @retry_on(TransientError, limit=5, delay=0, if_="has_goes_left")
    class T(recorder.Task):
        def has_goes_left(self):
            return self.context.go > 0

        def work(self):
            call = recorder.working(self)
            self.context.go -= 1
            boom(self, call)

    return T.execute(go=2)
