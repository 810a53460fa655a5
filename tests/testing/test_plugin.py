"""The fixtures, in a suite of their own that has no conftest and imports nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

TASKS = """
from cmdx import Task, retry_on

@retry_on(ConnectionError, limit=3, delay=60)
class Patient(Task[None]):
    def work(self):
        raise ConnectionError

class SendMail(Task[str]):
    def work(self):
        raise RuntimeError("a test must not send mail")
"""


def run(*command, cwd):
    return subprocess.run(  # noqa: S603
        [sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def suite(tmp_path):
    def call(code, *options):
        (tmp_path / "test_shown.py").write_text(code, "utf-8")
        quiet = ("-p", "no:cacheprovider", "-W", "error", "-q")
        return run("-m", "pytest", *quiet, *options, cwd=tmp_path)

    return call


def test_the_fixtures_need_no_import(suite):
    finished = suite(
        TASKS
        + """
def test_instant(instant):
    assert Patient.execute().retries == 3
    assert instant.pauses == [60, 60, 60]
    instant.randoms = 0.25
    assert instant.random() == 0.25

def test_recorded(recorded, instant):
    result = Patient.execute()
    assert recorded.results == [result]
    assert len(recorded.sent("task_retried", task=Patient)) == 3

def test_stub(stub):
    mail = stub(SendMail, "sent")
    assert SendMail.execute(to="ada").value == "sent"
    assert mail.calls == [{"to": "ada"}]

def test_a_second_stub_takes_over(stub):
    stub(SendMail, "sent")
    stub(SendMail, failed="mailbox full")
    assert SendMail.execute().reason == "mailbox full"

def test_everything_is_put_back():
    from cmdx import clock, task_executed
    assert type(clock.current.get()) is clock.Clock
    assert not task_executed.receivers
    assert type(SendMail.execute().cause) is RuntimeError
"""
    )

    assert "5 passed" in finished.stdout, finished.stdout + finished.stderr


def test_a_failed_assertion_points_at_the_line_of_the_test(suite):
    finished = suite(
        TASKS
        + """
from cmdx.testing import assert_success

def test_it(instant):
    assert_success(Patient.execute())
"""
    )

    assert ">       assert_success(Patient.execute())" in finished.stdout
    assert "- status    success\n" in finished.stdout
    assert "assertions.py" not in finished.stdout


def test_a_suite_that_does_not_use_them_does_not_even_import_cmdx(suite):
    finished = suite(
        """
import sys

def test_it():
    assert [name for name in sys.modules if name.split(".")[0] == "cmdx"] == []
"""
    )

    assert "1 passed" in finished.stdout, finished.stdout


def test_fixtures_of_the_same_names_win(suite):
    finished = suite(
        """
import pytest

@pytest.fixture
def stub():
    return "mine"

def test_it(stub):
    assert stub == "mine"
"""
    )

    assert "1 passed" in finished.stdout, finished.stdout


def test_the_fixtures_are_explained(suite):
    listed = suite("", "--fixtures").stdout

    for name in ("instant", "recorded", "stub"):
        assert f"\n{name} -- " in listed


def test_the_plugin_is_one_entry_point():
    names = {each.value for each in entry_points(group="pytest11", name="cmdx")}

    assert names == {"_cmdx_pytest_plugin"}


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("cmdx", "cmdx.testing"),
        ("cmdx.testing", "pytest"),
        ("cmdx.testing", "asyncio"),
        ("_cmdx_pytest_plugin", "cmdx"),
    ],
)
def test_importing_one_does_not_import_the_other(tmp_path, imported, absent):
    program = f"import sys, {imported}; sys.exit({absent!r} in sys.modules)"

    assert run("-c", program, cwd=tmp_path).returncode == 0
