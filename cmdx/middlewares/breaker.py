"""
``Breaker``: no calls to a dependency that is down.

Before the run the circuit is asked; if it is open the task fails at once, and
``metadata["retry_after"]`` says how long it had better wait. After the run the circuit
is told what the outcome says about the dependency.
"""

from __future__ import annotations

from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

from cmdx import DefinitionError, Fault, clock
from cmdx.middlewares import circuit as decide
from cmdx.middlewares.circuit import Condition, Phase, Thresholds, Verdict
from cmdx.middlewares.naming import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from cmdx import Result, Task
    from cmdx.middlewares.circuit import Answer, Ticket

    Failures = (
        type[BaseException]
        | tuple[type[BaseException], ...]
        | Callable[[Result[Any]], object]
    )

DEFAULTS = Thresholds()


class Breaker:
    """
    Refuses runs of the task while the circuit called *name* is open.

    *failures* in a row open it, or *ratio* of at least *minimum* calls within *per*
    seconds. After *recovery* seconds *probes* are let through, and if they go well it
    closes. *counts* tells which failed results are failures of the dependency:
    exception classes, or a function of the result; all of them, if it is left out.
    """

    def __init__(  # noqa: PLR0913 -- by keyword
        self,
        name: str,
        *,
        failures: int | None = None,
        ratio: float | None = None,
        per: float | None = None,
        minimum: int | None = None,
        recovery: float | None = None,
        probes: int | None = None,
        counts: Failures | None = None,
        code: str = "UNAVAILABLE",
    ) -> None:
        options: dict[str, Any] = {
            "failures": failures,
            "ratio": ratio,
            "per": per,
            "minimum": minimum,
            "recovery": recovery,
            "probes": probes,
        }
        given = {key: each for key, each in options.items() if each is not None}
        self.is_failure = _predicate(counts)
        self.code = code
        self.circuit = circuits.shared(name, Thresholds(**given) if given else None)

    def __call__(self, task: Task[Any]) -> Generator[None, Result[Any], None]:
        """Refuse, or let it run and learn from the result."""
        circuit = self.circuit
        if circuit in held.get():  # the run around this one counts
            yield
            return
        ticket, wait = circuit.ask()
        if ticket is None:
            reason = f"the circuit {circuit.name!r} is open"
            metadata = {"circuit": circuit.name, "retry_after": wait}
            task.fail(reason, code=self.code, **metadata)
        verdict = Verdict.UNKNOWN
        token = held.set((*held.get(), circuit))
        try:
            result = yield
            verdict = self.verdict_on(result)
        finally:
            circuit.tell(ticket, verdict)
            held.reset(token)

    def verdict_on(self, result: Result[Any]) -> Verdict:
        """Return what *result* says about the dependency, if ``work`` got to it."""
        if result.stopped is None or result.skipped:
            return Verdict.UNKNOWN
        failed = result.failed and self.is_failure(result)
        return Verdict.BAD if failed else Verdict.GOOD

    def __repr__(self) -> str:
        """Show which circuit it is."""
        return f"Breaker({self.circuit.name!r})"


class Circuit:
    """The state that all breakers of one name share, between threads too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: Thresholds | None = None
        self._condition = Condition()
        self._lock = Lock()

    @property
    def thresholds(self) -> Thresholds:
        """What was given to one of the breakers, or the defaults."""
        return self.settings or DEFAULTS

    @property
    def phase(self) -> Phase:
        """Closed, open or half open; an open one stays so until somebody asks."""
        return self._condition.phase

    def ask(self) -> Answer:
        """Ask to be let through."""
        with self._lock:
            now = clock.now()  # within the lock, so that time does not go back
            self._condition, answer = decide.asked(
                self._condition, self.thresholds, now
            )
            return answer

    def tell(self, ticket: Ticket, verdict: Verdict) -> None:
        """Tell how a call that was let through has ended."""
        with self._lock:
            now = clock.now()
            self._condition = decide.told(
                self._condition, self.thresholds, ticket, verdict, now
            )

    def open(self) -> None:
        """Open it by hand, as after failures."""
        with self._lock:
            now = clock.now()
            self._condition = decide.opened(self._condition, self.thresholds, now)

    def close(self) -> None:
        """Close it by hand, and forget all failures."""
        with self._lock:
            self._condition = decide.closed(self._condition)

    def __repr__(self) -> str:
        """Show name and phase."""
        return f"<Circuit {self.name!r}: {self.phase}>"


circuits: Shelf[Circuit] = Shelf(decide.WHERE, Circuit)
"""All circuits by name, to look at, and to open or close by hand."""

held: ContextVar[tuple[Circuit, ...]] = ContextVar("cmdx.circuits", default=())
"""The circuits that have let a run through which is still going on."""


def _predicate(counts: Failures | None) -> Callable[[Result[Any]], object]:
    if counts is None:
        return lambda _: True
    kinds: tuple[Any, ...] = counts if isinstance(counts, tuple) else (counts,)
    if kinds and all(_is_exception(kind) for kind in kinds):
        return lambda result: any(isinstance(each, kinds) for each in causes_of(result))
    if not callable(counts) or isinstance(counts, type):
        message = (
            "Breaker: counts must be exception classes or a function of the result, "
            f"got {counts!r}."
        )
        raise DefinitionError(message)
    return counts


def _is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def causes_of(result: Result[Any] | None) -> Iterator[BaseException]:
    """Yield the exceptions behind a failure, those of tasks it was passed on from."""
    while result is not None:
        cause = result.cause
        if cause is not None:
            yield cause
        result = cause.result if isinstance(cause, Fault) else result.origin
