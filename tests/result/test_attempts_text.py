"""The attempts of a run, printed as a timeline."""

from __future__ import annotations

import copy
import io
import pickle
import sys

import pytest

from cmdx import Stop, Task, retry_on, task_cancelled


@retry_on(ConnectionError, limit=2, delay=0.5)
@retry_on(KeyError, rule="keys", limit=1, delay=0)
class Fetch(Task[str]):
    """Raises what the context lists, and then ends as it says."""

    def work(self) -> str:
        self.context.time.advance(0.01)
        if self.attempt < len(self.context.errors):
            raise self.context.errors[self.attempt]
        if self.context.get("reason"):
            self.skip(self.context.reason)
        return "page"


REFUSED = ConnectionError("refused")


def timeline(time, *errors, **more):
    return str(Fetch.execute(time=time, errors=errors, **more).attempts)


def test_each_attempt_has_a_line_with_its_error_and_what_came_next(instant):
    assert timeline(instant, KeyError("x"), REFUSED).splitlines() == [
        "0  at    0 µs  for 10.0 ms  KeyError: 'x', then at once by 'keys'",
        "1  at 10.0 ms  for 10.0 ms  ConnectionError: refused, then 500 ms pause",
        "2  at  520 ms  for 10.0 ms  returned",
    ]


def test_the_last_line_tells_why_there_was_no_further_attempt(instant):
    last = timeline(instant, REFUSED, REFUSED, REFUSED).splitlines()[-1]

    assert last.endswith("ConnectionError: refused, stopped: exhausted")


def test_an_error_that_is_not_retried_is_told_as_such(instant):
    shown = timeline(instant, ValueError("wrong"))

    assert shown == "0  at 0 µs  for 10.0 ms  ValueError: wrong, stopped: not_listed"


def test_a_halt_is_told_as_such(instant):
    last = timeline(instant, REFUSED, reason="enough").splitlines()[-1]

    assert last.endswith("for 10.0 ms  halted")


def test_an_interrupt_in_a_pause_is_told(instant, monkeypatch):
    shown = []

    def interrupt(_seconds):
        raise KeyboardInterrupt

    def note(_sender, result, **_):
        shown.append(str(result.attempts))

    monkeypatch.setattr(instant, "sleep", interrupt)
    with task_cancelled.connected_to(note), pytest.raises(KeyboardInterrupt):
        Fetch.execute(time=instant, errors=[REFUSED])

    assert shown[0].endswith("then 500 ms pause, stopped: cancelled")


def test_one_clean_attempt_is_none_to_show(instant):
    assert timeline(instant) == "(none)"


def test_an_error_cannot_forge_a_line(instant):
    shown = timeline(instant, ValueError("a\n9  at 0 µs \x1b[31m"))

    assert len(shown.splitlines()) == 1
    assert "ValueError: a 9 at 0 µs \\x1b[31m" in shown


def test_the_unit_is_ascii_where_the_terminal_has_no_other(instant, monkeypatch):
    class Narrow(io.StringIO):
        encoding = "ascii"

    attempts = Fetch.execute(time=instant, errors=[ValueError("x")]).attempts
    monkeypatch.setattr(sys, "stdout", Narrow())

    assert str(attempts).startswith("0  at 0 us")


@pytest.mark.usefixtures("instant")
def test_numbers_stand_one_below_the_other():
    @retry_on(ConnectionError, limit=10, delay=0)
    class Down(Task[None]):
        def work(self):
            raise REFUSED

    lines = str(Down.execute().attempts).splitlines()
    assert [line[:4] for line in lines[-2:]] == [" 9  ", "10  "]


def test_attempts_are_a_tuple_as_before(instant):
    attempts = Fetch.execute(time=instant, errors=[REFUSED]).attempts

    assert isinstance(attempts, tuple)
    assert attempts == tuple(attempts)
    assert repr(attempts) == repr(tuple(attempts))
    assert hash(attempts) == hash(tuple(attempts))
    assert len(attempts[:1]) == 1


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda attempts: pickle.loads(pickle.dumps(attempts))],
)
def test_a_copy_is_printed_in_the_same_way(instant, copied):
    attempts = Fetch.execute(time=instant, errors=[REFUSED]).attempts

    assert str(copied(attempts)) == str(attempts)
    assert copied(attempts).stopped is Stop.SUCCESS
