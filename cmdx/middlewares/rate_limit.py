"""
``RateLimit``: at most so many runs in so much time.

The window slides: in any *per* seconds at most *limit* runs begin. Those that were
refused do not count, and are told when there will be room again.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import DefinitionError, clock
from cmdx.middlewares.naming import Shelf, check_count, check_seconds, rest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable

    from cmdx import Result, Task

WHERE = "RateLimit"

MANY = 1024
"""With so many windows it is worth looking for some that nobody needs."""


@attrs.frozen
class Rate:
    """So many runs in so many seconds."""

    limit: int
    per: float = 1.0

    def __attrs_post_init__(self) -> None:
        """Refuse what makes no sense."""
        check_count(WHERE, "limit", self.limit)
        check_seconds(WHERE, "per", self.per)


class RateLimit:
    """
    Refuses the runs of the task beyond *limit* in any *per* seconds.

    All that give the same *name* share the limit. With *by*, a function of the task,
    each of its values has a limit of its own. With *skip* a refused run is skipped
    instead of failed.
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
            raise DefinitionError(f"{WHERE}: by must be a function, got {by!r}.")
        self.by = by
        self.skip = skip
        self.code = code
        self.limiter = limiters.shared(name, _rate(limit, per))

    def __call__(self, task: Task[Any]) -> Generator[None, Result[Any], None]:
        """Refuse, or let it run."""
        limiter = self.limiter
        wait = limiter.ask(None if self.by is None else self.by(task))
        if wait:
            refuse = task.skip if self.skip else task.fail
            reason = f"the rate limit {limiter.name!r} is reached"
            metadata = {"rate_limit": limiter.name, "retry_after": wait}
            refuse(reason, code=self.code, **metadata)
        yield

    def __repr__(self) -> str:
        """Show which limit it is."""
        return f"RateLimit({self.limiter.name!r})"


def _rate(limit: int | None, per: float | None) -> Rate | None:
    if limit is None and per is None:
        return None
    if limit is None:
        raise DefinitionError(f"{WHERE}: give per together with limit.")
    return Rate(limit) if per is None else Rate(limit, per)


class Limiter:
    """The count that all rate limits of one name share, between threads too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: Rate | None = None
        self._windows: dict[Hashable, Window] = {}
        self._many = MANY
        self._lock = Lock()

    def ask(self, key: Hashable = None) -> float:
        """Count a run of *key* and return 0; or return the seconds to wait."""
        rate = self.settings
        if rate is None:
            message = (
                f"{WHERE} {self.name!r} has no limit. "
                f"Give it once: {WHERE}({self.name!r}, limit=10, per=1.0)."
            )
            raise DefinitionError(message)
        with self._lock:
            now = clock.now()  # within the lock, so that time does not go back
            window = self._windows.get(key)
            if window is None:
                if len(self._windows) >= self._many:
                    self._forget_idle(now)
                window = self._windows[key] = Window(rate)
            return window.take(now)

    def clear(self) -> None:
        """Forget all runs so far."""
        with self._lock:
            self._windows.clear()

    def _forget_idle(self, now: float) -> None:
        kept = {key: each for key, each in self._windows.items() if not each.idle(now)}
        self._windows = kept
        self._many = max(MANY, 2 * len(kept))

    def __repr__(self) -> str:
        """Show the name and the rate."""
        return f"<Limiter {self.name!r}: {self.settings}>"


class Window:
    """
    The moments of the runs within the last while; it knows no clock.

    Changed in place, for a copy of all moments would cost more than the decision.
    """

    __slots__ = ("moments", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.moments: deque[float] = deque()

    def take(self, now: float) -> float:
        """Note a run and return 0 if there is room; else return the seconds to wait."""
        moments, per = self.moments, self.rate.per
        if moments and moments[-1] > now:  # they are those of another clock
            moments.clear()
        while moments and moments[0] + per <= now:
            moments.popleft()
        if len(moments) >= self.rate.limit:
            return rest(moments[0] + per, now)
        moments.append(now)
        return 0.0

    def idle(self, now: float) -> bool:
        """Tell whether it remembers nothing that still matters."""
        return not self.moments or not 0 <= now - self.moments[-1] < self.rate.per


limiters: Shelf[Limiter] = Shelf(WHERE, Limiter)
"""All limiters by name."""
