"""
``python -m cmdx``: the commands.

Each command is a parser with a ``run``: a function that is given the parsed arguments,
prints, and returns the exit code.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from cmdx.cli.inspect import add_inspect
from cmdx.cli.migrate import add_migrate
from cmdx.cli.queues import add_jobs, add_worker

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    _replace_closed_streams()
    _replace_what_cannot_be_encoded()
    parser = command_line()
    parsed = parser.parse_args(arguments)
    if parsed.run is None:
        parser.print_help()
        return 0
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _close_stdout()
        return 1
    return code


def command_line() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m cmdx",
        description="Service objects for Python: tasks that run, retry and report.",
    )
    parser.set_defaults(run=None)
    parser.add_argument(
        "--version", action="version", version=f"pycmdx {_installed_version()}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="run a few tasks and print their results",
        description="Run a flaky task, a skipped one, a failed one, and a chain; or "
        "kill a worker of a queue; or let an endpoint of webhooks fail for a minute.",
    )
    subjects = ("tasks", "queue", "delivery")
    demo.add_argument("subject", nargs="?", choices=subjects, default="tasks")
    demo.set_defaults(run=run_demo)
    add_inspect(commands)
    add_migrate(commands)
    add_worker(commands)
    add_jobs(commands)
    return parser


def run_demo(asked: argparse.Namespace) -> int:
    """Run the demo."""
    if asked.subject == "queue":
        from cmdx.cli.demo_queue import show as show_queue

        return 0 if show_queue() else 1
    if asked.subject == "delivery":
        from cmdx.cli.demo_delivery import show as show_delivery

        return 0 if show_delivery() else 1
    from cmdx.cli.demo import show

    show()
    return 0


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
