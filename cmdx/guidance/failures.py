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
    if replaced is None or failure.halted_at is not None:
        return noted
    before = replaced.metadata
    return {
        name: note
        for name, note in noted.items()
        # As JSON, because to compare notes might call methods of the user's.
        if name not in before or json_data(note) != json_data(before[name])
    }


def given_codes(result: Result[Any]) -> Iterator[str | int]:
    """Yield the codes that the tasks behind a failure gave, the nearest first."""
    for failure in failures_of(result):
        code = plain_code(notes_of(failure).get("code"))
        if code is not None:
            yield code
