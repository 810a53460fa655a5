"""What people call: sending, looking, replaying, and what is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from http import HTTPStatus

import psycopg
import pytest
from couriers import (
    bodies_of,
    collected,
    on_each_server,
    on_each_store,
    times_of,
)
from sender import ALLOWED

from cmdx import DefinitionError
from cmdx.delivery import (
    Courier,
    DeliveryError,
    Endpoint,
    courier_changed,
    delivery_dropped,
    delivery_failed,
    delivery_sent,
    new_secret,
)
from cmdx.queue import JobConflict, JobDropped, JobGone, Queue, job_finished
from cmdx.stores import SqliteStore
from cmdx.testing import Answer


def connection_to(store):
    """Return a connection of a user's to the database of a store."""
    has_server = hasattr(store, "address")
    return closing(
        psycopg.connect(store.address) if has_server else sqlite3.connect(store.name)
    )


# -- sending ---------------------------------------------------------------------------


@on_each_store
def test_an_event_is_a_job_of_the_queue(queue, hook, new_courier):
    courier = new_courier("paid")
    delivery = courier.send("paid", {"order": 7}, conversation="c-17")
    job = queue.get(delivery.id)
    assert (job.state, job.key) == ("held", "courier/default/c-17")
    queue.drain()
    assert delivery.refresh().state == "done"
    assert bodies_of(hook) == [{"order": 7}]
    assert (delivery.courier, delivery.event_type) == ("default", "paid")
    assert (delivery.conversation, delivery.payload) == ("c-17", {"order": 7})
    assert delivery.job.result.value == 200


def test_an_event_without_a_conversation_is_on_its_own(new_courier):
    courier = new_courier("paid")
    assert courier.send("paid", 1).job.key is None


def test_an_event_can_be_waited_for(queue, new_courier):
    courier = new_courier("paid")
    delivery = courier.send("paid", 1)
    with queue.worker():
        assert delivery.wait(30).state == "done"


def test_a_wait_that_is_over_says_that_the_courier_has_failed(queue, hook, new_courier):
    courier = new_courier("paid")
    hook.script("/paid", [500])
    delivery = courier.send("paid", 1)
    queue.drain()
    with pytest.raises(TimeoutError, match="Its courier 'default' is failed: events"):
        delivery.wait(0)


def test_a_wait_that_is_over_does_not_blame_a_courier_that_is_up(new_courier):
    delivery = new_courier("paid").send("paid", 1)
    with pytest.raises(TimeoutError, match=r"queue\.drain\(\)\.$"):
        delivery.wait(0)


def test_there_is_a_twin_of_each_call_for_coroutines(queue, hook, new_courier):
    courier = new_courier("paid", retention=None)

    async def use():
        hook.script("/paid", [500])
        delivery = await courier.asend("paid", 1)
        await queue.adrain()
        assert await delivery is delivery
        assert (await courier.aget(delivery.id)).state == "dead"
        assert [found.id for found in await courier.adeliveries()] == [delivery.id]
        assert [attempt.status for attempt in await courier.aattempts(delivery.id)] == [
            500
        ]
        assert await courier.astate() == "up"
        assert await courier.areplay_all() == 1
        await queue.adrain()
        assert (await delivery.arefresh()).state == "done"
        assert (await courier.areplay(delivery.id)).state == "ready"

    asyncio.run(use())


def test_an_id_names_one_event(queue, hook, new_courier):
    courier = new_courier("paid")
    first = courier.send("paid", 1, id="evt_1")
    assert courier.send("paid", 1, id="evt_1").id == first.id
    with pytest.raises(JobConflict, match="evt_1"):
        courier.send("paid", 2, id="evt_1")
    queue.drain()
    (got,) = hook.received()
    assert got.headers["webhook-id"] == "evt_1"


@on_each_server
@pytest.mark.parametrize("is_within", [False, True])
def test_the_same_event_may_have_its_keys_in_another_order(
    store, new_courier, is_within
):
    courier = new_courier("paid")
    first = courier.send("paid", {"a": 1, "b": [{"c": 2, "d": 3}]}, id="evt_1")
    with connection_to(store) if is_within else nullcontext() as within:
        options = {"id": "evt_1", "within": within}
        again = courier.send("paid", {"b": [{"d": 3, "c": 2}], "a": 1}, **options)
        assert (again.id, again.body) == (first.id, first.body)
        for other in ({"a": 1.0, "b": [{"c": 2, "d": 3}]}, {"a": True}, [1], "a"):
            with pytest.raises(JobConflict, match="evt_1"):
                courier.send("paid", other, **options)
        with pytest.raises(JobConflict, match="evt_1"):
            courier.send("paid", first.payload, conversation="c", **options)


