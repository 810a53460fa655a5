"""
One structlog line per run.

Silent until the application has configured structlog, or calls ``enable_logging``.
Neither inputs nor context are ever part of it, unless ``log_fields`` asks for them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from cmdx.exceptions import DefinitionError
from cmdx.outcome import Status

if TYPE_CHECKING:
    from cmdx.invocation import Invocation
    from cmdx.result import Result

# The numbers of the standard library, which is imported when a line is written.
INFO, WARNING = 20, 30

FIELDS = (
    "task", "type", "tid", "cid", "xid", "index", "root", "parent_tid", "depth", "tags",
    "state", "status", "reason", "metadata", "cause", "origin", "retries", "retried",
    "stopped", "duration", "strict", "deprecated", "rolled_back",
)  # fmt: skip


def enable_logging(renderer: Literal["console", "json"] = "console") -> None:
    """Configure structlog so that each run writes a line, for people or machines."""
    import logging

    import structlog

    if renderer not in ("console", "json"):
        message = f'enable_logging takes "console" or "json", got {renderer!r}.'
        raise DefinitionError(message)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer()
            if renderer == "console"
            else structlog.processors.JSONRenderer(default=repr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )


def wanted() -> bool:
    """Tell whether the application has configured structlog."""
    structlog = sys.modules.get("structlog")
    return structlog is not None and structlog.is_configured()


def log_result(result: Result[Any]) -> None:
    """Write the line of a run; never let logging change it."""
    import logging

    import structlog

    settings = result.task._plan_.settings
    level = settings.log_level or _level(result)
    try:
        line = line_of(result, settings.log_fields)
        structlog.get_logger("cmdx").log(level, "task_executed", **line)
    except Exception:
        logging.getLogger("cmdx").exception("the log line of %r failed", result.task)


def line_of(result: Result[Any], extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of the line: facts about the run, and what *extra* names."""
    facts = result.to_dict()
    line = {name: facts[name] for name in FIELDS}
    if result.retried:
        line |= _nesting(result)
    for name in extra:
        holder, _, key = name.partition(".")
        value = facts["value"] if holder == "value" else getattr(result, holder)
        line[name] = _plain(value.get(key) if key else value)
    return line


def _nesting(result: Result[Any]) -> dict[str, int]:
    """Say how many policies are around the one that retried, and what they multiply."""
    from cmdx.retry import nesting

    depth, product = nesting(result._record.task)
    return {"retry_depth": depth, "retry_product": product}


def log_deprecation(task: Invocation) -> None:
    """Write a line about a deprecated task that is run."""
    if wanted():
        task.logger.warning("task_deprecated")
        return
    import logging

    logging.getLogger("cmdx").warning("%s is deprecated", type(task).__qualname__)


def bound_logger(task: Invocation, cid: str | None) -> Any:
    """Return a structlog logger that knows which run it writes for."""
    import structlog

    known = {"cid": cid} if cid is not None else {}
    return structlog.get_logger("cmdx").bind(
        task=type(task).__qualname__, tid=task.tid, **known
    )


def level_number(level: int | str | None) -> int | None:
    """Return the number of a level given by number or name, None if there is none."""
    if isinstance(level, str):
        import logging

        return logging.getLevelNamesMapping().get(level.upper())
    return level if type(level) is int else None


def _level(result: Result[Any]) -> int:
    troubled = result.failed or (result.deprecated and result.status is Status.SKIPPED)
    return WARNING if troubled else INFO


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else value
