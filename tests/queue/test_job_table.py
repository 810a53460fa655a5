"""
What becomes of a job, each combination of facts once, then in any order.

Nothing here needs a store.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdx.queue import JobState
from cmdx.queue.enqueue import EMPTY
from cmdx.queue.table import (
    ARRIVING,
    MOST_CRASHES,
    UNREAD_LIMIT,
    UNREAD_PAUSE,
    bury_unread,
    cancel,
    crash,
    end_cancelled,
    finish,
    give_back,
    give_back_unstarted,
    has_lapsed,
    is_ended,
    keeps_unique,
    leave_unread,
    level_of,
    may_end,
    place,
    promote,
    public_state,
    rank_of,
    replay,
    start,
    suspend,
)

NOW = 1_000.0
KEEP = 100.0
LATER = NOW + 50
READY, HELD, RUNNING, DONE, DEAD, CANCELLED = JobState
ENDS = (DONE, DEAD, CANCELLED)
FLAGS = (0, 1)
UNTILS = (None, "started", "ended", repr(NOW + 10), repr(NOW + 1000))


def record(state=READY, **changes):
    """Return a job in a state, with what it has there."""
    facts = {
        "id": "a",
        "queue": "default",
        "state": state,
        "priority": 5,
        "rank": 0 if state in ENDS or changes.get("key") else -10,
        "is_async": 0,
        "due_at": NOW,
        "is_once": 0,
        "owner": "me" if state == RUNNING else None,
        "started_at": NOW if state == RUNNING else None,
        "ended_at": NOW if state in ENDS else None,
        "created_at": NOW,
    }
    return EMPTY._replace(**facts | changes)


def running(**changes):
    """Return a job that runs."""
    return record(RUNNING, **changes)


def unique(until, **changes):
    """Return the columns of a unique text."""
    text = None if until is None else "text"
    return {"unique_text": text, "unique_until": until, "unique_held": text, **changes}


def succeed(job, now=LATER, keep=KEEP):
    return finish(job, now, keep, is_success=True, result="{}")


def fail(job, now=LATER, keep=KEEP):
    return finish(
        job, now, keep, is_success=False, result="{}", error="ValueError", reason="no"
    )


def pause(job, now=LATER, keep=KEEP):
    return suspend(job, now, keep, pause=7.0, suspension="[1]")


def not_read(job, now=LATER, keep=KEEP):
    return leave_unread(job, now, keep, why="who?")


def bury(job, now=LATER, keep=KEEP):
    return bury_unread(job, now, keep, why="not JSON")


def stop(job, now=LATER, keep=KEEP):
    return end_cancelled(job, now, keep)


def hand_back(job, now=LATER, keep=KEEP):
    return give_back(job, now, keep)


def return_unstarted(job, now=LATER, keep=KEEP):
    return give_back_unstarted(job, now, keep)


def die(job, now=LATER, keep=KEEP):
    return crash(job, now, keep)


LEGS = {
    # how a leg ends: the state after it, and after it if it was to be cancelled
    succeed: (DONE, DONE),
    fail: (DEAD, CANCELLED),
    pause: (READY, CANCELLED),
    hand_back: (READY, CANCELLED),
    return_unstarted: (READY, CANCELLED),
    not_read: (READY, CANCELLED),
    bury: (DEAD, CANCELLED),
    stop: (CANCELLED, CANCELLED),
}


# -- every state and event -------------------------------------------------------------


@pytest.mark.parametrize("is_once", FLAGS, ids=["again", "once"])
@pytest.mark.parametrize("crashes", range(MOST_CRASHES))
@pytest.mark.parametrize("cancels", FLAGS, ids=["goes on", "cancels"])
@pytest.mark.parametrize("event", LEGS, ids=lambda event: event.__name__)
def test_every_end_of_a_leg_leads_where_the_table_says(
    event, cancels, crashes, is_once
):
    before = running(cancels=cancels, crashes=crashes, is_once=is_once)

    after = event(before)

    assert after.state == LEGS[event][cancels]
    assert after.owner is None
    assert (after.ended_at == LATER) == is_ended(after)


@pytest.mark.parametrize("cancels", FLAGS, ids=["goes on", "cancels"])
@pytest.mark.parametrize("crashes", range(MOST_CRASHES))
def test_a_crash_gives_the_job_back_until_there_were_three(crashes, cancels):
    after = die(running(crashes=crashes, cancels=cancels))

    expected = READY if crashes + 1 < MOST_CRASHES else DEAD
    assert after.state == (CANCELLED if cancels else expected)
    assert after.crashes == crashes + 1
    assert after.owner is None
    assert after.error == {READY: None, DEAD: "JobCrashed"}.get(
        after.state, "JobCancelled"
    )


@pytest.mark.parametrize("cancels", FLAGS, ids=["goes on", "cancels"])
def test_what_may_not_run_twice_is_indeterminate_after_one_crash(cancels):
    after = die(running(is_once=1, cancels=cancels))

    assert (after.state, after.error) == (DEAD, "JobIndeterminate")
    assert after.owner == "me"  # it may be alive


@pytest.mark.parametrize("state", [ARRIVING, *JobState], ids=str)
def test_cancelling_ends_what_waits_and_asks_what_runs(state):
    after = cancel(record(state), LATER, KEEP)

    if state in ENDS:
        assert after is None
    elif state == RUNNING:
        assert after == record(RUNNING)._replace(cancels=1)
    else:
        assert (after.state, after.error) == (CANCELLED, "JobCancelled")


@pytest.mark.parametrize("key", [None, "k"], ids=["no key", "key"])
@pytest.mark.parametrize("state", [ARRIVING, *JobState], ids=str)
def test_only_what_has_ended_is_replayed(state, key):
    before = record(state, key=key, position=4)
    after = replay(before, LATER)

    if state not in ENDS:
        assert after is None
    else:
        assert after.state == (READY if key is None else ARRIVING)
        assert after.rank == (-10 if key is None else 0)
        assert after.position is None
        assert after.due_at == LATER


def test_a_replayed_job_has_nothing_left_of_its_run():
    before = fail(running(crashes=2, suspension="[1]", progress="[1]", schedule="s"))

    after = replay(before._replace(unread_since=NOW, cancels=1), LATER)

    left = {
        name: value
        for name, value in after._asdict().items()
        if value and name not in ("id", "queue", "priority", "rank", "created_at")
    }
    assert left == {"state": READY, "due_at": LATER}


@pytest.mark.parametrize(
    ("state", "is_once", "owner"),
    list(product([*JobState], FLAGS, ["me", "other", None])),
)
def test_only_the_owner_may_end_a_job(state, is_once, owner):
    stored = record(state, is_once=is_once, owner=owner)

    is_standing = state == RUNNING or (state == DEAD and is_once)
    assert may_end(stored, "me") == (owner == "me" and bool(is_standing))


@pytest.mark.parametrize("until", UNTILS, ids=str)
def test_a_start_frees_a_text_that_is_unique_until_then(until):
    after = start(record(**unique(until)), "me", LATER)

    is_free = until in (None, "started")
    assert after.unique_held == (None if is_free else "text")
    assert (after.state, after.owner, after.started_at) == (RUNNING, "me", LATER)


@pytest.mark.parametrize("event", LEGS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("until", UNTILS, ids=str)
def test_an_end_frees_a_unique_text_but_one_for_a_time(event, until):
    after = event(running(**unique(until)))

    is_timed = until not in (None, "started", "ended")
    if is_ended(after):
        assert after.unique_held == ("text" if is_timed else None)
    else:
        assert after.unique_held == unique(until)["unique_held"]


@pytest.mark.parametrize(
    ("facts", "is_again"),
    [({}, True), ({"crashes": 1}, False), ({"suspension": "{}"}, False)],
    ids=["new", "crashed", "suspended"],
)
def test_a_claim_in_vain_gives_back_the_text_of_a_job_that_was_never_run(
    facts, is_again
):
    claimed = start(record(**unique("started"), **facts), "me", NOW)
    after = give_back_unstarted(claimed, LATER, KEEP)

    assert after.unique_held == ("text" if is_again else None)


@pytest.mark.parametrize("change", [hand_back, die])
def test_why_nobody_could_read_a_job_is_forgotten_when_its_leg_does_not_count(change):
    after = change(running(unread_since=NOW, reason="nobody knew it"))

    assert (after.unread_since, after.reason) == (None, None)


def test_why_nobody_could_read_a_job_is_kept_while_no_leg_begins():
    after = return_unstarted(running(unread_since=NOW, reason="nobody knew it"))

    assert (after.unread_since, after.reason) == (NOW, "nobody knew it")


def test_why_nobody_could_read_a_job_is_forgotten_when_it_was_run():
    job = running(unread_since=NOW, reason="nobody knew it")
    after = suspend(job, LATER, KEEP, pause=10.0, suspension="{}")

    assert (after.unread_since, after.reason) == (None, None)


@pytest.mark.parametrize(
    ("until", "now", "lapsed"),
    [
        (None, NOW, False),
        ("started", NOW, False),
        ("ended", NOW, False),
        (repr(NOW), NOW - 1, False),
        (repr(NOW), NOW, True),
        ("edited", NOW, True),
    ],
)
def test_a_text_lapses_when_its_time_is_over(until, now, lapsed):
    job = record(**unique(until))

    assert has_lapsed(job, now) == lapsed
    assert keeps_unique(job, now) == (until is not None and not lapsed)


@pytest.mark.parametrize("state", [ARRIVING, *JobState], ids=str)
def test_people_see_what_arrives_as_held(state):
    assert public_state(state) == (HELD if state == ARRIVING else state)


# -- what is kept ----------------------------------------------------------------------


@pytest.mark.parametrize("event", [succeed, stop])
def test_what_has_succeeded_or_was_cancelled_is_due_to_be_removed(event):
    assert event(running()).due_at == LATER + KEEP


@pytest.mark.parametrize("event", [fail, bury])
def test_what_is_dead_is_never_due_to_be_removed(event):
    assert event(running()).due_at == LATER  # only done and cancelled are removed


@pytest.mark.parametrize(
    ("priority", "key", "is_async", "rank"),
    [
        (0, None, 0, 0),
        (0, None, 1, 1),
        (3, None, 0, -6),
        (-3, None, 1, 7),
        (3, "k", 1, 1),
    ],
)
def test_a_rank_tells_the_level_and_the_kind(priority, key, is_async, rank):
    assert rank_of(priority, key, is_async) == rank
    assert level_of(rank) == (0 if key else -priority)


@pytest.mark.parametrize("key", [None, "k"], ids=["no key", "key"])
def test_a_suspended_job_is_due_after_its_pause(key):
    after = pause(running(key=key, crashes=2))

    assert (after.due_at, after.suspension) == (LATER + 7.0, "[1]")
    assert after.rank == (-10 if key is None else 0)
    assert after.crashes == 0


def test_what_is_given_back_is_due_at_once_and_keeps_its_crashes():
    after = hand_back(running(crashes=2, suspension="[1]"))

    assert (after.due_at, after.crashes, after.suspension) == (NOW, 2, "[1]")


def test_a_job_that_nobody_reads_is_offered_again_for_an_hour():
    job = not_read(running())
    assert (job.state, job.due_at, job.unread_since) == (
        READY,
        LATER + UNREAD_PAUSE,
        LATER,
    )

    again = not_read(start(job, "other", job.due_at), LATER + UNREAD_LIMIT - 1)
    assert (again.state, again.unread_since) == (READY, LATER)

    last = not_read(start(again, "other", again.due_at), LATER + UNREAD_LIMIT)
    assert (last.state, last.error, last.reason) == (DEAD, "JobUnreadable", "who?")


def test_the_hour_begins_again_when_somebody_could_read_the_job():
    read = pause(running(unread_since=NOW))

    assert not_read(read._replace(state=RUNNING), NOW + UNREAD_LIMIT).state == READY


def test_a_failure_keeps_its_error_and_reason_a_cancelled_one_its_own():
    dead = fail(running())
    assert (dead.error, dead.reason, dead.progress) == ("ValueError", "no", None)
    assert fail(running(cancels=1)).error == "JobCancelled"
    assert fail(running(cancels=1)).result is None


@pytest.mark.parametrize("reason", ["a\0b", "a\ud800b"])
def test_a_reason_can_be_stored_whatever_is_in_it(reason):
    after = finish(
        running(), NOW, KEEP, is_success=False, result="{}", error=reason, reason=reason
    )

    for text in (after.error, after.reason):
        assert text.encode().replace(b"\0", b"") == text.encode()
        assert (text[0], text[-1]) == ("a", "b")


# -- in any order ----------------------------------------------------------------------


class History:
    """A job, and the events that it has gone through."""

    def __init__(self, *, is_once, key, until):
        state = READY if key is None else ARRIVING
        self.job = record(
            state,
            is_once=int(is_once),
            key=key,
            rank=0 if key else -10,
            **unique(until),
        )
        self.now = NOW
        self.ends = 0
        """How often it has ended since it was replayed."""
        self.has_started = False
        self.was_asked = False
        """Whether it was cancelled while it ran, and that is not done yet."""

    def events(self):
        """Return what can happen to the job as it is."""
        state = self.job.state
        waiting = {
            ARRIVING: [self.place_first, self.place_behind],
            HELD: [self.promote],
            READY: [self.start],
            RUNNING: [self.by_leg(event) for event in LEGS] + [self.crash],
        }
        ended = [self.replay, self.end_late]
        return [self.cancel, *waiting.get(state, ended)]

    def place_first(self):
        self.job = place(self.job, 1, is_first=True)

    def place_behind(self):
        self.job = place(self.job, 2, is_first=False)

    def promote(self):
        self.job = promote(self.job)

    def start(self):
        self.job = start(self.job, f"worker {self.now}", self.now)
        self.has_started = True

    def cancel(self):
        after = cancel(self.job, self.now, KEEP)
        assert (after is None) == is_ended(self.job)
        if after is None:
            return
        self.was_asked = self.job.state == RUNNING
        self.note(after)

    def by_leg(self, event):
        def end():
            assert may_end(self.job, self.job.owner)
            was_run = self.job.suspension or self.job.crashes
            if event in (return_unstarted, not_read) and not was_run:
                self.has_started = False
            self.note(event(self.job, self.now, KEEP))
            if self.was_asked:
                assert self.job.state in (CANCELLED, DONE)
                self.was_asked = False
            if event in (succeed, fail, pause, not_read) and not self.job.cancels:
                assert self.job.crashes == 0

        return end

    def crash(self):
        crashes = self.job.crashes
        self.note(crash(self.job, self.now, KEEP))
        assert self.job.crashes == crashes + 1
        if self.job.is_once:
            assert self.job.error == "JobIndeterminate"
        elif self.was_asked:
            assert self.job.state == CANCELLED
        else:
            assert (self.job.state == DEAD) == (self.job.crashes == MOST_CRASHES)
        self.was_asked = False

    def replay(self):
        self.job = replay(self.job, self.now)
        self.ends, self.has_started, self.was_asked = 0, False, False

    def end_late(self):
        """Have a worker say how the job ended, though it has ended already."""
        for owner in ("nobody", f"worker {self.now - 1}"):
            if may_end(self.job, owner):
                assert self.job.error == "JobIndeterminate"

    def note(self, after):
        self.ends += is_ended(after) and not is_ended(self.job)
        self.job = after

    def check(self):
        job = self.job
        assert self.ends == is_ended(job)
        assert (job.ended_at is not None) == is_ended(job)
        is_indeterminate = job.error == "JobIndeterminate"
        assert (job.owner is not None) == (job.state == RUNNING or is_indeterminate)
        assert not is_indeterminate or (job.is_once and job.state == DEAD)
        assert job.crashes < MOST_CRASHES or is_ended(job)
        assert job.rank == (0 if is_ended(job) or job.key else -2 * job.priority)
        assert job.result is None or job.state in (DONE, DEAD)
        if job.unique_until == "started":
            is_free = self.has_started or is_ended(job)
            assert (job.unique_held is None) == is_free
        if job.unique_until == "ended":
            assert (job.unique_held is None) == is_ended(job)


@settings(deadline=None, max_examples=200)
@given(
    is_once=st.booleans(),
    key=st.sampled_from([None, "k"]),
    until=st.sampled_from(UNTILS[:3]),
    choices=st.lists(st.integers(0, 100), max_size=40),
)
def test_in_any_order_of_events_a_job_ends_once_and_is_left_by_its_owner(
    is_once, key, until, choices
):
    history = History(is_once=is_once, key=key, until=until)
    for choice in choices:
        events = history.events()
        history.now += 1
        events[choice % len(events)]()
        history.check()
