"""The states of an install: each decision, and random histories of outages."""

from __future__ import annotations

import math
from itertools import pairwise

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cmdx.delivery import machine
from cmdx.delivery.machine import (
    DRAIN_PATIENCE,
    FAILED,
    IN_TRANSITION,
    RECOVERED,
    TRANSITIONS,
    UP,
    CourierState,
    Fate,
    Install,
    Mark,
    Send,
    advance,
    begin_probes,
    end_send,
    endpoints_to_probe,
    gap_after,
    without_probes,
)

NOW = 1000.0
HERE = Mark(100, NOW)


def send(sequence=1, event_type="a", epoch=0, *, drops=False):
    return Send(sequence, event_type, epoch, drops)


def failed(event_type="a", now=NOW, wait=0.0):
    """An install that has failed, because of one endpoint."""
    install, _ = end_send(
        Install(), send(1, event_type), now, accepted=False, wait=wait
    )
    return install


def probing(*event_types):
    """An install with failing endpoints, and one probe under way for each."""
    failing = dict.fromkeys(event_types, NOW)
    install = attrs.evolve(failed(), failing=failing, round_at=NOW)
    return begin_probes(install, range(10, 10 + len(event_types)))


def in_transition():
    return advance(attrs.evolve(failed(), failing={}), lambda _mark: True, HERE)


def recovered():
    return advance(in_transition(), lambda _mark: False, HERE)


def states(*installs):
    return [install.state for install in installs]


# -- the drawing ---------------------------------------------------------------------


def test_there_are_six_ways_and_no_other():
    ways = {(old.value, new.value) for old, new in TRANSITIONS}
    assert ways == {
        ("up", "failed"),
        ("failed", "in_transition"),
        ("in_transition", "failed"),
        ("in_transition", "recovered"),
        ("recovered", "failed"),
        ("recovered", "up"),
    }


@pytest.mark.parametrize("old", CourierState)
@pytest.mark.parametrize("new", CourierState)
def test_r_002_30_a_state_follows_only_where_the_drawing_has_an_arrow(old, new):
    install = Install(state=old)
    if (old, new) in TRANSITIONS:
        assert machine.change(install, new).state is new
    else:
        with pytest.raises(ValueError, match=f"{old} cannot become {new}"):
            machine.change(install, new)


# -- gaps ----------------------------------------------------------------------------


def test_r_002_14_gaps_double_from_two_seconds_to_five_minutes():
    gaps = [gap_after(rounds) for rounds in range(1, 12)]
    assert gaps == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert gap_after(10**6) == 300


@pytest.mark.parametrize(
    ("retention", "retries"), [(2, 1), (86_400, 294), (259_200, 870)]
)
def test_r_002_14_a_retention_has_room_for_so_many_retries(retention, retries):
    moment, count = 0.0, 0
    while moment + gap_after(count + 1) <= retention:
        count += 1
        moment += gap_after(count)
    assert count == retries


# -- ends of sends -------------------------------------------------------------------


def test_an_accepted_event_is_delivered_and_changes_nothing():
    for install in (Install(), in_transition(), recovered()):
        accepted = end_send(install, send(epoch=install.epoch), NOW, accepted=True)
        assert accepted == (install, Fate.DELIVERED)


def test_a_failure_lets_the_install_fail_and_stores_the_event():
    install, fate = end_send(Install(), send(), NOW, accepted=False)
    assert (install.state, fate) == (FAILED, Fate.STORED)
    assert (install.round_at, install.failed_at) == (NOW + 2, NOW)
    assert list(install.failing) == ["a"]


@pytest.mark.parametrize("install", [in_transition(), recovered()], ids=states)
def test_a_failure_on_the_way_back_begins_anew_with_two_seconds(install):
    later = NOW + 700
    again, fate = end_send(install, send(epoch=1), later, accepted=False)
    assert (again.state, fate) == (FAILED, Fate.STORED)
    assert again.round_at == later + 2
    assert again.failed_at == NOW  # it was not up meanwhile


@pytest.mark.parametrize("install", [Install(), in_transition(), recovered()])
def test_an_endpoint_without_retries_drops_and_changes_no_state(install):
    event = send(epoch=install.epoch, drops=True)
    assert end_send(install, event, NOW, accepted=False) == (install, Fate.DROPPED)


def test_an_endpoint_without_retries_stores_while_the_install_has_failed():
    install = failed("b")
    straggler = send(2, "a", drops=True)
    assert end_send(install, straggler, NOW, accepted=False) == (install, Fate.STORED)


