"""Schedules: what is due when, and that it is enqueued once."""

# ruff: noqa: F811 -- fixtures are imported

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event
from zoneinfo import ZoneInfo

import cronsim
import pytest
from workers import (
    PATIENCE,
    Stop,
    collected,
    edit_row,
    exit_code_of,
    names,  # noqa: F401
    needs_fork,
    on_each_server,
    on_each_store,
    opened_again,
    pass_time,
    queue,  # noqa: F401
    released,
    start_child,
    store,  # noqa: F401
    wait_until,
    wake_workers,
)

from cmdx import DefinitionError, RetryOptions, Task, clock, testing
from cmdx.queue import (
    JobState,
    Queue,
    job_finished,
    queued,
    schedule_cancelled,
    schedule_created,
    schedule_fired,
    schedule_missed,
    schedule_piled_up,
    schedules,
    times,
)

DAY = 86_400.0


class Digest(Task[None], name="schedules.digest"):
    """What most schedules here run."""

    number: int = 0

    def work(self):
        pass


class FixedClock(clock.Clock):
    """The time of day stands still."""

    def __init__(self, text, zone):
        self.seconds = datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()

    def time(self):
        return self.seconds


@contextmanager
def instant_at(text, zone=UTC):
    """Let virtual time begin at a date."""
    with clock.use(FixedClock(text, zone)), testing.instant() as instant:
        yield instant


def fire_times(queue, ahead, zone=UTC):
    """Return when jobs are enqueued by schedules during some time from now."""
    with collected(schedule_fired) as sent:
        queue.drain(ahead=ahead)
    moments = [round(said["job"].created_at) for _, _, said in sent]
    return [f"{datetime.fromtimestamp(each, zone):%m-%d %H:%M}" for each in moments]


# -- every ---------------------------------------------------------------------------


@pytest.mark.parametrize("every", [0, -1, float("nan"), True, "60", float("inf")])
def test_an_interval_must_be_a_positive_number(queue, every):
    with pytest.raises(DefinitionError) as caught:
        queue.schedule(Digest(), every=every)
    assert str(caught.value) == "every must be a positive number"
    assert queue.schedules() == []


@pytest.mark.parametrize(
    ("every", "cause"),
    [
        ("10m", "must be a finite number of seconds, above 0, got '10m'."),
        (timedelta(minutes=5), "is a number of seconds: delta.total_seconds()."),
    ],
)
def test_the_cause_of_a_wrong_interval_shows_what_was_given(queue, every, cause):
    with pytest.raises(DefinitionError, match="every must be a positive") as caught:
        queue.schedule(Digest(), every=every)
    assert str(caught.value.__cause__) == f"schedule: every {cause}"


def test_an_interval_is_at_most_30_days(queue):
    with pytest.raises(DefinitionError) as caught:
        queue.schedule(Digest(), every=2_592_000.5)
    message = "every cannot exceed 2592000 seconds (30 days)"
    assert str(caught.value) == message
    assert queue.schedule(Digest(), every=2_592_000).every == 2_592_000


@on_each_store
def test_an_interval_is_counted_from_the_end_of_the_run(queue, instant):
    class Slow(Task[None], name="slow"):
        def work(self):
            instant.advance(40)

    start = queue.store.now()
    schedule = queue.schedule(Slow(), every=60)
    assert schedule.due_at == pytest.approx(start + 60, abs=1)
    with collected(schedule_fired) as sent:
        queue.drain(ahead=59)
        assert sent == []
        queue.drain(ahead=205)
    fired = [said["job"].created_at - start for _, _, said in sent]
    assert fired == pytest.approx([60, 160, 260], abs=2)


