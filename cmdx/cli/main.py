"""
``python -m cmdx``: the commands.

Each command is a parser with a ``run``: a function that is given the parsed arguments,
prints, and returns the exit code. A ``Misuse``, an error of the library and Ctrl-C are
printed as a line. Its ``cure`` says what to write instead of a word that it does not
take.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from cmdx import CmdxError
from cmdx.cli.completion import add_completion, options_of
from cmdx.cli.inspect import add_inspect
from cmdx.cli.migrate import add_migrate
from cmdx.cli.pages import open_page
from cmdx.cli.queues import add_jobs, add_worker
from cmdx.cli.run import INTERRUPTED, add_run
from cmdx.cli.targets import Misuse, working_folder_on_path

if TYPE_CHECKING:
    from collections.abc import Sequence

DEMO_PAGE = "cmdx-demo.html"
MISUSE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    _replace_closed_streams()
    _replace_what_cannot_be_encoded()
    parser = command_line()
    parsed, words = parser.parse_known_args(arguments)
    _take_words(parsed, words)
    if parsed.run is None:
        parser.print_help()
        return 0
    try:
        with working_folder_on_path():
            code: int = parsed.run(parsed)
        sys.stdout.flush()
    except (Misuse, CmdxError) as problem:
        sys.stderr.write(f"{problem}\n")
        return MISUSE
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _close_stdout()
        return 1
    return code


def _take_words(parsed: argparse.Namespace, words: list[str]) -> None:
    """Give a command the words that it takes among its options; refuse all others."""
    takes_words = hasattr(parsed, "words")
    if takes_words and "--" in words:  # no more options follow
        words.remove("--")
    unknown = [word for word in words if not takes_words or word.startswith("-")]
    if unknown:
        cure = nearest_option(unknown[0], parsed.parser)
        cure = cure or parsed.cure(parsed, unknown[0], words)
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}{cure}")
    if words:
        parsed.words = words


def nearest_option(word: str, parser: argparse.ArgumentParser) -> str:
    """Ask whether an option of *parser* was meant by *word*, if one is near."""
    from difflib import get_close_matches

    # Without dashes, which would make all short options alike.
    names = [option.removeprefix("--") for option in options_of(parser)]
    name = word.partition("=")[0].removeprefix("--")
    near = get_close_matches(name, names, n=1) if word.startswith("-") else ()
    return f"; did you mean --{near[0]}?" if near else ""


def no_cure(*_: object) -> str:
    """Say nothing more; the usage above lists what there is."""
    return ""


class Parser(argparse.ArgumentParser):
    """
    A parser that takes no shortened options; those of its commands are such parsers.

    Its default ``instead`` says, for words that people may try, what to write.
    """

    def __init__(self, **options: Any) -> None:
        # What is almost --everything must not change every job.
        super().__init__(**{**options, "allow_abbrev": False})

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of the choices, and say what to write."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as problem:
            hint = (self.get_default("instead") or {}).get(value)
            if hint is not None:
                problem.message += f"; {hint}"
            raise


def command_line() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="python -m cmdx",
        description="Service objects for Python: tasks that run, retry and report.",
    )
    parser.set_defaults(
        run=None, parser=parser, cure=no_cure, command_line=command_line
    )
    parser.add_argument(
        "--version", action="version", version=f"pycmdx {_installed_version()}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="run a few tasks and print their results",
        description="Run a flaky task, a skipped one, a failed one, and a workflow; or "
        "kill a worker of a queue; or let an endpoint of webhooks fail for a minute.",
    )
    subjects = ("tasks", "queue", "delivery")
    demo.add_argument(
        "subject",
        nargs="?",
        choices=subjects,
        default="tasks",
        help="what to show (default: tasks)",
    )
    demo.add_argument(
        "--html",
        metavar="FILE",
        nargs="?",
        const=DEMO_PAGE,
        help="write the timeline of the workflow as a page, and on a terminal open it "
        f"in a browser (default: {DEMO_PAGE})",
    )
    demo.add_argument("--open", action="store_true", help="open it in any case")
    demo.set_defaults(run=run_demo)
    add_run(commands)
    add_inspect(commands)
    add_migrate(commands)
    add_worker(commands)
    add_jobs(commands)
    add_completion(commands)
    for command in commands.choices.values():
        command.set_defaults(parser=command)  # whose usage is shown for an error
    return parser


def run_demo(asked: argparse.Namespace) -> int:
    """Run the demo."""
    if asked.subject != "tasks" and (asked.html or asked.open):
        raise Misuse(f"The demo of {asked.subject} has no page to write.")
    if asked.subject == "queue":
        from cmdx.cli.demo_queue import show as show_queue

        return 0 if show_queue() else 1
    if asked.subject == "delivery":
        from cmdx.cli.demo_delivery import show as show_deliveries

        return 0 if show_deliveries() else 1
    return show_tasks(asked)


def show_tasks(asked: argparse.Namespace) -> int:
    """Run the demo of tasks, and write the timeline if asked for."""
    from cmdx.cli.demo import show

    path = DEMO_PAGE if asked.open and asked.html is None else asked.html
    opens = asked.open or sys.stdout.isatty()
    with open_page(path, opens=opens) as write_page:
        return 0 if write_page(show()) else 1


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pycmdx")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "(not installed)"


def _replace_closed_streams() -> None:
    """Write to nowhere if the program was started without standard streams."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 -- to the end
            setattr(sys, name, stream)


def _replace_what_cannot_be_encoded() -> None:
    # The marks of results are ASCII where needed; a ``?`` for the rest is better than
    # a traceback.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _close_stdout() -> None:
    """Prevent the interpreter from writing to the broken pipe when it exits."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # replaced by something that is not a file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