def test_what_was_sent_before_the_failure_proves_nothing_when_it_succeeds():
    install = failed()
    assert end_send(install, send(2), NOW, accepted=True) == (install, Fate.DELIVERED)


def test_what_was_sent_before_the_failure_adds_an_endpoint_that_fails():
    install, fate = end_send(failed(), send(2, "b"), NOW + 1, accepted=False)
    assert fate is Fate.STORED
    assert install.failing == {"a": NOW, "b": NOW + 3}
    assert install.round_at == NOW + 2


@pytest.mark.parametrize("install", [in_transition(), recovered()], ids=states)
def test_what_was_sent_before_the_failure_proves_nothing_when_all_is_well(install):
    old = send(2, epoch=0)
    assert end_send(install, old, NOW, accepted=False) == (install, Fate.STORED)


# -- probes --------------------------------------------------------------------------


def test_no_endpoint_is_probed_before_the_round_is_due():
    install = failed()
    assert endpoints_to_probe(install, NOW + 1.999) == []
    assert endpoints_to_probe(install, NOW + 2) == ["a"]


def test_no_endpoint_is_probed_while_a_probe_is_under_way():
    assert endpoints_to_probe(probing("a", "b"), NOW + 1000) == []


@pytest.mark.parametrize("state", [UP, IN_TRANSITION, RECOVERED])
def test_only_an_install_that_has_failed_probes(state):
    install = Install(state=state, failing={"a": 0.0})
    assert endpoints_to_probe(install, NOW) == []


def test_a_round_that_fails_is_followed_by_a_longer_gap_from_its_end():
    install = probing("a")
    for gap in (4, 8, 16):
        install = begin_probes(attrs.evolve(install, probes=frozenset()), [10])
        install, fate = end_send(install, send(10), NOW + 5, accepted=False)
        assert fate is Fate.STORED
        assert install.round_at == NOW + 5 + gap


def test_a_round_is_over_when_its_last_probe_is():
    install, _ = end_send(probing("a", "b"), send(10, "a"), NOW, accepted=False)
    assert install.rounds == 1
    assert endpoints_to_probe(install, NOW + 1000) == []
    install, _ = end_send(install, send(11, "b"), NOW + 9, accepted=True)
    assert (install.rounds, install.round_at) == (2, NOW + 13)
    assert endpoints_to_probe(install, NOW + 13) == ["a"]


def test_an_endpoint_that_answers_again_needs_no_probe():
    install, _ = end_send(probing("a", "b"), send(10, "a"), NOW, accepted=True)
    assert list(install.failing) == ["b"]


def test_what_stands_before_a_probe_lets_it_go_at_once():
    install = begin_probes(failed(), [10])
    install, fate = end_send(install, send(10, "other"), NOW + 3, accepted=True)
    assert fate is Fate.DELIVERED
    assert endpoints_to_probe(install, NOW + 3) == ["a"]


def test_what_stands_before_a_probe_may_fail_as_well():
    install = begin_probes(failed(), [10])
    install, _ = end_send(install, send(10, "other"), NOW + 3, accepted=False)
    assert sorted(install.failing) == ["a", "other"]
    assert install.round_at == NOW + 7


def test_what_nothing_is_stored_for_counts_no_more_once_a_probe_was_accepted():
    install = begin_probes(failed(), [10])
    assert machine.without_silent(install, {"a"}) is install
    answered, _ = end_send(install, send(10, "other"), NOW + 3, accepted=True)
    assert list(answered.failing) == ["a"]
    assert machine.without_silent(answered, set()).failing == answered.failing
    assert machine.without_silent(answered, {"a"}).failing == {}


def test_what_nothing_is_stored_for_counts_while_nothing_was_accepted():
    install, _ = end_send(probing("a"), send(10, "a"), NOW, accepted=False)
    assert machine.without_silent(install, {"a"}) is install
    accepted, _ = end_send(probing("a", "b"), send(10, "a"), NOW, accepted=True)
    assert machine.without_silent(accepted, {"b"}) is accepted  # a probe is under way
    straggler, _ = end_send(
        attrs.evolve(accepted, probes=frozenset()), send(2, "b"), NOW, accepted=False
    )
    assert machine.without_silent(straggler, {"b"}) is straggler