@pytest.mark.parametrize("end", ["failed", "skipped", "cancelled", "dead"])
@pytest.mark.usefixtures("instant")
def test_an_interval_goes_on_however_the_run_has_ended(queue, end):
    class Work(Task[None], name="work"):
        def work(self):
            if end == "failed":
                self.fail("no")
            if end == "skipped":
                self.skip("not today")
            raise ConnectionError

    schedule = queue.schedule(Work(), every=60, retry=RetryOptions(1))
    if end == "cancelled":
        queue.pause()
        queue.drain(ahead=61)
        (job,) = queue.find()
        assert queue.schedules()[0].due_at is None
        assert queue.cancel(job.id)
    else:
        queue.drain(ahead=61)
        (job,) = queue.find()
    expected = {"failed": "dead", "skipped": "done", "cancelled": "cancelled"}
    assert job.refresh().state == expected.get(end, "dead")
    (after,) = queue.schedules()
    assert after.id == schedule.id
    assert 55 < after.due_at - queue.store.now() <= 60


@pytest.mark.usefixtures("instant")
def test_fractions_of_seconds_are_kept(queue):
    start = queue.store.now()
    schedule = queue.schedule(Digest(), every=0.25)
    assert schedule.due_at - start == pytest.approx(0.25, abs=0.1)
    assert queue.drain(ahead=2.1) in (7, 8)


# -- cron ----------------------------------------------------------------------------


def test_cron_is_read_in_its_zone(queue):
    with instant_at("2025-06-06T12:00"):
        queue.schedule(Digest(), cron="0 9 * * MON-FRI", zone="Asia/Tokyo")
        assert fire_times(queue, 4 * DAY) == ["06-09 00:00", "06-10 00:00"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("@yearly", "2026-01-01 00:00"),
        ("@annually", "2026-01-01 00:00"),
        ("@monthly", "2025-07-01 00:00"),
        ("@weekly", "2025-06-08 00:00"),
        ("@daily", "2025-06-05 00:00"),
        ("@midnight", "2025-06-05 00:00"),
        ("@hourly", "2025-06-04 13:00"),
    ],
)
def test_cron_knows_seven_names(queue, name, first):
    with instant_at("2025-06-04T12:30"):
        schedule = queue.schedule(Digest(), cron=name)
    assert f"{datetime.fromtimestamp(schedule.due_at, UTC):%Y-%m-%d %H:%M}" == first


@pytest.mark.parametrize(
    ("option", "cure"),
    [
        ("interval", "; use `every`, in seconds."),
        ("timezone", "; use `zone`."),
        ("at", "; to run it once, use `enqueue` with `at`."),
        ("priority", "; declare it with @queued above the class."),
        ("evry", "; did you mean 'every'?"),
    ],
)
def test_an_unknown_option_of_a_schedule_is_answered_with_the_right_one(
    queue, option, cure
):
    with pytest.raises(DefinitionError) as caught:
        queue.schedule(Digest(), **{option: 60})
    assert str(caught.value).startswith(f"schedule has no option {option!r}{cure} ")


def test_a_schedule_is_removed_by_its_id(queue):
    schedule = queue.schedule(Digest(), every=60)
    with pytest.raises(TypeError, match="a schedule is named by its id, such as sche"):
        queue.unschedule(schedule)


