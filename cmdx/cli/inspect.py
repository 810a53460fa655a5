"""
``python -m cmdx inspect module:Task``: print the contract of a task.

1. ``add_inspect`` adds the command to the command line
2. ``import_task`` imports the module and finds the task, or says why it cannot
3. ``describe`` turns the declarations into text
4. ``command_that_runs`` says how to run it
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cmdx.cli.describe import command_that_runs, describe
from cmdx.cli.targets import import_task

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def add_inspect(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``inspect``."""
    parser = subparsers.add_parser(
        "inspect",
        help="print the contract of a task",
        description="Print what a task takes, leaves, hooks into and retries.",
    )
    parser.add_argument(
        "task",
        metavar="MODULE:TASK",
        help="where the task is, such as shop.orders:ChargeCard",
    )
    parser.set_defaults(run=run_inspect, cure=run_cure)


def run_inspect(asked: argparse.Namespace) -> int:
    """Print the contract of the task."""
    task = import_task(asked.task)
    sys.stdout.write(f"{describe(task)}\n")
    if command := command_that_runs(task, asked.task):
        sys.stdout.write(f"\nCommand line\n  {command}\n")
    return 0


def run_cure(asked: argparse.Namespace, word: str, _: Sequence[str]) -> str:
    """Name the command that takes an input, if *word* is one."""
    if word.startswith("-") or "=" not in word:
        return ""
    return (
        ". It runs nothing, so it takes no inputs. To run the task, write "
        f"python -m cmdx run {asked.task} {word}"
    )
