"""Random histories of outages, with the real transactions of the couriers."""

from __future__ import annotations

import pytest
from histories import TYPES, WORKERS, History
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

CONVERSATIONS = (None, "c", "d")
PAUSES = (0.0, 0.5, 2.0, 3.0, 5.0, 40.0, 700.0)

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"), st.sampled_from(TYPES), st.sampled_from(CONVERSATIONS)
        ),
        st.tuples(st.just("switch"), st.sampled_from(TYPES)),
        st.tuples(st.just("pass_time"), st.sampled_from(PAUSES)),
        st.tuples(st.just("slow_down"), st.sampled_from([0.0, 0.3, 2.5, 9.9])),
        st.tuples(st.just("kill"), st.integers(0, WORKERS - 1)),
    ),
    max_size=25,
)

OUTAGE = [
    ("switch", "a"),
    ("send", "a", "c"),
    ("pass_time", 3.0),
    ("send", "b", "c"),
    ("send", "a", "c"),
]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
@example([*OUTAGE, ("kill", 0), ("switch", "a"), ("pass_time", 40.0)])
@example([*OUTAGE, ("pass_time", 700.0), ("send", "b", "d"), ("pass_time", 40.0)])
def test_whatever_fails_or_is_killed_nothing_is_lost_and_order_is_kept(history):
    with History() as world:
        for name, *arguments in history:
            getattr(world, name)(*arguments)
        world.heal()
        world.check()


@pytest.mark.parametrize("slowness", [0.3, 9.9])
def test_a_straggler_does_not_let_the_machine_spin(slowness):
    with History() as world:
        world.slow_down(slowness)
        world.send("a", "c")
        world.send("a", "d")
        world.switch("a")
        world.send("a", None)
        world.pass_time(1.0)
        rounds = world.workers[0].claims.queue.store._written
        world.pass_time(slowness)
        assert world.store._written - rounds < 200
        world.heal()
        world.check()
