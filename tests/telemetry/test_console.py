"""``enable_logging``: the line for people, where it goes, and who is silent."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
import structlog

from cmdx import Task, Workflow, enable_logging, parallel, retry_on


@pytest.fixture(autouse=True)
def _structlog_as_it_was(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self):
        return True


class Good(Task[str]):
    def work(self):
        return "what it returned"


class Idle(Task[None]):
    def work(self):
        self.skip("nothing to do")


class Bad(Task[None]):
    def work(self):
        self.fail("card declined", code=51)


class Talking(Task[None]):
    def work(self):
        self.logger.info("half way", done=0.5)


class Stuck(Task[None]):
    def work(self):
        return None

    def rollback(self):
        raise OSError("the warehouse does not answer")


class Order(Workflow[None]):
    steps = (Stuck, Bad)


def written(task, *, stream=None, **inputs):
    """Return what is written about a run, with its result."""
    stream = stream or io.StringIO()
    enable_logging("console", stream=stream)
    result = task.execute(**inputs)
    return stream.getvalue(), result


# -- where it goes ------------------------------------------------------------------


@pytest.mark.parametrize("renderer", ["console", "json"])
def test_lines_go_to_stderr_unless_told_otherwise(renderer, capsys):
    enable_logging(renderer)
    Good.execute()
    captured = capsys.readouterr()

    assert captured.out == ""
    assert "Good" in captured.err


@pytest.mark.parametrize("renderer", ["console", "json"])
def test_lines_go_to_the_stream_they_are_told_to(renderer, capsys):
    stream = io.StringIO()
    enable_logging(renderer, stream=stream)
    Good.execute()

    assert "Good" in stream.getvalue()
    assert capsys.readouterr() == ("", "")


def test_a_line_has_only_what_its_stream_can_encode():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="cp1252", write_through=True)

    class Greet(Task[None]):
        def work(self):
            self.fail("wrong: 日本")

    enable_logging("console", stream=stream)
    Greet.execute()

    assert raw.getvalue().decode("cp1252").startswith("x ")
    assert " us " in raw.getvalue().decode("cp1252")
    assert "wrong: ??" in raw.getvalue().decode("cp1252")


# -- the line for people ------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "mark", "rest"),
    [
        (Good, "✓", ""),
        (Idle, "○", " nothing to do"),
        (Bad, "✗", " card declined code=51"),
    ],
)
@pytest.mark.usefixtures("instant")
def test_a_line_is_short(task, mark, rest):
    line, result = written(task)

    assert line == f"{mark} {task.__name__} 0 µs{rest} #{result.cid[-6:]}\n"


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(("limit", "said"), [(1, "1 retry"), (2, "2 retries")])
def test_a_line_tells_retries(limit, said):
    @retry_on(TimeoutError, limit=limit, delay=1)
    class Down(Task[None]):
        def work(self):
            raise TimeoutError("no answer")

    line, _ = written(Down)

    assert f" {limit}.00 s {said} [TimeoutError] no answer #" in line


def test_a_line_tells_conflicting_writes():
    class Left(Task[None]):
        def work(self):
            self.context.side = type(self).__name__

    class Right(Left):
        pass

    class Both(Workflow[None]):
        steps = (parallel(Left, Right),)

    line, _ = written(Both)

    assert "(conflicting writes: side)" in line.splitlines()[-1]


def test_a_line_has_the_fields_that_were_asked_for():
    class Open(Good, log_fields=("context.order",)):
        pass

    line, _ = written(Open, order=7)

    assert " context.order=7 " in line


def test_a_line_has_what_the_application_bound():
    stream = io.StringIO()
    enable_logging("console", stream=stream)
    with structlog.contextvars.bound_contextvars(request="r-1"):
        Good.execute()

    assert " request=r-1 " in stream.getvalue()


def test_a_reason_cannot_forge_a_line_or_reach_the_terminal():
    class Forging(Task[None]):
        def work(self):
            self.fail("no\n✓ Fine 1 ms \x1b[31m\x07")

    line, _ = written(Forging)

    assert line.count("\n") == 1
    assert "no ✓ Fine 1 ms \\x1b[31m\\x07" in line


def test_a_traceback_cannot_reach_the_terminal():
    class Forging(Task[None]):
        def work(self):
            error = ValueError("no \x1b[31m\x07")
            self.logger.error("bad \x1b[31m", exc_info=error)

    text, _ = written(Forging)

    assert "\x1b" not in text
    assert "ValueError: no \\x1b[31m\\x07" in text.splitlines()


@pytest.mark.parametrize("task", [Good, Idle, Bad])
def test_lines_have_colours_on_a_terminal_only(task, monkeypatch):
    plain, _ = written(task)
    colored, _ = written(task, stream=Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    refused, _ = written(task, stream=Terminal())

    assert "\x1b[" not in plain
    assert colored.startswith("\x1b[3")
    assert "\x1b[2m#" in colored
    assert "\x1b[" not in refused


# -- rollbacks ----------------------------------------------------------------------


class Reserve(Good):
    def rollback(self):
        return None


class Quiet(Reserve, log=False):
    pass


class Paid(Workflow[None]):
    steps = (Reserve, Quiet, Good)


class Sale(Workflow[None]):
    steps = (Paid, Stuck, Bad)


def test_each_step_that_is_rolled_back_is_a_line():
    stream = io.StringIO()
    enable_logging("json", stream=stream)
    result = Sale.execute()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]

    assert [(line["event"], line["task"]) for line in lines[-3:]] == [
        ("rollback_failed", "Stuck"),
        ("task_rolled_back", "Reserve"),
        ("task_executed", "Sale"),
    ]
    (reserve,) = [done for done in result.chain if done.task is Reserve]
    assert lines[-2]["level"] == "info"
    assert (lines[-2]["tid"], lines[-2]["cid"]) == (reserve.tid, result.cid)


def test_a_step_that_is_rolled_back_is_a_short_line_for_people():
    class Refused(Workflow[None]):
        steps = (Reserve, Bad)

    text, result = written(Refused)

    assert f"\n  Reserve: task_rolled_back #{result.cid[-6:]}\n" in text


def test_a_failed_rollback_is_one_warning():
    stream = io.StringIO()
    enable_logging("json", stream=stream)
    result = Order.execute()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]

    (warning,) = [line for line in lines if line["event"] == "rollback_failed"]
    assert warning["level"] == "warning"
    assert warning["task"] == "Stuck"
    assert warning["tid"] == result.chain[1].tid
    assert warning["cid"] == result.cid
    assert warning["error"] == "OSError: the warehouse does not answer"


def test_the_line_of_a_task_tells_of_its_own_failed_rollback():
    class Pay(Bad):
        def rollback(self):
            raise OSError("no answer")

    text, _ = written(Pay)
    warning, line = text.splitlines()

    assert "warning" in warning
    assert "rollback_failed error=OSError: no answer" in warning
    assert "(rollback failed: OSError: no answer)" in line


def test_the_line_of_a_task_tells_that_it_was_rolled_back():
    class Pay(Bad):
        def rollback(self):
            return None

    text, _ = written(Pay)

    assert "card declined (rolled back) code=51" in text


def test_a_class_without_lines_has_no_warning_either():
    class Pay(Bad, log=False):
        def rollback(self):
            raise OSError("no answer")

    assert written(Pay)[0] == ""


# -- self.logger --------------------------------------------------------------------


def test_the_logger_of_a_task_is_silent_until_logging_is_configured(capfd):
    class Chatty(Talking):
        def work(self):
            super().work()
            self.logger.bind(order=7).warning("still here")
            self.logger.error("oh no", code=7)

    assert Chatty.execute().success
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("instant")
def test_the_logger_of_a_task_writes_short_lines_too():
    text, result = written(Talking)

    assert text == (
        f"  Talking: half way done=0.5 #{result.cid[-6:]}\n"
        f"✓ Talking 0 µs #{result.cid[-6:]}\n"
    )


def test_the_logger_of_a_task_shows_level_and_traceback_of_trouble():
    class Troubled(Task[None]):
        def work(self):
            try:
                return {}["order"]
            except KeyError:
                self.logger.exception("no order")

    text, _ = written(Troubled)
    first, second, *_ = text.splitlines()

    assert first.startswith("  error ")
    assert "Troubled: no order #" in first
    assert second == "Traceback (most recent call last):"
    assert "KeyError: 'order'" in text


@pytest.mark.parametrize("task", [Good, Bad, Talking])
def test_a_block_that_captures_logs_does_not_switch_logging_on(task, capfd):
    with structlog.testing.capture_logs() as logged:
        pass
    task.execute()

    assert logged == []
    assert capfd.readouterr() == ("", "")


def test_a_block_that_captures_logs_sees_the_lines_meanwhile():
    with structlog.testing.capture_logs() as logged:
        Talking.execute()

    assert [line["event"] for line in logged] == ["half way", "task_executed"]


@pytest.mark.parametrize(
    "configure",
    [
        "configure()",
        "configure_once()",
        "configure(cache_logger_on_first_use=True)",
        "configure(context_class=OrderedDict)",
    ],
)
def test_however_structlog_is_configured_tasks_log(configure):
    program = (
        "from collections import OrderedDict\n"
        "import structlog\n"
        "from cmdx import Task\n"
        'Good = type("Good", (Task,), {"work": lambda self: None})\n'
        "Good.execute()\n"
        f"structlog.{configure}\n"
        "Good.execute()\n"
    )
    # In a process of its own: nothing may have touched the configuration before.
    done = subprocess.run(  # noqa: S603 -- ourselves
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.count("task_executed") == 1


def test_a_setting_that_is_changed_after_a_reset_is_a_configuration(capfd):
    structlog.configure(cache_logger_on_first_use=True)
    Good.execute()

    assert capfd.readouterr().out.count("task_executed") == 1


def test_logging_that_was_enabled_goes_on_after_such_a_block():
    stream = io.StringIO()
    enable_logging("console", stream=stream)
    with structlog.testing.capture_logs():
        Good.execute()
    assert stream.getvalue() == ""

    Good.execute()

    assert stream.getvalue().startswith("✓ Good ")
