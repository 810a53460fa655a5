"""
The same tasks on a distributed engine that a team already runs.

``cmdx.engines.celery`` has ``CeleryEngine``, and ``cmdx.engines.dramatiq`` has
``DramatiqEngine``. The story is in ``engine``.
"""

from cmdx.engines.engine import (
    Engine,
    EngineMessage,
    Handle,
    TaskFailed,
    current_message,
)

__all__ = ["Engine", "EngineMessage", "Handle", "TaskFailed", "current_message"]
