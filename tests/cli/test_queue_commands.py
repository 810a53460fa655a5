"""``python -m cmdx worker`` and ``jobs``, and the demo that kills a worker."""

from __future__ import annotations

import io
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cmdx.cli.main import main
from cmdx.queue import Queue
from cmdx.testing import instant

APP = """
import time
from cmdx import Task, retry_on
from cmdx.queue import Queue, queued
from cmdx.testing import instant

queue = Queue("app.db")
other = 7


class Add(Task[int], name="cli.add"):
    number: int

    def work(self):
        return self.number + 1


class Fail(Task[None], name="cli.fail"):
    secret: str

    def work(self):
        self.fail("the card was declined", code=402)


class Sentence(Task[None], name="cli.sentence"):
    def work(self):
        self.fail("Try another card.")


class Raise(Task[None], name="cli.raise"):
    def work(self):
        raise ValueError("no such order")


class Wordy(Task[None], name="cli.wordy"):
    def work(self):
        self.fail("two\\nlines \\x1b[2J" + "x" * 300)


@retry_on(ConnectionError, limit=1, delay=0.0371243, jitter=None)
class Flaky(Task[None], name="cli.flaky"):
    def work(self):
        raise ConnectionError("try again")


@queued(timeout=0.1)
class Slow(Task[None], name="cli.slow"):
    secret: str

    def work(self):
        time.sleep(2)


class Sleep(Task[None], name="cli.sleep"):
    def work(self):
        print("sleeping", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Return a module with a queue in the working folder, imported as others do."""
    (tmp_path / "queue_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import queue_app

    yield queue_app
    queue_app.queue.store.close()
    del sys.modules["queue_app"]


def start(*arguments, stderr=subprocess.PIPE, **options):
    return start_python("-m", "cmdx", *arguments, stderr=stderr, **options)


def start_python(*arguments, stderr=subprocess.PIPE, **options):
    command = [sys.executable, *arguments]
    process = subprocess.Popen(  # noqa: S603 -- our own command
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, **options
    )
    started.append(process)
    return process


started = []


@pytest.fixture(autouse=True)
def end_processes():
    """End what a test that failed has left."""
    yield
    while started:
        process = started.pop()
        if process.poll() is None:
            process.terminate()
            process.terminate()  # its jobs need not end
            process.communicate(timeout=60)


def wait_until(is_true):
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- worker -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--processes=2", "--threads=2"]])
def test_a_worker_runs_jobs_until_it_is_stopped(app, options):
    jobs = app.queue.enqueue_many([app.Add(number=number) for number in range(20)])
    worker = start("worker", "queue_app:queue", *options)
    values = [job.wait(60).value for job in jobs]
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)

    assert values == list(range(1, 21))
    assert worker.returncode == 0
    path = Path("app.db").resolve()
    assert f"has started on {path}; Ctrl-C stops it." in errors
    assert "has stopped after" in errors


def children_of(process):
    """Return the ids of the processes that a process has started."""
    path = f"/proc/{process.pid}/task/{process.pid}/children"
    if not os.path.exists(path):  # noqa: PTH110 -- of this system
        process.kill()
        pytest.skip("there is no /proc here")
    with open(path, encoding="ascii") as listed:  # noqa: PTH123
        return set(listed.read().split())


def test_a_process_that_dies_is_replaced(app):
    worker = start("worker", "queue_app:queue", "--processes=2")
    assert app.queue.enqueue(app.Add(number=1)).wait(60).value == 2
    before = children_of(worker)
    for child in before:
        os.kill(int(child), signal.SIGKILL)
    wait_until(lambda: len(children_of(worker) - before) == 2)

    assert app.queue.enqueue(app.Add(number=2)).wait(60).value == 3
    after = children_of(worker)
    worker.send_signal(signal.SIGINT)
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0
    lines = [line for line in errors.splitlines() if "replaces it." in line]
    told = [line.replace("process ", "").split() for line in lines]
    assert {pid for pid, *_ in told} == before
    assert {words[-3] for words in told} == after
    assert all("was killed by SIGKILL; process" in line for line in lines)


