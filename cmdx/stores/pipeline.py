"""
Statements on PostgreSQL, sent one after the other without waiting in between.

A statement that returns no rows is sent, and its answer is read later: with that of
the next statement that returns some, or with that of the commit. So a unit that only
writes needs one round trip to the server instead of three, and so does a group of
such units. A failure shows then, and the transaction fails as a whole.

The protocol has one rule: every statement gets one answer, in order, and a "sync" gets
one of its own. Answers are added to ``_answers`` by calls that no signal can come
between, so that reading can go on where an interrupted leader left it.
"""

from __future__ import annotations

import select
from itertools import starmap
from typing import TYPE_CHECKING, Any, cast

from psycopg import InternalError, OperationalError, ProgrammingError, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.types.numeric import FloatLoader, Int8Dumper
from psycopg.types.string import StrDumper

from cmdx import clock
from cmdx.stores.statements import PostgresQuery, Statements, postgres_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from psycopg import Connection
    from psycopg.pq.abc import PGresult

    from cmdx.stores.statements import Row, Value

WRITES = (b"INSERT", b"UPDATE", b"DELETE", b"MERGE")
"""How the answers begin that tell how many rows were changed."""

FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)
ONCE: tuple[tuple[()], ...] = ((),)
"""For ``starmap``: one call without arguments."""

MOST_UNREAD = 256
"""How many answers may be unread; the server must never wait for us to read them."""

SLICE = 0.1
"""Seconds for which no signal is handled while an answer is waited for."""

MOST_PREPARED = 1000
"""How many statements are prepared on one connection."""


