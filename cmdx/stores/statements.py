"""
Statements: what a unit does with its transaction.

One SQL text serves all databases. Values are named, ``:name``, and each database gets
the text in its own form. A text is translated once.

- The clause ``for update``, with ``skip locked`` or without, is for PostgreSQL. SQLite
  does without it: there a transaction has the whole database to itself.
- Types are ``text``, ``bigint``, ``integer`` and ``double precision``. JSON is text,
  and what is true or false is an integer.
- No SQL asks the database for the time: ``:now`` is ``statements.now``, unless it is
  given.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

        A statement that fails raises the exception of the driver, ``sqlite3.Error`` or
        ``psycopg.Error``; ``transact`` makes a ``StoreError`` of it. On PostgreSQL a
        statement that returns no rows is only sent, so its exception may come from a
        later statement, or from ``transact``. The transaction cannot go on after it:
        do not catch it inside the unit.

        Args:
            sql: The statement, with ``:name`` for each value.
            values: The values by name; *now* by default is the time of the unit.
        """

    @abstractmethod
    def change(self, sql: str, /, **values: Value) -> int:
        """
        Run one statement that changes rows, and return how many it has changed.

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

    @abstractmethod
    def key_of(self, table: str) -> set[str]:
        """Return the columns of the primary key of *table*; none if there is none."""


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
    """Whether it changes rows in any case, unless it fails."""
    writes_unseen: bool
    """Whether it may change something that its answer does not tell."""


TOLD_WRITES = {"insert", "update", "delete", "merge"}
"""Statements whose answer says how many rows they have changed."""

READS = {"select", "values", "table", "show"}


@lru_cache(maxsize=2048)
def postgres_query(sql: str) -> PostgresQuery:
    """Return *sql* for PostgreSQL."""
    numbers: dict[str, int] = {}

    def number(token: re.Match[str]) -> str:
        if token.lastgroup != "value":
            return token[0]
        return f"${numbers.setdefault(token[0][1:], len(numbers) + 1)}"

    text = TOKENS.sub(number, sql)
    words = re.findall(r"\w+", TOKENS.sub(" ", sql).lower())
    first = words[0] if words else ""
    return PostgresQuery(
        text=text.encode(),
        names=tuple(numbers),
        returns_rows=first not in TOLD_WRITES or "returning" in words,
        always_writes=first == "insert" and "conflict" not in words,
        writes_unseen=writes_unseen(first, words),
    )


def writes_unseen(first: str, words: Sequence[str]) -> bool:
    """Tell whether a statement may write without saying so in its answer."""
    if first == "with":
        return not TOLD_WRITES.isdisjoint(words)
    if first in READS:
        return "into" in words
    return first not in TOLD_WRITES