@pytest.mark.parametrize("id_", ["", "a.b", "a b", "ä", "a\n", "x" * 256, 7])
def test_an_id_that_cannot_be_in_a_header_is_refused(new_courier, id_):
    with pytest.raises(DeliveryError, match="letters, digits and -_:"):
        new_courier("paid").send("paid", 1, id=id_)


@pytest.mark.parametrize(
    "payload",
    [{1, 2}, float("nan"), b"bytes", "\ud800", object()],
    ids=["set", "nan", "bytes", "surrogate", "object"],
)
def test_what_json_does_not_know_is_refused(queue, new_courier, payload):
    with pytest.raises(DeliveryError, match="cannot be written as JSON"):
        new_courier("paid").send("paid", payload)
    assert queue.find() == []


def test_a_body_may_have_256_kilobytes(queue, hook, new_courier):
    courier = new_courier("paid")
    courier.send("paid", "x" * (256 * 1024 - 2))
    with pytest.raises(DeliveryError, match="262145 bytes"):
        courier.send("paid", "x" * (256 * 1024 - 1))
    queue.drain()
    (got,) = hook.received()
    assert len(got.body) == 256 * 1024


def test_a_body_is_compact_and_the_same_in_each_attempt(queue, hook, new_courier):
    courier = new_courier("paid")
    hook.script("/paid", [500])
    courier.send("paid", {"name": "Zoë", "items": [1, 2]})
    queue.drain(ahead=2)
    bodies = {got.body for got in hook.received()}
    assert bodies == {'{"name":"Zoë","items":[1,2]}'.encode()}


def test_an_unknown_type_is_refused_with_those_that_are_known(new_courier):
    with pytest.raises(
        DeliveryError, match="no endpoint for 'pait'; it has paid, left"
    ):
        new_courier("paid", "left").send("pait", 1)


@pytest.mark.parametrize("retention", [None, 60])
@pytest.mark.parametrize("conversation", ["", "x" * 181, 7, "\ud800", "a\0b"])
def test_a_conversation_is_a_text(new_courier, conversation, retention):
    with pytest.raises(DeliveryError, match="conversation must be a text"):
        new_courier("paid", retention=retention).send(
            "paid", 1, conversation=conversation
        )


@on_each_server
def test_an_event_is_stored_in_the_transaction_of_the_caller(
    store, queue, hook, new_courier
):
    courier = new_courier("paid")
    with connection_to(store) as connection:
        courier.send("paid", 1, within=connection)
        connection.rollback()
        queue.drain()
        delivery = courier.send("paid", 2, conversation="c", within=connection)
        with pytest.raises(JobGone, match="not committed"):
            delivery.refresh()
        connection.commit()
    queue.drain()
    assert bodies_of(hook) == [2]


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_an_asynchronous_connection_needs_the_call_for_coroutines(store, new_courier):
    courier = new_courier("paid")

    async def send():
        async with await psycopg.AsyncConnection.connect(store.address) as connection:
            courier.send("paid", 1, within=connection)

    with pytest.raises(TypeError, match=r"needs asend\(\), or pass a synchronous one"):
        asyncio.run(send())


# -- several couriers ------------------------------------------------------------------


def test_couriers_with_two_names_have_two_states(queue, hook, new_courier):
    one, other = new_courier("paid", name="one"), new_courier("left", name="other")
    hook.script("/paid", [500])
    one.send("paid", 1, conversation="c")
    other.send("left", 2, conversation="c")
    queue.drain()
    assert (one.state, other.state) == ("failed", "up")
    assert bodies_of(hook, "/left") == [2]


def test_conversations_of_two_couriers_do_not_wait_for_each_other(new_courier):
    one, other = new_courier("paid", name="one"), new_courier("paid", name="other")
    assert one.send("paid", 1, conversation="c").job.key != (
        other.send("paid", 2, conversation="c").job.key
    )


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


def test_a_failing_type_that_is_gone_is_forgotten_though_nothing_is_stored(
    queue, hook, new_courier
):
    old = new_courier("paid", "gone", retention=10)
    hook.script("/gone", [500] * 20)
    old.send("gone", 1)
    queue.drain(ahead=60)
    assert old.state == "failed"
    courier = new_courier("paid", retention=10)
    queue.drain()
    assert courier.state == "up"


