"""
Scopes: parts of a run that the code inside of them can find.

Coroutines and threads that are started in a scope have a copy of the context variables,
so they find it as well. But it does not wait for them: it may go on while they run.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Scope:
    """A part of a run, to be entered by ``with``."""

    is_open = False

    def __enter__(self) -> None:
        """Let the code inside find the scope."""
        self._outer = open_scopes.get()
        self._token = open_scopes.set((*self._outer, self))
        self.is_open = True

    def __exit__(self, *_error: object) -> None:
        """Hide it again; what lives longer than the scope sees that it is closed."""
        self.is_open = False
        if self.is_waiting():  # else the run was closed in another context
            open_scopes.set(self._outer)

    def is_waiting(self) -> bool:
        """Tell whether the scope goes on only after the code that asks."""
        scopes = open_scopes.get()
        try:
            open_scopes.reset(self._token)  # refused in a copy of the context
        except (ValueError, RuntimeError):  # the other one while the scope itself asks
            return False
        self._token = open_scopes.set(scopes)
        return True

    def wait_for_this_context(self) -> None:
        """Have the scope wait for the code that runs in the current context."""
        scopes = open_scopes.get()
        open_scopes.set(())  # a token keeps the value before, which has this scope
        self._token = open_scopes.set(scopes)


open_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("cmdx.scopes", default=())


def waiting_scopes() -> tuple[Scope, ...]:
    """Return the scopes that wait for the code that asks, the outermost first."""
    return tuple(scope for scope in open_scopes.get() if scope.is_waiting())


def hand_over(scopes: Iterable[Scope]) -> None:
    """Have *scopes* wait for the code that runs in the current context."""
    for scope in scopes:
        scope.wait_for_this_context()
