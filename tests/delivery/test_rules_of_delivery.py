"""
The rules R-002-1 to R-002-35 by their names, through a real queue and a real server.

R-002-4 to 8 are in ``test_endpoints.py``, R-002-14 and 30 also in ``test_machine.py``.
"""

from __future__ import annotations

import asyncio

import pytest
from couriers import bodies_of, collected, on_each_store, times_of
from histories import QuietClaims

from cmdx import Task, retry_on
from cmdx.delivery import (
    courier_changed,
    delivery_dropped,
    delivery_sent,
    new_secret,
    verify,
)
from cmdx.queue.report import Demand
from cmdx.testing import Answer

DAY = 86_400


def changes(sent):
    """The states that a courier went through, from what ``collected`` has."""
    return [str(facts["new"]) for name, facts in sent if name == "courier_changed"]


# -- the result of a delivery ---------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201])
def test_r_002_1_200_and_201_are_success(queue, hook, new_courier, status):
    courier = new_courier("paid")
    hook.script("/paid", [status])
    delivery = courier.send("paid", 1)
    queue.drain()
    assert (delivery.refresh().state, courier.state) == ("done", "up")


@pytest.mark.parametrize("status", [202, 204, 302, 400, 404, 429, 500, 503])
def test_r_002_1_anything_else_is_failure(queue, hook, new_courier, status):
    courier = new_courier("paid")
    hook.script("/paid", [status])
    delivery = courier.send("paid", 1)
    queue.drain()
    assert (delivery.refresh().state, courier.state) == ("ready", "failed")


def test_r_002_1_a_connection_error_is_failure(queue, hook, new_courier):
    courier = new_courier("paid")
    hook.script("/paid", [Answer(reset=True)])
    courier.send("paid", 1)
    queue.drain()
    assert courier.state == "failed"


def test_r_002_2_an_endpoint_has_ten_seconds_unless_the_courier_says_otherwise(
    queue, hook, new_courier
):
    assert new_courier("paid").timeout == 10.0
    courier = new_courier("paid", timeout=0.2)
    hook.script("/paid", [Answer(200, delay=0.5)])
    delivery = courier.send("paid", 1)
    queue.drain()
    (attempt,) = courier.attempts(delivery.id)
    assert attempt.reason == "it took longer than 0.2 s"
    assert courier.state == "failed"


def test_r_002_3_an_event_that_timed_out_is_sent_again_though_it_was_received(
    queue, hook, new_courier
):
    courier = new_courier("paid", timeout=0.2)
    hook.script("/paid", [Answer(200, delay=0.5)])
    delivery = courier.send("paid", 1)
    queue.drain(ahead=2)
    assert bodies_of(hook) == [1, 1]
    assert {got.headers["webhook-id"] for got in hook.received()} == {delivery.id}


# -- by number ------------------------------------------------------------------------


@on_each_store
def test_r_002_9_a_failed_event_is_sent_again_every_thirty_seconds(
    queue, hook, new_courier
):
    courier = new_courier(retention=None, endpoints={"paid": {"max_retries": 5}})
    hook.script("/paid", [500] * 9)
    courier.send("paid", 1)
    queue.drain(ahead=DAY)
    assert times_of(hook) == [0, 30, 60, 90, 120, 150]


def test_r_002_9_the_last_retry_may_succeed(queue, hook, new_courier):
    courier = new_courier(retention=None, endpoints={"paid": {"max_retries": 3}})
    hook.script("/paid", [500, 500, 500])
    delivery = courier.send("paid", 1)
    queue.drain(ahead=DAY)
    assert times_of(hook) == [0, 30, 60, 90]
    assert (delivery.refresh().state, delivery.attempts) == ("done", 4)


def test_r_002_9_a_send_whose_worker_has_died_uses_up_no_retry(
    queue, hook, clock, new_courier
):
    courier = new_courier(retention=None, endpoints={"paid": {"max_retries": 1}})
    hook.script("/paid", [500])
    delivery = courier.send("paid", 1)
    dead = QuietClaims(queue, 30.0)
    with dead:
        assert dead.do_round([], Demand(1)).claimed
        clock.advance(31)
        queue.drain(ahead=30)
    assert (delivery.refresh().state, hook.count()) == ("done", 2)


def test_r_002_10_later_events_of_the_conversation_are_not_held_back(
    queue, hook, new_courier
):
    courier = new_courier(retention=None, endpoints={"paid": {"max_retries": 1}})
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=30)
    assert bodies_of(hook) == [1, 2, 3, 1]


