"""
The names of tasks in stored data, and the classes behind them.

A task is called ``module:Qualname``, or what its class keyword ``name=`` says. A name
that comes from stored data is looked up without running anything: among the classes
that are defined, then in a module that may be imported.

1. the name of a class, if it can be found again      ``task_name``
2. the class of a name                                ``find_task``
3. which modules stored data may have imported        ``may_import``
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmdx import Task
from cmdx.declare.keywords import named_tasks
from cmdx.report import error_line
from cmdx.wire.errors import UnknownTaskError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def task_name(cls: type[Task[Any]]) -> str:
    """Return the name of a task in stored data; refuse one that nobody could find."""
    name = cls._cmdx_.keywords.get("name")
    if name is not None:
        return str(name)
    if "<locals>" in cls.__qualname__:
        message = (
            f"{cls.__qualname__} is defined in a function, so stored data cannot refer "
            'to it. Move it to the top of its module, or name it, name="...", and '
            "define it in each process that runs it."
        )
        raise WireError(message)
    if defined_class(cls.__module__, cls.__qualname__) is not cls:
        message = (
            f"{cls.__module__}:{cls.__qualname__} is not this class but another "
            'object, so stored data cannot refer to it. Name the class: name="...".'
        )
        raise WireError(message)
    return f"{task_module(cls)}:{cls.__qualname__}"


def task_module(cls: type[Task[Any]]) -> str:
    """Return the module that another process has to import for a task."""
    if cls.__module__ != "__main__":
        return cls.__module__
    module = main_module()
    if module is not None and not is_typed(cls):
        return module
    message = (
        f"{cls.__qualname__} is defined in the main program, which other processes "
        f"cannot import. {MOVE if is_typed(cls) else main_program_cure()}"
    )
    raise WireError(message)


def name_and_module(cls: type[Task[Any]]) -> tuple[str, str]:
    """Return what finds a task again; of one that cannot be found, its own name."""
    name, module = f"{cls.__module__}:{cls.__qualname__}", cls.__module__
    with suppress(WireError):
        name = task_name(cls)  # which needs no module, if the class has said it
        module = task_module(cls)
    return name, module


def main_module() -> str | None:
    """Return the name by which the main program can be imported; None if it cannot."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = main_file()
    return None if file is None else importable_name(file)


def main_file() -> str | None:
    """Return the file of the main program; None if it has none."""
    return getattr(sys.modules["__main__"], "__file__", None) or file_before_shell()


def file_before_shell() -> str | None:
    """Return the file of ``python -i app.py`` if its shell is open, else None."""
    # Python forgets the ``__file__`` of the main program when it opens the shell.
    if not sys.flags.interactive or hasattr(sys.modules["__main__"], "__file__"):
        return None
    return sys.argv[0] if Path(sys.argv[0]).is_file() else None


def is_typed(cls: type[Task[Any]]) -> bool:
    """Tell whether a class was typed into the shell of ``python -i``."""
    file = main_file() if sys.flags.interactive else None
    if file is None:
        return False
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    return re.search(rf"\b{cls.__name__}\b", text) is None


MOVE = "Move it to a module of its own, and import it from there."


def main_program_cure() -> str:
    """Say how a task of the main program becomes one that others can import."""
    file = main_file()
    if file is not None:
        names, folder = module_and_folder(file)
        if len(names) > 1 and are_identifiers(names):
            return f"Start it as `python -m {'.'.join(names)}` in the folder {folder}."
    return MOVE


@cache
def importable_name(path: str) -> str | None:
    """Return the name of the module in a file; None if no path of ours leads to it."""
    names, folder = module_and_folder(path)
    is_found = folder in {Path(entry).resolve() for entry in sys.path}
    return ".".join(names) if is_found and are_identifiers(names) else None


def module_and_folder(path: str) -> tuple[list[str], Path]:
    """Return the names of a file as a module, and the folder to import it from."""
    file = Path(path).resolve()
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return names, folder


