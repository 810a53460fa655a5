"""
A run that is continued elsewhere.

A *leg* is the part of a run that is done in one sitting. A pause that is longer than
``longest_pause`` ends the leg: ``Suspended`` is raised, which has all that another
invocation of the same task needs to go on.

1. a pause is too long to be slept here               ``suspend``
2. the leg ends without callbacks and rollback        ``cmdx.run.lifecycle``
3. the suspension is stored as plain data             ``Suspended.to_dict``
4. another invocation goes on where the run stopped   ``resume``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cmdx import clock
from cmdx.chain import chain_of
from cmdx.exceptions import RecordedError
from cmdx.outcome import Attempt
from cmdx.report import error_line, error_name, error_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cmdx.inputs.errors import Problem
    from cmdx.run.record import Run


class Suspended(BaseException):
    """
    A run has to wait longer than ``longest_pause``, and can be continued elsewhere.

    It is neither an error nor an interrupt: the run is not rolled back, and not
    announced as cancelled. Run another invocation of the same task with
    ``run(earlier=suspended)`` after *pause* seconds, in this process or another one.

    Args:
        run_id: The id of the run.
        xid: The correlation id of its chain.
        started_at: When its first leg began, in seconds of the wall clock.
        attempts: The calls of ``work`` so far.
        metadata: What the task has noted down.
        errors: The problems that the task has collected.
        pause: The seconds to wait before the next attempt.
    """

    def __init__(  # noqa: PLR0913 -- by keyword
        self,
        *,
        run_id: str,
        xid: str | None,
        started_at: float,
        attempts: Iterable[Attempt],
        metadata: Mapping[str, Any],
        errors: Iterable[Problem],
        pause: float,
    ) -> None:
        super().__init__(f"the run {run_id} goes on in {pause} s")
        self.run_id = run_id
        self.xid = xid
        self.started_at = started_at
        self.attempts = tuple(attempts)
        self.metadata = dict(metadata)
        self.errors = tuple(errors)
        self.pause = pause

    def to_dict(self) -> dict[str, Any]:
        """Return the suspension as plain data, to be stored as JSON."""
        from cmdx.values import json_data

        return {
            "run_id": self.run_id,
            "xid": self.xid,
            "started_at": self.started_at,
            "attempts": [attempt_data(attempt) for attempt in self.attempts],
            "metadata": json_data(self.metadata),
            "errors": [list(problem) for problem in self.errors],
            "pause": self.pause,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Suspended:
        """Return the suspension that ``to_dict`` made *data* of."""
        from cmdx.inputs.errors import Problem

        try:
            attempts = [attempt_from(attempt) for attempt in data["attempts"]]
            errors = [Problem(*problem) for problem in data["errors"]]
            return cls(**{**data, "attempts": attempts, "errors": errors})
        except (LookupError, TypeError) as error:
            message = (
                f"this is not what Suspended.to_dict() returns: {error_line(error)}. "
                "Store it as JSON, and give it back unchanged."
            )
            raise ValueError(message) from None


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as plain data."""
    error = attempt.error
    recorded = None if error is None else vars(record_error(error))
    return {**attempt._asdict(), "error": recorded}


def attempt_from(data: Mapping[str, Any]) -> Attempt:
    """Return the attempt that ``attempt_data`` made *data* of."""
    error = data["error"]
    return Attempt(
        **{**data, "error": None if error is None else RecordedError(**error)}
    )


def record_error(error: BaseException) -> RecordedError:
    """Return what can be stored of *error*."""
    if isinstance(error, RecordedError):
        return error
    from traceback import format_exception

    frames = "".join(format_exception(error)) if error.__traceback__ else ""
    return RecordedError(error_name(error), error_text(error), frames)


def suspend(run: Run) -> Suspended:
    """Return what leaves the leg of *run* in place of a pause."""
    attempts = [Attempt(*fields) for fields in run.record.attempts]
    return Suspended(
        run_id=run.tid,
        xid=None if run.chain is None else run.chain.xid,
        started_at=run.started_at,
        attempts=[
            attempt._replace(error=attempt.error and record_error(attempt.error))
            for attempt in attempts
        ],
        metadata=run._metadata or {},
        errors=run._errors or (),
        pause=run.pause,
    )


def is_suspension(error: BaseException, run: Run) -> bool:
    """Tell whether *error* ends a leg of *run*, rather than the run."""
    return isinstance(error, Suspended) and error.run_id == run._tid


def check_earlier(earlier: object) -> Suspended:
    """Return the suspension that is to be continued; refuse anything else."""
    if isinstance(earlier, Mapping):
        earlier = Suspended.from_dict(earlier)
    if not isinstance(earlier, Suspended) or not earlier.attempts:
        message = (
            f"earlier must be a Suspended that a run has raised, or its to_dict(), "
            f"got {type(earlier).__qualname__}."
        )
        raise TypeError(message)
    return earlier


def resume(run: Run, earlier: Suspended) -> None:
    """Have *run*, which has just begun, go on where *earlier* stopped."""
    run.earlier = earlier
    run._tid = earlier.run_id
    run.started -= clock.current.get().time() - earlier.started_at
    run.started_at = earlier.started_at
    run.attempt = len(earlier.attempts)
    run.pause = earlier.pause
    run.record.attempts = list(earlier.attempts)
    run.retries_by_rule = retries_by_rule(earlier.attempts)
    run.metadata.update(earlier.metadata)
    if earlier.xid is not None:
        chain_of(run).xid = earlier.xid


def retries_by_rule(
    attempts: Iterable[Attempt],
) -> dict[str | None, tuple[int, float]]:
    """Return how often each rule has tried again, and its last pause."""
    known: dict[str | None, tuple[int, float]] = {}
    for attempt in attempts:
        count, _ = known.get(attempt.rule, (0, 0.0))
        known[attempt.rule] = count + 1, attempt.pause or 0.0
    return known