@pytest.mark.parametrize(
    "options",
    [
        {"cron": "every day"},
        {"cron": "61 * * * *"},
        {"cron": "0 0 31 2 *"},  # it is never due
        {"cron": "@reboot"},
        {"cron": 5},
        {"cron": "@daily", "zone": "Mars/Olympus"},
        {"cron": "@daily", "zone": "../etc/passwd"},
        {"cron": "@daily", "every": 5},
        {"cron": "@daily", "missed": "twice"},
        {"cron": "@daily", "id": ""},
        {},
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(queue, options):
    with pytest.raises(DefinitionError):
        queue.schedule(Digest(), **options)
    assert queue.schedules() == []


ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Johannesburg",
    "Africa/Lagos",
    "America/Anchorage",
    "America/Asuncion",
    "America/Bogota",
    "America/Chicago",
    "America/Havana",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Shanghai",
    "Asia/Tehran",
    "Asia/Tokyo",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Australia/Perth",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Chisinau",
    "Europe/Dublin",
    "Europe/London",
    "Europe/Moscow",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Easter",
    "UTC",
]

EXPRESSIONS = ["30 2 * * SUN", "15 0-3 * 3,10,11 SUN", "30 1 * * FRI", "0 0 1,15 * *"]


@pytest.mark.parametrize("cron", EXPRESSIONS)
def test_forty_zones_over_two_years_fire_when_cronsim_says(cron):
    assert len(ZONES) == 40
    for zone in ZONES:
        begin = datetime(2025, 1, 1, tzinfo=ZoneInfo(zone))
        moment = begin.timestamp()
        for expected in cronsim.CronSim(cron, begin):
            if expected.year > 2026:
                break
            moment = times.next_time(cron, zone, moment)
            assert moment == expected.timestamp(), (zone, expected)


@pytest.mark.parametrize(
    ("zone", "cron", "begin", "expected"),
    [
        # In Berlin the clock goes from 2 to 3 on 30 March, from 3 to 2 on 26 October.
        ("Europe/Berlin", "30 2 * * *", "2025-03-29", "29 02:30, 30 03:00, 31 02:30"),
        ("Europe/Berlin", "0 3 * * *", "2025-03-29", "29 03:00, 30 03:00, 31 03:00"),
        ("Europe/Berlin", "30 2 * * *", "2025-10-25", "25 02:30, 26 02:30, 27 02:30"),
        (
            "Europe/Berlin",
            "0 */2 30 3 *",
            "2025-03-29T23:30",
            "30 00:00, 30 04:00, 30 06:00",
        ),
        # In New York from 2 to 3 on 9 March, from 2 to 1 on 2 November.
        (
            "America/New_York",
            "30 2 * * *",
            "2025-03-08",
            "08 02:30, 09 03:00, 10 02:30",
        ),
        (
            "America/New_York",
            "30 1 * * *",
            "2025-11-01",
            "01 01:30, 02 01:30, 03 01:30",
        ),
    ],
)
def test_what_is_due_when_the_clock_changes(queue, zone, cron, begin, expected):
    place = ZoneInfo(zone)
    with instant_at(begin, place):
        queue.schedule(Digest(), cron=cron, zone=zone)
        fired = fire_times(queue, 3 * DAY, place)
    assert ", ".join(each[3:] for each in fired[:3]) == expected


@pytest.mark.parametrize(
    ("begin", "hours"),
    [("2025-03-30T00:30", 23), ("2025-10-26T00:30", 25), ("2025-06-01T00:30", 24)],
)
def test_what_is_due_every_hour_follows_the_hours_of_the_day(queue, begin, hours):
    place = ZoneInfo("Europe/Berlin")
    with instant_at(begin, place):
        queue.schedule(Digest(), cron="@hourly", zone="Europe/Berlin")
        tomorrow = datetime.fromisoformat(begin).replace(tzinfo=place)
        ahead = (tomorrow + timedelta(days=1)).timestamp() - queue.store.now()
        assert len(fire_times(queue, ahead, place)) == hours


# -- identity ------------------------------------------------------------------------


@on_each_store
def test_the_same_schedule_again_is_the_one_that_is_there(queue):
    first = queue.schedule(Digest(number=1), every=60, retry=RetryOptions(5))
    with collected(schedule_created) as sent:
        again = queue.schedule(Digest(number=1), every=60, retry=RetryOptions(2))
    assert again == first
    assert again.retry_options == RetryOptions(5)
    assert sent == []
    assert len(queue.schedules()) == 1


@on_each_store
def test_a_whole_number_of_seconds_is_the_same_interval_as_a_float(queue):
    made = queue.schedule(Digest(), every=600)
    again = queue.schedule(Digest(), every=600.0)
    (found,) = queue.schedules()

    assert [repr(each.every) for each in (made, again, found)] == ["600.0"] * 3


def test_a_schedule_shows_its_task_its_times_and_when_it_fires_next(queue):
    with instant_at("2026-03-02 12:00"):
        poll = queue.schedule(Digest(), every=2_592_000, id="poll")
        cron = queue.schedule(Digest(), cron="@daily", zone="Europe/Berlin", id="cron")
        queue.pause()
        queue.drain(ahead=2_592_000)
        waiting = next(each for each in queue.schedules() if each.id == "poll")

    assert repr(poll) == (
        f"<Schedule poll of {poll.task}: every 2592000 s, next 2026-04-01 12:00:00 UTC>"
    )
    assert repr(cron) == (
        f"<Schedule cron of {cron.task}: '0 0 * * *' in Europe/Berlin, "
        "next 2026-03-02 23:00:00 UTC>"
    )
    assert repr(waiting).endswith(": every 2592000 s, next when its job has ended>")


def test_another_time_zone_task_or_input_is_another_schedule(queue):
    class Other(Task[None], name="other"):
        def work(self):
            pass

    made = [
        queue.schedule(Digest(), every=60),
        queue.schedule(Digest(), every=61),
        queue.schedule(Digest(number=2), every=60),
        queue.schedule(Other(), every=60),
        queue.schedule(Digest(), cron="0 0 * * *"),
        queue.schedule(Digest(), cron="0 1 * * *"),
        queue.schedule(Digest(), cron="0 0 * * *", zone="Asia/Tokyo"),
        queue.schedule(Digest(), every=60, id="mine"),
        Queue(queue.store, "another").schedule(Digest(), every=60),
    ]
    assert len({schedule.id for schedule in made}) == 9
    assert queue.schedule(Digest(), cron="@daily").id == made[4].id


@on_each_store
def test_the_same_id_again_replaces_time_invocation_and_options(queue, instant):
    queue.schedule(Digest(number=1), every=60, id="digest", retry=RetryOptions(5))
    instant.advance(30)
    with collected(schedule_created) as sent:
        changed = queue.schedule(
            Digest(number=2), cron="@daily", id="digest", missed="skip"
        )
    assert sent == []
    assert queue.schedules() == [changed]
    assert (changed.every, changed.cron) == (None, "0 0 * * *")
    assert changed.inputs == {"number": 2}
    assert changed.missed == "skip"
    assert changed.retry_options is None
    queue.drain(ahead=DAY)
    assert [job.inputs for job in queue.find()] == [{"number": 2}]


def test_an_id_of_another_queue_is_refused(queue):
    queue.schedule(Digest(), every=60, id="digest")
    with pytest.raises(DefinitionError, match="belongs to a schedule of another queue"):
        Queue(queue.store, "another").schedule(Digest(), every=60, id="digest")


@pytest.mark.usefixtures("instant")
def test_the_jobs_of_a_schedule_are_those_of_its_class_and_options(queue):
    @queued(priority=5, key="digests")
    class Keyed(Task[None], name="keyed"):
        def work(self):
            raise ConnectionError

    schedule = queue.schedule(Keyed(), every=60, retry=RetryOptions(2, 0.1, 0.1))
    assert queue.drain(ahead=61) == 1
    (job,) = queue.find()
    assert (job.priority, job.key, job.state) == (5, "digests", "dead")
    assert job.retry_options == RetryOptions(2, 0.1, 0.1)
    assert job.retries == 1
    assert queue.schedules()[0].job == job.id
    assert queue.schedules()[0].id == schedule.id


# -- missed --------------------------------------------------------------------------


@pytest.mark.parametrize("times", [{"every": 3600}, {"cron": "@hourly"}])
@pytest.mark.parametrize(("missed", "runs"), [("once", 1), ("skip", 0), (None, 1)])
@on_each_store
def test_what_was_missed_over_three_days_runs_once_or_not(
    queue, instant, times, missed, runs
):
    queue.schedule(Digest(), missed=missed, **times)
    instant.advance(3 * DAY)
    now = queue.store.now()
    with collected(schedule_missed, schedule_fired) as sent:
        assert queue.drain() == runs
    assert [name for name, _, _ in sent] == ["schedule_missed", "schedule_fired"][
        : 1 + runs
    ]
    late = now - sent[0][2]["missed"]
    assert 71 * 3600 - 1 <= late <= 3 * DAY
    (schedule,) = queue.schedules()
    assert 0 < schedule.due_at - now <= 3601
    assert queue.drain(ahead=3601) == 1


def test_what_is_up_to_a_minute_late_is_not_missed(queue, instant):
    queue.schedule(Digest(), every=3600, missed="skip")
    instant.advance(3600 + 59)
    with collected(schedule_missed) as sent:
        assert queue.drain() == 1
    assert sent == []


# -- overlap -------------------------------------------------------------------------


@on_each_store
def test_a_run_that_is_unfinished_skips_its_tick(queue, instant):
    stop = Stop()

    class Slow(Task[None], name="slow"):
        def work(self):
            stop.wait()

    queue.schedule(Slow(), cron="* * * * *")
    with collected(schedule_fired) as sent, queue.worker(threads=2), released(stop):
        pass_time(queue, instant, 60)
        stop.await_reached()
        for _ in range(5):
            before = queue.schedules()[0].due_at
            pass_time(queue, instant, 60)
            wait_until(lambda: queue.schedules()[0].due_at != before)  # noqa: B023
        assert len(sent) == 1
        stop.go_on.set()
        wait_until(lambda: queue.counts()[JobState.DONE] == 1)
        pass_time(queue, instant, 60)
        wait_until(lambda: len(sent) == 2)


@pytest.mark.usefixtures("instant")
def test_a_paused_queue_goes_on_ticking(queue):
    queue.schedule(Digest(number=1), cron="0 * * * *")
    queue.schedule(Digest(number=2), every=60)
    queue.pause()
    with collected(schedule_fired) as sent:
        assert queue.drain(ahead=3601) == 0
    assert len(sent) == 2
    assert queue.counts()[JobState.READY] == 2
    queue.resume()
    assert queue.drain() == 2


def test_a_worker_waits_for_the_next_schedule_and_no_longer(queue):
    ran = Event()

    class Tick(Task[None], name="tick"):
        def work(self):
            ran.set()

    with queue.worker():
        began = time.monotonic()
        queue.schedule(Tick(), every=0.2)
        assert ran.wait(PATIENCE)
        assert 0.15 < time.monotonic() - began < 3


# -- several schedulers --------------------------------------------------------------


@on_each_server
def test_two_schedulers_make_one_tick(store, instant):
    queue = Queue(store)
    for number in range(20):
        queue.schedule(Digest(number=number), cron="* * * * *")
    with opened_again(store) as again, collected(schedule_fired) as sent:
        queues = [queue, Queue(again)]
        with queues[0].worker(), queues[1].worker():
            for minute in range(1, 4):
                instant.advance(60)
                for each in queues:
                    wake_workers(each)
                wait_until(lambda: queue.counts()[JobState.DONE] == 20 * minute)  # noqa: B023
    assert len(sent) == 60
    assert len({said["job"].id for _, _, said in sent}) == 60


@needs_fork
@on_each_server
def test_processes_that_tick_at_the_same_time_make_one_tick(store):
    queue = Queue(store)
    for number in range(30):
        queue.schedule(Digest(number=number), every=3600)
    later = queue.store.now() + 3601

    class Later(clock.Clock):
        def time(self):
            return later

    def drain():
        with opened_again(store) as again, clock.use(Later()):
            Queue(again).drain()

    children = [start_child(drain) for _ in range(3)]
    assert [exit_code_of(child) for child in children] == [0, 0, 0]
    assert queue.counts()[JobState.DONE] == 30
    assert len(queue.find()) == 30


@on_each_store
def test_a_thousand_schedules_that_are_due_at_once_fire_once_each(queue, instant):
    def copy_rows(statements):
        columns = ", ".join(schedules.COLUMNS[3:])
        for number in range(2, 1001):
            statements.execute(
                f"insert into cmdx_schedule (id, queue, identity, {columns}) "  # noqa: S608
                f"select :id, queue, :id, {columns} from cmdx_schedule where id = '1'",
                id=str(number),
            )

    queue.schedule(Digest(), every=60, id="1")
    queue.store.transact(copy_rows)
    instant.advance(60)
    queue.pause()
    with collected(schedule_fired) as sent:
        queue.drain()
    assert len({said["schedule"].id for _, _, said in sent}) == len(sent) == 1000
    assert queue.counts()[JobState.READY] == 1000


# -- signals and ends ----------------------------------------------------------------


@pytest.mark.usefixtures("instant")
def test_signals_tell_of_schedules(queue):
    with collected(schedule_created, schedule_fired, schedule_cancelled) as sent:
        schedule = queue.schedule(Digest(), every=60)
        queue.drain(ahead=61)
        assert queue.unschedule(schedule.id)
    assert [(name, sender) for name, sender, _ in sent] == [
        ("schedule_created", Digest),
        ("schedule_fired", Digest),
        ("schedule_cancelled", Digest),
    ]
    assert all(said["schedule"].id == schedule.id for _, _, said in sent)
    (job,) = queue.find()
    assert sent[1][2]["job"].id == job.id


@on_each_store
@pytest.mark.usefixtures("instant")
def test_a_schedule_is_removed_and_its_jobs_stay(queue):
    schedule = queue.schedule(Digest(), every=60)
    queue.pause()
    queue.drain(ahead=61)
    with collected(schedule_cancelled) as sent:
        assert queue.unschedule(schedule.id)
        assert not queue.unschedule(schedule.id)
        assert not queue.unschedule("never")
    assert len(sent) == 1
    assert queue.schedules() == []
    queue.resume()
    assert queue.drain(ahead=3600) == 1


@pytest.mark.parametrize("count", [9, 10, 25])
@pytest.mark.usefixtures("instant")
def test_ten_dated_jobs_of_one_task_that_are_due_at_once_are_worth_a_warning(
    queue, caplog, count
):
    for number in range(count):
        queue.enqueue(Digest(number=number), after=60)
    queue.enqueue_many([Digest(number=number) for number in range(20)])
    with collected(schedule_piled_up, job_finished) as sent:
        queue.drain(ahead=61)
    piles = [said for name, _, said in sent if name == "schedule_piled_up"]
    if count < 10:
        assert piles == []
        assert "are due at once" not in caplog.text
    else:
        assert piles == [{"task": "schedules.digest", "count": count}]
        assert f"{count} jobs of schedules.digest" in caplog.text
    assert len(sent) - len(piles) == count + 20  # all still run


# -- rows that somebody has edited ---------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        {"template": "{"},
        {"template": "{}"},
        {"inputs": "{", "template": '{"inputs": "{"}'},
        {"every": "abc"},
        {"due_at": "abc"},
        {"cron": "nonsense", "every": None},
        {"zone": "Mars/Olympus", "cron": "* * * * *", "every": None},
    ],
)
@pytest.mark.usefixtures("instant")
def test_a_schedule_that_somebody_edited_stops_no_other(queue, columns):
    broken = queue.schedule(Digest(number=1), every=60)
    queue.schedule(Digest(number=2), every=90)
    edit_row(queue.store, "cmdx_schedule", broken.id, **columns)
    job = queue.enqueue(Digest(number=3))
    with collected(schedule_fired, schedule_missed):
        queue.drain(ahead=200)
    assert job.refresh().state == JobState.DONE
    assert [each.inputs["number"] for each in queue.find()].count(2) == 2


