"""
``Breaker``: no calls to a dependency that is down.

Before the run the breaker asks the circuit. If the circuit is open, the task fails at
once, and ``metadata["retry_after"]`` is the number of seconds until it may run again.
After the run the breaker tells the circuit what the outcome says about the dependency.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from cmdx import DefinitionError, Fault, clock
from cmdx.locks import new_lock
from cmdx.middlewares import breaker_state
from cmdx.middlewares.breaker_state import Condition, Phase, Thresholds, Verdict
from cmdx.middlewares.shared import SharedByName

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from cmdx import Result, Task
    from cmdx.middlewares.breaker_state import Answer, Ticket

    Failures = (
        type[BaseException]
        | tuple[type[BaseException], ...]
        | Callable[[Result[Any]], object]
    )

DEFAULT_THRESHOLDS = Thresholds()


class Breaker:
    """
    Refuses runs of the task while a circuit is open.

    All breakers with the same name share one circuit. Give its options once; the other
    breakers need only the name.

    Args:
        name: The name of the circuit, usually that of the dependency.
        failures: The number of failures in a row that opens the circuit; 5 by default,
            or no limit if there is a *ratio*.
        ratio: The share of failed calls, above 0 and at most 1, that opens the circuit.
        per: The time span in seconds in which calls are counted for *ratio*; 10 by
            default.
        minimum: The number of calls in that time span from which on *ratio* is
            applied; 10 by default.
        recovery: The seconds after which an open circuit lets probes pass; 30 by
            default.
        probes: The number of probes that pass, and that must succeed to close the
            circuit; 1 by default.
        counts: Which failed results are failures of the dependency: an exception class,
            a tuple of them, or a function of the result; all of them by default.
        code: The ``code`` in the metadata of a refused run.
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
        given = {key: value for key, value in options.items() if value is not None}
        thresholds = Thresholds(**given) if given else None
        self.is_failure = _failure_predicate(counts)
        self.code = code
        self.circuit = circuits.get_or_create(name, thresholds)

    def __call__(self, task: Task[Any]) -> Generator[None, Result[Any], None]:
        """Refuse the run, or let it start and count its result."""
        circuit = self.circuit
        passages = [passage for passage in current_passages.get() if passage.running]
        if any(passage.circuit is circuit for passage in passages):
            yield  # part of the run around it, which is counted
            return
        ticket, wait = circuit.ask()
        if ticket is None:
            reason = f"the circuit {circuit.name!r} is open"
            metadata = {"circuit": circuit.name, "retry_after": wait}
            task.fail(reason, code=self.code, **metadata)
        verdict, passage = Verdict.UNKNOWN, Passage(circuit)
        token = current_passages.set((*passages, passage))
        try:
            result = yield
            verdict = self.verdict_on(result)
        finally:
            passage.running = False
            circuit.tell(ticket, verdict)
            with suppress(ValueError):  # the run was closed in another context
                current_passages.reset(token)

    def verdict_on(self, result: Result[Any]) -> Verdict:
        """Return what *result* says about the dependency."""
        if result.stopped is None or result.skipped:
            return Verdict.UNKNOWN
        failed = result.failed and self.is_failure(result)
        return Verdict.BAD if failed else Verdict.GOOD

    def __repr__(self) -> str:
        """Show the name of the circuit."""
        return f"Breaker({self.circuit.name!r})"


class Circuit:
    """The state of all breakers of one name, in all threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: Thresholds | None = None
        self._condition = Condition()
        self._lock = new_lock()

    @property
    def thresholds(self) -> Thresholds:
        """The options given to one of the breakers, or the defaults."""
        return self.settings or DEFAULT_THRESHOLDS

    @property
    def phase(self) -> Phase:
        """Closed, open or half open; an open circuit stays open until a run asks."""
        return self._condition.phase

    def ask(self) -> Answer:
        """Ask for a ticket to pass."""
        with self._lock:
            now = clock.now()  # inside the lock, so that times are in order
            self._condition, answer = breaker_state.on_request(
                self._condition, self.thresholds, now
            )
            return answer

    def tell(self, ticket: Ticket, verdict: Verdict) -> None:
        """Tell how the call with *ticket* has ended."""
        with self._lock:
            now = clock.now()
            self._condition = breaker_state.on_result(
                self._condition, self.thresholds, ticket, verdict, now
            )

    def open(self) -> None:
        """Open the circuit by hand, as after failures."""
        with self._lock:
            self._condition = breaker_state.open_condition(
                self._condition, self.thresholds, clock.now()
            )

    def close(self) -> None:
        """Close the circuit by hand, and forget all failures."""
        with self._lock:
            self._condition = breaker_state.closed_condition(self._condition)

    def __repr__(self) -> str:
        """Show the name and the phase."""
        return f"<Circuit {self.name!r}: {self.phase}>"


circuits: SharedByName[Circuit] = SharedByName("Breaker", Circuit)
"""All circuits by name."""


class Passage:
    """
    A run that a circuit has let pass.

    Coroutines, and threads with a copied context, that were started in the run inherit
    the context variable and may live longer than it. They are part of the run only
    while it is running.
    """

    __slots__ = ("circuit", "running")

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self.running = True


current_passages: ContextVar[tuple[Passage, ...]] = ContextVar(
    "cmdx.circuits", default=()
)


def _failure_predicate(counts: Failures | None) -> Callable[[Result[Any]], object]:
    if counts is None:
        return lambda _: True
    kinds: tuple[Any, ...] = counts if isinstance(counts, tuple) else (counts,)
    if kinds and all(_is_exception(kind) for kind in kinds):
        return lambda result: any(
            isinstance(error, kinds) for error in causes_of_failure(result)
        )
    if not callable(counts) or isinstance(counts, type):
        message = (
            "Breaker: counts must be exception classes or a function of the result, "
            f"got {counts!r}."
        )
        raise DefinitionError(message)
    return counts


def _is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def causes_of_failure(result: Result[Any] | None) -> Iterator[BaseException]:
    """Yield the cause of a failure and the causes of the failures it came from."""
    while result is not None:
        cause = result.cause
        if cause is not None:
            yield cause
        result = cause.result if isinstance(cause, Fault) else result.origin
