"""
One structlog line per run.

Silent until the application has configured structlog, or calls ``enable_logging``.
Neither inputs nor context are ever part of it, unless ``log_fields`` asks for them.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TextIO

from cmdx.exceptions import DefinitionError
from cmdx.locks import lock_for_fork
from cmdx.outcome import Status
from cmdx.report import (
    duration_text,
    encoding_of,
    error_line,
    escape_controls,
    marks,
    printable,
    retries_text,
)
from cmdx.values import json_text, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    from cmdx.result import Result
    from cmdx.run.invocation import Invocation
    from cmdx.run.record import Run

# The numbers of the standard library, which is imported when a line is written.
INFO, WARNING = 20, 30
METHODS = ((50, "critical"), (40, "error"), (WARNING, "warning"), (INFO, "info"))
"""The methods of a structlog logger by level, the highest first; below is ``debug``."""

FIELDS = (
    "task", "type", "tid", "cid", "xid", "index", "root", "parent_tid", "depth", "tags",
    "state", "status", "reason", "metadata", "cause", "origin", "retries", "retried",
    "stopped", "duration", "strict", "deprecated", "rolled_back", "rollback_error",
    "compensated", "conflicts", "replaced", "halted_at", "guidance",
)  # fmt: skip

DIM, RED, YELLOW, GREEN, PLAIN = (
    "\x1b[2m",
    "\x1b[31m",
    "\x1b[33m",
    "\x1b[32m",
    "\x1b[0m",
)
COLORS = {Status.SUCCESS: GREEN, Status.SKIPPED: YELLOW, Status.FAILED: RED}


def enable_logging(
    renderer: Literal["console", "json"] = "console", *, stream: TextIO | None = None
) -> None:
    """
    Configure structlog so that each run writes a line.

    The console line has colours only on a terminal, and not if ``NO_COLOR`` is set.

    Args:
        renderer: ``"console"`` for people, ``"json"`` for programs.
        stream: Where to write; ``sys.stderr`` by default.
    """
    import logging

    import structlog

    if renderer not in ("console", "json"):
        message = f'enable_logging takes "console" or "json", got {renderer!r}.'
        raise DefinitionError(message)
    output = stream or sys.stderr
    render: list[Any] = [ConsoleLine(output)]
    if renderer == "json":
        render = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            json_line,
        ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=StreamLogger(output),
    )


class StreamLogger:
    """
    Writes lines to a stream, as structlog's own does, but also in a forked child.

    It is its own factory: all loggers write to one stream, one line at a time.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lock = lock_for_fork()

    def __call__(self, *_: Any) -> StreamLogger:
        """Return the logger, whatever it is called."""
        return self

    def msg(self, line: str) -> None:
        """Write a line."""
        with self.lock:
            self.stream.write(f"{line}\n")
            self.stream.flush()

    log = debug = info = warn = warning = error = critical = fatal = exception = msg


def wants_colors(stream: TextIO) -> bool:
    """Tell whether *stream* is a terminal of somebody who wants colours."""
    import os

    return not os.environ.get("NO_COLOR") and stream.isatty()


def json_line(_logger: object, _method: str, event: Mapping[str, Any]) -> str:
    """Render an event as JSON that every stream can encode."""
    return json_text(event, ascii_only=True)


