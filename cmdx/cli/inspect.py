"""
``python -m cmdx inspect module:Task``: print the contract of a task.

1. ``add_inspect`` adds the command to the command line
2. ``import_task`` imports the module and finds the task, or says why it cannot
3. ``describe`` turns the declarations into text
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import cmdx
from cmdx.cli.describe import describe
from cmdx.exceptions import did_you_mean
from cmdx.task import Task

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from types import ModuleType


class NotFound(Exception):  # noqa: N818 -- it says what became of a search
    """There is no task to describe; the message says why, and what to do."""


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
    module = _import(name)
    if not path:
        message = f"{name} is a module with {_task_listing(module)}. Write {name}:Task."
        raise NotFound(message)
    return _check_task(target, module, _attribute(module, path))


def _import(name: str) -> ModuleType:
    if "/" in name or "\\" in name or name.endswith(".py"):
        dotted = re.sub(r"[/\\]+", ".", name.removesuffix(".py")).strip(".")
        message = f"{name} is a file. Name the module instead: {dotted}:Task."
        raise NotFound(message)
    try:
        with _working_folder_on_path():
            return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            message = (
                f"there is no module {error.name!r}. Write module:Task, and run this "
                "where Python finds the module: beside it, or where it is installed."
            )
            raise NotFound(message) from None
        raise _import_failure(name, error) from None
    except (Exception, SystemExit) as error:
        raise _import_failure(name, error) from None


def _import_failure(name: str, error: BaseException) -> NotFound:
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return NotFound(
        f"the module {name!r} cannot be imported: {kind}{text and ': '}{text}. "
        f"Make `import {name}` work first."
    )


@contextmanager
def _working_folder_on_path() -> Iterator[None]:
    # `python -m cmdx` has the working folder on its path, the script `cmdx` has not.
    here = os.getcwd()  # noqa: PTH109 -- sys.path holds text
    if sys.flags.safe_path or here in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _attribute(module: ModuleType, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            known = [known for known in dir(value) if not known.startswith("_")]
            message = (
                f"{module.__name__} has no {path!r}{did_you_mean(name, known)} "
                f"It is a module with {_task_listing(module)}."
            )
            raise NotFound(message) from None
    return value


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