@on_each_store
def test_a_type_that_is_gone_is_dropped(queue, new_courier):
    old = new_courier("paid", "gone")
    events = [old.send("gone", number, conversation="c") for number in (1, 2)]
    kept = old.send("paid", 3, conversation="c")
    courier = new_courier("paid")
    with collected(delivery_dropped) as sent:
        queue.drain()
    assert [facts["reason"] for _, facts in sent] == ["no endpoint"] * 2
    assert [event.refresh().reason for event in events] == ["no endpoint"] * 2
    assert (kept.refresh().state, courier.state) == ("done", "up")


@pytest.fixture
def deployed(tmp_path, hook):
    """Two processes during a deploy: the later one has one more type of events."""
    with SqliteStore(tmp_path / "app.db") as store, SqliteStore(store.name) as later:
        paid, left = Endpoint(f"{hook.url}/paid"), Endpoint(f"{hook.url}/left")
        options = {"retention": 3600, **ALLOWED}
        yield (
            Courier(Queue(store), {"paid": paid}, **options),
            Courier(Queue(later), {"paid": paid, "left": left}, **options),
        )


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
    queue.drain(ahead=2)
    assert (courier.state, bodies_of(hook, "/paid")) == ("up", [2])


def test_events_of_a_courier_of_another_process_are_left_to_it(tmp_path, hook):
    with SqliteStore(tmp_path / "app.db") as mine, SqliteStore(mine.name) as other:
        theirs = Courier(Queue(other), {"paid": Endpoint(f"{hook.url}/p")}, **ALLOWED)
        theirs.send("paid", 1)
        assert Queue(mine).drain() == 0
        assert Queue(other).drain() == 1


def test_ordinary_jobs_run_beside_events(queue, hook, new_courier):
    from cmdx import Task

    class Plain(Task[int], name="beside.plain"):
        def work(self):
            return 7

    courier = new_courier("paid")
    hook.script("/paid", [500])
    courier.send("paid", 1)
    job = queue.enqueue(Plain())
    queue.drain()
    assert (job.refresh().state, courier.state) == ("done", "failed")


# -- attempts and signals --------------------------------------------------------------


@on_each_store
def test_every_attempt_is_kept_with_the_begin_of_its_answer(queue, hook, new_courier):
    courier = new_courier("paid")
    hook.script("/paid", [Answer(500, body="x" * 5000), Answer(503, body="busy")])
    delivery = courier.send("paid", 1)
    queue.drain(ahead=10)
    attempts = courier.attempts(delivery.id)
    assert [attempt.number for attempt in attempts] == [1, 2, 3]
    assert [attempt.status for attempt in attempts] == [500, 503, 200]
    assert [attempt.answer for attempt in attempts] == ["x" * 4096, "busy", ""]
    assert [attempt.reason for attempt in attempts] == [
        "it answered with 500",
        "it answered with 503",
        None,
    ]
    first = attempts[0].sent_at
    assert [attempt.sent_at - first for attempt in attempts] == [0, 2, 6]


def test_attempts_of_events_that_were_removed_are_removed(
    store, queue, clock, new_courier
):
    courier = new_courier("paid")
    queue.keep = 60.0
    courier.send("paid", 1)
    queue.drain()
    clock.advance(100)
    queue.drain(ahead=10)
    rows = store.transact(
        lambda statements: statements.execute("select * from cmdx_delivery_attempt")
    )
    assert rows == []


@on_each_store
@pytest.mark.parametrize("id_", ["new", "old"])
def test_an_event_does_not_inherit_the_attempts_of_one_that_was_removed(
    queue, hook, new_courier, id_
):
    courier = new_courier("paid")
    hook.script("/paid", [500, 500])
    courier.send("paid", 1, id="old")
    queue.drain(ahead=20)
    assert len(courier.attempts("old")) == 3
    queue.prune("done", until=queue.store.now() + 1)
    courier.send("paid", 2, id=id_)
    assert courier.attempts(id_) == []
    queue.drain()
    assert [attempt.number for attempt in courier.attempts(id_)] == [1]


def test_an_event_in_a_transaction_of_the_caller_does_not_inherit_attempts(
    tmp_path, hook, clock
):
    del clock
    with SqliteStore(tmp_path / "app.db") as store:
        queue = Queue(store)
        courier = Courier(queue, {"paid": Endpoint(f"{hook.url}/p")}, **ALLOWED)
        courier.send("paid", 1, id="same")
        queue.drain()
        queue.prune("done", until=store.now() + 1)
        with sqlite3.connect(store.name) as connection:
            courier.send("paid", 1, id="same", within=connection)
        connection.close()
        assert courier.attempts("same") == []


