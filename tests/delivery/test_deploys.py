"""What changes while events wait: types, retentions, processes and their couriers."""

from __future__ import annotations

import pytest
from couriers import bodies_of, collected, on_each_store, times_of
from sender import ALLOWED

from cmdx.delivery import (
    Courier,
    DeliveryError,
    Endpoint,
    courier_changed,
    delivery_dropped,
)
from cmdx.queue import Queue
from cmdx.stores import SqliteStore


@pytest.fixture
def deployed(tmp_path, hook):
    """Two processes during a deploy: the later one has one more type of events."""
    with SqliteStore(tmp_path / "app.db") as store, SqliteStore(store.name) as later:
        paid, left = Endpoint(f"{hook.url}/paid"), Endpoint(f"{hook.url}/left")
        options = {"retention": 86_400, **ALLOWED}
        yield (
            Courier(Queue(store), {"paid": paid}, **options),
            Courier(Queue(later), {"paid": paid, "left": left}, **options),
        )


# -- couriers of one process -----------------------------------------------------------


def test_a_courier_of_the_same_name_takes_the_place_of_the_one_before(
    queue, hook, new_courier
):
    new_courier("paid").send("paid", 1)
    again = new_courier(endpoints={"paid": {"headers": {"x-new": "1"}}})
    again.send("paid", 2)
    queue.drain()
    assert [got.headers.get("x-new") for got in hook.received()] == ["1", "1"]


def test_a_courier_refuses_what_the_one_in_its_place_cannot_send(queue, new_courier):
    first = new_courier("paid", "left")
    new_courier("left")
    with pytest.raises(DeliveryError, match=r"another courier 'default' .* for 'paid'"):
        first.send("paid", 1)
    first.send("left", 2)
    assert queue.drain() == 1


def test_the_courier_in_its_place_decides_about_order(new_courier):
    first = new_courier("paid", retention=None)
    new_courier("paid", retention=60)
    assert first.send("paid", 1, conversation="c").job.key == "courier/default/c"


def test_couriers_of_two_stores_do_not_take_the_place_of_each_other(deployed):
    _, new = deployed
    assert new.send("left", 1).state == "ready"


# -- types that are gone ---------------------------------------------------------------


@on_each_store
def test_a_type_that_is_gone_is_dropped_after_an_hour(queue, new_courier):
    old = new_courier("paid", "gone")
    events = [old.send("gone", number, conversation="c") for number in (1, 2)]
    kept = old.send("paid", 3, conversation="c")
    courier = new_courier("paid")
    with collected(delivery_dropped) as sent:
        queue.drain(ahead=3599)
        assert sent == []
        queue.drain(ahead=2)
    assert [facts["reason"] for _, facts in sent] == ["no endpoint"] * 2
    assert [event.refresh().reason for event in events] == ["no endpoint"] * 2
    assert (kept.refresh().state, courier.state) == ("done", "up")


def test_a_courier_that_has_no_retention_any_more_is_up(queue, hook, new_courier):
    old = new_courier("paid", retention=3600)
    hook.script("/paid", [500])
    old.send("paid", 1)
    queue.drain()
    assert old.state == "failed"
    with collected(courier_changed) as sent:
        courier = new_courier("paid", retention=None)
        queue.drain()
    assert (courier.state, bodies_of(hook)) == ("up", [1, 1])
    assert [(facts["old"], facts["new"]) for _, facts in sent] == [("failed", "up")]


def test_a_courier_that_has_no_retention_any_more_is_up_though_nothing_is_stored(
    queue, hook, new_courier
):
    old = new_courier("paid", retention=10)
    hook.script("/paid", [500] * 20)
    dropped = old.send("paid", 1)
    queue.drain(ahead=60)
    assert (dropped.refresh().reason, old.state) == ("too old", "failed")
    courier = new_courier("paid", retention=None)
    queue.drain()
    assert courier.state == "up"


def test_a_failing_type_that_is_gone_does_not_keep_the_install_failed(
    queue, hook, new_courier
):
    old = new_courier("paid", "gone")
    hook.script("/gone", [500])
    old.send("gone", 1)
    queue.drain()
    courier = new_courier("paid")
    courier.send("paid", 2)
    queue.drain(ahead=29)
    assert (courier.state, bodies_of(hook, "/paid")) == ("failed", [])
    queue.drain(ahead=2)
    assert (courier.state, bodies_of(hook, "/paid")) == ("up", [2])


def test_a_failing_type_that_is_gone_is_forgotten_though_nothing_is_stored(
    queue, hook, new_courier
):
    old = new_courier("paid", "gone", retention=10)
    hook.script("/gone", [500] * 20)
    old.send("gone", 1)
    queue.drain(ahead=60)
    courier = new_courier("paid", retention=10)
    queue.drain(ahead=29)
    assert courier.state == "failed"
    queue.drain(ahead=2)
    assert courier.state == "up"


def test_an_event_that_waits_for_an_endpoint_is_sent_when_there_is_one(
    queue, hook, new_courier
):
    delivery = new_courier("paid", "left").send("left", 1)
    new_courier("paid")
    queue.drain(ahead=3000)
    new_courier("paid", "left")
    queue.drain()
    assert (delivery.refresh().state, bodies_of(hook)) == ("done", [1])


# -- deploys ---------------------------------------------------------------------------


def test_a_process_that_runs_for_longer_leaves_new_types_to_others(deployed):
    old, new = deployed
    delivery = new.send("left", 1)
    assert (old.queue.drain(), delivery.refresh().state) == (0, "ready")
    assert (new.queue.drain(), delivery.refresh().state) == (1, "done")


def test_a_process_that_runs_for_longer_keeps_the_gaps_of_new_types(
    hook, clock, deployed
):
    old, new = deployed
    hook.script("/left", [500] * 4)
    new.send("left", 1, conversation="c")
    new.send("paid", 2, conversation="c")
    for _ in range(30):
        new.queue.drain()
        assert old.queue.drain() == 0
        clock.advance(1.0)
    assert times_of(hook, "/left") == [0, 2, 6, 14]
    assert new.state == "failed"


def test_a_process_that_is_made_again_with_fewer_types_drops_nothing(deployed, hook):
    old, new = deployed
    delivery = new.send("left", 1)
    with SqliteStore(old.queue.store.name) as store:
        paid = {"paid": Endpoint(f"{hook.url}/paid")}
        again = Courier(Queue(store), paid, retention=86_400, **ALLOWED)
        again.queue.drain(ahead=600)
        assert delivery.refresh().state == "ready"
    new.queue.drain()
    assert delivery.refresh().state == "done"


def test_an_event_is_not_dropped_while_a_worker_has_its_endpoint(deployed, hook, clock):
    old, new = deployed
    hook.script("/left", [500] * 1000)
    delivery = new.send("left", 1)
    for _ in range(20):
        old.queue.drain()
        new.queue.drain()
        clock.advance(400)
    assert (delivery.refresh().state, new.state) == ("ready", "failed")


def test_an_event_waits_for_an_hour_whatever_was_noted_before(deployed, clock):
    old, new = deployed
    cancelled = new.send("left", 1)
    old.queue.drain()
    old.queue.cancel(cancelled.id)
    clock.advance(7200)
    delivery = new.send("left", 2)
    old.queue.drain(ahead=3000)
    assert delivery.refresh().state == "ready"
    old.queue.drain(ahead=700)
    assert delivery.refresh().reason == "no endpoint"
