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

C = TypeVar("C", bound=type)
D = TypeVar("D")


def declare(cls: C, declaration: object, *, by: str) -> C:
    """Add *declaration* to those of *cls*, and have all plans made anew that see it."""
    if not isinstance(cls, type) or not hasattr(cls, "_declarations_"):
        message = (
            f"{by} decorates task classes, got {cls!r}. "
            f"Put @{by}(...) above a class that derives from Task."
        )
        raise DefinitionError(message)
    own = vars(cls).get("_declarations_", ())
    cls._declarations_ = (*own, declaration)
    forget_plans(cls)
    return cls


def declared(cls: type, kind: type[D]) -> Iterator[D]:
    """Yield the declarations of one *kind*, those of the farthest ancestor first."""
    for each in reversed(cls.__mro__):
        for declaration in vars(each).get("_declarations_", ()):
            if isinstance(declaration, kind):
                yield declaration


def forget_plans(cls: Any) -> None:
    """Make *cls* and its descendants compile their plans again."""
    cls._plan_ = LAZY_PLAN
    for child in cls.__subclasses__():
        forget_plans(child)


class LazyPlan:
    """Compiles the plan of a class when it is first asked for."""

    def __get__(self, task: object, cls: Any) -> Any:
        """Compile, and put the plan in this object's place."""
        cls._plan_ = plan = cls._compiled_()
        return plan


LAZY_PLAN = LazyPlan()