def test_a_probe_without_retries_is_stored_like_the_others_and_ends_the_round():
    install = begin_probes(failed(), [10])
    before = send(10, "other", drops=True)
    install, fate = end_send(install, before, NOW + 3, accepted=False)
    assert fate is Fate.STORED
    assert list(install.failing) == ["a"]  # its own endpoint need not answer again
    assert (install.rounds, install.round_at) == (2, NOW + 7)


def test_a_probe_whose_process_has_died_is_sent_again_at_once():
    install = without_probes(probing("a"), {10}, NOW)
    assert endpoints_to_probe(install, NOW) == ["a"]


def test_a_lost_probe_ends_the_round_that_another_one_has_failed():
    install, _ = end_send(probing("a", "b"), send(10, "a"), NOW, accepted=False)
    install = without_probes(install, {11}, NOW + 1)
    assert (install.rounds, install.round_at) == (2, NOW + 5)


@pytest.mark.parametrize(("wait", "earliest"), [(60, 60), (1, 2), (10_000, 300)])
def test_retry_after_delays_a_probe_up_to_five_minutes_and_never_shortens(
    wait, earliest
):
    install = failed(wait=wait)
    assert endpoints_to_probe(install, NOW + earliest - 0.001) == []
    assert endpoints_to_probe(install, NOW + earliest) == ["a"]
    assert machine.next_probe_time(install, ["a"]) == NOW + earliest


def test_retry_after_of_one_endpoint_does_not_delay_another():
    failing = {"a": NOW + 60, "b": NOW}
    install = attrs.evolve(failed(), failing=failing)
    assert endpoints_to_probe(install, NOW + 2) == ["b"]


def test_an_install_with_nothing_stored_probes_with_the_next_event_at_once():
    install = machine.rest(failed(), NOW + 1)
    assert install.state is FAILED
    assert endpoints_to_probe(install, NOW + 1) == ["a"]
    install = begin_probes(install, [10])
    again, _ = end_send(install, send(10), NOW + 5, accepted=False)
    assert again.round_at == NOW + 7  # its gaps begin anew


# -- recovery ------------------------------------------------------------------------


def test_an_install_stays_failed_while_an_endpoint_fails_or_is_probed():
    for install in (failed(), probing("a"), attrs.evolve(probing("a"), failing={})):
        assert advance(install, lambda _mark: False, HERE) is install


def test_recovery_takes_three_steps_and_leaves_none_out():
    install, seen = attrs.evolve(failed(), failing={}), []
    while (after := advance(install, lambda _mark: False, HERE)) is not install:
        install = after
        seen.append(install.state)
    assert seen == [IN_TRANSITION, RECOVERED, UP]


def test_each_step_waits_for_what_was_stored_by_its_own_mark():
    first, second = Mark(100, NOW), Mark(120, NOW + 5)
    install = advance(attrs.evolve(failed(), failing={}), lambda _mark: True, first)
    assert advance(install, lambda mark: mark == first, second) is install
    install = advance(install, lambda mark: mark != first, second)
    assert install.state is RECOVERED
    assert advance(install, lambda mark: mark == second, HERE) is install
    assert advance(install, lambda mark: mark != second, HERE).state is UP


def test_a_mark_covers_what_was_there_and_not_what_was_replayed_since():
    assert Mark(7, NOW).covers(7, NOW)
    assert not Mark(7, NOW).covers(8, NOW)
    assert not Mark(7, NOW).covers(3, NOW + 1)


def test_age_counts_from_when_an_event_was_stored_and_not_before_the_failure():
    assert machine.expiry_of(failed(), NOW - 500, 60) == NOW + 60
    assert machine.expiry_of(failed(), NOW + 5, 60) == NOW + 65


@pytest.mark.parametrize("state", [IN_TRANSITION, RECOVERED])
def test_what_has_come_since_recovery_began_does_not_get_too_old(state):
    install = attrs.evolve(failed(), state=state, recovers_since=NOW + 10)
    assert machine.expiry_of(install, NOW + 11, 60) == math.inf
    assert machine.expiry_of(install, NOW + 10, 60) == NOW + 70
    failed_again = attrs.evolve(install, state=FAILED)
    assert machine.expiry_of(failed_again, NOW + 11, 60) == NOW + 71


def test_age_is_judged_by_the_time_of_the_round_that_is_a_little_late():
    install = failed()
    assert machine.judging_time(install, NOW + 1) == NOW + 1
    assert machine.judging_time(install, NOW + 2.5) == NOW + 2
    assert machine.judging_time(install, NOW + 60) == NOW + 59
    probing = begin_probes(install, [10])
    for other in (Install(), probing, in_transition(), recovered()):
        assert machine.judging_time(other, NOW + 2.5) == NOW + 2.5


