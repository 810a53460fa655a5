"""
The same tasks on a distributed engine that a team already runs.

``cmdx.engines.celery`` has ``CeleryEngine``, and ``cmdx.engines.dramatiq`` has
``DramatiqEngine``. The story is in ``engine``.
"""

from typing import TYPE_CHECKING, Any

from cmdx.engines.engine import (
    Engine,
    EngineMessage,
    Handle,
    TaskFailed,
    current_message,
)

__all__ = ["Engine", "EngineMessage", "Handle", "TaskFailed", "current_message"]

_ELSEWHERE = {"CeleryEngine": "celery", "DramatiqEngine": "dramatiq"}

if not TYPE_CHECKING:  # or type checkers would believe that every name is there

    def __getattr__(name: str) -> Any:
        """Raise; say where an engine is that is not imported here."""
        message = f"module {__name__!r} has no attribute {name!r}"
        if name not in _ELSEWHERE:
            raise AttributeError(message)
        place = f"{__name__}.{_ELSEWHERE[name]}"
        cure = f"Write `from {place} import {name}`; it needs an extra."
        raise ImportError(f"{message}. {cure}")