def test_signals_tell_what_became_of_an_event(queue, hook, new_courier):
    courier = new_courier("paid", retention=2)
    hook.script("/paid", [500, 500])
    signals = (courier_changed, delivery_dropped, delivery_failed, delivery_sent)
    with collected(*signals) as sent:
        courier.send("paid", 1)
        queue.drain(ahead=10)
        courier.send("paid", 2)
        queue.drain()
    assert [name for name, _ in sent] == [
        "delivery_failed",
        "courier_changed",
        "delivery_failed",
        "delivery_dropped",
        "delivery_sent",
        "courier_changed",
        "courier_changed",
        "courier_changed",
    ]
    assert {facts["sender"] for _, facts in sent} == {courier}
    _, failed = sent[0]
    assert failed["delivery"].payload == 1
    assert (failed["status"], failed["reason"]) == (500, "it answered with 500")


def test_a_receiver_listens_to_one_courier(queue, new_courier):
    one, other = new_courier("paid", name="one"), new_courier("left", name="other")
    heard = []

    def hear(sender, **_facts):
        heard.append(sender.name)

    delivery_sent.connect(hear, sender=one)
    one.send("paid", 1)
    other.send("left", 2)
    queue.drain()
    delivery_sent.disconnect(hear, sender=one)
    assert heard == ["one"]


def test_events_tell_what_jobs_tell(queue, new_courier):
    courier = new_courier("paid")
    with collected(job_finished) as sent:
        delivery = courier.send("paid", 1)
        queue.drain()
    ((_, facts),) = sent
    assert (facts["job"].id, facts["result"].value) == (delivery.id, 200)


# -- replaying -------------------------------------------------------------------------


@on_each_store
def test_a_dropped_event_is_sent_again_with_the_same_id(queue, hook, new_courier):
    courier = new_courier("paid", retention=2)
    hook.script("/paid", [500] * 2)
    delivery = courier.send("paid", 1, conversation="c")
    queue.drain(ahead=10)
    assert delivery.refresh().state == "dead"
    again = courier.replay(delivery.id)
    assert (again.id, again.attempts) == (delivery.id, 0)
    queue.drain()
    assert delivery.refresh().state == "done"
    assert {got.headers["webhook-id"] for got in hook.received()} == {delivery.id}
    numbers = [attempt.number for attempt in courier.attempts(delivery.id)]
    assert numbers == [1, 2, 3]


def test_a_replayed_event_has_all_its_retries_again(queue, hook, new_courier):
    courier = new_courier(retention=None, endpoints={"paid": {"max_retries": 1}})
    hook.script("/paid", [500] * 3)
    delivery = courier.send("paid", 1)
    queue.drain(ahead=30)
    courier.replay(delivery.id)
    queue.drain(ahead=30)
    assert times_of(hook) == [0, 30, 30, 60]
    assert (delivery.refresh().state, delivery.attempts) == ("done", 2)


def test_a_replayed_event_goes_to_the_end_of_its_conversation(queue, hook, new_courier):
    courier = new_courier("paid", retention=60)
    sent = courier.send("paid", 1, conversation="c")
    queue.drain()
    queue.pause()
    courier.send("paid", 2, conversation="c")
    courier.replay(sent.id)
    courier.send("paid", 3, conversation="c")
    queue.resume()
    queue.drain()
    assert bodies_of(hook) == [1, 2, 1, 3]


def test_a_replayed_event_is_kept_as_long_as_a_new_one(queue, hook, clock, new_courier):
    courier = new_courier("paid", retention=60)
    sent = courier.send("paid", 1)
    queue.drain()
    clock.advance(1000)
    hook.script("/paid", [500] * 4)
    courier.replay(sent.id)
    queue.drain(ahead=30)
    assert sent.refresh().state == "done"


def test_all_dropped_events_can_be_replayed_by_filters(queue, hook, new_courier):
    courier = new_courier("paid", "left", retention=None)
    hook.script("/paid", [500] * 2)
    hook.script("/left", [500])
    for event_type, conversation in (("paid", "c"), ("paid", "d"), ("left", "c")):
        courier.send(event_type, 1, conversation=conversation)
    queue.drain()
    assert courier.replay_all(event_type="paid", conversation="d") == 1
    assert courier.replay_all(event_type="left") == 1
    assert courier.replay_all() == 1
    queue.drain()
    assert len(courier.deliveries(state="done")) == 3


