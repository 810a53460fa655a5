"""
Engines on the brokers of this machine, with workers in this process or in others.

Each place has queues of its own, so that runs of the tests do not disturb each other.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from uuid import uuid4

from engine_tasks import TASKS
from services import close_celery, rabbitmq_address, redis_address

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent)))
}

ADDRESSES = {"rabbitmq": rabbitmq_address, "redis": redis_address}
BROKER_BASE, RESULT_BASE = 11, 12
"""The databases of Redis that messages and results are in."""

PATIENCE = 20
"""Seconds after which a test fails that would wait for ever."""

LONGEST_PAUSE = 0.05
"""What workers of both engines sleep; all other pauses of the tests are longer."""


def new_name():
    """Return a name for a run, by which its notes are found."""
    return f"run-{uuid4().hex}"


def wait_until(is_true):
    """Wait until something is true, or fail."""
    end = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


class CeleryPlace:
    """A Celery app with an engine."""

    def __init__(self, broker, *, queue=None, tasks=TASKS, **settings):
        from celery import Celery
        from kombu import Queue

        from cmdx.engines.celery import CeleryEngine

        self.name, self.settings = f"celery-{broker}", settings
        self.queue = queue or f"cmdx_test_{uuid4().hex}"
        address = ADDRESSES[broker]()
        if broker == "redis":
            address = f"{address}/{BROKER_BASE}"
        results = f"{redis_address()}/{RESULT_BASE}"
        self.app = Celery(self.queue, broker=address, backend=results)
        self.app.conf.task_default_queue = self.queue
        self.dead = f"{self.queue}.dead"
        self.app.conf.task_queues = [self.queue_with_dead_letters()]
        self.app.conf.worker_hijack_root_logger = False
        self.app.conf.worker_enable_remote_control = False  # its queue has no uuid
        self.app.conf.update(settings)
        if broker == "redis":  # all queues share what is not confirmed
            options = self.app.conf.broker_transport_options
            own = {**options, "global_keyprefix": self.queue}
            self.app.conf.broker_transport_options = own
        self.engine = CeleryEngine(self.app)
        if tasks:
            self.engine.register(*tasks)
        with self.app.connection_for_write() as connection:
            Queue(self.dead)(connection.default_channel).declare()

    def queue_with_dead_letters(self):
        """Return the queue, as one declares it for RabbitMQ; Redis ignores the rest."""
        from kombu import Queue

        arguments = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead,
        }
        return Queue(self.queue, routing_key=self.queue, queue_arguments=arguments)

    @contextmanager
    def working(self):
        """Run a worker in another process: in a thread, it would not close sockets."""
        program = "from places import new_place, silence; silence(); "
        program += f"new_place({self.name!r}, "
        program += f"queue={self.queue!r}, **{self.settings!r}).work()"
        command = [sys.executable, "-c", program]
        worker = Popen(  # noqa: S603 -- ours
            command, env=ENVIRONMENT, stdout=DEVNULL, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()

    def work(self):
        """
        Work in this process, and in another one, until they are killed.

        Not with the pool ``solo``, which confirms messages up to ten seconds late.
        """
        flags = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        self.app.worker_main(
            ["worker", "-c", "1", "-l", "CRITICAL", "-n", self.queue, *flags]
        )

    def send_plainly(self, name, /, *args, origin=None, **kwargs):
        """Send a message as a program without cmdx would; return how to wait for it."""
        headers = {"cmdx": origin} if origin else {}
        sent = self.app.send_task(name, args=args, kwargs=kwargs, headers=headers)
        return lambda: sent.get(timeout=PATIENCE)

    def count_dead(self):
        """Return how many messages are dead letters; None if there are none of them."""
        if self.name == "celery-redis":
            return None
        with self.app.connection_for_write() as connection:
            dead = connection.default_channel.queue_declare(self.dead, passive=True)
            return dead.message_count

    def close(self):
        with self.app.connection_for_write() as connection:
            for name in (self.queue, self.dead):
                connection.default_channel.queue_delete(name)
        close_celery(self.app)


class DramatiqPlace:
    """A broker of dramatiq with an engine."""

    def __init__(self, broker, *, queue=None, tasks=TASKS, **options):
        from dramatiq.results import Results
        from dramatiq.results.backends import RedisBackend

        from cmdx.engines.dramatiq import DramatiqEngine

        self.queue = queue or f"cmdx_test_{uuid4().hex}"
        self.broker = new_broker(broker, **options)
        self.results = RedisBackend(url=f"{redis_address()}/{RESULT_BASE}")
        self.broker.add_middleware(Results(backend=self.results))
        self.engine = DramatiqEngine(self.broker, longest_pause=LONGEST_PAUSE)
        if tasks:
            self.engine.register(*tasks, queue_name=self.queue)

    @contextmanager
    def working(self):
        """Run a worker with a thread in this process."""
        from dramatiq import Worker

        worker = Worker(self.broker, worker_threads=1, worker_timeout=20)
        worker.start()
        try:
            yield
        finally:
            worker.stop()

    def work(self):
        """Work in this process until it is killed."""
        with self.working():
            while True:
                self.broker.join(self.queue)

    def send_plainly(self, name, /, *args, origin=None, **kwargs):
        """Send a message as a program without cmdx would."""
        from dramatiq import Message

        from cmdx.engines.dramatiq import DramatiqHandle

        options = {"cmdx": origin} if origin else {}
        message = Message(self.queue, name, args, kwargs, options)
        self.broker.enqueue(message)
        return lambda: DramatiqHandle(self.broker, message).wait(PATIENCE)

    def count_dead(self):
        """Return how many messages are dead letters."""
        name = f"{self.queue}.XQ"
        if hasattr(self.broker, "client"):
            return self.broker.client.zcard(f"dramatiq:{name}")
        # The first message of a test may not have been sent yet.
        self.broker.declare_queue(self.queue, ensure=True)
        found = self.broker.channel.queue_declare(name, passive=True)
        return found.method.message_count

    def close(self):
        for name in (self.queue, f"{self.queue}.DQ", f"{self.queue}.XQ"):
            delete_queue(self.broker, name)
        self.broker.close()
        for client in (self.results.client, getattr(self.broker, "client", None)):
            if client is not None:
                client.connection_pool.disconnect()


def new_broker(kind, **options):
    """Return a broker of dramatiq."""
    if kind == "redis":
        from dramatiq.brokers.redis import RedisBroker

        return RedisBroker(url=f"{redis_address()}/{BROKER_BASE}", **options)
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    return RabbitmqBroker(url=rabbitmq_address(), **options)


def delete_queue(broker, name):
    """Delete a queue, with what is in it."""
    if hasattr(broker, "channel"):
        broker.channel.queue_delete(name)
    else:
        broker.client.delete(f"dramatiq:{name}", f"dramatiq:{name}.msgs")


PLACES = {
    f"{engine.__name__[:-5].lower()}-{broker}": (engine, broker)
    for engine in (CeleryPlace, DramatiqPlace)
    for broker in ADDRESSES
}


def new_place(name, **options):
    """Return a place by the name of its engine and its broker."""
    engine, broker = PLACES[name]
    return engine(broker, **options)


def silence():
    """Have the engines say nothing; tests make tasks fail on purpose."""
    warnings.filterwarnings("ignore", "You're running the worker with superuser")
    for name in ("celery", "dramatiq", "kombu", "amqp", "pika"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