@pytest.mark.parametrize(
    "columns",
    [
        {"inputs": "{", "template": "{"},
        {"cron": "nonsense", "every": None},
        {"cron": 5, "every": None},
        {"due_at": -1e300, "cron": "* * * * *", "every": None},
    ],
)
@pytest.mark.usefixtures("instant")
def test_a_schedule_that_nobody_can_read_says_so_and_fires_no_more(
    queue, caplog, columns
):
    schedule = queue.schedule(Digest(), every=60)
    edit_row(queue.store, "cmdx_schedule", schedule.id, **columns)
    assert queue.drain(ahead=3600) == 0
    assert caplog.text.count("cannot be read, and does not fire any more") == 1
    assert queue.unschedule(schedule.id)


@pytest.mark.parametrize("columns", [{"every": "abc"}, {"due_at": -1e300}])
def test_a_schedule_that_somebody_edited_can_still_be_printed(queue, columns):
    schedule = queue.schedule(Digest(), every=60)
    edit_row(queue.store, "cmdx_schedule", schedule.id, **columns)
    (found,) = queue.schedules()

    assert repr(found).endswith(": it was edited, and cannot be read>")


@pytest.mark.usefixtures("instant")
def test_a_schedule_is_left_to_workers_that_have_cronsim(queue, caplog, monkeypatch):
    queue.schedule(Digest(), cron="* * * * *")
    with monkeypatch.context() as patches:
        patches.setitem(sys.modules, "cronsim", None)
        assert queue.drain(ahead=180) == 0

    assert caplog.text.count("left to other workers, because schedules by cron") == 1
    assert queue.drain(ahead=60) == 2  # what was missed, and the next one