@pytest.mark.parametrize("facts", [{}, {"max_retries": 0}])
def test_r_002_11_without_retries_an_event_is_dropped_after_its_first_failure(
    queue, hook, new_courier, facts
):
    courier = new_courier(retention=None, endpoints={"paid": facts})
    hook.script("/paid", [500])
    delivery = courier.send("paid", 1)
    queue.drain(ahead=DAY)
    assert hook.count() == 1
    assert delivery.refresh().state == "dead"


def test_r_002_12_a_drop_can_be_seen(queue, hook, new_courier):
    courier = new_courier(retention=None, endpoints={"paid": {"max_retries": 1}})
    hook.script("/paid", [500, 503])
    with collected(delivery_dropped) as sent:
        delivery = courier.send("paid", 1)
        queue.drain(ahead=DAY)
    ((_, facts),) = sent
    assert (facts["delivery"].id, facts["reason"]) == (delivery.id, "out of retries")
    assert delivery.refresh().reason == "out of retries"
    assert [attempt.status for attempt in courier.attempts(delivery.id)] == [500, 503]
    assert [dropped.id for dropped in courier.deliveries(state="dead")] == [delivery.id]


# -- by time to live ------------------------------------------------------------------


@on_each_store
def test_r_002_13_an_event_that_cannot_be_sent_is_stored_and_the_install_fails(
    queue, hook, new_courier
):
    courier = new_courier("paid")
    hook.script("/paid", [500])
    delivery = courier.send("paid", 1, conversation="c")
    queue.drain()
    assert (delivery.refresh().state, courier.state) == ("ready", "failed")


@on_each_store
def test_r_002_14_an_endpoint_is_tried_again_in_gaps_that_double(
    queue, hook, new_courier
):
    courier = new_courier("paid", retention=DAY)
    hook.script("/paid", [500] * 10)
    courier.send("paid", 1)
    queue.drain(ahead=1200)
    assert times_of(hook) == [0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110]
    assert courier.state == "up"


def test_r_002_14_a_retention_of_two_seconds_has_room_for_one_retry(
    queue, hook, new_courier
):
    courier = new_courier("paid", retention=2)
    hook.script("/paid", [500] * 9)
    delivery = courier.send("paid", 1)
    queue.drain(ahead=DAY)
    assert times_of(hook) == [0, 2]
    assert delivery.refresh().reason == "too old"


def test_r_002_14_a_worker_that_is_a_little_late_leaves_room_for_it_as_well(
    queue, hook, clock, new_courier
):
    courier = new_courier("paid", retention=2)
    hook.script("/paid", [500] * 9)
    delivery = courier.send("paid", 1)
    queue.drain()
    clock.advance(2.3)
    queue.drain(ahead=DAY)
    assert hook.count() == 2
    assert delivery.refresh().reason == "too old"


def test_r_002_14_a_retention_of_three_days_bridges_three_days(
    queue, hook, new_courier
):
    courier = new_courier("paid", retention=3 * DAY)
    hook.script("/paid", [500] * 870)
    delivery = courier.send("paid", 1)
    asyncio.run(queue.adrain(ahead=3 * DAY))
    assert hook.count() == 871
    assert delivery.refresh().state == "done"
    assert len(courier.attempts(delivery.id)) == 871


@on_each_store
def test_r_002_15_what_is_too_old_is_dropped_and_others_stay(queue, hook, new_courier):
    courier = new_courier("paid", retention=60)
    hook.script("/paid", [500] * 5)
    old = courier.send("paid", 1, conversation="c")
    queue.drain(ahead=30)
    young = [courier.send("paid", number, conversation="c") for number in (2, 3)]
    queue.drain(ahead=34)
    assert (old.refresh().state, old.reason) == ("dead", "too old")
    assert [delivery.refresh().state for delivery in young] == ["done", "done"]
    assert bodies_of(hook)[-2:] == [2, 3]


def test_r_002_15_an_event_counts_from_when_it_was_stored(queue, hook, new_courier):
    courier = new_courier("paid", retention=60)
    hook.script("/paid", [500] * 4)
    delivery = courier.send("paid", 1)
    queue.pause()
    queue.drain(ahead=600)  # it waits, because nothing may be claimed
    queue.resume()
    queue.drain(ahead=60)
    assert delivery.refresh().state == "done"


