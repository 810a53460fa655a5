"""What was announced: the signals that were sent, and the results that came back."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
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

_here: ContextVar[tuple[Recording, ...]] = ContextVar("cmdx.recording", default=())


@contextmanager
def recorded(*, everywhere: bool = False) -> Iterator[Recording]:
    """
    Record the signals that are sent in the block.

    Those of other threads and coroutines are left out unless they inherit this
    context, or *everywhere* is true.
    """
    recording = Recording()
    with ExitStack() as stack:
        for signal in SIGNALS.values():
            receiver = _receiver(recording, signal.name, everywhere=everywhere)
            signal.connect(receiver, weak=False)
            stack.callback(signal.disconnect, receiver)
        token = _here.set((*_here.get(), recording))
        stack.callback(_here.reset, token)
        yield recording


class Sent(NamedTuple):
    """A signal that was sent."""

    name: str
    task: type[Task[Any]]
    invocation: Task[Any]
    payload: dict[str, Any]
    """What it carried beside the invocation."""


class Recording:
    """What happened in a ``recorded`` block."""

    def __init__(self) -> None:
        self.signals: list[Sent] = []
        """All signals, in the order they were sent."""

    @property
    def results(self) -> list[Result[Any]]:
        """All results, in the order the runs ended."""
        return [each.payload["result"] for each in self.sent("task_executed")]

    def results_of(self, task: type[Task[V]]) -> list[Result[V]]:
        """Return the results of *task* and of classes derived from it."""
        return [each for each in self.results if issubclass(each.task, task)]

    def sent(
        self,
        signal: str | NamedSignal | None = None,
        /,
        *,
        task: type[Task[Any]] | None = None,
    ) -> list[Sent]:
        """Return what was sent of a signal, for *task* and classes derived from it."""
        name = None if signal is None else _name_of(signal)
        return [
            each
            for each in self.signals
            if name in (None, each.name)
            and (task is None or issubclass(each.task, task))
        ]

    def __repr__(self) -> str:
        """Show what was sent, one word each."""
        sent = ", ".join(
            f"{each.task.__qualname__} {each.name}" for each in self.signals
        )
        return f"<Recording: {sent or 'nothing'}>"


def _receiver(recording: Recording, name: str, *, everywhere: bool) -> Any:
    def note(sender: type[Task[Any]], task: Task[Any], **payload: Any) -> None:
        if everywhere or recording in _here.get():
            recording.signals.append(Sent(name, sender, task, payload))

    return note


def _name_of(signal: str | NamedSignal) -> str:
    name = signal.name if isinstance(signal, NamedSignal) else signal
    if name not in SIGNALS:
        message = (
            f"no signal is called {name!r}{did_you_mean(name, SIGNALS)} "
            f"There are {', '.join(SIGNALS)}."
        )
        raise LookupError(message)
    return name