def test_a_queue_leaves_events_out_when_it_replays_all(queue, hook, new_courier):
    courier = new_courier("paid", retention=None)
    hook.script("/paid", [500])
    courier.send("paid", 1)
    queue.drain()
    assert queue.replay_all(everything=True) == 0
    assert courier.replay_all() == 1


def test_what_is_not_there_cannot_be_replayed(new_courier):
    courier, other = new_courier("paid"), new_courier("paid", name="other")
    delivery = other.send("paid", 1)
    for id_ in ("nothing", delivery.id):
        with pytest.raises(JobGone):
            courier.replay(id_)
        with pytest.raises(JobGone):
            courier.attempts(id_)
        assert courier.get(id_) is None


def test_the_job_of_a_dropped_event_says_why(queue, hook, new_courier):
    courier = new_courier("paid", retention=None)
    hook.script("/paid", [500])
    delivery = courier.send("paid", 1)
    queue.drain()
    result = delivery.refresh().job.result
    assert result.failed
    assert isinstance(result.cause, JobDropped)
    assert "out of retries" in result.reason


def test_an_event_that_waits_can_be_cancelled(queue, hook, new_courier):
    courier = new_courier("paid")
    hook.script("/paid", [500])
    first = courier.send("paid", 1, conversation="c")
    second = courier.send("paid", 2, conversation="c")
    queue.drain()
    assert queue.cancel(first.id)
    queue.drain(ahead=5)
    assert (first.refresh().state, second.refresh().state) == ("cancelled", "done")
    assert courier.state == "up"


# -- looking ---------------------------------------------------------------------------


def test_deliveries_are_found_by_filters(queue, clock, new_courier):
    courier, other = new_courier("paid", "left"), new_courier("paid", name="other")
    other.send("paid", 0)
    first = courier.send("paid", 1, conversation="c")
    clock.advance(60)
    now = datetime.fromtimestamp(queue.store.now(), UTC)
    second = courier.send("left", 2, conversation="d")

    def found(**filters):
        return [delivery.id for delivery in courier.deliveries(**filters)]

    assert found() == [first.id, second.id]
    assert found(limit=1) == [first.id]
    assert found(event_type="left") == found(conversation="d") == [second.id]
    assert found(since=now) == [second.id]
    assert found(until=now) == [first.id]
    assert found(state="held") == [first.id, second.id]
    assert found(state="dead") == []
    with pytest.raises(DefinitionError, match="event_type"):
        courier.deliveries(event_typ="left")


@pytest.mark.parametrize("call", ["deliveries", "replay_all"])
def test_dropped_is_no_state_of_a_delivery(new_courier, call):
    words = rf"{call}: state is one of .*, got 'dropped'\. Events .* dropped are dead"
    with pytest.raises(DefinitionError, match=words):
        getattr(new_courier("paid"), call)(state="dropped")


@pytest.mark.parametrize("call", ["get", "attempts", "replay"])
def test_a_delivery_in_place_of_its_id_is_refused(new_courier, call):
    courier = new_courier("paid")
    delivery = courier.send("paid", 1)
    words = r"a delivery is named by its id, such as delivery\.id, got <Delivery"
    with pytest.raises(TypeError, match=words):
        getattr(courier, call)(delivery)
    with pytest.raises(TypeError, match=words):
        asyncio.run(getattr(courier, f"a{call}")(delivery))


# -- what is refused -------------------------------------------------------------------