class PostgresStatements(Statements):
    """The statements of one transaction on PostgreSQL."""

    dialect = "postgresql"

    def __init__(self, connection: Connection[Any], *, prepares: bool = True) -> None:
        adapters = connection.adapters
        adapters.register_dumper(int, Int8Dumper)
        adapters.register_dumper(bool, Int8Dumper)
        adapters.register_dumper(str, StrDumper)
        adapters.register_loader("numeric", FloatLoader)
        self._transformer = Transformer(connection)
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 0
        self._pgconn.enter_pipeline_mode()
        self._is_readable = readability_of(self._pgconn.socket)
        self._prepares = prepares
        self.lock_timeout = 0.0
        """Seconds to wait for a lock of others; 0 if the server has its own limit."""
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._names = 0
        self._start()

    # -- what units do ------------------------------------------------------------

    def execute(self, sql: str, /, **values: Value) -> list[Row]:
        """Run one statement and return all its rows."""
        query = postgres_query(sql)
        self._send(query, values)
        if query.returns_rows:
            return self._rows()
        if self._sent - self._checked > MOST_UNREAD:
            self.catch_up()
        return []

    def change(self, sql: str, /, **values: Value) -> int:
        """Run one statement that changes rows, and return how many it has changed."""
        self._send(postgres_query(sql), values)
        self.catch_up()
        return self._answer(self._sent - 1).command_tuples or 0

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Value]], /) -> None:
        """Run one statement with the values of each of *rows*."""
        for row in rows:
            self.execute(sql, **row)

    def columns_of(self, table: str) -> set[str]:
        """Return the names of the columns of *table*; none if there is none."""
        rows = self.execute(
            "select attname from pg_attribute where attrelid = to_regclass(:table) "
            "and attnum > 0 and not attisdropped",
            table=table,
        )
        return {name for (name,) in rows}

    def key_of(self, table: str) -> set[str]:
        """Return the columns of the primary key of *table*; none if there is none."""
        rows = self.execute(
            "select attname from pg_index join pg_attribute on attrelid = indrelid "
            "and attnum = any(indkey) where indrelid = to_regclass(:table) "
            "and indisprimary",
            table=table,
        )
        return {name for (name,) in rows}

    # -- one transaction ----------------------------------------------------------

    def _start(self) -> None:
        """Start to count; all earlier answers were read."""
        self._sent = 0
        """How many statements were sent, the commit aside."""
        self._checked = 0
        """How many of their answers were checked."""
        self._synced: list[None] = []
        self._answers: list[PGresult | None] = []
        """Per statement its answer and None, and in the end the answer to the sync."""
        self._newly_prepared: list[tuple[bytes, tuple[int, ...]]] = []
        """What was prepared in this transaction."""
        self.written = 0
        """How many changes there were, as far as the answers were read."""
        self.may_have_written = False
        self.has_surely_written = False

    def begin(self, *, relaxed: bool) -> None:
        """Begin a transaction, of which a crash of the server may lose the commit."""
        self._start()
        self.send(b"begin isolation level read committed")
        if self.lock_timeout:  # per transaction, as a pooler keeps no settings
            milliseconds = max(1, round(self.lock_timeout * 1000))
            self.send(b"set local lock_timeout = %d" % milliseconds)
        if relaxed:
            self.send(b"set local synchronous_commit = off")

    def send(self, command: bytes) -> None:
        """Send a command that has no values and returns no rows."""
        self._dispatch(command, (), ())

    def commit(self, evidence: list[Any]) -> None:
        """Send the commit, and note in *evidence* that it was sent."""
        if pq.__impl__ == "python":  # there a signal can come in between
            evidence.append("sending")
        arguments = ((b"commit", None),)
        evidence.extend(starmap(self._pgconn.send_query_params, arguments))

    def outcome(self, evidence: list[Any]) -> bool | None:
        """Tell whether the commit happened; None if nobody can know."""
        if evidence == ["sending"]:
            return None
        try:
            self._finish()
        except OperationalError:
            # If the server said why it ended, it said so instead of committing.
            return False if any(map(sqlstate_of, self._answers)) else None
        return self._answer(self._sent).command_status == b"COMMIT"

    def require_success(self) -> None:
        """Wait for the answer to the commit; raise why it did not happen."""
        self._finish()
        self.check()
        if self._answer(self._sent).command_status != b"COMMIT":
            raise InternalError("a statement failed, and the unit went on without it")

    def roll_back(self) -> None:
        """Leave the transaction; the connection is lost if this raises."""
        for key in self._newly_prepared:
            self._prepared.pop(key, None)
        if self._sent:
            self._finish(patience=0.5)
        if self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
            self._start()
            self.send(b"rollback")
            self._finish(patience=5.0)

    @property
    def is_idle(self) -> bool:
        """Whether a transaction can begin."""
        is_finished = not self._sent or is_sync(self._answers)
        status = self._pgconn.transaction_status
        return is_finished and status == pq.TransactionStatus.IDLE

    def require_connected(self) -> None:
        """Raise if the server has closed the idle connection."""
        while self._is_readable(0):  # its last words come first
            self._pgconn.consume_input()

    # -- sending ------------------------------------------------------------------

    def _send(self, query: PostgresQuery, values: dict[str, Value]) -> None:
        """Send a statement with its values."""
        values.setdefault("now", self.now)
        try:
            given = [values[name] for name in query.names]
        except KeyError as error:
            raise ProgrammingError(f"there is no value for {error}") from None
        transformer = self._transformer
        dumped = transformer.dump_sequence(given, [PyFormat.TEXT] * len(given))
        self._dispatch(query.text, dumped, transformer.types or ())
        self.written += query.writes_unseen
        self.has_surely_written |= query.always_writes
        self.may_have_written |= not query.returns_rows

    def _dispatch(
        self, text: bytes, values: Sequence[Any], types: tuple[int, ...]
    ) -> None:
        name = self._prepared.get((text, types)) or self._prepare(text, types)
        if name is None:
            self._pgconn.send_query_params(text, values, types)
        else:
            self._pgconn.send_query_prepared(name, values)
        self._sent += 1

    def _prepare(self, text: bytes, types: tuple[int, ...]) -> bytes | None:
        """Have a statement prepared; return its name, or None if that cannot be."""
        if not self._prepares or len(self._prepared) >= MOST_PREPARED:
            return None
        self._names += 1
        name = b"cmdx_%d" % self._names
        self._pgconn.send_prepare(name, text, types)
        self._sent += 1
        self._prepared[text, types] = name
        self._newly_prepared.append((text, types))
        return name

    # -- reading ------------------------------------------------------------------

    def _rows(self) -> list[Row]:
        """Return the rows of the last statement."""
        self.catch_up()
        answer = self._answer(self._sent - 1)
        self._transformer.set_pgresult(answer)
        return self._transformer.load_rows(0, answer.ntuples, tuple)

    def _answer(self, number: int) -> PGresult:
        """Return the answer to a statement, by its number."""
        return cast("PGresult", self._answers[2 * number])

    def catch_up(self) -> None:
        """Read the answers to all that was sent."""
        self._pgconn.send_flush_request()
        self._pgconn.flush()
        while len(self._answers) < 2 * self._sent:
            self._read()
        self.check()

    def _finish(self, patience: float = clock.FOREVER) -> None:
        """End the conversation by a sync, and read all that is left."""
        if not self._synced:
            self._synced.extend(starmap(self._pgconn.pipeline_sync, ONCE))
        while not is_sync(self._answers):
            self._read(patience)

    def _read(self, patience: float = clock.FOREVER) -> None:
        """Read one answer, and add it to the others in the same instant."""
        if self._pgconn.is_busy():
            self._wait_for_answer(patience)
        self._answers.extend(starmap(self._pgconn.get_result, ONCE))
        if self._answers[-2:] == [None, None]:  # there is nothing more to come
            raise OperationalError("the connection was lost")

    def _wait_for_answer(self, patience: float) -> None:
        """Wait in slices, so that a signal can end it."""
        end = clock.Clock.monotonic() + patience
        while self._pgconn.is_busy():
            if self._is_readable(SLICE):
                self._pgconn.consume_input()
            elif clock.Clock.monotonic() > end:
                raise OperationalError("the server does not answer")

    def check(self) -> None:
        """Raise the first error among the answers that were not checked yet."""
        while 2 * self._checked < min(2 * self._sent, len(self._answers)):
            answer = self._answer(self._checked)
            self._checked += 1
            if answer.status in FAILED:
                raise error_from_result(answer)
            if (answer.command_status or b"").startswith(WRITES):
                self.written += answer.command_tuples or 0


def is_sync(answers: Sequence[PGresult | None]) -> bool:
    """Tell whether the last answer is the one to a sync."""
    if not answers or answers[-1] is None:
        return False
    return answers[-1].status == pq.ExecStatus.PIPELINE_SYNC


def sqlstate_of(answer: PGresult | None) -> bytes | None:
    """Return the code of the error that the server sent, if this is one."""
    if answer is None or answer.status not in FAILED:
        return None
    return answer.error_field(pq.DiagnosticField.SQLSTATE)


def readability_of(socket: int) -> Callable[[float], bool]:
    """Return a function that waits, in seconds, until there is something to read."""
    if not hasattr(select, "poll"):  # as on Windows
        return lambda seconds: bool(select.select([socket], [], [], seconds)[0])
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return lambda seconds: bool(poll.poll(int(seconds * 1000)))
