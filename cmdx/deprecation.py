"""
Tasks that should no longer be run.

``class Old(Task, deprecated="warn")`` says how loudly: ``"log"`` a line, ``"warn"`` a
``DeprecationWarning``, ``"error"`` a ``DeprecatedTaskError``, or call what is given.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.exceptions import DeprecatedTaskError
from cmdx.log import log_deprecation
from cmdx.telemetry import send, task_deprecated

if TYPE_CHECKING:
    from cmdx.gates import Ask
    from cmdx.invocation import Invocation

Deprecation: TypeAlias = str | Callable[..., Any]


def compiled_deprecation(
    deprecated: Deprecation | None, gate: Ask | None
) -> Callable[[Invocation], None] | None:
    """Return what is to be called when the task runs, or None; it may raise or halt."""
    if deprecated is None:
        return None
    say = LOUDNESS[deprecated] if isinstance(deprecated, str) else deprecated

    def announce(task: Invocation) -> None:
        if gate is not None and not gate(task):
            return
        task._deprecated_ = True
        if task_deprecated.receivers:
            send(task_deprecated, task)
        say(task)

    return announce


def _sentence(task: Invocation) -> str:
    return f"{type(task).__qualname__} is deprecated and should no longer be run"


def _warn(task: Invocation) -> None:
    warnings.warn(_sentence(task), DeprecationWarning, stacklevel=_frames_of_ours() + 1)


def _raise(task: Invocation) -> None:
    message = f"{_sentence(task)}. Run what replaces it."
    raise DeprecatedTaskError(message)


def _frames_of_ours() -> int:
    """Count the frames of this package below the caller's, so a warning names him."""
    frame, count = sys._getframe(1), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("cmdx."):
        frame, count = frame.f_back, count + 1  # type: ignore[assignment]
    return count


LOUDNESS: dict[str, Callable[[Invocation], Any]] = {
    "log": log_deprecation,
    "warn": _warn,
    "error": _raise,
}
