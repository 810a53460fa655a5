"""One line per run, when asked for, and no secrets in it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import date
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
import structlog
from structlog.testing import LogCapture

from cmdx import DefinitionError, Task, enable_logging, retry_on, task_executed


@pytest.fixture(autouse=True)
def _structlog_as_it_was():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def lines():
    """The lines of an application that has configured structlog."""
    capture = LogCapture()
    structlog.configure(processors=[capture])
    return capture.entries


class Good(Task[str]):
    def work(self) -> str:
        return "what it returned"


class Idle(Task[None]):
    def work(self) -> None:
        self.skip("nothing to do")


class Bad(Task[None]):
    def work(self) -> None:
        self.fail("no stock", code=404)


class Broken(Task[None]):
    def work(self) -> None:
        raise ValueError("no luck")


class Parent(Task[None]):
    def work(self) -> None:
        Good.execute()


# -- on and off -----------------------------------------------------------------


@pytest.mark.parametrize("task", [Good, Idle, Bad, Broken, Parent])
def test_it_is_silent_until_asked(task, capfd):
    task.execute()

    assert capfd.readouterr() == ("", "")


def test_structlog_is_not_even_imported_for_a_silent_run():
    program = (
        "import sys, cmdx\n"
        "class Quiet(cmdx.Task[None]):\n"
        "    def work(self): self.fail('no')\n"
        "Quiet.execute()\n"
        "sys.exit('structlog' in sys.modules)\n"
    )

    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603


def test_an_application_that_configured_structlog_gets_one_line_per_run(lines):
    Good.execute()
    Bad.execute()

    assert [(line["event"], line["task"]) for line in lines] == [
        ("task_executed", "Good"),
        ("task_executed", "Bad"),
    ]


def test_nested_runs_have_a_line_each_in_the_order_they_ended(lines):
    Parent.execute()

    assert [line["task"] for line in lines] == ["Good", "Parent"]


def test_a_retried_run_has_one_line(lines, instant):
    @retry_on(TimeoutError, limit=2)
    class Tired(Task[None]):
        def work(self) -> None:
            raise TimeoutError

    Tired.execute()

    assert [line["retries"] for line in lines] == [2]
    assert instant.pauses == [0.5, 0.5]


@pytest.mark.usefixtures("instant")
def test_the_line_of_a_retried_run_tells_how_policies_multiply(lines):
    @retry_on(TimeoutError, limit=2)
    class Inner(Task[None]):
        def work(self) -> None:
            raise TimeoutError

    @retry_on(TimeoutError, limit=3)
    class Outer(Task[None]):
        def work(self) -> None:
            Inner.execute_or_raise()

    Outer.execute()
    inner, outer = lines[0], lines[-1]

    assert (inner["retry_depth"], inner["retry_product"]) == (1, 12)
    assert (outer["retry_depth"], outer["retry_product"]) == (0, 4)


def test_log_false_keeps_a_class_and_its_children_silent(lines):
    class Quiet(Good, log=False):
        pass

    class QuietChild(Quiet):
        pass

    class Loud(QuietChild, log=True):
        pass

    for task in (Quiet, QuietChild, Loud):
        task.execute()

    assert [line["task"] for line in lines] == [Loud.__qualname__]


def test_the_line_is_written_after_the_signal(lines):
    seen = []

    def note(_sender, **_):
        seen.append(len(lines))

    with task_executed.connected_to(note):
        Good.execute()

    assert seen == [0]
    assert len(lines) == 1


# -- enable_logging -------------------------------------------------------------


@pytest.mark.usefixtures("instant")
def test_console_writes_a_line_for_people(capsys):
    enable_logging("console")
    result = Bad.execute()
    written = capsys.readouterr().err

    assert written == f"✗ Bad 0 µs no stock code=404 #{result.cid[-6:]}\n"


def test_console_is_what_enable_logging_does_unless_told_otherwise(capsys):
    enable_logging()
    Good.execute()
    written = capsys.readouterr().err

    assert written.startswith("✓ Good ")
    with pytest.raises(json.JSONDecodeError):
        json.loads(written)


def test_json_writes_a_line_for_machines(capsys):
    enable_logging("json")
    result = Bad.execute()
    line = json.loads(capsys.readouterr().err)

    assert line["event"] == "task_executed"
    assert line["level"] == "warning"
    assert line["task"] == "Bad"
    assert line["status"] == "failed"
    assert line["reason"] == "no stock"
    assert line["metadata"] == {"code": 404}
    assert line["tid"] == result.tid
    assert line["cid"] == result.cid
    assert line["timestamp"].endswith("Z")


def test_json_writes_what_json_does_not_know_as_its_repr(capsys):
    class Noting(Task[None]):
        def work(self) -> None:
            self.metadata["ids"] = {7}

    enable_logging("json")
    Noting.execute()

    assert json.loads(capsys.readouterr().err)["metadata"] == {"ids": "{7}"}


def test_lines_keep_what_the_application_bound_to_its_context(capsys):
    enable_logging("json")
    with structlog.contextvars.bound_contextvars(request="r-1"):
        Good.execute()

    assert json.loads(capsys.readouterr().err)["request"] == "r-1"


def test_an_unknown_renderer_is_refused_and_changes_nothing(capsys):
    with pytest.raises(DefinitionError, match=r'"console" or "json".*xml'):
        enable_logging("xml")
    Good.execute()

    assert not structlog.is_configured()
    assert capsys.readouterr().out == ""


# -- levels ---------------------------------------------------------------------


class SkippedAsOld(Good, deprecated=lambda task: task.skip("use something newer")):
    pass


class JustOld(Good, deprecated=lambda _: None):
    pass


@pytest.mark.parametrize(
    ("task", "level"),
    [
        (Good, "info"),
        (Idle, "info"),
        (JustOld, "info"),
        (SkippedAsOld, "warning"),
        (Bad, "warning"),
        (Broken, "warning"),
    ],
)
def test_lines_about_trouble_are_warnings(lines, task, level):
    task.execute()

    assert [line["log_level"] for line in lines] == [level]


@pytest.mark.parametrize("level", ["error", "ERROR", logging.ERROR])
def test_a_class_sets_the_level_of_its_lines(lines, level):
    class Important(Good, log_level=level):
        pass

    class Child(Important):
        pass

    class Ordinary(Child, log_level=None):
        pass

    for task in (Important, Child, Ordinary):
        task.execute()

    assert [line["log_level"] for line in lines] == ["error", "error", "info"]


@pytest.mark.parametrize("level", ["loud", 1.5, True, ["info"]])
def test_a_level_nobody_knows_is_refused_when_the_class_is_made(level):
    with pytest.raises(DefinitionError, match="log_level"):
        type("Wrong", (Good,), {}, log_level=level)


# -- fields ---------------------------------------------------------------------

FIELDS = {
    "task", "type", "tid", "cid", "xid", "index", "root", "parent_tid", "depth", "tags",
    "state", "status", "reason", "metadata", "cause", "origin", "retries", "retried",
    "stopped", "duration", "strict", "deprecated", "rolled_back", "rollback_error",
    "compensated", "conflicts", "replaced", "halted_at", "guidance",
}  # fmt: skip


def test_the_line_has_the_facts_of_the_run(lines):
    result = Broken.execute()
    facts = result.to_dict()

    assert set(lines[0]) == FIELDS | {"event", "log_level"}
    assert {name: lines[0][name] for name in FIELDS} == {
        name: facts[name] for name in FIELDS
    }
    assert lines[0]["cause"] == "ValueError: no luck"


def test_the_line_does_not_tell_what_the_task_returned(lines):
    Good.execute()

    assert "what it returned" not in repr(lines)


@pytest.mark.parametrize("task", [Good, Idle, Bad, Broken, SkippedAsOld])
@pytest.mark.parametrize("renderer", ["console", "json"])
def test_the_line_shows_neither_inputs_nor_context(task, renderer, capfd):
    class Secretive(task):
        def work(self):
            self.context.written = "hunter3"
            return super().work()

    enable_logging(renderer)
    Secretive.execute(given="hunter2")
    written = "".join(capfd.readouterr())

    assert Secretive.__qualname__ in written
    assert "hunter" not in written


@pytest.mark.parametrize("renderer", ["console", "json"])
def test_lines_of_nested_and_thrown_failures_show_no_secrets_either(renderer, capfd):
    class Inner(Task[None]):
        def work(self) -> None:
            self.errors.add("given", "is too short")

    class Outer(Task[None]):
        def work(self) -> None:
            self.throw(Inner.execute(self.context))

    enable_logging(renderer)
    Outer.execute(given="hunter2")
    written = "".join(capfd.readouterr())

    assert written.count("given is too short") == 2
    assert "hunter" not in written


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    "annotation",
    [int, float, Decimal, date, UUID, Color, list[int], dict[str, int], int | None],
)
def test_the_line_about_a_refused_input_does_not_repeat_it(annotation, lines):
    class Typed(Task[None]):
        __annotations__ = {"handed": annotation}

        def work(self) -> None: ...

    Typed.execute(handed="hunter2")

    assert lines[0]["status"] == "failed"
    assert "handed" in lines[0]["reason"]
    assert "hunter" not in repr(lines)


def test_a_class_can_ask_for_its_whole_context(lines):
    class Open(Good, log_fields=("context",)):
        def work(self) -> str:
            self.context.written = 2
            return "done"

    Open.execute(given=1)

    assert lines[0]["context"] == {"given": 1, "written": 2}


def test_a_class_can_ask_for_one_key_of_its_context(lines):
    class Open(Good, log_fields=("context.order",)):
        pass

    Open.execute(order=7, given="hunter2")

    assert lines[0]["context.order"] == 7
    assert "hunter" not in repr(lines)
    assert "context" not in lines[0]


def test_a_key_that_is_not_there_is_written_as_none(lines):
    class Open(Good, log_fields=("context.order",)):
        pass

    Open.execute()

    assert lines[0]["context.order"] is None


def test_fields_are_inherited_and_added_to(lines):
    class Open(Good, log_fields=("context.order",)):
        pass

    class Wider(Open, log_fields=("context.user", "attempts")):
        pass

    Wider.execute(order=7, user="ada")
    Good.execute(order=8, user="bob")

    assert lines[0]["context.order"] == 7
    assert lines[0]["context.user"] == "ada"
    assert "attempts" in lines[0]
    assert set(lines[1]) == FIELDS | {"event", "log_level"}


@pytest.mark.parametrize(
    ("task", "value"), [(Good, "what it returned"), (Bad, None), (Idle, None)]
)
def test_a_class_that_asks_for_its_value_has_a_line_for_every_outcome(
    lines, task, value
):
    class Open(task, log_fields=("value",)):
        pass

    Open.execute()

    assert [line["value"] for line in lines] == [value]


@pytest.mark.parametrize("fields", ["context", 3, (1,), None])
def test_fields_of_a_wrong_kind_are_refused_when_the_class_is_made(fields):
    with pytest.raises(DefinitionError, match="log_fields"):
        type("Wrong", (Good,), {}, log_fields=fields)


# -- logging never changes a run ------------------------------------------------


def test_a_processor_that_raises_is_reported_and_changes_nothing(caplog):
    def broken(_logger, _name, _event):
        raise LookupError("no disk")

    structlog.configure(processors=[broken])
    result = Good.execute()

    assert result.value == "what it returned"
    assert [record.name for record in caplog.records] == ["cmdx"]
    assert "no disk" in caplog.text


# -- self.logger ----------------------------------------------------------------


class Talking(Task[None]):
    def work(self) -> None:
        self.logger.info("half way", done=0.5)


def test_the_logger_of_a_task_knows_task_tid_and_cid(lines):
    result = Talking.execute()

    assert lines[0] == {
        "event": "half way",
        "log_level": "info",
        "done": 0.5,
        "task": "Talking",
        "tid": result.tid,
        "cid": result.cid,
    }


def test_the_loggers_of_parent_and_child_share_the_cid(lines):
    class Outer(Task[None]):
        def work(self) -> None:
            self.logger.info("before")
            Talking.execute()

    result = Outer.execute()
    before, half_way = lines[0], lines[1]

    assert before["cid"] == half_way["cid"] == result.cid
    assert before["tid"] != half_way["tid"]


def test_the_logger_shows_neither_inputs_nor_context(lines):
    Talking.execute(given="hunter2")

    assert len(lines) == 2
    assert "hunter" not in repr(lines)


def test_the_logger_works_for_a_class_without_lines(lines):
    class Quiet(Talking, log=False):
        pass

    Quiet.execute()

    assert [line["event"] for line in lines] == ["half way"]