def test_processes_stop_when_the_one_that_started_them_is_gone(app):
    worker = start("worker", "queue_app:queue", "--processes=2")
    assert app.queue.enqueue(app.Add(number=1)).wait(60).value == 2
    children = children_of(worker)
    worker.kill()
    wait_until(lambda: not any(map(is_running, children)))
    worker.communicate(timeout=60)


def is_running(pid):
    """Tell whether a process runs; nobody may wait for one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_that_hangs_is_replaced(app):
    program = (
        "from cmdx.cli import main, processes; processes.PATIENCE = 5.0; "
        "main.main(['worker', 'queue_app:queue', '--processes=2'])"
    )
    worker = start_python("-c", program)
    assert app.queue.enqueue(app.Add(number=1)).wait(60).value == 2
    hung = min(children_of(worker))
    os.kill(int(hung), signal.SIGSTOP)
    wait_until(lambda: hung not in children_of(worker))

    worker.send_signal(signal.SIGINT)
    _, errors = worker.communicate(timeout=60)
    assert (
        f"process {hung} was not heard of for 5 s, and was killed; process " in errors
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "has ended with code 0"),
        (3, "has ended with code 3"),
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by signal 99"),
    ],
)
def test_it_is_told_how_a_process_has_ended(code, text):
    from cmdx.cli.processes import exit_text

    assert exit_text(code) == text


GRACE = (
    "is stopping: it waits up to 0.1 s for 1 running job; a second signal stops it at "
    "once."
)


def test_what_runs_when_the_grace_is_over_is_given_back(app):
    job = app.queue.enqueue(app.Sleep())
    worker = start("worker", "queue_app:queue", "--grace=0.1")
    assert worker.stdout.readline() == "sleeping\n"
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)

    assert job.refresh().state == "ready"
    assert job.crashes == 0
    told = errors.replace("<Worker of Queue('app.db', 'default'), 1 thread> ", "")
    assert told.splitlines() == [
        f"has started on {Path('app.db').resolve()}; Ctrl-C stops it.",
        GRACE,
        "has stopped after 0 legs, with 1 running job.",
    ]


def test_a_second_signal_stops_a_worker_at_once(app):
    app.queue.enqueue(app.Sleep())
    worker = start("worker", "queue_app:queue", "--grace=59")
    assert worker.stdout.readline() == "sleeping\n"
    worker.send_signal(signal.SIGINT)
    assert worker.stderr.readline().endswith("Ctrl-C stops it.\n")
    assert "is stopping: it waits up to 59 s" in worker.stderr.readline()
    worker.send_signal(signal.SIGINT)
    _, errors = worker.communicate(timeout=50)

    assert "stops at once, with 1 running job." in errors


def test_a_worker_that_runs_nothing_stops_without_a_word_about_jobs(app):
    worker = start("worker", "queue_app:queue")
    app.queue.enqueue(app.Add(number=1)).wait(60)
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)

    assert "is stopping" not in errors
    assert "has stopped after 1 leg.\n" in errors


def test_a_job_that_dies_is_told_without_its_inputs(app):
    worker = start("worker", "queue_app:queue")
    app.queue.enqueue(app.Add(number=1)).wait(60)
    app.queue.enqueue(app.Fail({"secret": "4111"}), id="of Ada").wait(60)
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)

    (line,) = [line for line in errors.splitlines() if "died" in line]
    assert line == (
        "the job of Ada of cli.fail has died: the card was declined; look at it with "
        "`python -m cmdx jobs queue_app:queue show 'of Ada'`"
    )
    assert "4111" not in errors


def test_a_job_that_takes_longer_than_its_timeout_is_told_once(app):
    worker = start("worker", "queue_app:queue")
    app.queue.enqueue(app.Slow({"secret": "4111"}), id="of Ada").wait(60)
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)

    (line,) = [line for line in errors.splitlines() if "timeout" in line]
    assert re.fullmatch(
        r"the job 'of Ada' of cli\.slow has been running for \d\.\d s, longer than its "
        r"timeout of 0\.1 s, and cannot be ended: it runs in a thread\. Give what it "
        r"waits for a timeout of its own; if it hangs, restart the worker\.",
        line,
    )
    assert "4111" not in errors


class Unwritable(io.StringIO):
    def write(self, _text):
        raise BrokenPipeError


def test_a_warning_that_cannot_be_written_stops_no_worker(monkeypatch):
    from cmdx.cli.reports import Screen, show_warnings

    logger = logging.getLogger("cmdx")
    monkeypatch.setattr(logger, "hasHandlers", lambda: False)  # those of pytest
    monkeypatch.setattr(sys, "stderr", Unwritable())
    with show_warnings(Screen()):
        logger.warning("the values of jobs are lost")


def test_a_warning_is_shown_without_what_a_terminal_would_obey(monkeypatch, capsys):
    from cmdx.cli.reports import Screen, show_warnings

    logger = logging.getLogger("cmdx")
    monkeypatch.setattr(logger, "hasHandlers", lambda: False)
    with show_warnings(Screen()):
        logger.warning("left to others:\n\x1b]0;jobs of a\tb")
    logger.warning("not on the screen")

    assert capsys.readouterr().err == "left to others:\n\\x1b]0;jobs of a\\tb\n"


def test_what_is_told_of_a_dead_job_is_one_line_that_can_be_printed(app):
    from cmdx.cli.reports import death_text

    job = app.queue.enqueue(app.Wordy(), id="wordy")
    app.queue.drain()

    assert death_text(job.refresh(), "queue_app:queue") == (
        f"the job wordy of cli.wordy has died: two lines \\x1b[2J{'x' * 186}...; look "
        "at it with `python -m cmdx jobs queue_app:queue show wordy`"
    )


def test_a_reason_that_is_a_sentence_is_told_without_its_dot(app):
    from cmdx.cli.reports import death_text

    job = app.queue.enqueue(app.Sentence())
    app.queue.drain()

    assert "has died: Try another card; look at" in death_text(job.refresh(), "a:b")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize("options", [[], ["--processes=2"]])
def test_on_a_terminal_lines_do_not_run_into_the_progress(app, options):
    import pty

    ours, theirs = pty.openpty()
    worker = start("worker", "queue_app:queue", *options, stderr=theirs)
    os.close(theirs)
    app.queue.enqueue(app.Add(number=1)).wait(60)
    shown = read_until(ours, "1 done")
    app.queue.enqueue(app.Fail({"secret": "4111"}), id="failed").wait(60)
    shown += read_until(ours, "1 dead")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    shown += read_until(ours, None)
    os.close(ours)

    begin = "2 processes" if options else "1 leg run"
    assert f"\r\x1b[K{begin}; 1 done" in shown
    assert "\r\x1b[Kthe job failed of cli.fail has died" in shown
    lines = [line.rpartition("\x1b[K")[2] for line in shown.split("\r\n")]
    *kept, last = lines
    assert last == ""
    assert [line for line in kept if not line.startswith(("<Worker", "the job"))] == []


def read_until(terminal, text):
    """Return what a terminal shows, up to a text, or to the end."""
    shown = ""
    while text is None or text not in shown:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # nobody else has it open
            piece = b""
        if not piece:
            assert text is None
            return shown
        shown += piece.decode()
    return shown


# -- jobs ---------------------------------------------------------------------------


@pytest.fixture
def jobs(app):
    """Enqueue one job of each kind, run them, and return them."""
    found = [
        app.queue.enqueue(app.Add(number=1), key="k", id="added"),
        app.queue.enqueue(app.Fail({"secret": "4111"}), id="failed"),
        app.queue.enqueue(app.Raise(), id="raised"),
    ]
    with instant():
        app.queue.drain(ahead=10)
    return found


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("arguments", [[], ["counts"]])
def test_jobs_are_counted(capsys, arguments):
    assert main(["jobs", "queue_app:queue", *arguments]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0 ready",
        "0 held",
        "0 running",
        "1 done",
        "2 dead",
        "0 cancelled",
    ]


@pytest.mark.usefixtures("jobs")
def test_jobs_are_listed_without_their_inputs(capsys):
    assert main(["jobs", "queue_app:queue", "list"]) == 0
    printed = capsys.readouterr().out

    assert printed.splitlines() == [
        "added  done       cli.add  key=k",
        "failed  dead       cli.fail  reason: the card was declined",
        "raised  dead       cli.raise  retries=2  reason: [ValueError] no such order",
    ]


@pytest.mark.usefixtures("jobs")
def test_inputs_are_printed_if_asked_for(capsys):
    arguments = ["list", "--state=dead", "--task=cli.fail", "--inputs"]
    assert main(["jobs", "queue_app:queue", *arguments]) == 0
    assert "inputs={'secret': '4111'}" in capsys.readouterr().out


@pytest.mark.usefixtures("jobs")
def test_the_end_of_the_name_of_a_task_is_enough(capsys):
    assert main(["jobs", "queue_app:queue", "list", "--task=fail"]) == 0
    assert "failed  dead       cli.fail" in capsys.readouterr().out


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("action", "printed"), [("list", "no jobs"), ("replay", "0 jobs")]
)
def test_a_task_that_has_no_jobs_is_answered_with_those_that_have(
    action, printed, capsys
):
    assert main(["jobs", "queue_app:queue", action, "--task=cli.fial"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{printed}\n"
    assert captured.err == (
        "the queue 'default' has no job of a task 'cli.fial'; did you mean 'cli.fail'? "
        "It has jobs of cli.add, cli.fail, cli.raise.\n"
    )


@pytest.mark.usefixtures("jobs")
def test_a_task_whose_jobs_are_in_another_state_is_no_mistake(capsys):
    assert main(["jobs", "queue_app:queue", "list", "--task=add", "--state=dead"]) == 0
    assert capsys.readouterr() == ("no jobs\n", "")


@pytest.mark.usefixtures("app")
def test_a_task_is_looked_for_in_an_empty_queue(capsys):
    assert main(["jobs", "queue_app:queue", "cancel", "--task=cli.add"]) == 0
    assert capsys.readouterr() == ("0 jobs\n", "the queue 'default' has no jobs.\n")


def test_the_end_of_a_name_that_means_two_tasks_is_an_error(app, capsys):
    for task in ("shop:Add", "cards:Add"):
        job = app.queue.enqueue(app.Add(number=1))
        app.queue.store.transact(
            lambda rows, job=job, task=task: rows.execute(
                "update cmdx_job set task = :task where id = :id", task=task, id=job.id
            )
        )

    assert main(["jobs", "queue_app:queue", "cancel", "--task=Add"]) == 2
    assert "'Add' may be cards:Add or shop:Add." in capsys.readouterr().err


def test_inputs_that_are_not_json_do_not_end_the_list(app, capsys):
    app.queue.enqueue(app.Add(number=1))
    app.queue.store.transact(
        lambda rows: rows.execute("update cmdx_job set inputs = '{'")
    )

    assert main(["jobs", "queue_app:queue", "list", "--inputs"]) == 0
    assert "inputs=(not JSON)" in capsys.readouterr().out


def test_an_empty_list_says_so(app, capsys):
    del app
    assert main(["jobs", "queue_app:queue", "list"]) == 0
    assert capsys.readouterr().out == "no jobs\n"


@pytest.mark.parametrize(
    ("options", "listed", "told"),
    [
        ([], 20, "there are more jobs: --limit 40\n"),
        (["--limit=20", "--state=ready"], 20, "there are more jobs: --limit 40\n"),
        (["--limit=21"], 21, ""),
        (["--limit=22"], 21, ""),
    ],
)
def test_a_list_that_is_cut_says_so(options, listed, told, app, capsys):
    app.queue.enqueue_many([app.Add(number=number) for number in range(21)])
    assert main(["jobs", "queue_app:queue", "list", *options]) == 0
    printed = capsys.readouterr()
    assert (len(printed.out.splitlines()), printed.err) == (listed, told)


@pytest.mark.parametrize("limit", ["0", "-1"])
@pytest.mark.usefixtures("app")
def test_a_list_of_nothing_is_refused(limit, capsys):
    assert main(["jobs", "queue_app:queue", "list", f"--limit={limit}"]) == 2
    assert capsys.readouterr().err == (
        f"list: limit must be a whole number, 1 or more, got {limit}.\n"
    )


def test_a_job_that_was_cancelled_is_listed_without_a_reason(app, capsys):
    app.queue.cancel(app.queue.enqueue(app.Add(number=1), id="gone").id)
    assert main(["jobs", "queue_app:queue", "list"]) == 0
    assert capsys.readouterr().out == "gone  cancelled  cli.add\n"


@pytest.mark.usefixtures("jobs")
def test_a_job_is_shown_with_its_attempts_and_its_traceback(capsys):
    assert main(["jobs", "queue_app:queue", "show", "raised"]) == 0
    printed = capsys.readouterr().out

    assert "state:    dead" in printed
    assert "retries:  2" in printed
    assert "attempt 2: no such order" in printed
    assert 'raise ValueError("no such order")' in printed


def test_the_pause_before_a_job_runs_again_is_rounded(app, capsys):
    app.queue.enqueue(app.Flaky(), id="flaky")
    app.queue.drain()
    assert main(["jobs", "queue_app:queue", "show", "flaky"]) == 0

    assert "attempt 0: try again; waits 37.1 ms\n" in capsys.readouterr().out


def test_a_job_that_runs_is_shown_with_its_place_and_time(app, capsys):
    app.queue.enqueue(app.Sleep(), id="first", key="k")
    app.queue.enqueue(app.Add(number=1), id="second", key="k")
    worker = start("worker", "queue_app:queue")
    assert worker.stdout.readline() == "sleeping\n"
    worker.kill()
    worker.communicate(timeout=60)
    app.queue.cancel("first")
    for job in ("first", "second"):
        assert main(["jobs", "queue_app:queue", "show", job]) == 0
    shown = capsys.readouterr().out

    assert "due:" not in shown
    assert re.search(
        rf"^now:      it has been running on \S+:{worker.pid} for \d+\.\d s\. If that "
        r"worker has died, it becomes cancelled when the lease is over, in "
        r"\d\d\.\d s\. It was asked to end, because it is cancelled\.$",
        shown,
        re.MULTILINE,
    )
    assert (
        "now:      it is held. It waits for the job 'first' of the same key, which is "
        "running.\n"
    ) in shown


@pytest.fixture
def unread(app):
    """Enqueue a job that the workers of this process cannot read, and run a worker."""
    job = app.queue.enqueue(app.Add(number=1), id="unread")
    rename = "update cmdx_job set task = 'new:Task', module = 'new'"
    app.queue.store.transact(lambda rows: rows.execute(rename))
    app.queue.drain()
    return job


@pytest.mark.usefixtures("unread")
def test_a_job_that_no_worker_could_read_is_shown_with_what_to_do(capsys):
    assert main(["jobs", "queue_app:queue", "show", "unread"]) == 0
    assert re.search(
        r"^due:      20[0-9: -]+ UTC\n"
        r"now:      it is ready, and due in \d\d\.\d s, and no worker .* No worker "
        r"could read it so far: the stored task 'new:Task' cannot be used: .*\n"
        r"unread:   since 20[0-9: -]+ UTC; after an hour the job is dead\.$",
        capsys.readouterr().out,
        re.MULTILINE,
    )


@pytest.mark.usefixtures("unread")
def test_a_job_that_no_worker_could_read_is_listed_as_such(capsys):
    assert main(["jobs", "queue_app:queue", "list"]) == 0
    assert capsys.readouterr().out == (
        "unread  ready      new:Task  unread: no worker could read it\n"
    )


def test_an_unread_job_that_has_ended_does_not_wait_for_a_worker(unread, app, capsys):
    app.queue.cancel(unread.id)
    assert main(["jobs", "queue_app:queue", "list"]) == 0
    assert main(["jobs", "queue_app:queue", "show", "unread"]) == 0
    assert "no worker could read it" not in capsys.readouterr().out


@pytest.mark.usefixtures("app")
def test_a_job_that_is_not_there_is_an_error(capsys):
    assert main(["jobs", "queue_app:queue", "show", "nobody"]) == 1
    assert capsys.readouterr().err == (
        "there is no job 'nobody' in the queue 'default'. It was removed, or never "
        "there: `python -m cmdx jobs queue_app:queue list` lists those that are.\n"
    )


def test_jobs_are_replayed_by_id_and_by_filter(jobs, capsys):
    assert main(["jobs", "queue_app:queue", "replay", "failed"]) == 0
    assert main(["jobs", "queue_app:queue", "replay", "--error=ValueError"]) == 0

    assert capsys.readouterr().out == "1 job\n1 job\n"
    assert [job.refresh().state for job in jobs] == ["done", "ready", "ready"]


def test_jobs_are_cancelled(app, capsys):
    waiting = app.queue.enqueue_many([app.Add(number=1)] * 1, after=60)
    assert main(["jobs", "queue_app:queue", "cancel", "--everything"]) == 0

    assert capsys.readouterr().out == "1 job\n"
    assert waiting[0].refresh().state == "cancelled"


def test_jobs_that_cannot_be_changed_are_told(app, capsys):
    app.queue.enqueue(app.Add(number=1), id="ready")
    assert main(["jobs", "queue_app:queue", "replay", "ready", "nobody"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "0 jobs\n"
    assert printed.err.startswith("the job 'ready' is ready; nothing was changed.\n")
    assert "there is no job 'nobody' in the queue 'default'." in printed.err

    assert main(["jobs", "queue_app:queue", "cancel", "ready", "--task=Add"]) == 2
    assert "takes ids, or filters, not both" in capsys.readouterr().err
    assert app.queue.get("ready").state == "ready"

    assert main(["jobs", "queue_app:queue", "cancel", "ready"]) == 0
    assert main(["jobs", "queue_app:queue", "cancel", "ready"]) == 1
    assert "the job 'ready' is cancelled" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["replay", "cancel"])
@pytest.mark.usefixtures("app")
def test_without_ids_or_a_filter_nothing_is_changed(action, capsys):
    assert main(["jobs", "queue_app:queue", action]) == 2
    assert capsys.readouterr().err == (
        f"{action} needs ids, a filter, or --everything.\n"
    )


@pytest.mark.parametrize("state", ["ready", "held", "running"])
@pytest.mark.usefixtures("app")
def test_jobs_that_have_not_ended_cannot_be_replayed_by_their_state(state, capsys):
    assert main(["jobs", "queue_app:queue", "replay", f"--state={state}"]) == 2
    assert capsys.readouterr().err == (
        f"replay changes only jobs that have ended, not those that are {state}. "
        "Give --state done, dead or cancelled.\n"
    )


@pytest.mark.parametrize("state", ["done", "dead", "cancelled"])
@pytest.mark.usefixtures("app")
def test_jobs_that_have_ended_cannot_be_cancelled_by_their_state(state, capsys):
    assert main(["jobs", "queue_app:queue", "cancel", f"--state={state}"]) == 2
    assert capsys.readouterr().err == (
        f"cancel changes only jobs that have not ended, not those that are {state}. "
        "Give --state ready, held or running.\n"
    )


@pytest.mark.usefixtures("jobs")
def test_jobs_are_replayed_and_cancelled_by_their_state(capsys):
    assert main(["jobs", "queue_app:queue", "replay", "--state=done"]) == 0
    assert main(["jobs", "queue_app:queue", "cancel", "--state=held"]) == 0
    assert capsys.readouterr().out == "1 job\n1 job\n"

    assert main(["jobs", "queue_app:queue", "replay", "--state=lost"]) == 2
    assert "state is one of ready, held" in capsys.readouterr().err


def test_a_queue_is_paused_and_resumed(app, capsys):
    assert main(["jobs", "queue_app:queue", "pause"]) == 0
    assert app.queue.paused
    assert main(["jobs", "queue_app:queue"]) == 0
    assert "paused: workers claim no jobs" in capsys.readouterr().out
    assert main(["jobs", "queue_app:queue", "resume"]) == 0
    assert not app.queue.paused


@pytest.mark.parametrize(
    ("words", "example"),
    [
        ("queue_app:queue --state dead", "queue_app:queue list --state dead"),
        ("queue_app:queue --inputs", "queue_app:queue list --inputs"),
        ("queue_app:queue --state dead list", "queue_app:queue list --state dead"),
        ("--key a queue_app:queue", "MODULE:QUEUE list --key a"),
    ],
)
def test_a_filter_without_its_action_is_told_where_to_stand(words, example, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["jobs", *words.split()])
    assert exit_.value.code == 2
    told = f"Write the action first: python -m cmdx jobs {example}\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("jobs queue_app:queue cancel --everythin", "--everything"),
        ("jobs queue_app:queue list --inp", "--inputs"),
        ("jobs queue_app:queue list --stat=ready", "--state"),
        ("worker queue_app:queue --process=2", "--processes"),
        ("migrate app.db --sq", "--sql"),
        ("run queue_app:Add --jso", "--json"),
        ("demo --htm", "--html"),
    ],
)
def test_a_shortened_option_is_answered_with_the_whole_one(words, option, app, capsys):
    app.queue.enqueue(app.Add(number=1), id="kept")
    with pytest.raises(SystemExit) as exit_:
        main(words.split())

    assert exit_.value.code == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {option}?\n")
    assert app.queue.get("kept").state == "ready"


@pytest.mark.parametrize("word", ["--replay", "-replay"])
def test_an_action_that_is_written_as_an_option_is_told_how_to_be_written(word, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["jobs", "queue_app:queue", word])
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("usage: python -m cmdx jobs ")
    assert printed.endswith(
        ". Actions are written without dashes: python -m cmdx jobs queue_app:queue "
        "replay\n"
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("queue_app:queu", "queue_app has no 'queu'; did you mean 'queue'?"),
        ("queue_app:Queu", "queue_app has no 'Queu'; did you mean 'queue'?"),
        ("queue_app:instan", "queue_app has no 'instan'. It is a module with the qu"),
        (
            "queue_app:other",
            "queue_app:other is not a queue but an object of class int.",
        ),
        ("queue_app:Add", "queue_app:Add is not a queue but a task."),
        ("queue_app:instant", "queue_app:instant is not a queue but a function."),
        (
            "queue_app",
            "queue_app is a module with the queue 'queue'. Write queue_app:qu",
        ),
        ("json", "json is a module with no queues. Name the one that has the queue."),
        (
            "queue_app.queue",
            "there is no module 'queue_app.queue'. Did you mean queue_",
        ),
        (
            "queue_app.nothing",
            "there is no module 'queue_app.nothing'. Write module:qu",
        ),
        ("no_such_app:queue", "there is no module 'no_such_app'."),
        ("queue_app.py:queue", "queue_app.py is a file."),
        (":queue", "':queue' names no module."),
    ],
)
@pytest.mark.parametrize("command", ["worker", "jobs"])
@pytest.mark.usefixtures("app")
def test_a_queue_that_cannot_be_found_is_an_error(command, target, message, capsys):
    assert main([command, target]) == 2
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize("target", ["jobs.db", "./jobs.db"])
@pytest.mark.usefixtures("app")
def test_the_database_of_a_queue_is_answered_with_what_to_name(target, capsys):
    Path("jobs.db").touch()
    assert main(["jobs", target]) == 2
    told = f"{target} is a file. Name the module that has the queue: module:queue.\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads=0"], "worker: threads must be a whole number, 1 or more, got 0."),
        (["--grace=-1"], "worker: grace must be a finite number of seconds, 0 or more"),
        (["--processes=0"], "worker: processes must be a whole number, 1 or more"),
        (["--processes=2", "--threads=0"], "worker: threads must be a whole number"),
    ],
)
@pytest.mark.usefixtures("app")
def test_a_wrong_option_is_an_error_before_anything_is_started(
    options, message, capsys
):
    assert main(["worker", "queue_app:queue", *options]) == 2
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    "words",
    [
        ["worker", "queue_app:queue"],
        ["worker", "queue_app:queue", "--processes=2"],
        ["jobs", "queue_app:queue"],
        ["jobs", "queue_app:queue", "list"],
    ],
)
def test_a_queue_in_memory_is_refused(words, app, monkeypatch, capsys):
    monkeypatch.setattr(app, "queue", Queue("sqlite://"))

    assert main(words) == 2

    assert capsys.readouterr().err == (
        "Queue(':memory:', 'default') is in memory, where no other process finds its "
        "jobs. Give it a file, as in Queue('app.db'), or stay in the process that "
        "enqueues them, with queue.worker() and queue.find().\n"
    )


@pytest.mark.parametrize("action", ["list", "replay", "cancel"])
@pytest.mark.usefixtures("app")
def test_a_state_that_is_none_is_an_error(action, capsys):
    assert main(["jobs", "queue_app:queue", action, "--state=failed"]) == 2
    assert capsys.readouterr().err == (
        "state is one of ready, held, running, done, dead, cancelled, got 'failed'; "
        "a job that failed for good is 'dead'.\n"
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("retry", "use 'replay'"),
        ("requeue", "use 'replay'"),
        ("delete", "use 'cancel'; queue.prune() removes jobs that have ended"),
        ("stop", "use 'cancel'"),
        ("ls", "use 'list'"),
    ],
)
def test_an_action_of_other_queues_is_answered_with_ours(word, hint, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["jobs", "queue_app:queue", word, "some-id"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.endswith(f"; {hint}\n")


def test_the_package_of_the_queue_may_be_imported_for_its_tasks(app):
    from cmdx.cli.queues import import_queue

    assert isinstance(import_queue("queue_app:queue"), Queue)
    assert "queue_app" in app.queue.tasks


# -- the demo -----------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_the_demo_kills_a_worker_and_loses_nothing():
    done = start("demo", "queue")
    printed, errors = done.communicate(timeout=60)

    assert done.returncode == 0, errors
    assert "was killed by SIGKILL" in printed
    assert "Jobs: 12 done. Lost: 0." in printed


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_an_interrupt_of_the_demo_is_no_traceback():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    demo = start("demo", "queue", start_new_session=True)
    signal.signal(signal.SIGINT, before)
    while "Another worker goes on" not in demo.stdout.readline():
        assert demo.poll() is None
    os.killpg(demo.pid, signal.SIGINT)  # its worker as well, as a terminal does
    _, errors = demo.communicate(timeout=60)

    assert (demo.returncode, errors) == (130, "Interrupted.\n")
