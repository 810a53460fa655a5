"""``python -m cmdx run``: inputs, output, exit codes, the live tree, and Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import structlog

from cmdx import Task, Workflow, clock, enable_logging, retry_on
from cmdx.cli.live import LiveTree
from cmdx.cli.main import main
from cmdx.cli.trees import painted_line

APP = '''
import asyncio
import sys
import time
from contextlib import contextmanager
from typing import Literal

from cmdx import Task, Workflow, detached, optional, parallel, required, retry_on

print("imported")


class Greet(Task[str]):
    """
    Say hello.

    This is told nowhere.
    """

    name: str = required(description="who to greet", presence=True)
    times: int = optional(default=1, ge=1)
    tags: list[str] = optional(factory=list)
    options: dict[str, int] = optional(factory=dict)
    api_token: str = "hunter2"

    def work(self):
        print("working")
        if self.name == "nobody":
            self.skip("nobody is there")
        if self.name == "Eve":
            raise ValueError("no such guest")
        return {
            "greeting": " ".join([f"Hello, {self.name}!"] * self.times),
            "tags": self.tags,
            "options": self.options,
        }


class Wait(Task[str]):
    async def work(self):
        await asyncio.sleep(0)
        return "awaited"


class Anything(Task[str]):
    def work(self):
        return ", ".join(f"{key} {value}" for key, value in self.context.items())


class Base(Task[None]):
    pass


class Old(Task[None], deprecated="error"):
    def work(self):
        pass


class Leave(Task[None]):
    code: int

    def work(self):
        sys.exit(self.code)


class Cancel(Task[None]):
    def work(self):
        raise asyncio.CancelledError


class Hang(Task[None]):
    def work(self):
        print("hangs", flush=True)
        time.sleep(60)

    def rollback(self):
        print("undoes", flush=True)


class Reserve(Task[None]):
    def work(self):
        pass

    def rollback(self):
        print("releases", flush=True)


class AsyncHang(Task[None]):
    async def work(self):
        print("hangs", flush=True)
        await asyncio.sleep(60)

    async def rollback(self):
        await asyncio.sleep(0)
        print("undoes", flush=True)


class Quit(Task[None]):
    def work(self):
        raise KeyboardInterrupt

    def rollback(self):
        pass


class Idle(Task[None]):
    def work(self):
        print("hangs", flush=True)
        time.sleep(60)


class Order(Workflow[None]):
    steps = (Reserve, Hang)


class AsyncOrder(Workflow[None]):
    steps = (Reserve, AsyncHang)


class Report(Workflow[None]):
    steps = (Greet, parallel(Reserve, Wait))


@retry_on(ConnectionError, limit=1, delay=0.4)
class Flaky(Task[str]):
    def work(self):
        print("printed by the task")
        if self.attempt == 0:
            raise ConnectionError("refused")
        time.sleep(0.3)
        return "done"


class Shown(Workflow[None]):
    steps = (Reserve, parallel(Flaky, Reserve))
'''


@pytest.fixture(autouse=True)
def app(tmp_path, monkeypatch):
    """A folder with a module, in which the command is run."""
    (tmp_path / "run_app.py").write_text(APP, "utf-8")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("run_app", None)


def run(*words):
    return main(["run", *words])


# -- what it prints --------------------------------------------------------------------


def test_it_runs_a_task_and_prints_its_tree(capsys):
    assert run("run_app:Greet", "name=Ada") == 0
    printed = capsys.readouterr()
    *before, tree = printed.out.splitlines()
    assert before == ["imported", "working"]
    assert tree.startswith("✓ Greet ")
    assert "value={'greeting': 'Hello, Ada!'" in tree
    assert printed.err == ""


def test_a_task_may_import_modules_beside_it_while_it_runs(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "late_app.py").write_text(
        "from cmdx import Task\n"
        "class Late(Task[int]):\n"
        "    def work(self):\n"
        "        import late_helper\n"
        "        return late_helper.NUMBER\n"
    )
    (tmp_path / "late_helper.py").write_text("NUMBER = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert run("late_app:Late") == 0
    assert "value=7" in capsys.readouterr().out


def test_the_tree_has_the_steps_of_a_workflow(capsys):
    assert run("run_app:Report", "name=Ada") == 0
    lines = capsys.readouterr().out.splitlines()[-4:]
    root, first, *parallel = [line.split("  ")[0].rstrip() for line in lines]
    assert (root, first) == ("✓ Report", "├─ ✓ Greet")
    assert sorted(name[3:] for name in parallel) == ["✓ Reserve", "✓ Wait"]


def test_json_is_all_that_the_standard_output_has(capsys):
    assert run("run_app:Greet", "--json", "name=Ada", "times=2") == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["status"] == "success"
    assert result["value"]["greeting"] == "Hello, Ada! Hello, Ada!"
    assert printed.err == "imported\nworking\n"


def test_json_is_ascii_where_the_output_can_print_nothing_else():
    done = subprocess.run(
        [sys.executable, "-m", "cmdx", "run", "run_app:Greet", "name=Zoë", "--json"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    value = json.loads(done.stdout.decode("ascii"))["value"]
    assert value["greeting"] == "Hello, Zoë!"


def test_what_is_no_line_of_a_tree_stays_as_it_is():
    assert painted_line("no tree") == "no tree"


def test_a_task_that_awaits_runs_in_an_event_loop(capsys):
    assert run("run_app:Wait") == 0
    assert "value='awaited'" in capsys.readouterr().out


def test_the_timeline_is_written_as_a_page(tmp_path, capsys):
    assert run("run_app:Report", "name=Ada", "--html", "page.html") == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "Reserve" in page
    assert capsys.readouterr().err == "The timeline is in page.html.\n"


def test_a_page_stays_as_it_was_until_another_one_is_whole(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("before", "utf-8")
    page.chmod(0o640)
    seen = []
    monkeypatch.setattr(
        "cmdx.Chain.to_html", lambda _: seen.append(page.read_text("utf-8")) or "after"
    )
    assert run("run_app:Wait", "--html", "page.html") == 0
    assert seen == ["before"]
    assert page.read_text("utf-8") == "after"
    assert page.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.glob("*page.html*")] == ["page.html"]


def test_a_page_behind_a_link_is_written_where_it_is(tmp_path):
    (tmp_path / "page.html").write_text("before", "utf-8")
    (tmp_path / "link.html").symlink_to("page.html")
    assert run("run_app:Wait", "--html", "link.html") == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")


TO_STDOUT = [
    sys.executable,
    "-m",
    "cmdx",
    "run",
    "run_app:Wait",
    "--html",
    "/dev/stdout",
]


def test_the_page_may_be_the_standard_output():
    done = subprocess.run(TO_STDOUT, capture_output=True, check=True)  # noqa: S603 -- ours
    assert b"<!doctype html>" in done.stdout


def test_the_page_follows_the_tree_if_the_output_is_redirected(tmp_path):
    redirected = tmp_path / "out.txt"
    with redirected.open("wb") as out:
        subprocess.run(  # noqa: S603 -- our own command
            TO_STDOUT,
            stdout=out,
            check=True,
            env={**os.environ, "PYTHONUNBUFFERED": "", "PYTHONIOENCODING": "utf-8"},
        )
    tree, page, end = redirected.read_text("utf-8").partition("<!doctype html>")
    assert "✓ Wait" in tree
    assert page
    assert end.endswith("</html>")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")  # noqa: PTH110
def test_a_page_that_finds_no_space_is_told_and_no_success(capsys):
    assert run("run_app:Wait", "--html", "/dev/full") == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("✓ Wait")
    assert printed.err == "/dev/full was not written: No space left on device.\n"


def test_a_browser_opens_the_page_only_if_asked(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run("run_app:Wait", "--html", "page.html")
    assert opened == []
    run("run_app:Wait", "--html", "page.html", "--open")
    assert opened == [(tmp_path / "page.html").as_uri()]


def test_a_traceback_is_printed_if_asked_for(capsys):
    assert run("run_app:Report", "name=Eve") == 1
    assert capsys.readouterr().err == ""
    assert run("run_app:Report", "name=Eve", "--traceback") == 1
    printed = capsys.readouterr().err
    assert 'raise ValueError("no such guest")' in printed
    assert "cmdx/run" not in printed


# -- exit codes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [("Ada", 0, "Hello"), ("Eve", 1, "no such guest"), ("nobody", 3, "nobody is the")],
)
def test_the_exit_code_is_the_status(name, code, words, capsys):
    assert run("run_app:Greet", f"name={name}") == code
    assert words in capsys.readouterr().out


def test_the_help_has_every_exit_code(capsys):
    assert run("--help") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m cmdx run MODULE:TASK [KEY=VALUE ...]")
    codes = printed.partition("exit codes:\n")[2].splitlines()
    assert [line.split()[:2] for line in codes] == [
        ["0", "success"],
        ["1", "failed"],
        ["2", "misuse:"],
        ["3", "skipped"],
        ["130", "interrupted"],
    ]


@pytest.mark.parametrize(("given", "code"), [(7, 7), (0, 1), (256, 1), (-1, 255)])
def test_a_task_that_exits_has_failed_and_is_shown(given, code, capsys):
    assert run("run_app:Leave", f"code={given}") == code
    assert capsys.readouterr().out.splitlines()[-1].startswith("✗ Leave")


def test_a_task_that_cancels_itself_has_failed_and_is_shown(capsys):
    assert run("run_app:Cancel") == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("✗ Cancel")


def test_a_task_that_exits_has_its_result_as_json(capsys):
    assert run("run_app:Leave", "code=0", "--json") == 1
    assert json.loads(capsys.readouterr().out)["status"] == "failed"


MISUSES = {
    "": "run needs a task. Write it as module:Task.",
    "run_app:Greet Ada": "'Ada' is no input. Write it as KEY=VALUE.",
    "run_app:Greet =Ada": "'=Ada' is no input. Write it as KEY=VALUE.",
    "run_app:Greet nmae=Ada": "Greet got an unexpected input 'nmae'; did you mean "
    "'name'? Valid inputs: api_token, name, options, tags, times.",
    "run_app:Greet name=a name=b": "name is given 2 times, but takes one value.",
    "run_app:Anything a=1 a=2": "a is given 2 times, but takes one value.",
    "run_app:Greet name=a --html no/where.html": "no/where.html cannot be written: "
    "No such file or directory. Name another file.",
    "run_app:Greet name=a --open": "--open needs a page. Write --html FILE as well.",
    "run_app:Greet --input no.json": "no.json cannot be read: No such file or "
    "directory.",
    "run_app:Greet --input run_app.py": "run_app.py is not JSON: Expecting value: "
    "line 2 column 1 (char 1).",
    "run_app:Greet --input deep.json": "deep.json is nested too deeply. Write it "
    "flatter.",
    "run_app:Greet --input list.json": "list.json has a list, not inputs by name. "
    'Write an object, such as {"name": "Ada"}.',
    "empty:Gret": "empty has no 'Gret'. It is a module with no tasks.",
    "nowhere:Greet": "there is no module 'nowhere'. Write module:Task, and run this "
    "where Python finds the module: beside it, or where it is installed.",
}


@pytest.mark.parametrize(("words", "sentence"), MISUSES.items())
def test_misuse_is_answered_by_one_line_and_nothing_is_run(
    words, sentence, tmp_path, capsys
):
    (tmp_path / "list.json").write_text("[1]", "utf-8")
    (tmp_path / "deep.json").write_text("[" * 200_000, "utf-8")
    (tmp_path / "empty.py").write_text("", "utf-8")
    assert run(*words.split()) == 2
    printed = capsys.readouterr()
    assert printed.err == f"{sentence}\n"
    assert "working" not in printed.out


@pytest.mark.parametrize(("task", "word"), [("Base", "work"), ("Old", "deprecated")])
def test_a_task_that_cannot_run_says_why(task, word, capsys):
    assert run(f"run_app:{task}") == 2
    assert word in capsys.readouterr().err


def test_an_option_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit) as exit_:
        run("run_app:Greet", "name=Ada", "--jsno")
    assert exit_.value.code == 2
    assert "unrecognized arguments: --jsno" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (("run_app:Greet", "--name", "Ada"), "run_app:Greet name=Ada"),
        (("run_app:Greet", "--name=Ada"), "run_app:Greet name=Ada"),
        (("run_app:Greet", "--first-name", "Ada"), "run_app:Greet first_name=Ada"),
        (("run_app:Greet", "--loud", "--name", "Ada"), "run_app:Greet loud=..."),
        (("--loud", "run_app:Greet"), "run_app:Greet loud=..."),
        (("--loud",), "module:Task loud=..."),
    ],
)
def test_an_input_written_as_an_option_is_told_how_to_be_written(
    words, example, capsys
):
    with pytest.raises(SystemExit) as exit_:
        run(*words)
    assert exit_.value.code == 2
    told = f". Inputs are written without dashes: {example}\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("run run_app:Greet name=Ada --jsno", "--json"),
        ("run run_app:Greet name=Ada --htlm out.html", "--html"),
        ("run run_app:Greet name=Ada --htlm=out.html", "--html"),
        ("run run_app:Greet --hlep", "--help"),
        ("demo --opne", "--open"),
        ("worker run_app:queue --treads 2", "--threads"),
        ("jobs run_app:queue list --state dead --limt=2", "--limit"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_right_one(words, option, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(words.split())
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"usage: python -m cmdx {words.split()[0]} ")
    assert printed.endswith(f"; did you mean {option}?\n")


def test_other_commands_still_refuse_words_they_do_not_take(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["inspect", "run_app:Greet", "name=Ada"])
    assert exit_.value.code == 2
    assert "unrecognized arguments: name=Ada" in capsys.readouterr().err


# -- inputs ----------------------------------------------------------------------------


def value_of(capsys, *words):
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)["value"]


def test_wrong_inputs_get_the_words_of_execute(capsys):
    assert run("run_app:Greet", "times=many") == 1
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.endswith("name is required. times must be a whole number")


HELP = "`python -m cmdx run run_app:{} --help` lists the inputs.\n"


@pytest.mark.parametrize("task", ["Greet", "Report"])
def test_a_missing_input_is_answered_with_where_the_inputs_are_listed(task, capsys):
    assert run(f"run_app:{task}", "times=2") == 1
    assert capsys.readouterr().err == HELP.format(task)


def test_a_wrong_input_alone_needs_no_list_of_inputs(capsys):
    assert run("run_app:Greet", "name=Ada", "times=0") == 1
    assert capsys.readouterr().err == ""


def test_two_dashes_may_stand_before_the_inputs(capsys):
    assert run("run_app:Greet", "--", "name=Ada") == 0
    assert "Hello, Ada!" in capsys.readouterr().out


def test_a_list_takes_its_key_several_times(capsys):
    words = ("run_app:Greet", "name=Ada", "tags=new", "tags=blue")
    assert value_of(capsys, *words)["tags"] == ["new", "blue"]


def test_a_list_of_one_is_a_list(capsys):
    value = value_of(capsys, "run_app:Greet", "name=Ada", "tags=new")
    assert value["tags"] == ["new"]


def test_a_value_may_contain_an_equals_sign(capsys):
    value = value_of(capsys, "run_app:Greet", "name=a=b")
    assert value["greeting"] == "Hello, a=b!"


def test_inputs_and_options_may_stand_in_any_order(capsys):
    words = ("--json", "run_app:Greet", "--no-live", "name=Ada", "--traceback")
    assert run(*words, "times=2") == 0
    assert '"Hello, Ada! Hello, Ada!"' in capsys.readouterr().out


def test_a_task_without_declared_inputs_takes_any(capsys):
    assert value_of(capsys, "run_app:Anything", "a=1", "b=") == "a 1, b "


def test_a_file_has_inputs_and_words_win(tmp_path, capsys):
    given = {"name": "Ada", "tags": ["new"], "options": {"size": 3}, "times": 2}
    (tmp_path / "inputs.json").write_text(json.dumps(given), "utf-8")
    words = ("run_app:Greet", "--input", "inputs.json", "times=1", "tags=blue")
    assert value_of(capsys, *words) == {
        "greeting": "Hello, Ada!",
        "tags": ["blue"],
        "options": {"size": 3},
    }


def test_inputs_are_read_from_the_standard_input(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"name": "Ada"}'))
    value = value_of(capsys, "run_app:Greet", "--input", "-")
    assert value["greeting"] == "Hello, Ada!"


def test_a_closed_standard_input_has_no_inputs(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert run("run_app:Greet", "--input", "-") == 2
    assert "the standard input is not JSON" in capsys.readouterr().err


# -- help ------------------------------------------------------------------------------


def test_the_help_of_a_task_lists_its_inputs(capsys):
    assert run("run_app:Greet", "--help") == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        """\
