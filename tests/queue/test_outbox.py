"""``within=``: a job is stored in the user's own transaction, if that commits."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import AsyncExitStack

import pytest
from queues import (
    PATIENCE,
    collected,
    in_thread,
    is_postgres,
    new_store,
    on_each_server,
    other_connection,
)

from cmdx import Task
from cmdx.queue import JobConflict, JobGone, JobState, Queue, job_enqueued
from cmdx.queue.claims import Claims
from cmdx.queue.legs import Leg, run_leg
from cmdx.queue.report import Demand
from cmdx.run.lifecycle import drive
from cmdx.stores import SqliteStore, StoreError, StoreUnavailable, sqlite

READY, HELD, RUNNING, DONE, DEAD, CANCELLED = JobState

INSERT = "insert into effect values (1)"


class Ship(Task[int], name="outbox.ship"):
    order: int

    def work(self) -> int:
        return self.order


# -- ways to give a connection ---------------------------------------------------------


class Way:
    """A connection of the user's in the middle of a transaction; by sqlite3."""

    kind = "file"

    def __init__(self, store):
        self.store = store
        self.stack = AsyncExitStack()

    async def open(self):
        self.given = sqlite3.connect(self.store.name, timeout=PATIENCE)
        self.stack.callback(self.given.close)

    async def enqueue(self, queue, task, **options):
        return queue.enqueue(task, within=self.given, **options)

    async def write(self):
        self.given.execute(INSERT)

    async def commit(self):
        self.given.commit()

    async def rollback(self):
        self.given.rollback()

    async def close(self):
        await self.stack.aclose()


class ByAsyncCall(Way):
    """A plain connection, and the call for coroutines."""

    async def enqueue(self, queue, task, **options):
        return await queue.aenqueue(task, within=self.given, **options)


class Explicit(Way):
    """A connection of sqlite3 whose transactions the user begins."""

    async def open(self):
        await super().open()
        self.given.isolation_level = None
        self.given.row_factory = sqlite3.Row
        self.given.execute("begin")


class Psycopg(Way):
    kind = "postgresql"

    async def open(self):
        import psycopg
        from psycopg.rows import dict_row

        self.given = psycopg.connect(self.store.address, row_factory=dict_row)
        self.stack.callback(self.given.close)


class AsyncPsycopg(ByAsyncCall):
    kind = "postgresql"

    async def open(self):
        import psycopg

        self.given = await psycopg.AsyncConnection.connect(self.store.address)
        self.stack.push_async_callback(self.given.close)

    async def write(self):
        await self.given.execute(INSERT)

    async def commit(self):
        await self.given.commit()

    async def rollback(self):
        await self.given.rollback()


def alchemy_address(store):
    if is_postgres(store):
        return store.address.replace("postgresql:", "postgresql+psycopg:")
    return f"sqlite:///{store.name}"


class AlchemyConnection(Way):
    async def open(self):
        from sqlalchemy import create_engine

        engine = create_engine(alchemy_address(self.store))
        self.stack.callback(engine.dispose)
        self.given = self.session(engine)
        self.stack.callback(self.given.close)

    def session(self, engine):
        return engine.connect()

    async def write(self):
        from sqlalchemy import text

        self.given.execute(text(INSERT))


class AlchemySession(AlchemyConnection):
    def session(self, engine):
        from sqlalchemy.orm import Session

        return Session(engine)


class AlchemyScopedSession(AlchemyConnection):
    def session(self, engine):
        from sqlalchemy.orm import scoped_session, sessionmaker

        return scoped_session(sessionmaker(engine))


class AlchemyOwnSession(AlchemyConnection):
    """A subclass of a session, such as that of SQLModel."""

    def session(self, engine):
        from sqlalchemy.orm import Session

        class OwnSession(Session):
            pass

        return OwnSession(engine)


class AlchemyRawConnection(AlchemyConnection):
    def session(self, engine):
        return engine.raw_connection()

    async def write(self):
        self.given.cursor().execute(INSERT)


class PostgresAlchemyRawConnection(AlchemyRawConnection):
    kind = "postgresql"


class PostgresAlchemyConnection(AlchemyConnection):
    kind = "postgresql"


