"""Recording the signals that are sent, and with them the results."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from blinker import NamedSignal

from cmdx import telemetry
from cmdx.exceptions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.result import Result
    from cmdx.task import Task

V = TypeVar("V")

SIGNALS = {
    signal.name: signal
    for signal in vars(telemetry).values()
    if isinstance(signal, NamedSignal)
}

_active_recordings: ContextVar[tuple[Recording, ...]] = ContextVar(
    "cmdx.recording", default=()
)


@contextmanager
def recorded(*, everywhere: bool = False) -> Iterator[Recording]:
    """
    Record the signals that are sent in the block.

    Args:
        everywhere: Whether to record the signals of all threads and coroutines, not
            only of those that inherit this context.
    """
    recording = Recording()
    with ExitStack() as stack:
        for signal in SIGNALS.values():
            receiver = _receiver(recording, signal.name, everywhere=everywhere)
            signal.connect(receiver, weak=False)
            stack.callback(signal.disconnect, receiver)
        token = _active_recordings.set((*_active_recordings.get(), recording))
        try:
            yield recording
        finally:
            with suppress(ValueError):  # the block is left in another context
                _active_recordings.reset(token)


class Sent(NamedTuple):
    """A signal that was sent."""

    name: str
    """The name of the signal."""
    task: type[Task[Any]]
    """The class of the task."""
    invocation: Task[Any]
    """The task itself."""
    payload: dict[str, Any]
    """The other arguments of the signal."""


class Recording:
    """The signals of a ``recorded`` block."""

    def __init__(self) -> None:
        self.signals: list[Sent] = []
        """All signals, in the order they were sent."""

    @property
    def results(self) -> list[Result[Any]]:
        """All results, in the order the runs ended."""
        return [sent.payload["result"] for sent in self.sent("task_executed")]

    def results_of(self, task: type[Task[V]]) -> list[Result[V]]:
        """Return the results of *task* and its subclasses."""
        return [result for result in self.results if issubclass(result.task, task)]

    def sent(
        self,
        signal: str | NamedSignal | None = None,
        /,
        *,
        task: type[Task[Any]] | None = None,
    ) -> list[Sent]:
        """
        Return some of the signals that were sent.

        Args:
            signal: A signal or its name; all signals by default.
            task: Only signals of this class and its subclasses.
        """
        name = None if signal is None else _name_of(signal)
        return [
            sent
            for sent in self.signals
            if name in (None, sent.name)
            and (task is None or issubclass(sent.task, task))
        ]

    def __repr__(self) -> str:
        """Show the names of the signals."""
        names = (f"{sent.task.__qualname__} {sent.name}" for sent in self.signals)
        return f"<Recording: {', '.join(names) or 'nothing'}>"


def _receiver(recording: Recording, name: str, *, everywhere: bool) -> Any:
    def record(sender: type[Task[Any]], task: Task[Any], **payload: Any) -> None:
        if everywhere or recording in _active_recordings.get():
            recording.signals.append(Sent(name, sender, task, payload))

    return record


def _name_of(signal: str | NamedSignal) -> str:
    name = signal.name if isinstance(signal, NamedSignal) else signal
    if name not in SIGNALS:
        message = (
            f"unknown signal {name!r}{did_you_mean(name, SIGNALS)} "
            f"Valid names: {', '.join(SIGNALS)}."
        )
        raise LookupError(message)
    return name
