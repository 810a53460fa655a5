"""
What people name on the command line as ``module:name``.

1. a target without a module, or with a file, is refused     ``load_target``
2. the module is imported                                    ``load_module``
3. what is named in it is looked up                          ``load_attribute``

A module is imported from where Python finds it, the working folder included. What
cannot be found is a ``NotFound`` with the cure.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from importlib import import_module
from inspect import isbuiltin, isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

import cmdx
from cmdx.exceptions import did_you_mean
from cmdx.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


class Misuse(Exception):  # noqa: N818 -- it says what it is
    """A command cannot be run as it was written; the message has the cure."""


class NotFound(Misuse):
    """There is no such thing; the message says why, and what to do."""


@attrs.frozen
class Kind:
    """
    What a command looks for in a module.

    Args:
        noun: Such as ``task``.
        example: A name to show where no module is known.
        names_of: What lists the names in a module.
    """

    noun: str
    example: str
    names_of: Callable[[ModuleType], list[str]]

    def listing(self, module: ModuleType) -> str:
        """Return what there is in *module*, in words."""
        names = self.names_of(module)
        if not names:
            return f"no {self.noun}s"
        shown = (repr(name) if name.islower() else name for name in names)
        return f"the {self.noun}{'s' if len(names) > 1 else ''} {', '.join(shown)}"


def load_target(target: str, kind: Kind) -> tuple[ModuleType, Any]:
    """Return the module that *target* names, and what it names there."""
    name, _, path = target.partition(":")
    if not name:
        message = f"{target!r} names no module. Write it as module:{kind.example}."
        raise NotFound(message)
    if "/" in name or "\\" in name or name.endswith(".py"):
        raise NotFound(f"{name} is a file. {module_cure(name, path, kind)}")
    if not path:
        raise incomplete_target(name, kind)
    module = load_module(name, kind.example)
    return module, load_attribute(module, path, kind)


def module_cure(file: str, path: str, kind: Kind) -> str:
    """Say which module to name instead of a *file*."""
    if Path(file).suffix not in ("", ".py"):  # such as the database of a queue
        return f"Name the module that has the {kind.noun}: module:{kind.example}."
    return f"Name the module instead: {module_target(file, path, kind)}."


def module_target(file: str, path: str, kind: Kind) -> str:
    """Return what to write for *path* in a *file*, or for the first name in it."""
    dotted = re.sub(r"[/\\]+", ".", file.removesuffix(".py")).strip(".")
    names = names_in(dotted, kind)
    is_known = not names or path.partition(".")[0] in names
    return f"{dotted}:{path if path and is_known else [*names, kind.example][0]}"


def incomplete_target(name: str, kind: Kind) -> NotFound:
    """Return the answer to a target with a module alone, or a dot for the colon."""
    try:
        module = load_module(name, kind.example)
    except NotFound as problem:
        parent, _, last = name.rpartition(".")
        if parent and last in names_in(parent, kind):
            cure = f"Did you mean {parent}:{last}?"
            return NotFound(f"there is no module {name!r}. {cure}")
        # Not asked before: a module of a package may be called like a file.
        if "." in name and Path(name).is_file():
            return NotFound(f"{name} is a file. {module_cure(name, '', kind)}")
        return problem
    names = kind.names_of(module)
    cure = f"Name the one that has the {kind.noun}."
    if names:
        cure = f"Write {'one of them, such as ' * (len(names) > 1)}{name}:{names[0]}."
    return NotFound(f"{name} is a module with {kind.listing(module)}. {cure}")


def names_in(name: str, kind: Kind) -> list[str]:
    """Return what a module has; nothing if it cannot be imported."""
    try:
        return kind.names_of(load_module(name, kind.example))
    except NotFound:
        return []


def load_module(name: str, example: str) -> ModuleType:
    """Import the module *name*; *example* is what to write after the colon."""
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


def load_attribute(module: ModuleType, path: str, kind: Kind) -> Any:
    """Return what *path* leads to, which is to be of a *kind*."""
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            names = kind.names_of(module) if value is module else dir(value)
            known = [known for known in names if not known.startswith("_")]
            message = (
                f"{module.__name__} has no {path!r}{did_you_mean(name, known)} "
                f"It is a module with {kind.listing(module)}."
            )
            raise NotFound(message) from None
    return value


def kind_of(value: object) -> str:
    """Return what *value* is, in words; never its text, which may be a secret."""
    if isinstance(value, type):
        return "a task" if issubclass(value, Task) else "another class"
    if isfunction(value) or isbuiltin(value):
        return "a function"
    return f"an object of class {type(value).__name__}"


# -- tasks -----------------------------------------------------------------------------


def import_task(target: str) -> type[Task[Any]]:
    """Return the task that *target* names, or raise ``NotFound``."""
    module, value = load_target(target, TASK)
    if isinstance(value, type) and issubclass(value, Task):
        return value
    message = (
        f"{target} is not a task but {kind_of(value)}. Name a class that derives from "
        f"cmdx.Task; {module.__name__} is a module with {TASK.listing(module)}."
    )
    raise NotFound(message)


def task_names(module: ModuleType) -> list[str]:
    """Return what the tasks of a module are called there, without those of cmdx."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Task)
        and getattr(cmdx, name, None) is not value
    ]


TASK = Kind("task", "Task", task_names)