class PostgresAlchemySession(AlchemySession):
    kind = "postgresql"


class AsyncAlchemyConnection(ByAsyncCall):
    kind = "postgresql"

    async def open(self):
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(alchemy_address(self.store))
        self.stack.push_async_callback(engine.dispose)
        self.given = await self.session(engine)
        self.stack.push_async_callback(self.given.close)

    async def session(self, engine):
        return await engine.connect()

    async def write(self):
        from sqlalchemy import text

        await self.given.execute(text(INSERT))

    async def commit(self):
        await self.given.commit()

    async def rollback(self):
        await self.given.rollback()


class AsyncAlchemySession(AsyncAlchemyConnection):
    async def session(self, engine):
        from sqlalchemy.ext.asyncio import AsyncSession

        return AsyncSession(engine)


class AsyncAlchemyRawConnection(AsyncAlchemyConnection):
    async def open(self):
        from sqlalchemy.ext.asyncio import create_async_engine
        from sqlalchemy.util import greenlet_spawn

        engine = create_async_engine(alchemy_address(self.store))
        self.stack.push_async_callback(engine.dispose)
        self.given = await engine.raw_connection()
        self.stack.push_async_callback(greenlet_spawn, self.given.close)

    async def write(self):
        await self.given.driver_connection.execute(INSERT)

    async def commit(self):
        await self.given.driver_connection.commit()

    async def rollback(self):
        await self.given.driver_connection.rollback()


class Django(Way):
    """The connection that ``django.db.connection`` stands for."""

    async def open(self):
        import django
        from django.apps import apps
        from django.conf import settings
        from django.db.utils import ConnectionHandler
        from django.utils.connection import ConnectionProxy

        if not settings.configured:
            settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        if not apps.ready:
            django.setup()
        handler = ConnectionHandler({"default": self.database()})
        self.given = ConnectionProxy(handler, "default")
        self.given.set_autocommit(False)
        self.stack.callback(self.given.close)

    def database(self):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.store.name}

    async def write(self):
        with self.given.cursor() as cursor:
            cursor.execute(INSERT)


class PostgresDjango(Django):
    kind = "postgresql"

    def database(self):
        from psycopg.conninfo import conninfo_to_dict

        found = conninfo_to_dict(self.store.address)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": found["dbname"],
            "USER": found.get("user", ""),
            "PASSWORD": found.get("password", ""),
            "HOST": found.get("host", ""),
            "PORT": found.get("port", ""),
            "OPTIONS": {"options": found["options"]},
        }


WAYS = [
    Way, Explicit, ByAsyncCall, Psycopg, AsyncPsycopg, AlchemyConnection,
    AlchemySession, AlchemyScopedSession, AlchemyOwnSession, AlchemyRawConnection,
    PostgresAlchemyConnection, PostgresAlchemySession, PostgresAlchemyRawConnection,
    AsyncAlchemyConnection, AsyncAlchemySession, AsyncAlchemyRawConnection, Django,
    PostgresDjango,
]  # fmt: skip


