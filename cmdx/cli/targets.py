"""
What people name on the command line as ``module:name``.

It is imported from where Python finds it, the working folder included. What cannot be
found is a ``NotFound`` with the cure.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import cmdx
from cmdx.exceptions import did_you_mean
from cmdx.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


class Misuse(Exception):  # noqa: N818 -- it says what it is
    """A command cannot be run as it was written; the message has the cure."""


class NotFound(Misuse):
    """There is no such thing; the message says why, and what to do."""


def load_module(name: str, example: str) -> ModuleType:
    """Import the module *name*; *example* is what to write after the colon."""
    if "/" in name or "\\" in name or name.endswith(".py"):
        dotted = re.sub(r"[/\\]+", ".", name.removesuffix(".py")).strip(".")
        message = f"{name} is a file. Name the module instead: {dotted}:{example}."
        raise NotFound(message)
    try:
        with working_folder_on_path():
            return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            message = (
                f"there is no module {error.name!r}. Write module:{example}, and run "
                "this where Python finds the module: beside it, or where it is "
                "installed."
            )
            raise NotFound(message) from None
        raise _import_failure(name, error) from None
    except (Exception, SystemExit) as error:
        raise _import_failure(name, error) from None


def _import_failure(name: str, error: BaseException) -> NotFound:
    text = " ".join(str(error).split()).removesuffix(".")
    kind = type(error).__name__
    return NotFound(
        f"the module {name!r} cannot be imported: {kind}{text and ': '}{text}. "
        f"Make `import {name}` work first."
    )


@contextmanager
def working_folder_on_path() -> Iterator[None]:
    """Let modules of the working folder be imported, also later than the first one."""
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


def load_attribute(module: ModuleType, path: str, listing: str) -> Any:
    """Return what *path* leads to; *listing* says what there is, in words."""
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            known = [known for known in dir(value) if not known.startswith("_")]
            message = (
                f"{module.__name__} has no {path!r}{did_you_mean(name, known)} "
                f"It is a module with {listing}."
            )
            raise NotFound(message) from None
    return value


def import_task(target: str) -> type[Task[Any]]:
    """Return the task that *target* names, or raise ``NotFound``."""
    name, _, path = target.partition(":")
    if not name:
        message = f"{target!r} names no module. Write it as module:Task."
        raise NotFound(message)
    module = load_module(name, "Task")
    if not path:
        message = f"{name} is a module with {task_listing(module)}. Write {name}:Task."
        raise NotFound(message)
    return check_task(
        target, module, load_attribute(module, path, task_listing(module))
    )


def check_task(target: str, module: ModuleType, value: Any) -> type[Task[Any]]:
    """Return *value* if it is a task, or raise ``NotFound``."""
    if isinstance(value, type) and issubclass(value, Task):
        return value
    # Its type alone: what was named by mistake may be a secret.
    kind = "another class" if isinstance(value, type) else type(value).__name__
    message = (
        f"{target} is not a task but {kind}. Name a class that derives from cmdx.Task; "
        f"{module.__name__} is a module with {task_listing(module)}."
    )
    raise NotFound(message)


def task_listing(module: ModuleType) -> str:
    """Return the tasks of a module in words."""
    tasks = task_names(module)
    if not tasks:
        return "no tasks"
    return f"the task{'s' if len(tasks) > 1 else ''} {', '.join(tasks)}"


def task_names(module: ModuleType) -> list[str]:
    """Return what the tasks of a module are called there, without those of cmdx."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Task)
        and getattr(cmdx, name, None) is not value
    ]
