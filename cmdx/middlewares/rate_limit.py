"""
``RateLimit``: a limit on the number of runs in a time span.

The window slides: at most *limit* runs begin in any *per* seconds. A refused run does
not count, and its metadata has the seconds until the next one is allowed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import DefinitionError, clock
from cmdx.declare.checks import check_count, check_seconds
from cmdx.locks import new_lock
from cmdx.middlewares.shared import SharedByName, seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable

    from cmdx import Result, Task

SWEEP_FROM = 1024
"""From this many windows on, idle ones are looked for and removed."""


def _as_span(per: object) -> float:
    return check_seconds("RateLimit", "per", per, above_zero=True)


@attrs.frozen
class Rate:
    """At most *limit* runs in *per* seconds."""

    limit: int
    per: float = attrs.field(default=1.0, converter=_as_span)

    def __attrs_post_init__(self) -> None:
        """Check the limit."""
        check_count("RateLimit", "limit", self.limit)


class RateLimit:
    """
    Refuses runs of the task above a limit.

    All rate limits with the same name share one limit. Give its options once; the
    others need only the name.

    Args:
        name: The name of the limit.
        limit: The number of runs that may begin in any *per* seconds.
        per: The time span in seconds; 1 by default.
        by: A function of the task; there is a separate limit for each value it returns.
        skip: Whether a refused run is skipped instead of failed.
        code: The ``code`` in the metadata of a refused run.
    """

    def __init__(  # noqa: PLR0913 -- by keyword
        self,
        name: str,
        *,
        limit: int | None = None,
        per: float | None = None,
        by: Callable[[Task[Any]], Hashable] | None = None,
        skip: bool = False,
        code: str = "RATE_LIMITED",
    ) -> None:
        if by is not None and not callable(by):
            message = f"RateLimit: by must be a function of the task, got {by!r}."
            raise DefinitionError(message)
        self.by = by
        self.skip = skip
        self.code = code
        self.limiter = limiters.get_or_create(name, _rate(limit, per))

    def __call__(self, task: Task[Any]) -> Generator[None, Result[Any], None]:
        """Refuse the run, or let it start."""
        limiter = self.limiter
        wait = limiter.ask(None if self.by is None else self.by(task))
        if wait:
            refuse = task.skip if self.skip else task.fail
            reason = f"the rate limit {limiter.name!r} is reached"
            metadata = {"rate_limit": limiter.name, "retry_after": wait}
            refuse(reason, code=self.code, **metadata)
        yield

    def __repr__(self) -> str:
        """Show the name of the limit."""
        return f"RateLimit({self.limiter.name!r})"


def _rate(limit: int | None, per: float | None) -> Rate | None:
    if limit is None and per is None:
        return None
    if limit is None:
        message = "RateLimit: per needs a limit. Give both, or neither."
        raise DefinitionError(message)
    return Rate(limit) if per is None else Rate(limit, per)


class Limiter:
    """The runs counted for all rate limits of one name, in all threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: Rate | None = None
        self._windows: dict[Hashable, Window] = {}
        self._sweep_from = SWEEP_FROM
        self._lock = new_lock()

    def ask(self, key: Hashable = None) -> float:
        """Count a run of *key* and return 0, or return the seconds to wait."""
        rate = self.settings
        if rate is None:
            message = (
                f"RateLimit {self.name!r} has no limit. "
                f"Give it once: RateLimit({self.name!r}, limit=10, per=1.0)."
            )
            raise DefinitionError(message)
        with self._lock:
            now = clock.now()  # inside the lock, so that times are in order
            window = self._windows.get(key)
            if window is None:
                if len(self._windows) >= self._sweep_from:
                    self._remove_idle_windows(now)
                window = self._windows[key] = Window(rate)
            window.rate = rate  # it may have been declared again
            return window.take(now)

    def clear(self) -> None:
        """Forget all runs so far."""
        with self._lock:
            self._windows.clear()

    def _remove_idle_windows(self, now: float) -> None:
        windows = self._windows.items()
        kept = {key: window for key, window in windows if not window.is_idle(now)}
        self._windows = kept
        self._sweep_from = max(SWEEP_FROM, 2 * len(kept))

    def __repr__(self) -> str:
        """Show the name and the rate."""
        return f"<Limiter {self.name!r}: {self.settings}>"


class Window:
    """
    The start times of the runs in the last *per* seconds.

    It is changed in place, because copying all times would cost more than the decision.
    """

    __slots__ = ("rate", "times")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.times: deque[float] = deque()

    def take(self, now: float) -> float:
        """Count a run and return 0 if one is left; else return the seconds to wait."""
        times, per = self.times, self.rate.per
        if times and times[-1] > now:  # they were read from another clock
            times.clear()
        while times and times[0] + per <= now:
            times.popleft()
        if len(times) >= self.rate.limit:
            return seconds_until(times[0] + per, now)
        times.append(now)
        return 0.0

    def is_idle(self, now: float) -> bool:
        """Tell whether no run in it is recent enough to count."""
        return not self.times or not 0 <= now - self.times[-1] < self.rate.per


limiters: SharedByName[Limiter] = SharedByName("RateLimit", Limiter)
"""All limiters by name."""
