"""Named retriers, of a class and of all."""

from __future__ import annotations

from contextlib import suppress

from recorder import TransientError, boom, scenario

from cmdx import Task, UnknownEntryError, retriers, retry_on


@scenario("registry_class_level")
def own_retrier(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter="doubled")
    class T(recorder.Task):
        plan = (boom,)

    T.retriers.register("doubled", recorder.jitter(lambda delay: delay * 2))
    return T.execute()


@scenario("registry_registered_after_retry_on")
def registered_later(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter="later")
    class T(recorder.Task):
        plan = (boom,)

    T.retriers.register("later", lambda: 4)
    return T.execute()


@scenario("registry_override_builtin")
def built_in_hidden(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter="linear")
    class T(recorder.Task):
        plan = (boom,)

    class Sibling(recorder.Task):
        pass

    T.retriers.register("linear", lambda: 42)
    recorder.notes["sibling_linear"] = Sibling.retriers.lookup("linear")(2, 1.0)
    return T.execute()


@scenario("registry_inherited")
def retrier_of_the_parent(recorder):
    class P(recorder.Task):
        pass

    P.retriers.register("px", lambda: 6)

    @retry_on(TransientError, limit=2, delay=1.0, jitter="px")
    class C(P):
        plan = (boom,)

    return C.execute()


@scenario("registry_deregistered_builtin")
def method_behind_a_built_in(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter="linear")
    class T(recorder.Task):
        plan = (boom,)

        def linear(self, _attempt, _delay):
            return 0.125

    T.retriers.deregister("linear")
    return T.execute()


@scenario("registry_non_callable")
def not_callable(_recorder):
    class T(Task):
        pass

    T.retriers.register("five", 5)


@scenario("registry_string_names")
def taken_out_by_name(_recorder):
    class T(Task):
        pass

    T.retriers.register("x", lambda: 1)
    known = ["x" in T.retriers]
    T.retriers.deregister("x")
    known.append("x" in T.retriers)
    with suppress(UnknownEntryError):
        T.retriers.deregister("x")
    known.append("x" in T.retriers)
    return known


@scenario("registry_resolve")
def resolved(_recorder):
    own = lambda: 1
    return [
        retriers.resolve(None) is None,
        retriers.resolve("linear") is retriers.lookup("linear"),
        retriers.resolve(own) is own,
    ]


@scenario("registry_resolve_bad")
def text_resolved(_recorder):
    return retriers.resolve("linear") is retriers.lookup("linear")
