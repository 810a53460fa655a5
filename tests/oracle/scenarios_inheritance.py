"""
Several declarations, on one class and over its ancestors.

A declaration that Ruby makes later is a decorator further out.
Python has no blocks: where Ruby gives one as jitter, a callable is given.
"""

from __future__ import annotations

from recorder import OtherError, TransientError, boom, ok, other, scenario

from cmdx import retry_on


@scenario("merge_two_declarations_same_class")
def later_options_win(recorder):
    @retry_on(OtherError, limit=3, delay=2.0)
    @retry_on(TransientError, limit=1, delay=1.0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("merge_gate_of_later_declaration_wins")
def later_gate_wins(recorder):
    def gate_a(_task, error, attempt):
        recorder.gate("A", str(error), attempt)
        return True

    def gate_b(_task, error, attempt):
        recorder.gate("B", str(error), attempt)
        return False

    @retry_on(OtherError, if_=gate_b)
    @retry_on(TransientError, limit=3, delay=0, if_=gate_a)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("merge_option_only_second_call_ignored")
def options_alone_on_the_same_class(recorder):
    @retry_on(limit=5)
    @retry_on(TransientError, limit=1, delay=0)
    class T(recorder.Task):
        plan = (boom,)

    return T.execute()


@scenario("merge_option_only_first_call_in_child")
def options_alone_on_a_child(recorder):
    @retry_on(TransientError, limit=1, delay=0)
    class P(recorder.Task):
        pass

    @retry_on(limit=4)
    class C(P):
        plan = (boom,)

    return C.execute()


@scenario("inherit_plain")
def everything_inherited(recorder):
    @retry_on(TransientError, limit=2, delay=0.5)
    class P(recorder.Task):
        pass

    class C(P):
        plan = (boom,)

    return C.execute()


@scenario("inherit_merge")
def added_to_what_is_inherited(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter="exponential")
    class P(recorder.Task):
        pass

    @retry_on(OtherError, max_delay=1.5)
    class C(P):
        plan = (boom, other, ok)

    return C.execute()


@scenario("inherit_child_does_not_affect_parent")
def parent_unchanged(recorder):
    @retry_on(TransientError, limit=1, delay=0)
    class P(recorder.Task):
        plan = (other,)

    @retry_on(OtherError, limit=5)
    class C(P):
        pass

    assert OtherError in C.retry_policy.exceptions
    return P.execute()


@scenario("inherit_grandchild")
def three_generations(recorder):
    @retry_on(TransientError, limit=1, delay=0)
    class G(recorder.Task):
        pass

    @retry_on(OtherError)
    class P(G):
        pass

    @retry_on(TransientError, limit=4)
    class C(P):
        plan = (other, boom, other, boom, ok)

    return C.execute()


@scenario("inherit_parent_changed_after_child_memo")
def parent_declares_later(recorder):
    @retry_on(TransientError, limit=1, delay=0)
    class P(recorder.Task):
        pass

    class C(P):
        plan = (boom,)

    assert C.retry_policy.limit == 1
    retry_on(OtherError, limit=5)(P)
    return C.execute()


@scenario("inherit_child_clears_gate")
def none_clears_an_inherited_gate(recorder):
    @retry_on(TransientError, limit=2, delay=0, if_=False)
    class P(recorder.Task):
        pass

    @retry_on(TransientError, if_=None)
    class C(P):
        plan = (boom, boom, ok)

    return C.execute()


@scenario("inherit_child_block_replaces_parent_block")
def nearer_callable_jitter_wins(recorder):
    @retry_on(TransientError, limit=2, delay=1.0, jitter=lambda: 7)
    class P(recorder.Task):
        pass

    @retry_on(OtherError, jitter=lambda: 8)
    class C(P):
        plan = (boom, boom, ok)

    return C.execute()