def test_a_pace_lets_so_many_go_in_a_second_and_makes_up_for_a_little():
    install = in_transition()
    moments = []
    for _ in range(4):
        moment = max(NOW, machine.next_pace(install, "a"))
        moments.append(moment - NOW)
        install = machine.keep_pace(install, "a", moment, 4.0)
    assert moments[0] == 0
    assert moments[3] == pytest.approx(0.75, abs=machine.LATE_PACE)
    assert machine.next_pace(install, "b") == 0
    assert machine.next_pace(attrs.evolve(install, state=UP), "a") == 0


# -- random histories ----------------------------------------------------------------

TYPES = ("a", "b", "drops")
CONVERSATIONS = (None, "c", "d")
RETENTION = 400.0


@attrs.define
class Event:
    """An event as the model has it."""

    sequence: int
    event_type: str
    conversation: str | None
    came_at: float
    stored_at: float | None = None
    epoch: int = 0
    state: str = "waiting"
    """Or sending, delivered, dropped."""
    overtakes: bool = False
    began_at: float = 0.0
    ends_at: float = 0.0
    accepted: bool = True


class Model:
    """A courier with a list for a store, and endpoints that fail by a plan."""

    def __init__(self):
        self.now = 0.0
        self.install = Install()
        self.events: list[Event] = []
        self.seen = [UP]
        self.order: list[Event] = []
        self.too_old: list[float] = []
        """The ages of events that were dropped because of it."""
        self.is_down = dict.fromkeys(TYPES, False)

    # what happens

    def arrive(self, event_type, conversation):
        self.events.append(Event(len(self.events), event_type, conversation, self.now))
        self.look()

    def switch(self, event_type):
        self.is_down[event_type] = not self.is_down[event_type]

    def pass_time(self, seconds):
        """Let time pass, and do what becomes due on the way."""
        end = self.now + seconds
        while True:
            moment = min((event.ends_at for event in self.sending()), default=end)
            moment = max(self.now, min(moment, self.next_look(), end))
            self.now = moment
            for event in self.sending():
                if event.ends_at <= self.now:
                    self.finish(event)
            self.look()
            if moment >= end:
                return

    # what is asked

    def waiting(self, event_type=None):
        return [
            event
            for event in self.events
            if event.state == "waiting" and event_type in (None, event.event_type)
        ]

    def sending(self):
        return [event for event in self.events if event.state == "sending"]

    def ahead_of(self, event):
        """The first event of a conversation that is neither sent nor dropped."""
        if event.conversation is None:
            return event
        line = (
            other
            for other in self.events
            if other.state in ("waiting", "sending")
            and other.conversation == event.conversation
            and other.overtakes == event.overtakes
        )
        return next(line)

    def heads(self, event_type=None):
        heads = [
            event for event in self.waiting(event_type) if self.ahead_of(event) is event
        ]
        return sorted(heads, key=self.time_of)

    def time_of(self, event):
        stored_at = event.came_at if event.stored_at is None else event.stored_at
        return stored_at, event.sequence

    def has_pending(self, mark):
        return any(
            mark.covers(event.sequence, self.time_of(event)[0])
            and (event.state == "waiting" or event.began_at > mark.time)
            for event in self.waiting() + self.sending()
        )

    def next_look(self):
        install = self.install
        times = [float("inf")]
        if install.state is FAILED and not install.probes and self.waiting():
            moment = machine.next_probe_time(install, install.failing)
            times += [moment] if moment > self.now else []
        if install.state is not UP:
            for event in self.waiting():
                stored_at = self.time_of(event)[0]
                times.append(machine.expiry_of(install, stored_at, RETENTION) + 0.001)
        if install.state is RECOVERED:
            after = self.now - DRAIN_PATIENCE
            late = [event.came_at for event in self.waiting() if event.came_at > after]
            times += [came_at + DRAIN_PATIENCE + 0.001 for came_at in late]
        return min(times)

    # what is done

    def become(self, install):
        if install.state is not self.install.state:
            self.seen.append(install.state)
        self.install = install

    def look(self):
        install = self.install
        if install.state is not UP:
            for event in self.waiting():
                stored_at = self.time_of(event)[0]
                if machine.expiry_of(install, stored_at, RETENTION) < self.now:
                    event.state = "dropped"
                    self.too_old.append(self.now - stored_at)
        silent = {name for name in TYPES if not self.waiting(name)}
        self.become(machine.without_silent(self.install, silent))
        here = Mark(len(self.events), self.now)
        while True:
            after = advance(self.install, self.has_pending, here)
            if after == self.install:
                break
            self.become(after)
        if self.install.state is RECOVERED:
            self.overtake()
        if self.install.state is FAILED:
            if not self.waiting():
                self.become(machine.rest(self.install, self.now))
            self.probe()
        else:
            for event in self.heads():
                self.start(event)

    def overtake(self):
        mark = self.install.mark
        for event in self.waiting():
            head = self.ahead_of(event)
            is_old = event.came_at < self.now - DRAIN_PATIENCE
            is_drained = mark.covers(head.sequence, self.time_of(head)[0]) and (
                head.state == "waiting" or head.began_at > mark.time
            )
            is_new = not mark.covers(event.sequence, self.time_of(event)[0])
            if is_old and is_new and is_drained and head is not event:
                event.overtakes = True

    def probe(self):
        install = self.install
        if install.probes or self.now < install.round_at:
            return
        if any(map(self.waiting, install.failing)):
            names = endpoints_to_probe(install, self.now)
            probes = [probe for name in names if (probe := self.probe_of(name))]
        else:
            probes = self.heads()[:1]
        for probe in probes:
            if probe.state == "waiting":
                self.become(begin_probes(self.install, [probe.sequence]))
                self.start(probe)

    def probe_of(self, event_type):
        heads = self.heads(event_type)
        if heads:
            return heads[0]
        held = sorted(self.waiting(event_type), key=self.time_of)
        before = self.ahead_of(held[0]) if held else None
        return before if before and before.state == "waiting" else None

    def start(self, event):
        mark, install = self.install.mark, self.install
        is_stored = install.state is FAILED or (
            mark and mark.covers(event.sequence, self.time_of(event)[0])
        )
        if event.stored_at is None and is_stored:
            event.stored_at = max(event.came_at, install.failed_at)
        event.state, event.epoch = "sending", install.epoch
        event.began_at, event.ends_at = self.now, self.now + self.slowness
        event.accepted = not self.is_down[event.event_type]

    slowness = 0.0

    def finish(self, event):
        drops = event.event_type == "drops"
        sent = Send(event.sequence, event.event_type, event.epoch, drops)
        install, fate = end_send(self.install, sent, self.now, accepted=event.accepted)
        self.become(install)
        if fate is Fate.DELIVERED:
            event.state = "delivered"
            self.order.append(event)
        elif fate is Fate.DROPPED:
            event.state = "dropped"
        else:
            event.state = "waiting"
            event.stored_at = self.now if event.stored_at is None else event.stored_at


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("arrive"), st.sampled_from(TYPES), st.sampled_from(CONVERSATIONS)
        ),
        st.tuples(st.just("switch"), st.sampled_from(TYPES)),
        st.tuples(
            st.just("pass_time"),
            st.sampled_from([0.0, 0.5, 2.0, 3.0, 5.0, 40.0, 700.0]),
        ),
        st.tuples(st.just("slowness"), st.sampled_from([0.0, 0.3, 2.5, 9.9])),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_whatever_fails_nothing_is_lost_and_the_install_is_up_again(history):
    model = Model()
    for name, *arguments in history:
        if name == "slowness":
            model.slowness = arguments[0]
        else:
            getattr(model, name)(*arguments)
    model.is_down = dict.fromkeys(TYPES, False)
    model.slowness = 0.1
    if model.install.state is FAILED and not model.waiting():
        model.arrive("b", None)  # a silent install needs an event to probe with
    model.pass_time(3 * RETENTION)

    assert model.install.state is UP
    assert all(way in TRANSITIONS for way in pairwise(model.seen))
    assert {event.state for event in model.events} <= {"delivered", "dropped"}
    assert len({event.sequence for event in model.order}) == len(model.order)
    assert all(age > RETENTION for age in model.too_old)
    for conversation in ("c", "d"):
        in_order = [
            event.sequence
            for event in model.order
            if event.conversation == conversation and not event.overtakes
        ]
        assert in_order == sorted(in_order)
        late = [
            event.sequence
            for event in model.order
            if event.conversation == conversation and event.overtakes
        ]
        assert late == sorted(late)
