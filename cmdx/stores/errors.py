"""
What goes wrong with stores.

    StoreError                  the store cannot be used, or a statement is wrong
    └── StoreUnavailable        not now: locked, full, not reachable
        └── CommitUncertain     the connection was lost during the commit

Each message has a sentence with the cause, which names the file or the database, and
one with the cure. The error of the driver is its ``__cause__``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cmdx.exceptions import CmdxError


class StoreError(CmdxError):
    """A store cannot be used as it is, or a statement is wrong."""

    def __init__(self, cause: str, cure: str) -> None:
        self.cause = cause.removesuffix(".")  # of a driver, whose text may end it
        self.cure = cure.removesuffix(".")
        super().__init__(f"{self.cause}. {self.cure}.")

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from both sentences."""
        return type(self), (self.cause, self.cure), {**vars(self)}


class StoreUnavailable(StoreError):  # noqa: N818 -- a public name
    """A store cannot be used now, but may be later."""

    retryable = True
    """Read by ``cmdx.is_retryable``."""

    code = "UNAVAILABLE"
    """What other programs are told, by ``cmdx.guidance`` and ``cmdx.web``."""

    is_uncertain = False
    """Whether the transaction may have been committed all the same."""


class CommitUncertain(StoreUnavailable):
    """
    The connection was lost during the commit, which may or may not have happened.

    A unit that is tried again may be done twice, unless it checks what is stored.
    """

    code = "OUTCOME_UNKNOWN"
    is_uncertain = True


def copy_of(error: BaseException) -> BaseException:
    """Return *error* once more, to be raised by another thread."""
    if not isinstance(error, StoreError):
        return error
    other = type(error)(error.cause, error.cure)
    other.__cause__ = error.__cause__
    return other


OWN_TRANSACTION = (
    "If the transaction is your own, commit it first, or pass its connection to "
    "enqueue() or send() as within="
)


# -- SQLite -----------------------------------------------------------------------

SQLITE_ERRORS: dict[str, tuple[type[StoreError], str, str]] = {
    "SQLITE_BUSY": (
        StoreUnavailable,
        "{name} is locked by another connection",
        "Try again, and keep the write transactions of other connections short. "
        + OWN_TRANSACTION,
    ),
    "SQLITE_FULL": (
        StoreUnavailable,
        "{name} cannot grow, because the disk or the quota is full",
        "Free some space and try again",
    ),
    "SQLITE_IOERR": (
        StoreUnavailable,
        "{name} could not be read or written",
        "Check the disk, and try again",
    ),
    "SQLITE_READONLY": (
        StoreError,
        "{name} is read-only",
        "Let this user write to the file and to its directory",
    ),
    "SQLITE_NOTADB": (
        StoreError,
        "{name} is not an SQLite database",
        "Use another path, or move the file away if it is a damaged database",
    ),
    "SQLITE_CORRUPT": (
        StoreError,
        "{name} is damaged",
        "Restore it from a backup",
    ),
    "SQLITE_CANTOPEN": (
        StoreError,
        "{name} cannot be opened",
        "Check whether it is a file that this user may read and write",
    ),
}
"""Errors by the first two words of their names."""

SQLITE_ERRORS["SQLITE_LOCKED"] = SQLITE_ERRORS["SQLITE_BUSY"]
SQLITE_ERRORS["SQLITE_PERM"] = SQLITE_ERRORS["SQLITE_READONLY"]


def sqlite_error(error: BaseException, name: str, path: str) -> StoreError:
    """Return what an error of ``sqlite3`` means."""
    code = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    directory = Path(path).parent
    if code == "SQLITE_CANTOPEN" and not directory.is_dir():
        explained = StoreError(
            f"{name} cannot be created, because there is no directory {directory}",
            "Create the directory first",
        )
    elif code in SQLITE_ERRORS:
        kind, cause, cure = SQLITE_ERRORS[code]
        explained = kind(f"{cause.format(name=name)} ({first_line(error)})", cure)
    else:
        explained = wrong_statement(error, name)
    explained.__cause__ = error
    return explained


def wrong_statement(error: BaseException, name: str) -> StoreError:
    """Return the error for a statement that the database does not accept."""
    return StoreError(
        f"a statement failed on {name} ({first_line(error)})",
        "Look at the traceback of the cause, which leads to the statement",
    )


# -- PostgreSQL -------------------------------------------------------------------

POSTGRES_ERRORS: dict[str, tuple[type[StoreError], str, str]] = {
    "08": (
        StoreUnavailable,
        "{name} cannot be reached",
        "Try again when the server can be reached, or correct its host or port",
    ),
    "25006": (
        StoreError,
        "{name} is read-only",
        "Use the address of the primary server",
    ),
    "28": (
        StoreError,
        "{name} does not let this user in",
        "Correct the user, the password or pg_hba.conf",
    ),
    "3D000": (
        StoreError,
        "{name} does not exist on its server",
        "Create it with createdb, or correct its name",
    ),
    "3F000": (
        StoreError,
        "{name} does not have the schema for a table",
        "Create the schema first, or correct the search_path",
    ),
    "40": (
        StoreUnavailable,
        "{name} was changed by others at the same time, again and again",
        "Try again",
    ),
    "42501": (
        StoreError,
        "{name} does not let this user do that",
        "Grant the user the rights on its schema and tables",
    ),
    "53": (
        StoreUnavailable,
        "{name} has no disk space, memory or connections left",
        "Free some of them, and try again",
    ),
    "55P03": (
        StoreUnavailable,
        "{name} has rows that others have locked for too long",
        "Try again, and keep the transactions of other connections short. "
        + OWN_TRANSACTION,
    ),
    "57": (
        StoreUnavailable,
        "{name} is being stopped, or has ended the statement",
        "Try again when the server can be reached",
    ),
}
"""Errors by their SQLSTATE, or the first letters of it."""


REFUSALS = (
    ("3D000", re.compile(r"database .* does not exist")),
    ("28000", re.compile(r"role .* does not exist|authentication|password|pg_hba")),
    ("53300", re.compile(r"too many (clients|connections)|connection slots")),
)


def postgres_error(error: BaseException, name: str) -> StoreError:
    """Return what an error of ``psycopg`` means."""
    code = sqlstate_of(error)
    known = next((key for key in (code, code[:2]) if key in POSTGRES_ERRORS), None)
    if known is None:
        explained = wrong_statement(error, name)
    else:
        kind, cause, cure = POSTGRES_ERRORS[known]
        explained = kind(f"{cause.format(name=name)} ({first_line(error)})", cure)
    explained.__cause__ = error
    return explained


def sqlstate_of(error: BaseException) -> str:
    """Return the SQLSTATE of an error; that of a lost connection if it has none."""
    code = getattr(error, "sqlstate", None)
    if code:
        return str(code)
    if "OperationalError" not in {kind.__name__ for kind in type(error).__mro__}:
        return ""
    # A refused connection has only a text.
    return next((known for known, text in REFUSALS if text.search(str(error))), "08000")


def first_line(error: BaseException) -> str:
    """Return the first line of the text of an error, without its full stop."""
    return (str(error).strip().splitlines() or [""])[0].removesuffix(".")
