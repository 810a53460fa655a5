"""
Whether an error may go away by itself.

A classifier is a yes-or-no question about an error. It can be called, be a gate of
``retry_on``, or decide for ``self.retry``::

    is_retryable(error)

    @retry_on(Exception, if_=is_retryable)
    class Fetch(Task[str]): ...

    self.retry(fetch, should_retry=is_retryable)

``@classifier`` makes one of any function of an error.

An error answers by its attributes: ``retryable`` means that trying again may help,
``overloaded`` that it would make things worse. The errors it was raised from are asked
too, eight in all, so that wrapping an error does not hide what it was.

The texts below are those of Cloudflare's Durable Objects, stateful workers whose
platform reports its own failures by message:
https://developers.cloudflare.com/durable-objects/best-practices/error-handling/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmdx.report import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEPTH = 8
"""How many errors are asked, the error itself included."""

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

    def __call__(self, error: object, _attempt: int = 0, /) -> bool:
        """Ask about an error, whichever attempt it ended."""
        return bool(self.question(error))

    def __repr__(self) -> str:
        """Show the question."""
        return f"<classifier {self.__name__}>"


def classifier(question: Callable[[object], bool]) -> Classifier:
    """
    Make a classifier, which also works as a gate and as *should_retry*.

    Args:
        question: A function of an error that returns whether it is of that kind.
    """
    return Classifier(question)


@classifier
def is_retryable(error: object) -> bool:
    """
    Tell whether an error is marked as one that a retry may help with.

    The error is checked first, then the errors it was raised from. The first one whose
    ``overloaded`` is true means no, the first one whose ``retryable`` is true means
    yes.
    """
    for known in error_and_causes(error):
        if is_overloaded(known):
            return False
        if getattr(known, "retryable", False):
            return True
    return False


@classifier
def is_superseded(error: object) -> bool:
    """Tell whether the other side was replaced by a newer version of its code."""
    return any(words in text for text in texts_of(error) for words in SUPERSEDED)


@classifier
def is_storage_reset(error: object) -> bool:
    """Tell whether the other side was reset by a failure of its storage."""
    return any(STORAGE_RESET in text for text in texts_of(error))


@classifier
def is_memory_limit(error: object) -> bool:
    """Tell whether the other side ran out of memory, as it would again."""
    return any(MEMORY_LIMIT in text for text in texts_of(error))


@classifier
def is_platform_transient(error: object) -> bool:
    """Tell whether the platform failed in a way that passes, not the code on it."""
    if is_memory_limit(error):
        return False
    if is_superseded(error) or is_storage_reset(error):
        return True
    if any(CONNECTION_LOST in text for text in texts_of(error)):
        return True
    return any(
        getattr(known, "retryable", False) and not is_overloaded(known)
        for known in error_and_causes(error)
    )


def error_and_causes(error: object) -> Iterator[object]:
    """Yield *error* and those it was raised from; a cycle ends like a long chain."""
    for _ in range(DEPTH):
        if error is None:
            return
        yield error
        error = getattr(error, "__cause__", None)


def is_overloaded(error: object) -> bool:
    """Tell whether *error* says that trying again would make things worse."""
    return bool(getattr(error, "overloaded", False)) or OVERLOADED in error_text(error)


def texts_of(error: object) -> Iterator[str]:
    """Yield the messages of *error* and its causes in lower case."""
    return (error_text(known).lower() for known in error_and_causes(error))
