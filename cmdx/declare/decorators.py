"""
What class decorators leave on a class.

Each class keeps its own declarations, in the order they were applied, and none of its
ancestors'. The blueprint folds them over the MRO when a class is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from cmdx.exceptions import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.declare.blueprint import Definition

C = TypeVar("C", bound=type)
D = TypeVar("D")


def declare(cls: C, declaration: object, *, by: str) -> C:
    """Add *declaration* to those of *cls*."""
    if not is_task_class(cls):
        message = (
            f"{by} decorates task classes, got {cls!r}. "
            f"Put @{by}(...) above a class that derives from Task."
        )
        raise DefinitionError(message)
    definition: Definition = vars(cls)["_cmdx_"]
    definition.declarations += (declaration,)
    forget_plans(cls)
    return cls


def withdraw(cls: type, declaration: object) -> None:
    """Take *declaration* off *cls* again."""
    definition: Definition = vars(cls)["_cmdx_"]
    definition.declarations = tuple(
        known for known in definition.declarations if known is not declaration
    )
    forget_plans(cls)


def is_task_class(value: object) -> bool:
    """Tell whether *value* is a class that derives from ``Task``."""
    return isinstance(value, type) and hasattr(value, "_cmdx_")


def definitions(cls: type) -> Iterator[Definition]:
    """Yield what *cls* and its ancestors define, the farthest ancestor's first."""
    for base in reversed(cls.__mro__):
        if "_cmdx_" in vars(base):
            yield vars(base)["_cmdx_"]


def declarations(cls: type, kind: type[D]) -> Iterator[D]:
    """Yield the declarations of one *kind*, those of the farthest ancestor first."""
    for definition in definitions(cls):
        for declaration in definition.declarations:
            if isinstance(declaration, kind):
                yield declaration


def forget_plans(cls: Any) -> None:
    """Make *cls* and its descendants compile their plans again."""
    cls._cmdx_.forget_plan()
    for child in cls.__subclasses__():
        forget_plans(child)
