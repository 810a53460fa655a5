"""
Messages per second on Celery and dramatiq: a task of cmdx beside one of the engine.

Run it with ``python tests/bench/engines.py``; it prints the table of the page about
which one to use when. RabbitMQ and Redis must answer on their default ports. A producer
in this process sends messages, and a worker with one thread in another process runs
them. The two tasks of an engine are measured in many short turns, each of which gives a
ratio; the medians are shown, because a turn may differ from the next by a fifth.
"""

from __future__ import annotations

import argparse
import logging
import mmap
import signal
import struct
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from uuid import uuid4

from bench_tasks import Count

HERE = Path(__file__).resolve()

MESSAGES = 300
ROUNDS = 15
PATIENCE = 120.0
RABBITMQ = "amqp://guest:guest@127.0.0.1:5672"
REDIS = "redis://127.0.0.1:6379/9"


class Counter:
    """A number in a file that two processes share."""

    def __init__(self, path):
        with Path(path).open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 8)

    def add_one(self):
        struct.pack_into("q", self.memory, 0, self.value + 1)

    @property
    def value(self):
        return struct.unpack_from("q", self.memory, 0)[0]


class CeleryBench:
    """A Celery app: with an ordinary task, and with one of cmdx."""

    def __init__(self, broker, queue, path):
        from celery import Celery

        from cmdx.engines.celery import CeleryEngine

        self.app = Celery("bench", broker=broker, set_as_current=False)
        self.app.conf.task_default_queue = queue
        self.app.conf.worker_prefetch_multiplier = 100
        self.engine = CeleryEngine(self.app)
        counter = Count.counter = Counter(path)

        @self.app.task(name="bare", acks_late=True, ignore_result=True, shared=False)
        def bare(number):
            del number
            counter.add_one()

        self.bare = bare
        self.engine.register(Count, ignore_result=True)

    def send_bare(self, number):
        self.bare.delay(number=number)

    def send(self, number):
        self.engine.enqueue(Count(number=number))

    def work(self):
        options = ["worker", "-P", "solo", "-l", "critical", "--without-gossip"]
        self.app.worker_main([*options, "--without-mingle", "--without-heartbeat"])


class DramatiqBench:
    """A broker of dramatiq: with an ordinary actor, and with one of cmdx."""

    def __init__(self, broker, queue, path):
        import dramatiq

        from cmdx.engines.dramatiq import DramatiqEngine

        self.broker = new_broker(broker)
        self.engine = DramatiqEngine(self.broker)
        counter = Count.counter = Counter(path)

        @dramatiq.actor(broker=self.broker, queue_name=queue)
        def bare(number):
            del number
            counter.add_one()

        self.bare = bare
        self.engine.register(Count, queue_name=queue)

    def send_bare(self, number):
        self.bare.send(number=number)

    def send(self, number):
        self.engine.enqueue(Count(number=number))

    def work(self):
        import dramatiq

        dramatiq.Worker(self.broker, worker_threads=1).start()
        signal.pause()


def new_broker(address):
    if address.startswith("redis"):
        from dramatiq.brokers.redis import RedisBroker

        return RedisBroker(url=address)
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    return RabbitmqBroker(url=address, confirm_delivery=True)


BENCHES = {"Celery": CeleryBench, "dramatiq": DramatiqBench}
BROKERS = {"RabbitMQ": RABBITMQ, "Redis": REDIS}


@contextmanager
def running(engine, broker):
    """Yield an engine with a queue of its own, a worker in another process, a count."""
    queue = f"cmdx_bench_{uuid4().hex}"
    with TemporaryDirectory() as folder:
        path = Path(folder, "count")
        path.write_bytes(bytes(8))
        bench = BENCHES[engine](BROKERS[broker], queue, path)
        command = [sys.executable, str(HERE), "--work", engine, broker, queue, path]
        worker = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            bench.send(0)
            counter = Counter(path)
            wait_until(lambda: counter.value == 1)
            yield bench, counter
        finally:
            worker.kill()
            worker.wait()


def wait_until(is_true):
    end = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError("the messages were not handled in time")
        time.sleep(0.001)


def rate(send, counter, messages):
    """Return how many messages per second are sent and handled."""
    wanted = counter.value + messages
    began = time.perf_counter()
    for number in range(messages):
        send(number)
    wait_until(lambda: counter.value >= wanted)
    return messages / (time.perf_counter() - began)


def table(messages, rounds):
    yield "| engine | broker | its own task | a task of cmdx | ratio |"
    yield "|---|---|---:|---:|---:|"
    for engine in BENCHES:
        for broker in BROKERS:
            with running(engine, broker) as (bench, counter):
                rate(bench.send_bare, counter, messages)
                turns = [
                    turn(bench, counter, messages, own_first=bool(number % 2))
                    for number in range(rounds)
                ]
            ratio = median(own / bare for bare, own in turns)
            bare, own = map(median, zip(*turns, strict=True))
            yield f"| {engine} | {broker} | {bare:,.0f} | {own:,.0f} | {ratio:.2f} |"


def turn(bench, counter, messages, *, own_first):
    """Return the rates of the engine's own task and of one of cmdx."""
    sends = [bench.send_bare, bench.send]
    order = reversed(sends) if own_first else sends
    rates = {send: rate(send, counter, messages) for send in order}
    return tuple(rates[send] for send in sends)


def main():
    parser = argparse.ArgumentParser(description="Measure messages per second.")
    parser.add_argument(
        "--work", nargs=4, metavar=("ENGINE", "BROKER", "QUEUE", "PATH")
    )
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    if given.work:
        logging.disable(logging.CRITICAL)
        engine, broker, queue, path = given.work
        BENCHES[engine](BROKERS[broker], queue, path).work()
        return
    for line in table(given.messages, given.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    with closing(sys.stdout):
        main()
