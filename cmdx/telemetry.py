"""
Six blinker signals that tell what tasks do.

======================  ====================================================
``task_started``        ``task``
``task_deprecated``     ``task``
``task_retried``        ``task, attempt, delay, error, rule, depth, product``
``task_rolled_back``    ``task, error`` (what ``rollback`` raised, or None)
``task_executed``       ``task, result``
``task_cancelled``      ``task, result`` of a run that an interrupt ended
======================  ====================================================

The sender is the class of the task.
Nothing is built while nobody listens, and a receiver that raises never changes a run:
it is reported to ``logging.getLogger("cmdx")`` and the next one is called.
"""

from __future__ import annotations

from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from blinker import NamedSignal

from cmdx.outcome import Halt

if TYPE_CHECKING:
    from collections.abc import Callable

    from blinker import Signal

    from cmdx.run.invocation import Invocation
    from cmdx.task import Task


task_started = NamedSignal("task_started")
task_deprecated = NamedSignal("task_deprecated")
task_retried = NamedSignal("task_retried")
task_rolled_back = NamedSignal("task_rolled_back")
task_executed = NamedSignal("task_executed")
task_cancelled = NamedSignal("task_cancelled")


def connect(
    signal: Signal, receiver: Callable[..., Any], *, task: type[Task[Any]]
) -> Callable[[], None]:
    """
    Connect *receiver* for *task* and all its subclasses.

    ``signal.connect(receiver, sender=...)`` of blinker compares senders exactly.
    Return a function that disconnects the receiver.

    Args:
        signal: One of the signals of cmdx.
        receiver: Called with the class of the task, and the payload by keyword.
        task: The base class.
    """

    def for_descendants(sender: type[Task[Any]] | str, **payload: Any) -> Any:
        if isinstance(sender, type) and issubclass(sender, task):
            return receiver(sender, **payload)
        return None

    signal.connect(for_descendants, weak=False)
    return lambda: signal.disconnect(for_descendants)


def send(signal: NamedSignal, task: Invocation, **payload: Any) -> None:
    """Call the receivers of *signal*; one that raises does not disturb the others."""
    payload["task"] = task
    deliver(signal, type(task), payload)


def deliver(signal: NamedSignal, sender: Any, payload: dict[str, Any]) -> None:
    """Do what ``send`` does for any *sender*: the class of a task, or its name."""
    if signal.is_muted:
        return
    for receiver in signal.receivers_for(sender):
        try:
            answer = receiver(sender, **payload)
            if iscoroutine(answer):
                answer.close()
                _refuse_async(receiver)
        except (Exception, Halt):
            import logging

            logging.getLogger("cmdx").exception(
                "a receiver of %s raised an exception; the run of %s continues",
                signal.name,
                getattr(sender, "__qualname__", sender),
            )


def _refuse_async(receiver: Callable[..., Any]) -> None:
    message = (
        f"the receiver {receiver!r} is async, but nothing awaits it. "
        "Connect a plain function; it may start an asyncio task."
    )
    raise TypeError(message)