class ConsoleLine:
    """Renders an event as a short line: mark, task, duration, reason, other facts."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.has_colors = wants_colors(stream)

    def __call__(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> str:
        """Render the line of a run, or what ``self.logger`` was told."""
        is_run = event.keys() >= set(FIELDS)
        line = self.line_of_run(event) if is_run else self.line_of_message(event)
        encoding = encoding_of(self.stream)
        return line.rstrip().encode(encoding, "replace").decode(encoding)

    def line_of_run(self, event: MutableMapping[str, Any]) -> str:
        """Render the line that is written at the end of a run."""
        status = Status(event["status"])
        shapes = marks(self.stream)
        words = [str(event["task"]), duration_text(event["duration"], shapes)]
        if event["retries"]:
            words.append(retries_text(event["retries"]))
        words += filter(None, (event["reason"], *troubles_in(event)))
        others = {
            name: value
            for name, value in event.items()
            if name not in FIELDS and name not in HIDDEN
        }
        words += pairs_of({**event["metadata"], **others})
        mark = self.paint(shapes.of(status), COLORS[status])
        return f"{mark} {printable(' '.join(words))} {self.short_id(event)}"

    def line_of_message(self, event: MutableMapping[str, Any]) -> str:
        """Render what ``self.logger``, or any other logger, was told."""
        level = str(event.get("level", "info"))
        known = {name: event[name] for name in event if name not in HIDDEN}
        task = plain_text(known.pop("task", ""))
        words = [f"{task}:" if task else "", plain_text(event.get("event", ""))]
        words += pairs_of({name: known[name] for name in known if name not in IDS})
        color = RED if level in ("error", "critical") else YELLOW
        head = "" if level == "info" else f"{self.paint(level, color)} "
        text = printable(" ".join(filter(None, words)))
        line = f"  {head}{text} {self.short_id(event)}"
        trace = plain_text(event.get("exception", "")).splitlines()
        return "\n".join((line.rstrip(), *map(escape_controls, trace)))

    def short_id(self, event: MutableMapping[str, Any]) -> str:
        """Return the end of the id of the chain, to tell lines of one chain by."""
        cid = str(event.get("cid") or "")
        return self.paint(f"#{cid[-6:]}", DIM) if cid else ""

    def paint(self, text: str, color: str) -> str:
        """Return *text* in *color*, if there are colours."""
        return f"{color}{text}{PLAIN}" if self.has_colors else text


IDS = ("tid", "cid")
HIDDEN = ("event", "level", "exception", "retry_depth", "retry_product")


def troubles_in(event: MutableMapping[str, Any]) -> list[str]:
    """Say what else people should know: a rollback, conflicting writes."""
    troubles = []
    if event["rollback_error"]:
        troubles.append(f"(rollback failed: {event['rollback_error']})")
    elif event["rolled_back"]:
        troubles.append("(rolled back)")
    if event["conflicts"]:
        keys = ", ".join(conflict["key"] for conflict in event["conflicts"])
        troubles.append(f"(conflicting writes: {keys})")
    return troubles


def pairs_of(facts: Mapping[Any, Any]) -> list[str]:
    """Return *facts* as words like ``code=404``."""
    return [f"{plain_text(name)}={plain_text(facts[name])}" for name in facts]


def is_enabled() -> bool:
    """Tell whether the application has configured structlog."""
    if "structlog" not in sys.modules:  # who configures it has imported it
        return False
    structlog: Any = sys.modules["structlog"]
    return structlog.is_configured() and not is_left_by_capture(structlog)


def is_left_by_capture(structlog: Any) -> bool:
    """
    Tell whether structlog is configured only because ``capture_logs`` was used.

    Leaving its block sets the processors to what they were. ``configure()`` without
    arguments does not set them, unless they were set before.
    """
    module = vars(structlog._config)
    if "default_processors" not in getattr(module.get("_CONFIG"), "__dict__", {}):
        return False
    return all(
        setting == module.get(BUILT_IN_SETTINGS.get(name, ""), setting)
        for name, setting in structlog.get_config().items()
    )


BUILT_IN_SETTINGS = {
    "processors": "_BUILTIN_DEFAULT_PROCESSORS",
    "context_class": "_BUILTIN_DEFAULT_CONTEXT_CLASS",
    "wrapper_class": "_BUILTIN_DEFAULT_WRAPPER_CLASS",
    "logger_factory": "_BUILTIN_DEFAULT_LOGGER_FACTORY",
    "cache_logger_on_first_use": "_BUILTIN_CACHE_LOGGER_ON_FIRST_USE",
}
"""Where structlog keeps what each setting is until somebody changes it."""


def log_result(result: Result[Any]) -> None:
    """Write the line of a run."""
    settings = result._record.run.plan.settings
    level = level_of(result) if settings.log_level is None else settings.log_level
    with reported_failures(result.task):
        line = line_of(result, settings.log_fields)
        write_line(new_logger(), level, "task_executed", **line)


def log_compensation(step: Invocation) -> None:
    """Write a line about a step that was rolled back after its own line was written."""
    if is_enabled() and step._cmdx_.plan.settings.log:
        with reported_failures(type(step)):
            write_line(step.logger, INFO, "task_rolled_back")


def log_failed_rollback(task: Invocation, error: BaseException) -> None:
    """Write a warning about a rollback that raised."""
    if is_enabled() and task._cmdx_.plan.settings.log:
        with reported_failures(type(task)):
            line = {"error": error_line(error)}
            write_line(task.logger, WARNING, "rollback_failed", **line)


def log_deprecation(task: Invocation) -> None:
    """Write a line about a deprecated task that is run."""
    if is_enabled():
        with reported_failures(type(task)):
            write_line(task.logger, WARNING, "task_deprecated")
        return
    import logging

    logging.getLogger("cmdx").warning("%s is deprecated", type(task).__qualname__)


@contextmanager
def reported_failures(task: type[object]) -> Iterator[None]:
    """Report what the block raises: logging never changes a run."""
    try:
        yield
    except Exception:
        import logging

        logging.getLogger("cmdx").exception("the log line of %r failed", task)


def write_line(logger: Any, level: int, event: str, /, **line: Any) -> None:
    """Write a line by the method for *level*: not every logger has ``log``."""
    import structlog

    if isinstance(logger, structlog.stdlib.AsyncBoundLogger):
        logger = logger.sync_bl  # nothing awaits its methods
    method = next((name for least, name in METHODS if level >= least), "debug")
    getattr(logger, method)(event, **line)


def line_of(result: Result[Any], extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of the line: facts about the run, and what *extra* names."""
    facts = result.to_dict()
    line = {name: facts[name] for name in FIELDS}
    if result.retried:
        line |= nesting_of(result)
    for name in extra:
        holder, _, key = name.partition(".")
        value = facts["value"] if holder == "value" else getattr(result, holder)
        line[name] = plain(entry_of(value, key) if key else value)
    return line


