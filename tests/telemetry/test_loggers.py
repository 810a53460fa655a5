"""The lines of a run are written by whatever logger the application configures."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest
import structlog
from structlog.testing import LogCapture

from cmdx import Task, enable_logging


@pytest.fixture(autouse=True)
def _structlog_as_it_was():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture(params=["sync", "async"])
def run(request):
    """Runs a task with ``execute`` or with ``aexecute``."""
    if request.param == "sync":
        return lambda task, **inputs: task.execute(**inputs)
    return lambda task, **inputs: asyncio.run(task.aexecute(**inputs))


class Silent(logging.Logger):
    """A logger whose lines go nowhere."""

    def __init__(self):
        super().__init__("silent")
        self.addHandler(logging.NullHandler())


WRAPPERS = {
    "native": structlog.make_filtering_bound_logger(0),
    "stdlib": structlog.stdlib.BoundLogger,
    "async": structlog.stdlib.AsyncBoundLogger,
    "generic": structlog.BoundLogger,
}


@pytest.fixture(params=WRAPPERS)
def lines(request):
    """The lines of an application that uses one of the wrappers of structlog."""
    capture = LogCapture()
    structlog.configure(
        processors=[capture],
        wrapper_class=WRAPPERS[request.param],
        logger_factory=lambda *_: Silent(),
    )
    return capture.entries


class Bad(Task[None], deprecated="log"):
    def work(self):
        self.fail("no stock")

    def rollback(self):
        raise OSError("stuck")


def test_each_line_of_a_run_is_written(lines, run, caplog):
    result = run(Bad)

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("task_deprecated", "warning"),
        ("rollback_failed", "warning"),
        ("task_executed", "warning"),
    ]
    assert {(line["task"], line["tid"], line["cid"]) for line in lines} == {
        ("Bad", result.tid, result.cid)
    }
    assert caplog.records == []


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        (5, "debug"), ("debug", "debug"), (25, "info"), ("info", "info"),
        (39, "warning"), ("error", "error"), (50, "critical"), (99, "critical"),
    ],
)  # fmt: skip
def test_a_level_between_two_levels_is_the_lower_one(lines, level, logged, caplog):
    class Leveled(Bad, log_level=level):
        pass

    Leveled.execute()

    assert lines[-1]["log_level"] == logged
    assert caplog.records == []


@pytest.mark.parametrize("wrapper", ["async", "stdlib"])
def test_the_logger_of_a_task_works_in_a_synchronous_run(wrapper):
    capture = LogCapture()
    structlog.configure(
        processors=[capture],
        wrapper_class=WRAPPERS[wrapper],
        logger_factory=lambda *_: Silent(),
    )

    class Talking(Task[None]):
        def work(self):
            self.logger.info("half way")

    assert Talking.execute().success
    assert [line["event"] for line in capture.entries] == ["half way", "task_executed"]


def test_the_logger_of_a_task_is_awaited_in_an_asynchronous_run_if_it_is_async():
    capture = LogCapture()
    structlog.configure(
        processors=[capture],
        wrapper_class=WRAPPERS["async"],
        logger_factory=lambda *_: Silent(),
    )

    class Talking(Task[None]):
        async def work(self):
            await self.logger.info("half way")

    assert asyncio.run(Talking.aexecute()).success
    assert [line["event"] for line in capture.entries] == ["half way", "task_executed"]


@pytest.mark.parametrize("task", [Bad, type("Old", (Bad,), {"rollback": None})])
def test_a_logger_that_raises_changes_nothing(run, task, caplog):
    def broken(*_):
        raise OSError("disk full")

    structlog.configure(processors=[broken])

    result = run(task)

    assert (result.reason, result.deprecated) == ("no stock", True)
    assert "failed" in caplog.text


# -- odd values -----------------------------------------------------------------------


class Wordless:
    def __repr__(self):
        raise ZeroDivisionError("no words")


class Note(Task[None], log_fields=("context.value",)):
    def work(self):
        self.metadata["noted"] = self.metadata[self.context.value] = self.context.value
        self.logger.info(self.context.value, said=[self.context.value])


def written(renderer, task, **inputs):
    """Return the lines about a run."""
    stream = io.StringIO()
    enable_logging(renderer, stream=stream)
    assert task.execute(**inputs).success
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("value", [Wordless(), 10**5000], ids=["wordless", "long"])
def test_a_line_shows_what_cannot_be_shown_by_its_class(value, caplog):
    text = f"<{type(value).__qualname__}>"

    message, line = written("console", Note, value=value)

    assert f"Note: {text} said=[{text}] #" in message
    assert f" noted={text} {text}={text} context.value={text} #" in line
    assert caplog.records == []


@pytest.mark.parametrize("value", [Wordless(), 10**5000], ids=["wordless", "long"])
def test_a_json_line_shows_what_cannot_be_shown_by_its_class(value, caplog):
    text = f"<{type(value).__qualname__}>"

    message, line = map(json.loads, written("json", Note, value=value))

    assert (message["event"], message["said"]) == (text, [text])
    assert line["metadata"] == {"noted": text, text: text}
    assert line["context.value"] == text
    assert caplog.records == []


def test_a_json_line_is_json_whatever_the_metadata(caplog):
    cycle = {}
    cycle["self"] = cycle

    class Odd(Task[None]):
        def work(self):
            self.metadata[1, 2] = {3: float("nan")}
            self.metadata["cycle"] = cycle
            self.metadata["text"] = "\udcff ü"

    (line,) = written("json", Odd)

    assert line.isascii()  # whatever the encoding of the stream
    assert json.loads(line, parse_constant=pytest.fail)["metadata"] == {
        "(1, 2)": {"3": "NaN"},
        "cycle": {"self": "..."},
        "text": "\udcff ü",
    }
    assert caplog.records == []


def test_the_event_of_an_application_may_be_called_as_ours():
    stream = io.StringIO()
    enable_logging("console", stream=stream)

    structlog.get_logger().info("task_executed", status="done", code=7)

    assert stream.getvalue() == "  task_executed status=done code=7\n"


@pytest.mark.parametrize("encoding", ["no such thing", 7])
def test_a_line_is_written_if_nobody_knows_the_encoding(encoding, caplog):
    class Stream(io.StringIO):
        pass

    Stream.encoding = encoding
    stream = Stream()
    enable_logging("console", stream=stream)

    Note.execute(value=1)

    assert "Note" in stream.getvalue()
    assert caplog.records == []
