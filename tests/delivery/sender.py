"""A process that sends events: it is started, and killed, by the tests."""

from __future__ import annotations

import sys

from cmdx.delivery import Courier, Endpoint, machine
from cmdx.queue import Queue

ALLOWED = {"allow_http": True, "allow": ["127.0.0.1"]}
"""What a courier needs to send to a receiver of the tests."""
GAP = 0.05
"""Seconds between two rounds of probes, in place of two; they do not grow."""
LEASE = 0.6
"""Seconds after which a killed process is noticed, in place of thirty."""


def courier_of(queue, url, rate):
    """Return the courier that all processes of a test have."""
    endpoints = {name: Endpoint(f"{url}/{name}") for name in ("paid", "left")}
    return Courier(
        queue, endpoints, retention=3600, recovery_rate=rate, timeout=5.0, **ALLOWED
    )


def run(address, url, rate):
    """Send events until the process is killed."""
    machine.FIRST_GAP = machine.LONGEST_GAP = GAP
    queue = Queue(address)
    courier_of(queue, url, rate)
    worker = queue.worker()
    worker.lease = LEASE
    worker.run()


if __name__ == "__main__":
    address, url, rate = sys.argv[1:]
    run(address, url, float(rate) or None)
