"""
How fast events are delivered, and whether a dead endpoint delays the others.

Run it with ``python tests/bench/deliveries.py``; it prints the tables of the page about
the states of a courier. The receiver is in another process. All lines of a table are
measured in the same run, in turn. The ratio is the median of those of each turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpcore

from cmdx.delivery import Courier, Endpoint, new_secret
from cmdx.queue import Queue

HERE = Path(__file__).resolve()

EVENTS = 600
CONVERSATIONS = 50
INSTALLS = 50
EVENTS_EACH = 6
PAUSE = 0.01
"""Seconds between two events, in the table of delays."""
ROUNDS = 5
BODY = json.dumps({"order": 7, "at": 0.0}, separators=(",", ":")).encode()


# -- the receiver ---------------------------------------------------------------------


class Server:
    """A receiver in another process."""

    def __init__(self, process):
        self.process = process
        self.url = process.stdout.readline().strip()

    def delays(self):
        """End it, and return how long each event was on its way, by its path."""
        output, _ = self.process.communicate()
        return json.loads(output)


@contextmanager
def running_server(*dead):
    command = [sys.executable, str(HERE), "--receive", *dead]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Server(process)
    finally:
        process.kill()
        process.communicate()


def receive(dead):
    """Receive events until the input ends, then print how long they took."""
    from cmdx.testing import Answer, Receiver

    with Receiver() as hook:
        for path in dead:
            hook.script(path, [Answer(500, delay=60.0)] * 1000)
        print(hook.url, flush=True)
        sys.stdin.read()
        delays = {}
        for got in hook.received():
            delays.setdefault(got.path, []).append(got.at - got.json["at"])
        print(json.dumps(delays), flush=True)


# -- throughput -----------------------------------------------------------------------


async def post_in_a_loop(url, count):
    """Post so many events with the same client, one after the other."""
    headers = {"content-type": "application/json"}
    async with httpcore.AsyncConnectionPool() as pool:
        for _ in range(count):
            await pool.request("POST", url, headers=headers, content=BODY)


def bare_rate(url):
    began = time.perf_counter()
    asyncio.run(post_in_a_loop(f"{url}/bare", EVENTS))
    return EVENTS / (time.perf_counter() - began)


@contextmanager
def new_queue():
    with TemporaryDirectory() as folder:
        queue = Queue(Path(folder, "bench.db"))
        yield queue
        queue.store.close()


def new_courier(queue, url, name="default"):
    return Courier(
        queue,
        {"paid": Endpoint(f"{url}/{name}")},
        name=name,
        retention=3600,
        secret=new_secret(),
        allow=["127.0.0.1"],
        allow_http=True,
    )


def courier_rate(url):
    """Return how many stored events per second a worker delivers."""
    with new_queue() as queue:
        courier = new_courier(queue, url)
        for number in range(EVENTS):
            payload = {"order": 7, "at": 0.0}
            courier.send("paid", payload, conversation=str(number % CONVERSATIONS))
        with queue.worker() as worker:
            began = time.perf_counter()
            while worker.legs < EVENTS:
                time.sleep(0.005)
            return EVENTS / (time.perf_counter() - began)


def throughput_table(rounds):
    found = {"a loop of the same client": [], "a courier, with a worker": []}
    with running_server() as server:
        bare_rate(server.url)
        for _ in range(rounds):
            found["a loop of the same client"].append(bare_rate(server.url))
            found["a courier, with a worker"].append(courier_rate(server.url))
    yield "| | events per second |"
    yield "|---|---:|"
    for name, rates in found.items():
        yield f"| {name} | {statistics.median(rates):,.0f} |"
    ratios = [each / loop for loop, each in zip(*found.values(), strict=True)]
    yield f"\nratio {statistics.median(ratios):.2f}"


# -- delays ---------------------------------------------------------------------------


def median_delay(*dead):
    """Return the median time from ``send`` to the endpoint, over all that live."""
    with running_server(*dead) as server, new_queue() as queue:
        couriers = [
            new_courier(queue, server.url, f"install-{number}")
            for number in range(INSTALLS)
        ]
        with queue.worker(grace=0.0) as worker:
            for _ in range(EVENTS_EACH):
                for courier in couriers:
                    courier.send("paid", {"at": time.time()}, conversation="c")
                    time.sleep(PAUSE)
            alive = EVENTS_EACH * (INSTALLS - len(dead))
            while worker.legs < alive:
                time.sleep(0.01)
        delays = server.delays()
    found = [each for path, some in delays.items() if path not in dead for each in some]
    return statistics.median(found)


def delay_table(rounds):
    turns = [(median_delay(), median_delay("/install-0")) for _ in range(rounds)]
    all_alive, one_dead = map(statistics.median, zip(*turns, strict=True))
    yield f"| {INSTALLS} installs | median from `send` to the endpoint |"
    yield "|---|---:|"
    yield f"| all answer | {all_alive * 1000:.1f} ms |"
    yield f"| one never answers, the others | {one_dead * 1000:.1f} ms |"
    ratios = [dead / alive for alive, dead in turns]
    yield f"\nratio {statistics.median(ratios):.2f}"


PARTS = {"Throughput": throughput_table, "Delay": delay_table}


def main():
    parser = argparse.ArgumentParser(description="Measure deliveries.")
    parser.add_argument("--receive", nargs="*", metavar="DEAD")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="parts whose name contains this")
    given = parser.parse_args()
    if given.receive is not None:
        receive(given.receive)
        return
    for name, part in PARTS.items():
        if given.only in name:
            print(f"\n{name}\n")
            for line in part(given.rounds):
                print(line, flush=True)


if __name__ == "__main__":
    with closing(sys.stdout):
        main()
