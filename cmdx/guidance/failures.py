"""
What a failed result and its origins say about the failure.

1. the failures behind it, the nearest first    ``failures_of``
2. the metadata that is about one of them       ``notes_of``
3. the codes that their tasks gave              ``given_codes``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmdx.values import json_data, plain_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cmdx import Result


def failures_of(result: Result[Any]) -> Iterator[Result[Any]]:
    """Yield *result* and the failures that it passes on, the nearest first."""
    failure: Result[Any] | None = result
    while failure is not None:
        yield failure
        failure = failure.origin


def notes_of(failure: Result[Any]) -> Mapping[str, Any]:
    """
    Return the metadata that is about a failure.

    If an exception replaced the outcome, as one that a callback raises does, what was
    noted down before is about the outcome that it replaced.
    """
    replaced, noted = failure.replaced, failure.metadata
    is_raised = failure.cause is not None and failure.halted_at is None
    if replaced is None or not is_raised:
        return noted
    before = replaced.metadata
    return {
        name: note
        for name, note in noted.items()
        if name not in before or not _is_same(note, before[name])
    }


def _is_same(note: object, other: object) -> bool:
    """Compare metadata without calling methods of the user's."""
    return note is other or bool(json_data(note) == json_data(other))


def given_codes(result: Result[Any]) -> Iterator[str | int]:
    """Yield the codes that the tasks behind a failure gave, the nearest first."""
    for failure in failures_of(result):
        code = plain_code(notes_of(failure).get("code"))
        if code is not None:
            yield code