@pytest.mark.parametrize(("missed", "runs"), [("once", 1), ("skip", 0)])
@on_each_store
@pytest.mark.usefixtures("instant")
def test_what_was_missed_without_cronsim_is_told_and_runs_as_if_nobody_was_there(
    queue, monkeypatch, missed, runs
):
    schedule = queue.schedule(Digest(), cron="0 * * * *", missed=missed)
    with monkeypatch.context() as patches:
        patches.setitem(sys.modules, "cronsim", None)
        queue.drain(ahead=3.5 * 3600)
    assert [found.due_at for found in queue.schedules()] == [schedule.due_at]

    with collected(schedule_missed) as sent:
        assert queue.drain(ahead=5) == runs
    assert [facts["missed"] for _, _, facts in sent] == [schedule.due_at]


@pytest.mark.usefixtures("instant")
def test_a_schedule_is_left_to_workers_that_have_its_zone(queue, caplog):
    schedule = queue.schedule(Digest(), cron="* * * * *")
    edit_row(queue.store, "cmdx_schedule", schedule.id, zone="Mars/Olympus")
    assert queue.drain(ahead=180) == 0

    assert caplog.text.count("there is no time zone 'Mars/Olympus'") == 1
    edit_row(queue.store, "cmdx_schedule", schedule.id, zone="UTC")
    assert queue.drain(ahead=60) == 2


def test_a_schedule_that_cannot_be_read_is_looked_at_again_after_five_seconds(
    queue, instant
):
    schedule = queue.schedule(Digest(), cron="0 * * * *")
    edit_row(queue.store, "cmdx_schedule", schedule.id, zone="Mars/Olympus")
    instant.advance(schedule.due_at - queue.store.now())
    assert queue.drain() == 0

    edit_row(queue.store, "cmdx_schedule", schedule.id, zone="UTC")
    assert queue.drain(ahead=4.75) == 0
    assert queue.drain(ahead=0.25) == 1


def test_an_expression_with_seconds_is_refused(queue):
    with pytest.raises(DefinitionError, match="it does not have five fields"):
        queue.schedule(Digest(), cron="0 0 9 * * *")


def test_a_zone_may_be_a_zoneinfo(queue):
    schedule = queue.schedule(Digest(), cron="@daily", zone=ZoneInfo("Europe/Berlin"))

    assert schedule.zone == "Europe/Berlin"
