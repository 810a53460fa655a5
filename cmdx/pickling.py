"""
Pickles of results and chains, which hold whatever user code put into them.

A result pickles as it is if it can be rebuilt. Otherwise each value and error that
cannot be pickled, or not be rebuilt, is replaced by a ``StandIn`` or ``RecordedError``
with the name of its class and its text, so that a failed task does not break a process
pool as well.

1. a result or chain pickles its trial first, then its state       ``reduce_whole``
2. the whole is tried: most results can be rebuilt as they are      ``Trial``
3. if it cannot be, each value and error is tried by itself         ``unfit_values``
4. those that failed are left out of the pickle by their id         ``StandInPickler``
5. the state is pickled as it is, or taken from what step 4 made    ``State``

All results and chains that a trial meets share it. A pickler pickles an object once, so
it asks for one trial, however many results there are; another pickler asks again.
"""

from __future__ import annotations

import io
import pickle
from contextvars import ContextVar
from itertools import chain as chain_together
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias
from weakref import ref

from cmdx.exceptions import RecordedError
from cmdx.report import error_name, error_text
from cmdx.values import value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cmdx.chain import Chain
    from cmdx.result import Result
    from cmdx.run.record import Record, Run
    from cmdx.task import Task

    Subject: TypeAlias = tuple[Chain, Record | None]
    """A chain, and a record that is not in it if that is to be pickled, too."""

SIMPLE = (str, bytes, int, float, complex, bool, type(None))

MOST_FAILURES_AT_ONCE = 100
"""How far back a pickle goes in one step; a longer row takes several."""

met: ContextVar[list[Subject] | None] = ContextVar("cmdx.pickling", default=None)
"""What a trial has met so far, in which results pickle as they are; None outside."""


class StandIn:
    """Takes the place of a value that could not be pickled."""

    def __init__(self, type_name: str, text: str) -> None:
        self.type_name = type_name
        """The name of its class."""
        self.text = text

    def __str__(self) -> str:
        """Return the text of the value."""
        return self.text

    def __repr__(self) -> str:
        """Show what it stands for."""
        return f"<stand-in for {self.type_name}: {self.text}>"


def reduce_whole(
    whole: Result[Any] | Chain, chain: Chain, record: Record | None, state: Any
) -> tuple[Any, ...]:
    """Return how to pickle *whole*: a chain, or the result of a *record* of it."""
    place = None if record is None else chain._place_of(record)
    subject = (chain, record if place is None else None)
    known = met.get()
    if known is not None:
        known.append(subject)
        return new_instance, (type(whole),), (None, state)
    trial = trial_of(subject)
    state = State(trial, subject, place, state)
    return new_instance, (type(whole),), (trial, state)


def trial_of(subject: Subject) -> Trial:
    """Return the trial of *subject* that a pickler holds, or else a new one."""
    chain, _ = subject
    trial = None if chain._trial is None else chain._trial()
    if trial is None or subject not in trial.subjects:
        trial = Trial(subject)
        chain._trial = ref(trial)
    return trial


class Trial:
    """Whether chains can be rebuilt, asked anew by each pickler that pickles it."""

    def __init__(self, subject: Subject) -> None:
        self.subjects = {subject: None}
        self.replacement: Replacement | None = None
        """What is pickled in place of the chains if they cannot be rebuilt."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Try; what this returns means nothing."""
        subjects = tuple(self.subjects)
        known: list[Subject] = []
        # Another pickler may be in the middle of what cannot be rebuilt.
        if can_be_rebuilt(subjects, known) and self.replacement is None:
            for subject in known:
                self.subjects[subject] = None
                subject[0]._trial = ref(self)
        else:
            self.replacement = Replacement(subjects)
        return tuple, ()


class Replacement:
    """Chains in which stand-ins are in place of what cannot be rebuilt."""

    def __init__(self, subjects: tuple[Subject, ...]) -> None:
        self.places = {subject: place for place, subject in enumerate(subjects)}
        self.pickled = StandInPickler(unfit_values(subjects)).dumps(subjects)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle as the chains."""
        return rebuild, (self.pickled,)


class State:
    """The state of a result or chain, pickled when it was tried."""

    def __init__(
        self, trial: Trial, subject: Subject, place: int | None, state: Any
    ) -> None:
        self.trial = trial
        self.subject = subject
        self.place = place
        self.state = state

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle as it is, or refer to the replacement."""
        replacement = self.trial.replacement
        if replacement is None or self.subject not in replacement.places:
            return tuple, (self.state,)
        asked = replacement, replacement.places[self.subject], self.place
        is_chain = self.place is None and self.subject[1] is None
        return (chain_state if is_chain else result_state), asked


def failures_behind(chain: Chain) -> list[Result[Any]]:
    """
    Return failures of other chains that *chain* passes on, the deepest first.

    Pickled or copied in this order, a long row of them needs no deep recursion: the
    chain of each of them goes as far back again.
    """
    failures: list[Result[Any]] = []
    seen: set[int] = set()
    for failure in failures_passed_on(chain):
        row: list[Result[Any]] = []
        known: Result[Any] | None = failure
        while known is not None and len(row) < MOST_FAILURES_AT_ONCE:
            if id(known._record) in seen:
                break
            seen.add(id(known._record))
            if not row or known.chain is not row[-1].chain:
                row.append(known)
            known = known.origin
        failures += reversed(row)
    return failures


def failures_passed_on(chain: Chain) -> Iterator[Result[Any]]:
    """Yield the failures of other chains that records of *chain* passed on."""
    for record in chain._all_records():
        for outcome in (record.outcome, record.replaced):
            if outcome is not None and outcome.origin is not None:
                yield outcome.origin