@on_each_store
def test_r_002_16_a_conversation_is_in_order_through_an_outage(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left")
    hook.script("/paid", [500] * 3)
    for number in range(6):
        event_type = ("paid", "left")[number % 2]
        courier.send(event_type, number, conversation="c")
    queue.drain(ahead=100)
    assert [got.json for got in hook.received() if got.status == 200] == [*range(6)]


def test_r_002_16_an_event_that_failed_goes_before_those_that_waited_meanwhile(
    queue, hook, clock, new_courier
):
    courier = new_courier("paid")
    hook.script("/paid", [500, 500, 500])
    for number in (1, 2, 3):
        courier.send("paid", number)
    clock.advance(0.1)
    queue.drain(ahead=20)
    assert bodies_of(hook) == [1, 1, 1, 1, 2, 3]


def test_r_002_17_retries_by_number_have_no_effect(queue, hook, new_courier):
    courier = new_courier(endpoints={"paid": {"max_retries": 1}}, retention=DAY)
    hook.script("/paid", [500] * 5)
    delivery = courier.send("paid", 1)
    queue.drain(ahead=100)
    assert times_of(hook) == [0, 2, 6, 14, 30, 62]
    assert delivery.refresh().state == "done"


def test_r_002_18_without_retries_a_failure_drops_and_does_not_fail_the_install(
    queue, hook, new_courier
):
    courier = new_courier("paid", endpoints={"typing": {"max_retries": 0}})
    hook.script("/typing", [500])
    delivery = courier.send("typing", 1)
    queue.drain(ahead=DAY)
    assert (delivery.refresh().reason, courier.state) == ("out of retries", "up")
    assert hook.count("/typing") == 1


def test_r_002_18_in_an_outage_they_are_stored_and_sent_like_the_others(
    queue, hook, new_courier
):
    courier = new_courier("paid", endpoints={"typing": {"max_retries": 0}})
    hook.script("/paid", [500] * 2)
    courier.send("paid", 1)
    queue.drain()
    delivery = courier.send("typing", 2)
    queue.drain(ahead=3)
    assert (delivery.refresh().state, hook.count("/typing")) == ("ready", 0)
    queue.drain(ahead=10)
    assert delivery.refresh().state == "done"


# -- states ---------------------------------------------------------------------------


def test_r_002_19_what_is_up_sends_directly(queue, hook, new_courier):
    courier = new_courier("paid", "left")
    with collected(courier_changed, delivery_sent) as sent:
        courier.send("paid", 1, conversation="c")
        courier.send("left", 2, conversation="c")
        queue.drain()
    assert times_of(hook) == [0, 0]
    assert [name for name, _ in sent] == ["delivery_sent"] * 2


def test_r_002_20_one_endpoint_that_fails_lets_all_fail(queue, hook, new_courier):
    courier = new_courier("paid", "left")
    hook.script("/paid", [500])
    courier.send("left", 1)
    courier.send("paid", 2)
    queue.drain()
    assert courier.state == "failed"


@on_each_store
def test_r_002_21_events_for_every_endpoint_are_stored_and_only_probes_go_out(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left")
    hook.script("/paid", [500] * 3)
    courier.send("paid", 1, conversation="c")
    queue.drain()
    stored = [
        courier.send("left", 2, conversation="new"),
        courier.send("left", 3),
        courier.send("paid", 4),
    ]
    queue.drain(ahead=13)
    assert [(got.path, got.json) for got in hook.received()] == [("/paid", 1)] * 3
    assert {delivery.refresh().state for delivery in stored} == {"ready"}


@on_each_store
def test_r_002_22_when_all_answer_again_the_install_is_in_transition(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", recovery_rate=0.1)
    hook.script("/paid", [500])
    courier.send("paid", 1)
    queue.drain()
    for number in (2, 3, 4):
        courier.send("paid", number)
    queue.drain(ahead=1.9)
    assert courier.state == "failed"
    queue.drain(ahead=0.1)
    assert (courier.state, bodies_of(hook)) == ("in_transition", [1, 1, 2])


def test_r_002_22_all_endpoints_that_failed_have_to_answer(queue, hook, new_courier):
    courier = new_courier("paid", "left")
    hook.script("/paid", [500, 200])
    hook.script("/left", [Answer(500, delay=0.2), 500, 200])
    courier.send("paid", 1, conversation="c")
    courier.send("left", 2, conversation="d")
    queue.drain()  # the second one is stored
    assert courier.state == "failed"
    queue.drain(ahead=2)
    assert hook.count("/paid") == 2
    queue.drain(ahead=20)
    assert courier.state == "up"


@on_each_store
def test_r_002_23_in_transition_new_conversations_go_directly_and_others_wait(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", recovery_rate=0.5)
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="stored")
    queue.drain(ahead=2.5)
    assert (courier.state, bodies_of(hook)) == ("in_transition", [1, 1, 2])
    courier.send("left", 4, conversation="new")
    appended = courier.send("left", 5, conversation="stored")
    queue.drain()
    assert bodies_of(hook, "/left") == [4]
    assert appended.refresh().state == "held"
    queue.drain(ahead=10)
    assert bodies_of(hook) == [1, 1, 2, 4, 3, 5]


def test_r_002_23_stored_events_are_sent_in_the_order_they_were_stored(
    queue, hook, clock, new_courier
):
    courier = new_courier("paid")
    hook.script("/paid", [500])
    courier.send("paid", 0)
    queue.drain()
    for number in range(1, 8):
        clock.advance(0.1)
        courier.send("paid", number, conversation=str(number % 3))
    queue.drain(ahead=5)
    assert bodies_of(hook) == [0, *range(8)]


@on_each_store
def test_r_002_24_a_failure_in_transition_keeps_the_event_at_the_head(
    queue, hook, new_courier
):
    courier = new_courier("paid")
    hook.script("/paid", [500, 500, 500, 200, 500, 200])
    with collected(courier_changed) as sent:
        for number in (1, 2, 3):
            courier.send("paid", number, conversation="c")
        queue.drain(ahead=100)
    assert bodies_of(hook) == [1, 1, 1, 1, 2, 2, 3]
    assert times_of(hook) == [0, 2, 6, 14, 14, 16, 16]  # again from two seconds
    ways = ["failed", "in_transition", "failed", "in_transition", "recovered", "up"]
    assert changes(sent) == ways


@on_each_store
def test_r_002_25_26_29_what_was_stored_before_and_meanwhile_is_sent_in_two_steps(
    queue, hook, new_courier
):
    courier = new_courier("paid", recovery_rate=1.0)
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=2.5)
    assert courier.state == "in_transition"  # 2 is sent, 3 waits for its turn
    courier.send("paid", 4, conversation="c")
    courier.send("paid", 5, conversation="c")
    queue.drain(ahead=1.0)
    assert courier.state == "recovered"  # 3 is sent, 4 and 5 are drained
    queue.drain(ahead=2.0)
    assert (courier.state, bodies_of(hook)) == ("up", [1, 1, 2, 3, 4, 5])


def recovered(queue, hook, new_courier):
    """Return a courier that drains two events of one conversation, ten seconds each."""
    courier = new_courier("paid", "left", recovery_rate=0.1)
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=2.5)
    assert (courier.state, bodies_of(hook)) == ("in_transition", [1, 1, 2])
    for number in (4, 5):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=10)
    assert (courier.state, bodies_of(hook)) == ("recovered", [1, 1, 2, 3])
    return courier


