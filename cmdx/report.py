"""
Results as text and as data: one line, a tree, a timeline, a dict, JSON.

Text is made for people. Control characters are shown escaped, so that a reason cannot
forge a line, and marks are plain ASCII where the terminal has no others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

from cmdx.exceptions import RecordedError, valid_inputs
from cmdx.outcome import Stop
from cmdx.values import HIDDEN, is_secret_name, json_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cmdx.outcome import Attempts, Outcome, Status
    from cmdx.result import Result
    from cmdx.run.invocation import Invocation

N = TypeVar("N")


class Marks(NamedTuple):
    """The characters that stand for statuses, branches and the smallest unit."""

    success: str
    skipped: str
    failed: str
    branch: str
    last_branch: str
    stem: str
    microseconds: str

    def of(self, status: Status) -> str:
        """Return the character for *status*."""
        return str(getattr(self, status.value))


UNICODE_MARKS = Marks("✓", "○", "✗", "├─ ", "└─ ", "│  ", "µs")
ASCII_MARKS = Marks("+", "o", "x", "|- ", "`- ", "|  ", "us")

TWO_DECIMALS_BELOW = 9.95
ONE_DECIMAL_BELOW = 99.5
MINUTE = 60.0
HOUR = 3600.0


def marks(stream: TextIO | None = None) -> Marks:
    """Return the marks that *stream* can print, standard output unless given."""
    try:
        "".join(UNICODE_MARKS).encode(encoding_of(stream))
    except UnicodeError:
        return ASCII_MARKS
    return UNICODE_MARKS


def encoding_of(stream: TextIO | None = None) -> str:
    """Return the encoding of *stream*; ASCII if there is no such encoding."""
    stream = sys.stdout if stream is None else stream
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        "a".encode(encoding)
    except (LookupError, TypeError, ValueError):
        return "ascii"
    return encoding


def mark_of(status: Status, stream: TextIO | None = None) -> str:
    """Return one character for *status* that *stream* can print."""
    return marks(stream).of(status)


# -- text -----------------------------------------------------------------------------


def result_line(result: Result[Any]) -> str:
    """Return the outcome on one line, with the valid inputs if some are missing."""
    shapes = marks()
    duration = duration_text(result.duration, shapes)
    head = f"{shapes.of(result.status)} {shown_name(result)} {duration}"
    sentences = ". ".join(filter(None, (summary_of(result), inputs_text(result))))
    return f"{head}: {sentences}" if sentences else head


def invocation_line(task: Invocation) -> str:
    """
    Return a task with the inputs it was given on one line, secrets hidden.

    Once it runs it shows none: signals and logs pass it on to others.
    """
    run = task._cmdx_
    if run.phase != "new":
        return printable(f"{run.task.__qualname__}(...)")
    values = run.given if run._context is None else run._context
    keys = [plan.key for plan in run.plan.inputs] or list(values)
    given = (key for key in keys if key in values)
    shown = ", ".join(f"{key}={input_text(key, values[key])}" for key in given)
    return printable(f"{run.task.__qualname__}({shown})")


def input_text(key: str, value: object) -> str:
    """Return the value of an input, unless it looks like a secret."""
    return HIDDEN if is_secret_name(key) else value_text(value, hides_secrets=True)


def inputs_text(result: Result[Any]) -> str:
    """Return what callers may pass, if they left out a required input, or no text."""
    missing = {problem.key for problem in result.errors if problem.code == "required"}
    if not missing:
        return ""
    inputs = result._record.run.plan.inputs
    # An input with a source has a key that nobody can pass.
    keys = [plan.key for plan in inputs if plan.key == plan.public_name]
    return "" if missing.isdisjoint(keys) else printable(valid_inputs(keys))


def summary_of(result: Result[Any]) -> str:
    """Say in a few words what became of a run, without name and time."""
    words = []
    if result.retries:
        words.append(retries_text(result.retries))
    if result.reason:
        words.append(result.reason)
    elif result.success and result._record.value is not None:
        words.append(f"value={value_text(result._record.value)}")
    elif result._record.lost_value is not None:
        words.append("value not available")
    words += troubles_of(result)
    return printable(", ".join(words))


def troubles_of(result: Result[Any]) -> list[str]:
    """Say what else people should know: rollbacks and lost writes."""
    troubles = []
    if result.rollback_error is not None:
        troubles.append(f"rollback failed: {error_line(result.rollback_error)}")
    elif result.rolled_back:
        troubles.append("rolled back")
    if result.conflicts:
        keys = ", ".join(conflict.key for conflict in result.conflicts)
        troubles.append(f"conflicting writes: {keys}")
    return troubles


def tree_of(results: Iterable[Result[Any]]) -> str:
    """Return *results* as a tree, children under their parents, in order of start."""
    shapes = marks()
    rows = [
        (
            f"{branch}{shapes.of(result.status)} {shown_name(result)}",
            duration_text(result.duration, shapes),
            summary_of(result),
        )
        for branch, result in branches_of(tree_order(results), shapes)
    ]
    width = longest(name for name, _, _ in rows)
    room = longest(time for _, time, _ in rows)
    lines = (
        f"{name:<{width}}  {time:>{room}}  {summary}" for name, time, summary in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def branches_of(
    rows: Iterable[tuple[int, bool, N]], shapes: Marks
) -> Iterator[tuple[str, N]]:
    """Yield each row of a tree with the lines that lead to it."""
    stems: list[str] = []
    for depth, is_last, node in rows:
        del stems[max(depth - 1, 0) :]
        branch = "" if not depth else shapes.last_branch if is_last else shapes.branch
        yield f"{''.join(stems)}{branch}", node
        if depth:
            stems.append("   " if is_last else shapes.stem)


def longest(texts: Iterable[str]) -> int:
    """Return the length of the longest of *texts*."""
    return max(map(len, texts), default=0)


def tree_order(
    results: Iterable[Result[Any]],
) -> list[tuple[int, bool, Result[Any]]]:
    """Return *results* as the rows of a tree, siblings in order of start."""
    nodes = sorted(results, key=monotonic_start)
    return rows_of({result.tid: (result.parent_tid, result) for result in nodes})


def rows_of(nodes: Mapping[str, tuple[str | None, N]]) -> list[tuple[int, bool, N]]:
    """
    Return *nodes* as the rows of a tree, siblings in their order.

    Each row has the depth, and whether the node is the last of its siblings.

    Args:
        nodes: By its id, each node with the id of its parent.
    """
    children: dict[str | None, list[str]] = {}
    for tid, (parent, _) in nodes.items():
        children.setdefault(parent if parent in nodes else None, []).append(tid)
    rows: list[tuple[int, bool, N]] = []
    stack = [(0, False, tid) for tid in reversed(children.get(None, []))]
    while stack:
        depth, is_last, tid = stack.pop()
        rows.append((depth, is_last, nodes[tid][1]))
        below = children.get(tid, [])
        stack += [(depth + 1, child == below[-1], child) for child in reversed(below)]
    return rows


def monotonic_start(result: Result[Any]) -> float:
    """Return when a run started; the wall clock may stand still or be set back."""
    return result._record.run.started


def shown_name(result: Result[Any]) -> str:
    """Return the name of the task on one line."""
    return printable(result.task.__qualname__)


def retries_text(count: int) -> str:
    """Return how many retries there were."""
    return f"{count} {'retry' if count == 1 else 'retries'}"


def duration_text(seconds: float, shapes: Marks = UNICODE_MARKS) -> str:
    """Return *seconds* in a fitting unit."""
    if seconds >= HOUR:
        return f"{seconds // HOUR:.0f} h {seconds % HOUR // MINUTE:02.0f} min"
    if seconds >= MINUTE - 0.05:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    if seconds >= 0.9995:  # noqa: PLR2004 -- from here on it would be 1000 ms
        return f"{seconds:.{max(decimals_of(seconds), 1)}f} s"
    if seconds >= 0.0009995:  # noqa: PLR2004 -- and here 1000 µs
        return f"{seconds * 1e3:.{decimals_of(seconds * 1e3)}f} ms"
    return f"{seconds * 1e6:.0f} {shapes.microseconds}"


def decimals_of(number: float) -> int:
    """Return how many decimals *number* needs for three digits."""
    return (number < TWO_DECIMALS_BELOW) + (number < ONE_DECIMAL_BELOW)


def timeline_of(attempts: Attempts) -> list[str]:
    """Return a line for each attempt: when, how long, its error, and what came next."""
    shapes = marks()
    starts = [duration_text(attempt.start, shapes) for attempt in attempts]
    times = [duration_text(attempt.duration, shapes) for attempt in attempts]
    digits, room, space = len(str(len(attempts) - 1)), longest(starts), longest(times)
    return [
        f"{number:>{digits}}  at {starts[number]:>{room}}  for {times[number]:>{space}}"
        f"  {ending_of(attempts, number, shapes)}"
        for number in range(len(attempts))
    ]


ENDINGS: dict[Stop | None, str] = {Stop.SUCCESS: "returned", Stop.HALTED: "halted"}
"""How the last attempt ended, if it raised nothing."""


def ending_of(attempts: Attempts, number: int, shapes: Marks) -> str:
    """Say how an attempt ended, and what came next."""
    attempt, is_last = attempts[number], number == len(attempts) - 1
    stopped = attempts.stopped if is_last else None
    if attempt.error is None and stopped in ENDINGS:
        return ENDINGS[stopped]
    words = [error_line(attempt.error) or "no error"]
    if attempt.pause is not None:
        by_rule = "" if attempt.rule is None else f" by {attempt.rule!r}"
        words.append(f"{next_text(attempt.pause, shapes)}{by_rule}")
    if stopped is not None:
        words.append(f"stopped: {stopped.value}")
    return printable(", ".join(words))


def next_text(pause: float, shapes: Marks) -> str:
    """Say when the next attempt follows."""
    return f"then {duration_text(pause, shapes)} pause" if pause else "then at once"


def error_line(error: BaseException | None) -> str | None:
    """Return class and message of *error*, if there is one."""
    if error is None:
        return None
    return f"{error_name(error)}: {error_text(error)}".removesuffix(": ")


def error_name(error: BaseException) -> str:
    """Return the name of the class of *error*, or of what it stands for."""
    if isinstance(error, RecordedError):
        return error_text(error.type_name)
    return type(error).__qualname__


def error_text(error: object) -> str:
    """Return the message of *error*, nothing if it cannot be put into words."""
    try:
        return str(error)
    except Exception:
        return ""


def printable(text: str) -> str:
    """Return *text* on one line, with control characters escaped."""
    return escape_controls(" ".join(text.split()))


def escape_controls(line: str) -> str:
    """Return *line* with control characters escaped, which a terminal would obey."""
    if line.isprintable():
        return line
    return "".join(
        letter if letter.isprintable() else repr(letter)[1:-1] for letter in line
    )


# -- data -----------------------------------------------------------------------------


def facts_of(result: Result[Any]) -> dict[str, Any]:
    """Return the facts of a run as plain data, without the context."""
    return {
        "task": result.task.__qualname__,
        "type": result.type,
        "tid": result.tid,
        "cid": result.cid,
        "xid": result.xid,
        "index": result.index,
        "root": result.root,
        "parent_tid": result.parent_tid,
        "depth": result.depth,
        "tags": list(result.tags),
        "state": result.state.value,
        "status": result.status.value,
        "reason": result.reason,
        "value": result._record.value if result.success else None,
        "metadata": dict(result.metadata),
        "errors": result.errors.to_dict(),
        "cause": error_line(result.cause),
        "origin": None if result.origin is None else name_and_id(result.origin),
        "retries": result.retries,
        "retried": result.retried,
        "stopped": result.stopped and result.stopped.value,
        "attempts": [
            attempt._asdict() | {"error": error_line(attempt.error)}
            for attempt in result.attempts
        ],
        "started_at": result.started_at.isoformat(),
        "duration": result.duration,
        "strict": result.strict,
        "deprecated": result.deprecated,
        "rolled_back": result.rolled_back,
        "rollback_error": error_line(result.rollback_error),
        "compensated": [name_and_id(step) for step in result.compensated],
        "conflicts": [
            {"key": conflict.key, "tasks": list(conflict.tasks)}
            for conflict in result.conflicts
        ],
        "replaced": outcome_data(result.replaced),
        "halted_at": result.halted_at,
        "guidance": guidance_data(result),
        "operation": operation_data(result),
    }


def name_and_id(result: Result[Any]) -> list[str]:
    """Return what identifies a result in the data of another."""
    return [result.task.__qualname__, result.tid]


def outcome_data(outcome: Outcome | None) -> dict[str, Any] | None:
    """Return an outcome that was replaced as plain data."""
    if outcome is None:
        return None
    return {
        "status": outcome.status.value,
        "reason": outcome.reason,
        "cause": error_line(outcome.cause),
    }


def guidance_data(result: Result[Any]) -> dict[str, Any] | None:
    """Return what a failure says about trying again as plain data."""
    guidance = result.guidance
    if guidance is None:
        return None
    return {
        "allowed": guidance.allowed,
        "strategy": guidance.strategy and guidance.strategy.value,
        "after": guidance.after,
        "max_attempts": guidance.max_attempts,
    }


def operation_data(result: Result[Any]) -> dict[str, Any] | None:
    """Return the operation that a run belongs to as plain data."""
    operation = result.operation
    if operation is None:
        return None
    return {
        "id": operation.id,
        "session": operation.session,
        "state": operation.state.value,
        "replayed": operation.replayed,
        "attached": operation.attached,
        "executions": operation.executions,
        "indeterminate": result.indeterminate,
    }


def json_of(result: Result[Any]) -> str:
    """Return the facts as JSON; values that JSON does not know are written as repr."""
    return json_text(facts_of(result))