def new_instance(kind: type) -> Any:
    """Make an instance without calling its ``__init__``."""
    return object.__new__(kind)


def rebuild(pickled: bytes) -> tuple[Subject, ...]:
    """Return the chains that were *pickled* with stand-ins."""
    subjects: tuple[Subject, ...] = StandInUnpickler(io.BytesIO(pickled)).load()
    return subjects


def chain_state(subjects: tuple[Subject, ...], number: int, _place: None) -> Any:
    """Return the state of a chain that was rebuilt."""
    chain, _ = subjects[number]
    return [], chain.__dict__


def result_state(subjects: tuple[Subject, ...], number: int, place: int | None) -> Any:
    """Return the state of a result whose chain was rebuilt."""
    chain, record = subjects[number]
    return chain, record if place is None else chain._record_at(place)


def can_be_rebuilt(value: Any, known: list[Subject]) -> bool:
    """Tell whether *value* survives a round trip; add what it holds to *known*."""
    if type(value) in SIMPLE:
        return True
    token = met.set(known)
    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301 -- what was just pickled
    except Exception:
        return False
    finally:
        met.reset(token)
    return True


def unfit_values(subjects: Iterable[Subject]) -> dict[int, Any]:
    """Return what cannot be rebuilt of all that user code put into records, by id."""
    chains = chains_behind([chain for chain, _ in subjects])
    records = [record for _, record in subjects if record is not None]
    behind = chain_together.from_iterable(chain._all_records() for chain in chains)
    runs: dict[int, Run] = {}
    held: dict[int, Any] = {}
    for record in (*records, *behind):
        run: Run | None = record.run
        while run is not None and id(run) not in runs:
            runs[id(run)] = run
            run = run.parent
        held |= {id(value): value for value in values_in_record(record)}
    for run in runs.values():
        held |= {id(value): value for value in values_in_run(run)}
    known = set(chains)
    return {
        key: value
        for key, value in held.items()
        if not is_result_of(value, known) and not can_be_rebuilt(value, [])
    }


def is_result_of(value: Any, chains: set[Chain]) -> bool:
    """Tell whether *value* is a result of *chains*, whose values are tried anyway."""
    from cmdx.result import Result

    if type(value) is not Result or value.chain not in chains:
        return False
    return value.chain._place_of(value._record) is not None


def chains_behind(chains: Iterable[Chain]) -> list[Chain]:
    """Return *chains*, and others whose failures they pass on, each once."""
    known = dict.fromkeys(chains)
    behind = list(known)
    for chain in behind:
        for failure in failures_passed_on(chain):
            if failure.chain not in known:
                known[failure.chain] = None
                behind.append(failure.chain)
    return behind


def values_in_run(run: Run) -> Iterator[Any]:
    """Yield the values that user code put into a run."""
    yield run.task
    yield from run.context.values()
    yield from (run._metadata or {}).values()


def values_in_record(record: Record) -> Iterator[Any]:
    """Yield the values and errors that became of a run."""
    yield record.value
    yield record.rollback_error
    for outcome in (record.outcome, record.replaced):
        if outcome is not None:
            yield outcome.cause
            yield from outcome.metadata.values()
    for _, _, error, _, _ in record.attempts:
        if isinstance(error, BaseException):
            yield error


class StandInPickler(pickle.Pickler):
    """Pickles stand-ins in place of some objects."""

    def __init__(self, unfit: dict[int, Any]) -> None:
        self.buffer = io.BytesIO()
        super().__init__(self.buffer, pickle.HIGHEST_PROTOCOL)
        self.unfit = unfit

    def dumps(self, value: Any) -> bytes:
        """Return *value* pickled."""
        token = met.set([])
        try:
            self.dump(value)
        finally:
            met.reset(token)
        return self.buffer.getvalue()

    def persistent_id(self, value: Any) -> Any:
        """Return what ``StandInUnpickler`` makes a stand-in of; None for the others."""
        if id(value) not in self.unfit:
            return None
        # Not isinstance(value, ...): that asks for a ``__class__`` which may raise.
        kind = type(value)
        if issubclass(kind, type) and hasattr(value, "_cmdx_"):
            return "task", value.__module__, value.__qualname__, value._cmdx_.kind
        if issubclass(kind, BaseException):
            return "error", error_name(value), error_text(value)
        return "value", kind.__qualname__, value_text(value)


class StandInUnpickler(pickle.Unpickler):
    """Makes the stand-ins that a ``StandInPickler`` asked for."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tasks: dict[Any, type[Task[Any]]] = {}

    def persistent_load(self, asked: Any) -> Any:
        """Return a stand-in; that of a task is one class wherever it is needed."""
        kind, *facts = asked
        if kind != "task":
            return (RecordedError if kind == "error" else StandIn)(*facts)
        if asked not in self.tasks:
            self.tasks[asked] = stand_in_task(*facts)
        return self.tasks[asked]


def stand_in_task(module: str, name: str, kind: str) -> type[Task[Any]]:
    """Make a class in place of a task that cannot be imported."""
    from cmdx.task import Task

    def work(_self: Task[Any]) -> None:
        message = f"{name} was read without its class, so it cannot run."
        raise NotImplementedError(message)

    names = {"__module__": module, "__qualname__": name, "work": work}
    task: type[Task[Any]] = type(name.rpartition(".")[2], (Task,), names)
    task._cmdx_.kind = kind
    return task
