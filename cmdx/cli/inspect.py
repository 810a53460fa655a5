"""
``python -m cmdx inspect module:Task``: print the contract of a task.

1. ``add_inspect`` adds the command to the command line
2. ``import_task`` imports the module and finds the task, or says why it cannot
3. ``describe`` turns the declarations into text
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import cmdx
from cmdx.cli.describe import describe
from cmdx.cli.targets import NotFound, load_attribute, load_module
from cmdx.task import Task

if TYPE_CHECKING:
    import argparse
    from types import ModuleType


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
    parser.set_defaults(run=run_inspect)


def run_inspect(asked: argparse.Namespace) -> int:
    """Print the contract of the task, or an error message."""
    try:
        task = import_task(asked.task)
    except NotFound as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    sys.stdout.write(f"{describe(task)}\n")
    return 0


def import_task(target: str) -> type[Task[Any]]:
    """Return the task that *target* names, or raise ``NotFound``."""
    name, _, path = target.partition(":")
    if not name:
        message = f"{target!r} names no module. Write it as module:Task."
        raise NotFound(message)
    module = load_module(name, "Task")
    if not path:
        message = f"{name} is a module with {_task_listing(module)}. Write {name}:Task."
        raise NotFound(message)
    return _check_task(
        target, module, load_attribute(module, path, _task_listing(module))
    )


def _check_task(target: str, module: ModuleType, value: Any) -> type[Task[Any]]:
    if isinstance(value, type) and issubclass(value, Task):
        return value
    # Its type alone: what was named by mistake may be a secret.
    kind = "another class" if isinstance(value, type) else type(value).__name__
    message = (
        f"{target} is not a task but {kind}. Name a class that derives from cmdx.Task; "
        f"{module.__name__} is a module with {_task_listing(module)}."
    )
    raise NotFound(message)


def _task_listing(module: ModuleType) -> str:
    tasks = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Task)
        and getattr(cmdx, name, None) is not value
    ]
    if not tasks:
        return "no tasks"
    return f"the task{'s' if len(tasks) > 1 else ''} {', '.join(tasks)}"
