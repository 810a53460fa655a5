"""The fixtures, in a suite of their own that has no conftest and imports nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

WITHOUT_ASYNC_PLUGINS = ("-p", "no:asyncio", "-p", "no:anyio")

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


def assert_passed(finished, tests):
    """Check that so many tests passed, without an error at the end of any of them."""
    said = finished.stdout + finished.stderr
    assert finished.returncode == 0, said
    assert f"\n{tests} passed in " in finished.stdout, said


@pytest.fixture
def suite(tmp_path):
    def call(code, *options):
        (tmp_path / "test_shown.py").write_text(code, "utf-8")
        # The plugin of hypothesis takes a second to import.
        without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
        quiet = (*without, "-W", "error", "-q")
        options = options or WITHOUT_ASYNC_PLUGINS
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

    assert_passed(finished, 5)


# -- asynchronous tests ---------------------------------------------------------

ASYNC_TASKS = """
import pytest
from cmdx import Task, clock, retry_on, task_executed
from cmdx.testing import assert_success

@retry_on(ConnectionError, limit=1, delay=3600)
class Patient(Task[str]):
    async def work(self):
        if self.attempt == 0:
            raise ConnectionError
        return "at last"

class Fetch(Task[str]):
    async def work(self):
        return "real"
"""

ASYNC_TESTS = """
async def test_instant(instant):
    assert_success(await Patient.aexecute(), value="at last")
    assert instant.pauses == [3600]

async def test_recorded(recorded, instant):
    result = await Patient.aexecute()
    assert recorded.results == [result]

async def test_stub(stub):
    fetch = stub(Fetch, "stub")
    assert_success(await Fetch.aexecute(url="/"), value="stub")
    assert fetch.calls == [{"url": "/"}]

@pytest.fixture
def page(stub):
    return stub(Fetch, "from a fixture")

async def test_a_stub_of_a_fixture(page):
    assert_success(await Fetch.aexecute(), value="from a fixture")

async def test_an_inner_stub(stub, page):
    stub(Fetch, "inner")
    assert_success(await Fetch.aexecute(), value="inner")

async def test_everything_is_put_back():
    assert_success(await Fetch.aexecute(), value="real")
    assert type(clock.current.get()) is clock.Clock
    assert not task_executed.receivers

def test_everything_is_put_back_outside_coroutines():
    import asyncio
    assert_success(asyncio.run(Fetch.aexecute()), value="real")
"""

WITH_ASYNCIO = (
    *("-p", "no:anyio", "-o", "asyncio_mode=auto"),
    *("-o", "asyncio_default_fixture_loop_scope=function"),
)
WITH_ANYIO = ("-p", "no:asyncio")

ANYIO = """
pytestmark = pytest.mark.anyio

@pytest.fixture{scope}
def anyio_backend():
    return "asyncio"
"""


@pytest.mark.parametrize("scope", ["function", "session"])
def test_the_fixtures_work_with_pytest_asyncio(suite, scope):
    pytest.importorskip("pytest_asyncio")
    loop = ("-o", f"asyncio_default_test_loop_scope={scope}")
    finished = suite(ASYNC_TASKS + ASYNC_TESTS, *WITH_ASYNCIO, *loop)

    assert_passed(finished, 7)


def test_an_async_fixture_of_pytest_asyncio_may_stub(suite):
    pytest.importorskip("pytest_asyncio")
    finished = suite(
        ASYNC_TASKS
        + """
@pytest.fixture
async def page(stub):
    return stub(Fetch, "stub")

async def test_it(page):
    assert_success(await Fetch.aexecute(), value="stub")

async def test_it_is_put_back():
    assert_success(await Fetch.aexecute(), value="real")
""",
        *WITH_ASYNCIO,
    )

    assert_passed(finished, 2)


def test_the_fixtures_work_with_anyio(suite):
    pytest.importorskip("anyio")
    code = ASYNC_TASKS + ANYIO.format(scope="") + ASYNC_TESTS
    finished = suite(code, *WITH_ANYIO)

    assert_passed(finished, 7)


def test_in_a_longer_runner_of_anyio_the_context_managers_work_inside_the_test(suite):
    pytest.importorskip("anyio")
    finished = suite(
        ASYNC_TASKS
        + ANYIO.format(scope="(scope='module')")
        + """
from cmdx import testing

@pytest.fixture(scope="module")
async def connection():
    return "open"

async def test_the_fixture_does_not_reach_the_test(connection, instant):
    assert clock.current.get() is not instant

async def test_the_context_managers_do(connection):
    with testing.instant() as time, testing.recorded() as recording:
        assert_success(await Patient.aexecute(), value="at last")
    assert time.pauses == [3600]
    assert len(recording.results) == 1

async def test_stub(connection, stub):
    stub(Fetch, "stub")
    assert_success(await Fetch.aexecute(), value="stub")

async def test_it_is_put_back(connection):
    assert_success(await Fetch.aexecute(), value="real")
""",
        *WITH_ANYIO,
    )

    assert_passed(finished, 4)


# -- messages and surface -------------------------------------------------------


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
    assert "- status      success\n" in finished.stdout
    assert "assertions.py" not in finished.stdout


def test_a_suite_that_does_not_use_them_does_not_even_import_cmdx(suite):
    finished = suite(
        """
import sys

def test_it():
    assert [name for name in sys.modules if name.split(".")[0] == "cmdx"] == []
"""
    )

    assert_passed(finished, 1)


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

    assert_passed(finished, 1)


def test_the_fixtures_are_explained(suite):
    listed = suite("", "--fixtures", *WITHOUT_ASYNC_PLUGINS).stdout

    for name in ("instant", "recorded", "stub"):
        assert f"\n{name} -- " in listed


def test_the_plugin_is_one_entry_point():
    names = {
        entry_point.value for entry_point in entry_points(group="pytest11", name="cmdx")
    }

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
