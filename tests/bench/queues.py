"""The queues whose jobs per second are measured, and what their databases do alone."""

from __future__ import annotations

import sqlite3
import time

BATCH = 50
BARE_TABLE = "create table if not exists bare (id integer primary key, body text)"
BODY = '{"task": "bench:add", "inputs": {"number": 7}}'


class System:
    """A queue: how it is set up, filled, worked on in another process, and counted."""

    name = ""

    def __init__(self, address):
        self.address = address

    def set_up(self):
        """Create tables."""

    def enqueue(self, number):
        """Store one job."""
        raise NotImplementedError

    def enqueue_all(self, numbers):
        """Store jobs, one after the other."""
        for number in numbers:
            self.enqueue(number)

    def work(self):
        """Run jobs until this process is killed."""
        raise NotImplementedError

    def left(self, count):
        """Return how many of *count* jobs are not done."""
        raise NotImplementedError

    def close(self):
        """Release connections."""


# -- SQLite -------------------------------------------------------------------------


class BareSqlite(System):
    """Inserts with a commit each; claims and deletes in batches."""

    name = "bare SQLite"

    def set_up(self):
        self.connection = self.connect()
        self.connection.execute("pragma journal_mode=wal")
        self.connection.execute(BARE_TABLE)

    def connect(self):
        connection = sqlite3.connect(
            self.address, isolation_level=None, timeout=30, check_same_thread=False
        )
        connection.execute("pragma synchronous=normal")
        return connection

    def enqueue(self, _number):
        execute = self.connection.execute
        execute("begin immediate")
        execute("insert into bare (body) values (?)", (BODY,))
        execute("commit")

    def work(self):
        execute = self.connect().execute
        while True:
            execute("begin immediate")
            rows = execute("select id, body from bare limit ?", (BATCH,)).fetchall()
            for row in rows:
                execute("delete from bare where id = ?", (row[0],))
            execute("commit")
            if not rows:
                time.sleep(0.001)

    def left(self, _count):
        return self.connection.execute("select count(*) from bare").fetchone()[0]

    def close(self):
        self.connection.close()


class BareSqliteSync(BareSqlite):
    name = "bare SQLite, each insert on disk"

    def set_up(self):
        super().set_up()
        self.connection.execute("pragma synchronous=full")


class Cmdx(System):
    name = "cmdx"
    sync = False

    def set_up(self):
        from bench_tasks import Add

        from cmdx.queue import Queue

        self.task = Add
        self.queue = Queue(self.open_store())

    def open_store(self):
        from cmdx.stores import SqliteStore

        return SqliteStore(self.address, sync=self.sync)

    def enqueue(self, number):
        return self.queue.enqueue(self.task(number=number))

    def work(self):
        self.set_up()
        self.queue.worker().run()

    def left(self, count):
        return count - self.queue.counts()["done"]

    def close(self):
        self.queue.store.close()


class CmdxMany(Cmdx):
    name = "cmdx, enqueued in batches of 50"

    def enqueue_all(self, numbers):
        for start in range(0, len(numbers), BATCH):
            tasks = [self.task(number=number) for number in numbers[start:][:BATCH]]
            self.queue.enqueue_many(tasks)


class CmdxSync(Cmdx):
    name = "cmdx, each enqueue on disk"
    sync = True


class Huey(System):
    name = "huey"
    fsync = False

    def set_up(self):
        from huey import SqliteHuey

        # It gives up after five seconds by default, which may be over on a slow disk.
        options = {"fsync": self.fsync, "timeout": 60}
        self.huey = SqliteHuey(filename=str(self.address), **options)

        @self.huey.task(name="add")
        def add(number):
            del number
            return time.time()

        self.add = add

    def enqueue(self, number):
        return self.add(number)

    def work(self):
        self.set_up()
        self.huey.create_consumer(workers=1, initial_delay=0.01).run()

    def left(self, count):
        return count - self.huey.result_count()


class HueySync(Huey):
    name = "huey, each enqueue on disk"
    fsync = True


# -- PostgreSQL ---------------------------------------------------------------------


class BarePostgres(System):
    """Inserts with a commit each; claims and deletes in batches."""

    name = "bare PostgreSQL"

    def set_up(self):
        self.connection = self.connect()
        self.connection.execute(
            "create table if not exists bare (id bigserial primary key, body text)"
        )

    def connect(self):
        import psycopg

        return psycopg.connect(self.address, autocommit=True)

    def enqueue(self, _number):
        self.connection.execute("insert into bare (body) values (%s)", (BODY,))

    def work(self):
        connection = self.connect()
        connection.execute("set synchronous_commit = off")
        sql = (
            "delete from bare where id in (select id from bare order by id "
            "limit %s for update skip locked) returning id, body"
        )
        while True:
            if not connection.execute(sql, (BATCH,)).fetchall():
                time.sleep(0.001)

    def left(self, _count):
        return self.connection.execute("select count(*) from bare").fetchone()[0]

    def close(self):
        self.connection.close()


class CmdxPostgres(Cmdx):
    name = "cmdx"

    def open_store(self):
        from cmdx.stores import PostgresStore

        return PostgresStore(self.address, migrate=True)


class Procrastinate(System):
    name = "procrastinate"

    def set_up(self):
        import procrastinate

        connector = procrastinate.SyncPsycopgConnector(conninfo=self.address)
        self.app = self.new_app(connector)
        self.app.open()
        if not self.has_tables():
            self.app.schema_manager.apply_schema()

    def new_app(self, connector):
        import procrastinate

        app = procrastinate.App(connector=connector)

        @app.task(name="add")
        def add(number):
            return number

        self.add = add
        return app

    def has_tables(self):
        import psycopg

        with psycopg.connect(self.address) as connection:
            sql = "select to_regclass('procrastinate_jobs')"
            return connection.execute(sql).fetchone()[0] is not None

    def enqueue(self, number):
        return self.add.defer(number=number)

    def work(self):
        import procrastinate

        app = self.new_app(procrastinate.PsycopgConnector(conninfo=self.address))
        app.run_worker(install_signal_handlers=False)

    def left(self, count):
        import psycopg

        with psycopg.connect(self.address) as connection:
            sql = "select count(*) from procrastinate_jobs where status = 'succeeded'"
            return count - connection.execute(sql).fetchone()[0]

    def close(self):
        self.app.close()


SYSTEMS = {
    kind.__name__: kind
    for kind in (
        BareSqlite, BareSqliteSync, Cmdx, CmdxMany, CmdxSync, Huey, HueySync,
        BarePostgres, CmdxPostgres, Procrastinate,
    )
}  # fmt: skip