@on_each_store
def test_r_002_27_a_new_event_of_a_drained_conversation_waits_four_seconds(
    queue, hook, new_courier
):
    courier = recovered(queue, hook, new_courier)
    late = [courier.send("left", number, conversation="c") for number in (6, 7)]
    queue.drain(ahead=3.9)
    assert hook.count("/left") == 0
    queue.drain(ahead=0.2)
    assert bodies_of(hook, "/left") == [6]
    queue.drain(ahead=50)
    assert bodies_of(hook, "/left") == [6, 7]
    assert [delivery.refresh().out_of_order for delivery in late] == [True, True]
    assert bodies_of(hook, "/paid") == [1, 1, 2, 3, 4, 5]
    assert courier.state == "up"


def test_r_002_27_an_event_that_has_overtaken_is_in_order_when_it_is_replayed(
    queue, hook, new_courier
):
    courier = recovered(queue, hook, new_courier)
    late = courier.send("left", 6, conversation="c")
    queue.drain(ahead=50)
    assert late.refresh().out_of_order
    queue.pause()
    courier.send("paid", 7, conversation="c")
    again = courier.replay(late.id)
    courier.send("paid", 8, conversation="c")
    queue.resume()
    queue.drain()
    assert bodies_of(hook)[-3:] == [7, 6, 8]
    assert (again.job.key, again.refresh().out_of_order) == ("courier/default/c", False)


def test_r_002_27_order_is_kept_if_the_stored_events_are_out_in_time(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", recovery_rate=1.0)
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=2)
    courier.send("paid", 4, conversation="c")
    queue.drain(ahead=1)
    assert courier.state == "recovered"
    late = courier.send("left", 5, conversation="c")
    queue.drain(ahead=10)
    assert bodies_of(hook) == [1, 1, 2, 3, 4, 5]
    assert not late.refresh().out_of_order


