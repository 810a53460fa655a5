"""
``python -m cmdx``: see the library at work.

Each command is a parser with a ``run``: a function of the parsed arguments that
prints, and returns the exit code. What a command needs is imported when it runs.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cmdx.inspecting import add_inspect

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that is asked for, and return its exit code."""
    _print_what_can_be_printed()
    parser = command_line()
    asked = parser.parse_args(arguments)
    if asked.run is None:
        parser.print_help()
        return 0
    code: int = asked.run(asked)
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
        help="run a few tasks and print what became of them",
        description="Run a flaky task, a skipped one, a failed one, and a chain.",
    )
    demo.set_defaults(run=run_demo)
    add_inspect(commands)
    return parser


def run_demo(_: argparse.Namespace) -> int:
    """Run the demo."""
    from cmdx.demo import show

    show()
    return 0


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pycmdx")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "(not installed)"


def _print_what_can_be_printed() -> None:
    # A terminal without ✓ shows ? in its place, which beats a traceback.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