def test_a_strict_queue_refuses_a_courier(store):
    with pytest.raises(DefinitionError, match="not strict"):
        Courier(Queue(store, strict=True), {"paid": Endpoint("https://a.example")})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a/b"}, "name must be 1 to 60"),
        ({"name": ""}, "name must be 1 to 60"),
        ({"retention": 1}, "retention must be a number of seconds from 2 to 259200"),
        ({"retention": 259_201}, "259200 \\(3 days\\)"),
        ({"signing": "md5"}, 'signing must be "standard", "sha1" or "sha256"'),
        ({"secret": "not base64!"}, "new_secret"),
        ({"secret": []}, "secret must be a text"),
        ({"timeout": 0}, "timeout must be a finite number of seconds, above 0"),
        ({"recovery_rate": 0}, "recovery_rate must be a number of events per second"),
        ({"recovery_rate": -1}, "recovery_rate must be a number of events per second"),
        ({"recovery_rate": 1 / 259_201}, r"at least 1/259200 \(one in 3 days\)"),
        ({"accept": ()}, "accept must be statuses"),
        ({"accept": ("200",)}, "accept must be statuses"),
        ({"accept": (True,)}, "accept must be statuses"),
        ({"accept": None}, "accept must be statuses"),
        ({"signing": None}, 'signing must be "standard", "sha1" or "sha256"'),
        ({"name": None}, "name must be 1 to 60"),
        ({"timeout": None}, "timeout must be a finite number of seconds, above 0"),
        ({"allow": None}, "allow has addresses"),
        ({"allow_http": None}, "allow_http must be True or False, got None"),
        ({"allow_http": "no"}, "allow_http must be True or False, got 'no'"),
        ({"allow": [7]}, "allow has addresses"),
        ({"allow": ["10.0.0.0/99"]}, "no address, network or name"),
    ],
)
def test_wrong_options_are_refused(queue, options, words):
    with pytest.raises(DefinitionError, match=words):
        Courier(queue, {"paid": Endpoint("https://a.example")}, **options)


def test_statuses_may_be_those_of_the_standard_library(queue, hook, new_courier):
    courier = new_courier("paid", accept=[HTTPStatus.OK, HTTPStatus.ACCEPTED])
    hook.script("/paid", [202])
    delivery = courier.send("paid", 1)
    queue.drain()
    assert delivery.refresh().state == "done"
    assert courier.accept == (200, 202)


@pytest.mark.parametrize("endpoints", [{}, None, [Endpoint("https://a.example")]])
def test_endpoints_are_a_mapping(queue, endpoints):
    with pytest.raises(DefinitionError, match="by event types"):
        Courier(queue, endpoints)


def test_a_courier_takes_a_queue(store):
    with pytest.raises(
        TypeError, match=r"takes a Queue, got .* Write Courier\(Queue\("
    ):
        Courier(store, {"paid": Endpoint("https://a.example")})


def test_the_password_of_an_address_is_not_shown():
    with pytest.raises(TypeError, match="got an instance of str") as caught:
        Courier("postgresql://shop:secret@db/shop", {})

    assert "secret" not in str(caught.value)


def test_the_configuration_decides_the_retention(queue):
    paid = {"endpoint": "https://a.example"}
    config = {"capabilities": {"webhooks": {"paid": paid}}}
    with pytest.raises(DefinitionError, match="Leave out retention="):
        Courier.from_config(queue, config, retention=60)


def test_a_url_of_a_configuration_is_refused_by_its_key(queue):
    paid = {"endpoint": "http://a.example"}
    config = {"capabilities": {"webhooks": {"paid": paid}}}
    with pytest.raises(
        DefinitionError, match=r"capabilities\.webhooks\.paid\.endpoint"
    ):
        Courier.from_config(queue, config)


def test_the_secret_is_not_shown(queue):
    secret = new_secret()
    courier = Courier(
        queue, {"paid": Endpoint("https://a.example", secret=secret)}, secret=secret
    )
    assert secret not in repr(courier) + repr(courier.endpoints)


# -- pace and order --------------------------------------------------------------------


def test_a_recovering_endpoint_gets_events_at_its_pace(queue, hook, new_courier):
    courier = new_courier("paid", recovery_rate=2.0)
    hook.script("/paid", [500])
    for number in range(6):
        courier.send("paid", number)
    queue.drain(ahead=100)
    assert times_of(hook) == [0, 2, 2, 2.5, 3, 3.5, 4]


def test_a_recovering_endpoint_gets_events_at_a_very_slow_pace(
    queue, hook, new_courier
):
    courier = new_courier("paid", recovery_rate=1 / 1000, retention=86_400)
    hook.script("/paid", [500])
    for number in range(3):
        courier.send("paid", number)
    queue.drain(ahead=2500)
    assert times_of(hook) == [0, 2, 2, 1002]


def test_retry_after_delays_the_probe_and_is_limited(queue, hook, new_courier):
    courier = new_courier("paid", retention=86_400)
    hook.script(
        "/paid",
        [
            Answer(503, headers={"retry-after": "60"}),
            Answer(503, headers={"retry-after": "1"}),
            Answer(429, headers={"retry-after": "86400"}),
        ],
    )
    courier.send("paid", 1)
    queue.drain(ahead=1000)
    assert times_of(hook) == [0, 60, 64, 364]
