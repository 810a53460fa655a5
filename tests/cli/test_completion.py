"""``cmdx completion``: what may follow a line, and the script in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cmdx.cli.main import main

APP = """
from enum import Enum
from typing import Literal

from cmdx import Task, Workflow, optional

print("imported")


class Size(Enum):
    SMALL = "small"
    BIG = "big"


class Greet(Task[str]):
    name: str
    loud: bool = False
    size: Size | None = None
    language: Literal["en", "de"] = "en"
    level: int = optional(default=1, one_of=(1, 2))
    sizes: list[Size] = optional(factory=list)
    ages: list[int] | None = None

    def work(self):
        return self.name


class Greetings(Workflow[None]):
    steps = (Greet,)
"""

QUEUES = """
from cmdx.queue import Queue

queue = Queue("app.db")
"""


@pytest.fixture(autouse=True)
def app(tmp_path, monkeypatch):
    """A folder with modules, in which the command is run."""
    (tmp_path / "done_app.py").write_text(APP, "utf-8")
    (tmp_path / "done_queues.py").write_text(QUEUES, "utf-8")
    (tmp_path / "done_broken.py").write_text("raise RuntimeError", "utf-8")
    (tmp_path / "_hidden.py").write_text("", "utf-8")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("", "utf-8")
    (tmp_path / "shop" / "orders.py").write_text("", "utf-8")
    monkeypatch.chdir(tmp_path)
    yield
    for name in ("done_app", "done_queues"):
        sys.modules.pop(name, None)


GREET = "name= loud= size= language= level= sizes= ages="
LINES = {
    "cmdx ": "demo run inspect migrate worker jobs completion",
    "cmdx i": "inspect",
    "cmdx  run  s": "shop:",
    "cmdx run ": "done_app: done_broken: done_queues: shop:",
    "cmdx run shop.": "shop.orders:",
    "cmdx inspect done_app:": "done_app:Greet done_app:Greetings",
    "cmdx run done_app:Greeti": "done_app:Greetings",
    "cmdx run done_app:Greet ": GREET,
    "cmdx run done_app:Greet n": "name=",
    "cmdx run done_app:Greet name=Ada sizes=big ": GREET.replace("name= ", ""),
    "cmdx run --json --input a.json done_app:Greet n": "name=",
    "cmdx run done_app:Greetings ": "name=",
    "cmdx run done_app:Greet loud=": "loud=true loud=false",
    "cmdx run done_app:Greet size=": "size=small size=big",
    "cmdx run done_app:Greet language=d": "language=de",
    "cmdx run done_app:Greet level=": "level=1 level=2",
    "cmdx run done_app:Greet sizes=big sizes=s": "sizes=small",
    "cmdx run done_app:Greet name=": "",
    "cmdx run done_app:Greet other=": "",
    "cmdx run done_app:Greet --j": "--json",
    "cmdx run done_app:Greet --html ": "",
    "cmdx run done_broken:": "",
    "cmdx run done_broken:Greet ": "",
    "cmdx worker done_queues:": "done_queues:queue",
    "cmdx jobs done_queues:queue ": "counts pause resume list show replay cancel",
    "cmdx run done_app:Greet name=Ada ages=1 ": GREET.replace("name= ", ""),
    "cmdx --v": "--version",
    "cmdx worker --threads 4 ": "done_app: done_broken: done_queues: shop:",
    "cmdx worker --threads ": "",
    "cmdx worker --threads 4 done_queues:queue --b": "--batch",
    "cmdx worker done_queues:queue ": "",
    "cmdx jobs done_queues:queue list --": "--help --state --task --key --error "
    "--limit --inputs",
    "cmdx jobs done_queues:queue --": "--help",
    "cmdx jobs done_queues:queue list --state ": "",
    "cmdx jobs done_queues:queue list ": "",
    "cmdx completion ": "bash zsh fish",
    "cmdx completion bash ": "",
    "cmdx demo ": "tasks queue delivery",
    "cmdx demo q": "queue",
    "cmdx migrate ": "",
    "cmdx nothing ": "",
    "cmdx": "",
}


@pytest.mark.parametrize(("line", "words"), LINES.items())
def test_a_line_is_completed(line, words, capsys):
    assert main(["completion", "bash", "--line", line]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == words.split()
    assert printed.err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_the_command(shell, capsys):
    assert main(["completion", shell]) == 0
    assert f"cmdx completion {shell} --line" in capsys.readouterr().out


# -- bash ------------------------------------------------------------------------------

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="bash is not installed")
# What bash sets before it calls the function, as far as that asks for it.
COMPLETE = """
COMP_WORDBREAKS=${COMP_WORDBREAKS//[$2]}
eval "$(cmdx completion bash)"
COMP_LINE=$1 COMP_POINT=${#1}
_cmdx 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


def with_cmdx():
    """The environment, with the console script of this interpreter on the path."""
    folder = Path(sys.executable).parent
    if not (folder / "cmdx").exists():
        pytest.skip("the console script is not installed")
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@needs_bash
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("cmdx ins", ["inspect"]),
        ("cmdx run done_a", ["done_app:"]),
        ("cmdx run done_app:", ["Greet", "Greetings"]),
        ("cmdx run done_app:Greet l", ["loud=", "language=", "level="]),
        ("cmdx run done_app:Greet size=", ["small", "big"]),
        ("cmdx run done_app:Greet size=b", ["big"]),
        ("cmdx run done_app:Greet nothing", [""]),
    ],
)
def test_bash_completes_what_follows_a_colon_or_an_equals_sign(line, replies):
    done = subprocess.run(  # noqa: S603 -- our own script
        [BASH, "-c", COMPLETE, "bash", line, "x"],
        env=with_cmdx(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == replies


@needs_bash
@pytest.mark.parametrize(
    ("line", "not_breaking", "replies"),
    [
        ("cmdx run done_app:", "=", ["Greet", "Greetings"]),
        ("cmdx run done_app:Greet size=b", "=", ["size=big"]),
        ("cmdx run done_app:Greeti", ":", ["done_app:Greetings"]),
        ("cmdx run done_app:Greet size=", ":", ["small", "big"]),
        ("cmdx run done_app:Greeti", ":=", ["done_app:Greetings"]),
        ("cmdx run done_app:Greet size=b", ":=", ["size=big"]),
        ("cmdx ins", ":=", ["inspect"]),
    ],
)
def test_bash_replaces_what_follows_its_own_word_breaks(line, not_breaking, replies):
    done = subprocess.run(  # noqa: S603 -- our own script
        [BASH, "-c", COMPLETE, "bash", line, not_breaking],
        env=with_cmdx(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == replies


@needs_bash
def test_bash_uses_the_function_for_the_command():
    script = 'eval "$(cmdx completion bash)"; complete -p cmdx; compgen -A function'
    done = subprocess.run(  # noqa: S603 -- our own script
        [BASH, "-c", script],
        env=with_cmdx(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "complete -o default -F _cmdx cmdx",
        "_cmdx",
    ]


@needs_bash
@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("cmdx ru\tdone_ap\tGreeti", "cmdx run done_app:Greeti"),
        ("cmdx run done_app:Greet na\tAda", "cmdx run done_app:Greet name=Ada"),
        ("cmdx run done_app:Greet size=b\tx", "cmdx run done_app:Greet size=big x"),
        (
            "true && cmdx run done_app:Greet size=b\tx",
            "&& cmdx run done_app:Greet size=big x",
        ),
        (
            "COMP_WORDBREAKS=${COMP_WORDBREAKS//=}\ncmdx run done_app:Greet size=b\tx",
            "Greet size=big x",
        ),
    ],
)
def test_the_tab_key_completes_in_an_interactive_bash(typed, completed):
    command = [BASH, "--norc", "--noprofile", "-i"]
    assert completed in typed_in(command, 'eval "$(cmdx completion bash)"', typed)


def typed_in(command, script, typed):
    """Return what an interactive shell shows after a script, when a line is typed."""
    import pty

    ours, theirs = pty.openpty()
    shell = subprocess.Popen(  # noqa: S603 -- our own script
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**with_cmdx(), "PS1": "> ", "TERM": "dumb", "COLUMNS": "200"},
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, f"{script}\n".encode())
    os.write(ours, f"{typed}\nexit\n".encode())
    shown = read_all(ours)
    shell.wait(timeout=60)
    return shown.replace("\r", "").replace("\a", "")


def read_all(terminal):
    """Return what a terminal shows until nobody else has it open."""
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            piece = b""
        if not piece:
            os.close(terminal)
            return shown.decode()
        shown += piece


# -- zsh -------------------------------------------------------------------------------

ZSH = shutil.which("zsh")


@pytest.mark.skipif(ZSH is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("cmdx run done_app:Greet na\tAda", "name=Ada"),
        ("cmdx run done_app:Greet size=b\t", "size=big"),
        ("true && cmdx run done_app:Greet na\tAda", "name=Ada"),
        ("true; X=1 cmdx run done_app:Greet size=b\t", "size=big"),
        ("true | cmdx run done_ap\tGreetings", "done_app:Greetings"),
    ],
)
def test_the_tab_key_completes_in_an_interactive_zsh(typed, completed):
    script = 'autoload compinit; compinit -u -D; eval "$(cmdx completion zsh)"'
    assert completed in typed_in([ZSH, "-f", "-i"], script, typed)