def test_r_002_28_other_conversations_are_sent_directly_in_recovered(
    queue, hook, new_courier
):
    courier = recovered(queue, hook, new_courier)
    other, alone = courier.send("left", 6, conversation="d"), courier.send("left", 7)
    queue.drain(ahead=10)
    assert (other.refresh().state, alone.refresh().state) == ("done", "done")
    assert not other.out_of_order


def test_r_002_29_a_failure_in_recovered_fails_the_install(queue, hook, new_courier):
    courier = recovered(queue, hook, new_courier)
    hook.script("/left", [500])
    courier.send("left", 6, conversation="d")
    queue.drain()
    assert courier.state == "failed"
    queue.drain(ahead=100)
    assert courier.state == "up"
    assert bodies_of(hook, "/paid") == [1, 1, 2, 3, 4, 5]


@on_each_store
def test_r_002_31_an_install_emptied_by_expiry_probes_with_the_next_event(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", retention=20)
    hook.script("/paid", [500] * 9)
    courier.send("paid", 1)
    queue.drain(ahead=100)
    assert (courier.state, times_of(hook)) == ("failed", [0, 2, 6, 14])
    with collected(courier_changed) as sent:
        courier.send("left", 2)
        queue.drain()
    assert bodies_of(hook, "/left") == [2]
    assert changes(sent) == ["in_transition", "recovered", "up"]


def test_r_002_31_the_next_event_may_fail_as_well(queue, hook, new_courier):
    courier = new_courier("paid", retention=20)
    hook.script("/paid", [500] * 5)
    courier.send("paid", 1)
    queue.drain(ahead=100)
    courier.send("paid", 2)
    queue.drain()
    assert (hook.count(), courier.state) == (5, "failed")
    queue.drain(ahead=20)
    assert (bodies_of(hook)[-1], courier.state) == (2, "up")


def test_r_002_32_only_endpoints_that_fail_are_probed(queue, hook, new_courier):
    courier = new_courier("paid", "left")
    hook.script("/paid", [500, 500])
    courier.send("paid", 1, conversation="c")
    queue.drain()
    courier.send("left", 2, conversation="d")
    courier.send("paid", 3, conversation="e")
    queue.drain(ahead=3)
    assert bodies_of(hook) == [1, 1]


@on_each_store
def test_r_002_32_a_probe_does_not_overtake_an_older_event_of_its_conversation(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", retention=25)
    hook.script("/paid", [500] * 4)
    courier.send("paid", 1)
    queue.drain(ahead=10)
    courier.send("left", 2, conversation="c")
    courier.send("paid", 3, conversation="c")
    queue.drain(ahead=19)
    assert bodies_of(hook) == [1, 1, 1, 1]
    queue.drain(ahead=2)  # the first one has expired; now 2 stands before 3
    assert [(got.path, got.json) for got in hook.received()][4:] == [
        ("/left", 2),
        ("/paid", 3),
    ]


def test_r_002_33_events_are_posted_with_the_signature_of_the_vendor(
    queue, hook, new_courier
):
    secret = new_secret()
    courier = new_courier("paid", signing="sha256", secret=secret)
    courier.send("paid", {"order": 7})
    queue.drain()
    (got,) = hook.received()
    assert got.headers["x-liveperson-signature"].startswith("sha256=")
    assert verify(got.headers, got.body, secret)


def test_r_002_34_an_endpoint_is_not_disabled_because_it_is_slow(
    queue, hook, new_courier
):
    courier = new_courier("paid", timeout=5.0)
    hook.script("/paid", [Answer(200, delay=0.3)] * 3)
    for number in range(3):
        courier.send("paid", number)
    queue.drain(ahead=DAY)
    assert courier.state == "up"
    assert hook.count() == 3


def test_r_002_35_the_advice_for_callers_is_a_policy(clock):
    """4xx not at all, 429 after a second, 5xx three times after 5, 10 and 15 s."""

    class Refused(Exception):
        def __init__(self, status):
            self.status = status

    def is_server_error(error):
        return error.status >= 500

    def is_limit(error):
        return error.status == 429

    @retry_on(
        Refused, rule="limit", limit=1, delay=1.0, if_=is_limit,
    )  # fmt: skip
    class Call(Task[None]):
        status: int

        def work(self):
            raise Refused(self.status)

    @retry_on(Refused, limit=3, delay=5.0, jitter="linear", if_=is_server_error)
    class CallServer(Task[None]):
        status: int

        def work(self):
            raise Refused(self.status)

    assert CallServer.execute(status=503).retries == 3
    assert clock.pauses == [5.0, 10.0, 15.0]
    assert CallServer.execute(status=404).retries == 0
    assert Call.execute(status=429).retries == 1
    assert clock.pauses[3:] == [1.0]