imported
usage: python -m cmdx run run_app:Greet [KEY=VALUE ...] [options]

Greet
Say hello.

Inputs
  name       type            given             rules    description
  name       str             required          present  who to greet
  times      int             default 1         >= 1
  tags       list[str]       default by list
  options    dict[str, int]  default by dict
  api_token  str             default (hidden)

options:
"""
    )
    assert "working" not in printed
    assert "exit codes:\n  0    success\n" in printed


def test_the_help_of_a_workflow_names_what_its_steps_need(capsys):
    assert run("-h", "run_app:Report") == 0
    line = "none declared: any keyword goes into the context; its steps need name"
    assert line in capsys.readouterr().out


def test_the_help_of_a_task_that_is_not_there_is_misuse(capsys):
    assert run("--help", "nowhere:Greet") == 2
    assert "there is no module 'nowhere'" in capsys.readouterr().err


# -- Ctrl-C ----------------------------------------------------------------------------


@contextmanager
def obeyed_interrupts():
    """Let processes that are started obey SIGINT, even if this one ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(*words):
    """Run a task in a process, send it SIGINT when it hangs, and return all of it."""
    with obeyed_interrupts():
        program = subprocess.Popen(  # noqa: S603 -- ourselves
            [sys.executable, "-m", "cmdx", "run", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
    stream = program.stderr if "--json" in words else program.stdout
    while stream.readline() != "hangs\n":
        assert program.poll() is None
    program.send_signal(signal.SIGINT)
    printed, told = program.communicate(timeout=60)
    return program.returncode, printed, told


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
@pytest.mark.parametrize(
    ("task", "hung"), [("Order", "Hang"), ("AsyncOrder", "AsyncHang")]
)
def test_an_interrupt_rolls_back_and_says_so(task, hung):
    code, printed, told = interrupt(f"run_app:{task}")
    assert code == 130
    assert told == f"Interrupted. Rolled back: Reserve, {hung}.\n"
    undone, released, root, *_ = printed.splitlines()
    assert (undone, released) == ("undoes", "releases")
    assert root.startswith(f"✗ {task}")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_an_interrupt_leaves_the_result_as_json():
    code, printed, told = interrupt("run_app:Order", "--json")
    result = json.loads(printed)
    assert code == 130
    assert (result["status"], result["stopped"]) == ("failed", "cancelled")
    assert told.endswith("Interrupted. Rolled back: Reserve, Hang.\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_an_interrupt_without_a_rollback_says_so():
    code, _, told = interrupt("run_app:Idle")
    assert (code, told) == (130, "Interrupted. There was nothing to roll back.\n")


def test_an_interrupt_that_the_task_raises_is_the_same(capsys):
    assert run("run_app:Quit") == 130
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("✗ Quit")
    assert printed.err == "Interrupted. Rolled back: Quit.\n"


def test_an_interrupt_before_the_task_has_begun_is_one_too(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("cmdx.cli.run.import_task", interrupted)
    assert run("run_app:Greet") == 130
    assert capsys.readouterr().err == "Interrupted.\n"


# -- the live tree ---------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_a_live_tree_has_running_tasks_attempts_and_pauses(monkeypatch):
    monkeypatch.setattr("cmdx.cli.live.FRAMES", "*")
    seen = []

    class Waiting(Task[None]):
        def work(self) -> None:
            seen.append(words_of(tree))

    @retry_on(ConnectionError, limit=2, delay=2.0)
    class Fetch(Task[int]):
        def work(self) -> int:
            seen.append(words_of(tree))
            if self.attempt < 1:
                raise ConnectionError("refused")
            return 7

    class Flow(Workflow[None]):
        steps = (Waiting, Fetch)

    class Watched(clock.Clock):
        def sleep(self, seconds):
            del seconds
            seen.append(words_of(tree))

    flow = Flow()
    tree = LiveTree(flow)
    with clock.use(Watched()), tree.listen():
        flow.run()
    seen.append(words_of(tree))

    assert seen == [
        ["* Flow", "└─ * Waiting"],
        ["* Flow", "├─ ✓ Waiting", "└─ * Fetch"],
        [
            "* Flow",
            "├─ ✓ Waiting",
            "└─ * Fetch next attempt in 2.0 s after ConnectionError: refused",
        ],
        ["* Flow", "├─ ✓ Waiting", "└─ * Fetch 1 retry"],
        ["✓ Flow value=7", "├─ ✓ Waiting", "└─ ✓ Fetch 1 retry, value=7"],
    ]


def words_of(tree):
    """The lines of a live tree without times."""
    lines = [re.sub(r"\S+<locals>\.", "", line.plain) for line in tree.lines()]
    parts = [line.split("  ") for line in lines]
    return [
        " ".join(filter(None, (part.strip() for part in (first, *rest[-1:]))))
        for first, *rest in parts
    ]


def test_a_live_tree_leaves_out_other_runs():
    class Other(Task[None]):
        def work(self) -> None: ...

    class Mine(Task[None]):
        def work(self) -> None: ...

    mine = Mine()
    tree = LiveTree(mine)
    with tree.listen():
        Other.execute()
        mine.run()
    Mine.execute()
    assert words_of(tree) == ["✓ Mine"]


def test_a_live_tree_that_is_too_high_shows_the_root_and_the_latest():
    class Leaf(Task[int]):
        number: int

        def work(self) -> int:
            return self.number

    class Root(Task[None]):
        def work(self) -> None:
            for number in range(20):
                Leaf.execute(number=number)

    root = Root()
    tree = LiveTree(root)
    with tree.listen():
        root.run()
    lines = tree.render(6).plain.splitlines()
    assert len(lines) == 5
    assert "Root " in lines[0]
    assert lines[1] == "… 17 rows"
    assert [line[-8:] for line in lines[2:]] == ["value=17", "value=18", "value=19"]


def test_a_live_tree_draws_no_more_rows_than_it_shows(monkeypatch):
    class Leaf(Task[None]):
        def work(self) -> None: ...

    class Root(Task[None]):
        def work(self) -> None:
            for _ in range(500):
                Leaf.execute()

    root = Root()
    tree = LiveTree(root)
    with tree.listen():
        root.run()
    drawn = []
    line = tree.line
    monkeypatch.setattr(tree, "line", lambda *row: drawn.append(row) or line(*row))
    assert tree.render(6).plain.splitlines()[1] == "… 497 rows"
    assert len(drawn) == 4


def test_a_live_tree_that_is_too_high_keeps_what_runs_with_the_tasks_around_it():
    shown = []

    class Leaf(Task[None]):
        def work(self) -> None: ...

    class Deep(Task[None]):
        def work(self) -> None:
            Leaf.execute()
            shown.extend(tree.render(7).plain.splitlines())

    class Branch(Task[None]):
        def work(self) -> None:
            for _ in range(20):
                Leaf.execute()
            Deep.execute()

    class Root(Task[None]):
        def work(self) -> None:
            Branch.execute()

    root = Root()
    tree = LiveTree(root)
    with tree.listen():
        root.run()
    assert shown.pop(1) == "… 19 rows"
    names = [re.search(r"(\w+)  ", line)[1] for line in shown]
    assert names == ["Root", "Branch", "Leaf", "Deep", "Leaf"]


def test_a_live_tree_that_is_too_deep_shows_its_end():
    shown = []

    class Nested(Task[None]):
        depth: int

        def work(self) -> None:
            if self.depth:
                Nested.execute(depth=self.depth - 1)
            else:
                shown.extend(tree.render(5).plain.splitlines())

    root = Nested(depth=9)
    tree = LiveTree(root)
    with tree.listen():
        root.run()
    assert len(shown) == 4
    assert shown[1] == "… 7 rows"
    assert tree.render(2).plain == tree.render(1).plain == "… 10 rows"


def test_a_live_tree_is_ascii_where_the_terminal_is(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    monkeypatch.setattr("sys.stderr", stream)
    seen = []

    class Child(Task[None]):
        def work(self) -> None:
            seen.extend(line.plain for line in tree.lines())

    class Root(Task[None]):
        def work(self) -> None:
            Child.execute()

    root = Root()
    tree = LiveTree(root)
    with tree.listen():
        root.run()
    assert "".join(seen).isascii()
    assert seen[1][:3] == "`- "


def test_a_live_tree_is_drawn_and_removed(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    assert run("run_app:Wait") == 0
    drawn = stream.getvalue()
    assert "Wait" in drawn
    assert drawn.endswith("\x1b[1A\x1b[2K")  # up, and cleared


def test_a_task_that_logs_has_no_live_tree(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    enable_logging()
    try:
        assert run("run_app:Wait") == 0
    finally:
        structlog.reset_defaults()
    (line,) = stream.getvalue().splitlines()
    assert " Wait " in line


def test_without_rich_only_the_last_tree_is_printed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cmdx.cli.live", None)
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    assert run("run_app:Wait") == 0
    assert stream.getvalue() == ""
    assert "✓ Wait" in capsys.readouterr().out


def test_the_cure_for_a_missing_rich_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "cmdx.cli.live")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(ImportError, match=r"'cli' .*: pip install \"rich>=13\""):
        import cmdx.cli.live  # noqa: F401


def on_terminal(*arguments, stdout=None, **variables):
    """Run a program on a terminal; return what that shows, and the exit code."""
    import pty

    ours, theirs = pty.openpty()
    program = subprocess.Popen(  # noqa: S603 -- ourselves
        [sys.executable, "-m", "cmdx", *arguments],
        stdin=theirs,
        stdout=stdout or theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **variables},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # nobody else has it open
            piece = b""
        if not piece:
            break
        shown += piece
    os.close(ours)
    return shown.decode(), program.wait(timeout=60)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_on_a_terminal_the_tree_is_live_and_the_last_one_stays():
    shown, code = on_terminal("run", "run_app:Shown", NO_COLOR="1")
    live, _, last = shown.rpartition("\x1b[2K")
    assert code == 0
    assert "next attempt in" in live
    assert "1 retry" in live
    assert live.count("printed by the task\r\n") == 2
    assert "\x1b[2Kprinted by the task\r\n" in live  # in place of the tree
    lines = last.splitlines()
    assert [line.split("  ")[0].rstrip() for line in lines] == [
        "✓ Shown",
        "├─ ✓ Reserve",
        "├─ ✓ Flaky",
        "└─ ✓ Reserve",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_the_tree_is_live_while_the_output_goes_elsewhere(words, tmp_path):
    with (tmp_path / "output").open("wb") as output:
        shown, code = on_terminal("run", "run_app:Shown", *words, stdout=output)
    printed = (tmp_path / "output").read_text("utf-8")
    assert code == 0
    assert "next attempt in" in shown
    assert ("printed by the task" in shown) == bool(words)
    assert ("printed by the task" in printed) == (not words)
    assert "\x1b" not in printed


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize("words", [("--no-live",), ()])
def test_a_live_tree_can_be_turned_off(words):
    shown, _ = on_terminal("run", "run_app:Wait", *words, NO_COLOR="1")
    assert ("\x1b[2K" in shown) == (not words)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize(
    ("variables", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)]
)
def test_the_last_tree_is_coloured_on_a_terminal(variables, is_coloured):
    shown, _ = on_terminal("run", "run_app:Wait", "--no-live", **variables)
    assert ("\x1b[32m✓\x1b[0m Wait" in shown) == is_coloured
    assert ("\x1b" in shown) == is_coloured
