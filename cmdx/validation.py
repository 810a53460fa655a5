"""The problems a task finds with what it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Problem(NamedTuple):
    """One thing that is wrong."""

    key: str
    message: str
    code: str | None = None

    @property
    def full_message(self) -> str:
        """Key and message as one sentence."""
        return f"{self.key} {self.message}"


class Errors:
    """
    Problems by key, each kept once, in the order they were found.

    A task whose errors are not empty at a check fails with ``str(errors)``.
    """

    __slots__ = ("_problems",)

    def __init__(self) -> None:
        self._problems: dict[tuple[str, str], Problem] = {}

    def add(self, key: str, message: str, code: str | None = None) -> None:
        """Note that something is wrong with *key*; *code* is for machines."""
        self._problems.setdefault((key, message), Problem(key, message, code))

    def clear(self) -> None:
        """Forget all problems."""
        self._problems.clear()

    def __getitem__(self, key: str) -> list[str]:
        """Return the messages for *key*, none if there are none."""
        return [problem.message for problem in self if problem.key == key]

    def __contains__(self, key: object) -> bool:
        """Tell whether something is wrong with *key*."""
        return any(problem.key == key for problem in self)

    def __iter__(self) -> Iterator[Problem]:
        """Iterate over the problems."""
        return iter(tuple(self._problems.values()))

    def __len__(self) -> int:
        """Count the problems."""
        return len(self._problems)

    def to_dict(self) -> dict[str, list[str]]:
        """Return the messages by key."""
        messages: dict[str, list[str]] = {}
        for problem in self:
            messages.setdefault(problem.key, []).append(problem.message)
        return messages

    def full_messages(self) -> list[str]:
        """Return one sentence for each problem."""
        return [problem.full_message for problem in self]

    def __str__(self) -> str:
        """Say everything that is wrong."""
        return ". ".join(self.full_messages())

    def __repr__(self) -> str:
        """Show the messages by key."""
        return f"Errors({self.to_dict()!r})"
