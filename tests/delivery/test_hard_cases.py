"""Slow answers, many events or couriers, edited rows, and whatever else is unusual."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from threading import Event

import httpcore
import pytest
from couriers import bodies_of, collected, on_each_store, times_of
from histories import History, QuietClaims
from sender import ALLOWED

from cmdx import DefinitionError, Task
from cmdx.delivery import (
    Courier,
    DeliveryError,
    Endpoint,
    courier_changed,
    guard,
    records,
    verify,
)
from cmdx.delivery.connections import guarded_backend
from cmdx.delivery.guard import Guard
from cmdx.delivery.lane import CourierLane
from cmdx.queue import Queue
from cmdx.queue.lanes import lane_beside
from cmdx.queue.report import Demand
from cmdx.stores import SqliteStore
from cmdx.testing import Answer, Receiver


class Plain(Task[int], name="hard.plain"):
    def work(self):
        return 7


class Asynchronous(Task[int], name="hard.asynchronous"):
    async def work(self):
        await asyncio.sleep(0.01)
        return 7


# -- slow answers ----------------------------------------------------------------------


def test_gaps_grow_also_if_answers_are_slow_and_nothing_else_is_stored():
    with History() as world:
        world.slow_down(0.8)
        world.switch("a")
        world.send("a", None)
        world.pass_time(40.0)
        first = world.began[0]
        began = [round(moment - first, 1) for moment in world.began]
    assert began == [0, 2.8, 7.6, 16.4, 33.2]  # each takes 0.8 s before its gap


def test_an_install_is_in_transition_until_stored_events_have_arrived():
    with History() as world:
        world.switch("a")
        world.send("a", "c")
        world.send("a", "c")
        world.pass_time(1.0)
        world.switch("a")
        world.slow_down(3.0)
        world.pass_time(5.0)  # the probe has arrived, the second one is on its way
        assert len(world.received) == 1
        assert world.states == ["up", "failed", "in_transition"]
        world.pass_time(3.0)
        assert world.states[3:] == ["recovered", "up"]


def test_r_002_15_what_is_held_gets_too_old_while_the_head_is_on_its_way():
    with History() as world:
        world.switch("a")
        world.send("a", "c")
        world.send("a", "c")
        world.pass_time(1.0)
        world.slow_down(1000.0)
        world.pass_time(420.0)
        head, behind = (delivery.refresh() for delivery in world.sent)
    assert (head.state, behind.state) == ("running", "dead")
    assert behind.reason == "too old"


def test_r_002_15_a_straggler_is_as_old_as_its_failure():
    with History() as world:
        world.switch("a")
        world.slow_down(300.0)
        world.send("a", None)
        world.slow_down(0.1)
        world.send("a", None)
        world.pass_time(500.0)
        straggler, first = (delivery.refresh() for delivery in world.sent)
        assert (straggler.state, first.state) == ("ready", "dead")
        world.pass_time(300.0)
        assert straggler.refresh().reason == "too old"


def test_r_002_27_what_waits_for_an_event_on_its_way_overtakes_nothing():
    with History() as world:
        world.switch("a")
        world.send("a", "c")
        world.send("a", "c")
        world.pass_time(1.0)
        world.switch("a")
        world.slow_down(3.0)
        world.pass_time(4.5)
        assert world.courier_state() == "in_transition"
        world.slow_down(30.0)
        world.send("b", "d")  # goes directly, and takes its time
        world.send("a", "c")  # keeps the install from being up
        world.pass_time(3.0)
        assert world.courier_state() == "recovered"
        world.send("b", "d")
        world.pass_time(10.0)
        later = world.sent[-1].refresh()
        assert (later.state, later.out_of_order) == ("held", False)
        assert world.courier_state() == "recovered"


def test_an_event_that_is_cancelled_while_its_attempt_fails_is_cancelled():
    with History() as world:
        world.switch("a")
        world.slow_down(3.0)
        world.send("a", None)
        (delivery,) = world.sent
        assert world.queue.cancel(delivery.id)
        assert delivery.refresh().state == "running"
        world.pass_time(4.0)
        assert delivery.refresh().state == "cancelled"


# -- recovery --------------------------------------------------------------------------


@on_each_store
def test_new_conversations_do_not_wait_for_all_that_was_stored(
    queue, hook, new_courier
):
    courier = new_courier("paid", recovery_rate=1.0)
    hook.script("/paid", [500])
    for number in range(25):
        courier.send("paid", number, conversation=str(number))
    queue.drain(ahead=2.5)
    courier.send("paid", "new", conversation="new")
    queue.drain(ahead=2.0)
    assert "new" in bodies_of(hook)


def test_what_goes_directly_never_gets_too_old(queue, hook, new_courier):
    courier = new_courier("paid", recovery_rate=1.0, retention=10)
    hook.script("/paid", [500])
    for number in range(10):
        courier.send("paid", number, conversation=str(number))
    queue.drain(ahead=2.5)
    new = [
        courier.send("paid", number, conversation=str(number)) for number in "abcdef"
    ]
    queue.drain(ahead=60)
    assert {delivery.refresh().state for delivery in new} == {"done"}
    assert courier.state == "up"


def test_stored_and_new_events_go_in_turn(queue, hook, new_courier):
    courier = new_courier("paid", recovery_rate=1.0)
    hook.script("/paid", [500])
    for number in range(4):
        courier.send("paid", number, conversation=str(number))
    queue.drain(ahead=2.5)
    for number in "ab":
        courier.send("paid", number, conversation=number)
    queue.drain(ahead=20)
    assert bodies_of(hook)[3:] in ([2, "a", 3, "b"], ["a", 2, "b", 3])


@pytest.mark.parametrize("stored", [10, 300])
def test_events_overtake_however_many_others_are_held(queue, hook, new_courier, stored):
    courier = new_courier("paid", "left", recovery_rate=1.0)
    hook.script("/paid", [500])
    for number in range(3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=2.5)
    for number in range(10):
        courier.send("paid", number, conversation="c")
    for number in range(stored):
        courier.send("left", number, conversation="d")
    queue.drain(ahead=2)
    late = courier.send("left", "late", conversation="c")
    queue.drain(ahead=5)
    assert late.refresh().out_of_order


def test_later_events_stay_behind_those_that_overtake_and_wait(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", "other", "more", recovery_rate=0.1)
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=3)
    for number in (4, 5):
        courier.send("paid", number, conversation="c")
    for number in range(10):
        courier.send("more", str(number), conversation="d")  # they take a while
    queue.drain(ahead=10)
    for number in "abcde":
        courier.send("left", number, conversation=number)
    six = courier.send("left", 6, conversation="c")
    queue.drain(ahead=25)
    assert (six.refresh().state, six.out_of_order) == ("ready", True)
    assert courier.state == "recovered"
    seven = courier.send("other", 7, conversation="c")
    eight = courier.send("other", 8, conversation="c")
    queue.drain(ahead=200)
    numbers = [body for body in bodies_of(hook) if isinstance(body, int)]
    assert numbers == [1, 1, 2, 3, 4, 5, 6, 7, 8]
    assert not seven.refresh().out_of_order
    assert (eight.refresh().state, courier.state) == ("done", "up")


def test_an_event_that_overtakes_and_is_cancelled_is_replayed_in_order(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", recovery_rate=0.1)
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=3)
    for number in (4, 5):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=10)
    for number in "abcde":
        courier.send("left", number, conversation=number)
    six = courier.send("left", 6, conversation="c")
    queue.drain(ahead=5)
    assert six.refresh().out_of_order
    assert queue.cancel(six.id)
    again = courier.replay(six.id)
    assert (again.job.key, again.out_of_order) == ("courier/default/c", False)


def test_a_process_without_couriers_replays_what_has_overtaken_in_order(
    tmp_path, hook, clock
):
    del clock
    with SqliteStore(tmp_path / "app.db") as store, SqliteStore(store.name) as other:
        queue = Queue(store, keep=1e6)
        paths = {name: Endpoint(f"{hook.url}/{name}") for name in ("paid", "left")}
        courier = Courier(queue, paths, retention=3600, recovery_rate=0.1, **ALLOWED)
        hook.script("/paid", [500])
        for number in (1, 2, 3):
            courier.send("paid", number, conversation="c")
        queue.drain(ahead=3)
        for number in (4, 5):
            courier.send("paid", number, conversation="c")
        queue.drain(ahead=10)
        late = courier.send("left", 6, conversation="c")
        queue.drain(ahead=200)
        assert late.refresh().out_of_order
        assert Queue(other).replay(late.id).key == "courier/default/c"
        assert late.refresh().job.key == "courier/default/c"


# -- probes ----------------------------------------------------------------------------


@pytest.fixture
def two_failing(hook, queue, new_courier):
    """Two endpoints that fail at the same time; the first one asks to wait for 50 s."""
    wait = {"retry-after": "50"}
    hook.script("/paid", [Answer(429, headers=wait, delay=0.2)])
    hook.script("/left", [Answer(500, delay=0.2)])
    courier = new_courier("paid", "left")
    paid = courier.send("paid", 1, conversation="c")
    left = courier.send("left", 2)
    with queue.worker():
        hook.wait_for(2)
        left.job._queue.store.wait(1)
        while {paid.refresh().attempts, left.refresh().attempts} != {1}:
            queue.store.wait(1)
    return courier, paid, left


def test_an_endpoint_with_nothing_stored_does_not_hide_when_another_is_probed(
    queue, hook, two_failing
):
    courier, _, left = two_failing
    queue.cancel(left.id)
    queue.drain(ahead=1000)
    assert times_of(hook, "/paid")[1] == pytest.approx(50, abs=1)
    assert courier.state == "up"


def test_retry_after_counts_also_for_what_stands_before_a_probe(
    queue, hook, two_failing
):
    courier, _, left = two_failing
    courier.send("left", 3, conversation="c")
    queue.cancel(left.id)
    queue.drain(ahead=200)
    assert times_of(hook, "/paid")[1] >= 49
    assert courier.state == "up"


@pytest.mark.usefixtures("two_failing")
def test_with_room_for_one_probe_the_endpoints_take_turns(queue, hook):
    hook.script("/paid", [500] * 50)
    queue.drain(ahead=200)
    assert hook.count("/left") == 2


@pytest.mark.parametrize("retention", [None, 3600])
def test_a_clock_that_is_set_back_does_not_stop_a_courier(
    queue, hook, clock, new_courier, retention
):
    courier = new_courier(endpoints={"paid": {"max_retries": 5}}, retention=retention)
    hook.script("/paid", [500])
    delivery = courier.send("paid", 1)
    queue.drain()
    clock.advance(-3600)
    queue.drain(ahead=600)
    assert (delivery.refresh().state, courier.state) == ("done", "up")


@pytest.mark.parametrize("retention", [None, 3600])
def test_a_clock_that_is_set_back_keeps_no_replayed_event_waiting(
    queue, hook, clock, new_courier, retention
):
    courier = new_courier("paid", retention=retention)
    for number, conversation in enumerate([None, "c", "c"]):
        courier.send("paid", number, conversation=conversation, id=f"evt_{number}")
    queue.drain()
    clock.advance(7200)
    for number in range(3):
        courier.replay(f"evt_{number}")
    clock.advance(-3600)
    queue.drain(ahead=60)
    assert bodies_of(hook)[3:] == [0, 1, 2]


def test_a_clock_that_is_set_back_keeps_no_retry_waiting(
    queue, hook, clock, new_courier
):
    courier = new_courier(endpoints={"paid": {"max_retries": 1}}, retention=None)
    delivery = courier.send("paid", 1)
    clock.advance(7200)
    hook.script("/paid", [500])
    queue.drain()
    clock.advance(-3600)
    queue.drain(ahead=20)
    assert delivery.refresh().state == "ready"
    queue.drain(ahead=40)
    assert delivery.refresh().state == "done"


# -- turns -----------------------------------------------------------------------------


@pytest.fixture
def claim(queue, new_courier):
    """Claim events of two types, of which many wait; return their types."""
    courier = new_courier("paid", "left")
    for number in range(6):
        courier.send("paid", number)
        courier.send("left", number)
    with QuietClaims(queue, 30.0) as claims:

        def claim(count):
            claimed = claims.do_round((), Demand(count)).claimed
            return [courier._record.event_type_of(event.lane) for event in claimed]

        yield claim


def test_endpoints_take_turns_within_a_round(claim):
    assert sorted(claim(4)) == ["left", "left", "paid", "paid"]


def test_endpoints_take_turns_over_several_rounds(claim):
    first, second, third, fourth = (claim(1) for _ in range(4))
    assert first == third != second == fourth


def test_an_event_is_claimed_once_while_new_and_stored_ones_wait():
    with History() as world:
        world.switch("a")
        for _ in range(11):
            world.send("a", None)
        world.pass_time(1.0)
        began = len(world.began)
        world.switch("a")
        world.slow_down(3.0)
        world.pass_time(4.5)  # the probe was accepted, and eight are on their way
        assert world.courier_state() == "in_transition"
        world.send("a", None)
        world.pass_time(10.0)
        assert len(world.began) - began == 12
        assert sorted(world.received) == sorted(set(world.received))


# -- many of them ----------------------------------------------------------------------


def test_couriers_that_have_failed_sleep_until_there_is_something_to_do(
    store, queue, hook
):
    endpoint = Endpoint(f"{hook.url}/paid")
    couriers = [
        Courier(queue, {"paid": endpoint}, name=f"c{number}", retention=3600, **ALLOWED)
        for number in range(20)
    ]
    hook.script("/paid", [500] * 200)
    for courier in couriers:
        courier.send("paid", 1)
    queue.drain(ahead=40)
    assert {courier.state.value for courier in couriers} == {"failed"}
    before = statements_of_a_round(store, queue)
    for courier in couriers:
        courier.send("paid", 2)
    assert statements_of_a_round(store, queue) <= before + 2


def statements_of_a_round(store, queue):
    """Return how many statements a round takes that can do nothing."""
    counted = []

    def count(statement):
        counted.append(statement)

    store._connection.set_trace_callback(count)
    try:
        queue.drain()
    finally:
        store._connection.set_trace_callback(None)
    return len(counted)


def test_attempts_are_removed_with_their_events(store, clock, hook, monkeypatch):
    monkeypatch.setattr(records, "MOST_CHECKED", 20)
    queue = Queue(store, keep=1)
    courier = Courier(queue, {"paid": Endpoint(f"{hook.url}/a")}, **ALLOWED)
    for number in range(50):
        courier.send("paid", number)
    queue.drain()
    for _ in range(4):  # 20, 20 and 10, and once more from the beginning
        clock.advance(10)
        queue.drain()
    rows = store.transact(
        lambda statements: statements.execute(
            "select count(*) from cmdx_delivery_attempt"
        )
    )
    assert rows == [(0,)]


def test_a_process_sends_eight_events_to_an_endpoint_at_a_time(tmp_path):
    with Receiver() as hook, SqliteStore(tmp_path / "app.db") as store:
        queue = Queue(store)
        courier = Courier(queue, {"paid": Endpoint(f"{hook.url}/a")}, **ALLOWED)
        hook.script("/a", [Answer(200, delay=1.0)] * 8)
        for number in range(16):
            courier.send("paid", number)
        with queue.worker(), queue.worker():
            hook.wait_for(8)
            running = queue.counts()["running"]
            hook.wait_for(16)
    assert running <= 8


def test_workers_that_are_gone_are_forgotten(queue, new_courier):
    courier = new_courier("paid")
    for number in range(5):
        courier.send("paid", number)
        queue.drain()
    lane = lane_beside(queue, CourierLane, CourierLane)
    assert len(lane._owners) == 1


def test_many_asynchronous_jobs_do_not_keep_events_waiting(tmp_path):
    with Receiver() as hook, SqliteStore(tmp_path / "app.db") as store:
        queue = Queue(store)
        courier = Courier(queue, {"paid": Endpoint(f"{hook.url}/a")}, **ALLOWED)
        queue.enqueue_many([Asynchronous() for _ in range(2000)])
        with queue.worker(grace=0.0):
            queue.store.wait(5)
            courier.send("paid", 1).wait(60)
            assert queue.counts()["ready"] > 0


def test_a_store_with_a_courier_can_be_collected(tmp_path):
    store = SqliteStore(tmp_path / "app.db")
    Courier(Queue(store), {"paid": Endpoint("https://a.example")})
    found = weakref.ref(store)
    store.close()
    del store
    gc.collect()
    assert found() is None


# -- rows that somebody has edited, or a later version has written ---------------------


@pytest.mark.parametrize(
    "edit",
    [
        "update cmdx_job set created_at = 'x'",
        "update cmdx_job set lane_facts = 'x'",
        "update cmdx_job set lane_facts = '[0, 0, false, false, 1]'",
        "update cmdx_courier set install = 'x'",
        "update cmdx_courier set install = '[]'",
        """update cmdx_courier set install = '{"state": "up", "new": 1}'""",
    ],
)
def test_a_row_that_cannot_be_read_stops_nobody(store, queue, new_courier, edit):
    courier = new_courier("paid")
    courier.send("paid", 1)
    store.transact(lambda statements: statements.execute(edit))
    job = queue.enqueue(Plain())
    other = courier.send("paid", 2)
    queue.drain()
    assert (job.refresh().state, other.refresh().state) == ("done", "done")


def test_an_event_that_cannot_be_read_does_not_let_workers_spin(store, queue, hook):
    courier = Courier(queue, {"paid": Endpoint(f"{hook.url}/a")}, **ALLOWED)
    delivery = courier.send("paid", 1)
    edit = "update cmdx_job set task = 'later.delivery', module = 'later'"
    store.transact(lambda statements: statements.execute(edit))
    assert queue.drain() <= 1
    assert queue.drain() == 0
    assert delivery.refresh().state == "ready"


# -- names and addresses ---------------------------------------------------------------


def test_a_name_that_nobody_answers_for_takes_up_one_thread(monkeypatch):
    threads, is_over = [], Event()

    def getaddrinfo(host, *_given, **_options):
        threads.append(host)
        is_over.wait(30)
        raise socket.gaierror

    async def look_up():
        lookups = [guard.look_up("slow.example", 443) for _ in range(8)]
        waiting = asyncio.gather(*lookups, return_exceptions=True)
        await asyncio.sleep(0)
        is_over.set()
        return await waiting

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    errors = asyncio.run(look_up())
    assert [type(error) for error in errors] == [socket.gaierror] * 8
    assert threads == ["slow.example"]


def test_a_caller_that_leaves_does_not_cancel_the_lookup_of_others(monkeypatch):
    is_over = Event()

    def getaddrinfo(*_given, **_options):
        is_over.wait(30)
        return ["found"]

    async def look_up():
        first = asyncio.create_task(guard.look_up("a.example", 443))
        second = asyncio.create_task(guard.look_up("a.example", 443))
        await asyncio.sleep(0)
        first.cancel()
        is_over.set()
        return await second

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert asyncio.run(look_up()) == ["found"]


def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch):
    tried = []

    async def connect_tcp(_backend, host, _port, timeout=None, **_options):  # noqa: ASYNC109
        tried.append((host, timeout))
        if len(tried) == 1:
            raise httpcore.ConnectTimeout
        return object()

    found = [(0, 0, 0, "", (host, 443)) for host in ("1.1.1.1", "8.8.8.8")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_options: found)
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect_tcp)
    asyncio.run(guarded_backend(Guard()).connect_tcp("a.example", 443, timeout=None))
    assert tried == [("1.1.1.1", 2.0), ("8.8.8.8", None)]


# -- what is refused -------------------------------------------------------------------


def test_an_event_type_is_a_text(new_courier):
    with pytest.raises(DeliveryError, match="no endpoint for"):
        new_courier("paid").send(["paid"], 1)


def test_a_wrong_filter_is_refused_by_the_call_that_has_it(new_courier):
    with pytest.raises(DefinitionError, match=r"^replay_all"):
        new_courier("paid").replay_all(bogus=1)


def test_a_configuration_takes_any_iterable_of_what_is_allowed(queue):
    webhooks = {"paid": {"endpoint": "https://10.1.2.3/"}}
    config = {"capabilities": {"webhooks": webhooks}}
    courier = Courier.from_config(queue, config, allow=iter(["10.0.0.0/8"]))
    assert list(courier.endpoints) == ["paid"]


@pytest.mark.parametrize("body", [{"a": 1}, [1], 7, None])
def test_a_body_that_was_read_already_cannot_be_verified(body):
    with pytest.raises(TypeError, match="as it was received"):
        verify({}, body, "secret")


def test_states_are_told_once_each(queue, hook, new_courier):
    courier = new_courier("paid")
    hook.script("/paid", [500])
    with collected(courier_changed) as sent:
        courier.send("paid", 1)
        queue.drain(ahead=10)
    ways = ["failed", "in_transition", "recovered", "up"]
    assert [str(facts["new"]) for _, facts in sent] == ways


# -- keys ------------------------------------------------------------------------------


def give_key(queue, job, key):
    """Give a job a key that it could have before such keys were reserved."""
    queue.store.transact(
        lambda statements: statements.execute(
            "update cmdx_job set key = :key where id = :id", key=key, id=job.id
        )
    )


@on_each_store
def test_a_job_with_the_key_of_a_conversation_stops_nobody(queue, hook, new_courier):
    courier = new_courier("paid")
    hook.script("/paid", [500])
    job = queue.enqueue(Plain(), key="mine", after=100)
    give_key(queue, job, "courier/default/ada")
    first = courier.send("paid", 0)
    behind = courier.send("paid", 1, conversation="ada")
    queue.drain()
    queue.cancel(first.id)
    queue.drain(ahead=50)
    other = courier.send("paid", 2, conversation="bob")
    queue.drain(ahead=40)
    assert other.refresh().state == "done"
    queue.drain(ahead=300)
    assert (job.refresh().state, behind.refresh().state) == ("done", "done")
    assert courier.state == "up"


def test_a_job_with_a_key_of_events_that_overtake_stops_nobody(
    queue, hook, new_courier
):
    courier = new_courier("paid", "left", recovery_rate=0.1)
    hook.script("/paid", [500])
    for number in (1, 2, 3):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=3)
    for number in (4, 5):
        courier.send("paid", number, conversation="c")
    queue.drain(ahead=10)
    job = queue.enqueue(Plain(), key="mine", after=1000)
    queue.drain()
    give_key(queue, job, "courier-overtaking/default/c")
    six = courier.send("left", 6, conversation="c")
    queue.drain(ahead=2000)
    assert (six.refresh().state, job.refresh().state) == ("done", "done")
