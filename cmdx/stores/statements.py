"""
Statements: what a unit does with its transaction.

One SQL text serves all databases. Values are named, ``:name``, and each database gets
the text in its own form. A text is translated once.

- The clause ``for update``, with ``skip locked`` or without, is for PostgreSQL. SQLite
  does without it: there a transaction has the whole database to itself.
- Types are ``text``, ``bigint``, ``integer`` and ``double precision``. JSON is text,
  and what is true or false is an integer.
- No SQL asks the database for the time: use ``statements.now``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value: TypeAlias = str | int | float | None
"""What can be stored."""

Row: TypeAlias = tuple[Any, ...]


class Statements(ABC):
    """The statements of one transaction."""

    dialect: str
    """The name of the database: ``"sqlite"`` or ``"postgresql"``."""

    now: float = 0.0
    """The time of the store when the unit was started, by the clock of its caller."""

    @abstractmethod
    def execute(self, sql: str, /, **values: Value) -> list[Row]:
        """
        Run one statement and return all its rows.

        Args:
            sql: The statement, with ``:name`` for each value.
            values: The values by name.
        """

    @abstractmethod
    def executemany(self, sql: str, rows: Iterable[Mapping[str, Value]], /) -> None:
        """
        Run one statement with the values of each of *rows*.

        Args:
            sql: The statement, with ``:name`` for each value.
            rows: The values by name, once per row.
        """

    @abstractmethod
    def columns_of(self, table: str) -> set[str]:
        """Return the names of the columns of *table*; none if there is none."""


TOKENS = re.compile(
    r"""
    (?P<text>    '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ )
  | (?P<cast>    :: )
  | (?P<value>   :[A-Za-z_]\w* )
  | (?P<lock>    \s*\bfor\s+(?:no\s+key\s+update|update|share)\b
                 (?:\s+skip\s+locked\b)? )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""What has to be translated, and the texts in which nothing is."""


@lru_cache(maxsize=2048)
def sqlite_query(sql: str) -> str:
    """Return *sql* for SQLite: without the clause that locks rows."""
    return TOKENS.sub(lambda token: "" if token.lastgroup == "lock" else token[0], sql)


@attrs.frozen
class PostgresQuery:
    """A statement for PostgreSQL: values have numbers, ``$1``, instead of names."""

    text: bytes
    names: tuple[str, ...]
    """The names of the values, in the order of their numbers."""
    returns_rows: bool
    """Whether anybody has to wait for its answer."""
    always_writes: bool
    """Whether it changes something in any case, unless it fails."""


@lru_cache(maxsize=2048)
def postgres_query(sql: str) -> PostgresQuery:
    """Return *sql* for PostgreSQL."""
    numbers: dict[str, int] = {}

    def number(token: re.Match[str]) -> str:
        if token.lastgroup != "value":
            return token[0]
        return f"${numbers.setdefault(token[0][1:], len(numbers) + 1)}"

    text = TOKENS.sub(number, sql)
    words = TOKENS.sub("", sql).lower().split()
    is_quiet = words[:1] in (["insert"], ["update"], ["delete"])
    return PostgresQuery(
        text=text.encode(),
        names=tuple(numbers),
        returns_rows=not is_quiet or "returning" in words,
        always_writes=words[:1] == ["insert"] and "conflict" not in words,
    )
