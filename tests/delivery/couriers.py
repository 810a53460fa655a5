"""What the tests of deliveries share: stores, receivers, couriers and what they did."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmdx.clock import use
from cmdx.delivery import Courier, Endpoint
from cmdx.queue import Queue
from cmdx.testing import Receiver, instant

sys.path.append(str(Path(__file__).parents[1] / "queue"))

from queues import StillClock
from sender import ALLOWED
from workers import new_store

on_each_store = pytest.mark.parametrize(
    "store", ["memory", "file", "postgresql"], indirect=True
)
on_each_server = pytest.mark.parametrize("store", ["file", "postgresql"], indirect=True)


@pytest.fixture
def clock():
    """Virtual time; that of the wall does not move by itself either."""
    with use(StillClock()), instant() as clock:
        yield clock


@pytest.fixture
def store(request, tmp_path):
    """A store in memory, or the one that ``on_each_store`` asks for."""
    with new_store(getattr(request, "param", "memory"), tmp_path) as made:
        yield made


@pytest.fixture
def queue(store, clock):
    """A queue on the store, in virtual time."""
    del clock
    return Queue(store, keep=1e6)


@pytest.fixture
def hook(clock):
    """A receiver that tells the virtual time."""
    del clock
    with Receiver() as hook:
        yield hook


@pytest.fixture
def new_courier(queue, hook):
    """Make couriers whose endpoints are paths of the receiver."""

    def make(*event_types, retention=3600, endpoints=None, **options):
        paths = {name: {} for name in event_types} | (endpoints or {})
        found = {
            name: Endpoint(f"{hook.url}/{name}", **facts)
            for name, facts in paths.items()
        }
        return Courier(queue, found, retention=retention, **ALLOWED | options)

    return make


def times_of(hook, path=None):
    """When requests came in, in seconds since the first of all."""
    everything = hook.received()
    return [round(got.at - everything[0].at, 2) for got in hook.received(path)]


def bodies_of(hook, path=None):
    """What came in, in order."""
    return [got.json for got in hook.received(path)]


@contextmanager
def collected(*signals):
    """Collect what signals send: their names and payloads."""
    sent = []

    def receiver(name):
        return lambda sender, **payload: sent.append(
            (name, {"sender": sender, **payload})
        )

    receivers = [receiver(signal.name) for signal in signals]
    for signal, receive in zip(signals, receivers, strict=True):
        signal.connect(receive)
    try:
        yield sent
    finally:
        for signal, receive in zip(signals, receivers, strict=True):
            signal.disconnect(receive)