def find_task(name: str, module: str, packages: Sequence[str] = ()) -> type[Task[Any]]:
    """
    Return the task called *name*.

    Args:
        name: What ``task_name`` returned.
        module: The module that had the class when the data was stored.
        packages: Packages and modules that may be imported besides those with tasks.
    """
    stored_in, colon, qualname = name.partition(":")
    module = stored_in if colon else module
    found = lookup(name, module, qualname)
    if found is None and module not in sys.modules:
        import_tasks(name, module, packages)
        found = lookup(name, module, qualname)
    if found is None:
        raise unknown_task(name, "no class has this name")
    if not isinstance(found, type) or not issubclass(found, Task):
        raise unknown_task(name, "it is not a subclass of Task")
    return found


def lookup(name: str, module: str, qualname: str) -> Any:
    """Return what is defined under a name in this process, None if nothing is."""
    if not qualname:
        return named_tasks.get(name)
    found = defined_class(module, qualname)
    if found is None and module == main_module():
        return defined_class("__main__", qualname)
    return found


def defined_class(module: str, qualname: str) -> Any:
    """Return the object at a place in a module that is imported; run no code."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        # Not ``getattr``: stored data must not call properties and ``__getattr__``.
        found = getattr(found, "__dict__", {}).get(part)
    return found


def import_tasks(name: str, module: str, packages: Sequence[str]) -> None:
    """Import the module of a task, if stored data may have it imported."""
    if not are_identifiers(module.split(".")):
        raise unknown_task(name, f"{module!r} is not a module")
    if not may_import(module, packages):
        package = module.partition(".")[0]
        reason = (
            f"{module} is not imported, and this process has no task of {package} yet"
        )
        cure = listing_cure(package, packages)
        raise unknown_task(name, reason, cure, is_gone=False)
    try:
        import_module(module)
    except (Exception, SystemExit) as error:  # a script without a guard may exit
        raise import_failure(name, module, error) from error


def may_import(module: str, packages: Iterable[str]) -> bool:
    """Tell whether stored data may have *module* imported."""
    listed = any(is_in(module, package) for package in packages)
    return listed or module.partition(".")[0] in packages_with_tasks()


def is_in(module: str, package: str) -> bool:
    """Tell whether a module is in a package, or is the package itself."""
    return f"{module}.".startswith(f"{package}.")


def packages_with_tasks() -> set[str]:
    """Return the top-level packages that have a task in this process."""
    modules = (
        main_module() if task.__module__ == "__main__" else task.__module__
        for task in subclasses_of(Task)
    )
    packages = {module.partition(".")[0] for module in modules if module}
    return packages - {"cmdx"}


def subclasses_of(cls: type) -> Iterator[type]:
    """Yield all classes derived from *cls*."""
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from subclasses_of(subclass)


def are_identifiers(names: Iterable[str]) -> bool:
    """Tell whether all *names* can be those of modules."""
    return all(name.isidentifier() for name in names)


ALIAS_OR_DELETE = (
    "keep its old name as an alias if it was renamed or moved, or delete the data"
)
CURE = f"Define the class before its data is loaded, {ALIAS_OR_DELETE}."


def unknown_task(
    name: str, reason: str, cure: str = CURE, *, is_gone: bool = True
) -> UnknownTaskError:
    """Return that a stored task cannot be used, and what to do."""
    problem = f"the stored task {name!r} cannot be used: {reason.removesuffix('.')}."
    return UnknownTaskError(problem, cure, is_gone=is_gone)


def listing_cure(package: str, listed: Sequence[str]) -> str:
    """Say what to do about a package that is not listed, and what is."""
    cure = f"Import it first, or list it, as in Queue(..., tasks=({package!r},))"
    if listed:
        cure += f"; tasks= lists {', '.join(map(repr, listed))} now"
    return f"{cure}."


def import_failure(name: str, module: str, error: BaseException) -> UnknownTaskError:
    """Return that the module of a stored task cannot be imported."""
    is_missing = isinstance(error, ModuleNotFoundError)
    is_gone = is_missing and is_in(module, str(getattr(error, "name", "")))
    cure = f"Make `import {module}` work first"
    cure += f", {ALIAS_OR_DELETE}." if is_gone else "."
    reason = f"{module} cannot be imported: {error_line(error)}"
    return unknown_task(name, reason, cure, is_gone=is_gone)