def entry_of(value: Any, key: str) -> Any:
    """Return the entry *key* of a context or mapping, None of anything else."""
    return value.get(key) if hasattr(value, "get") else None


def nesting_of(result: Result[Any]) -> dict[str, int]:
    """Return how many policies are around the one that retried, and their product."""
    from cmdx.retry.decide import nesting

    depth, product = nesting(result._record.run)
    return {"retry_depth": depth, "retry_product": product}


def bound_logger(run: Run, cid: str | None) -> Any:
    """Return a structlog logger bound to *run*, or a silent one."""
    if not is_enabled():
        return SilentLogger()
    known = {"cid": cid} if cid is not None else {}
    return new_logger(task=run.task.__qualname__, tid=run.tid, **known)


def new_logger(**bound: Any) -> Any:
    """Return a logger as the application has configured it, with *bound* values."""
    import structlog

    logger = structlog.get_logger("cmdx")
    try:
        return logger.bind(**bound)
    except RuntimeError:  # ``AsyncBoundLogger`` needs a running event loop
        logger = structlog.wrap_logger(
            None,
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory_args=("cmdx",),
        )
        return logger.bind(**bound)


class SilentLogger:
    """Takes whatever a structlog logger takes, and does nothing."""

    def __getattr__(self, name: str) -> Any:
        """Return a method that returns this logger."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self


def level_number(level: int | str | None) -> int | None:
    """Return the number of a level given by number or name, None if there is none."""
    if isinstance(level, str):
        import logging

        return logging.getLevelNamesMapping().get(level.upper())
    return level if type(level) is int else None


def level_of(result: Result[Any]) -> int:
    """Return the level of the line of *result*."""
    warns = result.failed or (result.deprecated and result.skipped)
    return WARNING if warns else INFO


def plain(value: Any) -> Any:
    """Return a context or errors as a dict, anything else as it is."""
    return value.to_dict() if hasattr(value, "to_dict") else value