def run_plainly(steps):
    """Run a coroutine that never suspends; Django refuses to work in a loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it was to be awaited")


class User:
    """Runs the steps of a test in one way."""

    def __init__(self, way, store):
        self.way, self.store = way, store
        with other_connection(store) as connection:
            connection.execute("drop table if exists effect")
            connection.execute("create table effect (number integer)")
            connection.commit()

    def run(self, steps):
        async def inside():
            await self.way.open()
            try:
                return await steps(self.way)
            finally:
                await self.way.close()

        return asyncio.run(inside()) if self.is_async else run_plainly(inside())

    @property
    def is_async(self):
        return isinstance(self.way, ByAsyncCall)

    def effects(self):
        """Return how many rows others see."""
        with other_connection(self.store) as other:
            return other.execute("select count(*) from effect").fetchone()[0]


@pytest.fixture
def store(request, tmp_path, servers):
    """The store that a way, or ``on_each_server``, asks for."""
    kind = getattr(request, "param", "file")
    if "user" in request.fixturenames:
        kind = request.getfixturevalue("way").kind
    with new_store(kind, tmp_path, servers) as made:
        yield made


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request):
    return request.param


@pytest.fixture
def user(way, store):
    return User(way(store), store)


# -- the transaction -------------------------------------------------------------------


def test_a_job_is_there_when_the_transaction_is_committed(user, queue):
    async def steps(way):
        await way.write()
        job = await way.enqueue(queue, Ship(order=7))
        before = queue.get(job.id)
        await way.commit()
        return job, before

    job, before = user.run(steps)

    assert before is None
    assert user.effects() == 1
    assert queue.drain() == 1
    assert job.wait(5).value == 7


def test_a_job_is_not_there_when_the_transaction_is_rolled_back(user, queue):
    async def steps(way):
        await way.write()
        job = await way.enqueue(queue, Ship(order=7))
        await way.rollback()
        return job

    job = user.run(steps)

    assert queue.get(job.id) is None
    assert (user.effects(), queue.drain()) == (0, 0)


def test_the_job_may_be_the_first_statement_of_the_transaction(user, queue):
    async def steps(way):
        job = await way.enqueue(queue, Ship(order=7))
        await way.write()
        await way.rollback()
        return job

    job = user.run(steps)

    assert (queue.get(job.id), user.effects()) == (None, 0)


def test_all_options_are_stored(user, queue):
    async def steps(way):
        options = {"key": "k", "priority": 3, "after": 60, "id": "a", "unique": "x"}
        job = await way.enqueue(queue, Ship(order=7), **options)
        await way.commit()
        return job

    assert user.run(steps).id == "a"
    job = queue.get("a")
    assert (job.key, job.priority, job.state) == ("k", 3, HELD)
    assert job.due_at == job.created_at + 60
    assert queue.enqueue(Ship(order=8), unique="x").id == "a"


def test_waiting_before_the_commit_raises(user, queue):
    async def steps(way):
        job = await way.enqueue(queue, Ship(order=7))
        with pytest.raises(JobGone, match="within= was not committed yet"):
            job.wait(1)
        with pytest.raises(JobGone, match="is not stored"):
            job.refresh()
        await way.commit()
        assert job.refresh().state is READY

    user.run(steps)


def test_no_signal_is_sent(user, queue):
    async def steps(way):
        await way.enqueue(queue, Ship(order=7))
        await way.commit()

    with collected(job_enqueued) as sent:
        user.run(steps)

    assert sent == []


def test_a_conflict_does_not_end_the_transaction(user, queue):
    queue.enqueue(Ship(order=1), id="a")

    async def steps(way):
        await way.write()
        with pytest.raises(JobConflict):
            await way.enqueue(queue, Ship(order=2), id="a")
        await way.write()
        job = await way.enqueue(queue, Ship(order=3))
        await way.commit()
        return job

    job = user.run(steps)

    assert user.effects() == 2
    assert queue.get(job.id).inputs == {"order": 3}
    assert queue.get("a").inputs == {"order": 1}


def test_what_is_there_is_returned_and_the_transaction_goes_on(user, queue):
    by_id = queue.enqueue(Ship(order=1), id="a")
    by_text = queue.enqueue(Ship(order=2), unique="x")

    async def steps(way):
        await way.write()
        found = [
            await way.enqueue(queue, Ship(order=1), id="a", unique="x"),
            await way.enqueue(queue, Ship(order=9), unique="x"),
        ]
        own = await way.enqueue(queue, Ship(order=3), unique="own")
        again = await way.enqueue(queue, Ship(order=4), unique="own")
        await way.commit()
        return [job.id for job in (*found, own, again)]

    first, second, own, again = user.run(steps)

    assert (first, second) == (by_id.id, by_text.id)
    assert own == again
    assert (user.effects(), queue.counts()[READY]) == (1, 3)


def test_a_text_whose_seconds_are_over_is_free(user, queue, instant):
    first = queue.enqueue(Ship(order=1), unique="x", until=10)

    async def steps(way):
        assert (await way.enqueue(queue, Ship(order=2), unique="x")).id == first.id
        instant.advance(10)
        job = await way.enqueue(queue, Ship(order=3), unique="x")
        await way.commit()
        return job

    job = user.run(steps)

    assert job.id != first.id
    assert queue.enqueue(Ship(order=4), unique="x").id == job.id


def test_the_id_of_a_job_that_was_kept_long_enough_is_free(user, queue, instant):
    queue.enqueue(Ship(order=1), id="a")
    queue.drain()

    async def steps(way):
        assert (await way.enqueue(queue, Ship(order=1), id="a")).state is DONE
        instant.advance(queue.keep)
        await way.enqueue(queue, Ship(order=2), id="a")
        await way.commit()

    user.run(steps)

    assert (queue.get("a").state, queue.get("a").inputs) == (READY, {"order": 2})


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_an_id_that_is_free_can_be_taken_by_a_transaction_that_still_sees_its_job(
    store, queue, instant
):
    queue.enqueue(Ship(order=1), id="a")
    queue.drain()
    instant.advance(queue.keep)

    from psycopg import IsolationLevel

    with other_connection(store) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        assert connection.execute("select state from cmdx_job").fetchall() == [
            ("done",)
        ]
        queue.enqueue(Ship(order=2), id="a", within=connection)
        connection.commit()

    assert queue.get("a").inputs == {"order": 2}


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_no_worker_waits_for_a_transaction_that_takes_the_text_of_its_job(
    store, queue, instant
):
    first = queue.enqueue(Ship(order=1), unique="x", until=10)
    claims = Claims(queue)
    (record,) = claims.do_round((), Demand(1)).claimed
    instant.advance(11)

    with other_connection(store) as connection:
        queue.enqueue(Ship(order=2), unique="x", within=connection)
        claims.do_round([drive(run_leg(Leg(queue, record), awaits=False))])
        assert first.refresh().state is DONE
        connection.commit()

    assert queue.counts()[READY] == 1


# -- what is refused -------------------------------------------------------------------


def test_a_connection_to_another_database_is_refused(user, tmp_path, instant):
    del instant
    with SqliteStore(tmp_path / "other.db") as other:

        async def steps(way):
            with pytest.raises(
                StoreError, match=r"connection is not one to .*other\.db"
            ):
                await way.enqueue(Queue(other), Ship(order=7))

        user.run(steps)
        assert not any(Queue(other).counts().values())


def test_a_database_without_our_tables_is_refused(queue, tmp_path):
    connection = sqlite3.connect(tmp_path / "empty.db")

    with pytest.raises(StoreError, match="is not one to"):
        queue.enqueue(Ship(order=7), within=connection)

    connection.close()
    assert not any(queue.counts().values())


def test_a_store_in_memory_is_refused():
    with SqliteStore() as store:
        connection = sqlite3.connect(":memory:")

        with pytest.raises(StoreError, match="in memory has no connection but its own"):
            Queue(store).enqueue(Ship(order=7), within=connection)

        connection.close()


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_who_forgets_within_is_told_what_has_locked_the_file(
    store, queue, call, monkeypatch
):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", 0.05)
    with other_connection(store) as connection:
        connection.execute("create table effect (number integer)")
        connection.execute(INSERT)

        with pytest.raises(StoreUnavailable, match="is locked") as caught:
            call(queue, "enqueue", Ship(order=7))

    assert str(caught.value).endswith(
        "If the transaction is your own, commit it first, or pass its connection to "
        "enqueue() or send() as within=."
    )


@on_each_server
def test_a_raw_connection_that_was_closed_is_refused(store, queue):
    engine = engine_of(store)
    raw = engine.raw_connection()
    raw.close()

    with pytest.raises(StoreError, match=r"was closed\. Pass one that is open"):
        queue.enqueue(Ship(order=7), within=raw)

    engine.dispose()


def cursor_of(store):
    return sqlite3.connect(store.name).cursor()


def engine_of(store):
    from sqlalchemy import create_engine

    return create_engine(alchemy_address(store))


@pytest.mark.parametrize("make", [cursor_of, engine_of, lambda store: store.name])
def test_what_is_no_connection_is_refused(store, queue, make):
    given = make(store)

    with pytest.raises(TypeError, match="Pass the connection itself, not an address"):
        queue.enqueue(Ship(order=7), within=given)

    close = getattr(getattr(given, "connection", None), "close", None)
    if close is not None:
        close()


def test_the_password_of_an_address_is_not_shown(queue, call):
    address = "postgresql://shop:secret@db/shop"

    with pytest.raises(TypeError, match="got an instance of str") as caught:
        call(queue, "enqueue", Ship(order=7), within=address)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "cure"),
    [
        ("asyncpg.connection", r"Use psycopg 3, .* postgresql\+psycopg://"),
        ("psycopg2.extensions", r"Use psycopg 3, .* postgresql\+psycopg://"),
        ("aiosqlite.core", "Use sqlite3, .* coroutines may pass its connections too"),
    ],
)
def test_a_connection_of_another_driver_is_refused(queue, call, module, cure):
    stand_in = type("Connection", (), {"__module__": module})()  # it is not installed
    driver = module.partition(".")[0]

    with pytest.raises(TypeError, match=f"is needed, got one of {driver}. {cure}"):
        call(queue, "enqueue", Ship(order=7), within=stand_in)


@pytest.mark.parametrize(
    "way",
    [
        AsyncPsycopg,
        AsyncAlchemyConnection,
        AsyncAlchemySession,
        AsyncAlchemyRawConnection,
    ],
    indirect=True,
)
def test_an_asynchronous_connection_needs_the_call_for_coroutines(user, queue):
    async def steps(way):
        with pytest.raises(TypeError, match=r"needs aenqueue\(\)"):
            queue.enqueue(Ship(order=7), within=way.given)

    user.run(steps)


def test_a_wrong_input_leaves_the_transaction_alone(user, queue):
    async def steps(way):
        await way.write()
        with pytest.raises(Exception, match="order"):
            await way.enqueue(queue, Ship(order="x"))
        await way.commit()

    user.run(steps)

    assert user.effects() == 1


# -- several transactions --------------------------------------------------------------


def wait_until_blocked(store):
    """Wait until a transaction of another connection waits for a lock."""
    sql = "select count(*) from pg_locks where not granted"
    end = time.monotonic() + PATIENCE
    with other_connection(store) as looking:
        looking.autocommit = True
        while looking.execute(sql).fetchone() == (0,):
            assert time.monotonic() < end
            time.sleep(0.002)


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("options", [{"id": "a"}, {"unique": "x"}], ids=["id", "text"])
def test_of_two_transactions_the_faster_one_has_the_job(store, queue, options):
    with other_connection(store) as faster, other_connection(store) as slower:
        first = queue.enqueue(Ship(order=1), within=faster, **options)
        second = in_thread(
            lambda: queue.enqueue(Ship(order=1), within=slower, **options)
        )
        wait_until_blocked(store)
        faster.commit()

        assert second.result(PATIENCE).id == first.id
        slower.commit()

    assert sum(queue.counts().values()) == 1


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_of_two_transactions_with_one_id_the_slower_one_has_a_conflict(store, queue):
    with other_connection(store) as faster, other_connection(store) as slower:
        queue.enqueue(Ship(order=1), within=faster, id="a")
        second = in_thread(lambda: queue.enqueue(Ship(order=2), within=slower, id="a"))
        wait_until_blocked(store)
        faster.commit()

        assert isinstance(second.exception(PATIENCE), JobConflict)

    assert queue.get("a").inputs == {"order": 1}


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_the_slower_transaction_has_the_job_if_the_other_is_rolled_back(store, queue):
    with other_connection(store) as faster, other_connection(store) as slower:
        queue.enqueue(Ship(order=1), within=faster, id="a")
        second = in_thread(lambda: queue.enqueue(Ship(order=2), within=slower, id="a"))
        wait_until_blocked(store)
        faster.rollback()

        assert second.result(PATIENCE).inputs == {"order": 2}
        slower.commit()

    assert queue.get("a").inputs == {"order": 2}


@on_each_server
def test_who_waits_for_the_store_is_woken_by_the_commit(store, queue):
    with other_connection(store) as connection:
        queue.enqueue(Ship(order=1), within=connection)
        seen = store.version()
        waiting = in_thread(lambda: store.wait(PATIENCE, seen))
        connection.commit()

        assert waiting.result(PATIENCE) is True
