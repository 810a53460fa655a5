"""
``python -m cmdx migrate DATABASE``: bring the tables of a database up to date.

SQLite does this when it is opened. For PostgreSQL it is a step of a deployment.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmdx.cli.targets import Misuse

if TYPE_CHECKING:
    import argparse

TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""``MODULE:QUEUE``, which the other commands take."""


def add_migrate(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``migrate``."""
    parser = subparsers.add_parser(
        "migrate",
        help="bring the tables of a database up to date",
        description="Create the tables of cmdx in a database, or add what is missing.",
    )
    parser.add_argument(
        "database",
        metavar="DATABASE",
        help="a DSN such as postgresql://localhost/app, or the path of a SQLite file",
    )
    parser.add_argument(
        "--sql",
        action="store_true",
        help="print the SQL instead of running it",
    )
    parser.set_defaults(run=run_migrate)


def run_migrate(asked: argparse.Namespace) -> int:
    """Migrate the database, or print how."""
    from cmdx.stores.schema import VERSION, migrate, migration_sql
    from cmdx.stores.store import is_postgres

    check_database(asked.database)
    if asked.sql:
        dialect = "postgresql" if is_postgres(asked.database) else "sqlite"
        sys.stdout.write(migration_sql(dialect))
        return 0
    migrate(asked.database)
    sys.stdout.write(f"The tables of cmdx are at version {VERSION}.\n")
    return 0


def check_database(address: str) -> None:
    """Refuse a wrong address, the name of a queue, and what may be a misspelt file."""
    from cmdx.stores.store import MEMORY, is_postgres, path_of

    if is_postgres(address):
        return
    path = Path(path_of(address))  # refused if misspelt, without its password
    if "://" in address or address == MEMORY or path.drive or path.exists():
        return
    if TARGET.fullmatch(address):
        message = (
            f"{address!r} is MODULE:QUEUE. Give `migrate` the address of the database "
            "instead, such as postgresql://localhost/shop, or the path of its SQLite "
            "file, such as shop.db."
        )
        raise Misuse(message)
    if path.suffix and ":" not in path.suffix:
        return
    message = (
        f"there is no file {address!r}. Write a DSN such as "
        f"postgresql://localhost/{path.name}, or a path with a suffix, such as "
        f"{path.name}.db, and the SQLite file is created."
    )
    raise Misuse(message)
