"""
What kind of failure an error is: one that may pass by itself, or one that will not.

A classifier is a question about an error. It can be asked, be a gate, or decide for
``self.retry``; whatever else it is offered there, it looks at the error alone::

    is_retryable(error)

    @retry_on(Exception, if_=is_retryable)
    class Fetch(Task[str]): ...

    self.retry(fetch, should_retry=is_retryable)

``@classifier`` makes one of any function of an error.

An error takes part by what it says of itself: ``retryable`` that trying again may
help, and ``overloaded`` that it would make things worse. Those it was raised from are
asked too, eight in all, so that wrapping an error does not hide what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cmdx.invocation import Invocation

DEPTH = 8
"""How many errors of a chain of causes are looked at, the error itself included."""

GIVEN_TO_A_GATE = 3

OVERLOADED = "Durable Object is overloaded"
SUPERSEDED = ("reset because its code was updated", "this script has been upgraded")
STORAGE_RESET = "internal error in durable object storage caused object to be reset"
MEMORY_LIMIT = "exceeded its memory limit"
CONNECTION_LOST = "network connection lost"


class Classifier:
    """A question about an error that can also serve as a gate."""

    def __init__(self, question: Callable[[object], bool]) -> None:
        self.question = question
        self.__doc__ = question.__doc__
        self.__name__ = self.__qualname__ = getattr(question, "__name__", "classifier")

    @overload
    def __call__(self, error: object, next_attempt: int = ..., /) -> bool: ...
    @overload
    def __call__(
        self, task: Invocation, error: BaseException, attempt: int, /
    ) -> bool: ...
    def __call__(self, *given: Any) -> bool:
        """Ask about an error; a gate is given the task before it."""
        error = given[1] if len(given) == GIVEN_TO_A_GATE else given[0]
        return bool(self.question(error))

    def __repr__(self) -> str:
        """Show the question."""
        return f"<classifier {self.__name__}>"


def classifier(question: Callable[[object], bool]) -> Classifier:
    """Make a classifier of a function of an error."""
    return Classifier(question)


@classifier
def is_retryable(error: object) -> bool:
    """
    Tell whether an error says of itself that trying again may help.

    The error is asked first, then those it was raised from. The first that calls
    itself overloaded says no, the first that calls itself retryable says yes.
    """
    for each in causes(error):
        if _overloaded(each):
            return False
        if getattr(each, "retryable", False):
            return True
    return False


@classifier
def is_superseded(error: object) -> bool:
    """Tell whether the other side was replaced by a newer version of its code."""
    return any(words in text for text in _texts(error) for words in SUPERSEDED)


@classifier
def is_storage_reset(error: object) -> bool:
    """Tell whether the other side was reset by a failure of its storage."""
    return any(STORAGE_RESET in text for text in _texts(error))


@classifier
def is_memory_limit(error: object) -> bool:
    """Tell whether the other side ran out of memory, as it would again."""
    return any(MEMORY_LIMIT in text for text in _texts(error))


@classifier
def is_platform_transient(error: object) -> bool:
    """Tell whether the platform failed in a way that passes, not the code on it."""
    if is_memory_limit(error):
        return False
    if is_superseded(error) or is_storage_reset(error):
        return True
    if any(CONNECTION_LOST in text for text in _texts(error)):
        return True
    return any(
        getattr(each, "retryable", False) and not _overloaded(each)
        for each in causes(error)
    )


def causes(error: object) -> Iterator[object]:
    """Yield *error* and those it was raised from; a cycle ends like a long chain."""
    for _ in range(DEPTH):
        if error is None:
            return
        yield error
        error = getattr(error, "__cause__", None)


def _overloaded(error: object) -> bool:
    return bool(getattr(error, "overloaded", False)) or OVERLOADED in _text(error)


def _texts(error: object) -> Iterator[str]:
    return (_text(each).lower() for each in causes(error))


def _text(error: object) -> str:
    try:
        return str(error)
    except Exception:
        return ""
